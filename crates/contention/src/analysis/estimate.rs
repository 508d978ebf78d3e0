//! A mean over seeds, and how far it may be off.
//!
//! # Boundary
//! Numbers only.
//!
//! # Why
//! Student's t, since a handful of seeds is all that is run. Shares are ratios of sums, not means of
//! ratios, so that the shares of a whole add up to it; their spread is the ratio estimator's. Weakness:
//! the interval assumes that seeds are spread normally, which a bistable program is not.

use serde::{Deserialize, Serialize};

/// A mean with its 95 % interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Over the seeds.
    pub mean: f64,
    /// Half the width of the interval; `None` with fewer than two seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plus_minus: Option<f64>,
}

impl Estimate {
    /// Estimates the mean of `values`, one value a seed.
    pub fn of(values: &[f64]) -> Self {
        let pairs: Vec<_> = values.iter().map(|value| (*value, 1.0)).collect();
        Self::ratio(&pairs)
    }

    /// Estimates the mean of counts, one count a seed.
    pub fn of_counts(values: impl IntoIterator<Item = u64>) -> Self {
        let values: Vec<_> = values.into_iter().map(|value| value as f64).collect();
        Self::of(&values)
    }

    /// Estimates the ratio of a part to its whole from one pair a seed; zero if there is nothing of the whole.
    pub fn ratio(pairs: &[(f64, f64)]) -> Self {
        let whole: f64 = pairs.iter().map(|(_, whole)| whole).sum();
        let count = pairs.len() as f64;
        if whole <= 0.0 {
            return Self { mean: 0.0, plus_minus: (pairs.len() > 1).then_some(0.0) };
        }
        let mean = pairs.iter().map(|(part, _)| part).sum::<f64>() / whole;
        let plus_minus = (pairs.len() > 1).then(|| {
            let squares = pairs.iter().map(|(part, whole)| (part - mean * whole).powi(2));
            let deviation = (squares.sum::<f64>() / (count - 1.0)).sqrt();
            t_95(count - 1.0) * deviation / count.sqrt() / (whole / count)
        });
        Self { mean, plus_minus }
    }

    /// Parts of wholes, by seed.
    pub(crate) fn share(parts: &[f64], wholes: &[f64]) -> Self {
        Self::ratio(&parts.iter().copied().zip(wholes.iter().copied()).collect::<Vec<_>>())
    }

    /// The interval as a part of the mean; `None` without one or around zero.
    pub fn relative(&self) -> Option<f64> {
        let plus_minus = self.plus_minus?;
        (self.mean != 0.0).then(|| (plus_minus / self.mean).abs())
    }

    /// The smaller end of the interval; the mean itself without one.
    pub fn low(&self) -> f64 {
        self.mean - self.plus_minus.unwrap_or(0.0)
    }

    /// The larger end of the interval; the mean itself without one.
    pub fn high(&self) -> f64 {
        self.mean + self.plus_minus.unwrap_or(0.0)
    }
}

/// Quantile of Student's t that leaves 2.5 % on either side. Degrees of freedom need not be whole, as Welch's
/// are not: between two whole ones its logarithm is interpolated in their reciprocals, which is right to a
/// thousandth from two on and a little wide below. Less than one is taken as one, none is without bound.
pub(crate) fn t_95(degrees: f64) -> f64 {
    if degrees <= 0.0 {
        return f64::INFINITY;
    }
    let degrees = degrees.clamp(1.0, 1e9);
    let (low, high) = (degrees.floor(), degrees.ceil());
    if low == high {
        return t_95_whole(low);
    }
    let along = (1.0 / low - 1.0 / degrees) / (1.0 / low - 1.0 / high);
    t_95_whole(low) * (t_95_whole(high) / t_95_whole(low)).powf(along)
}

/// The quantile for a whole number of degrees of freedom, from one on.
fn t_95_whole(degrees: f64) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    // Two terms of the expansion around the normal quantile: right to a thousandth behind the table.
    let expanded = || 1.960 + 2.372 / degrees + 2.823 / (degrees * degrees);
    TABLE.get(degrees as usize - 1).copied().unwrap_or_else(expanded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seeds_have_a_wide_interval_and_one_has_none() {
        // Mean 15, standard deviation 7.071, standard error 5, times 12.706.
        let two = Estimate::of(&[10.0, 20.0]);
        assert_eq!(two.mean, 15.0);
        assert!((two.plus_minus.unwrap() - 63.53).abs() < 0.01, "{two:?}");
        assert!((two.relative().unwrap() - 4.235).abs() < 0.001);
        assert_eq!(Estimate::of(&[10.0]), Estimate { mean: 10.0, plus_minus: None });
        assert_eq!(Estimate::of(&[]).mean, 0.0);
        assert!((two.low() + two.high() - 30.0).abs() < 1e-9);
    }

    #[test]
    fn shares_of_a_whole_add_up_to_it() {
        let whole = [100.0, 300.0];
        let shares = [[30.0, 40.0], [70.0, 260.0]]
            .map(|part| Estimate::ratio(&[(part[0], whole[0]), (part[1], whole[1])]));
        assert_eq!(shares[0].mean + shares[1].mean, 1.0);
        assert_eq!(shares[0].mean, 0.175);
        // Two parts of one whole are off by the same.
        assert!((shares[0].plus_minus.unwrap() - shares[1].plus_minus.unwrap()).abs() < 1e-12);
        assert_eq!(Estimate::ratio(&[(0.0, 0.0), (0.0, 0.0)]).mean, 0.0);
    }

    #[test]
    fn the_quantile_falls_to_the_normal_one() {
        assert_eq!((t_95(1.0), t_95(7.0)), (12.706, 2.365));
        assert!((t_95(31.0) - 2.0395).abs() < 0.001 && (t_95(100.0) - 1.984).abs() < 0.001);
        assert!(t_95(0.0).is_infinite());
        let falls = (1..200).map(f64::from).all(|degrees| t_95(degrees) >= t_95(degrees + 1.0));
        assert!(falls);
        assert!((t_95(1e12) - 1.960).abs() < 1e-3);
    }

    #[test]
    fn between_whole_degrees_the_quantile_falls_too() {
        let mut last = f64::INFINITY;
        for tenth in 10..2000 {
            let value = t_95(f64::from(tenth) / 10.0);
            assert!(value <= last, "{value} after {last}");
            last = value;
        }
        // The exact ones are integrals of the density.
        for (degrees, exact, off) in [
            (1.5, 6.0167, 0.16),
            (2.5, 3.5746, 0.02),
            (4.412, 2.6771, 0.002),
            (17.3, 2.1070, 0.001),
            (40.5, 2.0203, 0.001),
        ] {
            let value = t_95(degrees);
            assert!((value - exact).abs() < off, "{degrees}: {value} is not {exact}");
        }
    }
}
