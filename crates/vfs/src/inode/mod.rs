//! Inodes: what the caches know of one object of the store.
//!
//! # Boundary
//! Holds an object's cached attributes, its pages, its advisory locks and, for a directory, its
//! parent. Does not know names (`names`), and asks the backend nothing.
//!
//! # Concurrency
//! A [`Node`] is a hold on an inode: while one exists the inode stays in the table. Names in the cache
//! lead to inodes by references, which keep memory and not use ([`uvfs_concurrent::hold`]).
//! Attributes are words under a sequence: copying them takes no lock and stores nothing. Everything
//! else of an inode has its own lock (see [`crate::lock_order`]); none is held across a backend call.
//!
//! *Answers that a change overtook* are the recurring danger: a `stat` answer read before a `chmod`
//! must not be cached after it. One clock decides. A reader takes a [`Ticket`] before it asks the
//! store; a change notes a tick when it begins and another when it ends. An answer is kept only if
//! no change is in flight and the last noted tick is not later than the ticket ([`Freshness`]).
//!
//! # Layout
//! Three cache lines. The first holds all that a walk through a directory reads, the second the rest
//! of the attributes, the third everything that holders write. What few inodes need ([`Rest`]) is
//! allocated when they do.
//!
//! # Why
//! One clock instead of a version per object: a lookup does not know yet which inode it will find,
//! so it could not sample that inode's version beforehand. Bad at: many threads changing different
//! files all tick one word; reads do when they may have moved an access time.

mod absent;
mod cached;
mod freshness;
#[cfg(test)]
mod half_way_tests;
mod reading;
mod rest;
mod table;
mod way;

pub(crate) use absent::Absent;
pub(crate) use cached::Guarding;
pub(crate) use freshness::{Clock, Expiry, Freshness, Moment, Ticket};
pub(crate) use rest::{CleanTicks, Progress, Rest, Use};
use table::Known;
pub(crate) use table::{INODE_BYTES, InodeTable, REST_BYTES, Retired};

use self::cached::{CachedWords, EXPIRY, MODE, NUMBER};
use self::rest::Parent;
use self::way::Way;
use crate::attributes::{Attributes, FileKind};
use crate::backend::InodeId;
use crate::lock_order;
use crate::page::FilePages;
use crate::reclaim;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::class::Class;
use uvfs_concurrent::complete::{Claim, Complete};
use uvfs_concurrent::generations::UpTo;
use uvfs_concurrent::hold::HoldWord;
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::object::{Hold, Object, Ref};
use uvfs_concurrent::orphan::OrphanMark;
use uvfs_concurrent::primitive::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use uvfs_concurrent::whereabouts::Whereabouts;

/// The cached state of one object.
#[repr(C, align(64))]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    /// Of a directory: names cached at an earlier moment of the clock are not believed. Of anything else:
    /// the id of the directory where it was last found; 0 if that is not known, or [`NOWHERE`].
    by_kind: AtomicU64,
    /// Of a directory: the generation of cleanings up to which `by_kind` tells all ([`crate::clean`]).
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
    core: Arc<Way>,
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
    pub(super) const STRAY: u32 = 1 << 4;
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
            core.reclaim(Some(last), reclaim::STEPS_AFTER_RELEASE);
        }
    }
}

impl Inode {
    fn new(
        core: &Arc<Way>,
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
            by_kind: AtomicU64::new(0),
            cleans: UpTo::default(),
            cached,
            hold: HoldWord::new(),
            references: AtomicU64::new(1),
            orphan: OrphanMark::default(),
            changes: Mutex::new(&lock_order::INODE_ATTRIBUTES, Freshness::since(changed)),
            rest: LazyBox::new(),
            core: core.clone(),
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
        self.flags() & (flag::DEAD | flag::STRAY) == 0
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

    /// As [`Inode::rest`], if it has been needed before.
    pub(crate) fn known_rest(&self) -> Option<&Rest> {
        self.rest.get()
    }

    /// What an inode in use has, if it has been needed before.
    pub(crate) fn known_use(&self) -> Option<&Use> {
        self.known_rest()?.known_use()
    }

    /// The cached attributes, if they may be believed now. Takes no lock and stores nothing.
    #[inline]
    pub(crate) fn cached_attributes(&self) -> Option<Attributes> {
        self.cached_attributes_at(&mut None)
    }

    /// As [`Inode::cached_attributes`]; `now` as for [`Expiry::valid_at`].
    #[inline]
    pub(crate) fn cached_attributes_at(&self, now: &mut Option<Moment>) -> Option<Attributes> {
        if self.flags() & (flag::BYPASSED | flag::DEAD) != 0 {
            return None;
        }
        let words = self.words();
        if !Expiry::from_word(words[EXPIRY]).valid_at(now) {
            return None;
        }
        Some(cached::unpack(self.kind(), &words))
    }

    /// Whether the cached attributes may be believed now.
    #[inline]
    pub(crate) fn attributes_believed(&self) -> bool {
        self.flags() & (flag::BYPASSED | flag::DEAD) == 0
            && Expiry::from_word(self.cached.racy_one(EXPIRY)).valid()
    }

    /// What guards a directory against being searched, if it may be believed now.
    #[inline]
    pub(crate) fn guarding(&self, now: &mut Option<Moment>) -> Option<Guarding> {
        let seen = self.cached.read(|words| cached::guarding(&words))?;
        seen.expiry.valid_at(now).then_some(seen)
    }

    /// The attributes with their expiry, of one moment.
    fn snapshot(&self) -> (Expiry, Attributes) {
        let words = self.words();
        (Expiry::from_word(words[EXPIRY]), cached::unpack(self.kind(), &words))
    }

    /// The words of one moment.
    #[inline]
    fn words(&self) -> [u64; cached::WORDS] {
        self.cached.read_all().unwrap_or_else(|| {
            // Writers kept coming: wait for one of them.
            let _writer = self.changes.lock();
            self.cached.as_writer()
        })
    }

    /// The attributes as last seen, however old.
    pub(crate) fn last_attributes(&self) -> Attributes {
        self.snapshot().1
    }

    /// What a frontend that was just answered `given` may believe, and for how long: the cached
    /// attributes, or `given` for this moment only (a change has overtaken it).
    pub(crate) fn believed(&self, given: Attributes) -> (Attributes, Duration) {
        let (flags, (expiry, value)) = (self.flags(), self.snapshot());
        match expiry.remains() {
            _ if flags & flag::BYPASS_WRITES != 0 => (given, Duration::ZERO),
            Duration::ZERO => (self.known_better(given), Duration::ZERO),
            remains if flags & flag::BYPASSED != 0 => (given, remains),
            remains => (value, remains),
        }
    }

    /// When the attributes last changed here.
    pub(crate) fn changed(&self) -> Ticket {
        self.changes.lock().changed()
    }

    /// Keeps `value`, read from the store after `ticket` was taken. False if a change overtook it.
    pub(crate) fn keep_attributes(
        &self,
        ticket: Ticket,
        value: &Attributes,
        expiry: Expiry,
    ) -> bool {
        let mut changes = self.changes.lock();
        if !changes.admits(ticket) {
            return false;
        }
        changes.kept(ticket);
        let value = &self.known_better(*value);
        let words = self.cached.as_writer();
        let old = cached::unpack(self.kind(), &words);
        let same_rights = old.ctime == value.ctime && old.mode == value.mode;
        if !same_rights {
            self.drop_acl(&changes);
        }
        let absent = match same_rights {
            true => Absent::from_word(words[MODE]).after_refresh(),
            false => Absent::UNKNOWN,
        };
        self.learn_stillness(&changes, &old, value);
        self.cached.write(&cached::pack(value, expiry, absent));
        let pages = self.known_pages();
        if let Some(pages) = pages {
            pages.learn_size(value.size);
        }
        drop(changes);
        if let Some(pages) = pages
            && (old.mtime != value.mtime || old.size != value.size)
        {
            pages.attributes_changed();
        }
        let rights = |seen: &Attributes| (seen.mode, seen.uid, seen.gid);
        if (self.kind() == FileKind::Directory && rights(&old) != rights(value))
            && let Some(core) = self.core.upgrade()
        {
            core.paths.shape_changed();
        }
        true
    }

    /// A change of attributes begins.
    pub(crate) fn begin_change(&self, clock: &Clock) -> Ticket {
        self.changes.lock().begin(clock)
    }

    /// The change that `begin` belongs to ended. `value` is what the store says after it, kept if
    /// no other change overlapped; otherwise the attributes are asked for again when needed.
    pub(crate) fn end_change(
        &self,
        clock: &Clock,
        begin: Ticket,
        value: Option<(Attributes, Expiry)>,
    ) {
        let mut changes = self.changes.lock();
        let alone = changes.end(clock, begin);
        self.drop_acl(&changes);
        let mut news = false;
        match value {
            Some((value, expiry)) if alone => {
                let old = self.snapshot_as_writer();
                let value = self.known_better(value);
                self.cached.write(&cached::pack(&value, expiry, Absent::UNKNOWN));
                if let Some(pages) = self.known_pages() {
                    pages.learn_size(value.size);
                    news = old.mtime != value.mtime || old.size != value.size;
                }
            }
            _ => self.expire(&changes),
        }
        drop(changes);
        if news && let Some(pages) = self.known_pages() {
            pages.attributes_changed();
        }
    }

    /// `given` by the store, with what is known better here: what was written and not brought to the
    /// store yet.
    pub(crate) fn known_better(&self, given: Attributes) -> Attributes {
        self.known_pages().map_or(given, |pages| pages.overlay(given))
    }

    /// Data was written that the store does not know of.
    pub(crate) fn wrote(&self, clock: &Clock) {
        let mut changes = self.changes.lock();
        changes.note(clock);
        let words = self.cached.as_writer();
        let expiry = Expiry::from_word(words[EXPIRY]);
        let cached = cached::unpack(self.kind(), &words);
        let value = self.known_pages().map_or(cached, |pages| pages.overlay_again(cached));
        let absent = Absent::from_word(words[MODE]);
        self.cached.write(&cached::pack(&value, expiry, absent));
    }

    /// The pages, if there have been any.
    pub(crate) fn known_pages(&self) -> Option<&Arc<FilePages>> {
        self.known_use()?.pages.get()
    }

    /// Asks the store again at the next request.
    pub(crate) fn expire_attributes(&self, clock: &Clock) {
        let mut changes = self.changes.lock();
        changes.note(clock);
        self.expire(&changes);
        self.drop_acl(&changes);
    }

    fn expire(&self, _writer: &MutexGuard<'_, Freshness>) {
        self.cached.write_one(EXPIRY, Expiry::EXPIRED.to_word());
    }

    fn snapshot_as_writer(&self) -> Attributes {
        cached::unpack(self.kind(), &self.cached.as_writer())
    }

    /// The kernel reads an open file directly from now on, and writes it if it is open for that.
    pub(crate) fn begin_bypass(&self, writes: bool) {
        let mut bypassed = self.rest().used().bypassed.lock();
        bypassed.all += 1;
        bypassed.writing += u32::from(writes);
        self.set_flag(flag::BYPASSED, true);
        self.set_flag(flag::BYPASS_WRITES, bypassed.writing > 0);
    }

    /// One such open file was closed.
    pub(crate) fn end_bypass(&self, clock: &Clock, writes: bool) {
        self.expire_attributes(clock);
        let mut bypassed = self.rest().used().bypassed.lock();
        bypassed.all = bypassed.all.saturating_sub(1);
        bypassed.writing = bypassed.writing.saturating_sub(u32::from(writes));
        self.set_flag(flag::BYPASSED, bypassed.all > 0);
        self.set_flag(flag::BYPASS_WRITES, bypassed.writing > 0);
    }

    /// The parent directory, if this is a directory below the root.
    pub(crate) fn parent(&self) -> Option<Node> {
        let parent = self.known_rest()?.parent.lock();
        parent.as_ref().map(|parent| Node { inode: parent.inode.clone() })
    }

    /// The parent directory, and the moment at which this directory came there.
    pub(crate) fn parent_since(&self) -> Option<(Node, Ticket)> {
        let parent = self.known_rest()?.parent.lock();
        parent.as_ref().map(|parent| (Node { inode: parent.inode.clone() }, parent.joined))
    }

    /// Notes in which directory it was found, as the store was asked at `ticket`. What was learned later
    /// stays.
    pub(crate) fn set_parent(&self, parent: &Node, ticket: Ticket) {
        if !self.is_directory() {
            return self.found_in(parent, || parent.inode.rest().entries.lock().admits(ticket));
        }
        if self.id == InodeId::ROOT {
            return;
        }
        let (slot, mut joined, mut left) = (&self.rest().parent, Ticket::default(), None);
        let old = loop {
            let mut slot = slot.lock();
            match &mut *slot {
                Some(known) if ticket < known.learned => return,
                Some(known) if known.inode.same(&parent.inode) => {
                    known.learned = ticket;
                    return;
                }
                // It leaves a place: first it takes in what was cleaned there.
                Some(known) if left != Some(known.inode.id) => {
                    left = Some(known.inode.id);
                    drop(slot);
                    let Some(core) = self.core.upgrade() else { return };
                    joined = core.moment_between_cleans(|| _ = core.learn_cleans(self));
                }
                _ => {
                    break slot.replace(Parent {
                        inode: parent.inode.clone(),
                        learned: ticket,
                        joined,
                    });
                }
            }
        };
        // Given back with no lock held: it may be the last hold.
        let moved = old.is_some();
        drop(old);
        if moved && let Some(core) = self.core.upgrade() {
            core.policy_moved(self);
        }
    }

    /// Of what is no directory: an answer said that it lies in `parent`; `stands` says whether no change has
    /// overtaken that answer.
    fn found_in(&self, parent: &Node, stands: impl Fn() -> bool) {
        if !stands() {
            // It says where the file was, or where it is by now.
            return self.doubt_home(parent.id());
        }
        self.set_home(parent);
        if !stands() {
            // A change that came in between may have put it elsewhere before that.
            self.stray();
        }
    }

    /// Of a change that has made or moved it: it lies in `parent` now.
    pub(crate) fn put_into(&self, parent: &Node, ticket: Ticket) {
        match self.is_directory() {
            true => self.set_parent(parent, ticket),
            false => self.set_home(parent),
        }
    }

    /// Of what is no directory: where it lies.
    fn whereabouts(&self) -> Whereabouts<'_> {
        Whereabouts { id: &self.by_kind, flags: &self.cached.beside, mark: flag::STRAY }
    }

    /// Of what is no directory: it lies in `parent`.
    fn set_home(&self, parent: &Node) {
        self.whereabouts().set(parent.id().0, || self.settle_pages());
    }

    /// Of what is no directory: its name in `parent` is gone. Where it lies is not known until one of
    /// its other names is asked for again.
    pub(crate) fn leave(&self, parent: InodeId) {
        if !self.is_directory() && self.whereabouts().id() == parent.0 {
            self.stray();
        }
    }

    /// Of what is no directory: it may lie in `parent`, or where it is known to lie.
    fn doubt_home(&self, parent: InodeId) {
        let known = self.whereabouts().id();
        if known != parent.0 && known != NOWHERE.0 {
            self.stray();
        }
    }

    /// Of what is no directory: nobody knows where it lies.
    pub(crate) fn stray(&self) {
        if self.is_directory() || self.whereabouts().id() == NOWHERE.0 {
            return;
        }
        self.whereabouts().doubt();
        self.settle_pages();
    }

    /// Its pages lie where it does.
    fn settle_pages(&self) {
        if let Some(pages) = self.known_pages()
            && let Some(core) = self.core.upgrade()
        {
            core.settle_home(self, pages);
        }
    }

    /// Of what is no directory: its last name is gone, or it never had one.
    pub(crate) fn lies_nowhere(&self) {
        if !self.is_directory() {
            // ORDERING: Relaxed; an id, whose inode is asked for under its shard's lock.
            self.by_kind.store(NOWHERE.0, Relaxed);
            self.settle_pages();
        }
    }

    /// The id of the directory that it lies in, by what is cached; [`NOWHERE`] without a name, `None` if it
    /// is not known.
    pub(crate) fn home(&self) -> Option<InodeId> {
        if self.is_directory() {
            return self.parent().map(|parent| parent.id());
        }
        Some(InodeId(self.whereabouts().id())).filter(|&id| id != InodeId(0))
    }

    /// Takes the hold on the directory that it lies in away: the inode goes.
    fn take_parent(&self) -> Option<Hold<Inode>> {
        let rest = self.known_rest()?;
        let parent = rest.parent.lock().take();
        match parent {
            Some(parent) => Some(parent.inode),
            None => Some(rest.known_use()?.pages.get()?.take_home()?.inode),
        }
    }

    /// Of a directory: whether it knows of all cleanings up to that generation.
    #[inline]
    pub(crate) fn knows_cleans(&self, generation: u64) -> bool {
        self.cleans.knows(generation)
    }

    /// Of a directory that is being taken in: what is known of it from before.
    fn start_knowing(&self, known: Known) {
        // ORDERING: Relaxed; published by the shard's lock, or by the node returned.
        self.by_kind.store(known.names_after, Relaxed);
        if known.cleaned != CleanTicks::default() {
            self.rest().cleaned.raise(known.cleaned);
        }
    }

    /// Of a directory: what was cleaned of all that is below it, as far as it knows.
    pub(crate) fn cleaned(&self) -> CleanTicks {
        self.known_rest().map_or_else(CleanTicks::default, |rest| rest.cleaned.ticks())
    }

    /// Of a directory: its own mark.
    pub(crate) fn own_mark(&self) -> Option<Class> {
        self.known_rest().and_then(|rest| rest.own_mark.get())
    }

    /// Of a directory: the class of what is cached of it, as far as it knows.
    pub(crate) fn class(&self) -> Class {
        self.known_rest().map_or(Class::Normal, |rest| rest.policy.class())
    }

    /// Of a directory: whether its class is that of `generation` of the marks.
    pub(crate) fn knows_policy(&self, generation: u64) -> bool {
        generation == 0 || self.known_rest().is_some_and(|rest| rest.policy.knows(generation))
    }

    /// Of a directory: `class` holds as of `generation` of the marks.
    pub(crate) fn learn_class(&self, class: Class, generation: u64) {
        // Without anything to say about it, it is a normal one.
        if class != Class::Normal || self.known_rest().is_some() {
            self.rest().policy.learn(class, generation);
        }
    }

    /// Of a directory: all below it is cleaned as of `ticks`; whoever comes by a later generation sees it.
    pub(crate) fn raise_cleaned(&self, ticks: CleanTicks) {
        self.rest().cleaned.raise(ticks);
    }

    /// Of a directory: takes in what was cleaned up to `generation`.
    pub(crate) fn be_cleaned(&self, clock: &Clock, ticks: CleanTicks, generation: u64) {
        self.cleans.learn(generation, || {
            if ticks == CleanTicks::default() {
                return;
            }
            let rest = self.rest();
            rest.cleaned.raise(ticks);
            // ORDERING: Acquire, partner the store below: what is known already has been done.
            if ticks.names > self.by_kind.load(Acquire) {
                let mut changes = rest.entries.lock();
                changes.note_at(clock, ticks.names);
                rest.complete.revoke();
                drop(changes);
                // ORDERING: Release, partner `believes`; as in `forget_names`.
                self.by_kind.fetch_max(ticks.names, Release);
            }
        });
    }

    /// The last name is gone; the last hold takes the inode with it.
    pub(crate) fn set_unlinked(&self, unlinked: bool) {
        if self.set_flag(flag::UNLINKED, unlinked)
            && let Some(core) = self.core.upgrade()
        {
            core.inodes.count_leaving(unlinked);
        }
    }

    /// No name that was cached in this directory up to now is believed.
    pub(crate) fn forget_names(&self, clock: &Clock) {
        if let Some(rest) = self.known_rest() {
            let mut changes = rest.entries.lock();
            changes.note(clock);
            rest.complete.revoke();
        }
        // ORDERING: Release, partner `believes`: who looks up later than this sees it.
        self.by_kind.fetch_max(clock.tick().to_word(), Release);
    }

    /// Whether a name cached in this directory at `stamp` may be believed.
    #[inline]
    pub(crate) fn believes(&self, stamp: Ticket) -> bool {
        // ORDERING: Acquire, partner `forget_names`.
        stamp.to_word() >= self.by_kind.load(Acquire)
    }

    /// Of a directory: names that the store was asked for before this moment are not believed.
    pub(crate) fn names_after(&self) -> u64 {
        // ORDERING: Acquire, partner `forget_names`.
        self.by_kind.load(Acquire)
    }

    /// Of a directory: a claim that all its names are in the cache, to be checked after a look.
    pub(crate) fn claim_complete(
        &self,
        now: &mut Option<Moment>,
    ) -> Option<(&Complete, Claim, Expiry)> {
        let rest = self.known_rest()?;
        let claim = rest.complete.claim()?;
        let until = Expiry::from_word(claim.until());
        until.valid_at(now).then_some((&rest.complete, claim, until))
    }

    /// Of a directory: all its names are in the cache, put there after `losses` were counted; believed
    /// until `until`. The caller has the lock over its entries.
    pub(crate) fn declare_complete(&self, losses: u64, until: Expiry) {
        self.rest().complete.declare(losses, until.to_word());
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

/// A hold on an inode. Cloning adds a hold; dropping gives it back.
#[derive(Clone)]
pub struct Node {
    pub(crate) inode: Hold<Inode>,
}

impl Node {
    /// A hold on an inode found by a reference, unless it has been torn down.
    pub(crate) fn try_hold(inode: &Ref<Inode>) -> Option<Self> {
        inode.try_hold().map(|inode| Self { inode })
    }

    /// The object's id.
    pub fn id(&self) -> InodeId {
        self.inode.id
    }

    /// What sort of object it is; never changes.
    pub fn kind(&self) -> FileKind {
        self.inode.kind()
    }

    /// The number users see (`st_ino`).
    pub fn number(&self) -> u64 {
        self.inode.cached.racy_one(NUMBER)
    }

    /// The parent directory, if this is a directory below the root whose parent is known.
    pub fn parent(&self) -> Option<Node> {
        self.inode.parent()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.inode.is_directory()
    }

    /// Whether its last name is known to be gone.
    pub fn is_unlinked(&self) -> bool {
        self.inode.is_unlinked()
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.inode.same(&other.inode)
    }
}

impl Eq for Node {}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.inode)
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
