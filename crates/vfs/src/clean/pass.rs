//! Once around the caches, to count what is in them.
//!
//! # Boundary
//! The order of a visit, for [`super::level`] and [`super::resident`]; what is made of what is seen is theirs.
//!
//! # Concurrency
//! No lock is held between two steps, and readers are not kept from freeing for longer than one: what moves meanwhile may be seen
//! where it was, or where it is, and what comes or goes may be seen or not. A step gives its processor to nobody by itself: asking the
//! scheduler for that after each of four thousand steps made a count of 90 ms one of up to 700 on a busy machine.

use crate::backend::InodeId;
use crate::names::CachedName;
use crate::vfs::Core;

/// Buckets of the name table in one step.
const BUCKETS: usize = 256;

/// Shows `state` each cached name; `visit` takes no lock. After each step `between` may.
pub(super) fn names<S>(
    core: &Core,
    state: &mut S,
    visit: impl Fn(&mut S, &CachedName),
    mut between: impl FnMut(&mut S),
) {
    let mut at = 0;
    while at < core.names.buckets() {
        core.names.visit((at, BUCKETS), |entry| visit(state, entry));
        between(state);
        at += BUCKETS;
    }
}

/// Tells of each file that has pages the directory that it lies in, its pages, and those of them that are dirty.
pub(super) fn pages(core: &Core, mut tell: impl FnMut(InodeId, u64, u64)) {
    for file in core.pages.files() {
        let Some(home) = file.directory() else { continue };
        let (pages, dirty) = file.resident();
        if pages > 0 {
            tell(home.id(), pages, dirty);
        }
    }
}
