//! `uvfs-fuzz-blind TARGET SECONDS [SEED]`: a target under random inputs, for so long, on any compiler.
//!
//! # Boundary
//! Makes inputs and checks three things: that none panics, that none takes longer than [`LIMIT`], and that the process
//! never has more memory than [`BYTES_MAX`]. If one fails, it prints the input and ends with status 1.
//!
//! # Concurrency
//! A second thread watches the clock: an input that does not end cannot report itself.
//!
//! # Why
//! libFuzzer needs nightly and a tool that not every machine has. Weakness: blind. Without coverage it finds only
//! faults that a few changes at random places trigger.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_fuzz_targets::TARGETS;

static UNDER_WAY: LockClass =
    LockClass::new(1, "fuzz-input", "the input that a fuzz target has now");

/// One input ends within this, on a busy machine too.
const LIMIT: Duration = Duration::from_secs(20);
/// Largest memory of the process: for an image of 4 MiB the promise is 64, with the program and the sources of the
/// inputs.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes of an input, at most: of an image 80 changes.
const INPUT_MAX: u64 = 400;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let target = words.first().and_then(|name| TARGETS.iter().find(|target| target.0 == name));
    let seconds = words.get(1).and_then(|word| word.parse().ok());
    let seed = words.get(2).map_or(Some(1), |word| word.parse().ok());
    let (Some(&(name, run)), Some(seconds), Some(seed)) = (target, seconds, seed) else {
        let known: Vec<_> = TARGETS.iter().map(|target| target.0).collect();
        eprintln!("uvfs-fuzz-blind TARGET SECONDS [SEED]; targets: {}", known.join(", "));
        return ExitCode::from(2);
    };
    let (begin, mut numbers) = (Instant::now(), Numbers(seed));
    let under_way = Arc::new(Mutex::new(&UNDER_WAY, (Instant::now(), Vec::new())));
    watch(name, under_way.clone());
    let (mut inputs, mut slowest, mut reported) = (0_u64, Duration::ZERO, begin);
    while begin.elapsed() < Duration::from_secs(seconds) {
        let input = made(&mut numbers);
        let start = Instant::now();
        *under_way.lock() = (start, input.clone());
        if catch_unwind(AssertUnwindSafe(|| run(&input))).is_err() {
            return failed(name, "panicked", &input);
        }
        slowest = slowest.max(start.elapsed());
        inputs += 1;
        if inputs.is_multiple_of(64) && resident_peak() > BYTES_MAX {
            return failed(name, "or one before it took more than 64 MiB", &input);
        }
        if reported.elapsed() > Duration::from_secs(60) {
            reported = Instant::now();
            tell(name, inputs, slowest, begin.elapsed());
        }
    }
    tell(name, inputs, slowest, begin.elapsed());
    ExitCode::SUCCESS
}

fn tell(name: &str, inputs: u64, slowest: Duration, elapsed: Duration) {
    println!(
        "{name}: {inputs} inputs in {} s, the slowest took {slowest:.1?}, {} KiB at most",
        elapsed.as_secs(),
        resident_peak() >> 10
    );
}

fn failed(name: &str, what: &str, input: &[u8]) -> ExitCode {
    eprintln!("{name}: this input {what}: {}", input.escape_ascii());
    ExitCode::FAILURE
}

/// Ends the process when an input takes too long.
fn watch(name: &'static str, under_way: Arc<Mutex<(Instant, Vec<u8>)>>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = under_way.lock();
            if now.0.elapsed() > LIMIT {
                failed(name, "took longer than 20 s", &now.1);
                std::process::exit(1);
            }
        }
    });
}

/// Bytes of any length, mostly short, in runs that are alike or not.
fn made(numbers: &mut Numbers) -> Vec<u8> {
    let longest = 1 + numbers.below(INPUT_MAX);
    let length = numbers.below(longest);
    let style = numbers.below(4);
    let mut input: Vec<u8> = (0..length).map(|_| numbers.below(256) as u8).collect();
    if style == 0 {
        // Small numbers: the first blocks, the first bytes.
        input.iter_mut().for_each(|byte| *byte &= 0x1f);
    } else if style == 1 && input.len() > 10 {
        // The same place again and again.
        let first: Vec<u8> = input[..5].to_vec();
        for change in input.chunks_exact_mut(5) {
            change[..3].copy_from_slice(&first[..3]);
        }
    }
    input
}

/// Most memory that this process has had.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

/// splitmix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
