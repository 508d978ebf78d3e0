//! Locks that know their class.
//!
//! # Boundary
//! Supplies the classes' type, the order checker, the meter and the locks. Names no class itself: callers
//! declare theirs by [`crate::lock_classes`], each crate its own, in its band of ranks.
//!
//! # Concurrency
//! A thread may take a lock only if its class ranks *after* every class it already holds. Debug
//! builds check this on every acquisition and panic with both names, so that a deadlock shows in
//! the first test that takes the two locks in the wrong order, without needing the unlucky
//! schedule. Release builds compile the check out. The [`meter`] is in all builds: it counts, by class
//! and call site, how often a lock is taken, held and waited for, in memory of the thread's own.
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
