//! Opening and closing files whose names are known.
//!
//! `open-close` is the rate of one client that opens and closes each of many files once; `open-same` that of opening
//! and closing one file again and again. `open-held` is that of opening many and only then closing them: it has the
//! cost of an open file beside many others.

use super::{Bench, Round};
use crate::context;
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SYSTEMS: [System; 6] = [
    System::Host,
    System::Uvfs,
    System::UvfsNoPassthrough,
    System::UvfsWriteBack,
    System::LibfusePassthrough,
    System::Bindfs,
];
/// Files held open: below the usual soft limit of a process.
const HELD_MAX: usize = 800;

/// Measures all three.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let backing = bench.folder("open-backing")?;
    let names: Vec<String> = (0..bench.sizes.names).map(|at| format!("file-{at:06}")).collect();
    for name in &names {
        fs::write(backing.join(name), "content").map_err(context(backing.display()))?;
    }
    let mut running = bench.start_all(&SYSTEMS, &backing, "open");
    bench.take_turns("open", &mut running, bench.runs, |one, round| {
        let taken = sample(one, &names)?;
        if round == Round::Counts {
            for (case, rate) in taken {
                report.sample(case, one.system().name(), 1, Unit::ThousandsPerSecond, rate);
            }
        }
        Ok(())
    });
    Ok(())
}

/// Thousands a second, for each case.
fn sample(one: &Running, names: &[String]) -> io::Result<[(&'static str, f64); 3]> {
    let paths: Vec<PathBuf> = names.iter().map(|name| one.root().join(name)).collect();
    let Some(first) = paths.first() else { return Err(io::Error::other("no files")) };
    let each = timed(|| paths.iter().try_for_each(|path| File::open(path).map(drop)))?;
    let same = timed(|| paths.iter().try_for_each(|_| File::open(first).map(drop)))?;
    let held_paths = &paths[..paths.len().min(HELD_MAX)];
    let held = timed(|| {
        let open: io::Result<Vec<File>> = held_paths.iter().map(File::open).collect();
        open.map(drop)
    })?;
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64() / 1e3;
    Ok([
        ("open-close", rate(paths.len(), each)),
        ("open-same", rate(paths.len(), same)),
        ("open-held", rate(held_paths.len(), held)),
    ])
}

fn timed(run: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed())
}
