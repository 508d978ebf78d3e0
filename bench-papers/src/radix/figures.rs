//! The measurements, by phase, pattern, system and number of threads.
//!
//! # Boundary
//! Keeps samples and returns medians and lines. `tables` has the tables, `aims` the aims.

use super::systems::{Phase, Round};
use std::collections::BTreeMap;
use std::io::{self, Write};
use uvfs_bench_kit::report::{Report, Summary, Unit};
use uvfs_bench_workload::keys::Pattern;

/// Identifies a row.
type Key = (Pattern, usize, Phase, String);

/// Seconds on the clock and of processors, of each round.
#[derive(Debug, Default)]
struct Samples {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

/// Figures of one run of the bench.
#[derive(Debug)]
pub(super) struct Figures {
    items: u64,
    rows: BTreeMap<Key, Samples>,
    bytes_per_item: BTreeMap<String, f64>,
    /// In the order in which they first took part.
    systems: Vec<String>,
}

impl Figures {
    /// None yet, of rounds of so many items.
    pub(super) fn new(items: u64) -> Self {
        Self { items, rows: BTreeMap::new(), bytes_per_item: BTreeMap::new(), systems: Vec::new() }
    }

    /// Adds a round.
    pub(super) fn add(&mut self, system: &str, pattern: Pattern, threads: usize, round: &Round) {
        if !self.systems.iter().any(|one| one == system) {
            self.systems.push(system.to_owned());
        }
        for &(phase, span) in &round.spans {
            let key = (pattern, threads, phase, system.to_owned());
            let samples = self.rows.entry(key).or_default();
            samples.wall.push(span.wall);
            samples.cpu.push(span.cpu);
        }
        if let Some(bytes) = round.bytes_per_item {
            let most = self.bytes_per_item.entry(system.to_owned()).or_default();
            *most = most.max(bytes);
        }
    }

    /// Items of a round.
    pub(super) fn items(&self) -> u64 {
        self.items
    }

    /// The measured systems.
    pub(super) fn systems(&self) -> &[String] {
        &self.systems
    }

    /// The patterns and numbers of threads that were measured.
    pub(super) fn settings(&self) -> Vec<(Pattern, usize)> {
        let mut settings: Vec<_> = self.rows.keys().map(|key| (key.0, key.1)).collect();
        settings.dedup();
        settings
    }

    /// Median seconds on the clock.
    pub(super) fn seconds(
        &self,
        system: &str,
        pattern: Pattern,
        threads: usize,
        phase: Phase,
    ) -> Option<f64> {
        let samples = self.rows.get(&(pattern, threads, phase, system.to_owned()))?;
        Summary::of(&samples.wall).map(|summary| summary.median)
    }

    /// Median millions of operations a second, on the clock.
    pub(super) fn rate(
        &self,
        system: &str,
        pattern: Pattern,
        threads: usize,
        phase: Phase,
    ) -> Option<f64> {
        Some(self.items as f64 / 1e6 / self.seconds(system, pattern, threads, phase)?)
    }

    /// The rate by the threads' processor time, as if no other process had disturbed them.
    pub(super) fn rate_cpu(
        &self,
        system: &str,
        pattern: Pattern,
        threads: usize,
        phase: Phase,
    ) -> Option<f64> {
        let samples = self.rows.get(&(pattern, threads, phase, system.to_owned()))?;
        let seconds = Summary::of(&samples.cpu)?.median / threads as f64;
        Some(self.items as f64 / 1e6 / seconds)
    }

    /// Bytes of the full structure for each item.
    pub(super) fn bytes_per_item(&self, system: &str) -> Option<f64> {
        self.bytes_per_item.get(system).copied()
    }

    /// Writes one JSON object for each case, system and number of threads.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let mut report = Report::new("radix");
        for ((pattern, threads, phase, system), samples) in &self.rows {
            let case = format!("{}-{}", phase.name(), pattern.name());
            let mops = |seconds: f64| self.items as f64 / 1e6 / seconds;
            for &seconds in &samples.wall {
                let unit = Unit::MillionsPerSecond;
                report.sample(&case, system, *threads, unit, mops(seconds));
            }
            let case = format!("{case}-cpu");
            for &seconds in &samples.cpu {
                let value = mops(seconds / *threads as f64);
                report.sample(&case, system, *threads, Unit::MillionsPerSecond, value);
            }
        }
        for (system, &bytes) in &self.bytes_per_item {
            report.sample("bytes-per-item", system, 1, Unit::BytesPerItem, bytes);
        }
        report.write_json(out)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::systems::Span;
    use super::*;

    /// Figures of a million items, from seconds on the clock; processors take twice as long together.
    pub(in super::super) fn of(rows: &[(&str, Pattern, usize, Phase, f64)]) -> Figures {
        let mut figures = Figures::new(1_000_000);
        for &(system, pattern, threads, phase, wall) in rows {
            let span = Span { wall, cpu: 2.0 * wall };
            let round = Round { spans: vec![(phase, span)], bytes_per_item: Some(9.14) };
            figures.add(system, pattern, threads, &round);
        }
        figures
    }

    #[test]
    fn rates_are_items_by_median_seconds() {
        let row = |wall| ("a", Pattern::Random, 2, Phase::Tag, wall);
        let figures = of(&[row(0.1), row(0.5), row(0.2)]);
        assert_eq!(figures.rate("a", Pattern::Random, 2, Phase::Tag), Some(5.0));
        assert_eq!(figures.rate_cpu("a", Pattern::Random, 2, Phase::Tag), Some(5.0));
        assert_eq!(figures.rate("a", Pattern::Random, 1, Phase::Tag), None);
        assert_eq!(figures.settings(), [(Pattern::Random, 2)]);
    }

    #[test]
    fn lines_have_a_case_on_the_clock_and_one_by_processors() {
        let figures = of(&[("a", Pattern::Sequential, 1, Phase::RangeTag, 0.5)]);
        let mut text = Vec::new();
        figures.write_json(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""case":"range-tag-sequential","system":"a""#), "{text}");
        assert!(lines[0].contains(r#""value":2.0"#) && lines[0].contains(r#""unit":"M/s""#));
        assert!(lines[1].contains(r#""case":"range-tag-sequential-cpu""#), "{text}");
        assert!(lines[2].contains("bytes-per-item") && lines[2].contains("9.14"), "{text}");
    }
}
