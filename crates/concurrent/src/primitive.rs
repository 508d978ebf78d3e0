//! The one door to atomics, locks and threads.
//!
//! # Why
//! A model checker has to see every access. Code in this crate names its atomics and locks through
//! this module, so `RUSTFLAGS="--cfg loom"` swaps all of them at once; nothing else changes.
//!
//! # Boundary
//! Re-exports only. Lock *classes* are in [`crate::lock`].

#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(loom))]
pub use std::sync::atomic;

/// The raw locks below [`crate::lock`]: `parking_lot`, or loom's under the model checker.
pub(crate) mod raw {
    #[cfg(loom)]
    pub(crate) use self::modelled::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    // The facade itself: everybody else comes through it.
    #[allow(clippy::disallowed_types)]
    #[cfg(not(loom))]
    pub(crate) use parking_lot::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };

    /// loom's locks report poisoning; a model that panics has failed already, so unwrap it here.
    #[cfg(loom)]
    mod modelled {
        pub(crate) use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

        #[derive(Debug)]
        pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

        impl<T> Mutex<T> {
            pub(crate) fn new(value: T) -> Self {
                Self(loom::sync::Mutex::new(value))
            }
            pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
                self.0.lock().expect("a model thread panicked")
            }
            pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
                self.0.try_lock().ok()
            }
            pub(crate) fn into_inner(self) -> T {
                self.0.into_inner().expect("a model thread panicked")
            }
        }

        #[derive(Debug)]
        pub(crate) struct RwLock<T>(loom::sync::RwLock<T>);

        impl<T> RwLock<T> {
            pub(crate) fn new(value: T) -> Self {
                Self(loom::sync::RwLock::new(value))
            }
            pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
                self.0.read().expect("a model thread panicked")
            }
            pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
                self.0.write().expect("a model thread panicked")
            }
        }

        #[derive(Debug)]
        pub(crate) struct Condvar(loom::sync::Condvar);

        impl Condvar {
            pub(crate) fn new() -> Self {
                Self(loom::sync::Condvar::new())
            }
            pub(crate) fn notify_one(&self) {
                self.0.notify_one();
            }
            pub(crate) fn notify_all(&self) {
                self.0.notify_all();
            }
        }
    }
}
