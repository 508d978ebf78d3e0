//! Handles: finds a forgotten node again by the node id in a user's handle.
//!
//! # Boundary
//! Answers a lookup of `.` (the object of this node id) and of `..` (its directory), which the kernel sends for
//! `open_by_handle_at` when it has no inode for it. Returns an object and its generation; the kernel compares that with
//! the handle's.
//!
//! # How
//! 1. An id that the kernel holds names that node.
//! 2. Its place when the kernel forgot it ([`super::places`]), by the ids of the directories above, each of which may
//!    have to be found again in the same way. The object there counts only with the same number and the same
//!    generation.
//! 3. By its number, where the store keeps an index of numbers.
//! 4. Otherwise it is stale.
//!
//! # Concurrency
//! Asks the store, so it never runs where other requests wait for it, and holds no lock. The found object is counted
//! like any other lookup. If the id names another object by then, the count is returned and the handle is stale.
//!
//! # Why
//! The protocol sends a node id and nothing else in that question, so this server has to find the object. The host's
//! own file handles find an object, but not whether it is still below the source, and give it no name. Weakness: an
//! object that another user of a shared store moved is found only under its old name. The record of forgotten nodes is
//! bounded: the oldest handles become stale.

use super::nodes::{EntryPlace, ROOT};
use super::places::Place;
use super::requests::{Attrs, EntryOut, Server};
use std::time::Duration;
use uvfs_vfs::{Attributes, Caller, Checks, Error, Name, Node, Result};

/// Most directories between an object and one that the kernel holds.
const DEPTH_MAX: usize = 1 << 14;

impl Server {
    /// Counts a lookup of `node`, seen at `place` if by an entry, and returns its id and its generation.
    pub(crate) fn publish(
        &self,
        node: &Node,
        attributes: &Attributes,
        place: Option<Place<'_>>,
    ) -> (u64, u32) {
        let shown = (attributes.number, attributes.size);
        let births = self.vfs.capabilities().births;
        if !births && !self.keeps_places() {
            return (self.nodes.publish(node, shown, None), 0);
        }
        let generation = if births { attributes.generation() } else { 0 };
        let others = attributes.links > 1 && !node.is_directory();
        let seen = EntryPlace { generation, place, others };
        (self.nodes.publish(node, shown, Some(seen)), generation)
    }

    /// The attributes of `node` that the kernel may cache after the answer `given`, and for how long.
    pub(crate) fn believed(&self, node: &Node, given: Attributes) -> (Attributes, Duration) {
        self.vfs.believed(node, given)
    }

    /// The object of `id` (`.`), or its directory (`..`).
    pub(super) fn lookup_handle(&self, id: u64, name: &[u8]) -> Result<EntryOut> {
        let (node, attributes) = match name {
            b"." => self.again(id)?,
            _ => {
                let node = self.node(id)?;
                let parent = if id == ROOT { Some(node) } else { node.parent() };
                let parent = parent.ok_or(Error::Stale)?;
                let attributes = self.vfs.attributes(&parent, None)?;
                (parent, attributes)
            }
        };
        // Not by an entry: its place is known from before, or not at all.
        let (node_id, generation) = self.publish(&node, &attributes, None);
        if name == b"." && node_id != id {
            self.nodes.forget(node_id, 1);
            return Err(Error::Stale);
        }
        let (attributes, valid) = self.vfs.believed(&node, attributes);
        let attrs = Attrs { node_id, attributes, valid };
        Ok(EntryOut::Found { attrs, entry_valid: Duration::ZERO, generation })
    }

    /// The object that the kernel once knew as `id`.
    fn again(&self, id: u64) -> Result<(Node, Attributes)> {
        let found = match self.nodes.get(id) {
            Some(node) => self.vfs.attributes(&node, None).map(|attributes| (node, attributes)),
            None => match self.at_its_places(id) {
                Err(Error::Stale | Error::NotFound | Error::NotDirectory) => self.by_number(id),
                other => other,
            },
        };
        let (node, attributes) = found?;
        // The kernel has an inode for an open object, and does not ask. An object without a name is being removed.
        match attributes.links == 0 || node.is_unlinked() {
            true => Err(Error::Stale),
            false => Ok((node, attributes)),
        }
    }

    fn by_number(&self, id: u64) -> Result<(Node, Attributes)> {
        self.vfs.by_number(id).map_err(|error| match error {
            Error::Unsupported(_) => Error::Stale,
            other => other,
        })
    }

    fn at_its_places(&self, id: u64) -> Result<(Node, Attributes)> {
        let (places, generation) = self.nodes.past(id).ok_or(Error::Stale)?;
        let mut last = Error::Stale;
        for (parent, name) in places.newest_first() {
            let found = self
                .directory_again(parent)
                .and_then(|parent| self.if_it_is((id, generation), &parent, &name));
            match found {
                Ok(found) => return Ok(found),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The directory that the kernel knows, or once knew, as `id`.
    fn directory_again(&self, id: u64) -> Result<Node> {
        let (mut way, mut at) = (Vec::new(), id);
        let mut node = loop {
            if let Some(node) = self.nodes.get(at) {
                break node;
            }
            let Some((places, generation)) = self.nodes.past(at) else {
                break self.by_number(at)?.0;
            };
            // A directory has one place.
            let Some((parent, name)) = places.newest_first().into_iter().next() else {
                return Err(Error::Stale);
            };
            way.push(((at, generation), name));
            at = parent;
            // If others move directories in the store, the recorded places may form a circle.
            if way.len() > DEPTH_MAX {
                return Err(Error::Stale);
            }
        };
        while let Some((wanted, name)) = way.pop() {
            node = self.if_it_is(wanted, &node, &name)?.0;
        }
        Ok(node)
    }

    /// The object called `name` in `parent`, if it has this number and generation.
    fn if_it_is(
        &self,
        wanted: (u64, u32),
        parent: &Node,
        name: &[u8],
    ) -> Result<(Node, Attributes)> {
        let caller = Caller { checks: Checks::Done, ..Caller::root() };
        let found = self.vfs.lookup(&caller, parent, Name::new(name)?)?.found()?;
        match (found.attributes.number, found.attributes.generation()) == wanted {
            true => Ok((found.node, found.attributes)),
            false => Err(Error::Stale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Settings;
    use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
    use uvfs_vfs::{Vfs, VfsConfig};

    fn looked_up(server: &Server, parent: u64, name: &[u8]) -> Result<(u64, u32)> {
        match server.lookup(&Caller::root(), parent, name)? {
            EntryOut::Found { attrs, generation, .. } => Ok((attrs.node_id, generation)),
            EntryOut::Missing(_) => Err(Error::NotFound),
        }
    }

    /// The kernel forgot all nodes, directories too: their recorded places lead down the path again.
    #[test]
    fn what_was_forgotten_is_found_by_its_id_and_followed_when_it_moves() {
        let source = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(source.path().join("a/b")).unwrap();
        std::fs::write(source.path().join("a/b/file"), b"x").unwrap();
        let backend = DirectoryBackend::open(source.path(), DirectoryConfig::default()).unwrap();
        let settings = Settings { passthrough: false, control_directory: false, fake_root: None };
        let server = Server::new(Vfs::new(backend, VfsConfig::default()).unwrap(), settings);
        let a = looked_up(&server, ROOT, b"a").unwrap();
        let b = looked_up(&server, a.0, b"b").unwrap();
        let file = looked_up(&server, b.0, b"file").unwrap();
        let root = Caller::root();
        server.rename(&root, (b.0, b"file"), (a.0, b"moved"), 0, &mut Vec::new()).unwrap();
        server.rename(&root, (ROOT, b"a"), (ROOT, b"A"), 0, &mut Vec::new()).unwrap();
        for _ in 0..2 {
            for (id, _) in [a, b, file] {
                server.forget(id, 1);
            }
            server.vfs.forget_unused();
            assert_eq!(server.nodes.totals(), (0, 0));
            // The directories above are found on the way, and are not the kernel's by that.
            assert_eq!(looked_up(&server, file.0, b".").unwrap(), file);
            assert_eq!(server.nodes.totals(), (1, 1));
            assert_eq!(looked_up(&server, b.0, b".").unwrap(), b);
            assert_eq!(looked_up(&server, b.0, b"..").unwrap(), a);
            assert_eq!(looked_up(&server, a.0, b"..").unwrap().0, ROOT);
        }
        server.unlink(&root, a.0, b"moved", &mut Vec::new()).unwrap();
        server.forget(file.0, 1);
        assert!(matches!(looked_up(&server, file.0, b"."), Err(Error::Stale)));
        assert!(matches!(looked_up(&server, 1 << 40, b"."), Err(Error::Stale)));
    }
}
