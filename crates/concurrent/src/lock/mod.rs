//! Locks that know their class.
//!
//! # Boundary
//! Supplies the classes' type, the order checker and the locks. Names no class itself: callers
//! declare theirs in one ordered list (`uvfs_vfs::lock_order`), as our arrows require.
//!
//! # Concurrency
//! A thread may take a lock only if its class ranks *after* every class it already holds. Debug
//! builds check this on every acquisition and panic with both names, so that a deadlock shows in
//! the first test that takes the two locks in the wrong order, without needing the unlucky
//! schedule. Release builds compile the check out.
//!
//! # Why
//! After gVisor's lock classes and Linux lockdep: the documented order is the checked order.

mod mutex;
pub mod order;
mod rwlock;

pub use mutex::{Condvar, Mutex, MutexGuard};
pub use order::LockClass;
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
