//! Retired objects before they are freed: one deferred call, a bag of them, and the stack of full
//! bags.
//!
//! # Boundary
//! Containers only. [`super::domain`] decides when a bag is freed.
//!
//! # Concurrency
//! A bag and its deferred calls belong to one thread at a time. [`Incoming`] is a stack to which
//! any thread pushes and which one thread empties whole. No bag is ever taken from its middle, so a
//! reused address is harmless.
//!
//! I1. A bag in the stack is reached only through the stack's head.
//! O1. `push` (Release) → `take` (Acquire): a thread that takes a bag sees its content.
//!
//! Checked by `model_reader_and_writer` in `super::models`.
//! Weakness: a bag is two allocations per some hundred retired objects.

use crate::primitive::atomic::{AtomicPtr, Ordering};
#[cfg(loom)]
use loom::cell::Cell;
#[cfg(not(loom))]
use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
#[cfg(not(loom))]
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// Retired objects per bag: the collector pays for its barrier once per full bag.
pub(super) const BAG_OBJECTS: usize = if cfg!(loom) { 2 } else { 128 };
/// A bag with this many bytes is full, however few objects it has.
pub(super) const BAG_BYTES: usize = 256 * 1024;

/// Room for a closure's captures without an allocation.
type Inline = MaybeUninit<[usize; 3]>;

/// A closure to be called once, later, on any thread. Dropping it does not call it.
pub(super) struct Deferred {
    // SAFETY: to be called once, on the `captured` beside it.
    call: unsafe fn(*mut Inline),
    captured: Inline,
}

// SAFETY: `new` accepts only closures that are `Send`, and the fields hold only such a closure.
unsafe impl Send for Deferred {}

impl Deferred {
    /// Packs `closure`; allocates only if it captures more than three words.
    pub(super) fn new<F: FnOnce() + Send + 'static>(closure: F) -> Self {
        let mut captured = Inline::uninit();
        if size_of::<F>() <= size_of::<Inline>() && align_of::<F>() <= align_of::<Inline>() {
            // SAFETY: the room is large enough and aligned, as just tested.
            unsafe { captured.as_mut_ptr().cast::<F>().write(closure) };
            Self { call: call_inline::<F>, captured }
        } else {
            let boxed = Box::into_raw(Box::new(closure));
            // SAFETY: the room holds three words, this is one.
            unsafe { captured.as_mut_ptr().cast::<*mut F>().write(boxed) };
            Self { call: call_boxed::<F>, captured }
        }
    }

    /// Calls the closure.
    #[cfg(loom)]
    pub(super) fn run(mut self) -> bool {
        // The model checker reports a violation by a panic, which must reach it.
        // SAFETY: `self` is consumed, so this is the only call, on what `new` wrote.
        unsafe { (self.call)(&mut self.captured) };
        true
    }

    /// Calls the closure. False if it panicked. The panic stops here: usually another thread frees
    /// than the one that retired.
    #[cfg(not(loom))]
    pub(super) fn run(mut self) -> bool {
        // SAFETY: `self` is consumed, so this is the only call, on what `new` wrote.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { (self.call)(&mut self.captured) }));
        match outcome {
            Ok(()) => true,
            Err(payload) => {
                // The payload's own drop may panic too; then the second payload is leaked.
                if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                    std::mem::forget(second);
                }
                false
            }
        }
    }
}

/// # Safety
/// `captured` holds an `F`, which is not used again.
unsafe fn call_inline<F: FnOnce()>(captured: *mut Inline) {
    // SAFETY: as this function requires.
    let closure = unsafe { captured.cast::<F>().read() };
    closure();
}

/// # Safety
/// `captured` holds a pointer from `Box::into_raw`, which is not used again.
unsafe fn call_boxed<F: FnOnce()>(captured: *mut Inline) {
    // SAFETY: as this function requires.
    let closure = unsafe { Box::from_raw(captured.cast::<*mut F>().read()) };
    closure();
}

/// Deferred calls that are freed together.
pub(super) struct Bag {
    /// The bag below in [`Incoming`]; null elsewhere.
    below: Cell<*mut Bag>,
    bytes: usize,
    objects: Vec<Deferred>,
}

// SAFETY: only the bag's owner uses `below` (I1); the rest is `Send`.
unsafe impl Send for Bag {}

impl Bag {
    pub(super) fn new() -> Box<Self> {
        let objects = Vec::with_capacity(BAG_OBJECTS / 4);
        Box::new(Self { below: Cell::new(ptr::null_mut()), bytes: 0, objects })
    }

    pub(super) fn add(&mut self, bytes: usize, object: Deferred) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.objects.push(object);
    }

    pub(super) fn is_full(&self) -> bool {
        self.objects.len() >= BAG_OBJECTS || self.bytes >= BAG_BYTES
    }

    /// Calls all its deferred calls.
    pub(super) fn free(self) -> Freed {
        let (bytes, objects) = (self.bytes, self.objects.len());
        let panics = self.objects.into_iter().map(Deferred::run).filter(|ran| !ran).count();
        Freed { bytes, objects, panics }
    }
}

/// The content of one freed bag, counted.
pub(super) struct Freed {
    pub(super) bytes: usize,
    pub(super) objects: usize,
    pub(super) panics: usize,
}

/// Bags on their way from the threads that filled them to the collector.
pub(super) struct Incoming {
    head: AtomicPtr<Bag>,
}

impl Incoming {
    pub(super) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    pub(super) fn push(&self, bag: Box<Bag>) {
        let bag = Box::into_raw(bag);
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the bag is from a box and is not in the stack yet, so only this thread has it
            // (I1).
            unsafe { (*bag).below.set(head) };
            // ORDERING: Release, partner `take` (O1).
            match self.head.compare_exchange_weak(head, bag, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Moves every bag to the end of `into`.
    pub(super) fn take(&self, into: &mut VecDeque<Box<Bag>>) {
        // ORDERING: Relaxed; an empty stack's line is not written.
        if self.head.load(Ordering::Relaxed).is_null() {
            return;
        }
        // ORDERING: Acquire, partner `push` (O1).
        let mut next = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: `push` took it from a box, and after the swap this thread owns the whole
            // chain (I1).
            let bag = unsafe { Box::from_raw(next) };
            next = bag.below.replace(ptr::null_mut());
            into.push_back(bag);
        }
    }

    /// Whether there was no bag at some instant during the call.
    pub(super) fn racy_is_empty(&self) -> bool {
        // ORDERING: Relaxed; a hint: the next round finds a missed bag.
        self.head.load(Ordering::Relaxed).is_null()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Runs a closure with `N` captured words after moving it about, and checks the words that it
    /// saw.
    fn check<const N: usize>() {
        let words: [usize; N] = std::array::from_fn(|index| index + 7);
        let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = seen.clone();
        let moved = Box::new(Deferred::new(move || {
            count.fetch_add(words.iter().sum(), Ordering::SeqCst);
        }));
        assert!(moved.run());
        assert_eq!(seen.load(Ordering::SeqCst), (7..7 + N).sum());
        assert_eq!(Arc::strong_count(&seen), 1, "the captures are dropped, once");
    }

    #[test]
    fn closures_of_all_sizes_run_once() {
        check::<0>();
        check::<1>();
        check::<2>();
        check::<3>();
        check::<40>();
    }

    #[test]
    fn an_overaligned_closure_is_boxed() {
        #[repr(align(64))]
        struct Wide(u8);
        let wide = Wide(3);
        let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = seen.clone();
        let deferred = Deferred::new(move || {
            let wide = &wide;
            assert!((&raw const *wide).addr().is_multiple_of(64));
            count.fetch_add(wide.0.into(), Ordering::SeqCst);
        });
        assert!(deferred.run());
        assert_eq!(seen.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_bag_is_full_by_objects_or_by_bytes() {
        let mut bag = Bag::new();
        for _ in 0..BAG_OBJECTS {
            assert!(!bag.is_full());
            bag.add(1, Deferred::new(|| ()));
        }
        assert!(bag.is_full());
        let mut bag = Bag::new();
        bag.add(BAG_BYTES, Deferred::new(|| ()));
        assert!(bag.is_full());
    }
}
