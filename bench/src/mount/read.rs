//! Reading one large file whose contents are in memory already.
//!
//! `read-1m` opens the file and reads it from end to end in pieces of 1 MiB; `read-4k-random` reads
//! aligned pieces of 4 KiB at random places of the open file. Every system has read the whole file
//! once before, so this is about copying and about round trips, not about the disk. `read-1m-cpu` and
//! `read-4k-random-cpu` are the CPU time of client and server together.

use super::{Bench, Round};
use crate::client::{self, Random};
use crate::cpu::Meter;
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const FILE: &str = "large";
const SYSTEMS: [System; 6] = [
    System::Host,
    System::Uvfs,
    System::UvfsNoPassthrough,
    System::UvfsMemory,
    System::LibfusePassthrough,
    System::Bindfs,
];

/// Measures `read-1m`.
pub(super) fn sequential(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    with_file(bench, "read-1m", |one, round| {
        let meter = Meter::start(one.pid())?;
        let read = client::read_through(&one.root().join(FILE), &mut buffer)?;
        let taken = meter.read()?;
        if read != bench.sizes.file_bytes {
            return Err(io::Error::other(format!("only {read} bytes came")));
        }
        if round == Round::Counts {
            let (system, mebibytes) = (one.system().name(), read as f64 / f64::from(1 << 20));
            let rate = mebibytes / taken.wall.as_secs_f64();
            report.sample("read-1m", system, 1, Unit::MebibytesPerSecond, rate);
            let cpu_us = taken.cpu.as_secs_f64() * 1e6 / mebibytes;
            report.sample("read-1m-cpu", system, 1, Unit::CpuMicrosecondsPerMebibyte, cpu_us);
        }
        Ok(())
    })
}

/// Measures `read-4k-random`.
pub(super) fn random(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let (reads, pages) = (bench.sizes.random_reads, bench.sizes.file_bytes / 4096);
    with_file(bench, "read-4k-random", |one, round| {
        let file = File::open(one.root().join(FILE))?;
        // The open may have made the kernel drop its pages of the file.
        client::read_through(&one.root().join(FILE), &mut vec![0; 1 << 20])?;
        let (mut random, mut buffer) = (Random(1), [0; 4096]);
        let meter = Meter::start(one.pid())?;
        for _ in 0..reads {
            file.read_exact_at(&mut buffer, random.next() % pages * 4096)?;
        }
        let taken = meter.read()?;
        if round == Round::Counts {
            let (case, system) = ("read-4k-random", one.system().name());
            let rate = reads as f64 / taken.wall.as_secs_f64() / 1e3;
            report.sample(case, system, 1, Unit::ThousandsPerSecond, rate);
            let cpu_us = taken.cpu.as_secs_f64() * 1e6 / reads as f64;
            report.sample("read-4k-random-cpu", system, 1, Unit::CpuMicroseconds, cpu_us);
        }
        Ok(())
    })
}

/// Lets the systems take turns, each with the file at its root.
fn with_file(
    bench: &Bench,
    case: &str,
    round: impl FnMut(&Running, Round) -> io::Result<()>,
) -> io::Result<()> {
    let backing = bench.folder("read-backing")?;
    let contents: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    client::write_through(&backing.join(FILE), bench.sizes.file_bytes, &contents, None)?;
    let mut running = bench.start_all(&SYSTEMS, &backing, case);
    for one in running.iter().filter(|one| one.system() == System::UvfsMemory) {
        client::write_through(&one.root().join(FILE), bench.sizes.file_bytes, &contents, None)?;
    }
    bench.take_turns(case, &mut running, bench.runs, round);
    drop(running);
    std::fs::remove_dir_all(&backing)
}
