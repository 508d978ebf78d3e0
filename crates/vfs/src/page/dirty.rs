//! Files that wait to be written back, by when they are due.
//!
//! # Boundary
//! Finds the files that are due, and when the next one will be. How files are written is [`super::write_back`]'s, and
//! when one is due its own [`FilePages::due`].
//!
//! # Order
//! ```text
//!            looked at, but the store refused it a moment ago
//!  Ripening ───────────────────────────────────────────────────▶ Paused
//!  (by since when    ◀───────────────────────────────────────── (by when that ends)
//!   it is dirty)      its pause is over, or space has come
//! ```
//! Q1. A file is in the map at most once, at the place that its `queued` names.
//! Q2. Its place is no later than it is due. One that is too early is put right when a step looks at the file; whoever
//!     makes a file due sooner moves it ([`DirtyFiles::hasten`]).
//! Q3. A file that was refused for want of space is in `full` until some comes, wherever it waits: then it is due.
//! Q4. A step ends with a moment to look again for each file that is in the map by then, also for one that came to be
//!     due behind its back: an `fsync` that succeeds ends a pause, and tells no thread.
//!
//! So a step costs a search in the tree for each file that is due, and one for each file whose place had become too
//! early since. Files that are not due cost nothing, however many they are. Steps go round among those that are due: a
//! large file does not keep the threads from the others.
//!
//! # Concurrency
//! One lock, taken before a file's own and held for a search. A file stays in the map while it is written, so that
//! another thread may write its next run.
//!
//! # Why
//! One list was gone over at each step: with 100,000 small files that wait five seconds, the pauses of one that
//! fails cost 100,000 looks each. As Linux, which keeps `b_dirty` and `b_io`. Weakness: an allocation of the tree for
//! every few files, under the lock.

use super::file::{FilePages, Local};
use crate::lock_order;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;

/// How soon to look again when what is due is being written by others, or came while a step was looking elsewhere.
const BUSY: Duration = Duration::from_millis(10);
/// Files that one thread looks at which needs any page written.
const SOME: usize = 8;

/// Why a file waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Its delay runs since a moment; none if it is due at once.
    Ripening,
    /// The store failed: it is left alone until a moment.
    Paused,
}

/// Where a file is in the map; numbers tell those of one moment apart, and begin at 1.
pub(super) type Place = (WaitsFor, Option<Instant>, u64);

/// The first part of a [`Place`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitsFor(Stage);

const RIPENING: WaitsFor = WaitsFor(Stage::Ripening);
const PAUSED: WaitsFor = WaitsFor(Stage::Paused);
/// Before all places.
const START: Place = (RIPENING, None, 0);

/// See the module.
#[derive(Debug)]
pub(super) struct DirtyFiles(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    files: BTreeMap<Place, Arc<FilePages>>,
    /// Those that wait for space as well, by owner.
    full: BTreeMap<u64, Arc<FilePages>>,
    /// The number given last.
    number: u64,
    /// Where the last step looked.
    hand: Place,
    /// Where somebody looked last who needed any page written.
    any_hand: Place,
    /// How much space had come when those that wait for it were looked at.
    freed: u64,
    /// Files given to steps so far.
    #[cfg(test)]
    looks: u64,
}

/// One step's way round the files that are due.
#[derive(Debug)]
pub(super) struct Round {
    /// Behind the last that is due.
    limit: Place,
    start: Place,
    at: Place,
    wrapped: bool,
}

impl DirtyFiles {
    pub(super) fn new() -> Self {
        let queue = Queue {
            files: BTreeMap::new(),
            full: BTreeMap::new(),
            number: 0,
            hand: START,
            any_hand: START,
            freed: 0,
            #[cfg(test)]
            looks: 0,
        };
        Self(Mutex::new(&lock_order::DIRTY_FILES, queue))
    }

    /// Queues a file of which something is held back, if it is not there. Whether it was not.
    pub(super) fn add(&self, file: Arc<FilePages>) -> bool {
        let mut queue = self.0.lock();
        let mut local = file.local();
        if local.queued.is_some() || local.keeps.is_none() {
            return false;
        }
        let place = queue.place(RIPENING, local.since);
        local.queued = Some(place);
        drop(local);
        queue.files.insert(place, file);
        true
    }

    /// A file may be due sooner than its place says.
    pub(super) fn hasten(&self, file: &FilePages) {
        self.0.lock().put(file, |local| (RIPENING, local.since));
    }

    /// A file may be due later than its place says.
    pub(super) fn postpone(&self, file: &FilePages, now: Instant) {
        let mut queue = self.0.lock();
        queue.put(file, |local| match local.pause {
            Some(pause) if pause.until > now => (PAUSED, Some(pause.until)),
            _ => (RIPENING, local.since),
        });
    }

    /// A file was refused for want of space when `then` had come.
    pub(super) fn wants_space(&self, file: &FilePages, then: u64) {
        let mut queue = self.0.lock();
        let Some(place) = file.local().queued else { return };
        // Read under the lock under which those that wait are gone over: what came before is seen here, what
        // comes later finds the file.
        if then != file.cache.space.freed() {
            queue.put(file, |_| (RIPENING, None));
        } else if let Some(file) = queue.files.get(&place).cloned() {
            queue.full.insert(file.owner, file);
        }
    }

    /// Takes a file that holds nothing back out. False if it does again.
    pub(super) fn remove_written_back(&self, file: &FilePages) -> bool {
        let mut queue = self.0.lock();
        let mut local = file.local();
        if local.keeps.is_some() {
            return false;
        }
        let place = local.queued.take();
        local.forget_if_idle();
        drop(local);
        let gone =
            (place.and_then(|place| queue.files.remove(&place)), queue.full.remove(&file.owner));
        drop(queue);
        drop(gone);
        true
    }

    /// Begins to look at what is due at `now`, in a `hurry` at all that is not left alone. `freed` is how much space
    /// has come so far.
    pub(super) fn begin(
        &self,
        (now, delay): (Instant, Duration),
        hurry: bool,
        freed: u64,
    ) -> Round {
        let mut queue = self.0.lock();
        queue.end_pauses(now);
        if std::mem::replace(&mut queue.freed, freed) != freed {
            // Each has its place in the map too: none goes with this.
            for file in std::mem::take(&mut queue.full).into_values() {
                queue.put(&file, |_| (RIPENING, None));
            }
        }
        let limit = match hurry {
            true => (PAUSED, None, 0),
            false => (RIPENING, now.checked_sub(delay), u64::MAX),
        };
        let start = queue.hand;
        Round { limit, start, at: start, wrapped: false }
    }

    /// The next file that is due; `None` when the step has been at all of them.
    pub(super) fn next(&self, round: &mut Round) -> Option<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let mut found = None;
        if !round.wrapped {
            if round.at < round.limit {
                found = queue.files.range((Excluded(round.at), Excluded(round.limit))).next();
            }
            if found.is_none() {
                round.wrapped = true;
                round.at = START;
            }
        }
        if round.wrapped && found.is_none() {
            let end = match round.start < round.limit {
                true => Included(round.start),
                false => Excluded(round.limit),
            };
            let is_empty = round.at >= round.start.min(round.limit);
            found =
                if is_empty { None } else { queue.files.range((Excluded(round.at), end)).next() };
        }
        let (place, file) = found.map(|(place, file)| (*place, file.clone()))?;
        round.at = place;
        queue.hand = place;
        #[cfg(test)]
        {
            queue.looks += 1;
        }
        Some(file)
    }

    /// When to look again after `round`: when the next file is due; [`BUSY`] from now, if one is that the step was at
    /// or did not meet (Q4).
    pub(super) fn next_due(&self, round: &Round, delay: Duration) -> Option<Instant> {
        let queue = self.0.lock();
        let now = Instant::now();
        // What a hurry puts off is at a moment to come.
        let due = round.limit.min((RIPENING, Some(now), u64::MAX));
        if queue.files.range(..due).next().is_some() {
            return Some(now + BUSY);
        }
        let moment = |(place, _): (&Place, _)| place.1;
        let paused = (PAUSED, None, 0);
        let ripe = match round.limit < paused {
            true => queue.files.range(round.limit..paused).next().and_then(moment),
            false => None,
        };
        let pause = queue.files.range(paused..).next().and_then(moment);
        ripe.map(|since| since + delay).into_iter().chain(pause).min()
    }

    /// Some files, others each time.
    pub(super) fn some(&self) -> Vec<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let hand = queue.any_hand;
        let behind = queue.files.range((Excluded(hand), Unbounded));
        let before = queue.files.range(..=hand);
        let some: Vec<_> = behind.chain(before).take(SOME).collect();
        let last = some.last().map_or(hand, |(place, _)| **place);
        let some = some.into_iter().map(|(_, file)| file.clone()).collect();
        queue.any_hand = last;
        some
    }

    /// All files.
    pub(super) fn all(&self) -> Vec<Arc<FilePages>> {
        self.0.lock().files.values().cloned().collect()
    }

    /// Forgets all files, which are returned, to be dropped with no lock held.
    pub(super) fn take(&self) -> Vec<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let full = std::mem::take(&mut queue.full);
        std::mem::take(&mut queue.files).into_values().chain(full.into_values()).collect()
    }
}

impl Queue {
    fn place(&mut self, waits_for: WaitsFor, moment: Option<Instant>) -> Place {
        self.number += 1;
        (waits_for, moment, self.number)
    }

    /// Moves a file that is in the map to where `choose` says.
    fn put(
        &mut self,
        file: &FilePages,
        choose: impl FnOnce(&Local) -> (WaitsFor, Option<Instant>),
    ) {
        let mut local = file.local();
        let Some(old) = local.queued else { return };
        let (waits_for, moment) = choose(&local);
        if (old.0, old.1) == (waits_for, moment) {
            return;
        }
        let Some(file) = self.files.remove(&old) else { return };
        let place = self.place(waits_for, moment);
        local.queued = Some(place);
        drop(local);
        self.files.insert(place, file);
    }

    /// What was left alone until `now` is not any more.
    fn end_pauses(&mut self, now: Instant) {
        loop {
            let first = self.files.range((PAUSED, None, 0)..).next().map(|(place, _)| *place);
            let over = first.filter(|first| first.1 <= Some(now));
            let Some((old, file)) = over.and_then(|over| self.files.remove_entry(&over)) else {
                return;
            };
            let mut local = file.local();
            debug_assert_eq!(local.queued, Some(old), "Q1");
            let place = self.place(RIPENING, local.since);
            local.queued = Some(place);
            drop(local);
            self.files.insert(place, file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::BUSY;
    use crate::vfs::Core;
    use crate::{
        Attributes, Backend, Caller, Capabilities, Cookie, Creation, Data, Directory, Entry, Error,
        FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, NewNode, PageCaching, PagePolicy,
        Result, Vfs, VfsConfig,
    };
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use uvfs_concurrent::frame::Outcome;
    use uvfs_concurrent::primitive::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};

    /// Files by number, which hold nothing; writes of a file of an odd number fail with `refusal`, if it is one.
    #[derive(Default)]
    struct Store {
        made: AtomicU64,
        refusal: AtomicI32,
    }

    fn node(id: u64) -> Entry {
        let attributes = match id {
            1 => Attributes::new(1, FileKind::Directory, 0o777),
            _ => Attributes::new(id, FileKind::Regular, 0o666),
        };
        Entry { inode: InodeId(id), attributes }
    }

    impl Backend for Arc<Store> {
        fn capabilities(&self) -> Capabilities {
            Capabilities { caching: PageCaching::Core, ..Capabilities::read_write("numbers") }
        }
        fn root(&self) -> Result<Entry> {
            Ok(node(1))
        }
        fn names(&self) -> &dyn Names {
            self
        }
        fn inodes(&self) -> &dyn Inodes {
            self
        }
        fn data(&self) -> &dyn Data {
            self
        }
        fn creation(&self) -> Option<&dyn Creation> {
            Some(self)
        }
    }

    impl Names for Arc<Store> {
        fn lookup(&self, _: &Caller, _: InodeId, _: Name<'_>) -> Result<Entry> {
            Err(Error::NotFound)
        }
        fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
            Ok(())
        }
    }

    impl Creation for Arc<Store> {
        fn create(&self, _: &Caller, _: InodeId, _: Name<'_>, _: &NewNode<'_>) -> Result<Entry> {
            // ORDERING: Relaxed; one thread.
            Ok(node(100 + self.made.fetch_add(1, Relaxed)))
        }
    }

    impl Inodes for Arc<Store> {
        fn attributes(&self, file: FileRef) -> Result<Attributes> {
            Ok(node(file.inode.0).attributes)
        }
    }

    impl Data for Arc<Store> {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
        fn write(&self, _: &Caller, file: FileRef, _: u64, data: &[u8]) -> Result<usize> {
            // ORDERING: Relaxed; one thread.
            match self.refusal.load(Relaxed) {
                errno if errno != 0 && file.inode.0 % 2 == 1 => {
                    Err(std::io::Error::from_raw_os_error(errno).into())
                }
                _ => Ok(data.len()),
            }
        }
    }

    const FILES: u64 = 200;

    /// Dirty files of a page each, none of which is due for an hour; so no thread looks at any.
    fn dirty_files() -> (Arc<Store>, Arc<Vfs>, Directory) {
        let store = Arc::new(Store::default());
        let hour = Duration::from_secs(3600);
        let config = VfsConfig {
            pages: PagePolicy::WriteBack,
            write_back_delay: hour,
            ..VfsConfig::default()
        };
        let vfs = Vfs::new(store.clone(), config).unwrap();
        let root = vfs.root_directory(Caller::root());
        for at in 0..FILES {
            root.write_file(format!("{at}"), b"x").unwrap();
        }
        assert_eq!(vfs.core.pages.dirty_files.all().len() as u64, FILES);
        (store, vfs, root)
    }

    /// Looks of one step of a thread that writes back, and when it wants the next.
    fn step(core: &Core) -> (u64, Option<Instant>) {
        let looks = || core.pages.dirty_files.0.lock().looks;
        let before = looks();
        let next = core.write_back_step();
        (looks() - before, next)
    }

    fn make_due(core: &Core, count: usize) {
        core.pages.dirty_files.all().iter().take(count).for_each(|file| file.be_due());
    }

    /// A step went over all files, due or not, with the lock taken twice for each: a file that failed every 100 ms
    /// cost a look at each of 100,000 that were not due for seconds.
    #[test]
    fn a_step_looks_at_what_is_due_and_at_nothing_else() {
        let (_store, vfs, _root) = dirty_files();
        let core = &vfs.core;
        let soon = Instant::now() + Duration::from_secs(1800);
        let (looks, next) = step(core);
        assert!(looks == 0 && next.is_some_and(|next| next > soon), "{looks} {next:?}");
        make_due(core, 3);
        // One look for each run that is written, one to find each file done; then none.
        let mut all = 0;
        for _ in 0..6 {
            let (looks, next) = step(core);
            all += looks;
            if next.is_none_or(|next| next > soon) {
                break;
            }
        }
        assert_eq!(all, 6);
        assert_eq!(core.pages.dirty_files.all().len() as u64, FILES - 3);
        assert_eq!(step(core).0, 0);
    }

    /// A file that is put as a whole and is being written was left alone for a second. It waited for that second and
    /// the whole delay of write-back.
    #[test]
    fn a_postponed_file_is_due_at_that_moment() {
        let (_store, vfs, _root) = dirty_files();
        let (core, now, delay) = (&vfs.core, Instant::now(), Duration::from_secs(2));
        let file = core.pages.dirty_files.all().into_iter().next().unwrap();
        let moment = now + Duration::from_secs(1);
        file.postpone_until(moment, delay);
        assert_eq!(file.due(now, delay, false), moment);
    }

    #[test]
    fn a_file_that_fails_is_looked_at_again_when_its_pause_is_over() {
        let (store, vfs, _root) = dirty_files();
        let core = &vfs.core;
        store.refusal.store(5, Relaxed);
        let odd = core.pages.dirty_files.all().into_iter().find(|file| file.inode.0 % 2 == 1);
        let odd = odd.unwrap();
        odd.be_due();
        let (looks, next) = step(core);
        assert_eq!(looks, 1);
        assert!(next.is_some_and(|next| next < Instant::now() + Duration::from_secs(60)));
        assert!(odd.why_not_written().is_some());
        store.refusal.store(0, Relaxed);
        let mut all = 0;
        while odd.holds_back() {
            let (looks, next) = step(core);
            all += looks;
            if let Some(next) = next.filter(|_| odd.holds_back()) {
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
        assert!(all <= 3, "{all} looks at one file, the others are not due");
    }

    #[test]
    fn what_the_store_had_no_space_for_is_due_when_some_comes() {
        let (store, vfs, _root) = dirty_files();
        let core = &vfs.core;
        store.refusal.store(28, Relaxed);
        make_due(core, FILES as usize);
        let full = || {
            let files = core.pages.dirty_files.all();
            files.into_iter().filter(|file| file.why_not_written().is_some()).count()
        };
        while (full() as u64) < FILES / 2 || core.pages.dirty_files.all().len() > full() {
            step(core);
        }
        store.refusal.store(0, Relaxed);
        core.space_came();
        let begun = Instant::now();
        while !core.pages.dirty_files.all().is_empty() {
            step(core);
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }

    /// With too much dirty, files that are not due are written too, each in its turn.
    #[test]
    fn a_round_meets_each_file_once_and_the_next_goes_on_behind_it() {
        let (_store, vfs, _root) = dirty_files();
        let files = &vfs.core.pages.dirty_files;
        let delay = Duration::from_secs(3600);
        let begin = || files.begin((Instant::now(), delay), true, 0);
        let mut round = begin();
        let mut first = Vec::new();
        for _ in 0..50 {
            first.push(files.next(&mut round).unwrap().inode);
        }
        let mut round = begin();
        let all: Vec<_> = std::iter::from_fn(|| files.next(&mut round)).collect();
        assert_eq!(all.len() as u64, FILES, "each once");
        assert!(
            first
                .iter()
                .all(|inode| all[..FILES as usize - 50].iter().all(|file| file.inode != *inode))
        );
        let next = files.next_due(&round, delay);
        assert!(next.is_some_and(|next| next <= Instant::now() + BUSY), "none is written yet");
    }

    /// One page of a store that had failed and was back stayed dirty until the next `fsync`, once in some twenty runs:
    /// between a thread's failure and its note of it an `fsync` succeeded, which ended the pause. The file was due,
    /// in the map, behind the step, and nobody was to look.
    #[test]
    fn a_file_whose_pause_another_one_ends_is_looked_at() {
        let (_store, vfs, _root) = dirty_files();
        let files = &vfs.core.pages.dirty_files;
        let delay = Duration::from_secs(3600);
        let all = files.all();
        let file = all.iter().find(|file| file.inode.0 == 101).unwrap();
        file.be_due();
        let now = Instant::now();
        let mut round = files.begin((now, delay), false, 0);
        assert_eq!(files.next(&mut round).map(|file| file.inode), Some(file.inode));
        // The store refuses the thread, and takes what an fsync brings before the thread notes it.
        file.failed(&Error::from(std::io::Error::from_raw_os_error(5)));
        file.answered(0, Outcome::Written);
        files.postpone(file, now);
        assert_eq!(files.next(&mut round).map(|file| file.inode), None);
        let next = files.next_due(&round, delay);
        assert!(next.is_some_and(|next| next <= Instant::now() + BUSY), "{next:?}");
    }

    /// As above, where the step has passed the place that the file comes to.
    #[test]
    fn a_file_that_comes_to_be_due_behind_a_step_is_looked_at() {
        let (_store, vfs, _root) = dirty_files();
        let files = &vfs.core.pages.dirty_files;
        let delay = Duration::from_secs(3600);
        make_due(&vfs.core, 2);
        let now = Instant::now();
        let mut round = files.begin((now, delay), false, 0);
        let first = files.next(&mut round).unwrap();
        first.failed(&Error::from(std::io::Error::from_raw_os_error(5)));
        files.postpone(&first, now);
        assert!(files.next(&mut round).is_some());
        first.answered(0, Outcome::Written);
        // Whether the round meets it again or not, somebody looks.
        while let Some(file) = files.next(&mut round) {
            assert!(file.due(now, delay, false) <= now);
        }
        let next = files.next_due(&round, delay);
        assert!(next.is_some_and(|next| next <= Instant::now() + BUSY), "{next:?}");
    }
}
