//! The experiment of Li (2013) over names, in process.
//!
//! # Boundary
//! Two stores: one simulates a disk by a fixed wait for each lookup that reaches it; the other is a directory of the
//! host whose own caches are warm. Each is opened in the order 1, 2, 3, 1 with fresh caches.
//!
//! # Why
//! The simulated disk is slow only in the timed pass: the others' cost does not matter, and a run would take an hour.
//! Over the simulated store, lookups that reach it are counted; over the host's they are the name cache's own count.
//! Each store has the budget into which three directories just fit *with it*: the store's memory for a file is part of
//! the one budget, too. Beside them are the misses of a least-recently-used cache of as many files, since the patch was
//! written against such a cache.

use super::sizes::{STEPS, Way, misses, names_case};
use super::store::{Branch, ComputedStore, FilePath, Probe};
use super::{Run, config, figures::Figures, other, smallest_room};
use crate::report::Unit;
use crate::{context, evict};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_vfs::{
    Caller, Clean, Directory, Dirty, OpenOptions, PageCaching, PagePolicy, Vfs, VfsConfig,
};

/// The store is computed, and a lookup waits.
pub(super) const SIMULATED: &str = "uvfs-simulated";
/// The store is a directory of the host.
pub(super) const HOST: &str = "uvfs-dir";
/// A least-recently-used cache of as many files: only counted.
pub(super) const LEAST_RECENT: &str = "lru-model";

const DIRECTORIES: [&str; 3] = ["1", "2", "3"];
/// More than a name with its inode takes, with all that finds it.
const BYTES_A_NAME_MAX: u64 = 4096;

/// A second pass.
#[derive(Debug, Clone, Copy)]
struct Pass {
    seconds: f64,
    misses: u64,
}

/// Measures both stores at every step.
pub(super) fn measure(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let sizes = &run.sizes;
    run.progress("names: the budget into which three directories fit at the first step");
    let most = 3 * sizes.files * BYTES_A_NAME_MAX;
    let room = smallest_room(most, |room| all_fit(&computed(sizes.files, room)?.0, sizes.files))?;
    figures.note(format!(
        "{SIMULATED}: each lookup that reaches the store waits {} us in the second pass; a simulated disk",
        sizes.lookup_wait_ns / 1000
    ));
    let backing = run.folder("names")?;
    run.progress("names: making the files of the host's directory");
    make_files(&backing, sizes.files_at(STEPS - 1))?;
    let host_room = smallest_room(most, |room| all_fit(&over_host(&backing, room)?, sizes.files))?;
    for (system, room) in [(SIMULATED, room), (HOST, host_room)] {
        figures.note(format!(
            "{system}: budget of names {:.1} MiB, {:.0} bytes for each of {} files, into which three \
             directories of {} just fit; {:.2} of those of {}",
            room as f64 / f64::from(1 << 20),
            room as f64 / (3 * sizes.files) as f64,
            3 * sizes.files,
            sizes.files,
            3.0 * sizes.files as f64 / sizes.files_at(STEPS - 1) as f64,
            sizes.files_at(STEPS - 1),
        ));
    }
    for step in 0..STEPS {
        let files = sizes.files_at(step);
        run.progress(&format!("names: {files} files in each directory"));
        for _ in 0..run.runs {
            for way in Way::ALL {
                let case = names_case(files, way);
                let mut sample = |system: &str, pass: Pass| {
                    figures.sample(&case, system, Unit::Seconds, pass.seconds);
                    figures.sample(&misses(&case), system, Unit::Entries, pass.misses as f64);
                };
                sample(SIMULATED, simulated(files, room, way, sizes.lookup_wait_ns)?);
                sample(HOST, host(&backing, files, host_room, way)?);
            }
        }
        for way in Way::ALL {
            let missed = least_recent(3 * sizes.files, files, way) as f64;
            let case = misses(&names_case(files, way));
            figures.sample(&case, LEAST_RECENT, Unit::Entries, missed);
        }
    }
    fs::remove_dir_all(&backing).map_err(context(backing.display()))
}

/// Whether three directories of `files` fit into the caches: nothing was evicted when all have been opened.
fn all_fit(vfs: &Arc<Vfs>, files: u64) -> io::Result<bool> {
    let top = vfs.root_directory(Caller::root());
    for directory in DIRECTORIES {
        open_all(&top, directory, files)?;
        let statistics = vfs.statistics();
        if statistics.names.evicted + statistics.inodes.evicted > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Caches of `room` bytes over three computed directories, and the switches of their store.
fn computed(files: u64, room: u64) -> io::Result<(Arc<Vfs>, Arc<Probe>)> {
    let branches = DIRECTORIES.map(|name| Branch::of(name, files));
    let store = ComputedStore::new(branches.to_vec(), PageCaching::Store);
    let probe = store.probe();
    Ok((Vfs::new(store, config(room)).map_err(other)?, probe))
}

fn simulated(files: u64, room: u64, way: Way, wait_ns: u64) -> io::Result<Pass> {
    let (vfs, probe) = computed(files, room)?;
    first_passes(&vfs, files, way)?;
    let before = probe.lookups();
    probe.be_slow(wait_ns, 0);
    let seconds = timed_pass(&vfs, files)?;
    Ok(Pass { seconds, misses: probe.lookups() - before })
}

/// Caches of `room` bytes over the directory of the host.
fn over_host(backing: &Path, room: u64) -> io::Result<Arc<Vfs>> {
    let backend = DirectoryBackend::open(backing, DirectoryConfig::default()).map_err(other)?;
    let config = VfsConfig { pages: PagePolicy::Off, ..config(room) };
    Vfs::new(backend, config).map_err(other)
}

fn host(backing: &Path, files: u64, room: u64, way: Way) -> io::Result<Pass> {
    let vfs = over_host(backing, room)?;
    first_passes(&vfs, files, way)?;
    let before = vfs.statistics().names.misses;
    let seconds = timed_pass(&vfs, files)?;
    Ok(Pass { seconds, misses: vfs.statistics().names.misses - before })
}

/// 1, 2, perhaps a cleaning of 2, 3.
fn first_passes(vfs: &Arc<Vfs>, files: u64, way: Way) -> io::Result<()> {
    let top = vfs.root_directory(Caller::root());
    let [first, second, third] = DIRECTORIES;
    open_all(&top, first, files)?;
    open_all(&top, second, files)?;
    if way == Way::Cleaned {
        let directory = top.open_directory(second).map_err(other)?;
        let report = vfs.clean(directory.node(), Clean::Names, Dirty::Skip).map_err(other)?;
        if report.names.remaining().entries > 0 {
            let why = format!("of {second}, {} names stayed", report.names.remaining().entries);
            return Err(io::Error::other(why));
        }
    }
    open_all(&top, third, files)
}

fn timed_pass(vfs: &Arc<Vfs>, files: u64) -> io::Result<f64> {
    let top = vfs.root_directory(Caller::root());
    let begin = Instant::now();
    open_all(&top, DIRECTORIES[0], files)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Opens and closes every file of `directory`.
fn open_all(top: &Directory, directory: &str, files: u64) -> io::Result<()> {
    let mut path = FilePath::below(directory);
    for number in 0..files {
        drop(top.open(path.of(number), OpenOptions::read()).map_err(other)?);
    }
    Ok(())
}

/// Empty files in three directories, named as those that are computed.
pub(super) fn make_files(backing: &Path, files: u64) -> io::Result<()> {
    for directory in DIRECTORIES {
        let folder = backing.join(directory);
        fs::create_dir(&folder).map_err(context(folder.display()))?;
        let mut path = FilePath::below(directory);
        for number in 0..files {
            File::create(backing.join(path.of(number)))?;
        }
    }
    Ok(())
}

/// Misses of the second pass in a least-recently-used cache of `capacity` files. The cleaned directory need not have
/// been cached: those before it fit.
fn least_recent(capacity: u64, files: u64, way: Way) -> u64 {
    let passes: &[u64] = if way == Way::Plain { &[1, 2, 3, 1] } else { &[1, 3, 1] };
    let accesses: Vec<u64> =
        passes.iter().flat_map(|pass| (0..files).map(move |file| pass << 32 | file)).collect();
    let counted = accesses.len() - files as usize;
    evict::least_recent_misses(capacity as usize, accesses, counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_of_three_directories_leaves_nothing_of_the_first_where_the_oldest_leaves() {
        let missed = |files| Way::ALL.map(|way| least_recent(540, files, way));
        assert_eq!(missed(180), [0, 0]);
        assert_eq!(missed(181), [181, 0]);
        assert_eq!(missed(260), [260, 0]);
        assert_eq!(missed(271)[1], 271);
    }

    #[test]
    fn what_fits_misses_nothing_and_what_was_cleaned_makes_room() {
        let fits = |room| all_fit(&computed(900, room)?.0, 900);
        let room = smallest_room(3 * 900 * BYTES_A_NAME_MAX, fits).unwrap();
        let missed = |files, way| simulated(files, room, way, 0).unwrap().misses;
        // Garbage of tests that run beside this one takes a little of the room.
        assert!(missed(900, Way::Plain) < 900 / 4);
        assert!(missed(1300, Way::Plain) > 0, "2.08 directories are less than three");
        assert!(missed(1300, Way::Cleaned) < missed(1300, Way::Plain));
    }
}
