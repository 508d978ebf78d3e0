//! Floor: conformance, through the kernel: file handles (`name_to_handle_at`, `open_by_handle_at`) outlive the cached
//! entries of their files.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack. A cleaning of the root, of this mount alone, empties the
//! kernel's and our caches. Every mount has a watchdog that ends the process. Deterministic.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::image::{ImageBackend, ImageConfig};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_ext::FileDevice;
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Watchdog, unmount_idle};
use uvfs_vfs::{Backend, Clean, Dirty, Vfs, VfsConfig};

/// `struct file_handle` of open_by_handle_at(2), with room for the largest.
#[repr(C)]
#[derive(Clone)]
struct Handle {
    bytes: u32,
    kind: i32,
    opaque: [u8; 128],
}

impl Handle {
    fn of(path: &Path) -> Self {
        let mut path = path.as_os_str().as_bytes().to_vec();
        path.push(0);
        let mut handle = Self { bytes: 128, kind: 0, opaque: [0; 128] };
        let mut mount = MaybeUninit::<i32>::uninit();
        // SAFETY: a path that ends with 0, a handle with its declared room, and room for an int.
        let done = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                path.as_ptr(),
                &raw mut handle,
                mount.as_mut_ptr(),
                0,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        handle
    }

    /// Returns the handle with another node id and generation, which a program with the right to open by handle can
    /// forge. The kernel's own format for FUSE: the id's upper half, its lower half, the generation.
    fn made_up(&self, id: u64, generation: Option<u32>) -> Self {
        let mut handle = self.clone();
        let halves = [(id >> 32) as u32, id as u32];
        for (at, word) in halves.into_iter().chain(generation).enumerate() {
            handle.opaque[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        handle
    }
}

struct Mounted {
    mount: Mount,
    vfs: Arc<Vfs>,
    top: File,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    /// `None`, with a note, where nothing can be mounted.
    fn over(store: impl Backend) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let watchdog = Watchdog::with_rescue(Duration::from_secs(120), move || {
            let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        });
        let vfs = Vfs::new(store, VfsConfig::default()).unwrap();
        let options = MountOptions { readers: Some(2), ..MountOptions::default() };
        let mount = Mount::start(vfs.clone(), directory.path(), options).unwrap();
        let top = File::open(directory.path()).unwrap();
        Some(Self { mount, vfs, top, directory, _watchdog: watchdog })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// Has the kernel and the caches forget everything; how many ids the kernel still holds.
    fn forget(&self) -> u64 {
        let mut go_on = |_| ControlFlow::Continue(());
        let report =
            self.mount.clean(self.vfs.root(), Clean::Both, Dirty::Skip, &mut go_on).unwrap();
        assert_eq!(report.kernel().refused, None);
        self.mount.statistics().nodes
    }

    fn open(&self, handle: &Handle) -> io::Result<File> {
        let mut handle = handle.clone();
        // SAFETY: an open descriptor and a handle that name_to_handle_at filled in.
        let done = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                self.top.as_raw_fd(),
                &raw mut handle,
                libc::O_RDONLY,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by nothing else.
        Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(done).unwrap()) }.into())
    }

    fn text(&self, handle: &Handle) -> io::Result<String> {
        let (file, mut text) = (self.open(handle)?, [0; 64]);
        let count = file.read_at(&mut text, 0)?;
        Ok(String::from_utf8_lossy(&text[..count]).into_owned())
    }

    /// An object just removed may be in use for a moment: the kernel closes files in the background.
    fn goes_stale(&self, handle: &Handle) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.open(handle).is_ok() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.assert_stale(handle, "removed");
    }

    fn assert_stale(&self, handle: &Handle, why: &str) {
        let error = self.text(handle).expect_err(why);
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE), "{why}: {error}");
    }

    fn end(self) {
        drop(self.top);
        let statistics = self.mount.statistics();
        assert_eq!((statistics.panics, statistics.forgotten_too_often), (0, 0), "{statistics:?}");
        unmount_idle(|| self.mount.unmount(Unmount::Idle));
        self.mount.wait();
        assert_eq!(self.mount.statistics().nodes, 0);
    }
}

fn memory() -> MemoryBackend {
    MemoryBackend::new(MemoryConfig::default()).unwrap()
}

fn host(source: &Path) -> DirectoryBackend {
    DirectoryBackend::open(source, DirectoryConfig::default()).unwrap()
}

fn existing_files_open(mounted: &Mounted) {
    for (name, text) in [("a/b/c/deep", "deep"), ("top", "top"), ("x/moves", "moves")] {
        mounted.write(name, text);
    }
    mounted.write("x/inside/file", "below what moves");
    mounted.write("first", "two names");
    fs::hard_link(mounted.path("first"), mounted.path("second")).unwrap();
    let names = ["a/b/c/deep", "top", "x/moves", "x/inside/file", "first", "a/b"];
    let handles = names.map(|name| Handle::of(&mounted.path(name)));
    let numbers = names.map(|name| fs::metadata(mounted.path(name)).unwrap().ino());
    fs::rename(mounted.path("x/moves"), mounted.path("a/moved")).unwrap();
    fs::rename(mounted.path("x/inside"), mounted.path("a/elsewhere")).unwrap();
    fs::remove_file(mounted.path("first")).unwrap();
    for round in 0..3 {
        let held = mounted.forget();
        assert!(held < 6, "the kernel still holds {held}, so this looks at nothing");
        let texts = ["deep", "top", "moves", "below what moves", "two names"];
        for (at, text) in texts.iter().enumerate() {
            let found =
                mounted.text(&handles[at]).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found, *text, "round {round}");
        }
        for (handle, number) in handles.iter().zip(numbers) {
            let about = mounted.open(handle).unwrap().metadata().unwrap();
            assert_eq!(about.ino(), number, "round {round}");
        }
        let folder = mounted.open(&handles[5]).unwrap();
        let shown = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).unwrap();
        assert_eq!(shown, mounted.path("a/b"), "the kernel found the way up");
    }
}

/// Bug: xfstests generic/426, 467, 756 and 777 showed that `open_by_handle_at` returned ESTALE for existing files as
/// soon as the kernel had evicted them.
#[test]
fn a_handle_opens_what_all_caches_have_forgotten() {
    let source = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::over(host(source.path())) else { return };
    existing_files_open(&mounted);
    mounted.end();
    let Some(mounted) = Mounted::over(memory()) else { return };
    existing_files_open(&mounted);
    mounted.end();
}

/// A handle is of one file, and not of a later one with its name, its number or its place.
#[test]
fn a_handle_of_what_is_gone_is_stale_for_ever() {
    let source = tempfile::tempdir().unwrap();
    for on_host in [false, true] {
        let mounted = match on_host {
            false => Mounted::over(memory()),
            true => Mounted::over(host(source.path())),
        };
        let Some(mounted) = mounted else { return };
        let mut old = Vec::new();
        for round in 0..20 {
            mounted.write("d/name", &format!("content {round}"));
            let handles = ["d/name", "d"].map(|name| Handle::of(&mounted.path(name)));
            fs::remove_dir_all(mounted.path("d")).unwrap();
            handles.iter().for_each(|handle| mounted.goes_stale(handle));
            old.extend(handles);
            if round % 5 == 4 {
                mounted.forget();
            }
            old.iter().for_each(|handle| mounted.assert_stale(handle, "removed long ago"));
        }
        // The host likely reuses a freed number for the next file.
        mounted.write("d/name", "the last one");
        mounted.forget();
        old.iter().for_each(|handle| mounted.assert_stale(handle, "another is there now"));
        let last = Handle::of(&mounted.path("d/name"));
        mounted.forget();
        assert_eq!(mounted.text(&last).unwrap(), "the last one");
        mounted.end();
    }
}

/// Changes past the mount: a file that another program replaces is never taken for the old one, and one that it moves
/// is found again after a lookup.
#[test]
fn a_handle_follows_what_is_known_of_the_host_and_guesses_nothing() {
    let source = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::over(host(source.path())) else { return };
    for name in ["replaced", "moved", "kept"] {
        mounted.write(name, name);
    }
    let handles = ["replaced", "moved", "kept"].map(|name| Handle::of(&mounted.path(name)));
    mounted.forget();
    fs::remove_file(source.path().join("replaced")).unwrap();
    fs::write(source.path().join("replaced"), "another").unwrap();
    fs::rename(source.path().join("moved"), source.path().join("elsewhere")).unwrap();
    mounted.assert_stale(&handles[0], "replaced on the host");
    mounted.assert_stale(&handles[1], "moved on the host, to an unknown place");
    assert_eq!(mounted.text(&handles[2]).unwrap(), "kept");
    assert_eq!(fs::read(mounted.path("elsewhere")).unwrap(), b"moved");
    mounted.forget();
    assert_eq!(mounted.text(&handles[1]).unwrap(), "moved");
    mounted.assert_stale(&handles[0], "replaced on the host");
    mounted.end();
}

/// An image with a file three levels deep and one of two names, made in `folder`.
fn image_in(folder: &Path) -> Option<PathBuf> {
    let (tree, path) = (folder.join("tree"), folder.join("disk.img"));
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/deep"), "deep").unwrap();
    fs::write(tree.join("first"), "two names").unwrap();
    fs::hard_link(tree.join("first"), tree.join("a/second")).unwrap();
    let mut make = std::process::Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-d"]).arg(&tree).arg(&path).arg("8M");
    match make.output() {
        Ok(made) => assert!(made.status.success(), "{made:?}"),
        Err(error) => {
            uvfs_skip::lacking(format_args!("mke2fs: {error}"));
            return None;
        }
    }
    Some(path)
}

fn store_of(image: &Path) -> ImageBackend {
    let device = Arc::new(FileDevice::open(image).unwrap());
    ImageBackend::open(device, ImageConfig::default()).unwrap()
}

/// An image's store finds an object by its number: after everything was dropped (`uvfs drop 3`), and without an earlier
/// lookup. A forged number finds no object, the file system's own, or another generation.
#[test]
fn a_handle_into_an_image_opens_what_was_dropped_and_a_made_up_one_is_stale() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = image_in(folder.path()) else { return };
    let store = store_of(&path);
    let last = u64::from(store.image().superblock().inodes);
    let Some(mounted) = Mounted::over(store) else { return };
    let handles = ["a/b/deep", "a/second", "a/b"].map(|name| Handle::of(&mounted.path(name)));
    let deep = fs::metadata(mounted.path("a/b/deep")).unwrap().ino();
    for round in 0..3 {
        let held = mounted.forget();
        assert!(held < 4, "the kernel still holds {held}, so this looks at nothing");
        assert_eq!(mounted.text(&handles[0]).unwrap(), "deep", "round {round}");
        assert_eq!(mounted.text(&handles[1]).unwrap(), "two names", "round {round}");
        assert_eq!(mounted.open(&handles[0]).unwrap().metadata().unwrap().ino(), deep);
        let folder = mounted.open(&handles[2]).unwrap();
        let shown = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd())).unwrap();
        assert_eq!(shown, mounted.path("a/b"), "the kernel found the way up");
        drop(folder);
        // The journal's inode, one that is not in use, and some that there are not.
        for id in [0, 8, last, last + 1, 1 << 32 | deep, u64::MAX] {
            mounted.assert_stale(&handles[0].made_up(id, None), &format!("id {id}"));
            mounted.assert_stale(&handles[0].made_up(id, Some(0)), &format!("id {id}"));
        }
        mounted.assert_stale(&handles[0].made_up(deep, Some(1)), "another generation");
        mounted.forget();
        mounted.assert_stale(&handles[0].made_up(deep, Some(1)), "another generation");
    }
    mounted.end();
}

/// xfstests generic/477 opens by handles from before the last mount: ESTALE on other stores. An image finds objects by
/// their numbers, and stores numbers and generations; so handles also outlive the mount.
#[test]
fn a_handle_into_an_image_outlives_the_mount() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = image_in(folder.path()) else { return };
    let Some(mounted) = Mounted::over(store_of(&path)) else { return };
    let handles = ["a/b/deep", "a/second"].map(|name| Handle::of(&mounted.path(name)));
    mounted.end();
    let Some(mounted) = Mounted::over(store_of(&path)) else { return };
    assert_eq!(mounted.text(&handles[0]).unwrap(), "deep");
    assert_eq!(mounted.text(&handles[1]).unwrap(), "two names");
    mounted.assert_stale(&handles[0].made_up(12, Some(1)), "another generation");
    mounted.end();
}
