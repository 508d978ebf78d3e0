//! `uvfs cached`: the cached part of a directory, by directory.
//!
//! For any file system: the kernel's pages of its files. For a uvfs mount: the caches of uvfs.
//!
//! # Boundary
//! Walks, and prints the sums of [`Census`], or asks a mount's daemon ([`MountView`]); once, or
//! again and again.
//!
//! # Why
//! To count pages is to visit every file, so a view is as old as its walk is long; the time is
//! printed. A walk that begins when the last one ends would never rest: the interval counts from
//! the end. Weakness: a visit inserts names into the kernel's cache; `--no-fill` avoids that, and
//! sees less.

use super::flags::CachedArguments;
use super::instead;
use super::meter::{self, Meter};
use super::mounted::{self, Target};
use super::opener::{Fill, Offered};
use super::report::{Spinner, failure, files, left_alone};
use super::resident::MountView;
use super::table::Room;
use super::tally::Outcome;
use super::tree::{Census, Tree, summary};
use super::walk::Walk;
use crate::Failure;
use crate::units::parse_duration;
use rustix::fs::{self, CWD, Mode, OFlags};
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use uvfs_terminal::interrupt::Interrupt;
use uvfs_terminal::output;

/// Time between two views.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs the subcommand.
///
/// # Errors
/// If the directory cannot be walked.
pub fn run(arguments: &CachedArguments) -> Result<ExitCode, Failure> {
    let interval = match &arguments.interval {
        None => INTERVAL,
        Some(text) => interval(text)?,
    };
    let offered = Offered::probe();
    if let Some(target) = target(arguments, offered)? {
        return show(arguments, interval, |_| {
            let view = MountView::take(&target, arguments)?;
            Ok(Shown {
                text: view.text(Room::here()),
                json: view.json(),
                status: Some(Ok(ExitCode::SUCCESS)),
            })
        });
    }
    if arguments.no_fill && !offered.can_leave_alone() {
        return Err(super::drop::no_resolve_cached());
    }
    let directory = open(arguments)?;
    show(arguments, interval, |interrupt| {
        let view = View::take(arguments, &directory, offered, interrupt)?;
        let is_part = view.outcome.interrupted && arguments.watch;
        let status = (!is_part).then(|| view.status(arguments));
        Ok(Shown { text: view.text(Room::here()), json: view.json(arguments), status })
    })
}

/// The directory of a uvfs mount whose daemon is asked.
fn target(arguments: &CachedArguments, offered: Offered) -> Result<Option<Target>, Failure> {
    let path = &arguments.directory;
    // In a mount that this user may not enter, or whose daemon is dead, links cannot be followed.
    let whole = mounted::whole(path);
    let Some(whole) = whole.ok().filter(|_| !arguments.kernel) else { return Ok(None) };
    match Target::find(&whole, offered) {
        Ok(target) => Ok(target),
        Err(mounted::Refused::Failure(failure)) => Err(failure),
        // The next open reports it, in words.
        Err(mounted::Refused::NotOpened(_)) => Ok(None),
    }
}

/// A view, laid out.
struct Shown {
    text: String,
    json: Value,
    /// The result of a command that shows only this; `None` if it is not to be shown.
    status: Option<Result<ExitCode, Failure>>,
}

/// Shows a view, or one after the other.
fn show(
    arguments: &CachedArguments,
    interval: Duration,
    mut take: impl FnMut(&Interrupt) -> Result<Shown, Failure>,
) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    loop {
        let Shown { text, json, status } = take(&interrupt)?;
        let Some(status) = status else { return Ok(ExitCode::SUCCESS) };
        let is_read = match arguments.json {
            true => output::is_read(&format!("{json}\n")),
            false => print(&text, arguments.watch),
        };
        if !arguments.watch {
            return status;
        }
        // The reader of the output has ended: so does this command, also if it has nothing to print.
        if !is_read || interrupt.wait_while_read(interval) {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn interval(text: &str) -> Result<Duration, Failure> {
    match parse_duration(text) {
        Ok(interval) if interval.is_zero() => {
            Err(Failure::usage("--interval 0: no rest between two views; write 1s or 500ms"))
        }
        Ok(interval) => Ok(interval),
        Err(cause) => Err(Failure::usage(format!("--interval {text}: {cause}"))),
    }
}

fn open(arguments: &CachedArguments) -> Result<OwnedFd, Failure> {
    let path = &arguments.directory;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| {
        let remedy = match errno {
            rustix::io::Errno::NOENT => instead::of("", path),
            rustix::io::Errno::NOTDIR => "name the directory that it is in".into(),
            _ => "run as root or as its owner".into(),
        };
        let path = path.display();
        Failure::refused(format!("{path}: {}; {remedy}", crate::cause(&errno.into())))
    })
}

/// The result of one walk.
#[derive(Debug)]
struct View {
    tree: Tree,
    outcome: Outcome,
    meter: Meter,
    memory: Option<&'static str>,
    elapsed: Duration,
}

impl View {
    fn take(
        arguments: &CachedArguments,
        directory: &OwnedFd,
        offered: Offered,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let path = &arguments.directory;
        let failed = |error: io::Error| {
            Failure::refused(format!("{}: {}; try again", path.display(), crate::cause(&error)))
        };
        // A separate descriptor, which is at the beginning of the listing.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let start = fs::openat(directory, c".", flags, Mode::empty());
        let start = start.map_err(|errno| failed(errno.into()))?;
        if let Some(name) = meter::without_pages(start.as_fd()) {
            let why = meter::no_pages(name);
            return Err(Failure::refused(format!("{}: {why}", path.display())));
        }
        let meter = Meter::choose(start.as_fd());
        let memory = meter::memory(start.as_fd());
        let census = Census::new(meter, arguments.depth, path);
        let fill = if arguments.no_fill { Fill::Never } else { Fill::Allowed };
        let spinner = Spinner::new(&path.to_string_lossy());
        // Between two views the last one stays on the screen; progress does not overwrite it.
        let show = |progress: &_| {
            if !arguments.watch {
                spinner.show(progress);
            }
        };
        let walk = Walk { offered, fill, interrupt, show: &show };
        let walked = walk.run(start, path.as_os_str(), &census);
        spinner.end();
        let outcome = walked.map_err(failed)?;
        let elapsed = began.elapsed();
        Ok(Self { tree: census.into_tree(arguments.sort), outcome, meter, memory, elapsed })
    }

    fn text(&self, room: Room) -> String {
        let total = self.tree.total();
        let mut text = self.tree.text(room);
        let seconds = self.elapsed.as_secs_f64();
        text += &format!("{}; {seconds:.3} s, by {}\n", summary(total), self.meter.name());
        if self.meter == Meter::Mincore {
            text += "dirty pages are not known here (they need cachestat, and no overlay)\n";
        }
        if let Some(name) = self.memory {
            text += &format!("a {name}: these pages are the files themselves, not a cache\n");
        }
        if total.files_unknown > 0 {
            let files = files(total.files_unknown);
            text += &format!("not countable: {files} of other users; run as root\n");
        }
        let left = left_alone(&self.outcome);
        if !left.is_empty() {
            text += &format!("not looked at: {left}\n");
        }
        text
    }

    fn json(&self, arguments: &CachedArguments) -> Value {
        let tally = &self.outcome.tally;
        json!({
            "directory": arguments.directory.to_string_lossy(),
            "measured_by": self.meter.name(),
            "tree": self.tree.json(),
            "files": tally.files,
            "further_links": tally.links,
            "not_countable": tally.files_unknown,
            "directories": tally.directories,
            "mount_points": tally.mounts,
            "denied": tally.denied,
            "failed": tally.failed,
            "vanished": tally.vanished,
            "names_brought_in": tally.names_filled,
            "names_left_alone": tally.names_cold,
            "interrupted": self.outcome.interrupted,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        })
    }

    /// A partial view is a view: only errors other than missing rights are a failure.
    fn status(&self, arguments: &CachedArguments) -> Result<ExitCode, Failure> {
        let name = arguments.directory.display().to_string();
        if self.outcome.interrupted {
            return Err(Failure::refused(format!("{name}: interrupted; the numbers are a part")));
        }
        match failure(&name, &self.outcome) {
            Some(line) if self.outcome.tally.failed > 0 => Err(Failure::refused(line)),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

/// Prints a view; one of a series replaces the last one if the output is a terminal. False if no process reads it.
fn print(text: &str, series: bool) -> bool {
    let out = io::stdout();
    let shown = if series && out.is_terminal() {
        let rows = rustix::termios::tcgetwinsize(&out).map_or(24, |size| usize::from(size.ws_row));
        format!("\x1b[H\x1b[J{}", cut(text, rows))
    } else if series {
        format!("{text}\n")
    } else {
        text.to_string()
    };
    output::is_read(&shown)
}

/// Cuts `text` to the lines that fit on `rows`, and keeps the last one: it has the sums.
fn cut(text: &str, rows: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    // The cursor stands below the last line.
    let room = rows.saturating_sub(1).max(4);
    if lines.len() <= room {
        return text.to_string();
    }
    let (head, end) = lines.split_at(lines.len() - 1);
    let head = &head[..room - 2];
    format!("{}\n...\n{}\n", head.join("\n"), end.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_cut_to_the_screen_and_keeps_its_sum() {
        assert_eq!(cut("a\nb\n", 24), "a\nb\n");
        assert_eq!(cut("1\n2\n3\n4\n5\n6\nsum\n", 6), "1\n2\n3\n...\nsum\n");
    }

    #[test]
    fn intervals_have_units() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["0", "5", "soon", "-1s"] {
            let refused = interval(bad).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--interval {bad}: ")), "{refused}");
        }
    }
}
