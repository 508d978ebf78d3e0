//! What is cached in one directory, by the directories in it.
//!
//! # Boundary
//! Counts one level, on demand, and changes nothing. All levels at once are [`super::resident`]'s.
//!
//! # Why
//! A view that one goes into asks for one directory at a time, and a cache of a million names may have as many directories: so no
//! path is made, and nothing is kept for a directory that is not of the level. Which directory of the level another one
//! lies in is remembered in a table of fixed size, and found again by going up where it was overwritten. Memory: 2 MiB for
//! that table, and some 150 bytes for each directory of the level, of which [`CHILDREN_MAX`] are told apart. Weakness: goes once
//! around the name table, however small the directory is.

use super::resident::Resident;
use crate::backend::InodeId;
use crate::inode::{INODE_BYTES, Node};
use crate::page::PAGE;
use crate::policy::CachePolicy;
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

/// Directories of one level that are told apart; the rest is one sum.
pub const CHILDREN_MAX: usize = 1 << 15;
/// Buckets of the name table in one step.
const BUCKETS: usize = 256;
/// Directories whose place is remembered.
const MEMO: usize = 1 << 17;
/// Directories on the way up that are remembered, too.
const PASSED: usize = 64;

/// What is cached in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResidentLevel {
    /// Directly in it.
    pub own: Resident,
    /// The directories in it, in no order; those left out in which nothing is cached.
    pub children: Vec<ResidentChild>,
    /// In and below the directories in it that are more than [`CHILDREN_MAX`].
    pub rest: Resident,
}

/// A directory of the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResidentChild {
    /// Its number here.
    pub inode: InodeId,
    /// `None` if its name is not cached.
    pub name: Option<Vec<u8>>,
    /// In and below it.
    pub resident: Resident,
    /// What holds in it; `None` where it is not cached itself.
    pub policy: Option<CachePolicy>,
}

impl Vfs {
    /// What is cached in `directory`, by the directories in it. Goes once around the caches, in steps, with no lock held
    /// between them; never asks the store.
    pub fn resident_level(&self, directory: &Node) -> ResidentLevel {
        let mut count = Count::new(&self.core, directory.id());
        count.names();
        count.pages();
        count.finish()
    }

    /// The directory in `directory` that `below` is or lies in, by what is cached; `directory` itself if `below` is that.
    /// `None` where it lies elsewhere, or a directory on the way is not cached.
    pub fn child_towards(&self, directory: &Node, below: InodeId) -> Option<InodeId> {
        Places::new(&self.core, directory.id(), 1).find(below)
    }
}

/// Where directories lie, seen from one.
struct Places<'a> {
    core: &'a Core,
    top: InodeId,
    /// A directory, and the one of the level that it lies in: the top itself, or [`OUTSIDE`].
    memo: Box<[(InodeId, InodeId)]>,
}

/// No directory has this number.
const OUTSIDE: InodeId = InodeId(u64::MAX);

impl<'a> Places<'a> {
    /// `memo` is a power of two.
    fn new(core: &'a Core, top: InodeId, memo: usize) -> Self {
        Self { core, top, memo: vec![(OUTSIDE, OUTSIDE); memo].into() }
    }

    fn slot(&self, directory: InodeId) -> usize {
        let mixed = directory.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (self.memo.len() - 1)
    }

    /// The directory of the level that `directory` is or lies in; the top, if it is that.
    fn find(&mut self, directory: InodeId) -> Option<InodeId> {
        let known = |places: &Self, at: InodeId| {
            let (of, child) = places.memo[places.slot(at)];
            (of == at).then_some(child)
        };
        if directory == self.top {
            return Some(self.top);
        }
        if let Some(child) = known(self, directory) {
            return (child != OUTSIDE).then_some(child);
        }
        let mut passed = vec![directory];
        let (mut at, mut steps) = (self.core.inodes.peek(directory), 0);
        let child = loop {
            let Some(node) = at else { break OUTSIDE };
            let Some(above) = node.parent() else { break OUTSIDE };
            if above.id() == self.top {
                break node.id();
            }
            if let Some(child) = known(self, above.id()) {
                break child;
            }
            // Where others move directories about, what is cached of them may be a circle.
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
            self.memo[slot] = (directory, child);
        }
        (child != OUTSIDE).then_some(child)
    }
}

/// A name that was seen: the directory that it is in, its bytes, whether it leads to an inode.
type Seen = (InodeId, u64, bool);

struct Count<'a> {
    core: &'a Core,
    places: Places<'a>,
    level: ResidentLevel,
    /// Where in the list each directory of the level is.
    children: HashMap<InodeId, usize>,
}

impl<'a> Count<'a> {
    fn new(core: &'a Core, top: InodeId) -> Self {
        let (places, level) = (Places::new(core, top, MEMO), ResidentLevel::default());
        Self { core, places, level, children: HashMap::new() }
    }

    fn names(&mut self) {
        let top = self.places.top;
        let (mut seen, mut named): (Vec<Seen>, Vec<(InodeId, Vec<u8>)>) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < self.core.names.buckets() {
            // Nothing that takes a lock: the visit may hold one.
            self.core.names.visit((at, BUCKETS), |entry| {
                let (directory, inode) = (InodeId(entry.parent()), entry.value().inode());
                seen.push((directory, entry.bytes() as u64, inode.is_some()));
                if directory == top
                    && let Some(inode) = inode
                    && inode.is_directory()
                {
                    named.push((inode.id, entry.name().into()));
                }
            });
            for (directory, bytes, has_inode) in seen.drain(..) {
                let Some(sum) = self.sum(directory) else { continue };
                sum.names.add(1, bytes);
                if has_inode {
                    sum.inodes.add(1, INODE_BYTES as u64);
                }
            }
            for (directory, name) in named.drain(..) {
                if let Some(child) = self.child(directory) {
                    child.name = Some(name);
                }
            }
            at += BUCKETS;
            std::thread::yield_now();
        }
    }

    fn pages(&mut self) {
        for file in self.core.pages.files() {
            let Some(home) = file.directory() else { continue };
            let (pages, dirty) = file.resident();
            if pages > 0
                && let Some(sum) = self.sum(home.id())
            {
                sum.pages.add(pages, pages * PAGE);
                sum.dirty.add(dirty, dirty * PAGE);
            }
        }
    }

    /// The sum that what is in `directory` counts to.
    fn sum(&mut self, directory: InodeId) -> Option<&mut Resident> {
        let place = self.places.find(directory)?;
        if place == self.places.top {
            return Some(&mut self.level.own);
        }
        // Two looks: the list is borrowed for as long as what is returned.
        match self.child_index(place) {
            Some(index) => Some(&mut self.level.children[index].resident),
            None => Some(&mut self.level.rest),
        }
    }

    fn child(&mut self, directory: InodeId) -> Option<&mut ResidentChild> {
        let index = self.child_index(directory)?;
        Some(&mut self.level.children[index])
    }

    fn child_index(&mut self, directory: InodeId) -> Option<usize> {
        if let Some(index) = self.children.get(&directory) {
            return Some(*index);
        }
        let index = self.level.children.len();
        if index >= CHILDREN_MAX {
            return None;
        }
        self.children.insert(directory, index);
        let (resident, policy) = (Resident::default(), None);
        self.level.children.push(ResidentChild { inode: directory, name: None, resident, policy });
        Some(index)
    }

    fn finish(mut self) -> ResidentLevel {
        let nothing = Resident::default();
        self.level.children.retain(|child| child.resident != nothing);
        for child in &mut self.level.children {
            child.policy = self.core.policy_in(child.inode);
        }
        self.level
    }
}
