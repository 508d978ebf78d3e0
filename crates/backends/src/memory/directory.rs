//! The names of one directory, by name and by position.
//!
//! # Boundary
//! Maps names to objects. Counts no links, keeps no times, takes no locks.
//!
//! A listing proceeds by *cookie*: a number that an entry gets with its name and keeps as long as
//! the name, from a counter that never decreases. It proceeds *down*, from the newest name to the
//! oldest, like tmpfs.
//! D1. `by_cookie` holds exactly the cookies and names of `by_name`.
//! D2. A name whose target is replaced keeps its cookie. So a listing in several steps shows a name
//!     that exists throughout exactly once, even if others are created, removed or renamed
//!     meanwhile.
//! D3. A name created after a listing's first step has a cookie above all those that the listing
//!     will still visit. So a listing ends, and shows no more names than there were at its begin,
//!     even while every shown name is renamed away and back.
//!
//! # Why
//! Two indices instead of one sorted by name: a position in an order of names would be a name, and
//! a cookie has 64 bits. Weakness: the second index costs every entry about 50 bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uvfs_vfs::{FileKind, InodeId};

/// The object of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) inode: InodeId,
    pub(super) kind: FileKind,
}

impl Target {
    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

/// An entry as a listing sees it.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    pub(super) cookie: u64,
    pub(super) name: Arc<[u8]>,
    pub(super) target: Target,
}

#[derive(Debug)]
struct Slot {
    cookie: u64,
    target: Target,
}

/// The names of one directory.
#[derive(Debug, Default)]
pub(super) struct Directory {
    by_name: HashMap<Arc<[u8]>, Slot>,
    by_cookie: BTreeMap<u64, Arc<[u8]>>,
    last_cookie: u64,
}

impl Directory {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<Target> {
        self.by_name.get(name).map(|slot| slot.target)
    }

    /// Sets the target of `name`, and returns the old one.
    pub(super) fn put(&mut self, name: &[u8], target: Target) -> Option<Target> {
        if let Some(slot) = self.by_name.get_mut(name) {
            return Some(std::mem::replace(&mut slot.target, target));
        }
        self.last_cookie += 1;
        let name: Arc<[u8]> = name.into();
        self.by_cookie.insert(self.last_cookie, name.clone());
        self.by_name.insert(name, Slot { cookie: self.last_cookie, target });
        None
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Target> {
        let slot = self.by_name.remove(name)?;
        self.by_cookie.remove(&slot.cookie);
        // No charge pays for the memory of a mostly empty table.
        if self.by_name.capacity() > 64 && self.by_name.len() < self.by_name.capacity() / 8 {
            self.by_name.shrink_to(self.by_name.len() * 2);
        }
        Some(slot.target)
    }

    /// Up to `count` entries older than the one with `cookie`, newest first; 0 is before the
    /// newest. A number below every cookie returns none.
    pub(super) fn below(&self, cookie: u64, count: usize) -> Vec<Listed> {
        let rest = match cookie {
            0 => self.by_cookie.range(..),
            cookie if cookie <= self.last_cookie => self.by_cookie.range(..cookie),
            _ => return Vec::new(),
        };
        rest.rev()
            .take(count)
            .filter_map(|(&cookie, name)| {
                let target = self.by_name.get(name)?.target;
                Some(Listed { cookie, name: name.clone(), target })
            })
            .collect()
    }

    /// The current target of the entry with this name and cookie, if it still exists.
    pub(super) fn again(&self, listed: &Listed) -> Option<Target> {
        let slot = self.by_name.get(&listed.name)?;
        (slot.cookie == listed.cookie).then_some(slot.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> Target {
        Target { inode: InodeId(inode), kind: FileKind::Regular }
    }

    fn names(listed: &[Listed]) -> Vec<&[u8]> {
        listed.iter().map(|entry| &*entry.name).collect()
    }

    #[test]
    fn a_listing_in_steps_sees_what_stays_exactly_once() {
        let mut directory = Directory::default();
        for (at, name) in [b"a", b"b", b"c", b"d"].into_iter().enumerate() {
            assert_eq!(directory.put(name, file(at as u64)), None);
        }
        let first = directory.below(0, 2);
        assert_eq!(names(&first), [b"d", b"c"]);
        directory.remove(b"d");
        directory.remove(b"b");
        directory.put(b"d", file(8));
        assert_eq!(directory.put(b"a", file(9)), Some(file(0)), "replaced in place");
        let second = directory.below(first[1].cookie, 10);
        assert_eq!(
            names(&second),
            [b"a"],
            "a once and at its place, the new d in the next listing"
        );
        assert_eq!(second[0].target, file(9));
        assert!(directory.below(second[0].cookie, 10).is_empty());
        assert_eq!(names(&directory.below(0, 10)), [b"d", b"c", b"a"]);
        assert!(directory.below(i64::MAX as u64, 10).is_empty(), "a mark for the end");
    }

    /// Bug: xfstests generic/736 renamed each entry away and back while it read the directory, and
    /// got more than 15,000 entries of 5,000: each returned with a cookie still to be visited.
    #[test]
    fn a_listing_ends_while_all_that_it_shows_is_renamed_away_and_back() {
        let mut directory = Directory::default();
        for at in 0..1000u32 {
            directory.put(&at.to_le_bytes(), file(u64::from(at)));
        }
        let (mut seen, mut position) = (Vec::new(), 0);
        loop {
            let batch = directory.below(position, 7);
            let Some(last) = batch.last() else { break };
            position = last.cookie;
            for listed in &batch {
                seen.push(listed.name.to_vec());
                let target = directory.remove(&listed.name).expect("listed");
                directory.put(b"away", target);
                directory.remove(b"away");
                directory.put(&listed.name, target);
            }
            assert!(seen.len() <= 1000, "more than there were");
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 1000, "each once");
    }

    #[test]
    fn an_entry_is_found_again_only_as_itself() {
        let mut directory = Directory::default();
        directory.put(b"a", file(1));
        let listed = directory.below(0, 1).remove(0);
        directory.put(b"a", file(2));
        assert_eq!(directory.again(&listed), Some(file(2)));
        directory.remove(b"a");
        assert_eq!(directory.again(&listed), None);
        directory.put(b"a", file(3));
        assert_eq!(directory.again(&listed), None, "a new entry of the same name");
    }

    #[test]
    fn both_indices_shrink_together() {
        let mut directory = Directory::default();
        for at in 0..10_000u32 {
            directory.put(&at.to_le_bytes(), file(u64::from(at)));
        }
        for at in 0..10_000u32 {
            assert_eq!(directory.remove(&at.to_le_bytes()), Some(file(u64::from(at))));
        }
        assert!(directory.is_empty() && directory.by_cookie.is_empty());
        assert!(directory.by_name.capacity() < 1000);
        assert_eq!(directory.remove(b"x"), None);
    }
}
