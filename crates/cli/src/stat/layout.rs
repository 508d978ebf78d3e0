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

/// `text` in lines of `width`: a longer one goes on below its value, and breaks between words.
pub(super) fn folded(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let own = line.chars().take_while(|letter| *letter == ' ').count();
        // The rows of values are indented by two, below heads that are not.
        let indent = if own == 2 { LABEL_WIDTH + 1 } else { own + 2 };
        // Where a value has no room, a line stays whole.
        if indent + 10 > width {
            lines.push(line.to_owned());
            continue;
        }
        let mut rest = line.to_owned();
        while let Some((beyond, letter)) = rest.char_indices().nth(width) {
            let start = rest.len() - rest.trim_start().len();
            // A space right behind the line is as good a place.
            let end = beyond + letter.len_utf8();
            let within = rest[start..end].rfind(' ').map(|at| start + at);
            // A word that is longer than its line stays whole.
            let behind = || rest[end..].find(' ').map(|at| end + at);
            let Some(space) = within.filter(|at| *at > indent).or_else(behind) else { break };
            let next = format!("{:indent$}{}", "", rest[space..].trim_start());
            rest.truncate(space);
            lines.push(std::mem::replace(&mut rest, next).trim_end().to_owned());
        }
        lines.push(rest);
    }
    lines.join("\n")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The terminal broke a long line inside a word: "n/egative-timeout".
    #[test]
    fn long_values_go_on_below_themselves_between_words() {
        let mut text = String::new();
        row(
            &mut text,
            "options",
            "allow-other, attr-timeout 1s, negative-timeout 1s, page-cache off",
        );
        row(
            &mut text,
            "source",
            "/a-path-that-is-longer-than-the-line-and-has-no-space-at-all (directory)",
        );
        let expected = "
  options              allow-other,
                       attr-timeout 1s,
                       negative-timeout
                       1s, page-cache off
  source               /a-path-that-is-longer-than-the-line-and-has-no-space-at-all
                       (directory)";
        assert_eq!(folded(&text, 41), expected[1..], "\n{}", folded(&text, 41));
        assert_eq!(folded(&text, 200), text.trim_end());
        assert_eq!(folded(&text, 20), text.trim_end(), "no room for a value");
    }
}
