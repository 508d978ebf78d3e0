//! Finding a mount in the kernel's mount table without touching the mount.
//!
//! # Boundary
//! [`uvfs_control::mounts`] has the table. Never accesses a mountpoint itself: a `stat` there asks the daemon, and
//! hangs or fails when the daemon does. [`find`] therefore resolves every component but the last in the usual way, and
//! looks the last one up in the table first.
//!
//! # Why
//! `uvfs unmount` is most needed for mounts whose daemon died. Weakness: a path that leads *through* a dead mount to
//! another one cannot be resolved; the error names that cause.

use crate::Failure;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
pub use uvfs_control::mounts::{Device, FILE_SYSTEM_TYPE, MountEntry, topmost};

/// Symbolic links that may follow each other in the last component; the kernel's limit.
const LINKS_MAX: usize = 40;

/// The mounts of this process's namespace, in the order in which they were stacked.
///
/// # Errors
/// If the table cannot be read.
pub fn read() -> Result<Vec<MountEntry>, Failure> {
    uvfs_control::mounts::read().map_err(Failure::refused)
}

/// Every uvfs mount once, in the order in which they were stacked.
///
/// # Errors
/// If the table cannot be read.
pub fn ours() -> Result<Vec<MountEntry>, Failure> {
    let (mut devices, mut places) = (HashSet::new(), HashSet::new());
    // The last mount on a mountpoint is the visible one, and a bind mount shows one that is already counted.
    let seen = read()?.into_iter().rev().filter(|mount| places.insert(mount.mountpoint.clone()));
    let mut ours: Vec<_> =
        seen.filter(|mount| mount.is_uvfs() && devices.insert(mount.device)).collect();
    ours.reverse();
    Ok(ours)
}

/// The uvfs mount that `path` names, not necessarily canonically.
///
/// # Errors
/// If no file system of ours is mounted exactly there.
pub fn find(path: &Path) -> Result<MountEntry, Failure> {
    find_among(&read()?, path)
}

/// Finds a mount as [`find`] does, in a table already read.
///
/// # Errors
/// As [`find`].
pub fn find_among(mounts: &[MountEntry], path: &Path) -> Result<MountEntry, Failure> {
    let mut wanted = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let place = resolve_parent(&wanted).map_err(|error| {
            Failure::refused(format!(
                "{}: {}; name an existing mountpoint (`uvfs mounts` lists them)",
                path.display(),
                crate::cause(&error)
            ))
        })?;
        match topmost(mounts, &place) {
            Some(mount) if mount.is_uvfs() => return Ok(mount.clone()),
            Some(mount) => {
                return Err(Failure::refused(format!(
                    "{}: in a file system of the type {}, not a uvfs mount; `uvfs mounts` lists the uvfs mounts",
                    path.display(),
                    mount.file_system
                )));
            }
            None => {}
        }
        // Nothing is mounted there, so looking at it asks no daemon of ours for its root.
        match fs::read_link(&place) {
            Ok(target) => wanted = place.parent().unwrap_or(Path::new("/")).join(target),
            Err(error) => return Err(not_mounted(mounts, path, &place, &error)),
        }
    }
    Err(Failure::refused(format!("{}: too many symbolic links", path.display())))
}

/// Makes `path` absolute and resolves every component but the last.
fn resolve_parent(path: &Path) -> io::Result<PathBuf> {
    match path.components().next_back() {
        // `.` and an empty path: the kernel keeps the current directory's path; nothing is asked.
        None | Some(Component::CurDir) => std::env::current_dir(),
        Some(Component::Normal(name)) => {
            let parent = match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent.canonicalize()?,
                _ => std::env::current_dir()?,
            };
            Ok(parent.join(name))
        }
        // The root, or a path that ends in `..`: there is no name to keep back.
        Some(_) => path.canonicalize(),
    }
}

/// The reason why there is no uvfs mount at `place`.
fn not_mounted(mounts: &[MountEntry], path: &Path, place: &Path, error: &io::Error) -> Failure {
    let mut ours = mounts.iter().rev().filter(|mount| mount.is_uvfs());
    let above = ours.find(|mount| place.starts_with(&mount.mountpoint));
    let path = path.display();
    Failure::refused(match above {
        Some(mount) => {
            let mountpoint = mount.mountpoint.display();
            format!("{path}: lies inside the uvfs mount {mountpoint}; name that instead")
        }
        None if error.kind() == io::ErrorKind::NotFound => {
            format!("{path}: no such directory; `uvfs mounts` lists the uvfs mounts")
        }
        None => format!("{path}: nothing is mounted here; `uvfs mounts` lists the uvfs mounts"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use uvfs_control::mounts::parse;

    const EXT4: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard";

    /// A table with a uvfs mount at `point`, which need not be one.
    fn table_with(point: &Path) -> Vec<MountEntry> {
        let line = format!("9 1 0:99 / {} rw - fuse.uvfs x rw,user_id=7", point.display());
        parse(line.as_bytes())
    }

    #[test]
    fn a_mount_is_found_by_detours_and_links_but_not_by_what_is_in_it() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("m/inside")).unwrap();
        fs::create_dir(base.join("other")).unwrap();
        symlink("m", base.join("link")).unwrap();
        symlink(base.join("link"), base.join("chain")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let mounts = table_with(&base.join("m"));
        for good in ["m", "other/../m", "./m/", "link", "chain", "m/inside/.."] {
            let found = find_among(&mounts, &base.join(good));
            assert_eq!(found.map(|mount| mount.owner_uid).ok(), Some(7), "{good}");
        }
        let refusal = |path: &str| find_among(&mounts, &base.join(path)).unwrap_err().to_string();
        assert!(refusal("m/inside").contains("lies inside the uvfs mount"));
        assert!(refusal("other").contains("nothing is mounted here"));
        assert!(refusal("none").contains("no such directory"));
        assert!(refusal("none/deeper").contains("No such file"), "{}", refusal("none/deeper"));
        assert!(refusal("loop").contains("too many symbolic links"));
        assert!(find_among(&parse(EXT4), Path::new("/")).unwrap_err().to_string().contains("ext4"));
    }
}
