//! Taking an answer of the store in: the object, where it lies, and its name, in one step.
//!
//! # Boundary
//! For answers about one name of a directory, from a lookup or a listing. What a change makes of a name goes
//! by [`change`](super::change).
//!
//! # Concurrency
//! The lock over the directory's entries is taken once: under it the answer is found to stand or to be
//! overtaken, the object is noted to lie there, and the name goes into the table. A change of that directory
//! begins under the same lock, so it comes before all of these or after. Two things are done before, since
//! they take locks that come before that one or give holds back: a directory's parent is noted, which has an
//! order of its own by the ticket, and pages that lie elsewhere move to where their file was found. Pages that
//! come meanwhile move after.
//!
//! # Why
//! Adopting, placing and naming one after the other took that lock three times, since each had to find out
//! anew whether the answer stands. Weakness: a file whose
//! pages lie elsewhere still takes it three times.

use crate::backend::Entry;
use crate::inode::{Asked, Node, Ticket};
use crate::name::Name;
use crate::names::{Arrival, Target};
use crate::reclaim::NAME_BYTES;
use crate::vfs::Core;
use std::time::Duration;

impl Core {
    /// Takes in that `name` of `directory` is `entry`, which the store was asked for so. The object, and for
    /// how long the name is believed. Calls the backend.
    pub(crate) fn admit(
        &self,
        directory: &Node,
        asked: impl Into<Asked>,
        (name, entry): (Name<'_>, &Entry),
        arrival: Arrival,
    ) -> (Node, Duration) {
        let asked = asked.into();
        let ticket = asked.ticket();
        let node = self.inodes.adopt(self, entry, ticket, self.attribute_expiry());
        if node.is_directory() && !node.inode.set_parent(directory, ticket) {
            // It came elsewhere since, or the ticket is too low to tell: cleanings would not reach it by this name.
            self.lose_name(directory.id(), name);
            self.counters.discarded.hit();
            return (node, Duration::ZERO);
        }
        let valid = self.admit_name(directory, asked, (name, Target::Node(&node)), arrival);
        (node, valid)
    }

    /// Takes in that `directory` has no `name`, as [`Core::admit`].
    pub(super) fn admit_missing(
        &self,
        directory: &Node,
        ticket: Ticket,
        name: Name<'_>,
    ) -> Duration {
        let valid =
            self.admit_name(directory, ticket.into(), (name, Target::Missing), Arrival::Asked);
        self.trim_negatives();
        valid
    }

    fn admit_name(
        &self,
        directory: &Node,
        asked: Asked,
        (name, target): (Name<'_>, Target<'_>),
        arrival: Arrival,
    ) -> Duration {
        self.reclassify_if_due();
        self.learn_policy(&directory.inode);
        // An answer from before a cleaning is not kept.
        self.learn_cleans(&directory.inode);
        let file = match target {
            Target::Node(node) if !node.is_directory() => Some(&node.inode),
            _ => None,
        };
        let entries = &directory.inode.of_directory().entries;
        if let Some(file) = file {
            file.bring_pages_to(directory, || entries.lock().admits(asked));
        }
        let changes = entries.lock();
        let expiry = changes.admits(asked).then(|| {
            if let Some(file) = file {
                file.found_in(directory.id());
            }
            // A complete directory needs no notes about what it does not have.
            match target {
                Target::Missing if self.knows_all_names(directory) => {
                    // It may have been believed to be something.
                    self.forget_name(directory.id(), name);
                    self.negative_expiry()
                }
                _ => {
                    let stamp = asked.ticket();
                    self.remember_name(&directory.inode, (name, target), stamp, arrival)
                }
            }
        });
        drop(changes);
        match (file, expiry) {
            (Some(file), Some(_)) => file.rehome_pages(),
            // It says where the file was, or where it is by now.
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
