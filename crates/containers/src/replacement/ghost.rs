//! Recently evicted pages: fingerprints in a bounded table.
//!
//! Entry: `time:14 | fingerprint:18`, zero for none. A bucket is sixteen entries, one cache line.
//!
//! # Boundary
//! Remembers hashes and forgets them by age. `contains` is wrongly true for one page in
//! some ten thousand, which then gets too good a place. A page forgotten too early gets a worse
//! one.
//!
//! # Why
//! The page's slot in its tree could hold the mark (like Linux's shadow entries), but then a file
//! that is read once keeps its tree for ever. A table of 4 bytes an entry is bounded from the start
//! and needs no cleaning. Weakness: a bucket to which more pages hash than it has entries forgets
//! its oldest early.

const WAYS: usize = 16;
const FINGERPRINT_BITS: u32 = 18;
const FINGERPRINT: u32 = (1 << FINGERPRINT_BITS) - 1;
/// Steps of the entries' time after which an entry is too old.
const STEPS: u32 = 1 << 10;
const TIME: u32 = (1 << (32 - FINGERPRINT_BITS)) - 1;

/// The table of fingerprints.
#[derive(Debug)]
pub(super) struct Ghost {
    buckets: Vec<[u32; WAYS]>,
    /// The number of evicted pages.
    departures: u64,
    departures_per_step: u64,
}

/// Spreads a key over all 64 bits.
pub(super) fn mix(key: u64) -> u64 {
    let product = u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
    (product as u64) ^ (product >> 64) as u64
}

impl Ghost {
    /// Remembers about the last `entries` evicted pages.
    pub(super) fn new(entries: usize) -> Self {
        // A quarter more, because hashes do not fill buckets evenly.
        let buckets = (entries + entries / 4).div_ceil(WAYS).max(1);
        Self {
            buckets: vec![[0; WAYS]; buckets],
            departures: 0,
            departures_per_step: (entries as u64 / u64::from(STEPS)).max(1),
        }
    }

    fn place(&self, key: u64) -> (usize, u32) {
        let hash = mix(key);
        let bucket = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, ((hash as u32) & FINGERPRINT).max(1))
    }

    fn now(&self) -> u32 {
        (self.departures / self.departures_per_step) as u32 & TIME
    }

    /// Steps since `entry` was made.
    fn age(&self, entry: u32) -> u32 {
        self.now().wrapping_sub(entry >> FINGERPRINT_BITS) & TIME
    }

    /// Remembers that `key` was evicted.
    pub(super) fn insert(&mut self, key: u64) {
        self.departures += 1;
        let (bucket, fingerprint) = self.place(key);
        let entries = &self.buckets[bucket];
        let goes = |&way: &usize| match entries[way] {
            entry if entry & FINGERPRINT == fingerprint => u32::MAX,
            0 => u32::MAX - 1,
            entry => self.age(entry),
        };
        let way = (0..WAYS).max_by_key(goes).unwrap_or(0);
        self.buckets[bucket][way] = self.now() << FINGERPRINT_BITS | fingerprint;
    }

    /// Whether `key` was evicted recently.
    pub(super) fn contains(&self, key: u64) -> bool {
        let (bucket, fingerprint) = self.place(key);
        let fits =
            |entry: &&u32| **entry & FINGERPRINT == fingerprint && self.age(**entry) <= STEPS;
        self.buckets[bucket].iter().find(fits).is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.buckets.as_slice())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn remembers_about_as_many_as_asked() {
        let mut ghost = Ghost::new(10_000);
        for key in 0..100_000 {
            ghost.insert(key);
        }
        let share = |keys: std::ops::Range<u64>| {
            let length = keys.end - keys.start;
            keys.filter(|&key| ghost.contains(key)).count() as f64 / length as f64
        };
        assert!(share(91_000..100_000) > 0.97, "{}", share(91_000..100_000));
        assert!(share(0..88_000) < 0.001, "{}", share(0..88_000));
        assert!(share(1_000_000..1_100_000) < 0.001);
        assert!(ghost.bytes() <= 10_000 * 5 + 64, "{}", ghost.bytes());
    }

    #[test]
    fn the_same_page_takes_one_entry() {
        let mut ghost = Ghost::new(16);
        for _ in 0..10 {
            ghost.insert(7);
        }
        let taken = ghost.buckets.iter().flatten().filter(|&&entry| entry != 0).count();
        assert_eq!(taken, 1);
        assert!(ghost.contains(7));
    }

    #[test]
    fn the_smallest_table_works() {
        let mut ghost = Ghost::new(0);
        ghost.insert(1);
        assert!(ghost.contains(1));
    }
}
