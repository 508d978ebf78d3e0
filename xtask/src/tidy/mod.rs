//! The repository's own rules, checked over all its files.
//!
//! # Boundary
//! Reads text and reports faults. Knows the layout of this repository, and nothing of the code's
//! behaviour. Each submodule holds one family of rules and its tests on made-up trees.
//!
//! # Why
//! A habit that no machine checks is lost within a month. Plain text rules with a small lexer
//! ([`code`]) instead of a parser: they compile in a second and print one line for each fault.
//! Weakness: they see names, not meaning; an `ORDERING` note can still be wrong.

mod code;
mod docs;
mod documents;
mod manifests;
mod orderings;
mod sources;
mod words;

pub(crate) use code::Code;
pub(crate) use orderings::weakenings;

use crate::tree::Tree;
use std::fmt;

/// One broken rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    path: String,
    /// Counted from 1; 0 when the whole file is meant.
    line: usize,
    message: String,
}

impl Fault {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.path, self.message),
            line => write!(formatter, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// All faults of `tree`, by family.
pub(crate) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = sources::faults(tree);
    faults.extend(manifests::faults(tree));
    faults.extend(documents::faults(tree));
    faults.extend(docs::faults(tree));
    faults.extend(words::faults(tree));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_lacks_only_its_changelog() {
        let faults = faults(&Tree::default());
        let shown: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["CHANGELOG.md: no such file"]);
    }

    #[test]
    fn a_fault_of_a_line_names_it() {
        assert_eq!(Fault::new("a.rs", 7, "bad").to_string(), "a.rs:7: bad");
    }
}
