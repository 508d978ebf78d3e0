//! Locks that know their class.
//!
//! # Boundary
//! Supplies the type of classes, the order checker, the meter and the locks. Names no class itself: each crate declares
//! its own by [`crate::lock_classes`], in its band of ranks.
//!
//! # Concurrency
//! A thread may take a lock only if its class ranks *after* every class it already holds. Debug builds
//! check this on every acquisition and panic with both names. So the first test that takes two locks in the wrong order
//! shows a deadlock, without an unlucky schedule. Release builds compile the check out. The [`meter`] is in all builds.
//! It counts, by class and call site, how often a lock is taken, held and waited for, in memory of the thread's own.
//!
//! # Why
//! After gVisor's lock classes and Linux lockdep: the documented order is the checked order.

pub mod bit;
#[cfg(not(loom))]
pub mod meter;
#[cfg(loom)]
#[path = "meter/off.rs"]
mod meter;
mod mutex;
pub mod order;
mod rwlock;

pub use mutex::{Condvar, Mutex, MutexGuard};
pub use order::LockClass;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
