//! Rules for language: forms that a reader has to read twice are counted, and their number may only fall.
//!
//! # Boundary
//! Reads comments and identifiers of Rust files and the prose of documents. Skips literals, fences and text in backticks.
//! Dated records (decisions, results, older parts of the changelog) stay unchanged.
//!
//! # Why
//! `CONTRIBUTING.md` asks for plain technical English. A comment with `who` for a thread hides which thread. Weakness:
//! the rule knows a list of words; a sentence can be obscure without any of them.

use super::Fault;
use super::code::{Code, has_word};
use crate::tree::Tree;

/// Words that stand for an actor that has a name: the reader, the writer, the caller, the kernel, the thread.
const PEOPLE: &[&str] =
    &["who", "whoever", "whom", "he", "him", "his", "himself", "nobody", "somebody", "anybody"];
/// Idioms, each of which stands for one of the field's verbs.
const IDIOMS: &[&str] =
    &["let go", "lets go", "come in", "comes in", "came in", "for want of", "as above", "in vain"];
/// Words that identifiers do not have besides [`PEOPLE`]: a value has the name of its content, a test that of its actor.
const NO_NAME: &[&str] = &["everybody", "told"];
/// Files with such identifiers, and on how many lines.
const NAMES_LEFT: &[(&str, usize)] = &[
    ("crates/fuse/src/dispatch/perform.rs", 6),
    ("crates/fuse/src/notify.rs", 32),
    ("crates/vfs/src/unwritten.rs", 6),
];
/// Documents that record a decision or measurement at a date, or that a test prints from code.
const RECORDS: &[&str] = &["docs/decisions/", "bench/results/", "docs/reference"];

/// Longest header of a file, in lines.
const HEADER_MAX: usize = 25;
/// Parts of the tree with longer headers, and how many.
const LONG_HEADERS: &[(&str, usize)] = &[
    ("crates/backends/", 1),
    ("crates/coherence/", 1),
    ("crates/contention-runtime/", 1),
    ("crates/contention/", 1),
];

pub(super) fn faults(tree: &Tree) -> Vec<Fault> {
    let (mut faults, headers) = found(tree);
    faults.extend(risen(headers, LONG_HEADERS));
    faults.extend(risen(names(tree), NAMES_LEFT));
    faults
}

/// The identifiers of `tree` with a word for an actor, one for each line.
fn names(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".rs")) {
        for (line, code, _) in Code::new(text).lines() {
            let mut names = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_bad =
                |word: &String| PEOPLE.contains(&word.as_str()) || NO_NAME.contains(&word.as_str());
            if let Some(name) = names.find(|name| words_of(name).iter().any(is_bad)) {
                faults.push(Fault::new(
                    path,
                    line,
                    format!("`{name}`: name the actor or the content"),
                ));
            }
        }
    }
    faults
}

/// The words of an identifier in any of Rust's styles, in small letters.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in name.chars() {
        if letter == '_' || letter.is_uppercase() && was_small {
            words.push(String::new());
        }
        was_small = letter.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| letter != '_') {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

/// The forms and the long headers of `tree`.
fn found(tree: &Tree) -> (Vec<Fault>, Vec<Fault>) {
    let mut forms = Vec::new();
    let mut headers = Vec::new();
    for (path, text) in tree.files() {
        if path.ends_with(".rs") {
            for (line, comment) in Code::new(text).comments() {
                look(path, line, comment, &mut forms);
            }
            let header = text.lines().filter(|line| line.starts_with("//!")).count();
            if header > HEADER_MAX {
                let what = format!(
                    "a header of {header} lines; at most {HEADER_MAX}, the rest belongs in docs/"
                );
                headers.push(Fault::new(path, 1, what));
            }
        } else if path.ends_with(".md") && !RECORDS.iter().any(|record| path.starts_with(record)) {
            for (line, prose) in super::documents::prose(newest(path, text)) {
                look(path, line, &prose, &mut forms);
            }
        }
    }
    (forms, headers)
}

/// The part of the changelog that is not released; of other files, all.
fn newest<'a>(path: &str, text: &'a str) -> &'a str {
    let released = || text.match_indices("\n## ").nth(1).map(|(at, _)| at);
    match path {
        "CHANGELOG.md" => &text[..released().unwrap_or(text.len())],
        _ => text,
    }
}

/// Adds a fault for each form in `words`, a line of `path`.
fn look(path: &str, line: usize, words: &str, faults: &mut Vec<Fault>) {
    let plain: String = words.split('`').step_by(2).collect::<Vec<_>>().join("code").to_lowercase();
    // Of a person it is plain English.
    let plain = plain.replace("user who", "user that").replace("users who", "users that");
    let people = PEOPLE.iter().map(|word| (word, "name the actor"));
    let idioms = IDIOMS.iter().map(|word| (word, "use the field's verb (docs/glossary.md)"));
    for (word, instead) in people.chain(idioms).filter(|(word, _)| has_word(&plain, word)) {
        faults.push(Fault::new(path, line, format!("\"{word}\": {instead}")));
    }
}

/// The faults of those parts of the tree with more than the number in `left`. A part that is not in `left` may have
/// none.
fn risen(faults: Vec<Fault>, left: &[(&str, usize)]) -> Vec<Fault> {
    let part = |fault: &Fault| left.iter().position(|(part, _)| fault.path.starts_with(part));
    let mut counts = vec![0; left.len()];
    faults.iter().filter_map(part).for_each(|at| counts[at] += 1);
    let grew = |fault: &Fault| part(fault).is_none_or(|at| counts[at] > left[at].1);
    faults.into_iter().filter(grew).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, text: &str) -> Vec<String> {
        let (mut faults, headers) = found(&Tree::made_up(&[(path, text)]));
        faults.extend(headers);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn people_and_idioms_are_found_in_comments_and_prose() {
        let source = "//! Who waits for the user who asks.\nfn who() { \"who\"; } // lets go\n/// `who` is whole\n";
        let said = [
            "a.rs:1: \"who\": name the actor",
            "a.rs:2: \"lets go\": use the field's verb (docs/glossary.md)",
        ];
        assert_eq!(check("a.rs", source), said);
        let page = "A thread, for want of room.\n```sh\nwho\n```\n`who`\n";
        assert_eq!(check("docs/a.md", page).len(), 1);
        assert!(check("docs/decisions/0001-a.md", "who\n").is_empty());
    }

    #[test]
    fn released_parts_of_the_changelog_stay_as_they_are() {
        let text = "# Changes\n\n## Unreleased\n\nA thread waits.\n\n## 0.1\n\nWho waits.\n";
        assert!(check("CHANGELOG.md", text).is_empty());
        assert_eq!(check("CHANGELOG.md", &text.replace("A thread", "Nobody")).len(), 1);
    }

    #[test]
    fn people_are_found_in_identifiers() {
        let names = |text: &str| -> Vec<String> {
            let faults = names(&Tree::made_up(&[("a.rs", text)]));
            faults.iter().map(ToString::to_string).collect()
        };
        let said = "a.rs:2: `an_error_is_told`: name the actor or the content";
        assert_eq!(names("\nfn an_error_is_told() {}\n"), [said]);
        for text in ["struct Nobody;", "let told = 1;", "const AS_NOBODY: u8 = 1;", "IsTold"] {
            assert_eq!(names(text).len(), 1, "{text}");
        }
        let fine = "fn the_one_whose_head() {} // told\nlet then = \"who\"; Untold\n";
        assert_eq!(names(fine), [""; 0]);
    }

    #[test]
    fn long_headers_are_found() {
        assert!(check("a.rs", &"//! a\n".repeat(HEADER_MAX)).is_empty());
        assert_eq!(check("a.rs", &"//! a\n".repeat(HEADER_MAX + 1)).len(), 1);
    }

    #[test]
    fn only_a_number_that_rises_is_a_fault() {
        let faults = |count| (0..count).map(|line| Fault::new("a/b.rs", line, "who")).collect();
        assert!(risen(faults(2), &[("a/", 2)]).is_empty());
        assert_eq!(risen(faults(3), &[("a/", 2)]).len(), 3);
        assert_eq!(risen(faults(1), &[("c/", 2)]).len(), 1);
    }
}
