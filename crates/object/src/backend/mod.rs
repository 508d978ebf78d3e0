//! A bucket as a [`Backend`].
//!
//! # Boundary
//! From names, objects and runs of pages to requests of a [`Store`]. Caches of names, attributes and pages are the core's.
//!
//! # Identity
//! An inode is one version of one object: its place and its tag. Its attributes never change: the listing that named it has
//! them, and no request is needed. After an object is replaced, its name leads to another inode from the next lookup or
//! listing on, as after a rename(2) over it. Reads of the old inode name its tag and fail with ESTALE, except for cached
//! pages. A directory is its place. A file that is written here stays one inode through all its versions ([`writing`],
//! [`table`]).
//!
//! # Concurrency
//! `table` shards its locks, `names` has one over the listings under way, `here` one over the files in work; none of them is held
//! during a request. `gates` lets one thread at a time change an object.
//!
//! # Why
//! Programs expect that an open file stays one file, and that a new name is the new file. POSIX has that: a new inode. With
//! the tag as an attribute of one inode, every cache between (pages, the kernel's) had to be invalidated in time.
//! Weakness: the inode number of a file changes when it is replaced, and programs that watch files by number see that.

mod below;
mod conflict;
#[cfg(test)]
mod conflict_tests;
mod creation;
mod data;
mod gates;
mod here;
#[cfg(test)]
mod listing_tests;
#[cfg(test)]
mod metadata_tests;
mod names;
#[cfg(test)]
mod race_tests;
mod runs;
mod table;
#[cfg(test)]
mod tests;
mod writing;
#[cfg(test)]
mod writing_tests;

use crate::retry::{Patience, Patient};
use crate::store::{Store, StoreError};
use below::Series;
use names::Walks;
use runs::Runs;
use std::sync::{Arc, OnceLock};
use table::{Node, Table};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{
    Attributes, Authority, Backend, Capabilities, ChangeSink, Creation, Data, Entry, Error,
    FileKind, InodeId, Inodes, Listings, Name, Names, OpenFiles, Opens, PageCaching, Result,
    Tenant, Timestamp, Totals, Writes,
};
use writing::Uploads;

/// How a bucket is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectConfig {
    /// The beginning of all keys: empty, or ends with `/`. Default: empty.
    pub prefix: String,
    /// Owner of everything. Default: user and group 0.
    pub owner: (u32, u32),
    /// Permission bits of files and of directories. Default: 0644 and 0755.
    pub modes: (u32, u32),
    /// Requests for data under way at once, 1 at least. Default: 16. Watch `get_requests`.
    pub requests_max: usize,
    /// Bytes of the buffers from which files are uploaded; at least 5 MiB, which is one part. Default: 32 MiB, four parts at
    /// once. Watch `upload_buffer_bytes`.
    pub upload_bytes_max: u64,
    /// Nothing is changed in the store. Default: false.
    pub read_only: bool,
    /// How long a request is tried.
    pub patience: Patience,
}

impl Default for ObjectConfig {
    fn default() -> Self {
        Self {
            prefix: String::new(),
            owner: (0, 0),
            modes: (0o644, 0o755),
            requests_max: 16,
            upload_bytes_max: 32 << 20,
            read_only: false,
            patience: Patience::default(),
        }
    }
}

/// A bucket. See the module.
#[derive(Debug)]
pub struct ObjectBackend {
    shared: Arc<Shared>,
    runs: Runs,
}

/// State that the threads for runs share.
#[derive(Debug)]
struct Shared {
    store: Patient,
    table: Table,
    listings: Walks,
    series: Series,
    config: ObjectConfig,
    /// Time of everything that has none in the store.
    since: Timestamp,
    /// Keys that could not be shown, counted in each listing.
    hidden: Counter,
    uploads: Uploads,
    /// Files that were opened.
    files: AtomicU64,
    /// Receives names that lead to other objects than this mount has shown, once there is a sink.
    news: News,
}

/// See [`Backend::report_to`].
#[derive(Default)]
struct News(OnceLock<Arc<dyn ChangeSink>>);

impl std::fmt::Debug for News {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("News").finish_non_exhaustive()
    }
}

/// Preferred size of reads: a smaller request costs as much.
const BLOCK_BYTES: u32 = 128 << 10;

impl ObjectBackend {
    /// The objects of `store` below the prefix of `config`.
    pub fn new(store: impl Store, config: ObjectConfig) -> Self {
        let requests_max = config.requests_max.max(1);
        let shared = Arc::new(Shared {
            store: Patient::new(store, config.patience),
            table: Table::new(&config.prefix),
            listings: Walks::new(),
            series: Series::new(),
            uploads: Uploads::new(config.upload_bytes_max),
            files: AtomicU64::new(0),
            config,
            since: Timestamp::now(),
            hidden: Counter::new(),
            news: News::default(),
        });
        Self { runs: Runs::new(shared.clone(), requests_max), shared }
    }
}

impl Shared {
    /// The user's error for `error`, which ended `doing` something with `key`.
    fn user_error(&self, doing: &str, key: &str, error: StoreError) -> Error {
        let answer = match &error {
            // Of an object whose version is known, both say that the version is gone.
            StoreError::NotFound | StoreError::Changed => return Error::Stale,
            StoreError::Denied(_) | StoreError::Credentials(_) | StoreError::Clock => Error::Access,
            StoreError::Unreachable(_) | StoreError::Busy { .. } => Error::TimedOut,
            StoreError::Damaged(_) => Error::Corrupt("an object without its checksum"),
            StoreError::Unsupported(_) => {
                Error::Unsupported("a request that the store does not have")
            }
            _ => Error::Io(std::io::Error::other("the store of objects")),
        };
        let key = key.escape_debug();
        log::warn!("{doing} `{key}`: {error}; {}", error.remedy());
        answer
    }

    fn directory(&self, number: u64) -> Attributes {
        let (uid, gid) = self.config.owner;
        Attributes {
            // The count of subdirectories is not known; programs that use it take 1 for that.
            links: 1,
            uid,
            gid,
            block_size: BLOCK_BYTES,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            btime: None,
            ..Attributes::new(number, FileKind::Directory, self.config.modes.1)
        }
    }

    /// The store has another object under `name` than this mount has shown: caches invalidate the name.
    fn went_elsewhere(&self, directory: &Node, name: &str) {
        if let (Some(news), Ok(name)) = (self.news.0.get(), Name::new(name.as_bytes())) {
            news.entry_changed(directory.id, name);
        }
    }

    /// The content of `id` differs from the content that this mount has shown.
    fn content_went(&self, id: InodeId) {
        if let Some(news) = self.news.0.get() {
            news.inode_changed(id);
        }
    }

    /// A number that no open file has had.
    fn next_file(&self) -> u64 {
        // ORDERING: Relaxed; only the value must be unique.
        1 + self.files.fetch_add(1, Relaxed)
    }

    fn file(&self, node: &Node, size: u64, modified: Timestamp) -> Attributes {
        Attributes {
            size,
            blocks: size.div_ceil(512),
            atime: modified,
            mtime: modified,
            ctime: modified,
            version: node.version,
            kind: FileKind::Regular,
            mode: self.config.modes.0,
            ..self.directory(node.number)
        }
    }
}

impl Tenant for Shared {
    fn held_bytes(&self) -> u64 {
        let listings = self.listings.bytes() + self.uploads.here.bytes();
        self.table.bytes() + listings + self.uploads.bytes()
    }

    /// Nothing: the table holds only nodes that the core refers to, and frees them with it.
    fn shrink(&self, _: u64) {}
}

impl Backend for ObjectBackend {
    fn capabilities(&self) -> Capabilities {
        let read = Capabilities {
            authority: Authority::Shared,
            caching: PageCaching::Core,
            queue_depth: self.runs.threads_max(),
            listings: Listings::Kept,
            ..Capabilities::read_only("object")
        };
        match self.shared.config.read_only {
            true => read,
            false => Capabilities {
                read_only: false,
                opens: Opens::Tracked,
                writes: Writes::WholeFile,
                ..read
            },
        }
    }

    fn root(&self) -> Result<Entry> {
        Ok(Entry { inode: InodeId::ROOT, attributes: self.shared.directory(1) })
    }

    fn names(&self) -> &dyn Names {
        &*self.shared
    }

    fn inodes(&self) -> &dyn Inodes {
        &*self.shared
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        Some(&*self.shared)
    }

    fn open_files(&self) -> &dyn OpenFiles {
        &*self.shared
    }

    fn report_to(&self, changes: Arc<dyn ChangeSink>) {
        // Once; a second sink gets no reports.
        let _ = self.shared.news.0.set(changes);
    }

    fn sync_fs(&self) -> Result<()> {
        self.shared.upload_rest()
    }

    /// A bucket reports no size: programs that check for room find a pebibyte.
    fn totals(&self) -> Result<Totals> {
        let blocks = (1 << 50) / 4096;
        Ok(Totals {
            block_size: 4096,
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            files: 0,
            files_free: 0,
            name_max: 255,
        })
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        Some(self.shared.clone())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let shared = &self.shared;
        let mut counters = shared.store.counters().to_vec();
        counters.push(("hidden_keys", shared.hidden.total()));
        counters.push(("objects_known", shared.table.len() as u64));
        counters.push(("listings_begun_again", shared.listings.begun_again()));
        counters.push(("write_conflicts", shared.uploads.conflicts.total()));
        counters.push(("conflicts_kept", shared.uploads.kept_beside.total()));
        counters.push(("upload_buffer_bytes", shared.uploads.bytes()));
        counters
    }
}
