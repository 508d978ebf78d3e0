//! What can be cleaned, and what became of it.
//!
//! # Boundary
//! Values only. Who cleans is [`crate::Vfs::begin_clean`].

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// What was cached before.
    pub found: Amount,
    /// What of it is gone.
    pub freed: Amount,
    /// What of it stays because somebody uses it.
    pub busy: Amount,
    /// What of it stays because the store does not have it yet.
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
    pub fn left(&self) -> Amount {
        Amount {
            entries: self.found.entries - self.freed.entries.min(self.found.entries),
            bytes: self.found.bytes - self.freed.bytes.min(self.found.bytes),
        }
    }
}

/// What a cleaning did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
    pub effect: Duration,
    /// How long it took until the memory was free.
    pub took: Duration,
}

/// How far a cleaning has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanProgress {
    /// Entries of the caches looked at.
    pub done: u64,
    /// Those to look at in all, as far as is known.
    pub total: u64,
    /// Entries freed so far: names, inodes and pages.
    pub freed: u64,
}
