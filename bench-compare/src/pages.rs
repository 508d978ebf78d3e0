//! `bench-compare-pages`: the rivals of uvfs's page cache and of its index.
//!
//! # Boundary
//! `bench-compare radix`, `hit` and `evict`, which start it with the same words; each is described in
//! its own module.
//!
//! # Why
//! It is a separate program because of the allocator: all rivals here have mimalloc, since much of
//! their work is to get memory; the walk's rivals keep the one that they were measured with. It asks
//! for huge pages where the kernel gives them on request, unless `MIMALLOC_ALLOW_THP=0` is set.

#![forbid(unsafe_code)]

mod evict;
mod hit;
mod radix;

use std::io;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (requests, answers) = (io::stdin().lock(), io::stdout().lock());
    let served = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["radix"] => radix::serve(requests, answers),
        ["hit"] => hit::serve(requests, answers, hit::start),
        // Started by the line before.
        ["hit", "alone"] => hit::serve_alone(requests, answers),
        ["evict"] => evict::serve(requests, answers),
        _ => {
            eprintln!("usage: bench-compare radix | hit | evict");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-compare: {error}");
            ExitCode::FAILURE
        }
    }
}
