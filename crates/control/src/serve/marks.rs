//! The marked directories of a live mount, and the paths by which they were marked.
//!
//! # Boundary
//! The core has the marks. This module has only their paths, which the core does not know.
//!
//! # Concurrency
//! One lock over the paths ([`POLICY_PATHS`]), never held during a call into the core.
//!
//! # Why
//! A mark belongs to a directory, not to a path, and stays with a renamed directory. To find the new path, directories
//! would have to be read. So the old path is shown, with a check whether it is old. A report may use only memory, and
//! checks the parent directories; a list may read the store, and walks the path. Weakness: a report does not see a new
//! name in the same directory.

use super::resolve;
use crate::cleaned::Raw;
use crate::lock_order::POLICY_PATHS;
use crate::policies::{self, Mark, PolicyRequest};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::backend::InodeId;
use uvfs_vfs::{CachePolicy, Node, Vfs};

/// By which path, and in which directories, one was marked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    path: PathBuf,
    above: Vec<InodeId>,
}

/// How much may be asked to find out whether a path is of today.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// No reads: use only memory.
    Never,
    /// The store.
    Allowed,
}

/// The paths by which directories of one mount were marked.
#[derive(Debug)]
pub struct Marks {
    paths: Mutex<HashMap<InodeId, Place>>,
}

impl Default for Marks {
    fn default() -> Self {
        Self::new()
    }
}

impl Marks {
    /// None yet.
    pub fn new() -> Self {
        Self { paths: Mutex::new(&POLICY_PATHS, HashMap::new()) }
    }

    /// Carries out `request`.
    ///
    /// # Errors
    /// The reason if nothing was marked.
    pub fn request(&self, vfs: &Arc<Vfs>, request: &PolicyRequest) -> Result<(), String> {
        let policy = policies::policy(&request.policy)?;
        self.set(vfs, &policies::directory(&request.directory.0)?, policy)
    }

    /// Marks the directory `path`, or removes its mark.
    ///
    /// # Errors
    /// The reason if nothing was marked.
    pub fn set(
        &self,
        vfs: &Arc<Vfs>,
        path: &Path,
        policy: Option<CachePolicy>,
    ) -> Result<(), String> {
        let directory = resolve(vfs, path)?;
        vfs.set_policy(&directory, policy).map_err(|error| match policy {
            Some(_) => format!("{error}; take a mark away first, or mark one further up"),
            None => format!("{error}; try again"),
        })?;
        let path = path.components().collect();
        let place = Place { path, above: above(&directory) };
        let marked: HashSet<_> = vfs.policies().iter().map(|(node, _)| node.id()).collect();
        let mut paths = self.paths.lock();
        // Marks that were removed with their directory, or by another request.
        paths.retain(|id, _| marked.contains(id));
        if policy.is_some() {
            paths.insert(directory.id(), place);
        }
        Ok(())
    }

    /// All marks, by path.
    pub fn list(&self, vfs: &Arc<Vfs>, look: Look) -> Vec<Mark> {
        let marked = vfs.policies();
        let paths = self.paths.lock().clone();
        let mark = |(node, policy): &(Node, CachePolicy)| {
            let place = paths.get(&node.id());
            let moved = place.is_some_and(|place| {
                let is_there = || resolve(vfs, &place.path).is_ok_and(|there| there == *node);
                above(node) != place.above || (look == Look::Allowed && !is_there())
            });
            Mark {
                policy: policy.to_string(),
                path: place.map(|place| Raw(place.path.as_os_str().as_bytes().into())),
                moved,
                inode: node.number(),
            }
        };
        let mut marks: Vec<_> = marked.iter().map(mark).collect();
        let key = |mark: &Mark| (mark.path.is_none(), mark.path.clone().unwrap_or_default().0);
        marks.sort_by_key(|mark| (key(mark), mark.inode));
        marks
    }
}

/// The ancestors of `directory`, as far as they are cached.
fn above(directory: &Node) -> Vec<InodeId> {
    std::iter::successors(directory.parent(), Node::parent).map(|above| above.id()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::backend::{RenameMode, XattrMode};
    use uvfs_vfs::{Caller, Directory, VfsConfig};

    fn vfs() -> (Arc<Vfs>, Directory) {
        let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
        let root = vfs.root_directory(Caller::root());
        for path in ["a", "a/b", "c"] {
            root.create_directory(path, 0o700).unwrap();
        }
        root.write_file("file", b"x").unwrap();
        (vfs, root)
    }

    fn ask(policies: &Marks, vfs: &Arc<Vfs>, path: &str, policy: &str) -> Result<(), String> {
        let request = PolicyRequest { directory: Raw(path.into()), policy: policy.to_string() };
        policies.request(vfs, &request)
    }

    fn lines(policies: &Marks, vfs: &Arc<Vfs>, look: Look) -> Vec<String> {
        let line = |mark: &Mark| {
            let place = mark.place();
            let place = place.replace(&mark.inode.to_string(), "N");
            format!("{} {place}", mark.policy)
        };
        policies.list(vfs, look).iter().map(line).collect()
    }

    #[test]
    fn marks_are_set_changed_listed_and_taken_away() {
        let ((vfs, _root), policies) = (vfs(), Marks::new());
        let ask = |path, policy| ask(&policies, &vfs, path, policy);
        ask("/c/", "once").unwrap();
        ask("//a/./b", "keep").unwrap();
        ask("/", "normal").unwrap();
        for look in [Look::Never, Look::Allowed] {
            assert_eq!(lines(&policies, &vfs, look), ["normal /", "keep /a/b", "once /c"]);
        }
        ask("/a/b", "once").unwrap();
        ask("/c", "none").unwrap();
        assert_eq!(lines(&policies, &vfs, Look::Never), ["normal /", "once /a/b"]);
        assert_eq!(policies.paths.lock().len(), 2, "the third path is forgotten");
        for (path, policy, part) in [
            ("/none", "keep", "no such directory"),
            ("/file", "keep", "not a directory"),
            ("/a", "hold", "`hold` is no policy"),
            ("a", "keep", "a relative path"),
        ] {
            let refused = ask(path, policy).unwrap_err();
            assert!(refused.contains(part), "{path}: {refused}");
        }
    }

    #[test]
    fn what_was_renamed_is_distinguished_from_what_was_not() {
        let ((vfs, root), policies) = (vfs(), Marks::new());
        ask(&policies, &vfs, "/a/b", "keep").unwrap();
        ask(&policies, &vfs, "/c", "once").unwrap();
        root.rename("a/b", "b", RenameMode::Replace).unwrap();
        let moved = "keep /a/b (renamed since; inode N)";
        assert_eq!(lines(&policies, &vfs, Look::Never), [moved, "once /c"]);
        root.rename("c", "d", RenameMode::Replace).unwrap();
        assert_eq!(lines(&policies, &vfs, Look::Never)[1], "once /c", "in the same directory");
        let both = [moved, "once /c (renamed since; inode N)"];
        assert_eq!(lines(&policies, &vfs, Look::Allowed), both);
        root.remove_directory("d").unwrap();
        assert_eq!(lines(&policies, &vfs, Look::Allowed), [moved]);
        root.set_xattr("a", "user.uvfs.cache", b"once", XattrMode::Any).unwrap();
        let attribute = "once inode N (marked by its attribute)";
        assert_eq!(lines(&policies, &vfs, Look::Allowed), [moved, attribute]);
    }
}
