//! Converts the host's values into the seam's: errno values, `statx` results, open flags.
//!
//! # Boundary
//! Conversions, and the few system calls that only read (`statx`). Keeps no state.

use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use uvfs_vfs::{Attributes, Error, FileKind, OpenMode, Result, Timestamp};

/// The error for an errno of the host.
pub(super) fn host_error(errno: Errno) -> Error {
    Error::from_errno(errno.raw_os_error())
}

/// Where an object is on the host. The host may reuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct HostKey {
    pub(super) device: u64,
    pub(super) number: u64,
    /// The mount through which a directory is seen; 0 for other objects.
    pub(super) mount: u64,
}

/// One answer of `statx`.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostStat {
    pub(super) key: HostKey,
    /// Attributes as the host has them; `number` is the host's inode number.
    pub(super) attributes: Attributes,
}

/// The state of the entry `name` of `directory`, without opening it and without following it.
pub(super) fn stat_at(directory: BorrowedFd<'_>, name: &[u8]) -> Result<HostStat> {
    stat(directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

/// The state of the object that `descriptor` is open on.
pub(super) fn stat_of(descriptor: impl AsFd) -> Result<HostStat> {
    stat(descriptor.as_fd(), b"", AtFlags::EMPTY_PATH)
}

/// Which directory `path` leads to from `directory`, as far as this host knows by itself.
pub(super) fn directory_key(directory: BorrowedFd<'_>, path: &[u8]) -> Option<HostKey> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MNT_ID;
    let answer = rustix::fs::statx(directory, path, flags, wanted).ok()?;
    host_stat(&answer).ok().map(|stat| stat.key)
}

fn stat(directory: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> Result<HostStat> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let answer = rustix::fs::statx(directory, name, flags, wanted).map_err(host_error)?;
    host_stat(&answer)
}

fn host_stat(answer: &Statx) -> Result<HostStat> {
    let mode = u32::from(answer.stx_mode);
    let kind = FileKind::from_mode(mode).ok_or(Error::Corrupt("an object of no known kind"))?;
    let known = StatxFlags::from_bits_retain(answer.stx_mask);
    let by_mount = kind == FileKind::Directory && known.contains(StatxFlags::MNT_ID);
    let key = HostKey {
        device: device_number(answer.stx_dev_major, answer.stx_dev_minor),
        number: answer.stx_ino,
        mount: if by_mount { answer.stx_mnt_id } else { 0 },
    };
    let attributes = Attributes {
        number: answer.stx_ino,
        kind,
        mode: mode & 0o7777,
        links: answer.stx_nlink,
        uid: answer.stx_uid,
        gid: answer.stx_gid,
        device: packed_device(answer.stx_rdev_major, answer.stx_rdev_minor),
        size: answer.stx_size,
        blocks: answer.stx_blocks,
        block_size: answer.stx_blksize,
        atime: timestamp(answer.stx_atime),
        mtime: timestamp(answer.stx_mtime),
        ctime: timestamp(answer.stx_ctime),
        btime: known.contains(StatxFlags::BTIME).then(|| timestamp(answer.stx_btime)),
        version: 0,
    };
    Ok(HostStat { key, attributes })
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

fn device_number(major: u32, minor: u32) -> u64 {
    (u64::from(major) << 32) | u64::from(minor)
}

/// A device number as `st_rdev` has it: 12 bits of major and 20 of minor, interleaved.
fn packed_device(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}

/// The `st_ino` shown for `key`: the host's own on the root's device. Objects of other devices (file systems mounted
/// inside the source) get a mix of device and number with the top bit set. So they never collide with the numbers of
/// the root's device, which are below 2^63 in practice.
pub(super) fn shown_number(key: HostKey, root_device: u64) -> u64 {
    match key.device == root_device {
        true => key.number,
        false => mix(mix(key.device) ^ key.number) | 1 << 63,
    }
}

/// Spreads the bits of `value` (the finalizer of splitmix64).
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Host mode bits of `mode`.
pub(super) fn host_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// Host open flags of `mode`, without any that create, and without O_APPEND: every write has its offset.
pub(super) fn open_flags(mode: OpenMode) -> OFlags {
    let mut flags = match (mode.read, mode.write || mode.append) {
        (_, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (true, true) => OFlags::RDWR,
    };
    let switches =
        [(mode.truncate, OFlags::TRUNC), (mode.direct, OFlags::DIRECT), (mode.sync, OFlags::SYNC)];
    for (_, flag) in switches.into_iter().filter(|(wanted, _)| *wanted) {
        flags |= flag;
    }
    flags | OFlags::CLOEXEC | OFlags::NOCTTY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_packed_as_the_host_packs_them() {
        for (major, minor) in [(1, 3), (8, 17), (4095, 255), (259, 70_000), (0, 1_048_575)] {
            let host = rustix::fs::makedev(major, minor);
            assert_eq!(u64::from(packed_device(major, minor)), host, "{major}:{minor}");
        }
    }

    #[test]
    fn numbers_of_other_devices_do_not_meet_those_of_the_root() {
        let root = HostKey { device: 7, number: 42, mount: 0 };
        let other = HostKey { device: 8, ..root };
        assert_eq!(shown_number(root, 7), 42);
        assert_ne!(shown_number(other, 7), 42);
        assert!(shown_number(other, 7) >= 1 << 63);
        assert_ne!(shown_number(other, 7), shown_number(HostKey { device: 9, ..other }, 7));
    }

    #[test]
    fn a_stat_by_name_does_not_follow_a_symlink() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("link")).unwrap();
        let descriptor = std::fs::File::open(folder.path()).unwrap();
        let found = stat_at(descriptor.as_fd(), b"link").unwrap();
        assert_eq!((found.attributes.kind, found.attributes.size), (FileKind::Symlink, 4));
        assert!(matches!(stat_at(descriptor.as_fd(), b"none"), Err(Error::NotFound)));
        assert_eq!(stat_of(&descriptor).unwrap().attributes.kind, FileKind::Directory);
    }
}
