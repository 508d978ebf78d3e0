//! Floor: conformance. Answers of a watched host directory are valid for long, and every change on the host ends that.
//!
//! In process over a directory, and through the kernel (needs root and `/dev/fuse`). The lifetimes are an hour: only news can correct an answer.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig, reports_all_changes};
use uvfs_fuse::{Mount, MountOptions};
use uvfs_tests::Watchdog;
use uvfs_vfs::{Attributes, Caller, Lookup, Name, Node, Timeouts, Vfs, VfsConfig, pass_time};

const HOUR: Duration = Duration::from_secs(3600);

struct Scene {
    folder: tempfile::TempDir,
    vfs: Arc<Vfs>,
    caller: Caller,
}

impl Scene {
    /// `None` if the file system of the test does not report all changes.
    fn new() -> Option<Self> {
        Self::at(&std::env::temp_dir())
    }

    fn at(place: &Path) -> Option<Self> {
        let folder = tempfile::tempdir_in(place).ok()?;
        if !reports_all_changes(folder.path()).unwrap() {
            return None;
        }
        let backend = DirectoryBackend::open(folder.path(), DirectoryConfig::default()).unwrap();
        let reported_timeouts = Some(Timeouts { attr: HOUR, entry: HOUR, negative: HOUR });
        let config = VfsConfig { watch: true, reported_timeouts, ..VfsConfig::default() };
        let vfs = Vfs::new(backend, config).unwrap();
        Some(Self { folder, vfs, caller: Caller::root() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn look(&self, parent: &Node, name: &str) -> Option<(Node, Attributes)> {
        match self.vfs.lookup(&self.caller, parent, Name::new(name.as_bytes()).unwrap()).unwrap() {
            Lookup::Found(found) => Some((found.node, found.attributes)),
            Lookup::Missing(_) => None,
        }
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.look(self.vfs.root(), name).map(|found| found.1.size)
    }

    /// Questions to the store so far.
    fn asked(&self) -> u64 {
        let all = self.vfs.statistics();
        all.names.misses + all.inodes.misses
    }

    /// Waits until the caches say so.
    fn comes_to(&self, wanted: impl Fn() -> bool) {
        let limit = Instant::now() + Duration::from_secs(20);
        while !wanted() {
            assert!(Instant::now() < limit, "no news of a change on the host");
            std::thread::yield_now();
        }
    }
}

/// A mount with `--watch` asked the store every second, although it is told of each change.
#[test]
fn answers_are_valid_for_long_and_changes_show() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let Some(scene) = Scene::new() else { return };
    fs::write(scene.path("f"), b"one").unwrap();
    assert_eq!((scene.size("f"), scene.size("none")), (Some(3), None));
    let asked = scene.asked();
    pass_time(Duration::from_secs(1800));
    assert_eq!((scene.size("f"), scene.size("none")), (Some(3), None));
    assert_eq!(scene.asked(), asked, "it is valid still");

    fs::write(scene.path("f"), b"longer").unwrap();
    scene.comes_to(|| scene.size("f") == Some(6));
    fs::write(scene.path("none"), b"").unwrap();
    scene.comes_to(|| scene.size("none") == Some(0));
    fs::rename(scene.path("f"), scene.path("g")).unwrap();
    scene.comes_to(|| scene.size("f").is_none() && scene.size("g") == Some(6));
    fs::set_permissions(scene.path("g"), fs::Permissions::from_mode(0o600)).unwrap();
    let mode = || scene.look(scene.vfs.root(), "g").unwrap().1.mode & 0o777;
    scene.comes_to(|| mode() == 0o600);
    fs::remove_file(scene.path("g")).unwrap();
    scene.comes_to(|| scene.size("g").is_none());
}

/// A change through a link in another directory raises no event here.
#[test]
fn attributes_of_what_has_several_names_are_valid_shortly() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let Some(scene) = Scene::new() else { return };
    fs::create_dir(scene.path("other")).unwrap();
    fs::write(scene.path("f"), b"one").unwrap();
    fs::hard_link(scene.path("f"), scene.path("other/g")).unwrap();
    assert_eq!(scene.size("f"), Some(3));
    fs::write(scene.path("other/g"), b"longer").unwrap();
    pass_time(Duration::from_secs(2));
    assert_eq!(scene.size("f"), Some(6), "without news");
}

/// The kernel writes the host's file itself, and has attributes of it that are valid for an hour.
#[test]
fn own_writes_show_at_once_through_the_kernel() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let Some(scene) = Scene::new() else { return };
    let at = tempfile::tempdir().unwrap();
    fs::write(scene.path("f"), b"").unwrap();
    let _mount = Mount::start(scene.vfs.clone(), at.path(), MountOptions::default()).unwrap();
    let (here, there) = (at.path().join("f"), scene.path("f"));
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    for round in 1..=50 {
        assert_eq!(fs::metadata(&here).unwrap().len(), (round - 1) * 6);
        let mut file = fs::OpenOptions::new().append(true).open(&here).unwrap();
        for half in [3, 6] {
            file.write_all(b"abc").unwrap();
            assert_eq!(fs::metadata(&here).unwrap().len(), (round - 1) * 6 + half);
            assert_eq!(file.metadata().unwrap().len(), (round - 1) * 6 + half);
        }
        drop(file);
        assert_eq!(modified(&here), modified(&there));
    }
    fs::write(&there, b"by the host").unwrap();
    scene.comes_to(|| fs::read(&here).unwrap() == b"by the host");
    scene.comes_to(|| modified(&here) == modified(&there));
}

/// Looks at names in two threads while the host changes them, many times. In the end, `size` must show the host's state.
fn race(scene: &Scene, size: impl Fn(&str) -> Option<u64> + Sync) {
    let names = ["a", "b", "c"];
    for round in 0..200_usize {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        for name in names {
                            let _size = size(name);
                        }
                    }
                });
            }
            for step in 0..20_usize {
                let name = names[(round + step) % 3];
                let _ = match (round * 7 + step * 5) % 4 {
                    0 => fs::remove_file(scene.path(name)),
                    1 => fs::rename(scene.path(name), scene.path(names[step % 3])),
                    _ => fs::write(scene.path(name), vec![b'x'; (round + step) % 9]),
                };
            }
            stop.store(true, Relaxed);
        });
        for name in names {
            let there = fs::metadata(scene.path(name)).ok().map(|file| file.len());
            scene.comes_to(|| size(name) == there);
        }
    }
}

/// A name was answered as missing while its file was away. The file came back before the thread of the watches looked,
/// which compared it with the older record and reported nothing: the negative answer stayed. tmpfs showed it in most
/// runs, since its changes are faster than that thread.
#[test]
fn no_answer_stays_that_a_change_on_the_host_has_overtaken() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    for place in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let Some(scene) = Scene::at(&place) else { continue };
        race(&scene, |name| scene.size(name));
    }
}

/// Answers that the kernel has cached stayed, too. The first attributes of an inode have no version there: a notice
/// that overtook the reply was lost, and they stayed.
#[test]
fn no_answer_stays_in_the_kernel_that_a_change_on_the_host_has_overtaken() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    for place in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let Some(scene) = Scene::at(&place) else { continue };
        let at = tempfile::tempdir().unwrap();
        let _mount = Mount::start(scene.vfs.clone(), at.path(), MountOptions::default()).unwrap();
        race(&scene, |name| fs::metadata(at.path().join(name)).ok().map(|file| file.len()));
    }
}
