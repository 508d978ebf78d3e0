//! A log that cannot grow without bound: one line per record, to standard error or a file.
//!
//! # Concurrency
//! No lock: a record is one `write` to a descriptor in append mode, which the kernel keeps whole.
//! Two atomics count the lines of the current second; a race there lets a few lines more through.
//!
//! # Why
//! A failing disk makes every request log. More than [`LINES_PER_SECOND`] lines are dropped and
//! counted, and a log file starts over at [`FILE_BYTES_MAX`]. Weakness: starting over loses the old
//! lines; whoever needs them all logs to standard error and a collector.

use crate::Failure;
use crate::units;
use log::{LevelFilter, Log, Metadata, Record};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Lines written in one second; the rest of that second's are counted and dropped.
const LINES_PER_SECOND: u64 = 100;
/// Size at which a log file starts over.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Where lines go, and how many went.
#[derive(Debug)]
struct Logger {
    file: Option<File>,
    second: AtomicU64,
    lines: AtomicU64,
    written_bytes: AtomicU64,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts logging, once per process.
///
/// # Errors
/// If `file` cannot be opened for appending.
pub(crate) fn start(level: LevelFilter, file: Option<&Path>) -> Result<(), Failure> {
    let opened = file.map(open).transpose()?;
    let logger = LOGGER.get_or_init(|| Logger::new(opened));
    // Fails only when a logger is set already, which then is this one.
    let _ = log::set_logger(logger);
    log::set_max_level(level);
    Ok(())
}

/// Says something that the user has to hear whatever is logged: in the log file, beyond every limit, and on
/// standard error as long as that is the user's.
pub(crate) fn tell(level: log::Level, text: &str) {
    let text = text.replace('\n', "\\n");
    if let Some(logger) = LOGGER.get().filter(|logger| logger.file.is_some()) {
        logger.write(&dated(level, &text));
    }
    eprintln!("uvfs: {text}");
}

/// A line of the log.
fn dated(level: log::Level, text: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let level = level.as_str().to_ascii_lowercase();
    format!("uvfs: {} {level}: {text}\n", units::show_time(now))
}

fn open(path: &Path) -> Result<File, Failure> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|error| {
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
            second: AtomicU64::new(0),
            lines: AtomicU64::new(0),
            written_bytes: AtomicU64::new(size),
        }
    }

    /// Whether a line at `second` is still within the rate; tells how many were dropped before it.
    fn admit(&self, second: u64) -> (bool, u64) {
        // ORDERING: Relaxed; a rate, nothing is reached through it.
        let dropped = if self.second.swap(second, Relaxed) == second {
            0
        } else {
            self.lines.swap(0, Relaxed).saturating_sub(LINES_PER_SECOND)
        };
        (self.lines.fetch_add(1, Relaxed) < LINES_PER_SECOND, dropped)
    }

    fn write(&self, line: &str) {
        // Nobody is left to tell when the log itself fails.
        let Some(mut file) = self.file.as_ref() else {
            let _ = std::io::stderr().write_all(line.as_bytes());
            return;
        };
        // ORDERING: Relaxed; as in `admit`.
        let before = self.written_bytes.fetch_add(line.len() as u64, Relaxed);
        if before > FILE_BYTES_MAX {
            self.written_bytes.store(0, Relaxed);
            let _ = file.set_len(0);
            let _ = file.write_all(b"uvfs: the log was full and starts over\n");
        }
        let _ = file.write_all(line.as_bytes());
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
            self.write(&format!("uvfs: {dropped} log lines were dropped\n"));
        }
        if admitted {
            let text = record.args().to_string().replace('\n', "\\n");
            self.write(&dated(record.level(), &text));
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
    fn an_unusable_log_file_is_refused_by_name() {
        let refusal = open(Path::new("/nonexistent/log")).unwrap_err().to_string();
        assert!(refusal.starts_with("log file /nonexistent/log: No such file"), "{refusal}");
    }
}
