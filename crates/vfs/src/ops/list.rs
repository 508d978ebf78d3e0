//! Listing a directory.
//!
//! The backend fills a batch while it may hold locks of its own; only after it has returned are the
//! entries adopted into the caches and offered to the caller. Entries that the caller has no room
//! for give their references back.

use crate::attributes::{Attributes, FileKind};
use crate::backend::{Cookie, Entry, FileRef, Listing};
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{Node, Progress, Ticket};
use crate::name::Name;
use crate::names::Arrival;
use crate::permission::Access;
use crate::vfs::Vfs;
use std::time::Duration;

/// Entries asked of the store at once, at most.
const BATCH_MAX: usize = 1024;

/// Receives the entries of a directory from [`Vfs::list`].
pub trait Entries {
    /// About how many more entries there is room for; sizes the batches.
    fn room(&self) -> usize;

    /// Whether attributes (and held nodes) are wanted, rather than names.
    fn wants_nodes(&self) -> bool;

    /// Takes a name. False when there was no room for it; nothing more is offered then.
    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool;

    /// Takes an entry with its node and attributes, which are believed for `valid` (name,
    /// attributes). False when there was no room.
    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool;
}

enum Item {
    Name { number: u64, kind: FileKind },
    Entry(Entry),
}

/// One batch from the store.
struct Batch {
    items: Vec<(Box<[u8]>, Cookie, Item)>,
    limit: usize,
    wants_attributes: bool,
}

impl Batch {
    fn add(&mut self, name: Name<'_>, next: Cookie, item: Item) -> bool {
        if self.items.len() >= self.limit {
            return false;
        }
        self.items.push((name.as_bytes().into(), next, item));
        true
    }
}

impl Listing for Batch {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        self.add(name, next, Item::Name { number, kind })
    }

    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool {
        self.add(name, next, Item::Entry(entry))
    }

    fn wants_attributes(&self) -> bool {
        self.wants_attributes
    }
}

impl Vfs {
    /// Lists `directory` from `from` on into `entries`, until its end or until there is no room.
    /// `.` and `..` are left out. May block.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::Access`] without read permission, checked here only for
    /// directories that are not open (`file` unopened).
    pub fn list(
        &self,
        caller: &Caller,
        directory: &Node,
        file: FileRef,
        from: Cookie,
        entries: &mut dyn Entries,
    ) -> Result<()> {
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        if file == FileRef::unopened(directory.id()) {
            self.check(caller, directory, Access::READ)?;
        }
        let mut at = from;
        let mut progress = self.start_listing(directory, from);
        loop {
            let ticket = self.core.clock.now();
            let mut batch = Batch {
                items: Vec::new(),
                limit: entries.room().clamp(1, BATCH_MAX),
                wants_attributes: entries.wants_nodes(),
            };
            let listed = self.core.backend().names().list(file, at, &mut batch);
            let full = batch.items.len() >= batch.limit;
            let entries_only = batch.items.iter().all(|item| matches!(item.2, Item::Entry(_)));
            let took_all = self.offer(directory, ticket, batch, entries, &mut at);
            listed?;
            progress = progress.filter(|_| entries_only);
            if !took_all || !full {
                self.end_listing(directory, progress, at, took_all && !full);
                directory.inode.was_read(&self.core.clock);
                return Ok(());
            }
        }
    }

    /// A listing begins, or goes on where the last one that was followed has stopped.
    fn start_listing(&self, directory: &Node, from: Cookie) -> Option<Progress> {
        let mut listing = directory.inode.of_directory().listing.lock();
        if from == Cookie::default() {
            let losses = self.core.names.losses().of(directory.id().0);
            let until = self.core.complete_expiry();
            return Some(Progress { ticket: self.core.clock.now(), losses, until, next: from });
        }
        listing.take().filter(|known| known.next == from).map(|known| *known)
    }

    /// A listing stops at `at`, for now or at its end. If all of it went into the cache and nothing
    /// was changed since it began, the cache knows all names of the directory.
    fn end_listing(&self, directory: &Node, progress: Option<Progress>, at: Cookie, ended: bool) {
        let Some(progress) = progress else { return };
        let known = directory.inode.of_directory();
        if !ended {
            *known.listing.lock() = Some(Box::new(Progress { next: at, ..progress }));
            return;
        }
        let changes = known.entries.lock();
        if changes.admits(progress.ticket) {
            directory.inode.declare_complete(progress.losses, progress.until);
        }
    }

    /// Offers a batch to the caller; `at` becomes where to go on after what it took. True if it took
    /// everything.
    fn offer(
        &self,
        directory: &Node,
        ticket: Ticket,
        batch: Batch,
        entries: &mut dyn Entries,
        at: &mut Cookie,
    ) -> bool {
        let mut wanted = true;
        for (name, next, item) in batch.items {
            let checked = Name::new(&name);
            let was_wanted = wanted;
            match item {
                Item::Name { number, kind } => {
                    let Ok(name) = checked else { continue };
                    wanted = wanted && entries.name(name, next, number, kind);
                }
                Item::Entry(entry) => match checked {
                    Ok(name) if wanted => {
                        wanted = self.offer_node(directory, ticket, (name, next, entry), entries);
                    }
                    // Not a name anybody may see, or no room left.
                    _ => self.core.backend().inodes().forget(entry.inode, 1),
                },
            }
            if was_wanted && wanted {
                *at = next;
            }
        }
        wanted
    }

    fn offer_node(
        &self,
        directory: &Node,
        ticket: Ticket,
        (name, next, entry): (Name<'_>, Cookie, Entry),
        entries: &mut dyn Entries,
    ) -> bool {
        let core = &self.core;
        let (node, name_valid) = core.admit(directory, ticket, (name, &entry), Arrival::Listed);
        let (attributes, valid) = node.inode.believed(entry.attributes);
        if entries.wants_nodes() {
            entries.node(name, next, node, &attributes, (name_valid, valid))
        } else {
            entries.name(name, next, entry.attributes.number, entry.attributes.kind)
        }
    }
}
