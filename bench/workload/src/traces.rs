//! The keys of lookups, in their order.
//!
//! # Boundary
//! Draws keys before the clock starts; the caller looks them up.
//!
//! # Why
//! Drawing from a Zipf distribution costs more than most lookups, so keys are drawn once and read
//! from a list, which the processor fetches ahead. Weakness: from the list's length on they repeat.

use std::thread;

/// Exponent of the Zipf distribution.
const THETA: f64 = 0.99;
/// Keys of a thread before they repeat.
const KEYS_MAX: u64 = 1 << 22;
/// Entries of a cache: keys fit in four bytes, and the factor below stays a shuffle.
pub const ENTRIES_MAX: u64 = 1 << 31;
/// A prime above [`ENTRIES_MAX`]: multiplied by it, neighbours in popularity lie far apart.
const SCRAMBLE: u64 = 2_654_435_761;

/// How popular entries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// The n-th as often as 1 / n^0.99, scrambled.
    Zipf,
    /// One as the other.
    Uniform,
}

impl Pattern {
    /// Word in requests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zipf => "zipf",
            Self::Uniform => "uniform",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "zipf" => Some(Self::Zipf),
            "uniform" => Some(Self::Uniform),
            _ => None,
        }
    }
}

/// A list of keys for each thread.
#[derive(Debug)]
pub struct Traces {
    pattern: Pattern,
    entries: u64,
    length: u64,
    /// The list of each thread.
    lists: Vec<Vec<u32>>,
}

impl Traces {
    /// For `threads` threads that ask `ops` times each. Always the same for the same numbers.
    pub fn new(pattern: Pattern, entries: u64, threads: usize, ops: u64) -> Self {
        let length = ops.clamp(1, KEYS_MAX);
        let zipf = (pattern == Pattern::Zipf).then(|| Zipf::new(entries));
        let list = |number: usize| -> Vec<u32> {
            let mut random = Random::new(number as u64);
            let draw = |_| match &zipf {
                Some(zipf) => (zipf.rank(random.fraction()) * SCRAMBLE % entries) as u32,
                None => ((u128::from(random.next()) * u128::from(entries)) >> 64) as u32,
            };
            (0..length).map(draw).collect()
        };
        let lists = thread::scope(|scope| {
            let list = &list;
            let members: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || list(number))).collect();
            members.into_iter().map(|one| one.join().unwrap_or_default()).collect()
        });
        Self { pattern, entries, length, lists }
    }

    /// Whether they equal the result of [`Self::new`].
    pub fn fit(&self, pattern: Pattern, entries: u64, threads: usize, ops: u64) -> bool {
        (self.pattern, self.entries, self.length, self.lists.len())
            == (pattern, entries, ops.clamp(1, KEYS_MAX), threads)
    }

    /// The keys of the thread `number`.
    pub fn list(&self, number: usize) -> &[u32] {
        &self.lists[number]
    }

    /// How many threads there are keys for.
    pub fn threads(&self) -> usize {
        self.lists.len()
    }

    /// Sum of all keys when each thread asks `ops` times.
    pub fn sum(&self, ops: u64) -> u64 {
        let sum = |keys: &[u32]| keys.iter().fold(0, |sum: u64, &key| sum + u64::from(key));
        let of_list = |list: &Vec<u32>| {
            let (rounds, rest) = (ops / self.length, ops % self.length);
            sum(list).wrapping_mul(rounds).wrapping_add(sum(&list[..rest as usize]))
        };
        self.lists.iter().map(of_list).fold(0, u64::wrapping_add)
    }
}

/// Draws ranks as Gray and others, "Quickly Generating Billion-Record Synthetic Databases", 1994.
struct Zipf {
    entries: u64,
    zeta: f64,
    /// Sum for the first two ranks, times `zeta`.
    two: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(entries: u64) -> Self {
        let zeta: f64 = (1..=entries).map(|rank| 1.0 / (rank as f64).powf(THETA)).sum();
        let two = 1.0 + 0.5_f64.powf(THETA);
        let eta = (1.0 - (2.0 / entries as f64).powf(1.0 - THETA)) / (1.0 - two / zeta);
        Self { entries, zeta, two, alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// The rank at `fraction` of the distribution, from 0.
    fn rank(&self, fraction: f64) -> u64 {
        let at = fraction * self.zeta;
        let rank = if at < 1.0 {
            0
        } else if at < self.two {
            1
        } else {
            (self.entries as f64 * (self.eta * fraction - self.eta + 1.0).powf(self.alpha)) as u64
        };
        rank.min(self.entries - 1)
    }
}

/// Marsaglia's xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        let mut random = Self(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(2 * seed + 1));
        // Seeds that are alike begin alike.
        for _ in 0..16 {
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// From 0 to less than 1.
    fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRIES: u64 = 10_000;
    const OPS: u64 = 200_000;

    /// How often each key is drawn, most popular first.
    fn popularity(traces: &Traces) -> Vec<u64> {
        let mut counts = vec![0; ENTRIES as usize];
        for number in 0..traces.threads() {
            traces.list(number).iter().for_each(|&key| counts[key as usize] += 1);
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts
    }

    #[test]
    fn zipf_has_favourites_and_uniform_has_none() {
        let zipf = popularity(&Traces::new(Pattern::Zipf, ENTRIES, 2, OPS));
        let draws = (2 * OPS) as f64;
        let share = |count: u64| count as f64 / draws;
        let harmonic: f64 = (1..=ENTRIES).map(|rank| (rank as f64).powf(-THETA)).sum();
        assert!((share(zipf[0]) - 1.0 / harmonic).abs() < 0.01, "{}", share(zipf[0]));
        let tenth: u64 = zipf[..ENTRIES as usize / 10].iter().sum();
        assert!((0.65..0.85).contains(&share(tenth)), "{}", share(tenth));
        let uniform = popularity(&Traces::new(Pattern::Uniform, ENTRIES, 2, OPS));
        assert!(uniform[0] < 100 && uniform[ENTRIES as usize - 1] > 0, "{uniform:?}");
    }

    #[test]
    fn threads_draw_differently_and_always_the_same() {
        for pattern in [Pattern::Zipf, Pattern::Uniform] {
            let traces = Traces::new(pattern, ENTRIES, 2, 1000);
            assert_ne!(traces.list(0), traces.list(1));
            assert_eq!(traces.list(1), Traces::new(pattern, ENTRIES, 2, 1000).list(1));
            assert!(traces.fit(pattern, ENTRIES, 2, 1000));
            assert!(!traces.fit(pattern, ENTRIES, 1, 1000));
            assert!(!traces.fit(pattern, ENTRIES, 2, 999));
        }
    }

    #[test]
    fn every_entry_can_be_drawn_and_no_other() {
        for entries in [1, 2, 3, 64] {
            for pattern in [Pattern::Zipf, Pattern::Uniform] {
                let traces = Traces::new(pattern, entries, 1, 20_000);
                let mut keys = traces.list(0).to_vec();
                keys.sort_unstable();
                keys.dedup();
                assert!(keys.iter().copied().eq(0..entries as u32), "{pattern:?} {keys:?}");
            }
        }
    }

    #[test]
    fn the_sum_is_that_of_the_keys_asked_for() {
        let traces = Traces::new(Pattern::Zipf, 100, 2, 50);
        let slow = |ops: u64| -> u64 {
            let of = |number| traces.list(number).iter().cycle().take(ops as usize);
            (0..2).flat_map(of).map(|&key| u64::from(key)).sum()
        };
        for ops in [0, 1, 50, 125] {
            assert_eq!(traces.sum(ops), slow(ops));
        }
    }
}
