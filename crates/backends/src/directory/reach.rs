//! Reaches an object of the host: by an open descriptor, or by its known names from the nearest
//! ancestor that has one.
//!
//! # Boundary
//! Every step from a directory to an entry of it happens here or in [`super::names`], and always by
//! one name relative to a descriptor. A path of several components is never built.
//!
//! # Concurrency
//! No lock is held while the host is asked. If our own rename overtakes a walk, the version of the
//! list of names changes: the walk then tries the new list.
//!
//! # Why
//! `openat2` with `RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_MAGICLINKS`: no step
//! leaves its directory, even if the name now denotes another object. The opened object is compared
//! with the wanted one before its use, so a swap returns [`Error::Stale`], never another file.
//! Weakness: very deep trees whose ancestors have all lost their descriptors cost two system calls
//! a level.

use super::convert::{HostStat, host_error, stat_at, stat_of};
use super::host::Host;
use super::node::{HostNode, KnownName};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::path::DecInt;
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_vfs::{Error, FileKind, InodeId, Result};

/// Most directories between the root and an object before the walk gives up: a deeper chain is most
/// likely a loop of contradictory news.
const DEPTH_MAX: usize = 100_000;
/// Most changes of one object's names that a walk follows.
const RENAMES_MAX: usize = 1000;

/// `O_PATH`: a descriptor that only denotes.
const DENOTE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// One object on the way, and which of its names is tried.
struct Step {
    node: Arc<HostNode>,
    version: u64,
    names: Vec<KnownName>,
    next: usize,
}

impl Step {
    fn to(node: Arc<HostNode>) -> Self {
        let (version, names) = node.names();
        Self { node, version, names, next: 0 }
    }

    /// Takes up a list of names that changed since; false if it is the same list.
    fn refresh(&mut self) -> bool {
        let (version, names) = self.node.names();
        let changed = version != self.version;
        *self = Self { node: self.node.clone(), version, names, next: 0 };
        changed
    }
}

impl Host {
    /// The node of `id`. [`Error::Stale`] if the core should not know it any more.
    pub(super) fn node(&self, id: InodeId) -> Result<Arc<HostNode>> {
        self.nodes.get(id).ok_or_else(|| self.stale())
    }

    /// A descriptor that denotes `node`. [`Error::Stale`] if it is not where it was seen.
    pub(super) fn descriptor(&self, node: &Arc<HostNode>) -> Result<Arc<OwnedFd>> {
        if let Some(open) = self.kept(node) {
            return Ok(open);
        }
        match self.walk_to(node) {
            Err(Error::Stale) => self.descriptor_of_open_file(node).ok_or_else(|| self.stale()),
            other => other,
        }
    }

    /// The state of `node` now, without opening it where that can be spared.
    pub(super) fn stat_node(&self, node: &Arc<HostNode>) -> Result<HostStat> {
        if let Some(open) = self.kept(node) {
            let stat = stat_of(&open)?;
            if stat.attributes.links > 0 || node.slot.is_pinned() || self.files.has(node.id) {
                return Ok(stat);
            }
            // Removed behind our back; our descriptor must not keep it alive on the host.
            node.slot.close_unless_pinned();
            return Err(self.stale());
        }
        let (_, names) = node.names();
        for KnownName { parent, name } in names {
            let directory = match self.descriptor(&parent) {
                Ok(directory) => directory,
                Err(Error::Stale) => continue,
                Err(other) => return Err(other),
            };
            match stat_at(directory.as_fd(), &name) {
                Ok(stat) if node.is(&stat) => return Ok(stat),
                Ok(_) | Err(Error::NotFound | Error::Stale) => {}
                Err(other) => return Err(other),
            }
        }
        // Not there: renamed a moment ago, or only open. The long way knows both.
        stat_of(self.descriptor(node)?)
    }

    /// Opens the object of `open` again, with other flags: through `/proc/self/fd`, the only link
    /// that is followed. The caller must have checked the kind of the object: opening a pipe or a
    /// device has effects.
    pub(super) fn reopen(&self, open: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
        let number = DecInt::from_fd(open);
        self.with_room(|| {
            rustix::io::retry_on_intr(|| {
                rustix::fs::openat(
                    &self.proc_fds,
                    number.as_c_str(),
                    flags | OFlags::CLOEXEC,
                    Mode::empty(),
                )
            })
        })
        .map_err(host_error)
    }

    /// Opens `name` of `directory`, which never leads out of it.
    pub(super) fn open_beneath(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
        mode: Mode,
    ) -> std::result::Result<OwnedFd, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // ORDERING: Relaxed; the flag is true whenever it is read.
        if self.lacks_openat2.load(Relaxed) {
            return self.with_room(|| rustix::fs::openat(directory, name, flags, mode));
        }
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match self.with_room(|| rustix::fs::openat2(directory, name, flags, mode, resolve)) {
            // Before Linux 5.6, or forbidden here: one name that is not followed stays inside, too.
            Err(Errno::NOSYS) => {
                // ORDERING: Relaxed; see above.
                self.lacks_openat2.store(true, Relaxed);
                self.with_room(|| rustix::fs::openat(directory, name, flags, mode))
            }
            other => other,
        }
    }

    /// Makes a call that needs a descriptor; when there is none left, closes some and tries again.
    fn with_room<T>(
        &self,
        mut call: impl FnMut() -> std::result::Result<T, Errno>,
    ) -> std::result::Result<T, Errno> {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.counters.shrinks.hit();
                self.descriptors.shrink();
                call()
            }
            other => other,
        }
    }

    /// An error for an object that is not where it was, counted.
    pub(super) fn stale(&self) -> Error {
        self.counters.stale.hit();
        Error::Stale
    }

    /// Climbs from `node` to an ancestor with a descriptor, and opens each directory down again.
    fn walk_to(&self, node: &Arc<HostNode>) -> Result<Arc<OwnedFd>> {
        let mut way = vec![Step::to(node.clone())];
        // The descriptor of the finished step above.
        let mut above: Option<Arc<OwnedFd>> = None;
        let mut renames = 0;
        loop {
            let depth = way.len();
            let Some(step) = way.last_mut() else { return Err(Error::Stale) };
            let Some(known) = step.names.get(step.next) else {
                renames += 1;
                if !step.refresh() || renames > RENAMES_MAX {
                    way.pop();
                    way.last_mut().into_iter().for_each(|below| below.next += 1);
                }
                continue;
            };
            let Some(directory) = above.take().or_else(|| self.kept(&known.parent)) else {
                if depth > DEPTH_MAX {
                    return Err(Error::Stale);
                }
                let parent = known.parent.clone();
                way.push(Step::to(parent));
                continue;
            };
            match self.open_node(directory.as_fd(), &known.name, &step.node)? {
                None => step.next += 1,
                Some(open) => {
                    // Only directories stay open: an open file that is deleted on the host would
                    // keep its space there until it is used again.
                    let open = match step.node.kind {
                        FileKind::Directory => {
                            step.node.slot.note_levels(known.parent.levels_below());
                            self.descriptors.store(&step.node.slot, open)
                        }
                        _ => Arc::new(open),
                    };
                    way.pop();
                    if way.is_empty() {
                        return Ok(open);
                    }
                    above = Some(open);
                }
            }
        }
    }

    /// Opens `name` of `directory` if it is `node`.
    fn open_node(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        node: &HostNode,
    ) -> Result<Option<OwnedFd>> {
        self.counters.descriptors_opened.hit();
        match self.open_beneath(directory, name, DENOTE, Mode::empty()) {
            Ok(open) => Ok(node.is(&stat_of(&open)?).then_some(open)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::STALE) => {
                Ok(None)
            }
            Err(errno) => Err(host_error(errno)),
        }
    }

    /// A descriptor for an object that has no name left but is open.
    fn descriptor_of_open_file(&self, node: &Arc<HostNode>) -> Option<Arc<OwnedFd>> {
        let open = self.files.any_of(node.id)?;
        let denoting = Arc::new(self.reopen(&open, OFlags::PATH).ok()?);
        if !self.is_inside(node, &denoting) {
            return None;
        }
        node.slot.pin(denoting.clone());
        self.counters.pins.hit();
        Some(denoting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, in_process_with, root_caller};
    use crate::directory::{ActAs, DirectoryConfig};
    use std::fs;
    use uvfs_vfs::{Backend, FileRef, OpenMode, RenameMode};

    fn few_descriptors(count: usize) -> DirectoryConfig {
        DirectoryConfig { act_as: ActAs::Daemon, descriptors_max: Some(count) }
    }

    #[test]
    fn a_tree_far_larger_than_the_descriptor_limit_is_walked() {
        let scratch = Scratch::with(few_descriptors(32));
        for folder in 0..50 {
            let folder = scratch.path(&format!("d{folder}"));
            fs::create_dir(&folder).unwrap();
            (0..100).for_each(|file| fs::write(folder.join(format!("f{file}")), b"x").unwrap());
        }
        let mut files = Vec::new();
        for folder in 0..50 {
            let folder = scratch.lookup(InodeId::ROOT, &format!("d{folder}")).unwrap();
            for file in 0..100 {
                files.push(scratch.lookup(folder, &format!("f{file}")).unwrap());
            }
        }
        for &file in &files {
            assert_eq!(
                scratch.backend.inodes().attributes(FileRef::unopened(file)).unwrap().size,
                1
            );
            let open =
                scratch.backend.open_files().open(&root_caller(), file, OpenMode::READ).unwrap();
            let file = FileRef { inode: file, file: open };
            assert_eq!(scratch.backend.data().read(file, 0, &mut [0; 8]).unwrap(), 1);
            scratch.backend.open_files().close(file);
        }
        assert!(scratch.counter("descriptors_cached") <= 33);
        assert!(scratch.counter("nodes") >= 5_000);
    }

    #[test]
    fn an_object_two_thousand_directories_deep_is_reached_with_few_descriptors() {
        let scratch = Scratch::with(few_descriptors(16));
        let mut folder = InodeId::ROOT;
        for _ in 0..2000 {
            folder = scratch.make_directory(folder, "d").unwrap();
        }
        let file = scratch.make_file(folder, "f").unwrap();
        assert_eq!(scratch.attributes(file).unwrap().links, 1);
        let open = scratch.backend.open_files().open(&root_caller(), file, OpenMode::READ).unwrap();
        scratch.backend.open_files().close(FileRef { inode: file, file: open });
        // The standard library removes by descriptor too, but recursively; spare it the depth.
        scratch.unlink(folder, "f").unwrap();
    }

    #[test]
    fn what_was_renamed_behind_our_back_is_stale_until_it_is_looked_up_again() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("d")).unwrap();
        fs::write(scratch.path("d/f"), b"x").unwrap();
        let folder = scratch.lookup(InodeId::ROOT, "d").unwrap();
        let file = scratch.lookup(folder, "f").unwrap();
        fs::rename(scratch.path("d/f"), scratch.path("d/g")).unwrap();
        assert!(matches!(scratch.attributes(file), Err(Error::Stale)));
        assert_eq!(scratch.lookup(folder, "g").unwrap(), file);
        assert_eq!(scratch.attributes(file).unwrap().size, 1);

        fs::rename(scratch.path("d"), scratch.path("e")).unwrap();
        scratch.close_descriptors();
        assert!(matches!(scratch.attributes(file), Err(Error::Stale)));
        assert_eq!(scratch.lookup(InodeId::ROOT, "e").unwrap(), folder);
        assert_eq!(scratch.attributes(file).unwrap().size, 1);
        assert!(scratch.counter("stale") >= 2);
    }

    #[test]
    fn a_replaced_file_is_never_taken_for_the_old_one() {
        let scratch = Scratch::new();
        for round in 0..20 {
            fs::write(scratch.path("f"), b"old").unwrap();
            let old = scratch.lookup(InodeId::ROOT, "f").unwrap();
            // The host likely reuses the freed number for the next file.
            fs::remove_file(scratch.path("f")).unwrap();
            fs::write(scratch.path("f"), b"newer").unwrap();
            assert!(matches!(scratch.attributes(old), Err(Error::Stale)), "round {round}");
            let new = scratch.lookup(InodeId::ROOT, "f").unwrap();
            assert_ne!(old, new);
            assert_eq!(scratch.attributes(new).unwrap().size, 5);
            assert!(matches!(scratch.attributes(old), Err(Error::Stale)));
            fs::remove_file(scratch.path("f")).unwrap();
        }
    }

    #[test]
    fn a_file_removed_behind_our_back_stays_usable_while_it_is_open() {
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"still here").unwrap();
        let inode = scratch.lookup(InodeId::ROOT, "f").unwrap();
        let file =
            scratch.backend.open_files().open(&root_caller(), inode, OpenMode::READ).unwrap();
        fs::remove_file(scratch.path("f")).unwrap();
        scratch.close_descriptors();
        let open = FileRef { inode, file };
        assert_eq!(scratch.backend.inodes().attributes(open).unwrap().links, 0);
        assert_eq!(scratch.attributes(inode).unwrap().size, 10, "through no handle, too");
        assert_eq!(scratch.backend.data().read(open, 0, &mut [0; 64]).unwrap(), 10);
        scratch.backend.open_files().close(open);
    }

    #[test]
    fn a_walk_meets_renames_of_our_own_without_going_stale() {
        let scratch = Scratch::with(few_descriptors(1));
        let [a, b] = ["a", "b"].map(|name| scratch.make_directory(InodeId::ROOT, name).unwrap());
        let moved = scratch.make_directory(a, "moved").unwrap();
        let file = scratch.make_file(moved, "f").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..2000 {
                    let (from, to) = if round % 2 == 0 { (a, b) } else { (b, a) };
                    scratch.rename(from, "moved", to, "moved", RenameMode::Replace).unwrap();
                }
                stop.store(true, Relaxed);
            });
            while !stop.load(Relaxed) {
                scratch.close_descriptors();
                scratch.attributes(file).unwrap();
            }
        });
    }

    /// The body of the next test, in a separate process: its limit applies to all threads.
    fn with_a_hundred_descriptors_in_all() {
        let scratch = Scratch::with(few_descriptors(4096));
        for round in 0..500 {
            let folder = scratch.make_directory(InodeId::ROOT, &format!("d{round}")).unwrap();
            let file = scratch.make_file(folder, "f").unwrap();
            let open =
                scratch.backend.open_files().open(&root_caller(), file, OpenMode::READ).unwrap();
            scratch.backend.open_files().close(FileRef { inode: file, file: open });
        }
        assert!(scratch.counter("descriptor_shortages") > 0);
    }

    #[test]
    fn when_the_host_has_no_descriptor_left_cached_ones_are_closed() {
        let name = concat!(
            "directory::reach::tests::",
            "when_the_host_has_no_descriptor_left_cached_ones_are_closed"
        );
        in_process_with(100, name, with_a_hundred_descriptors_in_all);
    }
}
