//! Disk images written through a mount, and checked afterwards by the kernel and e2fsck.
//!
//! `UVFS_KILLS=100` kills the daemon so many times instead of a few, `UVFS_DIFFERENTIAL=100000` compares so many
//! operations: `UVFS_KILLS=100 cargo test -p uvfs --test command images_written -- --nocapture`.

use crate::common::{Place, can_mount, eventually, is_alive, is_mounted, run};
use crate::images::{Tree, assert_same, done, refused, text, tree};
use crate::images_ended::Host;
use rustix::fs::{FallocateFlags, XattrFlags};
use rustix::mount::UnmountFlags;
use rustix::process::{Signal, kill_process};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// A new image beside the mountpoint; `None`, with a note, if none can be made.
pub(crate) fn created(place: &Place, name: &str, size: &str) -> Option<PathBuf> {
    let path = place.source.with_file_name(name);
    let outcome = run(&["image", "create", text(&path), "--size", size]);
    if outcome.stderr.contains("not installed") {
        uvfs_skip::lacking("mke2fs is not installed (Debian: e2fsprogs)");
        return None;
    }
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""));
    Some(path)
}

/// e2fsck finds no fault in it.
pub(crate) fn sound(image: &Path) {
    let judged = Command::new("e2fsck").arg("-fn").arg(image).output().unwrap();
    let printed = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{printed}");
}

/// The kernel's own mount of an image.
pub(crate) struct Kernel(pub(crate) PathBuf);

impl Kernel {
    /// `None`, with a note, if the kernel may not mount one.
    pub(crate) fn mount(place: &Place, image: &Path, name: &str) -> Option<Self> {
        let at = place.source.with_file_name(name);
        fs::create_dir_all(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "ext4", "-o", "loop"]).arg(image).arg(&at);
        match mount.stderr(Stdio::piped()).output() {
            Ok(done) if done.status.success() => Some(Self(at)),
            Ok(done) => {
                let printed = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                uvfs_skip::lacking(format_args!("the kernel mounts no image here: {printed}"));
                None
            }
            Err(error) => {
                uvfs_skip::lacking(format_args!("mount: {error}"));
                None
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let done = Command::new("umount").arg(&self.0).status();
        assert!(done.unwrap().success() || thread::panicking(), "the kernel's mount stays");
    }
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ mixed >> 27
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| (seed as usize + at / 5) as u8).collect()
}

/// Some of everything that a program does.
pub(crate) fn work(on: &Path) {
    let path = |name: &str| on.join(name);
    fs::create_dir(path("d")).unwrap();
    fs::write(path("file"), bytes(1, 300_000)).unwrap();
    fs::hard_link(path("file"), path("d/again")).unwrap();
    symlink("d/again", path("short")).unwrap();
    symlink("x".repeat(300), path("long")).unwrap();
    for number in 0..300 {
        fs::write(path(&format!("d/a name of some length {number}")), bytes(number, 50)).unwrap();
    }
    for number in (0..300).step_by(3) {
        fs::remove_file(path(&format!("d/a name of some length {number}"))).unwrap();
    }
    fs::create_dir(path("moved")).unwrap();
    fs::write(path("moved/below"), "text").unwrap();
    fs::rename(path("moved"), path("d/inside")).unwrap();
    fs::write(path("old"), "old").unwrap();
    fs::write(path("new"), "new").unwrap();
    fs::rename(path("new"), path("old")).unwrap();
    let file = File::create(path("holes")).unwrap();
    file.write_all_at(b"island", 1_500_000).unwrap();
    file.set_len(3_000_000).unwrap();
    let set = File::create(path("set aside")).unwrap();
    rustix::fs::fallocate(&set, FallocateFlags::empty(), 0, 200_000).unwrap();
    set.write_all_at(&bytes(3, 100_000), 50_000).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&set, punch, 60_000, 30_000).unwrap();
    rustix::fs::fallocate(&set, FallocateFlags::ZERO_RANGE, 100_000, 7_000).unwrap();
    let cut = File::create(path("cut")).unwrap();
    (&cut).write_all(&bytes(4, 500_000)).unwrap();
    cut.set_len(70_001).unwrap();
    cut.set_len(90_000).unwrap();
    fs::set_permissions(path("cut"), fs::Permissions::from_mode(0o4751)).unwrap();
    for (name, length) in [("user.small", 3), ("user.large", 700)] {
        let value = bytes(9, length);
        rustix::fs::setxattr(path("file"), name, &value, XattrFlags::empty()).unwrap();
    }
    // Open without a name, and longer than before.
    let mut unnamed =
        OpenOptions::new().read(true).write(true).create_new(true).open(path("gone")).unwrap();
    unnamed.write_all(&bytes(5, 40_000)).unwrap();
    fs::remove_file(path("gone")).unwrap();
    unnamed.write_all(b"behind").unwrap();
    let mut whole = vec![0; 40_006];
    unnamed.read_exact_at(&mut whole, 0).unwrap();
    assert!(whole.ends_with(b"behind") && unnamed.metadata().unwrap().nlink() == 0);
}

fn xattrs(of: &Path) -> Vec<Option<Vec<u8>>> {
    let read = |name: &&str| {
        let mut value = vec![0; 1000];
        let length = rustix::fs::getxattr(of, *name, &mut value[..]).ok()?;
        value.truncate(length);
        Some(value)
    };
    ["user.small", "user.large", "system.posix_acl_access", "system.posix_acl_default"]
        .iter()
        .map(read)
        .collect()
}

#[test]
fn what_is_written_is_in_the_image_for_the_kernel_too_and_the_other_way_round() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    place.mount_daemon(text(&image), &[]);
    let mounted = &place.mountpoint;
    work(mounted);
    let list = [
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 5, 0, 0, 0, 4, 0, 5, 0, 255, 255,
        255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    let names = ["system.posix_acl_access", "system.posix_acl_default"];
    for name in names {
        rustix::fs::setxattr(mounted.join("d"), name, &list, XattrFlags::empty()).unwrap();
    }
    fs::write(mounted.join("d/heir"), "has a list from the beginning").unwrap();
    let (seen, lists) = (tree(mounted), xattrs(&mounted.join("d/heir")));
    assert!(lists[2].is_some() && xattrs(&mounted.join("file"))[1] == Some(bytes(9, 700)));
    done(&["image", "commit", place.mnt()]);
    let journal = done(&["stat", "--journal", place.mnt()]).stdout;
    for row in ["commits ", "running ", "queue  ", "device  ", "flushes  ", "background  "] {
        assert!(journal.contains(row), "{row}: {journal}");
    }
    done(&["unmount", place.mnt()]);
    sound(&image);
    let info = done(&["image", "info", "--json", text(&image)]).stdout;
    assert!(info.contains("\"clean\":true"), "{info}");
    let Some(kernel) = Kernel::mount(&place, &image, "kernel") else { return };
    assert_same(&tree(&kernel.0), &seen);
    assert_eq!(xattrs(&kernel.0.join("d/heir")), lists);
    assert_eq!(xattrs(&kernel.0.join("file")), xattrs(&kernel.0.join("d/again")));
    // While the kernel has it mounted, no other program writes to it.
    refused(&["mount", text(&image), place.mnt()], "has it as its file");
    fs::create_dir(kernel.0.join("the kernel's")).unwrap();
    work(&kernel.0.join("the kernel's"));
    fs::remove_dir_all(kernel.0.join("d")).unwrap();
    let seen = tree(&kernel.0);
    drop(kernel);
    place.mount_daemon(text(&image), &[]);
    assert_same(&tree(mounted), &seen);
    fs::remove_dir_all(mounted.join("the kernel's")).unwrap();
    done(&["unmount", place.mnt()]);
    sound(&image);
}

#[test]
fn what_is_not_written_says_why_and_what_helps() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "32M") else { return };
    refused(&["image", "create", text(&image), "--size", "32M"], "is there already");
    place.mount_daemon(text(&image), &["--commit=1s"]);
    let second = place.source.clone();
    refused(&["mount", text(&image), text(&second)], "it is mounted on ");
    refused(&["mount", text(&image), text(&second), "--read-only"], "locked to write");
    done(&["unmount", place.mnt()]);
    let old = place.source.with_file_name("old.img");
    done(&["image", "create", text(&old), "--size", "32M", "--type", "ext2"]);
    refused(&["mount", text(&old), place.mnt()], "it has no journal (tune2fs -j makes one)");
    refused(&["mount", text(&old), place.mnt()], "add --read-only to read it");
    place.mount_daemon(text(&old), &["--read-only"]);
    refused(&["stat", "--journal", place.mnt()], "this mount has none");
    assert!(fs::write(place.mountpoint.join("new"), "").is_err());
    done(&["unmount", place.mnt()]);
    let mut flags = Command::new("debugfs");
    flags.args(["-w", "-R", "feature project"]).arg(&image).stdout(Stdio::null());
    assert!(flags.stderr(Stdio::null()).status().unwrap().success());
    refused(&["mount", text(&image), place.mnt()], "it has the feature project");
    for (source, option) in [
        ("memory:", "--commit=1s"),
        (text(&old), "--unsafe-no-barriers"),
        (text(&image), "--commit=1h"),
    ] {
        let more = if source == text(&old) { "--read-only" } else { "--daemon" };
        let outcome = run(&["mount", source, place.mnt(), option, more]);
        assert_eq!(outcome.code, Some(if source == text(&image) { 1 } else { 2 }), "{outcome:?}");
        assert!(!is_mounted(&place.mountpoint));
    }
}

/// Bug: the documents claimed that `sync -f` made everything stable, and the kernel passes none on to FUSE. `fsync` of
/// the root does, also if the root itself has not changed.
/// The options of the page cache were refused for images, whose data it has.
#[test]
fn the_options_of_the_page_cache_have_their_effects() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "16M") else { return };
    let cases: [(&[&str], u64); 3] = [
        (&["--write-back-delay=1h", "--commit=5m", "--read-ahead=0"], 102_400),
        (&["--page-cache=write-through"], 0),
        (&["--page-cache=off"], 0),
    ];
    for (options, dirty) in cases {
        place.mount_daemon(text(&image), options);
        let path = place.mountpoint.join("file");
        let file = File::create(&path).unwrap();
        file.write_all_at(&bytes(1, 100_000), 0).unwrap();
        let shown = done(&["stat", place.mnt(), "--json"]).stdout;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["core"]["pages"]["dirty_bytes"], dirty, "{options:?}");
        drop(file);
        done(&["unmount", place.mnt()]);
        place.mount_daemon(text(&image), &["--read-only"]);
        assert_eq!(fs::read(&path).unwrap(), bytes(1, 100_000), "{options:?}");
        done(&["unmount", place.mnt()]);
    }
}

#[test]
fn fsync_of_the_root_makes_everything_stable() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "16M") else { return };
    place.mount_daemon(text(&image), &["--commit=5m"]);
    fs::create_dir(place.mountpoint.join("d")).unwrap();
    done(&["image", "commit", place.mnt()]);
    fs::write(place.mountpoint.join("d/file"), "contents").unwrap();
    File::open(&place.mountpoint).unwrap().sync_all().unwrap();
    // The state after a crash: the journal has changes that the volume lacks.
    let copy = image.with_file_name("copy.img");
    fs::copy(&image, &copy).unwrap();
    assert_eq!(done(&["image", "cat", text(&copy), "/d/file"]).stdout, "contents");
    done(&["unmount", place.mnt()]);
}

/// The device is full for the writer; after a removal writing works again, and nothing else is lost.
#[test]
fn a_full_image_is_reported_to_the_writer_and_emptied() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "16M") else { return };
    place.mount_daemon(text(&image), &[]);
    let path = |name: &str| place.mountpoint.join(name);
    fs::write(path("kept"), bytes(7, 100_000)).unwrap();
    for round in 0..3 {
        let mut file = File::create(path("filler")).unwrap();
        let piece = bytes(round, 100_000);
        let mut pieces = 0;
        let full = loop {
            match file.write_all(&piece) {
                Ok(()) => pieces += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        assert!(pieces > 50, "{pieces}");
        drop(file);
        let whole = fs::read(path("filler")).unwrap();
        assert!(whole.chunks(piece.len()).take(pieces).all(|read| read == piece));
        // An empty file may still fit; its contents do not.
        let more = fs::write(path("more"), &piece);
        assert_eq!(more.unwrap_err().kind(), ErrorKind::StorageFull);
        fs::remove_file(path("filler")).unwrap();
        let _ = fs::remove_file(path("more"));
    }
    fs::write(path("after"), bytes(8, 5_000_000)).unwrap();
    assert!(fs::read(path("kept")).unwrap() == bytes(7, 100_000));
    done(&["unmount", place.mnt()]);
    sound(&image);
}

/// A damaged bitmap set its group aside without a word: the writer saw "no space left", and the log was empty.
#[test]
fn a_group_that_is_set_aside_is_logged_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "16M") else { return };
    let printed = Command::new("dumpe2fs").arg(&image).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let number = |label: &str| -> u64 {
        let behind =
            printed.split_once(label).unwrap_or_else(|| panic!("no {label} in {printed}")).1;
        let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    let at = number("Block bitmap at ") * number("Block size:");
    let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let mut bits = [0];
    file.read_exact_at(&mut bits, at).unwrap();
    file.write_all_at(&[bits[0] ^ 1], at).unwrap();
    drop(file);
    let log = place.source.join("log");
    let log_file = format!("--log-file={}", text(&log));
    place.mount_daemon(text(&image), &[&log_file]);
    for name in ["one", "two"] {
        let _ = fs::write(place.mountpoint.join(name), bytes(1, 100_000));
    }
    done(&["unmount", place.mnt()]);
    let log = fs::read_to_string(&log).unwrap();
    let about = log.matches("image: group 0 is set aside: its bitmap of blocks is damaged").count();
    assert_eq!(about, 1, "{log}");
}

/// The daemon is killed while four threads work: synced files are whole, by our replay and by e2fsck's.
#[test]
fn a_killed_daemon_loses_nothing_that_was_made_stable() {
    if !can_mount() {
        return;
    }
    let rounds = std::env::var("UVFS_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let mut seed = 11;
    for round in 0..rounds {
        let daemon = place.mount_daemon(text(&image), &["--commit=100ms"]);
        let (sender, stable) = mpsc::channel();
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let (sender, folder) = (sender.clone(), place.mountpoint.join(format!("{worker}")));
                thread::spawn(move || -> io::Result<()> {
                    fs::create_dir_all(&folder)?;
                    for number in 0.. {
                        let (path, scratch) =
                            (folder.join(format!("{round}-{number}")), folder.join("scratch"));
                        let content = bytes(worker + number, 1000 + 3000 * (number as usize % 7));
                        let mut file = File::create(&scratch)?;
                        file.write_all(&content)?;
                        if number % 3 == 0 {
                            fs::rename(&scratch, &path)?;
                            file.sync_all()?;
                            let _ = sender.send((path, content));
                        } else {
                            fs::remove_file(&scratch)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        drop(sender);
        thread::sleep(std::time::Duration::from_millis(100 + random(&mut seed) % 400));
        kill_process(daemon, Signal::KILL).unwrap();
        eventually("the daemon is gone", || !is_alive(daemon));
        // Its last thread may be waiting for the disk, and has the image until then.
        eventually("the image is free", || File::open(&image).unwrap().try_lock().is_ok());
        // Requests that the daemon had not answered fail with its connection.
        for worker in workers {
            worker.join().unwrap().unwrap_err();
        }
        rustix::mount::unmount(&place.mountpoint, UnmountFlags::DETACH).unwrap();
        let stable: Vec<_> = stable.iter().collect();
        if round % 4 == 0 {
            let copy = place.source.with_file_name("copy.img");
            fs::copy(&image, &copy).unwrap();
            let repaired = Command::new("e2fsck").arg("-fp").arg(&copy).output().unwrap();
            assert!(repaired.status.code().is_some_and(|status| status <= 1), "{repaired:?}");
            sound(&copy);
        }
        place.mount_daemon(text(&image), &[]);
        for (path, content) in &stable {
            let found =
                fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(found == *content, "round {round}: {}", path.display());
        }
        println!("round {round}: {} files were stable, and are", stable.len());
        for entry in fs::read_dir(&place.mountpoint).unwrap() {
            let path = entry.unwrap().path();
            if !path.ends_with("lost+found") && !path.ends_with(".uvfs") {
                fs::remove_dir_all(path).unwrap();
            }
        }
        done(&["unmount", place.mnt()]);
        sound(&image);
    }
}

/// The tree in a form that two mounts must share: times are of two moments.
pub(crate) fn without_times(tree: Tree) -> Tree {
    tree.into_iter()
        .map(|(path, (mode, links, uid, size, _, content))| {
            (path, (mode, links, uid, size, 0, content))
        })
        .collect()
}

/// One operation, chosen by `step`; returns its result.
fn operation(on: &Path, seed: u64) -> Result<(), Option<i32>> {
    let mut state = seed;
    let mut next = |below: u64| random(&mut state) % below;
    let name = |number: u64| match number % 3 {
        0 => format!("d{}/n{}", number % 4, number % 17),
        1 => format!("n{}", number % 11),
        _ => format!("d{}", number % 4),
    };
    let (one, other) = (on.join(name(next(1000))), on.join(name(next(1000))));
    let open = |path: &Path| OpenOptions::new().write(true).open(path);
    let done = match next(14) {
        0 | 1 => File::create(&one).map(drop),
        2..=4 => open(&one).and_then(|file| {
            file.write_all_at(&bytes(next(256), 1 + next(20_000) as usize), next(60_000))
        }),
        5 => open(&one).and_then(|file| file.set_len(next(80_000))),
        6 => fs::remove_file(&one),
        7 => fs::create_dir(&one),
        8 => fs::remove_dir(&one),
        9 => fs::rename(&one, &other),
        10 => fs::hard_link(&one, &other),
        11 => symlink("x".repeat(1 + next(200) as usize), &one),
        12 => {
            let value = bytes(next(256), next(400) as usize);
            let key = ["user.small", "user.large"][next(2) as usize];
            rustix::fs::lsetxattr(&one, key, &value, XattrFlags::empty()).map_err(Into::into)
        }
        _ => open(&one).and_then(|file| {
            let how = [
                FallocateFlags::empty(),
                FallocateFlags::KEEP_SIZE,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                FallocateFlags::ZERO_RANGE,
            ][next(4) as usize];
            let (from, length) = (next(40_000), 1 + next(40_000));
            rustix::fs::fallocate(&file, how, from, length).map_err(Into::into)
        }),
    };
    done.map_err(|error| error.raw_os_error())
}

/// Random operations run on an image that we write and on one that the kernel writes.
#[test]
fn random_operations_do_what_the_kernel_does() {
    if !can_mount() {
        return;
    }
    let wanted = std::env::var("UVFS_DIFFERENTIAL").ok().and_then(|count| count.parse().ok());
    let operations: u64 = wanted.unwrap_or(2000);
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let twin = place.source.with_file_name("twin.img");
    fs::copy(&image, &twin).unwrap();
    let Some(kernel) = Kernel::mount(&place, &twin, "kernel") else { return };
    place.mount_daemon(text(&image), &[]);
    let ours = &place.mountpoint;
    let (mut seed, mut succeeded) = (42, 0);
    for step in 0..operations {
        let of_step = random(&mut seed);
        let (one, other) = (operation(ours, of_step), operation(&kernel.0, of_step));
        assert_eq!(one, other, "operation {step}, seed {of_step}");
        succeeded += u64::from(one.is_ok());
        if step % 500 == 499 || step + 1 == operations {
            let (one, other) = (tree(ours), tree(&kernel.0));
            for path in one.keys() {
                assert_eq!(xattrs(&ours.join(path)), xattrs(&kernel.0.join(path)), "{path:?}");
            }
            assert_same(&without_times(one), &without_times(other));
            let files = |at: &Path| rustix::fs::statvfs(at).unwrap().f_ffree;
            eventually("as many inodes are free", || files(ours) == files(&kernel.0));
        }
    }
    assert!(succeeded > operations / 4, "{succeeded} of {operations} operations did something");
    done(&["unmount", place.mnt()]);
    drop(kernel);
    sound(&image);
    // Each has the other's writes.
    let theirs = Kernel::mount(&place, &image, "kernel").unwrap();
    place.mount_daemon(text(&twin), &[]);
    assert_eq!(tree(ours).len(), tree(&theirs.0).len());
    done(&["unmount", place.mnt()]);
    drop(theirs);
    sound(&twin);
}

/// The host's disk below the image is full: one clear state, and the contents of the image can be read.
#[test]
fn a_device_that_fails_ends_writing_and_reading_goes_on() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("a small host file system is mounted by root alone");
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let Some(host) = Host::with_copy_of(&image, &place.source, c"size=9M") else { return };
    let inside = &host.image;
    place.mount_daemon(text(inside), &["--log-level=off"]);
    let path = |name: &str| place.mountpoint.join(name);
    fs::write(path("before"), bytes(1, 200_000)).unwrap();
    File::open(path("before")).unwrap().sync_all().unwrap();
    let mut refusals = Vec::new();
    for number in 0..400 {
        let written = fs::write(path(&format!("f{number}")), bytes(number, 100_000));
        let synced = File::open(&place.mountpoint).and_then(|root| root.sync_all());
        refusals.extend(written.and(synced).err());
        if refusals.len() > 3 {
            break;
        }
    }
    assert!(refusals.len() > 3, "the host has 9 MiB");
    // Reading continues after any failure of writing.
    assert!(fs::read(path("before")).unwrap() == bytes(1, 200_000));
    assert!(fs::read_dir(&place.mountpoint).unwrap().count() > 2);
    let journal = done(&["stat", "--journal", "--json", place.mnt()]).stdout;
    let journal: serde_json::Value = serde_json::from_str(&journal).unwrap();
    if journal["journal"]["ended"] == 1 {
        let refusal = fs::create_dir(path("more")).unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::ReadOnlyFilesystem);
        let outcome = run(&["image", "commit", place.mnt()]);
        assert!(
            outcome.code == Some(1) && outcome.stderr.contains("committed data is safe"),
            "{outcome:?}"
        );
    }
    let _ = run(&["unmount", place.mnt()]);
    eventually("it is unmounted", || !is_mounted(&place.mountpoint));
    // Where there is room it is recovered.
    let copied = Command::new("cp").args(["--sparse=always"]).arg(inside).arg(&image).status();
    assert!(copied.unwrap().success());
    place.mount_daemon(text(&image), &[]);
    let mut whole = Vec::new();
    File::open(path("before")).unwrap().read_to_end(&mut whole).unwrap();
    assert!(whole == bytes(1, 200_000));
    done(&["unmount", place.mnt()]);
    sound(&image);
}
