//! Whole paths: the object of a path from a directory, in one probe.
//!
//! # Boundary
//! Keeps memos of walks that succeeded: (starting directory, path) to inode, with the caller of the walk. A memo only
//! repeats the result of a walk by components at this moment. This module decides whether a memo is valid;
//! [`crate::walk`] uses it.
//!
//! # Concurrency
//! The table is read under an epoch guard, without a lock or a store. A memo is valid while
//!
//! M1. the *shape* has the same generation: no directory has been renamed or removed, no name of one has another meaning,
//! and no directory's owner, mode or access control list has changed since before the walk;
//! M2. the *entries* of the last directory have the same generation: no change in it has begun, and no cached name of it
//! has another meaning, since before its name was looked up;
//! M3. none of the walk's dependencies has expired, and the inode has not been torn down.
//!
//! A thread advances the generations after it has removed the names from the cache. A change does that before it asks the
//! store, and a newer answer before its meaning is inserted. Evictions do it if others change the store. Changes of
//! rights do so when the new rights can be read ([`Generations`]).
//!
//! # Why
//! Tsai et al. (SOSP 2015) also probe for a whole path, and visit all cached descendants of a renamed directory. Here
//! nothing is visited, and every memo becomes invalid. Weakness: any directory's rename or chmod ends all memos, and
//! any change in a directory ends those of its names. So a tree under construction gains nothing. An evicted directory
//! of a store that others change ends all memos, too.

use crate::backend::InodeId;
use crate::caller::{Caller, Checks, Groups};
use crate::inode::{Expiry, Inode, Moment};
use crate::lock_order;
use crate::names::BUCKET_BYTES;
use std::cell::Cell;
use std::sync::Arc;
use uvfs_concurrent::epoch::Guard;
use uvfs_concurrent::generations::{Generation, Generations};
use uvfs_containers::name_table::{Hand, NameTable, Verdict};
use uvfs_containers::object::Ref;

/// Clock weight of a used memo.
const MOST: u8 = 2;
/// Buckets searched for invalid memos, for each memo that is added.
const BUCKETS: usize = 2;
/// When the room is full, one of this number of walks that ask for a memo gets one.
const CROWDED_SHARE: u32 = 64;
/// The share where there is an invalid memo: its directory may be changing all the time.
const STALE_SHARE: u32 = 8;

/// The callers whose rights a walk needed.
#[derive(Debug)]
enum Callers {
    /// Callers that no permission stops.
    Unrestricted,
    /// Callers with the ids and groups of one that passed the checks.
    Checked { uid: u32, gid: u32, groups: Arc<[u32]> },
}

impl Callers {
    fn of(caller: &Caller) -> Option<Self> {
        match &caller.groups {
            _ if is_free(caller) => Some(Callers::Unrestricted),
            Groups::Known(groups) => Some(Callers::Checked {
                uid: caller.uid,
                gid: caller.gid,
                groups: groups[..].into(),
            }),
            // The task's groups may have changed by the next walk.
            Groups::OfTask { .. } => None,
        }
    }

    /// Whether `caller` has all rights of these.
    #[inline]
    fn covers(&self, caller: &Caller) -> bool {
        if is_free(caller) {
            return true;
        }
        match (self, &caller.groups) {
            (Callers::Checked { uid, gid, groups }, Groups::Known(known)) => {
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

/// Keeps the memos of different callers apart: part of the key. The memo itself names its caller.
#[inline]
fn mark_of(caller: &Caller) -> u64 {
    match is_free(caller) {
        true => 0,
        // Odd, by the golden ratio: neighbouring ids are far apart.
        false => (u64::from(caller.uid) << 32 | u64::from(caller.gid) | 1 << 31)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

/// The key of a path: its start, its caller, and its hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Key<'p> {
    start: InodeId,
    marked: u64,
    hash: u64,
    path: &'p [u8],
}

/// The result of a walk.
#[derive(Debug)]
struct Memo {
    start: InodeId,
    inode: Ref<Inode>,
    callers: Callers,
    evidence: Evidence,
}

/// The dependencies of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evidence {
    /// Generation of the shape before the walk.
    shape: u64,
    /// The last directory, and the generation of its entries before the last look into it.
    last: (InodeId, u64),
    /// The earliest expiry among its dependencies.
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
    /// Walks of this thread that asked for a memo and met a limit.
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

    /// A cached name of `directory` was removed, and what is inserted next may have another meaning (M1, M2).
    /// `of_directory`: it led to a directory.
    pub(crate) fn meaning_ends(&self, directory: InodeId, of_directory: bool) {
        if of_directory {
            self.shape_changed();
        }
        self.entries_change(directory);
    }

    /// The key of a path from `start`.
    #[inline]
    pub(crate) fn key<'p>(&self, caller: &Caller, start: &Inode, path: &'p [u8]) -> Key<'p> {
        let marked = start.id.0 ^ mark_of(caller);
        Key { start: start.id, marked, hash: self.table.hash(marked, path), path }
    }

    /// The object of a path for `caller`, if there is a valid memo.
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
        let is_ours = memo.start == key.start && memo.callers.covers(caller);
        if !(is_ours && self.is_valid(memo, now)) {
            return None;
        }
        entry.touch(MOST);
        Some(&memo.inode)
    }

    #[inline]
    fn is_valid(&self, memo: &Memo, now: &mut Option<Moment>) -> bool {
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

    /// Evidence for a walk that begins now.
    pub(crate) fn evidence(&self, start: &Inode) -> Evidence {
        Evidence { shape: self.shape.now(), last: (start.id, 0), expiry: Expiry::NEVER }
    }

    /// The walk is about to look into `directory`, with `rights` as the expiry of its search permission.
    pub(crate) fn look(&self, evidence: &mut Evidence, directory: &Inode, rights: Expiry) {
        evidence.last = (directory.id, self.entries.of(directory.id.0));
        evidence.expiry = evidence.expiry.min(rights);
    }

    /// Keeps the result of a walk. `bytes_max` is the room for all memos.
    pub(crate) fn remember(
        &self,
        guard: &Guard,
        caller: &Caller,
        key: Key<'_>,
        inode: &Ref<Inode>,
        evidence: Evidence,
        bytes_max: usize,
    ) {
        let (Some(callers), Some(inode)) = (Callers::of(caller), inode.try_clone()) else { return };
        let memo = Memo { start: key.start, inode, callers, evidence };
        self.table.insert(guard, key.hash, key.marked, key.path, 1, memo);
        self.sweep(guard, bytes_max);
    }

    /// Removes some invalid memos. If there are too many, also removes some that were not used since the clock hand's
    /// last visit.
    pub(crate) fn sweep(&self, guard: &Guard, bytes_max: usize) {
        let mut now = None;
        self.table.sweep(guard, &self.hand, BUCKETS, |entry| {
            let crowded = self.table.bytes() > bytes_max;
            match self.is_valid(entry.value(), &mut now) {
                true if !crowded || entry.age() > 0 => Verdict::Keep,
                _ => Verdict::Remove,
            }
        });
    }

    /// Memos in the table.
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

    /// Removes everything.
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
    /// The walk used a name with this expiry.
    pub(crate) fn used_name(&mut self, expiry: Expiry) {
        self.expiry = self.expiry.min(expiry);
    }
}
