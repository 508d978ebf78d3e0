//! How much memory a process has, looked at every 50 ms.
//!
//! # Boundary
//! proc_pid_status(5) of one process: what is resident, and how much of it is anonymous, which is what a control
//! group counts for sure.
//!
//! # Concurrency
//! A thread of its own, from start to end of a phase; it ends when its channel does.
//!
//! # Why
//! `VmHWM` would show a peak of a microsecond, but of the program's whole life, and resetting it takes a write to
//! `clear_refs`, which changes what is measured. Weakness: what comes and goes within 50 ms.

use crate::context;
use std::fs;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was seen of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sampled {
    /// The most that was resident.
    pub(super) resident_bytes: u64,
    /// The most of it that no file backs.
    pub(super) anonymous_bytes: u64,
    /// What was resident when it was looked at last.
    pub(super) left_bytes: u64,
    /// How often it was looked at.
    pub(super) looks: u64,
}

/// Looks at a process until it is told to end.
#[derive(Debug)]
pub(super) struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Sampled>,
}

impl Sampler {
    /// Begins to look at process `pid`.
    pub(super) fn start(pid: u32) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let look = move || {
            let mut sampled = Sampled::default();
            loop {
                sampled.add(now(pid));
                if ended.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    sampled.add(now(pid));
                    return sampled;
                }
            }
        };
        let thread = std::thread::Builder::new().name("bench-memory".into()).spawn(look);
        Ok(Self { end, thread: thread.map_err(context("a thread"))? })
    }

    /// What was seen.
    pub(super) fn end(self) -> io::Result<Sampled> {
        drop(self.end);
        self.thread.join().map_err(|_| io::Error::other("the thread that measures panicked"))
    }
}

impl Sampled {
    fn add(&mut self, (resident, anonymous): (u64, u64)) {
        // A process that has ended has nothing; what it had last stands.
        if resident > 0 {
            self.left_bytes = resident;
        }
        self.resident_bytes = self.resident_bytes.max(resident);
        self.anonymous_bytes = self.anonymous_bytes.max(anonymous);
        self.looks += 1;
    }
}

/// Resident bytes of process `pid`, and anonymous ones; 0 if it has ended.
pub(super) fn now(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    (bytes_of("VmRSS:", &text), bytes_of("RssAnon:", &text))
}

fn bytes_of(label: &str, text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(label));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|number| number.parse::<u64>().ok()).map_or(0, |number| number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_dead_one_has_none() {
        let (resident, anonymous) = now(std::process::id());
        assert!(resident > 1 << 16 && anonymous > 0 && anonymous <= resident);
        assert_eq!(now(u32::MAX), (0, 0));
        let sampled = Sampler::start(std::process::id()).unwrap().end().unwrap();
        assert!(sampled.looks >= 2 && sampled.resident_bytes >= sampled.left_bytes, "{sampled:?}");
    }

    #[test]
    fn the_end_of_a_process_leaves_what_it_had() {
        let mut sampled = Sampled::default();
        [(5, 2), (9, 1), (7, 3), (0, 0)].into_iter().for_each(|now| sampled.add(now));
        let expected = Sampled { resident_bytes: 9, anonymous_bytes: 3, left_bytes: 7, looks: 4 };
        assert_eq!(sampled, expected);
    }
}
