//! How names and amounts of a report are written for people.
//!
//! # Boundary
//! Single values and rows; [`super::all`] and [`super::summary`] choose and order them.

use crate::shown::shown;
use crate::units::{show_bytes, show_count, show_time};
use serde::Deserialize;
use serde_json::Value;
use std::fmt::Write;
use uvfs_control::policies::Mark;

/// Width of the names on the left.
pub(super) const LABEL_WIDTH: usize = 22;

/// Source, mountpoint and options: the first lines of every report.
pub(super) fn head(text: &mut String, report: &Value) {
    line(text, &string(&report["mountpoint"]), "");
    let store = string(&report["core"]["store"]);
    row(text, "source", &format!("{} ({store})", string(&report["source"])));
    if let Some(now) = report["source_now"].as_str() {
        row(text, "source now", now);
    }
    if let Some(seconds) = report["source_silent_seconds"].as_f64() {
        row(text, "source", &format!("has not answered for {seconds:.1} s"));
    }
    let since = show_time(report["since"].as_u64().unwrap_or(0));
    let (pid, version) = (string(&report["pid"]), string(&report["version"]));
    row(text, "daemon", &format!("pid {pid}, uvfs {version}, since {since}"));
    if let Some(device) = report["options"]["device"].as_str() {
        row(text, "device", device);
    }
    row(text, "options", &options(&report["options"]));
    row(text, "files in reach", &string(&report["sandbox"]["files"]));
    row(text, "system calls", &string(&report["sandbox"]["system_calls"]));
}

/// The marked directories in a report.
pub(super) fn marks_of(marks: &Value) -> Vec<Mark> {
    Vec::<Mark>::deserialize(marks).unwrap_or_default()
}

/// How an amount is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
}

/// By the end of its name.
pub(super) fn unit_of(name: &str) -> Unit {
    if name.ends_with("bytes") { Unit::Bytes } else { Unit::Count }
}

/// A number in its unit; any other value unchanged.
pub(super) fn amount(value: &Value, unit: Unit) -> String {
    match (value.as_u64(), unit) {
        (Some(bytes), Unit::Bytes) => show_bytes(bytes),
        (Some(count), Unit::Count) => show_count(count),
        (None, _) => string(value),
    }
}

/// `allow-other, attr-timeout 1s`: flags that are set, and values that are given.
fn options(options: &Value) -> String {
    let fields = options.as_object().into_iter().flatten();
    // `device` has a row of its own.
    let fields = fields.filter(|(name, _)| *name != "device");
    let shown = fields.filter_map(|(name, value)| match value {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(name.replace('_', "-")),
        _ => Some(format!("{} {}", name.replace('_', "-"), amount(value, unit_of(name)))),
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// The words of a counter's name.
pub(super) fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A value that is no amount.
pub(super) fn string(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}

/// A name on the left and a value on the right.
pub(super) fn row(text: &mut String, label: &str, value: &str) {
    line(text, &format!("  {label:<0$}", LABEL_WIDTH - 2), &format!(" {value}"));
}

/// A line, without anything that a terminal obeys.
pub(super) fn line(text: &mut String, start: &str, end: &str) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{}{}", shown(start), shown(end));
}
