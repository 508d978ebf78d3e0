//! Misses and heat, by address while the memory lives, by object when it is gone.
//!
//! # Boundary
//! Counts. Which object an address is in, [`crate::objects`] knows.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A miss must not cost a search for its object: it is counted by address, and only when memory is freed,
//! or at the end, are the counts of its lines given to the object. So each keeps the object it had.
//! Weakness: an access to freed memory is counted for whatever is there next.

use crate::state::Table;
use uvfs_coherence::Miss;
use uvfs_coherence::histogram::Latencies;
use uvfs_coherence::profile::Class;

const WRITERS: usize = 4;
const CACHED: usize = 1 << 12;

/// Misses of one site at one address, answered in one way.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// While it is live the address, then the offset in its object.
    pub(crate) place: u64,
    pub(crate) site: u32,
    pub(crate) class: Class,
    pub(crate) count: u64,
    pub(crate) false_shared: u64,
    /// Both in ticks.
    pub(crate) service: u64,
    pub(crate) queue: u64,
    pub(crate) cores: Vec<u64>,
    pub(crate) writers: Vec<(u32, u64)>,
}

/// Accesses to one place of a contended line.
#[derive(Debug, Clone)]
pub(crate) struct Heat {
    pub(crate) place: u64,
    pub(crate) bytes: u32,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) updates: u64,
    pub(crate) cores: Vec<u64>,
}

/// The counts at the addresses of one line.
#[derive(Debug, Default)]
struct Line {
    samples: Vec<u32>,
    heat: Vec<u32>,
}

/// The counts of freed memory, for its object.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) samples: Vec<Sample>,
    pub(crate) heat: Vec<Heat>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.heat.is_empty()
    }
}

/// All counts of live memory.
pub(crate) struct Samples {
    line_shift: u32,
    words: usize,
    by_key: Table<(u64, u64), u32>,
    cache: Vec<((u64, u64), u32)>,
    samples: Vec<Sample>,
    free_samples: Vec<u32>,
    heat_by_key: Table<(u64, u32), u32>,
    heat_cache: Vec<(u64, u32, u32)>,
    heat: Vec<Heat>,
    free_heat: Vec<u32>,
    lines: Table<u64, Line>,
    pub(crate) latencies: Latencies,
    pub(crate) misses: u64,
    pub(crate) transfers: u64,
    pub(crate) remote_transfers: u64,
}

/// Adds a site to a list of the most frequent ones: exact for up to four, then the rarest goes.
pub(crate) fn tally(list: &mut Vec<(u32, u64)>, site: u32, count: u64) {
    if let Some(entry) = list.iter_mut().find(|entry| entry.0 == site) {
        entry.1 += count;
    } else if list.len() < WRITERS {
        list.push((site, count));
    } else if let Some(entry) = list.iter_mut().min_by_key(|entry| entry.1) {
        *entry = (site, entry.1 + count);
    }
}

fn sample_slot((address, site): (u64, u64)) -> usize {
    let hash = (address ^ site.rotate_left(25)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 52) as usize & (CACHED - 1)
}

fn heat_slot(address: u64) -> usize {
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (CACHED - 1)
}

impl Samples {
    pub(crate) fn new(line_bytes: u64, cores: usize) -> Self {
        Self {
            line_shift: line_bytes.trailing_zeros(),
            words: cores.div_ceil(64),
            by_key: Table::default(),
            cache: vec![((0, 0), 0); CACHED],
            samples: Vec::new(),
            free_samples: Vec::new(),
            heat_by_key: Table::default(),
            heat_cache: vec![(0, 0, 0); CACHED],
            heat: Vec::new(),
            free_heat: Vec::new(),
            lines: Table::default(),
            latencies: Latencies::new(),
            misses: 0,
            transfers: 0,
            remote_transfers: 0,
        }
    }

    /// An access missed.
    pub(crate) fn miss(&mut self, address: u64, site: u32, core: usize, miss: &Miss) {
        self.misses += 1;
        self.transfers += u64::from(miss.class.is_transfer());
        self.remote_transfers += u64::from(miss.class == Class::RemoteTransfer);
        self.latencies.record(miss);
        let key = (address, u64::from(site) << 3 | miss.class as u64);
        let slot = sample_slot(key);
        let cached = self.cache[slot];
        let index = if cached.0 == key {
            cached.1
        } else {
            let index = match self.by_key.get(&key) {
                Some(index) => *index,
                None => self.new_sample(key, address, site, miss.class),
            };
            self.cache[slot] = (key, index);
            index
        };
        let sample = &mut self.samples[index as usize];
        sample.count += 1;
        sample.false_shared += u64::from(miss.false_shared);
        sample.service += miss.service;
        sample.queue += miss.queue;
        sample.cores[core / 64] |= 1 << (core % 64);
        if let Some(writer) = miss.writer {
            tally(&mut sample.writers, writer, 1);
        }
    }

    #[cold]
    fn new_sample(&mut self, key: (u64, u64), address: u64, site: u32, class: Class) -> u32 {
        let sample = Sample {
            place: address,
            site,
            class,
            count: 0,
            false_shared: 0,
            service: 0,
            queue: 0,
            cores: vec![0; self.words],
            writers: Vec::new(),
        };
        let index = match self.free_samples.pop() {
            Some(index) => {
                self.samples[index as usize] = sample;
                index
            }
            None => {
                self.samples.push(sample);
                self.samples.len() as u32 - 1
            }
        };
        self.by_key.insert(key, index);
        self.lines.entry(address >> self.line_shift).or_default().samples.push(index);
        index
    }

    /// An access to a contended line; `kind` as in [`crate::access::kind`].
    #[inline]
    pub(crate) fn heat(&mut self, address: u64, kind: u32, core: usize) {
        let bytes = kind >> 8;
        let slot = heat_slot(address);
        let cached = self.heat_cache[slot];
        let index = if cached.0 == address && cached.1 == bytes {
            cached.2
        } else {
            let index = match self.heat_by_key.get(&(address, bytes)) {
                Some(index) => *index,
                None => self.new_heat(address, bytes),
            };
            self.heat_cache[slot] = (address, bytes, index);
            index
        };
        let heat = &mut self.heat[index as usize];
        match kind & 7 {
            0 | 2 => heat.reads += 1,
            1 | 3 => heat.writes += 1,
            _ => heat.updates += 1,
        }
        heat.cores[core / 64] |= 1 << (core % 64);
    }

    #[cold]
    fn new_heat(&mut self, address: u64, bytes: u32) -> u32 {
        let cores = vec![0; self.words];
        let heat = Heat { place: address, bytes, reads: 0, writes: 0, updates: 0, cores };
        let index = match self.free_heat.pop() {
            Some(index) => {
                self.heat[index as usize] = heat;
                index
            }
            None => {
                self.heat.push(heat);
                self.heat.len() as u32 - 1
            }
        };
        self.heat_by_key.insert((address, bytes), index);
        self.lines.entry(address >> self.line_shift).or_default().heat.push(index);
        index
    }

    /// Takes out the counts in `[start, start + bytes)`, with offsets from `start`.
    pub(crate) fn take(&mut self, start: u64, bytes: u64) -> Taken {
        let mut taken = Taken::default();
        if self.lines.is_empty() || bytes == 0 {
            return taken;
        }
        let first = start >> self.line_shift;
        let last = (start + bytes - 1) >> self.line_shift;
        if last - first < self.lines.len() as u64 {
            for line in first..=last {
                self.take_line(line, start, bytes, &mut taken);
            }
        } else {
            let mut lines: Vec<u64> =
                self.lines.keys().copied().filter(|line| (first..=last).contains(line)).collect();
            lines.sort_unstable();
            for line in lines {
                self.take_line(line, start, bytes, &mut taken);
            }
        }
        taken
    }

    fn take_line(&mut self, number: u64, start: u64, bytes: u64, taken: &mut Taken) {
        let Some(line) = self.lines.get_mut(&number) else { return };
        let inside = |place: u64| (start..start + bytes).contains(&place);
        let (samples, heats) = (&mut self.samples, &mut self.heat);
        let (free_samples, free_heat) = (&mut self.free_samples, &mut self.free_heat);
        let sample_cache = &mut self.cache;
        let (by_key, heat_by_key) = (&mut self.by_key, &mut self.heat_by_key);
        line.samples.retain(|index| {
            let sample = &mut samples[*index as usize];
            if !inside(sample.place) {
                return true;
            }
            let key = (sample.place, u64::from(sample.site) << 3 | sample.class as u64);
            by_key.remove(&key);
            sample_cache[sample_slot(key)] = ((0, 0), 0);
            let mut moved = sample.clone();
            moved.place -= start;
            taken.samples.push(moved);
            free_samples.push(*index);
            false
        });
        let cache = &mut self.heat_cache;
        line.heat.retain(|index| {
            let heat = &mut heats[*index as usize];
            if !inside(heat.place) {
                return true;
            }
            heat_by_key.remove(&(heat.place, heat.bytes));
            cache[heat_slot(heat.place)] = (0, 0, 0);
            let mut moved = heat.clone();
            moved.place -= start;
            taken.heat.push(moved);
            free_heat.push(*index);
            false
        });
        if line.samples.is_empty() && line.heat.is_empty() {
            self.lines.remove(&number);
        }
    }

    /// Addresses at which something was counted, in order.
    pub(crate) fn places(&self) -> Vec<u64> {
        let mut places = Vec::new();
        for line in self.lines.values() {
            places.extend(line.samples.iter().map(|index| self.samples[*index as usize].place));
            places.extend(line.heat.iter().map(|index| self.heat[*index as usize].place));
        }
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(class: Class) -> Miss {
        Miss { class, queue: 3, service: 20, false_shared: true, writer: Some(9) }
    }

    #[test]
    fn counts_go_with_the_memory_they_were_counted_in() {
        let mut samples = Samples::new(64, 128);
        for (address, core) in [(1000, 0), (1000, 70), (1016, 1), (1100, 2)] {
            samples.miss(address, 5, core, &missed(Class::RemoteTransfer));
            samples.heat(address, 8 << 8, core);
        }
        let taken = samples.take(1000, 24);
        assert_eq!(taken.samples.len(), 2);
        assert_eq!((taken.samples[0].place, taken.samples[0].count), (0, 2));
        assert_eq!(taken.samples[0].cores, [1, 1 << 6]);
        assert_eq!(taken.samples[0].writers, [(9, 2)]);
        assert_eq!((taken.heat[1].place, taken.heat[1].reads), (16, 1));
        assert!(samples.take(1000, 24).is_empty(), "taken once");
        assert_eq!(samples.places(), [1100]);
        // The same address again, after the memory was freed, counts from nothing.
        samples.miss(1000, 5, 0, &missed(Class::RemoteTransfer));
        samples.heat(1000, 8 << 8, 0);
        let again = samples.take(0, 1 << 30);
        assert_eq!(again.samples.iter().map(|sample| sample.count).sum::<u64>(), 2);
        assert_eq!(again.heat.len(), 2);
        assert_eq!((samples.misses, samples.remote_transfers), (5, 5));
    }

    #[test]
    fn the_most_frequent_writers_stay() {
        let mut list = Vec::new();
        for round in 0..100 {
            tally(&mut list, 1, 1);
            tally(&mut list, 2, 1);
            tally(&mut list, 10 + round, 1);
        }
        let mut sites: Vec<u32> = list.iter().map(|entry| entry.0).collect();
        sites.sort_unstable();
        assert_eq!(sites[..2], [1, 2]);
        assert_eq!(list.len(), WRITERS);
    }
}
