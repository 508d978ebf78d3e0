//! Mutual exclusion with a lock class, and the condition variable that goes with it.

// This is the lock that the ban points to; what it wraps comes through `primitive`.
#![allow(clippy::disallowed_types)]

use super::order::{self, LockClass};
use crate::primitive::raw;
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
    pub fn lock(&self) -> MutexGuard<'_, T> {
        order::entering(self.class);
        MutexGuard { raw: Some(self.raw.lock()), class: self.class }
    }

    /// Takes the lock if it is free; never waits.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let raw = self.raw.try_lock()?;
        order::entering(self.class);
        Some(MutexGuard { raw: Some(raw), class: self.class })
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
    fn drop(&mut self) {
        self.raw.take();
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
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(guard.raw.as_mut().expect("held until dropped"));
    }

    /// As [`Condvar::wait`], for at most `limit`. Says whether the time ran out.
    #[cfg(not(loom))]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: std::time::Duration) -> bool {
        self.0.wait_for(guard.raw.as_mut().expect("held until dropped"), limit).timed_out()
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
