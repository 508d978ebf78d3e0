//! The package in a clean Debian: installed, used and removed.
//!
//! # Boundary
//! Makes the system with debootstrap if it does not exist, and works on a copy of it in a separate mount namespace, so
//! that a trial changes neither the machine nor the next trial.
//!
//! # Why
//! A package that lacks a library, or leaves a file behind, works on the machine that made it. Weakness: no systemd
//! runs there, so the unit is only found, not started.

use crate::steps::step;
use crate::tree;
use std::path::Path;
use std::process::Command;

/// Where debootstrap takes packages from, and which system it makes.
const SUITE: &str = "bookworm";

/// The scripts that make the copy and run inside it.
const SCRIPTS: [&str; 2] = ["xtask/src/dist/trial.sh", "xtask/src/dist/used.sh"];

/// Tries `package` in the system in `folder`.
pub(super) fn run(folder: &Path, package: &Path) -> Result<(), String> {
    if !folder.join("usr/bin/dpkg").exists() {
        let mut debootstrap = Command::new("debootstrap");
        step(debootstrap.args(["--variant=minbase", SUITE]).arg(folder))?;
    }
    let [copy, used] = SCRIPTS.map(|script| tree::root().join(script));
    let mut trial = Command::new("unshare");
    trial.args(["--mount", "--propagation", "private", "sh"]).arg(copy);
    step(trial.arg(folder).arg(package).arg(used))?;
    println!("dist: installed, used and removed in {}", folder.display());
    Ok(())
}
