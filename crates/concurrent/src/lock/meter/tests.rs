//! The meter through its locks: exact counts, sites, contention and times.
//!
//! Each test has classes of its own; [`Settings`] holds the two switches of the whole process.

// The lock of the settings must not be metered by the meter that it guards.
#![allow(clippy::disallowed_types)]

use super::super::{Condvar, LockClass, Mutex, RwLock, bit};
use super::*;
use crate::primitive::atomic::{AtomicBool, Ordering::SeqCst};
use crate::primitive::raw;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};

/// Keeps the switches at known values for its lifetime; other tests wait.
struct Settings {
    _alone: raw::MutexGuard<'static, ()>,
}

impl Settings {
    fn timing_one_in(every: u32) -> Self {
        static HOLDER: raw::Mutex<()> = raw::Mutex::new(());
        let settings = Self { _alone: HOLDER.lock() };
        set_sampling(every);
        settings
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        set_sampling(SAMPLING_DEFAULT);
        set_enabled(true);
    }
}

fn report(class: &'static LockClass, mode: Mode) -> Option<ClassReport> {
    snapshot().into_iter().find(|one| one.class == class.name() && one.mode == mode)
}

fn check_whole(totals: &Totals) {
    let histogram: u64 = totals.hold_histogram.iter().sum();
    assert_eq!(histogram, totals.free_samples + totals.contended_samples);
    assert_eq!(totals.wait_histogram.iter().sum::<u64>(), totals.contended);
    let longest = |histogram: &[u64; BUCKETS]| histogram.iter().rposition(|count| *count > 0);
    let bucket_of = |ns, any: bool| any.then(|| report::bucket(ns));
    assert_eq!(longest(&totals.hold_histogram), bucket_of(totals.hold_max_ns, histogram > 0));
    assert_eq!(
        longest(&totals.wait_histogram),
        bucket_of(totals.wait_max_ns, totals.contended > 0)
    );
    assert!(totals.free_hold_ns + totals.contended_hold_ns >= totals.hold_max_ns);
    assert!(totals.wait_ns >= totals.wait_max_ns);
}

#[test]
fn counts_are_exact_by_class_and_site() {
    static CLASS: LockClass = LockClass::new(1, "meter-exact", "test");
    let settings = Settings::timing_one_in(SAMPLING_DEFAULT);
    let lock = Mutex::new(&CLASS, 0u64);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for at in 0..1000 {
                    if at % 4 == 0 {
                        *lock.lock() += 1;
                    } else {
                        *lock.lock() += 2;
                    }
                }
            });
        }
    });
    let line = line!();
    let seen = report(&CLASS, Mode::Mutex).expect("taken");
    drop(settings);
    assert_eq!((seen.rank, seen.totals.acquisitions, seen.totals.rejected), (1, 6000, 0));
    let sites: Vec<_> =
        seen.sites.iter().map(|one| (one.site.clone(), one.totals.acquisitions)).collect();
    let at = |above| format!("{}:{}", file!(), line - above);
    assert_eq!(sites, [(at(8), 1500), (at(6), 4500)]);
    check_whole(&seen.totals);
    let mut sum = Totals::default();
    seen.sites.iter().for_each(|one| sum.add(&one.totals));
    assert_eq!(sum, seen.totals);
}

/// A lock whose first attempt fails in any case: the wait is certain, and as long as `wait` takes.
fn take_in_vain_first(class: &'static LockClass, wait: impl FnOnce()) -> Held {
    take(class, Mode::Mutex, || None, wait).1
}

#[test]
fn a_wait_is_counted_and_timed_and_so_is_the_hold_after_it() {
    static CLASS: LockClass = LockClass::new(1, "meter-wait", "test");
    let _settings = Settings::timing_one_in(1 << 20);
    let lock = Mutex::new(&CLASS, ());
    for _ in 0..10 {
        drop(lock.lock());
    }
    let spend = |ns| {
        let (clock, from) = (clock(), clock().now());
        while clock.nanoseconds(clock.now().since(from)) < ns {}
    };
    for ns in [3_000_000, 20_000, 20_000] {
        let mut held = take_in_vain_first(&CLASS, || spend(ns));
        spend(1_000_000);
        held.ending();
    }
    let totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    assert_eq!((totals.acquisitions, totals.contended), (13, 3));
    assert_eq!(
        (totals.free_samples, totals.contended_samples),
        (1, 3),
        "the first, and all waiters"
    );
    assert!(totals.wait_max_ns >= 3_000_000 && totals.wait_ns >= 3_040_000, "{totals:?}");
    assert!(totals.contended_hold_ns >= 3_000_000 && totals.hold_max_ns >= 1_000_000);
    assert!(totals.hold_total_ns() < 10.0 * 1e6 + totals.contended_hold_ns as f64, "{totals:?}");
    check_whole(&totals);
}

/// Rounds until a thread has found the lock held; a round in which it came too late proves nothing.
#[test]
fn threads_that_meet_at_a_lock_are_seen() {
    static CLASS: LockClass = LockClass::new(1, "meter-meet", "test");
    let _settings = Settings::timing_one_in(1);
    let lock = Mutex::new(&CLASS, ());
    let (mut rounds, mut totals) = (0, Totals::default());
    while totals.contended == 0 {
        assert!(rounds < 100_000, "no thread was ever seen to wait");
        rounds += 1;
        let held = lock.lock();
        std::thread::scope(|scope| {
            let (asking, asked) = mpsc::channel();
            let lock = &lock;
            scope.spawn(move || {
                asking.send(()).unwrap();
                drop(lock.lock());
            });
            asked.recv().unwrap();
            (0..rounds).for_each(|_| std::thread::yield_now());
            drop(held);
        });
        totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    }
    assert_eq!((totals.acquisitions, totals.contended), (2 * rounds, 1));
    assert_eq!(totals.free_samples + totals.contended_samples, 2 * rounds);
    check_whole(&totals);
}

#[test]
fn rejected_tries_are_counted_apart() {
    static CLASS: LockClass = LockClass::new(1, "meter-reject", "test");
    let settings = Settings::timing_one_in(1);
    let lock = Mutex::new(&CLASS, ());
    let held = lock.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..5).for_each(|_| assert!(lock.try_lock().is_none())));
    });
    drop(held);
    drop(lock.try_lock().expect("free"));
    let totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    drop(settings);
    assert_eq!((totals.acquisitions, totals.rejected, totals.contended), (2, 5, 0));
}

#[test]
fn readers_and_writers_are_counted_apart() {
    static CLASS: LockClass = LockClass::new(1, "meter-rw", "test");
    let settings = Settings::timing_one_in(1);
    let lock = RwLock::new(&CLASS, 0);
    (0..3).for_each(|_| drop(lock.read()));
    *lock.write() += 1;
    let count = |mode| report(&CLASS, mode).map(|one| one.totals.acquisitions);
    assert_eq!((count(Mode::Read), count(Mode::Write)), (Some(3), Some(1)));
    assert_eq!((count(Mode::Mutex), count(Mode::Spin)), (None, None));
    assert_eq!(report(&CLASS, Mode::Write).unwrap().name(), "meter-rw (write)");
    drop(settings);
}

#[test]
fn spinners_count_their_tries() {
    static CLASS: LockClass = LockClass::new(1, "meter-spin", "test");
    let settings = Settings::timing_one_in(1);
    let mut tries = 0;
    let held = bit::lock(&CLASS, || {
        tries += 1;
        tries > 200
    });
    bit::unlock(held, || ());
    let held = bit::lock(&CLASS, || true);
    bit::unlock(held, || ());
    assert!(bit::try_lock(&CLASS, || false).is_none());
    let totals = report(&CLASS, Mode::Spin).expect("taken").totals;
    drop(settings);
    assert_eq!((totals.acquisitions, totals.contended, totals.rejected), (2, 1, 1));
    assert_eq!((totals.spins, totals.free_samples, totals.contended_samples), (200, 1, 1));
    check_whole(&totals);
}

#[test]
fn a_sleep_on_a_condition_is_no_hold_and_waking_is_an_acquisition() {
    static CLASS: LockClass = LockClass::new(1, "meter-condvar", "test");
    let settings = Settings::timing_one_in(1);
    let (lock, wake) = (Mutex::new(&CLASS, false), Condvar::default());
    let slept = std::time::Instant::now();
    let mut guard = lock.lock();
    while slept.elapsed() < Duration::from_millis(20) {
        wake.wait_for(&mut guard, Duration::from_millis(20));
    }
    drop(guard);
    let totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    drop(settings);
    assert!(totals.acquisitions >= 2, "{totals:?}");
    assert_eq!((totals.contended, totals.free_samples), (0, totals.acquisitions));
    assert!(totals.free_hold_ns < 20_000_000, "the sleep is not in it: {totals:?}");
}

#[test]
fn a_class_that_is_not_taken_is_absent_and_so_is_what_happened_while_off() {
    static CLASS: LockClass = LockClass::new(1, "meter-absent", "test");
    let settings = Settings::timing_one_in(1);
    let lock = Mutex::new(&CLASS, ());
    assert_eq!(report(&CLASS, Mode::Mutex), None);
    set_enabled(false);
    drop(lock.lock());
    let unmetered = report(&CLASS, Mode::Mutex);
    set_enabled(true);
    assert_eq!(unmetered, None);
    drop(lock.lock());
    let first = snapshot();
    let second = snapshot();
    let own = |reports: Vec<ClassReport>| reports.iter().any(|one| one.class == "meter-absent");
    assert!(own(first.clone()) && !own(difference(&second, &first)));
    drop(lock.lock());
    let changes = difference(&snapshot(), &second);
    let own = changes.iter().find(|one| one.class == "meter-absent").expect("taken since");
    assert_eq!((own.totals.acquisitions, own.sites.len()), (1, 1));
    drop(settings);
}

/// Locks taken by threads that have ended, and by their destructors, stay counted.
#[test]
fn ended_threads_stay_counted() {
    static CLASS: LockClass = LockClass::new(1, "meter-ended", "test");
    struct Late(Arc<Mutex<()>>);
    impl Drop for Late {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    thread_local!(static LATE: Cell<Option<Late>> = const { Cell::new(None) });
    let settings = Settings::timing_one_in(1);
    let lock = Arc::new(Mutex::new(&CLASS, ()));
    for lock_first in [true, false, true, false] {
        let lock = lock.clone();
        let thread = std::thread::spawn(move || {
            if lock_first {
                drop(lock.lock());
            }
            LATE.set(Some(Late(lock.clone())));
            drop(lock.lock());
        });
        thread.join().unwrap();
    }
    let totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    drop(settings);
    assert_eq!(totals.acquisitions, 10);
    check_whole(&totals);
}

/// A report taken while threads work is never ahead of them, never goes back, and ends exact.
#[test]
fn reports_may_be_taken_at_any_time() {
    static CLASS: LockClass = LockClass::new(1, "meter-busy", "test");
    let settings = Settings::timing_one_in(8);
    let (lock, stop) = (Mutex::new(&CLASS, 0u64), AtomicBool::new(false));
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                start.wait();
                // ORDERING: SeqCst; a test's flag.
                while !stop.load(SeqCst) {
                    *lock.lock() += 1;
                }
            });
        }
        start.wait();
        let mut last = 0;
        while last < 10_000 {
            let seen = report(&CLASS, Mode::Mutex).map_or(0, |one| one.totals.acquisitions);
            assert!(seen >= last, "{seen} after {last}");
            last = seen;
        }
        // ORDERING: SeqCst; a test's flag.
        stop.store(true, SeqCst);
    });
    let count = lock.into_inner();
    let totals = report(&CLASS, Mode::Mutex).expect("taken").totals;
    drop(settings);
    assert_eq!(totals.acquisitions, count);
    check_whole(&totals);
}
