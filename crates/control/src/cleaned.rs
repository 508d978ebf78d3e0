//! The result of cleaning a mount: the core's report, with the kernel's part.
//!
//! # Boundary
//! Values and their form. The FUSE frontend fills them in, the control socket carries them unchanged, `uvfs drop` lays
//! them out.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use uvfs_vfs::CleanReport;

/// Bytes that are mostly text: a string if they are UTF-8, otherwise a list of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Raw(pub Vec<u8>);

/// The two ways to write [`Raw`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Written> for Raw {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            Written::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Raw> for Written {
    fn from(raw: Raw) -> Self {
        match String::from_utf8(raw.0) {
            Ok(text) => Written::Text(text),
            Err(error) => Written::Bytes(error.into_bytes()),
        }
    }
}

/// How the kernel was asked to evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelHow {
    /// It was not asked: it held nothing there, or the cleaning ended before.
    #[default]
    Nothing,
    /// Pages of files only.
    Pages,
    /// By node (FUSE_NOTIFY_PRUNE, Linux 6.18): names, inodes and their pages, except those in use.
    Pruned,
    /// By name, on an older kernel: names of everything but directories, which it keeps. A file that is
    /// open works on; `/proc/PID/fd` shows its name as deleted.
    Entries,
}

/// The kernel's part, in inodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// How it was asked.
    pub how: KernelHow,
    /// Objects below the directory that it held before.
    pub held: u64,
    /// Those of them that it evicted.
    pub let_go: u64,
    /// Inodes that it keeps: in use, looked up again since, or not asked for; or directories with expired but undropped
    /// negative entries.
    pub kept: u64,
    /// Files whose pages were dropped one by one, without their names.
    pub files: u64,
    /// The first message that it refused, and why.
    pub refused: Option<String>,
    /// Negative entries below that it was asked to expire.
    #[serde(skip)]
    pub missing: u64,
    /// Directories whose names could not be had from the store, when asking by name.
    #[serde(skip)]
    pub unlisted: u64,
    /// How long its answers were awaited.
    #[serde(skip)]
    pub waited: Duration,
}

/// The host directory that a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSource {
    /// Path of the directory, as the daemon sees it.
    pub path: Raw,
    /// The number of its file system, as the daemon sees it (`st_dev`).
    pub device: u64,
    /// Number of the directory in the file system.
    pub inode: u64,
    /// The kernel caches file data for the host directory; uvfs does not.
    pub caches_pages: bool,
}

/// The result of cleaning a directory of a mount, or of a dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleaned {
    /// In our caches; the time is that of all, waiting for others included.
    #[serde(flatten)]
    pub caches: CleanReport,
    /// In the kernel's. Empty in a dry run, which asks the kernel nothing.
    pub kernel: Option<Kernel>,
    /// It was ended before it was done.
    pub interrupted: bool,
    /// The host directory, if the mount shows one.
    pub source: Option<HostSource>,
}

impl Cleaned {
    /// The kernel's part; empty for a dry run.
    pub fn kernel(&self) -> Kernel {
        self.kernel.clone().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_vfs::Tally;

    #[test]
    fn paths_are_text_if_they_can_be() {
        let check = |bytes: &[u8], written: &str| {
            let raw = Raw(bytes.to_vec());
            assert_eq!(serde_json::to_string(&raw).unwrap(), written);
            assert_eq!(serde_json::from_str::<Raw>(written).unwrap(), raw);
        };
        check("/é \"".as_bytes(), r#""/é \"""#);
        check(b"/\xff", "[47,255]");
        assert!(serde_json::from_str::<Raw>("[256]").is_err());
    }

    #[test]
    fn a_report_of_another_version_is_read() {
        let text = r#"{"names":{"before":{"entries":5}},"moons":3}"#;
        let cleaned: Cleaned = serde_json::from_str(text).unwrap();
        assert_eq!(
            (cleaned.caches.names.found.entries, cleaned.caches.pages),
            (5, Tally::default())
        );
        let text = serde_json::to_string(&cleaned).unwrap();
        assert_eq!(serde_json::from_str::<Cleaned>(&text).unwrap(), cleaned);
    }

    #[test]
    fn a_report_is_sent_in_flat_fields_and_seconds() {
        let took = Duration::from_millis(1500);
        let kernel = Some(Kernel { how: KernelHow::Pruned, let_go: 2, ..Kernel::default() });
        let caches = CleanReport { not_written: 1, took, ..CleanReport::default() };
        let cleaned = Cleaned { caches, kernel, ..Cleaned::default() };
        let value = serde_json::to_value(&cleaned).unwrap();
        assert_eq!((&value["took_seconds"], &value["not_written"]), (&1.5.into(), &1.into()));
        assert_eq!(value["kernel"]["how"], "pruned");
        assert_eq!(value["names"]["kept_dirty"]["bytes"], 0);
        assert_eq!(serde_json::from_value::<Cleaned>(value).unwrap(), cleaned);
    }
}
