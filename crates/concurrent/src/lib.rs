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
//!   check the order in which classes are taken.
//! * [`hold`]: the reference word of an inode, with an explicit inactive state.
//! * [`shard`]: one structure split into lock-protected shards by key.
//! * [`counter`]: statistics that threads do not fight over.
//! * [`gate`]: a bounded number of threads at once, without waiting.

pub mod counter;
pub mod gate;
pub mod hold;
pub mod lock;
pub mod padded;
pub mod primitive;
pub mod shard;
