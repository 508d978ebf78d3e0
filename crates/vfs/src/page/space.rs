//! Space of the store: freed space, and space reserved for pages that become dirty.
//!
//! # Boundary
//! Reserves space before pages become dirty ([`crate::backend::Reservation`]), so that the writer gets the error.
//! Counts removals and cuts. Retries a call that the store refused for lack of space before it returns the error. Frees
//! only data that no thread can read any more ([`super::gone`]).
//!
//! # Concurrency
//! Freed space is counted only while a thread watches for it. A removal reads that with one load each and stores to no
//! shared line. A thread registers ([`Watching`]) before it asks the store. The store orders the two: if it refused for
//! lack of space, it answered before the removal that freed the space. The removing thread looks after its removal, so
//! it sees the watch. A thread counts and wakes under the lock that sleepers hold while they look. Threads wait only
//! for removed files that still have a hold, and only for a moment. They may wait inside a gate, because the threads
//! that drop such holds wait for no gate.
//!
//! # Why
//! A program that removes one file to make room for another expects the room at once. A kernel in front returns a
//! removed file a little after `unlink` has returned. Weakness: while a removed file is held for long, every refusal
//! takes [`PATIENCE`].

use super::{FilePages, PAGE};
use crate::backend::FileRef;
use crate::error::{Error, Result};
use crate::lock_order;
use crate::vfs::{Core, Vfs};
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How long to wait for removed files that still have a hold.
const PATIENCE: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(super) struct Space {
    /// Times that space was freed while a thread watched. Changed under `sleep`.
    freed: AtomicU64,
    /// Write-back was refused for lack of space.
    wanted: AtomicBool,
    /// Calls of the store in progress that may be refused.
    watching: Padded<AtomicUsize>,
    sleep: Mutex<()>,
    came: Condvar,
}

/// While it exists, freed space is counted.
struct Watching<'a> {
    space: &'a Space,
    /// The count when it was made.
    before: u64,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; a count of watches, and this watch needs no wake-up any more.
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

    /// Times that space was freed while a thread watched.
    pub(super) fn freed(&self) -> u64 {
        // ORDERING: Relaxed; a count, compared with an earlier one.
        self.freed.load(Relaxed)
    }

    /// A write-back lacked space: from now on freed space is counted. Returns the count.
    pub(super) fn was_refused(&self) -> u64 {
        // ORDERING: Relaxed; if a removal misses it, the refused file waits for its next retry.
        self.wanted.store(true, Relaxed);
        self.freed()
    }

    fn watch(&self) -> Watching<'_> {
        // ORDERING: Relaxed; the store orders it with removals, see the module.
        self.watching.0.fetch_add(1, Relaxed);
        Watching { space: self, before: self.freed() }
    }

    /// Space was freed.
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

    /// Waits until space is freed, or until `end`, while `may` says that some may be freed. Whether some was freed.
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

/// Whether the error says that the store has no space left.
pub(super) fn is_full(error: &Error) -> bool {
    matches!(error, Error::NoSpace | Error::Quota)
}

impl Vfs {
    /// Calls `work`, which asks the store. If it fails for lack of space, calls it again when space is freed, for a
    /// moment: removed files may be on their way. Blocks.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn with_space<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        self.core.with_space(work)
    }
}

impl Core {
    /// A removal or a cut has freed space in the store.
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

    /// Bytes from `start` up to `end` of a file are about to be written: reserves their space, or else that of the first
    /// page, where the store can. Returns how far. The caller may be inside the gate, and has no page locked.
    ///
    /// # Errors
    /// The store's. It was full, also after data was written back: that takes less space than is reserved for it.
    pub(super) fn reserve(&self, file: FileRef, start: u64, end: u64) -> Result<u64> {
        if self.backend.reservation().is_none() {
            return Ok(end);
        }
        let reserve = |end: u64| {
            let store = self.backend().reservation();
            store.map_or(Ok(()), |store| store.reserve(file, start, end - start)).map(|()| end)
        };
        let first = end.min((start / PAGE + 1) * PAGE);
        let is_refused = |result: &Result<u64>| result.as_ref().is_err_and(is_full);
        let mut reserved = reserve(end);
        if is_refused(&reserved) && self.capabilities.writes_back && self.write_some_back() {
            reserved = reserve(end);
        }
        match reserved {
            refused if is_refused(&refused) => self.with_space(|| reserve(first)),
            // The first bytes may be before the file's largest size.
            Err(Error::TooBig) => reserve(first),
            reserved => reserved,
        }
    }

    /// Writes data back that is dirty now, of files that no thread has for itself. Whether that was any.
    fn write_some_back(&self) -> bool {
        let (most, mut wrote) = (self.pages.dirty(), 0);
        while wrote < most
            && let Ok(count @ 1..) = self.write_any()
        {
            wrote += count;
        }
        wrote > 0
    }

    /// A write failed after it had reserved the space of pages from `first` up to `last`: gives back that of pages without
    /// unwritten data. The caller is not inside the gate.
    pub(super) fn unreserve_clean(&self, pages: &FilePages, first: u64, last: u64) {
        if self.backend.reservation().is_none() {
            return;
        }
        let _alone = pages.gate.enter_alone();
        for index in first..last {
            let page = pages.find(index);
            if !page.is_some_and(|page| page.is_dirty() || page.is_writing()) {
                self.unreserve_pages(pages, index, index + 1);
            }
        }
    }

    /// Dirty data of pages from `first` up to `last` will not be written.
    pub(super) fn unreserve_pages(&self, pages: &FilePages, first: u64, last: u64) {
        if let Some(reservation) = self.backend.reservation() {
            let (start, end) = (first.saturating_mul(PAGE), last.saturating_mul(PAGE));
            reservation.unreserve(pages.inode, start, end.saturating_sub(start));
        }
    }

    /// Like [`Vfs::with_space`].
    pub(crate) fn with_space<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut end = None;
        loop {
            let watching = self.pages.space.watch();
            let refused = match work() {
                Err(error) if is_full(&error) => error,
                done => return done,
            };
            // One deadline for all retries: space that is freed in small steps must not extend the wait without end.
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
