//! Where control sockets are, and whether a folder can be trusted to hold one.
//!
//! Root's are in `/run/uvfs`, another user's in `$XDG_RUNTIME_DIR/uvfs`, or in `/tmp/uvfs-UID` where
//! no runtime folder exists. The socket is named by the mount's device number, which the mount table
//! shows without asking the mount.
//!
//! In a user namespace user 0 is another user outside: `/run/uvfs` may be the machine's root's there, so the runtime
//! folder comes second. The folder in `/tmp` has the number that the user has outside, which no other user has.
//!
//! # Why
//! All users can write to `/tmp`: a folder there is used only if it is a real directory (no link), owned by the user in
//! question and closed to all others. Root asks other users' daemons and applies the same rule with their id, so no
//! user can lead it to a third user's socket.

use crate::mounts::MountEntry;
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The folder for this process's own socket, made if missing.
///
/// # Errors
/// In words, if it cannot be made, or is not safe to use.
pub fn own_folder() -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let folders = folders(uid);
    let mut failures = Vec::new();
    for folder in &folders {
        match prepare(folder, uid) {
            Ok(()) => return Ok(folder.clone()),
            Err(error) => failures.push((folder.as_path(), error)),
        }
    }
    Err(unusable(&failures))
}

/// The refusal if no folder can be used: it names an existing folder that is wrong, if there is one, and none that
/// merely does not exist.
fn unusable(failures: &[(&Path, io::Error)]) -> String {
    let is_there = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
    let wrong = failures.iter().find(|(_, error)| is_there(error)).or(failures.first());
    let (folder, cause) = match wrong {
        Some((folder, error)) => (folder.display().to_string(), crate::cause(error)),
        // There is always a first choice; an impossible state is a refusal, not a panic.
        None => ("of the control socket".into(), "missing".into()),
    };
    format!(
        "run folder {folder}: {cause}; make it a directory of yours with mode 0700, or have it removed"
    )
}

/// Where the socket of `mount` may be, most likely first. Only folders that are safe are named.
pub fn candidates(mount: &MountEntry) -> Vec<PathBuf> {
    let folders = folders(mount.owner_uid).into_iter();
    let safe = folders.filter(|folder| match check(folder, mount.owner_uid) {
        // This user may not look into it: connecting reports the right error.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        Ok(()) => true,
    });
    safe.map(|folder| folder.join(mount.device.to_string())).collect()
}

/// Whether there is a socket of `uid`, or that cannot be seen; a link is none, wherever it leads.
pub fn is_socket_of(path: &Path, uid: u32) -> bool {
    match fs::symlink_metadata(path) {
        Ok(found) => found.file_type().is_socket() && found.uid() == uid,
        // Connecting reports the reason in the right words.
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Folders in which a daemon of `uid` would put its socket.
fn folders(uid: u32) -> Vec<PathBuf> {
    let own = rustix::process::geteuid().as_raw() == uid;
    let session = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| own).map(PathBuf::from);
    let session = session.filter(|folder| folder.is_absolute());
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    folders_of(uid, session, outside(&map, uid))
}

/// The folders of `uid`, which has the number `outside` beyond its user namespace.
fn folders_of(uid: u32, session: Option<PathBuf>, outside: u32) -> Vec<PathBuf> {
    let mut bases: Vec<PathBuf> = match uid {
        // After `sudo` the variable may name the folder of the user before.
        0 => {
            let is_own = |folder: &PathBuf| fs::metadata(folder).is_ok_and(|is| is.uid() == 0);
            [PathBuf::from("/run")].into_iter().chain(session.filter(is_own)).collect()
        }
        _ => session.into_iter().chain([format!("/run/user/{uid}").into()]).collect(),
    };
    bases.dedup();
    let mut folders: Vec<_> = bases.into_iter().map(|base| base.join("uvfs")).collect();
    folders.push(format!("/tmp/uvfs-{outside}").into());
    folders
}

/// The number outside of this user namespace of its user `uid`, by `map` (user_namespaces(7)); the same number if the
/// map has none.
fn outside(map: &str, uid: u32) -> u32 {
    let line = |line: &str| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (first, beyond) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        let at = uid
            .checked_sub(first)
            .filter(|at| numbers.next().is_some_and(|n| n.is_ok_and(|n| *at < n)))?;
        beyond.checked_add(at)
    };
    map.lines().find_map(line).unwrap_or(uid)
}

/// Makes `folder` if it is missing, and checks it.
fn prepare(folder: &Path, uid: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check(folder, uid)
}

/// Whether `folder` is a real directory of `uid` that no other user may enter.
fn check(folder: &Path, uid: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    let wrong = |what: &str| Err(io::Error::other(what.to_string()));
    if !metadata.is_dir() {
        return wrong("not a directory");
    }
    if metadata.uid() != uid {
        return wrong("belongs to another user");
    }
    if metadata.mode() & 0o077 != 0 {
        return wrong("open to other users");
    }
    Ok(())
}

/// Whether `error` means that no process serves the socket any more.
pub fn means_not_served(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::CONNREFUSED | Errno::NOTDIR))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_a_closed_directory_of_the_user_is_trusted() {
        let base = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let folder = base.path().join("uvfs");
        prepare(&folder, uid).unwrap();
        prepare(&folder, uid).expect("an existing one is fine");
        let cause = |folder: &Path, uid| prepare(folder, uid).unwrap_err().to_string();
        assert_eq!(cause(&folder, uid + 1), "belongs to another user");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o710)).unwrap();
        assert_eq!(cause(&folder, uid), "open to other users");
        let link = base.path().join("link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&folder, &link).unwrap();
        assert_eq!(cause(&link, uid), "not a directory");
        assert!(prepare(&base.path().join("none/uvfs"), uid).is_err());
    }

    #[test]
    fn a_socket_is_asked_only_if_it_is_its_owners() {
        let base = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let (socket, link) = (base.path().join("socket"), base.path().join("link"));
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        symlink(&socket, &link).unwrap();
        assert!(is_socket_of(&socket, uid) && !is_socket_of(&socket, uid + 1));
        assert!(!is_socket_of(&link, uid) && !is_socket_of(base.path(), uid));
        assert!(!is_socket_of(&base.path().join("none"), uid));
    }

    /// Bug: a folder in /tmp that another user owned was skipped silently. The refusal named the first choice, which
    /// was merely missing.
    #[test]
    fn the_folder_that_was_taken_is_named() {
        let missing = (Path::new("/run/user/7/uvfs"), io::ErrorKind::NotFound.into());
        let taken = (Path::new("/tmp/uvfs-7"), io::Error::other("belongs to another user"));
        let refused = unusable(&[missing, taken]);
        assert!(refused.contains("/tmp/uvfs-7: belongs to another user"), "{refused}");
        assert!(!refused.contains("/run/user/7/uvfs"), "{refused}");
        let only = unusable(&[(Path::new("/run/uvfs"), io::ErrorKind::NotFound.into())]);
        assert!(only.contains("/run/uvfs: "), "{only}");
    }

    #[test]
    fn each_user_has_folders_of_their_own() {
        assert_eq!(folders(0)[0], Path::new("/run/uvfs"));
        let another = folders_of(4_000_000, None, 4_000_000);
        assert_eq!(
            another,
            [PathBuf::from("/run/user/4000000/uvfs"), PathBuf::from("/tmp/uvfs-4000000"),]
        );
    }

    /// In a user namespace of an ordinary user, `/run/uvfs` was that of the machine's root, and `/tmp/uvfs-0` that of
    /// any other such namespace: nothing could be mounted there.
    #[test]
    fn root_of_a_user_namespace_has_folders_of_its_own() {
        const HOST: &str = "         0          0 4294967295\n";
        const NAMESPACE: &str =
            "         0       1000          1\n         1     100000      65536\n";
        assert_eq!([0, 5].map(|uid| outside(HOST, uid)), [0, 5]);
        assert_eq!(
            [0, 1, 1001, 70_000].map(|uid| outside(NAMESPACE, uid)),
            [1000, 100_000, 101_000, 70_000]
        );
        assert_eq!(outside("", 7), 7);
        let names = |folders: Vec<PathBuf>| {
            folders.into_iter().map(|one| one.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(folders_of(0, None, 1000)), ["/run/uvfs", "/tmp/uvfs-1000"]);
        // A folder that is not root's is not taken: `sudo` may leave the variable as it was.
        let none = Some(PathBuf::from("/no/such/folder"));
        assert_eq!(names(folders_of(0, none, 0)), ["/run/uvfs", "/tmp/uvfs-0"]);
        if rustix::process::geteuid().is_root() {
            let base = tempfile::tempdir().unwrap();
            let session = folders_of(0, Some(base.path().to_owned()), 0);
            assert_eq!(session[1], base.path().join("uvfs"));
        }
    }
}
