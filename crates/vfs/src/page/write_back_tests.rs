//! Write-back between two steps at which no store can be stopped: the test takes the other thread's step by hand, with
//! the page or the log locked.

use super::PAGE;
use super::file::FilePages;
use super::write::{STREAM_PAGES, WriteOffset};
use super::write_back::WritingRun;
use crate::inode::Node;
use crate::vfs::Core;
use crate::{
    Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileId, FileKind,
    FileRef, InodeId, Inodes, Listing, Name, Names, PagePolicy, Result, SetAttributes, SyncMode,
    Vfs, VfsConfig,
};
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_containers::radix::Tag;

/// One file, of which only the length is kept.
#[derive(Default)]
pub(super) struct Store {
    end: AtomicU64,
    /// Writes that failed.
    failed: AtomicU64,
    fails: AtomicBool,
    /// Large writes whose bytes do not begin at a page of memory.
    unaligned: AtomicU64,
    /// Blocks are chosen at write-back.
    writes_back: bool,
    /// Calls to make everything stable.
    syncs: AtomicU64,
}

const FILE: InodeId = InodeId(7);
pub(super) const UNOPENED: FileRef = FileRef { inode: FILE, file: FileId::NONE };

impl Store {
    fn file(&self) -> Attributes {
        // ORDERING: Relaxed, here and below; the test waits for the values that it checks.
        let size = self.end.load(Relaxed);
        Attributes { size, ..Attributes::new(7, FileKind::Regular, 0o644) }
    }
}

impl Backend for Arc<Store> {
    fn capabilities(&self) -> Capabilities {
        Capabilities { writes_back: self.writes_back, ..Capabilities::read_write("write back") }
    }
    fn root(&self) -> Result<Entry> {
        let attributes = Attributes::new(1, FileKind::Directory, 0o755);
        Ok(Entry { inode: InodeId::ROOT, attributes })
    }
    fn sync_fs(&self) -> Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        Ok(())
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

impl Names for Arc<Store> {
    fn lookup(&self, _: &Caller, _: InodeId, _: Name<'_>) -> Result<Entry> {
        Ok(Entry { inode: FILE, attributes: self.file() })
    }
    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Inodes for Arc<Store> {
    fn attributes(&self, _: FileRef) -> Result<Attributes> {
        Ok(self.file())
    }
    fn set_attributes(&self, _: &Caller, _: FileRef, _: &SetAttributes) -> Result<Attributes> {
        Ok(self.file())
    }
}

impl Data for Arc<Store> {
    fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
    fn write(&self, _: &Caller, _: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        if self.fails.load(Relaxed) {
            self.failed.fetch_add(1, Relaxed);
            return Err(Error::Io(std::io::Error::from_raw_os_error(libc::EIO)));
        }
        let is_large = data.len() as u64 > PAGE;
        let is_unaligned = is_large && !(data.as_ptr() as usize).is_multiple_of(PAGE as usize);
        self.unaligned.fetch_add(u64::from(is_unaligned), Relaxed);
        self.end.fetch_max(offset + data.len() as u64, Relaxed);
        Ok(data.len())
    }
}

/// A file with 100 bytes that the store does not have and that no thread writes back unasked.
pub(super) fn dirty() -> (Arc<Store>, Arc<Vfs>, Node) {
    dirty_in(Store::default())
}

fn dirty_in(store: Store) -> (Arc<Store>, Arc<Vfs>, Node) {
    let store = Arc::new(store);
    let config = VfsConfig {
        pages: PagePolicy::WriteBack,
        write_back_delay: Duration::from_secs(3600),
        ..VfsConfig::default()
    };
    let vfs = Vfs::new(store.clone(), config).unwrap();
    let name = Name::new(b"f").unwrap();
    let found = vfs.lookup(&Caller::root(), vfs.root(), name).unwrap().found().unwrap();
    vfs.write_cached(&Caller::root(), &found.node, UNOPENED, WriteOffset::At(0), &[1; 100])
        .unwrap();
    assert_eq!(store.end.load(Relaxed), 0);
    (store, vfs, found.node)
}

/// Writes one run back on another thread, and takes `step` meanwhile.
fn beside_a_run(core: &Core, pages: &FilePages, step: impl FnOnce()) -> Result<u64> {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| core.write_next_run(pages));
        step();
        run.join().unwrap()
    })
}

/// Waits until `done`, but no longer than another thread needs on an idle machine. A test that waits for a forbidden
/// event must end; on a busy machine it may miss the event.
fn wait_a_little(mut done: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        done()
    })
}

/// The end moved while the run waited for its first page. The run must include the bytes that this page holds. When the
/// size was read before the page was locked, it cut them off, and the page counted as written.
#[test]
fn a_run_knows_the_size_that_goes_with_its_pages() {
    let (store, vfs, node) = dirty();
    let pages = vfs.core.pages_of(&node);
    let mut locked = pages.lock(0).expect("it is dirty");
    let wrote = beside_a_run(&vfs.core, pages, || {
        wait_a_little(|| false);
        locked.write(100, &[2; 100]);
        pages.grow_to(200);
        drop(locked.unlock());
    });
    assert_eq!(wrote.unwrap(), 1);
    assert_eq!(store.end.load(Relaxed), 200);
}

/// W4: a page is `WRITING` until its error can be read. In the other order, an `fsync` that waits for the page finds it
/// written, and no error.
#[test]
fn an_error_is_noted_before_its_pages_can_be_met_as_written() {
    let (store, vfs, node) = dirty();
    let pages = vfs.core.pages_of(&node);
    store.fails.store(true, Relaxed);
    let wrote = std::thread::scope(|scope| {
        let paused = pages.errors.pause();
        let run = scope.spawn(|| vfs.core.write_next_run(pages));
        while store.failed.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        let is_writing = || pages.find(0).is_some_and(|page| page.is_writing());
        let met = wait_a_little(|| !is_writing());
        drop(paused);
        assert!(!met, "its error was not noted yet");
        run.join().unwrap()
    });
    assert!(wrote.is_err() && pages.errors.count() == 1);
    assert!(pages.find(0).is_some_and(|page| page.is_dirty() && !page.is_writing()));
    store.fails.store(false, Relaxed);
    vfs.write_back_all().unwrap();
    assert_eq!(store.end.load(Relaxed), 100);
}

/// A write came after the last run, and before the file left the queue. The writer found the file queued, so the file
/// must stay.
#[test]
fn a_file_that_is_dirty_again_stays_in_the_queue() {
    let (store, vfs, node) = dirty();
    let (pages, cache) = (vfs.core.pages_of(&node), &vfs.core.pages);
    let is_queued = || cache.dirty_files.all().iter().any(|queued| Arc::ptr_eq(queued, pages));
    assert_eq!(vfs.core.write_next_run(pages).unwrap(), 1);
    vfs.core.write_times(pages).unwrap();
    assert!(!pages.has_unwritten() && is_queued());
    vfs.write_cached(&Caller::root(), &node, UNOPENED, WriteOffset::At(0), &[2; 10]).unwrap();
    assert!(!cache.dirty_files.remove_written_back(pages) && is_queued());
    vfs.write_back_all().unwrap();
    assert!(cache.dirty_files.remove_written_back(pages) && !is_queued());
    assert_eq!(store.end.load(Relaxed), 100);
}

/// Page `index`, on its way to the store.
fn begin_run<'a>(core: &Core, pages: &'a FilePages, index: u64) -> WritingRun<'a> {
    let locks = core.lock_run(pages, index, Tag::Dirty).expect("it is dirty");
    assert_eq!(locks.len(), 1);
    WritingRun::begin(pages, index..index + 1, locks, &mut [0; PAGE as usize])
}

/// W2: a page that is dirty again while it is being written must wait, also as a neighbour in a run. Once, a run
/// included it: two writes of the page ran at once, and the older bytes could arrive last.
#[test]
fn a_run_leaves_a_neighbour_alone_that_is_being_written() {
    let (_store, vfs, node) = dirty();
    let (core, pages) = (&vfs.core, vfs.core.pages_of(&node));
    let write = |page: u64| {
        let place = WriteOffset::At(page * PAGE);
        vfs.write_cached(&Caller::root(), &node, UNOPENED, place, &[3; 10]).unwrap();
    };
    assert_eq!(core.write_next_run(pages).unwrap(), 1);
    write(1);
    let run = begin_run(core, pages, 1);
    write(0);
    write(1);
    assert!(pages.find(1).is_some_and(|page| page.is_dirty() && page.is_writing()));
    assert_eq!(core.lock_run(pages, 0, Tag::Dirty).map(|locks| locks.len()), Some(1));
    assert_eq!(core.end_run(run, Ok(())).unwrap(), 1);
    assert_eq!(core.lock_run(pages, 0, Tag::Dirty).map(|locks| locks.len()), Some(2));
    vfs.write_back_all().unwrap();
}

/// An `fsync` waits for a run of another thread, which fails. Its pages are dirty then, but were not when the `fsync`
/// marked pages. The `fsync` must try them once more. Without that they waited for the next `fsync`, whose error had
/// already been reported.
#[test]
fn what_another_thread_fails_to_write_is_tried_by_the_fsync_that_waits_for_it() {
    let (store, vfs, node) = dirty();
    let (core, pages) = (&vfs.core, vfs.core.pages_of(&node));
    let run = begin_run(core, pages, 0);
    let synced = std::thread::scope(|scope| {
        let fsync = scope.spawn(|| core.write_out(pages));
        wait_a_little(|| false);
        assert!(core.end_run(run, Err(Error::NoSpace)).is_err());
        fsync.join().unwrap()
    });
    assert!(synced.is_err(), "it may be another fsync's error, too");
    assert_eq!(store.end.load(Relaxed), 100);
    assert!(!pages.is_unwritten());
}

/// All of a stream was written back by the `fsync` at its end: until then the disk was idle, and afterwards the program
/// waited for it. Write-back begins when the file has many unwritten pages. Until then nothing is written, so a file
/// that is removed soon still costs the disk nothing.
#[test]
fn a_stream_is_written_back_while_it_is_written() {
    let (store, vfs, node) = dirty_in(Store { writes_back: true, ..Store::default() });
    let end = STREAM_PAGES * PAGE;
    let write = |at: u64, bytes: u64| {
        let bytes = vec![1; bytes as usize];
        vfs.write_cached(&Caller::root(), &node, UNOPENED, WriteOffset::At(at), &bytes).unwrap();
    };
    let piece = 1 << 20;
    (0..end / piece - 1).for_each(|at| write(at * piece, piece));
    write(end - piece, piece - PAGE);
    assert_eq!((store.end.load(Relaxed), vfs.core.pages.dirty()), (0, STREAM_PAGES - 1));
    write(end - PAGE, PAGE);
    let pages = vfs.core.pages_of(&node);
    while pages.is_unwritten() {
        std::thread::yield_now();
    }
    assert_eq!(store.end.load(Relaxed), end);
    assert_eq!(store.unaligned.load(Relaxed), 0, "the store need not copy it");
}

/// A store of the library saved its table in `sync_fs`, and had no `sync` of one file. `fsync` succeeded and saved nothing,
/// because the default of `sync` did nothing.
#[test]
fn an_fsync_of_one_file_is_never_without_effect() {
    let (store, vfs, node) = dirty();
    vfs.sync(&node, UNOPENED, SyncMode::Data).unwrap();
    assert_eq!((store.end.load(Relaxed), store.syncs.load(Relaxed)), (100, 1), "with pages");
    vfs.sync(vfs.root(), FileRef::unopened(InodeId::ROOT), SyncMode::All).unwrap();
    assert_eq!(store.syncs.load(Relaxed), 2, "of a directory");
}

/// In a small cache, pages are written long before they are due, to make room. Their files kept their inodes until then:
/// 14,000 new files of an image took 15 MiB of a budget of 16.
#[test]
fn a_file_whose_pages_were_written_for_room_keeps_no_inode() {
    let (store, vfs, node) = dirty_in(Store { writes_back: true, ..Store::default() });
    let pages = vfs.core.pages_of(&node);
    assert!(pages.has_unwritten());
    assert_eq!(vfs.core.write_any().unwrap(), 1);
    assert!(!pages.has_unwritten() && vfs.core.pages.dirty_files.all().is_empty());
    assert_eq!(store.end.load(Relaxed), 100);
}
