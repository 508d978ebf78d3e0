//! The end of a mount whose source does not take all written data.
//!
//! Bug: a write-back mount over a full disk ended silently: exit status 0, a log with "will try again", and files cut
//! off at the source (8 of 8). And a second SIGTERM dropped data that one alone would have written (10 of 10: 3 of 8
//! MiB arrived). So now the end has a verdict: the client that requests it gets the paths of lost files, and a command
//! that lost data fails.

use crate::common::{
    Foreground, LIMIT, Place, can_mount, eventually, finish, is_alive, is_mounted, run,
};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::Signal;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MIB: usize = 1 << 20;

/// A source of 8 MiB in RAM, and a place to mount it.
struct Full {
    place: Place,
    log: PathBuf,
}

impl Full {
    fn new() -> Self {
        let place = Place::new();
        let data: &CStr = c"size=8M";
        rustix::mount::mount("tmpfs", &place.source, "tmpfs", MountFlags::empty(), data)
            .expect("root mounts a tmpfs");
        let log = place.mountpoint.with_file_name("log");
        Self { place, log }
    }

    /// Write-back with a cache far larger than the source; nothing is written before it has to be.
    fn options(&self) -> [&str; 8] {
        let log = self.log.to_str().expect("a plain path");
        let (size, delay) = (["--cache-size", "128M"], ["--write-back-delay", "1h"]);
        ["--page-cache", "write-back", size[0], size[1], delay[0], delay[1], "--log-file", log]
    }

    fn foreground(&self) -> Foreground {
        Foreground::start(&[&[self.place.src(), self.place.mnt()], &self.options()[..]].concat())
    }

    fn daemon(&self) -> rustix::process::Pid {
        self.place.mount_daemon(self.place.src(), &self.options())
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Writes more than the source takes, and closes; the writer gets the error.
    fn overfill(&self, name: &str) {
        let mut file = File::create_new(self.place.mountpoint.join(name)).expect("a fresh name");
        file.write_all(&vec![7; 12 * MIB]).expect("there is room in the cache");
        let full = file.sync_all().expect_err("the source has 8 MiB");
        assert_eq!(full.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    }

    /// The bytes of `name` in the source: not its size, since the end of a file may arrive before its middle.
    fn stored_bytes(&self, name: &str) -> u64 {
        fs::metadata(self.place.source.join(name)).map_or(0, |now| now.blocks() * 512)
    }

    /// The prefix of a message about `name`.
    fn about(&self, name: &str) -> String {
        format!("{}/{name}: ", self.place.mnt())
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        while is_mounted(&self.place.mountpoint) {
            if rustix::mount::unmount(&self.place.mountpoint, UnmountFlags::DETACH).is_err() {
                break;
            }
        }
        let _ = rustix::mount::unmount(&self.place.source, UnmountFlags::DETACH);
    }
}

fn check_lost(text: &str, full: &Full, name: &str) {
    let line = format!("{}lost 4.0 MiB: No space left on device", full.about(name));
    assert!(text.contains(&line), "no {line:?} in\n{text}");
    let whole = format!("did not reach {} and are lost", full.place.src());
    assert!(text.contains(&whole), "no {whole:?} in\n{text}");
}

#[test]
fn an_unmount_names_what_was_lost_and_fails() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    let pid = full.daemon();
    fs::create_dir(full.place.mountpoint.join("deep")).unwrap();
    full.overfill("deep/big");
    let text = run(&["stat", full.place.mnt()]).stdout;
    let row = |name: &str| {
        let row = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
        row.unwrap_or_else(|| panic!("no {name:?} in\n{text}")).trim().to_string()
    };
    assert_eq!(row("dirty bytes"), "4.0 MiB");
    assert_ne!(row("write errors"), "0");
    let outcome = run(&["unmount", full.place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(!is_alive(pid), "unmount returns when the daemon has ended");
    assert!(!is_mounted(&full.place.mountpoint));
    check_lost(&outcome.stderr, &full, "deep/big");
    check_lost(&full.log(), &full, "deep/big");
    assert_eq!(full.stored_bytes("deep/big"), 8 * MIB as u64, "what there was room for");
}

#[test]
fn a_foreground_mount_names_what_it_lost_and_fails() {
    if !can_mount() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let full = Full::new();
        let mount = full.foreground();
        full.overfill("big");
        mount.signal(signal);
        let (status, stderr) = mount.end();
        assert_eq!(status, Some(1), "{signal:?}: {stderr}");
        check_lost(&stderr, &full, "big");
        check_lost(&full.log(), &full, "big");
    }
}

/// The blocks of a file that was removed came free after the last try for the others: even files of some bytes were
/// empty at the source then.
#[test]
fn the_room_of_removed_files_is_used_before_anything_is_lost() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    full.daemon();
    full.overfill("big");
    fs::write(full.place.mountpoint.join("small"), "what matters").unwrap();
    fs::remove_file(full.place.mountpoint.join("big")).unwrap();
    let outcome = run(&["unmount", full.place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{}", full.log());
    assert_eq!(fs::read(full.place.source.join("small")).unwrap(), b"what matters");
}

#[test]
fn a_second_signal_loses_nothing() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    let mount = full.foreground();
    let mut held = File::create_new(full.place.mountpoint.join("held")).unwrap();
    held.write_all(&vec![7; 6 * MIB]).unwrap();
    mount.signal(Signal::TERM);
    eventually("detached", || !is_mounted(&full.place.mountpoint));
    mount.signal(Signal::TERM);
    let (status, stderr) = mount.end();
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("still in use; ended all the same"), "{stderr}");
    let stored = fs::read(full.place.source.join("held")).unwrap();
    assert!(stored == vec![7; 6 * MIB], "{} bytes; {stderr}", stored.len());
    drop(held);
}

#[test]
fn a_second_signal_says_what_would_be_lost_and_a_third_drops_it() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    let mount = full.foreground();
    let mut held = File::create_new(full.place.mountpoint.join("held")).unwrap();
    held.write_all(&vec![7; 12 * MIB]).unwrap();
    mount.signal(Signal::TERM);
    eventually("detached", || !is_mounted(&full.place.mountpoint));
    mount.signal(Signal::INT);
    let would = "would be lost, and are still being written; the next signal drops them";
    eventually("it says what would be lost", || full.log().contains(would));
    eventually("as far as there was room it was written", || {
        full.stored_bytes("held") == 8 * MIB as u64
    });
    // The source has the last bytes a moment before it refuses the next ones: without this the loss had no cause once.
    let refused = held.sync_all().expect_err("the source has 8 MiB");
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    mount.signal(Signal::TERM);
    let (status, stderr) = mount.end();
    assert_eq!(status, Some(1), "{stderr}");
    let line = stderr.lines().find(|line| line.contains(&full.about("held"))).expect("by path");
    assert!(line.contains("not written yet") && stderr.contains(would), "{stderr}");
    check_lost(&stderr, &full, "held");
    drop(held);
}

/// Unwritten data is still being written after the second signal: once there is room, all of it arrives.
#[test]
fn room_that_comes_after_a_second_signal_is_used() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    fs::write(full.place.source.join("ballast"), vec![1; 5 * MIB]).unwrap();
    let mount = full.foreground();
    let mut held = File::create_new(full.place.mountpoint.join("held")).unwrap();
    held.write_all(&vec![7; 6 * MIB]).unwrap();
    mount.signal(Signal::TERM);
    eventually("detached", || !is_mounted(&full.place.mountpoint));
    mount.signal(Signal::TERM);
    eventually("it says what would be lost", || full.log().contains("would be lost"));
    fs::remove_file(full.place.source.join("ballast")).unwrap();
    let (status, stderr) = mount.end();
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("still in use; ended all the same"), "{stderr}");
    assert!(fs::read(full.place.source.join("held")).unwrap() == vec![7; 6 * MIB], "{stderr}");
    drop(held);
}

/// Bug: a daemon without a log file logged to `/dev/null`: the machine had no trace of the loss.
#[test]
fn a_daemon_without_a_log_file_leaves_its_errors_on_the_machine() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    let options = full.options();
    full.place.mount_daemon(full.place.src(), &options[..6]);
    full.overfill("big");
    // No command gets a verdict here.
    rustix::mount::unmount(&full.place.mountpoint, UnmountFlags::empty()).expect("not in use");
    // One log for all daemons of a user, and of all tests.
    let ours = || {
        let log = fs::read_to_string("/run/uvfs/log").unwrap_or_default();
        let ours = log.lines().filter(|line| line.contains(full.place.mnt()));
        ours.collect::<Vec<_>>().join("\n")
    };
    eventually("the log names it", || ours().contains("are lost"));
    check_lost(&ours(), &full, "big");
}

/// In a separate mount namespace, where the test listens on `/dev/log`.
#[test]
fn a_daemon_without_a_log_file_logs_to_syslog() {
    if !can_mount() {
        return;
    }
    let full = Full::new();
    let folder = full.log.parent().expect("a folder");
    let (dev, socket) = (folder.join("dev"), folder.join("syslog"));
    fs::create_dir(&dev).unwrap();
    let syslog = UnixDatagram::bind(&socket).unwrap();
    let script = "set -e
        mount -t tmpfs none \"$DEV\"
        for name in null fuse; do touch \"$DEV/$name\"; mount --bind /dev/$name \"$DEV/$name\"; done
        touch \"$DEV/log\"; mount --bind \"$SOCKET\" \"$DEV/log\"; mount --rbind \"$DEV\" /dev
        \"$UVFS\" mount \"$SOURCE\" \"$MOUNTPOINT\" --daemon --page-cache write-back --write-back-delay 1ms
        yes | head -c 12M > \"$MOUNTPOINT/big\" || true
        \"$UVFS\" unmount \"$MOUNTPOINT\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command.env("DEV", &dev).env("SOCKET", &socket).env("UVFS", env!("CARGO_BIN_EXE_uvfs"));
    command.env("SOURCE", &full.place.source).env("MOUNTPOINT", &full.place.mountpoint);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let line = format!("{}lost ", full.about("big"));
    assert!(outcome.stderr.contains(&line), "{outcome:?}");
    syslog.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = vec![0; 4096];
    loop {
        let count = syslog.recv(&mut bytes).expect("a line about the loss");
        let text = String::from_utf8_lossy(&bytes[..count]);
        // The facility of daemons, 3, and the severity of errors, 3.
        if text.contains(&line) {
            assert!(text.starts_with("<27>") && text.contains(" uvfs["), "{text}");
            return;
        }
    }
}
