//! The effect of reads on attributes: a read may move the access time.
//!
//! # Boundary
//! Decides whether cached attributes survive a read. Only the store moves the time.
//!
//! # Concurrency
//! The two marks change under the lock of `changes`. A read tests them without it.
//!
//! R1. A read that may have moved the time is recorded as a change: no answer to a question from before it is cached.
//! R2. So the first answer cached after such a read belongs to a question after it. If it shows the same times as
//! before, and these are old enough for a move to show, reads do not move the time here.
//!
//! # Why
//! By the relatime rule a read moves the access time while that is not later than the last change. On a host mounted
//! `noatime` this never ends. Without the second mark every read invalidated the attributes, and every `stat` after a
//! read asked the store. Weakness: if such a host is remounted with access times, they appear after time-outs only,
//! until one was seen to have moved.

use super::cached::{self, EXPIRY};
use super::{Clock, Expiry, Freshness, Inode, flag};
use crate::attributes::{Attributes, Timestamp};
use std::time::{Duration, SystemTime};
use uvfs_concurrent::lock::MutexGuard;

/// A change of this age: if a read now moves the access time, it gets another value, because clocks of stores tick more
/// often.
const TICK: Duration = Duration::from_secs(2);

impl Inode {
    /// A read happened: the access time may have moved (by the relatime rule).
    pub(crate) fn was_read(&self, clock: &Clock) {
        if self.flags() & flag::STILL != 0 {
            return;
        }
        let moves = |seen: &Attributes| seen.atime <= seen.mtime || seen.atime <= seen.ctime;
        let (expiry, seen) = self.snapshot();
        if expiry == Expiry::EXPIRED || !moves(&seen) {
            return;
        }
        let mut changes = self.changes.lock();
        let seen = cached::unpack(self.kind(), &self.cached.as_writer());
        if moves(&seen) {
            changes.note(clock);
            self.cached.write_one(EXPIRY, Expiry::EXPIRED.to_word());
            self.set_flag(flag::READ, long_ago(seen.atime.max(seen.mtime).max(seen.ctime)));
        }
    }

    /// `value` is about to replace `old` in the cache.
    pub(super) fn learn_stillness(
        &self,
        _writer: &MutexGuard<'_, Freshness>,
        old: &Attributes,
        value: &Attributes,
    ) {
        let flags = self.flags();
        let same = (old.atime, old.mtime, old.ctime) == (value.atime, value.mtime, value.ctime);
        if flags & flag::READ != 0 {
            self.set_flag(flag::READ, false);
            self.set_flag(flag::STILL, same);
        } else if flags & flag::STILL != 0 && old.atime != value.atime {
            self.set_flag(flag::STILL, false);
        }
    }
}

fn long_ago(time: Timestamp) -> bool {
    SystemTime::now().duration_since(time.into()).is_ok_and(|age| age > TICK)
}

#[cfg(test)]
mod tests {
    use crate::{
        Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, FileId, FileKind, FileRef,
        InodeId, Inodes, Listing, Name, Names, PagePolicy, Result, Timestamp, Vfs, VfsConfig,
    };
    use std::sync::Arc;
    use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

    /// One file, unchanged since 1970. Reads move its access time, or do not.
    #[derive(Default)]
    struct Store {
        moves: AtomicBool,
        reads: AtomicU64,
        asked: AtomicU64,
    }

    const FILE: InodeId = InodeId(7);

    impl Store {
        fn attributes(&self) -> Attributes {
            // ORDERING: Relaxed here and below; one thread.
            let seconds = self.reads.load(Relaxed) as i64;
            let mut file = Attributes::new(7, FileKind::Regular, 0o644);
            // Later than any access: by the rule, each read moves the access time.
            file.mtime = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
            file.ctime = file.mtime;
            file.atime = Timestamp { seconds, nanoseconds: 0 };
            file
        }
    }

    impl Backend for Arc<Store> {
        fn capabilities(&self) -> Capabilities {
            Capabilities::read_only("accessed")
        }
        fn root(&self) -> Result<Entry> {
            let attributes = Attributes::new(1, FileKind::Directory, 0o755);
            Ok(Entry { inode: InodeId::ROOT, attributes })
        }
        fn names(&self) -> &dyn Names {
            self
        }
        fn inodes(&self) -> &dyn Inodes {
            self
        }
        fn data(&self) -> &dyn Data {
            self
        }
    }

    impl Names for Arc<Store> {
        fn lookup(&self, _: &Caller, _: InodeId, _: Name<'_>) -> Result<Entry> {
            Ok(Entry { inode: FILE, attributes: Store::attributes(self) })
        }
        fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
            Ok(())
        }
    }

    impl Inodes for Arc<Store> {
        fn attributes(&self, _: FileRef) -> Result<Attributes> {
            self.asked.fetch_add(1, Relaxed);
            Ok(Store::attributes(self))
        }
    }

    impl Data for Arc<Store> {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            self.reads.fetch_add(u64::from(self.moves.load(Relaxed)), Relaxed);
            Ok(0)
        }
    }

    /// Ten times a read and a look at the attributes. Returns the requests to the store for them.
    fn asked(store: &Arc<Store>, vfs: &Vfs) -> u64 {
        let found = vfs.lookup(&Caller::root(), vfs.root(), Name::new(b"f").unwrap());
        let node = found.unwrap().found().unwrap().node;
        let file = FileRef { inode: FILE, file: FileId::NONE };
        let before = store.asked.load(Relaxed);
        for _ in 0..10 {
            vfs.read(&node, file, 0, &mut [0; 8]).unwrap();
            let seen = vfs.attributes(&node, None).unwrap();
            assert_eq!(seen.atime, Store::attributes(store).atime);
        }
        store.asked.load(Relaxed) - before
    }

    fn world() -> (Arc<Store>, Arc<Vfs>) {
        let store = Arc::new(Store::default());
        let config = VfsConfig { pages: PagePolicy::Off, ..VfsConfig::default() };
        let vfs = Vfs::new(store.clone(), config).unwrap();
        (store, vfs)
    }

    /// Bug: on a host mounted `noatime` every `stat` after a read asked the store.
    #[test]
    fn a_time_that_does_not_move_is_asked_for_once() {
        let (store, vfs) = world();
        assert_eq!(asked(&store, &vfs), 1);
        assert_eq!(asked(&store, &vfs), 0);
    }

    #[test]
    fn a_time_that_moves_is_asked_for_after_each_read() {
        let (store, vfs) = world();
        store.moves.store(true, Relaxed);
        assert_eq!(asked(&store, &vfs), 10);
    }
}
