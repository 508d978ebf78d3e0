//! Starting and ending a mount.
//!
//! # Concurrency
//! The thread that calls [`Mount::start`] mounts and greets the kernel; a session thread then makes
//! the readers and waits for them. Unmounting is never done by a reader: the kernel may have
//! requests for it to answer first.

use crate::clean::{Bridge, Cleaner, Pressure, Relief, Turns};
use crate::control_socket::{self, ShownOptions};
use crate::helper;
use crate::lock_order;
use crate::mount_error::MountError;
use crate::notify::Notifier;
use crate::server::{FakeRoot, Server, Settings};
use crate::statistics::MountStatistics;
use crate::transport::{Connection, Session, Transport};
use crate::work::Work;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_control::cleaned::Cleaned;
use uvfs_control::level::AskedOf;
use uvfs_fuse_device::Device;
use uvfs_vfs::{Clean, CleanProgress, Dirty, Enforcer, InodeId, NewOwner, Node, Vfs, Waits};

/// Whether the kernel may read and write host files directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Passthrough {
    /// Where kernel, privileges and store allow it.
    #[default]
    Auto,
    /// Never: all data passes through uvfs.
    Off,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if the mount is unused (EBUSY otherwise).
    Idle,
    /// Take it out of the tree now, and end when its last user has left.
    Lazy,
}

/// Prepares the session thread before it serves; see [`MountOptions::prepare_thread`].
pub type Prepare = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// How to mount.
pub struct MountOptions {
    /// The source in `mount` and `df`; `uvfs` if empty, which mount(2) refuses.
    pub source_name: String,
    /// Let users other than the mounting one in. Permissions are checked either way.
    pub allow_other: bool,
    /// Let the mounting user do all that root may do, whatever the owners and modes in the store. `Some` has the owner of
    /// what that user makes. Nothing changes for the root of the machine. The core checks the permissions of other users,
    /// and the kernel asks it for each name of a path if there can be such users. No host file is passed through. The
    /// store must keep owners itself: one that acts as its callers ([`uvfs_vfs::Enforcer::Store`]) is refused. Default
    /// `None`: the kernel checks permissions.
    pub fake_root: Option<NewOwner>,
    /// Refuse changes, already in the kernel.
    pub read_only: bool,
    /// Threads that read requests. Default: as many as there are cores, at least 2, and one more if the store may
    /// make them wait ([`uvfs_vfs::Waits`]).
    pub readers: Option<usize>,
    /// The kernel's read-ahead for a sequential reader, in KiB; `None`: the kernel's default (128). Only root may set
    /// it. For other users, and without `/sys`, the default stays.
    pub kernel_read_ahead_kib: Option<u32>,
    /// Direct reads and writes of host files.
    pub passthrough: Passthrough,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Have a directory `.uvfs` in the root, found by name and not listed, with a file `drop_caches`: a
    /// request written to it ([`uvfs_vfs::clean::request`]) cleans a directory of the mount. It hides
    /// an object of that name in the store. Default true.
    pub control_directory: bool,
    /// Answer `uvfs stat`, `set`, `drop`, `cached`, `policy` and `unmount`, for this process's user and root, over a
    /// socket in `/run/uvfs` or in the user's runtime folder. If no socket can be made, the log has the reason, and the
    /// mount continues without one. Default true.
    pub control_socket: bool,
    /// Runs on the session thread before it serves. Every serving thread is its child, and so inherits from it (a
    /// sandbox, say). A failure ends the mount.
    pub prepare_thread: Option<Prepare>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            source_name: String::new(),
            allow_other: false,
            fake_root: None,
            read_only: false,
            readers: None,
            kernel_read_ahead_kib: None,
            passthrough: Passthrough::default(),
            transport: Transport::default(),
            control_directory: true,
            control_socket: true,
            prepare_thread: None,
        }
    }
}

impl MountOptions {
    pub(crate) fn source(&self) -> &str {
        if self.source_name.is_empty() { "uvfs" } else { &self.source_name }
    }

    /// The option of mount(2) by which the kernel checks permissions.
    fn kernel_checks(&self) -> &'static str {
        if self.fake_root.is_some() { "" } else { ",default_permissions" }
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MountOptions")
            .field("source_name", &self.source_name)
            .field("allow_other", &self.allow_other)
            .field("fake_root", &self.fake_root)
            .field("read_only", &self.read_only)
            .field("readers", &self.readers)
            .field("kernel_read_ahead_kib", &self.kernel_read_ahead_kib)
            .field("passthrough", &self.passthrough)
            .field("transport", &self.transport)
            .field("control_directory", &self.control_directory)
            .field("control_socket", &self.control_socket)
            .finish_non_exhaustive()
    }
}

/// A mounted file system. Dropping it unmounts lazily.
pub struct Mount {
    live: Arc<Live>,
    /// The threads that send messages to the kernel.
    notifier: Mutex<Option<(Notifier, Relief)>>,
    /// The thread that ends the control socket after the mount.
    control: Mutex<Option<JoinHandle<()>>>,
}

/// The parts of a mount that its control socket also needs.
pub(crate) struct Live {
    pub(crate) mountpoint: PathBuf,
    pub(crate) vfs: Arc<Vfs>,
    server: Arc<Server>,
    work: Arc<Work>,
    connection: Connection,
    end: Arc<End>,
    bridge: Arc<Bridge>,
}

/// Whether the session has ended.
struct End {
    ended: Mutex<bool>,
    changed: Condvar,
}

impl Mount {
    /// Mounts `vfs` at `mountpoint` and serves it. Returns when the kernel has accepted the mount.
    ///
    /// # Errors
    /// The failed part with its path: the mount point, `/dev/fuse`, mount(2) or `fusermount3`. Nothing stays mounted.
    pub fn start(
        vfs: Arc<Vfs>,
        mountpoint: impl AsRef<Path>,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let path = mountpoint.as_ref();
        let mountpoint = path
            .canonicalize()
            .map_err(|source| MountError::Mountpoint { path: path.to_owned(), source })?;
        Self::serve(vfs, mountpoint, options)
    }

    fn serve(
        vfs: Arc<Vfs>,
        mountpoint: PathBuf,
        options: MountOptions,
    ) -> Result<Self, MountError> {
        let readers = options.readers.unwrap_or_else(|| default_readers(&vfs)).clamp(1, 64);
        if options.fake_root.is_some() && vfs.capabilities().enforcer == Enforcer::Store {
            let why = "fake_root is not for a store that acts as its callers";
            let why = io::Error::new(io::ErrorKind::Unsupported, why);
            return Err(MountError::refused(&mountpoint, why));
        }
        let fake_root = options.fake_root.map(|new_owner| FakeRoot {
            user: rustix::process::getuid().as_raw(),
            new_owner,
            with_others: options.allow_other,
        });
        let passthrough = options.passthrough == Passthrough::Auto && !options.read_only;
        let passthrough = passthrough && fake_root.is_none();
        let control_directory = options.control_directory;
        let settings = Settings { passthrough, control_directory, fake_root };
        let shown = options.control_socket.then(|| ShownOptions::new(&options));
        let server = Arc::new(Server::new(vfs.clone(), settings));
        let work = Arc::new(Work::new(readers));
        let session = open_session(&mountpoint, readers, &options, &server, &work)?;
        let undo = LazyUnmount(Some(&mountpoint));
        let failed = |error| MountError::session(&mountpoint, error);
        let connection = session.connection();
        server.direct.connect(Box::new(connection.clone()));
        let notices = server.notices.clone();
        let kernel = Box::new(connection.clone());
        let notifier =
            notices.start(kernel, server.nodes.clone(), server.counters.clone()).map_err(failed)?;
        let end = Arc::new(End {
            ended: Mutex::new(&lock_order::FUSE_END, false),
            changed: Condvar::default(),
        });
        let turns = Turns::new();
        let kernel = Box::new(connection.clone());
        let (nodes, counters) = (server.nodes.clone(), server.counters.clone());
        let bridge =
            Bridge::new(vfs.clone(), nodes, counters, kernel, notices.clone(), turns.clone());
        server.control.connect(Box::new(Cleaner::of(&bridge)));
        let relief = Pressure::new(server.clone()).start(bridge.clone()).map_err(failed)?;
        start_session(session, options.prepare_thread, end.clone(), turns).map_err(failed)?;
        std::mem::forget(undo);
        let notifier = Mutex::new(&lock_order::FUSE_NOTIFIER, Some((notifier, relief)));
        let live = Live { mountpoint, vfs, server, work, connection, end, bridge };
        let live = Arc::new(live);
        let control = shown.and_then(|shown| control_socket::start(&live, shown));
        Ok(Self { live, notifier, control: Mutex::new(&lock_order::FUSE_NOTIFIER, control) })
    }

    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.live.mountpoint
    }

    /// About how many requests of the kernel there were, by directory: of those that it asks about most, at least so many.
    pub fn requests_by_directory(&self) -> HashMap<InodeId, u64> {
        self.live.requests_by_directory()
    }

    /// The same, and how many of them the caches did not answer at once.
    pub fn asked_by_directory(&self) -> HashMap<InodeId, AskedOf> {
        self.live.asked_by_directory()
    }

    /// Counts of the mount so far.
    pub fn statistics(&self) -> MountStatistics {
        self.live.statistics()
    }

    /// Cleans `directory`; see [`Cleaner::clean`].
    ///
    /// # Errors
    /// As there.
    pub fn clean(
        &self,
        directory: &Node,
        clean: Clean,
        dirty: Dirty,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> io::Result<Cleaned> {
        self.live.bridge.clean(directory, clean, dirty, progress)
    }

    /// A handle for other threads that clean directories of this mount.
    pub fn cleaner(&self) -> Cleaner {
        self.live.cleaner()
    }

    /// Unmounts. The session may outlive a lazy unmount; [`Mount::wait`] waits for its end.
    ///
    /// # Errors
    /// EBUSY if the mount is in use and `how` is [`Unmount::Idle`].
    pub fn unmount(&self, how: Unmount) -> io::Result<()> {
        self.live.unmount(how)
    }

    /// Waits until the session has ended, for any reason. If a client of the control socket unmounted it, waits also
    /// until that client has the list of written data that did not reach the store.
    pub fn wait(&self) {
        self.live.wait();
        self.live.vfs.unobserve(self.live.server.origin);
        let notifier = self.notifier.lock().take();
        drop(notifier);
        let control = self.control.lock().take();
        if control.is_some_and(|control| control.join().is_err()) {
            log::error!("{}: the end of its control socket panicked", self.mountpoint().display());
        }
    }

    /// As [`Mount::wait`], for at most `limit`. Says whether the session has ended.
    pub fn wait_for(&self, limit: Duration) -> bool {
        // `None`: later than any moment there is.
        let deadline = Instant::now().checked_add(limit);
        let mut ended = self.live.end.ended.lock();
        while !*ended {
            let Some(deadline) = deadline else {
                self.live.end.changed.wait(&mut ended);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.live.end.changed.wait_for(&mut ended, left);
        }
        *ended
    }

    /// Whether the session has ended.
    pub fn ended(&self) -> bool {
        self.live.ended()
    }
}

impl Live {
    pub(crate) fn statistics(&self) -> MountStatistics {
        let (nodes, lookups) = self.server.nodes.totals();
        MountStatistics {
            readers: self.connection.readers(),
            workers: self.work.workers(),
            waiting: self.work.waiting(),
            nodes,
            lookups,
            missing: self.server.nodes.missing.count(),
            files: self.server.files.count(),
            passthrough: self.connection.passthrough(),
            queues: self.connection.queues(),
            ..self.server.counters.snapshot()
        }
    }

    pub(crate) fn requests_by_directory(&self) -> HashMap<InodeId, u64> {
        let asked = self.server.heat.asked();
        asked.into_iter().map(|(directory, asked)| (directory, asked.requests)).collect()
    }

    pub(crate) fn asked_by_directory(&self) -> HashMap<InodeId, AskedOf> {
        self.server.heat.asked()
    }

    pub(crate) fn cleaner(&self) -> Cleaner {
        Cleaner::of(&self.bridge)
    }

    pub(crate) fn unmount(&self, how: Unmount) -> io::Result<()> {
        if self.ended() {
            return self.remove_dead();
        }
        unmount(&self.mountpoint, how)
    }

    /// A session that was cut off leaves its mount in the tree, where it fails every request.
    fn remove_dead(&self) -> io::Result<()> {
        // Attributes may be in the kernel's cache, totals never are.
        match rustix::fs::statfs(&self.mountpoint) {
            Err(rustix::io::Errno::NOTCONN) => unmount(&self.mountpoint, Unmount::Lazy),
            _ => Ok(()),
        }
    }

    /// Waits until the session has ended.
    pub(crate) fn wait(&self) {
        let mut ended = self.end.ended.lock();
        while !*ended {
            self.end.changed.wait(&mut ended);
        }
    }

    pub(crate) fn ended(&self) -> bool {
        *self.end.ended.lock()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(Unmount::Lazy) {
            log::error!("cannot unmount {}: {error}", self.mountpoint().display());
            return;
        }
        self.live.vfs.unobserve(self.live.server.origin);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mount({:?} on {})", self.live.vfs, self.mountpoint().display())
    }
}

/// Unmounts the mount at `mountpoint`, also when its daemon is dead.
///
/// # Errors
/// EBUSY if it is in use and `how` is [`Unmount::Idle`]; EINVAL if nothing is mounted there.
pub fn unmount(mountpoint: &Path, how: Unmount) -> io::Result<()> {
    let flags = match how {
        Unmount::Idle => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
    };
    match rustix::mount::unmount(mountpoint, flags) {
        Err(rustix::io::Errno::PERM) => helper::unmount(mountpoint, how == Unmount::Lazy),
        other => Ok(other?),
    }
}

/// One reader stays free for hits while others wait for the store. One more than the cores, so that each core has a
/// reader that may wait.
fn default_readers(vfs: &Vfs) -> usize {
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    match vfs.capabilities().waits {
        Waits::Never => cores,
        Waits::Sometimes => cores + 1,
    }
}

fn open_session(
    mountpoint: &Path,
    readers: usize,
    options: &MountOptions,
    server: &Arc<Server>,
    work: &Arc<Work>,
) -> Result<Session, MountError> {
    let device = match mount_directly(mountpoint, options) {
        Err(MountError::Refused { source, .. })
            if source.raw_os_error() == Some(libc::EPERM)
                && !rustix::process::geteuid().is_root() =>
        {
            mount_by_helper(mountpoint, options)?
        }
        other => other?,
    };
    let undo = LazyUnmount(Some(mountpoint));
    let session = Session::over(device, server.clone(), work.clone(), (options.transport, readers))
        .map_err(|error| MountError::session(mountpoint, error))?;
    std::mem::forget(undo);
    // Behind the greeting, which sets it too.
    if rustix::process::geteuid().is_root()
        && let Some(kib) = options.kernel_read_ahead_kib
        && let Err(error) = set_read_ahead(mountpoint, kib)
    {
        log::info!(
            "{}: cannot set the kernel's read-ahead, so its default stays: {error}",
            mountpoint.display()
        );
    }
    Ok(session)
}

/// The kernel sends no request for this, so it works before the session serves.
fn set_read_ahead(mountpoint: &Path, kib: u32) -> io::Result<()> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let about = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::TYPE)?;
    let (major, minor) = (about.stx_dev_major, about.stx_dev_minor);
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"), kib.to_string())
}

/// mount(2), for users with the right to mount.
fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<Device, MountError> {
    let device = Device::open().map_err(|source| MountError::Device { source })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{}",
        device.as_fd().as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.kernel_checks(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    let refused = |error| MountError::refused(mountpoint, error);
    let data = CString::new(data).map_err(|error| refused(error.into()))?;
    let source = CString::new(options.source()).map_err(|error| refused(error.into()))?;
    rustix::mount::mount(&source, mountpoint, "fuse.uvfs", flags, data.as_c_str())
        .map_err(|error| refused(error.into()))?;
    Ok(device)
}

/// For a user without the right to mount.
fn mount_by_helper(mountpoint: &Path, options: &MountOptions) -> Result<Device, MountError> {
    // The helper splits its options at commas.
    let source = options.source().replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.read_only { "ro" } else { "rw" };
    let others = if options.allow_other { ",allow_other" } else { "" };
    let checks = options.kernel_checks();
    let options = format!("fsname={source},subtype=uvfs{checks},nodev,nosuid,{access}{others}");
    let device = helper::mount(mountpoint, &options);
    device.map(Device::from).map_err(|error| MountError::helper(mountpoint, &error))
}

/// Starts the session thread; returns when it is prepared.
fn start_session(
    session: Session,
    prepare: Option<Prepare>,
    end: Arc<End>,
    turns: Arc<Turns>,
) -> io::Result<()> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("uvfs-session".to_owned()).spawn(move || {
        let prepared = prepare.map_or(Ok(()), |prepare| prepare());
        let ready = prepared.is_ok();
        // When serving ends, also by a panic, this wakes the threads that wait for the end.
        let _told = TellEnd(&end, &turns);
        // The starting thread waits for exactly this.
        let _ = send.send(prepared);
        if ready && let Err(error) = session.serve() {
            log::error!("the session ended with an error: {error}");
        }
    })?;
    receive.recv().unwrap_or_else(|_| Err(io::Error::other("the session thread died")))
}

/// Says that the session has ended, when dropped.
struct TellEnd<'a>(&'a End, &'a Turns);

impl Drop for TellEnd<'_> {
    fn drop(&mut self) {
        self.1.end();
        *self.0.ended.lock() = true;
        self.0.changed.notify_all();
    }
}

/// Unmounts again if starting fails half way.
struct LazyUnmount<'a>(Option<&'a Path>);

impl Drop for LazyUnmount<'_> {
    fn drop(&mut self) {
        if let Some(mountpoint) = self.0
            && let Err(error) = unmount(mountpoint, Unmount::Lazy)
        {
            log::error!("cannot unmount {}: {error}", mountpoint.display());
        }
    }
}
