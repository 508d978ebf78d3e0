//! The policies that are replayed in this process: our own, as the product has it, and the
//! classics.
//!
//! # Boundary
//! Each answers whether a page was there, and takes it in if not. Time does not matter, only hits.
//!
//! # Why
//! The classics are small enough to write, and so are no rivals for speed but the yardstick of the
//! literature. Ours is the product's own code ([`Queues`], [`AccessWord`]) and evicts in batches,
//! as the product does.

use super::traces::{Trace, UNCOUNTED};
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use uvfs_concurrent::lock::LockClass;
use uvfs_containers::replacement::{Access, AccessWord, Offer, Queues};
use uvfs_containers::set_associative::SetAssociative;
use uvfs_containers::set_associative::hash::RowHash;

static ROW: LockClass = LockClass::new(1, "bench-row", "one row of the measured cache");

/// Names, in the order of the report. The last one knows the future.
pub(super) const NAMES: [&str; 6] = ["uvfs", "lru", "clock", "sieve", "s3-fifo", OPTIMUM];
pub(super) const OPTIMUM: &str = "optimum";
/// The cache in rows, which the image store has for its blocks. It has room for `capacity` pages in all, but a row can be
/// full before others are; so it is not among those that keep whatever fits.
pub(super) const ROWS: &str = "uvfs-rows";

/// Pages that leave at a time, at most.
const BATCH: usize = 32;

/// Hits of the counted accesses in percent.
pub(super) fn replay(name: &str, trace: &Trace) -> f64 {
    let capacity = trace.capacity;
    match name {
        "uvfs" => percent(&mut Uvfs::new(capacity), trace),
        "lru" => percent(&mut Lru::new(capacity), trace),
        "clock" => percent(&mut Clock::new(capacity), trace),
        "sieve" => percent(&mut Sieve::new(capacity), trace),
        "s3-fifo" => percent(&mut S3Fifo::new(capacity), trace),
        ROWS => percent(&mut Rows::new(capacity), trace),
        _ => percent(&mut Optimum::new(trace), trace),
    }
}

fn percent(policy: &mut impl Policy, trace: &Trace) -> f64 {
    let (mut hits, mut counted) = (0u64, 0u64);
    for access in &trace.accesses {
        let hit = policy.access(access & !UNCOUNTED);
        if access & UNCOUNTED == 0 {
            counted += 1;
            hits += u64::from(hit);
        }
    }
    100.0 * hits as f64 / counted.max(1) as f64
}

trait Policy {
    /// Whether `page` was there. It is afterwards, unless the policy knows better.
    fn access(&mut self, page: u64) -> bool;
}

/// Spreads page numbers well enough for tables.
#[derive(Debug, Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0xa076_1d64_78bd_642f;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

type Map<V> = HashMap<u64, V, BuildHasherDefault<Folded>>;

/// The words of all frames, as an arena has them.
struct Words(Vec<AccessWord>);

impl Access for Words {
    fn access(&self, frame: u32) -> &AccessWord {
        &self.0[frame as usize]
    }
}

/// The product's policy.
struct Uvfs {
    frames: Map<u32>,
    /// Page in each frame.
    pages: Vec<u64>,
    free: Vec<u32>,
    words: Words,
    queues: Queues,
    batch: usize,
    candidates: Vec<u32>,
}

impl Uvfs {
    fn new(capacity: usize) -> Self {
        let frames = capacity as u32;
        let mut queues = Queues::new(frames);
        queues.set_capacity(capacity);
        Self {
            frames: Map::default(),
            pages: vec![0; capacity],
            free: (0..frames).rev().collect(),
            words: Words((0..frames).map(|_| AccessWord::default()).collect()),
            queues,
            batch: (capacity / 64).clamp(1, BATCH),
            candidates: Vec::new(),
        }
    }

    fn evict(&mut self) {
        while self.free.is_empty() {
            let offer = self.queues.candidates(&self.words, self.batch, &mut self.candidates);
            assert_ne!(offer, Offer::Exhausted, "every page may leave here");
            for frame in self.candidates.drain(..) {
                let page = self.pages[frame as usize];
                self.frames.remove(&page);
                self.queues.evicted(frame, page);
                self.free.push(frame);
            }
        }
    }
}

impl Policy for Uvfs {
    fn access(&mut self, page: u64) -> bool {
        if let Some(&frame) = self.frames.get(&page) {
            self.words.access(frame).touch(self.queues.clock());
            return true;
        }
        self.evict();
        let frame = self.free.pop().expect("evict made room");
        self.pages[frame as usize] = page;
        self.frames.insert(page, frame);
        self.queues.admit(&self.words, frame, page);
        false
    }
}

/// Pages of a row.
const WAYS: usize = 16;

/// Each row evicts its least recently used page.
struct Rows(SetAssociative<u64, u64, WAYS>);

impl Rows {
    fn new(capacity: usize) -> Self {
        // Which row fills first depends on the hash, which is the same in every run.
        let hash = RowHash::with_seeds(0x5eed, 0x9e37_79b9_7f4a_7c15);
        Self(SetAssociative::new(&ROW, capacity.div_ceil(WAYS), hash))
    }
}

impl Policy for Rows {
    fn access(&mut self, page: u64) -> bool {
        let hit = self.0.get(page).is_some();
        if !hit {
            self.0.insert(page, page);
        }
        hit
    }
}

/// Least recently used leaves.
struct Lru {
    used: Map<u64>,
    order: BTreeMap<u64, u64>,
    now: u64,
    capacity: usize,
}

impl Lru {
    fn new(capacity: usize) -> Self {
        Self { used: Map::default(), order: BTreeMap::new(), now: 0, capacity }
    }
}

impl Policy for Lru {
    fn access(&mut self, page: u64) -> bool {
        self.now += 1;
        let before = self.used.insert(page, self.now);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.used.len() > self.capacity
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
        self.order.insert(self.now, page);
        before.is_some()
    }
}

/// One bit and a hand (Corbató 1968).
struct Clock {
    places: Map<usize>,
    ring: Vec<(u64, bool)>,
    hand: usize,
    capacity: usize,
}

impl Clock {
    fn new(capacity: usize) -> Self {
        Self { places: Map::default(), ring: Vec::new(), hand: 0, capacity }
    }
}

impl Policy for Clock {
    fn access(&mut self, page: u64) -> bool {
        if let Some(&place) = self.places.get(&page) {
            self.ring[place].1 = true;
            return true;
        }
        if self.ring.len() < self.capacity {
            self.places.insert(page, self.ring.len());
            self.ring.push((page, false));
            return false;
        }
        while std::mem::replace(&mut self.ring[self.hand].1, false) {
            self.hand = (self.hand + 1) % self.capacity;
        }
        let (gone, _) = std::mem::replace(&mut self.ring[self.hand], (page, false));
        self.places.remove(&gone);
        self.places.insert(page, self.hand);
        self.hand = (self.hand + 1) % self.capacity;
        false
    }
}

/// One queue and a hand that keeps its place (Zhang et al. 2024).
struct Sieve {
    /// Pages by when they came, with the bit that they were used; keys stay for good.
    queue: BTreeMap<u64, (u64, bool)>,
    came: Map<u64>,
    /// The next to be looked at came at or after this.
    hand: u64,
    now: u64,
    capacity: usize,
}

impl Sieve {
    fn new(capacity: usize) -> Self {
        Self { queue: BTreeMap::new(), came: Map::default(), hand: 0, now: 0, capacity }
    }

    fn evict(&mut self) {
        loop {
            let from = self.hand;
            let next = self.queue.range_mut(from..).next();
            let Some((&came, (page, used))) = next else {
                self.hand = 0;
                continue;
            };
            self.hand = came + 1;
            if !std::mem::replace(used, false) {
                self.came.remove(page);
                self.queue.remove(&came);
                return;
            }
        }
    }
}

impl Policy for Sieve {
    fn access(&mut self, page: u64) -> bool {
        if let Some(came) = self.came.get(&page) {
            if let Some(entry) = self.queue.get_mut(came) {
                entry.1 = true;
            }
            return true;
        }
        if self.came.len() >= self.capacity {
            self.evict();
        }
        self.now += 1;
        self.came.insert(page, self.now);
        self.queue.insert(self.now, (page, false));
        false
    }
}

/// Three queues, as published (Yang et al. 2023): one use promotes.
struct S3Fifo {
    counts: Map<u8>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: VecDeque<u64>,
    /// How often each page is in `ghost`.
    ghosts: Map<u32>,
    capacity: usize,
    small_target: usize,
}

impl S3Fifo {
    fn new(capacity: usize) -> Self {
        Self {
            counts: Map::default(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            ghosts: Map::default(),
            capacity,
            small_target: (capacity / 10).max(1),
        }
    }

    fn remember(&mut self, page: u64) {
        self.ghost.push_back(page);
        *self.ghosts.entry(page).or_default() += 1;
        if self.ghost.len() > self.capacity - self.small_target
            && let Some(oldest) = self.ghost.pop_front()
            && let Entry::Occupied(mut times) = self.ghosts.entry(oldest)
        {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
    }

    /// Evicts one page, from the small queue if that is long, else from the main queue.
    fn evict(&mut self) {
        while self.small.len() >= self.small_target || self.main.is_empty() {
            let Some(page) = self.small.pop_front() else { break };
            let count = self.counts.entry(page).or_default();
            if *count > 0 {
                *count = 0;
                self.main.push_back(page);
            } else {
                self.counts.remove(&page);
                return self.remember(page);
            }
        }
        while let Some(page) = self.main.pop_front() {
            let count = self.counts.entry(page).or_default();
            if *count > 0 {
                *count -= 1;
                self.main.push_back(page);
            } else {
                self.counts.remove(&page);
                return;
            }
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, page: u64) -> bool {
        if let Some(count) = self.counts.get_mut(&page) {
            *count = (*count + 1).min(3);
            return true;
        }
        if self.counts.len() >= self.capacity {
            self.evict();
        }
        self.counts.insert(page, 0);
        match self.ghosts.contains_key(&page) {
            true => self.main.push_back(page),
            false => self.small.push_back(page),
        }
        false
    }
}

/// Knows the next use of each page and evicts the one with the latest (Belady 1966), which may be
/// the page that was just read. Nothing can have more hits.
struct Optimum {
    /// The next use of the page of each access.
    next: Vec<u32>,
    now: usize,
    resident: Map<u32>,
    /// Next uses, the latest on top; entries that `resident` does not confirm are old.
    latest: BinaryHeap<(u32, Reverse<u64>)>,
    capacity: usize,
}

impl Optimum {
    fn new(trace: &Trace) -> Self {
        let mut next = vec![u32::MAX; trace.accesses.len()];
        let mut seen: Map<u32> = Map::default();
        for (at, access) in trace.accesses.iter().enumerate().rev() {
            if let Some(later) = seen.insert(access & !UNCOUNTED, at as u32) {
                next[at] = later;
            }
        }
        let capacity = trace.capacity;
        Self { next, now: 0, resident: Map::default(), latest: BinaryHeap::new(), capacity }
    }
}

impl Policy for Optimum {
    fn access(&mut self, page: u64) -> bool {
        let next = self.next[self.now];
        self.now += 1;
        let hit = self.resident.insert(page, next).is_some();
        self.latest.push((next, Reverse(page)));
        while self.resident.len() > self.capacity
            && let Some((when, Reverse(page))) = self.latest.pop()
        {
            if self.resident.get(&page) == Some(&when) {
                self.resident.remove(&page);
            }
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(capacity: usize, accesses: impl IntoIterator<Item = u64>) -> Trace {
        Trace { name: "test".to_owned(), capacity, accesses: accesses.into_iter().collect() }
    }

    fn check(name: &str, trace: &Trace, wanted: f64) {
        let found = replay(name, trace);
        assert!((found - wanted).abs() < 1e-9, "{name}: {found}, not {wanted}");
    }

    #[test]
    fn what_fits_stays() {
        let fitting = trace(100, (0..1000).map(|nth| nth % 90));
        NAMES.iter().for_each(|name| check(name, &fitting, 91.0));
    }

    #[test]
    fn no_policy_holds_more_than_the_capacity() {
        // A loop of twice the cache: at most half of each round can be there.
        let beyond = trace(200, (0..40_000).map(|nth| nth % 400));
        for name in NAMES {
            assert!(replay(name, &beyond) <= 50.0, "{name}");
        }
        assert!(replay(OPTIMUM, &beyond) > 49.0);
        check("lru", &beyond, 0.0);
        check("clock", &beyond, 0.0);
    }

    /// Worked out by hand, for a cache of two or three pages.
    #[test]
    fn the_classics_do_what_they_are_known_for() {
        let [a, b, c, d] = [1, 2, 3, 4];
        check("lru", &trace(2, [a, b, a, c, a, b]), 100.0 / 3.0);
        // The hand takes A's bit, and B; then A's bit again, and C.
        check("clock", &trace(2, [a, b, a, c, a, b]), 100.0 / 3.0);
        // Both bits are cleared, and A is evicted; so B replaces A, and C replaces B.
        check("clock", &trace(2, [a, b, a, b, c, a, b]), 200.0 / 7.0);
        // The hand is behind A; C, newer than the hand, is evicted before A is visited again.
        check("sieve", &trace(2, [a, b, a, c, d, a]), 200.0 / 6.0);
        check(OPTIMUM, &trace(2, [a, b, c, a, b, c]), 200.0 / 6.0);
    }

    #[test]
    fn the_optimum_is_never_beaten() {
        let sizes = super::super::traces::Sizes { capacity: 300, pages: 4096, length: 30_000 };
        for name in super::super::traces::NAMES {
            let trace = super::super::traces::make(name, sizes);
            let best = replay(OPTIMUM, &trace);
            for policy in NAMES {
                assert!(replay(policy, &trace) <= best + 1e-9, "{policy} in {name}");
            }
        }
    }

    #[test]
    fn uncounted_accesses_are_made_but_not_counted() {
        let mixed = trace(10, [5 | UNCOUNTED, 5, 6, 6 | UNCOUNTED]);
        NAMES.iter().for_each(|name| check(name, &mixed, 50.0));
    }
}
