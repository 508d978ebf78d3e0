//! Text from elsewhere, for a terminal.
//!
//! # Boundary
//! The one place that decides which characters are shown unchanged. Names of files and mounts, errors, and reports of
//! daemons may come from another user. All text that this program did not write itself passes
//! [`shown`] before it reaches a terminal. JSON has escapes of its own.
//!
//! # Why
//! A terminal obeys control characters: they set its title, move the cursor, and some make it type. They are therefore
//! shown as escapes, C1 and the marks that reverse text included. None is left out, so two names that
//! differ look different. Weakness: a name that holds the text `\n` looks like one that holds a newline.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;

/// `text` in one line, without characters that a terminal obeys.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            other if !is_obeyed(other) => out.push(other),
            // Writing to a `String` cannot fail.
            other if u32::from(other) < 0x100 => _ = write!(out, "\\x{:02x}", u32::from(other)),
            other => _ = write!(out, "\\u{{{:x}}}", u32::from(other)),
        }
    }
    out.into()
}

/// Shows a name, which need not be text.
pub fn shown_name(name: impl AsRef<OsStr>) -> String {
    shown(&name.as_ref().to_string_lossy()).into_owned()
}

/// Shows text line by line: for a layout in which single words come from elsewhere.
pub fn shown_lines(text: &str) -> String {
    text.lines().map(shown).collect::<Vec<_>>().join("\n")
}

/// Control characters, line and paragraph separators, and characters that change the direction of text.
fn is_obeyed(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any user can mount a file system of FUSE's under our type, and put such a title into its source: root's
    /// `uvfs stat` wrote it to the terminal as it was.
    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(shown("\u{1b}]0;pwned\u{7}"), "\\x1b]0;pwned\\x07");
        assert_eq!(shown("\u{9b}31m and \u{7f}"), "\\x9b31m and \\x7f");
        assert_eq!(shown("a\nuvfs: another line\r"), "a\\nuvfs: another line\\x0d");
        assert_eq!(shown("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
        for code in (0..0xa0).filter_map(char::from_u32).filter(|one| one.is_control()) {
            assert!(!shown(&code.to_string()).chars().any(char::is_control), "{code:?}");
        }
    }

    #[test]
    fn what_is_text_stays_as_it_is() {
        for text in ["", "/srv/data", "größer 日本語 \\n", "two  blanks"] {
            assert!(matches!(shown(text), Cow::Borrowed(same) if same == text));
        }
        assert_eq!(shown_lines("a\u{1b}\n  b"), "a\\x1b\n  b");
    }
}
