//! Checking a whole image: every structure is read, every checksum verified, every reference counted.
//!
//! # Boundary
//! Reports faults and repairs none. The parser of a structure finds the faults within it. This module compares structures:
//! blocks with two owners, bitmaps against blocks and inodes in use, links against names.
//!
//! # Why
//! A check continues after a fault, as far as the rest can be read, so that one run reports all faults. Memory is three
//! bits for each block in use, two for each inode, the links of those that are counted, and the list of orphans. Weakness: quota
//! files and the blocks of the resize inode are compared with nothing, and the list of orphans is followed and not verified.

use crate::error::{Error, Fault, Result};
use crate::format::checksum::crc32c;
use crate::format::group::{Group, inode_table_blocks};
use crate::format::inode::{Inode, Kind};
use crate::format::map::Place;
use crate::image::Image;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

/// Objects that a check has read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Groups.
    pub groups: u32,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Names in them.
    pub names: u64,
    /// Blocks that files and their maps take.
    pub blocks: u64,
    /// Faults found.
    pub faults: u64,
}

/// Receives the faults and the progress of a check.
pub trait Observer {
    /// The check found `fault`.
    fn fault(&mut self, fault: &Fault);
    /// The check has passed `inodes` of all inodes.
    fn progress(&mut self, inodes: u64, of: u64) {
        let _ = (inodes, of);
    }
}

/// Numbers that the format keeps for itself.
const BAD_BLOCKS: u32 = 1;
const RESIZE: u32 = 7;

/// Checks everything in `image`.
///
/// # Errors
/// Those of the device; `observer` receives each fault of the image.
pub fn check(image: &Image, observer: &mut dyn Observer) -> Result<Summary> {
    let mut check = Check {
        image,
        observer,
        summary: Summary::default(),
        owned: Bits::default(),
        used: Bits::default(),
        links: HashMap::new(),
        names: HashMap::new(),
        values: HashSet::new(),
        orphans: orphans(image),
        directories: Bits::default(),
    };
    check.inodes()?;
    check.links();
    check.bitmaps()?;
    Ok(check.summary)
}

/// The inodes in the list that begins in the superblock: without names and in use, or being truncated. Stops at a
/// faulty entry.
fn orphans(image: &Image) -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut next = image.superblock().last_orphan();
    while next != 0 && found.insert(next) {
        next = image.inode(next).map_or(0, |inode| inode.deleted());
    }
    found
}

/// A set of numbers below 2^48, in parts that exist when something is in them.
#[derive(Default)]
struct Bits(HashMap<u64, Box<[u64; 512]>>);

impl Bits {
    /// Adds `number`; false if it was there.
    fn insert(&mut self, number: u64) -> bool {
        let part = self.0.entry(number >> 15).or_insert_with(|| Box::new([0; 512]));
        let word = &mut part[(number >> 6 & 511) as usize];
        let bit = 1 << (number & 63);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn has(&self, number: u64) -> bool {
        let part = self.0.get(&(number >> 15));
        part.is_some_and(|part| part[(number >> 6 & 511) as usize] >> (number & 63) & 1 == 1)
    }
}

struct Check<'a> {
    image: &'a Image,
    observer: &'a mut dyn Observer,
    summary: Summary,
    /// Clusters with an owner.
    owned: Bits,
    /// Inodes in use.
    used: Bits,
    /// From the inodes: their link counts, and whether they are directories.
    links: HashMap<u32, (u16, bool)>,
    /// From the directories: how many entries name each inode.
    names: HashMap<u32, u32>,
    /// Directories.
    directories: Bits,
    /// Inodes that the next writer frees or truncates: see [`orphans`].
    orphans: HashSet<u32>,
    /// Inodes that hold values of attributes.
    values: HashSet<u32>,
}

impl Check<'_> {
    fn tell(&mut self, fault: Fault) {
        self.summary.faults += 1;
        self.observer.fault(&fault);
    }

    /// Unwraps the result of an operation, or reports its fault; only a failing device ends the check.
    fn take<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Corrupt(fault)) => {
                self.tell(fault);
                Ok(None)
            }
            Err(Error::NoKey) => Ok(None),
            Err(error @ Error::Io(_)) => Err(error),
            Err(other) => {
                self.tell(Fault::new(other.to_string()));
                Ok(None)
            }
        }
    }

    fn inodes(&mut self) -> Result<()> {
        let superblock = self.image.superblock();
        let per_group = superblock.inodes_per_group;
        for number in 0..superblock.groups {
            self.summary.groups += 1;
            let Some(group) = self.take(self.image.group(number))? else { continue };
            let first = u64::from(number) * u64::from(per_group);
            self.observer.progress(first, u64::from(superblock.inodes));
            if group.no_inodes {
                continue;
            }
            for at in 0..per_group - group.unused_inodes {
                self.inode(first as u32 + at + 1)?;
            }
        }
        self.observer.progress(u64::from(superblock.inodes), u64::from(superblock.inodes));
        Ok(())
    }

    fn inode(&mut self, number: u32) -> Result<()> {
        let Some(inode) = self.take(self.image.inode(number))? else {
            // The inode cannot be parsed, but it is in use.
            self.used.insert(u64::from(number));
            return Ok(());
        };
        let own = number < self.image.superblock().first_inode();
        // An inode that was open when its last name was removed is in the list of orphans, and in use. Its time of
        // deletion holds the number of the next inode in the list, 0 for none. Times are larger than inode numbers.
        let orphan = inode.kind().is_some() && inode.links() == 0;
        let orphan = orphan && inode.deleted() <= self.image.superblock().inodes;
        if inode.links() == 0 && !own && !inode.is_xattr_value() && !orphan {
            return Ok(());
        }
        if own && inode.mode() == 0 && inode.links() == 0 && inode.size() == 0 {
            return Ok(());
        }
        self.used.insert(u64::from(number));
        self.summary.inodes += 1;
        if number == RESIZE {
            // The blocks below its one table of tables are reserved, and in the system zone already.
            let table = crate::format::layout::word(inode.block(), 4 * 13).unwrap_or(0);
            self.claim(table.into());
            return Ok(());
        }
        if number == BAD_BLOCKS {
            return Ok(());
        }
        if inode.kind().is_none() {
            self.tell(Fault::new("its mode names no kind of object").inode(number));
            return Ok(());
        }
        if inode.is_xattr_value() {
            self.values.insert(number);
        }
        // In an inode that is being truncated, the time of deletion is the number of the next in the list.
        let is_listed = self.orphans.contains(&number);
        if inode.links() > 0 && inode.deleted() != 0 && !is_listed {
            self.tell(Fault::new("it is in use and has a time of deletion").inode(number));
        }
        let directory = inode.kind() == Some(Kind::Directory);
        self.links.insert(number, (inode.links(), directory));
        self.data(&inode)?;
        self.take(self.image.xattrs(&inode))?;
        if directory {
            self.summary.directories += 1;
            self.directories.insert(u64::from(number));
            // An orphan's entries are freed with it, and its parent no longer counts its `..`.
            if inode.links() > 0 || !is_listed {
                self.directory(&inode)?;
            }
        }
        Ok(())
    }

    /// The blocks of an inode: each has one owner.
    fn data(&mut self, inode: &Inode) -> Result<()> {
        let mut taken = 0;
        let mapped = match inode.kind() {
            Some(Kind::Regular | Kind::Directory) => true,
            Some(Kind::Symlink) => inode.short_link().is_none(),
            _ => false,
        };
        if mapped {
            let mut nodes = Vec::new();
            let runs = self.image.map_whole(inode, &mut |block| nodes.push(block));
            let runs = self.take(runs)?.unwrap_or_default();
            let written = runs.iter().rfind(|run| matches!(run.place, Place::At(_)));
            let last = written.map_or(0, |run| run.logical + run.length - 1);
            let begins = last.saturating_mul(self.image.superblock().block_size.into());
            let is_cut = inode.has_verity() || self.orphans.contains(&inode.number);
            if inode.size() < begins && !is_cut {
                let what =
                    format!("its size is {}, and it has data from {begins} on", inode.size());
                self.tell(Fault::new(what).inode(inode.number));
            }
            for run in runs {
                if let Place::At(start) | Place::Unwritten(start) = run.place {
                    (start..start + run.length).for_each(|block| self.own(block, inode.number));
                    taken += run.length;
                }
            }
            taken += nodes.len() as u64;
            nodes.into_iter().for_each(|block| self.own(block, inode.number));
        }
        if inode.kind() == Some(Kind::Symlink) {
            self.take(self.image.read_link(inode))?;
        }
        if inode.xattr_block() != 0 {
            // Many inodes may share one.
            self.claim(inode.xattr_block());
            taken += 1;
        }
        self.summary.blocks += taken;
        let superblock = self.image.superblock();
        let counted = superblock.cluster_blocks == 1 && !superblock.features.ea_inode();
        let sectors = taken * u64::from(superblock.block_size / 512);
        if counted && inode.sectors() != sectors {
            let what = format!("it counts {} sectors and has {sectors}", inode.sectors());
            self.tell(Fault::new(what).inode(inode.number));
        }
        Ok(())
    }

    fn claim(&mut self, block: u64) -> bool {
        self.owned.insert(block)
    }

    fn own(&mut self, block: u64, inode: u32) {
        let shared = self.image.superblock().features.shared_blocks();
        if !self.claim(block) && !shared {
            self.tell(Fault::new("the block has two owners").block(block).inode(inode));
        }
    }

    fn directory(&mut self, directory: &Inode) -> Result<()> {
        let number = directory.number;
        let mut entries = Vec::new();
        let listed = self.image.list(directory, 0, &mut |entry| {
            entries.push((entry.name.into_owned(), entry.inode, entry.kind));
            ControlFlow::Continue(())
        });
        self.take(listed)?;
        let own = entries.first().is_some_and(|(name, inode, _)| name == b"." && *inode == number);
        let above = entries.get(1).is_some_and(|(name, ..)| name == b"..");
        if !own || !above {
            self.tell(Fault::new("the directory does not begin with `.` and `..`").inode(number));
        }
        let typed = self.image.superblock().features.filetype();
        let indexed =
            directory.is_indexed() && !directory.folds_case() && !directory.is_encrypted();
        for (name, inode, kind) in entries {
            self.summary.names += 1;
            *self.names.entry(inode).or_default() += 1;
            let named = String::from_utf8_lossy(&name).into_owned();
            let Some(target) = self.take(self.image.inode(inode))? else { continue };
            if target.links() == 0 {
                let what = format!("`{named}` names inode {inode}, which is not in use");
                self.tell(Fault::new(what).inode(number));
            } else if typed && target.kind() != kind {
                let what = format!("`{named}` names inode {inode} as another kind than it is");
                self.tell(Fault::new(what).inode(number));
            }
            if indexed {
                match self.take(self.image.lookup(directory, &name))? {
                    Some(Some(found)) if found == inode => {}
                    Some(_) => {
                        let what = format!("`{named}` is not found through the index");
                        self.tell(Fault::new(what).inode(number));
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Names of each inode against its links.
    fn links(&mut self) {
        let mut links: Vec<_> = self.links.drain().collect();
        links.sort_unstable();
        let first = self.image.superblock().first_inode();
        for (number, (links, directory)) in links {
            let names = self.names.get(&number).copied().unwrap_or(0);
            let own = number < first && number != crate::ROOT || self.is_own_file(number);
            if own || self.values.contains(&number) || links == 0 {
                continue;
            }
            // A directory with too many to count says 1.
            if u32::from(links) != names && !(directory && links == 1) {
                let what = format!("it counts {links} names and has {names}");
                self.tell(Fault::new(what).inode(number));
            }
        }
    }

    /// Files of the format's own that have a number like others: the orphans', the quotas'.
    fn is_own_file(&self, number: u32) -> bool {
        let raw = &self.image.superblock().raw;
        let own =
            [raw.orphan_inode, raw.project_quota_inode, raw.quota_inodes[0], raw.quota_inodes[1]];
        own.iter().any(|own| own.get() == number)
    }

    /// Bitmaps against blocks and inodes in use.
    fn bitmaps(&mut self) -> Result<()> {
        let superblock = self.image.superblock();
        let table = inode_table_blocks(superblock);
        if superblock.features.guards_mounts() {
            let block = superblock.raw.mmp_block.get();
            if superblock.has(block) {
                self.system(block..block + 1);
            } else {
                self.tell(Fault::new("the block that guards mounts is outside the volume"));
            }
        }
        for number in 0..superblock.groups {
            let start = superblock.first_block_of(number);
            (start
                ..start + superblock.head_blocks(number).min(superblock.blocks_of(number).into()))
                .for_each(|block| {
                    self.claim(block);
                });
            // Reading its inodes has reported this fault.
            let Ok(group) = self.image.group(number) else { continue };
            for block in [group.block_bitmap, group.inode_bitmap] {
                self.system(block..block + 1);
            }
            self.system(group.inode_table..group.inode_table + table);
        }
        for number in 0..superblock.groups {
            let Ok(group) = self.image.group(number) else { continue };
            self.block_bitmap(number, group)?;
            self.inode_bitmap(number, group)?;
        }
        Ok(())
    }

    fn system(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            if !self.claim(block) {
                self.tell(
                    Fault::new("a block of the file system itself has two owners").block(block),
                );
            }
        }
    }

    /// The bits of a bitmap whose checksum is right.
    fn bitmap(&mut self, place: u64, length: usize, checksum: u32) -> Result<Option<Vec<u8>>> {
        let superblock = self.image.superblock();
        let Some(block) = self.take(self.image.blocks().block(place))? else { return Ok(None) };
        let bytes = block.get(..length).unwrap_or(&block).to_vec();
        if superblock.features.metadata_checksum() {
            let wide = superblock.descriptor_size >= 64;
            let mask = if wide { u32::MAX } else { 0xFFFF };
            if (crc32c(superblock.checksum_seed, &bytes) ^ checksum) & mask != 0 {
                self.tell(Fault::new("the checksum of a bitmap is wrong").block(place));
            }
        }
        Ok(Some(bytes))
    }

    fn block_bitmap(&mut self, number: u32, group: &Group) -> Result<()> {
        let superblock = self.image.superblock();
        if group.no_block_bitmap {
            return Ok(());
        }
        let ratio = u64::from(superblock.cluster_blocks);
        let length = superblock.blocks_per_group as usize / ratio as usize / 8;
        let place = group.block_bitmap;
        let Some(bitmap) = self.bitmap(place, length, group.block_bitmap_checksum)? else {
            return Ok(());
        };
        let start = superblock.first_block_of(number);
        let clusters = u64::from(superblock.blocks_of(number)).div_ceil(ratio);
        let (mut leaked, mut unmarked, mut free) = (Vec::new(), Vec::new(), 0);
        for cluster in 0..clusters {
            let marked = bitmap[(cluster / 8) as usize] >> (cluster % 8) & 1 == 1;
            let first = start + cluster * ratio;
            let owned = (first..first + ratio).any(|block| self.owned.has(block));
            free += u32::from(!marked);
            match (marked, owned) {
                (true, false) => leaked.push(first),
                (false, true) => unmarked.push(first),
                _ => {}
            }
        }
        for (found, what) in
            [(leaked, "marked used and has no owner"), (unmarked, "marked free and is in use")]
        {
            if let Some(first) = found.first() {
                let more = found.len() - 1;
                let what = format!("block {first} is {what}, with {more} more in group {number}");
                self.tell(Fault::new(what).block(place));
            }
        }
        if free != group.free_blocks {
            let what =
                format!("group {number} counts {} free blocks and has {free}", group.free_blocks);
            self.tell(Fault::new(what).block(place));
        }
        Ok(())
    }

    fn inode_bitmap(&mut self, number: u32, group: &Group) -> Result<()> {
        if group.no_inodes {
            return Ok(());
        }
        let superblock = self.image.superblock();
        let per_group = superblock.inodes_per_group;
        let place = group.inode_bitmap;
        let bitmap = self.bitmap(place, per_group as usize / 8, group.inode_bitmap_checksum)?;
        let Some(bitmap) = bitmap else { return Ok(()) };
        let (mut free, mut directories) = (0, 0);
        for at in 0..per_group {
            let marked = bitmap[(at / 8) as usize] >> (at % 8) & 1 == 1;
            free += u32::from(!marked);
            let inode = u64::from(number) * u64::from(per_group) + u64::from(at) + 1;
            let used = self.used.has(inode);
            directories += u32::from(self.directories.has(inode));
            let own = inode < u64::from(superblock.first_inode());
            if marked != used && !own {
                let what =
                    if marked { "marked used and is not" } else { "marked free and is in use" };
                self.tell(Fault::new(format!("it is {what}")).block(place).inode(inode as u32));
            }
        }
        if directories != group.directories {
            let counted = group.directories;
            let what = format!("group {number} counts {counted} directories and has {directories}");
            self.tell(Fault::new(what).block(place));
        }
        if free != group.free_inodes {
            let what =
                format!("group {number} counts {} free inodes and has {free}", group.free_inodes);
            self.tell(Fault::new(what).block(place));
        }
        Ok(())
    }
}
