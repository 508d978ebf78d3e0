//! Contents that are refused for good, or do not fit: no part of them appears later, and the name can be used again.

use super::tests::{LONG, config, counter, mount};
use super::{ObjectBackend, ObjectConfig};
use crate::bucket::{Bucket, Fault};
use std::sync::Arc;
use uvfs_vfs::{Caller, Clean, Dirty, Error, OpenOptions, SyncMode, Vfs, VfsConfig};

/// The name and the content beside `name`.
fn beside(bucket: &Bucket, name: &str) -> Option<(String, Vec<u8>)> {
    let prefix = format!("{name}.uvfs-conflict-");
    let key = bucket.keys().into_iter().find(|key| key.starts_with(&prefix))?;
    let content = bucket.content(&key)?;
    Some((key, content))
}

/// A refused file was put again every few seconds for ever, kept its memory, and appeared as soon as the others removed their object.
/// Every rewrite of its name was refused too.
#[test]
fn a_refused_file_is_kept_beside_and_its_name_can_be_used_again() {
    for removed in [false, true] {
        let bucket = Bucket::new(&["x"]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        let file = root.open("x", OpenOptions::read_write().truncate()).unwrap();
        file.write_all_at(0, b"ours").unwrap();
        if removed {
            bucket.remove("x");
        } else {
            bucket.put("x", b"theirs");
        }
        let outcome = file.sync(SyncMode::All);
        assert!(matches!(outcome, Err(Error::Busy)), "{outcome:?}");
        let (key, content) = beside(&bucket, "x").expect("it is kept");
        assert_eq!(content, b"ours");
        assert_eq!(root.read_file(&key).unwrap(), b"ours");
        match root.read_file("x") {
            Ok(theirs) => assert_eq!(theirs, b"theirs"),
            Err(error) => assert!(removed && matches!(error, Error::NotFound), "{error}"),
        }
        // The descriptor continues with the file beside, and nothing returns to the name.
        file.write_all_at(4, b", more").unwrap();
        file.sync(SyncMode::All).unwrap();
        assert_eq!(bucket.content(&key).unwrap(), b"ours, more");
        drop(file);
        bucket.remove("x");
        let before = bucket.requests();
        vfs.sync_fs().unwrap();
        assert_eq!(bucket.requests(), before, "nothing is left to put");
        assert_eq!(bucket.keys(), [key]);
        assert_eq!((counter(&vfs, "write_conflicts"), counter(&vfs, "conflicts_kept")), (1, 1));
        vfs.clean(vfs.root(), Clean::Both, Dirty::Skip).unwrap();
        root.write_file("x", b"again").unwrap();
        assert_eq!(bucket.content("x").unwrap(), b"again");
    }
}

/// The unwritten part of a file was in a version that is gone, so no whole content can be kept. The put was tried for ever.
#[test]
fn a_part_of_a_version_that_is_gone_is_given_up() {
    for removed in [false, true] {
        let bucket = Bucket::new(&[]);
        bucket.put("x", &vec![7; 100_000]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        let file = root.open("x", OpenOptions::read_write()).unwrap();
        file.write_all_at(100_000, b"appended").unwrap();
        if removed {
            bucket.remove("x");
        } else {
            bucket.put("x", b"theirs");
        }
        let outcome = file.sync(SyncMode::All);
        assert!(matches!(outcome, Err(Error::Busy)), "{outcome:?}");
        drop(file);
        let before = bucket.requests();
        vfs.sync_fs().unwrap();
        assert_eq!(bucket.requests(), before, "nothing is left to put");
        assert_eq!(bucket.content("x"), (!removed).then(|| b"theirs".to_vec()));
        vfs.clean(vfs.root(), Clean::Both, Dirty::Skip).unwrap();
        root.write_file("x", b"saved").unwrap();
        assert_eq!(bucket.content("x").unwrap(), b"saved");
        assert_eq!(bucket.keys(), ["x"]);
    }
}

/// The store did not take the content beside the file, either: it must not go to its own name later.
#[test]
fn a_refused_file_that_cannot_be_kept_yet_is_put_under_no_other_name() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::read_write().create(0o644)).unwrap();
    file.write_all_at(0, b"ours").unwrap();
    bucket.put("x", b"theirs");
    // The put, the question whose object it is, twice, and the put beside.
    bucket.plan(&[None, None, None, Some(Fault::Denied)]);
    let outcome = file.sync(SyncMode::All);
    assert!(matches!(outcome, Err(Error::Access)), "{outcome:?}");
    assert_eq!(beside(&bucket, "x"), None);
    bucket.remove("x");
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)));
    assert_eq!(beside(&bucket, "x").unwrap().1, b"ours");
    assert_eq!(bucket.keys().len(), 1);
}

fn small(bucket: &Bucket) -> Arc<Vfs> {
    let times = VfsConfig { attr_timeout: LONG, entry_timeout: LONG, ..VfsConfig::default() };
    let times = VfsConfig { cache_bytes: 16 << 20, ..times };
    let small = ObjectConfig { upload_bytes_max: 5 << 20, ..config("") };
    Vfs::new(ObjectBackend::new(bucket.clone(), small), times).unwrap()
}

/// A file did not fit into the caches: the write said ENOSPC, and the close put the part that did fit over the object that was there.
#[test]
fn a_file_that_does_not_fit_replaces_nothing() {
    let mut half = 0;
    for end in ["close", "sync", "end"] {
        let bucket = Bucket::new(&["x"]);
        let vfs = small(&bucket);
        let root = vfs.root_directory(Caller::root());
        let file = root.open("x", OpenOptions::read_write().truncate()).unwrap();
        let piece = vec![7; 1 << 20];
        let mut at = 0;
        let full = loop {
            match file.write_at(at, &piece) {
                Ok(count) => at += count as u64,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        half = at;
        match end {
            "sync" => assert!(matches!(file.sync(SyncMode::All), Err(Error::NoSpace))),
            "end" => {
                let lost = vfs.end();
                assert_eq!(lost.len(), 1, "{lost:?}");
            }
            _ => {}
        }
        drop(file);
        assert_eq!(bucket.content("x").unwrap(), b"x", "{end}");
        if end != "end" {
            assert_eq!(root.read_file("x").unwrap(), b"x", "{end}");
            vfs.sync_fs().unwrap();
            assert_eq!(vfs.statistics().pages.dirty_bytes, 0, "{end}: its room is free again");
            root.write_file("x", &piece).unwrap();
        }
        assert_eq!(bucket.keys(), ["x"], "{end}");
    }
    // A program that makes room and writes the rest has a whole file; one that cuts the file has what it wanted. With two files
    // there is room for three quarters of the pages.
    for cuts in [false, true] {
        let bucket = Bucket::new(&[]);
        let vfs = small(&bucket);
        let root = vfs.root_directory(Caller::root());
        let other = root.open("other", OpenOptions::write().create(0o644)).unwrap();
        let others = if cuts { 1 } else { half / 5 * 4 };
        other.write_all_at(0, &vec![1; others as usize]).unwrap();
        let file = root.open("x", OpenOptions::write().create(0o644)).unwrap();
        let mut at = 0;
        while let Ok(count) = file.write_at(at, &[7; 4096]) {
            at += count as u64;
        }
        drop(other);
        if cuts {
            file.set_size(at).unwrap();
        } else {
            file.write_all_at(at, b"rest").unwrap();
        }
        drop(file);
        let size = at + if cuts { 0 } else { 4 };
        assert_eq!(bucket.content("x").unwrap().len() as u64, size);
    }
}
