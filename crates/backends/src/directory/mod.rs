//! A directory of the host, served as a file system.
//!
//! Translates the seam into system calls relative to descriptors, and caches only descriptors. No
//! lock is held across a system call, and every operation may run on any thread.
//!
//! # Security
//! * The root is opened once. Every later step is one name, relative to a descriptor, not followed,
//!   and with `openat2` confined to its directory. The opened object is compared with the wanted
//!   one. So neither `..`, nor a symbolic link, nor one swapped in during a race, leads out of the
//!   root.
//! * Others may move the directory of a kept descriptor: before each operation it is checked to be
//!   below the root (`inside`).
//! * Symbolic links are text. The only followed link is `/proc/self/fd/N`, with an `N` of our own.
//!   So `/proc` must stay reachable in a sandbox. Pipes, sockets and devices are never opened.
//! * Under user 0, operations that change the host or open a file run as the caller
//!   ([`ActAs::Caller`]). The other ones do not: the frontend (a kernel with `default_permissions`)
//!   or the core must have checked search permission and the mode of the file.
//! * A file system mounted inside the source is served, too. The program that mounts must exclude a
//!   mount that leads back to this one, or lookups of it wait for themselves.
//!
//! # Why
//! Names and a bounded set of descriptors instead of a descriptor per object: see `node`. Weakness:
//! if a host changes an object's number or time of birth under its name (some network and stacked
//! file systems), objects become stale more often than they need to.

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
pub use watch::reports_all_changes;

use convert::stat_of;
use host::Host;
use node::KnownName;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use uvfs_vfs::{
    Backend, Capabilities, ChangeSink, Creation, Data, Entry, Error, FileKind, InodeId, Inodes,
    Names, OpenFiles, Reservation, Result, Tenant, Totals, Watch, Xattrs,
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

/// Serves a directory of the host. The module has its guarantees and limits.
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

    fn names(&self) -> &dyn Names {
        &*self.host
    }

    fn creation(&self) -> Option<&dyn Creation> {
        Some(&*self.host)
    }

    fn inodes(&self) -> &dyn Inodes {
        &*self.host
    }

    fn data(&self) -> &dyn Data {
        &*self.host
    }

    fn reservation(&self) -> Option<&dyn Reservation> {
        Some(&*self.host)
    }

    fn open_files(&self) -> &dyn OpenFiles {
        &*self.host
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.host.xattrs.then_some(&*self.host)
    }

    fn watching(&self) -> Option<&dyn Watch> {
        Some(self)
    }

    fn totals(&self) -> Result<Totals> {
        self.host.totals()
    }

    fn sync_fs(&self) -> Result<()> {
        self.host.sync_fs()
    }

    /// Does nothing: written data is in the host's caches, which outlive this process.
    fn end(&self) -> Result<()> {
        Ok(())
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        Some(self.host.clone())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.host.counter_values()
    }
}

impl Watch for DirectoryBackend {
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        let watches = Watches::new(changes)?;
        // A second sink would have to share the first one's record of reported state.
        self.host.watches.set(watches).map_err(|_| Error::Busy)?;
        let host = self.host.clone();
        let run = move || {
            if let Some(watches) = host.watches.get() {
                watches.run(&host);
            }
        };
        let thread = std::thread::Builder::new().name("uvfs-host-news".into()).spawn(run)?;
        // Only the first call gets here, so it is not set yet.
        let _ = self.watcher.set(thread);
        Ok(())
    }

    fn reports_names(&self, directory: InodeId) -> bool {
        self.host.directory(directory).is_ok_and(|(node, _)| node.reports())
    }

    fn reports_attributes(&self, inode: InodeId) -> bool {
        let Ok(node) = self.host.node(inode) else { return false };
        let is_reported = |known: &KnownName| {
            // An object that left the directory is not recorded there any more.
            let child = known.parent.child(&known.name);
            known.parent.reports() && child.is_some_and(|child| child.inode == node.id)
        };
        node.kind != FileKind::Directory && node.names().1.iter().any(is_reported)
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
    use uvfs_vfs::{FileRef, Name, NewKind, OpenMode, RenameMode, SetAttributes, XattrMode};

    /// One round of a client that performs all operations below `d`, under its own names, and
    /// checks the data that it reads. Failures are caused by the race. Returns the number of
    /// successful steps.
    fn use_everything_below(scratch: &Scratch, client: usize, round: usize) -> Result<usize> {
        let [new, newer, folder_name, pipe, hard] =
            ["new", "newer", "folder", "pipe", "hard"].map(|name| format!("{name}-{client}"));
        let folder = scratch.lookup(InodeId::ROOT, "d")?;
        // Every reference is returned: an object removed while referenced holds a descriptor.
        let forget = |inode| scratch.backend.inodes().forget(inode, 1);
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
            steps.push(backend.inodes().set_attributes(&caller, unopened, &set).is_ok());
            steps.push(
                backend
                    .xattrs()
                    .unwrap()
                    .set_xattr(&caller, secret, b"user.x", b"x", XattrMode::Any)
                    .is_ok(),
            );
            let linked = backend.creation().unwrap().link(&caller, secret, folder, name);
            steps.push(linked.map(|entry| forget(entry.inode)).is_ok());
            if let Ok(file) = backend.open_files().open(&caller, secret, OpenMode::READ_WRITE) {
                let open = FileRef { inode: secret, file };
                let mut text = [0; 64];
                let count = backend.data().read(open, 0, &mut text)?;
                assert_eq!(&text[..count], b"inside", "nothing outside is ever read");
                steps.push(backend.data().write(&caller, open, 0, b"inside").is_ok());
                backend.open_files().close(open);
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
            assert_eq!(scratch.backend.inodes().read_link(link).unwrap(), text.as_bytes());
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
        let entry = backend.names().lookup(&root_caller(), InodeId::ROOT, name).unwrap();
        assert_eq!(entry.attributes.size, 1);
        fs::remove_dir_all(&after).unwrap();
        assert!(matches!(
            backend.names().lookup(&root_caller(), InodeId::ROOT, name),
            Err(Error::NotFound)
        ));
        assert!(backend.root().is_ok());
    }
}
