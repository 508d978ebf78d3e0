//! Which directories lie below one.

use crate::backend::InodeId;
use crate::inode::{Inode, Node};
use crate::vfs::{Core, Vfs};
use std::collections::HashMap;

/// Directories remembered at most; more are asked again.
const MEMO_MAX: usize = 1 << 18;

/// Says of directories whether they are one or lie below it, and remembers what it said: for one pass over
/// the caches. A directory that moves meanwhile may be taken for where it was.
pub(super) struct Below<'a> {
    core: &'a Core,
    top: InodeId,
    memo: HashMap<InodeId, bool>,
}

impl<'a> Below<'a> {
    pub(super) fn new(core: &'a Core, top: InodeId) -> Self {
        Self { core, top, memo: HashMap::from([(top, true)]) }
    }

    /// What is known without asking: never takes a lock.
    pub(super) fn known(&self, directory: InodeId) -> Option<bool> {
        self.memo.get(&directory).copied()
    }

    /// Forgets what was said, if that is very much.
    pub(super) fn trim(&mut self) {
        if self.memo.len() >= MEMO_MAX {
            self.memo = HashMap::from([(self.top, true)]);
        }
    }

    /// Whether `directory` is the one, or lies below it. A directory that is not cached does not.
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
            // Where others move directories about, what is cached of them may be a circle.
            if passed.len() > self.core.inodes.count() {
                break false;
            }
            passed.push(above.id());
            at = Some(above);
        };
        self.memo.extend(passed.into_iter().map(|id| (id, answer)));
        answer
    }

    /// Whether `inode` lies below the directory, and is not the directory itself.
    pub(super) fn contains(&mut self, inode: &Inode) -> bool {
        inode.id != self.top && inode.parent_hint().is_some_and(|home| self.holds(home))
    }
}

impl Vfs {
    /// Whether `node` lies below `directory` (and is not the directory itself), by what is cached: a file
    /// with several names lies where it was last found.
    pub fn is_below(&self, node: &Node, directory: &Node) -> bool {
        Below::new(&self.core, directory.id()).contains(&node.inode)
    }

    /// Those of `nodes` that lie below `directory`, as [`Vfs::is_below`] says: cheaper than one by one.
    pub fn those_below(&self, nodes: Vec<Node>, directory: &Node) -> Vec<Node> {
        let mut below = Below::new(&self.core, directory.id());
        nodes.into_iter().filter(|node| below.contains(&node.inode)).collect()
    }
}
