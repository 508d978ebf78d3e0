//! Why something could not be done: one line.
//!
//! # Boundary
//! Text for a person; no code decides by its kind.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Thing, cause and remedy in one line, as every refusal of the command line has it. Weakness: a caller
//! that wants to tell causes apart has to look before it calls.

use std::fmt;
use std::io;

/// One line: thing, cause, remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    line: String,
}

impl Error {
    /// An error that says `line`.
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into() }
    }

    /// `thing` met an error of the operating system.
    pub fn io(thing: impl fmt::Display, error: &io::Error) -> Self {
        Self::new(format!("{thing}: {}", cause(error)))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A file name may hold a newline; the line stays one.
        out.write_str(&self.line.replace('\n', "\\n"))
    }
}

impl std::error::Error for Error {}

impl From<uvfs_coherence::Error> for Error {
    fn from(error: uvfs_coherence::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// The words of `error` without the number that `std` appends.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_one_line_without_numbers() {
        assert_eq!(Error::new("a\nb").to_string(), "a\\nb");
        let denied = Error::io("/x", &io::Error::from_raw_os_error(13));
        assert_eq!(denied.to_string(), "/x: Permission denied");
    }
}
