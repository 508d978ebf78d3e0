//! Where blocks of growing files lie.

use crate::images::{Workshop, at, open, tools, whole};
use crate::operations::{new, volume};
use uvfs_ext::{Kind, ROOT};
use uvfs_ext_write::{Error, Volume};

const BLOCK: u64 = 1024;
const OPTIONS: [&str; 6] = ["-t", "ext4", "-b", "1024", "-J", "size=1"];

fn logs(volume: &Volume, count: u8) -> Vec<u32> {
    (0..count).map(|at| volume.create(ROOT, &[b'a' + at], &new(Kind::Regular)).unwrap()).collect()
}

fn append(volume: &Volume, file: u32, bytes: &[u8]) -> Result<(), Error> {
    volume.write(file, volume.inode(file).unwrap().size(), bytes)
}

/// Files that grew in turns got blocks in turns: a log of 600 appends beside two others had 600 extents.
#[test]
fn files_that_grow_in_turns_have_few_extents() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (device, volume) = volume(&workshop.image(&OPTIONS, "20M", None));
    let files = logs(&volume, 3);
    for turn in 0..600_u32 {
        for (of, file) in files.iter().enumerate() {
            append(&volume, *file, &[(turn as u8) ^ of as u8; BLOCK as usize]).unwrap();
            volume.fsync(*file).unwrap();
        }
    }
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
    let image = open(device.bytes());
    for (of, name) in ["a", "b", "c"].into_iter().enumerate() {
        let inode = at(&image, name);
        let runs = image.map(&inode, 0..600).unwrap();
        // Windows of 8, 16, … 512 blocks, and the blocks before the first one.
        assert!(runs.len() <= 12, "{name} lies in {} places", runs.len());
        let expected = (0..600_u32).flat_map(|turn| [(turn as u8) ^ of as u8; BLOCK as usize]);
        assert!(whole(&image, &inode) == expected.collect::<Vec<_>>(), "{name}");
    }
}

/// A window is advice: on a full volume other files get its blocks, and none is lost.
#[test]
fn windows_are_given_up_where_no_other_block_is_free() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let (device, volume) = volume(&workshop.image(&OPTIONS, "8M", None));
    let files = logs(&volume, 4);
    // The last one has a window when the volume is full of the others' data.
    for file in files.iter().cycle().take(40) {
        append(&volume, *file, &[1; BLOCK as usize]).unwrap();
    }
    while append(&volume, files[0], &[2; BLOCK as usize]).is_ok() {}
    assert_eq!(volume.room().free_blocks, volume.kept_blocks(), "a window kept a block");
    let removed = volume.create(ROOT, b"removed", &new(Kind::Regular)).unwrap();
    assert!(matches!(append(&volume, removed, &[3]), Err(Error::NoSpace)));
    volume.unlink(ROOT, b"b").unwrap();
    append(&volume, files[2], &[4; BLOCK as usize]).unwrap();
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
}
