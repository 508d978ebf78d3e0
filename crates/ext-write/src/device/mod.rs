//! Devices that are written: a file under an exclusive lock, memory, a part of one of them.
//!
//! # Boundary
//! Bytes at offsets, and one promise: writes before a [`WriteDevice::flush`] that returned are there after a
//! crash. Writes between two flushes reach the medium in any order, in part, or not at all. Knows no format.
//!
//! # Concurrency
//! Called by many threads at once. Writes of overlapping ranges are the callers' to avoid.
//!
//! # Why
//! A trait beside [`Device`] and not a part of it: code that only reads an image has no method to write it.

mod direct;
#[cfg(test)]
mod direct_tests;
mod file;
mod memory;
mod pool;
pub mod testing;

pub use direct::{DirectFile, NotDirect};
pub use file::WritableFile;
pub use memory::WritableMemory;

use std::io::{self, IoSlice};
use std::sync::Arc;
use uvfs_ext::Device;

/// Something that is written at offsets, too.
pub trait WriteDevice: Device {
    /// Writes the bytes of `from`, one slice after the other, from `offset` on: all of them, or an error, after which any part of
    /// them may have been written.
    ///
    /// # Errors
    /// Those of the medium; a range beyond the end ([`io::ErrorKind::InvalidInput`]): a device does not grow.
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()>;

    /// Returns when all writes that returned before the call survive a crash.
    ///
    /// # Errors
    /// Those of the medium. After one it is unknown what of the writes since the last flush survives, and flushing again
    /// does not tell.
    fn flush(&self) -> io::Result<()>;

    /// Whether written data can still be found: a file may have lost its last name, or its end. Asked after each flush and
    /// every few seconds; after an error nothing is written any more.
    ///
    /// # Errors
    /// The state of the medium; [`io::ErrorKind::NotFound`] if no program can find any of it.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// The range is not used any more. Returns whether the medium got the request; later reads there return any bytes.
    ///
    /// # Errors
    /// Those of the medium, except that it has no such operation.
    fn discard(&self, offset: u64, length: u64) -> io::Result<bool>;

    /// What the device counts, and the memory that it has.
    fn counts(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
}

/// What a device counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// The device's requests bypass the host's page cache.
    pub is_direct: bool,
    /// Bytes of its buffers, in use or kept for the next request.
    pub buffer_bytes: u64,
    /// Requests that waited for a buffer.
    pub buffer_waits: u64,
    /// Writes of a part of a sector: each read the sector first.
    pub partial_writes: u64,
}

/// A part of another device that is written: a partition, or all bytes from an offset on.
#[derive(Debug, Clone)]
pub struct WritableWindow {
    device: Arc<dyn WriteDevice>,
    start: u64,
    length: u64,
}

impl WritableWindow {
    /// `length` bytes of `device` from `start` on, or as many as there are.
    pub fn new(device: Arc<dyn WriteDevice>, start: u64, length: u64) -> Self {
        let length = length.min(device.length().saturating_sub(start));
        Self { device, start, length }
    }

    /// The place on the whole device, if the range lies in this part.
    fn within(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?;
        (end <= self.length).then_some(self.start + offset)
    }
}

impl Device for WritableWindow {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let place = self.within(offset, into.len() as u64).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.device.read_at(place, into)
    }
}

impl WriteDevice for WritableWindow {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let place = self.within(offset, total(from)).ok_or_else(beyond)?;
        self.device.write_at(place, from)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    fn check(&self) -> io::Result<()> {
        self.device.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        let place = self.within(offset, length).ok_or_else(beyond)?;
        self.device.discard(place, length)
    }

    fn counts(&self) -> DeviceCounts {
        self.device.counts()
    }
}

/// A device whose flushes do nothing, except the last one. Writes outlive the process, but a crash of the machine may leave
/// any state: for images that are not needed after a crash.
#[derive(Debug)]
pub struct WithoutBarriers(pub Arc<dyn WriteDevice>);

impl Device for WithoutBarriers {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, into)
    }
}

impl WriteDevice for WithoutBarriers {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_at(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        self.0.check()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.0.discard(offset, length)
    }

    fn counts(&self) -> DeviceCounts {
        self.0.counts()
    }
}

impl Drop for WithoutBarriers {
    fn drop(&mut self) {
        // No caller is left to take the error.
        let _ = self.0.flush();
    }
}

/// How many bytes there are in all slices.
fn total(from: &[IoSlice<'_>]) -> u64 {
    from.iter().map(|slice| slice.len() as u64).sum()
}

fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a write beyond the end of the device")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn slices<'a>(parts: &[&'a [u8]]) -> Vec<IoSlice<'a>> {
        parts.iter().map(|part| IoSlice::new(part)).collect()
    }

    fn check(device: Arc<dyn WriteDevice>) {
        let length = device.length();
        device.write_at(3, &slices(&[b"ab", b"", b"cde"])).unwrap();
        device.flush().unwrap();
        let mut read = [9; 7];
        device.read_at(2, &mut read).unwrap();
        assert_eq!(&read, b"\0abcde\0");
        device.write_at(length - 2, &slices(&[b"yz"])).unwrap();
        let error = device.write_at(length - 1, &slices(&[b"yz"])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "it does not grow");
        assert_eq!(device.length(), length);
        let error = device.write_at(u64::MAX, &slices(&[b"y"])).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        device.discard(4096, 4096).unwrap();
        assert!(device.discard(length, 1).is_err());
        let mut tail = [0; 2];
        device.read_at(length - 2, &mut tail).unwrap();
        assert_eq!(&tail, b"yz");
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = direct_tests::folder();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 20_000]).unwrap();
        check(Arc::new(WritableFile::open(&path).unwrap()));
        std::fs::write(&path, vec![0; 20_000]).unwrap();
        if let Some(device) = direct_tests::direct(&path) {
            check(Arc::new(device));
        }
        check(Arc::new(WritableMemory::new(vec![0; 20_000])));
        let whole = Arc::new(WritableMemory::new(vec![0; 40_000]));
        check(Arc::new(WritableWindow::new(whole.clone(), 10_000, 20_000)));
        let bytes = whole.bytes();
        assert_eq!(&bytes[10_003..10_008], b"abcde");
        assert_eq!(&bytes[29_998..30_001], b"yz\0");
    }

    /// Slices beyond the number that one system call takes were an error of the system.
    #[test]
    fn any_number_of_slices_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 10_000]).unwrap();
        let device = WritableFile::open(&path).unwrap();
        let bytes: Vec<u8> = (0..9000).map(|at| at as u8).collect();
        let parts: Vec<_> = bytes.chunks(3).map(IoSlice::new).collect();
        device.write_at(500, &parts).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[500..9500], bytes);
    }

    /// An image file was removed or cut under its writer: all writes were lost, and every flush succeeded.
    #[test]
    fn a_file_that_was_removed_or_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let fresh = || {
            std::fs::write(&path, vec![0; 20_000]).unwrap();
            WritableFile::open(&path).unwrap()
        };
        let refused = |device: &WritableFile| device.check().unwrap_err().to_string();
        let device = fresh();
        device.check().unwrap();
        std::fs::rename(&path, folder.path().join("elsewhere")).unwrap();
        device.check().unwrap();
        std::fs::remove_file(folder.path().join("elsewhere")).unwrap();
        assert!(refused(&device).contains("removed or replaced"));
        let device = fresh();
        std::fs::write(folder.path().join("other"), vec![1; 20_000]).unwrap();
        std::fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(refused(&device).contains("removed or replaced"));
        let device = fresh();
        File::options().write(true).open(&path).unwrap().set_len(10_000).unwrap();
        assert!(refused(&device).contains("cut to 10000 bytes"), "{}", refused(&device));
        // A write of the last bytes would give the file its length back, with a hole before them.
        device.write_at(19_990, &slices(&[b"0123456789"])).unwrap_err();
        assert_eq!(path.metadata().unwrap().len(), 10_000);
        drop(device);
        let device: Arc<dyn WriteDevice> = Arc::new(fresh());
        let window = WritableWindow::new(device.clone(), 1000, 5000);
        let lazy = WithoutBarriers(Arc::new(window));
        lazy.check().unwrap();
        std::fs::remove_file(&path).unwrap();
        lazy.check().unwrap_err();
    }

    #[test]
    fn one_writer_keeps_all_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; 5000]).unwrap();
        let reader = uvfs_ext::FileDevice::open(&path).unwrap();
        let refused = WritableFile::open(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "a reader has it");
        drop(reader);
        let writer = WritableFile::open(&path).unwrap();
        assert!(WritableFile::open(&path).is_err() && uvfs_ext::FileDevice::open(&path).is_err());
        drop(writer);
        WritableFile::open(&path).unwrap();
    }
}
