//! The browser that tests the page of `uvfs web`, for the gate.
//!
//! # Boundary
//! Installs Debian's package if there is none, in parallel to other steps. `uvfs_browser` drives the browser; a test
//! without one reports that itself.
//!
//! # Why
//! It is 70 s of downloading, and needed last: so it runs while the checks compile. A gate without it is no failure,
//! like without any other package: the cause may be the network.

use crate::skips;
use crate::timing::Running;
use rustix::process::geteuid;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};

const PACKAGE: &str = "chromium";
/// Seconds that each of apt's commands may take.
const LIMIT: &str = "300";

/// Begins to install it, if it is missing and this machine is one where that can be done.
pub(crate) fn install() -> Option<JoinHandle<()>> {
    if uvfs_browser::installed().is_some() {
        return None;
    }
    if !geteuid().is_root() || Command::new("apt-get").arg("--version").output().is_err() {
        skips::step(format_args!("{PACKAGE} is missing, and this is not root on Debian"));
        return None;
    }
    Some(thread::spawn(|| {
        let running = Running::start("chromium, beside the rest");
        let installed = apt(&["install", "-y", "--no-install-recommends", PACKAGE])
            // The lists may be missing or old.
            || (apt(&["update"]) && apt(&["install", "-y", "--no-install-recommends", PACKAGE]));
        running.end();
        if !installed {
            skips::step(format_args!("{PACKAGE} could not be installed"));
        }
    }))
}

fn apt(arguments: &[&str]) -> bool {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT, "apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
