//! `uvfs stat`: what is mounted, what the caches hold and what they did.
//!
//! # Boundary
//! Asks the daemon and lays out its report; counts nothing itself. What it says about locks is laid out
//! in [`crate::locks_report`]. The report is a JSON object
//! ([`crate::serve`] composes it); `--json` passes it on as it is, so a program sees exactly what the
//! daemon said.
//!
//! # Why
//! Sections and counters are laid out by their names and units (`_bytes`), not by a list of them
//! here: a counter that a layer adds shows without a change. Weakness: its order is the layer's.

use crate::Failure;
use crate::control::client::{self, Unreachable};
use crate::control::policies::Mark;
use crate::control::protocol::Request;
use crate::flags::StatArguments;
use crate::liveness::{self, Life};
use crate::locks_report::LocksReport;
use crate::mountinfo::{self, MountEntry};
use crate::shown::{shown, shown_lines};
use crate::units::{parse_duration, show_bytes, show_count, show_time};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

/// Columns of the table of caches, as the report names them.
const CACHE_COLUMNS: [&str; 5] = ["held", "limit", "hits", "misses", "evicted"];
/// Longest `--interval`.
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Width of the names on the left.
const LABEL_WIDTH: usize = 22;

/// Runs the subcommand.
pub(crate) fn run(arguments: &StatArguments) -> Result<ExitCode, Failure> {
    match &arguments.mountpoint {
        None => list(arguments.json)?,
        Some(path) => {
            let interval = arguments.interval.as_deref().map(parse_interval).transpose()?;
            let mount = mountinfo::find(path)?;
            let text = match arguments {
                StatArguments { locks: false, lockmeter: false, json: true, .. } => {
                    ask(&mount, Request::Stat)?.to_string()
                }
                StatArguments { locks: false, lockmeter: false, .. } => {
                    render(&ask(&mount, Request::Stat)?)
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
                false => crate::print_line(&shown_lines(text)),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the lock meter counted: since the mount, or during `interval` from now.
fn watch(mount: &MountEntry, interval: Option<Duration>) -> Result<LocksReport, Failure> {
    let ask = || LocksReport::from_json(ask(mount, Request::Locks)?);
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
    let mounts = mountinfo::read()?;
    let ours: Vec<_> = mounts.iter().filter(|mount| mount.is_uvfs()).collect();
    if ours.is_empty() && !json {
        eprintln!("uvfs: nothing is mounted");
    }
    for mount in ours {
        crate::print_line(&list_line(mount, state(mount), json));
    }
    Ok(())
}

/// Whether the daemon of `mount` lives.
fn state(mount: &MountEntry) -> &'static str {
    match client::connect_within(mount, Duration::ZERO) {
        Ok(_) => "served",
        Err(Unreachable::Failed(error)) if error.kind() == io::ErrorKind::WouldBlock => "busy",
        Err(Unreachable::Nobody) => match liveness::of(mount) {
            Life::Dead => "dead",
            Life::Silent => "not answering",
            Life::Served => "served without a control socket",
            Life::Unknown => "unknown",
        },
        Err(Unreachable::NotPermitted) => "of another user",
        Err(Unreachable::Failed(_)) => "unknown",
    }
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

/// The report for people.
fn render(report: &Value) -> String {
    let mut text = String::new();
    let core = &report["core"];
    line(&mut text, &string(&report["mountpoint"]), "");
    let store = string(&core["store"]);
    row(&mut text, "source", &format!("{} ({store})", string(&report["source"])));
    if let Some(now) = report["source_now"].as_str() {
        row(&mut text, "source now", now);
    }
    let since = show_time(report["since"].as_u64().unwrap_or(0));
    let (pid, version) = (string(&report["pid"]), string(&report["version"]));
    row(&mut text, "daemon", &format!("pid {pid}, uvfs {version}, since {since}"));
    row(&mut text, "options", &options(&report["options"]));
    row(&mut text, "files in reach", &string(&report["sandbox"]["files"]));
    row(&mut text, "system calls", &string(&report["sandbox"]["system_calls"]));
    render_caches(&mut text, core);
    render_section(&mut text, "memory", &core["budget"]);
    render_policies(&mut text, &report["policies"], &core["policies"]);
    render_section(&mut text, "path walks in process", &core["walks"]);
    render_section(&mut text, "kernel", &report["frontend"]);
    render_section(&mut text, "store", &pairs_to_object(&core["backend"]));
    text
}

/// The table of caches, and the core's other counters.
fn render_caches(text: &mut String, core: &Value) {
    let Some(counters) = core.as_object() else { return };
    let heads = CACHE_COLUMNS.map(|head| format!("{head:>13}")).concat();
    line(text, "", "");
    line(text, &format!("{:<LABEL_WIDTH$}{heads}", "caches"), "");
    let caches = counters.iter().filter(|(_, value)| value.get("held").is_some());
    for (name, cache) in caches {
        let unit = if name == "pages" { Unit::Bytes } else { Unit::Count };
        let cells = CACHE_COLUMNS.map(|column| {
            let unit = if matches!(column, "held" | "limit") { unit } else { Unit::Count };
            format!("{:>13}", amount(&cache[column], unit))
        });
        line(text, &format!("  {:<1$}", words(name), LABEL_WIDTH - 2), &cells.concat());
    }
    // What a user has to know of the pages: whether the source lacks something, and whether it refuses it.
    for name in ["dirty_bytes", "write_errors"] {
        if let Some(value) = counters.get("pages").and_then(|pages| pages.get(name)) {
            row(text, &words(name), &amount(value, unit_of(name)));
        }
    }
    for (name, value) in counters.iter().filter(|(_, value)| value.is_u64()) {
        row(text, &words(name), &amount(value, unit_of(name)));
    }
}

/// What is marked, and what is cached by these marks; nothing if nothing is.
fn render_policies(text: &mut String, marks: &Value, counters: &Value) {
    let marks = Vec::<Mark>::deserialize(marks).unwrap_or_default();
    if marks.is_empty() {
        return;
    }
    render_section(text, "policies", counters);
    if !counters.is_object() {
        line(text, "", "");
        line(text, "policies", "");
    }
    for mark in marks {
        row(text, &mark.policy, &mark.place());
    }
}

/// Counters under a heading; groups of counters under their own.
fn render_section(text: &mut String, title: &str, section: &Value) {
    let Some(fields) = section.as_object().filter(|fields| !fields.is_empty()) else { return };
    line(text, "", "");
    line(text, title, "");
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_object() && !is_pairs(value)) {
        row(text, &words(name), &amount(value, unit_of(name)));
    }
    for (name, value) in fields {
        let group = if is_pairs(value) { pairs_to_object(value) } else { value.clone() };
        render_section(text, &format!("{title}: {}", words(name)), &group);
    }
}

/// Whether `value` is a list of named amounts.
fn is_pairs(value: &Value) -> bool {
    value.as_array().is_some_and(|pairs| pairs.iter().all(|pair| pair_of(pair).is_some()))
}

/// The list of named amounts in `value` as an object.
fn pairs_to_object(value: &Value) -> Value {
    value.as_array().into_iter().flatten().filter_map(pair_of).collect()
}

/// A named amount: `[name, amount]`, as a backend's counters come, or an object of a text and a
/// number, as the frontend's do.
fn pair_of(value: &Value) -> Option<(String, Value)> {
    let parts: Vec<&Value> = match value {
        Value::Array(parts) => parts.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => return None,
    };
    match parts[..] {
        [Value::String(name), amount @ Value::Number(_)]
        | [amount @ Value::Number(_), Value::String(name)] => Some((name.clone(), amount.clone())),
        _ => None,
    }
}

/// How an amount is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
}

fn unit_of(name: &str) -> Unit {
    if name.ends_with("bytes") { Unit::Bytes } else { Unit::Count }
}

fn amount(value: &Value, unit: Unit) -> String {
    match (value.as_u64(), unit) {
        (Some(bytes), Unit::Bytes) => show_bytes(bytes),
        (Some(count), Unit::Count) => show_count(count),
        (None, _) => string(value),
    }
}

/// `allow-other, attr-timeout 1s`: flags that are set, and values that are given.
fn options(options: &Value) -> String {
    let fields = options.as_object().into_iter().flatten();
    let shown = fields.filter_map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(name.replace('_', "-")),
        _ => Some(format!("{} {}", name.replace('_', "-"), amount(value, unit_of(name)))),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

fn string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

fn row(text: &mut String, label: &str, value: &str) {
    line(text, &format!("  {label:<0$}", LABEL_WIDTH - 2), &format!(" {value}"));
}

fn line(text: &mut String, start: &str, end: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{}{}", shown(start), shown(end));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        json!({
            "mountpoint": "/mnt/data", "source": "/srv/data", "pid": 71, "since": 0,
            "version": "0.1.0",
            "options": {"allow_other": true, "read_only": false, "attr_timeout": "1s",
                "size_bytes": null},
            "sandbox": {"files": "only the source and /proc", "system_calls": "50 denied"},
            "policies": [{"policy": "keep", "path": "/photos", "inode": 7, "moved": false},
                {"policy": "once", "path": "/b", "inode": 8, "moved": true}],
            "core": {
                "store": "directory",
                "policies": {"kept_name_bytes": 2048, "marks": 2},
                "budget": {"limit_bytes": 8_388_608, "overhead_bytes": 4_194_304,
                    "held_bytes": 3584, "metadata_bytes": 2048,
                    "metadata_max_bytes": 4_192_768, "page_bytes": 1536,
                    "page_max_bytes": 4_192_256, "garbage_bytes": 0},
                "names": {"held": 1234, "limit": null, "hits": 5, "misses": 6, "evicted": 7},
                "pages": {"held": 1536, "limit": 268_435_456u64, "hits": 0, "misses": 0,
                    "evicted": 0, "dirty_bytes": 1536, "write_errors": 45},
                "stale": 3,
                "walks": {"whole": 8, "fast": 9, "slow": [["miss", 1], ["dotdot", 2]]},
                "backend": [["open_descriptors", 12], ["read_bytes", 2048]],
            },
            "frontend": {
                "readers": 4, "passthrough": false,
                "requests": [{"request": "lookup", "count": 1000},
                    {"request": "getattr", "count": 2}],
            },
        })
    }

    #[test]
    fn a_report_is_laid_out_in_columns() {
        let expected = "\
/mnt/data
  source               /srv/data (directory)
  daemon               pid 71, uvfs 0.1.0, since 1970-01-01 00:00:00 UTC
  options              allow-other, attr-timeout 1s
  files in reach       only the source and /proc
  system calls         50 denied

caches                         held        limit         hits       misses      evicted
  names                       1,234            -            5            6            7
  pages                     1.5 KiB    256.0 MiB            0            0            0
  dirty bytes          1.5 KiB
  write errors         45
  stale                3

memory
  garbage bytes        0 B
  held bytes           3.5 KiB
  limit bytes          8.0 MiB
  metadata bytes       2.0 KiB
  metadata max bytes   4.0 MiB
  overhead bytes       4.0 MiB
  page bytes           1.5 KiB
  page max bytes       4.0 MiB

policies
  kept name bytes      2.0 KiB
  marks                2
  keep                 /photos
  once                 /b (renamed since; inode 8)

path walks in process
  fast                 9
  whole                8

path walks in process: slow
  dotdot               2
  miss                 1

kernel
  passthrough          no
  readers              4

kernel: requests
  getattr              2
  lookup               1,000

store
  open descriptors     12
  read bytes           2.0 KiB
";
        assert_eq!(render(&report()), expected, "\n{}", render(&report()));
    }

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
    fn a_report_that_lacks_everything_is_still_shown() {
        assert!(render(&json!({})).starts_with("-\n  source"));
        assert!(render(&Value::Null).contains("pid -"));
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
