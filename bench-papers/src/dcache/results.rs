//! All runs of one invocation, and their figures.
//!
//! # Boundary
//! From runs to named figures and JSON lines. [`super::tables`] and [`super::figures`] lay out
//! tables and charts.

use super::loads::Kind;
use super::measure::{Run, Variant};
use std::io::{self, Write};
use uvfs_bench_kit::report::{Report, Summary, Unit};
use uvfs_concurrent::lock::meter::Totals;

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Operations a second.
    Throughput,
    /// Acquisitions of the cache's locks, per operation.
    Locks,
    /// Acquisitions of locks that everybody shares, per operation.
    GlobalLocks,
    /// Part of the acquisitions that waited.
    Contention,
    /// Part of the time that the lock was held.
    Utilisation,
}

impl Measure {
    const ALL: [Measure; 5] = [
        Measure::Throughput,
        Measure::Locks,
        Measure::GlobalLocks,
        Measure::Contention,
        Measure::Utilisation,
    ];

    /// The end of a case's name.
    fn case(self) -> &'static str {
        match self {
            Measure::Throughput => "throughput",
            Measure::Locks => "locks",
            Measure::GlobalLocks => "global-locks",
            Measure::Contention => "dcache_lock-contention",
            Measure::Utilisation => "dcache_lock-utilisation",
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Measure::Throughput => Unit::ThousandsPerSecond,
            Measure::Locks | Measure::GlobalLocks => Unit::LocksPerOperation,
            Measure::Contention | Measure::Utilisation => Unit::PercentOfLock,
        }
    }

    /// The value for one run.
    pub(super) fn of(self, run: &Run, variant: Variant) -> f64 {
        let per_operation = |count: u64| count as f64 / run.operations as f64;
        match self {
            Measure::Throughput => run.rate(),
            Measure::Locks => per_operation(run.all_locks().acquisitions),
            Measure::GlobalLocks => per_operation(run.global_locks().acquisitions),
            Measure::Contention => watched(run, variant).contended_share() * 100.0,
            Measure::Utilisation => watched(run, variant).utilisation(run.metered_wall) * 100.0,
        }
    }
}

/// The locks that replace `dcache_lock` in this variant: itself, its LRU or bucket locks; all locks
/// of the product, which has none of these. Not `d_lock`, which the paper also leaves out.
pub(super) fn watched(run: &Run, variant: Variant) -> Totals {
    let mut all = Totals::default();
    let named = |name: &str| ["dcache_lock", "d_lru_lock", "bucket"].contains(&name);
    let classes = run.dcache.iter().filter(|one| variant == Variant::Uvfs || named(&one.class));
    classes.for_each(|class| all.add(&class.totals));
    all
}

/// The runs of one variant under one load.
#[derive(Debug)]
struct Cell {
    kind: Kind,
    threads: usize,
    variant: Variant,
    runs: Vec<Run>,
}

/// All runs.
#[derive(Debug, Default)]
pub(super) struct Results {
    cells: Vec<Cell>,
}

impl Results {
    /// Adds one run.
    pub(super) fn add(&mut self, kind: Kind, threads: usize, variant: Variant, run: Run) {
        let same =
            |cell: &&mut Cell| (cell.kind, cell.threads, cell.variant) == (kind, threads, variant);
        match self.cells.iter_mut().find(same) {
            Some(cell) => cell.runs.push(run),
            None => self.cells.push(Cell { kind, threads, variant, runs: vec![run] }),
        }
    }

    fn cell(&self, kind: Kind, threads: usize, variant: Variant) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.kind, cell.threads, cell.variant) == (kind, threads, variant))
    }

    /// Median and spread of a figure.
    pub(super) fn summary(
        &self,
        kind: Kind,
        threads: usize,
        variant: Variant,
        measure: Measure,
    ) -> Option<Summary> {
        let cell = self.cell(kind, threads, variant)?;
        let samples: Vec<f64> = cell.runs.iter().map(|run| measure.of(run, variant)).collect();
        Summary::of(&samples)
    }

    /// The run with the (upper) median throughput, which tables of locks show.
    pub(super) fn typical(&self, kind: Kind, threads: usize, variant: Variant) -> Option<&Run> {
        let mut runs: Vec<&Run> = self.cell(kind, threads, variant)?.runs.iter().collect();
        runs.sort_by(|one, other| one.rate().total_cmp(&other.rate()));
        runs.get(runs.len() / 2).copied()
    }

    /// One JSON object per figure.
    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let mut report = Report::new("dcache");
        for Cell { kind, threads, variant, runs } in &self.cells {
            for measure in Measure::ALL {
                let case = format!("{}-{}", kind.name(), measure.case());
                for run in runs {
                    let value = measure.of(run, *variant);
                    report.sample(&case, variant.name(), *threads, measure.unit(), value);
                }
            }
        }
        report.write_json(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use uvfs_concurrent::lock::meter::{ClassReport, Mode};

    fn run(millis: u64, acquisitions: u64, contended: u64) -> Run {
        let class = |class: &str, acquisitions, contended| ClassReport {
            class: class.into(),
            rank: 1,
            mode: Mode::Mutex,
            totals: Totals { acquisitions, contended, ..Totals::default() },
            sites: Vec::new(),
        };
        Run {
            operations: 100,
            wall: Duration::from_millis(millis),
            metered_wall: Duration::from_millis(millis * 2),
            dcache: vec![class("dcache_lock", acquisitions, contended), class("d_lock", 50, 0)],
            behind: vec![class("i_sem", 7, 0)],
        }
    }

    fn three() -> Results {
        let mut results = Results::default();
        for (millis, acquisitions) in [(300, 600), (100, 200), (200, 400)] {
            let run = run(millis, acquisitions, acquisitions / 4);
            results.add(Kind::Dbench, 2, Variant::LazyLruTimer, run);
        }
        results
    }

    #[test]
    fn figures_are_medians_over_runs() {
        let results = three();
        let median = |measure| {
            let summary = results.summary(Kind::Dbench, 2, Variant::LazyLruTimer, measure);
            summary.unwrap().median
        };
        assert_eq!(median(Measure::Throughput), 0.5);
        assert_eq!(median(Measure::Locks), 4.5);
        assert_eq!(median(Measure::GlobalLocks), 4.0);
        assert_eq!(median(Measure::Contention), 25.0);
        let typical = results.typical(Kind::Dbench, 2, Variant::LazyLruTimer).unwrap();
        assert_eq!(typical.wall, Duration::from_millis(200));
        assert_eq!(typical.behind(), 7);
        assert!(results.typical(Kind::Dbench, 1, Variant::LazyLruTimer).is_none());
    }

    #[test]
    fn a_line_has_the_agreed_fields() {
        let mut out = Vec::new();
        three().write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert_eq!(first["bench"], "dcache");
        assert_eq!(first["case"], "dbench-throughput");
        assert_eq!(first["system"], "lazy-lru-timer");
        assert_eq!((&first["threads"], &first["runs"]), (&2.into(), &3.into()));
        assert_eq!((&first["unit"], &first["higher_is_better"]), (&"k/s".into(), &true.into()));
        assert_eq!(text.lines().count(), Measure::ALL.len());
    }

    #[test]
    fn the_product_has_no_global_lock_and_all_its_locks_are_watched() {
        let run = run(1, 10, 5);
        assert_eq!(watched(&run, Variant::GlobalLock).acquisitions, 10);
        assert_eq!(watched(&run, Variant::Uvfs).acquisitions, 60);
    }
}
