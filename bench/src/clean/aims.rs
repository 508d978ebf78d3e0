//! Aims of cleaning.
//!
//! # Boundary
//! Arithmetic on medians and counts; the kit judges them.
//!
//! # Why
//! The best row decides about the gain, since the patch's aim is a gain somewhere. A cell is slower only if its fastest
//! run is slower than the other's slowest. Without misses both do the same work, and half of all medians would be above
//! the other's by chance.

use super::effect::{COLLATERAL, EFFECT, IDLE, OURS, REAPING};
use super::figures::Figures;
use super::names::SIMULATED;
use super::sizes::Sizes;
use crate::aims::{Aim, Wish};

/// The most that the patch gained.
const GAIN: f64 = 4.29;
/// Microseconds until a cleaning has taken effect.
const EFFECT_US: f64 = 50.0;
/// How many times as long other lookups may take meanwhile.
const SLOWER: f64 = 2.0;

pub(super) fn judge(figures: &Figures, sizes: &Sizes) -> Vec<Aim> {
    let pairs = figures.pairs();
    let gains = pairs.iter().map(|(row, [plain, cleaned])| {
        (row.clone(), plain.median / cleaned.median.max(f64::MIN_POSITIVE))
    });
    let kept = pairs.iter().map(|(row, [plain, cleaned])| {
        (row.clone(), plain.max / cleaned.min.max(f64::MIN_POSITIVE))
    });
    // Only there every miss is counted, and nothing else runs.
    let exact = figures.missed().into_iter().filter(|(row, _)| row.ends_with(SIMULATED));
    let more = exact.map(|(row, [plain, cleaned])| (row, cleaned - plain));
    let slower = sizes.below.iter().filter_map(|below| {
        let of = |case: &str| figures.summary(&format!("{case}-{below}"), OURS);
        let (reaping, idle) = (of(REAPING)?, of(IDLE)?);
        Some((format!("{REAPING}-{below}"), reaping.median / idle.median.max(1.0)))
    });
    // Of this project's systems; rivals are shown and not judged.
    let ours = |prefix: &str| -> Vec<(String, f64)> {
        let rows = figures.beginning(prefix).filter(|(_, system, _)| system.starts_with(OURS));
        rows.map(|(case, system, of)| (format!("{case} of {system}"), of.median)).collect()
    };
    vec![
        Aim::somewhere(
            format!("cleaning makes a second pass at least {GAIN} times as fast somewhere"),
            Wish::AtLeast(GAIN),
            gains,
        ),
        Aim::new("nowhere is it slower, beyond the spread of the runs", Wish::AtLeast(1.0), kept),
        Aim::new("nowhere does more of it reach the simulated store", Wish::AtMost(0.0), more),
        Aim::new(
            format!("a cleaning takes effect in less than {EFFECT_US} us at any size and depth"),
            Wish::Below(EFFECT_US),
            ours(EFFECT),
        ),
        Aim::new(
            format!("p99 of lookups elsewhere, at most {SLOWER} times that of an idle cache"),
            Wish::AtMost(SLOWER),
            slower,
        ),
        Aim::new(
            "entries outside the directory that went with it, counted: none",
            Wish::AtMost(0.0),
            ours(COLLATERAL),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::sizes::QUICK;
    use super::*;
    use crate::report::Unit;

    fn verdicts(figures: &Figures) -> Vec<&'static str> {
        judge(figures, &QUICK).iter().map(Aim::verdict).collect()
    }

    #[test]
    fn without_figures_nothing_is_met() {
        assert_eq!(verdicts(&Figures::default()), ["not measured"; 6]);
    }

    #[test]
    fn the_best_gain_and_the_worst_of_all_else_decide() {
        let mut figures = Figures::default();
        let mut add = |case: &str, system: &str, values: &[f64]| {
            values.iter().for_each(|&value| figures.sample(case, system, Unit::Seconds, value));
        };
        add("reaccess-10-plain", "uvfs-dir", &[1.0, 1.1]);
        add("reaccess-10-cleaned", "uvfs-dir", &[1.05, 1.2]);
        add("reaccess-20-plain", "uvfs-dir", &[5.0]);
        add("reaccess-20-cleaned", "uvfs-dir", &[1.0]);
        add("reaccess-20-plain-misses", SIMULATED, &[10.0]);
        add("reaccess-20-cleaned-misses", SIMULATED, &[11.0]);
        add("reaccess-20-plain-misses", "lru-model", &[0.0]);
        add("reaccess-20-cleaned-misses", "lru-model", &[99.0]);
        add("effect-100", OURS, &[3.0]);
        add("effect-100000", OURS, &[50.0]);
        add("p99-idle-100000", OURS, &[100.0]);
        add("p99-reaping-100000", OURS, &[199.0]);
        add("collateral-100", OURS, &[0.0]);
        add("collateral-100", "kernel-switch", &[9.0]);
        assert_eq!(verdicts(&figures), ["met", "met", "missed", "missed", "met", "met"]);
        let lines: Vec<String> = judge(&figures, &QUICK).iter().map(Aim::line).collect();
        assert!(lines[0].contains("5.000 in reaccess-20-cleaned of uvfs-dir"), "{lines:?}");
        assert!(lines[3].contains("50.0 in effect-100000"), "{lines:?}");
        figures.sample("collateral-100000", OURS, Unit::Entries, 1.0);
        assert_eq!(verdicts(&figures)[5], "missed");
    }
}
