//! Listings that stores should not give, and markers that are more than that.

use super::tests::{LONG, counter, mount, names};
use crate::bucket::{Bucket, Fault};
use crate::path::KEY_MAX;
use std::time::Duration;
use uvfs_vfs::{Caller, Error};

/// A store that gave the same next page again and again had `ls` run until it was killed.
#[test]
fn pages_that_go_in_a_circle_end_with_an_error() {
    let keys: Vec<String> = (0..1500).map(|at| format!("{at:04}")).collect();
    let bucket = Bucket::new(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let before = bucket.requests();
    bucket.plan(&[Some(Fault::FirstPage); 100]);
    assert!(matches!(root.list_all(), Err(Error::Io(_))));
    let asked = bucket.requests() - before;
    assert!(asked < 10, "{asked} requests");
    bucket.forget_plan();
    assert_eq!(names(&vfs, ".").len(), 1500);
}

/// A page without entries that is not the last was taken for the answer that nothing is there.
#[test]
fn an_empty_page_that_is_not_the_last_says_nothing() {
    let empty = [Some(Fault::EmptyPage); 3];
    let bucket = Bucket::new(&["d/x"]);
    let vfs = mount(&bucket, "", Duration::ZERO);
    let root = vfs.root_directory(Caller::root());
    bucket.plan(&empty);
    assert!(root.stat("d").is_ok());
    bucket.plan(&empty);
    assert_eq!(names(&vfs, "."), ["d"]);
    assert!(root.stat("d").is_ok());
    bucket.plan(&empty);
    assert!(matches!(root.remove_directory("d"), Err(Error::NotEmpty)));
    assert_eq!(bucket.keys(), ["d/x"]);
}

/// `rmdir` removed the object `d/` with all that it held, without a word.
#[test]
fn a_marker_with_content_is_not_removed() {
    let bucket = Bucket::new(&[]);
    bucket.put("d/", b"content");
    bucket.put("e/", b"");
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    assert_eq!(names(&vfs, "d"), Vec::<String>::new());
    assert_eq!(counter(&vfs, "hidden_keys"), 1, "its content is told to be hidden");
    assert!(matches!(root.remove_directory("d"), Err(Error::NotEmpty)));
    root.remove_directory("e").unwrap();
    assert_eq!(bucket.keys(), ["d/"]);
}

/// The key of a directory is longer by one than that of a file of this name: the store refused it, and that was EIO.
#[test]
fn a_directory_whose_key_is_too_long_is_refused_as_that() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, &"p/".repeat(KEY_MAX / 2 - 1), LONG);
    let root = vfs.root_directory(Caller::root());
    let before = bucket.requests();
    assert!(matches!(root.create_directory("ab", 0o755), Err(Error::NameTooLong)));
    root.create_directory("a", 0o755).unwrap();
    root.write_file("ab", b"x").unwrap();
    assert!(bucket.requests() > before);
    assert_eq!(names(&vfs, "."), ["a", "ab"]);
}
