//! A box that is made when it is first needed: one word.
//!
//! # Word
//! ```text
//!  null ──make──► pointer to the value ──drop──► (freed)
//! ```
//! # Invariants
//! L1. The pointer is null, or it came from `Box::into_raw` and belongs to this word only.
//! L2. It changes once: from null, by the one compare-and-swap that succeeds. A maker whose swap fails frees its own
//!     value again.
//!
//! O1. the swap that publishes (Release) → `get` and the failed swap (Acquire): a thread that sees the pointer sees the
//!     value.
//!
//! Progress: lock-free; no thread waits for a maker.
//! Checked by `model_one_of_two_makers_wins`.
//!
//! # Why
//! `OnceLock<Box<T>>` is two words: one shows whether the other is set. If each of a million objects has one, and few
//! are set, that is one line more for every fifth of them. Weakness: concurrent makers each make a value, so it must be
//! cheap to make and without effects.

use crate::primitive::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

/// A pointer to a value that is made on first use. The protocol is in the module's documentation.
pub struct LazyBox<T> {
    word: AtomicPtr<T>,
    /// The word owns a `T`, which the type of an atomic pointer does not express.
    owns: PhantomData<Box<T>>,
}

impl<T> LazyBox<T> {
    /// An empty word.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// An empty word.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { word: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // ORDERING: Acquire, partner `get_or_make` (O1).
        let made = self.word.load(Ordering::Acquire);
        // SAFETY: by L1 and L2 it is null or stays valid as long as `self` is borrowed; O1.
        unsafe { made.as_ref() }
    }

    /// The value, made now or before; true if it is the one that this call's `make` made.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> (&T, bool) {
        if let Some(made) = self.get() {
            return (made, false);
        }
        let mine = Box::into_raw(Box::new(make()));
        // ORDERING: Release, partner `get` (O1): the word was null. Acquire on failure, partner the swap of the thread
        // that made the value.
        let swap = (Ordering::Release, Ordering::Acquire);
        match self.word.compare_exchange(ptr::null_mut(), mine, swap.0, swap.1) {
            // SAFETY: the word owns it now, and frees it only when dropped (L2).
            Ok(_) => (unsafe { &*mine }, true),
            Err(made) => {
                // SAFETY: the swap failed, so no other thread has seen it (L2).
                drop(unsafe { Box::from_raw(mine) });
                // SAFETY: not null, since the swap failed (L1, L2); O1.
                (unsafe { &*made }, false)
            }
        }
    }
}

impl<T> Drop for LazyBox<T> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the box is owned exclusively, so the stores of all makers came before.
        let made = self.word.load(Ordering::Relaxed);
        if !made.is_null() {
            // SAFETY: from `Box::into_raw`, and only this word has it (L1).
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

impl<T> Default for LazyBox<T> {
    fn default() -> Self {
        Self::new()
    }
}

// SAFETY: the word moves an owned `T` (L1).
unsafe impl<T: Send> Send for LazyBox<T> {}
// SAFETY: `&self` yields `&T` (needs Sync); a `T` may be dropped by another thread (needs Send).
unsafe impl<T: Send + Sync> Sync for LazyBox<T> {}

impl<T: fmt::Debug> fmt::Debug for LazyBox<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("LazyBox").field(&self.get()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn it_is_one_word_and_is_made_once() {
        assert_eq!(size_of::<LazyBox<[u64; 9]>>(), size_of::<usize>());
        let (lazy, counted) = (LazyBox::new(), Arc::new(()));
        assert!(lazy.get().is_none());
        assert!(lazy.get_or_make(|| counted.clone()).1);
        assert!(!lazy.get_or_make(|| unreachable!("made already")).1);
        assert!(lazy.get().is_some());
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(lazy);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn makers_that_meet_leave_one() {
        let counted = Arc::new(());
        for _ in 0..500 {
            let lazy = LazyBox::new();
            let won = std::thread::scope(|scope| {
                let make = || lazy.get_or_make(|| counted.clone()).1;
                let makers = [scope.spawn(make), scope.spawn(make)];
                makers.map(|maker| maker.join().unwrap())
            });
            assert_eq!(won.into_iter().filter(|&won| won).count(), 1);
            assert_eq!(Arc::strong_count(&counted), 2);
        }
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// O1: a thread that sees the pointer sees the value, whichever thread made it.
    #[test]
    fn model_one_of_two_makers_wins() {
        Model::new(300, &["seen by a reader", "made in vain"]).check(|| {
            let lazy = Arc::new(LazyBox::<UnsafeCell<u32>>::new());
            let make = |lazy: &LazyBox<UnsafeCell<u32>>| {
                let mut tried = false;
                let (made, mine) = lazy.get_or_make(|| {
                    tried = true;
                    let cell = UnsafeCell::new(0);
                    // SAFETY: no other thread has it yet; loom checks it.
                    cell.with_mut(|at| unsafe { *at = 7 });
                    cell
                });
                if tried && !mine {
                    reached("made in vain");
                }
                // SAFETY: no thread writes it any more; loom checks it.
                assert_eq!(made.with(|at| unsafe { *at }), 7);
                mine
            };
            let other = lazy.clone();
            let thread = thread::spawn(move || make(&other));
            let reader = lazy.clone();
            let look = thread::spawn(move || {
                if let Some(made) = reader.get() {
                    reached("seen by a reader");
                    // SAFETY: no thread writes it any more; loom checks it.
                    assert_eq!(made.with(|at| unsafe { *at }), 7);
                }
            });
            let mine = make(&lazy);
            assert!(mine != thread.join().unwrap());
            look.join().unwrap();
        });
    }
}
