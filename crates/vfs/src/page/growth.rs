//! Room for files that reach the store whole: their writers wait for each other.
//!
//! # Boundary
//! Decides when a writer may make more pages dirty, and how long it waits for that. Used for stores that take whole
//! files ([`super::whole`]): their pages stay dirty until the file is closed.
//!
//! # Rules
//! R1. Dirty pages take up to half of the allowed pages. No writer waits before that.
//! R2. Beyond half, one file has the *turn*: it grows until three quarters of the pages are dirty. After it is put, its
//!     pages are clean and the next file has the turn. So files of a quarter each are written, however many they are.
//! R3. A file that alone needs more than half cannot be put. Its writer gets ENOSPC at once.
//! R4. A wait ends with ENOSPC if nothing moves for [`MOVES_WITHIN`]: no page becomes clean, no file is on its way to
//!     the store, and the file with the turn does not grow. Every wait ends after [`WAIT_MAX`].
//! R5. A file loses the turn when it is put or dropped, and to a waiting writer if it does not grow for [`SILENT`].
//! R6. At most [`WAITING_MAX`] writers wait: each of them occupies a thread of the frontend.
//!
//! # Concurrency
//! One lock over the turn, taken only beyond half and when a file is put. Writers sleep in [`super::progress`], and look
//! again every [`LOOK`], because a growing file wakes no other writer.
//!
//! # Why
//! Eight copies at once of files that fit one by one all failed: each had an eighth of the room, so no file could be
//! put. Weakness: a program that writes many large files, and closes none of them before all are written, still gets
//! ENOSPC.

use super::file::FilePages;
use super::{PAGE, PageCache};
use crate::error::{Error, Result};
use crate::lock_order;
use crate::vfs::Core;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;

/// Share of the allowed pages that incomplete files may have, in percent (R1).
const HALF_PERCENT: u64 = 50;
/// Share of the allowed pages that incomplete files may have if one file has the turn, in percent (R2).
const TURN_PERCENT: u64 = 75;
/// See R4.
const MOVES_WITHIN: Duration = Duration::from_secs(5);
/// See R4.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// See R5.
const SILENT: Duration = Duration::from_secs(1);
/// See R6.
const WAITING_MAX: u64 = 16;
/// Pause between two looks of a waiting writer.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(super) struct Growth(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The file that has the turn, by its owner, and when it last grew.
    holder: Option<(u64, Instant)>,
    /// Waiting writers.
    waiting: u64,
    /// Files on their way to the store.
    putting: u64,
    /// Number of times that a file with the turn grew.
    grown: u64,
}

impl Growth {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&lock_order::PAGE_GROWTH, State::default()))
    }

    /// Gives the file `owner` the turn, if no other file has it (R5). Returns whether it has the turn now.
    fn take(&self, owner: u64) -> bool {
        let mut state = self.0.lock();
        let now = Instant::now();
        let is_free =
            |(holder, grew): (u64, Instant)| holder == owner || now.duration_since(grew) > SILENT;
        let takes = state.holder.is_none_or(is_free);
        if takes && state.holder.is_none_or(|(holder, _)| holder != owner) {
            state.holder = Some((owner, now));
        }
        takes
    }

    /// The file `owner`, which has the turn, grows.
    fn grows(&self, owner: u64) {
        let mut state = self.0.lock();
        state.holder = Some((owner, Instant::now()));
        state.grown += 1;
    }

    /// The file leaves the cache, to the store or dropped, until the returned guard is dropped. It loses the turn.
    pub(super) fn put<'a>(&'a self, pages: &'a FilePages) -> Putting<'a> {
        let mut state = self.0.lock();
        state.putting += 1;
        state.holder.take_if(|(holder, _)| *holder == pages.owner);
        Putting(&pages.cache)
    }

    /// Counts the caller as a waiting writer; `None` if there are too many.
    fn wait(&self) -> Option<Waits<'_>> {
        let mut state = self.0.lock();
        let may = state.waiting < WAITING_MAX;
        state.waiting += u64::from(may);
        may.then(|| Waits(self))
    }
}

/// A file on its way to the store.
pub(super) struct Putting<'a>(&'a PageCache);

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        self.0.growth.0.lock().putting -= 1;
        self.0.progress.made();
    }
}

/// A waiting writer.
struct Waits<'a>(&'a Growth);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.lock().waiting -= 1;
    }
}

impl Core {
    /// Waits until the file may have `bytes` more of dirty pages.
    ///
    /// # Errors
    /// [`Error::NoSpace`] by R3, R4 and R6.
    pub(super) fn wait_for_room_for_whole(&self, pages: &FilePages, bytes: usize) -> Result<()> {
        let cache = &self.pages;
        let more = (bytes as u64).div_ceil(PAGE);
        let share = |percent: u64| self.pages.frames_allowed(self) * percent / 100;
        if cache.dirty() + more <= share(HALF_PERCENT) {
            return Ok(());
        }
        // A file that is short is not put, whatever is written now.
        if pages.is_short() || pages.unwritten_pages() + more > share(HALF_PERCENT) {
            return Err(Error::NoSpace);
        }
        let waits = cache.growth.wait().ok_or(Error::NoSpace)?;
        cache.counters.throttled.hit();
        let began = Instant::now();
        let (mut before, mut moved) = ((0, 0), began);
        loop {
            let seen = cache.progress.seen();
            let (waiting, putting, grown) = {
                let state = waits.0.0.lock();
                (state.waiting, state.putting, state.grown)
            };
            // All waiting writers may pass at once.
            let dirty = cache.dirty();
            if dirty + more.max(cache.run_pages(self)) * waiting <= share(HALF_PERCENT) {
                return Ok(());
            }
            if cache.growth.take(pages.owner) && dirty + more <= share(TURN_PERCENT) {
                cache.growth.grows(pages.owner);
                return Ok(());
            }
            if putting > 0 || before != (seen, grown) {
                (before, moved) = ((seen, grown), Instant::now());
            }
            if moved.elapsed() > MOVES_WITHIN || began.elapsed() > WAIT_MAX {
                return Err(Error::NoSpace);
            }
            cache.progress.wait(seen, LOOK);
        }
    }
}
