//! `uvfs image commit`: makes a mounted image stable now.

use crate::Failure;
use crate::mountinfo;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use uvfs_client as client;
use uvfs_control::protocol::Request;

/// A disk that has a gigabyte to write may take so long.
const LIMIT: Duration = Duration::from_secs(300);

/// Asks the daemon, and waits.
///
/// # Errors
/// The path is no mount, or the image could not be made stable.
pub(super) fn run(mountpoint: &Path) -> Result<ExitCode, Failure> {
    let mount = mountinfo::find(mountpoint)?;
    let reply = client::reach(&mount)?.ask(Request::Commit, LIMIT)?;
    if reply.ok {
        return Ok(ExitCode::SUCCESS);
    }
    let (place, cause) = (mount.mountpoint.display(), reply.error.unwrap_or_default());
    Err(Failure::refused(format!("{place}: {cause}")))
}
