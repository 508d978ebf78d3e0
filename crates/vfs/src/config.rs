//! Settings of the core, checked once.

use crate::backend::{Capabilities, PageCaching, Writes};
use crate::budget;
use crate::error::{Error, Result};
use std::time::Duration;

/// Limits and lifetimes of the caches. Plain data; [`crate::Vfs::new`] checks it.
#[derive(Debug, Clone)]
pub struct VfsConfig {
    /// How long attributes are valid without asking the store again. Default 1 s. Only for stores that others change
    /// ([`crate::Authority::Shared`]); otherwise they stay valid. Watch `attribute_misses`.
    pub attr_timeout: Duration,
    /// How long a found name is valid. Default 1 s. Only for stores that others change. Watch `name_misses`.
    pub entry_timeout: Duration,
    /// How long a negative entry is valid. Default 1 s; 0 caches none. Watch `negative_hits`.
    pub negative_timeout: Duration,
    /// Memory for everything that is cached: pages, and names with their inodes (about 300 bytes for each). Where pages
    /// are cached, names use half at most, and pages the part that names do not use. Entries in use are never dropped,
    /// and count. At least [`crate::MINIMUM_BYTES`]; changed by [`crate::Vfs::set_cache_bytes`]. Default 512 MiB. Watch
    /// `budget`, `names.evicted` and `pages.evicted`.
    pub cache_bytes: u64,
    /// The part of `cache_bytes` that is used already. A frontend that bounds its whole process sets it to the
    /// process's other memory. Leaves at least 16 KiB. Default 0. Watch `budget.overhead_bytes`.
    pub overhead_bytes: u64,
    /// Remember the objects of whole paths, for the in-process API: a walk becomes one probe. Takes up to an eighth of
    /// the memory for names and inodes. Default on. Watch `walks.whole`.
    pub whole_paths: bool,
    /// Share of the memory for names and inodes that negative entries may take. Default 20 percent. Watch `negatives`.
    pub negative_percent: u8,
    /// Whether file data is cached here, and how it is written, where the store accepts writes
    /// [anywhere](crate::Writes). Default [`PagePolicy::Auto`]. Watch `pages`.
    pub pages: PagePolicy,
    /// Most bytes that are read ahead of a sequential reader at once, in up to eight such requests one after the other;
    /// 0 reads only requested bytes. Default 512 KiB, at most 1 MiB. Watch `pages.read_ahead`.
    pub read_ahead_bytes: u64,
    /// How long written data may stay here before it is brought to the store, if there is no other reason. Default 5 s,
    /// at most [`TIMEOUT_MAX`]. Watch `pages.dirty_bytes`.
    pub write_back_delay: Duration,
    /// How long the end waits for an answer about a run of pages, from a store that has several in progress
    /// ([`crate::Capabilities::queue_depth`]). Then the data of the run is lost, and reported. Default 30 s.
    pub end_patience: Duration,
    /// Ask the backend to report changes by others, at once. Default off.
    pub watch: bool,
    /// How long answers are valid whose changes the backend will report ([`crate::Watch::reports_names`]). Default
    /// `None`: as long as all others. Only with `watch`. Watch `name_misses`.
    pub reported_timeouts: Option<Timeouts>,
    /// Refuse every change. Default off.
    pub read_only: bool,
}

impl Default for VfsConfig {
    fn default() -> Self {
        Self {
            attr_timeout: Duration::from_secs(1),
            entry_timeout: Duration::from_secs(1),
            negative_timeout: Duration::from_secs(1),
            cache_bytes: 512 << 20,
            overhead_bytes: 0,
            whole_paths: true,
            negative_percent: 20,
            pages: PagePolicy::Auto,
            read_ahead_bytes: 512 << 10,
            write_back_delay: Duration::from_secs(5),
            end_patience: Duration::from_secs(30),
            watch: false,
            reported_timeouts: None,
            read_only: false,
        }
    }
}

/// How long answers are valid, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Attributes of objects that are no directories and have one name.
    pub attr: Duration,
    /// Found names.
    pub entry: Duration,
    /// Names that are missing; 0 caches none.
    pub negative: Duration,
}

/// The treatment of file data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagePolicy {
    /// The store's preference: not cached if the store is in memory already ([`crate::PageCaching`]); otherwise cached,
    /// and written through, or back if the store is made for it ([`crate::Capabilities::writes_back`]).
    Auto,
    /// Not cached.
    Off,
    /// Cached; written data goes to the store at once.
    WriteThrough,
    /// Cached; written data is brought to the store later, in large runs, or by `fsync`. `fsync` and `close` report
    /// errors of that.
    WriteBack,
}

impl PagePolicy {
    /// The capabilities in effect.
    pub(crate) fn applied_to(self, given: Capabilities) -> Capabilities {
        let caching = match self {
            PagePolicy::Auto => given.caching,
            PagePolicy::Off => PageCaching::Store,
            PagePolicy::WriteThrough | PagePolicy::WriteBack => PageCaching::Core,
        };
        // For other stores the page cache decides where and when data is written.
        let caching = match given.writes {
            Writes::Anywhere => caching,
            Writes::Append | Writes::WholeFile => PageCaching::Core,
        };
        // A kernel that reads and writes the host's file directly would bypass our cache.
        Capabilities { caching, os_files: given.os_files && caching == PageCaching::Store, ..given }
    }
}

/// Longest lifetime that can be set: safe in the kernel's 32-bit jiffies.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most bytes that can be read ahead at once.
pub const READ_AHEAD_MAX: u64 = crate::page::RUN_PAGES * crate::page::PAGE;

impl VfsConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the field and the rule.
    pub fn validate(&self) -> Result<()> {
        let timeouts = [self.attr_timeout, self.entry_timeout, self.negative_timeout];
        let reported = self.reported_timeouts.map(|of| [of.attr, of.entry, of.negative]);
        let all = timeouts.into_iter().chain(reported.into_iter().flatten());
        if all.into_iter().any(|timeout| timeout > TIMEOUT_MAX) {
            return Err(Error::Invalid("a timeout is at most 365 days"));
        }
        if self.write_back_delay > TIMEOUT_MAX {
            return Err(Error::Invalid("write_back_delay is at most 365 days"));
        }
        budget::check(self.cache_bytes, self.overhead_bytes)?;
        if self.read_ahead_bytes > READ_AHEAD_MAX {
            return Err(Error::Invalid("read_ahead_bytes is at most 1 MiB"));
        }
        if self.negative_percent > 100 {
            return Err(Error::Invalid("negative_percent is at most 100"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::MINIMUM_BYTES;

    #[test]
    fn defaults_are_valid_and_limits_are_checked() {
        assert!(VfsConfig::default().validate().is_ok());
        let bad = [
            VfsConfig { attr_timeout: TIMEOUT_MAX * 2, ..VfsConfig::default() },
            // Added to the time of a write, it caused a panic in the write.
            VfsConfig { write_back_delay: Duration::MAX, ..VfsConfig::default() },
            VfsConfig { cache_bytes: MINIMUM_BYTES - 1, ..VfsConfig::default() },
            VfsConfig { negative_percent: 101, ..VfsConfig::default() },
            VfsConfig { read_ahead_bytes: 2 << 20, ..VfsConfig::default() },
            VfsConfig { overhead_bytes: 512 << 20, ..VfsConfig::default() },
        ];
        assert!(bad.iter().all(|config| matches!(config.validate(), Err(Error::Invalid(_)))));
    }
}
