//! The one door to atomics, locks and threads.
//!
//! # Why
//! A model checker must see every access. Code in this crate names its atomics and locks through this module, so
//! `RUSTFLAGS="--cfg loom"` swaps all of them at once; nothing else changes. The atomics of the models show the checker
//! orders that it would miss, and the runner fails models that explore nothing (`primitive/modelled.rs`,
//! `primitive/model.rs`). The same door lets a test count accesses: in builds with debug assertions the atomics record
//! the accesses of their thread ([`record::tally`]). So "this operation stores to no shared line" is a test and not a
//! claim. In release builds they are `std`'s own types.
//!
//! # Boundary
//! Re-exports and the recording wrappers. Lock *classes* are in [`crate::lock`].

#[cfg(all(debug_assertions, not(loom)))]
pub mod atomic;
pub mod record;

#[cfg(loom)]
#[path = "primitive/modelled.rs"]
pub mod atomic;
#[cfg(loom)]
pub mod model;
#[cfg(not(any(loom, debug_assertions)))]
pub use std::sync::atomic;

/// Atomics to which only one thread at a time ever stores; others at most load them. Not tallied.
///
/// A tally shows whether an operation makes cores wait for each other. A store does that only when another thread
/// stores to the same cache line, or needs the newest value to continue. No other thread stores to these words, and
/// they lie on lines of their own. Their readers (a report, the rare side of an epoch) are not on the path of the
/// operation being tallied, so the line stays with its writer. A word to which *any* second thread may store belongs in
/// [`atomic`], however rarely that happens.
pub(crate) mod owned {
    #[cfg(loom)]
    pub(crate) use super::atomic::*;
    #[cfg(not(loom))]
    pub(crate) use std::sync::atomic::*;
}

/// `std`'s atomics, which neither a model nor a tally sees: statistics, by which nothing is reached, and words that are
/// no fields. Each use states its reason.
pub mod unseen {
    pub use std::sync::atomic::*;
}

/// The raw locks below [`crate::lock`]: `parking_lot`, or loom's under the model checker.
pub(crate) mod raw {
    #[cfg(loom)]
    pub(crate) use self::modelled::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    // The facade itself: all other code uses it.
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
            pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
                self.0.try_read().ok()
            }
            pub(crate) fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
                self.0.try_write().ok()
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
