//! Locks, and words that look like locks, as traces of accesses.
//!
//! # Boundary
//! [`super`] alone: no model, no scheduler; every access takes ten cycles.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A guess is only as good as the cases it was tried on; each has its name here. Weakness: the traces
//! are as short as they can be, real ones are mixed.

use super::*;

const A: u64 = 0x1000;
const C: Ticks = TICKS_PER_CYCLE;

/// Reports accesses one after the other, ten cycles each.
#[derive(Default)]
struct Trace {
    locks: Locks,
    now: Ticks,
    accesses: u64,
}

impl Trace {
    fn event(&mut self, thread: u32) -> Event {
        let begin = self.now;
        self.now += 10 * C;
        self.accesses += 1;
        let (end, accesses) = (self.now, self.accesses);
        Event {
            address: A,
            bytes: 4,
            thread,
            core: thread,
            site: thread + 100,
            begin,
            end,
            accesses,
        }
    }

    fn update(
        &mut self,
        thread: u32,
        operation: Operation,
        ordering: Ordering,
        old: u64,
        new: u64,
    ) {
        let event = self.event(thread);
        self.locks.update(&event, operation, ordering, old, new, true);
    }

    fn acquire(&mut self, thread: u32, old: u64, new: u64) {
        self.update(thread, Operation::CompareExchange, Ordering::Acquire, old, new);
    }

    fn release(&mut self, thread: u32, old: u64, new: u64) {
        self.update(thread, Operation::Exchange, Ordering::Release, old, new);
    }

    fn fail(&mut self, thread: u32, old: u64) {
        let event = self.event(thread);
        self.locks.update(&event, Operation::CompareExchange, Ordering::Acquire, old, 1, false);
    }

    fn load(&mut self, thread: u32, value: u64) {
        let event = self.event(thread);
        self.locks.load(&event, value);
    }

    fn records(self) -> Vec<Lock> {
        self.locks.into_records(9)
    }

    fn one(self) -> Lock {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{records:?}");
        records.remove(0)
    }
}

#[test]
fn a_lock_is_taken_and_given_back() {
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    trace.now += 90 * C;
    trace.release(0, 1, 0);
    trace.acquire(1, 0, 1);
    trace.release(1, 1, 0);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.offset, lock.seed), (LockKind::Word, A, 9));
    assert_eq!((lock.acquisitions, lock.contended, lock.bounces), (2, 0, 1));
    assert_eq!((lock.hold_total, lock.hold_min, lock.hold_max), (90, 0, 90));
    assert_eq!((lock.wait_total, lock.waiters), (0, vec![]));
}

#[test]
fn a_failed_try_begins_the_wait() {
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    trace.fail(1, 1);
    trace.load(1, 1);
    trace.load(1, 1);
    trace.release(0, 1, 0);
    trace.load(1, 0);
    trace.acquire(1, 0, 1);
    trace.release(1, 1, 0);
    let lock = trace.one();
    assert_eq!((lock.acquisitions, lock.contended), (2, 1));
    // From the failed one at 10 to the end of the acquisition at 70.
    assert_eq!((lock.wait_total, lock.wait_min, lock.wait_max), (60, 60, 60));
    assert_eq!(lock.waiters, [(101, 1)]);
}

#[test]
fn a_look_that_finds_it_free_is_no_wait() {
    let mut trace = Trace::default();
    for _ in 0..3 {
        trace.load(0, 0);
        trace.acquire(0, 0, 1);
        trace.release(0, 1, 0);
    }
    let lock = trace.one();
    assert_eq!((lock.acquisitions, lock.contended), (3, 0));
}

#[test]
fn the_sleeping_mutex_of_libraries() {
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    // Says that it waits, sleeps, and takes it so that the next one is woken as well.
    trace.update(1, Operation::Exchange, Ordering::Acquire, 1, 2);
    let mut sleep = trace.event(1);
    trace.release(0, 2, 0);
    sleep.end = trace.now;
    trace.locks.futex_wait(&sleep, 2);
    trace.update(1, Operation::Exchange, Ordering::Acquire, 0, 2);
    trace.release(1, 2, 0);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 2, 1));
    // From its first exchange's end at 20, or its sleep's begin there, to 50.
    assert_eq!((lock.wait_total, lock.hold_max), (30, 20));
}

#[test]
fn a_bit_of_a_word_is_a_lock_whatever_the_other_bits_do() {
    let mut trace = Trace::default();
    trace.update(0, Operation::FetchBits, Ordering::Acquire, 0x10, 0x11);
    trace.update(1, Operation::FetchBits, Ordering::Relaxed, 0x11, 0x31);
    trace.update(0, Operation::FetchBits, Ordering::Release, 0x31, 0x30);
    assert_eq!(trace.one().acquisitions, 1);
}

#[test]
fn readers_overlap_and_are_locks_where_there_are_writers() {
    let overlap = |trace: &mut Trace| {
        trace.acquire(0, 0, 1);
        trace.acquire(1, 1, 2);
        trace.update(0, Operation::FetchAdd, Ordering::Release, 2, 1);
        // Tries again at once, which is not waiting.
        trace.fail(2, 2);
        trace.acquire(2, 1, 2);
        trace.update(1, Operation::FetchAdd, Ordering::Release, 2, 1);
        trace.update(2, Operation::FetchAdd, Ordering::Release, 1, 0);
    };
    let mut trace = Trace::default();
    overlap(&mut trace);
    assert_eq!(trace.records(), [], "a counted object");
    let mut trace = Trace::default();
    overlap(&mut trace);
    trace.acquire(3, 0, 0x3fff_ffff);
    trace.release(3, 0x3fff_ffff, 0);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 4, 1));
}

#[test]
fn a_reference_count_is_no_lock() {
    let mut trace = Trace::default();
    for thread in 0..4 {
        trace.update(thread, Operation::FetchAdd, Ordering::Relaxed, 1, 2);
        trace.update(thread, Operation::FetchAdd, Ordering::Release, 2, 1);
    }
    for thread in 0..4 {
        trace.update(thread, Operation::CompareExchange, Ordering::Relaxed, 1, 2);
        trace.update(thread, Operation::CompareExchange, Ordering::Release, 2, 1);
    }
    // Nor is one with stronger orderings than it needs.
    for thread in 0..4 {
        trace.update(thread, Operation::FetchAdd, Ordering::SequentiallyConsistent, 1, 2);
        trace.update(thread, Operation::FetchAdd, Ordering::SequentiallyConsistent, 2, 1);
    }
    assert_eq!(trace.records(), []);
}

#[test]
fn an_addition_is_a_lock_once_a_thread_waits() {
    let mut trace = Trace::default();
    trace.update(0, Operation::FetchAdd, Ordering::Acquire, 0, 1);
    trace.load(1, 1);
    trace.load(1, 1);
    trace.update(0, Operation::FetchAdd, Ordering::Release, 1, 0);
    trace.update(1, Operation::FetchAdd, Ordering::Acquire, 0, 1);
    trace.update(1, Operation::FetchAdd, Ordering::Release, 1, 0);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 2, 1));
}

#[test]
fn the_head_of_a_stack_is_no_lock() {
    let mut trace = Trace::default();
    let node = |number: u64| 0x5555_0000_0000 + number * 64;
    for number in 0..4 {
        trace.update(
            0,
            Operation::CompareExchange,
            Ordering::AcquireRelease,
            node(number),
            node(number + 1),
        );
        trace.fail(1, node(number));
    }
    // Takes one off and puts it back, as a pool does.
    trace.acquire(0, node(4), node(3));
    trace.release(0, node(3), node(4));
    assert_eq!(trace.records(), []);
}

#[test]
fn holds_that_overlap_exclude_no_thread() {
    // Small numbers, as indices of a pool are: both threads put back the indices that they took, but not in order.
    let mut trace = Trace::default();
    trace.acquire(0, 7, 5);
    trace.acquire(1, 5, 2);
    trace.release(0, 2, 7);
    trace.release(1, 7, 5);
    assert_eq!(trace.records(), []);
}

#[test]
fn a_flag_is_awaited() {
    let mut trace = Trace::default();
    trace.load(0, 0);
    trace.load(0, 0);
    trace.load(0, 0);
    trace.update(1, Operation::AtomicStore, Ordering::Release, 0, 1);
    trace.load(0, 1);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Awaited, 1, 1));
    assert_eq!((lock.wait_total, lock.hold_total), (50, 0));
    assert_eq!(lock.waiters, [(100, 1)]);
}

#[test]
fn a_flag_that_is_looked_at_between_work_is_not_awaited() {
    let mut trace = Trace::default();
    for value in [0, 0, 0, 1] {
        trace.load(0, value);
        trace.accesses += 100;
    }
    assert_eq!(trace.records(), []);
}

#[test]
fn pthread_locks_need_no_guess() {
    let mut trace = Trace::default();
    let taken = trace.event(0);
    trace.locks.pthread_acquired(LockKind::Mutex, &taken, false);
    let waits = trace.event(1);
    let released = trace.event(0);
    trace.locks.pthread_released(LockKind::Mutex, &released);
    let taken = Event { end: trace.now, ..waits };
    trace.locks.pthread_acquired(LockKind::Mutex, &taken, true);
    let released = trace.event(1);
    trace.locks.pthread_released(LockKind::Mutex, &released);
    let shared = trace.event(2);
    trace.locks.pthread_acquired(LockKind::Shared, &shared, false);
    let records = trace.records();
    assert_eq!(records.len(), 2, "one for each kind");
    let mutex = &records[0];
    assert_eq!(
        (mutex.kind, mutex.acquisitions, mutex.contended, mutex.bounces),
        (LockKind::Mutex, 2, 1, 1)
    );
    assert_eq!((mutex.wait_total, mutex.hold_total), (20, 10));
    assert_eq!((records[1].kind, records[1].acquisitions), (LockKind::Shared, 1));
}

#[test]
fn what_is_freed_is_taken_out() {
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    trace.release(0, 1, 0);
    trace.acquire(0, 0, 1);
    assert_eq!(trace.locks.take(9, A + 4, 64), []);
    assert_eq!(trace.locks.take(9, A - 64, 1 << 30).len(), 1);
    // Holds of that memory are forgotten with it.
    trace.release(0, 1, 0);
    assert_eq!(trace.records(), []);
}

impl Trace {
    /// A sleep on the word at `address` that began with `event` ends now.
    fn wake(&mut self, event: Event, address: u64, value: u64) {
        self.now += 10 * C;
        let slept = Event { address, end: self.now, ..event };
        self.locks.futex_wait(&slept, value);
    }

    fn subtract(&mut self, thread: u32, ordering: Ordering, old: u64, new: u64) {
        self.update(thread, Operation::FetchAdd, ordering, old, new);
    }
}

#[test]
fn a_mutex_of_the_standard_library_is_taken_unseen() {
    // Thread 1 finds it taken. Its next steps are precompiled: it writes 2, sleeps, and takes the
    // mutex by an exchange that is not reported. Its release is in the program's code again.
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1); // 0 to 10
    trace.fail(1, 1); // 10 to 20
    let sleep = trace.event(1); // 20
    trace.release(0, 2, 0); // 30
    trace.wake(sleep, A, 2); // to 50
    // The hold is long, so that the chain is forgotten.
    trace.accesses += 2 * TRY_ACCESSES;
    trace.now += 100 * C;
    trace.release(1, 2, 0); // 150
    // The third finds it free after it failed, without a sleep.
    trace.acquire(0, 0, 1); // 160 to 170
    trace.fail(2, 1); // 170 to 180
    trace.now += 20 * C;
    trace.release(0, 1, 0); // 200
    trace.release(2, 2, 0); // 210
    // One record: the sleep is the lock's wait, and not awaited besides.
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 4, 2));
    assert_eq!(lock.bounces, 3);
    // From the failed try to the end of the sleep; from the failed try to the other's release.
    assert_eq!((lock.wait_total, lock.wait_max, lock.wait_min), (70, 40, 30));
    // 10 to 30, 50 to 150, 170 to 200, 200 to 210.
    assert_eq!((lock.hold_total, lock.hold_max, lock.hold_min), (160, 100, 10));
    assert_eq!(lock.waiters, [(101, 1), (102, 1)]);
}

#[test]
fn the_first_release_that_is_seen_may_be_of_an_unseen_hold() {
    // The first holder is precompiled code, so no release has shown yet which value is free.
    let mut trace = Trace::default();
    trace.fail(1, 1);
    let sleep = trace.event(1);
    trace.wake(sleep, A, 2);
    trace.release(1, 2, 0);
    let lock = trace.one();
    assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 1, 1));
    assert_eq!((lock.wait_total, lock.hold_total), (30, 0));
}

#[test]
fn a_thread_that_did_not_want_it_did_not_take_it() {
    // A release by a thread that never tried may hand the lock on, or clear a flag.
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    trace.release(0, 1, 0);
    trace.release(1, 1, 0);
    // One that tried and then took it in sight has given it back once.
    trace.fail(2, 1);
    trace.acquire(2, 0, 1);
    trace.release(2, 1, 0);
    trace.release(2, 1, 0);
    // One that tried, and then writes something that no release wrote.
    trace.fail(3, 1);
    trace.release(3, 1, 7);
    // One that has something else, and gives up more than that.
    trace.acquire(4, 3, 4);
    trace.fail(4, 5);
    trace.release(4, 5, 0);
    // One that only tried to give something.
    let event = trace.event(5);
    trace.locks.update(&event, Operation::CompareExchange, Ordering::Release, 1, 0, false);
    trace.release(5, 1, 0);
    assert_eq!(trace.one().acquisitions, 2);
}

#[test]
fn a_reader_writer_lock_of_the_standard_library_is_taken_unseen() {
    const WRITTEN: u64 = 0x3fff_ffff;
    const WAITING: u64 = 1 << 31;
    let mut trace = Trace::default();
    // One reader and one writer in sight.
    trace.acquire(0, 0, 1); // 0 to 10
    trace.subtract(0, Ordering::Release, 1, 0); // 10
    trace.acquire(0, 0, WRITTEN); // 20 to 30
    // A reader looks, and sleeps on the word; a writer tries, and sleeps on the word beside it.
    trace.load(1, WRITTEN); // 30 to 40
    let reader = trace.event(1); // 40
    let event = trace.event(2); // 50 to 60
    let (operation, ordering) = (Operation::CompareExchange, Ordering::Acquire);
    trace.locks.update(&event, operation, ordering, WRITTEN, WRITTEN, false);
    let writer = trace.event(2); // 60
    trace.subtract(0, Ordering::Release, WRITTEN | WAITING, WAITING); // 70
    trace.wake(writer, A + WRITERS_SLEEP, 0); // to 90
    trace.subtract(2, Ordering::Release, WRITTEN | WAITING, WAITING); // 90
    trace.wake(reader, A, WRITTEN | WAITING); // to 110
    trace.subtract(1, Ordering::Release, 1, 0); // 110
    let lock = trace.one();
    assert_eq!((lock.kind, lock.offset), (LockKind::Word, A));
    assert_eq!((lock.acquisitions, lock.contended), (4, 2));
    // 50 to 90 and 30 to 110.
    assert_eq!((lock.wait_min, lock.wait_max, lock.wait_total), (40, 80, 120));
    // 30 to 70, and the others at once.
    assert_eq!((lock.hold_max, lock.hold_total), (40, 40));
}

#[test]
fn waiting_for_a_condition_gives_the_mutex_up() {
    // `Condvar::wait` releases and takes again unseen; the guard's release is the program's.
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1); // 0 to 10
    let sleep = trace.event(0); // 10
    trace.acquire(1, 0, 1); // 20 to 30
    trace.release(1, 1, 0); // 30
    trace.wake(sleep, A + 64, 0); // to 50
    // Not yet the value that it waits for.
    let sleep = trace.event(0); // 50
    trace.wake(sleep, A + 64, 0); // to 70
    trace.release(0, 2, 0); // 70
    // Waits twice, and after the first time also for the mutex.
    trace.acquire(0, 0, 1); // 80 to 90
    let condition = trace.event(0); // 90
    trace.acquire(1, 0, 1); // 100 to 110
    trace.wake(condition, A + 64, 0); // to 120
    let mutex = trace.event(0); // 120
    trace.release(1, 2, 0); // 130
    trace.wake(mutex, A, 2); // to 150
    let condition = trace.event(0); // 150
    trace.acquire(1, 0, 1); // 160 to 170
    trace.release(1, 1, 0); // 170
    trace.wake(condition, A + 64, 0); // to 190
    trace.release(0, 2, 0); // 190
    let mut records = trace.records();
    assert_eq!(records.len(), 2, "{records:?}");
    let (mutex, condition) = (records.remove(0), records.remove(0));
    assert_eq!((condition.kind, condition.acquisitions), (LockKind::Awaited, 4));
    // Of thread 0: two, and three after a condition.
    assert_eq!((mutex.kind, mutex.acquisitions, mutex.contended), (LockKind::Word, 8, 1));
    assert_eq!((mutex.wait_total, mutex.hold_max), (30, 20));
}

#[test]
fn a_hold_with_a_sleep_in_it_stays_one() {
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    let sleep = trace.event(0);
    trace.wake(sleep, A + 64, 0);
    trace.release(0, 1, 0);
    let records = trace.records();
    assert_eq!((records[0].acquisitions, records[0].hold_total), (1, 20));
}

#[test]
fn a_thread_that_sleeps_elsewhere_and_tries_again_has_not_had_it() {
    // As parking_lot does, whose slow path is visible; at the end the lock is handed over.
    let mut trace = Trace::default();
    trace.acquire(0, 0, 1);
    trace.fail(1, 1);
    let sleep = trace.event(1);
    trace.wake(sleep, A + 64, 0);
    trace.fail(1, 3);
    trace.release(0, 3, 0);
    trace.acquire(1, 0, 1);
    trace.release(1, 1, 0);
    trace.acquire(0, 0, 1);
    trace.fail(1, 1);
    let sleep = trace.event(1);
    trace.wake(sleep, A + 64, 0);
    trace.update(1, Operation::CompareExchange, Ordering::Release, 1, 0);
    let records = trace.records();
    assert_eq!((records[0].acquisitions, records[0].contended), (3, 2));
}

#[test]
fn a_token_to_park_with_is_no_lock() {
    // As `thread::park`: the owner takes the token, or sleeps; the others give it.
    const PARKED: u64 = 0xffff_ffff;
    let mut trace = Trace::default();
    for _ in 0..3 {
        trace.update(0, Operation::FetchAdd, Ordering::Acquire, 0, PARKED);
        let sleep = trace.event(0);
        trace.release(1, PARKED, 1);
        trace.wake(sleep, A, PARKED);
        trace.acquire(0, 1, 0);
    }
    assert_eq!(trace.one().kind, LockKind::Awaited);
    // An event that resets itself: the owner sleeps, and then clears it with a store.
    let mut trace = Trace::default();
    for _ in 0..3 {
        let sleep = trace.event(0);
        trace.update(1, Operation::AtomicStore, Ordering::Release, 0, 1);
        trace.wake(sleep, A, 0);
        trace.update(0, Operation::AtomicStore, Ordering::Release, 1, 0);
    }
    let awaited = trace.one();
    assert_eq!((awaited.kind, awaited.acquisitions), (LockKind::Awaited, 3));
    // The same, where the owner tries to clear it first.
    let mut trace = Trace::default();
    let event = trace.event(0);
    trace.locks.update(&event, Operation::CompareExchange, Ordering::Acquire, 0, 0, false);
    let sleep = trace.event(0);
    trace.wake(sleep, A, 0);
    trace.update(0, Operation::AtomicStore, Ordering::Release, 1, 0);
    assert_eq!(trace.one().kind, LockKind::Awaited);
}

#[test]
fn the_sequence_of_a_condition_is_no_lock() {
    // A thread that slept until the word changed changes it later for others.
    let mut trace = Trace::default();
    for sequence in 0..4 {
        let thread = sequence as u32 % 2;
        let sleep = trace.event(thread);
        trace.subtract(1 - thread, Ordering::Release, sequence, sequence + 1);
        trace.wake(sleep, A, sequence);
    }
    assert_eq!(trace.one().kind, LockKind::Awaited);
}

#[test]
fn what_runs_once_is_no_lock() {
    const RUNNING: u64 = 1;
    const COMPLETE: u64 = 3;
    let mut trace = Trace::default();
    trace.acquire(0, 0, RUNNING);
    trace.fail(1, RUNNING);
    let sleep = trace.event(1);
    trace.update(0, Operation::Exchange, Ordering::AcquireRelease, RUNNING, COMPLETE);
    trace.wake(sleep, A, RUNNING);
    trace.load(1, COMPLETE);
    assert_eq!(trace.one().kind, LockKind::Awaited);
}

#[test]
fn a_count_with_tries_that_fail_is_no_lock() {
    // Waits until it may go up, gives up, and takes another step down to zero.
    for ordering in [Ordering::Release, Ordering::AcquireRelease] {
        let mut trace = Trace::default();
        for thread in 0..4 {
            trace.fail(thread, 1);
            let sleep = trace.event(thread);
            trace.wake(sleep, A, 1);
            trace.update(thread, Operation::CompareExchange, ordering, 1, 0);
        }
        assert_eq!(trace.one().kind, LockKind::Awaited);
    }
}

#[test]
fn a_box_for_messages_is_no_lock() {
    // A thread that could not put its own message in takes the other's out.
    let mut trace = Trace::default();
    trace.update(0, Operation::CompareExchange, Ordering::AcquireRelease, 0, 7);
    trace.fail(1, 7);
    trace.update(1, Operation::AtomicStore, Ordering::Release, 7, 0);
    assert_eq!(trace.records(), []);
    // Nor one that is emptied by an exchange after a sleep.
    let mut trace = Trace::default();
    trace.fail(0, 7);
    let sleep = trace.event(0);
    trace.wake(sleep, A, 7);
    trace.update(0, Operation::Exchange, Ordering::AcquireRelease, 7, 0);
    assert_eq!(trace.one().kind, LockKind::Awaited);
}

#[test]
fn blocks_that_are_emptied_are_dropped_and_no_others() {
    // The cost of a free that finds a lock depends on its range, not on the number of kept locks.
    let mut trace = Trace::default();
    let at = |number: u64| A + (number << BLOCK_SHIFT);
    for number in 0..100 {
        for (old, new) in [(0, 1), (1, 0)] {
            let event = Event { address: at(number), ..trace.event(0) };
            let (operation, ordering) = (Operation::Exchange, Ordering::SequentiallyConsistent);
            trace.locks.update(&event, operation, ordering, old, new, true);
        }
    }
    trace.fail(1, 1);
    let sleep = trace.event(1);
    trace.wake(sleep, A, 2);
    assert_eq!(trace.locks.blocks.len(), 100);
    assert_eq!(trace.locks.take(9, A, 64).len(), 1);
    assert_eq!(trace.locks.blocks.len(), 99);
    // Half a block; then all that is left, as one range of many blocks.
    assert_eq!(trace.locks.take(9, at(1) + 4, 60), []);
    assert_eq!(trace.locks.blocks.len(), 99);
    assert_eq!(trace.locks.take(9, at(1), 1 << 40).len(), 99);
    assert_eq!(trace.locks.blocks.len(), 0);
    // The freed lock's waiter wants nothing of the object that lies there now.
    trace.release(1, 2, 0);
    assert_eq!(trace.records(), []);
}

/// An epoch that is read for each pin, and moves on between two of them, was taken for one that is waited for.
#[test]
fn a_word_that_is_looked_at_between_own_updates_is_not_awaited() {
    let looks = |pins: bool| {
        let mut trace = Trace::default();
        for value in [4, 4, 4, 5] {
            trace.load(1, value);
            if pins {
                let pin = Event { address: 0x2000, ..trace.event(1) };
                let store = Operation::AtomicStore;
                trace.locks.update(&pin, store, Ordering::SequentiallyConsistent, 0, value, true);
            }
        }
        trace.records().iter().filter(|lock| lock.kind == LockKind::Awaited).count()
    };
    assert_eq!(looks(false), 1);
    assert_eq!(looks(true), 0);
}
