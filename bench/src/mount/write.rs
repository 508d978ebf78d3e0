//! Writing one large new file in pieces of 1 MiB, and making it durable.
//!
//! `write-1m` ends when the last write returned, `write-1m-fdatasync` when `fdatasync` returned.
//! The second is mostly the disk, and as noisy. `write-1m-cpu` is the CPU time of client and server
//! for both.
//!
//! # Why
//! Each sample writes the file twice and counts the second time. Memory that was freed seconds ago
//! has returned to the hypervisor of a virtual machine, and to get it again costs ten times the
//! copying; the system after the slowest one would pay for that.

use super::{Bench, Round};
use crate::client::{self, Written};
use crate::cpu::Reading;
use crate::report::{Report, Unit};
use crate::system::System;
use std::fs;
use std::io;

const SYSTEMS: [System; 6] = [
    System::Host,
    System::Uvfs,
    System::UvfsNoPassthrough,
    System::UvfsMemory,
    System::LibfusePassthrough,
    System::Bindfs,
];

/// Measures both cases.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let backing = bench.folder("write-backing")?;
    let contents = vec![7; 1 << 20];
    let mut running = bench.start_all(&SYSTEMS, &backing, "write-1m");
    bench.take_turns("write-1m", &mut running, bench.runs, |one, round| {
        let file = one.root().join("written");
        let bytes = bench.sizes.file_bytes;
        let write = || -> io::Result<Written> {
            let written = client::write_through(&file, bytes, &contents, one.pid())?;
            // Through the mount: `memory:` has no other way, and no cache must keep it.
            fs::remove_file(&file)?;
            Ok(written)
        };
        write()?;
        let written = write()?;
        if round == Round::Counts {
            let (system, unit) = (one.system().name(), Unit::MebibytesPerSecond);
            let mebibytes = bytes as f64 / f64::from(1 << 20);
            let rate = |taken: Reading| mebibytes / taken.wall.as_secs_f64();
            report.sample("write-1m", system, 1, unit, rate(written.write));
            report.sample("write-1m-fdatasync", system, 1, unit, rate(written.durable));
            let cpu_us = written.durable.cpu.as_secs_f64() * 1e6 / mebibytes;
            report.sample("write-1m-cpu", system, 1, Unit::CpuMicrosecondsPerMebibyte, cpu_us);
        }
        Ok(())
    });
    drop(running);
    fs::remove_dir_all(&backing)
}
