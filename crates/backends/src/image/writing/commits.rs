//! The thread that commits changes, every few seconds.
//!
//! # Concurrency
//! One lock has the flag that ends it, and a condition wakes it for that. No thread joins it: it ends within one
//! commit.
//!
//! # Why
//! A crash loses written but unsynced data of one interval at most.

use crate::lock_order::IMAGE_COMMITS;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_ext_write::Volume;

#[derive(Debug)]
struct State {
    ended: Mutex<bool>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Commits(Arc<State>);

impl Commits {
    /// Commits `volume` every `interval`.
    pub(super) fn start(volume: Arc<Volume>, interval: Duration) -> std::io::Result<Self> {
        let ended = Mutex::new(&IMAGE_COMMITS, false);
        let state = Arc::new(State { ended, changed: Condvar::default() });
        let ours = state.clone();
        let run = move || {
            loop {
                let mut ended = ours.ended.lock();
                if !*ended {
                    ours.changed.wait_for(&mut ended, interval);
                }
                if *ended {
                    return;
                }
                drop(ended);
                // A failure ends writing, and the volume has logged it.
                let _ = volume.commit_now_and_then();
            }
        };
        std::thread::Builder::new().name("uvfs-commit".into()).spawn(run)?;
        Ok(Self(state))
    }

    /// Ends it; false if that was done before.
    pub(super) fn end(&self) -> bool {
        let was = std::mem::replace(&mut *self.0.ended.lock(), true);
        self.0.changed.notify_all();
        !was
    }
}
