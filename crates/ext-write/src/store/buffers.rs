//! Blocks of metadata in memory: one buffer for each block, found by its number.
//!
//! # Boundary
//! Holds bytes; [`super::Store`] decides where they are on the device.
//!
//! # Concurrency
//! A shard's lock covers finding and evicting, a buffer's lock its contents, also while they are read: of several threads
//! that want a block one reads it. A buffer is evicted only if no thread has a reference to it. A transaction has a
//! reference to each of its buffers until a later reader finds their contents elsewhere.

use crate::hashing::Seeded;
use crate::lock_order::{EXT_BUFFER, EXT_BUFFERS};
use std::collections::HashMap;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

const SHARDS: usize = 64;

/// One block.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) block: u64,
    pub(super) contents: Mutex<Contents>,
}

/// The contents of a block, and the transaction that changed it last.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// `None` until it is read. Shared with readers and with transactions that froze it; copied when it is shared and changed.
    pub(super) bytes: Option<Arc<[u8]>>,
    /// The transaction that has it in its list, while that is the running one.
    pub(super) transaction: Option<u32>,
    /// The contents were checked since they were read, and all changes since then kept them valid.
    pub(super) checked: bool,
}

type Shard = HashMap<u64, Arc<Buffer>, Seeded>;

#[derive(Debug)]
pub(super) struct Buffers {
    shards: Vec<Mutex<Shard>>,
    per_shard: usize,
    /// How many there are.
    held: AtomicU64,
}

impl Buffers {
    /// Keeps about `buffers` unused ones.
    pub(super) fn new(buffers: usize) -> Self {
        let shard = || Mutex::new(&EXT_BUFFERS, Shard::default());
        Self {
            shards: std::iter::repeat_with(shard).take(SHARDS).collect(),
            per_shard: buffers.div_ceil(SHARDS).max(4),
            held: AtomicU64::new(0),
        }
    }

    /// The buffer of `block`, whose contents may have to be read.
    pub(super) fn get(&self, block: u64) -> Arc<Buffer> {
        // Neighbours are in neighbouring shards, and blocks a group apart, too.
        let at = (block ^ block >> 6 ^ block >> 15) as usize % SHARDS;
        let mut shard = self.shards[at].lock();
        if let Some(found) = shard.get(&block) {
            return found.clone();
        }
        if shard.len() >= self.per_shard {
            let most = shard.len() / 4 + 1;
            self.evict(&mut shard, most);
        }
        let contents = Mutex::new(&EXT_BUFFER, Contents::default());
        let buffer = Arc::new(Buffer { block, contents });
        shard.insert(block, buffer.clone());
        // ORDERING: Relaxed; a size for reports and budgets.
        self.held.fetch_add(1, Relaxed);
        buffer
    }

    /// Drops at most `most` unused buffers of a shard; returns their number.
    fn evict(&self, shard: &mut Shard, most: usize) -> usize {
        let mut spare = most;
        shard.retain(|_, buffer| {
            let keep = spare == 0 || Arc::strong_count(buffer) > 1;
            spare -= usize::from(!keep);
            keep
        });
        // ORDERING: Relaxed; as where it grows.
        self.held.fetch_sub((most - spare) as u64, Relaxed);
        most - spare
    }

    /// How many there are.
    pub(super) fn held(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.held.load(Relaxed)
    }

    /// Drops about `wanted` of them.
    pub(super) fn shrink(&self, wanted: u64) {
        let mut left = wanted.min(self.held()) as usize;
        let each = left.div_ceil(SHARDS);
        for shard in &self.shards {
            if left == 0 {
                return;
            }
            left -= self.evict(&mut shard.lock(), each.min(left));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_in_use_stay_and_others_make_room() {
        let buffers = Buffers::new(0);
        let held = buffers.get(3);
        held.contents.lock().bytes = Some(vec![7].into());
        for block in 0..10_000 {
            buffers.get(block);
        }
        assert!(Arc::ptr_eq(&held, &buffers.get(3)));
        let count: usize = buffers.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!(count <= SHARDS * 5, "{count}");
    }
}
