//! `uvfs`: the product, in process over its memory store, through its public interface.
//!
//! # Boundary
//! Only calls. Beyond the variants it checks permissions, keeps attributes and times, and has a
//! store with real objects; `stat` copies all attributes. It is measured in the form that users
//! get.

use super::paths::{Open, System};
use std::io;
use std::sync::Arc;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{Caller, Directory, Error, MINIMUM_BYTES, OpenOptions, RenameMode, Vfs, VfsConfig};

/// The size of a name with its inode in the product's documentation.
const ENTRY_BYTES: u64 = 300;
/// The least room that it accepts.
const ROOM_BYTES_MIN: u64 = 16 << 10;

/// A uvfs file system.
pub(super) struct Product {
    root: Directory,
    vfs: Arc<Vfs>,
}

impl Product {
    /// An empty one that caches about `entries_max` names.
    ///
    /// # Errors
    /// The product's error about its settings.
    pub(super) fn new(entries_max: usize) -> io::Result<Self> {
        let failed = |error: Error| io::Error::other(format!("uvfs: {error}"));
        let backend = MemoryBackend::new(MemoryConfig::default()).map_err(failed)?;
        let room_bytes = (entries_max as u64 * ENTRY_BYTES).max(ROOM_BYTES_MIN);
        let cache_bytes = room_bytes.max(MINIMUM_BYTES);
        let overhead_bytes = cache_bytes - room_bytes;
        let config = VfsConfig { cache_bytes, overhead_bytes, ..VfsConfig::default() };
        let vfs = Vfs::new(backend, config).map_err(failed)?;
        Ok(Self { root: vfs.root_directory(Caller::root()), vfs })
    }
}

impl System for Product {
    fn open(&self, path: &[u8]) -> Option<Open> {
        self.root.open(path, OpenOptions::read()).ok().map(Open::File)
    }

    fn close(&self, open: Open) {
        drop(open);
    }

    fn stat(&self, path: &[u8]) -> bool {
        self.root.stat(path).is_ok()
    }

    fn create(&self, path: &[u8]) -> Option<Open> {
        self.root.open(path, OpenOptions::write().create_new(0o666)).ok().map(Open::File)
    }

    fn create_directory(&self, path: &[u8]) -> bool {
        self.root.create_directory(path, 0o777).is_ok()
    }

    fn remove(&self, path: &[u8]) -> bool {
        self.root.remove_file(path).is_ok()
    }

    fn remove_directory(&self, path: &[u8]) -> bool {
        self.root.remove_directory(path).is_ok()
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> bool {
        self.root.rename(from, to, RenameMode::Replace).is_ok()
    }

    fn list(&self, path: &[u8]) -> Option<usize> {
        Some(self.root.open_directory(path).ok()?.list_all().ok()?.len())
    }
    fn forget(&self) {
        self.vfs.forget_unused();
    }

    fn audit(&self) -> Result<(), String> {
        // Its own tests see to that; the public interface does not count references.
        Ok(())
    }
}
