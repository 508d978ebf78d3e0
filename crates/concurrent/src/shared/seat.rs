//! Seats, and the pointers to their objects.
//!
//! # Boundary
//! The half of [`super`] that is in static memory; not compiled for the model checker, which has none. The protocol is
//! in [`super::count`].
//!
//! # Concurrency
//! One raw lock around the free seats, taken when an object is made or freed. A seat is found by its number in chunks
//! of doubling size, which never move.
//!
//! P1. A *seat* (count, cells, pointer) is never freed and serves one object after another; a [`Weak`] names the seat
//!     and the generation of its object.
//! P2. The pointer of a seat is stored before its generation begins, and may be read by a thread with a handle.
//!
//! # Why
//! All users of a file system clone and drop a pointer to it with each open file. An `Arc` made 64 cores wait for one
//! line (25,628 cycles for each open). A plain store to the thread's own line costs as much as an uncontended `Arc`.
//! Weakness: an object has one owner, whose drop is slow, and a seat takes a cell in each thread's block.

// Below the locks with classes: taken when a file system is mounted or freed, held for a push.
#![allow(clippy::disallowed_types)]

use super::count::{Count, Threads};
use crate::cells;
use crate::epoch;
use crate::primitive::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::primitive::raw;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Seats of the first chunk; each further one is twice as large.
const FIRST: usize = 16;
/// Number of chunks: more seats than a 32-bit number distinguishes.
const CHUNKS: usize = 29;
/// Bits of a [`Weak`] for the generation.
const GENERATION_BITS: u32 = 24;

/// The count of an object. Read by all its users; written when an object is made or freed.
#[repr(align(128))]
struct Seat {
    count: Count,
    number: u64,
    /// The sum of the cells when the object was made.
    before: AtomicU64,
    /// The [`Body`] (P2).
    object: AtomicPtr<()>,
    cells: cells::Slot,
}

impl Threads for Seat {
    #[inline]
    fn pinned<R>(&self, work: impl FnOnce() -> R) -> R {
        let pin = epoch::pin();
        let result = work();
        drop(pin);
        result
    }

    #[inline]
    fn add(&self, amount: u64) {
        self.cells.add(amount);
    }

    fn total(&self) -> u64 {
        self.cells.total()
    }
}

static CHUNK_TABLE: [OnceLock<Box<[OnceLock<Seat>]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];
static SEATS: raw::Mutex<Seats> = raw::Mutex::new(Seats { next: 0, free: Vec::new() });

/// The number of seats made, and the free ones among them.
struct Seats {
    next: usize,
    free: Vec<&'static Seat>,
}

/// The chunk and the position of a seat.
fn place(number: usize) -> (usize, usize) {
    let chunk = (number / FIRST + 1).ilog2() as usize;
    (chunk, number - FIRST * ((1 << chunk) - 1))
}

/// The seat of this number, if it was made.
fn seat(number: usize) -> Option<&'static Seat> {
    let (chunk, at) = place(number);
    CHUNK_TABLE.get(chunk)?.get()?.get(at)?.get()
}

/// Takes a free seat, or makes one.
fn take() -> &'static Seat {
    let mut seats = SEATS.lock();
    if let Some(seat) = seats.free.pop() {
        return seat;
    }
    let number = seats.next;
    seats.next += 1;
    let (chunk, at) = place(number);
    let made =
        CHUNK_TABLE[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| OnceLock::new()).collect());
    made[at].get_or_init(|| Seat {
        count: Count::new(),
        number: number as u64,
        before: AtomicU64::new(0),
        object: AtomicPtr::new(std::ptr::null_mut()),
        cells: cells::Slot::new(),
    })
}

/// An object, and the seat that counts it.
struct Body<T> {
    seat: &'static Seat,
    generation: u64,
    value: T,
}

/// Keeps an object; while it lives, the object's handles are counted by thread.
#[must_use]
pub struct Owner<T: Send + Sync + 'static> {
    object: NonNull<Body<T>>,
}

/// A handle on an object, which it keeps.
pub struct Shared<T: Send + Sync + 'static> {
    object: NonNull<Body<T>>,
}

/// A pointer to an object that may be freed. It is not counted, and takes one word.
pub struct Weak<T: Send + Sync + 'static> {
    /// `number:40 | generation:24`.
    word: u64,
    object: PhantomData<fn() -> T>,
}

// SAFETY: a pointer to an object that any thread may use and drop.
unsafe impl<T: Send + Sync> Send for Owner<T> {}
// SAFETY: a pointer to an object that any thread may use and drop.
unsafe impl<T: Send + Sync> Sync for Owner<T> {}
// SAFETY: a pointer to an object that any thread may use and drop.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: a pointer to an object that any thread may use and drop.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T: Send + Sync> Owner<T> {
    /// `value`, and a first handle on it.
    pub fn new(value: T) -> (Self, Shared<T>) {
        Self::new_with(|_| value)
    }

    /// The object that `make` makes. `make` receives a [`Weak`] to it, by which no thread reaches the object before
    /// this returns.
    pub fn new_with(make: impl FnOnce(Weak<T>) -> T) -> (Self, Shared<T>) {
        let seat = take();
        // ORDERING: Relaxed, both; published by `begin` (O4 of `count`).
        seat.before.store(seat.total(), Ordering::Relaxed);
        let generation = seat.count.next_generation();
        let weak = Weak { word: seat.number << GENERATION_BITS | generation, object: PhantomData };
        let value = make(weak);
        let object = NonNull::from(Box::leak(Box::new(Body { seat, generation, value })));
        // ORDERING: Relaxed; published by `begin` (O4 of `count`).
        seat.object.store(object.as_ptr().cast(), Ordering::Relaxed);
        let begun = seat.count.begin();
        debug_assert_eq!(begun, generation);
        // While it is `Live`, by thread.
        seat.count.gain(seat);
        (Self { object }, Shared { object })
    }
}

impl<T: Send + Sync> Drop for Owner<T> {
    fn drop(&mut self) {
        // SAFETY: the count is biased until `fold`, so the object exists (S3 of `count`).
        let seat = unsafe { self.object.as_ref() }.seat;
        seat.count.kill();
        let end = Ending(self.object);
        if epoch::is_pinned() {
            // A pinned thread would wait for itself.
            epoch::pin().defer(0, move || end.fold());
        } else {
            epoch::synchronize();
            end.fold();
        }
    }
}

/// An object whose owner is dropped, until its handles are counted on the word.
struct Ending<T: Send + Sync + 'static>(NonNull<Body<T>>);

// SAFETY: a pointer to an object that any thread may use and drop.
unsafe impl<T: Send + Sync> Send for Ending<T> {}

impl<T: Send + Sync> Ending<T> {
    /// Called after the end of all pins that existed when the owner was dropped.
    fn fold(self) {
        // SAFETY: the count is biased until `fold`, so the object exists (S3 of `count`).
        let seat = unsafe { self.0.as_ref() }.seat;
        // ORDERING: Relaxed; stored before the generation began.
        if seat.count.fold(seat, seat.before.load(Ordering::Relaxed)) {
            // SAFETY: the count reported it, once (S4 of `count`).
            unsafe { free(self.0) }
        }
    }
}

/// Frees the object and its seat.
///
/// # Safety
/// The count has just reported to the caller that it must free the object (S4 of `count`).
unsafe fn free<T: Send + Sync>(object: NonNull<Body<T>>) {
    // SAFETY: leaked by `Owner::new_with`, and no handle is left (S4 of `count`).
    let body = unsafe { Box::from_raw(object.as_ptr()) };
    let seat = body.seat;
    drop(body);
    if seat.count.end() {
        SEATS.lock().free.push(seat);
    }
}

impl<T: Send + Sync> Shared<T> {
    /// A pointer to the object that does not keep it.
    pub fn downgrade(&self) -> Weak<T> {
        // SAFETY: this handle's count keeps the object.
        let body = unsafe { self.object.as_ref() };
        Weak { word: body.seat.number << GENERATION_BITS | body.generation, object: PhantomData }
    }

    /// Whether both lead to one object.
    pub fn same(&self, other: &Self) -> bool {
        self.object == other.object
    }
}

impl<T: Send + Sync> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: this handle's count keeps the object.
        let seat = unsafe { self.object.as_ref() }.seat;
        seat.count.gain(seat);
        Self { object: self.object }
    }
}

impl<T: Send + Sync> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this handle's count keeps the object until the next line.
        let seat = unsafe { self.object.as_ref() }.seat;
        if seat.count.lose(seat) {
            // SAFETY: the count has just reported it.
            unsafe { free(self.object) }
        }
    }
}

impl<T: Send + Sync> Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this handle's count keeps the object, which is only read while it is shared.
        &unsafe { self.object.as_ref() }.value
    }
}

impl<T: Send + Sync> Weak<T> {
    /// A handle, if the object still exists.
    pub fn upgrade(&self) -> Option<Shared<T>> {
        let generation = self.word & ((1 << GENERATION_BITS) - 1);
        let seat = seat(usize::try_from(self.word >> GENERATION_BITS).ok()?)?;
        if !seat.count.try_gain(generation, seat) {
            return None;
        }
        // ORDERING: Relaxed; `try_gain` acquired it (O4 of `count`), and the new handle keeps it (P2).
        let object = seat.object.load(Ordering::Relaxed).cast();
        // SAFETY: of this generation, whose type is `T`, and never null.
        Some(Shared { object: unsafe { NonNull::new_unchecked(object) } })
    }
}

impl<T: Send + Sync> Clone for Weak<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Send + Sync> Copy for Weak<T> {}

impl<T: Send + Sync> fmt::Debug for Owner<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl<T: Send + Sync> fmt::Debug for Weak<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Weak").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    struct Thing {
        number: usize,
        freed: Arc<AtomicUsize>,
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.freed.fetch_add(1, SeqCst);
        }
    }

    fn thing(number: usize) -> (Owner<Thing>, Shared<Thing>, Arc<AtomicUsize>) {
        let freed = Arc::new(AtomicUsize::new(0));
        let (owner, shared) = Owner::new(Thing { number, freed: freed.clone() });
        (owner, shared, freed)
    }

    #[test]
    fn the_last_of_owner_and_handles_frees() {
        for owner_last in [false, true] {
            let (owner, shared, freed) = thing(1);
            let way = shared.downgrade();
            if owner_last {
                drop(shared);
                assert_eq!(way.upgrade().map(|thing| thing.number), Some(1), "the owner keeps it");
                drop(owner);
            } else {
                drop(owner);
                let other = way.upgrade().expect("a handle keeps it");
                drop(shared);
                assert_eq!((other.number, freed.load(SeqCst)), (1, 0));
                drop(other);
            }
            assert_eq!(freed.load(SeqCst), 1, "owner last: {owner_last}");
            assert!(way.upgrade().is_none());
        }
    }

    #[test]
    fn a_seat_that_serves_another_object_is_not_mistaken() {
        let mut ways = Vec::new();
        for number in 0..100 {
            let (owner, shared, freed) = thing(number);
            ways.push(shared.downgrade());
            let found: Vec<_> =
                ways.iter().filter_map(Weak::upgrade).map(|one| one.number).collect();
            assert_eq!(found, [number]);
            drop((owner, shared));
            assert_eq!(freed.load(SeqCst), 1);
        }
    }

    #[test]
    fn an_owner_dropped_by_a_pinned_thread_goes_with_the_garbage() {
        let (owner, shared, freed) = thing(1);
        drop(shared);
        let pin = epoch::pin();
        drop(owner);
        assert_eq!(freed.load(SeqCst), 0);
        drop(pin);
        // Other tests may be pinned.
        while freed.load(SeqCst) == 0 {
            epoch::collect();
            std::thread::yield_now();
        }
        assert_eq!(freed.load(SeqCst), 1);
    }

    /// Handles move among threads, so that a single cell may be below 0; all threads race with the owner.
    #[test]
    fn many_threads_free_it_once() {
        for round in 0..50 {
            let (owner, shared, freed) = thing(round);
            let way = shared.downgrade();
            std::thread::scope(|scope| {
                let (give, take) = std::sync::mpsc::channel::<Shared<Thing>>();
                scope.spawn(move || take.into_iter().for_each(|one| assert_eq!(one.number, round)));
                for _ in 0..3 {
                    let (mine, give) = (shared.clone(), give.clone());
                    scope.spawn(move || {
                        for _ in 0..200 {
                            let _ = give.send(mine.clone());
                            assert!(way.upgrade().is_none_or(|one| one.number == round));
                        }
                    });
                }
                drop((owner, shared, give));
            });
            assert_eq!(freed.load(SeqCst), 1, "round {round}");
            assert!(way.upgrade().is_none());
        }
    }

    #[test]
    fn seats_lie_where_their_numbers_say() {
        let places: Vec<_> = [0, 15, 16, 47, 48].map(place).into();
        assert_eq!(places, [(0, 0), (0, 15), (1, 0), (1, 31), (2, 0)]);
        assert!(place(u32::MAX as usize).0 < CHUNKS);
    }
}
