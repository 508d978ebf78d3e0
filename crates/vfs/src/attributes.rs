//! Attributes of an object, and requests to change them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// Bytes.
    Regular,
    /// Names.
    Directory,
    /// A path as text.
    Symlink,
    /// A named pipe; the pipe itself lives in the kernel.
    Fifo,
    /// A bound local socket.
    Socket,
    /// A character device node.
    CharDevice,
    /// A block device node.
    BlockDevice,
}

impl FileKind {
    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            FileKind::Regular => libc::S_IFREG,
            FileKind::Directory => libc::S_IFDIR,
            FileKind::Symlink => libc::S_IFLNK,
            FileKind::Fifo => libc::S_IFIFO,
            FileKind::Socket => libc::S_IFSOCK,
            FileKind::CharDevice => libc::S_IFCHR,
            FileKind::BlockDevice => libc::S_IFBLK,
        }
    }

    /// Whether the object only represents one in the kernel: a pipe, a socket, a device.
    pub fn is_special(self) -> bool {
        !matches!(self, FileKind::Regular | FileKind::Directory | FileKind::Symlink)
    }

    /// The kind in the `S_IFMT` bits of `mode`, if they name one.
    pub fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & libc::S_IFMT {
            libc::S_IFREG => FileKind::Regular,
            libc::S_IFDIR => FileKind::Directory,
            libc::S_IFLNK => FileKind::Symlink,
            libc::S_IFIFO => FileKind::Fifo,
            libc::S_IFSOCK => FileKind::Socket,
            libc::S_IFCHR => FileKind::CharDevice,
            libc::S_IFBLK => FileKind::BlockDevice,
            _ => return None,
        })
    }
}

/// A point in time, in nanoseconds around the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Whole seconds since the epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds after `seconds`, below 10^9.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// The time now.
    pub fn now() -> Self {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => {
                Self { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() }
            }
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Self {
                    seconds: -(before.as_secs() as i64) - borrow,
                    nanoseconds: (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000,
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let nanoseconds = Duration::from_nanos(u64::from(time.nanoseconds));
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        // Times that `SystemTime` cannot hold do not exist on Linux: both are 64-bit seconds.
        match time.seconds {
            0.. => UNIX_EPOCH + seconds + nanoseconds,
            _ => UNIX_EPOCH - seconds + nanoseconds,
        }
    }
}

/// The attributes of one object, as `stat(2)` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The number users see (`st_ino`). Stable while the object exists, if the store has such a number. It should be
    /// unique per object, but need not be: caches use [`crate::InodeId`].
    pub number: u64,
    /// The type of the object.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Names of the object. A directory counts its `.` and its children's `..` if the store does.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as `st_rdev` packs it.
    pub device: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Creation, where known.
    pub btime: Option<Timestamp>,
    /// The version of a file's content, if the store reports it. It differs after every change of the content, and
    /// equal versions mean equal content. 0 is none. Only in answers of a store: cached attributes have 0.
    pub version: u64,
}

impl Attributes {
    /// Attributes of a new object with one name, owned by user 0, all times now.
    pub fn new(number: u64, kind: FileKind, mode: u32) -> Self {
        let now = Timestamp::now();
        Self {
            number,
            kind,
            mode: mode & 0o7777,
            links: if kind == FileKind::Directory { 2 } else { 1 },
            uid: 0,
            gid: 0,
            device: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            atime: now,
            mtime: now,
            ctime: now,
            btime: Some(now),
            version: 0,
        }
    }

    /// Distinguishes it from another object with the same number at another time: made of its birth time and its kind;
    /// 0 without a birth time. 31 bits, as Linux keeps them in file handles.
    pub fn generation(&self) -> u32 {
        let Some(born) = self.btime else { return 0 };
        let kind = self.kind as u64;
        let spread = |value: u64| {
            // The finalizer of splitmix64.
            let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            value ^ (value >> 31)
        };
        let mixed = spread(spread(born.seconds as u64) ^ u64::from(born.nanoseconds) << 3 ^ kind);
        (mixed >> 33) as u32
    }

    /// `st_mode`: kind and permission bits together.
    pub fn st_mode(&self) -> u32 {
        self.kind.mode_bits() | self.mode
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This time.
    At(Timestamp),
}

/// A change of attributes; `None` leaves a field unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// New permission, set-id and sticky bits.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size: cuts, or extends with a hole.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
}

/// Totals of a file system, as `statvfs(3)` shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Size of a block in bytes; unit of the three below.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Blocks free.
    pub blocks_free: u64,
    /// Blocks that an unprivileged caller may still take.
    pub blocks_available: u64,
    /// All inodes.
    pub files: u64,
    /// Inodes free.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive_the_conversion() {
        for (seconds, nanoseconds) in
            [(0, 0), (5, 7), (-1, 999_999_999), (-2, 0), (-3, 1), (1 << 40, 3)]
        {
            let time = Timestamp { seconds, nanoseconds };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[test]
    fn kinds_survive_the_mode_word() {
        for kind in [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Fifo,
            FileKind::Socket,
            FileKind::CharDevice,
            FileKind::BlockDevice,
        ] {
            assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o644), Some(kind));
        }
        assert_eq!(FileKind::from_mode(0o644), None);
    }

    #[test]
    fn another_birth_or_kind_is_another_generation() {
        let at = |seconds, nanoseconds, kind| {
            let born = Some(Timestamp { seconds, nanoseconds });
            Attributes { btime: born, ..Attributes::new(7, kind, 0) }.generation()
        };
        let file = at(5, 6, FileKind::Regular);
        assert_eq!(file, at(5, 6, FileKind::Regular));
        let others =
            [(5, 7, FileKind::Regular), (6, 6, FileKind::Regular), (5, 6, FileKind::Symlink)];
        assert!(others.iter().all(|&(seconds, nanos, kind)| at(seconds, nanos, kind) != file));
        assert!(file < 1 << 31);
    }
}
