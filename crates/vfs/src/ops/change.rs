//! How a change and the caches agree.
//!
//! A change of a directory's entries runs in three steps: *begin* (the names concerned leave the
//! cache, and answers asked for earlier are not cached from now on), the backend call with no lock
//! held, *commit*. Between begin and commit everybody asks the store, so that nobody sees one name
//! as it was and another as it will be. If no other change of the same directory overlapped, the
//! outcome goes into the name cache; if one did, nobody knows which came first in the store, so the
//! names concerned stay out of it and are asked for again. So they do after a change that failed,
//! or was never committed.
//!
//! A change often has to know which object a name means before it begins. Another change may come
//! in between: [`NameChange::knows`] tells whether what was found is still so.
//!
//! Changes in flight end when they are dropped: a backend that panics takes its own request down,
//! and the caches work as before.

use crate::attributes::Attributes;
use crate::backend::InodeId;
use crate::inode::{Asked, Begun, Expiry, Inode, Node, Ticket};
use crate::name::Name;
use crate::names::{Arrival, Meaning, Target};
use crate::vfs::Core;
use uvfs_concurrent::object::Ref;

/// A name, and what it was found to mean.
pub(super) type Known<'a> = (Name<'a>, Meaning);

/// A change of one directory's entries in flight.
pub(super) struct NameChange<'a> {
    core: &'a Core,
    directory: &'a Node,
    names: [Option<Name<'a>>; 2],
    entries: Begun,
    _attributes: AttributeChange<'a>,
    knows: bool,
    /// All names of the directory were in the cache when it began.
    complete: bool,
    committed: bool,
}

impl<'a> NameChange<'a> {
    /// Begins a change of `name` in `directory`.
    pub(super) fn begin(core: &'a Core, directory: &'a Node, name: Name<'a>) -> Self {
        Self::start(core, directory, [Some(name), None], |_| true)
    }

    /// Begins a change of `names` in `directory`, which were found, after its entries were `asked`, to mean what is
    /// given.
    pub(super) fn begin_known(
        core: &'a Core,
        directory: &'a Node,
        asked: Asked,
        names: [Option<Known<'a>>; 2],
    ) -> Self {
        // A change of a name takes it out of the cache first, so what is cached is still so.
        let cached = |(name, meaning)| core.names.meaning(&directory.inode, name) == Some(meaning);
        Self::start(core, directory, names.map(|known| known.map(|known| known.0)), |unchanged| {
            unchanged(asked) || names.into_iter().flatten().all(cached)
        })
    }

    fn start(
        core: &'a Core,
        directory: &'a Node,
        names: [Option<Name<'a>>; 2],
        knows: impl FnOnce(&dyn Fn(Asked) -> bool) -> bool,
    ) -> Self {
        core.learn_cleans(&directory.inode);
        // What comes in is of the class that holds there now.
        core.reclassify_if_due();
        core.learn_policy(&directory.inode);
        let (entries, knows, complete) = {
            let mut changes = directory.inode.of_directory().entries.lock();
            let knows = knows(&|asked| changes.admits(asked));
            let whole = &directory.inode.of_directory().complete;
            let stands = whole
                .claim()
                .is_some_and(|claim| whole.stands(claim, core.names.losses(), directory.id().0));
            let complete = whole.suspend() && stands;
            names.iter().flatten().for_each(|name| core.forget_name(directory.id(), *name));
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

    /// Whether the names still meant, when the change began, what they had been found to mean.
    pub(super) fn knows(&self) -> bool {
        self.knows
    }

    /// Whether no other change of the directory has begun or ended since this one began.
    pub(super) fn alone(&self) -> bool {
        self.directory.inode.of_directory().entries.lock().is_alone(self.entries)
    }

    /// The change succeeded: each name means now what `outcome` says, in the order given to
    /// `begin`; `None` for "ask again". Returns whether that is cached.
    pub(super) fn commit(mut self, outcome: [Option<Target<'_>>; 2]) -> bool {
        self.finish(outcome)
    }

    fn finish(&mut self, outcome: [Option<Target<'_>>; 2]) -> bool {
        self.committed = true;
        let core = self.core;
        let directory = &self.directory.inode;
        let mut changes = directory.of_directory().entries.lock();
        let alone = changes.end(&core.clock, self.entries);
        let told = self
            .names
            .iter()
            .zip(&outcome)
            .all(|(name, target)| name.is_none() == target.is_none());
        for (name, target) in self.names.iter().zip(outcome) {
            let Some(name) = *name else { continue };
            match target.filter(|_| alone) {
                // It is known to be missing without a note.
                Some(Target::Missing) if self.complete && told => {}
                Some(target) => {
                    if let Target::Node(node) = target
                        && self.complete
                        && told
                        && let Some(mut kept) = directory.of_directory().known_kept()
                    {
                        kept.add(name.as_bytes(), node.number(), node.kind());
                    }
                    let (target, stamp) = (target, self.entries.stamp());
                    core.remember_name(directory, (name, target), stamp, Arrival::Asked);
                }
                None => core.forget_name(directory.id, name),
            }
        }
        if self.complete && alone && told {
            directory.of_directory().complete.resume();
        } else if let Some(mut kept) = directory.of_directory().known_kept() {
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
    /// Attributes asked for earlier are not cached from now on.
    pub(crate) fn begin(core: &'a Core, node: &'a Node) -> Self {
        Self { core, node, begin: node.inode.begin_change(&core.clock), value: None }
    }

    /// The change ended, and the store says that the attributes are now these: kept if no other
    /// change overlapped.
    pub(crate) fn commit(mut self, value: Attributes) {
        self.value = Some((value, self.core.attribute_expiry()));
    }
}

impl Drop for AttributeChange<'_> {
    fn drop(&mut self) {
        self.node.inode.end_change(&self.core.clock, self.begin, self.value);
    }
}

impl Core {
    /// How long it is believed that all names of a directory are in the cache.
    pub(crate) fn complete_expiry(&self) -> Expiry {
        match (self.negative_expiry(), self.entry_expiry()) {
            // Whoever wants no negative names wants no answers of this kind either.
            (Expiry::EXPIRED, _) => Expiry::EXPIRED,
            (negative, entry) => negative.min(entry),
        }
    }

    /// Caches what a name means, as was asked at `stamp`; returns for how long it is believed. The caller
    /// has the lock over the directory's entries.
    pub(super) fn remember_name(
        &self,
        directory: &Inode,
        (name, target): (Name<'_>, Target<'_>),
        stamp: Ticket,
        arrival: Arrival,
    ) -> Expiry {
        let expiry = match target {
            Target::Node(_) => self.entry_expiry(),
            Target::Missing => self.negative_expiry(),
        };
        let orphan = self.names.insert(directory, name, target, (stamp, expiry), arrival);
        self.orphaned(orphan);
        expiry
    }

    /// Takes one name out of the cache that may exist, for all that is known.
    pub(crate) fn lose_name(&self, directory: InodeId, name: Name<'_>) {
        self.orphaned(self.names.lose(directory, name));
    }

    /// Takes one name out of the cache, which is changing.
    pub(crate) fn forget_name(&self, directory: InodeId, name: Name<'_>) {
        self.orphaned(self.names.remove(directory, name));
    }

    fn orphaned(&self, orphan: Option<Ref<Inode>>) {
        if let Some(orphan) = orphan {
            self.inodes.enqueue(orphan);
        }
    }
}
