//! The verbs that are lists of commands: check, tidy, model, outside, ci.
//!
//! # Boundary
//! Runs cargo and reports the first step that failed. What the steps demand is written elsewhere:
//! lints in Cargo.toml and clippy.toml, our own rules in [`crate::tidy`].
//!
//! # Why
//! One list in one place, so that the gate and a developer run the same words. Weakness: the steps
//! run one after another and stop at the first failure, so a run shows one kind of fault at a time.

use crate::timing::{self, Running, TestTimes};
use crate::tree::{self, Tree};
use crate::{conformance, locks, supply, tidy};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// The packages that the workspace leaves out: one needs nightly, the other many crates of rivals.
const OUTSIDE: [&str; 2] = ["bench-compare/Cargo.toml", "fuzz/Cargo.toml"];
/// Set for everything that the gate runs, where nothing stands in the way of a test.
static MUST_RUN: OnceLock<()> = OnceLock::new();

/// Formatting, lints, documentation, the lock document, tidy, licences, the oldest compiler.
pub(crate) fn check() -> Result<(), String> {
    step(cargo().args(["fmt", "--all", "--check"]))?;
    for manifest in OUTSIDE {
        step(cargo().args(["fmt", "--manifest-path", manifest, "--check"]))?;
    }
    step(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    let mut documentation = cargo();
    step(
        documentation.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    locks::compare()?;
    tidy()?;
    supply::check()?;
    // Only what is here already: a gate that downloads is as good as the network.
    match supply::metadata(OUTSIDE[0]) {
        Some(_) => lint_outside(OUTSIDE[0])?,
        None => println!("note: {}: crates are missing; `cargo xtask outside`", OUTSIDE[0]),
    }
    other_processor()?;
    oldest_compiler()
}

/// The workspace for aarch64, where rustup has its library and the machine a compiler of C for it (TLS has parts in C); the
/// analyser's runtime says there that it is not.
fn other_processor() -> Result<(), String> {
    const TARGET: &str = "aarch64-unknown-linux-gnu";
    let installed = Command::new("rustup").args(["target", "list", "--installed"]).output();
    let installed = installed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !installed.is_ok_and(|list| list.lines().any(|line| line == TARGET)) {
        println!("note: {TARGET} is not checked; `rustup target add {TARGET}`");
        return Ok(());
    }
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    if Command::new(COMPILER).arg("--version").output().is_err() {
        println!(
            "note: {TARGET} is not checked without {COMPILER} (Debian: gcc-aarch64-linux-gnu)"
        );
        return Ok(());
    }
    step(cargo().args(["check", "--workspace", "--all-targets", "--target", TARGET]))
}

/// Compiles and lints what is not in the workspace, so that it is found broken before somebody needs it.
pub(crate) fn outside() -> Result<(), String> {
    OUTSIDE.into_iter().try_for_each(lint_outside)
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
        println!("note: Rust {version}, the oldest that is promised, is not installed");
        return Ok(());
    }
    // The cargo that runs us stands for its own compiler, so this is rustup's.
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
    let mut models = cargo();
    models.args(["test", "-p", "uvfs-concurrent", "--lib", "--profile", "model", "models"]);
    models.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
    models.env("LOOM_MAX_PREEMPTIONS", "3");
    step(&mut models)
}

/// What the gate asks. The tests and the suites come last, so that their counts close the log.
pub(crate) fn ci() -> Result<(), String> {
    let gate = Running::start("the gate");
    match conformance::impossible() {
        Some(why) => println!("note: tests that mount, and the suites, are skipped: {why}"),
        // Here every test can run, so one that does not is a failure.
        None => MUST_RUN.set(()).unwrap_or_default(),
    }
    let done = check().and_then(|()| model()).and_then(|()| {
        // The tools of the suites are built while the tests are.
        let runs = MUST_RUN.get().is_some();
        let tools = thread::spawn(move || {
            if runs { conformance::install(false) } else { conformance::Score::default() }
        });
        let tests = tests();
        let tools = tools.join().map_err(|_| "the installation of tools ended in a panic")?;
        tests?;
        let running = Running::start("conformance --quick");
        // What the tests have built; a build of its own would resolve to other features and begin anew.
        let binary = target().join("debug/uvfs");
        let done = conformance::run_with(&conformance::Options::quick(binary), tools);
        running.end();
        done
    });
    gate.end();
    timing::summary();
    done
}

/// The cargo that runs us, started at the repository's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or(OsString::from("cargo")));
    command.current_dir(tree::root());
    if MUST_RUN.get().is_some() {
        command.env("UVFS_MUST_RUN", "1");
    }
    command
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => tree::root().join(directory),
        None => tree::root().join("target"),
    }
}

/// Says the command, runs it, says what it took, and turns its failure into a message.
pub(crate) fn step(command: &mut Command) -> Result<(), String> {
    let words = words(command);
    let running = Running::start(&words);
    let status = command.status();
    running.end();
    judged(&words, status)
}

/// Every test of the workspace, with what each took.
fn tests() -> Result<(), String> {
    let mut tests = cargo();
    tests.args(["test", "--workspace"]);
    let edges = locks::directory();
    // What runs before left there was of other code.
    let _ = std::fs::remove_dir_all(&edges);
    std::fs::create_dir_all(&edges).map_err(|error| format!("{}: {error}", edges.display()))?;
    tests.env(locks::VARIABLE, &edges);
    let words = words(&tests);
    let running = Running::start(&words);
    let mut times = TestTimes::new(threads());
    let mut skips = Vec::new();
    let status = forwarded(&mut tests, |line, at| {
        times.line(line, at);
        // Behind the name of its test, where one test runs at a time.
        skips.extend(line.find("skipped: ").map(|at| line[at..].trim().to_owned()));
    });
    running.end();
    times.slowest(10).iter().for_each(|line| println!("{line}"));
    println!("skips: {}", skips.len());
    skips.iter().for_each(|line| println!("{line}"));
    // Told and no failure: which edges a run sees depends on its schedule.
    for edge in locks::unknown(&edges)? {
        println!("note: docs/locking.md lacks an edge, {edge}; `cargo xtask locks` adds it");
    }
    judged(&words, status)
}

/// How long what was said last may take to come when the command has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs `command` and passes on what it says; `look` sees each line and when it came.
fn forwarded(
    command: &mut Command,
    mut look: impl FnMut(&str, Duration),
) -> io::Result<ExitStatus> {
    // One pipe for both, or the names of the test programs would come out of turn.
    let (said, output) = io::pipe()?;
    command.stdout(output.try_clone()?).stderr(output);
    let start = Instant::now();
    let mut child = command.spawn()?;
    // Our own ends of the pipe, or it would never be at its end.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    // A thread of its own reads: a process that a test left behind holds the pipe open for ever.
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut status = None;
    loop {
        let wait = if status.is_some() { LAST_WORDS } else { Duration::from_millis(100) };
        match lines.recv_timeout(wait) {
            Ok(mut line) => {
                look(&String::from_utf8_lossy(&line), start.elapsed());
                line.push(b'\n');
                let mut out = io::stdout().lock();
                out.write_all(&line).and_then(|()| out.flush())?;
            }
            Err(RecvTimeoutError::Timeout) if status.is_none() => status = child.try_wait()?,
            Err(_) => return status.map_or_else(|| child.wait(), Ok),
        }
    }
}

/// How many tests of one program run at a time.
fn threads() -> usize {
    let said = std::env::var("RUST_TEST_THREADS").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from))
}

fn words(command: &Command) -> String {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    format!("cargo {}", words.join(" "))
}

fn judged(words: &str, status: io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{words}` failed ({status})")),
        Err(error) => Err(format!("`{words}` did not start: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_outputs_come_in_turn_and_the_pipe_ends_with_the_command() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; echo three; exit 3"]);
        let mut lines = Vec::new();
        let status = forwarded(&mut command, |line, _| lines.push(line.trim().to_owned())).unwrap();
        assert_eq!(
            (status.code(), lines),
            (Some(3), vec!["one".into(), "two".into(), "three".into()])
        );
    }

    #[test]
    fn a_process_that_is_left_behind_does_not_hold_the_gate() {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; sleep 60 & echo $!"]);
        let mut lines = Vec::new();
        let status = forwarded(&mut command, |line, _| lines.push(line.trim().to_owned())).unwrap();
        assert!(status.success() && lines.len() == 2 && lines[0] == "one", "{lines:?}");
        assert!(start.elapsed() < Duration::from_secs(50), "it was waited for");
        let left = lines[1].parse().ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(left.unwrap(), rustix::process::Signal::KILL).unwrap();
    }
}
