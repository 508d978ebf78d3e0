//! Floor: stress, short. Names, inodes and pages stay within their limits under churn, the statistics are right, and
//! everything returns to zero.
//!
//! The choices follow from a seed (`UVFS_SEED` replays them).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Weak};
use std::time::Duration;
use uvfs_backends::hostile::{Call, Plan};
use uvfs_concurrent::epoch;
use uvfs_tests::paged::assert_references_come_back;
use uvfs_tests::{Hostile, Numbers, Watchdog, hostile, root, seed, tiny, vfs_over, with_room};
use uvfs_vfs::{
    File, MINIMUM_BYTES, OpenOptions, PageCaching, RenameMode, Statistics, Tenant, Vfs, VfsConfig,
};

/// Bytes beyond a limit that may be there for a moment: of some names and inodes, for each thread
/// that is just adding some.
const SLACK: u64 = 64 * 500;
/// Bytes of an entry in use, which cannot be evicted: an inode with everything it may have, and its name.
const IN_USE: u64 = 700;

fn assert_within(statistics: &Statistics) {
    let (pages, budget) = (statistics.pages, statistics.budget);
    let allowed = room_for_pages(statistics) + (16 << 10);
    assert!(pages.held <= allowed, "pages: {pages:?}, {budget:?}");
    assert_metadata_within(statistics);
}

/// The room that names leave for pages. The limit is lower by the garbage of the process, which other threads (here:
/// other tests, too) may have made since a thread last added a page.
fn room_for_pages(statistics: &Statistics) -> u64 {
    let budget = statistics.budget;
    let room = budget.limit_bytes - budget.overhead_bytes;
    statistics.pages.limit.max(room.saturating_sub(budget.metadata_bytes))
}

fn assert_metadata_within(statistics: &Statistics) {
    let (budget, in_use) = (statistics.budget, statistics.inodes_active * IN_USE);
    let limit = budget.limit_bytes - budget.overhead_bytes + in_use + SLACK;
    assert!(budget.metadata_bytes <= limit, "in use {in_use}: {statistics:?}");
}

fn caches() -> [VfsConfig; 2] {
    [tiny(), with_room(256 << 10)]
}

#[test]
fn lookups_of_many_names_stay_within_the_limits() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    for config in caches() {
        let hostile = hostile();
        let vfs = vfs_over(&hostile, config);
        let top = root(&vfs);
        for at in 0..20 {
            top.create_directory(format!("{at}"), 0o755).unwrap();
        }
        for at in 0..40_000u64 {
            let path = format!("{}/{}", at % 20, at % 5000);
            match at {
                0..5000 => top.write_file(path, "").unwrap(),
                // Every second one is missing.
                _ if at % 2 == 0 => assert!(top.stat(format!("{path}-")).is_err()),
                _ => assert!(top.stat(path).is_ok()),
            }
            if at % 500 == 0 {
                assert_within(&vfs.statistics());
            }
        }
        let statistics = vfs.statistics();
        assert!(statistics.names.evicted > 10_000 && statistics.inodes.evicted > 10_000);
        drop(top);
        end(&vfs, &hostile);
    }
}

#[test]
fn churn_by_threads_stays_within_the_limits() {
    let seed = seed();
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    for config in caches() {
        let hostile = hostile();
        let vfs = vfs_over(&hostile, config);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let vfs = vfs.clone();
                scope.spawn(move || churn(&vfs, seed ^ thread, thread));
            }
        });
        assert_within(&vfs.statistics());
        end(&vfs, &hostile);
    }
}

fn churn(vfs: &Arc<Vfs>, seed: u64, thread: u64) {
    let (top, mut numbers) = (root(vfs), Numbers(seed));
    let mine = format!("thread-{thread}");
    top.create_directory(&mine, 0o755).unwrap();
    let path = |numbers: &mut Numbers| format!("{mine}/{}", numbers.below(300));
    let mut open = Vec::new();
    for at in 0..10_000 {
        let one = path(&mut numbers);
        // Any of these may fail; the test checks the state that they leave.
        let _ = match numbers.below(6) {
            0 => top.write_file(&one, "x"),
            1 => top.remove_file(&one),
            2 => top.rename(&one, path(&mut numbers), RenameMode::Replace),
            3 => {
                let opened = top.open(&one, OpenOptions::read());
                open.extend(opened);
                open.truncate(20);
                Ok(())
            }
            _ => top.stat(&one).map(drop),
        };
        if at % 1000 == 0 {
            assert_within(&vfs.statistics());
            open.clear();
        }
    }
}

/// Inodes held by users exceed the limit; when they are released, they do not stay there.
#[test]
fn inodes_in_use_may_exceed_the_limit_and_come_back() {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, tiny());
    let top = root(&vfs);
    let mut open = Vec::new();
    for at in 0..1000 {
        open.push(top.open(format!("{at}"), OpenOptions::write().create(0o600)).unwrap());
    }
    let statistics = vfs.statistics();
    assert!(statistics.inodes_active >= 1000, "{statistics:?}");
    drop(open);
    let statistics = vfs.statistics();
    assert!(statistics.inodes_active <= 2, "{statistics:?}");
    assert_metadata_within(&statistics);
    drop(top);
    end(&vfs, &hostile);
}

#[test]
fn pages_stay_within_their_budget() {
    let seed = seed();
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile().claiming(|can| can.caching = PageCaching::Core);
    let vfs = vfs_over(&hostile, with_room(2 << 20));
    let top = root(&vfs);
    for file in 0..8u8 {
        top.write_file(file.to_string(), vec![file; 1 << 20]).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (top, vfs) = (top.clone(), &vfs);
            scope.spawn(move || {
                let (mut numbers, mut buffer) = (Numbers(seed ^ thread), vec![0; 10_000]);
                for at in 0..3000 {
                    let file = numbers.below(8) as u8;
                    let open = top.open(file.to_string(), OpenOptions::read_write()).unwrap();
                    let offset = numbers.below(1 << 20);
                    match numbers.below(10) {
                        0 => open.write_all_at(offset.min(1 << 19), &[file; 5000]).unwrap(),
                        _ => {
                            let count = open.read_at(offset, &mut buffer).unwrap();
                            assert!(buffer[..count].iter().all(|&byte| byte == file));
                        }
                    }
                    if at % 100 == 0 {
                        assert_within(&vfs.statistics());
                    }
                }
            });
        }
    });
    // Alone, after an insertion, and without read-ahead: within it to the page.
    let open = top.open("0", OpenOptions::read()).unwrap();
    for at in (0..128).rev().map(|at| at * 8192) {
        open.read_at(at, &mut [0; 100]).unwrap();
        let statistics = vfs.statistics();
        assert!(statistics.pages.held <= room_for_pages(&statistics) + 4096, "{statistics:?}");
    }
    drop(open);
    let statistics = vfs.statistics();
    assert!(statistics.pages.hits > 0 && statistics.pages.evicted > 0, "{statistics:?}");
    drop(top);
    end(&vfs, &hostile);
    assert_eq!(vfs.statistics().pages.pages, 0);
}

/// Reads all of `into` from `offset` on.
fn read_all(file: &File, offset: u64, into: &mut [u8]) {
    let mut done = 0;
    while done < into.len() {
        let count = file.read_at(offset + done as u64, &mut into[done..]).unwrap();
        assert!(count > 0, "the end at {done}");
        done += count;
    }
}

/// Names and pages share the room; at no time both exceed their common limit, except by entries added since the last
/// look.
#[test]
fn names_and_pages_share_one_budget() {
    const ROOM: u64 = 8 << 20;
    const NAMES: u64 = 40_000;
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile().claiming(|can| can.caching = PageCaching::Core);
    let vfs = vfs_over(&hostile, with_room(ROOM));
    let top = root(&vfs);
    top.write_file("data", vec![1; 12 << 20]).unwrap();
    let data = top.open("data", OpenOptions::read()).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let within = |what: &str| {
        let budget = vfs.statistics().budget;
        let held = budget.metadata_bytes + budget.page_bytes;
        assert!(held <= ROOM + ROOM / 8, "{what}: {budget:?}");
        budget
    };
    for at in 0..NAMES {
        assert!(top.stat(format!("none-{at}")).is_err());
        top.write_file(format!("some-{}", at % (NAMES / 2)), "").unwrap();
    }
    let names_alone = within("names alone");
    assert!(names_alone.metadata_bytes > ROOM * 3 / 8, "{names_alone:?}");
    for at in 0..12 << 4 {
        read_all(&data, at << 16, &mut buffer);
        // Threads that insert pages evict names step by step.
        (0..64).for_each(|name| drop(top.stat(format!("new-{at}-{name}"))));
        within("pages come");
    }
    let both = within("both");
    assert!(both.page_bytes >= ROOM / 3 && both.metadata_bytes >= ROOM / 3, "{both:?}");
    drop((data, top));
    end(&vfs, &hostile);
}

/// Runs `test` of this binary again, in a separate process, unless this is that process.
fn passed_in_its_own_process(test: &str) -> bool {
    const INNER: &str = "UVFS_TEST_IN_ITS_OWN_PROCESS";
    if std::env::var_os(INNER).is_some() {
        return false;
    }
    let outcome = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("limits::{test}"), "--nocapture"])
        .env(INNER, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(outcome.status.success() && said.contains("1 passed"), "{said}{errors}");
    true
}

/// Bug: while a reader stayed in an epoch, page tables of files that were torn down still counted as held. The hand
/// evicted more and more names for them, without effect: of room for 5,334 names, 517 stayed.
#[test]
fn a_reader_that_stands_costs_no_names() {
    const NAMES: u64 = 10_000;
    // The reader would keep the garbage of other tests, too.
    if passed_in_its_own_process("a_reader_that_stands_costs_no_names") {
        return;
    }
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile().claiming(|can| can.caching = PageCaching::Core);
    let vfs = vfs_over(&hostile, VfsConfig { cache_bytes: 64 << 20, ..VfsConfig::default() });
    let top = root(&vfs);
    let mut byte = [0];
    for at in 0..NAMES {
        let name = format!("{at}");
        top.write_file(&name, "x").unwrap();
        read_all(&top.open(&name, OpenOptions::read()).unwrap(), 0, &mut byte);
    }
    let before = vfs.statistics();
    let each = before.budget.metadata_bytes / before.names.held;
    let (stands, done) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let guard = epoch::pin();
            stands.wait();
            // A thread that can evict nothing more waits for readers: this one must not stay for ever then.
            while !done.load(Relaxed) && vfs.statistics().names.held > NAMES / 64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(guard);
        });
        stands.wait();
        vfs.set_cache_bytes(MINIMUM_BYTES).unwrap();
        done.store(true, Relaxed);
    });
    let after = vfs.statistics();
    let room = after.budget.metadata_max_bytes / each;
    assert!(room < NAMES * 3 / 4, "some have to go: {before:?}");
    assert!(after.names.held > room * 7 / 8, "room for {room}: {after:?}");
    assert_metadata_within(&after);
    drop(top);
    end(&vfs, &hostile);
}

/// A lowered budget holds when the call returns; an impossible one is refused and changes nothing.
#[test]
fn a_lowered_budget_holds_at_once() {
    // Epochs belong to a process: a thread of another test without a processor keeps evicted memory from being counted
    // as freed, and more than necessary is evicted then.
    if passed_in_its_own_process("a_lowered_budget_holds_at_once") {
        return;
    }
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile().claiming(|can| can.caching = PageCaching::Core);
    let vfs = vfs_over(&hostile, VfsConfig { cache_bytes: 64 << 20, ..VfsConfig::default() });
    let top = root(&vfs);
    for at in 0..25_000 {
        top.write_file(format!("{at}"), "").unwrap();
    }
    top.write_file("data", vec![1; 12 << 20]).unwrap();
    let (data, mut read) = (top.open("data", OpenOptions::read()).unwrap(), vec![0; 12 << 20]);
    read_all(&data, 0, &mut read);
    let before = vfs.statistics().budget;
    assert!(before.metadata_bytes > 8 << 20 && before.page_bytes >= 12 << 20, "{before:?}");
    for bad in [0, MINIMUM_BYTES - 1] {
        let refused = vfs.set_cache_bytes(bad).unwrap_err().to_string();
        assert!(refused.contains("at least 8 MiB"), "{refused}");
    }
    assert_eq!(vfs.statistics().budget.limit_bytes, 64 << 20);
    assert_eq!(vfs.statistics().names.held, 25_001);
    vfs.set_cache_bytes(MINIMUM_BYTES).unwrap();
    let after = vfs.statistics().budget;
    assert_eq!(after.limit_bytes, MINIMUM_BYTES);
    let held = after.metadata_bytes + after.page_bytes;
    assert!(held <= MINIMUM_BYTES + SLACK, "{after:?}");
    assert!(after.page_bytes > 1 << 20 && after.metadata_bytes > 1 << 20, "not all: {after:?}");
    // It stays so, until it is raised again.
    for at in 0..25_000 {
        top.stat(format!("{at}")).unwrap();
    }
    assert_metadata_within(&vfs.statistics());
    vfs.set_cache_bytes(64 << 20).unwrap();
    for at in 0..25_000 {
        top.stat(format!("{at}")).unwrap();
    }
    assert!(vfs.statistics().names.held >= 25_000);
    drop((data, top));
    end(&vfs, &hostile);
}

/// Hits and misses add up to the requests, and misses to the calls of the store.
#[test]
fn statistics_agree_with_what_happened() {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let top = root(&vfs);
    for at in 0..10 {
        top.write_file(format!("{at}"), "x").unwrap();
    }
    vfs.forget_unused();
    hostile.follow(Plan::new());
    let before = vfs.statistics();
    for _ in 0..5 {
        for at in 0..20 {
            let _ = top.stat(format!("{at}"));
        }
    }
    let after = vfs.statistics();
    let misses = after.names.misses - before.names.misses;
    assert_eq!(misses, 20);
    assert_eq!(hostile.made(Call::Lookup) as u64, misses);
    assert_eq!(after.names.hits - before.names.hits, 4 * 10);
    assert_eq!(after.negative_hits - before.negative_hits, 4 * 10);
    let asked = after.inodes.misses - before.inodes.misses;
    assert_eq!(hostile.made(Call::Attributes) as u64, asked);
    assert_eq!((after.names.held, after.names.limit), (20, None));
    assert_eq!((after.inodes.held, after.inodes_active), (11, 1), "ten files and the root");
    assert_eq!(after.store, "memory");
}

/// Everything is returned, and the counters show it.
fn end(vfs: &Vfs, hostile: &Hostile) {
    assert_references_come_back(vfs, hostile);
    let statistics = vfs.statistics();
    assert_eq!((statistics.names.held, statistics.inodes.held), (0, 1), "the root stays");
}

/// A table of a frontend or a store: of the reported size, until it is asked to shrink.
#[derive(Default)]
struct Table {
    held: AtomicU64,
    asked: AtomicU64,
}

impl Tenant for Table {
    fn held_bytes(&self) -> u64 {
        self.held.load(Relaxed)
    }
    fn shrink(&self, bytes: u64) {
        self.asked.fetch_max(bytes, Relaxed);
    }
}

/// Bug: 300,000 files that a kernel held took 228 MB beside a budget of 16: the memory of the frontend and the store
/// for them was not counted. Now it counts like names, displaces them, and is asked to shrink when that is not enough.
#[test]
fn a_tenant_of_the_budget_is_counted_and_asked_to_shrink() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let hostile = hostile();
    let vfs = vfs_over(&hostile, with_room(256 << 10));
    let top = root(&vfs);
    for at in 0..3000 {
        top.write_file(format!("{at}"), "").unwrap();
    }
    let stat_all = || (0..3000).for_each(|at| _ = top.stat(format!("{at}")).unwrap());
    stat_all();
    let alone = vfs.statistics();
    let table = Arc::new(Table::default());
    let weak: Weak<Table> = Arc::downgrade(&table);
    vfs.join_budget(weak);
    // Most of the room; names are evicted for it.
    table.held.store(alone.budget.metadata_max_bytes / 4 * 3, Relaxed);
    stat_all();
    let shared = vfs.statistics();
    assert_eq!(shared.budget.tenant_bytes, table.held.load(Relaxed));
    assert!(shared.names.held < alone.names.held / 2, "{alone:?} {shared:?}");
    assert_metadata_within(&shared);
    // More than there is: no name is enough.
    table.held.store(1 << 20, Relaxed);
    stat_all();
    assert!(vfs.evict_excess() > 0);
    let asked = table.asked.load(Relaxed);
    assert!(asked >= (1 << 20) - (256 << 10), "{asked}");
    assert!(vfs.statistics().names.held < 100, "{:?}", vfs.statistics());
    // It is dropped, and the names have the room again.
    drop(table);
    stat_all();
    let after = vfs.statistics();
    assert_eq!((vfs.evict_excess(), after.budget.tenant_bytes), (0, 0));
    assert!(after.names.held > shared.names.held, "{shared:?} {after:?}");
    drop(top);
    end(&vfs, &hostile);
}
