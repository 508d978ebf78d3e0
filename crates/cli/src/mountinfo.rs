//! The kernel's mount table, and finding a mount in it without touching the mount.
//!
//! # Boundary
//! Reads `/proc/self/mountinfo`. Never looks at a mountpoint itself: a `stat` there asks the daemon,
//! and hangs or fails when the daemon does. [`find`] therefore resolves every component but the
//! last as usual, and asks the table about the last before anything else.
//!
//! # Why
//! `uvfs unmount` is most needed for mounts whose daemon died. Weakness: a path that leads *through*
//! a dead mount to another one cannot be resolved; the refusal says so.

use crate::Failure;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The type under which the kernel lists our mounts.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.uvfs";

/// Symbolic links that may follow each other in the last component; the kernel's limit.
const LINKS_MAX: usize = 40;

/// The device number of a mounted file system; names its control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Device {
    /// Major number, 0 for all FUSE mounts.
    pub(crate) major: u32,
    /// Minor number, unique among mounts.
    pub(crate) minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.major, self.minor)
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// The kernel's number of this mount; reused after an unmount.
    pub(crate) id: u64,
    /// The file system's device number.
    pub(crate) device: Device,
    /// Which directory of the file system it shows: `/`, or another one in a bind mount.
    pub(crate) root: PathBuf,
    /// Where it is mounted.
    pub(crate) mountpoint: PathBuf,
    /// Its type, with the subtype: `ext4`, `fuse.uvfs`.
    pub(crate) file_system: String,
    /// What is mounted, in the file system's own words.
    pub(crate) source: OsString,
    /// The user who mounted it (FUSE's `user_id`), 0 where none is named.
    pub(crate) owner_uid: u32,
    /// That user's group then (FUSE's `group_id`), 0 where none is named.
    pub(crate) owner_gid: u32,
}

impl MountEntry {
    /// Whether it is one of ours.
    pub(crate) fn is_uvfs(&self) -> bool {
        self.file_system == FILE_SYSTEM_TYPE
    }
}

/// The mounts of this process's namespace, in the order in which they were stacked.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn read() -> Result<Vec<MountEntry>, Failure> {
    let table = fs::read("/proc/self/mountinfo").map_err(|error| {
        Failure::refused(format!("/proc/self/mountinfo: {}; mount /proc", crate::cause(&error)))
    })?;
    Ok(parse(&table))
}

/// The mount that is visible at `mountpoint`, which must be canonical.
pub(crate) fn topmost<'a>(mounts: &'a [MountEntry], mountpoint: &Path) -> Option<&'a MountEntry> {
    mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint)
}

/// The uvfs mount that `path` names, not necessarily canonically.
///
/// # Errors
/// If no file system of ours is mounted exactly there.
pub(crate) fn find(path: &Path) -> Result<MountEntry, Failure> {
    find_among(&read()?, path)
}

/// As [`find`], in a table already read.
///
/// # Errors
/// As [`find`].
pub(crate) fn find_among(mounts: &[MountEntry], path: &Path) -> Result<MountEntry, Failure> {
    let mut wanted = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let place = resolve_parent(&wanted).map_err(|error| {
            Failure::refused(format!(
                "{}: {}; name an existing mountpoint (`uvfs stat` lists them)",
                path.display(),
                crate::cause(&error)
            ))
        })?;
        match topmost(mounts, &place) {
            Some(mount) if mount.is_uvfs() => return Ok(mount.clone()),
            Some(mount) => {
                return Err(Failure::refused(format!(
                    "{}: a {} file system, not a uvfs mount; `uvfs stat` lists the uvfs mounts",
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

/// Parses the table; lines that make no sense are left out.
fn parse(table: &[u8]) -> Vec<MountEntry> {
    table.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// One line: `id parent major:minor root mountpoint options [tag...] - type source super-options`.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|&byte| byte == b' ');
    let text = |field: &[u8]| str::from_utf8(field).ok().map(str::to_owned);
    let id = text(fields.next()?)?.parse().ok()?;
    let (major, minor) = text(fields.nth(1)?)?
        .split_once(':')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))?;
    let root = unescape(fields.next()?);
    let mountpoint = unescape(fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let file_system = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = OsString::from_vec(unescape(fields.next()?));
    let options = text(fields.next()?).unwrap_or_default();
    let owner =
        |name| options.split(',').find_map(|option| option.strip_prefix(name)?.parse().ok());
    Some(MountEntry {
        id,
        device: Device { major, minor },
        root: OsString::from_vec(root).into(),
        mountpoint: OsString::from_vec(mountpoint).into(),
        file_system,
        source,
        owner_uid: owner("user_id=").unwrap_or(0),
        owner_gid: owner("group_id=").unwrap_or(0),
    })
}

/// Undoes the table's `\ooo` for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [byte, after @ ..] = rest {
        let octal = match rest {
            [b'\\', digits @ ..] => digits.get(..3).and_then(parse_octal),
            _ => None,
        };
        match octal {
            Some(decoded) => {
                plain.push(decoded);
                rest = &rest[4..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
}

fn parse_octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok()
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

/// Why nothing of ours is at `place`.
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
            format!("{path}: no such directory; `uvfs stat` lists the uvfs mounts")
        }
        None => format!("{path}: nothing is mounted here; `uvfs stat` lists the uvfs mounts"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const TABLE: &[u8] = b"\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /mnt/a\\040b rw,nosuid,nodev shared:3 master:4 - fuse.uvfs /srv\\134x rw,user_id=1000,group_id=5
garbage
41 27 0:51 / /mnt/over rw - tmpfs none rw
42 27 0:52 /sub\\040dir /mnt/over rw - fuse.uvfs memory: rw,user_id=0,group_id=0
";

    #[test]
    fn lines_with_escapes_and_tags_are_read_and_garbage_is_skipped() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 4);
        let mount = &mounts[1];
        assert_eq!((mount.id, mount.device.to_string().as_str()), (40, "0:50"));
        assert_eq!(mount.mountpoint, Path::new("/mnt/a b"));
        assert_eq!(mount.source, "/srv\\x");
        assert_eq!(
            (mount.root.as_path(), mounts[3].root.to_str()),
            (Path::new("/"), Some("/sub dir"))
        );
        assert!(mount.is_uvfs() && mount.owner_uid == 1000 && mount.owner_gid == 5);
        assert!(!mounts[0].is_uvfs() && mounts[0].owner_uid == 0);
    }

    #[test]
    fn the_last_of_several_mounts_on_one_point_is_the_visible_one() {
        let mounts = parse(TABLE);
        assert_eq!(topmost(&mounts, Path::new("/mnt/over")).map(|mount| mount.id), Some(42));
        assert!(topmost(&mounts, Path::new("/mnt")).is_none());
    }

    #[test]
    fn a_lone_backslash_stays() {
        assert_eq!(unescape(b"a\\"), b"a\\");
        assert_eq!(unescape(b"a\\9zz\\040"), b"a\\9zz ");
        assert_eq!(unescape(b"\\777"), b"\\777", "more than a byte");
    }

    #[test]
    fn our_own_table_is_read() {
        assert!(read().unwrap().iter().any(|mount| mount.mountpoint == Path::new("/")));
    }

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
        assert!(
            find_among(&parse(TABLE), Path::new("/")).unwrap_err().to_string().contains("ext4")
        );
    }
}
