//! Questions to a source that may hang.
//!
//! # Boundary
//! Runs the caller's question on a separate thread and waits for the answer, for a bounded time.
//!
//! # Concurrency
//! A [`Probe`] has at most one open question, so a hanging source blocks at most one of its threads. Threads that ask
//! meanwhile wait for the same answer. The lock ([`SOURCE_PROBE`]) is never held during a question.
//!
//! # Why
//! A system call on a directory of a stopped FUSE file system or of an unreachable NFS server has no time limit. The
//! calling thread is lost until the source answers, so it must not be a thread that answers a client. Weakness: a
//! thread for each question, some 20 µs.

use crate::lock_order::SOURCE_PROBE;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};

/// The outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<T> {
    /// The source answered.
    Answer(T),
    /// It has not answered for so long.
    Silent(Duration),
    /// There was no thread to ask it.
    NotAsked,
}

/// A question that is asked again and again, and by one thread at a time.
pub struct Probe<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// When the open question was asked.
    open: Option<Instant>,
    /// Answers so far.
    answers: u64,
    last: Option<T>,
}

impl<T> fmt::Debug for Probe<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Probe(open since {:?})", self.shared.state.lock().open)
    }
}

impl<T> Default for Probe<T> {
    fn default() -> Self {
        let state = State { open: None, answers: 0, last: None };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(&SOURCE_PROBE, state),
                changed: Condvar::default(),
            }),
        }
    }
}

impl<T: Clone + Send + 'static> Probe<T> {
    /// Asks `question`, unless one is open, and waits until it has been open for `limit`.
    pub fn ask(&self, limit: Duration, question: impl FnOnce() -> T + Send + 'static) -> Asked<T> {
        let mut state = self.shared.state.lock();
        let asked = match state.open {
            Some(asked) => asked,
            None => {
                let shared = self.shared.clone();
                let thread = thread::Builder::new().name("uvfs-probe".into());
                if thread.spawn(move || shared.answer(question())).is_err() {
                    return Asked::NotAsked;
                }
                // The thread needs the lock to answer.
                *state.open.insert(Instant::now())
            }
        };
        let wanted = state.answers + 1;
        while state.answers < wanted {
            let left = limit.saturating_sub(asked.elapsed());
            if left.is_zero() {
                return Asked::Silent(asked.elapsed());
            }
            self.shared.changed.wait_for(&mut state, left);
        }
        state.last.clone().map_or(Asked::NotAsked, Asked::Answer)
    }
}

impl<T> Shared<T> {
    fn answer(&self, answer: T) {
        let mut state = self.state.lock();
        state.open = None;
        state.answers += 1;
        state.last = Some(answer);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_source_that_hangs_is_asked_once_and_again_when_it_has_answered() {
        let probe = Probe::default();
        assert_eq!(probe.ask(HOUR, || 1), Asked::Answer(1));
        let asked = Arc::new(AtomicUsize::new(0));
        let (release, held) = mpsc::channel::<()>();
        let question = {
            let asked = asked.clone();
            move || {
                asked.fetch_add(1, Relaxed);
                let _ = held.recv();
                2
            }
        };
        assert!(matches!(probe.ask(Duration::from_millis(1), question), Asked::Silent(_)));
        for _ in 0..10 {
            let again = asked.clone();
            let question = move || again.fetch_add(1, Relaxed) as i32;
            assert!(matches!(probe.ask(Duration::from_millis(1), question), Asked::Silent(_)));
        }
        thread::scope(|scope| {
            let waits = scope.spawn(|| probe.ask(HOUR, || 3));
            drop(release);
            // It waited for the open question, or asked its own when that had been answered.
            assert!(matches!(waits.join().unwrap(), Asked::Answer(2 | 3)));
        });
        assert_eq!(asked.load(Relaxed), 1);
        assert_eq!(probe.ask(HOUR, || 4), Asked::Answer(4));
    }
}
