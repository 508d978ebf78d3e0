//! The walk that may hold, lock and ask the store.
//!
//! # Concurrency
//! It holds nodes and no lock. `..` follows the recorded parent of a directory. A concurrent move of a directory could
//! so lead a walk out of its confines. A confined walk ([`Resolve::Beneath`], [`Resolve::InRoot`]) therefore holds the
//! directories on its way, and its `..` returns to them, whatever is moved, mounted or unmounted. (`openat2(2)` starts
//! again, or gives up.)
//!
//! At each mountpoint, and at `..` from the root of a mount, it reads the present mount table, and holds the mount in
//! which it continues. So only the later crossing sees an unmount between two crossings, but a crossing never sees half
//! of one.

use super::{Manner, MountedNode, Resolve, Resume, SYMLINKS_MAX, Start, Symlinks, Walked};
use crate::attributes::FileKind;
use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::mount::Mount;
use crate::name::{NAME_MAX, Name};
use crate::names::Key;
use crate::ops::Look;
use crate::vfs::Vfs;
use std::borrow::Cow;
use std::collections::VecDeque;
use uvfs_containers::object::Hold;

/// One walk in progress.
pub(super) struct Walk<'a> {
    vfs: &'a Vfs,
    manner: Manner<'a>,
    start: Start<'a>,
    links: usize,
    /// In a confined walk: the directories above the present one, from the start on.
    behind: Vec<MountedNode>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(vfs: &'a Vfs, manner: Manner<'a>, start: Start<'a>) -> Self {
        Self { vfs, manner, start, links: 0, behind: Vec::new() }
    }

    /// Walks the rest of the path.
    pub(super) fn run<'p>(mut self, resume: Resume<'p>) -> Result<Walked<'p>> {
        let Resume { from, rest: path, mut missed } = resume;
        let mut at = match from {
            Some(at) => at,
            None => self.origin(path)?,
        };
        let mut rest = Components::default();
        rest.push(path);
        while let Some(component) = rest.next() {
            let missed = missed.take();
            let last = rest.is_empty();
            if !at.node.is_directory() {
                return Err(Error::NotDirectory);
            }
            let name = match &*component {
                b"." => {
                    self.may_search(&at)?;
                    continue;
                }
                b".." => {
                    self.may_search(&at)?;
                    at = self.parent(at)?;
                    continue;
                }
                name if name.len() > NAME_MAX => {
                    at.vfs(self.vfs).check(self.manner.caller, &at.node, crate::Access::EXECUTE)?;
                    return Err(Error::NameTooLong);
                }
                name => Name::new(name)?,
            };
            let vfs = at.vfs(self.vfs);
            let (key, look) = match missed {
                Some(hash) => (Key::hashed(at.node.id(), name, hash), Look::Missed),
                None => (vfs.core.names.key(at.node.id(), name), Look::First),
            };
            let looked_up = vfs.lookup_key(self.manner.caller, &at.node, key, look)?;
            let found = match looked_up.found() {
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
                let text = self.follow(at.vfs(self.vfs), &found)?;
                at = if text.first() == Some(&b'/') { self.origin(&text)? } else { at };
                rest.push_link(&text);
            } else {
                at.node = found;
            }
        }
        if rest.must_be_directory && !at.node.is_directory() {
            return Err(Error::NotDirectory);
        }
        Ok(Walked::Node(at))
    }

    fn may_search(&self, at: &MountedNode) -> Result<()> {
        at.vfs(self.vfs).check(self.manner.caller, &at.node, crate::Access::EXECUTE)
    }

    /// The start of a path (or link text).
    fn origin(&mut self, path: &[u8]) -> Result<MountedNode> {
        match (path.first(), self.manner.resolve) {
            (Some(b'/'), Resolve::Anywhere) => {
                return Ok(match self.start.inside {
                    Some(inside) => {
                        let mount = inside.namespace.root_mount();
                        MountedNode { node: mount.root.clone(), mount: Some(mount) }
                    }
                    None => MountedNode { node: self.vfs.root().clone(), mount: None },
                });
            }
            (Some(b'/'), Resolve::Beneath) => return Err(Error::CrossDevice),
            _ => {}
        }
        self.behind.clear();
        Ok(MountedNode { node: self.start.node.clone(), mount: None })
    }

    /// Continues from `at` to `found`, which was found in it, or to the root of the mount on it.
    fn enter(&mut self, at: MountedNode, found: Node) -> MountedNode {
        let mount = at.mount.clone();
        if self.manner.resolve != Resolve::Anywhere {
            self.behind.push(at);
        }
        self.covering(MountedNode { node: found, mount })
    }

    /// `at`, or the root of the mount on it.
    fn covering(&self, at: MountedNode) -> MountedNode {
        if at.node.inode.is_mounted()
            && let Some(inside) = self.start.inside
            && let Some(on) = inside.namespace.covering(self.mount(&at, &inside.mount), &at.node)
        {
            return MountedNode { node: on.root.clone(), mount: Some(on) };
        }
        at
    }

    /// The mount that `at` is in; `start` is the one where the walk began.
    fn mount<'s>(&self, at: &'s MountedNode, start: &'s Hold<Mount>) -> &'s Hold<Mount> {
        at.mount.as_ref().unwrap_or(start)
    }

    fn parent(&mut self, at: MountedNode) -> Result<MountedNode> {
        match (self.manner.resolve, self.behind.pop()) {
            (Resolve::Anywhere, _) => self.parent_anywhere(at),
            (_, Some(parent)) => Ok(parent),
            (Resolve::Beneath, None) => Err(Error::CrossDevice),
            (Resolve::InRoot, None) => Ok(at),
        }
    }

    /// The recorded parent. From the root of a mount: the parent of the mountpoint.
    fn parent_anywhere(&self, mut at: MountedNode) -> Result<MountedNode> {
        let Some(inside) = self.start.inside else {
            at.node = at.node.inode.parent().unwrap_or(at.node);
            return Ok(at);
        };
        while at.node == self.mount(&at, &inside.mount).root {
            match inside.namespace.above(self.mount(&at, &inside.mount)) {
                Some((mount, node)) => at = MountedNode { node, mount: Some(mount) },
                // The namespace's root, or that of a detached mount.
                None => return Ok(at),
            }
        }
        at.node = at.node.inode.parent().unwrap_or(at.node);
        if !is_within(at.vfs(self.vfs), &at.node, &self.mount(&at, &inside.mount).root) {
            // The directory was moved out of the mounted part: `..` must not leave that part. As Linux.
            return Err(Error::NotFound);
        }
        Ok(self.covering(at))
    }

    fn follow(&mut self, vfs: &Vfs, link: &Node) -> Result<Vec<u8>> {
        self.links += 1;
        if self.links > SYMLINKS_MAX {
            return Err(Error::SymlinkLoop);
        }
        let text = vfs.read_link(link)?;
        if text.is_empty() { Err(Error::NotFound) } else { Ok(text) }
    }
}

/// Whether `root` is `node` or above it. Where other programs move directories, cached parents may form a circle. Then
/// the walk up ends after as many steps as there are inodes.
fn is_within(vfs: &Vfs, node: &Node, root: &Node) -> bool {
    if root.id() == InodeId::ROOT {
        return true;
    }
    let above = |node: &Node| node.inode.parent();
    let steps_max = vfs.core.inodes.count() + 1;
    std::iter::successors(Some(node.clone()), above).take(steps_max).any(|node| node == *root)
}

/// The rest of the path: components, front first.
#[derive(Default)]
struct Components<'p> {
    parts: VecDeque<Cow<'p, [u8]>>,
    must_be_directory: bool,
}

impl<'p> Components<'p> {
    /// Begins with the components of `path`.
    fn push(&mut self, path: &'p [u8]) {
        self.push_as(path, Cow::Borrowed);
    }

    /// Puts the components of a link's `text` before the rest.
    fn push_link(&mut self, text: &[u8]) {
        self.push_as(text, |part| Cow::Owned(part.into()));
    }

    fn push_as<'t>(&mut self, path: &'t [u8], component: impl Fn(&'t [u8]) -> Cow<'p, [u8]>) {
        if self.parts.is_empty() && path.last() == Some(&b'/') {
            self.must_be_directory = true;
        }
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).rev() {
            self.parts.push_front(component(part));
        }
    }

    fn next(&mut self) -> Option<Cow<'p, [u8]>> {
        self.parts.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}
