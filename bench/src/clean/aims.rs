//! What is wanted of cleaning, and whether this run's figures meet it.
//!
//! # Boundary
//! Arithmetic on medians and counts. An aim without figures is "not measured", never "met".
//!
//! # Why
//! The worst row decides and is named; of the gain, the best, since the patch's aim is a gain somewhere.
//! A cell is slower only if its fastest run is slower than the other's slowest: where nothing was
//! missed, both do the same work, and half of all medians would be above the other's by chance.

use super::effect::{COLLATERAL, EFFECT, IDLE, OURS, REAPING};
use super::figures::Figures;
use super::names::SIMULATED;
use super::sizes::Sizes;
use crate::report::figure;
use std::io::{self, Write};

/// The most that the patch gained.
const GAIN: f64 = 4.29;
/// Microseconds until a cleaning has taken effect.
const EFFECT_US: f64 = 50.0;
/// How many times as long other lookups may take meanwhile.
const SLOWER: f64 = 2.0;

/// An aim, and the row that decides.
#[derive(Debug)]
struct Aim {
    what: String,
    deciding: Option<(String, f64)>,
    is_met: fn(f64) -> bool,
}

impl Aim {
    fn verdict(&self) -> &'static str {
        match &self.deciding {
            None => "not measured",
            Some((_, value)) if (self.is_met)(*value) => "met",
            Some(_) => "missed",
        }
    }

    fn line(&self) -> String {
        let deciding = self.deciding.as_ref();
        let row = deciding.map(|(row, value)| format!("{} in {row}", figure(*value)));
        format!("  {:<13} {:<64} {}", self.verdict(), self.what, row.unwrap_or_default())
    }
}

fn judge(figures: &Figures, sizes: &Sizes) -> Vec<Aim> {
    let best =
        |rows: Vec<(String, f64)>| rows.into_iter().max_by(|one, two| one.1.total_cmp(&two.1));
    let worst =
        |rows: Vec<(String, f64)>| rows.into_iter().min_by(|one, two| one.1.total_cmp(&two.1));
    let pairs = figures.pairs();
    let gains = pairs.iter().map(|(row, [plain, cleaned])| {
        (row.clone(), plain.median / cleaned.median.max(f64::MIN_POSITIVE))
    });
    let kept = pairs.iter().map(|(row, [plain, cleaned])| {
        (row.clone(), plain.max / cleaned.min.max(f64::MIN_POSITIVE))
    });
    // Only there is every one counted, and nothing else runs.
    let exact = figures.missed().into_iter().filter(|(row, _)| row.ends_with(SIMULATED));
    let more = exact.map(|(row, [plain, cleaned])| (row, cleaned - plain)).collect();
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
        Aim {
            what: format!("cleaning makes a second pass at least {GAIN} times as fast somewhere"),
            deciding: best(gains.collect()),
            is_met: |gain| gain >= GAIN,
        },
        Aim {
            what: "nowhere is it slower, beyond the spread of the runs".into(),
            deciding: worst(kept.collect()),
            is_met: |least| least >= 1.0,
        },
        Aim {
            what: "nowhere does more of it reach the simulated store".into(),
            deciding: best(more),
            is_met: |more| more <= 0.0,
        },
        Aim {
            what: format!(
                "a cleaning takes effect in less than {EFFECT_US} us at any size and depth"
            ),
            deciding: best(ours(EFFECT)),
            is_met: |us| us < EFFECT_US,
        },
        Aim {
            what: format!("p99 of lookups elsewhere, at most {SLOWER} times that of an idle cache"),
            deciding: best(slower.collect()),
            is_met: |times| times <= SLOWER,
        },
        Aim {
            what: "entries outside the directory that went with it, counted: none".into(),
            deciding: best(ours(COLLATERAL)),
            is_met: |entries| entries == 0.0,
        },
    ]
}

/// Writes the verdicts.
pub(super) fn write(figures: &Figures, sizes: &Sizes, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\naims (the row that decides is named)")?;
    for aim in judge(figures, sizes) {
        writeln!(out, "{}", aim.line().trim_end())?;
    }
    out.flush()
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
