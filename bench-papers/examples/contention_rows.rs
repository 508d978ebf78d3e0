//! The caches of Peacock (1992): `contention_rows [operations [threads [mode]]]`, where a mode is a cache and a way of
//! locking it: `buffers:one-lock`, `names:set-associative`.
//!
//! # Why
//! The figure is the share of acquisitions that found the lock held, which the lock meter counts in the program itself:
//! under the analyser the locks collide in virtual time. Weakness: one thread builds the cache, which takes most of the
//! run.

#![forbid(unsafe_code)]

use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_bench_papers::rows::caches::{self, Kind, Locking};
use uvfs_bench_papers::rows::load;
use uvfs_bench_workload::rows;
use uvfs_concurrent::lock::meter;

/// Words of work between two accesses, the number of `uvfs-bench set-associative`.
const WORK: usize = 1000;

fn main() {
    let arguments = Arguments::read(200, "buffers:set-associative");
    let (kind, locking) = arguments.mode.split_once(':').expect("CACHE:LOCKING");
    let kind = Kind::ALL.into_iter().find(|one| one.name() == kind).expect("a cache");
    let locking = Locking::ALL.into_iter().find(|one| one.name() == locking).expect("a way");
    let cache = caches::new(kind, locking, rows::CAPACITY);
    rows::fill(&*cache);
    let before = meter::snapshot();
    contended::run(&arguments, 4, |me, turn| rows::turn(&*cache, me, turn, WORK));
    let (acquisitions, contended) = load::contended(&before);
    println!("acquisitions {acquisitions} contended {contended}");
}
