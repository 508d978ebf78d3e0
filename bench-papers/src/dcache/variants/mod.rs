//! The paper's steps, each a complete dentry cache.
//!
//! | Variant | Section | Lookup in the hash | LRU |
//! |---|---|---|---|
//! | `global-lock` | 2 | under `dcache_lock` | under `dcache_lock` |
//! | `rcu-hash` | 3 | without a lock | under `dcache_lock`, at each change of a count from or to 0 |
//! | `bucket-locks` | 4 | under the bucket's lock | one list per bucket, under the bucket's lock |
//! | `separate-lru` | 5 | without a lock | under `d_lru_lock` |
//! | `lazy-lru-timer` | 6.1 | without a lock, count under `d_lock` | used dentries stay until the timer |
//! | `lazy-lru-traversal` | 6.2 | the same | used dentries stay until a thread traverses the list |
//! | `fast-walk` | 7.1 | all components under one hold of `dcache_lock` | under `dcache_lock` |
//!
//! # Why
//! The paper abandoned section 4: lists that span buckets needed several bucket locks at once. It
//! works here because those lists stay under `dcache_lock`, which ranks before the buckets, and
//! because renames are rare enough that lookups which see one can take the slow path.

mod bucket_locks;
mod fast_walk;
mod global_lock;
mod lazy_lru;
mod rcu_hash;
mod separate_lru;
#[cfg(test)]
mod tests;

pub(super) use bucket_locks::BucketLocks;
pub(super) use global_lock::{GlobalLock, Lookup, Walk};
pub(super) use lazy_lru::{LazyLru, Update};
pub(super) use separate_lru::SeparateLru;
