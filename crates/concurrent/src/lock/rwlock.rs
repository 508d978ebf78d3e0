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

    /// Takes the lock shared, waiting for a writer if need be.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let entered = Entered::new(self.class);
        record::lock();
        let (raw, held) =
            meter::take(self.class, Mode::Read, || self.raw.try_read(), || self.raw.read());
        RwLockReadGuard { raw, held, _entered: entered }
    }

    /// Takes the lock alone, waiting for readers and writers if need be.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let entered = Entered::new(self.class);
        record::lock();
        let (raw, held) =
            meter::take(self.class, Mode::Write, || self.raw.try_write(), || self.raw.write());
        RwLockWriteGuard { raw, held, _entered: entered }
    }
}

/// Proof that a [`RwLock`] is held shared.
#[derive(Debug)]
pub struct RwLockReadGuard<'a, T> {
    // In the order in which they are dropped: release, note how long it was, leave the lock order.
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

/// Proof that a [`RwLock`] is held alone.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    // In the order in which they are dropped: release, note how long it was, leave the lock order.
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
