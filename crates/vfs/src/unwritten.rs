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
//! store. If the directory is not known either, one walk through the store's directories finds all such names. It ends
//! after [`SEARCH_TIME`]. Weakness: for a file with several names one is reported.

use crate::attributes::{Attributes, FileKind};
use crate::backend::{Cookie, Entry, FileRef, InodeId, Listing, Loss, Losses};
use crate::caller::Caller;
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
use std::time::{Duration, Instant};

/// Buckets of the name table in one step.
const BUCKETS: usize = 64;
/// Entries requested from the store at once, for a directory.
const BATCH: usize = 1024;
/// Lost objects for each of which the store lists the directory: the walk serves more of them faster.
const ASKED_MAX: usize = 1000;
/// Longest walk through the store's directories. `uvfs unmount` waits for a minute.
const SEARCH_TIME: Duration = Duration::from_secs(20);
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
        let mut named: Vec<_> = files
            .iter()
            .map(|(bytes, file)| {
                let node = self.inodes.peek(file.inode);
                Unwritten {
                    path: node.as_ref().and_then(|node| places.path(node)),
                    number: node.as_ref().map_or(file.inode.0, Node::number),
                    bytes: *bytes,
                    error: file.errors.last(),
                }
            })
            .collect();
        if names == Names::Stored {
            let sought = |(at, (_, file)): (usize, &(u64, Arc<FilePages>))| {
                let node = self.inodes.peek(file.inode)?;
                (!has_no_name(&node)).then(|| (at, (node.number(), node.kind())))
            };
            self.find_rest(&mut named, files.iter().enumerate().filter_map(sought));
        }
        named
    }

    /// The changes that the store took and lost, after its end has failed with `error`.
    pub(crate) fn lost_by_store(&self, error: Error) -> Vec<Unwritten> {
        let losses = catch_unwind(AssertUnwindSafe(|| self.backend().losses())).unwrap_or_default();
        let Some(Losses { cause, objects }) = losses.filter(|losses| !losses.objects.is_empty())
        else {
            return vec![Unwritten::of_all(error)];
        };
        let mut lost = self.named_objects(&objects);
        for one in &mut lost {
            one.error = Some(Error::Io(io::Error::other(cause.clone())));
        }
        lost.sort_by(|one, other| (&one.path, one.number).cmp(&(&other.path, other.number)));
        lost
    }

    /// Names `objects`, whose inodes may have left the caches, in their order.
    pub(crate) fn named_objects(&self, objects: &[Loss]) -> Vec<Unwritten> {
        if objects.is_empty() {
            return Vec::new();
        }
        let names = if objects.len() > ASKED_MAX { Names::Cached } else { Names::Stored };
        let wanted = objects.iter().map(|object| object.inode).collect();
        let mut places = Places::of(self, wanted, names);
        let name = |&Loss { inode, number, bytes, .. }: &Loss| {
            let path = match inode {
                InodeId::ROOT => Some(Vec::new()),
                _ => self.inodes.peek(inode).and_then(|node| places.path(&node)),
            };
            Unwritten { path, number, bytes, error: None }
        };
        let mut named: Vec<_> = objects.iter().map(name).collect();
        let sought = objects.iter().map(|object| (object.number, object.kind)).enumerate();
        self.find_rest(&mut named, sought);
        named
    }

    /// Finds the paths of those of `lost` that have none, by their place in it, number and kind, in the store.
    fn find_rest(
        &self,
        lost: &mut [Unwritten],
        sought: impl Iterator<Item = (usize, (u64, FileKind))>,
    ) {
        let mut unnamed: HashMap<(u64, FileKind), usize> = sought
            .filter(|(at, _)| lost[*at].path.is_none())
            .map(|(at, object)| (object, at))
            .collect();
        if unnamed.is_empty() {
            return;
        }
        let mut walk =
            StoreWalk { core: self, end: Instant::now() + SEARCH_TIME, frames: Vec::new() };
        walk.run(&mut unnamed, |at, path| lost[at].path = Some(path));
        if !unnamed.is_empty() {
            log::warn!("no name was found for {} objects with lost changes", unnamed.len());
        }
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
        let sought = (node.number(), node.kind());
        let mut found = None;
        list(self.core, parent, &|number, kind| (number, kind) == sought, &mut |name, _, _| {
            found = Some(name);
            false
        });
        let name = found?;
        self.links.insert(node.id(), (parent, name.clone()));
        Some((parent, name))
    }
}

/// Whether an object has lost its last name.
fn has_no_name(node: &Node) -> bool {
    node.inode.is_unlinked() || node.inode.parent_hint() == Some(NOWHERE)
}

/// Lists a directory of the store: gives the entries that are `wanted` by number and kind to `found`, until that
/// returns false. A store that fails here, as it may have failed before, ends the listing.
fn list(
    core: &Core,
    directory: InodeId,
    wanted: &dyn Fn(u64, FileKind) -> bool,
    found: &mut dyn FnMut(Box<[u8]>, u64, FileKind) -> bool,
) {
    let mut batch =
        Batch { wanted, kept: Vec::new(), seen: 0, taken: Vec::new(), next: Cookie::default() };
    loop {
        let backend = core.backend();
        let from = batch.next;
        let work = || backend.names().list(FileRef::unopened(directory), from, &mut batch);
        let listed = catch_unwind(AssertUnwindSafe(work));
        for taken in std::mem::take(&mut batch.taken) {
            backend.inodes().forget(taken, 1);
        }
        for (name, number, kind) in std::mem::take(&mut batch.kept) {
            if !found(name, number, kind) {
                return;
            }
        }
        if std::mem::take(&mut batch.seen) < BATCH || !matches!(listed, Ok(Ok(()))) {
            return;
        }
    }
}

/// A part of a listing: the entries that are wanted.
struct Batch<'a> {
    wanted: &'a dyn Fn(u64, FileKind) -> bool,
    kept: Vec<(Box<[u8]>, u64, FileKind)>,
    /// Entries of this batch.
    seen: usize,
    /// Entries of this batch with a counted reference.
    taken: Vec<InodeId>,
    next: Cookie,
}

impl Listing for Batch<'_> {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        if self.seen >= BATCH {
            return false;
        }
        self.seen += 1;
        self.next = next;
        if (self.wanted)(number, kind) {
            self.kept.push((name.as_bytes().into(), number, kind));
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

/// A walk through the directories of the store, from the root. It asks for the entries of each directory once, and
/// keeps nothing.
struct StoreWalk<'a> {
    core: &'a Core,
    end: Instant,
    /// The directories from the root to the current one.
    frames: Vec<Frame>,
}

/// A directory on the way of a walk.
struct Frame {
    inode: InodeId,
    name: Box<[u8]>,
    /// Subdirectories that the walk has not entered yet.
    below: Vec<Box<[u8]>>,
}

impl StoreWalk<'_> {
    /// Looks for the objects `unnamed`: gives each value with its path to `found`, and removes it.
    fn run<T>(
        &mut self,
        unnamed: &mut HashMap<(u64, FileKind), T>,
        mut found: impl FnMut(T, Vec<u8>),
    ) {
        self.enter(InodeId::ROOT, [].into(), unnamed, &mut found);
        while let Some(frame) = self.frames.last_mut()
            && !unnamed.is_empty()
            && Instant::now() < self.end
        {
            let (parent, below) = (frame.inode, frame.below.pop());
            let Some(name) = below else {
                self.leave();
                continue;
            };
            if self.frames.len() <= DEPTH_MAX
                && let Some(inode) = self.find(parent, &name)
            {
                self.enter(inode, name, unnamed, &mut found);
            }
        }
    }

    /// The directory `name` of `parent`, with a counted reference.
    fn find(&self, parent: InodeId, name: &[u8]) -> Option<InodeId> {
        let name = Name::new(name).ok()?;
        let backend = self.core.backend();
        let work = || backend.names().lookup(&Caller::root(), parent, name);
        let entry = catch_unwind(AssertUnwindSafe(work)).ok()?.ok()?;
        if entry.attributes.kind != FileKind::Directory {
            backend.inodes().forget(entry.inode, 1);
            return None;
        }
        Some(entry.inode)
    }

    fn enter<T>(
        &mut self,
        inode: InodeId,
        name: Box<[u8]>,
        unnamed: &mut HashMap<(u64, FileKind), T>,
        found: &mut impl FnMut(T, Vec<u8>),
    ) {
        self.frames.push(Frame { inode, name, below: Vec::new() });
        let (mut below, mut here) = (Vec::new(), Vec::new());
        let (core, end) = (self.core, self.end);
        let wanted =
            |number, kind| kind == FileKind::Directory || unnamed.contains_key(&(number, kind));
        list(core, inode, &wanted, &mut |name, number, kind| {
            if unnamed.contains_key(&(number, kind)) {
                here.push((name.clone(), (number, kind)));
            }
            if kind == FileKind::Directory {
                below.push(name);
            }
            Instant::now() < end
        });
        for (name, object) in here {
            if let Some(value) = unnamed.remove(&object) {
                found(value, self.path(&name));
            }
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.below = below;
        }
    }

    /// The path of `name` in the current directory.
    fn path(&self, name: &[u8]) -> Vec<u8> {
        let above = self.frames.iter().skip(1).map(|frame| &*frame.name);
        above.chain([name]).collect::<Vec<_>>().join(&b'/')
    }

    /// Leaves the current directory.
    fn leave(&mut self) {
        if let Some(frame) = self.frames.pop()
            && frame.inode != InodeId::ROOT
        {
            self.core.backend().inodes().forget(frame.inode, 1);
        }
    }
}

impl Drop for StoreWalk<'_> {
    fn drop(&mut self) {
        while !self.frames.is_empty() {
            self.leave();
        }
    }
}
