//! Floor: a written image, against the kernel's: the same operations of four programs on two images, one of our mount
//! and one of the kernel's, have the same results and the same tree, and each can read the other's image.
//!
//! Times of now come from two clocks and are not compared; set times are. Free blocks are not compared: the places of
//! extents decide how many nodes map them. Needs root, `/dev/fuse`, loop devices and mke2fs; is skipped where they
//! lack. `UVFS_TWIN_OPERATIONS` sets the number of operations, `UVFS_SEED` their choice.

use rustix::fs::{OFlags, RenameFlags};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_ext_write::WritableFile;
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Numbers, Watchdog, seed, unmount_idle};
use uvfs_vfs::{Vfs, VfsConfig};

/// The operations of a run without `UVFS_TWIN_OPERATIONS`.
const FEW: usize = 3000;
/// Operations between two comparisons of everything.
const ROUND: usize = 10_000;
/// Programs, whose steps alternate by the seed.
const PROGRAMS: u64 = 4;
/// Largest size of a file, without its preallocated part.
const LENGTH_MAX: u64 = 200_000;
/// Times that are set are of this time and some seconds more: none of now.
const OLD: u64 = 1_000_000_000;

/// Runs a command for a minute at most.
pub(crate) fn done(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("timeout").args(["-k", "2", "60", program]).args(arguments).output();
    let output = output.map_err(|error| format!("timeout: {error}"))?;
    let printed = [output.stdout, output.stderr]
        .map(|printed| String::from_utf8_lossy(&printed).into_owned());
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{program} {arguments:?}: {printed:?}"))
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Mounted by the kernel until it is dropped.
pub(crate) struct Kernel(PathBuf);

impl Kernel {
    pub(crate) fn mount(image: &Path, on: &Path) -> Self {
        done("mount", &["-t", "ext4", "-o", "loop,nodev", text(image), text(on)]).unwrap();
        Self(on.to_owned())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if done("umount", &[text(&self.0)]).is_err() {
            let _ = done("umount", &["-l", text(&self.0)]);
        }
    }
}

fn our_mount(image: &Path, on: &Path) -> (Mount, Arc<Vfs>) {
    let device = Arc::new(WritableFile::open(image).unwrap());
    let image = WritingImage::open(device, &WritingConfig::default()).unwrap();
    let vfs = Vfs::new(image, VfsConfig::default()).unwrap();
    (Mount::start(vfs.clone(), on, MountOptions::default()).unwrap(), vfs)
}

/// The image is as it was unmounted when this returns. The session's threads may have the file system for a moment longer than a
/// mount that is dropped: the image was checked in that moment, once in some hundred runs, and its journal was not empty.
fn end((mount, vfs): (Mount, Arc<Vfs>)) {
    unmount_idle(|| mount.unmount(Unmount::Idle));
    mount.wait();
    drop(mount);
    assert_eq!(vfs.end().len(), 0, "lost");
}

/// One operation, by paths below a root.
#[derive(Debug)]
enum Operation {
    Make(PathBuf),
    /// Without a name at first, which it gets last.
    Unnamed {
        path: PathBuf,
        length: usize,
        fill: u8,
    },
    Directory(PathBuf),
    Remove(PathBuf),
    RemoveDirectory(PathBuf),
    Rename(PathBuf, PathBuf),
    Swap(PathBuf, PathBuf),
    Whiteout(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(usize, PathBuf),
    Write {
        path: PathBuf,
        at: u64,
        length: usize,
        fill: u8,
    },
    Append {
        path: PathBuf,
        length: usize,
        fill: u8,
    },
    Cut(PathBuf, u64),
    Mode(PathBuf, u32),
    Owner(PathBuf, u32),
    Time(PathBuf, u64),
    Attribute(PathBuf, u64, usize),
    NoAttribute(PathBuf, u64),
    SetAside(PathBuf, u64, u64),
    Punch(PathBuf, u64, u64),
    Sync(PathBuf),
    Read(PathBuf),
    About(PathBuf),
    List(PathBuf),
}

use Operation::*;

/// A directory of a program, now and then of another one; names collide often.
fn directory(numbers: &mut Numbers, program: u64) -> PathBuf {
    let program = if numbers.below(10) == 0 { numbers.below(PROGRAMS) } else { program };
    let base = PathBuf::from(format!("p{program}"));
    match numbers.below(4) {
        0 => base,
        at => base.join(format!("s{}", at + numbers.below(2))),
    }
}

fn path(numbers: &mut Numbers, program: u64) -> PathBuf {
    // Now and then many names, so that directories get an index and leaves are split.
    let names = if numbers.below(3) == 0 { 900 } else { 30 };
    let name = numbers.below(names);
    // Names have many lengths.
    directory(numbers, program).join(format!("f{name}{}", "x".repeat(name as usize % 37)))
}

fn operation(numbers: &mut Numbers) -> Operation {
    let program = numbers.below(PROGRAMS);
    let one = path(numbers, program);
    let fill = numbers.below(256) as u8;
    let at = numbers.below(LENGTH_MAX);
    let length = 1 + numbers.below(if fill == 0 { 60_000 } else { 6000 });
    let range = (numbers.below(LENGTH_MAX), 1 + numbers.below(40_000));
    let name = numbers.below(6);
    match numbers.below(64) {
        0..=13 => Make(one),
        14..=15 => Unnamed { path: one, length: length as usize, fill },
        16..=25 => Remove(one),
        26..=27 => Rename(one, path(numbers, program)),
        28 => Swap(one, path(numbers, program)),
        29 => Whiteout(one, path(numbers, program)),
        30..=31 => {
            let (from, to) = (directory(numbers, program), directory(numbers, program));
            match numbers.below(8) {
                0 => Swap(from, to),
                1 => Whiteout(from, to),
                _ => Rename(from, to),
            }
        }
        32..=33 => Link(one, path(numbers, program)),
        34 => Symlink(1 + numbers.below(200) as usize, one),
        35..=37 => Directory(directory(numbers, program)),
        38 => RemoveDirectory(directory(numbers, program)),
        39..=43 => Write { path: one, at, length: length as usize, fill },
        44..=46 => Append { path: one, length: length as usize, fill },
        47..=48 => Cut(one, at),
        49 => Mode(one, 0o400 | numbers.below(0o400) as u32),
        50 => Owner(one, numbers.below(100_000) as u32),
        51 => Time(one, numbers.below(100_000)),
        52..=53 => Attribute(one, name, 1 + numbers.below(300) as usize),
        54 => NoAttribute(one, name),
        55 => SetAside(one, range.0, range.1),
        56 => Punch(one, range.0, range.1),
        57 => Sync(one),
        58..=60 => Read(one),
        61..=62 => About(one),
        _ => List(directory(numbers, program)),
    }
}

/// Small attributes fit into the inode, some do not.
fn attribute(name: u64) -> String {
    format!("user.name{name}")
}

/// An object's kind and mode, links, owner, size, and the time of its contents if that was set.
type Head = (u32, u64, u32, u64, Option<i64>);

fn head(path: &Path) -> io::Result<Head> {
    let about = fs::symlink_metadata(path)?;
    // The number of blocks for a directory's names may differ.
    let size = if about.is_dir() { 0 } else { about.size() };
    let was_set = (about.mtime() as u64) < 2 * OLD - 500_000_000;
    Ok((about.mode(), about.nlink(), about.uid(), size, was_set.then(|| about.mtime())))
}

fn names(path: &Path) -> io::Result<Vec<u8>> {
    let names = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_encoded_bytes()));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names.join(&b'/'))
}

fn fallocate(
    path: &Path,
    how: rustix::fs::FallocateFlags,
    (at, length): (u64, u64),
) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    Ok(rustix::fs::fallocate(&file, how, at, length)?)
}

fn renamed(from: &Path, to: &Path, how: RenameFlags) -> io::Result<()> {
    Ok(rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, how)?)
}

/// The result of an operation below `root`.
fn perform(operation: &Operation, root: &Path) -> io::Result<Vec<u8>> {
    let at = |path: &PathBuf| root.join(path);
    let open = |path: &PathBuf| File::options().write(true).open(at(path));
    let nothing = |()| Vec::new();
    match operation {
        Make(path) => File::create_new(at(path)).map(|_| Vec::new()),
        Unnamed { path, length, fill } => {
            let path = at(path);
            let folder = path.parent().expect("below the root");
            let flags = OFlags::TMPFILE | OFlags::WRONLY;
            let file = File::from(rustix::fs::open(
                folder,
                flags,
                rustix::fs::Mode::from_raw_mode(0o644),
            )?);
            file.write_all_at(&vec![*fill; *length], 0)?;
            let none = rustix::fs::AtFlags::EMPTY_PATH;
            Ok(rustix::fs::linkat(&file, c"", rustix::fs::CWD, &path, none).map(nothing)?)
        }
        Directory(path) => fs::create_dir(at(path)).map(nothing),
        Remove(path) => fs::remove_file(at(path)).map(nothing),
        RemoveDirectory(path) => fs::remove_dir(at(path)).map(nothing),
        Rename(from, to) => fs::rename(at(from), at(to)).map(nothing),
        Swap(from, to) => renamed(&at(from), &at(to), RenameFlags::EXCHANGE).map(nothing),
        Whiteout(from, to) => renamed(&at(from), &at(to), RenameFlags::WHITEOUT).map(nothing),
        Link(old, new) => fs::hard_link(at(old), at(new)).map(nothing),
        Symlink(length, path) => symlink("t".repeat(*length), at(path)).map(nothing),
        Write { path, at, length, fill } => {
            open(path)?.write_all_at(&vec![*fill; *length], *at).map(nothing)
        }
        Append { path, length, fill } => {
            let file = File::options().append(true).open(at(path))?;
            if file.metadata()?.len() < LENGTH_MAX {
                io::Write::write_all(&mut &file, &vec![*fill; *length])?;
            }
            Ok(Vec::new())
        }
        Cut(path, length) => open(path)?.set_len(*length).map(nothing),
        Mode(path, mode) => {
            fs::set_permissions(at(path), fs::Permissions::from_mode(*mode)).map(nothing)
        }
        Owner(path, owner) => std::os::unix::fs::lchown(at(path), Some(*owner), None).map(nothing),
        Time(path, seconds) => {
            let then = UNIX_EPOCH + Duration::from_secs(OLD + seconds);
            File::open(at(path))?.set_modified(then).map(nothing)
        }
        Attribute(path, name, length) => {
            let (value, flags) = (vec![b'v'; *length], rustix::fs::XattrFlags::empty());
            Ok(rustix::fs::lsetxattr(at(path), attribute(*name), &value, flags).map(nothing)?)
        }
        NoAttribute(path, name) => {
            Ok(rustix::fs::lremovexattr(at(path), attribute(*name)).map(nothing)?)
        }
        SetAside(path, from, length) => {
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            let how = if length % 2 == 0 { keep } else { rustix::fs::FallocateFlags::empty() };
            fallocate(&at(path), how, (*from, *length)).map(nothing)
        }
        Punch(path, from, length) => {
            use rustix::fs::FallocateFlags as Flags;
            fallocate(&at(path), Flags::PUNCH_HOLE | Flags::KEEP_SIZE, (*from, *length))
                .map(nothing)
        }
        Sync(path) => open(path)?.sync_all().map(nothing),
        Read(path) => fs::read(at(path)),
        About(path) => Ok(format!("{:?}", head(&at(path))?).into_bytes()),
        List(path) => names(&at(path)),
    }
}

/// An object: its attributes, its contents or text, its extended attributes.
type Object = (Head, Vec<u8>, Vec<Vec<u8>>);

/// All there is, by path.
fn tree(root: &Path) -> BTreeMap<PathBuf, Object> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![root.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|name| name == "lost+found") {
                continue;
            }
            let about = fs::symlink_metadata(&path).unwrap();
            let contents = if about.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if about.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else if about.is_file() {
                fs::read(&path).unwrap()
            } else {
                Vec::new()
            };
            let value = |name: u64| {
                let mut value = vec![0; 1024];
                let length = rustix::fs::lgetxattr(&path, attribute(name), &mut value[..]).ok()?;
                Some(value[..length].to_vec())
            };
            let attributes = (0..6).map(|name| value(name).unwrap_or_default()).collect();
            let place = path.strip_prefix(root).expect("below the root").to_owned();
            found.insert(place, (head(&path).unwrap(), contents, attributes));
        }
    }
    found
}

/// Both trees are the same; how many objects they have.
fn same(when: &str, ours: &Path, theirs: &Path) -> usize {
    let [mut ours, mut theirs] = [tree(ours), tree(theirs)];
    let count = ours.len();
    ours.retain(|path, about| match theirs.get(path) == Some(about) {
        true => theirs.remove(path).is_none(),
        false => true,
    });
    let short = |tree: &BTreeMap<PathBuf, Object>| {
        let one = |(path, about): (&PathBuf, &Object)| {
            let attributes: Vec<usize> = about.2.iter().map(Vec::len).collect();
            format!("{}: {:?}, attributes of {attributes:?} bytes", path.display(), about.0)
        };
        tree.iter().map(one).take(5).collect::<Vec<_>>()
    };
    assert!(
        ours.is_empty() && theirs.is_empty(),
        "{when}: {:?} against {:?}",
        short(&ours),
        short(&theirs)
    );
    count
}

#[test]
fn the_same_operations_leave_what_the_kernel_leaves() {
    if !uvfs_skip::can_mount() {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return uvfs_skip::lacking("no loop devices");
    }
    if let Err(error) = Command::new("mke2fs").arg("-V").output() {
        return uvfs_skip::lacking(format_args!("mke2fs: {error}"));
    }
    let wanted = std::env::var("UVFS_TWIN_OPERATIONS").ok().and_then(|text| text.parse().ok());
    let wanted: usize = wanted.unwrap_or(FEW);
    let mut numbers = Numbers(seed());
    let folder = tempfile::tempdir().unwrap();
    let [ours, theirs, one, other] =
        ["ours", "theirs", "ours.img", "theirs.img"].map(|name| folder.path().join(name));
    for (place, image) in [(&ours, &one), (&theirs, &other)] {
        fs::create_dir(place).unwrap();
        // Inodes enough for half a million operations and more. Where none is free, the kernel refuses a whiteout before it looks
        // at the target, and we behind that: both are right, and differ.
        let about = ["-q", "-F", "-t", "ext4", "-b", "1024", "-N", "200000", text(image), "600M"];
        done("mke2fs", &about).unwrap();
    }
    let rescued = [ours.clone(), theirs.clone()];
    let limit = Duration::from_secs(300 + wanted as u64 / 500);
    let _watchdog = Watchdog::with_rescue(limit, move || {
        rescued.iter().for_each(|path| drop(done("umount", &["-l", text(path)])));
    });
    let kernel = Kernel::mount(&other, &theirs);
    let mount = our_mount(&one, &ours);
    for root in [&ours, &theirs] {
        for program in (0..PROGRAMS).map(|program| root.join(format!("p{program}"))) {
            fs::create_dir(&program).unwrap();
            // Without these most operations of a short run would fail because no directory exists.
            (1..=4).for_each(|at| fs::create_dir(program.join(format!("s{at}"))).unwrap());
        }
    }
    let (mut refused, mut count) = (0, 0);
    for number in 0..wanted {
        let operation = operation(&mut numbers);
        let [here, there] = [&ours, &theirs]
            .map(|root| perform(&operation, root).map_err(|error| error.raw_os_error()));
        let room = || {
            [&ours, &theirs]
                .map(|root| rustix::fs::statvfs(root).map(|about| (about.f_ffree, about.f_bfree)))
        };
        assert_eq!(
            here,
            there,
            "operation {number}: {operation:?}, ours and theirs; free inodes and blocks: {:?}",
            room()
        );
        refused += usize::from(here.is_err());
        if (number + 1) % ROUND == 0 || number + 1 == wanted {
            count = same(&format!("after {number} operations"), &ours, &theirs);
        }
    }
    let free = |root: &Path| rustix::fs::statvfs(root).unwrap().f_ffree;
    assert_eq!(free(&ours), free(&theirs), "inodes that are free");
    drop(kernel);
    end(mount);
    for image in [&one, &other] {
        done("e2fsck", &["-fn", text(image)]).unwrap();
    }
    // Each with the other's image.
    let kernel = Kernel::mount(&one, &theirs);
    let mount = our_mount(&other, &ours);
    assert_eq!(same("exchanged", &ours, &theirs), count);
    drop(kernel);
    end(mount);
    println!("{wanted} operations, {refused} refused by both; {count} objects at the end");
    assert!(refused * 4 < wanted * 3 && count > 50, "{refused} refused, {count} objects");
}
