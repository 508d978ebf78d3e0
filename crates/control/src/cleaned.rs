//! How a cleaning is told over the control socket: steps on the way, and what became of it.
//!
//! # Boundary
//! Values and their form. Whoever serves fills them in ([`crate::serve`]), `uvfs drop` lays them out.
//!
//! # Why
//! The core's own reports are not sent: a program and a daemon of two versions have to understand each other, so
//! what is missing counts as zero and what is unknown is skipped. Weakness: a new number appears in three places.

use serde::{Deserialize, Serialize};

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

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Another cleaning of the mount is done first.
    Waiting,
    /// The kernel is asked to let go.
    Kernel,
    /// Memory is freed.
    #[default]
    Freeing,
}

/// How far a cleaning is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// What is being done.
    pub phase: Phase,
    /// Entries of the caches looked at.
    pub done: u64,
    /// Those to look at, as far as is known.
    pub total: u64,
    /// Of them, freed.
    pub freed: u64,
}

/// A number of cached things, and the memory that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Number {
    /// How many.
    pub entries: u64,
    /// Their memory.
    pub bytes: u64,
}

/// What became of the cached things of one sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sort {
    /// Cached before.
    pub before: Number,
    /// Freed.
    pub freed: Number,
    /// Left.
    pub after: Number,
    /// Of those left, in use.
    pub kept_busy: Number,
    /// Of those left, not yet at the source. Of a dry run: what is dirty.
    pub kept_dirty: Number,
}

/// What the kernel held below the directory, in inodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// Held before.
    pub held: u64,
    /// Let go.
    pub let_go: u64,
    /// Still held.
    pub kept: u64,
    /// Files of which it was asked to drop the pages alone.
    pub files: u64,
    /// How it was asked: `nothing`, `pages`, `pruned` or `entries`.
    pub how: String,
    /// What it answered when it refused.
    pub refused: Option<String>,
}

/// The host directory that a mount shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostSource {
    /// Its path, as the daemon sees it.
    pub path: Raw,
    /// The number of its file system, as the daemon sees it (`st_dev`).
    pub device: u64,
    /// Its number in there.
    pub inode: u64,
    /// Its file data is cached by the kernel for the host directory, not by uvfs.
    pub caches_pages: bool,
}

/// What a cleaning did, or would have to do.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cleaned {
    /// Names.
    pub names: Sort,
    /// Inodes.
    pub inodes: Sort,
    /// Pages.
    pub pages: Sort,
    /// Nothing in a dry run, which asks the kernel nothing.
    pub kernel: Option<Kernel>,
    /// Files whose dirty pages the source did not take.
    pub not_written: u64,
    /// Time until nothing that was cached before was used any more.
    pub effect_seconds: f64,
    /// Time until the memory was free.
    pub took_seconds: f64,
    /// It ended early, as the client wished.
    pub interrupted: bool,
    /// Of a mount of a host directory.
    pub source: Option<HostSource>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((cleaned.names.before.entries, cleaned.pages), (5, Sort::default()));
        let text = serde_json::to_string(&cleaned).unwrap();
        assert_eq!(serde_json::from_str::<Cleaned>(&text).unwrap(), cleaned);
    }
}
