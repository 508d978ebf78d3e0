//! Operations on a volume: this crate and e2fsck see the results.

use crate::images::{Workshop, at, open, tools, whole};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use uvfs_ext::{Kind, Place, ROOT, Timestamp};
use uvfs_ext_write::device::testing::Random;
use uvfs_ext_write::{Error, Grow, New, SetAttributes, Volume, WritableMemory};

const OPTIONS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1", "-g", "1024", "-O", "^flex_bg"],
    &["-t", "ext4", "-b", "2048", "-J", "size=2", "-O", "^metadata_csum,^64bit,uninit_bg"],
    &[
        "-t",
        "ext4",
        "-b",
        "1024",
        "-J",
        "size=1",
        "-O",
        "^metadata_csum,^uninit_bg,^dir_index",
        "-I",
        "128",
    ],
];

pub(crate) fn new(kind: Kind) -> New<'static> {
    New {
        kind,
        permissions: 0o644,
        uid: 1000,
        gid: 70_000,
        device: (0, 0),
        target: b"",
        xattrs: &[],
    }
}

pub(crate) fn volume(image: &[u8]) -> (Arc<WritableMemory>, Volume) {
    let device = Arc::new(WritableMemory::new(image.to_vec()));
    let volume = Volume::open(device.clone()).unwrap();
    (device, volume)
}

fn judge(workshop: &Workshop, bytes: &[u8], about: &dyn std::fmt::Debug) {
    let (status, printed, _) = workshop.fsck(bytes, &["-fn"]);
    assert_eq!(status, 0, "{about:?}: {printed}");
}

#[test]
fn what_is_done_is_there_and_e2fsck_finds_nothing() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for options in OPTIONS {
        let image = workshop.image(options, "20M", None);
        let (device, volume) = volume(&image);
        let directory = volume.create(ROOT, b"directory", &new(Kind::Directory)).unwrap();
        let file = volume.create(directory, b"file", &new(Kind::Regular)).unwrap();
        let bytes: Vec<u8> = (0..100_001_u32).map(|at| (at / 7) as u8).collect();
        volume.write(file, 5, &bytes).unwrap();
        volume.write(file, 300_000, b"far").unwrap();
        volume.link(file, ROOT, b"second").unwrap();
        let target = [b'x'; 200];
        let link = New { target: &target, ..new(Kind::Symlink) };
        volume.create(directory, b"long", &link).unwrap();
        let short = New { target: b"short", ..new(Kind::Symlink) };
        volume.create(directory, b"short", &short).unwrap();
        let device_node = New { device: (300, 70_000), ..new(Kind::BlockDevice) };
        volume.create(directory, b"device", &device_node).unwrap();
        volume.create(directory, b"pipe", &new(Kind::Fifo)).unwrap();
        let gone = volume.create(directory, b"gone", &new(Kind::Regular)).unwrap();
        volume.write(gone, 0, &bytes).unwrap();
        volume.unlink(directory, b"gone").unwrap();
        volume.set_xattr(file, b"user.small", Some(b"value")).unwrap();
        volume.set_xattr(file, b"user.large", Some(&[7; 600])).unwrap();
        volume.set_xattr(file, b"user.none", Some(b"x")).unwrap();
        volume.set_xattr(file, b"user.none", None).unwrap();
        assert!(matches!(volume.set_xattr(file, b"user.none", None), Err(Error::NotFound)));
        let sub = volume.create(directory, b"sub", &new(Kind::Directory)).unwrap();
        volume.create(sub, b"x", &new(Kind::Regular)).unwrap();
        assert!(matches!(volume.rmdir(directory, b"sub"), Err(Error::NotEmpty)));
        assert!(matches!(volume.unlink(directory, b"sub"), Err(Error::IsDirectory)));
        volume.rename(directory, b"sub", ROOT, b"moved").unwrap();
        assert!(matches!(volume.rename(ROOT, b"moved", sub, b"y"), Err(Error::Invalid(_))));
        volume.rename(sub, b"x", directory, b"pipe").unwrap();
        volume.create(ROOT, b"empty", &new(Kind::Directory)).unwrap();
        volume.rename(ROOT, b"moved", ROOT, b"empty").unwrap();
        volume.allocate(file, 400_000..500_000, Grow::Size).unwrap();
        volume.punch(file, 10_000..20_000).unwrap();
        volume.truncate(file, 450_000).unwrap();
        let held = volume.create(ROOT, b"held", &new(Kind::Regular)).unwrap();
        volume.hold(held).unwrap();
        volume.unlink(ROOT, b"held").unwrap();
        volume.write(held, 0, b"without a name").unwrap();
        let mut read = [0; 14];
        assert_eq!(volume.read(held, 0, &mut read).unwrap(), 14);
        volume.forget(held).unwrap();
        assert!(matches!(volume.inode(held), Err(Error::NotFound)));
        volume.close().unwrap();
        judge(&workshop, &device.bytes(), &options);
        let image = open(device.bytes());
        assert!(image.superblock().is_clean());
        let mut expected = vec![0; 450_000];
        expected[5..100_006].copy_from_slice(&bytes);
        expected[10_000..20_000].fill(0);
        expected[300_000..300_003].copy_from_slice(b"far");
        let found = at(&image, "directory/file");
        assert!(whole(&image, &found) == expected, "{options:?}");
        assert_eq!((found.links(), found.uid(), found.gid()), (2, 1000, 70_000));
        assert_eq!(image.xattr(&found, b"user.large").unwrap().unwrap(), [7; 600]);
        assert_eq!(image.xattr(&found, b"user.small").unwrap().unwrap(), b"value");
        assert_eq!(image.read_link(&at(&image, "directory/long")).unwrap(), target);
        assert_eq!(image.read_link(&at(&image, "directory/short")).unwrap(), b"short");
        assert_eq!(at(&image, "directory/device").device(), (300, 70_000));
        assert_eq!(at(&image, "directory/pipe").kind(), Some(Kind::Regular));
        assert_eq!(at(&image, "empty").number, sub);
        assert_eq!(image.lookup(&at(&image, "empty"), b"..").unwrap(), Some(ROOT));
        assert_eq!(at(&image, "").links(), 5, "root, its own dot, and three directories");
    }
}

/// Names come and go at random against a model, and the index is split in all its levels.
#[test]
fn large_directories_are_found_in_by_their_index() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for (options, count) in [(OPTIONS[0], 6000), (OPTIONS[4], 400)] {
        let image = workshop.image(&[options, &["-N", "8192"]].concat(), "16M", None);
        let (device, volume) = volume(&image);
        let directory = volume.create(ROOT, b"many", &new(Kind::Directory)).unwrap();
        let mut random = Random(11);
        let mut model = BTreeMap::new();
        let name = |number: u64| format!("{number}-{}", "n".repeat((number % 90) as usize));
        let first = volume.create(directory, b"first", &new(Kind::Regular)).unwrap();
        for _ in 0..count {
            let number = random.below(count);
            let name = name(number);
            if model.remove(&name).is_some() {
                volume.unlink(directory, name.as_bytes()).unwrap();
            } else {
                volume.link(first, directory, name.as_bytes()).unwrap();
                model.insert(name, first);
            }
        }
        model.insert("first".into(), first);
        let mut found = BTreeSet::new();
        let mut tell = |entry: uvfs_ext::DirectoryEntry<'_>| {
            if *entry.name != *b"." && *entry.name != *b".." {
                assert!(found.insert(String::from_utf8(entry.name.to_vec()).unwrap()));
            }
            ControlFlow::Continue(())
        };
        volume.list(directory, 0, &mut tell).unwrap();
        assert!(found.iter().eq(model.keys()), "{} of {}", found.len(), model.len());
        for name in model.keys() {
            assert_eq!(volume.lookup(directory, name.as_bytes()).unwrap(), Some(first));
        }
        volume.close().unwrap();
        judge(&workshop, &device.bytes(), &options);
        let image = open(device.bytes());
        assert_eq!(at(&image, "many").is_indexed(), count == 6000);
    }
}

/// A file of thousands of extents: its tree grows to depth 2 and more, and shrinks to nothing.
#[test]
fn trees_of_extents_grow_and_shrink() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(OPTIONS[0], "16M", None);
    let (device, volume) = volume(&image);
    let before = volume.room();
    let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    // Every second block, in an order that inserts everywhere.
    let blocks = 1200_u64;
    for step in 0..blocks {
        let block = 2 * (step * 7 % blocks);
        volume.write(file, block * 1024, &[block as u8; 10]).unwrap();
    }
    volume.sync().unwrap();
    let now = open(device.bytes());
    judge_replayed(&workshop, &device.bytes());
    let inode = at(&now, "file");
    let runs = now.map(&inode, 0..2 * blocks).unwrap();
    assert_eq!(runs.len() as u64, 2 * blocks);
    for block in (0..blocks).map(|block| 2 * block) {
        let mut read = [9; 11];
        volume.read(file, block * 1024, &mut read).unwrap();
        assert_eq!(read[..10], [block as u8; 10]);
    }
    // Fill the holes: extents join again as far as they lie in a row.
    volume.punch(file, 100 * 1024..900 * 1024).unwrap();
    volume.allocate(file, 0..2 * blocks * 1024, Grow::Nothing).unwrap();
    let mut read = [9; 11];
    volume.read(file, 200 * 1024, &mut read).unwrap();
    assert_eq!(read, [0; 11], "set aside is zeros");
    volume.write(file, 150 * 1024 + 5, &[1; 300_000]).unwrap();
    volume.sync().unwrap();
    judge_replayed(&workshop, &device.bytes());
    volume.truncate(file, 77).unwrap();
    volume.unlink(ROOT, b"file").unwrap();
    volume.sync().unwrap();
    assert_eq!(volume.room(), before, "everything came back");
    volume.close().unwrap();
    judge(&workshop, &device.bytes(), &"at the end");
}

/// An image as a crash would leave it now, after e2fsck replayed it.
fn judge_replayed(workshop: &Workshop, bytes: &[u8]) {
    let (status, printed, replayed) = workshop.fsck(bytes, &["-fy", "-E", "journal_only"]);
    assert!(status <= 1, "{printed}");
    judge(workshop, &replayed, &"replayed");
}

/// A file without names that was truncated while it was held left the list of orphans. Its open descriptors lost it, and after
/// a crash it would never have been freed.
/// A hole that was made behind the end of a file left its times as they were; the kernel's ext4 says that it was changed.
/// A file that was made shorter kept its old bytes behind the end of its last block. Older kernels rely on zeros there when
/// they make the file longer, and show them in a map of the file.
#[test]
fn what_lies_behind_the_end_of_a_file_that_was_made_shorter_is_zero() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(OPTIONS[1], "16M", None);
    let (device, volume) = volume(&image);
    let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    for (length, end) in [(4096_usize, 100_u64), (50, 49), (12_000, 8193)] {
        volume.write(file, 0, &vec![b'A'; length]).unwrap();
        volume.truncate(file, end).unwrap();
        volume.sync().unwrap();
        let image = open(device.bytes());
        let run = image.map(&at(&image, "file"), end / 4096..end / 4096 + 1).unwrap()[0];
        let Place::At(block) = run.place else { panic!("{end}: {run:?}") };
        let last = &device.bytes()[block as usize * 4096..][..4096];
        let within = end as usize % 4096;
        assert_eq!(last[..within], vec![b'A'; within], "{end}");
        assert_eq!(last[within..], vec![0; 4096 - within], "{end}");
    }
}

#[test]
fn a_hole_behind_the_end_is_a_change() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (_, volume) = volume(&workshop.image(OPTIONS[0], "20M", None));
    let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    volume.write(file, 0, b"short").unwrap();
    let old = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };
    let set = SetAttributes { modified: Some(old), ..SetAttributes::default() };
    volume.set_attributes(file, &set).unwrap();
    assert_eq!(volume.inode(file).unwrap().modified(), old);
    volume.punch(file, 50_000..60_000).unwrap();
    let inode = volume.inode(file).unwrap();
    assert!(inode.modified() > old && inode.size() == 5, "{:?}", inode.modified());
}

#[test]
fn a_file_without_names_is_cut_and_stays() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (device, volume) = volume(&workshop.image(OPTIONS[0], "4M", None));
    let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    volume.write(file, 0, &[7; 5000]).unwrap();
    volume.hold(file).unwrap();
    volume.unlink(ROOT, b"file").unwrap();
    for length in [3000, 0] {
        volume.truncate(file, length).unwrap();
        assert_eq!(volume.inode(file).unwrap().size(), length);
    }
    let room = volume.room();
    volume.forget(file).unwrap();
    assert_eq!(volume.room().free_inodes, room.free_inodes + 1);
    volume.close().unwrap();
    judge(&workshop, &device.bytes(), &"cut");
}

/// A listing returned names twice, or never, while other threads added names: positions were places, and names move when leaves
/// are split.
#[test]
fn a_listing_tells_each_name_once_while_others_come_and_go() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for options in [OPTIONS[0], OPTIONS[4]] {
        let (device, volume) = volume(&workshop.image(options, "8M", None));
        let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
        let directory = volume.create(ROOT, b"many", &new(Kind::Directory)).unwrap();
        let name = |kind: &str, number: u32| format!("{kind} with a name of some length {number}");
        for number in 0..300 {
            volume.link(file, directory, name("stays", number).as_bytes()).unwrap();
        }
        let (mut met, mut position, mut step) = (BTreeMap::<Vec<u8>, u32>::new(), 0, 0);
        loop {
            let (listed, ended) = volume.list_held(directory, position, 7, false).unwrap();
            for one in listed {
                position = one.next;
                *met.entry(one.name).or_default() += 1;
            }
            if ended {
                break;
            }
            for _ in 0..9 {
                volume.link(file, directory, name("comes", step).as_bytes()).unwrap();
                if step % 3 == 2 {
                    volume.unlink(directory, name("comes", step - 1).as_bytes()).unwrap();
                }
                step += 1;
            }
        }
        for number in 0..300 {
            let times = met.get(name("stays", number).as_bytes());
            assert_eq!(times, Some(&1), "{options:?}: {number}");
        }
        assert!(met.values().all(|times| *times == 1), "{options:?}");
        volume.close().unwrap();
        judge(&workshop, &device.bytes(), &options);
    }
}

/// The disk is full once at every operation; a refused operation leaves no trace.
#[test]
fn a_full_image_refuses_and_stays_right() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&[OPTIONS[0], &["-N", "64"]].concat(), "3M", None);
    let (device, volume) = volume(&image);
    let filler = volume.create(ROOT, b"filler", &new(Kind::Regular)).unwrap();
    let mut written = 0;
    let refused = loop {
        match volume.write(filler, written, &[7; 5000]) {
            Ok(()) => written += 5000,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert!(volume.inode(filler).unwrap().size() >= written && written > 500_000);
    let left = volume.room().free_blocks - volume.kept_blocks();
    assert!(left < 20, "{:?}", volume.room());
    for number in 0..10 {
        let name = format!("d{number}");
        let made = volume.create(ROOT, name.as_bytes(), &new(Kind::Directory));
        assert!(matches!(made, Err(Error::NoSpace)), "{made:?}");
        assert_eq!(volume.lookup(ROOT, name.as_bytes()).unwrap(), None);
    }
    // Freed blocks can be used at once, with the commit that this needs.
    volume.truncate(filler, 1000).unwrap();
    volume.write(filler, 1000, &vec![8; 900_000]).unwrap();
    volume.unlink(ROOT, b"filler").unwrap();
    // Inodes are used up, too.
    let mut count = 0;
    while let Ok(number) = volume.create(ROOT, format!("f{count}").as_bytes(), &new(Kind::Regular))
    {
        assert!(number <= 64);
        count += 1;
    }
    assert!(count > 40 && volume.room().free_inodes == 0);
    volume.close().unwrap();
    judge(&workshop, &device.bytes(), &"full");
}

#[test]
fn threads_work_beside_each_other() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&[OPTIONS[2], &["-N", "4096"]].concat(), "24M", None);
    let (device, volume) = volume(&image);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                let mut random = Random(thread);
                let own = volume
                    .create(ROOT, format!("t{thread}").as_bytes(), &new(Kind::Directory))
                    .unwrap();
                for step in 0..150 {
                    let name = format!("f{}", random.below(30));
                    let name = name.as_bytes();
                    // Half in the own directory, half where all are.
                    let directory = if random.below(2) == 0 { own } else { ROOT };
                    match random.below(6) {
                        0..=2 => {
                            if let Ok(file) = volume.create(directory, name, &new(Kind::Regular)) {
                                let length = random.below(20_000) as usize;
                                match volume.write(file, 0, &vec![thread as u8; length]) {
                                    // Another thread may have removed it meanwhile.
                                    Ok(()) | Err(Error::NotFound) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        }
                        3 => drop(volume.unlink(directory, name)),
                        4 => {
                            drop(volume.rename(directory, name, own, format!("r{step}").as_bytes()))
                        }
                        _ => volume.sync().unwrap(),
                    }
                }
            });
        }
    });
    assert!(volume.counts().commits > 0);
    volume.close().unwrap();
    judge(&workshop, &device.bytes(), &"threads");
}

#[test]
fn what_is_not_written_is_refused_by_name_and_left_alone() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for (options, message) in [
        (&["-t", "ext2", "-b", "1024"][..], "no journal"),
        (&["-t", "ext3", "-b", "1024", "-J", "size=1"], "extents"),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "inline_data"], "inline_data"),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "quota"], "quota"),
        (&["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "bigalloc"], "bigalloc"),
    ] {
        let image = workshop.image(options, "8M", None);
        let device = Arc::new(WritableMemory::new(image.clone()));
        let error = Volume::open(device.clone()).unwrap_err();
        assert!(
            matches!(error, Error::NotWritable(_)) && error.to_string().contains(message),
            "{error}"
        );
        assert!(device.bytes() == image, "{message}: it was not touched");
    }
}

/// What is in memory of an image was its buffers, for all that the budget knew: the log's contents, a quarter of the log in one
/// transaction and the table of inodes came on top. A mount of 16 MiB had 58.
#[test]
fn memory_is_bounded_and_counted() {
    if !tools() {
        return;
    }
    const BYTES: u64 = 1 << 20;
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=8", "-N", "8000"];
    let image = workshop.image(&options, "24M", None);
    let volume = Volume::with_buffers(Arc::new(WritableMemory::new(image)), BYTES).unwrap();
    let (mut held, mut most) = (Vec::new(), 0);
    for number in 0..4000 {
        let name = format!("file {number}");
        held.push(volume.create_held(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap().0.number);
        let now = volume.journal();
        assert!(now.running_blocks <= BYTES / 1024 / 4, "{now:?}");
        most = most.max(now.waiting_blocks);
    }
    assert!(volume.counts().commits > 1 && most > 0);
    assert!(most <= BYTES / 1024 / 2 + BYTES / 1024 / 4, "{most} blocks wait");
    let with_inodes = volume.held_bytes();
    held.into_iter().for_each(|number| volume.forget(number).unwrap());
    let without = volume.held_bytes();
    assert!(without + 4000 * 64 < with_inodes, "{without} of {with_inodes}");
    volume.shrink(u64::MAX);
    volume.close().unwrap();
    volume.shrink(u64::MAX);
    assert!(volume.held_bytes() < 2 * BYTES, "{}", volume.held_bytes());
}
