//! FUSE over io_uring: one queue of requests for each core of the machine.
//!
//! # Boundary
//! Moves requests and answers and reads neither. FORGET, INTERRUPT and notices still travel by [`Device`].
//!
//! # Concurrency
//! One thread serves a [`Queue`] and is the only one that talks to its ring. Any thread may send an [`Answer`]: it
//! writes into the slot of its request, and returns the slot to the queue's thread by a short list behind a lock.
//!
//! ```text
//!            request               Arrival              Answer::send            submitted
//!  kernel ────────────▶ queue's thread ─────▶ Answer ────────────▶ queue's thread ──────▶ kernel
//! ```
//! U1. A slot has one owner at a time, the holder in the picture, and only its owner reads or writes its memory. An
//!     [`Answer`] is the only value that names its slot, and has no copy.
//! U2. While a request's payload is lent to its handler, its answer is kept apart, and is copied into the slot when the
//!     queue's thread has the slot again, after the handler returned.
//! U3. The memory lives as long as the queue, its answers, and the kernel's hold on any slot: if a ring is closed
//!     before the kernel has returned all, for ever.
//! U4. Before a ring is enabled it is restricted to commands on its two descriptors: the device and the bell. A
//!     sandboxed thread can do nothing else by it.
//! U5. The queue's thread returns pages of a slot to the system between an answer and its commit, beyond the answer.
//!
//! # Why
//! `/dev/fuse` has one queue and two system calls a request. Weakness: slow requests of one core may use up its slots.

use crate::Device;
use io_uring::register::Restriction;
use io_uring::squeue::{self, Entry128};
use io_uring::types::Fixed;
use io_uring::{IoUring, cqueue, opcode};
use rustix::event::EventfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Bytes of a slot for the headers: a page.
const HEADERS: usize = 4096;
/// Where the parts of `struct fuse_uring_req_header` begin: `in_out`, `op_in`, `ring_ent_in_out`.
const MESSAGE_AT: usize = 0;
const ARGUMENT_AT: usize = 128;
const ENTRY_AT: usize = 256;
/// Bytes of each of the first two.
pub const PART_BYTES: usize = 128;
/// A payload up to this size is copied before it is handled, so that the answer has the slot.
const COPIED_MAX: usize = 4096;

/// Failures of io_uring_enter(2), one after the other, that a queue survives, and the pause after each. The kernel
/// reports a lack of memory this way, which passes.
const FAILURES_MAX: u32 = 20;
const FAILURE_PAUSE: Duration = Duration::from_millis(5);

/// Payload bytes that the slots of all queues of the process have touched, and so keep.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Payload bytes of all queues of the process that are resident.
pub fn held_bytes() -> u64 {
    // ORDERING: Relaxed; a size.
    HELD.load(Relaxed)
}

/// FUSE_IO_URING_CMD_REGISTER and _COMMIT_AND_FETCH.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// The descriptors of a ring.
const DEVICE: Fixed = Fixed(0);
const BELL: Fixed = Fixed(1);
/// Marks the completion of the bell.
const BELL_DATA: u64 = u64::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// The sizes of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Requests that a queue can have at once.
    pub slots: usize,
    /// Bytes of data of one request or answer: at least 8 KiB, the largest write, and the pages of the largest read.
    pub payload_bytes: usize,
    /// While the slots of all queues keep more bytes than this, a queue returns the pages of each answered slot.
    pub kept_bytes: u64,
}

impl Sizes {
    /// Bytes of memory that a slot may use.
    pub const fn slot_bytes(payload_bytes: usize) -> usize {
        HEADERS + payload_bytes.next_multiple_of(HEADERS)
    }
}

/// The requests of one core.
pub struct Queue {
    ring: Ring,
    core: u16,
    shared: Arc<Shared>,
    /// Slots that the kernel has.
    in_kernel: usize,
    /// Completions that are still to be handled.
    completed: Vec<(u64, i32)>,
    /// Bytes of each slot's payload that may be resident.
    touched: Vec<usize>,
    scratch: Scratch,
}

/// What a queue shares with its answers.
#[derive(Debug)]
struct Shared {
    memory: Memory,
    sizes: Sizes,
    returned: Mutex<Returned>,
    bell: OwnedFd,
}

/// Slots on their way back to the queue's thread.
#[derive(Debug, Default)]
struct Returned {
    slots: Vec<Sent>,
    /// The queue's thread waits in the kernel, and must be woken.
    parked: bool,
    /// The mount has ended: the thread is to end, whatever requests are still to be answered.
    stopping: bool,
    /// The session is given up: the thread is to end, whatever slots the kernel has.
    abandoned: bool,
}

/// Ends the service of a queue, from another thread.
#[derive(Debug)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// The mount has ended. Later answers are dropped.
    pub fn stop(&self) {
        self.0.returned.lock().stopping = true;
        self.0.ring_bell();
    }

    /// The session is given up: the queue ends although the kernel has slots.
    pub fn abandon(&self) {
        self.0.returned.lock().abandoned = true;
        self.0.ring_bell();
    }
}

/// An answered slot.
#[derive(Debug)]
struct Sent {
    slot: u32,
    commit: u64,
    /// Bytes of its payload.
    length: usize,
    /// An answer that was kept apart (U2).
    apart: Option<Vec<u8>>,
}

/// The memory of all slots of a queue.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    /// The kernel may still have a slot (U3).
    leaked: AtomicBool,
}

// SAFETY: plain memory; U1 says which thread may use which part of it.
unsafe impl Send for Memory {}
// SAFETY: plain memory, divided by U1.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping of its own, at an address of the kernel's choice.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap: null"))?;
        let memory = Self { start, bytes, leaked: AtomicBool::new(false) };
        // A huge page would make eight slots resident at the first touch of one. Without such pages it is refused.
        let _ = memory.advise(0, bytes, Advice::LinuxNoHugepage);
        Ok(memory)
    }

    /// Gives the kernel `advice` about bytes `from..to`, which have one owner, the caller.
    fn advise(&self, from: usize, to: usize, advice: Advice) -> io::Result<()> {
        assert!(from <= to && to <= self.bytes);
        // SAFETY: within the mapping, by the line above; the caller owns the bytes (U1, U5) and refers to none of them.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().add(from).cast(), to - from, advice)?;
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // ORDERING: Relaxed; `&mut self` comes after every other use.
        if self.leaked.load(Relaxed) {
            return;
        }
        // SAFETY: mapped in `new`, once; no owner of a slot is left (U3).
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// A copy of a request's headers and of a small payload, aligned as the kernel's structures are.
#[repr(C, align(8))]
struct Scratch {
    message: [u8; PART_BYTES],
    argument: [u8; PART_BYTES],
    payload: [u8; COPIED_MAX],
}

/// A request, lent to its handler.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Begins with `struct fuse_in_header`; aligned to 8 bytes.
    pub message: &'a [u8; PART_BYTES],
    /// Begins with the structure of the operation, if it has one; aligned to 8 bytes.
    pub argument: &'a [u8; PART_BYTES],
    /// Names and data; aligned to 8 bytes.
    pub payload: &'a [u8],
    /// Sends the answer, from any thread.
    pub answer: Answer,
}

/// The way back of one request. Dropped without an answer, it answers EIO.
#[derive(Debug)]
pub struct Answer {
    /// `None` once it is sent.
    shared: Option<Arc<Shared>>,
    slot: u32,
    commit: u64,
    unique: u64,
    /// The payload is lent (U2).
    lent: bool,
}

/// How many queues the kernel wants: one for each core that there may ever be.
///
/// # Errors
/// If `/sys` does not say it.
pub fn cores() -> io::Result<u16> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    let unreadable = || io::Error::other(format!("cpu/possible: {:?}", possible.trim()));
    last.and_then(|last| last.checked_add(1)).ok_or_else(unreadable)
}

impl Queue {
    /// A queue for `core`, with its memory and a restricted ring; the kernel does not know of it yet. `class` is the
    /// lock class of the list of answers.
    ///
    /// # Errors
    /// EPERM or ENOSYS where io_uring is forbidden or missing; ENOMEM.
    pub fn new(
        device: &Device,
        core: u16,
        sizes: Sizes,
        class: &'static LockClass,
    ) -> io::Result<Self> {
        let entries = (sizes.slots + 1).next_power_of_two() as u32;
        let ring: Ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_r_disabled()
            .build(entries)?;
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        ring.submitter().register_files(&[device.as_fd().as_raw_fd(), bell.as_raw_fd()])?;
        let mut restrictions = [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::Read::CODE),
            Restriction::sqe_flags_required(squeue::Flags::FIXED_FILE.bits()),
        ];
        ring.submitter().register_restrictions(&mut restrictions)?;
        let payload_bytes = sizes.payload_bytes.next_multiple_of(HEADERS);
        let sizes = Sizes { payload_bytes, ..sizes };
        // And a page for the count that the bell's read writes.
        let memory = Memory::new(sizes.slots * (HEADERS + payload_bytes) + HEADERS)?;
        let returned = Mutex::new(class, Returned::default());
        Ok(Self {
            ring,
            core,
            shared: Arc::new(Shared { memory, sizes, returned, bell }),
            in_kernel: 0,
            completed: Vec::with_capacity(sizes.slots + 1),
            touched: vec![0; sizes.slots],
            scratch: Scratch {
                message: [0; PART_BYTES],
                argument: [0; PART_BYTES],
                payload: [0; COPIED_MAX],
            },
        })
    }

    /// Tells the queue that the mount has ended. The kernel tells it only by slots that it has, which may be none.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.shared.clone())
    }

    /// Gives the kernel the slots of the queue. Call it on the thread that is to be the queue's. From now on requests
    /// may come; [`Queue::serve`] handles them.
    ///
    /// # Errors
    /// The failure of io_uring_enter(2), or the kernel's refusal of every slot. The kernel then sends no request at
    /// all, by no way, so the mount has to be ended.
    pub fn register(&mut self) -> io::Result<()> {
        self.stay_on_core();
        self.ring.submitter().register_enable_rings()?;
        for slot in 0..self.shared.sizes.slots as u32 {
            self.register_slot(slot);
        }
        self.await_bell();
        while !self.ring.submission().is_empty() {
            self.enter(0)?;
        }
        // A refusal completes at once.
        let of_slots = self.completed.iter().filter(|(data, _)| *data != BELL_DATA);
        let mut refusals = of_slots.filter_map(|(_, result)| (*result < 0).then_some(-result));
        match refusals.clone().count() == self.shared.sizes.slots {
            true => Err(io::Error::from_raw_os_error(refusals.next().unwrap_or(libc::EIO))),
            false => Ok(()),
        }
    }

    /// Serves the requests of this core: gives each to `handle`, which keeps the thread busy for as long as it runs.
    /// Returns when the mount has ended and [`Stopper::stop`] was called, or after [`Stopper::abandon`]. Call it on the
    /// thread that registered the queue.
    ///
    /// # Errors
    /// A lasting failure of io_uring_enter(2), or the kernel's refusal of the last slot. The kernel still waits for
    /// this queue, so the mount has to be ended.
    pub fn serve(mut self, mut handle: impl FnMut(Arrival<'_>)) -> io::Result<()> {
        let mut completed: Vec<(u64, i32)> = Vec::with_capacity(self.shared.sizes.slots + 1);
        let mut refused = None;
        loop {
            std::mem::swap(&mut completed, &mut self.completed);
            for (data, result) in completed.drain(..) {
                if data == BELL_DATA {
                    self.await_bell();
                    continue;
                }
                self.in_kernel -= 1;
                match result {
                    0.. => self.arrive(data as u32, &mut handle),
                    // The mount ends.
                    _ if -result == libc::ENOTCONN || -result == libc::ECONNABORTED => {}
                    _ => refused = Some(io::Error::from_raw_os_error(-result)),
                }
            }
            let (stopping, abandoned) = {
                let returned = self.shared.returned.lock();
                (returned.stopping, returned.abandoned)
            };
            if abandoned {
                return Ok(());
            }
            // Slots whose answers are still to come are not the kernel's any more.
            if self.in_kernel == 0 && (refused.is_some() || stopping) {
                self.stop_bell()?;
                return refused.map_or(Ok(()), Err);
            }
            self.submit_returned();
            self.enter(1)?;
            self.shared.returned.lock().parked = false;
        }
    }

    /// Submits what was pushed, waits for `wanted` completions, and takes all that there are.
    fn enter(&mut self, wanted: usize) -> io::Result<()> {
        let mut failures = 0;
        loop {
            match self.ring.submit_and_wait(wanted) {
                Ok(_) => break,
                // A signal; completions that wait to be taken.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {
                    break;
                }
                // A failed call has submitted nothing, so it can be repeated.
                Err(_) if failures < FAILURES_MAX => {
                    failures += 1;
                    std::thread::sleep(FAILURE_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        let taken = self.ring.completion().map(|entry| (entry.user_data(), entry.result()));
        self.completed.extend(taken);
        Ok(())
    }

    /// Ends the read of the bell, which would otherwise outlive the ring.
    fn stop_bell(&mut self) -> io::Result<()> {
        self.in_kernel += 1;
        rustix::io::write(&self.shared.bell, &1u64.to_ne_bytes())?;
        while !self.completed.iter().any(|(data, _)| *data == BELL_DATA) {
            self.enter(1)?;
        }
        self.in_kernel -= 1;
        Ok(())
    }

    /// The kernel puts a request into the queue of the core on which its process runs.
    fn stay_on_core(&self) {
        let mut set = rustix::thread::CpuSet::new();
        if usize::from(self.core) < rustix::thread::CpuSet::MAX_CPU {
            set.set(usize::from(self.core));
            // A core that is absent, or not of this process's set: any other serves as well.
            let _ = rustix::thread::sched_setaffinity(None, &set);
        }
    }

    /// Gives the kernel a new slot.
    fn register_slot(&mut self, slot: u32) {
        let parts = [
            libc::iovec { iov_base: self.shared.at(slot, 0).as_ptr().cast(), iov_len: HEADERS },
            libc::iovec {
                iov_base: self.shared.at(slot, HEADERS).as_ptr().cast(),
                iov_len: self.shared.sizes.payload_bytes,
            },
        ];
        // The kernel reads the two parts while it takes the entry. They lie at the end of the slot's first page.
        let place = self.shared.at(slot, HEADERS - size_of_val(&parts)).cast::<[libc::iovec; 2]>();
        // SAFETY: U1: the slot is the queue's. The place is within its first page, and aligned, as the page is.
        unsafe { place.write(parts) };
        let mut entry = self.command(REGISTER, 0, Some(place.as_ptr() as u64), slot);
        let start = (&raw mut entry).cast::<u8>();
        // SAFETY: `Entry128` begins with the kernel's `struct io_uring_sqe`, in which a u32 `len` is at byte 24; the
        // crate has no setter for it.
        unsafe { start.add(24).cast::<u32>().write(2) };
        self.push(&entry);
        self.in_kernel += 1;
    }

    fn command(&self, code: u32, commit: u64, address: Option<u64>, slot: u32) -> Entry128 {
        // `struct fuse_uring_cmd_req`: flags, the request's number, the queue's.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit.to_ne_bytes());
        command[16..18].copy_from_slice(&self.core.to_ne_bytes());
        let entry = opcode::UringCmd80::new(DEVICE, code).cmd(command).addr(address).build();
        entry.user_data(slot.into())
    }

    /// Reads the bell, so that its next ring completes an entry.
    fn await_bell(&mut self) {
        let place = self.shared.at(self.shared.sizes.slots as u32, 0);
        let entry = opcode::Read::new(BELL, place.as_ptr(), 8).build().user_data(BELL_DATA);
        self.push(&entry.into());
    }

    fn push(&mut self, entry: &Entry128) {
        loop {
            // SAFETY: what the entry points to lies in the memory of the queue, which lives as long as the kernel may
            // use it (U3).
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The ring has an entry for each slot and for the bell, so there is room once these are taken.
            let _ = self.ring.submit();
        }
    }

    /// Pushes answered slots. From now on the next one rings the bell.
    fn submit_returned(&mut self) {
        let returned = {
            let mut returned = self.shared.returned.lock();
            returned.parked = true;
            std::mem::take(&mut returned.slots)
        };
        for sent in &returned {
            if let Some(apart) = &sent.apart {
                self.shared.put(sent.slot, HEADERS, apart);
            }
            self.touch(sent.slot, sent.length);
            self.give_back(sent.slot, sent.length);
            let entry = self.command(COMMIT_AND_FETCH, sent.commit, None, sent.slot);
            self.push(&entry);
            self.in_kernel += 1;
        }
    }

    /// Notes that the first `length` bytes of a slot's payload are in use.
    fn touch(&mut self, slot: u32, length: usize) {
        let touched = &mut self.touched[slot as usize];
        let pages = length.next_multiple_of(HEADERS);
        if pages > *touched {
            // ORDERING: Relaxed; a size.
            HELD.fetch_add((pages - *touched) as u64, Relaxed);
            *touched = pages;
        }
    }

    /// Returns pages of an answered slot to the system, beyond its answer of `length` bytes, if too many are kept. The
    /// answer is copied by the commit; after that the kernel owns the slot. So the pages of a read's answer stay until
    /// the slot's next small answer.
    fn give_back(&mut self, slot: u32, length: usize) {
        let (kept, touched) = (length.next_multiple_of(HEADERS), self.touched[slot as usize]);
        if touched <= kept || held_bytes() <= self.shared.sizes.kept_bytes {
            return;
        }
        let start = self.shared.offset(slot, HEADERS);
        let (from, to) = (start + kept, start + touched);
        if self.shared.memory.advise(from, to, Advice::LinuxDontNeed).is_ok() {
            self.touched[slot as usize] = kept;
            // ORDERING: Relaxed; a size.
            HELD.fetch_sub((touched - kept) as u64, Relaxed);
        }
    }

    /// Lends the request in `slot` to `handle`.
    fn arrive(&mut self, slot: u32, handle: &mut impl FnMut(Arrival<'_>)) {
        let shared = &self.shared;
        // SAFETY: U1: the kernel has completed the slot's entry, so it is ours; three copies out of its first page.
        let (message, argument, entry) = unsafe {
            let first = shared.at(slot, 0);
            let part = |at| first.add(at).cast::<[u8; PART_BYTES]>().read();
            (part(MESSAGE_AT), part(ARGUMENT_AT), first.add(ENTRY_AT).cast::<[u64; 4]>().read())
        };
        // `struct fuse_uring_ent_in_out`: flags, the request's number, bytes of payload.
        let (commit, length) = (entry[1], entry[2] as u32 as usize);
        let length = length.min(self.shared.sizes.payload_bytes);
        self.touch(slot, length);
        let shared = &self.shared;
        self.scratch.message = message;
        self.scratch.argument = argument;
        let unique = u64::from_ne_bytes(std::array::from_fn(|at| message[8 + at]));
        let lent = length > COPIED_MAX;
        let answer = Answer { shared: Some(shared.clone()), slot, commit, unique, lent };
        // SAFETY: U1, U2: no other owner, and the answer does not write here while `lent`. Otherwise the slice is
        // copied before the answer leaves this thread.
        let in_place =
            unsafe { std::slice::from_raw_parts(shared.at(slot, HEADERS).as_ptr(), length) };
        let payload = match lent {
            true => in_place,
            false => {
                self.scratch.payload[..length].copy_from_slice(in_place);
                &self.scratch.payload[..length]
            }
        };
        let (message, argument) = (&self.scratch.message, &self.scratch.argument);
        handle(Arrival { message, argument, payload, answer });
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let touched: usize = self.touched.iter().sum();
        // ORDERING: Relaxed; a size.
        HELD.fetch_sub(touched as u64, Relaxed);
        if self.in_kernel > 0 {
            // ORDERING: Relaxed; read by the last owner, behind the reference count.
            self.shared.memory.leaked.store(true, Relaxed);
        }
    }
}

impl Shared {
    /// Where byte `at` of `slot` is in the memory.
    fn offset(&self, slot: u32, at: usize) -> usize {
        slot as usize * Sizes::slot_bytes(self.sizes.payload_bytes) + at
    }

    /// Byte `at` of `slot`.
    fn at(&self, slot: u32, at: usize) -> NonNull<u8> {
        let offset = self.offset(slot, at);
        assert!(offset < self.memory.bytes);
        // SAFETY: within the mapping, by the line above.
        unsafe { self.memory.start.add(offset) }
    }

    fn ring_bell(&self) {
        // Fails only if 2^64 - 1 rings were unheard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Copies `bytes` to `at` of `slot`, whose owner calls (U1).
    fn put(&self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= HEADERS + self.sizes.payload_bytes);
        // SAFETY: U1 for the caller; within the slot, by the line above; the kernel's memory is no part of `bytes`,
        // which is a reference and thus not of a slot that another thread writes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(slot, at).as_ptr(), bytes.len());
        }
    }
}

impl Answer {
    /// Sends an error, `error` > 0, or the concatenation of `parts`. The process's next request may arrive before this
    /// returns.
    pub fn send(mut self, error: i32, parts: &[&[u8]]) {
        self.finish(error, parts);
    }

    /// Bytes that an answer may have.
    pub fn room(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.sizes.payload_bytes)
    }

    fn finish(&mut self, error: i32, parts: &[&[u8]]) {
        let Some(shared) = self.shared.take() else { return };
        let mut length = 0;
        let mut apart = self.lent.then(Vec::new);
        for part in parts {
            match &mut apart {
                Some(apart) => apart.extend_from_slice(part),
                None => shared.put(self.slot, HEADERS + length, part),
            }
            length += part.len();
        }
        // `struct fuse_out_header`: length of all, the error, the request's number; then `payload_sz`.
        let mut header = [0; 16];
        header[..4].copy_from_slice(&(16 + length as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&(-error).to_ne_bytes());
        header[8..].copy_from_slice(&self.unique.to_ne_bytes());
        shared.put(self.slot, MESSAGE_AT, &header);
        shared.put(self.slot, ENTRY_AT + 16, &(length as u32).to_ne_bytes());
        let wakes = {
            let mut returned = shared.returned.lock();
            returned.slots.push(Sent { slot: self.slot, commit: self.commit, length, apart });
            std::mem::take(&mut returned.parked)
        };
        if wakes {
            shared.ring_bell();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.finish(libc::EIO, &[]);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Queue").field("core", &self.core).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static CLASS: LockClass = LockClass::new(1, "test-ring", "answered slots of a ring");

    /// The kernel took a ring's entries and refused each: its switch went off between its greeting and the first call.
    /// The queue reported that only when it served, and the mount hung.
    #[test]
    fn a_queue_whose_slots_are_all_refused_is_not_registered() {
        // A file that takes no commands.
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let sizes = Sizes { slots: 4, payload_bytes: 8192, kept_bytes: 0 };
        let mut queue = match Queue::new(&Device::from(OwnedFd::from(file)), 0, sizes, &CLASS) {
            Ok(queue) => queue,
            // Forbidden, as in many containers, or an old kernel.
            Err(error) => return uvfs_skip::lacking(format_args!("no io_uring: {error}")),
        };
        let refused = queue.register().unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
    }

    /// Bug: a slot kept the pages of its largest write. A read's answer stays, as the kernel copies it at the commit.
    #[test]
    fn pages_behind_an_answer_are_returned_when_too_many_are_kept() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let sizes = Sizes { slots: 2, payload_bytes: 64 << 10, kept_bytes: 0 };
        let Ok(mut queue) = Queue::new(&Device::from(OwnedFd::from(file)), 0, sizes, &CLASS) else {
            return uvfs_skip::lacking("no io_uring");
        };
        let bytes = vec![7; 64 << 10];
        queue.shared.put(1, HEADERS, &bytes);
        queue.touch(1, bytes.len());
        assert_eq!(queue.touched, [0, 64 << 10]);
        queue.give_back(1, 5000);
        assert_eq!(queue.touched, [0, 8192]);
        // SAFETY: U1: no other owner of the slot exists.
        let left = unsafe {
            std::slice::from_raw_parts(queue.shared.at(1, HEADERS).as_ptr(), bytes.len())
        };
        assert!(left[..8192].iter().all(|byte| *byte == 7), "the answer stays");
        assert!(left[8192..].iter().all(|byte| *byte == 0), "the rest was returned");
    }
}
