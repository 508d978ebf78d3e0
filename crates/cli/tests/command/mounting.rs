//! Mounts for real: ready lines, signals, daemons, reports, busy and dead mounts.
//!
//! Each test is skipped, aloud, where the machine does not let it mount.

use crate::common::{
    Foreground, Place, can_mount, eventually, finish, is_alive, is_mounted, mount_line, run, uvfs,
};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The control socket of the mount at `mountpoint`, by its device number.
fn socket(mountpoint: &Path) -> PathBuf {
    let line = mount_line(mountpoint).expect("mounted");
    Path::new("/run/uvfs").join(line.split(' ').nth(2).expect("a device number"))
}

/// The identity of a socket. Its path is not enough: a mount of another test may get the device number that has just
/// become free, and with it the path, which once failed a test here.
fn identity(socket: &Path) -> Option<(u64, i64)> {
    let seen = fs::metadata(socket).ok()?;
    Some((seen.ino(), seen.ctime_nsec()))
}

fn report(place: &Place) -> serde_json::Value {
    let outcome = run(&["stat", "--json", place.mnt()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).expect("an object")
}

fn unmount(place: &Place) {
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    assert!(!is_mounted(&place.mountpoint));
}

fn kill_9(pid: Pid) {
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    eventually("the daemon is dead", || !is_alive(pid));
}

#[test]
fn a_mount_in_the_foreground_ends_on_each_signal() {
    if !can_mount() {
        return;
    }
    let others = [Signal::QUIT, Signal::USR1, Signal::ALARM, Signal::XCPU];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().chain(others) {
        let place = Place::new();
        let mount = Foreground::start(&["memory:", place.mnt(), "--size", "16M"]);
        let expected = format!("uvfs: memory: mounted on {} (pid ", place.mnt());
        assert!(mount.ready.starts_with(&expected), "{}", mount.ready);
        let end = format!("; Ctrl-C or \"uvfs unmount {}\" ends it\n", place.mnt());
        assert!(mount.ready.ends_with(&end), "{}", mount.ready);
        fs::write(place.mountpoint.join("file"), "text").unwrap();
        assert_eq!(fs::read(place.mountpoint.join("file")).unwrap(), b"text");
        let socket = socket(&place.mountpoint);
        let ours = identity(&socket).expect("the socket of the mount");
        mount.signal(signal);
        assert_eq!(mount.end(), (Some(0), String::new()), "{signal:?}");
        assert!(!is_mounted(&place.mountpoint));
        assert_ne!(identity(&socket), Some(ours));
    }
}

#[test]
fn a_daemon_serves_until_it_is_unmounted_and_everything_is_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let pid = place.mount_daemon(place.src(), &[]);
    fs::write(place.mountpoint.join("file"), vec![7; 3 << 20]).unwrap();
    unmount(&place);
    assert!(!is_alive(pid), "unmount returns when the daemon has ended");
    assert_eq!(fs::read(place.source.join("file")).unwrap(), vec![7; 3 << 20]);
}

#[test]
fn a_daemon_lets_go_of_its_parent() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let pid = place.mount_daemon("memory:", &["--size", "16M"]).as_raw_nonzero();
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link("cwd"), Path::new("/"));
    for descriptor in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(link(descriptor), Path::new("/dev/null"));
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert_eq!(session, pid.to_string(), "a session of its own");
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "no core dumps: {core}");
    unmount(&place);
}

/// Bug: the only message was "the daemon: No such file or directory; serve in the foreground".
#[test]
fn a_machine_without_a_null_device_gets_the_name_of_what_is_missing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // A separate namespace, whose /dev has only the device of FUSE.
    let script = "mount -t tmpfs none /dev && mknod /dev/fuse c 10 229 && exec \"$0\" \"$@\"";
    let mut bare = std::process::Command::new("unshare");
    bare.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_uvfs")]);
    bare.args(["mount", "memory:", place.mnt(), "--daemon"]);
    bare.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let outcome = finish(&mut bare);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(1), ""), "{outcome:?}");
    let expected = "uvfs: /dev/null: No such file or directory; a daemon needs it: \
        `mknod -m 666 /dev/null c 1 3` makes it, or serve in the foreground\n";
    assert_eq!(outcome.stderr, expected);
    assert!(!is_mounted(&place.mountpoint));
}

#[test]
fn a_report_says_what_is_mounted_and_how() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let options =
        ["--read-only", "--attr-timeout", "500ms", "--cache-size", "24M", "--readers", "2"];
    let pid = place.mount_daemon(place.src(), &options);
    let report = report(&place);
    assert_eq!(report["mountpoint"], place.mnt());
    assert_eq!(report["source"], place.src());
    assert_eq!(report["pid"], pid.as_raw_nonzero().get());
    assert_eq!(report["options"]["read_only"], true);
    assert_eq!(report["options"]["attr_timeout"], "500ms");
    assert_eq!(report["core"]["store"], "directory");
    assert_eq!(report["core"]["budget"]["limit_bytes"], 24 << 20);
    assert!(report["core"]["budget"]["overhead_bytes"].as_u64().unwrap() > 1 << 20);
    assert!(report["sandbox"]["system_calls"].as_str().unwrap().ends_with("denied"), "{report}");
    let text = run(&["stat", place.mnt()]).stdout;
    for part in [
        place.mnt(),
        place.src(),
        "directory",
        "read-only",
        "attr-timeout 500ms",
        "names",
        "memory",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let listing = run(&["stat"]).stdout;
    let expected = format!("{}  {}  served", place.mnt(), place.src());
    assert!(listing.lines().any(|line| line == expected), "{listing}");
    let refused = fs::write(place.mountpoint.join("new"), "").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc_erofs()));
    unmount(&place);
}

/// The size of the caches changes while files are open; an impossible change is refused and changes nothing.
#[test]
fn the_memory_of_a_mount_is_changed_while_it_is_used() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "64M"]);
    let set = |setting: &str| run(&["set", place.mnt(), setting]);
    let budget = |field: &str| report(&place)["core"]["budget"][field].as_u64().unwrap();
    let mut kept = File::create_new(place.mountpoint.join("kept")).unwrap();
    let outcome = set("cache-size=1GiB");
    assert_eq!((outcome.code, outcome.stdout + &outcome.stderr), (Some(0), String::new()));
    assert_eq!(budget("limit_bytes"), 1 << 30);
    // Beyond every machine's memory: it was taken without a word.
    let outcome = set("cache-size=128T");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("cache-size=128T: more than the"), "{outcome:?}");
    assert_eq!(budget("limit_bytes"), 1 << 30);
    // No kernel holds missing names; long ones cost much memory here.
    for at in 0..60_000 {
        assert!(!place.mountpoint.join(format!("{at:0>150}")).exists());
    }
    // A debug build of the program takes more of the size, too: 12 MiB.
    let room = (24 << 20) - budget("overhead_bytes");
    let before = budget("metadata_bytes");
    assert!(before > room, "{before} bytes do not fill {room}");
    assert_eq!(set("cache-size=24M").code, Some(0));
    assert_eq!(budget("limit_bytes"), 24 << 20);
    let after = budget("metadata_bytes");
    assert!(after <= room, "{after} of {room} bytes are held");
    let refused = set("cache-size=1M");
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    for part in [place.mnt(), "cache-size=1M", "below the working minimum", "write at least"] {
        assert!(refused.stderr.contains(part), "no {part:?} in {refused:?}");
    }
    assert_eq!(budget("limit_bytes"), 24 << 20, "as it was");
    assert_eq!(set("cache-size=100%").code, Some(0));
    assert!(budget("limit_bytes") > 24 << 20);
    kept.write_all(b"text").unwrap();
    drop(kept);
    assert_eq!(fs::read(place.mountpoint.join("kept")).unwrap(), b"text");
    unmount(&place);
}

fn libc_erofs() -> i32 {
    rustix::io::Errno::ROFS.raw_os_error()
}

#[test]
fn the_mount_table_shows_the_name_and_safe_flags() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "16M", "--name", "scratch"]);
    let line = mount_line(&place.mountpoint).unwrap();
    assert!(line.contains(" - fuse.uvfs scratch "), "{line}");
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    unmount(&place);
}

#[test]
fn only_the_owner_and_root_are_answered() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "16M"]);
    // The other user must be able to reach the program itself. Another process copies it: a child that another test
    // starts meanwhile would have this one's descriptor open for writing, and a file open for writing cannot be run
    // (ETXTBSY).
    let copy = Path::new("/tmp").join(format!("uvfs-test-{}", std::process::id()));
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_uvfs")).arg(&copy).status().unwrap();
    assert!(copied.success(), "{copied}");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let base = place.mountpoint.parent().unwrap();
    fs::set_permissions(base, fs::Permissions::from_mode(0o755)).unwrap();
    for command in [
        &["stat", place.mnt()][..],
        &["unmount", place.mnt()],
        &["set", place.mnt(), "cache-size=1G"],
    ] {
        let mut stranger = Command::new(&copy);
        stranger.args(command).uid(65534).gid(65534);
        stranger.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let outcome = finish(&mut stranger);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("not permitted; run as root"), "{outcome:?}");
    }
    fs::remove_file(copy).unwrap();
    assert!(is_mounted(&place.mountpoint));
    unmount(&place);
}

#[test]
fn a_mountpoint_that_is_taken_is_refused_and_the_first_mount_stays() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "16M"]);
    fs::write(place.mountpoint.join("kept"), "").unwrap();
    let outcome = run(&["mount", "memory:", place.mnt()]);
    assert_eq!(outcome.code, Some(1));
    assert!(outcome.stderr.contains("busy, memory: is mounted here"), "{outcome:?}");
    assert!(place.mountpoint.join("kept").exists());
    unmount(&place);
}

#[test]
fn a_busy_mount_is_not_unmounted_unless_lazily() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let pid = place.mount_daemon("memory:", &["--size", "16M"]);
    let mut held = File::create_new(place.mountpoint.join("held")).unwrap();
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let us = format!("in use by {} (", std::process::id());
    assert!(outcome.stderr.contains("busy") && outcome.stderr.contains(&us), "{outcome:?}");
    assert!(outcome.stderr.contains("--lazy"), "{outcome:?}");
    assert!(is_mounted(&place.mountpoint));
    let lazy = run(&["unmount", "--lazy", place.mnt()]);
    assert_eq!((lazy.code, lazy.stderr.as_str()), (Some(0), ""), "{lazy:?}");
    assert!(!is_mounted(&place.mountpoint));
    held.write_all(b"still served").unwrap();
    assert!(is_alive(pid));
    drop(held);
    eventually("the daemon ends with its last user", || !is_alive(pid));
}

#[test]
fn a_signal_detaches_a_busy_mount_and_serving_goes_on_until_the_last_user() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = Foreground::start(&[place.src(), place.mnt()]);
    let mut held = File::create_new(place.mountpoint.join("held")).unwrap();
    mount.signal(Signal::TERM);
    eventually("detached", || !is_mounted(&place.mountpoint));
    held.write_all(b"after the signal").unwrap();
    drop(held);
    let (status, stderr) = mount.end();
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stderr.contains("busy, in use by") && stderr.contains("detached"), "{stderr}");
    assert_eq!(fs::read(place.source.join("held")).unwrap(), b"after the signal");
}

#[test]
fn a_second_signal_ends_a_detached_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = Foreground::start(&["memory:", place.mnt(), "--size", "16M"]);
    let held = File::create_new(place.mountpoint.join("held")).unwrap();
    mount.signal(Signal::TERM);
    eventually("detached", || !is_mounted(&place.mountpoint));
    mount.signal(Signal::TERM);
    let (status, stderr) = mount.end();
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("still in use; ended all the same"), "{stderr}");
    drop(held);
}

#[test]
fn a_killed_daemon_leaves_a_mount_that_is_explained_and_cleared() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let pid = place.mount_daemon(place.src(), &[]);
    let synced = place.mountpoint.join("synced");
    let mut file = File::create_new(&synced).unwrap();
    file.write_all(b"kept").unwrap();
    file.sync_all().unwrap();
    let socket = socket(&place.mountpoint);
    let ours = identity(&socket);
    kill_9(pid);
    // A request that arrives while the kernel is still cutting the connection is aborted instead.
    eventually("the mount is known to be dead", || {
        let refused = fs::metadata(&place.mountpoint).unwrap_err();
        refused.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error())
    });
    let remedy = format!("run `uvfs unmount {}`", place.mnt());
    for arguments in [&["stat", place.mnt()][..], &["mount", "memory:", place.mnt()]] {
        let outcome = run(arguments);
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains("daemon is gone"), "{outcome:?}");
        assert!(outcome.stderr.contains(&remedy), "{outcome:?}");
    }
    let listing = run(&["stat"]).stdout;
    assert!(listing.contains(&format!("{}  {}  dead", place.mnt(), place.src())), "{listing}");
    // With a file still open, too.
    unmount(&place);
    assert!(ours.is_some() && identity(&socket) != ours);
    assert_eq!(fs::read(place.source.join("synced")).unwrap(), b"kept");
    drop(file);
    place.mount_daemon(place.src(), &[]);
    assert_eq!(fs::read(&synced).unwrap(), b"kept");
    unmount(&place);
}

#[test]
fn a_mount_is_found_by_relative_paths_and_links() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let base = place.mountpoint.parent().unwrap();
    std::os::unix::fs::symlink("mnt", base.join("link")).unwrap();
    for path in ["mnt", "./mnt/", "source/../mnt", "link"] {
        place.mount_daemon("memory:", &["--size", "16M"]);
        let outcome = finish(uvfs().args(["unmount", path]).current_dir(base));
        assert_eq!(outcome.code, Some(0), "{path}: {outcome:?}");
        assert!(!is_mounted(&place.mountpoint));
    }
}

#[test]
fn a_mount_that_another_process_unmounts_ends_its_daemon() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = Foreground::start(&["memory:", place.mnt(), "--size", "16M"]);
    rustix::mount::unmount(&place.mountpoint, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(mount.end(), (Some(0), String::new()));
}

#[test]
fn the_hidden_entries_of_a_nonempty_mountpoint_come_back() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::write(place.mountpoint.join("hidden"), "").unwrap();
    let mount = Foreground::start(&["memory:", place.mnt(), "--size", "16M", "--nonempty"]);
    assert!(!place.mountpoint.join("hidden").exists());
    mount.signal(Signal::INT);
    assert_eq!(mount.end().0, Some(0));
    assert!(place.mountpoint.join("hidden").exists());
}

/// Bug: the room of a removed file is free once the kernel has sent its forget, which it does after `close` and
/// `unlink` have returned. A writer right after them was sometimes refused.
#[test]
fn a_full_memory_file_system_refuses_and_goes_on() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "4M"]);
    let file = place.mountpoint.join("big");
    for _ in 0..20 {
        let full = File::create_new(&file).unwrap().write_all(&vec![1; 8 << 20]).unwrap_err();
        assert_eq!(full.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
        fs::remove_file(&file).unwrap();
        fs::write(&file, "room again").unwrap();
        fs::remove_file(&file).unwrap();
    }
    unmount(&place);
}

#[test]
fn the_sandbox_can_be_turned_off() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon(place.src(), &["--no-sandbox", "--no-passthrough"]);
    let report = report(&place);
    assert_eq!(report["sandbox"]["system_calls"], "unrestricted");
    assert_eq!(report["options"]["passthrough"], false);
    let mut text = String::new();
    fs::write(place.mountpoint.join("file"), "text").unwrap();
    File::open(place.mountpoint.join("file")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    unmount(&place);
}

/// Bug: `--log-level info` logged nothing at all: neither the mount nor its end.
#[test]
fn a_daemon_logs_to_its_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let log = place.source.join("log");
    let options = ["--size", "16M", "--log-file", log.to_str().unwrap(), "--log-level", "info"];
    place.mount_daemon("memory:", &options);
    unmount(&place);
    let log = fs::read_to_string(&log).unwrap();
    let has = |said: String| log.lines().any(|line| line.ends_with(&said));
    assert!(has(format!("memory:: mounted on {}", place.mnt())), "{log}");
    assert!(has(format!("{}: unmounted", place.mnt())), "{log}");
    assert!(log.contains("memory:: cache-size "), "{log}");
}

/// Bug: a mount is in the table before its socket exists, since the socket has the name of the mount's device number. A
/// client in that moment, such as a unit that waits for the mount point, was told that a program without a control
/// socket served it: `uvfs-bench` ended so several times on a loaded machine.
#[test]
fn a_socket_that_comes_a_moment_after_the_mount_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "16M"]);
    let socket = socket(&place.mountpoint);
    let aside = socket.with_extension("aside");
    let late = |arguments: &[&str]| {
        fs::rename(&socket, &aside).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(100));
                fs::rename(&aside, &socket).unwrap();
            });
            let outcome = run(arguments);
            assert_eq!(outcome.code, Some(0), "{arguments:?}: {outcome:?}");
            outcome.stdout
        })
    };
    late(&["stat", place.mnt()]);
    let is_served = |list: &str| {
        list.lines().any(|line| line.contains(place.mnt()) && line.contains("  served"))
            && !list.lines().any(|line| line.contains(place.mnt()) && line.contains("without"))
    };
    for list in [late(&["stat"]), late(&["mounts"])] {
        assert!(is_served(&list), "{list}");
    }
    unmount(&place);
    // It was moved, so the daemon took it for another's.
    let _ = fs::remove_file(&socket);
}

/// An overlay that is unmounted when dropped.
struct Overlay(PathBuf);

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// An overlay of these layers; `None` where there are no overlays.
fn overlay(options: &str, whole: &Path) -> Option<Overlay> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", options]).arg(whole);
    mount.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut mount);
    // The folders for tests may lie on an overlay themselves.
    if outcome.code != Some(0) && outcome.stderr.contains("unknown filesystem type") {
        uvfs_skip::lacking("overlay file systems");
        return None;
    }
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    Some(Overlay(whole.to_owned()))
}

/// Runs `script` in `folder` as user 1000, by `setpriv` with `options`; whether it succeeded. `None` without setpriv.
fn as_user(folder: &Path, options: &[&str], script: &[&str]) -> Option<bool> {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups"]).args(options);
    command.args(script).current_dir(folder);
    match command.output() {
        Ok(output) => Some(output.status.success()),
        Err(error) => {
            uvfs_skip::lacking(format_args!("setpriv: {error}"));
            None
        }
    }
}

/// Bug: a backup user with CAP_DAC_READ_SEARCH read every file of a host directory, and none through a mount of it. The
/// same held for each other capability of a user.
#[test]
fn capabilities_of_a_user_serve_on_a_directory_as_on_the_host() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("root alone gives capabilities to a user");
    }
    let place = Place::new();
    place.mount_daemon(place.src(), &["--allow-other"]);
    let folders = [place.source.join("host"), place.mountpoint.join("mount")];
    for folder in &folders {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(folder.join("closed")).unwrap();
    }
    let acts = [
        ("dac_read_search", "cat secret"),
        ("dac_override", "echo more >> secret && echo new > closed/file && rm closed/file"),
        ("chown", "touch given && chown 5:6 given"),
        ("fowner", "chmod 640 secret && touch -d 2001-01-01 secret"),
        ("mknod", "mknod null c 1 3"),
    ];
    for (capability, script) in acts {
        let capability = format!("+{capability}");
        let with = ["--inh-caps", &capability, "--ambient-caps", &capability];
        let other = ["--inh-caps", "+net_admin", "--ambient-caps", "+net_admin"];
        for folder in &folders {
            fs::write(folder.join("secret"), "secret").unwrap();
            fs::set_permissions(folder.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
            let act = ["sh", "-c", script];
            let Some(without) = as_user(folder, &other, &act) else { return unmount(&place) };
            assert!(!without, "{script} in {folder:?} without the capability");
            assert_eq!(as_user(folder, &with, &act), Some(true), "{script} in {folder:?}");
            fs::remove_file(folder.join("secret")).unwrap();
        }
    }
    let about = |at: usize| {
        let about = fs::symlink_metadata(folders[at].join("given")).unwrap();
        (about.uid(), about.gid(), about.mode())
    };
    assert_eq!((about(0).0, about(0).1), (5, 6));
    assert_eq!(about(0), about(1));
    unmount(&place);
}

/// A user has every capability in a user namespace of its own, and they hold for the objects of that namespace alone. A
/// daemon cannot act in that namespace: on a host directory they do not serve, as docs/semantics.md says. In `memory:`
/// the kernel's check is the only one.
#[test]
fn capabilities_of_a_user_namespace_do_not_serve_on_a_directory() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("another user may use the mount of root alone");
    }
    let memory = Place::new();
    let directory = Place::new();
    fs::set_permissions(&directory.source, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(directory.source.join("theirs"), "private").unwrap();
    fs::set_permissions(directory.source.join("theirs"), fs::Permissions::from_mode(0o600))
        .unwrap();
    memory.mount_daemon("memory:", &["--allow-other"]);
    directory.mount_daemon(directory.src(), &["--allow-other"]);
    fs::set_permissions(&memory.mountpoint, fs::Permissions::from_mode(0o777)).unwrap();
    let end = || [&memory, &directory].into_iter().for_each(unmount);
    let inside = |place: &Place, script: &str| {
        as_user(&place.mountpoint, &[], &["unshare", "-Ur", "sh", "-c", script])
    };
    match inside(&memory, "true") {
        Some(true) => {}
        Some(false) => {
            uvfs_skip::lacking("a user may make no user namespace here");
            return end();
        }
        None => return end(),
    }
    let own = "echo q > file && chmod 0 file && cat file";
    assert_eq!(inside(&memory, own), Some(true));
    assert_eq!(inside(&directory, own), Some(false));
    let closed = "mkdir folder && chmod 555 folder && touch folder/file";
    assert_eq!(inside(&memory, closed), Some(true));
    assert_eq!(inside(&directory, closed), Some(false));
    for script in ["cat theirs", "chown 0:0 theirs", "chmod 644 theirs"] {
        assert_eq!(inside(&directory, script), Some(false), "{script}");
    }
    let about = fs::metadata(directory.source.join("theirs")).unwrap();
    assert_eq!((about.uid(), about.mode() & 0o7777), (0, 0o600));
    end();
}

/// Every mount refused RENAME_WHITEOUT, and an overlay then refused the mount: "missing required features".
#[test]
fn a_mount_is_the_upper_layer_of_an_overlay() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--allow-other"]);
    let layers = tempfile::tempdir().unwrap();
    let [lower, whole] = ["lower", "whole"].map(|name| layers.path().join(name));
    let [upper, work] = ["upper", "work"].map(|name| place.mountpoint.join(name));
    for folder in [&lower, &whole, &upper, &work] {
        fs::create_dir(folder).unwrap();
    }
    for name in ["goes", "moves"] {
        fs::write(lower.join(name), name).unwrap();
    }
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let Some(overlay) = overlay(&options, &whole) else { return };
    fs::remove_file(whole.join("goes")).unwrap();
    fs::rename(whole.join("moves"), whole.join("moved")).unwrap();
    assert_eq!(fs::read_to_string(whole.join("moved")).unwrap(), "moves");
    let listed = fs::read_dir(&whole).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(listed.collect::<Vec<_>>(), ["moved"]);
    for name in ["goes", "moves"] {
        let about = fs::symlink_metadata(upper.join(name)).unwrap();
        assert!(about.file_type().is_char_device() && about.rdev() == 0, "{name}");
        assert_eq!(fs::read_to_string(lower.join(name)).unwrap(), name);
    }
    drop(overlay);
    unmount(&place);
}

/// The kernel stacks two file systems at most. A mount of a plain directory took both levels, so an overlay above it was
/// refused: "maximum fs stacking depth exceeded".
#[test]
fn a_directory_is_the_lower_layer_of_an_overlay() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::write(place.source.join("lower"), "below").unwrap();
    place.mount_daemon(place.src(), &[]);
    let layers = tempfile::tempdir().unwrap();
    let [upper, work, whole] = ["upper", "work", "whole"].map(|name| layers.path().join(name));
    for folder in [&upper, &work, &whole] {
        fs::create_dir(folder).unwrap();
    }
    let options =
        format!("lowerdir={},upperdir={},workdir={}", place.mnt(), upper.display(), work.display());
    let Some(overlay) = overlay(&options, &whole) else { return };
    assert_eq!(fs::read_to_string(whole.join("lower")).unwrap(), "below");
    fs::write(whole.join("lower"), "above").unwrap();
    assert_eq!(fs::read_to_string(place.source.join("lower")).unwrap(), "below");
    assert_eq!(fs::read_to_string(upper.join("lower")).unwrap(), "above");
    assert_eq!(report(&place)["frontend"]["passthrough"], true);
    drop(overlay);
    unmount(&place);
}
