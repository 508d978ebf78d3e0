//! The cached amounts of a mount on the control socket: by directory, in one bounded reply.
//!
//! # Boundary
//! Values and their form. [`crate::serve`] fills them in, `uvfs cached` lays them out.
//!
//! # Why
//! A list in which each directory has its parent's index, not objects within objects: readers of JSON limit the depth,
//! and file systems do not. Zeros are left out, since most numbers are zero, and a reply has a bound. Weakness: no path
//! is known until the whole list is read.

use super::cleaned::{HostSource, Raw};
use serde::{Deserialize, Serialize};
use uvfs_vfs::Amount;

/// The requested directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedRequest {
    /// Path of the directory, from the root of the file system on.
    pub directory: Raw,
    /// Levels below it to list apart; deeper entries count to the lowest of these. All, if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// The cached amounts below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cached {
    /// The directory itself first; every other one after its parent.
    pub directories: Vec<Row>,
    /// The part of the first row in directories of unknown place: a name on the path to them is not cached.
    pub unplaced: Held,
    /// Directories that count to one above them because the reply has a bound.
    pub folded: u64,
    /// The host directory, if the mount shows one.
    pub source: Option<HostSource>,
}

/// A directory, and the amounts cached directly in it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Name of the directory; the first one has an empty name.
    pub name: Raw,
    /// The index of its parent.
    #[serde(skip_serializing_if = "is_default")]
    pub parent: usize,
    /// The amounts cached in it, without directories below that have a row of their own.
    #[serde(flatten)]
    pub held: Held,
    /// About how many requests of the kernel were about it, at least, of a directory that it asks about often.
    #[serde(skip_serializing_if = "is_default")]
    pub requests: u64,
    /// Directories below it that have no row because the reply has a bound.
    #[serde(skip_serializing_if = "is_default")]
    pub folded: u64,
    /// The policy that applies in it, if it differs from its parent's.
    #[serde(skip_serializing_if = "is_default")]
    pub policy: Option<String>,
}

/// Cached things of all sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// Names.
    #[serde(skip_serializing_if = "is_default")]
    pub names: Amount,
    /// Inodes.
    #[serde(skip_serializing_if = "is_default")]
    pub inodes: Amount,
    /// Pages.
    #[serde(skip_serializing_if = "is_default")]
    pub pages: Amount,
    /// Pages that the source does not have yet.
    #[serde(skip_serializing_if = "is_default")]
    pub dirty: Amount,
}

impl Held {
    /// Memory of all of it.
    pub fn bytes(&self) -> u64 {
        [self.names, self.inodes, self.pages].iter().fold(0, |sum: u64, sort| {
            // The daemon is not trusted: prefer a wrong sum to a panic.
            sum.saturating_add(sort.bytes)
        })
    }

    /// Takes in `other`.
    pub fn add(&mut self, other: &Self) {
        let add = |into: &mut Amount, more: Amount| {
            into.entries = into.entries.saturating_add(more.entries);
            into.bytes = into.bytes.saturating_add(more.bytes);
        };
        add(&mut self.names, other.names);
        add(&mut self.inodes, other.inodes);
        add(&mut self.pages, other.pages);
        add(&mut self.dirty, other.dirty);
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_zero_is_left_out_and_read_as_zero() {
        let row = Row { name: Raw(b"a".to_vec()), ..Row::default() };
        assert_eq!(serde_json::to_string(&row).unwrap(), r#"{"name":"a"}"#);
        let names = Amount { entries: 2, bytes: 9 };
        let held = Held { names, ..Held::default() };
        let row = Row { parent: 1, held, folded: 3, ..row };
        let text = r#"{"name":"a","parent":1,"names":{"entries":2,"bytes":9},"folded":3}"#;
        assert_eq!(serde_json::to_string(&row).unwrap(), text);
        assert_eq!(serde_json::from_str::<Row>(text).unwrap(), row);
        let another = r#"{"directories":[{"name":[255],"moons":1}],"moons":3}"#;
        let cached: Cached = serde_json::from_str(another).expect("of another version");
        assert_eq!(cached.directories[0].name, Raw(vec![255]));
    }

    #[test]
    fn sums_have_an_end_and_dirty_pages_count_once() {
        let most = Amount { entries: u64::MAX, bytes: u64::MAX };
        let mut held = Held { pages: most, dirty: most, ..Held::default() };
        assert_eq!(held.bytes(), u64::MAX);
        held.add(&held.clone());
        assert_eq!(held.pages, most);
        let one = Amount { entries: 1, bytes: 4096 };
        assert_eq!(Held { pages: one, dirty: one, ..Held::default() }.bytes(), 4096);
    }
}
