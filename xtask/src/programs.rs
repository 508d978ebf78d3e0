//! The workspace's tests, with several of their programs side by side.
//!
//! # Boundary
//! Has cargo build the test programs, runs each like `cargo test` (same directory, same variables), and prints its
//! output when it has ended, so that the log looks like `cargo test`'s. Tests of the documentation are one program
//! more, run by cargo. Knows nothing of a program's tests.
//!
//! # Concurrency
//! One thread for each place takes programs from a list; the calling thread prints. The output of a running program is
//! not mixed with others.
//!
//! # Why
//! `cargo test` runs one program at a time, and a program that waits (for a mount, for a tested timeout) leaves
//! processors idle: two programs took a third less time than one after the other. A failing program no longer hides
//! later ones. Weakness: tests that depend on the machine's speed would see each other's load, so none should.

use crate::steps::{self, cargo};
use crate::timing::{Running, TestTimes};
use crate::{failures, locks, skips, tree};
use serde_json::Value;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Test programs of many seconds, which begin first: one that began last would run on alone.
const LONGEST: &[&str] =
    &["known", "ends", "command", "pages", "names", "documents", "storm", "mount"];
/// The time after which running programs are listed.
const PATIENCE: Duration = Duration::from_secs(60);

/// See [`flaky`].
static FLAKY: OnceLock<Vec<String>> = OnceLock::new();

/// A test program that cargo has built.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// Name of the target in cargo's form: `walk`, `uvfs_vfs`.
    target: String,
    /// In cargo's form: `tests/walk.rs`, `unittests src/lib.rs`.
    source: String,
    file: PathBuf,
    package: PathBuf,
}

impl Program {
    /// The program in one of cargo's messages.
    fn of_message(message: &Value) -> Option<Self> {
        let built = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let file = message["executable"].as_str().filter(|_| built)?;
        let package = Path::new(message["manifest_path"].as_str()?).parent()?;
        let source = Path::new(message["target"]["src_path"].as_str()?);
        let source = source.strip_prefix(package).unwrap_or(source).display();
        let unit = message["target"]["kind"].as_array()?.iter().all(|kind| kind != "test");
        Some(Self {
            target: message["target"]["name"].as_str()?.to_owned(),
            source: if unit { format!("unittests {source}") } else { source.to_string() },
            file: file.into(),
            package: package.to_owned(),
        })
    }

    /// The command by which `cargo test` runs it.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }

    /// The line by which `cargo test` announces it.
    fn title(&self) -> String {
        let file = self.file.strip_prefix(crate::tree::root()).unwrap_or(&self.file);
        format!("     Running {} ({})", self.source, file.display())
    }
}

/// Has cargo build every test program of the workspace; a job for each, and one for the tests of the documentation.
pub(crate) fn built() -> Result<Vec<Job>, String> {
    let mut build = cargo();
    build.args(["test", "--workspace", "--locked", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics");
    let running = Running::start(steps::words(&build));
    // Messages alone: cargo's other output goes to its usual place, and splits none of them.
    let output = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    running.end();
    let said = output.as_ref().map(|output| output.stdout.clone()).unwrap_or_default();
    steps::judged("cargo test --no-run", output.map(|output| output.status))?;
    let programs = programs_of(&String::from_utf8_lossy(&said))?;
    Ok(in_order(programs))
}

/// The test programs in cargo's messages.
fn programs_of(messages: &str) -> Result<Vec<Program>, String> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message = serde_json::from_str(line)
            .map_err(|error| format!("a message of cargo is no JSON ({error}): {line}"))?;
        programs.extend(Program::of_message(&message));
    }
    if programs.is_empty() {
        return Err("cargo told of no test program".into());
    }
    Ok(programs)
}

/// Those that take longest first, and the rest by package.
fn in_order(mut programs: Vec<Program>) -> Vec<Job> {
    let place = |program: &Program| LONGEST.iter().position(|name| *name == program.target);
    programs.sort_by(|one, other| {
        let key =
            |program: &Program| (place(program).unwrap_or(LONGEST.len()), program.source.clone());
        (key(one), &one.package).cmp(&(key(other), &other.package))
    });
    let mut jobs: Vec<_> = programs.iter().map(|program| Job::of(program.clone())).collect();
    let mut documentation = cargo();
    documentation.args(["test", "--workspace", "--doc"]);
    let long = programs.iter().filter(|program| place(program).is_some()).count();
    jobs.insert(long, Job::new("     Running cargo test --doc", documentation));
    jobs
}

/// The suites on the tests' build; a build of their own would resolve to other features and start again.
pub(crate) fn suites() -> Result<Job, String> {
    let this = std::env::current_exe().map_err(|error| format!("xtask's own path: {error}"))?;
    let mut suites = Command::new(this);
    suites.current_dir(tree::root()).args(["conformance", "--quick", "--binary"]);
    suites.arg(steps::target().join("debug/uvfs"));
    Ok(Job { last: true, ..Job::new("== conformance --quick", suites) })
}

/// Something to run beside others.
#[derive(Debug)]
pub(crate) struct Job {
    title: String,
    command: Command,
    /// Whether its output closes the log.
    last: bool,
    /// The test program; none if it is another command.
    program: Option<Program>,
}

impl Job {
    /// `command`, announced by `title`.
    fn new(title: impl Into<String>, command: Command) -> Self {
        Self { title: title.into(), command, last: false, program: None }
    }

    fn of(program: Program) -> Self {
        Self { program: Some(program.clone()), ..Self::new(program.title(), program.command()) }
    }
}

/// The output of a job, line by line with the time since its start, and its result.
#[derive(Debug)]
struct Ended {
    title: String,
    last: bool,
    program: Option<Program>,
    lines: Vec<(Vec<u8>, Duration)>,
    took: Duration,
    status: io::Result<ExitStatus>,
}

impl Ended {
    /// Runs `job` to its end.
    fn of(mut job: Job) -> Self {
        let start = Instant::now();
        let mut lines = Vec::new();
        let status = heard(&mut job.command, |line, at| lines.push((line.to_owned(), at)));
        let Job { title, last, program, .. } = job;
        Self { title, last, program, lines, took: start.elapsed(), status }
    }

    fn print(&self) {
        println!("{}", self.title);
        self.lines.iter().for_each(|(line, _)| println!("{}", String::from_utf8_lossy(line)));
    }
}

/// Runs every job, several at a time, and fails when one of them failed or a lock was taken in an order that no
/// document has.
pub(crate) fn run(jobs: Vec<Job>) -> Result<(), String> {
    let edges = locks::directory();
    // Edges of earlier runs there were of other code.
    let _ = fs::remove_dir_all(&edges);
    fs::create_dir_all(&edges).map_err(|error| format!("{}: {error}", edges.display()))?;
    let at_once = cores();
    let running = Running::start(format!("tests and suites, {at_once} programs at a time"));
    let mut times = TestTimes::new(threads());
    let (mut skips, mut closing) = (Vec::new(), Vec::new());
    let jobs = jobs.into_iter().map(|mut job| {
        // Not of the suites: their daemons shut themselves off from files that they do not serve.
        if !job.last {
            job.command.env(locks::VARIABLE, &edges);
        }
        steps::must_run(&mut job.command);
        job
    });
    side_by_side(jobs.collect(), at_once, |ended| {
        times.line(&ended.title, Duration::ZERO);
        for (line, at) in &ended.lines {
            let line = String::from_utf8_lossy(line);
            times.line(&line, *at);
            // Behind the name of its test, where one test runs at a time.
            skips.extend(line.find("skipped: ").map(|at| line[at..].trim().to_owned()));
            let case = line.trim().strip_prefix("skipped ").filter(|_| ended.last);
            case.map(|case| format!("suite {case}")).into_iter().for_each(skips::add);
        }
        if !ended.last {
            ended.print();
        }
        if ended.last || !matches!(&ended.status, Ok(status) if status.success()) {
            closing.push(ended);
        }
    });
    running.end();
    times.slowest(10).iter().for_each(|line| println!("{line}"));
    println!("skips: {}", skips.len());
    for line in &skips {
        println!("{line}");
        skips::add(line.trim_start_matches("skipped: ").to_owned());
    }
    for suites in closing.iter().filter(|ended| ended.last) {
        suites.print();
        println!("-- {:>7.1} s", suites.took.as_secs_f64());
    }
    let result = judged_alone(&closing);
    result.and_then(|()| locks::judge(&edges))
}

/// Prints the end of each failed test, and runs it alone. Fails unless every failure was one of a flaky test.
fn judged_alone(ended: &[Ended]) -> Result<(), String> {
    let (mut failed, mut flaky) = (Vec::new(), Vec::new());
    for ended in ended {
        if matches!(&ended.status, Ok(status) if status.success()) {
            continue;
        }
        let title = ended.title.trim().trim_start_matches("Running ").to_owned();
        let lines: Vec<_> =
            ended.lines.iter().map(|(line, _)| String::from_utf8_lossy(line)).collect();
        let tests = failures::in_output(lines.iter().map(AsRef::as_ref));
        for test in &tests {
            println!("== failed: {}, in {title}", test.name);
            test.last.iter().for_each(|line| println!("{line}"));
        }
        let alone = |name: &str| {
            let program = ended.program.as_ref();
            program.is_some_and(|it| failures::passes_alone(&it.file, &it.package, name))
        };
        // Without the name of a test, the program itself broke.
        match !tests.is_empty() && tests.iter().all(|test| alone(&test.name)) {
            true => flaky.extend(tests.into_iter().map(|test| test.name)),
            false => failed.push(title),
        }
    }
    let flaky = failures::flaky_lines(&flaky);
    flaky.iter().for_each(|line| println!("{line}"));
    FLAKY.set(flaky).unwrap_or_default();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("these failed:\n  {}", failed.join("\n  ")))
}

/// The lines about flaky tests, which the gate prints last.
pub(crate) fn flaky() -> &'static [String] {
    FLAKY.get().map_or(&[], Vec::as_slice)
}

/// Runs `jobs`, `at_once` at a time and in their order; `end` is given each when it has ended.
fn side_by_side(jobs: Vec<Job>, at_once: usize, mut end: impl FnMut(Ended)) {
    let (sender, ends) = mpsc::channel();
    let mut waiting = jobs.into_iter();
    let mut running: Vec<String> = Vec::new();
    loop {
        while running.len() < at_once.max(1)
            && let Some(job) = waiting.next()
        {
            running.push(job.title.clone());
            let sender = sender.clone();
            thread::spawn(move || drop(sender.send(Ended::of(job))));
        }
        if running.is_empty() {
            return;
        }
        match ends.recv_timeout(PATIENCE) {
            Ok(ended) => {
                running.retain(|title| *title != ended.title);
                end(ended);
            }
            Err(_) => running.iter().for_each(|title| println!("note: still {}", title.trim())),
        }
    }
}

/// How long the last output may take to arrive after the command has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Runs `command`; `look` gets each line of its output with its time.
pub(crate) fn heard(
    command: &mut Command,
    mut look: impl FnMut(&[u8], Duration),
) -> io::Result<ExitStatus> {
    // One pipe for both, or the names of tests would come out of turn.
    let (said, output) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let start = Instant::now();
    let mut child = command.spawn()?;
    // Our own ends of the pipe, or it would never be at its end.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    // A separate thread reads: a process that a test left behind holds the pipe open for ever.
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(said).split(b'\n').map_while(Result::ok) {
            if sender.send((line, start.elapsed())).is_err() {
                return;
            }
        }
    });
    let mut status = None;
    loop {
        let wait = if status.is_some() { LAST_WORDS } else { Duration::from_millis(100) };
        match lines.recv_timeout(wait) {
            Ok((line, at)) => look(&line, at),
            Err(RecvTimeoutError::Timeout) if status.is_none() => status = child.try_wait()?,
            Err(_) => return status.map_or_else(|| child.wait(), Ok),
        }
    }
}

/// How many programs run at a time.
fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many tests of one program run at a time.
fn threads() -> usize {
    let said = std::env::var("RUST_TEST_THREADS").ok().and_then(|text| text.parse().ok());
    said.unwrap_or_else(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(title: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job::new(title, command)
    }

    #[test]
    fn both_outputs_come_in_turn_and_the_pipe_ends_with_the_command() {
        let ended = Ended::of(shell("sh", "echo one; echo two >&2; echo three; exit 3"));
        let lines: Vec<_> = ended.lines.iter().map(|(line, _)| line.as_slice()).collect();
        assert_eq!(lines, [b"one".as_slice(), b"two", b"three"]);
        assert_eq!(ended.status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_process_that_is_left_behind_does_not_hold_the_gate() {
        let start = Instant::now();
        let ended = Ended::of(shell("sh", "echo one; sleep 60 & echo $!"));
        let [(one, _), (left, _)] = &ended.lines[..] else { panic!("{ended:?}") };
        assert!(ended.status.as_ref().unwrap().success() && one == b"one", "{ended:?}");
        assert!(start.elapsed() < Duration::from_secs(50), "it was waited for");
        let left =
            String::from_utf8_lossy(left).parse().ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(left.unwrap(), rustix::process::Signal::KILL).unwrap();
    }

    /// Each of two waits for the other's file; a third can only end after one of them.
    #[test]
    fn jobs_run_beside_each_other_and_no_more_than_said() {
        let folder = tempfile::tempdir().unwrap();
        let meet = |mine: &str, other: &str| {
            let path = folder.path().display();
            let script =
                format!("touch {path}/{mine}; until [ -e {path}/{other} ]; do sleep 0.01; done");
            shell(mine, &script)
        };
        let third = shell("c", &format!("ls {}", folder.path().display()));
        let mut ends = Vec::new();
        side_by_side(vec![meet("a", "b"), meet("b", "a"), third], 2, |ended| {
            ends.push(ended.title)
        });
        ends.sort();
        assert_eq!(ends, ["a", "b", "c"]);
        let count = folder.path().display();
        let alone = |name| {
            let script = format!("mkdir {count}/busy && sleep 0.05 && rmdir {count}/busy");
            shell(name, &script)
        };
        side_by_side(vec![alone("d"), alone("e"), alone("f")], 1, |ended| {
            assert!(ended.status.unwrap().success(), "two at a time");
        });
    }

    #[test]
    fn a_message_of_cargo_tells_of_a_program() {
        let message = |test: bool, kind: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/r/tests/Cargo.toml",
                "target": { "name": "walk", "kind": [kind], "src_path": "/r/tests/tests/walk.rs" },
                "profile": { "test": test }, "executable": "/r/target/debug/deps/walk-0a1b",
            })
        };
        assert_eq!(Program::of_message(&message(false, "bin")), None, "a program of the product");
        let lines = format!("{}\n{}\n", message(false, "bin"), message(true, "test"));
        assert_eq!(programs_of(&lines).unwrap().len(), 1);
        assert!(programs_of("").is_err() && programs_of("{\"reason\"").is_err(), "torn");
        let found = Program::of_message(&message(true, "test")).unwrap();
        assert_eq!(
            (found.source.as_str(), found.package.as_path()),
            ("tests/walk.rs", Path::new("/r/tests"))
        );
        assert_eq!(
            Program::of_message(&message(true, "lib")).unwrap().source,
            "unittests tests/walk.rs"
        );
    }

    #[test]
    fn programs_that_begin_first_exist() {
        let Some(tree) = tree::Tree::for_test() else { return };
        for name in LONGEST {
            let sources = [format!("tests/{name}.rs"), format!("tests/{name}/main.rs")];
            let is_it = |path: &str| sources.iter().any(|source| path.ends_with(source));
            assert!(tree.files().any(|(path, _)| is_it(path)), "{name} is no test program");
        }
    }

    #[test]
    fn long_programs_come_first_and_the_documentation_behind_them() {
        let program = |target: &str| Program {
            target: target.to_owned(),
            source: format!("tests/{target}.rs"),
            file: format!("/r/target/debug/deps/{target}-0").into(),
            package: "/r".into(),
        };
        let jobs = in_order(vec![program("absent"), program(LONGEST[1]), program(LONGEST[0])]);
        let titles: Vec<_> = jobs.iter().map(|job| job.title.as_str()).collect();
        assert_eq!(titles.len(), 4);
        let [first, second] = [LONGEST[0], LONGEST[1]].map(|name| format!("tests/{name}.rs"));
        assert!(titles[0].contains(&first) && titles[1].contains(&second), "{titles:?}");
        assert!(titles[2].contains("--doc") && titles[3].contains("absent"), "{titles:?}");
    }
}
