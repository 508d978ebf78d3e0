//! Floor: stress. The traces of a day of a busy server, at another speed: two threads create, walk, rename, remove,
//! list and forget, far more than the caches have room for.
//!
//! Asserted all the while: names and inodes stay within their budget and a tenth, except entries in use. At the end: no
//! name, no inode but the root's, no object of the store and no garbage is left. In between: the process does not grow.
//! By default some seconds; with `UVFS_STRESS_SECONDS` as many, and at least a day's changes at 500 a second. The
//! choices follow from a seed (`UVFS_SEED` replays them).

use crate::shared::Turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::epoch;
use uvfs_tests::{
    Numbers, Watchdog, assert_references_exact, for_each_node, hostile, root, seed, stress,
    vfs_over, with_room,
};
use uvfs_vfs::{Directory, RenameMode, Statistics, Vfs, VfsConfig};

const THREADS: u64 = 2;
const BUDGET: u64 = 2 << 20;
/// Directories with files that are only looked up, and files in each: several times the room.
const SHELVES: u64 = 40;
const FILES: u64 = 500;
/// Names that each thread changes.
const OWN: u64 = 300;
/// Operations between two checks of the budget.
const STEP: u64 = 1000;
/// Bytes of an inode that is in use, with its name and all that may belong to it.
const IN_USE: u64 = 1000;
/// A day's changes at 500 a second.
const DAY: u64 = 24 * 3600 * 500;
/// How much the process may grow between two checks. Freed memory that an allocator keeps varies by some MiB from run
/// to run; a leak of one operation grows with their number: at one line of 64 bytes in 100 operations, a million of
/// them exceed this.
const GROWTH: u64 = 16 << 20;

fn config() -> VfsConfig {
    with_room(BUDGET)
}

fn plant(top: &Directory) {
    for shelf in 0..SHELVES {
        top.create_directory(format!("shelf-{shelf}"), 0o755).unwrap();
        for file in 0..FILES {
            top.write_file(format!("shelf-{shelf}/{file}"), "").unwrap();
        }
    }
    for thread in 0..THREADS {
        top.create_directory(format!("own-{thread}"), 0o755).unwrap();
    }
    top.create_directory("common", 0o755).unwrap();
}

/// One operation, some of which are changes. It may fail; the test checks the state that it leaves.
fn operation(vfs: &Arc<Vfs>, top: &Directory, thread: u64, numbers: &mut Numbers) {
    let own = |numbers: &mut Numbers| match numbers.below(8) {
        0 => format!("common/{}", numbers.below(OWN)),
        _ => format!("own-{thread}/{}", numbers.below(OWN)),
    };
    let shelf = |numbers: &mut Numbers| format!("shelf-{}", numbers.below(SHELVES));
    let one = own(numbers);
    let _ = match numbers.below(400) {
        0..60 => top.write_file(&one, ""),
        60..110 => top.remove_file(&one),
        110..160 => top.rename(&one, own(numbers), RenameMode::Replace),
        160..170 => top.rename(&one, own(numbers), RenameMode::Exchange),
        170..180 => top.create_directory(&one, 0o755),
        180..195 => top.remove_directory(&one),
        195..200 => top.link(&one, own(numbers)),
        200..240 => top.stat(&one).map(drop),
        240..280 => top.stat(format!("{}/none-{}", shelf(numbers), numbers.below(FILES))).map(drop),
        280..398 => top.stat(format!("{}/{}", shelf(numbers), numbers.below(FILES))).map(drop),
        398 => top.open_directory(shelf(numbers)).map(|shelf| {
            for_each_node(vfs, shelf.node(), |_, _| ());
        }),
        _ => {
            if numbers.below(50) == 0 {
                vfs.forget_unused();
            }
            Ok(())
        }
    };
}

fn assert_within(statistics: &Statistics) {
    let limit = BUDGET + BUDGET / 10 + statistics.inodes_active * IN_USE;
    assert!(statistics.budget.metadata_bytes <= limit, "beyond {limit}: {statistics:?}");
}

/// Churns until `end` and until `least` operations are done; returns how many were.
fn churn(vfs: &Arc<Vfs>, seed: u64, end: Instant, least: u64) -> u64 {
    let (done, most_held, most_garbage) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (done, most_held, most_garbage) = (&done, &most_held, &most_garbage);
            scope.spawn(move || {
                let (top, mut numbers) = (root(vfs), Numbers(seed ^ thread));
                while Instant::now() < end || done.load(Relaxed) < least {
                    (0..STEP).for_each(|_| operation(vfs, &top, thread, &mut numbers));
                    done.fetch_add(STEP, Relaxed);
                    let statistics = vfs.statistics();
                    assert_within(&statistics);
                    most_held.fetch_max(statistics.budget.metadata_bytes, Relaxed);
                    most_garbage.fetch_max(statistics.budget.garbage_bytes, Relaxed);
                }
            });
        }
    });
    let [held, garbage] = [&most_held, &most_garbage].map(|most| most.load(Relaxed));
    println!("at most {held} bytes held of {BUDGET}, {garbage} bytes of garbage");
    done.into_inner()
}

/// Removes everything, and asserts that nothing is left of it.
fn assert_all_goes(vfs: &Arc<Vfs>) {
    let top = root(vfs);
    for directory in top.list_all().unwrap() {
        clear(&top, &String::from_utf8(directory.name).unwrap());
    }
    drop(top);
    vfs.forget_unused();
    let statistics = vfs.statistics();
    assert_eq!((statistics.names.held, statistics.inodes.held), (0, 1), "the root stays");
    assert_eq!((statistics.negatives, statistics.inodes_active), (0, 1));
    // A joined thread may still be ending: it leaves its place in the epochs a little later.
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        epoch::collect();
        match epoch::garbage_bytes() {
            0 => break,
            left => assert!(Instant::now() < end, "{left} bytes of garbage stay"),
        }
        std::thread::yield_now();
    }
}

fn clear(top: &Directory, path: &str) {
    for entry in top.open_directory(path).unwrap().list_all().unwrap() {
        let path = format!("{path}/{}", String::from_utf8(entry.name).unwrap());
        match entry.kind {
            uvfs_vfs::FileKind::Directory => clear(top, &path),
            _ => top.remove_file(path).unwrap(),
        }
    }
    top.remove_directory(path).unwrap();
}

/// Bytes that the process has in memory: `VmRSS` of proc_pid_status(5), which is in KiB.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn churn_stays_within_its_budget_and_leaves_nothing() {
    let _turn = Turn::take();
    let length = stress::length(Duration::from_secs(5));
    let _watchdog = Watchdog::new(length * 4 + Duration::from_secs(3600));
    let (seed, least) = (seed(), if stress::is_long() { DAY } else { 0 });
    let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let vfs = Vfs::new(memory, config()).unwrap();
    plant(&root(&vfs));
    // The first part makes everything as large as it gets.
    let warm = churn(&vfs, seed, Instant::now() + length / 4, 0);
    let (before, begin) = (resident_bytes(), Instant::now());
    let done = churn(&vfs, seed ^ 1 << 32, begin + length / 2, least);
    let (after, took) = (resident_bytes(), begin.elapsed());
    let rate = done as f64 / took.as_secs_f64();
    println!(
        "{} operations, {rate:.0} a second; {before} bytes resident, then {after}",
        warm + done
    );
    assert!(after <= before + GROWTH, "grew from {before} to {after} bytes");
    assert_all_goes(&vfs);
    let left = vfs.statistics().backend;
    assert!(
        left.contains(&("memory_inodes", 1)),
        "objects that the core still refers to: {left:?}"
    );
    drop(vfs);
    references_are_exact(seed, Instant::now() + length / 4);
}

/// Runs the operations over a store that counts every reference, and so grows.
fn references_are_exact(seed: u64, end: Instant) {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, config());
    plant(&root(&vfs));
    let end = end.min(Instant::now() + Duration::from_secs(20));
    println!("{} operations", churn(&vfs, seed, end, 0));
    assert_references_exact(&vfs, &hostile);
    assert_all_goes(&vfs);
    assert_references_exact(&vfs, &hostile);
}
