//! The cached entries of one directory on the control socket, by its subdirectories.
//!
//! # Boundary
//! Values and their form. [`crate::serve::level`] fills them in, `uvfs web` draws them.
//!
//! # Why
//! An interactive picture shows one directory at a time. The whole tree ([`crate::resident`]) of a million directories
//! is as large as a reply may be, and omits its small directories. A level has the largest directories, each with all
//! entries below it, and the sum of the rest. Weakness: two levels are of two moments.

use crate::cleaned::Raw;
use crate::resident::Held;
use serde::{Deserialize, Serialize};

/// Most directories of one reply.
pub const MOST: u32 = 1000;
/// Directories of a reply that was asked for without a number.
pub const USUAL: u32 = 100;

/// The requested level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelRequest {
    /// The directory, from the root of the file system on.
    pub directory: Raw,
    /// The measure by which its directories are chosen.
    #[serde(default)]
    pub by: Measure,
    /// The number of directories to list apart, at most [`MOST`]; [`USUAL`] if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
}

/// How large a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Memory of its names, inodes and pages.
    #[default]
    Bytes,
    /// Number of its names.
    Names,
    /// How often the kernel asked about it.
    Requests,
    /// How often the caches did not have the answer.
    Misses,
}

/// How often the kernel asked about a directory and about objects in it: a lower bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedOf {
    /// Requests.
    pub requests: u64,
    /// Those of them that the caches did not answer at once.
    pub misses: u64,
}

/// Cached amounts of a directory, and how often the kernel asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// The cached amounts.
    #[serde(flatten)]
    pub held: Held,
    /// How often it was asked about.
    #[serde(flatten)]
    pub asked: AskedOf,
}

impl Share {
    /// How large it is.
    pub fn measure(&self, by: Measure) -> u64 {
        match by {
            Measure::Bytes => self.held.bytes(),
            Measure::Names => self.held.names.entries,
            Measure::Requests => self.asked.requests,
            Measure::Misses => self.asked.misses,
        }
    }

    /// Takes in `other`.
    pub fn add(&mut self, other: &Self) {
        self.held.add(&other.held);
        self.asked.requests = self.asked.requests.saturating_add(other.asked.requests);
        self.asked.misses = self.asked.misses.saturating_add(other.asked.misses);
    }
}

/// The cached amounts of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Level {
    /// All of it: the sum of the other fields.
    pub total: Share,
    /// Directly in the directory.
    pub own: Share,
    /// Subdirectories with all entries in and below them, the largest first.
    pub children: Vec<Child>,
    /// In and below the directories that are not listed apart.
    pub rest: Share,
    /// How many these are, at least.
    pub rest_directories: u64,
    /// The policy that holds in the directory.
    pub policy: Option<String>,
}

/// A directory of a level.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Child {
    /// Name of the directory.
    pub name: Raw,
    /// The amounts in and below it.
    #[serde(flatten)]
    pub share: Share,
    /// The policy that holds in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_vfs::Amount;

    #[test]
    fn a_request_has_defaults_and_refuses_what_is_no_measure() {
        let read = |text: &str| serde_json::from_str::<LevelRequest>(text).ok();
        let directory = Raw(b"/a".to_vec());
        let usual = LevelRequest { directory, by: Measure::Bytes, most: None };
        assert_eq!(read(r#"{"directory":"/a"}"#), Some(usual.clone()));
        let misses = LevelRequest { by: Measure::Misses, most: Some(5), ..usual };
        assert_eq!(read(r#"{"directory":"/a","by":"misses","most":5}"#), Some(misses));
        for bad in ["{}", r#"{"directory":"/a","by":"size"}"#, r#"{"directory":"/a","most":-1}"#] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    /// Programs read these fields: a change of one is a change of a promise.
    #[test]
    fn the_fields_of_a_level_are_these() {
        let names = Amount { entries: 2, bytes: 90 };
        let held = Held { names, ..Held::default() };
        let share = Share { held, asked: AskedOf { requests: 61, misses: 0 } };
        let child = Child { name: Raw(b"a".to_vec()), share, policy: Some("keep".into()) };
        let level = Level { total: share, children: vec![child], ..Level::default() };
        let text = serde_json::to_string(&level).unwrap();
        let asked = r#""requests":0,"misses":0"#;
        let share = r#""names":{"entries":2,"bytes":90},"requests":61,"misses":0"#;
        let expected = format!(
            r#"{{"total":{{{share}}},"own":{{{asked}}},"children":[{{"name":"a",{share},"policy":"keep"}}],"rest":{{{asked}}},"rest_directories":0,"policy":null}}"#
        );
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<Level>(&text).unwrap(), level);
    }
}
