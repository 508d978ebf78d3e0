//! Walking by whole paths: [`crate::paths`] in front of the walk by components.
//!
//! # Boundary
//! Says which paths may have a memo, asks for one, and makes one. A path qualifies if it is walked from
//! a directory downwards by names alone: no leading slash, no `.` and `..`, no symbolic link.

use super::Manner;
use super::fast::Place;
use crate::attributes::{Attributes, FileKind};
use crate::caller::{Caller, Checks};
use crate::inode::{Expiry, Inode, Moment, Node};
use crate::name::NAME_MAX;
use crate::vfs::Vfs;
use uvfs_concurrent::epoch::Guard;

/// Components from which on a memo is faster than the walk.
const COMPONENTS_MIN: usize = 3;

impl Vfs {
    /// The hash of `path` from `start`, if it may have a memo.
    #[inline]
    pub(super) fn whole_hash(&self, start: &Node, path: &[u8]) -> Option<u64> {
        let qualifies = self.core.config.whole_paths && path.len() >= 2 * COMPONENTS_MIN - 1;
        qualifies.then(|| self.core.paths.hash(&start.inode, path))
    }

    /// Attributes of what `path` leads to, if there is a memo that is believed and they are cached.
    #[inline]
    pub(super) fn stat_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        start: &Node,
        key: (u64, &[u8]),
    ) -> Option<Attributes> {
        let mut now = None;
        let inode = self.core.paths.find(guard, manner.caller, &start.inode, key, &mut now)?;
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
        if !self.may_search(caller, directory, now)? {
            return None;
        }
        let checked = caller.checks != Checks::Done && !caller.is_privileged();
        if checked { directory.guarding(now).map(|seen| seen.expiry) } else { Some(Expiry::NEVER) }
    }

    /// A walk of `path` by components succeeded: makes a memo if it is walked often.
    pub(super) fn offer_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        start: &Node,
        (hash, path): (u64, &[u8]),
    ) {
        let paths = &self.core.paths;
        if paths.admits(hash) {
            self.remember_whole(guard, manner, start, (hash, path));
        }
    }

    /// Walks `path` once more, gathering what the walk relies on, and keeps the outcome. Does nothing
    /// if the path does not qualify or the caches do not know all of it.
    #[cold]
    fn remember_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        start: &Node,
        (hash, path): (u64, &[u8]),
    ) -> Option<()> {
        let core = &self.core;
        let mut now = None;
        let mut evidence = core.paths.evidence(&start.inode);
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
            let key = core.names.key_hash(directory.id, core.names.scan_component(name).1);
            let dentry = core.names.probe(guard, (directory, directory.id), key, name, &mut now)?.value();
            evidence.used_name(dentry.expiry());
            at = Place::Named(dentry.inode()?);
            components += 1;
        }
        let Place::Named(inode) = at else { return None };
        if components < COMPONENTS_MIN || inode.kind() == FileKind::Symlink {
            return None;
        }
        let bytes_max = usize::try_from(core.config.metadata_bytes / 8).unwrap_or(usize::MAX);
        let start: &Inode = &start.inode;
        core.paths.remember(
            guard,
            manner.caller,
            (start, hash, path),
            inode,
            evidence,
            bytes_max,
        );
        Some(())
    }
}
