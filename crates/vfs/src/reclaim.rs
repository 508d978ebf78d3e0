//! Keeping names, inodes and pages within their budget.
//!
//! # Boundary
//! Decides when there is too much and what goes. Who may have how much says [`crate::budget`]; the clock
//! that knows what was used is in [`crate::names`], the queue of inodes without a name in
//! [`crate::inode`], and which pages go is the page cache's.
//!
//! # Concurrency
//! Whoever adds something or stops using something does a few steps here now and then, with no lock and no epoch
//! guard held: tearing an inode down calls the backend. Lookups never wait for it: they take no
//! lock, and a step holds one bucket's lock for some entries. What is added may push the other side
//! ([`Core::make_room`] looks at both). The more there is too much, the more steps, unless nothing goes
//! by them.
//!
//! # Why
//! One number of bytes for both, because they come in pairs: inodes that no name leads to go first,
//! then names that were not used since the clock hand last came by, each with its inode if nobody
//! holds that. Nothing is moved on a hit. Names that came with a listing are on probation: they go at
//! the hand's first visit, so that reading a huge directory once does not push out what is in use.
//! Weakness: what somebody holds cannot go, so who makes others hold inodes has to let them go when it is
//! asked ([`crate::Tenant`]); and the hand visits what is held too. The table of names does not shrink: after
//! the limit was lowered a lot, what it takes is gone from the room, but for a share that stays for names.

use crate::config::VfsConfig;
use crate::error::Result;
use crate::inode::{INODE_BYTES, Inode, REST_BYTES};
use crate::names::Taken;
use crate::page::FILE_BYTES;
use crate::statistics::BudgetStatistics;
use crate::vfs::{Core, Vfs};
use std::time::Duration;
use uvfs_concurrent::object::Ref;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::{allocator, epoch, pool};

/// Steps after something was added.
const STEPS: usize = 8;
/// One step more for so many bytes too much: what a step takes away at most.
const STEP_BYTES: u64 = 8 << 10;
/// Most steps of one call, so that nobody pays for all the others: about a millisecond.
const STEPS_MAX: usize = 256;
/// Turns of the hand after which nothing more goes: a name outlives three unused, and one may begin anywhere.
const TURNS: usize = 5;
/// Share of what names and inodes may have that is left for entries, however large their table is.
const ENTRIES_SHARE: u64 = 4;
/// Share of names and inodes that those to be kept leave to the others.
const OTHERS_SHARE: usize = 8;
/// Turns of the hand that may be in vain before names to be kept go, too.
const KEPT_TURNS: usize = 4;
/// Who shares the budget is asked to shrink before all names went if it has more than this share of what
/// names and inodes may have.
const TENANTS_SHARE: u64 = 4;
/// Garbage is freed when it exceeds this share of the room.
const GARBAGE_SHARE: u64 = 128;
/// How often, and how many times in vain, who shares the budget is looked at when the limit is lowered.
const LOOK_AT_TENANTS: Duration = Duration::from_millis(2);
const LOOKS_AT_TENANTS: usize = 50;
/// Steps after something went out of use.
const STEPS_AFTER_RELEASE: usize = 2;
/// Share of what names and inodes may have that one list may take.
const LIST_SHARE: u64 = 4;
/// Directories whose lists are looked at by one who makes room.
const LISTS: usize = 2;
/// Buckets of the name table in one step.
const BUCKETS: usize = 4;
/// Steps over the negative names after one was added.
const NEGATIVE_STEPS: usize = 16;
/// Share of the room that threads together may add before they look whether there is too much, and least room in which
/// they may: in a small one whoever adds looks.
const UNLOOKED_SHARE: u64 = 64;
const UNLOOKED_ROOM_MIN: u64 = 4 << 20;
/// Bytes that a name adds, at most: its two lines at first, and its share of the table.
pub(crate) const NAME_BYTES: usize = 160;
/// Bytes of a negative name: one line, and its share of the table.
const NEGATIVE_BYTES: usize = 80;

/// Names to have room for at first: few, but not so few that a large cache grows often.
pub(crate) fn names_expected(config: &VfsConfig) -> usize {
    let room = config.cache_bytes - config.overhead_bytes;
    usize::try_from(room / 8192).unwrap_or(usize::MAX).clamp(8, 4096)
}

impl Vfs {
    /// Changes [`VfsConfig::cache_bytes`]. When it was lowered, what is too much is gone on return, but for
    /// what is in use.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] says the rule; then nothing has changed.
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
    /// Bytes that all caches have in memory, counting what names once had and is kept for other names.
    pub fn held_bytes(&self) -> u64 {
        let core = &*self.core;
        // Page tables that wait for readers are of the memory that metadata has.
        let metadata = core.metadata_bytes() as u64 + core.pages.leaving_bytes();
        let metadata = metadata.max(core.budget.metadata_peak());
        metadata + core.pages.held_bytes() + epoch::garbage_bytes() as u64
    }

    /// Evicts what is beyond the budget, as far as it is not in use; how many bytes are beyond it still. For
    /// those who share the budget ([`crate::Tenant`]), while they let go.
    pub fn evict_excess(&self) -> u64 {
        self.core.make_room();
        self.core.tenants.count();
        self.core.excess()
    }

    /// What all caches may have together: the limit less what the process needs besides.
    pub fn room_bytes(&self) -> u64 {
        self.core.budget.room()
    }

    /// Gives memory that no cache uses back to the system. Takes time by how much that is, some milliseconds
    /// for a gigabyte: for who has just let a lot go, or measures that the process has too much.
    pub fn give_back(&self) {
        self.core.give_back();
    }

    /// Changes [`VfsConfig::overhead_bytes`]: a frontend that bounds its process measures now and then what
    /// the process has besides the caches. When it rose, what is too much is gone on return, but for what
    /// is in use; the caches keep a minimum, however much the rest takes.
    pub fn set_overhead_bytes(&self, bytes: u64) {
        let before = self.core.budget.overhead();
        self.core.budget.set_overhead(bytes);
        self.core.set_room();
        if bytes > before {
            self.core.shrink();
        }
    }
}

/// What a look at all sizes found last.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// There was too much: until it is gone whoever adds or releases something looks.
    over: AtomicBool,
    /// What pages may have.
    pages_bytes: AtomicU64,
}

impl Core {
    /// The limit or the overhead is another one, or memory was given back.
    pub(crate) fn set_room(&self) {
        let room = self.budget.room();
        let share = if room < UNLOOKED_ROOM_MIN { 0 } else { room / UNLOOKED_SHARE };
        self.unlooked.set_share(share);
        self.look_at_pages();
    }

    /// Something of `bytes` was added: makes room, if that is this thread's to do by now. What all threads have added since
    /// each of them looked is less than a share of the room ([`uvfs_concurrent::allowance`]), which is taken off what both
    /// sides may have.
    #[inline]
    pub(crate) fn added(&self, bytes: usize) {
        if self.is_due(bytes) {
            self.make_room();
        }
    }

    /// The last hold on `inode` is gone.
    pub(crate) fn released(&self, inode: Ref<Inode>) {
        // It may go from now on, which is as if it were added to what may.
        let steps = if self.is_due(INODE_BYTES) { STEPS_AFTER_RELEASE } else { 0 };
        self.reclaim(Some(inode), steps);
    }

    #[inline]
    fn is_due(&self, bytes: usize) -> bool {
        // ORDERING: Relaxed; who does not see it yet looks with the next thing that it adds.
        self.looked.over.load(Relaxed) || self.unlooked.add(bytes as u64)
    }

    /// Notes what pages may have until the next look. What changes meanwhile is in what is taken off for that: names
    /// and inodes become garbage, and more of them come by less than the share.
    fn look_at_pages(&self) -> u64 {
        // As in `Vfs::held_bytes`: not taken from pages twice.
        let metadata = self.metadata_bytes() as u64 + self.pages.leaving_bytes();
        let metadata = metadata + self.unlooked.share();
        let allowed = self.budget.pages_allowed(metadata, epoch::garbage_bytes() as u64);
        // ORDERING: Relaxed, both; a size that may lag.
        if self.looked.pages_bytes.load(Relaxed) != allowed {
            self.looked.pages_bytes.store(allowed, Relaxed);
        }
        allowed
    }

    /// Bytes of names, inodes and whole paths, and of who shares the budget.
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

    /// Bytes of what was let go and waits for readers to pass: of the whole process, and page tables of files
    /// that went. It goes without anything more being forgotten.
    fn garbage_bytes(&self) -> u64 {
        epoch::garbage_bytes() as u64 + self.pages.leaving_bytes()
    }

    /// What names and inodes may have now.
    fn metadata_allowed(&self) -> u64 {
        let allowed = self.budget.metadata_allowed(self.garbage_bytes());
        let tables = (self.names.table_bytes() + self.paths.table_bytes()) as u64;
        allowed.max(tables + self.budget.metadata_sure() / ENTRIES_SHARE)
    }

    /// What pages may have now.
    pub(crate) fn pages_allowed(&self) -> u64 {
        match self.unlooked.share() {
            0 => self.look_at_pages(),
            // ORDERING: Relaxed; a size that may lag.
            _ => self.looked.pages_bytes.load(Relaxed),
        }
    }

    /// Bytes of names and inodes that are too much.
    fn excess(&self) -> u64 {
        // With what may be added before anybody looks again.
        let held = self.metadata_bytes() as u64 + self.unlooked.share();
        // Mostly there is nothing to add up.
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

    /// Forgets some of what was used least, of either side, if there is too much: called after something
    /// was added to either, with no lock and no epoch guard held. Calls the backend.
    pub(crate) fn make_room(&self) {
        self.tenants.count();
        let excess = self.excess();
        if excess > 0 {
            let before = self.metadata_bytes();
            // What is in use does not go by more of them.
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
    }

    /// Asks who shares the budget to hold less, if there is too much still: where their tables have a good
    /// part of it, or nothing here helps any more.
    fn ask_tenants(&self) {
        let (excess, tenants) = (self.excess(), self.tenants.held_bytes());
        let many = tenants > self.metadata_allowed() / TENANTS_SHARE;
        if excess > 0 && tenants > 0 && (many || self.budget.idle_steps() > self.turn()) {
            self.tenants.shrink(excess);
        }
    }

    /// Drops pages until they are within what they may have.
    fn trim_pages(&self) {
        self.look_at_pages();
        self.pages.trim_to_budget(self);
    }

    /// Forgets until everything is within the budget, or nothing more can go: the rest is in use, or was
    /// added meanwhile. Calls the backend.
    pub(crate) fn shrink(&self) {
        self.shrink_metadata();
        // Last: names that are still to go must not push pages out.
        self.trim_pages();
    }

    fn shrink_metadata(&self) {
        let (mut held, mut last) = (usize::MAX, false);
        if self.is_over() {
            self.views.forget();
        }
        // Each round but the last two has made it smaller; the bound is for those who add meanwhile.
        for _ in 0..64 {
            self.tenants.count();
            epoch::collect();
            let mut now = self.metadata_bytes();
            if now >= held && self.is_over() && self.garbage_bytes() > 0 {
                // Names that went keep their inodes until no reader can see them; one may have lost its processor.
                epoch::synchronize();
                epoch::collect();
                now = self.metadata_bytes();
            }
            if !self.is_over() || (now >= held && last) {
                return;
            }
            let turns = TURNS * self.turn();
            // What is to be kept goes when nothing else does.
            last = now >= held;
            if last {
                self.budget.took(turns, false);
            }
            held = now;
            self.drop_lists(None);
            self.reclaim(None, turns + usize::try_from(self.inodes.orphans()).unwrap_or(0));
        }
    }

    /// Asks who shares the budget to hold less until everything is within it, or nothing has gone for a
    /// while: they let go on threads of their own, and what they hold keeps inodes from going.
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
        // Chunks with something in use stay.
        self.tenants.count();
        let tenants = self.tenants.held_bytes();
        let own =
            self.own_bytes().max(pool::shared().held_bytes()) as u64 + self.pages.leaving_bytes();
        self.budget.gave_back(own + tenants);
        self.look_at_pages();
    }

    /// Steps of the hand once around.
    fn turn(&self) -> usize {
        self.names.buckets() / BUCKETS + 1
    }

    /// The budget and who has how much of it.
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

    /// Takes in `last`, an inode whose last hold is gone, then forgets for at most `steps` steps.
    ///
    /// An inode torn down gives back the hold on its parent, which may be the last one, and so on: a
    /// loop, not a recursion, since a tree may be deeper than a stack.
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

    /// Names no memory that is only waiting for readers to pass is counted among the cached; but it
    /// is memory all the same, so it is not left to wait when there is little.
    fn free_garbage(&self) {
        if self.garbage_bytes() > self.budget.room() / GARBAGE_SHARE {
            epoch::collect();
        }
    }

    /// Inodes to be torn down, marked as queued: an orphan, or those whose names just went.
    fn forget_some(&self) -> Vec<Ref<Inode>> {
        match self.inodes.next_orphan() {
            Some(orphan) => vec![orphan],
            None => self
                .names
                .forget_once(&self.counters)
                .unwrap_or_else(|| self.names.sweep(BUCKETS, self.taken(), &self.counters)),
        }
    }

    /// Which names go: those that are to be kept where they leave the others no room, and otherwise where
    /// nothing else goes.
    fn taken(&self) -> Taken {
        let kept_names = self.names.kept_bytes();
        if kept_names == 0 {
            return Taken::Others;
        }
        // Counted alike: what inodes have besides is counted for files that were read only. A directory that
        // was looked into has it, too, but its class would have to be counted.
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

    /// Forgets every name.
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
