//! Ctrl-C and SIGTERM while a walk runs: the first ends the walk in order, the second ends the process.
//!
//! # Concurrency
//! Signal handlers set the flag; any thread reads it between steps of its work.
//!
//! # Why
//! A walk can wait in the kernel for a dead network file system; then only the second signal helps. The flag
//! is `std`'s own, not that of `primitive`, because the signal crate takes no other.

use crate::cause;
use crate::output;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time between two reads of the flag.
const LOOK: Duration = Duration::from_millis(50);

/// Whether the user has asked the walk to end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// A flag that the signals set, from now to the end of the process.
    ///
    /// # Errors
    /// Why Ctrl-C cannot be caught, as a line.
    pub fn by_signals() -> Result<Self, String> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first registered action runs first, so the first signal only sets the flag.
            let second = flag::register_conditional_shutdown(signal, 1, interrupt.0.clone());
            let first = second.and_then(|_| flag::register(signal, interrupt.0.clone()));
            first.map_err(|error| format!("signals: {}; cannot catch Ctrl-C", cause(&error)))?;
        }
        Ok(interrupt)
    }

    /// A flag that each of `signals` sets. None of them ends the process, also not the second one.
    ///
    /// # Errors
    /// As [`Interrupt::by_signals`].
    pub fn by_any_of(signals: &[i32]) -> Result<Self, String> {
        let interrupt = Self::default();
        for signal in signals {
            flag::register(*signal, interrupt.0.clone())
                .map_err(|error| format!("signals: {}; cannot catch them", cause(&error)))?;
        }
        Ok(interrupt)
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        // ORDERING: Relaxed; a request to stop, nothing is reached through it.
        self.0.load(Relaxed)
    }

    /// Waits for `time`, or until the flag is set; returns whether it is.
    pub fn wait(&self, time: Duration) -> bool {
        self.wait_by(time, |step| {
            thread::sleep(step);
            false
        })
    }

    /// Waits for `time`, or until the flag is set, or until no process reads standard output any more; returns
    /// whether the command is to end.
    pub fn wait_while_read(&self, time: Duration) -> bool {
        self.wait_by(time, output::is_closed_within)
    }

    /// Takes steps until `time` is over, the flag is set, or `step` is true.
    fn wait_by(&self, time: Duration, step: impl Fn(Duration) -> bool) -> bool {
        let end = Instant::now() + time;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if rest.is_zero() || self.is_set() {
                return self.is_set();
            }
            if step(rest.min(LOOK)) {
                return true;
            }
        }
    }

    /// Sets it, as a signal does.
    pub fn set(&self) {
        // ORDERING: Relaxed; a request to stop, nothing is reached through it.
        self.0.store(true, Relaxed);
    }
}
