//! Requests that wait for workers, by user.
//!
//! # Boundary
//! Decides which request runs next, how many of one user run at once, and when one is refused. Runs
//! nothing, and knows no threads but by number.
//!
//! # Concurrency
//! Plain data under the lock of [`super::Work`].
//!
//! # Why
//! With one queue, whoever sends more requests into a stuck store than there are workers stops all
//! misses of everybody. So a user has at most [`LANE_WORKERS`] of [`WORKERS_MAX`] threads, the user with
//! the fewest running requests comes first, and for users with none there are [`SPARE_WORKERS`] more.
//!
//! A queue may grow as long as it moves: a thousand programs that start at once are not refused. Only
//! when none of a user's requests has come back for [`STUCK_AFTER`], and those that wait keep more than
//! [`LANE_BYTES`], the next is refused with EAGAIN: it could only wait as well, and its memory is ours.
//! Weakness: more than [`WORKERS_MAX`] / [`LANE_WORKERS`] users with stuck requests share the spare
//! threads, one each.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// Requests of one user that run on workers at once.
pub(crate) const LANE_WORKERS: usize = 64;
/// Workers, but for the spare ones.
pub(super) const WORKERS_MAX: usize = 128;
/// Workers beyond that for users of whom no request runs.
pub(super) const SPARE_WORKERS: usize = 32;
/// A lane that has seen none of its requests come back for so long is stuck.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(5);
/// What may wait in a lane that is stuck.
pub(super) const LANE_BYTES: usize = 16 << 20;
/// What a waiting request keeps besides its data: job, reply and caller.
pub(crate) const JOB_BYTES: usize = 4 << 10;

/// The lane of what closes files. Such requests name whoever ran when the last descriptor went, which may be
/// nobody in particular; no user has this number.
pub(super) const CLOSING: u32 = u32::MAX;
/// The lane of pages that the kernel writes on nobody's behalf: what a program stored in a mapping. Nor has
/// any user this number: user ids end at 2^32 - 2, and the kernel gives that one to nobody's.
pub(super) const PAGES: u32 = u32::MAX - 1;

/// The lanes of all users that have requests.
pub(super) struct Lanes<J> {
    lanes: BTreeMap<u32, Lane<J>>,
    running: usize,
    waiting: usize,
}

struct Lane<J> {
    queue: VecDeque<(usize, J)>,
    bytes: usize,
    running: usize,
    /// When a request last came back, or the first one came in.
    moved: Instant,
}

impl<J> Lane<J> {
    fn may_run(&self) -> usize {
        self.queue.len().min(LANE_WORKERS - self.running)
    }
}

impl<J> fmt::Debug for Lanes<J> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lanes, running, waiting) = (self.lanes.len(), self.running, self.waiting);
        write!(out, "{lanes} lanes, {running} running, {waiting} waiting")
    }
}

impl<J> Lanes<J> {
    pub(super) fn new() -> Self {
        Self { lanes: BTreeMap::new(), running: 0, waiting: 0 }
    }

    /// Puts `job`, which keeps `bytes`, at the end of a lane. Given back if it is refused.
    pub(super) fn push(&mut self, uid: u32, bytes: usize, job: J, now: Instant) -> Result<(), J> {
        let bytes = bytes.saturating_add(JOB_BYTES);
        let lane = self.lane(uid, now);
        let stuck = lane.running >= LANE_WORKERS && now.duration_since(lane.moved) >= STUCK_AFTER;
        if stuck && lane.bytes.saturating_add(bytes) > LANE_BYTES {
            return Err(job);
        }
        self.push_always(uid, bytes, job, now);
        Ok(())
    }

    /// As [`Lanes::push`], of what must not be refused.
    pub(super) fn push_always(&mut self, uid: u32, bytes: usize, job: J, now: Instant) {
        let lane = self.lane(uid, now);
        lane.bytes += bytes;
        lane.queue.push_back((bytes, job));
        self.waiting += 1;
    }

    fn lane(&mut self, uid: u32, now: Instant) -> &mut Lane<J> {
        let new = || Lane { queue: VecDeque::new(), bytes: 0, running: 0, moved: now };
        self.lanes.entry(uid).or_insert_with(new)
    }

    /// The next request to run: of the user of whom the fewest run.
    pub(super) fn take(&mut self) -> Option<(u32, J)> {
        let full = self.running >= WORKERS_MAX;
        let lanes = self.lanes.iter_mut().filter(|(_, lane)| lane.may_run() > 0);
        let (&uid, lane) = lanes.min_by_key(|(_, lane)| lane.running)?;
        if full && lane.running > 0 {
            return None;
        }
        let (bytes, job) = lane.queue.pop_front()?;
        lane.bytes -= bytes;
        lane.running += 1;
        self.running += 1;
        self.waiting -= 1;
        Some((uid, job))
    }

    /// A request of `uid` that was taken has come back.
    pub(super) fn done(&mut self, uid: u32, now: Instant) {
        self.running -= 1;
        let Some(lane) = self.lanes.get_mut(&uid) else { return };
        lane.running -= 1;
        lane.moved = now;
        if lane.running == 0 && lane.queue.is_empty() {
            self.lanes.remove(&uid);
        }
    }

    /// Requests that could run now if there were threads.
    pub(super) fn runnable(&self) -> usize {
        self.lanes.values().map(Lane::may_run).sum()
    }

    /// Whether one thread more than `workers` may be started.
    pub(super) fn may_start(&self, workers: usize) -> bool {
        let spare = || {
            let waits = |lane: &Lane<J>| lane.running == 0 && !lane.queue.is_empty();
            workers < WORKERS_MAX + SPARE_WORKERS && self.lanes.values().any(waits)
        };
        workers < WORKERS_MAX || spare()
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(lanes: &mut Lanes<u32>, uid: u32, count: usize, now: Instant) {
        (0..count).for_each(|_| lanes.push(uid, 0, uid, now).unwrap());
        (0..count).for_each(|_| assert_eq!(lanes.take(), Some((uid, uid))));
    }

    #[test]
    fn the_user_with_the_fewest_running_requests_comes_first() {
        let (mut lanes, now) = (Lanes::new(), Instant::now());
        start(&mut lanes, 1, 10, now);
        (0..5).for_each(|_| lanes.push(1, 0, 1, now).unwrap());
        lanes.push(2, 0, 2, now).unwrap();
        assert_eq!(lanes.take(), Some((2, 2)));
        assert_eq!((lanes.waiting(), lanes.runnable()), (5, 5));
    }

    #[test]
    fn a_user_has_a_share_and_those_with_nothing_running_have_spare_threads() {
        let (mut lanes, now) = (Lanes::new(), Instant::now());
        let users = (WORKERS_MAX / LANE_WORKERS) as u32;
        for uid in 0..users {
            start(&mut lanes, uid, LANE_WORKERS, now);
            lanes.push(uid, 0, uid, now).unwrap();
        }
        assert_eq!((lanes.take(), lanes.runnable()), (None, 0));
        assert!(!lanes.may_start(WORKERS_MAX));
        for _ in 0..2 {
            lanes.push(99, 0, 99, now).unwrap();
        }
        assert!(lanes.may_start(WORKERS_MAX) && !lanes.may_start(WORKERS_MAX + SPARE_WORKERS));
        assert_eq!(lanes.take(), Some((99, 99)));
        assert_eq!(lanes.take(), None, "one each");
        lanes.done(0, now);
        assert_eq!(lanes.take(), None, "the spare thread counts until it is back");
        lanes.done(99, now);
        assert_eq!(lanes.take(), Some((99, 99)));
    }

    #[test]
    fn a_queue_that_moves_is_never_refused_and_one_that_is_stuck_has_a_bound() {
        let (mut lanes, start_of_it) = (Lanes::new(), Instant::now());
        start(&mut lanes, 1, LANE_WORKERS, start_of_it);
        let many = LANE_BYTES / JOB_BYTES + 100;
        (0..many).for_each(|_| lanes.push(1, 0, 1, start_of_it).unwrap());
        let late = start_of_it + STUCK_AFTER;
        assert_eq!(lanes.push(1, 0, 1, late), Err(1));
        assert_eq!(lanes.push(2, 0, 2, late), Ok(()), "another user is not concerned");
        lanes.done(1, late);
        assert_eq!(lanes.push(1, 1 << 20, 1, late), Ok(()), "it moves again");
    }

    /// Pages of a mapping went through the lane of root, whose stuck requests had them refused: what a
    /// program had stored was gone, without an error to anybody.
    #[test]
    fn pages_of_mappings_are_taken_by_a_lane_that_is_stuck() {
        let (mut lanes, start_of_it) = (Lanes::new(), Instant::now());
        start(&mut lanes, 0, LANE_WORKERS, start_of_it);
        (0..20).for_each(|_| lanes.push(0, 1 << 20, 0, start_of_it).unwrap());
        let late = start_of_it + STUCK_AFTER;
        assert_eq!(lanes.push(0, 0, 0, late), Err(0));
        for _ in 0..LANE_WORKERS {
            lanes.push_always(PAGES, 1 << 20, PAGES, late);
            assert_eq!(lanes.take(), Some((PAGES, PAGES)), "beside root's");
        }
        (0..64).for_each(|_| lanes.push_always(PAGES, 1 << 20, PAGES, late + STUCK_AFTER));
    }
}
