//! Orderings in source text, and their next weaker ones.
//!
//! # Boundary
//! Finds words for the caller. Skips tests and models.

use super::code::{Code, has_word};
use crate::tree::Tree;
use crate::weaken::Weakening;

/// One step down from each.
const STEPS: &[(&str, &[&str])] = &[
    ("AcqRel", &["Acquire", "Release"]),
    ("Acquire", &["Relaxed"]),
    ("Release", &["Relaxed"]),
    ("SeqCst", &["AcqRel"]),
];
const PREFIX: &str = "Ordering::";

/// Every ordering of `path`'s product code, one step weaker each.
pub(crate) fn weakenings(tree: &Tree, path: &str) -> Vec<Weakening> {
    if super::sources::is_tests_only(tree, path) {
        return Vec::new();
    }
    let text = tree.text(path).unwrap_or_default();
    let (code, lines): (Code, Vec<&str>) = (Code::new(text), text.lines().collect());
    let mut found = Vec::new();
    for (line, code, test) in code.lines() {
        if !test && !super::sources::is_use(code) {
            of_line(line, code, lines[line - 1], &mut found);
        }
    }
    found
}

/// Those of one line; `code` is `text` without comments, of the same length.
fn of_line(line: usize, code: &str, text: &str, found: &mut Vec<Weakening>) {
    for &(strong, weaker) in STEPS {
        for (at, _) in code.match_indices(&format!("{PREFIX}{strong}")) {
            let word = at + PREFIX.len();
            if !has_word(&code[at..word + strong.len()], strong)
                || code[word + strong.len()..].starts_with(char::is_alphanumeric)
            {
                continue;
            }
            if let Some(fence) = code[..at].strip_suffix("fence(") {
                // A weaker fence than Acquire or Release is none.
                let end = at + code[at..].find(')').unwrap_or(code.len() - at - 1) + 1;
                let text = format!("{}(){}", &text[..fence.len()], &text[end.min(text.len())..]);
                found.push(Weakening { line, text, what: format!("fence {strong} -> none") });
                continue;
            }
            for &weak in weaker_at(strong, weaker, &code[..at]) {
                let (before, after) = (&text[..word], &text[word + strong.len()..]);
                let text = format!("{before}{weak}{after}");
                found.push(Weakening { line, text, what: format!("{strong} -> {weak}") });
            }
        }
    }
}

/// A load cannot release, and a store cannot acquire.
fn weaker_at<'a>(strong: &str, weaker: &'a [&'a str], before: &str) -> &'a [&'a str] {
    match strong {
        "SeqCst" if before.contains(".load(") => &["Acquire"],
        "SeqCst" if before.contains(".store(") => &["Release"],
        _ => weaker,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(usize, String, String)> {
        let tree = Tree::made_up(&[("crates/concurrent/src/a.rs", text)]);
        let all = weakenings(&tree, "crates/concurrent/src/a.rs");
        all.into_iter().map(|one| (one.line, one.what, one.text)).collect()
    }

    #[test]
    fn each_ordering_goes_one_step_down() {
        let found = of("x.swap(1, Ordering::AcqRel);\n");
        let whats: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
        assert_eq!(whats, ["AcqRel -> Acquire", "AcqRel -> Release"]);
        assert_eq!(found[1].2, "x.swap(1, Ordering::Release);");
        let both = of("\nx.compare_exchange(0, 1, Ordering::Acquire, Ordering::Acquire);\n");
        assert_eq!(both.len(), 2);
        assert_eq!(both[1].2, "x.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);");
        assert_eq!(of("x.load(Ordering::SeqCst);\n")[0].1, "SeqCst -> Acquire");
        assert_eq!(of("x.load(Ordering::Relaxed);\n"), []);
    }

    #[test]
    fn a_fence_goes_whole() {
        let found = of("    fence(Ordering::SeqCst); // why\n");
        assert_eq!(found[0].2, "    (); // why");
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn comments_imports_and_tests_are_none() {
        assert_eq!(of("// Ordering::Acquire\nuse a::Ordering::Acquire;\n"), []);
        assert_eq!(of("#[cfg(test)]\nmod t {\n x.load(Ordering::Acquire);\n}\n"), []);
    }
}
