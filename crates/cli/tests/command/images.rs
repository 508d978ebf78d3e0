//! Disk images: read by `uvfs image`, and mounted for real.
//!
//! mke2fs makes the images from a tree; each test is skipped, with a note, if it is not installed.

use crate::cleaning::as_other_user;
use crate::common::{Outcome, Place, can_mount, finish, is_mounted, run};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

/// Extended attributes of the tree, where the temporary folder keeps any: one in the inode, one too large for it.
const XATTRS: [(&str, &[u8]); 2] = [("sparse", b"v"), ("many", &[b'm'; 300])];

/// A tree with the properties that `cp -a` keeps, and an image of it beside the mountpoint of `place`.
fn image(place: &Place, options: &[&str]) -> Option<PathBuf> {
    let tree = &place.source;
    fs::create_dir_all(tree.join("many/deep/er")).unwrap();
    for number in 0..300_u32 {
        let name = format!("many/a name of some length {number}");
        fs::write(tree.join(name), number.to_le_bytes().repeat(number as usize)).unwrap();
    }
    let large: Vec<u8> = (0..900_000_u32).map(|at| (at ^ at >> 9) as u8).collect();
    fs::write(tree.join("large"), large).unwrap();
    fs::hard_link(tree.join("large"), tree.join("many/deep/again")).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(b"island", 1_500_000).unwrap();
    sparse.set_len(3_000_000).unwrap();
    symlink("many/deep", tree.join("short")).unwrap();
    symlink("x".repeat(300), tree.join("long")).unwrap();
    fs::set_permissions(tree.join("sparse"), fs::Permissions::from_mode(0o4741)).unwrap();
    fs::set_permissions(tree.join("many"), fs::Permissions::from_mode(0o2750)).unwrap();
    for (name, value) in XATTRS {
        let _ = rustix::fs::setxattr(tree.join(name), "user.k", value, XattrFlags::empty());
    }
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for name in ["sparse", "many"] {
        File::open(tree.join(name)).unwrap().set_modified(old).unwrap();
    }
    let path = tree.with_file_name("disk.img");
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4"]).args(options).arg("-d").arg(tree).arg(&path).arg("16M");
    match make.stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => assert!(status.success(), "{make:?}"),
        Err(error) => {
            uvfs_skip::lacking(format_args!("mke2fs: {error}"));
            return None;
        }
    }
    Some(path)
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Runs the program, which succeeds.
pub(crate) fn done(arguments: &[&str]) -> Outcome {
    let outcome = run(arguments);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    outcome
}

/// Runs the program, which refuses and prints `message`.
pub(crate) fn refused(arguments: &[&str], message: &str) {
    let outcome = run(arguments);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let lines = outcome.stderr.lines().count();
    assert!(outcome.stderr.contains(message) && lines == 1, "{}: not {message}", outcome.stderr);
}

/// The object at each path below `root`: mode, links, owner, size, time of change, contents or text.
pub(crate) type Tree = BTreeMap<PathBuf, (u32, u64, u32, u64, i64, Vec<u8>)>;

pub(crate) fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let (path, about) = (entry.path(), entry.metadata().unwrap());
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            if name.starts_with("lost+found") || name.starts_with(".uvfs") {
                continue;
            }
            let contents = if about.is_dir() {
                waiting.push(path);
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(path).unwrap()
            };
            let (links, size) = if about.is_dir() { (0, 0) } else { (about.nlink(), about.size()) };
            let what = (about.mode(), links, about.uid(), size, about.mtime(), contents);
            found.insert(name, what);
        }
    }
    found
}

pub(crate) fn assert_same(found: &Tree, expected: &Tree) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, about) in expected {
        assert!(found[name] == *about, "{}", name.display());
    }
}

#[test]
fn an_image_is_looked_at_without_a_mount() {
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let image = text(&image);
    let info = done(&["image", "info", image]).stdout;
    assert!(info.contains("ext4, 16") && info.contains("metadata_csum"), "{info}");
    let info = done(&["image", "info", image, "--json"]).stdout;
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["kind"], &info["clean"]), (&"ext4".into(), &true.into()));
    let check = done(&["image", "check", image]).stdout;
    assert!(check.starts_with("0 faults; "), "{check}");
    let listed = done(&["image", "ls", image]).stdout;
    assert!(listed.contains(" short -> many/deep\n") && listed.contains("-4741 "), "{listed}");
    let all = done(&["image", "ls", "-R", "--json", image, "/many"]).stdout;
    assert_eq!(all.lines().count(), 300 + 3, "names below, and /many/deep/again");
    let again = all.lines().find(|line| line.contains("/many/deep/again")).unwrap();
    let again: serde_json::Value = serde_json::from_str(again).unwrap();
    assert_eq!((&again["size"], &again["links"]), (&900_000.into(), &2.into()));
    assert_eq!(done(&["image", "cat", image, "/short"]).stdout, "many/deep");
    assert_eq!(done(&["image", "cat", image, "many/a name of some length 3"]).stdout.len(), 12);
    refused(&["image", "cat", image, "/none"], "/none: not in the image");
    refused(&["image", "cat", image, "/many"], "is a directory");
    refused(&["image", "ls", image, "/short/er"], "symbolic links are not followed");
}

#[test]
fn a_tree_is_extracted_as_it_was() {
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("owners are kept as root alone");
    }
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let target = place.mountpoint.join("out");
    done(&["image", "extract", text(&image), "/", text(&target)]);
    assert_same(&tree(&target), &tree(&place.source));
    let again = fs::metadata(target.join("many/deep/again")).unwrap();
    assert_eq!(again.ino(), fs::metadata(target.join("large")).unwrap().ino());
    let sparse = fs::metadata(target.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "holes stay holes");
    for (name, value) in XATTRS {
        let mut kept = [0; 512];
        let mut of = |root: &Path| {
            let length = rustix::fs::getxattr(root.join(name), "user.k", &mut kept[..]).ok()?;
            Some(kept[..length].to_vec())
        };
        match of(&place.source) {
            Some(there) => assert_eq!((&*there, of(&target).as_deref()), (value, Some(value))),
            None => uvfs_skip::lacking("the temporary folder keeps no extended attributes"),
        }
    }
    // No file is overwritten or added.
    refused(&["image", "extract", text(&image), "/", text(&target)], "is not empty");
    let one = place.mountpoint.join("one");
    done(&["image", "extract", text(&image), "/many/deep/again", text(&one)]);
    assert_eq!(fs::metadata(one.join("again")).unwrap().len(), 900_000);
}

/// A user can give no owners away: each extraction by one ended with status 1, so scripts failed.
#[test]
fn a_user_extracts_without_owners_and_that_is_no_failure() {
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let target = place.source.with_file_name("targets");
    fs::create_dir(&target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&image, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(place.source.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(mut command) = as_other_user() else { return };
    let target = target.join("out");
    command.args(["image", "extract", text(&image), "/", text(&target)]);
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let note = outcome.stderr.trim_end();
    assert!(note.starts_with("uvfs: ") && note.contains("not kept: "), "{note}");
    assert!(note.contains(" owners, 2 set-id bits; root keeps them"), "{note}");
    assert_eq!(fs::metadata(target.join("large")).unwrap().len(), 900_000);
    let mode = fs::metadata(target.join("sparse")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o741, "no program of another user");
}

/// A device that could not be made was remembered as the first name of its inode: the link of the second name to it failed,
/// and everything behind it was not extracted.
#[test]
fn names_of_a_device_that_cannot_be_made_are_counted_and_the_rest_is_extracted() {
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("devices are made by root alone");
    }
    if let Err(error) = Command::new("setpriv").arg("--version").output() {
        return uvfs_skip::lacking(format_args!("setpriv: {error}"));
    }
    let place = Place::new();
    let names = ["a device", "short again"].map(|name| place.source.join(name));
    let (kind, mode) = (FileType::CharacterDevice, Mode::RUSR);
    if let Err(error) = mknodat(CWD, &names[0], kind, mode, makedev(1, 3)) {
        return uvfs_skip::lacking(format_args!("no device can be made here: {error}"));
    }
    fs::hard_link(&names[0], &names[1]).unwrap();
    let Some(image) = image(&place, &[]) else { return };
    names.iter().for_each(|name| fs::remove_file(name).unwrap());
    let target = place.mountpoint.join("out");
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set", "-mknod", env!("CARGO_BIN_EXE_uvfs"), "image", "extract"]);
    without.arg(&image).arg("/").arg(&target).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut without);
    let message = "copied, but not kept: 2 devices, pipes or sockets\n";
    assert!(outcome.code == Some(1) && outcome.stderr.ends_with(message), "{outcome:?}");
    assert_same(&tree(&target), &tree(&place.source));
}

#[test]
fn an_image_that_is_only_read_is_mounted_as_it_is_and_never_written() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let before = fs::read(&image).unwrap();
    place.mount_daemon(text(&image), &["--read-only"]);
    let mounted = &place.mountpoint;
    assert_same(&tree(mounted), &tree(&place.source));
    let refusal = fs::write(mounted.join("new"), "text").unwrap_err();
    assert_eq!(refusal.kind(), ErrorKind::ReadOnlyFilesystem);
    assert!(fs::remove_file(mounted.join("large")).is_err());
    assert!(fs::set_permissions(mounted.join("large"), fs::Permissions::from_mode(0o0)).is_err());
    assert!(fs::metadata(mounted.join("none")).is_err());
    let totals = rustix::fs::statvfs(mounted).unwrap();
    assert!(totals.f_files > 300 && totals.f_bfree < totals.f_blocks);
    let stat = done(&["stat", "--json", place.mnt()]).stdout;
    let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
    assert_eq!(stat["options"]["read_only"], true);
    let dropped = format!("3:{}", mounted.join("many").display());
    done(&["drop", &dropped]);
    assert_same(&tree(mounted), &tree(&place.source));
    done(&["unmount", place.mnt()]);
    assert!(fs::read(&image).unwrap() == before, "the image is as it was");
}

/// The counts of cached blocks in `uvfs stat`: present, part of the budget, and growing.
#[test]
fn the_blocks_that_are_kept_are_reported_and_counted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    place.mount_daemon(text(&image), &["--cache-size=64M", "--read-only"]);
    let counters = || {
        let stat = done(&["stat", "--json", place.mnt()]).stdout;
        let stat: serde_json::Value = serde_json::from_str(&stat).unwrap();
        move |name: &str| {
            let count = stat["core"]["backend"][format!("buffer_{name}")].as_u64();
            count.unwrap_or_else(|| panic!("no buffer_{name}: {stat}"))
        }
    };
    let mounted = counters();
    for name in ["evictions", "overflows", "waits", "failures"] {
        assert_eq!(mounted(name), 0, "{name}");
    }
    let rows = mounted("rows");
    assert!(rows > 0 && mounted("frames") == rows * 16, "{rows} rows");
    assert!(mounted("frames") * 4096 <= 64 << 20 >> 3, "an eighth of the budget at most");
    tree(&place.mountpoint);
    let read = counters();
    let lookups = |counts: &dyn Fn(&str) -> u64| counts("hits") + counts("misses");
    assert!(lookups(&read) > lookups(&mounted), "a walk looks blocks up");
    // Bug: asked to grow they failed a run in which a stranger had walked the new mount before the first `stat`.
    for name in ["hits", "misses", "bytes"] {
        assert!(read(name) > 0 && read(name) >= mounted(name), "{name}: {}", read(name));
    }
    done(&["drop", "3", "--mount", place.mnt()]);
    tree(&place.mountpoint);
    let again = counters();
    assert!(again("hits") > read("hits"), "{} and {}", again("hits"), read("hits"));
    assert_eq!(again("failures"), 0);
    let all = done(&["stat", "--all", place.mnt()]).stdout;
    for name in ["rows", "hits", "misses", "evictions", "overflows", "bytes"] {
        let mut lines = all.lines().map(str::trim_start);
        assert!(lines.any(|line| line.starts_with(&format!("buffer {name} "))), "{name}: {all}");
    }
    done(&["unmount", place.mnt()]);
}

/// `tests/tests/mount/handles.rs` tests handles; here the names must lead to the same objects.
#[test]
fn numbers_outlive_what_is_cached() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &["-I", "128"]) else { return };
    place.mount_daemon(&format!("image:{}", text(&image)), &[]);
    let number = fs::metadata(place.mountpoint.join("many/deep/again")).unwrap().ino();
    done(&["drop", "3", "--mount", place.mnt()]);
    assert_eq!(fs::metadata(place.mountpoint.join("large")).unwrap().ino(), number);
    done(&["unmount", place.mnt()]);
}

#[test]
fn a_partition_or_an_offset_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let disk = image.with_file_name("whole.img");
    let mut bytes = vec![0; 1 << 20];
    // One entry of an MBR: Linux, from sector 2048, as long as the image.
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&(16_u32 << 11).to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes.extend(fs::read(&image).unwrap());
    fs::write(&disk, bytes).unwrap();
    let disk = text(&disk);
    refused(&["mount", disk, place.mnt()], "but partition 1; name one:");
    refused(&["mount", &format!("{disk}?partition=2"), place.mnt()], "has no partition 2");
    // A boot partition of FAT comes first, in the space before the other one: the one with ext is named.
    let mut two = fs::read(disk).unwrap();
    two.copy_within(446..462, 462);
    two[450] = 0x0C;
    two[454..458].copy_from_slice(&64_u32.to_le_bytes());
    two[458..462].copy_from_slice(&1024_u32.to_le_bytes());
    two[64 * 512 + 82..64 * 512 + 90].copy_from_slice(b"FAT32   ");
    two[64 * 512 + 510..64 * 512 + 512].copy_from_slice(&[0x55, 0xAA]);
    let both = image.with_file_name("both.img");
    fs::write(&both, two).unwrap();
    let name = format!("name one: {}?partition=2", text(&both));
    refused(&["mount", text(&both), place.mnt()], &name);
    refused(&["mount", &format!("{}?partition=1", text(&both)), place.mnt()], "is FAT: ");
    for part in ["?partition=1", "?offset=1M"] {
        place.mount_daemon(&format!("{disk}{part}"), &[]);
        assert_eq!(fs::metadata(place.mountpoint.join("large")).unwrap().len(), 900_000);
        done(&["unmount", place.mnt()]);
    }
}

/// Past the host's page cache, in whole pages: files begin and end anywhere.
#[test]
fn an_image_is_read_directly_where_that_is_wished() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &["-b", "1024"]) else { return };
    let direct = format!("{}?direct=true", text(&image));
    let outcome = run(&["image", "check", &direct]);
    if outcome.stderr.contains("has no direct reads; leave direct=true out") {
        return uvfs_skip::lacking("the file system of temporary files has no direct reads");
    }
    assert!(outcome.stdout.starts_with("0 faults; "), "{outcome:?}");
    place.mount_daemon(&direct, &["--read-only"]);
    assert_same(&tree(&place.mountpoint), &tree(&place.source));
    done(&["unmount", place.mnt()]);
}

/// A block device has no length in its metadata, and is read to its end all the same.
#[test]
fn a_block_device_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &[]) else { return };
    let Some(device) = Loop::over(&image) else { return };
    for source in [device.0.clone(), format!("image:{}?direct=true", device.0)] {
        place.mount_daemon(&source, &["--read-only"]);
        assert_same(&tree(&place.mountpoint), &tree(&place.source));
        done(&["unmount", place.mnt()]);
    }
    let info = done(&["image", "info", &device.0]).stdout;
    assert!(info.contains("ext4, 16"), "{info}");
}

/// A loop device, read-only, detached when dropped.
struct Loop(String);

impl Loop {
    /// `None`, with a note, if there are none.
    fn over(image: &Path) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show", "--read-only"]).arg(image).output();
        match made {
            Ok(made) if made.status.success() => {
                Some(Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
            }
            Ok(made) => {
                let said = String::from_utf8_lossy(&made.stderr).into_owned();
                uvfs_skip::lacking(format_args!("losetup: {}", said.trim()));
                None
            }
            Err(error) => {
                uvfs_skip::lacking(format_args!("losetup: {error}"));
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

#[test]
fn what_cannot_be_mounted_says_why_and_mounts_nothing() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &["-O", "^metadata_csum"]) else { return };
    let good = fs::read(&image).unwrap();
    let check = |bytes: &[u8], message: &str| {
        fs::write(&image, bytes).unwrap();
        refused(&["mount", text(&image), place.mnt()], message);
        refused(&["image", "check", text(&image)], message);
        assert!(!is_mounted(&place.mountpoint));
    };
    check(&good[..good.len() / 2], "truncated");
    check(&[0; 100_000], "no ext2, ext3 or ext4");
    let mut unknown = good.clone();
    unknown[1024 + 0x63] |= 0x80;
    check(&unknown, "not supported: the feature FEATURE_I31");
    let mut sized = good.clone();
    sized[1024 + 0x18] = 99;
    check(&sized, "superblock: its block size");
    fs::write(&image, &good).unwrap();
    let locked = File::open(&image).unwrap();
    locked.lock().unwrap();
    refused(&["mount", text(&image), place.mnt(), "--read-only"], "locked to write");
    refused(&["mount", text(&image), place.mnt()], "has it locked; end that first");
    drop(locked);
    let refusals: [&[&str]; 6] = [
        &["--size=1G"],
        &["--watch"],
        &["--read-only", "--page-cache=write-back"],
        &["--read-only", "--read-ahead=64K"],
        &["--page-cache=off", "--read-ahead=64K"],
        &["--page-cache=write-through", "--write-back-delay=1s"],
    ];
    for options in refusals {
        let outcome = run(&[&["mount", text(&image), place.mnt()], options].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
    }
}

/// An image copied while in use: its journal has changes that the volume lacks.
#[test]
fn a_journal_is_replayed_in_memory() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = image(&place, &["-b", "1024"]) else { return };
    let block = place.source.with_file_name("block");
    fs::write(&block, [b'j'; 1024]).unwrap();
    let bytes = fs::read(&image).unwrap();
    // The place of the sparse file's only data.
    let at = bytes.windows(6).position(|bytes| bytes == b"island").unwrap() / 1024;
    let commands = format!("jo\njw -b {at} {}\njc\n", text(&block));
    let script = place.source.with_file_name("script");
    fs::write(&script, commands).unwrap();
    let mut write = Command::new("debugfs");
    write.args(["-w", "-f"]).arg(&script).arg(&image).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(write.status().unwrap().success());
    let before = fs::read(&image).unwrap();
    let info = done(&["image", "info", text(&image)]).stdout;
    assert!(info.contains("not unmounted: 1 transactions with 1 blocks"), "{info}");
    place.mount_daemon(text(&image), &["--read-only"]);
    let sparse = fs::read(place.mountpoint.join("sparse")).unwrap();
    assert!(sparse[1_500_000..1_500_006] == *b"jjjjjj");
    done(&["unmount", place.mnt()]);
    assert!(fs::read(&image).unwrap() == before, "the image is as it was");
}

/// Bug: the first object with a fault ended a listing and an extraction, and later objects were never shown.
#[test]
fn a_fault_costs_its_object_and_the_rest_is_listed_and_extracted() {
    let place = Place::new();
    let Some(image) = image(&place, &["-O", "^metadata_csum", "-b", "1024"]) else { return };
    let mut clear = Command::new("debugfs");
    // A mode of no kind.
    clear.args(["-w", "-R", "set_inode_field large mode 0170644"]).arg(&image);
    assert!(clear.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let target = place.mountpoint.join("out");
    let outcome = run(&["image", "extract", text(&image), "/", text(&target)]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("no kind of object"), "{outcome:?}");
    assert!(outcome.stderr.contains("2 objects"), "it and its other name: {outcome:?}");
    assert!(!target.join("large").exists() && target.join("short").is_symlink());
    assert_eq!(fs::metadata(target.join("sparse")).unwrap().len(), 3_000_000);
    // A pipe in the place of an image was waited for.
    let pipe = place.mountpoint.join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    refused(&["image", "info", text(&pipe)], "neither a file nor a block device");
}
