//! Volumes and directories that are full: an operation that needs no block gets none, and a refusal concerns one operation only.

use crate::images::{Workshop, at, open, tools, whole};
use crate::operations::{new, volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use uvfs_ext::{Kind, ROOT};
use uvfs_ext_write::{Error, Grow, SetAttributes, Volume, WritableMemory};

type Operation<'a> = &'a dyn Fn() -> Result<(), Error>;

/// Writes a file until there is no block for data.
fn fill(volume: &Volume) {
    let file = volume.create(ROOT, b"fill", &new(Kind::Regular)).unwrap();
    for length in [1 << 20, 1024] {
        while let Ok(()) = {
            let end = volume.inode(file).unwrap().size();
            volume.write(file, end, &vec![3; length])
        } {}
    }
    assert_eq!(volume.room().free_blocks, volume.kept_blocks(), "all that data may take is taken");
}

/// An image with fewer than 72 free blocks refused to overwrite blocks that a file already had, preallocated ones too, and to
/// rename, link, create or change attributes, because each operation had blocks promised that it might need.
#[test]
fn a_full_volume_refuses_only_what_needs_a_block() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let (device, volume) = volume(&workshop.image(&options, "20M", None));
    let old = volume.create(ROOT, b"old", &new(Kind::Regular)).unwrap();
    volume.write(old, 0, &[1; 100_000]).unwrap();
    volume.create(ROOT, b"victim", &new(Kind::Regular)).unwrap();
    let sub = volume.create(ROOT, b"sub", &new(Kind::Directory)).unwrap();
    // So many extents that their nodes take all blocks that are kept for them, and more.
    const BLOCKS: u64 = 12_000;
    let set_aside = volume.create(ROOT, b"set aside", &new(Kind::Regular)).unwrap();
    volume.allocate(set_aside, 0..BLOCKS << 10, Grow::Size).unwrap();
    fill(&volume);
    for block in 0..98 {
        volume.write(old, block * 1024, &[2; 1024]).unwrap();
    }
    let link = uvfs_ext_write::New { target: b"short", ..new(Kind::Symlink) };
    let operations: [(&str, Operation<'_>); 9] = [
        ("rename", &|| volume.rename(ROOT, b"old", ROOT, b"new")),
        ("rename over another", &|| volume.rename(ROOT, b"new", ROOT, b"victim")),
        ("rename elsewhere", &|| volume.rename(ROOT, b"victim", sub, b"new")),
        ("link", &|| volume.link(old, ROOT, b"link")),
        ("create", &|| volume.create(ROOT, b"created", &new(Kind::Regular)).map(drop)),
        ("symlink", &|| volume.create(ROOT, b"symlink", &link).map(drop)),
        ("chmod", &|| volume.set_attributes(old, &SetAttributes::default())),
        ("small attribute", &|| volume.set_xattr(old, b"user.a", Some(b"1"))),
        ("unlink", &|| volume.unlink(ROOT, b"symlink")),
    ];
    for (about, operation) in operations {
        operation().unwrap_or_else(|error| panic!("{about}: {error}"));
    }
    let denied = volume.create(ROOT, b"directory", &new(Kind::Directory));
    assert!(matches!(denied, Err(Error::NoSpace)), "a directory needs a block: {denied:?}");
    let free = volume.room().free_blocks;
    let mut expected = vec![0; (BLOCKS << 10) as usize];
    for block in (0..BLOCKS).step_by(2) {
        let bytes = [block as u8 | 1; 1000];
        volume.write(set_aside, block * 1024, &bytes).unwrap();
        expected[(block << 10) as usize..][..1000].copy_from_slice(&bytes);
    }
    assert!(volume.room().free_blocks < 6 && free > 60, "the kept blocks went to nodes");
    volume.truncate(set_aside, (BLOCKS << 10) - 500).unwrap();
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
    let image = open(device.bytes());
    assert!(whole(&image, &at(&image, "set aside")) == expected[..expected.len() - 500]);
    assert!(whole(&image, &at(&image, "sub/new"))[..98 * 1024] == [2; 98 * 1024]);
}

/// A name that found no room in the index of its directory ended writing for the whole mount, and the running transaction
/// of all users was lost: the operation had allocated its inode already.
#[test]
fn a_full_index_refuses_a_name_there_and_nothing_else() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "256"];
    let (device, volume) = volume(&workshop.image(&options, "30M", None));
    let [full, other] = ["full", "other"]
        .map(|name| volume.create(ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap());
    let file = volume.create(other, b"file", &new(Kind::Regular)).unwrap();
    volume.create(other, b"moved", &new(Kind::Directory)).unwrap();
    let long = |number: u32| format!("{number:0250}").into_bytes();
    let refused = (0..60_000).find_map(|at| Some((at, volume.link(file, full, &long(at)).err()?)));
    let (count, error) = refused.expect("the index is full");
    assert!(matches!(error, Error::DirectoryFull), "after {count}: {error}");
    let before = volume.room();
    let denied: [(&str, Result<(), Error>); 4] = [
        ("create", volume.create(full, &long(count), &new(Kind::Regular)).map(drop)),
        ("mkdir", volume.create(full, &long(count), &new(Kind::Directory)).map(drop)),
        ("link", volume.link(file, full, &long(count))),
        ("rename", volume.rename(other, b"moved", full, &long(count))),
    ];
    for (about, done) in denied {
        assert!(matches!(done, Err(Error::DirectoryFull)), "{about}: {done:?}");
    }
    assert_eq!((volume.room(), volume.failure().is_none()), (before, true));
    volume.create(other, b"created", &new(Kind::Regular)).unwrap();
    volume.unlink(full, &long(7)).unwrap();
    volume.link(file, full, &long(7)).unwrap();
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
    let image = open(device.bytes());
    assert_eq!(at(&image, "other/file").links(), count as u16 + 1);
    assert_eq!(at(&image, "other/moved").kind(), Some(Kind::Directory));
}

/// A directory got an index, and between two looks at its block the budget took the buffer: the block was read again, and checked as the root
/// of an index, which it was not yet. The name was refused with EIO.
#[test]
fn buffers_may_leave_at_any_moment() {
    if !tools() {
        return;
    }
    const DIRECTORIES: u32 = 60;
    const NAMES: u32 = 215;
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "4096", "-N", "16000"], "40M", None);
    let device = Arc::new(WritableMemory::new(image));
    let volume = Volume::with_buffers(device.clone(), 0).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                volume.shrink(u64::MAX);
            }
        });
        let made = (0..DIRECTORIES).try_for_each(|directory| {
            let name = format!("d{directory}");
            let made = volume.create(ROOT, name.as_bytes(), &new(Kind::Directory))?;
            for number in 0..NAMES {
                // The directory's block is in no running transaction.
                if number > 190 {
                    volume.sync()?;
                }
                let name = format!("a name {number}");
                volume.create(made, name.as_bytes(), &new(Kind::Regular))?;
            }
            Ok::<_, Error>(())
        });
        done.store(true, Relaxed);
        made.unwrap();
    });
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
}
