//! Immutable and append-only inodes.

use crate::images::{Workshop, tools};
use crate::operations::{new, volume};
use std::fs;
use std::process::{Command, Stdio};
use uvfs_ext::{Kind, ROOT, Timestamp};
use uvfs_ext_write::{
    Change, Error, Grow, Privileges, Rename, Result, SetAttributes, Volume, WriteAt,
};

/// Extents, and the flag.
const IMMUTABLE: &str = "0x80010";
const APPEND_ONLY: &str = "0x80020";

/// The objects: a file and a directory with a flag, a name in that directory, and others beside them without one.
#[derive(Clone, Copy)]
struct There {
    file: u32,
    directory: u32,
    free: u32,
}

const BYTES: &[u8] = b"some bytes";

type Step = fn(&Volume, There) -> Result<()>;

/// Steps with what becomes of them where the inodes are immutable, and where they are append-only: whether they are allowed.
const STEPS: &[(&str, bool, bool, Step)] = &[
    ("overwrite", false, false, |v, at| v.write(at.file, 3, b"x")),
    ("append", false, true, |v, at| {
        v.write_at(at.file, WriteAt::End, b"more", Privileges::Stay).map(drop)
    }),
    ("cut", false, false, |v, at| v.truncate(at.file, 3)),
    ("lengthen", false, false, |v, at| v.truncate(at.file, 100_000)),
    ("set blocks aside", false, true, |v, at| v.allocate(at.file, 0..100_000, Grow::Nothing)),
    ("set blocks aside and grow", false, true, |v, at| v.allocate(at.file, 0..100_000, Grow::Size)),
    ("punch", false, false, |v, at| v.punch(at.file, 0..5)),
    ("zero", false, false, |v, at| v.zero(at.file, 0..5, Grow::Nothing, Privileges::Stay)),
    ("chmod", false, false, |v, at| {
        let set = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
        v.set_attributes(at.file, &set)
    }),
    ("chown", false, false, |v, at| {
        v.set_attributes(at.file, &SetAttributes { uid: Some(7), ..SetAttributes::default() })
    }),
    ("set times", false, false, |v, at| {
        let then = Some(Timestamp { seconds: 5, nanoseconds: 0 });
        let set = SetAttributes { accessed: then, modified: then, ..SetAttributes::default() };
        v.set_attributes(at.file, &set)
    }),
    ("touch", false, true, |v, at| {
        let touch = || Change { is_touch: true, ..Change::default() };
        v.change(at.file, |_| Ok::<_, Error>(touch())).map(drop)
    }),
    ("set an attribute", false, false, |v, at| v.set_xattr(at.file, b"user.new", Some(b"x"))),
    ("remove an attribute", false, false, |v, at| v.set_xattr(at.file, b"user.old", None)),
    ("link", false, false, |v, at| v.link(at.file, ROOT, b"second")),
    ("unlink", false, false, |v, _| v.unlink(ROOT, b"file")),
    ("unlink as a directory", false, false, |v, _| v.rmdir(ROOT, b"file")),
    ("rename", false, false, |v, at| v.rename(ROOT, b"file", at.free, b"moved")),
    ("replace", false, false, |v, at| v.rename(at.free, b"inside", ROOT, b"file")),
    ("exchange", false, false, |v, at| {
        v.rename_as(at.free, b"inside", ROOT, b"file", Rename::Exchange)
    }),
    ("rename the directory", false, false, |v, _| v.rename(ROOT, b"directory", ROOT, b"moved")),
    ("create in", false, true, |v, at| {
        v.create(at.directory, b"created", &new(Kind::Regular)).map(drop)
    }),
    ("make a directory in", false, true, |v, at| {
        v.create(at.directory, b"made", &new(Kind::Directory)).map(drop)
    }),
    ("link into", false, true, |v, at| {
        let inside = v.lookup(at.free, b"inside")?.unwrap();
        v.link(inside, at.directory, b"linked")
    }),
    ("rename into", false, true, |v, at| v.rename(at.free, b"inside", at.directory, b"moved in")),
    ("unlink in", false, false, |v, at| v.unlink(at.directory, b"name")),
    ("rename in", false, false, |v, at| v.rename(at.directory, b"name", at.directory, b"other")),
    ("rename out of", false, false, |v, at| v.rename(at.directory, b"name", ROOT, b"out")),
    ("replace in", false, false, |v, at| v.rename(ROOT, b"other", at.directory, b"name")),
    ("write a file in", true, true, |v, at| {
        let inside = v.lookup(at.directory, b"name")?.unwrap();
        v.write(inside, 0, b"its own flags count")
    }),
];

/// An image made with these flags, and its objects.
fn flagged(workshop: &Workshop, flags: &str) -> (Vec<u8>, There) {
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M", None);
    let (device, volume) = volume(&image);
    let make = |parent, name: &str, kind| volume.create(parent, name.as_bytes(), &new(kind));
    let there = There {
        file: make(ROOT, "file", Kind::Regular).unwrap(),
        directory: make(ROOT, "directory", Kind::Directory).unwrap(),
        free: make(ROOT, "free", Kind::Directory).unwrap(),
    };
    make(ROOT, "other", Kind::Regular).unwrap();
    make(there.directory, "name", Kind::Regular).unwrap();
    make(there.free, "inside", Kind::Regular).unwrap();
    volume.write(there.file, 0, BYTES).unwrap();
    volume.set_xattr(there.file, b"user.old", Some(b"value")).unwrap();
    volume.close().unwrap();
    let path = workshop.path("flagged.img");
    fs::write(&path, device.bytes()).unwrap();
    for name in ["file", "directory"] {
        let mut debugfs = Command::new("debugfs");
        let set = format!("set_inode_field /{name} flags {flags}");
        debugfs.args(["-w", "-R", &set]).arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(debugfs.status().unwrap().success());
    }
    (fs::read(&path).unwrap(), there)
}

/// `chattr +i` and `chattr +a` by the kernel protected nothing from a mount of ours: writing, cutting and removing succeeded.
#[test]
fn flags_forbid_what_the_kernel_forbids() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for (flags, is_immutable) in [(IMMUTABLE, true), (APPEND_ONLY, false)] {
        let (image, there) = flagged(&workshop, flags);
        for (name, immutable, append_only, step) in STEPS {
            let (device, volume) = volume(&image);
            let done = step(&volume, there);
            match if is_immutable { immutable } else { append_only } {
                true => done.unwrap_or_else(|error| panic!("{flags}, {name}: {error}")),
                false => {
                    assert!(matches!(done, Err(Error::NotPermitted)), "{flags}, {name}: {done:?}");
                }
            }
            let mut read = [0; BYTES.len()];
            volume.read(there.file, 0, &mut read).unwrap();
            assert_eq!(read, *BYTES, "{flags}, {name}");
            volume.close().unwrap();
            let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
            assert_eq!(status, 0, "{flags}, {name}: {printed}");
        }
    }
}
