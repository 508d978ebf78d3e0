//! The count of a shared object: by thread while it has an owner, in one word afterwards.
//!
//! # Boundary
//! Decides when the object is freed, and by which thread. The caller owns the memory and the threads' words
//! ([`Threads`]).
//!
//! # Concurrency
//! Word: `generation:24 | live:1 | count:39`.
//! ```text
//!            kill                     wait, fold                last drop            end
//!   Live ───────────▶ Dying + BIAS ───────────────▶ Dying + n ───────────▶ Dead ───────────▶ Live
//!   (counts in the    (drops and gains              (n handles; n = 0:     (freed by the     (the next
//!    threads' cells)   on the word)                  as the last drop)      that thread)      generation)
//! ```
//! `docs/protocols/shared.md` has the invariants and the orderings: where a thread counts (S1); `fold` comes after
//! every pin that saw `Live` (S2); `BIAS` hides a count that is not whole (S3); the count becomes 0 once (S4); O1 to
//! O4.
//!
//! Progress: gains and losses are wait-free; `try_gain` is lock-free; only the owner waits. Checked by the models
//! `model_*` below; each names the weakenings that break it.
//!
//! # Why
//! After Linux `percpu_ref`. Weakness: a killed count is one word that all threads write, so an owner should outlive
//! its users.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// Set while handles are counted by thread.
const LIVE: u64 = 1 << 39;
/// The bits of the count.
const COUNT: u64 = LIVE - 1;
/// Exceeds the number of handles (S3).
const BIAS: u64 = 1 << 38;
/// One generation.
const GENERATION: u64 = 1 << 40;
/// The last one: its word is not used again.
const LAST: u64 = u64::MAX / GENERATION;

/// The words that each of the threads which share an object has of its own.
pub(super) trait Threads {
    /// Runs `work` so that a [`Threads::wait`] that begins meanwhile waits for its end.
    fn pinned<R>(&self, work: impl FnOnce() -> R) -> R;
    /// Adds to the calling thread's cell, to which only it stores. Modulo 2^64.
    fn add(&self, amount: u64);
    /// The sum of all cells.
    fn total(&self) -> u64;
}

/// The count of one object. The protocol is in the module's documentation.
#[derive(Debug)]
pub(super) struct Count {
    word: AtomicU64,
}

impl Count {
    /// A count without an object and before its first generation.
    pub(super) fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    /// Begins a new object with a new generation, and returns that. Called by one thread at a time, while there is no
    /// object.
    pub(super) fn begin(&self) -> u64 {
        // ORDERING: Relaxed; no other thread stores to the word while there is no object (S4).
        let word = self.word.load(Ordering::Relaxed);
        debug_assert!(word & (LIVE | COUNT) == 0, "in use");
        // ORDERING: Release, partner `try_gain` (O4).
        self.word.store(word | LIVE, Ordering::Release);
        word / GENERATION
    }

    /// The generation that [`Count::begin`] will return.
    pub(super) fn next_generation(&self) -> u64 {
        // ORDERING: Relaxed; no other thread stores to the word while there is no object (S4).
        self.word.load(Ordering::Relaxed) / GENERATION
    }

    /// Counts one more handle, for a thread that has one.
    #[inline]
    pub(super) fn gain(&self, threads: &impl Threads) {
        if !self.counted_by_thread(threads, 1) {
            // ORDERING: Relaxed; the caller's handle keeps the count from 0.
            self.word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one handle less. True if the caller must free the object.
    #[inline]
    #[must_use]
    pub(super) fn lose(&self, threads: &impl Threads) -> bool {
        // 1 less, modulo 2^64.
        if self.counted_by_thread(threads, u64::MAX) {
            return false;
        }
        // ORDERING: AcqRel (O3): after this thread's uses of the object, and, if it frees the object, after all
        // others'.
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & COUNT != 0, "a handle that was not counted");
        before & COUNT == 1
    }

    /// Adds to the thread's cell if handles are counted there (S1).
    #[inline]
    fn counted_by_thread(&self, threads: &impl Threads, amount: u64) -> bool {
        threads.pinned(|| {
            // ORDERING: Relaxed; the pin's barrier orders it (O1).
            let live = self.word.load(Ordering::Relaxed) & LIVE != 0;
            if live {
                threads.add(amount);
            }
            live
        })
    }

    /// Counts one more handle for a thread that has none: of the object of `generation`, if it still exists.
    #[must_use]
    pub(super) fn try_gain(&self, generation: u64, threads: &impl Threads) -> bool {
        threads.pinned(|| {
            // ORDERING: Acquire, partner `begin` (O4).
            let mut word = self.word.load(Ordering::Acquire);
            loop {
                if word / GENERATION != generation || word & (LIVE | COUNT) == 0 {
                    return false;
                }
                if word & LIVE != 0 {
                    threads.add(1);
                    return true;
                }
                // ORDERING: Acquire, partner `begin` (O4), also on failure.
                match self.word.compare_exchange_weak(
                    word,
                    word + 1,
                    Ordering::Acquire,
                    Ordering::Acquire,
                ) {
                    Ok(_) => return true,
                    Err(now) => word = now,
                }
            }
        })
    }

    /// Ends the owner: handles are counted on the word from now on. The caller must then wait for all pins, and call
    /// [`Count::fold`].
    pub(super) fn kill(&self) {
        // ORDERING: Relaxed; the barrier of the wait orders it (O1).
        let before = self.word.fetch_sub(LIVE - BIAS, Ordering::Relaxed);
        debug_assert!(before & (LIVE | COUNT) == LIVE, "one owner");
    }

    /// Moves the handles counted by thread to the word, after [`Count::kill`] and a wait for all pins. `before` is the
    /// sum of the cells when the object began. True if the caller must free the object.
    #[must_use]
    pub(super) fn fold(&self, threads: &impl Threads, before: u64) -> bool {
        let handles = threads.total().wrapping_sub(before);
        // As a number that may be below 0: handles may have been lost here and gained on the word.
        let signed = handles.cast_signed();
        if signed.unsigned_abs() >= BIAS / 2 {
            // A great number of handles was forgotten: the bias stays, so that no thread frees their object.
            return false;
        }
        // ORDERING: AcqRel (O3): after all uses of the object that were counted by thread.
        let count = self.word.fetch_add(handles.wrapping_sub(BIAS), Ordering::AcqRel);
        count.wrapping_add(handles).wrapping_sub(BIAS) & COUNT == 0
    }

    /// The object was freed. False if the word has no generation left, and must not be used again.
    pub(super) fn end(&self) -> bool {
        // ORDERING: Relaxed, both; no thread changes a count of 0 (S4). The caller passes the word to its next user.
        let generation = self.word.load(Ordering::Relaxed) / GENERATION;
        if generation == LAST {
            return false;
        }
        // ORDERING: Relaxed; the caller passes the word to its next user.
        self.word.store((generation + 1) * GENERATION, Ordering::Relaxed);
        true
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::atomic::{AtomicBool, fence};
    use crate::primitive::model::{Model, reached};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    const FREED: u32 = 99;

    /// A count, an object for each of two generations, and the cells and pins of two or three threads. The pins
    /// guarantee O1 and O2 like `epoch`, and no more.
    struct World {
        count: Count,
        objects: [UnsafeCell<u32>; 2],
        cells: [AtomicU64; 3],
        pins: [AtomicBool; 3],
    }

    // SAFETY: the objects are used under the protocol; loom's cells check that claim.
    unsafe impl Sync for World {}
    // SAFETY: the objects are used under the protocol; loom's cells check that claim.
    unsafe impl Send for World {}

    /// One of the threads.
    struct Me<'a>(&'a World, usize);

    impl Threads for Me<'_> {
        fn pinned<R>(&self, work: impl FnOnce() -> R) -> R {
            let pin = &self.0.pins[self.1];
            pin.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let result = work();
            pin.store(false, Ordering::Release);
            result
        }
        fn add(&self, amount: u64) {
            let cell = &self.0.cells[self.1];
            let sum = cell.load(Ordering::Relaxed).wrapping_add(amount);
            cell.store(sum, Ordering::Relaxed);
        }
        fn total(&self) -> u64 {
            let cells = self.0.cells.iter().map(|cell| cell.load(Ordering::Relaxed));
            cells.fold(0, u64::wrapping_add)
        }
    }

    impl World {
        /// A world with an object, and `handles` that the first thread counted.
        fn new(handles: u64) -> Arc<Self> {
            let world = Arc::new(Self {
                count: Count::new(),
                objects: [UnsafeCell::new(0), UnsafeCell::new(1)],
                cells: [handles, 0, 0].map(AtomicU64::new),
                pins: [false; 3].map(AtomicBool::new),
            });
            assert_eq!(world.count.next_generation(), 0);
            assert_eq!(world.count.begin(), 0);
            world
        }
        fn read(&self, generation: usize) {
            self.objects[generation].with(|object| {
                // SAFETY: the reader has a handle; loom checks that this suffices.
                assert_eq!(unsafe { *object }, generation as u32, "read after free");
            });
        }
        fn free(&self, generation: usize) {
            self.objects[generation].with_mut(|object| {
                // SAFETY: the last handle is gone; loom checks that.
                let was = unsafe { std::mem::replace(&mut *object, FREED) };
                assert_eq!(was, generation as u32, "freed twice");
            });
        }
        /// Reads the object and drops a handle.
        fn lose(&self, me: usize) {
            self.read(0);
            if self.count.lose(&Me(self, me)) {
                reached("freed by a drop");
                self.free(0);
            }
        }
        /// Ends the owner. True if that freed the object.
        fn end(&self) -> bool {
            self.count.kill();
            fence(Ordering::SeqCst);
            for pin in &self.pins {
                while pin.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            }
            let last = self.count.fold(&Me(self, 0), 0);
            if last {
                reached("freed by the owner");
                self.free(0);
            }
            last
        }
        fn assert_freed(&self) {
            self.objects[0].with(|object| {
                // SAFETY: all threads have ended.
                assert_eq!(unsafe { *object }, FREED, "never freed");
            });
        }
    }

    /// S1, S2, O1, O2, O3: a handle is dropped while the owner ends. Fails if the word is loaded outside of the pin, if
    /// the fold comes before the wait, if `fold` is Relaxed, and without the bias.
    #[test]
    fn model_drop_while_killed() {
        Model::new(20, &["freed by a drop", "freed by the owner"]).check(|| {
            let world = World::new(1);
            let other = world.clone();
            let user = thread::spawn(move || other.lose(1));
            world.end();
            user.join().unwrap();
            world.assert_freed();
        });
    }

    /// S3, O3: two handles are dropped while the owner ends. Fails with a Relaxed `lose`, and without the bias: the
    /// first drop finds nothing counted on the word.
    #[test]
    fn model_two_drops_while_killed() {
        Model::new(100, &["freed by a drop", "freed by the owner"]).preemptions(2).check(|| {
            let world = World::new(2);
            let users = [1, 2].map(|me| {
                let other = world.clone();
                thread::spawn(move || other.lose(me))
            });
            world.end();
            users.into_iter().for_each(|user| user.join().unwrap());
            world.assert_freed();
        });
    }

    /// S1, S2: a thread that has a handle gains another while the owner ends, and drops both: each is counted in the
    /// cell or on the word. Fails if `gain` loads the word outside of the pin.
    #[test]
    fn model_gain_and_drop_while_killed() {
        Model::new(20, &["freed by a drop", "freed by the owner"]).preemptions(2).check(|| {
            let world = World::new(1);
            let other = world.clone();
            let user = thread::spawn(move || {
                other.count.gain(&Me(&other, 1));
                other.lose(1);
                other.lose(1);
            });
            world.end();
            user.join().unwrap();
            world.assert_freed();
        });
    }

    /// S4, O1: a thread without a handle gains one, and drops it, while the owner ends. Fails if `try_gain` raises a
    /// count of 0, or is not pinned.
    #[test]
    fn model_gain_while_killed() {
        let all = &["gained", "too late", "freed by a drop", "freed by the owner"];
        Model::new(20, all).check(|| {
            let world = World::new(0);
            let other = world.clone();
            let user = thread::spawn(move || {
                if other.count.try_gain(0, &Me(&other, 1)) {
                    reached("gained");
                    other.lose(1);
                } else {
                    reached("too late");
                }
            });
            world.end();
            user.join().unwrap();
            world.assert_freed();
        });
    }

    /// S4, O4: the word belongs to the next object when a thread gains by the generation of the first. Fails if
    /// generations are not compared. A thread that gains by the new generation sees its object: fails with a Relaxed
    /// `begin` or `try_gain`.
    #[test]
    fn model_gain_of_an_earlier_generation() {
        Model::new(20, &["the first", "the second", "neither"]).preemptions(3).check(|| {
            let world = World::new(0);
            let other = world.clone();
            let user = thread::spawn(move || {
                let me = Me(&other, 1);
                if other.count.try_gain(0, &me) {
                    reached("the first");
                    other.lose(1);
                } else if other.count.try_gain(1, &me) {
                    reached("the second");
                    other.read(1);
                } else {
                    reached("neither");
                }
            });
            if world.end() {
                assert!(world.count.end());
                world.objects[1].with_mut(|object| {
                    // SAFETY: of no generation yet; loom checks that no thread reads it.
                    unsafe { *object = 1 }
                });
                assert_eq!(world.count.begin(), 1);
            }
            user.join().unwrap();
            world.assert_freed();
        });
    }
}
