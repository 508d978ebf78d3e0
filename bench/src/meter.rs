//! The cost of the lock meter: the same work with the meter on and off, in turns.
//!
//! # Boundary
//! Times uncontended locks, where every nanosecond of the meter shows, counters, and two operations of the library: a
//! path walk, and a file made, written and removed. Measures no contended locks: there the waiting is far longer than
//! the meter's work.
//!
//! # Why
//! The meter is switched in one process, so code, memory and processor are the same, and short rounds alternate, so
//! that another program disturbs both. Weakness: switched off is not compiled out; a load and a branch are left then.

use crate::machine;
use crate::report::{Column, Layout, Report, Unit};
use clap::Args;
use std::hint::black_box;
use std::io;
use std::time::Instant;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::{LockClass, Mutex, RwLock, meter};
use uvfs_vfs::{Caller, Directory, Vfs, VfsConfig};

static MUTEX: LockClass = LockClass::new(1, "bench-mutex", "a number");
static RWLOCK: LockClass = LockClass::new(2, "bench-rwlock", "a number");

/// Critical sections, in nanoseconds.
const SECTIONS_NS: [u32; 3] = [0, 25, 50];
/// The divisor of the figures.
const REFERENCE: &str = "uvfs-unmetered";

#[derive(Debug, Args)]
pub(crate) struct MeterArguments {
    /// Fewer rounds; ends within some seconds
    #[arg(long)]
    quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    json: bool,
    /// Rounds of which the median is taken [default: 1001, or 101 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    runs: Option<u32>,
}

/// Runs the subcommand.
pub(crate) fn run(arguments: &MeterArguments) -> io::Result<()> {
    let rounds = arguments.runs.unwrap_or(if arguments.quick { 101 } else { 1001 });
    let mut report = Report::new("meter");
    let step = step_ns();
    let (mutex, rwlock, counter) = (Mutex::new(&MUTEX, 1), RwLock::new(&RWLOCK, 1), Counter::new());
    for section_ns in SECTIONS_NS {
        let steps = (f64::from(section_ns) / step).round() as u32;
        let case = format!("mutex-{section_ns}ns");
        compare(&mut report, &case, rounds, 2000, || work(&mut mutex.lock(), steps));
        let case = format!("rwlock-read-{section_ns}ns");
        compare(&mut report, &case, rounds, 2000, || work(&mut { *rwlock.read() }, steps));
        let case = format!("rwlock-write-{section_ns}ns");
        compare(&mut report, &case, rounds, 2000, || work(&mut rwlock.write(), steps));
    }
    compare(&mut report, "counter-add", rounds, 10_000, || black_box(&counter).add(1));
    let top = directory()?;
    let walk = || drop(black_box(top.stat(black_box("a/b/c/d/e/file"))));
    compare(&mut report, "stat-6-components", rounds, 500, walk);
    let change = || {
        top.write_file("a/b/new", b"x")
            .and_then(|()| top.remove_file("a/b/new"))
            .expect("no other thread is here");
    };
    compare(&mut report, "create-write-unlink", rounds, 100, change);
    meter::set_enabled(true);
    let mut out = io::stdout().lock();
    match arguments.json {
        true => report.write_json(&mut out),
        false => {
            println!("{}", machine::describe());
            report.write_tables(
                &Layout { columns: &[Column::Against(&[REFERENCE])], ..Layout::default() },
                |_| true,
                &mut out,
            )
        }
    }
}

/// Times `operation` with the meter on and off, in turns.
fn compare(
    report: &mut Report,
    case: &str,
    rounds: u32,
    operations: u32,
    mut operation: impl FnMut(),
) {
    let mut sample = |is_on| {
        meter::set_enabled(is_on);
        let start = Instant::now();
        (0..operations).for_each(|_| operation());
        start.elapsed().as_nanos() as f64 / f64::from(operations)
    };
    // Memory and branches as they will be.
    sample(true);
    sample(false);
    for round in 0..rounds {
        // The first one in a round may be slower, or faster: each is first equally often.
        for is_on in [round % 2 == 0, round % 2 != 0] {
            let system = if is_on { "uvfs" } else { REFERENCE };
            report.sample(case, system, 1, Unit::Nanoseconds, sample(is_on));
        }
    }
}

/// A chain of operations that the processor cannot overlap.
#[inline(never)]
fn work(value: &mut u64, steps: u32) {
    for _ in 0..steps {
        *value = black_box(value.wrapping_mul(0x5851_F42D_4C95_7F2D)).wrapping_add(1);
    }
}

/// How long one step of [`work`] takes.
fn step_ns() -> f64 {
    const STEPS: u32 = 1000;
    let mut value = 1;
    let once = |_| {
        let start = Instant::now();
        work(&mut value, STEPS);
        start.elapsed().as_nanos() as f64 / f64::from(STEPS)
    };
    (0..200).map(once).fold(f64::MAX, f64::min)
}

/// A file five directories down, in RAM.
fn directory() -> io::Result<Directory> {
    let backend = MemoryBackend::new(MemoryConfig::default()).map_err(io::Error::other)?;
    let vfs = Vfs::new(backend, VfsConfig::default()).map_err(io::Error::other)?;
    let top = vfs.root_directory(Caller::root());
    let mut path = String::new();
    for name in ["a", "b", "c", "d", "e"] {
        path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        top.create_directory(&path, 0o755).map_err(io::Error::other)?;
    }
    top.write_file(format!("{path}/file"), b"x").map_err(io::Error::other)?;
    Ok(top)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_systems_of_every_case_are_measured() {
        let mut report = Report::new("meter");
        let mut calls = 0;
        compare(&mut report, "case", 3, 10, || calls += 1);
        meter::set_enabled(true);
        assert_eq!(calls, (2 + 3 * 2) * 10);
        let mut out = Vec::new();
        report.write_json(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches("\"runs\":3").count(), 2, "{text}");
        assert!(text.contains("\"uvfs\"") && text.contains("\"uvfs-unmetered\""), "{text}");
    }

    #[test]
    fn the_walk_finds_its_file() {
        assert_eq!(directory().unwrap().stat("a/b/c/d/e/file").unwrap().size, 1);
    }
}
