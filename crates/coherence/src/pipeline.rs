//! The time of instructions between two points of a program: a processor that executes out of order, as latencies and width.
//!
//! # Boundary
//! From operations, with the registers that they read and write, to time. The decoder of instructions makes the
//! operations. Knows no cache: the caller gives the extra time of each slow load, path by path.
//!
//! # Concurrency
//! None: values in, values out.
//!
//! # Why
//! A chain of multiplications, six independent additions and a chase of pointers take the same number of instructions
//! and differ tenfold, so a count of instructions is no time. Each operation begins when its sources are ready and it was
//! dispatched. `width` operations are dispatched a cycle. None is dispatched before the one `window` earlier has ended, so
//! independent misses overlap and dependent ones do not. The [`State`] keeps results that are not ready when a path ends,
//! relative to the clock. A path in a given state so always takes the same time, and its answer can be kept.
//! Weakness: ports are counted for a path and not for each cycle; operations do not wait for a full scheduler.

use crate::machine::Machine;
use crate::model::{TICKS_PER_CYCLE, Ticks};

/// Parts of a tick, so that sixths of a cycle add up.
const PARTS: u32 = 6;
const CYCLE: u32 = TICKS_PER_CYCLE as u32 * PARTS;
/// Operations in flight that are this close to each other are kept as one.
const TOGETHER: u32 = 24;
/// Pseudo-access for prefetched lines: how long they keep the memory path busy.
pub const FETCHED: u64 = 1;
/// No place.
pub const NOWHERE: u16 = u16::MAX;

/// The kind of an operation, as far as its time depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A register gets another's value: renamed, no time.
    Move,
    /// Integers, logic, comparisons, shuffles.
    Simple,
    /// A load that the first cache answers.
    Load,
    /// A store; no operation waits for it.
    Store,
    /// Multiplying integers.
    Multiply,
    /// Dividing integers.
    Divide,
    /// Adding, multiplying, comparing and converting floating-point numbers.
    Float,
    /// Dividing and roots of floating-point numbers.
    FloatDivide,
    /// A conditional or indirect branch.
    Branch,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Kind of the operation.
    pub kind: Kind,
    /// Inputs: registers, and stack slots that stand for registers; the rest is [`NOWHERE`].
    pub sources: [u16; 5],
    /// Outputs, likewise.
    pub targets: [u16; 3],
    /// Share of the machine's width: none for operations that exist only because accesses are announced.
    pub slots: u8,
    /// The announced access that it makes; zero for none.
    pub access: u64,
}

/// Results that are not ready yet, in ticks from the clock on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// Registers, sorted, and when they are ready.
    ready: Vec<(u16, u32)>,
    /// Operations that have not ended, oldest first: how many were dispatched since, and when it ends.
    in_flight: Vec<(u32, u32)>,
}

impl State {
    /// The time until every operation has ended: a barrier waits for it.
    pub fn drained(&self) -> Ticks {
        let ready = self.ready.iter().map(|(_, at)| *at);
        let ends = self.in_flight.iter().map(|(_, at)| *at);
        Ticks::from(ready.chain(ends).max().unwrap_or(0))
    }
}

/// A processor's numbers.
#[derive(Debug, Clone)]
pub struct Pipeline {
    /// The time of a slot, in parts of a tick.
    slot: u32,
    window: u32,
    latency: [u32; 9],
    /// How long an operation keeps its unit from the next of the kind.
    busy: [u32; 9],
    mispredict: u32,
}

impl Pipeline {
    /// The pipeline that the machine's file describes.
    pub fn new(machine: &Machine) -> Self {
        let core = &machine.pipeline;
        let parts = |cycles: f64| (cycles * f64::from(CYCLE)).round() as u32;
        Self {
            slot: (f64::from(CYCLE) / core.width.value).round() as u32,
            window: core.window.value as u32,
            latency: [
                0,
                CYCLE,
                parts(core.load.value),
                CYCLE,
                parts(core.multiply.value),
                parts(core.divide.value),
                parts(core.float.value),
                parts(core.float_divide.value),
                CYCLE,
            ],
            busy: [
                0,
                CYCLE / 4,
                CYCLE / 3,
                CYCLE / 2,
                CYCLE,
                parts(core.divide.value * 0.6),
                CYCLE / 2,
                parts(core.float_divide.value * 0.35),
                CYCLE / 2,
            ],
            mispredict: parts(core.mispredict.value),
        }
    }

    /// Runs a path from `state`: returns its time and the state after it. `longer` has the announced accesses that took
    /// longer than a hit, by how much, and their lines; `mispredicted` says that its first branch was.
    pub fn run(
        &self,
        state: &State,
        path: &[Operation],
        longer: &[(u64, Ticks, u64)],
        mispredicted: bool,
    ) -> (Ticks, State) {
        let mut ready: Vec<(u16, u32)> =
            state.ready.iter().map(|(place, at)| (*place, at * PARTS)).collect();
        // Dispatched before this path: `number` is as if it had begun at zero.
        let mut in_flight: Vec<(i64, u32)> =
            state.in_flight.iter().map(|(age, at)| (-i64::from(*age), at * PARTS)).collect();
        let mut oldest = 0;
        let (mut front, mut number) = (0_u32, 0_i64);
        let mut busy = [0_u32; 9];
        let mut mispredicted = mispredicted;
        for operation in path {
            let kind = operation.kind as usize;
            number += i64::from(operation.slots);
            while let Some((at, end)) = in_flight.get(oldest)
                && at + i64::from(self.window) <= number
            {
                front = front.max(*end);
                oldest += 1;
            }
            let of =
                |place: &u16| ready.iter().find(|(one, _)| one == place).map_or(0, |one| one.1);
            let sources = operation.sources.iter().take_while(|place| **place != NOWHERE);
            let start = sources.map(of).max().unwrap_or(0).max(front);
            let extra = match operation.access {
                0 => 0,
                access => longer.iter().find(|one| one.0 == access).map_or(0, |one| one.1),
            };
            let end = start + self.latency[kind] + extra as u32 * PARTS;
            for place in operation.targets.iter().take_while(|place| **place != NOWHERE) {
                match ready.iter_mut().find(|(one, _)| one == place) {
                    Some(known) => known.1 = end,
                    None => ready.push((*place, end)),
                }
            }
            // A store leaves the window when it is dispatched: the buffer behind it waits for the line.
            if operation.kind != Kind::Store && end > front {
                let last = in_flight.last().map_or(0, |last| last.1);
                match in_flight.last_mut() {
                    Some(last) if number - last.0 < i64::from(TOGETHER) => {
                        last.1 = last.1.max(end);
                    }
                    _ if end > last => in_flight.push((number, end)),
                    _ => {}
                }
            }
            busy[kind] += self.busy[kind];
            front += u32::from(operation.slots) * self.slot;
            if operation.kind == Kind::Branch && mispredicted {
                mispredicted = false;
                front = front.max(end + self.mispredict);
            }
        }
        let fetched =
            longer.iter().find(|one| one.0 == FETCHED).map_or(0, |one| one.1 as u32 * PARTS);
        let [_, simple, _, _, multiply, _, _, _, branch] = busy;
        front = front
            .max(busy.into_iter().max().unwrap_or(0))
            .max(simple + multiply / 4 + branch / 4)
            .max(fetched);
        let cost = (front + PARTS / 2) / PARTS;
        let rest = |at: u32| (at / PARTS).saturating_sub(cost);
        let mut after = State {
            ready: ready.iter().map(|(place, at)| (*place, rest(*at))).collect(),
            in_flight: Vec::new(),
        };
        after.ready.retain(|(_, at)| *at > 0);
        after.ready.sort_unstable();
        for (at, end) in &in_flight[oldest.min(in_flight.len())..] {
            let end = rest(*end);
            if end > after.in_flight.last().map_or(0, |last: &(u32, u32)| last.1) {
                after.in_flight.push(((number - at) as u32, end));
            }
        }
        (Ticks::from(cost), after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(kind: Kind, source: u16, target: u16) -> Operation {
        Operation {
            kind,
            sources: [source, NOWHERE, NOWHERE, NOWHERE, NOWHERE],
            targets: [target, NOWHERE, NOWHERE],
            slots: 1,
            access: 0,
        }
    }

    /// Cycles of a turn, once the loop is in its stride.
    fn turn(path: &[Operation], longer: &[(u64, Ticks, u64)]) -> f64 {
        let pipeline = Pipeline::new(&Machine::default());
        let (mut state, mut all) = (State::default(), 0);
        for number in 0..4000 {
            let (cost, after) = pipeline.run(&state, path, longer, false);
            state = after;
            if number >= 2000 {
                all += cost;
            }
        }
        all as f64 / 2000.0 / TICKS_PER_CYCLE as f64
    }

    #[test]
    fn a_chain_takes_its_latencies_and_independent_ones_the_width() {
        let machine = Machine::default().pipeline;
        let chain = [operation(Kind::Multiply, 1, 1), operation(Kind::Simple, 1, 1)];
        assert!((turn(&chain, &[]) - machine.multiply.value - 1.0).abs() < 0.1);
        let apart: Vec<_> =
            (0..12).map(|place| operation(Kind::Simple, 40 + place, place)).collect();
        // Four units for integers, whatever the width.
        let expected = 12.0_f64 / machine.width.value.min(4.0);
        assert!((turn(&apart, &[]) - expected).abs() < 0.2, "{}", turn(&apart, &[]));
    }

    #[test]
    fn misses_overlap_unless_one_waits_for_the_other() {
        let miss = 300 * TICKS_PER_CYCLE;
        let longer = [(7, miss, 0)];
        let mut chase = operation(Kind::Load, 1, 1);
        chase.access = 7;
        assert!(
            (turn(&[chase], &longer) - 300.0 - Machine::default().pipeline.load.value).abs() < 9.0
        );
        let mut lone = operation(Kind::Load, 2, 1);
        lone.access = 7;
        let path: Vec<_> =
            (0..31).map(|place| operation(Kind::Simple, 40, 3 + place)).chain([lone]).collect();
        let turn = turn(&path, &longer);
        assert!((15.0..60.0).contains(&turn), "{turn}");
    }

    #[test]
    fn a_wrong_guess_costs_and_nothing_stays_when_nothing_runs() {
        let pipeline = Pipeline::new(&Machine::default());
        let path = [operation(Kind::Branch, 1, NOWHERE)];
        let (right, _) = pipeline.run(&State::default(), &path, &[], false);
        let (wrong, after) = pipeline.run(&State::default(), &path, &[], true);
        assert!(wrong >= right + 10 * TICKS_PER_CYCLE);
        assert_eq!(after.drained(), 0);
    }
}
