//! Drops the pages of one file: only the clean, unused ones.
//!
//! # Boundary
//! A [`Visitor`] for one request. Measures, asks the kernel to drop, and measures again; it reports the difference.
//!
//! # Why
//! POSIX_FADV_DONTNEED on a range starts to write its dirty pages, which the user did not ask for. So a file with dirty
//! pages is searched for ranges without any: by halves, aligned to powers of two, like the kernel's large folios, so a
//! clean folio is never cut. A search asks at most [`PROBES_MAX`] times; clean pages that it did not reach stay and
//! count as busy. Where dirty pages are unknown (mincore, or no right to ask) the whole file is advised, and the kernel
//! writes dirty pages in its own time.
//!
//! With `--sync` the pages are written first, by sync_file_range(2), and by fdatasync(2) where that does not make them
//! clean (network file systems commit in a second step).
//!
//! A file of several names is counted, and dropped, under the first one found. Weakness: others read and write between
//! two measurements; `freed` is then the difference, not the number of dropped pages.

use super::LINKS;
use super::flags::DropArguments;
use super::meter::Meter;
use super::opener::Identity;
use super::place::Place;
use super::tally::Tally;
use super::walk::Visitor;
use rustix::fs::{self, Advice};
use std::collections::HashSet;
use std::ffi::CStr;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use uvfs_concurrent::lock::Mutex;
use uvfs_residency::{Residency, cachestat, page_bytes, write_out};

/// Most questions about ranges of one file.
const PROBES_MAX: usize = 1 << 16;

/// The work on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Only count.
    Count,
    /// Drop clean pages.
    Drop,
    /// Write dirty pages, then drop.
    SyncAndDrop,
}

impl Mode {
    /// The mode of the command line.
    pub(super) fn of(arguments: &DropArguments) -> Self {
        match (arguments.dry_run, arguments.sync) {
            (true, _) => Mode::Count,
            (false, false) => Mode::Drop,
            (false, true) => Mode::SyncAndDrop,
        }
    }
}

/// Files of several names that were seen.
#[derive(Debug)]
pub(super) struct Links(Mutex<HashSet<((u32, u32), u64)>>);

impl Links {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&LINKS, HashSet::new()))
    }

    /// Whether the file was seen under another name.
    pub(super) fn seen(&self, identity: &Identity) -> bool {
        identity.names > 1 && !self.0.lock().insert((identity.device, identity.inode))
    }
}

/// Drops the pages of each file.
#[derive(Debug)]
pub(super) struct Evict {
    meter: Meter,
    mode: Mode,
    links: Links,
}

impl Evict {
    /// For one walk.
    pub(super) fn new(meter: Meter, mode: Mode) -> Self {
        Self { meter, mode, links: Links::new() }
    }
}

impl Visitor for Evict {
    fn enter(&self, _parent: &Place, _name: &CStr) -> usize {
        0
    }

    fn file(&self, file: &OwnedFd, tally: &mut Tally) -> io::Result<()> {
        let before = self.meter.measure(file)?;
        if before.is_some_and(|before| before.cached == 0) {
            return Ok(());
        }
        let identity = Identity::of(file.as_fd())?;
        if self.links.seen(&identity) {
            tally.links += 1;
            return Ok(());
        }
        let Some(before) = before else {
            tally.files_unknown += 1;
            return match self.mode {
                Mode::Count => Ok(()),
                Mode::Drop => advise_all(file),
                Mode::SyncAndDrop => sync(file).and_then(|()| advise_all(file)),
            };
        };
        tally.files_before += 1;
        tally.pages_before += before.cached;
        tally.pages_dirty_before += before.dirty;
        tally.pages_writeback_before += before.writeback;
        let dropped = match self.mode {
            Mode::Count => Ok(()),
            Mode::Drop => self.drop_clean(file, before, identity.bytes),
            Mode::SyncAndDrop => self.drop_synced(file, before, identity.bytes),
        };
        // The rest counts also if a write failed.
        let after = self.meter.measure(file)?.unwrap_or_default();
        let dirty = (after.dirty + after.writeback).min(after.cached);
        tally.pages_after += after.cached;
        tally.files_emptied += u64::from(after.cached == 0);
        if self.mode != Mode::Count {
            tally.pages_dirty += dirty;
            tally.pages_busy += after.cached - dirty;
            tally.files_dirty += u64::from(dirty > 0);
            tally.files_busy += u64::from(after.cached > dirty);
        }
        dropped
    }

    fn counted(&self, _place: &Place, _tally: &Tally) {}

    fn listed(&self, directory: &OwnedFd) {
        // Some file systems keep listings in pages of the directory. Others ignore it.
        if self.mode != Mode::Count {
            let _ = fs::fadvise(directory, 0, None, Advice::DontNeed);
        }
    }
}

impl Evict {
    fn drop_clean(&self, file: &OwnedFd, now: Residency, bytes: u64) -> io::Result<()> {
        if is_clean(now) { advise_all(file) } else { drop_clean_ranges(file, bytes) }
    }

    fn drop_synced(&self, file: &OwnedFd, before: Residency, bytes: u64) -> io::Result<()> {
        if self.meter == Meter::Cachestat && is_clean(before) {
            return advise_all(file);
        }
        sync(file)?;
        // A program may be writing again.
        let now = self.meter.measure(file)?.unwrap_or_default();
        self.drop_clean(file, now, bytes)
    }
}

fn is_clean(now: Residency) -> bool {
    now.dirty == 0 && now.writeback == 0
}

/// Writes the dirty pages, so that they can be dropped.
fn sync(file: &OwnedFd) -> io::Result<()> {
    if write_out(file).is_ok() && cachestat(file, 0, 0).is_ok_and(is_clean) {
        return Ok(());
    }
    Ok(fs::fdatasync(file)?)
}

fn advise_all(file: &OwnedFd) -> io::Result<()> {
    Ok(fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Drops the pages of all ranges that have no dirty page.
fn drop_clean_ranges(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let pages = bytes.div_ceil(page_bytes()).next_power_of_two();
    let mut ranges = vec![(0u64, pages)];
    for _ in 0..PROBES_MAX {
        let Some((first, pages)) = ranges.pop() else { return Ok(()) };
        let (Some(start), Some(length)) =
            (first.checked_mul(page_bytes()), pages.checked_mul(page_bytes()))
        else {
            continue;
        };
        let now = cachestat(file, start, length)?;
        if now.cached == 0 {
            continue;
        }
        if is_clean(now) {
            fs::fadvise(file, start, NonZeroU64::new(length), Advice::DontNeed)?;
        } else if pages > 1 && now.dirty < now.cached {
            let half = pages / 2;
            ranges.push((first + half, half));
            ranges.push((first, half));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::opener::{Fill, Offered};
    use super::super::testing::{Tree, cached, walk};
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Walks the tree's folder `name`.
    fn evict(tree: &Tree, name: &str, mode: Mode) -> Tally {
        let evict = Evict::new(Meter::Cachestat, mode);
        let outcome = walk(&tree.path(name), Offered::probe(), Fill::Allowed, &evict);
        assert!(outcome.faults.is_empty(), "{outcome:?}");
        outcome.tally
    }

    #[test]
    fn clean_pages_below_leave_and_a_sibling_of_the_same_prefix_keeps_its_own() {
        let Some(tree) = Tree::new() else { return };
        for file in ["foo/a", "foo/deep/er/b", "foobar/c", "fo/d", "e"] {
            tree.clean_file(file, 7);
        }
        let tally = evict(&tree, "foo", Mode::Drop);
        assert_eq!((tally.pages_before, tally.pages_after, tally.files_emptied), (14, 0, 2));
        assert_eq!((tally.pages_dirty, tally.pages_busy, tally.files_before), (0, 0, 2));
        for (file, pages) in
            [("foo/a", 0), ("foo/deep/er/b", 0), ("foobar/c", 7), ("fo/d", 7), ("e", 7)]
        {
            assert_eq!(cached(&tree.path(file)).cached, pages, "{file}");
        }
        let again = evict(&tree, "foo", Mode::Drop);
        assert_eq!((again.files, again.files_before, again.pages_before), (2, 0, 0));
    }

    #[test]
    fn counting_changes_nothing() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/b", 3);
        let tally = evict(&tree, "a", Mode::Count);
        assert_eq!((tally.pages_before, tally.pages_after), (3, 3));
        assert_eq!((tally.pages_busy, tally.files_busy), (0, 0), "nothing was tried");
        assert_eq!(cached(&tree.path("a/b")).cached, 3);
    }

    #[test]
    fn a_file_of_two_names_counts_once() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/one", 5);
        tree.clean_file("outside", 2);
        std::fs::hard_link(tree.path("a/one"), tree.path("a/two")).unwrap();
        std::fs::hard_link(tree.path("outside"), tree.path("a/in")).unwrap();
        let counted = evict(&tree, "a", Mode::Count);
        assert_eq!((counted.files, counted.links, counted.pages_before), (3, 1, 7));
        evict(&tree, "a", Mode::Drop);
        // A file is below the directory when one of its names is.
        assert_eq!(cached(&tree.path("outside")).cached, 0);
    }

    #[test]
    fn links_are_not_followed() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/file", 1);
        tree.clean_file("b/file", 4);
        std::os::unix::fs::symlink(tree.path("b"), tree.path("a/folder")).unwrap();
        std::os::unix::fs::symlink(tree.path("b/file"), tree.path("a/link")).unwrap();
        let tally = evict(&tree, "a", Mode::Drop);
        assert_eq!((tally.files, tally.others, tally.pages_before), (1, 2, 1));
        assert_eq!(cached(&tree.path("b/file")).cached, 4);
    }

    #[test]
    fn dirty_pages_stay_dirty_and_the_clean_ones_among_them_leave() {
        let Some(tree) = Tree::new() else { return };
        let path = tree.clean_file("a/file", 64);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // A program on this machine may call sync(2) at the wrong moment, but not each time.
        let kept = (0..5).any(|_| {
            file.sync_all().unwrap();
            std::fs::read(&path).unwrap();
            for number in [0, 1, 17, 63] {
                file.write_all_at(b"new", number * page_bytes() + 5).unwrap();
            }
            let before = cached(&path);
            let tally = evict(&tree, "a", Mode::Drop);
            let after = cached(&path);
            if before.dirty == 0 || (after.dirty, after.writeback) != (before.dirty, 0) {
                return false;
            }
            assert_eq!(before.cached, 64);
            assert_eq!(after.cached, after.dirty, "the clean ones left");
            let Tally { pages_dirty, pages_busy, files_dirty, .. } = tally;
            assert_eq!((pages_dirty, pages_busy, files_dirty), (after.dirty, 0, 1));
            assert_eq!(tally.pages_before - tally.pages_after, 64 - after.dirty);
            true
        });
        assert!(kept, "dirty pages were written, five times");

        let tally = evict(&tree, "a", Mode::SyncAndDrop);
        assert_eq!((tally.pages_after, tally.files_emptied), (0, 1), "{tally:?}");
        assert_eq!(cached(&path).cached, 0);
        let mut word = [0; 3];
        file.read_exact_at(&mut word, 17 * page_bytes() + 5).unwrap();
        assert_eq!(&word, b"new");
    }

    #[test]
    fn without_cachestat_pages_leave_too() {
        let Some(tree) = Tree::new() else { return };
        let path = tree.clean_file("a/file", 6);
        let evict = Evict::new(Meter::Mincore, Mode::Drop);
        let outcome = walk(&tree.path("a"), Offered::NOTHING, Fill::Allowed, &evict);
        assert_eq!((outcome.tally.pages_before, outcome.tally.pages_after), (6, 0));
        assert_eq!(cached(&path).cached, 0);
    }

    #[test]
    fn a_walk_that_may_not_fill_leaves_unknown_names_alone() {
        let Some(tree) = Tree::new() else { return };
        let offered = Offered::probe();
        if !offered.can_leave_alone() {
            return uvfs_skip::lacking("this kernel has no RESOLVE_CACHED");
        }
        tree.clean_file("a/known", 3);
        let evict = Evict::new(Meter::Cachestat, Mode::Drop);
        let tally = walk(&tree.path("a"), offered, Fill::Never, &evict).tally;
        assert_eq!((tally.names_filled, tally.names_cold, tally.pages_before), (0, 0, 3));
    }

    #[test]
    fn a_mount_point_is_not_crossed() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/file", 1);
        tree.clean_file("b/file", 4);
        std::fs::create_dir(tree.path("a/mnt")).unwrap();
        let Some(_mounted) = tree.bind("b", "a/mnt") else { return };
        let tally = evict(&tree, "a", Mode::Drop);
        assert_eq!((tally.files, tally.mounts, tally.pages_before), (1, 1, 1), "{tally:?}");
        assert_eq!(cached(&tree.path("b/file")).cached, 4);
    }

    #[test]
    fn a_mount_of_another_file_system_is_not_crossed_without_openat2_either() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/file", 1);
        std::fs::create_dir(tree.path("a/mnt")).unwrap();
        let Some(_mounted) = tree.mount_tmpfs("a/mnt") else { return };
        std::fs::write(tree.path("a/mnt/inner"), "x").unwrap();
        let evict = Evict::new(Meter::Cachestat, Mode::Drop);
        let tally = walk(&tree.path("a"), Offered::NOTHING, Fill::Allowed, &evict).tally;
        assert_eq!((tally.files, tally.mounts), (1, 1), "{tally:?}");
    }

    #[test]
    fn an_overlay_is_measured_through_to_the_files_below() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("lower/d/file", 5);
        let Some(_mounted) = tree.mount_overlay("lower", "merged") else { return };
        let merged = tree.path("merged");
        assert_eq!(std::fs::read(merged.join("d/file")).unwrap().len() as u64, 5 * page_bytes());
        let meter = Meter::choose(File::open(&merged).unwrap().as_fd());
        assert_eq!(meter, Meter::Mincore);
        let evict = Evict::new(meter, Mode::Drop);
        let tally = walk(&merged, Offered::probe(), Fill::Allowed, &evict).tally;
        assert_eq!((tally.pages_before, tally.pages_after), (5, 0), "{tally:?}");
        assert_eq!(cached(&tree.path("lower/d/file")).cached, 0);
    }

    #[test]
    fn an_empty_file_system_page_is_no_page() {
        let Some(tree) = Tree::new() else { return };
        tree.clean_file("a/empty", 0);
        let tally = evict(&tree, "a", Mode::Drop);
        assert_eq!((tally.files, tally.files_before, tally.files_emptied), (1, 0, 0));
    }
}
