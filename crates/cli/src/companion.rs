//! `uvfs contention`: a program of its own, started in this one's place as git starts `git-NAME`.
//!
//! # Boundary
//! Finds it and passes all words on; knows nothing of its work.
//!
//! # Why
//! The analyser carries a compiler's worth of readers and a library for other programs; a user that only mounts
//! directories builds none of that. The copy beside this program is of the same installation, so that is tried first.
//! Weakness: one found in PATH may be another version.

use crate::Failure;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Exit statuses as a shell has them.
const NOT_FOUND: u8 = 127;
const NOT_STARTED: u8 = 126;

/// A program that users see as a part of this one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Companion {
    /// The subcommand.
    word: &'static str,
    /// The program.
    program: &'static str,
    /// The command that installs it.
    remedy: &'static str,
}

/// The analyser.
pub(crate) const CONTENTION: Companion = Companion {
    word: "contention",
    program: "uvfs-contention",
    remedy: "`cargo install --locked --path crates/contention-cli` in uvfs's sources installs it",
};

/// Becomes `companion`, with this process's arguments behind the subcommand.
///
/// # Errors
/// It is not installed, or cannot be started.
pub(crate) fn run(companion: Companion) -> Result<ExitCode, Failure> {
    // The first argument is the subcommand. As they are: a `--` is the program's.
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    let beside = std::env::current_exe().ok().and_then(|own| beside(&own, companion.program));
    let program = beside.unwrap_or_else(|| companion.program.into());
    let error = Command::new(&program).args(words).exec();
    Err(failure(companion, &program, &error))
}

/// The file `program` beside `own`, if there is one.
fn beside(own: &Path, program: &str) -> Option<PathBuf> {
    Some(own.parent()?.join(program)).filter(|path| path.is_file())
}

/// Whether a folder of PATH has a file `name`, as far as it can be seen.
fn is_in_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

fn failure(companion: Companion, program: &Path, error: &io::Error) -> Failure {
    let Companion { word, program: name, remedy } = companion;
    // The search ends with EACCES when one folder of PATH may not be read, also where no folder has the program.
    let searched = program == Path::new(name) && !is_in_path(name);
    if searched || error.kind() == io::ErrorKind::NotFound {
        return Failure::of_another(
            format!("{word}: {name} is neither beside this program nor in PATH; {remedy}"),
            NOT_FOUND,
        );
    }
    let cause = crate::cause(error);
    Failure::of_another(
        format!("{}: {cause}; see that you may execute it", program.display()),
        NOT_STARTED,
    )
}
