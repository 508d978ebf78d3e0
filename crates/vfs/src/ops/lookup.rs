//! Looks up a name in a directory.

use crate::attributes::Attributes;
use crate::backend::FileRef;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{Expiry, Inode, Moment, Node};
use crate::name::Name;
use crate::names::{self, Arrival, Key};
use crate::permission::Access;
use crate::vfs::{Reported, Vfs};
use std::time::Duration;
use uvfs_concurrent::epoch::{self, Guard};
use uvfs_concurrent::lock::order;

/// A found object, and how long a frontend may cache the answer.
#[derive(Debug)]
pub struct Found {
    /// The object, held.
    pub node: Node,
    /// Attributes of the object.
    pub attributes: Attributes,
    /// The remaining time for which the name is valid.
    pub entry_valid: Duration,
    /// The remaining time for which the attributes are valid.
    pub attributes_valid: Duration,
}

/// The answer to a lookup.
#[derive(Debug)]
pub enum Lookup {
    /// The name exists.
    Found(Found),
    /// There is no such name; valid for this time.
    Missing(Duration),
}

/// Whether the caches have been asked for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Not yet.
    First,
    /// Just now, and they did not have the answer.
    Missed,
}

impl Found {
    /// `node`, for which the store returned these attributes, under a name that is valid for
    /// `entry_valid`.
    pub(super) fn new(node: Node, attributes: Attributes, entry_valid: Duration) -> Self {
        let (attributes, attributes_valid) = node.inode.believed(attributes);
        Self { node, attributes, entry_valid, attributes_valid }
    }
}

impl Lookup {
    /// The object, or [`Error::NotFound`].
    pub fn found(self) -> Result<Found> {
        match self {
            Lookup::Found(found) => Ok(found),
            Lookup::Missing(_) => Err(Error::NotFound),
        }
    }
}

impl Vfs {
    /// Looks up `name` in `parent`. Blocks on the store only if the caches do not have the answer.
    ///
    /// # Errors
    /// [`Error::NotDirectory`], [`Error::Access`] without search permission, [`Error::Stale`] if
    /// `parent` has gone from the store.
    pub fn lookup(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<Lookup> {
        self.lookup_key(caller, parent, self.core.names.key(parent.id(), name), Look::First)
    }

    /// Like [`Vfs::lookup`], for a caller to which [`Vfs::try_lookup`] has just returned `None`.
    ///
    /// # Errors
    /// Like [`Vfs::lookup`].
    pub fn lookup_missed(&self, caller: &Caller, parent: &Node, name: Name<'_>) -> Result<Lookup> {
        self.lookup_key(caller, parent, self.core.names.key(parent.id(), name), Look::Missed)
    }

    /// Like [`Vfs::lookup`], with the key of the name, which the caches may have been asked for.
    pub(crate) fn lookup_key(
        &self,
        caller: &Caller,
        parent: &Node,
        key: Key<'_>,
        look: Look,
    ) -> Result<Lookup> {
        if !parent.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.check(caller, parent, Access::EXECUTE)?;
        if look == Look::First
            && let Some(answer) = self.lookup_cached(parent, key)
        {
            return Ok(answer);
        }
        let core = &self.core;
        if core.entry_expiry(Reported::NO) == Expiry::EXPIRED {
            return self.lookup_in_store(caller, parent, key);
        }
        if let Some(answer) = self.lookup_expired(parent, key) {
            return Ok(answer);
        }
        order::assert_none_held("a wait for another lookup");
        // Of several threads that miss the same name at once, one asks the store, and the others wait for its answer.
        // An answer that may not be cached does not hold for threads that came after the question: they ask for
        // themselves.
        let flight = core.flights.join(key.hash());
        if flight.is_none() {
            core.counters.waited.hit();
        }
        // Another flight may have landed between the look that missed and now. Without this look, threads that miss in
        // turn would each ask the store.
        match self.lookup_cached(parent, key) {
            Some(answer) => Ok(answer),
            None => self.lookup_in_store(caller, parent, key),
        }
    }

    /// The answer from an expired list, or from one that was refreshed meanwhile.
    fn lookup_expired(&self, parent: &Node, key: Key<'_>) -> Option<Lookup> {
        match self.core.expired_answer(parent, key) {
            Some(Some(node)) => {
                let last = node.inode.last_attributes();
                Some(Lookup::Found(Found::new(node, last, Duration::ZERO)))
            }
            Some(None) => Some(Lookup::Missing(Duration::ZERO)),
            None if self.core.keeps_listings() => self.lookup_cached(parent, key),
            None => None,
        }
    }

    /// Looks up `name` in `parent` for a caller whose permissions are checked elsewhere, if the
    /// caches have the whole answer. Never blocks on the store.
    pub fn try_lookup(&self, parent: &Node, name: Name<'_>) -> Option<Lookup> {
        self.lookup_cached(parent, self.core.names.key(parent.id(), name))
    }

    fn lookup_cached(&self, parent: &Node, key: Key<'_>) -> Option<Lookup> {
        let core = &self.core;
        let (node, entry_valid) = self.find_cached(parent, key)?;
        let Some(node) = node else {
            core.counters.negative_hits.hit();
            return Some(Lookup::Missing(entry_valid));
        };
        let attributes = node.inode.cached_attributes()?;
        core.counters.name_hits.hit();
        Some(Lookup::Found(Found::new(node, attributes, entry_valid)))
    }

    /// The cached meaning of the name: its object or none, and the remaining validity. The epoch
    /// guard ends here, because dropping a node may call the store.
    fn find_cached(&self, parent: &Node, key: Key<'_>) -> Option<(Option<Node>, Duration)> {
        if !self.core.learn_cleans(&parent.inode) {
            return None;
        }
        let guard = epoch::pin();
        let names = &self.core.names;
        let mut now = None;
        let Some(dentry) = names.find(&guard, &parent.inode, key, &mut now) else {
            let absent = (key.hash(), key.name.as_bytes());
            let until = self.surely_missing(&guard, &parent.inode, absent, &mut now)?;
            return Some((None, until.remains()));
        };
        let node = match dentry.inode() {
            Some(inode) => Some(Node::try_hold(inode)?),
            None => None,
        };
        let is_directory = node.as_ref().is_some_and(Node::is_directory);
        names::touch(dentry, is_directory);
        Some((node, dentry.expiry().remains()))
    }

    /// Whether there is no such name because `directory` is complete and does not contain it.
    /// Returns until when that is valid.
    pub(crate) fn surely_missing(
        &self,
        guard: &Guard,
        directory: &Inode,
        (hash, name): (u64, &[u8]),
        now: &mut Option<Moment>,
    ) -> Option<Expiry> {
        let names = &self.core.names;
        let (complete, claim, until) = directory.claim_complete(now)?;
        let absent = names.is_absent(guard, directory, hash, name);
        (absent && complete.stands(claim, names.losses(), directory.id.0)).then_some(until)
    }

    fn lookup_in_store(&self, caller: &Caller, parent: &Node, key: Key<'_>) -> Result<Lookup> {
        let core = &self.core;
        core.counters.name_misses.hit();
        let ticket = core.clock.now();
        let reported = core.reported_names(parent.id());
        match core.backend().names().lookup(caller, parent.id(), key.name) {
            Ok(entry) => {
                let found = (key, &entry);
                let (node, valid) = core.admit(parent, ticket, found, Arrival::Asked, reported);
                Ok(Lookup::Found(Found::new(node, entry.attributes, valid)))
            }
            Err(Error::NotFound) => {
                Ok(Lookup::Missing(core.admit_missing(parent, ticket, key, reported)))
            }
            Err(error) => {
                if matches!(error, Error::Stale) {
                    core.went_stale(parent);
                }
                Err(error)
            }
        }
    }

    /// The object of the name, from the store if it is not cached. For changes, which must update the
    /// object's names.
    pub(super) fn child(&self, caller: &Caller, directory: &Node, key: Key<'_>) -> Result<Node> {
        match self.find_cached(directory, key) {
            Some((Some(node), _)) => Ok(node),
            _ => Ok(self.lookup_in_store(caller, directory, key)?.found()?.node),
        }
    }

    /// Reads an object's attributes from the store again, through no open file.
    pub(super) fn refresh_node(&self, node: &Node) -> Result<Attributes> {
        self.core.refresh(node, FileRef::unopened(node.id()))
    }
}
