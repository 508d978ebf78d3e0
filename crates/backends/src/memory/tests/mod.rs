//! Tests of the memory backend as a whole.

mod files;
mod model_data;
mod model_names;
mod names;
mod races;
mod threads;
mod xattrs;

use super::*;
use std::cell::RefCell;
use uvfs_vfs::{
    AllocateMode, Attributes, Caller, Cookie, FileId, FileRef, Listing, Name, NewNode, OpenMode,
    RenameMode, SeekTarget, SetAttributes, XattrMode,
};
use uvfs_vfs::{FileKind, SetTime, Timestamp};

pub(super) const ROOT: InodeId = InodeId::ROOT;

/// Numbers that look random and repeat by their seed (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }
}

pub(super) fn backend(size_bytes: u64) -> MemoryBackend {
    MemoryBackend::new(MemoryConfig { size_bytes, ..Default::default() }).unwrap()
}

pub(super) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

pub(super) fn new(kind: NewKind<'_>) -> NewNode<'_> {
    NewNode { kind, mode: 0o755, umask: 0 }
}

thread_local!(static PAUSES: RefCell<Option<Random>> = const { RefCell::new(None) });

/// Makes this thread yield now and then, so that races happen on few cores, too.
pub(super) fn give_way(seed: u64) {
    PAUSES.set(Some(Random::new(seed)));
}

/// Gives way, if this thread is one that does.
pub(super) fn let_others_in() {
    PAUSES.with_borrow_mut(|random| {
        if random.as_mut().is_some_and(|random| random.below(4) == 0) {
            std::thread::yield_now();
        }
    });
}

/// Shorthands for root, without references to keep: each entry is forgotten at once.
impl MemoryBackend {
    pub(super) fn make(&self, parent: InodeId, text: &str, kind: NewKind<'_>) -> Result<InodeId> {
        self.kept(self.create(&Caller::root(), parent, name(text), &new(kind)))
    }
    pub(super) fn file(&self, text: &str) -> InodeId {
        self.make(ROOT, text, NewKind::Regular).unwrap()
    }
    pub(super) fn directory(&self, parent: InodeId, text: &str) -> InodeId {
        self.make(parent, text, NewKind::Directory).unwrap()
    }
    pub(super) fn find(&self, parent: InodeId, text: &str) -> Result<InodeId> {
        self.kept(self.names().lookup(&Caller::root(), parent, name(text)))
    }
    pub(super) fn add_link(&self, inode: InodeId, parent: InodeId, text: &str) -> Result<InodeId> {
        self.kept(self.link(&Caller::root(), inode, parent, name(text)))
    }
    pub(super) fn drop_name(&self, parent: InodeId, text: &str) -> Result<()> {
        self.names().unlink(&Caller::root(), parent, name(text))
    }
    pub(super) fn drop_directory(&self, parent: InodeId, text: &str) -> Result<()> {
        self.names().remove_directory(&Caller::root(), parent, name(text))
    }
    pub(super) fn move_name(
        &self,
        from: (InodeId, &str),
        to: (InodeId, &str),
        mode: RenameMode,
    ) -> Result<()> {
        self.names().rename(&Caller::root(), (from.0, name(from.1)), (to.0, name(to.1)), mode)
    }
    pub(super) fn stat(&self, inode: InodeId) -> Attributes {
        self.attributes(FileRef::unopened(inode)).unwrap()
    }
    pub(super) fn put(&self, inode: InodeId, offset: u64, data: &[u8]) -> Result<usize> {
        self.write(&Caller::root(), FileRef::unopened(inode), offset, data)
    }
    pub(super) fn take(&self, inode: InodeId, offset: u64, length: usize) -> Vec<u8> {
        let mut into = vec![0xee; length];
        let count = self.read(FileRef::unopened(inode), offset, &mut into).unwrap();
        into.truncate(count);
        into
    }
    pub(super) fn resize(&self, inode: InodeId, size: u64) -> Result<Attributes> {
        let set = SetAttributes { size: Some(size), ..Default::default() };
        self.set_attributes(&Caller::root(), FileRef::unopened(inode), &set)
    }
    pub(super) fn names_of(&self, directory: InodeId) -> Vec<(String, InodeId)> {
        let mut listing = Names { limit: usize::MAX, ..Names::default() };
        self.names().list(FileRef::unopened(directory), Cookie(0), &mut listing).unwrap();
        listing.seen.into_iter().map(|(name, inode, _)| (name, inode)).collect()
    }
    pub(super) fn used(&self) -> (u64, u64) {
        (self.budget.racy_bytes(), self.budget.racy_inodes())
    }

    fn kept(&self, entry: Result<Entry>) -> Result<InodeId> {
        let inode = entry?.inode;
        self.forget(inode, 1);
        Ok(inode)
    }
}

/// Takes names, without references, up to a limit.
#[derive(Default)]
pub(super) struct Names {
    pub(super) limit: usize,
    pub(super) seen: Vec<(String, InodeId, Cookie)>,
}

impl Listing for Names {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, _: FileKind) -> bool {
        if self.seen.len() == self.limit {
            return false;
        }
        let text = String::from_utf8(name.as_bytes().to_vec()).unwrap();
        self.seen.push((text, InodeId(number), next));
        true
    }
    fn add_entry(&mut self, _: Name<'_>, _: Cookie, _: Entry) -> bool {
        unreachable!("this listing wants no attributes")
    }
    fn wants_attributes(&self) -> bool {
        false
    }
}

#[test]
fn a_configuration_without_room_is_refused() {
    let refused = |config| matches!(MemoryBackend::new(config), Err(Error::Invalid(_)));
    assert!(refused(MemoryConfig { size_bytes: SIZE_BYTES_MIN - 1, ..Default::default() }));
    assert!(refused(MemoryConfig { inodes_max: 1, ..Default::default() }));
    assert!(!refused(MemoryConfig { size_bytes: SIZE_BYTES_MIN, ..Default::default() }));
}

/// xfstests generic/003 and 120 showed that a mount knew one rule only.
#[test]
fn reading_moves_access_times_as_configured() {
    let long_ago = Timestamp { seconds: 7, nanoseconds: 0 };
    let moved = |access_times, directory| {
        let memory =
            MemoryBackend::new(MemoryConfig { access_times, ..MemoryConfig::default() }).unwrap();
        let file = memory.file("f");
        memory.write(&Caller::root(), FileRef::unopened(file), 0, b"content").unwrap();
        let at = FileRef::unopened(if directory { ROOT } else { file });
        let old = SetAttributes { atime: Some(SetTime::At(long_ago)), ..SetAttributes::default() };
        memory.set_attributes(&Caller::root(), at, &old).unwrap();
        match directory {
            true => drop(memory.names_of(ROOT)),
            false => assert_eq!(memory.read(at, 0, &mut [0; 8]).unwrap(), 7),
        }
        memory.attributes(at).unwrap().atime != long_ago
    };
    for (rule, file, directory) in [
        (AccessTimes::Relatime, true, true),
        (AccessTimes::Nodiratime, true, false),
        (AccessTimes::Noatime, false, false),
    ] {
        assert_eq!((moved(rule, false), moved(rule, true)), (file, directory), "{rule:?}");
    }
}

#[test]
fn the_root_is_as_configured_and_totals_follow_the_budget() {
    let config = MemoryConfig {
        size_bytes: 1 << 20,
        inodes_max: 10,
        root_mode: 0o1777,
        root_uid: 5,
        root_gid: 6,
        ..MemoryConfig::default()
    };
    let memory = MemoryBackend::new(config).unwrap();
    let root = memory.root().unwrap();
    let attributes = root.attributes;
    assert_eq!(root.inode, ROOT);
    assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o1777, 5, 6));
    assert_eq!((attributes.links, attributes.size), (2, 40));
    let file = memory.file("a");
    let before = memory.totals().unwrap();
    assert_eq!((before.blocks, before.files, before.files_free), (256, 10, 8));
    memory.put(file, 0, &[1; 40960]).unwrap();
    let after = memory.totals().unwrap();
    assert!((10..=11).contains(&(before.blocks_free - after.blocks_free)));
    assert!(memory.counters().contains(&("memory_inodes", 2)));
}
