//! Random writes of whole pages, and `fsync`: by the kernel, and by uvfs.
//!
//! # Boundary
//! On the disk of the repository. uvfs serves a directory of the same disk and writes back, so the kernel's cache is
//! below it: it gains order, and pays for a second copy.
//!
//! # Why
//! The file has all its blocks before the clock starts, so that no file system's allocation is measured. Each page is
//! written once, in an order that all systems share; fresh files take turns. The kernel reads the content back
//! afterwards. Weakness: the disk's own cache of the last run is not dropped.

use super::cases::{Case, PAGE, Sizes};
use super::{KERNEL_DISK, OURS, QUARTER, Run, other};
use crate::report::Report;
use crate::report::Unit;
use crate::{cleanup, context};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_vfs::{Caller, MINIMUM_BYTES, OpenOptions, PagePolicy, SyncMode, Vfs, VfsConfig};

const SYSTEMS: [&str; 3] = [OURS, QUARTER, KERNEL_DISK];
const MIB: usize = 1 << 20;
/// Budget in files: as the kernel has the machine's memory, so that neither begins to write before `fsync`.
const AMPLE: u64 = 16;
/// Statfs's name of a file system that is memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Measures the case, if it is wanted.
pub(super) fn measure(run: &Run, wanted: &[Case], figures: &mut Report) -> io::Result<()> {
    if !wanted.contains(&Case::WriteBack) {
        return Ok(());
    }
    let name = Case::WriteBack.name(&run.sizes);
    run.progress(&name);
    let folder = folder()?;
    if rustix::fs::statfs(&folder)?.f_type as u64 == TMPFS_MAGIC {
        run.failed("everybody", &name, &format!("{} is no disk", folder.display()));
        return Ok(());
    }
    let order = shuffled(run.sizes.written_bytes / PAGE);
    let mut systems = SYSTEMS.to_vec();
    for round in 0..=run.rounds {
        for system in &systems {
            let seconds = once(system, &folder, &run.sizes, &order, round as u64)?;
            // The first round only brings the disk to where it will be.
            if round > 0 {
                figures.sample(&name, system, 1, Unit::Seconds, seconds);
            }
        }
        systems.rotate_left(1);
    }
    Ok(())
}

/// A folder of this run on the disk of the repository.
fn folder() -> io::Result<PathBuf> {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/uvfs-bench");
    let work = base.join(std::process::id().to_string()).join("disk");
    cleanup::sweep(&base);
    if let Some(own) = work.parent() {
        cleanup::making(own);
    }
    fs::create_dir_all(&work).map_err(context(work.display()))?;
    Ok(work)
}

/// Every number below `count` once, in the same disorder always.
fn shuffled(count: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at in (1..order.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(at, (state % (at as u64 + 1)) as usize);
    }
    order
}

/// The first bytes of page `index` in `round`, so that no earlier run's content can pass for it.
fn stamp(index: u64, round: u64) -> u64 {
    index | (round + 1) << 40
}

/// Seconds that `system` takes for all writes in `order` and an `fsync`.
fn once(system: &str, folder: &Path, sizes: &Sizes, order: &[u64], round: u64) -> io::Result<f64> {
    let path = folder.join("file");
    let file = File::options().create_new(true).read(true).write(true).open(&path)?;
    let zeros = vec![0; MIB];
    for offset in (0..sizes.written_bytes).step_by(MIB) {
        file.write_all_at(&zeros, offset)?;
    }
    file.sync_all()?;
    let took = match system {
        KERNEL_DISK => {
            timed(order, round, |offset, page| file.write_all_at(page, offset), || file.sync_all())
        }
        _ => ours(system, folder, sizes, order, round),
    }?;
    // Through the descriptor that only this check uses.
    check(&file, order.len() as u64, round)?;
    drop(file);
    fs::remove_file(path)?;
    Ok(took)
}

fn ours(system: &str, folder: &Path, sizes: &Sizes, order: &[u64], round: u64) -> io::Result<f64> {
    let cache_bytes = match system {
        QUARTER => (sizes.written_bytes / 4).max(MINIMUM_BYTES),
        _ => AMPLE * sizes.written_bytes,
    };
    let config = VfsConfig { cache_bytes, pages: PagePolicy::WriteBack, ..VfsConfig::default() };
    let backend = DirectoryBackend::open(folder, DirectoryConfig::default()).map_err(other)?;
    let vfs = Vfs::new(backend, config).map_err(other)?;
    let top = vfs.root_directory(Caller::root());
    let file = top.open("file", OpenOptions::read_write()).map_err(other)?;
    let write = |offset, page: &[u8]| file.write_all_at(offset, page).map_err(other);
    timed(order, round, write, || file.sync(SyncMode::All).map_err(other))
}

fn timed(
    order: &[u64],
    round: u64,
    write: impl Fn(u64, &[u8]) -> io::Result<()>,
    sync: impl FnOnce() -> io::Result<()>,
) -> io::Result<f64> {
    let mut page = [0xa5; PAGE as usize];
    let begin = Instant::now();
    for &index in order {
        page[..8].copy_from_slice(&stamp(index, round).to_le_bytes());
        write(index * PAGE, &page)?;
    }
    sync()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// Whether every page has been written.
fn check(file: &File, pages: u64, round: u64) -> io::Result<()> {
    let mut chunk = vec![0; MIB];
    for first in (0..pages).step_by(MIB / PAGE as usize) {
        file.read_exact_at(&mut chunk, first * PAGE)?;
        for (page, index) in chunk.chunks(PAGE as usize).zip(first..) {
            let is_right =
                page.starts_with(&stamp(index, round).to_le_bytes()) && page.ends_with(&[0xa5]);
            if !is_right {
                return Err(io::Error::other(format!(
                    "page {index} differs from the written data"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cases::TINY;
    use super::*;

    #[test]
    fn an_order_has_every_page_once_and_is_none() {
        let order = shuffled(1000);
        assert_eq!(order, shuffled(1000));
        assert!(!order.is_sorted());
        let mut sorted = order;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
    }

    #[test]
    fn all_systems_write_and_what_they_did_not_write_is_noticed() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-hit-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let order = shuffled(TINY.written_bytes / PAGE);
        for system in SYSTEMS {
            if system == KERNEL_DISK || rustix::process::geteuid().is_root() {
                assert!(once(system, &folder, &TINY, &order, 1).unwrap() > 0.0);
            }
        }
        let missing = once(KERNEL_DISK, &folder, &TINY, &order[1..], 1).unwrap_err();
        assert!(missing.to_string().contains(&format!("page {}", order[0])) || order[0] >= 2047);
        fs::remove_dir_all(&folder).unwrap();
    }
}
