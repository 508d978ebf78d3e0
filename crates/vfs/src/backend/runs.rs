//! Runs of bytes that a store reads and writes while the asking thread goes on.
//!
//! # Boundary
//! A request owns its bytes until the store completes it, once, from any thread: at once, later, in any order. What
//! happens then is the asker's. Nothing here waits.
//!
//! # Why
//! Where an answer takes milliseconds, one waiting thread for each run bounds what is under way; with requests that
//! are completed it is bounded by what the store says that it can use
//! ([`Capabilities::queue_depth`](super::Capabilities::queue_depth)). The bytes belong to the request, so that an asker
//! who gives up leaves nothing behind that the store could write into. Weakness: one allocation for each request.

use super::{Content, FileRef};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;

/// What is called with the bytes and the outcome.
type Done = Box<dyn FnOnce(Vec<u8>, Result<Content>) + Send>;

/// Bytes to read: [`Data::read_run`](super::Data::read_run).
pub struct ReadRun(Run);

/// Bytes to write: [`Data::write_run`](super::Data::write_run).
pub struct WriteRun(Run);

/// A run, until it is completed.
struct Run {
    file: FileRef,
    offset: u64,
    bytes: Vec<u8>,
    /// The part of `bytes` that is meant.
    part: Range<usize>,
    done: Option<Done>,
}

impl Run {
    fn complete(&mut self, result: Result<Content>) {
        if let Some(done) = self.done.take() {
            done(std::mem::take(&mut self.bytes), result);
        }
    }

    /// Calls `first` when it is completed, before its asker hears of it.
    fn before_done(&mut self, first: impl FnOnce() + Send + 'static) {
        if let Some(done) = self.done.take() {
            self.done = Some(Box::new(move |bytes, result| {
                first();
                done(bytes, result);
            }));
        }
    }
}

impl Drop for Run {
    /// The store has let go of it, or panicked.
    fn drop(&mut self) {
        self.complete(Err(Error::Corrupt("a store dropped a run without an answer")));
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?} at {}: {} bytes", self.file, self.offset, self.part.len())
    }
}

impl fmt::Debug for ReadRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReadRun({:?})", self.0)
    }
}

impl fmt::Debug for WriteRun {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WriteRun({:?})", self.0)
    }
}

impl ReadRun {
    /// The first `length` of `bytes` are to be what `file` has from `offset` on; then `done` is called.
    pub(crate) fn new(
        file: FileRef,
        offset: u64,
        (bytes, length): (Vec<u8>, usize),
        done: impl FnOnce(Vec<u8>, Result<Content>) + Send + 'static,
    ) -> Self {
        Self(Run { file, offset, bytes, part: 0..length, done: Some(Box::new(done)) })
    }

    /// Of which file.
    pub fn file(&self) -> FileRef {
        self.0.file
    }

    /// From where on.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// As [`Run::before_done`].
    pub(super) fn before_done(&mut self, first: impl FnOnce() + Send + 'static) {
        self.0.before_done(first);
    }

    /// Where the bytes go.
    pub fn buffer(&mut self) -> &mut [u8] {
        let part = self.0.part.clone();
        &mut self.0.bytes[part]
    }

    /// The store has answered: as [`Data::read_with_version`](super::Data::read_with_version) returns. Called with no
    /// lock held; never blocks.
    pub fn complete(mut self, result: Result<Content>) {
        self.0.complete(result);
    }
}

impl WriteRun {
    /// `part` of `bytes` is to go to `offset` of `file`; then `done` is called.
    pub(crate) fn new(
        file: FileRef,
        offset: u64,
        (bytes, part): (Vec<u8>, Range<usize>),
        done: impl FnOnce(Vec<u8>, Result<Content>) + Send + 'static,
    ) -> Self {
        Self(Run { file, offset, bytes, part, done: Some(Box::new(done)) })
    }

    /// To which file.
    pub fn file(&self) -> FileRef {
        self.0.file
    }

    /// Where to.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// As [`Run::before_done`].
    pub(super) fn before_done(&mut self, first: impl FnOnce() + Send + 'static) {
        self.0.before_done(first);
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.0.bytes[self.0.part.clone()]
    }

    /// The store has answered: as [`Data::write`](super::Data::write) returns. Called with no lock held; never
    /// blocks.
    pub fn complete(mut self, result: Result<usize>) {
        self.0.complete(result.map(|count| Content { count, version: 0 }));
    }
}
