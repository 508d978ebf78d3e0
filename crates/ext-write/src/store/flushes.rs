//! Flushes of the device: numbered, one at a time, and ended for good by the first failure.
//!
//! # Boundary
//! Decides which flush a caller waits for. [`super::Store`] writes before it, and handles failures.
//!
//! # Concurrency
//! ```text
//!  ticket ─▶ next ─▶ Done                      a flush behind the ticket has ended
//!              │ ├─▶ Wait ─▶ next …            another thread flushes
//!              │ └─▶ Flush ─▶ (device) ─▶ end  this thread flushes, without the lock
//!              └───▶ Failed
//! ```
//! F1. A flush covers the writes that returned before it began. A caller takes its ticket behind its writes, so only a flush
//!     of a higher number covers them.
//! F2. At most one flush is under way. Callers that arrive meanwhile share the next one.
//! F3. After a failed flush no other one begins, and no caller gets success: the kernel reports a lost page once
//!     and calls it clean afterwards, so a second flush would succeed over the loss.
//!
//! # Why
//! `fdatasync` waited for the commit of another thread whose flush had begun before the write, and returned. [`Numbers`] has
//! no lock and no device, so that a test runs every interleaving of its steps. Weakness: a flush that hangs holds up all.

use crate::device::WriteDevice;
use crate::error::{Error, Result, words};
use crate::lock_order::EXT_FLUSHES;
use std::sync::Arc;
use uvfs_concurrent::lock::{Condvar, Mutex};

/// The number of the last flush that had begun at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket(u64);

/// A caller's next step.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Return: its writes are stable.
    Done,
    /// Wait until the flush that is under way has ended.
    Wait,
    /// Flush, then call [`Numbers::end`].
    Flush,
    /// Return this error.
    Failed(Arc<str>),
}

#[derive(Debug, Default, Clone)]
struct Numbers {
    begun: u64,
    ended: u64,
    failed: Option<Arc<str>>,
}

impl Numbers {
    fn ticket(&self) -> Ticket {
        Ticket(self.begun)
    }

    fn next(&mut self, ticket: Ticket) -> Next {
        if let Some(why) = &self.failed {
            return Next::Failed(why.clone());
        }
        if self.ended > ticket.0 {
            return Next::Done;
        }
        if self.ended < self.begun {
            return Next::Wait;
        }
        self.begun += 1;
        Next::Flush
    }

    fn end(&mut self, failed: Option<Arc<str>>) {
        match failed {
            None => self.ended = self.begun,
            Some(why) => self.failed = Some(why),
        }
    }
}

/// The flushes of one device.
#[derive(Debug)]
pub(super) struct Flushes {
    device: Arc<dyn WriteDevice>,
    numbers: Mutex<Numbers>,
    changed: Condvar,
}

impl Flushes {
    pub(super) fn new(device: Arc<dyn WriteDevice>) -> Self {
        let numbers = Mutex::new(&EXT_FLUSHES, Numbers::default());
        Self { device, numbers, changed: Condvar::default() }
    }

    /// A ticket for the caller's writes until now.
    pub(super) fn ticket(&self) -> Ticket {
        self.numbers.lock().ticket()
    }

    /// One flush; returns the cause of its failure. Data flushed to a file that was removed is not stable.
    fn flush(&self) -> std::result::Result<(), Arc<str>> {
        self.device
            .flush()
            .map_err(|error| Arc::from(format!("a flush failed: {}", words(&error))))?;
        self.device.check().map_err(|error| Arc::from(error.to_string()))
    }

    /// Returns when a flush has ended that began behind `ticket`.
    ///
    /// # Errors
    /// [`Error::Ended`] after a failed flush (F3).
    pub(super) fn wait(&self, ticket: Ticket) -> Result<()> {
        let mut numbers = self.numbers.lock();
        loop {
            match numbers.next(ticket) {
                Next::Done => return Ok(()),
                Next::Failed(why) => return Err(Error::Ended(why)),
                Next::Wait => self.changed.wait(&mut numbers),
                Next::Flush => {
                    drop(numbers);
                    let flushed = self.flush();
                    numbers = self.numbers.lock();
                    numbers.end(flushed.err());
                    self.changed.notify_all();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Where a caller is that writes once and wants that stable.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum At {
        Start,
        Written,
        /// It has its ticket.
        Asks(u64),
        /// It flushes; the writes that the device had when it began.
        Flushes(u64, u8),
        Stable,
        Refused,
    }

    #[derive(Clone)]
    struct World {
        numbers: Numbers,
        callers: [At; 3],
        /// Writes, by caller, that the device has, and those that are stable.
        written: u8,
        stable: u8,
        /// A flush has lost something.
        lost: bool,
    }

    impl World {
        /// The worlds that one step of caller `of` leads to: two where it flushes, which may fail.
        fn step(&self, of: usize) -> Vec<World> {
            let mut next = self.clone();
            let bit = 1 << of;
            match self.callers[of] {
                At::Start => {
                    next.written |= bit;
                    next.callers[of] = At::Written;
                }
                At::Written => next.callers[of] = At::Asks(self.numbers.ticket().0),
                At::Asks(ticket) => match next.numbers.next(Ticket(ticket)) {
                    Next::Done => next.callers[of] = At::Stable,
                    Next::Failed(_) => next.callers[of] = At::Refused,
                    Next::Wait => return Vec::new(),
                    Next::Flush => next.callers[of] = At::Flushes(ticket, self.written),
                },
                At::Flushes(ticket, covered) => {
                    let mut failed = next.clone();
                    next.stable |= covered;
                    next.numbers.end(None);
                    next.callers[of] = At::Asks(ticket);
                    failed.lost = true;
                    failed.numbers.end(Some("lost".into()));
                    failed.callers[of] = At::Asks(ticket);
                    return vec![next, failed];
                }
                At::Stable | At::Refused => return Vec::new(),
            }
            vec![next]
        }
    }

    /// A caller's write was reported stable by a flush that had begun before the write, and a flush that succeeded
    /// after a failed one hid what that one had lost. Every interleaving of three callers is run here.
    #[test]
    fn a_caller_returns_behind_a_flush_that_began_after_its_write_and_never_behind_a_failed_one() {
        let start = World {
            numbers: Numbers::default(),
            callers: [At::Start; 3],
            written: 0,
            stable: 0,
            lost: false,
        };
        let (mut seen, mut worlds, mut ended) = (HashSet::new(), vec![start], 0);
        while let Some(world) = worlds.pop() {
            let Numbers { begun, ended: last, failed } = &world.numbers;
            let key = (world.callers, world.written, world.stable, *begun, *last, failed.is_some());
            if !seen.insert(key) {
                continue;
            }
            let mut next = Vec::new();
            for of in 0..3 {
                for after in world.step(of) {
                    if after.callers[of] == At::Stable && world.callers[of] != At::Stable {
                        assert!(after.stable & 1 << of != 0, "not flushed: {:?}", after.callers);
                        assert!(!after.lost, "told behind a failed flush: {:?}", after.callers);
                    }
                    next.push(after);
                }
            }
            if next.is_empty() {
                let all = world.callers.iter().all(|at| matches!(at, At::Stable | At::Refused));
                assert!(all, "a caller waits for no flush: {:?}", world.callers);
                ended += 1;
            }
            worlds.append(&mut next);
        }
        assert!(ended > 10 && seen.len() > 500, "{ended} ends, {} worlds", seen.len());
    }
}
