//! Doors into one room: threads enter and leave by different ones; one thread closes all, and waits until the room is empty.
//!
//! # Boundary
//! Counts the threads inside, and what they may take of an amount that all share. Never waits: the caller has a lock, and a
//! condition variable for it, for the slow half. The caller defines what is done inside.
//!
//! # Concurrency
//! ```text
//!    ┌── enter_slowly ─▶ Short ─ close ┐       Open: enter and leave take the lock of one door
//!  Open ◀──── calm ──────┘             ▼       Short: a thread waits for what others give back; enter by the slow half
//!    ▲────────────── open ────────── Closed    Closed: no thread enters
//! ```
//! D1. A thread is inside from its entering until it leaves, by the same door. None enters between `close` and `open`. So when
//!     `close` returns, the room is empty, and what was done inside is visible: each door's lock was taken behind its last thread.
//! D2. The pool, the parts of the doors, and what the threads inside took and used, are together what `open` was given. A part
//!     grows only from the pool, under the caller's lock. So no more is used.
//! D3. A thread that waits marks all doors, then looks, and holds the caller's lock until it sleeps. A thread that leaves by a marked
//!     door takes that lock, then wakes. So a waiting thread sees that the other has left, or is woken by it.
//!
//! Progress: a thread that leaves waits for locks only. Checked by `model_close`, `model_what_is_given_back`.
//!
//! # Why
//! All operations of a store counted themselves under one lock, twice each. A lock for each door, not two flags with fences: the
//! amounts need it. Weakness: closing visits all doors, and where little of the amount is left all threads use the slow half.

use crate::lock::{LockClass, Mutex};
use crate::padded::Padded;

/// What a thread that enters or leaves has to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing more.
    Open,
    /// A thread waits for a part of the amount.
    Short,
    /// No thread enters.
    #[default]
    Closed,
}

/// The result of [`Doors::enter_slowly`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// The thread is inside, under this number.
    In(u32),
    /// There may be enough when other threads leave. The doors are marked: wait, and try again.
    Later,
    /// There is not enough, whatever the threads inside give back.
    Never,
}

#[derive(Debug, Default)]
struct Door {
    mark: Mark,
    /// The number that [`Doors::open`] was given.
    number: u32,
    /// Threads inside.
    inside: u32,
    /// What threads that enter here may still take.
    part: usize,
    /// What the threads inside took.
    taken: usize,
    /// Threads that ever entered.
    entered: u64,
}

impl Door {
    fn enter(&mut self, amount: usize) -> Option<u32> {
        if amount > self.part {
            return None;
        }
        self.part -= amount;
        self.taken += amount;
        self.inside += 1;
        self.entered += 1;
        Some(self.number)
    }
}

/// What no door has of the amount. The caller's lock protects it.
#[derive(Debug, Default)]
pub struct Pool {
    left: usize,
    /// Doors may be marked as short.
    is_short: bool,
}

/// The doors. The rules are in the module's documentation.
#[derive(Debug)]
pub struct Doors(Box<[Padded<Mutex<Door>>]>);

/// The part of the pool that a door gets beyond what is asked for there.
const SPARE_SHARE: usize = 16;

impl Doors {
    /// So many doors, at least one, all of them closed, with locks of `class`.
    pub fn new(class: &'static LockClass, count: usize) -> Self {
        let door = || Padded(Mutex::new(class, Door::default()));
        Self(std::iter::repeat_with(door).take(count.max(1)).collect())
    }

    /// The door of the calling thread.
    #[cfg(not(loom))]
    pub fn mine(&self) -> usize {
        crate::shard::of_thread(self.0.len())
    }

    /// Enters by door `at` and takes `amount`, if the door is open and has that. Returns the number of this opening.
    #[inline]
    pub fn enter(&self, at: usize, amount: usize) -> Option<u32> {
        let mut door = self.0[at].lock();
        if door.mark != Mark::Open {
            return None;
        }
        door.enter(amount)
    }

    /// Leaves by door `at`; of `amount`, which was taken there, `used` is used. True: take the caller's lock and wake all
    /// that wait.
    #[inline]
    #[must_use]
    pub fn leave(&self, at: usize, amount: usize, used: usize) -> bool {
        let mut door = self.0[at].lock();
        door.inside -= 1;
        door.taken -= amount;
        door.part += amount.saturating_sub(used);
        door.mark != Mark::Open
    }

    /// The slow half of [`Doors::enter`], for doors that are not closed; under the caller's lock.
    pub fn enter_slowly(&self, at: usize, amount: usize, pool: &mut Pool) -> Entry {
        let part = self.0[at].lock().part;
        let mut missing = 0;
        if pool.left + part < amount {
            // D3: marked before it looks.
            pool.is_short = true;
            for door in &self.0 {
                let mut door = door.lock();
                door.mark = Mark::Short;
                pool.left += std::mem::take(&mut door.part);
                missing += door.taken;
            }
        }
        let mut door = self.0[at].lock();
        if pool.left + door.part >= amount {
            let lacks = amount.saturating_sub(door.part);
            let more = lacks + (pool.left - lacks) / SPARE_SHARE;
            pool.left -= more;
            door.part += more;
            return door.enter(amount).map_or(Entry::Later, Entry::In);
        }
        if pool.left + missing >= amount { Entry::Later } else { Entry::Never }
    }

    /// No thread waits that found too little: doors that are not closed are open again; under the caller's lock.
    pub fn calm(&self, pool: &mut Pool) {
        if std::mem::take(&mut pool.is_short) {
            self.mark(Mark::Open);
        }
    }

    /// Marks all doors; under the caller's lock.
    pub fn mark(&self, mark: Mark) {
        for door in &self.0 {
            door.lock().mark = mark;
        }
    }

    /// Closes all doors and returns when no thread is inside; under the caller's lock. `wait` releases that, and returns with it when
    /// it was woken.
    pub fn close(&self, mut wait: impl FnMut()) {
        self.mark(Mark::Closed);
        while self.inside() {
            wait();
        }
    }

    fn inside(&self) -> bool {
        self.0.iter().any(|door| door.lock().inside > 0)
    }

    /// Opens all doors of an empty room, under a new number, with a new amount; under the caller's lock.
    pub fn open(&self, number: u32, amount: usize, pool: &mut Pool) {
        *pool = Pool { left: amount, is_short: false };
        for door in &self.0 {
            let mut door = door.lock();
            (door.mark, door.number, door.part) = (Mark::Open, number, 0);
        }
    }

    /// Threads that ever entered.
    pub fn entered(&self) -> u64 {
        self.0.iter().map(|door| door.lock().entered).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    static CLASS: LockClass = LockClass::new(1, "test-doors", "test");

    /// A door of some with an amount.
    fn opened(count: usize, amount: usize) -> (Doors, Pool) {
        let (doors, mut pool) = (Doors::new(&CLASS, count), Pool::default());
        assert_eq!(doors.enter(0, 0), None, "closed at first");
        doors.open(7, amount, &mut pool);
        (doors, pool)
    }

    #[test]
    fn a_door_keeps_what_was_given_back() {
        let (doors, mut pool) = opened(2, 100);
        assert_eq!(doors.enter(0, 10), None, "it has no part yet");
        assert_eq!(doors.enter_slowly(0, 10, &mut pool), Entry::In(7));
        assert_eq!(doors.enter(0, 6), None, "5 more at most");
        assert!(!doors.leave(0, 10, 1));
        assert_eq!(doors.enter(0, 14), Some(7));
        assert!(!doors.leave(0, 14, 0));
        assert_eq!(doors.entered(), 2);
    }

    /// Every third thread in a room of three committed a transaction, because the first two had asked for more than they used.
    #[test]
    fn what_others_took_may_come_back_and_what_they_used_does_not() {
        let (doors, mut pool) = opened(2, 100);
        assert_eq!(doors.enter_slowly(0, 60, &mut pool), Entry::In(7));
        assert_eq!(doors.enter_slowly(1, 60, &mut pool), Entry::Later);
        assert_eq!(doors.enter(0, 1), None, "marked: a thread waits");
        assert!(doors.leave(0, 60, 30), "which has to be woken");
        assert_eq!(doors.enter_slowly(1, 60, &mut pool), Entry::In(7));
        assert!(doors.leave(1, 60, 60));
        assert_eq!(doors.enter_slowly(0, 11, &mut pool), Entry::Never);
        assert_eq!(doors.enter_slowly(1, 10, &mut pool), Entry::In(7));
        doors.mark(Mark::Closed);
        assert_eq!(doors.enter(1, 0), None);
        assert!(doors.leave(1, 10, 0));
        doors.close(|| panic!("nobody is inside"));
        doors.open(8, 1, &mut pool);
        assert_eq!(doors.enter_slowly(0, 2, &mut pool), Entry::Never, "the old parts are gone");
        assert_eq!(doors.enter_slowly(0, 1, &mut pool), Entry::In(8));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
    use crate::primitive::model::{Model, reached};
    use loom::sync::{Arc, Condvar, Mutex as Lock};
    use loom::thread;

    static CLASS: LockClass = LockClass::new(1, "test-doors", "test");

    struct State {
        pool: Pool,
        closed: bool,
        waiting: usize,
    }

    /// A store: an operation changes its block twice, which a transaction must not divide.
    struct Store {
        doors: Doors,
        state: Lock<State>,
        changed: Condvar,
        blocks: [AtomicUsize; 2],
        used: AtomicUsize,
        whole: usize,
    }

    impl Store {
        fn new(whole: usize) -> Arc<Self> {
            let (doors, mut pool) = (Doors::new(&CLASS, 2), Pool::default());
            doors.open(1, whole, &mut pool);
            Arc::new(Self {
                doors,
                state: Lock::new(State { pool, closed: false, waiting: 0 }),
                changed: Condvar::new(),
                blocks: [0, 0].map(AtomicUsize::new),
                used: AtomicUsize::new(0),
                whole,
            })
        }

        /// Begins as the store's `begin` does; `None` if there can never be room.
        fn begin(&self, at: usize, amount: usize) -> Option<u32> {
            if let Some(number) = self.doors.enter(at, amount) {
                reached("by the door alone");
                return Some(number);
            }
            let mut state = self.state.lock().unwrap();
            let entered = loop {
                if state.closed {
                    reached("closed");
                } else {
                    match self.doors.enter_slowly(at, amount, &mut state.pool) {
                        Entry::In(number) => break Some(number),
                        Entry::Never => break None,
                        Entry::Later => reached("later"),
                    }
                }
                state.waiting += 1;
                state = self.changed.wait(state).unwrap();
                state.waiting -= 1;
            };
            if state.waiting == 0 {
                self.doors.calm(&mut state.pool);
            }
            entered
        }

        fn end(&self, at: usize, amount: usize, used: usize) {
            if self.doors.leave(at, amount, used) {
                drop(self.state.lock().unwrap());
                self.changed.notify_all();
            }
        }

        fn operate(&self, at: usize, amount: usize, used: usize) -> bool {
            let Some(number) = self.begin(at, amount) else { return false };
            // ORDERING: Relaxed; a sum.
            let before = self.used.fetch_add(used, Relaxed);
            assert!(number == 2 || before + used <= self.whole, "more than there is");
            for _ in 0..2 {
                // ORDERING: Relaxed; the doors order it.
                self.blocks[at].fetch_add(1, Relaxed);
            }
            self.end(at, amount, used);
            true
        }

        fn commit(&self) {
            let mut state = self.state.lock().unwrap();
            state.closed = true;
            let mut slept = Some(state);
            self.doors.close(|| {
                reached("waits for one inside");
                slept = slept.take().map(|state| self.changed.wait(state).unwrap());
            });
            state = slept.unwrap();
            drop(state);
            for block in &self.blocks {
                // ORDERING: Relaxed; D1.
                assert!(block.load(Relaxed) % 2 == 0, "half an operation");
            }
            let mut state = self.state.lock().unwrap();
            self.doors.open(2, self.whole, &mut state.pool);
            state.closed = false;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// D1, D3. Fails if `close` marks nothing or does not wait, and if `leave` does not say that someone waits.
    #[test]
    fn model_close() {
        let places = &["closed", "waits for one inside", "by the door alone"];
        Model::new(50, places).check(|| {
            let store = Store::new(64);
            let other = store.clone();
            let committing = thread::spawn(move || other.commit());
            assert!(store.operate(0, 1, 1) && store.operate(0, 1, 1));
            committing.join().unwrap();
        });
    }

    /// D2, D3. Two threads want all of it, and use a half. Fails if a part is given twice, and if a thread that waits has not marked
    /// the doors.
    #[test]
    fn model_what_is_given_back() {
        Model::new(20, &["later"]).check(|| {
            let store = Store::new(2);
            let other = store.clone();
            let second = thread::spawn(move || other.operate(1, 1, 1) && other.operate(1, 1, 0));
            let first = store.operate(0, 2, 0);
            assert!(second.join().unwrap(), "the first one uses nothing");
            // ORDERING: Relaxed; the other has ended.
            assert!(first || store.used.load(Relaxed) == 1);
        });
    }
}
