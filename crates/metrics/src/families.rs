//! The metrics: names, kinds, units, and their places in a report.
//!
//! # Boundary
//! A table. It is a promise to dashboards and alert rules: `docs/metrics.md` has it, too, and a test compares them.
//!
//! # Why
//! Names follow OpenMetrics: base units, `_total` behind counters, one metric with a label instead of several names.
//! Weakness: fields that a report of another version lacks are silently left out.

/// How a metric behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, until the daemon ends; `_total` is put behind its name.
    Counter,
    /// A current value.
    Gauge,
}

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        }
    }
}

/// One number of a report with its label; or each number of an object, by its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Places {
    /// The number there.
    One(&'static str),
    /// One for each value of a label.
    Labelled(&'static str, &'static [(&'static str, &'static str)]),
    /// One for each field of the object there.
    Fields(&'static str, &'static str),
}

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) places: Places,
}

const fn counter(name: &'static str, help: &'static str, place: &'static str) -> Family {
    Family { name, kind: Kind::Counter, help, places: Places::One(place) }
}

const fn gauge(name: &'static str, help: &'static str, place: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, help, places: Places::One(place) }
}

const fn labelled(
    name: &'static str,
    kind: Kind,
    help: &'static str,
    label: &'static str,
    places: &'static [(&'static str, &'static str)],
) -> Family {
    Family { name, kind, help, places: Places::Labelled(label, places) }
}

/// Whether a mount answered; not from its report.
pub(super) const UP: (&str, &str) = ("uvfs_up", "1 if the daemon of the mount answered, 0 if not");
/// The properties of a mount; the values are labels.
pub(super) const INFO: (&str, &str) = ("uvfs_mount", "Source, store and version of the mount");
/// Waits for locks, from the lock meter.
pub(super) const LOCK_WAIT: (&str, &str) =
    ("uvfs_lock_wait_seconds", "How long threads waited for locks, by class of lock");

/// Times by kind: a metric, its description, the label of the kind, and its place in a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) label: &'static str,
    pub(super) place: &'static str,
}

/// All times of a report that are metrics.
pub(super) const TIMES: [Times; 2] = [
    Times {
        name: "uvfs_request_seconds",
        help: "How long requests of the kernel took, from the daemon's reading one to its answer",
        label: "kind",
        place: "/frontend/latency",
    },
    Times {
        name: "uvfs_source_seconds",
        help: "Time that the source took for each call; a source that never waits is not timed",
        label: "call",
        place: "/core/store_latency",
    },
];

/// All numbers of a report that are metrics.
pub(super) const FAMILIES: &[Family] = &[
    gauge("uvfs_start_time_seconds", "When the mount began, in seconds since 1970", "/since"),
    gauge(
        "uvfs_memory_limit_bytes",
        "Memory limit of the process: cache-size",
        "/core/budget/limit_bytes",
    ),
    labelled(
        "uvfs_memory_bytes",
        Kind::Gauge,
        "Memory that the process uses of that limit",
        "of",
        &[
            ("program", "/core/budget/overhead_bytes"),
            ("names", "/core/budget/metadata_bytes"),
            ("pages", "/core/budget/page_bytes"),
        ],
    ),
    gauge(
        "uvfs_dirty_bytes",
        "Written to the mount and not to the source yet",
        "/core/pages/dirty_bytes",
    ),
    labelled(
        "uvfs_cache_entries",
        Kind::Gauge,
        "Entries that are cached; pages are of 4 KiB",
        "cache",
        &[
            ("names", "/core/names/held"),
            ("missing_names", "/core/negatives"),
            ("attributes", "/core/inodes/held"),
            ("pages", "/core/pages/pages"),
        ],
    ),
    labelled(
        "uvfs_cache_hits",
        Kind::Counter,
        "Answers of the cache, without a call to the source",
        "cache",
        &[
            ("names", "/core/names/hits"),
            ("missing_names", "/core/negative_hits"),
            ("attributes", "/core/inodes/hits"),
            ("pages", "/core/pages/hits"),
        ],
    ),
    labelled(
        "uvfs_cache_misses",
        Kind::Counter,
        "Times that the source was asked",
        "cache",
        &[
            ("names", "/core/names/misses"),
            ("attributes", "/core/inodes/misses"),
            ("pages", "/core/pages/misses"),
        ],
    ),
    labelled(
        "uvfs_cache_evictions",
        Kind::Counter,
        "Entries that were evicted for room",
        "cache",
        &[
            ("names", "/core/names/evicted"),
            ("attributes", "/core/inodes/evicted"),
            ("pages", "/core/pages/evicted"),
        ],
    ),
    counter("uvfs_read_ahead_pages", "Pages read ahead", "/core/pages/read_ahead"),
    counter(
        "uvfs_written_back_pages",
        "Pages written back to the source",
        "/core/pages/pages_written",
    ),
    counter(
        "uvfs_written_back_runs",
        "Runs of pages in which they were written",
        "/core/pages/runs_written",
    ),
    counter("uvfs_write_errors", "Runs that the source refused", "/core/pages/write_errors"),
    counter(
        "uvfs_throttled_writes",
        "Writes slowed down because too much was dirty",
        "/core/pages/throttled",
    ),
    Family {
        name: "uvfs_requests",
        kind: Kind::Counter,
        help: "Requests of the kernel, by the names of the FUSE protocol",
        places: Places::Fields("kind", "/frontend/requests"),
    },
    labelled(
        "uvfs_requests_served",
        Kind::Counter,
        "Requests by the part that answered them: the caches at once, the thread that read them, or a worker",
        "by",
        &[
            ("cache", "/frontend/hits"),
            ("reader", "/frontend/inline"),
            ("worker", "/frontend/pooled"),
        ],
    ),
    gauge("uvfs_requests_waiting", "Requests that wait for a worker", "/frontend/waiting"),
    gauge("uvfs_source_calls", "Calls of the source that are under way", "/core/store_under_way"),
    counter(
        "uvfs_requests_refused",
        "Requests refused, too many of one user waited",
        "/frontend/refused",
    ),
    labelled(
        "uvfs_threads",
        Kind::Gauge,
        "Threads that read requests, and threads that wait for the source",
        "kind",
        &[("reader", "/frontend/readers"), ("worker", "/frontend/workers")],
    ),
    gauge("uvfs_kernel_inodes", "Inodes that the kernel holds", "/frontend/nodes"),
    gauge("uvfs_open_files", "Open files and directories", "/frontend/files"),
    labelled(
        "uvfs_troubles",
        Kind::Counter,
        "Faults: requests failed by a bug, notices that the kernel refused, lack of descriptors, refused watches, writes and flushes that failed below an image, changes refused after that",
        "kind",
        &[
            ("panic", "/frontend/panics"),
            ("notice", "/frontend/notices_failed"),
            ("descriptors", "/core/backend/descriptor_shortages"),
            ("watches", "/core/backend/watches_refused"),
            ("device", "/core/backend/device_errors"),
            ("ended", "/core/backend/refused_after_end"),
        ],
    ),
];
