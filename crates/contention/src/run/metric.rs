//! A number that a program prints.
//!
//! # Boundary
//! Output of runs to one number each.
//!
//! # Why
//! A benchmark that was written without this tool prints its throughput, measured with a clock that is
//! virtual here, so its number can be taken as it is. Weakness: a program that prints several has to be told
//! apart by the pattern.

use crate::Error;
use regex::Regex;

/// A pattern whose first group is the number.
#[derive(Debug, Clone)]
pub struct Metric {
    pattern: Regex,
}

impl Metric {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is no regular expression, or has no group.
    pub fn parse(pattern: &str) -> Result<Self, Error> {
        let pattern = Regex::new(pattern).map_err(|error| {
            let last = error.to_string();
            let last =
                last.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
            Error::new(format!("no regular expression: {last}"))
        })?;
        if pattern.captures_len() < 2 {
            return Err(Error::new("no group; put the number into (), as in ([0-9.]+) ops"));
        }
        Ok(Self { pattern })
    }

    /// The number in each output, by seed.
    ///
    /// # Errors
    /// An output has none.
    pub fn values(&self, outputs: &[(u64, String)]) -> Result<Vec<f64>, Error> {
        outputs.iter().map(|(seed, output)| self.value(*seed, output)).collect()
    }

    fn value(&self, seed: u64, output: &str) -> Result<f64, Error> {
        let wrong = |what: &str| {
            Error::new(format!("the output of seed {seed} has {what} for `{}`", self.pattern))
        };
        let found = self.pattern.captures(output).and_then(|found| found.get(1));
        let text = found.ok_or_else(|| wrong("nothing"))?.as_str().replace([',', '_'], "");
        match text.trim().parse::<f64>() {
            Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
            _ => Err(wrong("no positive number")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_group_is_the_number() {
        let metric = Metric::parse(r"throughput: ([0-9.,]+) ops").unwrap();
        let outputs =
            [(1, "x\nthroughput: 1,234.5 ops\n".to_string()), (2, "throughput: 7 ops".into())];
        assert_eq!(metric.values(&outputs).unwrap(), [1234.5, 7.0]);
    }

    #[test]
    fn what_is_not_there_names_its_seed() {
        let metric = Metric::parse("([a-z0-9]+) ops").unwrap();
        let of = |text: &str| metric.values(&[(3, text.to_string())]).unwrap_err().to_string();
        assert!(of("nothing here").contains("seed 3 has nothing"));
        assert!(of("many ops").contains("no positive number"));
        assert!(of("0 ops").contains("no positive number"));
        assert!(Metric::parse("(").unwrap_err().to_string().starts_with("no regular expression"));
        assert!(Metric::parse("[0-9]+").unwrap_err().to_string().contains("no group"));
    }
}
