//! Runs of bytes that a store reads and writes while the requesting thread continues.
//!
//! # Boundary
//! A request owns its bytes until the store completes it, once, from any thread: at once, later, in any order. The
//! requesting thread decides the rest. No call here waits.
//!
//! # Why
//! Where an answer takes milliseconds, one waiting thread for each run limits the runs in progress. With completed
//! requests, the store's own limit applies ([`Capabilities::queue_depth`](super::Capabilities::queue_depth)). The
//! request owns the bytes, so a thread that gives up leaves no memory that the store could write into. Weakness: one
//! allocation for each request.

use super::{Content, FileRef};
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Range;

/// Called with the bytes and the result.
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
    /// The requested part of `bytes`.
    part: Range<usize>,
    done: Option<Done>,
}

impl Run {
    fn complete(&mut self, result: Result<Content>) {
        if let Some(done) = self.done.take() {
            done(std::mem::take(&mut self.bytes), result);
        }
    }

    /// Calls `first` at completion, before the requesting thread sees the result.
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
    /// The store has dropped it, or panicked.
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
    /// Fills the first `length` of `bytes` from `offset` of `file`. Then `done` is called.
    pub(crate) fn new(
        file: FileRef,
        offset: u64,
        (bytes, length): (Vec<u8>, usize),
        done: impl FnOnce(Vec<u8>, Result<Content>) + Send + 'static,
    ) -> Self {
        Self(Run { file, offset, bytes, part: 0..length, done: Some(Box::new(done)) })
    }

    /// The file.
    pub fn file(&self) -> FileRef {
        self.0.file
    }

    /// The offset in it.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Like [`Run::before_done`].
    pub(super) fn before_done(&mut self, first: impl FnOnce() + Send + 'static) {
        self.0.before_done(first);
    }

    /// The buffer for the bytes.
    pub fn buffer(&mut self) -> &mut [u8] {
        let part = self.0.part.clone();
        &mut self.0.bytes[part]
    }

    /// The store has answered, with a result like that of [`Data::read_with_version`](super::Data::read_with_version).
    /// Call it with no lock held; it never blocks.
    pub fn complete(mut self, result: Result<Content>) {
        self.0.complete(result);
    }
}

impl WriteRun {
    /// Writes `part` of `bytes` to `offset` of `file`. Then `done` is called.
    pub(crate) fn new(
        file: FileRef,
        offset: u64,
        (bytes, part): (Vec<u8>, Range<usize>),
        done: impl FnOnce(Vec<u8>, Result<Content>) + Send + 'static,
    ) -> Self {
        Self(Run { file, offset, bytes, part, done: Some(Box::new(done)) })
    }

    /// The file.
    pub fn file(&self) -> FileRef {
        self.0.file
    }

    /// The offset in it.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// Like [`Run::before_done`].
    pub(super) fn before_done(&mut self, first: impl FnOnce() + Send + 'static) {
        self.0.before_done(first);
    }

    /// The bytes.
    pub fn data(&self) -> &[u8] {
        &self.0.bytes[self.0.part.clone()]
    }

    /// The store has answered, with a result like that of [`Data::write`](super::Data::write). Call it with no lock
    /// held; it never blocks.
    pub fn complete(mut self, result: Result<usize>) {
        self.0.complete(result.map(|count| Content { count, version: 0 }));
    }
}
