//! The kept listing of a directory: its names in the store's order, to answer listings from the cache.
//!
//! # Boundary
//! Keeps the names of one whole listing, and names created here since. [`uvfs_concurrent::complete`] says whether they
//! are all names. [`crate::names`] has their objects. Asks the store nothing.
//!
//! # Rules
//! L1. A list is set together with the declaration that the directory is complete, under the lock over its entries. A
//! name created while it stays complete is added under the same lock. So while the claim stands, every name of the
//! directory is in the list or among the added ones. Removed names stay in it. The name table does not have them any
//! more, so the thread that serves the list leaves them out.
//! L2. A list never changes. Added names make a new list when the next listing begins.
//! L3. A position is a list and a place in it ([`DirListing::at`]). A superseded list is kept alive for its current readers:
//! entries that stay are seen once, whatever changes meanwhile.
//! L4. If a list is dropped while a reader is in its middle, hashes of the names up to there are kept ([`Offered`]).
//! That reader then reads the store's listing and passes over these names, in any order, whichever were removed. A mere
//! count would pass over as many others as were removed.
//!
//! # Why
//! The name table finds a name and cannot enumerate names. A list takes 16 bytes for each entry, and its name. All
//! lists, lists in progress and added names count in [`ListedBytes`], for the budget. Weakness: removed names use
//! memory until the directory is listed again.

use crate::attributes::FileKind;
use crate::backend::Cookie;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Set in our own positions. A store with kept listings has no position that large ([`crate::Listings`]).
const OURS: u64 = 1 << 62;
/// The largest position of a store whose listings are kept.
pub(crate) const POSITIONS_MAX: u64 = OURS - 1;
/// Bits of a position that are the place; those above number lists.
const PLACE_BITS: u32 = 36;
const NUMBERS: u64 = 1 << (62 - PLACE_BITS);
/// Names added, after which the store is asked again.
const ADDED_MAX: usize = 1 << 16;
/// Superseded lists that may still be read.
const RETIRED_MAX: usize = 4;
/// Places of stopped readers that are remembered.
const STOPS_MAX: usize = 8;
/// Entries of the longest list. Longer directories are listed by the store each time.
const ENTRIES_MAX: usize = 1 << 24;

/// Bytes of all lists.
#[derive(Debug, Default)]
pub(crate) struct ListedBytes {
    bytes: AtomicU64,
    numbers: AtomicU64,
    hasher: RandomState,
}

impl ListedBytes {
    pub(crate) fn total(&self) -> u64 {
        // ORDERING: Relaxed; a size.
        self.bytes.load(Relaxed)
    }

    fn add(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn subtract(&self, bytes: usize) {
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_sub(bytes as u64, Relaxed);
    }
}

/// One entry of a list.
#[derive(Debug, Clone, Copy)]
struct Item {
    number: u64,
    /// The end of its name, which begins at the end of the name before.
    end: u32,
    kind: FileKind,
}

const _: () = assert!(size_of::<Item>() == 16);

/// The names of a directory, in the order of the store.
#[derive(Debug)]
pub(crate) struct Listed {
    number: u64,
    items: Box<[Item]>,
    names: Box<[u8]>,
    all: Arc<ListedBytes>,
}

/// A list in progress.
#[derive(Debug)]
pub(crate) struct Recording {
    items: Vec<Item>,
    names: Vec<u8>,
    /// Bytes counted in `all` for it.
    counted: usize,
    all: Arc<ListedBytes>,
}

impl Recording {
    pub(crate) fn new(all: &Arc<ListedBytes>) -> Self {
        Self { items: Vec::new(), names: Vec::new(), counted: 0, all: all.clone() }
    }

    /// Adds an entry. False if the list is too long to be kept.
    pub(crate) fn add(&mut self, name: &[u8], number: u64, kind: FileKind) -> bool {
        self.names.extend_from_slice(name);
        let Ok(end) = u32::try_from(self.names.len()) else { return false };
        self.items.push(Item { number, end, kind });
        let bytes = self.bytes();
        if bytes != self.counted {
            self.all.add(bytes - self.counted);
            self.counted = bytes;
        }
        self.items.len() < ENTRIES_MAX
    }

    /// Bytes in memory; they only grow.
    pub(crate) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.names.capacity()
    }

    pub(crate) fn finish(mut self, all: &Arc<ListedBytes>) -> Arc<Listed> {
        let items = std::mem::take(&mut self.items).into_boxed_slice();
        let names = std::mem::take(&mut self.names).into_boxed_slice();
        // ORDERING: Relaxed; only the value must be a new one.
        let number = all.numbers.fetch_add(1, Relaxed) % NUMBERS;
        let listed = Listed { number, items, names, all: all.clone() };
        all.add(listed.bytes());
        Arc::new(listed)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.all.subtract(self.counted);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.all.subtract(self.bytes());
    }
}

impl Listed {
    /// The number in its positions.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.items) + self.names.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Name, number and kind of the entry at `place`.
    pub(crate) fn get(&self, place: usize) -> Option<(&[u8], u64, FileKind)> {
        let item = self.items.get(place)?;
        let start = place.checked_sub(1).map_or(0, |before| self.items[before].end as usize);
        Some((&self.names[start..item.end as usize], item.number, item.kind))
    }

    /// The position of `place`.
    pub(crate) fn cookie(&self, place: usize) -> Cookie {
        Cookie(OURS | self.number << PLACE_BITS | place as u64)
    }

    /// The place of the entry with the user-visible `number`, searched from `near` on.
    pub(crate) fn find(&self, number: u64, near: usize) -> Option<usize> {
        let near = near.min(self.items.len());
        let (before, behind) = self.items.split_at(near);
        let is = |item: &Item| item.number == number;
        behind.iter().position(is).map(|at| near + at).or_else(|| before.iter().position(is))
    }

    /// Places of the names that `other` does not have.
    pub(crate) fn names_without(&self, other: &Listed) -> Vec<usize> {
        // Mostly the two are equal, or nearly so.
        let equal = self.names().zip(other.names()).take_while(|(one, two)| one == two).count();
        if equal == self.len() {
            return Vec::new();
        }
        let stays: HashSet<&[u8]> = other.names().skip(equal).collect();
        let places = self.names().enumerate().skip(equal);
        places.filter(|(_, name)| !stays.contains(name)).map(|(place, _)| place).collect()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|place| self.get(place).map(|(name, ..)| name))
    }
}

/// The names already offered of a dropped list: a hash of each, in list order (L4).
#[derive(Debug)]
pub(crate) struct Offered {
    number: u64,
    hashes: Box<[u64]>,
    all: Arc<ListedBytes>,
}

impl Offered {
    fn new(listed: &Listed, count: usize) -> Self {
        let hash = |name: &[u8]| listed.all.hasher.hash_one(name);
        let hashes: Box<[u64]> = listed.names().take(count).map(hash).collect();
        let all = listed.all.clone();
        all.add(size_of_val(&*hashes));
        Self { number: listed.number, hashes, all }
    }

    /// The names before `place`, to be passed over.
    pub(crate) fn before(&self, place: usize) -> PassedOver {
        let hashes = self.hashes.iter().take(place).copied().collect();
        PassedOver { hashes, all: self.all.clone() }
    }
}

impl Drop for Offered {
    fn drop(&mut self) {
        self.all.subtract(size_of_val(&*self.hashes));
    }
}

/// Names of a dropped list that a reader has received.
#[derive(Debug)]
pub(crate) struct PassedOver {
    hashes: HashSet<u64>,
    all: Arc<ListedBytes>,
}

impl PassedOver {
    /// Names not passed over yet. Names that were removed stay.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether `name` is one of them. Removes it.
    pub(crate) fn takes(&mut self, name: &[u8]) -> bool {
        !self.hashes.is_empty() && self.hashes.remove(&self.all.hasher.hash_one(name))
    }
}

/// The place in one of our own positions; `None` for a position of the store.
pub(crate) fn place_of(cookie: Cookie) -> Option<usize> {
    (cookie.0 & OURS != 0).then_some((cookie.0 & ((1 << PLACE_BITS) - 1)) as usize)
}

/// The list number in one of our own positions.
fn number_of(cookie: Cookie) -> u64 {
    (cookie.0 & !OURS) >> PLACE_BITS
}

/// A name created here.
#[derive(Debug)]
struct Added {
    name: Box<[u8]>,
    number: u64,
    kind: FileKind,
    all: Arc<ListedBytes>,
}

impl Added {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

impl Drop for Added {
    fn drop(&mut self) {
        self.all.subtract(self.bytes());
    }
}

/// The position of a program that opens the files of a directory in order.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reading {
    /// The place of the file that was read last.
    pub(crate) at: usize,
    /// Files read in order before it.
    pub(crate) run: u32,
    /// The place up to which files were fetched, or are being fetched.
    pub(crate) fetched: usize,
    /// The order found in a directory below is expected in its next sibling, too.
    pub(crate) trusted: bool,
}

/// The list of a directory. See the module.
#[derive(Debug, Default)]
pub(crate) struct DirListing {
    current: Option<Arc<Listed>>,
    added: Vec<Added>,
    /// The last one read is at the end.
    retired: Vec<Arc<Listed>>,
    /// Numbers of lists and places in which readers stopped, the latest at the end.
    stops: Vec<(u64, usize)>,
    /// Names offered from dropped lists with a reader in the middle (L4).
    offered: Vec<Arc<Offered>>,
    /// A thread is about to list it again.
    pub(crate) refreshing: bool,
    /// The number of its place in the queue of directories that have lists; 0 if it has none.
    pub(crate) queued: u64,
    /// It was used since the last search for room.
    pub(crate) used: bool,
    pub(crate) reading: Reading,
}

impl DirListing {
    /// The whole directory was listed. `None` if its names were not recorded. Returns the earlier list.
    pub(crate) fn set(&mut self, listed: Option<Arc<Listed>>) -> Option<Arc<Listed>> {
        let old = self.current.take();
        self.added = Vec::new();
        self.used = true;
        self.reading = Reading { trusted: self.reading.trusted, ..Reading::default() };
        self.retire(old.clone());
        self.current = listed;
        old
    }

    /// A name was made in a directory that stays complete (L1).
    pub(crate) fn add(&mut self, name: &[u8], number: u64, kind: FileKind) {
        let Some(current) = &self.current else { return };
        if self.added.len() >= ADDED_MAX {
            self.forget();
            return;
        }
        let added = Added { name: name.into(), number, kind, all: current.all.clone() };
        added.all.add(added.bytes());
        self.added.push(added);
    }

    /// The directory is not known to be complete any more.
    pub(crate) fn forget(&mut self) {
        let old = self.current.take();
        self.added = Vec::new();
        self.retire(old);
    }

    /// Drops all lists to free their memory.
    pub(crate) fn clear(&mut self) {
        self.added = Vec::new();
        let current = self.current.take();
        for gone in std::mem::take(&mut self.retired).into_iter().chain(current) {
            self.leaves(&gone);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current.is_none() && self.retired.is_empty()
    }

    fn retire(&mut self, old: Option<Arc<Listed>>) {
        // A reader holds no reference to it between two calls.
        self.retired.extend(old.filter(|old| old.len() > 0));
        if self.retired.len() > RETIRED_MAX {
            let gone = self.retired.remove(0);
            self.leaves(&gone);
        }
    }

    /// The list `gone` is not kept any more.
    fn leaves(&mut self, gone: &Listed) {
        let here = self.stops.iter().filter(|(number, _)| *number == gone.number);
        let Some(furthest) = here.map(|(_, place)| *place).max() else { return };
        self.stops.retain(|(number, _)| *number != gone.number);
        if self.offered.len() > RETIRED_MAX {
            self.offered.remove(0);
        }
        self.offered.push(Arc::new(Offered::new(gone, furthest)));
    }

    /// A reader of the list `number` stops at `place`, in its middle.
    pub(crate) fn stopped(&mut self, number: u64, place: usize) {
        if self.stops.len() >= STOPS_MAX {
            self.stops.remove(0);
        }
        self.stops.push((number, place));
    }

    /// A reader that stopped at `place` of the list `number`, or a little behind it, continues.
    fn goes_on(&mut self, number: u64, place: usize) {
        let behind = self.stops.iter().enumerate();
        let behind = behind.filter(|(_, (of, at))| *of == number && *at >= place);
        if let Some((nearest, _)) = behind.min_by_key(|(_, (_, at))| *at) {
            self.stops.remove(nearest);
        }
    }

    /// The names offered before the position `cookie` of a dropped list. `None` if no reader is known to have stopped
    /// there.
    pub(crate) fn offered_before(&self, cookie: Cookie) -> Option<(Arc<Offered>, usize)> {
        let (number, place) = (number_of(cookie), place_of(cookie)?);
        let found = self.offered.iter().rev().find(|offered| offered.number == number)?;
        (place <= found.hashes.len()).then(|| (found.clone(), place))
    }

    /// The list, without the added names.
    pub(crate) fn current(&self) -> Option<&Arc<Listed>> {
        self.current.as_ref()
    }

    /// The list with all added names (L2).
    pub(crate) fn whole(&mut self) -> Option<Arc<Listed>> {
        let current = self.current.clone()?;
        self.used = true;
        if self.added.is_empty() {
            return Some(current);
        }
        let mut added = HashMap::new();
        for one in &self.added {
            match added.entry(&*one.name) {
                // Created again: it may be another object.
                Occupied(mut known) => _ = known.insert((one.number, one.kind)),
                Vacant(new) => _ = new.insert((one.number, one.kind)),
            }
        }
        let mut recording = Recording::new(&current.all);
        for place in 0..current.len() {
            let Some((name, number, kind)) = current.get(place) else { break };
            let (number, kind) = added.remove(name).unwrap_or((number, kind));
            recording.add(name, number, kind);
        }
        for one in &self.added {
            if let Some((number, kind)) = added.remove(&*one.name) {
                recording.add(&one.name, number, kind);
            }
        }
        let whole = recording.finish(&current.all);
        self.current = Some(whole.clone());
        self.added = Vec::new();
        self.retire(Some(current));
        Some(whole)
    }

    /// The list of the position `cookie`, and its place (L3).
    pub(crate) fn at(&mut self, cookie: Cookie) -> Option<(Arc<Listed>, usize)> {
        let place = place_of(cookie)?;
        let number = number_of(cookie);
        self.used = true;
        self.goes_on(number, place);
        if let Some(current) = self.current.as_ref().filter(|current| current.number == number) {
            return Some((current.clone(), place));
        }
        let found = self.retired.iter().position(|listed| listed.number == number)?;
        let listed = self.retired.remove(found);
        self.retired.push(listed.clone());
        Some((listed, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str], all: &Arc<ListedBytes>) -> Arc<Listed> {
        let mut recording = Recording::new(all);
        for (at, name) in names.iter().enumerate() {
            assert!(recording.add(name.as_bytes(), at as u64 + 10, FileKind::Regular));
        }
        recording.finish(all)
    }

    fn shown(listed: &Listed) -> Vec<String> {
        listed.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    }

    /// Only whole lists were counted. A listing of a large directory, an abandoned one, and 65,000 names created in a
    /// directory used memory outside the budget.
    #[test]
    fn lists_that_are_read_and_names_that_are_added_are_counted() {
        let all: Arc<ListedBytes> = Arc::default();
        let mut recording = Recording::new(&all);
        for number in 0..1000 {
            recording.add(b"name", number, FileKind::Regular);
        }
        assert!(all.total() >= 1000 * 20 && all.total() == recording.bytes() as u64);
        drop(recording);
        assert_eq!(all.total(), 0);
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["a"], &all)));
        let before = all.total();
        (0..100).for_each(|number| kept.add(b"added", number, FileKind::Regular));
        assert!(all.total() > before + 100 * 5, "{} of {before}", all.total());
        kept.whole();
        kept.clear();
        assert_eq!(all.total(), 0);
    }

    #[test]
    fn a_list_has_its_names_in_order_and_positions_lead_back() {
        let all = Arc::default();
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["b", "", "aa"], &all)));
        let list = kept.whole().unwrap();
        assert_eq!(shown(&list), ["b", "", "aa"]);
        assert_eq!(list.get(2), Some((&b"aa"[..], 12, FileKind::Regular)));
        assert!(list.get(3).is_none());
        assert_eq!(kept.at(list.cookie(2)).unwrap().1, 2);
        assert!(kept.at(Cookie(2)).is_none() && place_of(Cookie(2)).is_none());
        assert_eq!((list.find(12, 0), list.find(10, 2), list.find(9, 1)), (Some(2), Some(0), None));
    }

    #[test]
    fn what_was_added_comes_once_and_readers_go_on_where_they_were() {
        let all = Arc::default();
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["a", "b"], &all)));
        let before = kept.whole().unwrap();
        let position = before.cookie(1);
        for (name, number) in [("c", 20), ("a", 21), ("c", 22)] {
            kept.add(name.as_bytes(), number, FileKind::Directory);
        }
        let whole = kept.whole().unwrap();
        assert_eq!(shown(&whole), ["a", "b", "c"]);
        assert_eq!(whole.get(0).unwrap().1, 21, "made again, as another one");
        assert_eq!(whole.get(2).unwrap().1, 22);
        let (reading, place) = kept.at(position).unwrap();
        assert_eq!((shown(&reading).len(), place), (2, 1));
    }

    #[test]
    fn what_was_offered_of_a_list_that_is_gone_is_known_up_to_where_a_reader_stopped() {
        let all: Arc<ListedBytes> = Arc::default();
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["b", "c", "a", "d"], &all)));
        let list = kept.whole().unwrap();
        kept.stopped(list.number(), 1);
        // One continues, and stops later. Another has not continued.
        kept.stopped(list.number(), 1);
        assert!(kept.at(list.cookie(1)).is_some());
        kept.stopped(list.number(), 3);
        kept.clear();
        assert!(kept.at(list.cookie(3)).is_none());
        let passed = |place| {
            let (offered, place) = kept.offered_before(list.cookie(place))?;
            let mut passed = offered.before(place);
            Some(["a", "b", "c", "d"].map(|name| passed.takes(name.as_bytes())))
        };
        assert_eq!(passed(1), Some([false, true, false, false]));
        assert_eq!(passed(3), Some([true, true, true, false]));
        assert_eq!(passed(4), None, "no listing stopped there");
        let mut twice = kept.offered_before(list.cookie(1)).unwrap().0.before(1);
        assert_eq!((twice.takes(b"b"), twice.takes(b"b"), twice.len()), (true, false, 0));
        drop((list, twice));
        assert_eq!(all.total(), 3 * 8);
        drop(kept);
        assert_eq!(all.total(), 0);
    }

    #[test]
    fn a_list_that_no_reader_is_in_the_middle_of_leaves_nothing() {
        let all: Arc<ListedBytes> = Arc::default();
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["a", "b"], &all)));
        let position = kept.whole().unwrap().cookie(1);
        kept.stopped(number_of(position), 1);
        assert!(kept.at(position).is_some());
        kept.clear();
        assert!(kept.offered_before(position).is_none());
        assert_eq!(all.total(), 0);
        for _ in 0..100 {
            kept.stopped(7, 1);
        }
        assert_eq!(kept.stops.len(), STOPS_MAX);
    }

    #[test]
    fn bytes_are_counted_until_the_last_reader_is_gone() {
        let all: Arc<ListedBytes> = Arc::default();
        let mut kept = DirListing::default();
        kept.set(Some(listed(&["abc"], &all)));
        let reader = kept.whole();
        assert_eq!(all.total(), (size_of::<Listed>() + 16 + 3) as u64);
        kept.forget();
        kept.clear();
        assert!(kept.is_empty() && all.total() > 0);
        drop(reader);
        assert_eq!(all.total(), 0);
    }
}
