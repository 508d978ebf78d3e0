//! Walking by whole paths: [`crate::paths`] in front of the walk by components.
//!
//! # Boundary
//! Says which paths may have a memo, asks for one, and makes one. A path qualifies if it is walked from
//! a directory downwards by names alone: no leading slash, no `.` and `..`, no symbolic link.

use super::Manner;
use super::fast::{Place, is_free};
use crate::attributes::{Attributes, FileKind};
use crate::caller::Caller;
use crate::inode::{Expiry, Inode, Moment, Node};
use crate::name::NAME_MAX;
use crate::paths::Key;
use crate::vfs::Vfs;
use uvfs_concurrent::epoch::Guard;

/// Components from which on a memo is faster than the walk.
pub(super) const COMPONENTS_MIN: u64 = 3;

impl Vfs {
    /// The key of `path` from `start`, if it may have a memo.
    #[inline]
    pub(super) fn whole_key<'p>(
        &self,
        manner: Manner<'_>,
        start: &Node,
        path: &'p [u8],
    ) -> Option<Key<'p>> {
        let qualifies = self.core.config.whole_paths && path.len() as u64 >= 2 * COMPONENTS_MIN - 1;
        qualifies.then(|| self.core.paths.key(manner.caller, &start.inode, path))
    }

    /// Attributes of what a path leads to, if there is a memo that is believed and they are cached.
    #[inline]
    pub(super) fn stat_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        key: Key<'_>,
    ) -> Option<Attributes> {
        let mut now = None;
        let inode = self.core.paths.find(guard, manner.caller, key, &mut now)?;
        let attributes = inode.cached_attributes_at(&mut now)?;
        self.core.counters.walks.whole.hit();
        Some(attributes)
    }

    /// Until when `caller` may search `directory`, if the caches say that he may.
    fn search_until(
        &self,
        caller: &Caller,
        directory: &Inode,
        now: &mut Option<Moment>,
    ) -> Option<Expiry> {
        if is_free(caller) {
            return Some(Expiry::NEVER);
        }
        // First how long, then whether: what came in between can only make it shorter than it says.
        let until = directory.guarding(now)?.expiry;
        self.may_search(caller, directory, now)?.then_some(until)
    }

    /// Walks `path` once more, gathering what the walk relies on, and keeps the outcome: the walk by
    /// components succeeded, and its last name is used often. Does nothing if the path does not qualify,
    /// the caches do not know all of it, or there is no room.
    #[cold]
    #[inline(never)]
    pub(super) fn remember_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        (start, path): (&Node, &[u8]),
        key: Key<'_>,
    ) -> Option<()> {
        let core = &self.core;
        let bytes_max = core.paths_max_bytes();
        if !core.paths.admits(guard, key, bytes_max) {
            return None;
        }
        let mut now = None;
        let mut evidence = core.paths.evidence(&start.inode);
        let cleans = core.cleans.now();
        let mut at = Place::Held(start);
        let mut components = 0;
        for name in path.split(|&byte| byte == b'/') {
            let directory = at.inode();
            let is_name = !matches!(name, [] | b"." | b"..") && name.len() <= NAME_MAX;
            if !is_name || directory.kind() != FileKind::Directory {
                return None;
            }
            let rights = self.search_until(manner.caller, directory, &mut now)?;
            core.paths.look(&mut evidence, directory, rights);
            if !directory.knows_cleans(cleans) {
                return None;
            }
            let hash = core.names.key_hash(directory.id, core.names.scan_component(name).1);
            let dentry =
                core.names.probe(guard, (directory, directory.id), hash, name, &mut now)?.value();
            evidence.used_name(dentry.expiry());
            at = Place::Named(dentry.inode()?);
            components += 1;
        }
        let Place::Named(inode) = at else { return None };
        if components < COMPONENTS_MIN || inode.kind() == FileKind::Symlink {
            return None;
        }
        core.paths.remember(guard, manner.caller, key, inode, evidence, bytes_max);
        Some(())
    }
}
