//! What is cached below a directory, by directory.
//!
//! # Boundary
//! Counts, on demand, and changes nothing.
//!
//! # Why
//! Nothing is kept for it: a counter per directory would be written by every name that comes or goes, also
//! by the clock hand, which knows no directories. So it costs nothing until somebody asks, and then once
//! around the caches, in steps, with no lock held between them; who asks again while nothing came or went gets the last answer
//! ([`super::views`]). Weakness: who asks every second of a cache of millions in which names come and go keeps a third of a
//! processor busy, and what moves meanwhile may be counted where it was.

use super::Amount;
use super::below::Below;
use super::pass;
use super::views::Charge;
use crate::backend::InodeId;
use crate::inode::{INODE_BYTES, Node};
use crate::names::CachedName;
use crate::page::PAGE;
use crate::policy::CachePolicy;
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

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
        let all = Count::new(&self.core, directory.id()).run();
        all.iter().fold(Resident::default(), |sum, one| sum.plus(&one.resident))
    }

    /// The same by directory, those left out in which nothing is cached; in no order. The last answer serves again if nothing
    /// came or went since.
    pub fn resident_by_directory(&self, directory: &Node) -> Vec<ResidentDirectory> {
        let (core, top) = (&self.core, directory.id());
        let mut all = core.counted(top, || Count::new(core, top).run());
        // Marking a directory changes nothing that is cached.
        for one in &mut all {
            one.policy = core.policy_in(one.inode);
        }
        all
    }
}

/// A directory's name, and the directory that it is in.
type Link = (InodeId, Box<[u8]>);

/// Memory of one entry of a hash table, with the table's slack.
const fn entry_bytes<T>() -> usize {
    2 * (size_of::<(InodeId, T)>() + 1)
}

struct Count<'a> {
    core: &'a Core,
    charge: Charge<'a>,
    top: InodeId,
    below: Below<'a>,
    found: HashMap<InodeId, Resident>,
    links: HashMap<InodeId, Link>,
    names_bytes: usize,
}

impl<'a> Count<'a> {
    fn new(core: &'a Core, top: InodeId) -> Self {
        Self {
            core,
            charge: Charge::new(&core.views),
            top,
            below: Below::new(core, top),
            found: HashMap::new(),
            links: HashMap::new(),
            names_bytes: 0,
        }
    }

    fn run(mut self) -> Vec<ResidentDirectory> {
        pass::names(self.core, &mut self, Self::see, |count| {
            let (found, links) = (count.found.len(), count.links.len());
            let entries = found * entry_bytes::<Resident>() + links * entry_bytes::<Link>();
            count.charge.set(entries + count.names_bytes);
        });
        pass::pages(self.core, |home, pages, dirty| {
            if self.below.holds(home) {
                let resident = self.found.entry(home).or_default();
                resident.pages.add(pages, pages * PAGE);
                resident.dirty.add(dirty, dirty * PAGE);
            }
        });
        self.finish()
    }

    fn see(&mut self, entry: &CachedName) {
        let directory = InodeId(entry.parent());
        let resident = self.found.entry(directory).or_default();
        resident.names.add(1, entry.bytes() as u64);
        let Some(inode) = entry.value().inode() else { return };
        resident.inodes.add(1, INODE_BYTES as u64);
        if inode.is_directory() {
            self.names_bytes += entry.name().len();
            self.links.insert(inode.id, (directory, entry.name().into()));
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
            policy: None,
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
