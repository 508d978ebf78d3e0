//! Files that wait to be written back, by when they are due.
//!
//! # Boundary
//! Finds the files that are due, and when the next one will be. How files are written is [`super::write_back`]'s, and
//! when one is due its own [`FilePages::due`]. Their order, and Q1, Q2 and Q4, are [`uvfs_concurrent::write_back::due`]'s, whose
//! models run the same code.
//!
//! Q3. A file that was refused for want of space is in `full` until some comes, wherever it waits: then it is due.
//!
//! So a step costs a search in the tree for each file that is due, and one for each file whose place had become too
//! early since. Files that are not due cost nothing, however many they are. Steps go round among those that are due: a
//! large file does not keep the threads from the others.
//!
//! # Concurrency
//! One lock, taken before a file's own and held for a search. A file stays in the map while it is written, so that
//! another thread may write its next run. An `fsync` that succeeds ends a pause and wakes no thread: what is left of the
//! file was written meanwhile, and a thread looks at the latest when the pause was to end.
//!
//! # Why
//! One list was gone over at each step: with 100,000 small files that wait five seconds, the pauses of one that
//! fails cost 100,000 looks each. As Linux, which keeps `b_dirty` and `b_io`. Weakness: an allocation of the tree for
//! every few files, under the lock.

use super::file::{FilePages, Local};
use crate::lock_order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::write_back::due::{self, Next, Places, WaitsFor};

/// How soon to look again when what is due is being written by others, or came while a step was looking elsewhere.
const BUSY: Duration = Duration::from_millis(10);
/// Files that one thread looks at which needs any page written.
const SOME: usize = 8;

/// Where a file is.
pub(super) type Place = due::Place<Instant>;
/// One step's way round the files that are due.
pub(super) type Round = due::Round<Instant>;

/// See the module.
#[derive(Debug)]
pub(super) struct DirtyFiles(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    files: Places<Instant, Arc<FilePages>>,
    /// Those that wait for space as well, by owner.
    full: BTreeMap<u64, Arc<FilePages>>,
    /// How much space had come when those that wait for it were looked at.
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

    /// Queues a file of which something is held back, if it is not there. Whether it was not.
    pub(super) fn add(&self, file: Arc<FilePages>) -> bool {
        let mut queue = self.0.lock();
        let mut local = file.local();
        if local.queued.is_some() || local.keeps.is_none() {
            return false;
        }
        let since = local.since;
        local.queued = Some(queue.files.put((WaitsFor::Ripening, since), file.clone()));
        let refused = local.pause.and_then(|pause| pause.for_space);
        drop(local);
        if let Some(then) = refused {
            // By another writer's run, before the first write ended.
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

    /// A file was refused for want of space when `then` had come.
    pub(super) fn wants_space(&self, file: &FilePages, then: u64) {
        self.0.lock().wants_space(file, then);
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
            (place.and_then(|place| queue.files.remove(place)), queue.full.remove(&file.owner));
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
        // Another step may have begun since that count was read: then the files are where they belong.
        if freed > queue.freed {
            queue.freed = freed;
            // Each has its place in the map too: none goes with this.
            for file in std::mem::take(&mut queue.full).into_values() {
                queue.put(&file, |_| (WaitsFor::Ripening, None));
            }
        }
        queue.files.begin(now.checked_sub(delay), hurry)
    }

    /// The next file that is due; `None` when the step has been at all of them.
    pub(super) fn next(&self, round: &mut Round) -> Option<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let file = queue.files.next(round)?;
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
        match queue.files.next_due(round, now) {
            Next::Now => Some(now + BUSY),
            Next::Later { ripens_since, pause_ends } => {
                ripens_since.map(|since| since + delay).into_iter().chain(pause_ends).min()
            }
        }
    }

    /// Some files, others each time.
    pub(super) fn some(&self) -> Vec<Arc<FilePages>> {
        self.0.lock().files.some(SOME)
    }

    /// All files.
    pub(super) fn all(&self) -> Vec<Arc<FilePages>> {
        self.0.lock().files.all()
    }

    /// Forgets all files, which are returned, to be dropped with no lock held.
    pub(super) fn take(&self) -> Vec<Arc<FilePages>> {
        let mut queue = self.0.lock();
        let full = std::mem::take(&mut queue.full);
        queue.files.take().into_iter().chain(full.into_values()).collect()
    }
}

impl Queue {
    /// Moves a file that is in the map to where `choose` says.
    fn put(
        &mut self,
        file: &FilePages,
        choose: impl FnOnce(&Local) -> (WaitsFor, Option<Instant>),
    ) {
        let mut local = file.local();
        if let Some(old) = local.queued {
            local.queued = Some(self.files.move_to(old, choose(&local)));
        }
    }

    /// As [`DirtyFiles::wants_space`].
    fn wants_space(&mut self, file: &FilePages, then: u64) {
        let Some(place) = file.local().queued else { return };
        // Read under the lock under which those that wait are gone over: what came before is seen here, what
        // comes later finds the file.
        if then != file.cache.space.freed() {
            self.put(file, |_| (WaitsFor::Ripening, None));
        } else if let Some(file) = self.files.get(place).cloned() {
            self.full.insert(file.owner, file);
        }
    }

    /// What was left alone until `now` is not any more.
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

    /// A step that had read how much space had come, and began after a step that knew of more, took the file out of those
    /// that wait for space. When some came the file waited out its pause, up to five seconds.
    #[test]
    fn a_late_step_does_not_forget_who_waits_for_space() {
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

    /// A file was refused before its first write had ended, by the run of another writer: it was not queued yet, and so
    /// not among those that wait for space.
    #[test]
    fn a_file_that_is_refused_before_it_is_queued_waits_for_space() {
        let (_store, vfs, _root) = dirty_files();
        let (core, files) = (&vfs.core, &vfs.core.pages.dirty_files);
        core.pages.workers.stop();
        let (now, delay) = (Instant::now(), Duration::from_secs(3600));
        let file = files.all().into_iter().next().unwrap();
        // As before its first write has ended.
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
