//! Hits while misses are stuck: the view of one client while eight others wait for a store that
//! does not answer.
//!
//! The store is the bare server with lookups that take long; the systems are mounted over it. One
//! client asks for the attributes of an open file, again and again, for a fixed time.
//! `slow-store-idle` is without stuck clients, `slow-store-stuck` with them.

use super::{Bench, Round};
use crate::client;
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

const SYSTEMS: [System; 3] = [System::Uvfs, System::LibfusePassthrough, System::Bindfs];
/// More than any server here has readers.
const STUCK_CLIENTS: u32 = 8;

/// Measures both cases.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let stuck = Duration::from_millis(bench.sizes.stuck_ms);
    let store = Running::start_stuck(&bench.places, stuck)?;
    let mut running = bench.start_all(&SYSTEMS, store.root(), "slow-store");
    let mut sample_number = 0;
    // A round takes as long as the store is stuck, for each system; three are enough.
    let runs = bench.runs.min(3);
    bench.take_turns("slow-store", &mut running, runs, |one, round| {
        sample_number += 1;
        let idle = hits(one, stuck / 3)?;
        let busy = while_stuck(one, sample_number, || hits(one, stuck / 3))?;
        if round == Round::Counts {
            let (system, unit) = (one.system().name(), Unit::ThousandsPerSecond);
            report.sample("slow-store-idle", system, 1, unit, idle);
            report.sample("slow-store-stuck", system, 1, unit, busy);
        }
        Ok(())
    });
    drop(running);
    Ok(())
}

/// Thousands of GETATTR requests a second, over `time`; at least one is made.
fn hits(one: &Running, time: Duration) -> io::Result<f64> {
    let file = client::open_path(&one.root().join("file"))?;
    let (begin, mut count) = (Instant::now(), 0_u64);
    while count == 0 || begin.elapsed() < time {
        client::getattr(&file)?;
        count += 1;
    }
    Ok(count as f64 / begin.elapsed().as_secs_f64() / 1e3)
}

/// The result of `during` while clients are stuck in lookups of fresh names.
fn while_stuck<T>(
    one: &Running,
    sample_number: u64,
    during: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    thread::scope(|scope| {
        for at in 0..STUCK_CLIENTS {
            let path = one.root().join(format!("stuck-{sample_number}-{at}"));
            // It ends with ENOENT when the store answers at last.
            scope.spawn(move || drop(client::open_path(&path)));
        }
        thread::sleep(Duration::from_millis(20));
        during()
    })
}
