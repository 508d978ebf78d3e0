//! Shared ownership whose count is no shared line: each thread counts in a cell of its own.
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
//! Pointers and the memory that they lead to. Protocol, invariants and orderings: `shared/count.rs`.
//!
//! # Concurrency
//! An object is freed when its [`Owner`] and every [`Shared`] are gone, by the thread that drops the last of them.
//! While there is the owner, cloning and dropping a [`Shared`] stores to two words of the own thread: its epoch pin and
//! its cell. Afterwards they count on one word, as an `Arc`. Dropping the owner waits until no thread is pinned that was
//! when it began; a thread that is pinned itself has that done later, by whoever collects garbage.
//!
//! P1. A *seat* (count, cells, pointer) is never freed and serves one object after another; a [`Weak`] names the seat and
//!     the generation of its object.
//! P2. The pointer of a seat is stored before its generation begins, and belongs to who has a handle.
//!
//! # Why
//! All users of a file system clone and drop a pointer to it with each open file. An `Arc` made 64 cores wait for one
//! line (25,628 cycles for each open); a plain store to the own line costs what an uncontended `Arc` costs. Weakness: an object has one
//! owner, whose drop is slow, and a seat takes a cell in each thread's block.

mod count;

#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
pub use seat::{Owner, Shared, Weak};
