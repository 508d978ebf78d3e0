//! Frontends with caches of their own, and what they are told: changes that did not come through them.
//!
//! # Boundary
//! Knows who listens and from where a change came ([`Origin`]). What a change is, the operations say; what news means
//! for a frontend's caches is its own affair.
//!
//! # Concurrency
//! A change tells after the store has answered, on its own thread, with no lock held. An operation that ended before
//! another began has told before it. The list is replaced as a whole; a thread that tells copies a pointer to it. With
//! nobody but its own frontend listening, a change reads one word.
//!
//! # Why
//! As fsnotify in Linux: the layer that every frontend goes through tells, so that none has to know of the others.
//! A change whose outcome the store leaves open is told too. Weakness: a frontend hears of names and objects, not of
//! ranges, and drops more than it had to.

use crate::backend::ChangeSink;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::lock_order;
use crate::name::Name;
use crate::vfs::Vfs;
use std::sync::Arc;
use uvfs_concurrent::lock::RwLock;
use uvfs_concurrent::primitive::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The frontend through which a caller comes: it is not told of its own changes. By default the in-process API,
/// whose changes all are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin(u32);

type List = Arc<[(Origin, Arc<dyn ChangeSink>)]>;

/// Nobody listens.
const NOBODY: u64 = 0;
/// More than one listens. Below it the word is the origin of the only one.
const SEVERAL: u64 = u64::MAX;

/// See the module.
pub(crate) struct Observers {
    list: RwLock<List>,
    /// Who listens, as far as a change has to know before it takes the lock.
    listening: AtomicU64,
    last: AtomicU32,
}

impl Observers {
    pub(crate) fn new() -> Self {
        Self {
            list: RwLock::new(&lock_order::OBSERVER, Arc::new([])),
            listening: AtomicU64::new(NOBODY),
            last: AtomicU32::new(0),
        }
    }

    fn add(&self, observer: Arc<dyn ChangeSink>) -> Origin {
        // ORDERING: Relaxed; only distinct numbers are wanted.
        let origin = Origin(self.last.fetch_add(1, Relaxed) + 1);
        self.replace(|list| list.push((origin, observer)));
        origin
    }

    fn remove(&self, origin: Origin) {
        self.replace(|list| list.retain(|one| one.0 != origin));
    }

    fn replace(&self, change: impl FnOnce(&mut Vec<(Origin, Arc<dyn ChangeSink>)>)) {
        let mut slot = self.list.write();
        let mut list = slot.to_vec();
        change(&mut list);
        let listening = match &list[..] {
            [] => NOBODY,
            [(only, _)] => u64::from(only.0),
            _ => SEVERAL,
        };
        // ORDERING: Relaxed; a change that comes after this call has what came before it. Stored under the lock, so
        // that of two calls the later one decides both.
        self.listening.store(listening, Relaxed);
        let old = std::mem::replace(&mut *slot, list.into());
        drop(slot);
        // The last reference to an observer may be in it.
        drop(old);
    }

    /// Tells `news` to all but the frontend it came from.
    pub(crate) fn notify(&self, from: Origin, news: impl Fn(&dyn ChangeSink)) {
        // ORDERING: Relaxed; see `replace`.
        match self.listening.load(Relaxed) {
            NOBODY => return,
            only if only == u64::from(from.0) => return,
            _ => {}
        }
        let list = self.list.read().clone();
        list.iter().filter(|one| one.0 != from).for_each(|one| news(&*one.1));
    }
}

impl Vfs {
    /// Tells `observer`, a frontend with caches of its own, of every change from now on that did not come through
    /// it: by others in the store, and by callers of another origin ([`Caller::through`]). It must not wait, and not
    /// call back.
    pub fn observe(&self, observer: Arc<dyn ChangeSink>) -> Origin {
        self.core.observers.add(observer)
    }

    /// Tells the observer of this origin no more. It may still be told of what changes during this call.
    pub fn unobserve(&self, origin: Origin) {
        self.core.observers.remove(origin);
    }

    /// Tells that `name` in `directory` was changed by `caller`, if `done` leaves it possible.
    pub(crate) fn notify_entry<T>(
        &self,
        caller: &Caller,
        (directory, name): (&Node, Name<'_>),
        done: Result<T>,
    ) -> Result<T> {
        if may_be_done(&done) {
            let observers = &self.core.observers;
            observers
                .notify(caller.origin, |observer| observer.entry_changed(directory.id(), name));
        }
        done
    }

    /// As [`Vfs::notify_entry`], of attributes or data of `node`.
    pub(crate) fn notify_inode<T>(
        &self,
        caller: &Caller,
        node: &Node,
        done: Result<T>,
    ) -> Result<T> {
        if may_be_done(&done) {
            let observers = &self.core.observers;
            observers.notify(caller.origin, |observer| observer.inode_changed(node.id()));
        }
        done
    }
}

/// Whether a change may have been made: it was, or the store is in trouble and cannot say.
fn may_be_done<T>(done: &Result<T>) -> bool {
    let open = |error: &Error| {
        matches!(
            error,
            Error::Io(_)
                | Error::TimedOut
                | Error::Interrupted
                | Error::Stale
                | Error::Corrupt(_)
                | Error::NoSpace
                | Error::Quota
        )
    };
    done.as_ref().err().is_none_or(open)
}
