//! Ends a test that hangs.
//!
//! A busy machine makes a test slow, and no clock can tell that from a hang. The process's CPU time can: a thread that
//! waits for ever computes nothing. A test that spins for ever is ended when its patience is used up.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The number of limits for a test that still computes.
const PATIENCE: u32 = 5;
/// Hundredths of a second of computing within a limit, below which a process hangs.
const IDLE: u64 = 5;

/// While it lives, the process may run; if it lives too long, the process ends.
///
/// A hang is a failure like any other, and a test runner that waits for ever reports none. If a mount hangs, `rescue`
/// runs first, so that nothing is left that blocks others.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Watches the calling test.
    pub fn new(limit: Duration) -> Self {
        Self::with_rescue(limit, || {})
    }

    /// A watchdog as by [`Watchdog::new`], with something to do before the end.
    pub fn with_rescue(limit: Duration, rescue: impl FnOnce() + Send + 'static) -> Self {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let (alive, watched) = channel::<()>();
        std::thread::spawn(move || {
            let mut spent = computed();
            for round in 1.. {
                if watched.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let before = std::mem::replace(&mut spent, computed());
                if spent.saturating_sub(before) < IDLE || round == PATIENCE {
                    eprintln!("{name} hangs: not done after {:?}", limit * round);
                    rescue();
                    std::process::abort();
                }
            }
        });
        Self { _alive: alive }
    }
}

/// Hundredths of a second that this process has computed, in it and in the kernel.
fn computed() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold blanks: 11 fields, then the two.
    let fields = text.rsplit(')').next().unwrap_or("").split_whitespace().skip(11).take(2);
    fields.filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_is_seen() {
        let (before, mut sum) = (computed(), 0_u64);
        while computed() < before + IDLE {
            sum = (0..1_000_000).fold(sum, |sum, one| std::hint::black_box(sum ^ one));
        }
        assert!(computed() > before, "{sum}");
    }
}
