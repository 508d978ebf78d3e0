//! Failures that no caller may see: refused stores to mappings, and failed syncs, for the log and for the end.
//!
//! # Boundary
//! Keeps which bytes of which files were refused, and which files had a failed sync. [`super::errors`] has the errors
//! that open files report. [`super::ending`] reports the refused stores at the end.
//!
//! # Concurrency
//! One lock, taken when the store fails. A write or a sync that succeeds reads one counter without it. A frontend sends
//! a write again only after the answer to the first one, so it sees the counter of that refusal.
//!
//! # Why
//! A kernel in front sends the pages of a mapping when the program has stored to them, or has ended. The kernel keeps
//! a refused page until it is evicted, and no call fails but `msync`. ext4 kills the program at the store instead.
//! Weakness: of a file with more than [`RANGES_MAX`] refused ranges, or of more than [`FILES_MAX`] files, the bytes
//! between two ranges count as refused, and further files are only logged.

use crate::attributes::FileKind;
use crate::backend::{InodeId, Loss};
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::lock_order;
use crate::unwritten::Unwritten;
use crate::vfs::{Core, Vfs};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// Files with refused stores, and files with failed syncs, of which a record is kept.
const FILES_MAX: usize = 4096;
/// Ranges of refused bytes of one file.
const RANGES_MAX: usize = 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Failures {
    /// The files in `noted`.
    count: AtomicUsize,
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    refused: HashMap<InodeId, Refused>,
    /// Files whose last sync failed, and is in the log.
    unsynced: HashSet<InodeId>,
}

/// Stores to mappings of one file that its store refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// The file's number (`st_ino`).
    number: u64,
    /// In order, and apart from each other.
    ranges: Vec<Range<u64>>,
    errno: i32,
}

impl Refused {
    fn add(&mut self, new: Range<u64>) {
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let last = self.ranges.partition_point(|range| range.start <= new.end);
        let touched = self.ranges.drain(first..last);
        let all =
            touched.fold(new, |all, range| all.start.min(range.start)..all.end.max(range.end));
        self.ranges.insert(first, all);
        if self.ranges.len() > RANGES_MAX {
            let last = self.ranges.pop().map_or(0, |last| last.end);
            self.ranges.last_mut().into_iter().for_each(|range| range.end = last);
        }
    }

    fn remove(&mut self, gone: Range<u64>) {
        let parts = self.ranges.drain(..).flat_map(|range| {
            let (start, end) = (range.start, range.end);
            [start..end.min(gone.start), start.max(gone.end)..end]
        });
        self.ranges = parts.filter(|range| range.start < range.end).collect();
    }

    fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }
}

impl Failures {
    pub(super) fn new() -> Self {
        let noted = Mutex::new(&lock_order::WRITE_ERRORS, Noted::default());
        Self { count: AtomicUsize::new(0), noted }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Noted) -> T) -> T {
        let mut noted = self.noted.lock();
        let changed = change(&mut noted);
        // ORDERING: Relaxed; see the module.
        self.count.store(noted.refused.len() + noted.unsynced.len(), Relaxed);
        changed
    }

    /// Like [`Failures::change`], if there is any record.
    fn change_known(&self, change: impl FnOnce(&mut Noted)) {
        // ORDERING: Relaxed; see the module.
        if self.count.load(Relaxed) > 0 {
            self.change(change);
        }
    }

    /// Records a refused store. Returns whether it is the first one of this file.
    fn refuse(&self, node: &Node, range: Range<u64>, error: &Error) -> bool {
        self.change(|noted| {
            let is_first = !noted.refused.contains_key(&node.id());
            if !is_first || noted.refused.len() < FILES_MAX {
                let refused = noted.refused.entry(node.id()).or_default();
                refused.number = node.number();
                refused.add(range);
                refused.errno = error.errno();
            }
            is_first
        })
    }

    /// The store took `range` of a file, or the file was cut and has no such range any more.
    pub(crate) fn took(&self, inode: InodeId, range: Range<u64>) {
        self.change_known(|noted| {
            if let Some(refused) = noted.refused.get_mut(&inode) {
                refused.remove(range);
                if refused.ranges.is_empty() {
                    noted.refused.remove(&inode);
                }
            }
        });
    }

    /// The last name of a file is gone.
    pub(crate) fn removed(&self, inode: InodeId) {
        self.change_known(|noted| {
            noted.refused.remove(&inode);
            noted.unsynced.remove(&inode);
        });
    }
}

impl Vfs {
    /// The store refused `length` bytes at `offset` that a program has stored to a mapping of the file `node`. Only the
    /// kernel saw the error. Counts and logs it; unless the bytes are written later, the end names the file.
    pub fn mapping_was_refused(&self, node: &Node, offset: u64, length: usize, error: &Error) {
        let core = &self.core;
        core.pages.counters.write_errors.hit();
        if node.inode.is_unlinked() {
            return;
        }
        let end = offset.saturating_add(length as u64);
        if core.pages.failures.refuse(node, offset..end, error) {
            let place = core.place_of(node.id());
            log::warn!(
                "{place}: {length} bytes at {offset} that a program stored to a mapping were refused, and are lost \
                 unless they are written again: {error}"
            );
        }
    }
}

impl Core {
    /// The result of a sync of a file is logged if it is an error: once, until a sync of the file succeeds.
    pub(crate) fn note_synced(&self, inode: InodeId, result: &Result<()>) {
        let failures = &self.pages.failures;
        let Err(error) = result else {
            return failures.change_known(|noted| _ = noted.unsynced.remove(&inode));
        };
        // The end of the store's changes is in the log already.
        if is_of_call(error) || self.backend().ended().is_some() {
            return;
        }
        let is_new = failures
            .change(|noted| noted.unsynced.len() < FILES_MAX && noted.unsynced.insert(inode));
        if is_new {
            log::warn!("{}: cannot be made stable: {error}", self.place_of(inode));
        }
    }

    /// The files with refused stores to mappings, which from now on have none.
    pub(super) fn refused_mappings(&self) -> Vec<Unwritten> {
        let taken = self.pages.failures.change(|noted| std::mem::take(&mut noted.refused));
        let loss = |(inode, refused): (&InodeId, &Refused)| Loss {
            inode: *inode,
            number: refused.number,
            kind: FileKind::Regular,
            bytes: refused.bytes(),
        };
        let losses: Vec<_> = taken.iter().map(loss).collect();
        let mut lost = self.named_objects(&losses);
        for (lost, refused) in lost.iter_mut().zip(taken.values()) {
            lost.error = Some(Error::from_errno(refused.errno));
        }
        lost
    }
}

/// Whether a sync failed for a reason in the call, and not in the store.
fn is_of_call(error: &Error) -> bool {
    use Error::{BadHandle, Interrupted, Invalid, Unsupported, WouldBlock};
    matches!(error, BadHandle | Interrupted | Invalid(_) | Unsupported(_) | WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_cut() {
        let mut refused = Refused::default();
        for range in [0..10, 20..30, 10..15, 40..50, 29..41] {
            refused.add(range);
        }
        assert_eq!(refused.ranges, [0..15, 20..50]);
        refused.remove(5..25);
        assert_eq!((refused.ranges.clone(), refused.bytes()), (vec![0..5, 25..50], 30));
        refused.remove(30..u64::MAX);
        assert_eq!(refused.ranges, [0..5, 25..30]);
        refused.remove(0..30);
        assert_eq!(refused.bytes(), 0);
        (0..2000).for_each(|at| refused.add(at * 10..at * 10 + 1));
        assert!(refused.ranges.len() <= RANGES_MAX && refused.bytes() >= 2000);
    }
}
