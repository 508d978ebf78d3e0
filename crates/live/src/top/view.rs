//! The layout of the figures on a screen of any size.
//!
//! # Boundary
//! A pure function of the figures and of the user's choices: it fills a buffer of cells, for the screen and for
//! `--once`.
//!
//! # Why
//! Lines are written from the top, the most important first, and lines that do not fit are left out. On 80 by 24 the
//! tables are stacked, from 116 columns on they are side by side. A line that is too long is folded; a table leaves
//! whole columns out. All foreign text is escaped by [`shown`]. Weakness: below 40 columns texts are cut off.

use super::figures::{DirectoryFigures, Figures, Hits, Kind, Memory, MountFigures};
use super::keys::DESCRIBED;
use super::ui::{Place, Sort, Ui};
use crate::shown::{shown, shown_name};
use crate::units::{show_bytes, show_count, show_ns};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::text::Span;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use uvfs_client::state::State;

/// From here on requests and the source stand beside each other.
const WIDE: u16 = 116;
/// Kinds of requests and of calls that are shown at most.
const KINDS_MAX: usize = 8;
/// Cells of the bar of memory.
const BAR: usize = 24;
/// A shorter bar shows nothing.
const BAR_MIN: usize = 10;
/// Columns before the text of a gauge.
const INDENT: usize = 9;
/// Columns that a directory's path has at least.
const PATH_MIN: usize = 20;
/// Lines for the directories, before lines for kinds of requests and calls.
const DIRECTORIES_MIN: usize = 4;

/// The style of the picture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// With colours; marks other than colours are always drawn.
    pub(crate) colored: bool,
    /// With the line of keys and a selected line.
    pub(crate) live: bool,
}

impl Look {
    fn style(self, color: Color) -> Style {
        if self.colored { Style::new().fg(color) } else { Style::new() }
    }

    fn head(self) -> Style {
        if self.live || self.colored {
            Style::new().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        }
    }
}

/// Writes lines from the top of an area to its bottom.
struct Pen<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    next: u16,
}

impl Pen<'_> {
    fn is_full(&self) -> bool {
        self.next >= self.area.bottom()
    }

    /// Lines that are left.
    fn left(&self) -> usize {
        usize::from(self.area.bottom().saturating_sub(self.next))
    }

    fn line(&mut self, text: &str, style: Style) {
        if !self.is_full() {
            let width = usize::from(self.area.width);
            self.buffer.set_stringn(self.area.x, self.next, text, width, style);
        }
        self.next = self.next.saturating_add(1);
    }

    /// Writes `head` and `parts` with `between` them, in as many lines as they need.
    fn folded(&mut self, head: &str, parts: &[impl AsRef<str>], between: &str, style: Style) {
        for line in fold(head, parts, between, usize::from(self.area.width)) {
            self.line(&line, style);
        }
    }

    fn gap(&mut self) {
        self.next = self.next.saturating_add(1);
    }
}

/// Draws the mount that is chosen.
pub(crate) fn draw(buffer: &mut Buffer, figures: &Figures, ui: &Ui, look: Look) {
    let mut area = buffer.area;
    if look.live && area.height > 1 {
        let (lines, style) = foot_lines(figures, ui, area.width, look);
        let height = lines.len().min(usize::from(area.height / 2).max(1)) as u16;
        area.height -= height;
        for (y, text) in (area.bottom()..).zip(lines.iter().take(usize::from(height))) {
            buffer.set_stringn(area.x, y, text, usize::from(area.width), style);
        }
    }
    let mut pen = Pen { buffer, area, next: area.y };
    if ui.help {
        return help(&mut pen, look);
    }
    let Some((at, mount)) = ui.mount(figures) else {
        let text = "no uvfs mount; `uvfs mount SOURCE MOUNTPOINT` makes one";
        return pen.folded("", &text.split(' ').collect::<Vec<_>>(), " ", look.head());
    };
    head(&mut pen, figures, (at, mount), ui, look);
    if mount.state != State::Served {
        let state = mount.state.word();
        return pen.line(&format!("{state}; `uvfs mounts` says more"), look.style(Color::Red));
    }
    gauges(&mut pen, mount, look);
    pen.gap();
    let above_tables = pen.next;
    let requests = Table { head: "REQUESTS", kinds: &mount.requests };
    let source = Table { head: "SOURCE", kinds: &mount.source_calls };
    if area.width >= WIDE {
        let half = area.width / 2;
        let top = pen.next;
        let left = Rect { width: half - 2, ..area };
        let right = Rect { x: area.x + half, width: area.width - half, ..area };
        let mut lowest = top;
        for (area, table) in [(left, requests), (right, source)] {
            let mut pen = Pen { buffer: pen.buffer, area, next: top };
            table.draw(&mut pen, KINDS_MAX, look);
            lowest = lowest.max(pen.next);
        }
        pen.next = lowest;
    } else {
        // Half of the room is the directories', which are shown also where there is no room for the rest.
        let spare = |pen: &Pen<'_>| pen.left().saturating_sub(DIRECTORIES_MIN + 1);
        let room = pen.left().saturating_sub(6) / 2;
        let of_requests = (room * 2 / 3).clamp(2, KINDS_MAX).min(spare(&pen).saturating_sub(1));
        if of_requests > 0 {
            requests.draw(&mut pen, of_requests, look);
        }
        let of_source = room.saturating_sub(of_requests).clamp(1, KINDS_MAX);
        let of_source = of_source.min(spare(&pen).saturating_sub(2));
        if !mount.source_calls.is_empty() && of_source > 0 {
            pen.gap();
            source.draw(&mut pen, of_source, look);
        }
    }
    if pen.next > above_tables {
        pen.gap();
    }
    let has_room = pen.left() >= DIRECTORIES_MIN + 2;
    let of_locks = if mount.locks.is_empty() || !has_room { 0 } else { 2 };
    directories(&mut pen, mount, ui, of_locks, look);
    locks(&mut pen, mount, look);
}

/// How many lines all of it takes, of a screen that is `width` wide.
pub(crate) fn lines(figures: &Figures, ui: &Ui, width: u16) -> u16 {
    let Some((_, mount)) = ui.mount(figures) else { return 1 };
    let kinds = |kinds: &[Kind]| kinds.len().min(KINDS_MAX) + 1;
    let (requests, source) = (kinds(&mount.requests), kinds(&mount.source_calls));
    let tables = if width >= WIDE { requests.max(source) } else { 2 * (requests + source) + 8 };
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, 40));
    let area = buffer.area;
    let mut pen = Pen { buffer: &mut buffer, area, next: 0 };
    let look = Look { colored: false, live: false };
    head(&mut pen, figures, (0, mount), ui, look);
    gauges(&mut pen, mount, look);
    (usize::from(pen.next) + 4 + tables + mount.directories.len().min(20) + 4) as u16
}

/// Columns that `text` takes.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// `head` and `parts` in lines of at most `width`; a part that is wider is broken.
fn fold(head: &str, parts: &[impl AsRef<str>], between: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(head.len());
    let (mut lines, mut line, mut is_begun) = (Vec::new(), head.to_owned(), false);
    for part in parts {
        let part = part.as_ref();
        if is_begun && width_of(&line) + between.len() + width_of(part) > width {
            lines.push(std::mem::replace(&mut line, indent.clone()));
        } else if is_begun {
            line.push_str(between);
        }
        is_begun = true;
        for letter in part.chars() {
            if width_of(&line) >= width.max(indent.len() + 1) {
                lines.push(std::mem::replace(&mut line, indent.clone()));
            }
            line.push(letter);
        }
    }
    lines.push(line);
    lines
}

/// The list of keys.
fn help(pen: &mut Pen<'_>, look: Look) {
    pen.line("KEYS", look.head());
    for (key, _, effect) in DESCRIBED {
        let words: Vec<_> = effect.split(' ').collect();
        let fill = 6_usize.saturating_sub(width_of(key));
        let head = format!("  {key}{} ", " ".repeat(fill));
        let lines = fold(&" ".repeat(INDENT), &words, " ", usize::from(pen.area.width));
        for (at, line) in lines.iter().enumerate() {
            let line = line.get(INDENT..).unwrap_or_default();
            let head = if at == 0 { head.clone() } else { " ".repeat(INDENT) };
            pen.line(&format!("{head}{line}"), Style::new());
        }
    }
}

/// The first keys, up to the width of a line.
fn keys_line(figures: &Figures, ui: &Ui, width: u16) -> String {
    let has_others = figures.mounts.len() > 1;
    let shown = DESCRIBED.iter().filter(|(_, word, _)| match *word {
        "" => false,
        "mount" => has_others,
        _ => true,
    });
    let mut keys: Vec<_> = shown.map(|(key, word, _)| format!("{key} {word}")).collect();
    if ui.search.is_some() {
        keys.insert(0, "Esc ends the search".into());
    }
    fold("", &keys, "  ", usize::from(width)).swap_remove(0)
}

fn foot_lines(figures: &Figures, ui: &Ui, width: u16, look: Look) -> (Vec<String>, Style) {
    let asks = |place: &Place| {
        let of = ui
            .mount(figures)
            .and_then(|(_, mount)| mount.directories.iter().find(|one| one.path == place.path));
        let bytes = of.map_or_else(String::new, |one| format!(" ({})", show_bytes(one.bytes)));
        let (path, mount) = (path(place.path.0.as_slice()), shown(&place.mountpoint));
        format!(
            "drop the cached objects of {path} in {mount}{bytes}? y drops them, any other key does not"
        )
    };
    let typed = ui.search.as_ref().filter(|search| search.typing);
    let words =
        |text: &str| fold("", &text.split(' ').collect::<Vec<_>>(), " ", usize::from(width));
    match (&ui.asked, typed, &ui.said) {
        (Some(place), ..) => {
            let style = look.style(Color::Yellow).add_modifier(Modifier::REVERSED);
            (words(&asks(place)), style)
        }
        (None, Some(search), _) => {
            let text = format!("/{}_  Enter shows them, Esc ends", shown(&search.text));
            (words(&text), look.style(Color::Yellow))
        }
        (None, None, Some(said)) => (words(&shown(said)), look.style(Color::Yellow)),
        (None, None, None) if ui.help => {
            (vec!["any key ends the help".into()], Style::new().add_modifier(Modifier::DIM))
        }
        (None, None, None) => {
            (vec![keys_line(figures, ui, width)], Style::new().add_modifier(Modifier::DIM))
        }
    }
}

fn head(
    pen: &mut Pen<'_>,
    figures: &Figures,
    (at, mount): (usize, &MountFigures),
    ui: &Ui,
    look: Look,
) {
    let (mountpoint, source) = (shown(&mount.mountpoint), shown(&mount.source));
    let count = figures.mounts.len();
    let number = if count > 1 { format!(" ({} of {count})", at + 1) } else { String::new() };
    let store =
        if mount.store.is_empty() { String::new() } else { format!(" ({})", shown(&mount.store)) };
    let seconds = figures.seconds;
    let mut parts = vec![
        format!("{mountpoint}{number}"),
        format!("{source}{store}"),
        format!("{seconds:.1} s"),
    ];
    if ui.paused {
        parts.push("PAUSED".into());
    }
    pen.folded("", &parts, "  ", look.head());
}

/// Memory, hits and waiting requests: a line each, where it is wide enough.
fn gauges(pen: &mut Pen<'_>, mount: &MountFigures, look: Look) {
    memory(pen, &mount.memory);
    let hits: Vec<_> =
        mount.hits.iter().map(|one| format!("{} {}", one.of, percent(one))).collect();
    pen.folded("hits     ", &hits, "  ", Style::new());
    let (waiting, under_way) = (mount.requests_waiting, mount.source_under_way);
    let (rate, calls) = (sum(&mount.requests), sum(&mount.source_calls));
    let parts = [
        format!("{} requests/s, {} waiting", show_rate(rate), show_count(waiting)),
        format!("source {} calls/s, {} under way", show_rate(calls), show_count(under_way)),
    ];
    let style = if waiting > 0 { look.style(Color::Yellow) } else { Style::new() };
    pen.folded("load     ", &parts, "  ", style);
}

fn sum(kinds: &[Kind]) -> f64 {
    kinds.iter().map(|one| one.per_second).sum()
}

/// The share between the samples; in parentheses that of all the time, if there was no access between them.
fn percent(hits: &Hits) -> String {
    let show = |share: f64| {
        // 100 % is shown only for all: 99.96 % are not all.
        let percent = if share < 1.0 { (share * 100.0).min(99.9) } else { 100.0 };
        format!("{percent:.1}%")
    };
    match (hits.share, hits.share_total) {
        _ if hits.by_kernel => "kernel".into(),
        (Some(share), _) => show(share),
        (None, Some(share)) => format!("({})", show(share)),
        (None, None) => "-".into(),
    }
}

fn memory(pen: &mut Pen<'_>, memory: &Memory) {
    let parts = [memory.program_bytes, memory.names_bytes, memory.pages_bytes];
    let used = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
    let limit = memory.limit_bytes.max(1);
    let text = format!("{} of {}", show_bytes(used), show_bytes(memory.limit_bytes));
    // The bar has the room that is left beside its brackets and the text.
    let room = usize::from(pen.area.width).saturating_sub(INDENT + 3 + width_of(&text)).min(BAR);
    let has_bar = room >= BAR_MIN;
    let mut bar = String::new();
    let mut passed = 0u64;
    for (part, mark) in parts.iter().zip(["=", "#", "*"]) {
        passed = passed.saturating_add(*part);
        let cells = (passed as f64 / limit as f64 * room as f64).round() as usize;
        let cells = cells.min(room).saturating_sub(bar.len());
        bar.push_str(&mark.repeat(cells));
    }
    let bar = if has_bar { format!("[{bar:<room$}] ") } else { String::new() };
    pen.line(&format!("memory   {bar}{text}"), Style::new());
    let mark = |mark| if has_bar { mark } else { "" };
    let parts = [
        format!("{}program {}", mark("= "), show_bytes(memory.program_bytes)),
        format!("{}names {}", mark("# "), show_bytes(memory.names_bytes)),
        format!("{}pages {}", mark("* "), show_bytes(memory.pages_bytes)),
        format!("dirty {}", show_bytes(memory.dirty_bytes)),
    ];
    pen.folded(&" ".repeat(INDENT), &parts, "  ", Style::new());
}

/// Kinds of requests or calls.
struct Table<'a> {
    head: &'static str,
    kinds: &'a [Kind],
}

impl Table<'_> {
    fn draw(&self, pen: &mut Pen<'_>, most: usize, look: Look) {
        let width = usize::from(pen.area.width);
        // The total is the first column that is left out, the median the second.
        let cells = |rate: &str, total: &str, p50: &str, p99: &str| {
            let total = if width < 56 { String::new() } else { format!("{total:>11}") };
            let p50 = if width < 45 { String::new() } else { format!("{p50:>10}") };
            format!("{rate:>9}{total}{p50}{p99:>10}")
        };
        let head = format!("{:<16}{}", self.head, cells("/s", "total", "p50", "p99"));
        pen.line(&head, look.head());
        if self.kinds.is_empty() {
            return pen.line("  none", Style::new());
        }
        for one in self.kinds.iter().take(most) {
            let time = |ns| if ns == 0 { "-".to_owned() } else { show_ns(ns) };
            let (rate, total) = (show_rate(one.per_second), show_count(one.total));
            let cells = cells(&rate, &total, &time(one.p50_ns), &time(one.p99_ns));
            pen.line(&format!("  {:<14}{cells}", shown(&one.kind)), Style::new());
        }
    }
}

/// A rate: with a decimal where that is significant.
pub(super) fn show_rate(rate: f64) -> String {
    match rate {
        0.0 => "0".into(),
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => show_count(rate.round() as u64),
    }
}

pub(super) fn path(bytes: &[u8]) -> String {
    shown_name(OsStr::from_bytes(bytes))
}

/// A column of the directories' table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Bytes,
    Growth,
    Requests,
    Names,
    Dirty,
    Policy,
}

impl Column {
    const ALL: [Column; 6] = [
        Column::Bytes,
        Column::Growth,
        Column::Requests,
        Column::Names,
        Column::Dirty,
        Column::Policy,
    ];
    /// In this order columns are left out where there is no room for all.
    const DISPENSABLE: [Column; 5] =
        [Column::Growth, Column::Policy, Column::Dirty, Column::Names, Column::Requests];

    fn width(self) -> usize {
        match self {
            Column::Bytes | Column::Names => 10,
            Column::Growth => 13,
            Column::Requests => 9,
            Column::Dirty => 11,
            Column::Policy => 8,
        }
    }

    /// The column that has the values for `sort`.
    fn of(sort: Sort) -> Option<Self> {
        match sort {
            Sort::Bytes => Some(Column::Bytes),
            Sort::Requests => Some(Column::Requests),
            Sort::Growth => Some(Column::Growth),
            Sort::Names => Some(Column::Names),
            Sort::Dirty => Some(Column::Dirty),
            Sort::Path => None,
        }
    }

    /// The columns of a table of `width`, beside the paths.
    fn that_fit(width: usize, sort: Sort) -> Vec<Self> {
        let mut columns = Self::ALL.to_vec();
        for one in Self::DISPENSABLE {
            let taken: usize = columns.iter().map(|one| one.width()).sum();
            if width >= taken + 1 + PATH_MIN {
                break;
            }
            // The column of the order stays.
            columns.retain(|other| *other != one || Column::of(sort) == Some(one));
        }
        columns
    }

    fn head(self) -> &'static str {
        match self {
            Column::Bytes => "bytes",
            Column::Growth => "growth",
            Column::Requests => "req/s",
            Column::Names => "names",
            Column::Dirty => "dirty",
            Column::Policy => "policy",
        }
    }

    fn value(self, one: &DirectoryFigures) -> String {
        match self {
            Column::Bytes => show_bytes(one.bytes),
            Column::Growth => match one.bytes_per_second {
                None => "-".to_owned(),
                Some(0.0) => "0".to_owned(),
                Some(grown) if grown < 0.0 => format!("-{}/s", show_bytes(-grown as u64)),
                Some(grown) => format!("+{}/s", show_bytes(grown as u64)),
            },
            Column::Requests => one.requests_per_second.map_or_else(|| "-".to_owned(), show_rate),
            Column::Names => show_count(one.names),
            Column::Dirty => show_bytes(one.dirty_bytes),
            Column::Policy => shown(one.policy.as_deref().unwrap_or("-")).into_owned(),
        }
    }

    fn cell(self, text: &str) -> String {
        let width = self.width();
        match self {
            Column::Policy => format!("  {text:<0$}", width - 2),
            _ => format!("{text:>width$}"),
        }
    }
}

fn directories(pen: &mut Pen<'_>, mount: &MountFigures, ui: &Ui, below: usize, look: Look) {
    let width = usize::from(pen.area.width);
    let columns = Column::that_fit(width, ui.sort);
    let heads: String = columns.iter().map(|one| one.cell(one.head())).collect();
    let room = width.saturating_sub(width_of(&heads) + 1).max(8);
    let by = ui.sort.word();
    let title = [format!("DIRECTORIES by {by}"), format!("by {by}")];
    let title = title.iter().find(|title| title.len() <= room).map_or("", |title| title.as_str());
    pen.line(&format!("{heads} {title}"), look.head());
    let all = ui.directories(mount);
    if all.is_empty() {
        let is_searched = ui.search.is_some() && !mount.directories.is_empty();
        let none =
            if is_searched { "  no such directory is cached" } else { "  nothing is cached" };
        return pen.line(none, Style::new());
    }
    let rows = pen.left().saturating_sub(below).max(1);
    let chosen = ui.line(&all);
    // The selected line is visible.
    let first = (chosen + 1).saturating_sub(rows);
    for (at, one) in all.iter().enumerate().skip(first).take(rows) {
        let selected = look.live && at == chosen;
        let style =
            if selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let cells: String = columns.iter().map(|column| column.cell(&column.value(one))).collect();
        pen.line(&format!("{cells} {}", ending(&path(&one.path.0), room)), style);
    }
}

/// The end of a path that is too long: paths differ at their ends.
fn ending(path: &str, width: usize) -> String {
    let count = path.chars().count();
    match count.checked_sub(width).filter(|over| *over > 0) {
        None => path.to_owned(),
        Some(over) => format!("…{}", path.chars().skip(over + 1).collect::<String>()),
    }
}

fn locks(pen: &mut Pen<'_>, mount: &MountFigures, look: Look) {
    if mount.locks.is_empty() {
        return;
    }
    pen.line("LOCKS by wait", look.head());
    let width = usize::from(pen.area.width);
    let all = mount.locks.iter().map(|one| {
        let wait = show_ns(one.wait_ns_per_second as u64);
        let (lock, mode) = (shown(&one.lock), shown(&one.mode));
        let short = format!("{lock} {mode} {wait}/s");
        let long = format!("{short} of {} waits/s", show_rate(one.waits_per_second));
        if width_of(&long) + 2 > width { short } else { long }
    });
    // The longest waits are first; those that do not fit into the line are left out.
    let all: Vec<_> = all.collect();
    let mut lines = fold("  ", &all, "; ", width);
    pen.line(&lines.swap_remove(0), Style::new());
}

/// The picture as text, without characters that control a terminal.
pub(crate) fn text(figures: &Figures, ui: &Ui, width: u16) -> String {
    let area = Rect::new(0, 0, width, lines(figures, ui, width));
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, figures, ui, Look { colored: false, live: false });
    let rows = buffer.content.chunks(usize::from(width).max(1));
    let rows = rows
        .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned());
    let text = rows.collect::<Vec<_>>().join("\n");
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::figures::{between, tests::samples};
    use super::*;
    use ratatui_core::backend::TestBackend;
    use ratatui_core::terminal::Terminal;

    fn figures() -> Figures {
        let (earlier, later) = samples();
        between(&earlier, &later)
    }

    fn screen(width: u16, height: u16, ui: &Ui, look: Look) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let figures = figures();
        terminal.draw(|frame| draw(frame.buffer_mut(), &figures, ui, look)).unwrap();
        let shown = terminal.backend().to_string();
        let lines = shown.lines().map(|line| line.trim_matches('"').trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }

    const LIVE: Look = Look { colored: true, live: true };

    #[test]
    fn a_small_screen_has_all_of_it() {
        let expected = "\
/mnt/data (1 of 2)  /srv/data (directory)  2.0 s
memory   [======##*               ] 23.0 MiB of 64.0 MiB
         = program 16.0 MiB  # names 4.0 MiB  * pages 3.0 MiB  dirty 1.0 MiB
hits     requests 90.9%  names 100.0%  attributes 75.0%  pages -  passthrough 50.0%
load     1,020 requests/s, 3 waiting  source 10 calls/s, 2 under way

REQUESTS               /s      total       p50       p99
  lookup            1,000      3,000    1.8 µs    2.0 µs
  open                 20         60         -         -
  getattr               0          5         -         -

SOURCE                 /s      total       p50       p99
  lookup               10         30   59.0 µs   65.4 µs

     bytes       growth    req/s     names      dirty  policy DIRECTORIES by bytes
   3.0 MiB            0        0        12        0 B  -      /b\\x1b[2Jad
   3.0 MiB   +1.0 MiB/s      256        12        0 B  keep   /photos
   8.0 KiB            0        0        12        0 B  -      /
LOCKS by wait
  dir mutex 4.0 ms/s of 10 waits/s


? help  / search  q quit  s sort  d drop  ←→ mount  p pause  ↑↓ select  K O N mark";
        let shown = screen(84, 23, &Ui::default(), LIVE);
        assert_eq!(shown, expected, "\n{shown}");
    }

    /// Story: a terminal of 80 columns cut "passthroug" and "by byt". At 40 columns there was no directory, but a bar of
    /// memory of 24 columns.
    #[test]
    fn eighty_and_forty_columns_cut_nothing() {
        let expected = "\
/mnt/data (1 of 2)
/srv/data (directory)  2.0 s
memory   23.0 MiB of 64.0 MiB
         program 16.0 MiB  names 4.0 MiB
         pages 3.0 MiB  dirty 1.0 MiB
hits     requests 90.9%  names 100.0%
         attributes 75.0%  pages -
         passthrough 50.0%
load     1,020 requests/s, 3 waiting
         source 10 calls/s, 2 under way

REQUESTS               /s       p99
  lookup            1,000    2.0 µs
  open                 20         -

SOURCE                 /s       p99
  lookup               10   65.4 µs

     bytes    req/s DIRECTORIES by bytes
   3.0 MiB        0 /b\\x1b[2Jad
   3.0 MiB      256 /photos
   8.0 KiB        0 /
LOCKS by wait
  dir mutex 4.0 ms/s of 10 waits/s
? help  / search  q quit  s sort  d drop";
        let narrow = screen(40, 25, &Ui::default(), LIVE);
        assert_eq!(narrow, expected, "\n{narrow}");
        let usual = screen(80, 24, &Ui::default(), LIVE);
        let head = "     bytes    req/s     names      dirty  policy DIRECTORIES by bytes\n";
        for part in ["  passthrough 50.0%\n", head, "64.0 MiB\n", "2 under way\n", "/photos\n"] {
            assert!(usual.contains(part), "{part:?}\n{usual}");
        }
        // The column of the order stays, and the directories where there is hardly any room.
        let mut growth = Ui::default();
        growth.sort = Sort::Growth;
        let mut busy = figures();
        busy.mounts[0].locks[0].lock = "source-probe".into();
        busy.mounts[0].locks[0].waits_per_second = 12_345.0;
        let text = text(&busy, &Ui::default(), 40);
        assert!(text.ends_with("\n  source-probe mutex 4.0 ms/s\n"), "{text}");
        let shown = screen(40, 20, &growth, LIVE);
        assert!(shown.contains("     bytes       growth by growth\n"), "{shown}");
        assert!(screen(40, 15, &Ui::default(), LIVE).contains("/photos"));
    }

    #[test]
    fn a_question_and_a_message_are_whole_at_forty_columns() {
        let mut ui = Ui::default();
        ui.press(super::super::keys::Key::Letter('d'), &figures());
        let shown = screen(40, 24, &ui, LIVE);
        let last: Vec<_> = shown.lines().skip(21).collect();
        assert_eq!(
            last,
            [
                "drop the cached objects of /b\\x1b[2Jad",
                "in /mnt/data (3.0 MiB)? y drops them,",
                "any other key does not"
            ]
        );
        ui = Ui::default();
        ui.said = Some("/".repeat(50));
        let shown = screen(40, 24, &ui, LIVE);
        assert!(shown.ends_with(&format!("{}\n{}", "/".repeat(40), "/".repeat(10))), "{shown}");
    }

    #[test]
    fn the_help_has_every_key_and_a_search_its_text() {
        let mut ui = Ui::default();
        ui.press(super::super::keys::Key::Letter('?'), &figures());
        for (width, height) in [(80, 24), (40, 24)] {
            let shown = screen(width, height, &ui, LIVE);
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            for (key, _, effect) in DESCRIBED {
                assert!(words.contains(&format!("{key} {effect}")), "{key}\n{shown}");
            }
            assert!(shown.ends_with("any key ends the help"), "{shown}");
        }
        let mut ui = Ui::default();
        for letter in ['/', 'h', 'o', 't'] {
            ui.press(super::super::keys::Key::Letter(letter), &figures());
        }
        let shown = screen(80, 24, &ui, LIVE);
        assert!(shown.contains("/photos\n") && !shown.contains("2Jad"), "{shown}");
        assert!(shown.ends_with("\n/hot_  Enter shows them, Esc ends"), "{shown}");
        ui.press(super::super::keys::Key::Letter('!'), &figures());
        assert!(screen(80, 24, &ui, LIVE).contains("  no such directory is cached\n"));
        ui.press(super::super::keys::Key::Enter, &figures());
        assert!(screen(80, 24, &ui, LIVE).contains("\nEsc ends the search  ? help"));
    }

    #[test]
    fn a_wide_screen_has_both_tables_beside_each_other() {
        let shown = screen(120, 12, &Ui::default(), LIVE);
        let line = shown.lines().find(|line| line.starts_with("REQUESTS")).unwrap();
        assert!(line.contains("SOURCE"), "{shown}");
        assert!(shown.lines().any(|line| line.contains("  lookup") && line.contains("59.0 µs")));
        assert_eq!(shown.lines().count(), 12);
    }

    #[test]
    fn a_question_stands_in_the_last_line_and_the_selected_line_is_marked() {
        let mut ui = Ui::default();
        ui.press(super::super::keys::Key::Letter('d'), &figures());
        let shown = screen(100, 24, &ui, LIVE);
        let last = shown.lines().last().unwrap();
        assert!(
            last.starts_with("drop the cached objects of /b\\x1b[2Jad in /mnt/data (3.0 MiB)? y"),
            "{last}"
        );
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 22));
        draw(&mut buffer, &figures(), &Ui::default(), Look { colored: false, live: true });
        let reversed = |y| buffer.cell((0, y)).unwrap().modifier.contains(Modifier::REVERSED);
        assert!(reversed(15) && !reversed(16));
        let plain = buffer.content.iter().all(|cell| cell.fg == Color::Reset);
        assert!(plain, "no colours where none are wanted");
    }

    #[test]
    fn no_size_is_too_small_and_nothing_obeyed_is_left() {
        for width in [1, 7, 40, 79, 80, 115, 116, 300] {
            for height in [1, 2, 5, 10, 24, 60] {
                let shown = screen(width, height, &Ui::default(), LIVE);
                assert!(!shown.contains('\u{1b}'), "{width}x{height}");
            }
        }
        let none = Figures { seconds: 1.0, mounts: Vec::new() };
        assert!(text(&none, &Ui::default(), 80).starts_with("no uvfs mount; "));
    }

    #[test]
    fn a_mount_that_does_not_answer_says_so() {
        let mut ui = Ui::default();
        ui.press(super::super::keys::Key::Right, &figures());
        let text = text(&figures(), &ui, 80);
        assert_eq!(text, "/mnt/old (2 of 2)  /srv/data  2.0 s\ndead; `uvfs mounts` says more\n");
    }

    #[test]
    fn a_long_path_shows_its_end() {
        assert_eq!(ending("/a/b", 4), "/a/b");
        assert_eq!(ending("/photos/2019/june", 8), "…19/june");
        assert_eq!([0.0, 0.31, 9.96, 1234.4].map(show_rate), ["0", "0.3", "10.0", "1,234"]);
    }
}
