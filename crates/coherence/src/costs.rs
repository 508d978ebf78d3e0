//! A machine's parameters as the model charges them: whole ticks, looked up by node.
//!
//! # Boundary
//! From [`Machine`] to tables; decides nothing.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Whole numbers add up to the same sum on every host; a sixteenth of a cycle is fine enough for
//! accesses that overlap. Weakness: 64 by 64 nodes are two tables of 32 KiB.

use crate::machine::Machine;
use crate::model::{TICKS_PER_CYCLE, Ticks};

/// Cycles in ticks, to the nearest.
pub(crate) fn ticks(cycles: f64) -> Ticks {
    // The machine is validated: no negative number, none that does not fit.
    (cycles * TICKS_PER_CYCLE as f64).round() as Ticks
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) hit: Ticks,
    pub(crate) atomic: Ticks,
    pub(crate) last_level: Ticks,
    pub(crate) shared_read: Ticks,
    pub(crate) memory_busy: Ticks,
    nodes: usize,
    transfer: Vec<Ticks>,
    memory: Vec<Ticks>,
    /// Per node, all nodes from near to far.
    near: Vec<Vec<u8>>,
    /// Jitter of a latency, in 65536ths.
    jitter: u64,
}

impl Costs {
    pub(crate) fn new(machine: &Machine) -> Self {
        let latency = &machine.latency;
        let table = |local, remote| {
            (0..machine.nodes)
                .flat_map(|from| (0..machine.nodes).map(move |to| (from, to)))
                .map(|(from, to)| ticks(machine.scaled(local, remote, from, to)))
                .collect::<Vec<_>>()
        };
        let near = (0..machine.nodes)
            .map(|from| {
                let mut nodes: Vec<u8> = (0..machine.nodes as u8).collect();
                nodes.sort_by_key(|to| (machine.distance(from, usize::from(*to)), *to));
                nodes
            })
            .collect();
        Self {
            hit: ticks(latency.hit.value),
            atomic: ticks(latency.atomic.value),
            last_level: ticks(latency.last_level.value),
            shared_read: ticks(machine.occupancy.shared_read.value),
            memory_busy: ticks(machine.occupancy.memory.value),
            nodes: machine.nodes,
            transfer: table(latency.local_transfer, latency.remote_transfer),
            memory: table(latency.local_memory, latency.remote_memory),
            near,
            jitter: (machine.jitter_percent.value * 65536.0 / 100.0).round() as u64,
        }
    }

    /// From a cache of one node to a core of another, or within one.
    pub(crate) fn transfer(&self, from: usize, to: usize) -> Ticks {
        self.transfer[from * self.nodes + to]
    }

    /// From the memory of a node to a core of another, or within one.
    pub(crate) fn memory(&self, from: usize, to: usize) -> Ticks {
        self.memory[from * self.nodes + to]
    }

    /// All nodes, the node itself first, then by distance.
    pub(crate) fn near(&self, node: usize) -> &[u8] {
        &self.near[node]
    }

    /// The latency, more or less by at most the jitter.
    pub(crate) fn jittered(&self, latency: Ticks, random: u64) -> Ticks {
        if self.jitter == 0 {
            return latency;
        }
        let least = latency - ((latency * self.jitter) >> 16);
        least + ((((latency * 2 * self.jitter) >> 16) * (random >> 32)) >> 32)
    }
}

/// Random numbers of a seed: the same on every host (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}
