//! Immutable and append-only files of a disk image: a mount of ours refuses what the kernel's refuses.

use crate::common::{Place, can_mount};
use crate::images::{assert_same, done, text, tree};
use crate::images_written::{Kernel, created, sound, without_times};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

type Step = fn(&Path) -> io::Result<()>;

/// What is done to an object that has the flag, or in a directory that has it. Each opens and writes in one step: a mount of ours
/// refuses the write where the kernel refuses to open.
const STEPS: &[(&str, Step)] = &[
    ("overwrite", |on| OpenOptions::new().write(true).open(on.join("file"))?.write_all_at(b"x", 3)),
    ("open to overwrite", |on| {
        let mut open = OpenOptions::new();
        open.write(true).truncate(true).open(on.join("file")).map(drop)
    }),
    ("append", |on| opened(on)?.write_all(b" and more")),
    ("append again", |on| opened(on)?.write_all(&[b'x'; 5000])),
    ("cut", |on| opened(on)?.set_len(2)),
    ("lengthen", |on| opened(on)?.set_len(100_000)),
    ("set aside", |on| allocate(on, FallocateFlags::KEEP_SIZE)),
    ("punch", |on| allocate(on, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE)),
    ("zero", |on| allocate(on, FallocateFlags::ZERO_RANGE)),
    ("chmod", |on| fs::set_permissions(on.join("file"), PermissionsExt::from_mode(0o600))),
    ("chmod of the directory", |on| {
        fs::set_permissions(on.join("directory"), PermissionsExt::from_mode(0o700))
    }),
    ("chown", |on| std::os::unix::fs::chown(on.join("file"), Some(7), None)),
    ("touch", |on| times(on, UTIME_NOW)),
    ("set times", |on| times(on, 5)),
    ("set an attribute", |on| {
        Ok(rustix::fs::setxattr(on.join("file"), "user.a", b"x", XattrFlags::empty())?)
    }),
    ("remove an attribute", |on| Ok(rustix::fs::removexattr(on.join("file"), "user.old")?)),
    ("link", |on| fs::hard_link(on.join("file"), on.join("second"))),
    ("link over", |on| fs::hard_link(on.join("file"), on.join("free/inside"))),
    ("rename", |on| fs::rename(on.join("file"), on.join("moved"))),
    ("replace", |on| fs::rename(on.join("free/inside"), on.join("file"))),
    ("unlink", |on| fs::remove_file(on.join("file"))),
    ("rename the directory", |on| fs::rename(on.join("directory"), on.join("moved"))),
    ("remove the directory", |on| fs::remove_dir(on.join("directory"))),
    ("create in", |on| File::create(on.join("directory/created")).map(drop)),
    ("create what is there", |on| File::create_new(on.join("directory/name")).map(drop)),
    ("make in", |on| fs::create_dir(on.join("directory/made"))),
    ("link in", |on| std::os::unix::fs::symlink("x", on.join("directory/link"))),
    ("link into", |on| fs::hard_link(on.join("free/inside"), on.join("directory/linked"))),
    ("rename into", |on| fs::rename(on.join("free/inside"), on.join("directory/came"))),
    ("unlink in", |on| fs::remove_file(on.join("directory/name"))),
    ("unlink what is not there", |on| fs::remove_file(on.join("directory/none"))),
    ("rename in", |on| fs::rename(on.join("directory/name"), on.join("directory/other"))),
    ("rename out of", |on| fs::rename(on.join("directory/name"), on.join("out"))),
    ("write a file in", |on| fs::write(on.join("directory/name"), "its own flags count")),
];

/// The file, open in the one way in which an append-only one can be.
fn opened(on: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(on.join("file"))
}

fn allocate(on: &Path, how: FallocateFlags) -> io::Result<()> {
    Ok(rustix::fs::fallocate(opened(on)?, how, 0, 20_000)?)
}

fn times(on: &Path, nanoseconds: i64) -> io::Result<()> {
    let time = Timespec { tv_sec: 5, tv_nsec: nanoseconds };
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, on.join("file"), &times, AtFlags::empty())?)
}

/// `chattr +i` and `chattr +a` by the kernel protected nothing from a mount of ours: writing, cutting and removing succeeded.
#[test]
fn flags_of_inodes_forbid_what_they_forbid_in_the_kernels_mount() {
    if !can_mount() {
        return;
    }
    for flag in ["+i", "+a"] {
        let place = Place::new();
        let Some(image) = created(&place, "disk.img", "32M") else { return };
        {
            let Some(kernel) = Kernel::mount(&place, &image, "kernel") else { return };
            let on = |name: &str| kernel.0.join(name);
            for name in ["directory", "free"] {
                fs::create_dir(on(name)).unwrap();
            }
            for name in ["file", "directory/name", "free/inside"] {
                fs::write(on(name), "some bytes").unwrap();
            }
            rustix::fs::setxattr(on("file"), "user.old", b"x", XattrFlags::empty()).unwrap();
            let mut chattr = Command::new("chattr");
            chattr.arg(flag).args([on("file"), on("directory")]);
            assert!(chattr.status().unwrap().success());
        }
        let twin = place.source.with_file_name("twin.img");
        fs::copy(&image, &twin).unwrap();
        let kernel = Kernel::mount(&place, &twin, "kernel").unwrap();
        place.mount_daemon(text(&image), &[]);
        let (ours, theirs) = (&place.mountpoint, &kernel.0);
        for (name, step) in STEPS {
            let errno = |on: &Path| step(on).map_err(|error| error.raw_os_error());
            assert_eq!(errno(ours), errno(theirs), "{flag}: {name}");
        }
        assert_same(&without_times(tree(ours)), &without_times(tree(theirs)));
        done(&["unmount", place.mnt()]);
        sound(&image);
    }
}
