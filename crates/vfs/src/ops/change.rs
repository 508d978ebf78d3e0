//! The protocol between changes and the caches.
//!
//! A change of a directory's entries has three steps. *Begin*: the names concerned leave the cache,
//! and earlier answers are not cached any more. Then the backend call, with no lock held. Then
//! *commit*. Between begin and commit every caller asks the store, so no caller sees one name in
//! its old state and another in its new state. If no other change of the same directory overlapped,
//! the result goes into the name cache. If one did, the order of the two in the store is unknown.
//! Then the names concerned stay out of the cache and are asked for again, as after a change that
//! failed or was never committed.
//!
//! A change often needs the object of a name before it begins. Another change may come between:
//! [`NameChange::knows`] says whether the object found is still current.
//!
//! A change in flight ends when it is dropped: a backend that panics takes its own request down,
//! and the caches work as before.

use crate::attributes::Attributes;
use crate::inode::{Asked, Begun, Expiry, Inode, Node, Ticket};
use crate::names::{Arrival, Key, Meaning, Target};
use crate::vfs::{Core, Reported};
use uvfs_containers::object::Ref;

/// A name, and the meaning found for it.
pub(super) type Known<'a> = (Key<'a>, Meaning);

/// A change of one directory's entries in flight.
pub(super) struct NameChange<'a> {
    core: &'a Core,
    directory: &'a Node,
    names: [Option<Key<'a>>; 2],
    entries: Begun,
    _attributes: AttributeChange<'a>,
    knows: bool,
    /// All names of the directory were in the cache when it began.
    complete: bool,
    committed: bool,
}

impl<'a> NameChange<'a> {
    /// Begins a change of the name `key` of `directory`.
    pub(super) fn begin(core: &'a Core, directory: &'a Node, key: Key<'a>) -> Self {
        Self::start(core, directory, [Some(key), None], |_| true)
    }

    /// Begins a change of `names` in `directory`. Their given meanings were found after its entries
    /// were `asked`.
    pub(super) fn begin_known(
        core: &'a Core,
        directory: &'a Node,
        asked: Asked,
        names: [Option<Known<'a>>; 2],
    ) -> Self {
        // A change of a name removes it from the cache first, so a cached name is current.
        let cached = |(key, meaning)| core.names.meaning(&directory.inode, key) == Some(meaning);
        Self::start(core, directory, names.map(|known| known.map(|known| known.0)), |unchanged| {
            unchanged(asked) || names.into_iter().flatten().all(cached)
        })
    }

    fn start(
        core: &'a Core,
        directory: &'a Node,
        names: [Option<Key<'a>>; 2],
        knows: impl FnOnce(&dyn Fn(Asked) -> bool) -> bool,
    ) -> Self {
        core.learn_cleans(&directory.inode);
        // New entries take the class that is valid now.
        core.reclassify_if_due();
        core.learn_policy(&directory.inode);
        let (entries, knows, complete) = {
            let mut changes = directory.inode.dir_state().entries.lock();
            let knows = knows(&|asked| changes.admits(asked));
            let whole = &directory.inode.dir_state().complete;
            let stands = whole
                .claim()
                .is_some_and(|claim| whole.stands(claim, core.names.losses(), directory.id().0));
            let complete = whole.suspend() && stands;
            names.iter().flatten().for_each(|key| core.forget_name(*key));
            core.paths.entries_change(directory.id());
            (changes.begin(&core.clock), knows, complete)
        };
        let attributes = AttributeChange::begin(core, directory);
        Self {
            core,
            directory,
            names,
            entries,
            _attributes: attributes,
            knows,
            complete,
            committed: false,
        }
    }

    /// Whether the names still had, when the change began, the meanings found before.
    pub(super) fn knows(&self) -> bool {
        self.knows
    }

    /// Whether no other change of the directory has begun or ended since this one began.
    pub(super) fn alone(&self) -> bool {
        self.directory.inode.dir_state().entries.lock().is_alone(self.entries)
    }

    /// The change succeeded. `outcome` has the new meaning of each name, in the order given to
    /// `begin`; `None` means "ask again". Returns whether that is cached.
    pub(super) fn commit(mut self, outcome: [Option<Target<'_>>; 2]) -> bool {
        self.finish(outcome)
    }

    fn finish(&mut self, outcome: [Option<Target<'_>>; 2]) -> bool {
        self.committed = true;
        let core = self.core;
        let directory = &self.directory.inode;
        let mut changes = directory.dir_state().entries.lock();
        let alone = changes.end(&core.clock, self.entries);
        let named =
            self.names.iter().zip(&outcome).all(|(key, target)| key.is_none() == target.is_none());
        for (key, target) in self.names.iter().zip(outcome) {
            let Some(key) = *key else { continue };
            match target.filter(|_| alone) {
                // A complete directory needs no entry for a missing name.
                Some(Target::Missing) if self.complete && named => {}
                Some(target) => {
                    if let Target::Node(node) = target
                        && self.complete
                        && named
                        && let Some(mut kept) = directory.dir_state().known_kept()
                    {
                        kept.add(key.name.as_bytes(), node.number(), node.kind());
                    }
                    let (target, stamp) = (target, self.entries.stamp());
                    core.remember_name(
                        directory,
                        (key, target),
                        (stamp, Reported::NO),
                        Arrival::Asked,
                    );
                }
                None => core.forget_name(key),
            }
        }
        if self.complete && alone && named {
            directory.dir_state().complete.resume();
        } else if let Some(mut kept) = directory.dir_state().known_kept() {
            kept.forget();
        }
        alone
    }
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.finish([None, None]);
        }
    }
}

/// A change of one inode's attributes in flight. Ends when dropped.
#[derive(Debug)]
pub(crate) struct AttributeChange<'a> {
    core: &'a Core,
    node: &'a Node,
    begin: Begun,
    value: Option<(Attributes, Expiry)>,
}

impl<'a> AttributeChange<'a> {
    /// Attributes asked for earlier are not cached any more.
    pub(crate) fn begin(core: &'a Core, node: &'a Node) -> Self {
        Self { core, node, begin: node.inode.begin_change(&core.clock), value: None }
    }

    /// The change ended, and the store returned these attributes. They are cached if no other
    /// change overlapped.
    pub(crate) fn commit(mut self, value: Attributes) {
        self.value = Some((value, self.core.attribute_expiry(&value, Reported::NO)));
    }
}

impl Drop for AttributeChange<'_> {
    fn drop(&mut self) {
        self.node.inode.end_change(&self.core.clock, self.begin, self.value);
    }
}

impl Core {
    /// How long a directory counts as complete.
    pub(crate) fn complete_expiry(&self, reported: Reported) -> Expiry {
        match (self.negative_expiry(reported), self.entry_expiry(reported)) {
            // A configuration without negative names allows no such answers either.
            (Expiry::EXPIRED, _) => Expiry::EXPIRED,
            (negative, entry) => negative.min(entry),
        }
    }

    /// Caches a name's meaning from a question at `stamp`. Returns how long it is valid. The caller
    /// has the lock over the directory's entries.
    pub(super) fn remember_name(
        &self,
        directory: &Inode,
        (key, target): (Key<'_>, Target<'_>),
        (stamp, reported): (Ticket, Reported),
        arrival: Arrival,
    ) -> Expiry {
        let expiry = match target {
            Target::Node(_) => self.entry_expiry(reported),
            Target::Missing => self.negative_expiry(reported),
        };
        if expiry == Expiry::EXPIRED {
            self.lose_name(key);
            return expiry;
        }
        let insert = || self.names.insert(directory, key, target, (stamp, expiry), arrival);
        let orphan = insert().or_else(|_| self.supersede_name(directory, key, insert));
        // Other callers insert under the same lock, so the second one cannot fail.
        self.orphaned(orphan.ok().flatten());
        expiry
    }

    /// A newer answer says that a cached name does not lead to its object any more: removes the name, ends the memos of
    /// paths through it, and does `then`. Until that is done, lookups of the name ask the store. The caller has the lock
    /// over the directory's entries.
    pub(super) fn supersede_name<R>(
        &self,
        directory: &Inode,
        key: Key<'_>,
        then: impl FnOnce() -> R,
    ) -> R {
        // In a complete directory, an absent name is an answer.
        let complete = directory.known_directory().map(|known| &known.complete);
        let resumes = complete.filter(|complete| complete.suspend());
        let object = self.names.is_directory(key);
        self.forget_name(key);
        if let Some(of_directory) = object {
            self.paths.meaning_ends(key.directory, of_directory);
        }
        let result = then();
        if let Some(complete) = resumes {
            complete.resume();
        }
        result
    }

    /// Removes a name from the cache that may still exist in the store.
    pub(crate) fn lose_name(&self, key: Key<'_>) {
        let object = self.names.is_directory(key);
        self.orphaned(self.names.lose(key));
        if let Some(of_directory) = object {
            self.paths.meaning_ends(key.directory, of_directory);
        }
    }

    /// Removes a changing name from the cache.
    pub(crate) fn forget_name(&self, key: Key<'_>) {
        self.orphaned(self.names.remove(key));
    }

    fn orphaned(&self, orphan: Option<Ref<Inode>>) {
        if let Some(orphan) = orphan {
            self.inodes.enqueue(orphan);
        }
    }
}
