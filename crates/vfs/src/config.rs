//! Settings of the core, checked once.

use crate::backend::{Capabilities, PageCaching, Writes};
use crate::budget;
use crate::error::{Error, Result};
use std::time::Duration;

/// Limits and lifetimes of the caches. Plain data; [`crate::Vfs::new`] checks it.
#[derive(Debug, Clone)]
pub struct VfsConfig {
    /// How long attributes are believed without asking the store again. Default 1 s. Only for
    /// stores that others change ([`crate::Authority::Shared`]); otherwise they stay true.
    /// Watch `attribute_misses`.
    pub attr_timeout: Duration,
    /// How long a found name is believed. Default 1 s; as above. Watch `name_misses`.
    pub entry_timeout: Duration,
    /// How long a missing name is believed to be missing. Default 1 s; 0 remembers none.
    /// Watch `negative_hits`.
    pub negative_timeout: Duration,
    /// Memory for everything that is cached: pages, and names with their inodes (about 300 bytes for
    /// each). Where pages are cached, names have half at most, and pages what names do not use. What
    /// is in use is never dropped, and counts. At least [`crate::MINIMUM_BYTES`]; changed by
    /// [`crate::Vfs::set_cache_bytes`]. Default 512 MiB. Watch `budget`, `names.evicted` and
    /// `pages.evicted`.
    pub cache_bytes: u64,
    /// What of `cache_bytes` is taken already: a frontend that bounds its whole process says here
    /// what the process needs besides the caches. Leaves at least 16 KiB. Default 0. Watch
    /// `budget.overhead_bytes`.
    pub overhead_bytes: u64,
    /// Remember what whole paths lead to, for the in-process API: a walk becomes one look. Takes up to
    /// an eighth of what names and inodes may have. Default on. Watch `walks.whole`.
    pub whole_paths: bool,
    /// Share of what names and inodes may have that names known to be missing may take. Default
    /// 20 percent. Watch `negatives`.
    pub negative_percent: u8,
    /// Whether file data is cached here, and how it is written, where the store takes what is written
    /// [anywhere](crate::Writes). Default [`PagePolicy::Auto`].
    /// Watch `pages`.
    pub pages: PagePolicy,
    /// Most that is read ahead of a sequential reader at once; 0 reads only what is asked for. Default
    /// 512 KiB, at most 1 MiB. Watch `pages.read_ahead`.
    pub read_ahead_bytes: u64,
    /// How long written data may stay here before it is brought to the store, if there is no other
    /// reason. Default 5 s, at most [`TIMEOUT_MAX`]. Watch `pages.dirty_bytes`.
    pub write_back_delay: Duration,
    /// How long the end waits for an answer about a run of pages, from a store that has several under way
    /// ([`crate::Capabilities::queue_depth`]); then what it was to write is lost, and named. Default 30 s.
    pub end_patience: Duration,
    /// Ask the backend to report changes that others make, at once. Default off.
    pub watch: bool,
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
            read_only: false,
        }
    }
}

/// What is done with file data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagePolicy {
    /// As the store wishes ([`crate::PageCaching`]): not cached where it is memory already; otherwise
    /// cached and written through.
    Auto,
    /// Not cached.
    Off,
    /// Cached; what is written goes to the store at once.
    WriteThrough,
    /// Cached; what is written is brought to the store later, in large runs, or by `fsync`. Errors of
    /// that are told by `fsync` and `close`.
    WriteBack,
}

impl PagePolicy {
    /// The capabilities as they are used.
    pub(crate) fn applied_to(self, given: Capabilities) -> Capabilities {
        let caching = match self {
            PagePolicy::Auto => given.caching,
            PagePolicy::Off => PageCaching::Store,
            PagePolicy::WriteThrough | PagePolicy::WriteBack => PageCaching::Core,
        };
        // What goes where is decided with the file's pages.
        let caching = match given.writes {
            Writes::Anywhere => caching,
            Writes::Append | Writes::WholeFile => PageCaching::Core,
        };
        // Who reads and writes the host's file itself goes past what is cached here.
        Capabilities { caching, os_files: given.os_files && caching == PageCaching::Store, ..given }
    }
}

/// Longest lifetime that can be asked for: what the kernel's 32-bit jiffies can hold safely.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most that can be read ahead at once.
pub const READ_AHEAD_MAX: u64 = crate::page::RUN_PAGES * crate::page::PAGE;

impl VfsConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the field and the rule.
    pub fn validate(&self) -> Result<()> {
        let timeouts = [self.attr_timeout, self.entry_timeout, self.negative_timeout];
        if timeouts.iter().any(|&timeout| timeout > TIMEOUT_MAX) {
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
            // Added to the time of a write: that panicked, in the write.
            VfsConfig { write_back_delay: Duration::MAX, ..VfsConfig::default() },
            VfsConfig { cache_bytes: MINIMUM_BYTES - 1, ..VfsConfig::default() },
            VfsConfig { negative_percent: 101, ..VfsConfig::default() },
            VfsConfig { read_ahead_bytes: 2 << 20, ..VfsConfig::default() },
            VfsConfig { overhead_bytes: 512 << 20, ..VfsConfig::default() },
        ];
        assert!(bad.iter().all(|config| matches!(config.validate(), Err(Error::Invalid(_)))));
    }
}
