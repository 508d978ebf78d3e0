//! Floor: through the kernel. The control directory of a mount: its visibility, its permitted writers, and its effects.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack. Every mount has a watchdog: a test that hangs aborts the
//! FUSE connection and unmounts before it ends the process. Other users are threads that gave up their privileges.

use super::mount::eventually;
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Hostile, Watchdog, hostile, unmount_idle, vfs_over};
use uvfs_vfs::{Opens, PageCaching, VfsConfig, Waits};

const USER: u32 = 65534;
const STRANGER: u32 = 65533;

/// A mounted store: `/own` of `USER`, with a file `f`, a directory `sub` of user 0 with a file `f`, and a link
/// `link` to it; `/other` of user 0 with a file `f`.
struct Mounted {
    hostile: Hostile,
    mount: Option<Mount>,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    /// `None`, with a note, where nothing can be mounted.
    fn new() -> Option<Self> {
        Self::with(store(), MountOptions::default())
    }

    fn with(hostile: Hostile, options: MountOptions) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let watchdog =
            Watchdog::with_rescue(Duration::from_secs(90), move || abort_and_unmount(&path));
        let vfs = vfs_over(&hostile, VfsConfig::default());
        let options =
            MountOptions { readers: options.readers.or(Some(2)), allow_other: true, ..options };
        let mount = Mount::start(vfs, directory.path(), options).unwrap();
        let mounted = Self { hostile, mount: Some(mount), directory, _watchdog: watchdog };
        for name in ["own", "own/sub", "other"] {
            fs::create_dir(mounted.path(name)).unwrap();
            fs::write(mounted.path(name).join("f"), "content").unwrap();
        }
        std::os::unix::fs::symlink("sub", mounted.path("own/link")).unwrap();
        chown(mounted.path("own"), Some(USER), Some(USER)).unwrap();
        Some(mounted)
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.path().join(name)
    }

    fn drop_caches(&self) -> PathBuf {
        self.path(".uvfs/drop_caches")
    }

    /// The errno of a request, written as a shell writes it.
    fn ask(&self, request: impl AsRef<[u8]>) -> i32 {
        errno(fs::write(self.drop_caches(), request))
    }

    fn ask_as(&self, uid: u32, request: &str) -> i32 {
        as_user(uid, || self.ask(request))
    }

    fn lookups(&self) -> u64 {
        let requests = self.mount.as_ref().unwrap().statistics().requests;
        requests.iter().find(|one| one.request == "lookup").map_or(0, |one| one.count)
    }

    fn end(mut self) {
        let mount = self.mount.take().unwrap();
        unmount_idle(|| mount.unmount(Unmount::Idle));
        mount.wait();
        let statistics = mount.statistics();
        assert_eq!((statistics.files, statistics.panics), (0, 0));
        assert_eq!(statistics.forgotten_too_often, 0);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            abort(self.directory.path());
            drop(mount);
        }
    }
}

/// Calls may wait, so that all threads of a mount are in play; pages are cached in the core.
fn store() -> Hostile {
    hostile().claiming(|can| {
        can.waits = Waits::Sometimes;
        can.caching = PageCaching::Core;
        can.opens = Opens::Tracked;
    })
}

/// Aborts the connection, in any state of the daemon.
fn abort(path: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = table.lines().find(|line| line.split(' ').nth(4) == path.to_str());
    let device = line.and_then(|line| line.split(' ').nth(2)?.split(':').nth(1));
    let Some(minor) = device else { return };
    let write = |control: &Path| fs::write(control.join(minor).join("abort"), "1").is_ok();
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

fn abort_and_unmount(path: &Path) {
    abort(path);
    let _ = uvfs_fuse::unmount(path, Unmount::Lazy);
}

/// Runs `action` on a thread of user `uid`.
fn as_user<T: Send>(uid: u32, action: impl FnOnce() -> T + Send) -> T {
    let run = || {
        // Only this thread, and for good: it ends with the scope.
        let group = rustix::process::Gid::from_raw(uid);
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        let user = rustix::process::Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        action()
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap())
}

fn errno<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().unwrap_or(-1))
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn it_is_found_by_name_and_not_listed() {
    let Some(mounted) = Mounted::new() else { return };
    assert_eq!(names(mounted.directory.path()), ["other", "own"]);
    let directory = fs::symlink_metadata(mounted.path(".uvfs")).unwrap();
    assert_eq!((directory.mode(), directory.uid()), (0o040_555, 0));
    assert_eq!(names(&mounted.path(".uvfs")), ["drop_caches"]);
    let file = fs::symlink_metadata(mounted.drop_caches()).unwrap();
    assert_eq!((file.mode(), file.uid(), file.len()), (0o100_222, 0, 0));
    assert_ne!(file.ino(), directory.ino());
    assert_eq!(errno(fs::metadata(mounted.path(".uvfs/other"))), libc::ENOENT);
    // Once more, now that the kernel knows it.
    assert_eq!(names(mounted.directory.path()), ["other", "own"]);
    let totals = rustix::fs::statfs(mounted.drop_caches()).unwrap();
    assert!(totals.f_blocks > 0);
    mounted.end();
}

#[test]
fn it_is_written_as_shells_write_and_never_read() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.drop_caches();
    for redirect in [">", ">>", ">|"] {
        let command = format!("echo 1:/own {redirect} {}", path.display());
        for round in 0..2 {
            let shell = std::process::Command::new("sh").args(["-c", &command]).status().unwrap();
            assert!(shell.success(), "{command}, {round}");
            assert_eq!(fs::metadata(&path).unwrap().len(), 0, "{command}, {round}");
        }
    }
    assert_eq!(errno(File::open(&path)), libc::EACCES);
    let both = OpenOptions::new().read(true).write(true).open(&path);
    assert_eq!(errno(both), libc::EACCES);
    assert_eq!(errno(as_user(USER, || File::open(&path))), libc::EACCES);
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(file.write(b"1:/own\n").unwrap(), 7);
    file.sync_all().unwrap();
    file.set_len(0).unwrap();
    assert_eq!(file.write_at(b"2:/own", 0).unwrap(), 6);
    assert_eq!(errno(file.write(b"1:/own\n")), libc::EINVAL, "a second one further on");
    assert_eq!(errno(file.read(&mut [0; 8])), libc::EBADF);
    drop(file);
    mounted.end();
}

#[test]
fn every_refusal_has_its_errno() {
    let Some(mounted) = Mounted::new() else { return };
    let check = |request: &[u8], expected| {
        assert_eq!(mounted.ask(request), expected, "{}", request.escape_ascii());
    };
    let form: [&[u8]; 11] = [
        b"\n",
        b"0",
        b"4:/own",
        b"1 :/own",
        b"11",
        b"1:",
        b"1:own",
        b"1:/own\0",
        b"1:/own\n\n",
        b"1:/own/../other",
        b"drop",
    ];
    for request in form {
        check(request, libc::EINVAL);
    }
    let long = format!("1:/{}", "a/".repeat(3000));
    check(long.as_bytes(), libc::EINVAL);
    check(&[b'1'; 3 << 20], libc::EINVAL);
    check(b"1:/nothing", libc::ENOENT);
    check(b"3:/own/sub/nothing/at/all", libc::ENOENT);
    check(b"1:/own/f", libc::EINVAL);
    check(b"1:/own/link", libc::EINVAL);
    check(b"1:/own/link/x", libc::EINVAL);
    check(b"1:/.uvfs", libc::EINVAL);
    check(b"1:/.uvfs/drop_caches", libc::EINVAL);
    for request in ["1", "2", "3\n", "1:/", "3:/own", "2:/own//./sub/\n"] {
        check(request.as_bytes(), 0);
    }
    mounted.end();
}

#[test]
fn users_clean_what_is_theirs() {
    let Some(mounted) = Mounted::new() else { return };
    for what in 1..=3 {
        assert_eq!(mounted.ask_as(USER, &format!("{what}:/own\n")), 0);
        for other in ["/own/sub", "/other", "/"] {
            let request = format!("{what}:{other}");
            assert_eq!(mounted.ask_as(USER, &request), libc::EPERM, "{request}");
        }
        assert_eq!(mounted.ask_as(USER, &what.to_string()), libc::EPERM);
        assert_eq!(mounted.ask_as(STRANGER, &format!("{what}:/own")), libc::EPERM);
    }
    // Users need search permission on the path to their own directory.
    chown(mounted.path("own/sub"), Some(STRANGER), None).unwrap();
    assert_eq!(mounted.ask_as(STRANGER, "1:/own/sub"), 0);
    fs::set_permissions(mounted.path("own"), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(mounted.ask_as(STRANGER, "1:/own/sub"), libc::EACCES);
    // The opener's rights are checked, too.
    let open = || OpenOptions::new().write(true).open(mounted.drop_caches()).unwrap();
    assert_eq!(errno(as_user(STRANGER, open).write(b"1:/other")), libc::EPERM);
    let mut by_root = open();
    assert_eq!(errno(as_user(STRANGER, || by_root.write(b"1:/other"))), libc::EPERM);
    assert_eq!(by_root.write(b"1:/other").unwrap(), 8);
    drop(by_root);
    mounted.end();
}

#[test]
fn nothing_in_it_can_be_changed() {
    let Some(mounted) = Mounted::new() else { return };
    let (directory, file) = (mounted.path(".uvfs"), mounted.drop_caches());
    let denied = |errno, what| assert_eq!(errno, libc::EPERM, "{what}");
    denied(errno(fs::rename(mounted.path("own"), &directory)), "a directory onto it");
    denied(errno(fs::rename(&directory, mounted.path("new"))), "it to elsewhere");
    denied(errno(fs::rename(mounted.path("own/f"), &file)), "a file onto its file");
    denied(errno(fs::rename(&file, mounted.path("new"))), "its file to elsewhere");
    denied(errno(fs::hard_link(&file, mounted.path("new"))), "a link to its file");
    denied(errno(fs::hard_link(mounted.path("own/f"), directory.join("new"))), "a link in it");
    denied(errno(fs::remove_file(&file)), "unlink");
    denied(errno(fs::remove_dir(&directory)), "rmdir");
    denied(errno(fs::write(directory.join("new"), "")), "create");
    denied(errno(fs::create_dir(directory.join("new"))), "mkdir");
    denied(errno(std::os::unix::fs::symlink("x", directory.join("new"))), "symlink");
    for path in [&directory, &file] {
        let mode = fs::Permissions::from_mode(0o777);
        denied(errno(fs::set_permissions(path, mode)), "chmod");
        denied(errno(chown(path, Some(USER), None)), "chown");
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(path, "trusted.x", b"x", flags);
        denied(set.err().map_or(0, |error| error.raw_os_error()), "setxattr");
    }
    let grow = OpenOptions::new().write(true).open(&file).unwrap().set_len(1);
    denied(errno(grow), "truncate");
    assert_eq!(names(&directory), ["drop_caches"]);
    assert_eq!(names(mounted.directory.path()), ["other", "own"]);
    mounted.end();
}

/// The kernel finds it before it asks to make it, and refuses every write where all is read-only.
#[test]
fn it_cannot_be_made_again_nor_written_on_a_read_only_mount() {
    let Some(mounted) = Mounted::new() else { return };
    for _ in 0..2 {
        assert_eq!(errno(fs::create_dir(mounted.path(".uvfs"))), libc::EEXIST);
    }
    let mut exclusive = OpenOptions::new();
    exclusive.write(true).create_new(true);
    assert_eq!(errno(exclusive.open(mounted.path(".uvfs"))), libc::EEXIST);
    assert_eq!(names(mounted.directory.path()), ["other", "own"]);
    let store = mounted.hostile.clone();
    mounted.end();

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let _watchdog =
        Watchdog::with_rescue(Duration::from_secs(90), move || abort_and_unmount(&path));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let vfs = vfs_over(&store, VfsConfig::default());
    let mount = Mount::start(vfs, directory.path(), options).unwrap();
    let file = directory.path().join(".uvfs/drop_caches");
    assert_eq!(fs::symlink_metadata(&file).unwrap().mode(), 0o100_222);
    assert_eq!(errno(fs::write(&file, "1:/own")), libc::EROFS);
    assert_eq!(errno(fs::create_dir(directory.path().join(".uvfs"))), libc::EEXIST);
    assert_eq!(mount.statistics().cleans, 0);
    unmount_idle(|| mount.unmount(Unmount::Idle));
    mount.wait();
}

/// Entries below the directory are looked up again, by the kernel and in the store, and no others are.
#[test]
fn a_write_cleans_its_directory_and_no_other() {
    let Some(mounted) = Mounted::new() else { return };
    let read = |name: &str| {
        let (calls, lookups) = (mounted.hostile.journal().len(), mounted.lookups());
        assert_eq!(fs::read(mounted.path(name)).unwrap(), b"content");
        let calls: Vec<_> = mounted.hostile.journal().split_off(calls);
        let made = |call| calls.iter().any(|one| one.call == call);
        (mounted.lookups() > lookups, made(Call::Lookup), made(Call::Read))
    };
    let cached = (false, false, false);
    for name in ["own/f", "own/sub/f", "other/f"] {
        read(name);
        assert_eq!(read(name), cached);
    }
    assert_eq!(mounted.ask("3:/own\n"), 0);
    assert_eq!(read("other/f"), cached);
    assert_eq!(read("own/f"), (true, true, true));
    assert_eq!(read("own/sub/f"), (true, true, true));
    assert_eq!(read("own/f"), cached);
    assert_eq!(mounted.ask("3:/own/sub"), 0);
    assert_eq!(read("own/f"), cached);
    assert_eq!(read("own/sub/f"), (true, true, true));
    // Pages alone: no name is looked up.
    assert_eq!(mounted.ask("1:/other"), 0);
    assert_eq!(read("own/f"), cached);
    assert_eq!(read("other/f"), (false, false, true));
    mounted.end();
}

#[test]
fn requests_are_served_while_the_store_keeps_a_reader() {
    let Some(mounted) = Mounted::new() else { return };
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Totals), hold));
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| rustix::fs::statfs(mounted.directory.path()).is_ok());
        gate.wait_for(1);
        for _ in 0..20 {
            assert_eq!(mounted.ask("3:/own"), 0);
            assert_eq!(fs::read(mounted.path("own/sub/f")).unwrap(), b"content");
        }
        gate.open();
        assert!(slow.join().unwrap());
    });
    mounted.end();
}

/// A store that never waits runs everything on the only reader except this: that reader has to receive the kernel's
/// forgets before the write returns.
#[test]
fn a_cleaning_leaves_the_only_reader_free() {
    let hostile = store().claiming(|can| can.waits = Waits::Never);
    let options = MountOptions { readers: Some(1), ..MountOptions::default() };
    let Some(mounted) = Mounted::with(hostile, options) else { return };
    assert_eq!(fs::read(mounted.path("own/f")).unwrap(), b"content");
    assert_eq!(mounted.ask("3:/own"), 0);
    let statistics = mounted.mount.as_ref().unwrap().statistics();
    assert_eq!(statistics.cleans, 1);
    assert!(statistics.clean_let_go > 0, "{statistics:?}");
    mounted.end();
}

/// A killed writer does not wait for its cleaning, which goes on.
#[test]
fn a_killed_writer_ends_before_its_request_does() {
    let hostile = store();
    let vfs: Arc<_> = vfs_over(&hostile, VfsConfig::default());
    uvfs_tests::root(&vfs).create_directory("slow", 0o755).unwrap();
    drop(vfs);
    let Some(mounted) = Mounted::with(hostile, MountOptions::default()) else { return };
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Lookup).name("slow"), hold));
    let command = format!("exec echo 1:/slow > {}", mounted.drop_caches().display());
    let mut shell = std::process::Command::new("sh").args(["-c", &command]).spawn().unwrap();
    gate.wait_for(1);
    shell.kill().unwrap();
    assert_eq!(shell.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(gate.held() > 0, "it ended when its request did");
    gate.open();
    assert!(eventually(|| mounted.mount.as_ref().unwrap().statistics().cleans == 1));
    mounted.end();
}

/// Concurrent requests, while names are created and removed below: nothing waits for ever, nothing is lost.
#[test]
fn requests_from_many_sides_all_end() {
    let Some(mounted) = Mounted::new() else { return };
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for request in ["3:/own", "2:/", "1"] {
            let mounted = &mounted;
            scope.spawn(move || {
                while Instant::now() < end {
                    assert_eq!(mounted.ask(request), 0, "{request}");
                }
            });
        }
        for name in ["own/x", "own/sub/x", "other/x"] {
            let path = mounted.path(name);
            scope.spawn(move || {
                while Instant::now() < end {
                    fs::write(&path, "text").unwrap();
                    assert_eq!(fs::read(&path).unwrap(), b"text");
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read(mounted.path("own/f")).unwrap(), b"content");
    mounted.end();
}

/// A store without opens, which the kernel learns on the first open: no permission to read the file is checked, and it
/// is empty.
#[test]
fn a_store_without_opens_has_it_too() {
    let hostile = store().claiming(|can| can.opens = Opens::Stateless);
    let Some(mounted) = Mounted::with(hostile, MountOptions::default()) else { return };
    for _ in 0..2 {
        assert_eq!(mounted.ask("1:/own\n"), 0);
        assert_eq!(mounted.ask("1:/nothing"), libc::ENOENT);
        assert_eq!(mounted.ask_as(USER, "3:/own"), 0);
        assert_eq!(mounted.ask_as(USER, "3:/other"), libc::EPERM);
        let mut append = OpenOptions::new().append(true).open(mounted.drop_caches()).unwrap();
        assert_eq!(append.write(b"1:/own\n").unwrap(), 7);
        assert_eq!(append.write(b"1:/own\n").unwrap(), 7);
        assert_eq!(fs::read(mounted.drop_caches()).unwrap(), b"");
        assert_eq!(names(&mounted.path(".uvfs")), ["drop_caches"]);
    }
    mounted.end();
}

#[test]
fn switched_off_it_is_a_name_like_any_other() {
    let options = MountOptions { control_directory: false, ..MountOptions::default() };
    let Some(mounted) = Mounted::with(store(), options) else { return };
    assert_eq!(errno(fs::metadata(mounted.path(".uvfs"))), libc::ENOENT);
    fs::create_dir(mounted.path(".uvfs")).unwrap();
    fs::write(mounted.drop_caches(), "1:/nothing").unwrap();
    assert_eq!(fs::read(mounted.drop_caches()).unwrap(), b"1:/nothing");
    assert_eq!(names(mounted.directory.path()), [".uvfs", "other", "own"]);
    mounted.end();
}

/// The store's object of that name is hidden, also in listings with attributes.
#[test]
fn it_hides_what_the_store_has_by_its_name() {
    let hostile = store();
    let vfs: Arc<_> = vfs_over(&hostile, VfsConfig::default());
    uvfs_tests::root(&vfs).write_file(".uvfs", "of the store").unwrap();
    drop(vfs);
    let Some(mounted) = Mounted::with(hostile, MountOptions::default()) else { return };
    for _ in 0..2 {
        let mut seen = 0;
        for entry in fs::read_dir(mounted.directory.path()).unwrap() {
            assert!(entry.unwrap().metadata().unwrap().is_dir());
            seen += 1;
        }
        assert_eq!(seen, 2);
        assert!(fs::metadata(mounted.path(".uvfs")).unwrap().is_dir());
        assert_eq!(mounted.ask("1:/own"), 0);
    }
    mounted.end();
}

/// Opened without following anything, as a careful program does.
#[test]
fn it_opens_for_careful_programs() {
    let Some(mounted) = Mounted::new() else { return };
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let flags = i32::try_from(flags.bits()).unwrap();
    let opened = OpenOptions::new().write(true).custom_flags(flags).open(mounted.drop_caches());
    opened.unwrap().write_all(b"1:/own").unwrap();
    mounted.end();
}
