//! The changes that the image lacks after writing has ended, file by file.
//!
//! # Boundary
//! Compares inodes and maps with those that the next mount of the image will find. Knows no paths, and decides nothing.
//!
//! # Why
//! After the end of writing the running list has every block that no commit brought ([`Store::uncommitted`]). The inode tables
//! among them name the inodes. A transaction that has data of a file has its inode's block, too, also if the inode did not
//! change ([`super::journaled`], J5). The image is opened a second time, with its journal replayed in memory: so a commit whose
//! record reached the device counts as there, although its flush failed. Weaknesses: the list has no removals, and no
//! directory of which only the entries changed. Data that was written in place before a failed flush counts as there.
//!
//! [`Store::uncommitted`]: crate::store::Store::uncommitted

use super::Volume;
use crate::error::Result;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use uvfs_ext::{Blocks, Image, Inode, Kind, Place, Run, Source};

/// An inode in use of which the image lacks something.
#[derive(Debug, Clone)]
pub struct Lost {
    /// The inode as the volume has it.
    pub inode: Inode,
    /// Bytes of its contents that the image lacks; 0 if it lacks a name, attributes or a length alone.
    pub bytes: u64,
}

/// The changes that the image lacks.
#[derive(Debug, Clone)]
pub enum Losses {
    /// These inodes, and removals.
    Some(Vec<Lost>),
    /// Everything, because no program can find the image. The bytes that were in use.
    All(u64),
}

impl Volume {
    /// The changes that the image lacks after the end of writing ([`Volume::failure`]).
    ///
    /// # Errors
    /// Those of reading the image again.
    pub fn losses(&self) -> Result<Losses> {
        let device = self.store.device();
        if device.check().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            let superblock = self.image.superblock();
            let used = superblock.blocks.saturating_sub(self.room().free_blocks);
            let used = used.saturating_sub(superblock.overhead_blocks());
            return Ok(Losses::All(used * u64::from(superblock.block_size)));
        }
        let mut source = None;
        let stable = Image::open_with(device.clone(), |of| {
            source = Some(of.clone());
            Box::new(of)
        })?;
        let source = source.expect("opening has a source");
        let superblock = self.image.superblock();
        let per_block = superblock.block_size / u32::from(superblock.inode_size);
        let table_blocks = u64::from(superblock.inodes_per_group.div_ceil(per_block));
        let there = There { stable, source, uncommitted: self.store.uncommitted() };
        let mut lost = Vec::new();
        for group in 0..superblock.groups {
            let table = self.image.group(group)?.inode_table;
            let from = there.uncommitted.partition_point(|block| *block < table);
            for block in &there.uncommitted[from..] {
                let at = block - table;
                if at >= table_blocks {
                    break;
                }
                let first = group * superblock.inodes_per_group + at as u32 * per_block + 1;
                self.compare_inodes(*block, first, &there, &mut lost)?;
            }
        }
        Ok(Losses::Some(lost))
    }

    /// Adds the inodes of `block` that are in use and of which the image lacks something.
    fn compare_inodes(
        &self,
        block: u64,
        first: u32,
        there: &There,
        lost: &mut Vec<Lost>,
    ) -> Result<()> {
        let superblock = self.image.superblock();
        let (now, then) = (self.store.read(block)?, there.source.block(block)?);
        let size = usize::from(superblock.inode_size);
        for (number, (now, then)) in (first..).zip(now.chunks(size).zip(then.chunks(size))) {
            if self.is_own(number) {
                continue;
            }
            // One that an operation left halfway may be in no order.
            let Ok(inode) = Inode::decode(number, now, superblock) else { continue };
            let before = Inode::decode(number, then, superblock);
            let before = before
                .ok()
                .filter(|before| before.links() > 0 && before.generation() == inode.generation());
            let is_same = now == then;
            let bytes = match inode.kind() {
                _ if inode.links() == 0 || is_same && !self.is_journaled() => continue,
                Some(Kind::Directory) if before.is_some() => continue,
                Some(Kind::Regular) => self.bytes_lost(&inode, before.as_ref(), there)?,
                Some(_) => 0,
                None => continue,
            };
            if !is_same || bytes > 0 {
                lost.push(Lost { inode, bytes });
            }
        }
        Ok(())
    }

    /// Bytes of a file in blocks that the map which is stable does not have at the same place, or has with other
    /// contents.
    fn bytes_lost(&self, inode: &Inode, before: Option<&Inode>, there: &There) -> Result<u64> {
        let block_size = u64::from(self.image.superblock().block_size);
        let blocks = 0..inode.size().div_ceil(block_size);
        let before = before.map(|before| there.stable.map(before, blocks.clone())).transpose()?;
        let mut bytes = 0;
        for run in self.image.map(inode, blocks)? {
            let Place::At(place) = run.place else { continue };
            let logical = run.logical..run.logical + run.length;
            let end = (logical.end * block_size).min(inode.size());
            let same = shared(logical.clone(), place, before.as_deref());
            bytes += (end - run.logical * block_size).saturating_sub(same * block_size);
            if !self.is_journaled() {
                continue;
            }
            for block in there.uncommitted_in(place..place + run.length) {
                let at = logical.start + (block - place);
                if shared(at..at + 1, *block, before.as_deref()) == 1
                    && self.store.read(*block)?[..] != there.source.block(*block)?[..]
                {
                    bytes += block_size.min(inode.size().saturating_sub(at * block_size));
                }
            }
        }
        Ok(bytes)
    }
}

/// The state that the next mount of the image finds, and the changed blocks that it does not have.
struct There {
    stable: Image,
    source: Arc<Source>,
    /// In order.
    uncommitted: Vec<u64>,
}

impl There {
    fn uncommitted_in(&self, blocks: Range<u64>) -> &[u64] {
        let from = self.uncommitted.partition_point(|block| *block < blocks.start);
        let to = self.uncommitted.partition_point(|block| *block < blocks.end);
        &self.uncommitted[from..to]
    }
}

/// Blocks of the file in `logical`, from block `place` of the volume on, that `others` have at the same places.
fn shared(logical: Range<u64>, place: u64, others: Option<&[Run]>) -> u64 {
    let of = |run: &Run| {
        let Place::At(at) = run.place else { return 0 };
        let (start, end) =
            (logical.start.max(run.logical), logical.end.min(run.logical + run.length));
        let is_same =
            place + start.wrapping_sub(logical.start) == at + start.wrapping_sub(run.logical);
        if is_same { end.saturating_sub(start) } else { 0 }
    };
    let others = others.unwrap_or_default();
    let first = others.partition_point(|run| run.logical + run.length <= logical.start);
    let touching = others[first..].iter().take_while(|run| run.logical < logical.end);
    touching.map(of).sum()
}
