//! `docs/locking.md`: the tables of lock classes and of edges, printed from the crates' lists and from runs.
//!
//! # Boundary
//! Replaces the lines between markers and touches nothing else: the prose around the tables is written by hand.
//!
//! # How
//! Debug builds that find `UVFS_LOCK_EDGES` add each edge that they see to a file in that directory, and the gate's
//! tests run so. `cargo xtask locks` adds those edges to the table. An edge of the table that a run did not see stays:
//! many need a rare schedule. It is removed when its class or the file that took it is gone.
//!
//! The gate fails on an edge that the table does not *imply* ([`unknown`]). `a` then `c` is implied by `a` then `b` and
//! `b` then `c`: these two already order `a` before `c`, so a schedule in which `b` is released early or not needed
//! adds no order, and is no failure. An order between two classes that no row and no chain of rows has is a failure,
//! although the ranks allow it.
//!
//! # Why
//! A lock order that is written twice is wrong once: seven edges were missing when the table was prose. Weakness: the
//! table shows one file of an edge, also if several take it. A new and rare edge fails the first run that sees it,
//! perhaps later than its change: when you add a lock, add the rows of its rare edges by hand.

use crate::{steps, tree};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};
use uvfs_concurrent::lock::LockClass;

const DOCUMENT: &str = "docs/locking.md";
const CLASSES: (&str, &str) = ("<!-- classes:begin -->", "<!-- classes:end -->");
const EDGES: (&str, &str) = ("<!-- edges:begin -->", "<!-- edges:end -->");

/// Names the directory of edges for the gate's programs.
pub(crate) const VARIABLE: &str = "UVFS_LOCK_EDGES";

/// Outer and inner class, and the file that takes the inner one.
type Edges = BTreeMap<(String, String), String>;

/// Every class of every crate, outermost first.
fn classes() -> Vec<&'static LockClass> {
    let lists = [
        uvfs_fuse::lock_order::ORDER,
        uvfs_control::lock_order::ORDER,
        uvfs_vfs::lock_order::ORDER,
        uvfs_backends::lock_order::ORDER,
        uvfs_object::lock_order::ORDER,
        uvfs_ext_write::lock_order::ORDER,
    ];
    let mut classes: Vec<_> = lists.concat();
    classes.sort_by_key(|class| class.rank());
    classes
}

/// Where runs leave the edges that they see.
pub(crate) fn directory() -> PathBuf {
    steps::target().join("lock-edges")
}

/// Fails when the document differs from the lists.
pub(crate) fn compare() -> Result<(), String> {
    let text = read()?;
    if with_tables(&text, &Edges::new())? == text {
        return Ok(());
    }
    Err(format!("{DOCUMENT} is out of date: run `cargo xtask locks`"))
}

/// Prints the tables into the document, with the edges that were seen since.
pub(crate) fn rewrite() -> Result<(), String> {
    let seen = seen(&directory()).map_err(|error| format!("{}: {error}", directory().display()))?;
    let text = with_tables(&read()?, &seen)?;
    let known = known(&text)?.len();
    println!("{} classes, {known} edges; {} seen in runs", classes().len(), seen.len());
    fs::write(tree::root().join(DOCUMENT), text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// Fails when runs left an edge in `directory` that the document does not imply.
pub(crate) fn judge(directory: &Path) -> Result<(), String> {
    let seen = seen(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    judged(&known(&read()?)?, &seen)
}

fn judged(known: &Edges, seen: &Edges) -> Result<(), String> {
    let unknown = unknown(known, seen);
    if unknown.is_empty() {
        return Ok(());
    }
    let lines: String = unknown.iter().map(|edge| format!("\n  {edge}")).collect();
    Err(format!(
        "{DOCUMENT} does not imply what runs did while they held a lock:{lines}\n\
         If that order is meant, `cargo xtask locks` adds it to the table; commit the document with the change"
    ))
}

/// Those of `seen` that `known` does not imply, a line for each.
fn unknown(known: &Edges, seen: &Edges) -> Vec<String> {
    let new = seen.iter().filter(|((outer, inner), _)| !implies(known, outer, inner));
    new.map(|((outer, inner), file)| format!("`{outer}` then `{inner}`, in {file}")).collect()
}

/// Whether rows of `known` lead from `outer` to `inner`.
fn implies(known: &Edges, outer: &str, inner: &str) -> bool {
    let mut reached = BTreeSet::from([outer]);
    let mut next = vec![outer];
    while let Some(held) = next.pop() {
        for (_, taken) in known.keys().filter(|edge| edge.0 == held) {
            if reached.insert(taken) {
                next.push(taken);
            }
        }
    }
    reached.contains(inner)
}

/// The edges of earlier runs in `directory`, of our own classes; tests have theirs.
fn seen(directory: &Path) -> io::Result<Edges> {
    let ours = classes();
    let is_ours = |name: &str| ours.iter().any(|class| class.name() == name);
    let mut edges = Edges::new();
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(edges),
        entries => entries?,
    };
    for entry in entries {
        for line in fs::read_to_string(entry?.path())?.lines() {
            let mut words = line.split(' ');
            let (Some(outer), Some(inner), Some(file)) = (words.next(), words.next(), words.next())
            else {
                // Cut short with its process.
                continue;
            };
            if is_ours(outer) && is_ours(inner) {
                let file = file.trim_start_matches("./").to_owned();
                let place =
                    edges.entry((outer.to_owned(), inner.to_owned())).or_insert(file.clone());
                *place = file.min(place.clone());
            }
        }
    }
    Ok(edges)
}

fn read() -> Result<String, String> {
    fs::read_to_string(tree::root().join(DOCUMENT)).map_err(|error| format!("{DOCUMENT}: {error}"))
}

/// The edges in the document's table.
fn known(text: &str) -> Result<Edges, String> {
    let mut edges = Edges::new();
    for line in between(text, EDGES)?.1.lines() {
        let cells: Vec<_> = line.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        if let ["", outer, inner, file, ""] = cells[..]
            && !outer.starts_with('-')
            && outer != "Held"
        {
            edges.insert((outer.to_owned(), inner.to_owned()), file.to_owned());
        }
    }
    Ok(edges)
}

fn class_table() -> String {
    let mut table = String::from("| Rank | Class | Protects |\n|---:|---|---|\n");
    for class in classes() {
        let (rank, name, protects) = (class.rank(), class.name(), class.protects());
        let _ = writeln!(table, "| {rank} | `{name}` | {protects} |");
    }
    table
}

/// The rows of `known` that can still be, and those of `seen`.
fn edge_table(known: Edges, seen: &Edges) -> String {
    let rank = |name: &str| classes().iter().find(|one| one.name() == name).map(|one| one.rank());
    let mut rows: Vec<_> = Vec::new();
    let mut all = known;
    for (edge, file) in seen {
        let there = all.get(edge).is_some_and(|file| tree::root().join(file).exists());
        if !there {
            all.insert(edge.clone(), file.clone());
        }
    }
    for ((outer, inner), file) in all {
        if let (Some(held), Some(taken)) = (rank(&outer), rank(&inner))
            && tree::root().join(&file).exists()
        {
            rows.push((held, taken, format!("| `{outer}` | `{inner}` | {file} |\n")));
        }
    }
    rows.sort();
    let rows: String = rows.into_iter().map(|row| row.2).collect();
    format!("| Held | Taken | where |\n|---|---|---|\n{rows}")
}

/// `text` with both tables.
fn with_tables(text: &str, seen: &Edges) -> Result<String, String> {
    let text = replaced(text, CLASSES, &class_table())?;
    let table = edge_table(known(&text)?, seen);
    replaced(&text, EDGES, &table)
}

/// The text before, between and after two markers.
fn between<'a>(
    text: &'a str,
    (begin, end): (&str, &str),
) -> Result<(&'a str, &'a str, &'a str), String> {
    let lacks = |marker| format!("{DOCUMENT} lacks the line `{marker}`");
    let (before, rest) = text.split_once(begin).ok_or_else(|| lacks(begin))?;
    let (inside, after) = rest.split_once(end).ok_or_else(|| lacks(end))?;
    Ok((before, inside, after))
}

fn replaced(text: &str, markers: (&str, &str), table: &str) -> Result<String, String> {
    let (before, _, after) = between(text, markers)?;
    Ok(format!("{before}{}\n{table}{}{after}", markers.0, markers.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(outer: &str, inner: &str, file: &str) -> ((String, String), String) {
        ((outer.to_owned(), inner.to_owned()), file.to_owned())
    }

    #[test]
    fn a_table_replaces_what_stood_between_its_markers() {
        let (begin, end) = CLASSES;
        let text = format!("# Locks\n{begin}\nold\n{end}\nprose\n");
        let new = replaced(&text, CLASSES, "| t |\n").unwrap();
        assert_eq!(new, format!("# Locks\n{begin}\n| t |\n{end}\nprose\n"));
        assert_eq!(replaced(&new, CLASSES, "| t |\n").unwrap(), new, "twice changes nothing");
        assert!(replaced("no markers", CLASSES, "").unwrap_err().contains(begin));
    }

    #[test]
    fn classes_of_all_crates_are_in_one_order_and_no_two_share_rank_or_name() {
        let classes = classes();
        assert_eq!(class_table().lines().count(), classes.len() + 2);
        assert!(classes.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        let names: std::collections::BTreeSet<_> = classes.iter().map(|one| one.name()).collect();
        assert_eq!(names.len(), classes.len());
    }

    #[test]
    fn edges_that_were_seen_join_the_table_and_those_that_were_not_stay() {
        let file = "xtask/src/locks.rs";
        let known = Edges::from([edge("names", "inodes", file), edge("names", "paths", "gone.rs")]);
        let seen = Edges::from([edge("inode-changes", "names", file)]);
        let table = edge_table(known, &seen);
        let rows: Vec<_> = table.lines().skip(2).collect();
        let [first, second] = rows[..] else { panic!("{table}") };
        assert!(first.starts_with("| `inode-changes` | `names` |"), "{table}");
        assert!(second.starts_with("| `names` | `inodes` |"), "{table}");
        let text = format!("{}\n{table}{}", EDGES.0, EDGES.1);
        assert_eq!(super::known(&text).unwrap().len(), 2);
    }

    #[test]
    fn an_edge_that_no_chain_of_rows_says_is_a_failure() {
        let known = Edges::from([edge("moves", "names", "a.rs"), edge("names", "inodes", "b.rs")]);
        let said =
            Edges::from([edge("moves", "names", "other.rs"), edge("moves", "inodes", "c.rs")]);
        assert_eq!(judged(&known, &said), Ok(()), "a row, and two rows one after the other");
        let new = Edges::from([edge("moves", "inodes", "c.rs"), edge("moves", "paths", "d.rs")]);
        let message = judged(&known, &new).unwrap_err();
        assert!(message.contains("`moves` then `paths`, in d.rs"), "{message}");
        assert!(message.contains("`cargo xtask locks`") && !message.contains("c.rs"), "{message}");
        let back = Edges::from([edge("inodes", "names", "b.rs")]);
        assert!(judged(&known, &back).is_err(), "rows lead one way");
    }

    #[test]
    fn the_document_does_not_imply_everything() {
        let table = super::known(&read().unwrap()).unwrap();
        let new = edge("names", "memory-space", "crates/vfs/src/names.rs");
        assert!(
            judged(&table, &Edges::from([new])).is_err(),
            "a store's lock below one of the core"
        );
        let own = edge("memory-node", "memory-space", "crates/backends/src/memory/budget.rs");
        assert_eq!(judged(&table, &Edges::from([own])), Ok(()));
    }

    #[test]
    fn what_runs_leave_is_read_and_classes_of_tests_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let lines = "names inodes b.rs\nnames inodes a.rs\nouter inner c.rs\nnames";
        fs::write(directory.path().join("1"), lines).unwrap();
        let seen = seen(directory.path()).unwrap();
        assert_eq!(seen, Edges::from([edge("names", "inodes", "a.rs")]));
        assert!(super::seen(&directory.path().join("none")).unwrap().is_empty());
    }
}
