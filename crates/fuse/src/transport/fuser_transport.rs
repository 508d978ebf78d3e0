//! The transport over the FUSE crate's read-write loop: the only file that implements its trait.
//!
//! Each request is answered in one of three ways. What the caches know is answered at once. The
//! rest runs here as long as another reader stays free, or on a worker ([`crate::work`]); either
//! way by the same closure, which owns the reply. A reply that is dropped unanswered (a handler
//! that panicked) answers EIO.

mod adapter;
mod control;

pub(super) use adapter::Adapter;
use adapter::Shared;

use super::convert::{errno, set_time};
use super::entries::{Names, Nodes, backend_cookie};
use super::reply::{
    file_flags, numbers, send_attr, send_direct, send_empty, send_entry, send_paged, send_written,
    send_xattr, with_buffer,
};
use crate::direct::BACKGROUND_MAX;
use crate::server::control::is_control;
use crate::server::{EntryOut, Opened, special_kind};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_vfs::{Error, NewKind, NewNode, SetAttributes};

/// Largest request of the kernel.
const WRITE_MAX: u32 = 1 << 20;

impl fuser::Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let server = &self.shared.server;
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
        let passthrough = server.settings.passthrough
            && capabilities.os_files
            && rustix::process::geteuid().is_root()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(2).is_ok();
        // ORDERING: Relaxed; no request comes before this greeting is answered.
        self.shared.passthrough.store(passthrough, Relaxed);
        Ok(())
    }

    fn destroy(&mut self) {
        self.server().end();
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let server = self.server();
        server.counters.requests.lookup.hit();
        if let Some(answer) = server.try_lookup(parent.0, name.as_bytes()) {
            server.counters.hits.hit();
            return send_entry(reply, Ok(answer));
        }
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.lookup(&caller, parent.0, name.as_bytes()),
            move |answer| send_entry(reply, answer),
        );
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.server().counters.requests.forget.hit();
        self.server().forget(node.0, lookups);
    }

    fn getattr(
        &self,
        request: &Request,
        node: INodeNo,
        file: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        let server = self.server();
        server.counters.requests.getattr.hit();
        if let Some(attrs) = server.try_getattr(node.0) {
            server.counters.hits.hit();
            return send_attr(reply, Ok(attrs));
        }
        let handle = file.map_or(0, |file| file.0);
        self.run(
            request,
            move |shared| shared.server.getattr(node.0, handle),
            move |answer| send_attr(reply, answer),
        );
    }

    fn setattr(
        &self,
        request: &Request,
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
        self.server().counters.requests.setattr.hit();
        let caller = self.caller(request);
        let set = SetAttributes {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
        };
        let handle = file.map_or(0, |file| file.0);
        self.run(
            request,
            move |shared| shared.server.setattr(&caller, node.0, handle, &set),
            move |answer| send_attr(reply, answer),
        );
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        self.server().counters.requests.readlink.hit();
        self.run(
            request,
            move |shared| shared.server.readlink(node.0),
            move |answer| match answer {
                Ok(text) => reply.data(&text),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.server().counters.requests.mknod.hit();
        let kind = match special_kind(mode, device) {
            Ok(kind) => kind,
            Err(error) => return reply.error(errno(&error)),
        };
        let new = NewNode { kind, mode: mode & 0o7777, umask };
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.make(&caller, parent.0, name.as_bytes(), &new),
            move |answer| send_entry(reply, answer),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.server().counters.requests.mkdir.hit();
        let new = NewNode { kind: NewKind::Directory, mode: mode & 0o7777, umask };
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.make(&caller, parent.0, name.as_bytes(), &new),
            move |answer| send_entry(reply, answer),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server().counters.requests.unlink.hit();
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.unlink(&caller, parent.0, name.as_bytes()),
            move |answer| send_empty(reply, answer),
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server().counters.requests.rmdir.hit();
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.rmdir(&caller, parent.0, name.as_bytes()),
            move |answer| send_empty(reply, answer),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.server().counters.requests.symlink.hit();
        let (caller, name) = (self.caller(request), name.to_owned());
        let target = target.as_os_str().to_owned();
        self.run(
            request,
            move |shared| {
                let kind = NewKind::Symlink(target.as_bytes());
                let new = NewNode { kind, mode: 0o777, umask: 0 };
                shared.server.make(&caller, parent.0, name.as_bytes(), &new)
            },
            move |answer| send_entry(reply, answer),
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.rename.hit();
        let caller = self.caller(request);
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.run(
            request,
            move |shared| {
                let from = (parent.0, name.as_bytes());
                let to = (new_parent.0, new_name.as_bytes());
                shared.server.rename(&caller, from, to, flags.bits())
            },
            move |answer| send_empty(reply, answer),
        );
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.server().counters.requests.link.hit();
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.link(&caller, node.0, parent.0, name.as_bytes()),
            move |answer| send_entry(reply, answer),
        );
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.server().counters.requests.open.hit();
        if self.server().stateless() {
            return reply.error(Errno::ENOSYS);
        }
        if is_control(node.0) {
            return self.open_control(request, node, flags, reply);
        }
        let caller = self.caller(request);
        if let Some(file) = self.server().try_open(&caller, node.0, flags.0) {
            self.server().counters.hits.hit();
            let Opened { handle, keep_cache } = self.server().opened(Arc::new(file));
            return reply.opened(FileHandle(handle), file_flags(keep_cache));
        }
        self.run_whole(request, reply, move |shared, reply| {
            let mut file = match shared.server.open(&caller, node.0, flags.0) {
                Ok(file) => file,
                Err(error) => return reply.error(errno(&error)),
            };
            let backing = shared.backing(&mut file, |host| reply.open_backing(host));
            if backing.is_some() && file.mode().write {
                // From now on it asks each time; what it was told before may last longer.
                shared.server.direct.attributes_changed(node.0);
            }
            let Opened { handle, keep_cache } = shared.server.opened(Arc::new(file));
            match backing {
                Some(id) => {
                    reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), &id);
                }
                None => reply.opened(FileHandle(handle), file_flags(keep_cache)),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.server().counters.requests.create.hit();
        let new = NewNode { kind: NewKind::Regular, mode: mode & 0o7777, umask };
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run_whole(request, reply, move |shared, reply| {
            let server = &shared.server;
            let created = server.create(&caller, parent.0, name.as_bytes(), &new, flags);
            let (found, mut file) = match created {
                Ok(created) => created,
                Err(error) => return reply.error(errno(&error)),
            };
            let backing = shared.backing(&mut file, |host| reply.open_backing(host));
            let made = server.made_out(parent.0, name.as_bytes(), found);
            let EntryOut::Found { attrs, entry_valid, generation } = made else {
                return reply.error(Errno::EIO);
            };
            let node = attrs.node_id;
            // A kernel that need not tell of opens tells of no closes either, also for this one.
            let Opened { handle, keep_cache } = match server.stateless() {
                true => Opened { handle: 0, keep_cache: !server.shared() },
                false => server.opened(Arc::new(file)),
            };
            let (valid, handle) = (attrs.valid.min(entry_valid), FileHandle(handle));
            let (attr, generation) = (attrs.entry_attr(), Generation(generation.into()));
            match backing {
                Some(id) => {
                    let flags = FopenFlags::empty();
                    reply.created_passthrough(&valid, &attr, generation, handle, flags, &id);
                    // The protocol has one time for its attributes and its name here.
                    server.direct.attributes_changed(node);
                }
                None => reply.created(&valid, &attr, generation, handle, file_flags(keep_cache)),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let server = self.server();
        server.counters.requests.read.hit();
        if owner.is_none() {
            // For the kernel's pages; only a direct read names its owner.
            server.direct.pages_come(node.0);
        }
        let range = (offset, size);
        let Some(reply) = self.read_here(request, (node, file), range, reply) else { return };
        self.run_whole(request, reply, move |shared, reply| {
            with_buffer(size as usize, |buffer| {
                match shared.server.read(node.0, file.0, offset, buffer) {
                    Ok(count) => reply.data(&buffer[..count.min(buffer.len())]),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        });
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.server().counters.requests.write.hit();
        if is_control(node.0) {
            let flags = (write_flags, flags);
            return self.write_control(request, file, offset, data, flags, reply);
        }
        let mut caller = self.caller(request);
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if mapped {
            // Pages of a mapping, written by the kernel on nobody's behalf.
            caller.uid = 0;
        }
        let shared = &self.shared;
        let range = (node.0, offset, data.len() as u64);
        // Only a direct write names its owner.
        let answer = if owner.is_some() { send_direct } else { send_paged };
        if owner.is_none() {
            shared.server.direct.pages_come(node.0);
        }
        if let Some(pass) = self.may_wait_here() {
            // Here the kernel's buffer can be used as it is.
            let write = |shared: &Shared| {
                let written = shared.server.write(&caller, node.0, file.0, offset, data);
                drop(pass);
                answer(&shared.server, range, reply, written);
            };
            return shared.guarded(write);
        }
        let (data, server, uid) = (data.to_vec(), shared.server.clone(), request.uid());
        let bytes = data.len();
        let job = move |shared: uvfs_vfs::Result<&Shared>| {
            let write =
                |shared: &Shared| shared.server.write(&caller, node.0, file.0, offset, &data);
            answer(&server, range, reply, shared.and_then(write));
        };
        match mapped {
            true => self.hand_over_pages(bytes, job),
            false => self.hand_over(uid, bytes, job),
        }
    }

    fn flush(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.flush.hit();
        if !self.server().wants_flush() {
            return reply.error(Errno::ENOSYS);
        }
        if let Some(answer) = self.server().try_flush(file.0) {
            self.server().counters.hits.hit();
            return send_empty(reply, answer);
        }
        self.run(
            request,
            move |shared| shared.server.flush(file.0),
            move |answer| send_empty(reply, answer),
        );
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.release.hit();
        self.run_release(file, reply);
    }

    fn fsync(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.fsync.hit();
        self.run(
            request,
            move |shared| shared.server.fsync(node.0, file.0, data_only),
            move |answer| send_empty(reply, answer),
        );
    }

    fn opendir(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.server().counters.requests.opendir.hit();
        if self.server().stateless() {
            return reply.error(Errno::ENOSYS);
        }
        if is_control(node.0) {
            return self.open_control(request, node, flags, reply);
        }
        let caller = self.caller(request);
        self.run_whole(request, reply, move |shared, reply| {
            match shared.server.open(&caller, node.0, flags.0) {
                Ok(file) => {
                    let Opened { handle, keep_cache } = shared.server.opened(Arc::new(file));
                    let cached = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                    let flags = if keep_cache { cached } else { FopenFlags::empty() };
                    reply.opened(FileHandle(handle), flags);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.server().counters.requests.readdir.hit();
        let caller = self.caller(request);
        self.run_whole(request, reply, move |shared, mut reply| {
            let server = &shared.server;
            let listed = server.getattr(node.0, file.0).and_then(|own| {
                let mut names = Names { reply: &mut reply, used: 0 };
                let numbers = numbers(server, &own);
                if !names.dots(offset, numbers) {
                    return Ok(());
                }
                let from = backend_cookie(offset);
                server.list(&caller, node.0, file.0, from, &mut names)
            });
            match listed {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.server().counters.requests.readdirplus.hit();
        let caller = self.caller(request);
        self.run_whole(request, reply, move |shared, mut reply| {
            let server = &*shared.server;
            let mut taken = 0;
            let listed = server.getattr(node.0, file.0).and_then(|own| {
                let counted = Vec::new();
                let (directory, reply) = (node.0, &mut reply);
                let mut nodes = Nodes { server, directory, reply, used: 0, taken: 0, counted };
                let numbers = numbers(server, &own);
                if !nodes.dots(offset, &own.attributes, numbers) {
                    return Ok(());
                }
                let from = backend_cookie(offset);
                let listed = server.list(&caller, node.0, file.0, from, &mut nodes);
                taken = nodes.taken;
                listed
            });
            match listed {
                // Entries in the reply have been counted: they must go out. The kernel meets the
                // error when it asks for the next ones.
                Err(error) if taken == 0 => reply.error(errno(&error)),
                _ => reply.ok(),
            }
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        file: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.releasedir.hit();
        self.run_release(file, reply);
    }

    fn fsyncdir(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.fsyncdir.hit();
        self.run(
            request,
            move |shared| shared.server.fsync(node.0, file.0, data_only),
            move |answer| send_empty(reply, answer),
        );
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.server().counters.requests.statfs.hit();
        self.run(
            request,
            move |shared| shared.server.statfs(),
            move |answer| match answer {
                Ok(totals) => reply.statfs(
                    totals.blocks,
                    totals.blocks_free,
                    totals.blocks_available,
                    totals.files,
                    totals.files_free,
                    totals.block_size,
                    totals.name_max,
                    totals.block_size,
                ),
                Err(error) => reply.error(errno(&error)),
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.setxattr.hit();
        if !self.server().vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let caller = self.caller(request);
        let (name, value) = (name.to_owned(), value.to_vec());
        self.run(
            request,
            move |shared| {
                let name = name.as_bytes();
                shared.server.setxattr(&caller, node.0, name, &value, flags)
            },
            move |answer| send_empty(reply, answer),
        );
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.server().counters.requests.getxattr.hit();
        if !self.server().vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let caller = self.caller(request);
        if let Some(answer) = self.server().try_getxattr(&caller, node.0, name.as_bytes()) {
            self.server().counters.hits.hit();
            return send_xattr(reply, size, answer);
        }
        let name = name.to_owned();
        self.run(
            request,
            move |shared| shared.server.getxattr(&caller, node.0, name.as_bytes()),
            move |answer| send_xattr(reply, size, answer),
        );
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        self.server().counters.requests.listxattr.hit();
        if !self.server().vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        if let Some(list) = self.server().try_listxattr(node.0) {
            self.server().counters.hits.hit();
            return send_xattr(reply, size, Ok(list));
        }
        let caller = self.caller(request);
        self.run(
            request,
            move |shared| shared.server.listxattr(&caller, node.0),
            move |answer| send_xattr(reply, size, answer),
        );
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.server().counters.requests.removexattr.hit();
        if !self.server().vfs.has_xattrs() {
            return reply.error(Errno::ENOSYS);
        }
        let (caller, name) = (self.caller(request), name.to_owned());
        self.run(
            request,
            move |shared| shared.server.removexattr(&caller, node.0, name.as_bytes()),
            move |answer| send_empty(reply, answer),
        );
    }

    fn access(&self, request: &Request, node: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.server().counters.requests.access.hit();
        let caller = self.caller(request);
        self.run(
            request,
            move |shared| shared.server.access(&caller, node.0, mask.bits()),
            move |answer| send_empty(reply, answer),
        );
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        self.server().counters.requests.other.hit();
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.server().counters.requests.fallocate.hit();
        let caller = self.caller(request);
        self.run(
            request,
            move |shared| {
                let range = (offset, length);
                shared.server.fallocate(&caller, node.0, file.0, range, mode)
            },
            move |answer| send_empty(reply, answer),
        );
    }

    fn lseek(
        &self,
        request: &Request,
        node: INodeNo,
        file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.server().counters.requests.lseek.hit();
        self.run_whole(request, reply, move |shared, reply| {
            let offset = u64::try_from(offset).map_err(|_| Error::NoData);
            let found =
                offset.and_then(|offset| shared.server.lseek(node.0, file.0, offset, whence));
            match found {
                Ok(found) => reply.offset(found as i64),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from_node: INodeNo,
        from_file: FileHandle,
        from_offset: u64,
        to_node: INodeNo,
        to_file: FileHandle,
        to_offset: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.server().counters.requests.copy_file_range.hit();
        let caller = self.caller(request);
        self.run_whole(request, reply, move |shared, reply| {
            let from = (from_node.0, from_file.0, from_offset);
            let to = (to_node.0, to_file.0, to_offset);
            // The reply counts in 32 bits; the caller asks again for the rest.
            let length = length.min(u64::from(u32::MAX) & !0xffff);
            let copied = shared.server.copy_file_range(&caller, from, to, length);
            send_written(reply, copied.map(|copied| copied as usize));
        });
    }
}
