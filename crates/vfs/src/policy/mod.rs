//! Policies: directories whose cache entries are evicted last or first.
//!
//! # Boundary
//! Keeps the marks, and sets the class of names and pages. [`crate::reclaim`] and the page cache choose victims.
//!
//! # Concurrency
//! Q1. The nearest mark upwards decides. A directory keeps its class and the generation of marks for which it was found
//! ([`PolicyMemo`]). A thread that inserts an entry compares the generation, and walks up if it is old; an older answer
//! does not replace a newer one. A hit compares nothing: a mark costs nothing in other directories.
//! Q2. Setting a mark stores it, advances the generation, then reclassifies all cached names and files, again if
//! another thread began to do so meanwhile. On return every existing entry has the new class.
//! Q3. A directory that moves while there are marks advances the generation, too. If its class changes, a pass follows.
//! A file takes the class of its new directory.
//! Q5. Any user can set marks and move directories. Passes for them run a few times at once, then for at most an
//! eleventh of the time ([`marks`]). A delayed pass is made by a thread that inserts an entry when it is due.
//! Q4. A class is a hint for eviction, and no answer depends on it. An entry inserted while its directory is being
//! marked may have the old class. Bytes are counted by each name's own class, so they are exact.
//!
//! # Why
//! Each name and page has the class, because eviction sees names and not their directories. Weakness: a new mark or a
//! move may visit every cached name, some 0.2 s for a million. A marked directory stays in memory with those above it.

use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::{Inode, Node};
use crate::statistics::PolicyStatistics;
use crate::vfs::{Core, Vfs};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::time::Instant;
use uvfs_concurrent::primitive::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use uvfs_containers::class::Class;

mod marks;

pub use marks::USER_POLICIES_MAX;
pub(crate) use marks::{Account, Marks};

/// Directories that root can mark at a time, and all users together.
pub const POLICIES_MAX: usize = 4096;
/// The extended attribute that shows and sets the mark of a directory.
pub(crate) const XATTR: &[u8] = b"user.uvfs.cache";
/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Directories remembered during a pass, at most. Others are searched for again.
const MEMO_MAX: usize = 1 << 18;

/// How long cached entries of a directory, and of all below it, stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CachePolicy {
    /// Until they are unused and the room is needed.
    #[default]
    Normal,
    /// Longer than all unmarked entries, up to seven eighths of all.
    Keep,
    /// Evicted before all unmarked entries: they are read once.
    Once,
}

impl CachePolicy {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Keep => "keep",
            Self::Once => "once",
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Self::Normal => Class::Normal,
            Self::Keep => Class::Keep,
            Self::Once => Class::Once,
        }
    }

    pub(crate) fn of(class: Class) -> Self {
        match class {
            Class::Normal => Self::Normal,
            Class::Keep => Self::Keep,
            Class::Once => Self::Once,
        }
    }
}

impl fmt::Display for CachePolicy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl FromStr for CachePolicy {
    type Err = Error;

    /// # Errors
    /// [`Error::Invalid`] for all but "normal", "keep" and "once".
    fn from_str(name: &str) -> Result<Self> {
        let all = [Self::Normal, Self::Keep, Self::Once];
        let found = all.into_iter().find(|policy| policy.name() == name);
        found.ok_or(Error::Invalid("a policy is one of normal, keep and once"))
    }
}

/// A directory's class, and the generation for which it was found (Q1).
///
/// Word: `generation:62 | class:2`.
#[derive(Debug, Default)]
pub(crate) struct PolicyMemo(AtomicU64);

impl PolicyMemo {
    pub(crate) fn class(&self) -> Class {
        // ORDERING: Relaxed; a hint (Q4), in one word with the generation.
        Class::from_byte((self.0.load(Relaxed) & 3) as u8)
    }

    /// Whether the class is that of `generation`, or of a newer one.
    pub(crate) fn knows(&self, generation: u64) -> bool {
        // ORDERING: Relaxed; it comes with the class, in one word.
        self.0.load(Relaxed) >> 2 >= generation
    }

    /// `class` is valid as of `generation`, unless a newer one is known.
    pub(crate) fn learn(&self, class: Class, generation: u64) {
        // ORDERING: Relaxed; nothing else is read through the word.
        self.0.fetch_max(generation << 2 | class as u64, Relaxed);
    }
}

/// A directory's own mark: 0 for none, or a class and 1.
#[derive(Debug, Default)]
pub(crate) struct OwnMark(AtomicU64);

impl OwnMark {
    pub(crate) fn get(&self) -> Option<Class> {
        // ORDERING: Acquire, partner `set`; a thread that comes with a new generation sees the marks set before it.
        self.0.load(Acquire).checked_sub(1).map(|class| Class::from_byte(class as u8))
    }

    fn set(&self, class: Option<Class>) {
        // ORDERING: Release, partner `get`.
        self.0.store(class.map_or(0, |class| class as u64 + 1), Release);
    }
}

impl Vfs {
    /// Marks a directory, or removes its mark. Cached entries of it and of all below it are then evicted by `policy`,
    /// up to marks further down. Existing entries have their new class before this returns. The mark ends with the file
    /// system object, and with the directory.
    ///
    /// ```
    /// # use uvfs_vfs::{CachePolicy, Caller, Vfs, VfsConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = uvfs_backends::memory::MemoryBackend::new(Default::default())?;
    /// # let vfs = Vfs::new(store, VfsConfig::default())?;
    /// let top = vfs.root_directory(Caller::root());
    /// top.create_directory("backup", 0o755)?;
    /// let backup = top.open_directory("backup")?;
    /// vfs.set_policy(backup.node(), Some(CachePolicy::Once))?;
    /// assert_eq!(vfs.policy(backup.node()), (Some(CachePolicy::Once), CachePolicy::Once));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::NotFound`] if it was removed; [`Error::Invalid`] if
    /// [`POLICIES_MAX`] directories are marked.
    pub fn set_policy(&self, directory: &Node, policy: Option<CachePolicy>) -> Result<()> {
        self.set_policy_for(Account::System, directory, policy)
    }

    /// Like [`Vfs::set_policy`], with the mark on `account`. For a user's mark, existing entries may be reclassified
    /// later (Q5).
    ///
    /// # Errors
    /// [`Error::Quota`] if a user has marked [`USER_POLICIES_MAX`] directories.
    pub(crate) fn set_policy_for(
        &self,
        account: Account,
        directory: &Node,
        policy: Option<CachePolicy>,
    ) -> Result<()> {
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        let core = &*self.core;
        if policy.is_some() && directory.inode.is_unlinked() {
            return Err(Error::NotFound);
        }
        if core.marks.set(directory, policy.map(CachePolicy::class), account)? {
            if policy.is_some() && directory.inode.is_unlinked() {
                // Removed meanwhile: the removing thread may have found no mark.
                core.marks.set(directory, None, account)?;
            }
            core.marks.changes.advance();
            match account {
                Account::System => core.reclassify(),
                Account::User(_) => core.reclassify_when_due(),
            }
        }
        Ok(())
    }

    /// The mark of a directory, and the policy valid in it. Of anything else: the policy valid in the directory where
    /// it was last found.
    pub fn policy(&self, node: &Node) -> (Option<CachePolicy>, CachePolicy) {
        if !node.is_directory() {
            let home = node.inode.parent_hint().and_then(|home| self.core.inodes.peek(home));
            return (None, home.map_or(CachePolicy::Normal, |home| self.policy(&home).1));
        }
        self.core.learn_policy(&node.inode);
        (node.inode.own_mark().map(CachePolicy::of), CachePolicy::of(node.inode.class()))
    }

    /// Every marked directory, in no order.
    pub fn policies(&self) -> Vec<(Node, CachePolicy)> {
        let marked = self.core.marks.directories();
        let mark = |node: Node| node.inode.own_mark().map(|class| (node, CachePolicy::of(class)));
        marked.into_iter().filter_map(mark).collect()
    }
}

impl Core {
    /// The marks, and the entries cached by their policies.
    pub(crate) fn policy_statistics(&self) -> PolicyStatistics {
        let (kept_pages, once_pages) = self.pages.classes();
        PolicyStatistics {
            marks: self.marks.count() as u64,
            passes: self.marks.passes.now(),
            kept_name_bytes: self.names.kept_bytes() as u64,
            once_names: self.names.once_count() as u64,
            kept_pages,
            once_pages,
        }
    }

    /// The policy for cached entries of a directory.
    pub(crate) fn policy_in(&self, directory: InodeId) -> Option<CachePolicy> {
        let node = self.inodes.peek(directory)?;
        self.learn_policy(&node.inode).map(CachePolicy::of)
    }

    /// The class for cached entries of `directory`, which then has it (Q1). `None` if the place of the directory is not
    /// known.
    #[inline]
    pub(crate) fn learn_policy(&self, directory: &Inode) -> Option<Class> {
        let now = self.marks.changes.now();
        match directory.knows_policy(now) {
            true => Some(directory.class()),
            false => self.ask_policy_above(directory, now),
        }
    }

    /// Walks up to the first directory that is up to date or marked, and sets the class on the way down.
    #[cold]
    fn ask_policy_above(&self, directory: &Inode, now: u64) -> Option<Class> {
        let mut above: Vec<Node> = Vec::new();
        let class = loop {
            let highest = above.last().map_or(directory, |node| &node.inode);
            if let Some(mark) = highest.own_mark() {
                break mark;
            }
            if highest.knows_policy(now) {
                break highest.class();
            }
            match highest.parent() {
                // Where other programs move directories, cached parents may form a circle.
                Some(_) if above.len() > self.inodes.count() => return None,
                Some(parent) => above.push(parent),
                None if highest.id == InodeId::ROOT => break Class::default(),
                None => return None,
            }
        };
        above.iter().for_each(|node| node.inode.learn_class(class, now));
        directory.learn_class(class, now);
        Some(class)
    }

    /// A directory was removed: its mark is removed with it.
    pub(crate) fn forget_mark(&self, directory: &Node) {
        if directory.inode.own_mark().is_some() {
            // It is not below any directory any more: no pass is needed.
            let _ = self.marks.set(directory, None, Account::System);
        }
    }

    /// A directory moved to another parent (Q3).
    pub(crate) fn policy_moved(&self, directory: &Inode) {
        if self.marks.count() == 0 {
            return;
        }
        let before = directory.class();
        self.marks.changes.advance();
        if self.learn_policy(directory).is_some_and(|class| class != before) {
            self.reclassify_when_due();
        }
    }

    /// Makes a pass that was delayed (Q5). Called by a thread that inserts an entry, with no lock held.
    #[inline]
    pub(crate) fn reclassify_if_due(&self) {
        if self.marks.is_late() {
            self.reclassify_when_due();
        }
    }

    #[cold]
    fn reclassify_when_due(&self) {
        if self.marks.may_pass() {
            self.reclassify();
        }
    }

    /// Sets the class of all names and files anew. Of several concurrent calls, the one that ends last has begun a pass
    /// after all of them.
    fn reclassify(&self) {
        let began = Instant::now();
        self.marks.passes.advance();
        loop {
            let before = self.marks.passes.now();
            self.reclassify_once();
            if self.marks.passes.now() == before {
                break;
            }
        }
        self.marks.passed(began.elapsed());
    }

    /// Visits all names and files, in steps with no lock held between them.
    fn reclassify_once(&self) {
        let (mut known, mut at) = (HashMap::new(), 0);
        // The table may grow meanwhile: the entries of visited buckets move to visited ones.
        while at < self.names.buckets() {
            let mut unknown = HashSet::new();
            self.tell_names(at, &known, &mut unknown);
            if !unknown.is_empty() {
                if known.len() >= MEMO_MAX {
                    known.clear();
                }
                let policy = |id| (id, self.policy_in(id).map(CachePolicy::class));
                known.extend(unknown.drain().map(policy));
                // An entry inserted in between has its class already.
                self.tell_names(at, &known, &mut unknown);
            }
            at += BUCKETS;
            std::thread::yield_now();
        }
        self.pages.files().iter().for_each(|file| self.learn_page_policy(file));
    }

    /// Sets the class of the names in some buckets, and collects the directories with an unknown class. Uncached
    /// directories have no policy, and their names keep their class.
    fn tell_names(
        &self,
        at: usize,
        known: &HashMap<InodeId, Option<Class>>,
        unknown: &mut HashSet<InodeId>,
    ) {
        self.names.classify((at, BUCKETS), |entry| {
            let directory = InodeId(entry.parent());
            let class = known.get(&directory);
            if class.is_none() {
                unknown.insert(directory);
            }
            class.copied().flatten()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_policies() {
        for policy in [CachePolicy::Normal, CachePolicy::Keep, CachePolicy::Once] {
            assert_eq!(policy.to_string().parse::<CachePolicy>().unwrap(), policy);
            assert_eq!(CachePolicy::of(policy.class()), policy);
        }
        for wrong in ["", "Keep", "keep ", "once\n"] {
            assert!(matches!(wrong.parse::<CachePolicy>(), Err(Error::Invalid(_))), "{wrong:?}");
        }
    }

    #[test]
    fn an_older_answer_does_not_replace_a_newer_one() {
        let memo = PolicyMemo::default();
        assert!(memo.knows(0) && !memo.knows(1));
        assert_eq!(memo.class(), Class::Normal);
        memo.learn(Class::Once, 4);
        memo.learn(Class::Normal, 6);
        memo.learn(Class::Keep, 5);
        assert_eq!(memo.class(), Class::Normal);
    }

    #[test]
    fn no_mark_is_not_the_mark_normal() {
        let own = OwnMark::default();
        assert_eq!(own.get(), None);
        for class in [Class::Normal, Class::Keep, Class::Once] {
            own.set(Some(class));
            assert_eq!(own.get(), Some(class));
        }
        own.set(None);
        assert_eq!(own.get(), None);
    }
}
