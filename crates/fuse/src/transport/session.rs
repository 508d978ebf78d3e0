//! A session: the threads that take requests, and its parts for other threads.
//!
//! # Boundary
//! Takes messages, decodes them, and has [`crate::dispatch`] answer them. Chooses between `/dev/fuse` and rings.
//!
//! # Concurrency
//! Readers take turns at the device. With rings, each core has a thread for its queue, and one reader stays for
//! requests that come by the device alone (FORGET, INTERRUPT).

use super::KernelCache;
use super::decode::{Decoded, decode, listing};
use super::greeting::{self, Agreed};
use super::reply::{KernelReply, Way};
use crate::direct::BACKGROUND_MAX;
use crate::dispatch::{Dispatcher, Readers};
use crate::lock_order::FUSE_RING;
use crate::server::{Request as Asked, Sender, Server};
use crate::work::Work;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::thread::JoinHandle;
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
            Waits::Sometimes => RING_SLOTS,
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
        Ok(Self { taker, readers, queues })
    }

    pub(crate) fn connection(&self) -> Connection {
        Connection {
            device: self.taker.device.clone(),
            passthrough: self.taker.dispatcher.passthrough().clone(),
            queues: self.queues.len(),
            readers: self.readers,
        }
    }

    /// Serves requests until the mount ends.
    pub(crate) fn serve(self) -> io::Result<()> {
        let start = |name: String, serve: Box<dyn FnOnce() -> io::Result<()> + Send>| {
            std::thread::Builder::new().name(name).spawn(serve)
        };
        let stoppers: Arc<[Stopper]> = self.queues.iter().map(Queue::stopper).collect();
        let mut queues: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for (core, queue) in self.queues.into_iter().enumerate() {
            let taker = self.taker.clone();
            let device = Arc::new(taker.device.try_clone()?);
            let serve = move || taker.serve_queue(queue, &device);
            queues.push(start(format!("uvfs-queue-{core}"), Box::new(serve))?);
        }
        let mut readers: Vec<JoinHandle<io::Result<()>>> = Vec::new();
        for at in 0..self.readers {
            let (taker, stoppers) = (self.taker.clone(), stoppers.clone());
            let device = Arc::new(taker.device.try_clone()?);
            let serve = move || {
                // Also by an error or a panic: with no slot left to the kernel, a queue hears of the end from here alone.
                let _stop = StopQueues(stoppers);
                taker.read(&device)
            };
            readers.push(start(format!("uvfs-reader-{at}"), Box::new(serve))?);
        }
        let panicked = |_| Err(io::Error::other("a thread that takes requests panicked"));
        for queue in queues {
            // The kernel waits for a queue that it refused, so nothing else would end.
            queue.join().unwrap_or_else(panicked)?;
        }
        let mut served = Ok(());
        for reader in readers {
            served = served.and(reader.join().unwrap_or_else(panicked));
        }
        self.taker.dispatcher.server().end();
        served
    }
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
    let sizes = Sizes { slots, payload_bytes: RING_WRITE_MAX };
    (0..ring::cores()?).map(|core| Queue::new(device, core, sizes, &FUSE_RING)).collect()
}

impl Taker {
    /// Serves the requests of a core until the mount ends. A refused queue ends the mount: the kernel would wait for it.
    fn serve_queue(&self, queue: Queue, device: &Arc<Device>) -> io::Result<()> {
        queue.serve(|arrival| {
            let (header, _) =
                InHeader::ref_from_prefix(arrival.message).expect("a header fits, and is aligned");
            let (argument, payload) = (arrival.argument, arrival.payload);
            let request = self.agreed.dialect.from_parts(header, argument, payload);
            self.take(device, request, |_| Way::Ring(arrival.answer));
        })
    }

    /// Reads requests until the mount ends.
    fn read(&self, device: &Arc<Device>) -> io::Result<()> {
        // Its pages are the kernel's zero page until a message fills them.
        let mut buffer = Aligned::zeroed(self.agreed.message_bytes);
        while let Some(length) = device.receive(&mut buffer)? {
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
