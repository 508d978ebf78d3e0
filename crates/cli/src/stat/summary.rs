//! `uvfs stat MOUNTPOINT`: the state of a mount for a person, in some fifteen lines.
//!
//! # Boundary
//! A report to text. Every counter is [`super::all`]'s.
//!
//! # Why
//! Each line answers a question: what is mounted, does it stay within its memory, do the caches help, does anything
//! wait, is anything not at the source yet, did anything fail. A line without a value in the report of a daemon of
//! another version is left out. Weakness: ratios are of all the time since the mount; a program takes differences of
//! `--json`.

use super::layout::{amount, head, line, marks_of, row, unit_of};
use crate::units::{counted, show_bytes, show_count, show_time};
use serde_json::Value;
use uvfs_live::kernel_answers;

/// Marked directories that are shown; `uvfs policy MOUNTPOINT` lists them all.
const MARKS_MAX: usize = 8;

/// Counters of failures: their place in the report, and their text.
const TROUBLES: [(&str, &str); 10] = [
    ("/frontend/refused", "requests refused, too many of one user waited"),
    ("/frontend/panics", "requests failed by a bug of uvfs"),
    ("/frontend/notices_failed", "notices that the kernel refused"),
    ("/frontend/forgotten_too_often", "inodes forgotten too often by a bug"),
    ("/core/backend/descriptor_shortages", "times without a free descriptor"),
    ("/core/backend/watches_refused", "directories that could not be watched"),
    ("/core/backend/write_conflicts", "changes refused, because other clients were faster"),
    ("/core/backend/checksum_mismatches", "answers without the checksum of their object"),
    (
        "/core/backend/damaged_groups",
        "block groups of the image set aside: a bitmap is damaged, and e2fsck repairs it",
    ),
    ("/core/backend/refused_after_end", "changes refused, because writing has ended"),
];

/// The report for people, in short.
pub(super) fn render(report: &Value) -> String {
    let mut text = String::new();
    head(&mut text, report);
    let rows = [
        ("memory", memory(report)),
        ("names", cache(report, "/core/names", "lookups")),
        ("attributes", cache(report, "/core/inodes", "requests")),
        ("pages", pages(report)),
        ("requests", requests(report)),
        ("store", store(report)),
        ("held by the kernel", held_by_kernel(report)),
        ("dirty bytes", dirty(report)),
        ("write errors", write_errors(report)),
        ("other errors", troubles(report)),
        ("writing", ended(report)),
    ];
    for (label, value) in rows {
        if let Some(value) = value {
            row(&mut text, label, &value);
        }
    }
    marks(&mut text, report);
    row(&mut text, "more", "--all, --locks, --json");
    text
}

fn number(report: &Value, place: &str) -> Option<u64> {
    report.pointer(place).and_then(Value::as_u64)
}

/// `2 %` of `100 requests`; a share of nothing is none.
fn share(part: u64, whole: u64, of: &str) -> String {
    if whole == 0 {
        return format!("no {of} yet");
    }
    let percent = part as f64 * 100.0 / whole as f64;
    // 99.96 % must not round to 100 %.
    let percent = if part == whole { percent } else { percent.min(99.9) };
    format!("{percent:.1} % of {}", counted(whole, of.trim_end_matches('s'), of))
}

/// The used part of the budget, and its users.
fn memory(report: &Value) -> Option<String> {
    let of = |name: &str| number(report, &format!("/core/budget/{name}"));
    let (limit, program, held) = (of("limit_bytes")?, of("overhead_bytes")?, of("held_bytes")?);
    let used = show_bytes(program.saturating_add(held));
    Some(format!(
        "{used} of {}: program {}, names and inodes {}, pages {}",
        show_bytes(limit),
        show_bytes(program),
        show_bytes(of("metadata_bytes")?),
        show_bytes(of("page_bytes")?),
    ))
}

/// The contents of a cache, and its share of hits.
fn cache(report: &Value, place: &str, asked: &str) -> Option<String> {
    let of = |name: &str| number(report, &format!("{place}/{name}"));
    let (hits, misses) = (of("hits")?, of("misses")?);
    let held = show_count(of("held")?);
    if kernel_answers(report, place) {
        let came = show_count(hits + misses);
        return Some(format!(
            "{held} held; the kernel's cache answers repeated {asked} ({came} came here)"
        ));
    }
    Some(format!("{held} held, hits {}", share(hits, hits + misses, asked)))
}

fn pages(report: &Value) -> Option<String> {
    let of = |name: &str| number(report, &format!("/core/pages/{name}"));
    let (hits, misses) = (of("hits")?, of("misses")?);
    if hits + misses == 0 && report.pointer("/frontend/passthrough") == Some(&Value::Bool(true)) {
        return Some("none: the kernel reads and writes the files of the source itself".into());
    }
    let answered = share(hits, hits + misses, "reads");
    Some(format!("{} held, hits {answered}", show_bytes(of("held")?)))
}

/// The kernel's requests: their number, the share that the caches answered at once, and those that wait.
fn requests(report: &Value) -> Option<String> {
    let of = |name: &str| number(report, &format!("/frontend/{name}"));
    let (hits, others) = (of("hits")?, of("inline")?.saturating_add(of("pooled")?));
    let answered = share(hits, hits + others, "requests");
    Some(format!("hits {answered}, {} waiting", show_count(of("waiting")?)))
}

/// The requests to an object store.
fn store(report: &Value) -> Option<String> {
    let of = |name: &str| number(report, &format!("/core/backend/{name}"));
    let (lists, reads) = (of("list_requests")?, of("get_requests")?);
    let others = ["put_requests", "copy_requests", "delete_requests", "head_requests"];
    let writes: u64 = others.iter().filter_map(|name| of(name)).sum();
    Some(format!(
        "{}, {}, {}; {} repeated, {} failed",
        counted(lists, "list", "lists"),
        counted(reads, "read", "reads"),
        counted(writes, "write", "writes"),
        show_count(of("retries")?),
        show_count(of("failed_requests")?),
    ))
}

fn held_by_kernel(report: &Value) -> Option<String> {
    let of = |name: &str| number(report, &format!("/frontend/{name}"));
    let (nodes, files) = (of("nodes")?, of("files")?);
    let files = counted(files, "open file", "open files");
    Some(format!("{}, {files}", counted(nodes, "inode", "inodes")))
}

/// Data that the source does not have yet: a crash of the machine loses it, and nothing else.
fn dirty(report: &Value) -> Option<String> {
    report.pointer("/core/pages/dirty_bytes").map(|dirty| amount(dirty, unit_of("dirty_bytes")))
}

fn write_errors(report: &Value) -> Option<String> {
    let pages = number(report, "/core/pages/write_errors")?;
    let device = number(report, "/core/backend/device_errors").unwrap_or(0);
    Some(show_count(pages.saturating_add(device)))
}

/// The time and cause of the failure after which the store takes no changes any more.
pub(super) fn ended(report: &Value) -> Option<String> {
    let ended = report.pointer("/core/store_ended")?;
    let (since, why) = (show_time(ended["since"].as_u64()?), ended["why"].as_str()?);
    Some(format!("has ended at {since}: {why}"))
}

fn troubles(report: &Value) -> Option<String> {
    report.get("frontend")?;
    let counts = TROUBLES.iter().filter_map(|(place, what)| {
        let count = number(report, place).filter(|&count| count > 0)?;
        Some(format!("{} {what}", show_count(count)))
    });
    let all: Vec<String> = counts.collect();
    Some(if all.is_empty() { "none".into() } else { all.join("; ") })
}

/// The marks, if there are any.
fn marks(text: &mut String, report: &Value) {
    let marks = marks_of(&report["policies"]);
    if marks.is_empty() {
        return;
    }
    line(text, "", "");
    line(text, "policies", "");
    for mark in marks.iter().take(MARKS_MAX) {
        row(text, &mark.policy, &mark.place());
    }
    if let Some(others) = marks.len().checked_sub(MARKS_MAX).filter(|&others| others > 0) {
        row(text, "and", &format!("{others} more, which `uvfs policy MOUNTPOINT` lists"));
    }
    line(text, "", "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report() -> Value {
        json!({
            "mountpoint": "/mnt/data", "source": "/srv/data", "pid": 71, "since": 0, "version": "0.1.0",
            "options": {"allow_other": true, "attr_timeout": "1s"},
            "sandbox": {"files": "only the source and /proc", "system_calls": "50 denied"},
            "policies": [],
            "core": {
                "store": "directory",
                "budget": {"limit_bytes": 8_388_608, "overhead_bytes": 4_194_304, "held_bytes": 3584,
                    "metadata_bytes": 2048, "page_bytes": 1536},
                "names": {"held": 1234, "limit": null, "hits": 99_999, "misses": 1, "evicted": 7},
                "inodes": {"held": 12, "limit": null, "hits": 0, "misses": 0, "evicted": 0},
                "pages": {"held": 1536, "hits": 1, "misses": 2, "dirty_bytes": 1536, "write_errors": 45},
                "backend": {"descriptor_shortages": 0, "watches_refused": 3},
            },
            "frontend": {"passthrough": false, "hits": 500, "inline": 499, "pooled": 1, "waiting": 2,
                "nodes": 1000, "files": 4, "refused": 0, "panics": 1},
        })
    }

    /// The report was some ninety lines of counters in the order of their names, and did not show whether all was
    /// well.
    #[test]
    fn a_person_reads_fifteen_lines() {
        let expected = "\
/mnt/data
  source               /srv/data (directory)
  daemon               pid 71, uvfs 0.1.0, since 1970-01-01 00:00:00 UTC
  options              allow-other, attr-timeout 1s
  files in reach       only the source and /proc
  system calls         50 denied
  memory               4.0 MiB of 8.0 MiB: program 4.0 MiB, names and inodes 2.0 KiB, pages 1.5 KiB
  names                1,234 held, hits 99.9 % of 100,000 lookups
  attributes           12 held, hits no requests yet
  pages                1.5 KiB held, hits 33.3 % of 3 reads
  requests             hits 50.0 % of 1,000 requests, 2 waiting
  held by the kernel   1,000 inodes, 4 open files
  dirty bytes          1.5 KiB
  write errors         45
  other errors         1 requests failed by a bug of uvfs; 3 directories that could not be watched
  more                 --all, --locks, --json
";
        assert_eq!(render(&report()), expected, "\n{}", render(&report()));
    }

    /// After writing to an image had ended, the report said that there were no errors.
    #[test]
    fn the_end_of_writing_is_said_with_its_cause() {
        let mut report = report();
        report["core"]["backend"] = json!({"device_errors": 2, "refused_after_end": 7});
        report["core"]["store_ended"] = json!({"why": "the device: no room", "since": 60});
        let text = render(&report);
        for line in [
            "  write errors         47\n",
            "; 7 changes refused, because writing has ended\n",
            "  writing              has ended at 1970-01-01 00:01:00 UTC: the device: no room\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    /// The requests to a bucket, which cost money, were in `--json` only.
    #[test]
    fn the_requests_to_a_bucket_are_shown() {
        let mut report = report();
        report["core"]["backend"] = json!({
            "list_requests": 1200, "get_requests": 30, "put_requests": 4, "copy_requests": 1, "delete_requests": 2,
            "head_requests": 3, "retries": 5, "failed_requests": 1, "write_conflicts": 6, "checksum_mismatches": 7,
        });
        let text = render(&report);
        for line in [
            "  store                1,200 lists, 30 reads, 10 writes; 5 repeated, 1 failed\n",
            "; 6 changes refused, because other clients were faster; 7 answers without the checksum of their object\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn what_is_marked_is_shown_and_no_more_than_eight() {
        let mark = |n: usize| json!({"policy": "keep", "path": format!("/{n}"), "inode": n});
        let mut report = report();
        report["policies"] = (0..11).map(mark).collect();
        let text = render(&report);
        assert!(text.contains("\npolicies\n  keep                 /0\n"), "{text}");
        assert!(text.contains(" /7\n  and                  3 more, which"), "{text}");
    }

    /// A mount whose lookups the kernel answered said `hits 0.0 %`, as if its cache did not work.
    #[test]
    fn a_cache_that_the_kernel_stands_before_is_not_said_to_miss() {
        let mut report = report();
        let options = json!({"entry_timeout": "60s", "attr_timeout": "60s"});
        report["options"] = options;
        report["core"]["names"] = json!({"held": 10, "hits": 0, "misses": 2, "evicted": 0});
        report["core"]["inodes"] = json!({"held": 11, "hits": 1, "misses": 2, "evicted": 0});
        let text = render(&report);
        for line in [
            "  names                10 held; the kernel's cache answers repeated lookups (2 came here)\n",
            "  attributes           11 held; the kernel's cache answers repeated requests (3 came here)\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        report["core"]["names"]["evicted"] = 1.into();
        assert!(render(&report).contains("10 held, hits 0.0 % of 2 lookups"), "it is too small");
        report["core"]["names"]["evicted"] = 0.into();
        report["options"]["entry_timeout"] = "0s".into();
        assert!(
            render(&report).contains("10 held, hits 0.0 % of 2 lookups"),
            "the kernel asks always"
        );
    }

    #[test]
    fn the_cache_of_the_pages_is_named() {
        let mut report = report();
        report["frontend"]["passthrough"] = true.into();
        assert!(render(&report).contains(" 33.3 % of 3 reads\n"), "they are cached here");
        report["core"]["pages"]["hits"] = 0.into();
        report["core"]["pages"]["misses"] = 0.into();
        assert!(render(&report).contains("none: the kernel reads and writes the files"));
    }

    #[test]
    fn a_report_that_lacks_everything_is_still_shown() {
        for report in [json!({}), Value::Null] {
            let text = render(&report);
            assert!(text.starts_with("-\n  source") && text.contains("pid -"), "{text}");
            assert!(!text.contains("memory") && !text.contains("errors"), "{text}");
        }
    }
}
