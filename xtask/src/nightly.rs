//! The verbs that need a nightly compiler: fuzz targets, and the unit tests under sanitizers.
//!
//! # Boundary
//! Runs tools and reports their results. Installs nothing: if a tool is missing it prints the command that installs it.
//! The targets are in `fuzz/`, with their README; `xtask/tsan-suppressions.txt` has the suppressions of the thread
//! sanitizer, each line with its reason.
//!
//! # Why
//! Each regime has a target directory of its own, or each would rebuild everything of the others. Weakness: the
//! standard library is not instrumented, so the thread sanitizer does not see the order of its locks; ours come from
//! `parking_lot`, which it does see.

use crate::steps::{cargo, step, target};
use crate::tree;
use std::process::Command;

/// The version that the documents name.
const CARGO_FUZZ: &str = "cargo install cargo-fuzz --version 0.13.2 --locked";
const TOOLCHAIN: &str = "rustup toolchain install nightly";
/// The crates with threads and without a process of their own: a sanitizer sees them whole.
const PACKAGES: [&str; 4] = ["uvfs-concurrent", "uvfs-containers", "uvfs-vfs", "uvfs-backends"];

/// `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct FuzzOptions {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Without nightly and libFuzzer: random inputs, none of which may panic, hang, or take 64 MiB.
    #[arg(long)]
    blind: bool,
    /// Only this target; without it, all of them in turn.
    target: Option<String>,
}

/// Runs the fuzz targets, each from its seeds and from the inputs that earlier runs kept.
pub(crate) fn fuzz(options: &FuzzOptions) -> Result<(), String> {
    if !options.blind {
        needs(&["fuzz", "--version"], "cargo-fuzz", CARGO_FUZZ)?;
    }
    let all = targets()?;
    let chosen: Vec<_> = match &options.target {
        None => all,
        Some(wanted) if all.contains(wanted) => vec![wanted.clone()],
        Some(wanted) => {
            return Err(format!("no fuzz target `{wanted}`; there are {}", all.join(", ")));
        }
    };
    for name in chosen {
        if options.blind {
            let mut run = cargo();
            run.args(["run", "--release", "--package", "uvfs-fuzz-targets", "--bin"]);
            step(run.args(["uvfs-fuzz-blind", &name, &options.seconds.to_string()]))?;
            continue;
        }
        let corpus = target().join("fuzz-corpus").join(&name);
        std::fs::create_dir_all(&corpus)
            .map_err(|error| format!("{}: {error}", corpus.display()))?;
        let mut run = nightly();
        run.args(["fuzz", "run", "--fuzz-dir", "fuzz", &name]).arg(corpus);
        run.args([&format!("fuzz/seeds/{name}"), "--", "-timeout=20", "-print_final_stats=1"]);
        run.arg(format!("-max_total_time={}", options.seconds));
        step(run.env("CARGO_TARGET_DIR", target().join("fuzz")))?;
    }
    Ok(())
}

/// The unit tests under the address sanitizer, then under the thread sanitizer.
pub(crate) fn safety() -> Result<(), String> {
    needs(&["--version"], "a nightly compiler", TOOLCHAIN)?;
    step(&mut sanitized("address", "-Zsanitizer=address"))?;
    // The standard library is not instrumented, which the second flag allows.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    let suppressions = tree::root().join("xtask/tsan-suppressions.txt");
    let options = format!("suppressions={}", suppressions.display());
    // A backtrace is printed under a lock of the standard library, and panics are tested for.
    let mut tests = sanitized("thread", flags);
    step(tests.env("TSAN_OPTIONS", options).env("RUST_BACKTRACE", "0"))
}

fn sanitized(name: &str, flags: &str) -> Command {
    let mut tests = nightly();
    tests.args(["test", "--lib"]);
    for package in PACKAGES {
        tests.args(["-p", package]);
    }
    // With a target named, build scripts and macros stay without instrumentation.
    tests.args(["--target", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)]);
    tests.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target().join(name));
    tests
}

/// The fuzz targets: those with seeds.
fn targets() -> Result<Vec<String>, String> {
    let seeds = tree::root().join("fuzz/seeds");
    let entries = std::fs::read_dir(&seeds).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| format!("{}: {error}", seeds.display()))?;
    let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    Ok(names)
}

/// Fails with `remedy` where `cargo ARGUMENTS` does not work on nightly.
fn needs(arguments: &[&str], what: &str, remedy: &str) -> Result<(), String> {
    let output = nightly().args(arguments).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(format!("{what} is not there; `{remedy}` installs it (`{TOOLCHAIN}` first)"))
}

/// Cargo of the nightly toolchain. The cargo that runs us uses its own toolchain only, so this is rustup's.
fn nightly() -> Command {
    let mut command = Command::new("cargo");
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC");
    command.env("RUSTUP_TOOLCHAIN", "nightly").current_dir(tree::root());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fuzz_target_has_seeds_and_every_seed_a_target() {
        let manifest = std::fs::read_to_string(tree::root().join("fuzz/Cargo.toml")).unwrap();
        let bins = manifest.split("[[bin]]").skip(1);
        let mut named: Vec<_> =
            bins.map(|bin| bin.split('"').nth(1).expect("a name").to_owned()).collect();
        named.sort();
        assert_eq!(targets().unwrap(), named);
    }

    #[test]
    fn an_unknown_target_is_refused_by_name_or_for_want_of_the_tool() {
        let options = FuzzOptions { seconds: 1, blind: false, target: Some("nothing".into()) };
        let message = fuzz(&options).unwrap_err();
        assert!(
            message.contains("no fuzz target `nothing`") || message.contains("cargo install"),
            "{message}"
        );
    }
}
