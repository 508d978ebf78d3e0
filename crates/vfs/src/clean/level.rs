//! Cached entries of one directory, by its subdirectories.
//!
//! # Boundary
//! Counts one level, on demand, and changes nothing. [`super::resident`] counts all levels at once.
//!
//! # Why
//! An interactive view asks for one directory at a time, and a cache of a million names may have as many directories.
//! So no path is built, and nothing is kept for directories outside the level. A table of fixed size remembers which
//! subdirectory contains another directory. An overwritten entry is found again by walking up. The budget includes the
//! memory during a count: at most 2 MiB for that table, and some 150 bytes for each subdirectory, of which
//! [`CHILDREN_MAX`] are distinguished. If no entry was inserted or removed since, a repeated request is not counted
//! again ([`super::views`]). Weakness: a count visits the whole name table, however small the directory is.

use super::pass;
use super::resident::Resident;
use super::views::Charge;
use crate::backend::InodeId;
use crate::inode::{INODE_BYTES, Node};
use crate::names::CachedName;
use crate::page::PAGE;
use crate::policy::CachePolicy;
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

/// Subdirectories that are distinguished. The others share one sum.
pub const CHILDREN_MAX: usize = 1 << 15;
/// Directories with a remembered place, at most.
const MEMO: usize = 1 << 17;
/// The least size of that table.
const MEMO_LEAST: usize = 1 << 6;
/// Directories on the way up that are remembered, too.
const PASSED: usize = 64;

/// Cached entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResidentLevel {
    /// Directly in it.
    pub own: Resident,
    /// Subdirectories with cached entries, in no order.
    pub children: Vec<ResidentChild>,
    /// In and below the subdirectories beyond [`CHILDREN_MAX`].
    pub rest: Resident,
}

/// A subdirectory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentChild {
    /// Number of the subdirectory here.
    pub inode: InodeId,
    /// `None` if its name is not cached.
    pub name: Option<Vec<u8>>,
    /// In and below it.
    pub resident: Resident,
    /// The policy valid in it; `None` if it is not cached itself.
    pub policy: Option<CachePolicy>,
}

impl Vfs {
    /// Cached entries of `directory`, by its subdirectories. Visits all caches in steps, with no lock held between
    /// them, unless no entry was inserted or removed since the last count. Never asks the store.
    pub fn resident_level(&self, directory: &Node) -> ResidentLevel {
        let (core, top) = (&self.core, directory.id());
        let mut level = core.counted(top, || Count::new(core, top).run());
        // A mark of a directory does not change the count.
        for child in &mut level.children {
            child.policy = core.policy_in(child.inode);
        }
        level
    }

    /// The subdirectory of `directory` that is `below` or contains it, as far as it is cached; `directory` itself if
    /// `below` is that. `None` if it is elsewhere, or a directory on the way is not cached.
    pub fn child_towards(&self, directory: &Node, below: InodeId) -> Option<InodeId> {
        let mut places = Places::new(&self.core, directory.id(), 1);
        match places.find(below) {
            OWN => Some(directory.id()),
            place => places.children.get(place as usize).copied(),
        }
    }
}

/// A directory's place: the number of a subdirectory of the top, or one of these.
type ChildIndex = u32;
/// The top itself.
const OWN: ChildIndex = ChildIndex::MAX;
/// In a subdirectory that is not distinguished.
const REST: ChildIndex = ChildIndex::MAX - 1;
/// Elsewhere, or not known.
const OUTSIDE: ChildIndex = ChildIndex::MAX - 2;

/// Places of directories relative to the top.
struct Places<'a> {
    core: &'a Core,
    top: InodeId,
    /// The subdirectories of the top.
    children: Vec<InodeId>,
    numbers: HashMap<InodeId, ChildIndex>,
    /// Directories and their places.
    memo: Box<[(InodeId, ChildIndex)]>,
}

/// No directory has this number.
const NONE: InodeId = InodeId(u64::MAX);

impl<'a> Places<'a> {
    /// `memo` is a power of two.
    fn new(core: &'a Core, top: InodeId, memo: usize) -> Self {
        let (children, numbers) = (Vec::new(), HashMap::new());
        Self { core, top, children, numbers, memo: vec![(NONE, OUTSIDE); memo].into() }
    }

    fn slot(&self, directory: InodeId) -> usize {
        let mixed = directory.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.memo.len() - 1)
    }

    fn known(&self, directory: InodeId) -> Option<ChildIndex> {
        let (of, place) = self.memo[self.slot(directory)];
        (of == directory).then_some(place)
    }

    /// The number of a directory of the level.
    fn number(&mut self, child: InodeId) -> ChildIndex {
        if let Some(number) = self.numbers.get(&child) {
            return *number;
        }
        let number = self.children.len();
        if number >= CHILDREN_MAX {
            return REST;
        }
        self.children.push(child);
        self.numbers.insert(child, number as ChildIndex);
        number as ChildIndex
    }

    /// The place of `directory`.
    fn find(&mut self, directory: InodeId) -> ChildIndex {
        if directory == self.top {
            return OWN;
        }
        if let Some(place) = self.known(directory) {
            return place;
        }
        let mut passed = vec![directory];
        let (mut at, mut steps) = (self.core.inodes.peek(directory), 0);
        let place = loop {
            let Some(node) = at else { break OUTSIDE };
            let Some(above) = node.parent() else { break OUTSIDE };
            if above.id() == self.top {
                break self.number(node.id());
            }
            if let Some(place) = self.known(above.id()) {
                break place;
            }
            // Where other programs move directories, cached parents may form a circle.
            steps += 1;
            if steps > self.core.inodes.count() {
                break OUTSIDE;
            }
            if passed.len() < PASSED {
                passed.push(above.id());
            }
            at = Some(above);
        };
        for directory in passed {
            let slot = self.slot(directory);
            self.memo[slot] = (directory, place);
        }
        place
    }

    fn bytes(&self) -> usize {
        let number = 2 * size_of::<(InodeId, ChildIndex)>();
        size_of_val(&*self.memo) + self.children.capacity() * (size_of::<InodeId>() + number)
    }
}

/// A visited name: its directory, its bytes, whether it leads to an inode.
type Seen = (InodeId, u64, bool);

struct Count<'a> {
    core: &'a Core,
    charge: Charge<'a>,
    places: Places<'a>,
    own: Resident,
    rest: Resident,
    /// For each subdirectory.
    sums: Vec<Resident>,
    names: HashMap<InodeId, Vec<u8>>,
    /// Objects seen in the present step.
    seen: Vec<Seen>,
    named: Vec<(InodeId, Vec<u8>)>,
}

impl<'a> Count<'a> {
    fn new(core: &'a Core, top: InodeId) -> Self {
        // A directory with cached names has a name itself, except for the root.
        let memo = core.names.count().next_power_of_two().clamp(MEMO_LEAST, MEMO);
        Self {
            core,
            charge: Charge::new(&core.views),
            places: Places::new(core, top, memo),
            own: Resident::default(),
            rest: Resident::default(),
            sums: Vec::new(),
            names: HashMap::new(),
            seen: Vec::new(),
            named: Vec::new(),
        }
    }

    fn run(mut self) -> ResidentLevel {
        let top = self.places.top;
        // The visit takes no lock. Work that takes one is done between the steps.
        let visit = |count: &mut Self, entry: &CachedName| {
            let (directory, inode) = (InodeId(entry.parent()), entry.value().inode());
            count.seen.push((directory, entry.bytes() as u64, inode.is_some()));
            if directory == top
                && let Some(inode) = inode
                && inode.is_directory()
            {
                count.named.push((inode.id, entry.name().into()));
            }
        };
        pass::names(self.core, &mut self, visit, Self::count_names);
        pass::pages(self.core, |home, pages, dirty| {
            if let Some(sum) = self.sum(home) {
                sum.pages.add(pages, pages * PAGE);
                sum.dirty.add(dirty, dirty * PAGE);
            }
        });
        self.finish()
    }

    fn count_names(&mut self) {
        let mut seen = std::mem::take(&mut self.seen);
        for (directory, bytes, has_inode) in seen.drain(..) {
            let Some(sum) = self.sum(directory) else { continue };
            sum.names.add(1, bytes);
            if has_inode {
                sum.inodes.add(1, INODE_BYTES as u64);
            }
        }
        self.seen = seen;
        for (directory, name) in self.named.drain(..) {
            // Subdirectories that are not distinguished need none.
            if self.places.number(directory) != REST {
                self.names.insert(directory, name);
            }
        }
        let named = self.names.len() * 2 * size_of::<(InodeId, Vec<u8>)>();
        let sums = self.sums.capacity() * size_of::<Resident>();
        let seen = self.seen.capacity() * size_of::<Seen>();
        self.charge.set(self.places.bytes() + named + sums + seen);
    }

    /// The sum for entries of `directory`.
    fn sum(&mut self, directory: InodeId) -> Option<&mut Resident> {
        match self.places.find(directory) {
            OUTSIDE => None,
            OWN => Some(&mut self.own),
            REST => Some(&mut self.rest),
            place => {
                let place = place as usize;
                if place >= self.sums.len() {
                    self.sums.resize(place + 1, Resident::default());
                }
                Some(&mut self.sums[place])
            }
        }
    }

    fn finish(mut self) -> ResidentLevel {
        let nothing = Resident::default();
        self.sums.resize(self.places.children.len(), nothing);
        let all = self.places.children.iter().zip(&self.sums);
        let held = all.filter(|(_, resident)| **resident != nothing);
        let children = held.map(|(&inode, &resident)| {
            let name = self.names.remove(&inode);
            ResidentChild { inode, name, resident, policy: None }
        });
        ResidentLevel { children: children.collect(), own: self.own, rest: self.rest }
    }
}
