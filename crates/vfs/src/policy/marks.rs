//! The marked directories, their accounts, and the limit on passes over the caches.
//!
//! # Boundary
//! The table of marks and its limits. [`super`] defines the meaning of a mark for cached entries.
//!
//! # Concurrency
//! One lock, of the innermost class but one. Nothing is called under it. The hold on a directory that loses its mark is
//! dropped after it.
//!
//! # Why
//! The owner of a directory may mark it, so any user can cause marks, which cost memory and work. Each mark is on the
//! account of the user that set it. One user's marks do not use up other users' or root's limit. Weakness: 64 users
//! together reach the limit of all users, but not root's.

use super::POLICIES_MAX;
use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::lock_order;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uvfs_concurrent::generations::Generation;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use uvfs_containers::class::Class;

/// Directories that one user can have marked at a time.
pub const USER_POLICIES_MAX: usize = 64;

/// Passes over the caches in a row for users and moves, before further ones are delayed.
const PASSES_MAX: u32 = 16;
/// The least delay of a further pass, and its ratio to the duration of a pass.
const PASS_PAUSE: Duration = Duration::from_secs(1);
const PASS_SHARE: u32 = 10;

/// The account of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Account {
    /// Root, and the user that serves the file system.
    System,
    User(u32),
}

#[derive(Debug)]
struct Mark {
    directory: Node,
    account: Account,
}

#[derive(Debug)]
struct Marked {
    marks: HashMap<InodeId, Mark>,
    /// Marks of each account. An account without marks has no entry, so there are no more entries than marks.
    accounts: HashMap<Account, usize>,
}

impl Marked {
    /// Whether `account` may have one more mark.
    fn admits(&self, account: Account) -> Result<()> {
        let of = |account| self.accounts.get(&account).copied().unwrap_or(0);
        let system = of(Account::System);
        match account {
            Account::System if system >= POLICIES_MAX => {
                Err(Error::Invalid("no more than 4096 directories can be marked"))
            }
            Account::User(_)
                if of(account) >= USER_POLICIES_MAX
                    || self.marks.len() - system >= POLICIES_MAX =>
            {
                Err(Error::Quota)
            }
            _ => Ok(()),
        }
    }

    fn add(&mut self, directory: &Node, account: Account) {
        *self.accounts.entry(account).or_default() += 1;
        let mark = Mark { directory: directory.clone(), account };
        self.marks.insert(directory.id(), mark);
    }

    fn remove(&mut self, id: InodeId) -> Option<Mark> {
        let mark = self.marks.remove(&id)?;
        if let Some(count) = self.accounts.get_mut(&mark.account) {
            *count -= 1;
            if *count == 0 {
                self.accounts.remove(&mark.account);
            }
        }
        Some(mark)
    }
}

/// All marks. Each holds its directory.
#[derive(Debug)]
pub(crate) struct Marks {
    marked: Mutex<Marked>,
    count: AtomicUsize,
    /// Marks set and removed, and directories moved, so far.
    pub(super) changes: Generation,
    /// Passes over the caches that were begun because of that.
    pub(super) passes: Generation,
    due: Mutex<Due>,
    /// A pass was delayed.
    late: AtomicBool,
}

impl Marks {
    pub(crate) fn new() -> Self {
        let marked = Marked { marks: HashMap::new(), accounts: HashMap::new() };
        Self {
            marked: Mutex::new(&lock_order::POLICIES, marked),
            count: AtomicUsize::new(0),
            changes: Generation::default(),
            passes: Generation::default(),
            due: Mutex::new(&lock_order::POLICIES, Due::new(Instant::now())),
            late: AtomicBool::new(false),
        }
    }

    /// Marks.
    pub(super) fn count(&self) -> usize {
        // ORDERING: Relaxed; a size. A move concurrent with the first mark counts as before it (Q4).
        self.count.load(Relaxed)
    }

    /// The generation of marks now.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.now()
    }

    /// The directories that are marked.
    pub(super) fn directories(&self) -> Vec<Node> {
        self.marked.lock().marks.values().map(|mark| mark.directory.clone()).collect()
    }

    /// Sets or removes the mark of `directory` on `account`. Returns whether that changed it.
    pub(super) fn set(
        &self,
        directory: &Node,
        mark: Option<Class>,
        account: Account,
    ) -> Result<bool> {
        let own = &directory.inode.dir_state().own_mark;
        let mut marked = self.marked.lock();
        if own.get() == mark {
            return Ok(false);
        }
        let payer = marked.marks.get(&directory.id()).map(|mark| mark.account);
        if mark.is_some() && payer != Some(account) {
            marked.admits(account)?;
        }
        let gone = marked.remove(directory.id());
        if mark.is_some() {
            marked.add(directory, account);
        }
        own.set(mark);
        // ORDERING: Relaxed; a size, see `count`.
        self.count.store(marked.marks.len(), Relaxed);
        drop(marked);
        // Dropped with no lock held.
        drop(gone);
        Ok(true)
    }

    /// Whether a user or a move may cause a pass now. If not, a pass is late.
    pub(super) fn may_pass(&self) -> bool {
        let may = self.due.lock().take(Instant::now());
        // ORDERING: Relaxed; a hint that a pass is late. A thread may see it a moment later.
        self.late.store(!may, Relaxed);
        may
    }

    /// Whether a pass was delayed.
    pub(super) fn is_late(&self) -> bool {
        // ORDERING: Relaxed; a hint.
        self.late.load(Relaxed)
    }

    /// Records the duration of a pass.
    pub(super) fn passed(&self, took: Duration) {
        self.due.lock().pause = PASS_PAUSE.max(took * PASS_SHARE);
    }
}

/// Limits passes that any user may cause: some at once, then a share of the time.
#[derive(Debug)]
struct Due {
    left: u32,
    counted: Instant,
    pause: Duration,
}

impl Due {
    fn new(now: Instant) -> Self {
        Self { left: PASSES_MAX, counted: now, pause: PASS_PAUSE }
    }

    fn take(&mut self, now: Instant) -> bool {
        while self.left < PASSES_MAX && now.duration_since(self.counted) >= self.pause {
            self.counted += self.pause;
            self.left += 1;
        }
        if self.left == PASSES_MAX {
            self.counted = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_due_by_the_time_that_they_take() {
        let start = Instant::now();
        let mut due = Due::new(start);
        let granted =
            |due: &mut Due, at: Duration| (0..100).filter(|_| due.take(start + at)).count();
        assert_eq!(granted(&mut due, Duration::ZERO), 16);
        assert_eq!(granted(&mut due, Duration::from_millis(999)), 0);
        assert_eq!(granted(&mut due, Duration::from_millis(3500)), 3);
        due.pause = Duration::from_secs(2);
        assert_eq!(granted(&mut due, Duration::from_secs(5)), 1, "3 s were counted");
        assert_eq!(granted(&mut due, Duration::from_secs(100_000)), 16, "no more are saved up");
    }
}
