//! The driver's settings for the runtime, given before a run.
//!
//! # Boundary
//! One JSON file, written by the driver, read by the runtime when the program begins; its path is in the
//! environment ([`VARIABLE`]), which the runtime takes away again so that no child inherits it.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! One file instead of a dozen variables: layouts to try are lists. Weakness: the two sides must be of
//! the same version, which the driver makes sure of by carrying the runtime within itself.

use crate::machine::Machine;
use crate::profile::{Mode, Place};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Environment variable with the path of the file.
pub const VARIABLE: &str = "UVFS_CONTENTION";

/// How one run is to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// [`Mode::Simulated`] or [`Mode::Recorded`].
    pub mode: Mode,
    /// Seed of the jitter and of the program's random numbers.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// Where the profile goes. Written whole, under another name first.
    pub profile: PathBuf,
    /// The program and its arguments, for the profile's head.
    pub command: Vec<String>,
    /// Cycles that a plain access may be ahead of the slowest core before it lets that one go first.
    /// Atomic ones never are.
    pub slack: u64,
    /// Whether instructions between accesses are charged one by one, where the program was built to announce its
    /// blocks; otherwise each access is charged a flat number of cycles before it.
    #[serde(default)]
    pub compute: bool,
    /// Modules of an earlier profile, by [`Place::module`], for [`Target`].
    #[serde(default)]
    pub modules: Vec<PathBuf>,
    /// Layouts to try.
    #[serde(default)]
    pub layouts: Vec<Relayout>,
    /// The layouts, as the user wrote them.
    #[serde(default)]
    pub what_if: Vec<String>,
    /// Host seconds without an instrumented access after which the program is taken to spin unseen:
    /// the runtime names the place and ends it. Zero: never.
    pub watchdog_seconds: u64,
}

/// Memory with a changed layout in the model; the program's own memory stays the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relayout {
    /// Which memory.
    pub target: Target,
    /// Bytes of one element; an object of several is a row of them.
    pub size: u64,
    /// Bytes of one element in the new layout, at least as far as the moves reach.
    pub new_size: u64,
    /// The alignment of the row's start in the new layout; a power of two.
    pub align: u64,
    /// Where bytes go. Bytes that no move names follow the last, in their order, or fill holes if there is no room.
    pub moves: Vec<Move>,
    /// The offset of the first element in the object. The bytes before it, such as the counts of an `Arc`,
    /// stay in place. With an alignment below a line they share the first element's line.
    pub first: u64,
}

/// Bytes of an element that go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Offset in the element as it is.
    pub from: u64,
    /// How many.
    pub bytes: u64,
    /// Offset in the new layout.
    pub to: u64,
}

/// Memory that a layout is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Allocations with exactly these return addresses, the innermost first.
    Allocation(Vec<Place>),
    /// A variable.
    Global {
        /// Where.
        place: Place,
        /// Bytes.
        size: u64,
    },
}
