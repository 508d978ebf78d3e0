//! Floor: conformance of a cost. A hit takes no lock, no store, no read-modify-write and no allocation: counted, not
//! claimed.
//!
//! [`uvfs_concurrent::primitive::record`] counts locks, stores and read-modify-writes of the product's own primitives,
//! the allocator of this binary counts allocations, both on the calling thread. Not counted: work inside the standard
//! library (a reference count of `Arc`), and the kernel's in `clock_gettime`. Only builds with debug assertions record.
//!
//! Deterministic.
#![cfg(debug_assertions)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Arc, Barrier};
use std::time::Duration;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::hostile::{Call, Plan};
use uvfs_concurrent::primitive::record::tally;
use uvfs_tests::{hostile, list_nodes, root, vfs_over};
use uvfs_vfs::{
    Attributes, Authority, Backend, Caller, Capabilities, Cookie, Data, Directory, Entry, Error,
    FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, NewKind, NewNode, OpenOptions,
    PagePolicy, RenameMode, Result, SetAttributes, Statistics, Vfs, VfsConfig,
};

/// The system's allocator, counting for each thread how often it was asked.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes unchanged to the system's allocator; counting touches a thread-local word that needs no
// memory and no destructor.
unsafe impl GlobalAlloc for Counting {
    // SAFETY: as the trait demands of the caller.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises about `layout`.
        unsafe { System.alloc(layout) }
    }

    // SAFETY: as the trait demands of the caller.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises: it came from here, which is from `System`.
        unsafe { System.dealloc(memory, layout) }
    }

    // SAFETY: as the trait demands of the caller.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises, passed on unchanged.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The costs of a piece of work on this thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    locks: u64,
    stores: u64,
    rmws: u64,
    allocations: u64,
}

const NOTHING: Cost = Cost { locks: 0, stores: 0, rmws: 0, allocations: 0 };

fn cost<R>(work: impl FnOnce() -> R) -> (R, Cost) {
    let before = ALLOCATIONS.get();
    let (result, tally) = tally(work);
    let allocations = ALLOCATIONS.get() - before;
    let (locks, stores, rmws) = (tally.locks, tally.stores, tally.rmws);
    (result, Cost { locks, stores, rmws, allocations })
}

/// Enough for every mark that saturates, and for one-time work of a thread.
const WARM_UPS: usize = 16;
const WALKS: u64 = 100;

/// The stores and modifications of a warm open and close to the file's own words.
const OPEN_STORES: u64 = 0;
const OPEN_RMWS: u64 = 5;

const FILE: &str = "a/b/c/d/e/file";
const MISSING: &str = "a/b/c/d/e/none";

/// Six components: directories that others may search, and one that only a group may.
fn plant(top: &Directory) {
    let mut path = String::new();
    for name in ["a", "b", "c", "d", "e"] {
        path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        top.create_directory(&path, 0o755).unwrap();
    }
    top.write_file(FILE, "content").unwrap();
    let group = SetAttributes { gid: Some(7), mode: Some(0o750), ..Default::default() };
    top.set_attributes("a/b/c", &group).unwrap();
}

/// User 0, with all rights; the member of a group that the mode bits permit; and the same with that group as the first
/// one.
fn callers() -> [Caller; 3] {
    [Caller::root(), Caller::new(1000, 1000, &[5, 7]), Caller::new(1001, 7, &[])]
}

fn hour() -> VfsConfig {
    let hour = Duration::from_secs(3600);
    VfsConfig {
        attr_timeout: hour,
        entry_timeout: hour,
        negative_timeout: hour,
        ..VfsConfig::default()
    }
}

/// Asserts that `stat` of `path`, after enough warm-up, costs nothing, and that the caches counted it as a fast walk.
fn assert_free(vfs: &Vfs, directory: &Directory, path: &str, found: bool) {
    let ask = || match directory.stat(path) {
        Ok(_) => assert!(found, "{path} is there"),
        Err(Error::NotFound) => assert!(!found, "{path} is not there"),
        Err(error) => panic!("{path}: {error}"),
    };
    (0..WARM_UPS).for_each(|_| ask());
    let before = vfs.statistics();
    let ((), cost) = cost(|| (0..WALKS).for_each(|_| ask()));
    let after = vfs.statistics();
    assert_eq!(cost, NOTHING, "{path} on {}", before.store);
    assert_eq!(walked(&after), walked(&before) + WALKS, "{path}");
    assert_eq!(after.walks.slow, before.walks.slow, "{path}");
}

/// Walks that the caches knew all of, by components or as a whole path.
fn walked(statistics: &Statistics) -> u64 {
    statistics.walks.fast + statistics.walks.whole
}

/// All operations that must cost nothing, for all callers.
fn assert_all_free(vfs: &Arc<Vfs>) {
    let top = root(vfs);
    plant(&top);
    // A directory that was made here is known to be complete; forgotten and found again, it is not.
    vfs.forget_unused();
    for caller in callers() {
        let directory = top.clone().with_caller(caller);
        assert_free(vfs, &directory, FILE, true);
        assert_free(vfs, &directory, "/a/./b//c/d/e/file", true);
        let negatives = vfs.statistics().negatives;
        assert_free(vfs, &directory, MISSING, false);
        // The first caller's question is remembered for the others.
        assert_eq!(vfs.statistics().negatives, negatives.max(1), "a name known to be missing");
    }
    let listed = top.open_directory("a/b/c/d/e").unwrap();
    assert_eq!(list_nodes(vfs, listed.node()).len(), 1);
    for (at, caller) in callers().into_iter().enumerate() {
        let directory = top.clone().with_caller(caller);
        let negatives = vfs.statistics().negatives;
        assert_free(vfs, &directory, &format!("{MISSING}-{at}"), false);
        assert_eq!(vfs.statistics().negatives, negatives, "known without a note");
    }
}

#[test]
fn warm_walks_in_memory_cost_nothing() {
    assert_all_free(&vfs_over(&hostile(), VfsConfig::default()));
}

#[test]
fn warm_walks_of_a_shared_store_cost_nothing_while_they_are_believed() {
    let shared = hostile().claiming(|can| can.authority = Authority::Shared);
    assert_all_free(&vfs_over(&shared, hour()));
}

#[test]
fn warm_walks_of_a_host_directory_cost_nothing_while_they_are_believed() {
    let directory = tempfile::tempdir().unwrap();
    let backend = DirectoryBackend::open(directory.path(), DirectoryConfig::default()).unwrap();
    let vfs = Vfs::new(backend, hour()).unwrap();
    // Only user 0 may change a directory's group to another one.
    if rustix::process::geteuid().is_root() {
        return assert_all_free(&vfs);
    }
    let top = root(&vfs);
    top.create_directory("a", 0o755).unwrap();
    top.write_file("a/file", "content").unwrap();
    vfs.forget_unused();
    assert_free(&vfs, &top, "a/file", true);
    assert_free(&vfs, &top, "a/none", false);
}

#[test]
fn all_threads_at_one_file_cost_nothing() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    plant(&root(&vfs));
    root(&vfs).stat(FILE).unwrap();
    let threads = 4;
    let (warm, begin) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let before = std::thread::scope(|scope| {
        for thread in 0..threads {
            let (vfs, warm, begin) = (&vfs, &warm, &begin);
            scope.spawn(move || {
                let caller = callers()[thread % 3].clone();
                let directory = root(vfs).with_caller(caller);
                let ask = || assert_eq!(directory.stat(FILE).unwrap().size, 7);
                (0..WARM_UPS).for_each(|_| ask());
                warm.wait();
                begin.wait();
                let ((), cost) = cost(|| (0..10 * WALKS).for_each(|_| ask()));
                assert_eq!(cost, NOTHING, "thread {thread}");
            });
        }
        warm.wait();
        let before = vfs.statistics();
        begin.wait();
        before
    });
    let after = vfs.statistics();
    assert_eq!(walked(&after), walked(&before) + threads as u64 * 10 * WALKS);
    assert_eq!(after.walks.slow, before.walks.slow);
}

/// Different callers at one file, in turn: cached rights of one do not evict those of others.
#[test]
fn callers_in_turn_cost_nothing() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    plant(&root(&vfs));
    let directories = callers().map(|caller| root(&vfs).with_caller(caller));
    let ask = || directories.iter().for_each(|one| assert_eq!(one.stat(FILE).unwrap().size, 7));
    (0..WARM_UPS).for_each(|_| ask());
    let ((), cost) = cost(|| (0..WALKS).for_each(|_| ask()));
    assert_eq!(cost, NOTHING);
}

/// Many files in turn, at each depth: a working set of any size that fits the caches is walked at no cost.
#[test]
fn many_files_in_turn_cost_nothing() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    let top = root(&vfs);
    let mut directory = String::new();
    for depth in 1..=4 {
        let paths: Vec<_> = (0..6000).map(|at| format!("{directory}file-{at}")).collect();
        paths.iter().for_each(|path| top.write_file(path, "").unwrap());
        let ask = || paths.iter().for_each(|path| assert_eq!(top.stat(path).unwrap().size, 0));
        (0..WARM_UPS).for_each(|_| ask());
        let ((), cost) = cost(ask);
        assert_eq!(cost, NOTHING, "6000 files, {depth} components each");
        directory += "directory/";
        top.create_directory(&directory, 0o755).unwrap();
    }
}

/// The measure itself: an operation with a cost is counted.
#[test]
fn what_costs_something_is_seen() {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let top = root(&vfs);
    plant(&top);
    vfs.forget_unused();
    hostile.follow(Plan::new());
    let (_, cold) = cost(|| top.stat(FILE).unwrap());
    assert!(hostile.made(Call::Lookup) > 0);
    assert!(cold.locks > 0 && cold.stores > 0 && cold.rmws > 0 && cold.allocations > 0, "{cold:?}");
    let ((), create) = cost(|| top.write_file("new", "").unwrap());
    assert!(create.locks > 0 && create.stores > 0 && create.rmws > 0, "{create:?}");
    let (_, held) = cost(|| top.open_directory("a/b/c").unwrap());
    assert!(held.rmws > 0, "a hold is counted: {held:?}");
    // The second use marks the name, with one store; no lock is taken.
    let (_, second) = cost(|| top.stat("new").unwrap());
    assert!(second.stores > 0 && second.locks == 0, "{second:?}");
}

/// A warm open and close takes no lock, and changes only the file's own words: holds on the inode, and whether it waits
/// for its end. Shared data of all users of a file system (itself, the caller, the numbers of lock owners) is not
/// counted, or in the thread's own words. Bug: it was counted in eight words that all threads write.
#[test]
fn a_warm_open_and_close_writes_the_files_own_words_alone() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    let top = root(&vfs);
    plant(&top);
    let open = || drop(top.open(FILE, OpenOptions::read()).unwrap());
    (0..WARM_UPS).for_each(|_| open());
    let holds = vfs.statistics().inodes_active;
    let ((), cost) = cost(open);
    assert_eq!((cost.locks, cost.allocations), (0, 0), "{cost:?}");
    // The walk's hold and the open file's, both releases, and the reference that the last one takes: one word.
    assert_eq!((cost.stores, cost.rmws), (OPEN_STORES, OPEN_RMWS), "{cost:?}");
    assert_eq!(vfs.statistics().inodes_active, holds);
}

/// A cached read changes nothing at all.
#[test]
fn a_cached_read_costs_nothing() {
    let config = VfsConfig { pages: PagePolicy::WriteThrough, ..VfsConfig::default() };
    let vfs = vfs_over(&hostile(), config);
    let top = root(&vfs);
    plant(&top);
    top.write_file(FILE, vec![7; 3 * 4096]).unwrap();
    let file = top.open(FILE, OpenOptions::read()).unwrap();
    let mut page = [0; 4096];
    let mut read = |at: u64| assert_eq!(file.read_at(at % 3 * 4096, &mut page).unwrap(), 4096);
    (0..3 * WARM_UPS as u64).for_each(&mut read);
    let ((), cost) = cost(|| (0..WALKS).for_each(&mut read));
    assert_eq!(cost, NOTHING);
    assert_eq!(page, [7; 4096]);
}

/// A store that takes no lock: files, directories and missing names, by the first letter of the name.
struct Bare;

impl Backend for Bare {
    fn capabilities(&self) -> Capabilities {
        Capabilities::read_only("bare")
    }
    fn root(&self) -> Result<Entry> {
        Ok(bare_entry(1, FileKind::Directory))
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

fn bare_entry(number: u64, kind: FileKind) -> Entry {
    Entry { inode: InodeId(number), attributes: Attributes::new(number, kind, 0o755) }
}

impl Names for Bare {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        let number = u64::from(name.as_bytes()[1]);
        match name.as_bytes()[0] {
            b'f' => Ok(bare_entry(number, FileKind::Regular)),
            b'd' => Ok(bare_entry(number << 8, FileKind::Directory)),
            _ => Err(Error::NotFound),
        }
    }
    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Inodes for Bare {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        Ok(Attributes::new(file.inode.0, FileKind::Directory, 0o755))
    }
    fn forget(&self, _: InodeId, _: u64) {}
}

impl Data for Bare {
    fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
}

/// A lookup that misses inserts the answer in one step: the object, its place and its name under one hold of the
/// directory's lock. Bug: it took that lock three times, and read the table of names four times. Counted: the flight's
/// shard to join and to leave, the inode table's shard, the directory's entries and the bucket of the name; a directory
/// has its parent's lock besides. Looks: before the flight, in it, and to insert the name.
#[test]
fn a_cold_lookup_takes_each_lock_once() {
    let vfs = Vfs::new(Bare, VfsConfig::default()).unwrap();
    let lookup = |name: &str| {
        let name = Name::new(name.as_bytes()).unwrap();
        tally(|| drop(vfs.lookup(&Caller::root(), vfs.root(), name).unwrap())).1
    };
    for warm in ["f0", "d0", "n0"] {
        lookup(warm);
    }
    for (at, (kind, locks)) in [("f", 5), ("d", 6), ("n", 4)].into_iter().enumerate() {
        let cold = lookup(&format!("{kind}{}", at + 1));
        assert_eq!((cold.locks, cold.probes), (locks, 3), "{kind}");
    }
}

/// Hashes of names, looks into the table of names, and allocations.
type Steps = (u64, u64, u64);

fn steps(work: impl FnOnce()) -> Steps {
    let before = ALLOCATIONS.get();
    let ((), tally) = tally(work);
    (tally.hashes, tally.probes, ALLOCATIONS.get() - before)
}

/// The key of a name, with its hash, is made once and passed on from the first look to the insertion, by a walk and by a
/// frontend. Bug: each step hashed the name again, the slow walk and the frontend asked the cache again for what it had
/// just not had, and the name was copied for the walk, twice for the flight, and for the cache.
///
/// Looks: the one that misses, one in the flight (threads that miss in turn would each ask the store otherwise), and the
/// insertion. Allocations: a walk's list of components. The table takes an entry, with the only copy of the name, from a pool.
#[test]
fn a_name_is_hashed_once_from_the_first_look_to_the_insertion() {
    let vfs = Vfs::new(Bare, VfsConfig::default()).unwrap();
    let (top, user) = (root(&vfs), Caller::root());
    let least = |work: &dyn Fn(&[u8])| {
        let named = |at: u8| [b'n', at];
        (b'0'..b'z').map(|at| steps(|| work(&named(at)))).min().unwrap()
    };
    let stat = |name: &[u8]| assert!(matches!(top.stat(name), Err(Error::NotFound)));
    assert_eq!(least(&stat), (1, 3, 1), "a walk");
    assert_eq!(least(&stat), (1, 1, 0), "a warm walk");
    vfs.forget_unused();
    let first =
        |name: &[u8]| assert!(vfs.try_lookup(vfs.root(), Name::new(name).unwrap()).is_none());
    assert_eq!(least(&first), (1, 1, 0), "a frontend's first look");
    let lookup = |name: &[u8]| {
        drop(vfs.lookup_missed(&user, vfs.root(), Name::new(name).unwrap()).unwrap());
    };
    assert_eq!(least(&lookup), (1, 2, 0), "a frontend's question after it");
}

/// Changes take few looks, too. A creation looks to take the name out of the cache, and to insert it. A removal and a
/// move find the object first.
#[test]
fn a_change_hashes_each_of_its_names_once() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    let (user, parent) = (Caller::root(), vfs.root());
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
    let hashes = |work: &dyn Fn()| {
        let (hashes, probes, _) = steps(work);
        (hashes, probes)
    };
    let create = hashes(&|| drop(vfs.create(&user, parent, name("a"), &new).unwrap()));
    assert_eq!(create, (1, 2), "create");
    let rename = hashes(&|| {
        let (from, to) = ((parent, name("a")), (parent, name("b")));
        vfs.rename(&user, from, to, RenameMode::Replace).unwrap();
    });
    assert_eq!(rename, (2, 7), "rename");
    let unlink = hashes(&|| vfs.unlink(&user, parent, name("b")).unwrap());
    assert_eq!(unlink, (1, 3), "unlink");
}

/// Blocks and runs in rows (`set_associative`): hits, misses and evictions use memory allocated at the start; only a
/// full row allocates on the heap.
#[test]
fn rows_of_blocks_and_runs_allocate_nothing_after_the_start() {
    use uvfs_concurrent::lock::LockClass;
    use uvfs_containers::set_associative::buffers::{BufferCache, BufferClasses};
    use uvfs_containers::set_associative::translations::{Run, TranslationCache};
    static ROWS: LockClass = LockClass::new(1, "zero-rows", "test");
    static FREE: LockClass = LockClass::new(2, "zero-free", "test");
    static WAITS: LockClass = LockClass::new(3, "zero-waits", "test");
    let classes = BufferClasses { rows: &ROWS, free: &FREE, waits: &WAITS };
    let blocks = BufferCache::new(classes, 1 << 20, 4096).unwrap();
    let runs = TranslationCache::new(&ROWS, 4096);
    let use_all = |first: u64| {
        for block in first..first + 1000 {
            assert!(blocks.get(block, |_| Ok::<(), ()>(())).is_ok());
            assert!(runs.get(7, block as u32 * 300).is_none());
            let run = Run { first: block as u32 * 300, length: 1, at: None };
            runs.insert(7, run.first, run);
        }
    };
    use_all(0);
    let ((), cost) = cost(|| use_all(5000));
    assert_eq!(cost.allocations, 0);
    assert!(blocks.counts().evictions > 1000 && runs.counts().evictions > 1000);
    assert_eq!(blocks.counts().overflows, 0);
}
