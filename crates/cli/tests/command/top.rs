//! `uvfs top` of real mounts: on a terminal, in a pipe, as an object.

use crate::common::{Place, can_mount, run, uvfs, wait};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A terminal of 100 by 30 with `uvfs top` on it.
struct Terminal {
    /// The user's side.
    outside: OwnedFd,
    inside: File,
    child: Child,
    /// All that was written to it.
    written: String,
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        let outside =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let inside =
            OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&inside, size).unwrap();
        let end = || Stdio::from(inside.try_clone().unwrap());
        let mut command = uvfs();
        command.arg("top").args(arguments).stdin(end()).stdout(end()).stderr(end());
        let child = command.env("TERM", "xterm").env_remove("NO_COLOR").spawn().unwrap();
        Self { outside, inside, child, written: String::new() }
    }

    /// Reads until `text` was written since the last call, and returns all of it.
    fn see(&mut self, text: &str) -> String {
        let deadline = Instant::now() + crate::common::LIMIT;
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.written.find(text) {
                return self.written.drain(..at + text.len()).collect();
            }
            assert!(Instant::now() < deadline, "no {text:?} in time in {:?}", self.written);
            let mut polled = [PollFd::new(&self.outside, PollFlags::IN)];
            let time = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if rustix::event::poll(&mut polled, Some(&time)) == Ok(1)
                && let Ok(length) = rustix::io::read(&self.outside, &mut bytes)
            {
                self.written.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        }
    }

    fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.outside, keys).unwrap();
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.inside).unwrap().local_modes.contains(LocalModes::ICANON)
    }

    /// It has ended well, and the terminal is as it was.
    fn has_ended(mut self) {
        self.see("\x1b[?1049l");
        assert_eq!(wait(&mut self.child).code(), Some(0));
        assert!(!self.is_raw());
    }
}

#[test]
fn keys_sort_pause_drop_and_mark_and_the_terminal_is_given_back() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.source.join("photos")).unwrap();
    fs::write(place.source.join("photos/one"), vec![1; 1 << 20]).unwrap();
    place.mount_daemon(place.src(), &["--page-cache", "write-through", "--entry-timeout", "1h"]);
    fs::read(place.mountpoint.join("photos/one")).unwrap();
    let mut terminal = Terminal::start(&[place.mnt(), "--interval", "100ms"]);
    terminal.see("\x1b[?1049h");
    terminal.see(place.mnt());
    terminal.see("REQUESTS");
    terminal.see("/photos");
    assert!(terminal.is_raw());
    // The help, whose end is any key, also that of another command.
    terminal.press(b"?");
    terminal.see("KEYS");
    terminal.press(b"q");
    terminal.see("memory");
    // A search, which takes the letters of other commands, and its end.
    terminal.press(b"/qd\r");
    terminal.see("such");
    terminal.press(b"\x1b");
    terminal.see("/photos");
    terminal.press(b"s");
    terminal.see("requests");
    terminal.press(b"ssss");
    terminal.see("path");
    // By path it is the second line: the root is first.
    terminal.press(b"\x1b[B");
    // Before it is dropped: a directory without cached entries leaves the list, and another line is selected.
    terminal.press(b"K");
    terminal.see("/photos: marked keep");
    let marks = run(&["policy", place.mnt()]).stdout;
    assert!(marks.starts_with("keep    /photos"), "{marks}");
    terminal.press(b"d");
    terminal.see("drop the cached objects of /photos in");
    terminal.press(b"n");
    terminal.see("not dropped");
    terminal.press(b"d");
    terminal.see("drop the cached objects of /photos in");
    terminal.press(b"y");
    terminal.see("/photos: dropped ");
    terminal.press(b"p");
    terminal.see("PAUSED");
    terminal.press(b"q");
    terminal.has_ended();
    let report = run(&["stat", place.mnt(), "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["frontend"]["cleans"], 1, "what was not confirmed was not dropped");
}

/// Story: the first screen had the figures of one sample, and all rates were 0 until the interval ended.
#[test]
fn the_first_screen_has_rates() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon(place.src(), &[]);
    let mut terminal = Terminal::start(&[place.mnt(), "--interval", "1h"]);
    let head = terminal.see("memory");
    assert!(head.contains(place.mnt()) && !head.contains("  0.0 s"), "{head:?}");
    terminal.press(b"q");
    terminal.has_ended();
}

#[test]
fn ctrl_c_and_sigterm_end_it_and_give_the_terminal_back() {
    // Without a mount as well: it waits for one.
    let mut terminal = Terminal::start(&[]);
    terminal.see("\x1b[?25l");
    terminal.press(b"\x03");
    terminal.has_ended();
    let mut terminal = Terminal::start(&[]);
    terminal.see("\x1b[?25l");
    let process = rustix::process::Pid::from_child(&terminal.child);
    rustix::process::kill_process(process, Signal::TERM).unwrap();
    terminal.has_ended();
}

#[test]
fn a_picture_an_object_and_lines() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon(place.src(), &[]);
    fs::write(place.mountpoint.join("file"), "text").unwrap();
    let picture = run(&["top", place.mnt(), "--once", "--interval", "100ms"]);
    assert_eq!((picture.code, picture.stderr.as_str()), (Some(0), ""), "{picture:?}");
    for part in [place.mnt(), "memory   [", "REQUESTS", "create", "SOURCE", "DIRECTORIES by bytes"]
    {
        assert!(picture.stdout.contains(part), "{part}: {}", picture.stdout);
    }
    assert!(!picture.stdout.contains('\x1b'), "{}", picture.stdout);
    let object = run(&["top", place.mnt(), "--once", "--json", "--interval", "100ms"]).stdout;
    let object: serde_json::Value = serde_json::from_str(&object).unwrap();
    let mount = &object["mounts"][0];
    assert_eq!(
        (mount["mountpoint"].as_str(), mount["state"].as_str()),
        (Some(place.mnt()), Some("served"))
    );
    assert!(mount["requests"].as_array().unwrap().iter().any(|one| one["kind"] == "create"));
    assert!(object["seconds"].as_f64() > Some(0.09), "{object}");
    let rates = |object: &serde_json::Value| {
        let root = &object["mounts"][0]["directories"][0];
        ["bytes_per_second", "requests_per_second"].map(|rate| root[rate].is_number())
    };
    assert_eq!(rates(&object), [true; 2], "it counts the directories twice: {object}");
    let refused = run(&["top", "/proc"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("/proc"), "{refused:?}");

    let mut child = uvfs().args(["top", place.mnt(), "--interval", "100ms"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().trim_start().starts_with("requests/s"));
    for _ in 0..2 {
        assert!(lines.next().unwrap().unwrap().ends_with(place.mnt()));
    }
    // Bug: it continued for ever behind `| head`.
    drop(lines);
    assert_eq!(wait(&mut child).code(), Some(0));
}

/// The terminal has disappeared (its window was closed): the page has no reader.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    let mut terminal = Terminal::start(&[]);
    terminal.see("\x1b[?25l");
    let Terminal { outside, inside, mut child, .. } = terminal;
    drop((outside, inside));
    let begun = Instant::now();
    wait(&mut child);
    assert!(begun.elapsed() < Duration::from_secs(30));
}
