//! Blocks of an image: where metadata is read, and the one place in which a cache can stand.
//!
//! # Boundary
//! [`Source`] knows the device, the size of a block and the newer blocks of the journal. It knows no structure.
//!
//! # Concurrency
//! Shared by reference; reads do not wait for each other. A [`Block`] holds the bytes or a pin of a cache's: it is
//! valid as long as it lives, and a cache must not wait for it to be dropped.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::journal::Overlay;
use std::fmt;
use std::io::IoSliceMut;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The bytes of one block, its own or those of a cache.
pub struct Block<'a>(Bytes<'a>);

enum Bytes<'a> {
    Own(Box<[u8]>),
    /// The value pins the bytes that it dereferences to.
    Pinned(Box<dyn Deref<Target = [u8]> + 'a>),
}

impl<'a> Block<'a> {
    /// A block of these bytes.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Self {
        Self(Bytes::Own(bytes.into()))
    }

    /// The block that `pin` dereferences to; the bytes must not change during its life.
    pub fn pinned(pin: impl Deref<Target = [u8]> + 'a) -> Self {
        Self(Bytes::Pinned(Box::new(pin)))
    }
}

impl Deref for Block<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Own(bytes) => bytes,
            Bytes::Pinned(pin) => pin,
        }
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Block({} bytes)", self.len())
    }
}

/// Reads blocks of metadata. An image reads all of them through this, and their contents never change.
pub trait Blocks: Send + Sync + fmt::Debug {
    /// The contents of block `number`, which is one of the volume.
    ///
    /// # Errors
    /// Those of the device.
    fn block(&self, number: u64) -> Result<Block<'_>>;

    /// Reads a block of the volume if `check` accepts it. A cache may check the contents of a block once, when it reads
    /// them. `check` reads no blocks.
    ///
    /// # Errors
    /// Those of the device; those of `check`.
    fn checked(&self, number: u64, check: &dyn Fn(&[u8]) -> Result<()>) -> Result<Block<'_>> {
        let block = self.block(number)?;
        check(&block)?;
        Ok(block)
    }

    /// The blocks `wanted` of the volume will be asked for soon: a cache may read them together. Failures are not
    /// reported. The call waits for nothing but the device.
    fn read_ahead(&self, wanted: Range<u64>) {
        let _ = wanted;
    }
}

/// The blocks of a device, as they are after the journal was replayed.
#[derive(Debug)]
pub struct Source {
    device: Arc<dyn Device>,
    block_size: u32,
    blocks: u64,
    overlay: Overlay,
}

impl Source {
    pub(crate) fn new(device: Arc<dyn Device>, block_size: u32, blocks: u64) -> Self {
        Self { device, block_size, blocks, overlay: Overlay::default() }
    }

    pub(crate) fn with_overlay(self, overlay: Overlay) -> Self {
        Self { overlay, ..self }
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Bytes in a block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes of the volume.
    pub fn length(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into())
    }

    /// The blocks that the journal has newer than the volume, in order.
    pub fn replayed(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.overlay.blocks().collect();
        blocks.sort_unstable();
        blocks
    }

    /// How many blocks the journal has newer than the volume.
    pub fn replayed_blocks(&self) -> usize {
        self.overlay.len()
    }

    /// Fills `into` from byte `offset` of the volume on.
    ///
    /// # Errors
    /// Those of the device; and a range that leaves the volume.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let size = u64::from(self.block_size);
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.blocks * size) {
            return Err(Error::corrupt("a read leaves the volume").at_block(offset / size));
        }
        if self.overlay.is_empty() {
            return Ok(self.device.read_at(offset, into)?);
        }
        let (mut offset, mut rest) = (offset, into);
        while !rest.is_empty() {
            let within = offset % size;
            let length = rest.len().min((size - within) as usize);
            let (part, behind) = rest.split_at_mut(length);
            match self.overlay.find(offset / size) {
                None => self.device.read_at(offset, part)?,
                Some(newer) => {
                    self.device.read_at(newer.block * size + within, part)?;
                    newer.restore(within, part);
                }
            }
            offset += length as u64;
            rest = behind;
        }
        Ok(())
    }
}

impl Source {
    /// Fills all of `into`, one behind the other, from byte `offset` of the volume on, in one read of the device where
    /// the journal has nothing newer.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn read_vectored(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Result<()> {
        let length: u64 = into.iter().map(|part| part.len() as u64).sum();
        if self.overlay.is_empty() && offset.saturating_add(length) <= self.length() {
            return Ok(self.device.read_vectored_at(offset, into)?);
        }
        into.iter_mut().try_fold(offset, |at, part| {
            self.read(at, part)?;
            Ok::<_, Error>(at + part.len() as u64)
        })?;
        Ok(())
    }
}

impl Blocks for Source {
    fn block(&self, number: u64) -> Result<Block<'_>> {
        let mut bytes = vec![0; self.block_size as usize];
        let offset = number.checked_mul(u64::from(self.block_size));
        let offset = offset.ok_or_else(|| Error::corrupt("no such block").at_block(number))?;
        self.read(offset, &mut bytes)?;
        Ok(Block::new(bytes))
    }
}

impl Blocks for Arc<Source> {
    fn block(&self, number: u64) -> Result<Block<'_>> {
        (**self).block(number)
    }
}
