//! Reports: for a user, for a program, for a browser.
//!
//! # Boundary
//! Words, tables and pictures of [`crate::analysis`] and of the results of sweeps, comparisons and advice;
//! works out nothing that is not one of theirs. Where the text goes is the caller's business.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Names come from untrusted programs and files, so every one of them passes through
//! [`format`](self) on its way: control characters go, length is cut, HTML is escaped. Weakness: columns are
//! aligned by characters, so names in wide scripts push a row to the right.

mod advise;
mod cells;
mod compare;
mod format;
mod html;
mod layout;
mod locks;
mod numa;
mod page;
mod summary;
mod svg;
mod sweep;
mod table;
mod text;

pub use advise::advise_text;
pub use compare::{compare_html, compare_text};
pub use html::html;
pub use numa::{numa_html, numa_text};
pub use page::PAGE_HEAD;
pub use summary::summary;
pub use sweep::{sweep_html, sweep_text};
pub use text::text;

use crate::analysis::{Analyses, Grouping};
use crate::ledger::Ledger;
use serde::Serialize;

/// A part of the text report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Ten lines in plain words.
    Summary,
    /// A table for each of the dearest cache lines.
    Lines,
    /// Latencies by class.
    Histogram,
    /// Structures by subsystem.
    Structures,
    /// Types with the heat of their fields.
    Layout,
    /// Locks in the lock meter's columns.
    Locks,
    /// The functions that hand lines to each other.
    Flow,
    /// Threads.
    Threads,
    /// Figures of the whole run.
    Runs,
}

impl Section {
    /// All of them, in the order in which they are printed.
    pub const ALL: [Self; 9] = [
        Self::Summary,
        Self::Lines,
        Self::Histogram,
        Self::Structures,
        Self::Layout,
        Self::Locks,
        Self::Flow,
        Self::Threads,
        Self::Runs,
    ];
}

/// The parts to print, and their form.
#[derive(Debug, Clone)]
pub struct Options {
    /// Sections of the text; [`Section::ALL`]'s order holds whatever the order here.
    pub sections: Vec<Section>,
    /// Cache lines, structures, locks and threads of a list.
    pub top: usize,
    /// Only the table of this rank, with all its rows.
    pub line: Option<usize>,
    /// Only tables, layout and flow of this structure.
    pub structure: Option<String>,
    /// Columns of the terminal; `None` cuts nothing.
    pub width: Option<usize>,
    /// Whether the terminal shows bold type and colours.
    pub colour: bool,
    /// How structures are grouped.
    pub grouping: Grouping,
    /// Further lines for the summary, such as objects that could not be named.
    pub notes: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        use Section::{Histogram, Lines, Locks, Structures, Summary};
        Self {
            sections: vec![Summary, Lines, Histogram, Structures, Locks],
            top: 5,
            line: None,
            structure: None,
            width: None,
            colour: false,
            grouping: Grouping::default(),
            notes: Vec::new(),
        }
    }
}

/// All analyses as one JSON document.
pub fn json(ledger: &Ledger<'_>, options: &Options) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        report: &'a str,
        format: u32,
        summary: Vec<String>,
        #[serde(flatten)]
        analyses: Analyses,
    }
    /// Lines and groups of the document: the tail is in the profile itself.
    const LINES: usize = 1000;
    let document = Document {
        report: "uvfs contention",
        format: 1,
        summary: summary(ledger, options),
        analyses: Analyses::new(ledger, &options.grouping, LINES),
    };
    // Only maps with other keys than strings, or a failing writer, could fail here.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[cfg(test)]
mod tests;
