//! `uvfs contention cargo`, `cc`, `c++`, and the runner that cargo starts.
//!
//! # Boundary
//! Flags to `uvfs_contention::build` and to a session; the profiles of a session are shown when cargo has
//! ended.

use super::flags::{CargoArguments, CompilerArguments, ExecArguments};
use super::{machine, reading, running, trying};
use crate::Failure;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use uvfs_coherence::Profile;
use uvfs_contention::build::cargo::{Invocation, Setup, runner_word};
use uvfs_contention::build::compiler::{self, Language};
use uvfs_contention::run::Plan;
use uvfs_contention::run::session::{self, Order, Record, Session};
use uvfs_terminal::interrupt::Interrupt;

/// `uvfs contention cc`.
pub(super) fn cc(arguments: &CompilerArguments) -> Result<ExitCode, Failure> {
    compile(Language::C, arguments)
}

/// `uvfs contention c++`.
pub(super) fn cxx(arguments: &CompilerArguments) -> Result<ExitCode, Failure> {
    compile(Language::Cxx, arguments)
}

fn compile(language: Language, arguments: &CompilerArguments) -> Result<ExitCode, Failure> {
    let compiler = compiler::compiler(language, arguments.cc.as_deref())?;
    Ok(ExitCode::from(compiler::run(&compiler, &arguments.words)?))
}

/// `uvfs contention cargo`.
pub(super) fn cargo(arguments: &CargoArguments) -> Result<ExitCode, Failure> {
    let options = reading::options(&arguments.show)?;
    reading::check_room("--output", arguments.output.as_deref())?;
    reading::check_room("--html", arguments.show.form.html.as_deref())?;
    let mut plan = Plan::new("", Vec::new());
    running::set_machine(&mut plan, &arguments.machine)?;
    running::set_seeds(&mut plan, &arguments.seeds);
    plan.output = running::shown(&arguments.show);
    if !arguments.layout.what_if.is_empty() {
        let mut found = find(&arguments.words)?;
        (found.machine, found.cores, found.nodes) =
            (machine::of_flags(&arguments.machine)?, plan.cores, plan.nodes);
        running::set_seeds(&mut found, &arguments.seeds);
        found.output = plan.output;
        return trying::with_layouts(
            &found,
            &arguments.layout.what_if,
            arguments.output.as_deref(),
            arguments.show.form.is_json(),
        );
    }
    let setup = Setup::prepare(Invocation::parse(&arguments.words)?)?;
    let single = matches!(subcommand(&arguments.words).as_deref(), Some("run" | "r"));
    let order = Order {
        plan,
        target_folder: setup.folder.clone(),
        output: arguments.output.as_deref().map(absolute).transpose()?,
        single,
        find: false,
    };
    let (status, session) = call(&setup, &order, arguments.show.form.is_json())?;
    let records = session.records()?;
    let several = records.len() > 1;
    for record in &records {
        if let Some(path) = &record.profile {
            if several && !arguments.show.form.is_json() {
                crate::print_line(&format!("\n{}", record.program.display()));
            }
            let mut show = arguments.show.clone();
            show.form.html = show.form.html.map(|page| page_of(&page, record, several));
            reading::show(&Profile::read(path)?, &show, &options)?;
        }
        for remark in &record.remarks {
            eprintln!("uvfs: {remark}");
        }
        for (seed, _, cause) in &record.failures {
            eprintln!("uvfs: {}, seed {seed}: {cause}", record.program.display());
        }
        if let Some(path) = &record.profile
            && !arguments.show.form.is_json()
        {
            eprintln!("uvfs: {}: the profile", path.display());
        }
    }
    if records.is_empty()
        && !status.success()
        && let Some(flag) = own_flag(&arguments.words)
    {
        eprintln!("uvfs: {flag}: if it is meant for uvfs, write it before cargo's command");
    }
    if records.is_empty() && status.success() {
        let folder = setup.folder.join(uvfs_contention::build::flags::TARGET);
        eprintln!(
            "uvfs: no program was started; the build is in {}, for `uvfs contention run`",
            folder.display()
        );
    }
    Ok(exit_code(status))
}

/// Where the page of one of several programs goes.
fn page_of(page: &Path, record: &Record, several: bool) -> PathBuf {
    let name = record.profile.as_deref().and_then(Path::file_stem).and_then(OsStr::to_str);
    match (several, name, page.file_stem().and_then(OsStr::to_str)) {
        (true, Some(name), Some(stem)) => page.with_file_name(format!("{stem}-{name}.html")),
        _ => page.to_path_buf(),
    }
}

/// Starts cargo with this program as the runner of the programs.
fn call(
    setup: &Setup,
    order: &Order,
    quiet_output: bool,
) -> Result<(ExitStatus, Session), Failure> {
    let session = Session::new(order)?;
    let own = std::env::current_exe().map_err(|error| {
        Failure::refused(format!("/proc/self/exe: {}; mount /proc", crate::cause(&error)))
    })?;
    let own = runner_word(&own, session.folder())?;
    let folder = session.folder().to_str().ok_or_else(|| {
        Failure::refused(format!("{}: no UTF-8; set TMPDIR", session.folder().display()))
    })?;
    let mut command = setup.command(&[own, "exec".into(), folder.into()])?;
    if quiet_output {
        // Programs that are not run, such as examples, still write there.
        let errors = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned();
        if let Ok(errors) = errors {
            command.stdout(errors);
        }
    }
    // Ctrl-C reaches cargo and its programs by itself; they end, then the session's folder goes.
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let status = command.status().map_err(|error| {
        Failure::refused(format!("cargo: {}; install it", crate::cause(&error)))
    })?;
    if interrupt.is_set() {
        return Err(Failure::refused("cargo: interrupted"));
    }
    Ok((status, session))
}

/// Builds the program that the cargo command `words` would run, and finds it.
pub(super) fn find(words: &[OsString]) -> Result<Plan, Failure> {
    let setup = Setup::prepare(Invocation::parse(words)?)?;
    let order = Order {
        plan: Plan::new("", Vec::new()),
        target_folder: setup.folder.clone(),
        output: None,
        single: true,
        find: true,
    };
    let (status, session) = call(&setup, &order, true)?;
    if !status.success() {
        return Err(Failure::refused("cargo: it failed, as it said above"));
    }
    let shown = words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut records = session.records()?;
    match (records.pop(), records.len()) {
        (Some(record), 0) => Ok(Plan {
            env: Some(record.env),
            folder: Some(record.folder),
            ..Plan::new(record.program, record.args)
        }),
        (None, _) => Err(Failure::refused(format!(
            "cargo {shown}: starts no program; write run, or test or bench with the name of one"
        ))),
        (Some(_), others) => Err(Failure::refused(format!(
            "cargo {shown}: starts {} programs; choose one with --test, --bench, --bin or --lib",
            others + 1
        ))),
    }
}

/// The command that cargo starts in the place of a program.
pub(super) fn exec(arguments: &ExecArguments) -> Result<ExitCode, Failure> {
    let order = session::order(&arguments.session)?;
    let Some((program, args)) = arguments.program.split_first() else {
        return Err(Failure::usage("no program"));
    };
    let program = Path::new(program);
    if !order.is_ours(program) {
        let error = Command::new(program).args(args).exec();
        return Err(Failure::refused(format!("{}: {}", program.display(), crate::cause(&error))));
    }
    let mut watcher = running::Watcher::new("")?;
    let failures =
        session::run(&arguments.session, &order, program, args, &mut |event| watcher.see(event))?;
    drop(watcher);
    for failure in &failures {
        if !failure.output.is_empty() {
            eprintln!("{}", failure.output.trim_end());
        }
    }
    Ok(failures.first().map_or(ExitCode::SUCCESS, |failure| ExitCode::from(failure.status.max(1))))
}

fn subcommand(words: &[OsString]) -> Option<String> {
    let parsed = Invocation::parse(words).ok()?;
    parsed.subcommand().map(|word| word.to_string_lossy().into_owned())
}

/// A flag of ours among cargo's.
fn own_flag(words: &[OsString]) -> Option<&str> {
    const OURS: [&str; 10] = [
        "--cores",
        "--nodes",
        "--machine",
        "--seeds",
        "--first-seed",
        "--slack",
        "--watchdog",
        "--html",
        "--output",
        "--what-if",
    ];
    let cargos = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    cargos.map(|word| word.split('=').next().unwrap_or(word)).find(|word| OURS.contains(word))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::refused(format!("{}: {}", path.display(), crate::cause(&error))))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(255))
}
