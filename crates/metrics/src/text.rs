//! Reports as OpenMetrics text, or in the older text format.
//!
//! # Boundary
//! Writes; asks no daemon. The format is that of OpenMetrics 1.0: the samples of a metric are adjacent, and the last
//! line marks the end.
//!
//! # Why
//! A daemon may be another user's, and that user chooses the names in its report: they are label values here, escaped,
//! and never names of metrics. Weakness: kinds of requests without a request, and classes of locks without a wait, have
//! no histogram.

use super::Sampled;
use super::families::{FAMILIES, Family, INFO, Kind, LOCK_WAIT, Places, TIMES, Times, UP};
use crate::shown::shown;
use serde_json::Value;
use std::fmt::Write;
use uvfs_vfs::Latency;

/// Ends of the histograms' buckets, as powers of two of nanoseconds: 1 µs to 17 s.
const BUCKET_ENDS: [u32; 9] = [10, 13, 16, 19, 22, 25, 28, 31, 34];

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The older text format of Prometheus, 0.0.4, which knows neither `info` nor units nor an end.
    Text,
}

impl Format {
    /// The format that fields `Accept` request: OpenMetrics, unless they name plain text and not OpenMetrics.
    pub(super) fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> Self {
        let accept = accept.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        match accept.contains("text/plain") && !accept.contains("application/openmetrics-text") {
            true => Format::Text,
            false => Format::OpenMetrics,
        }
    }

    /// Media type of the format.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of `mounts`.
pub(super) fn render(mounts: &[Sampled], format: Format) -> String {
    let mut text = String::new();
    let heading = |text: &mut String, name: &str, kind: &str, help: &str| match (format, kind) {
        (Format::OpenMetrics, _) => heading(text, name, kind, help),
        // Named as their samples are.
        (Format::Text, "counter") => old_heading(text, &format!("{name}_total"), kind, help),
        (Format::Text, "info") => old_heading(text, &format!("{name}_info"), "gauge", help),
        (Format::Text, _) => old_heading(text, name, kind, help),
    };
    heading(&mut text, UP.0, "gauge", UP.1);
    for mount in mounts {
        let up = u8::from(!mount.report.is_null());
        sample(&mut text, UP.0, &[("mountpoint", &mount.mountpoint)], &up.to_string());
    }
    heading(&mut text, INFO.0, "info", INFO.1);
    for mount in mounts.iter().filter(|mount| !mount.report.is_null()) {
        let of = |place: &str| mount.report.pointer(place).and_then(Value::as_str).unwrap_or("");
        let (version, store) = (of("/version"), of("/core/store"));
        let labels = [
            ("mountpoint", &*mount.mountpoint),
            ("source", &mount.source),
            ("store", store),
            ("version", version),
        ];
        sample(&mut text, &format!("{}_info", INFO.0), &labels, "1");
    }
    for family in FAMILIES {
        heading(&mut text, family.name, family.kind.word(), family.help);
        mounts.iter().for_each(|mount| samples(&mut text, family, mount));
    }
    for times in &TIMES {
        heading(&mut text, times.name, "histogram", times.help);
        mounts.iter().for_each(|mount| latencies(&mut text, times, mount));
    }
    heading(&mut text, LOCK_WAIT.0, "histogram", LOCK_WAIT.1);
    mounts.iter().for_each(|mount| waits(&mut text, mount));
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn old_heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn heading(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# TYPE {name} {kind}");
    for unit in ["seconds", "bytes"].iter().filter(|unit| name.ends_with(&format!("_{unit}"))) {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}.");
}

fn samples(text: &mut String, family: &Family, mount: &Sampled) {
    let name = match family.kind {
        Kind::Counter => format!("{}_total", family.name),
        Kind::Gauge => family.name.to_owned(),
    };
    let place = ("mountpoint", mount.mountpoint.as_str());
    let number = |place: &str| mount.report.pointer(place).and_then(Value::as_u64);
    let mut one = |labels: &[(&str, &str)], value: Option<u64>| {
        if let Some(value) = value {
            sample(text, &name, labels, &value.to_string());
        }
    };
    match family.places {
        Places::One(at) => one(&[place], number(at)),
        Places::Labelled(label, values) => {
            values.iter().for_each(|(value, at)| one(&[place, (label, value)], number(at)));
        }
        Places::Fields(label, at) => {
            let fields = mount.report.pointer(at).and_then(Value::as_object);
            for (field, value) in fields.into_iter().flatten() {
                one(&[place, (label, field)], value.as_u64());
            }
        }
    }
}

/// The waits for each class of locks with a wait.
fn waits(text: &mut String, mount: &Sampled) {
    let classes = mount.locks.get("classes").and_then(Value::as_array);
    for class in classes.into_iter().flatten() {
        let word = |field: &str| class.get(field).and_then(Value::as_str).unwrap_or("");
        let counts = class.get("wait_histogram").and_then(Value::as_array);
        let counts: Vec<u64> = counts.into_iter().flatten().filter_map(Value::as_u64).collect();
        let count = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        if count == 0 {
            continue;
        }
        let labels =
            [("mountpoint", &*mount.mountpoint), ("lock", word("lock")), ("mode", word("mode"))];
        // Bucket n has the times below 2^(n+1) nanoseconds.
        let below = |end: u32| counts.iter().take(end as usize).sum::<u64>();
        let sum_ns = class.get("wait_ns").and_then(Value::as_u64).unwrap_or(0);
        histogram(text, LOCK_WAIT.0, &labels, &below, (count, sum_ns));
    }
}

/// How long each kind took of which there were any.
fn latencies(text: &mut String, times: &Times, mount: &Sampled) {
    let kinds = mount.report.pointer(times.place).and_then(Value::as_object);
    for (kind, value) in kinds.into_iter().flatten() {
        let Ok(latency) = serde_json::from_value::<Latency>(value.clone()) else { continue };
        let labels = [("mountpoint", &*mount.mountpoint), (times.label, kind)];
        let below = |end: u32| latency.below(1 << end);
        histogram(text, times.name, &labels, &below, (latency.count, latency.sum_ns));
    }
}

/// The samples of one histogram; `below` counts the times below two to the power of so many nanoseconds.
fn histogram(
    text: &mut String,
    name: &str,
    labels: &[(&str, &str)],
    below: &dyn Fn(u32) -> u64,
    (count, sum_ns): (u64, u64),
) {
    let bucket = format!("{name}_bucket");
    for end in BUCKET_ENDS {
        let le = seconds(1 << end);
        sample(text, &bucket, &[labels, &[("le", &le)]].concat(), &below(end).to_string());
    }
    sample(text, &bucket, &[labels, &[("le", "+Inf")]].concat(), &count.to_string());
    sample(text, &format!("{name}_count"), labels, &count.to_string());
    sample(text, &format!("{name}_sum"), labels, &seconds(sum_ns));
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: &str) {
    let labels: Vec<_> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
}

/// A label's value: one line, without characters that control a terminal, escaped so that it ends at the right place.
fn escaped(value: &str) -> String {
    shown(value).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::HashSet;

    fn mount(mountpoint: &str, report: Value, locks: Value) -> Sampled {
        Sampled { mountpoint: mountpoint.into(), source: "memory:".into(), report, locks }
    }

    fn report() -> Value {
        json!({
            "version": "0.1.0", "since": 1_000,
            "core": {"store": "memory", "budget": {"limit_bytes": 64}, "names": {"hits": 5}},
            "frontend": {"latency": {"lookup": {"count": 3, "sum_ns": 70_000_000_300u64, "p50_ns": 0, "p99_ns": 0,
                "buckets": [{"below_ns": 1024, "count": 1}, {"below_ns": 8192, "count": 1},
                    {"below_ns": null, "count": 1}]}, "odd": 5}, "requests": {"lookup": 3, "x\"\\\n\u{1b}": 4}},
        })
    }

    #[test]
    fn samples_stand_together_are_escaped_and_end() {
        let locks = json!({"classes": [{"lock": "dir", "mode": "mutex", "wait_ns": 1_500_000_000_u64,
            "wait_histogram": [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2]}, {"lock": "idle", "wait_histogram": []}]});
        let text = render(
            &[mount("/mnt/a", report(), locks), mount("/mnt/b", Value::Null, Value::Null)],
            Format::OpenMetrics,
        );
        for line in [
            "uvfs_up{mountpoint=\"/mnt/a\"} 1\nuvfs_up{mountpoint=\"/mnt/b\"} 0\n",
            "uvfs_mount_info{mountpoint=\"/mnt/a\",source=\"memory:\",store=\"memory\",version=\"0.1.0\"} 1\n",
            "# TYPE uvfs_memory_limit_bytes gauge\n# UNIT uvfs_memory_limit_bytes bytes\n",
            "uvfs_cache_hits_total{mountpoint=\"/mnt/a\",cache=\"names\"} 5\n",
            "uvfs_requests_total{mountpoint=\"/mnt/a\",kind=\"x\\\"\\\\\\\\n\\\\x1b\"} 4\n",
            "uvfs_lock_wait_seconds_bucket{mountpoint=\"/mnt/a\",lock=\"dir\",mode=\"mutex\",le=\"0.000001024\"} 1\n",
            "le=\"0.000008192\"} 3\n",
            "# TYPE uvfs_request_seconds histogram\n# UNIT uvfs_request_seconds seconds\n",
            "uvfs_request_seconds_bucket{mountpoint=\"/mnt/a\",kind=\"lookup\",le=\"0.000001024\"} 1\n",
            "uvfs_request_seconds_bucket{mountpoint=\"/mnt/a\",kind=\"lookup\",le=\"17.179869184\"} 2\n",
            "uvfs_request_seconds_bucket{mountpoint=\"/mnt/a\",kind=\"lookup\",le=\"+Inf\"} 3\n",
            "uvfs_request_seconds_sum{mountpoint=\"/mnt/a\",kind=\"lookup\"} 70.000000300\n",
            "le=\"+Inf\"} 3\n",
            "uvfs_lock_wait_seconds_sum{mountpoint=\"/mnt/a\",lock=\"dir\",mode=\"mutex\"} 1.500000000\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n") && !text.contains("idle"), "{text}");
        let types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        assert_eq!(types.len(), types.iter().collect::<HashSet<_>>().len(), "each metric once");
    }

    /// The textfile collector of node_exporter refused the whole file for its kind `info`, and showed no metric.
    #[test]
    fn the_older_format_has_its_kinds_and_names_alone() {
        let text = render(&[mount("/m", report(), Value::Null)], Format::Text);
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            match words[..2] {
                ["#", "TYPE"] => {
                    assert!(["counter", "gauge", "histogram"].contains(&words[3]), "{line}");
                }
                ["#", second] => assert_eq!(second, "HELP", "{line}"),
                _ => assert!(line.starts_with("uvfs_"), "{line}"),
            }
        }
        assert!(text.contains("# TYPE uvfs_mount_info gauge\nuvfs_mount_info{"), "{text}");
        assert!(
            text.contains("# TYPE uvfs_cache_hits_total counter\nuvfs_cache_hits_total{"),
            "{text}"
        );
        assert!(text.contains("uvfs_request_seconds_bucket{"), "{text}");
    }

    /// All names of samples that a mount can have.
    fn sample_names() -> HashSet<String> {
        let families = FAMILIES.iter().map(|family| match family.kind {
            Kind::Counter => format!("{}_total", family.name),
            Kind::Gauge => family.name.to_owned(),
        });
        let histograms = TIMES.iter().map(|times| times.name).chain([LOCK_WAIT.0]);
        let waits = histograms
            .flat_map(|name| ["bucket", "count", "sum"].map(|end| format!("{name}_{end}")));
        let info = [UP.0.to_owned(), format!("{}_info", INFO.0)];
        families.chain(waits).chain(info).collect()
    }

    /// The names are a promise: dashboards and alert rules of others have them.
    #[test]
    fn the_document_has_every_metric_and_no_other() {
        let document = include_str!("../../../docs/metrics.md");
        let rows: Vec<_> = document.lines().filter(|line| line.starts_with("| `uvfs_")).collect();
        let names: HashSet<_> = rows.iter().filter_map(|row| row.split('`').nth(1)).collect();
        let ours = sample_names();
        let mut ours: HashSet<&str> = ours.iter().map(String::as_str).collect();
        ours.retain(|name| !["_bucket", "_count", "_sum"].iter().any(|end| name.ends_with(end)));
        ours.insert(LOCK_WAIT.0);
        for times in &TIMES {
            ours.insert(times.name);
            let row = rows.iter().find(|row| row.contains(times.name)).expect(times.name);
            let has = |word: &str| row.contains(word);
            assert!(has("histogram") && has(times.help) && has(&format!("`{}`", times.label)));
        }
        assert_eq!(names, ours);
        for family in FAMILIES {
            let row = rows.iter().find(|row| row.contains(&format!("`{}", family.name))).unwrap();
            assert!(row.contains(family.kind.word()) && row.contains(family.help), "{row}");
            if let Places::Labelled(label, values) = family.places {
                assert!(row.contains(&format!("`{label}`")), "{row}");
                assert!(
                    values.iter().all(|(value, _)| row.contains(&format!("`{value}`"))),
                    "{row}"
                );
            }
        }
    }

    /// Names of metrics of ours in an expression.
    fn named(expression: &str) -> Vec<&str> {
        let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        expression.split(is_end).filter(|word| word.starts_with("uvfs_")).collect()
    }

    /// An empty dashboard would be noticed only on the day when it is needed.
    #[test]
    fn the_dashboard_and_the_rules_load_and_name_metrics_that_there_are() {
        let ours = sample_names();
        let known = |expression: &str| {
            let names = named(expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(ours.contains(name), "{name} in {expression}");
            }
        };
        let dashboard = include_str!("../../../contrib/grafana/uvfs.json");
        let dashboard: Value = serde_json::from_str(dashboard).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        assert!(panels.len() >= 8, "{}", panels.len());
        for panel in panels {
            assert!(panel["title"].is_string() && panel["gridPos"]["w"].is_u64(), "{panel}");
            for target in panel["targets"].as_array().expect("targets") {
                known(target["expr"].as_str().expect("an expression"));
            }
        }
        let rules = include_str!("../../../contrib/prometheus/uvfs.rules.yml");
        let rules: Value = serde_yaml_ng::from_str(rules).expect("YAML");
        let rules = rules["groups"][0]["rules"].as_array().expect("rules");
        assert!(rules.len() >= 5, "{}", rules.len());
        for rule in rules {
            assert!(rule["alert"].is_string() && rule["for"].is_string(), "{rule}");
            assert!(rule["annotations"]["summary"].is_string(), "{rule}");
            known(rule["expr"].as_str().expect("an expression"));
        }
    }
}
