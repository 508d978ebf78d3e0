//! Rows of cached amounts, with a bar and a directory, laid out for the width that there is.
//!
//! # Boundary
//! Text in, lines out. The views choose their columns and say which of them a narrow terminal can do without.
//!
//! # Why
//! The directory is what a row is about, so it is last and never leaves: first the bar gets short, then columns leave
//! in the order of their ranks. A program's pipe has no width; its rows keep every column. Weakness: a character
//! counts as one cell, also where a terminal shows it as two.

use rustix::termios::tcgetwinsize;
use std::io::{self, IsTerminal};

/// Characters of the longest bar, and of the shortest one.
const BAR_WIDTHS: (usize, usize) = (20, 5);
/// Width of a row where no terminal has one.
const USUAL_WIDTH: usize = 80;
/// Characters between two columns.
const GAP: usize = 2;

/// A column of amounts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// The word above it.
    pub(super) head: &'static str,
    /// A narrow terminal does without the column of the highest rank first; 0 always stays.
    pub(super) rank: u8,
}

/// The rank of the bar, in the same order.
const BAR_RANK: u8 = 1;

/// A directory.
#[derive(Debug)]
pub(super) struct Row {
    /// The amount of each column; of a row about no amounts, none.
    pub(super) cells: Vec<String>,
    /// The share of the whole.
    pub(super) part: u64,
    /// The indented name, and what stands behind it.
    pub(super) name: String,
}

/// The room for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// A terminal with so many columns.
    Terminal(usize),
    /// A pipe or a file: nothing is cut.
    Any,
}

impl Room {
    /// That of standard output.
    pub(super) fn here() -> Self {
        let out = io::stdout();
        if !out.is_terminal() {
            return Self::Any;
        }
        let width = tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
        // A terminal without a size has said nothing.
        Self::Terminal(if width == 0 { USUAL_WIDTH } else { width })
    }

    fn width(self) -> usize {
        match self {
            Self::Terminal(width) => width,
            Self::Any => USUAL_WIDTH,
        }
    }
}

/// Lays out `rows` below their heads; a bar shows the share of `whole`.
pub(super) fn text(columns: &[Column], rows: &[Row], whole: u64, room: Room) -> String {
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.cells.get(at));
            let longest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            longest.max(columns[at].head.len())
        })
        .collect();
    let names = rows.iter().map(|row| row.name.chars().count()).chain(["directory".len()]);
    let names = names.max().unwrap_or(0);
    let mut rank = columns.iter().map(|column| column.rank).max().unwrap_or(0).max(BAR_RANK);
    // The room that is left for the bar beside the columns up to this rank and the names.
    let rest = |rank: u8| {
        let shown = columns.iter().zip(&widths).filter(|(column, _)| column.rank <= rank);
        let taken: usize = shown.map(|(_, width)| width + GAP).sum();
        room.width().saturating_sub(taken + names)
    };
    let (longest, shortest) = BAR_WIDTHS;
    let needed = |rank: u8| if rank >= BAR_RANK { shortest + GAP } else { 0 };
    while room != Room::Any && rank > 0 && rest(rank) < needed(rank) {
        rank -= 1;
    }
    let bar_width = match rank >= BAR_RANK {
        true => rest(rank).saturating_sub(GAP).clamp(shortest, longest),
        false => 0,
    };
    let line = |cells: &dyn Fn(usize) -> String, bar: &str, name: &str| {
        let shown = (0..columns.len()).filter(|at| columns[*at].rank <= rank);
        let mut line: String = shown.map(|at| format!("{:>1$}  ", cells(at), widths[at])).collect();
        if bar_width > 0 {
            line += &format!("{bar:<bar_width$}  ");
        }
        let left = match room {
            Room::Terminal(width) => width.saturating_sub(line.chars().count()).max(1),
            Room::Any => usize::MAX,
        };
        line += &end_of(name, left);
        line.trim_end().to_owned() + "\n"
    };
    let head = |at: usize| columns[at].head.to_owned();
    let mut text = line(&head, if bar_width > 0 { "share" } else { "" }, "directory");
    for row in rows {
        let cell = |at: usize| row.cells.get(at).cloned().unwrap_or_default();
        text += &line(&cell, &bar(row.part, whole, bar_width), &row.name);
    }
    text
}

/// The end of `name`, which is more telling than its beginning, in `width` characters.
fn end_of(name: &str, width: usize) -> String {
    let count = name.chars().count();
    if count <= width {
        return name.to_owned();
    }
    let kept: String = name.chars().skip(count - width.saturating_sub(3)).collect();
    format!("{:.width$}", format!("...{kept}"))
}

/// `part` of `whole` as a row of signs; a part that is there has at least one.
fn bar(part: u64, whole: u64, width: usize) -> String {
    let signs = match whole {
        0 => 0,
        _ => (u128::from(part) * width as u128).div_ceil(u128::from(whole)) as usize,
    };
    "#".repeat(signs.min(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column { head: "cached", rank: 0 },
        Column { head: "dirty", rank: 2 },
        Column { head: "writing", rank: 3 },
    ];

    fn lines(room: Room) -> String {
        let row = |part: u64, name: &str| {
            let cells = ["103.0 KiB", "-", "-"].map(str::to_owned).to_vec();
            Row { cells, part, name: name.into() }
        };
        let rows = [row(8, "/srv/some/where/"), row(3, "  a-directory/")];
        text(&COLUMNS, &rows, 8, room)
    }

    /// A row of 87 columns and a name: at 80 the bar was broken and the name stood on a line of its own.
    #[test]
    fn rows_fit_a_terminal_and_the_directories_stay() {
        for width in [120, 80, 60, 52, 40, 30, 20, 12] {
            let text = lines(Room::Terminal(width));
            assert_eq!(text.lines().count(), 3, "{text}");
            for line in text.lines() {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
            }
            assert!(width < 40 || text.contains("a-directory/"), "{width}: {text}");
            assert!(width < 40 || text.contains("/srv/some/where/"), "{width}: {text}");
            assert_eq!(text.contains("writing"), width >= 52, "{width}: {text}");
        }
        let expected = "
   cached  share        directory
103.0 KiB  ###########  /srv/some/where/
103.0 KiB  #####          a-directory/
";
        assert_eq!(lines(Room::Terminal(40)), expected[1..], "\n{}", lines(Room::Terminal(40)));
    }

    #[test]
    fn a_pipe_gets_every_column_and_whole_names() {
        let text = lines(Room::Any);
        assert!(text.contains("writing") && text.contains(&"#".repeat(BAR_WIDTHS.0)), "{text}");
        let row = Row { cells: vec!["1".into()], part: 1, name: "n".repeat(200) };
        assert!(super::text(&COLUMNS, &[row], 1, Room::Any).contains(&"n".repeat(200)));
    }

    #[test]
    fn bars_are_never_empty_for_what_is_there() {
        assert_eq!(bar(0, 10, 20), "");
        assert_eq!(bar(1, 1_000_000, 20), "#");
        assert_eq!(bar(5, 10, 20).len(), 10);
        assert_eq!(bar(u64::MAX, u64::MAX, 20).len(), 20);
        assert_eq!(bar(0, 0, 20), "");
    }

    #[test]
    fn of_a_long_name_the_end_is_kept() {
        assert_eq!(end_of("/srv/data/", 10), "/srv/data/");
        assert_eq!(end_of("/srv/data/", 9), ".../data/");
        assert_eq!(end_of("/srv/data/", 2), "..");
    }
}
