//! Whole paths: what a path from a directory leads to, in one probe.
//!
//! # Boundary
//! Keeps memos of walks that succeeded: (starting directory, path) to inode, with whom the walk was
//! made for. A memo only repeats what a walk by components would say at this moment; whether one is
//! believed is decided here, what it is used for in [`crate::walk`].
//!
//! # Concurrency
//! The table is read under an epoch guard, without a lock or a store. A memo is believed while
//!
//! M1. the *shape* is of the same generation: no directory has been renamed or removed and no
//!     directory's owner, mode or access control list has changed since before the walk;
//! M2. the *entries* of the last directory are of the same generation: nothing in it has begun to
//!     change since before its name was looked up;
//! M3. nothing that the walk relied on has expired, and the inode has not been torn down.
//!
//! Changes advance the generations after they have taken the names out of the cache and before they
//! ask the store; changes of rights after the new ones can be read ([`Generations`]). Renaming a
//! directory is so one store, however much lies below it.
//!
//! # Why
//! Tsai et al. (SOSP 2015) probe for a whole path, too, and visit all cached descendants of a directory
//! that is renamed; here nothing is visited, and every memo falls. Weakness: that any directory's
//! rename or chmod ends all memos, and that any change in a directory ends those of its names: a tree
//! being built gains nothing from them.

use crate::backend::InodeId;
use crate::caller::{Caller, Checks, Groups};
use crate::inode::{Expiry, Inode, Moment};
use crate::lock_order;
use crate::names::BUCKET_BYTES;
use std::cell::Cell;
use std::sync::Arc;
use uvfs_concurrent::epoch::Guard;
use uvfs_concurrent::generations::{Generation, Generations};
use uvfs_concurrent::name_table::{Hand, NameTable, Verdict};
use uvfs_concurrent::object::Ref;

/// Clock weight of a memo that is used.
const MOST: u8 = 2;
/// Buckets looked through for memos that are not believed any more, for each that is added.
const BUCKETS: usize = 2;
/// Where there is no room for more memos, one of so many walks that ask for one gets one.
const CROWDED_SHARE: u32 = 64;
/// And where there is a memo that is not believed any more: its directory may be changing all the time.
const STALE_SHARE: u32 = 8;

/// For whom a walk was made.
#[derive(Debug)]
enum Who {
    /// Somebody whom no permission stops.
    Anybody,
    /// Somebody who may pass.
    Checked { uid: u32, gid: u32, groups: Arc<[u32]> },
}

impl Who {
    fn of(caller: &Caller) -> Option<Self> {
        match &caller.groups {
            _ if is_free(caller) => Some(Who::Anybody),
            Groups::Known(groups) => {
                Some(Who::Checked { uid: caller.uid, gid: caller.gid, groups: groups[..].into() })
            }
            // Who they are may have changed by the next walk.
            Groups::OfTask { .. } => None,
        }
    }

    /// Whether what this one may do `caller` may, too.
    #[inline]
    fn covers(&self, caller: &Caller) -> bool {
        if is_free(caller) {
            return true;
        }
        match (self, &caller.groups) {
            (Who::Checked { uid, gid, groups }, Groups::Known(known)) => {
                caller.uid == *uid && caller.gid == *gid && **groups == **known
            }
            _ => false,
        }
    }
}

#[inline]
fn is_free(caller: &Caller) -> bool {
    caller.checks == Checks::Done || caller.is_privileged()
}

/// Keeps the memos of different callers apart: part of the key. Whom a memo is for it says itself.
#[inline]
fn mark_of(caller: &Caller) -> u64 {
    match is_free(caller) {
        true => 0,
        // Odd, by the golden ratio: neighbouring ids are far apart.
        false => (u64::from(caller.uid) << 32 | u64::from(caller.gid) | 1 << 31)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

/// The key of a path: where it starts and for whom, and its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'p> {
    start: InodeId,
    marked: u64,
    hash: u64,
    path: &'p [u8],
}

/// What a walk found.
#[derive(Debug)]
struct Memo {
    start: InodeId,
    inode: Ref<Inode>,
    who: Who,
    evidence: Evidence,
}

/// What a walk relied on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// Generation of the shape before the walk.
    shape: u64,
    /// The last directory, and the generation of its entries before the last look into it.
    last: (InodeId, u64),
    /// When the first of what it used expires.
    expiry: Expiry,
}

/// The memos of one file system.
#[derive(Debug)]
pub(crate) struct PathCache {
    table: NameTable<Memo>,
    hand: Hand,
    shape: Generation,
    entries: Generations,
}

thread_local! {
    /// Walks of this thread that asked for a memo and did not simply get one.
    static TURNED_AWAY: Cell<u32> = const { Cell::new(0) };
}

impl PathCache {
    pub(crate) fn new() -> Self {
        Self {
            table: NameTable::new(&lock_order::PATHS, 64),
            hand: Hand::default(),
            shape: Generation::default(),
            entries: Generations::default(),
        }
    }

    /// A directory's place or rights have changed (M1).
    pub(crate) fn shape_changed(&self) {
        self.shape.advance();
    }

    /// The entries of a directory begin to change (M2).
    pub(crate) fn entries_change(&self, directory: InodeId) {
        self.entries.advance(directory.0);
    }

    /// The key of a path from `start`.
    #[inline]
    pub(crate) fn key<'p>(&self, caller: &Caller, start: &Inode, path: &'p [u8]) -> Key<'p> {
        let marked = start.id.0 ^ mark_of(caller);
        Key { start: start.id, marked, hash: self.table.hash(marked, path), path }
    }

    /// What a path leads to for `caller`, if there is a memo that is believed.
    #[inline]
    pub(crate) fn find<'g>(
        &'g self,
        guard: &'g Guard,
        caller: &Caller,
        key: Key<'_>,
        now: &mut Option<Moment>,
    ) -> Option<&'g Ref<Inode>> {
        let entry = self.table.get(guard, key.hash, key.marked, key.path)?;
        let memo = entry.value();
        let is_ours = memo.start == key.start && memo.who.covers(caller);
        if !(is_ours && self.believes(memo, now)) {
            return None;
        }
        entry.touch(MOST);
        Some(&memo.inode)
    }

    #[inline]
    fn believes(&self, memo: &Memo, now: &mut Option<Moment>) -> bool {
        let Evidence { shape, last: (directory, entries), expiry } = memo.evidence;
        shape == self.shape.now()
            && entries == self.entries.of(directory.0)
            && expiry.valid_at(now)
            && memo.inode.can_be_found()
    }

    /// Whether a path that is walked often should get a memo now. `bytes_max` is the room for all.
    pub(crate) fn admits(&self, guard: &Guard, key: Key<'_>, bytes_max: usize) -> bool {
        let stale = self.table.get(guard, key.hash, key.marked, key.path).is_some();
        let share = match self.bytes() >= bytes_max {
            true => CROWDED_SHARE,
            false if stale => STALE_SHARE,
            false => return true,
        };
        let asked = TURNED_AWAY.get().wrapping_add(1);
        TURNED_AWAY.set(asked);
        asked.is_multiple_of(share)
    }

    /// Evidence to be gathered by a walk that begins now.
    pub(crate) fn evidence(&self, start: &Inode) -> Evidence {
        Evidence { shape: self.shape.now(), last: (start.id, 0), expiry: Expiry::NEVER }
    }

    /// The walk is about to look into `directory`, relying on rights that expire then.
    pub(crate) fn look(&self, evidence: &mut Evidence, directory: &Inode, rights: Expiry) {
        evidence.last = (directory.id, self.entries.of(directory.id.0));
        evidence.expiry = evidence.expiry.min(rights);
    }

    /// Keeps what a walk found. `bytes_max` is the room for all memos.
    pub(crate) fn remember(
        &self,
        guard: &Guard,
        caller: &Caller,
        key: Key<'_>,
        inode: &Ref<Inode>,
        evidence: Evidence,
        bytes_max: usize,
    ) {
        let (Some(who), Some(inode)) = (Who::of(caller), inode.try_clone()) else { return };
        let memo = Memo { start: key.start, inode, who, evidence };
        self.table.insert(guard, key.hash, key.marked, key.path, 1, memo);
        self.sweep(guard, bytes_max);
    }

    /// Takes out some memos that are not believed any more, and where there are too many, some that
    /// were not used since the clock hand last came by.
    pub(crate) fn sweep(&self, guard: &Guard, bytes_max: usize) {
        let mut now = None;
        self.table.sweep(guard, &self.hand, BUCKETS, |entry| {
            let crowded = self.table.bytes() > bytes_max;
            match self.believes(entry.value(), &mut now) {
                true if !crowded || entry.age() > 0 => Verdict::Keep,
                _ => Verdict::Remove,
            }
        });
    }

    /// Memos kept now.
    pub(crate) fn count(&self) -> usize {
        self.table.len()
    }

    /// Bytes of the table alone, which does not shrink.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.buckets() * BUCKET_BYTES
    }

    /// Bytes of memos and table.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes()
    }

    /// Forgets everything.
    pub(crate) fn clear(&self, guard: &Guard) {
        for _ in 0..2 {
            self.table.sweep(guard, &Hand::default(), self.table.buckets(), |_| Verdict::Remove);
        }
    }
}

/// A directory's rights change: advances the shape when it is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct RightsChange<'a>(pub(crate) &'a PathCache);

impl Drop for RightsChange<'_> {
    fn drop(&mut self) {
        self.0.shape_changed();
    }
}

impl Evidence {
    /// A name was used that expires then.
    pub(crate) fn used_name(&mut self, expiry: Expiry) {
        self.expiry = self.expiry.min(expiry);
    }
}
