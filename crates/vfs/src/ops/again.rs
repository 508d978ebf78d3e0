//! Finds an object again by a number that outlives its cache entries.
//!
//! # Boundary
//! By number, for frontends whose users keep a number and return with it ([`crate::Export::by_number`]). A caller that
//! knows a place asks by name.
//!
//! # Why
//! Policies, cleans and `..` need the parent of a directory, which this way does not show. So the store is asked for
//! it, once. Weakness: a file is found without its directory, until it is looked up.

use crate::attributes::Attributes;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::vfs::Vfs;

/// Most directories between a directory that was found and one with a known parent.
const DEPTH_MAX: usize = 1 << 16;

impl Vfs {
    /// The object with the user-visible `number`, from the store. May block.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is gone, [`Error::Unsupported`] where the store keeps no index of numbers.
    pub fn by_number(&self, number: u64) -> Result<(Node, Attributes)> {
        let core = &self.core;
        let ticket = core.clock.now();
        let entry = core.store_export()?.by_number(number)?;
        let node = core.adopt(&entry, ticket);
        if entry.attributes.number != number {
            return Err(Error::Stale);
        }
        if node.is_directory() {
            self.find_way_up(&node)?;
        }
        Ok((node, entry.attributes))
    }

    /// Asks the store for the parents of `directory` up to one whose own parent is known.
    fn find_way_up(&self, directory: &Node) -> Result<()> {
        let core = &self.core;
        let mut below = directory.clone();
        for _ in 0..DEPTH_MAX {
            if below == *self.root() || below.parent().is_some() {
                return Ok(());
            }
            let ticket = core.clock.now();
            let entry = core.store_export()?.parent_of(below.id())?;
            let parent = core.adopt(&entry, ticket);
            below.inode.set_parent(&parent, ticket);
            below = parent;
        }
        Err(Error::Stale)
    }
}
