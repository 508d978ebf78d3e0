//! Space of the store: what comes back, and what is set aside for pages that become dirty.
//!
//! # Boundary
//! Has the store set space aside before a page becomes dirty ([`crate::backend::Reservation`]), so that the writer is
//! told that there is none. Counts removals and cuts, and lets whoever the store refused for want of space try once more before it says so.
//! Frees nothing but what nobody can read any more ([`super::gone`]).
//!
//! # Concurrency
//! Only what somebody watches for is counted, so that removals touch nothing shared: with one load each they see that
//! nobody does. Whoever is going to ask the store says so before ([`Watching`]), and the store itself orders the two:
//! if it refused for want of space that a removal gave back, it answered before that removal, and so the removal's
//! thread, which looks after it, sees the watch. Counting and waking is done under the lock that sleepers hold while
//! they look. Waiting is only for removed files that somebody still holds, and for a moment; it may be done inside a
//! gate, since those who give them back wait for no gate.
//!
//! # Why
//! A program that removes one file to make room for another expects the room to be there, and a kernel in front gives
//! a removed file back a little after `unlink` has returned. Weakness: while somebody holds a removed file for long,
//! every refusal takes [`PATIENCE`].

use super::{FilePages, PAGE};
use crate::backend::FileRef;
use crate::error::{Error, Result};
use crate::lock_order;
use crate::vfs::{Core, Vfs};
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How long removed files are waited for that somebody holds.
const PATIENCE: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(super) struct Space {
    /// How often some came that was watched for. Changed under `sleep`.
    freed: AtomicU64,
    /// Writing back was refused for want of it.
    wanted: AtomicBool,
    /// Calls of the store under way that may be refused.
    watching: Padded<AtomicUsize>,
    sleep: Mutex<()>,
    came: Condvar,
}

/// From its making on it is counted whether space comes.
struct Watching<'a> {
    space: &'a Space,
    /// How much had come before.
    before: u64,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; a count of those who watch, whom nobody owes anything any more.
        self.space.watching.0.fetch_sub(1, Relaxed);
    }
}

impl Space {
    pub(super) fn new() -> Self {
        Self {
            freed: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            watching: Padded(AtomicUsize::new(0)),
            sleep: Mutex::new(&lock_order::SPACE, ()),
            came: Condvar::default(),
        }
    }

    /// How often space came that was watched for.
    pub(super) fn freed(&self) -> u64 {
        // ORDERING: Relaxed; a count, compared with an earlier one.
        self.freed.load(Relaxed)
    }

    /// Something was not written for want of space: from now on it is counted whether some comes; what has come.
    pub(super) fn was_refused(&self) -> u64 {
        // ORDERING: Relaxed; a removal that misses it leaves what was refused to its next try.
        self.wanted.store(true, Relaxed);
        self.freed()
    }

    fn watch(&self) -> Watching<'_> {
        // ORDERING: Relaxed; the store orders it with removals, see the module.
        self.watching.0.fetch_add(1, Relaxed);
        Watching { space: self, before: self.freed() }
    }

    /// Space has come.
    fn came(&self) {
        let sleep = self.sleep.lock();
        // ORDERING: Relaxed; changed and slept for under the lock, elsewhere a hint.
        self.freed.fetch_add(1, Relaxed);
        drop(sleep);
        self.came.notify_all();
    }
}

impl Watching<'_> {
    fn has_come(&self) -> bool {
        self.space.freed() != self.before
    }

    /// Waits until some has come, while more `may` come, and no longer than until `end`. Whether it has come in time.
    fn wait(&self, end: Instant, may: impl Fn() -> bool) -> bool {
        let mut sleep = self.space.sleep.lock();
        while !self.has_come() && may() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.space.came.wait_for(&mut sleep, left);
        }
        drop(sleep);
        self.has_come()
    }
}

/// Whether the store has no room for what was to be written.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error, Error::NoSpace | Error::Quota)
}

impl Vfs {
    /// Does `work` on the store; again whenever there was no space and some has come since, for a moment: files that
    /// were removed may be on their way. Blocks.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_space<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        self.core.with_space(work)
    }
}

impl Core {
    /// A removal or a cut has given space of the store back.
    pub(crate) fn space_came(&self) {
        let space = &self.pages.space;
        // ORDERING: Relaxed, both; see the module, and `was_refused`.
        let wanted = space.wanted.load(Relaxed) && space.wanted.swap(false, Relaxed);
        // ORDERING: Relaxed; ordered by the store, see the module.
        if wanted || space.watching.0.load(Relaxed) > 0 {
            space.came();
        }
        if wanted {
            self.pages.workers.write_back_at(self, Instant::now());
        }
    }

    /// Page `index` is about to become dirty: has the store set aside what it takes, where it can.
    pub(super) fn reserve_page(&self, file: FileRef, index: u64) -> Result<()> {
        match self.backend.reservation() {
            Some(_) => self.with_space(|| {
                let reservation = self.backend().reservation();
                reservation.map_or(Ok(()), |store| store.reserve(file, index * PAGE, PAGE))
            }),
            None => Ok(()),
        }
    }

    /// What was dirty of pages from `first` up to `last` will not be written.
    pub(super) fn unreserve_pages(&self, pages: &FilePages, first: u64, last: u64) {
        if let Some(reservation) = self.backend.reservation() {
            let (start, end) = (first.saturating_mul(PAGE), last.saturating_mul(PAGE));
            reservation.unreserve(pages.inode, start, end.saturating_sub(start));
        }
    }

    /// As [`Vfs::with_space`].
    pub(crate) fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut end = None;
        loop {
            let watching = self.pages.space.watch();
            let refused = match work() {
                Err(error) if is_full(&error) => error,
                done => return done,
            };
            // One time for all tries: space that comes drop by drop is not waited for without end.
            let is_first = end.is_none();
            let end = *end.get_or_insert_with(|| Instant::now() + PATIENCE);
            self.discard_all_gone();
            let has_come = watching.wait(end, || self.inodes.unlinked_in_use() > 0);
            if !has_come || (!is_first && Instant::now() >= end) {
                return Err(refused);
            }
        }
    }
}
