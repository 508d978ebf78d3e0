//! Names, links, references and listings.

use super::*;
use RenameMode::{Exchange, NoReplace, Replace};

#[test]
fn an_unlinked_file_lives_until_its_last_reference() {
    let memory = backend(1 << 20);
    let empty = memory.used();
    let file = memory.create(&Caller::root(), ROOT, name("a"), &new(NewKind::Regular)).unwrap();
    memory.names().lookup(&Caller::root(), ROOT, name("a")).unwrap();
    memory.put(file.inode, 0, b"data").unwrap();
    memory.drop_name(ROOT, "a").unwrap();
    assert!(matches!(memory.find(ROOT, "a"), Err(Error::NotFound)));
    assert_eq!(memory.stat(file.inode).links, 0);
    assert_eq!(memory.take(file.inode, 0, 9), b"data");
    memory.forget(file.inode, 1);
    assert_eq!(memory.take(file.inode, 0, 9), b"data");
    assert!(memory.used() > empty);
    memory.forget(file.inode, 1);
    assert_eq!(memory.used(), empty);
    assert!(matches!(memory.attributes(FileRef::unopened(file.inode)), Err(Error::Stale)));
    assert_ne!(memory.file("a"), file.inode, "ids are not used again");
}

#[test]
fn links_share_one_object_and_count_up_and_down() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let directory = memory.directory(ROOT, "d");
    assert_eq!(memory.add_link(file, directory, "b").unwrap(), file);
    assert_eq!(memory.stat(file).links, 2);
    assert!(matches!(memory.add_link(file, directory, "b"), Err(Error::Exists)));
    assert!(matches!(memory.add_link(directory, ROOT, "e"), Err(Error::NotPermitted)));
    memory.drop_name(ROOT, "a").unwrap();
    assert_eq!(memory.stat(file).links, 1);
    assert_eq!(memory.find(directory, "b").unwrap(), file);
}

#[test]
fn a_file_without_a_name_may_get_one_unless_it_lost_it() {
    let memory = backend(1 << 20);
    let root = Caller::root();
    let regular = new(NewKind::Regular);
    let (entry, open) = memory.create_unnamed(&root, ROOT, &regular, OpenMode::READ).unwrap();
    assert_eq!((entry.attributes.links, open), (0, FileId::NONE));
    assert!(memory.names_of(ROOT).is_empty());
    memory.put(entry.inode, 0, b"kept").unwrap();
    memory.add_link(entry.inode, ROOT, "a").unwrap();
    assert_eq!(memory.stat(entry.inode).links, 1);
    memory.drop_name(ROOT, "a").unwrap();
    assert!(matches!(memory.add_link(entry.inode, ROOT, "b"), Err(Error::NotFound)));
    memory.forget(entry.inode, 1);
    assert!(matches!(memory.add_link(entry.inode, ROOT, "b"), Err(Error::Stale)));
    assert_eq!(memory.used(), backend(1 << 20).used());
    let directory = new(NewKind::Directory);
    assert!(memory.create_unnamed(&root, ROOT, &directory, OpenMode::READ).is_err());
}

#[test]
fn directories_count_subdirectories_and_show_a_size() {
    let memory = backend(1 << 20);
    let outer = memory.directory(ROOT, "outer");
    memory.directory(outer, "inner");
    memory.make(outer, "file", NewKind::Regular).unwrap();
    assert_eq!((memory.stat(outer).links, memory.stat(outer).size), (3, 80));
    assert_eq!(memory.stat(ROOT).links, 3);
    memory.drop_directory(outer, "inner").unwrap();
    assert_eq!(memory.stat(outer).links, 2);
}

#[test]
fn the_wrong_way_to_remove_is_refused() {
    let memory = backend(1 << 20);
    let outer = memory.directory(ROOT, "outer");
    memory.make(outer, "file", NewKind::Regular).unwrap();
    assert!(matches!(memory.drop_name(ROOT, "outer"), Err(Error::IsDirectory)));
    assert!(matches!(memory.drop_directory(ROOT, "outer"), Err(Error::NotEmpty)));
    assert!(matches!(memory.drop_directory(outer, "file"), Err(Error::NotDirectory)));
    assert!(matches!(memory.drop_name(outer, "none"), Err(Error::NotFound)));
    assert!(matches!(
        memory.find(memory.find(outer, "file").unwrap(), "x"),
        Err(Error::NotDirectory)
    ));
}

#[test]
fn a_removed_directory_takes_no_names() {
    let memory = backend(1 << 20);
    let root = Caller::root();
    let entry = memory.create(&root, ROOT, name("d"), &new(NewKind::Directory)).unwrap();
    let file = memory.file("f");
    memory.drop_directory(ROOT, "d").unwrap();
    assert_eq!(memory.stat(entry.inode).links, 0);
    assert!(matches!(memory.make(entry.inode, "x", NewKind::Regular), Err(Error::NotFound)));
    assert!(matches!(memory.add_link(file, entry.inode, "x"), Err(Error::NotFound)));
    let moved = memory.move_name((ROOT, "f"), (entry.inode, "x"), Replace);
    assert!(matches!(moved, Err(Error::NotFound)));
    assert!(memory.names_of(entry.inode).is_empty());
    memory.forget(entry.inode, 1);
    assert!(matches!(memory.make(entry.inode, "x", NewKind::Regular), Err(Error::Stale)));
}

#[test]
fn symbolic_links_hold_text_of_a_paths_length() {
    let memory = backend(1 << 20);
    let link = memory.make(ROOT, "l", NewKind::Symlink(b"../x")).unwrap();
    assert_eq!(memory.read_link(link).unwrap(), b"../x");
    assert_eq!((memory.stat(link).size, memory.stat(link).mode), (4, 0o777));
    assert!(matches!(memory.read_link(ROOT), Err(Error::Invalid(_))));
    let long = vec![b'x'; 4096];
    assert!(memory.make(ROOT, "m", NewKind::Symlink(&long[1..])).is_ok());
    let refused = memory.make(ROOT, "n", NewKind::Symlink(&long));
    assert!(matches!(refused, Err(Error::NameTooLong)));
    assert!(matches!(memory.make(ROOT, "n", NewKind::Symlink(b"")), Err(Error::NotFound)));
}

#[test]
fn rename_obeys_its_mode() {
    let memory = backend(1 << 20);
    let (a, b) = (memory.file("a"), memory.file("b"));
    let directory = memory.directory(ROOT, "d");
    let used = memory.used();
    assert!(matches!(memory.move_name((ROOT, "a"), (ROOT, "b"), NoReplace), Err(Error::Exists)));
    let refused = memory.move_name((ROOT, "a"), (directory, "x"), Exchange);
    assert!(matches!(refused, Err(Error::NotFound)));
    memory.move_name((ROOT, "a"), (ROOT, "b"), Exchange).unwrap();
    assert_eq!((memory.find(ROOT, "a").unwrap(), memory.find(ROOT, "b").unwrap()), (b, a));
    memory.move_name((ROOT, "a"), (ROOT, "d"), Exchange).unwrap();
    assert_eq!(memory.find(ROOT, "a").unwrap(), directory);
    memory.move_name((ROOT, "b"), (directory, "x"), NoReplace).unwrap();
    assert_eq!(memory.find(directory, "x").unwrap(), a);
    assert_eq!(memory.used(), used);
    memory.move_name((directory, "x"), (ROOT, "d"), Replace).unwrap();
    assert_eq!(memory.find(ROOT, "d").unwrap(), a);
    assert!(matches!(memory.attributes(FileRef::unopened(b)), Err(Error::Stale)));
    assert_eq!(memory.used().1, used.1 - 1);
}

#[test]
fn rename_replaces_only_like_by_like_and_only_empty_directories() {
    let memory = backend(1 << 20);
    memory.file("file");
    let full = memory.directory(ROOT, "full");
    let empty = memory.directory(ROOT, "empty");
    memory.make(full, "x", NewKind::Regular).unwrap();
    let attempt = |from, to| memory.move_name((ROOT, from), (ROOT, to), Replace);
    assert!(matches!(attempt("file", "empty"), Err(Error::IsDirectory)));
    assert!(matches!(attempt("empty", "file"), Err(Error::NotDirectory)));
    assert!(matches!(attempt("empty", "full"), Err(Error::NotEmpty)));
    assert!(matches!(attempt("none", "full"), Err(Error::NotFound)));
    attempt("full", "empty").unwrap();
    assert_eq!(memory.find(ROOT, "empty").unwrap(), full);
    assert!(matches!(memory.attributes(FileRef::unopened(empty)), Err(Error::Stale)));
    assert_eq!(memory.stat(ROOT).links, 3);
}

#[test]
fn a_directory_does_not_move_below_itself() {
    let memory = backend(1 << 20);
    let a = memory.directory(ROOT, "a");
    let b = memory.directory(a, "b");
    let c = memory.directory(b, "c");
    memory.file("f");
    for mode in [Replace, NoReplace] {
        assert!(matches!(memory.move_name((ROOT, "a"), (c, "x"), mode), Err(Error::Invalid(_))));
        assert!(matches!(memory.move_name((ROOT, "a"), (a, "x"), mode), Err(Error::Invalid(_))));
    }
    assert!(matches!(memory.move_name((ROOT, "a"), (b, "c"), Exchange), Err(Error::Invalid(_))));
    assert!(matches!(memory.move_name((b, "c"), (ROOT, "a"), Exchange), Err(Error::Invalid(_))));
    assert!(matches!(memory.move_name((b, "c"), (ROOT, "a"), Replace), Err(Error::NotEmpty)));
    memory.move_name((a, "b"), (ROOT, "b"), Replace).unwrap();
    memory.move_name((ROOT, "a"), (c, "a"), Replace).unwrap();
    assert_eq!(memory.find(c, "a").unwrap(), a);
    assert_eq!([ROOT, b, c, a].map(|inode| memory.stat(inode).links), [3, 3, 3, 2]);
}

#[test]
fn two_names_of_one_object_are_left_alone() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    memory.add_link(file, ROOT, "b").unwrap();
    let directory = memory.directory(ROOT, "d");
    memory.add_link(file, directory, "c").unwrap();
    let before = memory.stat(file);
    for mode in [Replace, Exchange] {
        for to in [(ROOT, "b"), (directory, "c"), (ROOT, "a")] {
            memory.move_name((ROOT, "a"), to, mode).unwrap();
        }
    }
    assert_eq!(memory.stat(file), before);
    assert_eq!(memory.names_of(ROOT).len(), 3);
}

#[test]
fn a_rename_never_runs_out_of_space() {
    let memory = backend(64 * 1024);
    let directory = memory.directory(ROOT, "d");
    memory.file("a");
    let filler = memory.file("filler");
    while memory.put(filler, memory.stat(filler).size, &[1; 4096]).is_ok() {}
    for at in 0.. {
        let text = format!("small{at}");
        if memory.make(ROOT, &text, NewKind::Regular).is_err() {
            break;
        }
    }
    let long = "x".repeat(255);
    memory.move_name((ROOT, "a"), (directory, &long), Replace).unwrap();
    memory.move_name((directory, &long), (ROOT, "a"), Replace).unwrap();
}

#[test]
fn a_listing_in_steps_sees_what_stays_once_whatever_happens() {
    let memory = backend(1 << 24);
    for at in 0..1000 {
        memory.file(&format!("stay{at}"));
        memory.file(&format!("go{at}"));
    }
    let mut from = Cookie(0);
    let mut seen = Vec::new();
    for round in 0.. {
        let mut listing = Names { limit: 7, ..Names::default() };
        memory.names().list(FileRef::unopened(ROOT), from, &mut listing).unwrap();
        let Some(last) = listing.seen.last() else { break };
        from = last.2;
        seen.extend(listing.seen.into_iter().map(|(name, _, _)| name));
        if round < 300 {
            let _ = memory.drop_name(ROOT, &format!("go{round}"));
            memory.file(&format!("new{round}"));
            let (a, b) = (format!("stay{round}"), format!("stay{}", 999 - round));
            memory.move_name((ROOT, &a), (ROOT, &b), Exchange).unwrap();
            let temporary = format!("temporary{round}");
            memory.file(&temporary);
            memory.move_name((ROOT, &temporary), (ROOT, &a), Replace).unwrap();
        }
    }
    for at in 0..1000 {
        let stay = format!("stay{at}");
        assert_eq!(seen.iter().filter(|name| **name == stay).count(), 1, "{stay}");
    }
}

/// Takes entries with their references, and stops after some.
struct Entries {
    limit: usize,
    taken: Vec<InodeId>,
}

impl Listing for Entries {
    fn add_name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        unreachable!("attributes are free here")
    }
    fn add_entry(&mut self, _: Name<'_>, _: Cookie, entry: Entry) -> bool {
        if self.taken.len() == self.limit {
            return false;
        }
        self.taken.push(entry.inode);
        true
    }
}

#[test]
fn a_listing_gives_a_reference_with_each_entry_it_takes_and_no_other() {
    let memory = backend(1 << 20);
    let empty = memory.used();
    let files = (0..5).map(|at| memory.file(&format!("f{at}")));
    assert_eq!(files.count(), 5);
    let mut entries = Entries { limit: 3, taken: Vec::new() };
    memory.names().list(FileRef::unopened(ROOT), Cookie(0), &mut entries).unwrap();
    assert_eq!(entries.taken.len(), 3);
    (0..5).for_each(|at| memory.drop_name(ROOT, &format!("f{at}")).unwrap());
    assert_eq!(memory.used().1, empty.1 + 3);
    entries.taken.iter().for_each(|&inode| memory.forget(inode, 1));
    let left = memory.used();
    assert_eq!(left, empty);
}

/// Replaces one name and removes another as soon as it gets the first.
struct Meddler<'a> {
    memory: &'a MemoryBackend,
    seen: Vec<(String, InodeId)>,
}

impl Listing for Meddler<'_> {
    fn add_name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        unreachable!("attributes are free here")
    }
    fn add_entry(&mut self, name: Name<'_>, _: Cookie, entry: Entry) -> bool {
        if self.seen.is_empty() {
            let memory = self.memory;
            memory.move_name((ROOT, "f0"), (ROOT, "f2"), Replace).unwrap();
            memory.drop_name(ROOT, "f1").unwrap();
        }
        self.seen.push((String::from_utf8_lossy(name.as_bytes()).into(), entry.inode));
        self.memory.forget(entry.inode, 1);
        true
    }
}

#[test]
fn a_name_replaced_under_a_listing_shows_its_new_object_and_a_removed_one_nothing() {
    let memory = backend(1 << 20);
    let files: Vec<_> = (0..4).map(|at| memory.file(&format!("f{at}"))).collect();
    let mut listing = Meddler { memory: &memory, seen: Vec::new() };
    memory.names().list(FileRef::unopened(ROOT), Cookie(0), &mut listing).unwrap();
    let shown: Vec<_> = listing.seen.iter().map(|(name, inode)| (&name[..], *inode)).collect();
    assert_eq!(shown[..2], [("f3", files[3]), ("f2", files[0])], "newest first");
    // The old name of the moved one was in the batch already, and its object is still there.
    assert!(shown[2..].is_empty() || shown[2..] == [("f0", files[0])]);
}

#[test]
fn links_end_at_the_stated_limit() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let directory = memory.directory(ROOT, "d");
    memory.directory(ROOT, "e");
    let set = |inode, links| memory.table.get(inode).unwrap().state.write().links = links;
    set(file, node::LINKS_MAX);
    assert!(matches!(memory.add_link(file, ROOT, "b"), Err(Error::TooManyLinks)));
    set(directory, node::LINKS_MAX);
    let refused = memory.make(directory, "x", NewKind::Directory);
    assert!(matches!(refused, Err(Error::TooManyLinks)));
    let refused = memory.move_name((ROOT, "e"), (directory, "e"), Replace);
    assert!(matches!(refused, Err(Error::TooManyLinks)));
    assert!(memory.make(directory, "x", NewKind::Regular).is_ok());
}

#[test]
fn changes_of_names_mark_parents_and_objects() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let directory = memory.directory(ROOT, "d");
    let old = uvfs_vfs::Timestamp { seconds: 1, nanoseconds: 0 };
    let check = |expected: [(bool, bool); 3], what: &dyn Fn()| {
        let three = [ROOT, directory, file];
        for inode in three {
            let node = memory.table.get(inode).unwrap();
            let mut state = node.state.write();
            (state.mtime, state.ctime) = (old, old);
        }
        what();
        let moved = three.map(|inode| memory.stat(inode)).map(|a| (a.mtime != old, a.ctime != old));
        assert_eq!(moved, expected);
    };
    let (none, both, change) = ((false, false), (true, true), (false, true));
    check([none, both, change], &|| assert!(memory.add_link(file, directory, "b").is_ok()));
    check([none, both, change], &|| memory.drop_name(directory, "b").unwrap());
    check([both, both, change], &|| {
        memory.move_name((ROOT, "a"), (directory, "a"), Replace).unwrap();
    });
    check([none, both, change], &|| {
        memory.move_name((directory, "a"), (directory, "b"), Replace).unwrap();
    });
    check([none, both, none], &|| assert!(memory.make(directory, "x", NewKind::Fifo).is_ok()));
    check([none, none, none], &|| {
        assert!(memory.make(directory, "x", NewKind::Fifo).is_err());
        assert!(memory.drop_name(directory, "none").is_err());
    });
}

#[test]
fn a_set_group_id_directory_and_a_default_list_shape_what_is_made_in_it() {
    let memory = backend(1 << 20);
    let directory = memory.directory(ROOT, "d");
    let set = SetAttributes { mode: Some(0o2777), gid: Some(44), ..Default::default() };
    memory.set_attributes(&Caller::root(), FileRef::unopened(directory), &set).unwrap();
    let someone = Caller::new(5, 6, &[]);
    let node = NewNode { kind: NewKind::Directory, mode: 0o777, umask: 0o027 };
    let made = memory.create(&someone, directory, name("x"), &node).unwrap().attributes;
    assert_eq!((made.uid, made.gid, made.mode), (5, 44, 0o2750));
}
