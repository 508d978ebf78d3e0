//! The accesses that caches are judged by: synthetic, the same in every run, or read from a file.
//!
//! # Boundary
//! Page numbers in order. Some accesses are not counted: the warm-up, and accesses that disturb the
//! counted ones.
//!
//! # Why
//! Each trace is one pattern of page caches: skew, scans between and among other accesses, scans in
//! pieces of a page, loops, change. Weakness: synthetic, so none is as mixed as real accesses; a
//! recorded file may have other results.

use std::collections::HashSet;
use std::io::{self, BufRead};

/// The bit of an access that is not counted. Keys are below 2⁶².
pub(super) const UNCOUNTED: u64 = 1 << 63;
const KEYS_MAX: u64 = 1 << 62;
/// Names of the traces that are made up.
pub(super) const NAMES: [&str; 10] = [
    "zipf-0.99",
    "zipf-0.8",
    "scan-bursts",
    "scan-interleaved",
    "scan-sub-page",
    "loop-mixed",
    "loop-1.2",
    "moving-hot",
    "recency",
    "scan-10x",
];

/// A sequence of accesses to a cache of `capacity` pages.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) name: String,
    pub(super) capacity: usize,
    pub(super) accesses: Vec<u64>,
}

/// How large the made-up traces are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) capacity: usize,
    /// Pages of skewed accesses; a power of two.
    pub(super) pages: u64,
    pub(super) length: usize,
}

impl Sizes {
    /// The figures of the literature: a cache of 256 MiB in pages.
    pub(super) const FULL: Sizes = Sizes { capacity: 65_536, pages: 1 << 20, length: 6_000_000 };
    /// A quarter of that.
    pub(super) const QUICK: Sizes = Sizes { capacity: 16_384, pages: 1 << 18, length: 1_500_000 };
    /// So small that figures mean nothing.
    pub(super) const TINY: Sizes = Sizes { capacity: 512, pages: 1 << 13, length: 40_000 };
}

/// The start of scans, apart from all other pages.
const FAR: u64 = 1 << 40;

/// The made-up trace `name`.
///
/// # Panics
/// If there is no such trace.
pub(super) fn make(name: &str, sizes: Sizes) -> Trace {
    let Sizes { capacity, pages, length } = sizes;
    let far = |nth: usize| FAR + nth as u64;
    let accesses = match name {
        "zipf-0.99" => skewed(sizes, 0.99, |_, page| page),
        "zipf-0.8" => skewed(sizes, 0.8, |_, page| page),
        // Every other stretch of twice the cache is a scan of pages that never come again.
        "scan-bursts" => skewed(sizes, 0.99, |nth, page| match nth / (2 * capacity) % 2 {
            0 => page,
            _ => far(nth) | UNCOUNTED,
        }),
        "scan-interleaved" => skewed(sizes, 0.99, |nth, page| match nth % 2 {
            0 => page,
            _ => far(nth) | UNCOUNTED,
        }),
        // The same, reading each page of the scan in four pieces.
        "scan-sub-page" => skewed(sizes, 0.99, |nth, page| match nth % 2 {
            0 => page,
            _ => far(nth / 8) | UNCOUNTED,
        }),
        "loop-mixed" => skewed(sizes, 0.99, |nth, page| match nth % 2 {
            0 => page,
            _ => far(nth / 2 % (2 * capacity)),
        }),
        "loop-1.2" => warm(length, |nth| (nth % (capacity * 6 / 5)) as u64),
        // Twelve times in all the skew points elsewhere.
        "moving-hot" => {
            let step = (length / 12).max(1);
            let moved = |nth: usize, rank: u64| (rank + (nth / step) as u64 * 77_777) % pages;
            let mut zipf = Zipf::new(pages, 0.99);
            warm(length, |nth| scattered(moved(nth, zipf.next()), pages))
        }
        "recency" => {
            // A sixth of the trace begins with a scan as long as the cache; the rest fits.
            let (fitting, mut random) = (capacity as u64 * 9 / 10, Random(7));
            warm(length, |nth| match nth % (length / 6).max(1) < capacity {
                true => far(nth),
                false => random.next() % fitting,
            })
        }
        "scan-10x" => scan_of_ten(capacity),
        _ => panic!("no trace {name}"),
    };
    Trace { name: name.to_owned(), capacity, accesses }
}

/// A hot set of half the cache; a scan of ten times the cache; and then each page of the hot set
/// once, the only counted accesses.
fn scan_of_ten(capacity: usize) -> Vec<u64> {
    let hot = (capacity / 2) as u64;
    let mut random = Random(11);
    let warm = (0..capacity * 10).map(|_| (random.next() % hot) | UNCOUNTED);
    let mut accesses: Vec<u64> = warm.collect();
    accesses.extend((0..capacity * 10).map(|nth| (FAR + nth as u64) | UNCOUNTED));
    accesses.extend(0..hot);
    accesses
}

/// `length` accesses, of which the first sixth is not counted.
fn warm(length: usize, mut access: impl FnMut(usize) -> u64) -> Vec<u64> {
    let of = |nth| if nth <= length / 6 { access(nth) | UNCOUNTED } else { access(nth) };
    (0..length).map(of).collect()
}

/// Accesses made by `choose` from the position and a skewed page.
fn skewed(sizes: Sizes, skew: f64, choose: impl Fn(usize, u64) -> u64) -> Vec<u64> {
    let mut zipf = Zipf::new(sizes.pages, skew);
    warm(sizes.length, |nth| choose(nth, scattered(zipf.next(), sizes.pages)))
}

/// Popular pages are not neighbours.
fn scattered(rank: u64, pages: u64) -> u64 {
    rank.wrapping_mul(2_654_435_761) % pages
}

/// Reads a trace: a page's number in each line, decimal or `0x` and hexadecimal. Without a
/// `capacity` the cache gets a tenth of the pages.
///
/// # Errors
/// The line that is no number, or a file without any.
pub(super) fn read(name: &str, lines: impl BufRead, capacity: Option<usize>) -> io::Result<Trace> {
    let mut accesses = Vec::new();
    for (nth, line) in lines.lines().enumerate() {
        let line = line?;
        let word = line.trim();
        if word.is_empty() {
            continue;
        }
        let key = match word.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => word.parse(),
        };
        let key = key.ok().filter(|&key| key < KEYS_MAX);
        let why = || format!("line {}: {word:?} is no page number below 2^62", nth + 1);
        accesses.push(key.ok_or_else(|| io::Error::other(why()))?);
    }
    if accesses.is_empty() {
        return Err(io::Error::other("no accesses in it"));
    }
    let tenth = || accesses.iter().collect::<HashSet<_>>().len() / 10;
    let capacity = capacity.unwrap_or_else(tenth).max(1);
    Ok(Trace { name: name.to_owned(), capacity, accesses })
}

/// Marsaglia's xorshift with 64 bits.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Ranks by Zipf's law, as Gray et al. 1994 draw them.
struct Zipf {
    random: Random,
    ranks: u64,
    zeta: f64,
    zeta_2: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(ranks: u64, skew: f64) -> Self {
        let n = ranks as f64;
        let zeta: f64 = (1..=ranks).map(|rank| (rank as f64).powf(-skew)).sum();
        let zeta_2 = 1.0 + 0.5f64.powf(skew);
        let eta = (1.0 - (2.0 / n).powf(1.0 - skew)) / (1.0 - zeta_2 / zeta);
        let random = Random(0x9e37_79b9_7f4a_7c15);
        Self { random, ranks, zeta, zeta_2, alpha: 1.0 / (1.0 - skew), eta }
    }

    fn next(&mut self) -> u64 {
        let uniform = (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        let rank = match scaled {
            _ if scaled < 1.0 => 0,
            _ if scaled < self.zeta_2 => 1,
            _ => {
                (self.ranks as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
            }
        };
        rank.min(self.ranks - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Sizes = Sizes { capacity: 100, pages: 1024, length: 12_000 };

    #[test]
    fn every_trace_is_made_and_the_same_each_time() {
        for name in NAMES {
            let [one, other] = [(); 2].map(|()| make(name, SMALL));
            assert_eq!(one.accesses, other.accesses, "{name}");
            assert!(one.accesses.iter().any(|access| access & UNCOUNTED == 0), "{name}");
            assert!(one.accesses.iter().all(|access| access & !UNCOUNTED < KEYS_MAX), "{name}");
        }
    }

    #[test]
    fn skew_makes_few_pages_popular() {
        let trace = make("zipf-0.99", SMALL);
        let popular = trace.accesses.iter().filter(|&&access| access & !UNCOUNTED == 0).count();
        let share = popular as f64 / trace.accesses.len() as f64;
        assert!((0.10..0.17).contains(&share), "{share}");
    }

    #[test]
    fn scans_in_pieces_touch_each_page_four_times() {
        let trace = make("scan-sub-page", SMALL);
        let first = trace.accesses.iter().filter(|&&access| access == (FAR + 500) | UNCOUNTED);
        assert_eq!(first.count(), 4);
    }

    #[test]
    fn a_file_gives_decimal_and_hexadecimal_pages() {
        let trace = read("a", &b"12\n\n 0xff \n12\n"[..], Some(7)).unwrap();
        assert_eq!((trace.accesses, trace.capacity), (vec![12, 255, 12], 7));
        assert_eq!(read("a", &b"1\n2\n"[..], None).unwrap().capacity, 1);
        let why = read("a", &b"1\nx\n"[..], None).unwrap_err().to_string();
        assert!(why.contains("line 2"), "{why}");
        assert!(read("a", &b"4611686018427387904\n"[..], None).is_err(), "2^62");
        assert!(read("a", &b"\n"[..], None).is_err());
    }
}
