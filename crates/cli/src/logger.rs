//! A log that cannot grow without bound: one line per record, to standard error, a file, or the system's log.
//!
//! A daemon without a log file leaves standard error when it is ready ([`leave_standard_error`]). From then on it logs
//! to syslog, which is the journal where systemd runs; and errors, or everything without syslog, to a file in the
//! folder of the control sockets. So no error is lost. A service of systemd, whose standard error is the journal's,
//! writes each line with its severity there.
//!
//! # Concurrency
//! No lock: a record is one `write` to a descriptor in append mode, which the kernel keeps whole. Two atomics count the
//! lines of the current second; a race there admits a few lines more.
//!
//! # Why
//! A failing disk makes every request log. Beyond [`LINES_PER_SECOND`] lines are dropped and counted, and a log file
//! restarts at [`FILE_BYTES_MAX`]. Syslog is libc's, and opened before the serving threads lose the right to make
//! sockets ([decision 0017](../../../docs/decisions/0017-log-of-a-daemon.md)). Weakness: a restart loses the old lines.
//! Syslog does not confirm a line, so lines below errors are lost if syslog ends before we do.

use crate::Failure;
use crate::units;
use log::{Level, LevelFilter, Log, Metadata, Record};
use nix::syslog::{Facility, LogFlags, Priority, Severity};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines written in one second; the rest of that second's are counted and dropped.
const LINES_PER_SECOND: u64 = 100;
/// Size at which a log file starts over.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Set by systemd: device and inode of the journal's stream.
const JOURNAL: &str = "JOURNAL_STREAM";
/// Where syslog listens.
const SYSLOG: &str = "/dev/log";
/// The log of all daemons of a user, in the folder of their control sockets.
const DAEMONS_LOG: &str = "log";

/// The targets of lines, and their counts.
#[derive(Debug)]
struct Logger {
    file: Option<File>,
    /// Standard error is the journal's.
    journal: bool,
    background: OnceLock<Background>,
    second: AtomicU64,
    lines: AtomicU64,
    written_bytes: AtomicU64,
}

/// Whether `stream` is the one with the device and inode in `named`, such as `8:1234`.
fn leads_to(named: &OsStr, stream: impl AsFd) -> bool {
    let Ok(seen) = rustix::fs::fstat(stream) else { return false };
    named == OsStr::new(&format!("{}:{}", seen.st_dev, seen.st_ino))
}

/// A line for the journal, which takes the severity from its beginning, and has its own time and name of the program.
fn of_journal(level: Level, text: &str) -> String {
    format!("<{}>{text}\n", severity(level) as u8)
}

/// Where a daemon without a log file logs.
#[derive(Debug)]
struct Background {
    file: File,
    syslog: bool,
    mountpoint: PathBuf,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts logging, once per process.
///
/// # Errors
/// If `file` cannot be opened for appending.
pub(crate) fn start(level: LevelFilter, file: Option<&Path>) -> Result<(), Failure> {
    let opened = file.map(open).transpose()?;
    let journal = std::env::var_os(JOURNAL).is_some_and(|named| leads_to(&named, io::stderr()));
    let logger = LOGGER.get_or_init(|| Logger { journal, ..Logger::new(opened) });
    // Fails only when a logger is set already, which then is this one.
    let _ = log::set_logger(logger);
    log::set_max_level(level);
    Ok(())
}

/// From now on logs records at least as severe as `level`, and notes that wherever the amount changes.
pub(crate) fn set_level(level: LevelFilter, mountpoint: &Path) {
    let text = format!("log-level={}", level.as_str().to_ascii_lowercase());
    let said = || log::info!("{}: {text}", mountpoint.display());
    // By whichever of the two levels shows it.
    if level < log::max_level() {
        said();
        return log::set_max_level(level);
    }
    log::set_max_level(level);
    said();
}

/// In a daemon that serves `mountpoint`, before it releases its parent's standard error: later records go to another
/// target. Does nothing if there is a log file.
///
/// # Errors
/// If the file in `run_folder` cannot be opened.
pub(crate) fn leave_standard_error(run_folder: &Path, mountpoint: &Path) -> Result<(), Failure> {
    // A panic has no other words than these; caught ones are part of serving.
    std::panic::set_hook(Box::new(|info| log::error!("{info}")));
    let Some(logger) = LOGGER.get().filter(|logger| logger.file.is_none()) else { return Ok(()) };
    let file = open(&run_folder.join(DAEMONS_LOG))?;
    let syslog = open_syslog();
    let mountpoint = mountpoint.to_path_buf();
    // Once per process.
    let _ = logger.background.set(Background { file, syslog, mountpoint });
    Ok(())
}

/// Connects to the system's log; false if there is none.
fn open_syslog() -> bool {
    let listens = UnixDatagram::unbound().and_then(|socket| socket.connect(SYSLOG));
    let options = LogFlags::LOG_PID | LogFlags::LOG_NDELAY;
    listens.is_ok() && nix::syslog::openlog(Some(c"uvfs"), options, Facility::LOG_DAEMON).is_ok()
}

/// Reports a text that the user must get at any log level: in the log, beyond every limit, and on standard error as
/// long as that is the user's.
pub(crate) fn tell(level: Level, text: &str) {
    let text = text.replace('\n', "\\n");
    if let Some(logger) = LOGGER.get() {
        match logger.background.get() {
            Some(background) => return logger.write_behind(background, level, &text),
            None if logger.file.is_some() => logger.write(&dated(level, &text)),
            None if logger.is_journal() => return logger.write(&of_journal(level, &text)),
            None => {}
        }
    }
    eprintln!("uvfs: {text}");
}

/// A line of the log.
fn dated(level: Level, text: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let level = level.as_str().to_ascii_lowercase();
    format!("uvfs: {} {level}: {text}\n", units::show_time(now))
}

fn open(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().append(true).create(true).mode(0o644).open(path).map_err(|error| {
        Failure::refused(format!(
            "log file {}: {}; name a file that can be written",
            path.display(),
            crate::cause(&error)
        ))
    })
}

impl Logger {
    fn new(file: Option<File>) -> Self {
        let size = file.as_ref().and_then(|file| Some(file.metadata().ok()?.len())).unwrap_or(0);
        Self {
            file,
            journal: false,
            background: OnceLock::new(),
            second: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            written_bytes: AtomicU64::new(size),
        }
    }

    /// Whether a line at `second` is still within the rate; also returns the number of lines dropped before it.
    fn admit(&self, second: u64) -> (bool, u64) {
        // ORDERING: Relaxed; a rate, nothing is reached through it.
        let dropped = if self.second.swap(second, Relaxed) == second {
            0
        } else {
            self.lines.swap(0, Relaxed).saturating_sub(LINES_PER_SECOND)
        };
        (self.lines.fetch_add(1, Relaxed) < LINES_PER_SECOND, dropped)
    }

    fn is_journal(&self) -> bool {
        self.journal && self.file.is_none()
    }

    fn write(&self, line: &str) {
        // There is no further target if the log itself fails.
        match &self.file {
            Some(file) => self.append(file, line),
            None => drop(std::io::stderr().write_all(line.as_bytes())),
        }
    }

    /// For a daemon without a log file: a complete line with the name of its mount.
    fn write_behind(&self, background: &Background, level: Level, text: &str) {
        if background.syslog {
            // A text with a zero byte is refused.
            let _ = nix::syslog::syslog(priority(level), &text.replace('\0', "\\0"));
        }
        if !background.syslog || level == Level::Error {
            let pid = std::process::id();
            self.append(&background.file, &dated(level, &format!("[{pid}] {text}")));
        }
    }

    fn append(&self, mut file: &File, line: &str) {
        // ORDERING: Relaxed; a size, nothing is reached through it.
        let before = self.written_bytes.fetch_add(line.len() as u64, Relaxed);
        if before > FILE_BYTES_MAX {
            self.written_bytes.store(0, Relaxed);
            let _ = file.set_len(0);
            let _ = file.write_all(b"uvfs: the log was full and starts over\n");
        }
        let _ = file.write_all(line.as_bytes());
    }
}

fn priority(level: Level) -> Priority {
    Priority::new(severity(level), Facility::LOG_DAEMON)
}

fn severity(level: Level) -> Severity {
    match level {
        Level::Error => Severity::LOG_ERR,
        Level::Warn => Severity::LOG_WARNING,
        Level::Info => Severity::LOG_INFO,
        Level::Debug | Level::Trace => Severity::LOG_DEBUG,
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let (admitted, dropped) = self.admit(now);
        if dropped > 0 {
            let text = format!("{dropped} log lines were dropped");
            match self.background.get() {
                Some(background) => self.write_behind(background, Level::Warn, &text),
                None => self.write(&format!("uvfs: {text}\n")),
            }
        }
        if admitted {
            let text = record.args().to_string().replace('\n', "\\n");
            match self.background.get() {
                Some(background) => {
                    let text = format!("{}: {text}", background.mountpoint.display());
                    self.write_behind(background, record.level(), &text);
                }
                None if self.is_journal() => self.write(&of_journal(record.level(), &text)),
                None => self.write(&dated(record.level(), &text)),
            }
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let logger = Logger::new(None);
        let admitted = (0..500).filter(|_| logger.admit(7).0).count();
        assert_eq!(admitted as u64, LINES_PER_SECOND);
        assert_eq!(logger.admit(8), (true, 400));
        assert_eq!(logger.admit(9), (true, 0));
    }

    #[test]
    fn a_full_file_starts_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let logger = Logger::new(Some(open(&path).unwrap()));
        logger.write("first\n");
        logger.written_bytes.store(FILE_BYTES_MAX + 1, Relaxed);
        logger.write("second\n");
        logger.write("third\n");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "uvfs: the log was full and starts over\nsecond\nthird\n");
    }

    #[test]
    fn without_syslog_a_daemons_lines_go_to_the_file_and_with_it_the_errors() {
        let folder = tempfile::tempdir().unwrap();
        for syslog in [false, true] {
            let path = folder.path().join(format!("log-{syslog}"));
            let (file, mountpoint) = (open(&path).unwrap(), PathBuf::from("/mnt/test"));
            let logger = Logger::new(None);
            let background = Background { file, syslog, mountpoint };
            // The test logs nothing to its machine's log.
            if !syslog {
                logger.write_behind(&background, Level::Warn, "odd");
            }
            logger.write_behind(&background, Level::Error, "lost");
            let text = std::fs::read_to_string(&path).unwrap();
            let pid = std::process::id();
            assert!(text.ends_with(&format!(" error: [{pid}] lost\n")), "{text}");
            assert_eq!(text.contains("warn: ["), !syslog, "{text}");
        }
    }

    /// systemd names the stream; a service whose standard error was redirected logs there.
    #[test]
    fn the_journal_is_known_by_its_stream_and_takes_severities() {
        let file = tempfile::tempfile().unwrap();
        let seen = rustix::fs::fstat(&file).unwrap();
        let named = |inode: u64| format!("{}:{inode}", seen.st_dev);
        assert!(leads_to(named(seen.st_ino).as_ref(), &file));
        assert!(!leads_to(named(seen.st_ino + 1).as_ref(), &file));
        assert!(!leads_to("".as_ref(), &file));
        let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
        let lines = levels.map(|level| of_journal(level, "text"));
        assert_eq!(lines, ["<3>text\n", "<4>text\n", "<6>text\n", "<7>text\n", "<7>text\n"]);
    }

    #[test]
    fn an_unusable_log_file_is_refused_by_name() {
        let refusal = open(Path::new("/nonexistent/log")).unwrap_err().to_string();
        assert!(refusal.starts_with("log file /nonexistent/log: No such file"), "{refusal}");
    }
}
