//! Changes of an object keep the metadata that other clients gave it.

use super::tests::{LONG, mount, names};
use crate::bucket::{Bucket, Fault};
use crate::store::Metadata;
use std::time::Duration;
use uvfs_vfs::{
    Caller, Error, OpenOptions, RenameMode, SetAttributes, SetTime, SyncMode, Timestamp,
};

fn page() -> Metadata {
    let pairs = [("content-type", "text/html"), ("x-amz-meta-owner", "bob")];
    Metadata(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
}

/// `touch` of an object replaced all its metadata by the time: a web page became `binary/octet-stream`. A rewrite and an
/// append sent none either.
#[test]
fn a_change_of_time_size_or_content_keeps_metadata() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let at = SetTime::At(Timestamp { seconds: 7, nanoseconds: 0 });
    let time = SetAttributes { mtime: Some(at), ..SetAttributes::default() };
    let size = SetAttributes { size: Some(3), ..SetAttributes::default() };
    type Change<'a> = (&'static str, &'a dyn Fn(&str));
    let changes: [Change<'_>; 6] = [
        ("touch", &|name| {
            root.set_attributes(name, &time).unwrap();
        }),
        ("truncate", &|name| {
            root.set_attributes(name, &size).unwrap();
        }),
        ("append", &|name| {
            let file = root.open(name, OpenOptions::read_write()).unwrap();
            file.write_all_at(4, b"more").unwrap();
            file.sync(SyncMode::All).unwrap();
            file.write_all_at(8, b", and more").unwrap();
        }),
        ("rewrite", &|name| {
            let file = root.open(name, OpenOptions::write().truncate()).unwrap();
            file.write_all_at(0, b"new").unwrap();
        }),
        ("parts", &|name| root.write_file(name, vec![7; 9 << 20]).unwrap()),
        ("rename", &|name| {
            root.rename(name, "moved", RenameMode::Replace).unwrap();
            root.rename("moved", name, RenameMode::Replace).unwrap();
        }),
    ];
    for (name, change) in changes {
        bucket.put(name, b"page");
        bucket.set_metadata(name, page());
        change(name);
        assert_eq!(bucket.metadata(name), page(), "{name}");
    }
    assert_eq!(bucket.content("append").unwrap(), b"pagemore, and more");
    root.write_file("new", b"x").unwrap();
    assert_eq!(bucket.metadata("new"), Metadata::NONE);
}

/// Whether the metadata can be kept is known before anything is sent: without it, the object stays as it is.
#[test]
fn without_its_metadata_an_object_is_not_replaced() {
    let bucket = Bucket::new(&[]);
    bucket.put("x", b"page");
    bucket.set_metadata("x", page());
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::read_write().truncate()).unwrap();
    file.write_all_at(0, b"new").unwrap();
    bucket.plan(&[Some(Fault::Denied)]);
    assert!(matches!(file.sync(SyncMode::All), Err(Error::Access)));
    assert_eq!((bucket.content("x").unwrap(), bucket.metadata("x")), (b"page".to_vec(), page()));
    file.sync(SyncMode::All).unwrap();
    assert_eq!((bucket.content("x").unwrap(), bucket.metadata("x")), (b"new".to_vec(), page()));
}

/// `rsync -t` sets a time, renames the file and compares the time when it comes again. A rename and each listing forgot it, so that
/// all files were sent again each time.
#[test]
fn a_time_that_was_set_survives_a_rename_and_listings() {
    for valid in [Duration::ZERO, LONG] {
        let bucket = Bucket::new(&[]);
        let vfs = mount(&bucket, "", valid);
        let root = vfs.root_directory(Caller::root());
        let time = Timestamp { seconds: 7, nanoseconds: 9 };
        let set = SetAttributes { mtime: Some(SetTime::At(time)), ..SetAttributes::default() };
        let shown = |name: &str| {
            assert!(names(&vfs, ".").contains(&name.to_owned()));
            root.stat(name).unwrap().mtime
        };
        root.write_file("closed", b"x").unwrap();
        root.set_attributes("closed", &set).unwrap();
        let file = root.open("open", OpenOptions::write().create(0o644)).unwrap();
        file.write_all_at(0, b"x").unwrap();
        file.set_attributes(&set).unwrap();
        drop(file);
        for name in ["closed", "open"] {
            assert_eq!(shown(name), time, "{name}");
            root.rename(name, "moved", RenameMode::Replace).unwrap();
            assert_eq!(shown("moved"), time, "{name}");
            assert_eq!(bucket.modified("moved"), Some(time), "{name}: other clients see it, too");
            root.write_file("moved", b"other").unwrap();
            assert_ne!(shown("moved"), time, "{name}: it is another content");
            root.remove_file("moved").unwrap();
        }
    }
}

/// A mode or an owner that was set was EPERM, so `rsync -a` and `install` copied nothing.
#[test]
fn a_mode_and_an_owner_are_accepted_and_forgotten() {
    let bucket = Bucket::new(&["x", "d/y"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let set =
        SetAttributes { mode: Some(0o600), uid: Some(7), gid: Some(8), ..SetAttributes::default() };
    for name in ["x", "d"] {
        let before = root.stat(name).unwrap();
        let requests = bucket.requests();
        root.set_attributes(name, &set).unwrap();
        assert_eq!((root.stat(name).unwrap(), bucket.requests()), (before, requests), "{name}");
    }
}
