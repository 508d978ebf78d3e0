//! Frees the memory of cleaned entries.
//!
//! # Boundary
//! Removes invalidated entries from the caches ([`super`]), and counts them. Removes a name if its directory is the
//! cleaned one or below it and the name is not valid any more. Tears down an inode there that has no name and no hold.
//! Removes pages as [`crate::page`] says.
//!
//! # Concurrency
//! Runs on the calling thread, in steps of some buckets, files or inodes. No lock and no epoch guard is held between
//! two steps. A step holds one bucket's lock for each name that it removes. So lookups, which take no lock, only share
//! the processor with it. The reaper waits for no other thread: it skips entries in use.
//!
//! # Why
//! One pass over the table of names, whatever the directory's size: the table knows no directories. A list of names per
//! directory would make the work proportional to the directory. But it would cost every name two words, and every new
//! name a lock that all its siblings need. Weakness: freeing a hundred names of a million takes as long as visiting the
//! million, some 0.2 s. They are invalid all the while.

use super::below::Below;
use super::{Clean, CleanProgress, CleanReport, Cleaning, Dirty};
use crate::backend::InodeId;
use crate::inode::{INODE_BYTES, Inode, Retired};
use crate::names::Reaped;
use crate::page::FilePages;
use crate::vfs::Core;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow::{self, Continue};
use std::sync::Arc;
use std::time::Instant;
use uvfs_containers::name_table::Verdict;
use uvfs_containers::object::Ref;

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Inodes without a name that are examined in one step.
const INODES: usize = 64;
/// Directories remembered between two steps, at most. Others are searched for again.
const ENDS_MAX: usize = 1 << 16;
/// Files between two reports of progress.
const FILES: usize = 64;
/// The least number of freed bytes that are returned to the system at once. Fewer bytes are reused.
const GIVE_BACK_FROM: u64 = 1 << 20;

impl Cleaning {
    /// Frees the memory of cleaned entries, in small steps, on this thread. `progress` is called after each step, and
    /// may end the work: then eviction frees the rest. Calls the backend.
    pub fn reap(
        self,
        dirty: Dirty,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> CleanReport {
        let began = Instant::now();
        let core = &self.vfs.core;
        let mut reaper = Reaper {
            core,
            tick: self.tick,
            below: Below::new(core, self.directory.id()),
            report: CleanReport { effect: self.effect, ..CleanReport::default() },
            progress: CleanProgress::default(),
            tell: progress,
            held: Vec::new(),
            ends: HashMap::new(),
        };
        // A partial result is reported, too.
        let _ = reaper.run(self.clean, dirty);
        reaper.count_held();
        let report = &reaper.report;
        let freed = [report.names, report.inodes, report.pages].map(|tally| tally.freed.bytes);
        if freed.iter().sum::<u64>() >= GIVE_BACK_FROM {
            core.give_back();
        }
        reaper.report.took = self.effect + began.elapsed();
        reaper.report
    }
}

struct Reaper<'a> {
    core: &'a Core,
    tick: u64,
    below: Below<'a>,
    report: CleanReport,
    progress: CleanProgress,
    tell: &'a mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    /// Inodes that lost a name here and were held then.
    held: Vec<Ref<Inode>>,
    /// For directories: names from before this moment are removed. 0 for directories elsewhere.
    ends: HashMap<InodeId, u64>,
}

impl Reaper<'_> {
    fn run(&mut self, clean: Clean, dirty: Dirty) -> ControlFlow<()> {
        let files = self.core.pages.files();
        let buckets = if clean.has_names() { self.core.names.buckets() } else { 0 };
        self.progress.total = (files.len() + buckets) as u64;
        self.pages(&files, clean, dirty)?;
        drop(files);
        if clean.has_names() {
            self.names()?;
            self.orphans()?;
        }
        Continue(())
    }

    fn step(&mut self, done: usize) -> ControlFlow<()> {
        self.progress.done += done as u64;
        self.progress.total = self.progress.total.max(self.progress.done);
        let report = &self.report;
        self.progress.freed =
            report.names.freed.entries + report.inodes.freed.entries + report.pages.freed.entries;
        // Other threads run first on this processor.
        std::thread::yield_now();
        (self.tell)(self.progress)
    }

    fn pages(&mut self, files: &[Arc<FilePages>], clean: Clean, dirty: Dirty) -> ControlFlow<()> {
        for files in files.chunks(FILES) {
            for file in files {
                let home = file.directory();
                if home.is_some_and(|home| self.below.holds(home.id())) {
                    self.pages_of(file, clean, dirty);
                }
            }
            self.step(files.len())?;
        }
        Continue(())
    }

    fn pages_of(&mut self, file: &Arc<FilePages>, clean: Clean, dirty: Dirty) {
        let write = dirty == Dirty::WriteFirst && file.has_unwritten();
        if write && self.core.bring_to_store(file).is_err() {
            self.report.not_written += 1;
        }
        if clean.has_pages() {
            let tally = match write && file.is_concerned(self.tick) {
                // Another thread may have visited them while they were dirty, and skipped them.
                true => file.drop_clean(),
                false => self.core.reap_pages(file),
            };
            self.report.pages.merge(tally);
        }
    }

    fn names(&mut self) -> ControlFlow<()> {
        let (mut at, mut unknown) = (0, HashSet::new());
        // The table may grow meanwhile: the entries of visited buckets move to visited ones.
        while at < self.core.names.buckets() {
            self.below.trim();
            if self.ends.len() >= ENDS_MAX {
                self.ends.clear();
            }
            self.reap_names(at, &mut unknown);
            if !unknown.is_empty() {
                for directory in unknown.drain() {
                    let end = self.names_end(directory);
                    self.ends.insert(directory, end);
                }
                self.reap_names(at, &mut unknown);
                // Directories inserted in between: all their entries are later than the clean.
                unknown.clear();
            }
            at += BUCKETS;
            self.step(BUCKETS)?;
        }
        Continue(())
    }

    /// The moment before which names of `directory` are removed. First the directory applies the clean: it is not
    /// complete any more when the first name is removed (C6).
    fn names_end(&mut self, directory: InodeId) -> u64 {
        if !self.below.holds(directory) {
            return 0;
        }
        let Some(node) = self.core.inodes.peek(directory) else { return 0 };
        match self.core.learn_cleans(&node.inode) {
            true => node.inode.names_after(),
            false => 0,
        }
    }

    /// Removes expired names, and collects directories with an unknown moment.
    fn reap_names(&mut self, at: usize, unknown: &mut HashSet<InodeId>) {
        let ends = &self.ends;
        let reaped = self.core.names.reap((at, BUCKETS), |entry| {
            let directory = InodeId(entry.parent());
            match ends.get(&directory) {
                Some(&end) if entry.value().stamp().to_word() < end => Verdict::Remove,
                Some(_) => Verdict::Keep,
                None => {
                    unknown.insert(directory);
                    Verdict::Keep
                }
            }
        });
        reaped.into_iter().for_each(|name| self.reaped(name));
    }

    fn reaped(&mut self, Reaped { bytes, inode, is_orphan }: Reaped) {
        self.report.names.found.add(1, bytes as u64);
        self.report.names.freed.add(1, bytes as u64);
        match inode {
            None => {}
            Some(orphan) if is_orphan => self.tear_down(orphan),
            Some(inode) => self.held.push(inode),
        }
    }

    /// Tears down an inode that is marked as queued, unless it is in use again. Then tears down the directories below
    /// that become free.
    fn tear_down(&mut self, inode: Ref<Inode>) {
        let mut next = Some(inode);
        while let Some(inode) = next.take() {
            let pages = inode.known_pages().map_or(0, |pages| pages.resident().0);
            let Some(retired) = self.core.inodes.retire(self.core, &inode) else {
                // Found again, by its id.
                self.report.inodes.found.add(1, INODE_BYTES as u64);
                self.report.inodes.busy.add(1, INODE_BYTES as u64);
                return self.core.inodes.enqueue(inode);
            };
            let bytes = pages * crate::page::PAGE;
            self.report.pages.found.add(pages, bytes);
            self.report.pages.freed.add(pages, bytes);
            self.report.inodes.found.add(1, INODE_BYTES as u64);
            self.report.inodes.freed.add(1, INODE_BYTES as u64);
            next = self.left_by(retired);
        }
    }

    /// The directory of a torn down object, if it must be torn down, too.
    fn left_by(&mut self, retired: Retired) -> Option<Ref<Inode>> {
        let mut parent = retired.release_parent()?;
        while !self.below.contains(&parent) {
            // Like any thread that drops the last hold.
            parent = self.core.inodes.inactive(self.core, parent)?.release_parent()?;
        }
        self.core.inodes.orphaned(parent)
    }

    /// Inodes below without a name, because their names were removed earlier: as many as there are now.
    fn orphans(&mut self) -> ControlFlow<()> {
        let mut left = self.core.inodes.orphans();
        while left > 0 {
            self.below.trim();
            let some = left.min(INODES as u64);
            left -= some;
            for _ in 0..some {
                match self.core.inodes.oldest_orphan() {
                    Some(inode) if self.below.contains(&inode) => self.tear_down(inode),
                    Some(inode) => self.core.inodes.enqueue(inode),
                    None => {}
                }
            }
            self.step(0)?;
        }
        Continue(())
    }

    /// Inodes that are still held are busy, or have unwritten data. Inodes without a hold have other names.
    fn count_held(&mut self) {
        let mut counted = HashSet::new();
        for inode in std::mem::take(&mut self.held) {
            if inode.is_dead() || inode.racy_inactive() || !counted.insert(inode.id) {
                continue;
            }
            let inodes = &mut self.report.inodes;
            inodes.found.add(1, INODE_BYTES as u64);
            match inode.known_pages().is_some_and(|pages| pages.has_unwritten()) {
                true => inodes.dirty.add(1, INODE_BYTES as u64),
                false => inodes.busy.add(1, INODE_BYTES as u64),
            }
        }
    }
}
