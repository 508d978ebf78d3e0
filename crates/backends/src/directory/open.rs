//! Open files: opening, the table of open files, closing.
//!
//! # Boundary
//! From a node to a descriptor that reads or writes, and by number to it again. [`super::data`] and [`super::list`] use
//! it.
//!
//! # Concurrency
//! Every read and write reads the table, under a shared lock of one of several shards. An open file has one lock at
//! most, that of its directory stream, which is taken out while in use.
//!
//! # Why
//! Only regular files and directories are ever opened. Opening a pipe blocks a worker, and opening a device or a socket
//! has effects; a kernel in front handles those itself and never asks. Files are opened without O_APPEND, if the host
//! permits that: a program turns it off and on while the file is open, a kernel in front sends it with each write, and
//! stores to a mapping never append.

use super::convert::{host_error, open_flags, stat_of};
use super::given_up::OpenDescriptor;
use super::host::Host;
use super::identity::REACH;
use super::list::Stream;
use super::node::HostNode;
use super::shares::Share;
use crate::lock_order::HOST_FILES;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::sync::Arc;
use uvfs_concurrent::lock::{Mutex, RwLock};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{
    Caller, Checks, Error, FileId, FileKind, FileRef, InodeId, OpenMode, Result, permission,
};

const SHARDS: u64 = 16;

/// One open file or directory.
#[derive(Debug)]
pub(super) struct OpenHostFile {
    pub(super) node: Arc<HostNode>,
    pub(super) descriptor: OpenDescriptor,
    pub(super) mode: OpenMode,
    /// Where the listing of a directory stands; absent while a listing uses it.
    pub(super) stream: Option<Box<Mutex<Option<Stream>>>>,
}

// There may be as many as a limit allows, most of them files.
const _: () = assert!(size_of::<OpenHostFile>() <= 72);

impl OpenHostFile {
    pub(super) fn new(node: Arc<HostNode>, descriptor: OwnedFd, mode: OpenMode) -> Self {
        let descriptor = Arc::new(descriptor);
        let is_directory = node.kind == FileKind::Directory;
        let stream = is_directory
            .then(|| Box::new(Mutex::new(&HOST_FILES, Some(Stream::new(descriptor.clone())))));
        let descriptor = OpenDescriptor::new(descriptor);
        Self { node, descriptor, mode, stream }
    }
}

type Shard = HashMap<FileId, Arc<OpenHostFile>>;

/// All open files.
#[derive(Debug)]
pub(super) struct OpenFiles {
    shards: [Padded<RwLock<Shard>>; SHARDS as usize],
    next: AtomicU64,
    count: AtomicU64,
}

impl Default for OpenFiles {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| Padded(RwLock::new(&HOST_FILES, Shard::new()))),
            next: AtomicU64::new(FileId::NONE.0 + 1),
            count: AtomicU64::new(0),
        }
    }
}

impl OpenFiles {
    pub(super) fn add(&self, file: OpenHostFile) -> FileId {
        // ORDERING: Relaxed; only the value must be unique.
        let id = FileId(self.next.fetch_add(1, Relaxed));
        self.shard(id).write().insert(id, Arc::new(file));
        // ORDERING: Relaxed; a size.
        self.count.fetch_add(1, Relaxed);
        id
    }

    pub(super) fn get(&self, id: FileId) -> Option<Arc<OpenHostFile>> {
        self.shard(id).read().get(&id).cloned()
    }

    /// A descriptor of any open file of `inode` that has one. Looks at all open files.
    pub(super) fn any_of(&self, inode: InodeId) -> Option<Arc<OwnedFd>> {
        self.shards.iter().find_map(|shard| {
            let shard = shard.read();
            let files: Vec<_> =
                shard.values().filter(|file| file.node.id == inode).cloned().collect();
            drop(shard);
            files.iter().find_map(|file| file.descriptor.get())
        })
    }

    /// Whether `inode` is open. Looks at all open files.
    pub(super) fn has(&self, inode: InodeId) -> bool {
        self.shards.iter().any(|shard| shard.read().values().any(|file| file.node.id == inode))
    }

    /// Calls `look` for open files as long as it returns true, with no lock held.
    pub(super) fn each(&self, mut look: impl FnMut(&Arc<OpenHostFile>) -> bool) {
        for shard in &self.shards {
            let files: Vec<_> = shard.read().values().cloned().collect();
            if !files.iter().all(&mut look) {
                return;
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        // ORDERING: Relaxed; a size.
        self.count.load(Relaxed) as usize
    }

    fn remove(&self, id: FileId) -> Option<Arc<OpenHostFile>> {
        let gone = self.shard(id).write().remove(&id);
        if gone.is_some() {
            // ORDERING: Relaxed; a size.
            self.count.fetch_sub(1, Relaxed);
        }
        gone
    }

    fn shard(&self, id: FileId) -> &RwLock<Shard> {
        &self.shards[(id.0 % SHARDS) as usize]
    }
}

impl uvfs_vfs::OpenFiles for Host {
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        let node = self.node(inode)?;
        let share = self.share(caller.uid)?;
        let descriptor = self.open_node_as(caller, &node, mode)?;
        Ok(self.keep_open(OpenHostFile::new(node, descriptor, mode), share))
    }

    fn close(&self, file: FileRef) {
        // Dropped here, with no lock held: it may be the end of a deleted file.
        drop(self.files.remove(file.file));
    }

    /// The host file behind an open regular file.
    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        let open = self.files.get(file.file)?;
        match open.node.kind {
            FileKind::Regular => self.descriptor_of(&open).ok(),
            _ => None,
        }
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        Host::flush(self, file)
    }
}

impl Host {
    /// Adds `file` to those that are open, which counts as `share`.
    pub(super) fn keep_open(&self, file: OpenHostFile, mut share: Share) -> FileId {
        // Until the file is added.
        let _opening = share.opened();
        file.descriptor.kept(share, self.may_give_up(&file.node));
        self.files.add(file)
    }

    /// The open file that `file` names.
    pub(super) fn opened(&self, file: FileRef) -> Result<Arc<OpenHostFile>> {
        self.files.get(file.file).ok_or(Error::BadHandle)
    }

    /// The open file that `file` names; if it names none, the object itself opened for this once.
    pub(super) fn opened_or_open(
        &self,
        file: FileRef,
        open: impl FnOnce(&Arc<HostNode>) -> Result<(OwnedFd, OpenMode)>,
    ) -> Result<Arc<OpenHostFile>> {
        if file.file != FileId::NONE {
            return self.opened(file);
        }
        let node = self.node(file.inode)?;
        let (descriptor, mode) = open(&node)?;
        Ok(Arc::new(OpenHostFile::new(node, descriptor, mode)))
    }

    /// Opens `node` with the caller's rights.
    pub(super) fn open_node_as(
        &self,
        caller: &Caller,
        node: &Arc<HostNode>,
        mode: OpenMode,
    ) -> Result<OwnedFd> {
        let denoting = self.open_denoting(node, mode)?;
        self.counters.opens.hit();
        let _own = self.own_change([mode.truncate.then_some(node), None, None, None]);
        let opened = self.identity.act(caller, None, REACH, |_| {
            match self.reopen(&denoting, flags_for(node, mode)) {
                // The host lets an append-only file (`chattr +a`) be opened in no other way.
                Err(Error::NotPermitted) if mode.append => {
                    self.reopen(&denoting, flags_for(node, mode) | OFlags::APPEND)
                }
                opened => opened,
            }
        });
        let opened = match opened {
            // A program may be executable without being readable. A kernel that runs it has checked that, and asks for
            // reading, because it will read.
            Err(Error::Access) if may_be_executing(caller, node, mode) => {
                self.reopen(&denoting, flags_for(node, mode))?
            }
            opened => opened?,
        };
        if mode.truncate {
            if self.identity.clears_set_id_by_hand(caller) {
                clear_set_id(&opened, caller)?;
            }
            self.note_own_change(node);
        }
        Ok(opened)
    }

    /// Opens `node` with the daemon's rights.
    pub(super) fn open_node_as_daemon(
        &self,
        node: &Arc<HostNode>,
        mode: OpenMode,
    ) -> Result<OwnedFd> {
        let denoting = self.open_denoting(node, mode)?;
        self.reopen(&denoting, flags_for(node, mode))
    }

    /// A descriptor that denotes `node`, once it is clear that the node may be opened.
    fn open_denoting(&self, node: &Arc<HostNode>, mode: OpenMode) -> Result<Arc<OwnedFd>> {
        match node.kind {
            FileKind::Regular => {}
            FileKind::Directory if mode.write || mode.append || mode.truncate => {
                return Err(Error::IsDirectory);
            }
            FileKind::Directory => {}
            FileKind::Symlink => return Err(Error::SymlinkLoop),
            FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                return Err(Error::NoData);
            }
        }
        self.descriptor(node)
    }
}

fn flags_for(node: &HostNode, mode: OpenMode) -> OFlags {
    match node.kind {
        FileKind::Directory => OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        _ => open_flags(mode),
    }
}

fn may_be_executing(caller: &Caller, node: &HostNode, mode: OpenMode) -> bool {
    caller.checks == Checks::Done
        && node.kind == FileKind::Regular
        && node.mode_hint() & 0o111 != 0
        && OpenMode { direct: false, ..mode } == OpenMode::READ
}

/// Takes off an open file the set-id bits that `caller` does not keep, as the host does when that caller writes.
pub(super) fn clear_set_id(descriptor: &OwnedFd, caller: &Caller) -> Result<()> {
    let attributes = stat_of(descriptor)?.attributes;
    let cleared = permission::set_ids_after_write(caller, &attributes);
    if cleared != attributes.mode {
        rustix::fs::fchmod(descriptor, super::convert::host_mode(cleared)).map_err(host_error)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::UnixListener;
    use uvfs_vfs::{Backend, NewKind};

    #[test]
    fn pipes_sockets_devices_and_links_of_the_host_are_never_opened() {
        let scratch = Scratch::new();
        scratch.make(InodeId::ROOT, "pipe", NewKind::Fifo).unwrap();
        let _listener = UnixListener::bind(scratch.path("socket")).unwrap();
        std::os::unix::fs::symlink("pipe", scratch.path("link")).unwrap();
        let mut names = vec!["pipe", "socket", "link"];
        match scratch.make(InodeId::ROOT, "device", NewKind::CharDevice(0x103)) {
            Ok(_) => names.push("device"),
            Err(error) => uvfs_skip::lacking(format_args!("device nodes ({error})")),
        }
        for name in names {
            let inode = scratch.lookup(InodeId::ROOT, name).unwrap();
            for mode in [OpenMode::READ, OpenMode::READ_WRITE] {
                let refused = scratch.backend.open_files().open(&root_caller(), inode, mode);
                assert!(matches!(refused, Err(Error::NoData | Error::SymlinkLoop)), "{name}");
            }
            let unopened = FileRef::unopened(inode);
            assert!(scratch.backend.data().read(unopened, 0, &mut [0; 8]).is_err(), "{name}");
            assert!(
                scratch.backend.data().write(&root_caller(), unopened, 0, b"x").is_err(),
                "{name}"
            );
        }
        assert!(fs::metadata(scratch.path("pipe")).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_pipe_swapped_in_for_a_file_is_not_opened_either() {
        let scratch = Scratch::new();
        let file = scratch.make_file(InodeId::ROOT, "f").unwrap();
        fs::remove_file(scratch.path("f")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            scratch.path("f"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        scratch.close_descriptors();
        let refused = scratch.backend.open_files().open(&root_caller(), file, OpenMode::READ_WRITE);
        assert!(matches!(refused, Err(Error::Stale)));
    }

    #[test]
    fn a_directory_opens_for_listing_only_and_closing_frees_the_handle() {
        let scratch = Scratch::new();
        let backend = &scratch.backend;
        let refused =
            backend.open_files().open(&root_caller(), InodeId::ROOT, OpenMode::READ_WRITE);
        assert!(matches!(refused, Err(Error::IsDirectory)));
        let file =
            backend.open_files().open(&root_caller(), InodeId::ROOT, OpenMode::READ).unwrap();
        let open = FileRef { inode: InodeId::ROOT, file };
        assert!(backend.open_files().os_file(open).is_none());
        assert!(backend.data().read(open, 0, &mut [0; 8]).is_err());
        backend.open_files().close(open);
        assert!(matches!(backend.inodes().attributes(open), Err(Error::BadHandle)));
        assert_eq!(scratch.counter("files_open"), 0);
    }

    #[test]
    fn truncation_and_append_are_the_hosts() {
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"12345").unwrap();
        let inode = scratch.lookup(InodeId::ROOT, "f").unwrap();
        let append = OpenMode { append: true, ..OpenMode::READ_WRITE };
        let file = scratch.backend.open_files().open(&root_caller(), inode, append).unwrap();
        let open = FileRef { inode, file };
        assert_eq!(scratch.backend.data().append(&root_caller(), open, b"67").unwrap(), 2);
        assert_eq!(fs::read(scratch.path("f")).unwrap(), b"1234567");
        // Bug: the host's descriptor appended every write: also after the program had cleared O_APPEND, and when the
        // kernel wrote back pages of a mapping.
        assert_eq!(scratch.backend.data().write(&root_caller(), open, 0, b"89").unwrap(), 2);
        assert_eq!(fs::read(scratch.path("f")).unwrap(), b"8934567");
        scratch.backend.open_files().close(open);
        let truncate = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
        let file = scratch.backend.open_files().open(&root_caller(), inode, truncate).unwrap();
        assert_eq!(scratch.attributes(inode).unwrap().size, 0);
        scratch.backend.open_files().close(FileRef { inode, file });
    }

    #[test]
    fn what_may_only_be_run_opens_for_a_kernel_that_has_checked() {
        if !crate::directory::testing::is_root() {
            return;
        }
        let scratch = Scratch::new();
        fs::write(scratch.path("program"), b"#!").unwrap();
        let set = |mode| {
            fs::set_permissions(scratch.path("program"), fs::Permissions::from_mode(mode)).unwrap();
            scratch.lookup(InodeId::ROOT, "program").unwrap()
        };
        let checked = Caller { checks: Checks::Done, ..Caller::new(1234, 1234, &[]) };
        let inode = set(0o711);
        assert!(scratch.backend.open_files().open(&checked, inode, OpenMode::READ).is_ok());
        let unchecked = Caller::new(1234, 1234, &[]);
        let refused = scratch.backend.open_files().open(&unchecked, inode, OpenMode::READ);
        assert!(matches!(refused, Err(Error::Access)));
        let refused = scratch.backend.open_files().open(&checked, set(0o600), OpenMode::READ);
        assert!(matches!(refused, Err(Error::Access)));
    }
}
