//! Kinds and results of cleaning.
//!
//! # Boundary
//! Values and their form for other programs: a report and a progress are the same values for the library, the FUSE
//! frontend, the control socket and the command. [`crate::Vfs::begin_clean`] cleans.
//!
//! # Why
//! A program and a daemon of two versions have to understand each other: missing fields count as zero and unknown ones
//! are skipped. Weakness: the names of fields in JSON are older than those here.

use serde::{Deserialize, Serialize};
use std::ops::BitOr;
use std::time::Duration;

/// Which caches to clean, numbered like the digits in `/proc/sys/vm/drop_caches`.
///
/// ```
/// use uvfs_vfs::Clean;
/// assert_eq!(Clean::Pages | Clean::Names, Clean::Both);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clean {
    /// `1`: the contents of files.
    Pages,
    /// `2`: names and inodes. An inode's pages are removed with it.
    Names,
    /// `3`: all of it.
    Both,
}

impl Clean {
    /// Whether it includes the contents of files.
    pub const fn has_pages(self) -> bool {
        matches!(self, Clean::Pages | Clean::Both)
    }

    /// Whether it includes names and inodes.
    pub const fn has_names(self) -> bool {
        matches!(self, Clean::Names | Clean::Both)
    }

    /// The digit that requests it.
    pub const fn digit(self) -> char {
        match self {
            Clean::Pages => '1',
            Clean::Names => '2',
            Clean::Both => '3',
        }
    }
}

impl BitOr for Clean {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        if self == other { self } else { Clean::Both }
    }
}

/// How to treat pages that the store does not have yet. They are never lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dirty {
    /// They stay, and are counted.
    Skip,
    /// They are written to the store first. Pages that the store refuses stay.
    WriteFirst,
}

/// A number of cached entries, and their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    /// Names, inodes or pages.
    pub entries: u64,
    /// Bytes of the entries.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, entries: u64, bytes: u64) {
        self.entries += entries;
        self.bytes += bytes;
    }
}

/// The result for cached entries of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Entries cached before.
    #[serde(rename = "before")]
    pub found: Amount,
    /// Entries freed.
    pub freed: Amount,
    /// Entries that stay because they are in use.
    #[serde(rename = "kept_busy")]
    pub busy: Amount,
    /// Entries that stay because the store does not have them yet. If nothing is cleaned: dirty entries.
    #[serde(rename = "kept_dirty")]
    pub dirty: Amount,
}

impl Tally {
    pub(crate) fn merge(&mut self, other: Self) {
        let add = |into: &mut Amount, more: Amount| into.add(more.entries, more.bytes);
        add(&mut self.found, other.found);
        add(&mut self.freed, other.freed);
        add(&mut self.busy, other.busy);
        add(&mut self.dirty, other.dirty);
    }

    /// Entries cached afterwards.
    pub fn remaining(&self) -> Amount {
        Amount {
            entries: self.found.entries - self.freed.entries.min(self.found.entries),
            bytes: self.found.bytes - self.freed.bytes.min(self.found.bytes),
        }
    }
}

/// The result of a clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanReport {
    /// Names, negative entries included.
    pub names: Tally,
    /// Inodes, without their pages.
    pub inodes: Tally,
    /// Pages of files.
    pub pages: Tally,
    /// Files that the store did not take. Their dirty pages are still cached.
    pub not_written: u64,
    /// The time until no earlier entry was used any more.
    #[serde(rename = "effect_seconds", with = "seconds")]
    pub effect: Duration,
    /// The time until the memory was free.
    #[serde(rename = "took_seconds", with = "seconds")]
    pub took: Duration,
}

/// A duration in reports, in seconds.
mod seconds {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        f64::deserialize(from).map(|time| Duration::try_from_secs_f64(time).unwrap_or_default())
    }
}

/// The present stage of a clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CleanStage {
    /// Another clean runs first.
    Waiting,
    /// A frontend asks for the eviction of its cached entries: the kernel's, in front of a mount.
    #[serde(rename = "kernel")]
    Frontend,
    /// Our caches are freed.
    #[default]
    Freeing,
}

/// The progress of a clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanProgress {
    /// The present stage, which the numbers describe.
    #[serde(rename = "phase")]
    pub stage: CleanStage,
    /// Cache entries examined, or objects that the frontend was asked about.
    pub done: u64,
    /// All entries to examine, as far as is known.
    pub total: u64,
    /// Entries freed so far: names, inodes and pages.
    pub freed: u64,
}
