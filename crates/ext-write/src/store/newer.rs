//! Committed contents that are not in their places yet, and the step that brings them there.
//!
//! # Boundary
//! Which blocks a step writes, and which ones it was the last to need. [`super::checkpoint`] writes and flushes.
//!
//! # Concurrency
//! None of its own: one lock has it, and the rules C1 to C6 of [`super::checkpoint`] say what happens under that lock.

use super::log::Mark;
use std::collections::{BTreeMap, BTreeSet};

/// Contents of kind `T` of one block.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Entry<T> {
    contents: T,
    /// The last transaction that brought it.
    transaction: u32,
}

/// A transaction, and where it ends in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct End {
    pub(super) transaction: u32,
    pub(super) mark: Mark,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Newer<T> {
    blocks: BTreeMap<u64, Entry<T>>,
    /// The last transaction that is stable.
    last: End,
    /// The last one that the present step brings to its place.
    step: Option<End>,
}

/// Whether transaction `one` is behind `other`; numbers wrap.
fn is_behind(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}

impl<T: Clone> Newer<T> {
    pub(super) fn new(last: End) -> Self {
        Self { blocks: BTreeMap::new(), last, step: None }
    }

    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn get(&self, block: u64) -> Option<&T> {
        self.blocks.get(&block).map(|entry| &entry.contents)
    }

    /// A transaction is stable that freed and brought these blocks.
    pub(super) fn commit(
        &mut self,
        end: End,
        freed: &BTreeSet<u64>,
        brought: impl Iterator<Item = (u64, T)>,
    ) {
        for block in freed {
            self.blocks.remove(block);
        }
        for (block, contents) in brought {
            self.blocks.insert(block, Entry { contents, transaction: end.transaction });
        }
        self.last = end;
    }

    /// Begins a step, which has all blocks (C1), if `put` takes them. False if one is under way (C2).
    pub(super) fn begin(
        &mut self,
        put: impl FnOnce(&mut dyn Iterator<Item = (u64, T)>) -> bool,
    ) -> bool {
        let mut blocks = self.blocks.iter().map(|(block, entry)| (*block, entry.contents.clone()));
        if self.step.is_some() || !put(&mut blocks) {
            return false;
        }
        self.step = Some(self.last);
        true
    }

    /// Where the present step ends.
    pub(super) fn step(&self) -> Option<End> {
        self.step
    }

    /// The log begins behind the step: its blocks leave, unless a later transaction brought them again (C5). Returns how many
    /// left.
    pub(super) fn end(&mut self) -> u64 {
        let Some(step) = self.step.take() else { return 0 };
        let before = self.blocks.len();
        self.blocks.retain(|_, entry| is_behind(entry.transaction, step.transaction));
        (before - self.blocks.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_transactions_wrap() {
        assert!(is_behind(5, 4) && !is_behind(4, 4) && !is_behind(3, 4));
        assert!(is_behind(2, u32::MAX) && !is_behind(u32::MAX, 2));
    }
}
