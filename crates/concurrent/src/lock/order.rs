//! Run-time check of the lock order.
//!
//! # Concurrency
//! The held classes of a thread are in a thread-local list; checking touches no shared memory. The edges seen (`held ->
//! taken`) are gathered in one table, which only debug builds write, once per new edge and thread. If `UVFS_LOCK_EDGES`
//! names a directory, a debug build also adds each new edge to a file there, from which `cargo xtask locks` prints the
//! document.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::panic::Location;

/// The variable that names the directory for edges that were seen.
const EDGES_VARIABLE: &str = "UVFS_LOCK_EDGES";

/// One kind of lock: all locks that protect the same kind of data share a class.
#[derive(Debug)]
pub struct LockClass {
    rank: u16,
    name: &'static str,
    protects: &'static str,
}

impl LockClass {
    /// Declares a class. Locks are taken in rising `rank`; two locks of one rank are never held together. `protects`
    /// names the protected data in one line.
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

    /// The data that locks of this class protect.
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
static EDGES: parking_lot::Mutex<BTreeMap<(&'static str, &'static str), &'static str>> =
    parking_lot::Mutex::new(BTreeMap::new());

/// One lock taken while another one is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The class that is held.
    pub outer: &'static str,
    /// The class that is taken.
    pub inner: &'static str,
    /// The file that takes it, where the edge was first seen.
    pub file: &'static str,
}

/// An entry in the checker's list, from before a lock is taken until after it is released. The last field of a guard.
#[derive(Debug)]
pub struct Entered(&'static LockClass);

impl Entered {
    /// Notes that this thread is about to take a lock of `class`.
    ///
    /// # Panics
    /// In debug builds, when a class of the same or a later rank is already held.
    #[inline]
    #[track_caller]
    pub fn new(class: &'static LockClass) -> Self {
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
#[track_caller]
fn entering(class: &'static LockClass) {
    if !cfg!(debug_assertions) {
        return;
    }
    let place = Location::caller();
    // The list is destroyed while a thread's locals are torn down; no check is made then.
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
            note_edge(outer, class, place);
        }
        held.push(class);
    });
}

fn note_edge(outer: &LockClass, inner: &LockClass, place: &'static Location<'static>) {
    let seen = |seen: &RefCell<BTreeSet<_>>| !seen.borrow_mut().insert((outer.rank, inner.rank));
    if SEEN.try_with(seen).unwrap_or(false) {
        return;
    }
    let edge = Edge { outer: outer.name, inner: inner.name, file: place.file() };
    if EDGES.lock().insert((edge.outer, edge.inner), edge.file).is_none() {
        record(edge);
    }
}

/// Adds `edge` to this process's file, if one is wanted. The edges of a process that cannot write one are not in the
/// document.
fn record(edge: Edge) {
    let Some(directory) = std::env::var_os(EDGES_VARIABLE) else { return };
    let path = std::path::Path::new(&directory).join(std::process::id().to_string());
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{} {} {}\n", edge.outer, edge.inner, edge.file);
    let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
}

/// Notes that this thread released a lock of `class`.
fn leaving(class: &'static LockClass) {
    if !cfg!(debug_assertions) {
        return;
    }
    // The list is destroyed while a thread's locals are torn down.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(at) = held.iter().rposition(|one| std::ptr::eq(*one, class)) {
            held.remove(at);
        }
    });
}

/// Asserts, in debug builds, that this thread holds no lock: called before an operation that may block.
///
/// # Panics
/// In debug builds, when a lock is held; `before` names the operation about to start.
pub fn assert_none_held(before: &str) {
    if cfg!(debug_assertions) {
        HELD.with_borrow(|held| {
            assert!(held.is_empty(), "{before} with `{}` held", held[0].name);
        });
    }
}

/// Every `outer -> inner` pair that any thread has taken so far (debug builds; empty otherwise).
pub fn edges() -> Vec<Edge> {
    let edges = EDGES.lock();
    edges.iter().map(|(&(outer, inner), &file)| Edge { outer, inner, file }).collect()
}

/// Ranks of the classes that one layer may declare. Each layer has a band, so that no crate's list names another's.
pub mod band {
    use std::ops::Range;

    /// Frontends and their servers.
    pub const FRONTENDS: Range<u16> = 1..60;
    /// The core.
    pub const CORE: Range<u16> = 60..290;
    /// Stores, which are called with no lock of the core held.
    pub const STORES: Range<u16> = 290..400;
    /// Tests.
    pub const TESTS: Range<u16> = 400..u16::MAX;
}

/// Whether `ranks` rise and all lie in `band`: asserted by [`lock_classes!`](crate::lock_classes) at compile time.
pub const fn rises_within(ranks: &[u16], band: &std::ops::Range<u16>) -> bool {
    let mut last = band.start - 1;
    let mut place = 0;
    while place < ranks.len() {
        if ranks[place] <= last || ranks[place] >= band.end {
            return false;
        }
        last = ranks[place];
        place += 1;
    }
    true
}

/// Declares the lock classes of a crate, outermost first, as statics, and `ORDER`, the list of them.
///
/// The list names the [`band`] of its ranks. It does not compile if a rank is outside of the band, or not above the one
/// before it:
///
/// ```compile_fail,E0080
/// uvfs_concurrent::lock_classes! {
///     in TESTS;
///     /// The second.
///     INNER = 402, "inner", "what is within";
///     /// The first.
///     OUTER = 401, "outer", "what is around";
/// }
/// ```
#[macro_export]
macro_rules! lock_classes {
    (in $band:ident; $($(#[$doc:meta])* $constant:ident = $rank:literal, $name:literal, $protects:literal;)*) => {
        const _: () = assert!(
            $crate::lock::order::rises_within(&[$($rank),*], &$crate::lock::order::band::$band),
            "ranks rise from class to class, within the band of this list"
        );
        $($(#[$doc])* pub static $constant: $crate::lock::LockClass =
            $crate::lock::LockClass::new($rank, $name, $protects);)*
        /// All classes of this crate, outermost first.
        pub static ORDER: &[&$crate::lock::LockClass] = &[$(&$constant),*];
    };
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
        let edge = edges().into_iter().find(|edge| (edge.outer, edge.inner) == ("outer", "inner"));
        assert!(edge.is_some_and(|edge| edge.file.ends_with("lock/order.rs")), "{edge:?}");
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
