//! A device whose failed writes and flushes are counted.
//!
//! # Why
//! Data, logs and superblocks are written in many places, and each write may fail: all of them pass through this device.

use crate::device::WriteDevice;
use std::io::{self, IoSlice};
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_ext::Device;

#[derive(Debug)]
pub(super) struct Counted {
    device: Arc<dyn WriteDevice>,
    errors: AtomicU64,
}

impl Counted {
    pub(super) fn new(device: Arc<dyn WriteDevice>) -> Self {
        Self { device, errors: AtomicU64::new(0) }
    }

    /// Writes and flushes that failed.
    pub(super) fn errors(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.errors.load(Relaxed)
    }

    fn count<T>(&self, done: io::Result<T>) -> io::Result<T> {
        if done.is_err() {
            // ORDERING: Relaxed; as in `errors`.
            self.errors.fetch_add(1, Relaxed);
        }
        done
    }
}

impl Device for Counted {
    fn length(&self) -> u64 {
        self.device.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, into)
    }
}

impl WriteDevice for Counted {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        self.count(self.device.write_at(offset, from))
    }

    fn flush(&self) -> io::Result<()> {
        self.count(self.device.flush())
    }

    fn check(&self) -> io::Result<()> {
        self.device.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.device.discard(offset, length)
    }
}
