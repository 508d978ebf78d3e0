//! A table of text that fits its terminal.
//!
//! # Boundary
//! Cells come as finished text; whatever is in them, a row stays one line.
//!
//! # Why
//! The paper's eight columns and ours together are wider than most terminals. A table first narrows its
//! names, then leaves out its least important columns, and never wraps. Weakness: below some 60 characters
//! even the most important ones do not fit.

use super::format::clean;

/// One column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    head: String,
    right: bool,
    /// It may shrink to this.
    shrink: Option<usize>,
    /// The smallest goes first; `u8::MAX` never does.
    rank: u8,
}

impl Column {
    /// Numbers, aligned to the right.
    pub(super) fn number(head: &str, rank: u8) -> Self {
        Self { head: head.to_owned(), right: true, shrink: None, rank }
    }

    /// Words that stay as they are.
    pub(super) fn word(head: &str, rank: u8) -> Self {
        Self { head: head.to_owned(), right: false, shrink: None, rank }
    }

    /// Names that may be cut, not below `shrink` characters.
    pub(super) fn name(head: &str, shrink: usize, rank: u8) -> Self {
        Self { head: head.to_owned(), right: false, shrink: Some(shrink), rank }
    }
}

/// Rows of a table.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    /// Whether a row stands out, and its cells.
    rows: Vec<(bool, Vec<String>)>,
}

/// The longest cell of a table without width.
const CELL: usize = 120;

impl Table {
    pub(super) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, bold: bool, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| clean(cell, CELL)).collect();
        self.rows.push((bold, cells));
    }

    /// The table with its heading; rows that stand out begin with `*`, and are bold where `colour` says so.
    pub(super) fn text(&self, width: Option<usize>, colour: bool) -> String {
        let (shown, widths) = self.fit(width);
        let mark = self.rows.iter().any(|(bold, _)| *bold);
        let mut text = String::new();
        let heads: Vec<_> = self.columns.iter().map(|column| column.head.as_str()).collect();
        self.line(&mut text, &shown, &widths, &heads, if mark { "  " } else { "" });
        for (bold, cells) in &self.rows {
            let cells: Vec<_> = cells.iter().map(String::as_str).collect();
            let (lead, on, off) = match (mark, bold) {
                (true, true) => ("* ", "\x1b[1m", "\x1b[0m"),
                (true, false) => ("  ", "", ""),
                _ => ("", "", ""),
            };
            let mut line = String::new();
            self.line(&mut line, &shown, &widths, &cells, lead);
            if colour && !on.is_empty() {
                text.push_str(on);
                text.push_str(line.trim_end());
                text.push_str(off);
                text.push('\n');
            } else {
                text.push_str(&line);
            }
        }
        text
    }

    /// Which columns are shown, and how wide.
    fn fit(&self, width: Option<usize>) -> (Vec<usize>, Vec<usize>) {
        let length = |text: &String| text.chars().count();
        let cell = |row: &(bool, Vec<String>), at: usize| row.1.get(at).map_or(0, length);
        let empty = |at: usize| self.rows.iter().all(|row| cell(row, at) == 0);
        let mut widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| cell(row, at)).max().unwrap_or(0);
                cells.max(length(&self.columns[at].head))
            })
            .collect();
        // A column without any content says nothing.
        let mut shown: Vec<usize> =
            (0..self.columns.len()).filter(|at| self.rows.is_empty() || !empty(*at)).collect();
        let Some(width) = width else { return (shown, widths) };
        // How far names can give.
        let least: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let shrink = self.columns[at].shrink.unwrap_or(widths[at]);
                shrink.max(length(&self.columns[at].head)).min(widths[at])
            })
            .collect();
        loop {
            let all = |shown: &[usize], widths: &[usize]| -> usize {
                shown.iter().map(|at| widths[*at] + 2).sum::<usize>()
            };
            let over = all(&shown, &widths).saturating_sub(width);
            if over == 0 {
                break;
            }
            let slack: usize = shown.iter().map(|at| widths[*at] - least[*at]).sum();
            if slack >= over {
                let mut left = over;
                while left > 0 {
                    let widest = shown.iter().filter(|at| widths[**at] > least[**at]);
                    let Some(widest) = widest.max_by_key(|at| widths[**at]).copied() else { break };
                    widths[widest] -= 1;
                    left -= 1;
                }
                break;
            }
            let weakest = shown.iter().filter(|at| self.columns[**at].rank != u8::MAX);
            let Some(weakest) = weakest.min_by_key(|at| self.columns[**at].rank).copied() else {
                for at in &shown {
                    widths[*at] = least[*at];
                }
                break;
            };
            shown.retain(|at| *at != weakest);
        }
        (shown, widths)
    }

    fn line(
        &self,
        text: &mut String,
        shown: &[usize],
        widths: &[usize],
        cells: &[&str],
        lead: &str,
    ) {
        let mut line = lead.to_owned();
        for (number, at) in shown.iter().enumerate() {
            if number != 0 {
                line.push_str("  ");
            }
            let (width, cell) = (widths[*at], clean(cells.get(*at).unwrap_or(&""), widths[*at]));
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            if self.columns[*at].right {
                line.push_str(&pad);
                line.push_str(&cell);
            } else {
                line.push_str(&cell);
                line.push_str(&pad);
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec![
            Column::number("samples", u8::MAX),
            Column::word("inst.", 5),
            Column::name("function", 8, u8::MAX),
            Column::number("nothing", u8::MAX),
        ]);
        table
            .push(true, ["120", "cmpxchg4.acq", "[spinlock] @ dget", ""].map(str::to_owned).into());
        table.push(false, ["7", "ld8", "lookup\nnow", ""].map(str::to_owned).into());
        table
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let expected = "  samples  inst.         function
*     120  cmpxchg4.acq  [spinlock] @ dget
        7  ld8           lookup\u{fffd}now
";
        assert_eq!(table().text(None, false), expected);
    }

    #[test]
    fn narrow_terminals_cut_names_then_columns() {
        let text = table().text(Some(36), false);
        assert!(
            text.contains("cmpxchg4.acq  [spinlock..")
                && text.lines().all(|one| one.chars().count() <= 36),
            "{text}"
        );
        let text = table().text(Some(24), false);
        assert!(!text.contains("inst.") && text.contains("[spinlock] .."), "{text}");
        let text = table().text(Some(1), false);
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn only_terminals_get_bold_type() {
        assert!(table().text(None, true).contains("\x1b[1m*     120"));
        assert!(!table().text(None, false).contains('\x1b'));
    }
}
