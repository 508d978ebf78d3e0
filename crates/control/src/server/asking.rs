//! Requests whose answers may need the source, each on a thread of its own.
//!
//! # Boundary
//! Starts the thread, waits for its answer, and gives up when the source hangs. The parent module makes the answer.
//!
//! # Concurrency
//! The client's thread waits; the thread that it started carries out the request, and may hang in the source. When the
//! client has been answered without it, that thread is *abandoned*: it runs until the source answers, and then ends.
//! While [`ABANDONED_MAX`] threads are abandoned, no request of this kind begins. So there are never more of them than
//! that and the places for clients together.
//!
//! # Why
//! A source may hang for hours (an unreachable NFS server). Users query and end its mount in just these hours, so no
//! client's thread may wait for the source. Only the mount knows whether its source hangs ([`Served::source_hangs`]): a
//! time limit alone would refuse slow requests, too. Weakness: for a source without such knowledge (a bucket, an image,
//! a library's) there is only the limit.

use super::{ClientLoad, Served};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The refusal where the source hangs.
const SILENT: &str = "the source does not answer";
/// The remedy in that refusal.
const LATER: &str = "try again when the source answers";
/// Abandoned threads of one mount beyond which no request begins that may need the source.
const ABANDONED_MAX: usize = 4;
/// Time without an answer or a step, after which the mount is asked whether its source hangs; and between two such questions.
const QUIET_TIME: Duration = Duration::from_millis(500);

/// The client waits for the thread.
const AWAITED: u8 = 0;
/// The client has been answered without it.
const ABANDONED: u8 = 1;
/// The thread has ended.
const ENDED: u8 = 2;

/// How far a request is that is carried out.
#[derive(Debug, Default)]
pub(super) struct Course {
    steps: AtomicU64,
    /// [`AWAITED`], and then [`ABANDONED`] or [`ENDED`] or one after the other.
    state: AtomicU8,
}

impl Course {
    /// The thread got further.
    pub(super) fn step(&self) {
        // ORDERING: Relaxed; only whether the count moves is looked at.
        self.steps.fetch_add(1, Relaxed);
    }

    /// Whether the client has been answered without the thread.
    pub(super) fn is_abandoned(&self) -> bool {
        // ORDERING: Acquire, partner the AcqRel in `abandon`.
        self.state.load(Acquire) == ABANDONED
    }

    /// Whether the thread was still working, and counts as abandoned from now on.
    fn abandon(&self, load: &ClientLoad) -> bool {
        // ORDERING: Relaxed; a bound on threads. Counted first, so that the thread finds its count when it ends.
        load.abandoned.fetch_add(1, Relaxed);
        // ORDERING: AcqRel, partner the same in `Working::drop`: one of the two is first, and the other sees it.
        let abandoned = self.state.compare_exchange(AWAITED, ABANDONED, AcqRel, Acquire).is_ok();
        if !abandoned {
            load.abandoned.fetch_sub(1, Relaxed);
        }
        abandoned
    }
}

/// A thread that carries out a request; ended when dropped, also by a panic.
struct Working {
    course: Arc<Course>,
    load: Arc<ClientLoad>,
}

impl Drop for Working {
    fn drop(&mut self) {
        // ORDERING: AcqRel, partner the same in `Course::abandon`.
        if self.course.state.swap(ENDED, AcqRel) == ABANDONED {
            // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
            self.load.abandoned.fetch_sub(1, Relaxed);
        }
    }
}

/// Carries out `request` on a thread of its own, which may take `limit` if there is one.
///
/// # Errors
/// The reason, in words, if there is no answer. The thread may still run then.
pub(super) fn ask<T: Send + 'static>(
    served: &Arc<dyn Served>,
    load: &Arc<ClientLoad>,
    limit: Option<Duration>,
    request: impl FnOnce(&dyn Served, &Course) -> T + Send + 'static,
) -> Result<T, String> {
    // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
    if load.abandoned.load(Relaxed) >= ABANDONED_MAX {
        return Err(format!("{SILENT}, and {ABANDONED_MAX} requests wait for it already; {LATER}"));
    }
    let course = Arc::new(Course::default());
    let working = Working { course: course.clone(), load: load.clone() };
    let (sender, receiver) = mpsc::sync_channel(1);
    let asked = served.clone();
    let carry_out = move || {
        let answer = request(&*asked, &working.course);
        // Before the answer is sent: where no request is under way, no thread refers to the mount.
        drop(asked);
        let _ = sender.send(answer);
    };
    let thread = thread::Builder::new().name("uvfs-control-ask".into());
    thread.spawn(carry_out).map_err(|error| format!("no thread: {}", crate::cause(&error)))?;
    let began = Instant::now();
    let (mut quiet_since, mut steps) = (began, 0);
    loop {
        let end = limit.map_or(QUIET_TIME, |limit| limit.saturating_sub(began.elapsed()));
        let quiet = QUIET_TIME.saturating_sub(quiet_since.elapsed());
        match receiver.recv_timeout(quiet.min(end)) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the request failed; see the daemon's log".into());
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // ORDERING: Relaxed; the count of `step`.
        let now = course.steps.load(Relaxed);
        if steps != now {
            (steps, quiet_since) = (now, Instant::now());
        } else if quiet_since.elapsed() >= QUIET_TIME && served.source_hangs() {
            if course.abandon(load) {
                return Err(format!("{SILENT}; {LATER}"));
            }
        } else if quiet_since.elapsed() >= QUIET_TIME {
            quiet_since = Instant::now();
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) && course.abandon(load) {
            let seconds = began.elapsed().as_secs();
            return Err(format!(
                "no answer within {seconds} s, perhaps because the source hangs; {LATER}"
            ));
        }
    }
}
