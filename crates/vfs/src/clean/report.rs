//! What can be cleaned, and what became of it.
//!
//! # Boundary
//! Values, and the form in which they are told to other programs: a report and a progress are the same values for the
//! library, the FUSE frontend, the control socket and the command. Who cleans is [`crate::Vfs::begin_clean`].
//!
//! # Why
//! A program and a daemon of two versions have to understand each other: what is missing counts as zero and what is
//! unknown is skipped. Weakness: the names of fields in JSON are older than those here.

use serde::{Deserialize, Serialize};
use std::ops::BitOr;
use std::time::Duration;

/// Which caches to clean, as the digits in `/proc/sys/vm/drop_caches`.
///
/// ```
/// use uvfs_vfs::Clean;
/// assert_eq!(Clean::Pages | Clean::Names, Clean::Both);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clean {
    /// `1`: the contents of files.
    Pages,
    /// `2`: names and inodes. An inode takes its pages along.
    Names,
    /// `3`: all of it.
    Both,
}

impl Clean {
    /// Whether the contents of files are among it.
    pub const fn has_pages(self) -> bool {
        matches!(self, Clean::Pages | Clean::Both)
    }

    /// Whether names and inodes are among it.
    pub const fn has_names(self) -> bool {
        matches!(self, Clean::Names | Clean::Both)
    }

    /// The digit that asks for it.
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

/// What happens to pages that the store does not have yet. They are never lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dirty {
    /// They stay, and are counted.
    Skip,
    /// They are written to the store first. Those that it does not take stay.
    WriteFirst,
}

/// A number of cached things, and the memory that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    /// Names, inodes or pages.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, entries: u64, bytes: u64) {
        self.entries += entries;
        self.bytes += bytes;
    }
}

/// What became of the cached things of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// What was cached before.
    #[serde(rename = "before")]
    pub found: Amount,
    /// What of it is gone.
    pub freed: Amount,
    /// What of it stays because somebody uses it.
    #[serde(rename = "kept_busy")]
    pub busy: Amount,
    /// What of it stays because the store does not have it yet. Where nothing is cleaned: what is dirty.
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

    /// What of it is cached after.
    pub fn remaining(&self) -> Amount {
        Amount {
            entries: self.found.entries - self.freed.entries.min(self.found.entries),
            bytes: self.found.bytes - self.freed.bytes.min(self.found.bytes),
        }
    }
}

/// What a cleaning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanReport {
    /// Names, those included that are known to be missing.
    pub names: Tally,
    /// Inodes, without their pages.
    pub inodes: Tally,
    /// Pages of files.
    pub pages: Tally,
    /// Files that the store did not take: their dirty pages are still there.
    pub not_written: u64,
    /// How long it took until nothing cached before was used any more.
    #[serde(rename = "effect_seconds", with = "seconds")]
    pub effect: Duration,
    /// How long it took until the memory was free.
    #[serde(rename = "took_seconds", with = "seconds")]
    pub took: Duration,
}

/// A duration as it is told: in seconds.
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

/// What a cleaning does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CleanStage {
    /// Another cleaning is done first.
    Waiting,
    /// A frontend asks for what it has cached to be evicted: the kernel, in front of a mount.
    #[serde(rename = "kernel")]
    Frontend,
    /// Our caches are freed.
    #[default]
    Freeing,
}

/// How far a cleaning has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CleanProgress {
    /// What it does now; the numbers are of that.
    #[serde(rename = "phase")]
    pub stage: CleanStage,
    /// Entries of the caches looked at; objects that the frontend was asked about.
    pub done: u64,
    /// Those to look at in all, as far as is known.
    pub total: u64,
    /// Those freed so far: names, inodes and pages.
    pub freed: u64,
}
