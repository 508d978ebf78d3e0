//! Users of one machine: `contention_users TURNS USERS DISKS:IMAGE`. Each user's files are on one of the disks, each of which
//! has a file system for writing that begins as `IMAGE`.
//!
//! # Why
//! More users than cores, as in Gaede's benchmark: while one waits for a disk, another one computes. A disk has its own queue: a
//! request is served when those before it are, in the time that its bytes need. It has a cache for writes, so that only reads
//! and flushes are waited for. Weakness: a machine moves a disk's bytes without a processor's help; here they are copied, under
//! one lock for each stretch of the disk.

#![forbid(unsafe_code)]

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_bench_workload::users::{User, furnish};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_ext::Device;
use uvfs_ext_write::WriteDevice;
use uvfs_vfs::{Caller, Vfs, VfsConfig};

static STRETCH: LockClass = LockClass::new(9_100, "users-stretch", "a stretch of a disk's bytes");
static QUEUE: LockClass = LockClass::new(9_000, "users-queue", "when a disk is free again");

/// Turns of a user before its time is taken.
const WARM: usize = 2;
/// Bytes under one lock.
const STRETCH_BYTES: u64 = 16 << 10;
/// Times of a request without its bytes and of a flush, and bytes in a microsecond: a solid-state disk.
const REQUEST: Duration = Duration::from_micros(1);
const FLUSH: Duration = Duration::from_micros(20);
const BYTES_A_MICROSECOND: u64 = 4_000;

/// A disk in memory that takes time.
#[derive(Debug)]
struct Disk {
    length: u64,
    stretches: Vec<Mutex<Box<[u8]>>>,
    free: Mutex<Instant>,
}

impl Disk {
    fn new(bytes: &[u8]) -> Self {
        let stretch = |bytes: &[u8]| Mutex::new(&STRETCH, bytes.into());
        Self {
            length: bytes.len() as u64,
            stretches: bytes.chunks(STRETCH_BYTES as usize).map(stretch).collect(),
            free: Mutex::new(&QUEUE, Instant::now()),
        }
    }

    /// Puts a request at the end of the queue; returns when it is done.
    fn queue(&self, request: Duration, bytes: u64) -> Instant {
        let takes = request + Duration::from_nanos(bytes * 1000 / BYTES_A_MICROSECOND);
        let now = Instant::now();
        let mut free = self.free.lock();
        *free = now.max(*free) + takes;
        *free
    }

    fn wait(until: Instant) {
        thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    /// Calls `each` with the bytes of each stretch that the range has a part in, and with the part's place in the range.
    fn stretches(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(&mut [u8], usize),
    ) -> io::Result<()> {
        if offset + length as u64 > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (nth, within) = ((at / STRETCH_BYTES) as usize, (at % STRETCH_BYTES) as usize);
            let mut stretch = self.stretches[nth].lock();
            let end = stretch.len().min(within + length - done);
            each(&mut stretch[within..end], done);
            done += end - within;
        }
        Ok(())
    }
}

impl Device for Disk {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let done = self.queue(REQUEST, into.len() as u64);
        let length = into.len();
        self.stretches(offset, length, |bytes, at| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
        })?;
        Self::wait(done);
        Ok(())
    }
}

impl WriteDevice for Disk {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for slice in from {
            self.stretches(at, slice.len(), |bytes, within| {
                bytes.copy_from_slice(&slice[within..within + bytes.len()]);
            })?;
            at += slice.len() as u64;
        }
        self.queue(REQUEST, at - offset);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Self::wait(self.queue(FLUSH, 0));
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}

fn main() {
    let arguments = Arguments::read(8, "");
    let (disks, path) = arguments.mode.split_once(':').expect("DISKS:IMAGE");
    let disks: usize = disks.parse().expect("a number of disks");
    let bytes = std::fs::read(path).expect("an image");
    let roots: Vec<_> = (0..disks)
        .map(|_| {
            let disk = Arc::new(Disk::new(&bytes));
            let image = WritingImage::open(disk, &WritingConfig::default()).expect("an image");
            let vfs = Vfs::new(image, VfsConfig::default()).expect("a healthy store");
            let root = vfs.root_directory(Caller::root());
            furnish(&root).expect("room");
            root
        })
        .collect();
    let user = |nth: usize| User::settle(roots[nth % disks].clone(), nth).expect("room");
    let users: Vec<_> = (0..arguments.threads).map(user).collect();
    contended::run(&arguments, WARM, |me, turn| users[me].turn(turn).expect("room"));
}
