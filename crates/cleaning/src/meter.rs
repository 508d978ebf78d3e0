//! The number of pages of an open file that the kernel has cached.
//!
//! # Boundary
//! Chooses between cachestat(2) and mincore(2) by the abilities of the kernel and the file system,
//! and reports if neither is reliable. `uvfs_residency` makes the calls.
//!
//! # Why
//! cachestat knows dirty pages and maps nothing; it is used wherever it works. On overlayfs it does
//! not: it reads the overlay's own inode, which never has pages. There, and before Linux 6.5,
//! mincore maps the file and finds the pages of the file below. Both are true only for a user that
//! may write a file or owns it. To other users mincore reports all pages as present, so it is not
//! used then.

use super::opener::{self, Identity};
use rustix::fs;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use uvfs_residency::{Residency, cachestat, mincore};

/// File systems that are memory: their pages are the files.
const MEMORY: [(u64, &str); 3] =
    [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];
/// File systems whose files are made while they are read: none has a page in the page cache.
const WITHOUT_PAGES: [(u64, &str); 24] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x1cd1, "devpts"),
    (0x7363_6673, "securityfs"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x5a3c_69f0, "apparmorfs"),
    (0x6265_6570, "configfs"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x1980_0202, "mqueue"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6573_5543, "fusectl"),
    (0x6e73_6673, "nsfs"),
    (0x6759_6969, "rpc_pipefs"),
    (0x6e66_7364, "nfsd"),
    (0x6c6f_6f70, "binder"),
    (0x0765_5821, "resctrl"),
    (0xabba_1974, "xenfs"),
];
/// File systems whose files show the pages of other files.
const OVERLAY: u64 = 0x794c_7630;

/// The way to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meter {
    /// cachestat(2).
    Cachestat,
    /// mincore(2): dirty pages are not known.
    Mincore,
}

impl Meter {
    /// The way for the files below `directory`.
    pub(super) fn choose(directory: BorrowedFd<'_>) -> Self {
        if magic(directory) == Some(OVERLAY) {
            return Meter::Mincore;
        }
        match cachestat(directory, 0, 0) {
            Err(error) if opener::is(&error, Errno::NOSYS) => Meter::Mincore,
            // A directory of another user returns EPERM; a file may still answer.
            _ => Meter::Cachestat,
        }
    }

    /// Name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Meter::Cachestat => "cachestat",
            Meter::Mincore => "mincore",
        }
    }

    /// The cached pages of `file`; `None` if the kernel does not report them to this user.
    ///
    /// # Errors
    /// Other errors of the calls.
    pub(super) fn measure(self, file: &OwnedFd) -> io::Result<Option<Residency>> {
        match self {
            Meter::Cachestat => match cachestat(file, 0, 0) {
                Ok(residency) => Ok(Some(residency)),
                Err(error) if opener::is(&error, Errno::PERM) => Ok(None),
                Err(error) => Err(error),
            },
            Meter::Mincore => {
                let identity = Identity::of(file.as_fd())?;
                if !may_ask(&identity) {
                    return Ok(None);
                }
                let cached = mincore(file, identity.bytes)?;
                Ok(Some(Residency { cached, ..Residency::default() }))
            }
        }
    }
}

/// Whether mincore is true for this user. Narrower than the kernel's rule, which also permits users
/// that may write the file.
fn may_ask(identity: &Identity) -> bool {
    let uid = rustix::process::geteuid();
    uid.is_root() || uid.as_raw() == identity.uid
}

/// The name of the file system of `directory`, if its pages are its files.
pub(super) fn memory(directory: BorrowedFd<'_>) -> Option<&'static str> {
    let magic = magic(directory)?;
    MEMORY.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// The name of the file system of `directory`, if its files have no pages.
pub(super) fn without_pages(directory: BorrowedFd<'_>) -> Option<&'static str> {
    let magic = magic(directory)?;
    WITHOUT_PAGES.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Why there is nothing to count or to drop in the file system `name`.
pub(super) fn no_pages(name: &str) -> String {
    format!(
        "a {name}, whose files are made while they are read: no page of them is ever cached; name a directory on a disk"
    )
}

fn magic(directory: BorrowedFd<'_>) -> Option<u64> {
    // A number of 32 bits, which some architectures widen with its sign.
    fs::fstatfs(directory).ok().map(|stat| u64::from(stat.f_type as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    #[test]
    fn both_ways_count_the_same_pages() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 3 * uvfs_residency::page_bytes() as usize + 1]).unwrap();
        let file = OwnedFd::from(File::open(&path).unwrap());
        let by_mincore = Meter::Mincore.measure(&file).unwrap().unwrap();
        assert_eq!((by_mincore.cached, by_mincore.dirty), (4, 0));
        let directory = File::open(folder.path()).unwrap();
        if Meter::choose(directory.as_fd()) == Meter::Mincore {
            return uvfs_skip::lacking("no cachestat here");
        }
        assert_eq!(Meter::Cachestat.measure(&file).unwrap().unwrap().cached, 4);
    }

    #[test]
    fn memory_file_systems_are_known() {
        let shared = Path::new("/dev/shm");
        match File::open(shared) {
            Ok(directory) => match memory(directory.as_fd()) {
                Some(name) => assert_eq!(name, "tmpfs"),
                None => uvfs_skip::lacking("/dev/shm is no tmpfs"),
            },
            Err(error) => uvfs_skip::lacking(format_args!("/dev/shm: {error}")),
        }
        let proc = File::open("/proc").unwrap();
        assert_eq!((memory(proc.as_fd()), without_pages(proc.as_fd())), (None, Some("proc")));
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(without_pages(File::open(folder.path()).unwrap().as_fd()), None);
    }

    #[test]
    fn mincore_is_asked_about_ones_own_files() {
        let own = rustix::process::geteuid().as_raw();
        let file = File::open("/proc/self/maps").unwrap();
        let identity = Identity { uid: own, ..Identity::of(file.as_fd()).unwrap() };
        assert!(may_ask(&identity));
        let other = Identity { uid: own.wrapping_add(1), ..identity };
        assert_eq!(may_ask(&other), own == 0);
    }
}
