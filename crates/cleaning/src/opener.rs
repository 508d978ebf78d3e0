//! Opening files and directories below a start, one name at a time, without leaving its file system.
//!
//! # Boundary
//! Descriptor and name in, descriptor out. No links are followed, no mount point is crossed, and no open waits (a FIFO
//! that replaced a file does not block). Classifies each refusal for a walk ([`Refused`]).
//!
//! # Why
//! openat2(2) has flags for all of that (Linux 5.6), so a directory costs one call and no stat. Before it, the device
//! number of the opened file is compared: a bind mount of the same file system is crossed then.
//!
//! An open inserts the name and its inode into the kernel's caches; no flag avoids that. But one makes the open fail
//! instead (RESOLVE_CACHED, Linux 5.12). It is tried first: so the names that a walk adds are counted. A walk that
//! should add none ([`Fill::Never`]) skips such a name, and with a directory all below it, since the kernel has cached
//! no name below an uncached one. Such a walk misses pages of a file whose name was evicted before them, for example
//! after `echo 2 > /proc/sys/vm/drop_caches`. Weakness: a permission event (fanotify) and an open of a network file
//! system happen all the same.

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// May the walk bring names into the kernel's cache?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Where it has to.
    Allowed,
    /// Such names are left alone.
    Never,
}

/// Which calls this kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offered {
    /// openat2(2).
    openat2: bool,
    /// RESOLVE_CACHED of it.
    cached: bool,
}

impl Offered {
    /// Tries them on `/`.
    pub(super) fn probe() -> Self {
        let works = |resolve| {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            fs::openat2(CWD, c"/", flags, Mode::empty(), resolve).is_ok()
        };
        Self { openat2: works(ResolveFlags::NO_XDEV), cached: works(ResolveFlags::CACHED) }
    }

    /// None of them, as before Linux 5.6.
    #[cfg(test)]
    pub(super) const NOTHING: Self = Self { openat2: false, cached: false };

    /// Whether [`Fill::Never`] can be had.
    pub(super) fn can_leave_alone(self) -> bool {
        self.cached
    }
}

/// Why a name was not opened.
#[derive(Debug)]
pub(super) enum Refused {
    /// It is a mount point.
    Mount,
    /// It was removed, or replaced by another kind.
    Vanished,
    /// It would have to be brought into the kernel's cache.
    Cold,
    /// This user may not.
    Denied(io::Error),
    /// Something else.
    Failed(io::Error),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Refused::Mount,
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::NXIO => Refused::Vanished,
            Errno::ACCESS | Errno::PERM => Refused::Denied(errno.into()),
            _ => Refused::Failed(errno.into()),
        }
    }
}

/// A descriptor that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: OwnedFd,
    /// The kernel did not have the name cached before.
    pub(super) filled: bool,
}

/// Opens names of one file system.
#[derive(Debug)]
pub(super) struct Opener {
    offered: Offered,
    fill: Fill,
    device: (u32, u32),
}

impl Opener {
    /// For files below `start`.
    pub(super) fn new(start: BorrowedFd<'_>, offered: Offered, fill: Fill) -> io::Result<Self> {
        Ok(Self { offered, fill, device: Identity::of(start)?.device })
    }

    /// The directory `name` in `parent`, for listing.
    pub(super) fn directory(&self, parent: &OwnedFd, name: &CStr) -> Result<Opened, Refused> {
        // Listing without O_NOATIME would make the directory's inode dirty; only its owner and root may.
        let flags = OFlags::DIRECTORY | OFlags::NOATIME;
        match self.open(parent, name, flags) {
            Err(Refused::Denied(error)) if is(&error, Errno::PERM) => {
                self.open(parent, name, OFlags::DIRECTORY)
            }
            opened => opened,
        }
    }

    /// The file `name` in `parent`. It is not read, so its access time stays.
    pub(super) fn file(&self, parent: &OwnedFd, name: &CStr) -> Result<Opened, Refused> {
        self.open(parent, name, OFlags::empty())
    }

    fn open(&self, parent: &OwnedFd, name: &CStr, more: OFlags) -> Result<Opened, Refused> {
        let flags = OFlags::RDONLY
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC
            | more;
        if !self.offered.openat2 {
            let file = fs::openat(parent, name, flags, Mode::empty())?;
            let identity = Identity::of(file.as_fd()).map_err(Refused::Failed)?;
            return if identity.device == self.device {
                Ok(Opened { file, filled: false })
            } else {
                Err(Refused::Mount)
            };
        }
        let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
        let open = |resolve| fs::openat2(parent, name, flags, Mode::empty(), resolve);
        if self.offered.cached {
            match open(stay | ResolveFlags::CACHED) {
                Err(Errno::AGAIN) if self.fill == Fill::Never => return Err(Refused::Cold),
                Err(Errno::AGAIN) => {}
                opened => return Ok(Opened { file: opened?, filled: false }),
            }
        }
        Ok(Opened { file: open(stay)?, filled: self.offered.cached })
    }
}

/// Opens the directory at `path`, which a request names: no link on the way is followed.
pub(super) fn start(path: &Path, offered: Offered) -> Result<OwnedFd, Errno> {
    match open_at(path, offered, OFlags::RDONLY | OFlags::NOATIME) {
        Err(Errno::PERM) => open_at(path, offered, OFlags::RDONLY),
        opened => opened,
    }
}

/// Opens as [`start`] does, to find out where `path` is: the file system does not learn of an open.
pub(super) fn look(path: &Path, offered: Offered) -> Result<OwnedFd, Errno> {
    open_at(path, offered, OFlags::PATH)
}

/// [`look`], if the kernel can answer from its caches alone: no file system is asked, so none can hang. `None` if it
/// cannot.
pub(super) fn look_cached(path: &Path, offered: Offered) -> Option<Result<OwnedFd, Errno>> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::CACHED;
    let looked = offered.cached.then(|| fs::openat2(CWD, path, flags, Mode::empty(), resolve))?;
    (!matches!(looked, Err(Errno::AGAIN))).then_some(looked)
}

fn open_at(path: &Path, offered: Offered, how: OFlags) -> Result<OwnedFd, Errno> {
    let flags = how | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if offered.openat2 {
        return fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    }
    let resolved = std::fs::canonicalize(path).map_err(|error| raw(&error))?;
    // Components, so that a slash at the end or twice is no difference.
    if !resolved.components().eq(path.components()) {
        return Err(Errno::LOOP);
    }
    fs::openat(CWD, path, flags, Mode::empty())
}

/// The identity of a file, and the data for measuring it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    /// Device of the file system.
    pub(super) device: (u32, u32),
    /// Number of the inode in the file system.
    pub(super) inode: u64,
    /// How many names it has.
    pub(super) names: u64,
    /// Size of the file.
    pub(super) bytes: u64,
    /// Owner of the file.
    pub(super) uid: u32,
    /// Whether it is a regular file.
    pub(super) regular: bool,
}

impl Identity {
    /// Identity of an open file, from local knowledge: a network file system is not asked again.
    pub(super) fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::TYPE
            | StatxFlags::NLINK
            | StatxFlags::UID
            | StatxFlags::INO
            | StatxFlags::SIZE;
        match fs::statx(file, c"", flags, wanted) {
            Ok(stat) => Ok(Self {
                device: (stat.stx_dev_major, stat.stx_dev_minor),
                inode: stat.stx_ino,
                names: stat.stx_nlink.into(),
                bytes: stat.stx_size,
                uid: stat.stx_uid,
                regular: fs::FileType::from_raw_mode(stat.stx_mode.into()).is_file(),
            }),
            Err(Errno::NOSYS) => {
                let stat = fs::fstat(file)?;
                Ok(Self {
                    device: (fs::major(stat.st_dev), fs::minor(stat.st_dev)),
                    inode: stat.st_ino,
                    #[allow(clippy::useless_conversion, reason = "32 bits on aarch64")]
                    names: stat.st_nlink.into(),
                    bytes: u64::try_from(stat.st_size).unwrap_or(0),
                    uid: stat.st_uid,
                    regular: fs::FileType::from_raw_mode(stat.st_mode).is_file(),
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether `error` is `errno`.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn raw(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Every way of opening that this kernel offers.
    fn ways() -> Vec<Offered> {
        let mut ways = vec![Offered::NOTHING];
        let probed = Offered::probe();
        match probed == Offered::NOTHING {
            true => uvfs_skip::lacking("this kernel has no openat2"),
            false => ways.push(probed),
        }
        ways
    }

    #[test]
    fn links_and_what_is_missing_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "x").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        symlink("file", folder.path().join("link")).unwrap();
        symlink("folder", folder.path().join("to-folder")).unwrap();
        let base = folder.path().canonicalize().unwrap();
        for offered in ways() {
            let start = start(&base, offered).unwrap();
            let opener = Opener::new(start.as_fd(), offered, Fill::Allowed).unwrap();
            let file = opener.file(&start, c"file").unwrap();
            let identity = Identity::of(file.file.as_fd()).unwrap();
            assert!(identity.regular && identity.bytes == 1 && identity.names == 1);
            assert!(opener.directory(&start, c"folder").is_ok());
            for name in [c"link", c"none"] {
                assert!(matches!(opener.file(&start, name), Err(Refused::Vanished)), "{name:?}");
            }
            for name in [c"to-folder", c"file"] {
                assert!(matches!(opener.directory(&start, name), Err(Refused::Vanished)));
            }
        }
    }

    #[test]
    fn a_start_is_a_directory_without_links_on_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("real/below")).unwrap();
        symlink("real", base.join("link")).unwrap();
        std::fs::write(base.join("file"), "").unwrap();
        for offered in ways() {
            assert!(start(&base.join("real//below/."), offered).is_ok());
            assert!(look(&base.join("real//below/."), offered).is_ok());
            for path in ["link", "link/below"] {
                assert_eq!(start(&base.join(path), offered).unwrap_err(), Errno::LOOP, "{path}");
                assert_eq!(look(&base.join(path), offered).unwrap_err(), Errno::LOOP, "{path}");
            }
            assert_eq!(start(&base.join("none"), offered).unwrap_err(), Errno::NOENT);
            assert_eq!(start(&base.join("file"), offered).unwrap_err(), Errno::NOTDIR);
        }
    }

    #[test]
    fn a_name_that_was_never_looked_up_is_left_alone_if_asked() {
        let offered = Offered::probe();
        if !offered.can_leave_alone() {
            return uvfs_skip::lacking("this kernel has no RESOLVE_CACHED");
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("known"), "").unwrap();
        let base = folder.path().canonicalize().unwrap();
        let start = start(&base, offered).unwrap();
        let opener = Opener::new(start.as_fd(), offered, Fill::Never).unwrap();
        assert!(!opener.file(&start, c"known").unwrap().filled);
        assert!(matches!(opener.file(&start, c"unknown"), Err(Refused::Cold)));
        let filling = Opener::new(start.as_fd(), offered, Fill::Allowed).unwrap();
        assert!(matches!(filling.file(&start, c"unknown"), Err(Refused::Vanished)));
    }
}
