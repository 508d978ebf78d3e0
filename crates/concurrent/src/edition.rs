//! Editions of a set whose members are read without a lock: shows whether all that a reader saw belong together.
//!
//! # Boundary
//! One word. The caller owns the set (the pages of a file) and defines an edition (a version of the file's content).
//!
//! # Protocol
//! Word: `edition:48 | replacements under way:16`.
//! ```text
//!            begin_replacing            begin_replacing
//!  (n, 0) ───────────────────▶ (n, 1) ───────────────────▶ (n, 2)
//!                               │   ◀──────────────────── (n + 1, 1)
//!  (n + 1, 0) ◀─────────────────┘       end_replacing
//!              end_replacing
//! ```
//! E1. A replacement begins before the first member of the old edition is removed, and ends when none can be read.
//! E2. Replacements begin under a lock of the caller, under which the caller sets the wanted edition. A member is
//!     inserted under the same lock, and only if it is of that edition.
//! E3. A reader takes a [`Reading`] before it looks at the first member, and checks after the last look that it still
//!     [stands](Edition::stands). If so, all members that it found are of one edition.
//!
//! O1. `begin_replacing`, then the lock of E2, then the member's insertion (Release) → the look that finds it
//!     (Acquire), then `stands`: a reader that sees a member of the new edition sees the other number.
//! O2. The removal of the last member, then `end_replacing` (Release) → `read` (Acquire): a reader that starts from the
//!     new edition sees no member of the old one.
//! Progress: wait-free. Checked by `model_members_of_one_edition` and `model_nothing_old_in_a_new_edition`.

use crate::primitive::atomic::{AtomicU64, Ordering};

/// The unit of the edition in the word.
const EDITION: u64 = 1 << 16;
/// The bits that count replacements under way.
const UNDER_WAY: u64 = EDITION - 1;

/// The current edition of a set. The protocol is in the module's documentation.
///
/// Each page of a file is read whole under a version of its own. But a read of many pages could mix pages from before
/// and after a change of the file. The word is loaded twice for such a read, without a store. Weakness: a set that is
/// replaced all the time is never read.
#[derive(Debug, Default)]
pub struct Edition(AtomicU64);

/// The word that a reader saw before its first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading(u64);

impl Edition {
    /// Begins to read; `None` while the set is being replaced.
    #[inline]
    pub fn read(&self) -> Option<Reading> {
        // ORDERING: Acquire, partner `end_replacing` (O2).
        let word = self.0.load(Ordering::Acquire);
        (word & UNDER_WAY == 0).then_some(Reading(word))
    }

    /// Whether all members found since `reading` was taken are of one edition (E3); if not, the caller has to read
    /// again.
    ///
    /// Why E3 holds: of two members of different editions, the later one was inserted after the replacement between
    /// them began (E2). A reader that sees it and took its reading before that finds another number. A reader that took
    /// its reading after that replacement ended finds no member of the old edition (E1); in between there are no
    /// readings.
    #[inline]
    pub fn stands(&self, reading: Reading) -> bool {
        // ORDERING: Relaxed; the earlier Acquire loads order it after them, and show all that it must see (O1).
        self.0.load(Ordering::Relaxed) == reading.0
    }

    /// Begins a replacement; several may be under way. The caller has the lock (E2).
    pub fn begin_replacing(&self) {
        // ORDERING: Relaxed; the lock orders it before later insertions, and a reading taken before it equals one taken
        // earlier.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends one replacement: no member of the old edition can be found any more.
    pub fn end_replacing(&self) {
        // ORDERING: Release, partner `read` (O2).
        self.0.fetch_add(EDITION - 1, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_reading_falls_with_every_replacement() {
        let edition = Edition::default();
        let reading = edition.read().unwrap();
        assert!(edition.stands(reading));
        edition.begin_replacing();
        assert!(edition.read().is_none() && !edition.stands(reading));
        edition.begin_replacing();
        edition.end_replacing();
        assert!(edition.read().is_none(), "the other one is under way");
        edition.end_replacing();
        assert!(!edition.stands(reading));
        assert!(edition.stands(edition.read().unwrap()));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// Two members, each absent (0) or of an edition; and the wanted edition, under the lock of E2.
    struct World {
        edition: Edition,
        members: [AtomicU64; 2],
        wanted: Mutex<u64>,
    }

    fn world(members: [u64; 2]) -> Arc<World> {
        let members = members.map(AtomicU64::new);
        Arc::new(World { edition: Edition::default(), members, wanted: Mutex::new(1) })
    }

    impl World {
        fn replace(&self, with: u64) {
            let mut wanted = self.wanted.lock().unwrap();
            *wanted = with;
            self.edition.begin_replacing();
            drop(wanted);
            self.members.iter().for_each(|member| member.store(0, Ordering::Release));
            self.edition.end_replacing();
        }

        /// Inserts a member of edition `of`, if that is the wanted edition.
        fn come_in(&self, at: usize, of: u64) {
            let wanted = self.wanted.lock().unwrap();
            if *wanted == of {
                self.members[at].store(of, Ordering::Release);
            }
        }

        /// Both members, if both are there and the reading stands.
        fn read(&self) -> Option<[u64; 2]> {
            let reading = self.edition.read()?;
            let seen: [u64; 2] = std::array::from_fn(|at| self.members[at].load(Ordering::Acquire));
            (self.edition.stands(reading) && !seen.contains(&0)).then_some(seen)
        }
    }

    /// E3, O1: the second member is filled anew after the set was replaced. Fails with a Relaxed insertion or look, or
    /// with a Relaxed `read` or `end_replacing`.
    #[test]
    fn model_members_of_one_edition() {
        Model::new(500, &["read the old one", "read nothing"]).check(|| {
            let world = world([1, 1]);
            let (replacer, filler) = (world.clone(), world.clone());
            let replacer = thread::spawn(move || replacer.replace(2));
            let filler = thread::spawn(move || filler.come_in(1, 2));
            match world.read() {
                Some([one, other]) => {
                    assert_eq!(one, other, "two editions in one reading");
                    reached("read the old one");
                }
                None => reached("read nothing"),
            }
            replacer.join().unwrap();
            filler.join().unwrap();
        });
    }

    /// E1, O2: a late member of the old edition does not stay in the new one. Fails if it is inserted without a check
    /// of the wanted edition, and with a Relaxed `read` or `end_replacing`.
    #[test]
    fn model_nothing_old_in_a_new_edition() {
        Model::new(500, &["read the new one", "read nothing"]).check(|| {
            let world = world([1, 0]);
            let (replacer, filler) = (world.clone(), world.clone());
            let replacer = thread::spawn(move || {
                replacer.replace(2);
                replacer.come_in(1, 2);
                replacer.come_in(0, 2);
            });
            let filler = thread::spawn(move || filler.come_in(1, 1));
            match world.read() {
                Some([one, other]) => {
                    assert_eq!(one, other, "two editions in one reading");
                    reached(if one == 2 { "read the new one" } else { "read the old one" });
                }
                None => reached("read nothing"),
            }
            replacer.join().unwrap();
            filler.join().unwrap();
        });
    }
}
