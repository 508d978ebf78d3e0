//! The universal scalability law and its fit.
//!
//! # Boundary
//! Pairs of cores and throughput in, three numbers out.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Gunther's `X(N) = g N / (1 + s (N - 1) + k N (N - 1))`: `s` is the queueing for one place, `k` the
//! exchange between every pair. In `N / X` it is linear in `1/g`, `s/g`, `k/g`, none of which is
//! negative; each row is weighted by `X / N`, which makes the error relative in `X`, so that a collapsed
//! end counts as much as the peak. With three unknowns the non-negative optimum is found by solving all
//! eight choices of which are zero. Weakness: errors are first-order relative, and a law of two causes is
//! forced upon curves with more.

use serde::Serialize;

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Law {
    /// Throughput of one core.
    pub gamma: f64,
    /// Contention: the part that queues for one place. At one it is a plateau at one core's throughput.
    pub sigma: f64,
    /// Coherence: the cost of each pair of cores. Above zero, the curve falls somewhere.
    pub kappa: f64,
    /// How much of the throughput's variance the law explains; one is all.
    pub r_squared: f64,
    /// Cores of the highest throughput; `None` if it rises without end. May lie beyond the cores that ran.
    pub peak: Option<f64>,
}

impl Law {
    /// The throughput that the law predicts for `cores`.
    pub fn throughput(&self, cores: f64) -> f64 {
        let more = cores - 1.0;
        self.gamma * cores / (1.0 + self.sigma * more + self.kappa * cores * more)
    }
}

/// Fits the law; `None` with fewer than four points or a throughput that is not above zero.
pub fn fit(points: &[(f64, f64)]) -> Option<Law> {
    if points.len() < 4 || points.iter().any(|(cores, value)| *cores < 1.0 || *value <= 0.0) {
        return None;
    }
    // Rows of the weighted linear system `row . (1/g, s/g, k/g) = 1`.
    let rows: Vec<[f64; 3]> = points
        .iter()
        .map(|(cores, value)| {
            let weight = value / cores;
            [weight, weight * (cores - 1.0), weight * cores * (cores - 1.0)]
        })
        .collect();
    let error = |solution: &[f64; 3]| -> f64 {
        let residual =
            |row: &[f64; 3]| row.iter().zip(solution).map(|(a, x)| a * x).sum::<f64>() - 1.0;
        rows.iter().map(|row| residual(row).powi(2)).sum()
    };
    // The first is never zero: a core does something.
    let solutions =
        [[true, true, true], [true, true, false], [true, false, true], [true, false, false]]
            .into_iter()
            .filter_map(|free| solve(&rows, free))
            .filter(|solution| solution[0] > 0.0 && solution[1] >= 0.0 && solution[2] >= 0.0);
    let best = solutions.min_by(|a, b| error(a).total_cmp(&error(b)))?;
    let mut law = Law {
        gamma: 1.0 / best[0],
        sigma: best[1] / best[0],
        kappa: best[2] / best[0],
        r_squared: 0.0,
        peak: None,
    };
    let mean = points.iter().map(|(_, value)| value).sum::<f64>() / points.len() as f64;
    let around = |of: &dyn Fn(f64) -> f64| -> f64 {
        points.iter().map(|(cores, value)| (value - of(*cores)).powi(2)).sum()
    };
    let (left, all) = (around(&|cores| law.throughput(cores)), around(&|_| mean));
    law.r_squared = if all > 0.0 { 1.0 - left / all } else { 1.0 };
    // Below this, the pairs' cost is the rounding of the solution.
    if law.kappa > 1e-12 {
        law.peak = Some(((1.0 - law.sigma) / law.kappa).max(1.0).sqrt());
    }
    Some(law)
}

/// Least squares over the unknowns that are `free`; the others are zero.
fn solve(rows: &[[f64; 3]], free: [bool; 3]) -> Option<[f64; 3]> {
    // Columns differ by four orders of magnitude: scale them to one first.
    let scale: [f64; 3] = std::array::from_fn(|column| {
        let norm = rows.iter().map(|row| row[column].powi(2)).sum::<f64>().sqrt();
        if free[column] && norm > 0.0 { norm } else { 1.0 }
    });
    let mut system = [[0.0_f64; 4]; 3];
    for (i, line) in system.iter_mut().enumerate() {
        for (j, cell) in line.iter_mut().take(3).enumerate() {
            *cell = match (free[i], free[j]) {
                (true, true) => {
                    rows.iter().map(|row| row[i] * row[j]).sum::<f64>() / scale[i] / scale[j]
                }
                _ => f64::from(u8::from(i == j)),
            };
        }
        line[3] = if free[i] { rows.iter().map(|row| row[i]).sum::<f64>() / scale[i] } else { 0.0 };
    }
    for column in 0..3 {
        let pivot = (column..3)
            .max_by(|a, b| system[*a][column].abs().total_cmp(&system[*b][column].abs()))?;
        system.swap(column, pivot);
        if system[column][column].abs() < 1e-12 {
            return None;
        }
        for line in column + 1..3 {
            let factor = system[line][column] / system[column][column];
            let upper = system[column];
            for (cell, above) in system[line].iter_mut().zip(upper) {
                *cell -= factor * above;
            }
        }
    }
    let mut solution = [0.0; 3];
    for line in (0..3).rev() {
        let known: f64 = (line + 1..3).map(|column| system[line][column] * solution[column]).sum();
        solution[line] = (system[line][3] - known) / system[line][line];
    }
    for (value, scale) in solution.iter_mut().zip(scale) {
        *value /= scale;
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CORES: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    fn points(gamma: f64, sigma: f64, kappa: f64) -> Vec<(f64, f64)> {
        let law = Law { gamma, sigma, kappa, r_squared: 1.0, peak: None };
        CORES.iter().map(|cores| (*cores, law.throughput(*cores))).collect()
    }

    #[test]
    fn a_law_is_found_again() {
        let law = fit(&points(1000.0, 0.03, 0.0004)).unwrap();
        assert!((law.gamma - 1000.0).abs() < 1e-3, "{law:?}");
        assert!((law.sigma - 0.03).abs() < 1e-6 && (law.kappa - 0.0004).abs() < 1e-9, "{law:?}");
        assert!(law.r_squared > 0.999_999);
        assert!((law.peak.unwrap() - (0.97_f64 / 0.0004).sqrt()).abs() < 1e-3);
    }

    #[test]
    fn nothing_is_negative_where_the_free_optimum_would_be() {
        // Faster than linear: the free optimum has a negative sigma.
        let better: Vec<_> = CORES.iter().map(|cores| (*cores, cores.powf(1.1))).collect();
        let law = fit(&better).unwrap();
        assert_eq!((law.sigma, law.kappa, law.peak), (0.0, 0.0, None));
        let plateau: Vec<_> = CORES.iter().map(|cores| (*cores, 5.0)).collect();
        let law = fit(&plateau).unwrap();
        assert!((law.sigma - 1.0).abs() < 1e-6 && law.kappa < 1e-9, "{law:?}");
    }

    #[test]
    fn a_linear_law_has_no_peak() {
        let law = fit(&points(7.0, 0.0, 0.0)).unwrap();
        assert_eq!(law.peak, None);
        assert!((law.throughput(64.0) - 448.0).abs() < 1e-6);
    }

    #[test]
    fn too_few_points_or_none_above_zero_give_none() {
        assert_eq!(fit(&points(1.0, 0.1, 0.1)[..3]), None);
        assert_eq!(fit(&[(1.0, 1.0), (2.0, 0.0), (4.0, 1.0), (8.0, 1.0)]), None);
        assert_eq!(fit(&[(2.0, 1.0); 4]).map(|law| law.throughput(2.0)), Some(1.0));
    }

    proptest! {
        /// No small allowed step decreases the error of the fit.
        #[test]
        fn it_is_the_optimum(noise in prop::collection::vec(0.5_f64..1.5, 8), s in 0.0_f64..1.0, k in 0.0_f64..0.01) {
            let mut points = points(100.0, s, k);
            for (point, noise) in points.iter_mut().zip(&noise) {
                point.1 *= noise;
            }
            let law = fit(&points).unwrap();
            prop_assert!(law.sigma >= 0.0 && law.kappa >= 0.0 && law.gamma > 0.0);
            let error = |x: [f64; 3]| -> f64 {
                points.iter().map(|(n, value)| {
                    (value / n * (x[0] + x[1] * (n - 1.0) + x[2] * n * (n - 1.0)) - 1.0).powi(2)
                }).sum()
            };
            let found = [1.0 / law.gamma, law.sigma / law.gamma, law.kappa / law.gamma];
            let least = error(found);
            for unknown in 0..3 {
                for step in [0.999, 1.001] {
                    let mut other = found;
                    other[unknown] *= step;
                    prop_assert!(error(other) >= least - 1e-9, "{found:?} {other:?}");
                }
            }
        }
    }
}
