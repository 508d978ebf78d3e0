//! Reader-writer lock with a lock class.

use super::meter::{self, Mode};
use super::order::{Entered, LockClass};
use crate::primitive::{raw, record};
use std::ops::{Deref, DerefMut};

/// A reader-writer lock of a [`LockClass`]. Blocks; never poisons. Not recursive, also for readers.
#[derive(Debug)]
pub struct RwLock<T> {
    class: &'static LockClass,
    raw: raw::RwLock<T>,
}

impl<T> RwLock<T> {
    /// Protects `value` under `class`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { class, raw: raw::RwLock::new(value) }
    }

    /// Takes the lock shared, waiting for a writer if necessary.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let entered = Entered::new(self.class);
        record::lock();
        let (raw, held) =
            meter::take(self.class, Mode::Read, || self.raw.try_read(), || self.raw.read());
        RwLockReadGuard { raw, held, _entered: entered }
    }

    /// Takes the lock exclusively, waiting for readers and writers if necessary.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.write_as(self.class)
    }

    /// Locks as [`RwLock::write`] does, under another class than the lock's own, for a thread that already holds a lock
    /// of that class. The caller orders several locks of one kind; with one class for each place in that order, the
    /// checker and the meter distinguish them.
    #[inline]
    #[track_caller]
    pub fn write_as(&self, class: &'static LockClass) -> RwLockWriteGuard<'_, T> {
        let entered = Entered::new(class);
        record::lock();
        let (raw, held) =
            meter::take(class, Mode::Write, || self.raw.try_write(), || self.raw.write());
        RwLockWriteGuard { raw, held, _entered: entered }
    }
}

/// Proof that a [`RwLock`] is held shared.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    // In the order in which they are dropped: release, record the hold time, leave the lock order.
    raw: raw::RwLockReadGuard<'a, T>,
    held: meter::Held,
    _entered: Entered,
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ending();
    }
}

/// Proof that a [`RwLock`] is held exclusively.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    // In the order in which they are dropped: release, record the hold time, leave the lock order.
    raw: raw::RwLockWriteGuard<'a, T>,
    held: meter::Held,
    _entered: Entered,
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ending();
    }
}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::*;

    static FIRST: LockClass = LockClass::new(1, "first", "test");
    static SECOND: LockClass = LockClass::new(2, "second", "test");

    #[test]
    fn a_second_lock_of_a_class_is_taken_under_the_next() {
        let (one, other) = (RwLock::new(&FIRST, 1), RwLock::new(&FIRST, 2));
        let held = one.write();
        *other.write_as(&SECOND) += *held;
        drop(held);
        assert_eq!(*other.read(), 3);
    }

    #[test]
    #[should_panic(expected = "taking `first` (rank 1) while holding `second`")]
    fn the_class_it_is_taken_under_is_what_counts() {
        let (one, other) = (RwLock::new(&FIRST, ()), RwLock::new(&FIRST, ()));
        let _held = other.write_as(&SECOND);
        let _later = one.write();
    }
}
