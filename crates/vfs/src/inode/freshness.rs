//! Which answers of the store may be kept, and for how long.

use std::sync::OnceLock;
use std::time::Duration;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// The clock of changes: one tick when a change begins, one when it ends. Alone in its line, beside what all read.
#[derive(Debug, Default)]
pub(crate) struct Clock(Padded<AtomicU64>);

/// A moment on the [`Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// The number it is.
    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }
}

impl Clock {
    /// The moment now; taken before asking the store.
    pub(crate) fn now(&self) -> Ticket {
        // ORDERING: Acquire, partner `tick`: a ticket that counts a tick was taken after it.
        Ticket(self.0.load(Ordering::Acquire))
    }

    /// A new moment, later than all before.
    pub(crate) fn tick(&self) -> Ticket {
        // ORDERING: AcqRel, partner `now`: what precedes the tick is seen by later tickets.
        Ticket(self.0.fetch_add(1, Ordering::AcqRel) + 1)
    }
}

/// The changes of one thing: its attributes, the entries of a directory, or the data of a file.
/// Lives under that thing's lock.
///
/// Packed to 12 bytes: every inode has one.
#[derive(Debug, Default, Clone, Copy)]
#[repr(Rust, packed(4))]
pub(crate) struct Freshness {
    changed: Ticket,
    in_flight: u32,
}

impl Freshness {
    /// Of a thing whose last change was noted at `changed`.
    pub(crate) fn since(changed: Ticket) -> Self {
        Self { changed, in_flight: 0 }
    }

    /// Whether an answer whose request was sent at `ticket` is still true.
    pub(crate) fn admits(&self, ticket: Ticket) -> bool {
        self.in_flight == 0 && self.changed() <= ticket
    }

    /// The last tick noted.
    pub(crate) fn changed(&self) -> Ticket {
        self.changed
    }

    /// A change begins: answers asked for earlier are not kept from now on.
    pub(crate) fn begin(&mut self, clock: &Clock) -> Ticket {
        self.in_flight += 1;
        self.changed = clock.tick();
        self.changed
    }

    /// Whether only the change that began so is in flight, and none ended since.
    pub(crate) fn is_alone(&self, begin: Ticket) -> bool {
        self.in_flight == 1 && self.changed() == begin
    }

    /// A change ends. True if no other change overlapped it, so that its own answer is the truth.
    pub(crate) fn end(&mut self, clock: &Clock, begin: Ticket) -> bool {
        debug_assert!({ self.in_flight } > 0, "a change ends that did not begin");
        let alone = self.in_flight == 1 && self.changed() == begin;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.changed = clock.tick();
        alone
    }

    /// The answer to what was asked at `ticket` is kept: those to what was asked earlier are not any more.
    pub(crate) fn kept(&mut self, ticket: Ticket) {
        self.changed = self.changed().max(ticket);
    }

    /// Answers asked for before `moment` are not kept, nor is what comes of a change that is in flight.
    pub(crate) fn note_at(&mut self, clock: &Clock, moment: u64) {
        match self.in_flight {
            0 => self.changed = self.changed().max(Ticket(moment)),
            _ => self.note(clock),
        }
    }

    /// A change happened elsewhere, at once.
    pub(crate) fn note(&mut self, clock: &Clock) {
        self.changed = clock.tick();
    }
}

/// Until when something cached is believed: a moment of the coarse clock, in nanoseconds since the
/// process first asked. One word, so that it can be read without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry(u64);

/// What a frontend is told for [`Expiry::NEVER`].
const FOREVER: Duration = Duration::from_secs(24 * 3600);

impl Expiry {
    /// As long as it is cached: nobody else changes the store.
    pub(crate) const NEVER: Self = Self(u64::MAX);
    /// Not any more.
    pub(crate) const EXPIRED: Self = Self(0);

    /// `timeout` from now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        if timeout == 0 {
            return Self::EXPIRED;
        }
        Self(Moment::now().0.saturating_add(timeout).min(u64::MAX - 1))
    }

    /// The word it is.
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// As it came from [`Expiry::to_word`].
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether it is believed now.
    pub(crate) fn valid(self) -> bool {
        self == Self::NEVER || self.valid_at(&mut None)
    }

    /// Whether it is believed now; reads the clock at most once for all that are asked with the same
    /// `now`, and not at all for what never expires.
    #[inline]
    pub(crate) fn valid_at(self, now: &mut Option<Moment>) -> bool {
        match self {
            Self::NEVER => true,
            Self::EXPIRED => false,
            Self(end) => now.get_or_insert_with(Moment::now).0 < end,
        }
    }

    /// The same, later by `time`.
    pub(crate) fn later_by(self, time: Duration) -> Self {
        match self {
            Self::NEVER | Self::EXPIRED => self,
            Self(end) => {
                let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                Self(end.saturating_add(time).min(u64::MAX - 1))
            }
        }
    }

    /// For how much longer.
    pub(crate) fn remains(self) -> Duration {
        match self {
            Self::NEVER => FOREVER,
            Self(end) => Duration::from_nanos(end.saturating_sub(Moment::now().0)),
        }
    }
}

#[cfg(debug_assertions)]
thread_local! {
    /// Nanoseconds by which the calling thread's clock of lifetimes is ahead.
    static AHEAD: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Sets the clock of lifetimes ahead by `time`, for the calling thread and until it ends: a test of timeouts asks what is
/// valid after an hour without an hour, and without depending on how long its own steps take. Only in builds with debug
/// assertions. What other threads read, the kernel's caches and every other timer are as before.
#[cfg(debug_assertions)]
pub fn pass_time(time: Duration) {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    AHEAD.set(AHEAD.get().saturating_add(time));
}

/// A moment of the coarse clock, which is some milliseconds late at most (CLOCK_MONOTONIC_COARSE in
/// clock_gettime(2)): several times cheaper to read, and exact enough for lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        static START: OnceLock<u64> = OnceLock::new();
        let clock = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        // Starts at 1: 0 stands for what has expired.
        let start = *START.get_or_init(|| clock().saturating_sub(1));
        let now = clock().saturating_sub(start);
        #[cfg(debug_assertions)]
        let now = now.saturating_add(AHEAD.get());
        Self(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_asked_for_before_a_change_is_not_kept() {
        let (clock, mut thing) = (Clock::default(), Freshness::default());
        let early = clock.now();
        assert!(thing.admits(early));
        let change = thing.begin(&clock);
        assert!(!thing.admits(clock.now()), "a change is in flight");
        assert!(thing.end(&clock, change));
        assert!(!thing.admits(early));
        assert!(thing.admits(clock.now()));
    }

    #[test]
    fn overlapping_changes_trust_neither_answer() {
        let (clock, mut thing) = (Clock::default(), Freshness::default());
        let one = thing.begin(&clock);
        let other = thing.begin(&clock);
        assert!(!thing.end(&clock, one));
        assert!(!thing.end(&clock, other));
        let alone = thing.begin(&clock);
        assert!(thing.end(&clock, alone));
    }

    #[test]
    fn lifetimes_end_and_the_clock_is_read_once() {
        assert!(Expiry::NEVER.valid() && !Expiry::EXPIRED.valid());
        assert_eq!(Expiry::after(Duration::ZERO), Expiry::EXPIRED);
        let hour = Expiry::after(Duration::from_secs(3600));
        assert!(hour.valid() && hour.remains() > Duration::from_secs(3599));
        assert_eq!(Expiry::from_word(hour.to_word()), hour);
        let mut now = None;
        assert!(Expiry::NEVER.valid_at(&mut now) && now.is_none());
        assert!(hour.valid_at(&mut now) && now.is_some());
        assert!(!hour.valid_at(&mut Some(Moment(u64::MAX))));
        assert!(Expiry::after(Duration::MAX).remains() > FOREVER);
    }

    #[test]
    fn changes_of_other_things_do_not_matter() {
        let (clock, mut thing, mut other) =
            (Clock::default(), Freshness::default(), Freshness::default());
        let ticket = clock.now();
        let change = other.begin(&clock);
        other.end(&clock, change);
        assert!(thing.admits(ticket));
        thing.note(&clock);
        assert!(!thing.admits(ticket));
    }
}
