//! How much there is: free blocks and inodes of a volume, counted by thread.
//!
//! # Boundary
//! Numbers only; [`super::groups`] knows which blocks they are.
//!
//! # Concurrency
//! ```text
//!            take                        a group frees, a commit is stable
//!  parts ───────────▶ taken, reserved ───────────▶ parts
//!    ▲ │ gather                         └─ while it is short ─▶ rest: owed, then kept, then left
//!    │ └───────▶ rest: left, kept ─┐
//!    └──────── a spare part ───────┘
//! ```
//! Each thread takes from the part of its stripe, and gives back to it. One that finds too little takes the lock of the rest, collects
//! all parts there and takes what it needs.
//!
//! N1. A block is in one part, in `left` or in `kept`, or it is taken, reserved or waits for a commit. All steps move amounts
//!     by one read-modify-write, or under the lock. So never more is given out than there is.
//! N2. `kept` falls only when all parts were collected and `left` is 0. While it is less than at first, or blocks of a damaged group
//!     are owed, what comes back goes there first, by the lock.
//!
//! # Why
//! As the kernel's `percpu_counter`, but a thread has what it counted, so nothing is compared with a slack near the end. The sums for reports
//! ([`Counter`]) are by thread, too. Weakness: blocks that move between two parts while a thread collects can be missed, and a
//! volume with a few blocks left is full for that thread.

use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard;

use super::groups::From;
use crate::lock_order::EXT_SPACE;

/// Parts; threads share them.
const PARTS: usize = 32;
/// The part of the rest that a thread gets beyond what it asks for.
const SPARE_SHARE: u64 = 16;
/// One less, in a [`Counter`].
const fn less(count: u64) -> u64 {
    count.wrapping_neg()
}

/// What no part has.
#[derive(Debug)]
struct Rest {
    left: u64,
    /// The last blocks, which only trees may take.
    kept: u64,
    /// Blocks of damaged groups that were given out.
    owed: u64,
}

/// What there is.
#[derive(Debug)]
pub(super) struct Space {
    parts: Box<[Padded<AtomicU64>]>,
    rest: Mutex<Rest>,
    /// What `kept` is when nothing is missing.
    kept_most: u64,
    /// What is given back goes to the rest.
    is_short: AtomicBool,
    /// Free blocks, including those that wait for a commit.
    free: Counter,
    /// Freed blocks that are not to be used again yet.
    waiting: Counter,
    /// Free blocks that are reserved for data that is not written yet, and for its nodes ([`super::reserve`]).
    reserved: Counter,
    inodes: Counter,
}

/// The value of a counter that also falls.
fn value(of: &Counter) -> u64 {
    u64::try_from(of.total().cast_signed()).unwrap_or(0)
}

impl Space {
    /// So many free blocks, of which `kept` are for trees only, and free inodes.
    pub(super) fn new(free: u64, kept: u64, inodes: u64) -> Self {
        let own = kept.min(free);
        let rest = Rest { left: free - own, kept: own, owed: 0 };
        let space = Self {
            parts: (0..PARTS).map(|_| Padded(AtomicU64::new(0))).collect(),
            rest: Mutex::new(&EXT_SPACE, rest),
            kept_most: kept,
            is_short: AtomicBool::new(own < kept),
            free: Counter::new(),
            waiting: Counter::new(),
            reserved: Counter::new(),
            inodes: Counter::new(),
        };
        space.free.add(free);
        space.inodes.add(inodes);
        space
    }

    pub(super) fn free(&self) -> u64 {
        value(&self.free)
    }

    pub(super) fn reserved(&self) -> u64 {
        value(&self.reserved)
    }

    pub(super) fn inodes(&self) -> u64 {
        value(&self.inodes)
    }

    /// Blocks that data, names and attributes cannot have.
    pub(super) fn kept(&self) -> u64 {
        self.kept_most
    }

    /// Whether the next commit frees blocks.
    pub(super) fn has_waiting(&self) -> bool {
        value(&self.waiting) > 0
    }

    fn part(&self) -> &AtomicU64 {
        &self.parts[shard::of_thread(PARTS)]
    }

    /// Whether an allocation can take a block now.
    pub(super) fn has(&self, from: From) -> bool {
        // ORDERING: Relaxed; an amount, by which nothing else is reached (N1).
        if from == From::Reserved || self.part().load(Relaxed) > 0 {
            return true;
        }
        let mut rest = self.rest.lock();
        self.collect(&mut rest);
        rest.left > 0 || from == From::Kept && rest.kept > rest.owed
    }

    fn collect(&self, rest: &mut Rest) {
        // ORDERING: Relaxed; an amount, by which nothing else is reached (N1).
        rest.left += self.parts.iter().map(|part| part.swap(0, Relaxed)).sum::<u64>();
        let pays = rest.owed.min(rest.left);
        rest.owed -= pays;
        rest.left -= pays;
    }

    /// Takes as many of `blocks` as an allocation may take; returns how many. The count comes before the bits change: two threads
    /// cannot take the same last blocks, and none takes what another has reserved.
    pub(super) fn take(&self, blocks: u64, from: From) -> u64 {
        let taken = match from {
            From::Reserved => {
                self.reserved.add(less(blocks));
                blocks
            }
            from => self.draw(blocks, from, 0),
        };
        self.free.add(less(taken));
        taken
    }

    /// Blocks that were taken are not used.
    pub(super) fn untake(&self, blocks: u64, from: From) {
        self.free.add(blocks);
        match from {
            From::Reserved => self.reserved.add(blocks),
            _ => self.give(blocks),
        }
    }

    /// Reserves so many blocks, or none.
    pub(super) fn reserve(&self, blocks: u64) -> bool {
        let fits = self.draw(blocks, From::Free, blocks) == blocks;
        if fits {
            self.reserved.add(blocks);
        }
        fits
    }

    /// Reserved blocks are not needed.
    pub(super) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            self.reserved.add(less(blocks));
            self.give(blocks);
        }
    }

    /// Blocks are freed, and wait for a commit.
    pub(super) fn free_later(&self, blocks: u64) {
        self.free.add(blocks);
        self.waiting.add(blocks);
    }

    /// The opposite.
    pub(super) fn unfree(&self, blocks: u64) {
        self.free.add(less(blocks));
        self.waiting.add(less(blocks));
    }

    /// Freed blocks are stable.
    pub(super) fn freed(&self, blocks: u64) {
        self.waiting.add(less(blocks));
        self.give(blocks);
    }

    /// Free blocks of a damaged group are not there.
    pub(super) fn lose(&self, blocks: u64) {
        let blocks = blocks.min(self.free());
        self.free.add(less(blocks));
        let mut rest = self.rest.lock();
        rest.owed += blocks;
        self.collect(&mut rest);
        // ORDERING: Relaxed; advice where to give back (N2).
        self.is_short.store(rest.owed > 0 || rest.kept < self.kept_most, Relaxed);
    }

    /// One inode less, or one more.
    pub(super) fn take_inode(&self) {
        self.inodes.add(less(1));
    }

    pub(super) fn free_inode(&self) {
        self.inodes.add(1);
    }

    pub(super) fn lose_inodes(&self, inodes: u64) {
        self.inodes.add(less(inodes.min(self.inodes())));
    }

    /// Up to `most` blocks from the parts and the rest, and none if there are fewer than `least`.
    fn draw(&self, most: u64, from: From, least: u64) -> u64 {
        let part = self.part();
        // ORDERING: Relaxed; an amount, by which nothing else is reached (N1).
        if part.fetch_update(Relaxed, Relaxed, |part| part.checked_sub(most)).is_ok() {
            return most;
        }
        let mut rest = self.rest.lock();
        self.collect(&mut rest);
        let mut drawn = most.min(rest.left);
        if drawn < least {
            return 0;
        }
        rest.left -= drawn;
        if drawn < most && from == From::Kept {
            let more = (most - drawn).min(rest.kept.saturating_sub(rest.owed));
            rest.kept -= more;
            drawn += more;
            // ORDERING: Relaxed; advice where to give back (N2).
            self.is_short.store(rest.owed > 0 || rest.kept < self.kept_most, Relaxed);
        }
        let spare = rest.left / SPARE_SHARE;
        rest.left -= spare;
        // ORDERING: Relaxed; an amount, by which nothing else is reached (N1).
        part.fetch_add(spare, Relaxed);
        drawn
    }

    /// Gives blocks back that any allocation may take (N2).
    fn give(&self, blocks: u64) {
        // ORDERING: Relaxed; advice (N2).
        if !self.is_short.load(Relaxed) {
            // ORDERING: Relaxed; an amount, by which nothing else is reached (N1).
            self.part().fetch_add(blocks, Relaxed);
            return;
        }
        let mut rest = self.rest.lock();
        rest.left += blocks;
        self.collect(&mut rest);
        let keeps = rest.left.min(self.kept_most - rest.kept);
        rest.kept += keeps;
        rest.left -= keeps;
        // ORDERING: Relaxed; advice where to give back (N2).
        self.is_short.store(rest.owed > 0 || rest.kept < self.kept_most, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn the_last_blocks_are_for_trees_and_come_back_first() {
        let space = Space::new(100, 10, 5);
        assert_eq!(space.take(200, From::Free), 90);
        assert!(!space.has(From::Free) && space.has(From::Kept));
        assert_eq!((space.take(4, From::Kept), space.take(1, From::Free)), (4, 0));
        space.untake(3, From::Free);
        assert!(!space.has(From::Free), "one of the kept ones is still missing");
        space.untake(3, From::Free);
        assert_eq!((space.take(9, From::Free), space.free()), (2, 10));
        assert_eq!((space.take(99, From::Kept), space.take(1, From::Kept)), (10, 0));
    }

    #[test]
    fn what_is_reserved_or_waits_is_not_there_for_others() {
        let space = Space::new(100, 0, 5);
        assert!(space.reserve(60) && !space.reserve(41));
        assert_eq!((space.reserved(), space.free()), (60, 100));
        assert_eq!((space.take(60, From::Free), space.take(60, From::Reserved)), (40, 60));
        assert_eq!((space.reserved(), space.free()), (0, 0));
        space.free_later(7);
        assert_eq!((space.take(1, From::Free), space.free(), space.has_waiting()), (0, 7, true));
        space.freed(7);
        assert_eq!((space.take(9, From::Kept), space.has_waiting()), (7, false));
    }

    #[test]
    fn blocks_of_a_damaged_group_are_owed() {
        let space = Space::new(100, 10, 5);
        assert!(space.reserve(80));
        space.lose(30);
        assert_eq!(
            (space.free(), space.has(From::Free), space.has(From::Kept)),
            (70, false, false)
        );
        space.unreserve(25);
        assert_eq!((space.take(99, From::Free), space.take(99, From::Kept)), (5, 10));
    }

    /// Two threads that took the last blocks together promised more than there was.
    #[test]
    fn threads_never_get_more_than_there_is() {
        let space = Space::new(10_000, 64, 0);
        let all: u64 = thread::scope(|scope| {
            let taker = |size: u64| {
                let space = &space;
                scope.spawn(move || {
                    let mut sum = 0;
                    loop {
                        let got = space.take(size, From::Free);
                        let back = got / 3;
                        space.untake(back, From::Free);
                        sum += got - back;
                        if got == 0 {
                            return sum;
                        }
                    }
                })
            };
            let takers: Vec<_> = [1, 3, 7, 20].map(taker).into();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });
        assert!(all <= 10_000 - 64, "{all}");
        let last = space.take(u64::MAX / 2, From::Kept);
        assert_eq!((all + last, space.free()), (10_000, 0));
    }
}
