//! The terminal during the live view, and its restoration.
//!
//! # Boundary
//! Enters and leaves: raw mode, the other screen, the hidden cursor. Draws cells ([`Ansi`]) and reads keys;
//! [`super::view`] makes the picture.
//!
//! # Concurrency
//! One thread has the screen. The hook of panics may run on any thread; its work may be done twice.
//!
//! # Why
//! Escapes of ECMA-48 that every terminal knows since the VT100, by hand: the crate for them brings an event loop and
//! macros, eighteen crates more to compile, for one page of keys ([decision
//! 0001](../../../../docs/decisions/0001-dependencies.md)). Weakness: no terminal with other escapes; Linux has had
//! none for twenty years.

use super::keys::{self, Key};
use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::stdio::{stdin, stdout};
use rustix::termios::{self, OptionalActions, Termios};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::panic;
use std::time::Duration;

/// The other screen, empty, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[2J\x1b[?25l";
/// Plain text, the cursor, the screen that was before.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// Size of a terminal that does not report its size.
const SIZE: Size = Size { width: 80, height: 24 };

/// Standard input and output as one screen; restored when dropped, and on any panic.
pub(crate) struct Screen<W: Write> {
    out: W,
    before: Option<Termios>,
}

impl Screen<io::Stdout> {
    /// Takes the terminal, which standard input and output have to be.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Flush, &raw)?;
        // From here on the drop restores it.
        let screen = Self::on(io::stdout(), Some(before.clone()))?;
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            give_back(&mut io::stdout(), Some(&before));
            hook(panicked);
        }));
        Ok(screen)
    }
}

impl<W: Write> Screen<W> {
    fn on(out: W, before: Option<Termios>) -> io::Result<Self> {
        let mut screen = Self { out, before };
        screen.out.write_all(ENTER.as_bytes())?;
        screen.out.flush()?;
        Ok(screen)
    }
}

impl<W: Write> Drop for Screen<W> {
    fn drop(&mut self) {
        give_back(&mut self.out, self.before.as_ref());
    }
}

fn give_back(out: &mut impl Write, before: Option<&Termios>) {
    // There is no place to report an error.
    let _ = out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush());
    if let Some(before) = before {
        let _ = termios::tcsetattr(stdin(), OptionalActions::Flush, before);
    }
}

/// The pressed keys, after a wait of at most `time`; none if the input has ended.
///
/// # Errors
/// If the terminal has disappeared.
pub(crate) fn read_keys(time: Duration) -> io::Result<Vec<Key>> {
    let input = stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let time = Timespec::try_from(time).unwrap_or_default();
    match rustix::event::poll(&mut polled, Some(&time)) {
        // A signal: the caller checks its flag.
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut bytes = [0; 256];
    match rustix::io::read(input, &mut bytes) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(length) => Ok(keys::keys(&bytes[..length])),
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Vec::new()),
        Err(errno) => Err(errno.into()),
    }
}

/// A terminal that is written to by escapes.
#[derive(Debug)]
pub(crate) struct Ansi<W> {
    out: W,
}

impl<W: Write> Ansi<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out }
    }
}

/// How a cell is written.
type Pen = (Color, Color, Modifier);

/// The escape that sets `pen`, after any other.
fn escape((foreground, background, modifier): Pen) -> String {
    let mut codes = vec![0];
    let of = [(Modifier::BOLD, 1), (Modifier::DIM, 2), (Modifier::REVERSED, 7)];
    codes.extend(of.iter().filter(|(one, _)| modifier.contains(*one)).map(|(_, code)| *code));
    codes.extend(color(foreground).map(|code| 30 + code));
    codes.extend(color(background).map(|code| 40 + code));
    let codes: Vec<_> = codes.iter().map(u16::to_string).collect();
    format!("\x1b[{}m", codes.join(";"))
}

/// The eight colours that every terminal has; the view has no others.
fn color(color: Color) -> Option<u16> {
    match color {
        Color::Red => Some(1),
        Color::Green => Some(2),
        Color::Yellow => Some(3),
        Color::Blue => Some(4),
        Color::Magenta => Some(5),
        Color::Cyan => Some(6),
        _ => None,
    }
}

impl<W: Write> Backend for Ansi<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut text = String::new();
        let mut pen = None;
        let mut next = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(text, "\x1b[{};{}H", y + 1, x + 1);
            }
            let wanted = (cell.fg, cell.bg, cell.modifier);
            if pen != Some(wanted) {
                text.push_str(&escape(wanted));
                pen = Some(wanted);
            }
            text.push_str(cell.symbol());
            // After a wide one the next cell is two columns further; the cursor is placed there.
            next = Some((x.saturating_add(1), y));
        }
        text.push_str("\x1b[0m");
        self.out.write_all(text.as_bytes())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x1b[?25l")
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x1b[?25h")
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // Never called: the whole screen is drawn, and the cursor is hidden.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        write!(self.out, "\x1b[{};{}H", y + 1, x + 1)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, region: ClearType) -> io::Result<()> {
        self.out.write_all(match region {
            ClearType::All => b"\x1b[2J",
            ClearType::AfterCursor => b"\x1b[0J",
            ClearType::BeforeCursor => b"\x1b[1J",
            ClearType::CurrentLine => b"\x1b[2K",
            ClearType::UntilNewLine => b"\x1b[0K",
        })
    }

    fn size(&self) -> io::Result<Size> {
        let measured = termios::tcgetwinsize(stdout()).ok();
        let measured = measured.map(|size| Size::new(size.ws_col, size.ws_row));
        Ok(measured.filter(|size| size.width > 0 && size.height > 0).unwrap_or(SIZE))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size()?, pixels: Size::ZERO })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::style::Style;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// The test reads the output from outside.
    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let shared = Shared::default();
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _screen = Screen::on(shared.clone(), None).unwrap();
            panic!("on the screen");
        }));
        assert!(panicked.is_err());
        let written = String::from_utf8(shared.0.borrow().clone()).unwrap();
        assert!(written.starts_with(ENTER) && written.ends_with(LEAVE), "{written:?}");
    }

    #[test]
    fn cells_that_follow_each_other_are_written_in_one_go() {
        let shared = Shared::default();
        let mut cell = [Cell::new("a"), Cell::new("b"), Cell::new("c")];
        cell[1].set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        cell[2].set_style(Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
        let places = [(0, 0), (1, 0), (5, 2)];
        let content = places.iter().zip(&cell).map(|((x, y), cell)| (*x, *y, cell));
        Ansi::new(shared.clone()).draw(content).unwrap();
        let written = String::from_utf8(shared.0.borrow().clone()).unwrap();
        assert_eq!(written, "\x1b[1;1H\x1b[0ma\x1b[0;1;31mb\x1b[3;6Hc\x1b[0m");
    }
}
