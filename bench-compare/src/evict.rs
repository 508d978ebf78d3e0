//! `bench-compare evict`: how many hits the rivals of the page cache keep.
//!
//! # Boundary
//! Replays accesses that the bench has made up. A request is a line, then as many accesses as it says,
//! each a little-endian word of eight bytes. An answer is one line:
//!
//! ```text
//! bench-compare evict 1 moka quick_cache tinyufo foyer scc (at the start)
//! replay moka 65536 6000000              hits 3885021 counted 5000000
//!                                        failed WHY
//! ```
//! An access whose top bit is set is not counted, nor is its hit; the other bits are the key. A miss
//! inserts the key. Each replay begins with an empty cache. `end`, or the end of input, ends it.
//!
//! # Why
//! One thread, and no shards where the crate lets that be chosen: the ratio of hits is each policy's
//! at its best, and always the same. TinyUFO hashes with a key that it draws at random, so its ratio
//! differs a little from run to run.

use foyer_memory::{CacheBuilder, CacheProperties, S3FifoConfig};
use quick_cache::UnitWeighter;
use std::io::{self, BufRead, Read, Write};

/// One for all that let it be chosen: a folded multiplication.
type Folded = foldhash::fast::FixedState;

/// The version of the lines above.
const PROTOCOL: u32 = 1;
const NAMES: [&str; 5] = ["moka", "quick_cache", "tinyufo", "foyer", "scc"];

/// The bit of an access that is not counted.
const UNCOUNTED: u64 = 1 << 63;
/// Most entries of a cache.
const CAPACITY_MAX: u64 = 1 << 31;
/// Accesses after which moka is given time to look after its queues.
const MOKA_ACCESSES: u32 = 64;
/// Accesses read at a time.
const BATCH: u64 = 8192;

/// Answers requests until they end.
///
/// # Errors
/// If one cannot be read or answered, or its accesses are cut off.
pub(crate) fn serve(mut requests: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    writeln!(answers, "bench-compare evict {PROTOCOL} {}", NAMES.join(" "))?;
    answers.flush()?;
    let mut line = Vec::new();
    while requests.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        if text == "end" {
            break;
        }
        let answer = match parse(&text) {
            Ok(request) => answer(&request, &mut requests)?,
            Err(why) => format!("failed {why}"),
        };
        writeln!(answers, "{answer}")?;
        answers.flush()?;
        line.clear();
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Request {
    system: String,
    capacity: u64,
    accesses: u64,
}

fn parse(line: &str) -> Result<Request, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["replay", system, capacity, accesses] = words[..] else {
        return Err(format!("no such request: {line}"));
    };
    let number = |word: &str| word.parse().map_err(|_| format!("{word} is no number"));
    let (capacity, accesses) = (number(capacity)?, number(accesses)?);
    Ok(Request { system: system.to_owned(), capacity, accesses })
}

/// The answer to a request whose accesses follow. They are read even if it is refused.
fn answer(request: &Request, requests: &mut impl Read) -> io::Result<String> {
    let (accesses, capacity) = (request.accesses, request.capacity as usize);
    let tally = match request.system.as_str() {
        _ if !(1..=CAPACITY_MAX).contains(&request.capacity) => {
            Err(format!("a capacity is 1 to {CAPACITY_MAX}"))
        }
        "moka" => Ok(replay(Moka::new(capacity), accesses, requests)?),
        "quick_cache" => Ok(replay(Quick::new(capacity), accesses, requests)?),
        "tinyufo" => Ok(replay(Ufo::new(capacity), accesses, requests)?),
        "foyer" => Ok(replay(Foyer::new(capacity), accesses, requests)?),
        "scc" => Ok(replay(Scc::new(capacity), accesses, requests)?),
        other => Err(format!("no rival {other}; there are: {}", NAMES.join(", "))),
    };
    match tally {
        Ok(Tally { hits, counted }) => Ok(format!("hits {hits} counted {counted}")),
        Err(why) => {
            each(accesses, requests, |_| {})?;
            Ok(format!("failed {why}"))
        }
    }
}

/// A cache that decides what to keep.
trait Policy: Sized {
    /// With room for `capacity` entries.
    fn new(capacity: usize) -> Self;

    /// Whether `key` was there; inserts it if not.
    fn access(&mut self, key: u64) -> bool;
}

#[derive(Debug, Default, PartialEq)]
struct Tally {
    hits: u64,
    counted: u64,
}

fn replay(mut policy: impl Policy, accesses: u64, requests: &mut impl Read) -> io::Result<Tally> {
    let mut tally = Tally::default();
    each(accesses, requests, |access| {
        let hit = policy.access(access & !UNCOUNTED);
        let counts = access & UNCOUNTED == 0;
        tally.hits += u64::from(hit && counts);
        tally.counted += u64::from(counts);
    })?;
    Ok(tally)
}

/// Calls `take` with each of the next `accesses`.
fn each(accesses: u64, requests: &mut impl Read, mut take: impl FnMut(u64)) -> io::Result<()> {
    let mut bytes = Vec::new();
    let mut left = accesses;
    while left > 0 {
        let now = left.min(BATCH);
        bytes.resize(now as usize * 8, 0);
        requests.read_exact(&mut bytes)?;
        bytes.as_chunks().0.iter().for_each(|&word| take(u64::from_le_bytes(word)));
        left -= now;
    }
    Ok(())
}

/// `moka::sync::Cache`: TinyLFU with a window.
struct Moka {
    cache: moka::sync::Cache<u64, (), Folded>,
    since: u32,
}

impl Policy for Moka {
    fn new(capacity: usize) -> Self {
        let builder = moka::sync::Cache::builder().max_capacity(capacity as u64);
        Self { cache: builder.build_with_hasher(Folded::default()), since: 0 }
    }

    fn access(&mut self, key: u64) -> bool {
        let hit = self.cache.get(&key).is_some();
        if !hit {
            self.cache.insert(key, ());
        }
        self.since += 1;
        if self.since == MOKA_ACCESSES {
            self.cache.run_pending_tasks();
            self.since = 0;
        }
        hit
    }
}

/// `quick_cache::unsync::Cache`: a variant of S3-FIFO; the one without shards.
struct Quick(quick_cache::unsync::Cache<u64, (), UnitWeighter, Folded>);

impl Policy for Quick {
    fn new(capacity: usize) -> Self {
        Self(quick_cache::unsync::Cache::with(
            capacity,
            capacity as u64,
            UnitWeighter,
            Folded::default(),
            quick_cache::unsync::DefaultLifecycle::default(),
        ))
    }

    fn access(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, ());
        }
        hit
    }
}

/// `tinyufo::TinyUfo`: S3-FIFO with the admission of TinyLFU.
struct Ufo(tinyufo::TinyUfo<u64, ()>);

impl Policy for Ufo {
    fn new(capacity: usize) -> Self {
        Self(tinyufo::TinyUfo::new(capacity, capacity))
    }

    fn access(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.put(key, (), 1);
        }
        hit
    }
}

/// `foyer_memory::Cache`: S3-FIFO, in one shard.
struct Foyer(foyer_memory::Cache<u64, (), Folded, CacheProperties>);

impl Policy for Foyer {
    fn new(capacity: usize) -> Self {
        let builder = CacheBuilder::new(capacity).with_shards(1);
        let builder = builder.with_eviction_config(S3FifoConfig::default());
        Self(builder.with_hash_builder(Folded::default()).build())
    }

    fn access(&mut self, key: u64) -> bool {
        let hit = self.0.get(&key).is_some();
        if !hit {
            self.0.insert(key, ());
        }
        hit
    }
}

/// `scc::HashCache`: 32-way buckets with a lock each, least recently used within one; the capacity is rounded up to a power
/// of two of buckets.
struct Scc(scc::HashCache<u64, (), Folded>);

impl Policy for Scc {
    fn new(capacity: usize) -> Self {
        Self(scc::HashCache::with_capacity_and_hasher(0, capacity, Folded::default()))
    }

    fn access(&mut self, key: u64) -> bool {
        let hit = self.0.get_sync(&key).is_some();
        if !hit {
            // Returns the pair that the insert evicted.
            let _ = self.0.put_sync(key, ());
        }
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request with its accesses.
    fn request(system: &str, capacity: u64, accesses: &[u64]) -> Vec<u8> {
        let mut bytes = format!("replay {system} {capacity} {}\n", accesses.len()).into_bytes();
        bytes.extend(accesses.iter().flat_map(|access| access.to_le_bytes()));
        bytes
    }

    /// Everything that is said when `requests` are asked.
    fn said(requests: &[u8]) -> Vec<String> {
        let mut answers = Vec::new();
        serve(requests, &mut answers).unwrap();
        String::from_utf8(answers).unwrap().lines().map(str::to_owned).collect()
    }

    /// Hits and counted accesses of an answer.
    fn figures(answer: &str) -> (u64, u64) {
        let words: Vec<&str> = answer.split(' ').collect();
        let ["hits", hits, "counted", counted] = words[..] else { panic!("{answer}") };
        (hits.parse().unwrap(), counted.parse().unwrap())
    }

    #[test]
    fn every_rival_keeps_what_fits_and_loses_what_does_not() {
        let fitting: Vec<u64> = (0..20_000).map(|nth| nth % 500).collect();
        let fresh: Vec<u64> = (0..20_000).collect();
        let beyond: Vec<u64> = (0..20_000).map(|nth| nth % 2000).collect();
        for name in NAMES {
            let all = [&fitting, &fresh, &beyond].map(|trace| request(name, 1000, trace));
            let answers = said(&all.concat());
            let (hits, counted) = figures(&answers[1]);
            assert!(hits > 19_000 && hits <= 19_500 && counted == 20_000, "{name}: {answers:?}");
            assert_eq!(figures(&answers[2]), (0, 20_000), "{name}");
            let (hits, _) = figures(&answers[3]);
            assert!(hits <= 11_000, "{name} holds more than it may: {answers:?}");
        }
    }

    #[test]
    fn uncounted_accesses_are_made_all_the_same() {
        let trace = [5 | UNCOUNTED, 5, 5 | UNCOUNTED, 5, 6];
        for name in NAMES {
            let answers = said(&request(name, 100, &trace));
            assert_eq!(answers[1], "hits 2 counted 3", "{name}");
        }
    }

    #[test]
    fn the_accesses_of_a_refused_request_are_passed_over() {
        // Bytes of a newline among them.
        let trace = [0x0a0a_0a0a; 20_000];
        let mut requests = request("lru", 10, &trace);
        requests.extend(request("moka", 0, &trace));
        requests.extend(b"what\n");
        requests.extend(request("quick_cache", 10, &[1, 1]));
        requests.extend(b"end\nwhat\n");
        let answers = said(&requests);
        assert!(answers[1].starts_with("failed no rival lru; there are: moka"), "{answers:?}");
        assert!(answers[2].starts_with("failed a capacity is"), "{answers:?}");
        assert!(answers[3].starts_with("failed no such request: what"), "{answers:?}");
        assert_eq!(answers[4], "hits 1 counted 2");
        assert_eq!(answers.len(), 5);
    }

    #[test]
    fn requests_are_read_and_cut_off_accesses_end_it() {
        let request = Request { system: "moka".to_owned(), capacity: 7, accesses: 9 };
        assert_eq!(parse("replay moka 7 9"), Ok(request));
        for line in ["replay moka 7", "replay moka x 9", "replay moka 7 -1", "play moka 7 9"] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(serve(&b"replay moka 7 9\n1234567"[..], io::sink()).is_err());
    }
}
