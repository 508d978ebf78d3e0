//! Simulated disks: how long a request takes.
//!
//! # Boundary
//! One request at a time for each of a disk's ways; [`super::driver`] chooses the order. Time is a number that the simulation passes.
//!
//! # Why
//! The first disk is an HP 97560 with the figures of Ruemmler and Wilkes (1994), a disk of the paper's time. The other two are assumed.
//! Weakness: a disk that takes one request at a time cannot choose among those that wait inside it, so there is no command queueing.

use std::collections::BTreeSet;

pub(super) const MS: u64 = 1_000_000;
const US: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    Write,
    Flush,
}

/// Arms over platters that turn.
#[derive(Debug, Clone)]
struct Mechanism {
    blocks_per_cylinder: u64,
    blocks_per_turn: u64,
    turn_ns: u64,
    /// Milliseconds of a seek: `a + b * sqrt(d)` below a number of cylinders, `c + d` times the cylinders beyond.
    near: (f64, f64),
    far_from: u64,
    far: (f64, f64),
    cylinder: u64,
}

impl Mechanism {
    /// The end of a request that begins at `now`.
    fn serve(&mut self, now: u64, first: u64, blocks: u64) -> u64 {
        let to = first / self.blocks_per_cylinder;
        let distance = to.abs_diff(self.cylinder);
        let seek_ms = match distance {
            0 => 0.0,
            _ if distance < self.far_from => self.near.0 + self.near.1 * (distance as f64).sqrt(),
            _ => self.far.0 + self.far.1 * distance as f64,
        };
        self.cylinder = (first + blocks - 1) / self.blocks_per_cylinder;
        let there = now + (seek_ms * MS as f64) as u64;
        let block_ns = self.turn_ns / self.blocks_per_turn;
        let angle = first % self.blocks_per_turn * block_ns;
        let wait = (angle + self.turn_ns - there % self.turn_ns) % self.turn_ns;
        there + wait + blocks * block_ns
    }
}

/// A write cache that loses its contents with the power.
#[derive(Debug, Clone, Default)]
struct WriteCache {
    blocks_max: usize,
    bus_ns: u64,
    block_ns: u64,
    blocks: BTreeSet<u64>,
    /// The mechanism is busy until then.
    busy_until: u64,
}

#[derive(Debug, Clone)]
enum Parts {
    Turning(Mechanism),
    Flash { unflushed: u64 },
    Cached(Mechanism, WriteCache),
}

/// A disk.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) name: &'static str,
    /// Blocks of 4 KiB.
    pub(super) blocks: u64,
    /// Requests that it serves at a time.
    pub(super) ways: usize,
    parts: Parts,
}

impl Disk {
    pub(super) fn of_1992() -> Self {
        let mechanism = Mechanism {
            blocks_per_cylinder: 19 * 9,
            blocks_per_turn: 9,
            turn_ns: 14_992 * US,
            near: (3.24, 0.400),
            far_from: 383,
            far: (8.0, 0.008),
            cylinder: 0,
        };
        Self { name: "1992", blocks: 1962 * 19 * 9, ways: 1, parts: Parts::Turning(mechanism) }
    }

    pub(super) fn flash() -> Self {
        Self { name: "ssd", blocks: 64 << 18, ways: 8, parts: Parts::Flash { unflushed: 0 } }
    }

    pub(super) fn with_cache() -> Self {
        let mechanism = Mechanism {
            blocks_per_cylinder: 512,
            blocks_per_turn: 128,
            turn_ns: 8_333 * US,
            near: (0.8, 0.055),
            far_from: 10_000,
            far: (5.2, 0.000_11),
            cylinder: 0,
        };
        let cache = WriteCache {
            blocks_max: 2048,
            bus_ns: 50 * US,
            block_ns: 27 * US,
            ..WriteCache::default()
        };
        let parts = Parts::Cached(mechanism, cache);
        Self { name: "cached", blocks: 40_000 * 512, ways: 1, parts }
    }

    /// Whether a request that ended may still be lost with the power, so that a flush is wanted.
    pub(super) fn is_volatile(&self) -> bool {
        !matches!(self.parts, Parts::Turning(_))
    }

    /// The end of a request that begins at `now`.
    pub(super) fn serve(&mut self, now: u64, kind: Kind, first: u64, blocks: u64) -> u64 {
        match &mut self.parts {
            Parts::Turning(_) if kind == Kind::Flush => now,
            Parts::Turning(mechanism) => mechanism.serve(now, first, blocks),
            Parts::Flash { unflushed } => match kind {
                Kind::Read => now + 80 * US + blocks * 8 * US,
                Kind::Write => {
                    *unflushed += blocks;
                    now + 20 * US + blocks * 16 * US
                }
                // The map, and what its own memory still had.
                Kind::Flush => now + 400 * US + std::mem::take(unflushed).min(1024) * 4 * US,
            },
            Parts::Cached(mechanism, cache) => {
                cache.write_until(mechanism, |cache| cache.busy_until < now);
                match kind {
                    Kind::Read if (first..first + blocks).all(|at| cache.blocks.contains(&at)) => {
                        now + cache.bus_ns + blocks * cache.block_ns
                    }
                    Kind::Read => {
                        cache.busy_until =
                            mechanism.serve(cache.busy_until.max(now), first, blocks);
                        cache.busy_until
                    }
                    Kind::Write => {
                        if cache.blocks.is_empty() {
                            cache.busy_until = cache.busy_until.max(now);
                        }
                        let room = cache.blocks_max - blocks as usize;
                        let is_full = cache.blocks.len() > room;
                        cache.write_until(mechanism, |cache| cache.blocks.len() > room);
                        cache.blocks.extend(first..first + blocks);
                        let begin = if is_full { cache.busy_until } else { now };
                        begin + cache.bus_ns + blocks * cache.block_ns
                    }
                    Kind::Flush => {
                        cache.write_until(mechanism, |_| true);
                        cache.busy_until.max(now)
                    }
                }
            }
        }
    }
}

impl WriteCache {
    /// The mechanism writes neighbours, upwards, while `more` says so and there are any.
    fn write_until(&mut self, mechanism: &mut Mechanism, more: impl Fn(&Self) -> bool) {
        while !self.blocks.is_empty() && more(self) {
            let from = mechanism.cylinder * mechanism.blocks_per_cylinder;
            let next = self.blocks.range(from..).next().or_else(|| self.blocks.first());
            let first = *next.expect("it is not empty");
            let run = (first..first + 128).take_while(|at| self.blocks.contains(at)).count() as u64;
            for block in first..first + run {
                self.blocks.remove(&block);
            }
            self.busy_until = mechanism.serve(self.busy_until, first, run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turning_disk_seeks_and_waits_for_its_platter() {
        let mut disk = Disk::of_1992();
        let block_ns = 14_992 * US / 9;
        assert_eq!(disk.serve(0, Kind::Write, 0, 1), block_ns, "it is there");
        assert_eq!(disk.serve(block_ns, Kind::Write, 1, 1), 2 * block_ns, "and at the next block");
        let again = disk.serve(2 * block_ns, Kind::Read, 1, 1) - 2 * block_ns;
        assert_eq!(again / block_ns, 9, "a whole turn back to the same block");
        assert!(disk.serve(0, Kind::Read, 300_000, 1) > 20 * MS);
        assert_eq!((disk.serve(5, Kind::Flush, 0, 0), disk.is_volatile()), (5, false));
    }

    #[test]
    fn a_cache_takes_writes_at_once_and_a_flush_pays() {
        let mut disk = Disk::with_cache();
        let mut now = 0;
        for at in 0..100 {
            now = disk.serve(now, Kind::Write, at * 100_000, 1);
        }
        assert!(now < 10 * MS, "{now}");
        assert!(disk.serve(now, Kind::Flush, 0, 0) - now > 150 * MS, "a hundred seeks");
        let mut idle = Disk::with_cache();
        idle.serve(0, Kind::Write, 100_000, 1);
        assert!(idle.serve(50 * MS, Kind::Flush, 0, 0) <= 50 * MS, "it wrote while it was idle");
    }

    #[test]
    fn flash_flushes_longer_after_writes() {
        let mut disk = Disk::flash();
        let alone = disk.serve(0, Kind::Flush, 0, 0);
        disk.serve(0, Kind::Write, 0, 512);
        assert!(disk.serve(0, Kind::Flush, 0, 0) > 3 * alone);
    }
}
