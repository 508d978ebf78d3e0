//! Disk images with changed bytes: reading one always ends, without a panic.
//!
//! # Boundary
//! The input is a script of changes to one of two images, five bytes each: one of its blocks, the place in it, and the
//! change of the byte. The result is opened, checked and walked like by a user's commands.
//!
//! # Why
//! The first image has no checksums (`^metadata_csum`), so that every change reaches the code behind them. It has a
//! journal to replay, files in tables and in extents, an indexed directory, data in inodes, attributes in inodes and
//! blocks. The second image has `metadata_csum` everywhere and no journal. The input's length modulo 5 chooses: with 0
//! to 2 the first image, with 3 the second one and its checksums are repaired after the changes (`repair`), with 4 they
//! are not. Weakness: `crates/ext/tests` tests checksums of a journal, and this does not.

pub(crate) mod repair;

use repair::Sums;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use uvfs_ext::check::{Observer, check};
use uvfs_ext::{Fault, Image, Inode, Kind, MemoryDevice, ROOT};

/// The blocks of the image that are not zero: number, length, bytes. Made by mke2fs, debugfs and e2fsck 1.47.
const BASE: &[u8] = include_bytes!("image.bin");
/// Blocks of the image with checksums, in the same form.
const CHECKSUMS: &[u8] = include_bytes!("image/checksums.bin");
pub(crate) const BLOCK: usize = 1024;
const BLOCKS: usize = 4096;
/// Most that is read of one file.
const READ_MAX: usize = 64 << 10;

/// Runs one input.
pub fn run(input: &[u8]) {
    let spare = input.len() % 5;
    let (mut bytes, used) = unpacked(if spare < 3 { BASE } else { CHECKSUMS });
    change(&mut bytes, &used, input);
    if spare == 3 {
        SUMS.repair(&mut bytes);
    }
    let Ok(image) = Image::open(Arc::new(MemoryDevice::new(bytes))) else { return };
    let mut faults = Faults::default();
    let summary = check(&image, &mut faults).expect("memory does not fail");
    assert_eq!(summary.faults, faults.0, "every fault is told and counted");
    assert!(summary.inodes <= image.superblock().inodes.into());
    if let Ok(root) = image.inode(ROOT) {
        walk(&image, root);
    }
}

/// Applies a script to an image.
pub(crate) fn change(bytes: &mut [u8], used: &[usize], script: &[u8]) {
    for change in script.chunks_exact(5) {
        let block = used[usize::from(u16::from_le_bytes([change[0], change[1]])) % used.len()];
        let offset = usize::from(u16::from_le_bytes([change[2], change[3]]));
        let byte = &mut bytes[block * BLOCK + offset % BLOCK];
        // The highest bits of the offset choose the change.
        *byte = match offset >> 14 {
            0 => change[4],
            1 => *byte ^ change[4],
            2 => byte.wrapping_add(change[4]),
            _ => 0xFF,
        };
    }
}

/// The places of that image's checksums. A repair of the base changes nothing: both sides compute the same checksums.
static SUMS: LazyLock<Sums> = LazyLock::new(|| {
    let (base, _) = unpacked(CHECKSUMS);
    let (sums, mut repaired) = (Sums::of(&base), base.clone());
    sums.repair(&mut repaired);
    assert!(repaired == base, "a checksum of the base is another one");
    sums
});

/// The image before anything was changed, and the blocks of it that hold something.
pub(crate) fn unpacked(packed: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut image, mut used, mut rest) = (vec![0; BLOCK * BLOCKS], Vec::new(), packed);
    while let [n0, n1, l0, l1, behind @ ..] = rest {
        let number = usize::from(u16::from_le_bytes([*n0, *n1]));
        let (bytes, behind) = behind.split_at(usize::from(u16::from_le_bytes([*l0, *l1])));
        image[number * BLOCK..number * BLOCK + bytes.len()].copy_from_slice(bytes);
        used.push(number);
        rest = behind;
    }
    (image, used)
}

#[derive(Default)]
struct Faults(u64);

impl Observer for Faults {
    fn fault(&mut self, fault: &Fault) {
        assert!(!fault.to_string().is_empty());
        self.0 += 1;
    }
}

/// Reads everything below `root`, each directory once.
fn walk(image: &Image, root: Inode) {
    let mut seen = HashSet::from([root.number]);
    let mut waiting = vec![root];
    let mut bytes = vec![0; READ_MAX];
    while let Some(inode) = waiting.pop() {
        let _ = image.xattrs(&inode);
        let _ = image.read_link(&inode);
        let end = inode.size().saturating_sub(READ_MAX as u64 / 2);
        for offset in [0, 1, end, u64::MAX] {
            if let Ok(read) = image.read(&inode, offset, &mut bytes) {
                assert!(offset.saturating_add(read as u64) <= inode.size() || read == 0);
            }
        }
        if inode.kind() != Some(Kind::Directory) {
            continue;
        }
        let mut names = Vec::new();
        let mut last = 0;
        let _ = image.list(&inode, 0, &mut |entry| {
            assert!(entry.next > last, "positions increase");
            last = entry.next;
            assert!(!entry.name.is_empty() && !entry.name.contains(&b'/'));
            names.push((entry.name.into_owned(), entry.inode));
            ControlFlow::Continue(())
        });
        for (name, number) in names {
            let _ = image.lookup(&inode, &name);
            if let Ok(below) = image.inode(number)
                && seen.insert(number)
            {
                waiting.push(below);
            }
        }
    }
}
