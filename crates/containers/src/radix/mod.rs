//! Tagged radix tree: values by index, for example a file's pages by their number.
//!
//! Root word: `address:58 | level:6`. Node: `lock word | occupied:64 | parent | tags: 3 × 64 | shift |
//! offset`, one line; then 64 slots, eight lines. Lock word: free, `LOCKED`, or `DEAD`.
//!
//! ```text
//!   root word ──▶ node, level 2          tag word: one bit for each slot in which, or
//!                  │ slot ──▶ node, level 1        below which, a value has the tag
//!                  │           │ slot ──▶ leaf
//!                  │           │           │ slot: value
//!
//!            lock                            unlock
//!   free ─────────────▶ LOCKED ─────────────────────────▶ free
//!                          └── unlinked: unlock, for ever ──▶ DEAD ──▶ retired, freed
//!
//!   set:    find the leaf · lock it · lock upwards while the tag is absent · set bits from above
//!   clear:  find the leaf · lock it · clear its bit · while that was the last: lock the parent,
//!           clear the bit there, unlock the child, repeat one level up
//! ```
//!
//! # Boundary
//! Owns nodes, their locks and tags. The caller defines the values: any number but 0. Does not know pages;
//! [`uvfs_concurrent::epoch`] decides when a node may be freed.
//!
//! # Concurrency
//! The locking rule in three sentences. Lookups, searches and descents take no lock, only a pin of the epoch. A thread
//! that changes a node's slots, tag words or parent pointer holds that node's lock. Locks are taken from the child to
//! the parent, hand over hand, and a child stays locked until the parent's bit or slot has followed.
//!
//! R1. A node's range of indexes never changes. So a descent needs no validation: a thread that holds the leaf that it
//!     found, and finds it alive, holds the leaf of the index. Otherwise it starts again from the root.
//! R2. Only the holder of a node's lock changes its slots, occupied word, tags and parent pointer. Only the holder of
//!     the root node changes the root word; from 0 it is changed by a compare-exchange.
//! R3. The holder of a linked node may rely on its parent. It is linked and leads to this node, because it cannot lose
//!     this child without this child's lock.
//! R4. Every linked node has an occupied slot whenever its lock is free. A thread that holds a node and its parent
//!     unlinks the node; it becomes `DEAD`, is never locked again, and is retired once.
//! R5. At every instant, a value that has a tag is in its slot and its slot is occupied. If a node's word for a tag is
//!     not 0, the parent's bit is set, up to the root. So no bit above is missing. A surplus bit may exist while a
//!     thread holds the node below; when no lock is held, the bits are exact. Hence the order of steps: a tag is set
//!     from above to below and cleared from below to above. A slot is noted as occupied before it is filled and as
//!     empty after it is emptied. A removal clears the tags, then the slot.
//! R6. Nodes are freed when no pin is left that could have found them.
//! R7. The tree grows by a node above the root, which gets the old root's tags. It shrinks by one when the root has
//!     only a node in slot 0. The old root is held in both cases, and the new one when the tree shrinks. A root that
//!     was removed keeps its slot, so a reader inside it can continue.
//!
//! O1. `Node::store`, `Core::set_root`, `Core::plant` (Release) → `Node::load`, `Core::root` (Acquire): a thread that
//!     finds a node or a value sees its content.
//! O2. `Word::unlock`, `Node::unlock_dead` (Release) → `Word::lock` (Acquire): holders see one another.
//! O3. `Node::set_tags` (Release) → `Node::tags` (Acquire): a thread that sees a bit sees those above it.
//! O4. `Node::occupy` (Release) → `Node::occupied` (Acquire): a thread that misses a slot in a search does not find its
//!     old value afterwards.
//!
//! Progress: lookups are wait-free. So are searches, apart from one more descent for every subtree that turns out to be
//! empty. A thread that changes a node waits for the node's holder: it steps back for a moment (`wait`), spins, then
//! yields the processor between attempts.
//! Checked by the models in `models` (named there), by `random_operations_agree_with_a_map`,
//! `every_index_has_a_history_that_can_be_explained` and `a_tag_is_found_although_the_neighbours_clear_theirs`.

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
