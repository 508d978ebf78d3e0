//! Requests of the kernel as plain values.
//!
//! # Boundary
//! From the protocol's [`Operation`] to the server's [`Request`]; the one place that knows which field of a message says
//! what (docs/kernel-contract.md). Acts on nothing.
//!
//! # Concurrency
//! Values borrow from the buffer of the message.
//!
//! # Why
//! Both transports use it, so they cannot differ in their effect.

use super::convert::set_time;
use crate::server::{Bytes, Request, WriteFrom, WriteHow};
use uvfs_fuse_protocol::abi::{CreateIn, ForgetOne, FsyncIn, OpenIn, ReadIn, SetattrIn, WriteIn};
use uvfs_fuse_protocol::{
    FsyncFlags, GetattrFlags, OpenInFlags, Operation, ReadFlags, SetattrValid, WriteFlags,
};
use uvfs_vfs::{SetAttributes, SyncMode};

/// What to do with a message.
#[derive(Debug)]
pub(super) enum Decoded<'a> {
    /// Have it answered.
    Ask(Request<'a>),
    /// Return lookups of these nodes; there is no answer.
    Forget(&'a [ForgetOne]),
    /// A signal has come for the task that waits for the request of this number; there is no answer.
    Interrupt(u64),
    /// The kernel takes its leave.
    Leave,
    /// Say that there is no such operation here; the kernel then does not send it again.
    Unknown,
}

/// `operation` of `node`.
pub(super) fn decode<'a>(node: u64, operation: &Operation<'a>) -> Decoded<'a> {
    let parent = node;
    Decoded::Ask(match *operation {
        Operation::Lookup { name } => Request::Lookup { parent, name: bytes(name) },
        Operation::Forget(forget) => Request::Forget { node, lookups: forget.nlookup },
        Operation::BatchForget(nodes) => return Decoded::Forget(nodes),
        Operation::Interrupt(interrupt) => return Decoded::Interrupt(interrupt.unique),
        Operation::GetAttr(get) => {
            Request::GetAttr { node, file: file_of(get.getattr_flags(), get.fh) }
        }
        Operation::Statx(get) => {
            Request::Statx { node, file: file_of(get.getattr_flags(), get.fh) }
        }
        Operation::SetAttr(set) => set_attributes(node, set),
        Operation::ReadLink => Request::ReadLink { node },
        Operation::SymLink { name, target } => {
            Request::SymLink { parent, name: bytes(name), target: bytes(target) }
        }
        Operation::MkNod { argument: make, name } => Request::MkNod {
            parent,
            name: bytes(name),
            mode: make.mode,
            umask: make.umask,
            device: make.rdev,
        },
        Operation::MkDir { argument: make, name } => {
            Request::MkDir { parent, name: bytes(name), mode: make.mode, umask: make.umask }
        }
        Operation::Unlink { name } => Request::Unlink { parent, name: bytes(name) },
        Operation::RmDir { name } => Request::RmDir { parent, name: bytes(name) },
        Operation::Rename { new_parent, flags, name, new_name } => Request::Rename {
            parent,
            name: bytes(name),
            new_parent,
            new_name: bytes(new_name),
            flags,
        },
        Operation::Link { argument: link, name } => {
            Request::Link { node: link.oldnodeid, parent, name: bytes(name) }
        }
        Operation::Open(open) => {
            let keeps_set_ids = !open.open_flags().contains(OpenInFlags::KILL_SUIDGID);
            Request::Open { node, flags: open_flags(open), keeps_set_ids }
        }
        Operation::Create { argument: create, name } => create_in(parent, create, name),
        // Its name is the kernel's own; no program sees it.
        Operation::TmpFile { argument: new, .. } => {
            Request::TmpFile { parent, mode: new.mode, umask: new.umask, flags: new.flags as i32 }
        }
        Operation::Read(read) => Request::Read {
            node,
            file: read.fh,
            offset: read.offset,
            size: read.size,
            // Only a direct read names its owner.
            into_pages: !read.read_flags().contains(ReadFlags::LOCKOWNER),
        },
        Operation::Write { argument: write, data } => Request::Write {
            node,
            file: write.fh,
            offset: write.offset,
            data: bytes(data),
            how: write_how(write),
        },
        Operation::StatFs => Request::StatFs {},
        Operation::Flush(flush) => Request::Flush { file: flush.fh },
        Operation::Release(release) => Request::Release { file: release.fh },
        Operation::Fsync(sync) => {
            Request::Fsync { node, file: sync.fh, data_only: data_only(sync) }
        }
        Operation::OpenDir(open) => Request::OpenDir { node, flags: open_flags(open) },
        Operation::ReadDir(read) => Request::ReadDir { node, file: read.fh, offset: read.offset },
        Operation::ReadDirPlus(read) => {
            Request::ReadDirPlus { node, file: read.fh, offset: read.offset }
        }
        Operation::ReleaseDir(release) => Request::ReleaseDir { file: release.fh },
        Operation::FsyncDir(sync) => {
            Request::FsyncDir { node, file: sync.fh, data_only: data_only(sync) }
        }
        Operation::SetXattr { name, value, flags, .. } => {
            Request::SetXattr { node, name: bytes(name), value: bytes(value), flags: flags as i32 }
        }
        Operation::GetXattr { argument: get, name } => {
            Request::GetXattr { node, name: bytes(name), size: get.size }
        }
        Operation::ListXattr(list) => Request::ListXattr { node, size: list.size },
        Operation::RemoveXattr { name } => Request::RemoveXattr { node, name: bytes(name) },
        Operation::Access(access) => Request::Access { node, mask: access.mask as i32 },
        Operation::Ioctl { .. } => Request::IoCtl {},
        Operation::Poll(_) => Request::Poll {},
        Operation::Fallocate(allocate) => Request::Fallocate {
            node,
            file: allocate.fh,
            offset: allocate.offset,
            length: allocate.length,
            mode: allocate.mode as i32,
        },
        Operation::Lseek(seek) => Request::Lseek {
            node,
            file: seek.fh,
            offset: seek.offset as i64,
            whence: seek.whence as i32,
        },
        Operation::CopyFileRange(copy) | Operation::CopyFileRange64(copy) => {
            Request::CopyFileRange {
                node,
                file: copy.fh_in,
                offset: copy.off_in,
                to_node: copy.nodeid_out,
                to_file: copy.fh_out,
                to_offset: copy.off_out,
                length: copy.len,
            }
        }
        Operation::Destroy => return Decoded::Leave,
        _ => return Decoded::Unknown,
    })
}

fn bytes(name: &[u8]) -> Bytes<'_> {
    Bytes::Borrowed(name)
}

fn file_of(flags: GetattrFlags, file: u64) -> u64 {
    if flags.contains(GetattrFlags::FH) { file } else { 0 }
}

fn open_flags(open: &OpenIn) -> i32 {
    open.flags as i32
}

fn data_only(sync: &FsyncIn) -> bool {
    sync.fsync_flags().contains(FsyncFlags::FDATASYNC)
}

fn create_in<'a>(parent: u64, create: &CreateIn, name: &'a [u8]) -> Request<'a> {
    let (mode, umask, flags) = (create.mode, create.umask, create.flags as i32);
    let keeps_set_ids = !create.open_flags().contains(OpenInFlags::KILL_SUIDGID);
    Request::Create { parent, name: bytes(name), mode, umask, flags, keeps_set_ids }
}

fn set_attributes(node: u64, set: &SetattrIn) -> Request<'static> {
    let has = |flag| set.valid().contains(flag);
    let (now, at) = (SetattrValid::ATIME_NOW, SetattrValid::ATIME);
    let atime = has(at).then(|| set_time(has(now), set.atime, set.atimensec));
    let (now, at) = (SetattrValid::MTIME_NOW, SetattrValid::MTIME);
    let mtime = has(at).then(|| set_time(has(now), set.mtime, set.mtimensec));
    let new = SetAttributes {
        mode: has(SetattrValid::MODE).then_some(set.mode & 0o7777),
        uid: has(SetattrValid::UID).then_some(set.uid),
        gid: has(SetattrValid::GID).then_some(set.gid),
        size: has(SetattrValid::SIZE).then_some(set.size),
        atime,
        mtime,
    };
    let file = if has(SetattrValid::FH) { set.fh } else { 0 };
    let keeps_set_ids = !has(SetattrValid::KILL_SUIDGID);
    Request::SetAttr { node, file, set: new, keeps_set_ids }
}

fn write_how(write: &WriteIn) -> WriteHow {
    let flags = write.write_flags();
    let from = if flags.contains(WriteFlags::CACHE) {
        WriteFrom::Mapped
    } else if flags.contains(WriteFlags::LOCKOWNER) {
        // Only a direct write names its owner.
        WriteFrom::Direct
    } else {
        WriteFrom::Paged
    };
    WriteHow {
        from,
        // A page has its place, whatever the flags of the file through which the kernel writes it.
        appends: from != WriteFrom::Mapped && write.flags as i32 & libc::O_APPEND != 0,
        // A kernel that did not agree to HANDLE_KILLPRIV_V2 clears them itself, before the write.
        keeps_set_ids: !flags.contains(WriteFlags::KILL_SUIDGID),
        syncs: match write.flags as i32 & libc::O_SYNC {
            _ if from != WriteFrom::Direct => None,
            libc::O_SYNC => Some(SyncMode::All),
            libc::O_DSYNC => Some(SyncMode::Data),
            _ => None,
        },
    }
}

/// Bytes of the listing that a request wants at most, and whether with attributes.
pub(super) fn listing(operation: &Operation<'_>) -> Option<(usize, bool)> {
    let room = |read: &ReadIn| read.size as usize;
    match operation {
        Operation::ReadDir(read) => Some((room(read), false)),
        Operation::ReadDirPlus(read) => Some((room(read), true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: only the mode of the open decided whether a write appends. A store to a mapping of an O_APPEND file was
    /// appended, and doubled the file. A program that had cleared O_APPEND still appended.
    #[test]
    fn a_write_is_what_its_own_flags_say() {
        let (append, plain) = (libc::O_APPEND | libc::O_RDWR, libc::O_RDWR);
        let how =
            |from, appends, keeps_set_ids| WriteHow { from, appends, keeps_set_ids, syncs: None };
        let read = |write_flags: WriteFlags, flags: i32| {
            let (write_flags, flags) = (write_flags.bits(), flags as u32);
            write_how(&WriteIn { write_flags, flags, ..Default::default() })
        };
        let (none, owner) = (WriteFlags::empty(), WriteFlags::LOCKOWNER);
        assert_eq!(read(none, append), how(WriteFrom::Paged, true, true));
        assert_eq!(read(none, plain), how(WriteFrom::Paged, false, true));
        assert_eq!(read(owner, append), how(WriteFrom::Direct, true, true));
        assert_eq!(read(WriteFlags::KILL_SUIDGID, plain), how(WriteFrom::Paged, false, false));
        assert_eq!(read(WriteFlags::CACHE, append), how(WriteFrom::Mapped, false, true));
        for (flags, syncs) in [(libc::O_DSYNC, SyncMode::Data), (libc::O_SYNC, SyncMode::All)] {
            let direct = how(WriteFrom::Direct, false, true);
            assert_eq!(read(owner, flags), WriteHow { syncs: Some(syncs), ..direct });
            assert_eq!(read(none, flags), how(WriteFrom::Paged, false, true), "an FSYNC follows");
        }
    }
}
