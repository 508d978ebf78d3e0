//! A command line, read or refused.
//!
//! # Boundary
//! Each program gives its words their meaning, and the remedies for words of other tools. A refusal is one line, as each
//! other refusal of the program is.
//!
//! # Why
//! A wrong tip is worse than none, since users try it first. Weakness: tips, and the parts of the parser's own message, are
//! recognised by their first words.

use crate::color;
use crate::shown::shown;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use std::ffi::{OsStr, OsString};

/// The end of the help of a command whose exit status has no more to tell.
pub const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  refused or failed; standard error names the cause and the remedy
  2  the command line is not valid";

/// What to write in place of a word that another tool has, or that is not enough.
#[derive(Debug, Clone, Copy)]
pub struct Remedy {
    /// The subcommand.
    pub command: &'static str,
    /// The word.
    pub word: &'static str,
    /// The end of the refusal.
    pub remedy: &'static str,
}

/// Reads the command line; ends the program with help, or with a line that says why it is refused.
pub fn read<P: Parser>(words: Vec<OsString>, remedies: &[Remedy]) -> P {
    // Help is coloured as the command line says.
    let command = P::command().color(color::in_words(&words).into());
    let read =
        command.clone().try_get_matches_from(&words).and_then(|read| P::from_arg_matches(&read));
    read.unwrap_or_else(|error| {
        if !error.use_stderr() {
            error.exit();
        }
        eprintln!("uvfs: {}", refusal(error, command, &words, remedies));
        std::process::exit(2)
    })
}

/// The refusal of `words`: the word, the cause, and a remedy. The commands follow if none was named.
fn refusal(
    error: clap::Error,
    mut command: Command,
    words: &[OsString],
    remedies: &[Remedy],
) -> String {
    let error = without_wrong_tips(error);
    let text = error.render().to_string();
    let (path, last) = subcommand(&mut command, words);
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("`{path}`: no command is named; name one of these\n\n{text}");
    }
    let (message, usage) = text.split_once("Usage: ").unwrap_or((&text, ""));
    let usage = usage.lines().next().unwrap_or_default();
    let lines = message.strip_prefix("error: ").unwrap_or(message).lines().map(str::trim);
    let mut line = String::new();
    for part in lines.filter(|part| !part.is_empty() && !part.starts_with("For more information")) {
        let between = match part.strip_prefix("tip: ") {
            _ if line.is_empty() => "",
            Some(_) => "; ",
            None => " ",
        };
        line = line + between + part.strip_prefix("tip: ").unwrap_or(part);
    }
    let missing = error.kind() == ErrorKind::MissingRequiredArgument;
    let given = |remedy: &&Remedy| {
        let is_it = |word: &OsStr| word == remedy.word;
        remedy.command == last
            && match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::String(word)) => word == remedy.word,
                _ => missing && words.iter().any(|word| is_it(word)),
            }
    };
    let remedy = match remedies.iter().find(given) {
        Some(found) => found.remedy.to_owned(),
        None if missing => format!("write `{usage}`, see `{path} --help`"),
        None => format!("see `{path} --help`"),
    };
    shown(&format!("{line}; {remedy}")).into_owned()
}

/// The subcommand that `words` name, in whole and its last word.
fn subcommand(command: &mut Command, words: &[OsString]) -> (String, String) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let (mut at, mut path) = (&*command, vec![name]);
    for word in words.iter().skip(1) {
        let Some(found) = word.to_str().and_then(|word| at.find_subcommand(word)) else { break };
        path.push(found.get_name());
        at = found;
    }
    (path.join(" "), path.last().map(ToString::to_string).unwrap_or_default())
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

    #[derive(Debug, Parser)]
    #[command(name = "prog", subcommand_required = true, arg_required_else_help = true)]
    enum Commands {
        Put {
            place: String,
            #[arg(long)]
            only: bool,
            #[arg(long, requires = "only")]
            times: Option<u8>,
        },
    }

    /// A line of the parser began with "error: " and had no remedy: `mount -o ro` was an "unexpected argument".
    #[test]
    fn refusals_are_one_line_with_a_remedy() {
        let remedies = [
            Remedy { command: "put", word: "-o", remedy: "write --only" },
            Remedy { command: "put", word: "--times", remedy: "add --only" },
        ];
        let refused = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(OsString::from).collect();
            let error = Commands::try_parse_from(&words).unwrap_err();
            refusal(error, <Commands as clap::CommandFactory>::command(), &words, &remedies)
        };
        let check = |words: &[&str], expected: &str| assert_eq!(refused(words), expected);
        check(&["prog", "put", "a", "-o", "x"], "unexpected argument '-o' found; write --only");
        check(&["prog", "put", "a", "-p"], "unexpected argument '-p' found; see `prog put --help`");
        check(
            &["prog", "put", "a", "--onyl"],
            "unexpected argument '--onyl' found; a similar argument exists: '--only'; see `prog put --help`",
        );
        check(
            &["prog", "put"],
            "the following required arguments were not provided: <PLACE>; write `prog put <PLACE>`, see `prog put --help`",
        );
        let times = refused(&["prog", "put", "a", "--times", "3"]);
        assert!(times.ends_with("; add --only"), "{times}");
        assert!(refused(&["prog", "put", "a", "x\ny"]).lines().count() == 1);
        let nothing = refused(&["prog"]);
        assert!(nothing.starts_with("`prog`: no command is named; name one of these\n\n"));
        assert!(nothing.contains("Usage: prog"), "{nothing}");
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
