//! A session: the threads that take requests, and its parts for other threads.
//!
//! # Boundary
//! Takes messages, decodes them, and has [`crate::dispatch`] answer them. Chooses between `/dev/fuse` and rings.
//!
//! # Concurrency
//! Readers take turns at the device. With rings, each core has a thread for its queue, and one reader stays for
//! requests that come by the device alone (FORGET, INTERRUPT). A queue's thread first registers its slots and then waits
//! for [`Session::serve`]: the kernel holds all requests back until every queue is registered, and for ever if one is
//! refused. So a refusal has to be known while the mount can still be replaced by one without rings. A session ends
//! with the first thread that fails, and does not wait for the others: its caller must cut the connection.

use super::KernelCache;
use super::decode::{Decoded, decode, listing};
use super::greeting::{self, Agreed};
use super::reply::{KernelReply, Way};
use crate::buffers;
use crate::direct::BACKGROUND_MAX;
use crate::dispatch::{Dispatcher, Readers};
use crate::lock_order::FUSE_RING;
use crate::server::{Request as Asked, Sender, Server};
use crate::work::Work;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender as Channel};
use std::thread;
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_fuse_device::Device;
use uvfs_fuse_device::ring::{self, Queue, Sizes, Stopper};
use uvfs_fuse_protocol::abi::InHeader;
use uvfs_fuse_protocol::{Aligned, InvalEntryFlags, Malformed, Notice, Operation, Request};
use uvfs_vfs::Waits;
use zerocopy::FromBytes;

/// Largest write by a ring. Each slot of a ring has memory for one, which is used as far as requests need it.
const RING_WRITE_MAX: usize = 256 << 10;
/// Slots of a queue: each request of a core has one until its answer. A store that never waits needs few; otherwise
/// requests that wait must leave some to others. More than this many waiting requests of one core delay its hits.
const RING_SLOTS_PROMPT: usize = 8;
const RING_SLOTS: usize = 2 * BACKGROUND_MAX as usize;
/// The slots of all queues together may use one of so many parts of the budget, unless these are fewer slots than
/// [`RING_SLOTS_PROMPT`] for each.
const RING_BUDGET_PART: u64 = 4;
/// Failed reads of the device, one after the other, that a reader survives, and the pause after each.
const FAILURES_MAX: u32 = 20;
const FAILURE_PAUSE: Duration = Duration::from_millis(5);
/// The kernel's switch, which only root sets.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
const NOT_OFFERED: &str = "the kernel offers no rings: they need Linux 6.14, and as root \
    `echo Y > /sys/module/fuse/parameters/enable_uring` before the mount";

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// By rings where they are offered and the store never waits, else by `/dev/fuse`.
    #[default]
    Auto,
    /// By `/dev/fuse`.
    Device,
    /// By io_uring, one queue for each core. The mount fails where that is not offered.
    Ring,
}

/// A mounted session, not yet served.
pub(crate) struct Session {
    taker: Arc<Taker>,
    readers: usize,
    queues: Vec<Queue>,
    /// Threads that have registered their queues and wait for a word to serve them.
    registered: Vec<Registered>,
    ends: (Channel<Ended>, Receiver<Ended>),
}

/// How a thread that takes requests has ended.
type Ended = io::Result<()>;

/// A thread that has registered its queue. Without a word it ends, and closes its ring.
struct Registered {
    serve: Channel<()>,
    stopper: Stopper,
    thread: thread::JoinHandle<()>,
}

/// Reports the end of a thread when it is dropped, so also after a panic.
struct Report {
    to: Channel<Ended>,
    ended: Ended,
}

impl Report {
    fn new(to: Channel<Ended>) -> Self {
        Self { to, ended: Err(io::Error::other("a thread that takes requests panicked")) }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // A session that has failed listens no more.
        let _ = self.to.send(std::mem::replace(&mut self.ended, Ok(())));
    }
}

/// Takes messages.
struct Taker {
    /// For notices. Each thread that takes messages has its own copy: replies count references to it, and the threads
    /// would share the line of that count.
    device: Arc<Device>,
    dispatcher: Dispatcher<KernelReply>,
    agreed: Agreed,
}

/// The parts of a session that other threads use.
pub(crate) struct Connection {
    device: Arc<Device>,
    passthrough: Arc<AtomicBool>,
    queues: usize,
    readers: usize,
}

/// Ends the service of all queues when it is dropped.
struct StopQueues(Arc<[Stopper]>);

impl Drop for StopQueues {
    fn drop(&mut self) {
        self.0.iter().for_each(Stopper::stop);
    }
}

/// Whether a message was the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Yes,
    No,
}

impl Session {
    /// Takes over a mounted device and answers the kernel's greeting. `readers` threads will read requests from it, or
    /// one, if requests come by rings.
    ///
    /// # Errors
    /// Those of the greeting; with [`Transport::Ring`], the reason why there are no rings.
    pub(crate) fn over(
        device: Device,
        server: Arc<Server>,
        work: Arc<Work>,
        (transport, readers): (Transport, usize),
    ) -> io::Result<Self> {
        let waits = server.vfs.capabilities().waits;
        let slots = match waits {
            Waits::Never => RING_SLOTS_PROMPT,
            Waits::Sometimes => slots_within(server.vfs.statistics().budget.limit_bytes),
        };
        let queues = match transport {
            Transport::Device => Vec::new(),
            // Each request that may wait would cost two changes of threads, where a reader waits itself.
            Transport::Auto if waits == Waits::Sometimes => Vec::new(),
            Transport::Auto => rings(&device, slots).unwrap_or_else(|reason| {
                log::debug!("requests come by /dev/fuse alone: {reason}");
                Vec::new()
            }),
            Transport::Ring => rings(&device, slots)?,
        };
        let ring = (!queues.is_empty()).then_some(RING_WRITE_MAX as u32);
        let agreed = greeting::answer(&device, &server, ring)?;
        if transport == Transport::Ring && !agreed.ring {
            return Err(io::Error::new(io::ErrorKind::Unsupported, NOT_OFFERED));
        }
        let queues = if agreed.ring { queues } else { Vec::new() };
        // A queue has one thread, which must not wait.
        let may_wait = if agreed.ring { Readers::NeverWait } else { Readers::MayWait };
        let readers = if agreed.ring { 1 } else { readers };
        let dispatcher = Dispatcher::new(server, work, may_wait, agreed.past_pages);
        let device = Arc::new(device);
        // ORDERING: Relaxed; no thread reads requests yet.
        dispatcher.passthrough().store(agreed.passthrough, Relaxed);
        let taker = Arc::new(Taker { device, dispatcher, agreed });
        Ok(Self { taker, readers, queues, registered: Vec::new(), ends: mpsc::channel() })
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            device: self.taker.device.clone(),
            passthrough: self.taker.dispatcher.passthrough().clone(),
            queues: self.queues.len() + self.registered.len(),
            readers: self.readers,
        }
    }

    /// Registers all queues with the kernel, each on a thread of its own; serves none yet.
    ///
    /// # Errors
    /// The refusal of a queue. The kernel then sends no request at all, so the mount has to be ended.
    pub(crate) fn register(&mut self) -> io::Result<()> {
        let (report, reports) = mpsc::channel();
        for (core, mut queue) in std::mem::take(&mut self.queues).into_iter().enumerate() {
            let (taker, report) = (self.taker.clone(), report.clone());
            let device = Arc::new(taker.device.try_clone()?);
            let (serve, word) = mpsc::channel();
            let (stopper, ended) = (queue.stopper(), self.ends.0.clone());
            let run = move || {
                let done = queue.register();
                let failed = done.is_err();
                let _ = report.send(done);
                drop(report);
                if failed || word.recv().is_err() {
                    return;
                }
                let mut ended = Report::new(ended);
                ended.ended = taker.serve_queue(queue, &device);
            };
            let name = format!("uvfs-queue-{core}");
            let thread = thread::Builder::new().name(name).spawn(run)?;
            self.registered.push(Registered { serve, stopper, thread });
        }
        drop(report);
        let mut registered = Ok(());
        for _ in 0..self.registered.len() {
            let died = |_| Err(io::Error::other("the thread of a queue panicked"));
            registered = registered.and(reports.recv().unwrap_or_else(died));
        }
        registered
    }

    /// Ends a session that is not served, with all its descriptors of the device.
    pub(crate) fn abandon(self) {
        for Registered { serve, thread, .. } in self.registered {
            drop(serve);
            // It reported its failure, if it had one.
            let _ = thread.join();
        }
    }

    /// Serves requests until the mount ends.
    ///
    /// # Errors
    /// The first failure of a thread. Other threads may still serve, until the connection is cut; then end the server.
    pub(crate) fn serve(self) -> io::Result<()> {
        let mut stoppers = Vec::new();
        let mut threads = self.readers + self.registered.len();
        for Registered { serve, stopper, .. } in self.registered {
            // The thread waits for it.
            let _ = serve.send(());
            stoppers.push(stopper);
        }
        let stoppers: Arc<[Stopper]> = stoppers.into();
        let give_up = |error| {
            stoppers.iter().for_each(Stopper::abandon);
            Err(error)
        };
        for at in 0..self.readers {
            let (taker, stoppers) = (self.taker.clone(), stoppers.clone());
            let device = match taker.device.try_clone() {
                Ok(device) => Arc::new(device),
                Err(error) => return give_up(error),
            };
            let ended = self.ends.0.clone();
            let serve = move || {
                let mut ended = Report::new(ended);
                // Also by an error or a panic: with no slot left to the kernel, a queue learns of the end from here alone.
                let _stop = StopQueues(stoppers);
                ended.ended = taker.read(&device);
            };
            let started = thread::Builder::new().name(format!("uvfs-reader-{at}")).spawn(serve);
            if let Err(error) = started {
                return give_up(error);
            }
        }
        drop(self.ends.0);
        while threads > 0 {
            let lost = |_| Err(io::Error::other("a thread that takes requests was lost"));
            if let Err(error) = self.ends.1.recv().unwrap_or_else(lost) {
                return give_up(error);
            }
            threads -= 1;
        }
        self.taker.dispatcher.server().end();
        Ok(())
    }
}

/// Slots of each queue of a store that may wait, where the caches have `budget_bytes`.
fn slots_within(budget_bytes: u64) -> usize {
    let cores = u64::from(ring::cores().unwrap_or(1)).max(1);
    let slot_bytes = Sizes::slot_bytes(RING_WRITE_MAX) as u64;
    let slots = budget_bytes / RING_BUDGET_PART / cores / slot_bytes;
    usize::try_from(slots).unwrap_or(RING_SLOTS).clamp(RING_SLOTS_PROMPT, RING_SLOTS)
}

/// A queue for each core, of which the kernel does not know yet.
///
/// # Errors
/// What the kernel, or this process, lacks for them.
fn rings(device: &Device, slots: usize) -> io::Result<Vec<Queue>> {
    match std::fs::read_to_string(ENABLED) {
        Ok(enabled) if enabled.trim() == "Y" => {}
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, NOT_OFFERED)),
    }
    let sizes = Sizes { slots, payload_bytes: RING_WRITE_MAX, kept_bytes: buffers::KEPT_MAX };
    (0..ring::cores()?).map(|core| Queue::new(device, core, sizes, &FUSE_RING)).collect()
}

impl Taker {
    /// Serves the requests of a core until the mount ends.
    fn serve_queue(&self, queue: Queue, device: &Arc<Device>) -> io::Result<()> {
        queue.serve(|arrival| {
            let (header, _) =
                InHeader::ref_from_prefix(arrival.message).expect("a header fits, and is aligned");
            let (argument, payload) = (arrival.argument, arrival.payload);
            let request = self.agreed.dialect.from_parts(header, argument, payload);
            self.take(device, request, |_| Way::Ring(arrival.answer));
        })
    }

    /// Reads requests until the mount ends. Repeats a failed read: the kernel may lack memory for a moment.
    fn read(&self, device: &Arc<Device>) -> io::Result<()> {
        // Its pages are the kernel's zero page until a message fills them.
        let mut buffer = Aligned::zeroed(self.agreed.message_bytes);
        let mut failures = 0;
        loop {
            let length = match device.receive(&mut buffer) {
                Ok(None) => break,
                Ok(Some(length)) => length,
                Err(error) if failures == FAILURES_MAX => return Err(error),
                Err(error) => {
                    log::debug!("a read of the device failed: {error}");
                    failures += 1;
                    thread::sleep(FAILURE_PAUSE);
                    continue;
                }
            };
            failures = 0;
            let request = self.agreed.dialect.parse(&buffer[..length]);
            if self.take(device, request, Way::Device) == More::No {
                break;
            }
        }
        Ok(())
    }

    /// Has `request` answered, by the way that `way` makes of its number.
    fn take(
        &self,
        device: &Arc<Device>,
        request: Result<Request<'_>, Malformed>,
        way: impl FnOnce(u64) -> Way,
    ) -> More {
        let request = match request {
            Ok(request) => request,
            Err(malformed) => {
                log::error!("the kernel sent a {malformed}");
                if let Some(unique) = malformed.unique {
                    KernelReply::new(way(unique), device, None).error(libc::EINVAL);
                }
                return More::Yes;
            }
        };
        let header = request.header;
        let InHeader { uid, gid, pid: task, unique: number, .. } = *header;
        let sender = Sender { uid, gid, task, number };
        let silent = || KernelReply::new(Way::None, device, None);
        let reply = |way| KernelReply::new(way, device, listing(&request.operation));
        match decode(header.nodeid, &request.operation) {
            Decoded::Ask(asked @ Asked::Forget { .. }) => {
                self.dispatcher.dispatch(sender, asked, silent());
            }
            Decoded::Ask(asked) => {
                self.dispatcher.dispatch(sender, asked, reply(way(header.unique)));
            }
            Decoded::Forget(nodes) => {
                for node in nodes {
                    let (node, lookups) = (node.nodeid, node.nlookup);
                    self.dispatcher.dispatch(sender, Asked::Forget { node, lookups }, silent());
                }
            }
            Decoded::Interrupt(number) => self.dispatcher.interrupt(number),
            Decoded::Leave => {
                reply(way(header.unique)).done(&[]);
                return More::No;
            }
            Decoded::Unknown => {
                if !matches!(request.operation, Operation::NotifyReply { .. }) {
                    reply(way(header.unique)).error(libc::ENOSYS);
                }
            }
        }
        More::Yes
    }
}

impl Connection {
    /// Whether the kernel agreed to read and write host files directly.
    pub(crate) fn passthrough(&self) -> bool {
        // ORDERING: Relaxed; a report.
        self.passthrough.load(Relaxed)
    }

    /// Queues by which requests come; 0: by the device.
    pub(crate) fn queues(&self) -> usize {
        self.queues
    }

    /// Threads that read the device.
    pub(crate) fn readers(&self) -> usize {
        self.readers
    }

    pub(crate) fn clone(&self) -> Self {
        let (device, passthrough) = (self.device.clone(), self.passthrough.clone());
        Self { device, passthrough, queues: self.queues, readers: self.readers }
    }

    /// Sends a notice. An object that the kernel does not have needs none.
    fn notify(&self, notice: &Notice<'_>) -> io::Result<()> {
        match self.device.send(&[IoSlice::new(&notice.to_vec())]) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }
}

impl KernelCache for Connection {
    fn forget_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.notify(&Notice::InvalEntry { parent, name, flags: InvalEntryFlags::empty() })
    }

    fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        // Before Linux 6.2 the flag is padding: the entry is dropped.
        self.notify(&Notice::InvalEntry { parent, name, flags: InvalEntryFlags::EXPIRE_ONLY })
    }

    fn forget_inode(&self, node: u64) -> io::Result<()> {
        // Not `notify`: the caller has to know that there is no such inode.
        let notice = Notice::InvalInode { ino: node, off: 0, len: 0 };
        self.device.send(&[IoSlice::new(&notice.to_vec())])
    }

    fn forget_attributes(&self, node: u64) -> io::Result<()> {
        self.notify(&Notice::InvalInode { ino: node, off: -1, len: 0 })
    }

    fn forget_pages(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        let within = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (off, len) = (within(offset), within(length));
        self.notify(&Notice::InvalInode { ino: node, off, len })
    }

    fn forget_everything(&self) -> io::Result<()> {
        self.notify(&Notice::IncEpoch)
    }

    fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        self.notify(&Notice::Prune { nodes })
    }
}
