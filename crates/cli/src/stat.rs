//! `uvfs stat`: the mounts, and the contents and counters of their caches.
//!
//! # Boundary
//! Asks the daemon and lays out its report; counts nothing itself. [`crate::locks_report`] lays out the
//! part about locks. The report is a JSON object ([`crate::serve`] composes it). `--json` prints it
//! unchanged, so a program sees exactly the daemon's answer. `docs/stat.md` describes its fields.
//!
//! # Why
//! A user asks first whether all is well, and reads fifteen lines ([`summary`]). A search for a cause needs
//! all counters ([`all`]). Weakness: the choice of the fifteen lines cannot suit every user.

mod all;
mod journal;
mod layout;
mod summary;

use crate::Failure;
use crate::flags::StatArguments;
use crate::locks_report::LocksReport;
use crate::mountinfo::{self, MountEntry};
use crate::mounts;
use crate::shown::{shown, shown_lines};
use crate::units::parse_duration;
use serde_json::{Value, json};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use uvfs_client as client;
use uvfs_control::protocol::Request;

/// Longest `--interval`.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the subcommand.
pub(crate) fn run(arguments: &StatArguments) -> Result<ExitCode, Failure> {
    match &arguments.mountpoint {
        None => list(arguments.json)?,
        Some(path) => {
            let interval = arguments.interval.as_deref().map(parse_interval).transpose()?;
            let mount = mountinfo::find(path)?;
            let text = match arguments {
                StatArguments {
                    locks: false,
                    lockmeter: false,
                    journal: false,
                    json: true,
                    ..
                } => ask(&mount, Request::Stat)?.to_string(),
                StatArguments {
                    locks: false, lockmeter: false, journal: false, all: true, ..
                } => all::render(&ask(&mount, Request::Stat)?),
                StatArguments { locks: false, lockmeter: false, journal: false, .. } => {
                    summary::render(&ask(&mount, Request::Stat)?)
                }
                StatArguments { journal: true, json, .. } => {
                    let seen = journal::watch(interval, || ask(&mount, Request::Stat))?;
                    if *json { seen.to_json().to_string() } else { seen.table() }
                }
                StatArguments { json: true, .. } => {
                    let locks = watch(&mount, interval)?;
                    let mut report = ask(&mount, Request::Stat)?;
                    if let Some(sections) = report.as_object_mut() {
                        sections.insert("locks".into(), locks.to_json());
                    }
                    report.to_string()
                }
                StatArguments { lockmeter: true, .. } => watch(&mount, interval)?.lockmeter(),
                StatArguments { .. } => watch(&mount, interval)?.table(),
            };
            let text = text.trim_end();
            match arguments.json {
                true => crate::print_line(text),
                // The daemon may be another user's, and the names of locks are its own.
                false => crate::print_line(&folded(&shown_lines(text), arguments)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A report in lines of the terminal's width. Tables have columns, and a pipe has no width.
fn folded(text: &str, arguments: &StatArguments) -> String {
    let out = io::stdout();
    let is_table = arguments.locks || arguments.lockmeter || arguments.journal;
    if is_table || !out.is_terminal() {
        return text.to_owned();
    }
    let width = rustix::termios::tcgetwinsize(&out).map_or(0, |size| usize::from(size.ws_col));
    if width == 0 { text.to_owned() } else { layout::folded(text, width) }
}

/// The counts of the lock meter: since the mount, or during `interval` from now.
fn watch(mount: &MountEntry, interval: Option<Duration>) -> Result<LocksReport, Failure> {
    let ask = || LocksReport::from_json(ask(mount, Request::Locks)?).map_err(Failure::refused);
    let first = ask()?;
    match interval {
        None => Ok(first),
        Some(interval) => {
            thread::sleep(interval);
            Ok(ask()?.since(&first))
        }
    }
}

/// Reads `--interval`: seconds, as `vmstat` takes them, or a duration with its unit.
fn parse_interval(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse().map(Duration::from_secs);
    let interval = seconds.map_or_else(|_| parse_duration(text), Ok);
    let refused = |cause: &str| Failure::refused(format!("--interval {text}: {cause}"));
    match interval {
        Err(cause) => Err(refused(&cause)),
        Ok(interval) if interval.is_zero() => {
            Err(refused("no time to watch; write seconds, as in 5, or 500ms"))
        }
        Ok(interval) if interval > INTERVAL_MAX => Err(refused("more than a day; write less")),
        Ok(interval) => Ok(interval),
    }
}

/// All mounts, one per line.
fn list(json: bool) -> Result<(), Failure> {
    let all = mountinfo::read()?;
    let ours: Vec<_> = all.iter().filter(|mount| mount.is_uvfs()).collect();
    if ours.is_empty() && !json {
        eprintln!("uvfs: nothing is mounted");
    }
    for ((state, _), mount) in mounts::look_at(&ours).into_iter().zip(&ours) {
        crate::print_line(&list_line(mount, state.word(), json));
    }
    Ok(())
}

fn list_line(mount: &MountEntry, state: &str, json: bool) -> String {
    let mountpoint = mount.mountpoint.to_string_lossy().into_owned();
    let source = mount.source.to_string_lossy().into_owned();
    if json {
        let device = mount.device.to_string();
        return json!({
            "mountpoint": mountpoint, "source": source, "state": state, "device": device,
            "owner_uid": mount.owner_uid,
        })
        .to_string();
    }
    shown(&format!("{mountpoint}  {source}  {state}")).into_owned()
}

fn ask(mount: &MountEntry, of: Request) -> Result<Value, Failure> {
    client::reach(mount)?.report(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_seconds_or_has_a_unit() {
        assert_eq!(parse_interval("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse_interval("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["0", "-1", "5 apples", "", "2d", "25h", "99999999999999999999"] {
            let refused = parse_interval(bad).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--interval {bad}: ")), "{refused}");
            assert!(refused.contains("write"), "{refused}");
        }
    }

    #[test]
    fn a_listing_has_one_line_per_mount_whatever_it_is_called() {
        let mount = MountEntry {
            id: 1,
            device: mountinfo::Device { major: 0, minor: 50 },
            root: "/".into(),
            mountpoint: "/mnt/a\nb".into(),
            file_system: mountinfo::FILE_SYSTEM_TYPE.into(),
            source: "memory:".into(),
            owner_uid: 5,
            owner_gid: 5,
        };
        assert_eq!(list_line(&mount, "served", false), "/mnt/a\\nb  memory:  served");
        let object: Value = serde_json::from_str(&list_line(&mount, "dead", true)).unwrap();
        assert_eq!((&object["state"], &object["device"]), (&json!("dead"), &json!("0:50")));
    }
}
