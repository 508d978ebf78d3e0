//! `uvfs metrics`, and `--metrics ADDRESS` of a mount: counters for a monitoring system, in the OpenMetrics format.
//!
//! # Boundary
//! Asks daemons, like `uvfs stat`, and writes their reports. [`families`] has the metrics, [`text`] writes them, and
//! [`server`] answers HTTP requests. Nothing is counted here.
//!
//! # Why
//! The report has every counter already; a second set of counters would one day differ from it. Weakness: a histogram
//! has nine buckets here, of the hundred in the report: a scraper stores each of them for each kind.

mod families;
pub(crate) mod server;
mod text;

use crate::Failure;
use crate::flags::MetricsArguments;
use crate::mountinfo::{self, MountEntry};
use serde_json::Value;
use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;
use uvfs_client as client;
use uvfs_control::protocol::Request;

/// The data of one mount.
#[derive(Debug, Clone)]
pub(crate) struct Sampled {
    pub(crate) mountpoint: String,
    pub(crate) source: String,
    /// Its report, as `uvfs stat --json` has it; null if it did not answer.
    pub(crate) report: Value,
    /// The lock meter's counts, or null.
    pub(crate) locks: Value,
}

/// Runs the subcommand.
///
/// # Errors
/// If a mount that was named cannot be asked. Where none is named, one that does not answer is reported as down.
pub(crate) fn run(arguments: &MetricsArguments) -> Result<ExitCode, Failure> {
    let sampled: Vec<Sampled> = match arguments.mountpoints.is_empty() {
        true => all()?,
        false => {
            let named = arguments.mountpoints.iter().map(|path| {
                let mount = mountinfo::find(path)?;
                let mut daemon = client::reach(&mount)?;
                let report = daemon.report(Request::Stat)?;
                Ok(sampled(&mount, report, daemon.report(Request::Locks)?))
            });
            named.collect::<Result<_, Failure>>()?
        }
    };
    let format = if arguments.text { text::Format::Text } else { text::Format::OpenMetrics };
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

/// Every uvfs mount once, also those that do not answer.
fn all() -> Result<Vec<Sampled>, Failure> {
    let mounts = mountinfo::read()?;
    let (mut devices, mut places) = (HashSet::new(), HashSet::new());
    // The last mount on a mountpoint is the visible one, and a bind mount shows one that is already counted.
    let mut ours: Vec<_> = mounts
        .iter()
        .rev()
        .filter(|mount| places.insert(&mount.mountpoint) && mount.is_uvfs())
        .filter(|mount| devices.insert(mount.device))
        .collect();
    ours.reverse();
    Ok(ours.into_iter().map(ask).collect())
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
