//! Recent counts of the caches, for repeated requests.
//!
//! # Boundary
//! Keeps answers while the caches are unchanged ([`State`]), and accounts for their memory and for that of a running
//! count. [`super::level`] and [`super::resident`] count. They compute the parts of an answer that may change without
//! the caches each time.
//!
//! # Concurrency
//! One lock over the answers, with no other taken under it, and not held during a count. The state is read before a
//! count begins, so a change during the count makes its answer old at once.
//!
//! # Why
//! A count visits each cached name: 90 ms for a million. A view asks every few seconds, and unchanged caches (an idle
//! mount, or a walk that hits) give the same answer. So an answer is kept with two sums that every insert and removal
//! changes. Sums by directory would need no count at all. But then every inserted or removed name would write to its
//! directory and to each one above it. Weakness: a directory that moves during a count may be shown at its old place,
//! in several answers, until [`AGE_MAX`] has passed.

use super::level::{ResidentChild, ResidentLevel};
use super::resident::ResidentDirectory;
use crate::backend::InodeId;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// Answers kept.
const ANSWERS: usize = 8;
/// Share of the answers in the memory of all caches.
const SHARE: u64 = 64;
/// An answer older than this is counted again.
const AGE_MAX: Duration = Duration::from_secs(60);

/// The caches' state: equal at two moments if no entry was inserted, removed or made dirty in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    names: u64,
    pages: (u64, u64, u64),
    cleans: u64,
}

impl State {
    pub(super) fn of(core: &Core) -> Self {
        let (names, pages) = (core.names.changes(), core.pages.changes());
        Self { names, pages, cleans: core.cleans.now() }
    }
}

/// The result of a count.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Level(Arc<ResidentLevel>),
    Directories(Arc<Vec<ResidentDirectory>>),
}

/// A result that can be kept as an [`Answer`].
pub(super) trait Counted: Clone {
    /// Itself as an answer.
    fn answer(counted: Arc<Self>) -> Answer;

    /// The result in `answer`, if it is of this kind.
    fn of(answer: &Answer) -> Option<Arc<Self>>;

    /// Memory of the result, approximately.
    fn bytes(&self) -> usize;
}

impl Counted for ResidentLevel {
    fn answer(counted: Arc<Self>) -> Answer {
        Answer::Level(counted)
    }

    fn of(answer: &Answer) -> Option<Arc<Self>> {
        match answer {
            Answer::Level(level) => Some(level.clone()),
            Answer::Directories(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        let names = self.children.iter().filter_map(|child| child.name.as_ref());
        self.children.capacity() * size_of::<ResidentChild>()
            + names.map(Vec::capacity).sum::<usize>()
    }
}

impl Counted for Vec<ResidentDirectory> {
    fn answer(counted: Arc<Self>) -> Answer {
        Answer::Directories(counted)
    }

    fn of(answer: &Answer) -> Option<Arc<Self>> {
        match answer {
            Answer::Directories(directories) => Some(directories.clone()),
            Answer::Level(_) => None,
        }
    }

    fn bytes(&self) -> usize {
        let paths = self.iter().filter_map(|one| one.path.as_ref());
        self.capacity() * size_of::<ResidentDirectory>() + paths.map(Vec::capacity).sum::<usize>()
    }
}

impl Core {
    /// The result of `count` for the directory `top`, or an earlier one if the caches are unchanged.
    pub(super) fn counted<T: Counted>(&self, top: InodeId, count: impl FnOnce() -> T) -> T {
        let state = State::of(self);
        let counted = self.views.find(top, state, T::of).unwrap_or_else(|| {
            let counted = Arc::new(count());
            let (answer, bytes) = (T::answer(counted.clone()), counted.bytes());
            self.views.keep((top, state), answer, bytes, self.budget.room());
            counted
        });
        Arc::unwrap_or_clone(counted)
    }
}

#[derive(Debug)]
struct CachedCount {
    directory: InodeId,
    answer: Answer,
    bytes: usize,
    state: State,
    counted: Instant,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Views {
    kept: Mutex<VecDeque<CachedCount>>,
    /// Bytes of answers, and of running counts.
    bytes: AtomicUsize,
}

impl Views {
    pub(crate) fn new() -> Self {
        let kept = Mutex::new(&lock_order::VIEWS, VecDeque::new());
        Self { kept, bytes: AtomicUsize::new(0) }
    }

    /// Bytes of answers and of running counts.
    pub(crate) fn bytes(&self) -> usize {
        // ORDERING: Relaxed; a size that may lag.
        self.bytes.load(Relaxed)
    }

    /// Forgets all answers.
    pub(crate) fn forget(&self) {
        // Mostly there is none, and no lock to take.
        if self.bytes() > 0 {
            let gone = std::mem::take(&mut *self.kept.lock());
            gone.iter().for_each(|kept| self.less(kept.bytes));
        }
    }

    /// The last answer about `directory` that `wanted` accepts, if the caches are still in `state`.
    pub(super) fn find<T>(
        &self,
        directory: InodeId,
        state: State,
        wanted: impl Fn(&Answer) -> Option<T>,
    ) -> Option<T> {
        let kept = self.kept.lock();
        let same = kept.iter().filter(|kept| kept.directory == directory && kept.state == state);
        let mut young = same.filter(|kept| kept.counted.elapsed() < AGE_MAX);
        young.find_map(|kept| wanted(&kept.answer))
    }

    /// Keeps `answer`, which takes `bytes`, unless that is a large part of the `room` of all caches.
    pub(super) fn keep(
        &self,
        (directory, state): (InodeId, State),
        answer: Answer,
        bytes: usize,
        room: u64,
    ) {
        let most = usize::try_from(room / SHARE).unwrap_or(usize::MAX);
        let mut kept = self.kept.lock();
        // Answers of another state are useless.
        let kind = std::mem::discriminant(&answer);
        let serves = |old: &CachedCount| {
            old.state == state
                && (old.directory != directory || std::mem::discriminant(&old.answer) != kind)
        };
        let held = |kept: &VecDeque<CachedCount>| kept.iter().map(|kept| kept.bytes).sum::<usize>();
        let before = held(&kept);
        kept.retain(serves);
        let is_full = |kept: &VecDeque<CachedCount>| {
            kept.len() >= ANSWERS || held(kept).saturating_add(bytes) > most
        };
        while is_full(&kept) && kept.pop_front().is_some() {}
        if !is_full(&kept) {
            kept.push_back(CachedCount {
                directory,
                answer,
                bytes,
                state,
                counted: Instant::now(),
            });
        }
        self.more(held(&kept));
        self.less(before);
    }

    fn more(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_add(bytes, Relaxed);
    }

    fn less(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// Memory of a running count, in the budget for as long as this lives.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    views: &'a Views,
    bytes: usize,
}

impl<'a> Charge<'a> {
    pub(super) fn new(views: &'a Views) -> Self {
        Self { views, bytes: 0 }
    }

    /// The count takes `bytes` now.
    pub(super) fn set(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.views.more(more),
            None => self.views.less(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.views.less(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(names: u64) -> State {
        State { names, pages: (0, 0, 0), cleans: 0 }
    }

    fn level() -> Answer {
        Answer::Level(Arc::default())
    }

    fn is_level(answer: &Answer) -> Option<()> {
        matches!(answer, Answer::Level(_)).then_some(())
    }

    #[test]
    fn an_answer_holds_until_something_changes_and_takes_room_until_it_goes() {
        let (views, room) = (Views::new(), 64 * 1000);
        views.keep((InodeId(7), state(1)), level(), 600, room);
        assert_eq!(views.find(InodeId(7), state(1), is_level), Some(()));
        assert_eq!(views.find(InodeId(7), state(2), is_level), None, "something changed");
        assert_eq!(views.find(InodeId(8), state(1), is_level), None);
        let other = |answer: &Answer| is_level(answer).is_none().then_some(());
        assert_eq!(views.find(InodeId(7), state(1), other), None, "not what was asked");
        assert_eq!(views.bytes(), 600);
        views.keep((InodeId(8), state(1)), level(), 500, room);
        assert_eq!(views.bytes(), 500, "no room for both: the older one goes");
        views.keep((InodeId(9), state(1)), level(), 5000, room);
        assert_eq!((views.bytes(), views.find(InodeId(9), state(1), is_level)), (0, None));
        for at in 0..20 {
            views.keep((InodeId(at), state(1)), level(), 10, room);
        }
        assert_eq!(views.bytes(), 10 * ANSWERS);
        views.keep((InodeId(1), state(2)), level(), 10, room);
        assert_eq!(views.bytes(), 10, "those of another state are dropped");
        let mut charge = Charge::new(&views);
        charge.set(300);
        charge.set(200);
        assert_eq!(views.bytes(), 210);
        drop(charge);
        views.forget();
        assert_eq!(views.bytes(), 0);
    }
}
