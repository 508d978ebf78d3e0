//! How the threads of uvfs synchronise.
//!
//! # Boundary
//! Owns locks and their classes, hold words and counters: every primitive that two threads share. Does not know files,
//! inodes, errno values or any I/O. Code that needs `unsafe`, or an atomic whose ordering matters, belongs in this crate
//! or in `uvfs-containers`, which has the containers built from these primitives.
//!
//! # Rooms
//! * [`primitive`]: the only door to `std` or, under `--cfg loom`, to the model checker. [`lock`]: mutex, reader-writer
//!   lock and condition variable with a *lock class*; debug builds check the order of classes; a meter reports waits.
//! * [`lazy`]: a box of one word, made when it is first needed. [`padded`]: a value alone on its cache lines.
//! * [`hold`]: a word that counts an object's users and references, with an explicit inactive state; [`orphan`]:
//!   objects without holds and names. [`presence`]: whether a visitor has ever arrived for a key.
//! * [`generations`]: detects changes; [`complete`]: proof that a set is completely cached. [`whereabouts`]: a
//!   location, and whether it is in doubt. [`changes`]: whether an answer is still true, by a clock that changes read.
//! * [`sequence`]: words that are read together without a lock; [`published`]: a value that is replaced as a whole;
//!   [`edition`]: whether members of a set that were read one by one belong together.
//! * [`epoch`]: decides when unlinked memory may be freed; a pin stores to no shared line. [`shared`]: ownership that
//!   is counted by thread while there is an owner.
//! * [`shard`]: a structure split by key. [`gate`]: a bounded number of threads at once, without waiting. [`doors`]:
//!   threads enter, and one closes and waits for all. `workers`: threads that start with work and end without it.
//! * [`counter`]: statistics for which threads do not contend; [`histogram`]: the same by duration. [`allowance`]: the
//!   amount that threads may add to a budget before they check the total.
//! * [`write_back`]: the order in which dirty pages, errors and moments are recorded, so that none is missed.
//! * [`allocator`]: three calls of the C library about the memory that the global allocator keeps.

// The models of `uvfs-containers` build this crate without its tests, which alone use some of its parts for models.
#![cfg_attr(all(loom, not(test)), allow(dead_code))]

pub mod allocator;
pub mod allowance;
mod cells;
pub mod changes;
pub mod complete;
pub mod counter;
pub mod doors;
pub mod edition;
pub mod epoch;
pub mod gate;
pub mod generations;
pub mod histogram;
pub mod hold;
pub mod lazy;
pub mod lock;
pub mod orphan;
pub mod padded;
pub mod presence;
pub mod primitive;
pub mod published;
pub mod sequence;
pub mod shard;
pub mod shared;
pub mod whereabouts;
#[cfg(not(loom))]
pub mod workers;
pub mod write_back;
