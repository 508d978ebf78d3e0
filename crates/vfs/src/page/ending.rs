//! The end of a page cache: the last try, and the data that it could not bring to the store.
//!
//! # Boundary
//! The order of the end, and its warnings. [`super::write_back`] writes the pages.
//!
//! # Concurrency
//! Called by one thread, when the threads of the pool have ended. Requests may still run. Data that they write after
//! the last try stays, unless its file is reported as lost. The next call handles it, at the latest the one at the end
//! of [`crate::Vfs`].
//!
//! # Why
//! Removed files are discarded first: no thread can read them any more, and the others may need their space. A store
//! that is asked by runs has [`crate::VfsConfig::end_patience`] for an answer, and is then given up. Weakness: a store
//! that hangs in a blocking call blocks the end. So the caller uses a thread that may be left behind.

use super::write_back::ALL;
use super::{FilePages, PAGE, PageCache};
use crate::error::{Error, Result};
use crate::unwritten::{Names, Unwritten};
use crate::vfs::Core;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Core {
    /// The end: writes everything back. Drops the data that could not be written, and returns its files.
    pub(crate) fn end_pages(&self) -> Vec<Unwritten> {
        self.pages.ending.begin();
        self.background.stop();
        self.pages.workers.stop();
        for file in self.pages.all_files() {
            // A panic with one file does not keep the others from their end.
            let _ = catch_unwind(AssertUnwindSafe(|| self.discard_if_removed(&file)));
        }
        // Errors are reported for each file below.
        for _ in 0..2 {
            let _ = catch_unwind(AssertUnwindSafe(|| self.sync_all_pages()));
        }
        let files = self.pages.unwritten_files();
        let mut lost = self.named(&files, Names::Stored);
        // Drop only the data of reported files: a request may have written to another file during the search for names.
        for ((_, file), lost) in files.iter().zip(&mut lost) {
            let _ = catch_unwind(AssertUnwindSafe(|| self.give_up(file)));
            let bytes = file.bytes_of(file.drop_range(ALL));
            lost.bytes = lost.bytes.max(bytes);
            self.unreserve_pages(file, 0, u64::MAX);
        }
        for file in self.pages.all_files() {
            file.drop_clean_from(0);
            let changed = file.unwritten_change_time();
            drop(file.change_time_written(changed));
            for open in file.opens.closable(file.is_unwritten()) {
                let _ = catch_unwind(AssertUnwindSafe(|| self.store_files().close(open)));
            }
        }
        // Dropped with no lock held: some may be the last hold on their file.
        drop(self.pages.dirty_files.take());
        self.pages.ending.end();
        join(&mut lost, self.refused_mappings());
        if let Err(error) = self.end_store() {
            join(&mut lost, self.lost_by_store(error));
        }
        lost.sort_by(|one, other| (&one.path, one.number).cmp(&(&other.path, other.number)));
        lost
    }

    fn end_store(&self) -> Result<()> {
        let ended = catch_unwind(AssertUnwindSafe(|| self.backend().end()));
        ended.unwrap_or(Err(Error::Corrupt("the store panicked at its end")))
    }

    /// A file could not be written back: logs it, once until the file can be written again.
    pub(super) fn warn_not_written(&self, file: &FilePages, error: &Error) {
        if std::mem::replace(&mut file.local().warned, true) {
            return;
        }
        let place = self.place_of(file.inode);
        log::warn!("{place}: cannot write back, will try again: {error}");
    }
}

/// Adds `others`, which the store lost or refused, to the files of which it never had some data: a file is named once.
fn join(lost: &mut Vec<Unwritten>, others: Vec<Unwritten>) {
    let known: HashMap<u64, usize> =
        lost.iter().enumerate().map(|(at, one)| (one.number, at)).collect();
    for one in others {
        match known.get(&one.number) {
            Some(at) => lost[*at].bytes += one.bytes,
            None => lost.push(one),
        }
    }
}

impl FilePages {
    /// Bytes that the store lacks, if any.
    pub(crate) fn unwritten_bytes(&self) -> Option<u64> {
        let pages = self.local().unwritten.max(0) as u64;
        (pages > 0).then(|| self.bytes_of(pages))
    }

    /// Bytes of `pages` of its pages.
    fn bytes_of(&self, pages: u64) -> u64 {
        let bytes = pages * PAGE;
        bytes.min(self.size().unwrap_or(bytes))
    }
}

impl PageCache {
    /// Files with unwritten pages, with their bytes.
    pub(crate) fn unwritten_files(&self) -> Vec<(u64, Arc<FilePages>)> {
        let files = self.all_files().into_iter();
        files.filter_map(|file| Some((file.unwritten_bytes()?, file))).collect()
    }
}
