//! Lifetimes of cached answers. [`uvfs_concurrent::changes`] decides which answers may be cached.

use std::sync::OnceLock;
use std::time::Duration;

/// The end of a cached answer's lifetime: a moment of the coarse clock, in nanoseconds since the process first asked.
/// One word, so that it can be read without a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expiry(u64);

/// The lifetime that a frontend gets for [`Expiry::NEVER`].
const FOREVER: Duration = Duration::from_secs(24 * 3600);

impl Expiry {
    /// Valid as long as it is cached: only this mount changes the store.
    pub(crate) const NEVER: Self = Self(u64::MAX);
    /// Not valid any more.
    pub(crate) const EXPIRED: Self = Self(0);

    /// `timeout` from now on.
    pub(crate) fn after(timeout: Duration) -> Self {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        if timeout == 0 {
            return Self::EXPIRED;
        }
        Self(Moment::now().0.saturating_add(timeout).min(u64::MAX - 1))
    }

    /// The word for [`Expiry::from_word`].
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    /// The value of a word from [`Expiry::to_word`].
    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// Whether it is valid now.
    pub(crate) fn valid(self) -> bool {
        self == Self::NEVER || self.valid_at(&mut None)
    }

    /// Whether it is valid now. Reads the clock at most once for all calls with the same `now`, and not at all for
    /// [`Expiry::NEVER`].
    #[inline]
    pub(crate) fn valid_at(self, now: &mut Option<Moment>) -> bool {
        match self {
            Self::NEVER => true,
            Self::EXPIRED => false,
            Self(end) => now.get_or_insert_with(Moment::now).0 < end,
        }
    }

    /// Returns an expiry that is later by `time`.
    pub(crate) fn later_by(self, time: Duration) -> Self {
        match self {
            Self::NEVER | Self::EXPIRED => self,
            Self(end) => {
                let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
                Self(end.saturating_add(time).min(u64::MAX - 1))
            }
        }
    }

    /// The remaining lifetime.
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

/// Sets the clock of lifetimes ahead by `time`, for the calling thread and until it ends. So a test of timeouts needs
/// no hour to test validity after an hour, and does not depend on its own speed. Only in builds with debug assertions.
/// Other threads, the kernel's caches and all other timers are unaffected.
#[cfg(debug_assertions)]
pub fn pass_time(time: Duration) {
    let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    AHEAD.set(AHEAD.get().saturating_add(time));
}

/// A moment of the coarse clock, which lags by some milliseconds at most (CLOCK_MONOTONIC_COARSE in clock_gettime(2)).
/// It is several times cheaper to read, and exact enough for lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        static START: OnceLock<u64> = OnceLock::new();
        let clock = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        // Starts at 1: 0 means expired.
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
}
