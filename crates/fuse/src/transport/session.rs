//! A session of the FUSE crate, and its parts for other threads.

use super::KernelCache;
use super::fuser_transport::Adapter;
use crate::dispatch::Dispatcher;
use crate::server::Server;
use crate::work::Work;
use fuser::{INodeNo, MountOption, SessionACL};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};

/// A mounted session, not yet served.
pub(crate) struct Session {
    session: fuser::Session<Adapter>,
    passthrough: Arc<AtomicBool>,
}

/// The parts of a session that other threads use.
pub(crate) struct Connection {
    notifier: fuser::Notifier,
    device: OwnedFd,
    passthrough: Arc<AtomicBool>,
}

/// The options of a session.
pub(crate) struct Wanted<'a> {
    /// Threads that read requests.
    pub(crate) readers: usize,
    /// Let users other than the mounting one in.
    pub(crate) allow_other: bool,
    /// Refuse changes, already in the kernel.
    pub(crate) read_only: bool,
    /// The source in `mount` and `df`.
    pub(crate) source: &'a str,
}

impl Session {
    /// Takes over a mounted `/dev/fuse` descriptor and answers the kernel's greeting.
    pub(crate) fn over(
        device: OwnedFd,
        server: Arc<Server>,
        work: Arc<Work>,
        wanted: &Wanted<'_>,
    ) -> io::Result<Self> {
        let (config, adapter) = (config(wanted), Adapter(Dispatcher::new(server, work)));
        let (acl, passthrough) = (config.acl, adapter.0.passthrough().clone());
        let session = fuser::Session::from_fd(adapter, device, acl, config)?;
        Ok(Self { session, passthrough })
    }

    /// Mounts with the help of `fusermount3`, for a user without the right to mount.
    pub(crate) fn mounted_by_helper(
        mountpoint: &Path,
        server: Arc<Server>,
        work: Arc<Work>,
        wanted: &Wanted<'_>,
    ) -> io::Result<Self> {
        let mut config = config(wanted);
        let access = if wanted.read_only { MountOption::RO } else { MountOption::RW };
        config.mount_options = vec![
            // The helper splits its options at commas.
            MountOption::FSName(wanted.source.replace('\\', "\\\\").replace(',', "\\,")),
            MountOption::Subtype("uvfs".to_owned()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            access,
        ];
        let adapter = Adapter(Dispatcher::new(server, work));
        let passthrough = adapter.0.passthrough().clone();
        let session = fuser::Session::new(adapter, mountpoint, &config)?;
        Ok(Self { session, passthrough })
    }

    pub(crate) fn connection(&self) -> io::Result<Connection> {
        Ok(Connection {
            notifier: self.session.notifier(),
            device: self.session.as_fd().try_clone_to_owned()?,
            passthrough: self.passthrough.clone(),
        })
    }

    /// Serves requests until the mount ends.
    pub(crate) fn serve(self) -> io::Result<()> {
        self.session.run()
    }
}

fn config(wanted: &Wanted<'_>) -> fuser::Config {
    let mut config = fuser::Config::default();
    config.n_threads = Some(wanted.readers);
    config.acl = match wanted.allow_other {
        true => SessionACL::All,
        false => SessionACL::Owner,
    };
    config
}

impl Connection {
    /// Whether the kernel agreed to read and write host files directly.
    pub(crate) fn passthrough(&self) -> bool {
        // ORDERING: Relaxed; a report.
        self.passthrough.load(Relaxed)
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            notifier: self.notifier.clone(),
            device: self.device.try_clone()?,
            passthrough: self.passthrough.clone(),
        })
    }
}

impl KernelCache for Connection {
    fn forget_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(name))
    }

    fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        // FUSE_NOTIFY_INVAL_ENTRY with FUSE_EXPIRE_ONLY (protocol 7.38), which the FUSE crate does not
        // offer: length, code 3, the zero that marks a notice; then `struct fuse_notify_inval_entry_out`:
        // parent, length of the name, flags; then the name and a zero. Before Linux 6.2 the flag is
        // padding: the entry is dropped.
        let (length, name_length) = match u32::try_from(33 + name.len()) {
            Ok(length) => (length, length - 33),
            Err(_) => return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG)),
        };
        let mut notice = Vec::with_capacity(length as usize);
        notice.extend_from_slice(&length.to_ne_bytes());
        notice.extend_from_slice(&3i32.to_ne_bytes());
        notice.extend_from_slice(&[0; 8]);
        notice.extend_from_slice(&parent.to_ne_bytes());
        notice.extend_from_slice(&name_length.to_ne_bytes());
        notice.extend_from_slice(&1u32.to_ne_bytes());
        notice.extend_from_slice(name);
        notice.push(0);
        match rustix::io::write(&self.device, &notice) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn forget_inode(&self, node: u64) -> io::Result<()> {
        self.notifier.inval_inode(INodeNo(node), 0, 0)
    }

    fn forget_attributes(&self, node: u64) -> io::Result<()> {
        // An offset below 0 spares the pages.
        self.notifier.inval_inode(INodeNo(node), -1, 0)
    }

    fn forget_pages(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        let within = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.notifier.inval_inode(INodeNo(node), within(offset), within(length))
    }

    fn forget_everything(&self) -> io::Result<()> {
        // FUSE_NOTIFY_INC_EPOCH (protocol 7.44), which the FUSE crate does not offer yet:
        // length, code 8, and the zero that marks a notice.
        let mut notice = [0u8; 16];
        notice[..4].copy_from_slice(&16u32.to_ne_bytes());
        notice[4..8].copy_from_slice(&8i32.to_ne_bytes());
        rustix::io::write(&self.device, &notice)?;
        Ok(())
    }

    fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        // FUSE_NOTIFY_PRUNE (protocol 7.45): length, code 9, the zero that marks a notice; then
        // `struct fuse_notify_prune_out`: how many, padding, spare; then the nodes.
        let length = 32 + 8 * nodes.len();
        let (length, count) = match (u32::try_from(length), u32::try_from(nodes.len())) {
            (Ok(length), Ok(count)) => (length, count),
            _ => return Err(io::Error::from_raw_os_error(libc::E2BIG)),
        };
        let mut notice = Vec::with_capacity(length as usize);
        notice.extend_from_slice(&length.to_ne_bytes());
        notice.extend_from_slice(&9i32.to_ne_bytes());
        notice.extend_from_slice(&[0; 8]);
        notice.extend_from_slice(&count.to_ne_bytes());
        notice.extend_from_slice(&[0; 12]);
        for node in nodes {
            notice.extend_from_slice(&node.to_ne_bytes());
        }
        rustix::io::write(&self.device, &notice)?;
        Ok(())
    }
}
