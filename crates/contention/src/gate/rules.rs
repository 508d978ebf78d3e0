//! The file of rules.
//!
//! # Boundary
//! Text in, checked rules out; see [`crate::gate`] for the grammar.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The parser's own types refuse unknown keys; a second step checks what a type cannot say, such as that
//! a rule selects exactly one thing, and turns every error into one line with the file and line number.
//! Weakness: only the first error of a file is told.

use crate::compare::METRICS;
use crate::error::Error;
use crate::patterns::nearest;
use serde::Deserialize;
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;

/// The subject of a rule; the text is a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // Each is named as its content.
pub enum Selector {
    Line(String),
    Field(String),
    Structure(String),
    Function(String),
    Lock(String),
}

impl Selector {
    /// The pattern.
    pub fn pattern(&self) -> &str {
        match self {
            Self::Line(pattern)
            | Self::Field(pattern)
            | Self::Structure(pattern)
            | Self::Function(pattern)
            | Self::Lock(pattern) => pattern,
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = match self {
            Self::Line(_) => "line",
            Self::Field(_) => "field",
            Self::Structure(_) => "structure",
            Self::Function(_) => "function",
            Self::Lock(_) => "lock",
        };
        write!(out, "{key} = \"{}\"", self.pattern())
    }
}

/// `[[forbid]]`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // As in the file.
pub struct Forbid {
    pub what: Selector,
    pub above: f64,
    /// In the file.
    pub line: usize,
}

/// `[[silent]]`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // As in the file.
pub struct Silent {
    pub function: String,
    /// In the file.
    pub line: usize,
}

/// `[[require]]`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // As in the file.
pub struct Require {
    /// Present if `what` is absent.
    pub metric: Option<String>,
    pub what: Option<Selector>,
    pub of: PathBuf,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
    /// In the file.
    pub line: usize,
}

/// `[[efficiency]]`.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // As in the file.
pub struct Efficiency {
    pub cores: usize,
    pub at_least: f64,
    /// In the file.
    pub line: usize,
}

/// All rules of a file.
#[derive(Debug, Clone, PartialEq, Default)]
#[allow(missing_docs)] // As in the file.
pub struct Rules {
    pub forbid: Vec<Forbid>,
    pub silent: Vec<Silent>,
    /// Metric, limit, line of the file.
    pub max: Vec<(String, f64, usize)>,
    pub require: Vec<Require>,
    pub efficiency: Vec<Efficiency>,
}

impl Rules {
    /// Reads rules; errors call the file `name`.
    ///
    /// # Errors
    /// One line, with the file, the line number and the keys that are allowed there.
    pub fn parse(text: &str, name: &str) -> Result<Self, Error> {
        let at = |offset: usize| {
            let before = text.get(..offset).unwrap_or(text);
            before.bytes().filter(|byte| *byte == b'\n').count() + 1
        };
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| at(span.start));
            let message = error.message().replace('\n', " ");
            Error::new(format!("{name}:{line}: {}", message.replace("expected one of", "allowed:")))
        })?;
        let rules =
            file.checked(&at).map_err(|(line, why)| Error::new(format!("{name}:{line}: {why}")))?;
        if rules == Self::default() {
            return Err(Error::new(format!(
                "{name}: no rules; write [[forbid]], [[silent]], [max], [[require]] or [[efficiency]]"
            )));
        }
        Ok(rules)
    }

    /// Where the first rule about a single profile stands.
    pub(super) fn first_of_profile(&self) -> Option<usize> {
        let forbid = self.forbid.iter().map(|rule| rule.line);
        let silent = self.silent.iter().map(|rule| rule.line);
        let max = self.max.iter().map(|(_, _, line)| *line);
        let require = self.require.iter().map(|rule| rule.line);
        forbid.chain(silent).chain(max).chain(require).min()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    forbid: Vec<Spanned<ForbidTable>>,
    #[serde(default)]
    silent: Vec<Spanned<SilentTable>>,
    max: Option<Spanned<MaxTable>>,
    #[serde(default)]
    require: Vec<Spanned<RequireTable>>,
    #[serde(default)]
    efficiency: Vec<Spanned<EfficiencyTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForbidTable {
    line: Option<String>,
    field: Option<String>,
    structure: Option<String>,
    function: Option<String>,
    lock: Option<String>,
    above: Option<Spanned<Amount>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SilentTable {
    function: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaxTable {
    transfers_per_access: Option<Spanned<Amount>>,
    misses_per_access: Option<Spanned<Amount>>,
    latency_per_access: Option<Spanned<Amount>>,
    false_sharing: Option<Spanned<Amount>>,
    remote_share: Option<Spanned<Amount>>,
    lock_wait: Option<Spanned<Amount>>,
    transfers: Option<Spanned<Amount>>,
    parallel_cycles: Option<Spanned<Amount>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequireTable {
    metric: Option<String>,
    line: Option<String>,
    field: Option<String>,
    structure: Option<String>,
    function: Option<String>,
    lock: Option<String>,
    of: PathBuf,
    at_most: Option<Spanned<Amount>>,
    at_least: Option<Spanned<Amount>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EfficiencyTable {
    cores: usize,
    at_least: Spanned<Amount>,
}

/// A number, or percent.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(f64),
    Text(String),
}

impl Amount {
    fn value(&self) -> Result<f64, String> {
        let value = match self {
            Self::Number(value) => Some(*value),
            Self::Text(text) => text
                .trim()
                .strip_suffix('%')
                .and_then(|percent| percent.trim().parse::<f64>().ok())
                .map(|percent| percent / 100.0),
        };
        match value {
            Some(value) if value.is_finite() && value >= 0.0 => Ok(value),
            Some(value) => Err(format!("{value} is no limit; it is zero or more")),
            None => Err("a limit is a number, or percent as in \"5%\"".to_owned()),
        }
    }
}

type At<'a> = &'a dyn Fn(usize) -> usize;
type Fault = (usize, String);

fn amount(of: &Spanned<Amount>, at: At<'_>) -> Result<f64, Fault> {
    of.get_ref().value().map_err(|why| (at(of.span().start), why))
}

/// The one thing that a rule selects.
fn one(all: [Option<Selector>; 5]) -> Result<Option<Selector>, String> {
    let mut given = all.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(first), Some(second)) => {
            Err(format!("{first} and {second} are two things: make a rule for each"))
        }
        (Some(only), None) if only.pattern().trim().is_empty() => {
            Err(format!("{only} names nothing"))
        }
        (first, _) => Ok(first),
    }
}

impl File {
    fn checked(self, at: At<'_>) -> Result<Rules, Fault> {
        let mut rules = Rules::default();
        for table in self.forbid {
            let line = at(table.span().start);
            let table = table.into_inner();
            let what = one([
                table.line.clone().map(Selector::Line),
                table.field.clone().map(Selector::Field),
                table.structure.clone().map(Selector::Structure),
                table.function.clone().map(Selector::Function),
                table.lock.clone().map(Selector::Lock),
            ])
            .map_err(|why| (line, why))?
            .ok_or_else(|| {
                (line, "[[forbid]] wants one of line, field, structure, function, lock".to_owned())
            })?;
            let above = table.above.as_ref().map_or(Ok(0.0), |above| amount(above, at))?;
            rules.forbid.push(Forbid { what, above, line });
        }
        for table in self.silent {
            let line = at(table.span().start);
            rules.silent.push(Silent { function: table.into_inner().function, line });
        }
        if let Some(table) = self.max {
            let MaxTable {
                transfers_per_access,
                misses_per_access,
                latency_per_access,
                false_sharing,
                remote_share,
                lock_wait,
                transfers,
                parallel_cycles,
            } = table.into_inner();
            let all = [
                ("transfers_per_access", transfers_per_access),
                ("misses_per_access", misses_per_access),
                ("latency_per_access", latency_per_access),
                ("false_sharing", false_sharing),
                ("remote_share", remote_share),
                ("lock_wait", lock_wait),
                ("transfers", transfers),
                ("parallel_cycles", parallel_cycles),
            ];
            for (name, limit) in all {
                let Some(limit) = limit else { continue };
                rules.max.push((name.to_owned(), amount(&limit, at)?, at(limit.span().start)));
            }
        }
        for table in self.require {
            let line = at(table.span().start);
            rules.require.push(require(table.into_inner(), line, at)?);
        }
        for table in self.efficiency {
            let line = at(table.span().start);
            let table = table.into_inner();
            let at_least = amount(&table.at_least, at)?;
            rules.efficiency.push(Efficiency { cores: table.cores, at_least, line });
        }
        Ok(rules)
    }
}

fn require(table: RequireTable, line: usize, at: At<'_>) -> Result<Require, Fault> {
    let what = one([
        table.line.clone().map(Selector::Line),
        table.field.clone().map(Selector::Field),
        table.structure.clone().map(Selector::Structure),
        table.function.clone().map(Selector::Function),
        table.lock.clone().map(Selector::Lock),
    ])
    .map_err(|why| (line, why))?;
    match (&table.metric, &what) {
        (Some(metric), None) if !METRICS.contains(&metric.as_str()) => {
            let advice = match nearest(metric, METRICS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("allowed: {}", METRICS.join(", ")),
            };
            return Err((line, format!("no metric `{metric}`; {advice}")));
        }
        (Some(_), None) | (None, Some(_)) => {}
        (Some(_), Some(what)) => {
            return Err((line, format!("metric and {what} are two things: make a rule for each")));
        }
        (None, None) => {
            let why = "[[require]] wants metric, line, field, structure, function or lock";
            return Err((line, why.to_owned()));
        }
    }
    let limit =
        |limit: &Option<Spanned<Amount>>| limit.as_ref().map(|limit| amount(limit, at)).transpose();
    let (at_most, at_least) = (limit(&table.at_most)?, limit(&table.at_least)?);
    if at_most.is_none() && at_least.is_none() {
        return Err((line, "[[require]] wants at_most or at_least".to_owned()));
    }
    Ok(Require { metric: table.metric, what, of: table.of, at_most, at_least, line })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, parts: &[&str]) {
        let line = Rules::parse(text, "gate.toml").unwrap_err().to_string();
        for part in parts {
            assert!(line.contains(part), "{line} lacks {part}");
        }
        assert!(!line.contains('\n'));
    }

    #[test]
    fn the_example_of_the_document_is_read() {
        let document = include_str!("../../../../docs/contention.md");
        let (_, example) = document.split_once("```toml\n[[forbid]]").expect("there is an example");
        let (example, _) = example.split_once("```").expect("the example ends");
        let rules = Rules::parse(&format!("[[forbid]]{example}"), "example").unwrap();
        assert_eq!((rules.forbid.len(), rules.silent.len(), rules.max.len()), (2, 1, 4));
        assert_eq!((rules.require.len(), rules.efficiency.len()), (1, 1));
        assert_eq!(rules.forbid[0].what, Selector::Line("Super.lock".to_owned()));
        assert_eq!((rules.forbid[0].above, rules.forbid[0].line), (0.01, 1));
        assert_eq!(rules.max[1].1, 0.05);
        assert_eq!(rules.efficiency[0].at_least, 0.95);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_line_and_the_allowed() {
        refused(
            "[[forbid]]\nline = \"a\"\nabov = 1\n",
            &["gate.toml:3", "`abov`", "`above`", "`lock`"],
        );
        refused("[mx]\n", &["gate.toml:1", "`mx`", "`max`"]);
        refused("[max]\nfalse_shring = 1\n", &["gate.toml:2", "`false_sharing`"]);
    }

    #[test]
    fn what_a_type_cannot_say_is_checked() {
        refused("[[forbid]]\nabove = 1\n", &["gate.toml:1", "wants one of"]);
        refused("[[forbid]]\nline = \"a\"\nlock = \"b\"\n", &["two things"]);
        refused("[[forbid]]\nline = \"\"\n", &["names nothing"]);
        refused("[[forbid]]\nline = \"a\"\nabove = \"much\"\n", &["gate.toml:3", "percent"]);
        refused("[max]\ntransfers = -1.0\n", &["gate.toml:2", "zero or more"]);
        refused("[[require]]\nmetric = \"cycls\"\nof = \"a\"\nat_most = 1.0\n", &["`cycles`"]);
        refused("[[require]]\nmetric = \"cycles\"\nof = \"a\"\n", &["at_most or at_least"]);
        refused("[[require]]\nof = \"a\"\nat_most = 1.0\n", &["wants metric"]);
        refused("[[silent]]\n", &["function"]);
        refused("", &["no rules"]);
        refused("= 1", &["gate.toml:1"]);
    }
}
