//! Freeing the memory of what was cleaned.
//!
//! # Boundary
//! Takes out of the caches what is out of use already ([`super`]), and counts it. Takes nothing else: a
//! name goes if its directory is the cleaned one or lies below it and does not believe it any more; an inode,
//! if it lies there, no name leads to it and nobody holds it; a page, as [`crate::page`] says.
//!
//! # Concurrency
//! On the thread of who asked for it, in steps of some buckets, files or inodes. No lock and no epoch
//! guard is held between two steps, and a step holds one bucket's lock per name that goes; so lookups,
//! which take no lock, only share the processor with it. Nothing waits for anybody: what is in use is
//! passed over.
//!
//! # Why
//! Once around the table of names, whatever the directory's size: the table knows no directories. A list of
//! names per directory would make this as long as the directory is large, and would cost every name two
//! words and every new one a lock that all its siblings want. Weakness: to free a hundred names of a
//! million takes as long as to look at the million, some 0.2 s; they are out of use all the while.

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
use uvfs_concurrent::name_table::Verdict;
use uvfs_concurrent::object::Ref;

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Inodes without a name looked at in one step.
const INODES: usize = 64;
/// Directories remembered at most between two steps; more are asked again.
const ENDS_MAX: usize = 1 << 16;
/// Files between two reports of progress.
const FILES: usize = 64;
/// So many bytes freed go back to the system at once; fewer serve what comes next.
const GIVE_BACK_FROM: u64 = 1 << 20;

impl Cleaning {
    /// Frees the memory of what was cleaned, in small steps, on this thread; returns when it is done.
    /// `progress` is called after each step, and may end it: what is left then goes when there is no room.
    /// Calls the backend.
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
        // What was done is reported also if it was ended before.
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
    /// Inodes that lost a name by it and were held then.
    held: Vec<Ref<Inode>>,
    /// Of directories: names from before this moment go. 0 for those that lie elsewhere.
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
        // Whoever else wants this processor has it first.
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
        let write = dirty == Dirty::WriteFirst && file.holds_back();
        if write && self.core.bring_to_store(file).is_err() {
            self.report.not_written += 1;
        }
        if clean.has_pages() {
            let tally = match write && file.is_concerned(self.tick) {
                // Somebody may have looked while they were dirty, and left them.
                true => file.drop_clean(),
                false => self.core.reap_pages(file),
            };
            self.report.pages.merge(tally);
        }
    }

    fn names(&mut self) -> ControlFlow<()> {
        let (mut at, mut unknown) = (0, HashSet::new());
        // The table may grow meanwhile: what has been passed then lies in what has been passed.
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
                // Of directories that came in between: all later than the cleaning.
                unknown.clear();
            }
            at += BUCKETS;
            self.step(BUCKETS)?;
        }
        Continue(())
    }

    /// Before which moment names of `directory` go. First it learns that it was cleaned: who believes that
    /// it knows all names of it does not any more, when the first of them goes.
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

    /// Takes out what is known to go; notes the directories of which nothing is known.
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

    /// Tears an inode down that is marked as queued, unless somebody uses it again; and the directories
    /// below that become free by that.
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

    /// The directory that something torn down lay in, if it goes too.
    fn left_by(&mut self, retired: Retired) -> Option<Ref<Inode>> {
        let mut parent = retired.release_parent()?;
        while !self.below.contains(&parent) {
            // As whoever gives the last hold back.
            parent = self.core.inodes.inactive(self.core, parent)?.release_parent()?;
        }
        self.core.inodes.orphaned(parent)
    }

    /// Inodes below that no name leads to, because their names went before: as many as there are now.
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

    /// Those that are still held are busy, or keep what the store does not have yet. What nobody holds
    /// has names elsewhere.
    fn count_held(&mut self) {
        let mut counted = HashSet::new();
        for inode in std::mem::take(&mut self.held) {
            if inode.is_dead() || inode.racy_inactive() || !counted.insert(inode.id) {
                continue;
            }
            let inodes = &mut self.report.inodes;
            inodes.found.add(1, INODE_BYTES as u64);
            match inode.known_pages().is_some_and(|pages| pages.holds_back()) {
                true => inodes.dirty.add(1, INODE_BYTES as u64),
                false => inodes.busy.add(1, INODE_BYTES as u64),
            }
        }
    }
}
