//! Shared parts of the tests here.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Fault, Moment};
use uvfs_concurrent::epoch;
use uvfs_tests::paged::assert_references_come_back;
use uvfs_tests::{Hostile, Numbers};
use uvfs_vfs::{Backend, Caller, Clean, Dirty, InodeId, Name, Vfs};

/// The garbage of the process is looked at as a whole: one test at a time.
pub(crate) struct Turn;

static TAKEN: AtomicBool = AtomicBool::new(false);

impl Turn {
    pub(crate) fn take() -> Self {
        while TAKEN.swap(true, SeqCst) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, SeqCst);
    }
}

/// Ends the others when one of them fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, SeqCst);
        }
    }
}

/// A thread's part.
pub(crate) type Act<S> = fn(&S, u64, Numbers);

/// Plays all parts until `length` has passed; calls `each` now and then.
pub(crate) fn play<S: Sync>(
    scene: &S,
    stop: &AtomicBool,
    (seed, length): (u64, Duration),
    acts: &[Act<S>],
    each: impl Fn(u64),
) {
    std::thread::scope(|scope| {
        for (at, act) in (0..).zip(acts) {
            scope.spawn(move || {
                let _stops = Stops(stop);
                act(scene, at, Numbers(seed ^ at << 32));
            });
        }
        let (end, mut rounds) = (Instant::now() + length, 0);
        while !stop.load(SeqCst) && Instant::now() < end {
            rounds += 1;
            each(rounds);
            std::thread::park_timeout(Duration::from_millis(10));
        }
        stop.store(true, SeqCst);
    });
}

/// A name that is one.
pub(crate) fn name(bytes: &str) -> Name<'_> {
    Name::new(bytes.as_bytes()).unwrap()
}

/// A caller with all rights.
pub(crate) fn caller() -> Caller {
    Caller::root()
}

/// An object of the store itself, with a reference that is never returned.
pub(crate) fn inner_id(store: &Hostile, path: &str) -> InodeId {
    path.split('/').filter(|part| !part.is_empty()).fold(InodeId::ROOT, |parent, part| {
        store.inner().names().lookup(&caller(), parent, name(part)).expect(path).inode
    })
}

/// Any combination that can be cleaned.
pub(crate) fn some_clean(numbers: &mut Numbers) -> Clean {
    *numbers.of(&[Clean::Pages, Clean::Names, Clean::Both])
}

/// Frees none, some, or all of the cleaned entries.
pub(crate) fn reap(cleaning: uvfs_vfs::Cleaning, numbers: &mut Numbers) {
    let dirty = *numbers.of(&[Dirty::Skip, Dirty::WriteFirst]);
    let mut steps = match numbers.below(4) {
        0 | 1 => return,
        2 => 1 + numbers.below(6),
        _ => u64::MAX,
    };
    let report = cleaning.reap(dirty, &mut |progress| {
        assert!(progress.done <= progress.total, "{progress:?}");
        steps -= 1;
        if steps == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    for tally in [report.names, report.inodes, report.pages] {
        let parts = tally.freed.entries + tally.busy.entries + tally.dirty.entries;
        assert_eq!(tally.found.entries, parts, "{report:?}");
    }
}

/// Asserts that caches and garbage are empty except for the root.
pub(crate) fn assert_empty(vfs: &Arc<Vfs>, store: &Hostile) {
    assert_references_come_back(vfs, store);
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        vfs.forget_unused();
        let seen = vfs.statistics();
        let (names, inodes, pages) = (seen.names.held, seen.inodes.held, seen.pages.pages);
        let left = (names, seen.negatives, inodes, pages, seen.pages.dirty_bytes);
        // The descriptions of pages stay.
        let bytes = (seen.budget.page_bytes >> 17, epoch::garbage_bytes());
        if left == (0, 0, 1, 0, 0) && bytes == (0, 0) {
            assert_eq!((seen.paths, seen.inodes_active), (0, 1), "{seen:?}");
            return;
        }
        assert!(Instant::now() < end, "{left:?} {bytes:?} stay: {seen:?}");
        epoch::collect();
        std::thread::yield_now();
    }
}

/// Delays that let others pass.
pub(crate) fn delays() -> Vec<Fault> {
    let delay = |moment, micros| Fault::Delay(moment, Duration::from_micros(micros));
    vec![delay(Moment::Before, 30), delay(Moment::After, 30), delay(Moment::After, 300)]
}
