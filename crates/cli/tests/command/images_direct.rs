//! Images that are written past the host's page cache.
//!
//! `UVFS_DIRECT_MIB=2000` writes and reads so many MiB instead of a few.

use crate::common::{Place, can_mount};
use crate::images::{assert_same, done, refused, text, tree};
use crate::images_ended::{Host, row};
use crate::images_written::{created, sound, work};
use rustix::fs::Advice;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Most bytes of an image that the host may cache.
const CACHED_MAX: u64 = 1 << 20;
const MIB: usize = 1 << 20;

/// Bytes of `image` in the host's page cache; `None`, with a note, where that cannot be asked.
fn cached(image: &Path) -> Option<u64> {
    let mut fincore = Command::new("fincore");
    let asked = fincore.args(["--bytes", "--noheadings", "--output", "RES"]).arg(image).output();
    match asked {
        Ok(asked) if asked.status.success() => {
            let printed = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
            Some(printed.parse().unwrap())
        }
        _ => {
            uvfs_skip::lacking("no fincore (Debian: util-linux)");
            None
        }
    }
}

/// A new image in the build folder: that for temporary files may be in memory.
fn on_disk(size: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    // `created` makes the image beside a place.
    let place = Place::new();
    let made = created(&place, "disk.img", size)?;
    let image = folder.path().join("disk.img");
    let copied = Command::new("cp").arg("--sparse=always").args([&made, &image]).status();
    assert!(copied.unwrap().success());
    Some((folder, image))
}

/// The row `device` of the report of a mount.
fn device(place: &Place) -> String {
    row(&done(&["stat", place.mnt()]).stdout, "device ").to_owned()
}

/// Whether the mount is direct, as it is by default; a note where the build folder's file system cannot.
fn is_direct(place: &Place) -> bool {
    match device(place).as_str() {
        "direct" => true,
        otherwise => {
            let why = otherwise.strip_prefix("buffered: ").expect("one or the other");
            uvfs_skip::lacking(format_args!("the build folder: {why}"));
            false
        }
    }
}

/// The image's pages lay in the host's cache a second time, and no option bounded them.
#[test]
fn the_host_caches_nothing_of_an_image_that_is_written() {
    if !can_mount() {
        return;
    }
    let asked = std::env::var("UVFS_DIRECT_MIB").ok().and_then(|text| text.parse().ok());
    let pieces: usize = asked.unwrap_or(48);
    let Some((_folder, image)) = on_disk(&format!("{}M", pieces + 200)) else { return };
    let place = Place::new();
    // The pages of the program that made it stay no more than those of ours.
    place.mount_daemon(text(&image), &["--cache-size=32M"]);
    if !is_direct(&place) {
        return drop(done(&["unmount", place.mnt()]));
    }
    let path = place.mountpoint.join("large");
    let piece = |number: usize| -> Vec<u8> { (0..MIB).map(|at| (at / 7 + number) as u8).collect() };
    let mut file = File::create(&path).unwrap();
    for number in 0..pieces {
        file.write_all(&piece(number)).unwrap();
    }
    file.sync_all().unwrap();
    let Some(after_write) = cached(&image) else {
        return drop(done(&["unmount", place.mnt()]));
    };
    assert!(after_write < CACHED_MAX, "{after_write} bytes");
    // The mount's own pages: what is read now comes from the image.
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    drop(file);
    let mut file = File::open(&path).unwrap();
    let mut read = vec![0; MIB];
    for number in 0..pieces {
        file.read_exact(&mut read).unwrap();
        assert!(read == piece(number), "MiB {number}");
    }
    drop(file);
    let after_read = cached(&image).unwrap();
    assert!(after_read < CACHED_MAX, "{after_read} bytes");
    done(&["unmount", place.mnt()]);
    let after_end = cached(&image).unwrap();
    assert!(after_end < CACHED_MAX, "{after_end} bytes");
    sound(&image);
}

/// What a program does, on an image that is smaller in its blocks than a page, directly and not.
#[test]
fn both_ways_write_the_same_image() {
    if !can_mount() {
        return;
    }
    let Some((folder, image)) = on_disk("64M") else { return };
    let small = folder.path().join("small.img");
    File::create(&small).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-b", "1024"]).arg(&small).status();
    assert!(made.unwrap().success());
    let place = Place::new();
    for image in [&image, &small] {
        place.mount_daemon(text(image), &[]);
        if !is_direct(&place) {
            return drop(done(&["unmount", place.mnt()]));
        }
        fs::create_dir(place.mountpoint.join("first")).unwrap();
        work(&place.mountpoint.join("first"));
        let seen = tree(&place.mountpoint);
        done(&["unmount", place.mnt()]);
        sound(image);
        let buffered = format!("{}?direct=false", text(image));
        place.mount_daemon(&buffered, &[]);
        assert_eq!(device(&place), "buffered: direct=false was given");
        assert_same(&tree(&place.mountpoint), &seen);
        fs::create_dir(place.mountpoint.join("second")).unwrap();
        work(&place.mountpoint.join("second"));
        let seen = tree(&place.mountpoint);
        done(&["unmount", place.mnt()]);
        sound(image);
        place.mount_daemon(&format!("{}?direct=true", text(image)), &[]);
        assert_same(&tree(&place.mountpoint), &seen);
        done(&["unmount", place.mnt()]);
    }
}

/// The host's file system decides, unless the user did.
#[test]
fn an_image_in_memory_stays_with_the_host_and_says_so() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "16M") else { return };
    let Some(host) = Host::with_copy_of(&image, &place.source, c"size=20M") else { return };
    place.mount_daemon(text(&host.image), &[]);
    assert_eq!(device(&place), "buffered: its file system is in memory");
    fs::write(place.mountpoint.join("file"), "text").unwrap();
    done(&["unmount", place.mnt()]);
    sound(&host.image);
    let direct = format!("{}?direct=true", text(&host.image));
    let message = "its file system is in memory; leave direct=true out";
    refused(&["mount", &direct, place.mnt()], message);
}
