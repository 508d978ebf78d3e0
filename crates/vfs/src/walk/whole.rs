//! Walking by whole paths: [`crate::paths`] in front of the walk by components.
//!
//! # Boundary
//! Decides which paths may have a memo, looks one up, and has one made from the dependencies of a second fast walk. A
//! path qualifies if it is walked from a directory downwards by names alone: no leading slash, no `.` and `..`, no
//! symbolic link.

use super::{Manner, Start};
use crate::attributes::{Attributes, FileKind};
use crate::inode::Node;
use crate::paths::Key;
use crate::vfs::Vfs;
use uvfs_concurrent::epoch::Guard;

/// Least number of components for which a memo is faster than the walk.
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

    /// Attributes of the object of a path, if it has a valid memo and they are cached.
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

    /// Makes a memo of `path`: the walk by components succeeded, and its last name is used often. Does nothing if the
    /// caches do not have all of it any more, or there is no room.
    #[cold]
    #[inline(never)]
    pub(super) fn remember_whole(
        &self,
        guard: &Guard,
        manner: Manner<'_>,
        (start, path): (Start<'_>, &[u8]),
        key: Key<'_>,
    ) {
        let paths = &self.core.paths;
        let bytes_max = self.core.paths_max_bytes();
        if !paths.admits(guard, key, bytes_max) {
            return;
        }
        let mut evidence = paths.evidence(&start.node.inode);
        let found = self.walk_gathering(guard, manner, start, path, &mut evidence);
        if let Some(inode) = found.filter(|inode| inode.kind() != FileKind::Symlink) {
            paths.remember(guard, manner.caller, key, inode, evidence, bytes_max);
        }
    }
}
