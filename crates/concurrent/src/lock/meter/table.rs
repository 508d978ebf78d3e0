//! One thread's rows of the meter: its counts at each call site.
//!
//! # Boundary
//! Finds and updates the calling thread's rows; [`super::report`] reads the rows of all threads.
//!
//! # Concurrency
//! As in [`crate::cells`], a table belongs to one thread at a time, and only the owner stores to its slots and rows.
//! The table of an ended thread passes with its content to another thread.
//! T1. A row's class, mode and site are set before its slot points to it and never change.
//! T2. A slot changes once, from empty to a row; rows are never freed.
//! T3. At least one slot is empty, so every search ends.
//!
//! O1. `insert` (Release) → `rows` (Acquire): a thread that sees a slot sees the row's class and site.
//!
//! # Why
//! A thread uses a few dozen call sites, so a small open-addressed table of its own finds a row in one probe. No
//! two threads ever contend for a table. A call site without room is counted in its class's row "(other sites)", so
//! classes stay exact. Weakness: 4 KiB for each thread and 1 KiB for each site it used.

use super::clock::clock;
use super::report::{BUCKETS, Mode, Totals, bucket};
use crate::lock::LockClass;
use crate::primitive::owned::{AtomicPtr, AtomicU64, Ordering};
use std::panic::Location;
use std::ptr;

/// Slots of a table; a power of two.
const SLOTS: usize = 512;
/// The number of rows from which new call sites share their class's row.
const SITES_MAX: usize = 320;
/// The number of rows from which new classes share one row.
const ROWS_MAX: usize = SLOTS - 64;

/// Counts the classes for which a table has no room.
static OTHER_CLASSES: LockClass =
    LockClass::new(u16::MAX, "(other classes)", "locks of classes beyond the meter's room");

/// A call site's name in memory; none for "(other sites)".
pub(super) type Site = Option<&'static Location<'static>>;

/// One thread's counts for one class of locks at one call site.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Row {
    key: Key,
    /// Acquisitions that did not wait.
    free: AtomicU64,
    /// The value of `free` at which the next hold is timed.
    next_timed: AtomicU64,
    contended: AtomicU64,
    rejected: AtomicU64,
    spins: AtomicU64,
    pub(super) class: &'static LockClass,
    pub(super) mode: Mode,
    pub(super) site: Site,
    free_held: Times,
    contended_held: Times,
    waited: Times,
    hold_histogram: [AtomicU64; BUCKETS],
    wait_histogram: [AtomicU64; BUCKETS],
}

/// Timed events.
#[derive(Debug, Default)]
struct Times {
    samples: AtomicU64,
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

/// Identity of a row: the addresses of class and site. The mode is in the class's low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    class: usize,
    site: usize,
}

const _: () = assert!(align_of::<LockClass>() > Mode::ALL.len() - 1, "the mode fits the low bits");

impl Key {
    #[inline]
    fn new(class: &'static LockClass, mode: Mode, site: Site) -> Self {
        let site = site.map_or(0, |site| ptr::from_ref(site).addr());
        Self { class: ptr::from_ref(class).addr() | mode as usize, site }
    }

    /// The begin of the search. By the site alone, if there is one: its address is a constant of the program, so the
    /// slot is known before the lock's class is loaded.
    #[inline]
    fn slot(self) -> usize {
        let address = if self.site == 0 { self.class } else { self.site };
        (address >> 3) ^ (address >> 12)
    }
}

/// Adds to a word of the caller's own table.
#[inline]
fn bump(word: &AtomicU64, amount: u64) -> u64 {
    // ORDERING: Relaxed; a statistic that only the table's owner stores to.
    let before = word.load(Ordering::Relaxed);
    word.store(before.wrapping_add(amount), Ordering::Relaxed);
    before
}

impl Times {
    fn note(&self, ns: u64) {
        bump(&self.samples, 1);
        bump(&self.sum_ns, ns);
        // ORDERING: Relaxed; a statistic that only the table's owner stores to.
        if ns > self.max_ns.load(Ordering::Relaxed) {
            self.max_ns.store(ns, Ordering::Relaxed);
        }
    }
}

impl Row {
    fn new(class: &'static LockClass, mode: Mode, site: Site) -> Self {
        Self {
            key: Key::new(class, mode, site),
            free: AtomicU64::new(0),
            next_timed: AtomicU64::new(0),
            contended: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            spins: AtomicU64::new(0),
            class,
            mode,
            site,
            free_held: Times::default(),
            contended_held: Times::default(),
            waited: Times::default(),
            hold_histogram: [const { AtomicU64::new(0) }; BUCKETS],
            wait_histogram: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts an acquisition that did not wait. True if its hold must be timed.
    #[inline]
    pub(super) fn taken(&self) -> bool {
        let count = bump(&self.free, 1);
        // ORDERING: Relaxed; a statistic that only the table's owner stores to.
        count >= self.next_timed.load(Ordering::Relaxed)
    }

    /// Chooses the next acquisition to be timed, `every` later on average.
    ///
    /// Not exactly `every`: callers take locks in rhythms, and a fixed step could hit the same beat of a rhythm for
    /// ever. Uniform between 1 and 2 * `every` - 1.
    pub(super) fn plan_next(&self, every: u32) {
        // ORDERING: Relaxed; a statistic that only the table's owner stores to.
        let count = self.free.load(Ordering::Relaxed);
        let mixed = (count ^ self.key.site as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        let step = 1 + mixed % (2 * u64::from(every) - 1);
        self.next_timed.store(count - 1 + step, Ordering::Relaxed);
    }

    /// Counts an acquisition that waited.
    pub(super) fn taken_after(&self, waited_ns: u64, spins: u64) {
        bump(&self.contended, 1);
        bump(&self.spins, spins);
        self.waited.note(waited_ns);
        bump(&self.wait_histogram[bucket(waited_ns)], 1);
    }

    /// Counts an attempt that found the lock held and did not wait.
    pub(super) fn rejected(&self) {
        bump(&self.rejected, 1);
    }

    /// Records the length of a timed hold.
    pub(super) fn released(&self, held_ns: u64, contended: bool) {
        if contended { &self.contended_held } else { &self.free_held }.note(held_ns);
        bump(&self.hold_histogram[bucket(held_ns)], 1);
    }

    /// All counts, for any thread; a snapshot.
    pub(super) fn totals(&self) -> Totals {
        // ORDERING: Relaxed; a report, whose words need no order among themselves.
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let contended = read(&self.contended);
        Totals {
            acquisitions: read(&self.free) + contended,
            contended,
            rejected: read(&self.rejected),
            spins: read(&self.spins),
            free_samples: read(&self.free_held.samples),
            free_hold_ns: read(&self.free_held.sum_ns),
            contended_samples: read(&self.contended_held.samples),
            contended_hold_ns: read(&self.contended_held.sum_ns),
            hold_max_ns: read(&self.free_held.max_ns).max(read(&self.contended_held.max_ns)),
            wait_ns: read(&self.waited.sum_ns),
            wait_max_ns: read(&self.waited.max_ns),
            hold_histogram: std::array::from_fn(|at| read(&self.hold_histogram[at])),
            wait_histogram: std::array::from_fn(|at| read(&self.wait_histogram[at])),
        }
    }
}

/// The rows of one thread.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Table {
    slots: [AtomicPtr<Row>; SLOTS],
    used: AtomicU64,
}

impl Table {
    /// An empty table.
    pub(super) const fn new() -> Self {
        Self { slots: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS], used: AtomicU64::new(0) }
    }

    /// The row of a call site in the caller's own table, if there is one.
    #[inline]
    pub(super) fn find(
        &self,
        class: &'static LockClass,
        mode: Mode,
        site: Site,
    ) -> Option<&'static Row> {
        let key = Key::new(class, mode, site);
        let mut at = key.slot();
        loop {
            // ORDERING: Relaxed; the owner stored it, or received the table through a lock.
            let row = self.slots[at % SLOTS].load(Ordering::Relaxed);
            if row.is_null() {
                return None;
            }
            // SAFETY: a slot holds null or a row that is never freed (T2), complete (T1) for its owner.
            let row = unsafe { &*row };
            if row.key == key {
                return Some(row);
            }
            at += 1;
        }
    }

    /// The row of a call site in the caller's own table, made if necessary. If the table is full, the shared row for
    /// further sites.
    pub(super) fn row(&self, class: &'static LockClass, mode: Mode, site: Site) -> &'static Row {
        // ORDERING: Relaxed; only the owner stores it.
        let used = self.used.load(Ordering::Relaxed) as usize;
        if let Some(row) = self.find(class, mode, site) {
            row
        } else if used < SITES_MAX || (site.is_none() && used < ROWS_MAX) {
            self.insert(class, mode, site)
        } else if site.is_some() {
            self.row(class, mode, None)
        } else {
            // The last rows are reserved for this class, in each mode.
            let other = &OTHER_CLASSES;
            self.find(other, mode, None).unwrap_or_else(|| self.insert(other, mode, None))
        }
    }

    fn insert(&self, class: &'static LockClass, mode: Mode, site: Site) -> &'static Row {
        // The first row of a process measures the clock's rate here, before the lock is taken.
        clock();
        let row: &'static mut Row = Box::leak(Box::new(Row::new(class, mode, site)));
        let key = row.key;
        let row = ptr::from_mut(row);
        let mut at = key.slot();
        // ORDERING: Relaxed; the owner looks for its first empty slot, which exists (T3).
        while !self.slots[at % SLOTS].load(Ordering::Relaxed).is_null() {
            at += 1;
        }
        // ORDERING: Release, partner `rows` (O1). Relaxed would publish the row before its class.
        self.slots[at % SLOTS].store(row, Ordering::Release);
        bump(&self.used, 1);
        // SAFETY: leaked above, so it is never freed (T2); shared from now on, and never unique again.
        unsafe { &*row }
    }

    /// All rows, also of another thread's table.
    pub(super) fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.slots.iter().filter_map(|slot| {
            // ORDERING: Acquire, partner `insert` (O1).
            let row = slot.load(Ordering::Acquire);
            // SAFETY: null or a row that is never freed (T2), initialized (O1).
            unsafe { row.as_ref() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: LockClass = LockClass::new(1, "table-one", "test");
    static OTHER: LockClass = LockClass::new(2, "table-other", "test");

    #[test]
    fn classes_modes_and_sites_have_rows_of_their_own() {
        let table = Table::new();
        let site: Site = Some(Location::caller());
        let rows = [
            table.row(&ONE, Mode::Mutex, site),
            table.row(&ONE, Mode::Read, site),
            table.row(&ONE, Mode::Write, site),
            table.row(&ONE, Mode::Spin, site),
            table.row(&OTHER, Mode::Mutex, site),
            table.row(&ONE, Mode::Mutex, None),
            table.row(&ONE, Mode::Mutex, Some(Location::caller())),
        ];
        for (at, row) in rows.iter().enumerate() {
            assert!(rows[..at].iter().all(|other| !ptr::eq(*other, *row)));
        }
        assert!(ptr::eq(table.row(&ONE, Mode::Mutex, site), rows[0]));
        assert_eq!(table.rows().count(), rows.len());
    }

    /// More sites and classes than there is room for: every event is still counted.
    #[test]
    fn a_full_table_counts_in_the_rows_for_the_rest() {
        let table = Table::new();
        let leak_class = || &*Box::leak(Box::new(LockClass::new(3, "table-many", "test")));
        let leak_site = || Some(&*Box::leak(Box::new(*Location::caller())));
        for _ in 0..2 * SLOTS {
            assert!(table.row(&ONE, Mode::Mutex, leak_site()).class.name() == "table-one");
        }
        let others = table.find(&ONE, Mode::Mutex, None).expect("a row for the rest");
        assert!(ptr::eq(table.row(&ONE, Mode::Mutex, leak_site()), others));
        for _ in 0..2 * SLOTS {
            for mode in Mode::ALL {
                table.row(leak_class(), mode, leak_site()).rejected();
            }
        }
        let counted: u64 = table.rows().map(|row| row.totals().rejected).sum();
        assert_eq!(counted, 2 * SLOTS as u64 * 4);
        assert!(table.rows().count() < SLOTS, "a slot is left empty");
        assert!(table.rows().any(|row| ptr::eq(row.class, &raw const OTHER_CLASSES)));
        assert!(ptr::eq(table.row(&ONE, Mode::Mutex, leak_site()), others), "still found");
    }

    #[test]
    fn every_nth_is_timed_on_average_and_each_when_n_is_one() {
        let row = Row::new(&ONE, Mode::Mutex, None);
        let timed = |every, events: u64| {
            (0..events).filter(|_| row.taken().then(|| row.plan_next(every)).is_some()).count()
        };
        assert_eq!(timed(1, 1000), 1000);
        let some = timed(64, 640_000);
        assert!((8_000..12_000).contains(&some), "{some} of 640,000");
        assert_eq!(row.totals().acquisitions, 641_000);
    }
}
