//! The costs of a machine: its cores, nodes, caches and latencies, each with the source of the number.
//!
//! # Boundary
//! Data and its text; no behaviour of caches, and no file: `uvfs_contention::machine_file` reads them.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A result of the model is as good as its parameters, so each parameter says whether it was
//! measured on a machine or assumed, and reports repeat it. Weakness: one number per class; a real
//! interconnect has many.

use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The distance at which remote latencies are given, as firmware has it for two sockets.
pub const REMOTE_DISTANCE: u32 = 21;

/// The distance of a node to itself.
pub const LOCAL_DISTANCE: u32 = 10;

/// Where a number is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// `calibrate` measured it on the machine that the file names.
    Measured,
    /// From publications, or chosen.
    Assumed,
    /// Assumed, and multiplied as a number that was measured and that it keeps its ratio to.
    Scaled,
}

/// One number of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In the unit of its field.
    pub value: f64,
    /// Where it is from.
    pub source: Source,
}

impl Parameter {
    /// A number that was not measured here.
    pub const fn assumed(value: f64) -> Self {
        Self { value, source: Source::Assumed }
    }

    /// A number that was measured.
    pub const fn measured(value: f64) -> Self {
        Self { value, source: Source::Measured }
    }

    /// An assumed number that follows a measured one.
    pub const fn scaled(value: f64) -> Self {
        Self { value, source: Source::Scaled }
    }
}

/// A machine. Latencies and costs in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Machine {
    /// The machine's name.
    pub name: String,
    /// Cores, one hardware thread each; 1 to 1024.
    pub cores: usize,
    /// Memory nodes; cores are dealt out in equal blocks. 1 to 64, at most one a core.
    pub nodes: usize,
    /// Bytes of a cache line: 32, 64, 128 or 256.
    pub line_bytes: u64,
    /// Distances as the firmware's table has them: 10 on the diagonal. Empty: 21 between any two nodes.
    pub distances: Vec<Vec<u32>>,
    /// Cycles a microsecond.
    pub megahertz: Parameter,
    /// Percent by which a latency varies, up and down, by the seed.
    pub jitter_percent: Parameter,
    /// Latencies of an access by where it is answered.
    pub latency: Latency,
    /// How long a line is busy with one request.
    pub occupancy: Occupancy,
    /// Private and last-level caches.
    pub cache: Cache,
    /// Costs of everything but memory accesses.
    pub cost: Cost,
    /// How a core executes instructions between accesses.
    pub pipeline: Core,
}

/// A core that executes out of order; latencies in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Core {
    /// Operations that it begins in a cycle.
    pub width: Parameter,
    /// Operations that it has begun and not ended, at most.
    pub window: Parameter,
    /// A load that its first cache answers.
    pub load: Parameter,
    /// Multiplying integers.
    pub multiply: Parameter,
    /// Dividing integers.
    pub divide: Parameter,
    /// Adding and multiplying floating-point numbers.
    pub float: Parameter,
    /// Dividing floating-point numbers.
    pub float_divide: Parameter,
    /// A branch that was guessed wrong, from when it is known.
    pub mispredict: Parameter,
    /// KiB of its first cache. Zero: as large as its own cache.
    pub first_kib: Parameter,
    /// The extra cycles of a load that the core's second cache answers.
    pub second_level: Parameter,
    /// The part of its latency that a line from the last level or from memory takes when nothing waits for it: one
    /// that was fetched ahead, or is stored to.
    pub streamed: Parameter,
}

/// Cycles until an access is answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Latency {
    /// The core's own cache. Well below the load-to-use latency, since hits overlap.
    pub hit: Parameter,
    /// More, for an atomic read-modify-write that hits.
    pub atomic: Parameter,
    /// Another core's cache of the same node.
    pub local_transfer: Parameter,
    /// The node's last-level cache.
    pub last_level: Parameter,
    /// The node's memory.
    pub local_memory: Parameter,
    /// Memory of a node at distance 21; scaled with the distance.
    pub remote_memory: Parameter,
    /// A cache of a node at distance 21; scaled with the distance.
    pub remote_transfer: Parameter,
}

/// Cycles that a line is busy, so that the next request for it waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Occupancy {
    /// A read answered by a copy: the directory's time. A transfer of ownership takes its whole latency.
    /// This one number decides whether ticket locks collapse.
    pub shared_read: Parameter,
    /// A read from memory or the last level.
    pub memory: Parameter,
}

/// Sizes of caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cache {
    /// KiB of a core's own cache. Zero: unlimited, so that nothing is ever evicted.
    pub private_kib: Parameter,
    /// Ways of a core's own cache.
    pub private_ways: Parameter,
    /// KiB of a node's last-level cache for each of its cores. Zero: none.
    pub last_level_kib: Parameter,
    /// Ways of the last-level cache.
    pub last_level_ways: Parameter,
}

/// Cycles of everything but memory accesses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cost {
    /// Instructions between two instrumented accesses.
    pub compute: Parameter,
    /// Calling a function.
    pub call: Parameter,
    /// One turn of a spin loop.
    pub pause: Parameter,
    /// Going to sleep on a futex.
    pub futex_wait: Parameter,
    /// Waking by a futex, for the thread that wakes.
    pub futex_wake: Parameter,
    /// From there until the woken one runs.
    pub wake_latency: Parameter,
    /// `pthread_create`, for the creating thread.
    pub thread_create: Parameter,
    /// From there until the thread runs.
    pub thread_start: Parameter,
    /// `sched_yield`.
    pub yield_now: Parameter,
    /// Reading a clock, which needs no call into the kernel. Never zero: programs wait for it to move.
    pub read_clock: Parameter,
    /// One call of the allocator.
    pub allocate: Parameter,
    /// Any other call into the kernel.
    pub system_call: Parameter,
    /// Switching threads of one core.
    pub context_switch: Parameter,
    /// How long a thread runs before another of the same core does, in cycles.
    pub time_slice: Parameter,
}

/// Calls `$with(name, field, lowest, highest, unit)` for every parameter: the one list that reading,
/// writing, checking and reporting share.
macro_rules! parameters {
    ($machine:expr, $with:expr) => {{
        let (machine, mut with) = ($machine, $with);
        with("megahertz", machine.megahertz, 1.0, 100_000.0, "cycles a microsecond");
        with("jitter_percent", machine.jitter_percent, 0.0, 50.0, "percent");
        with("latency.hit", machine.latency.hit, 0.0, 1000.0, "cycles");
        with("latency.atomic", machine.latency.atomic, 0.0, 1000.0, "cycles");
        with("latency.local_transfer", machine.latency.local_transfer, 1.0, 100_000.0, "cycles");
        with("latency.last_level", machine.latency.last_level, 1.0, 100_000.0, "cycles");
        with("latency.local_memory", machine.latency.local_memory, 1.0, 100_000.0, "cycles");
        with("latency.remote_memory", machine.latency.remote_memory, 1.0, 100_000.0, "cycles");
        with("latency.remote_transfer", machine.latency.remote_transfer, 1.0, 100_000.0, "cycles");
        with("occupancy.shared_read", machine.occupancy.shared_read, 0.0, 100_000.0, "cycles");
        with("occupancy.memory", machine.occupancy.memory, 0.0, 100_000.0, "cycles");
        with(
            "cache.private_kib",
            machine.cache.private_kib,
            0.0,
            65_536.0,
            "KiB, zero for unlimited",
        );
        with("cache.private_ways", machine.cache.private_ways, 1.0, 64.0, "ways");
        with(
            "cache.last_level_kib",
            machine.cache.last_level_kib,
            0.0,
            65_536.0,
            "KiB a core, zero for none",
        );
        with("cache.last_level_ways", machine.cache.last_level_ways, 1.0, 64.0, "ways");
        with("cost.compute", machine.cost.compute, 0.0, 10_000.0, "cycles");
        with("cost.call", machine.cost.call, 0.0, 10_000.0, "cycles");
        with("cost.pause", machine.cost.pause, 1.0, 10_000.0, "cycles");
        with("cost.futex_wait", machine.cost.futex_wait, 0.0, 1e7, "cycles");
        with("cost.futex_wake", machine.cost.futex_wake, 0.0, 1e7, "cycles");
        with("cost.wake_latency", machine.cost.wake_latency, 0.0, 1e8, "cycles");
        with("cost.thread_create", machine.cost.thread_create, 0.0, 1e8, "cycles");
        with("cost.thread_start", machine.cost.thread_start, 0.0, 1e8, "cycles");
        with("cost.yield_now", machine.cost.yield_now, 1.0, 1e7, "cycles");
        with("cost.read_clock", machine.cost.read_clock, 1.0, 1e7, "cycles");
        with("cost.allocate", machine.cost.allocate, 0.0, 1e7, "cycles");
        with("cost.system_call", machine.cost.system_call, 0.0, 1e7, "cycles");
        with("cost.context_switch", machine.cost.context_switch, 0.0, 1e8, "cycles");
        with("cost.time_slice", machine.cost.time_slice, 1000.0, 1e12, "cycles");
        with("pipeline.width", machine.pipeline.width, 1.0, 16.0, "operations a cycle");
        with("pipeline.window", machine.pipeline.window, 1.0, 4096.0, "operations");
        with("pipeline.load", machine.pipeline.load, 1.0, 100.0, "cycles");
        with("pipeline.multiply", machine.pipeline.multiply, 1.0, 100.0, "cycles");
        with("pipeline.divide", machine.pipeline.divide, 1.0, 200.0, "cycles");
        with("pipeline.float", machine.pipeline.float, 1.0, 100.0, "cycles");
        with("pipeline.float_divide", machine.pipeline.float_divide, 1.0, 200.0, "cycles");
        with("pipeline.mispredict", machine.pipeline.mispredict, 0.0, 1000.0, "cycles");
        with(
            "pipeline.first_kib",
            machine.pipeline.first_kib,
            0.0,
            1024.0,
            "KiB, zero for as large as the private cache",
        );
        with("pipeline.second_level", machine.pipeline.second_level, 0.0, 1000.0, "cycles");
        with("pipeline.streamed", machine.pipeline.streamed, 0.0, 1.0, "of its latency");
    }};
}

impl Machine {
    /// The text of its file, in TOML: every parameter on a line of its own with where it is from.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // A string of JSON is one of TOML, but for one letter.
        let name = serde_json::Value::String(self.name.clone()).to_string();
        let _ = writeln!(text, "name = {}", name.replace('\u{7f}', "\\u007f"));
        let _ = writeln!(text, "cores = {}", self.cores);
        let _ = writeln!(text, "nodes = {}", self.nodes);
        let _ = writeln!(text, "line_bytes = {}", self.line_bytes);
        let _ = writeln!(text, "distances = {:?}", self.distances);
        let mut section = String::new();
        parameters!(self, |name: &str, parameter: Parameter, _, _, unit: &str| {
            let (table, key) = name.split_once('.').unwrap_or(("", name));
            if table != section {
                section = table.to_string();
                let _ = writeln!(text, "\n[{table}]");
            }
            let source = match parameter.source {
                Source::Measured => "measured",
                Source::Assumed => "assumed",
                Source::Scaled => "scaled",
            };
            let _ = writeln!(
                text,
                "{key} = {{ value = {:?}, source = \"{source}\" }} # {unit}",
                parameter.value
            );
        });
        text
    }

    /// That the model can be built from it; else the parameter and the range that it must be in.
    pub fn validate(&self) -> Result<(), Error> {
        let range = |name: &str, value: usize, lowest: usize, highest: usize| {
            if (lowest..=highest).contains(&value) {
                return Ok(());
            }
            Err(Error::new(format!(
                "machine: `{name}` is {value}, but must be from {lowest} to {highest}"
            )))
        };
        range("cores", self.cores, 1, CORES_MAX)?;
        range("nodes", self.nodes, 1, NODES_MAX)?;
        if self.nodes > self.cores {
            return Err(Error::new(format!(
                "machine: `nodes` is {}, but must be at most the number of cores, {}",
                self.nodes, self.cores
            )));
        }
        if ![32, 64, 128, 256].contains(&self.line_bytes) {
            return Err(Error::new(format!(
                "machine: `line_bytes` is {}, but must be 32, 64, 128 or 256",
                self.line_bytes
            )));
        }
        if !self.distances.is_empty() {
            self.validate_distances()?;
        }
        let mut result = Ok(());
        parameters!(self, |name: &str,
                           parameter: Parameter,
                           lowest: f64,
                           highest: f64,
                           unit: &str| {
            // A number that is no number is in no range.
            if !(lowest..=highest).contains(&parameter.value) && result.is_ok() {
                result = Err(Error::new(format!(
                    "machine: `{name}` is {}, but must be from {lowest} to {highest} ({unit})",
                    parameter.value
                )));
            }
        });
        result
    }

    fn validate_distances(&self) -> Result<(), Error> {
        if self.distances.len() != self.nodes
            || self.distances.iter().any(|row| row.len() != self.nodes)
        {
            return Err(Error::new(format!(
                "machine: `distances` must have {0} rows of {0} numbers, one for each node, or be empty",
                self.nodes
            )));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                let right = match from == to {
                    true => *distance == LOCAL_DISTANCE,
                    false => (LOCAL_DISTANCE + 1..=254).contains(distance),
                };
                if !right {
                    return Err(Error::new(format!(
                        "machine: `distances[{from}][{to}]` is {distance}, but must be 10 from a node to itself \
                         and from 11 to 254 between two"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Names of the parameters that were not measured, as in the file.
    pub fn assumed(&self) -> Vec<String> {
        let mut names = Vec::new();
        parameters!(self, |name: &str, parameter: Parameter, _, _, _| {
            if parameter.source != Source::Measured {
                names.push(name.to_string());
            }
        });
        names
    }

    /// A number that differs where two machines do; the same on every host (64-bit FNV-1a of the text).
    pub fn hash(&self) -> u64 {
        self.to_text().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Returns the machine with other numbers of cores and nodes. Drops the distances if the number of nodes changes.
    #[must_use]
    pub fn with(mut self, cores: usize, nodes: usize) -> Self {
        if nodes != self.nodes {
            self.distances = Vec::new();
        }
        self.cores = cores;
        self.nodes = nodes;
        self
    }

    /// The node of a core: equal blocks, in order.
    pub fn node_of(&self, core: usize) -> usize {
        core * self.nodes / self.cores
    }

    /// Distance between two nodes, in the units of the firmware's table.
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        match self.distances.get(from).and_then(|row| row.get(to)) {
            Some(distance) => *distance,
            None if from == to => LOCAL_DISTANCE,
            None => REMOTE_DISTANCE,
        }
    }

    /// A latency between two nodes: `local` at distance 10, `remote` at 21, on a line through both.
    pub fn scaled(&self, local: Parameter, remote: Parameter, from: usize, to: usize) -> f64 {
        let steps = f64::from(self.distance(from, to)) - f64::from(LOCAL_DISTANCE);
        let whole = f64::from(REMOTE_DISTANCE - LOCAL_DISTANCE);
        (local.value + (remote.value - local.value) * steps / whole).max(1.0)
    }
}

/// The most cores of a machine.
pub const CORES_MAX: usize = 1024;

/// The most nodes of a machine.
pub const NODES_MAX: usize = 64;

impl Default for Machine {
    fn default() -> Self {
        Self {
            name: "two-socket x86-64 server, assumed".to_string(),
            cores: 8,
            nodes: 1,
            line_bytes: 64,
            distances: Vec::new(),
            megahertz: Parameter::assumed(2600.0),
            jitter_percent: Parameter::assumed(10.0),
            latency: Latency::default(),
            occupancy: Occupancy::default(),
            cache: Cache::default(),
            cost: Cost::default(),
            pipeline: Core::default(),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            hit: Parameter::assumed(0.5),
            atomic: Parameter::assumed(18.0),
            local_transfer: Parameter::assumed(120.0),
            last_level: Parameter::assumed(50.0),
            local_memory: Parameter::assumed(230.0),
            remote_memory: Parameter::assumed(380.0),
            remote_transfer: Parameter::assumed(490.0),
        }
    }
}

impl Default for Occupancy {
    fn default() -> Self {
        Self { shared_read: Parameter::assumed(30.0), memory: Parameter::assumed(10.0) }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            private_kib: Parameter::assumed(1024.0),
            private_ways: Parameter::assumed(16.0),
            last_level_kib: Parameter::assumed(1408.0),
            last_level_ways: Parameter::assumed(11.0),
        }
    }
}

impl Default for Core {
    fn default() -> Self {
        Self {
            width: Parameter::assumed(6.0),
            window: Parameter::assumed(300.0),
            load: Parameter::assumed(4.0),
            multiply: Parameter::assumed(3.0),
            divide: Parameter::assumed(12.0),
            float: Parameter::assumed(3.0),
            float_divide: Parameter::assumed(13.0),
            mispredict: Parameter::assumed(15.0),
            first_kib: Parameter::assumed(32.0),
            second_level: Parameter::assumed(10.0),
            streamed: Parameter::assumed(0.04),
        }
    }
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            compute: Parameter::assumed(1.0),
            call: Parameter::assumed(1.0),
            pause: Parameter::assumed(40.0),
            futex_wait: Parameter::assumed(1500.0),
            futex_wake: Parameter::assumed(800.0),
            wake_latency: Parameter::assumed(4000.0),
            thread_create: Parameter::assumed(2000.0),
            thread_start: Parameter::assumed(5000.0),
            yield_now: Parameter::assumed(600.0),
            read_clock: Parameter::assumed(60.0),
            allocate: Parameter::assumed(60.0),
            system_call: Parameter::assumed(300.0),
            context_switch: Parameter::assumed(3000.0),
            time_slice: Parameter::assumed(2_600_000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut Machine)) -> String {
        let mut machine = Machine::default();
        change(&mut machine);
        machine.validate().expect_err("must be refused").to_string()
    }

    #[test]
    fn every_number_is_in_the_list_of_parameters() {
        // Serde knows all fields; the list must not miss one.
        let text = serde_json::to_string(&Machine::default()).expect("a machine");
        assert_eq!(text.matches("\"value\":").count(), Machine::default().assumed().len());
    }

    #[test]
    fn limits_are_named() {
        assert_eq!(
            error(|machine| machine.cores = 0),
            "machine: `cores` is 0, but must be from 1 to 1024"
        );
        assert_eq!(
            error(|machine| machine.cores = 1025),
            "machine: `cores` is 1025, but must be from 1 to 1024"
        );
        assert_eq!(
            error(|machine| machine.nodes = 9),
            "machine: `nodes` is 9, but must be at most the number of cores, 8"
        );
        assert_eq!(
            error(|machine| machine.line_bytes = 48),
            "machine: `line_bytes` is 48, but must be 32, 64, 128 or 256"
        );
        assert_eq!(
            error(|machine| machine.latency.local_memory.value = f64::NAN),
            "machine: `latency.local_memory` is NaN, but must be from 1 to 100000 (cycles)"
        );
        assert_eq!(
            error(|machine| machine.jitter_percent.value = -1.0),
            "machine: `jitter_percent` is -1, but must be from 0 to 50 (percent)"
        );
        assert!(
            error(|machine| machine.distances = vec![vec![10, 21]]).contains("1 rows of 1 numbers")
        );
        assert!(
            error(|machine| machine.distances = vec![vec![11]]).contains("`distances[0][0]` is 11")
        );
    }

    #[test]
    fn nodes_are_equal_blocks_and_distances_scale() {
        let mut machine = Machine::default().with(8, 2);
        let nodes: Vec<usize> = (0..8).map(|core| machine.node_of(core)).collect();
        assert_eq!(nodes, [0, 0, 0, 0, 1, 1, 1, 1]);
        let (near, far) = (machine.latency.local_memory, machine.latency.remote_memory);
        assert_eq!(machine.scaled(near, far, 0, 0), 230.0);
        assert_eq!(machine.scaled(near, far, 0, 1), 380.0);
        machine.distances = vec![vec![10, 32], vec![32, 10]];
        assert_eq!(machine.scaled(near, far, 0, 1), 530.0);
        assert!(machine.clone().with(8, 4).distances.is_empty());
        assert!(!machine.clone().with(16, 2).distances.is_empty());
    }

    #[test]
    fn the_hash_follows_the_numbers() {
        let machine = Machine::default();
        assert_eq!(machine.hash(), Machine::default().hash());
        assert_ne!(machine.hash(), Machine::default().with(9, 1).hash());
        let mut other = Machine::default();
        other.latency.hit.source = Source::Measured;
        assert_ne!(machine.hash(), other.hash());
    }
}
