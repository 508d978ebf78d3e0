//! The aims of the walk.
//!
//! # Boundary
//! Which ratios are wanted; judging them is the kit's. Maps that cut names are compared with too, but no aim hangs on
//! them, for they cannot do the work.

use super::cases::{self, CURVE_DEPTH, Shape, Sizes, Wanted};
use super::{BOUNDS, KERNEL, RIVALS, UVFS, UVFS_WHOLE};
use crate::aims::{Aim, Wish, counted};
use crate::report::Report;
use uvfs_bench_workload::paths::Pattern;

/// The aims, judged by `figures`.
pub(super) fn judge(figures: &Report, sizes: Sizes) -> Vec<Aim> {
    use Wish::{AtLeast, AtMost};
    let view = View { figures, sizes };
    let [hot, uniform] = Pattern::ALL.map(|pattern| view.trees(pattern));
    let [middle_hot, middle_uniform] = Pattern::ALL.map(|pattern| view.middle(pattern));
    let one_file = ["fx-MRPH".to_owned()];
    let negative = cases::negative(sizes);
    let ratios = [cases::listing(sizes)[4].clone(), "reclaim-p99-ratio".to_owned()];
    vec![
        Aim::new(
            "uvfs, at least 3 times as fast as the kernel",
            AtLeast(3.0),
            view.against(UVFS, &[KERNEL], &[middle_hot.clone(), middle_uniform]),
        ),
        Aim::new(
            "uvfs-whole-path, hot, at least 8 times as fast as the kernel",
            AtLeast(8.0),
            view.against(UVFS_WHOLE, &[KERNEL], &[middle_hot]),
        ),
        Aim::new(
            "uvfs, hot, at least 1.5 times as fast as the best map",
            AtLeast(1.5),
            view.against(UVFS, &RIVALS, &hot),
        ),
        Aim::new(
            "uvfs, uniform, at least 1.2 times as fast as the best map",
            AtLeast(1.2),
            view.against(UVFS, &RIVALS, &uniform),
        ),
        Aim::new(
            "two threads do at least 1.9 times the walks of one",
            AtLeast(1.9),
            view.doubled(&[hot.clone(), uniform.clone()].concat(), |one, two| 2.0 * one / two),
        ),
        Aim::new(
            "the same with all threads on one file",
            AtLeast(1.9),
            view.doubled(&one_file, |one, two| two / one),
        ),
        Aim::new(
            "a name with its inode takes at most 320 bytes",
            AtMost(320.0),
            view.plain("bytes-per-name"),
        ),
        Aim::new(
            "a missing name costs at most 1.2 times one that is there",
            AtMost(1.2),
            view.plain(&negative[0]).and_then(|(row, missing)| {
                Some((row, missing / figures.median(&negative[1], UVFS, 1)?))
            }),
        ),
        Aim::new(
            "p99 beside a listing at most 2 times that of an idle machine",
            AtMost(2.0),
            view.plain(&ratios[0]),
        ),
        Aim::new(
            "p99 beside a reclaim at most 2 times that of an idle machine",
            AtMost(2.0),
            view.plain(&ratios[1]),
        ),
        Aim::new(
            "uvfs, hot, against maps that cut names at 23 bytes",
            Wish::Shown,
            view.against(UVFS, &BOUNDS, &hot),
        ),
        Aim::new(
            "uvfs, uniform, against maps that cut names at 23 bytes",
            Wish::Shown,
            view.against(UVFS, &BOUNDS, &uniform),
        ),
    ]
}

/// The figures of the aims.
struct View<'a> {
    figures: &'a Report,
    sizes: Sizes,
}

impl View<'_> {
    /// The cases of one pattern, over all trees.
    fn trees(&self, pattern: Pattern) -> Vec<String> {
        let all = Wanted::new(&["d*".to_owned()], self.sizes);
        let all = all.map_or_else(|_| Vec::new(), |all| all.trees());
        all.into_iter().map(|(shape, _)| shape.case(pattern)).collect()
    }

    /// The case of one pattern in the middle of the grid.
    fn middle(&self, pattern: Pattern) -> String {
        Shape { depth: CURVE_DEPTH, names: self.sizes.names_middle }.case(pattern)
    }

    /// How many times as fast as the best of `others` `system` is, at each number of threads.
    fn against(
        &self,
        system: &str,
        others: &[&'static str],
        cases: &[String],
    ) -> Vec<(String, f64)> {
        let ratios = cases.iter().flat_map(|case| {
            let of = move |threads: usize| {
                let (other, ns) = self.figures.best(others, case, threads)?;
                let ratio = ns / self.figures.median(case, system, threads)?;
                Some((format!("{case} on {} against {other}", counted(threads)), ratio))
            };
            self.figures.threads_of(case).into_iter().filter_map(of)
        });
        ratios.collect()
    }

    /// The rate of two threads as a multiple of one's, for both ways to walk.
    fn doubled(&self, cases: &[String], of: impl Fn(f64, f64) -> f64) -> Vec<(String, f64)> {
        let rows = cases.iter().flat_map(|case| [UVFS, UVFS_WHOLE].map(|system| (case, system)));
        let ratio = |(case, system): (&String, &str)| {
            let median = |threads| self.figures.median(case, system, threads);
            Some((format!("{case} of {system}"), of(median(1)?, median(2)?)))
        };
        rows.filter_map(ratio).collect()
    }

    /// The figure of `uvfs` on one thread.
    fn plain(&self, case: &str) -> Option<(String, f64)> {
        Some((case.to_owned(), self.figures.median(case, UVFS, 1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::FULL;
    use super::super::figures::tests::of;
    use super::*;

    fn verdicts(rows: &[(&str, &str, usize, f64)]) -> Vec<Option<bool>> {
        judge(&of(rows), FULL).iter().map(Aim::is_met).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&[]), [None; 12]);
    }

    #[test]
    fn the_worst_row_decides_and_is_named() {
        let rows = [
            ("d6-n10000-hot", UVFS, 1, 100.0),
            ("d6-n10000-hot", KERNEL, 1, 100.0),
            ("d6-n100000-hot", UVFS, 1, 100.0),
            ("d6-n100000-hot", KERNEL, 1, 300.0),
            ("d6-n100000-hot", UVFS, 2, 100.0),
            ("d6-n100000-hot", KERNEL, 2, 299.0),
            ("d6-n100000-hot", "scc", 1, 151.0),
            ("d6-n100000-hot", "papaya", 1, 180.0),
            ("d12-n100000-hot", UVFS, 1, 100.0),
            ("d12-n100000-hot", "scc", 1, 200.0),
        ];
        assert_eq!(verdicts(&rows)[..3], [Some(false), None, Some(true)]);
        let line = |nth: usize| judge(&of(&rows), FULL)[nth].line();
        assert!(line(0).contains("missed"), "{}", line(0));
        let row = "2.990 in d6-n100000-hot on 2 threads against kernel-tmpfs";
        assert!(line(0).ends_with(row), "{}", line(0));
        let row = "1.510 in d6-n100000-hot on 1 thread against scc";
        assert!(line(2).ends_with(row), "{}", line(2));
    }

    #[test]
    fn maps_that_cut_names_are_shown_and_decide_nothing() {
        let rows = [
            ("d6-n100000-uniform", UVFS, 1, 100.0),
            ("d6-n100000-uniform", "dashmap", 1, 120.0),
            ("d6-n100000-uniform", BOUNDS[1], 1, 80.0),
        ];
        assert_eq!((verdicts(&rows)[3], verdicts(&rows)[11]), (Some(true), None));
        let line = judge(&of(&rows), FULL)[11].line();
        assert!(line.contains("no aim") && line.contains("0.800 in d6-n100000-uniform"), "{line}");
    }

    #[test]
    fn whole_paths_are_judged_by_their_own_aim() {
        let whole = |value| {
            let rows =
                [("d6-n100000-hot", UVFS_WHOLE, 1, value), ("d6-n100000-hot", KERNEL, 1, 800.0)];
            verdicts(&rows)[1]
        };
        assert_eq!((whole(100.0), whole(101.0)), (Some(true), Some(false)));
    }

    #[test]
    fn scaling_counts_the_walks_of_all_threads() {
        let uniform = |system, two| {
            let case = "d1-n100000-uniform";
            verdicts(&[(case, system, 1, 95.0), (case, system, 2, two)])[4]
        };
        assert_eq!((uniform(UVFS, 100.0), uniform(UVFS, 101.0)), (Some(true), Some(false)));
        assert_eq!(uniform(UVFS_WHOLE, 101.0), Some(false));
        let file = |two| verdicts(&[("fx-MRPH", UVFS, 1, 1000.0), ("fx-MRPH", UVFS, 2, two)])[5];
        assert_eq!((file(1900.0), file(1899.0)), (Some(true), Some(false)));
    }

    #[test]
    fn less_is_better_where_it_is() {
        let bytes = |value| verdicts(&[("bytes-per-name", UVFS, 1, value)])[6];
        assert_eq!((bytes(320.0), bytes(321.0)), (Some(true), Some(false)));
        let missing = |value| {
            let hit = ("negative-50000-hit", UVFS, 1, 100.0);
            verdicts(&[("negative-50000", UVFS, 1, value), hit])[7]
        };
        assert_eq!((missing(120.0), missing(121.0)), (Some(true), Some(false)));
        for (nth, case) in [(8, "listing-700000-p99-ratio"), (9, "reclaim-p99-ratio")] {
            let ratio = |value| verdicts(&[(case, UVFS, 1, value)])[nth];
            assert_eq!((ratio(2.0), ratio(2.1)), (Some(true), Some(false)), "{case}");
        }
    }
}
