//! Admits an answer of the store: caches the object, its place and its name in one step.
//!
//! # Boundary
//! For answers about one name of a directory, from a lookup or a listing. [`change`](super::change) handles the names
//! that a change makes.
//!
//! # Concurrency
//! Takes the lock over the directory's entries once. Under it, checks whether a change has overtaken the answer,
//! records the object's place, and inserts the name. A change of that directory begins under the same lock, so it comes
//! before all of these steps or after them. Two steps come before, because they take earlier locks or drop holds. A
//! directory's parent is recorded, ordered by the ticket. Pages with another parent hint move to the directory where
//! their file was found. Pages inserted meanwhile move afterwards.
//!
//! # Why
//! Separate steps took that lock three times, because each had to check the answer again. Weakness: a file whose pages
//! have another parent hint still takes it three times.

use crate::backend::Entry;
use crate::inode::{Asked, Node, Ticket};
use crate::names::{Arrival, Key, Target};
use crate::reclaim::NAME_BYTES;
use crate::vfs::{Core, Reported};
use std::time::Duration;

impl Core {
    /// Caches the store's answer that the name `key` of `directory` is `entry`. Returns the object, and for how long the name
    /// is valid. Calls the backend.
    pub(crate) fn admit(
        &self,
        directory: &Node,
        asked: impl Into<Asked>,
        (key, entry): (Key<'_>, &Entry),
        arrival: Arrival,
        reported: Reported,
    ) -> (Node, Duration) {
        let asked = asked.into();
        let ticket = asked.ticket();
        let node = {
            let expiry = self.attribute_expiry(&entry.attributes, reported);
            self.inodes.adopt(self, entry, ticket, expiry)
        };
        if node.is_directory() && !node.inode.set_parent(directory, ticket) {
            // It moved since, or the ticket is too low to decide: cleans of the directory would not reach it by this
            // name.
            self.lose_name(key);
            self.counters.discarded.hit();
            return (node, Duration::ZERO);
        }
        let target = Target::Node(&node);
        let valid = self.admit_name(directory, asked, (key, target), arrival, reported);
        (node, valid)
    }

    /// Caches the answer that `directory` has no such name, like [`Core::admit`].
    pub(super) fn admit_missing(
        &self,
        directory: &Node,
        ticket: Ticket,
        key: Key<'_>,
        reported: Reported,
    ) -> Duration {
        let missing = (key, Target::Missing);
        let valid = self.admit_name(directory, ticket.into(), missing, Arrival::Asked, reported);
        self.trim_negatives();
        valid
    }

    fn admit_name(
        &self,
        directory: &Node,
        asked: Asked,
        (key, target): (Key<'_>, Target<'_>),
        arrival: Arrival,
        reported: Reported,
    ) -> Duration {
        self.reclassify_if_due();
        self.learn_policy(&directory.inode);
        // An answer from before a clean is not kept.
        self.learn_cleans(&directory.inode);
        let file = match target {
            Target::Node(node) if !node.is_directory() => Some(&node.inode),
            _ => None,
        };
        let entries = &directory.inode.dir_state().entries;
        if let Some(file) = file {
            file.bring_pages_to(directory, || entries.lock().admits(asked));
        }
        let changes = entries.lock();
        let expiry = changes.admits(asked).then(|| {
            if let Some(file) = file {
                file.found_in(directory.id());
            }
            // A complete directory needs no negative entries.
            match target {
                Target::Missing if self.knows_all_names(directory) => {
                    // The name may still be cached as an object.
                    self.supersede_name(&directory.inode, key, || ());
                    self.negative_expiry(reported)
                }
                _ => {
                    let stamp = asked.ticket();
                    self.remember_name(&directory.inode, (key, target), (stamp, reported), arrival)
                }
            }
        });
        drop(changes);
        match (file, expiry) {
            (Some(file), Some(_)) => file.move_pages_to_hint(),
            // The answer names an old place of the file, or its present one.
            (Some(file), None) => file.doubt_parent_hint(directory.id()),
            (None, _) => {}
        }
        if expiry.is_none() {
            self.counters.discarded.hit();
        }
        self.added(NAME_BYTES);
        expiry.map_or(Duration::ZERO, |expiry| expiry.remains())
    }

    /// Whether all names of `directory` are in the cache. The caller has the lock over its entries.
    fn knows_all_names(&self, directory: &Node) -> bool {
        directory.inode.claim_complete(&mut None).is_some_and(|(complete, claim, _)| {
            complete.stands(claim, self.names.losses(), directory.id().0)
        })
    }
}
