//! Walking a path in process.
//!
//! # Boundary
//! Turns a path into a held node, or into a held directory and a last name; or answers `stat` on the
//! way. [`fast`] walks by the caches alone, with no lock, no hold and no store to what others read.
//! Where it cannot go on it says why ([`Reason`]), and [`slow`] goes on: by [`crate::Vfs::lookup`],
//! so that a walk and a frontend's lookups share one cache.
//!
//! # Concurrency
//! A fast walk is under one epoch guard from start to end. The guard is dropped before the slow walk
//! begins, which may block in the store.

mod fast;
mod slow;

pub(crate) use fast::Reason;

use self::fast::{Fast, Place};
use self::slow::Walk;
use crate::attributes::Attributes;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::{Name, PATH_MAX};
use crate::vfs::Vfs;
use uvfs_concurrent::epoch;

/// Symbolic links followed in one walk, at most (path_resolution(7)).
pub const SYMLINKS_MAX: usize = 40;

/// Where a walk may lead (as the flags of `openat2(2)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Resolve {
    /// Anywhere in the file system; absolute paths start at its root.
    #[default]
    Anywhere,
    /// Only to what lies below the starting directory: absolute paths and links, and `..` out of
    /// it, are refused with [`Error::CrossDevice`].
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

/// Where a walk ended.
pub(crate) enum Walked {
    /// At an object.
    Node(Node),
    /// At a name that does not exist, in this directory.
    Missing {
        directory: Node,
        name: Box<[u8]>,
        /// The path, or a link it led through, ended in a slash: only a directory can be meant.
        slash: bool,
    },
}

/// A name that a path ends in, and its directory.
pub(crate) struct LastName {
    pub(crate) directory: Node,
    pub(crate) name: Box<[u8]>,
    /// The path ended in a slash: the name must be a directory's.
    pub(crate) slash: bool,
}

/// What a path ends in instead of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoName {
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing: it is the root.
    Root,
}

/// How one walk is to be done.
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
    pub(crate) fn walk(&self, manner: Manner<'_>, start: &Node, path: &[u8]) -> Result<Walked> {
        check_path(path)?;
        let (from, rest) = {
            let guard = epoch::pin();
            match self.walk_fast(&guard, manner, start, path)?.0 {
                // Looking up the last name again tells the directory that a caller may want next.
                Fast::Missing { at, rest } => self.leave(manner, start, path, (at, rest)),
                Fast::Stopped { at, rest, reason } => {
                    self.core.counters.walks.slow(reason);
                    self.leave(manner, start, path, (at, rest))
                }
                Fast::Found(place) => match place.hold() {
                    Some(node) => {
                        self.core.counters.walks.fast.hit();
                        return Ok(Walked::Node(node));
                    }
                    None => {
                        self.core.counters.walks.slow(Reason::Evicted);
                        (None, path)
                    }
                },
            }
        };
        Walk::new(self, manner, start).run(from, rest)
    }

    /// Attributes of what `path` leads to. Where the caches know all of it, no lock is taken, nothing
    /// is held and nothing is stored that others read.
    ///
    /// # Errors
    /// As [`Vfs::walk`], and [`Error::NotFound`] for a missing last name.
    pub(crate) fn stat(&self, manner: Manner<'_>, start: &Node, path: &[u8]) -> Result<Attributes> {
        check_path(path)?;
        let (from, rest) = {
            let guard = epoch::pin();
            let (end, mut now) = self.walk_fast(&guard, manner, start, path)?;
            match end {
                Fast::Missing { .. } => {
                    self.core.counters.walks.fast.hit();
                    return Err(Error::NotFound);
                }
                Fast::Found(place) => match place.inode().cached_attributes_at(&mut now) {
                    Some(attributes) => {
                        self.core.counters.walks.fast.hit();
                        return Ok(attributes);
                    }
                    None => {
                        self.core.counters.walks.slow(Reason::Attributes);
                        (None, path)
                    }
                },
                Fast::Stopped { at, rest, reason } => {
                    self.core.counters.walks.slow(reason);
                    self.leave(manner, start, path, (at, rest))
                }
            }
        };
        match Walk::new(self, manner, start).run(from, rest)? {
            Walked::Node(node) => self.attributes(&node, None),
            Walked::Missing { .. } => Err(Error::NotFound),
        }
    }

    /// Where the slow walk goes on: where the fast one stopped, or from the start again if that place
    /// has gone meanwhile, or if the walk is confined and has to remember where it came through.
    fn leave<'p>(
        &self,
        manner: Manner<'_>,
        start: &Node,
        path: &'p [u8],
        (at, rest): (Place<'_>, &'p [u8]),
    ) -> (Option<Node>, &'p [u8]) {
        if manner.resolve != Resolve::Anywhere || at.is_start(start) {
            return (None, path);
        }
        match at.hold() {
            Some(node) => (Some(node), rest),
            None => (None, path),
        }
    }

    /// Walks to the directory of the last component of `path`, which must be a name.
    ///
    /// # Errors
    /// As [`Vfs::walk`]; what `refused` says where the path does not end in a name.
    pub(crate) fn walk_to_name(
        &self,
        manner: Manner<'_>,
        start: &Node,
        path: &[u8],
        refused: impl Fn(NoName) -> Error,
    ) -> Result<LastName> {
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
            Walked::Node(node) if node.is_directory() => node,
            Walked::Node(_) => return Err(Error::NotDirectory),
            Walked::Missing { .. } => return Err(Error::NotFound),
        };
        match name {
            b"." => return Err(refused(NoName::Dot)),
            b".." => return Err(refused(NoName::DotDot)),
            _ => Name::new(name)?,
        };
        Ok(LastName { directory, name: name.into(), slash })
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
