//! The reports of some mounts' daemons at one moment.
//!
//! # Boundary
//! Asks; computes nothing. [`super::figures`] compares two samples.
//!
//! # Why
//! Counting the cached amounts by directory visits every cached inode, so it is done more seldom than the rest: it
//! takes at most a two-hundredth of the time ([`Rest`]). A sample has the last two counts, so that samples between two
//! counts keep the last rate. Weakness: the directories shown may be older than the rest.

use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_client::state::{self, State};
use uvfs_client::{self as client, Connection};
use uvfs_control::cleaned::Raw;
use uvfs_control::protocol::Request;
use uvfs_control::resident::{Cached, CachedRequest, Held};

/// Time in which a daemon has to answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Time between the first two samples, if an interval is not shorter: the first figures need two.
pub(crate) const FIRST: Duration = Duration::from_millis(250);
/// Levels of directories that are listed apart.
const LEVELS: u32 = 3;
/// A count of directories that took some time is followed by so many times that time without one.
const RESTS: u32 = 200;

/// The data of one mount.
#[derive(Debug, Clone)]
pub(crate) struct Sampled {
    pub(crate) mountpoint: String,
    pub(crate) source: String,
    pub(crate) state: State,
    /// Report of `uvfs stat --json`; null if the mount did not answer.
    pub(crate) report: Value,
    /// The lock meter's counts, or null.
    pub(crate) locks: Value,
    /// The last count of the directories.
    pub(crate) counted: Option<Arc<Count>>,
    /// The count before that one, of the same daemon.
    pub(crate) counted_before: Option<Arc<Count>>,
}

/// The cached amounts by directory at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Count {
    pub(crate) at: Instant,
    /// The largest first.
    pub(crate) directories: Vec<Directory>,
}

/// A directory, and the amounts cached in it, and below it if that is deeper than [`LEVELS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Directory {
    /// From the mount's root on.
    pub(crate) path: Raw,
    pub(crate) held: Held,
    /// About how many requests were about it.
    pub(crate) requests: u64,
    /// The policy that holds there.
    pub(crate) policy: Option<String>,
}

/// All mounts at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) mounts: Vec<Sampled>,
}

/// Takes samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    wanted: Vec<PathBuf>,
    /// Whether directories are counted at all.
    counts: bool,
    last: HashMap<String, Rest>,
}

/// The last two counts of a mount's directories, and until when there is none.
#[derive(Debug)]
struct Rest {
    /// Process and start of the daemon that was asked.
    daemon: [Value; 2],
    last: Arc<Count>,
    before: Option<Arc<Count>>,
    until: Instant,
}

impl Sampler {
    /// A sampler of the mounts at `wanted`; without any, of all that there are.
    ///
    /// # Errors
    /// If one of them is no mount.
    pub(crate) fn new(wanted: &[PathBuf]) -> Result<Self, Failure> {
        for path in wanted {
            mountinfo::find(path)?;
        }
        Ok(Self { wanted: wanted.to_vec(), counts: true, last: HashMap::new() })
    }

    /// One that counts no directories.
    pub(crate) fn without_directories(self) -> Self {
        Self { counts: false, ..self }
    }

    /// The current reports of the mounts.
    ///
    /// # Errors
    /// If the mount table cannot be read.
    pub(crate) fn take(&mut self) -> Result<Sample, Failure> {
        let mounts = self.mounts()?;
        let at = Instant::now();
        let mounts = mounts.iter().map(|mount| self.ask(mount)).collect();
        Ok(Sample { at, mounts })
    }

    fn mounts(&self) -> Result<Vec<MountEntry>, Failure> {
        if self.wanted.is_empty() {
            return mountinfo::ours();
        }
        // One that was unmounted meanwhile is no failure: it is not shown any more.
        Ok(self.wanted.iter().filter_map(|path| mountinfo::find(path).ok()).collect())
    }

    fn ask(&mut self, mount: &MountEntry) -> Sampled {
        let mut sampled = Sampled {
            mountpoint: mount.mountpoint.to_string_lossy().into_owned(),
            source: mount.source.to_string_lossy().into_owned(),
            state: State::Dead,
            report: Value::Null,
            locks: Value::Null,
            counted: None,
            counted_before: None,
        };
        let connected = client::connect_within(mount, Duration::ZERO);
        // If only the kernel could tell, its answer is not awaited at each sample.
        sampled.state = state::of_connection(&connected).unwrap_or(State::Unknown);
        let Ok(mut daemon) = connected else { return sampled };
        let mut of = |request| daemon.ask(request, ANSWER_TIME).ok()?.report;
        match of(Request::Stat) {
            Some(report) => sampled.report = report,
            None => {
                sampled.state = State::NotAnswering;
                return sampled;
            }
        }
        sampled.locks = of(Request::Locks).unwrap_or_default();
        if !self.counts {
            return sampled;
        }
        let asked = ["pid", "since"].map(|field| sampled.report[field].clone());
        let last = self.last.remove(&sampled.mountpoint).filter(|rest| rest.daemon == asked);
        let rest = match last {
            Some(rest) if rest.until > Instant::now() => Some(rest),
            last => Rest::count(&mut daemon, asked, last),
        };
        if let Some(rest) = rest {
            sampled.counted = Some(rest.last.clone());
            sampled.counted_before.clone_from(&rest.before);
            self.last.insert(sampled.mountpoint.clone(), rest);
        }
        sampled
    }

    /// If `anew`, the directories are counted again next time.
    pub(crate) fn forget_if(&mut self, anew: bool) {
        if anew {
            let now = Instant::now();
            self.last.values_mut().for_each(|rest| rest.until = now);
        }
    }
}

impl Rest {
    /// Counts; the counts in `last` stay if the daemon does not answer.
    fn count(daemon: &mut Connection, asked: [Value; 2], last: Option<Self>) -> Option<Self> {
        let at = Instant::now();
        let request = CachedRequest { directory: Raw(b"/".to_vec()), depth: Some(LEVELS) };
        let counted = daemon.cached(request).ok().map(directories);
        Self::after(last, asked, at, counted, Instant::now())
    }

    /// The counts after another one, of `directories`, that began at `at` and ended `now`.
    fn after(
        last: Option<Self>,
        daemon: [Value; 2],
        at: Instant,
        directories: Option<Vec<Directory>>,
        now: Instant,
    ) -> Option<Self> {
        let took = now.saturating_duration_since(at);
        let Some(directories) = directories else {
            return last.map(|rest| Self { until: now + took * RESTS, ..rest });
        };
        let before = last.map(|rest| rest.last);
        // A rate needs two counts: the second one follows soon.
        let rests = if before.is_some() { RESTS } else { 1 };
        let last = Arc::new(Count { at, directories });
        Some(Self { daemon, last, before, until: now + took * rests })
    }
}

/// The rows of `cached` with their paths.
fn directories(cached: Cached) -> Vec<Directory> {
    let mut all: Vec<Directory> = Vec::with_capacity(cached.directories.len());
    for row in cached.directories {
        // The daemon is not trusted: a parent with a later index is none.
        let above = all.get(row.parent);
        let path = match above {
            None => b"/".to_vec(),
            Some(above) if above.path.0 == b"/" => [b"/", &*row.name.0].concat(),
            Some(above) => [&*above.path.0, b"/", &*row.name.0].concat(),
        };
        let policy = row.policy.or_else(|| above.and_then(|above| above.policy.clone()));
        let (held, requests) = (row.held, row.requests);
        all.push(Directory { path: Raw(path), held, requests, policy });
    }
    if let Some(root) = all.first_mut() {
        root.held.add(&cached.unplaced);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_control::resident::Row;
    use uvfs_vfs::Amount;

    #[test]
    fn rows_become_paths_and_policies_hold_below() {
        let row = |name: &str, parent, policy: Option<&str>| Row {
            name: Raw(name.into()),
            parent,
            policy: policy.map(str::to_owned),
            ..Row::default()
        };
        let pages = Amount { entries: 1, bytes: 4096 };
        let cached = Cached {
            directories: vec![
                row("", 0, None),
                row("a", 0, Some("keep")),
                row("b", 1, None),
                row("c", 99, None),
            ],
            unplaced: Held { pages, ..Held::default() },
            ..Cached::default()
        };
        let all = directories(cached);
        let paths: Vec<_> = all.iter().map(|one| String::from_utf8_lossy(&one.path.0)).collect();
        assert_eq!(paths, ["/", "/a", "/a/b", "/"], "a parent that is not there is none");
        let policies: Vec<_> = all.iter().map(|one| one.policy.as_deref()).collect();
        assert_eq!(policies, [None, Some("keep"), Some("keep"), None]);
        assert_eq!(all[0].held.pages, pages);
    }

    /// Story: when a count took 50 ms, the next one came 10 s later, and the samples between them had no rate. A count
    /// that failed was taken for one without directories, so that the next one had too large a rate.
    #[test]
    fn a_sample_has_the_last_two_counts_of_one_daemon() {
        let daemon = || [Value::from(7), Value::from(1)];
        let directory = |requests| Directory {
            path: Raw(b"/".to_vec()),
            held: Held::default(),
            requests,
            policy: None,
        };
        let (start, took) = (Instant::now(), Duration::from_millis(50));
        let count = |last, at, requests: Option<u64>| {
            let directories = requests.map(|requests| vec![directory(requests)]);
            Rest::after(last, daemon(), at, directories, at + took)
        };
        let of = |count: &Count| count.directories[0].requests;
        assert!(count(None, start, None).is_none());
        let first = count(None, start, Some(61)).unwrap();
        assert!(first.before.is_none());
        assert_eq!(first.until, start + took * 2, "the second count follows soon");
        let later = start + Duration::from_secs(1);
        let second = count(Some(first), later, Some(122)).unwrap();
        assert_eq!((of(&second.last), second.before.as_deref().map(of)), (122, Some(61)));
        assert_eq!(second.until, later + took * (RESTS + 1));
        let failed = count(Some(second), later, None).unwrap();
        assert_eq!((of(&failed.last), failed.before.as_deref().map(of)), (122, Some(61)));
    }

    #[test]
    fn what_is_no_mount_is_refused() {
        let refused = Sampler::new(&["/proc".into()]).unwrap_err().to_string();
        assert!(refused.contains("/proc"), "{refused}");
    }
}
