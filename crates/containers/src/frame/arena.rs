//! The arena: descriptors and frames by number, and what can be done with a number alone.
//!
//! # Boundary
//! Numbers in, references out. [`super::page`] defines the rights of a reference; free numbers are in [`super::free`],
//! bytes in [`super::memory`], sleepers in [`super::wait`].

use super::free::{Free, Links};
use super::memory::Memory;
use super::page::{Evicting, Fresh, PageRef};
use super::vacancy::Vacancy;
use super::wait::Waits;
use super::word::{self, StateWord};
#[cfg(not(loom))]
use crate::huge;
use crate::replacement::{Access, AccessWord};
use std::io;
use std::num::NonZeroU64;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Attempts of a reader by version.
const ROUNDS: usize = if cfg!(loom) { 2 } else { 8 };
/// Frames that `trim` holds at a time.
const TRIM_BATCH: usize = if cfg!(loom) { 2 } else { 512 };

/// The number of a frame. Nothing more: its page may have been evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(super) u32);

impl FrameId {
    /// The frame as a value for a tree.
    #[inline]
    pub fn to_value(self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(u64::from(self.0))
    }

    /// From a value made by [`FrameId::to_value`]. The arena refuses any other value that is not the number of a frame.
    #[inline]
    pub fn from_value(value: NonZeroU64) -> Self {
        Self(u32::try_from(value.get() - 1).unwrap_or(u32::MAX))
    }

    /// The frame as a number, for [`crate::replacement::Queues`].
    #[inline]
    pub fn number(self) -> u32 {
        self.0
    }

    /// From [`FrameId::number`].
    #[inline]
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// The outcome of a read by version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// The bytes are the page's, all of one version.
    Done,
    /// The page is there, but being filled or changed: reference it and wait, or lock it.
    Busy,
    /// The frame does not hold this page, or no longer: look it up again.
    Gone,
}

/// All metadata of a frame. Never moves, never freed (F1).
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct Descriptor {
    pub(super) word: StateWord,
    pub(super) owner: AtomicU64,
    pub(super) index: AtomicU64,
    access: AccessWord,
    /// While free: the frame below in its stack.
    link: AtomicU32,
}

/// Frames and their descriptors. See [`super`].
///
/// A reader copies a cached page between two loads of its word (vmcache, Leis et al. 2023), so a hit takes no reference
/// and writes no shared line. A thread that needs the page longer counts a reference speculatively, as Linux does.
/// Weakness: a version wraps around after 2⁴⁰ changes. A reader that is stopped for as many (half a day of constant
/// writes to one page) could accept a torn copy. One byte written to a page makes every current reader of the page read
/// again.
#[derive(Debug)]
pub struct Arena {
    descriptors: Descriptors,
    pub(super) memory: Memory,
    pub(super) waits: Waits,
    free: Free,
    gathering: Gathering,
}

/// Blocks of frames that were moved into huge pages.
#[derive(Debug, Default)]
struct Gathering {
    is_wanted: AtomicBool,
    /// The number of the next block.
    next: AtomicU32,
}

impl Arena {
    /// Reserves address space for `frames_max` frames; memory follows as they are used. A thread that waits for a page
    /// takes a lock of `class_for_waits`. A thread that waits for room, or that releases a page, takes one of
    /// `class_for_room`.
    ///
    /// # Errors
    /// The system refuses to reserve the address space.
    pub fn new(
        class_for_waits: &'static LockClass,
        class_for_room: &'static LockClass,
        frames_max: u32,
    ) -> io::Result<Self> {
        // One number is kept for "none".
        let frames_max = frames_max.min(u32::MAX - 1);
        Ok(Self {
            descriptors: Descriptors::new(frames_max)?,
            memory: Memory::new(frames_max)?,
            waits: Waits::new(class_for_waits),
            free: Free::new(frames_max, Vacancy::new(class_for_room)),
            gathering: Gathering::default(),
        })
    }

    /// Announces that about `frames` frames will be used. If they are many, their memory can be gathered in huge pages,
    /// so that a random access does not walk the processor's page table. Frames are used from the first one on.
    #[cfg(not(loom))]
    pub fn expect(&self, frames: usize) {
        let many = Memory::are_many(frames) && huge::allowed();
        if many {
            self.descriptors.memory.expect(frames.saturating_mul(size_of::<Descriptor>()));
        }
        // ORDERING: Relaxed; advice.
        self.gathering.is_wanted.store(many, Ordering::Relaxed);
    }

    /// Whether [`Arena::gather`] has something to do. Never if memory of frames was returned, because it would come back.
    #[cfg(not(loom))]
    pub fn can_gather(&self) -> bool {
        // ORDERING: Relaxed, both; advice.
        let next = self.gathering.next.load(Ordering::Relaxed);
        self.gathering.is_wanted.load(Ordering::Relaxed)
            && self.free.resident() == self.free.used()
            && self.memory.block(next).is_some_and(|block| block.end as usize <= self.free.used())
    }

    /// Moves a block of frames that were all used once into a huge page. Blocks for as long as 2 MiB are copied, and so do
    /// the threads that use these frames meanwhile.
    #[cfg(not(loom))]
    pub fn gather(&self) {
        if !self.can_gather() {
            return;
        }
        // ORDERING: Relaxed; each block is one thread's by the exchange, and no data is reached through the number.
        let block = self.gathering.next.fetch_add(1, Ordering::Relaxed);
        if !self.memory.gather(block) {
            // ORDERING: Relaxed; advice.
            self.gathering.is_wanted.store(false, Ordering::Relaxed);
        }
    }

    /// Frames ever used.
    pub fn used(&self) -> usize {
        self.free.used()
    }

    /// A frame for a new page, its content unspecified. `None` when all are in use.
    pub fn allocate(&self) -> Option<Fresh<'_>> {
        Some(Fresh::new(self, FrameId(self.free.take(self)?)))
    }

    /// The number of frames in the arena.
    pub fn frames_max(&self) -> usize {
        self.descriptors.count()
    }

    /// Frames in use; exact while no thread allocates, frees or trims.
    pub fn allocated(&self) -> usize {
        self.free.allocated()
    }

    /// Frames that have memory: in use, or free and not trimmed. Exact like [`Arena::allocated`].
    pub fn resident(&self) -> usize {
        self.free.resident()
    }

    /// Bytes of the descriptors of all frames that were ever used.
    pub fn descriptor_bytes(&self) -> usize {
        (self.free.used() * size_of::<Descriptor>()).next_multiple_of(4096)
    }

    /// Returns the memory of up to `frames` free frames to the system. Returns their number.
    pub fn trim(&self, frames: usize) -> usize {
        let mut trimmed = 0;
        while trimmed < frames {
            let mut batch = [0; TRIM_BATCH];
            let most = batch.len().min(frames - trimmed);
            let got = self.free.take_resident(self, &mut batch[..most]);
            if got == 0 {
                break;
            }
            let batch = &mut batch[..got];
            // One call for each run of neighbours. The lowest frame is the first to be used again.
            batch.sort_unstable_by(|one, other| other.cmp(one));
            let runs = batch.chunk_by(|one, next| one - 1 == *next);
            for run in runs {
                let lowest = run[run.len() - 1];
                if self.memory.give_back(lowest, run.len() as u32) {
                    self.free.give_without_memory(self, run);
                    trimmed += run.len();
                } else {
                    self.free.give_some(self, run);
                    return trimmed;
                }
            }
        }
        trimmed
    }

    /// A reference to page `index` of `owner`, if frame `id` holds it and is attached.
    #[inline]
    pub fn try_get(&self, id: FrameId, owner: u64, index: u64) -> Option<PageRef<'_>> {
        let descriptor = self.descriptors.get(id.0)?;
        if !descriptor.word.try_reference() {
            return None;
        }
        // The drop of `page` returns the reference if the frame holds another page (F2).
        let page = PageRef::from_reference(self, id);
        descriptor.is(owner, index).then_some(page)
    }

    /// Copies bytes of page `index` of `owner` from `offset` on, if frame `id` holds it, without a reference: stores to
    /// no shared line. The content of `to` is valid only after [`Read::Done`].
    ///
    /// # Panics
    /// If the range leaves the page.
    #[inline]
    pub fn read_validated(
        &self,
        id: FrameId,
        owner: u64,
        index: u64,
        offset: usize,
        to: &mut [u8],
    ) -> Read {
        let Some(descriptor) = self.descriptors.get(id.0) else { return Read::Gone };
        for _ in 0..ROUNDS {
            let before = descriptor.word.load();
            if before & word::ATTACHED == 0 || !descriptor.is(owner, index) {
                return Read::Gone;
            }
            if before & word::UPTODATE == 0 {
                return Read::Busy;
            }
            if word::is_readable(before) {
                self.memory.load(id.0, offset, to);
                // The bytes belong to this page if no change began before all of them were read (F4).
                if word::version(descriptor.word.reload()) == word::version(before) {
                    return Read::Done;
                }
            }
            std::hint::spin_loop();
        }
        Read::Busy
    }

    /// Notes a use of the page in frame `id`, for the replacement policy; `clock` is the policy's. One load, and
    /// sometimes one store.
    #[inline]
    pub fn touch(&self, id: FrameId, clock: u32) {
        if let Some(descriptor) = self.descriptors.get(id.0) {
            descriptor.access.touch(clock);
        }
    }

    /// Freezes the page in frame `id` if it has no user and need not be written. Only the caller then decides about the
    /// page.
    pub fn try_evict(&self, id: FrameId) -> Option<Evicting<'_>> {
        let descriptor = self.descriptors.get(id.0)?;
        descriptor.word.try_freeze().then(|| Evicting::new(self, id))
    }

    /// The descriptor of a frame that the caller has, so that its number is valid.
    #[inline]
    pub(super) fn descriptor(&self, id: FrameId) -> &Descriptor {
        self.descriptors.at(id.0)
    }

    /// The word of frame `id`, if there is such a frame.
    pub(super) fn word_of(&self, id: FrameId) -> Option<&StateWord> {
        Some(&self.descriptors.get(id.0)?.word)
    }

    /// The threads that wait for frames.
    #[inline]
    pub(super) fn vacancy(&self) -> &Vacancy {
        self.free.vacancy()
    }

    /// The look of a thread that waits for room, before it reads the number of frames in use.
    pub(super) fn look_at_free_frames(&self) {
        self.free.look();
    }

    /// Frees a frame that only the caller has.
    pub(super) fn give(&self, id: FrameId) {
        self.free.give(self, id.0);
    }
}

impl Descriptor {
    /// Whether the page is `index` of `owner`. The caller has a reference (F2), or checks the
    /// version afterwards (F4).
    #[inline]
    fn is(&self, owner: u64, index: u64) -> bool {
        self.owner() == owner && self.index() == index
    }

    pub(super) fn owner(&self) -> u64 {
        // ORDERING: Relaxed; after the word's Acquire (O1), and checked as documented at `is`.
        self.owner.load(Ordering::Relaxed)
    }

    pub(super) fn index(&self) -> u64 {
        // ORDERING: Relaxed; after the word's Acquire (O1), like the owner.
        self.index.load(Ordering::Relaxed)
    }

    /// Gives the frame to a page. For the thread that took it off the free list (F2).
    pub(super) fn assign(&self, owner: u64, index: u64) {
        self.word.before_bytes();
        // ORDERING: Relaxed; between the fence (O5) and `publish` (O1).
        self.owner.store(owner, Ordering::Relaxed);
        // ORDERING: Relaxed; between the fence (O5) and `publish` (O1).
        self.index.store(index, Ordering::Relaxed);
        self.word.publish();
    }
}

impl Links for Arena {
    fn link(&self, frame: u32) -> &AtomicU32 {
        &self.descriptors.at(frame).link
    }

    fn word(&self, frame: u32) -> &StateWord {
        &self.descriptors.at(frame).word
    }
}

impl Access for Arena {
    #[inline]
    fn access(&self, frame: u32) -> &AccessWord {
        &self.descriptors.at(frame).access
    }
}

/// The descriptors, by number.
#[cfg(not(loom))]
#[derive(Debug)]
struct Descriptors {
    memory: super::memory::Reserved,
    count: usize,
}

#[cfg(not(loom))]
impl Descriptors {
    fn new(frames: u32) -> io::Result<Self> {
        let count = frames as usize;
        let bytes = count.checked_mul(size_of::<Descriptor>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { memory: super::memory::Reserved::new(bytes)?, count })
    }

    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn get(&self, frame: u32) -> Option<&Descriptor> {
        let frame = frame as usize;
        // SAFETY: inside the mapping, which is page-aligned and lives as long as `self`. It begins as zeroes, which are
        // valid atomics (F1).
        (frame < self.count)
            .then(|| unsafe { self.memory.start().cast::<Descriptor>().add(frame).as_ref() })
    }

    #[inline]
    fn at(&self, frame: u32) -> &Descriptor {
        self.get(frame).expect("a frame of this arena")
    }
}

/// Descriptors on the heap, for the model checker, whose atomics are not all zeroes.
#[cfg(loom)]
#[derive(Debug)]
struct Descriptors(Vec<Descriptor>);

#[cfg(loom)]
impl Descriptors {
    fn new(frames: u32) -> io::Result<Self> {
        let descriptor = |_| Descriptor {
            word: StateWord::new(),
            owner: AtomicU64::new(0),
            index: AtomicU64::new(0),
            access: AccessWord::default(),
            link: AtomicU32::new(0),
        };
        Ok(Self((0..frames).map(descriptor).collect()))
    }

    fn count(&self) -> usize {
        self.0.len()
    }

    fn get(&self, frame: u32) -> Option<&Descriptor> {
        self.0.get(frame as usize)
    }

    fn at(&self, frame: u32) -> &Descriptor {
        &self.0[frame as usize]
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Descriptor>() == 32 && super::PAGE_BYTES == 4096);
