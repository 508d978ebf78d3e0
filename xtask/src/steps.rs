//! The verbs that are lists of commands: check, tidy, model, test, outside, ci.
//!
//! # Boundary
//! Runs cargo and reports the first step that failed. The rules are elsewhere: lints in Cargo.toml and clippy.toml, our
//! own rules in [`crate::tidy`].
//!
//! # Why
//! One list in one place, so that the gate and a developer run the same words. Weakness: the checks run one after
//! another and stop at the first failure, so a run shows one kind of fault at a time.

use crate::programs::heard;
use crate::timing::{self, Running};
use crate::tree::{self, Tree};
use crate::{browser, conformance, locks, numbers, programs, skips, supply, tidy};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::{io, thread};

/// The packages that the workspace leaves out: they need many crates of rivals, nightly, or minutes for papers that are
/// seldom run again.
const OUTSIDE: [&str; 3] = ["bench-compare/Cargo.toml", "fuzz/Cargo.toml", PAPERS];
/// The packages with models: all whose code may have orderings that matter.
pub(crate) const MODELLED: [&str; 2] = ["uvfs-concurrent", "uvfs-containers"];
/// Published experiments; the gate checks only their format.
const PAPERS: &str = "bench-papers/Cargo.toml";
/// Set for all steps of the gate, if every test can run here.
static MUST_RUN: OnceLock<()> = OnceLock::new();

/// Formatting, lints, documentation, the lock document, tidy, licences, the oldest compiler.
pub(crate) fn check() -> Result<(), String> {
    step(cargo().args(["fmt", "--all", "--check"]))?;
    for manifest in OUTSIDE {
        step(cargo().args(["fmt", "--manifest-path", manifest, "--check"]))?;
    }
    lock_files()?;
    step(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut documentation = cargo();
    step(
        documentation.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    locks::compare()?;
    numbers::compare()?;
    tidy()?;
    supply::check()?;
    packages()?;
    // Only local packages: a gate that downloads is as good as the network.
    match supply::metadata(OUTSIDE[0]) {
        Some(_) => lint_outside(OUTSIDE[0])?,
        None => {
            skips::step(format_args!("{}: crates are missing; `cargo xtask outside`", OUTSIDE[0]))
        }
    }
    other_processor()?;
    oldest_compiler()
}

/// Fails if a workspace has a stale lock file. Those outside are built seldom, and one was found stale by a reader.
fn lock_files() -> Result<(), String> {
    for manifest in std::iter::once("Cargo.toml").chain(OUTSIDE) {
        let mut update = cargo();
        update.args(["update", "--workspace", "--locked", "--quiet", "--manifest-path", manifest]);
        let output = update.output().map_err(|error| format!("cargo update: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        match output.status.success() {
            true => println!("== {manifest}: its lock file is up to date"),
            false if errors.contains("--locked was passed") => {
                let remedy = format!("`cargo update --workspace --manifest-path {manifest}`");
                return Err(format!("{manifest}: its lock file is stale; {remedy}"));
            }
            // Rivals' crates, and no index to look them up in.
            false => skips::step(format_args!(
                "{manifest}: its lock file was not compared; no index of crates"
            )),
        }
    }
    Ok(())
}

/// Packages every crate that is published. A dependency for tests that was named by version once made a circle, so that
/// neither of two crates could be published first.
fn packages() -> Result<(), String> {
    let workspace = supply::metadata("Cargo.toml").ok_or("cargo metadata: no answer")?;
    let members = workspace["workspace_members"].as_array().map_or(&[][..], Vec::as_slice);
    let mut package = cargo();
    package.args([
        "package",
        "--workspace",
        "--no-verify",
        "--allow-dirty",
        "--offline",
        "--quiet",
    ]);
    for found in workspace["packages"].as_array().into_iter().flatten() {
        let private = found["publish"].as_array().is_some_and(Vec::is_empty);
        if let Some(name) =
            found["name"].as_str().filter(|_| private && members.contains(&found["id"]))
        {
            package.args(["--exclude", name]);
        }
    }
    step(&mut package)
}

/// The workspace for aarch64, if rustup has its library and the machine a C compiler for it (TLS has parts in C); the
/// analyser's runtime reports there that it is unsupported.
fn other_processor() -> Result<(), String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let installed = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let installed = installed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !installed.is_ok_and(|list| list.lines().any(|line| line == TARGET)) {
        skips::step(format_args!("{TARGET} is not checked; `rustup target add {TARGET}`"));
        return Ok(());
    }
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    if Command::new(COMPILER).arg("--version").output().is_err() {
        skips::step(format_args!(
            "{TARGET} is not checked without {COMPILER} (Debian: gcc-aarch64-linux-gnu)"
        ));
        return Ok(());
    }
    step(cargo().args(["check", "--workspace", "--all-targets", "--target", TARGET]))
}

/// Compiles and lints the packages outside the workspace and the mount tool without its features, and tests the papers, so
/// that a fault shows before their next use.
pub(crate) fn outside() -> Result<(), String> {
    OUTSIDE.into_iter().try_for_each(lint_outside)?;
    // The mount tool without its optional features.
    let lean = ["clippy", "-p", "uvfs", "--all-targets", "--no-default-features"];
    step(cargo().args(lean).args(["--", "-D", "warnings"]))?;
    let mut tests = cargo();
    tests.args(["test", "--locked", "--manifest-path", PAPERS]);
    step(tests.env("CARGO_TARGET_DIR", target().join("outside")))
}

fn lint_outside(manifest: &str) -> Result<(), String> {
    let mut clippy = cargo();
    clippy.args(["clippy", "--locked", "--manifest-path", manifest, "--all-targets"]);
    clippy.args(["--", "-D", "warnings"]);
    step(clippy.env("CARGO_TARGET_DIR", target().join("outside")))
}

/// The workspace with the compiler of `rust-version`, where rustup has it.
fn oldest_compiler() -> Result<(), String> {
    let manifest = tree::root().join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).map_err(|error| error.to_string())?;
    let version =
        manifest.split("rust-version = \"").nth(1).and_then(|rest| rest.split('"').next());
    let version = version.ok_or("Cargo.toml: no rust-version")?;
    let installed = Command::new("rustup").args(["toolchain", "list"]).output();
    let installed = installed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let listed = |line: &str| {
        line.starts_with(&format!("{version}-")) || line.starts_with(&format!("{version}.0-"))
    };
    if !installed.is_ok_and(|list| list.lines().any(listed)) {
        skips::step(format_args!("Rust {version}, the oldest that is promised, is not installed"));
        return Ok(());
    }
    // The cargo that runs us uses its own compiler, so this is rustup's.
    let mut check = Command::new("cargo");
    check.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTDOC").current_dir(tree::root());
    check.env("RUSTUP_TOOLCHAIN", version).env("CARGO_TARGET_DIR", target().join("oldest"));
    step(check.args(["check", "--workspace", "--all-targets"]))
}

/// Our own rules over the repository's files.
pub(crate) fn tidy() -> Result<(), String> {
    let faults = tidy::faults(&Tree::of_repository()?);
    for fault in &faults {
        println!("{fault}");
    }
    if faults.is_empty() {
        println!("tidy: nothing to say");
        return Ok(());
    }
    Err(format!("tidy: {} faults", faults.len()))
}

/// The loom models, in a target directory of their own: `--cfg loom` would rebuild everything else.
pub(crate) fn model() -> Result<(), String> {
    step(&mut models())
}

fn models() -> Command {
    let mut models = cargo();
    models.arg("test");
    for package in MODELLED {
        models.args(["-p", package]);
    }
    models.args(["--lib", "--profile", "model", "models"]);
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    models.env("LOOM_MAX_PREEMPTIONS", "3");
    models
}

/// The steps of the gate. The tests and the suites come last, so that their counts close the log.
pub(crate) fn ci() -> Result<(), String> {
    let gate = Running::start("the gate");
    match conformance::impossible() {
        Some(why) => println!("note: tests that mount, and the suites, are skipped: {why}"),
        // Here every test can run, so one that does not is a failure.
        None => MUST_RUN.set(()).unwrap_or_default(),
    }
    let browser = browser::install();
    let done = checks_and_models();
    // The tests are still to be built, and then it has to be there.
    let done = done.and_then(|()| tests_and_suites(MUST_RUN.get().is_some(), browser));
    let done = done.and_then(|()| if MUST_RUN.get().is_some() { skips::judge() } else { Ok(()) });
    gate.end();
    timing::summary();
    programs::flaky().iter().for_each(|line| println!("{line}"));
    done
}

/// Lints and models side by side: a processor that one of them leaves idle is the other's. They share no target folder.
fn checks_and_models() -> Result<(), String> {
    let running = Running::start("models, beside the checks");
    thread::scope(|scope| {
        let models = scope.spawn(|| {
            let mut lines = Vec::new();
            let status = heard(&mut models(), |line, _| lines.push(line.to_owned()));
            (lines, status)
        });
        let checked = check();
        let (lines, status) = models.join().map_err(|_| "the models' thread panicked")?;
        lines.iter().for_each(|line| println!("{}", String::from_utf8_lossy(line)));
        running.end();
        checked.and(judged("cargo xtask model", status))
    })
}

/// The tests of the workspace, with several programs at a time.
pub(crate) fn test() -> Result<(), String> {
    tests_and_suites(false, None)
}

/// The tools of the suites are installed while the tests are built, the `browser` is waited for, and the suites run beside the tests.
fn tests_and_suites(suites: bool, browser: Option<JoinHandle<()>>) -> Result<(), String> {
    let tools = thread::spawn(move || suites.then(|| conformance::install(false)));
    let programs = programs::built();
    tools.join().map_err(|_| "the installation of tools ended in a panic")?;
    if let Some(browser) = browser {
        browser.join().map_err(|_| "the installation of a browser ended in a panic")?;
    }
    let mut jobs = programs?;
    if suites {
        jobs.insert(0, programs::suites()?);
    }
    programs::run(jobs)
}

/// The cargo that runs us, started at the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or(OsString::from("cargo")));
    command.current_dir(tree::root());
    must_run(&mut command);
    command
}

/// Makes a test that cannot run a failure of `command`, if all can.
pub(crate) fn must_run(command: &mut Command) {
    if MUST_RUN.get().is_some() {
        command.env("UVFS_MUST_RUN", "1");
    }
}

/// Cargo's folder for built files.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => tree::root().join(directory),
        None => tree::root().join("target"),
    }
}

/// Prints the command, runs it, prints its time, and turns its failure into a message.
pub(crate) fn step(command: &mut Command) -> Result<(), String> {
    let words = words(command);
    let running = Running::start(&words);
    let status = command.status();
    running.end();
    judged(&words, status)
}

/// The command as a user would type it.
pub(crate) fn words(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    format!("{} {}", program.to_string_lossy(), words.join(" "))
}

/// A message, if the command failed.
pub(crate) fn judged(words: &str, status: io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{words}` failed ({status})")),
        Err(error) => Err(format!("`{words}` did not start: {error}")),
    }
}
