//! Keeps names, inodes and pages within their budget.
//!
//! # Boundary
//! Decides when there is too much and what to evict. [`crate::budget`] has the shares. [`crate::names`] has the clock
//! of used names, [`crate::inode`] the queue of inodes without a name. The page cache chooses pages.
//!
//! # Concurrency
//! A thread that adds or releases an entry takes a few steps here now and then. It holds no lock and no epoch guard,
//! because tearing an inode down calls the backend. Lookups never wait for it: they take no lock, and a step holds one
//! bucket's lock for some entries. An addition on one side may evict on the other ([`Core::make_room`] checks both).
//! The number of steps grows with the excess, unless steps do not help.
//!
//! # Why
//! One number of bytes for both, because they are cached in pairs. Inodes without a name are evicted first. Then names
//! that were not used since the clock hand's last visit, each with its inode if that has no hold. A hit moves nothing.
//! Names from a listing are on probation: the hand evicts them at its first visit, so that reading a huge directory
//! once does not evict entries in use. Weakness: held inodes cannot be evicted, so a frontend whose clients hold inodes
//! must release them on request ([`crate::Tenant`]). The hand visits held inodes, too. The table of names does not
//! shrink: after a large reduction of the limit, it reduces the room, except for a share that stays for names.

use crate::backend::InodeId;
use crate::config::VfsConfig;
use crate::error::Result;
use crate::inode::{INODE_BYTES, Inode, REST_BYTES};
use crate::names::{CachedName, Taken};
use crate::page::FILE_BYTES;
use crate::statistics::BudgetStatistics;
use crate::vfs::{Core, Vfs};
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::{allocator, epoch};
use uvfs_containers::object::Ref;
use uvfs_containers::pool;

/// Steps after an addition.
const STEPS: usize = 8;
/// One further step for this excess: the most that a step removes.
const STEP_BYTES: u64 = 8 << 10;
/// Most steps of one call, so that no thread pays for all others: about a millisecond.
const STEPS_MAX: usize = 256;
/// Turns of the hand that evict everything evictable: an unused name survives three, and a turn may begin anywhere.
const TURNS: usize = 5;
/// Share of the bytes for names and inodes that stays for entries, however large their table is.
const ENTRIES_SHARE: u64 = 4;
/// Share of names and inodes that the class `Keep` leaves to the others.
const OTHERS_SHARE: usize = 8;
/// Useless turns of the hand before names with the class `Keep` are evicted, too.
const KEPT_TURNS: usize = 4;
/// A tenant is asked to shrink before all names are evicted if it has more than this share of the bytes for names and
/// inodes.
const TENANTS_SHARE: u64 = 4;
/// Garbage is freed when it exceeds this share of the room.
const GARBAGE_SHARE: u64 = 128;
/// A thread that adds waits for readers when garbage exceeds this share of the room.
const GARBAGE_WAIT_SHARE: u64 = 8;
/// The interval and the number of useless looks at the tenants when the limit is lowered.
const LOOK_AT_TENANTS: Duration = Duration::from_millis(2);
const LOOKS_AT_TENANTS: usize = 50;
/// Steps after a release.
const STEPS_AFTER_RELEASE: usize = 2;
/// Share of the bytes for names and inodes that one list may take.
const LIST_SHARE: u64 = 4;
/// Directories whose lists are examined by one call that makes room.
const LISTS: usize = 2;
/// Buckets of the name table in one step.
const BUCKETS: usize = 4;
/// Steps over the negative names after an addition.
const NEGATIVE_STEPS: usize = 16;
/// Share of the room that threads together may add before they check for excess, and the least room in which they may.
/// In a smaller one each addition checks.
const UNLOOKED_SHARE: u64 = 64;
const UNLOOKED_ROOM_MIN: u64 = 4 << 20;
/// Bytes that a name adds, at most: its two lines at first, and its share of the table.
pub(crate) const NAME_BYTES: usize = 160;
/// Bytes of a negative name: one line, and its share of the table.
const NEGATIVE_BYTES: usize = 80;

/// Names for which the table has room at first: few, but enough that a large cache does not grow often.
pub(crate) fn names_expected(config: &VfsConfig) -> usize {
    let room = config.cache_bytes - config.overhead_bytes;
    usize::try_from(room / 8192).unwrap_or(usize::MAX).clamp(8, 4096)
}

impl Vfs {
    /// Changes [`VfsConfig::cache_bytes`]. If it is lowered, entries beyond the limit are evicted on return, unless
    /// they are in use.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] names the rule. Then nothing has changed.
    pub fn set_cache_bytes(&self, bytes: u64) -> Result<()> {
        self.core.budget.set_limit(bytes)?;
        self.core.pages.expect(bytes);
        self.core.set_room();
        self.core.shrink();
        self.core.shrink_tenants();
        self.core.give_back();
        Ok(())
    }
}

impl Vfs {
    /// Bytes that all caches have in memory, counting memory of earlier names that is kept for later ones.
    pub fn held_bytes(&self) -> u64 {
        let core = &*self.core;
        // Page tables in their grace period are part of metadata's memory.
        let metadata = core.metadata_bytes() as u64 + core.pages.leaving_bytes();
        let metadata = metadata.max(core.budget.metadata_peak());
        metadata + core.pages.held_bytes() + epoch::garbage_bytes() as u64
    }

    /// Evicts entries beyond the budget, as far as they are not in use. Returns the bytes that are still beyond it. For
    /// tenants ([`crate::Tenant`]), while they release memory.
    pub fn evict_excess(&self) -> u64 {
        self.core.make_room();
        self.core.tenants.count();
        self.core.excess()
    }

    /// The bytes for all caches together: the limit less the process's other memory.
    pub fn room_bytes(&self) -> u64 {
        self.core.budget.room()
    }

    /// Returns unused memory to the system. Takes some milliseconds for a gigabyte. For a caller that has just released
    /// much memory, or that measures too much in the process.
    pub fn give_back(&self) {
        self.core.give_back();
    }

    /// Changes [`VfsConfig::overhead_bytes`]: a frontend that bounds its process measures its other memory now and
    /// then. If it is raised, entries beyond the limit are evicted on return, unless they are in use. The caches keep a
    /// minimum.
    pub fn set_overhead_bytes(&self, bytes: u64) {
        let before = self.core.budget.overhead();
        self.core.budget.set_overhead(bytes);
        self.core.set_room();
        if bytes > before {
            self.core.shrink();
        }
    }
}

/// The result of the last look at all sizes.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// There was excess: until it is gone each addition or release checks.
    over: AtomicBool,
    /// The bytes for pages.
    pages_bytes: AtomicU64,
}

impl Core {
    /// The limit or the overhead has changed, or memory was returned.
    pub(crate) fn set_room(&self) {
        let room = self.budget.room();
        let share = if room < UNLOOKED_ROOM_MIN { 0 } else { room / UNLOOKED_SHARE };
        self.unlooked.set_share(share);
        self.look_at_pages();
    }

    /// An entry of `bytes` was added: makes room, if it is this thread's turn. All threads together have added less
    /// than a share of the room since each of them looked ([`uvfs_concurrent::allowance`]). That share is subtracted
    /// from both sides.
    #[inline]
    pub(crate) fn added(&self, bytes: usize) {
        if self.is_due(bytes) {
            self.make_room();
        }
    }

    /// The last hold on `inode` is gone.
    pub(crate) fn released(&self, inode: Ref<Inode>) {
        // It may be evicted from now on, which counts like an addition to the evictable entries.
        let steps = if self.is_due(INODE_BYTES) { STEPS_AFTER_RELEASE } else { 0 };
        self.reclaim(Some(inode), steps);
    }

    #[inline]
    fn is_due(&self, bytes: usize) -> bool {
        // ORDERING: Relaxed; a thread that does not see it yet checks with its next addition.
        self.looked.over.load(Relaxed) || self.unlooked.add(bytes as u64)
    }

    /// Stores the bytes for pages until the next look. The subtracted share covers changes meanwhile: names and inodes
    /// become garbage, and fewer bytes than the share are added.
    fn look_at_pages(&self) -> u64 {
        // Like [`Vfs::held_bytes`]: not subtracted from pages twice.
        let metadata = self.metadata_bytes() as u64 + self.pages.leaving_bytes();
        let metadata = metadata + self.unlooked.share();
        let allowed = self.budget.pages_allowed(metadata, epoch::garbage_bytes() as u64);
        // ORDERING: Relaxed, both; a size that may lag.
        if self.looked.pages_bytes.load(Relaxed) != allowed {
            self.looked.pages_bytes.store(allowed, Relaxed);
        }
        allowed
    }

    /// Bytes of names, inodes and whole paths, and of tenants.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.own_bytes() + usize::try_from(self.tenants.held_bytes()).unwrap_or(usize::MAX)
    }

    fn own_bytes(&self) -> usize {
        self.listed.total() as usize
            + self.lists.bytes()
            + self.names.bytes()
            + self.inodes.bytes()
            + self.paths.bytes()
            + self.pages.file_bytes()
            + self.views.bytes()
    }

    /// Bytes in their grace period: of the whole process, and page tables of removed files. They are freed without
    /// further evictions.
    fn garbage_bytes(&self) -> u64 {
        epoch::garbage_bytes() as u64 + self.pages.leaving_bytes()
    }

    /// The present bytes for names and inodes.
    fn metadata_allowed(&self) -> u64 {
        let allowed = self.budget.metadata_allowed(self.garbage_bytes());
        let tables = (self.names.table_bytes() + self.paths.table_bytes()) as u64;
        allowed.max(tables + self.budget.metadata_sure() / ENTRIES_SHARE)
    }

    /// The present bytes for pages.
    pub(crate) fn pages_allowed(&self) -> u64 {
        match self.unlooked.share() {
            0 => self.look_at_pages(),
            // ORDERING: Relaxed; a size that may lag.
            _ => self.looked.pages_bytes.load(Relaxed),
        }
    }

    /// Bytes of names and inodes beyond their share.
    fn excess(&self) -> u64 {
        // With the bytes that may be added before the next look.
        let held = self.metadata_bytes() as u64 + self.unlooked.share();
        // Mostly it is within the sure part, and nothing has to be computed.
        let excess = match held <= self.budget.metadata_sure() {
            true => 0,
            false => held.saturating_sub(self.metadata_allowed()),
        };
        // ORDERING: Relaxed, both; see `is_due`.
        if self.looked.over.load(Relaxed) != (excess > 0) {
            self.looked.over.store(excess > 0, Relaxed);
        }
        excess
    }

    fn is_over(&self) -> bool {
        self.excess() > 0
    }

    /// Evicts least used entries, of either side, if there is excess. Called after an addition to either, with no lock
    /// and no epoch guard held. Calls the backend.
    pub(crate) fn make_room(&self) {
        self.tenants.count();
        let excess = self.excess();
        if excess > 0 {
            let before = self.metadata_bytes();
            // More steps do not evict entries in use.
            let more = match self.budget.idle_steps() > TURNS * self.turn() {
                true => 0,
                false => usize::try_from(excess / STEP_BYTES).unwrap_or(STEPS_MAX),
            };
            let steps = (STEPS + more).min(STEPS_MAX);
            self.views.forget();
            self.drop_lists(Some(LISTS));
            self.reclaim(None, steps);
            self.budget.took(steps, self.metadata_bytes() < before);
            self.ask_tenants();
        }
        // Half is theirs, and mostly they have none.
        match self.pages.held_bytes() > 0 {
            true => self.trim_pages(),
            false => _ = self.look_at_pages(),
        }
        // A reader that lost its processor keeps what others remove meanwhile.
        if self.garbage_bytes() > self.budget.room() / GARBAGE_WAIT_SHARE {
            epoch::synchronize();
        }
    }

    /// Asks the tenants to hold less if there still is excess. Their tables must be a large part of it, unless nothing
    /// here helps any more.
    fn ask_tenants(&self) {
        let (excess, tenants) = (self.excess(), self.tenants.held_bytes());
        let many = tenants > self.metadata_allowed() / TENANTS_SHARE;
        if excess > 0 && tenants > 0 && (many || self.budget.idle_steps() > self.turn()) {
            self.tenants.shrink(excess);
        }
    }

    /// Evicts pages until they are within their bytes.
    fn trim_pages(&self) {
        self.look_at_pages();
        self.pages.trim_to_budget(self);
    }

    /// Evicts until everything is within the budget, or nothing more is evictable: the rest is in use, or was added
    /// meanwhile. Calls the backend.
    pub(crate) fn shrink(&self) {
        self.shrink_metadata();
        // Last: names that are evicted anyway must not evict pages.
        self.trim_pages();
    }

    fn shrink_metadata(&self) {
        let (mut held, mut last) = (usize::MAX, false);
        if self.is_over() {
            self.views.forget();
        }
        // Each round but the last two has reduced it. The bound is for concurrent additions.
        for _ in 0..64 {
            self.tenants.count();
            epoch::collect();
            let mut now = self.metadata_bytes();
            if now >= held && self.is_over() && self.garbage_bytes() > 0 {
                // Removed names keep their inodes until no reader can see them. A reader may have lost its processor.
                epoch::synchronize();
                epoch::collect();
                now = self.metadata_bytes();
            }
            if !self.is_over() || (now >= held && last) {
                return;
            }
            let turns = TURNS * self.turn();
            // The class `Keep` is evicted when nothing else is evictable.
            last = now >= held;
            if last {
                self.budget.took(turns, false);
            }
            held = now;
            self.drop_lists(None);
            self.reclaim(None, turns + usize::try_from(self.inodes.orphans()).unwrap_or(0));
        }
    }

    /// Asks the tenants to hold less until everything is within the budget, or nothing was released for a while. They
    /// release on threads of their own, and their holds keep inodes from eviction.
    fn shrink_tenants(&self) {
        let (mut held, mut looks) = (usize::MAX, 0);
        while self.is_over() && self.tenants.held_bytes() > 0 && looks < LOOKS_AT_TENANTS {
            self.tenants.shrink(self.excess());
            std::thread::sleep(LOOK_AT_TENANTS);
            self.shrink_metadata();
            let now = self.metadata_bytes();
            looks = if now < held { 0 } else { looks + 1 };
            held = held.min(now);
        }
        self.trim_pages();
    }

    /// See [`Vfs::give_back`].
    pub(crate) fn give_back(&self) {
        epoch::collect();
        self.pages.give_back_unused();
        pool::shared().give_back();
        allocator::give_back();
        // Chunks with entries in use stay.
        self.tenants.count();
        let tenants = self.tenants.held_bytes();
        let own =
            self.own_bytes().max(pool::shared().held_bytes()) as u64 + self.pages.leaving_bytes();
        self.budget.gave_back(own + tenants);
        self.look_at_pages();
    }

    /// Steps of the hand in one turn.
    fn turn(&self) -> usize {
        self.names.buckets() / BUCKETS + 1
    }

    /// The budget and its shares.
    pub(crate) fn budget_statistics(&self) -> BudgetStatistics {
        self.tenants.count();
        self.look_at_pages();
        let (metadata_bytes, page_bytes) = (self.metadata_bytes() as u64, self.pages.held_bytes());
        let garbage_bytes = self.garbage_bytes();
        BudgetStatistics {
            limit_bytes: self.budget.limit(),
            overhead_bytes: self.budget.overhead(),
            fixed_bytes: self.budget.fixed(),
            held_bytes: metadata_bytes + page_bytes + garbage_bytes,
            metadata_bytes,
            tenant_bytes: self.tenants.held_bytes(),
            metadata_max_bytes: self.metadata_allowed(),
            page_bytes,
            page_max_bytes: self.pages_allowed(),
            garbage_bytes,
        }
    }

    /// Handles `last`, an inode whose last hold is gone, then evicts for at most `steps` steps.
    ///
    /// An inode that is torn down drops the hold on its parent, which may be the last one, and so on: a loop, not a
    /// recursion, since a tree may be deeper than a stack.
    pub(crate) fn reclaim(&self, last: Option<Ref<Inode>>, mut steps: usize) {
        let mut inactive = last;
        let mut idle: Vec<Ref<Inode>> = Vec::new();
        loop {
            if let Some(inode) = inactive.take() {
                let retired = self.inodes.inactive(self, inode);
                inactive = retired.and_then(|retired| retired.release_parent());
            } else if let Some(inode) = idle.pop() {
                match self.inodes.retire(self, &inode) {
                    Some(retired) => inactive = retired.release_parent(),
                    // In use again meanwhile. It is marked as queued, so it is queued.
                    None => self.inodes.enqueue(inode),
                }
            } else if steps == 0 || !self.is_over() {
                return;
            } else {
                steps -= 1;
                self.free_garbage();
                self.paths.sweep(&epoch::pin(), self.paths_max_bytes());
                idle = self.forget_some();
            }
        }
    }

    /// Garbage in its grace period is not counted as cached but uses memory: free it early when memory is short.
    fn free_garbage(&self) {
        if self.garbage_bytes() > self.budget.room() / GARBAGE_SHARE {
            epoch::collect();
        }
    }

    /// Inodes to be torn down, marked as queued: an orphan, or those of names just evicted.
    fn forget_some(&self) -> Vec<Ref<Inode>> {
        match self.inodes.next_orphan() {
            Some(orphan) => vec![orphan],
            None => {
                let evicted = |name: &CachedName| self.name_evicted(name);
                self.names.forget_once(&self.counters, evicted).unwrap_or_else(|| {
                    self.names.sweep(BUCKETS, self.taken(), &self.counters, evicted)
                })
            }
        }
    }

    /// A name was evicted. If others change the store, the next answer may give the name another meaning, so memos of
    /// paths through it end.
    fn name_evicted(&self, name: &CachedName) {
        if self.shared()
            && let Some(inode) = name.value().inode()
        {
            self.paths.meaning_ends(InodeId(name.parent()), inode.is_directory());
        }
    }

    /// The evictable names: those with the class `Keep` if they leave the others no room, and otherwise if nothing else
    /// was evictable.
    fn taken(&self) -> Taken {
        let kept_names = self.names.kept_bytes();
        if kept_names == 0 {
            return Taken::Others;
        }
        // Both sums count the same parts: an inode's further state counts only for files that were read. A directory in
        // use has it, too, but its class would have to be counted.
        let (files, kept_files) = self.pages.file_counts();
        let file_bytes = FILE_BYTES + REST_BYTES;
        let names = self.names.bytes().saturating_sub(self.names.table_bytes());
        let all = names + self.inodes.count() * INODE_BYTES + files * file_bytes;
        let kept = kept_names + kept_files * file_bytes;
        match kept <= all - all / OTHERS_SHARE {
            _ if self.budget.idle_steps() > KEPT_TURNS * self.turn() => Taken::Any,
            true => Taken::Others,
            false => Taken::Kept,
        }
    }

    /// Bytes of the longest list that is kept.
    pub(crate) fn list_bytes_max(&self) -> usize {
        usize::try_from(self.metadata_allowed() / LIST_SHARE).unwrap_or(usize::MAX)
    }

    /// Room for memos of whole paths.
    pub(crate) fn paths_max_bytes(&self) -> usize {
        usize::try_from(self.metadata_allowed() / 8).unwrap_or(usize::MAX)
    }

    /// Removes every name.
    pub(crate) fn forget_names(&self) {
        self.names.clear().into_iter().for_each(|orphan| self.inodes.enqueue(orphan));
    }

    /// Keeps negative names within their share. Those that were hit twice stay longest.
    pub(crate) fn trim_negatives(&self) {
        let share = self.metadata_allowed() / 100 * u64::from(self.config.negative_percent);
        for _ in 0..NEGATIVE_STEPS {
            if (self.names.negatives() * NEGATIVE_BYTES) as u64 <= share {
                return;
            }
            self.names.sweep_negatives(BUCKETS, &self.counters);
        }
    }
}
