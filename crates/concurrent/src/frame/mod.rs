//! Page frames: the memory that pages of files lie in, and one word that says who may do what with
//! it.
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
//! Owns frames, their descriptors and their states. Does not know which tree leads to a frame, what
//! an owner is, or which page should go ([`crate::replacement`] proposes; the caller decides).
//!
//! # Invariants
//! The first three are the guarantees of Zijlstra (2007, "Concurrent Pagecache", section 3), which
//! a lock of the whole cache used to give.
//!
//! F1. *Existence.* Descriptors and frames are numbered, never move and are never freed while the
//!     arena lives: whatever number a reader has, there is something behind it.
//! F2. *Accuracy.* Owner and index change only while the frame is frozen (not ATTACHED), without
//!     references, and in one thread's hands. Who counts a reference and then finds the identity
//!     has that page until he gives the reference back.
//! F3. *No new reference.* References are added by number only while ATTACHED, in the step that
//!     sees it. ATTACHED is cleared in one step: with no reference left (the frame is then the
//!     evictor's alone), or by the lock's holder (`detach`; the one who gives back the last
//!     reference frees it). Who has a frozen frame alone keeps it so until he publishes or thaws
//!     it.
//! F4. The version changes before anything a reader by version could accept changes: with the
//!     freeze, and with CHANGING before the first byte. CHANGING and frozen turn new readers away.
//!     So the same version before and after the copy means: this page, up to date, of one moment.
//! F5. Bytes of an attached or detached page are written by the lock's holder alone, who alone sets
//!     and clears CHANGING, sets UPTODATE (never cleared under one identity), sets and clears DIRTY
//!     (but for F7) and sets WRITING.
//! F6. A frame is in one place: on the free list, fresh or evicting in one thread's hands,
//!     attached, or detached with references. The word of a free or fresh frame is changed by
//!     nobody.
//! F7. `begin_writing` clears DIRTY in the step that sets WRITING; the end clears WRITING and no
//!     DIRTY. So what is changed during the write is dirty afterwards.
//! F8. News that the bytes being brought in are out of date (STALE) and the end of bringing them in
//!     (`set_filled`) are steps on one word: of the two, the later one sees the other. A page comes
//!     in locked before anybody asks for its bytes, so news finds it or precedes the question.
//!
//! # Orderings
//! O1. `publish` (Release) → `try_reference`, `load` (Acquire): the identity goes with the word.
//! O2. `put` (Release) → the freeze and the last `put` (Acquire): every use ends before the frame
//!     is used again.
//! O3. `begin_change`'s fence (Release) → `reload`'s fence (Acquire): who copied a byte of a change
//!     sees the version moved on.
//! O4. `end_change`, `set` (Release) → `load` (Acquire): who may begin to read sees the bytes.
//! O5. `before_bytes` (Release fence), by the next owner of a frame → `reload`'s fence (Acquire):
//!     who copied a byte or compared an identity of the next page sees the version moved on by the
//!     freeze.
//! O6. `unlock` (Release) → `try_lock`, `wait_mark` (Acquire): lock holders see each other's bytes.
//! O7. `end_writing` (Release) → `wait_mark` (Acquire): who waited for the write sees it done.
//! O8. `push` → `pop` of the free list, in `free`. Without it O5 would not follow from the freeze.
//! O9. `look` of one who waits for room (Release) → what makes room (Acquire), in `vacancy`.
//! W1, W2: no lost wake-ups, in `wait`; V1 to V4 the same for room, in `vacancy`.
//!
//! Progress: `try_get`, `touch`, `try_evict`, allocation and freeing are lock-free;
//! `read_validated` stores nothing shared and gives up after a few rounds; `lock` and the waits
//! sleep. Checked by `model_*` in `models`: `model_reference_is_accurate`,
//! `model_no_reference_after_detach`, `model_read_and_write`, `model_read_and_reuse`,
//! `model_read_and_detach`, `model_lock_hand_over`, `model_write_back_and_new_dirt`,
//! `model_evict_or_get`, `model_last_reference_frees`, `model_frame_passes_between_threads`,
//! `model_waiters_are_woken`, `model_who_waits_for_a_fill_sees_it`,
//! `model_news_during_a_fill`, `model_read_of_what_is_filled`, `model_waits_for_the_last_reference`, `model_waits_for_a_free_frame`,
//! `model_waits_for_a_promise`.
//!
//! # Why
//! A page in the cache is read by copying it between two looks at its word (vmcache, Leis et al.
//! 2023), so a hit takes no reference and writes no shared line; who needs the page longer counts a
//! reference speculatively, as Linux does. Weakness: a version comes round after 2⁴⁰ changes, so a
//! reader stopped for as many (half a day of nothing but writes to one page) could accept a torn
//! copy; and one byte written to a page makes every reader of the page read again.

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
