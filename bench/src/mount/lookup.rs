//! Names without an earlier lookup, all in one directory, by one client and by two.
//!
//! `lookup-fresh-N` is the rate with N clients, `lookup-fresh-N-cpu` the server's CPU time per name,
//! `lookup-fresh-1-one-core-cpu` the same with client and server confined to one core ([`super::getattr`] has the
//! reason). Fresh means: neither the kernel nor the server has cached the name. Servers over the host's directory are
//! mounted anew for each sample; `memory:` would lose its files by that, so only the kernel's caches of the mount are
//! dropped, and its own are always warm.

use super::{Bench, Round};
use crate::client;
use crate::cpu::{self, ProcessCpu};
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

const SYSTEMS: [System; 7] = [
    System::Uvfs,
    System::UvfsMemory,
    System::Bare,
    System::BareRing,
    System::FuserBare,
    System::LibfusePassthrough,
    System::Bindfs,
];

/// Measures with one and with two clients.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let names: Vec<String> = (0..bench.sizes.names).map(|at| format!("name-{at:06}")).collect();
    let backing = bench.folder("lookup-backing")?;
    fill(&backing, &names)?;
    let memory = bench.start(System::UvfsMemory, &backing, "lookup");
    memory.as_ref().map_or(Ok(()), |memory| fill(memory.root(), &names))?;
    let core = cpu::first_core()?;
    let mut systems = SYSTEMS.to_vec();
    for round in bench.rounds(bench.runs) {
        systems.retain(|&system| {
            let mut sample_both = || -> io::Result<bool> {
                for (threads, core) in [(1, None), (2, None), (1, Some(core))] {
                    let fresh;
                    let one = if system == System::UvfsMemory {
                        memory.as_ref()
                    } else {
                        fresh = bench.start(system, &backing, "lookup");
                        fresh.as_ref()
                    };
                    let Some(one) = one else { return Ok(false) };
                    sample(one, &names, (threads, core), round, report)?;
                }
                Ok(true)
            };
            sample_both().unwrap_or_else(|error| {
                bench.failed(system, "lookup-fresh", &error);
                false
            })
        });
    }
    Ok(())
}

fn fill(folder: &Path, names: &[String]) -> io::Result<()> {
    names.iter().try_for_each(|name| File::create(folder.join(name)).map(drop))
}

fn sample(
    one: &Running,
    names: &[String],
    (threads, core): (usize, Option<usize>),
    round: Round,
    report: &mut Report,
) -> io::Result<()> {
    one.drop_kernel_caches()?;
    let pid = one.pid().ok_or_else(|| io::Error::other("no server"))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(one.root(), flags, Mode::empty())?;
    cpu::confine_process(pid, core)?;
    let server = ProcessCpu::start(pid)?;
    let taken = client::together(threads, |at| {
        core.map_or(Ok(()), cpu::confine_this_thread)?;
        names.iter().skip(at).step_by(threads).try_for_each(|name| client::lookup(&directory, name))
    })?;
    let server = server.used()?;
    if round == Round::Counts {
        let (system, count) = (one.system().name(), names.len() as f64);
        let rate = count / taken.wall.as_secs_f64() / 1e3;
        let server_us = each_us(server, count);
        if core.is_some() {
            let case = format!("lookup-fresh-{threads}-one-core-cpu");
            report.sample(&case, system, threads, Unit::CpuMicroseconds, server_us);
            return Ok(());
        }
        let case = format!("lookup-fresh-{threads}");
        report.sample(&case, system, threads, Unit::ThousandsPerSecond, rate);
        let case = format!("{case}-cpu");
        report.sample(&case, system, threads, Unit::CpuMicroseconds, server_us);
    }
    Ok(())
}

fn each_us(time: Duration, count: f64) -> f64 {
    time.as_secs_f64() * 1e6 / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_directory_gets_one_file_for_each_name() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-names-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fill(&folder, &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
