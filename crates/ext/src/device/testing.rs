//! A device for tests: it records its reads, and fails or delays them as planned.

use super::Device;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

/// What a [`Probe`] does besides reading.
#[derive(Debug, Default)]
pub struct Plan {
    /// The read, counted from 0, that fails with EIO, and every later one.
    pub fails_from: Option<u64>,
    /// Every read that touches these bytes fails with EIO.
    pub bad_bytes: Option<std::ops::Range<u64>>,
    /// Every read that touches these bytes panics, as a bug in the reader of an image would.
    pub panics: Option<std::ops::Range<u64>>,
    /// The least duration of a read.
    pub delay: Duration,
    /// Receives the offset and the length of each read.
    pub recorder: Option<Sender<(u64, usize)>>,
}

/// A device with a plan.
#[derive(Debug)]
pub struct Probe<D> {
    device: D,
    plan: Plan,
    reads: AtomicU64,
}

impl<D: Device> Probe<D> {
    /// `device`, read by `plan`.
    pub fn new(device: D, plan: Plan) -> Self {
        Self { device, plan, reads: AtomicU64::new(0) }
    }

    /// How many reads there were.
    pub fn reads(&self) -> u64 {
        // ORDERING: Relaxed; a count, nothing is reached through it.
        self.reads.load(Ordering::Relaxed)
    }
}

impl<D> Probe<D> {
    /// One read, as the plan has it.
    fn planned(&self, offset: u64, length: usize) -> io::Result<()> {
        // ORDERING: Relaxed; a count, nothing is reached through it.
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        if let Some(recorder) = &self.plan.recorder {
            // A test may stop listening.
            let _ = recorder.send((offset, length));
        }
        if !self.plan.delay.is_zero() {
            std::thread::sleep(self.plan.delay);
        }
        let end = offset + length as u64;
        let touches = |bytes: &Option<std::ops::Range<u64>>| {
            bytes.as_ref().is_some_and(|bytes| offset < bytes.end && bytes.start < end)
        };
        assert!(!touches(&self.plan.panics), "the plan says that this read panics");
        if touches(&self.plan.bad_bytes) || self.plan.fails_from.is_some_and(|from| read >= from) {
            return Err(io::Error::other("the plan says that this read fails"));
        }
        Ok(())
    }
}

impl<D: Device> Device for Probe<D> {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.planned(offset, into.len())?;
        self.device.read_at(offset, into)
    }

    fn read_vectored_at(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.planned(offset, into.iter().map(|part| part.len()).sum())?;
        self.device.read_vectored_at(offset, into)
    }
}
