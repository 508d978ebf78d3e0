//! `uvfs image extract`: a tree out of an image, as it was: owners, modes, times, attributes, holes, hard links.
//!
//! # Boundary
//! Writes below one directory that was empty. Every name is created new, relative to the descriptor of the directory
//! it belongs in, and no link is followed: no image can make it write elsewhere.
//!
//! # Why
//! Attributes that cannot be kept (such as those that the host's file system refuses) are counted and reported at the end,
//! and change the exit status; the contents are there. Owners are the exception: no user but root can give them, so an
//! extraction by a user would always fail. The image's size bounds the contents of all
//! files together, so that files which share blocks do not fill the disk. Weakness: an object below more than 256
//! directories is refused.

use super::find;
use super::tree::{entries, failed};
use crate::units::counted;
use crate::{Failure, print_line};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{
    self, AtFlags, CWD, Mode, OFlags, ResolveFlags, Timespec, Timestamps, XattrFlags,
};
use rustix::io::Errno;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use uvfs_ext::{Image, Inode, Kind, Passed, Place, windows};

const DEPTH_MAX: usize = 256;
/// Losses of every extraction by a user: they are reported, and are no failure.
const OF_USERS: [&str; 2] = ["owners", "set-id bits"];
/// Bytes that are copied at a time.
const PIECE: u64 = 1 << 20;

/// Copies the object at `path` into the directory `target`.
pub(super) fn run(
    image: &Image,
    path: &Path,
    target: &Path,
    json: bool,
) -> Result<ExitCode, Failure> {
    let top = find(image, path)?;
    let root = empty_directory(target)?;
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {pos} objects");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let superblock = image.superblock();
    let mut copy = Copy {
        image,
        root: &root,
        bar: &bar,
        linked: HashMap::new(),
        directories: HashSet::new(),
        room_bytes: superblock.blocks.saturating_mul(superblock.block_size.into()),
        stopped: false,
        objects: 0,
        bytes: 0,
        lost: BTreeMap::new(),
    };
    let done = if top.kind() == Some(Kind::Directory) {
        copy.directories.insert(top.number);
        let below = copy.below(&top, root.as_fd(), Path::new(""), 0);
        below.and_then(|()| copy.dress(&top, root.as_fd(), Path::new(".")))
    } else {
        let name = path.file_name().unwrap_or(OsStr::new("file"));
        copy.object(&top, root.as_fd(), Path::new(name), 0)
    };
    bar.finish_and_clear();
    done?;
    let Copy { objects, bytes, lost, .. } = copy;
    print_line(&if json {
        json!({ "objects": objects, "bytes": bytes, "not_kept": lost }).to_string()
    } else {
        let objects = counted(objects, "object", "objects");
        format!("{objects}, {}", crate::units::show_bytes(bytes))
    });
    if lost.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let is_complete = lost.keys().all(|what| OF_USERS.contains(what));
    let named = lost.iter().map(|(what, count)| {
        let one = what.strip_suffix('s').filter(|_| !what.contains(' ')).unwrap_or(what);
        counted(*count, one, what)
    });
    let named: Vec<_> = named.collect();
    let note = Failure::refused(format!(
        "{}: copied, but not kept: {}",
        target.display(),
        named.join(", ")
    ));
    if !is_complete {
        return Err(note);
    }
    eprintln!("uvfs: {note}; root keeps them");
    Ok(ExitCode::SUCCESS)
}

/// Opens `target`, which is made or is empty.
fn empty_directory(target: &Path) -> Result<OwnedFd, Failure> {
    let refused = |why: &str| Failure::refused(format!("target {}: {why}", target.display()));
    let cause = |error: io::Error| refused(&crate::cause(&error));
    match std::fs::create_dir(target) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(target).map_err(cause)?;
            if entries.next().is_some() {
                return Err(refused("is not empty; name a directory that is, or a new one"));
            }
        }
        Err(error) => return Err(cause(error)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    fs::openat(CWD, target, flags, Mode::empty()).map_err(|error| cause(error.into()))
}

struct Copy<'a> {
    image: &'a Image,
    root: &'a OwnedFd,
    bar: &'a ProgressBar,
    /// Where inodes with several names were put first.
    linked: HashMap<u32, PathBuf>,
    /// Directories that were copied: a hostile image may have one in itself.
    directories: HashSet<u32>,
    /// Bytes that may still be written.
    room_bytes: u64,
    /// Nothing more can be copied.
    stopped: bool,
    objects: u64,
    bytes: u64,
    /// Kinds of losses, and how often each happened.
    lost: BTreeMap<&'static str, u64>,
}

impl Copy<'_> {
    fn lose(&mut self, what: &'static str) {
        *self.lost.entry(what).or_default() += 1;
    }

    /// The host's error for `path`. If the host has no room, or fails, nothing that follows can be copied.
    fn host(&mut self, path: &Path, error: &io::Error) -> Failure {
        let ends = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO];
        self.stopped |= ends.iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()));
        Failure::refused(format!("{}: {}", path.display(), crate::cause(error)))
    }

    /// Everything in a directory that exists already.
    fn below(
        &mut self,
        directory: &Inode,
        into: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        if depth > DEPTH_MAX {
            let path = path.display();
            return Err(Failure::refused(format!("{path}: deeper than {DEPTH_MAX} directories")));
        }
        for (name, number) in entries(self.image, path, directory)? {
            let path = path.join(&name);
            let inode = self.image.inode(number).map_err(|error| failed(&path, &error));
            let done = inode.and_then(|inode| self.object(&inode, into, &path, depth));
            if let Err(failure) = done {
                if self.stopped {
                    return Err(failure);
                }
                // The others are copied.
                self.bar.suspend(|| eprintln!("uvfs: {failure}"));
                self.lose("objects");
                if self.linked.get(&number).is_some_and(|first| *first == path) {
                    self.linked.remove(&number);
                }
            }
        }
        Ok(())
    }

    /// One object, under the last name of `path`.
    fn object(
        &mut self,
        inode: &Inode,
        into: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), Failure> {
        let name = Path::new(path.file_name().unwrap_or_default());
        self.objects += 1;
        self.bar.inc(1);
        let directory = inode.kind() == Some(Kind::Directory);
        if inode.links() > 1 && !directory {
            if let Some(first) = self.linked.get(&inode.number) {
                return link_again(self.root, first, into, name)
                    .map_err(|error| self.host(path, &error.into()));
            }
            self.linked.insert(inode.number, path.to_path_buf());
        }
        let private = Mode::RUSR | Mode::WUSR;
        match inode.kind() {
            Some(Kind::Directory) => {
                if !self.directories.insert(inode.number) {
                    let path = path.display();
                    return Err(Failure::refused(format!("{path}: the directory has two names")));
                }
                fs::mkdirat(into, name, private | Mode::XUSR)
                    .map_err(|error| self.host(path, &error.into()))?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let own = fs::openat(into, name, flags, Mode::empty())
                    .map_err(|error| self.host(path, &error.into()))?;
                self.below(inode, own.as_fd(), path, depth + 1)?;
                self.dress(inode, own.as_fd(), path)
            }
            Some(Kind::Regular) => {
                let flags = OFlags::RDWR
                    | OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let file = fs::openat(into, name, flags, private)
                    .map_err(|error| self.host(path, &error.into()))?;
                let file = std::fs::File::from(file);
                self.contents(inode, &file, path)?;
                self.dress(inode, file.as_fd(), path)
            }
            Some(Kind::Symlink) => {
                let text = self.image.read_link(inode).map_err(|error| failed(path, &error))?;
                fs::symlinkat(OsStr::from_bytes(&text), into, name)
                    .map_err(|error| self.host(path, &error.into()))?;
                self.dress_in_place(inode, into, name);
                Ok(())
            }
            Some(kind) => {
                let (kind, device) = match kind {
                    Kind::Fifo => (fs::FileType::Fifo, 0),
                    Kind::Socket => (fs::FileType::Socket, 0),
                    Kind::CharDevice => (fs::FileType::CharacterDevice, number(inode)),
                    _ => (fs::FileType::BlockDevice, number(inode)),
                };
                match fs::mknodat(into, name, kind, private, device) {
                    Ok(()) => self.dress_in_place(inode, into, name),
                    Err(_) => {
                        // Its other names have no object to link to.
                        self.linked.remove(&inode.number);
                        self.lose("devices, pipes or sockets");
                    }
                }
                Ok(())
            }
            None => Err(failed(
                path,
                &uvfs_ext::Error::Corrupt(
                    uvfs_ext::Fault::new("no kind of object").inode(inode.number),
                ),
            )),
        }
    }

    /// The bytes of a file; holes stay holes.
    fn contents(
        &mut self,
        inode: &Inode,
        file: &std::fs::File,
        path: &Path,
    ) -> Result<(), Failure> {
        let image = self.image;
        let size = inode.size();
        let block = u64::from(self.image.superblock().block_size);
        let mut piece = vec![0; PIECE as usize];
        file.set_len(size).map_err(|error| self.host(path, &error))?;
        let mut copy = |start: u64, end: u64| {
            for start in (start..end.min(size)).step_by(PIECE as usize) {
                let length = PIECE.min(end.min(size) - start);
                self.room_bytes = self.room_bytes.checked_sub(length).ok_or_else(|| {
                    self.stopped = true;
                    let path = path.display();
                    Failure::refused(format!("{path}: the files have more data than the image"))
                })?;
                let part = &mut piece[..length as usize];
                let read = image.read(inode, start, part);
                read.map_err(|error| failed(path, &error))?;
                file.write_all_at(part, start).map_err(|error| self.host(path, &error))?;
                self.bytes += length;
            }
            Ok(())
        };
        if inode.is_inline() {
            return copy(0, size);
        }
        let mut passed = Passed::default();
        for window in windows(0..size.div_ceil(block)) {
            let runs =
                image.map_on(inode, window, &mut passed).map_err(|error| failed(path, &error))?;
            for run in runs.iter().filter(|run| matches!(run.place, Place::At(_))) {
                copy(run.logical * block, (run.logical + run.length) * block)?;
            }
        }
        Ok(())
    }

    /// Sets owner, mode, attributes and times of an open object.
    fn dress(&mut self, inode: &Inode, file: BorrowedFd<'_>, path: &Path) -> Result<(), Failure> {
        let (uid, gid) = owner(inode);
        let owned = fs::fchown(file, uid, gid).is_ok();
        if !owned {
            self.lose("owners");
        }
        // Before the mode: it may forbid the owner what these need.
        let xattrs = self.image.xattrs(inode).map_err(|error| failed(path, &error))?;
        for xattr in xattrs {
            let name = OsStr::from_bytes(&xattr.name);
            if fs::fsetxattr(file, name, &xattr.value, XattrFlags::empty()).is_err() {
                self.lose("attributes");
            }
        }
        let (mode, whole) = mode(inode.mode(), owned);
        if !whole {
            self.lose("set-id bits");
        }
        if fs::fchmod(file, mode).is_err() {
            self.lose("modes");
        }
        if fs::futimens(file, &times(inode)).is_err() {
            self.lose("times");
        }
        Ok(())
    }

    /// Sets owner, mode and times of an object that cannot be opened. Extended attributes of such objects are rare and
    /// need a path, so they are counted as lost.
    fn dress_in_place(&mut self, inode: &Inode, into: BorrowedFd<'_>, name: &Path) {
        let (uid, gid) = owner(inode);
        let owned = fs::chownat(into, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if !owned {
            self.lose("owners");
        }
        let symlink = inode.kind() == Some(Kind::Symlink);
        let (mode, whole) = mode(inode.mode(), owned);
        if !symlink && !whole {
            self.lose("set-id bits");
        }
        if !symlink && chmod_in_place(into, name, mode).is_err() {
            self.lose("modes");
        }
        if self.image.xattr_names(inode).is_ok_and(|names| !names.is_empty()) {
            self.lose("attributes");
        }
        if fs::utimensat(into, name, &times(inode), AtFlags::SYMLINK_NOFOLLOW).is_err() {
            self.lose("times");
        }
    }
}

/// Gives the copy at `first` below `root` another name. The directory of `first` already has its final owner, a user that
/// may have put a link to elsewhere on the path. So no link is followed.
fn link_again(
    root: &OwnedFd,
    first: &Path,
    into: BorrowedFd<'_>,
    name: &Path,
) -> rustix::io::Result<()> {
    let way = first.parent().filter(|way| *way != Path::new("")).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let from = fs::openat2(root, way, flags, Mode::empty(), resolve)?;
    fs::linkat(from, first.file_name().unwrap_or_default(), into, name, AtFlags::empty())
}

fn owner(inode: &Inode) -> (Option<fs::Uid>, Option<fs::Gid>) {
    (Some(fs::Uid::from_raw(inode.uid())), Some(fs::Gid::from_raw(inode.gid())))
}

/// The permission bits of `mode`, and whether those are all. Without the right owner, the set-ID bits are dropped: the
/// program would run as the user that extracted it.
fn mode(mode: u16, owned: bool) -> (Mode, bool) {
    let mode = Mode::from_raw_mode(u32::from(mode & 0o7777));
    let kept = if owned { mode } else { mode - (Mode::SUID | Mode::SGID) };
    (kept, kept == mode)
}

/// Gives `name` its mode. Another process may have replaced it by a link, which is not followed.
fn chmod_in_place(into: BorrowedFd<'_>, name: &Path, mode: Mode) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = fs::openat(into, name, flags, Mode::empty())?;
    fs::chmod(format!("/proc/self/fd/{}", own.as_raw_fd()), mode)
}

fn number(inode: &Inode) -> u64 {
    let (major, minor) = inode.device();
    fs::makedev(major, minor)
}

fn times(inode: &Inode) -> Timestamps {
    let time = |time: uvfs_ext::Timestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    Timestamps { last_access: time(inode.accessed()), last_modification: time(inode.modified()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another name was made through the path of the first one. The owner of a directory on that path could put a link in its
    /// place, and root's extraction gave a file from outside a name in the tree.
    #[test]
    fn another_name_is_not_made_through_a_link() {
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (place.path().join("root"), place.path().join("outside"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        for at in ["root/a/b/file", "root/top", "outside/file"] {
            std::fs::write(place.path().join(at), at).unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = fs::openat(CWD, &root, flags, Mode::empty()).unwrap();
        let link = |first: &str, name: &str| {
            link_again(&open, Path::new(first), open.as_fd(), Path::new(name))
        };
        link("a/b/file", "second").unwrap();
        link("top", "third").unwrap();
        assert_eq!(std::fs::read_to_string(root.join("second")).unwrap(), "root/a/b/file");
        std::fs::rename(root.join("a/b"), root.join("a/moved")).unwrap();
        for target in [outside.as_path(), Path::new("../../outside")] {
            std::os::unix::fs::symlink(target, root.join("a/b")).unwrap();
            assert_eq!(link("a/b/file", "stolen"), Err(Errno::LOOP));
            assert!(!root.join("stolen").exists());
            std::fs::remove_file(root.join("a/b")).unwrap();
        }
    }

    /// A set-ID file of root's, extracted by another user, became a program that runs as that user.
    #[test]
    fn what_could_not_be_given_its_owner_does_not_run_as_another() {
        let bits = |mode: u32| Mode::from_raw_mode(mode);
        assert_eq!(mode(0o104_755, true), (bits(0o4755), true));
        assert_eq!(mode(0o104_755, false), (bits(0o755), false));
        assert_eq!(mode(0o102_755, false), (bits(0o755), false));
        assert_eq!(mode(0o041_777, false), (bits(0o1777), true));
    }
}
