//! The control directory: `.uvfs` in the root of a mount, for programs that cannot run a command.
//!
//! ```text
//! echo 1:/photos/2019 > MOUNT/.uvfs/drop_caches
//! ```
//!
//! # Boundary
//! Owns two objects that no store has, their node ids, attributes and handles. [`request`] interprets a write; the
//! connected [`DropCaches`] cleans.
//!
//! `.uvfs` is found by name and not listed, so programs that copy or search a tree do not find it. It hides an object
//! of that name in the root of the store, which the mount then cannot reach or change. Switched off, `.uvfs` is a name
//! like any other.
//!
//! # Concurrency
//! All but the connection and the users' accounts is fixed when the mount starts; the connection is set once. Ordinary
//! requests pay one comparison of the parent with the root, or of a node id with the end of the range.
//!
//! # Why
//! Any user may write the file (mode 0222), and it judges the writer itself: mode bits cannot grant a write to owners
//! of the directory that is named in it. It cannot be read: a last request does not concern the next reader.
//! Weaknesses: on a read-only mount the kernel refuses writes to this file, too. For a store without opens the kernel
//! sends none here either, and user 0 then reads an empty file instead of an error. The kernel makes one writer wait
//! for another.

mod rate;
pub(crate) mod request;
#[cfg(test)]
mod tests;

use super::nodes::ROOT;
use super::requests::{Attrs, EntryOut};
use crate::clean::Cleaner;
use std::io;
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::time::Duration;
use uvfs_vfs::{
    Access, Attributes, Caller, Clean, Cookie, Dirty, Entries, Error, FileKind, Name, Node, Result,
    SetAttributes, permission,
};

/// The directory, in the root of a mount.
const NAME: &[u8] = b".uvfs";
/// The file in it.
const FILE: &[u8] = b"drop_caches";

/// From here on node ids are ours: no store's object is published by one of them.
const RESERVED: u64 = u64::MAX - 2;
const DROP_CACHES: u64 = RESERVED;
const DIRECTORY: u64 = u64::MAX - 1;

/// Handles with this bit are ours; the other bits are the uid that opened it. The table of open files counts up from 1
/// and never reaches this bit.
const HANDLE: u64 = 1 << 63;

/// How long the kernel caches answers that never change.
const VALID: Duration = Duration::from_secs(3600);

/// Whether the kernel means something of the control directory by node id `id`.
#[inline]
pub(crate) const fn is_control(id: u64) -> bool {
    id >= RESERVED
}

/// Whether `number`, a store's number of an object, cannot be its node id.
pub(crate) const fn is_reserved(number: u64) -> bool {
    number >= RESERVED
}

/// Cleans a directory of the mount: our caches, and the kernel's.
pub(crate) trait DropCaches: Send + Sync {
    /// Returns when it is done. Waits for the kernel; not on a reader.
    fn drop_caches(&self, directory: &Node, what: Clean) -> io::Result<()>;
}

impl DropCaches for Cleaner {
    fn drop_caches(&self, directory: &Node, what: Clean) -> io::Result<()> {
        let all = &mut |_| ControlFlow::Continue(());
        self.clean(directory, what, Dirty::Skip, all).map(drop)
    }
}

/// See the module.
pub(crate) struct Control {
    on: bool,
    /// The mount's owner, as which it is served.
    owner: u32,
    directory: Attributes,
    file: Attributes,
    cleaner: OnceLock<Box<dyn DropCaches>>,
    rate: rate::Rate,
}

impl Control {
    /// The control directory of a mount, if it is to have one (`on`).
    pub(crate) fn new(on: bool) -> Self {
        let owner = rustix::process::geteuid().as_raw();
        let owned = |id, kind, mode| Attributes {
            uid: owner,
            gid: rustix::process::getegid().as_raw(),
            ..Attributes::new(id, kind, mode)
        };
        Self {
            on,
            owner,
            directory: owned(DIRECTORY, FileKind::Directory, 0o555),
            file: owned(DROP_CACHES, FileKind::Regular, 0o222),
            cleaner: OnceLock::new(),
            rate: rate::Rate::new(),
        }
    }

    /// Connects the cleaner; the first one stays. Until then a request answers EAGAIN.
    pub(crate) fn connect(&self, cleaner: Box<dyn DropCaches>) {
        // A second one is dropped: a mount has one.
        let _ = self.cleaner.set(cleaner);
    }

    /// Whether `name` in `parent` is the control directory, also if the store has that name.
    #[inline]
    pub(crate) fn hides(&self, parent: u64, name: &[u8]) -> bool {
        parent == ROOT && name == NAME && self.on
    }

    /// Fails if `name` in `parent` is not to be made, removed or replaced.
    pub(crate) fn reject_reserved(&self, parent: u64, name: &[u8]) -> Result<()> {
        if self.hides(parent, name) { Err(Error::NotPermitted) } else { Ok(()) }
    }

    /// The directory as an entry of the root. The kernel's count of it is of no interest.
    pub(crate) fn directory(&self) -> EntryOut {
        self.entry(DIRECTORY)
    }

    /// The object called `name` in the control directory.
    pub(crate) fn lookup(&self, parent: u64, name: &[u8]) -> Result<EntryOut> {
        match (parent, name) {
            (DIRECTORY, FILE) => Ok(self.entry(DROP_CACHES)),
            (DIRECTORY, _) => Ok(EntryOut::Missing(VALID)),
            _ => Err(Error::NotDirectory),
        }
    }

    fn entry(&self, id: u64) -> EntryOut {
        EntryOut::Found { attrs: self.attributes(id), entry_valid: VALID, generation: 0 }
    }

    /// The attributes of one of the two.
    pub(crate) fn attributes(&self, id: u64) -> Attrs {
        let attributes = if id == DIRECTORY { self.directory } else { self.file };
        Attrs { node_id: id, attributes, valid: VALID }
    }

    /// A shell truncates the file before it writes; no other attribute can be set.
    pub(crate) fn set_attributes(&self, id: u64, set: &SetAttributes) -> Result<Attrs> {
        let truncates = id == DROP_CACHES && set.size == Some(0);
        let SetAttributes { mode: None, uid: None, gid: None, .. } = set else {
            return Err(Error::NotPermitted);
        };
        if truncates { Ok(self.attributes(id)) } else { Err(Error::NotPermitted) }
    }

    /// Whether `caller` has the `wanted` access to one of the two, where the kernel does not check that.
    pub(crate) fn access(&self, caller: &Caller, id: u64, wanted: Access) -> Result<()> {
        let attributes = self.attributes(id).attributes;
        match permission::allows(caller, &attributes, None, wanted) {
            true => Ok(()),
            false => Err(Error::Access),
        }
    }

    /// Opens one of the two for `uid`: the directory for reading, the file for writing only.
    pub(crate) fn open(&self, id: u64, flags: i32, uid: u32) -> Result<u64> {
        let wanted = if id == DIRECTORY { libc::O_RDONLY } else { libc::O_WRONLY };
        match flags & libc::O_ACCMODE == wanted {
            true => Ok(HANDLE | u64::from(uid)),
            false => Err(Error::Access),
        }
    }

    /// Lists the directory.
    pub(crate) fn list(&self, id: u64, from: Cookie, entries: &mut dyn Entries) -> Result<()> {
        if id != DIRECTORY {
            return Err(Error::NotDirectory);
        }
        if from.0 == 0 {
            // No room for one name: the kernel asks again.
            entries.name(Name::new(FILE)?, Cookie(1), DROP_CACHES, FileKind::Regular);
        }
        Ok(())
    }

    /// Whether a listing of `id` could show the hidden object.
    pub(crate) fn covers(&self, id: u64) -> bool {
        id == ROOT && self.on
    }
}

/// A listing of the root without the object that the control directory hides.
pub(crate) struct Hiding<'a>(pub(crate) &'a mut dyn Entries);

impl Entries for Hiding<'_> {
    fn room(&self) -> usize {
        self.0.room()
    }

    fn wants_nodes(&self) -> bool {
        self.0.wants_nodes()
    }

    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        name.as_bytes() == NAME || self.0.name(name, next, number, kind)
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool {
        name.as_bytes() == NAME || self.0.node(name, next, node, attributes, valid)
    }
}
