//! Walks in bad company: names that do not exist, renames, a huge listing, caches that are too small.
//!
//! # Boundary
//! One function a case. Each watches one walker by itself and then beside one other thread, on the
//! same file system, in turns with the kernel's tmpfs where that means anything. `reclaim` and
//! `scan-then-hot` are about limits that a tmpfs does not have, so uvfs stands alone there and is
//! compared with itself.

use super::Run;
use super::cases::{self, Shape};
use super::contestants::{
    AMPLE_BYTES, by_components, tmpfs_filled, uvfs_filled, uvfs_over, walk_kernel, walk_uvfs,
    with_room_for,
};
use super::files::{self, Files};
use super::fxmark::text;
use super::latency::{Seen, alone, beside, watch};
use super::place::Tmpfs;
use super::{KERNEL, UVFS};
use crate::report::Report;
use crate::report::Unit;
use std::ffi::{CStr, CString};
use std::io;
use std::io::Write as _;
use uvfs_bench_workload::paths::{Paths, Pattern, Track, shuffle};
use uvfs_bench_workload::timed::MISSING;
use uvfs_bench_workload::tree::{Place, Tree};
use uvfs_vfs::{Directory, VfsConfig};

/// A file system that holds a computed tree.
enum Held {
    Uvfs(Directory),
    Kernel(Tmpfs),
}

impl Held {
    fn name(&self) -> &'static str {
        match self {
            Self::Uvfs(_) => UVFS,
            Self::Kernel(_) => KERNEL,
        }
    }

    fn walk(&self, path: &CStr) -> u64 {
        match self {
            Self::Uvfs(top) => walk_uvfs(top, path),
            Self::Kernel(tmpfs) => tmpfs.top().map_or(0, |top| walk_kernel(top, path)),
        }
    }

    fn list(&self) -> io::Result<usize> {
        match self {
            Self::Uvfs(top) => Files::list(top, c"."),
            Self::Kernel(tmpfs) => tmpfs.list(c"."),
        }
    }
}

/// uvfs, with these settings, and the kernel with `tree` in them.
fn both(run: &Run, case: &str, tree: &Tree, config: VfsConfig) -> io::Result<Vec<Held>> {
    let mut systems = vec![Held::Uvfs(uvfs_filled(tree, config)?.1)];
    match tmpfs_filled(tree, case) {
        Ok(tmpfs) => systems.push(Held::Kernel(tmpfs)),
        Err(error) => run.leave_out(KERNEL, case, &error.to_string()),
    }
    Ok(systems)
}

/// Has the systems take turns; the first round warms up. A system that fails drops out.
fn take_turns(
    run: &Run,
    case: &str,
    systems: &mut Vec<Held>,
    mut turn: impl FnMut(&Held, bool) -> Result<(), String>,
) {
    for round in 0..=run.rounds {
        systems.retain(|system| match turn(system, round > 0) {
            Ok(()) => true,
            Err(why) => {
                run.failed(system.name(), case, &why);
                false
            }
        });
        systems.reverse();
    }
}

/// Names that are not in a large directory, against names that are.
pub(super) fn negative(run: &Run, figures: &mut Report) -> io::Result<()> {
    let names = cases::negative(run.sizes);
    let (missing, present) = (&names[0], &names[1]);
    run.progress(missing);
    let target = run.target;
    let tree = Tree::new(1, run.sizes.negative);
    let hits = Paths::new(&tree, Pattern::Uniform);
    let mut misses = Paths::default();
    let mut order: Vec<u64> = (0..tree.leaves()).collect();
    shuffle(&mut order);
    order.iter().for_each(|nth| misses.push(format!("absent{nth}").as_bytes(), MISSING));
    let (hits, misses) = (hits.track(), misses.track());
    let mut systems = both(run, missing, &tree, by_components(AMPLE_BYTES))?;
    let mut at = [0; 2];
    take_turns(run, missing, &mut systems, |system, counts| {
        // ENOENT is the right result.
        let absent = |path: &CStr| if system.walk(path) == MISSING { 0 } else { MISSING };
        // Each of the absent names is asked for once before it counts.
        if !counts {
            let found = misses.paths.iter().filter(|path| absent(path) == MISSING).count();
            if found > 0 {
                return Err(format!("{found} names were found that do not exist"));
            }
        }
        let miss = alone(|| watch(&misses, &mut at[0], target, absent))?;
        let hit = alone(|| watch(&hits, &mut at[1], target, |path| system.walk(path)))?;
        if counts {
            let mut add = |case: &str, seen: &Seen| {
                figures.sample(case, system.name(), 1, Unit::NanosecondsPerWalk, seen.mean_ns());
            };
            add(missing, &miss);
            add(present, &hit);
        }
        Ok(())
    });
    Ok(())
}

/// A hot walker while another thread asks for ever new names that do not exist.
pub(super) fn negative_storm(run: &Run, figures: &mut Report) -> io::Result<()> {
    let case = "negative-storm";
    run.progress(case);
    let target = run.target;
    let shape = Shape { depth: 3, names: run.sizes.names[0] };
    let tree = Tree::new(shape.depth, shape.names);
    let hot = Paths::new(&tree, Pattern::Hot);
    let track = hot.track();
    // Room for the tree and little else: the storm has to be kept within its share.
    let mut systems = both(run, case, &tree, with_room_for(shape.names * 5 / 4))?;
    let mut asked = 0_u64;
    take_turns(run, case, &mut systems, |system, counts| {
        let walk = |path: &CStr| system.walk(path);
        let idle = alone(|| watch(&track, &mut 0, target, walk))?;
        asked += 1;
        let seed = asked << 40;
        let storm = |nth| match system.walk(&numbered("absent-", seed + nth)) {
            MISSING => Ok(()),
            _ => Err("found a name that does not exist".to_owned()),
        };
        let (seen, _) = beside(storm, || watch(&track, &mut 0, target, walk))?;
        if counts {
            let unit = Unit::NanosecondsPerWalk;
            figures.sample("negative-storm-idle", system.name(), 1, unit, idle.mean_ns());
            figures.sample(case, system.name(), 1, unit, seen.mean_ns());
        }
        Ok(())
    });
    Ok(())
}

/// `prefix` and a number, as cheaply as it can be had.
fn numbered(prefix: &str, number: u64) -> CString {
    let mut name = Vec::with_capacity(40);
    // Writing to memory does not fail.
    let _ = write!(name, "{prefix}{number}");
    CString::new(name).unwrap_or_default()
}

/// Directories on the walker's paths.
const PAIRS: usize = 8;

/// A walker while another thread exchanges directories on its paths, two at a time, so that every
/// path leads to a file at every moment.
pub(super) fn rename_storm(run: &Run, figures: &mut Report) -> io::Result<()> {
    let case = "rename-storm";
    run.progress(case);
    let target = run.target;
    let mut systems = Vec::new();
    for system in files::SYSTEMS {
        match files::fresh(system, case) {
            Ok(files) => systems.push((system, files)),
            Err(error) => run.leave_out(system, case, &error.to_string()),
        }
    }
    let side = |side: char, nth: usize| text(&format!("top/{side}{nth}"));
    let mut paths = Paths::default();
    for nth in 0..PAIRS {
        for name in ['x', 'y'] {
            paths.push(format!("top/{name}{nth}/below/file").as_bytes(), 0);
        }
    }
    for (_, files) in &systems {
        files.make_directory(c"top")?;
        for nth in 0..PAIRS {
            for name in ['x', 'y'] {
                let directory = format!("top/{name}{nth}");
                files.make_directory(&text(&directory))?;
                files.make_directory(&text(&format!("{directory}/below")))?;
                files.make_file(&text(&format!("{directory}/below/file")))?;
            }
        }
    }
    let track = paths.track();
    for round in 0..=run.rounds {
        systems.retain(|(system, files)| {
            let walk = |path: &CStr| files.walk(path);
            let exchange = |nth: u64| {
                let nth = (nth % PAIRS as u64) as usize;
                let done = files.exchange(&side('x', nth), &side('y', nth));
                done.map_err(|error| format!("exchanging: {error}"))
            };
            let seen = alone(|| watch(&track, &mut 0, target, walk)).and_then(|idle| {
                Ok((idle, beside(exchange, || watch(&track, &mut 0, target, walk))?))
            });
            match seen {
                Ok((idle, (storm, renames))) if round > 0 => {
                    let mut add = |ending: &str, unit, value| {
                        figures.sample(&format!("{case}{ending}"), system, 1, unit, value);
                    };
                    add("-idle", Unit::NanosecondsPerWalk, idle.mean_ns());
                    add("", Unit::NanosecondsPerWalk, storm.mean_ns());
                    add("-idle-p99", Unit::Nanoseconds, idle.percentile_ns(99.0));
                    add("-p99", Unit::Nanoseconds, storm.percentile_ns(99.0));
                    add("-renames", Unit::ThousandsPerSecond, renames / 1000.0);
                    true
                }
                Ok(_) => true,
                Err(why) => {
                    run.failed(system, case, &why);
                    false
                }
            }
        });
        systems.reverse();
    }
    Ok(())
}

/// A walker in a huge directory, and the same while another thread lists it again and again.
pub(super) fn listing(run: &Run, figures: &mut Report) -> io::Result<()> {
    let names = cases::listing(run.sizes);
    let case = format!("listing-{}", run.sizes.listing);
    run.progress(&case);
    let target = run.target;
    let tree = Tree::new(1, run.sizes.listing);
    let paths = Paths::new(&tree, Pattern::Uniform);
    let track = paths.track();
    let mut systems = both(run, &case, &tree, by_components(AMPLE_BYTES))?;
    let mut at = 0;
    take_turns(run, &case, &mut systems, |system, counts| {
        let walk = |path: &CStr| system.walk(path);
        let list = |_| match system.list() {
            Ok(count) if count as u64 == tree.leaves() => Ok(()),
            Ok(count) => Err(format!("a listing had {count} names")),
            Err(error) => Err(format!("listing: {error}")),
        };
        let idle = alone(|| watch(&track, &mut at, target * 2, walk))?;
        let (seen, _) = beside(list, || watch(&track, &mut at, target * 2, walk))?;
        if counts {
            let kinds = [
                idle.percentile_ns(50.0),
                idle.percentile_ns(99.0),
                seen.percentile_ns(50.0),
                seen.percentile_ns(99.0),
            ];
            for (case, value) in names.iter().zip(kinds) {
                figures.sample(case, system.name(), 1, Unit::Nanoseconds, value);
            }
            figures.sample(&names[4], system.name(), 1, Unit::Slowdown, kinds[3] / kinds[1]);
        }
        Ok(())
    });
    Ok(())
}

/// A hot walker over caches under a small limit, and the same while a scanner fills them with
/// something else.
pub(super) fn reclaim(run: &Run, figures: &mut Report) -> io::Result<()> {
    run.progress("reclaim");
    let target = run.target;
    let limit = run.sizes.limit;
    let tree = Tree::new(6, limit as u64 * 20);
    let (_vfs, top) = uvfs_over(&tree, with_room_for(limit as u64))?;
    let hot = hot_of(&tree, limit);
    let track = hot.track();
    let walk = |path: &CStr| walk_uvfs(&top, path);
    let scanned = scanner(&top, &tree);
    let mut at = 0;
    for round in 0..=run.rounds {
        let seen = alone(|| watch(&track, &mut at, target, walk)).and_then(|idle| {
            let pieces = (round as u64) << 20;
            let scan = |nth| scanned((pieces + nth) * SCAN_PIECE, SCAN_PIECE);
            Ok((idle, beside(scan, || watch(&track, &mut at, target, walk))?.0))
        });
        match seen {
            Ok((idle, seen)) if round > 0 => {
                let (idle, seen) = (idle.percentile_ns(99.0), seen.percentile_ns(99.0));
                figures.sample("reclaim-idle-p99", UVFS, 1, Unit::Nanoseconds, idle);
                figures.sample("reclaim-p99", UVFS, 1, Unit::Nanoseconds, seen);
                figures.sample("reclaim-p99-ratio", UVFS, 1, Unit::Slowdown, seen / idle);
            }
            Ok(_) => {}
            Err(why) => {
                run.failed(UVFS, "reclaim", &why);
                break;
            }
        }
    }
    Ok(())
}

/// Files that a scanner walks to in one piece of work.
const SCAN_PIECE: u64 = 256;

/// Walks to files from one number on, round and round, leaving out the first quarter (the hot ones).
fn scanner<'a>(top: &'a Directory, tree: &'a Tree) -> impl Fn(u64, u64) -> Result<(), String> + 'a {
    let first = tree.leaves() / 4;
    move |begin, count| {
        let mut path = Vec::new();
        for nth in begin..begin + count {
            let index = first + nth % (tree.leaves() - first);
            path.clear();
            tree.write_path(Place { level: tree.depth(), index }, &mut path);
            top.stat(&path).map_err(|error| format!("the scanner: {error}"))?;
        }
        Ok(())
    }
}

/// Files in the first quarter of `tree`, as many as are a twentieth of `limit`, in random order.
fn hot_of(tree: &Tree, limit: usize) -> Paths {
    let count = (limit as u64 / 20).max(1);
    let mut leaves: Vec<u64> = (0..count).map(|nth| nth * (tree.leaves() / 4) / count).collect();
    shuffle(&mut leaves);
    Paths::of_leaves(tree, leaves)
}

/// A hot set in a small cache, before and after everything else was read once.
pub(super) fn scan_then_hot(run: &Run, figures: &mut Report) -> io::Result<()> {
    run.progress("scan-then-hot");
    let limit = run.sizes.limit;
    let tree = Tree::new(6, limit as u64 * 20);
    let hot = hot_of(&tree, limit);
    let track = hot.track();
    for round in 0..=run.rounds {
        let (vfs, top) = uvfs_over(&tree, with_room_for(limit as u64))?;
        let pass = || one_pass(&track, |path| walk_uvfs(&top, path));
        let seen = alone(|| {
            (0..8).try_for_each(|_| pass().map(drop))?;
            let before = pass()?;
            scanner(&top, &tree)(0, limit as u64 * 10)?;
            let missed = vfs.statistics().names.misses;
            let first = pass()?;
            let missed = vfs.statistics().names.misses - missed;
            Ok((before, first, missed, pass()?))
        });
        match seen {
            Ok((before, first, missed, settled)) if round > 0 => {
                let steps = (track.paths.len() * tree.depth()) as f64;
                let unit = Unit::NanosecondsPerWalk;
                figures.sample("scan-then-hot-before", UVFS, 1, unit, before);
                figures.sample("scan-then-hot-first", UVFS, 1, unit, first);
                figures.sample("scan-then-hot-settled", UVFS, 1, unit, settled);
                let hits = 1.0 - missed as f64 / steps;
                figures.sample("scan-then-hot-hits", UVFS, 1, Unit::Share, hits);
            }
            Ok(_) => {}
            Err(why) => {
                run.failed(UVFS, "scan-then-hot", &why);
                break;
            }
        }
    }
    Ok(())
}

/// Walks `track` once; nanoseconds a walk.
fn one_pass(track: &Track<'_>, walk: impl Fn(&CStr) -> u64) -> Result<f64, String> {
    let begin = std::time::Instant::now();
    let sum: u64 = track.paths.iter().map(|path| walk(path)).fold(0, u64::wrapping_add);
    let ns = begin.elapsed().as_secs_f64() * 1e9 / track.paths.len() as f64;
    match sum == track.sizes.iter().sum::<u64>() {
        true => Ok(ns),
        false => Err("a file of the hot set was not found".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hot_files_and_scanned_files_are_different_ones() {
        let tree = Tree::new(3, 4000);
        let hot = hot_of(&tree, 400);
        let hot: BTreeSet<&CStr> = hot.track().paths.into_iter().collect();
        assert_eq!(hot.len(), 20);
        let scanned = Paths::of_leaves(&tree, tree.leaves() / 4..tree.leaves());
        assert!(scanned.track().paths.iter().all(|path| !hot.contains(path)));
    }

    #[test]
    fn a_scanner_reads_every_file_outside_the_hot_quarter() {
        let tree = Tree::new(2, 300);
        let (vfs, top) = uvfs_over(&tree, with_room_for(1000)).unwrap();
        let outside = tree.leaves() - tree.leaves() / 4;
        scanner(&top, &tree)(0, 2 * outside).unwrap();
        let missed = vfs.statistics().names.misses;
        assert!((outside..tree.names()).contains(&missed), "{missed} of {outside}");
    }

    #[test]
    fn a_pass_notices_what_is_missing() {
        let tree = Tree::new(2, 300);
        let paths = Paths::new(&tree, Pattern::Uniform);
        let track = paths.track();
        assert!(one_pass(&track, |_| MISSING).is_err());
        assert_eq!(numbered("absent-", 12).as_c_str(), c"absent-12");
    }
}
