//! Starting and ending a mount.
//!
//! # Concurrency
//! The thread that calls [`Mount::start`] mounts and greets the kernel; a session thread then makes
//! the readers and waits for them. Unmounting is never done by a reader: the kernel may have
//! requests for it to answer first.
//!
//! ```text
//!  starting thread   mount, greet ──▶ ─────────▶ connect caches ──▶ ───────▶ mounted
//!  session thread                     register                      serve ─────────┐ an error: cut
//!  ending thread     ──────────────────── waits for the session thread ────────────┴─▶ ended
//! ```
//! If the kernel refuses a ring, the starting thread unmounts and begins again without rings: until all rings are
//! registered the kernel sends no request, by no way. A session that fails later is *cut*: the kernel then fails every
//! request with ENOTCONN, where it would wait for ever otherwise. The session thread may be in a sandbox, so the ending
//! thread cuts.

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
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use uvfs_control::cleaned::Cleaned;
use uvfs_control::level::AskedOf;
use uvfs_control::mounts::{self, Device};
use uvfs_fuse_device::Device as FuseDevice;
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
    /// It ended by a failure, and the kernel may hold requests back.
    failed: AtomicBool,
    /// The number of the mount, once its session is to serve.
    device: OnceLock<Device>,
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
        mut options: MountOptions,
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
        let turns = Turns::new();
        let end = Arc::new(End {
            ended: Mutex::new(&lock_order::FUSE_END, false),
            changed: Condvar::default(),
            failed: AtomicBool::new(false),
            device: OnceLock::new(),
        });
        let failed = |error| MountError::session(&mountpoint, error);
        let starting = Starting {
            mountpoint: mountpoint.clone(),
            server: server.clone(),
            end: end.clone(),
            turns: turns.clone(),
        };
        let starter = starting.start(options.prepare_thread.take()).map_err(failed)?;
        let (connection, device, undo) =
            connected(&mountpoint, readers, &options, (&server, &work), &starter)?;
        server.direct.connect(Box::new(connection.clone()));
        let notices = server.notices.clone();
        let kernel = Box::new(connection.clone());
        let notifier =
            notices.start(kernel, server.nodes.clone(), server.counters.clone()).map_err(failed)?;
        let kernel = Box::new(connection.clone());
        let (nodes, counters) = (server.nodes.clone(), server.counters.clone());
        let bridge =
            Bridge::new(vfs.clone(), nodes, counters, kernel, notices.clone(), turns.clone());
        server.control.connect(Box::new(Cleaner::of(&bridge)));
        let relief = Pressure::new(server.clone()).start(bridge.clone()).map_err(failed)?;
        // The first and only time.
        let _ = end.device.set(device);
        // The session thread waits for it.
        let _ = starter.steps.send(Step::Serve);
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

    /// Requests by directory, and how many of them the caches did not answer at once.
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

    /// Waits as [`Mount::wait`] does, for at most `limit`. Returns whether the session has ended.
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

    /// Whether the session has ended because it could take no more requests. Programs that use the mount get ENOTCONN;
    /// the mount stays in the tree until [`Mount::unmount`].
    pub fn failed(&self) -> bool {
        self.live.failed()
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
        if self.failed() {
            // Its kernel may still hold requests back, so none is sent.
            return match self.end.device.get() {
                Some(device) if is_mounted(&self.mountpoint, *device) => {
                    unmount(&self.mountpoint, Unmount::Lazy)
                }
                _ => Ok(()),
            };
        }
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

    fn failed(&self) -> bool {
        // ORDERING: Acquire, partner the Release in `Starting::fail`: a thread that sees the end sees the failure.
        self.end.failed.load(Acquire)
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

/// Mounts, greets the kernel, and has `starter` register the session. Begins again without rings if they are refused
/// and not demanded.
fn connected<'a>(
    mountpoint: &'a Path,
    readers: usize,
    options: &MountOptions,
    (server, work): (&Arc<Server>, &Arc<Work>),
    starter: &Starter,
) -> Result<(Connection, Device, LazyUnmount<'a>), MountError> {
    let mut transport = options.transport;
    loop {
        let how = (transport, readers);
        let (session, device) = open_session(mountpoint, how, options, (server, work))?;
        let undo = LazyUnmount(Some(mountpoint));
        match starter.register(session) {
            Ok(connection) => return Ok((connection, device, undo)),
            Err(NotRegistered::Rings(reason)) if transport == Transport::Auto => {
                log::warn!("{}: no rings: {reason}; mounts again without", mountpoint.display());
                transport = Transport::Device;
            }
            Err(NotRegistered::Rings(error) | NotRegistered::Thread(error)) => {
                return Err(MountError::session(mountpoint, error));
            }
        }
    }
}

fn open_session(
    mountpoint: &Path,
    how: (Transport, usize),
    options: &MountOptions,
    (server, work): (&Arc<Server>, &Arc<Work>),
) -> Result<(Session, Device), MountError> {
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
    let failed = |error| MountError::session(mountpoint, error);
    let number = device_of(mountpoint).map_err(failed)?;
    let session = Session::over(device, server.clone(), work.clone(), how).map_err(failed)?;
    std::mem::forget(undo);
    // Behind the greeting, which sets it too.
    if rustix::process::geteuid().is_root()
        && let Some(kib) = options.kernel_read_ahead_kib
        && let Err(error) = set_read_ahead(number, kib)
    {
        log::info!(
            "{}: cannot set the kernel's read-ahead, so its default stays: {error}",
            mountpoint.display()
        );
    }
    Ok((session, number))
}

/// The device number of the mount. The kernel sends no request for this, so it works before the session serves.
fn device_of(mountpoint: &Path) -> io::Result<Device> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let about = rustix::fs::statx(rustix::fs::CWD, mountpoint, flags, StatxFlags::TYPE)?;
    Ok(Device { major: about.stx_dev_major, minor: about.stx_dev_minor })
}

fn set_read_ahead(device: Device, kib: u32) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), kib.to_string())
}

/// Whether `device` is what is mounted at `mountpoint`, by the table alone.
fn is_mounted(mountpoint: &Path, device: Device) -> bool {
    let table = mounts::read().unwrap_or_default();
    mounts::topmost(&table, mountpoint).is_some_and(|mount| mount.device == device)
}

/// Has the kernel fail every request of the mount, those that wait included. Says whether it does.
///
/// A user may do so by the file system of FUSE connections, where that is mounted; root also by umount(2).
fn cut(mountpoint: &Path, device: Device) -> bool {
    let abort = format!("/sys/fs/fuse/connections/{}/abort", device.minor);
    let is_cut = std::fs::write(abort, "1").is_ok();
    let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    is_cut || (is_mounted(mountpoint, device) && rustix::mount::unmount(mountpoint, flags).is_ok())
}

/// mount(2), for users with the right to mount.
fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<FuseDevice, MountError> {
    let device = FuseDevice::open().map_err(|source| MountError::Device { source })?;
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
fn mount_by_helper(mountpoint: &Path, options: &MountOptions) -> Result<FuseDevice, MountError> {
    // The helper splits its options at commas.
    let source = options.source().replace('\\', "\\\\").replace(',', "\\,");
    let access = if options.read_only { "ro" } else { "rw" };
    let others = if options.allow_other { ",allow_other" } else { "" };
    let checks = options.kernel_checks();
    let options = format!("fsname={source},subtype=uvfs{checks},nodev,nosuid,{access}{others}");
    let device = helper::mount(mountpoint, &options);
    device.map(FuseDevice::from).map_err(|error| MountError::helper(mountpoint, &error))
}

/// The parts of a mount that its session and ending threads need.
struct Starting {
    mountpoint: PathBuf,
    server: Arc<Server>,
    end: Arc<End>,
    turns: Arc<Turns>,
}

/// A started session thread. If it is dropped before [`Step::Serve`], the thread ends.
struct Starter {
    steps: Sender<Step>,
    outcomes: Receiver<Result<Connection, NotRegistered>>,
}

/// What the session thread is to do next.
enum Step {
    /// Register the queues of a session. The answer is its connection.
    Register(Session),
    /// Serve that session.
    Serve,
}

/// Why a session is not registered.
enum NotRegistered {
    /// A ring was refused. The mount is of no use, and another one may be made.
    Rings(io::Error),
    /// The session thread could not be prepared.
    Thread(io::Error),
}

impl Starter {
    fn register(&self, session: Session) -> Result<Connection, NotRegistered> {
        let died = || NotRegistered::Thread(io::Error::other("the session thread died"));
        // A thread that could not be prepared takes no steps, and has said why.
        let _ = self.steps.send(Step::Register(session));
        self.outcomes.recv().unwrap_or_else(|_| Err(died()))
    }
}

impl Starting {
    /// Starts the session thread, which `prepare` prepares, and the ending thread, which waits for it.
    fn start(self, prepare: Option<Prepare>) -> io::Result<Starter> {
        let ((steps, next), (outcome, outcomes)) = (mpsc::channel(), mpsc::channel());
        let spawn = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let session = spawn("uvfs-session").spawn(move || {
            match prepare.map_or(Ok(()), |prepare| prepare()) {
                Ok(()) => take_steps(&next, &outcome),
                Err(error) => {
                    let _ = outcome.send(Err(NotRegistered::Thread(error)));
                    Ok(())
                }
            }
        })?;
        let wait = move || {
            // When serving has ended, also by a panic, this wakes the threads that wait for the end.
            let _at_the_end = TellEnd(&self.end, &self.turns);
            let panicked = |_| Err(io::Error::other("the session thread panicked"));
            if let Err(error) = session.join().unwrap_or_else(panicked) {
                self.fail(&error);
            }
        };
        spawn("uvfs-ending").spawn(wait)?;
        Ok(Starter { steps, outcomes })
    }

    /// The session takes no more requests, or not all of them.
    fn fail(&self, error: &io::Error) {
        let place = self.mountpoint.display();
        log::error!("{place}: the session ended with an error: {error}");
        // ORDERING: Release, partner the Acquire in `Live::failed`.
        self.end.failed.store(true, Release);
        match self.end.device.get().is_some_and(|device| cut(&self.mountpoint, *device)) {
            true => self.server.end(),
            false => log::error!("{place}: programs that use it wait until this process ends"),
        }
    }
}

/// Takes the steps of the session thread, until it has served or its starter is dropped.
fn take_steps(
    steps: &Receiver<Step>,
    outcomes: &Sender<Result<Connection, NotRegistered>>,
) -> io::Result<()> {
    let mut registered: Option<Session> = None;
    for step in steps {
        match step {
            Step::Register(mut session) => {
                let outcome = match session.register() {
                    Ok(()) => Ok(registered.insert(session).connection()),
                    Err(error) => {
                        // Before the answer: the mount is to have no descriptor left.
                        session.abandon();
                        Err(NotRegistered::Rings(error))
                    }
                };
                let _ = outcomes.send(outcome);
            }
            Step::Serve => return registered.map_or(Ok(()), Session::serve),
        }
    }
    registered.into_iter().for_each(Session::abandon);
    Ok(())
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
