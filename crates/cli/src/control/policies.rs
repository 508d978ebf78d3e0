//! How marked directories are told over the control socket.
//!
//! # Boundary
//! Values and their form, as in [`super::cleaned`].

use super::cleaned::Raw;
use serde::{Deserialize, Serialize};

/// Which directory to mark, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyRequest {
    /// Its path, from the root of the file system on.
    pub(crate) directory: Raw,
    /// `keep`, `once`, `normal`, or `none` to take the mark away.
    pub(crate) policy: String,
}

/// A directory that is marked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Mark {
    pub(crate) policy: String,
    /// The path by which it was marked. Nothing if it was marked otherwise: by its extended attribute.
    pub(crate) path: Option<Raw>,
    /// It is known not to be there any more.
    pub(crate) moved: bool,
    /// Its number (`st_ino`).
    pub(crate) inode: u64,
}

impl Mark {
    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
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
}
