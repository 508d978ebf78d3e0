//! Threads that read runs of pages, so that many requests are under way for one reader.
//!
//! # Boundary
//! Takes runs, and completes each by one request.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. The core bounds how many runs wait.
//!
//! # Why
//! Threads of their own, because a request blocks its thread. Weakness: the end of a mount waits for requests that are under way.

use super::Shared;
use crate::lock_order::OBJECT_RUNS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use uvfs_concurrent::workers::{Fifo, Workers};
use uvfs_vfs::ReadRun;

/// See the module.
#[derive(Debug)]
pub(super) struct Runs {
    shared: Arc<Shared>,
    workers: Workers<Fifo<ReadRun>>,
    threads_max: usize,
}

impl Runs {
    pub(super) fn new(shared: Arc<Shared>, threads_max: usize) -> Self {
        let queue = Fifo::new(usize::MAX, |error, threads| match threads {
            0 => log::warn!("no thread to read: {error}; the caller reads"),
            _ => log::warn!("no further thread to read: {error}"),
        });
        Self { shared, workers: Workers::new(&OBJECT_RUNS, "uvfs-object", queue), threads_max }
    }

    pub(super) fn threads_max(&self) -> usize {
        self.threads_max
    }

    /// Reads `run` soon, and completes it.
    pub(super) fn submit(&self, run: ReadRun) {
        let performer = || {
            let shared = self.shared.clone();
            move |run, _: &_| {
                // A run that is dropped is completed with an error.
                if catch_unwind(AssertUnwindSafe(|| perform(&shared, run))).is_err() {
                    log::error!("reading from the store panicked; the read has failed");
                }
            }
        };
        if let Err(run) = self.workers.submit(run, self.threads_max, performer) {
            perform(&self.shared, run);
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // A run that is dropped is completed with an error.
        self.workers.stop(Fifo::take_all);
    }
}

fn perform(shared: &Shared, mut run: ReadRun) {
    let (inode, offset) = (run.file().inode, run.offset());
    let result = shared.read(inode, offset, run.buffer());
    run.complete(result);
}
