//! The walk that may hold, lock and ask the store.
//!
//! # Concurrency
//! It holds nodes and no lock. `..` follows the parent that a directory notes. A directory that
//! is moved meanwhile could so lead a walk out of where it must stay; a walk that is confined
//! ([`Resolve::Beneath`], [`Resolve::InRoot`]) therefore holds the directories it came through, and
//! its `..` goes back by them, whatever is moved. (`openat2(2)` starts again, or gives up.)

use super::{Manner, Resolve, SYMLINKS_MAX, Symlinks, Walked};
use crate::attributes::FileKind;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::vfs::Vfs;
use std::collections::VecDeque;

/// One walk in progress.
pub(super) struct Walk<'a> {
    vfs: &'a Vfs,
    manner: Manner<'a>,
    start: &'a Node,
    links: usize,
    /// Of a confined walk: the directories above the one it is at, from the start on.
    behind: Vec<Node>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(vfs: &'a Vfs, manner: Manner<'a>, start: &'a Node) -> Self {
        Self { vfs, manner, start, links: 0, behind: Vec::new() }
    }

    /// Walks `path`, from `from` if a faster walk came that far.
    pub(super) fn run(mut self, from: Option<Node>, path: &[u8]) -> Result<Walked> {
        let mut at = match from {
            Some(at) => at,
            None => self.origin(path)?,
        };
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
