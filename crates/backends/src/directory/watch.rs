//! News from the host: others' changes are reported as they happen.
//!
//! # Boundary
//! One inotify instance, watches on directories in which the core has looked a name up, and one
//! thread that turns events into calls of the [`ChangeSink`]. The core acts on the news; lifetimes
//! of attributes run out regardless.
//!
//! # Concurrency
//! Events show *where* a change happened. The thread compares the current state with the state last
//! reported to the core: a name with its recorded object, an object with its times and size. So our
//! own changes, which the core knows, are not reported, nor are repeats. While our own change is in
//! progress its events cannot be told from another's: such news waits a moment. No lock is held
//! during calls of the host or of the sink.
//!
//! # Why
//! inotify rather than fanotify: it needs no privilege, and its watches grow with use. There may be
//! too many reports, never too few, with one exception: a change by others between our own change
//! to the same object and our `stat` right after it counts as ours. Weakness: the host bounds
//! watches per user. Further directories are not watched (counted, and logged once), and their
//! cached entries only expire. Writes of the kernel past this backend (passthrough) look like
//! another program's.

use super::convert::{host_error, stat_at, stat_of};
use super::host::Host;
use super::node::HostNode;
use super::xattr::ProcPath;
use crate::lock_order::HOST_WATCHES;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{ChangeSink, Error, InodeId, Name, Result};

/// How long news waits at most for changes of our own to be over.
const PATIENCE: Duration = Duration::from_millis(300);
/// How often it is looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(2);
const EVENT_BYTES: usize = 64 << 10;

/// The watches, and the sink.
pub(super) struct Watches {
    inotify: OwnedFd,
    wake: OwnedFd,
    sink: Arc<dyn ChangeSink>,
    index: Mutex<Index>,
    warned: AtomicBool,
}

#[derive(Debug, Default)]
struct Index {
    by_watch: HashMap<i32, Weak<HostNode>>,
    by_node: HashMap<InodeId, i32>,
}

/// Something happened in, or to, a directory.
struct News {
    directory: Arc<HostNode>,
    name: Option<Box<[u8]>>,
    what: What,
    since: Instant,
}

impl News {
    /// Whether it may be looked at again before it is reported.
    fn may_wait(&self) -> bool {
        self.since.elapsed() < PATIENCE
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    /// A name appeared or vanished.
    Entry,
    /// Data or attributes changed: of the named entry, or of the directory itself.
    Content,
}

enum Verdict {
    Known,
    OurOwnPerhaps,
    Changed,
}

impl fmt::Debug for Watches {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Watches").field("count", &self.len()).finish_non_exhaustive()
    }
}

impl Watches {
    pub(super) fn new(sink: Arc<dyn ChangeSink>) -> Result<Self> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
                .map_err(host_error)?,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(host_error)?,
            sink,
            index: Mutex::new(&HOST_WATCHES, Index::default()),
            warned: AtomicBool::new(false),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.index.lock().by_watch.len()
    }

    /// Watches `directory`, on which `open` is open, unless that was tried before. To be called
    /// before the directory is read, so that no change after that is missed.
    pub(super) fn add(&self, host: &Host, directory: &Arc<HostNode>, open: &OwnedFd) {
        if !directory.claim_watch() {
            return;
        }
        directory.record_children();
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR;
        match inotify::add_watch(&self.inotify, ProcPath::of(open).bytes(), flags) {
            Ok(watch) => {
                let mut index = self.index.lock();
                index.by_watch.insert(watch, Arc::downgrade(directory));
                index.by_node.insert(directory.id, watch);
            }
            Err(errno) => self.refused(host, errno),
        }
    }

    /// Stops watching a directory that the core has forgotten.
    pub(super) fn remove(&self, directory: &HostNode) {
        if !directory.release_watch() {
            return;
        }
        let watch = {
            let mut index = self.index.lock();
            let watch = index.by_node.remove(&directory.id);
            watch.inspect(|watch| drop(index.by_watch.remove(watch)))
        };
        if let Some(watch) = watch {
            // Fails if the directory is gone, and its watch with it.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Ends [`Watches::run`].
    pub(super) fn stop(&self) {
        // Cannot fail: the counter is far from full.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Reports changes until stopped.
    pub(super) fn run(&self, host: &Host) {
        let mut space: Vec<u8> = Vec::with_capacity(EVENT_BYTES);
        let mut waiting: Vec<News> = Vec::new();
        let mut next_look = Instant::now();
        while self.sleep((!waiting.is_empty()).then_some(next_look)) {
            let mut fresh = Vec::new();
            let mut reader = Reader::new(&self.inotify, space.spare_capacity_mut());
            while let Ok(event) = reader.next() {
                let name = event.file_name().map(|name| name.to_bytes());
                fresh.extend(self.news(host, event.wd(), event.events(), name));
            }
            if Instant::now() >= next_look {
                fresh.splice(0..0, waiting.drain(..));
                next_look = Instant::now() + PAUSE;
            }
            waiting.extend(fresh.into_iter().filter_map(|news| self.consider(host, news)));
        }
    }

    /// Waits for events, or until `limit`; false when it is time to end.
    fn sleep(&self, limit: Option<Instant>) -> bool {
        let limit = limit.map(|limit| {
            let rest = limit.saturating_duration_since(Instant::now());
            Timespec { tv_sec: 0, tv_nsec: rest.subsec_nanos().into() }
        });
        let mut ready =
            [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&self.inotify, PollFlags::IN)];
        match poll(&mut ready, limit.as_ref()) {
            Ok(_) => ready[0].revents().is_empty(),
            Err(Errno::INTR) => true,
            Err(errno) => {
                log::error!(
                    "cannot read the changes of the host directory: {errno}; no longer watching"
                );
                self.sink.everything_changed();
                false
            }
        }
    }

    fn news(
        &self,
        host: &Host,
        watch: i32,
        events: ReadFlags,
        name: Option<&[u8]>,
    ) -> Option<News> {
        if events.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
            host.counters.changes_overflowed.hit();
            self.sink.everything_changed();
        }
        if events.contains(ReadFlags::IGNORED) {
            self.ended(watch);
            return None;
        }
        let directory = self.index.lock().by_watch.get(&watch).cloned()?;
        let Some(directory) = directory.upgrade() else {
            self.ended(watch);
            let _ = inotify::remove_watch(&self.inotify, watch);
            return None;
        };
        let entry =
            ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let what = if events.intersects(entry) { What::Entry } else { What::Content };
        Some(News { directory, name: name.map(Box::from), what, since: Instant::now() })
    }

    /// Reports `news`, or finds no change, or returns it to be examined again.
    fn consider(&self, host: &Host, news: News) -> Option<News> {
        let verdict = match (news.what, news.name.as_deref()) {
            (What::Entry, Some(name)) => self.judge_entry(host, &news, name),
            _ => self.judge_content(host, &news),
        };
        match verdict {
            Verdict::OurOwnPerhaps => return Some(news),
            Verdict::Known => {}
            Verdict::Changed => host.counters.changes_reported.hit(),
        }
        None
    }

    /// Compares the object under a name with the core's possible entry.
    fn judge_entry(&self, host: &Host, news: &News, name: &[u8]) -> Verdict {
        let directory = &news.directory;
        let before = directory.own_changes();
        let now = host.descriptor(directory).and_then(|open| stat_at(open.as_fd(), name));
        let there = now.as_ref().ok().and_then(|stat| host.nodes.find(stat));
        let told = directory.child(name);
        let same = match (told, &now) {
            (None, Err(Error::NotFound)) => true,
            (Some(told), Ok(_)) => there.is_some_and(|there| there.id == told),
            _ => false,
        };
        if same {
            return Verdict::Known;
        }
        if directory.changed_since(before) && news.may_wait() {
            return Verdict::OurOwnPerhaps;
        }
        directory.forget_child(name);
        if let Ok(name) = Name::new(name) {
            self.sink.entry_changed(directory.id, name);
        }
        self.sink.inode_changed(directory.id);
        if let Some(child) = told.and_then(|told| host.nodes.get(told)) {
            // If it was removed, its descriptor must not keep it alive on the host.
            if !host.files.has(child.id) {
                child.slot.close_unless_pinned();
            }
            self.sink.inode_changed(child.id);
        }
        Verdict::Changed
    }

    /// Compares an object with the attributes that the core last got.
    fn judge_content(&self, host: &Host, news: &News) -> Verdict {
        let look = || {
            let directory = host.descriptor(&news.directory)?;
            match &news.name {
                Some(name) => stat_at(directory.as_fd(), name),
                None => stat_of(&directory),
            }
        };
        // If it does not exist, news of that will follow; if it is not known, the core needs no
        // news.
        let Ok(stat) = look() else { return Verdict::Known };
        let Some(node) = host.nodes.find(&stat) else { return Verdict::Known };
        if !node.differs(&stat) {
            return Verdict::Known;
        }
        // Once more, now that it is clear whose changes to look out for.
        let before = node.own_changes();
        let stat = match look() {
            Ok(stat) if node.is(&stat) && node.differs(&stat) => stat,
            _ => return Verdict::Known,
        };
        if node.changed_since(before) && news.may_wait() {
            return Verdict::OurOwnPerhaps;
        }
        node.note_seen(&stat);
        self.sink.inode_changed(node.id);
        Verdict::Changed
    }

    fn ended(&self, watch: i32) {
        let ended = {
            let mut index = self.index.lock();
            let ended = index.by_watch.remove(&watch);
            index.by_node.retain(|_, other| *other != watch);
            ended
        };
        if let Some(directory) = ended.and_then(|directory| directory.upgrade()) {
            directory.release_watch();
        }
    }

    fn refused(&self, host: &Host, errno: Errno) {
        host.counters.watches_refused.hit();
        // ORDERING: Relaxed; at worst the warning is logged twice.
        if !self.warned.swap(true, Relaxed) {
            let remedy = match errno {
                Errno::NOSPC => "; raise fs.inotify.max_user_watches to watch all",
                _ => "",
            };
            log::warn!(
                "cannot watch every directory ({errno}){remedy}; changes in the others are seen \
                 when their cached entries expire"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::fs;
    use uvfs_vfs::{Backend, FileRef, NewKind, OpenMode, RenameMode, SetAttributes, XattrMode};

    static TEST: uvfs_concurrent::lock::LockClass =
        uvfs_concurrent::lock::LockClass::new(9999, "test-sink", "what a test heard");

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Heard {
        Entry(InodeId, String),
        Inode(InodeId),
        Everything,
    }

    struct Recorder(Mutex<Vec<Heard>>);

    impl Recorder {
        fn on(scratch: &Scratch) -> Arc<Self> {
            let recorder = Arc::new(Self(Mutex::new(&TEST, Vec::new())));
            scratch.backend.watching().unwrap().watch(recorder.clone()).unwrap();
            recorder
        }

        fn hears(&self, wanted: Heard) {
            let limit = Instant::now() + Duration::from_secs(5);
            while !self.0.lock().contains(&wanted) {
                assert!(Instant::now() < limit, "not heard: {wanted:?}; but {:?}", self.0.lock());
                std::thread::sleep(Duration::from_millis(2));
            }
            // Wait for related events, too.
            std::thread::sleep(Duration::from_millis(50));
            self.0.lock().clear();
        }

        fn hears_nothing(&self) {
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(*self.0.lock(), []);
        }
    }

    impl ChangeSink for Recorder {
        fn entry_changed(&self, parent: InodeId, name: Name<'_>) {
            let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
            self.0.lock().push(Heard::Entry(parent, name));
        }
        fn inode_changed(&self, inode: InodeId) {
            self.0.lock().push(Heard::Inode(inode));
        }
        fn everything_changed(&self) {
            self.0.lock().push(Heard::Everything);
        }
    }

    fn entry(parent: InodeId, name: &str) -> Heard {
        Heard::Entry(parent, name.to_owned())
    }

    #[test]
    fn changes_by_others_are_reported() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("d")).unwrap();
        fs::write(scratch.path("d/f"), b"x").unwrap();
        let recorder = Recorder::on(&scratch);
        let folder = scratch.lookup(InodeId::ROOT, "d").unwrap();
        let file = scratch.lookup(folder, "f").unwrap();
        assert!(scratch.lookup(folder, "missing").is_err());

        fs::write(scratch.path("d/f"), b"longer").unwrap();
        recorder.hears(Heard::Inode(file));
        scratch.attributes(file).unwrap();
        fs::set_permissions(
            scratch.path("d/f"),
            std::os::unix::fs::PermissionsExt::from_mode(0o600),
        )
        .unwrap();
        recorder.hears(Heard::Inode(file));
        fs::write(scratch.path("d/missing"), b"").unwrap();
        recorder.hears(entry(folder, "missing"));
        fs::rename(scratch.path("d/f"), scratch.path("d/g")).unwrap();
        recorder.hears(entry(folder, "f"));
        assert_eq!(scratch.lookup(folder, "g").unwrap(), file);
        fs::remove_file(scratch.path("d/g")).unwrap();
        recorder.hears(entry(folder, "g"));
        fs::remove_file(scratch.path("d/missing")).unwrap();
        fs::remove_dir(scratch.path("d")).unwrap();
        recorder.hears(entry(InodeId::ROOT, "d"));
        assert!(scratch.counter("changes_reported") >= 6);
    }

    #[test]
    fn changes_of_our_own_stay_silent() {
        let scratch = Scratch::new();
        let recorder = Recorder::on(&scratch);
        let (backend, caller) = (&scratch.backend, root_caller());
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        for round in 0..50 {
            let (f, g) = (format!("f{round}"), format!("g{round}"));
            let inode = scratch.make_file(folder, &f).unwrap();
            let truncate = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
            let file = backend.open_files().open(&caller, inode, truncate).unwrap();
            let open = FileRef { inode, file };
            backend.data().write(&caller, open, 0, b"data").unwrap();
            let set = SetAttributes { mode: Some(0o600), size: Some(2), ..Default::default() };
            backend.inodes().set_attributes(&caller, open, &set).unwrap();
            let _ = backend.xattrs().unwrap().set_xattr(
                &caller,
                inode,
                b"user.a",
                b"x",
                XattrMode::Any,
            );
            backend.open_files().close(open);
            scratch.rename(folder, &f, InodeId::ROOT, &g, RenameMode::Replace).unwrap();
            let name = Name::new(b"hard").unwrap();
            backend.creation().unwrap().link(&caller, inode, folder, name).unwrap();
            scratch.rename(folder, "hard", InodeId::ROOT, &g, RenameMode::Replace).unwrap();
            scratch.unlink(folder, "hard").unwrap();
            scratch.make(folder, "l", NewKind::Symlink(b"x")).unwrap();
            scratch.rename(folder, "l", InodeId::ROOT, &g, RenameMode::Exchange).unwrap();
            scratch.unlink(folder, "l").unwrap();
        }
        scratch.lookup(InodeId::ROOT, "g0").unwrap();
        recorder.hears_nothing();
    }

    #[test]
    fn a_forgotten_directory_is_watched_no_more() {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("d")).unwrap();
        let recorder = Recorder::on(&scratch);
        let folder = scratch.lookup(InodeId::ROOT, "d").unwrap();
        assert!(scratch.lookup(folder, "x").is_err());
        assert_eq!(scratch.counter("watches"), 2);
        scratch.backend.inodes().forget(folder, 1);
        assert_eq!(scratch.counter("watches"), 1);
        fs::write(scratch.path("d/x"), b"").unwrap();
        recorder.hears_nothing();
        assert!(matches!(scratch.backend.watching().unwrap().watch(recorder), Err(Error::Busy)));
    }
}
