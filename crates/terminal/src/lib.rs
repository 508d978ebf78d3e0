//! Reading from and writing to a terminal, for the commands of uvfs.
//!
//! * [`output`]: standard output that is complete, or else reported as cut
//! * [`shown`]: text from elsewhere, without characters that a terminal obeys
//! * [`interrupt`]: Ctrl-C, once to end in order and twice to end at once
//! * [`nearest`]: the name that a user may have meant
//! * [`color`]: whether text is coloured
//! * [`command_line`]: reads a command line, or says why it is wrong
//! * [`Failure`]: why a command ends unsuccessfully
//! * [`mod@reference`]: the helps of all commands as a document; `manual`, for tests, as manual pages
//!
//! # Boundary
//! Knows no mount and no profile. Each program has its own messages.
//!
//! # Why
//! Users see `uvfs` and `uvfs-contention` as one tool, so lines of both look alike. Weakness: texts are English only.

#![forbid(unsafe_code)]

pub mod color;
pub mod command_line;
mod failure;
pub mod interrupt;
#[cfg(any(test, feature = "manual"))]
pub mod manual;
pub mod nearest;
pub mod output;
pub mod reference;
pub mod shown;

pub use failure::Failure;
use std::io;

/// The words of `error` without the number that `std` appends.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error ").unwrap_or(text.len());
    // The message of another program mostly ends with a newline.
    text[..end].trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_words_without_numbers() {
        assert_eq!(cause(&io::ErrorKind::ResourceBusy.into()), "resource busy");
        assert_eq!(cause(&io::Error::from_raw_os_error(16)), "Device or resource busy");
        assert_eq!(cause(&io::Error::other("plain words")), "plain words");
    }
}
