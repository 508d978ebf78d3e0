//! What the commands of uvfs share towards who types them.
//!
//! * [`output`]: standard output that is complete, or said not to be
//! * [`shown`]: text of strangers, without what a terminal obeys
//! * [`interrupt`]: Ctrl-C, once for an end in good order and twice for one at once
//! * [`color`]: whether text is coloured
//! * [`command_line`]: a command line read, or what is wrong with it
//! * [`mod@reference`]: the helps of all commands as a document; `manual`, for tests, as manual pages
//!
//! # Boundary
//! Knows no mount and no profile. What a program says is its own.
//!
//! # Why
//! Two programs are one tool to their user, `uvfs` and `uvfs-contention`: a line of one looks like a line of the
//! other. Weakness: texts are English only.

#![forbid(unsafe_code)]

pub mod color;
pub mod command_line;
pub mod interrupt;
#[cfg(any(test, feature = "manual"))]
pub mod manual;
pub mod output;
pub mod reference;
pub mod shown;

use std::io;

/// The words of `error` without the number that `std` appends.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error ").unwrap_or(text.len());
    // What another program said ends with a newline as a rule.
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
