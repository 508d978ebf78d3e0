//! The pages of one file, and its data that the store does not have yet.
//!
//! Finds, inserts and removes pages, keeps the file's size, and knows whether it has unwritten data. Asks the store
//! nothing: [`super::read`], [`super::write`] and [`super::write_back`] do.
//!
//! # Concurrency
//! F1. A page is in the tree from before it is filled until after it is locked for removal. A thread removes it under
//! its lock or after freezing it ([`uvfs_containers::frame::Arena::try_evict`]).
//! F2. A page's bytes beyond the size are zero, so that a file that grows shows zeros.
//! F3. The size is published before the page that reaches it is dirty: write-back cuts at the size, and loses nothing.
//! F4. While a file has *unwritten data* (dirty, being written, or an unsent time) the inode is held. Its size and
//! times are those here, whatever the store reports.
//!
//! The lock of [`WriteState`] is innermost but for the page's own. It has the file's state, the data that the store lacks:
//!
//! | state | `pinned_inode` | `writers` | `unwritten` | `changed` | `pause` | left by |
//! |---|---|---|---|---|---|---|
//! | clean | none | 0 | 0 | none | none | a writer: `begin_write` |
//! | being written | the node | > 0 | any | any | any | its last writer: `end_write`, to *dirty*, or to *clean* if it wrote nothing |
//! | dirty | the node | 0 | > 0 | a time | none | write-back: `answered` with the last page, to *time unwritten*; `failed`, to *refused*; no possible reader: `discard`, to *clean* |
//! | refused | the node | 0 | > 0 | a time | until when | `answered` when the store takes something, `be_due`, or freed space, to *dirty* |
//! | time unwritten | the node | 0 | 0 | a time | any | write-back or a thread that sets times: `change_time_written`, to *clean* |
//!
//! In all others the file is queued ([`super::dirty`]) from the end of its first write until a write-back thread finds
//! it clean. A cut of the last dirty page leads from *dirty* to *time unwritten*.

use super::ahead::Streams;
use super::clean::ParentHint;
use super::dirty::Place;
use super::errors::ErrorLog;
use super::gate::FileGate;
use super::opens::Opens;
use super::pieces::{Pieces, Written};
use super::space::is_full;
use super::version::Versions;
use super::write_back::HELPERS_MAX;
use super::{FILE_BYTES, PAGE, PageCache};
use crate::attributes::{Attributes, Timestamp};
use crate::backend::InodeId;
use crate::error::Error;
use crate::inode::{Node, Ticket};
use crate::lock_order;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::epoch::{self, Guard};
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use uvfs_containers::frame::{FrameId, Fresh, Locked, Outcome, PageRef, Read};
use uvfs_containers::radix::{Tag, Tree};

/// The size is not known: the store has to be asked.
const UNKNOWN: u64 = u64::MAX;
/// Longest file. A larger size from the store is not accepted.
const SIZE_MAX: u64 = i64::MAX as u64;
/// A page in the unit of `st_blocks`.
const BLOCKS: u64 = PAGE / 512;
/// Longest pause between two tries to write to a store that fails.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// First pause.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// When new data of a file that was cut to nothing is due.
const EMPTIED_DELAY: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug)]
pub(crate) struct FilePages {
    /// Read by every hit, stored to by changes of the size.
    size: AtomicU64,
    /// Names the pages of this file among all frames.
    pub(super) owner: u64,
    pub(crate) inode: InodeId,
    pub(super) tree: Tree,
    pub(super) streams: Streams,
    pub(super) cache: Arc<PageCache>,
    pub(super) gate: FileGate,
    pub(crate) opens: Opens,
    pub(crate) errors: ErrorLog,
    /// The pages' version, if the store reports it ([`super::version`]).
    pub(super) versions: LazyBox<Versions>,
    /// Other programs change the file in the store.
    pub(super) shared: bool,
    /// Bytes counted as waiting for a grace period, once its inode is torn down ([`FilePages::leave`]).
    leaving_bytes: AtomicU32,
    /// The file's directory, and the cleans of it.
    pub(super) hint: ParentHint,
    /// It was fetched because other files of its directory are read in order, and was not read since.
    expected: AtomicBool,
    local: Mutex<Option<Box<WriteState>>>,
}

// Every open file has one.
const _: () = assert!(size_of::<FilePages>() <= 272);

/// State that the store does not know yet. Made at the first write, freed when the file has left the queue.
#[derive(Debug)]
pub(super) struct WriteState {
    /// Pages dirty or being written. Lags behind while there are `writers`, and may be below zero.
    pub(super) unwritten: i64,
    /// Writes in progress.
    pub(super) writers: u32,
    /// When the data last changed, if the store does not have that time.
    pub(super) changed: Option<Timestamp>,
    /// A caller set that time, so it does not tell when the data changed.
    stated: bool,
    /// It was cut to nothing in the store, and has got no new data there.
    emptied: bool,
    /// The time of change that the store took with data, or that a caller set there.
    taken: Option<Timestamp>,
    /// The store has to be asked for the size as soon as no data is unwritten.
    doubtful: bool,
    /// Space of the file when the store last reported it, in units of 512 bytes.
    blocks: u64,
    /// The store's file after our last write to it. If the next write finds it different, another program has changed
    /// it.
    store: Option<Version>,
    /// Offset of a write that found no room, in a store that takes whole files ([`super::whole`]).
    pub(super) short: Option<u64>,
    /// Threads that are writing it back.
    pub(super) helpers: u32,
    /// Keeps the inode while data is unwritten.
    pub(super) pinned_inode: Option<Node>,
    /// Since when data is unwritten.
    pub(super) since: Option<Instant>,
    /// The store failed: write-back pauses.
    pub(super) pause: Option<Pause>,
    /// All unwritten data was tried and failed, and nothing was written since.
    pub(super) tried: bool,
    /// The log has reported a refusal of this file, and the store has taken nothing of it since.
    pub(super) warned: bool,
    /// The bytes of its dirty pages that were written here, where other programs change the store.
    pub(super) pieces: Written,
    /// Place of the file in the write-back queue.
    pub(super) queued: Option<Place>,
    /// Where background write-back continues.
    pub(super) cursor: u64,
}

/// The store refused data of a file, and has taken nothing since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pause {
    /// No retry before this moment.
    pub(super) until: Instant,
    /// How long it lasts.
    length: Duration,
    /// The store was full at this count of freed space ([`super::space`]): the pause ends when the count changes.
    pub(super) for_space: Option<u64>,
}

/// Attributes that show a change of a file's content.
#[derive(Debug, Clone, Copy)]
struct Version {
    mtime: Timestamp,
    size: u64,
    /// The store's version; 0 if it reports none.
    reported: u64,
}

impl Version {
    fn of(attributes: &Attributes) -> Self {
        Self { mtime: attributes.mtime, size: attributes.size, reported: attributes.version }
    }

    fn is(self, other: Self) -> bool {
        match self.reported != 0 && other.reported != 0 {
            true => self.reported == other.reported,
            false => (self.mtime, self.size) == (other.mtime, other.size),
        }
    }
}

/// The state of a file without unwritten data.
static NOTHING: WriteState = WriteState::NOTHING;

/// [`FilePages::local`]: can be read before it exists, and is made at the first change.
pub(super) struct LocalGuard<'a> {
    local: MutexGuard<'a, Option<Box<WriteState>>>,
    cache: &'a PageCache,
}

impl Deref for LocalGuard<'_> {
    type Target = WriteState;
    fn deref(&self) -> &WriteState {
        self.local.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for LocalGuard<'_> {
    fn deref_mut(&mut self) -> &mut WriteState {
        self.local.get_or_insert_with(|| {
            self.cache.parts_grew(size_of::<WriteState>());
            Box::new(WriteState::NOTHING)
        })
    }
}

impl LocalGuard<'_> {
    /// The file has left the queue. Frees the state, unless a write has just begun, or one that ends late is still to
    /// be counted. The next write records the store's file again.
    pub(super) fn forget_if_idle(&mut self) {
        let idle = |local: &WriteState| {
            let nothing = local.unwritten == 0 && local.writers == 0 && local.helpers == 0;
            let untold = local.changed.is_some() || local.doubtful || local.pinned_inode.is_some();
            let untold = untold || local.short.is_some();
            let waits = local.queued.is_some() || local.pause.is_some() || local.since.is_some();
            nothing && !untold && !waits && local.pieces.is_empty()
        };
        if self.local.as_deref().is_some_and(idle) {
            *self.local = None;
            self.cache.parts_shrank(size_of::<WriteState>());
        }
    }
}

impl WriteState {
    const NOTHING: Self = Self {
        unwritten: 0,
        writers: 0,
        changed: None,
        stated: false,
        emptied: false,
        taken: None,
        doubtful: false,
        blocks: 0,
        store: None,
        short: None,
        helpers: 0,
        pinned_inode: None,
        since: None,
        pause: None,
        tried: false,
        warned: false,
        pieces: Written::NOTHING,
        queued: None,
        cursor: 0,
    };

    fn is_written_back(&self) -> bool {
        self.unwritten <= 0 && self.writers == 0
    }
}

impl FilePages {
    /// It is fetched for an expected reader.
    pub(super) fn expect(&self) {
        // ORDERING: Relaxed; a hint.
        self.expected.store(true, Relaxed);
    }

    /// Whether it was fetched for a reader that has not come yet.
    pub(super) fn is_expected(&self) -> bool {
        // ORDERING: Relaxed; a hint.
        self.expected.load(Relaxed)
    }

    /// The reader has come, or will not come. Returns whether it was expected.
    pub(super) fn end_expectation(&self) -> bool {
        // ORDERING: Relaxed; two threads that get `true` both follow, which does nothing more.
        self.is_expected() && self.expected.swap(false, Relaxed)
    }

    pub(super) fn new(
        cache: Arc<PageCache>,
        (inode, owner): (InodeId, u64),
        now: Ticket,
        shared: bool,
    ) -> Self {
        Self {
            size: AtomicU64::new(UNKNOWN),
            owner,
            inode,
            tree: Tree::new(&lock_order::PAGE_TREE),
            streams: Streams::default(),
            cache,
            gate: FileGate::new(),
            opens: Opens::new(inode),
            errors: ErrorLog::default(),
            versions: LazyBox::new(),
            shared,
            leaving_bytes: AtomicU32::new(0),
            hint: ParentHint::new(now),
            expected: AtomicBool::new(false),
            local: Mutex::new(&lock_order::PAGES_LOCAL, None),
        }
    }

    pub(super) fn local(&self) -> LocalGuard<'_> {
        LocalGuard { local: self.local.lock(), cache: &self.cache }
    }

    /// The size, if it is known.
    #[inline]
    pub(super) fn size(&self) -> Option<u64> {
        // ORDERING: Acquire, partner `grow_to` and `set_size`: a reader of the size sees the bytes below it.
        Some(self.size.load(Acquire)).filter(|&size| size != UNKNOWN)
    }

    /// The file reaches up to `end` now, at least. The caller is a writer inside the gate.
    pub(super) fn grow_to(&self, end: u64) {
        // ORDERING: Relaxed; only compared, and `fetch_max` decides.
        let known = self.size.load(Relaxed);
        if known < end {
            // ORDERING: Release, partner `size`: the page was written before (F3).
            self.size.fetch_max(end, Release);
        }
    }

    /// Sets the size. The caller is alone in the gate or has asked the store.
    pub(super) fn set_size(&self, size: u64) {
        // ORDERING: Release, partner `size`.
        self.size.store(size.min(SIZE_MAX), Release);
    }

    /// Forgets the size: the store has to be asked for it.
    pub(super) fn doubt_size(&self) {
        // ORDERING: Release, partner `size`.
        self.size.store(UNKNOWN, Release);
    }

    /// Whether the store lacks data or a time (F4).
    pub(crate) fn has_unwritten(&self) -> bool {
        self.local().pinned_inode.is_some()
    }

    /// Whether pages wait for write-back, or are being written.
    pub(super) fn is_unwritten(&self) -> bool {
        !self.local().is_written_back()
    }

    /// Pages that are dirty or being written. Pages of a write in progress may be missing.
    pub(super) fn unwritten_pages(&self) -> u64 {
        self.local().unwritten.max(0) as u64
    }

    /// `given` by the store, with the values that are newer here (F4).
    pub(crate) fn overlay(&self, given: Attributes) -> Attributes {
        let mut local = self.local();
        if local.pinned_inode.is_none() {
            return given;
        }
        local.blocks = given.blocks;
        self.improved(&local, given)
    }

    /// Cached attributes, which may have been through [`FilePages::overlay`], after a write.
    pub(crate) fn overlay_again(&self, cached: Attributes) -> Attributes {
        let local = self.local();
        if local.pinned_inode.is_none() { cached } else { self.improved(&local, cached) }
    }

    fn improved(&self, local: &WriteState, given: Attributes) -> Attributes {
        let size = self.size().unwrap_or(given.size);
        // Unwritten pages will take space, unless they have some already.
        let most = local.blocks.max(size.div_ceil(PAGE) * BLOCKS);
        let unwritten = local.unwritten.max(0) as u64 * BLOCKS;
        let given = Attributes { size, blocks: (local.blocks + unwritten).min(most), ..given };
        match local.changed {
            Some(time) if local.stated => Attributes { mtime: time, ..given },
            Some(time) => Attributes { mtime: time, ctime: given.ctime.max(time), ..given },
            None => given,
        }
    }

    /// The store reports this size. Ignored while data is unwritten.
    pub(crate) fn learn_size(&self, size: u64) {
        let local = self.local();
        if local.pinned_inode.is_none() {
            self.set_size(size);
        }
    }

    /// A write begins: from now on the size is ours. Whether its data is due before `delay`.
    pub(super) fn begin_write(&self, node: &Node, delay: Duration) -> bool {
        let mut local = self.local();
        local.writers += 1;
        let is_first = local.pinned_inode.is_none();
        let is_early = is_first && local.emptied;
        if is_first {
            local.pinned_inode = Some(node.clone());
            let now = Instant::now();
            // Data is due `delay` after this moment.
            let early = delay.saturating_sub(EMPTIED_DELAY);
            local.since = if is_early { now.checked_sub(early) } else { Some(now) };
            drop(local);
            // Read without our lock: reading attributes may wait for a thread that changes them.
            let known = node.inode.last_attributes();
            let believed = node.inode.attributes_believed();
            let mut local = self.local();
            local.blocks = known.blocks;
            let reported = self.version();
            local.store =
                (believed || reported != 0).then(|| Version { reported, ..Version::of(&known) });
        }
        is_early
    }

    /// Whether another program has changed the store's file since our last write to it. `now` are its present
    /// attributes.
    pub(super) fn changed_by_others(&self, now: &Attributes) -> bool {
        self.local().store.is_some_and(|last| !last.is(Version::of(now)))
    }

    /// Attributes of the store's file after our write to it.
    pub(super) fn stored(&self, now: &Attributes) {
        let mut local = self.local();
        local.store = Some(Version::of(now));
        // The pages here have the content that we wrote.
        self.set_version(&local, now.version);
    }

    /// A write ended, and made `dirtied` more pages dirty. If it wrote anything, it did so at `changed`. True if from
    /// now on the file waits for write-back.
    pub(super) fn end_write(self: &Arc<Self>, dirtied: u64, changed: Option<Timestamp>) -> bool {
        let mut local = self.local();
        local.writers -= 1;
        local.unwritten += dirtied as i64;
        local.stated &= changed.is_none();
        local.tried &= changed.is_none();
        local.changed = changed.or(local.changed);
        let nothing = local.is_written_back() && local.changed.is_none();
        // Dropped with no lock held: it may be the last hold.
        let node = if nothing { local.pinned_inode.take() } else { None };
        let queue = local.pinned_inode.is_some() && local.queued.is_none();
        drop(local);
        drop(node);
        // If two threads get here, one queues the file.
        queue && self.cache.dirty_files.add(self.clone())
    }

    /// If at least `many` pages are unwritten, makes the file due at once. Returns whether another thread may help to
    /// write it back.
    pub(super) fn flows(&self, many: u64) -> bool {
        let mut local = self.local();
        if local.unwritten < many as i64 {
            return false;
        }
        let helps = local.helpers < HELPERS_MAX;
        let is_first = local.since.take().is_some();
        drop(local);
        if is_first {
            self.cache.dirty_files.hasten(self);
        }
        helps
    }

    /// Fewer pages wait to be written, by `pages`.
    pub(super) fn count_less(&self, pages: u64) {
        self.cache.dirty_less(pages);
        self.local().unwritten -= pages as i64;
    }

    /// The store answered about a run, and the pages are counted and no longer being written.
    pub(super) fn answered(&self, outcome: Outcome) {
        // Only now can a thread that waits for room evict them.
        self.cache.progress.made();
        let mut local = self.local();
        if outcome == Outcome::Written {
            let was_paused = local.pause.take().is_some();
            local.warned = false;
            drop(local);
            if was_paused {
                self.cache.dirty_files.hasten(self);
            }
        }
    }

    /// The store failed: write-back of this file pauses.
    pub(super) fn failed(&self, error: &Error) {
        let for_space = is_full(error).then(|| self.cache.space.was_refused());
        let mut local = self.local();
        let length = local.pause.map_or(PAUSE_MIN, |last| (last.length * 2).min(PAUSE_MAX));
        local.pause = Some(Pause { until: Instant::now() + length, length, for_space });
        local.tried = true;
        drop(local);
        if let Some(then) = for_space {
            self.cache.dirty_files.wants_space(self, then);
        }
    }

    /// Makes the file due at `moment`. Files are due `delay` after they became dirty.
    pub(super) fn postpone_until(&self, moment: Instant, delay: Duration) {
        // If the clock began less than a delay ago, there is no such moment: the file is due later.
        self.local().since = Some(moment.checked_sub(delay).unwrap_or(moment));
        self.cache.dirty_files.postpone(self, moment);
    }

    /// The store is about to have no data of the file. A program that writes it again expects the new content in it soon, as on
    /// other file systems that allocate late: until then a crash leaves it empty.
    pub(super) fn is_emptied(&self) {
        self.local().emptied = true;
    }

    /// When unwritten data is due.
    pub(super) fn ripens(&self, delay: Duration) -> Instant {
        self.local().since.map_or_else(Instant::now, |since| since + delay)
    }

    /// When the data last changed: the time to write back with. A write in progress has its own later.
    pub(super) fn change_time(&self) -> Timestamp {
        self.local().changed.unwrap_or_else(Timestamp::now)
    }

    /// The store took `time` with data.
    pub(super) fn change_time_taken(&self, time: Timestamp) {
        self.local().taken = Some(time);
    }

    /// Whether the store has the time of the last change.
    pub(super) fn is_change_time_taken(&self) -> bool {
        let local = self.local();
        local.taken.is_some() && local.taken == local.changed
    }

    /// Whether a caller set the time of the last change.
    pub(super) fn is_change_stated(&self) -> bool {
        self.local().stated
    }

    /// The version of the store's content under our writes; 0 if the store reports none.
    pub(super) fn version_written_over(&self) -> u64 {
        self.local().store.map_or(0, |store| store.reported)
    }

    /// Unwritten data is due at once.
    pub(super) fn be_due(&self) {
        let mut local = self.local();
        local.since = None;
        local.pause = None;
        drop(local);
        self.cache.dirty_files.hasten(self);
    }

    /// The store's last refusal, if it has taken nothing since.
    pub(super) fn why_not_written(&self) -> Option<Error> {
        let failing = self.local().pause.is_some();
        if failing { self.errors.last() } else { None }
    }

    /// The change time that the store does not have, if nothing else is unwritten.
    pub(super) fn unwritten_change_time(&self) -> Option<Timestamp> {
        let local = self.local();
        local.changed.filter(|_| local.is_written_back())
    }

    /// The store has the change `time`, or does not need it. Nothing is unwritten any more, unless a write came
    /// meanwhile. Returns the hold on the inode. Drop it with no lock held.
    pub(super) fn change_time_written(&self, time: Option<Timestamp>) -> Option<Node> {
        let mut local = self.local();
        if !local.is_written_back() || local.changed != time {
            return None;
        }
        local.changed = None;
        local.stated = false;
        local.taken = None;
        local.emptied = false;
        local.since = None;
        if std::mem::take(&mut local.doubtful) {
            self.doubt_size();
        }
        local.pinned_inode.take()
    }

    /// Forgets the size now, or when no data is unwritten any more.
    pub(super) fn doubt_size_when_written_back(&self) {
        let mut local = self.local();
        match local.pinned_inode {
            Some(_) => local.doubtful = true,
            None => self.doubt_size(),
        }
    }

    /// Removes the clean pages from `first` on. The caller is alone in the gate.
    pub(super) fn drop_clean_from(&self, first: u64) {
        let mut at = first;
        while let Some(index) = self.next(at..u64::MAX) {
            at = index + 1;
            if let Some(locked) = self.lock(index)
                && !locked.page().is_dirty()
            {
                self.take_out(locked);
            }
        }
    }

    /// The store has set the time of the last change, while data may be unwritten.
    pub(crate) fn set_change(&self, time: Timestamp) {
        let mut local = self.local();
        if local.pinned_inode.is_some() {
            local.changed = Some(time);
            local.stated = true;
            local.taken = Some(time);
        }
    }

    /// Copies the bytes of page `index` from `skip` on. False if the page is missing or not readable at once. Takes no
    /// lock and stores to no shared line, except for an occasional mark of use.
    #[inline]
    pub(super) fn copy_out(&self, index: u64, skip: usize, into: &mut [u8], guard: &Guard) -> bool {
        let Some(value) = self.tree.get(index, guard) else { return false };
        let (id, arena) = (FrameId::from_value(value), &self.cache.arena);
        let read = arena.read_validated(id, self.owner, index, skip, into);
        if !matches!(read, Read::Done) {
            return false;
        }
        arena.touch(id, self.cache.clock());
        true
    }

    /// Whether all pages of `bytes` bytes at `offset` were here at some moment during the call, each at its own.
    pub(super) fn has_all(&self, offset: u64, bytes: usize) -> bool {
        let guard = epoch::pin();
        let end = offset.saturating_add(bytes as u64).div_ceil(PAGE);
        (offset / PAGE..end).all(|index| self.tree.get(index, &guard).is_some())
    }

    /// A reference to page `index`.
    pub(super) fn find(&self, index: u64) -> Option<PageRef<'_>> {
        let guard = epoch::pin();
        let value = self.tree.get(index, &guard)?;
        self.cache.arena.try_get(FrameId::from_value(value), self.owner, index)
    }

    /// Page `index`, locked; waits for the thread that has the lock. `None` if there is no such page.
    pub(super) fn lock(&self, index: u64) -> Option<Locked<'_>> {
        loop {
            let locked = self.find(index)?.lock();
            if locked.page().is_attached() {
                return Some(locked);
            }
        }
    }

    /// Inserts `fresh` as page `index`, locked and not filled. `None` if there is one already.
    pub(super) fn take_in<'a>(&'a self, fresh: Fresh<'a>, index: u64) -> Option<Locked<'a>> {
        let mut locked = fresh.assign(self.owner, index);
        let value = locked.page().id().to_value();
        match self.tree.insert(index, value, &epoch::pin()) {
            Ok(()) => Some(locked),
            Err(_) => {
                locked.detach();
                None
            }
        }
    }

    /// Removes a page. Its dirty data is lost: the caller has decided that.
    pub(super) fn take_out(&self, mut locked: Locked<'_>) {
        let (index, id) = (locked.page().index(), locked.page().id());
        if locked.clear_dirty() {
            self.count_less(1);
            self.cache.progress.made();
        }
        self.tree.remove_if(index, id.to_value(), &epoch::pin());
        self.cache.leaves(id);
        locked.detach();
        // After the detach: a failed run then returns no pieces of a page that is out.
        if self.shared {
            let mut local = self.local();
            // Most files have none. The check makes no `WriteState`.
            if !local.pieces.is_empty() {
                local.pieces.forget(index);
            }
        }
    }

    /// Records that bytes `piece` of a page were written here. Returns whether the page was clean.
    pub(super) fn mark_dirty(&self, locked: &mut Locked<'_>, piece: (usize, usize)) -> bool {
        if !self.shared {
            return locked.mark_dirty();
        }
        // In one hold of the lock: see `pieces`.
        let mut local = self.local();
        local.pieces.wrote(locked.page().index(), locked.page().is_dirty(), piece);
        locked.mark_dirty()
    }

    /// Takes the unwritten pieces of the pages of `range`, which are locked and are now sent to the store.
    pub(super) fn take_pieces(&self, range: Range<u64>) -> Vec<Pieces> {
        if !self.shared {
            return range.map(|_| Pieces::whole()).collect();
        }
        let mut local = self.local();
        range.map(|index| local.pieces.take(index)).collect()
    }

    /// The store did not take the run: puts its pieces back. The pages are still being written.
    pub(super) fn give_pieces_back<'a>(
        &self,
        run: impl Iterator<Item = (&'a PageRef<'a>, Pieces)>,
    ) {
        if !self.shared {
            return;
        }
        let mut local = self.local();
        for (page, pieces) in run {
            if page.is_attached() {
                local.pieces.failed(page.index(), pieces, page.is_dirty());
            }
        }
    }

    /// Removes the pages of `range`, and waits for the threads that have them. Their dirty data is lost. Returns the
    /// number of dirty pages.
    pub(super) fn drop_range(&self, range: Range<u64>) -> u64 {
        let (mut at, mut dirty) = (range.start, 0);
        while let Some(index) = self.next(at..range.end) {
            at = index + 1;
            if let Some(locked) = self.lock(index) {
                dirty += u64::from(locked.page().is_dirty());
                self.take_out(locked);
            }
        }
        dirty
    }

    /// Another program changed the content in the store, and maybe the size. Never waits.
    pub(crate) fn content_changed(&self) {
        self.drop_outdated();
        let local = self.local();
        if local.pinned_inode.is_none() {
            self.doubt_size();
        }
    }

    /// The store reports another size or another time of change than before.
    pub(crate) fn attributes_changed(&self) {
        // Where only this mount changes the store, the change was ours. Where the store reports versions, they decide
        // which pages are dropped.
        if self.shared && !self.has_versions() {
            self.drop_outdated();
        }
    }

    /// Drops clean pages, and makes fills in progress discard theirs. Never waits.
    pub(super) fn drop_outdated(&self) {
        let mut at = 0;
        while let Some(index) = self.next(at..u64::MAX) {
            at = index + 1;
            let Some(page) = self.find(index) else { continue };
            page.mark_stale();
            if let Ok(locked) = page.try_lock()
                && locked.page().is_attached()
                && !(locked.page().is_dirty() || locked.page().is_writing())
            {
                self.take_out(locked);
            }
        }
    }

    /// The file ends at `size` now. The caller is alone in the gate.
    pub(super) fn cut(&self, size: u64) {
        if self.is_short() && self.local().short.is_some_and(|short| size <= short) {
            self.local().short = None;
        }
        // Readers see the new end before the pages behind it are removed.
        self.set_size(size);
        self.drop_range(size.div_ceil(PAGE)..u64::MAX);
        let (index, keep) = (size / PAGE, (size % PAGE) as usize);
        if keep > 0
            && let Some(mut locked) = self.lock(index)
        {
            if locked.page().is_uptodate() {
                locked.zero(keep..PAGE as usize);
                if self.shared {
                    self.local().pieces.cut(index, keep);
                }
            } else {
                self.take_out(locked);
            }
        }
    }

    /// Puts the store's `data` at `offset` into the existing pages. The caller is alone in the gate.
    pub(super) fn overwrite(&self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, skip) = (at / PAGE, (at % PAGE) as usize);
            let count = (PAGE as usize - skip).min(data.len() - done);
            if let Some(mut locked) = self.lock(index) {
                if locked.page().is_uptodate() {
                    locked.write(skip, &data[done..done + count]);
                } else {
                    self.take_out(locked);
                }
            }
            done += count;
        }
    }

    /// The first page at or after the start of `range`.
    pub(super) fn next(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let guard = epoch::pin();
        let (index, _) = self.tree.iter(range, &guard).next()?;
        Some(index)
    }

    /// The first page in `range` that has `tag`.
    pub(super) fn next_tagged(&self, range: Range<u64>, tag: Tag) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let guard = epoch::pin();
        self.tree.iter_tagged(range, tag, &guard).next().map(|(index, _)| index)
    }

    /// The inode is torn down: forgets every page, dirty or not. The memory of this object counts as garbage until all
    /// readers that may have found the inode by a name have passed. Called once.
    pub(crate) fn leave(&self) {
        self.drop_range(0..u64::MAX);
        let bytes = FILE_BYTES + self.parts_bytes();
        // ORDERING: Relaxed; a size, and the thread that drops this object has it alone.
        self.leaving_bytes.store(u32::try_from(bytes).unwrap_or(0), Relaxed);
        self.cache.leaving_more(bytes as u64);
    }

    /// Bytes of the parts that only some files have.
    fn parts_bytes(&self) -> usize {
        let made = |is: bool, bytes: usize| if is { bytes } else { 0 };
        let local = made(self.local.lock().is_some(), size_of::<WriteState>());
        let streams = made(self.streams.is_made(), Streams::BYTES);
        local + streams + made(self.versions.get().is_some(), size_of::<Versions>())
    }
}

impl Drop for FilePages {
    fn drop(&mut self) {
        self.drop_range(0..u64::MAX);
        self.cache.forget_file(self.owner, self.class());
        self.cache.parts_shrank(self.parts_bytes());
        // ORDERING: Relaxed; no other thread has it.
        self.cache.leaving_less(self.leaving_bytes.load(Relaxed).into());
    }
}
