//! The order in which threads clean.
//!
//! # Concurrency
//! First come, first served, one at a time; a bounded number wait. The lock guards only the queue. A thread that cleans
//! does not hold it during its turn.

use crate::lock_order;
use crate::work::LANE_WORKERS;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// Threads that may wait behind the thread whose turn it is. Some wait on workers of the mount (`work`), and the
/// cleaning thread may need a READ that is queued for a worker. So the limit is half of a user's workers.
pub(super) const WAITING_MAX: usize = LANE_WORKERS / 2;
/// How often a waiting thread calls `still`.
const TELL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct State {
    /// In order of arrival; it is the first thread's turn.
    queue: VecDeque<u64>,
    next: u64,
    ended: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

/// A place in the queue; given up when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    ticket: u64,
}

impl Turns {
    pub(crate) fn new() -> Arc<Self> {
        let state = Mutex::new(&lock_order::FUSE_CLEAN, State::default());
        Arc::new(Self { state, changed: Condvar::default() })
    }

    /// The mount has ended: no thread gets a turn from now on.
    pub(crate) fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Takes the last place.
    pub(super) fn enter(&self) -> io::Result<Turn<'_>> {
        let mut state = self.state.lock();
        if state.ended {
            return Err(mount_ended());
        }
        if state.queue.len() > WAITING_MAX {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let ticket = state.next;
        state.next += 1;
        state.queue.push_back(ticket);
        Ok(Turn { turns: self, ticket })
    }
}

impl Turn<'_> {
    /// Waits until it is this thread's turn. Calls `still` now and then, with no lock held; if that returns false, the
    /// thread leaves the queue and this returns false.
    pub(super) fn wait(&self, mut still: impl FnMut() -> bool) -> io::Result<bool> {
        loop {
            let mut state = self.turns.state.lock();
            if !state.ended && state.queue.front() != Some(&self.ticket) {
                self.turns.changed.wait_for(&mut state, TELL);
            }
            if state.ended {
                return Err(mount_ended());
            }
            if state.queue.front() == Some(&self.ticket) {
                return Ok(true);
            }
            drop(state);
            if !still() {
                return Ok(false);
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.queue.retain(|&ticket| ticket != self.ticket);
        drop(state);
        self.turns.changed.notify_all();
    }
}

/// ENOTCONN, the kernel's error for such a mount.
pub(super) fn mount_ended() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOTCONN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn turns_come_in_the_order_of_arrival() {
        let turns = Turns::new();
        let (send, order) = mpsc::channel();
        let first = turns.enter().unwrap();
        assert!(first.wait(|| true).unwrap());
        let waiting: Vec<_> = (0..4).map(|_| turns.enter().unwrap()).collect();
        std::thread::scope(|scope| {
            for (at, turn) in waiting.into_iter().enumerate().rev() {
                let send = send.clone();
                scope.spawn(move || {
                    assert!(turn.wait(|| true).unwrap());
                    send.send(at).unwrap();
                });
            }
            assert!(order.try_recv().is_err(), "a thread did not wait");
            drop(first);
        });
        assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_waiter_that_gives_up_is_passed_over() {
        let turns = Turns::new();
        let first = turns.enter().unwrap();
        let (second, third) = (turns.enter().unwrap(), turns.enter().unwrap());
        assert!(!second.wait(|| false).unwrap());
        drop(second);
        drop(first);
        assert!(third.wait(|| panic!("it is its turn")).unwrap());
    }

    #[test]
    fn the_queue_is_bounded_and_frees_places() {
        let turns = Turns::new();
        let mut queue: Vec<_> = (0..=WAITING_MAX).map(|_| turns.enter().unwrap()).collect();
        assert_eq!(turns.enter().unwrap_err().raw_os_error(), Some(libc::EBUSY));
        queue.pop();
        assert!(turns.enter().is_ok());
    }

    #[test]
    fn the_end_reaches_waiters_and_newcomers() {
        let turns = Turns::new();
        let _first = turns.enter().unwrap();
        let second = turns.enter().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| second.wait(|| true));
            turns.end();
            let error = waits.join().unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
        });
        assert_eq!(turns.enter().unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    }
}
