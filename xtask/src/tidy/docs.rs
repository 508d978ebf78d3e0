//! Rules for documentation comments: headings alone on their line, no doubled sentence, a subject in each.
//!
//! # Boundary
//! Reads runs of `///` and of `//!`. Skips fenced blocks and, for repetition, tables. Plain comments are not read.
//!
//! # Why
//! rustdoc shows a heading with its paragraph behind it as one long title. Changes of many comments by a script left
//! such headings and sentences that stood twice, and no reader saw them. A doc that begins with `Its` or `Of` needs the
//! line before it, which an index of items does not show. Weakness: a subject may still be the wrong one.

use super::Fault;
use crate::tree::Tree;

/// Words with which the doc of an item has no subject.
const WITHOUT_SUBJECT: &[&str] = &["Its", "Their", "Of", "As", "The same", "One of them"];
/// Headings that are one word.
const ONE_WORD: &[&str] =
    &["Boundary", "Why", "Concurrency", "Errors", "Panics", "Safety", "Order", "Layout", "Classes"];
/// The longest heading, in words.
const HEADING_MAX: usize = 6;
/// Words that a header must not have twice in the same order.
const REPEATED: usize = 7;

pub(super) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let mut at = 0;
        while at < lines.len() {
            let Some(mark) = mark(lines[at]) else {
                at += 1;
                continue;
            };
            let docs = lines[at..].iter().map_while(|line| line.strip_prefix(mark));
            let docs: Vec<&str> = docs.map(str::trim).collect();
            look(path, at + 1, mark, &docs, &mut faults);
            at += docs.len();
        }
    }
    faults
}

/// The mark of a documentation comment, if `line` is one.
fn mark(line: &str) -> Option<&'static str> {
    let is_item = line.starts_with("///") && !line.starts_with("////");
    [("///", is_item), ("//!", line.starts_with("//!"))].iter().find(|(_, is)| *is).map(|(m, _)| *m)
}

/// Adds the faults of one comment, which begins in `line`.
fn look(path: &str, line: usize, mark: &str, docs: &[&str], faults: &mut Vec<Fault>) {
    let lacks = |start: &&&str| {
        docs[0].strip_prefix(**start).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    if let Some(start) = WITHOUT_SUBJECT.iter().find(lacks) {
        let what = format!("a doc that begins with \"{start}\": say what it is, or what it does");
        faults.push(Fault::new(path, line, what));
    }
    let mut fenced = false;
    let mut words: Vec<(usize, String)> = Vec::new();
    for (at, text) in docs.iter().enumerate() {
        if text.starts_with("```") {
            fenced = !fenced;
        } else if let Some(heading) = text.strip_prefix("# ").filter(|_| !fenced) {
            let count = heading.split_whitespace().count();
            let first = heading.split_whitespace().next().unwrap_or("");
            if count > HEADING_MAX || count > 1 && ONE_WORD.contains(&first) {
                let what = "a heading with its paragraph on the same line";
                faults.push(Fault::new(path, line + at, what));
            }
        }
        if !fenced && !text.starts_with('|') {
            let plain = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '\'');
            let plain = plain.filter(|word| !word.is_empty());
            words.extend(plain.map(|word| (line + at, word.to_lowercase())));
        }
    }
    let windows: Vec<_> = words.windows(REPEATED).collect();
    let same = |one: &[(usize, String)], other: &[(usize, String)]| {
        one.iter().map(|(_, word)| word).eq(other.iter().map(|(_, word)| word))
    };
    let again = |at: &usize| windows[..*at].iter().any(|before| same(before, windows[*at]));
    if let Some(at) = (0..windows.len()).find(again).filter(|_| mark == "//!") {
        let said: Vec<_> = windows[at].iter().map(|(_, word)| word.as_str()).collect();
        let what = format!("these words stand twice in the header: {}", said.join(" "));
        faults.push(Fault::new(path, windows[at][0].0, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Vec<String> {
        let faults = faults(&Tree::made_up(&[("a.rs", text)]));
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_doc_has_a_subject() {
        let said = "a doc that begins with \"Its\": say what it is, or what it does";
        assert_eq!(check("a\n/// Its name.\nb: u8,\n"), [format!("a.rs:2: {said}")]);
        for text in ["/// The same, of a file.\n", "//! Of all.\n", "/// One of them.\n"] {
            assert_eq!(check(text).len(), 1, "{text}");
        }
        let fine =
            "/// Offers.\n/// Its name.\nfn a()\n/// Assigns.\n// Its\n\"/// Its\"\n//// Its\n";
        assert_eq!(check(fine), [""; 0]);
    }

    /// Twenty headings had been joined with their paragraphs.
    #[test]
    fn a_heading_is_alone_on_its_line() {
        let said = "a heading with its paragraph on the same line";
        assert_eq!(check("//! A.\n//!\n//! # Why It is so.\n"), [format!("a.rs:3: {said}")]);
        assert_eq!(check("/// # How all of it came to be so\n").len(), 1);
        let fine =
            "//! # Why\n//! It is.\n//! # What the figures mean\n//! ```\n//! # Why not\n//! ```\n";
        assert_eq!(check(fine), [""; 0]);
    }

    /// Three headers had a sentence twice, with other line breaks.
    #[test]
    fn a_header_has_no_sentence_twice() {
        let said = "a.rs:2: these words stand twice in the header: a b c d e f g";
        assert_eq!(check("//! A b c, d e f g. H\n//! i. A b c\n//! d e f g.\n"), [said]);
        let rows = "//! | a b c d e f g |\n//! | a b c d e f g |\n";
        assert_eq!(check(&format!("{rows}//! A b c d e f. A b c d e f.\n")), [""; 0]);
        assert_eq!(check("/// A b c d e f g.\n/// A b c d e f g.\n"), [""; 0]);
    }
}
