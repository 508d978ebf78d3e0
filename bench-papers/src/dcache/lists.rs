//! The lists of a dentry cache besides the hash chains: least recently used, and children.
//!
//! # Concurrency
//! The links are fields of the dentries; the values here stand for the right to change them. Each
//! lies inside the lock that protects its list, so the compiler asks for the lock.

use super::slab::{Id, Slab};

/// Unused dentries, the least recently used one last. Linux `dentry_unused`.
#[derive(Debug, Default)]
pub(super) struct Lru {
    first: Option<Id>,
    last: Option<Id>,
    count: usize,
}

impl Lru {
    /// Dentries in the list.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The next to be pruned.
    pub(super) fn last(&self) -> Option<Id> {
        self.last
    }

    /// Puts a dentry at the front, where it stays longest.
    pub(super) fn push_first(&mut self, slab: &Slab, id: Id) {
        let dentry = slab.at(id);
        debug_assert!(!dentry.on_lru.get());
        dentry.on_lru.set(true);
        dentry.lru_previous.set(None);
        dentry.lru_next.set(self.first);
        match self.first {
            Some(first) => slab.at(first).lru_previous.set(Some(id)),
            None => self.last = Some(id),
        }
        self.first = Some(id);
        self.count += 1;
    }

    /// Puts a dentry at the end, where it is pruned next.
    pub(super) fn push_last(&mut self, slab: &Slab, id: Id) {
        let dentry = slab.at(id);
        debug_assert!(!dentry.on_lru.get());
        dentry.on_lru.set(true);
        dentry.lru_next.set(None);
        dentry.lru_previous.set(self.last);
        match self.last {
            Some(last) => slab.at(last).lru_next.set(Some(id)),
            None => self.first = Some(id),
        }
        self.last = Some(id);
        self.count += 1;
    }

    /// Takes a dentry out, if it is in the list.
    pub(super) fn remove(&mut self, slab: &Slab, id: Id) {
        let dentry = slab.at(id);
        if !dentry.on_lru.get() {
            return;
        }
        dentry.on_lru.set(false);
        let (previous, next) = (dentry.lru_previous.get(), dentry.lru_next.get());
        match previous {
            Some(previous) => slab.at(previous).lru_next.set(next),
            None => self.first = next,
        }
        match next {
            Some(next) => slab.at(next).lru_previous.set(previous),
            None => self.last = previous,
        }
        self.count -= 1;
    }

    /// Every dentry in the list, first to last.
    pub(super) fn all<'a>(&self, slab: &'a Slab) -> impl Iterator<Item = Id> + use<'a> {
        std::iter::successors(self.first, |id| slab.at(*id).lru_next.get())
    }
}

/// Children of directories: Linux `d_subdirs` and `d_child`. Also counts the dentries.
#[derive(Debug, Default)]
pub(super) struct Tree {
    count: usize,
}

impl Tree {
    /// Dentries below the root.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Adds `child` to the children of its parent.
    pub(super) fn add(&mut self, slab: &Slab, child: Id) {
        let dentry = slab.at(child);
        let parent = slab.at(dentry.parent().expect("the root is nobody's child"));
        let first = parent.first_child.get();
        dentry.previous_sibling.set(None);
        dentry.next_sibling.set(first);
        if let Some(first) = first {
            slab.at(first).previous_sibling.set(Some(child));
        }
        parent.first_child.set(Some(child));
        self.count += 1;
    }

    /// Takes `child` from the children of its parent.
    pub(super) fn remove(&mut self, slab: &Slab, child: Id) {
        let dentry = slab.at(child);
        let parent = slab.at(dentry.parent().expect("the root is nobody's child"));
        let (previous, next) = (dentry.previous_sibling.get(), dentry.next_sibling.get());
        match previous {
            Some(previous) => slab.at(previous).next_sibling.set(next),
            None => parent.first_child.set(next),
        }
        if let Some(next) = next {
            slab.at(next).previous_sibling.set(previous);
        }
        self.count -= 1;
    }

    /// Everything below `parent`, children before their own children.
    pub(super) fn below(&self, slab: &Slab, parent: Id) -> Vec<Id> {
        let mut all = Vec::new();
        let mut next = slab.at(parent).first_child.get();
        let mut done = 0;
        loop {
            while let Some(id) = next {
                all.push(id);
                next = slab.at(id).next_sibling.get();
            }
            let Some(directory) = all.get(done) else { return all };
            next = slab.at(*directory).first_child.get();
            done += 1;
        }
    }
}

/// Both, where one lock protects both.
#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) lru: Lru,
    pub(super) tree: Tree,
}

/// The lists that a `dcache_lock` protects in every variant.
pub(super) trait HasTree {
    /// Children of directories.
    fn tree(&mut self) -> &mut Tree;
}

impl HasTree for Tree {
    fn tree(&mut self) -> &mut Tree {
        self
    }
}

impl HasTree for Lists {
    fn tree(&mut self) -> &mut Tree {
        &mut self.tree
    }
}
