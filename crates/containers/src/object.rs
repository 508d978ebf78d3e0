//! Counted pointers to objects with a hold word.
//!
//! # Boundary
//! [`Hold`] and [`Ref`] are to [`uvfs_concurrent::hold`] as `Arc` is to its count: they call it, and free the object when it
//! reports that. The object defines its own action when it goes out of use ([`Object::inactive`]).
//!
//! # Why
//! `Arc` puts its counts in front of the value, on the line that lookups read. Here the object decides the place of its
//! word, so counts and the fields that readers need are on different lines. A hold is one atomic step, not one for the
//! count and one for the state. Weakness: an object has one word, so threads that use it at once contend for it.
//!
//! # Concurrency
//! B1. The memory comes from [`crate::pool`] and is freed exactly once, by the thread to which the word reports that
//!     (H4 of [`uvfs_concurrent::hold`]).
//! B2. A `Hold` or a `Ref` owns one count of its kind; while it exists the object is not freed.

use crate::pool;
use std::alloc::Layout;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use uvfs_concurrent::hold::{HoldWord, Released};

/// An object that is kept by a [`HoldWord`].
pub trait Object: Send + Sync + Sized + 'static {
    /// The word. Always the same one.
    fn word(&self) -> &HoldWord;

    /// The last hold was released, and the object is inactive. Other threads may revive or retire it meanwhile.
    fn inactive(last: Ref<Self>);
}

/// A hold: the object is in use. Cloning adds one, dropping releases it.
pub struct Hold<T: Object>(NonNull<T>);

/// A reference: leads to the object and keeps its memory, not its use.
pub struct Ref<T: Object>(NonNull<T>);

// SAFETY: both are shared pointers to a `T` that is Send and Sync (bounds of `Object`), and the
// word orders the free after every use (O3 of `hold`).
unsafe impl<T: Object> Send for Hold<T> {}
// SAFETY: a shared pointer to a `T` that is Send and Sync; the free comes after every use.
unsafe impl<T: Object> Sync for Hold<T> {}
// SAFETY: a shared pointer to a `T` that is Send and Sync; the free comes after every use.
unsafe impl<T: Object> Send for Ref<T> {}
// SAFETY: a shared pointer to a `T` that is Send and Sync; the free comes after every use.
unsafe impl<T: Object> Sync for Ref<T> {}

impl<T: Object> Hold<T> {
    /// A new object, held by the caller. Its word must be a new one.
    pub fn new(object: T) -> Self {
        debug_assert_eq!(object.word().racy_holds(), 1, "a new object has one hold");
        let place = pool::shared().allocate(Layout::new::<T>()).cast::<T>();
        // SAFETY: fresh memory of the right layout (B1).
        unsafe { place.write(object) };
        Self(place)
    }

    /// A reference to the held object; `None` if there are too many (8 million).
    pub fn try_ref(&self) -> Option<Ref<T>> {
        self.word().try_reference().then(|| Ref(self.0))
    }

    /// Releases the hold. If it was the last, the object is now inactive: the caller does the work of
    /// [`Object::inactive`], with the returned reference. For chains of objects that hold one another, which must not
    /// be torn down by recursion.
    pub fn release(self) -> Option<Ref<T>> {
        let hold = std::mem::ManuallyDrop::new(self);
        match hold.word().release() {
            Released::StillHeld => None,
            // The release took a reference for this thread (H5).
            Released::Inactive => Some(Ref(hold.0)),
            Released::Unreachable => {
                // SAFETY: the word reported it, once (H4).
                unsafe { free(hold.0) };
                None
            }
        }
    }

    /// Whether both are holds on the same object.
    pub fn same(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Object> Ref<T> {
    /// A hold, unless the object is dead. Revives an inactive one.
    pub fn try_hold(&self) -> Option<Hold<T>> {
        // Not `then_some`: that would make a hold in any case, and its drop would release it.
        self.word().try_hold().then(|| Hold(self.0))
    }

    /// Whether both lead to the same object.
    pub fn same(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// A further reference; `None` if there are too many.
    pub fn try_clone(&self) -> Option<Self> {
        self.word().try_reference().then(|| Self(self.0))
    }

    /// Whether this leads to the object that `hold` holds.
    pub fn leads_to(&self, hold: &Hold<T>) -> bool {
        self.0 == hold.0
    }
}

/// Frees the object.
///
/// # Safety
/// The object's word has just reported to the caller that it must free the object (H4). Called once.
unsafe fn free<T>(object: NonNull<T>) {
    // SAFETY: written by `Hold::new`, and no hold or reference is left (H4).
    unsafe { object.drop_in_place() };
    // SAFETY: from this pool with this layout (B1).
    unsafe { pool::shared().free(object.cast(), Layout::new::<T>()) };
}

impl<T: Object> Deref for Hold<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this count keeps the object (B2).
        unsafe { self.0.as_ref() }
    }
}

impl<T: Object> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this count keeps the object (B2).
        unsafe { self.0.as_ref() }
    }
}

impl<T: Object> Clone for Hold<T> {
    fn clone(&self) -> Self {
        self.word().hold();
        Self(self.0)
    }
}

impl<T: Object> Drop for Hold<T> {
    fn drop(&mut self) {
        match self.word().release() {
            Released::StillHeld => {}
            // The release took a reference for this thread (H5).
            Released::Inactive => T::inactive(Ref(self.0)),
            Released::Unreachable => {
                // SAFETY: the word reported it, once (H4).
                unsafe { free(self.0) }
            }
        }
    }
}

impl<T: Object> Drop for Ref<T> {
    fn drop(&mut self) {
        if self.word().drop_reference() {
            // SAFETY: the word reported it, once (H4).
            unsafe { free(self.0) }
        }
    }
}

impl<T: Object + fmt::Debug> fmt::Debug for Hold<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

impl<T: Object + fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[derive(Default)]
    struct Seen {
        inactive: AtomicUsize,
        dropped: AtomicUsize,
    }

    struct Thing {
        word: HoldWord,
        seen: Arc<Seen>,
    }

    impl Object for Thing {
        fn word(&self) -> &HoldWord {
            &self.word
        }
        fn inactive(last: Ref<Self>) {
            last.seen.inactive.fetch_add(1, SeqCst);
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            self.seen.dropped.fetch_add(1, SeqCst);
        }
    }

    fn thing() -> (Hold<Thing>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Hold::new(Thing { word: HoldWord::new(), seen: seen.clone() }), seen)
    }

    #[test]
    fn a_reference_keeps_the_memory_and_can_revive() {
        let (hold, seen) = thing();
        let reference = hold.try_ref().unwrap();
        drop(hold.clone());
        drop(hold);
        assert_eq!(seen.inactive.load(SeqCst), 1);
        let revived = reference.try_hold().unwrap();
        assert!(reference.leads_to(&revived));
        drop(revived);
        assert!(reference.word().retire() && reference.try_hold().is_none());
        assert_eq!(seen.dropped.load(SeqCst), 0);
        drop(reference);
        assert_eq!(seen.dropped.load(SeqCst), 1);
    }

    #[test]
    fn without_a_reference_the_last_hold_frees_it_in_silence() {
        let (hold, seen) = thing();
        drop(hold);
        assert_eq!((seen.inactive.load(SeqCst), seen.dropped.load(SeqCst)), (0, 1));
    }

    #[test]
    fn many_threads_free_it_once() {
        for _ in 0..200 {
            let (hold, seen) = thing();
            let reference = hold.try_ref().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(hold));
                let reference = &reference;
                for _ in 0..2 {
                    scope.spawn(move || (0..50).for_each(|_| drop(reference.try_hold())));
                }
            });
            assert_eq!(seen.dropped.load(SeqCst), 0);
            drop(reference);
            assert_eq!(seen.dropped.load(SeqCst), 1);
        }
    }
}
