//! The way to the caches of a uvfs mount.
//!
//! # Boundary
//! Finds whether a path is in a uvfs mount and which directory of its file system it is, has the daemon count or clean
//! it, and then drops the source's pages, if the mount shows those. [`MountReport`] prints.
//!
//! # Why
//! A descriptor decides which mount it is, not a comparison of paths: mounts may be stacked. The descriptor is a bare
//! one (O_PATH), so the daemon sees no open directory. It is closed before the request, since an open directory is in
//! use. If it cannot be opened (root in another user's mount) or the daemon is dead, an ancestor is opened: the daemon
//! walks the rest of the path.
//!
//! A bind mount shows a directory of the file system as its root; the mount table has that directory's current name.
//! Weakness: it can be renamed between reading that and the request; the daemon then refuses, or cleans the directory
//! that has got the name.

use super::evict::Mode;
use super::flags::DropArguments;
use super::meter;
use super::mount_report::{MountReport, SourcePages};
use super::opener::{self, Offered};
use super::report::Spinner;
use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use uvfs_client as client;
use uvfs_control::cleaned::{HostSource, Raw};
use uvfs_control::policies::PolicyRequest;
use uvfs_control::protocol::CleanRequest;
use uvfs_control::resident::{Cached, CachedRequest};
use uvfs_terminal::interrupt::Interrupt;
use uvfs_vfs::Clean;
use uvfs_vfs::clean::request::Request;

/// The mount table appends this to the name of a removed directory.
const REMOVED: &[u8] = b"//deleted";

/// A directory of a uvfs mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    mount: MountEntry,
    /// Path of the directory in the file system, from the root that the daemon knows.
    inside: PathBuf,
}

/// Why a path is in no mount of ours.
#[derive(Debug)]
pub(super) enum Refused {
    /// It cannot be looked at.
    NotOpened(Errno),
    /// Another reason, in words.
    Failure(Failure),
}

impl Target {
    /// The place of `path` in a uvfs mount, if it is in one.
    ///
    /// # Errors
    /// If there is no such directory, or its place in the file system is unknown.
    pub(super) fn find(path: &Path, offered: Offered) -> Result<Option<Self>, Refused> {
        let mut from = path;
        let mount = loop {
            match (look(from, offered).map_err(Refused::Failure)?, from.parent()) {
                (Looked::Mount(mount), _) => break Some(*mount),
                (Looked::At(Ok(directory)), _) => {
                    break mounted(&directory).map_err(Refused::Failure)?;
                }
                (
                    Looked::At(Err(Errno::ACCESS | Errno::PERM | Errno::NOTCONN | Errno::IO)),
                    Some(parent),
                ) => from = parent,
                (Looked::At(Err(errno)), _) => return Err(Refused::NotOpened(errno)),
            }
        };
        mount.map(|mount| Self::inside(mount, path).map_err(Refused::Failure)).transpose()
    }

    /// The whole mount at `mountpoint`.
    ///
    /// # Errors
    /// If that is no uvfs mount.
    pub(super) fn whole(mountpoint: &Path) -> Result<Self, Failure> {
        let mount = mountinfo::find(mountpoint)?;
        let path = mount.mountpoint.clone();
        Self::inside(mount, &path)
    }

    pub(super) fn inside(mount: MountEntry, path: &Path) -> Result<Self, Failure> {
        let refused = |cause: &str| {
            let (path, mountpoint) = (path.display(), mount.mountpoint.display());
            Failure::refused(format!(
                "{path}: in the uvfs mount {mountpoint}, {cause}; name it by a path that `uvfs stat` lists"
            ))
        };
        if mount.root.as_os_str().as_bytes().ends_with(REMOVED) {
            return Err(refused("which shows a directory that was removed"));
        }
        let Ok(below) = path.strip_prefix(&mount.mountpoint) else {
            return Err(refused("but not below that path"));
        };
        // Joined again, without `.` and double slashes.
        let inside = mount.root.components().chain(below.components()).collect();
        Ok(Self { mount, inside })
    }

    /// Whether its daemon can be asked, before anything is cleaned.
    ///
    /// # Errors
    /// The reason why not, and the remedy.
    pub(super) fn check(&self) -> Result<(), Failure> {
        client::reach(&self.mount).map(drop)
    }

    /// Whether both are asked of one daemon.
    pub(super) fn is_in_mount_of(&self, other: &Self) -> bool {
        self.mount == other.mount
    }

    /// The mount that it is in.
    pub(super) fn mount(&self) -> &MountEntry {
        &self.mount
    }

    /// A request to its daemon to clean it.
    ///
    /// # Errors
    /// The rule that its path breaks.
    pub(super) fn request(&self, what: Clean) -> Result<Request, String> {
        Request::new(what, &self.inside).map_err(|refusal| refusal.to_string())
    }

    /// Where the mount is.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mount.mountpoint
    }

    /// The directory's path in the file system.
    pub(super) fn path_inside(&self) -> &Path {
        &self.inside
    }

    /// The daemon's cached amounts below this directory, listed to `depth` levels; or its reason for a refusal.
    ///
    /// # Errors
    /// If the daemon cannot be reached.
    pub(super) fn cached(&self, depth: u32) -> Result<Result<Cached, String>, Failure> {
        let directory = Raw(self.inside.as_os_str().as_bytes().into());
        let request = CachedRequest { directory, depth: Some(depth) };
        Ok(client::reach(&self.mount)?.cached(request))
    }

    /// Marks this directory.
    ///
    /// # Errors
    /// If the daemon cannot be reached, or refuses: that without the name of the directory.
    pub(super) fn set_policy(&self, policy: &str) -> Result<Result<(), String>, Failure> {
        let directory = Raw(self.inside.as_os_str().as_bytes().into());
        let request = PolicyRequest { directory, policy: policy.to_string() };
        Ok(client::reach(&self.mount)?.set_policy(request))
    }

    /// Carries out `request`, which names this directory.
    ///
    /// # Errors
    /// The reason if nothing was cleaned.
    pub(super) fn clean(
        self,
        request: Request,
        arguments: &DropArguments,
        offered: Offered,
        interrupt: &Interrupt,
    ) -> Result<MountReport, Failure> {
        let began = Instant::now();
        let refused = |cause| Failure::refused(format!("{request}: {cause}"));
        let asked = CleanRequest {
            request: self.request(request.what).map_err(refused)?,
            sync: arguments.sync,
            dry_run: arguments.dry_run,
        };
        let spinner = Spinner::new(&request.to_string());
        let cleaned =
            client::reach(&self.mount)?
                .clean(asked, &|step| spinner.show_step(step), &|| interrupt.is_set());
        spinner.end();
        let mut cleaned = cleaned.map_err(refused)?;
        let source = match cleaned.source.take() {
            Some(source) if request.what.has_pages() => {
                self.drop_source(&source, arguments, offered, interrupt)
            }
            _ => SourcePages::None,
        };
        let mode = Mode::of(arguments);
        let Self { mount, inside } = self;
        let elapsed = began.elapsed();
        Ok(MountReport { request, mode, mount, inside, cleaned, source, elapsed })
    }

    /// Drops the pages of the host directory that this one shows.
    fn drop_source(
        &self,
        source: &HostSource,
        arguments: &DropArguments,
        offered: Offered,
        interrupt: &Interrupt,
    ) -> SourcePages {
        let root = PathBuf::from(OsString::from_vec(source.path.0.clone()));
        let below = self.inside.strip_prefix("/").unwrap_or(&self.inside);
        let path: PathBuf = root.components().chain(below.components()).collect();
        let left = |why: String| SourcePages::Left { path: path.clone(), why };
        let shown = path.display();
        let own_uid = rustix::process::geteuid().as_raw();
        if interrupt.is_set() {
            return left("interrupted".into());
        }
        if !source.caches_pages {
            return left(format!(
                "uvfs caches this mount's itself; `uvfs drop 1:{shown}` drops them"
            ));
        }
        // A daemon of another user could name any directory of the machine.
        if own_uid != self.mount.owner_uid {
            let owner = self.mount.owner_uid;
            return left(format!("of user {owner}; run as that user, or `uvfs drop 1:{shown}`"));
        }
        // The root may have to be asked of the source, which the daemon sees hanging.
        let seen = match opener::look_cached(&root, offered) {
            None if client::source_hangs(&self.mount) => {
                return left("the source does not answer".into());
            }
            None => opener::look(&root, offered),
            Some(looked) => looked,
        };
        let seen = seen.and_then(rustix::fs::fstat);
        if !seen.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (source.device, source.inode)) {
            return left(
                "not the directory that the daemon sees under this path; run it there".into(),
            );
        }
        let directory = match opener::start(&path, offered) {
            Ok(directory) => directory,
            Err(errno) => return left(crate::cause(&errno.into())),
        };
        if let Ok(Some(_)) = mounted(&directory) {
            return left(format!("a uvfs mount itself; `uvfs drop 1:{shown}` drops them"));
        }
        if let Some(name) = meter::memory(directory.as_fd()) {
            return left(format!("a {name}, whose pages are the files themselves"));
        }
        if let Some(name) = meter::without_pages(directory.as_fd()) {
            return left(meter::no_pages(name));
        }
        match Request::new(Clean::Pages, &path) {
            Err(refusal) => left(refusal.to_string()),
            Ok(request) => {
                match super::drop::walk(request, directory, arguments, offered, interrupt) {
                    Ok(report) => SourcePages::Walked(Box::new(report)),
                    Err(failure) => left(failure.to_string()),
                }
            }
        }
    }
}

/// The result of a look at a path.
enum Looked {
    /// The directory there, or why it cannot be opened.
    At(Result<OwnedFd, Errno>),
    /// The mount of a path that cannot be opened, because the mount's source hangs.
    Mount(Box<MountEntry>),
}

/// Looks at `path`, unless that would hang: in a mount whose source hangs, the mount table has to do, and its daemon walks the
/// rest of the path. The kernel cannot be interrupted there once the daemon has read the request.
fn look(path: &Path, offered: Offered) -> Result<Looked, Failure> {
    if let Some(looked) = opener::look_cached(path, offered) {
        return Ok(Looked::At(looked));
    }
    let above = above(path)?.filter(|mount| mount.is_uvfs() && client::source_hangs(mount));
    let looked = || Looked::At(opener::look(path, offered));
    Ok(above.map_or_else(looked, |mount| Looked::Mount(Box::new(mount))))
}

/// The whole path of `path`, without links; with them, if finding out where they lead fails or would hang.
///
/// # Errors
/// If the path is empty, or there is no current directory.
pub(super) fn whole(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    let above = above(&whole).ok().flatten();
    match above.is_some_and(|mount| mount.is_uvfs() && client::source_hangs(&mount)) {
        true => Ok(whole),
        false => Ok(path.canonicalize().unwrap_or(whole)),
    }
}

/// The mount of an absolute path without links.
fn above(path: &Path) -> Result<Option<MountEntry>, Failure> {
    let mounts = mountinfo::read()?.into_iter();
    let above = mounts.filter(|mount| path.starts_with(&mount.mountpoint));
    // Of several at one place the last one is seen.
    Ok(above.max_by_key(|mount| mount.mountpoint.components().count()))
}

/// The uvfs mount of `directory`, if it is in one.
///
/// # Errors
/// If /proc cannot be read.
fn mounted(directory: &OwnedFd) -> Result<Option<MountEntry>, Failure> {
    let path = format!("/proc/self/fdinfo/{}", directory.as_raw_fd());
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::refused(format!("{path}: {}; mount /proc", crate::cause(&error)))
    })?;
    let Some(id) = mount_id(&text) else { return Ok(None) };
    let mount = mountinfo::read()?.into_iter().find(|mount| mount.id == id);
    Ok(mount.filter(MountEntry::is_uvfs))
}

/// The number of the mount in the text of an fdinfo file.
fn mount_id(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// A mount for tests.
#[cfg(test)]
pub(super) fn example(root: &str, mountpoint: &str) -> MountEntry {
    MountEntry {
        id: 1,
        device: mountinfo::Device { major: 0, minor: 4_000_000 },
        root: root.into(),
        mountpoint: mountpoint.into(),
        file_system: mountinfo::FILE_SYSTEM_TYPE.into(),
        source: "/srv/data".into(),
        owner_uid: 0,
        owner_gid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_ours_has_no_mount_of_ours() {
        let offered = Offered::probe();
        assert!(matches!(Target::find(Path::new("/proc"), offered), Ok(None)));
        let refused = Target::find(Path::new("/no/such"), offered);
        assert!(matches!(refused, Err(Refused::NotOpened(Errno::NOENT))), "{refused:?}");
        assert_eq!(mount_id("pos:\t0\nflags:\t02\nmnt_id:\t27\nino:\t5\n"), Some(27));
        assert_eq!(mount_id("pos:\t0\n"), None);
    }

    #[test]
    fn paths_are_those_of_the_file_system_also_through_bind_mounts() {
        let check = |root: &str, path: &str, expected: &str| {
            let target = Target::inside(example(root, "/mnt/data"), Path::new(path)).unwrap();
            assert_eq!(target.inside.as_os_str(), expected);
        };
        check("/", "/mnt/data", "/");
        check("/", "/mnt/data/", "/");
        check("/", "/mnt/data/a//b/./c/", "/a/b/c");
        check("/sub/dir", "/mnt/data", "/sub/dir");
        check("/sub/dir", "/mnt/data/x", "/sub/dir/x");
    }

    #[test]
    fn what_cannot_be_translated_is_refused_with_the_mount_and_a_remedy() {
        let check = |root: &str, path: &str, part: &str| {
            let refused = Target::inside(example(root, "/mnt/data"), Path::new(path)).unwrap_err();
            let line = refused.to_string();
            for part in [path, "/mnt/data", part, "`uvfs stat`"] {
                assert!(line.contains(part), "no {part:?} in {line:?}");
            }
        };
        check("/gone//deleted", "/mnt/data/x", "was removed");
        check("/", "/mnt/database", "not below");
    }

    #[test]
    fn a_mount_without_a_daemon_is_said_before_anything_is_cleaned() {
        let target = Target::inside(example("/", "/mnt/data"), Path::new("/mnt/data")).unwrap();
        let line = target.check().unwrap_err().to_string();
        assert!(line.starts_with("/mnt/data: ") && line.contains("; "), "{line}");
    }
}
