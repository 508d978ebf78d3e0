//! Rules for documents: links, decisions, the changelog, and the promises and protocols that name their tests.
//!
//! # Boundary
//! Reads Markdown as far as the rules need: fences, inline links, tables. Does not run the tests
//! that a promise names; it only makes sure that they exist.
//!
//! # Why
//! A promise without a test is an opinion. `docs/semantics.md` ends each row with the test that
//! holds it, in one of these forms:
//! `crates/vfs/src/file.rs::name`, `tests/tests/file.rs::name`, `conformance:suite`,
//! `conformance:suite/case`. Weakness: link anchors (`#part`) are not followed.

use super::Fault;
use crate::tree::Tree;

const PROMISES: &str = "docs/semantics.md";
const DECISIONS: &str = "docs/decisions/";
const PROTOCOLS: &str = "docs/protocols/";
/// The line from which a page of a protocol names its models and tests, to the end of the paragraph.
const CHECKED_BY: &str = "Checked by ";
/// The list of documents.
const LIST: &str = "docs/README.md";
const SUITES: &str = "tests/conformance/suites/";
const POSIX: &str = "tests/conformance/posix/";

pub(super) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files().filter(|(path, _)| path.ends_with(".md")) {
        links(tree, path, text, &mut faults);
    }
    decisions(tree, &mut faults);
    protocols(tree, &mut faults);
    changelog(tree, &mut faults);
    if let Some(text) = tree.text(PROMISES) {
        promises(tree, text, &mut faults);
    }
    faults
}

/// Every link to a place in this repository leads somewhere.
fn links(tree: &Tree, path: &str, text: &str, faults: &mut Vec<Fault>) {
    for (line, prose) in prose(text) {
        for target in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split([' ', '#']).next().unwrap_or("").trim_matches(['<', '>']);
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            if !resolve(path, target).is_some_and(|target| tree.exists(&target)) {
                faults.push(Fault::new(path, line, format!("link to nowhere: {target}")));
            }
        }
    }
}

/// The lines outside code fences, numbered from 1, with inline code blanked.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            return None;
        }
        let words = line.split('`').enumerate().map(|(part, words)| match part % 2 {
            0 => words,
            _ => "code",
        });
        (!fenced).then(|| (at + 1, words.collect()))
    })
}

/// `target` as seen from the folder of `from`, as a path below the root; `None` above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Every page of a protocol is listed, and names models and tests that exist.
fn protocols(tree: &Tree, faults: &mut Vec<Fault>) {
    let list = tree.text(LIST).unwrap_or("");
    let exists = |name: &str| {
        let function = format!("fn {name}(");
        let mut sources = tree.files().filter(|(path, _)| path.ends_with(".rs"));
        sources.any(|(_, text)| text.contains(&function))
    };
    for (path, text) in tree.files().filter(|(path, _)| path.starts_with(PROTOCOLS)) {
        if !list.contains(path.trim_start_matches("docs/")) {
            faults.push(Fault::new(path, 0, format!("not listed in {LIST}")));
        }
        let mut inside = false;
        let mut named = 0;
        for (at, line) in text.lines().enumerate() {
            inside = line.starts_with(CHECKED_BY) || inside && !line.is_empty();
            let names = line.split('`').skip(1).step_by(2).filter(|_| inside);
            let is_name = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            for name in names.filter(is_name) {
                named += 1;
                if !exists(name) {
                    faults.push(Fault::new(path, at + 1, format!("no such test: {name}")));
                }
            }
        }
        if named == 0 {
            faults.push(Fault::new(path, 0, "names no test after \"Checked by\""));
        }
    }
}

/// Decisions are numbered once each and listed.
fn decisions(tree: &Tree, faults: &mut Vec<Fault>) {
    let list = format!("{DECISIONS}README.md");
    let listed = tree.text(&list).unwrap_or("");
    let mut before: Option<&str> = None;
    for (path, _) in tree.files().filter(|(path, _)| path.starts_with(DECISIONS) && *path != list) {
        let name = &path[DECISIONS.len()..];
        let Some(number) = decision_number(name) else {
            faults.push(Fault::new(path, 0, "not named NNNN-some-words.md"));
            continue;
        };
        if before == Some(number) {
            faults.push(Fault::new(path, 0, format!("the number {number} is taken")));
        }
        if !listed.contains(name) {
            faults.push(Fault::new(path, 0, format!("not listed in {list}")));
        }
        before = Some(number);
    }
}

fn decision_number(name: &str) -> Option<&str> {
    let (number, words) = name.strip_suffix(".md")?.split_once('-')?;
    let numbered = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    let worded = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (numbered && !words.is_empty() && words.chars().all(worded)).then_some(number)
}

fn changelog(tree: &Tree, faults: &mut Vec<Fault>) {
    let path = "CHANGELOG.md";
    let Some(text) = tree.text(path) else {
        faults.push(Fault::new(path, 0, "no such file"));
        return;
    };
    let newest = text.lines().find_map(|line| line.strip_prefix("## ")).unwrap_or_default();
    let is_dated = newest.split_once(" (20").is_some_and(|(_, date)| date.ends_with(')'));
    if newest != "Unreleased" && !is_dated {
        let message = "begins with neither `## Unreleased` nor a version with its date";
        faults.push(Fault::new(path, 0, message));
    }
}

/// Headings of a table's last column that make its rows promises.
const PROVED_BY: &[&str] = &["test", "tests", "checked by"];

/// Every row of a table whose last column is headed so names tests that exist.
fn promises(tree: &Tree, text: &str, faults: &mut Vec<Fault>) {
    let mut in_table = false;
    let mut rows = 0;
    for (at, line) in text.lines().enumerate() {
        let Some(cell) = last_cell(line) else {
            in_table = false;
            continue;
        };
        let heading = PROVED_BY.iter().any(|words| cell.eq_ignore_ascii_case(words));
        if heading || !in_table || cell.bytes().all(|byte| b"-: ".contains(&byte)) {
            in_table |= heading;
            continue;
        }
        rows += 1;
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            faults.push(Fault::new(PROMISES, at + 1, "this promise names no test"));
        }
        for test in named.into_iter().filter(|test| !test_exists(tree, test)) {
            faults.push(Fault::new(PROMISES, at + 1, format!("no such test: {test}")));
        }
    }
    if rows == 0 {
        faults.push(Fault::new(
            PROMISES,
            0,
            "holds no table whose last column is headed `checked by`",
        ));
    }
}

/// The last cell of a table row.
fn last_cell(line: &str) -> Option<&str> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    row.rsplit('|').next().map(str::trim)
}

fn test_exists(tree: &Tree, test: &str) -> bool {
    if let Some(case) = test.strip_prefix("conformance:") {
        return case_exists(tree, case);
    }
    let Some((path, name)) = test.split_once("::") else {
        return false;
    };
    let name = name.rsplit("::").next().unwrap_or(name);
    tree.text(path).is_some_and(|text| text.contains(&format!("fn {name}(")))
}

/// A whole suite, a Python case `posix/module.function`, or a case that its suite spells out.
fn case_exists(tree: &Tree, case: &str) -> bool {
    let (suite, case) = case.split_once('/').unwrap_or((case, ""));
    let Some(script) = tree.text(&format!("{SUITES}{suite}.sh")) else {
        return false;
    };
    if suite == "posix" && !case.is_empty() {
        let (module, function) = case.split_once('.').unwrap_or((case, ""));
        let module = tree.text(&format!("{POSIX}{module}.py"));
        return module.is_some_and(|text| text.contains(&format!("def {function}(")));
    }
    script.contains(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a tree that has a changelog.
    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let mut files = files.to_vec();
        files.push(("CHANGELOG.md", "# Changes\n## Unreleased\n"));
        faults(&Tree::made_up(&files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        let good = "[a](docs/b.md#part) [w](https://x.org) [m](mailto:a@b) [s](#part) [d](docs/)\n";
        assert!(check(&[("README.md", good), ("docs/b.md", "[up](../README.md)\n")]).is_empty());
        assert_eq!(
            check(&[("README.md", "\n[a](b.md)\n")]),
            ["README.md:2: link to nowhere: b.md"]
        );
        assert_eq!(check(&[("README.md", "[a](../x.md)\n")]).len(), 1);
        assert_eq!(check(&[("README.md", "```\n[a](b.md)\n```\n`[a](b.md)`\n")]), [""; 0]);
    }

    #[test]
    fn decisions_are_numbered_and_listed() {
        let list = ("docs/decisions/README.md", "- [one](0001-one.md)\n");
        assert!(check(&[list, ("docs/decisions/0001-one.md", "")]).is_empty());
        assert!(
            check(&[list, ("docs/decisions/0001-one.md", ""), ("docs/decisions/0002-two.md", "")])
                [0]
            .contains("not listed")
        );
        assert!(check(&[("docs/decisions/note.md", "")])[0].contains("not named"));
        let twice = "0001-one.md 0001-two.md";
        let files = [
            ("docs/decisions/README.md", twice),
            ("docs/decisions/0001-one.md", ""),
            ("docs/decisions/0001-two.md", ""),
        ];
        assert!(check(&files)[0].contains("taken"));
    }

    #[test]
    fn a_protocol_names_models_that_exist() {
        let list = ("docs/README.md", "[a](protocols/a.md)");
        let source = ("crates/a/src/lib.rs", "fn model_a() {}");
        let with = |text: &str| check(&[list, source, ("docs/protocols/a.md", text)]);
        assert_eq!(
            with("`get_b` waits.\n\nChecked by `model_a`\n(`Acquire`).\n\n`b_c`\n"),
            [""; 0]
        );
        assert_eq!(
            with("Checked by `model_a` and\n`model_b`.\n"),
            ["docs/protocols/a.md:2: no such test: model_b"]
        );
        assert!(with("# A\n")[0].contains("names no test"));
        let apart = check(&[source, ("docs/protocols/b.md", "Checked by `model_a`\n")]);
        assert_eq!(apart, ["docs/protocols/b.md: not listed in docs/README.md"]);
    }

    #[test]
    fn the_changelog_begins_with_the_next_version_or_a_dated_one() {
        let of = |heading: &str| {
            let text = format!("# Changes\n## {heading}\n## 0.0.1\n");
            faults(&Tree::made_up(&[("CHANGELOG.md", &text)]))
        };
        assert!(of("Unreleased").is_empty() && of("0.1.0 (2026-11-28)").is_empty());
        assert!(of("0.1.0")[0].message.contains("neither"));
    }

    #[test]
    fn a_promise_names_tests_that_exist() {
        let row = |cell: &str| format!("| Promise | Test |\n|---|---|\n| it holds | {cell} |\n");
        let rust = ("crates/vfs/src/a.rs", "fn holds() {}");
        let suite = ("tests/conformance/suites/posix.sh", "");
        let shell = ("tests/conformance/suites/git.sh", "check fsck git fsck");
        let python = ("tests/conformance/posix/locks.py", "def ranges(w):");
        let with = |text: &str| check(&[(PROMISES, text), rust, suite, shell, python]);
        for good in [
            "`crates/vfs/src/a.rs::holds`",
            "`crates/vfs/src/a.rs::tests::holds`, `conformance:posix`",
            "`conformance:posix/locks.ranges`",
            "`conformance:git/fsck`",
        ] {
            assert_eq!(with(&row(good)), [""; 0], "{good}");
        }
        for bad in [
            "`crates/vfs/src/a.rs::breaks`",
            "`conformance:posix/locks.other`",
            "`conformance:none`",
            "`words`",
        ] {
            assert!(with(&row(bad))[0].contains("no such test"), "{bad}");
        }
        assert!(with(&row("believe me"))[0].contains("names no test"));
        assert!(with("words\n")[0].contains("holds no table"));
    }
}
