//! Objects without names, and the remedies.
//!
//! # Boundary
//! Texts and counts; nothing is looked up here.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A table with holes says why it has them: the reader sees whether the program was built without debug
//! information or the object is of a kind that cannot be typed. Weakness: one reason a module, the first.

use std::fmt;

/// Why a module's tables could not be used, or not fully.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The file is not there, or is not a file.
    NotFound,
    /// The file is another build than the one that ran.
    Changed,
    /// The file is not of the expected kind.
    Damaged(String),
    /// Nothing but symbols.
    NoDebugInformation,
    /// Functions and lines, no types.
    LinesOnly,
    /// A `.dwo` or `.dwp` file that the module refers to is not there.
    SplitNotFound(String),
}

impl Reason {
    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotFound => {
                "keep the file until the report is made, or name the profile where it was run"
            }
            Self::Changed => "run again: the file was built anew since the run",
            Self::Damaged(_) => "build it again",
            Self::NoDebugInformation => {
                "build with `debug = 2` in the cargo profile, or `-g`, and do not strip it"
            }
            Self::LinesOnly => {
                "build with `debug = 2` in place of `debug = \"line-tables-only\"`, or `-g` in place of `-g1`"
            }
            Self::SplitNotFound(_) => {
                "build with `split-debuginfo = \"off\"`, or without `-gsplit-dwarf`, or keep the files"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => out.write_str("the file was not found"),
            Self::Changed => out.write_str("the file is not the one that ran"),
            Self::Damaged(why) => write!(out, "the file cannot be read: {why}"),
            Self::NoDebugInformation => out.write_str("no debug information"),
            Self::LinesOnly => out.write_str("debug information without types"),
            Self::SplitNotFound(name) => write!(out, "{name} was not found"),
        }
    }
}

/// A module that was asked for names and did not have them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingModule {
    /// The module's file.
    pub path: String,
    /// Why.
    pub reason: Reason,
}

/// The places that [`super::name`] could not name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Modules that lacked needed information, in order of the profile.
    pub modules: Vec<MissingModule>,
    /// Objects whose type is known.
    pub typed: u64,
    /// Typed objects whose type was guessed: their names end in `?`.
    pub guessed: u64,
    /// Objects of unknown type.
    pub untyped: u64,
    /// Sites with a function.
    pub sites_named: u64,
    /// Sites without one.
    pub sites_unnamed: u64,
}

impl Missing {
    /// Whether nothing is missing that a build could supply.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    pub(super) fn module(&mut self, path: &str, reason: Reason) {
        if !self.modules.iter().any(|module| module.path == path) {
            self.modules.push(MissingModule { path: path.to_string(), reason });
        }
    }
}

impl fmt::Display for Missing {
    /// One line a module, and one with the counts.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for module in &self.modules {
            writeln!(out, "{}: {}; {}", module.path, module.reason, module.reason.remedy())?;
        }
        let objects = self.typed + self.untyped;
        write!(out, "{} of {objects} objects have a type", self.typed)?;
        if self.guessed > 0 {
            write!(out, " ({} guessed, marked `?`)", self.guessed)?;
        }
        let sites = self.sites_named + self.sites_unnamed;
        write!(out, ", {} of {sites} sites have a function", self.sites_named)
    }
}
