//! A FUSE server that answers constants: the cost of uvfs's transport and the kernel alone.
//!
//! # Boundary
//! Every name is a file with the same attributes; nothing can be read or changed. Run as a child
//! process (a hidden subcommand of this program), so that its CPU time is its own.
//!
//! # Concurrency
//! Readers take turns at the device. With rings, each core has a thread for its queue, and one
//! reader stays for what comes by the device alone.
//!
//! # Why
//! The floor for uvfs: the same transport, the same number of readers, no work. The size of a file is
//! the number of GETATTR requests so far: a client can check that each of its calls was exactly one
//! request. That costs one shared increment per request. Weakness: it does not log what it refuses.

use crate::context;
use clap::ValueEnum;
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_fuse_device::Device;
use uvfs_fuse_device::ring::{self, Queue, Sizes};
use uvfs_fuse_protocol::abi::{
    self, Attr, AttrOut, EntryOut, InHeader, InitIn, InitOut, OutHeader,
};
use uvfs_fuse_protocol::{Aligned, Dialect, InitFlags, Operation, Request};
use zerocopy::{FromBytes, IntoBytes};

/// How long the kernel may cache an answer, in seconds.
const LIFETIME: u64 = 3600;
/// Lookups of names that begin so take long, if asked for.
const STUCK: &[u8] = b"stuck";
/// The kernel's switch for rings.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
/// What a queue holds. No request here has data.
const SIZES: Sizes = Sizes { slots: 4, payload_bytes: abi::MIN_READ_BUFFER, kept_bytes: 4 << 20 };
const PAGE: u32 = 4096;

static RING: LockClass = LockClass::new(1, "bench-bare-ring", "answered slots of one core's ring");

/// How requests come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// By `/dev/fuse`
    Device,
    /// By io_uring, one queue for each core
    Ring,
}

/// How an answer reaches the kernel.
enum Way {
    Device(u64),
    Ring(ring::Answer),
}

struct Bare {
    device: Device,
    getattrs: AtomicU64,
    stuck: Duration,
}

/// Whether a kernel of this machine offers rings.
pub(crate) fn rings_enabled() -> bool {
    std::fs::read_to_string(ENABLED).is_ok_and(|enabled| enabled.trim() == "Y")
}

/// Mounts and serves until unmounted.
pub(crate) fn serve(
    mountpoint: &Path,
    transport: Transport,
    readers: usize,
    stuck_ms: u64,
) -> io::Result<()> {
    let device = mount(mountpoint)?;
    let queues = match transport {
        Transport::Device => Vec::new(),
        Transport::Ring => (0..ring::cores()?)
            .map(|core| Queue::new(&device, core, SIZES, &RING))
            .collect::<io::Result<Vec<_>>>()?,
    };
    let rings = !queues.is_empty();
    greet(&device, rings)?;
    let stuck = Duration::from_millis(stuck_ms);
    let server = Arc::new(Bare { device, getattrs: AtomicU64::new(0), stuck });
    let mut threads = Vec::new();
    for queue in queues {
        let server = server.clone();
        threads.push(thread::spawn(move || server.serve_queue(queue)));
    }
    for _ in 0..if rings { 1 } else { readers } {
        let server = server.clone();
        threads.push(thread::spawn(move || server.read()));
    }
    // In this order: the kernel waits for a queue that it refused, so that no reader would end.
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(())
}

/// A mounted device, by mount(2): the bench is root.
fn mount(mountpoint: &Path) -> io::Result<Device> {
    let device = Device::open().map_err(context(uvfs_fuse_device::PATH))?;
    let descriptor = device.as_fd().as_raw_fd();
    let data = format!("fd={descriptor},rootmode=40000,user_id=0,group_id=0,default_permissions");
    let data = CString::new(data)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"uvfs-bench", mountpoint, c"fuse", flags, data.as_c_str())
        .map_err(|error| context(mountpoint.display())(error.into()))?;
    Ok(device)
}

/// Answers the kernel's first message.
fn greet(device: &Device, rings: bool) -> io::Result<()> {
    let mut message = Aligned::zeroed(abi::MIN_READ_BUFFER);
    let length = device.receive(&mut message)?.ok_or(io::ErrorKind::NotConnected)?;
    let request = Request::parse(&message[..length]).map_err(io::Error::other)?;
    let Operation::Init(init) = request.operation else {
        return Err(io::Error::other("the first message of the kernel is no greeting"));
    };
    let out = agree(&init, rings)?;
    let body = &out.as_bytes()[..InitOut::size(init.minor)];
    send(device, OutHeader::ok(request.header.unique, body.len()), body)
}

fn agree(init: &InitIn, rings: bool) -> io::Result<InitOut> {
    let mut wanted = InitFlags::INIT_EXT | InitFlags::MAX_PAGES | InitFlags::PARALLEL_DIROPS;
    wanted.set(InitFlags::OVER_IO_URING, rings);
    let flags = wanted & init.offered();
    if rings && !flags.contains(InitFlags::OVER_IO_URING) {
        return Err(io::Error::other("the kernel offers no rings"));
    }
    let out = InitOut {
        major: abi::VERSION,
        minor: abi::MINOR_VERSION,
        max_write: PAGE,
        max_pages: 1,
        time_gran: 1,
        ..InitOut::default()
    };
    Ok(out.with_flags(flags))
}

fn send(device: &Device, header: OutHeader, body: &[u8]) -> io::Result<()> {
    device.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(body)])
}

impl Bare {
    /// Reads requests until the mount ends.
    fn read(self: &Arc<Self>) -> io::Result<()> {
        let mut buffer = Aligned::zeroed(abi::MIN_READ_BUFFER);
        while let Some(length) = self.device.receive(&mut buffer)? {
            let request = Request::parse(&buffer[..length]).map_err(io::Error::other)?;
            let unique = request.header.unique;
            self.take(request.header, &request.operation, Way::Device(unique));
        }
        Ok(())
    }

    /// Serves the requests of a core until the mount ends.
    fn serve_queue(self: &Arc<Self>, mut queue: Queue) -> io::Result<()> {
        queue.register()?;
        queue.serve(|arrival| {
            let (header, _) =
                InHeader::ref_from_prefix(arrival.message).expect("a header fits, and is aligned");
            let (argument, payload) = (arrival.argument, arrival.payload);
            // A request that cannot be parsed is dropped, which answers EIO.
            if let Ok(request) = Dialect::default().from_parts(header, argument, payload) {
                self.take(header, &request.operation, Way::Ring(arrival.answer));
            }
        })
    }

    fn take(self: &Arc<Self>, header: &InHeader, operation: &Operation<'_>, way: Way) {
        match *operation {
            Operation::Lookup { name } => self.lookup(name, way),
            Operation::GetAttr(_) => {
                // ORDERING: Relaxed; a count that its own client reads.
                let count = self.getattrs.fetch_add(1, Relaxed) + 1;
                let attr = attributes(header.nodeid, count);
                let out = AttrOut { attr_valid: LIFETIME, attr, ..AttrOut::default() };
                self.answer(way, 0, out.as_bytes());
            }
            // They have no answer.
            Operation::Forget(_) | Operation::BatchForget(_) => {}
            _ => self.answer(way, libc::ENOSYS, &[]),
        }
    }

    fn lookup(self: &Arc<Self>, name: &[u8], way: Way) {
        if self.stuck.is_zero() || !name.starts_with(STUCK) {
            let nodeid = node_of(name);
            let attr = attributes(nodeid, 0);
            let (entry_valid, attr_valid) = (LIFETIME, LIFETIME);
            let out = EntryOut { nodeid, entry_valid, attr_valid, attr, ..EntryOut::default() };
            return self.answer(way, 0, out.as_bytes());
        }
        let server = self.clone();
        // A thread of its own: only the requesting client waits.
        thread::spawn(move || {
            thread::sleep(server.stuck);
            server.answer(way, libc::ENOENT, &[]);
        });
    }

    fn answer(&self, way: Way, errno: i32, body: &[u8]) {
        match way {
            Way::Ring(answer) => answer.send(errno, &[body]),
            Way::Device(unique) => {
                let header = match errno {
                    0 => OutHeader::ok(unique, body.len()),
                    _ => OutHeader::error(unique, errno),
                };
                // The client may be gone, and the mount, too.
                let _ = send(&self.device, header, body);
            }
        }
    }
}

/// A node id for every name, never the root's.
fn node_of(name: &[u8]) -> u64 {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
    (hash >> 1) + 2
}

fn attributes(node: u64, size: u64) -> Attr {
    let root = node == abi::ROOT_ID;
    Attr {
        ino: node,
        size: if root { 0 } else { size },
        mode: if root { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 },
        nlink: if root { 2 } else { 1 },
        blksize: PAGE,
        ..Attr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_nodes_of_their_own_and_none_is_the_root() {
        let nodes = ["", "a", "b", "stuck-1"].map(|name| node_of(name.as_bytes()));
        assert!(nodes.iter().all(|&node| node != abi::ROOT_ID));
        assert_ne!(nodes[1], nodes[2]);
        assert_eq!(node_of(b"a"), nodes[1]);
    }

    #[test]
    fn rings_are_agreed_on_only_where_they_are_offered() {
        let without = InitIn { major: abi::VERSION, minor: 41, ..InitIn::default() };
        assert!(agree(&without, false).is_ok() && agree(&without, true).is_err());
    }
}
