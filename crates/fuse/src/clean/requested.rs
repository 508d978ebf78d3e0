//! Cleaning one directory of a live mount, for a client of the control socket.
//!
//! # Boundary
//! Turns a request into a directory of the mount. [`Bridge::clean`] does the cleaning.
//!
//! # Concurrency
//! Runs on the client's thread, which serves nothing else and holds no lock. It waits for the kernel, which may first
//! wait for the threads that serve.

use super::{Bridge, Cleaner, turns};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use uvfs_control::cause;
use uvfs_control::cleaned::{Cleaned, HostSource};
use uvfs_control::protocol::CleanRequest;
use uvfs_control::serve::resolve;
use uvfs_vfs::{Amount, CleanProgress, CleanReport, Dirty, Node, Tally, Vfs};

impl Cleaner {
    /// Carries out a request of the control socket. `source` is the host directory that the mount shows, if it shows
    /// one. For the rest see [`Cleaner::clean`].
    ///
    /// # Errors
    /// The reason, in words, if nothing was cleaned.
    pub fn carry_out(
        &self,
        source: Option<HostSource>,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String> {
        let bridge = self.0.upgrade().ok_or_else(|| cause(&turns::mount_ended()))?;
        carry_out(&bridge, source, request, progress)
    }
}

/// Carries out `request`.
///
/// # Errors
/// The reason if nothing was cleaned.
fn carry_out(
    bridge: &Bridge,
    source: Option<HostSource>,
    request: &CleanRequest,
    progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
) -> Result<Cleaned, String> {
    let vfs = &bridge.vfs;
    let wanted = &request.request;
    let path = wanted.directory.as_deref().unwrap_or(Path::new("/"));
    let directory = resolve(vfs, path)?;
    if request.dry_run {
        return Ok(Cleaned { source, ..resident(vfs, &directory) });
    }
    let dirty = if request.sync { Dirty::WriteFirst } else { Dirty::Skip };
    let cleaned = bridge
        .clean(&directory, wanted.what, dirty, progress)
        .map_err(|error| format!("{}; see the daemon's log", cause(&error)))?;
    Ok(Cleaned { source, ..cleaned })
}

/// Bytes and entries that are cached below `directory`.
fn resident(vfs: &Arc<Vfs>, directory: &Node) -> Cleaned {
    let resident = vfs.resident(directory);
    let of = |found: Amount| Tally { found, ..Tally::default() };
    let caches = CleanReport {
        names: of(resident.names),
        inodes: of(resident.inodes),
        pages: Tally { dirty: resident.dirty, ..of(resident.pages) },
        ..CleanReport::default()
    };
    Cleaned { caches, ..Cleaned::default() }
}
