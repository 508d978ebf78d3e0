//! Space of the store that comes back.
//!
//! # Boundary
//! Counts removals and cuts, and lets whoever the store refused for want of space try once more before it says so.
//! Frees nothing but what nobody can read any more ([`super::gone`]).
//!
//! # Concurrency
//! The count is read before the store is asked: what is freed from then on is a reason to ask again. Waiting is only
//! for removed files that somebody still holds, and for a moment; it may be done inside a gate, since those who give
//! them back wait for no gate.
//!
//! # Why
//! A program that removes one file to make room for another expects the room to be there, and a kernel in front gives
//! a removed file back a little after `unlink` has returned. Weakness: while somebody holds a removed file for long,
//! every refusal takes [`PATIENCE`].

use crate::error::{Error, Result};
use crate::lock_order;
use crate::vfs::Core;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// How long removed files are waited for that somebody holds.
const PATIENCE: Duration = Duration::from_millis(50);
/// Longest sleep between two looks: no notice is lost for longer.
const LOOK: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Space {
    /// How often some came.
    freed: Padded<AtomicU64>,
    /// Writing back was refused for want of it.
    wanted: AtomicBool,
    /// Somebody waits for it.
    awaited: AtomicBool,
    sleep: Mutex<()>,
    came: Condvar,
}

impl Space {
    pub(super) fn new() -> Self {
        Self {
            freed: Padded(AtomicU64::new(0)),
            wanted: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            sleep: Mutex::new(&lock_order::SPACE, ()),
            came: Condvar::default(),
        }
    }

    /// How often space came until now.
    pub(super) fn freed(&self) -> u64 {
        // ORDERING: Relaxed; a count, compared with an earlier one.
        self.freed.0.load(Relaxed)
    }

    /// Something was not written for want of space.
    pub(super) fn was_refused(&self) {
        // ORDERING: Relaxed; who misses it leaves what was refused to its next try.
        self.wanted.store(true, Relaxed);
    }

    /// Waits until more has come than `before`, for a while. Whether it has.
    fn wait(&self, before: u64, mut leaving: impl FnMut() -> bool) -> bool {
        let end = Instant::now() + PATIENCE;
        let mut sleep = self.sleep.lock();
        while self.freed() == before && leaving() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // ORDERING: Relaxed; a notice that misses it is met by the next look.
            self.awaited.store(true, Relaxed);
            self.came.wait_for(&mut sleep, left.min(LOOK));
        }
        drop(sleep);
        self.freed() != before
    }
}

/// Whether the store has no room for what was to be written.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error, Error::NoSpace | Error::Quota)
}

impl Core {
    /// A removal or a cut has given space of the store back.
    pub(crate) fn space_came(&self) {
        let space = &self.pages.space;
        // ORDERING: Relaxed, all; a count, and hints who wants to know.
        space.freed.0.fetch_add(1, Relaxed);
        if space.awaited.load(Relaxed) && space.awaited.swap(false, Relaxed) {
            drop(space.sleep.lock());
            space.came.notify_all();
        }
        // ORDERING: Relaxed, both; as above.
        if space.wanted.load(Relaxed) && space.wanted.swap(false, Relaxed) {
            self.pages.workers.hasten();
        }
    }

    /// Does `work` on the store; once more if there was no space, and some has come since.
    pub(super) fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let before = self.pages.space.freed();
        match work() {
            Err(error) if is_full(&error) && self.has_space_come(before) => work(),
            done => done,
        }
    }

    /// Whether more space has come than `before`: looks for what can go, and waits a moment for what is going.
    fn has_space_come(&self, before: u64) -> bool {
        self.discard_all_gone();
        self.pages.space.wait(before, || self.inodes.leaving() > 0)
    }
}
