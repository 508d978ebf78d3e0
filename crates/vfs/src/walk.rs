//! Walking a path in process.
//!
//! # Boundary
//! Turns a path into a held node, or into a held directory and a last name. Looks names up through
//! [`crate::Vfs::lookup`] only, so a walk and a frontend's lookups share one cache.
//!
//! # Concurrency
//! A walk holds nodes and no lock. `..` follows the parent that a directory notes. A directory that
//! is moved meanwhile could so lead a walk out of where it must stay; a walk that is confined
//! ([`Resolve::Beneath`], [`Resolve::InRoot`]) therefore holds the directories it came through, and
//! its `..` goes back by them, whatever is moved. (`openat2(2)` starts again, or gives up.)
//!
//! # Why
//! The slow walk alone, for now: every component costs a hold. The walk that takes none comes with
//! the lock-free name table, and falls back to this one.

use crate::attributes::FileKind;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::{Name, PATH_MAX};
use crate::vfs::Vfs;
use std::collections::VecDeque;

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
        Walk { vfs: self, manner, start, links: 0, behind: Vec::new() }.run(path)
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

/// One walk in progress.
struct Walk<'a> {
    vfs: &'a Vfs,
    manner: Manner<'a>,
    start: &'a Node,
    links: usize,
    /// Of a confined walk: the directories above the one it is at, from the start on.
    behind: Vec<Node>,
}

impl Walk<'_> {
    fn run(&mut self, path: &[u8]) -> Result<Walked> {
        let mut at = self.origin(path)?;
        let mut rest = Components::default();
        rest.push(path)?;
        while let Some(component) = rest.next() {
            let last = rest.is_empty();
            if !at.is_directory() {
                return Err(Error::NotDirectory);
            }
            let name = match &*component {
                b"." => {
                    self.vfs.check(self.manner.caller, &at, crate::Access::EXECUTE)?;
                    continue;
                }
                b".." => {
                    self.vfs.check(self.manner.caller, &at, crate::Access::EXECUTE)?;
                    at = self.parent(at)?;
                    continue;
                }
                name => Name::new(name)?,
            };
            let found = match self.vfs.lookup(self.manner.caller, &at, name)?.found() {
                Ok(found) => found.node,
                Err(Error::NotFound) if last => {
                    let slash = rest.must_be_directory;
                    return Ok(Walked::Missing { directory: at, name: component, slash });
                }
                Err(error) => return Err(error),
            };
            let follow =
                !last || rest.must_be_directory || self.manner.symlinks == Symlinks::Follow;
            if found.kind() != FileKind::Symlink {
                at = self.enter(at, found);
            } else if self.manner.symlinks == Symlinks::Refuse {
                return Err(Error::SymlinkLoop);
            } else if follow {
                let text = self.follow(&found)?;
                at = if text.first() == Some(&b'/') { self.origin(&text)? } else { at };
                rest.push(&text)?;
            } else {
                at = found;
            }
        }
        if rest.must_be_directory && !at.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok(Walked::Node(at))
    }

    /// Where a path (or link text) starts.
    fn origin(&mut self, path: &[u8]) -> Result<Node> {
        match (path.first(), self.manner.resolve) {
            (Some(b'/'), Resolve::Anywhere) => return Ok(self.vfs.root().clone()),
            (Some(b'/'), Resolve::Beneath) => return Err(Error::CrossDevice),
            _ => {}
        }
        self.behind.clear();
        Ok(self.start.clone())
    }

    fn enter(&mut self, at: Node, found: Node) -> Node {
        if self.manner.resolve != Resolve::Anywhere {
            self.behind.push(at);
        }
        found
    }

    fn parent(&mut self, at: Node) -> Result<Node> {
        match (self.manner.resolve, self.behind.pop()) {
            (Resolve::Anywhere, _) => Ok(at.inode.parent().unwrap_or(at)),
            (_, Some(parent)) => Ok(parent),
            (Resolve::Beneath, None) => Err(Error::CrossDevice),
            (Resolve::InRoot, None) => Ok(at),
        }
    }

    fn follow(&mut self, link: &Node) -> Result<Vec<u8>> {
        self.links += 1;
        if self.links > SYMLINKS_MAX {
            return Err(Error::SymlinkLoop);
        }
        let text = self.vfs.read_link(link)?;
        if text.is_empty() { Err(Error::NotFound) } else { Ok(text) }
    }
}

/// What is left to walk: components, front first.
#[derive(Default)]
struct Components {
    parts: VecDeque<Box<[u8]>>,
    must_be_directory: bool,
}

impl Components {
    /// Puts the components of `path` before what is left.
    fn push(&mut self, path: &[u8]) -> Result<()> {
        if self.parts.is_empty() && path.last() == Some(&b'/') {
            self.must_be_directory = true;
        }
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).rev() {
            if part.len() > crate::NAME_MAX {
                return Err(Error::NameTooLong);
            }
            self.parts.push_front(part.into());
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Box<[u8]>> {
        self.parts.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
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
