//! The mount table: the mounts and their places, at one moment.
//!
//! # Boundary
//! A value: made from the one before and published as a whole by [`super::Namespace`]. Has no part
//! in walks or permissions.
//!
//! # Why
//! Two maps over the same attachments, because walks need both directions: down from a mountpoint,
//! and up from the root of a mount. A mount itself has no place. So a removed mount keeps nothing
//! above it in use, and its `..` ends at its root. Weakness: a change copies both maps, so building
//! a namespace of n mounts takes n² steps.

use super::Mount;
use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::Node;
use std::collections::HashMap;
use std::sync::Arc;
use uvfs_containers::object::Ref;

/// A mount in its place.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// The mounted part.
    pub(super) mount: Ref<Mount>,
    /// The parent mount.
    pub(super) parent: Ref<Mount>,
    /// The directory in the parent mount.
    pub(super) at: Mountpoint,
}

/// A directory with a mount on it. Held, so it stays the one inode of its object. Marked, until the
/// last table with the mount is gone.
#[derive(Debug)]
pub(super) struct Mountpoint(Node);

impl Mountpoint {
    pub(super) fn new(directory: Node) -> Result<Self> {
        if directory.inode.gain_mount() { Ok(Self(directory)) } else { Err(Error::NoSpace) }
    }

    pub(super) fn node(&self) -> &Node {
        &self.0
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        self.0.inode.lose_mount();
    }
}

/// All mounts of a namespace but its root.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// By mountpoint. A mount's id determines its file system, so the directory's id is enough.
    on: HashMap<(u64, InodeId), Arc<Attachment>>,
    /// By the id of the mount.
    mounted: HashMap<u64, Arc<Attachment>>,
}

impl Table {
    pub(crate) fn is_empty(&self) -> bool {
        self.mounted.is_empty()
    }

    /// The mount on `directory` of `mount`: the topmost, if mounts are stacked.
    pub(crate) fn covering(&self, mount: u64, directory: InodeId) -> Option<&Ref<Mount>> {
        let mut on = self.on.get(&(mount, directory))?;
        while let Some(higher) = self.on.get(&(on.mount.id, on.mount.root.id())) {
            on = higher;
        }
        Some(&on.mount)
    }

    /// The place of `mount`.
    pub(super) fn place_of(&self, mount: u64) -> Option<&Arc<Attachment>> {
        self.mounted.get(&mount)
    }

    /// Whether there is a mount in `mount`.
    pub(super) fn has_inner(&self, mount: u64) -> bool {
        self.mounted.values().any(|inner| inner.parent.id == mount)
    }

    pub(super) fn attachments(&self) -> impl Iterator<Item = &Arc<Attachment>> {
        self.mounted.values()
    }

    /// Adds a mount, in a place where there is none.
    pub(super) fn attach(&mut self, attachment: Attachment) {
        let attachment = Arc::new(attachment);
        self.on.insert((attachment.parent.id, attachment.at.node().id()), attachment.clone());
        self.mounted.insert(attachment.mount.id, attachment);
    }

    /// Removes a mount with all mounts in it, and moves them to `gone`.
    pub(super) fn detach(&mut self, mount: u64, gone: &mut Vec<Arc<Attachment>>) {
        let mut doomed = vec![mount];
        while let Some(mount) = doomed.pop() {
            let Some(attachment) = self.mounted.remove(&mount) else { continue };
            self.on.remove(&(attachment.parent.id, attachment.at.node().id()));
            gone.push(attachment);
            let inner = self.mounted.values().filter(|inner| inner.parent.id == mount);
            doomed.extend(inner.map(|inner| inner.mount.id));
        }
    }
}
