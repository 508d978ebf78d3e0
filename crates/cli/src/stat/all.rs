//! `uvfs stat MOUNTPOINT --all`: every counter of the report.
//!
//! # Boundary
//! A report to text. [`super::summary`] has the lines that a person needs first.
//!
//! # Why
//! Sections and counters are laid out by their names and units (`_bytes`), not by a list of them
//! here, so a new counter of a layer shows without a change here. Weakness: the order is the alphabet's.

use super::layout::{LABEL_WIDTH, Unit, amount, head, line, marks_of, row, unit_of, words};
use crate::units::{show_count, show_ns};
use serde_json::Value;
use uvfs_vfs::Latency;

/// Columns of the table of caches, as the report names them.
const CACHE_COLUMNS: [&str; 5] = ["held", "limit", "hits", "misses", "evicted"];

/// The whole report, for people.
pub(super) fn render(report: &Value) -> String {
    let mut text = String::new();
    let core = &report["core"];
    head(&mut text, report);
    render_caches(&mut text, core);
    render_others(&mut text, core);
    render_section(&mut text, "kept listings", &core["listings"]);
    render_section(&mut text, "memory", &core["budget"]);
    render_policies(&mut text, &report["policies"], &core["policies"]);
    render_section(&mut text, "path walks in process", &core["walks"]);
    render_section(&mut text, "kernel", &report["frontend"]);
    render_times(&mut text, "kernel: times of requests", &report["frontend"]["latency"]);
    render_section(&mut text, "store", &core["backend"]);
    render_times(&mut text, "store: times of calls", &core["store_latency"]);
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
    for (name, value) in counters.iter().filter(|(_, value)| value.is_u64()) {
        row(text, &words(name), &amount(value, unit_of(name)));
    }
}

/// Counters of caches beyond the columns of their table.
fn render_others(text: &mut String, core: &Value) {
    let caches = core.as_object().into_iter().flatten();
    for (name, cache) in caches.filter(|(_, value)| value.get("held").is_some()) {
        let fields = cache.as_object().into_iter().flatten();
        let others = fields.filter(|(name, _)| !CACHE_COLUMNS.contains(&name.as_str()));
        let others: Value = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        render_section(text, &format!("caches: {}", words(name)), &others);
    }
}

/// The marks, and the counters of their cached objects.
fn render_policies(text: &mut String, marks: &Value, counters: &Value) {
    render_section(text, "policies", counters);
    for mark in marks_of(marks) {
        row(text, &mark.policy, &mark.place());
    }
}

/// Counters under a heading; groups of counters under their own.
fn render_section(text: &mut String, title: &str, section: &Value) {
    let Some(fields) = section.as_object().filter(|fields| !fields.is_empty()) else { return };
    line(text, "", "");
    line(text, title, "");
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_object()) {
        row(text, &words(name), &amount(value, unit_of(name)));
    }
    // Times have a table of their own.
    for (name, value) in fields.iter().filter(|(name, _)| *name != "latency") {
        render_section(text, &format!("{title}: {}", words(name)), value);
    }
}

/// The table of how long things took, by kind.
fn render_times(text: &mut String, title: &str, times: &Value) {
    let Some(kinds) = times.as_object().filter(|kinds| !kinds.is_empty()) else { return };
    let heads = ["count", "mean", "p50", "p99"].map(|head| format!("{head:>13}")).concat();
    line(text, "", "");
    line(text, title, "");
    line(text, &format!("{:<LABEL_WIDTH$}{heads}", ""), "");
    for (name, value) in kinds {
        let Ok(latency) = serde_json::from_value::<Latency>(value.clone()) else { continue };
        let mean_ns = latency.sum_ns / latency.count.max(1);
        let times = [mean_ns, latency.p50_ns, latency.p99_ns].map(show_ns);
        let cells = [show_count(latency.count)]
            .iter()
            .chain(&times)
            .fold(String::new(), |cells, cell| cells + &format!("{cell:>13}"));
        line(text, &format!("  {:<1$}", words(name), LABEL_WIDTH - 2), &cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
                "walks": {"whole": 8, "fast": 9, "slow": {"miss": 1, "dotdot": 2}},
                "backend": {"open_descriptors": 12, "read_bytes": 2048},
                "store_latency": {"set_attributes": {"count": 2, "sum_ns": 5_000_000_000u64,
                    "p50_ns": 1_000_000, "p99_ns": 4_000_000_000u64, "buckets": []}},
            },
            "frontend": {
                "readers": 4, "passthrough": false,
                "requests": {"lookup": 1000, "getattr": 2},
                "latency": {"lookup": {"count": 1000, "sum_ns": 2_400_000, "p50_ns": 1999, "p99_ns": 12_345,
                    "buckets": [{"below_ns": 2048, "count": 1000}]}},
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
  stale                3

caches: pages
  dirty bytes          1.5 KiB
  write errors         45

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

kernel: times of requests
                              count         mean          p50          p99
  lookup                      1,000       2.4 µs       2.0 µs      12.3 µs

store
  open descriptors     12
  read bytes           2.0 KiB

store: times of calls
                              count         mean          p50          p99
  set attributes                  2       2.50 s       1.0 ms       4.00 s
";
        assert_eq!(render(&report()), expected, "\n{}", render(&report()));
    }

    #[test]
    fn a_report_that_lacks_everything_is_still_shown() {
        assert!(render(&json!({})).starts_with("-\n  source"));
        assert!(render(&Value::Null).contains("pid -"));
    }
}
