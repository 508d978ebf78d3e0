//! Standard output: complete, or reported as cut.
//!
//! # Boundary
//! Writes its input unchanged; [`crate::shown`] takes out the characters that a terminal obeys.
//!
//! # Why
//! A report to a full disk was cut and ended with status 0. Now the program keeps the first failure and ends with
//! a failure status. Weakness: one flag for the process, so a program reports it once, at its end.

use crate::cause;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// Why standard output could not be written, from the first failure on.
static OUTPUT_FAILED: OnceLock<String> = OnceLock::new();

/// Writes `line` to standard output, as [`print_text`] does.
pub fn print_line(line: &str) {
    print_text(&format!("{line}\n"));
}

/// Writes `text` to standard output. A reader that left is no failure; any other failure is reported at the end
/// of the program, which then fails.
pub fn print_text(text: &str) {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            OUTPUT_FAILED.get_or_init(|| cause(&error));
        }
        _ => {}
    }
}

/// Prints as [`print_text`] does; false if no process reads any more, as behind `| head`: an endless program then ends.
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

/// Waits for `time`; true at once if no process reads standard output any more. A program that has nothing to print
/// learns it by no write.
pub(crate) fn is_closed_within(time: Duration) -> bool {
    let out = io::stdout();
    let mut watched = [PollFd::new(&out, PollFlags::empty())];
    let time = Timespec::try_from(time).ok();
    // A signal ends the wait early, and the caller looks at its flag.
    poll(&mut watched, time.as_ref()).is_ok_and(|count| count > 0)
}

/// The exit status of a program that succeeded: a failure if its output could not be written.
pub fn with_output(status: ExitCode) -> ExitCode {
    let Some(cause) = OUTPUT_FAILED.get() else { return status };
    eprintln!("uvfs: standard output: {cause}; the output is not complete");
    if status == ExitCode::SUCCESS { ExitCode::FAILURE } else { status }
}
