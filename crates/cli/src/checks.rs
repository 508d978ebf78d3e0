//! All checks that are possible before a mount is made.
//!
//! # Boundary
//! Looks and refuses; changes nothing. Each refusal is one line: the thing, the cause, the remedy.
//! Facts about the machine (user, paths of devices and programs) are arguments, so that tests can
//! invent them.
//!
//! # Why
//! The kernel answers most of these mistakes with one errno for several causes (`ENOTCONN`,
//! `EPERM`), or with a mount that deadlocks when it is walked. A check costs a few system calls,
//! once. Weakness: the facts may have changed when the mount is made; the kernel then refuses with
//! fewer words.

use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use crate::units::show_bytes;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the kernel is asked for a FUSE session.
pub(crate) const FUSE_DEVICE: &str = "/dev/fuse";
/// The file that permits `--allow-other`.
pub(crate) const FUSE_CONF: &str = "/etc/fuse.conf";

/// The source directory, canonical: it exists, is a directory and may be listed.
pub(crate) fn source_directory(path: &Path) -> Result<PathBuf, Failure> {
    let refused = |cause: &str, remedy: &str| {
        Err(Failure::refused(format!("source {}: {cause}; {remedy}", path.display())))
    };
    let explain = |error: io::Error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        // A directory seldom has an extension, and an image mostly has one.
        Some(Errno::NOENT) if path.extension().is_some() => refused(
            "does not exist",
            "`uvfs image create` makes an image, mkdir a directory; or name another",
        ),
        Some(Errno::NOENT) => refused("does not exist", "create it, or name another directory"),
        Some(Errno::NOTDIR) => refused("not a directory", "name a directory"),
        Some(Errno::ACCESS) => refused("permission denied", "mount as a user who may read it"),
        Some(Errno::NOTCONN) => refused(
            "lies on a mount whose daemon is gone",
            "end that mount first (`uvfs unmount`, `fusermount3 -u`)",
        ),
        _ => refused(&crate::cause(&error), "name a directory that can be read"),
    };
    let canonical = match path.canonicalize() {
        Ok(canonical) => canonical,
        Err(error) => return explain(error),
    };
    match fs::read_dir(&canonical) {
        Ok(_) => Ok(canonical),
        Err(error) => explain(error),
    }
}

/// Whether a mount may hide the contents of MOUNTPOINT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// It must be empty.
    MustBeEmpty,
    /// The entries may be hidden.
    MayBeHidden,
}

/// The mountpoint, canonical: an existing directory with no uvfs mount on it yet. `is_served`
/// reports whether a daemon answers for a mount in the table.
pub(crate) fn mountpoint(
    path: &Path,
    contents: Contents,
    mounts: &[MountEntry],
    is_served: impl Fn(&MountEntry) -> bool,
) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let refused = |text: String| Err(Failure::refused(format!("mountpoint {shown}: {text}")));
    // The table first: a look at a mount whose daemon is dead or stuck fails or hangs.
    if let Ok(mount) = mountinfo::find_among(mounts, path) {
        let place = mount.mountpoint.display();
        return if is_served(&mount) {
            let source = mount.source.display();
            refused(format!("busy, {source} is mounted here; run `uvfs unmount {place}` first"))
        } else {
            refused(format!(
                "a mount whose daemon is gone is still here; run `uvfs unmount {place}` first"
            ))
        };
    }
    let found = path.canonicalize().and_then(|place| Ok((fs::metadata(&place)?, place)));
    let (metadata, place) = match found {
        Ok(found) => found,
        Err(error) => return refused(mountpoint_cause(&error)),
    };
    if !metadata.is_dir() {
        return refused("not a directory; name a directory".into());
    }
    let entries = fs::read_dir(&place).map(|mut entries| entries.next().is_some());
    match entries {
        Ok(true) if contents == Contents::MustBeEmpty => refused(
            "not empty; name an empty directory, or hide its entries with --nonempty".into(),
        ),
        // Mounting needs no right to list, and the contents cannot be judged without it.
        Ok(_) | Err(_) => Ok(place),
    }
}

fn mountpoint_cause(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "does not exist; create it (mkdir)".into(),
        Some(Errno::NOTDIR) => "not a directory; name a directory".into(),
        Some(Errno::NOTCONN) => {
            "a FUSE mount whose daemon is gone is on this path; end it first (`fusermount3 -u`, \
             `umount`)"
                .into()
        }
        _ => format!("{}; name a directory that you may use", crate::cause(error)),
    }
}

/// Refuses a source and a mountpoint of which one contains the other. Both are canonical.
///
/// Compares directories by identity, not only by name, so that a bind mount does not hide it.
pub(crate) fn apart(source: &Path, mountpoint: &Path) -> Result<(), Failure> {
    let (from, to) = (source.display(), mountpoint.display());
    if contains(mountpoint, source) {
        return Err(Failure::refused(format!(
            "source {from}: lies at or below the mountpoint {to}, which would hide it; mount \
             outside the source"
        )));
    }
    if contains(source, mountpoint) {
        return Err(Failure::refused(format!(
            "mountpoint {to}: lies inside the source {from}, which would then contain itself; \
             mount outside the source"
        )));
    }
    Ok(())
}

/// Whether `inner` is `outer` or below it.
fn contains(outer: &Path, inner: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let Some(outer_identity) = fs::metadata(outer).ok().map(identity) else {
        return inner.starts_with(outer);
    };
    inner.starts_with(outer)
        || inner
            .ancestors()
            .any(|ancestor| fs::metadata(ancestor).ok().map(identity) == Some(outer_identity))
}

/// The mounting user, with programs and devices.
#[derive(Debug)]
pub(crate) struct Mounter<'a> {
    /// Root's user id or CAP_SYS_ADMIN: mounts without help.
    pub(crate) privileged: bool,
    /// The device.
    pub(crate) device: &'a Path,
    /// `fusermount3`, where installed.
    pub(crate) helper: Option<PathBuf>,
}

impl Mounter<'static> {
    /// This process on this machine.
    pub(crate) fn here() -> Self {
        let sets = rustix::thread::capabilities(None);
        let admin = rustix::thread::CapabilitySet::SYS_ADMIN;
        Self {
            privileged: sets.is_ok_and(|sets| sets.effective.contains(admin)),
            device: Path::new(FUSE_DEVICE),
            helper: find_program("fusermount3"),
        }
    }
}

/// Refuses where no FUSE session can be had.
pub(crate) fn fuse_available(mounter: &Mounter<'_>) -> Result<(), Failure> {
    let device = mounter.device.display();
    let refused = |text: &str| Err(Failure::refused(format!("{device}: {text}")));
    match fs::metadata(mounter.device) {
        Ok(metadata) if metadata.file_type().is_char_device() => {}
        Ok(_) => return refused("not a device; restore it (modprobe fuse)"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return refused(
                "missing, the kernel's FUSE is not loaded; run `modprobe fuse` as root (in a \
                 container: pass the device in)",
            );
        }
        Err(error) => {
            return refused(&format!("{}; ask the administrator", crate::cause(&error)));
        }
    }
    if !mounter.privileged {
        return match mounter.helper {
            // It is set-user-id root and opens the device itself.
            Some(_) => Ok(()),
            None => Err(Failure::refused(
                "fusermount3: not installed, and only root mounts without it; install the \
                 package fuse3, or run as root",
            )),
        };
    }
    match OpenOptions::new().read(true).write(true).open(mounter.device) {
        Ok(_) => Ok(()),
        Err(error) => refused(&format!(
            "{}; run as root (in a container: allow the device and CAP_SYS_ADMIN)",
            crate::cause(&error)
        )),
    }
}

/// Refuses `--allow-other` where the administrator did not permit it. `conf` is the text of
/// [`FUSE_CONF`].
pub(crate) fn allow_other(privileged: bool, conf: &str) -> Result<(), Failure> {
    let permitted = conf.lines().any(|line| line.trim() == "user_allow_other");
    if privileged || permitted {
        return Ok(());
    }
    Err(Failure::refused(format!(
        "--allow-other: only root may, until {FUSE_CONF} has a line `user_allow_other`; add it, \
         or leave the option out"
    )))
}

/// `name` in PATH, or where the system keeps it although PATH lacks it.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let listed = std::env::split_paths(&path);
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let mut candidates = listed.chain(usual).map(|folder| folder.join(name));
    candidates.find(|program| program.is_absolute() && File::open(program).is_ok())
}

/// Fewest files that the process must be allowed to have open: readers, sockets and a few for requests.
const DESCRIPTORS_MIN: u64 = 64;

/// Refuses to serve with so few descriptors that requests would fail at random.
pub(crate) fn descriptors() -> Result<(), Failure> {
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < DESCRIPTORS_MIN => Err(Failure::refused(format!(
            "only {limit} files may be open (`ulimit -Hn`), and serving takes {DESCRIPTORS_MIN}; raise that limit"
        ))),
        _ => Ok(()),
    }
}

/// The limit of this process's address space, if it has one, and the remedy.
pub(crate) fn address_space() -> Option<String> {
    let limit = show_bytes(getrlimit(Resource::As).current?);
    Some(format!(
        "the address space is limited to {limit} (`ulimit -v`): lift that, or give a smaller --cache-size"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        result.unwrap_err().to_string()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let guard = tempfile::tempdir().unwrap();
        let path = guard.path().canonicalize().unwrap();
        (guard, path)
    }

    fn plain_mountpoint(path: &Path, contents: Contents) -> Result<PathBuf, Failure> {
        mountpoint(path, contents, &[], |_| unreachable!("no mounts"))
    }

    #[test]
    fn a_source_must_exist_and_be_a_directory() {
        let (_guard, base) = folder();
        fs::write(base.join("file"), "").unwrap();
        symlink(&base, base.join("link")).unwrap();
        assert_eq!(source_directory(&base.join("link")).unwrap(), base);
        assert!(refusal(source_directory(&base.join("none"))).contains("none: does not exist;"));
        assert!(refusal(source_directory(&base.join("file"))).contains("file: not a directory;"));
        assert!(refusal(source_directory(&base.join("file/x"))).contains("not a directory;"));
    }

    #[test]
    fn an_unreadable_source_is_refused() {
        if rustix::process::geteuid().is_root() {
            uvfs_skip::lacking("root may read everything");
            return;
        }
        let (_guard, base) = folder();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o300)).unwrap();
        assert!(refusal(source_directory(&base)).contains("permission denied;"));
    }

    #[test]
    fn a_mountpoint_must_be_an_empty_directory_unless_allowed() {
        let (_guard, base) = folder();
        fs::create_dir(base.join("empty")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        let check = |name: &str, contents| plain_mountpoint(&base.join(name), contents);
        assert_eq!(check("empty/.", Contents::MustBeEmpty).unwrap(), base.join("empty"));
        assert!(refusal(check("none", Contents::MustBeEmpty)).contains("does not exist; create"));
        assert!(refusal(check("file", Contents::MayBeHidden)).contains("not a directory;"));
        assert!(refusal(check("", Contents::MustBeEmpty)).contains("not empty;"));
        assert_eq!(check("", Contents::MayBeHidden).unwrap(), base);
    }

    #[test]
    fn a_mountpoint_in_use_differs_from_one_whose_daemon_died() {
        let (_guard, base) = folder();
        let device = mountinfo::Device { major: 0, minor: 99 };
        let mount = MountEntry {
            id: 1,
            device,
            root: "/".into(),
            mountpoint: base.clone(),
            file_system: mountinfo::FILE_SYSTEM_TYPE.into(),
            source: "memory:".into(),
            owner_uid: 0,
            owner_gid: 0,
        };
        let check = |alive| {
            mountpoint(&base, Contents::MayBeHidden, std::slice::from_ref(&mount), |_| alive)
        };
        let busy = refusal(check(true));
        assert!(busy.contains("busy, memory: is mounted here; run `uvfs unmount"), "{busy}");
        assert!(refusal(check(false)).contains("daemon is gone is still here; run `uvfs unmount"));
    }

    #[test]
    fn source_and_mountpoint_must_not_contain_each_other() {
        let (_guard, base) = folder();
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::create_dir(base.join("ab")).unwrap();
        let (a, b) = (base.join("a"), base.join("a/b"));
        assert!(apart(&a, &base.join("ab")).is_ok(), "a common beginning is not containment");
        assert!(refusal(apart(&a, &a)).contains("at or below the mountpoint"));
        assert!(refusal(apart(&b, &a)).contains("at or below the mountpoint"));
        assert!(refusal(apart(&a, &b)).contains("contain itself"));
    }

    #[test]
    fn fuse_is_looked_for_before_it_is_used() {
        let (_guard, base) = folder();
        fs::write(base.join("file"), "").unwrap();
        let check = |privileged, device: &Path, helper| {
            fuse_available(&Mounter { privileged, device, helper })
        };
        let missing = refusal(check(true, &base.join("none"), None));
        assert!(
            missing.contains("none: missing") && missing.contains("modprobe fuse"),
            "{missing}"
        );
        assert!(refusal(check(true, &base.join("file"), None)).contains("not a device;"));
        let null = Path::new("/dev/null");
        assert!(refusal(check(false, null, None)).starts_with("fusermount3: not installed"));
        assert!(check(false, null, Some("/bin/fusermount3".into())).is_ok());
        assert!(check(true, null, None).is_ok());
    }

    #[test]
    fn others_are_let_in_by_root_or_where_the_administrator_permits_it() {
        assert!(allow_other(true, "").is_ok());
        assert!(allow_other(false, "# comment\n  user_allow_other \n").is_ok());
        assert!(refusal(allow_other(false, "#user_allow_other\n")).contains("/etc/fuse.conf"));
    }
}
