//! Counts of the work of a mount.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::histogram::Histogram;
use uvfs_vfs::Latency;

macro_rules! requests {
    ($($kind:ident),* $(,)?) => {
        /// A kind of request, by the protocol's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(non_camel_case_types)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        /// The names of all kinds, in their order.
        const NAMES: &[&str] = &[$(stringify!($kind)),*];
    };
}

requests!(
    lookup,
    forget,
    getattr,
    statx,
    setattr,
    readlink,
    mknod,
    mkdir,
    unlink,
    rmdir,
    symlink,
    rename,
    link,
    open,
    read,
    write,
    flush,
    release,
    fsync,
    opendir,
    readdir,
    readdirplus,
    releasedir,
    fsyncdir,
    statfs,
    setxattr,
    getxattr,
    listxattr,
    removexattr,
    access,
    create,
    tmpfile,
    fallocate,
    lseek,
    copy_file_range,
    other,
);

/// Requests by kind.
#[derive(Debug)]
pub(crate) struct Requests([Tally; NAMES.len()]);

/// The counters of one kind.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Those that came.
    pub(crate) came: Counter,
    /// How long those took that were answered.
    pub(crate) took: Histogram,
}

impl Default for Requests {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Tally::default()))
    }
}

impl Requests {
    pub(crate) fn of(&self, kind: Kind) -> &Tally {
        &self.0[kind as usize]
    }

    /// The kinds of which any came.
    fn snapshot(&self) -> Vec<RequestCount> {
        let all = NAMES.iter().zip(&self.0).map(|(request, tally)| RequestCount {
            request,
            count: tally.came.total(),
            latency: Latency::from(&tally.took),
        });
        all.filter(|one| one.count > 0).collect()
    }
}

/// How often one kind of request came, and how long it took.
#[derive(Debug, Clone)]
pub struct RequestCount {
    /// The request, as the protocol names it.
    pub request: &'static str,
    /// How often.
    pub count: u64,
    /// From a reader's receipt until the answer was sent to the kernel. Requests that panicked are left out, and so are
    /// those in flight.
    pub latency: Latency,
}

/// Counters of one mount.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) requests: Requests,
    pub(crate) hits: Counter,
    pub(crate) inline: Counter,
    pub(crate) pooled: Counter,
    pub(crate) refused: Counter,
    pub(crate) ended_early: Counter,
    pub(crate) panics: Counter,
    pub(crate) passthrough_opens: Counter,
    pub(crate) notices: Counter,
    pub(crate) notices_failed: Counter,
    pub(crate) forgotten_too_often: Counter,
    pub(crate) cleans: Counter,
    pub(crate) cleans_refused: Counter,
    pub(crate) clean_asked: Counter,
    pub(crate) clean_let_go: Counter,
    pub(crate) let_go_asked: Counter,
}

/// A snapshot of a mount's counters.
#[derive(Debug, Clone, Serialize)]
pub struct MountStatistics {
    /// Threads that read requests.
    pub readers: usize,
    /// Threads that wait for slow stores, now.
    pub workers: usize,
    /// Node ids that the kernel holds, the root not counted.
    pub nodes: u64,
    /// Lookups that the kernel still owes forgets for.
    pub lookups: u64,
    /// Answers with a lifetime that a name is missing.
    pub missing: u64,
    /// Open files and directories.
    pub files: u64,
    /// Queues of io_uring by which requests come, one for each core; 0 if they come by `/dev/fuse`.
    pub queues: usize,
    /// Whether the kernel may read and write host files directly.
    pub passthrough: bool,
    /// Requests by kind, those that never came left out: `requests` has their numbers, `latency` how long they took.
    #[serde(flatten, serialize_with = "by_request")]
    pub requests: Vec<RequestCount>,
    /// Requests answered at once from the caches.
    pub hits: u64,
    /// Other requests run by the thread that read them.
    pub inline: u64,
    /// Other requests handed to a worker, because too few readers were left.
    pub pooled: u64,
    /// Requests that wait for a worker, now.
    pub waiting: u64,
    /// Requests refused with EAGAIN: too much of the same user waited for a store that did not get on.
    pub refused: u64,
    /// Requests ended with EINTR because their task was dying, while the store had not answered.
    pub ended_early: u64,
    /// Opens passed through to a host file.
    pub passthrough_opens: u64,
    /// Notices sent to the kernel's caches.
    pub notices: u64,
    /// Notices that the kernel refused, beyond "was not cached".
    pub notices_failed: u64,
    /// Handlers that panicked; the request failed with EIO. Always 0 unless there is a bug.
    pub panics: u64,
    /// Forgets beyond the counted lookups. Always 0 unless there is a bug.
    pub forgotten_too_often: u64,
    /// Directories cleaned.
    pub cleans: u64,
    /// Requests to clean that came when too many waited, or when the mount had ended.
    pub cleans_refused: u64,
    /// Nodes and names that a cleaning asked the kernel to evict.
    pub clean_asked: u64,
    /// Nodes that the kernel then evicted.
    pub clean_let_go: u64,
    /// Nodes that the kernel was asked to evict because the budget was exceeded.
    pub let_go_asked: u64,
}

/// Two objects, so that a reader asks for one kind by its name.
fn by_request<S: Serializer>(counts: &[RequestCount], serializer: S) -> Result<S::Ok, S::Error> {
    let mut both = serializer.serialize_map(Some(2))?;
    both.serialize_entry("requests", &Fields(counts.iter().map(|one| (one.request, one.count))))?;
    let timed = counts.iter().filter(|one| one.latency.count > 0);
    both.serialize_entry("latency", &Fields(timed.map(|one| (one.request, &one.latency))))?;
    both.end()
}

/// Pairs as an object.
struct Fields<I>(I);

impl<V: Serialize, I: Iterator<Item = (&'static str, V)> + Clone> Serialize for Fields<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

impl Counters {
    pub(crate) fn snapshot(&self) -> MountStatistics {
        MountStatistics {
            readers: 0,
            workers: 0,
            nodes: 0,
            lookups: 0,
            missing: 0,
            files: 0,
            queues: 0,
            passthrough: false,
            requests: self.requests.snapshot(),
            hits: self.hits.total(),
            inline: self.inline.total(),
            pooled: self.pooled.total(),
            waiting: 0,
            refused: self.refused.total(),
            ended_early: self.ended_early.total(),
            passthrough_opens: self.passthrough_opens.total(),
            notices: self.notices.total(),
            notices_failed: self.notices_failed.total(),
            panics: self.panics.total(),
            forgotten_too_often: self.forgotten_too_often.total(),
            cleans: self.cleans.total(),
            cleans_refused: self.cleans_refused.total(),
            clean_asked: self.clean_asked.total(),
            clean_let_go: self.clean_let_go.total(),
            let_go_asked: self.let_go_asked.total(),
        }
    }
}
