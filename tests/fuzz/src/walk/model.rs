//! The simplest possible tree, and path resolution on it by the text of path_resolution(7) and
//! openat2(2).
//!
//! # Why
//! It shares no code with the compared walk: resolution is recursive, link by link, and confinement
//! is one check at `..` and at `/`. Nothing moves during a walk, so the recorded parent of a
//! directory is always right.

use libc::{EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EXDEV};
use std::collections::{BTreeMap, HashSet};
use uvfs_vfs::{NAME_MAX, PATH_MAX, RenameMode, Resolve};

/// Place of an object in the model; never used again for another.
pub(crate) type Object = usize;

pub(crate) const ROOT: Object = 0;

const LINKS_FOLLOWED_MAX: u32 = 40;

pub(crate) type Result<T> = std::result::Result<T, i32>;

#[derive(Debug)]
pub(crate) enum Kind {
    Directory(BTreeMap<Vec<u8>, Object>),
    File(Vec<u8>),
    Symlink(Vec<u8>),
}

impl Kind {
    pub(crate) fn directory() -> Self {
        Kind::Directory(BTreeMap::new())
    }
}

struct Node {
    kind: Kind,
    /// The last directory that a directory was in.
    parent: Object,
    links: u32,
    number: Option<u64>,
}

/// The start of a walk, and its limits.
#[derive(Clone, Copy)]
pub(crate) struct View {
    pub(crate) start: Object,
    pub(crate) resolve: Resolve,
    pub(crate) no_symlinks: bool,
}

/// The handling of a link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symlinks {
    Follow,
    KeepLast,
}

enum Walked {
    There(Object),
    Missing { directory: Object, name: Vec<u8>, slash: bool },
}

pub(crate) struct Model {
    nodes: Vec<Node>,
}

impl Model {
    pub(crate) fn new(root_number: u64) -> Self {
        let number = Some(root_number);
        Self { nodes: vec![Node { kind: Kind::directory(), parent: ROOT, links: 1, number }] }
    }

    pub(crate) fn kind(&self, object: Object) -> &Kind {
        &self.nodes[object].kind
    }

    pub(crate) fn links(&self, object: Object) -> u32 {
        self.nodes[object].links
    }

    pub(crate) fn number(&mut self, object: Object, number: u64) {
        self.nodes[object].number = Some(number);
    }

    pub(crate) fn number_of(&self, object: Object) -> u64 {
        self.nodes[object].number.expect("numbered when it was made")
    }

    pub(crate) fn knows(&self, number: u64) -> bool {
        self.nodes.iter().any(|node| node.number == Some(number))
    }

    /// The numbers of `top` and of all objects with a name below it.
    pub(crate) fn numbers_below(&self, top: Object) -> HashSet<u64> {
        let mut numbers = HashSet::new();
        let mut left = vec![top];
        while let Some(object) = left.pop() {
            numbers.insert(self.number_of(object));
            if let Kind::Directory(entries) = self.kind(object) {
                left.extend(entries.values());
            }
        }
        numbers
    }

    pub(crate) fn find(&self, view: View, path: &[u8], last: Symlinks) -> Result<Object> {
        match self.walk(view, path, last)? {
            Walked::There(object) => Ok(object),
            Walked::Missing { .. } => Err(ENOENT),
        }
    }

    pub(crate) fn create(&mut self, view: View, path: &[u8], kind: Kind) -> Result<Option<Object>> {
        let (directory, name, slash) = self.last_name(view, path)?;
        match &kind {
            Kind::Directory(_) => {}
            _ if slash => return Err(ENOENT),
            Kind::Symlink(text) if text.is_empty() => return Err(ENOENT),
            Kind::Symlink(text) if text.len() > PATH_MAX => return Err(ENAMETOOLONG),
            _ => {}
        }
        self.insert_new(directory, name, kind).map(Some)
    }

    pub(crate) fn create_new(&mut self, view: View, path: &[u8]) -> Result<Option<Object>> {
        match self.walk(view, path, Symlinks::KeepLast)? {
            Walked::There(_) => Err(EEXIST),
            Walked::Missing { slash: true, .. } => Err(EISDIR),
            Walked::Missing { directory, name, .. } => {
                self.insert_new(directory, name, Kind::File(Vec::new())).map(Some)
            }
        }
    }

    /// The object, if it is new.
    pub(crate) fn write_file(
        &mut self,
        view: View,
        path: &[u8],
        data: &[u8],
    ) -> Result<Option<Object>> {
        match self.walk(view, path, Symlinks::Follow)? {
            Walked::There(object) => match &mut self.nodes[object].kind {
                Kind::File(content) => {
                    *content = data.to_vec();
                    Ok(None)
                }
                Kind::Directory(_) => Err(EISDIR),
                Kind::Symlink(_) => Err(ELOOP),
            },
            Walked::Missing { slash: true, .. } => Err(EISDIR),
            Walked::Missing { directory, name, .. } => {
                self.insert_new(directory, name, Kind::File(data.to_vec())).map(Some)
            }
        }
    }

    pub(crate) fn link(&mut self, view: View, old: &[u8], new: &[u8]) -> Result<()> {
        let object = self.find(view, old, Symlinks::KeepLast)?;
        let (directory, name, slash) = self.last_name(view, new)?;
        if slash {
            return Err(ENOENT);
        }
        if matches!(self.kind(object), Kind::Directory(_)) {
            return Err(EPERM);
        }
        self.is_free(directory, &name)?;
        self.entries(directory).insert(name, object);
        self.nodes[object].links += 1;
        Ok(())
    }

    pub(crate) fn remove_file(&mut self, view: View, path: &[u8]) -> Result<()> {
        let (directory, name, slash) = self.last_name(view, path)?;
        let victim = self.child(directory, &name).ok_or(ENOENT)?;
        match self.kind(victim) {
            Kind::Directory(_) => return Err(EISDIR),
            _ if slash => return Err(ENOTDIR),
            _ => {}
        }
        self.entries(directory).remove(&name);
        self.nodes[victim].links -= 1;
        Ok(())
    }

    pub(crate) fn remove_directory(&mut self, view: View, path: &[u8]) -> Result<()> {
        let (directory, name, _) = self.last_name(view, path)?;
        let victim = self.child(directory, &name).ok_or(ENOENT)?;
        self.is_empty_directory(victim)?;
        self.entries(directory).remove(&name);
        self.nodes[victim].links = 0;
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        view: View,
        from: &[u8],
        to: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let (from, from_name, from_slash) = self.last_name(view, from)?;
        let (to, to_name, to_slash) = self.last_name(view, to)?;
        let moved = self.child(from, &from_name).ok_or(ENOENT)?;
        let target = self.child(to, &to_name);
        let is_directory = |object| matches!(self.kind(object), Kind::Directory(_));
        if (from_slash || to_slash) && !is_directory(moved) {
            return Err(ENOTDIR);
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(EEXIST),
            (RenameMode::Exchange, None) => return Err(ENOENT),
            (_, None) if self.is_gone(to) => return Err(ENOENT),
            _ => {}
        }
        if self.is_above(moved, to) {
            return Err(EINVAL);
        }
        if target == Some(moved) {
            return Ok(());
        }
        if mode == RenameMode::Exchange {
            let target = target.expect("checked above");
            if self.is_above(target, from) {
                return Err(EINVAL);
            }
            self.place(from, from_name, target);
            self.place(to, to_name, moved);
            return Ok(());
        }
        if let Some(target) = target {
            match (is_directory(moved), is_directory(target)) {
                (true, true) => self.is_empty_directory(target)?,
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (false, false) => {}
            }
            self.nodes[target].links -= 1;
        }
        self.entries(from).remove(&from_name);
        self.place(to, to_name, moved);
        Ok(())
    }

    fn walk(&self, view: View, path: &[u8], last: Symlinks) -> Result<Walked> {
        check_path(path)?;
        self.resolve(view, view.start, path, last, &mut 0)
    }

    /// Resolves a path, or the text of a link that stands in `at`.
    fn resolve(
        &self,
        view: View,
        at: Object,
        path: &[u8],
        last: Symlinks,
        followed: &mut u32,
    ) -> Result<Walked> {
        let mut at = match (path.first(), view.resolve) {
            (Some(b'/'), Resolve::Anywhere) => ROOT,
            (Some(b'/'), Resolve::Beneath) => return Err(EXDEV),
            (Some(b'/'), Resolve::InRoot) => view.start,
            _ => at,
        };
        let slash = path.ends_with(b"/");
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let is_last = parts.peek().is_none();
            if !matches!(self.kind(at), Kind::Directory(_)) {
                return Err(ENOTDIR);
            }
            if part == b"." || part == b".." {
                at = if part == b".." { self.parent(view, at)? } else { at };
                continue;
            }
            check_name(part)?;
            let Some(child) = self.child(at, part) else {
                return match is_last {
                    true => Ok(Walked::Missing { directory: at, name: part.to_vec(), slash }),
                    false => Err(ENOENT),
                };
            };
            let Kind::Symlink(text) = self.kind(child) else {
                at = child;
                continue;
            };
            if view.no_symlinks {
                return Err(ELOOP);
            }
            if is_last && !slash && last == Symlinks::KeepLast {
                return Ok(Walked::There(child));
            }
            *followed += 1;
            if *followed > LINKS_FOLLOWED_MAX {
                return Err(ELOOP);
            }
            at = match self.resolve(view, at, text, Symlinks::Follow, followed)? {
                Walked::There(object) => object,
                Walked::Missing { directory, name, slash: inner } if is_last => {
                    return Ok(Walked::Missing { directory, name, slash: slash || inner });
                }
                Walked::Missing { .. } => return Err(ENOENT),
            };
        }
        match self.kind(at) {
            Kind::Directory(_) => Ok(Walked::There(at)),
            _ if slash => Err(ENOTDIR),
            _ => Ok(Walked::There(at)),
        }
    }

    fn parent(&self, view: View, at: Object) -> Result<Object> {
        match view.resolve {
            Resolve::Beneath if at == view.start => Err(EXDEV),
            Resolve::InRoot if at == view.start => Ok(at),
            _ => Ok(self.nodes[at].parent),
        }
    }

    /// Directory and last name of a path, and whether a slash follows.
    fn last_name(&self, view: View, path: &[u8]) -> Result<(Object, Vec<u8>, bool)> {
        check_path(path)?;
        let end = path.iter().rposition(|&byte| byte != b'/').ok_or(EEXIST)? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let name = &path[start..end];
        check_name(name)?;
        if name == b"." || name == b".." {
            return Err(EINVAL);
        }
        let before = if start == 0 { b"." } else { &path[..start] };
        let directory = self.find(view, before, Symlinks::Follow)?;
        match self.kind(directory) {
            Kind::Directory(_) => Ok((directory, name.to_vec(), end < path.len())),
            _ => Err(ENOTDIR),
        }
    }

    fn child(&self, directory: Object, name: &[u8]) -> Option<Object> {
        match self.kind(directory) {
            Kind::Directory(entries) => entries.get(name).copied(),
            _ => None,
        }
    }

    fn entries(&mut self, directory: Object) -> &mut BTreeMap<Vec<u8>, Object> {
        match &mut self.nodes[directory].kind {
            Kind::Directory(entries) => entries,
            other => panic!("{other:?} has no entries"),
        }
    }

    fn insert_new(&mut self, directory: Object, name: Vec<u8>, kind: Kind) -> Result<Object> {
        self.is_free(directory, &name)?;
        let object = self.nodes.len();
        self.nodes.push(Node { kind, parent: directory, links: 1, number: None });
        self.entries(directory).insert(name, object);
        Ok(object)
    }

    /// Puts `object` under a name, in any case.
    fn place(&mut self, directory: Object, name: Vec<u8>, object: Object) {
        self.entries(directory).insert(name, object);
        self.nodes[object].parent = directory;
    }

    fn is_free(&self, directory: Object, name: &[u8]) -> Result<()> {
        match self.child(directory, name) {
            Some(_) => Err(EEXIST),
            None if self.is_gone(directory) => Err(ENOENT),
            None => Ok(()),
        }
    }

    fn is_gone(&self, directory: Object) -> bool {
        self.nodes[directory].links == 0
    }

    fn is_empty_directory(&self, object: Object) -> Result<()> {
        match self.kind(object) {
            Kind::Directory(entries) if entries.is_empty() => Ok(()),
            Kind::Directory(_) => Err(ENOTEMPTY),
            _ => Err(ENOTDIR),
        }
    }

    /// Whether `below` is `top` or below it.
    fn is_above(&self, top: Object, mut below: Object) -> bool {
        while below != top && below != ROOT {
            below = self.nodes[below].parent;
        }
        below == top
    }
}

fn check_path(path: &[u8]) -> Result<()> {
    match path {
        [] => Err(ENOENT),
        _ if path.len() > PATH_MAX => Err(ENAMETOOLONG),
        _ if path.contains(&0) => Err(EINVAL),
        _ => Ok(()),
    }
}

/// A component, which in the text of a link may also hold a NUL.
fn check_name(name: &[u8]) -> Result<()> {
    match name {
        _ if name.len() > NAME_MAX => Err(ENAMETOOLONG),
        _ if name.contains(&0) => Err(EINVAL),
        _ => Ok(()),
    }
}
