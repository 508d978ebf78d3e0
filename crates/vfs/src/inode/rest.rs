//! State that only some inodes have.

use super::listed::{DirListing, Recording};
use super::{Asked, Expiry, Freshness, Inode, Ticket};
use crate::acl::Acl;
use crate::advisory::AdvisoryLocks;
use crate::backend::Cookie;
use crate::lock_order;
use crate::page::FilePages;
use crate::policy::{OwnMark, PolicyMemo};
use std::sync::{Arc, OnceLock};
use uvfs_concurrent::complete::Complete;
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::{Mutex, MutexGuard};
use uvfs_concurrent::primitive::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use uvfs_containers::object::Hold;

/// For an inode that is read, written, locked or guarded by more than its mode, and for a directory
/// in use.
pub(crate) struct InodeExtra {
    pub(super) dir_state: LazyBox<DirState>,
    acl: LazyBox<Mutex<Option<Arc<Acl>>>>,
    pub(super) bypassed: Mutex<Bypassed>,
    pub(crate) pages: OnceLock<Arc<FilePages>>,
    pub(crate) locks: LazyBox<AdvisoryLocks>,
}

// Every open file has one.
const _: () = assert!(size_of::<InodeExtra>() <= 64);

/// State of a directory in use.
pub(crate) struct DirState {
    /// Changes of its entries.
    pub(crate) entries: Mutex<Freshness>,
    /// Whether all its names are in the cache, and the [`Expiry`] of that as a word. Changed under `entries`.
    pub(crate) complete: Complete,
    /// A listing in progress.
    pub(crate) listing: Mutex<Option<Box<Progress>>>,
    /// The kept listing, for stores whose listings are kept.
    kept: LazyBox<Mutex<DirListing>>,
    /// The directory's parent, kept by a hold; the root has none.
    pub(super) parent: Mutex<Option<Parent>>,
    /// Cleans of all that is below it. Only rises.
    pub(super) cleaned: Cleaned,
    /// The mark that it has itself.
    pub(crate) own_mark: OwnMark,
    /// The policy valid in it.
    pub(super) policy: PolicyMemo,
}

/// Open files that the kernel reads and writes by itself, and those of them that it may write.
#[derive(Default)]
pub(super) struct Bypassed {
    pub(super) all: u32,
    pub(super) writing: u32,
}

/// A listing whose names go into the cache, from its start up to `next`.
#[derive(Debug)]
pub(crate) struct Progress {
    /// From the directory's entries, before its first question.
    pub(crate) asked: Asked,
    /// Names lost before it began.
    pub(crate) losses: u64,
    /// The end of the validity of its result.
    pub(crate) until: Expiry,
    /// The position where it continues.
    pub(crate) next: Cookie,
    /// The names so far, if they are kept.
    pub(crate) recording: Option<Recording>,
}

/// The parent of a directory.
pub(super) struct Parent {
    pub(super) inode: Hold<Inode>,
    /// The ticket of the question that returned it. Older answers do not replace it.
    pub(super) learned: Ticket,
    /// When it moved there, if it was elsewhere before: earlier cleans of this parent do not
    /// concern it.
    pub(super) joined: Ticket,
}

/// Moments of the clock. Entries cached before them are not used any more; 0 for never.
#[derive(Debug, Default)]
pub(crate) struct Cleaned {
    names: AtomicU64,
    pages: AtomicU64,
}

/// The moments of [`Cleaned`] as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CleanTicks {
    pub(crate) names: u64,
    pub(crate) pages: u64,
}

impl CleanTicks {
    /// The later of both, for each kind.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { names: self.names.max(other.names), pages: self.pages.max(other.pages) }
    }

    /// Those that are later than `moment`.
    pub(crate) fn after(self, moment: Ticket) -> Self {
        let later = |tick: u64| if tick > moment.to_word() { tick } else { 0 };
        Self { names: later(self.names), pages: later(self.pages) }
    }
}

impl Cleaned {
    pub(crate) fn ticks(&self) -> CleanTicks {
        // ORDERING: Acquire, both, partner `raise`: a thread that comes with a new generation of
        // cleans (`Core::cleans`) sees the ticks raised before it.
        CleanTicks { names: self.names.load(Acquire), pages: self.pages.load(Acquire) }
    }

    pub(crate) fn raise(&self, ticks: CleanTicks) {
        // ORDERING: Release, both, partner `ticks`.
        self.names.fetch_max(ticks.names, Release);
        self.pages.fetch_max(ticks.pages, Release);
    }
}

impl Default for InodeExtra {
    fn default() -> Self {
        Self {
            dir_state: LazyBox::new(),
            acl: LazyBox::new(),
            bypassed: Mutex::new(&lock_order::INODE_BYPASS, Bypassed::default()),
            pages: OnceLock::new(),
            locks: LazyBox::new(),
        }
    }
}

impl InodeExtra {
    /// The access control list of the cached attributes, if there is one.
    pub(super) fn acl(&self) -> Option<Arc<Acl>> {
        self.acl.get().and_then(|acl| acl.lock().clone())
    }

    pub(super) fn set_acl(&self, acl: Option<Arc<Acl>>) {
        let slot = match acl {
            None => self.acl.get(),
            Some(_) => Some(self.acl.get_or_make(|| Mutex::new(&lock_order::INODE_ACL, None)).0),
        };
        if let Some(slot) = slot {
            *slot.lock() = acl;
        }
    }
}

impl Default for DirState {
    fn default() -> Self {
        Self {
            entries: Mutex::new(&lock_order::INODE_CHANGES, Freshness::default()),
            complete: Complete::default(),
            listing: Mutex::new(&lock_order::LISTING, None),
            kept: LazyBox::new(),
            parent: Mutex::new(&lock_order::INODE_PARENT, None),
            cleaned: Cleaned::default(),
            own_mark: OwnMark::default(),
            policy: PolicyMemo::default(),
        }
    }
}

impl DirState {
    /// The kept listing, if there ever was one.
    pub(crate) fn known_kept(&self) -> Option<MutexGuard<'_, DirListing>> {
        self.kept.get().map(|kept| kept.lock())
    }

    /// Like [`DirState::known_kept`], but makes it.
    pub(crate) fn kept(&self) -> MutexGuard<'_, DirListing> {
        let new = || Mutex::new(&lock_order::LISTED, DirListing::default());
        self.kept.get_or_make(new).0.lock()
    }
}
