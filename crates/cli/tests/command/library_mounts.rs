//! Mounts that no `uvfs mount` serves: programs that use the library, with a control socket and without, and one that
//! hangs.
//!
//! Bug: `uvfs stat` told a first user of the library that the mount was dead and to run `uvfs unmount`. That detached
//! it while a process was inside, and returned 0. A missing control socket does not prove a dead daemon. And as such a
//! mount had none, no command could query, shrink or clean it, or report unwritten data at its end.

use crate::common::{Place, can_mount, eventually, is_mounted, mount_line, run};
use key_value::KeyValue;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Call, Fault, HostileBackend, Moment, On, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_vfs::{Caller, PageCaching, PagePolicy, Vfs, VfsConfig};

#[path = "../../../fuse/examples/key_value.rs"]
mod key_value;

/// A mount of a program without a control socket.
fn library_mount(place: &Place) -> Mount {
    let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
    let options = MountOptions { control_socket: false, ..MountOptions::default() };
    Mount::start(vfs, &place.mountpoint, options).unwrap()
}

/// A mount of the library's example, with the example's options.
fn example_mount(place: &Place) -> (Arc<Vfs>, Mount) {
    let vfs = Vfs::new(KeyValue::default(), VfsConfig::default()).unwrap();
    let mount = Mount::start(vfs.clone(), &place.mountpoint, MountOptions::default()).unwrap();
    (vfs, mount)
}

/// A mount of `source` whose requests are never read, until the device is closed.
fn silent_mount(place: &Place, source: &str) -> File {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(source, &place.mountpoint, "fuse.uvfs", flags, options.as_c_str())
        .unwrap();
    device
}

/// The state that `uvfs stat` prints for the mount at `place`.
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
    // A list allows each mount a second, and a busy machine may need that to start the asking process.
    eventually("it is served", || state(&place) == "uvfs  served without a control socket");
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

/// The example kept its keys in memory only, and a program that called `fsync` got success for nothing.
#[test]
fn the_example_saves_its_keys_at_fsync() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let saved = place.mountpoint.with_extension("saved");
    let vfs = Vfs::new(KeyValue::open(&saved).unwrap(), VfsConfig::default()).unwrap();
    let mount = Mount::start(vfs, &place.mountpoint, MountOptions::default()).unwrap();
    let mut file = File::create_new(place.mountpoint.join("motto")).unwrap();
    file.write_all(b"no lock on a hit").unwrap();
    file.sync_data().unwrap();
    // A crash now would lose nothing.
    let again = Vfs::new(KeyValue::open(&saved).unwrap(), VfsConfig::default()).unwrap();
    let root = again.root_directory(Caller::root());
    assert_eq!(root.read_file("motto").unwrap(), b"no lock on a hit");
    drop(file);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    mount.wait();
}

#[test]
fn the_command_reaches_a_mount_of_the_library() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (vfs, mount) = example_mount(&place);
    assert_eq!(state(&place), "uvfs  served");
    fs::write(place.mountpoint.join("motto"), "no lock on a hit").unwrap();
    assert_eq!(fs::read(place.mountpoint.join("motto")).unwrap(), b"no lock on a hit");

    let stat = run(&["stat", "--json", place.mnt()]);
    assert_eq!((stat.code, stat.stderr.as_str()), (Some(0), ""), "{stat:?}");
    let report: serde_json::Value = serde_json::from_str(&stat.stdout).unwrap();
    assert_eq!(report["pid"], std::process::id());
    assert_eq!(report["core"]["store"], "key-value");
    assert!(report["frontend"]["nodes"].as_u64() >= Some(1), "{report}");
    let program = std::env::current_exe().unwrap();
    assert_eq!(report["options"]["program"].as_str(), program.to_str());
    let text = run(&["stat", place.mnt()]).stdout;
    assert!(text.contains("(key-value)") && text.contains("program "), "{text}");
    assert!(run(&["stat", "--locks", place.mnt()]).stdout.contains("acquisitions"));

    assert!(vfs.statistics().names.held >= 1);
    let root = format!("3:{}", place.mnt());
    let dropped = run(&["drop", &root]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    assert_eq!(vfs.statistics().names.held, 0, "{dropped:?}");
    let cached = run(&["cached", place.mnt()]);
    assert_eq!(cached.code, Some(0), "{cached:?}");

    let set = run(&["set", place.mnt(), "cache-size=64M"]);
    assert_eq!((set.code, set.stderr.as_str()), (Some(0), ""), "{set:?}");
    assert_eq!(vfs.statistics().budget.limit_bytes, 64 << 20);
    let share = run(&["set", place.mnt(), "cache-size=10%"]);
    assert_eq!(share.code, Some(1), "{share:?}");
    assert!(share.stderr.contains("write a size, as in 64M"), "{share:?}");

    let keep = run(&["policy", "keep", place.mnt()]);
    assert_eq!(keep.code, Some(0), "{keep:?}");
    assert!(run(&["policy", place.mnt()]).stdout.contains("keep"));

    let held = File::open(place.mountpoint.join("motto")).unwrap();
    let busy = run(&["unmount", place.mnt()]);
    assert_eq!(busy.code, Some(1), "{busy:?}");
    assert!(busy.stderr.contains("busy, in use by"), "{busy:?}");
    drop(held);
    // The program waits as the example does, and lives on.
    let waits = std::thread::spawn(move || mount.wait());
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint));
    waits.join().unwrap();
    assert_eq!(Arc::strong_count(&vfs), 1, "nothing of the mount is left");
}

/// Dirty pages outlive such a mount in the program's `Vfs`: not lost, but not in the store either, and `unmount` must
/// not return 0.
#[test]
fn what_the_store_did_not_take_is_said_at_the_end_of_a_library_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let store = HostileBackend::new(memory).claiming(|can| can.caching = PageCaching::Core);
    let hour = Duration::from_secs(3600);
    let config =
        VfsConfig { pages: PagePolicy::WriteBack, write_back_delay: hour, ..VfsConfig::default() };
    let vfs = Vfs::new(store.clone(), config).unwrap();
    let mount = Mount::start(vfs.clone(), &place.mountpoint, MountOptions::default()).unwrap();
    fs::write(place.mountpoint.join("report"), vec![7u8; 10_000]).unwrap();
    let full = Fault::Fail(Moment::Before, rustix::io::Errno::NOSPC.raw_os_error());
    store.follow(Plan::new().when(On::call(Call::Write), full));
    let waits = std::thread::spawn(move || mount.wait());
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let file = format!("{}/report: ", place.mnt());
    assert!(outcome.stderr.contains(&file) && outcome.stderr.contains("No space"), "{outcome:?}");
    assert!(outcome.stderr.contains("has them still") && !outcome.stderr.contains("lost"));
    assert!(!is_mounted(&place.mountpoint));
    waits.join().unwrap();
}

#[test]
fn the_socket_of_a_library_mount_goes_with_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (vfs, mount) = example_mount(&place);
    let line = mount_line(&place.mountpoint).unwrap();
    let socket = Path::new("/run/uvfs").join(line.split(' ').nth(2).unwrap());
    let made = fs::symlink_metadata(&socket).unwrap();
    // A silent client that stays connected keeps nothing of the mount.
    let silent = UnixStream::connect(&socket).unwrap();
    mount.unmount(Unmount::Lazy).unwrap();
    mount.wait();
    drop(mount);
    assert_eq!(Arc::strong_count(&vfs), 1);
    drop(silent);
    // Another mount may have the device number by now, and with it the path.
    let another =
        |now: fs::Metadata| (now.ino(), now.ctime_nsec()) != (made.ino(), made.ctime_nsec());
    assert!(fs::symlink_metadata(&socket).map_or(true, another));
}

/// Nothing reads the requests of this mount, so every request to it waits.
#[test]
fn a_mount_that_does_not_answer_hangs_no_other_command() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let device = silent_mount(&place, "hung");
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
    eventually("it is told", || state(&place) == "hung  dead");
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint));
    let _ = rustix::mount::unmount(&place.mountpoint, UnmountFlags::DETACH);
    assert_eq!(fs::read_dir(&place.mountpoint).unwrap().count(), 0);
}

/// `uvfs stat` asked one mount after the other, ten seconds each.
#[test]
fn many_silent_mounts_hold_up_no_list() {
    if !can_mount() {
        return;
    }
    let places: Vec<_> = (0..20).map(|_| Place::new()).collect();
    let devices: Vec<_> = places.iter().map(|place| silent_mount(place, "silent")).collect();
    let asked = Instant::now();
    let listing = run(&["stat"]).stdout;
    let took = asked.elapsed();
    for place in &places {
        let line = format!("{}  silent  not answering", place.mnt());
        assert!(listing.lines().any(|one| one == line), "{line} is not in\n{listing}");
    }
    // One after the other would be 200 s; together they are one, and starting twenty processes is the rest.
    assert!(took < Duration::from_secs(60), "{took:?}");
    drop(devices);
}
