//! How the threads of uvfs share memory.
//!
//! # Boundary
//! Owns locks and their classes, hold words and counters: every primitive that two threads meet on.
//! Does not know files, inodes, errno values or any I/O. If something needs `unsafe`, or an atomic
//! whose ordering matters, it belongs in this crate and nowhere else.
//!
//! # Rooms
//! * [`primitive`]: the only door to `std` or, under `--cfg loom`, to the model checker.
//! * [`lock`]: mutex, reader-writer lock and condition variable with a *lock class*; debug builds
//!   check the order in which classes are taken; a meter says which are held long and waited for.
//! * [`lazy`]: a box of one word, made when it is first needed.
//! * [`hold`]: the word that says who uses an object and who can find it, with an explicit inactive
//!   state; [`object`]: pointers counted in it; [`orphan`]: which of them nobody holds or names.
//! * [`generations`]: whether anything has changed; [`complete`]: proof that a set is wholly known.
//!   [`whereabouts`]: where something lies, and whether that is in doubt.
//! * [`sequence`]: words that are read together without a lock; [`published`]: a value that is
//!   replaced as a whole; [`edition`]: whether members of a set that were read one by one belong together.
//! * [`epoch`]: when may memory that was unlinked be freed; a pin stores to nothing shared.
//! * [`name_table`]: names of directories to values, found without a lock; [`pool`]: the lines of memory
//!   that its entries, and other small objects, lie in.
//! * [`radix`]: indexes to values in a tree with tags, searched without a lock.
//! * [`frame`]: the memory that pages of files lie in, referenced by speculation and read by version;
//!   [`replacement`]: which of them should leave.
//! * [`set_associative`]: a cache in rows, each with a lock of its own; blocks of a device in frames, and runs of
//!   blocks, are kept in it.
//! * [`changes`]: whether an answer is still true, by a clock that changes read.
//! * [`class`]: what goes before the rest, and what after it.
//! * [`shard`]: one structure split into lock-protected shards by key.
//! * [`counter`]: statistics that threads do not fight over; [`histogram`]: the same by duration.
//! * [`shared`]: ownership that is counted by thread while there is an owner.
//! * [`allowance`]: what threads may add to a budget before they look at all of it.
//! * [`gate`]: a bounded number of threads at once, without waiting. `workers`: threads that come with work and end without it.
//! * [`write_back`]: the order in which dirty pages, errors and moments are noted, so that none is missed.
//! * [`allocator`]: three calls of the C library about the memory that the global allocator keeps.

pub mod allocator;
pub mod allowance;
mod cells;
pub mod changes;
pub mod class;
pub mod complete;
pub mod counter;
pub mod edition;
pub mod epoch;
pub mod frame;
pub mod gate;
pub mod generations;
pub mod histogram;
pub mod hold;
mod huge;
pub mod lazy;
pub mod lock;
pub mod name_table;
pub mod object;
pub mod orphan;
pub mod padded;
pub mod pool;
pub mod presence;
pub mod primitive;
pub mod published;
pub mod radix;
pub mod replacement;
pub mod sequence;
pub mod set_associative;
pub mod shard;
pub mod shared;
pub mod whereabouts;
#[cfg(not(loom))]
pub mod workers;
pub mod write_back;
