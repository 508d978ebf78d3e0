//! Limits the descriptors of open files: of one user, and of all together.
//!
//! # Boundary
//! Counts. `O_PATH` descriptors: [`super::descriptor`].
//!
//! # Concurrency
//! One lock, taken by an open and by the close that ends it, and held for a few instructions. A share is *opening* until
//! its file is among the open ones: only then can other opens have its descriptor given up. An open that finds all
//! shares taken waits for those that are opening ([`Shares::wait`]). A change counts before its waiters wake, and a
//! waiter names the count from before its search, so it misses none.
//!
//! # Why
//! Every open file takes a descriptor of this process, whose limit all users share. One program with 20,000 open files
//! left none for another user's `cat` or `touch`. So open files leave a reserve for requests that need a descriptor for
//! a moment, and one user's files leave a quarter to others'. At the limit, other open files first give theirs up
//! ([`super::given_up`]). If none can, the user gets EMFILE, the error of a process limit; ENFILE means that all users
//! together have too many. Weakness: if none can be given up, this may be lower than the limit of the user's own
//! program.

use crate::lock_order::HOST_FILES;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_vfs::{Error, Result};

/// Descriptors that a limit leaves to requests of a moment, at least, if it is not tiny.
const RESERVE_MIN: usize = 32;
/// And at most.
const RESERVE_MAX: usize = 2048;

/// The counts of one source.
#[derive(Debug)]
pub(super) struct Shares {
    state: Mutex<State>,
    /// Limit for all users together.
    total_max: usize,
    /// Limit for one user.
    user_max: usize,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    users: HashMap<u32, usize>,
    /// Shares whose files are still being opened, each with its user.
    opening: HashMap<u32, usize>,
    /// Shares that were returned, or whose files are open by now.
    changes: u64,
    waiting: usize,
}

impl State {
    fn opened(&mut self, uid: u32) {
        lessen(&mut self.opening, uid);
        self.changes += 1;
    }
}

/// Takes one from the count of `uid`.
fn lessen(counts: &mut HashMap<u32, usize>, uid: u32) {
    let left = counts.get_mut(&uid).map(|count| {
        *count -= 1;
        *count
    });
    if left == Some(0) {
        counts.remove(&uid);
    }
}

/// The right to keep one open file; returned when dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<Shares>,
    uid: u32,
    is_opening: bool,
}

/// Dropped when the file of a share is among the open ones.
#[must_use]
pub(super) struct Opening {
    shares: Arc<Shares>,
    uid: u32,
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state.opened(self.uid);
        self.shares.tell(&state);
    }
}

impl Shares {
    /// For a process that may have `limit` descriptors, of which `kept` are for reaching objects.
    pub(super) fn new(limit: usize, kept: usize) -> Arc<Self> {
        let reserve = (limit / 8).clamp(RESERVE_MIN, RESERVE_MAX).min(limit / 4);
        let total_max = limit.saturating_sub(kept.min(limit / 4) + reserve).max(2);
        let user_max = (total_max - total_max / 4).max(1);
        let state = Mutex::new(&HOST_FILES, State::default());
        Arc::new(Self { state, total_max, user_max, changed: Condvar::default() })
    }

    /// One open file more of user `uid`. Taken before the file is opened, or even made.
    pub(super) fn take(self: &Arc<Self>, uid: u32) -> Result<Share> {
        let mut state = self.state.lock();
        if state.total >= self.total_max {
            return Err(Error::TooManyFiles);
        }
        let held = state.users.entry(uid).or_default();
        if *held >= self.user_max {
            return Err(Error::TooManyOwnFiles);
        }
        *held += 1;
        state.total += 1;
        *state.opening.entry(uid).or_default() += 1;
        drop(state);
        Ok(Share { shares: self.clone(), uid, is_opening: true })
    }

    /// Counts changes, for [`Shares::wait`].
    pub(super) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Waits for a change after `seen`, as long as files are being opened: of `uid`, or of any user. Returns false if
    /// none are, or at `deadline`.
    pub(super) fn wait(&self, seen: u64, uid: Option<u32>, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let is_awaited =
                uid.map_or(!state.opening.is_empty(), |uid| state.opening.contains_key(&uid));
            if state.changes != seen || !is_awaited || left.is_zero() {
                return state.changes != seen && !left.is_zero();
            }
            state.waiting += 1;
            self.changed.wait_for(&mut state, left);
            state.waiting -= 1;
        }
    }

    fn tell(&self, state: &State) {
        if state.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Opens that wait for a share.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl Shares {
    /// The number of descriptors to give up at once: a search for them takes time, too.
    pub(super) fn batch(&self) -> usize {
        (self.user_max / 8).clamp(1, 256)
    }
}

impl Share {
    pub(super) fn uid(&self) -> u32 {
        self.uid
    }

    /// The share is about to go to an open file; drop the result when other opens find that file.
    pub(super) fn opened(&mut self) -> Option<Opening> {
        let was_opening = std::mem::take(&mut self.is_opening);
        was_opening.then(|| Opening { shares: self.shares.clone(), uid: self.uid })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        state.total -= 1;
        lessen(&mut state.users, self.uid);
        match self.is_opening {
            true => state.opened(self.uid),
            false => state.changes += 1,
        }
        self.shares.tell(&state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, in_process_with};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use uvfs_vfs::{Backend, Caller, FileRef, InodeId, Name, NewKind, NewNode, OpenMode};

    #[test]
    fn a_user_has_a_part_and_all_together_leave_a_reserve() {
        let shares = Shares::new(400, 100);
        let mut held: Vec<Share> = (0..188).map(|_| shares.take(1).unwrap()).collect();
        assert!(matches!(shares.take(1), Err(Error::TooManyOwnFiles)));
        held.extend((0..62).map(|_| shares.take(2).unwrap()));
        assert!(matches!(shares.take(2), Err(Error::TooManyFiles)));
        drop(held.remove(0));
        held.push(shares.take(1).unwrap());
        drop(held);
        let state = shares.state.lock();
        assert_eq!((state.total, state.users.len()), (0, 0));
    }

    /// The body of the next test, in a separate process: its limit applies to all threads.
    fn with_two_hundred_descriptors_in_all() {
        let scratch = Scratch::new();
        fs::set_permissions(scratch.path(""), fs::Permissions::from_mode(0o777)).unwrap();
        let [one, other] = [1234, 2345].map(|uid| Caller::new(uid, uid, &[]));
        let new = NewNode { kind: NewKind::Regular, mode: 0o666, umask: 0 };
        let create = |caller: &Caller, name: &str| {
            let (backend, name) = (&scratch.backend, Name::new(name.as_bytes()).unwrap());
            backend.creation().unwrap().create_and_open(
                caller,
                InodeId::ROOT,
                name,
                &new,
                OpenMode::READ_WRITE,
            )
        };
        // Directories that are being listed keep their descriptors.
        let mut open = Vec::new();
        let refused = loop {
            match scratch.backend.open_files().open(&one, InodeId::ROOT, OpenMode::READ) {
                Ok(file) => open.push(FileRef { inode: InodeId::ROOT, file }),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::TooManyOwnFiles) && open.len() > 50, "{}", open.len());
        assert!(matches!(create(&one, "refused"), Err(Error::TooManyOwnFiles)));
        assert!(!scratch.path("refused").exists(), "what cannot be opened is not made");
        // Another user continues: opens, makes, lists, asks.
        let (entry, file) = create(&other, "theirs").unwrap();
        let theirs = FileRef { inode: entry.inode, file };
        assert_eq!(scratch.backend.data().write(&other, theirs, 0, b"x").unwrap(), 1);
        assert!(scratch.lookup(InodeId::ROOT, "theirs").is_ok());
        scratch.backend.open_files().close(theirs);
        let others = std::iter::from_fn(|| {
            let file = scratch.backend.open_files().open(&other, InodeId::ROOT, OpenMode::READ);
            file.ok().map(|file| FileRef { inode: InodeId::ROOT, file })
        });
        let others: Vec<FileRef> = others.collect();
        let all = scratch.backend.open_files().open(&other, InodeId::ROOT, OpenMode::READ);
        assert!(matches!(all, Err(Error::TooManyFiles)), "{}", others.len());
        assert!(matches!(create(&other, "refused"), Err(Error::TooManyFiles)));
        assert!(!scratch.path("refused").exists(), "with ENFILE neither");
        scratch.backend.open_files().close(open.remove(0));
        assert!(create(&one, "again").is_ok(), "a close makes room");
    }

    /// Bug: LTP's creat05 and open04 hold 20,000 files open; meanwhile no other user could open one.
    #[test]
    fn one_user_that_opens_all_there_is_leaves_some_to_others() {
        if !crate::directory::testing::is_root() {
            return;
        }
        let name = concat!(
            "directory::shares::tests::",
            "one_user_that_opens_all_there_is_leaves_some_to_others"
        );
        in_process_with(200, name, with_two_hundred_descriptors_in_all);
    }
}
