//! CPU time of processes and of the calling thread.
//!
//! # Boundary
//! Reads `/proc/PID/task/*/schedstat` (nanoseconds on a CPU, user and kernel together) and the
//! thread CPU clock. Knows no bench.
//!
//! # Why
//! `/proc/PID/stat` counts in ticks of 10 ms, which is 2 % of a typical sample. Weakness: the time
//! of a thread that ended since [`ProcessCpu::start`] is lost. Servers keep their threads while
//! they have work, so this loses nothing that matters here.

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// CPU time that a process uses from now on.
#[derive(Debug)]
pub struct ProcessCpu {
    pid: u32,
    before: BTreeMap<u32, u64>,
}

impl ProcessCpu {
    /// Starts counting.
    pub fn start(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, before: by_thread(pid)? })
    }

    /// The CPU time of the process since [`ProcessCpu::start`].
    pub fn used(&self) -> io::Result<Duration> {
        let used = by_thread(self.pid)?
            .iter()
            .map(|(thread, ns)| ns.saturating_sub(*self.before.get(thread).unwrap_or(&0)))
            .sum();
        Ok(Duration::from_nanos(used))
    }
}

/// Time on the clock, and the CPU time of this thread and of a server, from the start on.
#[derive(Debug)]
pub struct Meter {
    begin: Instant,
    client: Duration,
    server: Option<ProcessCpu>,
}

/// A value of a [`Meter`].
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// On the clock.
    pub wall: Duration,
    /// Client and server together.
    pub cpu: Duration,
}

impl Meter {
    /// Starts; without a server only this thread counts.
    pub fn start(server: Option<u32>) -> io::Result<Self> {
        let server = server.map(ProcessCpu::start).transpose()?;
        Ok(Self { begin: Instant::now(), client: of_this_thread(), server })
    }

    /// Reads the clocks; may be done more than once.
    pub fn read(&self) -> io::Result<Reading> {
        let wall = self.begin.elapsed();
        let client = of_this_thread().saturating_sub(self.client);
        let server = self.server.as_ref().map_or(Ok(Duration::ZERO), ProcessCpu::used)?;
        Ok(Reading { wall, cpu: client + server })
    }
}

/// CPU time that process `pid` used in its whole life; it may be dead, but not yet reaped.
pub fn of_life(pid: u32) -> io::Result<Duration> {
    Ok(Duration::from_nanos(by_thread(pid)?.values().sum()))
}

/// Keeps every thread of process `pid` on `core`, or lets it run anywhere again.
pub fn confine_process(pid: u32, core: Option<usize>) -> io::Result<()> {
    for thread in by_thread(pid)?.into_keys() {
        let thread = i32::try_from(thread).ok().and_then(Pid::from_raw);
        match sched_setaffinity(thread, &cores(core)) {
            // It has ended since.
            Err(Errno::SRCH) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Keeps the calling thread on `core`.
pub fn confine_this_thread(core: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &cores(Some(core)))?)
}

/// The lowest core that this process may use.
pub fn first_core() -> io::Result<usize> {
    let allowed = sched_getaffinity(None)?;
    (0..CpuSet::MAX_CPU)
        .find(|&core| allowed.is_set(core))
        .ok_or_else(|| io::Error::other("no core may be used"))
}

/// One core, or all.
fn cores(core: Option<usize>) -> CpuSet {
    let mut set = CpuSet::new();
    match core {
        Some(core) => set.set(core),
        None => (0..CpuSet::MAX_CPU).for_each(|core| set.set(core)),
    }
    set
}

/// CPU time of the calling thread since it began.
pub fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn by_thread(pid: u32) -> io::Result<BTreeMap<u32, u64>> {
    let folder = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&folder).map_err(crate::context(&folder))?;
    let mut threads = BTreeMap::new();
    for task in tasks {
        let task = task?;
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A thread may end between the listing and this.
        if let Ok(text) = fs::read_to_string(task.path().join("schedstat")) {
            threads.insert(thread, parse_schedstat(&text)?);
        }
    }
    Ok(threads)
}

/// The first field: nanoseconds on a CPU.
fn parse_schedstat(text: &str) -> io::Result<u64> {
    let field = text.split_whitespace().next().and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::Error::other(format!("schedstat is odd: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_confined_to_a_core_it_has() {
        let core = first_core().unwrap();
        let confined = move || confine_this_thread(core).and_then(|()| first_core());
        assert_eq!(std::thread::spawn(confined).join().unwrap().unwrap(), core);
    }

    #[test]
    fn the_first_field_is_the_time_on_a_cpu() {
        assert_eq!(parse_schedstat("3515422 17 9\n").unwrap(), 3_515_422);
        assert!(parse_schedstat("").is_err());
        assert!(parse_schedstat("x 1 2").is_err());
    }

    #[test]
    fn work_shows_in_both_clocks() {
        let (process, thread) = (ProcessCpu::start(std::process::id()).unwrap(), of_this_thread());
        let mut sum = 0_u64;
        while of_this_thread() - thread < Duration::from_millis(20) {
            sum = std::hint::black_box(sum + 1);
        }
        // The scheduler's account of a running thread is a tick old at worst.
        std::thread::sleep(Duration::from_millis(1));
        assert!(process.used().unwrap() >= Duration::from_millis(19));
    }
}
