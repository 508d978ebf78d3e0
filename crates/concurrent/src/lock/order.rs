//! Run-time check of the lock order.
//!
//! # Concurrency
//! The held classes of a thread are in a thread-local list; checking touches nothing shared. The
//! edges seen (`held -> taken`) are gathered in one table, which only debug builds write, once per
//! new edge and thread.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// One kind of lock: all locks that protect the same sort of thing share a class.
#[derive(Debug)]
pub struct LockClass {
    rank: u16,
    name: &'static str,
    protects: &'static str,
}

impl LockClass {
    /// Declares a class. Locks are taken in rising `rank`; two locks of one rank are never held
    /// together. `protects` says in a line what the lock guards.
    pub const fn new(rank: u16, name: &'static str, protects: &'static str) -> Self {
        Self { rank, name, protects }
    }

    /// Position in the order, outermost first.
    pub const fn rank(&self) -> u16 {
        self.rank
    }

    /// The class's name in reports.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What locks of this class protect.
    pub const fn protects(&self) -> &'static str {
        self.protects
    }
}

thread_local! {
    static HELD: RefCell<Vec<&'static LockClass>> = const { RefCell::new(Vec::new()) };
    static SEEN: RefCell<BTreeSet<(u16, u16)>> = const { RefCell::new(BTreeSet::new()) };
}

// The checker cannot check itself: a raw lock, taken innermost and never held on return.
#[allow(clippy::disallowed_types)]
static EDGES: parking_lot::Mutex<BTreeSet<(&'static str, &'static str)>> =
    parking_lot::Mutex::new(BTreeSet::new());

/// Stands in the checker's list for as long as it lives: from before a lock is taken until after it is
/// released. The last field of a guard.
#[derive(Debug)]
pub(crate) struct Entered(&'static LockClass);

impl Entered {
    /// Notes that this thread is about to take a lock of `class`.
    ///
    /// # Panics
    /// In debug builds, when a class of the same or a later rank is already held.
    #[inline]
    pub(crate) fn new(class: &'static LockClass) -> Self {
        entering(class);
        Self(class)
    }

    /// The class entered.
    pub(crate) fn class(&self) -> &'static LockClass {
        self.0
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        leaving(self.0);
    }
}

/// Notes that this thread is about to take a lock of `class`.
///
/// # Panics
/// In debug builds, when a class of the same or a later rank is already held.
fn entering(class: &'static LockClass) {
    if !cfg!(debug_assertions) {
        return;
    }
    // The list is gone while a thread's locals are torn down; nothing is checked there.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(outer) = held.iter().max_by_key(|outer| outer.rank) {
            assert!(
                outer.rank < class.rank,
                "lock order: taking `{}` (rank {}) while holding `{}` (rank {})",
                class.name,
                class.rank,
                outer.name,
                outer.rank
            );
            note_edge(outer, class);
        }
        held.push(class);
    });
}

fn note_edge(outer: &LockClass, inner: &LockClass) {
    let seen = |seen: &RefCell<BTreeSet<_>>| !seen.borrow_mut().insert((outer.rank, inner.rank));
    if !SEEN.try_with(seen).unwrap_or(false) {
        EDGES.lock().insert((outer.name, inner.name));
    }
}

/// Notes that this thread released a lock of `class`.
fn leaving(class: &'static LockClass) {
    if !cfg!(debug_assertions) {
        return;
    }
    // As in `entering`.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|one| std::ptr::eq(*one, class)) {
            held.remove(at);
        }
    });
}

/// Asserts, in debug builds, that this thread holds no lock: called before anything that may block.
///
/// # Panics
/// In debug builds, when a lock is held; `before` names what was about to start.
pub fn assert_none_held(before: &str) {
    if cfg!(debug_assertions) {
        HELD.with_borrow(|held| {
            assert!(held.is_empty(), "{before} with `{}` held", held[0].name);
        });
    }
}

/// Every `outer -> inner` pair that any thread has taken so far (debug builds; empty otherwise).
pub fn edges() -> Vec<(&'static str, &'static str)> {
    EDGES.lock().iter().copied().collect()
}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::super::Mutex;
    use super::*;

    static OUTER: LockClass = LockClass::new(1, "outer", "test");
    static INNER: LockClass = LockClass::new(2, "inner", "test");

    #[test]
    fn the_declared_order_is_allowed_and_recorded() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let _outer = outer.lock();
        let _inner = inner.lock();
        assert!(edges().contains(&("outer", "inner")));
    }

    #[test]
    #[should_panic(expected = "taking `outer` (rank 1) while holding `inner` (rank 2)")]
    fn the_opposite_order_panics() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[test]
    #[should_panic(expected = "taking `inner`")]
    fn two_locks_of_one_class_panic() {
        let (one, other) = (Mutex::new(&INNER, ()), Mutex::new(&INNER, ()));
        let _one = one.lock();
        let _other = other.lock();
    }

    #[test]
    #[should_panic(expected = "backend call with `inner` held")]
    fn blocking_with_a_lock_held_panics() {
        let lock = Mutex::new(&INNER, ());
        let _held = lock.lock();
        assert_none_held("backend call");
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let (outer, inner) = (Mutex::new(&OUTER, ()), Mutex::new(&INNER, ()));
        let first = outer.lock();
        let second = inner.lock();
        drop(first);
        drop(second);
        assert_none_held("the next test");
    }
}
