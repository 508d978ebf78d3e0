//! `uvfs top`: the activity of the mounts, live.
//!
//! # Boundary
//! The loop: samples, keys, the screen, and actions. [`sample`] asks the daemons, [`figures`] computes, [`view`] lays
//! out, [`ui`] acts on keys.
//!
//! # Concurrency
//! A thread takes samples and a thread carries out each action; both send their results. The main thread draws, and
//! never waits for a daemon: a key has its effect at once.
//!
//! # Why
//! Each part is a pure function of values, so all but the loop is tested without a terminal. Weakness: a daemon that
//! does not answer delays the samples of the other mounts for two seconds.

pub(crate) mod figures;
pub(crate) mod keys;
pub(crate) mod sample;
mod screen;
mod ui;
mod view;

use crate::Failure;
use crate::flags::TopArguments;
use crate::mountinfo;
use crate::shown::shown;
use crate::units::{parse_duration, show_bytes, show_count, show_ns};
use figures::{Figures, MountFigures};
use ratatui_core::terminal::Terminal;
use sample::{Sample, Sampler};
use screen::{Ansi, Screen};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};
use ui::{Action, Place, Ui};
use uvfs_client as client;
use uvfs_client::state::State;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_control::policies::PolicyRequest;
use uvfs_terminal::interrupt::Interrupt;
use uvfs_terminal::output;
use view::Look;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Longest time between two checks for keys, signals and samples.
const LOOK: Duration = Duration::from_millis(50);
/// Lines after which plain lines have their heads again.
const HEADS: usize = 20;
/// Columns of `--once` if there is no terminal width.
const COLUMNS: u16 = 120;

/// Runs the subcommand.
///
/// # Errors
/// If an argument is no mount, or the terminal cannot be used.
pub fn run(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let interval = arguments.interval.as_deref().map_or(Ok(INTERVAL), interval)?;
    let sampler = Sampler::new(&arguments.mountpoints)?;
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let is_screen = io::stdin().is_terminal() && io::stdout().is_terminal();
    if arguments.once || arguments.json || !is_screen {
        return lines(sampler, interval, arguments, &interrupt);
    }
    live(sampler, interval, &interrupt)
}

fn interval(text: &str) -> Result<Duration, Failure> {
    let refused = |cause: &str| Failure::usage(format!("--interval {text}: {cause}"));
    match text.parse().map(Duration::from_secs).or_else(|_| parse_duration(text)) {
        Err(cause) => Err(refused(&cause)),
        Ok(interval) if interval < INTERVAL_MIN => Err(refused("write 100ms or more")),
        Ok(interval) if interval > Duration::from_secs(86_400) => {
            Err(refused("more than a day; write less"))
        }
        Ok(interval) => Ok(interval),
    }
}

/// Without a screen: a picture, an object, or a line for each mount, once or again and again.
fn lines(
    mut sampler: Sampler,
    interval: Duration,
    arguments: &TopArguments,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let mut before = sampler.take()?;
    let mut printed = 0;
    loop {
        if interrupt.wait(interval) {
            return Ok(ExitCode::SUCCESS);
        }
        sampler.forget_if(arguments.once);
        let now = sampler.take()?;
        let figures = figures::between(&before, &now);
        before = now;
        let text = match (arguments.json, arguments.once) {
            (true, _) => {
                let text = serde_json::to_string(&figures);
                text.map_err(|error| Failure::refused(error.to_string()))? + "\n"
            }
            (false, true) => pictures(&figures),
            (false, false) => {
                let head = if printed % HEADS == 0 { line_head() } else { String::new() };
                printed += 1;
                head + &figures.mounts.iter().map(line).collect::<String>()
            }
        };
        // The reader of the output has ended: so does this command.
        let is_read = output::is_read(&text);
        if arguments.once {
            see_served(&figures, &arguments.mountpoints)?;
        }
        if !is_read || arguments.once {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Refuses a picture of a mount that was asked for by name and that no daemon answers for.
fn see_served(figures: &Figures, named: &[PathBuf]) -> Result<(), Failure> {
    for path in named {
        let mount = mountinfo::find(path)?;
        client::reach(&mount)?;
        let place = mount.mountpoint.to_string_lossy();
        let shown = figures.mounts.iter().find(|one| *one.mountpoint == *place);
        if let Some(one) = shown.filter(|one| one.state != State::Served) {
            let state = one.state.word();
            return Err(Failure::refused(format!("{place}: {state}; `uvfs mounts` says more")));
        }
    }
    Ok(())
}

/// Every mount as the screen would show it.
fn pictures(figures: &Figures) -> String {
    let measured = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let columns =
        measured.map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(COLUMNS);
    if figures.mounts.is_empty() {
        return view::text(figures, &Ui::default(), columns);
    }
    let alone = figures.mounts.iter().map(|mount| {
        let one = Figures { seconds: figures.seconds, mounts: vec![mount.clone()] };
        view::text(&one, &Ui::default(), columns)
    });
    alone.collect::<Vec<_>>().join("\n")
}

fn line_head() -> String {
    format!(
        "{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}{:>12}{:>12}  {}\n",
        "requests/s", "p50", "p99", "hits", "names", "source/s", "memory", "dirty", "mountpoint"
    )
}

/// A mount in one line.
fn line(mount: &MountFigures) -> String {
    let sum = |kinds: &[figures::Kind]| kinds.iter().map(|one| one.per_second).sum::<f64>();
    // The most frequent kind is shown for all: percentiles of several cannot be added.
    let first = mount.requests.first().filter(|one| one.p50_ns > 0);
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), show_ns);
    let share = |of: &str| {
        let hits = mount.hits.iter().find(|one| one.of == of);
        match hits.and_then(|one| one.share) {
            _ if hits.is_some_and(|one| one.by_kernel) => "kernel".to_owned(),
            Some(share) => format!("{:.1}%", share * 100.0),
            None => "-".to_owned(),
        }
    };
    let memory = &mount.memory;
    let parts = [memory.program_bytes, memory.names_bytes, memory.pages_bytes];
    let used = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part));
    let mountpoint = shown(&mount.mountpoint);
    if mount.state != State::Served {
        return format!("{:>84}  {mountpoint}\n", mount.state.word());
    }
    format!(
        "{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}{:>12}{:>12}  {mountpoint}\n",
        view::show_rate(sum(&mount.requests)),
        time(first.map(|one| one.p50_ns)),
        time(first.map(|one| one.p99_ns)),
        share("requests"),
        share("names"),
        view::show_rate(sum(&mount.source_calls)),
        show_bytes(used),
        show_bytes(memory.dirty_bytes),
    )
}

/// Messages to the drawing thread.
enum News {
    Sample(Result<Sample, Failure>),
    /// The result of an action.
    Said(String),
}

/// The screen, until its user has enough.
fn live(
    mut sampler: Sampler,
    interval: Duration,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let first = sampler.take()?;
    // Figures of one sample would have rates of 0 until the interval ends.
    if interrupt.wait(interval.min(sample::FIRST)) {
        return Ok(ExitCode::SUCCESS);
    }
    let second = sampler.take()?;
    let (sender, news) = mpsc::channel();
    // Set after an action: directories are counted again.
    let renew = Arc::new(AtomicBool::new(false));
    start_sampling(sampler, interval, sender.clone(), renew.clone())
        .map_err(|error| Failure::refused(format!("thread: {}", crate::cause(&error))))?;
    let failed =
        |error: io::Error| Failure::refused(format!("the terminal: {}", crate::cause(&error)));
    let screen = Screen::enter().map_err(failed)?;
    let mut terminal = Terminal::new(Ansi::new(io::stdout())).map_err(failed)?;
    let look = Look { colored: uvfs_terminal::color::is_wanted(&io::stdout()), live: true };
    let mut live =
        Live { ui: Ui::default(), figures: figures::between(&first, &second), last: second };
    let ended = loop {
        let drawn = terminal.draw(|frame| {
            view::draw(frame.buffer_mut(), &live.figures, &live.ui, look);
        });
        if let Err(error) = drawn {
            break Err(failed(error));
        }
        match live.turn(&news, interrupt, &sender, &renew) {
            Ok(false) => {}
            Ok(true) => break Ok(ExitCode::SUCCESS),
            Err(failure) => break Err(failure),
        }
    };
    // Before a failure is printed.
    drop(screen);
    ended
}

fn start_sampling(
    mut sampler: Sampler,
    interval: Duration,
    sender: Sender<News>,
    renew: Arc<AtomicBool>,
) -> io::Result<()> {
    let work = move || {
        let mut next = Instant::now() + interval;
        loop {
            while Instant::now() < next {
                // ORDERING: Relaxed; a request, nothing is reached through it.
                if renew.swap(false, Relaxed) {
                    sampler.forget_if(true);
                    break;
                }
                thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now())));
            }
            next = Instant::now() + interval;
            if sender.send(News::Sample(sampler.take())).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("uvfs-top".into()).spawn(work).map(drop)
}

/// The contents of the screen.
struct Live {
    ui: Ui,
    figures: Figures,
    last: Sample,
}

impl Live {
    /// Takes in keys and news, until there is something to draw; whether that was the end.
    fn turn(
        &mut self,
        news: &Receiver<News>,
        interrupt: &Interrupt,
        sender: &Sender<News>,
        renew: &Arc<AtomicBool>,
    ) -> Result<bool, Failure> {
        // A terminal that has disappeared (its window was closed) is an end as well.
        let Ok(pressed) = screen::read_keys(LOOK) else { return Ok(true) };
        if interrupt.is_set() {
            return Ok(true);
        }
        for key in pressed {
            match self.ui.press(key, &self.figures) {
                Action::Nothing => {}
                Action::Quit => return Ok(true),
                action => {
                    self.ui.said = Some("…".into());
                    carry_out(action, sender.clone(), renew.clone());
                }
            }
        }
        while let Ok(one) = news.try_recv() {
            match one {
                News::Sample(sample) => {
                    let sample = sample?;
                    if !self.ui.paused {
                        self.figures = figures::between(&self.last, &sample);
                        self.last = sample;
                    }
                }
                News::Said(said) => self.ui.said = Some(said),
            }
        }
        Ok(false)
    }
}

/// Has a thread do it.
fn carry_out(action: Action, sender: Sender<News>, renew: Arc<AtomicBool>) {
    let work = move || {
        let said = match action {
            Action::Drop(place) => empty(&place),
            Action::Mark(place, policy) => mark(&place, policy),
            Action::Nothing | Action::Quit => return,
        };
        // ORDERING: Relaxed; as where it is taken.
        renew.store(true, Relaxed);
        let _ = sender.send(News::Said(said.unwrap_or_else(|failure| failure.to_string())));
    };
    // Without a thread the action is silently skipped: the user presses the key again.
    let _ = thread::Builder::new().name("uvfs-top-action".into()).spawn(work);
}

fn name(place: &Place) -> String {
    String::from_utf8_lossy(&place.path.0).into_owned()
}

/// Empties the caches of a directory: uvfs's, and the kernel's in front of it.
fn empty(place: &Place) -> Result<String, Failure> {
    let mount = mountinfo::find(Path::new(&place.mountpoint))?;
    let begun = Instant::now();
    let cleaned = client::reach(&mount)?.empty(&place.path, &|| false);
    let cleaned = cleaned.map_err(|cause| Failure::refused(format!("{}: {cause}", name(place))))?;
    let dropped = &cleaned.caches;
    let seconds = begun.elapsed().as_secs_f64();
    Ok(format!(
        "{}: dropped {} names, {} inodes, {} of pages in {seconds:.1} s",
        name(place),
        show_count(dropped.names.freed.entries),
        show_count(dropped.inodes.freed.entries),
        show_bytes(dropped.pages.freed.bytes),
    ))
}

fn mark(place: &Place, policy: &str) -> Result<String, Failure> {
    let mount = mountinfo::find(Path::new(&place.mountpoint))?;
    let request = PolicyRequest { directory: place.path.clone(), policy: policy.to_owned() };
    let marked = client::reach(&mount)?.set_policy(request);
    marked.map_err(|cause| Failure::refused(format!("{}: {cause}", name(place))))?;
    Ok(match policy {
        "none" => format!("{}: not marked any more", name(place)),
        policy => format!("{}: marked {policy}", name(place)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_seconds_or_has_a_unit() {
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["0", "1ms", "fast", "-1", "25h"] {
            let refused = interval(bad).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--interval {bad}: ")), "{refused}");
        }
    }

    #[test]
    fn a_mount_is_one_line_as_wide_as_its_head() {
        let (earlier, later) = figures::tests::samples();
        let figures = figures::between(&earlier, &later);
        let lines: Vec<_> = figures.mounts.iter().map(line).collect();
        assert_eq!(
            lines[0],
            "      1,020     1.8 µs     2.0 µs    90.9%   100.0%       10    23.0 MiB     1.0 MiB  /mnt/data\n"
        );
        assert!(lines[1].ends_with("dead  /mnt/old\n"), "{:?}", lines[1]);
        let place = |line: &str| line.chars().position(|c| c == '/').unwrap();
        let head = line_head();
        let head = head.find("mountpoint").unwrap();
        assert_eq!((place(&lines[1]), lines[0].chars().position(|c| c == '/')), (head, Some(head)));
    }
}
