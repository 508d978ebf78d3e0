//! Every fuzz target runs, on any compiler: over its seeds, and over inputs derived from them.
//!
//! Bug: a target of the five did not compile for weeks, and the two behind it in the alphabet never ran, since the
//! fuzzer stopped at the first; the gate was green all the while. The rounds are fixed, so that a run on a slow machine
//! sees the same inputs, and the numbers are the same in every run: this checks that targets still hold. The fuzzer (or
//! `UVFS_SEED=N`) searches for new faults.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use uvfs_fuzz_targets::{TARGETS, Target};
use uvfs_tests::Numbers;

/// Longer ones are cut: short ones show the same.
const BYTES_MAX: usize = 4096;

fn seeds_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// The committed inputs of a target, in the order of their names.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(seeds_folder().join(name)).expect("a folder of seeds");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// One input near the seeds: one of them, or its beginning and the end of another, with some bytes changed.
fn made(seeds: &[Vec<u8>], numbers: &mut Numbers) -> Vec<u8> {
    let mut input = numbers.of(seeds).clone();
    if numbers.below(3) == 0 {
        let other = numbers.of(seeds);
        input.truncate(numbers.below(input.len() as u64 + 1) as usize);
        input.extend_from_slice(&other[numbers.below(other.len() as u64 + 1) as usize..]);
    }
    for _ in 0..numbers.below(5) {
        let at = numbers.below(input.len() as u64 + 1) as usize;
        let byte = numbers.below(256) as u8;
        match (numbers.below(5), input.get_mut(at)) {
            (0, Some(there)) => *there = byte,
            (1, Some(there)) => *there ^= 1 << (byte & 7),
            (2, Some(_)) => drop(input.remove(at)),
            // Duplicate a part: a line, a record, a separator.
            (3, Some(_)) => {
                let end = (at + 1 + usize::from(byte & 15)).min(input.len());
                let again = input[at..end].to_vec();
                input.splice(at..at, again);
            }
            _ => input.insert(at, byte),
        }
    }
    input.truncate(BYTES_MAX);
    input
}

/// Runs one input, and names it when the target panics.
fn run(name: &str, target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        println!("{name} panicked at this input: {:?}", input.escape_ascii().to_string());
        std::panic::resume_unwind(panic);
    }
}

/// Runs a target over its seeds and over the given number of derived inputs.
fn drive(name: &str, rounds: u64) {
    let (_, target) = *TARGETS.iter().find(|target| target.0 == name).expect("a target");
    let seeds = seeds(name);
    seeds.iter().for_each(|input| run(name, target, input));
    run(name, target, b"");
    let seed = std::env::var("UVFS_SEED").ok().and_then(|text| text.parse().ok());
    let mut numbers = Numbers(seed.unwrap_or(1));
    for _ in 0..rounds {
        run(name, target, &made(&seeds, &mut numbers));
    }
}

#[test]
fn acl() {
    drive("acl", 10_000);
}

#[test]
fn clean_request() {
    drive("clean_request", 10_000);
}

#[test]
fn control() {
    drive("control", 5_000);
}

#[test]
fn fuse_reply() {
    drive("fuse_reply", 10_000);
}

#[test]
fn fuse_request() {
    drive("fuse_request", 10_000);
}

#[test]
fn handle() {
    drive("handle", 5_000);
}

#[test]
fn image() {
    drive("image", 300);
}

#[test]
fn image_write() {
    drive("image_write", 100);
}

#[test]
fn memory_data() {
    drive("memory_data", 100);
}

#[test]
fn walk() {
    drive("walk", 500);
}

/// A new target is driven here, has seeds, and is handed to the fuzzer.
#[test]
fn every_target_is_driven_and_fuzzed() {
    let source = include_str!("seeds.rs");
    let manifest = fs::read_to_string(seeds_folder().join("../Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(source.contains(&format!("drive(\"{name}\", ")), "{name} is not driven");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is not fuzzed");
        assert!(!seeds(name).is_empty(), "{name} has no seeds");
    }
    assert_eq!(fs::read_dir(seeds_folder()).unwrap().count(), TARGETS.len());
}

/// The stream makes inputs that differ: a driver that repeats its seeds would find nothing.
#[test]
fn the_inputs_differ_and_follow_from_their_seed() {
    let seeds = [b"1:/srv/a\n".to_vec(), b"2:/b".to_vec()];
    let stream = |seed| {
        let mut numbers = Numbers(seed);
        (0..100).map(|_| made(&seeds, &mut numbers)).collect::<Vec<_>>()
    };
    assert_eq!(stream(7), stream(7));
    let mut different = stream(7);
    different.sort();
    different.dedup();
    assert!(different.len() > 50, "{}", different.len());
}
