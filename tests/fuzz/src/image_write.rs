//! Writes to disk images with changed bytes: no operation panics or ends writing, and each one ends.
//!
//! # Boundary
//! The input is a script of changes to an image, like that of [`crate::image`]. The image is then opened for writing,
//! and the rest of the input chooses operations. Fuzzes `uvfs_ext_write::Volume`.
//!
//! # Why
//! The default mount of an image writes it, and blocks read for a change were once trusted. The image has a journal and
//! checksums, which are corrected; an indexed directory, a file of many extents, preallocated blocks, attributes in a
//! block, a hard link, an orphan. Weakness: one block group, and no journal to replay.

use crate::image::{BLOCK, change, repair::Sums, unpacked};
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};
use uvfs_ext::{Image, Kind, MemoryDevice, ROOT};
use uvfs_ext_write::device::testing::Random;
use uvfs_ext_write::{Grow, New, Rename, Volume, WritableMemory};

/// The blocks of the image that are not zero. Made by mke2fs, debugfs and e2fsck 1.47.
const BASE: &[u8] = include_bytes!("image/writable.bin");
const OPERATIONS: u32 = 40;
/// Objects that operations choose from.
const OBJECTS_MAX: usize = 64;

static SUMS: LazyLock<Sums> = LazyLock::new(|| Sums::of(&unpacked(BASE).0));

/// An object: its directory, its name, its number.
type Object = (u32, Vec<u8>, u32);

/// Runs one input.
pub fn run(input: &[u8]) {
    let (mut bytes, used) = unpacked(BASE);
    change(&mut bytes, &used, input);
    SUMS.repair(&mut bytes);
    let device = Arc::new(WritableMemory::new(bytes));
    let Ok(volume) = Volume::open(device.clone()) else { return };
    let seed = |seed: u64, byte: &u8| (seed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    let mut random = Random(input.iter().fold(0xCBF2_9CE4_8422_2325, seed));
    let mut objects = objects(&volume);
    for _ in 0..OPERATIONS {
        operate(&volume, &mut objects, &mut random);
        assert!(volume.failure().is_none(), "{:?}", volume.failure());
    }
    volume.close().expect("memory does not fail");
    let after = Image::open(Arc::new(MemoryDevice::new(device.bytes())));
    assert!(after.is_ok(), "{:?}", after.err());
}

/// The objects found by names, from the root on.
fn objects(volume: &Volume) -> Vec<Object> {
    let mut found: Vec<Object> = vec![(ROOT, b"..".to_vec(), ROOT)];
    let mut at = 0;
    while at < found.len() && found.len() < OBJECTS_MAX {
        let directory = found[at].2;
        at += 1;
        let mut names = Vec::new();
        let _ = volume.list(directory, 0, &mut |entry| {
            if !matches!(&*entry.name, b"." | b"..") {
                names.push((directory, entry.name.to_vec(), entry.inode));
            }
            if names.len() < 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        found.extend(names);
    }
    found
}

fn operate(volume: &Volume, objects: &mut Vec<Object>, random: &mut Random) {
    let mut one = || objects[random.below(objects.len() as u64) as usize].clone();
    let ((parent, name, number), (other_parent, other_name, other)) = (one(), one());
    let fresh = vec![b'a' + random.below(26) as u8; 1 + random.below(255) as usize];
    let offset = random.below(60) * BLOCK as u64 + random.below(3) * 500;
    let length = 1 + random.below(9000);
    let new = New {
        kind: [Kind::Regular, Kind::Directory, Kind::Symlink][random.below(3) as usize],
        permissions: 0o755,
        uid: 1,
        gid: 1,
        device: (0, 0),
        target: &[b't'; 90],
        xattrs: &[],
    };
    // A refusal is fine: there has to be an answer.
    match random.below(16) {
        0 | 1 => drop(volume.write(number, offset, &vec![7; length as usize])),
        2 => drop(volume.truncate(number, offset)),
        3 => drop(volume.punch(number, offset..offset + length)),
        4 => drop(volume.allocate(number, offset..offset + length, Grow::Size)),
        5 | 6 => drop(volume.unlink(parent, &name)),
        7 => drop(volume.rmdir(parent, &name)),
        8 => drop(volume.rename(parent, &name, other, &fresh)),
        9 => {
            drop(volume.rename_as(parent, &name, other_parent, &other_name, Rename::Exchange));
        }
        10 => drop(volume.link(number, other, &fresh)),
        11 => drop(volume.set_xattr(number, b"user.large", Some(&vec![3; length as usize % 900]))),
        12 => drop(volume.set_xattr(number, b"user.large", None)),
        13 => {
            drop(volume.list_held(number, 0, 100, false));
            drop(volume.read(number, offset, &mut vec![0; length as usize]));
        }
        14 => drop(volume.sync()),
        _ => {
            if let Ok(made) = volume.create(number, &fresh, &new) {
                objects.push((number, fresh, made));
            }
        }
    }
}
