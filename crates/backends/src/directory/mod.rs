//! A directory of the host, served as a file system.
//!
//! # Boundary
//! Translates the seam into system calls relative to descriptors. Caches nothing but descriptors:
//! names, attributes and data are the core's business or the host's. Knows nothing of mounts in
//! front of it.
//!
//! # Rooms
//! * `node`, `table`: objects, their ids, the names they were seen under.
//! * `descriptor`, `reach`: which descriptors stay open, and how an object is reached without one.
//! * `shares`, `given_up`: how many descriptors open files may take, and how they do without one.
//! * `inside`: whether what a kept descriptor denotes is still below the root.
//! * `identity`: acting as the caller.
//! * `names`, `create`, `attributes`, `xattr`, `open`, `data`, `list`: the operations, by family.
//! * `watch`: news of what others change.
//! * `convert`, `host`: the host's words in ours; what all share.
//!
//! # Concurrency
//! Every operation may run on any thread at any time. No lock is held across a system call, with
//! one exception that cannot wait for the disk: credentials are a thread's own and need none.
//!
//! # Security
//! * The root is opened once. Every later step is one name, relative to a descriptor, not followed,
//!   and with `openat2` confined to its directory. What was opened is compared with what was meant.
//!   So neither `..`, nor a symbolic link, nor one swapped in during a race, leads out of the root.
//! * A descriptor that is kept follows its directory wherever others move it: before each operation
//!   it is known to be below the root, or it is given up (`inside`, which says what that costs).
//! * Symbolic links are text. The one link that is followed is `/proc/self/fd/N`, with an `N` of our
//!   own, to open what a descriptor denotes. `/proc` must therefore stay reachable in a sandbox.
//! * Pipes, sockets and devices are never opened.
//! * Under user 0, whatever changes the host or opens a file is done as the caller
//!   ([`ActAs::Caller`]). Looking up, listing, reading and writing what is open is not: permission
//!   to search and the mode of a file must have been checked in front (by a kernel with
//!   `default_permissions`, or by the core).
//! * A file system mounted inside the source is served too. A mount that leads back to this one
//!   must be kept out by whoever mounts, or lookups of it wait for themselves.
//!
//! # Why
//! Names and a bounded set of descriptors instead of a descriptor per object: see `node`. Bad at:
//! hosts that change an object's number or time of birth under its name (some network and stacked
//! file systems); objects then go stale more often than they need to.

mod attributes;
mod convert;
mod create;
mod data;
mod descriptor;
mod given_up;
mod host;
mod identity;
mod inside;
mod list;
mod names;
mod node;
mod open;
mod reach;
mod shares;
mod table;
#[cfg(test)]
mod testing;
mod watch;
mod xattr;

pub use identity::ActAs;

use convert::stat_of;
use host::Host;
use rustix::fs::AtFlags;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use uvfs_vfs::{
    AllocateMode, Attributes, Backend, Caller, Capabilities, ChangeSink, Cookie, Entry, Error,
    FileId, FileRef, InodeId, Listing, Name, NewNode, OpenMode, RenameMode, Result, SeekTarget,
    SetAttributes, SyncMode, Tenant, Totals, XattrMode,
};
use watch::Watches;

/// How a directory is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryConfig {
    /// With whose rights the host is changed. Default: the caller's, where the daemon is user 0.
    pub act_as: ActAs,
    /// Descriptors kept open besides those of open files. Default: a quarter of the process's limit,
    /// at most 4096. Watch the counters `descriptors_cached` and `descriptors_opened`.
    pub descriptors_max: Option<usize>,
}

/// Serves a directory of the host. See the module for what it promises and what it does not.
#[derive(Debug)]
pub struct DirectoryBackend {
    host: Arc<Host>,
    watcher: OnceLock<JoinHandle<()>>,
}

impl DirectoryBackend {
    /// Serves the directory at `path`, which is looked up once, now. Raises this process's soft
    /// limit of open files to its hard limit.
    ///
    /// # Errors
    /// Those of opening `path` as a directory; [`Error::Unsupported`] where `/proc` is not mounted,
    /// or where user 0 lacks the capabilities to act as others and is asked to.
    pub fn open(path: &Path, config: DirectoryConfig) -> Result<Self> {
        Ok(Self { host: Arc::new(Host::open(path, config)?), watcher: OnceLock::new() })
    }
}

impl Drop for DirectoryBackend {
    fn drop(&mut self) {
        let Some(watcher) = self.watcher.take() else { return };
        if let Some(watches) = self.host.watches.get() {
            watches.stop();
        }
        // A sink that held the last reference to us drops us on the watcher's own thread.
        if watcher.thread().id() != std::thread::current().id() && watcher.join().is_err() {
            log::error!("the thread that watched the host had panicked");
        }
    }
}

impl Backend for DirectoryBackend {
    fn capabilities(&self) -> Capabilities {
        self.host.capabilities()
    }

    fn root(&self) -> Result<Entry> {
        let root = self.host.descriptor(&self.host.root)?;
        Ok(self.host.entry(&stat_of(&root)?, None).0)
    }

    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.host.lookup(parent, name)
    }

    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.host.attributes(file)
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.host.list(directory, from, listing)
    }

    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.host.read(file, offset, into)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.host.forget(inode, references);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.host.set_attributes(caller, file, set)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.host.read_link(inode)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        self.host.create(caller, parent, name, new)
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        self.host.create_and_open(caller, parent, name, new, mode)
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        self.host.create_unnamed(caller, parent, new, mode)
    }

    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        self.host.link(caller, inode, parent, name)
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.host.remove(caller, parent, name, AtFlags::empty())
    }

    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.host.remove(caller, parent, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.host.rename(caller, from, to, mode)
    }

    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        self.host.open_file(caller, inode, mode)
    }

    fn close(&self, file: FileRef) {
        self.host.close_file(file);
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.host.write(caller, file, offset, data)
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.host.append(caller, file, data)
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.host.allocate(file, mode, offset, length)
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.host.seek(file, offset, target)
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.host.copy_range(from, from_offset, to, to_offset, length)
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        self.host.sync(file, mode)
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        self.host.flush(file)
    }

    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.host.get_xattr(caller, inode, name)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.host.set_xattr(caller, inode, name, value, mode)
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.host.list_xattrs(caller, inode)
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        self.host.possible_xattrs(inode)
    }

    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        self.host.remove_xattr(caller, inode, name)
    }

    fn totals(&self) -> Result<Totals> {
        self.host.totals()
    }

    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        self.host.host_file(file)
    }

    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        let watches = Watches::new(changes)?;
        // A second listener would have to share what the first was told.
        self.host.watches.set(watches).map_err(|_| Error::Busy)?;
        let host = self.host.clone();
        let run = move || {
            if let Some(watches) = host.watches.get() {
                watches.run(&host);
            }
        };
        let thread = std::thread::Builder::new().name("uvfs-host-news".into()).spawn(run)?;
        // Nobody else sets it: only the first listener gets here.
        let _ = self.watcher.set(thread);
        Ok(())
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        Some(self.host.clone())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.host.counter_values()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{Scratch, root_caller};
    use super::*;
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::time::{Duration, Instant};
    use uvfs_vfs::{FileKind, NewKind};

    /// One round of a client that does everything it can below `d`, under names of its own, and checks
    /// what it reads. What fails does so because of the race. Returns how many steps succeeded.
    fn use_everything_below(scratch: &Scratch, client: usize, round: usize) -> Result<usize> {
        let [new, newer, folder_name, pipe, hard] =
            ["new", "newer", "folder", "pipe", "hard"].map(|name| format!("{name}-{client}"));
        let folder = scratch.lookup(InodeId::ROOT, "d")?;
        // Every reference is given back: what is removed while referenced holds a descriptor.
        let forget = |inode| scratch.backend.forget(inode, 1);
        let mut steps = vec![
            scratch.make_file(folder, &new).map(forget).is_ok(),
            scratch.make_directory(folder, &folder_name).map(forget).is_ok(),
            scratch.make(folder, &pipe, NewKind::Fifo).map(forget).is_ok(),
            scratch.rename(folder, &new, folder, &newer, RenameMode::Replace).is_ok(),
        ];
        if round.is_multiple_of(3) {
            scratch.close_descriptors();
        }
        if let Ok(secret) = scratch.lookup(folder, "secret") {
            let unopened = FileRef::unopened(secret);
            let set = SetAttributes { mode: Some(0o700), size: Some(6), ..Default::default() };
            let name = Name::new(hard.as_bytes())?;
            let (backend, caller) = (&scratch.backend, root_caller());
            steps.push(backend.set_attributes(&caller, unopened, &set).is_ok());
            steps.push(backend.set_xattr(&caller, secret, b"user.x", b"x", XattrMode::Any).is_ok());
            let linked = backend.link(&caller, secret, folder, name);
            steps.push(linked.map(|entry| forget(entry.inode)).is_ok());
            if let Ok(file) = backend.open(&caller, secret, OpenMode::READ_WRITE) {
                let open = FileRef { inode: secret, file };
                let mut text = [0; 64];
                let count = backend.read(open, 0, &mut text)?;
                assert_eq!(&text[..count], b"inside", "nothing outside is ever read");
                steps.push(backend.write(&caller, open, 0, b"inside").is_ok());
                backend.close(open);
            }
            forget(secret);
        }
        for name in [&newer, &pipe, &hard] {
            steps.push(scratch.unlink(folder, name).is_ok());
        }
        steps.push(scratch.remove_directory(folder, &folder_name).is_ok());
        forget(folder);
        Ok(steps.into_iter().filter(|done| *done).count())
    }

    #[test]
    fn a_directory_swapped_for_a_symlink_never_leads_out() {
        let scratch = Scratch::new();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), b"OUTSIDE").unwrap();
        fs::set_permissions(
            outside.path().join("secret"),
            std::os::unix::fs::PermissionsExt::from_mode(0o604),
        )
        .unwrap();
        fs::create_dir(scratch.path("d")).unwrap();
        fs::write(scratch.path("d/secret"), b"inside").unwrap();
        symlink(outside.path(), scratch.path("trap")).unwrap();
        let before = snapshot(outside.path());

        let (stop, steps) = (AtomicBool::new(false), std::sync::atomic::AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (d, trap) = (scratch.path("d"), scratch.path("trap"));
                while !stop.load(Relaxed) {
                    renameat_with(CWD, &d, CWD, &trap, RenameFlags::EXCHANGE).unwrap();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
            let clients: Vec<_> = (0..2)
                .map(|client| {
                    let (scratch, steps) = (&scratch, &steps);
                    scope.spawn(move || {
                        let limit = Instant::now() + Duration::from_millis(1200);
                        for round in 0.. {
                            let done = use_everything_below(scratch, client, round).unwrap_or(0);
                            steps.fetch_add(done, Relaxed);
                            if Instant::now() > limit {
                                break;
                            }
                        }
                    })
                })
                .collect();
            let outcomes: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            stop.store(true, Relaxed);
            outcomes.into_iter().for_each(|outcome| outcome.unwrap());
        });
        assert_eq!(snapshot(outside.path()), before, "nothing outside was touched");
        assert!(steps.load(Relaxed) > 100, "the clients got somewhere");
    }

    /// Names, contents, modes and link counts of everything in `folder`.
    fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>, u32, u64)> {
        use std::os::unix::fs::MetadataExt;
        let mut all: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let about = entry.metadata().unwrap();
                let text = fs::read(entry.path()).unwrap();
                let name = entry.file_name().into_string().unwrap();
                (name, text, about.mode(), about.nlink())
            })
            .collect();
        all.sort();
        all
    }

    #[test]
    fn links_and_dots_are_not_ways_out() {
        let scratch = Scratch::new();
        for (name, text) in [("up", "../.."), ("root", "/"), ("proc", "/proc/self/root")] {
            symlink(text, scratch.path(name)).unwrap();
            let link = scratch.lookup(InodeId::ROOT, name).unwrap();
            assert_eq!(scratch.attributes(link).unwrap().kind, FileKind::Symlink);
            assert!(matches!(scratch.lookup(link, "etc"), Err(Error::NotDirectory)));
            assert!(matches!(scratch.make_file(link, "x"), Err(Error::NotDirectory)));
            assert_eq!(scratch.backend.read_link(link).unwrap(), text.as_bytes());
        }
        assert!(matches!(Name::new(b".."), Err(Error::Invalid(_))));
    }

    #[test]
    fn a_source_that_is_missing_or_no_directory_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        fs::write(&file, b"").unwrap();
        let open = |path: &Path| DirectoryBackend::open(path, DirectoryConfig::default());
        assert!(matches!(open(&file), Err(Error::NotDirectory)));
        assert!(matches!(open(&folder.path().join("none")), Err(Error::NotFound)));
        let capabilities = open(folder.path()).unwrap().capabilities();
        assert_eq!((capabilities.store, capabilities.read_only), ("directory", false));
    }

    #[test]
    fn the_source_may_be_renamed_or_removed_while_it_is_served() {
        let parent = tempfile::tempdir().unwrap();
        let [before, after] = ["before", "after"].map(|name| parent.path().join(name));
        fs::create_dir(&before).unwrap();
        let backend = DirectoryBackend::open(&before, DirectoryConfig::default()).unwrap();
        fs::rename(&before, &after).unwrap();
        fs::write(after.join("f"), b"x").unwrap();
        let name = Name::new(b"f").unwrap();
        let entry = backend.lookup(&root_caller(), InodeId::ROOT, name).unwrap();
        assert_eq!(entry.attributes.size, 1);
        fs::remove_dir_all(&after).unwrap();
        assert!(matches!(
            backend.lookup(&root_caller(), InodeId::ROOT, name),
            Err(Error::NotFound)
        ));
        assert!(backend.root().is_ok());
    }
}
