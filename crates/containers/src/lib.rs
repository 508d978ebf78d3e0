//! What uvfs keeps in memory for many threads: containers, and the memory of their entries.
//!
//! # Boundary
//! Owns structures that hold many values: tables, trees, caches, and the pools and frames in which the values lie. How
//! threads synchronise is in [`uvfs_concurrent`], which knows none of these. Does not know files, inodes, errno values
//! or any I/O. With that crate, this is the place for code that needs `unsafe`, or an atomic whose ordering matters.
//!
//! # Rooms
//! * [`name_table`]: names of directories to values, found without a lock.
//! * [`radix`]: indexes to values in a tree with tags, searched without a lock.
//! * [`frame`]: the memory of file pages, referenced by speculation and read by version; [`replacement`]: proposes
//!   pages to evict.
//! * [`set_associative`]: a cache in rows, each with a lock of its own, for blocks of a device in frames, and for runs
//!   of blocks.
//! * [`pool`]: the lines of memory for entries and other small objects; [`object`]: pointers to objects of a pool,
//!   counted in the object's hold word. `huge`: huge pages for memory that lookups access at random.
//! * [`class`]: the class of an entry, evicted before or after the others.

pub mod class;
pub mod frame;
mod huge;
pub mod name_table;
pub mod object;
pub mod pool;
pub mod radix;
pub mod replacement;
pub mod set_associative;
