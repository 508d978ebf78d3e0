//! A value that one place at a time may change, checked.
//!
//! # Boundary
//! Knows neither the gate nor the simulation, which has fields of this type.
//!
//! # Concurrency
//! None: not `Sync`. The owner that shares it between threads says why only one of them uses it (`state`, G1 and G2).
//!
//! # Why
//! The simulation was once borrowed whole, as `&'static mut`: a futex call held it while the clock's conversion
//! borrowed it again, which is undefined behaviour for any compiler. Now a statement takes one field while it
//! needs it, and a second take ends the program with the place. It is std's `RefCell` without shared
//! borrows: one flag, read once. The path of every access does not read it, because that
//! cost a sixth of a run. Weakness: a run, not the compiler, finds code that holds a field and calls code that takes
//! it, too.

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Exclusive<T> {
    taken: Cell<bool>,
    value: UnsafeCell<T>,
}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { taken: Cell::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, for as long as the guard lives.
    ///
    /// # Panics
    /// If other code has it.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn get(&self) -> Taken<'_, T> {
        if self.taken.replace(true) {
            twice();
        }
        Taken { owner: self }
    }

    /// The value, where looking at the flag would cost: the way of every access.
    ///
    /// # Safety
    /// No other code has it, and until the last use of the reference no code is called that takes it.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "its caller promises that there is no other reference")]
    pub(crate) unsafe fn unchecked(&self) -> &mut T {
        debug_assert!(!self.taken.get(), "it is taken");
        // SAFETY: by this function's own contract.
        unsafe { &mut *self.value.get() }
    }

    /// Whether it is taken: a signal's handler may have interrupted the code that has it.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken.get()
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn twice() -> ! {
    panic!("a part of the simulation is taken twice: a fault of the analyser");
}

/// The value of an [`Exclusive`], until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'a, T> {
    owner: &'a Exclusive<T>,
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `taken` was false when this guard was made and is true while it lives, so there is no other guard; the
        // reference lives no longer than the borrow of the guard.
        unsafe { &*self.owner.value.get() }
    }
}

impl<T> DerefMut for Taken<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `taken` is true while this guard lives, so it is the only one, and it is borrowed mutably.
        unsafe { &mut *self.owner.value.get() }
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.owner.taken.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_changed_in_place_and_can_be_taken_again() {
        let value = Exclusive::new(vec![1]);
        value.get().push(2);
        assert_eq!(value.get().len(), 2);
        assert!(!value.is_taken());
    }

    /// Two references to the simulation were alive at once, and nothing noticed.
    #[test]
    #[should_panic(expected = "taken twice")]
    fn it_cannot_be_taken_twice() {
        let value = Exclusive::new(1);
        let first = value.get();
        assert!(value.is_taken());
        assert_eq!(*value.get() + *first, 2);
    }
}
