//! Differences and ratios of means over seeds, with their intervals.
//!
//! # Boundary
//! Numbers in, numbers out; knows nothing of profiles.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! One run of a contended lock proves nothing: two seeds of the same program may differ by a sixth. Every
//! comparison therefore is of means, with the interval in which the difference of the means of many
//! seeds lies 95 times in a hundred. Weakness: the interval takes seeds to be spread like a bell; where a program falls into one
//! of two states by the seed it is wide, and only the single values show why.

use crate::analysis::Estimate;
use crate::analysis::estimate::t_95;
use serde::Serialize;

/// How far a new mean is from an old one, by Welch: the two may have different spreads and numbers of
/// seeds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Difference {
    /// New minus old.
    pub mean: f64,
    /// Half the width of its 95 % interval; `None` where either side has fewer than two values.
    pub plus_minus: Option<f64>,
}

impl Difference {
    /// `new - old`.
    pub fn between(old: &[f64], new: &[f64]) -> Self {
        let (old, new) = (Moments::of(old), Moments::of(new));
        let mean = new.mean - old.mean;
        Self { mean, plus_minus: welch(&old, &new, old.error_squared, new.error_squared) }
    }

    /// Whether the interval excludes zero; `None` where there is no interval.
    pub fn is_significant(&self) -> Option<bool> {
        self.plus_minus.map(|half| self.mean.abs() > half)
    }
}

/// `new / old`, with an interval made on the logarithms; `None` where a mean is not above zero.
pub fn ratio(old: &[f64], new: &[f64]) -> Option<Estimate> {
    let (old, new) = (Moments::of(old), Moments::of(new));
    if old.mean <= 0.0 || new.mean <= 0.0 {
        return None;
    }
    let mean = new.mean / old.mean;
    let half = welch(
        &old,
        &new,
        old.error_squared / old.mean.powi(2),
        new.error_squared / new.mean.powi(2),
    );
    Some(Estimate { mean, plus_minus: half.map(|half| mean * half) })
}

/// Whether a mean lies above `limit`: `None` where its interval holds `limit`, or there is none.
pub fn is_above(estimate: &Estimate, limit: f64) -> Option<bool> {
    estimate.plus_minus?;
    if estimate.low() > limit {
        Some(true)
    } else if estimate.high() <= limit {
        Some(false)
    } else {
        None
    }
}

/// `12.5 ± 0.3`, or `12.5` alone without an interval.
pub(crate) fn text(estimate: &Estimate) -> String {
    match estimate.plus_minus {
        Some(half) => format!("{} ± {}", number(estimate.mean), number(half)),
        None => number(estimate.mean),
    }
}

/// A share as `12.5 % ± 0.3 %`.
pub(crate) fn percent(share: &Estimate) -> String {
    match share.plus_minus {
        Some(half) => format!("{:.1} % ± {:.1} %", share.mean * 100.0, half * 100.0),
        None => format!("{:.1} %", share.mean * 100.0),
    }
}

/// Three significant digits, whole above a thousand.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".to_owned(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 1.0 => format!("{value:.2}"),
        _ if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// Welch's figures of one side.
struct Moments {
    mean: f64,
    /// The square of the standard error.
    error_squared: f64,
    count: usize,
}

impl Moments {
    fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error_squared =
            if count < 2 { 0.0 } else { squares / (count - 1) as f64 / count as f64 };
        Self { mean, error_squared, count }
    }
}

/// Half the interval of a sum of two errors with their squares given.
fn welch(old: &Moments, new: &Moments, old_squared: f64, new_squared: f64) -> Option<f64> {
    if old.count < 2 || new.count < 2 {
        return None;
    }
    let sum = old_squared + new_squared;
    if sum == 0.0 {
        return Some(0.0);
    }
    let freedom = sum.powi(2)
        / (old_squared.powi(2) / (old.count - 1) as f64
            + new_squared.powi(2) / (new.count - 1) as f64);
    Some(t_95(freedom.max(1.0)) * sum.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(value: f64, wanted: f64) {
        assert!((value - wanted).abs() < 1e-3 * wanted.abs().max(1.0), "{value} is not {wanted}");
    }

    #[test]
    fn above_is_reported_only_when_the_interval_allows_it() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(is_above(&estimate, 0.1), Some(true));
        assert_eq!(is_above(&estimate, 2.0), None);
        assert_eq!(is_above(&estimate, 5.0), Some(false));
        assert_eq!(is_above(&Estimate::of(&[7.0]), 1.0), None);
    }

    #[test]
    fn welch_agrees_with_a_worked_example() {
        // Standard error sqrt(5/12 + 20/12) = 1.4434; 4.412 degrees of freedom; quantile 2.677.
        let (old, new) = ([10.0, 11.0, 12.0, 13.0], [12.0, 14.0, 16.0, 18.0]);
        let difference = Difference::between(&old, &new);
        close(difference.mean, 3.5);
        assert!((difference.plus_minus.unwrap() - 3.864).abs() < 0.004, "{difference:?}");
        assert_eq!(difference.is_significant(), Some(false));
    }

    #[test]
    fn one_seed_has_no_interval_and_equal_seeds_have_a_narrow_one() {
        assert_eq!(Difference::between(&[1.0], &[2.0, 2.0]).plus_minus, None);
        let same = Difference::between(&[1.0, 1.0], &[2.0, 2.0]);
        assert_eq!((same.plus_minus, same.is_significant()), (Some(0.0), Some(true)));
    }

    #[test]
    fn a_ratio_has_an_interval() {
        let (old, new) = ([100.0, 101.0, 99.0], [200.0, 202.0, 198.0]);
        let estimate = ratio(&old, &new).unwrap();
        close(estimate.mean, 2.0);
        let half = estimate.plus_minus.unwrap();
        assert!(half > 0.01 && half < 0.1, "{half}");
        assert_eq!(ratio(&[0.0], &new), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(12345.6), "12346");
        assert_eq!(number(0.5), "0.5000");
        assert_eq!(percent(&Estimate::of(&[0.125])), "12.5 %");
        assert_eq!(text(&Estimate::of(&[2.0, 2.0])), "2.00 ± 0");
    }
}
