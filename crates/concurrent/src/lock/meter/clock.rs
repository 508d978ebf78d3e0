//! Nanoseconds for the meter, cheaply.
//!
//! # Boundary
//! A clock for differences taken on one thread. Not a time of day, and not exact across processors.
//!
//! # Why
//! `Instant` costs about 20 ns, as much as the critical sections that it would time. The processor's time stamp
//! counter costs 8. The counter is read directly if the processor reports one rate in all states (invariant TSC: CPUID
//! 8000_0007h, EDX bit 8). Its rate is measured once against `Instant`. Otherwise `Instant` is used. Weakness: the rate
//! is measured over a fifth of a millisecond, so it is exact to about one part in two thousand. A thread that moves to
//! a processor whose counter lags sees too little time, at worst none.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The time for which the counter is watched to measure its rate.
#[cfg(target_arch = "x86_64")]
const CALIBRATION: Duration = Duration::from_micros(200);
/// Fraction bits of [`Rate::scale`].
#[cfg(target_arch = "x86_64")]
const SCALE_BITS: u32 = 32;

/// The way to read this machine's clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    /// The moment of the meter's first use; the zero of [`Clock::now`] without a counter.
    start: Instant,
    /// Nanoseconds for each tick of the counter, in 2^-32; none if it cannot be used.
    #[cfg(target_arch = "x86_64")]
    scale: Option<u64>,
}

/// The clock; the first call measures the counter's rate, which takes a fifth of a millisecond.
pub(super) fn clock() -> &'static Clock {
    static CLOCK: OnceLock<Clock> = OnceLock::new();
    CLOCK.get_or_init(Clock::calibrated)
}

impl Clock {
    #[cfg(target_arch = "x86_64")]
    fn calibrated() -> Self {
        let start = Instant::now();
        if !has_invariant_counter() {
            return Self { start, scale: None };
        }
        let ticks_before = counter();
        let mut passed = start.elapsed();
        while passed < CALIBRATION {
            std::hint::spin_loop();
            passed = start.elapsed();
        }
        let ticks = counter().wrapping_sub(ticks_before);
        let scale = (passed.as_nanos() << SCALE_BITS).checked_div(u128::from(ticks));
        Self { start, scale: scale.and_then(|scale| u64::try_from(scale).ok()) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn calibrated() -> Self {
        Self { start: Instant::now() }
    }

    /// The present, in ticks.
    #[inline]
    pub(super) fn now(&self) -> Ticks {
        #[cfg(target_arch = "x86_64")]
        if self.scale.is_some() {
            return Ticks(counter() & !Ticks::MARK);
        }
        Ticks(self.start.elapsed().as_nanos() as u64 & !Ticks::MARK)
    }

    /// A difference in nanoseconds.
    pub(super) fn nanoseconds(&self, difference: Ticks) -> u64 {
        let ticks = difference.0 & !Ticks::MARK;
        #[cfg(target_arch = "x86_64")]
        if let Some(scale) = self.scale {
            return ((u128::from(ticks) * u128::from(scale)) >> SCALE_BITS) as u64;
        }
        ticks
    }

    /// Time since the meter's first use.
    pub(super) fn running(&self) -> Duration {
        self.start.elapsed()
    }
}

/// An instant, or a difference of two, in the clock's own unit. The lowest bit is free for a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ticks(u64);

impl Ticks {
    const MARK: u64 = 1;
    /// No time.
    pub(super) const ZERO: Ticks = Ticks(0);

    /// These ticks, marked.
    pub(super) fn marked(self) -> Self {
        Self(self.0 | Self::MARK)
    }

    /// Whether it, or the instant from which it was counted, was marked.
    pub(super) fn is_marked(self) -> bool {
        self.0 & Self::MARK != 0
    }

    /// The time from `earlier`, with its mark; zero if the clock seems to have gone back.
    pub(super) fn since(self, earlier: Ticks) -> Ticks {
        let passed = (self.0 & !Self::MARK).saturating_sub(earlier.0 & !Self::MARK);
        Self(passed | earlier.0 & Self::MARK)
    }
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction; it reads a register and touches no memory. A system that
    // forbids it to user programs would end the process; Linux does so only by `prctl`.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;
    // The first leaf reports the highest leaf that the processor knows.
    let highest = __cpuid(EXTENDED).eax;
    highest >= POWER && __cpuid(POWER).edx & INVARIANT != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_and_never_turns_negative() {
        let clock = clock();
        let earlier = clock.now();
        let wall = Instant::now();
        while wall.elapsed() < Duration::from_millis(2) {}
        let later = clock.now();
        // At least the time waited, less the calibration's error.
        assert!(clock.nanoseconds(later.since(earlier)) > 1_900_000);
        assert_eq!(clock.nanoseconds(earlier.since(later)), 0);
        assert_eq!(clock.nanoseconds(later.since(later)), 0);
    }

    #[test]
    fn a_mark_stays_with_a_difference_and_is_no_time() {
        let (clock, earlier) = (clock(), Ticks(1000));
        let later = Ticks(5001);
        assert!(!earlier.is_marked() && !later.since(earlier).is_marked());
        let marked = later.since(earlier.marked());
        assert!(marked.is_marked());
        assert_eq!(clock.nanoseconds(marked), clock.nanoseconds(later.since(earlier)));
        assert!(earlier.since(later.marked()).is_marked());
    }
}
