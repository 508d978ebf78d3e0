//! Inodes: what the caches know of one object of the store.
//!
//! # Boundary
//! Holds an object's cached attributes, its pages, its advisory locks and, for a directory, its
//! parent. Does not know names (`names`), and asks the backend nothing.
//!
//! # Concurrency
//! A [`Node`] is a hold on an inode: while one exists the inode stays in the table. Each part of an
//! inode has its own lock (see [`crate::lock_order`]); none is held across a backend call.
//!
//! *Answers that a change overtook* are the recurring danger: a `stat` answer read before a `chmod`
//! must not be cached after it. One clock decides. A reader takes a [`Ticket`] before it asks the
//! store; a change notes a tick when it begins and another when it ends. An answer is kept only if
//! no change is in flight and the last noted tick is not later than the ticket ([`Freshness`]).
//!
//! # Why
//! One clock instead of a version per object: a lookup does not know yet which inode it will find,
//! so it could not sample that inode's version beforehand. Bad at: many threads changing different
//! files all tick one word; reads never do.

mod freshness;
mod table;

pub(crate) use freshness::{Clock, Expiry, Freshness, Ticket};
pub(crate) use table::InodeTable;

use crate::acl::Acl;
use crate::advisory::AdvisoryLocks;
use crate::attributes::{Attributes, FileKind};
use crate::backend::InodeId;
use crate::lock_order;
use crate::page::InodePages;
use crate::vfs::Core;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use uvfs_concurrent::hold::{HoldWord, Released};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// The cached state of one object.
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    pub(crate) kind: FileKind,
    hold: HoldWord,
    /// References owed to the backend; given back by `forget` when the inode goes.
    references: AtomicU64,
    attributes: Mutex<CachedAttributes>,
    /// Of a directory: changes of its entries.
    pub(crate) changes: Mutex<Freshness>,
    /// Of a directory other than the root: its parent, kept by a hold of its own.
    parent: Mutex<Option<Parent>>,
    /// No name leads here any more: forget it with the last hold.
    unlinked: AtomicBool,
    /// Waits in the inactive queue.
    queued: AtomicBool,
    /// Revived since it was queued: one more round before eviction.
    touched: AtomicBool,
    /// Open files that the kernel reads and writes behind our back: attributes are not cached.
    bypassed: AtomicU32,
    pub(crate) pages: OnceLock<Box<InodePages>>,
    pub(crate) locks: OnceLock<Box<AdvisoryLocks>>,
    core: Weak<Core>,
}

/// The parent of a directory, kept by a hold.
struct Parent {
    inode: Arc<Inode>,
    /// When the store was asked that said so: older answers do not replace it.
    learned: Ticket,
}

struct CachedAttributes {
    value: Attributes,
    expiry: Expiry,
    freshness: Freshness,
    /// The access control list that goes with `value`, or that there is none, once asked for.
    acl: Option<Option<Arc<Acl>>>,
}

impl Inode {
    fn new(core: &Weak<Core>, id: InodeId, attributes: Attributes, expiry: Expiry) -> Arc<Self> {
        let cached = CachedAttributes {
            value: attributes,
            expiry,
            freshness: Freshness::default(),
            acl: None,
        };
        Arc::new(Self {
            id,
            kind: attributes.kind,
            hold: HoldWord::new(),
            references: AtomicU64::new(1),
            attributes: Mutex::new(&lock_order::INODE_ATTRIBUTES, cached),
            changes: Mutex::new(&lock_order::INODE_CHANGES, Freshness::default()),
            parent: Mutex::new(&lock_order::INODE_PARENT, None),
            unlinked: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            touched: AtomicBool::new(false),
            bypassed: AtomicU32::new(0),
            pages: OnceLock::new(),
            locks: OnceLock::new(),
            core: core.clone(),
        })
    }

    /// The cached attributes, if they may be believed now.
    pub(crate) fn cached_attributes(&self) -> Option<Attributes> {
        // ORDERING: Relaxed; opening for bypass happens before the kernel can write through it.
        if self.bypassed.load(Relaxed) > 0 {
            return None;
        }
        let cached = self.attributes.lock();
        cached.expiry.valid().then_some(cached.value)
    }

    /// The attributes as last seen, however old.
    pub(crate) fn last_attributes(&self) -> Attributes {
        self.attributes.lock().value
    }

    /// What a frontend that was just answered `given` may believe, and for how long: the cached
    /// attributes, or `given` for this moment only (a change has overtaken it).
    pub(crate) fn believed(&self, given: Attributes) -> (Attributes, Duration) {
        // ORDERING: Relaxed; as in `cached_attributes`.
        let bypassed = self.bypassed.load(Relaxed) > 0;
        let cached = self.attributes.lock();
        match cached.expiry.remains() {
            Duration::ZERO => (given, Duration::ZERO),
            remains if bypassed => (given, remains),
            remains => (cached.value, remains),
        }
    }

    /// When the attributes last changed here.
    fn changed(&self) -> Ticket {
        self.attributes.lock().freshness.changed()
    }

    /// Keeps `value`, read from the store after `ticket` was taken. False if a change overtook it.
    pub(crate) fn keep_attributes(
        &self,
        clock: &Clock,
        ticket: Ticket,
        value: Attributes,
        expiry: Expiry,
    ) -> bool {
        let mut cached = self.attributes.lock();
        if !cached.freshness.admits(ticket) {
            return false;
        }
        if cached.value.ctime != value.ctime || cached.value.mode != value.mode {
            cached.acl = None;
        }
        let content_changed = cached.value.mtime != value.mtime || cached.value.size != value.size;
        cached.value = value;
        cached.expiry = expiry;
        drop(cached);
        if content_changed && let Some(pages) = self.pages.get() {
            pages.content_changed(clock);
        }
        true
    }

    /// A change of attributes begins.
    pub(crate) fn begin_change(&self, clock: &Clock) -> Ticket {
        self.attributes.lock().freshness.begin(clock)
    }

    /// The change that `begin` belongs to ended. `value` is what the store says after it, kept if
    /// no other change overlapped; otherwise the attributes are asked for again when needed.
    pub(crate) fn end_change(
        &self,
        clock: &Clock,
        begin: Ticket,
        value: Option<(Attributes, Expiry)>,
    ) {
        let mut cached = self.attributes.lock();
        let alone = cached.freshness.end(clock, begin);
        cached.acl = None;
        match value {
            Some((value, expiry)) if alone => {
                cached.value = value;
                cached.expiry = expiry;
            }
            _ => cached.expiry = Expiry::Expired,
        }
    }

    /// Asks the store again at the next request.
    pub(crate) fn expire_attributes(&self, clock: &Clock) {
        let mut cached = self.attributes.lock();
        cached.freshness.note(clock);
        cached.expiry = Expiry::Expired;
        cached.acl = None;
    }

    /// The access control list (or that there is none), if it is cached and may be believed now.
    pub(crate) fn cached_acl(&self) -> Option<Option<Arc<Acl>>> {
        let cached = self.attributes.lock();
        cached.acl.clone().filter(|_| cached.expiry.valid())
    }

    /// Keeps the access control list, asked for at `ticket`, unless a change overtook it.
    pub(crate) fn keep_acl(&self, ticket: Ticket, acl: Option<Arc<Acl>>) {
        let mut cached = self.attributes.lock();
        if cached.freshness.admits(ticket) {
            cached.acl = Some(acl);
        }
    }

    /// A read happened: the access time may have moved (by the relatime rule).
    pub(crate) fn was_read(&self) {
        let mut cached = self.attributes.lock();
        if cached.value.atime <= cached.value.mtime || cached.value.atime <= cached.value.ctime {
            cached.expiry = Expiry::Expired;
        }
    }

    /// The kernel reads and writes an open file directly from now on.
    pub(crate) fn begin_bypass(&self) {
        // ORDERING: Relaxed; the reply that lets the kernel start comes after.
        self.bypassed.fetch_add(1, Relaxed);
    }

    /// One such open file was closed.
    pub(crate) fn end_bypass(&self, clock: &Clock) {
        self.expire_attributes(clock);
        // ORDERING: Relaxed; attributes were expired before, under their lock.
        self.bypassed.fetch_sub(1, Relaxed);
    }

    /// The parent directory, if this is a directory below the root.
    pub(crate) fn parent(&self) -> Option<Node> {
        let parent = self.parent.lock();
        parent.as_ref().map(|parent| Node::hold(&parent.inode))
    }

    /// Notes the parent of a directory, asked for at `ticket`. What was learned later stays.
    pub(crate) fn set_parent(&self, parent: &Node, ticket: Ticket) {
        if self.kind != FileKind::Directory || self.id == InodeId::ROOT {
            return;
        }
        let old = {
            let mut slot = self.parent.lock();
            if let Some(known) = &mut *slot {
                if ticket < known.learned {
                    return;
                }
                known.learned = ticket;
                if Arc::ptr_eq(&known.inode, &parent.inode) {
                    return;
                }
            }
            parent.inode.hold.hold();
            slot.replace(Parent { inode: parent.inode.clone(), learned: ticket })
        };
        old.into_iter().for_each(|old| release(old.inode));
    }

    /// The last name is gone; the last hold takes the inode with it.
    pub(crate) fn set_unlinked(&self, unlinked: bool) {
        // ORDERING: Relaxed; a hint that only decides how soon the inode is forgotten.
        self.unlinked.store(unlinked, Relaxed);
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Inode({}, {:?}, {} holds)", self.id.0, self.kind, self.hold.racy_holds())
    }
}

/// A hold on an inode. Cloning adds a hold; dropping gives it back.
pub struct Node {
    pub(crate) inode: Arc<Inode>,
}

impl Node {
    /// A further hold on an inode that somebody holds.
    fn hold(inode: &Arc<Inode>) -> Self {
        inode.hold.hold();
        Self { inode: inode.clone() }
    }

    /// A hold on an inode found in the table, unless it is being torn down.
    fn try_hold(inode: &Arc<Inode>) -> Option<Self> {
        inode.hold.try_hold().then(|| Self { inode: inode.clone() })
    }

    /// The object's id.
    pub fn id(&self) -> InodeId {
        self.inode.id
    }

    /// What sort of object it is; never changes.
    pub fn kind(&self) -> FileKind {
        self.inode.kind
    }

    /// The number users see (`st_ino`).
    pub fn number(&self) -> u64 {
        self.inode.last_attributes().number
    }

    /// The parent directory, if this is a directory below the root whose parent is known.
    pub fn parent(&self) -> Option<Node> {
        self.inode.parent()
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == FileKind::Directory
    }
}

impl Clone for Node {
    fn clone(&self) -> Self {
        Self::hold(&self.inode)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        release(self.inode.clone());
    }
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inode, &other.inode)
    }
}

impl Eq for Node {}

impl fmt::Debug for Node {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.inode)
    }
}

/// Gives a hold back; where it was the last of a forgotten child, the parent's too, and so on. A
/// loop, not a recursion: a tree may be deeper than a stack.
fn release(inode: Arc<Inode>) {
    let mut next = Some(inode);
    while let Some(inode) = next.take() {
        if inode.hold.release() == Released::Inactive
            && let Some(core) = inode.core.upgrade()
        {
            next = core.inodes.inactive(&core, inode).or_else(|| core.inodes.make_room(&core));
        }
    }
}
