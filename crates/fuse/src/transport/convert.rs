//! Conversion between values of the server and structures of the protocol.

use crate::server::{Attrs, EntryOut, nodes};
use std::time::Duration;
use uvfs_fuse_protocol::abi;
use uvfs_vfs::{Attributes, FileKind, SetTime, Timestamp, Totals};

/// The bits of a mode that say the kind.
pub(super) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    }
}

/// Users see `number` as the inode number.
pub(super) fn attr(attributes: &Attributes, number: u64) -> abi::Attr {
    abi::Attr {
        ino: number,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.atime.seconds as u64,
        mtime: attributes.mtime.seconds as u64,
        ctime: attributes.ctime.seconds as u64,
        atimensec: attributes.atime.nanoseconds,
        mtimensec: attributes.mtime.nanoseconds,
        ctimensec: attributes.ctime.nanoseconds,
        mode: attributes.mode & 0o7777 | kind_bits(attributes.kind),
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

pub(super) fn attr_out(attrs: &Attrs) -> abi::AttrOut {
    // The root shows its own number.
    let root = attrs.node_id == nodes::ROOT;
    let number = if root { attrs.attributes.number } else { attrs.node_id };
    let (attr_valid, attr_valid_nsec) = time(attrs.valid);
    let attr = attr(&attrs.attributes, number);
    abi::AttrOut { attr_valid, attr_valid_nsec, dummy: 0, attr }
}

/// The mask has every field that the store knows. The kernel has asked for all of them.
pub(super) fn statx_out(attrs: &Attrs) -> abi::StatxOut {
    let abi::AttrOut { attr_valid, attr_valid_nsec, attr, .. } = attr_out(attrs);
    let time = |seconds: u64, tv_nsec| abi::SxTime { tv_sec: seconds as i64, tv_nsec, reserved: 0 };
    let birth = attrs.attributes.btime;
    let born = birth.unwrap_or_default();
    let stat = abi::Statx {
        mask: libc::STATX_BASIC_STATS | birth.map_or(0, |_| libc::STATX_BTIME),
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.mode as u16,
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime, attr.atimensec),
        btime: abi::SxTime { tv_sec: born.seconds, tv_nsec: born.nanoseconds, reserved: 0 },
        ctime: time(attr.ctime, attr.ctimensec),
        mtime: time(attr.mtime, attr.mtimensec),
        rdev_major: libc::major(attr.rdev.into()),
        rdev_minor: libc::minor(attr.rdev.into()),
        ..Default::default()
    };
    abi::StatxOut { attr_valid, attr_valid_nsec, flags: 0, spare: [0; 2], stat }
}

/// A found entry.
pub(super) fn found(attrs: &Attrs, valid: Duration, generation: u32) -> abi::EntryOut {
    let node = (attrs.node_id, generation);
    entry(node, (valid, attrs.valid), attr(&attrs.attributes, attrs.node_id))
}

/// The entry for the kernel; `None`: ENOENT, which it does not cache.
pub(super) fn entry_out(out: &EntryOut) -> Option<abi::EntryOut> {
    match out {
        EntryOut::Found { attrs, entry_valid, generation } => {
            Some(found(attrs, *entry_valid, *generation))
        }
        EntryOut::Missing(Duration::ZERO) => None,
        // The kernel caches a missing name by an entry without a node.
        EntryOut::Missing(valid) => Some(entry((0, 0), (*valid, *valid), abi::Attr::default())),
    }
}

/// An entry of `(node, generation)`, valid for `(name, attributes)`.
pub(super) fn entry(
    (nodeid, generation): (u64, u32),
    (of_name, of_attributes): (Duration, Duration),
    attr: abi::Attr,
) -> abi::EntryOut {
    let ((entry_valid, entry_valid_nsec), (attr_valid, attr_valid_nsec)) =
        (time(of_name), time(of_attributes));
    abi::EntryOut {
        nodeid,
        generation: generation.into(),
        entry_valid,
        attr_valid,
        entry_valid_nsec,
        attr_valid_nsec,
        attr,
    }
}

fn time(duration: Duration) -> (u64, u32) {
    (duration.as_secs(), duration.subsec_nanos())
}

pub(super) fn statfs(totals: &Totals) -> abi::StatfsOut {
    abi::StatfsOut {
        st: abi::Kstatfs {
            blocks: totals.blocks,
            bfree: totals.blocks_free,
            bavail: totals.blocks_available,
            files: totals.files,
            ffree: totals.files_free,
            bsize: totals.block_size,
            namelen: totals.name_max,
            frsize: totals.block_size,
            ..Default::default()
        },
    }
}

/// A time of SETATTR: `now`, or as the kernel counts them.
pub(super) fn set_time(now: bool, seconds: u64, nanoseconds: u32) -> SetTime {
    match now {
        true => SetTime::Now,
        false => SetTime::At(Timestamp { seconds: seconds as i64, nanoseconds }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: `utimensat` with (-1 s, 500 ms) through a mount came back as (-2 s, 500 ms).
    #[test]
    fn times_before_the_epoch_are_read_as_the_kernel_meant_them() {
        let meant = Timestamp { seconds: -1, nanoseconds: 500_000_000 };
        assert_eq!(set_time(false, -1i64 as u64, 500_000_000), SetTime::At(meant));
        let mut attributes = Attributes::new(7, FileKind::Regular, 0o644);
        attributes.mtime = meant;
        let attr = attr(&attributes, 7);
        assert_eq!((attr.mtime as i64, attr.mtimensec), (-1, 500_000_000));
        assert_eq!(attr.mode, 0o100_644);
    }

    /// `stat` showed no birth time: a mount answered the message for it with ENOSYS.
    #[test]
    fn a_birth_is_shown_if_the_store_knows_it() {
        let out = |btime| {
            let mut attributes = Attributes::new(7, FileKind::CharDevice, 0o644);
            (attributes.btime, attributes.device) = (btime, 0x1234_5678);
            statx_out(&Attrs { node_id: 9, attributes, valid: Duration::from_millis(2500) })
        };
        let born = Timestamp { seconds: -1, nanoseconds: 5 };
        let (with, without) = (out(Some(born)), out(None));
        assert_eq!((with.attr_valid, with.attr_valid_nsec), (2, 500_000_000));
        assert_eq!((with.stat.btime.tv_sec, with.stat.btime.tv_nsec), (-1, 5));
        assert_eq!((with.stat.mask, without.stat.mask), (0xfff, 0x7ff));
        assert_eq!((with.stat.mode, with.stat.ino), (0o020_644, 9));
        // The kernel's form of a device: twelve bits of the minor number above those of the major, eight below.
        assert_eq!((with.stat.rdev_major, with.stat.rdev_minor), (0x456, 0x1_2378));
    }
}
