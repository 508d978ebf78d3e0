//! The layout of the figures on a screen of any size.
//!
//! # Boundary
//! A pure function of the figures and of the user's choices: it fills a buffer of cells, for the screen and for
//! `--once`.
//!
//! # Why
//! Lines are written from the top, the most important first, and lines that do not fit are left out. On 80 by 24 the
//! tables are stacked, from 116 columns on they are side by side. All foreign text is escaped by [`shown`]. Weakness:
//! below 60 columns the last columns are cut off.

use super::figures::{DirectoryFigures, Figures, Hits, Kind, Memory, MountFigures};
use super::ui::{Place, Ui};
use crate::shown::{shown, shown_name};
use crate::units::{show_bytes, show_count, show_ns};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use uvfs_client::state::State;

/// From here on requests and the source stand beside each other.
const WIDE: u16 = 116;
/// Kinds of requests and of calls that are shown at most.
const KINDS_MAX: usize = 8;
/// Cells of the bar of memory.
const BAR: usize = 24;
const KEYS: &str = "q quit  p pause  s sort  arrows select  d drop  K keep  O once  N no mark";

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

    fn gap(&mut self) {
        self.next = self.next.saturating_add(1);
    }
}

/// Draws the mount that is chosen.
pub(crate) fn draw(buffer: &mut Buffer, figures: &Figures, ui: &Ui, look: Look) {
    let mut area = buffer.area;
    if look.live && area.height > 1 {
        area.height -= 1;
        let foot = Rect { y: area.bottom(), height: 1, ..area };
        let (text, style) = foot_line(figures, ui, look);
        buffer.set_stringn(foot.x, foot.y, text, usize::from(foot.width), style);
    }
    let mut pen = Pen { buffer, area, next: area.y };
    let Some((at, mount)) = ui.mount(figures) else {
        return pen.line("no uvfs mount; `uvfs mount SOURCE MOUNTPOINT` makes one", look.head());
    };
    head(&mut pen, figures, (at, mount), ui, look);
    if mount.state != State::Served {
        let state = mount.state.word();
        return pen.line(&format!("{state}; `uvfs mounts` says more"), look.style(Color::Red));
    }
    gauges(&mut pen, mount, look);
    pen.gap();
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
        // Half of the room is the directories'.
        let room = pen.left().saturating_sub(6) / 2;
        let of_requests = (room * 2 / 3).clamp(2, KINDS_MAX);
        requests.draw(&mut pen, of_requests, look);
        if !mount.source_calls.is_empty() {
            pen.gap();
            source.draw(&mut pen, room.saturating_sub(of_requests).clamp(1, KINDS_MAX), look);
        }
    }
    pen.gap();
    let of_locks = if mount.locks.is_empty() { 0 } else { 2 };
    directories(&mut pen, mount, ui, of_locks, look);
    locks(&mut pen, mount, look);
}

/// How many lines all of it takes, of a screen that is `width` wide.
pub(crate) fn lines(figures: &Figures, ui: &Ui, width: u16) -> u16 {
    let Some((_, mount)) = ui.mount(figures) else { return 1 };
    let kinds = |kinds: &[Kind]| kinds.len().min(KINDS_MAX) + 1;
    let (requests, source) = (kinds(&mount.requests), kinds(&mount.source_calls));
    let tables = if width >= WIDE { requests.max(source) } else { 2 * (requests + source) + 8 };
    (9 + tables + mount.directories.len().min(20) + 4) as u16
}

fn foot_line(figures: &Figures, ui: &Ui, look: Look) -> (String, Style) {
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
    match (&ui.asked, &ui.said) {
        (Some(place), _) => {
            (asks(place), look.style(Color::Yellow).add_modifier(Modifier::REVERSED))
        }
        (None, Some(said)) => (shown(said).into_owned(), look.style(Color::Yellow)),
        (None, None) => (KEYS.to_owned(), Style::new().add_modifier(Modifier::DIM)),
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
    let paused = if ui.paused { "  PAUSED" } else { "" };
    let seconds = figures.seconds;
    let text = format!("{mountpoint}{number}  {source}{store}  {seconds:.1} s{paused}");
    pen.line(&text, look.head());
}

/// Memory, hits and waiting requests: a line each.
fn gauges(pen: &mut Pen<'_>, mount: &MountFigures, look: Look) {
    memory(&mount.memory).iter().for_each(|line| pen.line(line, Style::new()));
    let hits: Vec<_> =
        mount.hits.iter().map(|one| format!("{} {}", one.of, percent(one))).collect();
    pen.line(&format!("hits     {}", hits.join("  ")), Style::new());
    let (waiting, under_way) = (mount.requests_waiting, mount.source_under_way);
    let (rate, calls) = (sum(&mount.requests), sum(&mount.source_calls));
    let text = format!(
        "load     {} requests/s, {} waiting  source {} calls/s, {} under way",
        show_rate(rate),
        show_count(waiting),
        show_rate(calls),
        show_count(under_way),
    );
    let style = if waiting > 0 { look.style(Color::Yellow) } else { Style::new() };
    pen.line(&text, style);
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

fn memory(memory: &Memory) -> [String; 2] {
    let parts = [memory.program_bytes, memory.names_bytes, memory.pages_bytes];
    let used = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
    let limit = memory.limit_bytes.max(1);
    let mut bar = String::new();
    let mut passed = 0u64;
    for (part, mark) in parts.iter().zip(["=", "#", "*"]) {
        passed = passed.saturating_add(*part);
        let cells = (passed as f64 / limit as f64 * BAR as f64).round() as usize;
        let cells = cells.min(BAR).saturating_sub(bar.len());
        bar.push_str(&mark.repeat(cells));
    }
    let parts = format!(
        "         = program {}  # names {}  * pages {}  dirty {}",
        show_bytes(memory.program_bytes),
        show_bytes(memory.names_bytes),
        show_bytes(memory.pages_bytes),
        show_bytes(memory.dirty_bytes),
    );
    let limit = show_bytes(memory.limit_bytes);
    [format!("memory   [{bar:<BAR$}] {} of {limit}", show_bytes(used)), parts]
}

/// Kinds of requests or calls.
struct Table<'a> {
    head: &'static str,
    kinds: &'a [Kind],
}

impl Table<'_> {
    fn draw(&self, pen: &mut Pen<'_>, most: usize, look: Look) {
        let head = format!("{:<16}{:>9}{:>11}{:>10}{:>10}", self.head, "/s", "total", "p50", "p99");
        pen.line(&head, look.head());
        if self.kinds.is_empty() {
            return pen.line("  none", Style::new());
        }
        for one in self.kinds.iter().take(most) {
            let time = |ns| if ns == 0 { "-".to_owned() } else { show_ns(ns) };
            let (rate, total) = (show_rate(one.per_second), show_count(one.total));
            let (p50, p99) = (time(one.p50_ns), time(one.p99_ns));
            let kind = shown(&one.kind);
            pen.line(&format!("  {kind:<14}{rate:>9}{total:>11}{p50:>10}{p99:>10}"), Style::new());
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

fn path(bytes: &[u8]) -> String {
    shown_name(OsStr::from_bytes(bytes))
}

fn directories(pen: &mut Pen<'_>, mount: &MountFigures, ui: &Ui, below: usize, look: Look) {
    const COLUMNS: usize = 62;
    let by = ui.sort.word();
    let head = format!(
        "{:>10}{:>13}{:>9}{:>10}{:>11}  {:<6} DIRECTORIES by {by}",
        "bytes", "growth", "req/s", "names", "dirty", "policy"
    );
    pen.line(&head, look.head());
    let all = ui.directories(mount);
    if all.is_empty() {
        return pen.line("  nothing is cached", Style::new());
    }
    let room = pen.left().saturating_sub(below).max(1);
    let chosen = ui.line(&all);
    // The selected line is visible.
    let first = (chosen + 1).saturating_sub(room);
    for (at, one) in all.iter().enumerate().skip(first).take(room) {
        let selected = look.live && at == chosen;
        let style =
            if selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        let width = usize::from(pen.area.width).saturating_sub(COLUMNS).max(8);
        pen.line(&directory(one, width), style);
    }
}

fn directory(one: &DirectoryFigures, width: usize) -> String {
    let growth = match one.bytes_per_second {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(grown) if grown < 0.0 => format!("-{}/s", show_bytes(-grown as u64)),
        Some(grown) => format!("+{}/s", show_bytes(grown as u64)),
    };
    format!(
        "{:>10}{growth:>13}{:>9}{:>10}{:>11}  {:<6} {}",
        show_bytes(one.bytes),
        one.requests_per_second.map_or_else(|| "-".to_owned(), show_rate),
        show_count(one.names),
        show_bytes(one.dirty_bytes),
        shown(one.policy.as_deref().unwrap_or("-")),
        ending(&path(&one.path.0), width),
    )
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
    let all = mount.locks.iter().map(|one| {
        let wait = show_ns(one.wait_ns_per_second as u64);
        let (lock, mode) = (shown(&one.lock), shown(&one.mode));
        format!("{lock} {mode} {wait}/s of {} waits/s", show_rate(one.waits_per_second))
    });
    pen.line(&format!("  {}", all.collect::<Vec<_>>().join("; ")), Style::new());
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


q quit  p pause  s sort  arrows select  d drop  K keep  O once  N no mark";
        let shown = screen(84, 23, &Ui::default(), LIVE);
        assert_eq!(shown, expected, "\n{shown}");
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
        assert!(reversed(14) && !reversed(15));
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
