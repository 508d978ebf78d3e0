//! The counts of a walk.
//!
//! # Boundary
//! Numbers and their sums. Pages are counted in pages; the report converts them to bytes.

use std::io;
use std::ops::AddAssign;
use std::path::PathBuf;

/// Faults that are remembered with their path; more are only counted.
const FAULTS_MAX: usize = 8;

macro_rules! counts {
    ($($(#[$note:meta])* $name:ident,)*) => {
        /// Counts of a walk, or of a part of one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub(super) struct Tally { $($(#[$note])* pub(super) $name: u64,)* }

        impl AddAssign<&Tally> for Tally {
            fn add_assign(&mut self, other: &Tally) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Names of regular files that were opened.
    files,
    /// Directories that were listed.
    directories,
    /// Names that are neither: links, devices, sockets.
    others,
    /// Names of a file that was counted under another one.
    links,
    /// Files that had pages.
    files_before,
    /// Files that have none left.
    files_emptied,
    /// Files that kept dirty pages.
    files_dirty,
    /// Files that kept pages in use.
    files_busy,
    /// Files whose pages the kernel does not report to this user.
    files_unknown,
    /// Bytes in files, whether cached or not.
    size_bytes,
    /// Pages that were there.
    pages_before,
    /// Dirty pages that were there.
    pages_dirty_before,
    /// Pages that were there and were being written.
    pages_writeback_before,
    /// Pages that are left.
    pages_after,
    /// Pages that are left because they are dirty or being written.
    pages_dirty,
    /// Pages that are left for another reason: mapped, locked, being read.
    pages_busy,
    /// Names that the walk brought into the kernel's cache.
    names_filled,
    /// Names that were left alone because the kernel had not cached them.
    names_cold,
    /// Mount points that were not crossed.
    mounts,
    /// Files and directories that this user may not open.
    denied,
    /// Files and directories that could not be visited for another reason.
    failed,
    /// Names that were removed before their turn.
    vanished,
}

/// The outcome of a walk.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The counts.
    pub(super) tally: Tally,
    /// The first errors.
    pub(super) faults: Vec<(PathBuf, io::Error)>,
    /// It ended early, as the user wished.
    pub(super) interrupted: bool,
}

impl Outcome {
    /// Remembers a fault, if there is room; `path` is asked for only then.
    pub(super) fn fault(&mut self, path: impl FnOnce() -> PathBuf, error: io::Error) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push((path(), error));
        }
    }

    /// Adds another thread's result.
    pub(super) fn merge(&mut self, other: Outcome) {
        self.tally += &other.tally;
        self.interrupted |= other.interrupted;
        for (path, error) in other.faults {
            self.fault(|| path, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_add_up_and_faults_are_bounded() {
        let mut sum = Outcome::default();
        for _ in 0..20 {
            let tally = Tally { files: 2, pages_busy: 3, ..Tally::default() };
            let mut one = Outcome { tally, ..Outcome::default() };
            one.fault(|| "/a".into(), io::ErrorKind::NotFound.into());
            sum.merge(one);
        }
        assert_eq!((sum.tally.files, sum.tally.pages_busy, sum.tally.links), (40, 60, 0));
        assert_eq!(sum.faults.len(), FAULTS_MAX);
        sum.merge(Outcome { interrupted: true, ..Outcome::default() });
        assert!(sum.interrupted);
    }
}
