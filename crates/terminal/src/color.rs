//! Whether text is coloured.
//!
//! # Boundary
//! Decides whether text is coloured; its writer chooses the colours. `--color` is read once, at the start ([`choose`]).
//!
//! # Why
//! The command line has precedence over the environment, and the environment over the kind of output: `--color always | less -R`
//! has colours, `NO_COLOR=1` on a terminal has none ([no-color.org](https://no-color.org)). Weakness: one answer for the process.

use clap::ValueEnum;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::sync::OnceLock;

/// When text is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum When {
    /// On a terminal that is not called `dumb`, unless NO_COLOR is set
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}

impl From<When> for clap::ColorChoice {
    fn from(when: When) -> Self {
        match when {
            When::Auto => Self::Auto,
            When::Always => Self::Always,
            When::Never => Self::Never,
        }
    }
}

static CHOSEN: OnceLock<When> = OnceLock::new();

/// The choice of the command line, for the rest of the process.
pub fn choose(when: When) {
    // A command line is read once.
    let _ = CHOSEN.set(when);
}

/// Whether text for `output` is coloured.
pub fn is_wanted(output: &impl IsTerminal) -> bool {
    let chosen = CHOSEN.get().copied().unwrap_or_default();
    decide(chosen, output.is_terminal(), &|name| env::var_os(name))
}

fn decide(chosen: When, is_terminal: bool, variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    match chosen {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
            let is_dumb = variable("TERM").is_some_and(|name| name == "dumb");
            is_terminal && !is_set("NO_COLOR") && !is_dumb
        }
    }
}

/// The value of `--color` in `words`, before they are parsed: errors of the command line are coloured by it, too.
pub(crate) fn in_words(words: &[OsString]) -> When {
    let word = |value: &OsStr| When::from_str(value.to_str()?, false).ok();
    let own = words.iter().take_while(|word| *word != "--");
    let next = words.iter().skip(1).map(Some).chain([None]);
    let said = own.zip(next).filter_map(|(one, next)| match one.to_str()? {
        "--color" => word(next?),
        one => word(one.strip_prefix("--color=")?.as_ref()),
    });
    said.last().unwrap_or_default()
}

/// `text` in a colour that every terminal has, if colours are on; `code` is its number, 31 for red.
pub fn painted(text: &str, code: u8, wanted: bool) -> String {
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_environment_and_that_before_the_terminal() {
        let check = |chosen, terminal, variables: &[(&str, &str)], expected| {
            let find = |name: &str| {
                let found = variables.iter().find(|(one, _)| *one == name);
                found.map(|(_, value)| OsString::from(value))
            };
            assert_eq!(
                decide(chosen, terminal, &find),
                expected,
                "{chosen:?} {terminal} {variables:?}"
            );
        };
        check(When::Auto, true, &[("TERM", "xterm")], true);
        check(When::Auto, true, &[], true);
        check(When::Auto, false, &[], false);
        check(When::Auto, true, &[("NO_COLOR", "1")], false);
        check(When::Auto, true, &[("NO_COLOR", "")], true);
        check(When::Auto, true, &[("TERM", "dumb")], false);
        check(When::Always, false, &[("NO_COLOR", "1"), ("TERM", "dumb")], true);
        check(When::Never, true, &[], false);
    }

    #[test]
    fn words_are_looked_at_as_they_will_be_read() {
        let check = |line: &str, expected| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(in_words(&words), expected, "{line}");
        };
        check("uvfs stat --color never", When::Never);
        check("uvfs --color=always stat --bogus", When::Always);
        check("uvfs stat --color", When::Auto);
        check("uvfs stat --color=pink", When::Auto);
        check("uvfs run -- --color=always", When::Auto);
    }

    #[test]
    fn paint_is_put_on_and_left_out() {
        assert_eq!(painted("dead", 31, true), "\x1b[31mdead\x1b[0m");
        assert_eq!(painted("dead", 31, false), "dead");
    }
}
