//! A walk over all regular files below a directory, by several threads.
//!
//! # Boundary
//! Finds files and opens them ([`Opener`]); the [`Visitor`] works on each. Order is not defined. Files created or
//! removed during the walk may be seen or not.
//!
//! # Concurrency
//! The queue is a stack of directories not yet listed and of batches of names not yet opened. A thread that lists a
//! directory opens the files itself, unless another thread is idle: then that gets the batch. So one flat directory
//! keeps all threads busy, and the stack stays small. The walk ends when the stack is empty and no thread works. The
//! calling thread only waits, and shows progress.
//!
//! # Why
//! A directory is read in large pieces (getdents64(2)), and the type in each entry decides the next step: no stat per
//! name. A batch is opened in the order of inode numbers, in which most file systems keep inodes on disk. A parent's
//! descriptor is closed as soon as its last child is opened, so a deep tree needs few. Weakness: a very wide one keeps
//! the names of its directories in memory.

use super::QUEUE;
use super::opener::{Fill, Offered, Opened, Opener, Refused};
use super::place::Place;
use super::tally::{Outcome, Tally};
use rustix::fs::{self, AtFlags, FileType, RawDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_terminal::interrupt::Interrupt;

/// Bytes of entries read at once.
const LISTING_BYTES: usize = 256 << 10;
/// Files opened by one thread before it checks for idle threads.
const BATCH: usize = 1024;
/// Threads: on few cores some more, since a cold tree makes them wait for the disk.
const THREADS: std::ops::RangeInclusive<usize> = 4..=16;
/// Time between two views of the progress.
const TICK: Duration = Duration::from_millis(100);

/// The work on the files of a walk. Called from several threads at once.
pub(super) trait Visitor: Sync {
    /// The number under which [`Visitor::counted`] gets the files of the directory `name` below `parent`.
    fn enter(&self, parent: &Place, name: &CStr) -> usize;
    /// Visits one open regular file; its additions to `tally` count for its directory.
    ///
    /// # Errors
    /// The reason why the file could not be visited.
    fn file(&self, file: &OwnedFd, tally: &mut Tally) -> io::Result<()>;
    /// Some of the names in `place` were visited, and this came of it.
    fn counted(&self, place: &Place, tally: &Tally);
    /// The directory was listed.
    fn listed(&self, directory: &OwnedFd);
}

/// How far a walk is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Files that were opened.
    pub(super) files: Counter,
    /// Directories that were listed.
    pub(super) directories: Counter,
}

/// How to walk.
pub(super) struct Walk<'a> {
    /// Calls of this kernel.
    pub(super) offered: Offered,
    /// Whether names may be brought into its cache.
    pub(super) fill: Fill,
    /// Ends the walk early.
    pub(super) interrupt: &'a Interrupt,
    /// Called now and then by the thread that waits.
    pub(super) show: &'a dyn Fn(&Progress),
}

impl Walk<'_> {
    /// Visits all regular files below `start`, which is called `path`, and whose node is 0.
    ///
    /// # Errors
    /// If `start` cannot be looked at.
    pub(super) fn run(
        &self,
        start: OwnedFd,
        path: &OsStr,
        visitor: &dyn Visitor,
    ) -> io::Result<Outcome> {
        raise_descriptors();
        let opener = Opener::new(start.as_fd(), self.offered, self.fill)?;
        let first = Work::List(Arc::new(Directory { file: start, place: Place::start(path, 0) }));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.clamp(*THREADS.start(), *THREADS.end());
        let state = State { stack: vec![first], busy: 0, idle: 0, ended: 0 };
        let shared = Shared {
            queue: Mutex::new(&QUEUE, state),
            work: Condvar::default(),
            end: Condvar::default(),
            opener,
            visitor,
            interrupt: self.interrupt,
            progress: Progress::default(),
        };
        let mut sum = Outcome::default();
        thread::scope(|scope| {
            let spawned: Vec<_> = (0..threads).map(|_| scope.spawn(|| shared.worker())).collect();
            let mut state = shared.queue.lock();
            while state.ended < threads {
                shared.end.wait_for(&mut state, TICK);
                drop(state);
                (self.show)(&shared.progress);
                state = shared.queue.lock();
            }
            drop(state);
            for thread in spawned {
                match thread.join() {
                    Ok(outcome) => sum.merge(outcome),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        sum.interrupted |= self.interrupt.is_set();
        Ok(sum)
    }
}

/// A directory that stays open while it has names to open.
#[derive(Debug)]
struct Directory {
    file: OwnedFd,
    place: Arc<Place>,
}

/// Something to do.
#[derive(Debug)]
enum Work {
    /// List an open directory.
    List(Arc<Directory>),
    /// Open the directory of this name, and list it.
    Enter(Arc<Directory>, CString),
    /// Visit these files.
    Files(Arc<Directory>, Names),
}

/// Names in one piece of memory, with their inode numbers.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    /// Inode number, and where in `bytes` the name begins.
    starts: Vec<(u64, usize)>,
}

impl Names {
    fn push(&mut self, inode: u64, name: &CStr) {
        self.starts.push((inode, self.bytes.len()));
        self.bytes.extend_from_slice(name.to_bytes_with_nul());
    }

    /// The names by inode number.
    fn sorted(&mut self) -> impl Iterator<Item = &CStr> {
        self.starts.sort_unstable();
        let names =
            self.starts.iter().map(|&(_, at)| CStr::from_bytes_until_nul(&self.bytes[at..]));
        // Each was pushed with its NUL.
        names.flatten()
    }
}

/// The queue.
#[derive(Debug)]
struct State {
    stack: Vec<Work>,
    /// Threads that work, and may add to the stack.
    busy: usize,
    /// Threads that wait for work.
    idle: usize,
    /// Threads that are done.
    ended: usize,
}

/// The state that the threads of a walk share.
struct Shared<'a> {
    queue: Mutex<State>,
    work: Condvar,
    end: Condvar,
    opener: Opener,
    visitor: &'a dyn Visitor,
    interrupt: &'a Interrupt,
    progress: Progress,
}

/// Tells the others that a thread is done, however it ends: a panic must not leave them waiting.
struct Ending<'a, 'b>(&'a Shared<'b>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.0.queue.lock();
        state.ended += 1;
        if thread::panicking() {
            state.busy -= 1;
            state.stack.clear();
        }
        drop(state);
        self.0.work.notify_all();
        self.0.end.notify_all();
    }
}

impl Shared<'_> {
    /// One thread of the walk.
    fn worker(&self) -> Outcome {
        let _ending = Ending(self);
        let mut outcome = Outcome::default();
        let mut listing = Vec::with_capacity(LISTING_BYTES);
        let mut state = self.queue.lock();
        loop {
            if self.interrupt.is_set() {
                state.stack.clear();
            }
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                drop(state);
                self.work(work, &mut listing, &mut outcome);
                state = self.queue.lock();
                state.busy -= 1;
            } else if state.busy == 0 {
                return outcome;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
            }
        }
    }

    fn work(&self, work: Work, listing: &mut Vec<u8>, outcome: &mut Outcome) {
        match work {
            Work::List(directory) => self.list(&directory, listing, outcome),
            Work::Files(directory, names) => self.files(&directory, names, outcome),
            Work::Enter(parent, name) => match self.opener.directory(&parent.file, &name) {
                Ok(Opened { file, filled }) => {
                    outcome.tally.names_filled += u64::from(filled);
                    let node = self.visitor.enter(&parent.place, &name);
                    let place = parent.place.below(&name, node);
                    // From here on the parent may be closed.
                    drop(parent);
                    self.list(&Arc::new(Directory { file, place }), listing, outcome);
                }
                Err(refused) => count(refused, &parent.place, &name, outcome),
            },
        }
    }

    /// Adds to the stack, and wakes the threads that wait for it.
    fn push(&self, work: impl Iterator<Item = Work>) {
        self.queue.lock().stack.extend(work);
        self.work.notify_all();
    }

    /// Lists a directory: visits its files or has them visited, and queues its directories.
    fn list(&self, directory: &Arc<Directory>, buffer: &mut Vec<u8>, outcome: &mut Outcome) {
        let mut directories = Vec::new();
        let mut names = Names::default();
        buffer.clear();
        let mut entries = RawDir::new(&directory.file, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            if self.interrupt.is_set() {
                break;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    outcome.tally.failed += 1;
                    outcome.fault(|| directory.place.path(), error.into());
                    break;
                }
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => kind(&directory.file, name),
                kind => kind,
            };
            match kind {
                FileType::Directory => directories.push(CString::from(name)),
                FileType::RegularFile => names.push(entry.ino(), name),
                _ => outcome.tally.others += 1,
            }
            if names.starts.len() == BATCH {
                self.hand_over(directory, std::mem::take(&mut names), outcome);
            }
        }
        self.visitor.listed(&directory.file);
        outcome.tally.directories += 1;
        self.progress.directories.hit();
        if !directories.is_empty() {
            let enter = |name| Work::Enter(Arc::clone(directory), name);
            self.push(directories.into_iter().map(enter));
        }
        self.hand_over(directory, names, outcome);
    }

    /// Gives a batch to an idle thread, or visits it here.
    fn hand_over(&self, directory: &Arc<Directory>, names: Names, outcome: &mut Outcome) {
        let mut state = self.queue.lock();
        if state.idle > 0 && names.starts.len() > 1 {
            state.stack.push(Work::Files(Arc::clone(directory), names));
            drop(state);
            self.work.notify_one();
        } else {
            drop(state);
            self.files(directory, names, outcome);
        }
    }

    fn files(&self, directory: &Directory, mut names: Names, outcome: &mut Outcome) {
        let mut tally = Tally::default();
        for name in names.sorted() {
            if self.interrupt.is_set() {
                break;
            }
            match self.opener.file(&directory.file, name) {
                Ok(Opened { file, filled }) => {
                    tally.names_filled += u64::from(filled);
                    tally.files += 1;
                    if let Err(error) = self.visitor.file(&file, &mut tally) {
                        tally.failed += 1;
                        outcome.fault(|| join(&directory.place, name), error);
                    }
                }
                Err(refused) => count(refused, &directory.place, name, outcome),
            }
        }
        self.progress.files.add(tally.files);
        self.visitor.counted(&directory.place, &tally);
        outcome.tally += &tally;
    }
}

/// Counts a name that was not opened.
fn count(refused: Refused, place: &Place, name: &CStr, outcome: &mut Outcome) {
    match refused {
        Refused::Mount => outcome.tally.mounts += 1,
        Refused::Vanished => outcome.tally.vanished += 1,
        Refused::Cold => outcome.tally.names_cold += 1,
        Refused::Denied(error) => {
            outcome.tally.denied += 1;
            outcome.fault(|| join(place, name), error);
        }
        Refused::Failed(error) => {
            outcome.tally.failed += 1;
            outcome.fault(|| join(place, name), error);
        }
    }
}

fn join(place: &Place, name: &CStr) -> std::path::PathBuf {
    place.path().join(OsStr::from_bytes(name.to_bytes()))
}

/// The kind of `name`, if the listing does not have it.
fn kind(directory: &OwnedFd, name: &CStr) -> FileType {
    let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT);
    stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// A wide tree keeps one descriptor per directory that has children to be opened. If the limit cannot be
/// raised, opens fail and are counted.
fn raise_descriptors() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Seen, offered_ways, walk};
    use super::*;
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_regular_file_is_visited_once_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let mut sizes = BTreeSet::new();
        for (at, name) in ["a", "d/b", "d/e/c", "d/e/d", "f/x"].iter().enumerate() {
            std::fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            std::fs::write(base.join(name), vec![0; at + 1]).unwrap();
            sizes.insert(at as u64 + 1);
        }
        symlink("a", base.join("link")).unwrap();
        symlink("d", base.join("d/loop")).unwrap();
        symlink("/", base.join("f/out")).unwrap();
        fs::mknodat(
            fs::CWD,
            base.join("fifo"),
            FileType::Fifo,
            fs::Mode::from_raw_mode(0o600),
            fs::makedev(0, 0),
        )
        .unwrap();
        for offered in offered_ways() {
            let seen = Seen::default();
            let outcome = walk(&base, offered, Fill::Allowed, &seen);
            assert_eq!(seen.sizes(), sizes.iter().copied().collect::<Vec<_>>());
            let Tally { files, directories, others, denied, failed, .. } = outcome.tally;
            assert_eq!((files, directories, others), (5, 4, 4), "{outcome:?}");
            assert_eq!((denied, failed, outcome.interrupted), (0, 0, false));
        }
    }

    #[test]
    fn a_flat_and_a_deep_tree_are_walked_to_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (flat, deep) = (base.join("flat"), base.join("deep"));
        std::fs::create_dir(&flat).unwrap();
        for number in 0..3 * BATCH {
            std::fs::write(flat.join(number.to_string()), "").unwrap();
        }
        let mut below = deep.clone();
        for _ in 0..400 {
            below.push("d");
        }
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("file"), "").unwrap();
        let outcome = walk(&base, Offered::probe(), Fill::Allowed, &Seen::default());
        assert_eq!(outcome.tally.files, 3 * BATCH as u64 + 1);
        assert_eq!(outcome.tally.directories, 1 + 1 + 401);
    }

    #[test]
    fn an_interrupt_ends_it_early() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        let interrupt = Interrupt::default();
        interrupt.set();
        let seen = Seen::default();
        let start = std::fs::File::open(folder.path()).unwrap();
        let walk = Walk {
            offered: Offered::probe(),
            fill: Fill::Allowed,
            interrupt: &interrupt,
            show: &|_| {},
        };
        let outcome = walk.run(start.into(), OsStr::new("/x"), &seen).unwrap();
        assert!(outcome.interrupted && seen.sizes().is_empty(), "{outcome:?}");
    }

    #[test]
    fn a_visitor_that_fails_is_counted_with_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::write(base.join("bad"), "x").unwrap();
        std::fs::write(base.join("good"), "xx").unwrap();
        let seen = Seen::failing_at(1);
        let outcome = walk(&base, Offered::probe(), Fill::Allowed, &seen);
        assert_eq!((outcome.tally.files, outcome.tally.failed), (2, 1));
        assert_eq!(outcome.faults[0].0, base.join("bad"));
    }

    #[test]
    fn names_come_by_inode_number() {
        let mut names = Names::default();
        for (inode, name) in [(5, c"e"), (1, c"a"), (3, c"long name")] {
            names.push(inode, name);
        }
        assert_eq!(names.sorted().collect::<Vec<_>>(), [c"a", c"long name", c"e"]);
    }
}
