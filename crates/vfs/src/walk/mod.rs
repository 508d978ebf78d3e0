//! Walking a path in process.
//!
//! # Boundary
//! Turns a path into a held node, or into a held directory and a last name, or returns the attributes for `stat`.
//! `fast` walks by the caches alone, with no lock, no hold and no store to shared memory. If it stops it returns the
//! `Reason`, and `slow` continues by `Vfs::lookup_key`. So a walk and a frontend's lookups share one cache.
//!
//! # Concurrency
//! A fast walk is under one epoch guard from start to end. The guard is dropped before the slow walk begins, which may
//! block in the store. A fast walk uses one mount table. A slow walk may take long, so it uses the newest table at each
//! crossing, and holds the mounts that it is in ([`crate::Namespace`]).

mod fast;
mod slow;
mod whole;

pub(crate) use fast::Reason;

use self::fast::{At, Fast, Mounts};
use self::slow::Walk;
use crate::attributes::Attributes;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::mount::{Inside, Mount};
use crate::name::{Name, PATH_MAX};
use crate::vfs::Vfs;
use std::borrow::Cow;
use uvfs_concurrent::epoch;
use uvfs_containers::object::Hold;

/// Symbolic links followed in one walk, at most (path_resolution(7)).
pub const SYMLINKS_MAX: usize = 40;

/// Limits of a walk (like the flags of `openat2(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolve {
    /// Anywhere in the file system, or in the namespace; absolute paths start at its root.
    #[default]
    Anywhere,
    /// Only to objects below the starting directory: absolute paths and links, and `..` out of it, are refused with
    /// [`Error::CrossDevice`].
    Beneath,
    /// The starting directory is `/`: absolute paths start there, and its `..` is itself.
    InRoot,
}

/// Whether symbolic links are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Symlinks {
    /// Everywhere.
    #[default]
    Follow,
    /// Everywhere but in the last component, which is taken as it is.
    KeepLast,
    /// Nowhere: a link anywhere is refused with [`Error::SymlinkLoop`].
    Refuse,
}

/// The start of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'a> {
    pub(crate) node: &'a Node,
    /// Mount and namespace of the node. `None`: in no namespace; the walk crosses no mount.
    pub(crate) inside: Option<&'a Inside>,
}

/// A node on a walk, and the mount it is in.
#[derive(Debug, Clone)]
pub(crate) struct MountedNode {
    pub(crate) node: Node,
    /// `None`: the mount where the walk began.
    pub(crate) mount: Option<Hold<Mount>>,
}

impl MountedNode {
    /// The file system it is in; `start` is the one where the walk began.
    pub(crate) fn vfs<'s>(&'s self, start: &'s Vfs) -> &'s Vfs {
        self.mount.as_ref().map_or(start, |mount| &*mount.vfs)
    }
}

/// The end of a walk.
pub(crate) enum Walked<'p> {
    /// At an object.
    Node(MountedNode),
    /// At a name that does not exist, in this directory.
    Missing {
        directory: MountedNode,
        name: Cow<'p, [u8]>,
        /// The path, or a link in it, ended in a slash: only a directory is allowed.
        slash: bool,
    },
}

/// Where a slow walk begins.
struct Resume<'p> {
    /// The place where the fast walk stopped. `None`: the start of the path.
    from: Option<MountedNode>,
    rest: &'p [u8],
    /// The hash of the key of the first name of the rest, if the cache has just been asked for it there.
    missed: Option<u64>,
}

impl<'p> Resume<'p> {
    fn from_start(path: &'p [u8]) -> Self {
        Self { from: None, rest: path, missed: None }
    }
}

/// A name that a path ends in, and its directory.
pub(crate) struct LastName<'p> {
    pub(crate) directory: MountedNode,
    pub(crate) name: Name<'p>,
    /// The path ended in a slash: the name must be a directory's.
    pub(crate) slash: bool,
}

/// The end of a path that does not end in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoName {
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing: the path is the root.
    Root,
}

/// The parameters of one walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) resolve: Resolve,
    pub(crate) symlinks: Symlinks,
}

impl Vfs {
    /// Walks `path` from `start` to an object, or to a missing last name.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an empty path or a missing component, [`Error::NotDirectory`],
    /// [`Error::Access`], [`Error::SymlinkLoop`], [`Error::NameTooLong`], [`Error::CrossDevice`].
    pub(crate) fn walk<'p>(
        &self,
        manner: Manner<'_>,
        start: Start<'_>,
        path: &'p [u8],
    ) -> Result<Walked<'p>> {
        check_path(path)?;
        let resume = {
            let guard = epoch::pin();
            let mounts = Mounts::of(start, &guard);
            match self.walk_fast(&guard, manner, (start, mounts), path)?.0 {
                // The slow walk looks the last name up again, and returns its directory for the caller.
                Fast::Missing { at, rest } => self.resume_at(manner, start, path, (at, rest), None),
                Fast::Stopped { at, rest, reason, missed } => {
                    self.core.counters.walks.slow(reason);
                    self.resume_at(manner, start, path, (at, rest), missed)
                }
                Fast::Found { at, .. } => match at.hold() {
                    Some(spot) => {
                        self.core.counters.walks.fast.hit();
                        return Ok(Walked::Node(spot));
                    }
                    None => {
                        self.core.counters.walks.slow(Reason::Evicted);
                        Resume::from_start(path)
                    }
                },
            }
        };
        Walk::new(self, manner, start).run(resume)
    }

    /// Attributes of the object of `path`. Where the caches have all of it, the walk takes no lock and no hold, and
    /// stores to no shared memory.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`], and [`Error::NotFound`] for a missing last name.
    pub(crate) fn stat(
        &self,
        manner: Manner<'_>,
        start: Start<'_>,
        path: &[u8],
    ) -> Result<Attributes> {
        if path.is_empty() || path.len() > PATH_MAX {
            check_path(path)?;
        }
        let resume = {
            let guard = epoch::pin();
            let mounts = Mounts::of(start, &guard);
            // A memo has the object of a path in one file system.
            let whole = match mounts {
                None => self.whole_key(manner, start.node, path),
                Some(_) => None,
            };
            if let Some(key) = whole
                && let Some(attributes) = self.stat_whole(&guard, manner, key)
            {
                return Ok(attributes);
            }
            let (end, mut now) = self.walk_fast(&guard, manner, (start, mounts), path)?;
            match end {
                Fast::Missing { .. } => {
                    self.core.counters.walks.fast.hit();
                    return Err(Error::NotFound);
                }
                Fast::Found { at, warm } => match at.inode().cached_attributes_at(&mut now) {
                    Some(attributes) => {
                        self.core.counters.walks.fast.hit();
                        if warm && let Some(key) = whole {
                            self.remember_whole(&guard, manner, (start, path), key);
                        }
                        return Ok(attributes);
                    }
                    None => {
                        self.core.counters.walks.slow(Reason::Attributes);
                        Resume::from_start(path)
                    }
                },
                Fast::Stopped { at, rest, reason, missed } => {
                    self.core.counters.walks.slow(reason);
                    self.resume_at(manner, start, path, (at, rest), missed)
                }
            }
        };
        check_path(path)?;
        match Walk::new(self, manner, start).run(resume)? {
            Walked::Node(spot) => spot.vfs(self).attributes(&spot.node, None),
            Walked::Missing { .. } => Err(Error::NotFound),
        }
    }

    /// The start of the slow walk: the place where the fast one stopped, or the start of the path. The latter if that
    /// place is gone, or if the walk is confined and needs the directories on its way.
    fn resume_at<'p>(
        &self,
        manner: Manner<'_>,
        start: Start<'_>,
        path: &'p [u8],
        (at, rest): (At<'_>, &'p [u8]),
        missed: Option<u64>,
    ) -> Resume<'p> {
        if at.is_start(start) && rest.len() == path.len() {
            return Resume { missed, ..Resume::from_start(path) };
        }
        if manner.resolve != Resolve::Anywhere || at.is_start(start) {
            return Resume::from_start(path);
        }
        match at.hold() {
            Some(spot) => Resume { from: Some(spot), rest, missed },
            None => Resume::from_start(path),
        }
    }

    /// Walks to the directory of the last component of `path`, which must be a name.
    ///
    /// # Errors
    /// Those of [`Vfs::walk`]; the result of `refused` where the path does not end in a name.
    pub(crate) fn walk_to_name<'p>(
        &self,
        manner: Manner<'_>,
        start: Start<'_>,
        path: &'p [u8],
        refused: impl Fn(NoName) -> Error,
    ) -> Result<LastName<'p>> {
        check_path(path)?;
        let trimmed = path.trim_ascii_end_slashes();
        if trimmed.is_empty() {
            self.walk(manner, start, path)?;
            return Err(refused(NoName::Root));
        }
        let slash = trimmed.len() < path.len();
        let cut = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let (before, name) = trimmed.split_at(cut);
        let symlinks = match manner.symlinks {
            Symlinks::KeepLast => Symlinks::Follow,
            other => other,
        };
        let before = if before.is_empty() { b"." } else { before };
        let directory = match self.walk(Manner { symlinks, ..manner }, start, before)? {
            Walked::Node(spot) if spot.node.is_directory() => spot,
            Walked::Node(_) => return Err(Error::NotDirectory),
            Walked::Missing { .. } => return Err(Error::NotFound),
        };
        match name {
            b"." => Err(refused(NoName::Dot)),
            b".." => Err(refused(NoName::DotDot)),
            _ => Ok(LastName { directory, name: Name::new(name)?, slash }),
        }
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    match path {
        [] => Err(Error::NotFound),
        _ if path.len() > PATH_MAX => Err(Error::NameTooLong),
        _ if path.contains(&0) => Err(Error::Invalid("a path holds no NUL")),
        _ => Ok(()),
    }
}

trait TrimSlashes {
    fn trim_ascii_end_slashes(&self) -> &[u8];
}

impl TrimSlashes for [u8] {
    fn trim_ascii_end_slashes(&self) -> &[u8] {
        let end = self.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
        &self[..end]
    }
}
