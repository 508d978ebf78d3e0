//! Freeing the memory of what was cleaned.
//!
//! # Boundary
//! Takes out of the caches what is out of use already ([`super`]), and counts it. Takes nothing else: a
//! name goes if its directory is the cleaned one or lies below it and the store was asked for it before the
//! cleaning; an inode, if it lies there, no name leads to it and nobody holds it; a page, as
//! [`crate::page`] says.
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
use crate::inode::{INODE_BYTES, Inode};
use crate::names::Reaped;
use crate::page::FilePages;
use crate::vfs::Core;
use std::collections::HashSet;
use std::ops::ControlFlow::{self, Continue};
use std::sync::Arc;
use std::time::Instant;
use uvfs_concurrent::name_table::Verdict;
use uvfs_concurrent::object::Ref;

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Inodes without a name looked at in one step.
const INODES: usize = 64;
/// Files between two reports of progress.
const FILES: usize = 64;

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
        };
        // What was done is reported also if it was ended before.
        let _ = reaper.run(self.clean, dirty);
        reaper.count_held();
        reaper.report.took = self.effect + began.elapsed();
        reaper.report
    }
}

struct Reaper<'a> {
    core: &'a Arc<Core>,
    tick: u64,
    below: Below<'a>,
    report: CleanReport,
    progress: CleanProgress,
    tell: &'a mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    /// Inodes that lost a name by it and were held then.
    held: Vec<Ref<Inode>>,
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
            let tally = match write {
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
            self.reap_names(at, &mut unknown);
            if !unknown.is_empty() {
                for directory in unknown.drain() {
                    self.below.holds(directory);
                }
                self.reap_names(at, &mut unknown);
                // Came in between: they are later than the cleaning.
                unknown.clear();
            }
            at += BUCKETS;
            self.step(BUCKETS)?;
        }
        Continue(())
    }

    /// Takes out what is known to lie below; notes the directories of which that is not known.
    fn reap_names(&mut self, at: usize, unknown: &mut HashSet<InodeId>) {
        let (below, tick) = (&self.below, self.tick);
        let reaped = self.core.names.reap((at, BUCKETS), |entry| {
            if entry.value().stamp().to_word() >= tick {
                return Verdict::Keep;
            }
            let directory = InodeId(entry.parent());
            match below.known(directory) {
                Some(true) => Verdict::Remove,
                Some(false) => Verdict::Keep,
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

    /// Tears an inode down that is marked as queued, unless somebody uses it again.
    fn tear_down(&mut self, inode: Ref<Inode>) {
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
        if let Some(parent) = retired.release_parent() {
            // Only one that has no name in the store any more goes at once.
            let mut above = self.core.inodes.inactive(self.core, parent);
            while let Some(parent) = above.and_then(|retired| retired.release_parent()) {
                above = self.core.inodes.inactive(self.core, parent);
            }
        }
    }

    /// Inodes below that no name leads to: those whose names went before, and directories that became
    /// free with what was in them.
    fn orphans(&mut self) -> ControlFlow<()> {
        loop {
            let before = self.report.inodes.freed.entries;
            let mut left = self.core.inodes.orphans();
            while left > 0 {
                let some = self.core.inodes.some_orphans(INODES);
                left = left.saturating_sub(INODES as u64);
                for inode in some {
                    match self.below.contains(&inode) {
                        true => self.tear_down(inode),
                        false => self.core.inodes.enqueue(inode),
                    }
                }
                self.step(0)?;
            }
            if self.report.inodes.freed.entries == before {
                return Continue(());
            }
        }
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
