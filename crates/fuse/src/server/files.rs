//! Open files of the kernel, by file handle.

use crate::lock_order;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::{Shards, shrink_sparse};
use uvfs_vfs::{InodeId, OpenFile};

const SHARDS: usize = 16;

/// File handles; 0 is none.
pub(crate) struct FileTable {
    shards: Shards<HashMap<u64, Open>>,
    /// How often each file is open for writing.
    writers: Shards<HashMap<InodeId, u64>>,
    next: AtomicU64,
    /// Files that are open.
    count: AtomicU64,
    /// Report a close when fewer files than this are open; 0 if no report is requested.
    few: AtomicU64,
    /// The receiver of reports.
    closed: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// An open file.
struct Open {
    file: Arc<OpenFile>,
    /// The process that opened it, as long as it has closed no descriptor of it; 0: not known.
    opener: u32,
}

/// This share of the open files closed is news.
const NEWS_SHARE: u64 = 16;

/// Bytes of one open file: its place in the table with the table's slack, and itself.
const FILE_BYTES: usize = 2 * (size_of::<(u64, Open)>() + 1) + size_of::<OpenFile>() + 32;

impl FileTable {
    pub(crate) fn new() -> Self {
        let shards = Shards::new(&lock_order::FUSE_FILES, SHARDS);
        let writers = Shards::new(&lock_order::FUSE_FILES, SHARDS);
        let (next, count, few) = (AtomicU64::new(1), AtomicU64::new(0), AtomicU64::new(0));
        Self { shards, writers, next, count, few, closed: OnceLock::new() }
    }

    /// Connects the receiver of closes, called with no lock held; the first one stays.
    pub(crate) fn connect(&self, closed: Box<dyn Fn() + Send + Sync>) {
        // A second one is dropped: a mount has one.
        let _ = self.closed.set(closed);
    }

    /// Requests one report, when part of the files that are open now have been closed.
    pub(crate) fn watch_closes(&self) {
        let count = self.count();
        // ORDERING: Relaxed; a hint. A thread that waits for the closes that it misses also has a
        // time limit.
        self.few.store(count - count / NEWS_SHARE, Relaxed);
    }

    /// Tells of none.
    pub(crate) fn ignore_closes(&self) {
        // ORDERING: Relaxed; the hint of `watch_closes`.
        self.few.store(0, Relaxed);
    }

    /// Gives `file`, which the process `opener` has opened if it is not 0, a handle.
    pub(crate) fn insert(&self, file: Arc<OpenFile>, opener: u32) -> u64 {
        // ORDERING: Relaxed; only distinct numbers are wanted.
        let handle = self.next.fetch_add(1, Relaxed);
        if file.mode().write {
            let node = file.node().id();
            *self.writers.of(&node).lock().entry(node).or_default() += 1;
        }
        self.shards.of(&handle).lock().insert(handle, Open { file, opener });
        // ORDERING: Relaxed; a size.
        self.count.fetch_add(1, Relaxed);
        handle
    }

    /// Whether `node` is open for writing.
    pub(crate) fn is_written(&self, node: InodeId) -> bool {
        self.writers.of(&node).lock().contains_key(&node)
    }

    /// A file is no longer open.
    fn closed(&self, file: &OpenFile) {
        if !file.mode().write {
            return;
        }
        let node = file.node().id();
        let mut writers = self.writers.of(&node).lock();
        if let Some(opens) = writers.get_mut(&node) {
            *opens -= 1;
            if *opens == 0 {
                writers.remove(&node);
                shrink_sparse(&mut writers);
            }
        }
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.shards.of(&handle).lock().get(&handle).map(|open| open.file.clone())
    }

    /// The file, and the process that opened it, if that is known and has closed no descriptor of it.
    pub(crate) fn get_with_opener(&self, handle: u64) -> Option<(Arc<OpenFile>, Option<u32>)> {
        let files = self.shards.of(&handle).lock();
        let open = files.get(&handle)?;
        Some((open.file.clone(), (open.opener != 0).then_some(open.opener)))
    }

    /// That process has closed one, or may have.
    pub(crate) fn opener_closes(&self, handle: u64) {
        if let Some(open) = self.shards.of(&handle).lock().get_mut(&handle) {
            open.opener = 0;
        }
    }

    /// Takes the handle back. The file closes when its last request has ended.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        let gone = self.shards.of(&handle).lock().remove(&handle);
        if let Some(open) = &gone {
            self.closed(&open.file);
            // ORDERING: Relaxed; a size, and the hint of `watch_closes`.
            let before = self.count.fetch_sub(1, Relaxed);
            if before <= self.few.load(Relaxed) && self.few.swap(0, Relaxed) > 0 {
                self.closed.get().into_iter().for_each(|tell| tell());
            }
        }
        gone.map(|open| open.file)
    }

    pub(crate) fn count(&self) -> u64 {
        // ORDERING: Relaxed; a size.
        self.count.load(Relaxed)
    }

    /// Bytes of the table and of the open files.
    pub(crate) fn bytes(&self) -> u64 {
        self.count() * FILE_BYTES as u64
    }

    /// How many removed objects are still open.
    pub(crate) fn removed(&self) -> usize {
        let mut nodes = HashSet::new();
        for shard in self.shards.iter() {
            let files = shard.lock();
            let nodes_here = files.values().map(|open| open.file.node());
            nodes.extend(nodes_here.filter(|node| node.is_unlinked()).map(|node| node.id()));
        }
        nodes.len()
    }

    pub(crate) fn clear(&self) {
        for shard in self.shards.iter() {
            let files = std::mem::take(&mut *shard.lock());
            // ORDERING: Relaxed; a size.
            self.count.fetch_sub(files.len() as u64, Relaxed);
            files.values().for_each(|open| self.closed(&open.file));
            drop(files);
        }
    }
}
