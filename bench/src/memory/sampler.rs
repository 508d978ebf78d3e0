//! The memory of a process, sampled every 50 ms.
//!
//! # Boundary
//! proc_pid_status(5) of one process: its resident memory, and the anonymous part of it, which a control group always
//! counts.
//!
//! # Concurrency
//! A separate thread, from start to end of a phase; it ends when its channel does.
//!
//! # Why
//! `VmHWM` would show a peak of a microsecond, but of the program's whole life. To reset it takes a write to
//! `clear_refs`, which changes the measured state. Weakness: memory that is allocated and freed within 50 ms is missed.

use crate::context;
use std::fs;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The samples of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sampled {
    /// The most that was resident.
    pub(super) resident_bytes: u64,
    /// The most of it that no file backs.
    pub(super) anonymous_bytes: u64,
    /// The resident memory of the last sample.
    pub(super) left_bytes: u64,
    /// How often it was looked at.
    pub(super) looks: u64,
}

/// Samples a process until it is dropped or ended.
#[derive(Debug)]
pub(super) struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Sampled>,
}

impl Sampler {
    /// Starts to sample process `pid`.
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

    /// The samples.
    pub(super) fn end(self) -> io::Result<Sampled> {
        drop(self.end);
        self.thread.join().map_err(|_| io::Error::other("the thread that measures panicked"))
    }
}

impl Sampled {
    fn add(&mut self, (resident, anonymous): (u64, u64)) {
        // A process that has ended has none; its last sample stays.
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
