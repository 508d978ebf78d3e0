//! `docs/locking.md`: the table of lock classes, printed from the list in code.
//!
//! # Boundary
//! Replaces the lines between two markers and touches nothing else: the prose around the table is
//! written by hand.
//!
//! # Why
//! A lock order that is written twice is wrong once. The checker in `uvfs_concurrent::lock` and this
//! document read the same list. Weakness: the witnesses of each edge are still prose.

use crate::tree;
use std::fmt::Write as _;
use std::fs;
use uvfs_vfs::lock_order::ORDER;

const DOCUMENT: &str = "docs/locking.md";
const BEGIN: &str = "<!-- classes:begin -->";
const END: &str = "<!-- classes:end -->";

/// Fails when the document differs from the list.
pub(crate) fn compare() -> Result<(), String> {
    let text = read()?;
    if with_table(&text, &table())? == text {
        return Ok(());
    }
    Err(format!("{DOCUMENT} is out of date: run `cargo xtask locks`"))
}

/// Prints the table and puts it into the document.
pub(crate) fn rewrite() -> Result<(), String> {
    let table = table();
    print!("{table}");
    let text = with_table(&read()?, &table)?;
    fs::write(tree::root().join(DOCUMENT), text).map_err(|error| format!("{DOCUMENT}: {error}"))
}

fn read() -> Result<String, String> {
    fs::read_to_string(tree::root().join(DOCUMENT)).map_err(|error| format!("{DOCUMENT}: {error}"))
}

fn table() -> String {
    let mut table = String::from("| Rank | Class | Protects |\n|---:|---|---|\n");
    for class in ORDER {
        let (rank, name, protects) = (class.rank(), class.name(), class.protects());
        let _ = writeln!(table, "| {rank} | `{name}` | {protects} |");
    }
    table
}

/// `text` with `table` between the markers.
fn with_table(text: &str, table: &str) -> Result<String, String> {
    let lacks = |marker| format!("{DOCUMENT} lacks the line `{marker}`");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(|| lacks(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| lacks(END))?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_replaces_what_stood_between_the_markers() {
        let text = format!("# Locks\n{BEGIN}\nold\n{END}\nprose\n");
        let new = with_table(&text, "| t |\n").unwrap();
        assert_eq!(new, format!("# Locks\n{BEGIN}\n| t |\n{END}\nprose\n"));
        assert_eq!(with_table(&new, "| t |\n").unwrap(), new, "printing twice changes nothing");
        assert!(with_table("no markers", "").unwrap_err().contains(BEGIN));
    }

    #[test]
    fn every_class_has_its_row() {
        assert_eq!(table().lines().count(), ORDER.len() + 2);
    }
}
