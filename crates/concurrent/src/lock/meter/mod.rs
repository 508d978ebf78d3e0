//! The lock meter: counts which locks are taken, where, for how long, and how long threads wait. Always on.
//!
//! # Boundary
//! Measures the locks of [`crate::lock`] and bit locks that are taken through [`crate::lock::bit`]. Decides nothing.
//! Rows are the lock classes of [`crate::lock::order`], and below them the call sites, as in the lockmeter tables of
//! Linder, Sarma and Soni (2002).
//!
//! # Concurrency
//! Every thread counts in a table of its own, with plain stores (`table`); a report adds the tables up. So acquiring a
//! lock touches no memory to which another thread stores, except the lock. Counts are exact. Holds are timed one in N
//! (128 unless set), at random steps, and always after a wait. Waits are always timed, because a waiting thread has
//! time. Timed holds are counted after the release.
//!
//! # Why
//! A meter that must be switched on is off when the trouble happens. A meter that locks, or reads a clock, for every
//! event changes its own results. Weakness: a hold includes one reading of the clock (about 10 ns). The sleeper of a
//! condition variable is not counted as waiting for its mutex when it wakes, because the wait cannot be separated from
//! the sleep. If a thread ends while it holds a lock in a thread-local, that hold is not timed.

mod clock;
mod layout;
mod report;
mod table;

pub use layout::lockmeter_table;
pub use report::{BUCKETS, ClassReport, Mode, SiteReport, Totals, difference};

use super::LockClass;
use crate::cells::blocks::{Blocks, Lease};
use crate::primitive::owned::{AtomicBool, AtomicU32, Ordering::Relaxed};
use clock::{Clock, Ticks, clock};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::panic::Location;
use std::ptr;
use std::time::Duration;
use table::{Row, Site, Table};

/// Acquisitions for each timed one, unless set otherwise.
pub const SAMPLING_DEFAULT: u32 = 128;

static ENABLED: AtomicBool = AtomicBool::new(true);
static SAMPLING: AtomicU32 = AtomicU32::new(SAMPLING_DEFAULT);

static TABLES: Blocks<Table> = Blocks::new(Table::new);
/// Represents "no table": it is empty, so no row is found in it.
static NONE: Table = Table::new();

thread_local! {
    // Without a destructor, so it can be read at any time of the thread's life.
    static MINE: Cell<&'static Table> = const { Cell::new(&NONE) };
    static LEASE: Lease<Table> = const { Lease::new(&TABLES, || MINE.set(&NONE)) };
}

/// Switches the meter on or off for the whole process, to measure its cost.
pub fn set_enabled(enabled: bool) {
    // ORDERING: Relaxed; nothing depends on when other threads notice.
    ENABLED.store(enabled, Relaxed);
}

/// Whether the meter is on.
#[inline]
pub fn is_enabled() -> bool {
    // ORDERING: Relaxed; nothing depends on when other threads notice.
    ENABLED.load(Relaxed)
}

/// Times one in `every` holds without a wait, from the next timed one of each thread and call site. 0 counts as 1.
pub fn set_sampling(every: u32) {
    // ORDERING: Relaxed; nothing depends on when other threads notice.
    SAMPLING.store(every.clamp(1, u32::MAX / 2), Relaxed);
}

/// The number of holds of which one is timed.
pub fn sampling() -> u32 {
    // ORDERING: Relaxed; nothing depends on when other threads notice.
    SAMPLING.load(Relaxed)
}

/// Time since the process's first metered acquisition, when counting began.
pub fn running() -> Duration {
    clock().running()
}

/// All counts so far, by class in lock order. Classes never taken are absent. Exact once the counted threads are quiet;
/// while they run, a row's numbers may be an event apart.
pub fn snapshot() -> Vec<ClassReport> {
    let mut classes: BTreeMap<(u16, usize, Mode), Gathered> = BTreeMap::new();
    TABLES.each(|table| {
        for row in table.rows() {
            let totals = row.totals();
            if !totals.is_empty() {
                let identity = (row.class.rank(), ptr::from_ref(row.class).addr(), row.mode);
                let class = classes.entry(identity).or_insert_with(|| Gathered::new(row.class));
                let site = row.site.map(|site| (site.file(), site.line()));
                class.sites.entry(site).or_default().add(&totals);
            }
        }
    });
    classes.into_iter().map(|((.., mode), class)| class.report(mode)).collect()
}

/// One class's rows, of all threads. Sites are distinguished by their names: the compiler may give one place in the
/// source several addresses.
struct Gathered {
    class: &'static LockClass,
    sites: BTreeMap<Option<(&'static str, u32)>, Totals>,
}

impl Gathered {
    fn new(class: &'static LockClass) -> Self {
        Self { class, sites: BTreeMap::new() }
    }

    fn report(self, mode: Mode) -> ClassReport {
        let mut all = Totals::default();
        self.sites.values().for_each(|totals| all.add(totals));
        let name = |site: Option<(&str, u32)>| match site {
            Some((file, line)) => format!("{file}:{line}"),
            None => "(other sites)".to_owned(),
        };
        let sites = self.sites.into_iter();
        ClassReport {
            class: self.class.name().to_owned(),
            rank: self.class.rank(),
            mode,
            totals: all,
            sites: sites.map(|(site, totals)| SiteReport { site: name(site), totals }).collect(),
        }
    }
}

/// The meter's data until a lock is released. Stays on the thread that took the lock.
///
/// Two words, because it is in every guard: larger values move through memory, which cost more than all the counting.
#[derive(Debug)]
#[must_use]
pub(super) struct Held {
    /// The call site's row, which belongs to this thread; none if this hold is not timed.
    row: Option<&'static Row>,
    /// The begin of the hold; after [`Held::ending`], its length.
    ticks: Ticks,
    _not_send: PhantomData<*mut ()>,
}

impl Held {
    pub(super) fn untimed() -> Self {
        Self { row: None, ticks: Ticks::ZERO, _not_send: PhantomData }
    }

    fn timed(row: &'static Row, since: Ticks) -> Self {
        Self { row: Some(row), ticks: since, _not_send: PhantomData }
    }

    /// Reads the clock, just before the lock is released. The length is recorded when this is dropped, just after.
    #[inline]
    pub(super) fn ending(&mut self) {
        if self.row.is_some() {
            self.stop();
        }
    }

    #[cold]
    fn stop(&mut self) {
        self.ticks = clock().now().since(self.ticks);
    }

    #[cold]
    fn note(&self, row: &Row) {
        // A thread whose table was returned in a destructor must not store to it any more.
        if !ptr::eq(MINE.get(), &raw const NONE) {
            row.released(clock().nanoseconds(self.ticks), self.ticks.is_marked());
        }
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        if let Some(row) = self.row {
            self.note(row);
        }
    }
}

/// Takes a lock: `attempt` tries without waiting, `wait` takes it for any length of time.
#[inline]
#[track_caller]
pub(super) fn take<G>(
    class: &'static LockClass,
    mode: Mode,
    attempt: impl FnOnce() -> Option<G>,
    wait: impl FnOnce() -> G,
) -> (G, Held) {
    if !is_enabled() {
        return (wait(), Held::untimed());
    }
    let site = Some(Location::caller());
    // Before the lock is taken, so that the search lengthens no hold.
    let row = MINE.get().find(class, mode, site).or_else(|| first_here(class, mode, site));
    match attempt() {
        Some(guard) => (guard, taken(row, class, mode, site)),
        None => take_after_wait(row, class, mode, site, || (wait(), 0)),
    }
}

/// Takes a lock by spinning: `attempt` tries once, `pause` waits before the next attempt.
#[inline]
#[track_caller]
pub(super) fn spin(
    class: &'static LockClass,
    mut attempt: impl FnMut() -> bool,
    mut pause: impl FnMut(u64),
) -> Held {
    if !is_enabled() {
        let mut tries = 0;
        while !attempt() {
            tries += 1;
            pause(tries);
        }
        return Held::untimed();
    }
    let site = Some(Location::caller());
    let row = MINE.get().find(class, Mode::Spin, site);
    let row = row.or_else(|| first_here(class, Mode::Spin, site));
    if attempt() {
        return taken(row, class, Mode::Spin, site);
    }
    let wait = || {
        let mut tries = 1;
        loop {
            pause(tries);
            if attempt() {
                return ((), tries);
            }
            tries += 1;
        }
    };
    take_after_wait(row, class, Mode::Spin, site, wait).1
}

/// Counts an acquisition that did not wait, or whose wait is unknown.
#[inline]
#[track_caller]
pub(super) fn taken_unwaited(class: &'static LockClass, mode: Mode) -> Held {
    if !is_enabled() {
        return Held::untimed();
    }
    let site = Some(Location::caller());
    let row = MINE.get().find(class, mode, site).or_else(|| first_here(class, mode, site));
    taken(row, class, mode, site)
}

/// Counts an attempt that found the lock held and did not wait.
#[cold]
#[track_caller]
pub(super) fn rejected(class: &'static LockClass, mode: Mode) {
    if is_enabled() {
        let site = Some(Location::caller());
        match first_here(class, mode, site) {
            Some(row) => row.rejected(),
            None => TABLES.borrow(|table| table.row(class, mode, site).rejected()),
        }
    }
}

/// This thread's row for a call site, made if necessary; none in a thread that is ending.
#[cold]
fn first_here(class: &'static LockClass, mode: Mode, site: Site) -> Option<&'static Row> {
    let table = LEASE.try_with(Lease::block).ok()?;
    MINE.set(table);
    Some(table.row(class, mode, site))
}

#[inline]
fn taken(row: Option<&'static Row>, class: &'static LockClass, mode: Mode, site: Site) -> Held {
    match row {
        Some(row) if row.taken() => start_timing(row),
        Some(_) => Held::untimed(),
        None => {
            TABLES.borrow(|table| table.row(class, mode, site).taken());
            Held::untimed()
        }
    }
}

#[cold]
fn start_timing(row: &'static Row) -> Held {
    row.plan_next(sampling());
    Held::timed(row, clock().now())
}

/// Waits by `wait`, which returns the number of failed attempts.
#[cold]
fn take_after_wait<G>(
    row: Option<&'static Row>,
    class: &'static LockClass,
    mode: Mode,
    site: Site,
    wait: impl FnOnce() -> (G, u64),
) -> (G, Held) {
    let clock: &Clock = clock();
    let asked = clock.now();
    let (guard, spins) = wait();
    let now = clock.now();
    let waited_ns = clock.nanoseconds(now.since(asked));
    match row {
        Some(row) => {
            row.taken_after(waited_ns, spins);
            (guard, Held::timed(row, now.marked()))
        }
        None => {
            TABLES.borrow(|table| table.row(class, mode, site).taken_after(waited_ns, spins));
            (guard, Held::untimed())
        }
    }
}

#[cfg(test)]
mod tests;
