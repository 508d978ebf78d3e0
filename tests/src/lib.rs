#![forbid(unsafe_code)]
//! Shared helpers of the tests of uvfs as a whole.
//!
//! # Boundary
//! Helpers only; the tests are in `tests/*.rs`, one file per floor, each with its own header. The
//! conformance suites next to them drive a mounted file system from outside.

/// The code of the tutorial, as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tutorials/backend.md")]
#[derive(Debug)]
pub struct BackendTutorial;

mod built;
pub mod cleaned;
pub mod history;
mod ledger;
mod listing;
pub mod objects;
pub mod paged;
pub mod queued;
pub mod s3;
mod snapshot;
pub mod stress;
pub mod versioned;
mod watchdog;

pub use built::built;
pub use ledger::Ledger;
pub use listing::{for_each_node, list_nodes};
pub use snapshot::{Snapshot, snapshot};
pub use watchdog::Watchdog;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::hostile::HostileBackend;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{Caller, Directory, InodeId, MINIMUM_BYTES, Result, Vfs, VfsConfig};

/// A memory store that misbehaves by plan.
pub type Hostile = HostileBackend<MemoryBackend>;

/// A new one, without faults.
pub fn hostile() -> Hostile {
    let memory = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..Default::default() });
    HostileBackend::new(memory.expect("the default limits are valid"))
}

/// A file system over it.
pub fn vfs_over(hostile: &Hostile, config: VfsConfig) -> Arc<Vfs> {
    Vfs::new(hostile.clone(), config).expect("the store is healthy and the settings are valid")
}

/// The root of a file system, for user 0.
pub fn root(vfs: &Arc<Vfs>) -> Directory {
    vfs.root_directory(Caller::root())
}

/// Caches with room for `bytes`, which may be less than any sensible setting: another tenant takes the rest of the
/// budget. Names and inodes always have half of it, pages at least 1 MiB.
pub fn with_room(bytes: u64) -> VfsConfig {
    let cache_bytes = MINIMUM_BYTES.max(bytes);
    VfsConfig { cache_bytes, overhead_bytes: cache_bytes - bytes, ..VfsConfig::default() }
}

/// The smallest caches there can be.
pub fn tiny() -> VfsConfig {
    with_room(16 << 10)
}

/// The errno of a result, 0 for success.
pub fn errno<T>(result: &Result<T>) -> i32 {
    result.as_ref().err().map_or(0, uvfs_vfs::Error::errno)
}

/// The contents of the store itself, seen through separate caches.
pub fn inner_snapshot(hostile: &Hostile) -> Snapshot {
    let honest = HostileBackend::over(hostile.inner().clone());
    snapshot(&root(&vfs_over(&honest, VfsConfig::default())))
}

/// Asserts that every reference is back but the root's one, and none came back twice.
///
/// # Panics
/// If not.
pub fn assert_references_exact(vfs: &Vfs, hostile: &Hostile) {
    vfs.forget_unused();
    assert_eq!(hostile.outstanding(), [(InodeId::ROOT, 1)].into(), "references not given back");
    assert_eq!(hostile.forgotten_too_often(), 0);
}

/// splitmix64: the same numbers for the same seed.
#[derive(Debug, Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }

    /// One of `choices`.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// The seed of this run: `UVFS_SEED`, or the time. Printed, so that a failure can be replayed.
pub fn seed() -> u64 {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let given = std::env::var("UVFS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| now().map_or(1, |time| time.as_nanos() as u64));
    println!("replay with UVFS_SEED={seed}");
    seed
}

/// Runs `unmount` of an unused mount. A child that another test has forked holds this process's open files until it
/// runs another program, so the kernel may return EBUSY for a moment.
///
/// # Panics
/// If it is busy for ten seconds, or cannot be unmounted.
pub fn unmount_idle(unmount: impl Fn() -> io::Result<()>) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match unmount() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done.unwrap(),
        }
    }
}
