//! Which answers of the store may be kept, and for how long.

use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};

/// The clock of changes: one tick when a change begins, one when it ends.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

/// A moment on the [`Clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticket(u64);

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
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    changed: Ticket,
    in_flight: u32,
}

impl Freshness {
    /// Whether an answer whose request was sent at `ticket` is still true.
    pub(crate) fn admits(&self, ticket: Ticket) -> bool {
        self.in_flight == 0 && self.changed <= ticket
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

    /// A change ends. True if no other change overlapped it, so that its own answer is the truth.
    pub(crate) fn end(&mut self, clock: &Clock, begin: Ticket) -> bool {
        debug_assert!(self.in_flight > 0, "a change ends that did not begin");
        let alone = self.in_flight == 1 && self.changed == begin;
        self.in_flight = self.in_flight.saturating_sub(1);
        self.changed = clock.tick();
        alone
    }

    /// A change happened elsewhere, at once.
    pub(crate) fn note(&mut self, clock: &Clock) {
        self.changed = clock.tick();
    }
}

/// Until when something cached is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// As long as it is cached: nobody else changes the store.
    Never,
    /// Until then.
    At(Instant),
    /// Not any more.
    Expired,
}

/// What a frontend is told for [`Expiry::Never`].
const FOREVER: Duration = Duration::from_secs(24 * 3600);

impl Expiry {
    /// `timeout` from now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        if timeout.is_zero() { Expiry::Expired } else { Expiry::At(Instant::now() + timeout) }
    }

    /// Whether it is believed now.
    pub(crate) fn valid(self) -> bool {
        match self {
            Expiry::Never => true,
            Expiry::At(end) => Instant::now() < end,
            Expiry::Expired => false,
        }
    }

    /// For how much longer.
    pub(crate) fn remains(self) -> Duration {
        match self {
            Expiry::Never => FOREVER,
            Expiry::At(end) => end.saturating_duration_since(Instant::now()),
            Expiry::Expired => Duration::ZERO,
        }
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
