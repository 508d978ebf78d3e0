//! The meter's report in the layout of lockmeter, so that it can be compared with the published tables.
//!
//! # Boundary
//! Numbers to text. Columns and their meaning as `lockstat` prints them and as in the tables of Linder, Sarma and Soni,
//! *Scalability of the Directory Entry Cache* (Ottawa Linux Symposium 2002):
//!
//! | Column | Meaning |
//! |---|---|
//! | UTIL | part of the time in which a lock of the class was held; beyond 100 % when several were |
//! | CON | part of the requests that found the lock held |
//! | HOLD MEAN, MAX | time for which it was held |
//! | WAIT MEAN, MAX | time that the waiting requests waited |
//! | % CPU | part of all processors' time that was spent waiting |
//! | TOTAL | requests, with the rejected ones |
//! | NOWAIT, SPIN, RJECT | part of them that got the lock at once, that waited, that were rejected |
//! | NAME | the class; below it, indented, the places in the source that took it |
//!
//! # Why
//! Many readers know this table, so it needs no manual. Weakness: waiters sleep after spinning briefly, so SPIN counts
//! both kinds of waits.

use super::report::{ClassReport, Mode, Totals};
use std::fmt::Write;
use std::time::Duration;

/// Headings, in the columns' order, and the modes below each.
const SECTIONS: [(&str, &[Mode]); 3] = [
    ("SPINLOCKS", &[Mode::Mutex, Mode::Spin]),
    ("RWLOCK READS", &[Mode::Read]),
    ("RWLOCK WRITES", &[Mode::Write]),
];

/// Lays out `classes` as counted during `wall` on a machine with `processors`. Within a section, the class with the
/// longest total wait comes first.
pub fn lockmeter_table(classes: &[ClassReport], wall: Duration, processors: usize) -> String {
    let mut text = String::new();
    for (title, modes) in SECTIONS {
        let mut own: Vec<_> = classes.iter().filter(|one| modes.contains(&one.mode)).collect();
        if own.is_empty() {
            continue;
        }
        own.sort_by_key(|one| std::cmp::Reverse((one.totals.wait_ns, one.totals.acquisitions)));
        if !text.is_empty() {
            text.push('\n');
        }
        heading(&mut text, title);
        let mut all = Totals::default();
        own.iter().for_each(|one| all.add(&one.totals));
        row(&mut text, &all, None, (wall, processors), "*TOTAL*");
        for class in own {
            text.push('\n');
            row(&mut text, &class.totals, Some(wall), (wall, processors), &class.class);
            for site in &class.sites {
                let name = site.site.strip_prefix("crates/").unwrap_or(&site.site);
                row(&mut text, &site.totals, Some(wall), (wall, processors), &format!("  {name}"));
            }
        }
    }
    text
}

fn heading(text: &mut String, title: &str) {
    line(text, &format!("{title:<17}HOLD               WAIT"));
    line(
        text,
        "   UTIL    CON     MEAN(   MAX  )     MEAN(   MAX  )(% CPU)       TOTAL NOWAIT   SPIN  RJECT  NAME",
    );
}

/// One line; without `utilised`, the column UTIL stays empty.
fn row(
    text: &mut String,
    totals: &Totals,
    utilised: Option<Duration>,
    (wall, processors): (Duration, usize),
    name: &str,
) {
    let requests = totals.acquisitions + totals.rejected;
    let share =
        |part: u64| percent(if requests == 0 { 0.0 } else { part as f64 / requests as f64 });
    let utilisation = utilised.map_or_else(String::new, |wall| percent(totals.utilisation(wall)));
    let hold = (time(totals.hold_mean_ns()), time(totals.hold_max_ns as f64));
    let wait = (time(totals.wait_mean_ns()), time(totals.wait_max_ns as f64));
    let lost = match totals.contended {
        0 => " ".repeat(8),
        _ => format!("({:>6})", percent(totals.wait_share(wall, processors))),
    };
    line(
        text,
        &format!(
            "{utilisation:>7} {:>6} {:>8}({:>8}) {:>8}({:>8}){lost} {requests:>11} {:>6} {:>6} {:>6}  {name}",
            share(totals.contended + totals.rejected),
            hold.0,
            hold.1,
            wait.0,
            wait.1,
            share(totals.acquisitions.saturating_sub(totals.contended)),
            share(totals.contended),
            share(totals.rejected),
        ),
    );
}

fn line(text: &mut String, line: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Microseconds, with the significant digits.
fn time(ns: f64) -> String {
    match ns / 1000.0 {
        0.0 => "0us".into(),
        us if us >= 10.0 => format!("{us:.0}us"),
        us if us >= 1.0 => format!("{us:.1}us"),
        us => format!("{us:.2}us"),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".into(),
        percent if percent >= 1.0 => format!("{percent:.1}%"),
        percent => format!("{percent:.2}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::SiteReport;
    use super::*;

    /// The shape of the paper's table 1, with two of its rows.
    fn dcache_lock() -> ClassReport {
        let totals = |acquisitions, contended, hold_ns: u64, hold_max, wait_ns, wait_max| Totals {
            acquisitions,
            contended,
            free_samples: acquisitions - contended,
            free_hold_ns: hold_ns * (acquisitions - contended),
            contended_samples: contended,
            contended_hold_ns: hold_ns * contended,
            hold_max_ns: hold_max,
            wait_ns: wait_ns * contended,
            wait_max_ns: wait_max,
            ..Totals::default()
        };
        let site = |site: &str, totals| SiteReport { site: site.into(), totals };
        ClassReport {
            class: "dcache_lock".into(),
            rank: 1,
            mode: Mode::Mutex,
            totals: totals(15_069_563, 2_486_478, 600, 2_787_000, 5000, 3_094_000),
            sites: vec![
                site(
                    "crates/vfs/src/a.rs:7",
                    totals(12_725_262, 2_188_745, 700, 1_362_000, 4800, 2_692_000),
                ),
                site("link.rs:9", totals(2, 0, 1700, 1800, 0, 0)),
            ],
        }
    }

    #[test]
    fn a_table_reads_like_lockstat() {
        let mut reader = dcache_lock();
        (reader.class, reader.mode) = ("names".into(), Mode::Read);
        reader.sites.clear();
        reader.totals = Totals { acquisitions: 3, rejected: 1, ..Totals::default() };
        let wall = Duration::from_secs(170);
        let table = lockmeter_table(&[reader, dcache_lock()], wall, 8);
        let expected = "\
SPINLOCKS        HOLD               WAIT
   UTIL    CON     MEAN(   MAX  )     MEAN(   MAX  )(% CPU)       TOTAL NOWAIT   SPIN  RJECT  NAME
         16.5%   0.60us(  2787us)    5.0us(  3094us)( 0.91%)    15069563  83.5%  16.5%     0%  *TOTAL*

   5.3%  16.5%   0.60us(  2787us)    5.0us(  3094us)( 0.91%)    15069563  83.5%  16.5%     0%  dcache_lock
   5.2%  17.2%   0.70us(  1362us)    4.8us(  2692us)( 0.77%)    12725262  82.8%  17.2%     0%    vfs/src/a.rs:7
  0.00%     0%    1.7us(   1.8us)      0us(     0us)                   2 100.0%     0%     0%    link.rs:9

RWLOCK READS     HOLD               WAIT
   UTIL    CON     MEAN(   MAX  )     MEAN(   MAX  )(% CPU)       TOTAL NOWAIT   SPIN  RJECT  NAME
         25.0%      0us(     0us)      0us(     0us)                   4  75.0%     0%  25.0%  *TOTAL*

     0%  25.0%      0us(     0us)      0us(     0us)                   4  75.0%     0%  25.0%  names
";
        assert_eq!(table, expected, "\n{table}");
    }

    #[test]
    fn the_class_that_lost_most_time_waiting_comes_first() {
        let mut other = dcache_lock();
        (other.class, other.totals.wait_ns) = ("second".into(), 1);
        let table = lockmeter_table(&[other, dcache_lock()], Duration::from_secs(1), 1);
        assert!(table.find("dcache_lock") < table.find("second"));
        assert_eq!(lockmeter_table(&[], Duration::ZERO, 1), "");
    }
}
