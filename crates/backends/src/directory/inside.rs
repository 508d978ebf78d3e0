//! Whether the object of a kept descriptor is still below the root.
//!
//! # Boundary
//! [`super::reach`] and [`super::list`] ask this before each operation through a descriptor that was opened earlier. An
//! object opened by name from a directory inside needs no check. Data of an open file needs none: an open file stays
//! open, wherever its name moves.
//!
//! # Cost
//! One `statx` of `../..` with as many levels as the descriptor was last below the root. If that does not lead to the
//! root, the texts of two links in `/proc/self/fd` decide, and show the level.
//!
//! # Why
//! A descriptor follows its directory to wherever others move it, and Landlock does not cover `chmod`, `utimensat` and
//! extended attributes. The check climbs, because that reads the host's own links between directories: recorded names
//! may be old, and those of the path to the root would have to be opened one by one. Weaknesses: an operation in flight
//! while its directory is moved out may still be done; a move by another client of a network host is seen only when
//! this host hears of it. Below [`LEVELS_MAX`] levels the slow check runs, and below a path of 4 KiB the descriptor is
//! given up.

use super::convert::{directory_key, stat_of};
use super::host::Host;
use super::node::HostNode;
use rustix::fd::{AsFd, OwnedFd};
use rustix::path::DecInt;
use std::mem::MaybeUninit;
use std::sync::Arc;
use uvfs_vfs::{FileKind, InodeId};

/// Most levels that are climbed in one call: the host takes paths of less than 4 KiB.
const LEVELS_MAX: usize = 1300;
/// `../../..`, for the deepest climb.
const UPWARDS: [u8; 3 * LEVELS_MAX] = {
    let mut path = [b'.'; 3 * LEVELS_MAX];
    let mut level = 0;
    while level < LEVELS_MAX {
        path[3 * level + 2] = b'/';
        level += 1;
    }
    path
};
/// The longest text of a link in `/proc/self/fd`.
const TEXT_MAX: usize = 4096;
/// How often the root may be renamed while it is asked where something is.
const RENAMES_MAX: usize = 8;

impl Host {
    /// The kept descriptor of `node`, if its object is still below the root; otherwise the descriptor is given up.
    pub(super) fn kept(&self, node: &HostNode) -> Option<Arc<OwnedFd>> {
        let open = node.slot.get()?;
        if self.is_inside(node, &open) {
            return Some(open);
        }
        self.counters.outside.hit();
        node.slot.close_unless_pinned();
        None
    }

    /// Whether `node`, on which `open` is open, is below the root, or was removed there.
    pub(super) fn is_inside(&self, node: &HostNode, open: &OwnedFd) -> bool {
        node.id == InodeId::ROOT || self.climbs_to_root(node, open) || self.locate(node, open)
    }

    /// Whether the root is as many levels above `open` as when that was last seen.
    fn climbs_to_root(&self, node: &HostNode, open: &OwnedFd) -> bool {
        let levels = node.slot.levels();
        if node.kind != FileKind::Directory || !(1..=LEVELS_MAX).contains(&levels) {
            return false;
        }
        // Without the slash at its end.
        let path = &UPWARDS[..3 * levels - 1];
        directory_key(open.as_fd(), path).is_some_and(|key| key == self.root.key)
    }

    /// Finds out where `open` is, and notes it; false if that is not below the root.
    #[cold]
    fn locate(&self, node: &HostNode, open: &OwnedFd) -> bool {
        self.counters.located.hit();
        let Some(root) = self.root.slot.get() else { return false };
        let (mut root_space, mut space) = (text_space(), text_space());
        for _ in 0..RENAMES_MAX {
            let Some(root_text) = self.link_text(&root, &mut root_space) else { return false };
            let Some(text) = self.link_text(open, &mut space) else { break };
            if let Some(levels) = levels_below(root_text, text) {
                node.slot.note_levels(levels);
                return true;
            }
            // Unless the root got another name between the two answers, it is elsewhere.
            let mut again_space = text_space();
            if self.link_text(&root, &mut again_space).is_none_or(|again| *again == *root_text) {
                break;
            }
        }
        // A removed directory has no place, and no other program can reach it by a name.
        stat_of(open).is_ok_and(|stat| stat.attributes.links == 0)
    }

    /// The path that the host shows for `open`; none if it is too long.
    fn link_text<'a>(&self, open: &OwnedFd, space: &'a mut TextSpace) -> Option<&'a [u8]> {
        let number = DecInt::from_fd(open);
        let read = rustix::fs::readlinkat_raw(&self.proc_fds, number.as_c_str(), &mut space[..]);
        read.ok().map(|(text, _)| &*text)
    }
}

type TextSpace = [MaybeUninit<u8>; TEXT_MAX];

fn text_space() -> TextSpace {
    [MaybeUninit::uninit(); TEXT_MAX]
}

/// How many levels `text` is below `root`, both as the host shows paths; none if it is not below.
fn levels_below(root: &[u8], text: &[u8]) -> Option<usize> {
    let root = if root == b"/" { &[][..] } else { root };
    let rest = text.strip_prefix(root)?;
    let below = rest.len() > 1 && rest[0] == b'/';
    below.then(|| rest.iter().filter(|&&byte| byte == b'/').count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};
    use uvfs_vfs::{
        Backend, Cookie, Entry, Error, FileRef, Listing, Name, OpenMode, RenameMode, Result,
        SetAttributes, SetTime, XattrMode,
    };

    /// Counts listed entries, and returns their references.
    struct Count<'a>(&'a Scratch, usize);

    impl Listing for Count<'_> {
        fn add_name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
            self.1 += 1;
            true
        }
        fn add_entry(&mut self, _: Name<'_>, _: Cookie, entry: Entry) -> bool {
            self.0.backend.inodes().forget(entry.inode, 1);
            self.1 += 1;
            true
        }
    }

    fn list(scratch: &Scratch, directory: FileRef) -> Result<usize> {
        let mut count = Count(scratch, 0);
        scratch.backend.names().list(directory, Cookie(0), &mut count)?;
        Ok(count.1)
    }

    /// Paths, contents, modes and times of everything below `folder`.
    fn snapshot(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let about = fs::symlink_metadata(&path).unwrap();
            if about.is_dir() {
                all.extend(snapshot(&path));
            }
            let text = fs::read(&path).unwrap_or_default();
            all.insert(path, (text, about.mode(), about.mtime(), about.ctime_nsec()));
        }
        all
    }

    /// A source with `a/f` and `a/sub/g` that are known, and a folder outside.
    struct Moved {
        scratch: Scratch,
        outside: tempfile::TempDir,
        a: InodeId,
        sub: InodeId,
        file: InodeId,
    }

    impl Moved {
        fn new() -> Self {
            let (scratch, outside) = (Scratch::new(), tempfile::tempdir().unwrap());
            fs::create_dir_all(scratch.path("a/sub")).unwrap();
            fs::write(scratch.path("a/f"), b"hello").unwrap();
            fs::write(scratch.path("a/sub/g"), b"deep").unwrap();
            let a = scratch.lookup(InodeId::ROOT, "a").unwrap();
            let (sub, file) = (scratch.lookup(a, "sub").unwrap(), scratch.lookup(a, "f").unwrap());
            scratch.lookup(sub, "g").unwrap();
            Self { scratch, outside, a, sub, file }
        }

        fn there(&self) -> PathBuf {
            self.outside.path().join("a")
        }

        fn move_out(&self) {
            fs::rename(self.scratch.path("a"), self.there()).unwrap();
            fs::write(self.there().join("late"), b"created outside").unwrap();
            fs::write(self.there().join("sub/late"), b"created outside").unwrap();
        }

        /// The result of every operation on the two directories and the file.
        fn everything(&self) -> Vec<(&'static str, Result<()>)> {
            let (scratch, a, sub, file) = (&self.scratch, self.a, self.sub, self.file);
            let (backend, caller) = (&scratch.backend, root_caller());
            let late = Name::new(b"late").unwrap();
            let stranger = Name::new(b"stranger").unwrap();
            let mode = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
            let times = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
            let set = |inode, set| {
                backend.inodes().set_attributes(&caller, FileRef::unopened(inode), set).map(drop)
            };
            let link = |to| backend.creation().unwrap().link(&caller, file, to, stranger).map(drop);
            let replace = RenameMode::Replace;
            vec![
                ("lookup", scratch.lookup(a, "late").map(drop)),
                ("lookup below", scratch.lookup(sub, "late").map(drop)),
                ("attributes", scratch.attributes(a).map(drop)),
                ("attributes below", scratch.attributes(sub).map(drop)),
                ("attributes of a file", scratch.attributes(file).map(drop)),
                ("list", list(scratch, FileRef::unopened(sub)).map(drop)),
                ("open", backend.open_files().open(&caller, file, OpenMode::READ).map(drop)),
                (
                    "open a directory",
                    backend.open_files().open(&caller, sub, OpenMode::READ).map(drop),
                ),
                ("mode", set(file, &mode)),
                ("mode of a directory", set(sub, &mode)),
                ("times", set(a, &times)),
                (
                    "xattr",
                    backend.xattrs().unwrap().set_xattr(
                        &caller,
                        sub,
                        b"user.a",
                        b"x",
                        XattrMode::Any,
                    ),
                ),
                ("create", scratch.make_file(a, "new").map(drop)),
                ("mkdir", scratch.make_directory(sub, "new").map(drop)),
                ("unlink", scratch.unlink(sub, "late")),
                ("rmdir", scratch.remove_directory(a, "sub")),
                ("rename", scratch.rename(a, "late", InodeId::ROOT, "stolen", replace)),
                ("rename into", scratch.rename(InodeId::ROOT, "own", sub, "own", replace)),
                ("link out of it", link(InodeId::ROOT)),
                ("link into it", link(sub)),
                ("read", {
                    let mut text = [0; 8];
                    backend.data().read(FileRef::unopened(file), 0, &mut text).map(drop)
                }),
                ("lookup of one more", backend.names().lookup(&caller, a, late).map(drop)),
            ]
        }
    }

    /// Bug: a directory was moved out of the source while a program's working directory was in it. The kept descriptors
    /// moved with it, and `chmod`, `utime` and `setfattr` changed files created outside afterwards; without the sandbox
    /// also create, unlink and list.
    #[test]
    fn a_directory_that_was_moved_out_is_not_reached_by_descriptors_that_were_kept() {
        let moved = Moved::new();
        fs::write(moved.scratch.path("own"), b"").unwrap();
        let open =
            |inode| moved.scratch.backend.open_files().open(&root_caller(), inode, OpenMode::READ);
        let (sub, file) = (open(moved.sub).unwrap(), open(moved.file).unwrap());
        moved.move_out();
        let before = snapshot(moved.outside.path());
        for round in ["with what was kept", "and when that was given up"] {
            for (what, outcome) in moved.everything() {
                assert!(matches!(outcome, Err(Error::Stale)), "{what}, {round}: {outcome:?}");
            }
            let listed = list(&moved.scratch, FileRef { inode: moved.sub, file: sub });
            assert!(matches!(listed, Err(Error::Stale)), "an open directory, {round}");
        }
        assert_eq!(snapshot(moved.outside.path()), before, "nothing outside was touched");
        assert!(moved.scratch.counter("descriptors_outside") > 0);
        // A reader with an open file can still read it.
        let open = FileRef { inode: moved.file, file };
        assert_eq!(moved.scratch.backend.data().read(open, 0, &mut [0; 8]).unwrap(), 5);
        moved.scratch.backend.open_files().close(open);
        moved.scratch.backend.open_files().close(FileRef { inode: moved.sub, file: sub });
    }

    #[test]
    fn a_directory_that_comes_back_is_served_again() {
        let moved = Moved::new();
        moved.move_out();
        assert!(matches!(moved.scratch.attributes(moved.sub), Err(Error::Stale)));
        fs::create_dir(moved.scratch.path("b")).unwrap();
        fs::rename(moved.there(), moved.scratch.path("b/a")).unwrap();
        assert!(matches!(moved.scratch.attributes(moved.sub), Err(Error::Stale)), "not found yet");
        let b = moved.scratch.lookup(InodeId::ROOT, "b").unwrap();
        assert_eq!(moved.scratch.lookup(b, "a").unwrap(), moved.a);
        for (what, outcome) in moved.everything() {
            assert!(!matches!(outcome, Err(Error::Stale)), "{what}: {outcome:?}");
        }
    }

    #[test]
    fn moves_within_the_source_and_of_the_source_itself_are_followed() {
        let parent = tempfile::tempdir().unwrap();
        let moved = Moved::new();
        let deeper = moved.scratch.path("x/y/z");
        fs::create_dir_all(&deeper).unwrap();
        fs::rename(moved.scratch.path("a"), deeper.join("a")).unwrap();
        assert!(moved.scratch.lookup(moved.sub, "g").is_ok(), "deeper than it was");
        assert_eq!(list(&moved.scratch, FileRef::unopened(moved.a)).unwrap(), 2);
        let source = moved.scratch.path("");
        let away = parent.path().join("renamed (deleted)");
        fs::rename(&source, &away).unwrap();
        fs::rename(away.join("x/y/z/a"), away.join("a")).unwrap();
        assert!(moved.scratch.make_file(moved.sub, "new").is_ok(), "the source has another name");
        fs::create_dir(&source).unwrap();
        fs::rename(away.join("a"), source.join("a")).unwrap();
        let gone = moved.scratch.lookup(moved.sub, "g");
        assert!(matches!(gone, Err(Error::Stale)), "where the source was, it is not: {gone:?}");
    }

    #[test]
    fn what_was_removed_inside_goes_on_for_its_holders() {
        let moved = Moved::new();
        let (scratch, caller) = (&moved.scratch, root_caller());
        let file = scratch.backend.open_files().open(&caller, moved.file, OpenMode::READ).unwrap();
        fs::remove_file(scratch.path("a/f")).unwrap();
        assert_eq!(scratch.attributes(moved.file).unwrap().links, 0);
        scratch.unlink(moved.sub, "g").unwrap();
        scratch.remove_directory(moved.a, "sub").unwrap();
        assert!(scratch.attributes(moved.sub).is_ok());
        moved.move_out_what_is_left();
        assert_eq!(
            scratch.attributes(moved.file).unwrap().size,
            5,
            "no other program can reach it"
        );
        scratch.backend.open_files().close(FileRef { inode: moved.file, file });
    }

    impl Moved {
        fn move_out_what_is_left(&self) {
            fs::rename(self.scratch.path("a"), self.there()).unwrap();
        }
    }

    #[test]
    fn moves_of_a_directory_in_and_out_let_no_operation_begin_outside() {
        let moved = Moved::new();
        let inside = moved.scratch.path("a");
        for round in 0..200 {
            assert!(moved.scratch.make_file(moved.sub, &format!("in-{round}")).is_ok());
            fs::rename(&inside, moved.there()).unwrap();
            let refused = moved.scratch.make_file(moved.sub, &format!("out-{round}"));
            assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
            fs::rename(moved.there(), &inside).unwrap();
        }
        let names = fs::read_dir(inside.join("sub")).unwrap();
        assert_eq!(names.count(), 201);
    }

    #[test]
    fn a_check_costs_one_call_where_nothing_was_moved() {
        let moved = Moved::new();
        for _ in 0..1000 {
            moved.scratch.lookup(moved.sub, "g").unwrap();
            moved.scratch.attributes(moved.a).unwrap();
        }
        assert_eq!(moved.scratch.counter("descriptors_located"), 0, "no text was asked for");
        fs::rename(moved.scratch.path("a/sub"), moved.scratch.path("sub")).unwrap();
        for _ in 0..1000 {
            moved.scratch.attributes(moved.sub).unwrap();
        }
        assert_eq!(moved.scratch.counter("descriptors_located"), 1, "once for each move");
    }

    #[test]
    fn a_directory_below_all_that_paths_can_name_is_reached_by_names() {
        let scratch = Scratch::new();
        let name = "d".repeat(200);
        let mut folder = InodeId::ROOT;
        for _ in 0..30 {
            folder = scratch.make_directory(folder, &name).unwrap();
        }
        let file = scratch.make_file(folder, "f").unwrap();
        assert_eq!(scratch.attributes(file).unwrap().links, 1);
        // Thirty levels up is one call, however long the names are; and without that, names do.
        let node = scratch.host().node(folder).unwrap();
        node.slot.note_levels(0);
        assert_eq!(scratch.attributes(file).unwrap().links, 1);
        assert_eq!(scratch.counter("descriptors_outside"), 1, "6 KiB are too much for a link");
        scratch.unlink(folder, "f").unwrap();
    }

    #[test]
    fn below_is_by_whole_components() {
        let levels = |root: &str, text: &str| levels_below(root.as_bytes(), text.as_bytes());
        assert_eq!(levels("/src", "/src/a"), Some(1));
        assert_eq!(levels("/src", "/src/a/b (deleted)"), Some(2));
        assert_eq!(levels("/", "/a/b"), Some(2));
        for elsewhere in ["/src", "/srcs/a", "/sr", "/outside/src/a", "/", "/src (deleted)/a", ""] {
            assert_eq!(levels("/src", elsewhere), None, "{elsewhere}");
        }
        // The host's text for an object that has left a bind mount.
        assert_eq!(levels("/", "/"), None);
    }
}
