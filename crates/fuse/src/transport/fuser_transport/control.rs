//! Opening and writing the files of the control directory.
//!
//! # Concurrency
//! A cleaning waits until the kernel has let go, which readers have to hear of: it always runs on a
//! worker, never on the reader that took the write. The kernel holds the lock of the written inode
//! meanwhile, so there is one such write at a time, and one worker for it.

use super::super::convert::errno;
use super::super::reply::send_written;
use super::Adapter;
use super::adapter::Shared;
use fuser::{
    FileHandle, FopenFlags, INodeNo, OpenFlags, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

impl Adapter {
    pub(super) fn open_control(
        &self,
        request: &Request,
        node: INodeNo,
        flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        match self.server().control.open(node.0, flags.0, request.uid()) {
            // Direct: a write arrives as it was made, and none of its bytes stay in the page cache.
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub(super) fn write_control(
        &self,
        request: &Request,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        (write_flags, flags): (WriteFlags, OpenFlags),
        reply: ReplyWrite,
    ) {
        let mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if let Err(error) = self.server().control.accepts(offset, flags.0, data.len(), mapped) {
            return reply.error(errno(&error));
        }
        let (caller, data) = (self.caller(request), data.to_vec());
        self.hand_over(request.uid(), data.len(), move |shared| {
            let write = |shared: &Shared| shared.server.write_control(&caller, file.0, &data);
            send_written(reply, shared.and_then(write));
        });
    }
}
