//! The control socket of a mount that a program serves through the library.
//!
//! # Boundary
//! Gives [`uvfs_control::server`] the state and the operations of the mount. The daemon of `uvfs mount` has a control
//! socket of its own, which knows its options and ends its process.
//!
//! # Concurrency
//! The thread that [`start`] makes waits for the end of the session, and then ends the socket. If a client requested
//! the end, the thread first writes all data back and sends the client the verdict. [`Mount::wait`] joins this thread,
//! so a program that returns after it does not cut off the answer. After the end nothing of the socket refers to the
//! [`Vfs`](uvfs_vfs::Vfs).
//!
//! # Why
//! Without it no tool could query or shrink a mount that a program serves, and nothing reported its end. Data that is
//! not written when the mount ends is not lost: the program still has it in its `Vfs`, and the verdict says so.
//! Weakness: this socket does not know which host directory a store shows, so `uvfs drop` does not empty the host's own
//! page cache for it.
//!
//! [`Mount::wait`]: crate::Mount::wait

use crate::mount::{Live, MountOptions, Passthrough, Unmount};
use crate::statistics::MountStatistics;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};
use uvfs_control::cleaned::Cleaned;
use uvfs_control::ended::{Verdict, Waits};
use uvfs_control::level::{Level, LevelRequest};
use uvfs_control::policies::{Mark, PolicyRequest};
use uvfs_control::protocol::CleanRequest;
use uvfs_control::resident::{Cached, CachedRequest};
use uvfs_control::serve::{self, Look, Marks};
use uvfs_control::server::{Ends, Served, Server, UnmountError};
use uvfs_control::setting::Setting;
use uvfs_control::units::Size;
use uvfs_control::{mounts, place};
use uvfs_vfs::{CleanProgress, Statistics};

/// The options that `uvfs stat` shows.
#[derive(Debug, Serialize)]
pub(crate) struct ShownOptions {
    #[serde(skip)]
    source: String,
    /// The serving program.
    program: String,
    allow_other: bool,
    read_only: bool,
    passthrough: bool,
    control_dir: bool,
}

impl ShownOptions {
    pub(crate) fn new(options: &MountOptions) -> Self {
        let program = std::env::current_exe().unwrap_or_default();
        Self {
            source: options.source().to_owned(),
            program: program.to_string_lossy().into_owned(),
            allow_other: options.allow_other,
            read_only: options.read_only,
            passthrough: options.passthrough == Passthrough::Auto,
            control_dir: options.control_directory,
        }
    }
}

/// The report of `uvfs stat`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    mountpoint: String,
    source: &'a str,
    pid: u32,
    /// Seconds since 1970.
    since: u64,
    version: &'static str,
    options: &'a ShownOptions,
    policies: Vec<Mark>,
    core: Statistics,
    frontend: MountStatistics,
}

/// The mount, as the socket serves it.
struct Program {
    live: Arc<Live>,
    shown: ShownOptions,
    since: u64,
    marks: Marks,
}

impl Served for Program {
    fn report(&self) -> serde_json::Value {
        let report = Report {
            mountpoint: self.live.mountpoint.to_string_lossy().into_owned(),
            source: &self.shown.source,
            pid: std::process::id(),
            since: self.since,
            version: env!("CARGO_PKG_VERSION"),
            options: &self.shown,
            policies: self.marks.list(&self.live.vfs, Look::Never),
            core: self.live.vfs.statistics(),
            frontend: self.live.statistics(),
        };
        serde_json::to_value(report).unwrap_or_else(|error| {
            log::error!("report: {error}");
            serde_json::Value::Null
        })
    }

    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String> {
        let mut cache_bytes = None;
        for (key, value) in settings {
            match Setting::parse(key, value)? {
                Setting::CacheSize(Size::Bytes(bytes)) => cache_bytes = Some(bytes),
                Setting::LogLevel(_) => {
                    return Err(format!(
                        "{key}={value}: a program serves this mount and has its own log; set the level in that program"
                    ));
                }
                Setting::CacheSize(Size::Share(_)) => {
                    return Err(format!(
                        "{key}={value}: a program serves this mount, and bounds its caches alone; write a size, as in 64M"
                    ));
                }
            }
        }
        if let Some(bytes) = cache_bytes {
            let done = self.live.vfs.set_cache_bytes(bytes);
            done.map_err(|error| format!("cache-size={bytes}: {error}"))?;
            log::info!("{}: cache-size={bytes}", self.live.mountpoint.display());
        }
        Ok(())
    }

    fn commit(&self) -> Result<(), String> {
        self.live.vfs.sync_fs().map_err(|error| error.to_string())
    }

    fn clean(
        &self,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String> {
        self.live.cleaner().carry_out(None, request, progress)
    }

    fn cached(&self, request: &CachedRequest) -> Result<Cached, String> {
        serve::cached(&self.live.vfs, None, &self.live.requests_by_directory(), request)
    }

    fn level(&self, request: &LevelRequest) -> Result<Level, String> {
        serve::level(&self.live.vfs, &self.live.asked_by_directory(), request)
    }

    fn set_policy(&self, request: &PolicyRequest) -> Result<(), String> {
        self.marks.request(&self.live.vfs, request)
    }

    fn policies(&self) -> Vec<Mark> {
        self.marks.list(&self.live.vfs, Look::Allowed)
    }

    fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        let how = if lazy { Unmount::Lazy } else { Unmount::Idle };
        match serve::end_when_idle(|| self.live.unmount(how)) {
            // The session ended by itself meanwhile: the client has its unmount.
            Err(_) if self.live.ended() => Ok(()),
            outcome => outcome.map_err(UnmountError::from),
        }
    }

    fn waits(&self) -> Waits {
        Waits { dirty_bytes: self.live.vfs.statistics().pages.dirty_bytes }
    }
}

/// Opens the socket of `live`, until its session ends. Returns the thread that ends it, or `None` if there is no
/// socket; the log has the reason.
pub(crate) fn start(live: &Arc<Live>, shown: ShownOptions) -> Option<JoinHandle<()>> {
    let started = serve(live, shown);
    let place = live.mountpoint.display();
    started.map_err(|why| log::warn!("{place}: no control socket: {why}")).ok()
}

fn serve(live: &Arc<Live>, shown: ShownOptions) -> Result<JoinHandle<()>, String> {
    let folder = place::own_folder()?;
    let table = mounts::read()?;
    let mount = mounts::topmost(&table, &live.mountpoint).filter(|mount| mount.is_uvfs());
    let socket =
        folder.join(mount.ok_or("it was unmounted by another program")?.device.to_string());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let program = Arc::new(Program { live: live.clone(), shown, since, marks: Marks::new() });
    let server = Server::start(&socket, program.clone(), Ends::Mount)
        .map_err(|error| format!("{}: {}", socket.display(), uvfs_control::cause(&error)))?;
    let thread = thread::Builder::new().name("uvfs-control-end".into());
    let ended = thread.spawn(move || {
        program.live.wait();
        if server.is_asked_to_end() {
            // The verdict reports failures.
            let _ = program.live.vfs.write_back_all();
            let unwritten = program.live.vfs.unwritten();
            let verdict = Verdict::new(unwritten, &program.shown.source);
            server.tell_end(Verdict { served_on: true, ..verdict });
        }
    });
    ended.map_err(|error| uvfs_control::cause(&error))
}
