//! Files with unwritten data, named by path.
//!
//! # Boundary
//! Finds names for people: for the report at the end of a mount, and for warnings. Decides nothing by them.
//!
//! # Concurrency
//! Reads the name table in steps, with no lock held between them. A file renamed meanwhile may be named by its old
//! path, or by none.
//!
//! # Why
//! A path is not kept per file: it would change with every rename above it. So it is searched for a report, in one pass
//! over the name table for all files together. A name that is not cached any more is searched in its directory, in the
//! store. Weakness: for a file with several names one is reported.

use crate::attributes::{Attributes, FileKind};
use crate::backend::{Cookie, Entry, FileRef, InodeId, Listing, Loss, Losses};
use crate::error::Error;
use crate::inode::{NOWHERE, Node};
use crate::name::Name;
use crate::page::FilePages;
use crate::vfs::{Core, Vfs};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Entries requested from the store at once, for a directory.
const BATCH: usize = 1024;
/// Lost objects for whose names the store is asked: each name may cost a listing of its directory.
const ASKED_MAX: usize = 1000;
/// Most nested directories; a path is not longer.
const DEPTH_MAX: usize = 4096;

/// A file with data that the store does not have.
#[derive(Debug)]
pub struct Unwritten {
    /// Path from the root of the file system, without a leading slash. `None` if it has no name any more, or none was
    /// found.
    pub path: Option<Vec<u8>>,
    /// Number of the file (`st_ino`).
    pub number: u64,
    /// The bytes that the store lacks, in whole pages, but not beyond the end of the file. 0 if it has all but could
    /// not make it stable: then the path is the root's.
    pub bytes: u64,
    /// The last refusal of data of the file, if there was one.
    pub error: Option<Error>,
}

/// Where names are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// In the cache.
    Cached,
    /// Also in the store, if they are not in the cache.
    Stored,
}

impl Unwritten {
    /// A store that could not make its data stable: anything may be lost.
    pub(crate) fn of_all(error: Error) -> Self {
        Self { path: Some(Vec::new()), number: InodeId::ROOT.0, bytes: 0, error: Some(error) }
    }

    /// The path with a leading slash and with control characters escaped, or the number of the inode if no path is
    /// known.
    pub fn place(&self) -> String {
        match &self.path {
            Some(path) => format!("/{}", escaped(path)),
            None => format!("inode {}", self.number),
        }
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes {
            0 => write!(out, "{}: not made stable", self.place())?,
            bytes => write!(out, "{}: {bytes} bytes", self.place())?,
        }
        self.error.as_ref().map_or(Ok(()), |error| write!(out, ": {error}"))
    }
}

/// `bytes` as one line of text.
fn escaped(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut line = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign.is_control() {
            true => line.extend(sign.escape_default()),
            false => line.push(sign),
        }
    }
    line
}

impl Vfs {
    /// Files with unwritten data, named by cached names: never waits for the store.
    pub fn unwritten(&self) -> Vec<Unwritten> {
        self.core.unwritten(Names::Cached)
    }

    /// The end of a file system: brings all data to the store, as far as that takes it, and drops and returns the rest.
    /// Data of removed files is dropped first, so that their space is free for others. From then on nothing is written
    /// back in the background. Blocks.
    ///
    /// Dropping a [`Vfs`] does the same and logs the lost files.
    pub fn end(&self) -> Vec<Unwritten> {
        self.core.end_pages()
    }
}

impl Core {
    /// Files with unwritten data.
    pub(crate) fn unwritten(&self, names: Names) -> Vec<Unwritten> {
        let mut told = self.named(&self.pages.unwritten_files(), names);
        told.sort_by(|one, other| (&one.path, one.number).cmp(&(&other.path, other.number)));
        told
    }

    /// Names `files`, each with the bytes that the store lacks, in their order.
    pub(crate) fn named(&self, files: &[(u64, Arc<FilePages>)], names: Names) -> Vec<Unwritten> {
        if files.is_empty() {
            return Vec::new();
        }
        let wanted = files.iter().map(|(_, file)| file.inode).collect();
        let mut places = Places::of(self, wanted, names);
        let tell = |(bytes, file): &(u64, Arc<FilePages>)| {
            let node = self.inodes.peek(file.inode);
            Unwritten {
                path: node.as_ref().and_then(|node| places.path(node)),
                number: node.map_or(file.inode.0, |node| node.number()),
                bytes: *bytes,
                error: file.errors.last(),
            }
        };
        files.iter().map(tell).collect()
    }

    /// The changes that the store took and lost, after its end has failed with `error`.
    pub(crate) fn lost_by_store(&self, error: Error) -> Vec<Unwritten> {
        let losses = catch_unwind(AssertUnwindSafe(|| self.backend().losses())).unwrap_or_default();
        let Some(Losses { cause, objects }) = losses.filter(|losses| !losses.objects.is_empty())
        else {
            return vec![Unwritten::of_all(error)];
        };
        let names = if objects.len() > ASKED_MAX { Names::Cached } else { Names::Stored };
        let wanted = objects.iter().map(|object| object.inode).collect();
        let mut places = Places::of(self, wanted, names);
        let tell = |&Loss { inode, number, bytes }: &Loss| {
            let path = self.inodes.peek(inode).and_then(|node| places.path(&node));
            let error = Some(Error::Io(io::Error::other(cause.clone())));
            Unwritten { path, number, bytes, error }
        };
        let mut told: Vec<_> = objects.iter().map(tell).collect();
        told.sort_by(|one, other| (&one.path, one.number).cmp(&(&other.path, other.number)));
        told
    }

    /// The place of one file, for a warning: asks the store nothing.
    pub(crate) fn place_of(&self, inode: InodeId) -> String {
        let node = self.inodes.peek(inode);
        let mut places = Places::of(self, HashSet::from([inode]), Names::Cached);
        let path = node.as_ref().and_then(|node| places.path(node));
        let number = node.map_or(inode.0, |node| node.number());
        Unwritten { path, number, bytes: 0, error: None }.place()
    }
}

/// Names of files, and of the directories that lead to them.
struct Places<'a> {
    core: &'a Core,
    /// By inode: its directory, and its name there.
    links: HashMap<InodeId, (InodeId, Box<[u8]>)>,
    names: Names,
}

impl<'a> Places<'a> {
    fn of(core: &'a Core, wanted: HashSet<InodeId>, names: Names) -> Self {
        let mut places = Self { core, links: HashMap::new(), names };
        places.collect(&wanted);
        places
    }

    fn collect(&mut self, wanted: &HashSet<InodeId>) {
        let mut at = 0;
        while at < self.core.names.buckets() {
            let links = &mut self.links;
            self.core.names.visit((at, BUCKETS), |entry| {
                let Some(inode) = entry.value().inode() else { return };
                if !inode.is_directory() && !wanted.contains(&inode.id) {
                    return;
                }
                let parent = InodeId(entry.parent());
                // Of several names the one under which the file was last found.
                if !links.contains_key(&inode.id) || inode.parent_hint() == Some(parent) {
                    links.insert(inode.id, (parent, entry.name().into()));
                }
            });
            at += BUCKETS;
            std::thread::yield_now();
        }
    }

    /// The path of `node` from the root.
    fn path(&mut self, node: &Node) -> Option<Vec<u8>> {
        let (mut names, mut at) = (Vec::new(), node.clone());
        while at.id() != InodeId::ROOT {
            if names.len() > DEPTH_MAX || at.inode.parent_hint() == Some(NOWHERE) {
                return None;
            }
            let (parent, name) = match self.links.get(&at.id()) {
                Some((parent, name)) => (*parent, name.clone()),
                None => self.ask(&at)?,
            };
            names.push(name);
            at = match parent {
                InodeId::ROOT => break,
                parent => self.core.inodes.peek(parent)?,
            };
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// The directory of `node` and its name there, from the store.
    fn ask(&mut self, node: &Node) -> Option<(InodeId, Box<[u8]>)> {
        let parent = node.inode.parent_hint().filter(|_| self.names == Names::Stored)?;
        let mut search = Search::new(node);
        let mut from = Cookie::default();
        loop {
            let backend = self.core.backend();
            let list = || backend.names().list(FileRef::unopened(parent), from, &mut search);
            // A store that fails here, as it did before, leaves the file without a name.
            let listed = catch_unwind(AssertUnwindSafe(list)).ok()?;
            for taken in std::mem::take(&mut search.taken) {
                backend.inodes().forget(taken, 1);
            }
            listed.ok()?;
            if let Some(name) = search.found {
                self.links.insert(node.id(), (parent, name.clone()));
                return Some((parent, name));
            }
            if std::mem::take(&mut search.seen) < BATCH {
                return None;
            }
            from = search.next;
        }
    }
}

/// Searches for an object in a directory, by its number.
struct Search {
    number: u64,
    kind: FileKind,
    found: Option<Box<[u8]>>,
    /// Entries of this batch.
    seen: usize,
    /// Entries of this batch with a counted reference.
    taken: Vec<InodeId>,
    next: Cookie,
}

impl Search {
    fn new(node: &Node) -> Self {
        let (number, kind) = (node.number(), node.kind());
        Self { number, kind, found: None, seen: 0, taken: Vec::new(), next: Cookie::default() }
    }
}

impl Listing for Search {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        if self.found.is_some() || self.seen >= BATCH {
            return false;
        }
        self.seen += 1;
        self.next = next;
        if (number, kind) == (self.number, self.kind) {
            self.found = Some(name.as_bytes().into());
        }
        true
    }

    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool {
        let Attributes { number, kind, .. } = entry.attributes;
        let took = self.add_name(name, next, number, kind);
        if took {
            self.taken.push(entry.inode);
        }
        took
    }

    fn wants_attributes(&self) -> bool {
        false
    }
}
