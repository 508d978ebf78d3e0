//! The reference of a command line as a document: the help of each command, in turn.
//!
//! # Boundary
//! Renders and compares; each program supplies its words.
//!
//! # Why
//! A reference that is written by hand is wrong after the next new flag. The document holds the output of `--help`, so
//! there is one text to keep true, and the test of each program that calls [`check`] keeps it. Weakness: it is as long as
//! all helps together, with examples that two of them share.

use clap::Command;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Columns of the document, whatever the terminal has.
const COLUMNS: usize = 100;

/// With this variable set, [`check`] writes the document instead of comparing it.
pub const WRITE: &str = "UVFS_WRITE_REFERENCE";

/// The document: `opening`, then a section for each command that is not hidden.
pub fn text(command: Command, opening: &str) -> String {
    let mut command = command.term_width(COLUMNS);
    command.build();
    let mut text = format!("{opening}\n");
    sections(&mut command, &mut text);
    text
}

fn sections(command: &mut Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let help = help.join("\n");
    let _ = write!(text, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    let inner = command.get_subcommands_mut();
    for inner in inner.filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        sections(inner, text);
    }
}

/// Compares the file at `path` with the document, or writes the file where [`WRITE`] is set.
///
/// # Errors
/// A line that says what differs and how to write the file again.
pub fn check(path: &Path, text: &str) -> Result<(), String> {
    match std::env::var_os(WRITE) {
        None => compare(path, text),
        Some(_) => fs::write(path, text).map_err(|error| format!("{}: {error}", path.display())),
    }
}

fn compare(path: &Path, text: &str) -> Result<(), String> {
    let shown = path.display();
    let written = fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    let differs = |(ours, theirs): (&str, &str)| ours != theirs;
    let both = || text.lines().zip(written.lines());
    if written == text {
        return Ok(());
    }
    let line = both().position(differs).unwrap_or(both().count()) + 1;
    Err(format!("{shown}:{line} is not what `--help` says; {WRITE}=1 writes it anew"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        let inner = Command::new("mount").about("Mounts").arg(Arg::new("lazy").long("lazy"));
        Command::new("prog").subcommand(inner).subcommand(Command::new("ask").hide(true))
    }

    #[test]
    fn every_command_has_its_section_and_hidden_ones_have_none() {
        let text = text(command(), "# The reference");
        let titles: Vec<&str> = text.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(titles, ["# The reference", "## prog", "## prog mount"]);
        assert!(text.contains("--lazy"), "{text}");
    }

    #[test]
    fn a_document_that_is_behind_is_reported_by_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reference.md");
        let text = text(command(), "# The reference");
        assert!(compare(&path, &text).is_err(), "there is none");
        fs::write(&path, &text).unwrap();
        assert_eq!(compare(&path, &text), Ok(()));
        fs::write(&path, text.replace("--lazy", "--idle")).unwrap();
        let line = text.lines().position(|line| line.contains("--lazy")).unwrap() + 1;
        let error = compare(&path, &text).unwrap_err();
        assert!(error.contains(&format!("reference.md:{line} ")), "{error}");
        fs::write(&path, text.trim_end()).unwrap();
        assert!(compare(&path, &text).is_err(), "the last newline is part of it");
    }
}
