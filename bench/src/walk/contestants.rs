//! The walking systems: uvfs in this process, the kernel's tmpfs, and the rivals' process.
//!
//! # Boundary
//! Builds a tree for each and has it walk a round. Knows no case and no report.
//!
//! # Why
//! One [`Contestant`] is one way to walk. uvfs by components and uvfs by whole paths differ in one
//! setting, so they are two file systems: with memos, no walk would go by components.

use super::place::Tmpfs;
use super::store::ComputedStore;
use crate::context;
use crate::rivals::Rivals;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::cell::RefCell;
use std::ffi::CStr;
use std::hint::black_box;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uvfs_bench_workload::paths::{Paths, Pattern, Track};
use uvfs_bench_workload::timed::{self, MISSING, Pace};
use uvfs_bench_workload::tree::{Place, Tree};
use uvfs_vfs::{Caller, Directory, MINIMUM_BYTES, Vfs, VfsConfig};

/// One way to walk one tree.
pub(super) trait Contestant {
    /// Name in the report.
    fn name(&self) -> &str;

    /// Walks for about `target`; nanoseconds a walk, as each thread sees them.
    fn round(&mut self, pattern: Pattern, threads: usize, target: Duration) -> Result<f64, String>;
}

/// A tree and the paths through it.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) tree: Tree,
    paths: [Paths; 2],
}

impl Course {
    pub(super) fn new(tree: Tree) -> Self {
        let paths = Pattern::ALL.map(|pattern| Paths::new(&tree, pattern));
        Self { tree, paths }
    }

    /// The tracks, hot and uniform.
    pub(super) fn tracks(&self) -> [Track<'_>; 2] {
        self.paths.each_ref().map(Paths::track)
    }

    /// The digest of a rival that was built from the same files.
    pub(super) fn digest(&self) -> u64 {
        self.paths.iter().fold(0, |sum: u64, paths| sum.wrapping_add(paths.digest()))
    }
}

/// A contestant in this process, by its walk.
pub(super) struct Local<'a, W> {
    name: &'static str,
    tracks: &'a [Track<'a>; 2],
    walk: W,
    /// Hot, uniform.
    paces: [Pace; 2],
}

impl<'a, W: Fn(&CStr) -> u64 + Sync> Local<'a, W> {
    pub(super) fn new(name: &'static str, tracks: &'a [Track<'a>; 2], walk: W) -> Self {
        Self { name, tracks, walk, paces: [Pace::default(); 2] }
    }
}

impl<W: Fn(&CStr) -> u64 + Sync> Contestant for Local<'_, W> {
    fn name(&self) -> &str {
        self.name
    }

    fn round(&mut self, pattern: Pattern, threads: usize, target: Duration) -> Result<f64, String> {
        let nth = usize::from(pattern == Pattern::Uniform);
        timed::round(&self.tracks[nth], &mut self.paces[nth], threads, target, &self.walk)
    }
}

/// A contestant in the rivals' process.
pub(super) struct Remote {
    pub(super) name: String,
    pub(super) rivals: Rc<RefCell<Rivals>>,
}

impl Contestant for Remote {
    fn name(&self) -> &str {
        &self.name
    }

    fn round(&mut self, pattern: Pattern, threads: usize, target: Duration) -> Result<f64, String> {
        super::rivals::round(&mut self.rivals.borrow_mut(), &self.name, pattern, threads, target)
    }
}

/// The user of uvfs's walks: not root and not the owner, so the mode of each directory is checked.
pub(super) fn stranger() -> Caller {
    Caller::new(1000, 1000, &[])
}

/// Room for everything that is measured: memos of whole paths get an eighth.
pub(super) const AMPLE_BYTES: u64 = 16 << 30;
/// The approximate size of a name with its inode.
const ENTRY_BYTES: u64 = 310;

/// Settings of the system `uvfs`: it walks by components.
pub(super) fn by_components(bytes: u64) -> VfsConfig {
    // For a size below the minimum, another tenant takes the rest.
    let cache_bytes = bytes.max(MINIMUM_BYTES);
    let overhead_bytes = cache_bytes - bytes;
    VfsConfig { cache_bytes, overhead_bytes, whole_paths: false, ..VfsConfig::default() }
}

/// Settings of the system `uvfs-whole-path`; nothing else differs.
pub(super) fn by_whole_paths(bytes: u64) -> VfsConfig {
    VfsConfig { whole_paths: true, ..by_components(bytes) }
}

/// Settings of `uvfs` with room for about `entries` names with their inodes.
pub(super) fn with_room_for(entries: u64) -> VfsConfig {
    by_components((entries * ENTRY_BYTES).max(16 << 10))
}

/// uvfs over the computed `tree`, with empty caches.
pub(super) fn uvfs_over(tree: &Tree, config: VfsConfig) -> io::Result<(Arc<Vfs>, Directory)> {
    let vfs = Vfs::new(ComputedStore::new(tree.clone()), config).map_err(other)?;
    let top = vfs.root_directory(stranger());
    Ok((vfs, top))
}

/// uvfs with every file of `tree` walked to once.
pub(super) fn uvfs_filled(tree: &Tree, config: VfsConfig) -> io::Result<(Arc<Vfs>, Directory)> {
    let (vfs, top) = uvfs_over(tree, config)?;
    let mut path = Vec::new();
    for index in 0..tree.leaves() {
        path.clear();
        tree.write_path(Place { level: tree.depth(), index }, &mut path);
        top.stat(&path).map_err(other)?;
    }
    Ok((vfs, top))
}

/// Walks of a path, one after another, after which it has a memo if there is room: the second makes
/// it, unless another path that shares its mark came between.
const WALKS_TO_A_MEMO: usize = 4;

/// Has memos made of all paths of `tracks`; the share of them that has one then.
pub(super) fn remember_whole(vfs: &Vfs, top: &Directory, tracks: &[Track<'_>]) -> f64 {
    let paths = || tracks.iter().flat_map(|track| &track.paths);
    for path in paths() {
        for _ in 0..WALKS_TO_A_MEMO {
            black_box(walk_uvfs(top, path));
        }
    }
    let before = vfs.statistics().walks.whole;
    for path in paths() {
        black_box(walk_uvfs(top, path));
    }
    (vfs.statistics().walks.whole - before) as f64 / paths().count().max(1) as f64
}

/// The walk of the in-process interface: the size at the end of `path`.
pub(super) fn walk_uvfs(top: &Directory, path: &CStr) -> u64 {
    match top.stat(path.to_bytes()) {
        Ok(attributes) => {
            black_box(&attributes);
            attributes.size
        }
        Err(_) => MISSING,
    }
}

/// The kernel's walk: `fstatat` below `top`.
pub(super) fn walk_kernel(top: impl AsFd, path: &CStr) -> u64 {
    match rustix::fs::statat(top, path, AtFlags::empty()) {
        Ok(stat) => {
            black_box(&stat);
            u64::try_from(stat.st_size).unwrap_or(MISSING)
        }
        Err(_) => MISSING,
    }
}

/// A tmpfs with every name of `tree` in it.
pub(super) fn tmpfs_filled(tree: &Tree, name: &str) -> io::Result<Tmpfs> {
    let tmpfs = Tmpfs::mount(name)?;
    let mut path = Vec::new();
    for level in 1..=tree.depth() {
        for index in 0..tree.count(level) {
            let place = Place { level, index };
            path.clear();
            tree.write_path(place, &mut path);
            make(tmpfs.top()?, &path, tree.is_leaf(place).then(|| Tree::size(tree.id(place))))
                .map_err(context(String::from_utf8_lossy(&path)))?;
        }
    }
    Ok(tmpfs)
}

/// Makes a file of `size`, or a directory.
fn make(top: &OwnedFd, path: &[u8], size: Option<u64>) -> io::Result<()> {
    let Some(size) = size else {
        return Ok(rustix::fs::mkdirat(top, path, Mode::from_raw_mode(0o755))?);
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(top, path, flags, Mode::from_raw_mode(0o644))?;
    Ok(rustix::fs::ftruncate(file, size)?)
}

/// An error of uvfs as one of the system.
pub(super) fn other(error: uvfs_vfs::Error) -> io::Error {
    io::Error::from_raw_os_error(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(500);

    #[test]
    fn uvfs_walks_both_tracks_from_its_caches() {
        let course = Course::new(Tree::new(3, 400));
        let (vfs, top) = uvfs_filled(&course.tree, by_components(AMPLE_BYTES)).unwrap();
        let tracks = course.tracks();
        let asked = vfs.statistics().names.misses;
        let mut uvfs = Local::new("uvfs", &tracks, |path: &CStr| walk_uvfs(&top, path));
        for (pattern, threads) in [(Pattern::Hot, 1), (Pattern::Uniform, 2)] {
            assert!(uvfs.round(pattern, threads, SHORT).unwrap() > 0.0);
        }
        assert_eq!(vfs.statistics().names.misses, asked, "everything was cached");
        assert_eq!(vfs.statistics().walks.whole, 0, "by components");
    }

    #[test]
    fn whole_paths_are_walked_by_their_memos() {
        let course = Course::new(Tree::new(3, 400));
        let (vfs, top) = uvfs_filled(&course.tree, by_whole_paths(AMPLE_BYTES)).unwrap();
        assert_eq!(vfs.statistics().walks.whole, 0, "one walk makes no memo");
        let tracks = course.tracks();
        let share = remember_whole(&vfs, &top, &tracks);
        assert!((share - 1.0).abs() < 1e-9, "{share}");
        let before = vfs.statistics().walks.whole;
        let mut uvfs = Local::new("whole", &tracks, |path: &CStr| walk_uvfs(&top, path));
        assert!(uvfs.round(Pattern::Uniform, 1, SHORT).unwrap() > 0.0);
        assert!(vfs.statistics().walks.whole - before > course.tree.leaves());
    }

    #[test]
    fn a_limit_is_about_so_many_entries() {
        let tree = Tree::new(3, 20_000);
        let (vfs, _top) = uvfs_filled(&tree, with_room_for(5_000)).unwrap();
        let held = vfs.statistics().names.held;
        assert!((2_500..10_000).contains(&held), "{held}");
    }

    #[test]
    fn the_kernel_walks_the_same_tree() {
        if !rustix::process::geteuid().is_root() {
            uvfs_skip::skip("mounting a tmpfs needs root");
            return;
        }
        let course = Course::new(Tree::new(3, 400));
        let tracks = course.tracks();
        let tmpfs = tmpfs_filled(&course.tree, "contestants").unwrap();
        let top = tmpfs.top().unwrap();
        let mut kernel = Local::new("kernel-tmpfs", &tracks, |path: &CStr| walk_kernel(top, path));
        for pattern in Pattern::ALL {
            assert!(kernel.round(pattern, 1, SHORT).unwrap() > 0.0);
        }
        assert_eq!(walk_kernel(top, c"none"), MISSING);
        drop(tmpfs);
        crate::cleanup::everything();
    }
}
