//! The costs of this machine, measured where it allows, for a machine file.
//!
//! # Boundary
//! [`calibrate`] turns samples into a [`Machine`]; where they come from is a closure. [`Native`] takes them
//! here, with threads of the standard library pinned to processors.
//!
//! # Concurrency
//! [`Native`] runs at most two threads, each pinned to one processor, which hand one word to each other.
//!
//! # Why
//! A parameter that was measured says so in the machine file and in every report; one that could not be
//! stays assumed, with the reason beside it; if it has a fixed ratio to one that was measured, it follows that
//! one and is called scaled, so that no node's memory is nearer to others than to itself. The middle of many batches is taken, so that other work on
//! the machine widens the spread rather than moving the value. Weakness: what cannot be told apart from
//! outside stays assumed: occupancies, cache sizes, what a hit, a call and a step of computing cost under
//! overlap; and a guest of a hypervisor measures what it is given.

mod native;

pub use native::Native;

use crate::error::Error;
use serde::Serialize;
use uvfs_coherence::machine::{Machine, Parameter, Source};

/// The quantities that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is named as the machine's parameter.
pub enum Quantity {
    Megahertz,
    LocalTransfer,
    RemoteTransfer,
    LastLevel,
    LocalMemory,
    RemoteMemory,
    Atomic,
    Pause,
    FutexWait,
    FutexWake,
    WakeLatency,
    ThreadCreate,
    ThreadStart,
    YieldNow,
    ReadClock,
    Allocate,
    SystemCall,
    ContextSwitch,
}

impl Quantity {
    /// All, in the order of measuring: the clock comes first.
    pub const ALL: [Self; 18] = [
        Self::Megahertz,
        Self::LocalTransfer,
        Self::RemoteTransfer,
        Self::LastLevel,
        Self::LocalMemory,
        Self::RemoteMemory,
        Self::Atomic,
        Self::Pause,
        Self::FutexWait,
        Self::FutexWake,
        Self::WakeLatency,
        Self::ThreadCreate,
        Self::ThreadStart,
        Self::YieldNow,
        Self::ReadClock,
        Self::Allocate,
        Self::SystemCall,
        Self::ContextSwitch,
    ];

    /// The path in the machine file.
    pub fn path(self) -> &'static str {
        match self {
            Self::Megahertz => "megahertz",
            Self::LocalTransfer => "latency.local_transfer",
            Self::RemoteTransfer => "latency.remote_transfer",
            Self::LastLevel => "latency.last_level",
            Self::LocalMemory => "latency.local_memory",
            Self::RemoteMemory => "latency.remote_memory",
            Self::Atomic => "latency.atomic",
            Self::Pause => "cost.pause",
            Self::FutexWait => "cost.futex_wait",
            Self::FutexWake => "cost.futex_wake",
            Self::WakeLatency => "cost.wake_latency",
            Self::ThreadCreate => "cost.thread_create",
            Self::ThreadStart => "cost.thread_start",
            Self::YieldNow => "cost.yield_now",
            Self::ReadClock => "cost.read_clock",
            Self::Allocate => "cost.allocate",
            Self::SystemCall => "cost.system_call",
            Self::ContextSwitch => "cost.context_switch",
        }
    }

    fn parameter(self, machine: &mut Machine) -> &mut Parameter {
        let (latency, cost) = (&mut machine.latency, &mut machine.cost);
        match self {
            Self::Megahertz => &mut machine.megahertz,
            Self::LocalTransfer => &mut latency.local_transfer,
            Self::RemoteTransfer => &mut latency.remote_transfer,
            Self::LastLevel => &mut latency.last_level,
            Self::LocalMemory => &mut latency.local_memory,
            Self::RemoteMemory => &mut latency.remote_memory,
            Self::Atomic => &mut latency.atomic,
            Self::Pause => &mut cost.pause,
            Self::FutexWait => &mut cost.futex_wait,
            Self::FutexWake => &mut cost.futex_wake,
            Self::WakeLatency => &mut cost.wake_latency,
            Self::ThreadCreate => &mut cost.thread_create,
            Self::ThreadStart => &mut cost.thread_start,
            Self::YieldNow => &mut cost.yield_now,
            Self::ReadClock => &mut cost.read_clock,
            Self::Allocate => &mut cost.allocate,
            Self::SystemCall => &mut cost.system_call,
            Self::ContextSwitch => &mut cost.context_switch,
        }
    }
}

/// One parameter of the result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which.
    pub quantity: Quantity,
    /// Path of the parameter in the machine file.
    pub path: &'static str,
    /// In cycles, the clock in megahertz: measured, the base's, or the base's in the ratio of another.
    pub parameter: Parameter,
    /// The tenth and the ninetieth of a hundred batches; `None` if it was not measured.
    pub spread: Option<(f64, f64)>,
    /// Why it was not measured.
    pub reason: Option<String>,
}

/// A machine, and how far each number may be trusted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// For a machine file.
    pub machine: Machine,
    /// In the order of [`Quantity::ALL`].
    pub rows: Vec<Row>,
}

/// A number that is not measured keeps its ratio to a measured one: the first to the second.
const FOLLOWS: [(Quantity, Quantity); 2] = [
    (Quantity::RemoteMemory, Quantity::LocalMemory),
    (Quantity::RemoteTransfer, Quantity::LocalTransfer),
];

/// Measures every quantity. `measure` gives samples in nanoseconds, the clock's in megahertz; an error of
/// it leaves the base's value, which is then assumed, or scaled if it has a ratio to one that was measured. A
/// time slice keeps its length in seconds. What is remote is at least as dear as what is local.
///
/// # Errors
/// A clock that cannot be measured: nothing else could be told in cycles.
pub fn calibrate(
    base: &Machine,
    mut measure: impl FnMut(Quantity) -> Result<Vec<f64>, Error>,
) -> Result<Calibration, Error> {
    let mut machine = base.clone();
    let mut rows = Vec::new();
    let mut cycles_per_ns = 1.0;
    for quantity in Quantity::ALL {
        let factor = if quantity == Quantity::Megahertz { 1.0 } else { cycles_per_ns };
        let measured = measure(quantity).and_then(|samples| {
            let mut samples: Vec<f64> =
                samples.into_iter().filter(|one| one.is_finite() && *one > 0.0).collect();
            if samples.len() < 3 {
                return Err(Error::new("fewer than three batches could be timed"));
            }
            samples.sort_by(f64::total_cmp);
            Ok(samples)
        });
        let (spread, reason) = match measured {
            Ok(samples) => {
                let at = |part: f64| {
                    let index = (part * (samples.len() - 1) as f64).round() as usize;
                    samples[index] * factor
                };
                // Other work only ever slows the clock's chain, so a fast batch is the true one.
                let mut value = at(if quantity == Quantity::Megahertz { 0.9 } else { 0.5 });
                if quantity == Quantity::Atomic {
                    // The machine has the cost beyond that of a hit.
                    value = (value - machine.latency.hit.value).max(0.0);
                }
                if quantity == Quantity::Megahertz {
                    cycles_per_ns = value / 1000.0;
                }
                *quantity.parameter(&mut machine) = Parameter::measured(round(value));
                (Some((round(at(0.1)), round(at(0.9)))), None)
            }
            Err(error) if quantity == Quantity::Megahertz => {
                return Err(Error::new(format!("the processor's clock: {error}")));
            }
            Err(error) => {
                let parameter = quantity.parameter(&mut machine);
                *parameter = Parameter::assumed(parameter.value);
                (None, Some(error.to_string()))
            }
        };
        let parameter = *quantity.parameter(&mut machine);
        rows.push(Row { quantity, path: quantity.path(), parameter, spread, reason });
    }
    for (remote, local) in FOLLOWS {
        follow(base, &mut machine, &mut rows, remote, local);
    }
    let slice = base.cost.time_slice.value / base.megahertz.value * machine.megahertz.value;
    machine.cost.time_slice = Parameter::scaled(round(slice));
    Ok(Calibration { machine, rows })
}

/// Puts `remote` into its ratio to a measured `local`, and never below it.
fn follow(
    base: &Machine,
    machine: &mut Machine,
    rows: &mut [Row],
    remote: Quantity,
    local: Quantity,
) {
    let was = |quantity: Quantity| quantity.parameter(&mut base.clone()).value;
    let anchor = *local.parameter(machine);
    let parameter = remote.parameter(machine);
    let Some(row) = rows.iter_mut().find(|row| row.quantity == remote) else { return };
    let why = match (anchor.source, parameter.source) {
        (_, Source::Measured) if parameter.value < anchor.value => {
            "measured as nearer than local memory, so taken as equal".to_owned()
        }
        (_, Source::Measured) => return,
        (Source::Measured, _) => {
            let ratio = (was(remote) / was(local).max(f64::MIN_POSITIVE)).max(1.0);
            *parameter = Parameter::scaled(round(anchor.value * ratio));
            let reason = row.reason.take().unwrap_or_default();
            format!("{reason}; in its ratio to {}", local.path())
        }
        _ if parameter.value < anchor.value => {
            "nearer than local memory, so taken as equal".to_owned()
        }
        _ => return,
    };
    if parameter.value < anchor.value {
        *parameter = Parameter::scaled(anchor.value);
    }
    (row.parameter, row.spread, row.reason) = (*parameter, None, Some(why));
}

/// Three digits are more than a measurement is worth.
fn round(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powf(2.0 - value.log10().floor());
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_says_so_and_the_rest_stays_assumed() {
        let base = Machine::default();
        let calibration = calibrate(&base, |quantity| match quantity {
            Quantity::Megahertz => Ok(vec![2000.0; 5]),
            Quantity::LocalTransfer => Ok(vec![40.0, 50.0, 60.0, 55.0, 45.0]),
            Quantity::Atomic => Ok(vec![9.0; 5]),
            Quantity::Pause => Ok(vec![20.0, f64::NAN]),
            _ => Err(Error::new("there is one node")),
        })
        .unwrap();
        let machine = &calibration.machine;
        assert_eq!(machine.megahertz, Parameter::measured(2000.0));
        assert_eq!(machine.latency.local_transfer, Parameter::measured(100.0));
        assert_eq!(machine.latency.atomic, Parameter::measured(17.5));
        assert_eq!(machine.latency.remote_memory, base.latency.remote_memory);
        assert_eq!(machine.occupancy, base.occupancy);
        let row = |wanted| calibration.rows.iter().find(|row| row.quantity == wanted).unwrap();
        assert_eq!(row(Quantity::LocalTransfer).spread, Some((80.0, 120.0)));
        assert_eq!(row(Quantity::RemoteMemory).reason.as_deref(), Some("there is one node"));
        assert!(row(Quantity::Pause).reason.as_deref().unwrap().contains("three batches"));
        assert_eq!(row(Quantity::Pause).parameter.source, Source::Assumed);
        assert_eq!(calibration.rows.len(), Quantity::ALL.len());
    }

    /// A calibration at 1000 megahertz from `measured`.
    fn of(base: &Machine, measured: &[(Quantity, f64)]) -> Calibration {
        calibrate(base, |quantity| {
            let own = measured.iter().find(|(one, _)| *one == quantity);
            match (quantity, own) {
                (_, Some((_, value))) => Ok(vec![*value; 5]),
                (Quantity::Megahertz, _) => Ok(vec![1000.0; 5]),
                _ => Err(Error::new("there is one node")),
            }
        })
        .unwrap()
    }

    #[test]
    fn what_is_remote_follows_what_is_local() {
        // A guest measured 460 cycles for its memory; the assumed 380 of another node's were nearer.
        let base = Machine::default();
        let found = of(&base, &[(Quantity::LocalMemory, 460.0), (Quantity::LocalTransfer, 60.0)]);
        let latency = &found.machine.latency;
        assert_eq!(latency.local_memory, Parameter::measured(460.0));
        assert_eq!(latency.remote_memory, Parameter::scaled(760.0));
        assert_eq!(latency.remote_transfer, Parameter::scaled(245.0));
        // A millisecond stays one.
        assert_eq!(found.machine.cost.time_slice, Parameter::scaled(1e6));
        let row = found.rows.iter().find(|row| row.quantity == Quantity::RemoteMemory).unwrap();
        assert_eq!(row.parameter, latency.remote_memory);
        let reason = row.reason.as_deref().unwrap();
        assert_eq!(reason, "there is one node; in its ratio to latency.local_memory");
        assert!(found.machine.assumed().contains(&"latency.remote_memory".to_owned()));
        assert_eq!(crate::machine_file::parse(&found.machine.to_text()).unwrap(), found.machine);
    }

    #[test]
    fn nothing_remote_is_nearer_than_the_local() {
        let mut odd = Machine::default();
        odd.latency.remote_memory.value = 100.0;
        for base in [Machine::default(), odd] {
            for measured in [
                &[][..],
                &[(Quantity::LocalMemory, 1000.0)],
                &[(Quantity::RemoteMemory, 50.0)],
                &[(Quantity::LocalMemory, 300.0), (Quantity::RemoteMemory, 290.0)],
                &[(Quantity::LocalTransfer, 900.0), (Quantity::RemoteTransfer, 20.0)],
            ] {
                let latency = of(&base, measured).machine.latency;
                assert!(latency.remote_memory.value >= latency.local_memory.value, "{measured:?}");
                assert!(latency.remote_transfer.value >= latency.local_transfer.value);
            }
        }
    }

    #[test]
    fn what_was_measured_on_both_sides_stays() {
        let both = [(Quantity::LocalMemory, 200.0), (Quantity::RemoteMemory, 290.0)];
        let latency = of(&Machine::default(), &both).machine.latency;
        assert_eq!(latency.remote_memory, Parameter::measured(290.0));
    }

    #[test]
    fn without_a_clock_there_is_nothing() {
        let error = calibrate(&Machine::default(), |_| Err(Error::new("x"))).unwrap_err();
        assert_eq!(error.to_string(), "the processor's clock: x");
    }

    #[test]
    fn paths_are_those_of_the_machine_file() {
        let file = serde_json::to_value(Machine::default()).unwrap();
        for quantity in Quantity::ALL {
            let pointer = format!("/{}/value", quantity.path().replace('.', "/"));
            let mut machine = Machine::default();
            let value = quantity.parameter(&mut machine).value;
            assert_eq!(
                file.pointer(&pointer).and_then(|one| one.as_f64()),
                Some(value),
                "{pointer}"
            );
        }
    }

    #[test]
    fn three_digits_are_kept() {
        assert_eq!(round(123_456.0), 123_000.0);
        assert_eq!(round(0.123_456), 0.123);
        assert_eq!(round(0.0), 0.0);
    }
}
