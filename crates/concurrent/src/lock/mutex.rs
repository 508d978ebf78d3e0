//! Mutual exclusion with a lock class, and the condition variable that goes with it.

// This is the lock that the ban points to; what it wraps comes through `primitive`.
#![allow(clippy::disallowed_types)]

use super::meter::{self, Mode};
use super::order::{self, LockClass};
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

    /// Takes the lock, waiting for it if need be.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        order::entering(self.class);
        record::lock();
        let (raw, held) =
            meter::take(self.class, Mode::Mutex, || self.raw.try_lock(), || self.raw.lock());
        MutexGuard { raw: Some(raw), held, class: self.class }
    }

    /// Takes the lock if it is free; never waits.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let Some(raw) = self.raw.try_lock() else {
            meter::rejected(self.class, Mode::Mutex);
            return None;
        };
        order::entering(self.class);
        record::lock();
        let held = meter::taken_unwaited(self.class, Mode::Mutex);
        Some(MutexGuard { raw: Some(raw), held, class: self.class })
    }

    /// Gives the value back, without locking: nobody else can have the mutex any more.
    pub fn into_inner(self) -> T {
        self.raw.into_inner()
    }
}

/// Proof that a [`Mutex`] is held; releases it when dropped.
#[derive(Debug)]
pub struct MutexGuard<'a, T> {
    // `None` only inside `drop`.
    raw: Option<raw::MutexGuard<'a, T>>,
    held: meter::Held,
    class: &'static LockClass,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.raw.as_ref().expect("held until dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.raw.as_mut().expect("held until dropped")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let raw = &mut self.raw;
        self.held.end(|| drop(raw.take()));
        order::leaving(self.class);
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
    /// Releases `guard`, sleeps until notified (or for no reason), and takes the lock again.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let raw = guard.raw.as_mut().expect("held until dropped");
        guard.held.end(|| self.0.wait(raw));
        guard.held = meter::taken_unwaited(guard.class, Mode::Mutex);
    }

    /// As [`Condvar::wait`], for at most `limit`. Says whether the time ran out.
    #[cfg(not(loom))]
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: std::time::Duration) -> bool {
        let raw = guard.raw.as_mut().expect("held until dropped");
        let mut timed_out = false;
        guard.held.end(|| timed_out = self.0.wait_for(raw, limit).timed_out());
        guard.held = meter::taken_unwaited(guard.class, Mode::Mutex);
        timed_out
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
