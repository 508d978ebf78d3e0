//! A running system: its server process, its mountpoint, and the folder behind it.
//!
//! # Concurrency
//! Owned by the main thread. Dropping it unmounts and reaps; [`cleanup`] does the same if a signal comes first, so each
//! step tolerates that the other has run.

use crate::cpu::ProcessCpu;
use crate::places::Places;
use crate::system::System;
use crate::{cleanup, context};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, Resource, Rlimit};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time for a server to mount.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time for a server to end after it was unmounted.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Descriptors a server may open: libfuse's example holds one for every inode.
const FILES_MAX: u64 = 200_000;

/// A system that runs.
#[derive(Debug)]
pub(crate) struct Running {
    system: System,
    root: PathBuf,
    server: Option<Server>,
}

/// A process that serves a mount. Dropping it unmounts, and waits for its end.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    mountpoint: PathBuf,
}

/// Why a system does not run.
#[derive(Debug)]
pub(crate) enum Absent {
    /// This machine does not have it: it is left out, aloud.
    NotHere(String),
    /// It should have worked.
    Failed(io::Error),
}

impl Running {
    /// Starts `system` over `backing`; `tag` distinguishes mounts of one run.
    pub(crate) fn start(
        system: System,
        places: &Places,
        backing: &Path,
        tag: &str,
    ) -> Result<Self, Absent> {
        if system == System::Host {
            return Ok(Self { system, root: backing.to_path_buf(), server: None });
        }
        let name = format!("{}-{tag}", system.name());
        let mountpoint = places.work.join(&name);
        let mut command = system.command(places, backing, &mountpoint).map_err(Absent::NotHere)?;
        let log = places.work.join(format!("{name}.log"));
        let server =
            Server::start(&mut command, mountpoint.clone(), &log).map_err(Absent::Failed)?;
        Ok(Self { system, root: mountpoint, server: Some(server) })
    }

    /// Starts the bare server with lookups that get stuck.
    pub(crate) fn start_stuck(places: &Places, stuck: Duration) -> io::Result<Self> {
        let mountpoint = places.work.join("stuck-store");
        let mut command = Command::new(&places.bench);
        command.arg("bare-server").arg(&mountpoint).arg("--readers").arg("4");
        command.arg("--stuck-ms").arg(stuck.as_millis().to_string());
        let log = places.work.join("stuck-store.log");
        let server = Server::start(&mut command, mountpoint.clone(), &log)?;
        Ok(Self { system: System::Bare, root: mountpoint, server: Some(server) })
    }

    /// Asks a mount of the mount tool with how many threads it reads requests.
    pub(crate) fn readers(places: &Places) -> Option<usize> {
        let probe = Self::start(System::UvfsMemory, places, &places.work, "probe").ok()?;
        let mut stat = Command::new(places.uvfs.as_ref()?);
        let output = stat.arg("stat").arg(probe.root()).arg("--json").output().ok()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        usize::try_from(report["frontend"]["readers"].as_u64()?).ok()
    }

    /// Which system this is.
    pub(crate) fn system(&self) -> System {
        self.system
    }

    /// Where clients work.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.child.id())
    }

    /// Makes the kernel drop every name and inode of this mount that is not in use, without telling
    /// the server anything but the usual FORGETs. The host is left alone: others use it too.
    pub(crate) fn drop_kernel_caches(&self) -> io::Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        // A remount without a change shrinks only the mount's dentries.
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount_remount(&server.mountpoint, flags, c"")?;
        server.wait_until_idle()
    }
}

impl Server {
    /// Starts `command`, which serves `mountpoint`, makes that folder, and waits until it is mounted; `log` gets the
    /// output of the process.
    pub(crate) fn start(
        command: &mut Command,
        mountpoint: PathBuf,
        log: &Path,
    ) -> io::Result<Self> {
        fs::create_dir_all(&mountpoint).map_err(context(mountpoint.display()))?;
        let device_before = fs::metadata(&mountpoint)?.dev();
        let output = fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        cleanup::mounting(&mountpoint);
        let child = command.spawn().map_err(context(command.get_program().display()))?;
        cleanup::started(child.id());
        raise_file_limit(child.id());
        let mut server = Self { child, mountpoint };
        server.wait_until_mounted(device_before, log)?;
        Ok(server)
    }

    /// Where clients work.
    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait_until_mounted(&mut self, device_before: u64, log: &Path) -> io::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if fs::metadata(&self.mountpoint).is_ok_and(|meta| meta.dev() != device_before) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("server ended: {status}: {}", said(log))));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("server did not mount: {}", said(log))));
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the server has handled the kernel's queued messages, FORGETs for instance.
    fn wait_until_idle(&self) -> io::Result<()> {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            let before = ProcessCpu::start(self.child.id())?;
            thread::sleep(Duration::from_millis(50));
            if before.used()? < Duration::from_micros(200) || Instant::now() > deadline {
                return Ok(());
            }
        }
    }

    fn unmount(&self) -> io::Result<()> {
        let patient = Instant::now() + Duration::from_secs(2);
        loop {
            let flags = match Instant::now() < patient {
                true => UnmountFlags::NOFOLLOW,
                // A process has its working directory in there; unmount it all the same.
                false => UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
            };
            match rustix::mount::unmount(&self.mountpoint, flags) {
                Err(Errno::BUSY) => thread::sleep(Duration::from_millis(20)),
                // Nothing is mounted there, or never was.
                Ok(()) | Err(Errno::INVAL | Errno::NOENT) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("uvfs-bench: cannot unmount {}: {error}", self.mountpoint.display());
            return; // The register still has it, and its process.
        }
        cleanup::unmounted(&self.mountpoint);
        let deadline = Instant::now() + END_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                eprintln!("uvfs-bench: {} does not end; killed", self.mountpoint.display());
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        cleanup::ended(self.child.id());
        // Never recursively: this was a mount.
        let _ = fs::remove_dir(&self.mountpoint);
    }
}

/// Whether a server that needs `files` descriptors can be had here.
pub(crate) fn can_hold_open(files: u64) -> bool {
    let before = rustix::process::getrlimit(Resource::Nofile);
    if before.maximum.is_none_or(|maximum| maximum >= files) {
        return true;
    }
    let raised = Rlimit { current: before.current, maximum: Some(FILES_MAX) };
    let can = files <= FILES_MAX && rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
    // Lowering is always allowed.
    let _ = rustix::process::setrlimit(Resource::Nofile, before);
    can
}

/// Lets the server open many files: all that is allowed, more with privilege.
fn raise_file_limit(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let allowed = rustix::process::getrlimit(Resource::Nofile).maximum;
    for limit in [Some(FILES_MAX), allowed] {
        let limit = Rlimit { current: limit, maximum: limit };
        if rustix::process::prlimit(pid, Resource::Nofile, limit).is_ok() {
            return;
        }
    }
}

/// The last line that a server wrote into `log`.
fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("it said nothing").to_owned()
}
