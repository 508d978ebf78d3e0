//! Store: an ext2, ext3 or ext4 image, only read.
//!
//! # Boundary
//! Turns the objects of [`uvfs_ext`] into those of the seam. That crate has the format, its checks and its journal; the
//! core caches names, attributes and pages. `cache` keeps blocks of metadata.
//!
//! # Concurrency
//! The only state is the image, which takes no lock, and that cache: calls wait for each other only if they need the
//! same unread block.
//!
//! # Why
//! No other program writes to the image ([`Authority::Sole`](uvfs_vfs::Authority::Sole);
//! [`FileDevice`](uvfs_ext::FileDevice) excludes programs that lock), so cached entries stay valid. An object's id is
//! its inode number, which no other object gets in an image that does not change: no table is needed, and a handle
//! finds its object after every cache was emptied. Weakness: an inode is parsed again from its block for each call that
//! misses the caches above.

mod cache;
mod poison;
mod reading;
mod writing;

pub use writing::{WritingConfig, WritingImage};

use cache::{Cache, CachedBlocks};
use poison::Poisoned;
use std::sync::Arc;
use uvfs_ext::{Device, Image, Inode, Kind};
use uvfs_vfs::{
    Attributes, Backend, Capabilities, Data, Entry, Error, Export, FileKind, InodeId, Inodes,
    Listings, Names, PageCaching, Result, Tenant, Timestamp, Totals, VfsConfig, Xattrs,
};

/// An image, as a store.
#[derive(Debug)]
pub struct ImageBackend {
    image: Image,
    /// Absent where the system had no address space for it: then blocks are read each time.
    cache: Option<Arc<Cache>>,
    poisoned: Poisoned,
}

/// How an image is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageConfig {
    /// Most bytes of cached blocks of metadata and of runs, one row of 16 blocks at least. They are part of the one
    /// budget, and returned when it is short. Default: [`ImageConfig::within`] the default budget. Watch the counters
    /// `buffer_bytes` and `buffer_evictions`.
    pub cache_bytes: usize,
}

/// The part of the budget that is kept of an image: the caches of names, attributes and pages stand in front of it.
const BUDGET_PART: u64 = 8;
/// More is not kept of it: the blocks of 256,000 inodes.
const CACHE_BYTES_MAX: u64 = 64 << 20;

impl ImageConfig {
    /// For a mount whose caches have `budget_bytes`: an eighth of them, 64 MiB at most.
    pub fn within(budget_bytes: u64) -> Self {
        let bytes = (budget_bytes / BUDGET_PART).min(CACHE_BYTES_MAX);
        // 64 MiB fit everywhere.
        Self { cache_bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
    }
}

impl Default for ImageConfig {
    fn default() -> Self {
        Self::within(VfsConfig::default().cache_bytes)
    }
}

impl ImageBackend {
    /// Opens the file system on `device`, and replays its journal in memory if that is needed.
    ///
    /// # Errors
    /// Those of [`Image::open`]; it never writes.
    pub fn open(device: Arc<dyn Device>, config: ImageConfig) -> uvfs_ext::Result<Self> {
        Ok(Self::new(Image::open(device)?, config))
    }

    /// A backend for an image that is open.
    pub fn new(image: Image, config: ImageConfig) -> Self {
        match Cache::new(image.superblock().block_size, config.cache_bytes) {
            Ok(cache) => {
                let cache = Arc::new(cache);
                let blocks = cache.clone();
                let image =
                    image.through(|source| Box::new(CachedBlocks { cache: blocks, source }));
                Self { image, cache: Some(cache), poisoned: Poisoned::new() }
            }
            Err(error) => {
                log::warn!("image: no cache of blocks: {error}; each use reads them again");
                Self { image, cache: None, poisoned: Poisoned::new() }
            }
        }
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The inode that the core knows as `id`.
    fn inode(&self, id: InodeId) -> Result<Inode> {
        if id == InodeId::ROOT {
            return self.reported(self.image.inode(uvfs_ext::ROOT));
        }
        let (number, generation) = id.parts();
        let inode = self.reported(self.image.inode(number))?;
        // Its number is another object's by now.
        if inode.generation() == generation { Ok(inode) } else { Err(Error::Stale) }
    }

    /// The image's result; its faults are logged, because an errno has no room for them.
    fn reported<T>(&self, result: uvfs_ext::Result<T>) -> Result<T> {
        result.map_err(|error| match error {
            uvfs_ext::Error::Io(error) => Error::from(error),
            uvfs_ext::Error::NotDirectory => Error::NotDirectory,
            uvfs_ext::Error::NoKey => Error::from_errno(libc::ENOKEY),
            other => {
                log::error!("image: {other}");
                Error::Corrupt("the image contradicts itself")
            }
        })
    }

    fn entry(&self, number: u32) -> Result<Entry> {
        self.poisoned.guarded(number, || {
            let inode = self.reported(self.image.inode(number))?;
            Ok(Entry { inode: id_of(&inode), attributes: self.attributes_of(&inode)? })
        })
    }

    fn attributes_of(&self, inode: &Inode) -> Result<Attributes> {
        attributes_of(inode, self.image.superblock().block_size)
    }
}

/// The attributes of an inode in use.
fn attributes_of(inode: &Inode, block_size: u32) -> Result<Attributes> {
    let Some(kind) = inode.kind().map(kind_of).filter(|_| inode.links() > 0) else {
        log::error!("image: a directory names inode {}, which is not in use", inode.number);
        return Err(Error::Corrupt("the image contradicts itself"));
    };
    Ok(attributes(inode, kind, block_size))
}

/// The attributes of an inode that is a `kind`, with names or without.
fn attributes(inode: &Inode, kind: FileKind, block_size: u32) -> Attributes {
    let (major, minor) = inode.device();
    let time = |time: uvfs_ext::Timestamp| Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    };
    Attributes {
        number: inode.number.into(),
        kind,
        mode: u32::from(inode.mode()) & 0o7777,
        links: inode.links().into(),
        uid: inode.uid(),
        gid: inode.gid(),
        device: match kind {
            FileKind::CharDevice | FileKind::BlockDevice => packed(major, minor),
            _ => 0,
        },
        size: if kind.is_special() { 0 } else { inode.size() },
        // Data inside the inode takes no block, and programs that copy holes would copy nothing.
        blocks: match kind {
            FileKind::Regular if inode.is_inline() => inode.sectors() + inode.size().div_ceil(512),
            _ => inode.sectors(),
        },
        block_size,
        atime: time(inode.accessed()),
        mtime: time(inode.modified()),
        ctime: time(inode.changed()),
        btime: inode.born().map(time),
        version: 0,
    }
}

impl Backend for ImageBackend {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            acls: true,
            births: true,
            // The host keeps the pages of the image, and a mount's kernel those of its files: a third copy costs more
            // than it saves, a page of memory for each page that is read.
            caching: PageCaching::Store,
            listings: Listings::Asked,
            ..Capabilities::read_only("image")
        }
    }

    fn root(&self) -> Result<Entry> {
        let root = self.entry(uvfs_ext::ROOT)?;
        match root.attributes.kind {
            FileKind::Directory => Ok(root),
            _ => Err(Error::Corrupt("the root of the image is no directory")),
        }
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }

    fn export(&self) -> Option<&dyn Export> {
        Some(self)
    }

    fn totals(&self) -> Result<Totals> {
        let superblock = self.image.superblock();
        let free = superblock.free_blocks().min(superblock.blocks);
        Ok(Totals {
            block_size: superblock.block_size,
            blocks: superblock.blocks - superblock.overhead_blocks().min(superblock.blocks),
            blocks_free: free,
            blocks_available: free.saturating_sub(superblock.reserved_blocks()),
            files: superblock.inodes.into(),
            files_free: superblock.free_inodes().into(),
            name_max: 255,
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let recovery = self.image.recovery();
        let replayed = recovery.map_or(0, |recovery| recovery.blocks as u64);
        let poisoned = self.poisoned.count() as u64;
        let mut counters = vec![("replayed_blocks", replayed), ("poisoned_inodes", poisoned)];
        counters.extend(self.cache.iter().flat_map(|cache| cache.counters()));
        counters
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        let cache = self.cache.clone()?;
        Some(cache)
    }
}

/// The number of the inode that the core knows as `id`, whichever its generation.
fn number_of(id: InodeId) -> u32 {
    match id {
        InodeId::ROOT => uvfs_ext::ROOT,
        id => id.parts().0,
    }
}

/// The id of an inode.
fn id_of(inode: &Inode) -> InodeId {
    match inode.number {
        uvfs_ext::ROOT => InodeId::ROOT,
        number => InodeId::of(number, inode.generation()),
    }
}

fn kind_of(kind: Kind) -> FileKind {
    match kind {
        Kind::Regular => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
    }
}

/// A device number in 32 bits, as the kernel and FUSE pack it.
fn packed(major: u32, minor: u32) -> u32 {
    (minor & 0xFF) | major << 8 | (minor & !0xFF) << 12
}
