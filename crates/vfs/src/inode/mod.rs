//! Inodes: what the caches know of one object of the store.
//!
//! # Boundary
//! Holds an object's cached attributes, its pages, its advisory locks and, for a directory, its
//! parent. Does not know names (`names`), and asks the backend nothing.
//!
//! # Rooms
//! `attributes` (cached values; beside it `cached`, `reading`, `absent`), `place` (where an object lies), `directory`
//! (what a directory knows of its names), `listed` (what it was listed as), `node` (holds), `expiry` (for how long answers are
//! believed), `rest`, `table`.
//!
//! # Concurrency
//! A [`Node`] is a hold on an inode: while one exists the inode stays in the table. Names in the cache
//! lead to inodes by references, which keep memory and not use ([`uvfs_concurrent::hold`]).
//! Attributes are words under a sequence: copying them takes no lock and stores nothing. Everything
//! else of an inode has its own lock (see [`crate::lock_order`]); none is held across a backend call.
//!
//! *Answers that a change overtook* are the recurring danger: a `stat` answer read before a `chmod`
//! must not be cached after it. One clock decides ([`uvfs_concurrent::changes`]). A reader takes a [`Ticket`] before it
//! asks the store; a change notes a stamp when it ends. An answer is kept only if no change is in flight and the last
//! noted stamp is not later than the ticket ([`Freshness`]), or if the thing was there before it was asked about and has
//! not changed since ([`Asked`]).
//!
//! # Layout
//! Three cache lines. The first holds all that a walk through a directory reads, the second the rest
//! of the attributes, the third everything that holders write. What few inodes need ([`Rest`]) is
//! allocated when they do.
//!
//! # Why
//! One clock instead of a version per object: a lookup does not know yet which inode it will find,
//! so it could not sample that inode's version beforehand. Bad at: threads that look up what is not cached beside
//! threads that change: they write the clock's word in turns.

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

pub(crate) use absent::Absent;
pub(crate) use cached::Guarding;
#[cfg(debug_assertions)]
pub use expiry::pass_time;
pub(crate) use expiry::{Expiry, Moment};
pub(crate) use listed::{Listed, ListedBytes, POSITIONS_MAX, PassedOver, Recording, place_of};
pub use node::Node;
pub(crate) use rest::{CleanTicks, OfDirectory, Progress, Rest};
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
use uvfs_concurrent::object::{Hold, Object, Ref};
use uvfs_concurrent::orphan::OrphanMark;
use uvfs_concurrent::primitive::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use uvfs_concurrent::shared::Weak;

/// The cached state of one object.
#[repr(C, align(64))]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    /// Of a directory: names cached at an earlier moment of the clock are not believed. Of anything else:
    /// the id of the directory where it was last found; 0 if that is not known, or [`NOWHERE`].
    names_after_or_parent: AtomicU64,
    /// Of a directory: the generation of cleanings up to which `names_after_or_parent` tells all ([`crate::clean`]).
    cleans: UpTo,
    /// The attributes; beside them [`flag`] bits and the kind.
    cached: CachedWords,
    // From here on: written by holders and changes, not read by walks.
    hold: HoldWord,
    /// References owed to the backend; given back by `forget` when the inode goes.
    references: AtomicU64,
    /// Names in the cache that lead here, and whether it waits in the orphan queue.
    orphan: OrphanMark,
    /// Serialises writers of `cached`, and says which answers may become its value.
    changes: Mutex<Freshness>,
    rest: LazyBox<Rest>,
    core: Weak<Core>,
}

/// Bits beside the attributes: read by every walk, stored only when they change.
mod flag {
    /// Used since the clock hand last passed.
    pub(super) const TOUCHED: u32 = 1;
    /// Torn down: another inode may stand for the object by now.
    pub(super) const DEAD: u32 = 1 << 1;
    /// Open files that the kernel reads and writes behind our back: attributes are not cached.
    pub(super) const BYPASSED: u32 = 1 << 2;
    /// No name leads here any more: forget it with the last hold.
    pub(super) const UNLINKED: u32 = 1 << 3;
    /// Nobody knows in which directory it lies: names that lead here are asked for again.
    pub(super) const PARENT_UNKNOWN: u32 = 1 << 4;
    /// Of those, some are open for writing: nobody hears of a write through a mapping.
    pub(super) const BYPASS_WRITES: u32 = 1 << 5;
    /// Another inode stands for its id: torn down with the last hold.
    pub(super) const DISPLACED: u32 = 1 << 6;
    /// A read may have moved its access time since the attributes were asked for.
    pub(super) const READ: u32 = 1 << 7;
    /// Reads do not move its access time.
    pub(super) const STILL: u32 = 1 << 15;
    /// Where the kind is.
    pub(super) const KIND_SHIFT: u32 = 8;
    pub(super) const KIND_BITS: u32 = 7;
    /// From here up: how many mounts are on it.
    pub(super) const MOUNT: u32 = 1 << 16;
}

/// Where a file without a name lies: in no directory that there is.
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
        // ORDERING: Relaxed; nobody else has it yet.
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
        // ORDERING: Acquire, partner `set_flag`: who sees DEAD (or not yet) has what came before.
        self.cached.beside.load(Acquire)
    }

    /// Sets or clears a bit; whether it was the other way before.
    fn set_flag(&self, bit: u32, on: bool) -> bool {
        // ORDERING: Release, partner `flags`.
        let before = match on {
            true => self.cached.beside.fetch_or(bit, Release),
            false => self.cached.beside.fetch_and(!bit, Release),
        };
        (before & bit != 0) != on
    }

    /// What sort of object it is; never changes.
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

    /// Takes the mark away; whether it was there.
    pub(crate) fn untouch(&self) -> bool {
        let touched = self.flags() & flag::TOUCHED != 0;
        if touched {
            self.set_flag(flag::TOUCHED, false);
        }
        touched
    }

    /// Whether it was torn down: it answers nothing any more.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.flags() & flag::DEAD != 0
    }

    /// Whether names that lead to it may be believed.
    #[inline]
    pub(crate) fn can_be_found(&self) -> bool {
        self.flags() & (flag::DEAD | flag::PARENT_UNKNOWN) == 0
    }

    /// Whether something may be mounted on it: a hint, the mount table of a namespace says.
    #[inline]
    pub(crate) fn is_mounted(&self) -> bool {
        self.flags() >= flag::MOUNT
    }

    /// One mount more is about to be put on it. False if there are too many (65535).
    pub(crate) fn gain_mount(&self) -> bool {
        let more = |flags: u32| flags.checked_add(flag::MOUNT);
        // ORDERING: AcqRel, as `set_flag`; and it meets `set_unlinked` in one word: of one who
        // gains a mount and one who takes the name away, the later one sees the other.
        self.cached.beside.fetch_update(AcqRel, Relaxed, more).is_ok()
    }

    /// One mount is gone from it, and from the sight of every walk.
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

    /// Whether nobody held it at some instant during the call.
    pub(crate) fn racy_inactive(&self) -> bool {
        self.hold.racy_inactive()
    }

    /// What few inodes have.
    pub(crate) fn rest(&self) -> &Rest {
        let (rest, made) = self.rest.get_or_make(Rest::default);
        if made && let Some(core) = self.core.upgrade() {
            core.inodes.made_rest();
        }
        rest
    }

    /// What a directory in use has.
    pub(crate) fn of_directory(&self) -> &OfDirectory {
        let (known, made) = self.rest().of_directory.get_or_make(OfDirectory::default);
        if made && let Some(core) = self.core.upgrade() {
            core.inodes.made_directory();
        }
        known
    }

    /// As [`Inode::of_directory`], if it has been needed before.
    pub(crate) fn known_directory(&self) -> Option<&OfDirectory> {
        self.known_rest()?.of_directory.get()
    }

    /// As [`Inode::rest`], if it has been needed before.
    pub(crate) fn known_rest(&self) -> Option<&Rest> {
        self.rest.get()
    }

    /// The last name is gone; the last hold takes the inode with it.
    pub(crate) fn set_unlinked(&self, unlinked: bool) {
        if self.set_flag(flag::UNLINKED, unlinked)
            && let Some(core) = self.core.upgrade()
        {
            core.inodes.count_unlinked(unlinked);
        }
    }

    /// A name in the cache leads here now.
    pub(crate) fn gained_name(&self) {
        self.orphan.gained_name();
    }

    /// A name in the cache led here. Returns whether the inode should be queued: nobody holds it, no
    /// name leads to it, and it is not queued yet (it is from now on).
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
