//! An image in memory that is written.

use super::{WriteDevice, beyond, total};
use crate::lock_order::EXT_MEMORY;
use std::fmt;
use std::io::{self, IoSlice};
use uvfs_concurrent::lock::RwLock;
use uvfs_ext::Device;

/// An image in memory. Its contents survive no crash, flushed or not.
pub struct WritableMemory {
    length: u64,
    bytes: RwLock<Vec<u8>>,
}

impl WritableMemory {
    /// A device of these bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self { length: bytes.len() as u64, bytes: RwLock::new(&EXT_MEMORY, bytes) }
    }

    /// A copy of the present contents.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl fmt::Debug for WritableMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WritableMemory({} bytes)", self.length)
    }
}

impl Device for WritableMemory {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = self.bytes.read();
        let found = bytes.get(start..start.saturating_add(into.len()));
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl WriteDevice for WritableMemory {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        if offset.checked_add(total(from)).is_none_or(|end| end > self.length) {
            return Err(beyond());
        }
        let mut bytes = self.bytes.write();
        let mut at = offset as usize;
        for slice in from {
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(false),
            _ => Err(beyond()),
        }
    }
}
