//! Finds out which directories are below a given one.

use crate::backend::InodeId;
use crate::inode::{Inode, Node};
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

/// Directories remembered, at most. Others are searched for again.
const MEMO_MAX: usize = 1 << 18;

/// Answers whether directories are the top or below it, and remembers the answers, for one pass over the caches. A
/// directory that moves meanwhile may count at its old place.
pub(super) struct Below<'a> {
    core: &'a Core,
    top: InodeId,
    memo: HashMap<InodeId, bool>,
}

impl<'a> Below<'a> {
    pub(super) fn new(core: &'a Core, top: InodeId) -> Self {
        Self { core, top, memo: HashMap::from([(top, true)]) }
    }

    /// The remembered answer. Never takes a lock.
    pub(super) fn known(&self, directory: InodeId) -> Option<bool> {
        self.memo.get(&directory).copied()
    }

    /// Forgets the answers if there are very many.
    pub(super) fn trim(&mut self) {
        if self.memo.len() >= MEMO_MAX {
            self.memo = HashMap::from([(self.top, true)]);
        }
    }

    /// Whether `directory` is the top or below it. A directory that is not cached is not.
    pub(super) fn holds(&mut self, directory: InodeId) -> bool {
        if let Some(known) = self.known(directory) {
            return known;
        }
        let (mut passed, mut at) = (vec![directory], self.core.inodes.peek(directory));
        let answer = loop {
            let Some(above) = at.and_then(|node| node.inode.parent()) else { break false };
            if let Some(known) = self.known(above.id()) {
                break known;
            }
            // Where other programs move directories, cached parents may form a circle.
            if passed.len() > self.core.inodes.count() {
                break false;
            }
            passed.push(above.id());
            at = Some(above);
        };
        self.memo.extend(passed.into_iter().map(|id| (id, answer)));
        answer
    }

    /// Whether `inode` is below the directory, and is not the directory itself.
    pub(super) fn contains(&mut self, inode: &Inode) -> bool {
        inode.id != self.top && inode.parent_hint().is_some_and(|home| self.holds(home))
    }
}

impl Vfs {
    /// Whether `node` is below `directory` (and is not the directory itself), as far as it is cached. A file with
    /// several names counts where it was last found.
    pub fn is_below(&self, node: &Node, directory: &Node) -> bool {
        Below::new(&self.core, directory.id()).contains(&node.inode)
    }

    /// The `nodes` that are below `directory`, like [`Vfs::is_below`], but cheaper than one by one.
    pub fn those_below(&self, nodes: Vec<Node>, directory: &Node) -> Vec<Node> {
        let mut below = Below::new(&self.core, directory.id());
        nodes.into_iter().filter(|node| below.contains(&node.inode)).collect()
    }
}
