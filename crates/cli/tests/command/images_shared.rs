//! Images with other users: devices that the kernel has mounted, files that are removed or cut under a mount, and a
//! mount right after the end of another one.

use crate::common::{Place, can_mount, eventually, is_mounted, run, uvfs, wait};
use crate::images::{done, refused, text};
use crate::images_written::{created, sound};
use rustix::mount::UnmountFlags;
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Command;

/// A loop device, detached when dropped.
struct Loop(String);

impl Loop {
    /// `None`, with a note, if there are none.
    fn over(image: &Path) -> Option<Self> {
        match Command::new("losetup").args(["--find", "--show"]).arg(image).output() {
            Ok(made) if made.status.success() => {
                Some(Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
            }
            other => {
                uvfs_skip::lacking(format_args!("losetup: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A block device that the kernel had mounted was opened for writing: both wrote, and the file system was destroyed. It is
/// refused by the mountpoint, and a device that uvfs has cannot be mounted by the kernel.
#[test]
fn a_device_is_written_by_the_kernel_or_by_us_and_never_by_both() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("loop devices are root's");
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "32M") else { return };
    let Some(device) = Loop::over(&image) else { return };
    let theirs = place.source.clone();
    let kernel_mounts = || {
        let mounted = Command::new("mount").args(["-t", "ext4", &device.0]).arg(&theirs).output();
        mounted.is_ok_and(|done| done.status.success())
    };
    if !kernel_mounts() {
        return uvfs_skip::lacking("the kernel mounts no image here");
    }
    let message = format!("the kernel has it mounted on {}; unmount that first", text(&theirs));
    refused(&["mount", &device.0, place.mnt()], &message);
    fs::write(theirs.join("file"), "the kernel's").unwrap();
    rustix::mount::unmount(&theirs, UnmountFlags::empty()).unwrap();
    place.mount_daemon(&device.0, &[]);
    assert_eq!(fs::read(place.mountpoint.join("file")).unwrap(), b"the kernel's");
    assert!(!kernel_mounts(), "it is ours");
    refused(&["mount", &device.0, text(&theirs)], "it is mounted on ");
    done(&["unmount", place.mnt()]);
    assert!(kernel_mounts());
    rustix::mount::unmount(&theirs, UnmountFlags::empty()).unwrap();
    sound(&image);
}

/// Bug: the file of an image was removed, replaced or cut under its mount: writing, `fsync` and `uvfs unmount`
/// succeeded, and all was lost. Now writers get an error, even without a later write, and so do `uvfs stat` and `uvfs
/// unmount`.
#[test]
fn an_image_that_goes_away_under_its_mount_is_noticed() {
    if !can_mount() {
        return;
    }
    type Harm = fn(&Path);
    let harms: [(Harm, &str); 3] = [
        (|image| fs::remove_file(image).unwrap(), "removed or replaced"),
        (
            |image| {
                fs::write(image.with_extension("new"), "another").unwrap();
                fs::rename(image.with_extension("new"), image).unwrap();
            },
            "removed or replaced",
        ),
        (
            |image| File::options().write(true).open(image).unwrap().set_len(2 << 20).unwrap(),
            "was cut to 2097152 bytes",
        ),
    ];
    for (harm, message) in harms {
        let place = Place::new();
        let Some(image) = created(&place, "disk.img", "32M") else { return };
        let log = place.source.join("log");
        let log_file = format!("--log-file={}", text(&log));
        place.mount_daemon(text(&image), &["--commit=100ms", &log_file]);
        let file = File::create(place.mountpoint.join("file")).unwrap();
        file.sync_all().unwrap();
        harm(&image);
        let is_logged = || fs::read_to_string(&log).unwrap().contains(message);
        eventually("the log says it", is_logged);
        assert!(file.sync_all().is_err(), "{message}");
        assert!(fs::write(place.mountpoint.join("more"), "more").is_err(), "{message}");
        let summary = done(&["stat", place.mnt()]).stdout;
        assert_eq!(
            summary.contains("source now           removed"),
            message.starts_with("removed")
        );
        drop(file);
        let outcome = run(&["unmount", place.mnt()]);
        assert_eq!(outcome.code, Some(1), "{message}: {outcome:?}");
        assert!(!is_mounted(&place.mountpoint));
    }
}

/// Bug: `umount` returns while the daemon still commits and makes its image clean. A mount of the same image right
/// after it was refused; now it waits, and prints that.
#[test]
fn a_mount_waits_for_the_end_of_the_last_one() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("umount(2) is root's");
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "32M") else { return };
    let daemon = place.mount_daemon(text(&image), &[]);
    fs::write(place.mountpoint.join("file"), "contents").unwrap();
    // The daemon is in its last moments for as long as it takes.
    kill_process(daemon, Signal::STOP).unwrap();
    rustix::mount::unmount(&place.mountpoint, UnmountFlags::empty()).unwrap();
    let mut again = uvfs();
    let mut again = again.args(["mount", text(&image), place.mnt(), "--daemon"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(again.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let pid = daemon.as_raw_nonzero();
    assert!(line.contains(&format!("waiting for the end of its last mount (pid {pid})")), "{line}");
    kill_process(daemon, Signal::CONT).unwrap();
    assert!(wait(&mut again).success());
    assert_eq!(fs::read(place.mountpoint.join("file")).unwrap(), b"contents");
    done(&["unmount", place.mnt()]);
    sound(&image);
}
