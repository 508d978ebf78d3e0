//! Mutual exclusion with a lock class, and the condition variable for it.

// The lint that bans raw locks refers to this lock; its inner lock comes through `primitive`.
#![allow(clippy::disallowed_types)]

use super::meter::{self, Mode};
use super::order::{Entered, LockClass};
use crate::primitive::{raw, record};
use std::ops::{Deref, DerefMut};

/// A mutual-exclusion lock of a [`LockClass`]. Blocks; never poisons.
#[derive(Debug)]
pub struct Mutex<T> {
    class: &'static LockClass,
    raw: raw::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Protects `value` under `class`.
    pub fn new(class: &'static LockClass, value: T) -> Self {
        Self { class, raw: raw::Mutex::new(value) }
    }

    /// Takes the lock, waiting for it if necessary.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let entered = Entered::new(self.class);
        record::lock();
        let (raw, held) =
            meter::take(self.class, Mode::Mutex, || self.raw.try_lock(), || self.raw.lock());
        MutexGuard { raw, held, entered }
    }

    /// Takes the lock if it is free; never waits.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let Some(raw) = self.raw.try_lock() else {
            meter::rejected(self.class, Mode::Mutex);
            return None;
        };
        let entered = Entered::new(self.class);
        record::lock();
        let held = meter::taken_unwaited(self.class, Mode::Mutex);
        Some(MutexGuard { raw, held, entered })
    }

    /// Returns the value without locking: no other thread can have the mutex any more.
    pub fn into_inner(self) -> T {
        self.raw.into_inner()
    }
}

/// Proof that a [`Mutex`] is held; releases it when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // In the order in which they are dropped: release, record the hold time, leave the lock order.
    raw: raw::MutexGuard<'a, T>,
    held: meter::Held,
    entered: Entered,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.raw
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.raw
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.held.ending();
    }
}

#[cfg(not(loom))]
impl<'a, T> MutexGuard<'a, T> {
    /// Ends the hold for the meter, runs `sleep`, which releases the lock and takes it again, and begins another hold.
    #[track_caller]
    fn asleep<R>(&mut self, sleep: impl FnOnce(&mut raw::MutexGuard<'a, T>) -> R) -> R {
        let mut before = std::mem::replace(&mut self.held, meter::Held::untimed());
        before.ending();
        let result = sleep(&mut self.raw);
        drop(before);
        self.held = meter::taken_unwaited(self.entered.class(), Mode::Mutex);
        result
    }
}

/// A condition variable for use with [`Mutex`].
#[derive(Debug)]
pub struct Condvar(raw::Condvar);

impl Default for Condvar {
    fn default() -> Self {
        Self(raw::Condvar::new())
    }
}

impl Condvar {
    /// Releases `guard`, sleeps until notified (or until a spurious wake-up), and takes the lock again.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.asleep(|raw| self.0.wait(raw));
    }

    /// Waits as [`Condvar::wait`] does, for at most `limit`. Returns whether the time ran out.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: std::time::Duration) -> bool {
        guard.asleep(|raw| self.0.wait_for(raw, limit).timed_out())
    }

    /// Wakes one sleeper.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes every sleeper.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
