//! Files that wait for write-back, ordered by the time when they are due.
//!
//! # Boundary
//! Finds the files that are due, and the time of the next one. [`super::write_back`] writes them, and
//! [`FilePages::due`] says when one is due. [`uvfs_concurrent::write_back::due`] keeps their order with Q1, Q2 and Q4,
//! and its models run the same code.
//!
//! Q3. A file that was refused for lack of space is in `full` until space is freed. Then it is due.
//!
//! A step costs one tree search for each file that is due, and one for each file whose place was too early. Other files
//! cost nothing. Steps rotate among the files that are due, so one large file does not delay the others.
//!
//! # Concurrency
//! One lock, taken before a file's own lock and held for one search. A file stays in the map during its run, so another
//! thread may write its next run. An `fsync` that succeeds ends a pause and wakes no thread. A thread looks at the file
//! when the pause was to end, at the latest.
//!
//! # Why
//! As Linux, which keeps `b_dirty` and `b_io`. Before, each step went over one list: one failing file among 100,000
//! cost 100,000 looks for each pause. Weakness: the tree allocates under the lock, once for every few files.

use super::file::{FilePages, WriteState};
use crate::lock_order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::write_back::due::{self, Next, Places, WaitsFor};

/// The next look, if other threads write the due files, or files became due behind the step.
const BUSY: Duration = Duration::from_millis(10);
/// Files examined per attempt by a thread that needs some page written.
const SOME: usize = 8;

/// A file's place in the order.
pub(super) type Place = due::Place<Instant>;
/// One step's way through the files that are due.
pub(super) type Round = due::Round<Instant>;

/// See the module.
#[derive(Debug)]
pub(super) struct DirtyFiles(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    files: Places<Instant, Arc<FilePages>>,
    /// Files that also wait for space, by owner.
    full: BTreeMap<u64, Arc<FilePages>>,
    /// [`super::space`]'s count when `full` was last emptied.
    freed: u64,
    /// Files given to steps so far.
    #[cfg(test)]
    looks: u64,
}

impl DirtyFiles {
    pub(super) fn new() -> Self {
        let queue = Queue {
            files: Places::new(),
            full: BTreeMap::new(),
            freed: 0,
            #[cfg(test)]
            looks: 0,
        };
        Self(Mutex::new(&lock_order::DIRTY_FILES, queue))
    }

    /// Queues a file that has unwritten data. Returns false if it is queued already.
    pub(super) fn add(&self, file: Arc<FilePages>) -> bool {
        let mut queue = self.0.lock();
        let mut local = file.local();
        if local.queued.is_some() || local.pinned_inode.is_none() {
            return false;
        }
        let since = local.since;
        local.queued = Some(queue.files.put((WaitsFor::Ripening, since), file.clone()));
        let refused = local.pause.and_then(|pause| pause.for_space);
        drop(local);
        if let Some(then) = refused {
            // A run of another writer was refused before the first write ended.
            queue.wants_space(&file, then);
        }
        true
    }

    /// A file may be due sooner than its place says.
    pub(super) fn hasten(&self, file: &FilePages) {
        self.0.lock().put(file, |local| (WaitsFor::Ripening, local.since));
    }

    /// A file may be due later than its place says.
    pub(super) fn postpone(&self, file: &FilePages, now: Instant) {
        let mut queue = self.0.lock();
        queue.put(file, |local| match local.pause {
            Some(pause) if pause.until > now => (WaitsFor::Paused, Some(pause.until)),
            _ => (WaitsFor::Ripening, local.since),
        });
    }

    /// A file was refused for lack of space when the count of freed space was `then`.
    pub(super) fn wants_space(&self, file: &FilePages, then: u64) {
        self.0.lock().wants_space(file, then);
    }

    /// Removes a file that has no unwritten data. False if it has some again.
    pub(super) fn remove_written_back(&self, file: &FilePages) -> bool {
        let mut queue = self.0.lock();
        let mut local = file.local();
        if local.pinned_inode.is_some() {
            return false;
        }
        let place = local.queued.take();
        local.forget_if_idle();
        drop(local);
        let gone =
            (place.and_then(|place| queue.files.remove(place)), queue.full.remove(&file.owner));
        drop(queue);
        drop(gone);
        true
    }

    /// Begins a step at `now`. In a `hurry`, all files count as due, except those that pause. `freed` is the count of
    /// freed space so far.
    pub(super) fn begin(
        &self,
        (now, delay): (Instant, Duration),
        hurry: bool,
        freed: u64,
    ) -> Round {
        let mut queue = self.0.lock();
        queue.end_pauses(now);
        // A concurrent step may have emptied `full` at a later count: then nothing is left to do.
        if freed > queue.freed {
            queue.freed = freed;
            // Each file is also in the map: no file is dropped here.
            for file in std::mem::take(&mut queue.full).into_values() {
                queue.put(&file, |_| (WaitsFor::Ripening, None));
            }
        }
        queue.files.begin(now.checked_sub(delay), hurry)
    }

    /// The next file that is due. `None` when the step has returned all of them.
    pub(super) fn next(&self, round: &mut Round) -> Option<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let file = queue.files.next(round)?;
        #[cfg(test)]
        {
            queue.looks += 1;
        }
        Some(file)
    }

    /// When to look again after `round`: when the next file is due. [`BUSY`] from now, if a due file was returned
    /// already, or became due behind the step (Q4).
    pub(super) fn next_due(&self, round: &Round, delay: Duration) -> Option<Instant> {
        let queue = self.0.lock();
        let now = Instant::now();
        match queue.files.next_due(round, now) {
            Next::Now => Some(now + BUSY),
            Next::Later { ripens_since, pause_ends } => {
                ripens_since.map(|since| since + delay).into_iter().chain(pause_ends).min()
            }
        }
    }

    /// Some files; a later call returns others.
    pub(super) fn some(&self) -> Vec<Arc<FilePages>> {
        self.0.lock().files.some(SOME)
    }

    /// All files.
    pub(super) fn all(&self) -> Vec<Arc<FilePages>> {
        self.0.lock().files.all()
    }

    /// Removes all files. The caller drops them with no lock held.
    pub(super) fn take(&self) -> Vec<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let full = std::mem::take(&mut queue.full);
        queue.files.take().into_iter().chain(full.into_values()).collect()
    }
}

impl Queue {
    /// Moves a queued file to the place that `choose` returns.
    fn put(
        &mut self,
        file: &FilePages,
        choose: impl FnOnce(&WriteState) -> (WaitsFor, Option<Instant>),
    ) {
        let mut local = file.local();
        if let Some(old) = local.queued {
            local.queued = Some(self.files.move_to(old, choose(&local)));
        }
    }

    /// Like [`DirtyFiles::wants_space`].
    fn wants_space(&mut self, file: &FilePages, then: u64) {
        let Some(place) = file.local().queued else { return };
        // The count is read under the lock under which `begin` empties `full`. Space freed before is seen here. Space
        // freed later finds the file in `full`.
        if then != file.cache.space.freed() {
            self.put(file, |_| (WaitsFor::Ripening, None));
        } else if let Some(file) = self.files.get(place).cloned() {
            self.full.insert(file.owner, file);
        }
    }

    /// Ends the pauses that last until `now`.
    fn end_pauses(&mut self, now: Instant) {
        while let Some((old, file)) = self.files.rested(now) {
            let mut local = file.local();
            debug_assert_eq!(local.queued, Some(old), "Q1");
            let since = local.since;
            local.queued = Some(self.files.move_to(old, (WaitsFor::Ripening, since)));
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
    use uvfs_concurrent::primitive::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
    use uvfs_containers::frame::Outcome;

    /// Files by number, without content. Writes to a file with an odd number fail with `refusal`, if it is an errno.
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

    /// Dirty files of one page each. None is due for an hour, so no thread looks at any.
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

    /// The looks of one write-back step, and the time at which it wants the next.
    fn step(core: &Core) -> (u64, Option<Instant>) {
        let looks = || core.pages.dirty_files.0.lock().looks;
        let before = looks();
        let next = core.write_back_step();
        (looks() - before, next)
    }

    fn make_due(core: &Core, count: usize) {
        core.pages.dirty_files.all().iter().take(count).for_each(|file| file.be_due());
    }

    /// A step went over all files, due or not, and took the lock twice for each. A file that failed every 100 ms cost a
    /// look at each of 100,000 that were not due for seconds.
    #[test]
    fn a_step_looks_at_what_is_due_and_at_nothing_else() {
        let (_store, vfs, _root) = dirty_files();
        let core = &vfs.core;
        let soon = Instant::now() + Duration::from_secs(1800);
        let (looks, next) = step(core);
        assert!(looks == 0 && next.is_some_and(|next| next > soon), "{looks} {next:?}");
        make_due(core, 3);
        // One look for each run that is written. The last run of a file is its end.
        let mut all = 0;
        for _ in 0..6 {
            let (looks, next) = step(core);
            all += looks;
            if next.is_none_or(|next| next > soon) {
                break;
            }
        }
        assert_eq!(all, 3);
        assert_eq!(core.pages.dirty_files.all().len() as u64, FILES - 3);
        assert_eq!(step(core).0, 0);
    }

    /// A file that the store takes as a whole was left alone for a second, because it was being written. It waited for
    /// that second and the whole write-back delay.
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
        while odd.has_unwritten() {
            let (looks, next) = step(core);
            all += looks;
            if let Some(next) = next.filter(|_| odd.has_unwritten()) {
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

    /// With too many dirty pages, files that are not due are written too, each in its turn.
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

    /// A store had failed and was back, but one page stayed dirty until the next `fsync`, in about one of twenty runs.
    /// An `fsync` succeeded between a thread's failure and its record of it, which ended the pause. The file was due
    /// and in the map, but behind the step, and no thread was to look.
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
        // The store refuses the thread, and takes an fsync's data before the thread records the refusal.
        file.failed(&Error::from(std::io::Error::from_raw_os_error(5)));
        file.answered(Outcome::Written);
        files.postpone(file, now);
        assert_eq!(files.next(&mut round).map(|file| file.inode), None);
        let next = files.next_due(&round, delay);
        assert!(next.is_some_and(|next| next <= Instant::now() + BUSY), "{next:?}");
    }

    /// The file comes to be due, and the step has passed the file's new place.
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
        first.answered(Outcome::Written);
        // Whether the round returns it again or not, a thread must look at it.
        while let Some(file) = files.next(&mut round) {
            assert!(file.due(now, delay, false) <= now);
        }
        let next = files.next_due(&round, delay);
        assert!(next.is_some_and(|next| next <= Instant::now() + BUSY), "{next:?}");
    }

    /// A step read the count of freed space, and began after another step had read a higher count. It removed the file
    /// from those that wait for space. When space was freed the file waited out its pause, up to five seconds.
    #[test]
    fn a_late_step_does_not_forget_the_files_that_wait_for_space() {
        let (_store, vfs, _root) = dirty_files();
        let (core, files) = (&vfs.core, &vfs.core.pages.dirty_files);
        core.pages.workers.stop();
        let (now, delay) = (Instant::now(), Duration::from_secs(3600));
        let file = files.all().into_iter().next().unwrap();
        let full = Error::NoSpace;
        let is_next = |freed| {
            let mut round = files.begin((now, delay), false, freed);
            files.next(&mut round).is_some_and(|next| Arc::ptr_eq(&next, &file))
        };
        file.be_due();
        file.failed(&full);
        files.postpone(&file, now);
        core.space_came();
        let freed = core.pages.space.freed();
        assert!(is_next(freed), "some came");
        file.failed(&full);
        files.postpone(&file, now);
        assert!(!is_next(freed - 1), "it began late, and none has come since");
        core.space_came();
        assert!(is_next(core.pages.space.freed()), "some came");
    }

    /// A run of another writer was refused before the file's first write had ended. The file was not queued yet, and so
    /// was not among those that wait for space.
    #[test]
    fn a_file_that_is_refused_before_it_is_queued_waits_for_space() {
        let (_store, vfs, _root) = dirty_files();
        let (core, files) = (&vfs.core, &vfs.core.pages.dirty_files);
        core.pages.workers.stop();
        let (now, delay) = (Instant::now(), Duration::from_secs(3600));
        let file = files.all().into_iter().next().unwrap();
        // The state before its first write has ended.
        let place = file.local().queued.take().unwrap();
        files.0.lock().files.remove(place);
        file.failed(&Error::NoSpace);
        assert!(files.add(file.clone()));
        files.postpone(&file, now);
        core.space_came();
        let mut round = files.begin((now, delay), false, core.pages.space.freed());
        assert!(files.next(&mut round).is_some_and(|next| Arc::ptr_eq(&next, &file)));
    }
}
