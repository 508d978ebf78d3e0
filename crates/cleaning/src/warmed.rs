//! The directory of a mount that is warmed or refreshed.
//!
//! # Boundary
//! Finds it like `uvfs drop`, has its names dropped, and asks its daemon for the store's requests. [`crate::warming`]
//! walks.

use super::instead;
use super::mounted::{Refused, Target};
use super::opener::Offered;
use crate::Failure;
use std::path::{Path, PathBuf};
use uvfs_client as client;
use uvfs_control::protocol::{CleanRequest, Request};
use uvfs_terminal::interrupt::Interrupt;
use uvfs_vfs::Clean;

/// A directory of a uvfs mount.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    target: Target,
}

impl Place {
    /// The path as the user gave it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// The directory `path` of a mount whose daemon answers.
///
/// # Errors
/// Why it is none.
pub(super) fn find(path: &Path) -> Result<Place, Failure> {
    let shown = path.display();
    let refused = |cause: &str| Failure::refused(format!("{shown}: {cause}"));
    let path = std::path::absolute(path)
        .map_err(|error| refused(&format!("{}; name a directory", crate::cause(&error))))?;
    let target = Target::find(&path, Offered::probe()).map_err(|error| match error {
        Refused::NotOpened(errno) => {
            let cause = crate::cause(&errno.into());
            refused(&format!("{cause}; {}", instead::remedy(&path, errno)))
        }
        Refused::Failure(failure) => failure,
    })?;
    let target = target.ok_or_else(|| refused("in no uvfs mount; `uvfs mounts` lists them"))?;
    target.check()?;
    Ok(Place { path, target })
}

/// The report of its daemon.
///
/// # Errors
/// If it does not answer.
pub(super) fn report(place: &Place) -> Result<serde_json::Value, Failure> {
    client::reach(place.target.mount())?.report(Request::Stat)
}

/// Drops the cached names and attributes in and below it, in the daemon and in the kernel.
///
/// # Errors
/// The reason if nothing was dropped.
pub(super) fn drop_names(place: &Place, interrupt: &Interrupt) -> Result<(), Failure> {
    let refused = |cause| Failure::refused(format!("{}: {cause}", place.path.display()));
    let request = place.target.request(Clean::Names).map_err(refused)?;
    let asked = CleanRequest { request, sync: false, dry_run: false };
    let dropped =
        client::reach(place.target.mount())?.clean(asked, &|_| (), &|| interrupt.is_set());
    dropped.map(drop).map_err(refused)
}
