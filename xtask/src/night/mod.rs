//! `cargo xtask night`: what is too long for the gate or needs downloads, before a release.
//!
//! # Boundary
//! The list of steps, and the table of what ran. Each step is a command that also runs alone; the tests are elsewhere.
//!
//! # Why
//! The gate has fifteen minutes and must be as good without a network. A bare machine, real servers and ten thousand
//! crash states need hours or downloads, and were run by hand or not at all. A failed step does not stop the next one,
//! so that one night shows all faults. Weakness: steps run one after another, so the list takes most of a night.

use crate::steps::{cargo, judged, step, target, words};
use crate::tree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The Debian that the bare machine has.
const SUITE: &str = "bookworm";
/// A program of the bare machine runs as one of these.
const USERS: [&str; 2] = ["root", "user"];
/// The servers that buckets are tried on, with the commands that install them.
const SERVERS: &str = "xtask/src/night/servers.sh";

/// A step of the night.
struct Step {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result<(), String>,
}

const STEPS: &[Step] = &[
    Step {
        name: "bare",
        what: "README's two commands in a Debian with only gcc, as root and as a user (root, debootstrap)",
        run: bare,
    },
    Step {
        name: "outside",
        what: "lints of the packages outside the workspace, tests of the papers (downloads crates)",
        run: || again(&["outside"]),
    },
    Step {
        name: "servers",
        what: "a bucket on versitygw and moto, read and written by a mount (root; downloads them with go and pip)",
        run: servers,
    },
    Step {
        name: "crashes",
        what: "2,000 crash states of each workload on images",
        run: || {
            test(
                &["-p", "uvfs-ext-write", "--test", "e2fsprogs", "crash"],
                "UVFS_CRASH_STATES",
                "2000",
            )
        },
    },
    Step {
        name: "kills",
        what: "200 daemons killed at random moments",
        run: || test(&["-p", "uvfs-tests", "--test", "mount", "crash::"], "UVFS_KILLS", "200"),
    },
    Step {
        name: "cuts",
        what: "400 power cuts under the kernel's ext4 (root)",
        run: || again(&["cuts", "--cuts", "400"]),
    },
    Step {
        name: "mutations",
        what: "4,000 images with changed bits, beside e2fsck",
        run: || again(&["mutations", "--images", "4000"]),
    },
    Step {
        name: "twin",
        what: "a million operations on an image and on its twin in the kernel (root)",
        run: || {
            test(
                &["-p", "uvfs-tests", "--test", "image", "twin::"],
                "UVFS_TWIN_OPERATIONS",
                "1000000",
            )
        },
    },
    Step {
        name: "conformance",
        what: "the suites in full on every kind of mount (root)",
        run: || again(&["conformance", "--full"]),
    },
    Step {
        name: "stress",
        what: "histories and churn for 40 minutes",
        run: || again(&["stress", "--minutes", "40"]),
    },
    Step {
        name: "safety",
        what: "unit tests under the address and the thread sanitizer (nightly)",
        run: || again(&["safety"]),
    },
    Step {
        name: "fuzz",
        what: "each fuzz target for a minute (nightly, cargo-fuzz)",
        run: || again(&["fuzz"]),
    },
    Step {
        name: "package",
        what: "the Debian package, installed, used and removed in a clean Debian (root, debootstrap)",
        run: package,
    },
];

/// `cargo xtask night`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this step (may be repeated).
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// List the steps and run none.
    #[arg(long)]
    list: bool,
}

/// Runs the steps, prints what ran, and fails when one of them failed.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let steps = chosen(&options.only)?;
    if options.list {
        steps.iter().for_each(|step| println!("{:<12} {}", step.name, step.what));
        return Ok(());
    }
    let mut rows = Vec::new();
    for step in steps {
        println!("==== night: {}: {}", step.name, step.what);
        let began = Instant::now();
        let result = (step.run)();
        if let Err(why) = &result {
            println!("night: {}: {why}", step.name);
        }
        rows.push((step, began.elapsed().as_secs(), result));
    }
    println!("==== night: what ran");
    for (step, seconds, result) in &rows {
        let result = result.as_ref().map_or_else(|why| format!("FAILED: {why}"), |()| "ok".into());
        println!("{:<12} {seconds:>6} s  {result}", step.name);
    }
    let failed: Vec<_> =
        rows.iter().filter(|row| row.2.is_err()).map(|(step, ..)| step.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn chosen(only: &[String]) -> Result<Vec<&'static Step>, String> {
    let known = |name: &String| STEPS.iter().any(|step| step.name == name);
    if let Some(unknown) = only.iter().find(|name| !known(name)) {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        return Err(format!("no step `{unknown}`; there are {}", names.join(", ")));
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

/// Another verb of this program.
fn again(arguments: &[&str]) -> Result<(), String> {
    let this = std::env::current_exe().map_err(|error| format!("xtask's own path: {error}"))?;
    step(Command::new(this).args(arguments).current_dir(tree::root()))
}

/// A test in its long form, which `variable` asks for.
fn test(arguments: &[&str], variable: &str, value: &str) -> Result<(), String> {
    let mut test = cargo();
    test.arg("test").args(arguments).args(["--", "--nocapture"]);
    step(test.env(variable, value))
}

/// The Debian in target/night, made if it is not there.
fn debian() -> Result<PathBuf, String> {
    let system = target().join("night/debian");
    if !system.join("usr/bin/gcc").exists() {
        let _ = fs::remove_dir_all(&system);
        let folder = system.parent().unwrap_or(&system);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut debootstrap = Command::new("debootstrap");
        debootstrap.args(["--variant=minbase", "--include=gcc,libc6-dev", SUITE]);
        step(debootstrap.arg(&system))?;
    }
    Ok(system)
}

/// README's two commands on a bare machine.
fn bare() -> Result<(), String> {
    let system = debian()?;
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let output = output.map_err(|error| format!("rustc: {error}"))?;
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map_or_else(|| Path::new(&home).join(".cargo"), PathBuf::from);
    // Cargo asks the network for what it has not fetched, and the machine may have none.
    step(cargo().args(["fetch", "--locked"]))?;
    for user in USERS {
        let mut run = Command::new("unshare");
        run.args(["--mount", "--pid", "--fork", "--propagation", "private", "sh"]);
        run.arg(tree::root().join("xtask/src/night/bare.sh")).arg(&system).arg(tree::root());
        run.args([Path::new(&sysroot), &cargo_home]).arg(user);
        step(run.arg(target().join("night").join(user)))?;
    }
    Ok(())
}

/// Buckets on servers that others wrote.
fn servers() -> Result<(), String> {
    step(cargo().args(["build", "--package", "uvfs"]))?;
    let mut script = Command::new("sh");
    script.arg(tree::root().join(SERVERS)).arg(target().join("debug/uvfs"));
    step(script.arg(target().join("night/servers")))
}

/// The package for the processor of this machine.
fn package() -> Result<(), String> {
    let system = target().join("night/clean");
    let this = std::env::current_exe().map_err(|error| format!("xtask's own path: {error}"))?;
    let mut dist = Command::new(this);
    dist.current_dir(tree::root()).args(["dist", "--try-in"]).arg(&system);
    let status = dist.status();
    judged(&words(&dist), status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_step_is_refused_by_name_and_each_step_runs_alone() {
        let message = chosen(&["barren".into()]).err().unwrap_or_default();
        assert!(message.contains("no step `barren`; there are bare, "), "{message}");
        for step in STEPS {
            let alone = chosen(&[step.name.into()]).unwrap();
            assert_eq!(alone.iter().map(|step| step.name).collect::<Vec<_>>(), [step.name]);
        }
        assert_eq!(chosen(&[]).unwrap().len(), STEPS.len());
    }

    /// A step that names a test file must find it.
    #[test]
    fn the_scripts_are_there() {
        for script in ["xtask/src/night/bare.sh", SERVERS] {
            assert!(tree::root().join(script).is_file(), "{script}");
        }
    }
}
