//! Replaces the lock meter under the model checker: it takes locks and counts nothing.
//!
//! # Why
//! The meter's words carry no order on which a protocol could rely; exploring them would only make
//! models slower. Boundary: the functions that [`super`]'s locks call, with the meter's signatures.

use super::LockClass;

/// The way a lock was taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode {
    Mutex,
    Read,
    Write,
    Spin,
}

/// Replaces the meter's type; empty.
#[derive(Debug)]
pub(super) struct Held;

impl Held {
    pub(super) fn ending(&mut self) {}
}

pub(super) fn take<G>(
    _class: &'static LockClass,
    _mode: Mode,
    _attempt: impl FnOnce() -> Option<G>,
    wait: impl FnOnce() -> G,
) -> (G, Held) {
    (wait(), Held)
}

pub(super) fn spin(
    _class: &'static LockClass,
    mut attempt: impl FnMut() -> bool,
    _pause: impl FnMut(u64),
) -> Held {
    while !attempt() {
        loom::thread::yield_now();
    }
    Held
}

pub(super) fn taken_unwaited(_class: &'static LockClass, _mode: Mode) -> Held {
    Held
}

pub(super) fn rejected(_class: &'static LockClass, _mode: Mode) {}
