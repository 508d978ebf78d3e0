//! The reason why a command ends unsuccessfully.

use crate::shown::shown;
use std::fmt;

/// The reason why a command ends unsuccessfully: one line, and the exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    line: String,
    status: u8,
}

impl Failure {
    /// The command was understood and cannot be done: status 1.
    pub fn refused(line: impl Into<String>) -> Self {
        Self { line: line.into(), status: 1 }
    }

    /// Another program could not be started: the line names it, and the status is a shell's.
    pub fn of_another(line: impl Into<String>, status: u8) -> Self {
        Self { line: line.into(), status }
    }

    /// The command line is not valid: status 2.
    pub fn usage(line: impl Into<String>) -> Self {
        Self { line: line.into(), status: 2 }
    }

    /// The exit status.
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file name may hold a newline, and a daemon may send any text; the line stays one.
        out.write_str(&shown(&self.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_whatever_the_file_is_called() {
        assert_eq!(Failure::refused("a\nb").to_string(), "a\\nb");
    }
}
