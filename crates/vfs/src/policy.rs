//! Policies: which directories' caches go before the others', and which after.
//!
//! # Boundary
//! Keeps the marks, and tells names and pages of which class they are. What goes, and when, is
//! [`crate::reclaim`]'s and the page cache's; how a directory learns what it lies under, [`crate::clean`]'s.
//!
//! # Concurrency
//! Q1. The nearest mark upwards decides. A directory keeps what it was last told ([`PolicyMemo`]), with the
//!     generation of cleanings for which that was found: whoever asks with a newer generation asks above, as
//!     for cleanings, and an older answer does not replace a newer one.
//! Q2. Who sets a mark stores it first, then advances the generation, then goes once over the names and
//!     the files, and once more if others have set marks meanwhile: what was cached before is of the new class
//!     when he returns.
//! Q3. A directory that moves to another parent advances the generation as well, while there are marks; and
//!     if its policy is another one there, goes over them, too. A file asks the directory that it comes to.
//! Q4. A class is a hint to who makes room; nothing that is answered depends on it. A name or page that comes
//!     in at the very moment in which its directory is marked may have the class from before. Bytes are
//!     counted by the class that a name has, so they are exact all the same.
//!
//! # Why
//! The class lies with each name (in a byte that was unused) and with each page's queue, not with the
//! directory: who makes room sees names, and does not know where they are. Linux has no such thing; programs
//! help themselves with posix_fadvise(2), file by file, and for names with nothing. Weakness: setting a mark,
//! or moving a directory to where another one holds, takes as long as looking at every cached name, some
//! 0.2 s for a million; a marked directory stays in memory, with those above it; and names to be kept that were
//! cleaned, and not reaped, stay as long as others that are to be kept.

use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::{Inode, Node};
use crate::lock_order;
use crate::statistics::PolicyStatistics;
use crate::vfs::{Core, Vfs};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use uvfs_concurrent::class::Class;
use uvfs_concurrent::generations::Generation;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Directories that can be marked at a time.
pub const POLICIES_MAX: usize = 4096;
/// The extended attribute that shows and sets the mark of a directory.
pub(crate) const XATTR: &[u8] = b"user.uvfs.cache";
/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Directories remembered at most during a pass; more are asked again.
const MEMO_MAX: usize = 1 << 18;

/// How long what is cached of a directory, and of all below it, stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CachePolicy {
    /// As long as it is used and there is room.
    #[default]
    Normal,
    /// Longer than all that is not marked so, as long as it is no more than seven eighths of all.
    Keep,
    /// It goes before all that is not marked so: it is read once.
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

/// The class that holds somewhere, and the generation for which that was found (Q1).
///
/// Word: `generation:62 | class:2`.
#[derive(Debug, Default)]
pub(crate) struct PolicyMemo(AtomicU64);

impl PolicyMemo {
    pub(crate) fn class(&self) -> Class {
        // ORDERING: Relaxed; a hint (Q4), and who asked above before has it by the Acquire there.
        Class::from_byte((self.0.load(Relaxed) & 3) as u8)
    }

    /// `class` holds as of `generation`, unless something newer is known.
    pub(crate) fn learn(&self, class: Class, generation: u64) {
        // ORDERING: Relaxed; published by `Inode::be_cleaned`, which follows.
        self.0.fetch_max(generation << 2 | class as u64, Relaxed);
    }
}

/// A directory's own mark: 0 for none, or a class and 1.
#[derive(Debug, Default)]
pub(crate) struct OwnMark(AtomicU64);

impl OwnMark {
    pub(crate) fn get(&self) -> Option<Class> {
        // ORDERING: Acquire, partner `set`; who comes by a new generation sees what was set before it.
        self.0.load(Acquire).checked_sub(1).map(|class| Class::from_byte(class as u8))
    }

    fn set(&self, class: Option<Class>) {
        // ORDERING: Release, partner `get`.
        self.0.store(class.map_or(0, |class| class as u64 + 1), Release);
    }
}

/// All marks. Each holds its directory.
#[derive(Debug)]
pub(crate) struct Marks {
    marked: Mutex<HashMap<InodeId, Node>>,
    count: AtomicUsize,
    /// Marks set and taken away, and directories moved, so far.
    changes: Generation,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self {
            marked: Mutex::new(&lock_order::POLICIES, HashMap::new()),
            count: AtomicUsize::new(0),
            changes: Generation::default(),
        }
    }

    /// Whether there may be any.
    fn any(&self) -> bool {
        // ORDERING: Relaxed; who moves a directory while the first mark is set did so before (Q4).
        self.count.load(Relaxed) > 0
    }

    /// Sets or takes away the mark of `directory`; whether it was another one.
    fn set(&self, directory: &Node, mark: Option<Class>) -> Result<bool> {
        let own = &directory.inode.rest().own_mark;
        let mut marked = self.marked.lock();
        if own.get() == mark {
            return Ok(false);
        }
        let gone = match mark {
            Some(_) if marked.contains_key(&directory.id()) => None,
            Some(_) if marked.len() >= POLICIES_MAX => {
                return Err(Error::Invalid("no more than 4096 directories can be marked"));
            }
            Some(_) => marked.insert(directory.id(), directory.clone()),
            None => marked.remove(&directory.id()),
        };
        own.set(mark);
        // ORDERING: Relaxed; as in `any`.
        self.count.store(marked.len(), Relaxed);
        drop(marked);
        // Given back with no lock held.
        drop(gone);
        Ok(true)
    }
}

impl Vfs {
    /// Marks a directory, or takes its mark away: what is cached of it and of all below it then goes as
    /// `policy` says, up to marks further down. What is cached already is told before this returns. The mark
    /// ends with the file system object, and with the directory.
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
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        let core = &*self.core;
        if policy.is_some() && directory.inode.is_unlinked() {
            return Err(Error::NotFound);
        }
        if core.marks.set(directory, policy.map(CachePolicy::class))? {
            if policy.is_some() && directory.inode.is_unlinked() {
                // Removed meanwhile; whoever did may have found no mark.
                core.marks.set(directory, None)?;
            }
            core.marks.changes.advance();
            core.cleans.advance();
            core.tell_classes();
        }
        Ok(())
    }

    /// The mark of a directory, and what holds in it. Of anything else: what holds in the directory where it
    /// was last found.
    pub fn policy(&self, node: &Node) -> (Option<CachePolicy>, CachePolicy) {
        if !node.is_directory() {
            let home = node.inode.home().and_then(|home| self.core.inodes.peek(home));
            return (None, home.map_or(CachePolicy::Normal, |home| self.policy(&home).1));
        }
        self.core.learn_cleans(&node.inode);
        (node.inode.own_mark().map(CachePolicy::of), CachePolicy::of(node.inode.class()))
    }

    /// Every directory that is marked, in no order.
    pub fn policies(&self) -> Vec<(Node, CachePolicy)> {
        let marked: Vec<Node> = self.core.marks.marked.lock().values().cloned().collect();
        let mark = |node: Node| node.inode.own_mark().map(|class| (node, CachePolicy::of(class)));
        marked.into_iter().filter_map(mark).collect()
    }
}

impl Core {
    /// What is marked, and what is cached by it.
    pub(crate) fn policy_statistics(&self) -> PolicyStatistics {
        let (kept_pages, once_pages) = self.pages.classes();
        PolicyStatistics {
            // ORDERING: Relaxed; a size.
            marks: self.marks.count.load(Relaxed) as u64,
            kept_name_bytes: self.names.kept_bytes() as u64,
            once_names: self.names.once_count() as u64,
            kept_pages,
            once_pages,
        }
    }

    /// The class of what is cached of a directory.
    pub(crate) fn policy_in(&self, directory: InodeId) -> Option<CachePolicy> {
        let node = self.inodes.peek(directory)?;
        self.learn_cleans(&node.inode).then(|| CachePolicy::of(node.inode.class()))
    }

    /// A directory was removed: its mark goes with it.
    pub(crate) fn forget_mark(&self, directory: &Node) {
        if directory.inode.own_mark().is_some() {
            // It is not below anything any more: nobody has to be told.
            let _ = self.marks.set(directory, None);
        }
    }

    /// A directory came to another parent (Q3).
    pub(crate) fn policy_moved(&self, directory: &Inode) {
        if !self.marks.any() {
            return;
        }
        let before = directory.class();
        self.marks.changes.advance();
        self.cleans.advance();
        if self.learn_cleans(directory) && directory.class() != before {
            self.tell_classes();
        }
    }

    /// Tells names and files whose class is another one now. Of several who set marks or move directories at
    /// once, the one who ends last has begun after all of them.
    fn tell_classes(&self) {
        loop {
            let before = self.marks.changes.now();
            self.tell_classes_once();
            if self.marks.changes.now() == before {
                return;
            }
        }
    }

    /// Goes over all names and files, in steps with no lock held between them.
    fn tell_classes_once(&self) {
        let (mut known, mut at) = (HashMap::new(), 0);
        // The table may grow meanwhile: what has been passed then lies in what has been passed.
        while at < self.names.buckets() {
            let mut unknown = HashSet::new();
            self.tell_names(at, &known, &mut unknown);
            if !unknown.is_empty() {
                if known.len() >= MEMO_MAX {
                    known.clear();
                }
                let policy = |id| (id, self.policy_in(id).map(CachePolicy::class));
                known.extend(unknown.drain().map(policy));
                // What came in between was told when it came.
                self.tell_names(at, &known, &mut unknown);
            }
            at += BUCKETS;
            std::thread::yield_now();
        }
        self.pages.files().iter().for_each(|file| self.learn_page_cleans(file));
    }

    /// Tells the names in some buckets; notes the directories that are not known. Those that are not cached
    /// are known to have no policy, and keep the one that they had.
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
