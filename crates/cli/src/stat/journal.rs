//! `uvfs stat MOUNTPOINT --journal`: the work of an image's journal.
//!
//! # Boundary
//! From the counters of the store in a mount's report to a table; two reports make what happened between them.

use super::layout::row;
use super::summary;
use crate::Failure;
use crate::units::show_count;
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// Counters that show a present state, not a number of events.
const LEVELS: [&str; 10] = [
    "transaction",
    "running_blocks",
    "capacity_blocks",
    "log_blocks",
    "log_used_blocks",
    "waiting_blocks",
    "queue_waiting_blocks",
    "queue_depth",
    "data",
    "ended",
];

/// The journal's counters, as they are or as they grew.
pub(super) struct Seen {
    counters: Vec<(String, u64)>,
    during: Option<Duration>,
    /// The time and cause of the end of writing.
    ended: Option<String>,
}

/// The counters in `report`: since the mount, or during `interval` from now.
pub(super) fn watch(
    interval: Option<Duration>,
    report: impl Fn() -> Result<Value, Failure>,
) -> Result<Seen, Failure> {
    let (report_first, since) = (report()?, Instant::now());
    let (first, ended) = (counters(&report_first)?, summary::ended(&report_first));
    let Some(interval) = interval else {
        return Ok(Seen { counters: first, during: None, ended });
    };
    thread::sleep(interval);
    let report_last = report()?;
    let (last, ended) = (counters(&report_last)?, summary::ended(&report_last));
    let during = Some(since.elapsed());
    let grown = last.into_iter().zip(first).map(|((name, now), (_, before))| {
        let is_level = LEVELS.contains(&&*name) || name.ends_with("_max");
        let value = if is_level { now } else { now.saturating_sub(before) };
        (name, value)
    });
    Ok(Seen { counters: grown.collect(), during, ended })
}

fn counters(report: &Value) -> Result<Vec<(String, u64)>, Failure> {
    let all = report.pointer("/core/backend").and_then(Value::as_object);
    let ours = all.into_iter().flatten().filter_map(|(name, value)| {
        Some((name.strip_prefix("journal_")?.to_owned(), value.as_u64()?))
    });
    let ours: Vec<_> = ours.collect();
    if ours.is_empty() {
        return Err(Failure::refused(
            "--journal: this mount has none; it is no disk image, or one that is only read",
        ));
    }
    Ok(ours)
}

impl Seen {
    fn of(&self, name: &str) -> u64 {
        self.counters.iter().find(|(one, _)| one == name).map_or(0, |(_, value)| *value)
    }

    pub(super) fn to_json(&self) -> Value {
        let counters: serde_json::Map<_, _> =
            self.counters.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let seconds = self.during.map(|during| during.as_secs_f64());
        json!({ "journal": counters, "interval_s": seconds })
    }

    pub(super) fn table(&self) -> String {
        let count = |name: &str| show_count(self.of(name));
        let mean = |total: &str, of: &str| match self.of(of) {
            0 => "none".to_owned(),
            number => show_time(self.of(total) / number),
        };
        let requests = |class: &str, name: &str| {
            let of = |what: &str| self.of(&format!("{class}_{what}"));
            match of("requests") {
                0 => format!("no {name}"),
                number => format!(
                    "{} {name}, {} each, at most {}",
                    show_count(number),
                    show_time(of("ns") / number),
                    show_time(of("ns_max"))
                ),
            }
        };
        let mut text = String::new();
        if let Some(during) = self.during {
            row(&mut text, "during", &format!("{:.1} s", during.as_secs_f64()));
        }
        let rows = [
            (
                "running",
                format!(
                    "transaction {}: {} of {} blocks",
                    self.of("transaction"),
                    count("running_blocks"),
                    count("capacity_blocks")
                ),
            ),
            (
                "operations",
                format!(
                    "{}, of which {} waited, {} each",
                    count("handles"),
                    count("handle_waits"),
                    mean("handle_wait_ns", "handle_waits")
                ),
            ),
            (
                "commits",
                format!(
                    "{} with {} blocks, {} each, at most {}",
                    count("commits"),
                    count("committed_blocks"),
                    mean("commit_ns", "commits"),
                    show_time(self.of("commit_ns_max"))
                ),
            ),
            ("waited with others", format!("{} times for one commit", count("shared_commits"))),
            (
                "log",
                format!(
                    "{} of {} blocks; full {} times",
                    count("log_used_blocks"),
                    count("log_blocks"),
                    count("log_waits")
                ),
            ),
            (
                "checkpoints",
                format!(
                    "{} with {} blocks; {} blocks wait for one",
                    count("checkpoints"),
                    count("checkpointed_blocks"),
                    count("waiting_blocks")
                ),
            ),
            (
                "data",
                match self.of("data") {
                    0 => "in place, before the commit that makes it reachable (ordered)".into(),
                    _ => "overwrites go through the journal (data=journal)".into(),
                },
            ),
            (
                "queue",
                format!(
                    "{} blocks wait; {} put: {} replaced, {} dropped, {} merged, {} written by commits",
                    count("queue_waiting_blocks"),
                    count("queue_put_blocks"),
                    count("queue_replaced_blocks"),
                    count("queue_dropped_blocks"),
                    count("queue_merged_blocks"),
                    count("queue_taken_blocks")
                ),
            ),
            (
                "device",
                format!(
                    "{}; {}",
                    requests("read", "reads of metadata"),
                    requests("write", "writes")
                ),
            ),
            ("flushes", requests("flush", "flushes")),
            ("background", requests("background", "writes")),
        ];
        for (label, value) in rows {
            row(&mut text, label, &value);
        }
        if let Some(ended) = &self.ended {
            row(&mut text, "writing", ended);
        }
        text
    }
}

fn show_time(nanoseconds: u64) -> String {
    match nanoseconds {
        0..1_000_000 => format!("{} us", nanoseconds / 1000),
        1_000_000..10_000_000_000 => format!("{:.1} ms", nanoseconds as f64 / 1e6),
        _ => format!("{:.1} s", nanoseconds as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(commits: u64) -> Value {
        json!({ "core": { "backend": {
            "journal_commits": commits, "journal_commit_ns": commits * 3_000_000, "journal_transaction": 70 + commits,
            "journal_handles": 1000 * commits, "buffer_bytes": 5, "journal_queue_depth": 8,
            "journal_flush_requests": 2 * commits, "journal_flush_ns": commits * 8_000_000, "journal_flush_ns_max": 90_000_000,
        } } })
    }

    #[test]
    fn an_interval_shows_what_happened_in_it() {
        let commits = std::cell::Cell::new(1);
        let ask = || {
            commits.set(commits.get() + 2);
            Ok(report(commits.get()))
        };
        let seen = watch(Some(Duration::from_millis(1)), ask).unwrap();
        let shown = seen.to_json();
        assert_eq!(
            shown["journal"],
            json!({
                "commits": 2, "commit_ns": 6_000_000, "transaction": 75, "handles": 2000, "queue_depth": 8,
                "flush_requests": 4, "flush_ns": 16_000_000, "flush_ns_max": 90_000_000,
            })
        );
        assert!(
            seen.table().contains("4 flushes, 4.0 ms each, at most 90.0 ms"),
            "{}",
            seen.table()
        );
        assert!(seen.table().contains("queue                0 blocks wait"), "{}", seen.table());
        assert!(seen.table().contains("3.0 ms each"), "{}", seen.table());
        let whole = watch(None, || Ok(report(9))).unwrap();
        assert_eq!((whole.of("commits"), whole.during), (9, None));
    }

    #[test]
    fn a_mount_without_a_journal_is_reported_as_such() {
        let none =
            watch(None, || Ok(json!({ "core": { "backend": { "hits": 1 } } }))).err().unwrap();
        assert!(none.to_string().contains("no disk image"), "{none}");
    }
}
