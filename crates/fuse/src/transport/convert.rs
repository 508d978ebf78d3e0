//! Conversion between values of the server and of the FUSE crate.

use crate::server::Attrs;
use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use std::time::{SystemTime, UNIX_EPOCH};
use uvfs_vfs::{Attributes, Error, FileKind, SetTime, Timestamp};

pub(super) fn errno(error: &Error) -> Errno {
    Errno::from_i32(error.errno())
}

pub(super) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Users see `number` as the inode number.
pub(super) fn file_attr(attributes: &Attributes, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.atime.into(),
        mtime: attributes.mtime.into(),
        ctime: attributes.ctime.into(),
        crtime: attributes.btime.map_or(UNIX_EPOCH, Into::into),
        kind: file_type(attributes.kind),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

impl Attrs {
    /// For an entry: the FUSE crate takes the node id from the inode number.
    pub(super) fn entry_attr(&self) -> FileAttr {
        file_attr(&self.attributes, self.node_id)
    }

    /// For attributes alone: the root shows its own number.
    pub(super) fn attr(&self) -> FileAttr {
        let root = self.node_id == crate::server::nodes::ROOT;
        let number = if root { self.attributes.number } else { self.node_id };
        file_attr(&self.attributes, number)
    }
}

/// The entry by which the kernel caches a missing name: node id 0.
pub(super) fn missing_attr() -> FileAttr {
    file_attr(&Attributes::new(0, FileKind::Regular, 0), 0)
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

/// The crate reads a time before 1970 with its nanoseconds counted backwards: the kernel's (-1 s,
/// +0.5 s) arrives as 1.5 s before the epoch. Its encoding of replies is right.
fn timestamp(time: SystemTime) -> Timestamp {
    match UNIX_EPOCH.duration_since(time) {
        Ok(before) if !before.is_zero() => {
            Timestamp { seconds: -(before.as_secs() as i64), nanoseconds: before.subsec_nanos() }
        }
        _ => time.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Bug: `utimensat` with (-1 s, 500 ms) through a mount came back as (-2 s, 500 ms).
    #[test]
    fn times_before_the_epoch_are_read_as_the_kernel_meant_them() {
        let sent = UNIX_EPOCH - Duration::new(1, 500_000_000);
        let meant = Timestamp { seconds: -1, nanoseconds: 500_000_000 };
        assert_eq!(timestamp(sent), meant);
        let after = UNIX_EPOCH + Duration::new(1, 500_000_000);
        assert_eq!(timestamp(after), Timestamp { seconds: 1, nanoseconds: 500_000_000 });
        assert_eq!(timestamp(UNIX_EPOCH), Timestamp::default());
    }
}
