//! One value that many threads read and few replace as a whole.
//!
//! # Boundary
//! A pointer to the present value. A reader sees one value as long as its guard lives. A writer makes the next value
//! from the present one and replaces it. Two writers that start from one value lose a change, so writers take a lock of
//! their own.
//!
//! # Why
//! As the kernel's `rcu_assign_pointer` and `rcu_dereference`. A read is one load, and the value may be of any size.
//! The old value returns to the writer ([`Replaced::wait`]): its drop may do more than free memory, and a collector
//! runs under any lock of its caller.
//! Weakness: a change copies everything; `wait` waits for the slowest reader.
//!
//! # Protocol
//! U1. `current` points to a value that no thread writes to; it comes from `Box` and is freed once.
//! U2. A value leaves `current` by exactly one `replace`, whose `Replaced` owns it from then on.
//! U3. A `Replaced` frees its value only when every guard that existed at the time is gone. Every reader of the value
//!     has such a guard.
//!
//! O1. `replace` (Release) → `read` (Acquire): a thread that finds the value sees it initialized.
//! O2. `replace` (Acquire) ← the earlier `replace` (Release): so does the thread that frees it.
//!
//! Progress: `read` and `replace` are wait-free; `wait` waits for readers.
//! Checked by `model_a_replaced_value_outlives_its_readers` and `model_dropped_replaced_values_go` (`cargo xtask
//! model`). No model fails without O2: a fence nearby (in `pin` and in `synchronize`) suffices.

use crate::epoch::{self, Guard};
use crate::primitive::atomic::{AtomicPtr, Ordering};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// A cell with one replaceable value. The protocol is in the module's documentation.
pub struct Published<T> {
    current: AtomicPtr<T>,
    owns: PhantomData<T>,
}

impl<T: Send + Sync + 'static> Published<T> {
    /// Publishes `value`.
    pub fn new(value: T) -> Self {
        Self { current: AtomicPtr::new(Box::into_raw(Box::new(value))), owns: PhantomData }
    }

    /// The present value. It stays unchanged while `guard` lives, whatever is published.
    #[inline]
    pub fn read<'g>(&'g self, _guard: &'g Guard) -> &'g T {
        // ORDERING: Acquire, partner `replace` (O1).
        let value = self.current.load(Ordering::Acquire);
        // SAFETY: never null (U1), and not freed while the guard lives (U3); `drop` of the cell is
        // excluded by the borrow of `self`.
        unsafe { &*value }
    }

    /// Publishes `value` in place of the present value.
    pub fn replace(&self, value: T) -> Replaced<T> {
        let new = Box::into_raw(Box::new(value));
        // ORDERING: AcqRel; Release for `read` (O1), Acquire because this thread now owns the old one (O2).
        let old = self.current.swap(new, Ordering::AcqRel);
        // SAFETY: `current` is never null (U1).
        Replaced(unsafe { NonNull::new_unchecked(old) })
    }
}

impl<T> Drop for Published<T> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the cell is borrowed exclusively.
        let value = self.current.load(Ordering::Relaxed);
        // SAFETY: from `Box` (U1), and a reader borrows the cell, so there is none.
        drop(unsafe { Box::from_raw(value) });
    }
}

impl<T> fmt::Debug for Published<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Published").finish_non_exhaustive()
    }
}

/// A replaced value that readers may still see. If dropped, the value is freed after those readers.
#[must_use = "if it is dropped, any thread that collects drops the value later"]
pub struct Replaced<T: Send + Sync + 'static>(NonNull<T>);

impl<T: Send + Sync + 'static> Replaced<T> {
    /// Waits until no reader sees the value any more.
    ///
    /// # Panics
    /// If this thread holds a guard: it would wait for itself. The value is then freed later.
    pub fn wait(self) -> T {
        epoch::synchronize();
        let value = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: owned (U2), from `Box` (U1), and every guard of that time is gone (U3).
        *unsafe { Box::from_raw(value.as_ptr()) }
    }
}

impl<T: Send + Sync + 'static> Drop for Replaced<T> {
    fn drop(&mut self) {
        /// Frees a replaced value.
        ///
        /// # Safety
        /// `value` is a `T` from `Box`, and no other pointer to it is used.
        unsafe fn free<T>(value: *mut ()) {
            // SAFETY: the caller's promise.
            drop(unsafe { Box::from_raw(value.cast::<T>()) });
        }
        let guard = epoch::pin();
        // SAFETY: unreachable for later readers (U2), freed once and on any thread (`T` is `Send`), when no guard of
        // this time remains (U3).
        unsafe { guard.retire(size_of::<T>(), self.0.as_ptr().cast(), free::<T>) };
    }
}

impl<T: Send + Sync + 'static> fmt::Debug for Replaced<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Replaced").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_guard_keeps_the_value_it_has_read() {
        let value = Arc::new(1);
        let published = Published::new(value.clone());
        let guard = epoch::pin();
        let seen = published.read(&guard);
        let replaced = published.replace(Arc::new(2));
        assert_eq!((**seen, **published.read(&guard)), (1, 2));
        drop(guard);
        assert!(Arc::ptr_eq(&value, &replaced.wait()));
        assert_eq!(Arc::strong_count(&value), 1);
        drop(published);
    }

    #[test]
    fn what_is_not_waited_for_goes_later() {
        let value = Arc::new(1);
        let published = Published::new(value.clone());
        drop(published.replace(Arc::new(2)));
        while Arc::strong_count(&value) > 1 {
            epoch::collect();
            std::thread::yield_now();
        }
    }

    #[test]
    fn waiting_under_a_guard_is_refused_and_loses_nothing() {
        let value = Arc::new(1);
        let published = Published::new(value.clone());
        let guard = epoch::pin();
        let replaced = published.replace(Arc::new(2));
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| replaced.wait()));
        assert!(waited.is_err() && Arc::strong_count(&value) == 2);
        drop(guard);
        while Arc::strong_count(&value) > 1 {
            epoch::collect();
            std::thread::yield_now();
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// A value that loom watches: a read races with a thread that makes or drops it out of order.
    struct Watched(UnsafeCell<u64>);

    // SAFETY: written before it is published and dropped after the last reader; loom checks that.
    unsafe impl Sync for Watched {}
    // SAFETY: written before it is published and dropped after the last reader; loom checks that.
    unsafe impl Send for Watched {}

    impl Watched {
        /// Written after it was made: loom dates the cell's creation at the last atomic step before it.
        fn new(value: u64) -> Self {
            let made = Self(UnsafeCell::new(0));
            made.set(value);
            made
        }

        fn set(&self, value: u64) {
            self.0.with_mut(|content| {
                // SAFETY: before it is published or after the last reader, as claimed for `Sync`.
                unsafe { *content = value }
            });
        }

        fn read(&self) -> u64 {
            self.0.with(|content| {
                // SAFETY: after it is published and before it is dropped, as claimed for `Sync`.
                unsafe { *content }
            })
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                self.set(u64::MAX);
            }
        }
    }

    fn reads(published: &Published<Watched>) {
        let guard = epoch::pin();
        let first = published.read(&guard);
        let seen = first.read();
        reached(if seen == 1 { "the old value" } else { "the new value" });
        assert!(seen == 1 || seen == 2, "made before it is seen");
        assert!(published.read(&guard).read() >= seen, "never an older one");
        assert_eq!(first.read(), seen, "read after free");
    }

    /// U2, U3, O1, O2. Fails with a Relaxed load in `read`, with a Relaxed swap in `replace`, and
    /// without the wait in `wait`.
    #[test]
    fn model_a_replaced_value_outlives_its_readers() {
        Model::new(500, &["the old value", "the new value"]).preemptions(2).check(|| {
            let published = Arc::new(Published::new(Watched::new(1)));
            let reader = {
                let published = published.clone();
                thread::spawn(move || reads(&published))
            };
            drop(published.replace(Watched::new(2)).wait());
            reader.join().unwrap();
        });
    }

    /// U3: the same for a value for which no thread waits. Fails if `drop` frees at once.
    #[test]
    fn model_dropped_replaced_values_go() {
        Model::new(500, &["the old value", "the new value"]).preemptions(2).check(|| {
            let published = Arc::new(Published::new(Watched::new(1)));
            let reader = {
                let published = published.clone();
                thread::spawn(move || reads(&published))
            };
            drop(published.replace(Watched::new(2)));
            epoch::collect();
            reader.join().unwrap();
        });
    }

    /// U2: two replacers each own the value that they removed, which may be another thread's. Fails if `replace` loads
    /// and stores in two steps.
    #[test]
    fn model_two_replacers() {
        Model::new(500, &["ours over theirs", "theirs over ours"]).preemptions(2).check(|| {
            let published = Arc::new(Published::new(Watched::new(1)));
            let replace = |published: &Published<Watched>, value| {
                let old = published.replace(Watched::new(value));
                old.wait().read()
            };
            let other = published.clone();
            let thread = thread::spawn(move || replace(&other, 2));
            let (mine, theirs) = (replace(&published, 3), thread.join().unwrap());
            match (mine, theirs) {
                (2, 1) => reached("ours over theirs"),
                (1, 3) => reached("theirs over ours"),
                other => panic!("replaced {other:?}"),
            }
        });
    }
}
