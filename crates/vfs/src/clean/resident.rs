//! What is cached below a directory, by directory.
//!
//! # Boundary
//! Counts, on demand, and changes nothing.
//!
//! # Why
//! Nothing is kept for it: a counter per directory would be written by every name that comes or goes, also
//! by the clock hand, which knows no directories. So it costs nothing until somebody asks, and then once
//! around the caches, in steps, with no lock held between them. Weakness: who asks every second of a
//! cache of millions keeps a tenth of a processor busy, and what moves meanwhile may be counted where
//! it was.

use super::Amount;
use super::below::Below;
use crate::backend::InodeId;
use crate::inode::{INODE_BYTES, Node};
use crate::page::PAGE;
use crate::policy::CachePolicy;
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;

/// What is cached of some directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// Names, those included that are known to be missing.
    pub names: Amount,
    /// Inodes that these names lead to. One with several names counts with each.
    pub inodes: Amount,
    /// Pages of files.
    pub pages: Amount,
    /// Those of them that the store does not have yet.
    pub dirty: Amount,
}

/// What is cached directly in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentDirectory {
    /// Its number here.
    pub inode: InodeId,
    /// Its path from the directory that was asked about: empty for that one itself. `None` where a name on
    /// the way is not cached.
    pub path: Option<Vec<u8>>,
    /// Without what is in directories below.
    pub resident: Resident,
    /// What holds in it; `None` where the directory is not cached itself.
    pub policy: Option<CachePolicy>,
}

impl Resident {
    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        let add = |into: &mut Amount, more: Amount| into.add(more.entries, more.bytes);
        add(&mut self.names, other.names);
        add(&mut self.inodes, other.inodes);
        add(&mut self.pages, other.pages);
        add(&mut self.dirty, other.dirty);
        self
    }
}

impl Vfs {
    /// What is cached below `directory`: in memory, whether it is in use or not. Goes once around the
    /// caches; never asks the store.
    pub fn resident(&self, directory: &Node) -> Resident {
        let all = self.resident_by_directory(directory);
        all.iter().fold(Resident::default(), |sum, one| sum.plus(&one.resident))
    }

    /// The same by directory, those left out in which nothing is cached; in no order.
    pub fn resident_by_directory(&self, directory: &Node) -> Vec<ResidentDirectory> {
        let mut count = Count::new(&self.core, directory.id());
        count.names();
        count.pages();
        count.finish()
    }
}

/// A directory's name, and the directory that it is in.
type Link = (InodeId, Box<[u8]>);

struct Count<'a> {
    core: &'a Core,
    top: InodeId,
    below: Below<'a>,
    found: HashMap<InodeId, Resident>,
    links: HashMap<InodeId, Link>,
}

impl<'a> Count<'a> {
    fn new(core: &'a Core, top: InodeId) -> Self {
        let (found, links) = (HashMap::new(), HashMap::new());
        Self { core, top, below: Below::new(core, top), found, links }
    }

    fn names(&mut self) {
        let mut at = 0;
        while at < self.core.names.buckets() {
            let (found, links) = (&mut self.found, &mut self.links);
            self.core.names.visit((at, BUCKETS), |entry| {
                let directory = InodeId(entry.parent());
                let resident = found.entry(directory).or_default();
                resident.names.add(1, entry.bytes() as u64);
                if let Some(inode) = entry.value().inode() {
                    resident.inodes.add(1, INODE_BYTES as u64);
                    if inode.is_directory() {
                        links.insert(inode.id, (directory, entry.name().into()));
                    }
                }
            });
            at += BUCKETS;
            std::thread::yield_now();
        }
    }

    fn pages(&mut self) {
        for file in self.core.pages.files() {
            let Some(home) = file.directory() else { continue };
            let (pages, dirty) = file.resident();
            if pages > 0 && self.below.holds(home.id()) {
                let resident = self.found.entry(home.id()).or_default();
                resident.pages.add(pages, pages * PAGE);
                resident.dirty.add(dirty, dirty * PAGE);
            }
        }
    }

    fn finish(mut self) -> Vec<ResidentDirectory> {
        let found = std::mem::take(&mut self.found);
        let below = found.into_iter().filter(|(directory, _)| self.below.holds(*directory));
        let below: Vec<_> = below.collect();
        let path = |(id, resident)| ResidentDirectory {
            inode: id,
            path: self.path(id),
            resident,
            policy: self.core.policy_in(id),
        };
        below.into_iter().map(path).collect()
    }

    fn path(&self, directory: InodeId) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), directory);
        while at != self.top {
            let (above, name) = self.links.get(&at)?;
            names.push(&**name);
            // Renames under way may make a circle of what was seen.
            if names.len() > self.links.len() {
                return None;
            }
            at = *above;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }
}
