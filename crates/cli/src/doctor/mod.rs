//! `uvfs doctor`: everything for finding a fault, in one archive.
//!
//! # Boundary
//! Collects: versions, settings, mounts, two samples of each daemon's statistics, the end of the log. [`redact`]
//! removes secrets from all of it.
//!
//! # Why
//! Two samples, because counters alone do not show progress. A plain tar: its text is a few hundred kilobytes, and
//! users can read it before they send it. A missing part is replaced by the reason, and is no failure: doctor is used
//! when something is broken. Weakness: names of directories and mountpoints stay in it.

mod redact;

use crate::Failure;
use crate::config;
use crate::flags::DoctorArguments;
use crate::mountinfo::{self, MountEntry};
use crate::mounts;
use crate::shown::shown;
use crate::units::{show_bytes, show_time};
use redact::Redactor;
use rustix::fs::{Mode, OFlags};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uvfs_client as client;
use uvfs_control::place;
use uvfs_control::protocol::Request;
use uvfs_terminal::interrupt::Interrupt;

/// Time between the two samples.
const BETWEEN: Duration = Duration::from_secs(1);
/// Time in which a daemon has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The end of the log that is taken, at most.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// The log of all daemons of a user, in the folder of their control sockets.
const LOG: &str = "log";

/// A part of the archive.
#[derive(Debug)]
struct Part {
    name: String,
    what: &'static str,
    text: String,
}

/// Runs the subcommand.
///
/// # Errors
/// If a mount that was named is none, or the archive cannot be written.
pub(crate) fn run(arguments: &DoctorArguments) -> Result<ExitCode, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mounts = mounts_of(&arguments.mountpoints)?;
    let path = arguments.output.clone().unwrap_or_else(|| default_path(now));
    let mut out = create(&path)?;
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let mut parts = collect(&mounts, now, &interrupt);
    let redactor = Redactor::new(std::env::vars_os());
    for part in &mut parts {
        part.text = redactor.redact(&part.text);
    }
    if interrupt.is_set() {
        let _ = fs::remove_file(&path);
        return Err(Failure::refused(format!("interrupted; {} is not written", path.display())));
    }
    let written = archive(&parts, now).and_then(|bytes| out.write_all(&bytes));
    written.and_then(|()| out.sync_all()).map_err(|error| {
        let _ = fs::remove_file(&path);
        let cause = crate::cause(&error);
        Failure::refused(format!("{}: {cause}; name another file with -o", path.display()))
    })?;
    let mut text = String::new();
    for part in &parts {
        let bytes = show_bytes(part.text.len() as u64);
        let _ = writeln!(text, "{:<26} {bytes:>10}  {}", part.name, part.what);
    }
    let _ = writeln!(
        text,
        "{}: written, for you alone to read. Secrets were taken out; names of directories are in it: look through it \
         before you give it away",
        shown(&path.to_string_lossy())
    );
    crate::print_text(&text);
    Ok(ExitCode::SUCCESS)
}

fn default_path(now: u64) -> PathBuf {
    let time: String = show_time(now).chars().filter(char::is_ascii_digit).collect();
    format!("uvfs-doctor-{time}.tar").into()
}

/// The file of the archive, which must not be there yet.
fn create(path: &Path) -> Result<File, Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(|errno| {
        let remedy = match errno {
            rustix::io::Errno::EXIST => "name one that is not there yet with -o",
            _ => "name a file that you may write with -o",
        };
        Failure::refused(format!("{}: {}; {remedy}", path.display(), crate::cause(&errno.into())))
    })
}

/// The mounts that are named; without a name, all.
fn mounts_of(named: &[PathBuf]) -> Result<Vec<MountEntry>, Failure> {
    if named.is_empty() {
        let all = mountinfo::read()?;
        return Ok(all.into_iter().filter(MountEntry::is_uvfs).collect());
    }
    named.iter().map(|path| mountinfo::find(path)).collect()
}

fn collect(mounts: &[MountEntry], now: u64, interrupt: &Interrupt) -> Vec<Part> {
    let part = |name: &str, what, text| Part { name: name.into(), what, text };
    let mut parts = vec![
        part("about.txt", "versions, machine", about(now)),
        part(
            "mounts.json",
            "the mounts and their states, as `uvfs mounts --json`",
            list(mounts, now),
        ),
        part("mountinfo.txt", "the lines of the mount table that are about FUSE", mount_table()),
        part("config.txt", "what files and variables set", settings(None)),
    ];
    let numbered = |at: usize, name: &str| format!("mount-{}/{name}", at + 1);
    for (at, mount) in mounts.iter().enumerate() {
        let place = Some(mount.mountpoint.as_path());
        parts.push(part(
            &numbered(at, "config.txt"),
            "their settings for this mount",
            settings(place),
        ));
        parts.push(part(&numbered(at, "stat-1.json"), "its statistics", ask(mount, Request::Stat)));
    }
    if !mounts.is_empty() {
        interrupt.wait(BETWEEN);
    }
    for (at, mount) in mounts.iter().enumerate() {
        parts.push(part(
            &numbered(at, "stat-2.json"),
            "the same a second later",
            ask(mount, Request::Stat),
        ));
        parts.push(part(&numbered(at, "locks.json"), "the lock meter", ask(mount, Request::Locks)));
    }
    parts.push(part("log.txt", "the end of the daemons' log", log_end()));
    parts
}

fn about(now: u64) -> String {
    let system = rustix::system::uname();
    let mut text = format!("uvfs {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {value}");
    };
    line("taken", &show_time(now));
    let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
    let (version, machine) =
        (system.version().to_string_lossy(), system.machine().to_string_lossy());
    line("kernel", &format!("{name} {release} {version} {machine}"));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line("system", pretty.unwrap_or("not known").trim_matches('"'));
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    line("processors", &processors.to_string());
    for name in ["MemTotal", "MemAvailable"] {
        let memory = read("/proc/meminfo");
        let found = memory.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line(name, found.unwrap_or("not known").trim());
    }
    line("user", &rustix::process::geteuid().as_raw().to_string());
    let device = match rustix::fs::stat("/dev/fuse") {
        Ok(stat) => format!("mode {:o}, user {}", stat.st_mode & 0o7777, stat.st_uid),
        Err(errno) => crate::cause(&errno.into()),
    };
    line("/dev/fuse", &device);
    let conf = fs::read_to_string(crate::checks::FUSE_CONF);
    let allows = conf.map(|text| text.lines().any(|line| line.trim() == "user_allow_other"));
    line(
        crate::checks::FUSE_CONF,
        match allows {
            Ok(true) => "user_allow_other",
            Ok(false) => "without user_allow_other",
            Err(_) => "not there",
        },
    );
    text
}

fn list(mounts: &[MountEntry], now: u64) -> String {
    mounts::objects(mounts, now).iter().fold(String::new(), |text, line| text + line + "\n")
}

/// The lines unchanged: our own parser may skip the very line that is wrong.
fn mount_table() -> String {
    match fs::read("/proc/self/mountinfo") {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            text.split_inclusive('\n').filter(|line| line.contains(" - fuse")).collect()
        }
        Err(error) => format!("/proc/self/mountinfo: {}\n", crate::cause(&error)),
    }
}

fn settings(mountpoint: Option<&Path>) -> String {
    match config::lines(mountpoint) {
        Ok(lines) => lines.join("\n") + "\n",
        Err(failure) => format!("{failure}\n"),
    }
}

/// A daemon's answer, or the reason why there is none.
fn ask(mount: &MountEntry, request: Request) -> String {
    let asked = client::connect_within(mount, Duration::ZERO).map_err(|unreachable| {
        // Three states, each a word.
        format!("{unreachable:?}")
    });
    let answered = asked.and_then(|mut daemon| {
        let reply = daemon.ask(request, ANSWER_TIME).map_err(|failure| failure.to_string())?;
        reply.report.ok_or_else(|| reply.error.unwrap_or_default())
    });
    match answered {
        Ok(report) => format!("{report:#}\n"),
        Err(cause) => {
            serde_json::json!({"mountpoint": mount.mountpoint.to_string_lossy(), "error": cause})
                .to_string()
                + "\n"
        }
    }
}

/// The end of the log that daemons without a log file share.
fn log_end() -> String {
    let end = || -> io::Result<String> {
        let folder = place::own_folder().map_err(io::Error::other)?;
        let mut file = File::open(folder.join(LOG))?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // A line that begins before that is not whole: a half secret is not known for one.
        let whole = if length > LOG_BYTES_MAX {
            text.split_once('\n').map(|(_, rest)| rest.to_owned())
        } else {
            None
        };
        Ok(whole.unwrap_or(text))
    };
    match end() {
        Ok(text) => text,
        Err(error) => format!(
            "no log: {}; the journal may have more: journalctl -t uvfs\n",
            crate::cause(&error)
        ),
    }
}

/// The parts as an archive.
fn archive(parts: &[Part], now: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for part in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(part.text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(now);
        let path = format!("uvfs-doctor/{}", part.name);
        archive.append_data(&mut header, path, part.text.as_bytes())?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_all_parts() {
        let parts = [
            Part { name: "a.txt".into(), what: "", text: "one".into() },
            Part { name: "mount-1/b.json".into(), what: "", text: "{}".into() },
        ];
        let bytes = archive(&parts, 7).unwrap();
        let mut read = tar::Archive::new(&*bytes);
        let names: Vec<_> = read
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                (
                    entry.path().unwrap().to_string_lossy().into_owned(),
                    text,
                    entry.header().mode().unwrap(),
                )
            })
            .collect();
        let of = |name: &str, text: &str| (name.to_owned(), text.to_owned(), 0o600);
        assert_eq!(names, [of("uvfs-doctor/a.txt", "one"), of("uvfs-doctor/mount-1/b.json", "{}")]);
    }

    #[test]
    fn a_file_that_is_there_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive.tar");
        drop(create(&path).unwrap());
        let refused = create(&path).unwrap_err().to_string();
        assert!(refused.contains("File exists; name one that is not there yet"), "{refused}");
        let mode = rustix::fs::stat(&path).unwrap().st_mode;
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(default_path(0).to_str(), Some("uvfs-doctor-19700101000000.tar"));
    }
}
