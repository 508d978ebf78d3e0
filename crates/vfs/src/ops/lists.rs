//! Room for lists: the directories that have one, and the order in which lists are dropped.
//!
//! # Boundary
//! Owns the queue of directories that have lists. [`crate::inode::Listed`] is a list. [`crate::reclaim`] decides when
//! there are too many.
//!
//! # Rules
//! R1. A directory has one place in the queue, and stores its number (`DirListing::queued`). A place with another number
//! belongs to an inode that was evicted, and is dropped.
//! R2. For each place that is added two are examined, oldest first, and those without a list are dropped. So the queue
//! has at most about twice as many places as there are lists.
//!
//! # Why
//! A place has an inode's id and does not hold the inode, so an evicted directory leaves its place behind. Each new
//! directory has a list, an empty one: a place that stays is a leak. Weakness: to examine a place takes a shard's lock.

use crate::backend::InodeId;
use crate::inode::Node;
use crate::lock_order;
use crate::vfs::Core;
use std::collections::VecDeque;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// Places examined for each one that is added (R2).
const LOOKED_AT: usize = 2;

/// A directory that has a list, or had one.
#[derive(Debug, Clone, Copy)]
struct QueuedList {
    id: InodeId,
    number: u64,
}

/// Directories that have lists, oldest first. See the module.
#[derive(Debug)]
pub(crate) struct Lists {
    queue: Mutex<Queue>,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<QueuedList>,
    last_number: u64,
}

impl Lists {
    pub(crate) fn new() -> Self {
        let queue = Mutex::new(&lock_order::LISTS, Queue::default());
        Self { queue, bytes: AtomicUsize::new(0) }
    }

    /// Bytes of the queue.
    pub(crate) fn bytes(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.bytes.load(Relaxed)
    }

    /// Adds a place for `id`. Returns its number.
    fn add(&self, id: InodeId) -> u64 {
        let mut queue = self.queue.lock();
        queue.last_number += 1;
        let number = queue.last_number;
        queue.places.push_back(QueuedList { id, number });
        self.count(&queue);
        number
    }

    fn put_back(&self, place: QueuedList) {
        let mut queue = self.queue.lock();
        queue.places.push_back(place);
        self.count(&queue);
    }

    /// Takes the oldest `count` places out.
    fn take(&self, count: usize) -> VecDeque<QueuedList> {
        let mut queue = self.queue.lock();
        let count = count.min(queue.places.len());
        let taken = queue.places.drain(..count).collect();
        if queue.places.len() < queue.places.capacity() / 4 {
            queue.places.shrink_to_fit();
        }
        self.count(&queue);
        taken
    }

    fn count(&self, queue: &Queue) {
        // ORDERING: Relaxed; a size.
        self.bytes.store(queue.places.capacity() * size_of::<QueuedList>(), Relaxed);
    }
}

/// How to examine a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Drop the place if the directory has no list any more.
    Tidy,
    /// Drop a list that was not used since the last look.
    Age,
    /// Drop the list.
    Drop,
}

impl Core {
    /// `directory` has a list. The caller holds no lock.
    pub(crate) fn has_list(&self, directory: &Node) {
        if !self.keeps_listings() {
            return;
        }
        {
            let mut kept = directory.inode.dir_state().kept();
            if kept.queued != 0 {
                return;
            }
            kept.queued = self.lists.add(directory.id());
        }
        self.look_at_lists(LOOKED_AT, Look::Tidy);
    }

    /// Examines `count` directories with lists, and drops lists that were not used since the last look. `None` drops
    /// every list.
    pub(crate) fn drop_lists(&self, count: Option<usize>) {
        match count {
            Some(count) => self.look_at_lists(count, Look::Age),
            None => self.look_at_lists(usize::MAX, Look::Drop),
        }
    }

    fn look_at_lists(&self, count: usize, look: Look) {
        for place in self.lists.take(count) {
            // Dropped at the end of the step, with no lock held.
            let Some(node) = self.inodes.peek(place.id) else { continue };
            let Some(mut kept) = node.inode.dir_state().known_kept() else { continue };
            if kept.queued != place.number {
                continue;
            }
            let used = match look {
                Look::Tidy => true,
                Look::Age => std::mem::take(&mut kept.used),
                Look::Drop => false,
            };
            if !used {
                kept.clear();
            }
            let stays = !kept.is_empty();
            if !stays {
                kept.queued = 0;
            }
            drop(kept);
            if stays {
                self.lists.put_back(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::Listings;
    use crate::ops::Entries;
    use crate::{
        Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, FileKind, FileRef, InodeId,
        Inodes, Listing, Name, Names, Node, Result, Vfs, VfsConfig,
    };
    use std::time::Duration;

    /// Directories named by their numbers. They are empty, except for those from [`LARGE`] on: such a directory has as
    /// many files as its number exceeds [`LARGE`].
    struct Store;

    const LARGE: u64 = 1 << 32;

    fn directory(inode: u64) -> Entry {
        let attributes = Attributes::new(inode, FileKind::Directory, 0o755);
        Entry { inode: InodeId(inode), attributes }
    }

    impl Backend for Store {
        fn capabilities(&self) -> Capabilities {
            Capabilities { listings: Listings::Kept, ..Capabilities::read_only("lists") }
        }
        fn root(&self) -> Result<Entry> {
            Ok(directory(InodeId::ROOT.0))
        }
        fn names(&self) -> &dyn Names {
            self
        }
        fn inodes(&self) -> &dyn Inodes {
            self
        }
        fn data(&self) -> &dyn Data {
            self
        }
    }

    impl Names for Store {
        fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
            let name = std::str::from_utf8(name.as_bytes()).unwrap();
            Ok(directory(name.parse().unwrap()))
        }
        fn list(&self, file: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
            for at in from.0..file.inode.0.saturating_sub(LARGE) {
                let attributes = Attributes::new(1000 + at, FileKind::Regular, 0o644);
                let entry = Entry { inode: InodeId(1000 + at), attributes };
                let name = format!("{at}");
                if !listing.add_entry(Name::new(name.as_bytes())?, Cookie(at + 1), entry) {
                    break;
                }
            }
            Ok(())
        }
    }

    impl Inodes for Store {
        fn attributes(&self, file: FileRef) -> Result<Attributes> {
            Ok(directory(file.inode.0).attributes)
        }
    }

    impl Data for Store {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
    }

    struct Nothing;

    impl Entries for Nothing {
        fn room(&self) -> usize {
            1000
        }
        fn wants_nodes(&self) -> bool {
            false
        }
        fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
            true
        }
        fn node(
            &mut self,
            _: Name<'_>,
            _: Cookie,
            _: Node,
            _: &Attributes,
            _: (Duration, Duration),
        ) -> bool {
            true
        }
    }

    /// Each new directory, and each listing after a change, added a place to the queue. Only a full cache removed them:
    /// a mount below its budget grew by eight bytes for each, without end.
    #[test]
    fn directories_that_went_leave_no_place_behind() {
        let vfs = Vfs::new(Store, VfsConfig::default()).unwrap();
        let places = || vfs.core.lists.queue.lock().places.len();
        let list = |node: &Node| {
            let file = FileRef::unopened(node.id());
            vfs.list(&Caller::root(), node, file, Cookie::default(), &mut Nothing).unwrap();
        };
        for round in 0..64 {
            for number in 0..16 {
                let name = (100 + round * 16 + number).to_string();
                let name = Name::new(name.as_bytes()).unwrap();
                let found = vfs.lookup(&Caller::root(), vfs.root(), name).unwrap();
                list(&found.found().unwrap().node);
            }
            vfs.core.forget_names();
            vfs.core.inodes.clear_inactive(&vfs.core);
        }
        assert!(places() <= 2 * 16 + 2, "{} places, and no directory", places());
        // One directory whose list becomes useless repeatedly has one place.
        list(vfs.root());
        for _ in 0..64 {
            vfs.root().inode.dir_state().kept().forget();
            vfs.refresh(vfs.root()).unwrap();
        }
        vfs.core.drop_lists(Some(usize::MAX));
        assert_eq!(places(), 1);
        assert!(vfs.core.lists.bytes() > 0);
        vfs.core.drop_lists(None);
        assert_eq!((places(), vfs.core.lists.bytes()), (0, 0));
    }

    /// A list was kept whatever its length, and dropped at once where it was larger than the room for lists. Until then
    /// it used memory beyond the budget.
    #[test]
    fn a_list_that_takes_a_good_part_of_the_room_is_not_kept() {
        let config = VfsConfig { cache_bytes: crate::MINIMUM_BYTES, ..VfsConfig::default() };
        let vfs = Vfs::new(Store, config).unwrap();
        for (files, is_kept) in [(1000, true), (60_000, false)] {
            let name = (LARGE + files).to_string();
            let name = Name::new(name.as_bytes()).unwrap();
            let found = vfs.lookup(&Caller::root(), vfs.root(), name).unwrap();
            let node = found.found().unwrap().node;
            vfs.refresh(&node).unwrap();
            let kept = node.inode.dir_state().known_kept();
            assert_eq!(kept.is_some_and(|kept| kept.current().is_some()), is_kept, "{files}");
        }
        vfs.core.drop_lists(None);
        assert_eq!(vfs.core.listed.total(), 0);
    }
}
