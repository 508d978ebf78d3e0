//! Mounts that no `uvfs mount` serves: a program that uses the library, and one that hangs.
//!
//! A first user of the library was told by `uvfs stat` that his mount was dead and to run `uvfs unmount`, which detached
//! it under the feet of a process inside and returned 0. No control socket is not a dead daemon.

use crate::common::{Place, can_mount, eventually, is_mounted, run};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_fuse::{Mount, MountOptions};
use uvfs_vfs::{Vfs, VfsConfig};

fn library_mount(place: &Place) -> Mount {
    let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
    Mount::start(vfs, &place.mountpoint, MountOptions::default()).unwrap()
}

/// What `uvfs stat` says of the mount at `place`.
fn state(place: &Place) -> String {
    let listing = run(&["stat"]).stdout;
    let ours = listing.lines().find_map(|line| line.strip_prefix(&format!("{}  ", place.mnt())));
    ours.unwrap_or_else(|| panic!("not listed in\n{listing}")).to_string()
}

#[test]
fn a_mount_of_the_library_is_not_called_dead_and_not_torn_away() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = library_mount(&place);
    assert_eq!(state(&place), "uvfs  served without a control socket");
    let outcome = run(&["stat", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("has no control socket"), "{outcome:?}");
    let mut held = File::create_new(place.mountpoint.join("held")).unwrap();
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let us = format!("busy, in use by {} (", std::process::id());
    assert!(outcome.stderr.contains(&us) && outcome.stderr.contains("--lazy"), "{outcome:?}");
    assert!(is_mounted(&place.mountpoint));
    held.write_all(b"still served").unwrap();
    drop(held);
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint));
    mount.wait();
}

#[test]
fn a_mount_of_the_library_is_detached_when_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = library_mount(&place);
    let held = File::create_new(place.mountpoint.join("held")).unwrap();
    let outcome = run(&["unmount", "--lazy", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint) && !mount.ended());
    drop(held);
    mount.wait();
}

/// Nothing reads the requests of this mount, so that whoever asks it anything waits.
#[test]
fn a_mount_that_does_not_answer_hangs_nobody() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("hung", &place.mountpoint, "fuse.uvfs", flags, options.as_c_str())
        .unwrap();
    assert_eq!(state(&place), "hung  not answering");
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("does not answer"), "{outcome:?}");
    assert!(is_mounted(&place.mountpoint));
    drop(device);
    eventually("the kernel knows that it is dead", || {
        rustix::fs::statfs(&place.mountpoint)
            .is_err_and(|errno| errno == rustix::io::Errno::NOTCONN)
    });
    assert_eq!(state(&place), "hung  dead");
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint));
    let _ = rustix::mount::unmount(&place.mountpoint, UnmountFlags::DETACH);
    assert_eq!(fs::read_dir(&place.mountpoint).unwrap().count(), 0);
}
