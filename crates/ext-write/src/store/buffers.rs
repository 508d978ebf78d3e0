//! Blocks of metadata in memory: one buffer for each block, found by its number.
//!
//! # Boundary
//! Holds bytes; [`super::Store`] decides where they are on the device.
//!
//! # Concurrency
//! They are in rows ([`SharedCache`]): a row's lock covers finding and evicting, a buffer's lock its contents, also while they are
//! read: of several threads that want a block one reads it. A buffer is evicted only if no thread has a reference to it. A
//! transaction has a reference to each of its buffers until a later reader finds their contents elsewhere.

use crate::lock_order::{EXT_BUFFER, EXT_BUFFERS};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_containers::set_associative::shared::SharedCache;

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

/// The buffers of an image.
#[derive(Debug)]
pub(super) struct Buffers(SharedCache<Buffer>);

impl Buffers {
    /// Keeps about `buffers` unused ones.
    pub(super) fn new(buffers: usize) -> Self {
        Self(SharedCache::new(&EXT_BUFFERS, buffers))
    }

    /// The buffer of `block`, whose contents may have to be read.
    pub(super) fn get(&self, block: u64) -> Arc<Buffer> {
        let contents = || Mutex::new(&EXT_BUFFER, Contents::default());
        self.0.get(block, || Buffer { block, contents: contents() })
    }

    /// The buffer of `block`, if there is one.
    pub(super) fn find(&self, block: u64) -> Option<Arc<Buffer>> {
        self.0.find(block)
    }

    /// How many there are.
    pub(super) fn held(&self) -> u64 {
        self.0.held()
    }

    /// Bytes of their tables.
    pub(super) fn table_bytes(&self) -> u64 {
        self.0.table_bytes()
    }

    /// Drops about `wanted` of them.
    pub(super) fn shrink(&self, wanted: u64) {
        self.0.shrink(wanted);
    }
}
