//! How a mount ends: what signals do, the last try to bring everything to the source, and the verdict.
//!
//! ```text
//!            signal: unmount                    session ended            all written
//!  Serving ────────────────▶ unmounted ─────────────────────▶ Finishing ───────────▶ exit 0
//!     │                                                   ▲       └── some lost, by path ──▶ exit 1
//!     └── busy: list users, detach, write  ──▶ Detached ──┘ last user gone
//!                                                 └── second signal, when nothing is left to write ──▶ exit 1
//! ```
//! A later signal while data is unwritten reports the data that would be lost, and writing continues. The third signal
//! drops it.
//!
//! # Concurrency
//! The main thread only receives. The last try and the writing during service may wait for the source, so they have
//! threads of their own, which the end of the process abandons. So a source that hangs delays neither the report of
//! unwritten data nor the end.
//!
//! # Why
//! Detaching on the first signal removes the name but not the files. So a process always ends on request, and accepted
//! writes reach the source. Weakness: writes between the last check and the exit of a detached mount are lost, as in a
//! crash of the machine.

use super::{Event, Live};
use crate::logger::tell;
use crate::notify;
use crate::units::show_bytes;
use crate::unmount;
use log::Level;
use rustix::io::Errno;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_control::ended::Verdict;

/// The signal that drops unwritten data.
const DROPPING_SIGNAL: u32 = 3;
/// Time between two tries to write everything while a detached mount is in use.
const WRITING_TIME: Duration = Duration::from_millis(200);

/// How a mount ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) status: ExitCode,
    /// The data that the source does not have.
    pub(super) verdict: Verdict,
}

/// A mount on its way to its end.
pub(super) struct Ending<'a> {
    live: &'a Arc<Live>,
    sender: Sender<Event>,
    signals: u32,
    /// A thread writes everything while the mount is in use.
    writing: bool,
    /// The process is to end as soon as nothing is left to write.
    leaving: bool,
    /// The session is over, and the last try under way.
    finishing: bool,
    /// The kernel cut the connection.
    cut: bool,
}

impl<'a> Ending<'a> {
    /// The ending of `live`, whose threads send events by `sender`.
    pub(super) fn new(live: &'a Arc<Live>, sender: Sender<Event>) -> Self {
        let (writing, leaving, finishing, cut) = (false, false, false, false);
        Self { live, sender, signals: 0, writing, leaving, finishing, cut }
    }

    /// Waits until the mount has ended.
    pub(super) fn wait(mut self, events: &Receiver<Event>) -> Outcome {
        for event in events {
            if matches!(event, Event::Signal | Event::Ended) {
                notify::tell(notify::STOPPING);
            }
            let outcome = match event {
                Event::Signal => self.signalled(),
                Event::Ended => self.finish(),
                Event::Finished(verdict) => Some(self.finished(verdict)),
                Event::Written => self.written(),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        // Impossible: we have a sender ourselves.
        Outcome { status: ExitCode::FAILURE, verdict: self.unwritten() }
    }

    fn signalled(&mut self) -> Option<Outcome> {
        self.signals += 1;
        // ORDERING: Relaxed; as where it is set.
        let detached = self.live.detached.load(Relaxed);
        if self.signals == 1 && !detached && !self.finishing {
            self.unmount();
            return None;
        }
        if !self.finishing {
            self.leaving = true;
            self.write();
        }
        if self.signals >= DROPPING_SIGNAL {
            return Some(self.drop_rest());
        }
        if let Some(outcome) = self.written() {
            return Some(outcome);
        }
        self.say_what_would_be_lost();
        None
    }

    /// Unmounts, or detaches when that is refused, saying why.
    fn unmount(&mut self) {
        let live = self.live;
        let Err(stays) = live.end(false) else { return };
        if stays.busy {
            let busy = unmount::busy(&live.mountpoint);
            tell(
                Level::Warn,
                &format!("{busy}; detached, ends with its last user or at the next signal"),
            );
        } else {
            let (place, cause) = (live.mountpoint.display(), stays.cause);
            tell(
                Level::Warn,
                &format!("{place}: cannot unmount: {cause}; detached, the next signal ends it"),
            );
        }
        super::abandon(live);
        self.write();
    }

    /// Has everything written while the mount is in use, again and again.
    fn write(&mut self) {
        if std::mem::replace(&mut self.writing, true) {
            return;
        }
        let (live, sender) = (self.live.clone(), self.sender.clone());
        let write = move || {
            while !live.mount.ended() {
                // A failed write is tried again, and reported at the end.
                let _ = live.vfs.write_back_all();
                if sender.send(Event::Written).is_err() {
                    return;
                }
                thread::sleep(WRITING_TIME);
            }
        };
        if let Err(error) = thread::Builder::new().name("uvfs-write-all".into()).spawn(write) {
            log::error!("no thread to write everything: {error}");
        }
    }

    /// Ends a mount that is in use, if that was wanted and nothing is left to write.
    fn written(&self) -> Option<Outcome> {
        let done = self.leaving && !self.finishing && self.live.dirty_bytes() == 0;
        done.then(|| {
            let place = self.live.mountpoint.display();
            tell(Level::Warn, &format!("{place}: still in use; ended all the same"));
            Outcome { status: ExitCode::FAILURE, verdict: self.unwritten() }
        })
    }

    /// The session is over: one last try.
    fn finish(&mut self) -> Option<Outcome> {
        self.finishing = true;
        self.cut = self.is_cut();
        let (live, sender) = (self.live.clone(), self.sender.clone());
        let last_try = move || {
            let verdict = Verdict::new(live.vfs.end(), &live.source);
            // The receiver is gone if a signal has ended the process.
            let _ = sender.send(Event::Finished(verdict));
        };
        let started = thread::Builder::new().name("uvfs-last-try".into()).spawn(last_try);
        started.err().map(|error| {
            log::error!("no thread for the last try: {error}");
            let verdict = Verdict::new(self.live.vfs.end(), &self.live.source);
            self.finished(verdict)
        })
    }

    /// A session that was cut off has left its mount in the tree, failing every request.
    fn is_cut(&self) -> bool {
        let place = &self.live.mountpoint;
        // A failed session's mount is not looked at: its kernel may hold the question back.
        let cut =
            self.live.mount.failed() || matches!(rustix::fs::stat(place), Err(Errno::NOTCONN));
        if cut {
            let text = format!("{}: the kernel's connection was cut; unmounted", place.display());
            tell(Level::Warn, &text);
            super::abandon(self.live);
        }
        cut
    }

    fn finished(&self, verdict: Verdict) -> Outcome {
        let lost = verdict.files > 0;
        if lost {
            self.tell_lost(&verdict);
        }
        let status = if lost || self.cut { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        Outcome { status, verdict }
    }

    /// Ends without the unwritten data, after [`DROPPING_SIGNAL`] signals.
    fn drop_rest(&self) -> Outcome {
        let verdict = self.unwritten();
        match verdict.files {
            0 => {
                let place = self.live.mountpoint.display();
                tell(Level::Warn, &format!("{place}: still in use; ended all the same"));
            }
            _ => self.tell_lost(&verdict),
        }
        Outcome { status: ExitCode::FAILURE, verdict }
    }

    fn tell_lost(&self, verdict: &Verdict) {
        for line in unmount::lost(&self.live.mountpoint, verdict) {
            tell(Level::Error, &line);
        }
    }

    fn say_what_would_be_lost(&self) {
        let verdict = self.unwritten();
        for file in &verdict.lost {
            let place = unmount::place_of(&self.live.mountpoint, file);
            let cause = if file.cause.is_empty() { "being written" } else { &file.cause };
            tell(
                Level::Warn,
                &format!("{place}: {} not written yet: {cause}", show_bytes(file.bytes)),
            );
        }
        let (place, bytes) = (self.live.mountpoint.display(), show_bytes(verdict.bytes));
        let next = match self.signals + 1 {
            DROPPING_SIGNAL => "the next signal drops them",
            _ => "the next signal but one drops them",
        };
        let text = format!("{place}: {bytes} would be lost, and are still being written; {next}");
        tell(Level::Warn, &text);
    }

    fn unwritten(&self) -> Verdict {
        Verdict::new(self.live.vfs.unwritten(), &self.live.source)
    }
}
