//! A store that computes its directories, counts its requests, and can be made slow.
//!
//! # Boundary
//! The [`Backend`] below uvfs where a disk is *simulated*: read-only, by one file system alone, keeps nothing. Below
//! the root is a chain of directories for each [`Branch`], and its files in the last one.
//!
//! # Why
//! A fixed wait for each lookup that misses is the cost of a disk without its noise, and the number of those lookups is
//! exact. The wait spins on the clock, because a sleep of some microseconds lasts several times as long. Weakness: real
//! disks answer neighbours together, and several at once.

use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileKind, FileRef,
    InodeId, Inodes, Listing, Name, Names, PageCaching, Result, Timestamp, Waits,
};

const ROOT: InodeId = InodeId::ROOT;
/// Inodes of a branch lie this many apart.
const BRANCH_BITS: u32 = 40;
/// Inodes of a branch before this one are its directories.
const DIRECTORIES: u64 = 64;
/// A directory of a chain that is not the first.
const INNER: &[u8] = b"d";
const PAGE: u64 = 4096;
/// Longer waits are slept.
const SLEPT: Duration = Duration::from_micros(300);

/// A directory below the root.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) name: &'static str,
    /// Directories from the root to the files, at least 1.
    pub(super) depth: u64,
    pub(super) files: u64,
    /// Bytes of each file.
    pub(super) file_bytes: u64,
}

impl Branch {
    /// A branch of `files` empty files.
    pub(super) fn of(name: &'static str, files: u64) -> Self {
        Self { name, depth: 1, files, file_bytes: 0 }
    }

    /// The path of its files' directory from the root.
    pub(super) fn path(&self) -> String {
        format!("{}{}", self.name, "/d".repeat(self.depth as usize - 1))
    }
}

/// The name of a file. It lives only until the next one is asked for.
#[derive(Debug)]
pub(super) struct FilePath {
    text: String,
    begin: usize,
}

impl FilePath {
    /// Files of `directory`, a path.
    pub(super) fn below(directory: &str) -> Self {
        let text = format!("{directory}/");
        Self { begin: text.len(), text }
    }

    /// The path of the file `number`.
    pub(super) fn of(&mut self, number: u64) -> &str {
        use std::fmt::Write;
        self.text.truncate(self.begin);
        // Writing to a `String` cannot fail.
        let _ = write!(self.text, "f{number:07}");
        &self.text
    }
}

/// The store's counts of requests, and its slowness.
#[derive(Debug, Default)]
pub(super) struct Probe {
    lookups: Counter,
    pages: Counter,
    lookup_wait_ns: AtomicU64,
    page_wait_ns: AtomicU64,
}

impl Probe {
    /// Lookups so far.
    pub(super) fn lookups(&self) -> u64 {
        self.lookups.total()
    }

    /// Pages read so far.
    pub(super) fn pages(&self) -> u64 {
        self.pages.total()
    }

    /// From now on a lookup, and each page that is read, wait so long.
    pub(super) fn be_slow(&self, lookup_wait_ns: u64, page_wait_ns: u64) {
        // ORDERING: Relaxed, both; a length of time, nothing is reached through it.
        self.lookup_wait_ns.store(lookup_wait_ns, Relaxed);
        self.page_wait_ns.store(page_wait_ns, Relaxed);
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct ComputedStore {
    branches: Vec<Branch>,
    caching: PageCaching,
    probe: Arc<Probe>,
    time: Timestamp,
}

/// An object of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// A branch's directory, counted from 0.
    Directory(usize, u64),
    File(usize, u64),
}

impl ComputedStore {
    /// A store whose file data is cached by `caching`.
    pub(super) fn new(branches: Vec<Branch>, caching: PageCaching) -> Self {
        Self { branches, caching, probe: Arc::default(), time: Timestamp::now() }
    }

    /// The store's counts and switches.
    pub(super) fn probe(&self) -> Arc<Probe> {
        self.probe.clone()
    }

    fn place(&self, inode: InodeId) -> Result<Place> {
        if inode == ROOT {
            return Ok(Place::Root);
        }
        let branch = (inode.0 >> BRANCH_BITS) as usize;
        let branch = branch.checked_sub(1).ok_or(Error::Stale)?;
        let of = self.branches.get(branch).ok_or(Error::Stale)?;
        match inode.0 & ((1 << BRANCH_BITS) - 1) {
            at if at < of.depth => Ok(Place::Directory(branch, at)),
            at if (DIRECTORIES..DIRECTORIES + of.files).contains(&at) => {
                Ok(Place::File(branch, at - DIRECTORIES))
            }
            _ => Err(Error::Stale),
        }
    }

    fn entry(&self, place: Place) -> Entry {
        let number = |branch: usize, at: u64| ((branch as u64 + 1) << BRANCH_BITS) + at;
        let (inode, kind, size) = match place {
            Place::Root => (ROOT.0, FileKind::Directory, 0),
            Place::Directory(branch, at) => (number(branch, at), FileKind::Directory, 0),
            Place::File(branch, at) => {
                let size = self.branches[branch].file_bytes;
                (number(branch, DIRECTORIES + at), FileKind::Regular, size)
            }
        };
        let mode = if kind == FileKind::Directory { 0o755 } else { 0o644 };
        let mut attributes = Attributes::new(inode, kind, mode);
        attributes.size = size;
        (attributes.atime, attributes.mtime, attributes.ctime) = (self.time, self.time, self.time);
        Entry { inode: InodeId(inode), attributes }
    }

    fn child(&self, parent: Place, name: &[u8]) -> Option<Place> {
        match parent {
            Place::Root => {
                let is_it = |branch: &Branch| branch.name.as_bytes() == name;
                Some(Place::Directory(self.branches.iter().position(is_it)?, 0))
            }
            Place::Directory(branch, at) if at + 1 < self.branches[branch].depth => {
                (name == INNER).then_some(Place::Directory(branch, at + 1))
            }
            Place::Directory(branch, _) => {
                let digits = name.strip_prefix(b"f").filter(|digits| digits.len() == 7)?;
                let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
                (number < self.branches[branch].files).then_some(Place::File(branch, number))
            }
            Place::File(..) => None,
        }
    }
}

/// Spends `ns` nanoseconds.
fn wait(ns: u64) {
    let (begin, length) = (Instant::now(), Duration::from_nanos(ns));
    if length > SLEPT {
        std::thread::sleep(length);
    }
    while begin.elapsed() < length {
        std::hint::spin_loop();
    }
}

impl Backend for ComputedStore {
    fn capabilities(&self) -> Capabilities {
        let waits = match self.caching {
            PageCaching::Core => Waits::Sometimes,
            PageCaching::Store => Waits::Never,
        };
        Capabilities { waits, caching: self.caching, ..Capabilities::read_only("computed") }
    }

    fn root(&self) -> Result<Entry> {
        Ok(self.entry(Place::Root))
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

impl Names for ComputedStore {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        self.probe.lookups.add(1);
        // ORDERING: Relaxed; a length of time.
        let ns = self.probe.lookup_wait_ns.load(Relaxed);
        if ns > 0 {
            wait(ns);
        }
        let place = self.child(self.place(parent)?, name.as_bytes());
        Ok(self.entry(place.ok_or(Error::NotFound)?))
    }

    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        // No client lists: every name is looked up, like by the program of the experiment.
        Err(Error::Unsupported("listing"))
    }
}

impl Inodes for ComputedStore {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        Ok(self.entry(self.place(file.inode)?).attributes)
    }
}

impl Data for ComputedStore {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let size = self.attributes(file)?.size;
        let rest = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = rest.min(into.len());
        let pages = (count as u64).div_ceil(PAGE);
        self.probe.pages.add(pages);
        // ORDERING: Relaxed; a length of time.
        let ns = self.probe.page_wait_ns.load(Relaxed);
        if ns > 0 {
            wait(ns * pages);
        }
        into[..count].fill(file.inode.0 as u8);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_vfs::{OpenOptions, Vfs, VfsConfig};

    #[test]
    fn files_are_found_at_any_depth_and_the_store_is_asked_once_for_each() {
        let deep = Branch { depth: 3, file_bytes: 5000, ..Branch::of("deep", 7) };
        let store = ComputedStore::new(vec![Branch::of("1", 5), deep.clone()], PageCaching::Core);
        let probe = store.probe();
        let vfs = Vfs::new(store, VfsConfig::default()).unwrap();
        let top = vfs.root_directory(Caller::root());
        assert_eq!(deep.path(), "deep/d/d");
        for (directory, files, size) in [("1", 5, 0), (&*deep.path(), 7, 5000)] {
            let mut paths = FilePath::below(directory);
            for number in 0..files {
                for _ in 0..2 {
                    let file = top.open(paths.of(number), OpenOptions::read()).unwrap();
                    assert_eq!(file.read_to_end().unwrap().len(), size);
                }
            }
            assert!(matches!(top.stat(paths.of(files)), Err(Error::NotFound)));
        }
        assert_eq!(
            probe.lookups(),
            1 + 3 + 5 + 7 + 2,
            "directories, files, and two that are missing"
        );
        assert_eq!(probe.pages(), 2 * 7);
    }

    #[test]
    fn a_slow_store_waits() {
        let store = ComputedStore::new(vec![Branch::of("1", 5)], PageCaching::Store);
        store.probe().be_slow(2_000_000, 0);
        let vfs = Vfs::new(store, VfsConfig::default()).unwrap();
        let begin = Instant::now();
        vfs.root_directory(Caller::root()).stat("1").unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(2));
    }
}
