//! The aims of the page cache.
//!
//! # Boundary
//! Which ratios are wanted; judging them is the kit's.

use super::cases::{Case, Sizes};
use super::scan::{AFTER, BEFORE, DURING};
use super::{FOUND, HASH, HELD, KERNEL, KERNEL_DISK, OURS, QUARTER, REFERENCED, VALIDATED};
use crate::aims::{Aim, Wish, counted};
use crate::report::Report;
use uvfs_bench_workload::traces::Pattern;

/// The aims, judged by `figures`.
pub(super) fn judge(figures: &Report, sizes: &Sizes) -> Vec<Aim> {
    let named = |cases: &[Case]| cases.iter().map(|case| case.name(sizes)).collect::<Vec<_>>();
    let pages = named(&[Case::ReadHot, Case::Read(Pattern::Uniform), Case::Read(Pattern::Zipf)]);
    let hot = named(&[Case::ReadHot]);
    let lookups = named(&[Case::Lookup(Pattern::Uniform), Case::Lookup(Pattern::Zipf)]);
    let [short, long, written] =
        [Case::ReadShort, Case::ReadLong, Case::WriteBack].map(|case| named(&[case]));
    let scan = Case::Scan.name(sizes);
    let against = |system, other, cases: &[String]| -> Vec<(String, f64)> {
        let rows = cases.iter().flat_map(|case| {
            let ratio = move |threads| {
                let times = figures.times(case, system, other, threads)?;
                Some((format!("{case} on {}", counted(threads)), times))
            };
            figures.threads_of(case).into_iter().filter_map(ratio)
        });
        rows.collect()
    };
    let on_one = |mut rows: Vec<(String, f64)>| {
        rows.retain(|row| row.0.ends_with("on 1 thread"));
        rows
    };
    let doubled = |systems: &[&str], cases: &[String]| -> Vec<(String, f64)> {
        let rows = cases.iter().flat_map(|case| systems.iter().map(move |system| (case, *system)));
        let ratio = |(case, system): (&String, &str)| {
            let [one, two] = [1, 2].map(|threads| figures.median(case, system, threads));
            Some((format!("{case} of {system}"), two? / one?))
        };
        rows.filter_map(ratio).collect()
    };
    let kept = [DURING, AFTER].into_iter().filter_map(|phase| {
        let [then, before] =
            [phase, BEFORE].map(|phase| figures.median(&format!("{scan}{phase}"), OURS, 1));
        Some((format!("{scan}{phase}"), then? / before?))
    });
    vec![
        Aim::new(
            "reads of 4 KiB, at least 2 times as fast as the kernel's",
            Wish::AtLeast(2.0),
            against(OURS, KERNEL, &pages),
        ),
        Aim::new(
            "lookups of 8 bytes by reference, at least 2 times quick_cache's",
            Wish::AtLeast(2.0),
            on_one(against(REFERENCED, HASH, &lookups)),
        ),
        Aim::new(
            "validated lookups of 8 bytes, at least 2.5 times quick_cache's",
            Wish::AtLeast(2.5),
            on_one(against(VALIDATED, HASH, &lookups)),
        ),
        Aim::new(
            "two threads do at least 1.9 times the lookups of one",
            Wish::AtLeast(1.9),
            doubled(&[VALIDATED, REFERENCED], &lookups),
        ),
        Aim::new(
            "the same of reads of 4 KiB from the processor's caches",
            Wish::AtLeast(1.9),
            doubled(&[OURS], &hot),
        ),
        Aim::new("a scan leaves at least 95 % of a hot set's hits", Wish::AtLeast(0.95), kept),
        Aim::new(
            "random writes and fsync, at least as fast as the kernel's",
            Wish::AtLeast(1.0),
            against(OURS, KERNEL_DISK, &written),
        ),
        Aim::new(
            "the same with a budget of a quarter",
            Wish::Shown,
            against(QUARTER, KERNEL_DISK, &written),
        ),
        Aim::new(
            "lookups by reference without the bytes beside quick_cache's",
            Wish::Shown,
            on_one(against(HELD, HASH, &lookups)),
        ),
        Aim::new(
            "validated lookups without the bytes beside quick_cache's",
            Wish::Shown,
            on_one(against(FOUND, HASH, &lookups)),
        ),
        Aim::new(
            "reads of 64 bytes beside the kernel's",
            Wish::Shown,
            against(OURS, KERNEL, &short),
        ),
        Aim::new("reads of 1 MiB beside the kernel's", Wish::Shown, against(OURS, KERNEL, &long)),
        Aim::new(
            "reads of 4 KiB beside those of quick_cache",
            Wish::Shown,
            against(OURS, HASH, &pages),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::cases::TINY;
    use super::*;
    use crate::report::Unit;

    /// Figures of one sample a row.
    fn of(unit: Unit, rows: &[(&str, &str, usize, f64)]) -> Report {
        let mut figures = Report::new("hit");
        for (case, system, threads, value) in rows {
            figures.sample(case, system, *threads, unit, *value);
        }
        figures
    }

    fn verdicts(rows: &[(&str, &str, usize, f64)]) -> Vec<Option<bool>> {
        let figures = of(Unit::ThousandsPerSecond, rows);
        judge(&figures, &TINY).iter().map(Aim::is_met).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&[]), [None; 13]);
    }

    #[test]
    fn the_worst_row_decides_and_is_named() {
        let (hot, zipf) = (Case::ReadHot.name(&TINY), Case::Read(Pattern::Zipf).name(&TINY));
        let rows = [
            (&*hot, OURS, 1, 400.0),
            (&*hot, KERNEL, 1, 100.0),
            (&*zipf, OURS, 2, 199.0),
            (&*zipf, KERNEL, 2, 100.0),
        ];
        assert_eq!((verdicts(&rows[..2])[0], verdicts(&rows)[0]), (Some(true), Some(false)));
        let line = judge(&of(Unit::ThousandsPerSecond, &rows), &TINY)[0].line();
        assert!(line.contains("missed") && line.ends_with("1.990 in read4k-zipf-2m on 2 threads"));
    }

    #[test]
    fn lookups_are_judged_on_one_thread_and_by_two() {
        let zipf = Case::Lookup(Pattern::Zipf).name(&TINY);
        let rows = |reference, two| {
            [
                (&*zipf, HASH, 1, 10.0),
                (&*zipf, HASH, 2, 90.0),
                (&*zipf, REFERENCED, 1, reference),
                (&*zipf, REFERENCED, 2, two),
            ]
        };
        assert_eq!(verdicts(&rows(20.0, 38.0))[1..4], [Some(true), None, Some(true)]);
        assert_eq!(verdicts(&rows(19.9, 37.0))[1..4], [Some(false), None, Some(false)]);
    }

    #[test]
    fn what_a_scan_leaves_is_a_share_of_what_there_was() {
        let names = [BEFORE, DURING, AFTER].map(|phase| Case::Scan.name(&TINY) + phase);
        let kept = |during, after| {
            let values = [0.8, during, after];
            let rows: Vec<_> =
                names.iter().zip(values).map(|(name, value)| (&**name, OURS, 1, value)).collect();
            verdicts(&rows)[5]
        };
        assert_eq!(
            (kept(0.76, 0.8), kept(0.75, 0.8), kept(0.8, 0.7)),
            (Some(true), Some(false), Some(false))
        );
    }

    #[test]
    fn seconds_are_better_when_fewer() {
        let name = Case::WriteBack.name(&TINY);
        let rows =
            [(&*name, KERNEL_DISK, 1, 1.0), (&*name, OURS, 1, 1.1), (&*name, QUARTER, 1, 0.9)];
        let figures = of(Unit::Seconds, &rows);
        assert_eq!(judge(&figures, &TINY)[6].is_met(), Some(false));
        assert_eq!(judge(&figures, &TINY)[7].is_met(), None);
    }
}
