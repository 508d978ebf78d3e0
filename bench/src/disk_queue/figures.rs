//! What a simulation shows: utilisation and queue length over time, as the paper measured them, and latencies.
//!
//! # Boundary
//! Sums and percentiles; [`super::plot`] draws them.

use super::load::{Machine, Operation};

/// A part of the time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sample {
    ns: u64,
    processor_ns: u64,
    disk_ns: u64,
    queue_ns: u64,
    dirty_ns: u64,
    /// Requests that the driver and the disk had at most.
    pub(super) queue_max: u64,
}

impl Sample {
    /// `ns` more, in which so many processors and ways of the disk were busy.
    pub(super) fn add(&mut self, ns: u64, busy: usize, under_way: usize, queue: usize, dirty: u64) {
        self.ns += ns;
        self.processor_ns += ns * busy as u64;
        self.disk_ns += ns * under_way as u64;
        self.queue_ns += ns * queue as u64;
        self.dirty_ns += ns * dirty;
        self.queue_max = self.queue_max.max(queue as u64);
    }

    fn mean(&self, sum_ns: u64) -> f64 {
        sum_ns as f64 / self.ns.max(1) as f64
    }

    /// Percent of the processors.
    pub(super) fn processors(&self, machine: &Machine) -> f64 {
        100.0 * self.mean(self.processor_ns) / machine.processors as f64
    }

    /// Percent of the disk's ways.
    pub(super) fn disk(&self, machine: &Machine) -> f64 {
        100.0 * self.mean(self.disk_ns) / machine.disk.ways as f64
    }

    /// Mean length of the queue.
    pub(super) fn queue(&self) -> f64 {
        self.mean(self.queue_ns)
    }

    /// Mean number of blocks that are newer in memory.
    pub(super) fn dirty(&self) -> f64 {
        self.mean(self.dirty_ns)
    }
}

/// Kinds of operations, by how they wait.
pub(super) const CLASSES: [&str; 4] = ["read", "metadata", "fsync", "write"];

/// One simulation's.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) samples: Vec<Sample>,
    /// Nanoseconds of each operation, by class; in order at the end.
    pub(super) latencies: [Vec<u64>; CLASSES.len()],
    /// Queued blocks that waiting processes wrote themselves.
    pub(super) taken: u64,
    /// All samples behind the first ones.
    pub(super) whole: Sample,
}

impl Figures {
    pub(super) fn operation(&mut self, operation: Operation, ns: u64) {
        let class = match operation {
            Operation::Read { .. } => 0,
            Operation::Metadata { .. } => 1,
            Operation::Fsync => 2,
            Operation::Write { .. } => 3,
        };
        self.latencies[class].push(ns);
    }

    pub(super) fn end(&mut self, machine: &Machine) {
        for latencies in &mut self.latencies {
            latencies.sort_unstable();
        }
        for sample in &self.samples[self.first(machine)..] {
            let whole = &mut self.whole;
            whole.ns += sample.ns;
            whole.processor_ns += sample.processor_ns;
            whole.disk_ns += sample.disk_ns;
            whole.queue_ns += sample.queue_ns;
            whole.dirty_ns += sample.dirty_ns;
            whole.queue_max = whole.queue_max.max(sample.queue_max);
        }
    }

    /// The first sample that counts.
    pub(super) fn first(&self, machine: &Machine) -> usize {
        ((machine.warm_ns / machine.sample_ns) as usize).min(self.samples.len())
    }

    /// Operations a second.
    pub(super) fn rate(&self, machine: &Machine) -> f64 {
        let number: usize = self.latencies.iter().map(Vec::len).sum();
        number as f64 * 1e9 / (machine.run_ns - machine.warm_ns) as f64
    }

    /// Milliseconds that `percent` of a class's operations do not exceed.
    pub(super) fn percentile_ms(&self, class: usize, percent: usize) -> f64 {
        let latencies = &self.latencies[class];
        let at = (latencies.len() * percent).div_ceil(100).max(1) - 1;
        latencies.get(at).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_rates_leave_the_beginning_out() {
        let machine = &Machine::all(1)[0];
        let mut figures = Figures::default();
        for ms in 1..=200 {
            figures.operation(Operation::Fsync, ms * 1_000_000);
        }
        let mut idle = Sample::default();
        idle.add(machine.sample_ns, 0, 0, 900, 0);
        let mut busy = Sample::default();
        busy.add(machine.sample_ns, 1, 1, 3, 8);
        figures.samples = vec![idle; (machine.warm_ns / machine.sample_ns) as usize];
        figures.samples.push(busy);
        figures.end(machine);
        assert_eq!(
            [50, 99, 100].map(|percent| figures.percentile_ms(2, percent)),
            [100.0, 198.0, 200.0]
        );
        assert!(figures.percentile_ms(0, 50).is_nan());
        let whole = figures.whole;
        assert_eq!((whole.processors(machine), whole.disk(machine)), (50.0, 100.0));
        assert_eq!((whole.queue(), whole.queue_max, whole.dirty()), (3.0, 3, 8.0));
    }
}
