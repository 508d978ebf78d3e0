//! Aims for figures, and whether a run reaches them.
//!
//! # Boundary
//! Arithmetic on figures that a bench chose, and one line for each aim. An aim without figures is "not measured", never
//! "met".
//!
//! # Why
//! The worst of many rows decides, and is named: an average would hide where we lose. Some figures are shown without an
//! aim, so that they are not forgotten.

use crate::report::figure;
use std::io::{self, Write};

/// The bound of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wish {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// Less than this.
    Below(f64),
    /// Nothing: the figure is only shown; less is worse.
    Shown,
}

impl Wish {
    fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Wish::AtLeast(wanted) => Some(value >= wanted),
            Wish::AtMost(wanted) => Some(value <= wanted),
            Wish::Below(wanted) => Some(value < wanted),
            Wish::Shown => None,
        }
    }
}

/// An aim, and the row that decides.
#[derive(Debug, PartialEq)]
pub struct Aim {
    what: String,
    wish: Wish,
    deciding: Option<(String, f64)>,
}

impl Aim {
    /// Wanted of every row: the worst one decides.
    pub fn new(
        what: impl Into<String>,
        wish: Wish,
        rows: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        let less_is_worse = matches!(wish, Wish::AtLeast(_) | Wish::Shown);
        Self { what: what.into(), wish, deciding: extreme(rows, less_is_worse) }
    }

    /// Wanted of some row: the best one decides.
    pub fn somewhere(
        what: impl Into<String>,
        wish: Wish,
        rows: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        let less_is_better = matches!(wish, Wish::AtMost(_) | Wish::Below(_));
        Self { what: what.into(), wish, deciding: extreme(rows, less_is_better) }
    }

    /// Whether it is reached, if it was measured and has a bound.
    pub fn is_met(&self) -> Option<bool> {
        self.wish.is_met(self.deciding.as_ref()?.1)
    }

    /// In words.
    pub fn verdict(&self) -> &'static str {
        match (self.is_met(), &self.deciding) {
            (Some(true), _) => "met",
            (Some(false), _) => "missed",
            (None, Some(_)) => "no aim",
            (None, None) => "not measured",
        }
    }

    /// Verdict, aim, and the deciding row.
    pub fn line(&self) -> String {
        let row = self.deciding.as_ref().map(|(row, value)| format!("{} in {row}", figure(*value)));
        let (verdict, row) = (self.verdict(), row.unwrap_or_default());
        format!("  {verdict:<13} {:<66} {row}", self.what).trim_end().to_owned()
    }
}

/// The row with the least value, or with the most.
fn extreme(rows: impl IntoIterator<Item = (String, f64)>, least: bool) -> Option<(String, f64)> {
    let by_value = |one: &(String, f64), other: &(String, f64)| one.1.total_cmp(&other.1);
    match least {
        true => rows.into_iter().min_by(by_value),
        false => rows.into_iter().max_by(by_value),
    }
}

/// "1 thread", "2 threads".
pub fn counted(threads: usize) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

/// Writes a line an aim below `aims (HOW)`.
///
/// # Errors
/// Of `out`.
pub fn write(how: &str, aims: &[Aim], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\naims ({how})")?;
    aims.iter().try_for_each(|aim| writeln!(out, "{}", aim.line()))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<(String, f64)> {
        [("a", 2.0), ("b", 1.0), ("c", 3.0)].map(|(row, value)| (row.to_owned(), value)).into()
    }

    #[test]
    fn the_worst_row_decides_and_is_named() {
        let check = |wish, verdict: &str, row: &str| {
            let line = Aim::new("fast", wish, rows()).line();
            assert!(line.starts_with(&format!("  {verdict} ")) && line.ends_with(row), "{line}");
        };
        check(Wish::AtLeast(1.0), "met", "1.000 in b");
        check(Wish::AtLeast(1.1), "missed", "1.000 in b");
        check(Wish::AtMost(3.0), "met", "3.000 in c");
        check(Wish::Below(3.0), "missed", "3.000 in c");
        check(Wish::Shown, "no aim", "1.000 in b");
    }

    #[test]
    fn somewhere_asks_for_the_best_row() {
        let met = |wish| Aim::somewhere("fast", wish, rows()).is_met();
        assert_eq!((met(Wish::AtLeast(3.0)), met(Wish::AtLeast(3.1))), (Some(true), Some(false)));
        assert_eq!((met(Wish::AtMost(1.0)), met(Wish::Below(1.0))), (Some(true), Some(false)));
    }

    #[test]
    fn without_figures_nothing_is_met() {
        let aim = Aim::new("fast", Wish::AtLeast(1.0), []);
        assert_eq!((aim.is_met(), aim.line().trim()), (None, "not measured  fast"));
    }
}
