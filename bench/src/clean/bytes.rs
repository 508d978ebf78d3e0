//! The experiment of Li (2013) over pages, in process: `1:` instead of `2:`.
//!
//! # Boundary
//! Like [`super::names`], with files that are read to their ends, over a simulated store: each page that reaches it
//! waits as long as on a disk of 500 MB a second.
//!
//! # Why
//! The patch says that this "should be easier to be demonstrated" and has no table of it. Pages that reach the store
//! are counted there; some of them may have been read ahead without need.

use super::figures::Figures;
use super::sizes::{STEPS, Sizes, Way, bytes_case, misses};
use super::store::{Branch, ComputedStore, FilePath, Probe};
use super::{Run, config, names::SIMULATED, other, smallest_room};
use crate::report::Unit;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use uvfs_vfs::{Caller, Clean, Directory, Dirty, OpenOptions, PageCaching, Vfs};

const DIRECTORIES: [&str; 3] = ["1", "2", "3"];
/// Read at once.
pub(super) const PIECE: usize = 64 << 10;

/// Measures every step.
pub(super) fn measure(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let sizes = &run.sizes;
    run.progress("bytes: the budget into which three directories fit at the first step");
    let room = smallest_room(9 * sizes.bytes_at(0), |room| all_fit(sizes, room))?;
    figures.note(format!(
        "budget of pages: {:.1} MiB, into which three directories of {:.1} MiB just fit; {:.2} of those of \
         the last step",
        room as f64 / f64::from(1 << 20),
        sizes.bytes_at(0) as f64 / f64::from(1 << 20),
        3.0 * sizes.bytes_at(0) as f64 / sizes.bytes_at(STEPS - 1) as f64,
    ));
    for step in 0..STEPS {
        let files = sizes.whole_files_at(step);
        run.progress(&format!("bytes: {files} files in each directory"));
        for _ in 0..run.runs {
            for way in Way::ALL {
                let case = bytes_case(sizes.bytes_at(step), way);
                let (seconds, pages) = once(sizes, files, room, way)?;
                figures.sample(&case, SIMULATED, Unit::Seconds, seconds);
                figures.sample(&misses(&case), SIMULATED, Unit::Entries, pages as f64);
            }
        }
    }
    Ok(())
}

fn computed(sizes: &Sizes, files: u64, room: u64) -> io::Result<(Arc<Vfs>, Arc<Probe>)> {
    let file_bytes = sizes.file_bytes;
    let branches = DIRECTORIES.map(|name| Branch { file_bytes, ..Branch::of(name, files) });
    let store = ComputedStore::new(branches.to_vec(), PageCaching::Core);
    let probe = store.probe();
    Ok((Vfs::new(store, config(room)).map_err(other)?, probe))
}

fn all_fit(sizes: &Sizes, room: u64) -> io::Result<bool> {
    let files = sizes.whole_files;
    let (vfs, _) = computed(sizes, files, room)?;
    let top = vfs.root_directory(Caller::root());
    for directory in DIRECTORIES {
        read_all(&top, directory, files)?;
    }
    // An evicted inode evicts its pages, and they are not counted again.
    let statistics = vfs.statistics();
    let gone = statistics.pages.evicted + statistics.inodes.evicted + statistics.names.evicted;
    Ok(gone + statistics.pages.around == 0)
}

/// Seconds of the second pass, and the pages of it that reached the store.
fn once(sizes: &Sizes, files: u64, room: u64, way: Way) -> io::Result<(f64, u64)> {
    let (vfs, probe) = computed(sizes, files, room)?;
    let top = vfs.root_directory(Caller::root());
    let [first, second, third] = DIRECTORIES;
    read_all(&top, first, files)?;
    read_all(&top, second, files)?;
    if way == Way::Cleaned {
        let directory = top.open_directory(second).map_err(other)?;
        let report = vfs.clean(directory.node(), Clean::Pages, Dirty::Skip).map_err(other)?;
        if report.pages.remaining().entries > 0 {
            let why = format!("of {second}, {} pages stayed", report.pages.remaining().entries);
            return Err(io::Error::other(why));
        }
    }
    read_all(&top, third, files)?;
    let before = probe.pages();
    probe.be_slow(0, sizes.page_wait_ns);
    let begin = Instant::now();
    read_all(&top, first, files)?;
    let seconds = begin.elapsed().as_secs_f64();
    probe.be_slow(0, 0);
    Ok((seconds, probe.pages() - before))
}

/// Reads every file of `directory` to its end.
fn read_all(top: &Directory, directory: &str, files: u64) -> io::Result<()> {
    let (mut path, mut piece) = (FilePath::below(directory), vec![0; PIECE]);
    for number in 0..files {
        let file = top.open(path.of(number), OpenOptions::read()).map_err(other)?;
        let mut offset = 0;
        loop {
            match file.read_at(offset, &mut piece).map_err(other)? {
                0 => break,
                count => offset += count as u64,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::sizes::TINY;
    use super::*;

    // Rooms in between need a separate process: garbage is counted for a whole process.
    #[test]
    fn what_fits_misses_nothing_and_what_does_not_is_counted() {
        let missed = |room, way| once(&TINY, TINY.whole_files, room, way).unwrap().1;
        assert_eq!(missed(256 << 20, Way::Plain), 0);
        assert_eq!(missed(256 << 20, Way::Cleaned), 0);
        assert!(all_fit(&TINY, 256 << 20).unwrap());
        assert!(missed(16 << 10, Way::Plain) > 0);
        assert!(!all_fit(&TINY, 16 << 10).unwrap());
    }
}
