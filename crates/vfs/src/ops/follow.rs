//! Read-ahead across files: if a program reads the files of a directory in order, fetches the next ones.
//!
//! # Boundary
//! Chooses the files by the kept list of their directory ([`crate::inode::Listed`]). The page cache fetches them, on
//! threads of [`crate::background`]. [`crate::page`] reads ahead within one file.
//!
//! # Concurrency
//! Called when the first page of a file was missing, and at the first read of a file that was fetched ahead. Any other
//! hit costs a look at one flag. A reader's position is under the lock over the list.
//!
//! # Why
//! A small file is one request, and a reader that waits for each file has one request in progress. Two files in list
//! order start the window. It doubles with each further file up to [`WINDOW_MAX`], and to a part of the memory for
//! pages. A file out of order ends it, and waiting files are not fetched. After a directory that was read to its end in
//! order, the next sibling begins with the first file. Weakness: a program that reads in another order than that of the
//! names gains nothing. One that stops has fetched up to a window for nothing.

use crate::backend::FileRef;
use crate::background::Job;
use crate::inode::{Listed, Node};
use crate::name::Name;
use crate::vfs::Core;
use std::sync::Arc;
use uvfs_concurrent::epoch;

/// Files ahead of a reader, at most.
const WINDOW_MAX: usize = 64;
/// Files ahead at first.
const WINDOW_MIN: usize = 4;
/// Largest file that is fetched ahead as a whole.
pub(crate) const SMALL_BYTES: u64 = 256 << 10;
/// Share of the memory for pages that files ahead of one reader may take.
const SHARE: u64 = 16;
/// Files that a reader may skip and still be in order: cached files lie between.
const SKIP_MAX: usize = 8;
/// Files in order after which the next directory is expected to be read in order, too.
const TRUSTED_RUN: u32 = 8;

/// Files to fetch.
type Ahead = Vec<(usize, Node)>;

impl Core {
    /// A reader read the first bytes of `file`, which were missing or had been fetched ahead.
    pub(crate) fn follow_files(&self, file: &Node) {
        if !self.keeps_listings() || self.capabilities.queue_depth < 2 {
            return;
        }
        let Some(directory) = file.inode.parent_hint().and_then(|id| self.inodes.find(id)) else {
            return;
        };
        for (place, file) in self.files_ahead(&directory, file) {
            let directory = directory.clone();
            if self.background.submit(self, Job::Fetch { directory, file, place }).is_err() {
                // The reader fetches it itself.
                break;
            }
        }
    }

    fn files_ahead(&self, directory: &Node, file: &Node) -> Ahead {
        let parent = directory.parent();
        let Some((listed, from, to, ended)) = self.came_to(directory, parent.as_ref(), file) else {
            return Vec::new();
        };
        if ended && let Some(parent) = &parent {
            parent.inode.dir_state().kept().reading.trusted = true;
        }
        (from..to)
            .filter_map(|place| Some((place, self.small_file(directory, &listed, place)?)))
            .collect()
    }

    /// A reader came to `file`. Returns the places to fetch, and whether it has read the directory to its end in order.
    fn came_to(
        &self,
        directory: &Node,
        parent: Option<&Node>,
        file: &Node,
    ) -> Option<(Arc<Listed>, usize, usize, bool)> {
        let trusted = parent.is_some_and(|parent| {
            parent.inode.dir_state().known_kept().is_some_and(|kept| kept.reading.trusted)
        });
        let size = file.inode.last_attributes().size;
        let window_max = (self.pages_allowed() / SHARE / size.max(4096)).min(WINDOW_MAX as u64);
        let mut kept = directory.inode.dir_state().known_kept()?;
        let listed = kept.current()?.clone();
        let reading = kept.reading;
        let place = listed.find(file.number(), reading.at)?;
        let in_order = place > reading.at && place <= reading.at + SKIP_MAX;
        let run = match in_order {
            true => reading.run.saturating_add(1),
            // The first file of the next directory.
            false if trusted && place < SKIP_MAX => TRUSTED_RUN,
            false => 0,
        };
        let window = match run {
            0 => 0,
            run => (WINDOW_MIN << (run - 1).min(8)).min(window_max as usize),
        };
        let fetched = if run > 0 && in_order { reading.fetched } else { 0 };
        let from = fetched.max(place + 1);
        let to = (place + 1 + window).min(listed.len());
        kept.reading.at = place;
        kept.reading.run = run;
        kept.reading.fetched = from.max(to);
        let ended = run >= TRUSTED_RUN && place + 1 == listed.len();
        drop(kept);
        if run == 0
            && trusted
            && place >= SKIP_MAX
            && let Some(parent) = parent
        {
            parent.inode.dir_state().kept().reading.trusted = false;
        }
        Some((listed, from, to, ended))
    }

    /// The file at `place`, if it is small and known.
    fn small_file(&self, directory: &Node, listed: &Listed, place: usize) -> Option<Node> {
        let (name, ..) = listed.get(place)?;
        let key = self.names.key(directory.id(), Name::new(name).ok()?);
        let node = {
            let guard = epoch::pin();
            let (dentry, true) = self.names.last_known(&guard, &directory.inode, key)? else {
                return None;
            };
            Node::try_hold(dentry.inode()?)?
        };
        let attributes = node.inode.cached_attributes()?;
        let small = (1..=SMALL_BYTES).contains(&attributes.size);
        (node.kind() == crate::FileKind::Regular && small).then_some(node)
    }

    /// Fetches `file`, at `place` of `directory`, if its reader has not passed it.
    pub(crate) fn fetch_file(&self, directory: &Node, file: &Node, place: usize) {
        let expected = directory.inode.dir_state().known_kept().is_some_and(|kept| {
            kept.reading.run > 0 && (kept.reading.at..kept.reading.fetched).contains(&place)
        });
        if expected && self.fetch_small(file, FileRef::unopened(file.id())) {
            self.counters.files_ahead.hit();
        }
    }
}
