//! `cargo xtask numbers`: README's table of numbers, printed from the result files.
//!
//! # Boundary
//! Finds the figures that [`ROWS`] names in the tables of bench/results and replaces the lines between two markers. It
//! measures nothing: the benches do, and a person commits their results.
//!
//! # Why
//! A number that is copied by hand stays when its result file is superseded. `cargo xtask check` compares the table with
//! the files. Weakness: a row names its file, so a newer result file counts only when its row is changed.

use crate::tree::{self, Tree};
use std::fmt::Write as _;

const PAGE: &str = "README.md";
const MARKERS: (&str, &str) = ("<!-- numbers:begin -->\n", "<!-- numbers:end -->");

/// A figure: the first row that begins with `row` after the line that contains `table`, and the number of its cell.
struct Figure {
    table: &'static str,
    row: &'static str,
    cell: usize,
}

/// A row of README's table.
struct Row {
    what: &'static str,
    /// Below bench/results, without the ending.
    file: &'static str,
    unit: &'static str,
    uvfs: Figure,
    /// Name and figure of each rival.
    rivals: &'static [(&'static str, Figure)],
}

impl Row {
    /// Whether more is better, as of a rate; of a time, less is.
    fn is_rate(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

const fn figure(table: &'static str, row: &'static str, cell: usize) -> Figure {
    Figure { table, row, cell }
}

/// The second cell of the benches' tables of text is the median; the first is the number of threads.
const MEDIAN: usize = 2;

const ROWS: &[Row] = &[
    Row {
        what: "`stat` of a hot path of six names, in process",
        file: "walk-2026-11-21",
        unit: "ns",
        uvfs: figure("d6-n10000-hot ", "uvfs-whole-path ", MEDIAN),
        rivals: &[
            ("the kernel on tmpfs", figure("d6-n10000-hot ", "kernel-tmpfs ", MEDIAN)),
            ("the best concurrent map", figure("d6-n10000-hot ", "papaya ", MEDIAN)),
        ],
    },
    Row {
        what: "the same, name by name",
        file: "walk-2026-11-21",
        unit: "ns",
        uvfs: figure("d6-n10000-hot ", "uvfs ", MEDIAN),
        rivals: &[("the best concurrent map", figure("d6-n10000-hot ", "papaya ", MEDIAN))],
    },
    Row {
        what: "cleaning a directory with a million entries takes effect",
        file: "clean-2026-11-21",
        unit: "µs",
        uvfs: figure("effect-1000000 ", "uvfs ", MEDIAN),
        rivals: &[],
    },
    Row {
        what: "ext4 image: small files read cold by two readers",
        file: "image-2026-11-23",
        unit: "thousand/s",
        uvfs: figure("## All of it again", "small files, cold", 1),
        rivals: &[
            ("fuse2fs", figure("## All of it again", "small files, cold", 3)),
            ("the kernel", figure("## All of it again", "small files, cold", 2)),
        ],
    },
    Row {
        what: "ext4 image: `tar` of 10,000 files, cold",
        file: "image-2026-11-23",
        unit: "s",
        uvfs: figure("## All of it again", "tar, cold", 1),
        rivals: &[
            ("fuse2fs", figure("## All of it again", "tar, cold", 3)),
            ("the kernel", figure("## All of it again", "tar, cold", 2)),
        ],
    },
    Row {
        what: "ext4 image: files made in one directory",
        file: "image-write-2026-11-23",
        unit: "thousand/s",
        uvfs: figure("| row |", "create, one directory", 1),
        rivals: &[
            ("fuse2fs", figure("| row |", "create, one directory", 3)),
            ("the kernel", figure("| row |", "create, one directory", 2)),
        ],
    },
    Row {
        what: "ext4 image: one long file written, with an fsync at its end",
        file: "image-writing-2026-11-28",
        unit: "MiB/s",
        uvfs: figure("| row |", "stream with fsync", 4),
        rivals: &[("the kernel", figure("| row |", "stream with fsync", 5))],
    },
    Row {
        what: "ext4 image: dbench, four clients",
        file: "image-writing-2026-11-28",
        unit: "MiB/s",
        uvfs: figure("| row |", "dbench, 4 clients", 4),
        rivals: &[("the kernel", figure("| row |", "dbench, 4 clients", 5))],
    },
    Row {
        what: "directory: CPU of a request for a fresh name",
        file: "mount-2026-11-21",
        unit: "µs",
        uvfs: figure("lookup-fresh-1-one-core-cpu ", "uvfs ", MEDIAN),
        rivals: &[
            ("bindfs", figure("lookup-fresh-1-one-core-cpu ", "bindfs ", MEDIAN)),
            (
                "a bare server of `fuser`",
                figure("lookup-fresh-1-one-core-cpu ", "fuser-bare ", MEDIAN),
            ),
        ],
    },
    Row {
        what: "directory: `ls -la` of 100,000 files, CPU",
        file: "mount-2026-11-23",
        unit: "s",
        uvfs: figure("| first: wall |", "uvfs ", 2),
        rivals: &[("bindfs", figure("| first: wall |", "bindfs ", 2))],
    },
    Row {
        what: "hits of one client while eight others wait for a store that hangs",
        file: "mount-2026-11-23",
        unit: "thousand/s",
        uvfs: figure("| idle: median", "uvfs ", 2),
        rivals: &[("bindfs", figure("| idle: median", "bindfs ", 2))],
    },
];

/// Writes the table into README.
pub(crate) fn rewrite() -> Result<(), String> {
    let (page, text) = expected(&Tree::of_repository()?)?;
    std::fs::write(tree::root().join(PAGE), with_table(&page, &text)?)
        .map_err(|error| format!("{PAGE}: {error}"))
}

/// Fails when README's table differs from the result files.
pub(crate) fn compare() -> Result<(), String> {
    let (page, text) = expected(&Tree::of_repository()?)?;
    if with_table(&page, &text)? == page {
        return Ok(());
    }
    Err(format!("{PAGE}: its numbers differ from bench/results: run `cargo xtask numbers`"))
}

/// README as it is, and the table that it must have.
fn expected(tree: &Tree) -> Result<(String, String), String> {
    let mut table = String::from("| what | uvfs | rivals | | measured |\n|---|---|---|---|---|\n");
    for row in ROWS {
        let path = format!("bench/results/{}.md", row.file);
        let text = tree.text(&path).ok_or_else(|| format!("{path}: no such file"))?;
        let cell = |figure| number(text, figure).ok_or_else(|| lacks(&path, figure));
        let uvfs = cell(&row.uvfs)?;
        let mut rivals = Vec::new();
        let mut outcomes = Vec::new();
        for (name, figure) in row.rivals {
            let rival = cell(figure)?;
            rivals.push(format!("{rival} {name}"));
            outcomes.push((*name, outcome(row.is_rate(), uvfs, rival)?));
        }
        let commit = commit(text, row.uvfs.table).ok_or_else(|| format!("{path}: no commit"))?;
        let date = &row.file[row.file.len() - "2026-11-21".len()..];
        let _ = writeln!(
            table,
            "| {} | {uvfs} {} | {} | {} | [{date}](bench/results/{}.md), {commit} |",
            row.what,
            row.unit,
            rivals.join(", "),
            verdict(&outcomes),
            row.file,
        );
    }
    let page = tree.text(PAGE).ok_or_else(|| format!("{PAGE}: no such file"))?;
    Ok((page.to_owned(), table))
}

/// `win` or `loss` of `uvfs` against `rival`.
fn outcome(is_rate: bool, uvfs: &str, rival: &str) -> Result<&'static str, String> {
    let value = |text: &str| text.parse::<f64>().map_err(|error| format!("{text}: {error}"));
    let more = value(uvfs)? > value(rival)?;
    Ok(if more == is_rate { "win" } else { "loss" })
}

/// One word if all outcomes are the same, else each with its rival.
fn verdict(outcomes: &[(&str, &'static str)]) -> String {
    let Some((_, first)) = outcomes.first() else { return String::new() };
    if outcomes.iter().all(|(_, outcome)| outcome == first) {
        return (*first).to_owned();
    }
    let each = outcomes.iter().map(|(name, outcome)| format!("{outcome} to {name}"));
    each.collect::<Vec<_>>().join(", ").replace("win to", "win over")
}

fn lacks(path: &str, figure: &Figure) -> String {
    let Figure { table, row, cell } = figure;
    format!("{path}: no figure in cell {cell} of the row `{row}` after `{table}`")
}

/// The first number of the cell.
fn number<'a>(text: &'a str, figure: &Figure) -> Option<&'a str> {
    let (_, rest) = text.split_once(figure.table)?;
    let row = |line: &&str| line.trim_start_matches(['|', ' ']).starts_with(figure.row);
    let line = rest.lines().skip(1).find(row)?;
    let cell = match line.trim().strip_prefix('|') {
        Some(cells) => cells.split('|').nth(figure.cell)?,
        None => line.split_whitespace().nth(figure.cell)?,
    };
    let end = |c: char| !c.is_ascii_digit() && c != '.';
    let number = cell.trim().split(end).next()?;
    (!number.is_empty()).then_some(number)
}

/// The last commit that the text names before the line of the table, else the first.
fn commit<'a>(text: &'a str, table: &str) -> Option<&'a str> {
    let before = text.find(table)?;
    let hashes = |text: &'a str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        words.filter(|word| {
            word.len() == 7
                && word.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
                && word.bytes().any(|byte| byte.is_ascii_digit())
                && word.bytes().any(|byte| byte.is_ascii_lowercase())
        })
    };
    let line = text[before..].lines().take(6).map(str::len).sum::<usize>();
    let near = &text[..before + line];
    hashes(near).next_back().or_else(|| hashes(text).next())
}

/// `page` with `table` between the markers.
fn with_table(page: &str, table: &str) -> Result<String, String> {
    let lacks = |marker: &str| format!("{PAGE} lacks the line `{}`", marker.trim());
    let (before, rest) = page.split_once(MARKERS.0).ok_or_else(|| lacks(MARKERS.0))?;
    let (_, after) = rest.split_once(MARKERS.1).ok_or_else(|| lacks(MARKERS.1))?;
    Ok(format!("{before}{}{table}{}{after}", MARKERS.0, MARKERS.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_both_kinds_of_tables() {
        let text = "commit 0123abc; x\n\nwalk [ns]\n  system threads median\n  uvfs   1   12.5  11\n\n| row | uvfs |\n|---|---|\n| tar | 3.5, 3, 4 |\n";
        assert_eq!(number(text, &figure("walk ", "uvfs ", 2)), Some("12.5"));
        assert_eq!(number(text, &figure("| row |", "tar", 1)), Some("3.5"));
        assert_eq!(number(text, &figure("| row |", "zip", 1)), None);
        assert_eq!(commit(text, "walk "), Some("0123abc"));
    }

    /// The verdicts were written by hand, so a changed figure left them as they were.
    #[test]
    fn verdicts_follow_from_the_figures() {
        assert_eq!(outcome(true, "29.9", "7.57"), Ok("win"));
        assert_eq!(outcome(false, "29.9", "7.57"), Ok("loss"));
        assert!(outcome(true, "1.2.3", "1").is_err());
        assert_eq!(verdict(&[("a", "win"), ("b", "win")]), "win");
        assert_eq!(verdict(&[("a", "win"), ("b", "loss")]), "win over a, loss to b");
        assert_eq!(verdict(&[]), "");
    }

    #[test]
    fn the_table_stands_between_its_markers() {
        let page = format!("a\n{}old\n{}\nb\n", MARKERS.0, MARKERS.1);
        let new = with_table(&page, "new\n").unwrap();
        assert_eq!(new, format!("a\n{}new\n{}\nb\n", MARKERS.0, MARKERS.1));
        assert!(with_table("a\n", "new\n").is_err());
    }
}
