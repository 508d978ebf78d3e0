//! An image: opening it, finding inodes, reading files and links.
//!
//! # Boundary
//! Puts the parts together. [`crate::format`] parses and checks structures, [`crate::journal`] replays the journal.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::format::blocks::{Blocks, Source};
use crate::format::group::{Group, Groups};
use crate::format::inode::{Inode, Kind};
use crate::format::map::{Place, Run};
use crate::format::superblock::{LENGTH, OFFSET, Superblock};
use crate::journal;
use std::ops::Range;
use std::sync::Arc;

/// Results of a journal replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Transactions that were committed.
    pub transactions: u32,
    /// Blocks that they bring.
    pub blocks: usize,
    /// Blocks in them that are ignored, because a later transaction freed them.
    pub revoked: usize,
    /// Changes in the fast-commit area, which is not replayed.
    pub fast_commits: bool,
}

/// A file system on a device, as it is after its journal was replayed.
#[derive(Debug)]
pub struct Image {
    superblock: Superblock,
    source: Arc<Source>,
    blocks: Box<dyn Blocks>,
    groups: Groups,
    /// The blocks of the journal; no file may claim them.
    own: Vec<Range<u64>>,
    recovery: Option<Recovery>,
}

impl Image {
    /// Opens the file system on `device`, and replays its journal in memory if that is needed.
    ///
    /// # Errors
    /// See [`Error`]; nothing is written in any case.
    pub fn open(device: Arc<dyn Device>) -> Result<Self> {
        Self::open_with(device, |source| Box::new(source))
    }

    /// Opens an image that reads blocks of metadata through the object that `through` makes of their source: a cache,
    /// for example.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_with(
        device: Arc<dyn Device>,
        through: impl FnOnce(Arc<Source>) -> Box<dyn Blocks>,
    ) -> Result<Self> {
        let mut bytes = [0; LENGTH];
        if device.length() < OFFSET + LENGTH as u64 {
            return Err(Error::NotExt);
        }
        device.read_at(OFFSET, &mut bytes)?;
        let mut superblock = Superblock::parse(&bytes, device.length())?;
        let length = device.length();
        let mut source = Source::new(device, superblock.block_size, superblock.blocks);
        let mut recovery = None;
        if superblock.features.needs_recovery() {
            let plain = Arc::new(source);
            let before = Self::of(superblock, plain.clone(), Box::new(plain.clone()), None);
            let (overlay, done) = journal::replay(&before)?;
            let device = plain.device().clone();
            source = Source::new(device, before.superblock.block_size, before.superblock.blocks);
            source = source.with_overlay(overlay);
            // The journal holds a newer superblock. Its flags ask for the replay that just ended.
            source.read(OFFSET, &mut bytes)?;
            superblock = Superblock::parse(&bytes, length)?;
            let same = superblock.block_size == source.block_size()
                && superblock.blocks == before.superblock.blocks;
            if !same {
                return Err(Error::corrupt("the journal changes the size of the file system"));
            }
            recovery = Some(done);
        }
        let source = Arc::new(source);
        Ok(Self::of(superblock, source.clone(), through(source), recovery))
    }

    /// This image, which reads blocks of metadata through the object that `through` makes of their source: a cache, for
    /// example.
    #[must_use]
    pub fn through(mut self, through: impl FnOnce(Arc<Source>) -> Box<dyn Blocks>) -> Self {
        self.blocks = through(self.source.clone());
        self
    }

    /// This image, in which no inode's map may lead into these blocks: those of the journal, for a writer.
    #[must_use]
    pub fn without(self, own: Vec<Range<u64>>) -> Self {
        Self { own, ..self }
    }

    pub(crate) fn own(&self) -> &[Range<u64>] {
        &self.own
    }

    fn of(
        superblock: Superblock,
        source: Arc<Source>,
        blocks: Box<dyn Blocks>,
        recovery: Option<Recovery>,
    ) -> Self {
        let groups = Groups::new(&superblock);
        Self { superblock, source, blocks, groups, own: Vec::new(), recovery }
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Results of the replay, if the journal needed one.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    pub(crate) fn blocks(&self) -> &dyn Blocks {
        &*self.blocks
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The descriptor of `group`, which must be a group of the volume.
    ///
    /// # Errors
    /// A wrong checksum, places outside the volume.
    pub fn group(&self, group: u32) -> Result<&Group> {
        self.groups.get(group, &self.superblock, self.blocks())
    }

    /// The blocks of `group`, which is one of the volume, that hold metadata, its own or other groups'.
    pub fn metadata_of(&self, group: u32) -> Vec<Range<u64>> {
        let superblock = &self.superblock;
        let start = superblock.first_block_of(group);
        let end = start + u64::from(superblock.blocks_of(group));
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut at = start;
        while at < end
            && let Some(block) = self.groups.metadata_in(at..end, superblock, self.blocks())
        {
            match found.last_mut() {
                Some(last) if last.end == block => last.end = block + 1,
                _ => found.push(block..block + 1),
            }
            at = block + 1;
        }
        found
    }

    /// The inode of this number, whether it is in use or not.
    ///
    /// # Errors
    /// A number that cannot be, a wrong checksum, sizes beyond the format.
    pub fn inode(&self, number: u32) -> Result<Inode> {
        let (place, offset) = self.inode_place(number)?;
        let size = usize::from(self.superblock.inode_size);
        let block = self.blocks().block(place)?;
        let bytes = block.get(offset..offset + size);
        let bytes = bytes.ok_or_else(|| Error::corrupt("a block is short").at_block(place))?;
        Inode::parse(number, bytes, &self.superblock).map_err(|error| error.at_block(place))
    }

    /// The inodes of these numbers will be asked for soon: a cache of blocks may read those that hold them together.
    pub fn read_ahead_inodes(&self, numbers: &[u32]) {
        let place = |&number: &u32| self.inode_place(number).ok().map(|(place, _)| place);
        let mut places: Vec<u64> = numbers.iter().filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        for run in places.chunk_by(|before, next| before + 1 == *next) {
            self.blocks().read_ahead(run[0]..run[0] + run.len() as u64);
        }
    }

    /// The block in which the inode of this number lies, and where in it.
    fn inode_place(&self, number: u32) -> Result<(u64, usize)> {
        let superblock = &self.superblock;
        if number == 0 || number > superblock.inodes {
            return Err(Error::corrupt("there is no such inode").in_inode(number));
        }
        let (group, at) = (
            (number - 1) / superblock.inodes_per_group,
            (number - 1) % superblock.inodes_per_group,
        );
        let table = self.group(group).map_err(|error| error.in_inode(number))?;
        if table.no_inodes {
            return Err(Error::corrupt("its group has no inodes yet").in_inode(number));
        }
        let size = usize::from(superblock.inode_size);
        let per_block = superblock.block_size / u32::from(superblock.inode_size);
        Ok((table.inode_table + u64::from(at / per_block), (at % per_block) as usize * size))
    }

    /// Reads a file from `offset` on; fewer bytes than asked for mean its end.
    ///
    /// # Errors
    /// [`Error::NoKey`] for encrypted files; where the map contradicts itself; those of the device.
    pub fn read(&self, inode: &Inode, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_mapped(inode, offset, into, |wanted| self.map(inode, wanted))
    }

    /// Reads as [`Image::read`] does, but takes the runs from `map` instead of [`Image::map`]: from a cache, for
    /// example.
    ///
    /// # Errors
    /// As [`Image::read`]; those of `map`.
    pub fn read_mapped(
        &self,
        inode: &Inode,
        offset: u64,
        into: &mut [u8],
        map: impl FnOnce(Range<u64>) -> Result<Vec<Run>>,
    ) -> Result<usize> {
        if inode.is_encrypted() {
            return Err(Error::NoKey);
        }
        let rest = inode.size().saturating_sub(offset);
        let length = rest.min(into.len() as u64) as usize;
        let into = &mut into[..length];
        if length == 0 {
            return Ok(0);
        }
        if inode.is_inline() {
            self.read_inline(inode, offset as usize, into)?;
            return Ok(length);
        }
        let size = u64::from(self.superblock.block_size);
        let end = offset + length as u64;
        for run in map(offset / size..end.div_ceil(size))? {
            let start = (run.logical * size).max(offset);
            let behind = ((run.logical + run.length) * size).min(end);
            let part = &mut into[(start - offset) as usize..(behind - offset) as usize];
            match run.place {
                Place::At(block) => {
                    self.source.read(block * size + (start - run.logical * size), part)?;
                }
                Place::Unwritten(_) | Place::Hole => part.fill(0),
            }
        }
        Ok(length)
    }

    fn read_inline(&self, inode: &Inode, offset: usize, into: &mut [u8]) -> Result<()> {
        let tail = self.inline_tail(inode).map_err(|error| error.in_inode(inode.number))?;
        let whole = [inode.block().as_slice(), &tail].concat();
        // The inode holds no bytes for a range that was never written: it reads as zeros.
        let bytes = whole.into_iter().chain(std::iter::repeat(0)).skip(offset);
        into.iter_mut().zip(bytes).for_each(|(into, byte)| *into = byte);
        Ok(())
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// [`Error::NoKey`] for encrypted ones; text that cannot be.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        let fault = |what: &str| Error::corrupt(what).in_inode(inode.number);
        if inode.kind() != Some(Kind::Symlink) {
            return Err(fault("it is no symbolic link"));
        }
        if inode.is_encrypted() {
            return Err(Error::NoKey);
        }
        let text = match inode.short_link() {
            Some(text) => text.to_vec(),
            None => {
                let mut text = vec![0; inode.size() as usize];
                let length = self.read(inode, 0, &mut text)?;
                text.truncate(length);
                text
            }
        };
        if text.is_empty() || text.contains(&0) {
            return Err(fault("the text of a link is empty or has a NUL in it"));
        }
        Ok(text)
    }
}
