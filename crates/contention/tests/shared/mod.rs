//! Builds and runs the programs of `tests/contention` for `known.rs` and `ends.rs`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uvfs_coherence::{Machine, Profile};
use uvfs_contention::build::cargo::{Invocation, Setup};
use uvfs_contention::build::{compiler, flags};
use uvfs_contention::machine_file;
use uvfs_contention::run::{self, Go, Outcome, Plan};

/// The analyser, and a folder for what it builds.
pub(crate) struct Analyser {
    folder: tempfile::TempDir,
    machine: Machine,
}

impl Analyser {
    /// `None`, after saying why, where its programs cannot be built or run.
    pub(crate) fn new() -> Option<Self> {
        if let Some(why) = reason_for_none() {
            uvfs_skip::lacking(why);
            return None;
        }
        let machine = machine_file::read(sources().join("machine.toml")).expect("a machine");
        Some(Self { folder: tempfile::tempdir().expect("a folder"), machine })
    }

    /// The machine that programs run on, but for its cores.
    pub(crate) fn machine(&self) -> Machine {
        self.machine.clone()
    }

    /// Builds `known/NAME.c` as `uvfs contention cc` does.
    pub(crate) fn c(&self, name: &str, flags: &[&str]) -> PathBuf {
        let program =
            self.folder.path().join(format!("{name}{}", flags.concat().replace('/', "-")));
        let mut words: Vec<OsString> = ["-O2", "-g", "-pthread"].map(OsString::from).into();
        words.extend(flags.iter().map(OsString::from));
        words.push(sources().join("known").join(name).with_extension("c").into());
        words.extend(["-o".into(), program.clone().into()]);
        let status = compiler::run(&["gcc".to_owned()], &words).expect("gcc instruments");
        assert_eq!(status, 0, "{name} is compiled");
        program
    }

    /// Builds the program `name` of the package `known` as `uvfs contention cargo` does.
    pub(crate) fn rust(&self, name: &str, features: &[&str]) -> PathBuf {
        let features = features.join(",");
        let words = ["build", "--release", "--quiet", "--bin", name, "--features", &features];
        let mut words: Vec<OsString> = words.map(OsString::from).into();
        words.extend(["--manifest-path".into(), sources().join("known/Cargo.toml").into()]);
        // One folder for all tests, where cargo takes its own turns, and another for other features.
        let folder = target().join(format!("contention-known{features}"));
        words.extend(["--target-dir".into(), folder.into()]);
        let setup = Invocation::parse(&words).and_then(Setup::prepare).expect("cargo instruments");
        succeed(&mut setup.command(&["env".to_owned()]).expect("a command"));
        setup.folder.join(flags::TARGET).join("release").join(name)
    }

    /// A plan of `program` with so many cores, one node for up to seven of them and two for more.
    pub(crate) fn plan(&self, program: &Path, cores: usize, args: &[&str]) -> Plan {
        let args = args.iter().map(OsString::from).collect();
        Plan {
            cores,
            nodes: if cores < 8 { 1 } else { 2 },
            seeds: 2,
            machine: self.machine(),
            jobs: 1,
            ..Plan::new(program, args)
        }
    }
}

/// Runs a plan that has to end well.
pub(crate) fn run(plan: &Plan) -> Profile {
    let outcome = attempt(plan);
    assert!(outcome.failures.is_empty(), "{}: {:?}", plan.program.display(), outcome.failures);
    outcome.profile.expect("a profile")
}

/// Runs a plan.
pub(crate) fn attempt(plan: &Plan) -> Outcome {
    let done = run::attempt(plan, &mut |_| Go::On);
    done.unwrap_or_else(|error| panic!("{}: {error}", plan.program.display()))
}

fn reason_for_none() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Some("the analyser runs programs on x86-64 Linux with glibc".into());
    }
    let mut gcc = Command::new("gcc");
    gcc.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let works = gcc.status().is_ok_and(|status| status.success());
    (!works).then(|| "there is no gcc".into())
}

/// `tests/contention`.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/contention")
}

/// This test is `TARGET/PROFILE/deps/known-…`: `TARGET`.
fn target() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.ancestors().nth(3).expect("a target directory").to_path_buf()
}

/// Runs a command that has to succeed.
fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
}
