//! Builds the runtime that is loaded into programs, so that the crate can carry it within itself.
//!
//! A `cargo build` of its own, in a target folder of its own below `OUT_DIR`: cargo cannot pass a cdylib on as a
//! dependency on a stable toolchain, and the outer build's flags (a sanitizer, a coverage
//! counter, a wrapper) must not reach code that runs inside other programs. Where there is no runtime to build
//! (another machine than x86-64 Linux, the documentation service, a crate without its workspace), nothing
//! is embedded, and an attempt to run a program says so.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "uvfs-contention-runtime";
const PROFILE: &str = "contention-runtime";
const LIBRARY: &str = "libuvfs_contention.so";
/// A runtime that was built before, to be embedded as it is: for packagers, and while it does not build.
const READY: &str = "UVFS_CONTENTION_RUNTIME";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    println!("cargo::rerun-if-env-changed={READY}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let absent = reason_for_none(&here);
    let library = match &absent {
        Some(_) => None,
        None => Some(match env::var_os(READY) {
            Some(path) => {
                let path = fs::canonicalize(path).expect("UVFS_CONTENTION_RUNTIME names a file");
                println!("cargo::rerun-if-changed={}", path.display());
                path
            }
            None => build(&here, &out),
        }),
    };
    let text = match (library, absent) {
        (Some(path), _) => format!(
            "/// The runtime, or why there is none.\n\
             pub(crate) const RUNTIME: Result<&[u8], &str> = Ok(include_bytes!({:?}));\n",
            path.to_str().expect("a path of UTF-8")
        ),
        (None, reason) => format!(
            "/// The runtime, or why there is none.\n\
             pub(crate) const RUNTIME: Result<&[u8], &str> = Err({:?});\n",
            reason.unwrap_or_default()
        ),
    };
    fs::write(out.join("runtime.rs"), text).expect("OUT_DIR can be written");
}

/// Why no runtime is built, if none is.
fn reason_for_none(here: &Path) -> Option<String> {
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    if env::var_os("DOCS_RS").is_some() {
        return Some("it was built for documentation only".into());
    }
    if !is("CARGO_CFG_TARGET_ARCH", "x86_64")
        || !is("CARGO_CFG_TARGET_OS", "linux")
        || !is("CARGO_CFG_TARGET_ENV", "gnu")
    {
        return Some("the simulator runs programs on x86-64 Linux with glibc only".into());
    }
    let sources = here.join("../contention-runtime/Cargo.toml");
    (!sources.exists()).then(|| "it was built without the sources of the runtime".into())
}

/// Builds the runtime and gives its path.
fn build(here: &Path, out: &Path) -> PathBuf {
    let root = here.join("../..");
    for watched in [
        "crates/coherence/src",
        "crates/coherence/Cargo.toml",
        "crates/contention-runtime",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let target = out.join("runtime");
    // When the lock file was resolved, the registry's cache got all dependencies of a build; asking the
    // network is the second choice.
    let first = command(&root, &target, true).output().expect("cargo can be started");
    let done = if first.status.success() {
        first
    } else {
        command(&root, &target, false).output().expect("cargo can be started")
    };
    if !done.status.success() {
        println!("cargo::error=`{PACKAGE}` does not build; {READY}=FILE embeds one that is built");
        for line in String::from_utf8_lossy(&done.stderr).lines() {
            println!("cargo::error={line}");
        }
        std::process::exit(1);
    }
    let library =
        target.join(env::var("TARGET").expect("cargo sets it")).join(PROFILE).join(LIBRARY);
    assert!(library.exists(), "{} is not there after its build", library.display());
    library
}

fn command(root: &Path, target: &Path, offline: bool) -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        // CARGO_HOME and RUSTUP_* find the toolchain and the registry; the rest is the outer build's.
        let kept = matches!(text, "CARGO_HOME" | "CARGO_NET_OFFLINE" | "CARGO_HTTP_PROXY")
            || text.starts_with("CARGO_REGISTRIES_")
            || text.starts_with("CARGO_SOURCE_");
        let leaks = text.starts_with("CARGO")
            || text.starts_with("RUSTC")
            || text.starts_with("RUSTDOC")
            || text.starts_with("DEP_")
            || matches!(text, "RUSTFLAGS" | "TARGET" | "HOST" | "PROFILE" | "OPT_LEVEL" | "DEBUG")
            || matches!(text, "NUM_JOBS" | "OUT_DIR" | "LD_PRELOAD" | "CLIPPY_ARGS");
        if leaks && !kept {
            command.env_remove(&name);
        }
    }
    // Set, so that flags of configuration files do not reach it. With a name of its own in it, the loader
    // takes the preloaded library and the one that a program was linked with for the same.
    command.env("CARGO_ENCODED_RUSTFLAGS", format!("-Clink-arg=-Wl,-soname,{LIBRARY}"));
    command.args(["build", "--locked", "--quiet", "-p", PACKAGE, "--profile", PROFILE]);
    command.arg("--target").arg(env::var_os("TARGET").expect("cargo sets it"));
    command.arg("--target-dir").arg(target);
    command.args(["--config", &format!("profile.{PROFILE}.strip=\"debuginfo\"")]);
    if let Some(jobs) = env::var_os("NUM_JOBS") {
        command.arg("--jobs").arg(jobs);
    }
    if offline {
        command.arg("--offline");
    }
    command
}
