//! Inodes: the cached state of one object of the store.
//!
//! # Boundary
//! Holds an object's cached attributes, its pages, its advisory locks and, for a directory, its parent. Has no names
//! (`names`), and asks the backend nothing. Modules: `attributes` (cached values, with `cached`, `reading`, `absent`),
//! `place` (an object's directory), `directory` (state about its names), `listed` (kept listing), `node` (holds),
//! `expiry` (lifetimes), `rest`, `table`.
//!
//! # Concurrency
//! A [`Node`] is a hold on an inode: while one exists the inode stays in the table. Cached names have references to
//! inodes, which keep the memory but are no holds ([`uvfs_concurrent::hold`]). Copying the attributes takes no lock and
//! stores nothing. All else has its own lock ([`crate::lock_order`]); none is held across a backend call.
//!
//! *Overtaken answers* are the main danger: a `stat` answer from before a `chmod` must not be cached after it. One
//! clock decides ([`uvfs_concurrent::changes`]). A reader takes a [`Ticket`] before its question, and a change records
//! a stamp when it ends. An answer is cached only if no change is in flight and no stamp is later than the ticket
//! ([`Freshness`]), or if the object was here before the question and has not changed since ([`Asked`]).
//!
//! # Layout
//! Three cache lines: the words that a walk reads, the other attributes, the words that holders write. State that few
//! inodes need ([`InodeExtra`]) is allocated on demand.
//!
//! # Why
//! A lookup does not know its inode before the answer, so it could not sample a version per object. Bad at: cold
//! lookups beside changes, because both write the clock's word.

mod absent;
mod attributes;
mod cached;
mod directory;
mod expiry;
#[cfg(test)]
mod half_way_tests;
mod listed;
mod node;
mod place;
mod reading;
mod rest;
mod table;

pub(crate) use absent::{Absent, CAPABILITY_XATTR};
pub(crate) use cached::Guarding;
#[cfg(debug_assertions)]
pub use expiry::pass_time;
pub(crate) use expiry::{Expiry, Moment};
pub(crate) use listed::{Listed, ListedBytes, POSITIONS_MAX, PassedOver, Recording, place_of};
pub use node::Node;
pub(crate) use rest::{CleanTicks, DirState, InodeExtra, Progress};
pub(crate) use table::{INODE_BYTES, InodeTable, REST_BYTES, Retired};

use self::cached::CachedWords;
use crate::attributes::{Attributes, FileKind};
use crate::backend::InodeId;
use crate::lock_order;
use crate::vfs::Core;
use std::fmt;
pub(crate) use uvfs_concurrent::changes::{Asked, Begun, Clock, Freshness, Ticket};
use uvfs_concurrent::generations::UpTo;
use uvfs_concurrent::hold::HoldWord;
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::orphan::OrphanMark;
use uvfs_concurrent::primitive::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use uvfs_concurrent::shared::Weak;
use uvfs_containers::object::{Hold, Object, Ref};

/// The cached state of one object.
#[repr(C, align(64))]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    /// A moment, in a directory: names cached before it are not valid. In other objects, the id of the directory where
    /// it was last found; 0 if that is not known, or [`NOWHERE`].
    names_after_or_parent: AtomicU64,
    /// The generation of cleans that `names_after_or_parent` of a directory includes ([`crate::clean`]).
    cleans: UpTo,
    /// The attributes; beside them [`flag`] bits and the kind.
    cached: CachedWords,
    // From here on: written by holders and changes, not read by walks.
    hold: HoldWord,
    /// References owed to the backend. `forget` returns them when the inode is torn down.
    references: AtomicU64,
    /// Cached names that lead here, and whether it waits in the orphan queue.
    orphan: OrphanMark,
    /// Serialises writers of `cached`, and decides which answers may become its value.
    changes: Mutex<Freshness>,
    rest: LazyBox<InodeExtra>,
    core: Weak<Core>,
}

/// Bits beside the attributes: read by every walk, stored only when they change.
mod flag {
    /// Used since the clock hand last passed.
    pub(super) const TOUCHED: u32 = 1;
    /// Torn down: another inode may represent the object by now.
    pub(super) const DEAD: u32 = 1 << 1;
    /// Open files that the kernel reads and writes directly: attributes are not cached.
    pub(super) const BYPASSED: u32 = 1 << 2;
    /// No name leads here any more: torn down with the last hold.
    pub(super) const UNLINKED: u32 = 1 << 3;
    /// The directory of the object is not known: names that lead here are asked for again.
    pub(super) const PARENT_UNKNOWN: u32 = 1 << 4;
    /// Some of the files of `BYPASSED` are open for writing: a write through a mapping is invisible here.
    pub(super) const BYPASS_WRITES: u32 = 1 << 5;
    /// Another inode has taken its id: torn down with the last hold.
    pub(super) const DISPLACED: u32 = 1 << 6;
    /// A read may have moved its access time since the attributes were asked for.
    pub(super) const READ: u32 = 1 << 7;
    /// Reads do not move its access time.
    pub(super) const STILL: u32 = 1 << 15;
    /// The position of the kind.
    pub(super) const KIND_SHIFT: u32 = 8;
    pub(super) const KIND_BITS: u32 = 7;
    /// From here up: the number of mounts on it.
    pub(super) const MOUNT: u32 = 1 << 16;
}

/// The directory of a file without a name: no existing directory.
pub(crate) const NOWHERE: InodeId = InodeId(u64::MAX);

/// By number, padded so that every number has one.
const KINDS: [FileKind; 8] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Regular,
];
const DIRECTORY: u32 = 1;

impl Object for Inode {
    fn word(&self) -> &HoldWord {
        &self.hold
    }

    fn inactive(last: Ref<Self>) {
        if let Some(core) = last.core.upgrade() {
            core.released(last);
        }
    }
}

impl Inode {
    fn new(
        core: Weak<Core>,
        (id, attributes): (InodeId, &Attributes),
        expiry: Expiry,
        changed: Ticket,
    ) -> Hold<Self> {
        let cached = CachedWords::new(cached::pack(attributes, expiry, Absent::UNKNOWN));
        let kind = KINDS.iter().position(|&kind| kind == attributes.kind).unwrap_or(0);
        // ORDERING: Relaxed; no other thread has it yet.
        cached.beside.store((kind as u32) << flag::KIND_SHIFT, Relaxed);
        Hold::new(Self {
            id,
            names_after_or_parent: AtomicU64::new(0),
            cleans: UpTo::default(),
            cached,
            hold: HoldWord::new(),
            references: AtomicU64::new(1),
            orphan: OrphanMark::default(),
            changes: Mutex::new(&lock_order::INODE_ATTRIBUTES, Freshness::since(changed)),
            rest: LazyBox::new(),
            core,
        })
    }

    #[inline]
    fn flags(&self) -> u32 {
        // ORDERING: Acquire, partner `set_flag`: a thread that sees DEAD (or not yet) sees the stores before it.
        self.cached.beside.load(Acquire)
    }

    /// Sets or clears a bit. Returns whether that changed it.
    fn set_flag(&self, bit: u32, on: bool) -> bool {
        // ORDERING: Release, partner `flags`.
        let before = match on {
            true => self.cached.beside.fetch_or(bit, Release),
            false => self.cached.beside.fetch_and(!bit, Release),
        };
        (before & bit != 0) != on
    }

    /// The object's type; never changes.
    #[inline]
    pub(crate) fn kind(&self) -> FileKind {
        KINDS[(self.flags() >> flag::KIND_SHIFT & flag::KIND_BITS) as usize]
    }

    /// Whether it is a directory.
    #[inline]
    pub(crate) fn is_directory(&self) -> bool {
        self.flags() >> flag::KIND_SHIFT & flag::KIND_BITS == DIRECTORY
    }

    /// Marks it as used, unless it is marked already: the clock hand spares it once.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.flags() & flag::TOUCHED == 0 {
            self.set_flag(flag::TOUCHED, true);
        }
    }

    /// Clears the mark. Returns whether it was set.
    pub(crate) fn untouch(&self) -> bool {
        let touched = self.flags() & flag::TOUCHED != 0;
        if touched {
            self.set_flag(flag::TOUCHED, false);
        }
        touched
    }

    /// Whether it was torn down: its values are not valid any more.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.flags() & flag::DEAD != 0
    }

    /// Whether names that lead to it may be valid.
    #[inline]
    pub(crate) fn can_be_found(&self) -> bool {
        self.flags() & (flag::DEAD | flag::PARENT_UNKNOWN) == 0
    }

    /// Whether a mount may be on it. A hint: the mount table of a namespace decides.
    #[inline]
    pub(crate) fn is_mounted(&self) -> bool {
        self.flags() >= flag::MOUNT
    }

    /// A mount is about to be put on it. False if there are too many (65535).
    pub(crate) fn gain_mount(&self) -> bool {
        let more = |flags: u32| flags.checked_add(flag::MOUNT);
        // ORDERING: AcqRel, like `set_flag`. It shares one word with `set_unlinked`: of a thread that adds a mount and
        // one that removes the name, the later one sees the other.
        self.cached.beside.fetch_update(AcqRel, Relaxed, more).is_ok()
    }

    /// A mount is removed from it, and no walk can see it any more.
    pub(crate) fn lose_mount(&self) {
        // ORDERING: Release, partner `flags`.
        self.cached.beside.fetch_sub(flag::MOUNT, Release);
    }

    /// Whether its last name is gone.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.flags() & flag::UNLINKED != 0
    }

    /// Holds at some instant during the call.
    pub(crate) fn racy_holds(&self) -> u64 {
        self.hold.racy_holds()
    }

    /// Whether it had no hold at some instant during the call.
    pub(crate) fn racy_inactive(&self) -> bool {
        self.hold.racy_inactive()
    }

    /// The state that few inodes have. Makes it.
    pub(crate) fn rest(&self) -> &InodeExtra {
        let (rest, made) = self.rest.get_or_make(InodeExtra::default);
        if made && let Some(core) = self.core.upgrade() {
            core.inodes.made_rest();
        }
        rest
    }

    /// The state of a directory in use. Makes it.
    pub(crate) fn dir_state(&self) -> &DirState {
        let (known, made) = self.rest().dir_state.get_or_make(DirState::default);
        if made && let Some(core) = self.core.upgrade() {
            core.inodes.made_directory();
        }
        known
    }

    /// Like [`Inode::dir_state`], but only if it was made before.
    pub(crate) fn known_directory(&self) -> Option<&DirState> {
        self.known_rest()?.dir_state.get()
    }

    /// Like [`Inode::rest`], but only if it was made before.
    pub(crate) fn known_rest(&self) -> Option<&InodeExtra> {
        self.rest.get()
    }

    /// The last name is gone (or is back): the last hold tears the inode down.
    pub(crate) fn set_unlinked(&self, unlinked: bool) {
        if self.set_flag(flag::UNLINKED, unlinked)
            && let Some(core) = self.core.upgrade()
        {
            core.inodes.count_unlinked(unlinked);
        }
    }

    /// A cached name leads here now.
    pub(crate) fn gained_name(&self) {
        self.orphan.gained_name();
    }

    /// A cached name no longer leads here. Returns whether the caller must queue the inode: it has no hold, no name,
    /// and was not queued (it counts as queued from now on).
    pub(crate) fn lost_name(&self) -> bool {
        self.orphan.lost_name(&self.hold)
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Inode({}, {:?}, {} holds)", self.id.0, self.kind(), self.hold.racy_holds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_three_lines_and_its_readers_need_two() {
        assert_eq!(size_of::<Inode>(), 192);
        assert_eq!(std::mem::offset_of!(Inode, hold), 128);
        assert!(std::mem::offset_of!(Inode, cleans) < 64, "what a walk reads");
        assert!(std::mem::offset_of!(Inode, cached) + 8 + 3 * 8 <= 64, "what a walk reads");
        assert_eq!(KINDS[DIRECTORY as usize], FileKind::Directory);
    }
}
