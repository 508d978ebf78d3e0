//! Floor: the garbage of removed files while one reader stands still.

use crate::shared::Turn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::epoch;
use uvfs_tests::{Watchdog, root};
use uvfs_vfs::{PagePolicy, Vfs, VfsConfig};

const ROOM: u64 = 16 << 20;
/// Garbage for which a thread that adds waits, and what it adds until it looks.
const MOST: u64 = ROOM / 8 + ROOM / 32;
/// Files of which each leaves a name, an inode and a page table.
const FILES: u64 = 3000;

/// Bug: a reader lost its processor within a walk, and another client made and removed files meanwhile: 17 MiB waited for the
/// reader, in a process of 32M.
#[test]
fn an_adder_waits_for_a_reader_that_stands_still() {
    let _turn = Turn::take();
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let pages = PagePolicy::WriteBack;
    let config = VfsConfig { cache_bytes: ROOM, overhead_bytes: 0, pages, ..VfsConfig::default() };
    let vfs = Vfs::new(MemoryBackend::new(MemoryConfig::default()).unwrap(), config).unwrap();
    let garbage = || vfs.statistics().budget.garbage_bytes;
    let (stands, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let guard = epoch::pin();
            stands.store(true, Relaxed);
            while garbage() <= ROOM / 8 {
                thread::yield_now();
            }
            let mut most = 0;
            for _ in 0..20_000 {
                thread::yield_now();
                most = most.max(garbage());
            }
            drop(guard);
            most
        });
        while !stands.load(Relaxed) {
            thread::yield_now();
        }
        let top = root(&vfs);
        while done.fetch_add(1, Relaxed) < FILES || !reader.is_finished() {
            let name = format!("file-{}", done.load(Relaxed));
            top.write_file(&name, "content").unwrap();
            top.remove_file(&name).unwrap();
        }
        let most = reader.join().unwrap();
        assert!(most > ROOM / 8 && most < MOST, "{most} bytes of garbage, bound {MOST}");
    });
}
