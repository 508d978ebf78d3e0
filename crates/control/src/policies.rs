//! Marked directories on the control socket.
//!
//! # Boundary
//! Values and their form, and the written form of policies and paths. The core implements policies
//! ([`uvfs_vfs::CachePolicy`]).

use super::cleaned::Raw;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use uvfs_vfs::CachePolicy;
use uvfs_vfs::clean::request::{self, Refusal};

/// The words for policies.
pub const WORDS: [&str; 4] = ["keep", "once", "normal", "none"];

/// Which directory to mark, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// Path of the directory, from the root of the file system on.
    pub directory: Raw,
    /// `keep`, `once`, `normal`, or `none` to take the mark away.
    pub policy: String,
}

/// A directory that is marked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// The policy, as it is written.
    pub policy: String,
    /// The path by which it was marked. Nothing if it was marked otherwise: by its extended attribute.
    pub path: Option<Raw>,
    /// It is known not to be there any more.
    pub moved: bool,
    /// Number of the directory (`st_ino`).
    pub inode: u64,
}

impl Mark {
    /// Where it is, for people.
    pub fn place(&self) -> String {
        let Some(path) = &self.path else {
            return format!("inode {} (marked by its attribute)", self.inode);
        };
        let path = String::from_utf8_lossy(&path.0).into_owned();
        match self.moved {
            false => path,
            true => format!("{path} (renamed since; inode {})", self.inode),
        }
    }
}

/// Reads a policy, or the word for none.
///
/// # Errors
/// The valid words.
pub fn policy(word: &str) -> Result<Option<CachePolicy>, String> {
    match word {
        "none" => Ok(None),
        _ => word
            .parse()
            .map(Some)
            .map_err(|_| format!("`{word}` is no policy; write one of: {}", WORDS.join(", "))),
    }
}

/// A path from the root of a mount on.
///
/// # Errors
/// The rule that it breaks.
pub fn directory(path: &[u8]) -> Result<PathBuf, String> {
    request::directory(path).map_err(|refusal| match refusal {
        Refusal::Newline => "its name ends in a newline; name the directory that it is in".into(),
        Refusal::Relative | Refusal::NoPath => {
            "a relative path; write it from the mount's root on, as in /photos".into()
        }
        refusal => refusal.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_what_is_known() {
        let mark = Mark { path: Some(Raw(b"/a\n".to_vec())), inode: 7, ..Mark::default() };
        assert_eq!(mark.place(), "/a\n");
        assert_eq!(Mark { moved: true, ..mark.clone() }.place(), "/a\n (renamed since; inode 7)");
        assert_eq!(Mark { path: None, ..mark }.place(), "inode 7 (marked by its attribute)");
    }

    #[test]
    fn every_word_is_a_policy_or_none() {
        for word in WORDS {
            let expected = (word != "none").then(|| word.to_string());
            assert_eq!(policy(word).unwrap().map(|policy| policy.to_string()), expected);
        }
        assert!(policy("Keep").unwrap_err().contains("keep, once, normal, none"));
    }
}
