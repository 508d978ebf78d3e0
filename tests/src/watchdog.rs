//! Ends a test that hangs.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// While it lives, the process may go on; if it lives too long, the process ends.
///
/// A hang is a failure like any other, and a test runner that waits for ever reports none. Where a
/// mount hangs, `rescue` is run first, so that nothing stays behind that blocks others.
#[derive(Debug)]
pub struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    /// Watches the calling test.
    pub fn new(limit: Duration) -> Self {
        Self::with_rescue(limit, || {})
    }

    /// As [`Watchdog::new`], with something to do before the end.
    pub fn with_rescue(limit: Duration, rescue: impl FnOnce() + Send + 'static) -> Self {
        let name = std::thread::current().name().unwrap_or("a test").to_owned();
        let (alive, watched) = channel::<()>();
        std::thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name} hangs: not done after {limit:?}");
                rescue();
                std::process::abort();
            }
        });
        Self { _alive: alive }
    }
}
