//! A written file reaches the store whole or not at all, and never silently replaces the content of others.

use super::tests::{LONG, config, counter, mount, names};
use super::{ObjectBackend, ObjectConfig};
use crate::bucket::{Bucket, Fault};
use std::time::Duration;
use uvfs_vfs::{
    Caller, Clean, Dirty, Error, OpenOptions, PagePolicy, RenameMode, SetAttributes, SetTime,
    SyncMode, Timestamp, Vfs, VfsConfig,
};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at / 7) as u8).collect()
}

#[test]
fn a_file_is_an_object_when_it_is_closed() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "p/", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("new", OpenOptions::read_write().create(0o644)).unwrap();
    file.write_all_at(0, b"content").unwrap();
    assert_eq!(bucket.keys(), Vec::<String>::new(), "not before it is whole");
    assert_eq!(names(&vfs, "."), ["new"], "but here it is");
    let number = root.stat("new").unwrap().number;
    let before = bucket.requests();
    drop(file);
    assert_eq!(bucket.requests() - before, 1, "one request");
    assert_eq!(bucket.content("p/new").unwrap(), b"content");
    assert_eq!(root.read_file("new").unwrap(), b"content");
    assert_eq!(root.stat("new").unwrap().number, number, "still the same file");
    let file = root.open("new", OpenOptions::read_write()).unwrap();
    file.write_all_at(3, b"!").unwrap();
    file.sync(SyncMode::All).unwrap();
    assert_eq!(bucket.content("p/new").unwrap(), b"con!ent");
    assert_eq!(root.stat("new").unwrap().number, number);
    drop(file);
    // And after everything was forgotten, read from the store.
    vfs.clean(vfs.root(), Clean::Both, Dirty::Skip).unwrap();
    assert_eq!(root.read_file("new").unwrap(), b"con!ent");
    assert_eq!(names(&vfs, "."), ["new"]);
}

#[test]
fn files_that_are_not_written_are_made_and_cut() {
    let bucket = Bucket::new(&[]);
    bucket.put("old", &bytes(100_000));
    let vfs = mount(&bucket, "", Duration::ZERO);
    let root = vfs.root_directory(Caller::root());
    drop(root.open("empty", OpenOptions::write().create(0o644)).unwrap());
    assert_eq!(bucket.content("empty").unwrap(), b"");
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    root.set_attributes("old", &size(50_000)).unwrap();
    assert_eq!(bucket.content("old").unwrap(), bytes(50_000));
    root.set_attributes("old", &size(60_000)).unwrap();
    let longer = [bytes(50_000), vec![0; 10_000]].concat();
    assert_eq!(bucket.content("old").unwrap(), longer);
    let file = root.open("old", OpenOptions::read_write()).unwrap();
    file.set_size(10).unwrap();
    assert_eq!(bucket.content("old").unwrap(), longer, "when it is closed");
    file.write_all_at(20, b"x").unwrap();
    drop(file);
    let expected = [&bytes(10)[..], &[0; 10], b"x"].concat();
    assert_eq!(bucket.content("old").unwrap(), expected);
    drop(root.open("old", OpenOptions::write().truncate()).unwrap());
    assert_eq!(bucket.content("old").unwrap(), b"");
}

#[test]
fn large_files_come_in_parts_and_parts_do_not_stay() {
    let bucket = Bucket::new(&[]);
    let valid = LONG;
    let times = VfsConfig { attr_timeout: valid, entry_timeout: valid, ..VfsConfig::default() };
    let small = ObjectConfig { upload_bytes_max: 6 << 20, ..config("") };
    let vfs = Vfs::new(ObjectBackend::new(bucket.clone(), small), times).unwrap();
    let root = vfs.root_directory(Caller::root());
    let all = bytes(20_000_000);
    root.write_file("big", &all).unwrap();
    assert!(bucket.content("big").unwrap() == all);
    assert_eq!((bucket.uploads(), counter(&vfs, "upload_buffer_bytes")), (0, 0));
    let file = root.open("big", OpenOptions::read_write()).unwrap();
    file.write_all_at(19_999_999, b"!").unwrap();
    // The second part fails for good: nothing of it is seen, and no part stays.
    bucket.plan(&[None, None, None, Some(Fault::Denied)]);
    assert!(file.sync(SyncMode::All).is_err());
    assert!(bucket.content("big").unwrap() == all);
    assert_eq!(bucket.uploads(), 0);
    file.sync(SyncMode::All).unwrap();
    assert_eq!(bucket.content("big").unwrap()[19_999_999], b'!');
}

#[test]
fn what_others_replaced_is_not_overwritten() {
    for made in [false, true] {
        let bucket = Bucket::new(&[]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        if !made {
            bucket.put("x", b"first");
        }
        let file = root.open("x", OpenOptions::read_write().create(0o644)).unwrap();
        file.write_all_at(0, b"ours").unwrap();
        bucket.put("x", b"theirs");
        assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)), "made: {made}");
        assert_eq!(bucket.content("x").unwrap(), b"theirs");
        assert_eq!(counter(&vfs, "write_conflicts"), 1);
        let mut ours = [0; 4];
        file.read_at(0, &mut ours).unwrap();
        assert_eq!(&ours, b"ours", "what was written is with its writer");
    }
}

/// A put whose answer was lost was done: tried again, it fails its own condition, and that is no conflict.
#[test]
fn a_lost_answer_is_no_conflict() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    for round in 0..2 {
        let file = root.open("x", OpenOptions::write().create(0o644)).unwrap();
        file.write_all_at(round, b"x").unwrap();
        bucket.plan(&[Some(Fault::Lost)]);
        file.sync(SyncMode::All).unwrap();
    }
    bucket.plan(&[]);
    assert_eq!(bucket.content("x").unwrap(), b"xx");
    // One asks for the metadata of the first version.
    assert_eq!((counter(&vfs, "write_conflicts"), counter(&vfs, "head_requests")), (0, 3));
    // Lost, and then replaced by others: their version stays, and the writer gets the error.
    let file = root.open("x", OpenOptions::write()).unwrap();
    file.write_all_at(0, b"y").unwrap();
    bucket.plan(&[Some(Fault::Lost), Some(Fault::Overtaken)]);
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)));
    assert_eq!(bucket.content("x").unwrap(), b"theirs");
}

/// A put took effect and its answer was lost. The next try was refused for another reason (expired credentials), and only that
/// error counted: it says that nothing was written. So the mount did not know of the object. A removal of the file succeeded
/// without a request, and its object stayed. Every later `fsync` of the file returned EBUSY, as if others had replaced it. Plans
/// 71, 76 and 139 of `tests/tests/object/faults.rs` found it.
#[test]
fn what_a_refused_put_has_left_is_known_as_its_files_own() {
    let lost_and_refused = [Some(Fault::Lost), Some(Fault::Denied)];
    for end in ["remove", "remove open", "rename", "write", "replace"] {
        let bucket = Bucket::new(&[]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        if end == "replace" {
            bucket.put("x", b"first");
        }
        let file = root.open("x", OpenOptions::write().create(0o644).truncate()).unwrap();
        file.write_all_at(0, b"ours").unwrap();
        bucket.plan(&lost_and_refused);
        assert!(matches!(file.sync(SyncMode::All), Err(Error::Access)), "{end}");
        assert_eq!(bucket.content("x").unwrap(), b"ours", "{end}: it was done");
        let keys: &[&str] = match end {
            "remove" => {
                bucket.plan(&[Some(Fault::Denied)]);
                drop(file);
                root.remove_file("x").unwrap();
                &[]
            }
            "remove open" | "replace" => {
                root.remove_file("x").unwrap();
                assert_eq!(bucket.keys(), Vec::<String>::new(), "{end}");
                drop(file);
                &[]
            }
            "rename" => {
                root.rename("x", "y", RenameMode::Replace).unwrap();
                drop(file);
                assert_eq!(bucket.content("y").unwrap(), b"ours");
                &["y"]
            }
            _ => {
                file.write_all_at(4, b"!").unwrap();
                file.sync(SyncMode::All).unwrap();
                assert_eq!(bucket.content("x").unwrap(), b"ours!");
                &["x"]
            }
        };
        assert_eq!(bucket.keys(), keys, "{end}");
        assert_eq!(counter(&vfs, "write_conflicts"), 0, "{end}: there were no others");
    }
    // A version that others put over it meanwhile is not this file's.
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::write().create(0o644)).unwrap();
    bucket.plan(&lost_and_refused);
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Access)));
    bucket.put("x", b"theirs");
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)));
    assert_eq!(bucket.content("x").unwrap(), b"theirs");
}

/// A part of a file was written, the put took effect and its answer was lost, the next try was refused. The unwritten bytes were
/// read from the version before, which that put had replaced: the file could neither be read nor synced again (ESTALE).
#[test]
fn what_was_not_written_is_read_from_what_a_refused_put_has_left() {
    for reads_before in [false, true] {
        let bucket = Bucket::new(&[]);
        bucket.put("x", &bytes(100_000));
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        let file = root.open("x", OpenOptions::read_write()).unwrap();
        file.set_size(90_000).unwrap();
        file.write_all_at(95_000, b"end").unwrap();
        file.write_all_at(10, b"first").unwrap();
        // All of it is in pages, so that the put is the next request.
        file.read_to_end().unwrap();
        bucket.plan(&[Some(Fault::Lost), Some(Fault::Denied)]);
        assert!(matches!(file.sync(SyncMode::All), Err(Error::Access)));
        assert_eq!(bucket.content("x").unwrap().len(), 95_003, "it was done");
        vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
        let mut read = [0; 9];
        if reads_before {
            file.read_at(40_000, &mut read).unwrap();
            assert_eq!(read, bytes(90_000)[40_000..40_009]);
        }
        file.write_all_at(50_000, b"second").unwrap();
        file.sync(SyncMode::All).unwrap();
        let mut wanted = bytes(90_000);
        wanted.resize(95_000, 0);
        wanted.extend(b"end");
        wanted[10..15].copy_from_slice(b"first");
        wanted[50_000..50_006].copy_from_slice(b"second");
        assert_eq!(bucket.content("x").unwrap(), wanted);
        vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
        assert_eq!(file.read_to_end().unwrap(), wanted);
    }
}

#[test]
fn a_store_without_conditions_is_asked_before() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    bucket.plan(&[None, Some(Fault::NoConditions)]);
    root.write_file("x", b"one").unwrap();
    assert_eq!(bucket.content("x").unwrap(), b"one");
    let file = root.open("x", OpenOptions::write()).unwrap();
    file.write_all_at(0, b"two").unwrap();
    bucket.put("x", b"theirs");
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)));
    assert_eq!(bucket.content("x").unwrap(), b"theirs");
}

#[test]
fn directories_stay_when_they_are_empty() {
    let bucket = Bucket::new(&["d/only", "d/e/f"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    root.create_directory("new", 0o755).unwrap();
    assert!(bucket.content("new/").is_some());
    assert!(matches!(root.create_directory("new", 0o755), Err(Error::Exists)));
    root.remove_file("d/e/f").unwrap();
    assert_eq!(names(&vfs, "d"), ["e", "only"]);
    assert!(matches!(root.remove_directory("d"), Err(Error::NotEmpty)));
    root.remove_directory("d/e").unwrap();
    root.remove_file("d/only").unwrap();
    assert_eq!(bucket.keys(), ["d/", "new/"]);
    root.remove_directory("d").unwrap();
    let file = root.open("new/x", OpenOptions::write().create(0o644)).unwrap();
    assert!(matches!(root.remove_directory("new"), Err(Error::NotEmpty)), "it is being written");
    drop(file);
    assert_eq!(bucket.keys(), ["new/", "new/x"]);
}

#[test]
fn names_move_and_files_go_on_being_written() {
    let bucket = Bucket::new(&["a", "b", "d/x"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    root.rename("a", "d/a", RenameMode::Replace).unwrap();
    assert_eq!(bucket.keys(), ["b", "d/a", "d/x"]);
    assert_eq!(root.read_file("d/a").unwrap(), b"a");
    // Written beside, then moved over, as editors do.
    root.write_file("b.new", b"second").unwrap();
    root.rename("b.new", "b", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("b").unwrap(), b"second");
    // Moved while it is open, before and after it was first put.
    let file = root.open("open", OpenOptions::read_write().create(0o644)).unwrap();
    file.write_all_at(0, b"1").unwrap();
    root.rename("open", "b", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("b").unwrap(), b"second", "it is not in the store yet");
    file.sync(SyncMode::All).unwrap();
    assert_eq!(bucket.content("b").unwrap(), b"1");
    root.rename("b", "c", RenameMode::Replace).unwrap();
    file.write_all_at(1, b"2").unwrap();
    drop(file);
    assert_eq!(bucket.content("c").unwrap(), b"12");
    assert_eq!(bucket.keys(), ["c", "d/a", "d/x"]);
    assert!(matches!(root.rename("d", "e", RenameMode::Replace), Err(Error::CrossDevice)));
    assert!(matches!(root.rename("c", "d", RenameMode::Replace), Err(Error::IsDirectory)));
}

#[test]
fn a_file_without_a_name_is_written_and_read_and_gone() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("tmp", OpenOptions::read_write().create(0o644)).unwrap();
    file.write_all_at(0, &bytes(100_000)).unwrap();
    root.remove_file("tmp").unwrap();
    assert!(matches!(root.stat("tmp"), Err(Error::NotFound)));
    // Its pages are written to a hidden place, and evicted.
    file.sync(SyncMode::All).unwrap();
    vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
    assert_eq!(file.read_to_end().unwrap(), bytes(100_000));
    drop(file);
    assert_eq!(bucket.keys(), Vec::<String>::new());
}

#[test]
fn what_was_refused_is_kept_and_reported() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::write().create(0o644)).unwrap();
    file.write_all_at(0, b"kept").unwrap();
    bucket.plan(&[Some(Fault::Denied)]);
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Access)));
    drop(file);
    assert_eq!(bucket.content("x").unwrap(), b"kept", "the close has tried again");
    let file = root.open("y", OpenOptions::write().create(0o644)).unwrap();
    bucket.plan(&[Some(Fault::Denied)]);
    drop(file);
    assert!(bucket.content("y").is_none());
    assert_eq!(names(&vfs, "."), ["x", "y"]);
    vfs.sync_fs().unwrap();
    assert_eq!(bucket.content("y").unwrap(), b"");
}

#[test]
fn nothing_is_changed_where_only_reading_is_wanted() {
    let bucket = Bucket::new(&["a"]);
    let only = ObjectConfig { read_only: true, ..config("") };
    let policy = VfsConfig { pages: PagePolicy::Auto, ..VfsConfig::default() };
    let vfs = Vfs::new(ObjectBackend::new(bucket.clone(), only), policy).unwrap();
    let root = vfs.root_directory(Caller::root());
    assert!(matches!(root.write_file("new", b"x"), Err(Error::ReadOnly)));
    assert!(matches!(root.remove_file("a"), Err(Error::ReadOnly)));
    assert_eq!(bucket.keys(), ["a"]);
}

/// `mv` and `cp -p` set the times of copies, and say so for each file where that is refused.
#[test]
fn times_go_to_the_store_with_the_content() {
    let bucket = Bucket::new(&["old"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let time = |seconds| Timestamp { seconds, nanoseconds: 5 };
    let set = |seconds| SetAttributes {
        mtime: Some(SetTime::At(time(seconds))),
        atime: Some(SetTime::At(time(seconds))),
        ..SetAttributes::default()
    };
    let file = root.open("new", OpenOptions::write().create(0o644)).unwrap();
    file.write_all_at(0, b"x").unwrap();
    file.set_attributes(&set(1000)).unwrap();
    let before = bucket.requests();
    drop(file);
    assert_eq!(bucket.requests() - before, 1, "one request for both");
    assert_eq!(bucket.modified("new"), Some(time(1000)));
    assert_eq!(root.stat("new").unwrap().mtime, time(1000));
    root.set_attributes("old", &set(2000)).unwrap();
    assert_eq!(bucket.modified("old"), Some(time(2000)));
    assert_eq!(root.read_file("old").unwrap(), b"old");
    let file = root.open("old", OpenOptions::write()).unwrap();
    file.set_attributes(&set(3000)).unwrap();
    drop(file);
    assert_eq!(bucket.modified("old"), Some(time(3000)), "also if nothing else was changed");
    assert_eq!(root.read_file("old").unwrap(), b"old");
}

/// A rename copied one version and then removed any version under the old name, even one that others had just put there.
#[test]
fn what_others_put_under_the_old_name_of_a_rename_stays() {
    let bucket = Bucket::new(&["from", "other"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    assert_eq!(names(&vfs, "."), ["from", "other"]);
    // Three looks, the copy, and then the removal.
    bucket.plan(&[None, None, None, None, Some(Fault::Overtaken)]);
    root.rename("from", "to", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("to").unwrap(), b"from");
    assert_eq!(bucket.content("from").unwrap(), b"theirs");
    // A store without such conditions is asked without them, from then on.
    bucket.plan(&[None, None, None, None, Some(Fault::NoConditions)]);
    root.rename("other", "another", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("another").unwrap(), b"other");
    assert_eq!(bucket.content("other"), None);
}

/// A file that was open for writing was removed whatever the store had under its name, even a version that others had put there since. With
/// the version as a condition alone it could never be removed.
#[test]
fn what_others_put_over_an_open_file_is_removed_when_it_was_seen() {
    for seen in [false, true] {
        let bucket = Bucket::new(&["x"]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        let file = root.open("x", OpenOptions::read_write()).unwrap();
        file.write_all_at(0, b"ours").unwrap();
        bucket.put("x", b"theirs");
        if seen {
            assert!(matches!(file.sync(SyncMode::All), Err(Error::Busy)));
        } else {
            assert!(matches!(root.remove_file("x"), Err(Error::Busy)));
            assert_eq!(bucket.content("x").unwrap(), b"theirs");
        }
        assert_eq!(root.read_file("x").unwrap(), b"theirs");
        root.remove_file("x").unwrap();
        assert_eq!(file.read_to_end().unwrap(), b"ours");
        drop(file);
        assert!(bucket.content("x").is_none(), "it does not come back");
    }
}
