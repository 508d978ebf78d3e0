//! Settings of the core, checked once.

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
    /// Bytes of names and inodes kept: about 300 for each name with its inode. What is in use is
    /// never dropped, and counts. Default 256 MiB. Watch `names.evicted`.
    pub metadata_bytes: u64,
    /// Remember what whole paths lead to, for the in-process API: a walk becomes one look. Takes up to
    /// an eighth of `metadata_bytes`. Default on. Watch `walks.whole`.
    pub whole_paths: bool,
    /// Share of `metadata_bytes` that names known to be missing may take. Default 20 percent.
    /// Watch `negatives`.
    pub negative_percent: u8,
    /// Bytes of file data kept, for stores whose pages the core caches. Default 256 MiB.
    /// Watch `pages.evicted`.
    pub page_cache_bytes: u64,
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
            metadata_bytes: 256 << 20,
            whole_paths: true,
            negative_percent: 20,
            page_cache_bytes: 256 << 20,
            watch: false,
            read_only: false,
        }
    }
}

/// Longest lifetime that can be asked for: what the kernel's 32-bit jiffies can hold safely.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Fewest bytes of names and inodes that work.
const METADATA_BYTES_MIN: u64 = 16 << 10;

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
        if self.metadata_bytes < METADATA_BYTES_MIN {
            return Err(Error::Invalid("metadata_bytes is at least 16 KiB"));
        }
        if self.negative_percent > 100 {
            return Err(Error::Invalid("negative_percent is at most 100"));
        }
        if self.page_cache_bytes < crate::page::FOLIO_BYTES as u64 * 16 {
            return Err(Error::Invalid("page_cache_bytes is at least 1 MiB"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_limits_are_checked() {
        assert!(VfsConfig::default().validate().is_ok());
        let bad = [
            VfsConfig { attr_timeout: TIMEOUT_MAX * 2, ..VfsConfig::default() },
            VfsConfig { metadata_bytes: 1000, ..VfsConfig::default() },
            VfsConfig { negative_percent: 101, ..VfsConfig::default() },
            VfsConfig { page_cache_bytes: 4096, ..VfsConfig::default() },
        ];
        assert!(bad.iter().all(|config| matches!(config.validate(), Err(Error::Invalid(_)))));
    }
}
