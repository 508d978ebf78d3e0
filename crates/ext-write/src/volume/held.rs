//! Inodes that users refer to: found by name or by number, listed, released.
//!
//! # Why
//! A user that has found an inode may use it later, when its name is removed. Between the two steps the number could be reused;
//! so each reference is counted under the lock under which the inode was found.
//!
//! # Concurrency
//! H1. An inode with a name in a locked directory is not freed: a name is removed under that lock, and the inode freed afterwards.
//! H2. An inode without a name is freed under its own lock, when it is not held.

use super::Volume;
use super::groups::corrupt;
use super::names::Name;
use crate::error::{Error, Result};
use std::ops::ControlFlow;
use uvfs_ext::encode::index::Node;
use uvfs_ext::{Inode, Kind};

/// An inode that is held: [`Volume::forget`] releases it.
#[derive(Debug, Clone)]
pub struct Held(pub Inode);

/// An entry of a directory.
#[derive(Debug)]
pub struct Listed {
    /// Name of the entry.
    pub name: Vec<u8>,
    /// Number of the inode.
    pub number: u32,
    /// The kind in its entry.
    pub kind: Option<Kind>,
    /// Where the next one is.
    pub next: u64,
    /// The inode, held, if that was wanted and the inode is in order.
    pub held: Option<Held>,
}

impl Volume {
    /// The inode that `name` means in `directory`, held.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn lookup_held(&self, directory: u32, name: &[u8]) -> Result<Option<Held>> {
        let node = self.node(directory);
        let _state = node.state.read();
        let directory = self.load(directory)?;
        if directory.kind() != Some(Kind::Directory) {
            return Err(Error::NotDirectory);
        }
        match self.image.lookup(&directory, name)? {
            Some(number) => self.hold_named(number).map(Some),
            None => Ok(None),
        }
    }

    /// At most `most` entries of a directory from position `from` on, without `.` and `..`, and whether the end was reached; their
    /// inodes, held, if `hold` says so. A position stays right whatever else is added or removed meanwhile.
    ///
    /// # Errors
    /// As [`Volume::inode`].
    pub fn list_held(
        &self,
        directory: u32,
        from: u64,
        most: usize,
        hold: bool,
    ) -> Result<(Vec<Listed>, bool)> {
        let node = self.node(directory);
        let _state = node.state.read();
        let directory = self.load(directory)?;
        if directory.kind() != Some(Kind::Directory) {
            return Err(Error::NotDirectory);
        }
        let hashed = self.image.superblock().features.dir_index()
            && (self.is_indexed(&directory) || directory.size() <= self.block_size());
        let (mut listed, ended) = match hashed {
            true => self.list_by_hash(&directory, from, most)?,
            false => self.list_by_place(&directory, from, most)?,
        };
        if hold {
            for one in &mut listed {
                one.held = self.hold_named(one.number).ok();
            }
        }
        Ok((listed, ended))
    }

    /// Where names do not move: their places are positions.
    fn list_by_place(
        &self,
        directory: &Inode,
        from: u64,
        most: usize,
    ) -> Result<(Vec<Listed>, bool)> {
        let mut listed = Vec::new();
        self.image.list(directory, from, &mut |entry| {
            if matches!(&*entry.name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            let (name, number) = (entry.name.to_vec(), entry.inode);
            listed.push(Listed { name, number, kind: entry.kind, next: entry.next, held: None });
            if listed.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let ended = listed.len() < most;
        Ok((listed, ended))
    }

    /// Where leaves are split: names move, but their hashes do not. A position is the hash of the index, and behind it another
    /// one of the name, which distinguishes names of one hash. Where both are equal, [`spread`] distinguishes names.
    fn list_by_hash(
        &self,
        directory: &Inode,
        from: u64,
        most: usize,
    ) -> Result<(Vec<Listed>, bool)> {
        let indexed = self.is_indexed(directory);
        let version = match indexed {
            true => Node::hash_version(&self.directory_bytes(directory, 0)?),
            false => self.image.superblock().directory_hash().0,
        };
        let mut found: Vec<(u64, Name)> = Vec::new();
        let add = |found: &mut Vec<(u64, Name)>, leaf: u32| -> Result<()> {
            for name in self.names_in(directory, leaf)? {
                if matches!(&*name.0, b"." | b"..") {
                    continue;
                }
                let key = key_of(self.hash(version, &name.0)?, &name.0);
                if key >= from {
                    found.push((key, name));
                }
            }
            Ok(())
        };
        let mut ended = true;
        if indexed {
            let (mut path, first) = self.path(directory, ((from >> 31) as u32) << 1)?;
            add(&mut found, first)?;
            // Names of one hash are returned together, whatever leaf they are in.
            let mut leaves = directory.size() / self.block_size();
            while let Some((next, runs_on)) = self.leaf_behind(directory, &mut path)? {
                // No more leaves than blocks: an index that names itself ends there.
                leaves = leaves.checked_sub(1).ok_or_else(|| {
                    corrupt("an index has more leaves than its directory blocks", 0)
                })?;
                if found.len() >= most && !runs_on {
                    ended = false;
                    break;
                }
                add(&mut found, next)?;
            }
        } else if directory.size() > 0 {
            add(&mut found, 0)?;
        }
        spread(&mut found);
        // Some of these names were moved before `from`, and were listed.
        found.drain(..found.partition_point(|(position, _)| *position < from));
        ended &= found.len() <= most;
        found.truncate(most);
        let listed = found.into_iter().map(|(position, (name, number, kind))| {
            let kind = Kind::of_entry(kind);
            Listed { name, number, kind, next: position + 1, held: None }
        });
        Ok((listed.collect(), ended))
    }

    /// An inode that has a name in a directory which this thread has locked (H1).
    fn hold_named(&self, number: u32) -> Result<Held> {
        let _stays = self.node(number);
        let inode = self.load(number)?;
        self.change_holds(number, 1);
        Ok(Held(inode))
    }

    /// Keeps an inode alive, whatever happens to its names, until as many [`Volume::forget`].
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is in use no more.
    pub fn hold(&self, number: u32) -> Result<Held> {
        let node = self.node(number);
        // A thread that frees it has the lock exclusively.
        let _state = node.state.read();
        let inode = self.load(number)?;
        self.change_holds(number, 1);
        Ok(Held(inode))
    }

    /// Gives a hold back; the last one of an inode without names frees it.
    ///
    /// # Errors
    /// Those of freeing it.
    pub fn forget(&self, number: u32) -> Result<()> {
        self.forget_all(number, 1)
    }

    /// Releases so many holds.
    ///
    /// # Errors
    /// Those of freeing an inode that is not held any more.
    pub fn forget_all(&self, number: u32, holds: u64) -> Result<()> {
        let holds = i64::try_from(holds).unwrap_or(i64::MAX);
        // Most have names, and others hold them: no lock of theirs is needed to count.
        if self.change_holds(number, -holds) > 0 || !self.orphans.has(number) {
            return Ok(());
        }
        let node = self.node(number);
        let mut state = node.state.write();
        if self.holds(number) > 0 || !self.orphans.has(number) {
            return Ok(());
        }
        let inode = self.load(number)?;
        if inode.links() == 0 { self.delete(inode, &mut state) } else { Ok(()) }
    }
}

/// So many positions of each hash are left for names whose own position is taken.
const SPARE: u64 = 1 << 20;

/// A name's own position in its directory: 62 bits, so that a caller that keeps listings can add positions of its own. Half
/// of them are the index's hash without its lowest bit, which is no part of the hash.
fn key_of(hash: u32, name: &[u8]) -> u64 {
    let fold = |mixed: u32, byte: &u8| (mixed ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let folded = u64::from(name.iter().fold(0x811C_9DC5, fold) >> 1);
    u64::from(hash >> 1) << 31 | (SPARE + folded % ((1 << 31) - SPARE))
}

/// Sorts names by their own positions. A name whose position is taken gets the next free one before it. So a listed name that
/// is removed moves none behind it: programs list, remove, and continue. Weakness: a name that is added among names of one
/// position while they are listed may hide another one until the next listing.
fn spread(found: &mut [(u64, Name)]) {
    found.sort_unstable();
    let mut taken = u64::MAX;
    for (position, _) in found.iter_mut().rev() {
        taken = (*position).min(taken.saturating_sub(1));
        *position = taken;
    }
}

#[cfg(test)]
mod tests {
    use super::super::New;
    use super::super::undo_tests::images::{Workshop, tools};
    use super::*;
    use crate::WritableMemory;
    use std::collections::{BTreeSet, HashMap};
    use std::sync::Arc;
    use uvfs_ext::ROOT;

    const FILE: New<'_> = New {
        kind: Kind::Regular,
        permissions: 0o644,
        uid: 1,
        gid: 1,
        device: (0, 0),
        target: b"",
        xattrs: &[],
    };

    /// Positions had 63 bits. The cache of listings took half of them for its own, and names were missing from directories
    /// of images that were listed in more than one call.
    #[test]
    fn positions_leave_room_for_those_of_kept_listings() {
        // The index keeps the last hash for itself.
        for hash in [0, 1 << 31, 0xFFFF_FFFC] {
            for name in [&b"a"[..], b"", b"a name of some length 124"] {
                let key = key_of(hash, name);
                assert!(key + 1 < 1 << 62);
                assert_eq!((key >> 31) as u32, hash >> 1);
            }
        }
    }

    /// Names with one fold. Each part is one of two texts, which lead the fold from one state to the same next one; so `parts`
    /// parts give 2^`parts` names.
    fn of_one_fold(parts: usize) -> Vec<Vec<u8>> {
        let fold = |mixed: u32, byte: &u8| (mixed ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let (mut state, mut names) = (0x811C_9DC5, vec![Vec::new()]);
        for _ in 0..parts {
            let text = |number: u32| [12, 8, 4, 0].map(|shift| b'a' + (number >> shift) as u8 % 16);
            let mut seen = HashMap::new();
            let (one, other, next) = (0..)
                .find_map(|number| {
                    let next = text(number).iter().chain(&text(number >> 16)).fold(state, fold);
                    seen.insert(next, number).map(|other| (number, other, next))
                })
                .unwrap();
            names = [one, other]
                .map(|number| [text(number), text(number >> 16)].concat())
                .iter()
                .flat_map(|part| names.iter().map(move |name| [&name[..], part].concat()))
                .collect();
            state = next;
        }
        names
    }

    /// Two names had the same position, because both of their hashes were equal. A listing that stopped between them went on
    /// behind the second, which no program saw. Whatever a program removes that it has listed, it sees every other name once.
    #[test]
    fn names_with_equal_hashes_are_all_listed() {
        if !tools() {
            return;
        }
        let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "512"];
        let of_one_fold = of_one_fold(17);
        let image = Workshop::new().image(&options, "6M", None);
        for indexed in [false, true] {
            let volume = Volume::open(Arc::new(WritableMemory::new(image.clone()))).unwrap();
            let directory =
                volume.create(ROOT, b"d", &New { kind: Kind::Directory, ..FILE }).unwrap();
            let others: Vec<_> = (0..if indexed { 100 } else { 2 })
                .map(|at| format!("{at:040}").into_bytes())
                .collect();
            others.iter().for_each(|name| _ = volume.create(directory, name, &FILE).unwrap());
            assert_eq!(volume.is_indexed(&volume.load(directory).unwrap()), indexed);
            let version = volume.image.superblock().directory_hash().0;
            let mut seen = HashMap::new();
            let equal = of_one_fold.iter().find_map(|name| {
                let key = key_of(volume.hash(version, name).unwrap(), name);
                seen.insert(key, name).map(|other| [name.clone(), other.clone()])
            });
            let equal = equal.expect("of 2^17 names, some have one hash of 31 bits");
            equal.iter().for_each(|name| _ = volume.create(directory, name, &FILE).unwrap());
            let all: BTreeSet<_> = others.iter().chain(&equal).cloned().collect();
            for most in 1..4 {
                let (mut seen, mut from, mut ended) = (Vec::new(), 0, false);
                while !ended {
                    let listed;
                    (listed, ended) = volume.list_held(directory, from, most, false).unwrap();
                    for one in listed {
                        from = one.next;
                        seen.push(one.name);
                    }
                }
                assert_eq!(seen.len(), all.len(), "{most} at a time");
                assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), all, "{most} at a time");
            }
            let (mut removed, mut from) = (BTreeSet::new(), 0);
            while let (listed, _) = volume.list_held(directory, from, 1, false).unwrap()
                && let Some(one) = listed.into_iter().next()
            {
                from = one.next;
                volume.unlink(directory, &one.name).unwrap();
                removed.insert(one.name);
            }
            assert_eq!(removed, all, "each was removed when it was listed");
        }
    }
}
