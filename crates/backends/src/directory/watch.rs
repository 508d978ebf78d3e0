//! News from the host: others' changes are reported as they happen.
//!
//! # Boundary
//! One inotify instance, watches on directories in which the core has looked a name up, and one thread that turns events
//! into calls of the [`ChangeSink`]. The core acts on the news; lifetimes of answers run out regardless.
//!
//! # Concurrency
//! Each event is reported, unless our own change explains it: the object under the name, or the attributes, are those
//! that it left, and that record is *settled*. An event waits for a moment while a change of our own is under way. No
//! lock is held during calls of the host or of the sink.
//!
//! W1. Settled: every answer that is cached, or will be, is the record. Only our own change settles, before the core
//! ends it. So answers from before it are not cached. For attributes, a report settles, too, before the sink is called.
//! W2. A question that gets another answer unsettles: a missing name drops the record, another object replaces it, other
//! attributes clear it, and a listing unsettles the whole directory at its start, for the names that it will lack.
//! W3. A name that has no record is cached as missing at most. So the removal of such a name is not reported.
//! W4. The thread counts an event (`hear`) before it reads the record. A question reads that count before it asks the
//! host, and again after W2. If it has grown, the question looks again, and reports a change.
//!
//! # Why
//! inotify rather than fanotify: it needs no privilege. docs/decisions/0009-watch.md has the interleavings that the rules
//! exclude. Weakness: a change by others between our own change to the same object and our `stat` right after it counts
//! as ours. The host bounds watches per user: further directories are not watched (counted, and logged once). Writes of
//! the kernel past this backend (passthrough) look like another program's.

use super::convert::{host_error, stat_at, stat_of};
use super::host::Host;
use super::node::HostNode;
use super::xattr::ProcPath;
use crate::lock_order::HOST_WATCHES;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
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
    /// The watches that are added at most.
    #[cfg(test)]
    room: std::sync::atomic::AtomicUsize,
}

#[derive(Debug, Default)]
struct Index {
    by_watch: HashMap<i32, Weak<HostNode>>,
    by_node: HashMap<InodeId, i32>,
}

/// The file systems of Linux, by their type in `statfs`, that only this machine changes, and whose changes it reports:
/// ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, bcachefs. Not network file systems and FUSE, which others change elsewhere, and
/// not overlayfs, whose layers may be changed beneath it.
const LOCAL: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e];

/// Whether a backend for the directory at `path` can report all changes in it: its file system is local.
///
/// # Errors
/// Those of opening it.
pub fn reports_all_changes(path: &Path) -> Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(host_error)?;
    Ok(is_local(&open))
}

fn is_local(open: &OwnedFd) -> bool {
    // The field is an i64 or an i32.
    rustix::fs::fstatfs(open).is_ok_and(|of| LOCAL.contains(&(of.f_type as u64 & 0xffff_ffff)))
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
            #[cfg(test)]
            room: usize::MAX.into(),
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
        #[cfg(test)]
        if self.len() >= self.room.load(Relaxed) {
            return self.refused(host, Errno::NOSPC);
        }
        match inotify::add_watch(&self.inotify, ProcPath::of(open).bytes(), flags) {
            Ok(watch) => {
                let mut index = self.index.lock();
                // The same directory, seen through another mount of the host, has the watch already.
                let other = index.by_watch.get(&watch).and_then(Weak::upgrade);
                if other.as_ref().is_none_or(|other| other.id == directory.id) {
                    index.by_watch.insert(watch, Arc::downgrade(directory));
                    index.by_node.insert(directory.id, watch);
                    if is_local(open) {
                        directory.set_reports();
                    }
                }
                drop(index);
                drop(other);
            }
            Err(errno) => self.refused(host, errno),
        }
    }

    /// The name `name` of `parent` was answered: with another object than `recorded` before, or than another thread may
    /// have been told.
    pub(super) fn entry_found_changed(
        &self,
        parent: InodeId,
        name: Name<'_>,
        changed: Option<InodeId>,
    ) {
        self.sink.entry_changed(parent, name);
        changed.into_iter().for_each(|changed| self.sink.inode_changed(changed));
    }

    /// The object `inode` was found to differ from what another thread may have been told.
    pub(super) fn inode_found_changed(&self, inode: InodeId) {
        self.sink.inode_changed(inode);
    }

    /// Stops watching a directory that the core has forgotten.
    pub(super) fn remove(&self, host: &Host, directory: &HostNode) {
        let reported = directory.reports();
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
        if !reported {
            return;
        }
        // Their changes are not reported from now on.
        directory.recorded_children().into_iter().for_each(|child| self.sink.inode_changed(child));
        // A thread that has looked it up again has begun to watch it again, or is seen here: both take the lock of the
        // table's shard, after it or before.
        if host.nodes.is_referenced(directory) {
            self.sink.everything_changed();
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
            let mut fresh = self.read(host, &mut space);
            if Instant::now() >= next_look {
                fresh.splice(0..0, waiting.drain(..));
                next_look = Instant::now() + PAUSE;
            }
            waiting.extend(fresh.into_iter().filter_map(|news| self.consider(host, news)));
        }
    }

    /// The events that wait.
    fn read(&self, host: &Host, space: &mut Vec<u8>) -> Vec<News> {
        let mut fresh = Vec::new();
        let mut reader = Reader::new(&self.inotify, space.spare_capacity_mut());
        while let Ok(event) = reader.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            fresh.extend(self.news(host, event.wd(), event.events(), name));
        }
        fresh
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

    /// Compares the object under a name with the record of it.
    fn judge_entry(&self, host: &Host, news: &News, name: &[u8]) -> Verdict {
        let directory = &news.directory;
        let before = directory.own_changes();
        directory.hear();
        let now = host.descriptor(directory).and_then(|open| stat_at(open.as_fd(), name));
        let there = now.as_ref().ok().and_then(|stat| host.nodes.find(stat));
        let recorded = directory.child(name);
        let same = match (recorded, &now) {
            (None, Err(Error::NotFound)) => true,
            (Some(recorded), Ok(_)) => {
                recorded.is_settled
                    && there.as_ref().is_some_and(|there| there.id == recorded.inode)
            }
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
        if let Some(child) = recorded.and_then(|recorded| host.nodes.get(recorded.inode)) {
            // If it was removed, its descriptor must not keep it alive on the host.
            if !host.files.has(child.id) {
                child.slot.close_unless_pinned();
            }
            self.sink.inode_changed(child.id);
        }
        // If it was written before it came here, the event of that led to its old name.
        if let Some(moved) =
            there.filter(|there| recorded.is_none_or(|recorded| recorded.inode != there.id))
        {
            self.sink.inode_changed(moved.id);
        }
        Verdict::Changed
    }

    /// Compares an object with the record of its attributes.
    fn judge_content(&self, host: &Host, news: &News) -> Verdict {
        news.directory.hear();
        let look = || {
            let directory = host.descriptor(&news.directory)?;
            match &news.name {
                Some(name) => stat_at(directory.as_fd(), name),
                None => stat_of(&directory),
            }
        };
        // If it does not exist, news of that will follow. If it is not known, no answer was given, or a question that
        // is about to give one looks again.
        let Ok(stat) = look() else { return Verdict::Known };
        let Some(node) = host.nodes.find(&stat) else { return Verdict::Known };
        node.hear();
        if node.is_settled(&stat) {
            return Verdict::Known;
        }
        // Once more, now that it is clear whose changes to look out for.
        let before = node.own_changes();
        let stat = match look() {
            Ok(stat) if node.is(&stat) && !node.is_settled(&stat) => stat,
            _ => return Verdict::Known,
        };
        if node.changed_since(before) && news.may_wait() {
            return Verdict::OurOwnPerhaps;
        }
        node.settle(&stat);
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

    /// A backend whose events wait until the test examines them.
    struct Still {
        scratch: Scratch,
        recorder: Arc<Recorder>,
    }

    impl Still {
        fn new() -> Self {
            let scratch = Scratch::new();
            let recorder = Arc::new(Recorder(Mutex::new(&TEST, Vec::new())));
            scratch.host().watches.set(Watches::new(recorder.clone()).unwrap()).unwrap();
            assert!(scratch.backend.watching().unwrap().reports_names(InodeId::ROOT));
            Self { scratch, recorder }
        }

        /// Examines all events. Returns the reports since the last call.
        fn reports(&self) -> Vec<Heard> {
            let (host, mut space) = (self.scratch.host(), Vec::with_capacity(EVENT_BYTES));
            let watches = host.watches.get().unwrap();
            for news in watches.read(host, &mut space) {
                assert!(
                    watches.consider(host, news).is_none(),
                    "no change of our own is under way"
                );
            }
            std::mem::take(&mut *self.recorder.0.lock())
        }

        fn look(&self, name: &str) -> Option<InodeId> {
            self.scratch.lookup(InodeId::ROOT, name).ok()
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.scratch.path(from), self.scratch.path(to)).unwrap();
        }
    }

    /// A name was answered as missing while its file was away. The file came back before the events were examined. They
    /// were compared with the older record, taken for known, and the negative answer stayed.
    #[test]
    fn a_file_that_was_away_for_one_answer_is_reported() {
        let still = Still::new();
        let file = still.scratch.make_file(InodeId::ROOT, "f").unwrap();
        assert_eq!(still.reports(), [], "our own change");
        for round in 0..3 {
            assert_eq!(still.look("f"), Some(file), "{round}");
            still.rename("f", "elsewhere");
            assert_eq!(still.look("f"), None);
            still.rename("elsewhere", "f");
            assert!(still.reports().contains(&entry(InodeId::ROOT, "f")), "{round}");
        }
    }

    /// A complete listing that lacked the name stayed, as the negative answer did.
    #[test]
    fn a_file_that_was_away_for_a_listing_is_reported() {
        struct Nothing(usize);
        impl uvfs_vfs::Listing for Nothing {
            fn wants_attributes(&self) -> bool {
                true
            }
            fn add_name(
                &mut self,
                _: Name<'_>,
                _: uvfs_vfs::Cookie,
                _: u64,
                _: uvfs_vfs::FileKind,
            ) -> bool {
                true
            }
            fn add_entry(
                &mut self,
                name: Name<'_>,
                _: uvfs_vfs::Cookie,
                _: uvfs_vfs::Entry,
            ) -> bool {
                self.0 += usize::from(name.as_bytes() == b"f");
                true
            }
        }
        let still = Still::new();
        still.scratch.make_file(InodeId::ROOT, "f").unwrap();
        fs::create_dir(still.scratch.path("d")).unwrap();
        still.reports();
        still.rename("f", "d/f");
        let (root, mut listed) = (FileRef::unopened(InodeId::ROOT), Nothing(0));
        still.scratch.backend.names().list(root, uvfs_vfs::Cookie(0), &mut listed).unwrap();
        assert_eq!(listed.0, 0);
        still.rename("d/f", "f");
        assert!(still.reports().contains(&entry(InodeId::ROOT, "f")));
    }

    /// One question finds a new name, and another one has answered that it is missing. The event was compared with the
    /// record of the first one, taken for known, and the second answer stayed.
    #[test]
    fn a_name_that_another_question_finds_is_reported() {
        let still = Still::new();
        assert_eq!(still.look("new"), None);
        fs::write(still.scratch.path("new"), b"").unwrap();
        still.look("new").unwrap();
        assert!(still.reports().contains(&entry(InodeId::ROOT, "new")));
        still.look("new").unwrap();
        assert_eq!(still.reports(), []);
    }

    /// A name was removed, and a question answered so before the event was examined. Older answers stayed.
    #[test]
    fn a_name_that_another_question_misses_is_reported() {
        let still = Still::new();
        let file = still.scratch.make_file(InodeId::ROOT, "f").unwrap();
        still.reports();
        fs::remove_file(still.scratch.path("f")).unwrap();
        assert_eq!(still.look("f"), None);
        assert_eq!(still.reports(), [entry(InodeId::ROOT, "f"), Heard::Inode(file)]);
    }

    /// A question had the store's answer, and the event of a change was examined before the answer was recorded: it was
    /// compared with no record, taken for known, and the answer stayed.
    #[test]
    fn a_change_before_the_record_of_an_answer_is_reported() {
        let still = Still::new();
        let host = still.scratch.host();
        let open = host.descriptor(&host.root).unwrap();
        let at = (&host.root, open.as_fd());
        let answer = |stat, heard, name: &str| {
            host.answer((stat, heard), at, Name::new(name.as_bytes()).unwrap())
        };
        let asked = |name: &str| {
            fs::write(still.scratch.path(name), b"x").unwrap();
            assert!(still.reports().contains(&entry(InodeId::ROOT, name)));
            (host.root.heard(), stat_at(open.as_fd(), name.as_bytes()).unwrap())
        };

        let (heard, stat) = asked("removed");
        fs::remove_file(still.scratch.path("removed")).unwrap();
        assert_eq!(still.reports(), []);
        let _held = answer(&stat, heard, "removed");
        assert!(still.reports().contains(&entry(InodeId::ROOT, "removed")));

        let (heard, stat) = asked("longer");
        fs::write(still.scratch.path("longer"), b"longer").unwrap();
        assert_eq!(still.reports(), []);
        let file = answer(&stat, heard, "longer").0.inode;
        assert!(still.reports().contains(&Heard::Inode(file)));

        // It was written and moved, and the event of the write led to its old name.
        let (heard, stat) = asked("moved");
        fs::write(still.scratch.path("moved"), b"longer").unwrap();
        still.rename("moved", "to");
        still.reports();
        let file = answer(&stat, heard, "moved").0.inode;
        assert!(still.reports().contains(&Heard::Inode(file)));

        // The file is back when the event is examined, and away for the question in between.
        let file = still.scratch.make_file(InodeId::ROOT, "back").unwrap();
        still.reports();
        let heard = host.root.heard();
        still.rename("back", "elsewhere");
        assert!(stat_at(open.as_fd(), b"back").is_err());
        still.rename("elsewhere", "back");
        still.reports();
        assert!(!host.answer_missing(&host.root, Name::new(b"back").unwrap(), heard), "ask again");
        assert_eq!(still.look("back"), Some(file));
    }

    /// Answers differ from what our own change left: the next event is another's, even if it shows the same again.
    #[test]
    fn attributes_that_an_answer_contradicts_are_reported() {
        let still = Still::new();
        let file = still.scratch.make_file(InodeId::ROOT, "f").unwrap();
        still.reports();
        let host = still.scratch.host();
        let node = host.node(file).unwrap();
        let ours = host.stat_node(&node).unwrap();
        fs::write(still.scratch.path("f"), b"longer").unwrap();
        still.scratch.attributes(file).unwrap();
        assert!(!node.is_settled(&ours));
        assert_eq!(still.reports(), [Heard::Inode(file)]);
        still.scratch.attributes(file).unwrap();
        assert_eq!(still.reports(), []);
    }

    /// With an event lost, answers that are valid for long would stay.
    #[test]
    fn an_overflow_of_the_queue_invalidates_everything() {
        let scratch = Scratch::new();
        let recorder = Recorder::on(&scratch);
        let host = &scratch.backend.host;
        let watches = host.watches.get().unwrap();
        assert!(watches.news(host, -1, ReadFlags::QUEUE_OVERFLOW, None).is_none());
        recorder.hears(Heard::Everything);
        assert_eq!(scratch.counter("changes_overflowed"), 1);
    }

    /// A directory for which the host had no watch left was believed as long as a watched one.
    #[test]
    fn what_is_not_watched_is_not_said_to_be_reported() {
        let scratch = Scratch::new();
        for name in ["watched", "refused"] {
            fs::create_dir(scratch.path(name)).unwrap();
            fs::write(scratch.path(name).join("f"), b"").unwrap();
        }
        let _recorder = Recorder::on(&scratch);
        let watching = scratch.backend.watching().unwrap();
        let [watched, refused] =
            ["watched", "refused"].map(|name| scratch.lookup(InodeId::ROOT, name).unwrap());
        assert!(watching.reports_names(watched));
        let watches = scratch.backend.host.watches.get().unwrap();
        watches.room.store(watches.len(), Relaxed);
        assert!(!watching.reports_names(refused));
        let file = |folder| scratch.lookup(folder, "f").unwrap();
        assert!(watching.reports_attributes(file(watched)));
        assert!(!watching.reports_attributes(file(refused)));
        assert_eq!(scratch.counter("watches_refused"), 1);
        assert!(watching.reports_names(watched), "it is watched still");
        assert!(!watching.reports_attributes(watched), "not a directory's times");
    }

    /// A file that left its directory is written through a name in a directory without a watch.
    #[test]
    fn what_left_its_directory_is_not_said_to_be_reported() {
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"").unwrap();
        let recorder = Recorder::on(&scratch);
        let watching = scratch.backend.watching().unwrap();
        let file = scratch.lookup(InodeId::ROOT, "f").unwrap();
        assert!(watching.reports_attributes(file));
        let elsewhere = tempfile::tempdir_in(scratch.path("..")).unwrap();
        fs::rename(scratch.path("f"), elsewhere.path().join("f")).unwrap();
        recorder.hears(Heard::Inode(file));
        assert!(!watching.reports_attributes(file));
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
