//! From a key to its page, without copying it: the parts of a hit, beside other caches.
//!
//! # Boundary
//! `uvfs-found` is a look into the tree, the frame's identity and version, and a note for the
//! replacement policy; `uvfs-held` counts a reference instead and releases it. `uvfs-validated` and
//! `uvfs-reference` read eight bytes of the page, too. Each pins the epoch by itself, like every
//! read of a file.
//!
//! # Why
//! The layers above (the handle, the size, the statistics) have no counterpart in the rivals. A
//! rival's value is in its entry, like our frame's identity. The page itself is one more line of
//! memory, mostly uncached, for which no rival here pays. Weakness: no program looks a page up
//! without reading it.

use super::cases::{Case, PAGE};
use super::rivals::Kind;
use super::store::number;
use super::turns::{Contestant, by_keys, take_turns};
use super::{FOUND, HELD, REFERENCED, Run, VALIDATED, fits};
use crate::report::Report;
use crate::report::Unit;
use std::io;
use uvfs_bench_workload::traces::{Pattern, Traces};
use uvfs_concurrent::epoch;
use uvfs_concurrent::lock::LockClass;
use uvfs_containers::frame::{Arena, FrameId, Read};
use uvfs_containers::radix::Tree;

static WAITS: LockClass = LockClass::new(1, "bench-hit-waits", "sleepers of pages");
static ROOM: LockClass = LockClass::new(3, "bench-hit-room", "sleepers for room");
static NODES: LockClass = LockClass::new(2, "bench-hit-tree", "a node's slots");

/// No key.
const WRONG: u64 = 1 << 40;
/// The file that all pages belong to.
const OWNER: u64 = 7;
/// Later than the insertion of the pages, so that the first access counts.
const CLOCK: u32 = 1 << 20;
/// Address space as the file system reserves it: as many translations have to be found.
const FRAMES_MIN: u64 = (64 << 30) / PAGE;
/// Bytes of an entry of the greediest rival.
const RIVAL_BYTES: u64 = 256;

/// Pages in a tree.
struct Pages {
    tree: Tree,
    arena: Arena,
}

impl Pages {
    fn new(entries: u64) -> io::Result<Self> {
        let frames = u32::try_from(entries.max(FRAMES_MIN)).map_err(io::Error::other)?;
        let pages = Self { tree: Tree::new(&NODES), arena: Arena::new(&WAITS, &ROOM, frames)? };
        // As the file system does when it has a budget of so much.
        pages.arena.expect(entries as usize);
        for index in 0..entries {
            let fresh = pages.arena.allocate();
            let fresh = fresh.ok_or_else(|| io::Error::other("no frame is left"))?;
            let mut page = fresh.assign(OWNER, index);
            page.write(0, &index.to_le_bytes());
            page.set_uptodate();
            let value = page.page().id().to_value();
            let inserted = pages.tree.insert(index, value, &epoch::pin());
            inserted.map_err(|_| io::Error::other("a page is there twice"))?;
        }
        Ok(pages)
    }

    #[inline]
    fn found(&self, key: u32) -> u64 {
        let index = u64::from(key);
        let guard = epoch::pin();
        let Some(value) = self.tree.get(index, &guard) else { return WRONG };
        let id = FrameId::from_value(value);
        match self.arena.read_validated(id, OWNER, index, 0, &mut []) {
            Read::Done => {
                self.arena.touch(id, CLOCK);
                index
            }
            Read::Busy | Read::Gone => WRONG,
        }
    }

    #[inline]
    fn held(&self, key: u32) -> u64 {
        let index = u64::from(key);
        let guard = epoch::pin();
        let Some(value) = self.tree.get(index, &guard) else { return WRONG };
        let page = self.arena.try_get(FrameId::from_value(value), OWNER, index);
        page.map_or(WRONG, |page| page.index())
    }

    #[inline]
    fn validated(&self, key: u32) -> u64 {
        let (index, mut word) = (u64::from(key), [0; 8]);
        let guard = epoch::pin();
        let Some(value) = self.tree.get(index, &guard) else { return WRONG };
        let id = FrameId::from_value(value);
        match self.arena.read_validated(id, OWNER, index, 0, &mut word) {
            Read::Done => {
                self.arena.touch(id, CLOCK);
                number(&word)
            }
            Read::Busy | Read::Gone => WRONG,
        }
    }

    #[inline]
    fn referenced(&self, key: u32) -> u64 {
        let (index, mut word) = (u64::from(key), [0; 8]);
        let guard = epoch::pin();
        let Some(value) = self.tree.get(index, &guard) else { return WRONG };
        let Some(page) = self.arena.try_get(FrameId::from_value(value), OWNER, index) else {
            return WRONG;
        };
        if page.read(0, &mut word) == Read::Done { number(&word) } else { WRONG }
    }
}

/// Runs the selected ones of these cases.
pub(super) fn measure(run: &Run, wanted: &[Case], figures: &mut Report) -> io::Result<()> {
    let pattern =
        |case: &Case| if let Case::Lookup(pattern) = case { Some(*pattern) } else { None };
    let patterns: Vec<Pattern> = wanted.iter().filter_map(pattern).collect();
    let Some(&first) = patterns.first() else { return Ok(()) };
    let (entries, lookups) = (run.sizes.entries, run.sizes.lookups);
    let name = Case::Lookup(first).name(&run.sizes);
    if let Err(why) = fits(entries * PAGE) {
        run.failed(VALIDATED, &name, &why);
        return Ok(());
    }
    run.progress("filling");
    let pages = Pages::new(entries)?;
    let pages = &pages;
    let mut rivals = run.rivals(&name);
    rivals.retain_mut(|(rival, process)| {
        let built =
            fits(entries * RIVAL_BYTES).and_then(|()| process.build(rival, Kind::Words, entries));
        built.inspect_err(|why| run.leave_out(rival, &name, why)).is_ok()
    });
    for pattern in patterns {
        for &threads in &run.threads {
            let traces = Traces::new(pattern, entries, threads, lookups);
            let traces = &traces;
            let mut all = vec![
                Contestant::new(FOUND, move || {
                    by_keys(run, traces, lookups, |_, key, _| pages.found(key))
                }),
                Contestant::new(HELD, move || {
                    by_keys(run, traces, lookups, |_, key, _| pages.held(key))
                }),
                Contestant::new(VALIDATED, move || {
                    by_keys(run, traces, lookups, |_, key, _| pages.validated(key))
                }),
                Contestant::new(REFERENCED, move || {
                    by_keys(run, traces, lookups, |_, key, _| pages.referenced(key))
                }),
            ];
            let others = rivals.iter_mut().map(|(name, process)| {
                Contestant::rival(run, name, process, pattern, (threads, lookups))
            });
            all.extend(others);
            let (name, unit) = (Case::Lookup(pattern).name(&run.sizes), Unit::ThousandsPerSecond);
            take_turns(run, &name, unit, threads, &mut all, figures);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_found_and_no_other() {
        let pages = Pages::new(300).unwrap();
        let all =
            |key| [pages.found(key), pages.held(key), pages.validated(key), pages.referenced(key)];
        (0..300).for_each(|key| assert_eq!(all(key), [u64::from(key); 4]));
        assert_eq!(all(300), [WRONG; 4]);
        let freed =
            (0..300).filter(|&frame| pages.arena.try_evict(FrameId::from_number(frame)).is_some());
        assert_eq!(freed.count(), 300, "all references were given back");
    }
}
