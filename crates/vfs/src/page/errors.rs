//! Errors of write-back, kept until each open file has reported them.
//!
//! # Concurrency
//! One lock, taken when a write-back fails and when a caller asks. It does not exist before the first error.
//!
//! # Why
//! The `write` of the data has returned long ago. So the next call that may report the error returns it: `fsync` or
//! `close` of each open file, once each (`errseq_t` of Linux, 4.13). A file opened after an error that no caller has
//! seen reports it, too. Weakness: of several errors between two calls, only the last is reported.

use crate::error::Error;
use crate::lock_order;
use std::io;
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Errors of one file's write-back. Empty for most files.
#[derive(Debug, Default)]
pub(crate) struct ErrorLog(LazyBox<Noted>);

#[derive(Debug)]
struct Noted {
    log: Mutex<Log>,
    /// The cursor of callers without an open file.
    others: ErrorCursor,
}

#[derive(Debug, Default)]
struct Log {
    /// Errors so far.
    count: u64,
    /// The last one.
    errno: i32,
    /// The store's own words for it, if an errno does not tell all of it.
    words: Option<Box<str>>,
    /// A caller has seen the last error.
    seen: bool,
}

/// The count of errors up to which one open file has reported. Changed under the log's lock.
#[derive(Debug, Default)]
pub(crate) struct ErrorCursor(AtomicU64);

impl ErrorLog {
    fn made(&self) -> &Mutex<Log> {
        let make = || Noted {
            log: Mutex::new(&lock_order::WRITE_ERRORS, Log::default()),
            others: ErrorCursor::default(),
        };
        &self.0.get_or_make(make).0.log
    }

    fn log(&self) -> Option<MutexGuard<'_, Log>> {
        self.0.get().map(|noted| noted.log.lock())
    }

    /// Records a failed write-back. `again`: the same data failed before and nothing was written since. Open files
    /// report it again; a file opened later does so only if no caller has seen the error.
    pub(crate) fn record(&self, error: &Error, again: bool) {
        let mut log = self.made().lock();
        log.count += 1;
        log.errno = error.errno();
        log.words = match error {
            Error::Io(error) if error.raw_os_error().is_none() => Some(error.to_string().into()),
            _ => None,
        };
        log.seen &= again;
    }

    /// No thread records an error until the result is dropped.
    #[cfg(test)]
    pub(super) fn pause(&self) -> impl Drop + '_ {
        self.made().lock()
    }

    /// Errors so far.
    pub(crate) fn count(&self) -> u64 {
        self.log().map_or(0, |log| log.count)
    }

    /// The cursor of a file that is opened now.
    pub(crate) fn now(&self) -> ErrorCursor {
        let Some(log) = self.log() else { return ErrorCursor::default() };
        ErrorCursor(AtomicU64::new(if log.count > 0 && !log.seen {
            log.count - 1
        } else {
            log.count
        }))
    }

    /// The error that `cursor` has not reported yet. Advances `cursor`.
    pub(crate) fn check_and_advance(&self, cursor: &ErrorCursor) -> Option<Error> {
        let mut log = self.log()?;
        // ORDERING: Relaxed; the lock orders.
        if cursor.0.load(Relaxed) == log.count {
            return None;
        }
        // ORDERING: Relaxed; the lock orders.
        cursor.0.store(log.count, Relaxed);
        log.seen = true;
        Some(Error::from_errno(log.errno))
    }

    /// The error that callers without an open file have not seen yet. Advances their cursor.
    pub(crate) fn check_and_advance_unopened(&self) -> Option<Error> {
        self.check_and_advance(&self.0.get()?.others)
    }

    /// The last error, reported or not, in the store's own words.
    pub(crate) fn last(&self) -> Option<Error> {
        let log = self.log()?;
        (log.count > 0).then(|| match &log.words {
            Some(words) => Error::Io(io::Error::other(words.to_string())),
            None => Error::from_errno(log.errno),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_open_file_hears_once() {
        let log = ErrorLog::default();
        let (one, other) = (log.now(), log.now());
        assert!(log.check_and_advance(&one).is_none() && log.last().is_none());
        log.record(&Error::NoSpace, false);
        assert!(matches!(log.check_and_advance(&one), Some(Error::NoSpace)));
        assert!(log.check_and_advance(&one).is_none());
        let late = log.now();
        assert!(log.check_and_advance(&late).is_none(), "a descriptor has reported it");
        assert!(matches!(log.check_and_advance(&other), Some(Error::NoSpace)));
        assert!(matches!(log.last(), Some(Error::NoSpace)));
    }

    #[test]
    fn the_same_failure_again_is_not_reported_to_the_next_opener() {
        let log = ErrorLog::default();
        let one = log.now();
        log.record(&Error::NoSpace, true);
        assert!(
            log.check_and_advance(&log.now()).is_some(),
            "no descriptor had reported the first one"
        );
        log.record(&Error::NoSpace, true);
        assert!(log.check_and_advance(&log.now()).is_none());
        assert!(log.check_and_advance(&one).is_some(), "its writer has it open still");
        log.record(&Error::NoSpace, false);
        assert!(log.check_and_advance(&log.now()).is_some(), "something else failed");
    }

    #[test]
    fn an_error_that_no_caller_got_waits_for_the_next_open() {
        let log = ErrorLog::default();
        log.record(&Error::TimedOut, false);
        let late = log.now();
        assert!(matches!(log.check_and_advance(&late), Some(Error::TimedOut)));
        let later = log.now();
        assert!(log.check_and_advance(&later).is_none());
        log.record(&Error::NoSpace, false);
        log.record(&Error::Quota, false);
        assert!(matches!(log.check_and_advance(&later), Some(Error::Quota)));
        assert!(log.check_and_advance(&later).is_none(), "two between two calls are told as one");
    }
}
