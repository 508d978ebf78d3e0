//! Store: an ext4 image that is written.
//!
//! # Boundary
//! Turns the operations of [`uvfs_ext_write::Volume`] into those of the seam. That crate has allocation, the journal
//! and the state after a crash. The core caches names, attributes and pages, and the core or the kernel checks
//! permissions. This module adds side effects of a change: owners and lists of new objects, set-id bits that a write
//! clears.
//!
//! # Concurrency
//! No lock but that of the committing thread ([`commits`]). Each operation is one step of the volume; an answer's
//! attributes are read in the step that found the object.
//!
//! # Why
//! A type beside [`ImageBackend`](super::ImageBackend) and not a mode of it: the reading one cannot reach code that
//! writes. Every answered entry counts as a hold of its inode, so that no inode is freed that the core may use.
//! Weaknesses: reading updates no access times; a listing hashes the names of a block again for each 64 entries.

mod commits;
mod data;
mod names;
mod xattrs;

use super::poison::Poisoned;
use super::{attributes, kind_of};
use commits::Commits;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uvfs_ext::{Inode, Kind};
use uvfs_ext_write::{
    DataMode, Error as VolumeError, Held, Losses as VolumeLosses, Lost, Volume, WriteDevice,
};
use uvfs_vfs::{
    Attributes, Backend, Capabilities, Creation, Data, Ended, Entry, Error, Export, FileKind,
    InodeId, Inodes, Listings, Loss, Losses, Names, PageCaching, Reservation, Result, Tenant,
    Totals, VfsConfig, Xattrs,
};

/// How an image is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritingConfig {
    /// Approximate bytes of cached metadata, beside those of the running transaction. They are part of the one budget,
    /// and returned when it is short. Default: that of [`super::ImageConfig::cache_bytes`]. Watch `buffer_bytes`.
    pub cache_bytes: u64,
    /// Longest time between a change and its commit. Default 5 s. Watch `journal_commits`.
    pub commit_interval: Duration,
    /// The way of data to the image. Default: in place. Watch `journal_data`.
    pub data: DataMode,
}

/// Time between two commits without a request.
pub(super) const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

impl WritingConfig {
    /// For a mount whose caches have `budget_bytes`.
    pub fn within(budget_bytes: u64) -> Self {
        let cache_bytes = super::ImageConfig::within(budget_bytes).cache_bytes as u64;
        Self { cache_bytes, commit_interval: COMMIT_INTERVAL, data: DataMode::Ordered }
    }
}

impl Default for WritingConfig {
    fn default() -> Self {
        Self::within(VfsConfig::default().cache_bytes)
    }
}

/// An image that is written, as a store.
#[derive(Debug)]
pub struct WritingImage {
    volume: Arc<Volume>,
    device: Arc<dyn WriteDevice>,
    tenant: Arc<Metadata>,
    commits: Commits,
    poisoned: Poisoned,
}

/// The bytes of an image in memory: its metadata, and the buffers of its device.
#[derive(Debug)]
struct Metadata {
    volume: Arc<Volume>,
    device: Arc<dyn WriteDevice>,
}

impl Tenant for Metadata {
    fn held_bytes(&self) -> u64 {
        self.volume.held_bytes() + self.device.counts().buffer_bytes
    }

    fn shrink(&self, bytes: u64) {
        self.volume.shrink(bytes);
    }
}

impl WritingImage {
    /// Opens the file system on `device` for writing, and recovers its journal if that is needed.
    ///
    /// # Errors
    /// Those of [`Volume::open`]: [`VolumeError::NotWritable`], with the reason, for an image that can only be read.
    pub fn open(
        device: Arc<dyn WriteDevice>,
        config: &WritingConfig,
    ) -> uvfs_ext_write::Result<Self> {
        let volume = Arc::new(Volume::with_data(device.clone(), config.cache_bytes, config.data)?);
        let commits = Commits::start(volume.clone(), config.commit_interval)?;
        Ok(Self {
            tenant: Arc::new(Metadata { volume: volume.clone(), device: device.clone() }),
            volume,
            device,
            commits,
            poisoned: Poisoned::new(),
        })
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Runs `work`, which uses the inode `number`, and converts its error; a panic in it poisons that inode.
    fn guarded<T>(
        &self,
        number: u32,
        work: impl FnOnce(&Volume) -> uvfs_ext_write::Result<T>,
    ) -> Result<T> {
        self.poisoned.guarded(number, || reported(work(&self.volume)))
    }

    fn attributes_of(&self, inode: &Inode) -> Result<Attributes> {
        let kind = inode.kind().ok_or(Error::Stale)?;
        Ok(attributes(inode, kind_of(kind), self.volume.superblock().block_size))
    }

    /// The answer for an inode that is held, which it counts for.
    fn entry(&self, held: &Held) -> Result<Entry> {
        let entry = self
            .attributes_of(&held.0)
            .map(|attributes| Entry { inode: super::id_of(&held.0), attributes });
        if entry.is_err() {
            self.give_back(held.0.number, 1);
        }
        entry
    }

    /// Returns holds; an inode without holds and names is freed then.
    fn give_back(&self, number: u32, holds: u64) {
        // A panic is logged there, and the inode is not freed.
        let _ = self.poisoned.guarded(number, || {
            match self.volume.forget_all(number, holds) {
                // Nothing is freed any more; the next mount of the image does it.
                Ok(()) | Err(VolumeError::Ended(_)) => {}
                Err(error) => log::error!("image: inode {number} cannot be freed: {error}"),
            }
            Ok(())
        });
    }
}

/// The result of an operation for the seam. Faults are logged, because an errno has no room for them.
fn reported<T>(result: uvfs_ext_write::Result<T>) -> Result<T> {
    result.map_err(refusal)
}

fn refusal(error: VolumeError) -> Error {
    match error {
        VolumeError::NoSpace | VolumeError::DirectoryFull => Error::NoSpace,
        VolumeError::Exists => Error::Exists,
        VolumeError::NotFound => Error::NotFound,
        VolumeError::NotEmpty => Error::NotEmpty,
        VolumeError::IsDirectory => Error::IsDirectory,
        VolumeError::NotDirectory => Error::NotDirectory,
        VolumeError::TooManyLinks => Error::TooManyLinks,
        VolumeError::NameTooLong => Error::NameTooLong,
        VolumeError::TooLarge => Error::TooBig,
        VolumeError::NotPermitted => Error::NotPermitted,
        VolumeError::Invalid(why) => Error::Invalid(why),
        VolumeError::Io(error) => Error::from(error),
        // As of a file system that the kernel remounted after an error. The volume has logged why.
        VolumeError::Ended(_) => Error::ReadOnly,
        VolumeError::NotWritable(why) => {
            log::error!("image: {why}");
            Error::Unsupported("writing to a file that is mapped in an older format")
        }
        VolumeError::Format(uvfs_ext::Error::NotDirectory) => Error::NotDirectory,
        VolumeError::Format(uvfs_ext::Error::NoKey) => Error::from_errno(libc::ENOKEY),
        other => {
            log::error!("image: {other}");
            Error::Corrupt("the image contradicts itself")
        }
    }
}

/// The result of a sync: its failure is an error of the device (EIO), whenever that happened.
fn unstable(error: VolumeError) -> Error {
    match error {
        // Also a device that is full itself: the image has the space.
        VolumeError::Ended(_) | VolumeError::Io(_) => {
            Error::Io(std::io::Error::other(error.to_string()))
        }
        other => refusal(other),
    }
}

fn number_of(id: InodeId) -> u32 {
    super::number_of(id)
}

fn kind_to(kind: FileKind) -> Kind {
    match kind {
        FileKind::Regular => Kind::Regular,
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => Kind::Symlink,
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => Kind::CharDevice,
        FileKind::BlockDevice => Kind::BlockDevice,
    }
}

/// Major and minor number of a device, as the kernel and FUSE pack them.
fn unpacked(device: u32) -> (u32, u32) {
    (device >> 8 & 0xFFF, device & 0xFF | device >> 12 & 0xF_FF00)
}

impl Backend for WritingImage {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            acls: true,
            births: true,
            // The image is not in the host's cache, and blocks are chosen when data is written back.
            caching: PageCaching::Core,
            writes_back: true,
            listings: Listings::Asked,
            ..Capabilities::read_write("image")
        }
    }

    fn root(&self) -> Result<Entry> {
        let root =
            self.entry(&self.guarded(uvfs_ext::ROOT, |volume| volume.hold(uvfs_ext::ROOT))?)?;
        match root.attributes.kind {
            FileKind::Directory => Ok(root),
            _ => Err(Error::Corrupt("the root of the image is no directory")),
        }
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        Some(self)
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn reservation(&self) -> Option<&dyn Reservation> {
        Some(self)
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        Some(self)
    }

    fn export(&self) -> Option<&dyn Export> {
        Some(self)
    }

    fn sync_fs(&self) -> Result<()> {
        self.volume.sync().map_err(unstable)
    }

    /// The image is left like an unmounted one: nothing to recover. Later operations are refused.
    fn end(&self) -> Result<()> {
        if self.commits.end() { self.volume.close().map_err(unstable) } else { Ok(()) }
    }

    fn ended(&self) -> Option<Ended> {
        let ended = self.volume.failure()?;
        let since = ended.since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Some(Ended { why: ended.why.to_string(), since: since.as_secs() })
    }

    fn losses(&self) -> Option<Losses> {
        let cause = self.volume.failure()?.cause.to_string();
        let losses = self.volume.losses();
        let losses = losses.inspect_err(|error| {
            log::error!("image: uncommitted changes cannot be compared: {error}");
        });
        let objects = match losses.ok()? {
            VolumeLosses::All(bytes) => {
                let kind = FileKind::Directory;
                vec![Loss { inode: InodeId::ROOT, number: InodeId::ROOT.0, kind, bytes }]
            }
            VolumeLosses::Some(lost) => lost
                .iter()
                .filter_map(|Lost { inode, bytes }| {
                    Some(Loss {
                        inode: super::id_of(inode),
                        number: inode.number.into(),
                        kind: kind_of(inode.kind()?),
                        bytes: *bytes,
                    })
                })
                .collect(),
        };
        Some(Losses { cause, objects })
    }

    fn totals(&self) -> Result<Totals> {
        let (superblock, room) = (self.volume.superblock(), self.volume.room());
        let free = room.free_blocks.saturating_sub(room.reserved_blocks).min(superblock.blocks);
        let others = superblock.reserved_blocks().max(self.volume.kept_blocks());
        Ok(Totals {
            block_size: superblock.block_size,
            blocks: superblock.blocks - superblock.overhead_blocks().min(superblock.blocks),
            blocks_free: free,
            blocks_available: free.saturating_sub(others),
            files: superblock.inodes.into(),
            files_free: room.free_inodes.into(),
            name_max: 255,
        })
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let (counts, now) = (self.volume.counts(), self.volume.journal());
        let (device, queue) = (self.device.counts(), counts.queue);
        let replayed = self.volume.recovery().map_or(0, |recovery| recovery.blocks as u64);
        vec![
            ("replayed_blocks", replayed),
            ("poisoned_inodes", self.poisoned.count() as u64),
            ("damaged_groups", self.volume.room().damaged_groups.into()),
            ("buffer_bytes", self.volume.held_bytes()),
            ("journal_transaction", now.transaction.into()),
            ("journal_running_blocks", now.running_blocks),
            ("journal_capacity_blocks", now.capacity),
            ("journal_log_blocks", now.log_blocks),
            ("journal_log_used_blocks", now.log_used),
            ("journal_waiting_blocks", now.waiting_blocks),
            ("journal_data", u64::from(self.volume.data_mode() == DataMode::Journal)),
            ("journal_handles", counts.handles),
            ("journal_handle_waits", counts.handle_waits),
            ("journal_handle_wait_ns", counts.handle_wait_ns),
            ("journal_commits", counts.commits),
            ("journal_shared_commits", counts.shared_commits),
            ("journal_commit_ns", counts.commit_ns),
            ("journal_commit_ns_max", counts.commit_ns_max),
            ("journal_committed_blocks", counts.committed_blocks),
            ("journal_checkpoints", counts.checkpoints),
            ("journal_checkpointed_blocks", counts.checkpointed_blocks),
            ("journal_log_waits", counts.log_waits),
            ("journal_queue_waiting_blocks", queue.waiting),
            ("journal_queue_depth", queue.depth),
            ("journal_queue_put_blocks", queue.put),
            ("journal_queue_replaced_blocks", queue.replaced),
            ("journal_queue_dropped_blocks", queue.dropped),
            ("journal_queue_merged_blocks", queue.merged),
            ("journal_queue_taken_blocks", queue.taken),
            ("journal_read_requests", queue.reads.requests),
            ("journal_read_ns", queue.reads.ns),
            ("journal_read_ns_max", queue.reads.ns_max),
            ("journal_write_requests", queue.writes.requests),
            ("journal_write_ns", queue.writes.ns),
            ("journal_write_ns_max", queue.writes.ns_max),
            ("journal_flush_requests", queue.flushes.requests),
            ("journal_flush_ns", queue.flushes.ns),
            ("journal_flush_ns_max", queue.flushes.ns_max),
            ("journal_background_requests", queue.background.requests),
            ("journal_background_ns", queue.background.ns),
            ("journal_background_ns_max", queue.background.ns_max),
            ("journal_ended", u64::from(self.volume.failure().is_some())),
            ("device_direct", device.is_direct.into()),
            ("device_buffer_bytes", device.buffer_bytes),
            ("device_buffer_waits", device.buffer_waits),
            ("device_partial_writes", device.partial_writes),
            ("device_errors", counts.device_errors),
            ("refused_after_end", counts.refused),
        ]
    }

    fn tenant(&self) -> Option<Arc<dyn Tenant>> {
        Some(self.tenant.clone())
    }
}

impl Drop for WritingImage {
    /// For a store that was not ended: like a crash, but changes are committed.
    fn drop(&mut self) {
        if self.commits.end() {
            // The volume has logged why, if it fails.
            let _ = self.volume.sync();
        }
    }
}
