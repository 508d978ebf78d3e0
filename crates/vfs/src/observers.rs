//! Frontends with caches of their own, which are notified of changes that did not come through them.
//!
//! # Boundary
//! Knows the observers and the source of a change ([`Origin`]). The operations define the changes. A frontend decides
//! what to invalidate.
//!
//! # Concurrency
//! A change notifies after the store has answered, on its own thread, with no lock held. An operation that ended before
//! another began has notified before it. The list is replaced as a whole; a thread that notifies copies a pointer to
//! it. If only its own frontend observes, a change reads one word.
//!
//! # Why
//! Like fsnotify in Linux: the layer below every frontend notifies, so no frontend has to know the others. A change is
//! also notified if the store leaves its result open. Weakness: a frontend learns names and objects, not ranges, and
//! drops more than necessary.

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

/// The frontend of a caller, which is not notified of its own changes. By default the in-process API, whose changes are
/// notified to all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Origin(u32);

type List = Arc<[(Origin, Arc<dyn ChangeSink>)]>;

/// There is no observer.
const NO_ORIGIN: u64 = 0;
/// There are several observers. Any other value is the origin of the only one.
const SEVERAL: u64 = u64::MAX;

/// See the module.
pub(crate) struct Observers {
    list: RwLock<List>,
    /// The observers, as far as a change needs them before it takes the lock.
    listening: AtomicU64,
    last: AtomicU32,
}

impl Observers {
    pub(crate) fn new() -> Self {
        Self {
            list: RwLock::new(&lock_order::OBSERVER, Arc::new([])),
            listening: AtomicU64::new(NO_ORIGIN),
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
            [] => NO_ORIGIN,
            [(only, _)] => u64::from(only.0),
            _ => SEVERAL,
        };
        // ORDERING: Relaxed; a change that comes after this call sees the stores before it. Stored under the lock, so
        // that of two calls the later one decides both.
        self.listening.store(listening, Relaxed);
        let old = std::mem::replace(&mut *slot, list.into());
        drop(slot);
        // The last reference to an observer may be in it.
        drop(old);
    }

    /// Passes `news` to all but its source.
    pub(crate) fn notify(&self, from: Origin, news: impl Fn(&dyn ChangeSink)) {
        // ORDERING: Relaxed; see `replace`.
        match self.listening.load(Relaxed) {
            NO_ORIGIN => return,
            only if only == u64::from(from.0) => return,
            _ => {}
        }
        let list = self.list.read().clone();
        list.iter().filter(|one| one.0 != from).for_each(|one| news(&*one.1));
    }
}

impl Vfs {
    /// Notifies `observer`, a frontend with caches of its own, of every change from now on that did not come through
    /// it: by others in the store, and by callers of another origin ([`Caller::through`]). It must not wait, and not
    /// call back.
    pub fn observe(&self, observer: Arc<dyn ChangeSink>) -> Origin {
        self.core.observers.add(observer)
    }

    /// Stops the notices to the observer of this origin. It may still get notices of changes during this call.
    pub fn unobserve(&self, origin: Origin) {
        self.core.observers.remove(origin);
    }

    /// Notifies that `caller` changed `name` in `directory`, if that is possible by `done`.
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

    /// Like [`Vfs::notify_entry`], for attributes or data of `node`.
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

/// Whether a change may have been made: it was, or the store failed in a way that leaves it open.
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
