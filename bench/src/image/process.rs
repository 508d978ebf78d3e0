//! An image in this process, without a kernel in between: the gain of a second thread.
//!
//! # Boundary
//! Opens the image as a store with separate caches for each sample, and asks for the attributes of its files by path.
//!
//! # Why
//! A mount's second client shares its cores with the daemon, so only this shows the caches' gain from a second thread.
//! *Cold* is an unused store: names, inodes and blocks come from the image, which is in the host's page cache. Each
//! thread has separate directories. Weakness: a virtual machine's two cores may be one core's threads.

use crate::client::together;
use std::io;
use std::path::Path;
use std::sync::Arc;
use uvfs_backends::image::{ImageBackend, ImageConfig};
use uvfs_ext::FileDevice;
use uvfs_vfs::{Caller, Vfs, VfsConfig};

/// Looks of a thread where all is there, for each file.
const WARM_ROUNDS: usize = 100;

/// Files a second, in thousands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) cold: f64,
    pub(super) warm: f64,
}

/// Attributes of `paths`, which are sorted, by so many threads of each its part; then again, all of them known.
pub(super) fn rates(image: &Path, paths: &[String], threads: usize) -> io::Result<Rates> {
    let backend = ImageBackend::open(Arc::new(FileDevice::open(image)?), ImageConfig::default());
    let vfs = backend
        .map_err(io::Error::other)
        .and_then(|backend| Vfs::new(backend, VfsConfig::default()).map_err(io::Error::other))?;
    let root = vfs.root_directory(Caller::root());
    let part = paths.len().div_ceil(threads);
    let look = |at: usize| -> io::Result<()> {
        let mut own = paths.iter().skip(at * part).take(part);
        own.try_for_each(|path| root.stat(path).map(drop)).map_err(io::Error::other)
    };
    let cold = together(threads, look)?;
    // A path is walked some times before it has its memo.
    (0..4).try_for_each(|_| together(threads, look).map(drop))?;
    let warm = together(threads, |at| (0..WARM_ROUNDS).try_for_each(|_| look(at)))?;
    let rate = |looks: usize, seconds: f64| looks as f64 / seconds / 1e3;
    Ok(Rates {
        cold: rate(paths.len(), cold.wall.as_secs_f64()),
        warm: rate(paths.len() * WARM_ROUNDS, warm.wall.as_secs_f64()),
    })
}
