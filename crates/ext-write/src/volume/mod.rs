//! An image that is written: opening it, its inodes, operations as parts of transactions.
//!
//! # Boundary
//! Operations by inode number and name, each whole after a crash or not there. Permissions, and caching of names and attributes,
//! are the caller's. [`groups`] allocates, [`tree`] maps files, [`names`] changes directories, [`data`] files, [`orphans`]
//! completes work that a crash has interrupted.
//!
//! # Concurrency
//! V1. An operation locks the inodes that it changes, in the order of their numbers (a rename that changes two directories after
//!     the lock of all such renames), then begins a handle, then takes groups' locks one at a time.
//! V2. Of an inode, only the time of deletion is changed without its lock: the list of orphans links through it.
//! V3. An operation that fails has changed nothing, or has undone its changes ([`undo`]): half an operation is never committed.
//!     If the undo fails, writing ends.
//! V4. Data is in its place before the handle that makes it reachable ends, so it is stable when that is. ([`journaled`]: or in its
//!     handle's transaction.)
//!
//! # Why
//! Inodes are read from their table and written back for each change, so the buffer has the only copy. Weakness: each change
//! verifies and makes a checksum of a few hundred bytes.

mod bits;
mod change;
mod data;
mod flags;
mod groups;
mod held;
mod journaled;
mod lost;
mod names;
mod operations;
mod orphans;
#[cfg(test)]
mod orphans_tests;
mod reserve;
mod search;
mod space;
mod tree;
mod undo;
#[cfg(test)]
mod undo_tests;
mod windows;
mod write;
mod xattrs;

pub use change::{Change, Look, Privileges};
pub use data::Grow;
pub use groups::Room;
pub use held::{Held, Listed};
pub use journaled::DataMode;
pub use lost::{Losses, Lost};
pub use operations::{New, Rename, SetAttributes};
pub use write::WriteAt;

use crate::device::WriteDevice;
use crate::error::{Error, Result};
use crate::hashing::Seeded;
use crate::lock_order::{EXT_INODE, EXT_INODES, EXT_RENAMES};
use crate::recovery::{log_place, recover};
use crate::store::{Counts, Ended, Handle, LogPlace, Newest, Now, Owner, Role, Store};
use groups::Groups;
use orphans::Orphans;
use reserve::Reserved;
use std::collections::HashMap;
use std::io::IoSlice;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use undo::Op;
use uvfs_concurrent::lock::{Mutex, RwLock};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::Shards;
use uvfs_ext::{Class, DirectoryEntry, Image, Inode, Recovery, Superblock};

/// Bytes of metadata to keep, by default.
const BUFFERS_BYTES: u64 = 32 << 20;
/// Groups that are kept in memory.
const GROUPS_MAX: u32 = 1 << 20;
/// Shards of the table of inodes in use, and of the orphans.
const SHARDS: usize = 64;
/// Inodes in a row that are in one shard.
const SHARD_RUN: u32 = 16;
/// Inodes of a shard beyond which unused ones are dropped, with many buffers and with few.
const SHARD_MAX: usize = 1024;
const SHARD_FEW: usize = 32;
/// Share of the buffers' bytes for unused inodes.
const INODES_SHARE: u64 = 4;
/// Bytes of an inode in the table: its place there, at a load of a half, and what its node and the allocator take.
const KNOWN_BYTES: u64 = (2 * size_of::<(u32, Known)>() + size_of::<Node>() + 32) as u64;
/// Blocks that an operation may change: the path of a tree twice, split at each level, with bitmaps and descriptors.
const CREDITS: usize = 48;
/// Blocks that an operation on names may change.
const CREDITS_NAMES: usize = 96;

/// Read-only-compatible flags that are written.
const WRITTEN_RO: u32 = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x400;
/// Incompatible flags that are written.
const WRITTEN_I: u32 = 0x2 | 0x4 | 0x10 | 0x40 | 0x80 | 0x200 | 0x2000 | 0x4000;

/// Times of now.
mod time {
    use std::time::SystemTime;
    use uvfs_ext::Timestamp;

    pub(super) fn now() -> Timestamp {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
    }

    pub(super) fn seconds() -> u64 {
        now().seconds as u64
    }
}

/// The shard of an inode, as [`Shards::of_hash`] has it. Neighbours are in one: threads in different directories use inodes of
/// different groups, and when each inode was in the next shard, every shard's lines moved between them with each file.
fn spread(number: u32) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let once = u64::from(number.wrapping_sub(1) / SHARD_RUN).wrapping_mul(ODD);
    // Twice: by one product, blocks at equal distances are in shards at equal distances, which may be 0.
    (once ^ once >> 32).wrapping_mul(ODD) >> 32
}

/// State of an inode in use.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The last transaction that changed it, or a later one.
    changed: Option<u32>,
    /// The last one that changed what is needed to read its data back, or a later one.
    reached: Option<u32>,
}

/// An inode in the table.
#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// References that users have: while there are any, it lives without names.
    holds: u64,
    /// It never had a name, and may get one.
    unnamed: bool,
    /// Blocks for data that is written later ([`reserve`]).
    reserved: Option<Box<Reserved>>,
}

/// Inodes in use, some of them.
#[derive(Debug, Default)]
struct Shard {
    known: HashMap<u32, Known, Seeded>,
    /// How many of them users hold.
    held: usize,
    /// The transaction that ran when inodes were last dropped from here: they were not changed later.
    dropped: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) state: RwLock<State>,
}

/// A file system that is written.
#[derive(Debug)]
pub struct Volume {
    store: Arc<Store>,
    image: Image,
    groups: Groups,
    orphans: Orphans,
    inodes: Shards<Shard>,
    /// Inodes of a shard beyond which unused ones are dropped.
    shard_max: usize,
    /// How many are known.
    known: AtomicU64,
    /// Bytes of the lists of reserved blocks.
    reserved_bytes: AtomicU64,
    renames: Mutex<()>,
    recovery: Option<Recovery>,
    data: DataMode,
}

impl Volume {
    /// Opens the image on `device` for writing: brings its journal to it, frees inodes that had no names at the last crash, and says in
    /// its superblock that it is in use.
    ///
    /// # Errors
    /// [`Error::NotWritable`] names a feature that can be read and is not written; those of reading; those of the device.
    pub fn open(device: Arc<dyn WriteDevice>) -> Result<Self> {
        Self::with_buffers(device, BUFFERS_BYTES)
    }

    /// Opens the image with about so many bytes of unused metadata in memory.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn with_buffers(device: Arc<dyn WriteDevice>, bytes: u64) -> Result<Self> {
        Self::with_data(device, bytes, DataMode::Ordered)
    }

    /// Opens the image; data takes the way `data`.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn with_data(device: Arc<dyn WriteDevice>, bytes: u64, data: DataMode) -> Result<Self> {
        writable(Image::open(device.clone())?.superblock())?;
        let recovery = recover(&device)?;
        let mut source = None;
        let image = Image::open_with(device.clone(), |of| {
            source = Some(of.clone());
            Box::new(of)
        })?;
        // The journal may have brought a new superblock.
        writable(image.superblock())?;
        let source = source.expect("opening has a source");
        let log = log_place(&image, &source)?;
        let journal = log.as_ref().map_or_else(Vec::new, LogPlace::ranges);
        let block_size = image.superblock().block_size;
        let buffers = (bytes / u64::from(block_size)).min(1 << 24) as usize;
        let store = Arc::new(Store::new(device.clone(), block_size, buffers, log)?);
        let newest = store.clone();
        let image = image.through(|_| Box::new(Newest(newest))).without(journal);
        let mut superblock = image.superblock().clone();
        superblock.set_needs_recovery(true);
        superblock.note_mount(time::seconds());
        let (block, offset) = superblock.place();
        let at = block * u64::from(block_size) + offset as u64;
        device.write_at(at, &[IoSlice::new(&superblock.encode())])?;
        store.flush()?;
        // The log's beginning behind it: a log in an image that needs no recovery is damage, for e2fsck.
        store.checkpoint()?;
        let volume = Self {
            groups: Groups::new(&image)?,
            orphans: Orphans::new(superblock),
            store,
            image,
            inodes: Shards::new(&EXT_INODES, SHARDS),
            shard_max: ((bytes / INODES_SHARE / KNOWN_BYTES) as usize / SHARDS)
                .clamp(SHARD_FEW, SHARD_MAX),
            known: AtomicU64::new(0),
            reserved_bytes: AtomicU64::new(0),
            renames: Mutex::new(&EXT_RENAMES, ()),
            recovery,
            data,
        };
        volume.finish_orphans()?;
        Ok(volume)
    }

    /// Frees inodes without names, held or not, commits everything, brings it to its place and marks the image as clean.
    /// Later changes fail with [`Error::Ended`].
    ///
    /// # Errors
    /// [`Error::Ended`]: then the next writer recovers.
    pub fn close(&self) -> Result<()> {
        self.drop_orphans()?;
        self.store.shut("the image is closed");
        self.sync()?;
        self.store.checkpoint()?;
        self.store.close_log()?;
        let mut superblock = self.orphans.superblock();
        // One that came meanwhile is for the next writer.
        superblock.set_needs_recovery(superblock.last_orphan() != 0);
        superblock.note_write(time::seconds());
        let room = self.groups.room();
        superblock.set_free_blocks(room.free_blocks);
        superblock.set_free_inodes(room.free_inodes);
        let (block, offset) = superblock.place();
        let at = block * u64::from(superblock.block_size) + offset as u64;
        self.store.device().write_at(at, &[IoSlice::new(&superblock.encode())])?;
        self.store.flush()
    }

    /// Results of the journal's replay when it was opened.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// The superblock as it was when it was opened.
    pub fn superblock(&self) -> &Superblock {
        self.image.superblock()
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }

    /// How its journal is now.
    pub fn journal(&self) -> Now {
        self.store.now()
    }

    /// Why writing has ended, if it has.
    pub fn failure(&self) -> Option<Ended> {
        self.store.failure()
    }

    /// Bytes of metadata in memory, and of the table of inodes.
    pub fn held_bytes(&self) -> u64 {
        // ORDERING: Relaxed, both; a size for budgets.
        let inodes = self.known.load(Relaxed) * KNOWN_BYTES + self.reserved_bytes.load(Relaxed);
        self.store.held_bytes() + inodes
    }

    /// Frees about so many unused bytes. An inode that is held is freed after its last release.
    pub fn shrink(&self, bytes: u64) {
        self.store.shrink(bytes);
    }

    /// Whether the format reserves an inode number and uses it.
    pub fn is_own(&self, number: u32) -> bool {
        number < self.image.superblock().first_inode() && number != uvfs_ext::ROOT
    }

    /// Makes everything stable that operations did which returned.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn sync(&self) -> Result<()> {
        self.stabilise(Some(self.store.last_with_changes()))
    }

    /// Commits the changes. Call it every few seconds.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn commit_now_and_then(&self) -> Result<()> {
        self.store.check()?;
        if self.store.has_changes() {
            self.store.commit(self.store.running(), self)?;
        }
        Ok(())
    }

    /// Makes all changes of one inode stable, its data included.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn fsync(&self, number: u32) -> Result<()> {
        let changed = self.node(number).state.read().changed;
        self.stabilise(changed)
    }

    /// Makes the data of an inode stable, and the metadata that reading it needs: not its times.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn fdatasync(&self, number: u32) -> Result<()> {
        let reached = self.node(number).state.read().reached;
        self.stabilise(reached)
    }

    fn stabilise(&self, transaction: Option<u32>) -> Result<()> {
        let ticket = self.store.ticket();
        if let Some(transaction) = transaction {
            self.store.commit(transaction, self)?;
        }
        // Overwritten data is in no transaction, and the flush of a commit that another thread does may have begun before.
        self.store.flush_behind(ticket)
    }

    /// The attributes of an inode in use.
    ///
    /// # Errors
    /// [`Error::NotFound`] for one that is not; where it contradicts the format.
    pub fn inode(&self, number: u32) -> Result<Inode> {
        let node = self.node(number);
        let _state = node.state.read();
        self.load(number)
    }

    /// The inode that `name` means in `directory`.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn lookup(&self, directory: u32, name: &[u8]) -> Result<Option<u32>> {
        let node = self.node(directory);
        let _state = node.state.read();
        Ok(self.image.lookup(&self.load(directory)?, name)?)
    }

    /// Calls `tell` with the entries of a directory, as [`Image::list`]. No other operation changes it meanwhile, and `tell` must
    /// call none.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn list(
        &self,
        directory: u32,
        from: u64,
        tell: &mut dyn FnMut(DirectoryEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let node = self.node(directory);
        let _state = node.state.read();
        Ok(self.image.list(&self.load(directory)?, from, tell)?)
    }

    /// Reads a file; fewer bytes than asked for mean its end.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn read(&self, number: u32, offset: u64, into: &mut [u8]) -> Result<usize> {
        let node = self.node(number);
        let _state = node.state.read();
        self.read_newest(&self.load(number)?, offset, into)
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn read_link(&self, number: u32) -> Result<Vec<u8>> {
        Ok(self.image.read_link(&self.inode(number)?)?)
    }

    fn node(&self, number: u32) -> Arc<Node> {
        let mut shard = self.inodes.of_hash(spread(number)).lock();
        if let Some(known) = shard.known.get(&number) {
            return known.node.clone();
        }
        self.drop_unused(&mut shard);
        // ORDERING: Relaxed; a size for budgets.
        self.known.fetch_add(1, Relaxed);
        let state = State { changed: shard.dropped, reached: shard.dropped };
        let node = Arc::new(Node { state: RwLock::new(&EXT_INODE, state) });
        shard
            .known
            .insert(number, Known { node: node.clone(), holds: 0, unnamed: false, reserved: None });
        node
    }

    /// Drops the unused inodes of a shard, if they are a quarter more than the held ones: then the scan is worth it.
    fn drop_unused(&self, shard: &mut Shard) {
        if shard.known.len() - shard.held < self.shard_max + shard.held / 4 {
            return;
        }
        let before = shard.known.len();
        shard.known.retain(|_, known| {
            known.holds > 0 || known.reserved.is_some() || Arc::strong_count(&known.node) > 1
        });
        let left = shard.known.len();
        shard.known.shrink_to(left + left / 4);
        shard.dropped = Some(self.store.running());
        // ORDERING: Relaxed; a size for budgets.
        self.known.fetch_sub((before - left) as u64, Relaxed);
    }

    /// How many references users have; the inode is locked.
    fn holds(&self, number: u32) -> u64 {
        let shard = self.inodes.of_hash(spread(number)).lock();
        shard.known.get(&number).map_or(0, |known| known.holds)
    }

    /// Changes the count of holds; returns the new one.
    fn change_holds(&self, number: u32, by: i64) -> u64 {
        let mut shard = self.inodes.of_hash(spread(number)).lock();
        let Some(known) = shard.known.get_mut(&number) else { return 0 };
        let before = known.holds;
        let now = before.saturating_add_signed(by);
        known.holds = now;
        shard.held = shard.held + usize::from(now > 0) - usize::from(before > 0);
        if now == 0 {
            self.drop_unused(&mut shard);
        }
        drop(shard);
        if now == 0 {
            self.groups.release_window(number, self.image.superblock());
        }
        now
    }

    /// Whether it never had a name; it is so or not from now on, if that is said.
    fn unnamed(&self, number: u32, set: Option<bool>) -> bool {
        let mut shard = self.inodes.of_hash(spread(number)).lock();
        let Some(known) = shard.known.get_mut(&number) else { return false };
        let was = known.unnamed;
        known.unnamed = set.unwrap_or(was);
        was
    }

    /// Where an inode lies: its block, and its bytes in it.
    fn place_of(&self, number: u32) -> Result<(u64, Range<usize>)> {
        let superblock = self.image.superblock();
        if number == 0 || number > superblock.inodes {
            return Err(Error::NotFound);
        }
        let (group, at) = (
            (number - 1) / superblock.inodes_per_group,
            (number - 1) % superblock.inodes_per_group,
        );
        let size = usize::from(superblock.inode_size);
        let per_block = superblock.block_size / u32::from(superblock.inode_size);
        let table = self.image.group(group)?.inode_table;
        let start = (at % per_block) as usize * size;
        Ok((table + u64::from(at / per_block), start..start + size))
    }

    /// Loads an inode in use. The caller has its lock.
    fn load(&self, number: u32) -> Result<Inode> {
        let (block, bytes) = self.place_of(number)?;
        let inode =
            Inode::decode(number, &self.store.read(block)?[bytes], self.image.superblock())?;
        // One without names lives while it is held; then it has no time of deletion but a link to the next such one.
        let dead = inode.links() == 0 && !self.orphans.has(number);
        if inode.kind().is_none() || dead {
            return Err(Error::NotFound);
        }
        Ok(inode)
    }

    /// The first block of the group of an inode.
    fn home_of(&self, number: u32) -> u64 {
        let superblock = self.image.superblock();
        superblock.first_block_of((number - 1) / superblock.inodes_per_group)
    }

    /// Does `work` as a part of a transaction: all of it, or nothing if it fails. It is done a second time if it found no block
    /// and a commit brought some.
    fn operate<R>(
        &self,
        credits: usize,
        mut work: impl FnMut(&mut Op<'_>) -> Result<R>,
    ) -> Result<R> {
        let (done, lacks_blocks) = self.attempt(credits, &mut work)?;
        if !lacks_blocks || !self.groups.space.has_waiting() {
            return done;
        }
        self.sync()?;
        self.attempt(credits, &mut work)?.0
    }

    /// Does the same to inodes, or whatever else, which become what the operation makes of them only if it succeeds.
    fn operate_on<S: Clone, R>(
        &self,
        inodes: &mut S,
        credits: usize,
        mut work: impl FnMut(&mut Op<'_>, &mut S) -> Result<R>,
    ) -> Result<R> {
        self.operate(credits, |op| {
            let mut changed = inodes.clone();
            let done = work(op, &mut changed)?;
            *inodes = changed;
            Ok(done)
        })
    }

    /// The result of `work`, and whether it failed because a block was not available.
    ///
    /// # Errors
    /// [`Error::Ended`].
    fn attempt<R>(
        &self,
        credits: usize,
        work: &mut dyn FnMut(&mut Op<'_>) -> Result<R>,
    ) -> Result<(Result<R>, bool)> {
        let handle = loop {
            match self.store.begin(credits.min(self.store.credits_max()))? {
                Some(handle) => break handle,
                None => self.sync()?,
            }
        };
        let mut op = Op::new(self, handle);
        let done = work(&mut op);
        let lacks_blocks = done.is_err() && op.lacks_blocks;
        if done.is_ok() {
            op.succeed();
        } else if let Err(error) = op.undo() {
            // V3: a half of it is in the transaction, and cannot be taken out.
            let why = format!("an operation could not be taken back: {error}");
            return Err(self.store.end_writing(Error::Ended(why.into())));
        }
        Ok((done, lacks_blocks))
    }
}

/// Whether a volume can be written, by the fields of its superblock.
///
/// # Errors
/// [`Error::NotWritable`], with the reason.
pub fn writable(superblock: &Superblock) -> Result<()> {
    let features = &superblock.features;
    let refuse = |what: String| Err(Error::NotWritable(what));
    let named = |class: Class, written: u32| -> Vec<String> {
        let known =
            features.known().filter(|known| known.class == class && known.bit & !written != 0);
        let unknown = features.unknown().into_iter().filter(|(of, _)| *of == class);
        known.map(|known| known.name.to_owned()).chain(unknown.map(|(_, name)| name)).collect()
    };
    let mut not_written = named(Class::Incompatible, WRITTEN_I);
    not_written.extend(named(Class::ReadOnlyCompatible, WRITTEN_RO));
    if !not_written.is_empty() {
        return refuse(format!("it has the feature {}", not_written.join(", ")));
    }
    if !features.has_journal() {
        return refuse("it has no journal (tune2fs -j makes one)".into());
    }
    if features.incompat & 0x40 == 0 {
        return refuse("its files are not mapped by extents (tune2fs -O extent allows it)".into());
    }
    if superblock.has_errors() || !superblock.is_clean() && !features.needs_recovery() {
        return refuse("errors were noted in it, or it was not unmounted: let e2fsck look".into());
    }
    if superblock.groups > GROUPS_MAX {
        return refuse(format!("it has {} groups", superblock.groups));
    }
    Ok(())
}

impl Owner for Volume {
    fn closing(&self, handle: &mut Handle<'_>) -> Result<()> {
        self.groups.describe(handle, self.image.superblock())?;
        self.link_orphans(handle)?;
        // A superblock that is torn between its sectors cannot be read, so it is changed only when it must be. Its totals are
        // those of the groups, which every writer counts.
        let Some(mut superblock) = self.orphans.take_changed() else { return Ok(()) };
        let room = self.groups.room();
        superblock.set_free_blocks(room.free_blocks);
        superblock.set_free_inodes(room.free_inodes);
        superblock.note_write(time::seconds());
        put_superblock(handle, &superblock)
    }

    fn committed(&self, freed: Vec<Range<u64>>) {
        self.groups.reuse(freed, self.image.superblock());
    }
}

fn put_superblock(handle: &mut Handle<'_>, superblock: &Superblock) -> Result<()> {
    let (block, offset) = superblock.place();
    let new = superblock.encode();
    handle.modify(block, Role::Superblock, |bytes| {
        bytes[offset..offset + new.len()].copy_from_slice(&new);
    })
}

impl Op<'_> {
    /// Writes an inode back, which this thread has locked.
    fn put_inode(&mut self, inode: &Inode, state: &mut State) -> Result<()> {
        state.reached = Some(self.handle.transaction());
        self.put_times(inode, state)
    }

    /// Puts an inode of which only times have changed.
    fn put_times(&mut self, inode: &Inode, state: &mut State) -> Result<()> {
        state.changed = Some(self.handle.transaction());
        let superblock = self.volume.image.superblock();
        self.change_inode_bytes(inode.number, |bytes| inode.encode(bytes, superblock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads that made files in directories of two groups, in step, came to one shard with each file.
    #[test]
    fn inodes_of_a_block_are_in_one_shard_and_groups_in_step_are_not() {
        let shard = |number: u32| spread(number) % SHARDS as u64;
        assert!((1..=SHARD_RUN).all(|number| shard(number) == shard(1)));
        for inodes_per_group in [2048, 8192] {
            let same =
                (1..=inodes_per_group).filter(|at| shard(*at) == shard(at + inodes_per_group));
            assert!(same.count() < inodes_per_group as usize / 8);
        }
    }
}
