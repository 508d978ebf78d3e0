//! The kernel's first message, and what is agreed by the answer.
//!
//! # Boundary
//! Chooses among what the kernel offers, by the capabilities of the store. Later messages are [`super::decode`]'s.
//!
//! # Why
//! What is not asked for here the kernel does itself, and mostly better: locks, the umask of a store without ACLs,
//! splitting of writes.

use crate::direct::BACKGROUND_MAX;
use crate::server::Server;
use std::io::{self, IoSlice};
use uvfs_fuse_device::Device;
use uvfs_fuse_protocol::{Aligned, Dialect, InitFlags, Operation, Request, abi};
use zerocopy::IntoBytes;

/// The oldest minor version whose messages have today's sizes (Linux 2.6.31).
const MINOR_MIN: u32 = 12;
/// From this minor version on (Linux 6.1), an open that truncates and a page fault cannot wait for each other.
const TRUNCATING_OPEN_MIN: u32 = 37;
/// From this minor version on (Linux 6.16), one notice has the kernel ask again about every name.
const EPOCH_MIN: u32 = 44;
/// Largest write by `/dev/fuse`.
const WRITE_MAX: u32 = 1 << 20;
const PAGE: u32 = 4096;

/// What was agreed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    pub(super) dialect: Dialect,
    /// Writes may pass by the kernel's pages: it drops those that they change.
    pub(super) past_pages: bool,
    /// Host files may be passed through.
    pub(super) passthrough: bool,
    /// Requests come by rings.
    pub(super) ring: bool,
    /// Bytes of the largest message.
    pub(super) message_bytes: usize,
}

/// Answers the greeting. `ring`: the largest write by a ring, if rings are wanted and there are any.
///
/// # Errors
/// EPROTO for a kernel that is too old; those of the device.
pub(super) fn answer(device: &Device, server: &Server, ring: Option<u32>) -> io::Result<Agreed> {
    let mut message = Aligned::zeroed(abi::MIN_READ_BUFFER);
    loop {
        let length = device.receive(&mut message)?.ok_or(io::ErrorKind::NotConnected)?;
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let request =
            Request::parse(&message[..length]).map_err(|wrong| bad(&wrong.to_string()))?;
        let unique = request.header.unique;
        let Operation::Init(init) = request.operation else {
            send(device, abi::OutHeader::error(unique, libc::EIO), &[])?;
            return Err(bad("the first message of the kernel is no greeting"));
        };
        if init.major > abi::VERSION {
            // It greets again, in our version.
            let ours = abi::InitOut { major: abi::VERSION, ..Default::default() };
            let ours = &ours.as_bytes()[..8];
            send(device, abi::OutHeader::ok(unique, ours.len()), ours)?;
            continue;
        }
        if init.major < abi::VERSION || init.minor < MINOR_MIN {
            send(device, abi::OutHeader::error(unique, libc::EPROTO), &[])?;
            let old = format!("the kernel speaks FUSE {}.{}, too old", init.major, init.minor);
            return Err(io::Error::new(io::ErrorKind::Unsupported, old));
        }
        if init.minor < EPOCH_MIN {
            server.keep_places();
        }
        let (out, agreed) = agree(server, &init, ring);
        let out = &out.as_bytes()[..abi::InitOut::size(init.minor)];
        send(device, abi::OutHeader::ok(unique, out.len()), out)?;
        return Ok(agreed);
    }
}

fn send(device: &Device, header: abi::OutHeader, body: &[u8]) -> io::Result<()> {
    device.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(body)])
}

fn agree(server: &Server, init: &abi::InitIn, ring: Option<u32>) -> (abi::InitOut, Agreed) {
    let capabilities = server.vfs.capabilities();
    let offered = init.offered();
    let mut flags = InitFlags::ASYNC_READ
        | InitFlags::BIG_WRITES
        | InitFlags::MAX_PAGES
        | InitFlags::INIT_EXT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ASYNC_DIO
        | InitFlags::DONT_MASK
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::DIRECT_IO_ALLOW_MMAP;
    // With this flag the kernel checks permissions, whatever the options of the mount.
    let kernel_checks = server.settings.fake_root.is_none();
    flags.set(InitFlags::POSIX_ACL, capabilities.acls && kernel_checks);
    flags.set(InitFlags::EXPORT_SUPPORT, capabilities.births);
    flags.set(InitFlags::AUTO_INVAL_DATA, server.shared());
    let stateless = InitFlags::NO_OPEN_SUPPORT | InitFlags::NO_OPENDIR_SUPPORT;
    flags.set(stateless, server.stateless());
    // A store that tracks no opens is sent none.
    let truncates = !server.stateless() && init.minor >= TRUNCATING_OPEN_MIN;
    flags.set(InitFlags::ATOMIC_O_TRUNC, truncates);
    let passes = server.settings.passthrough
        && capabilities.os_files
        && rustix::process::geteuid().is_root();
    flags.set(InitFlags::PASSTHROUGH, passes);
    flags.set(InitFlags::OVER_IO_URING, ring.is_some());
    let flags = flags & offered;
    let ring = ring.filter(|_| flags.contains(InitFlags::OVER_IO_URING));
    let passthrough = flags.contains(InitFlags::PASSTHROUGH);
    let max_write = ring.unwrap_or(WRITE_MAX);
    // The kernel stacks at most two levels. A mount that takes both cannot be the lower layer of an overlay.
    let levels = if capabilities.os_stacked { 2 } else { 1 };
    let out = abi::InitOut {
        major: abi::VERSION,
        minor: abi::MINOR_VERSION,
        max_readahead: init.max_readahead,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write,
        time_gran: 1,
        max_pages: (max_write / PAGE) as u16,
        max_stack_depth: if passthrough { levels } else { 0 },
        ..Default::default()
    };
    let agreed = Agreed {
        dialect: Dialect::of(flags),
        // The kernels that offer this drop the pages (Linux 6.6).
        past_pages: flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP),
        passthrough,
        ring: ring.is_some(),
        message_bytes: (max_write + PAGE) as usize,
    };
    (out.with_flags(flags), agreed)
}
