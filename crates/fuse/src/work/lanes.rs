//! Requests that wait for workers, by user.
//!
//! # Boundary
//! Decides which request runs next, how many of one user run at once, and when one is refused. Runs nothing, and knows
//! threads only as a number.
//!
//! # Concurrency
//! Plain data under the lock of [`super::Work`].
//!
//! # Why
//! With one queue, a user with more requests in a stuck store than there are workers stops all users' misses. So a user
//! has at most [`LANE_WORKERS`] of [`WORKERS_MAX`] threads, and the user with the fewest running requests is next.
//! Users without a running request have [`SPARE_WORKERS`] more.
//!
//! A queue may grow as long as it moves: a thousand programs that start at once are not refused. A request is refused
//! with EAGAIN only when none of the user's requests has returned for [`STUCK_AFTER`] and the queued ones keep more
//! than [`LANE_BYTES`]: it could only wait as well, in our memory.
//!
//! A user's requests are grouped by the object of their wait ([`WaitsFor`]): many hit a cache, and only the running
//! request can tell. Each group has [`GROUP_WORKERS`] of the user's threads for itself and shares the others, so stuck
//! reads do not stop opens, listings and lookups. The request of a killed task is answered early, but a call that has
//! begun keeps its thread until the store's time-outs end it. Weakness: each group then has only four threads. And if more than
//! [`WORKERS_MAX`] / [`LANE_WORKERS`] users have stuck requests, they share the spare threads, one each.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

/// Requests of one user that run on workers at once.
pub(crate) const LANE_WORKERS: usize = 76;
/// Workers of a lane that only one group of requests may use, for each group.
pub(super) const GROUP_WORKERS: usize = 4;
/// Workers without the spare ones.
pub(super) const WORKERS_MAX: usize = 152;
/// Further workers, for users without a running request.
pub(super) const SPARE_WORKERS: usize = 32;
/// A lane that has seen none of its requests come back for so long is stuck.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Bytes that may wait in a stuck lane.
pub(super) const LANE_BYTES: usize = 16 << 20;
/// Bytes of a waiting request besides its data: job, reply and caller.
pub(crate) const JOB_BYTES: usize = 4 << 10;

/// The lane of closes. Such requests carry the user that ran when the last descriptor was closed, which may be
/// unrelated; no user has this number.
pub(super) const CLOSING: u32 = u32::MAX;
/// The lane of pages that the kernel writes for no user: stores to a mapping. User ids end at 2^32 - 2, this number,
/// which belongs to no user.
pub(super) const PAGES: u32 = u32::MAX - 1;

/// The part of a store that a request may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// Bytes of a file.
    Data,
    /// A name or attributes, or a change of them.
    Names,
    /// A listing.
    Listing,
    /// The opening of a file or directory.
    Open,
}

const GROUPS: usize = 4;

/// The lanes of all users that have requests.
pub(super) struct Lanes<J> {
    lanes: BTreeMap<u32, Lane<J>>,
    running: usize,
    waiting: usize,
}

struct Lane<J> {
    groups: [Group<J>; GROUPS],
    bytes: usize,
    running: usize,
}

/// The requests of one user that may wait for the same.
struct Group<J> {
    queue: VecDeque<(usize, J)>,
    running: usize,
    /// The time when a request last returned, or when the first one arrived.
    moved: Instant,
}

impl<J> Lane<J> {
    fn new(now: Instant) -> Self {
        let group = |_| Group { queue: VecDeque::new(), running: 0, moved: now };
        Self { groups: [(); GROUPS].map(group), bytes: 0, running: 0 }
    }

    /// Threads that groups use beyond their own, and may use at most.
    fn shared(&self) -> (usize, usize) {
        let beyond = self.groups.iter().map(|group| group.running.saturating_sub(GROUP_WORKERS));
        (beyond.sum(), LANE_WORKERS - GROUPS * GROUP_WORKERS)
    }

    /// How many more requests of `group` may run, if all threads that are shared are for it.
    fn may_add(&self, group: &Group<J>) -> usize {
        let (used, all) = self.shared();
        GROUP_WORKERS.saturating_sub(group.running) + (all - used)
    }

    fn may_run(&self) -> usize {
        let (used, all) = self.shared();
        let own = |group: &Group<J>| {
            let own = group.queue.len().min(GROUP_WORKERS.saturating_sub(group.running));
            (own, group.queue.len() - own)
        };
        let counts = self.groups.iter().map(own);
        let (own, beyond) = counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        own + beyond.min(all - used)
    }

    /// The next request: of the group of which the fewest run.
    fn take(&mut self) -> Option<(WaitsFor, J)> {
        let may = |at: &usize| {
            let group = &self.groups[*at];
            !group.queue.is_empty() && self.may_add(group) > 0
        };
        let at = (0..GROUPS).filter(may).min_by_key(|at| self.groups[*at].running)?;
        let group = &mut self.groups[at];
        let (bytes, job) = group.queue.pop_front()?;
        group.running += 1;
        self.running += 1;
        self.bytes -= bytes;
        Some((WaitsFor::ALL[at], job))
    }

    fn is_empty(&self) -> bool {
        self.running == 0 && self.groups.iter().all(|group| group.queue.is_empty())
    }
}

impl WaitsFor {
    /// In the order of a lane's groups.
    const ALL: [WaitsFor; GROUPS] =
        [WaitsFor::Data, WaitsFor::Names, WaitsFor::Listing, WaitsFor::Open];
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
    pub(super) fn push(
        &mut self,
        (uid, waits): (u32, WaitsFor),
        bytes: usize,
        job: J,
        now: Instant,
    ) -> Result<(), J> {
        let bytes = bytes.saturating_add(JOB_BYTES);
        let lane = self.lane(uid, now);
        let group = &lane.groups[waits as usize];
        let idle = now.duration_since(group.moved);
        let stuck = lane.may_add(group) == 0 && idle >= STUCK_AFTER;
        if stuck && lane.bytes.saturating_add(bytes) > LANE_BYTES {
            return Err(job);
        }
        self.push_always((uid, waits), bytes, job, now);
        Ok(())
    }

    /// [`Lanes::push`] for a job that must not be refused.
    pub(super) fn push_always(
        &mut self,
        (uid, waits): (u32, WaitsFor),
        bytes: usize,
        job: J,
        now: Instant,
    ) {
        let lane = self.lane(uid, now);
        lane.bytes += bytes;
        let group = &mut lane.groups[waits as usize];
        if group.running == 0 && group.queue.is_empty() {
            group.moved = now;
        }
        group.queue.push_back((bytes, job));
        self.waiting += 1;
    }

    fn lane(&mut self, uid: u32, now: Instant) -> &mut Lane<J> {
        self.lanes.entry(uid).or_insert_with(|| Lane::new(now))
    }

    /// The next request to run: one of the user with the fewest running.
    pub(super) fn take(&mut self) -> Option<((u32, WaitsFor), J)> {
        let full = self.running >= WORKERS_MAX;
        let lanes = self.lanes.iter_mut().filter(|(_, lane)| lane.may_run() > 0);
        let (&uid, lane) = lanes.min_by_key(|(_, lane)| lane.running)?;
        if full && lane.running > 0 {
            return None;
        }
        let (waits, job) = lane.take()?;
        self.running += 1;
        self.waiting -= 1;
        Some(((uid, waits), job))
    }

    /// A request that was taken has come back.
    pub(super) fn done(&mut self, (uid, waits): (u32, WaitsFor), now: Instant) {
        self.running -= 1;
        let Some(lane) = self.lanes.get_mut(&uid) else { return };
        lane.running -= 1;
        let group = &mut lane.groups[waits as usize];
        group.running -= 1;
        group.moved = now;
        if lane.is_empty() {
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
            let waits = |lane: &Lane<J>| lane.running == 0 && !lane.is_empty();
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
    use super::WaitsFor::{Data, Listing, Names, Open};
    use super::*;

    /// The reads of one user that run at once.
    const READS: usize = LANE_WORKERS - (GROUPS - 1) * GROUP_WORKERS;

    fn start(lanes: &mut Lanes<u32>, uid: u32, count: usize, now: Instant) {
        (0..count).for_each(|_| lanes.push((uid, Data), 0, uid, now).unwrap());
        (0..count).for_each(|_| assert_eq!(lanes.take(), Some(((uid, Data), uid))));
    }

    #[test]
    fn the_user_with_the_fewest_running_requests_comes_first() {
        let (mut lanes, now) = (Lanes::new(), Instant::now());
        start(&mut lanes, 1, 10, now);
        (0..5).for_each(|_| lanes.push((1, Data), 0, 1, now).unwrap());
        lanes.push((2, Data), 0, 2, now).unwrap();
        assert_eq!(lanes.take(), Some(((2, Data), 2)));
        assert_eq!((lanes.waiting(), lanes.runnable()), (5, 5));
    }

    #[test]
    fn a_user_has_a_share_and_those_with_nothing_running_have_spare_threads() {
        let (mut lanes, now) = (Lanes::new(), Instant::now());
        let users = (WORKERS_MAX / LANE_WORKERS) as u32;
        for uid in 0..users {
            start(&mut lanes, uid, READS, now);
            lanes.push((uid, Data), 0, uid, now).unwrap();
            for waits in [Names, Listing, Open].repeat(GROUP_WORKERS) {
                lanes.push((uid, waits), 0, uid, now).unwrap();
                assert!(lanes.take().is_some());
            }
        }
        assert_eq!((lanes.take(), lanes.runnable()), (None, 0));
        assert!(!lanes.may_start(WORKERS_MAX));
        for _ in 0..2 {
            lanes.push((99, Data), 0, 99, now).unwrap();
        }
        assert!(lanes.may_start(WORKERS_MAX) && !lanes.may_start(WORKERS_MAX + SPARE_WORKERS));
        assert_eq!(lanes.take(), Some(((99, Data), 99)));
        assert_eq!(lanes.take(), None, "one each");
        lanes.done((0, Data), now);
        assert_eq!(lanes.take(), None, "the spare thread counts until it is back");
        lanes.done((99, Data), now);
        assert_eq!(lanes.take(), Some(((99, Data), 99)));
    }

    #[test]
    fn a_queue_that_moves_is_never_refused_and_one_that_is_stuck_has_a_bound() {
        let (mut lanes, start_of_it) = (Lanes::new(), Instant::now());
        start(&mut lanes, 1, READS, start_of_it);
        let many = LANE_BYTES / JOB_BYTES + 100;
        (0..many).for_each(|_| lanes.push((1, Data), 0, 1, start_of_it).unwrap());
        let late = start_of_it + STUCK_AFTER;
        assert_eq!(lanes.push((1, Data), 0, 1, late), Err(1));
        assert_eq!(lanes.push((2, Data), 0, 2, late), Ok(()), "another user is not concerned");
        lanes.done((1, Data), late);
        assert_eq!(lanes.push((1, Data), 1 << 20, 1, late), Ok(()), "it moves again");
    }

    /// Bug: pages of a mapping used the lane of root, whose stuck requests had them refused. A program's stores were
    /// lost without an error.
    #[test]
    fn pages_of_mappings_are_taken_by_a_lane_that_is_stuck() {
        let (mut lanes, start_of_it) = (Lanes::new(), Instant::now());
        start(&mut lanes, 0, READS, start_of_it);
        (0..20).for_each(|_| lanes.push((0, Data), 1 << 20, 0, start_of_it).unwrap());
        let late = start_of_it + STUCK_AFTER;
        assert_eq!(lanes.push((0, Data), 0, 0, late), Err(0));
        for _ in 0..READS {
            lanes.push_always((PAGES, Data), 1 << 20, PAGES, late);
            assert_eq!(lanes.take(), Some(((PAGES, Data), PAGES)), "beside root's");
        }
        (0..64).for_each(|_| lanes.push_always((PAGES, Data), 1 << 20, PAGES, late + STUCK_AFTER));
    }

    /// Reads that hung took all threads of their user. So files and directories that were cached could not be opened or listed until
    /// the store's time-outs were over.
    #[test]
    fn reads_that_hang_leave_threads_to_opens_and_listings() {
        let (mut lanes, now) = (Lanes::new(), Instant::now());
        (0..200).for_each(|_| lanes.push((1, Data), 0, 1, now).unwrap());
        (0..READS).for_each(|_| assert_eq!(lanes.take(), Some(((1, Data), 1))));
        assert_eq!((lanes.take(), lanes.runnable()), (None, 0));
        for waits in [Names, Listing, Open] {
            (0..100).for_each(|_| lanes.push((1, waits), 0, 1, now).unwrap());
        }
        assert_eq!(lanes.runnable(), 3 * GROUP_WORKERS);
        let mut taken = std::iter::from_fn(|| lanes.take()).map(|((_, waits), _)| waits);
        let taken: Vec<_> = taken.by_ref().collect();
        for waits in [Names, Listing, Open] {
            assert_eq!(
                taken.iter().filter(|one| **one == waits).count(),
                GROUP_WORKERS,
                "{waits:?}"
            );
        }
        // A request that returns makes room for another of its group.
        lanes.done((1, Open), now);
        assert_eq!(lanes.take(), Some(((1, Open), 1)));
        assert_eq!(lanes.take(), None);
        // Requests that wait beside stuck reads do not count as stuck. The reads do, though the others return.
        let late = now + STUCK_AFTER;
        lanes.done((1, Open), late);
        assert_eq!(lanes.push((1, Open), LANE_BYTES, 1, late), Ok(()));
        assert_eq!(lanes.push((1, Data), 0, 1, late), Err(1));
    }
}
