//! Page frames: the memory of file pages, and one word that defines the state of each frame.
//!
//! Word: `version:40 | references:16 | flags:8`, all zero for a frame that was never used.
//!
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
//! # Invariants
//! The first three are the guarantees of Zijlstra (2007, "Concurrent Pagecache", section 3), which a lock of the whole
//! cache used to give.
//!
//! F1. *Existence.* Descriptors and frames are numbered, never move and are never freed while the arena lives. So every
//!     number that a reader has leads to a descriptor and a frame.
//! F2. *Accuracy.* Owner and index change only while the frame is frozen (not ATTACHED), without references, and in one
//!     thread's hands. A thread that counts a reference and then finds the identity has that page until it drops the
//!     reference.
//! F3. *No new reference.* References are added by number only while ATTACHED, in the step that sees it. One step
//!     clears ATTACHED. Either no reference is left, and then only the evictor has the frame. Or the lock's holder
//!     detaches the page, and then the thread that drops the last reference frees the frame. A thread that alone has a
//!     frozen frame keeps it so until it publishes or thaws it.
//! F4. The version changes before any byte or identity that a reader by version could accept: with the freeze, and with
//!     CHANGING before the first byte. CHANGING and frozen refuse new readers. So the same version before and after the
//!     copy means: this page, up to date, of one moment.
//! F5. Only the lock's holder writes bytes of an attached or detached page. Only it sets and clears CHANGING, sets
//!     UPTODATE (never cleared under one identity), sets and clears DIRTY (but for F7) and sets WRITING.
//! F6. A frame is in one place: on the free list, fresh or evicting in one thread's hands, attached, or detached with
//!     references. No thread changes the word of a free or fresh frame.
//! F7. `begin_writing` clears DIRTY in the step that sets WRITING; the end of the write clears WRITING and keeps DIRTY.
//!     So a page that changes during the write is dirty afterwards.
//! F8. Two steps on one word: `mark_stale` reports that the bytes being read in are out of date (STALE), and
//!     `set_filled` ends the read. The later one sees the other. A page is inserted locked before its bytes are
//!     requested, so the report finds it or precedes the request.
//!
//! # Orderings
//! O1. `publish` (Release) → `try_reference`, `load` (Acquire): the identity is visible with the word.
//! O2. `put` (Release) → the freeze and the last `put` (Acquire): every use ends before the frame is used again.
//! O3. `begin_change`'s fence (Release) → `reload`'s fence (Acquire): a reader that copied a byte of a change sees a
//!     later version.
//! O4. `end_change`, `set` (Release) → `load` (Acquire): a reader that may begin sees the bytes.
//! O5. `before_bytes` (Release fence), by the next owner of a frame → `reload`'s fence (Acquire): a reader that copied
//!     a byte or compared an identity of the next page sees the later version of the freeze.
//! O6. `unlock` (Release) → `try_lock`, `wait_mark` (Acquire): lock holders see each other's bytes.
//! O7. `end_writing` (Release) → `wait_mark` (Acquire): a thread that waited for the write sees it done.
//! O8. `push` → `pop` of the free list, in `free`. Without it O5 would not follow from the freeze.
//! O9. `look` of a thread that waits for room (Release) → the steps that make room (Acquire), in `vacancy`.
//! W1, W2: no lost wake-ups, in `wait`; V1 to V4 the same for room, in `vacancy`.
//!
//! Progress: `try_get`, `touch`, `try_evict`, allocation and freeing are lock-free; `read_validated` stores to no
//! shared line and stops after a few attempts; `lock` and the waits sleep. Checked by `model_*` in `models`:
//! `model_reference_is_accurate`, `model_no_reference_after_detach`, `model_read_and_write`, `model_read_and_reuse`,
//! `model_read_and_detach`, `model_lock_hand_over`, `model_write_back_and_new_dirt`, `model_evict_or_get`,
//! `model_last_reference_frees`, `model_frame_passes_between_threads`, `model_waiters_are_woken`,
//! `model_who_waits_for_a_fill_sees_it`, `model_news_during_a_fill`, `model_read_of_what_is_filled`,
//! `model_waits_for_the_last_reference`, `model_waits_for_a_free_frame`, `model_waits_for_a_promise`.

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
