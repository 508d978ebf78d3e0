//! Floor: race pairs and stress, through the kernel: cleaning one directory of a mount.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack. The store is in memory and ours alone, so that the kernel's
//! names and attributes have no time limit: it asks again only after a cleaning. The mount counts LOOKUP requests
//! exactly; READ with a tolerance of half, since a kernel short of memory evicts pages by itself. Every mount has a
//! watchdog that aborts the FUSE connection before it ends the process. `UVFS_STRESS_SECONDS` lengthens the stress.
//!
//! A kernel before 6.18 keeps the names of directories; the counts here allow for that and nothing else.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Cleaned, KernelHow, Mount, MountOptions, Unmount};
use uvfs_tests::{Hostile, Numbers, Watchdog, hostile, root, seed, unmount_idle, vfs_over};
use uvfs_vfs::{Clean, Directory, Dirty, Opens, VfsConfig, Waits};

struct Mounted {
    hostile: Hostile,
    root: Directory,
    mount: Mount,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new() -> Option<Self> {
        Self::with(Opens::Stateless)
    }

    fn with(opens: Opens) -> Option<Self> {
        Self::over(store(opens))
    }

    /// `None`, with a note, where nothing can be mounted.
    fn over(hostile: Hostile) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let limit = Duration::from_secs(90) + stress_time();
        let watchdog = Watchdog::with_rescue(limit, move || {
            abort(&path);
            let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        });
        let vfs = vfs_over(&hostile, VfsConfig::default());
        let root = root(&vfs);
        let options = MountOptions { readers: Some(2), ..Default::default() };
        let mount = Mount::start(vfs, directory.path(), options).unwrap();
        Some(Self { hostile, root, mount, directory, _watchdog: watchdog })
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes a directory with files in it and in a directory below it, through the kernel.
    fn plant(&self, name: &str, files: usize) -> Planted {
        let path = self.path(name);
        fs::create_dir_all(path.join("sub")).unwrap();
        let below: Vec<_> = (0..files)
            .map(|at| path.join(if at % 4 == 0 { format!("sub/f{at}") } else { format!("f{at}") }))
            .collect();
        for file in &below {
            fs::write(file, content(file)).unwrap();
        }
        let planted = Planted { path, files: below };
        planted.read();
        planted
    }

    fn clean(&self, path: impl AsRef<[u8]>, what: Clean) -> Cleaned {
        let directory = self.root.open_directory(path).unwrap();
        let node = directory.node();
        let mut go_on = |_| ControlFlow::Continue(());
        let report = self.mount.clean(node, what, Dirty::Skip, &mut go_on).unwrap();
        assert_eq!(report.kernel().refused, None);
        assert_eq!(report.kernel().let_go + report.kernel().kept, report.kernel().held);
        report
    }

    fn requests(&self, kind: &str) -> u64 {
        let requests = self.mount.statistics().requests;
        requests.iter().find(|one| one.request == kind).map_or(0, |one| one.count)
    }

    /// LOOKUP and READ requests that `action` brings.
    fn asked(&self, action: impl FnOnce()) -> (u64, u64) {
        let before = (self.requests("lookup"), self.requests("read"));
        action();
        (self.requests("lookup") - before.0, self.requests("read") - before.1)
    }

    /// The contents of `planted` are cached: no name is asked for, and hardly a page.
    fn assert_warm(&self, planted: &Planted) {
        let (lookups, reads) = self.asked(|| planted.read());
        let (path, few) = (planted.path.display(), planted.files.len() as u64 / 2);
        assert!(lookups == 0 && reads < few, "{path}: {lookups} LOOKUP, {reads} READ");
    }

    fn end(self) {
        self.hostile.behave();
        let statistics = self.mount.statistics();
        assert_eq!((statistics.panics, statistics.forgotten_too_often), (0, 0), "{statistics:?}");
        unmount_idle(|| self.mount.unmount(Unmount::Idle));
        self.mount.wait();
    }
}

fn store(opens: Opens) -> Hostile {
    hostile().claiming(|can| {
        can.waits = Waits::Sometimes;
        can.opens = opens;
    })
}

struct Planted {
    path: PathBuf,
    files: Vec<PathBuf>,
}

impl Planted {
    fn stat(&self) {
        for file in &self.files {
            assert_eq!(fs::metadata(file).unwrap().len(), content(file).len() as u64);
        }
    }

    fn read(&self) {
        for file in &self.files {
            assert_eq!(fs::read(file).unwrap(), content(file), "{}", file.display());
        }
    }
}

fn content(path: &Path) -> Vec<u8> {
    let name = path.file_name().unwrap().to_str().unwrap();
    name.repeat(1 + 5000 / name.len()).into_bytes()
}

fn stress_time() -> Duration {
    let given = std::env::var("UVFS_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(3))
}

/// Aborts the connection of the mount at `path`, in any state of its daemon.
fn abort(path: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = table.lines().find(|line| line.split(' ').nth(4) == path.to_str());
    let minor = line.and_then(|line| line.split(' ').nth(2)?.split(':').nth(1).map(str::to_owned));
    let Some(minor) = minor else { return };
    let write = |control: &Path| fs::write(control.join(&minor).join("abort"), "1").is_ok();
    if write(Path::new("/sys/fs/fuse/connections")) {
        return;
    }
    // Often it is only not mounted.
    let Ok(control) = tempfile::tempdir() else { return };
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("none", control.path(), "fusectl", flags, None).is_ok() {
        write(control.path());
        let _ = rustix::mount::unmount(control.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Directories below that were forgotten too: all, or none on a kernel that keeps them.
fn directories(report: &Cleaned, all: u64) -> u64 {
    if report.kernel().how == KernelHow::Pruned { all } else { 0 }
}

#[test]
fn names_of_one_directory_are_asked_again_and_of_others_not() {
    for opens in [Opens::Stateless, Opens::Tracked] {
        for what in [Clean::Names, Clean::Both] {
            let Some(mounted) = Mounted::with(opens) else { return };
            let (tree, outside) = (mounted.plant("tree", 400), mounted.plant("treetop", 300));
            let inside = mounted.plant("treetop/tree", 50);
            mounted.assert_warm(&tree);
            let before = mounted.mount.statistics().nodes;

            let report = mounted.clean("tree", what);
            let sub = directories(&report, 1);
            assert_eq!((report.kernel().held, report.kernel().let_go), (401, 400 + sub));
            // With its last child the kernel evicts the directory, too.
            let own = directories(&report, 1);
            assert_eq!(mounted.mount.statistics().nodes, before - report.kernel().let_go - own);

            mounted.assert_warm(&outside);
            mounted.assert_warm(&inside);
            let (lookups, reads) = mounted.asked(|| tree.read());
            assert_eq!(lookups, 400 + sub + own);
            assert!(reads >= 400, "{reads}");
            mounted.assert_warm(&tree);
            mounted.end();
        }
    }
}

#[test]
fn pages_are_read_again_and_names_are_not_asked() {
    let Some(mounted) = Mounted::new() else { return };
    let (tree, outside) = (mounted.plant("tree", 100), mounted.plant("treetop", 100));
    let before = mounted.mount.statistics().nodes;
    let report = mounted.clean("tree", Clean::Pages);
    assert_eq!((report.kernel().how, report.kernel().files), (KernelHow::Pages, 100));
    assert_eq!((report.kernel().held, report.kernel().let_go), (101, 0));
    assert_eq!(mounted.mount.statistics().nodes, before);
    mounted.assert_warm(&outside);
    let (lookups, reads) = mounted.asked(|| tree.read());
    assert_eq!(lookups, 0);
    assert!(reads >= 100, "{reads}");
    mounted.end();
}

/// The kernel asks about these names, none of which is there.
fn assert_missing(directory: &Path, names: impl IntoIterator<Item = u64>) {
    for at in names {
        let error = fs::metadata(directory.join(format!("no-{at}"))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}

/// Names that are missing have no node that could be pruned: those below are asked of the store again, once
/// each, and no other is.
#[test]
fn missing_names_are_asked_again_below_and_not_elsewhere() {
    let Some(mounted) = Mounted::new() else { return };
    let (tree, outside) = (mounted.plant("tree", 20), mounted.plant("treetop", 20));
    let inside = mounted.plant("treetop/tree", 20);
    let missing = |planted: &Planted| {
        assert_missing(&planted.path, 0..50);
        assert_missing(&planted.path.join("sub"), 0..50);
    };
    // We made the directories, and know their missing names without the store.
    mounted.clean(".", Clean::Names);
    for planted in [&tree, &outside, &inside] {
        let ours = |planted| mounted.asked(|| missing(planted)).0;
        planted.read();
        assert_eq!((ours(planted), ours(planted)), (100, 0), "the kernel believes it");
    }
    assert_eq!(mounted.mount.statistics().missing, 300);

    for what in [Clean::Names, Clean::Both] {
        let report = mounted.clean("tree", what);
        assert_eq!((report.kernel().missing, report.kernel().let_go), (100, 20), "{report:?}");
        // The kernel's negative entries keep the directory, expired or not.
        assert_eq!(report.kernel().kept, 1);
        assert_eq!(mounted.mount.statistics().missing, 200);
        for planted in [&outside, &inside] {
            assert_eq!(mounted.asked(|| missing(planted)).0, 0);
            mounted.assert_warm(planted);
        }
        let calls = mounted.hostile.journal().len();
        assert_eq!(mounted.asked(|| missing(&tree)).0, 100);
        let calls = mounted.hostile.journal().split_off(calls);
        assert_eq!(calls.iter().filter(|one| one.call == Call::Lookup).count(), 100);
        assert_eq!(mounted.asked(|| missing(&tree)).0, 0);
        assert_eq!(mounted.mount.statistics().missing, 300);
        tree.read();
    }
    assert_eq!(mounted.clean("tree", Clean::Pages).kernel().missing, 0);
    mounted.end();
}

/// Where no name can ever appear, negative entries are dropped, and the directories with them.
#[test]
fn missing_names_keep_no_directory_of_a_store_that_never_changes() {
    let hostile = store(Opens::Stateless);
    let before = root(&vfs_over(&hostile, VfsConfig::default()));
    before.create_directory("tree", 0o755).unwrap();
    before.create_directory("tree/sub", 0o755).unwrap();
    drop(before);
    let Some(mounted) = Mounted::over(hostile.claiming(|can| can.read_only = true)) else { return };
    let tree = mounted.path("tree");
    let missing = || {
        assert_missing(&tree, 0..50);
        assert_missing(&tree.join("sub"), 0..50);
    };
    assert_eq!((mounted.asked(missing).0, mounted.asked(missing).0), (102, 0));
    let report = mounted.clean("tree", Clean::Names);
    assert_eq!((report.kernel().missing, report.kernel().held), (100, 1));
    // A kernel without a processor for a while evicts after the report: seen in 1 of 6 runs beside a load of 12.
    assert!(report.kernel().let_go <= directories(&report, 1));
    let expected = (0, 2 - directories(&report, 2));
    let now = || (mounted.mount.statistics().missing, mounted.mount.statistics().nodes);
    let limit = Instant::now() + Duration::from_secs(20);
    while now() != expected && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(now(), expected);
    assert_eq!(mounted.asked(missing).0, 100 + directories(&report, 2));
    mounted.end();
}

/// The record has a bound: beyond it the kernel is asked to expire the oldest.
#[test]
fn the_oldest_missing_names_are_asked_again_when_there_are_too_many() {
    const ROOM: u64 = 16_384;
    let Some(mounted) = Mounted::new() else { return };
    mounted.plant("tree", 4);
    let tree = mounted.path("tree");
    let asked = |names: std::ops::Range<u64>| {
        let asked = mounted.asked(|| assert_missing(&tree, names)).0;
        // A cleaning of any directory waits for the notices.
        mounted.clean("tree/sub", Clean::Names);
        asked
    };
    assert_eq!(asked(0..ROOM + 10), ROOM + 10);
    assert_eq!(mounted.mount.statistics().missing, ROOM);
    assert_eq!(asked(ROOM..ROOM + 10), 0);
    assert_eq!((asked(0..10), asked(20..30), asked(10..20)), (10, 0, 10));
    let report = mounted.clean("tree", Clean::Names);
    assert_eq!((report.kernel().missing, mounted.mount.statistics().missing), (ROOM, 0));
    assert_eq!(asked(0..ROOM + 10), ROOM + 10);
    mounted.end();
}

/// A name that was missing a moment ago is a directory with a process in it: cleaning never detaches it, also not while
/// the message about the name was in flight.
#[test]
fn names_that_come_and_go_are_never_detached() {
    let Some(mounted) = Mounted::new() else { return };
    mounted.plant("tree", 8);
    let end = Instant::now() + stress_time();
    let seed = seed();
    let done = AtomicBool::new(false);
    let work = AtomicU64::new(0);
    let (mut rounds, mut missing) = (0u64, 0u64);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (mounted, done, work) = (&mounted, &done, &work);
            scope.spawn(move || {
                let mut numbers = Numbers(seed ^ thread);
                while !done.load(Ordering::Relaxed) {
                    let parent = ["tree", "tree/sub"][numbers.below(2) as usize];
                    let path = mounted.path(format!("{parent}/{thread}-{}", numbers.below(3)));
                    assert_missing(&mounted.path(parent), numbers.below(20)..20);
                    assert!(fs::symlink_metadata(&path).is_err());
                    come_and_go(&path, numbers.below(5));
                    assert!(fs::symlink_metadata(&path).is_err());
                    work.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while Instant::now() < end {
            missing += mounted.clean("tree", Clean::Names).kernel().missing;
            rounds += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    let work = work.load(Ordering::Relaxed);
    println!("cleaned {rounds} times, told {missing} names, among {work} that came and went");
    assert!(work > 0 && missing > 0);
    mounted.end();
}

/// Makes `path` in one of several ways, uses it, and removes it.
fn come_and_go(path: &Path, how: u64) {
    let other = path.with_extension("other");
    match how {
        0 | 1 => {
            if how == 0 {
                fs::create_dir(path).unwrap();
            } else {
                fs::create_dir(&other).unwrap();
                fs::rename(&other, path).unwrap();
            }
            // The view of a process in it.
            let inside = fs::File::open(path).unwrap();
            for _ in 0..20 {
                let link = format!("/proc/self/fd/{}", inside.as_raw_fd());
                assert_eq!(fs::read_link(link).unwrap(), path, "it was detached");
                std::thread::yield_now();
            }
            fs::write(path.join("inside"), "x").unwrap();
            fs::remove_file(path.join("inside")).unwrap();
            return fs::remove_dir(path).unwrap();
        }
        2 => fs::write(path, "text").unwrap(),
        3 => {
            fs::write(&other, "text").unwrap();
            fs::hard_link(&other, path).unwrap();
            fs::remove_file(&other).unwrap();
        }
        _ => std::os::unix::fs::symlink("f1", path).unwrap(),
    }
    if how < 4 {
        assert_eq!(fs::read(path).unwrap(), b"text");
    }
    assert!(fs::symlink_metadata(path).is_ok());
    fs::remove_file(path).unwrap();
}

#[test]
fn the_whole_mount_can_be_cleaned() {
    let Some(mounted) = Mounted::new() else { return };
    let (tree, bar) = (mounted.plant("tree", 50), mounted.plant("a/b/c/d/bar", 50));
    let report = mounted.clean(".", Clean::Both);
    assert_eq!(report.kernel().held, 108);
    assert_eq!(report.kernel().let_go, 100 + directories(&report, 8));
    if report.kernel().how == KernelHow::Pruned {
        assert_eq!(mounted.mount.statistics().lookups, 0, "it owes no forget");
    }
    tree.read();
    bar.read();
    mounted.end();
}

/// More than one message, and directories within directories.
#[test]
fn deep_trees_go_from_the_bottom() {
    let Some(mounted) = Mounted::new() else { return };
    let path = (0..40).fold(String::from("tree"), |path, at| format!("{path}/{at}"));
    let bottom = mounted.plant(&path, 700);
    let report = mounted.clean("tree", Clean::Names);
    assert_eq!(report.kernel().held, 741);
    assert_eq!(report.kernel().let_go, 700 + directories(&report, 41));
    bottom.read();
    mounted.end();
}

#[test]
fn open_files_and_current_directories_stay_in_use() {
    let Some(mounted) = Mounted::new() else { return };
    let tree = mounted.plant("tree", 100);
    let mut open = fs::File::open(&tree.files[0]).unwrap();
    let mut first = [0; 100];
    open.read_exact(&mut first).unwrap();
    let script = "cd sub && echo in && read line && readlink /proc/self/cwd && cat f4";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .current_dir(&tree.path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "in\n");

    for what in [Clean::Pages, Clean::Names, Clean::Both] {
        let report = mounted.clean("tree", what);
        if what.has_names() && report.kernel().how == KernelHow::Pruned {
            // The open file, and the directory that it and the process are in.
            assert_eq!(report.kernel().kept, 2, "{report:?}");
        }
        let mut all = Vec::new();
        open.rewind().unwrap();
        open.read_to_end(&mut all).unwrap();
        assert_eq!(all, content(&tree.files[0]), "after {what:?}");
        tree.read();
    }

    mounted.clean("tree", Clean::Both);
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    line.clear();
    said.read_line(&mut line).unwrap();
    assert_eq!(Path::new(line.trim_end()), tree.path.join("sub"));
    let mut rest = Vec::new();
    said.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, content(&tree.path.join("sub/f4")));
    assert!(child.wait().unwrap().success());
    drop(open);
    // Unused now, all of it is evicted.
    let report = mounted.clean("tree", Clean::Names);
    assert_eq!(report.kernel().kept, 1 - directories(&report, 1), "{report:?}");
    mounted.end();
}

/// A process's changes through a mapping are in the kernel alone: they are written before their page is dropped, and
/// the mapping stays usable.
#[test]
fn changes_through_a_mapping_are_not_lost() {
    let Some(mounted) = Mounted::new() else { return };
    let tree = mounted.plant("tree", 20);
    let script = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        mapping = mmap.mmap(file.fileno(), 0)\n\
        mapping[0:5] = b'HELLO'\n\
        print('in', flush=True)\n\
        sys.stdin.readline()\n\
        assert mapping[0:5] == b'HELLO'\n\
        mapping[5:10] = b'WORLD'\n\
        mapping.close()\n";
    for what in [Clean::Pages, Clean::Names, Clean::Both] {
        let file = &tree.files[1];
        fs::write(file, content(file)).unwrap();
        let child = Command::new("python3")
            .args(["-c", script])
            .arg(file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            uvfs_skip::lacking("no python3 to map a file");
            return mounted.end();
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "in\n");
        mounted.clean("tree", what);
        assert!(fs::read(file).unwrap().starts_with(b"HELLO"), "after {what:?}");
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(child.wait().unwrap().success(), "after {what:?}");
        mounted.clean("tree", Clean::Both);
        assert!(fs::read(file).unwrap().starts_with(b"HELLOWORLD"), "after {what:?}");
    }
    mounted.end();
}

/// A listing holds names, too: the kernel's copy is dropped with them, also that of the directory itself.
#[test]
fn listings_are_read_again() {
    let Some(mounted) = Mounted::new() else { return };
    let tree = mounted.plant("tree", 50);
    let list = || assert_eq!(fs::read_dir(&tree.path).unwrap().count(), 38);
    let lists = || mounted.requests("readdir") + mounted.requests("readdirplus");
    list();
    list();
    let before = lists();
    list();
    assert_eq!(lists(), before, "the listing is cached");
    mounted.clean("tree", Clean::Names);
    list();
    assert!(lists() > before);
    mounted.end();
}

/// The kernel drops pages only when a READ in flight is answered: that takes no reader and no lock.
#[test]
fn a_read_in_flight_delays_the_cleaning_and_nothing_else() {
    let Some(mounted) = Mounted::new() else { return };
    let tree = mounted.plant("tree", 20);
    mounted.clean("tree", Clean::Both);
    tree.stat();
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Read).nth(1), hold));
    std::thread::scope(|scope| {
        let reads =
            scope.spawn(|| assert_eq!(fs::read(&tree.files[1]).unwrap(), content(&tree.files[1])));
        gate.wait_for(1);
        let cleans = scope.spawn(|| mounted.clean("tree", Clean::Pages));
        // Everything else continues, in the same directory, too.
        for round in 0..20 {
            fs::write(mounted.path(format!("tree/new{round}")), "x").unwrap();
            assert!(fs::metadata(mounted.path("tree/missing")).is_err());
            tree.stat();
        }
        gate.open();
        reads.join().unwrap();
        assert!(cleans.join().unwrap().kernel().files >= 20);
    });
    tree.read();
    mounted.end();
}

/// A lookup waits in the store, and the kernel holds the directory for it: names are cleaned all the same.
#[test]
fn a_lookup_in_flight_does_not_delay_pruning() {
    let Some(mounted) = Mounted::new() else { return };
    let tree = mounted.plant("tree", 20);
    // We made the directory and know its missing names without the store.
    mounted.clean("tree", Clean::Names);
    tree.stat();
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Lookup).name("slow"), hold));
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| fs::metadata(tree.path.join("slow")).is_err());
        gate.wait_for(1);
        let (send, done) = mpsc::channel();
        let (mounted, gate) = (&mounted, &gate);
        scope.spawn(move || {
            let _ = send.send(mounted.clean("tree", Clean::Names).kernel());
        });
        let answer = done.recv_timeout(Duration::from_secs(20));
        gate.open();
        assert!(asks.join().unwrap());
        match answer {
            Ok(kernel) if kernel.how == KernelHow::Pruned => {
                assert!(kernel.let_go >= 20, "{kernel:?}");
            }
            Ok(_) => {}
            // By name it has to wait, as the kernel takes the directory's lock.
            Err(_) => assert_eq!(done.recv().unwrap().how, KernelHow::Entries),
        }
    });
    tree.read();
    mounted.end();
}

#[test]
fn cleanings_of_one_mount_wait_for_each_other() {
    let Some(mounted) = Mounted::new() else { return };
    let planted: Vec<_> = (0..8).map(|at| mounted.plant(&format!("d{at}"), 40)).collect();
    let cleaner = mounted.mount.cleaner();
    std::thread::scope(|scope| {
        for one in &planted {
            let (cleaner, root) = (cleaner.clone(), &mounted.root);
            let name = one.path.file_name().unwrap().to_str().unwrap();
            scope.spawn(move || {
                let directory = root.open_directory(name).unwrap();
                let mut go_on = |_| ControlFlow::Continue(());
                let report =
                    cleaner.clean(directory.node(), Clean::Both, Dirty::Skip, &mut go_on).unwrap();
                assert_eq!((report.kernel().held, report.interrupted), (41, false));
                assert_eq!(report.kernel().let_go, 40 + directories(&report, 1));
            });
        }
    });
    assert_eq!(mounted.mount.statistics().cleans, 8);
    planted.iter().for_each(Planted::read);
    let directory = mounted.root.open_directory("d0").unwrap();
    mounted.end();
    let mut go_on = |_| ControlFlow::Continue(());
    let error = cleaner.clean(directory.node(), Clean::Both, Dirty::Skip, &mut go_on).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

/// All threads work in the directory that is being cleaned: nothing hangs, nothing fails wrongly, no byte is wrong, and
/// the counts return.
#[test]
fn a_directory_in_use_is_cleaned_over_and_over() {
    for opens in [Opens::Stateless, Opens::Tracked] {
        let Some(mounted) = Mounted::with(opens) else { return };
        stress(&mounted);
        mounted.end();
    }
}

fn stress(mounted: &Mounted) {
    let (tree, outside) = (mounted.plant("tree", 64), mounted.plant("outside", 64));
    let end = Instant::now() + stress_time();
    let seed = seed();
    let done = AtomicBool::new(false);
    let work = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (tree, done, work) = (&tree, &done, &work);
            scope.spawn(move || {
                let mut numbers = Numbers(seed ^ thread);
                let own = tree.path.join(format!("sub/own-{thread}"));
                let other = tree.path.join(format!("own-{thread}"));
                while !done.load(Ordering::Relaxed) {
                    let file = numbers.of(&tree.files);
                    match numbers.below(5) {
                        0 => assert!(fs::metadata(file).unwrap().is_file()),
                        1 => assert_eq!(fs::read(file).unwrap(), content(file)),
                        2 => {
                            let missing = tree.path.join(format!("no-{}", numbers.below(20)));
                            assert!(fs::metadata(missing).is_err());
                        }
                        3 => assert!(fs::read_dir(&tree.path).unwrap().count() >= 49),
                        _ => {
                            let text = numbers.below(u64::MAX).to_string().repeat(500);
                            fs::write(&own, &text).unwrap();
                            fs::rename(&own, &other).unwrap();
                            assert_eq!(fs::read_to_string(&other).unwrap(), text);
                            assert!(fs::metadata(&own).is_err());
                            fs::remove_file(&other).unwrap();
                        }
                    }
                    work.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut rounds = 0u64;
        while Instant::now() < end {
            for what in [Clean::Pages, Clean::Names, Clean::Both] {
                mounted.clean("tree", what);
                rounds += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
        println!("cleaned {rounds} times among {} operations", work.load(Ordering::Relaxed));
        assert!(rounds >= 3);
    });
    assert!(work.load(Ordering::Relaxed) > 0);
    tree.read();
    // In so long a time the kernel may have taken pages for something else.
    let (lookups, _) = mounted.asked(|| outside.read());
    assert_eq!(lookups, 0, "another directory was cleaned");
}
