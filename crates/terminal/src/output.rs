//! Standard output: complete, or said not to be.
//!
//! # Boundary
//! Writes what it is given, as it is; [`crate::shown`] takes out what a terminal obeys.
//!
//! # Why
//! A report written to a full disk was cut short with status 0. Now the first failure is kept, and the program
//! ends by it. Weakness: one flag for the process, so a program says it once, at its end.

use crate::cause;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// Why standard output could not be written, from the first time on.
static OUTPUT_FAILED: OnceLock<String> = OnceLock::new();

/// Writes `line` to standard output, as [`print_text`] does.
pub fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Writes `text` to standard output. A reader that left is no failure of ours; any other is told at the end
/// of the program, which fails by it.
pub fn print_text(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            OUTPUT_FAILED.get_or_init(|| cause(&error));
        }
        _ => {}
    }
}

/// As [`print_text`]; false if nobody reads any more, as behind `| head`: a program that goes on for ever ends then.
pub fn is_read(text: &str) -> bool {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => true,
        Err(error) => {
            if error.kind() != io::ErrorKind::BrokenPipe {
                OUTPUT_FAILED.get_or_init(|| cause(&error));
            }
            false
        }
    }
}

/// The exit status of a program that did what it was to do: a failure if nobody can read of it.
pub fn with_output(status: ExitCode) -> ExitCode {
    let Some(cause) = OUTPUT_FAILED.get() else { return status };
    eprintln!("uvfs: standard output: {cause}; what was to be printed is not complete");
    if status == ExitCode::SUCCESS { ExitCode::FAILURE } else { status }
}
