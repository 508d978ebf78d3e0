//! Mounts whose requests come by io_uring, one queue for each core.
//!
//! The kernel's switch for it is off as a rule. These tests turn it on while they run, one after the other, and leave
//! it as it was.

use super::mount::Mounted;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Mount, MountOptions, Prepare, Transport, Unmount};
use uvfs_fuse_device::ring;
use uvfs_tests::{Watchdog, hostile, vfs_over};
use uvfs_vfs::{VfsConfig, Waits};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Slots of the queue of a store that may wait.
const SLOTS: usize = 128;

/// The kernel's switch as a test wants it, until this is dropped. The lock keeps other tests out, also of other programs.
pub(crate) struct Switch {
    before: String,
    _alone: File,
}

impl Drop for Switch {
    fn drop(&mut self) {
        fs::write(SWITCH, self.before.trim()).expect("it was written before");
    }
}

/// `None`, with a note, where the kernel has no such switch or nothing can be mounted.
pub(crate) fn switched(on: bool) -> Option<Switch> {
    if !uvfs_skip::can_mount() {
        return None;
    }
    let Ok(alone) = File::open(SWITCH) else {
        uvfs_skip::lacking("no FUSE over io_uring in this kernel");
        return None;
    };
    alone.lock().unwrap();
    let before = fs::read_to_string(SWITCH).unwrap();
    fs::write(SWITCH, if on { "Y" } else { "N" }).unwrap();
    Some(Switch { before, _alone: alone })
}

/// A mount by rings of a store that waits as `waits` says.
fn mounted(waits: Waits) -> Option<Mounted> {
    let options = MountOptions { transport: Transport::Ring, ..MountOptions::default() };
    let hostile = hostile().claiming(|can| can.waits = waits);
    let mounted = Mounted::exactly(hostile, VfsConfig::default(), options)?;
    assert!(mounted.mount().statistics().queues > 0);
    Some(mounted)
}

/// All that one program does with files, below `place`.
fn use_files(place: &Path) {
    fs::create_dir(place).unwrap();
    let large: Vec<u8> = (0..1_500_000_u32).map(|at| (at ^ at >> 9) as u8).collect();
    for round in 0..20 {
        let path = place.join(format!("file-{round}"));
        let mut file = File::create_new(&path).unwrap();
        file.write_all(b"begin").unwrap();
        file.write_all_at(&large, 4000).unwrap();
        drop(file);
        let mut read = Vec::new();
        File::open(&path).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), 1_504_000);
        assert!(read[..5] == *b"begin" && read[4000..] == large);
        let long = place.join("x".repeat(200));
        fs::rename(&path, &long).unwrap();
        fs::hard_link(&long, &path).unwrap();
        assert_eq!(fs::read_dir(place).unwrap().count(), 2);
        assert!(fs::metadata(place.join("none")).is_err());
        fs::remove_file(&long).unwrap();
        fs::remove_file(&path).unwrap();
    }
    let many = place.join("many");
    fs::create_dir(&many).unwrap();
    (0..500).for_each(|at| drop(File::create(many.join(format!("name-{at}"))).unwrap()));
    let listed: Vec<_> = fs::read_dir(&many).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(listed.len(), 500);
    assert!(listed.iter().all(|entry| entry.metadata().is_ok_and(|found| found.len() == 0)));
}

/// Hits are answered on the core's own thread, other requests by workers, and FORGET comes by the device: in the end
/// the kernel owes no lookup.
#[test]
fn files_are_used_by_many_programs() {
    let Some(_on) = switched(true) else { return };
    for waits in [Waits::Never, Waits::Sometimes] {
        let Some(mounted) = mounted(waits) else { return };
        std::thread::scope(|scope| {
            for at in 0..4 {
                let place = mounted.path(format!("program-{at}"));
                scope.spawn(move || use_files(&place));
            }
        });
        let statistics = mounted.mount().statistics();
        assert_eq!((statistics.readers, statistics.panics), (1, 0));
        assert_eq!(statistics.pooled == 0, waits == Waits::Never, "{statistics:?}");
        mounted.end();
    }
}

/// A core's thread must not wait: more requests are stuck than any queue had slots at first, and hits are answered.
#[test]
fn a_slow_store_never_delays_a_hit() {
    let Some(_on) = switched(true) else { return };
    let Some(mounted) = mounted(Waits::Sometimes) else { return };
    for at in 0..50 {
        mounted.root.write_file(format!("cached-{at}"), "x").unwrap();
        mounted.root.stat(format!("cached-{at}")).unwrap();
    }
    mounted.settle_notices();
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Lookup), hold));
    std::thread::scope(|scope| {
        for at in 0..100 {
            let path = mounted.path(format!("slow-{at}"));
            scope.spawn(move || assert!(fs::metadata(path).is_err()));
        }
        gate.wait_for(64);
        for at in 0..50 {
            let found = fs::metadata(mounted.path(format!("cached-{at}")));
            assert!(found.is_ok_and(|found| found.len() == 1));
        }
        assert!(gate.held() >= 64, "a hit waited for the store");
        gate.open();
    });
    mounted.end();
}

/// Bug: a queue whose slots all had requests that wait had none left to the kernel, took that for the end of the mount,
/// and ended. The mount hung for good.
#[test]
fn a_queue_without_a_free_slot_serves_on() {
    let Some(_on) = switched(true) else { return };
    let Some(mounted) = mounted(Waits::Sometimes) else { return };
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Lookup), hold));
    // The kernel puts all of them into the queue of the first core.
    let mut core = rustix::thread::CpuSet::new();
    core.set(0);
    let taken = std::thread::scope(|scope| {
        for at in 0..SLOTS + 20 {
            let path = mounted.path(format!("slow-{at}"));
            scope.spawn(move || {
                rustix::thread::sched_setaffinity(None, &core).unwrap();
                assert!(fs::metadata(path).is_err());
            });
        }
        let under_way = || gate.held() + mounted.mount().statistics().waiting as usize;
        let taken = super::mount::eventually(|| under_way() >= SLOTS);
        gate.open();
        taken
    });
    assert!(taken, "{:?}", mounted.mount().statistics());
    mounted.end();
}

/// Programs use the mount while it is taken away: each gets an answer or an error, and the session ends.
#[test]
fn it_is_unmounted_under_load() {
    let Some(_on) = switched(true) else { return };
    let Some(mounted) = mounted(Waits::Sometimes) else { return };
    let busy = std::sync::Barrier::new(5);
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (path, busy) = (mounted.path(format!("of-{at}")), &busy);
            scope.spawn(move || {
                busy.wait();
                // Ends when the name is no more that of the mount.
                while fs::write(&path, "text").is_ok() && fs::read(&path).is_ok() {
                    let done = fs::remove_file(&path).is_err();
                    if done || !super::mount::mounted(path.parent().unwrap()) {
                        break;
                    }
                }
            });
        }
        busy.wait();
        mounted.mount().unmount(Unmount::Lazy).unwrap();
    });
    mounted.mount().wait();
    assert!(mounted.mount().ended());
}

/// A kernel that offers no rings.
#[test]
fn without_rings_the_device_serves_and_a_demand_for_rings_is_refused() {
    let Some(_off) = switched(false) else { return };
    let hostile = hostile().claiming(|can| can.waits = Waits::Never);
    let at = tempfile::tempdir().unwrap();
    let options = |transport| MountOptions { transport, ..MountOptions::default() };
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let refused = Mount::start(vfs.clone(), at.path(), options(Transport::Ring)).unwrap_err();
    assert!(refused.to_string().contains("enable_uring"), "{refused}");
    assert!(!super::mount::mounted(at.path()));
    let mount = Mount::start(vfs, at.path(), options(Transport::Auto)).unwrap();
    assert_eq!(mount.statistics().queues, 0);
    fs::write(at.path().join("file"), "text").unwrap();
}

/// Has the kernel refuse `call` with `errno` to all serving threads, where its argument `at` is at least `least`.
fn refusing(call: libc::c_long, (at, least): (u8, u64), errno: i32) -> Option<Prepare> {
    let argument = SeccompCondition::new(at, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, least);
    let rule = SeccompRule::new(vec![argument.unwrap()]).unwrap();
    let refuse = SeccompAction::Errno(errno as u32);
    let target = std::env::consts::ARCH.try_into().unwrap();
    let rules = BTreeMap::from([(call, vec![rule])]);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, target).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    Some(Box::new(move || seccompiler::apply_filter(&filter).map_err(std::io::Error::other)))
}

/// The argument of io_uring_enter(2) with the completions that it waits for.
const WAITED_FOR: u8 = 2;

fn prompt_vfs() -> std::sync::Arc<uvfs_vfs::Vfs> {
    vfs_over(&hostile().claiming(|can| can.waits = Waits::Never), VfsConfig::default())
}

/// Aborts the connection at `path` if the test hangs.
fn watched(path: &Path) -> Watchdog {
    let path = path.to_owned();
    let rescue = move || super::mount::abort_and_unmount(&path);
    Watchdog::with_rescue(std::time::Duration::from_secs(90), rescue)
}

/// Bug: the kernel refused the first io_uring_enter(2) of a ring. The mount hung for every program that looked at it,
/// and could not be unmounted: the kernel held all requests back until the ring was registered.
#[test]
fn a_ring_that_is_refused_makes_the_device_serve() {
    let Some(_on) = switched(true) else { return };
    let at = tempfile::tempdir().unwrap();
    let _watchdog = watched(at.path());
    for errno in [libc::EOPNOTSUPP, libc::ENOMEM, libc::EIO] {
        let options = |transport| MountOptions {
            transport,
            prepare_thread: refusing(libc::SYS_io_uring_enter, (WAITED_FOR, 0), errno),
            ..MountOptions::default()
        };
        let mount = Mount::start(prompt_vfs(), at.path(), options(Transport::Auto)).unwrap();
        assert_eq!(mount.statistics().queues, 0);
        use_files(&at.path().join("files"));
        mount.unmount(Unmount::Lazy).unwrap();
        mount.wait();
        assert!(!mount.failed());
        let refused = Mount::start(prompt_vfs(), at.path(), options(Transport::Ring)).unwrap_err();
        assert_eq!(refused.cause().raw_os_error(), Some(errno), "{refused}");
        assert!(!super::mount::mounted(at.path()));
    }
}

/// A session that fails must fail its callers, too: they hung until the daemon was killed.
fn fails_with_its_callers(options: MountOptions) {
    let at = tempfile::tempdir().unwrap();
    let _watchdog = watched(at.path());
    let mount = Mount::start(prompt_vfs(), at.path(), options).unwrap();
    let root = rustix::fs::open(at.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    // The kernel asks the server for totals each time.
    let totals = root.map(rustix::fs::fstatfs);
    assert!(!matches!(totals, Ok(Ok(_))), "{totals:?}");
    mount.wait();
    assert!(mount.failed());
    mount.unmount(Unmount::Idle).unwrap();
    assert!(!super::mount::mounted(at.path()));
}

/// Bug: so it was with a ring that failed while it served.
#[test]
fn a_ring_that_fails_while_it_serves_fails_its_callers() {
    let Some(_on) = switched(true) else { return };
    for errno in [libc::ENOMEM, libc::EIO] {
        let prepare_thread = refusing(libc::SYS_io_uring_enter, (WAITED_FOR, 1), errno);
        fails_with_its_callers(MountOptions { prepare_thread, ..MountOptions::default() });
    }
}

/// Bug: the first reader that failed was joined last, or never, and the others served on.
#[test]
fn a_device_that_cannot_be_read_fails_its_callers() {
    let Some(_off) = switched(false) else { return };
    const LARGE: u64 = 1 << 20;
    let prepare_thread = refusing(libc::SYS_read, (2, LARGE), libc::EIO);
    fails_with_its_callers(MountOptions { prepare_thread, ..MountOptions::default() });
}

/// Bug: a slot kept the pages of the largest write that it had ever had: 256 writers of 1 MiB left 42 MiB resident beside
/// a budget of 16.
#[test]
fn a_ring_returns_the_pages_of_large_writes() {
    const WRITERS: usize = 40;
    const WRITE: u64 = 256 << 10;
    const KEPT: u64 = 4 << 20;
    let Some(_on) = switched(true) else { return };
    let Some(mounted) = mounted(Waits::Sometimes) else { return };
    let before = ring::held_bytes();
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Write), hold));
    std::thread::scope(|scope| {
        for at in 0..WRITERS {
            let path = mounted.path(format!("large-{at}"));
            scope.spawn(move || fs::write(path, vec![1; WRITE as usize]).unwrap());
        }
        gate.wait_for(WRITERS);
        let in_use = ring::held_bytes() - before;
        assert!(in_use >= WRITERS as u64 * WRITE, "{in_use} bytes are in use");
        gate.open();
    });
    // Each slot may keep the page of its last answer.
    let answers = (2 * SLOTS as u64) << 12;
    let kept = ring::held_bytes() - before;
    assert!(kept <= KEPT + answers, "{kept} bytes are kept");
    mounted.end();
}

/// A small budget has fewer slots, so that requests in flight stay within a part of it.
#[test]
fn a_small_budget_has_few_slots() {
    let Some(_on) = switched(true) else { return };
    let options = MountOptions { transport: Transport::Ring, ..MountOptions::default() };
    let config = VfsConfig { cache_bytes: 16 << 20, ..VfsConfig::default() };
    let hostile = hostile().claiming(|can| can.waits = Waits::Sometimes);
    let Some(mounted) = Mounted::exactly(hostile, config, options) else { return };
    let queues = mounted.mount().statistics().queues;
    let slots = (4 << 20) / queues / ((256 << 10) + 4096);
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Write), hold));
    let before = ring::held_bytes();
    let mut core = rustix::thread::CpuSet::new();
    core.set(0);
    std::thread::scope(|scope| {
        for at in 0..64 {
            let path = mounted.path(format!("large-{at}"));
            scope.spawn(move || {
                rustix::thread::sched_setaffinity(None, &core).unwrap();
                // The budget may refuse some.
                let _ = fs::write(path, vec![1; 256 << 10]);
            });
        }
        gate.wait_for(1);
        let in_use = || ring::held_bytes() - before;
        let most = slots.max(8) as u64 * queues as u64 * (256 << 10);
        for _ in 0..100 {
            assert!(in_use() <= most, "{} bytes are in use, {most} allowed", in_use());
            std::thread::yield_now();
        }
        gate.open();
    });
    mounted.end();
}
