//! Tagged radix tree: indexes to values, as a file's pages by their number.
//!
//! Root word: `address:58 | level:6`. Node: `lock word | occupied:64 | parent | tags: 3 × 64 | shift |
//! offset`, one line; then 64 slots, eight lines. Lock word: free, `LOCKED`, or `DEAD`.
//!
//! ```text
//!   root word ──▶ node, level 2          tag word: one bit for each slot below which, or in
//!                  │ slot ──▶ node, level 1        which, there is a value with the tag
//!                  │           │ slot ──▶ leaf
//!                  │           │           │ slot: value
//!
//!            lock                            unlock
//!   free ─────────────▶ LOCKED ─────────────────────────▶ free
//!                          └── unlinked: unlock, for ever ──▶ DEAD ──▶ retired, freed
//!
//!   set:    find the leaf · lock it · lock upwards while the tag is absent · set bits from above
//!   clear:  find the leaf · lock it · clear its bit · while that was the last: lock the parent,
//!           clear the bit there, unlock the child, go up
//! ```
//!
//! # Boundary
//! Owns nodes, their locks and tags. What a value means is the caller's: any number but 0. Knows
//! nothing of pages; [`crate::epoch`] says when a node may be freed.
//!
//! # Concurrency
//! The locking rule in three sentences. Lookups, searches and descents take no lock, only a pin of the
//! epoch. Whatever changes a node's slots, its tag words or its parent pointer holds that node's lock.
//! Locks are taken from the child to the parent, hand over hand, and a child stays locked until the
//! parent's bit or slot has followed.
//!
//! R1. A node's range of indexes never changes. So a descent needs no validation: who holds the leaf that
//!     it found, and finds it alive, holds the leaf of the index; else it starts again from the root.
//! R2. A node's slots, occupied word, tags and parent pointer are changed by who holds its lock; the
//!     root word, by who holds the node that it leads to, and from 0 by a compare-exchange.
//! R3. Who holds a linked node may rely on its parent: it is linked, and leads here, as it cannot lose
//!     this child without this child's lock.
//! R4. Every linked node has an occupied slot whenever its lock is free. A node is unlinked by who holds
//!     it and its parent, becomes `DEAD`, is never locked again, and is retired once.
//! R5. At every instant: a value that has a tag is in its slot and its slot is occupied; and if a
//!     node's word for a tag is not 0, the parent's bit is set, up to the root. The bits above are thus
//!     never too few. They may be too many while somebody holds the node below; when no lock is
//!     held they are exact. Hence the order of steps: a tag is set from above to below and cleared from
//!     below to above; a slot is noted as occupied before it is filled and after it is emptied; and a
//!     removal clears the tags, then the slot.
//! R6. Nodes are freed when no pin is left that could have found them.
//! R7. The tree grows by a node above the root, which gets the old root's tags, and shrinks by one when
//!     the root has nothing but a node in slot 0; the old root is held in both, and when it shrinks,
//!     so is the new one. A root that was shrunk away keeps its slot, so who is in it gets on.
//!
//! Why a tag is never lost. The classic failure: one clears the last bit of a leaf and goes up; another
//! sets a bit there, sees the parent's bit still set, and is content; then the parent's bit is cleared,
//! and no search finds the tag. Here the other waits for the leaf, which is held until the parent's
//! bit is cleared, and then sets both. *Without a lock*: [`Tree::set_tag`] returns at once when the leaf's
//! bit is set. At the instant of that load the value is there and every bit above is set (R5), because
//! who set the bit did so after those above; the load takes over what that thread did (O3), so a search
//! that begins afterwards does not see older words. Those bits go only after this bit goes, by a
//! clear that comes after this call in the order of the leaf's word: a clear that is on its way up from
//! this leaf has emptied its word before, so it would not have let us see the bit. [`Tree::clear_tag`]
//! returns at once when the bit is clear: the tag is gone at that instant; bits above may stand for a
//! moment, until who cleared it is through, and a search below them finds nothing.
//!
//! Why a lookup is right although its node may be unlinked meanwhile: the node was linked when it was
//! found, and empty of the index when it was unlinked (R4, R7), which is within the call.
//!
//! O1. `Node::store`, `Core::set_root`, `Core::plant` (Release) → `Node::load`, `Core::root`
//!     (Acquire): who finds a node or a value sees what is in it.
//! O2. `Word::unlock`, `Node::unlock_dead` (Release) → `Word::lock` (Acquire): holders see one another.
//! O3. `Node::set_tags` (Release) → `Node::tags` (Acquire): who sees a bit sees those above it.
//! O4. `Node::occupy` (Release) → `Node::occupied` (Acquire): who misses a slot in a search does not
//!     find its old value afterwards.
//!
//! Progress: lookups are wait-free; searches too, but for one more descent for every subtree that
//! turns out to be without content. Who changes something waits for who holds the same node: it
//! steps back for a moment (`wait`), spins, then yields the processor between tries.
//! Checked by the models in `models` (named there), by `random_operations_agree_with_a_map`,
//! `every_index_has_a_history_that_can_be_explained` and
//! `a_tag_is_found_although_the_neighbours_clear_theirs`.
//!
//! Two other ways to lock, in `paper`, are compiled for tests and for the bench that compares with them.
//!
//! # Locks and the meter
//! An operation enters its lock class once, whatever number of nodes it locks, so debug builds check its
//! place among other classes; the order within the tree is R3. The meter hears only of acquisitions
//! that had to wait: telling it of the others costs as much as the operation.
//!
//! # Why
//! Zijlstra, "Concurrent Pagecache" (Ottawa Linux Symposium 2007), broke the tree's lock into one for
//! each node and found that locks taken from the root down make the root as busy as the one lock was;
//! its section 5 locks optimistically from the leaf instead, and falls back to the locks from above.
//! Here there is nothing to fall back to: ranges that never change (R1) make the test for `DEAD`
//! enough. Linux keeps one lock, and one store of a page at a time. Weakness: a sparse tree pays a node of 576
//! bytes for each value; threads that change neighbours within 64 indexes of each other fight over a
//! leaf's header; one slow holder makes others wait.

mod gang;
mod locking;
mod node;
#[cfg(any(feature = "paper-locks", test))]
mod paper;
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

pub use locking::{Locking, Optimistic};
#[cfg(any(feature = "paper-locks", test))]
pub use paper::{LadderPath, Serial};
pub use tags::{Tag, TagMask};
pub use tree::Tree;
#[cfg(not(loom))]
pub use tree::bytes_of_all;
