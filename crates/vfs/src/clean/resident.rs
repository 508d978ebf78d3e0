//! Cached entries below a directory, by directory.
//!
//! # Boundary
//! Counts, on demand, and changes nothing.
//!
//! # Why
//! No counters are kept: every name that is inserted or evicted would write to a counter per directory, also in the
//! clock hand, which knows no directories. So a count costs nothing until a caller asks. Then it visits the caches
//! once, in steps, with no lock held between them. If no entry was inserted or removed since, the last answer is
//! returned again ([`super::views`]). Weakness: a request every second, for a changing cache of millions, takes a third
//! of a processor. An entry that moves meanwhile may be counted at its old place.

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

/// Cached entries of some directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// Names, negative entries included.
    pub names: Amount,
    /// Inodes of these names. An inode with several names counts with each.
    pub inodes: Amount,
    /// Pages of files.
    pub pages: Amount,
    /// Pages that the store does not have yet.
    pub dirty: Amount,
}

/// Entries cached directly in one directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentDirectory {
    /// Number of the directory here.
    pub inode: InodeId,
    /// Path from the requested directory; empty for that one itself. `None` if a name on the way is not cached.
    pub path: Option<Vec<u8>>,
    /// Without entries of directories below.
    pub resident: Resident,
    /// The policy valid in it; `None` if the directory is not cached itself.
    pub policy: Option<CachePolicy>,
}

impl Resident {
    /// The sum of both.
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
    /// Entries cached below `directory`, in use or not. Visits all caches; never asks the store.
    pub fn resident(&self, directory: &Node) -> Resident {
        let all = Count::new(&self.core, directory.id()).run();
        all.iter().fold(Resident::default(), |sum, one| sum.plus(&one.resident))
    }

    /// Counts cached entries by directory, without empty ones, in no order. Returns the last answer again if no entry
    /// was inserted or removed since.
    pub fn resident_by_directory(&self, directory: &Node) -> Vec<ResidentDirectory> {
        let (core, top) = (&self.core, directory.id());
        let mut all = core.counted(top, || Count::new(core, top).run());
        // A mark of a directory does not change the count.
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
            // Concurrent renames may make a circle of the visited names.
            if names.len() > self.links.len() {
                return None;
            }
            at = *above;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }
}
