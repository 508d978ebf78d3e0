//! loom's atomics, with every race between a load and a later write shown to the model checker.
//!
//! # Boundary
//! The methods that this crate uses, with `std`'s names and meaning. Compiled only under `--cfg loom`. [`super::model`]
//! runs the models and passes learned places from one exploration to the next.
//!
//! # Why
//! loom chooses the schedules to explore from the last access of each object. A write that is not ordered after
//! it gets a schedule in which it comes first. loom remembers *one* access, so a load hides the loads before it. Thread
//! A: `x.load`. Thread B: `x.load; x.compare_exchange`. The last access before B's write is B's own load, and loom
//! never tries B before A.
//! ```text
//!   loom alone                               here
//!   A: load x                                A: touch mark(x, A); load x
//!   B: load x            (hides A's load)    B: load x; touch mark(x, A); compare_exchange x
//!   B: compare_exchange x                       └─ loom goes back to before A's touch
//! ```
//!
//! M1. A word records which threads loaded it since its last write, each by its last load.
//! M2. A write touches the mark of every other thread whose load is hidden, before it writes.
//! M3. A load touches its thread's mark if loads at its place in the source were hidden before. A hidden load at a new
//!     place is recorded, and the model begins again ([`super::model`]).
//!
//! Checked by `model_a_load_hidden_by_the_load_of_a_guess` and `model_a_load_hidden_by_a_load_that_comes_before`.
//! Weakness: a model whose places are learned late is explored twice.

use super::model;
use loom::sync::Condvar;
use loom::sync::atomic as real;
pub use loom::sync::atomic::{Ordering, fence};
use std::panic::Location;
use std::sync::Arc;

loom::thread_local! {
    static ME: usize = model::new_thread();
}

/// The running thread of the model; none while its locals are being destroyed.
fn me() -> Option<usize> {
    ME.try_with(|me| *me).ok()
}

/// One word's loads and marks.
#[derive(Debug, Default)]
// The facade itself: loom runs the threads of a model in turns, so no thread ever waits for this lock.
#[allow(clippy::disallowed_types)]
struct Loads(std::sync::Mutex<Vec<Loaded>>);

/// The last load of one thread.
#[derive(Debug)]
struct Loaded {
    thread: usize,
    /// The place of the load, if it came after the last write of the word.
    place: Option<&'static Location<'static>>,
    mark: Option<Arc<Condvar>>,
}

impl Loads {
    fn list<R>(&self, look: impl FnOnce(&mut Vec<Loaded>) -> R) -> R {
        look(&mut self.0.lock().expect("no step of the checker lies inside"))
    }

    /// Runs `load` and records it (M1), with a mark if its place requires one (M3).
    #[track_caller]
    fn noting<R>(&self, load: impl FnOnce() -> R) -> R {
        let place = Location::caller();
        let Some(thread) = me() else { return load() };
        if model::is_marked(place) {
            let mark = self.list(|list| {
                let loaded = match list.iter_mut().position(|loaded| loaded.thread == thread) {
                    Some(found) => &mut list[found],
                    None => {
                        list.push(Loaded { thread, place: None, mark: None });
                        list.last_mut().expect("pushed")
                    }
                };
                loaded.mark.get_or_insert_with(|| Arc::new(Condvar::new())).clone()
            });
            mark.notify_one();
        }
        let value = load();
        self.list(|list| {
            let found = list.iter().position(|loaded| loaded.thread == thread);
            let mark = found.and_then(|found| list.remove(found).mark);
            list.push(Loaded { thread, place: Some(place), mark });
        });
        value
    }

    /// Runs `write` after touching the marks of the loads that are hidden from it (M2). A touch wakes a condition
    /// variable without sleepers. The order of two such steps matters to loom, but the step orders and stores nothing.
    /// Both threads' loads stay loads: they may read old values.
    fn showing<R>(&self, write: impl FnOnce() -> R) -> R {
        let thread = me();
        let hidden: Vec<_> = self.list(|list| {
            let loads = list.iter().filter(|loaded| loaded.place.is_some());
            // The last load is not hidden: it is the access that loom remembers.
            let before = loads.clone().count().saturating_sub(1);
            let others = loads.take(before).filter(|loaded| Some(loaded.thread) != thread);
            others.map(|loaded| (loaded.place, loaded.mark.clone())).collect()
        });
        for (place, mark) in hidden {
            match mark {
                Some(mark) if place.is_some_and(model::is_marked) => mark.notify_one(),
                _ => model::hidden(place.expect("filtered")),
            }
        }
        let result = write();
        self.list(|list| list.iter_mut().for_each(|loaded| loaded.place = None));
        result
    }
}

/// The methods of every atomic, for any type of value.
macro_rules! common {
    ($name:ident, $value:ty $(, $parameter:ident)?) => {
        impl$(<$parameter>)? $name$(<$parameter>)? {
            /// Makes an atomic with this value.
            #[track_caller]
            pub fn new(value: $value) -> Self {
                Self { real: real::$name::new(value), loads: Loads::default() }
            }
            /// Loads the value.
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                self.loads.noting(|| self.real.load(order))
            }
            /// Stores `value`.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.loads.showing(|| self.real.store(value, order));
            }
            /// Swaps the value.
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                self.loads.showing(|| self.real.swap(value, order))
            }
            /// Exchanges the value if it is `current`.
            ///
            /// # Errors
            /// The value found, if it is not `current`.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.loads.showing(|| self.real.compare_exchange(current, new, success, failure))
            }
            /// Exchanges the value if it is `current`; never fails spuriously.
            ///
            /// # Errors
            /// The value found, if it is not `current`.
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            /// Changes the value by `change`: a load, and a read-modify-write for each attempt.
            ///
            /// # Errors
            /// The value found, if `change` returns none for it.
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(failure);
                while let Some(after) = change(before) {
                    match self.compare_exchange(before, after, success, failure) {
                        Ok(before) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }
        }

        impl$(<$parameter>)? From<$value> for $name$(<$parameter>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

macro_rules! modifying {
    ($name:ident, $value:ty, $($method:ident),*) => {
        impl $name {
            $(
                /// Calls loom's method.
                #[track_caller]
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    self.loads.showing(|| self.real.$method(value, order))
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident, $value:ty;)*) => {
        $(
            #[doc = concat!("`std::sync::atomic::", stringify!($name), "`, modelled.")]
            #[derive(Debug, Default)]
            pub struct $name {
                real: real::$name,
                loads: Loads,
            }
            common!($name, $value);
            modifying!(
                $name, $value, fetch_add, fetch_sub, fetch_and, fetch_nand, fetch_or, fetch_xor,
                fetch_max, fetch_min
            );
        )*
    };
}

integers! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
    AtomicUsize, usize;
    AtomicI64, i64;
}

/// `std::sync::atomic::AtomicBool`, modelled.
#[derive(Debug, Default)]
pub struct AtomicBool {
    real: real::AtomicBool,
    loads: Loads,
}
common!(AtomicBool, bool);
modifying!(AtomicBool, bool, fetch_and, fetch_nand, fetch_or, fetch_xor);

/// `std::sync::atomic::AtomicPtr`, modelled.
#[derive(Debug)]
pub struct AtomicPtr<T> {
    real: real::AtomicPtr<T>,
    loads: Loads,
}
common!(AtomicPtr, *mut T, T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

#[cfg(test)]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::thread;

    /// A case that loom alone misses: with its own atomics this program has one execution, and the load never sees the
    /// other thread's value. Fails if `Loads::showing` touches no mark.
    #[test]
    fn model_a_load_hidden_by_the_load_of_a_guess() {
        let both = &["the old value", "the new value", "between the guess and the exchange"];
        Model::new(4, both).check(|| {
            let word = Arc::new(AtomicU64::new(0));
            let guessed = Arc::new(std::cell::Cell::new(false));
            let (other, has_guessed) = (word.clone(), OneThread(guessed.clone()));
            let writer = thread::spawn(move || {
                let has_guessed = has_guessed;
                let guess = other.load(Ordering::Relaxed);
                has_guessed.0.set(true);
                other.compare_exchange(guess, 1, Ordering::Relaxed, Ordering::Relaxed).unwrap();
            });
            match word.load(Ordering::Relaxed) {
                1 => reached("the new value"),
                _ if guessed.get() => reached("between the guess and the exchange"),
                _ => reached("the old value"),
            }
            writer.join().unwrap();
        });
    }

    /// The hiding load is one of a third thread, which another word orders before the writer.
    #[test]
    fn model_a_load_hidden_by_a_load_that_comes_before() {
        Model::new(4, &["the old value", "the new value"]).check(|| {
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let (hider, writer) = (words.clone(), words.clone());
            let hider = thread::spawn(move || {
                hider[0].load(Ordering::Relaxed);
                hider[1].store(1, Ordering::Release);
            });
            let writer = thread::spawn(move || {
                if writer[1].load(Ordering::Acquire) == 1 {
                    writer[0].store(1, Ordering::Relaxed);
                }
            });
            let seen = words[0].load(Ordering::Relaxed);
            reached(if seen == 1 { "the new value" } else { "the old value" });
            hider.join().unwrap();
            writer.join().unwrap();
        });
    }

    /// Shared by the threads of a model, which take turns on one thread of the system.
    struct OneThread(Arc<std::cell::Cell<bool>>);
    // SAFETY: the threads of a model take turns on one thread of the system.
    unsafe impl Send for OneThread {}
}
