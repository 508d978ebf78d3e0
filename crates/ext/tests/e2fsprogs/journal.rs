//! Journals that need recovery, as debugfs writes them; e2fsck is the oracle.

use crate::images::{Workshop, at, open, read, run, tools, whole};
use std::fs;
use std::process::Command;
use uvfs_ext::{Error, Place};

/// Blocks of a journal begin with it; a data block that begins with it is stored without it.
const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

#[test]
fn a_journal_is_replayed_in_memory_as_e2fsck_does_on_the_disk() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![b'o'; 8 * 1024]).unwrap();
    for (features, opening) in [
        ("64bit", "jo"),
        ("^64bit", "jo"),
        ("64bit", "jo -c -v 2"),
        ("^64bit", "jo -c -v 2"),
        ("64bit", "jo -c -v 3"),
        ("^64bit", "jo -c -v 3"),
    ] {
        let about = format!("{features} {opening}");
        let options = ["-t", "ext4", "-b", "1024", "-O", features, "-J", "size=1"];
        let path = workshop.image("journal.img", &options, Some(&tree));
        let image = read(&path);
        let runs = image.map(&at(&image, "file"), 0..8).unwrap();
        let Place::At(first) = runs[0].place else { panic!("{runs:?}") };
        for (name, fill) in [("one", 1), ("two", 2)] {
            fs::write(workshop.path(name), vec![fill; 3 * 1024]).unwrap();
        }
        fs::write(workshop.path("escaped"), [&MAGIC[..], &[3; 1020]].concat()).unwrap();
        let write =
            |blocks: &str, name: &str| format!("jw -b {blocks} {}", workshop.path(name).display());
        let list = |from: u64, count: u64| {
            (first + from..first + from + count)
                .map(|at| at.to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        workshop.debugfs(
            &path,
            &[
                opening.into(),
                write(&list(0, 3), "one"),
                write(&list(1, 3), "two"),
                format!("jw -r {}", first + 2),
                write(&list(5, 1), "escaped"),
                "jc".into(),
            ],
        );
        let before = fs::read(&path).unwrap();
        let image = open(before.clone()).unwrap();
        let recovery = image.recovery().unwrap_or_else(|| panic!("{about}"));
        assert_eq!((recovery.transactions, recovery.revoked > 0), (4, true), "{about}");
        let ours = whole(&image, &at(&image, "file"));
        let blocks: Vec<u8> = ours.chunks(1024).map(|block| block[1023]).collect();
        assert_eq!(blocks, [1, 2, b'o', 2, b'o', 3, b'o', b'o'], "{about}");
        assert_eq!(ours[5 * 1024..5 * 1024 + 4], MAGIC, "{about}");
        assert_eq!(fs::read(&path).unwrap(), before, "the image is not written");
        let status = Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(&path).output();
        assert!(status.unwrap().status.code().unwrap() <= 1, "{about}");
        let theirs = read(&path);
        assert!(theirs.recovery().is_none(), "{about}");
        assert_eq!(whole(&theirs, &at(&theirs, "file")), ours, "{about}");
    }
}

/// Without this refusal, a damaged committed block would be shown as if it were right.
#[test]
fn damage_in_a_committed_transaction_refuses_the_image() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1"];
    let path = workshop.image("damaged.img", &options, None);
    fs::write(workshop.path("one"), [7; 1024]).unwrap();
    let write = format!("jw -b 9000 {}", workshop.path("one").display());
    workshop.debugfs(&path, &["jo -c -v 3".into(), write, "jc".into()]);
    let good = fs::read(&path).unwrap();
    assert_eq!(open(good.clone()).unwrap().recovery().unwrap().blocks, 1);
    let data = good.chunks(1024).position(|block| block == [7; 1024]).unwrap();
    for (at, message) in [
        (data, "checksum of a block that was committed"),
        (data - 1, "block of its log"),
        (data + 1, "checksum of a commit"),
    ] {
        let mut bad = good.clone();
        bad[at * 1024 + 500] ^= 1;
        let error = open(bad).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(&format!("block {at}")), "{error}");
    }
    // Without its commit block the transaction was never there.
    let mut cut = good.clone();
    cut[(data + 1) * 1024..(data + 2) * 1024].fill(0);
    assert_eq!(open(cut).unwrap().recovery().unwrap().transactions, 0);
    // The journal's own superblock.
    let head = good.chunks(1024).position(|block| block[..4] == MAGIC && block[7] == 4).unwrap();
    for (offset, message) in [(0x0C, "checksum of its superblock"), (0, "no magic number")] {
        let mut bad = good.clone();
        bad[head * 1024 + offset] ^= 4;
        let error = open(bad).unwrap_err();
        let expected = if offset == 0x0C { "another size" } else { message };
        assert!(error.to_string().contains(expected), "{error}");
    }
    let mut unknown = good.clone();
    unknown[head * 1024 + 0x28] ^= 0x80;
    assert!(matches!(open(unknown).unwrap_err(), Error::Unsupported(_)));
    assert!(run(Command::new("dumpe2fs").arg("-h").arg(&path)).contains("needs_recovery"));
}

/// Fast commits that were not replayed were never reported. The reader looked for them in the block between the log and
/// their area, which no program writes.
#[test]
fn fast_commits_are_noticed_where_they_begin() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum", "-J", "size=2"];
    let path = workshop.image("fast.img", &options, None);
    fs::write(workshop.path("one"), [7; 1024]).unwrap();
    let write = format!("jw -b 9000 {}", workshop.path("one").display());
    workshop.debugfs(&path, &["jo".into(), write, "jc".into()]);
    let image = read(&path);
    let journal = image.inode(8).unwrap();
    let runs = image.map(&journal, 0..journal.size() / 1024).unwrap();
    let place = |block: u64| {
        let run = runs.iter().find(|run| (run.logical..run.logical + run.length).contains(&block));
        let Place::At(start) = run.unwrap().place else { panic!("a hole") };
        (start + block - run.unwrap().logical) as usize * 1024
    };
    let mut bytes = fs::read(&path).unwrap();
    let be32 = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().unwrap());
    let head = place(0);
    let (blocks, sequence) = (be32(&bytes[head + 16..]), be32(&bytes[head + 24..]) + 1);
    // The feature of the journal, and an area of 64 blocks.
    bytes[head + 43] |= 0x20;
    bytes[head + 84..head + 88].copy_from_slice(&64_u32.to_be_bytes());
    let first = blocks as usize - 64;
    let with = |at: usize, sequence: u32| {
        let mut bytes = bytes.clone();
        let at = place(at as u64);
        bytes[at..at + 8].copy_from_slice(&[9, 0, 8, 0, 0, 0, 0, 0]);
        bytes[at + 8..at + 12].copy_from_slice(&sequence.to_le_bytes());
        open(bytes).unwrap().recovery().unwrap().fast_commits
    };
    assert!(with(first + 1, sequence), "the first block of the area");
    assert!(!with(first + 1, sequence - 1), "of a transaction that came whole");
    assert!(!with(first, sequence), "the block that is never written");
}
