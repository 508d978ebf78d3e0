//! Reading and changing attributes.

use super::OpenFile;
use super::change::AttributeChange;
use crate::attributes::{Attributes, SetAttributes, Totals};
use crate::backend::FileRef;
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::paths::RightsChange;
use crate::permission::{self, Access};
use crate::vfs::Vfs;
use std::time::Duration;

impl Vfs {
    /// The attributes of `node`, from the cache while they are valid. Through `file` if given, so
    /// that an object without a name is still reached.
    pub fn attributes(&self, node: &Node, file: Option<&OpenFile>) -> Result<Attributes> {
        if let Some(attributes) = node.inode.cached_attributes() {
            self.core.counters.attribute_hits.hit();
            return Ok(attributes);
        }
        self.core.counters.attribute_misses.hit();
        match file {
            Some(file) => self.core.refresh(node, file.reference()),
            None => self.refresh_node(node),
        }
    }

    /// The attributes and how long they are valid, if cached. Never blocks on the store.
    pub fn try_attributes(&self, node: &Node) -> Option<(Attributes, Duration)> {
        let attributes = node.inode.cached_attributes()?;
        self.core.counters.attribute_hits.hit();
        Some(node.inode.believed(attributes))
    }

    /// The attributes that a frontend may cache after the answer `attributes` of `node`, and for
    /// how long. They are newer ones, if a change came between.
    pub fn believed(&self, node: &Node, attributes: Attributes) -> (Attributes, Duration) {
        node.inode.believed(attributes)
    }

    /// Changes attributes and returns them all. May block.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] and [`Error::Access`] by the rules of chmod(2), chown(2),
    /// truncate(2) and utimensat(2); [`Error::IsDirectory`] when cutting a directory.
    pub fn set_attributes(
        &self,
        caller: &Caller,
        node: &Node,
        file: Option<&OpenFile>,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let changed = self.change_attributes(caller, node, file, set);
        self.notify_inode(caller, node, changed)
    }

    fn change_attributes(
        &self,
        caller: &Caller,
        node: &Node,
        file: Option<&OpenFile>,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.writable()?;
        if set.size.is_some() {
            check_size(node, set.size)?;
        }
        let set = self.permitted(caller, node, file, set)?;
        let reference = file.map_or(FileRef::unopened(node.id()), OpenFile::reference);
        let core = &self.core;
        // Rights decide which callers may pass. Dropped after the change: later walks see it.
        let rights = node.is_directory().then(|| RightsChange(&core.paths));
        let change = AttributeChange::begin(core, node);
        let ask = || core.backend().inodes().set_attributes(caller, reference, &set);
        let result = match set.size {
            Some(size) if core.caches_pages() => core.change_size(node, size, ask),
            None if set.mtime.is_some() => match node.inode.known_pages() {
                Some(pages) => core.change_times(pages, ask),
                None => ask(),
            },
            _ => ask(),
        };
        match &result {
            Ok(value) => {
                change.commit(*value);
            }
            Err(_) => drop(change),
        }
        drop(rights);
        if matches!(result, Err(Error::Stale)) {
            core.went_stale(node);
        }
        result.map(|value| node.inode.known_better(value))
    }

    /// Whether `caller` has the `wanted` access to `node`: access(2), by the given ids.
    pub fn access(&self, caller: &Caller, node: &Node, wanted: Access) -> Result<()> {
        if wanted.contains(Access::WRITE) && !node.kind().is_special() {
            self.writable()?;
        }
        self.check(&Caller { checks: Checks::Enforce, ..caller.clone() }, node, wanted)
    }

    /// Totals of the store: statvfs(3).
    pub fn totals(&self) -> Result<Totals> {
        self.core.backend().totals()
    }

    /// The change as the rules allow it for `caller`.
    fn permitted(
        &self,
        caller: &Caller,
        node: &Node,
        file: Option<&OpenFile>,
        set: &SetAttributes,
    ) -> Result<SetAttributes> {
        if caller.checks == Checks::Done {
            return Ok(*set);
        }
        let attributes = self.attributes(node, file)?;
        let acl = self.access_acl(caller, node, &attributes)?;
        // A caller with the file open for writing may cut it, whatever its present mode.
        let by_handle = file.is_some_and(|file| file.mode().write);
        let asked = SetAttributes { size: set.size.filter(|_| !by_handle), ..*set };
        let allowed =
            permission::check_set_attributes(caller, &attributes, acl.as_deref(), &asked)?;
        Ok(SetAttributes { size: set.size, ..allowed })
    }
}

fn check_size(node: &Node, size: Option<u64>) -> Result<()> {
    match (node.kind(), size) {
        (crate::FileKind::Directory, _) => Err(Error::IsDirectory),
        (crate::FileKind::Regular, Some(size)) if size > i64::MAX as u64 => Err(Error::TooBig),
        (crate::FileKind::Regular, _) => Ok(()),
        _ => Err(Error::Invalid("only a regular file has a size to set")),
    }
}
