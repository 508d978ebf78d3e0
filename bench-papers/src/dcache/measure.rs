//! One run: a fresh file system, a load on some threads, the clock; then another one and the meter.
//!
//! # Why
//! Timing every hold costs as much as a short hold itself, so the throughput of a run and its lock
//! statistics come from two passes, the second with every hold timed. The paper's authors likewise
//! ran lockmeter's kernels apart. Timing only a sample would do for means, but one sampled hold during
//! which its thread was preempted would then count for dozens.
//!
//! # Concurrency
//! Clients wait for each other at a barrier and stop their own clocks; the run lasts from the first
//! start to the last end. The meter is read before and after, while no client runs.

use super::loads::{Kind, Load};
use super::paths::{Cached, ROOT_INODE, System};
use super::product::Product;
use super::sites;
use super::variants::{BucketLocks, GlobalLock, LazyLru, Lookup, SeparateLru, Update, Walk};
use std::io;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::meter::{self, ClassReport, Totals};

/// A step of the paper, or the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Variant {
    /// Section 2: one lock for everything
    GlobalLock,
    /// Section 3: lock-free hash lookup, LRU under the global lock
    RcuHash,
    /// Section 4: a lock per hash bucket
    BucketLocks,
    /// Section 5: lock-free hash lookup, LRU under a lock of its own
    SeparateLru,
    /// Section 6.1: lazy LRU, brought up to date by a timer
    LazyLruTimer,
    /// Section 6.2: lazy LRU, brought up to date when it is traversed
    LazyLruTraversal,
    /// Section 7.1: all components of a path under one hold of the global lock
    FastWalk,
    /// The product
    Uvfs,
}

impl Variant {
    /// All of them, in the paper's order.
    pub(super) const ALL: [Variant; 8] = [
        Variant::GlobalLock,
        Variant::RcuHash,
        Variant::BucketLocks,
        Variant::SeparateLru,
        Variant::LazyLruTimer,
        Variant::LazyLruTraversal,
        Variant::FastWalk,
        Variant::Uvfs,
    ];

    /// Word on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::GlobalLock => "global-lock",
            Variant::RcuHash => "rcu-hash",
            Variant::BucketLocks => "bucket-locks",
            Variant::SeparateLru => "separate-lru",
            Variant::LazyLruTimer => "lazy-lru-timer",
            Variant::LazyLruTraversal => "lazy-lru-traversal",
            Variant::FastWalk => "fast-walk",
            Variant::Uvfs => "uvfs",
        }
    }

    /// An empty file system over this cache.
    fn system(self, room: usize) -> io::Result<Box<dyn System>> {
        let global = |lookup, walk| {
            let dcache = GlobalLock::new(room, ROOT_INODE, lookup, walk);
            Box::new(Cached::new(dcache)) as Box<dyn System>
        };
        let lazy = |update| {
            Box::new(Cached::new(LazyLru::new(room, ROOT_INODE, update))) as Box<dyn System>
        };
        Ok(match self {
            Variant::GlobalLock => global(Lookup::Locked, Walk::References),
            Variant::RcuHash => global(Lookup::LockFree, Walk::References),
            Variant::FastWalk => global(Lookup::Locked, Walk::UnderLock),
            Variant::BucketLocks => Box::new(Cached::new(BucketLocks::new(room, ROOT_INODE))),
            Variant::SeparateLru => Box::new(Cached::new(SeparateLru::new(room, ROOT_INODE))),
            Variant::LazyLruTimer => lazy(Update::Timer),
            Variant::LazyLruTraversal => lazy(Update::Traversal),
            Variant::Uvfs => Box::new(Product::new(room)?),
        })
    }
}

/// The results of one run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    /// Operations of all clients.
    pub(super) operations: u64,
    /// From the first start to the last end.
    pub(super) wall: Duration,
    /// Duration of the pass with every hold timed; the fields below are of that pass.
    pub(super) metered_wall: Duration,
    /// The dentry cache's locks, with routines in the place of lines.
    pub(super) dcache: Vec<ClassReport>,
    /// The locks behind it: directories, store, allocator.
    pub(super) behind: Vec<ClassReport>,
}

impl Run {
    /// Thousands of operations a second.
    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.wall.as_secs_f64() / 1000.0
    }

    /// All of the dentry cache's locks together.
    pub(super) fn all_locks(&self) -> Totals {
        sum(self.dcache.iter())
    }

    /// The locks of which there is one for everybody.
    pub(super) fn global_locks(&self) -> Totals {
        let global = |class: &&ClassReport| GLOBAL.contains(&class.class.as_str());
        sum(self.dcache.iter().filter(global))
    }

    /// Acquisitions behind the cache.
    pub(super) fn behind(&self) -> u64 {
        sum(self.behind.iter()).acquisitions
    }
}

const GLOBAL: [&str; 2] = ["dcache_lock", "d_lru_lock"];
/// Classes that are not the cache's: those of this bench, and the product's memory store.
const BEHIND: [&str; 3] = ["i_sem", "slots", "store"];
const PRODUCT_STORE: &str = "memory-";

fn sum<'a>(classes: impl Iterator<Item = &'a ClassReport>) -> Totals {
    let mut all = Totals::default();
    classes.for_each(|class| all.add(&class.totals));
    all
}

/// Measures `variant` once.
///
/// # Errors
/// If it cannot be built, or returned a wrong answer: then its figures would mean nothing.
pub(super) fn run(variant: Variant, kind: Kind, load: &Load) -> io::Result<Run> {
    meter::set_sampling(meter::SAMPLING_DEFAULT);
    let (wall, _) = pass(variant, kind, load)?;
    meter::set_sampling(1);
    let (metered_wall, classes) = pass(variant, kind, load)?;
    let is_behind = |class: &ClassReport| {
        BEHIND.contains(&class.class.as_str()) || class.class.starts_with(PRODUCT_STORE)
    };
    let (behind, dcache): (Vec<_>, Vec<_>) = classes.into_iter().partition(is_behind);
    let operations = load.clients.iter().map(|client| client.operations.len() as u64).sum();
    let dcache = dcache.into_iter().map(named).collect();
    Ok(Run { operations, wall, metered_wall, dcache, behind })
}

fn pass(variant: Variant, kind: Kind, load: &Load) -> io::Result<(Duration, Vec<ClassReport>)> {
    let system = variant.system(load.entries_max)?;
    let wrong = |what: &str, count: u64| {
        let (variant, kind) = (variant.name(), kind.name());
        io::Error::other(format!("{variant}, {kind}: {count} wrong answers while {what}"))
    };
    match load.preparation.run(&*system) {
        0 => system.forget(),
        count => return Err(wrong("preparing", count)),
    }
    let held: Vec<_> = load.held.iter().map(|path| system.open(path)).collect();
    let before = meter::snapshot();
    let (wall, failures) = timed(&*system, load);
    let classes = meter::difference(&meter::snapshot(), &before);
    if failures > 0 {
        return Err(wrong("measuring", failures));
    }
    if held.iter().any(Option::is_none) {
        return Err(wrong("opening what stays open", 1));
    }
    held.into_iter().flatten().for_each(|open| system.close(open));
    let unsound = |what| io::Error::other(format!("{}, {}: {what}", variant.name(), kind.name()));
    system.audit().map_err(unsound)?;
    Ok((wall, classes))
}

/// Runs the clients; how long it took, and how many answers were wrong.
fn timed(system: &dyn System, load: &Load) -> (Duration, u64) {
    let barrier = Barrier::new(load.clients.len());
    thread::scope(|scope| {
        let (stop, stopped) = mpsc::channel::<()>();
        if let Some(period) = system.period() {
            scope.spawn(move || {
                while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
                    system.tick();
                }
            });
        }
        let client = |script| {
            let barrier = &barrier;
            scope.spawn(move || {
                let script: &super::loads::Script = script;
                barrier.wait();
                let start = Instant::now();
                let wrong = script.run(system);
                (start, Instant::now(), wrong)
            })
        };
        let clients: Vec<_> = load.clients.iter().map(client).collect();
        let ends: Vec<_> =
            clients.into_iter().map(|client| client.join().expect("a client panicked")).collect();
        drop(stop);
        let first = ends.iter().map(|end| end.0).min().expect("at least one client");
        let last = ends.iter().map(|end| end.1).max().expect("at least one client");
        (last - first, ends.iter().map(|end| end.2).sum())
    })
}

/// Puts routines in the place of lines, in alphabetical order.
fn named(mut class: ClassReport) -> ClassReport {
    for site in &mut class.sites {
        let routine = site
            .site
            .rsplit_once(':')
            .and_then(|(file, line)| sites::routine(file, line.parse().ok()?));
        if let Some(routine) = routine {
            site.site = routine.to_owned();
        }
    }
    class.sites.sort_by(|one, other| one.site.cmp(&other.site));
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_meter_have_the_names_of_routines() {
        let load = Kind::Dbench.load(1, 2000);
        let run = run(Variant::GlobalLock, Kind::Dbench, &load).unwrap();
        let class = run.dcache.iter().find(|class| class.class == "dcache_lock").unwrap();
        let sites: Vec<&str> = class.sites.iter().map(|site| site.site.as_str()).collect();
        for routine in ["d_alloc", "d_delete", "d_lookup", "d_move", "dput", "prune_dcache"] {
            assert!(sites.contains(&routine), "{routine}: {sites:?}");
        }
        assert!(sites.iter().all(|site| !site.contains(':')), "{sites:?}");
    }

    #[test]
    fn every_variant_answers_right_under_both_loads() {
        for kind in Kind::ALL {
            let load = kind.load(2, 1500);
            for variant in Variant::ALL {
                let run = run(variant, kind, &load).unwrap();
                assert!(run.operations >= 3000);
            }
        }
    }

    #[test]
    fn a_wrong_answer_is_an_error() {
        let mut load = Kind::Httperf.load(1, 100);
        // The last creates the server's program, the one before it file 99.
        let creates = load.preparation.operations.len();
        load.preparation.operations.remove(creates - 2);
        load.clients[0].operations.iter_mut().for_each(|operation| {
            *operation = super::super::loads::Operation::Open(99);
        });
        let error = run(Variant::GlobalLock, Kind::Httperf, &load).unwrap_err();
        assert!(error.to_string().contains("100 wrong answers while measuring"), "{error}");
    }
}
