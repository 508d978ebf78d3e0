//! One run: its process, its files and its end.
//!
//! # Boundary
//! Starts a program with the runtime preloaded, waits without blocking, reads its results.
//!
//! # Concurrency
//! Owned by one thread; `Running` ends its process when it is dropped.
//!
//! # Why
//! `setarch -R` turns the shuffling of addresses off, where the host allows it: a run does not depend on it,
//! but addresses that a person sees are then the same twice. The preload is set by `env` behind it, so that
//! no helper carries the runtime. Weakness: a driver that is killed by force leaves its programs running.

use super::program::Program;
use super::{Failure, Output, Plan};
use crate::Error;
use crate::embed::Runtime;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use uvfs_coherence::Profile;
use uvfs_coherence::configuration::{Configuration, VARIABLE};

/// The runtime ends a program in which nothing happens any more.
pub const STATUS_WATCHDOG: i32 = 70;
/// The runtime ends a program whose threads all wait for each other.
pub const STATUS_DEADLOCK: i32 = 71;
/// Most of a run's output that is kept.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// How much of a failed run's output is shown.
const SHOWN_BYTES: usize = 4 << 10;
/// How long a program may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(1);

/// The parts that all runs of a plan share.
#[derive(Debug)]
pub(crate) struct Surroundings {
    folder: TempDir,
    preload: OsString,
}

impl Surroundings {
    pub(crate) fn new(runtime: &Runtime) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("uvfs-contention-")
            .tempdir()
            .map_err(|error| Error::io(std::env::temp_dir().display(), &error))?;
        Ok(Self { folder, preload: runtime.preload.clone().into_os_string() })
    }

    /// A file of one run.
    pub(crate) fn file(&self, seed: u64, extension: &str) -> PathBuf {
        self.folder.path().join(format!("{seed}.{extension}"))
    }
}

/// A run that has not ended.
#[derive(Debug)]
pub(crate) struct Running {
    seed: u64,
    child: Option<Child>,
    profile: PathBuf,
    kept: Option<Kept>,
    wanted: bool,
}

/// Files for a program's output.
#[derive(Debug)]
struct Kept {
    output: File,
    errors: File,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) seed: u64,
    pub(crate) status: u8,
    pub(crate) profile: Result<Profile, Error>,
    pub(crate) output: Option<String>,
    pub(crate) failure: Option<Failure>,
}

impl Running {
    /// Starts the run that `configuration` describes; its output is shown if `first`, as the plan says.
    pub(crate) fn start(
        plan: &Plan,
        program: &Program,
        surroundings: &Surroundings,
        configuration: &Configuration,
        first: bool,
    ) -> Result<Self, Error> {
        let seed = configuration.seed;
        let file = surroundings.file(seed, "json");
        let text = serde_json::to_vec(configuration)
            .map_err(|error| Error::new(format!("{}: {error}", file.display())))?;
        fs::write(&file, text).map_err(|error| Error::io(file.display(), &error))?;
        let mut command = command(plan, program, &surroundings.preload, &file);
        let kept = if first && plan.output != Output::Kept {
            if plan.output == Output::FirstOnStandardError {
                let errors = std::io::stderr().as_fd().try_clone_to_owned();
                command.stdout(Stdio::from(
                    errors.map_err(|error| Error::io("standard error", &error))?,
                ));
            }
            command.stdin(Stdio::inherit());
            None
        } else {
            command.stdin(input());
            Some(Kept::new(surroundings, seed, &mut command)?)
        };
        let child = command.spawn().map_err(|error| Error::io(program.path.display(), &error))?;
        Ok(Self {
            seed,
            child: Some(child),
            profile: configuration.profile.clone(),
            kept,
            wanted: plan.output == Output::Kept,
        })
    }

    /// How it ended, if it has.
    pub(crate) fn look(&mut self) -> Result<Option<Ended>, Error> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status =
            child.try_wait().map_err(|error| Error::io("waiting for the program", &error))?;
        let Some(status) = status else { return Ok(None) };
        self.child = None;
        let code = code(status);
        let failure = match cause(status) {
            None => None,
            Some(cause) => {
                let output = self.kept.as_mut().map(Kept::last_words).unwrap_or_default();
                Some(Failure { seed: self.seed, status: code, cause, output })
            }
        };
        let profile = if self.profile.exists() {
            Profile::read(&self.profile).map_err(Error::from)
        } else {
            Err(Error::new(
                "it left no profile; it replaced itself by another program, or ended unseen by the runtime",
            ))
        };
        let output = match &mut self.kept {
            Some(kept) if self.wanted => Some(kept.output()),
            _ => None,
        };
        let _ = fs::remove_file(&self.profile);
        Ok(Some(Ended { seed: self.seed, status: code, profile, output, failure }))
    }

    /// Asks all to end, and makes them.
    pub(crate) fn end_all(running: Vec<Self>) {
        for run in &running {
            if let Some(child) = &run.child {
                let _ = kill_process(Pid::from_child(child), Signal::TERM);
            }
        }
        let asked = Instant::now();
        for mut run in running {
            while asked.elapsed() < GRACE {
                match run.child.as_mut().map(Child::try_wait) {
                    Some(Ok(None)) => std::thread::sleep(super::LOOK),
                    _ => break,
                }
            }
            // Dropping ends the remaining runs.
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Kept {
    /// Files for the output of `command`. They have no name any more when it begins.
    fn new(surroundings: &Surroundings, seed: u64, command: &mut Command) -> Result<Self, Error> {
        let make = |extension: &str| {
            let path = surroundings.file(seed, extension);
            let failed = |error: &std::io::Error| Error::io(path.display(), error);
            let file = File::options()
                .read(true)
                .append(true)
                .create_new(true)
                .open(&path)
                .map_err(|error| failed(&error))?;
            let other = file.try_clone().map_err(|error| failed(&error))?;
            fs::remove_file(&path).map_err(|error| failed(&error))?;
            Ok::<_, Error>((file, Stdio::from(other)))
        };
        let ((output, to_output), (errors, to_errors)) = (make("out")?, make("err")?);
        command.stdout(to_output).stderr(to_errors);
        Ok(Self { output, errors })
    }

    fn output(&mut self) -> String {
        text(&mut self.output)
    }

    /// The end of both.
    fn last_words(&mut self) -> String {
        let (output, errors) = (text(&mut self.output), text(&mut self.errors));
        let all = format!("{output}{errors}");
        let mut from = all.len().saturating_sub(SHOWN_BYTES);
        while !all.is_char_boundary(from) {
            from += 1;
        }
        all[from..].to_string()
    }
}

fn text(file: &mut File) -> String {
    let mut bytes = Vec::new();
    let from = file.metadata().map_or(0, |found| found.len().saturating_sub(KEPT_BYTES_MAX));
    if file.seek(SeekFrom::Start(from)).is_ok() {
        let _ = file.take(KEPT_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Standard input of a run whose output is not shown: the same file from its start, and nothing in place of
/// a terminal or a pipe, of which there is one only.
fn input() -> Stdio {
    let own = std::io::stdin();
    if own.is_terminal() {
        return Stdio::null();
    }
    let is_file = own
        .as_fd()
        .try_clone_to_owned()
        .and_then(|descriptor| File::from(descriptor).metadata())
        .is_ok_and(|found| found.is_file());
    match File::open("/proc/self/fd/0") {
        Ok(file) if is_file => Stdio::from(file),
        _ => Stdio::null(),
    }
}

/// The process with its preload and its configuration.
fn command(plan: &Plan, program: &Program, preload: &OsStr, configuration: &Path) -> Command {
    let environment = plan.env.as_deref();
    let variable = |name: &str| match environment {
        Some(pairs) => {
            pairs.iter().rfind(|(found, _)| found == name).map(|(_, value)| value.clone())
        }
        None => std::env::var_os(name),
    };
    // The user's own preloaded libraries come behind.
    let mut all = preload.to_os_string();
    if let Some(others) = variable("LD_PRELOAD").filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    // `env` would take a program with = in its path for a variable.
    let plain = !program.path.as_os_str().to_string_lossy().contains('=');
    let mut command = match fixed_addresses() {
        Some(tool) if plain => {
            let mut command = Command::new(tool);
            command.args(["-R", "env"]);
            for (name, value) in
                [("LD_PRELOAD", all.as_os_str()), (VARIABLE, configuration.as_os_str())]
            {
                let mut pair = OsString::from(name);
                pair.push("=");
                pair.push(value);
                command.arg(pair);
            }
            command.arg(&program.path);
            command
        }
        _ => {
            let mut command = Command::new(&program.path);
            command.env("LD_PRELOAD", &all).env(VARIABLE, configuration);
            command
        }
    };
    if let Some(pairs) = environment {
        command.env_clear().envs(pairs.iter().filter(|(name, _)| name != "LD_PRELOAD").cloned());
        if !plain || fixed_addresses().is_none() {
            command.env("LD_PRELOAD", &all).env(VARIABLE, configuration);
        }
    } else if plain && fixed_addresses().is_some() {
        command.env_remove("LD_PRELOAD");
    }
    if let Some(folder) = &plan.folder {
        command.current_dir(folder);
    }
    command.args(&plan.args);
    command
}

/// The tool that turns the shuffling of addresses off, where it may.
fn fixed_addresses() -> Option<&'static Path> {
    static TOOL: OnceLock<Option<PathBuf>> = OnceLock::new();
    TOOL.get_or_init(|| {
        let folders = std::env::var_os("PATH")?;
        let tool = std::env::split_paths(&folders)
            .map(|folder| folder.join("setarch"))
            .find(|path| path.exists())?;
        let done = Command::new(&tool)
            .args(["-R", "env", "true"])
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        done.is_ok_and(|status| status.success()).then_some(tool)
    })
    .as_deref()
}

/// The exit status as a shell has it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(255)
}

/// The failure, if there is one.
fn cause(status: ExitStatus) -> Option<String> {
    if let Some(signal) = status.signal() {
        let core = if status.core_dumped() { ", core dumped" } else { "" };
        return Some(match signal_name(signal) {
            Some(name) => format!("died by signal {signal} ({name}){core}"),
            None => format!("died by signal {signal}{core}"),
        });
    }
    match status.code() {
        Some(0) => None,
        Some(STATUS_WATCHDOG) => Some(
            "exit status 70, the watchdog's: a thread spun in code that is not instrumented; see the lines above, or \
             give it more time with --watchdog"
                .into(),
        ),
        Some(STATUS_DEADLOCK) => {
            Some("exit status 71, of a deadlock: all threads wait; see the lines above".into())
        }
        Some(code) => Some(format!("exit status {code}")),
        None => Some("ended without a status".into()),
    }
}

/// The numbers of signal(7) on x86-64; signals left to programs have a number only.
fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: [&str; 31] = [
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    usize::try_from(signal).ok()?.checked_sub(1).and_then(|at| NAMES.get(at)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_described_in_words() {
        let words = |raw: i32| cause(ExitStatus::from_raw(raw));
        assert_eq!(words(0), None);
        assert_eq!(words(3 << 8).unwrap(), "exit status 3");
        assert!(words(71 << 8).unwrap().contains("deadlock"));
        assert!(words(70 << 8).unwrap().contains("watchdog"));
        // An abort was once called SIGABORT.
        for (signal, name) in [
            (Signal::SEGV, "SIGSEGV"),
            (Signal::ABORT, "SIGABRT"),
            (Signal::ALARM, "SIGALRM"),
            (Signal::STKFLT, "SIGSTKFLT"),
            (Signal::CHILD, "SIGCHLD"),
            (Signal::IO, "SIGIO"),
            (Signal::SYS, "SIGSYS"),
        ] {
            let number = signal.as_raw();
            assert_eq!(words(number).unwrap(), format!("died by signal {number} ({name})"));
        }
        assert_eq!(words(6 | 0x80).unwrap(), "died by signal 6 (SIGABRT), core dumped");
        assert_eq!(words(40).unwrap(), "died by signal 40");
        assert_eq!(code(ExitStatus::from_raw(11)), 139);
    }

    fn words(command: &Command) -> Vec<String> {
        std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn the_preload_reaches_the_program_and_no_helper() {
        let plan = Plan::new("/bin/true", vec!["a b".into()]);
        let program = Program { path: "/bin/true".into(), debug: true };
        let command = command(&plan, &program, OsStr::new("/x.so"), Path::new("/c.json"));
        let words = words(&command);
        let preloaded = words.iter().position(|word| word.starts_with("LD_PRELOAD=/x.so"));
        let at = words.iter().position(|word| word == "/bin/true").unwrap();
        match preloaded {
            Some(preloaded) => {
                assert!(preloaded < at && words[preloaded + 1] == "UVFS_CONTENTION=/c.json");
                assert!(
                    command.get_envs().all(|(name, value)| name != "LD_PRELOAD" || value.is_none())
                );
            }
            // A host that forbids it.
            None => assert!(command.get_envs().any(|(name, _)| name == "LD_PRELOAD")),
        }
        assert_eq!(words.last().unwrap(), "a b");
    }

    #[test]
    fn a_path_that_looks_like_a_variable_is_started_directly() {
        let plan = Plan::new("/tmp/a=b", Vec::new());
        let program = Program { path: "/tmp/a=b".into(), debug: true };
        let command = command(&plan, &program, OsStr::new("/x.so"), Path::new("/c.json"));
        assert_eq!(words(&command), ["/tmp/a=b"]);
        assert!(command.get_envs().any(|(name, _)| name == "LD_PRELOAD"));
    }

    #[test]
    fn what_the_user_preloads_stays_behind_ours() {
        let mut plan = Plan::new("/bin/true", Vec::new());
        plan.env = Some(vec![("LD_PRELOAD".into(), "/other.so".into()), ("A".into(), "b".into())]);
        let program = Program { path: "/bin/true".into(), debug: true };
        let command = command(&plan, &program, OsStr::new("/x.so"), Path::new("/c.json"));
        let set = words(&command).join(" ");
        let set =
            command.get_envs().fold(set, |all, (name, value)| format!("{all} {name:?}={value:?}"));
        assert!(set.contains("/x.so:/other.so") && set.contains("\"A\"=Some(\"b\")"), "{set}");
    }
}
