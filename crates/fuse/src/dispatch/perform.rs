//! The work of each request that may wait.
//!
//! # Boundary
//! One arm for each request: which method of the [`Server`](crate::server::Server) runs, and how its result becomes an
//! answer. The caller has already chosen the thread.
//!
//! # Concurrency
//! Runs on a reader with a pass or on a worker; nothing here knows which. Each arm ends in [`Pending`].
//!
//! # Why
//! One match and not thirty handlers: common steps are written once. Weakness: a request that the caches could answer
//! by now is looked up again.

use super::at_once::send_value;
use super::pending::Pending;
use super::{Lane, Shared, listing};
use crate::buffers::with_buffer;
use crate::server::control::is_control;
use crate::server::{
    Answer, EntryOut, Opened, Reply, Request, Sender, Through, WriteFrom, WriteHow, special_kind,
};
use crate::work::WaitsFor;
use std::sync::Arc;
use uvfs_vfs::{
    Caller, Error, FileKind, InodeId, NewKind, NewNode, OpenFile, Result, SetIds, SyncMode,
};

/// Whether a reader must not run it, with or without a pass. A cleaning waits until the kernel has evicted nodes, and
/// the readers have to receive those forgets. The kernel holds the lock of the written inode meanwhile, so there is one
/// such write at a time.
pub(super) fn needs_worker(request: &Request<'_>) -> bool {
    matches!(request, Request::Write { node, .. } if is_control(*node))
}

/// Which workers run it.
pub(super) fn lane(request: &Request<'_>, sender: Sender) -> Lane {
    match request {
        Request::Write { node, how, .. } if how.from == WriteFrom::Mapped && !is_control(*node) => {
            Lane::Pages
        }
        _ => Lane::User(sender.uid, waits_for(request)),
    }
}

fn waits_for(request: &Request<'_>) -> WaitsFor {
    match request {
        Request::Read { .. }
        | Request::Write { .. }
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::Fsync { .. }
        | Request::Fallocate { .. }
        | Request::Lseek { .. }
        | Request::CopyFileRange { .. } => WaitsFor::Data,
        Request::Open { .. } | Request::OpenDir { .. } => WaitsFor::Open,
        Request::ReadDir { .. } | Request::ReadDirPlus { .. } => WaitsFor::Listing,
        _ => WaitsFor::Names,
    }
}

/// Does `request` and answers it.
pub(super) fn perform<R: Reply>(
    shared: &Shared<R>,
    sender: Sender,
    request: Request<'_>,
    mut pending: Pending<'_, R>,
) {
    let server = &*shared.server;
    let caller = server.caller(sender);
    let answer = match request {
        Request::Open { node, flags, keeps_set_ids } => {
            // It may cut the file.
            let caller = told(caller, keeps_set_ids);
            return open(shared, (&caller, sender.task), node, flags, pending);
        }
        Request::Flush { file } => server.flush(file, sender.task).map(|()| Answer::Done),
        Request::Create { parent, name, mode, umask, flags, keeps_set_ids } => {
            let new = NewNode { kind: NewKind::Regular, mode: mode & 0o7777, umask };
            // It may find a file, and cut it.
            let caller = told(caller, keeps_set_ids);
            let made = server.create(&caller, parent, &name, &new, flags);
            return created(shared, sender.task, made, flags, pending);
        }
        Request::TmpFile { parent, mode, umask, flags } => {
            let new = NewNode { kind: NewKind::Regular, mode: mode & 0o7777, umask };
            let made = server.create_unnamed(&caller, parent, &new, flags);
            return created(shared, sender.task, made, flags, pending);
        }
        Request::Read { node, file, offset, size, .. } => {
            return with_buffer(size as usize, |buffer| {
                let count = server.read(node, file, offset, buffer);
                let data = count.map(|count| &buffer[..count.min(buffer.len())]);
                pending.finish(data.map(Answer::Bytes));
            });
        }
        Request::SetAttr { node, file, set, keeps_set_ids } if set.size.is_some() => {
            let caller = told(caller, keeps_set_ids);
            let is_wanted = || pending.is_wanted();
            server.setattr(&caller, node, file, &set, is_wanted).map(Answer::Attrs)
        }
        Request::Write { node, file, data, .. } if is_control(node) => {
            server.write_control(&caller, file, &data).map(Answer::Written)
        }
        Request::Write { node, file, offset, data, how } => {
            let range = (node, offset, data.len() as u64);
            let is_wanted = || pending.is_wanted();
            let written = write(shared, caller, (node, file), (offset, &data), how, is_wanted);
            match how.from {
                WriteFrom::Direct => return pending.finish_direct(range, written),
                WriteFrom::Paged => return pending.finish_paged(node, written),
                WriteFrom::Mapped => written.map(Answer::Written),
            }
        }
        Request::ReadLink { node } => {
            return match server.readlink(node) {
                Ok(text) => pending.finish(Ok(Answer::Bytes(&text))),
                Err(error) => pending.finish(Err(error)),
            };
        }
        Request::GetXattr { node, name, size } => {
            let value = server.getxattr(&caller, node, &name);
            return finish_value(size, value, pending);
        }
        Request::ListXattr { node, size } => {
            return finish_value(size, server.listxattr(&caller, node), pending);
        }
        Request::ReadDir { node, file, offset } => {
            listing::names(server, &caller, (node, file), offset, &mut pending)
        }
        Request::ReadDirPlus { node, file, offset } => {
            listing::entries(server, &caller, (node, file), offset, &mut pending)
        }
        other => {
            let mut renamed = Vec::new();
            let answer = simple(shared, &caller, other, &mut renamed);
            pending.set_renamed(renamed);
            answer
        }
    };
    pending.finish(answer);
}

/// The requests whose answer is the result of one call.
fn simple<R: Reply>(
    shared: &Shared<R>,
    caller: &Caller,
    request: Request<'_>,
    renamed: &mut Vec<InodeId>,
) -> Result<Answer<'static, R::Backing>> {
    let server = &*shared.server;
    let make = |parent, name: &[u8], kind, mode, umask| {
        let new = NewNode { kind, mode, umask };
        server.make(caller, parent, name, &new).map(Answer::Entry)
    };
    let done = |result: Result<()>| result.map(|()| Answer::Done);
    match request {
        Request::Lookup { parent, name } => server.lookup(caller, parent, &name).map(Answer::Entry),
        Request::GetAttr { node, file } => server.getattr(node, file).map(Answer::Attrs),
        Request::Statx { node, file } => server.getattr(node, file).map(Answer::AttrsAndBirth),
        // With a change of owner the kernel says nothing of the capability.
        Request::SetAttr { node, file, set, .. } => {
            server.setattr(caller, node, file, &set, || true).map(Answer::Attrs)
        }
        Request::MkNod { parent, name, mode, umask, device } => {
            make(parent, &name, special_kind(mode, device)?, mode & 0o7777, umask)
        }
        Request::MkDir { parent, name, mode, umask } => {
            make(parent, &name, NewKind::Directory, mode & 0o7777, umask)
        }
        Request::SymLink { parent, name, target } => {
            make(parent, &name, NewKind::Symlink(&target), 0o777, 0)
        }
        Request::Unlink { parent, name } => done(server.unlink(caller, parent, &name, renamed)),
        Request::RmDir { parent, name } => done(server.rmdir(caller, parent, &name)),
        Request::Rename { parent, name, new_parent, new_name, flags } => {
            done(server.rename(caller, (parent, &name), (new_parent, &new_name), flags, renamed))
        }
        Request::Link { node, parent, name } => {
            server.link(caller, node, parent, &name).map(Answer::Entry)
        }
        Request::Fsync { node, file, data_only } | Request::FsyncDir { node, file, data_only } => {
            done(server.fsync(node, file, data_only))
        }
        Request::OpenDir { node, flags } => {
            let file = server.open(caller, node, flags)?;
            let (handle, keep) = server.opened(Arc::new(file), 0);
            Ok(Answer::Opened(Opened { handle, through: Through::Listing { keep } }))
        }
        Request::StatFs {} => server.statfs().map(Answer::Totals),
        Request::SetXattr { node, name, value, flags } => {
            done(server.setxattr(caller, node, &name, &value, flags))
        }
        Request::RemoveXattr { node, name } => done(server.removexattr(caller, node, &name)),
        Request::Access { node, mask } => done(server.access(caller, node, mask)),
        Request::Fallocate { node, file, offset, length, mode } => {
            done(server.fallocate(caller, node, file, (offset, length), mode))
        }
        Request::Lseek { node, file, offset, whence } => {
            let offset = u64::try_from(offset).map_err(|_| Error::NoData)?;
            server.lseek(node, file, offset, whence).map(Answer::Offset)
        }
        Request::CopyFileRange { node, file, offset, to_node, to_file, to_offset, length } => {
            let (from, to) = ((node, file, offset), (to_node, to_file, to_offset));
            // The reply counts in 32 bits; the caller asks again for the rest.
            let length = length.min(u64::from(u32::MAX) & !0xffff);
            let copied = server.copy_file_range(caller, from, to, length)?;
            Ok(Answer::Written(copied as usize))
        }
        // Answered at once, or by the function above.
        Request::Forget { .. }
        | Request::IoCtl {}
        | Request::Poll {}
        | Request::Flush { .. }
        | Request::Release { .. }
        | Request::ReleaseDir { .. }
        | Request::Open { .. }
        | Request::Create { .. }
        | Request::TmpFile { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::ReadLink { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::ReadDir { .. }
        | Request::ReadDirPlus { .. } => Err(Error::Corrupt("a request that was answered before")),
    }
}

fn finish_value<R: Reply>(size: u32, value: Result<Vec<u8>>, pending: Pending<'_, R>) {
    match value {
        Ok(value) => send_value(size, Some(value), |answer| pending.finish(answer)),
        Err(error) => pending.finish(Err(error)),
    }
}

/// `caller`, as the kernel describes it: whether its change of data leaves set-id bits. The kernel does not know of a
/// user that is root of the mount only.
fn told(caller: Caller, keeps_set_ids: bool) -> Caller {
    if let SetIds::Keep = caller.set_ids {
        return caller;
    }
    Caller { set_ids: if keeps_set_ids { SetIds::Keep } else { SetIds::Clear }, ..caller }
}

fn write<R: Reply>(
    shared: &Shared<R>,
    mut caller: Caller,
    (node, file): (u64, u64),
    (offset, data): (u64, &[u8]),
    how: WriteHow,
    is_wanted: impl Fn() -> bool,
) -> Result<usize> {
    if how.from == WriteFrom::Mapped {
        // The kernel writes these pages for no user.
        caller.uid = 0;
        let caller = told(caller, how.keeps_set_ids);
        return shared.server.write_mapped(&caller, (node, file), offset, data);
    }
    let caller = told(caller, how.keeps_set_ids);
    let written =
        shared.server.write(&caller, (node, file), offset, data, how.appends, is_wanted)?;
    if let Some(mode) = how.syncs {
        shared.server.fsync(node, file, mode == SyncMode::Data)?;
    }
    Ok(written)
}

fn open<R: Reply>(
    shared: &Shared<R>,
    (caller, task): (&Caller, u32),
    node: u64,
    flags: i32,
    pending: Pending<'_, R>,
) {
    let mut file = match shared.server.open(caller, node, flags) {
        Ok(file) => file,
        Err(error) => return pending.finish(Err(error)),
    };
    let backing = shared.backing(&mut file, |host| pending.register(host));
    if backing.is_some() && file.mode().write {
        // From now on the kernel asks each time; an earlier answer may have a longer lifetime.
        shared.server.direct.attributes_changed(node);
    }
    if flags & libc::O_APPEND != 0 {
        shared.server.opened_to_append(node, &file);
    }
    let (handle, keep) = shared.server.opened(Arc::new(file), task);
    let through = shared.through(backing, flags, keep);
    pending.finish(Ok(Answer::Opened(Opened { handle, through })));
}

impl<R: Reply> Shared<R> {
    /// How the kernel accesses a file that was opened with `flags`.
    ///
    /// It opens the host's file once more with these, and keeps appending even if the program clears O_APPEND (Linux up
    /// to 6.18 at least). A request has the current flags.
    ///
    /// Bytes that cannot be read through their descriptor are copied once, into our pages; the kernel would first
    /// make pages of its own of them. Weakness: the next reader of the file asks us for it. Of a store that tracks no
    /// opens the kernel tells us only those that create a file.
    pub(super) fn through(
        &self,
        backing: Option<Arc<R::Backing>>,
        flags: i32,
        keep: bool,
    ) -> Through<R::Backing> {
        let only_writes = flags & libc::O_ACCMODE == libc::O_WRONLY;
        match backing {
            None if only_writes && self.past_pages => Through::Requests { keep },
            None => Through::Pages { keep },
            Some(host) if flags & libc::O_APPEND != 0 => Through::HostByRequests(host),
            Some(host) => Through::Host(host),
        }
    }
}

fn created<R: Reply>(
    shared: &Shared<R>,
    task: u32,
    made: Result<(EntryOut, OpenFile)>,
    flags: i32,
    pending: Pending<'_, R>,
) {
    let server = &*shared.server;
    let (made, mut file) = match made {
        Ok(made) => made,
        Err(error) => return pending.finish(Err(error)),
    };
    let EntryOut::Found { attrs, entry_valid, generation } = made else {
        return pending.finish(Err(Error::Corrupt("a new file that is missing")));
    };
    // A kernel that sends no OPEN sends no RELEASE either, so this file must not be counted as open.
    let (backing, (handle, keep)) = match server.stateless() {
        true => {
            // While the pass is held: closing the last of a removed file may ask the store.
            drop(file);
            (None, (0, !server.shared()))
        }
        false => {
            let backing = shared.backing(&mut file, |host| pending.register(host));
            (backing, server.opened(Arc::new(file), task))
        }
    };
    let (node, passed) = (attrs.node_id, backing.is_some());
    let through = shared.through(backing, flags, keep);
    let opened = Opened { handle, through };
    pending.finish(Ok(Answer::Created { attrs, entry_valid, generation, opened }));
    if passed {
        // The kernel keeps the attributes for the lifetime of the name.
        server.direct.attributes_changed(node);
    }
}

impl<R: Reply> Shared<R> {
    /// Closes the file of `handle`, which the kernel did not get.
    pub(super) fn close_unanswered(&self, handle: u64) {
        let Some(file) = self.server.release(handle) else { return };
        if self.server.settings.passthrough && file.node().kind() == FileKind::Regular {
            self.backings.leave(file.node().id());
        }
    }
}

/// Closes `file` and counts its open back.
pub(super) fn close<R: Reply>(shared: &Shared<R>, file: Arc<OpenFile>, pending: Pending<'_, R>) {
    if shared.server.settings.passthrough && file.node().kind() == FileKind::Regular {
        shared.backings.leave(file.node().id());
    }
    drop(file);
    pending.finish(Ok(Answer::Done));
}
