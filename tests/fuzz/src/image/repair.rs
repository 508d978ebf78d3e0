//! Corrects the checksums of an image after its bytes were changed, so that the change reaches the code behind them.
//!
//! # Boundary
//! Knows the format by its offsets, and uses [`uvfs_ext`] only to find the files of the unchanged image: so the two
//! must agree on each checksum.
//!
//! # Why
//! A harmful image has right checksums. Weakness: the owner of each block is taken from the image before the changes;
//! the target of a changed pointer keeps the checksum that it has there.

use super::BLOCK;
use std::sync::Arc;
use uvfs_ext::{Image, Kind, MemoryDevice, Place};

/// Bytes of an inode, of the superblock, of the only group's descriptor, which begins a block.
const INODE: usize = 256;
const SUPER: usize = 1024;
const GROUP: usize = 2 * BLOCK;
const GROUP_BYTES: usize = 64;
const DESCRIPTOR_SUM: usize = 30;

/// Where the checksums of an image are.
#[derive(Debug)]
pub(crate) struct Sums {
    inodes: u32,
    inode_table: usize,
    /// Bitmaps: of blocks and of inodes, each with its bytes that count.
    bitmaps: [(usize, usize); 2],
    /// Blocks of inodes, with the owner's number.
    blocks: Vec<(u32, usize, Kept)>,
}

/// The kind of a block's contents.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// Entries of a directory.
    Leaf,
    /// The root of a directory's index.
    Index,
    /// A node of extents.
    Extents,
    /// Extended attributes.
    Attributes,
}

impl Sums {
    /// The checksums of `base`, unchanged.
    pub(crate) fn of(base: &[u8]) -> Self {
        let image = Image::open(Arc::new(MemoryDevice::new(base.to_vec()))).expect("the base");
        let block = |at| long(base, GROUP + at) as usize * BLOCK;
        let inodes = long(base, SUPER);
        let clusters = long(base, SUPER + 0x20) as usize / 8;
        let mut sums = Self {
            inodes,
            inode_table: block(8),
            bitmaps: [(block(0), clusters), (block(4), inodes as usize / 8)],
            blocks: Vec::new(),
        };
        for number in 1..=inodes {
            let Ok(inode) = image.inode(number) else { continue };
            let raw = &base[sums.inode_at(number)..][..INODE];
            let (flags, attributes) = (long(raw, 0x20), long(raw, 0x68) as usize);
            let mut add = |block: usize, kept| sums.blocks.push((number, block * BLOCK, kept));
            if attributes != 0 {
                add(attributes, Kept::Attributes);
            }
            // The image has one level of nodes below the inode.
            if flags & 0x8_0000 != 0 && raw[0x28 + 6] == 1 {
                let nodes = usize::from(raw[0x28 + 2]);
                (0..nodes).for_each(|at| {
                    add(long(raw, 0x28 + 12 + at * 12 + 4) as usize, Kept::Extents);
                });
            }
            if inode.kind() != Some(Kind::Directory) || inode.is_inline() {
                continue;
            }
            for run in image.map(&inode, 0..inode.size() / BLOCK as u64).expect("the base") {
                let Place::At(start) = run.place else { continue };
                for at in 0..run.length {
                    let first = flags & 0x1000 != 0 && run.logical + at == 0;
                    let kept = if first { Kept::Index } else { Kept::Leaf };
                    add((start + at) as usize, kept);
                }
            }
        }
        sums
    }

    fn inode_at(&self, number: u32) -> usize {
        self.inode_table + (number as usize - 1) * INODE
    }

    /// Writes all checksums.
    pub(crate) fn repair(&self, image: &mut [u8]) {
        let whole = crc32c(!0, &image[SUPER + 0x68..SUPER + 0x78]);
        for number in 1..=self.inodes {
            let at = self.inode_at(number);
            let raw = &mut image[at..at + INODE];
            if raw.iter().all(|byte| *byte == 0) {
                continue;
            }
            let high = u16::from_le_bytes([raw[0x80], raw[0x81]]) >= 4;
            raw[0x7C..0x7E].fill(0);
            if high {
                raw[0x82..0x84].fill(0);
            }
            let sum = crc32c(seed(whole, number, raw), raw).to_le_bytes();
            raw[0x7C..0x7E].copy_from_slice(&sum[..2]);
            if high {
                raw[0x82..0x84].copy_from_slice(&sum[2..]);
            }
        }
        for (number, at, kept) in &self.blocks {
            let owner = seed(whole, *number, &image[self.inode_at(*number)..][..INODE]);
            let block = &mut image[*at..at + BLOCK];
            let (place, sum) = match kept {
                Kept::Leaf => (BLOCK - 4, crc32c(owner, &block[..BLOCK - 12])),
                Kept::Extents => {
                    // Behind the entries that there is room for.
                    let tail = 12 + 12 * usize::from(u16::from_le_bytes([block[4], block[5]]));
                    if tail + 4 > BLOCK {
                        continue;
                    }
                    (tail, crc32c(owner, &block[..tail]))
                }
                Kept::Index => {
                    let word = |at| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
                    let (tail, used) = (32 + 8 * word(32), 32 + 8 * word(34));
                    if tail + 8 > BLOCK || used > tail {
                        continue;
                    }
                    let sum = crc32c(owner, &block[..used]);
                    (tail + 4, crc32c(crc32c(sum, &block[tail..tail + 4]), &[0; 4]))
                }
                Kept::Attributes => {
                    block[16..20].fill(0);
                    let sum = crc32c(whole, &(*at as u64 / BLOCK as u64).to_le_bytes());
                    (16, crc32c(sum, block))
                }
            };
            block[place..place + 4].copy_from_slice(&sum.to_le_bytes());
        }
        for (low, (at, bytes)) in [0x18, 0x1A].into_iter().zip(self.bitmaps) {
            let sum = crc32c(whole, &image[at..at + bytes]).to_le_bytes();
            image[GROUP + low..GROUP + low + 2].copy_from_slice(&sum[..2]);
            let high = GROUP + low + 0x20;
            image[high..high + 2].copy_from_slice(&sum[2..]);
        }
        let descriptor = &mut image[GROUP..GROUP + GROUP_BYTES];
        descriptor[DESCRIPTOR_SUM..DESCRIPTOR_SUM + 2].fill(0);
        let sum = crc32c(crc32c(whole, &[0; 4]), descriptor).to_le_bytes();
        descriptor[DESCRIPTOR_SUM..DESCRIPTOR_SUM + 2].copy_from_slice(&sum[..2]);
        let sum = crc32c(!0, &image[SUPER..SUPER + 0x3FC]);
        image[SUPER + 0x3FC..SUPER + 0x400].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The start value of the checksums of an inode and of its blocks.
fn seed(whole: u32, number: u32, raw: &[u8]) -> u32 {
    crc32c(crc32c(whole, &number.to_le_bytes()), &raw[0x64..0x68])
}

/// Continues `seed` over `bytes`; neither start nor end is inverted.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
