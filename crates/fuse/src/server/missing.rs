//! Names that the kernel has cached as missing.
//!
//! # Boundary
//! A bounded record of negative answers with a lifetime: the directory's node id and the name. A cleaning reads it,
//! since no message finds the kernel's *negative* entries by itself. Sends nothing.
//!
//! # Concurrency
//! One lock per shard of directories. The record never has *fewer* names than the kernel:
//!
//! * A name is recorded before its answer is sent.
//! * The kernel creates a name under the directory's exclusive lock, and looks up an uncached name under that lock,
//!   too. So between an answer "missing" and the end of a request that creates the name, no other lookup makes it
//!   negative, and the end of that request may remove the record.
//! * A cleaning removes only records that it listed; a later answer about the same name has a later stamp.
//! * All records of a directory are removed under the lock of its node id, when the kernel has returned its last
//!   lookup. Later answers follow a new lookup of the directory.
//! * A name evicted from the record is queued for a notice before the shard lock is released.
//!
//! It may have *more* names: the kernel evicts entries silently, and a lookup that revalidates a name makes no negative
//! entry. So it serves to expire names (FUSE_EXPIRE_ONLY), never to drop them: that would detach a new directory.
//!
//! # Why
//! The kernel has no bound for negative entries, so the record has one, a share of the budget; the oldest is evicted
//! first. If the queue of notices is full, the answer gets no lifetime, which needs no record. Weaknesses: the kernel
//! answers repeated questions itself, so age is not use; and names cost memory twice.

use crate::lock_order;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_concurrent::shard::Shards;

const SHARDS: usize = 8;
/// Names in one shard, however much room there is.
const NAMES_MAX: usize = 16_384;
/// Bytes of a name beside its letters: its places in both maps with their slack, and its counters.
const NAME_BYTES: u64 = 160;
/// A shard has room for some names in any budget.
const SHARD_BYTES_MIN: u64 = 4 << 10;
/// Names evicted per insertion, at most: more than one if the room has become smaller.
const LEAVE_AT_ONCE: usize = 8;

/// A name that the kernel has cached as missing, as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingName {
    pub(crate) name: Arc<[u8]>,
    /// When, in the order of its shard.
    stamp: u64,
}

#[derive(Debug, Default)]
struct Shard {
    parents: HashMap<u64, HashMap<Arc<[u8]>, u64>>,
    /// The names of `parents`, oldest first.
    order: BTreeMap<u64, (u64, Arc<[u8]>)>,
    next: u64,
    /// Bytes of the names here.
    bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Missing {
    shards: Shards<Shard>,
    names_max: usize,
    /// Limit of the bytes of all names together.
    room_bytes: AtomicU64,
    /// Bytes of all names, as of the last insertion.
    bytes: AtomicU64,
}

impl Missing {
    pub(crate) fn new() -> Self {
        Self::with_room(SHARDS, NAMES_MAX)
    }

    fn with_room(shards: usize, names_max: usize) -> Self {
        Self {
            shards: Shards::new(&lock_order::FUSE_MISSING, shards),
            names_max,
            room_bytes: AtomicU64::new(u64::MAX),
            bytes: AtomicU64::new(0),
        }
    }

    /// Sets the limit of the bytes of all names. Insertions enforce it.
    pub(crate) fn set_room(&self, bytes: u64) {
        // ORDERING: Relaxed, both; a limit, nothing is reached through it.
        if self.room_bytes.load(Relaxed) != bytes {
            self.room_bytes.store(bytes, Relaxed);
        }
    }

    /// Bytes of all names.
    pub(crate) fn bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size that may lag.
        self.bytes.load(Relaxed)
    }

    /// Bytes that one shard may use.
    fn shard_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a limit, nothing is reached through it.
        (self.room_bytes.load(Relaxed) / self.shards.count() as u64).max(SHARD_BYTES_MIN)
    }

    /// Applies `change` to the shard of `parent`, and counts the difference in bytes.
    fn with<T>(&self, parent: u64, change: impl FnOnce(&mut Shard) -> T) -> T {
        let mut shard = self.shards.of(&parent).lock();
        let before = shard.bytes;
        let changed = change(&mut shard);
        // ORDERING: Relaxed; a size. Sums wrap, and come out right.
        self.bytes.fetch_add(shard.bytes.wrapping_sub(before), Relaxed);
        changed
    }

    /// Call this before the kernel gets the answer that `name` in `parent` is missing, with a lifetime. For lack of
    /// room it may evict another name: `ask_again` queues a notice about that name, or reports that it cannot. Then
    /// this returns false, and the answer must have no lifetime.
    pub(crate) fn record(
        &self,
        parent: u64,
        name: &[u8],
        mut ask_again: impl FnMut(u64, &[u8]) -> bool,
    ) -> bool {
        let bytes_max = self.shard_bytes().saturating_sub(bytes_of(name));
        self.with(parent, |shard| {
            // Once more: it is young again. The kernel has dropped its entry, or it would not have asked.
            shard.remove(parent, name);
            for _ in 0..LEAVE_AT_ONCE {
                if shard.order.len() < self.names_max && shard.bytes <= bytes_max {
                    break;
                }
                let Some((_, (parent, name))) = shard.order.first_key_value() else { break };
                if !ask_again(*parent, name) {
                    return false;
                }
                let (parent, name) = (*parent, name.clone());
                shard.remove(parent, &name);
            }
            shard.insert(parent, name.into());
            true
        })
    }

    /// `name` in `parent` is something now, and the request that made it is about to be answered.
    pub(crate) fn made(&self, parent: u64, name: &[u8]) {
        self.with(parent, |shard| shard.remove(parent, name));
    }

    /// The names recorded in `parent`.
    pub(crate) fn names(&self, parent: u64) -> Vec<MissingName> {
        let shard = self.shards.of(&parent).lock();
        let names = shard.parents.get(&parent).into_iter().flatten();
        names.map(|(name, &stamp)| MissingName { name: name.clone(), stamp }).collect()
    }

    /// The kernel was asked to revalidate `known` in `parent`. The record stays if there was an answer since it was
    /// listed.
    pub(crate) fn notified(&self, parent: u64, known: &MissingName) {
        self.with(parent, |shard| {
            let names = shard.parents.get(&parent);
            if names.and_then(|names| names.get(&known.name)) == Some(&known.stamp) {
                shard.remove(parent, &known.name);
            }
        });
    }

    /// Up to `count` of the oldest names, with their directories, for which there is no room any more. They stay until
    /// [`notified`](Self::notified).
    pub(crate) fn too_many(&self, count: usize) -> Vec<(u64, MissingName)> {
        let bytes_max = self.shard_bytes();
        let mut some = Vec::new();
        for shard in self.shards.iter() {
            let shard = shard.lock();
            let mut bytes = shard.bytes;
            for (&stamp, (parent, name)) in &shard.order {
                if bytes <= bytes_max || some.len() == count {
                    break;
                }
                bytes -= bytes_of(name);
                some.push((*parent, MissingName { name: name.clone(), stamp }));
            }
        }
        some
    }

    /// The kernel has forgotten `parent`, and with it all negative entries in it.
    pub(crate) fn forget(&self, parent: u64) {
        self.with(parent, |shard| {
            let names = shard.parents.remove(&parent).unwrap_or_default();
            for (name, stamp) in &names {
                shard.order.remove(stamp);
                shard.bytes -= bytes_of(name);
            }
        });
    }

    /// Names recorded.
    pub(crate) fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().order.len() as u64).sum()
    }

    /// Drops all records: the kernel's session has ended.
    pub(crate) fn clear(&self) {
        for shard in self.shards.iter() {
            let all = std::mem::take(&mut *shard.lock());
            // ORDERING: Relaxed; a size.
            self.bytes.fetch_sub(all.bytes, Relaxed);
            drop(all);
        }
    }
}

/// Bytes of the record of `name`.
fn bytes_of(name: &[u8]) -> u64 {
    NAME_BYTES + name.len() as u64
}

impl Shard {
    fn insert(&mut self, parent: u64, name: Arc<[u8]>) {
        self.next += 1;
        self.bytes += bytes_of(&name);
        self.order.insert(self.next, (parent, name.clone()));
        self.parents.entry(parent).or_default().insert(name, self.next);
    }

    fn remove(&mut self, parent: u64, name: &[u8]) {
        let Some(names) = self.parents.get_mut(&parent) else { return };
        if let Some(stamp) = names.remove(name) {
            self.order.remove(&stamp);
            self.bytes -= bytes_of(name);
        }
        if names.is_empty() {
            self.parents.remove(&parent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: u64, _: &[u8]) -> bool {
        panic!("there is room")
    }

    fn names(missing: &Missing, parent: u64) -> Vec<String> {
        let names = missing.names(parent);
        let mut names: Vec<_> =
            names.iter().map(|one| String::from_utf8_lossy(&one.name).into_owned()).collect();
        names.sort();
        names
    }

    /// A lowered budget left the record as it was until more names came, and was broken by it on return.
    #[test]
    fn names_for_which_there_is_no_room_any_more_are_listed_oldest_first() {
        let missing = Missing::with_room(1, 100);
        for at in 0..100 {
            assert!(missing.record(2, format!("{at:0>90}").as_bytes(), never));
        }
        assert!(missing.too_many(1000).is_empty(), "there is room");
        missing.set_room(40 * bytes_of(&[0; 90]));
        let mut notified = 0;
        loop {
            let names = missing.too_many(7);
            if names.is_empty() {
                break;
            }
            assert!(names.len() <= 7);
            for (parent, name) in &names {
                assert_eq!(*name.name, *format!("{notified:0>90}").as_bytes(), "the oldest first");
                missing.notified(*parent, name);
                notified += 1;
            }
        }
        assert_eq!((notified, missing.count(), missing.bytes()), (60, 40, 40 * bytes_of(&[0; 90])));
    }

    #[test]
    fn names_are_kept_by_directory_until_they_are_made_or_it_is_forgotten() {
        let missing = Missing::new();
        for (parent, name) in [(2, "a"), (2, "b"), (3, "a"), (2, "a")] {
            assert!(missing.record(parent, name.as_bytes(), never));
        }
        assert_eq!(
            (names(&missing, 2), names(&missing, 4)),
            (vec!["a".into(), "b".into()], vec![])
        );
        assert_eq!(missing.count(), 3, "a name is in it once");
        missing.made(2, b"a");
        missing.made(2, b"other");
        missing.made(4, b"a");
        assert_eq!((names(&missing, 2), names(&missing, 3)), (vec!["b".into()], vec!["a".into()]));
        missing.forget(3);
        missing.forget(3);
        assert_eq!((names(&missing, 3).len(), missing.count()), (0, 1));
        missing.made(2, b"b");
        assert!(missing.shards.iter().all(|shard| shard.lock().parents.is_empty()));
        assert!(missing.record(2, b"a", never));
        missing.clear();
        assert_eq!((missing.count(), names(&missing, 2).len()), (0, 0));
    }

    #[test]
    fn the_oldest_goes_first_and_the_kernel_is_to_ask_again_about_it() {
        let missing = Missing::with_room(1, 3);
        for name in ["a", "b", "c"] {
            assert!(missing.record(2, name.as_bytes(), never));
        }
        assert!(missing.record(2, b"a", never), "what is in it needs no room");
        let mut notified = Vec::new();
        for at in 0..4u8 {
            assert!(missing.record(3, &[at], |parent, name| {
                notified.push((parent, name.to_vec()));
                true
            }));
            assert_eq!(missing.count(), 3);
        }
        let expected = [(2, b"b".to_vec()), (2, b"c".to_vec()), (2, b"a".to_vec()), (3, vec![0])];
        assert_eq!(notified, expected);
        assert_eq!((missing.names(2).len(), missing.names(3).len()), (0, 3));
    }

    /// 400,000 misses took 26 MiB with a budget of 16 for everything.
    #[test]
    fn names_that_are_missing_keep_to_their_room() {
        let missing = Missing::with_room(1, NAMES_MAX);
        missing.set_room(64 << 10);
        let mut asked = 0u64;
        let mut record = |name: String| {
            assert!(missing.record(2, name.as_bytes(), |_, _| {
                asked += 1;
                true
            }));
            assert!(missing.bytes() <= 64 << 10, "{}", missing.bytes());
        };
        (0..10_000).for_each(|at| record(format!("a name that is not there {at}")));
        (0..100).for_each(|at| record(format!("{at:0200}")));
        assert_eq!(asked, 10_100 - missing.count(), "the kernel is told of each that leaves");
        // A smaller room is kept to by and by, and never without some names.
        missing.set_room(0);
        (0..500).for_each(|at| assert!(missing.record(2, &[at as u8, 1], |_, _| true)));
        assert!(missing.bytes() <= SHARD_BYTES_MIN && missing.count() >= 10);
        missing.forget(2);
        assert_eq!((missing.bytes(), missing.count()), (0, 0));
        missing.set_room(u64::MAX);
        assert!(missing.record(2, b"a", never) && missing.bytes() > 0);
        missing.clear();
        assert_eq!(missing.bytes(), 0);
    }

    #[test]
    fn what_cannot_be_recorded_must_not_be_believed() {
        let missing = Missing::with_room(1, 2);
        assert!(missing.record(2, b"a", never) && missing.record(2, b"b", never));
        assert!(!missing.record(2, b"c", |_, _| false));
        assert_eq!(names(&missing, 2), ["a", "b"], "and nothing had to go for it");
    }

    /// Between the listing and the notice the kernel may have asked once more: it caches the later answer.
    #[test]
    fn a_later_answer_outlives_the_notice_of_an_earlier_one() {
        let missing = Missing::new();
        assert!(missing.record(2, b"a", never) && missing.record(2, b"b", never));
        let listed = missing.names(2);
        assert!(missing.record(2, b"a", never));
        listed.iter().for_each(|one| missing.notified(2, one));
        assert_eq!(names(&missing, 2), ["a"]);
        missing.names(2).iter().for_each(|one| missing.notified(2, one));
        assert_eq!(missing.count(), 0);
    }

    use crate::server::{EntryOut, Server, Settings};
    use std::time::Duration;
    use uvfs_backends::hostile::HostileBackend;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::{Authority, Caller, NewKind, NewNode, Vfs, VfsConfig};

    fn server(authority: Authority, config: VfsConfig) -> Server {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let store = HostileBackend::new(memory).claiming(|can| can.authority = authority);
        let settings = Settings { passthrough: false, control_directory: true, fake_root: None };
        Server::new(Vfs::new(store, config).unwrap(), settings)
    }

    fn make(server: &Server, parent: u64, name: &[u8], kind: NewKind<'_>) -> u64 {
        let new = NewNode { kind, mode: 0o755, umask: 0 };
        match server.make(&Caller::root(), parent, name, &new) {
            Ok(EntryOut::Found { attrs, .. }) => attrs.node_id,
            other => panic!("{other:?}"),
        }
    }

    /// The lifetime of the answer that there is no such name.
    fn believed(server: &Server, parent: u64, name: &[u8]) -> Duration {
        match server.lookup(&Caller::root(), parent, name) {
            Ok(EntryOut::Missing(valid)) => valid,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_request_that_makes_a_name_takes_it_out_and_a_forgotten_directory_all_of_its() {
        let server = server(Authority::Sole, VfsConfig::default());
        let root = Caller::root();
        let missing = &server.nodes.missing;
        let directory = make(&server, 1, b"directory", NewKind::Directory);
        let file = make(&server, directory, b"file", NewKind::Regular);
        for name in ["mkdir", "symlink", "link", "create", "rename"] {
            assert!(believed(&server, directory, name.as_bytes()) > Duration::ZERO);
            assert_eq!(names(missing, directory), [name]);
            let name = name.as_bytes();
            let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
            match name {
                b"mkdir" => drop(make(&server, directory, name, NewKind::Directory)),
                b"symlink" => drop(make(&server, directory, name, NewKind::Symlink(b"x"))),
                b"link" => drop(server.link(&root, file, directory, name).unwrap()),
                b"rename" => {
                    let from = (directory, &b"create"[..]);
                    server.rename(&root, from, (directory, name), 0, &mut Vec::new()).unwrap();
                }
                _ => {
                    let (made, _) =
                        server.create(&root, directory, name, &new, libc::O_RDWR).unwrap();
                    assert!(matches!(made, EntryOut::Found { .. }));
                }
            }
            assert_eq!(missing.count(), 0, "{}", name.escape_ascii());
        }
        // A failed create makes no name.
        believed(&server, directory, b"no");
        assert!(server.link(&root, directory, directory, b"no").is_err());
        assert!(
            server.rename(&root, (1, b"nothing"), (directory, b"no"), 0, &mut Vec::new()).is_err()
        );
        // From the caches, too.
        assert!(server.try_lookup(0, directory, b"other").is_some());
        assert_eq!(names(missing, directory), ["no", "other"]);
        server.forget(directory, 1);
        assert_eq!(missing.count(), 0);
        // Names of the control directory are in no store.
        let Some(EntryOut::Found { attrs, .. }) = server.try_lookup(0, 1, b".uvfs") else {
            panic!("it is there");
        };
        assert!(believed(&server, attrs.node_id, b"no") > Duration::ZERO);
        assert_eq!(missing.count(), 0);
    }

    #[test]
    fn an_answer_that_is_not_to_be_believed_is_not_recorded() {
        let config = VfsConfig { negative_timeout: Duration::ZERO, ..VfsConfig::default() };
        let server = server(Authority::Shared, config);
        assert_eq!(believed(&server, 1, b"no"), Duration::ZERO);
        assert_eq!(server.nodes.missing.count(), 0);
    }

    /// If the record is full and the notifier lags behind, the kernel caches no new negative answer for now.
    #[test]
    fn an_answer_that_cannot_be_recorded_is_not_to_be_believed() {
        let server = server(Authority::Sole, VfsConfig::default());
        for at in 0..NAMES_MAX {
            assert!(server.nodes.missing.record(1, at.to_string().as_bytes(), never));
        }
        assert!(believed(&server, 1, b"one more") > Duration::ZERO);
        assert_eq!(server.nodes.missing.count(), NAMES_MAX as u64);
        assert!(!server.nodes.missing.names(1).iter().any(|one| &*one.name == b"0"));
        while server.notices.ask_again(1, b"x") {}
        assert_eq!(believed(&server, 1, b"two more"), Duration::ZERO);
        assert!(believed(&server, 1, b"one more") > Duration::ZERO, "it is in the record");
    }
}
