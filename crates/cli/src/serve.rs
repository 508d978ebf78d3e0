//! `uvfs mount`: puts backend, core, frontend and control socket together, and waits for the end.
//!
//! # Concurrency
//! The main thread receives [`Event`]s from two helpers: one waits for signals, one for the session's
//! end. [`ending`] handles them. Control clients clean and unmount from threads of their own; the
//! frontend allows that at any time.
//!
//! # Why
//! All checks that may refuse a start come before the mount. The command reports the mount as ready once its
//! control socket answers. Weakness: until its last user is gone, a detached mount is in no table, and only
//! its log shows that it still exists.

mod ending;
mod whereabouts;

use crate::Failure;
use crate::checks;
use crate::daemon;
use crate::fake_root;
use crate::flags::MountArguments;
use crate::fstab;
use crate::logger::{self, tell};
use crate::memory::{self, Machine, Overhead};
use crate::mountinfo;
use crate::notify;
use crate::plan::{self, Opened, Options, Plan, Store};
use crate::policies::PolicyFile;
use crate::sandbox::{self, Reach, Sandbox};
use crate::shown::shown;
use ending::Ending;
use serde::Serialize;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::image::{ImageBackend, ImageConfig, WritingConfig, WritingImage};
use uvfs_backends::memory::{AccessTimes, MemoryBackend, MemoryConfig};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_control::cleaned::{Cleaned, HostSource, Raw};
use uvfs_control::ended::{Verdict, Waits};
use uvfs_control::level::{Level, LevelRequest};
use uvfs_control::place;
use uvfs_control::policies::{Mark, PolicyRequest};
use uvfs_control::protocol::CleanRequest;
use uvfs_control::resident::{Cached, CachedRequest};
use uvfs_control::serve::{self, Look, Marks};
use uvfs_control::server::{Ends, Served, Server, UnmountError};
use uvfs_control::setting::Setting;
use uvfs_fuse::{Mount, MountError, MountOptions, MountStatistics, Passthrough, Unmount};
use uvfs_vfs::{CleanProgress, Error, PageCaching, Statistics, Vfs};
use whereabouts::Place;

/// Permission bits of the root of a file system in RAM, as of a fresh directory.
const MEMORY_ROOT_MODE: u32 = 0o755;

/// Runs the subcommand.
///
/// # Errors
/// Why nothing was mounted; after that, why it did not end well.
pub(crate) fn mount(arguments: &MountArguments) -> Result<ExitCode, Failure> {
    if arguments.daemon && !arguments.in_background {
        return start_daemon(arguments);
    }
    if arguments.in_background {
        daemon::leave_session()
            .and_then(|()| daemon::end_with_parent())
            .map_err(|error| Failure::refused(format!("daemon: {}", crate::cause(&error))))?;
    }
    logger::start(arguments.log_level.into(), arguments.log_file.as_deref())?;
    let mut plan = plan::plan(arguments)?;
    // Data of a `memory:` file system comes on top of the limit, and must not count as excess.
    let bounded = !matches!(plan.store, Store::Memory { .. });
    if bounded {
        memory::with_few_arenas(plan.config.cache_bytes);
    }
    let entry = match arguments.in_background {
        true => None,
        false => fstab::entry(arguments, &plan, &mountinfo::read()?)?,
    };
    let run_folder = place::own_folder().map_err(Failure::refused)?;
    if let Err(error) = sandbox::harden_process() {
        log::warn!("core dumps stay possible: {error}");
    }
    let scraped = arguments.metrics.as_deref().map(uvfs_metrics::open).transpose()?;
    let address = scraped.as_ref().and_then(|listener| listener.local_addr().ok());
    plan.options.metrics = address.map(|address| address.to_string());
    let (sender, events) = mpsc::channel();
    // Before the mount exists: from here on a signal ends it, and does not leave it behind.
    forward_signals(sender.clone())?;
    let served = start(plan, !arguments.no_sandbox)?;
    if bounded {
        memory::keep_within(&served.vfs, served.overhead.bytes());
    }
    let control = announce(&served, &run_folder, arguments.in_background);
    let control = control.inspect_err(|_| abandon(&served))?;
    if let Some(Err(failure)) = entry.map(|entry| fstab::write(&entry)) {
        abandon(&served);
        return Err(failure);
    }
    if let Some(listener) = scraped {
        answer_scrapers(&served, listener, !arguments.no_sandbox)
            .inspect_err(|_| abandon(&served))?;
    }
    forward_end(&served, sender.clone());
    let ended = Ending::new(&served, sender).wait(&events);
    log::info!("{}: unmounted", served.mountpoint.display());
    control.tell_end(ended.verdict);
    drop(control);
    Ok(ended.status)
}

/// Starts a daemon for the mount; with `--update-fstab` also adds the fstab line.
fn start_daemon(arguments: &MountArguments) -> Result<ExitCode, Failure> {
    // The daemon computes the plan. Only `--update-fstab` needs it here, too.
    let entry = match arguments.update_fstab {
        true => fstab::entry(arguments, &plan::plan(arguments)?, &mountinfo::read()?)?,
        false => None,
    };
    let status = daemon::start()?;
    match entry.filter(|_| status == ExitCode::SUCCESS) {
        Some(entry) => fstab::write(&entry).map(|()| status),
        None => Ok(status),
    }
}

/// The main thread waits for these.
#[derive(Debug)]
enum Event {
    /// A signal asks the mount to end.
    Signal,
    /// The session has ended, for any reason.
    Ended,
    /// One attempt to write back a busy mount has ended.
    Written,
    /// The last try is over.
    Finished(Verdict),
}

/// A live mount.
struct Live {
    mount: Mount,
    vfs: Arc<Vfs>,
    mountpoint: PathBuf,
    source: String,
    /// The directory that is the source, if it is one.
    directory: Option<PathBuf>,
    /// Where that is, or the file of an image.
    place: Option<Place>,
    policies: Marks,
    options: Options,
    overhead: Overhead,
    since: u64,
    sandbox: Arc<OnceLock<Sandbox>>,
    /// Out of the mount table, but perhaps still in use.
    detached: AtomicBool,
}

/// The report that `uvfs stat` shows.
#[derive(Debug, Serialize)]
struct Report<'a> {
    mountpoint: String,
    source: &'a str,
    /// Where the source is now, if it was renamed, or that it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_now: Option<String>,
    /// For how long the source has not answered, if it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_silent_seconds: Option<f64>,
    pid: u32,
    /// Seconds since 1970.
    since: u64,
    version: &'static str,
    options: &'a Options,
    sandbox: Option<&'a Sandbox>,
    policies: Vec<Mark>,
    core: Statistics,
    frontend: MountStatistics,
}

impl Served for Live {
    fn report(&self) -> serde_json::Value {
        let now = self.place.as_ref().map(Place::now).unwrap_or_default();
        let report = Report {
            mountpoint: self.mountpoint.to_string_lossy().into_owned(),
            source: &self.source,
            source_now: now.moved,
            source_silent_seconds: now.silent.map(|silent| silent.as_secs_f64()),
            pid: std::process::id(),
            since: self.since,
            version: env!("CARGO_PKG_VERSION"),
            options: &self.options,
            sandbox: self.sandbox.get(),
            policies: self.policies.list(&self.vfs, Look::Never),
            core: self.vfs.statistics(),
            frontend: self.mount.statistics(),
        };
        serde_json::to_value(report).unwrap_or_else(|error| {
            log::error!("report: {error}");
            serde_json::Value::Null
        })
    }

    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String> {
        let (mut cache_bytes, mut level) = (None, None);
        for (key, value) in settings {
            match Setting::parse(key, value)? {
                Setting::CacheSize(size) => {
                    let bytes = self.overhead.cache_bytes(size, Machine::here().memory_bytes());
                    cache_bytes = Some(bytes.map_err(|why| format!("{key}={value}: {why}"))?);
                }
                Setting::LogLevel(new) => level = Some(new),
            }
        }
        // All settings are valid; apply them.
        if let Some(bytes) = cache_bytes {
            let done = self.vfs.set_cache_bytes(bytes);
            done.map_err(|error| format!("cache-size={bytes}: {error}"))?;
            log::info!("{}: cache-size={bytes}", self.mountpoint.display());
        }
        if let Some(level) = level {
            logger::set_level(level, &self.mountpoint);
        }
        Ok(())
    }

    fn clean(
        &self,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String> {
        self.mount.cleaner().carry_out(self.host_source(), request, progress)
    }

    fn cached(&self, request: &CachedRequest) -> Result<Cached, String> {
        let requests = self.mount.requests_by_directory();
        serve::cached(&self.vfs, self.host_source(), &requests, request)
    }

    fn level(&self, request: &LevelRequest) -> Result<Level, String> {
        serve::level(&self.vfs, &self.mount.asked_by_directory(), request)
    }

    fn set_policy(&self, request: &PolicyRequest) -> Result<(), String> {
        self.policies.request(&self.vfs, request)
    }

    fn policies(&self) -> Vec<Mark> {
        self.policies.list(&self.vfs, Look::Allowed)
    }

    fn commit(&self) -> Result<(), String> {
        self.vfs.sync_fs().map_err(|error| match error {
            Error::Io(error) => crate::cause(&error),
            error => error.to_string(),
        })
    }

    fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        self.end(lazy)
    }

    fn waits(&self) -> Waits {
        Waits { dirty_bytes: self.dirty_bytes() }
    }

    fn source_hangs(&self) -> bool {
        self.place.as_ref().is_some_and(Place::hangs)
    }
}

impl Live {
    /// The host directory that is shown, if one is.
    fn host_source(&self) -> Option<HostSource> {
        let path = self.directory.as_deref()?;
        // The client may run in another mount namespace, so it compares device and inode.
        let (device, inode) = self.place.as_ref().map_or((0, 0), |place| place.identity);
        Some(HostSource {
            path: Raw(path.as_os_str().as_bytes().into()),
            device,
            inode,
            caches_pages: self.vfs.capabilities().caching == PageCaching::Store,
        })
    }

    /// Bytes that the source does not have yet.
    fn dirty_bytes(&self) -> u64 {
        self.vfs.statistics().pages.dirty_bytes
    }

    /// Takes the mount out of the tree. Waits a moment for its users: a child between fork and exec has the open
    /// files of its parent.
    fn end(&self, lazy: bool) -> Result<(), UnmountError> {
        let how = if lazy { Unmount::Lazy } else { Unmount::Idle };
        match serve::end_when_idle(|| self.mount.unmount(how)) {
            // It ended by itself meanwhile.
            Err(_) if self.mount.ended() => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => {
                // ORDERING: Relaxed; decides a message, nothing is reached through it.
                self.detached.fetch_or(lazy, Relaxed);
                Ok(())
            }
        }
    }
}

/// Makes the mount that `plan` describes.
fn start(plan: Plan, sandboxed: bool) -> Result<Arc<Live>, Failure> {
    let source = plan.store.name();
    let path = plan.store.path().map(Path::to_path_buf);
    let is_image = matches!(plan.store, Store::Image(_));
    let place = plan.store.host_path().and_then(Place::of);
    let reach = plan.store.reach();
    let vfs = match plan.store {
        Store::Memory { size_bytes, access_times } => {
            MemoryBackend::new(memory_config(size_bytes, access_times))
                .and_then(|backend| Vfs::new(backend, plan.config))
        }
        Store::Directory(path) => DirectoryBackend::open(&path, DirectoryConfig::default())
            .and_then(|backend| Vfs::new(backend, plan.config)),
        Store::Image(open) => {
            let caches = plan.config.cache_bytes.saturating_sub(plan.config.overhead_bytes);
            match open.opened {
                Opened::Read(image) => {
                    Vfs::new(ImageBackend::new(*image, ImageConfig::within(caches)), plan.config)
                }
                Opened::Write { device, commit_interval, data, .. } => {
                    let sizes = WritingConfig::within(caches);
                    let config = WritingConfig { commit_interval, data, ..sizes };
                    let image = WritingImage::open(device, &config).map_err(|error| {
                        Failure::refused(format!(
                            "image {source}: {error}; add --read-only to read it"
                        ))
                    })?;
                    if let Some(recovery) = image.volume().recovery() {
                        let (transactions, blocks) = (recovery.transactions, recovery.blocks);
                        log::info!(
                            "image {source}: {transactions} transactions with {blocks} blocks replayed"
                        );
                    }
                    Vfs::new(image, plan.config)
                }
            }
        }
        Store::Bucket(bucket) => bucket.mount(plan.options.read_only, plan.config),
    };
    let vfs = vfs.map_err(|error| {
        let remedy = checks::address_space().map(|limit| format!("; {limit}")).unwrap_or_default();
        Failure::refused(format!("source {source}: {error}{remedy}"))
    })?;
    let policies = mark(&vfs, &plan.policies)?;
    let hint = match is_image && plan.fake_root.is_none() {
        true => fake_root::hint(&vfs, plan.options.read_only),
        false => None,
    };
    let sandbox = Arc::new(OnceLock::new());
    let options = MountOptions {
        source_name: plan.name,
        allow_other: plan.options.allow_other,
        fake_root: plan.fake_root,
        read_only: plan.options.read_only,
        readers: plan.readers,
        transport: plan.transport,
        kernel_read_ahead_kib: plan.kernel_read_ahead_kib,
        passthrough: if plan.options.passthrough { Passthrough::Auto } else { Passthrough::Off },
        control_directory: plan.options.control_dir,
        // The daemon has its own control socket, which also ends the process.
        control_socket: false,
        prepare_thread: Some(preparation(sandboxed, reach, sandbox.clone())),
    };
    let mount = Mount::start(vfs.clone(), &plan.mountpoint, options)
        .map_err(|error| not_mounted(&error))?;
    if let Some(hint) = hint {
        tell(log::Level::Warn, &format!("{source}: {hint}"));
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Ok(Arc::new(Live {
        mount,
        vfs,
        mountpoint: plan.mountpoint,
        source,
        place,
        directory: path,
        policies,
        options: plan.options,
        overhead: plan.overhead,
        since,
        sandbox,
        detached: AtomicBool::new(false),
    }))
}

/// Sets the marks in `file`.
fn mark(vfs: &Arc<Vfs>, file: &PolicyFile) -> Result<Marks, Failure> {
    let policies = Marks::new();
    for line in &file.lines {
        policies.set(vfs, &line.directory, Some(line.policy)).map_err(|cause| {
            let (policy, directory) = (line.policy, line.directory.display());
            // Most causes come with what helps.
            let remedy = if cause.contains("; ") { "" } else { "; name a directory of the source" };
            let cause = format!("{policy} {directory}: {cause}{remedy}");
            crate::policies::at(&file.path, line.number, &cause)
        })?;
    }
    Ok(policies)
}

fn memory_config(size_bytes: u64, access_times: AccessTimes) -> MemoryConfig {
    MemoryConfig {
        size_bytes,
        access_times,
        root_mode: MEMORY_ROOT_MODE,
        root_uid: rustix::process::geteuid().as_raw(),
        root_gid: rustix::process::getegid().as_raw(),
        ..MemoryConfig::default()
    }
}

/// The steps of the session's thread before it serves.
fn preparation(
    sandboxed: bool,
    reach: Reach,
    outcome: Arc<OnceLock<Sandbox>>,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    Box::new(move || {
        let sandbox = match sandboxed {
            true => sandbox::restrict_thread(&reach),
            false => Sandbox::off(),
        };
        // Empty until now: the preparation runs once.
        let _ = outcome.set(sandbox);
        Ok(())
    })
}

fn not_mounted(error: &MountError) -> Failure {
    let mut cause = crate::cause(error.cause());
    if cause.is_empty() {
        cause = "it failed without a word".into();
    }
    let missing = error.cause().kind() == io::ErrorKind::NotFound;
    let (what, remedy) = match error {
        MountError::Device { .. } if missing => (
            "/dev/fuse".to_owned(),
            "load the module (`modprobe fuse`); in a container give it the device",
        ),
        MountError::Device { .. } => {
            ("/dev/fuse".to_owned(), "it must be readable and writable by you (mode 0666 is usual)")
        }
        MountError::Helper { path, .. } if missing => (
            format!("mountpoint {}: fusermount3", path.display()),
            "install the package fuse3, or run as root",
        ),
        // In its own words, which begin with its name; or the system's, about running it.
        MountError::Helper { path, .. } if cause.starts_with("fusermount") => (
            format!("mountpoint {}: cannot mount", path.display()),
            "mount on a directory that you own and may write to",
        ),
        MountError::Helper { path, .. } => (
            format!("mountpoint {}: cannot mount by fusermount3", path.display()),
            "fusermount3 must be executable by you and set-user-id root (`ls -l $(command -v fusermount3)`); reinstall the package fuse3",
        ),
        MountError::Mountpoint { path, .. } => {
            (format!("mountpoint {}", path.display()), "name an existing directory")
        }
        MountError::Refused { path, .. } => (
            format!("mountpoint {}: cannot mount", path.display()),
            "in a container allow CAP_SYS_ADMIN; otherwise see the kernel's log",
        ),
        other => return Failure::refused(format!("{other}; see --log-level debug")),
    };
    Failure::refused(format!("{what}: {cause}; {remedy}"))
}

/// Opens the control socket and says that the mount is ready.
fn announce(live: &Arc<Live>, run_folder: &Path, in_background: bool) -> Result<Server, Failure> {
    let mountpoint = live.mountpoint.display();
    let mounts = mountinfo::read()?;
    let mount = mountinfo::topmost(&mounts, &live.mountpoint).filter(|mount| mount.is_uvfs());
    let mount = mount.ok_or_else(|| {
        Failure::refused(format!("{mountpoint}: unmounted by another program; mount again"))
    })?;
    let socket = run_folder.join(mount.device.to_string());
    let server = Server::start(&socket, live.clone(), Ends::Process).map_err(|error| {
        let (socket, cause) = (socket.display(), crate::cause(&error));
        Failure::refused(format!("control socket {socket}: {cause}; see that it can be made"))
    })?;
    let mounted = shown(&format!("uvfs: {} mounted on {mountpoint}", live.source)).into_owned();
    log::info!("{}: mounted on {mountpoint}", live.source);
    let (core, show) = (live.vfs.statistics(), crate::units::show_bytes);
    let (size, fixed) = (show(core.budget.limit_bytes), show(core.budget.fixed_bytes));
    log::info!("{}: cache-size {size}, of which the program takes {fixed}", live.source);
    let pid = std::process::id();
    if in_background {
        let line = format!("{mounted} (pid {pid}); \"uvfs unmount {mountpoint}\" ends it");
        logger::leave_standard_error(run_folder, &live.mountpoint)?;
        daemon::report_ready(&line).map_err(|error| {
            Failure::refused(format!(
                "daemon: the command that started it has gone: {}; start it again",
                crate::cause(&error)
            ))
        })?;
    } else {
        crate::print_line(&format!(
            "{mounted} (pid {pid}); Ctrl-C or \"uvfs unmount {mountpoint}\" ends it"
        ));
    }
    notify::tell(notify::READY);
    Ok(server)
}

/// Takes a mount away that cannot be kept.
fn abandon(live: &Live) {
    if let Err(stays) = live.end(true) {
        log::error!("{}: cannot detach: {}", live.mountpoint.display(), stays.cause);
        // The next signal ends the process, and the kernel then ends the session.
        // ORDERING: Relaxed; decides a message, nothing is reached through it.
        live.detached.store(true, Relaxed);
    }
}

/// Answers at `listener` as long as the mount is there, and does not keep it.
fn answer_scrapers(
    live: &Arc<Live>,
    listener: TcpListener,
    sandboxed: bool,
) -> Result<(), Failure> {
    let live = Arc::downgrade(live);
    let sample = move || {
        let live = live.upgrade()?;
        Some(uvfs_metrics::Sampled {
            mountpoint: live.mountpoint.to_string_lossy().into_owned(),
            source: live.source.clone(),
            report: live.report(),
            locks: uvfs_control::locks::collect(),
        })
    };
    let restrict = move || {
        if sandboxed {
            sandbox::restrict_listener();
        }
    };
    uvfs_metrics::start(listener, restrict, sample)
        .map_err(|error| Failure::refused(format!("metrics: no thread: {}", crate::cause(&error))))
}

/// Signals that end a mount. By default each of them ends the process, with all that is not written yet.
const ENDING_SIGNALS: [i32; 13] = [
    SIGINT,
    SIGTERM,
    SIGHUP,
    SIGQUIT,
    SIGUSR1,
    SIGUSR2,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGIO,
    SIGXCPU,
    libc::SIGPWR,
    libc::SIGSTKFLT,
];

fn forward_signals(events: Sender<Event>) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::refused(format!("signals: {}", crate::cause(&error)));
    let mut signals = Signals::new(ENDING_SIGNALS).map_err(failed)?;
    // A write beyond a limit on sizes is refused then (EFBIG), and nothing ends.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let forward = move || {
        let mut out_of_time = false;
        for signal in signals.forever() {
            // The kernel repeats it each second. Ignore the repeats: further signals drop unwritten data.
            if signal == SIGXCPU && std::mem::replace(&mut out_of_time, true) {
                continue;
            }
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("uvfs-signals".into()).spawn(forward).map(drop).map_err(failed)
}

fn forward_end(live: &Arc<Live>, events: Sender<Event>) {
    let waited = live.clone();
    let forward = move || {
        waited.mount.wait();
        // The receiver is gone if the process is ending already.
        let _ = events.send(Event::Ended);
    };
    if let Err(error) = thread::Builder::new().name("uvfs-end".into()).spawn(forward) {
        log::error!("no thread to wait for the session's end: {error}");
        abandon(live);
    }
}
