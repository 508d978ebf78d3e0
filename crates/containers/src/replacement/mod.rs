//! The page to evict: S3-FIFO with a correlation window.
//!
//! ```text
//!   admit ──▶ small (1/10) ── used since ──▶ main ⟲ used: another round, minus one use
//!     │          │ not used                    │ not used
//!     │          ▼                             ▼
//!     └─ seen ─ ghost (hashes)              evicted
//!        here: main
//! ```
//!
//! # Boundary
//! Proposes; evicts nothing. Knows frames by number and pages by a hash. The caller has the lock that [`Queues`] need,
//! tries to evict the proposed pages, and reports the outcome.
//!
//! # Concurrency
//! Queues are plain data behind `&mut`. [`AccessWord`]s are shared: a use of a page is one load, and a store only while
//! the page has fewer than three counted uses.
//!
//! # Why
//! S3-FIFO (Yang et al. 2023, "FIFO queues are all you need for cache eviction") keeps hot pages through scans without
//! touching a list on a hit. It takes any second use for popularity, but programs read a page of a scan in parts. So
//! uses within 256 admissions (fewer in small caches) of the last counted one are not counted, like in the "correlated
//! reference period" of LRU-K (O'Neil et al. 1993). The first use of a page read ahead is not counted either. `duel`
//! handles loops. Weaknesses: the policy adapts to a moving hot set later than LRU, and keeps less of a loop longer
//! than the cache than policies that keep a fixed part of it (`uvfs-bench evict`).

mod access;
mod duel;
mod ghost;
mod queues;

#[cfg(all(test, not(loom)))]
mod tests;

pub use access::{Access, AccessWord};
pub use queues::{Offer, Queues};
