//! One GETATTR after the other on an open file: the cost of a round trip.
//!
//! `getattr-cpu` is the server's CPU time per request, its part of the kernel's work included;
//! `getattr-total-cpu` adds the client's; `getattr-rate` is the rate of one client.
//! `getattr-one-core-cpu` is the first of these with client and server confined to one core.
//!
//! # Why
//! A server whose threads sleep and wake on another core than the client pays for waking that core.
//! In a virtual machine that is several times the work itself. The scheduler's choice of a core
//! varies, so the figures of the free run have two modes. On one core only the work is left.

use super::{Bench, Round};
use crate::client;
use crate::cpu::{self, ProcessCpu};
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use std::fs::{self, File};
use std::io;
use std::time::Duration;

const CASE: &str = "getattr-cpu";
const FILE: &str = "file";
const SYSTEMS: [System; 10] = [
    System::Uvfs,
    System::UvfsUncached,
    System::UvfsMemory,
    System::Bare,
    System::BareOneReader,
    System::BareRing,
    System::FuserBare,
    System::LibfusePassthrough,
    System::LibfusePassthroughOneThread,
    System::Bindfs,
];

/// Measures the three cases.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let backing = bench.folder("getattr-backing")?;
    File::create(backing.join(FILE))?;
    let mut running = bench.start_all(&SYSTEMS, &backing, "getattr");
    for one in running.iter().filter(|one| one.system() == System::UvfsMemory) {
        fs::write(one.root().join(FILE), "")?;
    }
    let core = cpu::first_core()?;
    // Short samples and many: the scheduler's choices affect each system equally often.
    bench.take_turns(CASE, &mut running, bench.runs.saturating_mul(3), |one, round| {
        let system = one.system().name();
        let free = sample(one, bench.sizes.getattrs, None)?;
        let confined = sample(one, bench.sizes.getattrs, Some(core))?;
        if round == Round::Counts {
            let (cpu, total_us) = (Unit::CpuMicroseconds, free.server_us + free.client_us);
            report.sample(CASE, system, 1, cpu, free.server_us);
            report.sample("getattr-one-core-cpu", system, 1, cpu, confined.server_us);
            report.sample("getattr-total-cpu", system, 1, cpu, total_us);
            report.sample("getattr-rate", system, 1, Unit::ThousandsPerSecond, free.rate);
        }
        Ok(())
    });
    Ok(())
}

struct Sample {
    server_us: f64,
    client_us: f64,
    /// Thousands a second.
    rate: f64,
}

/// `requests` round trips, client and server on `core`, or anywhere.
fn sample(one: &Running, requests: u64, core: Option<usize>) -> io::Result<Sample> {
    let pid = one.pid().ok_or_else(|| io::Error::other("no server"))?;
    cpu::confine_process(pid, core)?;
    let file = client::open_path(&one.root().join(FILE))?;
    let first = client::getattr(&file)?;
    let server = ProcessCpu::start(pid)?;
    let taken = client::together(1, |_| {
        core.map_or(Ok(()), cpu::confine_this_thread)?;
        for _ in 0..requests {
            client::getattr(&file)?;
        }
        Ok(())
    })?;
    let server = server.used()?;
    let counted = client::getattr(&file)? - first;
    if one.system().is_bare() && counted != requests + 1 {
        let odd = format!("{requests} calls were {counted} requests, the last one included");
        return Err(io::Error::other(odd));
    }
    let each_us = |time: Duration| time.as_secs_f64() * 1e6 / requests as f64;
    Ok(Sample {
        server_us: each_us(server),
        client_us: each_us(taken.cpu),
        rate: requests as f64 / taken.wall.as_secs_f64() / 1e3,
    })
}
