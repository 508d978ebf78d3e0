//! Brings a journal's blocks to their places in the image: a writer's first step.
//!
//! # Why
//! Every step can be repeated after a crash in it: first all blocks are written to their places, then the journal is marked
//! empty, then the superblock is marked as needing no recovery.

use crate::device::WriteDevice;
use crate::error::{Error, Result};
use crate::store::LogPlace;
use std::io::IoSlice;
use std::sync::Arc;
use uvfs_ext::encode::journal::JournalHead;
use uvfs_ext::{Image, Inode, Place, Recovery, Run, Source};

/// Writes the newer blocks in the journal of the image on `device` to their places, and empties the journal. `None` if nothing needed
/// that.
///
/// # Errors
/// As [`Image::open`]; fast commits, which are not replayed ([`Error::NotWritable`]); those of the device.
pub fn recover(device: &Arc<dyn WriteDevice>) -> Result<Option<Recovery>> {
    let mut source = None;
    let image = Image::open_with(device.clone(), |of| {
        source = Some(of.clone());
        Box::new(of)
    })?;
    let (Some(source), Some(recovery)) = (source, image.recovery().cloned()) else {
        return Ok(None);
    };
    if recovery.fast_commits {
        return Err(Error::NotWritable(
            "its journal has fast commits, which are not replayed: let e2fsck do it".into(),
        ));
    }
    for block in source.replayed() {
        let bytes = read(&source, block)?;
        write(&**device, block, &bytes)?;
    }
    device.flush()?;
    let journal = journal_inode(&image)?;
    let mut head = journal_head(&image, &source, &journal)?;
    // One is left out: the transaction that was not committed may have left blocks of its number.
    let next = head.sequence().wrapping_add(recovery.transactions).wrapping_add(1);
    head.set_tail(0, next);
    write(&**device, journal_block(&image, &journal)?, &head.encode())?;
    device.flush()?;
    let mut superblock = image.superblock().clone();
    superblock.set_needs_recovery(false);
    let (block, offset) = superblock.place();
    let at = block * u64::from(superblock.block_size) + offset as u64;
    device.write_at(at, &[IoSlice::new(&superblock.encode())])?;
    device.flush()?;
    Ok(Some(recovery))
}

/// The empty journal of an image that needs no recovery, with the features that its volume wants; `None` if it has none.
///
/// # Errors
/// A journal that is not written ([`Error::NotWritable`], [`uvfs_ext::Error::Unsupported`]).
pub fn log_place(image: &Image, source: &Source) -> Result<Option<LogPlace>> {
    if !image.superblock().features.has_journal() {
        return Ok(None);
    }
    let journal = journal_inode(image)?;
    let mut head = journal_head(image, source, &journal)?;
    head.set_features(image.superblock());
    let runs = runs(image, &journal)?;
    // A block that is missing would end writing in the middle of a commit.
    let written = runs.iter().take_while(|run| matches!(run.place, Place::At(_))).last();
    if written.map_or(0, |run| run.logical + run.length) < u64::from(head.ring().1) {
        return Err(Error::NotWritable("its journal has a hole: let e2fsck look".into()));
    }
    let sequence = head.sequence().max(1);
    Ok(Some(LogPlace { head, runs, sequence }))
}

fn journal_inode(image: &Image) -> Result<Inode> {
    match image.superblock().journal_inode() {
        0 => Err(Error::NotWritable("its journal is on another device".into())),
        number => Ok(image.inode(number)?),
    }
}

fn runs(image: &Image, journal: &Inode) -> Result<Vec<Run>> {
    let blocks = journal.size() / u64::from(image.superblock().block_size);
    Ok(image.map(journal, 0..blocks)?)
}

fn journal_block(image: &Image, journal: &Inode) -> Result<u64> {
    match image.map(journal, 0..1)?.first() {
        Some(Run { place: Place::At(block), .. }) => Ok(*block),
        _ => {
            Err(uvfs_ext::Error::Corrupt(uvfs_ext::Fault::new("the journal has no beginning"))
                .into())
        }
    }
}

fn journal_head(image: &Image, source: &Source, journal: &Inode) -> Result<JournalHead> {
    Ok(JournalHead::decode(&read(source, journal_block(image, journal)?)?)?)
}

fn read(source: &Source, block: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; source.block_size() as usize];
    source.read(block * bytes.len() as u64, &mut bytes)?;
    Ok(bytes)
}

fn write(device: &dyn WriteDevice, block: u64, bytes: &[u8]) -> Result<()> {
    Ok(device.write_at(block * bytes.len() as u64, &[IoSlice::new(bytes)])?)
}
