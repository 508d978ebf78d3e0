//! The walk by the caches alone, without stores to shared memory.
//!
//! # Boundary
//! It decides only cases that the slow walk would decide the same way. At every doubt it stops with its place and a
//! reason, and the slow walk continues there.
//!
//! # Concurrency
//! Under the caller's epoch guard: every object found stays in memory until that is dropped. Nothing is locked, held or
//! counted. Per component it reads three lines: the bucket, the dentry, and the first line of the inode.
//!
//! W1. A name is used only if it was in the table, and valid for its directory, at some instant during the walk. Its
//! object was there at that instant.
//! W2. A change removes its names from the table before it asks the store, and inserts the result after. An answer with
//! another meaning of a name removes the name before it inserts it. A walk that finds no entry asks the store. So a walk that has seen the result of a change never sees the state before it later:
//! neither the old name of a renamed object, nor a replaced object.
//! W3. A torn down inode is marked so before another one can represent the same object. A dentry that leads to a marked
//! inode is not used.
//! W4. Search permission is decided by the attributes of one instant, before the name is looked up.
//! W5. All mounts are crossed by one mount table, read at the start: the walk sees a concurrent mount or unmount wholly
//! or not at all. From a mountpoint on it uses the caches and the rules of the other file system.
//!
//! # Why
//! Like Linux's RCU-walk, except for its end. That takes a reference on the last object, so all users of one file share
//! its count. Here `stat` copies the attributes under their sequence. Weakness: `..` and symbolic links in the middle
//! stop it.

use super::whole::COMPONENTS_MIN;
use super::{Manner, MountedNode, Resolve, Start, Symlinks};
use crate::attributes::FileKind;
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::{Expiry, Inode, Moment, Node};
use crate::mount::{Mount, Table};
use crate::name::NAME_MAX;
use crate::names;
use crate::paths::Evidence;
use crate::permission;
use crate::vfs::Vfs;
use uvfs_concurrent::epoch::Guard;
use uvfs_containers::object::Ref;

/// Why a walk did not stay on the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// A name was not cached, or not valid any more.
    Miss,
    /// A clean has happened since the directory was last used: the directory must find out whether it is concerned.
    Cleaned,
    /// A symbolic link has to be followed.
    Symlink,
    /// `..`
    DotDot,
    /// The search permission is not known: the directory's attributes or access control list are not cached, or the
    /// caller's groups have to be read.
    Permission,
    /// The attributes of the last object are not cached.
    Attributes,
    /// The last object was being evicted.
    Evicted,
    /// The start is not allowed: an absolute path in a confined walk.
    Start,
    /// A component is too long to be a name.
    Name,
}

impl Reason {
    /// All of them, in order.
    pub(crate) const ALL: [Self; 9] = [
        Self::Miss,
        Self::Cleaned,
        Self::Symlink,
        Self::DotDot,
        Self::Permission,
        Self::Attributes,
        Self::Evicted,
        Self::Start,
        Self::Name,
    ];

    /// Name of the reason in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Miss => "miss",
            Self::Cleaned => "cleaned",
            Self::Symlink => "symlink",
            Self::DotDot => "dotdot",
            Self::Permission => "permission",
            Self::Attributes => "attributes",
            Self::Evicted => "evicted",
            Self::Start => "start",
            Self::Name => "name",
        }
    }
}

/// The position of a fast walk.
#[derive(Debug, Clone, Copy)]
pub(super) enum NodeRef<'g> {
    /// At a node with a hold.
    Held(&'g Node),
    /// At the inode of a name.
    Named(&'g Ref<Inode>),
}

impl<'g> NodeRef<'g> {
    #[inline]
    pub(super) fn inode(self) -> &'g Inode {
        match self {
            NodeRef::Held(node) => &node.inode,
            NodeRef::Named(inode) => inode,
        }
    }

    /// A hold on it, unless it was torn down.
    pub(super) fn hold(self) -> Option<Node> {
        match self {
            NodeRef::Held(node) => Some(node.clone()),
            NodeRef::Named(inode) => Node::try_hold(inode),
        }
    }
}

/// A place, and the mount it is in.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'g> {
    pub(super) place: NodeRef<'g>,
    /// `None`: the mount where the walk began.
    mount: Option<&'g Ref<Mount>>,
}

impl<'g> At<'g> {
    #[inline]
    pub(super) fn inode(self) -> &'g Inode {
        self.place.inode()
    }

    /// A hold on it and on its mount, unless one of them is gone.
    pub(super) fn hold(self) -> Option<MountedNode> {
        // The mount first: dropping its hold ends nothing, since it is in the walk's table. Dropping a node may call
        // the store.
        let mount = match self.mount {
            Some(mount) => Some(mount.try_hold()?),
            None => None,
        };
        Some(MountedNode { node: self.place.hold()?, mount })
    }

    pub(super) fn is_start(self, start: Start<'_>) -> bool {
        self.mount.is_none() && matches!(self.place, NodeRef::Held(node) if node == start.node)
    }
}

/// The mount table and root of a walk that may cross mounts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mounts<'g> {
    table: &'g Table,
    root: &'g Ref<Mount>,
    /// The mount where the walk began.
    start: u64,
}

impl<'g> Mounts<'g> {
    /// `None` if there are none: the walk stays where it is.
    pub(super) fn of(start: Start<'g>, guard: &'g Guard) -> Option<Self> {
        let inside = start.inside?;
        let (table, root) = (inside.namespace.table(guard), inside.namespace.root());
        let start = inside.mount.id;
        let none = table.is_empty() && start == root.id;
        (!none).then_some(Self { table, root, start })
    }
}

/// The part of a walk in one file system.
struct WalkSegment<'g> {
    vfs: &'g Vfs,
    /// Names found.
    found: u64,
}

impl<'g> WalkSegment<'g> {
    fn end(&self) {
        if self.found > 0 {
            self.vfs.core.counters.name_hits.add(self.found);
        }
    }

    /// Continues in another file system, at the root of `mount`.
    fn cross(&mut self, mount: &'g Ref<Mount>) -> At<'g> {
        self.end();
        *self = Self { vfs: &mount.vfs, found: 0 };
        At { place: NodeRef::Held(&mount.root), mount: Some(mount) }
    }
}

/// The end of a fast walk.
#[derive(Debug)]
pub(super) enum Fast<'g, 'p> {
    /// At an object; `warm` if a memo of the path is worth making.
    Found { at: At<'g>, warm: bool },
    /// At a last name that does not exist; the rest of the path is that name.
    Missing { at: At<'g>, rest: &'p [u8] },
    /// Before its end. `missed`: the key's hash of the first name of the rest, if the cache has just been asked for it.
    Stopped { at: At<'g>, rest: &'p [u8], reason: Reason, missed: Option<u64> },
}

impl Vfs {
    /// Walks as far as the caches allow. Returns the moment with which lifetimes were compared, if there were any.
    ///
    /// # Errors
    /// Those of the slow walk: [`Error::NotFound`] in the middle, [`Error::NotDirectory`], [`Error::Access`],
    /// [`Error::SymlinkLoop`].
    pub(super) fn walk_fast<'g, 'p>(
        &'g self,
        guard: &'g Guard,
        manner: Manner<'_>,
        from: (Start<'g>, Option<Mounts<'g>>),
        path: &'p [u8],
    ) -> Result<(Fast<'g, 'p>, Option<Moment>)> {
        let (mut now, mut leg) = (None, WalkSegment { vfs: self, found: 0 });
        let end = match from.1 {
            None => Self::fast::<false, false>(guard, manner, from, path, &mut now, &mut leg, None),
            _ => Self::fast::<true, false>(guard, manner, from, path, &mut now, &mut leg, None),
        };
        leg.end();
        Ok((end?, now))
    }

    /// Walks a path that has just been found once more, and collects its dependencies in `evidence`. Returns the
    /// object, if the caches still have all of it, and a memo is useful.
    pub(super) fn walk_gathering<'g>(
        &'g self,
        guard: &'g Guard,
        manner: Manner<'_>,
        start: Start<'g>,
        path: &[u8],
        evidence: &mut Evidence,
    ) -> Option<&'g Ref<Inode>> {
        let (mut now, mut leg) = (None, WalkSegment { vfs: self, found: 0 });
        let (from, evidence) = ((start, None), Some(evidence));
        let end =
            Self::fast::<false, true>(guard, manner, from, path, &mut now, &mut leg, evidence);
        match end.ok()? {
            Fast::Found { at: At { place: NodeRef::Named(inode), .. }, warm: true } => Some(inode),
            _ => None,
        }
    }

    /// `CROSSES`: mounts are crossed. `GATHERS`: dependencies are collected.
    #[inline]
    fn fast<'g, 'p, const CROSSES: bool, const GATHERS: bool>(
        guard: &'g Guard,
        manner: Manner<'_>,
        (start, mounts): (Start<'g>, Option<Mounts<'g>>),
        path: &'p [u8],
        now: &mut Option<Moment>,
        leg: &mut WalkSegment<'g>,
        mut evidence: Option<&mut Evidence>,
    ) -> Result<Fast<'g, 'p>> {
        let mut vfs = leg.vfs;
        let mut names = &vfs.core.names;
        let mut cleans = vfs.core.cleans.now();
        let mut at = At { place: NodeRef::Held(start.node), mount: None };
        if path[0] == b'/' {
            match manner.resolve {
                Resolve::Anywhere => match mounts {
                    Some(mounts) if CROSSES => {
                        at = leg.cross(mounts.root);
                        (vfs, names) = (leg.vfs, &leg.vfs.core.names);
                        cleans = vfs.core.cleans.now();
                    }
                    _ => at.place = NodeRef::Held(vfs.root()),
                },
                Resolve::InRoot => {}
                Resolve::Beneath => {
                    return Ok(stopped((at, path), Reason::Start));
                }
            }
        }
        let free = is_free(manner.caller);
        let mut directory = at.inode();
        let mut is_directory = directory.is_directory();
        let mut id = directory.id;
        let mut position = 0;
        // Names alone, with one slash between them: such a path may have a memo.
        let mut plain = path[0] != b'/';
        loop {
            let rest = &path[position..];
            let (length, hash) = names.scan_component(rest);
            let stopped = |reason| Ok(stopped((at, rest), reason));
            if length == 0 {
                if !rest.is_empty() {
                    // A second slash between names, or a leading one.
                    plain = false;
                    position += 1;
                    continue;
                }
                // A path that ends in a slash, or is nothing else.
                return match is_directory {
                    true => Ok(Fast::Found { at, warm: false }),
                    false => Err(Error::NotDirectory),
                };
            }
            if length > NAME_MAX {
                return stopped(Reason::Name);
            }
            if !is_directory {
                return Err(Error::NotDirectory);
            }
            if GATHERS && let Some(evidence) = &mut evidence {
                // First the lifetime, then the check: a change in between can only make the true lifetime shorter.
                let rights = match free {
                    true => Some(Expiry::NEVER),
                    false => directory.guarding(now).map(|seen| seen.expiry),
                };
                let Some(rights) = rights else { return stopped(Reason::Permission) };
                vfs.core.paths.look(evidence, directory, rights);
            }
            if !free {
                match vfs.may_search(manner.caller, directory, now) {
                    Some(true) => {}
                    Some(false) => return Err(Error::Access),
                    None => return stopped(Reason::Permission),
                }
            }
            let (name, after) = rest.split_at(length);
            let last = after.is_empty();
            if name[0] == b'.' && length <= 2 {
                if length == 1 {
                    if last {
                        return Ok(Fast::Found { at, warm: false });
                    }
                    plain = false;
                    position += 2;
                    continue;
                }
                if name[1] == b'.' {
                    return stopped(Reason::DotDot);
                }
            }
            if !directory.knows_cleans(cleans) {
                return stopped(Reason::Cleaned);
            }
            // By the id that came with the dentry: the probe does not wait for the inode's line.
            let key = names.key_hash(id, hash);
            let dentry = names.probe(guard, (directory, id), key, name, now);
            let Some((dentry, inode)) = dentry.and_then(|found| Some((found, found.inode()?)))
            else {
                match dentry {
                    Some(dentry) => {
                        names::touch(dentry, false);
                    }
                    None => {
                        if vfs.surely_missing(guard, directory, (key, name), now).is_none() {
                            let (reason, missed) = (Reason::Miss, Some(key));
                            return Ok(Fast::Stopped { at, rest, reason, missed });
                        }
                    }
                }
                vfs.core.counters.negative_hits.hit();
                // Slashes may follow: then it still is the last name.
                return match after.iter().all(|&byte| byte == b'/') {
                    true => Ok(Fast::Missing { at, rest }),
                    false => Err(Error::NotFound),
                };
            };
            if GATHERS && let Some(evidence) = &mut evidence {
                evidence.used_name(dentry.expiry());
            }
            is_directory = inode.is_directory();
            let warm = names::touch(dentry, is_directory);
            if !is_directory && inode.kind() == FileKind::Symlink {
                if manner.symlinks == Symlinks::Refuse {
                    return Err(Error::SymlinkLoop);
                }
                if !last || manner.symlinks == Symlinks::Follow {
                    return stopped(Reason::Symlink);
                }
            }
            leg.found += 1;
            (directory, id) = (inode, dentry.id());
            at.place = NodeRef::Named(inode);
            if CROSSES
                && inode.is_mounted()
                && let Some(mounts) = mounts
            {
                let mount = at.mount.map_or(mounts.start, |mount| mount.id);
                if let Some(on) = mounts.table.covering(mount, inode.id) {
                    at = leg.cross(on);
                    (vfs, names) = (leg.vfs, &leg.vfs.core.names);
                    cleans = vfs.core.cleans.now();
                    (directory, id) = (at.inode(), on.root.id());
                }
            }
            if last {
                let warm = warm && plain && leg.found >= COMPONENTS_MIN;
                return Ok(Fast::Found { at, warm });
            }
            position += length + 1;
        }
    }

    /// Whether `caller` may search `directory`, if the caches and the caller's known groups decide it.
    #[inline]
    fn may_search(
        &self,
        caller: &Caller,
        directory: &Inode,
        now: &mut Option<Moment>,
    ) -> Option<bool> {
        if is_free(caller) {
            return Some(true);
        }
        let seen = directory.guarding(now)?;
        let acl_free = seen.no_acl || !self.core.capabilities.acls;
        permission::may_search(caller, (seen.mode, seen.uid, seen.gid), acl_free)
    }
}

/// The end of a walk that has not asked for the next name.
#[inline]
fn stopped<'g, 'p>((at, rest): (At<'g>, &'p [u8]), reason: Reason) -> Fast<'g, 'p> {
    Fast::Stopped { at, rest, reason, missed: None }
}

/// Whether no permission stops `caller` from searching directories.
#[inline]
fn is_free(caller: &Caller) -> bool {
    caller.checks == Checks::Done || caller.is_privileged()
}
