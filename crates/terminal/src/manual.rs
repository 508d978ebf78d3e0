//! The manual pages of a command line, one for each command.
//!
//! # Boundary
//! Renders and compares, as [`crate::reference`] does; each program supplies its words. Only tests enable the feature,
//! so no program carries it.
//!
//! # Why
//! `clap_mangen` writes title, synopsis and options. The text behind the options in a help is prose, lists under a line
//! that ends with a colon, and examples; here it becomes sections that keep their lines. Weakness: only its colon marks
//! a heading.

use crate::reference::WRITE;
use clap::Command;
use clap_mangen::Man;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Makes a page for `command` and for each command below it, by file name. `elsewhere` are commands with pages of other programs.
///
/// # Errors
/// A message, if a page lacks a part that each page needs.
pub fn pages(command: Command, elsewhere: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = BTreeMap::new();
    add(&command, None, elsewhere, &mut pages)?;
    Ok(pages)
}

fn add(
    command: &Command,
    above: Option<&str>,
    elsewhere: &[&str],
    pages: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let name = name_of(command);
    pages.insert(format!("{name}.1"), page(command, &name, above)?);
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    for inner in inner.filter(|inner| !elsewhere.contains(&inner.get_name())) {
        add(inner, Some(&name), elsewhere, pages)?;
    }
    Ok(())
}

/// The words that lead to `command`, as pages are named.
fn name_of(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

fn page(command: &Command, name: &str, above: Option<&str>) -> Result<String, String> {
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone());
    let has_commands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    // Without a date: the same flags make the same page.
    let title = escaped(&name.to_uppercase());
    let mut out = format!(".TH \"{title}\" 1 \"\" \"uvfs {version}\" \"uvfs\"\n").into_bytes();
    let rendered = man
        .render_name_section(&mut out)
        .and_then(|()| man.render_synopsis_section(&mut out))
        .and_then(|()| man.render_description_section(&mut out))
        .and_then(|()| man.render_options_section(&mut out))
        .and_then(
            |()| if has_commands { man.render_subcommands_section(&mut out) } else { Ok(()) },
        );
    rendered.map_err(|error| format!("{name}: {error}"))?;
    let mut text = String::from_utf8(out).map_err(|error| format!("{name}: {error}"))?;
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    sections(&help, &mut text);
    for section in [".SH \"EXAMPLES\"", ".SH \"EXIT STATUS\""] {
        if !text.contains(section) {
            return Err(format!("{name}: its help has no {}", section.trim_start_matches(".SH ")));
        }
    }
    text.push_str(".SH \"SEE ALSO\"\n");
    let others = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let others = others.map(name_of).chain(above.map(ToOwned::to_owned));
    let others: Vec<_> = others.map(|other| format!("\\fB{}\\fR(1)", escaped(&other))).collect();
    match others.is_empty() {
        true => text.push_str("https://github.com/uvfs/uvfs\n"),
        false => _ = writeln!(text, "{}", others.join(", ")),
    }
    Ok(text)
}

/// The text behind the options of a help, as sections.
fn sections(help: &str, text: &mut String) {
    for paragraph in help.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        match first.strip_suffix(':').filter(|title| !title.starts_with(' ') && title.len() < 40) {
            Some(title) => {
                let _ = write!(text, ".SH \"{}\"\n.nf\n", escaped(&title.to_uppercase()));
                for line in rest.lines() {
                    text.push_str(&line_of(line.strip_prefix("  ").unwrap_or(line)));
                }
                text.push_str(".fi\n");
            }
            None => {
                if !text.contains(".SH NOTES") {
                    text.push_str(".SH NOTES\n");
                } else {
                    text.push_str(".PP\n");
                }
                paragraph.lines().for_each(|line| text.push_str(&line_of(line)));
            }
        }
    }
}

/// A line of text, none of which is a command of the formatter.
fn line_of(line: &str) -> String {
    let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
    format!("{guard}{}\n", escaped(line))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Compares the pages in `folder` whose names `is_ours` with `pages`, or writes the pages where [`WRITE`] is set.
///
/// # Errors
/// A line that says which page differs, is missing or is left over, and how to write the pages again.
pub fn check(
    folder: &Path,
    pages: &BTreeMap<String, String>,
    is_ours: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let failed = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    if std::env::var_os(WRITE).is_none() {
        return compare(folder, pages, is_ours);
    }
    for name in left_over(folder, pages, is_ours)? {
        let path = folder.join(name);
        fs::remove_file(&path).map_err(|error| failed(&path, error))?;
    }
    pages
        .iter()
        .map(|(name, text)| (folder.join(name), text))
        .try_for_each(|(path, text)| fs::write(&path, text).map_err(|error| failed(&path, error)))
}

fn compare(
    folder: &Path,
    pages: &BTreeMap<String, String>,
    is_ours: impl Fn(&str) -> bool,
) -> Result<(), String> {
    if let Some(name) = left_over(folder, pages, is_ours)?.first() {
        return Err(format!("{name}: a page of no command; {WRITE}=1 removes it"));
    }
    let is_behind = |(name, text): &(&String, &String)| {
        fs::read_to_string(folder.join(name)).ok().as_ref() != Some(*text)
    };
    match pages.iter().find(is_behind) {
        Some((name, _)) => Err(format!("{name}: not what `--help` says; {WRITE}=1 writes it anew")),
        None => Ok(()),
    }
}

/// Names of ours in `folder` that are no page of `pages`.
fn left_over(
    folder: &Path,
    pages: &BTreeMap<String, String>,
    is_ours: impl Fn(&str) -> bool,
) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| is_ours(name) && !pages.contains_key(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    const HELP: &str = "Some prose - with a dash.\n\nExamples:\n  prog a\\b   what\n  .hidden\n\nExit status:\n  0  done";

    fn command() -> Command {
        let inner =
            Command::new("go").about("Goes").after_help(HELP).arg(Arg::new("far").long("far"));
        let hidden = Command::new("ask").hide(true);
        Command::new("prog").about("Is").after_help(HELP).subcommand(inner).subcommand(hidden)
    }

    #[test]
    fn every_command_has_a_page_with_examples_and_exit_statuses() {
        let pages = pages(command(), &[]).unwrap();
        assert_eq!(pages.keys().collect::<Vec<_>>(), ["prog-go.1", "prog.1"]);
        let page = &pages["prog-go.1"];
        for part in [
            ".TH \"PROG\\-GO\" 1 \"\"",
            "\\-\\-far",
            ".SH NOTES\nSome prose \\- with a dash.\n",
            ".SH \"EXAMPLES\"\n.nf\nprog a\\eb   what\n\\&.hidden\n.fi\n",
            ".SH \"EXIT STATUS\"\n.nf\n0  done\n.fi\n",
            "\\fBprog\\fR(1)",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert_eq!(super::pages(command(), &["go"]).unwrap().len(), 1, "it has a page elsewhere");
        let bare = command().subcommand(Command::new("bare").about("No help"));
        assert!(super::pages(bare, &[]).unwrap_err().contains("EXAMPLES"));
    }

    #[test]
    fn a_page_that_is_behind_or_left_over_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let pages = pages(command(), &[]).unwrap();
        let check = || compare(folder.path(), &pages, |name| name.starts_with("prog"));
        assert!(check().unwrap_err().contains("prog-go.1"));
        for (name, text) in &pages {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(check(), Ok(()));
        fs::write(folder.path().join("other.1"), "").unwrap();
        assert_eq!(check(), Ok(()), "not ours");
        fs::write(folder.path().join("prog-gone.1"), "").unwrap();
        assert!(check().unwrap_err().contains("prog-gone.1: a page of no command"));
    }
}
