//! Aims of the tree.
//!
//! # Boundary
//! Ratios of medians on the clock, of one run; the kit judges them.
//!
//! # Why
//! The worst row decides, and is named, so that no average hides it. The same ratio by processor
//! time is beside it: it leaves out other users of the machine, but favours a rival that sleeps
//! while it waits.

use super::figures::Figures;
use super::systems::Phase;
use super::tables::{OPERATIONS, THREADS, gain, published};
use Pattern::{Interleaved, Sequential};
use Phase::{Gang, Insert, Lookup, RangeTag, Remove, Tag, Untag};
use uvfs_bench_kit::aims::{Aim, Wish};
use uvfs_bench_workload::keys::Pattern;

const OURS: &str = "optimistic";
const XARRAYS: [&str; 2] = ["xarray", "xarray-mutex"];

/// A measured quotient: where, on the clock, by processor time.
type Row = (String, f64, f64);

/// Each row has its own bound; the one with the smallest part of it decides.
fn aim(what: &str, rows: Vec<(Row, f64)>) -> Aim {
    let parts = rows.into_iter().map(|((row, found, cpu), wanted)| {
        let text =
            format!("the share of it in {row}: {found:.2} ({cpu:.2} by processor) of {wanted:.2}");
        (text, found / wanted)
    });
    Aim::new(what, Wish::AtLeast(1.0), parts)
}

/// The figures of the aims.
struct View<'a>(&'a Figures);

impl View<'_> {
    /// Our rate as a multiple of the best of `others`.
    fn against(
        &self,
        others: &[&str],
        pattern: Pattern,
        threads: usize,
        phase: Phase,
    ) -> Option<Row> {
        let rates = |system: &str| {
            let wall = self.0.rate(system, pattern, threads, phase)?;
            Some((wall, self.0.rate_cpu(system, pattern, threads, phase)?))
        };
        let of_others = others.iter().filter_map(|system| Some((*system, rates(system)?)));
        let (system, best) = of_others.max_by(|one, other| one.1.0.total_cmp(&other.1.0))?;
        let ours = rates(OURS)?;
        let row = format!("{}-{} against {system}", phase.name(), pattern.name());
        Some((row, ours.0 / best.0, ours.1 / best.1))
    }

    /// The rows of several phases, each with its bound.
    fn all_against(
        &self,
        others: &[&str],
        pattern: Pattern,
        threads: usize,
        wanted: &[(Phase, f64)],
    ) -> Vec<(Row, f64)> {
        let row = |&(phase, wanted)| Some((self.against(others, pattern, threads, phase)?, wanted));
        wanted.iter().filter_map(row).collect()
    }

    /// Our rate by two threads as a multiple of that by one.
    fn doubled(&self, pattern: Pattern, wanted: f64) -> Vec<(Row, f64)> {
        let row = |phase: Phase| {
            let [one, two] = [1, THREADS].map(|threads| {
                let wall = self.0.rate(OURS, pattern, threads, phase);
                wall.zip(self.0.rate_cpu(OURS, pattern, threads, phase))
            });
            let (one, two) = (one?, two?);
            let name = format!("{}-{}", phase.name(), pattern.name());
            Some(((name, two.0 / one.0, two.1 / one.1), wanted))
        };
        [Insert, Lookup, Tag, Untag, Remove].into_iter().filter_map(row).collect()
    }

    /// Tagging ranges as a multiple of tagging one by one.
    fn ranges(&self) -> Vec<(Row, f64)> {
        let rate = |phase| {
            let wall = self.0.rate(OURS, Sequential, 1, phase)?;
            Some((wall, self.0.rate_cpu(OURS, Sequential, 1, phase)?))
        };
        let row = |range: (f64, f64), one: (f64, f64)| {
            ("range-tag-sequential".to_owned(), range.0 / one.0, range.1 / one.1)
        };
        rate(RangeTag)
            .zip(rate(Tag))
            .map(|(range, one)| (row(range, one), 10.0))
            .into_iter()
            .collect()
    }

    /// The eight cells of the paper: how many times as fast as the serial tree, against its factor.
    fn cells(&self) -> Vec<(Row, f64)> {
        let mut rows = Vec::new();
        for pattern in [Interleaved, Sequential] {
            for (phase, seconds) in
                OPERATIONS.into_iter().zip(published(pattern).unwrap_or_default())
            {
                let gains = |rate: &dyn Fn(&str) -> Option<f64>| {
                    // The serial rate over ours is our time over the serial one.
                    Some(1.0 - rate("serial")? / rate(OURS)?)
                };
                let wall = gains(&|system| self.0.rate(system, pattern, THREADS, phase));
                let cpu = gains(&|system| self.0.rate_cpu(system, pattern, THREADS, phase));
                if let Some((wall, cpu)) = wall.zip(cpu) {
                    let row = format!("{}-{}", phase.name(), pattern.name());
                    rows.push(((row, wall, cpu), gain(seconds[0], seconds[1])));
                }
            }
        }
        rows
    }
}

/// The aims, judged by `figures`.
pub(super) fn judge(figures: &Figures) -> Vec<Aim> {
    let view = View(figures);
    let one = [(Insert, 1.5), (Lookup, 1.8), (Tag, 1.0), (Untag, 1.0), (Remove, 1.5), (Gang, 1.6)];
    let two = [(Insert, 3.5), (Lookup, 1.8), (Tag, 3.0), (Untag, 2.3), (Remove, 3.5)];
    let between = [(Insert, 2.5), (Tag, 2.5), (Untag, 2.5), (Remove, 2.5)];
    let congee = [(Insert, 2.0), (Lookup, 3.0), (Remove, 1.8)];
    vec![
        aim(
            "one thread against the XArray, sequential",
            view.all_against(&XARRAYS, Sequential, 1, &one),
        ),
        aim(
            "two threads against the XArray, sequential",
            view.all_against(&XARRAYS, Sequential, THREADS, &two),
        ),
        aim(
            "two threads against the XArray, interleaved",
            view.all_against(&XARRAYS, Interleaved, THREADS, &between),
        ),
        aim(
            "two threads against congee, sequential",
            view.all_against(&["congee"], Sequential, THREADS, &congee),
        ),
        aim("two threads against one, sequential", view.doubled(Sequential, 1.9)),
        aim("two threads against one, interleaved", view.doubled(Interleaved, 1.5)),
        aim("the paper's eight cells: part of the serial time saved", view.cells()),
        aim("tagging ranges against tagging one by one", view.ranges()),
        Aim::new(
            "bytes of the tree for each item, at most 9.2",
            Wish::AtMost(9.2),
            figures.bytes_per_item(OURS).map(|bytes| ("bytes-per-item".to_owned(), bytes)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::of;
    use super::*;

    fn verdicts(rows: &[(&str, Pattern, usize, Phase, f64)]) -> Vec<Option<bool>> {
        judge(&of(rows)).iter().map(Aim::is_met).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&[]), [None; 9]);
    }

    #[test]
    fn the_row_farthest_from_its_own_bound_decides() {
        let row = |system, phase, wall| (system, Sequential, 1, phase, wall);
        let rows = [
            row(OURS, Insert, 0.10),
            row("xarray", Insert, 0.16),
            row("xarray-mutex", Insert, 0.20),
            row(OURS, Tag, 0.10),
            row("xarray", Tag, 0.101),
        ];
        let aims = judge(&of(&rows));
        let line = aims[0].line();
        assert!(line.contains("met") && line.contains("tag-sequential against xarray"), "{line}");
        let slower = [row(OURS, Insert, 0.10), row("xarray", Insert, 0.149)];
        let line = judge(&of(&slower))[0].line();
        assert!(line.contains("missed") && line.contains("1.49 (1.49 by processor) of 1.50"));
        assert_eq!(verdicts(&rows)[8], Some(true), "9.14 bytes");
    }

    #[test]
    fn scaling_and_ranges_are_judged_by_our_own_rates() {
        let two = |pattern, wall| {
            let rows = [(OURS, pattern, 1, Tag, 0.19), (OURS, pattern, 2, Tag, wall)];
            verdicts(&rows)
        };
        assert_eq!(two(Sequential, 0.1)[4], Some(true));
        assert_eq!(two(Sequential, 0.101)[4], Some(false));
        assert_eq!(
            (two(Interleaved, 0.12)[5], two(Interleaved, 0.13)[5]),
            (Some(true), Some(false))
        );
        let range = |wall| {
            verdicts(&[(OURS, Sequential, 1, Tag, 0.1), (OURS, Sequential, 1, RangeTag, wall)])[7]
        };
        assert_eq!((range(0.01), range(0.0101)), (Some(true), Some(false)));
    }

    #[test]
    fn the_papers_cells_are_met_by_its_own_gain() {
        let cell = |wall| {
            let row = |system, wall| (system, Interleaved, 2, Untag, wall);
            verdicts(&[row("serial", 1.0), row(OURS, wall)])[6]
        };
        assert_eq!((cell(0.23), cell(0.24)), (Some(true), Some(false)));
    }
}
