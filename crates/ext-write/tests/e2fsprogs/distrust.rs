//! Images that contradict themselves: a fault costs its own inode or group, and never the blocks of others.

use crate::images::{Workshop, at, open, tools, whole};
use crate::operations::new;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Arc;
use uvfs_ext::encode::extent::{Child, Entries, Extent, encode};
use uvfs_ext::{Image, Inode, Kind, Place, ROOT};
use uvfs_ext_write::{Error, Grow, Volume, WritableMemory};

/// An image with a file of so many blocks of 1 KiB, which is the only one.
fn image(workshop: &Workshop, options: &[&str], blocks: usize) -> Vec<u8> {
    let tree = workshop.path("tree");
    let _ = fs::create_dir(&tree);
    fs::write(tree.join("file"), vec![b'A'; blocks << 10]).unwrap();
    let options = [&["-t", "ext4", "-b", "1024", "-J", "size=1"][..], options].concat();
    workshop.image(&options, "6M", Some(&tree))
}

fn volume(bytes: Vec<u8>) -> (Arc<WritableMemory>, Volume) {
    let device = Arc::new(WritableMemory::new(bytes));
    let volume = Volume::open(device.clone()).unwrap();
    (device, volume)
}

/// The bytes of an inode in the table of its group, which is the first.
fn inode_at(image: &Image, inode: &Inode) -> usize {
    let table = image.group(0).unwrap().inode_table as usize * 1024;
    table + (inode.number as usize - 1) * usize::from(image.superblock().inode_size)
}

fn first_block(image: &Image, inode: &Inode) -> u64 {
    match image.map(inode, 0..1).unwrap()[0].place {
        Place::At(block) => block,
        place => panic!("{place:?}"),
    }
}

/// Bits of a bitmap were lost. Its checksum showed that, but was not compared: the next write overwrote a file, and the damaged
/// bitmap got a new checksum. The same without checksums, by the number of free blocks.
#[test]
fn a_group_with_a_damaged_bitmap_is_set_aside() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for options in [&[][..], &["-O", "^metadata_csum,^uninit_bg"]] {
        let mut bytes = image(&workshop, options, 1000);
        let before = open(bytes.clone());
        let (file, group) = (at(&before, "file"), before.group(0).unwrap().clone());
        let bitmap = group.block_bitmap as usize * 1024;
        let first = first_block(&before, &file);
        let bit = (first - before.superblock().first_data_block) as usize;
        bytes[bitmap + bit / 8 + 1..bitmap + bit / 8 + 33].fill(0);
        let damaged = bytes[bitmap..bitmap + 1024].to_vec();
        let (device, volume) = volume(bytes);
        assert_eq!(volume.room().damaged_groups, 0, "found when it is used");
        // The only group: there is no room, and operations on names still work.
        let other = volume.create(ROOT, b"other", &new(Kind::Regular)).unwrap();
        let full = volume.write(other, 0, &[7; 3000]);
        assert!(matches!(full, Err(Error::NoSpace)), "{full:?}");
        assert_eq!((volume.room().free_blocks, volume.room().damaged_groups), (0, 1));
        // An inode there is not freed: its name is removed, its blocks stay.
        volume.write(file.number, 5, b"over").unwrap();
        volume.unlink(ROOT, b"file").unwrap();
        let cut = volume.create(ROOT, b"file", &new(Kind::Regular));
        assert!(volume.failure().is_none() && cut.is_ok(), "{cut:?}");
        volume.close().unwrap();
        assert!(device.bytes()[bitmap..bitmap + 1024] == damaged, "it is not made to look right");
        // The next one may write, too.
        Volume::open(device.clone()).unwrap().close().unwrap();
    }
}

/// A tree of extents was not checked: a node that is its own child took the stack, and with it the daemon; an extent of no length,
/// a node without entries and a block outside the volume panicked; a second owner of a block freed it for the first.
#[test]
fn a_tree_that_cannot_be_costs_its_inode_alone() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let plain = image(&workshop, &["-O", "^metadata_csum,^uninit_bg"], 8);
    let before = open(plain.clone());
    let file = at(&before, "file");
    let own = before.group(0).unwrap().clone();
    let first = first_block(&before, &file);
    let journal = before.inode(before.superblock().journal_inode()).unwrap();
    let journal = first_block(&before, &journal) + 100;
    let extent = |logical, start, length| Extent { logical, start, length, unwritten: false };
    let child = |logical, block| Child { logical, block };
    let (node, leaf) = (first, first + 1);
    let last = before.superblock().blocks - 1;
    let one = |extents: &[Extent]| Entries::Leaf(extents.to_vec());
    let inner = |depth, children: &[Child]| Entries::Inner(depth, children.to_vec());
    let trees = [
        (
            "a node that is its own child",
            inner(1, &[child(50, node), child(70, leaf)]),
            Some(inner(1, &[child(0, node)])),
        ),
        (
            "children out of order",
            inner(1, &[child(70, leaf), child(50, node)]),
            Some(one(&[extent(50, first + 2, 1)])),
        ),
        ("a node without entries", inner(1, &[child(0, node)]), Some(one(&[]))),
        ("a root without children", inner(1, &[]), None),
        (
            "a root that is too deep",
            inner(9, &[child(0, node)]),
            Some(one(&[extent(0, first + 2, 1)])),
        ),
        ("a node outside the volume", inner(1, &[child(0, last + 100)]), None),
        ("a node in the inode table", inner(1, &[child(0, own.inode_table)]), None),
        ("extents out of order", one(&[extent(5, first, 1), extent(3, first + 1, 1)]), None),
        ("extents that overlap", one(&[extent(0, first, 4), extent(2, first + 4, 2)]), None),
        ("a bitmap", one(&[extent(0, own.block_bitmap, 1)]), None),
        ("the inode table", one(&[extent(0, own.inode_table, 4)]), None),
        ("the journal", one(&[extent(0, journal, 4)]), None),
        ("outside the volume", one(&[extent(0, last, 4)]), None),
        ("the same blocks twice", one(&[extent(0, first, 4), extent(10, first, 4)]), None),
    ];
    for (about, root, below) in trees {
        let mut bytes = plain.clone();
        let mut block = [0; 60];
        encode(&root, &mut block);
        bytes[inode_at(&before, &file) + 0x28..][..60].copy_from_slice(&block);
        if let Some(below) = below {
            encode(&below, &mut bytes[node as usize * 1024..][..1024]);
        }
        let tables = own.inode_table as usize * 1024;
        let (device, volume) = volume(bytes);
        let good = volume.create(ROOT, b"good", &new(Kind::Regular)).unwrap();
        volume.write(good, 0, &[3; 5000]).unwrap();
        // Whatever becomes of these, it is an answer.
        for offset in [0, 60 << 10, 100 << 10] {
            let _ = volume.write(file.number, offset, &[9; 3000]);
        }
        let _ = volume.allocate(file.number, 0..90 << 10, Grow::Size);
        let _ = volume.punch(file.number, 1024..80 << 10);
        let _ = volume.truncate(file.number, 100);
        volume.unlink(ROOT, b"file").unwrap();
        assert!(volume.failure().is_none(), "{about}: {:?}", volume.failure());
        volume.sync().unwrap();
        volume.close().unwrap();
        let after = device.bytes();
        let image = open(after.clone());
        assert!(whole(&image, &at(&image, "good")) == [3; 5000], "{about}");
        assert!(image.lookup(&image.inode(ROOT).unwrap(), b"file").unwrap().is_none(), "{about}");
        // The inodes of the format itself are as they were: numbers 5 to 8, in the second block of the table.
        let own = tables + 1024..tables + 2048;
        assert!(after[own.clone()] == plain[own], "{about}");
        Volume::open(device.clone()).unwrap().close().unwrap();
    }
}

/// The journal's file had a hole. The image was opened, and writing ended in the middle of the commit that came to the hole.
#[test]
fn a_journal_with_a_hole_is_refused_before_anything_is_written() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let path = workshop.path("hole.img");
    for hole in ["500 520", "1023 1023", "0 0"] {
        fs::write(&path, image(&workshop, &[], 10)).unwrap();
        let mut debugfs = Command::new("debugfs");
        debugfs.args(["-w", "-R", &format!("punch <8> {hole}")]).arg(&path);
        assert!(debugfs.stderr(Stdio::null()).status().unwrap().success());
        let bytes = fs::read(&path).unwrap();
        let device = Arc::new(WritableMemory::new(bytes.clone()));
        let refused = Volume::open(device.clone()).map(drop);
        assert!(refused.is_err(), "{hole}");
        assert!(device.bytes() == bytes, "{hole}: a refusal writes nothing");
    }
}
