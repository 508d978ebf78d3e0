//! Open files whose descriptor was given up, and how each opens again. `O_PATH` descriptors: [`super::descriptor`].
//!
//! ```text
//!          shares are used up, unused since the last round, and the object can be opened now
//!  Kept ─────────────────────────────────────────────────────────────────────────▶ Given up
//!    ▲                                                                                  │
//!    └─────────────────── used: reached by its node, opened as it was ──────────────────┘
//! ```
//!
//! # Concurrency
//! The state has a lock, held for a few instructions and with no other one. A user of a descriptor has its own
//! reference, so the descriptor is closed after its last use. That lock also covers the decision to give a file up.
//! [`HostNode::keep_descriptors`] is set before the states are read: a removal that can hold the object in no other way
//! either sees a descriptor given up, or none is given up afterwards.
//!
//! # Why
//! A process with 20,000 open files used up the daemon's descriptors ([`super::shares`]). Most open files are idle, and
//! for a passed-through file the daemon's descriptor is hardly ever used. Reads and writes have offsets, so a closed
//! descriptor loses no state.
//!
//! Weakness: a later use may fail. The daemon, which passes every mode, opens the object again, and tries that before
//! it gives a descriptor up. But a file that others remove on the host afterwards is stale, and one that they run or
//! make immutable cannot be written. Directories being listed keep their descriptors, and so does everything if the
//! daemon has no rights of its own.

use super::convert::open_flags;
use super::host::Host;
use super::node::HostNode;
use super::open::{OpenFiles, OpenHostFile};
use super::shares::Share;
use crate::lock_order::HOST_FILES;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{Error, FileKind, InodeId, OpenMode, Result};

/// Time in which an open gets a share, while others give theirs up or are being opened.
const SHARE_TIME: Duration = Duration::from_secs(5);

/// The descriptor of an open file, or the data to open it again.
#[derive(Debug)]
pub(super) struct OpenDescriptor {
    state: Mutex<State>,
    /// Used since the last search for descriptors to give up.
    recent: AtomicBool,
    /// There is one that may be given up; a hint beside the state.
    may_go: AtomicBool,
}

#[derive(Debug)]
enum State {
    /// Here; a share is had by those that are kept open.
    Kept(Arc<OwnedFd>, Option<Share>),
    /// Given up; whose it is.
    GivenUp(u32),
}

impl OpenDescriptor {
    pub(super) fn new(open: Arc<OwnedFd>) -> Self {
        Self {
            state: Mutex::new(&HOST_FILES, State::Kept(open, None)),
            recent: AtomicBool::new(true),
            may_go: AtomicBool::new(false),
        }
    }

    /// It is kept open, as `share`; whether it `may_go` when shares are used up.
    pub(super) fn kept(&self, share: Share, may_go: bool) {
        if let State::Kept(_, none) = &mut *self.state.lock() {
            *none = Some(share);
            // ORDERING: Relaxed; a hint, decided under the lock.
            self.may_go.store(may_go, Relaxed);
        }
    }

    /// The descriptor, if it is here.
    pub(super) fn get(&self) -> Option<Arc<OwnedFd>> {
        let State::Kept(open, _) = &*self.state.lock() else { return None };
        // ORDERING: Relaxed both; a hint. The load is first, so a file in use writes nothing.
        if !self.recent.load(Relaxed) {
            self.recent.store(true, Relaxed);
        }
        Some(open.clone())
    }

    /// Whose it is, if it was given up.
    pub(super) fn given_up(&self) -> Option<u32> {
        match *self.state.lock() {
            State::GivenUp(uid) => Some(uid),
            State::Kept(..) => None,
        }
    }

    /// Puts `open` into the place of one that was given up; the descriptor that is here then.
    fn restore(&self, open: Arc<OwnedFd>, share: Share) -> Arc<OwnedFd> {
        let mut state = self.state.lock();
        if let State::Kept(first, _) = &*state {
            return first.clone();
        }
        *state = State::Kept(open.clone(), Some(share));
        // ORDERING: Relaxed both; hints.
        self.recent.store(true, Relaxed);
        self.may_go.store(true, Relaxed);
        open
    }

    /// Gives the descriptor up, unless `node` needs it; returns it with its share, to be closed.
    fn give_up(&self, node: &HostNode) -> Option<(Arc<OwnedFd>, Share)> {
        let mut state = self.state.lock();
        if node.keeps_descriptors() {
            return None;
        }
        match std::mem::replace(&mut *state, State::GivenUp(0)) {
            State::Kept(open, Some(share)) => {
                *state = State::GivenUp(share.uid());
                // ORDERING: Relaxed; a hint.
                self.may_go.store(false, Relaxed);
                Some((open, share))
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// Whether it may be given up now, for `uid` if one is named; `used` ones have a second chance.
    fn is_candidate(&self, uid: Option<u32>, used: bool) -> bool {
        // ORDERING: Relaxed both; hints.
        if !self.may_go.load(Relaxed) || (self.recent.swap(false, Relaxed) && !used) {
            return false;
        }
        match &*self.state.lock() {
            State::Kept(_, Some(share)) => uid.is_none_or(|uid| share.uid() == uid),
            _ => false,
        }
    }
}

impl OpenFiles {
    /// Up to `count` open files whose descriptor may be given up, of `uid` if one is named: first those that were
    /// not used lately.
    fn candidates(&self, uid: Option<u32>, count: usize) -> Vec<Arc<OpenHostFile>> {
        let mut found = Vec::new();
        for used in [false, true] {
            self.each(|file| {
                if file.descriptor.is_candidate(uid, used) {
                    found.push(file.clone());
                }
                found.len() < count
            });
            if !found.is_empty() {
                break;
            }
        }
        found
    }

    /// Whether an open file of `inode` has given up its descriptor. Looks at all open files.
    fn any_given_up(&self, inode: InodeId) -> bool {
        let mut any = false;
        self.each(|file| {
            any = file.node.id == inode && file.descriptor.given_up().is_some();
            !any
        });
        any
    }
}

impl Host {
    /// Takes a share for one more open file of user `uid`; others give up their descriptors for it, if need be.
    ///
    /// # Errors
    /// Those of [`super::shares::Shares::take`], if no descriptor can be given up.
    pub(super) fn share(&self, uid: u32) -> Result<Share> {
        let deadline = Instant::now() + SHARE_TIME;
        loop {
            let seen = self.shares.changes();
            let error = match self.shares.take(uid) {
                Ok(share) => return Ok(share),
                Err(error) => error,
            };
            let of = matches!(error, Error::TooManyOwnFiles).then_some(uid);
            let candidates = self.files.candidates(of, self.shares.batch());
            let given_up = candidates.iter().filter(|file| self.give_up(file)).count();
            // Other opens take given-up descriptors, too.
            let is_hopeless = given_up == 0 && !self.shares.wait(seen, of, deadline);
            if is_hopeless || Instant::now() >= deadline {
                return Err(error);
            }
        }
    }

    /// Whether the descriptor of an open `node` may ever be given up.
    pub(super) fn may_give_up(&self, node: &HostNode) -> bool {
        node.kind == FileKind::Regular && self.identity.switches()
    }

    /// The descriptor of an open file. Must not be called as the caller.
    pub(super) fn descriptor_of(&self, file: &OpenHostFile) -> Result<Arc<OwnedFd>> {
        match file.descriptor.get() {
            Some(open) => Ok(open),
            None => self.have_again(file),
        }
    }

    fn have_again(&self, file: &OpenHostFile) -> Result<Arc<OwnedFd>> {
        let share = file.descriptor.given_up().map(|uid| self.share(uid));
        let open = Arc::new(self.open_again(file)?);
        self.counters.had_again.hit();
        match share {
            Some(Ok(mut share)) => {
                let _opening = share.opened();
                Ok(file.descriptor.restore(open, share))
            }
            // For this once, from the reserve for short requests.
            _ => Ok(open),
        }
    }

    fn open_again(&self, file: &OpenHostFile) -> Result<OwnedFd> {
        let denoting = self.descriptor(&file.node)?;
        self.reopen(&denoting, open_flags(OpenMode { truncate: false, ..file.mode }))
    }

    /// Gives the descriptor of `file` up, if it can be had again; whether it was.
    fn give_up(&self, file: &OpenHostFile) -> bool {
        match self.open_again(file) {
            Ok(_) => {}
            // No descriptor is left for the try. That passes.
            Err(Error::TooManyFiles) => return false,
            Err(_) => {
                // ORDERING: Relaxed; a hint.
                file.descriptor.may_go.store(false, Relaxed);
                return false;
            }
        }
        let gone = file.descriptor.give_up(&file.node);
        if gone.is_some() {
            self.counters.given_up.hit();
        }
        gone.is_some()
    }

    /// `node` is about to lose its last name, and no descriptor could be had to hold it. Those of its open files are
    /// not given up from now on.
    ///
    /// # Errors
    /// [`Error::TooManyFiles`] if one was given up already: its file would be lost.
    pub(super) fn hold_by_open_files(&self, node: &HostNode) -> Result<()> {
        node.keep_descriptors();
        match self.files.any_given_up(node.id) {
            true => Err(Error::TooManyFiles),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, in_process_with, root_caller};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use uvfs_vfs::{Backend, FileRef, Name, NewKind, NewNode};

    const ALL: usize = 500;

    /// One test of this module in a separate process: a limit of descriptors applies to all threads.
    fn with_few_descriptors(test: &str, body: fn()) {
        if !crate::directory::testing::is_root() {
            return;
        }
        in_process_with(200, &format!("directory::given_up::tests::{test}"), body);
    }

    fn create(scratch: &Scratch, name: &str) -> FileRef {
        let new = NewNode { kind: NewKind::Regular, mode: 0o600, umask: 0 };
        let (caller, name) = (root_caller(), Name::new(name.as_bytes()).unwrap());
        let mode = OpenMode::READ_WRITE;
        let made = scratch.backend.creation().unwrap().create_and_open(
            &caller,
            InodeId::ROOT,
            name,
            &new,
            mode,
        );
        let (entry, file) = made.unwrap();
        FileRef { inode: entry.inode, file }
    }

    fn text(scratch: &Scratch, file: FileRef) -> String {
        let mut into = [0; 64];
        let count = scratch.backend.data().read(file, 0, &mut into).unwrap();
        String::from_utf8_lossy(&into[..count]).into_owned()
    }

    fn many_files() {
        let scratch = Scratch::new();
        let files: Vec<FileRef> = (0..ALL).map(|at| create(&scratch, &format!("f{at}"))).collect();
        assert!(scratch.counter("descriptors_given_up") >= (ALL - 200) as u64);
        let write = |at: usize, text: &str| {
            let done = scratch.backend.data().write(&root_caller(), files[at], 0, text.as_bytes());
            assert_eq!(done.unwrap(), text.len());
        };
        (0..ALL).for_each(|at| write(at, &format!("text {at}")));
        // A mode without any rights, another name, and no name at all: an open file stays open.
        for at in (0..ALL).step_by(7) {
            let path = scratch.path(&format!("f{at}"));
            fs::set_permissions(path, fs::Permissions::from_mode(0o0)).unwrap();
        }
        for at in (0..ALL).step_by(11) {
            let (from, to) = (format!("f{at}"), format!("g{at}"));
            let mode = uvfs_vfs::RenameMode::Replace;
            scratch.rename(InodeId::ROOT, &from, InodeId::ROOT, &to, mode).unwrap();
        }
        for at in 0..20 {
            let name = if at % 11 == 0 { format!("g{at}") } else { format!("f{at}") };
            scratch.unlink(InodeId::ROOT, &name).unwrap();
            assert!(!scratch.path(&name).exists());
        }
        for (at, &file) in files.iter().enumerate() {
            let expected = format!("text {at}");
            assert_eq!(text(&scratch, file), expected);
            write(at, "TEXT");
            scratch.backend.data().sync(file, uvfs_vfs::SyncMode::Data).unwrap();
            assert_eq!(
                scratch.backend.inodes().attributes(file).unwrap().size,
                expected.len() as u64
            );
        }
        files.iter().for_each(|&file| scratch.backend.open_files().close(file));
        assert_eq!(scratch.counter("files_open"), 0);
        assert!(text(&scratch, create(&scratch, "last")).is_empty());
    }

    fn opens_in_flight() {
        let scratch = Scratch::new();
        let host = &scratch.backend.host;
        let mut opening = Vec::new();
        while let Ok(share) = host.shares.take(7) {
            opening.push(share);
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| host.share(7).map(drop));
            let others = scope.spawn(|| host.share(8).map(drop));
            others.join().unwrap().expect("other users have a part");
            while host.shares.waiting() == 0 {
                assert!(!waits.is_finished(), "it did not wait");
                std::thread::yield_now();
            }
            // The first of them is open now, and may be given up.
            let share = opening.pop().unwrap();
            let file = create(&scratch, "first");
            let open = scratch.backend.host.opened(file).unwrap();
            let node = open.node.clone();
            let descriptor = scratch.backend.host.open_again(&open).unwrap();
            host.keep_open(OpenHostFile::new(node, descriptor, OpenMode::READ_WRITE), share);
            waits.join().unwrap().unwrap();
        });
        // Nothing is being opened: a refusal comes at once.
        opening.iter_mut().for_each(|share| drop(share.opened()));
        while let Ok(mut share) = host.shares.take(7) {
            drop(share.opened());
            opening.push(share);
        }
        assert!(matches!(host.share(7), Err(Error::TooManyOwnFiles)));
    }

    /// Bug: of 300 programs that opened a file each at once, a few got EMFILE: all shares belonged to files that were
    /// still being opened, of which none could be given up.
    #[test]
    fn an_open_waits_for_those_that_are_being_opened() {
        with_few_descriptors("an_open_waits_for_those_that_are_being_opened", opens_in_flight);
    }

    /// Bug: LTP's creat05, open04 and fcntl12 hold as many files open as they may: they got ENFILE, not their own
    /// limit.
    #[test]
    fn more_files_are_open_than_there_are_descriptors() {
        with_few_descriptors("more_files_are_open_than_there_are_descriptors", many_files);
    }

    fn another_in_its_place() {
        let scratch = Scratch::new();
        let first = create(&scratch, "f");
        scratch.backend.data().write(&root_caller(), first, 0, b"first").unwrap();
        let others: Vec<FileRef> = (0..ALL).map(|at| create(&scratch, &format!("o{at}"))).collect();
        assert!(scratch.host().opened(first).unwrap().descriptor.given_up().is_some());
        // Without the daemon's knowledge, so that nothing holds it.
        fs::rename(scratch.path("o1"), scratch.path("f")).unwrap();
        scratch.close_descriptors();
        let refused = scratch.backend.data().read(first, 0, &mut [0; 8]);
        assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
        let refused = scratch.backend.data().write(&root_caller(), first, 0, b"x");
        assert!(matches!(refused, Err(Error::Stale)), "{refused:?}");
        assert_eq!(
            fs::read(scratch.path("f")).unwrap(),
            b"",
            "nothing was written into another file"
        );
        drop(others);
    }

    #[test]
    fn another_file_is_never_opened_in_its_place() {
        with_few_descriptors("another_file_is_never_opened_in_its_place", another_in_its_place);
    }

    /// After any operations in any order, an open file reads its written data.
    fn any_order() {
        (0..40_u64).for_each(steps_of);
    }

    /// Sixty steps by `seed`, which a failure names.
    fn steps_of(seed: u64) {
        let scratch = Scratch::new();
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
        let mut below = |bound: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(random >> 33).unwrap() % bound
        };
        let mut open: Vec<(FileRef, String, bool)> = Vec::new();
        for at in 0..60 {
            let what = below(6);
            if what < 2 || open.is_empty() {
                let name = format!("n{at}");
                open.push((create(&scratch, &name), name, true));
                continue;
            }
            let which = below(open.len());
            let (file, name, named) = &mut open[which];
            match what {
                2 => {
                    let written =
                        scratch.backend.data().write(&root_caller(), *file, 0, name.as_bytes());
                    assert_eq!(written.unwrap(), name.len(), "seed {seed}");
                }
                3 => {
                    let file = scratch.host().opened(*file).unwrap();
                    scratch.host().give_up(&file);
                }
                4 if std::mem::replace(named, false) => {
                    scratch.unlink(InodeId::ROOT, name).unwrap();
                }
                4 => {}
                _ => {
                    let (file, ..) = open.swap_remove(which);
                    scratch.backend.open_files().close(file);
                }
            }
            for (file, name, _) in &open {
                let text = text(&scratch, *file);
                assert!(text.is_empty() || text == *name, "seed {seed}: {text} in {name}");
            }
        }
        assert!(seed > 0 || scratch.counter("descriptors_given_up") > 0);
    }

    #[test]
    fn an_open_file_reads_its_own_bytes_whatever_was_given_up() {
        with_few_descriptors("an_open_file_reads_its_own_bytes_whatever_was_given_up", any_order);
    }

    #[test]
    fn what_is_held_by_open_files_alone_is_not_given_up() {
        if !crate::directory::testing::is_root() {
            return;
        }
        let scratch = Scratch::new();
        let file = create(&scratch, "f");
        let open = scratch.host().opened(file).unwrap();
        scratch.host().hold_by_open_files(&open.node).unwrap();
        assert!(!scratch.host().give_up(&open) && open.descriptor.given_up().is_none());
        let other = create(&scratch, "g");
        let open = scratch.host().opened(other).unwrap();
        assert!(scratch.host().give_up(&open));
        let refused = scratch.host().hold_by_open_files(&open.node);
        assert!(matches!(refused, Err(Error::TooManyFiles)));
    }
}
