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
    /// Most names kept, negative ones included. Default 1,000,000. Watch `names.evicted`.
    pub names_max: usize,
    /// Inodes kept, those in use included, which are never dropped. Default 200,000. Watch `inodes.evicted`.
    pub inodes_max: usize,
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
            names_max: 1_000_000,
            inodes_max: 200_000,
            page_cache_bytes: 256 << 20,
            watch: false,
            read_only: false,
        }
    }
}

/// Longest lifetime that can be asked for: what the kernel's 32-bit jiffies can hold safely.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

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
        if self.names_max < 64 || self.inodes_max < 16 {
            return Err(Error::Invalid("names_max is at least 64 and inodes_max at least 16"));
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
            VfsConfig { names_max: 0, ..VfsConfig::default() },
            VfsConfig { page_cache_bytes: 4096, ..VfsConfig::default() },
        ];
        assert!(bad.iter().all(|config| matches!(config.validate(), Err(Error::Invalid(_)))));
    }
}
