//! Page frames: the memory of file pages, and one word that defines the state of each frame.
//!
//! Word: `version:40 | references:16 | flags:8`, all zero for a frame that was never used.
//! ```text
//!            assign                    last reference
//!   free ─────────────▶ attached ── detach ──▶ detached ──────┐
//!    ▲                   │    ▲                               │
//!    │               try_evict│ drop                          │
//!    │                   ▼    │                               │
//!    └────── free ───── evicting                              │
//!    └────────────────────────────────────────────────────────┘
//!   attached: fill (UPTODATE) · write (CHANGING) · dirty (DIRTY) · write back (WRITING)
//! ```
//!
//! # Boundary
//! Owns frames, their descriptors and their states. Does not know the trees that lead to a frame, the meaning of an
//! owner, or the page to evict ([`crate::replacement`] proposes; the caller decides).
//!
//! # Concurrency
//! `docs/protocols/frame.md` has the invariants and the orderings: existence (F1); accuracy (F2); no new reference
//! (F3); the version changes first (F4); rights of the lock's holder (F5); one place (F6); dirt during a write (F7);
//! news during a fill (F8); O1 to O9. W1 and W2 of waiters are in `wait`, V1 to V4 of room in `vacancy`.
//!
//! Progress: `try_get`, `touch`, `try_evict`, allocation and freeing are lock-free; `read_validated` stores to no
//! shared line and stops after a few attempts; `lock` and the waits sleep. Checked by `model_*` in `models`.

mod arena;
#[cfg(not(loom))]
mod copy;
mod free;
mod memory;
mod page;
mod vacancy;
mod wait;
mod word;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use arena::{Arena, FrameId, Read};
pub use memory::PAGE_BYTES;
#[cfg(not(loom))]
pub(crate) use memory::Reserved;
pub use page::{Evicting, Fresh, Locked, Outcome, PageRef};
pub use vacancy::{Look, RoomWaiter};
