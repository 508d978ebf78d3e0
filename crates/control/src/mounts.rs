//! The kernel's mount table, read without touching a mount.
//!
//! # Boundary
//! Reads `/proc/self/mountinfo`. Never accesses a mountpoint itself: a `stat` there asks the daemon, and hangs or fails
//! when the daemon does.
//!
//! # Why
//! The table shows the device number, which names the control socket, and the user that mounted; none of this may need
//! a request. Weakness: it is the table of this process's mount namespace only.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The type under which the kernel lists our mounts.
pub const FILE_SYSTEM_TYPE: &str = "fuse.uvfs";

/// The device number of a mounted file system; names its control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number, 0 for all FUSE mounts.
    pub major: u32,
    /// Minor number, unique among mounts.
    pub minor: u32,
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.major, self.minor)
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The kernel's number of this mount; reused after an unmount.
    pub id: u64,
    /// The file system's device number.
    pub device: Device,
    /// The directory of the file system that it shows: `/`, or another one in a bind mount.
    pub root: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// Type of the file system, with the subtype: `ext4`, `fuse.uvfs`.
    pub file_system: String,
    /// The mounted source, in the file system's own words.
    pub source: OsString,
    /// The user that mounted it (FUSE's `user_id`), 0 if none is named.
    pub owner_uid: u32,
    /// That user's group then (FUSE's `group_id`), 0 where none is named.
    pub owner_gid: u32,
}

impl MountEntry {
    /// Whether it is one of ours.
    pub fn is_uvfs(&self) -> bool {
        self.file_system == FILE_SYSTEM_TYPE
    }

    /// Whether `other` is this mount, and not a later one at its place.
    pub fn is_same(&self, other: &MountEntry) -> bool {
        self.id == other.id && self.device == other.device
    }
}

/// The mounts of this process's namespace, in the order in which they were stacked.
///
/// # Errors
/// In words, if the table cannot be read.
pub fn read() -> Result<Vec<MountEntry>, String> {
    let table = fs::read("/proc/self/mountinfo")
        .map_err(|error| format!("/proc/self/mountinfo: {}; mount /proc", crate::cause(&error)))?;
    Ok(parse(&table))
}

/// The mount that is visible at `mountpoint`, which must be canonical.
pub fn topmost<'a>(mounts: &'a [MountEntry], mountpoint: &Path) -> Option<&'a MountEntry> {
    mounts.iter().rev().find(|mount| mount.mountpoint == mountpoint)
}

/// Parses a table; lines that make no sense are left out.
pub fn parse(table: &[u8]) -> Vec<MountEntry> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
