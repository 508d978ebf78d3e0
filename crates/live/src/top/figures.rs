//! The figures of two samples: rates, shares, percentiles.
//!
//! # Boundary
//! A pure function of two samples, and the form of its values: `uvfs top --json` prints them unchanged, and
//! `docs/top.md` has their fields. [`super::view`] lays them out.
//!
//! # Why
//! The daemon keeps counters and no rates, so any number of users may watch at once, each with another interval. A new
//! mount is compared with zeros: its rates cover its whole life. Weakness: events that begin and end between two
//! samples are missed.

use super::sample::{Count, Directory, Sample, Sampled};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use uvfs_client::state::State;
use uvfs_control::cleaned::Raw;
use uvfs_vfs::Latency;

/// Locks in the list.
const LOCKS_MAX: usize = 5;

/// All that is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Time between the two samples.
    pub(crate) seconds: f64,
    pub(crate) mounts: Vec<MountFigures>,
}

/// Figures of one mount.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct MountFigures {
    pub(crate) mountpoint: String,
    pub(crate) source: String,
    /// The kind of store.
    pub(crate) store: String,
    pub(crate) state: State,
    /// Seconds since 1970.
    pub(crate) since: u64,
    /// Kinds of requests, the most frequent first.
    pub(crate) requests: Vec<Kind>,
    pub(crate) hits: Vec<Hits>,
    pub(crate) memory: Memory,
    /// Kinds of calls of the source, the most frequent first.
    pub(crate) source_calls: Vec<Kind>,
    /// Calls of the source under way.
    pub(crate) source_under_way: u64,
    /// Requests that wait for a worker.
    pub(crate) requests_waiting: u64,
    /// In no order.
    pub(crate) directories: Vec<DirectoryFigures>,
    /// The classes of locks that were waited for longest.
    pub(crate) locks: Vec<Lock>,
}

/// A kind of request, or of call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Kind {
    pub(crate) kind: String,
    pub(crate) per_second: f64,
    /// Since the mount.
    pub(crate) total: u64,
    /// Median of the requests between the samples; 0 if none ended in that time.
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// How much a cache answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Hits {
    pub(crate) of: &'static str,
    pub(crate) hits_per_second: f64,
    pub(crate) misses_per_second: f64,
    /// Hits of all between the samples, 0 to 1; null if there were none.
    pub(crate) share: Option<f64>,
    /// Share of hits since the mount.
    pub(crate) share_total: Option<f64>,
    /// The kernel answers repeated requests itself: the shares say nothing about the cache.
    pub(crate) by_kernel: bool,
}

/// The budget, and its users' shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Memory {
    pub(crate) limit_bytes: u64,
    pub(crate) program_bytes: u64,
    pub(crate) names_bytes: u64,
    pub(crate) pages_bytes: u64,
    pub(crate) dirty_bytes: u64,
}

/// The cached amounts of a directory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DirectoryFigures {
    pub(crate) path: Raw,
    /// Names, inodes and pages.
    pub(crate) bytes: u64,
    /// By how much that grew between the last two counts; less than 0 if it shrank; null before the second one.
    pub(crate) bytes_per_second: Option<f64>,
    /// Requests of the kernel about it, by samples; null if it is not in both counts.
    pub(crate) requests_per_second: Option<f64>,
    pub(crate) names: u64,
    pub(crate) inodes: u64,
    pub(crate) page_bytes: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) policy: Option<String>,
}

impl DirectoryFigures {
    /// For a directory without cached entries; its policy is left out then.
    pub(super) fn nothing(path: Raw) -> Self {
        Self {
            path,
            bytes: 0,
            bytes_per_second: None,
            requests_per_second: None,
            names: 0,
            inodes: 0,
            page_bytes: 0,
            dirty_bytes: 0,
            policy: Some("?".into()),
        }
    }
}

/// Waits for a class of locks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Lock {
    pub(crate) lock: String,
    pub(crate) mode: String,
    pub(crate) waits_per_second: f64,
    /// Waits of all threads together.
    pub(crate) wait_ns_per_second: f64,
}

/// The figures of `later`, compared with `earlier`.
pub(crate) fn between(earlier: &Sample, later: &Sample) -> Figures {
    let seconds = later.at.saturating_duration_since(earlier.at).as_secs_f64().max(1e-3);
    let mounts = later.mounts.iter().map(|mount| {
        let is_same = |before: &&Sampled| {
            let place = |report: &Value| (report["pid"].clone(), report["since"].clone());
            before.mountpoint == mount.mountpoint && place(&before.report) == place(&mount.report)
        };
        Pair { earlier: earlier.mounts.iter().find(is_same), later: mount, seconds }.figures()
    });
    Figures { seconds, mounts: mounts.collect() }
}

/// One mount, twice; `earlier` is `None` if it did not exist, or was another mount.
struct Pair<'a> {
    earlier: Option<&'a Sampled>,
    later: &'a Sampled,
    seconds: f64,
}

fn number(report: &Value, place: &str) -> u64 {
    report.pointer(place).and_then(Value::as_u64).unwrap_or(0)
}

/// Whether fewer than nine in ten requests are hits of the cache at `place` because the kernel answers repeated ones itself: it holds
/// objects, answers are valid for some time, and none was evicted here.
pub fn kernel_answers(report: &Value, place: &str) -> bool {
    let of = |name: &str| number(report, &format!("{place}/{name}"));
    let timeout = match place {
        "/core/names" => "/options/entry_timeout",
        _ => "/options/attr_timeout",
    };
    let timeout = report.pointer(timeout).and_then(Value::as_str);
    let keeps = timeout.is_some_and(|timeout| !timeout.starts_with('0'));
    let holds = number(report, "/frontend/nodes") > 0;
    let few = of("hits") < of("misses").saturating_mul(9);
    keeps && holds && of("evicted") == 0 && few
}

fn share(hits: u64, misses: u64) -> Option<f64> {
    let all = hits.saturating_add(misses);
    (all > 0).then(|| hits as f64 / all as f64)
}

impl Pair<'_> {
    fn figures(&self) -> MountFigures {
        let report = &self.later.report;
        let text = |place: &str| {
            let text = report.pointer(place).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let of_budget = |name: &str| number(report, &format!("/core/budget/{name}"));
        MountFigures {
            mountpoint: self.later.mountpoint.clone(),
            source: self.later.source.clone(),
            store: text("/core/store"),
            state: self.later.state,
            since: number(report, "/since"),
            requests: self.kinds("/frontend/latency", Some("/frontend/requests")),
            hits: self.hits(),
            memory: Memory {
                limit_bytes: of_budget("limit_bytes"),
                program_bytes: of_budget("overhead_bytes"),
                names_bytes: of_budget("metadata_bytes"),
                pages_bytes: of_budget("page_bytes"),
                dirty_bytes: number(report, "/core/pages/dirty_bytes"),
            },
            source_calls: self.kinds("/core/store_latency", None),
            source_under_way: number(report, "/core/store_under_way"),
            requests_waiting: number(report, "/frontend/waiting"),
            directories: self.directories(),
            locks: self.locks(),
        }
    }

    /// The number at `place` now, and by how much it grew.
    fn grown(&self, place: &str) -> (u64, u64) {
        let now = number(&self.later.report, place);
        let before = self.earlier.map_or(0, |earlier| number(&earlier.report, place));
        (now, now.saturating_sub(before))
    }

    fn rate(&self, amount: u64) -> f64 {
        amount as f64 / self.seconds
    }

    /// Times at `times` by kind, and their numbers at `counts`, if these are elsewhere.
    fn kinds(&self, times: &str, counts: Option<&str>) -> Vec<Kind> {
        let read = |report: &Value| -> HashMap<String, Latency> {
            let times = report.pointer(times).and_then(Value::as_object);
            let read = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
            times.into_iter().flatten().map(|(kind, times)| (kind.clone(), read(times))).collect()
        };
        let before = self.earlier.map(|earlier| read(&earlier.report)).unwrap_or_default();
        let now = read(&self.later.report);
        let names: Vec<String> = match counts {
            None => now.keys().cloned().collect(),
            Some(counts) => {
                let counts = self.later.report.pointer(counts).and_then(Value::as_object);
                counts.into_iter().flatten().map(|(kind, _)| kind.clone()).collect()
            }
        };
        let kinds = names.into_iter().map(|kind| {
            let latency = now.get(&kind).cloned().unwrap_or_default();
            let between =
                before.get(&kind).map_or_else(|| latency.clone(), |one| latency.since(one));
            let (total, grown) = match counts {
                None => (latency.count, between.count),
                // A kind may have any name; as a place in the report it would be taken apart.
                Some(counts) => {
                    let of = |report: &Value| {
                        report.pointer(counts).and_then(|all| all.get(&kind)?.as_u64()).unwrap_or(0)
                    };
                    let total = of(&self.later.report);
                    let before = self.earlier.map_or(0, |earlier| of(&earlier.report));
                    (total, total.saturating_sub(before))
                }
            };
            let (p50_ns, p99_ns) = (between.p50_ns, between.p99_ns);
            Kind { kind, per_second: self.rate(grown), total, p50_ns, p99_ns }
        });
        let mut kinds: Vec<_> = kinds.collect();
        kinds.sort_by(|one, other| {
            let by_rate = other.per_second.total_cmp(&one.per_second);
            by_rate.then(other.total.cmp(&one.total)).then_with(|| one.kind.cmp(&other.kind))
        });
        kinds
    }

    fn hits(&self) -> Vec<Hits> {
        let of = |of, hits: (u64, u64), misses: (u64, u64)| Hits {
            of,
            hits_per_second: self.rate(hits.1),
            misses_per_second: self.rate(misses.1),
            share: share(hits.1, misses.1),
            share_total: share(hits.0, misses.0),
            by_kernel: match of {
                "names" => kernel_answers(&self.later.report, "/core/names"),
                "attributes" => kernel_answers(&self.later.report, "/core/inodes"),
                _ => false,
            },
        };
        let add = |one: (u64, u64), other: (u64, u64)| {
            (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
        };
        let less = |one: (u64, u64), other: (u64, u64)| {
            (one.0.saturating_sub(other.0), one.1.saturating_sub(other.1))
        };
        let at = |place: &str| self.grown(place);
        let passed = at("/frontend/passthrough_opens");
        let opened = add(at("/frontend/requests/open"), at("/frontend/requests/create"));
        vec![
            of(
                "requests",
                at("/frontend/hits"),
                add(at("/frontend/inline"), at("/frontend/pooled")),
            ),
            of("names", at("/core/names/hits"), at("/core/names/misses")),
            of("attributes", at("/core/inodes/hits"), at("/core/inodes/misses")),
            of("pages", at("/core/pages/hits"), at("/core/pages/misses")),
            of("passthrough", passed, less(opened, passed)),
        ]
    }

    fn directories(&self) -> Vec<DirectoryFigures> {
        let Some(now) = self.later.counted.as_deref() else { return Vec::new() };
        // They are counted more seldom than samples are taken: a rate is that between the last two counts.
        let before = self.later.counted_before.as_deref();
        let seconds = |before: &Count| now.at.saturating_duration_since(before.at).as_secs_f64();
        let seconds = before.map(seconds).filter(|seconds| *seconds > 0.0);
        let listed = before.into_iter().flat_map(|before| &before.directories);
        let before: HashMap<&[u8], &Directory> = listed.map(|one| (&*one.path.0, one)).collect();
        let figures = |one: &Directory| {
            let bytes = one.held.bytes();
            let before = before.get(&*one.path.0);
            let grown = bytes as f64 - before.map_or(0, |before| before.held.bytes()) as f64;
            // Without an earlier number, or if the daemon began anew to count them, the rate is unknown.
            let came = before.and_then(|before| one.requests.checked_sub(before.requests));
            let rate = |amount: f64| seconds.map(|seconds| amount / seconds);
            DirectoryFigures {
                path: one.path.clone(),
                bytes,
                bytes_per_second: rate(grown),
                requests_per_second: came.and_then(|came| rate(came as f64)),
                names: one.held.names.entries,
                inodes: one.held.inodes.entries,
                page_bytes: one.held.pages.bytes,
                dirty_bytes: one.held.dirty.bytes,
                policy: one.policy.clone(),
            }
        };
        now.directories.iter().map(figures).collect()
    }

    fn locks(&self) -> Vec<Lock> {
        let read = |locks: &Value| -> HashMap<(String, String), (u64, u64)> {
            let classes = locks.get("classes").and_then(Value::as_array).into_iter().flatten();
            let read = |class: &Value| {
                let word = |field: &str| class[field].as_str().unwrap_or_default().to_owned();
                let number = |field: &str| class[field].as_u64().unwrap_or(0);
                ((word("lock"), word("mode")), (number("contended"), number("wait_ns")))
            };
            classes.map(read).collect()
        };
        let before = self.earlier.map(|earlier| read(&earlier.locks)).unwrap_or_default();
        let locks = read(&self.later.locks).into_iter().map(|((lock, mode), now)| {
            let key = (lock, mode);
            let before = before.get(&key).copied().unwrap_or_default();
            Lock {
                waits_per_second: self.rate(now.0.saturating_sub(before.0)),
                wait_ns_per_second: self.rate(now.1.saturating_sub(before.1)),
                lock: key.0,
                mode: key.1,
            }
        });
        let mut locks: Vec<_> = locks.filter(|one| one.waits_per_second > 0.0).collect();
        locks.sort_by(|one, other| {
            let by_wait = other.wait_ns_per_second.total_cmp(&one.wait_ns_per_second);
            by_wait.then_with(|| (&one.lock, &one.mode).cmp(&(&other.lock, &other.mode)))
        });
        locks.truncate(LOCKS_MAX);
        locks
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use uvfs_control::resident::Held;
    use uvfs_vfs::Amount;

    /// Two samples two seconds apart, of a mount that is used, and one that does not answer.
    pub(in super::super) fn samples() -> (Sample, Sample) {
        let at = Instant::now();
        let times = |below_ns: u64, count: u64| {
            json!({"count": count, "sum_ns": below_ns * count, "p50_ns": 0, "p99_ns": 0,
                "buckets": [{"below_ns": below_ns, "count": count}]})
        };
        let report = |n: u64| {
            json!({
                "pid": 7, "since": 0, "version": "0.1.0",
                "core": {
                    "store": "directory",
                    "budget": {"limit_bytes": 64 << 20, "overhead_bytes": 16 << 20,
                        "metadata_bytes": 4 << 20, "page_bytes": n << 20},
                    "names": {"hits": 100 * n, "misses": 100},
                    "inodes": {"hits": 300 * n, "misses": 100 * n},
                    "pages": {"hits": 0, "misses": 0, "dirty_bytes": 1 << 20},
                    "store_latency": {"lookup": times(65_536, 10 * n)},
                    "store_under_way": 2,
                },
                "frontend": {
                    "hits": 1000 * n, "inline": 100 * n, "pooled": 0, "waiting": 3, "passthrough_opens": 10 * n,
                    "requests": {"lookup": 1000 * n, "open": 20 * n, "getattr": 5},
                    "latency": {"lookup": times(2048, 1000 * n), "getattr": times(1024, 5)},
                },
            })
        };
        let locks = |n: u64| {
            json!({"classes": [
            {"lock": "dir", "mode": "mutex", "contended": 10 * n, "wait_ns": 4_000_000 * n},
            {"lock": "idle", "mode": "mutex", "contended": 3, "wait_ns": 1}]})
        };
        let directory = |path: &str, bytes, policy: Option<&str>| Directory {
            path: Raw(path.into()),
            held: Held {
                pages: Amount { entries: bytes / 4096, bytes },
                names: Amount { entries: 12, bytes: 0 },
                ..Held::default()
            },
            requests: bytes / 4096,
            policy: policy.map(str::to_owned),
        };
        let count = |n: u64, at| {
            let directories = vec![
                directory("/", 8192, None),
                directory("/photos", n << 20, Some("keep")),
                directory("/b\u{1b}[2Jad", 3 << 20, None),
            ];
            Some(Arc::new(Count { at, directories }))
        };
        let mount = |n: u64| Sampled {
            mountpoint: "/mnt/data".into(),
            source: "/srv/data".into(),
            state: State::Served,
            report: report(n),
            locks: locks(n),
            counted: None,
            counted_before: None,
        };
        let dead = || Sampled {
            mountpoint: "/mnt/old".into(),
            state: State::Dead,
            report: Value::Null,
            locks: Value::Null,
            ..mount(0)
        };
        let late = at + Duration::from_secs(2);
        let first = Sampled { counted: count(1, at), ..mount(1) };
        let last = Sampled { counted: count(3, late), counted_before: count(1, at), ..mount(3) };
        let one = Sample { at, mounts: vec![first, dead()] };
        (one, Sample { at: late, mounts: vec![last, dead()] })
    }

    #[test]
    fn rates_and_shares_are_of_the_time_between() {
        let (earlier, later) = samples();
        let figures = between(&earlier, &later);
        assert_eq!(figures.seconds, 2.0);
        let mount = &figures.mounts[0];
        let kinds: Vec<_> =
            mount.requests.iter().map(|one| (&*one.kind, one.per_second, one.total)).collect();
        assert_eq!(kinds, [("lookup", 1000.0, 3000), ("open", 20.0, 60), ("getattr", 0.0, 5)]);
        assert!((1638..=2048).contains(&mount.requests[0].p50_ns), "{:?}", mount.requests[0]);
        assert_eq!(mount.requests[2].p50_ns, 0, "none in this time");
        let of = |name: &str| mount.hits.iter().find(|one| one.of == name).unwrap();
        assert_eq!((of("names").share, of("names").share_total), (Some(1.0), Some(0.75)));
        assert_eq!((of("attributes").share, of("pages").share), (Some(0.75), None));
        assert_eq!((of("passthrough").share, of("requests").hits_per_second), (Some(0.5), 1000.0));
        assert_eq!(mount.memory.pages_bytes, 3 << 20);
        assert_eq!((mount.source_calls[0].per_second, mount.source_under_way), (10.0, 2));
        assert_eq!(mount.directories[1].bytes_per_second, Some(f64::from(1 << 20)));
        assert_eq!(mount.directories[1].requests_per_second, Some(256.0));
        assert_eq!(mount.locks.len(), 1);
        assert_eq!(
            (mount.locks[0].waits_per_second, mount.locks[0].wait_ns_per_second),
            (10.0, 4e6)
        );
        assert!(figures.mounts[1].requests.is_empty());
    }

    /// Bug: rates were below zero, or huge, when a mount was replaced between two samples.
    #[test]
    fn a_mount_made_anew_is_compared_with_nothing() {
        let (mut earlier, mut later) = samples();
        std::mem::swap(&mut earlier.mounts, &mut later.mounts);
        later.mounts[0].report["pid"] = 8.into();
        let figures = between(&earlier, &later);
        assert_eq!(figures.mounts[0].requests[0].per_second, 500.0);
        // The sampler has one count of the new daemon.
        assert_eq!(figures.mounts[0].directories[1].bytes_per_second, None);
        let same = between(&earlier, &earlier);
        assert!(same.mounts[0].requests.iter().all(|one| one.per_second == 0.0));
    }

    /// Story: between two counts of the directories, which a loaded machine counts seldom, `top` divided an unchanged
    /// total: all rates were 0 in 19 of 20 screens at 2,300 requests a second.
    #[test]
    fn a_rate_stays_until_the_next_count_and_is_none_before_the_second() {
        let (earlier, later) = samples();
        let mut next = later.clone();
        next.at += Duration::from_secs(1);
        let of = |figures: &Figures| {
            let photos = &figures.mounts[0].directories[1];
            (photos.bytes_per_second, photos.requests_per_second)
        };
        assert_eq!(of(&between(&later, &next)), (Some(f64::from(1 << 20)), Some(256.0)));
        let first = between(&earlier, &earlier);
        assert_eq!(of(&first), (None, None));
        let text = serde_json::to_value(&first.mounts[0].directories[1]).unwrap();
        assert!(
            text["requests_per_second"].is_null() && text["bytes_per_second"].is_null(),
            "{text}"
        );
        // A directory whose earlier number is unknown, or larger, has no rate of requests.
        let change = |change: &dyn Fn(&mut Count)| {
            let mut later = later.clone();
            let mut before = later.mounts[0].counted_before.as_deref().unwrap().clone();
            change(&mut before);
            later.mounts[0].counted_before = Some(Arc::new(before));
            of(&between(&earlier, &later)).1
        };
        assert_eq!(change(&|before| drop(before.directories.remove(1))), None);
        assert_eq!(change(&|before| before.directories[1].requests = 9999), None);
    }

    #[test]
    fn a_report_that_lacks_or_lies_does_no_harm() {
        let (earlier, mut later) = samples();
        for report in
            [Value::Null, json!({"core": 5}), json!({"frontend": {"requests": {"/x~": -1}}})]
        {
            later.mounts[0].report = report;
            let figures = between(&earlier, &later);
            assert_eq!(figures.mounts[0].memory, Memory::default());
            assert!(serde_json::to_string(&figures).is_ok());
        }
    }

    /// The fields are a promise; `docs/top.md` has each.
    #[test]
    fn the_document_has_every_field() {
        fn fields(value: &Value, path: &str, into: &mut Vec<String>) {
            match value {
                Value::Object(object) => {
                    for (name, value) in object {
                        fields(
                            value,
                            &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }),
                            into,
                        );
                    }
                }
                Value::Array(list) => match list.first() {
                    Some(first) => fields(first, &format!("{path}[]"), into),
                    None => panic!("{path}: nothing in the example"),
                },
                _ => into.push(path.to_owned()),
            }
        }
        let (earlier, later) = samples();
        let mut ours = Vec::new();
        let value = serde_json::to_value(between(&earlier, &later)).unwrap();
        fields(&value, "", &mut ours);
        let document = include_str!("../../../../docs/top.md");
        let rows = document.lines().filter(|line| line.starts_with("| `"));
        let mut documented: Vec<_> = rows
            .flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2))
            .collect();
        ours.sort();
        documented.sort();
        assert_eq!(ours, documented);
    }
}
