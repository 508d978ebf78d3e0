//! Measurements on the machine that this runs on.
//!
//! # Boundary
//! Samples in nanoseconds; [`super::calibrate`] turns them into the model's numbers.
//!
//! # Concurrency
//! Two threads, pinned, hand a turn to each other through one atomic word.
//!
//! # Why
//! Each quantity is timed over a batch long enough for the clock, many times. What this machine cannot
//! show is refused with the reason: a remote node where there is one node, a transfer where there is one
//! processor. Weakness: the measured transfer, half of a round trip between two threads, includes one store
//! and one load of each side. Two processors may be two threads of one core. The chase through memory includes
//! misses of the address translation. Going to sleep on a futex is the time that the kernel charges to the
//! sleeper, which includes the way back.

use super::Quantity;
use crate::error::Error;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Batches of each quantity.
const BATCHES: usize = 21;
/// Bytes of the memory that is chased through: beyond most last-level caches. Where one is larger, twice its
/// size is taken, and no more than this.
const MEMORY: usize = 256 << 20;
/// See [`MEMORY`].
const MEMORY_MAX: usize = 1 << 30;

/// Measures here.
#[derive(Debug, Clone)]
pub struct Native {
    /// Processors that this process may use, each with its node.
    processors: Vec<(usize, usize)>,
    /// Bytes of the private and of the last-level cache, as the kernel tells; zero where it does not.
    caches: (usize, usize),
    /// Bytes to chase through, and the steps of a batch: tests take fewer.
    memory: usize,
    scale: u32,
}

impl Native {
    /// Finds out the processors and clocks that this process may use.
    ///
    /// # Errors
    /// The affinity cannot be read.
    pub fn new() -> Result<Self, Error> {
        let allowed = sched_getaffinity(None)
            .map_err(|errno| Error::io("this process's processors", &errno.into()))?;
        let processors: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|processor| allowed.is_set(*processor))
            .map(|processor| (processor, node_of(processor)))
            .collect();
        let first = processors.first().map_or(0, |(processor, _)| *processor);
        let caches = (cache(first, "2"), cache(first, "3"));
        Ok(Self { processors, caches, memory: MEMORY.max(2 * caches.1), scale: 16 })
    }

    /// Returns a native host that measures in a thousandth of the time, for tests of the code alone.
    #[cfg(test)]
    fn hasty(mut self) -> Self {
        (self.memory, self.scale, self.caches) = (1 << 20, 1, (1 << 16, 1 << 20));
        self
    }

    /// Samples of a quantity: nanoseconds, the clock's megahertz.
    ///
    /// # Errors
    /// Why this machine cannot show it.
    pub fn measure(&self, quantity: Quantity) -> Result<Vec<f64>, Error> {
        if cfg!(debug_assertions) && !cfg!(test) {
            // Loops that keep their state in memory measure themselves.
            return Err(Error::new("this build is not optimised: use a release build"));
        }
        let first = self.processors.first().map(|(processor, _)| *processor);
        let first = first.ok_or_else(|| Error::new("no processor is allowed"))?;
        let many = 1000 * self.scale;
        match quantity {
            Quantity::Megahertz => pinned(first, move || batches(|| clock(many * 100))),
            Quantity::LocalTransfer => {
                let pair = self.pair(true).ok_or_else(|| {
                    Error::new("it takes two processors of one node, and this process may use one")
                })?;
                Ok(batches(|| round_trip(pair, many)))
            }
            Quantity::RemoteTransfer => {
                let pair = self.pair(false).ok_or_else(one_node)?;
                Ok(batches(|| round_trip(pair, many)))
            }
            Quantity::LastLevel => {
                // Well beyond the one, well within the other.
                let (private, shared) = self.caches;
                if private == 0 || shared < 8 * private {
                    return Err(Error::new(
                        "it needs a last-level cache of eight times the private one, and the kernel reports none",
                    ));
                }
                self.chase(first, first, 4 * private)
            }
            Quantity::LocalMemory => self.chase(first, first, self.beyond()?),
            Quantity::RemoteMemory => {
                let (near, far) = self.pair(false).ok_or_else(one_node)?;
                self.chase(near, far, self.beyond()?)
            }
            Quantity::Atomic => pinned(first, move || {
                let word = AtomicU64::new(0);
                batches(|| {
                    timed(many * 10, || {
                        // ORDERING: AcqRel, as locks and counters have it; no partner, it is timed alone.
                        black_box(word.fetch_add(1, Ordering::AcqRel));
                    })
                })
            }),
            Quantity::Pause => pinned(first, move || batches(|| timed(many, spin_loop))),
            Quantity::FutexWait => self.wake(2),
            Quantity::FutexWake => self.wake(0),
            Quantity::WakeLatency => self.wake(1),
            Quantity::ThreadCreate => Ok(self.start().iter().map(|(create, _)| *create).collect()),
            Quantity::ThreadStart => Ok(self.start().iter().map(|(_, start)| *start).collect()),
            Quantity::YieldNow => pinned(first, move || batches(|| timed(many, thread::yield_now))),
            Quantity::ReadClock => pinned(first, move || {
                batches(|| {
                    timed(many, || {
                        black_box(Instant::now());
                    })
                })
            }),
            Quantity::Allocate => pinned(first, move || {
                // An allocation and its release are two calls.
                batches(|| timed(many, || drop(black_box(Box::new([0_u64; 8])))) / 2.0)
            }),
            Quantity::SystemCall => pinned(first, move || {
                batches(|| {
                    timed(many, || {
                        black_box(rustix::process::getppid());
                    })
                })
            }),
            Quantity::ContextSwitch => Ok(batches(|| switch(first, 100 * self.scale))),
        }
    }

    /// Two processors, of the same node or of different ones.
    fn pair(&self, same: bool) -> Option<(usize, usize)> {
        let (first, node) = *self.processors.first()?;
        let other = self.processors[1..].iter().find(|(_, other)| (*other == node) == same)?;
        Some((first, other.0))
    }

    /// Bytes that no last-level cache holds.
    fn beyond(&self) -> Result<usize, Error> {
        if self.memory > MEMORY_MAX {
            let found = self.caches.1 >> 20;
            return Err(Error::new(format!(
                "the kernel reports a last-level cache of {found} MiB; larger ones are not tried"
            )));
        }
        Ok(self.memory)
    }

    /// A pointer chase on `near` through memory that `far` touched first, so that it lies there.
    fn chase(&self, near: usize, far: usize, bytes: usize) -> Result<Vec<f64>, Error> {
        let lines = bytes / 64;
        let memory = pinned(far, move || ring(lines))?;
        let steps = (lines / 8).min(200_000);
        pinned(near, move || {
            let mut at = 0_usize;
            batches(|| {
                let begin = Instant::now();
                for _ in 0..steps {
                    at = memory[at * 8] as usize;
                }
                black_box(at);
                per(begin.elapsed(), steps as u32)
            })
        })
    }

    /// The costs of waking: `[the waker's call, from there until the woken thread runs, the sleeper's own time]`.
    fn wake(&self, which: usize) -> Result<Vec<f64>, Error> {
        let (here, there) = self
            .pair(true)
            .ok_or_else(|| Error::new("it takes two processors, and this process may use one"))?;
        let rounds = 10 * self.scale as usize;
        let both = pinned(here, move || wakes(there, rounds))??;
        Ok(both.iter().map(|pair| pair[which]).collect())
    }

    /// `pthread_create` for the creating thread, and from its begin until the thread runs.
    fn start(&self) -> Vec<(f64, f64)> {
        let one = || {
            let begin = Instant::now();
            let thread = thread::spawn(Instant::now);
            let create = begin.elapsed().as_nanos() as f64;
            let start = thread.join().map_or(0.0, |at| (at - begin).as_nanos() as f64);
            (create, start)
        };
        (0..BATCHES * 4).map(|_| one()).collect()
    }
}

/// Bytes of a processor's data cache of a level; zero where the kernel does not tell.
fn cache(processor: usize, level: &str) -> usize {
    let read = |index: usize, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{processor}/cache/index{index}/{name}");
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let is_it = |index: &usize| {
        read(*index, "level").as_deref() == Some(level)
            && read(*index, "type").as_deref() != Some("Instruction")
    };
    let size = (0..8).find(is_it).and_then(|index| read(index, "size"));
    let kib = size.and_then(|size| size.strip_suffix('K')?.parse::<usize>().ok());
    kib.map_or(0, |kib| kib << 10)
}

fn one_node() -> Error {
    Error::new("this process may use one memory node: measure on a machine with two")
}

/// The node of a processor; 0 where the kernel does not tell.
fn node_of(processor: usize) -> usize {
    let Ok(entries) = fs::read_dir(format!("/sys/devices/system/cpu/cpu{processor}")) else {
        return 0;
    };
    let mut names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok()).unwrap_or(0)
}

/// Runs on a thread of its own, on one processor.
fn pinned<T: Send + 'static>(
    processor: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let pin = move || {
        pin(processor)?;
        Ok(work())
    };
    thread::spawn(pin).join().map_err(|_| Error::new("a measuring thread ended early"))?
}

fn pin(processor: usize) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::io(format!("pinning to processor {processor}"), &errno.into()))
}

/// The first batch warms up and does not count.
fn batches(mut batch: impl FnMut() -> f64) -> Vec<f64> {
    batch();
    (0..BATCHES).map(|_| batch()).collect()
}

fn per(elapsed: Duration, times: u32) -> f64 {
    elapsed.as_nanos() as f64 / f64::from(times.max(1))
}

fn timed(times: u32, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..times {
        work();
    }
    per(begin.elapsed(), times)
}

/// Nanoseconds that the kernel charged to this thread so far.
fn charged() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Megahertz: a chain in which each step is six operations of one cycle, each needing the last.
fn clock(steps: u32) -> f64 {
    let mut word = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let begin = Instant::now();
    for _ in 0..steps {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    black_box(word);
    6.0 / per(begin.elapsed(), steps) * 1000.0
}

/// A way through all lines in no order that a prefetcher could follow: a permutation of one cycle.
fn ring(lines: usize) -> Vec<u64> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for index in (1..lines).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        order.swap(index, (seed % index as u64) as usize);
    }
    let mut memory = vec![0_u64; lines * 8];
    for (index, line) in order.iter().enumerate() {
        let next = order[(index + 1) % lines];
        memory[*line as usize * 8] = u64::from(next);
    }
    memory
}

/// Waits until `word` is `value`; gives up when `stop` says that the other side is gone.
fn await_value(word: &AtomicU64, value: u64, stop: &AtomicBool) -> bool {
    loop {
        // ORDERING: Acquire, partner the Release store of the other side's turn.
        if word.load(Ordering::Acquire) == value {
            return true;
        }
        // ORDERING: Relaxed; a flag polled in a loop, nothing is reached through it.
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        spin_loop();
    }
}

/// Hands a word back and forth; half of a round, in nanoseconds; zero if a side could not be pinned.
fn round_trip((here, there): (usize, usize), rounds: u32) -> f64 {
    let word = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let side = |processor: usize, parity: u64| {
        let (word, stop) = (Arc::clone(&word), Arc::clone(&stop));
        move || {
            if pin(processor).is_err() {
                // ORDERING: Relaxed; the other side polls it.
                stop.store(true, Ordering::Relaxed);
                return 0.0;
            }
            let begin = Instant::now();
            for round in 0..u64::from(rounds) {
                if !await_value(&word, 2 * round + parity, &stop) {
                    return 0.0;
                }
                // ORDERING: Release, partner the Acquire load of the other side.
                word.store(2 * round + parity + 1, Ordering::Release);
            }
            per(begin.elapsed(), rounds) / 2.0
        }
    };
    let (first, second) = (thread::spawn(side(here, 0)), thread::spawn(side(there, 1)));
    let (first, second) = (first.join(), second.join());
    match (first, second) {
        // The second one's clock begins when it is ready: no thread's start is in it.
        (Ok(first), Ok(second)) if first > 0.0 => second,
        _ => 0.0,
    }
}

/// Wakes a thread on another processor: times the call, the time until the thread answers, read on this side, and the
/// thread's charge for sleeping.
fn wakes(there: usize, rounds: usize) -> Result<Vec<[f64; 3]>, Error> {
    let turn = Arc::new(AtomicU64::new(0));
    let spent = Arc::new(AtomicU64::new(0));
    let sleeper = {
        let (turn, spent) = (Arc::clone(&turn), Arc::clone(&spent));
        thread::spawn(move || {
            pin(there)?;
            let mut seen = 0;
            let mut before = charged();
            loop {
                thread::park();
                let now = charged();
                // ORDERING: Relaxed; published by the Release store of `turn` below.
                spent.store(now - before, Ordering::Relaxed);
                // ORDERING: Acquire, partner the Release store before the wake.
                let now = turn.load(Ordering::Acquire);
                if now == u64::MAX {
                    return Ok(());
                }
                if now > seen && now % 2 == 1 {
                    seen = now + 1;
                    // ORDERING: Release, partner the waker's Acquire load.
                    turn.store(seen, Ordering::Release);
                }
                before = charged();
            }
        })
    };
    let mut both = Vec::new();
    for round in 0..rounds as u64 {
        // Long enough for the other one to go to sleep; if it is awake, the value is an outlier.
        thread::sleep(Duration::from_micros(200));
        if sleeper.is_finished() {
            break;
        }
        let begin = Instant::now();
        // ORDERING: Release, partner the sleeper's Acquire load.
        turn.store(2 * round + 1, Ordering::Release);
        sleeper.thread().unpark();
        let called = begin.elapsed();
        // ORDERING: Acquire, partner the sleeper's Release store.
        while turn.load(Ordering::Acquire) != 2 * round + 2 && !sleeper.is_finished() {
            spin_loop();
        }
        let answered = begin.elapsed();
        // ORDERING: Relaxed; the Acquire load above saw the turn that was stored behind it.
        let slept = spent.load(Ordering::Relaxed) as f64;
        let latency = answered.saturating_sub(called).as_nanos() as f64;
        both.push([called.as_nanos() as f64, latency, slept]);
    }
    // ORDERING: Release, partner the sleeper's Acquire load.
    turn.store(u64::MAX, Ordering::Release);
    sleeper.thread().unpark();
    let ended: Result<(), Error> =
        sleeper.join().map_err(|_| Error::new("a measuring thread ended early"))?;
    ended.map(|()| both)
}

/// Two threads of one processor that yield to each other; a yield's time is one switch.
fn switch(processor: usize, rounds: u32) -> f64 {
    let ready = Arc::new(AtomicU64::new(0));
    let side = || {
        let ready = Arc::clone(&ready);
        move || {
            let pinned = pin(processor).is_ok();
            // ORDERING: Relaxed; a polled count of threads, nothing is reached through it.
            ready.fetch_add(1, Ordering::Relaxed);
            // ORDERING: Relaxed; a polled count of threads, nothing is reached through it.
            while ready.load(Ordering::Relaxed) < 2 {
                thread::yield_now();
            }
            if pinned { timed(rounds, thread::yield_now) } else { 0.0 }
        }
    };
    let (first, second) = (thread::spawn(side()), thread::spawn(side()));
    let (first, second) = (first.join().unwrap_or(0.0), second.join().unwrap_or(0.0));
    // Each round of either is a switch away and one back.
    (first + second) / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_allows_is_measured_and_the_rest_refused() {
        let native = Native::new().unwrap().hasty();
        let processors = native.processors.len();
        let nodes: std::collections::BTreeSet<_> =
            native.processors.iter().map(|(_, node)| *node).collect();
        for quantity in Quantity::ALL {
            let possible = match quantity {
                Quantity::RemoteTransfer | Quantity::RemoteMemory => nodes.len() > 1,
                Quantity::LocalTransfer
                | Quantity::FutexWait
                | Quantity::FutexWake
                | Quantity::WakeLatency => processors > 1,
                _ => true,
            };
            if !possible {
                assert!(native.measure(quantity).is_err(), "{quantity:?}");
            } else if nodes.len() == 1 {
                let samples = native.measure(quantity).unwrap();
                assert!(samples.iter().any(|sample| *sample > 0.0), "{quantity:?}: {samples:?}");
            }
        }
    }

    #[test]
    fn one_processor_is_refused_where_two_are_needed() {
        let mut native = Native::new().unwrap().hasty();
        native.processors.truncate(1);
        let line = native.measure(Quantity::LocalTransfer).unwrap_err().to_string();
        assert!(line.contains("two processors"), "{line}");
        let line = native.measure(Quantity::RemoteMemory).unwrap_err().to_string();
        assert!(line.contains("one memory node"), "{line}");
        assert!(native.measure(Quantity::SystemCall).is_ok());
        // Nothing lies beyond a cache that is larger than all that is tried, nor between two of one size.
        (native.memory, native.caches) = (MEMORY_MAX * 2, (1 << 20, MEMORY_MAX));
        let line = native.measure(Quantity::LocalMemory).unwrap_err().to_string();
        assert!(line.contains("1024 MiB"), "{line}");
        native.caches = (1 << 20, 1 << 20);
        assert!(native.measure(Quantity::LastLevel).is_err());
    }

    #[test]
    fn a_ring_visits_every_line_once() {
        let lines = 1000;
        let memory = ring(lines);
        let (mut at, mut seen) = (0, vec![false; lines]);
        for _ in 0..lines {
            assert!(!seen[at]);
            seen[at] = true;
            at = memory[at * 8] as usize;
        }
        assert_eq!(at, 0);
    }
}
