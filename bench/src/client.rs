//! The clients' work: loops of one system call, timed.
//!
//! # Concurrency
//! Each client is a thread of this process and starts at a barrier. Its CPU time is its own thread
//! clock; the wall time is that of the slowest.
//!
//! # Why
//! `statx` with FORCE_SYNC asks the server every time, whatever lifetime its answers have. So
//! servers with long and short lifetimes are measured by the same call: exactly one GETATTR.

use crate::cpu::{self, Meter, Reading};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// The time of a group of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// On the clock, from the barrier to the last client's end.
    pub(crate) wall: Duration,
    /// CPU time of all clients together, kernel included.
    pub(crate) cpu: Duration,
}

/// Runs `client(0)` to `client(threads - 1)` at the same time.
pub(crate) fn together(
    threads: usize,
    client: impl Fn(usize) -> io::Result<()> + Sync,
) -> io::Result<Taken> {
    let (client, barrier) = (&client, &Barrier::new(threads));
    let one = move |at: usize| -> io::Result<(Instant, Instant, Duration)> {
        barrier.wait();
        let (begin, cpu) = (Instant::now(), cpu::of_this_thread());
        client(at)?;
        Ok((begin, Instant::now(), cpu::of_this_thread().saturating_sub(cpu)))
    };
    let ends: Vec<io::Result<_>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..threads).map(|at| scope.spawn(move || one(at))).collect();
        let crashed = |_| Err(io::Error::other("a client panicked"));
        clients.into_iter().map(|client| client.join().unwrap_or_else(crashed)).collect()
    });
    let ends = ends.into_iter().collect::<io::Result<Vec<_>>>()?;
    let begin = ends.iter().map(|end| end.0).min();
    let end = ends.iter().map(|end| end.1).max();
    let wall = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
    Ok(Taken { wall, cpu: ends.iter().map(|end| end.2).sum() })
}

/// One forced GETATTR of `file`; its size.
pub(crate) fn getattr(file: impl AsFd) -> io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    Ok(rustix::fs::statx(file, "", flags, StatxFlags::BASIC_STATS)?.stx_size)
}

/// Opens `path` without asking the server for more than its name.
pub(crate) fn open_path(path: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Looks `name` up in `directory`, with cached attributes if there are any.
pub(crate) fn lookup(directory: impl AsFd, name: &str) -> io::Result<()> {
    rustix::fs::statx(directory, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE)?;
    Ok(())
}

/// Opens `path` and reads it to its end, `buffer` by buffer; the bytes read.
pub(crate) fn read_through(path: &Path, buffer: &mut [u8]) -> io::Result<u64> {
    let (file, mut at) = (File::open(path)?, 0);
    loop {
        match file.read_at(buffer, at)? {
            0 => return Ok(at),
            read => at += read as u64,
        }
    }
}

/// The time to write a fresh file, and then to make it durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Written {
    /// Until the last write returned.
    pub(crate) write: Reading,
    /// Until `fdatasync` returned, from the beginning.
    pub(crate) durable: Reading,
}

/// Writes `bytes` into a new file at `path`, `buffer` by buffer, and makes them durable. The CPU
/// time of `server` counts too.
pub(crate) fn write_through(
    path: &Path,
    bytes: u64,
    buffer: &[u8],
    server: Option<u32>,
) -> io::Result<Written> {
    let meter = Meter::start(server)?;
    let (file, mut at) = (File::create(path)?, 0);
    while at < bytes {
        file.write_all_at(buffer, at)?;
        at += buffer.len() as u64;
    }
    let write = meter.read()?;
    file.sync_data()?;
    Ok(Written { write, durable: meter.read()? })
}

/// A small generator of numbers that look random and are the same in every run (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_run_together_and_failures_come_out() {
        let meet = Barrier::new(2);
        let meeting = |_| {
            meet.wait();
            Ok(())
        };
        assert!(together(2, meeting).is_ok(), "one after the other would never end");
        let failing = |at| if at == 1 { Err(io::Error::other("no")) } else { Ok(()) };
        assert_eq!(together(2, failing).unwrap_err().to_string(), "no");
    }

    #[test]
    fn files_are_written_and_read_whole() {
        let path = std::env::temp_dir().join(format!("uvfs-bench-client-{}", std::process::id()));
        let written = write_through(&path, 10_000, &[7; 1000], None).unwrap();
        assert!(written.write.wall <= written.durable.wall);
        assert_eq!(read_through(&path, &mut [0; 4096]).unwrap(), 10_000);
        assert_eq!(getattr(open_path(&path).unwrap()).unwrap(), 10_000);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn random_numbers_repeat_from_the_seed() {
        let (mut one, mut two) = (Random(7), Random(7));
        assert_eq!([one.next(), one.next()], [two.next(), two.next()]);
    }
}
