//! A gate for each key: one change of an object at a time.
//!
//! # Boundary
//! Uploads, copies and removals of one key exclude each other. [`super::writing`] and [`super::creation`] perform them.
//!
//! # Concurrency
//! A thread inside may send requests. It takes both keys of a rename at once, and enters no gate again, so threads never wait
//! in a circle. The lock is held for a moment. The core's gate of a file is entered before this one.
//!
//! # Why
//! A rename took effect while the file was being uploaded to its old key, and was undone when the upload ended. Gates are by
//! key and not by file, because a removal knows a key only. Weakness: a removal waits until an upload of the same file ends.

use crate::lock_order::OBJECT_GATES;
use std::collections::HashSet;
use uvfs_concurrent::lock::{Condvar, Mutex, order};

/// See the module.
#[derive(Debug)]
pub(super) struct Gates {
    busy: Mutex<HashSet<String>>,
    left: Condvar,
}

/// The only thread that changes the objects of these keys.
#[derive(Debug)]
#[must_use = "other threads enter when it is dropped"]
pub(super) struct Inside<'a> {
    gates: &'a Gates,
    keys: [Option<String>; 2],
}

impl Gates {
    pub(super) fn new() -> Self {
        Self { busy: Mutex::new(&OBJECT_GATES, HashSet::new()), left: Condvar::default() }
    }

    /// Waits until no other thread changes `key`.
    pub(super) fn enter(&self, key: &str) -> Inside<'_> {
        self.enter_all([Some(key.to_owned()), None])
    }

    /// Waits until no other thread changes one of two keys, which differ.
    pub(super) fn enter_both(&self, one: &str, other: &str) -> Inside<'_> {
        self.enter_all([Some(one.to_owned()), Some(other.to_owned())])
    }

    fn enter_all(&self, keys: [Option<String>; 2]) -> Inside<'_> {
        order::assert_none_held("a wait for another change of an object");
        let mut busy = self.busy.lock();
        while keys.iter().flatten().any(|key| busy.contains(key)) {
            self.left.wait(&mut busy);
        }
        busy.extend(keys.iter().flatten().cloned());
        drop(busy);
        Inside { gates: self, keys }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let mut busy = self.gates.busy.lock();
        for key in self.keys.iter().flatten() {
            busy.remove(key);
        }
        drop(busy);
        self.gates.left.notify_all();
    }
}
