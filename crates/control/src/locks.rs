//! The lock meter's report: from the daemon's memory to its user's screen.
//!
//! # Boundary
//! In the daemon, [`collect`] turns the meter's numbers into JSON; in `uvfs stat`, [`LocksReport`]
//! reads them back, takes differences and lays them out. Counts nothing itself, and knows no lock.
//!
//! # Why
//! The client takes differences of two reports: the daemon keeps no state for clients, so any
//! number of them may watch at once. `uvfs_concurrent::lock::meter` defines the numbers: which
//! holds are timed, and the maximum of an interval. Weakness: each report has all numbers since the
//! daemon started, some tens of kilobytes.

use crate::units::show_count;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Write;
use std::thread;
use std::time::Duration;
use uvfs_concurrent::lock::meter::{
    self, BUCKETS, ClassReport, Mode, SiteReport, Totals, lockmeter_table,
};

/// The meter's counts, and their period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LocksReport {
    /// Nanoseconds in which it was counted.
    wall_ns: u64,
    /// Processors that threads could wait on meanwhile.
    processors: usize,
    /// One of so many holds that did not wait was timed.
    sampling: u32,
    classes: Vec<ClassRow>,
}

/// One class of locks in one mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ClassRow {
    lock: String,
    rank: u16,
    mode: String,
    #[serde(flatten)]
    totals: TotalsRow,
    sites: Vec<SiteRow>,
}

/// One call site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct SiteRow {
    site: String,
    #[serde(flatten)]
    totals: TotalsRow,
}

/// Counts and times. The last three are worked out from the others, for programs that read this.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct TotalsRow {
    acquisitions: u64,
    contended: u64,
    rejected: u64,
    spins: u64,
    free_samples: u64,
    free_hold_ns: u64,
    contended_samples: u64,
    contended_hold_ns: u64,
    hold_max_ns: u64,
    wait_ns: u64,
    wait_max_ns: u64,
    /// By power of two of nanoseconds, without the empty end.
    hold_histogram: Vec<u64>,
    wait_histogram: Vec<u64>,
    #[serde(default)]
    hold_mean_ns: f64,
    #[serde(default)]
    wait_mean_ns: f64,
    #[serde(default)]
    utilisation: f64,
}

/// This process's report, as JSON.
pub fn collect() -> Value {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let report =
        LocksReport::new(&meter::snapshot(), meter::running(), processors, meter::sampling());
    report.to_json()
}

impl LocksReport {
    fn new(classes: &[ClassReport], wall: Duration, processors: usize, sampling: u32) -> Self {
        let row = |class: &ClassReport| ClassRow {
            lock: class.class.clone(),
            rank: class.rank,
            mode: class.mode.name().to_owned(),
            totals: TotalsRow::new(&class.totals, wall),
            sites: class
                .sites
                .iter()
                .map(|one| SiteRow {
                    site: one.site.clone(),
                    totals: TotalsRow::new(&one.totals, wall),
                })
                .collect(),
        };
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        Self { wall_ns, processors, sampling, classes: classes.iter().map(row).collect() }
    }

    /// Reads a daemon's report.
    ///
    /// # Errors
    /// If it is not such a report; a daemon of another version may send another kind.
    pub fn from_json(value: Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|error| {
            format!(
                "the daemon sent no lock report that this version reads: {error}; use the version \
                 that mounted it"
            )
        })
    }

    /// The form for programs.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|error| {
            log::error!("lock report: {error}");
            Value::Null
        })
    }

    /// The counts since `earlier`.
    pub fn since(&self, earlier: &LocksReport) -> LocksReport {
        let wall = self.wall().saturating_sub(earlier.wall());
        let classes = meter::difference(&self.classes(), &earlier.classes());
        LocksReport::new(&classes, wall, self.processors, self.sampling)
    }

    fn wall(&self) -> Duration {
        Duration::from_nanos(self.wall_ns)
    }

    fn classes(&self) -> Vec<ClassReport> {
        let mode = |name: &str| Mode::ALL.into_iter().find(|mode| mode.name() == name);
        let class = |row: &ClassRow| {
            let sites = row
                .sites
                .iter()
                .map(|site| SiteReport { site: site.site.clone(), totals: site.totals.totals() });
            Some(ClassReport {
                class: row.lock.clone(),
                rank: row.rank,
                mode: mode(&row.mode)?,
                totals: row.totals.totals(),
                sites: sites.collect(),
            })
        };
        self.classes.iter().filter_map(class).collect()
    }

    /// One line per class, for people; the class with the longest wait comes first.
    pub fn table(&self) -> String {
        let mut classes = self.classes();
        classes.sort_by_key(|one| std::cmp::Reverse((one.totals.wait_ns, one.totals.acquisitions)));
        let mut text = self.title();
        let heads =
            "acquisitions contended  hold mean       max  wait mean       max    held     spins";
        let _ = writeln!(text, "{:<26} {heads}", "lock");
        for class in &classes {
            let totals = &class.totals;
            let _ = writeln!(
                text,
                "  {:<24} {:>12} {:>9} {:>10} {:>9} {:>10} {:>9} {:>7} {:>9}",
                class.name(),
                show_count(totals.acquisitions),
                percent(totals.contended_share()),
                time(totals.hold_mean_ns()),
                time(totals.hold_max_ns as f64),
                time(totals.wait_mean_ns()),
                time(totals.wait_max_ns as f64),
                percent(totals.utilisation(self.wall())),
                show_count(totals.spins),
            );
        }
        text
    }

    /// In the layout of lockmeter, with call sites.
    pub fn lockmeter(&self) -> String {
        self.title() + &lockmeter_table(&self.classes(), self.wall(), self.processors)
    }

    fn title(&self) -> String {
        let (wall, processors) = (time(self.wall_ns as f64), self.processors);
        let sampling = match self.sampling {
            0 | 1 => "every hold timed".to_owned(),
            every => format!("one hold in {every} timed"),
        };
        format!("locks over {wall}, {processors} processors, {sampling}\n\n")
    }
}

impl TotalsRow {
    fn new(totals: &Totals, wall: Duration) -> Self {
        Self {
            acquisitions: totals.acquisitions,
            contended: totals.contended,
            rejected: totals.rejected,
            spins: totals.spins,
            free_samples: totals.free_samples,
            free_hold_ns: totals.free_hold_ns,
            contended_samples: totals.contended_samples,
            contended_hold_ns: totals.contended_hold_ns,
            hold_max_ns: totals.hold_max_ns,
            wait_ns: totals.wait_ns,
            wait_max_ns: totals.wait_max_ns,
            hold_histogram: shortened(&totals.hold_histogram),
            wait_histogram: shortened(&totals.wait_histogram),
            hold_mean_ns: totals.hold_mean_ns().round(),
            wait_mean_ns: totals.wait_mean_ns().round(),
            utilisation: (totals.utilisation(wall) * 1e6).round() / 1e6,
        }
    }

    fn totals(&self) -> Totals {
        Totals {
            acquisitions: self.acquisitions,
            contended: self.contended,
            rejected: self.rejected,
            spins: self.spins,
            free_samples: self.free_samples,
            free_hold_ns: self.free_hold_ns,
            contended_samples: self.contended_samples,
            contended_hold_ns: self.contended_hold_ns,
            hold_max_ns: self.hold_max_ns,
            wait_ns: self.wait_ns,
            wait_max_ns: self.wait_max_ns,
            hold_histogram: restored(&self.hold_histogram),
            wait_histogram: restored(&self.wait_histogram),
        }
    }
}

/// Without the empty buckets at the end.
fn shortened(histogram: &[u64; BUCKETS]) -> Vec<u64> {
    let used = histogram.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    histogram[..used].to_vec()
}

fn restored(histogram: &[u64]) -> [u64; BUCKETS] {
    std::array::from_fn(|at| histogram.get(at).copied().unwrap_or(0))
}

/// Three digits and a unit.
fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        0.0 => return "0".into(),
        ns if ns < 999.5 => return format!("{ns:.0} ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    match value {
        small if small < 9.95 => format!("{small:.1} {unit}"),
        large => format!("{large:.0} {unit}"),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".into(),
        percent if percent >= 0.995 => format!("{percent:.1}%"),
        percent => format!("{percent:.2}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(acquisitions: u64, wall_s: u64) -> LocksReport {
        let mut totals = Totals {
            acquisitions,
            contended: acquisitions / 10,
            free_samples: 10,
            free_hold_ns: 5_000,
            contended_samples: acquisitions / 10,
            contended_hold_ns: acquisitions / 10 * 1_500,
            hold_max_ns: 4_000_000,
            wait_ns: acquisitions * 1_000,
            wait_max_ns: 70_000,
            ..Totals::default()
        };
        totals.wait_histogram[16] = acquisitions / 10;
        let class = |name: &str, mode, totals, sites| ClassReport {
            class: name.into(),
            rank: 7,
            mode,
            totals,
            sites,
        };
        let site = SiteReport { site: "crates/vfs/src/names.rs:5".into(), totals };
        let idle = Totals { acquisitions: 5, ..Totals::default() };
        let classes = [
            class("idle", Mode::Write, idle, vec![]),
            class("names", Mode::Mutex, totals, vec![site]),
        ];
        LocksReport::new(&classes, Duration::from_secs(wall_s), 2, 128)
    }

    #[test]
    fn a_report_survives_its_way_through_json() {
        let report = report(1000, 5);
        let json = report.to_json();
        assert_eq!(LocksReport::from_json(json.clone()), Ok(report));
        let names = &json["classes"][1];
        let shape = |row: &Value| {
            let mut keys: Vec<_> = row.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        let totals = "hold_max_ns hold_mean_ns";
        assert_eq!(shape(&json), "classes processors sampling wall_ns");
        assert_eq!(
            shape(names),
            format!(
                "acquisitions contended contended_hold_ns contended_samples free_hold_ns \
                 free_samples hold_histogram {totals} lock mode rank rejected sites spins \
                 utilisation wait_histogram wait_max_ns wait_mean_ns wait_ns"
            )
        );
        assert_eq!((&names["lock"], &names["mode"]), (&"names".into(), &"mutex".into()));
        assert_eq!(names["hold_mean_ns"], 600.0);
        assert_eq!(names["wait_histogram"].as_array().unwrap().len(), 17);
        assert_eq!(names["sites"][0]["site"], "crates/vfs/src/names.rs:5");
    }

    #[test]
    fn something_else_is_refused_with_a_remedy() {
        let refused = LocksReport::from_json(serde_json::json!({"wall_ns": "long"})).unwrap_err();
        assert!(refused.to_string().contains("use the version that mounted it"), "{refused}");
    }

    #[test]
    fn the_table_has_a_line_per_class() {
        let expected = "\
locks over 5.0 s, 2 processors, one hold in 128 timed

lock                       acquisitions contended  hold mean       max  wait mean       max    held     spins
  names                           1,000     10.0%     600 ns    4.0 ms      10 us     70 us   0.01%         0
  idle (write)                        5        0%          0         0          0         0      0%         0
";
        assert_eq!(report(1000, 5).table(), expected, "\n{}", report(1000, 5).table());
    }

    #[test]
    fn an_interval_shows_only_what_happened_in_it() {
        let since = report(1500, 7).since(&report(1000, 5));
        assert_eq!((since.wall_ns, since.classes.len()), (2_000_000_000, 1));
        let totals = &since.classes[0].totals;
        assert_eq!((totals.acquisitions, totals.contended), (500, 50));
        assert!(!since.table().contains("idle"), "not taken meanwhile");
        let lockmeter = since.lockmeter();
        assert!(lockmeter.contains("SPINLOCKS") && lockmeter.contains("    vfs/src/names.rs:5"));
    }

    #[test]
    fn times_have_their_digits() {
        let shown = [0.0, 7.4, 999.0, 1_234.0, 9_960.0, 999_600.0, 2.5e6, 1.5e9, 72e9].map(time);
        let expected =
            ["0", "7 ns", "999 ns", "1.2 us", "10 us", "1.0 ms", "2.5 ms", "1.5 s", "72 s"];
        assert_eq!(shown, expected);
    }
}
