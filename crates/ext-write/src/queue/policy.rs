//! How much background work the device gets, led by the latency of synchronous requests.
//!
//! # Boundary
//! Numbers in, numbers out: no clock, no lock, no device. A queue asks before each request, and says what a window of time brought.
//!
//! # Concurrency
//! None: the caller has it under a lock.
//!
//! # Why
//! As CoDel, and the kernel's writeback throttling: the *least* latency of a window. One slow request says nothing; if even the
//! fastest one was slow, all of them waited for background work. What is slow depends on the device: the target is a multiple of
//! what a request takes alone. P1. While synchronous requests are under way, one piece is under way in the background. P2. Else at most
//! `depth` pieces. P3. The depth halves after a window that missed the target, grows by one piece after one that met
//! it, and is whole again after one without synchronous requests. P4. At depth 0 one request of one piece begins for each
//! flush, or window: a device whose cache takes writes at once has the next flush pay for them. So the background never starves.

/// Kinds of synchronous requests: reads, writes, flushes.
pub const KINDS: usize = 3;
/// Bytes of a piece.
pub const PIECE: usize = 64 << 10;
/// Pieces that are under way at most: the largest request.
pub const DEPTH_MAX: u32 = 8;
/// How long a window is.
pub const WINDOW_NS: u64 = 100_000_000;
/// A kind of which a window has fewer requests is not judged.
const REQUESTS_FEW: u64 = 3;
/// The target: the kernel's for devices that do not rotate, or so many times the latency alone.
const TARGET_NS: u64 = 2_000_000;
const TARGET_TIMES_ALONE: u64 = 4;

/// The synchronous requests of one kind in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many ended.
    pub requests: u64,
    /// The shortest of them.
    pub least_ns: u64,
}

/// The present depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    depth: u32,
    /// The least latency of each kind without background work; 0 if that was not seen yet.
    alone_ns: [u64; KINDS],
    /// At depth 0: a request may begin.
    may_begin: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { depth: DEPTH_MAX, alone_ns: [0; KINDS], may_begin: true }
    }
}

impl Policy {
    /// Pieces that may be under way in the background while no synchronous request is.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Pieces that the next background request may have while `pieces` are under way in the background, and so many
    /// synchronous requests. 0: none now.
    pub fn next(&self, synchronous: u64, pieces: u32) -> u32 {
        let limit = match self.depth {
            0 => u32::from(self.may_begin),
            _ if synchronous > 0 => 1,
            depth => depth,
        };
        limit.saturating_sub(pieces)
    }

    /// A background request begins.
    pub fn began(&mut self) {
        self.may_begin = false;
    }

    /// A synchronous flush has ended.
    pub fn flushed(&mut self) {
        self.may_begin = true;
    }

    /// A window has ended in which these synchronous requests did; `background`: it had background requests.
    pub fn window(&mut self, seen: &[Seen; KINDS], background: bool) {
        self.may_begin = true;
        let judged = |seen: &Seen| seen.requests >= REQUESTS_FEW;
        if !background {
            for (alone_ns, seen) in self.alone_ns.iter_mut().zip(seen) {
                if judged(seen) {
                    *alone_ns = match *alone_ns {
                        0 => seen.least_ns,
                        before => (3 * before + seen.least_ns) / 4,
                    };
                }
            }
            return;
        }
        let missed = seen.iter().zip(self.alone_ns).any(|(seen, alone_ns)| {
            judged(seen) && seen.least_ns > TARGET_NS.max(TARGET_TIMES_ALONE * alone_ns)
        });
        self.depth = match missed {
            true => self.depth / 2,
            false if seen.iter().all(|seen| seen.requests == 0) => DEPTH_MAX,
            false => (self.depth + 1).min(DEPTH_MAX),
        };
    }
}

/// Background requests that a writer lets pass before it adds to what waits: `used` of a room of `limit`. None below three
/// quarters of it, then in proportion.
pub fn let_pass(used: u64, limit: u64) -> u64 {
    let from = limit - limit / 4;
    let beyond = used.saturating_sub(from).min(limit / 4);
    (beyond * u64::from(DEPTH_MAX)).checked_div(limit / 4).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn seen(requests: u64, least_ns: u64) -> [Seen; KINDS] {
        [Seen::default(), Seen { requests, least_ns }, Seen::default()]
    }

    #[test]
    fn the_depth_halves_while_latency_misses_its_target_and_comes_back() {
        let mut policy = Policy::default();
        assert_eq!(policy.next(0, 0), DEPTH_MAX);
        let mut depths = Vec::new();
        for least in [3 * MS, 3 * MS, 3 * MS, 3 * MS, MS, MS] {
            policy.window(&seen(5, least), true);
            depths.push(policy.depth());
        }
        assert_eq!(depths, [4, 2, 1, 0, 1, 2]);
        policy.window(&seen(2, 90 * MS), true);
        assert_eq!(policy.depth(), 3, "two requests say nothing");
        policy.window(&seen(0, 0), true);
        assert_eq!(policy.depth(), DEPTH_MAX, "the device is idle");
    }

    /// A disk that turns takes ten times the target for each request: the depth was always one.
    #[test]
    fn the_target_is_a_multiple_of_the_latency_alone() {
        let mut policy = Policy::default();
        policy.window(&seen(20, 20 * MS), false);
        policy.window(&seen(20, 70 * MS), true);
        assert_eq!(policy.depth(), DEPTH_MAX);
        policy.window(&seen(20, 90 * MS), true);
        assert_eq!(policy.depth(), DEPTH_MAX / 2);
    }

    #[test]
    fn beside_synchronous_requests_one_piece_is_under_way() {
        let policy = Policy::default();
        assert_eq!([0, 1, 7].map(|pieces| policy.next(3, pieces)), [1, 0, 0]);
        assert_eq!([0, 1, 8, 9].map(|pieces| policy.next(0, pieces)), [8, 7, 0, 0]);
    }

    /// The cache of a disk took every write in no time, and each flush waited for a second's worth of them.
    #[test]
    fn at_depth_0_one_request_begins_for_each_flush_or_window() {
        let mut policy = Policy::default();
        for _ in 0..4 {
            policy.window(&seen(5, 50 * MS), true);
        }
        assert_eq!((policy.depth(), policy.next(0, 0)), (0, 1));
        policy.began();
        assert_eq!(policy.next(0, 0), 0);
        policy.flushed();
        assert_eq!(policy.next(0, 0), 1);
        policy.began();
        policy.window(&seen(5, 50 * MS), true);
        assert_eq!((policy.next(1, 0), policy.next(1, 1)), (1, 0));
    }

    #[test]
    fn writers_are_slowed_in_proportion() {
        assert_eq!([0, 75, 80, 88, 100, 500].map(|used| let_pass(used, 100)), [0, 0, 1, 4, 8, 8]);
        assert_eq!(let_pass(5, 3), 0, "a room of no quarters");
    }
}
