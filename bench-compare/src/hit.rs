//! `bench-compare hit`: the rivals of the page cache where every lookup is a hit.
//!
//! # Boundary
//! Fills a cache and reads from it on request; the bench that starts it orders the rounds and makes the
//! report. One line in, one line out:
//!
//! ```text
//! bench-compare hit 1 quick_cache moka foyer ...   (at the start)
//! build quick_cache 1048576              built 41943040             bytes of memory it grew by
//! run 2 zipf 10000000                    ran 0.71 1.40 5b2e01a4     seconds: wall, processor; checksum
//! build-page moka 65536                  built 285212672            entries are pages of 4096 bytes
//! run-page 2 uniform 1000000             ran 0.52 1.02 8c01
//!                                        failed WHY
//! ```
//! Entries are the keys from 0 on; the value of each is its key, or a page that begins with it. A
//! build frees the earlier cache. Each thread reads as often as the number says, after a quarter of
//! that, at most one round through its list, untimed; a page is copied into the thread's buffer. Wall
//! time is from the first thread's begin to the last one's end, processor time that of all threads.
//! The checksum, in hexadecimal, is the sum of the values read; a wrong one fails. `end`, or the end
//! of input, ends it.
//!
//! # Why
//! Nothing is ever evicted, so this measures the price of a hit alone; `bench-compare evict` counts
//! hits. Each build gets a process of its own: in a process that has freed another cache's memory, the
//! bytes that a cache takes would not show as growth, and would be more scattered.

mod caches;

use caches::{Cache, Dash, Floor, Foyer, Lru, Moka, Page, Papaya, Quick, Sets, Ufo, Value};
use std::env;
use std::io::{self, BufRead, Write};
use std::process::Command;
use std::sync::Arc;
use uvfs_bench_workload::child::Child;
use uvfs_bench_workload::team::{Span, THREADS_MAX, team};
use uvfs_bench_workload::traces::{ENTRIES_MAX, Pattern, Traces};

/// The version of the lines above.
const PROTOCOL: u32 = 1;
const NAMES: [&str; 10] = [
    "quick_cache",
    "moka",
    "foyer",
    "scc-hashcache",
    "tinyufo",
    "lru-mutex",
    "lru-mutex-64",
    "dashmap",
    "papaya",
    "map-floor",
];

fn greeting() -> String {
    format!("bench-compare hit {PROTOCOL} {}", NAMES.join(" "))
}

/// Answers requests until they end, by means of processes that are given by `start`.
///
/// # Errors
/// If one cannot be read or answered.
pub(crate) fn serve(
    requests: impl BufRead,
    answers: impl Write,
    start: impl Fn() -> Result<Child, String>,
) -> io::Result<()> {
    let mut child = None;
    each(requests, answers, |line| {
        if let Request::Build { .. } = parse(line)? {
            // Its memory is free before the next one needs it.
            drop(child.take());
            child = Some(start()?);
        }
        child.as_mut().ok_or("nothing is built")?.ask(line)
    })
}

/// A process for one build.
///
/// # Errors
/// If this program cannot be started.
pub(crate) fn start() -> Result<Child, String> {
    let program = env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let started = Child::start(Command::new(program).args(["hit", "alone"]), &greeting());
    started.map(|(child, _)| child)
}

/// Answers requests until they end, in this process.
///
/// # Errors
/// If one cannot be read or answered.
pub(crate) fn serve_alone(requests: impl BufRead, answers: impl Write) -> io::Result<()> {
    let mut hall = Hall::default();
    each(requests, answers, |line| hall.answer(parse(line)?))
}

/// Greets, and answers each request.
fn each(
    requests: impl BufRead,
    mut answers: impl Write,
    mut answer: impl FnMut(&str) -> Result<String, String>,
) -> io::Result<()> {
    writeln!(answers, "{}", greeting())?;
    answers.flush()?;
    for line in requests.lines() {
        let line = line?;
        if line == "end" {
            break;
        }
        writeln!(answers, "{}", answer(&line).unwrap_or_else(|why| format!("failed {why}")))?;
        answers.flush()?;
    }
    Ok(())
}

/// The kind of a cache's entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Words,
    Pages,
}

#[derive(Debug, PartialEq)]
enum Request {
    Build { kind: Kind, system: String, entries: u64 },
    Run { kind: Kind, threads: usize, pattern: Pattern, ops: u64 },
}

fn parse(line: &str) -> Result<Request, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let kind = match words[0] {
        "build" | "run" => Kind::Words,
        "build-page" | "run-page" => Kind::Pages,
        _ => return Err(format!("no such request: {line}")),
    };
    match words[..] {
        ["build" | "build-page", system, entries] => {
            let entries = number(entries, 1, ENTRIES_MAX)?;
            Ok(Request::Build { kind, system: system.to_owned(), entries })
        }
        ["run" | "run-page", threads, pattern, ops] => {
            let threads = number(threads, 1, THREADS_MAX as u64)? as usize;
            let pattern = Pattern::named(pattern).ok_or("no such pattern")?;
            Ok(Request::Run { kind, threads, pattern, ops: number(ops, 1, 1 << 40)? })
        }
        _ => Err(format!("no such request: {line}")),
    }
}

fn number(word: &str, least: u64, most: u64) -> Result<u64, String> {
    let number: u64 = word.parse().map_err(|_| format!("{word} is no number"))?;
    match number {
        number if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{number} is not from {least} to {most}")),
    }
}

/// The cache that is built, and the keys that were read last.
#[derive(Default)]
struct Hall {
    built: Option<Built>,
    traces: Vec<Traces>,
}

struct Built {
    kind: Kind,
    entries: u64,
    cache: Box<dyn Runs>,
}

impl Hall {
    fn answer(&mut self, request: Request) -> Result<String, String> {
        match request {
            Request::Build { kind, system, entries } => self.build(kind, &system, entries),
            Request::Run { kind, threads, pattern, ops } => self.run(kind, threads, pattern, ops),
        }
    }

    fn build(&mut self, kind: Kind, system: &str, entries: u64) -> Result<String, String> {
        self.built = None;
        let before = resident_bytes();
        let cache = match (system, kind) {
            ("quick_cache", Kind::Words) => filled::<Quick<u64>>(entries),
            ("quick_cache", Kind::Pages) => filled::<Quick<Arc<Page>>>(entries),
            ("moka", Kind::Words) => filled::<Moka<u64>>(entries),
            ("moka", Kind::Pages) => filled::<Moka<Arc<Page>>>(entries),
            ("foyer", Kind::Words) => filled::<Foyer<u64>>(entries),
            ("foyer", Kind::Pages) => filled::<Foyer<Box<Page>>>(entries),
            ("scc-hashcache", Kind::Words) => filled::<Sets<u64>>(entries),
            ("scc-hashcache", Kind::Pages) => filled::<Sets<Box<Page>>>(entries),
            ("tinyufo", Kind::Words) => filled::<Ufo<u64>>(entries),
            ("tinyufo", Kind::Pages) => filled::<Ufo<Arc<Page>>>(entries),
            ("lru-mutex", Kind::Words) => filled::<Lru<u64, 1>>(entries),
            ("lru-mutex", Kind::Pages) => filled::<Lru<Arc<Page>, 1>>(entries),
            ("lru-mutex-64", Kind::Words) => filled::<Lru<u64, 64>>(entries),
            ("lru-mutex-64", Kind::Pages) => filled::<Lru<Arc<Page>, 64>>(entries),
            ("dashmap", Kind::Words) => filled::<Dash<u64>>(entries),
            ("dashmap", Kind::Pages) => filled::<Dash<Box<Page>>>(entries),
            ("papaya", Kind::Words) => filled::<Papaya<u64>>(entries),
            ("papaya", Kind::Pages) => filled::<Papaya<Box<Page>>>(entries),
            ("map-floor", Kind::Words) => filled::<Floor<u64>>(entries),
            ("map-floor", Kind::Pages) => filled::<Floor<Box<Page>>>(entries),
            (other, _) => Err(format!("no rival {other}; there are: {}", NAMES.join(", "))),
        }?;
        self.built = Some(Built { kind, entries, cache });
        Ok(format!("built {}", resident_bytes().saturating_sub(before)))
    }

    fn run(
        &mut self,
        kind: Kind,
        threads: usize,
        pattern: Pattern,
        ops: u64,
    ) -> Result<String, String> {
        let built = self.built.as_ref().ok_or("nothing is built")?;
        if built.kind != kind {
            return Err("what is built holds the other kind of values".to_owned());
        }
        let fits = |traces: &Traces| traces.fit(pattern, built.entries, threads, ops);
        let nth = self.traces.iter().position(fits).unwrap_or_else(|| {
            // Two patterns with one and with many threads.
            self.traces.truncate(3);
            self.traces.insert(0, Traces::new(pattern, built.entries, threads, ops));
            0
        });
        let (Span { wall, cpu }, checksum) = built.cache.run(&self.traces[nth], ops)?;
        Ok(format!("ran {:.9} {:.9} {checksum:x}", wall.as_secs_f64(), cpu.as_secs_f64()))
    }
}

/// A [`Cache`] whose kind is known only inside, so that the timed loop has no call through a table.
trait Runs {
    fn run(&self, traces: &Traces, ops: u64) -> Result<(Span, u64), String>;
}

impl<C: Cache> Runs for C {
    fn run(&self, traces: &Traces, ops: u64) -> Result<(Span, u64), String> {
        let stints = team(traces.threads(), |member| {
            let keys = traces.list(member.number);
            let mut buffer: Box<Page> = Value::new(0);
            read(self, keys, (ops / 4).min(keys.len() as u64), &mut buffer);
            member.phase(|| read(self, keys, ops, &mut buffer))
        })?;
        let sum = stints.iter().fold(0, |sum: u64, (_, one)| sum.wrapping_add(one.sum));
        let missed: u64 = stints.iter().map(|(_, one)| one.missed).sum();
        if missed > 0 {
            return Err(format!("{missed} entries were not there"));
        }
        if sum != traces.sum(ops) {
            return Err(format!("what was read sums up to {sum:x}, not {:x}", traces.sum(ops)));
        }
        Ok((Span::of(stints.iter().map(|(stint, _)| *stint)), sum))
    }
}

/// The reads of a thread.
#[derive(Default)]
struct Tally {
    sum: u64,
    missed: u64,
}

/// Reads the entries `keys`, `ops` of them, round and round.
fn read<C: Cache>(cache: &C, keys: &[u32], ops: u64, buffer: &mut Page) -> Tally {
    let (mut tally, mut left) = (Tally::default(), ops);
    while left > 0 && !keys.is_empty() {
        let now = left.min(keys.len() as u64);
        for &key in &keys[..now as usize] {
            match cache.read(key.into(), buffer) {
                Some(read) => tally.sum = tally.sum.wrapping_add(read),
                None => tally.missed += 1,
            }
        }
        left -= now;
    }
    tally
}

/// A cache whose contents were checked.
fn filled<C: Cache>(entries: u64) -> Result<Box<dyn Runs>, String> {
    let (cache, mut buffer) = (C::filled(entries), Box::new([0; 4096]));
    let wrong = (0..entries).filter(|&key| cache.read(key, &mut buffer) != Some(key)).count();
    match wrong {
        0 => Ok(Box::new(cache)),
        _ => Err(format!("{wrong} of {entries} entries are not there")),
    }
}

/// Memory of this process that is in place.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Everything that is said when `requests` are asked.
    fn said(requests: &str) -> Vec<String> {
        let mut answers = Vec::new();
        serve_alone(requests.as_bytes(), &mut answers).unwrap();
        String::from_utf8(answers).unwrap().lines().map(str::to_owned).collect()
    }

    /// The checksum of an answer to `run`.
    fn checksum(answer: &str) -> u64 {
        let words: Vec<&str> = answer.split(' ').collect();
        let ["ran", wall, cpu, checksum] = words[..] else { panic!("{answer}") };
        assert!(wall.parse::<f64>().unwrap() > 0.0 && cpu.parse::<f64>().unwrap() > 0.0);
        u64::from_str_radix(checksum, 16).unwrap()
    }

    #[test]
    fn every_rival_is_built_and_runs_with_words_and_pages() {
        let expected = |pattern, threads| Traces::new(pattern, 500, threads, 2000).sum(2000);
        for name in NAMES {
            for kind in ["", "-page"] {
                let answers = said(&format!(
                    "build{kind} {name} 500\nrun{kind} 1 zipf 2000\nrun{kind} 3 uniform 2000\n"
                ));
                assert!(answers[1].starts_with("built "), "{name}: {}", answers[1]);
                assert_eq!(checksum(&answers[2]), expected(Pattern::Zipf, 1), "{name}");
                assert_eq!(checksum(&answers[3]), expected(Pattern::Uniform, 3), "{name}");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_and_the_next_request_is_answered() {
        let answers = said(
            "run 1 zipf 9\nbuild none 9\nbuild moka 9\nrun-page 1 zipf 9\nrun 1 zipf 9\nrun 1\nend\nrun 1\n",
        );
        assert_eq!(answers[1], "failed nothing is built");
        assert!(answers[2].starts_with("failed no rival none; there are: quick_cache, moka"));
        assert!(answers[3].starts_with("built "));
        assert!(answers[4].contains("other kind"), "{}", answers[4]);
        checksum(&answers[5]);
        assert!(answers[6].starts_with("failed no such request"));
        assert_eq!(answers.len(), 7, "nothing is answered after the end");
        for line in ["build moka 0", "build moka x", "run 0 zipf 9", "run 1 hot 9", "run 1 zipf 0"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
        assert_eq!(
            parse("run-page 2 uniform 64"),
            Ok(Request::Run { kind: Kind::Pages, threads: 2, pattern: Pattern::Uniform, ops: 64 })
        );
    }

    #[test]
    fn each_build_starts_a_process_that_is_asked_until_the_next_one() {
        let begun = Cell::new(0);
        let start = || {
            begun.set(begun.get() + 1);
            let script = "echo hello; while read -r line; do echo \"$0 $line\"; done";
            let number = begun.get().to_string();
            Child::start(Command::new("sh").args(["-c", script, &number]), "hello").map(|one| one.0)
        };
        let mut answers = Vec::new();
        let requests = "run 1 zipf 9\nbuild moka 5\nrun 1 zipf 9\nbuild x\nbuild-page papaya 6\n\
                        run-page 1 zipf 9\n";
        serve(requests.as_bytes(), &mut answers, start).unwrap();
        let answers = String::from_utf8(answers).unwrap();
        let expected = [
            "failed nothing is built",
            "1 build moka 5",
            "1 run 1 zipf 9",
            "failed no such request: build x",
            "2 build-page papaya 6",
            "2 run-page 1 zipf 9",
        ];
        assert!(answers.lines().skip(1).eq(expected), "{answers}");
    }

    /// Loses one entry, or mistakes it for another once it was checked.
    struct Liar<const LOSES: bool>;

    impl<const LOSES: bool> Cache for Liar<LOSES> {
        fn filled(_: u64) -> Self {
            Self
        }

        fn read(&self, key: u64, _: &mut Page) -> Option<u64> {
            if key != 3 {
                return Some(key);
            }
            (!LOSES).then_some(4)
        }
    }

    #[test]
    fn a_rival_that_answers_wrongly_fails() {
        let refusal = filled::<Liar<true>>(10).err();
        assert_eq!(refusal.as_deref(), Some("1 of 10 entries are not there"));
        let traces = Traces::new(Pattern::Uniform, 10, 2, 500);
        let lost = Liar::<true>.run(&traces, 500).unwrap_err();
        assert!(lost.ends_with("entries were not there"), "{lost}");
        let mistaken = Liar::<false>.run(&traces, 500).unwrap_err();
        assert!(mistaken.starts_with("what was read sums up to"), "{mistaken}");
    }
}
