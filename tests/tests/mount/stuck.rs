//! Floor: hostile backend, through the kernel. A store that does not answer, and the requests that must succeed beside
//! it.
//!
//! Bug: with 64 opens stuck in the store a cached read took 16 microseconds; with 70 no cached read returned at all:
//! reads always queued for the workers, and all users had 64 of those. So did the open of an already open file, and the
//! first write to one, before which the kernel asks for capabilities.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack.

use rustix::fs::Advice;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Hostile, Ledger, Watchdog, hostile, root, unmount_idle};
use uvfs_vfs::{
    Backend, Caller, FileRef, InodeId, Name, NewKind, NewNode, Opens, PageCaching, PagePolicy, Vfs,
    VfsConfig, Waits,
};

const USER: u32 = 65534;
/// More than one user has workers, readers included.
const STUCK: usize = 100;

/// A mounted store with a directory `slow`; lookups in it wait at `gate`.
struct Mounted {
    hostile: Hostile,
    gate: Gate,
    mount: Option<Mount>,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new(pages: PagePolicy) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let hostile = hostile().claiming(|can| {
            can.waits = Waits::Sometimes;
            can.opens = Opens::Tracked;
            can.caching = PageCaching::Core;
        });
        // In front of it, so that open files of the store are counted apart.
        let ledger = Ledger::new(hostile.clone());
        let vfs = Vfs::new(ledger, VfsConfig { pages, ..VfsConfig::default() }).unwrap();
        root(&vfs).write_file("hot", vec![7; 100_000]).unwrap();
        // Made behind the caches, which know all names of directories that were made through them.
        let (inner, caller) = (hostile.inner(), Caller::root());
        let make = |name: &str, kind, mode| {
            let (name, new) =
                (Name::new(name.as_bytes()).unwrap(), NewNode { kind, mode, umask: 0 });
            let made =
                inner.creation().unwrap().create(&caller, InodeId::ROOT, name, &new).unwrap();
            inner.inodes().forget(made.inode, 1);
            made.inode
        };
        let slow = make("slow", NewKind::Directory, 0o777);
        let free = make("free", NewKind::Regular, 0o644);
        let content = inner.data().write(&caller, FileRef::unopened(free), 0, &[7; 100_000]);
        assert_eq!(content.unwrap(), 100_000);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let gate = Gate::new();
        let opened = gate.clone();
        let rescue = move || {
            opened.open();
            drop(uvfs_fuse::unmount(&path, Unmount::Lazy));
        };
        let watchdog = Watchdog::with_rescue(Duration::from_secs(90), rescue);
        let options =
            MountOptions { readers: Some(2), allow_other: true, ..MountOptions::default() };
        let mount = Mount::start(vfs.clone(), directory.path(), options).unwrap();
        let stuck = Fault::Hold(Moment::Before, gate.clone());
        hostile.follow(Plan::new().when(On::call(Call::Lookup).inode(slow), stuck));
        Some(Self { hostile, gate, mount: Some(mount), directory, _watchdog: watchdog })
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs `work` while more requests of the calling user are stuck in the store than there are threads. If they are
    /// still stuck when it is done, it did not wait for them, even on a busy machine.
    fn beside_stuck(&self, work: impl FnOnce()) {
        let mount = self.mount.as_ref().unwrap();
        std::thread::scope(|scope| {
            for at in 0..STUCK {
                let path = self.path(format!("slow/{at}"));
                scope.spawn(move || assert!(fs::metadata(path).is_err()));
            }
            self.gate.wait_for(64);
            // All have come, and some of them wait.
            while mount.statistics().waiting < STUCK as u64 - 65 {
                assert!(self.gate.held() >= 64, "{:?}", mount.statistics());
                std::thread::yield_now();
            }
            work();
            assert!(self.gate.held() >= 64, "it ended after the stuck requests");
            self.gate.open();
        });
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.gate.open();
        self.hostile.behave();
        let Some(mount) = self.mount.take() else { return };
        if !std::thread::panicking() {
            unmount_idle(|| mount.unmount(Unmount::Idle));
            mount.wait();
        }
    }
}

/// The next read of it asks the mount.
fn forget_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

#[test]
fn what_is_cached_is_read_beside_a_stuck_store() {
    let Some(mounted) = Mounted::new(PagePolicy::WriteThrough) else { return };
    let file = File::open(mounted.path("hot")).unwrap();
    let mut into = vec![0; 100_000];
    file.read_exact_at(&mut into, 0).unwrap();
    let reads = || mounted.mount.as_ref().unwrap().statistics();
    let count = |name| reads().requests.iter().find(|one| one.request == name).unwrap().count;
    let before = count("read");
    mounted.beside_stuck(|| {
        for _ in 0..20 {
            forget_pages(&file);
            into.fill(0);
            file.read_exact_at(&mut into, 0).unwrap();
            assert!(into.iter().all(|&byte| byte == 7));
        }
    });
    assert!(count("read") >= before + 20, "the kernel's own pages had answered");
}

#[test]
fn what_is_open_is_opened_read_and_closed_beside_a_stuck_store() {
    let Some(mounted) = Mounted::new(PagePolicy::WriteThrough) else { return };
    let held = File::open(mounted.path("hot")).unwrap();
    held.read_exact_at(&mut [0; 100], 0).unwrap();
    // Reading has moved the access time, so the attributes are asked for again.
    held.metadata().unwrap();
    let opens = |mounted: &Mounted| mounted.hostile.made(Call::Open);
    let before = opens(&mounted);
    mounted.beside_stuck(|| {
        for _ in 0..20 {
            let file = File::open(mounted.path("hot")).unwrap();
            file.read_exact_at(&mut [0; 100], 0).unwrap();
        }
    });
    assert_eq!(opens(&mounted), before, "the store's open file served");
    drop(held);
}

#[test]
fn the_first_write_asks_nothing_of_a_stuck_store() {
    let Some(mounted) = Mounted::new(PagePolicy::WriteBack) else { return };
    // Its capabilities were not read yet; from the open on they are known to be absent.
    let file = File::options().write(true).open(mounted.path("hot")).unwrap();
    mounted.beside_stuck(|| {
        let missing = rustix::fs::fgetxattr(&file, "security.capability", &mut [0; 64]);
        assert_eq!(missing, Err(rustix::io::Errno::NODATA));
    });
}

#[test]
fn another_users_misses_go_on_beside_stuck_ones() {
    let Some(mounted) = Mounted::new(PagePolicy::WriteThrough) else { return };
    let mounted = Arc::new(mounted);
    let path = mounted.path("free");
    let mut read = None;
    mounted.beside_stuck(|| {
        let other = std::thread::spawn(move || {
            rustix::thread::set_thread_res_uid(None, rustix::fs::Uid::from_raw(USER), None)
                .unwrap();
            // Not open, not in the page cache: every step of it asks the store.
            fs::read(path).map(|content| content.len())
        });
        read = Some(other.join().unwrap());
    });
    assert_eq!(read.unwrap().unwrap(), 100_000);
}
