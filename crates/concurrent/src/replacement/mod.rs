//! Which page should leave: S3-FIFO with a correlation window.
//!
//! ```text
//!   admit ──▶ small (1/10) ── used since ──▶ main ⟲ used: once more round, one use forgotten
//!     │          │ not used                    │ not used
//!     │          ▼                             ▼
//!     └─ seen ─ ghost (hashes)              evicted
//!        here: main
//! ```
//!
//! # Boundary
//! Proposes; evicts nothing. Knows frames by number and pages by a hash. The caller has the lock
//! that [`Queues`] need, tries to evict what is proposed, and says what came of it.
//!
//! # Concurrency
//! Queues are plain data behind `&mut`. [`AccessWord`]s are shared: a use of a page is one load,
//! and a store only while the page has fewer than three counted uses.
//!
//! # Why
//! S3-FIFO (Yang et al. 2023, "FIFO queues are all you need for cache eviction") keeps hot pages
//! through scans without touching a list on a hit. It takes any second use for popularity, but a
//! page cache sees each page of a scan several times, because programs read less than a page at
//! once. So uses within 256 admissions (fewer in small caches) of the last counted one are not
//! counted, as in the "correlated reference period" of LRU-K (O'Neil et al. 1993), nor is the first
//! use of a page read ahead. What loops need
//! is in `duel`. Weaknesses: a hot set that moves is learned later than by LRU, and a loop longer
//! than the cache is kept worse than by policies that keep a fixed part of it (`uvfs-bench evict`).
//!
//! # Bounds
//! A call of [`Queues::candidates`] looks at a bounded number of pages. Pages that were proposed
//! and stayed go behind the others; when all have been proposed in vain the call says so instead of
//! going round.

mod access;
mod duel;
mod ghost;
mod queues;

#[cfg(all(test, not(loom)))]
mod tests;

pub use access::{Access, AccessWord};
pub use queues::{Offer, Queues};
