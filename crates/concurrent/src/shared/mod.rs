//! Shared ownership without a shared count: each thread counts in a cell of its own.
//!
//! ```
//! use uvfs_concurrent::shared::{Owner, Shared};
//!
//! let (owner, value) = Owner::new(String::from("held"));
//! let other = value.clone();
//! let found = value.downgrade();
//! assert_eq!(*found.upgrade().expect("there is an owner"), "held");
//! drop((owner, value));
//! assert_eq!(*other, "held");
//! drop(other);
//! assert!(found.upgrade().is_none());
//! ```
//!
//! # Boundary
//! The pointers and their memory. Protocol, invariants and orderings: `shared/count.rs`.
//!
//! # Concurrency
//! An object is freed when its [`Owner`] and every [`Shared`] are dropped, by the thread that drops the last of them.
//! While the owner exists, cloning and dropping a [`Shared`] stores to two words of the own thread: its epoch pin and
//! its cell. Afterwards handles are counted on one word, like an `Arc`'s. Dropping the owner waits for all threads that
//! were pinned when the drop began. If the dropping thread is itself pinned, a thread that collects garbage completes
//! the drop later.
//!
//! P1. A *seat* (count, cells, pointer) is never freed and serves one object after another; a [`Weak`] names the seat
//!     and the generation of its object.
//! P2. The pointer of a seat is stored before its generation begins, and may be read by a thread with a handle.
//!
//! # Why
//! All users of a file system clone and drop a pointer to it with each open file. An `Arc` made 64 cores wait for one
//! line (25,628 cycles for each open). A plain store to the thread's own line costs as much as an uncontended `Arc`.
//! Weakness: an object has one owner, whose drop is slow, and a seat takes a cell in each thread's block.

mod count;

#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
pub use seat::{Owner, Shared, Weak};
