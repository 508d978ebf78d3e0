//! Tagged radix tree: values by index, for example a file's pages by their number.
//!
//! Root word: `address:58 | level:6`; a node is one line for lock, tags and parent, then 64 slots in eight lines.
//!
//! ```text
//!   root word ──▶ node, level 2          tag word: one bit for each slot in which, or
//!                  │ slot ──▶ node, level 1        below which, a value has the tag
//!                  │           │ slot ──▶ leaf
//!                  │           │           │ slot: value
//! ```
//!
//! # Boundary
//! Owns nodes, their locks and tags. The caller defines the values: any number but 0. Does not know pages;
//! [`uvfs_concurrent::epoch`] decides when a node may be freed.
//!
//! # Concurrency
//! Lookups, searches and descents take no lock, only a pin of the epoch. A thread that changes a node's slots, tag
//! words or parent pointer holds that node's lock. Locks are taken from the child to the parent, hand over hand, and a
//! child stays locked until the parent's bit or slot has followed. `docs/protocols/radix.md` has the states, the
//! invariants and the orderings: fixed ranges (R1); rights of the holder (R2); the linked parent (R3); empty nodes die
//! (R4); tags and occupied slots (R5); frees (R6); growth (R7); O1 to O4.
//!
//! Progress: lookups are wait-free, and searches but for one more descent for every empty subtree. A thread that
//! changes a node waits for its holder. Checked by `models`, and by the tests that the page names.

mod gang;
mod locking;
mod node;
mod range;
#[cfg(loom)]
#[path = "../name_table/stand_in.rs"]
mod stand_in;
mod tags;
mod tree;
mod wait;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use tags::{Tag, TagMask};
pub use tree::Tree;
#[cfg(not(loom))]
pub use tree::bytes_of_all;
