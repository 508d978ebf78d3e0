//! Counts one thread's accesses to shared memory, for tests.
//!
//! # Boundary
//! Counts loads, stores and read-modify-writes of [`super::atomic`], acquisitions of the locks in [`crate::lock`],
//! lookups in tables of names, and hashes of names, on the calling thread. Does not see the reference counts of
//! `std::sync::Arc`, nor other crates; allocations are counted by a test's own allocator.
//!
//! # Concurrency
//! All state is thread-local. Release builds record nothing and have no [`tally`], so a test that needs it does not
//! compile there, instead of passing without a check.

/// The accesses of a thread while it was being tallied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Atomic loads.
    pub loads: u64,
    /// Atomic stores.
    pub stores: u64,
    /// Atomic read-modify-writes; a failed compare-exchange is one too, because it takes the line.
    pub rmws: u64,
    /// Locks taken: mutexes, reader-writer locks (also shared) and bit locks.
    pub locks: u64,
    /// Lookups of a name in a table, under a lock or without.
    pub probes: u64,
    /// Names hashed: whole ones, and components of paths.
    pub hashes: u64,
}

#[cfg(all(debug_assertions, not(loom)))]
pub use on::{hash, lock, probe, tally};
#[cfg(all(debug_assertions, not(loom)))]
pub(crate) use on::{load, rmw, store};

#[cfg(all(debug_assertions, not(loom)))]
mod on {
    use super::Tally;
    use std::cell::Cell;

    thread_local! {
        /// The number of tallies in progress on this thread; nested ones both count.
        static DEPTH: Cell<u32> = const { Cell::new(0) };
        static NOTED: Cell<Tally> = const {
            Cell::new(Tally { loads: 0, stores: 0, rmws: 0, locks: 0, probes: 0, hashes: 0 })
        };
    }

    /// Runs `work` and counts this thread's accesses meanwhile. Accesses of threads that `work` starts are not counted.
    pub fn tally<R>(work: impl FnOnce() -> R) -> (R, Tally) {
        /// Ends the tally also when `work` panics.
        struct Under;
        impl Drop for Under {
            fn drop(&mut self) {
                DEPTH.set(DEPTH.get() - 1);
            }
        }
        DEPTH.set(DEPTH.get() + 1);
        let under = Under;
        let before = NOTED.get();
        let result = work();
        let after = NOTED.get();
        drop(under);
        let tally = Tally {
            loads: after.loads - before.loads,
            stores: after.stores - before.stores,
            rmws: after.rmws - before.rmws,
            locks: after.locks - before.locks,
            probes: after.probes - before.probes,
            hashes: after.hashes - before.hashes,
        };
        (result, tally)
    }

    fn note(change: impl FnOnce(&mut Tally)) {
        if DEPTH.get() > 0 {
            let mut noted = NOTED.get();
            change(&mut noted);
            NOTED.set(noted);
        }
    }

    pub(crate) fn load() {
        note(|noted| noted.loads += 1);
    }

    pub(crate) fn store() {
        note(|noted| noted.stores += 1);
    }

    pub(crate) fn rmw() {
        note(|noted| noted.rmws += 1);
    }

    /// Records that a lock was taken whose structure takes it without the locks of [`crate::lock`].
    pub fn lock() {
        note(|noted| noted.locks += 1);
    }

    /// Records a lookup in a table of names.
    pub fn probe() {
        note(|noted| noted.probes += 1);
    }

    /// Records that a name was hashed.
    pub fn hash() {
        note(|noted| noted.hashes += 1);
    }
}

/// Records that a lock was taken; does nothing in builds that do not record.
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn lock() {}

/// Records a lookup in a table of names; like [`lock`].
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn probe() {}

/// Records that a name was hashed; like [`lock`].
#[cfg(not(all(debug_assertions, not(loom))))]
#[inline(always)]
pub fn hash() {}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::super::{atomic, owned};
    use super::*;
    use crate::lock::{LockClass, Mutex, RwLock};
    use atomic::Ordering::{Relaxed, SeqCst};

    static ONE: LockClass = LockClass::new(1, "tally-one", "test");
    static OTHER: LockClass = LockClass::new(2, "tally-other", "test");

    fn counts(work: impl FnOnce()) -> [u64; 4] {
        let ((), tally) = tally(work);
        [tally.loads, tally.stores, tally.rmws, tally.locks]
    }

    #[test]
    fn each_kind_of_access_is_counted() {
        let word = atomic::AtomicU64::new(1);
        let flag = atomic::AtomicBool::new(false);
        let mut value = 5;
        let pointer = atomic::AtomicPtr::new(&raw mut value);
        assert_eq!(counts(|| assert_eq!(word.load(Relaxed), 1)), [1, 0, 0, 0]);
        assert_eq!(counts(|| flag.store(true, SeqCst)), [0, 1, 0, 0]);
        let rmws = counts(|| {
            word.fetch_add(1, Relaxed);
            assert!(word.compare_exchange(9, 1, Relaxed, Relaxed).is_err());
            assert!(flag.swap(false, Relaxed));
            pointer.swap(std::ptr::null_mut(), Relaxed);
        });
        assert_eq!(rmws, [0, 0, 4, 0]);
        assert_eq!(
            counts(|| assert_eq!(word.fetch_update(Relaxed, Relaxed, |_| None), Err(2))),
            [1, 0, 0, 0]
        );
    }

    #[test]
    fn owned_words_and_other_threads_are_not_counted() {
        let (mine, shared) = (owned::AtomicU64::new(0), atomic::AtomicU64::new(0));
        assert_eq!(counts(|| mine.store(1, Relaxed)), [0; 4]);
        let elsewhere = counts(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| shared.store(1, Relaxed));
            });
        });
        assert_eq!(elsewhere, [0; 4]);
    }

    #[test]
    fn locks_are_counted_and_the_meter_beside_them_is_not() {
        let (mutex, rwlock) = (Mutex::new(&ONE, 0), RwLock::new(&OTHER, 0));
        let taken = counts(|| {
            *mutex.lock() += 1;
            assert!(mutex.try_lock().is_some());
            assert_eq!(*rwlock.read(), 0);
            *rwlock.write() += 1;
        });
        assert_eq!(taken, [0, 0, 0, 4]);
        let held = mutex.lock();
        assert_eq!(counts(|| assert!(mutex.try_lock().is_none())), [0; 4], "not taken");
        drop(held);
    }

    #[test]
    fn a_nested_tally_counts_in_both_and_a_panic_ends_it() {
        let word = atomic::AtomicU64::new(0);
        let outer = counts(|| assert_eq!(counts(|| word.store(1, Relaxed)), [0, 1, 0, 0]));
        assert_eq!(outer, [0, 1, 0, 0]);
        let failed = std::panic::catch_unwind(|| tally(|| panic!("on purpose")));
        assert!(failed.is_err());
        word.store(2, Relaxed);
        assert_eq!(counts(|| ()), [0; 4]);
    }
}
