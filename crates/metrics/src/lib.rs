//! `uvfs metrics`, and `--metrics ADDRESS` of a mount: counters for a monitoring system, in the OpenMetrics format.
//!
//! # Boundary
//! Asks daemons, like `uvfs stat`, and writes their reports. `families` has the metrics, `text` writes them, and
//! `server` answers HTTP requests. Nothing is counted here.
//!
//! # Concurrency
//! The command is one thread. A mount has one thread for all its scrapers.
//!
//! # Why
//! The report has every counter already; a second set of counters would one day differ from it. Weakness: a histogram
//! has nine buckets here, of the hundred in the report: a scraper stores each of them for each kind.

#![forbid(unsafe_code)]

mod families;
mod server;
mod text;

use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use uvfs_client::mountinfo::{self, MountEntry};
use uvfs_terminal::output::print_text;
use uvfs_terminal::{Failure, cause, shown};

pub use server::{open, start};
use uvfs_client as client;
use uvfs_control::protocol::Request;

/// The data of one mount.
#[derive(Debug, Clone)]
pub struct Sampled {
    /// Where it is.
    pub mountpoint: String,
    /// Source of the mount, as the mount table names it.
    pub source: String,
    /// Report of the mount, as `uvfs stat --json` prints it; null if it did not answer.
    pub report: Value,
    /// The lock meter's counts, or null.
    pub locks: Value,
}

/// Prints the metrics of the mounts at `mountpoints`, or of all mounts; as the older text format if `is_text`.
///
/// # Errors
/// If a mount that was named cannot be asked. Where none is named, one that does not answer is reported as down.
pub fn run(mountpoints: &[PathBuf], is_text: bool) -> Result<ExitCode, Failure> {
    let sampled: Vec<Sampled> = match mountpoints.is_empty() {
        true => mountinfo::ours()?.iter().map(ask).collect(),
        false => {
            let named = mountpoints.iter().map(|path| {
                let mount = mountinfo::find(path)?;
                let mut daemon = client::reach(&mount)?;
                let report = daemon.report(Request::Stat)?;
                Ok(sampled(&mount, report, daemon.report(Request::Locks)?))
            });
            named.collect::<Result<_, Failure>>()?
        }
    };
    let format = if is_text { text::Format::Text } else { text::Format::OpenMetrics };
    crate::print_text(&text::render(&sampled, format));
    Ok(ExitCode::SUCCESS)
}

fn sampled(mount: &MountEntry, report: Value, locks: Value) -> Sampled {
    Sampled {
        mountpoint: mount.mountpoint.to_string_lossy().into_owned(),
        source: mount.source.to_string_lossy().into_owned(),
        report,
        locks,
    }
}

fn ask(mount: &MountEntry) -> Sampled {
    const ANSWER_TIME: Duration = Duration::from_secs(2);
    let Ok(mut daemon) = client::connect_within(mount, Duration::ZERO) else {
        return sampled(mount, Value::Null, Value::Null);
    };
    let mut of = |request| {
        let reply = daemon.ask(request, ANSWER_TIME).ok();
        reply.and_then(|reply| reply.report).unwrap_or_default()
    };
    let report = of(Request::Stat);
    let locks = if report.is_null() { Value::Null } else { of(Request::Locks) };
    sampled(mount, report, locks)
}
