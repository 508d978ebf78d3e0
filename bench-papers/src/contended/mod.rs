//! Shared parts of the programs for the contention analyser: arguments, and threads that begin together.
//!
//! # Boundary
//! Knows no workload. `uvfs-bench-papers contention` runs each program under `uvfs contention`; it runs natively as
//! well.
//!
//! # Why
//! The program times itself, by its own clock, from the moment when all threads are ready. Under the analyser that
//! clock is virtual, so its output is the prediction. The number of operations per thread is fixed, so the work grows
//! with the cores. Weakness: the last thread to end sets the time.

pub mod tree;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// `[operations [threads [mode]]]`, each with its default.
#[derive(Debug)]
pub struct Arguments {
    /// Operations of each thread.
    pub operations: usize,
    /// That begin together.
    pub threads: usize,
    /// A word that the program understands.
    pub mode: String,
}

impl Arguments {
    /// From the command line.
    ///
    /// # Panics
    /// If a number is none.
    pub fn read(operations: usize, mode: &str) -> Self {
        let mut words = std::env::args().skip(1);
        let mut number = |default: usize| match words.next() {
            Some(word) => word.parse().unwrap_or_else(|_| panic!("{word}: not a number")),
            None => default,
        };
        let operations = number(operations);
        let threads = match number(0) {
            0 => thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        Self { operations, threads, mode: words.next().unwrap_or_else(|| mode.to_owned()) }
    }
}

/// On its own lines. On a line that all threads read, late arrivals at the barrier took the line from the threads that
/// had begun: a tenth of the rate of 64 cores.
#[repr(align(128))]
struct Alone(Barrier);

/// Calls `operation(thread, turn)` for each turn of each thread, after `warm` turns more. Prints the time from when all
/// threads were ready until the last was done. Its sum is printed, too, so that the compiler leaves nothing out.
///
/// # Panics
/// If a thread does.
pub fn run(arguments: &Arguments, warm: usize, operation: impl Fn(usize, usize) -> u64 + Sync) {
    let (start, operation) = (Alone(Barrier::new(arguments.threads)), &operation);
    let measured: Vec<(Instant, Instant, u64)> = thread::scope(|scope| {
        let body = |me: usize| {
            let start = &start;
            move || {
                // One-time work of a thread (its place among the readers, the first access to each line) is not
                // measured.
                for turn in 0..warm {
                    std::hint::black_box(operation(me, arguments.operations + turn));
                }
                start.0.wait();
                let begin = Instant::now();
                let sum = (0..arguments.operations).map(|turn| operation(me, turn)).sum();
                (begin, Instant::now(), sum)
            }
        };
        let threads: Vec<_> = (0..arguments.threads).map(|me| scope.spawn(body(me))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread fails")).collect()
    });
    let begin = measured.iter().map(|(begin, ..)| *begin).min();
    let end = measured.iter().map(|(_, end, _)| *end).max();
    let took = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end.duration_since(begin));
    // The time that a thread needs for its operations, without the others' later start.
    let each: u128 = measured.iter().map(|(begin, end, _)| (*end - *begin).as_nanos()).sum();
    let sum: u64 = measured.iter().map(|(.., sum)| sum).fold(0, |all, sum| all.wrapping_add(*sum));
    let work = arguments.threads * arguments.operations;
    println!(
        "operations {work} threads {} nanoseconds {} thread-nanoseconds {each} sum {sum}",
        arguments.threads,
        took.as_nanos()
    );
}
