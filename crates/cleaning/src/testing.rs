//! Trees of files on a real file system, and walks over them, for the tests of this folder.

use super::meter;
use super::opener::{Fill, Offered};
use super::place::Place;
use super::tally::{Outcome, Tally};
use super::walk::{Visitor, Walk};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_residency::{Residency, cachestat, page_bytes};
use uvfs_terminal::interrupt::Interrupt;

static SIZES: LockClass = LockClass::new(9, "test-sizes", "what a test has seen");

/// Every way in which this kernel lets us walk.
pub(super) fn offered_ways() -> [Offered; 2] {
    [Offered::NOTHING, Offered::probe()]
}

/// Walks `path` to the end.
pub(super) fn walk(path: &Path, offered: Offered, fill: Fill, visitor: &dyn Visitor) -> Outcome {
    let interrupt = Interrupt::default();
    let walk = Walk { offered, fill, interrupt: &interrupt, show: &|_| {} };
    let start = super::opener::start(path, offered).unwrap();
    walk.run(start, path.as_os_str(), visitor).unwrap()
}

/// The cached pages of a file.
pub(super) fn cached(path: &Path) -> Residency {
    cachestat(File::open(path).unwrap(), 0, 0).unwrap()
}

/// A visitor that notes sizes.
#[derive(Debug)]
pub(super) struct Seen {
    sizes: Mutex<Vec<u64>>,
    fails_at: Option<u64>,
}

impl Default for Seen {
    fn default() -> Self {
        Self { sizes: Mutex::new(&SIZES, Vec::new()), fails_at: None }
    }
}

impl Seen {
    /// One that fails for files of this size.
    pub(super) fn failing_at(bytes: u64) -> Self {
        Self { fails_at: Some(bytes), ..Self::default() }
    }

    /// The sizes seen, sorted.
    pub(super) fn sizes(&self) -> Vec<u64> {
        let mut sizes = self.sizes.lock().clone();
        sizes.sort_unstable();
        sizes
    }
}

impl Visitor for Seen {
    fn enter(&self, _parent: &Place, _name: &CStr) -> usize {
        0
    }

    fn file(&self, file: &OwnedFd, _tally: &mut Tally) -> io::Result<()> {
        let bytes = rustix::fs::fstat(file)?.st_size as u64;
        if self.fails_at == Some(bytes) {
            return Err(io::ErrorKind::Other.into());
        }
        self.sizes.lock().push(bytes);
        Ok(())
    }

    fn counted(&self, _place: &Place, _tally: &Tally) {}

    fn listed(&self, _directory: &OwnedFd) {}
}

/// A folder on a file system whose pages can be counted and dropped.
#[derive(Debug)]
pub(super) struct Tree {
    folder: tempfile::TempDir,
    base: PathBuf,
}

impl Tree {
    /// A fresh one; prints the reason if the temporary folder is unsuitable.
    pub(super) fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let tree = Self { folder, base };
        let directory = File::open(tree.folder.path()).unwrap();
        if let Some(name) = meter::memory(directory.as_fd()) {
            uvfs_skip::lacking(format_args!(
                "the temporary folder is {name}, whose pages are its files"
            ));
            return None;
        }
        if let Err(error) = cachestat(&directory, 0, 0) {
            uvfs_skip::lacking(format_args!("cachestat: {error}"));
            return None;
        }
        // If pages cannot be counted or dropped here, the test shows nothing about us.
        let probe = tree.clean_file("probe", 1);
        rustix::fs::fadvise(File::open(&probe).unwrap(), 0, None, rustix::fs::Advice::DontNeed)
            .unwrap();
        if cached(&probe).cached != 0 {
            uvfs_skip::lacking("the temporary folder's file system keeps its pages");
            return None;
        }
        fs::remove_file(probe).unwrap();
        Some(tree)
    }

    /// A path in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// A file whose `pages` are cached and clean.
    pub(super) fn clean_file(&self, name: &str, pages: u64) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![7; (pages * page_bytes()) as usize]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        fs::read(&path).unwrap();
        if name != "probe" {
            let now = cached(&path);
            assert_eq!((now.cached, now.dirty, now.writeback), (pages, 0, 0), "{name}");
        }
        path
    }

    /// Mounts `from` on `on` as well.
    pub(super) fn bind(&self, from: &str, on: &str) -> Option<Mounted> {
        let on = self.path(on);
        Mounted::new(&on, mount_bind(self.path(from), &on))
    }

    /// Mounts a tmpfs on `on`.
    pub(super) fn mount_tmpfs(&self, on: &str) -> Option<Mounted> {
        let on = self.path(on);
        Mounted::new(&on, mount("tmpfs", &on, "tmpfs", MountFlags::empty(), c"size=1m"))
    }

    /// Mounts an overlay over `lower` on a fresh `on`.
    pub(super) fn mount_overlay(&self, lower: &str, on: &str) -> Option<Mounted> {
        let on = self.path(on);
        fs::create_dir(&on).unwrap();
        let empty = self.path("empty-layer");
        fs::create_dir(&empty).unwrap();
        let layers = format!("{}:{}", self.path(lower).display(), empty.display());
        let options = std::ffi::CString::new(format!("lowerdir={layers}")).unwrap();
        let mounted = mount("overlay", &on, "overlay", MountFlags::RDONLY, options.as_c_str());
        Mounted::new(&on, mounted)
    }
}

/// A mount that ends when it is dropped.
#[derive(Debug)]
pub(super) struct Mounted(PathBuf);

impl Mounted {
    fn new(on: &Path, mounted: rustix::io::Result<()>) -> Option<Self> {
        match mounted {
            Ok(()) => Some(Self(on.to_path_buf())),
            Err(error) => {
                uvfs_skip::skip(format_args!("cannot mount here: {error}"));
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}
