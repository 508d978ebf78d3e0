//! A command line, read or refused.
//!
//! # Boundary
//! Each program gives its words their meaning; here are the reader's own messages.
//!
//! # Why
//! A wrong tip is worse than none, since users try it first. Weakness: tips are recognised by their first words.

use crate::color;
use clap::Parser;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;

/// The end of the help of a command whose exit status has no more to tell.
pub const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  refused or failed; standard error names the cause and the remedy
  2  the command line is not valid";

/// Reads the command line; ends the program with help, or with an error message.
pub fn read<P: Parser>(words: Vec<OsString>) -> P {
    // Errors of a command line are coloured as it says.
    let command = P::command().color(color::in_words(&words).into());
    let read = command.try_get_matches_from(words).and_then(|read| P::from_arg_matches(&read));
    read.unwrap_or_else(|error| without_wrong_tips(error).exit())
}

/// `error` without the advice to write unknown words behind `--`: no argument of ours takes them.
fn without_wrong_tips(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().starts_with("to pass "));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "prog")]
    struct Arguments {
        place: Option<String>,
        #[arg(long)]
        lazy: bool,
    }

    /// `uvfs mount --bogus` was answered with "to pass '--bogus' as a value, use '-- --bogus'".
    #[test]
    fn tips_lead_somewhere() {
        for line in [&["prog", "--bogus"][..], &["prog", "/a", "--lazy", "--frob"]] {
            let error = Arguments::try_parse_from(line).unwrap_err();
            let text = without_wrong_tips(error).render().to_string();
            assert!(!text.contains("-- --") && !text.contains("as a value"), "{text}");
            assert!(text.contains("unexpected argument") && text.contains("--help"), "{text}");
        }
        // A near miss still gets its tip.
        let error = Arguments::try_parse_from(["prog", "--lazi"]).unwrap_err();
        assert!(without_wrong_tips(error).render().to_string().contains("--lazy"));
        assert!(Arguments::try_parse_from(["prog", "--lazy", "/a"]).is_ok_and(|read| read.lazy));
    }
}
