//! A bucket through the core: requests to the store, cached data, and reads of an open file.

use super::{ObjectBackend, ObjectConfig};
use crate::bucket::{Bucket, Fault};
use crate::retry::Patience;
use std::sync::Arc;
use std::time::Duration;
use uvfs_vfs::{
    Attributes, Backend, Caller, Cookie, DirectoryEntry, Entries, Entry, Error, FileKind, FileRef,
    InodeId, Listing, Name, Node, OpenOptions, Vfs, VfsConfig,
};

pub(super) fn config(prefix: &str) -> ObjectConfig {
    let patience =
        Patience { attempts: 3, first_pause: Duration::ZERO, longest_pause: Duration::ZERO };
    ObjectConfig { prefix: prefix.into(), patience, ..ObjectConfig::default() }
}

pub(super) fn mount(bucket: &Bucket, prefix: &str, valid: Duration) -> Arc<Vfs> {
    let times = VfsConfig { attr_timeout: valid, entry_timeout: valid, ..VfsConfig::default() };
    let times = VfsConfig { negative_timeout: valid, ..times };
    Vfs::new(ObjectBackend::new(bucket.clone(), config(prefix)), times).unwrap()
}

pub(super) const LONG: Duration = Duration::from_secs(3600);

pub(super) fn names(vfs: &Arc<Vfs>, path: &str) -> Vec<String> {
    let root = vfs.root_directory(Caller::root());
    let listed = root.open_directory(path).unwrap().list_all().unwrap();
    let name = |entry: &DirectoryEntry| String::from_utf8_lossy(&entry.name).into_owned();
    listed.iter().map(name).collect()
}

pub(super) fn counter(vfs: &Vfs, name: &str) -> u64 {
    let counters = vfs.statistics().backend;
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

#[test]
fn keys_are_a_tree() {
    let bucket = Bucket::new(&["a", "d/", "d/e/f", "d/g", "other", "p/", "p/x/y", "p/z"]);
    let vfs = mount(&bucket, "", LONG);
    assert_eq!(names(&vfs, "."), ["a", "d", "other", "p"]);
    assert_eq!(names(&vfs, "d"), ["e", "g"]);
    let root = vfs.root_directory(Caller::root());
    assert_eq!(root.read_file("d/e/f").unwrap(), b"d/e/f");
    assert_eq!(root.stat("d/g").unwrap().size, 3);
    assert_eq!(root.stat("d/e").unwrap().kind, FileKind::Directory);
    assert!(matches!(root.stat("d/h"), Err(Error::NotFound)));
    assert!(matches!(root.stat("a/b"), Err(Error::NotDirectory)));
    let part = mount(&bucket, "p/", LONG);
    assert_eq!(names(&part, "."), ["x", "z"]);
    assert_eq!(part.root_directory(Caller::root()).read_file("x/y").unwrap(), b"p/x/y");
}

#[test]
fn one_listing_answers_names_attributes_and_absence() {
    let keys: Vec<String> = (0..900).map(|at| format!("d/{at:04}")).collect();
    let bucket = Bucket::new(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let directory = root.open_directory("d").unwrap();
    // As a kernel lists: with attributes.
    let mut entries = Held::default();
    let (caller, file) = (Caller::root(), FileRef::unopened(directory.node().id()));
    vfs.list(&caller, directory.node(), file, Cookie(0), &mut entries).unwrap();
    assert_eq!(entries.0, 900);
    let before = bucket.requests();
    for key in &keys {
        assert_eq!(root.stat(key).unwrap().size, 6);
    }
    assert!(matches!(root.stat("d/absent"), Err(Error::NotFound)));
    assert_eq!(bucket.requests(), before, "everything was in one page");
}

/// Takes all entries, with their nodes.
#[derive(Default)]
struct Held(usize);

impl Entries for Held {
    fn room(&self) -> usize {
        usize::MAX
    }
    fn wants_nodes(&self) -> bool {
        true
    }
    fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        self.0 += 1;
        true
    }
    fn node(
        &mut self,
        _: Name<'_>,
        _: Cookie,
        _: Node,
        _: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        self.0 += 1;
        true
    }
}

#[test]
fn keys_that_are_no_paths_are_hidden_and_counted() {
    let bucket = Bucket::new(&["/top", "a", "a//b", "a/../b", "b/./c", "b/d", "c/", "x "]);
    let vfs = mount(&bucket, "", LONG);
    // "a" is an object, and so no directory; keys below it have no name.
    assert_eq!(names(&vfs, "."), ["a", "b", "c", "x "]);
    assert_eq!(names(&vfs, "b"), ["d"]);
    assert_eq!(names(&vfs, "c"), Vec::<String>::new());
    assert_eq!(counter(&vfs, "hidden_keys"), 3);
    let root = vfs.root_directory(Caller::root());
    assert_eq!(root.read_file("x ").unwrap(), b"x ");
    assert!(matches!(root.stat("x"), Err(Error::NotFound)));
    assert!(matches!(root.stat("a/b"), Err(Error::NotDirectory)));
}

#[test]
fn an_object_has_a_name_before_what_lies_below_it() {
    // Between "a" and "a/" a thousand keys can stand, and a page end.
    let mut keys = vec!["a".to_owned(), "a/x".to_owned()];
    keys.extend((0..2500).map(|at| format!("a-{at:04}")));
    keys.extend((0..30).map(|at| format!("b-{at:04}")));
    keys.push("b/x".into());
    let bucket = Bucket::new(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let vfs = mount(&bucket, "", Duration::ZERO);
    let root = vfs.root_directory(Caller::root());
    let listed = names(&vfs, ".");
    assert_eq!(listed.iter().filter(|name| *name == "a").count(), 1);
    assert_eq!(listed.len(), 1 + 2500 + 30 + 1);
    assert_eq!(root.stat("a").unwrap().kind, FileKind::Regular);
    assert_eq!(root.stat("b").unwrap().kind, FileKind::Directory, "behind more than one page");
    bucket.remove("a");
    assert_eq!(root.stat("a").unwrap().kind, FileKind::Directory);
}

#[test]
fn an_open_file_is_of_one_version_and_never_a_mix() {
    let bucket = Bucket::new(&[]);
    let (old, new) = (vec![b'o'; 3 << 20], vec![b'n'; 3 << 20]);
    bucket.put("x", &old);
    let vfs = mount(&bucket, "", Duration::ZERO);
    let root = vfs.root_directory(Caller::root());
    let first = root.open("x", OpenOptions::read()).unwrap();
    let mut head = vec![0; 4096];
    assert_eq!(first.read_at(0, &mut head).unwrap(), 4096);
    bucket.put("x", &new);
    let second = root.open("x", OpenOptions::read()).unwrap();
    assert_ne!(first.stat().unwrap().number, second.stat().unwrap().number);
    assert_eq!(second.read_to_end().unwrap(), new);
    for offset in (0..3 << 20).step_by(4096) {
        match first.read_at(offset, &mut head) {
            Ok(_) => assert!(head.iter().all(|byte| *byte == b'o'), "at {offset}"),
            Err(error) => assert!(matches!(error, Error::Stale), "{error}"),
        }
    }
    let end = first.read_at((3 << 20) - 4096, &mut head);
    assert!(matches!(end, Err(Error::Stale)), "it was never read: {end:?}");
    assert_eq!(root.read_file("x").unwrap(), new);
}

/// Bug: a read found that another client had replaced the object. Each later open still gave the cached head of the old
/// version and failed behind it, for as long as the cached name was valid.
#[test]
fn an_object_that_a_read_found_replaced_is_opened_anew() {
    let bucket = Bucket::new(&[]);
    let (old, new) = (vec![b'o'; 3 << 20], vec![b'n'; 3 << 20]);
    bucket.put("x", &old);
    bucket.put("y", &old);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let (x, y) = (root.open("x", OpenOptions::read()), root.open("y", OpenOptions::read()));
    let (x, y) = (x.unwrap(), y.unwrap());
    let mut head = vec![0; 4096];
    assert_eq!(x.read_at(0, &mut head).unwrap(), 4096);
    bucket.put("x", &new);
    bucket.remove("y");
    assert!(matches!(x.read_to_end(), Err(Error::Stale)));
    assert_eq!(root.read_file("x").unwrap(), new);
    assert!(matches!(y.read_to_end(), Err(Error::Stale)));
    assert!(matches!(root.stat("y"), Err(Error::NotFound)));
}

#[test]
fn a_removed_object_is_stale_and_then_absent() {
    let bucket = Bucket::new(&["x"]);
    let vfs = mount(&bucket, "", Duration::ZERO);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::read()).unwrap();
    bucket.remove("x");
    assert!(matches!(file.read_to_end(), Err(Error::Stale)));
    assert!(matches!(root.stat("x"), Err(Error::NotFound)));
}

#[test]
fn large_files_are_read_by_many_requests_at_once() {
    let bucket = Bucket::new(&[]);
    let content: Vec<u8> = (0..8_000_003_u32).flat_map(|at| [(at % 251) as u8]).collect();
    bucket.put("big", &content);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    assert_eq!(root.read_file("big").unwrap(), content);
    let read = counter(&vfs, "get_bytes");
    assert_eq!(read, content.len() as u64, "every byte once");
    assert_eq!(root.read_file("big").unwrap(), content);
    assert_eq!(counter(&vfs, "get_bytes"), read, "and from the cache after that");
}

#[test]
fn faults_are_reported_and_nothing_wrong_is_kept() {
    let bucket = Bucket::new(&["d/a", "d/b"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    bucket.plan(&[Some(Fault::Denied)]);
    assert!(matches!(root.stat("d"), Err(Error::Access)));
    assert_eq!(root.stat("d").unwrap().kind, FileKind::Directory, "a refusal is no absence");
    bucket.plan(&[Some(Fault::Busy); 3]);
    assert!(matches!(root.stat("d/a"), Err(Error::TimedOut)));
    bucket.plan(&[Some(Fault::Cut), Some(Fault::Unreachable)]);
    assert_eq!(root.stat("d/a").unwrap().size, 3, "two tries were not enough, the third is");
    bucket.plan(&[Some(Fault::Cut); 3]);
    assert!(matches!(root.read_file("d/a"), Err(Error::Io(_))));
    assert_eq!(root.read_file("d/a").unwrap(), b"d/a");
    bucket.plan(&[Some(Fault::Busy); 3]);
    assert!(root.open_directory("d").unwrap().list_all().is_err());
    assert_eq!(names(&vfs, "d"), ["a", "b"], "half a listing is none");
}

/// A listing that returns some names at a time.
struct Part(Vec<(String, u64)>, usize);

impl Listing for Part {
    fn add_name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        unreachable!("attributes are free")
    }
    fn add_entry(&mut self, name: Name<'_>, next: Cookie, _: Entry) -> bool {
        if self.1 == 0 {
            return false;
        }
        self.1 -= 1;
        self.0.push((String::from_utf8(name.as_bytes().to_vec()).unwrap(), next.0));
        true
    }
}

#[test]
fn a_listing_goes_on_where_it_stopped_also_after_it_was_given_up() {
    let keys: Vec<String> = (0..2345).map(|at| format!("{at:05}")).collect();
    let bucket = Bucket::new(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let store = ObjectBackend::new(bucket.clone(), config(""));
    let root = FileRef::unopened(InodeId::ROOT);
    let some = |from: u64, count: usize| {
        let mut some = Part(Vec::new(), count);
        store.names().list(root, Cookie(from), &mut some).unwrap();
        some.0
    };
    for step in [1000, 7, 333, 5000] {
        let (mut seen, mut from) = (Vec::new(), 0);
        let before = bucket.requests();
        loop {
            let part = some(from, step);
            let Some(last) = part.last() else { break };
            from = last.1;
            seen.extend(part.into_iter().map(|(name, _)| name));
        }
        assert_eq!(seen, keys, "in steps of {step}");
        assert_eq!(bucket.requests() - before, 3, "one for each page");
    }
    let middle = some(0, 1200).last().unwrap().1;
    (0..100).for_each(|_| drop(some(0, 1)));
    let after = some(middle, 1);
    assert_eq!(after[0].0, keys[1200]);
    let back = some(some(0, 5)[2].1, 1);
    assert_eq!(back[0].0, keys[3], "also backwards");
    let counters = store.counters();
    assert!(counters.contains(&("listings_begun_again", 1)), "{counters:?}");
}
