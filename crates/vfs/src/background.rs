//! Threads for work that no caller waits for: files of a directory that is read in order, and expired listings.
//!
//! # Boundary
//! Refuses jobs beyond a limit, and performs the others on as many threads as the store can use at once. [`crate::ops`]
//! defines the jobs. Runs of pages of one file have their own threads.
//!
//! # Concurrency
//! One lock over the queue, held for a moment. A thread holds the core only while it works.
//!
//! # Why
//! A small file is one request, and a request blocks its thread: so there are as many threads as requests. Weakness: a
//! store that hangs keeps them, and [`Background::stop`] waits for them.

use crate::inode::Node;
use crate::lock_order;
use crate::ops::Refresh;
use crate::vfs::Core;
use std::panic::{AssertUnwindSafe, catch_unwind};
use uvfs_concurrent::shared::Weak;
use uvfs_concurrent::workers::{Fifo, Workers};

/// Jobs in the queue, at most.
const WAITING_MAX: usize = 256;
/// Threads, at most, whatever the store can use.
const THREADS_MAX: usize = 64;

/// A job.
#[derive(Debug)]
pub(crate) enum Job {
    /// List the directory again.
    List(Refresh),
    /// Fetch the file at this place of the directory, if a reader is still expected.
    Fetch {
        /// The directory.
        directory: Node,
        /// The file.
        file: Node,
        /// Place of the file in the list.
        place: usize,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Background {
    workers: Workers<Fifo<Job>>,
}

impl Background {
    pub(crate) fn new() -> Self {
        let queue = Fifo::new(WAITING_MAX, |error, threads| {
            if threads > 0 {
                log::warn!("no further thread for the background: {error}");
            }
        });
        Self { workers: Workers::new(&lock_order::BACKGROUND, "uvfs-background", queue) }
    }

    /// Performs `job` soon. Returns the job if there are too many, or no thread.
    pub(crate) fn submit(&self, core: &Core, job: Job) -> Result<(), Job> {
        let threads_max = core.capabilities.queue_depth.clamp(1, THREADS_MAX);
        let core = core.weak_self;
        self.workers.submit(job, threads_max, || move |job, _: &_| perform(core, job))
    }

    /// Ends every thread after its present job, and waits for that.
    pub(crate) fn stop(&self) {
        // Jobs hold nodes.
        self.workers.stop(Fifo::take_all);
    }
}

fn perform(core: Weak<Core>, job: Job) {
    let Some(core) = core.upgrade() else { return };
    let perform = || match job {
        Job::List(refresh) => core.refresh_listing(refresh),
        Job::Fetch { directory, file, place } => core.fetch_file(&directory, &file, place),
    };
    if catch_unwind(AssertUnwindSafe(perform)).is_err() {
        log::error!("a listing or a read in the background panicked; its next use repeats it");
    }
}
