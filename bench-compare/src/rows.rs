//! `bench-compare rows`: the rivals of the caches in rows, under the load of Peacock (1992).
//!
//! # Boundary
//! Fills a cache and runs threads over it on request; the bench that starts it makes the report. One line in, one line out:
//!
//! ```text
//! bench-compare rows 1 scc quick_cache               (at the start)
//! run scc 2 100000 1000                  ran 0.71    threads, accesses of each, words of work; seconds
//!                                        failed WHY
//! ```
//! Each run has a cache of its own, with room for as many elements as the bench's. `end`, or the end of input, ends it.
//!
//! # Why
//! The load is that of `uvfs-bench-workload`. Weakness: the rivals' locks are their own, so nothing counts how often they were
//! found held.

use quick_cache::UnitWeighter;
use quick_cache::sync::DefaultLifecycle;
use std::io::{self, BufRead, Write};
use uvfs_bench_workload::rows::{CAPACITY, Cache, fill, timed};
use uvfs_bench_workload::team::THREADS_MAX;

type Folded = foldhash::fast::FixedState;

/// The version of the lines above.
const PROTOCOL: u32 = 1;
const NAMES: [&str; 2] = ["scc", "quick_cache"];

/// Sets of 32, each with its order of use.
struct Scc(scc::HashCache<u64, u64, Folded>);

impl Cache for Scc {
    fn access(&self, key: u64) -> bool {
        let found = self.0.read_sync(&key, |_, value| *value).is_some();
        if !found {
            // Another thread may have inserted it meanwhile.
            let _ = self.0.put_sync(key, key);
        }
        found
    }
}

/// Shards under a lock each.
struct Quick(quick_cache::sync::Cache<u64, u64, UnitWeighter, Folded>);

impl Cache for Quick {
    fn access(&self, key: u64) -> bool {
        let found = self.0.get(&key).is_some();
        if !found {
            self.0.insert(key, key);
        }
        found
    }
}

fn new(name: &str) -> Result<Box<dyn Cache>, String> {
    let hasher = Folded::default();
    match name {
        "scc" => {
            let cache = scc::HashCache::with_capacity_and_hasher(CAPACITY, CAPACITY, hasher);
            Ok(Box::new(Scc(cache)))
        }
        "quick_cache" => {
            let (room, lifecycle) = (CAPACITY as u64, DefaultLifecycle::default());
            let cache =
                quick_cache::sync::Cache::with(CAPACITY, room, UnitWeighter, hasher, lifecycle);
            Ok(Box::new(Quick(cache)))
        }
        other => Err(format!("no rival {other}; there are: {}", NAMES.join(", "))),
    }
}

/// Answers requests until they end.
///
/// # Errors
/// If one cannot be read or answered.
pub(crate) fn serve(requests: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    writeln!(answers, "bench-compare rows {PROTOCOL} {}", NAMES.join(" "))?;
    answers.flush()?;
    for line in requests.lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        let answer = answer(&line).unwrap_or_else(|why| format!("failed {why}"));
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<String, String> {
    let number = |word: &str| word.parse::<usize>().map_err(|_| format!("{word} is no number"));
    let ["run", name, threads, operations, work] = line.split(' ').collect::<Vec<_>>()[..] else {
        return Err(format!("no such request: {line}"));
    };
    let threads = number(threads)?.clamp(1, THREADS_MAX);
    let cache = new(name)?;
    fill(&*cache);
    let took = timed(&*cache, threads, number(operations)?, number(work)?);
    Ok(format!("ran {}", took.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_caches_of_as_many_elements() {
        for name in NAMES {
            let cache = new(name).unwrap();
            assert!((0..100).all(|key| !cache.access(key)), "{name}");
            assert!((0..100).all(|key| cache.access(key)), "{name}");
            for key in 0..10 * CAPACITY as u64 {
                cache.access(1000 + key);
            }
            let kept = (0..10 * CAPACITY as u64).filter(|key| cache.access(1000 + key)).count();
            assert!(kept <= 10 * CAPACITY / 2, "{name}: it evicts");
        }
    }

    #[test]
    fn each_rival_runs_and_nonsense_is_refused() {
        let requests = "run scc 2 300 5\nrun quick_cache 1 300 5\nrun lru 1 1 1\nrun scc x 1 1\nrun\nend\nrun\n";
        let mut answers = Vec::new();
        serve(requests.as_bytes(), &mut answers).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let lines: Vec<&str> = answers.lines().collect();
        assert_eq!(lines[0], "bench-compare rows 1 scc quick_cache");
        assert!(lines[1].starts_with("ran ") && lines[2].starts_with("ran "), "{answers}");
        assert_eq!(lines[3], "failed no rival lru; there are: scc, quick_cache");
        assert_eq!(lines[4..], ["failed x is no number", "failed no such request: run"]);
    }
}
