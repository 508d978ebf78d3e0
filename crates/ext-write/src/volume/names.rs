//! Names in directories: found, added, removed; blocks and their index.
//!
//! # Why
//! A directory of one block is searched. When it grows it gets an index, if the volume has the feature; a name then costs as many
//! blocks as the index has levels. A full leaf is split in half by hash, a full node too, and a full root puts a level below
//! itself. Names of one hash may continue in the next leaf; the lowest bit of its key says so.

use super::Volume;
use super::groups::{From, corrupt};
use super::tree::ALL;
use super::undo::Op;
use crate::error::{Error, Result};
use crate::store::Role;
use std::sync::Arc;
use uvfs_ext::encode::directory::{Entries, entries, entry_bytes, find, has_room};
use uvfs_ext::encode::extent::Extent;
use uvfs_ext::encode::index::Node;
use uvfs_ext::{HashVersion, Inode, Place, directory_hash};

/// Levels of nodes below the root of an index.
const LEVELS_MAX: u8 = 3;

/// The way from the root of an index to a leaf: blocks of the directory, their nodes, the entry that was taken.
pub(super) type Path = Vec<(u32, Node, usize)>;

impl Volume {
    pub(super) fn block_size(&self) -> u64 {
        u64::from(self.image.superblock().block_size)
    }

    /// Where block `logical` of a directory lies, whose contents are checked.
    fn directory_place(&self, directory: &Inode, logical: u32) -> Result<u64> {
        let logical = u64::from(logical);
        match self.image.map(directory, logical..logical + 1)?.first().map(|run| run.place) {
            Some(Place::At(place)) => {
                self.image.directory_block(directory, place, logical)?;
                Ok(place)
            }
            _ => Err(corrupt("a directory has a hole", 0)),
        }
    }

    pub(super) fn directory_bytes(&self, directory: &Inode, logical: u32) -> Result<Arc<[u8]>> {
        self.store.read(self.directory_place(directory, logical)?)
    }

    pub(super) fn is_indexed(&self, directory: &Inode) -> bool {
        directory.is_indexed() && self.image.superblock().features.dir_index()
    }

    pub(super) fn hash(&self, version: u8, name: &[u8]) -> Result<u32> {
        let (_, unsigned, seed) = self.image.superblock().directory_hash();
        let version = HashVersion::from_number(version, unsigned);
        let (version, unsigned) = version
            .ok_or_else(|| Error::NotWritable("the hash of its directories is not known".into()))?;
        Ok(directory_hash(version, unsigned, seed, name))
    }

    fn index_node(&self, directory: &Inode, logical: u32) -> Result<Node> {
        let bytes = self.directory_bytes(directory, logical)?;
        Ok(Node::decode(&bytes, logical == 0, self.image.superblock())?)
    }

    /// The way to the first leaf that may have names of `hash`.
    pub(super) fn path(&self, directory: &Inode, hash: u32) -> Result<(Path, u32)> {
        let root = self.index_node(directory, 0)?;
        let levels = root.root_levels.unwrap_or(0);
        let at = root.find(hash);
        let mut below = root.entries[at].1;
        let mut path = vec![(0, root, at)];
        for _ in 0..levels {
            if path.len() > usize::from(LEVELS_MAX) {
                return Err(corrupt("an index has too many levels", 0));
            }
            let node = self.index_node(directory, below)?;
            let at = node.find(hash);
            let next = node.entries[at].1;
            path.push((below, node, at));
            below = next;
        }
        Ok((path, below))
    }

    /// The first leaf that may have names of `hash`, and whether they run on behind it; keeps nothing of the way.
    fn first_leaf(&self, directory: &Inode, root: &[u8], hash: u32) -> Result<(u32, bool)> {
        let superblock = self.image.superblock();
        let mut step = Node::step(root, true, superblock, hash)?;
        if step.levels > LEVELS_MAX {
            return Err(corrupt("an index has too many levels", 0));
        }
        let mut behind = step.behind;
        for _ in 0..step.levels {
            let node = self.directory_bytes(directory, step.block)?;
            step = Node::step(&node, false, superblock, hash)?;
            behind = step.behind.or(behind);
        }
        Ok((step.block, behind == Some(hash | 1)))
    }

    /// Moves to the next leaf if names of `hash` run on into it.
    fn next_leaf(&self, directory: &Inode, path: &mut Path, hash: u32) -> Result<Option<u32>> {
        let Some(level) = path.iter().rposition(|(_, node, at)| at + 1 < node.entries.len()) else {
            return Ok(None);
        };
        let (_, node, at) = &path[level];
        if node.entries[at + 1].0 != hash | 1 {
            return Ok(None);
        }
        Ok(self.leaf_behind(directory, path)?.map(|(leaf, _)| leaf))
    }

    /// Moves to the next leaf, if there is one; returns whether names continue into it.
    pub(super) fn leaf_behind(
        &self,
        directory: &Inode,
        path: &mut Path,
    ) -> Result<Option<(u32, bool)>> {
        let levels = path.len();
        let Some(level) = path.iter().rposition(|(_, node, at)| at + 1 < node.entries.len()) else {
            return Ok(None);
        };
        path[level].2 += 1;
        let (_, node, at) = &path[level];
        let (key, mut below) = node.entries[*at];
        path.truncate(level + 1);
        while path.len() < levels {
            let node = self.index_node(directory, below)?;
            let next = node.entries[0].1;
            path.push((below, node, 0));
            below = next;
        }
        Ok(Some((below, key & 1 == 1)))
    }

    pub(super) fn names_in(&self, directory: &Inode, logical: u32) -> Result<Vec<Name>> {
        let bytes = self.directory_bytes(directory, logical)?;
        let listed = entries(&bytes, self.image.superblock().entries_end())?;
        Ok(listed.iter().map(|entry| (entry.name.to_vec(), entry.inode, entry.kind)).collect())
    }
}

impl Op<'_> {
    fn change_entries<R>(
        &mut self,
        directory: &Inode,
        logical: u32,
        change: impl FnOnce(&mut Entries<'_>) -> R,
    ) -> Result<R> {
        let place = self.volume.directory_place(directory, logical)?;
        let superblock = self.volume.image.superblock();
        self.modify(place, Role::Names, |bytes| {
            let mut entries = Entries::of(bytes, superblock);
            let changed = change(&mut entries);
            entries.seal(directory);
            changed
        })
    }

    fn put_index_node(&mut self, directory: &Inode, logical: u32, node: &Node) -> Result<()> {
        let place = self.volume.directory_place(directory, logical)?;
        let superblock = self.volume.image.superblock();
        self.modify(place, Role::Names, |bytes| node.encode(bytes, directory, superblock))
    }

    /// The block of a directory that has `name`.
    fn locate(&self, directory: &Inode, name: &[u8]) -> Result<Option<u32>> {
        let end = self.volume.image.superblock().entries_end();
        let has = |logical: u32| -> Result<bool> {
            let bytes = self.volume.directory_bytes(directory, logical)?;
            Ok(find(&bytes, end, name)?.is_some())
        };
        if !self.volume.is_indexed(directory) {
            for logical in 0..(directory.size() / self.volume.block_size()) as u32 {
                if has(logical)? {
                    return Ok(Some(logical));
                }
            }
            return Ok(None);
        }
        let root = self.volume.directory_bytes(directory, 0)?;
        let hash = self.volume.hash(Node::hash_version(&root), name)?;
        let (first, runs_on) = self.volume.first_leaf(directory, &root, hash)?;
        if has(first)? {
            return Ok(Some(first));
        }
        if !runs_on {
            return Ok(None);
        }
        let (mut path, mut leaf) = self.volume.path(directory, hash)?;
        // A directory has no more leaves than blocks: an index that names itself ends there.
        for _ in 0..directory.size() / self.volume.block_size() {
            if has(leaf)? {
                return Ok(Some(leaf));
            }
            match self.volume.next_leaf(directory, &mut path, hash)? {
                Some(next) => leaf = next,
                None => return Ok(None),
            }
        }
        Err(corrupt("an index has more leaves than its directory blocks", 0))
    }

    /// Removes `name`, which is there.
    pub(super) fn remove_name(&mut self, directory: &Inode, name: &[u8]) -> Result<()> {
        let logical = self.locate(directory, name)?.ok_or(Error::NotFound)?;
        self.change_entries(directory, logical, |entries| entries.remove(name))??;
        Ok(())
    }

    /// Makes `name`, which is there, mean another inode.
    pub(super) fn replace_name(
        &mut self,
        directory: &Inode,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<()> {
        let logical = self.locate(directory, name)?.ok_or(Error::NotFound)?;
        self.change_entries(directory, logical, |entries| entries.replace(name, inode, kind))??;
        Ok(())
    }

    /// Says which directory is the parent of another.
    pub(super) fn set_parent(&mut self, directory: &Inode, parent: u32) -> Result<()> {
        if !self.volume.is_indexed(directory) {
            let kind = uvfs_ext::Kind::Directory.entry();
            let done = self.change_entries(directory, 0, |all| all.replace(b"..", parent, kind))?;
            return done?.map(drop).ok_or_else(|| corrupt("a directory has no `..`", 0));
        }
        // The root of an index has `..` where a first block has it, and another checksum.
        const PARENT_AT: usize = 12;
        let root = self.volume.index_node(directory, 0)?;
        let place = self.volume.directory_place(directory, 0)?;
        let superblock = self.volume.image.superblock();
        self.modify(place, Role::Names, |bytes| {
            bytes[PARENT_AT..PARENT_AT + 4].copy_from_slice(&parent.to_le_bytes());
            root.encode(bytes, directory, superblock);
        })
    }

    /// Adds `name`, which is not there.
    pub(super) fn add_name(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<()> {
        if self.volume.is_indexed(directory) {
            return self.add_indexed(directory, name, inode, kind);
        }
        let blocks = (directory.size() / self.volume.block_size()) as u32;
        for logical in 0..blocks {
            let bytes = self.volume.directory_bytes(directory, logical)?;
            let end = self.volume.image.superblock().entries_end();
            if has_room(&bytes, end, name.len())? {
                // The change below would copy the bytes if this reference stayed.
                drop(bytes);
                self.change_entries(directory, logical, |all| all.insert(name, inode, kind))??;
                return Ok(());
            }
        }
        if blocks == 1 && self.volume.image.superblock().features.dir_index() {
            self.make_index(directory)?;
            return self.add_indexed(directory, name, inode, kind);
        }
        let new = self.append_block(directory)?;
        self.put_leaf(directory, new, &[(name.to_vec(), inode, kind)])
    }

    /// Adds a block without names to a directory.
    fn append_block(&mut self, directory: &mut Inode) -> Result<u32> {
        let logical = (directory.size() / self.volume.block_size()) as u32;
        let goal = self.goal(directory, logical.into())?;
        let start = self.allocate(goal, 1, From::Free)?.start;
        let after = self.last_extent_before(directory, ALL.end)?;
        if after.is_some_and(|last| last.end() > logical.into()) {
            return Err(corrupt("a directory has blocks behind its end", start));
        }
        self.insert_extent(directory, Extent { logical, start, length: 1, unwritten: false })?;
        self.add_blocks(directory, 1)?;
        directory.set_size((u64::from(logical) + 1) * self.volume.block_size());
        let mut bytes = vec![0; self.volume.block_size() as usize];
        let mut entries = Entries::of(&mut bytes, self.volume.image.superblock());
        entries.clear();
        entries.seal(directory);
        self.make(start, Role::Names, bytes);
        Ok(logical)
    }

    /// The first block of a new directory.
    pub(super) fn make_directory(&mut self, directory: &mut Inode, parent: u32) -> Result<()> {
        let number = directory.number;
        let first = self.append_block(directory)?;
        self.change_entries(directory, first, |entries| entries.make_first(number, parent))
    }

    fn put_leaf(&mut self, directory: &Inode, logical: u32, names: &[Name]) -> Result<()> {
        self.change_entries(directory, logical, |entries| {
            entries.clear();
            for (name, inode, kind) in names {
                entries.insert(name, *inode, *kind)?;
            }
            Ok(())
        })?
    }

    /// Gives a directory of one block an index with one leaf.
    fn make_index(&mut self, directory: &mut Inode) -> Result<()> {
        let mut names = self.volume.names_in(directory, 0)?;
        names.retain(|(name, ..)| name != b"." && name != b"..");
        let leaf = self.append_block(directory)?;
        self.put_leaf(directory, leaf, &names)?;
        // Checked as a block of names, which it is until the change below.
        let place = self.volume.directory_place(directory, 0)?;
        directory.set_indexed(true);
        let superblock = self.volume.image.superblock();
        let version = superblock.directory_hash().0;
        self.modify(place, Role::Names, |bytes| {
            Node::make_root(bytes, version, leaf).encode(bytes, directory, superblock);
        })
    }

    fn add_indexed(
        &mut self,
        directory: &mut Inode,
        name: &[u8],
        inode: u32,
        kind: u8,
    ) -> Result<()> {
        let root = self.volume.directory_bytes(directory, 0)?;
        let version = Node::hash_version(&root);
        let hash = self.volume.hash(version, name)?;
        let (leaf, _) = self.volume.first_leaf(directory, &root, hash)?;
        drop(root);
        // A node without room is written again in any case.
        if self.change_entries(directory, leaf, |all| all.insert(name, inode, kind))?? {
            return Ok(());
        }
        let mut names = self.volume.names_in(directory, leaf)?;
        let used: usize = names.iter().map(|(name, ..)| entry_bytes(name.len())).sum();
        names.push((name.to_vec(), inode, kind));
        if used + entry_bytes(name.len()) <= self.volume.image.superblock().entries_end() {
            // There is room, in pieces.
            return self.put_leaf(directory, leaf, &names);
        }
        let (mut path, _) = self.volume.path(directory, hash)?;
        let mut hashed = Vec::new();
        for name in names {
            hashed.push((self.volume.hash(version, &name.0)?, name));
        }
        hashed.sort_by_key(|one| one.0);
        let half: usize =
            hashed.iter().map(|(_, name)| entry_bytes(name.0.len())).sum::<usize>() / 2;
        let mut size = 0;
        let middle = hashed.iter().position(|(_, name)| {
            size += entry_bytes(name.0.len());
            size > half
        });
        let middle = middle.unwrap_or(0).clamp(1, hashed.len() - 1);
        let runs_on = hashed[middle - 1].0 == hashed[middle].0;
        let key = hashed[middle].0 | u32::from(runs_on);
        self.make_room(directory, &mut path)?;
        let new = self.append_block(directory)?;
        let names: Vec<Name> = hashed.into_iter().map(|(_, name)| name).collect();
        self.put_leaf(directory, leaf, &names[..middle])?;
        self.put_leaf(directory, new, &names[middle..])?;
        let (logical, node, at) = path.last_mut().expect("the root is there");
        node.entries.insert(*at + 1, (key, new));
        let (logical, node) = (*logical, node.clone());
        self.put_index_node(directory, logical, &node)
    }

    /// Splits nodes on the way until the last one has room for an entry behind the one that was taken.
    fn make_room(&mut self, directory: &mut Inode, path: &mut Path) -> Result<()> {
        let superblock = self.volume.image.superblock();
        let full = |path: &Path, level: usize| {
            path[level].1.entries.len() >= superblock.index_capacity(level == 0)
        };
        let last = path.len() - 1;
        if !full(path, last) {
            return Ok(());
        }
        // The lowest node that has room for one more, below which all are full.
        let roomy = (0..last).rev().find(|level| !full(path, *level));
        if roomy.is_none() {
            let levels_max = if superblock.features.large_dir() { 2 } else { 1 };
            let levels = path[0].1.root_levels.unwrap_or(0);
            if levels >= levels_max {
                return Err(Error::DirectoryFull);
            }
            // The root's entries go into a node below it.
            let new = self.append_block(directory)?;
            let (_, root, at) = path[0].clone();
            let below = Node { root_levels: None, entries: root.entries };
            self.put_index_node(directory, new, &below)?;
            let root = Node { root_levels: Some(levels + 1), entries: vec![(0, new)] };
            self.put_index_node(directory, 0, &root)?;
            path[0] = (0, root, 0);
            path.insert(1, (new, below, at));
            return self.make_room(directory, path);
        }
        let level = roomy.unwrap_or(0) + 1;
        let (logical, node, at) = path[level].clone();
        let middle = node.entries.len() / 2;
        let new = self.append_block(directory)?;
        let upper = Node { root_levels: None, entries: node.entries[middle..].to_vec() };
        let lower = Node { root_levels: None, entries: node.entries[..middle].to_vec() };
        let middle_key = upper.entries[0].0;
        self.put_index_node(directory, logical, &lower)?;
        self.put_index_node(directory, new, &upper)?;
        let (parent_logical, parent, parent_at) = &mut path[level - 1];
        parent.entries.insert(*parent_at + 1, (middle_key, new));
        let (parent_logical, parent_node) = (*parent_logical, parent.clone());
        if at >= middle {
            *parent_at += 1;
            path[level] = (new, upper, at - middle);
        } else {
            path[level] = (logical, lower, at);
        }
        self.put_index_node(directory, parent_logical, &parent_node)?;
        self.make_room(directory, path)
    }
}

/// Name, inode, kind.
pub(super) type Name = (Vec<u8>, u32, u8);
