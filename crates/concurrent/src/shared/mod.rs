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
//! The pointers and their memory. Protocol, invariants and orderings: `shared/count.rs`; seats (P1, P2):
//! `shared/seat.rs`.
//!
//! # Concurrency
//! An object is freed when its [`Owner`] and every [`Shared`] are dropped, by the thread that drops the last of them.
//! While the owner exists, cloning and dropping a [`Shared`] stores to two words of the own thread: its epoch pin and
//! its cell. Afterwards handles are counted on one word, like an `Arc`'s. Dropping the owner waits for all threads that
//! were pinned when the drop began. If the dropping thread is itself pinned, a collector completes the drop later.

mod count;

#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
pub use seat::{Owner, Shared, Weak};
