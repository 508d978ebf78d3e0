//! The space of the file system: one limit for data and metadata, and one for inodes.
//!
//! Counts bytes; allocates nothing. A [`Charge`] is one node's share, and is returned when dropped, so no path can leak
//! space. The free amount of a limit is in `rest` and in a *stripe*'s word for each of some groups of threads. A stripe
//! is *open* or *closed*; all begin closed and empty. A usual take or return changes one stripe's word. If the stripe
//! is closed, or the amount large, it changes `rest`.
//!
//! B1. Used + rest + all open stripes = max, except while a thread moves amounts between words. No thread takes an amount that
//!     is not there, so the limit is never exceeded.
//! B2. Amounts move between words (refill, open: from `rest`; spill, collect: to it), and stripes open and close, only under
//!     `moving`.
//! B3. A closed stripe is empty, and no thread adds to it.
//! B4. A refused thread held `moving`, had closed every stripe and collected its amount, and then found too little in the
//!     rest. At that instant no amount was between words (B2) or in a stripe (B3), so the rest was the whole free amount: no
//!     thread is refused before the space is full.
//! B5. A stripe is opened only while the rest is at least [`Limited::plenty`]; so near the limit the whole amount is in one
//!     word, and a refusal finds the stripes closed already.
//!
//! All orderings are relaxed: each word is changed by read-modify-writes, which see the latest value, and nothing is
//! reached through an amount. A node's charge is changed under that node's lock.
//!
//! # Why
//! Counters that are exact near the limit and apart elsewhere, like the kernel's `percpu_counter` compared with a
//! limit. Weakness: near the limit, and in a file system that is smaller than its batches, all threads that allocate
//! share one line; a report locks `moving` and reads 64 lines.

use super::stripe::{self, STRIPES};
use super::table::pause;
use crate::lock_order;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{Error, Result};

/// Cost of an inode in bytes: its node, its place in the node table, and slack of the allocator.
pub(super) const INODE_BYTES: u64 = 512;
/// Cost of a directory entry in bytes, for any name: the longest name and its places in both indices. One cost for all,
/// so that a rename never runs out of space.
pub(super) const ENTRY_BYTES: u64 = 448;
/// Cost of an extended attribute or an access control list in bytes, beside its name and value.
pub(super) const XATTR_BYTES: u64 = 128;

/// Most bytes that a stripe gets at once: some hundred files.
const BATCH_BYTES: u64 = 256 * 1024;
/// Most inodes that a stripe gets at once.
const BATCH_INODES: u64 = 256;
/// The word of a closed stripe.
const CLOSED: u64 = u64::MAX;

/// The limits, and their used amounts.
#[derive(Debug)]
pub(super) struct Budget {
    shared: Arc<Limits>,
    /// One for each stripe, so that its reference count is not shared either.
    handles: Box<[Arc<Handle>]>,
}

#[derive(Debug)]
struct Limits {
    bytes: Limited,
    inodes: Limited,
}

/// On its own lines, away from its count in the `Arc`.
#[derive(Debug)]
#[repr(align(128))]
struct Handle(Arc<Limits>);

/// One limit. See the module.
#[derive(Debug)]
struct Limited {
    max: u64,
    /// A refill adds this beyond the wanted amount; a stripe keeps up to twice that.
    batch: u64,
    stripes: Box<[Padded<AtomicU64>]>,
    rest: Padded<AtomicU64>,
    moving: Padded<Mutex<()>>,
}

impl Limited {
    fn new(max: u64, batch_max: u64) -> Self {
        Self {
            max,
            batch: batch_max.min(max / (4 * STRIPES as u64)),
            stripes: (0..STRIPES).map(|_| Padded(AtomicU64::new(CLOSED))).collect(),
            rest: Padded(AtomicU64::new(max)),
            moving: Padded(Mutex::new(&lock_order::MEMORY_SPACE, ())),
        }
    }

    /// The rest that there must be for a stripe to be opened or refilled (B5).
    fn plenty(&self) -> u64 {
        2 * STRIPES as u64 * self.batch
    }

    /// Takes the amount that `wanted` computes from the rest, if any; with plenty of rest that is `most`.
    fn take(&self, most: u64, wanted: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let stripe = &self.stripes[stripe::mine()];
        if take_open(stripe, most) {
            return Some(most);
        }
        // ORDERING: Relaxed; see the module. `refill` reads again.
        let plenty = most <= self.batch && self.rest.load(Relaxed) >= self.plenty();
        if plenty && self.refill(stripe, most) {
            return Some(most);
        }
        self.take_rest(|rest| (most <= rest).then_some(most)).or_else(|| self.take_last(wanted))
    }

    /// Gives the stripe a batch, and the caller `most`; false if the rest is not plenty any more.
    #[cold]
    fn refill(&self, stripe: &AtomicU64, most: u64) -> bool {
        let _moving = self.moving.lock();
        let plenty = |rest| (rest >= self.plenty()).then_some(most + self.batch);
        if self.take_rest(plenty).is_none() {
            return false;
        }
        pause();
        let add = |free| Some(if free == CLOSED { self.batch } else { free + self.batch });
        // ORDERING: Relaxed; see the module.
        let _ = stripe.fetch_update(Relaxed, Relaxed, add);
        true
    }

    /// Collects everything, and then decides (B4).
    #[cold]
    fn take_last(&self, wanted: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let _moving = self.moving.lock();
        for stripe in &self.stripes {
            // ORDERING: Relaxed; see the module. Only a thread that holds `moving` opens one.
            if stripe.load(Relaxed) == CLOSED {
                continue;
            }
            // ORDERING: Relaxed; see the module.
            let free = stripe.swap(CLOSED, Relaxed);
            pause();
            // ORDERING: Relaxed; see the module.
            self.rest.fetch_add(free, Relaxed);
        }
        self.take_rest(|rest| wanted(rest).filter(|&amount| amount <= rest))
    }

    fn take_rest(&self, wanted: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut taken = None;
        // ORDERING: Relaxed; see the module.
        let _ = self.rest.fetch_update(Relaxed, Relaxed, |rest| {
            taken = wanted(rest);
            taken.map(|amount| rest - amount)
        });
        taken
    }

    fn give_back(&self, amount: u64) {
        let stripe = &self.stripes[stripe::mine()];
        let add = |free| (free != CLOSED).then(|| free + amount);
        // ORDERING: Relaxed; see the module.
        match stripe.fetch_update(Relaxed, Relaxed, add) {
            Ok(before) if before + amount > 2 * self.batch => self.spill(stripe),
            Ok(_) => {}
            // ORDERING: Relaxed; see the module. `open` reads again.
            Err(_) if amount <= self.batch && self.rest.load(Relaxed) >= self.plenty() => {
                self.open(stripe, amount);
            }
            Err(_) => self.give_rest(amount),
        }
    }

    /// Gives back to a stripe that was closed, and opens it if the rest is plenty.
    #[cold]
    fn open(&self, stripe: &AtomicU64, amount: u64) {
        let _moving = self.moving.lock();
        // ORDERING: Relaxed; see the module.
        let plenty = self.rest.load(Relaxed) >= self.plenty();
        let add = |free| match free {
            CLOSED => plenty.then_some(amount),
            free => Some(free + amount),
        };
        // ORDERING: Relaxed; see the module.
        if stripe.fetch_update(Relaxed, Relaxed, add).is_err() {
            self.give_rest(amount);
        }
    }

    /// Leaves a stripe that has too much a batch.
    #[cold]
    fn spill(&self, stripe: &AtomicU64) {
        let _moving = self.moving.lock();
        let keep = |free| (free != CLOSED && free > self.batch).then_some(self.batch);
        // ORDERING: Relaxed; see the module.
        if let Ok(before) = stripe.fetch_update(Relaxed, Relaxed, keep) {
            self.give_rest(before - self.batch);
        }
    }

    fn give_rest(&self, amount: u64) {
        // ORDERING: Relaxed; see the module.
        let before = self.rest.fetch_add(amount, Relaxed);
        debug_assert!(before + amount <= self.max, "more given back than was taken");
    }

    /// Exact if no thread takes or returns an amount meanwhile.
    fn racy_used(&self) -> u64 {
        let _moving = self.moving.lock();
        // ORDERING: Relaxed; a statistic.
        let open = self.stripes.iter().map(|stripe| stripe.load(Relaxed));
        let free: u64 = open.filter(|&free| free != CLOSED).sum();
        // ORDERING: Relaxed; a statistic.
        self.max.saturating_sub(free + self.rest.load(Relaxed))
    }
}

fn take_open(stripe: &AtomicU64, amount: u64) -> bool {
    let take = |free: u64| if free == CLOSED { None } else { free.checked_sub(amount) };
    // ORDERING: Relaxed; see the module.
    stripe.fetch_update(Relaxed, Relaxed, take).is_ok()
}

impl Budget {
    pub(super) fn new(bytes_max: u64, inodes_max: u64) -> Self {
        let shared = Arc::new(Limits {
            bytes: Limited::new(bytes_max, BATCH_BYTES),
            inodes: Limited::new(inodes_max, BATCH_INODES),
        });
        let handles = (0..STRIPES).map(|_| Arc::new(Handle(shared.clone()))).collect();
        Self { shared, handles }
    }

    /// Takes an inode and its cost.
    pub(super) fn take_inode(&self) -> Result<Charge> {
        self.shared.inodes.take(1, |_| Some(1)).ok_or(Error::NoSpace)?;
        // From here on the charge returns the inode, also if its cost cannot be paid.
        let mut charge = Charge { limits: self.handles[stripe::mine()].clone(), bytes: 0 };
        charge.grow(INODE_BYTES)?;
        Ok(charge)
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.shared.bytes.max
    }
    pub(super) fn inodes_max(&self) -> u64 {
        self.shared.inodes.max
    }
    pub(super) fn racy_bytes(&self) -> u64 {
        self.shared.bytes.racy_used()
    }
    pub(super) fn racy_inodes(&self) -> u64 {
        self.shared.inodes.racy_used()
    }
}

/// One inode, and the bytes that its node holds.
#[derive(Debug)]
pub(super) struct Charge {
    limits: Arc<Handle>,
    bytes: u64,
}

impl Charge {
    /// The limit of all nodes together.
    pub(super) fn limit(&self) -> u64 {
        self.limits.0.bytes.max
    }

    /// Takes `bytes` more, all or none.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<()> {
        if bytes > 0 {
            self.bytes += self.limits.0.bytes.take(bytes, |_| Some(bytes)).ok_or(Error::NoSpace)?;
        }
        Ok(())
    }

    /// Takes `fixed` bytes and as many `unit`s as there is room for, at most `wanted` and at least one. Returns the
    /// number of units; 0 if it took none.
    pub(super) fn grow_units(&mut self, fixed: u64, unit: u64, wanted: u64) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let most = unit.saturating_mul(wanted).saturating_add(fixed);
        let taken = self.limits.0.bytes.take(most, |rest| {
            let units = wanted.min(rest.checked_sub(fixed)? / unit);
            (units > 0).then(|| fixed + units * unit)
        });
        let Some(bytes) = taken else { return 0 };
        self.bytes += bytes;
        (bytes - fixed) / unit
    }

    /// Gives `bytes` back.
    pub(super) fn shrink(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "a node gives back more than it holds");
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        if bytes > 0 {
            self.limits.0.bytes.give_back(bytes);
        }
    }

    /// Goes from `before` to `after` bytes of something that this charge holds.
    pub(super) fn change(&mut self, before: u64, after: u64) -> Result<()> {
        if after > before {
            return self.grow(after - before);
        }
        self.shrink(before - after);
        Ok(())
    }

    /// Gives up `bytes` without returning them: another charge [`Charge::adopt`]s them.
    pub(super) fn cede(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "a node cedes more than it holds");
        self.bytes -= bytes;
    }

    /// Takes over `bytes` that another charge ceded.
    pub(super) fn adopt(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
        self.limits.0.inodes.give_back(1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Random, give_way};
    use super::*;

    #[test]
    fn a_charge_takes_within_the_limit_and_gives_all_back() {
        let budget = Budget::new(INODE_BYTES * 2 + 100, 3);
        let mut one = budget.take_inode().unwrap();
        one.grow(100).unwrap();
        let two = budget.take_inode().unwrap();
        assert!(matches!(budget.take_inode(), Err(Error::NoSpace)));
        assert_eq!(budget.racy_inodes(), 2, "an inode that cannot be paid is given back");
        assert!(matches!(one.grow(1), Err(Error::NoSpace)));
        one.shrink(60);
        one.change(40, 90).unwrap();
        assert_eq!(budget.racy_bytes(), INODE_BYTES * 2 + 90);
        drop((one, two));
        assert_eq!((budget.racy_bytes(), budget.racy_inodes()), (0, 0));
    }

    /// Each thread holds at most its part of the whole, so there is always room for its next take.
    #[test]
    fn no_request_is_refused_while_there_is_room() {
        const THREADS: u64 = 8;
        const PART: u64 = 1024;
        let limit = Limited::new(THREADS * PART, 1 << 20);
        assert_eq!(limit.batch, 32);
        std::thread::scope(|scope| {
            for seed in 0..THREADS {
                let limit = &limit;
                scope.spawn(move || {
                    give_way(seed);
                    let mut random = Random::new(seed + 1);
                    let (mut held, mut fuller, mut floor) = (0, true, 0);
                    for _ in 0..200_000 {
                        // Mostly upwards until it has its part, then mostly downwards for a while.
                        let amount = 1 + random.below(40);
                        if (random.below(8) > 0) == fuller {
                            let amount = amount.min(PART - held);
                            let taken =
                                amount == 0 || limit.take(amount, |_| Some(amount)).is_some();
                            assert!(taken, "seed {seed}: refused {amount} beside {held}");
                            held += amount;
                        } else {
                            let amount = amount.min(held);
                            limit.give_back(amount);
                            held -= amount;
                        }
                        let before = fuller;
                        fuller = if fuller { held < PART } else { held <= floor };
                        if before && !fuller {
                            // Mostly near the limit, where all of them together leave little.
                            floor = if random.below(64) == 0 { 0 } else { PART - 60 };
                        }
                    }
                    limit.give_back(held);
                });
            }
        });
        assert_eq!(limit.racy_used(), 0);
        assert_eq!(limit.take(THREADS * PART, Some), Some(THREADS * PART), "all in one piece");
        assert_eq!(limit.take(1, |_| Some(1)), None);
        assert_eq!(limit.racy_used(), THREADS * PART);
    }

    #[test]
    fn all_is_granted_and_no_more() {
        for seed in 0..50 {
            let limit = Limited::new(100_000 + seed, 1 << 20);
            let taken: u64 = std::thread::scope(|scope| {
                let take = || {
                    let mut random = Random::new(seed);
                    let mut all = 0;
                    while let Some(taken) =
                        limit.take(7, |rest| Some(rest.min(7)).filter(|&n| n > 0))
                    {
                        all += taken;
                        if random.below(3) == 0 {
                            limit.give_back(taken);
                            all -= taken;
                        }
                    }
                    all
                };
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            // A refused thread may have ended before another one returned its amount.
            let left = limit.take(u64::MAX, |rest| (rest > 0).then_some(rest)).unwrap_or(0);
            assert_eq!(taken + left, limit.max);
            assert!(left <= 3 * 7, "{left}");
        }
    }

    #[test]
    fn with_space_enough_a_thread_uses_a_word_of_its_own() {
        let limit = Limited::new(1 << 30, BATCH_BYTES);
        limit.give_back(limit.take(100, |_| Some(100)).unwrap());
        let rest = || limit.rest.load(Relaxed);
        let before = rest();
        for _ in 0..1000 {
            assert_eq!(limit.take(448, |_| Some(448)), Some(448));
            limit.give_back(448);
        }
        assert_eq!(rest(), before, "the shared word is left alone");
        assert_eq!(limit.racy_used(), 0);
    }

    #[test]
    fn inodes_are_limited_apart_from_bytes() {
        let budget = Budget::new(1 << 30, 1);
        let _one = budget.take_inode().unwrap();
        assert!(matches!(budget.take_inode(), Err(Error::NoSpace)));
    }

    #[test]
    fn units_are_granted_as_far_as_they_fit() {
        let budget = Budget::new(INODE_BYTES + 1000, 1);
        let mut charge = budget.take_inode().unwrap();
        assert_eq!(charge.grow_units(50, 100, 3), 3);
        assert_eq!(charge.grow_units(0, 100, 100), 6);
        assert_eq!(charge.grow_units(0, 100, 1), 0);
        assert_eq!(charge.grow_units(200, 1, 1), 0);
        assert_eq!(budget.racy_bytes(), INODE_BYTES + 950);
    }
}
