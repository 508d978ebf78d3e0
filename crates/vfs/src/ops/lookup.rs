//! Finding a name in a directory.

use crate::attributes::Attributes;
use crate::backend::FileRef;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::name::Name;
use crate::names::Meaning;
use crate::permission::Access;
use crate::vfs::Vfs;
use std::time::Duration;

/// A found object, and how long a frontend may believe what it was told.
#[derive(Debug)]
pub struct Found {
    /// The object, held.
    pub node: Node,
    /// Its attributes.
    pub attributes: Attributes,
    /// For how much longer the name is believed.
    pub entry_valid: Duration,
    /// For how much longer the attributes are believed.
    pub attributes_valid: Duration,
}

/// The answer to a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// There is one.
    Found(Found),
    /// There is none, and that is believed for so long.
    Missing(Duration),
}

impl Found {
    /// `node`, which the store said has these attributes, under a name believed for so long.
    pub(super) fn new(node: Node, attributes: Attributes, entry_valid: Duration) -> Self {
        let (attributes, attributes_valid) = node.inode.believed(attributes);
        Self { node, attributes, entry_valid, attributes_valid }
    }
}

impl Lookup {
    /// The object, or [`Error::NotFound`].
    pub fn found(self) -> Result<Found> {
        match self {
            Lookup::Found(found) => Ok(found),
            Lookup::Missing(_) => Err(Error::NotFound),
        }
    }
}

impl Vfs {
    /// Finds `name` in `parent`. Blocks on the store only if the caches do not know.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Access`] without search permission, [`Error::Stale`] if
    /// `parent` has gone from the store.
    pub fn lookup(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<Lookup> {
        if !parent.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.check(caller, parent, Access::EXECUTE)?;
        match self.lookup_cached(parent, name) {
            Some(answer) => Ok(answer),
            None => self.lookup_in_store(caller, parent, name),
        }
    }

    /// Finds `name` in `parent` for a caller whose permissions are checked elsewhere, if the caches
    /// know the whole answer. Never blocks on the store.
    pub fn try_lookup(&self, parent: &Node, name: Name<'_>) -> Option<Lookup> {
        self.lookup_cached(parent, name)
    }

    fn lookup_cached(&self, parent: &Node, name: Name<'_>) -> Option<Lookup> {
        let core = &self.core;
        let (meaning, entry_valid) = core.names.find(parent.id(), name)?;
        match meaning {
            Meaning::Missing => {
                core.counters.negative_hits.hit();
                Some(Lookup::Missing(entry_valid))
            }
            Meaning::Inode(id) => {
                let node = core.inodes.find(id)?;
                let attributes = node.inode.cached_attributes()?;
                core.counters.name_hits.hit();
                Some(Lookup::Found(Found::new(node, attributes, entry_valid)))
            }
        }
    }

    fn lookup_in_store(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<Lookup> {
        let core = &self.core;
        core.counters.name_misses.hit();
        let ticket = core.clock.now();
        match core.backend().lookup(caller, parent.id(), name) {
            Ok(entry) => {
                let node = core.adopt(&entry, ticket);
                node.inode.set_parent(parent, ticket);
                let valid = core.keep_name(parent, ticket, name, Meaning::Inode(entry.inode));
                Ok(Lookup::Found(Found::new(node, entry.attributes, valid)))
            }
            Err(Error::NotFound) => {
                Ok(Lookup::Missing(core.keep_name(parent, ticket, name, Meaning::Missing)))
            }
            Err(error) => {
                if matches!(error, Error::Stale) {
                    core.went_stale(parent);
                }
                Err(error)
            }
        }
    }

    /// The object that `name` leads to, from the store if need be: for changes, which have to tell
    /// it that it lost or gained a name.
    pub(super) fn child(&self, caller: &Caller, directory: &Node, name: Name<'_>) -> Result<Node> {
        let cached = match self.core.names.find(directory.id(), name) {
            Some((Meaning::Inode(id), _)) => self.core.inodes.find(id),
            _ => None,
        };
        match cached {
            Some(node) => Ok(node),
            None => Ok(self.lookup_in_store(caller, directory, name)?.found()?.node),
        }
    }

    /// Re-reads an object's attributes from the store, through no open file.
    pub(super) fn refresh_node(&self, node: &Node) -> Result<Attributes> {
        self.core.refresh(node, FileRef::unopened(node.id()))
    }
}
