//! The times of the steps, and the slowest tests.
//!
//! # Boundary
//! Measures and prints; runs nothing. Reads the output of a test run line by line as it appears ([`TestTimes::line`]),
//! so it needs no unstable flag of the test harness.
//!
//! # Concurrency
//! One list for each thread; the steps run one after another on the main one.
//!
//! # Why
//! To shorten a gate of twenty minutes, its times must be known. Processor time is beside the clock's, because the
//! clock also counts the machine's other work. Weakness: a test's time is computed from the ends of its program's
//! tests, in the harness's own order (by name, so many at a time). If two end within the same microsecond they may be
//! swapped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

thread_local! {
    /// Every step that ended.
    static STEPS: RefCell<Vec<Took>> = const { RefCell::new(Vec::new()) };
}

/// The time of one step.
#[derive(Debug, Clone)]
struct Took {
    words: String,
    wall: Duration,
    processor: Duration,
}

impl fmt::Display for Took {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wall, processor) = (self.wall.as_secs_f64(), self.processor.as_secs_f64());
        write!(formatter, "{wall:>7.1} s, {processor:>7.1} s of processors  {}", self.words)
    }
}

/// A running step.
#[derive(Debug)]
pub(crate) struct Running {
    words: String,
    start: Instant,
    processor: Duration,
}

impl Running {
    /// Says that it begins.
    pub(crate) fn start(words: impl Into<String>) -> Self {
        let words = words.into();
        println!("== {words}");
        Self { words, start: Instant::now(), processor: of_children() }
    }

    /// Prints its time, and keeps it for [`summary`].
    pub(crate) fn end(self) {
        let processor = of_children().saturating_sub(self.processor);
        let took = Took { words: self.words, wall: self.start.elapsed(), processor };
        println!("-- {took}");
        STEPS.with_borrow_mut(|steps| steps.push(took));
    }
}

/// Prints the time of every step.
pub(crate) fn summary() {
    println!("== times of the steps");
    STEPS.with_borrow(|steps| steps.iter().for_each(|took| println!("{took}")));
}

/// Processor time of all children that ended and were waited for, and of theirs.
fn of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks_of_children(&stat).map_or(Duration::ZERO, |ticks| Duration::from_millis(ticks * 10))
}

/// Fields 16 and 17 of a stat line, in hundredths of a second; the second, in parentheses, may hold anything.
fn ticks_of_children(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(13);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some(user + system)
}

/// Reads the output of `cargo test`, and computes the time of each test.
#[derive(Debug)]
pub(crate) struct TestTimes {
    /// How many tests of one program run at the same time.
    threads: usize,
    program: String,
    /// When the tests of the program that runs began, and which ended when.
    began: Duration,
    ended: Vec<(String, Duration)>,
    took: Vec<(Duration, String)>,
    programs: Vec<(Duration, String)>,
}

impl TestTimes {
    /// Times of a run with so many tests at a time.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            program: String::new(),
            began: Duration::ZERO,
            ended: Vec::new(),
            took: Vec::new(),
            programs: Vec::new(),
        }
    }

    /// One line, which came `at` so long after the start.
    pub(crate) fn line(&mut self, line: &str, at: Duration) {
        let words = line.trim();
        let named = words.strip_prefix("Running ").or_else(|| words.strip_prefix("Doc-tests "));
        if let Some(name) = named {
            self.close(at);
            name.split(" (").next().unwrap_or(name).clone_into(&mut self.program);
            // `unittests src/lib.rs (target/debug/deps/uvfs_vfs-0123)`: the file names the crate.
            if let Some(file) = name.rsplit('/').next().and_then(|file| file.split('-').next()) {
                self.program = format!("{} {file}", self.program);
            }
        } else if words.starts_with("running ") && words.trim_end_matches('s').ends_with(" test") {
            self.close(at);
            self.began = at;
        } else if words.starts_with("test result: ") {
            self.close(at);
        } else if let Some(name) = ended(words) {
            self.ended.push((name.to_owned(), at));
        }
    }

    /// The slowest tests and programs, as lines.
    pub(crate) fn slowest(&self, count: usize) -> Vec<String> {
        let mut lines = vec!["the slowest tests:".to_owned()];
        lines.extend(longest(&self.took, count));
        lines.push("the slowest test programs:".to_owned());
        lines.extend(longest(&self.programs, count));
        lines
    }

    /// The tests that were read ran in the order of their names, each when one before it had ended.
    fn close(&mut self, at: Duration) {
        if self.ended.is_empty() {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        let moments: Vec<Duration> = ended.iter().map(|(_, at)| *at).collect();
        let order: BTreeMap<String, Duration> = ended.into_iter().collect();
        for (place, (name, end)) in order.into_iter().enumerate() {
            let start = match place.checked_sub(self.threads) {
                None => self.began,
                Some(before) => moments[before],
            };
            self.took.push((end.saturating_sub(start), format!("{}: {name}", self.program)));
        }
        self.programs.push((at.saturating_sub(self.began), self.program.clone()));
    }
}

/// The test that ended, from `test NAME ... ok`.
fn ended(line: &str) -> Option<&str> {
    let (name, how) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let how = how.split(',').next()?;
    matches!(how, "ok" | "FAILED" | "ignored").then(|| name.trim_end_matches(" - should panic"))
}

fn longest(took: &[(Duration, String)], count: usize) -> Vec<String> {
    let mut sorted: Vec<_> = took.iter().collect();
    sorted.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    let line = |(took, name): &(Duration, String)| format!("{:>7.1} s  {name}", took.as_secs_f64());
    sorted.into_iter().take(count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_began_when_the_one_before_it_had_ended() {
        let mut times = TestTimes::new(2);
        let said = [
            ("     Running tests/walk.rs (target/debug/deps/walk-0a1b)", 0),
            ("running 4 tests", 10),
            // a and b begin at 10; c when b ends, d when a ends.
            ("test b ... ok", 11),
            ("test c ... ignored, why", 12),
            ("test a - should panic ... ok", 15),
            ("test d ... FAILED", 19),
            ("test result: FAILED. 3 passed; 1 failed", 19),
            ("running 0 tests", 20),
            ("test result: ok. 0 passed", 20),
        ];
        for (line, at) in said {
            times.line(line, Duration::from_secs(at));
        }
        let expected = ["a 5", "b 1", "c 1", "d 7"];
        let found: Vec<_> = times
            .took
            .iter()
            .map(|(took, name)| format!("{} {}", name.rsplit(' ').next().unwrap(), took.as_secs()))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(times.programs, [(Duration::from_secs(9), "tests/walk.rs walk".to_owned())]);
        let lines = times.slowest(1);
        assert_eq!(lines[1], "    7.0 s  tests/walk.rs walk: d");
    }

    #[test]
    fn what_a_program_prints_is_no_test() {
        assert_eq!(ended("test fixtures are here"), None);
        assert_eq!(ended("test a has been running for over 60 seconds"), None);
        assert_eq!(
            ended("test src/lib.rs - (line 3) - compile ... ok"),
            Some("src/lib.rs - (line 3) - compile")
        );
    }

    #[test]
    fn the_time_of_children_is_read_past_any_command_name() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        assert_eq!(ticks_of_children(stat), Some(13 + 14));
    }
}
