//! `bench-compare radix`: the rivals of the tagged radix tree.
//!
//! # Boundary
//! Fills, reads and empties an index on request; `uvfs-bench-papers radix` orders the rounds. One line in,
//! one line out:
//!
//! ```text
//! bench-compare radix 1 btree-mutex congee ... xarray xarray-mutex     (at the start)
//! round congee interleaved 2 1048576     round insert=0.031:0.060 lookup=0.014:0.027 remove=...
//! round xarray random 2 1048576          round insert=... lookup=... tag=... gang=... untag=... remove=...
//!                                        failed WHY
//! ```
//! A round has a pattern (sequential, interleaved, random), a number of threads and one of items,
//! shared out among the threads. It begins with a fresh structure; a barrier precedes each phase.
//! Figures are seconds: of wall time, from the first thread's begin to the last one's end, and
//! of processor time, of all threads together. Phases that a system does not have are left out: only
//! the XArray has tags. It is listed if its program is built. `end`, or the end of input, ends it.
//!
//! # Why
//! The XArray runs in a process of its own, since it is under another licence; see its folder.
//! Weakness: the other systems take turns in one process, so one reuses memory that another freed; only
//! the first round pays for touching fresh memory.

mod indexes;
mod xarray;

use indexes::{Art, Dash, Index, Papaya, SccHash, SccTree, Skip, Tree};
use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use uvfs_bench_workload::child::Child;
use uvfs_bench_workload::keys::{ITEMS_MAX, Keys, Pattern};
use uvfs_bench_workload::team::{Span, THREADS_MAX, team};
use xarray::NAMES as XARRAYS;

/// The version of the lines above.
const PROTOCOL: u32 = 1;
const NAMES: [&str; 7] =
    ["btree-mutex", "congee", "scc-tree", "scc-hash", "skiplist", "dashmap", "papaya"];
const PHASES: [&str; 3] = ["insert", "lookup", "remove"];

/// Answers requests until they end.
///
/// # Errors
/// If one cannot be read or answered.
pub(crate) fn serve(requests: impl BufRead, mut answers: impl Write) -> io::Result<()> {
    let mut xarray = xarray::start(&xarray::program());
    let names: Vec<&str> = match xarray {
        Ok(_) => NAMES.iter().chain(&XARRAYS).copied().collect(),
        Err(ref why) => {
            eprintln!("bench-compare: without xarray: {why}");
            NAMES.to_vec()
        }
    };
    writeln!(answers, "bench-compare radix {PROTOCOL} {}", names.join(" "))?;
    answers.flush()?;
    for line in requests.lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        let answer = answer(&line, &names, xarray.as_mut().ok());
        writeln!(answers, "{}", answer.unwrap_or_else(|why| format!("failed {why}")))?;
        answers.flush()?;
    }
    Ok(())
}

#[derive(Debug, PartialEq)]
struct Request<'a> {
    system: &'a str,
    pattern: Pattern,
    threads: usize,
    items: u64,
}

fn parse(line: &str) -> Result<Request<'_>, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["round", system, pattern, threads, items] = words[..] else {
        return Err(format!("no such request: {line}"));
    };
    let pattern = Pattern::named(pattern).ok_or("no such pattern")?;
    let threads: usize = threads.parse().map_err(|_| format!("{threads} is no number"))?;
    let items: u64 = items.parse().map_err(|_| format!("{items} is no number"))?;
    if !(1..=THREADS_MAX).contains(&threads) || !(1..=ITEMS_MAX).contains(&items) {
        return Err(format!("threads are 1 to {THREADS_MAX}, items 1 to {ITEMS_MAX}"));
    }
    Ok(Request { system, pattern, threads, items })
}

fn answer(line: &str, names: &[&str], xarray: Option<&mut Child>) -> Result<String, String> {
    let request = parse(line)?;
    match (request.system, xarray) {
        (name, Some(xarray)) if XARRAYS.contains(&name) => xarray.ask(line),
        ("btree-mutex", _) => round::<Tree>(&request),
        ("congee", _) => round::<Art>(&request),
        ("scc-tree", _) => round::<SccTree>(&request),
        ("scc-hash", _) => round::<SccHash>(&request),
        ("skiplist", _) => round::<Skip>(&request),
        ("dashmap", _) => round::<Dash>(&request),
        ("papaya", _) => round::<Papaya>(&request),
        (other, _) => Err(format!("no rival {other}; there are: {}", names.join(", "))),
    }
}

/// Every phase on a fresh index.
fn round<I: Index>(request: &Request<'_>) -> Result<String, String> {
    let (index, items) = (I::default(), request.items);
    let stints = team(request.threads, |member| {
        let keys = Keys::new(request.pattern, member.number, request.threads, items);
        [
            member.phase(|| count(keys.clone(), |key| !index.insert(key, key + 1))),
            member.phase(|| count(keys.clone(), |key| index.get(key) != Some(key + 1))),
            member.phase(|| count(keys.clone(), |key| !index.remove(key, key + 1))),
        ]
    })?;
    let mut line = "round".to_owned();
    for (nth, phase) in PHASES.iter().enumerate() {
        let wrong: u64 = stints.iter().map(|stints| stints[nth].1).sum();
        if wrong > 0 {
            return Err(format!("{phase} went wrong for {wrong} of {items} items"));
        }
        let Span { wall, cpu } = Span::of(stints.iter().map(|stints| stints[nth].0));
        let _ = write!(line, " {phase}={:.9}:{:.9}", wall.as_secs_f64(), cpu.as_secs_f64());
    }
    let left = Keys::new(Pattern::Sequential, 0, 1, items.min(LEFT_MAX));
    match count(left, |key| index.get(key).is_some()) {
        0 => Ok(line),
        left => Err(format!("{left} items are there after they were removed")),
    }
}

/// Keys that are looked for once more in the end, untimed.
const LEFT_MAX: u64 = 1 << 16;

/// How many of `keys` are `wrong`.
#[inline]
fn count(keys: Keys, wrong: impl Fn(u64) -> bool) -> u64 {
    keys.fold(0, |sum, key| sum + u64::from(wrong(key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    /// The phases of a round's answer, each with a time that is one.
    fn phases(answer: &str) -> Vec<&str> {
        let figures = answer.strip_prefix("round ").unwrap_or_else(|| panic!("{answer}"));
        let read = |figure| {
            let (phase, times) = str::split_once(figure, '=').unwrap();
            let (wall, cpu) = times.split_once(':').unwrap();
            assert!(wall.parse::<f64>().unwrap() > 0.0 && cpu.parse::<f64>().unwrap() > 0.0);
            phase
        };
        figures.split(' ').map(read).collect()
    }

    /// Everything that is said when `requests` are asked.
    fn said(requests: &str) -> Vec<String> {
        let mut answers = Vec::new();
        serve(requests.as_bytes(), &mut answers).unwrap();
        String::from_utf8(answers).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_rival_that_is_listed_takes_its_turn() {
        let greeting = said("").remove(0);
        let names = greeting.strip_prefix("bench-compare radix 1 ").unwrap();
        assert!(names.starts_with(&NAMES.join(" ")), "{names}");
        for name in names.split(' ') {
            for (pattern, threads) in [("sequential", 1), ("interleaved", 2), ("random", 3)] {
                let answers = said(&format!("round {name} {pattern} {threads} 5000\n"));
                let expected: &[&str] = if XARRAYS.contains(&name) {
                    &["insert", "lookup", "tag", "gang", "untag", "remove"]
                } else {
                    &PHASES
                };
                assert_eq!(phases(&answers[1]), expected, "{name}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_and_the_next_request_is_answered() {
        let answers =
            said("round no random 1 9\nround congee\nround congee random 1 9\nend\nround\n");
        assert!(answers[1].starts_with("failed no rival no; there are: btree-mutex, congee"));
        assert!(answers[2].starts_with("failed no such request"));
        assert_eq!(phases(&answers[3]), PHASES);
        assert_eq!(answers.len(), 4, "nothing is answered after the end");
        let refused = ["random 0 9", "random 1 0", "random 1025 9", "random one 9", "zipf 1 9"];
        for words in refused {
            assert!(parse(&format!("round congee {words}")).is_err(), "{words}");
        }
        assert_eq!(
            parse("round papaya sequential 2 64"),
            Ok(Request { system: "papaya", pattern: Pattern::Sequential, threads: 2, items: 64 })
        );
    }

    /// Finds keys that were never inserted, or loses some: a test chooses by the type's number.
    #[derive(Default)]
    struct Liar<const LIE: usize>(AtomicU64);

    impl<const LIE: usize> Index for Liar<LIE> {
        fn insert(&self, key: u64, _: u64) -> bool {
            LIE != 0 || key != 7
        }

        fn get(&self, key: u64) -> Option<u64> {
            let calls = self.0.fetch_add(1, SeqCst);
            match LIE {
                1 if key == 7 => Some(7),
                // The second time round nothing should be there.
                3 if calls >= 64 => Some(key + 1),
                _ => (calls < 64).then_some(key + 1),
            }
        }

        fn remove(&self, key: u64, _: u64) -> bool {
            LIE != 2 || key != 7
        }
    }

    #[test]
    fn a_rival_that_answers_wrongly_fails() {
        let request = parse("round liar sequential 2 64").unwrap();
        let why = [
            round::<Liar<0>>(&request).unwrap_err(),
            round::<Liar<1>>(&request).unwrap_err(),
            round::<Liar<2>>(&request).unwrap_err(),
            round::<Liar<3>>(&request).unwrap_err(),
        ];
        assert_eq!(why[0], "insert went wrong for 1 of 64 items");
        assert_eq!(why[1], "lookup went wrong for 1 of 64 items");
        assert_eq!(why[2], "remove went wrong for 1 of 64 items");
        assert_eq!(why[3], "64 items are there after they were removed");
        assert!(round::<Liar<4>>(&request).is_ok(), "the test's index is honest otherwise");
    }
}
