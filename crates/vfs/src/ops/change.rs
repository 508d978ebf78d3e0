//! How a change and the caches agree.
//!
//! A change of a directory's entries runs in three steps: *begin* (the names concerned leave the
//! cache, and answers asked for earlier are not cached from now on), the backend call with no lock
//! held, *settle*. Between begin and settle everybody asks the store, so that nobody sees one name
//! as it was and another as it will be. If no other change of the same directory overlapped, the
//! outcome goes into the name cache; if one did, nobody knows which came first in the store, so the
//! names concerned stay out of it and are asked for again. So they do after a change that failed,
//! or never settled.
//!
//! A change often has to know which object a name means before it begins. Another change may come
//! in between: [`NameChange::knows`] tells whether what was found is still so.
//!
//! Changes in flight end when they are dropped: a backend that panics takes its own request down,
//! and the caches work as before.

use crate::attributes::Attributes;
use crate::inode::{Expiry, Node, Ticket};
use crate::name::Name;
use crate::names::Meaning;
use crate::vfs::Core;
use std::time::Duration;

/// A name, and what it was found to mean.
pub(super) type Known<'a> = (Name<'a>, Meaning);

/// A change of one directory's entries in flight.
pub(super) struct NameChange<'a> {
    core: &'a Core,
    directory: &'a Node,
    names: [Option<Name<'a>>; 2],
    entries: Ticket,
    _attributes: AttributeChange<'a>,
    knows: bool,
    settled: bool,
}

impl<'a> NameChange<'a> {
    /// Begins a change of `name` in `directory`.
    pub(super) fn begin(core: &'a Core, directory: &'a Node, name: Name<'a>) -> Self {
        Self::start(core, directory, [Some(name), None], |_| true)
    }

    /// Begins a change of `names` in `directory`, which were found after `ticket` to mean what is
    /// given.
    pub(super) fn begin_known(
        core: &'a Core,
        directory: &'a Node,
        ticket: Ticket,
        names: [Option<Known<'a>>; 2],
    ) -> Self {
        // A change of a name takes it out of the cache first, so what is cached is still so.
        let cached = |(name, meaning)| {
            core.names.find(directory.id(), name).is_some_and(|(now, _)| now == meaning)
        };
        Self::start(core, directory, names.map(|known| known.map(|known| known.0)), |unchanged| {
            unchanged(ticket) || names.into_iter().flatten().all(cached)
        })
    }

    fn start(
        core: &'a Core,
        directory: &'a Node,
        names: [Option<Name<'a>>; 2],
        knows: impl FnOnce(&dyn Fn(Ticket) -> bool) -> bool,
    ) -> Self {
        let (entries, knows) = {
            let mut changes = directory.inode.changes.lock();
            let knows = knows(&|ticket| changes.admits(ticket));
            names.iter().flatten().for_each(|name| core.names.remove(directory.id(), *name));
            (changes.begin(&core.clock), knows)
        };
        let attributes = AttributeChange::begin(core, directory);
        Self { core, directory, names, entries, _attributes: attributes, knows, settled: false }
    }

    /// Whether the names still meant, when the change began, what they had been found to mean.
    pub(super) fn knows(&self) -> bool {
        self.knows
    }

    /// The change succeeded: each name means now what `outcome` says, in the order given to
    /// `begin`; `None` for "ask again". Returns whether that is cached.
    pub(super) fn settle(mut self, outcome: [Option<Meaning>; 2]) -> bool {
        self.finish(outcome)
    }

    fn finish(&mut self, outcome: [Option<Meaning>; 2]) -> bool {
        self.settled = true;
        let core = self.core;
        let directory = &self.directory.inode;
        let mut changes = directory.changes.lock();
        let alone = changes.end(&core.clock, self.entries);
        for (name, meaning) in self.names.iter().zip(outcome) {
            let Some(name) = *name else { continue };
            match meaning.filter(|_| alone) {
                Some(meaning) => {
                    let expiry = core.expiry_of(meaning);
                    core.names.insert(directory.id, name, meaning, expiry, &core.counters);
                }
                None => core.names.remove(directory.id, name),
            }
        }
        alone
    }
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.finish([None, None]);
        }
    }
}

/// A change of one inode's attributes in flight. Ends when dropped.
#[derive(Debug)]
pub(super) struct AttributeChange<'a> {
    core: &'a Core,
    node: &'a Node,
    begin: Ticket,
    value: Option<(Attributes, Expiry)>,
}

impl<'a> AttributeChange<'a> {
    /// Attributes asked for earlier are not cached from now on.
    pub(super) fn begin(core: &'a Core, node: &'a Node) -> Self {
        Self { core, node, begin: node.inode.begin_change(&core.clock), value: None }
    }

    /// The change ended, and the store says that the attributes are now these: kept if no other
    /// change overlapped.
    pub(super) fn settle(mut self, value: Attributes) {
        self.value = Some((value, self.core.attribute_expiry()));
    }
}

impl Drop for AttributeChange<'_> {
    fn drop(&mut self) {
        self.node.inode.end_change(&self.core.clock, self.begin, self.value);
    }
}

impl Core {
    /// How long `meaning` is believed from now on.
    pub(super) fn expiry_of(&self, meaning: Meaning) -> Expiry {
        match meaning {
            Meaning::Inode(_) => self.entry_expiry(),
            Meaning::Missing => self.negative_expiry(),
        }
    }

    /// Keeps an answer about one name, asked for at `ticket`, unless a change overtook it. Returns
    /// for how long it may be believed.
    pub(super) fn keep_name(
        &self,
        directory: &Node,
        ticket: Ticket,
        name: Name<'_>,
        meaning: Meaning,
    ) -> Duration {
        let changes = directory.inode.changes.lock();
        if changes.admits(ticket) {
            let expiry = self.expiry_of(meaning);
            self.names.insert(directory.id(), name, meaning, expiry, &self.counters);
            expiry.remains()
        } else {
            drop(changes);
            self.counters.discarded.hit();
            Duration::ZERO
        }
    }
}
