//! The transport over the FUSE crate's read-write loop: the only file that implements its trait.
//!
//! # Boundary
//! Decodes: each method makes a [`Request`] of its arguments. [`crate::dispatch`] performs it.
//!
//! # Concurrency
//! Methods run on any reader, and lend the buffer that it reads into.

use super::convert::set_time;
use super::reply::FuserReply;
use crate::direct::BACKGROUND_MAX;
use crate::dispatch::Dispatcher;
use crate::server::{Bytes, Request, Sender, WriteFrom, WriteHow};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, TimeOrNow,
    WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_vfs::SetAttributes;

/// Largest request of the kernel.
const WRITE_MAX: u32 = 1 << 20;

/// The FUSE crate's view of a [`Dispatcher`].
pub(super) struct Adapter(pub(super) Dispatcher<FuserReply>);

impl Adapter {
    fn dispatch(&self, header: &fuser::Request, request: Request<'_>, reply: FuserReply) {
        let sender = Sender { uid: header.uid(), gid: header.gid(), task: header.pid() };
        self.0.dispatch(sender, request, reply);
    }
}

fn handle(file: Option<FileHandle>) -> u64 {
    file.map_or(0, |file| file.0)
}

fn bytes(name: &OsStr) -> Bytes<'_> {
    Bytes::Borrowed(name.as_bytes())
}

fn write_how(write_flags: WriteFlags, flags: OpenFlags, owner: Option<LockOwner>) -> WriteHow {
    let from = match owner {
        _ if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) => WriteFrom::Mapped,
        // Only a direct write names its owner.
        Some(_) => WriteFrom::Direct,
        None => WriteFrom::Paged,
    };
    WriteHow {
        from,
        // A page has its place, whatever the flags of the file through which the kernel writes it.
        appends: from != WriteFrom::Mapped && flags.0 & libc::O_APPEND != 0,
        // A kernel that did not agree to FUSE_HANDLE_KILLPRIV_V2 clears them itself, before the write.
        keeps_set_ids: !write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
    }
}

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let server = self.0.server();
        let capabilities = server.vfs.capabilities();
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        wanted.set(InitFlags::FUSE_POSIX_ACL, capabilities.acls);
        wanted.set(InitFlags::FUSE_EXPORT_SUPPORT, capabilities.births);
        wanted.set(InitFlags::FUSE_AUTO_INVAL_DATA, server.shared());
        wanted.set(
            InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            server.stateless(),
        );
        let offered = config.capabilities();
        // The intersection is never refused.
        let _ = config.add_capabilities(wanted & offered);
        let _ = config.set_max_write(WRITE_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_time_granularity(Duration::from_nanos(1));
        // The kernel stacks at most two levels. A mount that takes both cannot be the lower layer of an overlay.
        let levels = if capabilities.os_stacked { 2 } else { 1 };
        let passthrough = server.settings.passthrough
            && capabilities.os_files
            && rustix::process::geteuid().is_root()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(levels).is_ok();
        // ORDERING: Relaxed; no request comes before this greeting is answered.
        self.0.passthrough().store(passthrough, Relaxed);
        Ok(())
    }

    fn destroy(&mut self) {
        self.0.server().end();
    }

    fn lookup(&self, header: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let request = Request::Lookup { parent: parent.0, name: bytes(name) };
        self.dispatch(header, request, FuserReply::Entry(reply));
    }

    fn forget(&self, header: &fuser::Request, node: INodeNo, lookups: u64) {
        let request = Request::Forget { node: node.0, lookups };
        self.dispatch(header, request, FuserReply::None);
    }

    fn getattr(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let request = Request::GetAttr { node: node.0, file: handle(file) };
        self.dispatch(header, request, FuserReply::Attr(reply));
    }

    fn setattr(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        file: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
        };
        let request = Request::SetAttr { node: node.0, file: handle(file), set };
        self.dispatch(header, request, FuserReply::Attr(reply));
    }

    fn readlink(&self, header: &fuser::Request, node: INodeNo, reply: ReplyData) {
        let request = Request::ReadLink { node: node.0 };
        self.dispatch(header, request, FuserReply::Data(reply));
    }

    fn mknod(
        &self,
        header: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let request = Request::MkNod { parent: parent.0, name: bytes(name), mode, umask, device };
        self.dispatch(header, request, FuserReply::Entry(reply));
    }

    fn mkdir(
        &self,
        header: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let request = Request::MkDir { parent: parent.0, name: bytes(name), mode, umask };
        self.dispatch(header, request, FuserReply::Entry(reply));
    }

    fn unlink(&self, header: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let request = Request::Unlink { parent: parent.0, name: bytes(name) };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn rmdir(&self, header: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let request = Request::RmDir { parent: parent.0, name: bytes(name) };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn symlink(
        &self,
        header: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let request = Request::SymLink {
            parent: parent.0,
            name: bytes(name),
            target: bytes(target.as_os_str()),
        };
        self.dispatch(header, request, FuserReply::Entry(reply));
    }

    fn rename(
        &self,
        header: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let request = Request::Rename {
            parent: parent.0,
            name: bytes(name),
            new_parent: new_parent.0,
            new_name: bytes(new_name),
            flags: flags.bits(),
        };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn link(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let request = Request::Link { node: node.0, parent: parent.0, name: bytes(name) };
        self.dispatch(header, request, FuserReply::Entry(reply));
    }

    fn open(&self, header: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let request = Request::Open { node: node.0, flags: flags.0 };
        self.dispatch(header, request, FuserReply::Open(reply));
    }

    fn create(
        &self,
        header: &fuser::Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let request = Request::Create { parent: parent.0, name: bytes(name), mode, umask, flags };
        self.dispatch(header, request, FuserReply::Create(reply));
    }

    fn read(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Only a direct read names its owner.
        let into_pages = owner.is_none();
        let request = Request::Read { node: node.0, file: file.0, offset, size, into_pages };
        self.dispatch(header, request, FuserReply::Data(reply));
    }

    fn write(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let how = write_how(write_flags, flags, owner);
        let data = Bytes::Borrowed(data);
        let request = Request::Write { node: node.0, file: file.0, offset, data, how };
        self.dispatch(header, request, FuserReply::Written(reply));
    }

    fn flush(
        &self,
        header: &fuser::Request,
        _: INodeNo,
        file: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        let request = Request::Flush { file: file.0 };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn release(
        &self,
        header: &fuser::Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let request = Request::Release { file: file.0 };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn fsync(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let request = Request::Fsync { node: node.0, file: file.0, data_only };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn opendir(&self, header: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let request = Request::OpenDir { node: node.0, flags: flags.0 };
        self.dispatch(header, request, FuserReply::Open(reply));
    }

    fn readdir(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let request = Request::ReadDir { node: node.0, file: file.0, offset };
        self.dispatch(header, request, FuserReply::Names(reply));
    }

    fn readdirplus(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let request = Request::ReadDirPlus { node: node.0, file: file.0, offset };
        self.dispatch(header, request, FuserReply::Entries(reply));
    }

    fn releasedir(
        &self,
        header: &fuser::Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let request = Request::ReleaseDir { file: file.0 };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn fsyncdir(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let request = Request::FsyncDir { node: node.0, file: file.0, data_only };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn statfs(&self, header: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        let request = Request::StatFs {};
        self.dispatch(header, request, FuserReply::Totals(reply));
    }

    fn setxattr(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let request = Request::SetXattr {
            node: node.0,
            name: bytes(name),
            value: Bytes::Borrowed(value),
            flags,
        };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn getxattr(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let request = Request::GetXattr { node: node.0, name: bytes(name), size };
        self.dispatch(header, request, FuserReply::Value(reply));
    }

    fn listxattr(&self, header: &fuser::Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let request = Request::ListXattr { node: node.0, size };
        self.dispatch(header, request, FuserReply::Value(reply));
    }

    fn removexattr(&self, header: &fuser::Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let request = Request::RemoveXattr { node: node.0, name: bytes(name) };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn access(&self, header: &fuser::Request, node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let request = Request::Access { node: node.0, mask: mask.bits() };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn ioctl(
        &self,
        header: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        let request = Request::IoCtl {};
        self.dispatch(header, request, FuserReply::Ioctl(reply));
    }

    fn poll(
        &self,
        header: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        self.dispatch(header, Request::Poll {}, FuserReply::Poll(reply));
    }

    fn fallocate(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let request = Request::Fallocate { node: node.0, file: file.0, offset, length, mode };
        self.dispatch(header, request, FuserReply::Empty(reply));
    }

    fn lseek(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let request = Request::Lseek { node: node.0, file: file.0, offset, whence };
        self.dispatch(header, request, FuserReply::Offset(reply));
    }

    fn copy_file_range(
        &self,
        header: &fuser::Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        to_node: INodeNo,
        to_file: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let request = Request::CopyFileRange {
            node: node.0,
            file: file.0,
            offset,
            to_node: to_node.0,
            to_file: to_file.0,
            to_offset,
            length,
        };
        self.dispatch(header, request, FuserReply::Written(reply));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: only the mode of the open decided whether a write appends. A store to a mapping of an O_APPEND file was
    /// appended, and doubled the file. A program that had cleared O_APPEND still appended.
    #[test]
    fn a_write_is_what_its_own_flags_say() {
        let (append, plain) = (OpenFlags(libc::O_APPEND | libc::O_RDWR), OpenFlags(libc::O_RDWR));
        let (none, owner) = (WriteFlags::empty(), Some(LockOwner(7)));
        let how = |from, appends, keeps_set_ids| WriteHow { from, appends, keeps_set_ids };
        assert_eq!(write_how(none, append, None), how(WriteFrom::Paged, true, true));
        assert_eq!(write_how(none, plain, None), how(WriteFrom::Paged, false, true));
        assert_eq!(write_how(none, append, owner), how(WriteFrom::Direct, true, true));
        let kill = WriteFlags::FUSE_WRITE_KILL_SUIDGID;
        assert_eq!(write_how(kill, plain, None), how(WriteFrom::Paged, false, false));
        let page = WriteFlags::FUSE_WRITE_CACHE;
        assert_eq!(write_how(page, append, None), how(WriteFrom::Mapped, false, true));
    }
}
