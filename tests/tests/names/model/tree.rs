//! The simplest possible file system: a list of nodes, directories that are maps of names to
//! positions in it, and paths walked by recursion. Slow, and easy to verify.

use super::operation::{Mode, Operation, Outcome, Shape, Shown, World};
use std::collections::BTreeMap;

type Id = usize;
type Step<T> = Result<T, i32>;

const ROOT: Id = 0;
const LINKS_FOLLOWED_MAX: u32 = 40;

#[derive(Debug, Clone)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, Id>),
    Symlink(&'static str),
}

#[derive(Debug, Clone)]
struct Node {
    content: Content,
    mode: u32,
    owner: (u32, u32),
    xattrs: BTreeMap<&'static str, u8>,
}

/// The target of a path: the directory and the name at its end, and the object there.
struct Place {
    directory: Id,
    name: String,
    found: Option<Id>,
}

pub(crate) struct TreeWorld {
    nodes: Vec<Node>,
}

impl TreeWorld {
    pub(crate) fn new() -> Self {
        let mut world = Self { nodes: Vec::new() };
        world.add(Content::Directory(BTreeMap::new()), 0o755, 0);
        world
    }

    fn add(&mut self, content: Content, mode: u32, group: u32) -> Id {
        let xattrs = BTreeMap::new();
        self.nodes.push(Node { content, mode, owner: (0, group), xattrs });
        self.nodes.len() - 1
    }

    fn entries(&self, id: Id) -> Step<&BTreeMap<String, Id>> {
        match &self.nodes[id].content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(libc::ENOTDIR),
        }
    }

    fn entries_mut(&mut self, id: Id) -> &mut BTreeMap<String, Id> {
        match &mut self.nodes[id].content {
            Content::Directory(entries) => entries,
            _ => panic!("checked to be a directory"),
        }
    }

    fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[id].content, Content::Directory(_))
    }

    /// Walks `path` from `from`; a last symbolic link is followed if `follow`.
    fn walk(&self, from: Id, path: &str, follow: bool, links: &mut u32) -> Step<Place> {
        let slash = path.ends_with('/');
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let mut at = from;
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let entries = self.entries(at)?;
            let found = if *part == "." { Some(at) } else { entries.get(*part).copied() };
            let mut place = Place { directory: at, name: (*part).to_owned(), found };
            if let Some(id) = found
                && let Content::Symlink(target) = self.nodes[id].content
                && (!last || follow || slash)
            {
                *links += 1;
                if *links > LINKS_FOLLOWED_MAX {
                    return Err(libc::ELOOP);
                }
                place = self.walk(at, target, true, links)?;
            }
            if last {
                if slash && place.found.is_some_and(|id| !self.is_directory(id)) {
                    return Err(libc::ENOTDIR);
                }
                return Ok(place);
            }
            at = place.found.ok_or(libc::ENOENT)?;
        }
        Err(libc::ENOENT)
    }

    fn place(&self, path: &str) -> Step<Place> {
        self.walk(ROOT, path, false, &mut 0)
    }

    fn find(&self, path: &str, follow: bool) -> Step<Id> {
        self.walk(ROOT, path, follow, &mut 0)?.found.ok_or(libc::ENOENT)
    }

    fn free(&self, path: &str) -> Step<Place> {
        let place = self.place(path)?;
        if place.found.is_some() { Err(libc::EEXIST) } else { Ok(place) }
    }

    fn put(&mut self, place: Place, id: Id) {
        self.entries_mut(place.directory).insert(place.name, id);
    }

    fn make(&mut self, path: &str, content: Content, mode: u32) -> Step<()> {
        let place = self.free(path)?;
        let parent = &self.nodes[place.directory];
        // A set-group-id directory passes its group on, and the bit to directories.
        let passes = parent.mode & 0o2000 != 0;
        let group = if passes { parent.owner.1 } else { 0 };
        let mode = match content {
            Content::Directory(_) => mode & 0o1777 & !0o022 | parent.mode & 0o2000,
            Content::File(_) => mode & !0o022,
            Content::Symlink(_) => 0o777,
        };
        let id = self.add(content, mode, group);
        self.put(place, id);
        Ok(())
    }

    fn file_mut(&mut self, path: &str) -> Step<&mut Vec<u8>> {
        let id = self.find(path, true)?;
        match &mut self.nodes[id].content {
            Content::File(bytes) => Ok(bytes),
            Content::Directory(_) => Err(libc::EISDIR),
            Content::Symlink(_) => Err(libc::ELOOP),
        }
    }

    /// Names of a node; a directory counts its `.` and its children's `..`.
    fn links(&self, id: Id) -> u32 {
        if let Content::Directory(entries) = &self.nodes[id].content {
            let below = entries.values().filter(|child| self.is_directory(**child)).count();
            return 2 + below as u32;
        }
        let names = |node: &Node| match &node.content {
            Content::Directory(entries) => entries.values().filter(|child| **child == id).count(),
            _ => 0,
        };
        self.nodes.iter().map(names).sum::<usize>() as u32
    }

    /// Whether `id` is `above`, or below it.
    fn is_within(&self, id: Id, above: Id) -> bool {
        id == above
            || self.entries(above).is_ok_and(|entries| {
                entries.values().any(|&child| self.is_directory(child) && self.is_within(id, child))
            })
    }

    fn rename(&mut self, from: &str, to: &str, mode: Mode) -> Step<()> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let moved = from.found.ok_or(libc::ENOENT)?;
        if mode == Mode::NoReplace && to.found.is_some() {
            return Err(libc::EEXIST);
        }
        if mode == Mode::Exchange && to.found.is_none() {
            return Err(libc::ENOENT);
        }
        if self.is_directory(moved) && self.is_within(to.directory, moved) {
            return Err(libc::EINVAL);
        }
        if let Some(there) = to.found {
            let above = self.is_directory(there) && self.is_within(from.directory, there);
            if above {
                return Err(if mode == Mode::Exchange { libc::EINVAL } else { libc::ENOTEMPTY });
            }
            if there == moved {
                return Ok(());
            }
        }
        match (mode, to.found) {
            (Mode::Exchange, Some(there)) => self.put(from, there),
            (_, Some(there)) => {
                match (self.is_directory(moved), self.entries(there)) {
                    (true, Err(_)) => return Err(libc::ENOTDIR),
                    (false, Ok(_)) => return Err(libc::EISDIR),
                    (true, Ok(entries)) if !entries.is_empty() => return Err(libc::ENOTEMPTY),
                    _ => {}
                }
                self.take(&from);
            }
            (_, None) => self.take(&from),
        }
        self.put(to, moved);
        Ok(())
    }

    fn take(&mut self, place: &Place) {
        let id = self.entries_mut(place.directory).remove(&place.name);
        // A removed directory holds nothing, and is no parent.
        debug_assert!(id.is_some());
    }

    fn shape(&self, id: Id) -> Shape {
        let node = &self.nodes[id];
        let (kind, size) = match &node.content {
            Content::File(bytes) => ('f', bytes.len()),
            Content::Directory(_) => ('d', 0),
            Content::Symlink(target) => ('l', target.len()),
        };
        let links = self.links(id);
        Shape { kind, mode: node.mode, links, owner: node.owner, size: size as u64 }
    }

    fn chown(&mut self, id: Id, owner: (u32, u32)) {
        let directory = self.is_directory(id);
        let node = &mut self.nodes[id];
        node.owner = owner;
        if !directory {
            let group_runs = node.mode & 0o010 != 0;
            node.mode &= if group_runs { !0o6000 } else { !0o4000 };
        }
    }

    fn try_apply(&mut self, operation: &Operation) -> Outcome {
        match *operation {
            Operation::Create(path, mode) => self.make(path, Content::File(Vec::new()), mode)?,
            Operation::MakeDirectory(path, mode) => {
                self.make(path, Content::Directory(BTreeMap::new()), mode)?;
            }
            Operation::Symlink(target, path) => self.make(path, Content::Symlink(target), 0)?,
            Operation::Link(old, new) => {
                let id = self.find(old, false)?;
                let place = self.free(new)?;
                if self.is_directory(id) {
                    return Err(libc::EPERM);
                }
                self.put(place, id);
            }
            Operation::Unlink(path) => {
                let place = self.place(path)?;
                if self.is_directory(place.found.ok_or(libc::ENOENT)?) {
                    return Err(libc::EISDIR);
                }
                self.take(&place);
            }
            Operation::RemoveDirectory(path) => {
                let place = self.place(path)?;
                if !self.entries(place.found.ok_or(libc::ENOENT)?)?.is_empty() {
                    return Err(libc::ENOTEMPTY);
                }
                self.take(&place);
            }
            Operation::Rename(from, to, mode) => self.rename(from, to, mode)?,
            Operation::Write(path, at, length, byte) => {
                let (bytes, at) = (self.file_mut(path)?, at as usize);
                bytes.resize(bytes.len().max(at + length), 0);
                bytes[at..at + length].fill(byte);
            }
            Operation::Read(path) => return self.file_mut(path).cloned().map(Shown::Bytes),
            Operation::Truncate(path, size) => self.file_mut(path)?.resize(size as usize, 0),
            Operation::Punch(path, at, length) => {
                let bytes = self.file_mut(path)?;
                let end = bytes.len();
                bytes[(at as usize).min(end)..((at + length) as usize).min(end)].fill(0);
            }
            Operation::Stat(path) => {
                return Ok(Shown::Attributes(self.shape(self.find(path, true)?)));
            }
            Operation::SymlinkStat(path) => {
                return Ok(Shown::Attributes(self.shape(self.find(path, false)?)));
            }
            Operation::ReadLink(path) => match self.nodes[self.find(path, false)?].content {
                Content::Symlink(target) => return Ok(Shown::Bytes(target.as_bytes().to_vec())),
                _ => return Err(libc::EINVAL),
            },
            Operation::List(path) => {
                let entries = self.entries(self.find(path, true)?)?;
                let shown = entries.iter().map(|(name, &id)| (name.clone(), self.shape(id).kind));
                return Ok(Shown::Names(shown.collect()));
            }
            Operation::Chmod(path, mode) => {
                let id = self.find(path, true)?;
                self.nodes[id].mode = mode;
            }
            Operation::Chown(path, uid, gid) => {
                let id = self.find(path, true)?;
                self.chown(id, (uid, gid));
            }
            Operation::SetXattr(path, name, value) => {
                let id = self.find(path, true)?;
                self.nodes[id].xattrs.insert(name, value);
            }
            Operation::GetXattr(path, name) => {
                let id = self.find(path, true)?;
                let value = self.nodes[id].xattrs.get(name).ok_or(libc::ENODATA)?;
                return Ok(Shown::Bytes(vec![*value]));
            }
            Operation::RemoveXattr(path, name) => {
                let id = self.find(path, true)?;
                self.nodes[id].xattrs.remove(name).ok_or(libc::ENODATA)?;
            }
            Operation::Forget => {}
        }
        Ok(Shown::Nothing)
    }
}

impl World for TreeWorld {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        self.try_apply(operation)
    }
}
