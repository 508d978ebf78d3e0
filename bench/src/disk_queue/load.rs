//! The processes: what they do, and how much of it a machine has.
//!
//! # Boundary
//! Numbers that a seed repeats. [`super::simulation`] carries the operations out.
//!
//! # Why
//! Each process computes and then does one operation, in a closed loop, as users of one machine: cold reads, writes that return at once,
//! changes of metadata (an inode and a directory), and some `fsync`. How long a process computes was chosen for each disk, so that the
//! flood is bound by the disk and delayed metadata by the processors, as the paper found its machine. Weakness: no file is removed
//! soon, so no policy gains by writing late for that reason.

use super::disk::{Disk, MS};
use crate::client::Random;
use std::collections::VecDeque;

/// Cylinder groups: each has its inodes, its directories and its files.
const GROUPS: u64 = 64;
/// Blocks at the beginning of a group that are no files.
const DATA_FROM: u64 = 2048;
/// Where a group has its inodes and directories.
const INODE_BLOCKS: u64 = 4;
const NAME_BLOCKS: u64 = 8;
/// Where the group in the middle has the journal.
const LOG_FROM: u64 = 64;

/// A machine, and how long it is watched.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) disk: Disk,
    pub(super) processors: usize,
    pub(super) processes: usize,
    /// A process computes for this long on average.
    pub(super) compute_ns: u64,
    /// Dirty blocks are given to be written this often.
    pub(super) flush_every_ns: u64,
    pub(super) commit_every_ns: u64,
    /// Blocks that may be dirty or on their way.
    pub(super) memory_blocks: u64,
    /// Size of the log that mke2fs chooses for a disk of this size.
    pub(super) log_blocks: u64,
    pub(super) warm_ns: u64,
    pub(super) run_ns: u64,
    pub(super) sample_ns: u64,
}

impl Machine {
    /// The three machines. `shorter` divides the time.
    pub(super) fn all(shorter: u64) -> [Self; 3] {
        let of_1992 = Self {
            disk: Disk::of_1992(),
            processors: 2,
            processes: 16,
            compute_ns: 30 * MS,
            flush_every_ns: 30_000 * MS,
            commit_every_ns: 5_000 * MS,
            memory_blocks: 8192,
            log_blocks: 8192,
            warm_ns: 60_000 * MS / shorter,
            run_ns: 600_000 * MS / shorter,
            sample_ns: 2_000 * MS,
        };
        let cached = Self {
            disk: Disk::with_cache(),
            compute_ns: 12 * MS,
            memory_blocks: 32_768,
            log_blocks: 131_072,
            ..of_1992.clone()
        };
        let ssd = Self {
            disk: Disk::flash(),
            processes: 32,
            compute_ns: 20_000,
            flush_every_ns: 1_000 * MS,
            memory_blocks: 65_536,
            warm_ns: 2_000 * MS / shorter,
            run_ns: 20_000 * MS / shorter,
            sample_ns: 50 * MS,
            ..cached.clone()
        };
        [of_1992, ssd, cached]
    }

    fn group_blocks(&self) -> u64 {
        self.disk.blocks / GROUPS
    }

    /// The first block of the journal.
    pub(super) fn log_first(&self) -> u64 {
        GROUPS / 2 * self.group_blocks() + LOG_FROM
    }
}

/// An operation of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// Blocks that no memory has.
    Read {
        first: u64,
        blocks: u64,
    },
    Write {
        first: u64,
        blocks: u64,
    },
    /// A change of an inode and of a directory.
    Metadata {
        inode: u64,
        names: u64,
    },
    /// All that the process wrote.
    Fsync,
}

/// A process's choice of operations.
#[derive(Debug)]
pub(super) struct Choice {
    random: Random,
    home: u64,
    recent: VecDeque<(u64, u64)>,
}

/// Writes that a process may repeat.
const RECENT: usize = 16;

impl Choice {
    pub(super) fn new(seed: u64, process: usize) -> Self {
        let random = Random(seed.wrapping_mul(1000) + process as u64);
        Self { random, home: process as u64 * 7 % GROUPS, recent: VecDeque::new() }
    }

    fn below(&mut self, end: u64) -> u64 {
        ((self.random.next() >> 32) * end) >> 32
    }

    /// How long it computes.
    pub(super) fn compute_ns(&mut self, machine: &Machine) -> u64 {
        1 + self.below(2 * machine.compute_ns)
    }

    /// The program's next operation; `next_free` has the next unused block of each group, from its beginning.
    pub(super) fn next(&mut self, machine: &Machine, next_free: &mut [u64]) -> Operation {
        let group = if self.below(4) < 3 { self.home } else { self.below(GROUPS) };
        let (begin, size) = (group * machine.group_blocks(), machine.group_blocks());
        match self.below(100) {
            0..30 => {
                let blocks = 1 + self.below(4);
                let first = begin + DATA_FROM + self.below(size - DATA_FROM - blocks);
                Operation::Read { first, blocks }
            }
            30..50 if !self.recent.is_empty() => {
                let at = self.below(self.recent.len() as u64) as usize;
                let (first, blocks) = self.recent[at];
                Operation::Write { first, blocks }
            }
            30..70 => {
                let blocks = 1 + self.below(8);
                let free = &mut next_free[group as usize];
                if *free < DATA_FROM || *free + blocks > size {
                    *free = DATA_FROM;
                }
                let first = begin + *free;
                *free += blocks;
                self.recent.push_back((first, blocks));
                if self.recent.len() > RECENT {
                    self.recent.pop_front();
                }
                Operation::Write { first, blocks }
            }
            70..98 => Operation::Metadata {
                inode: begin + self.below(INODE_BLOCKS),
                names: begin + INODE_BLOCKS + self.below(NAME_BLOCKS),
            },
            _ => Operation::Fsync,
        }
    }
}

/// Next unused blocks, for [`Choice::next`].
pub(super) fn next_free() -> Vec<u64> {
    vec![0; GROUPS as usize]
}
