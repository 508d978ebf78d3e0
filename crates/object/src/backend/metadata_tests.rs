//! Changes of an object keep the metadata that other clients gave it.

use super::tests::{LONG, mount};
use crate::bucket::{Bucket, Fault};
use crate::store::Metadata;
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
