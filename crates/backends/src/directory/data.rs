//! The data of files: reading, writing, ranges, making stable.
//!
//! # Boundary
//! Calls on descriptors of regular files. Nothing is cached or remembered here: the host's page cache is the cache.
//!
//! # Concurrency
//! Positional calls only; no lock. The host orders two writes to one file.
//!
//! # Why
//! Data is moved with the rights of the open, with one exception: a file with set-id bits is written *as the caller*,
//! so that the host clears the bits itself, in the same step. An append uses the host's flag for one write
//! (RWF_APPEND): files are open without O_APPEND. Weaknesses: under user 0, the host charges quota and reserved blocks
//! to the owner but does not enforce them for data. Set-id bits that another program set since the attributes were last
//! read are missed. [`Host::flush`] does not report errors that a network host reports only at close; `fsync` does.

use super::convert::{host_error, open_flags};
use super::host::Host;
use super::node::HostNode;
use super::open::{OpenHostFile, clear_set_id};
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::io::IoSlice;
use std::sync::Arc;
use uvfs_vfs::{
    AllocateMode, Caller, Data, Error, FileId, FileKind, FileRef, InodeId, OpenMode, Reservation,
    Result, SeekTarget, SyncMode,
};

/// The alignment of addresses that direct I/O needs on every known host.
const DIRECT_ALIGNMENT: usize = 4096;
/// Most bytes the host is asked to copy in one call, so that one call does not last for minutes.
const COPY_MAX: u64 = 1 << 30;

const WRITE: OpenMode = OpenMode { read: false, ..OpenMode::READ_WRITE };

impl Data for Host {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let open = self.readable(file)?;
        let descriptor = self.descriptor_of(&open)?;
        match open.mode.direct && !is_aligned(into) {
            false => read_fully(&descriptor, open.mode, offset, into),
            true => {
                let mut bounce = Bounce::new(into.len());
                let count = read_fully(&descriptor, open.mode, offset, bounce.bytes())?;
                into[..count].copy_from_slice(&bounce.bytes()[..count]);
                Ok(count)
            }
        }
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let write = |descriptor: &OwnedFd, _, data: &[u8]| write_fully(descriptor, offset, data);
        self.write_by(caller, file, data, write)
    }

    /// Writes at the end of the file at that moment: the host finds the end and writes there in one step, so bytes that
    /// others append meanwhile are not overwritten. A part that did not fit is not retried here: it would come after
    /// later appends of others.
    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.write_by(caller, file, data, |descriptor, mode, data| {
            let flags = ReadWriteFlags::APPEND;
            let end = || rustix::io::pwritev2(descriptor, &[IoSlice::new(data)], 0, flags);
            match retry_on_intr(end) {
                // Host file systems of an older kind, and kernels before 4.16.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.append_opened(descriptor, mode, data)
                }
                done => done.map_err(host_error),
            }
        })
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let flags = match mode {
            AllocateMode::Extend => FallocateFlags::empty(),
            AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
            AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Zero => FallocateFlags::ZERO_RANGE,
            AllocateMode::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        let open = self.writable_as_daemon(file)?;
        let descriptor = self.descriptor_of(&open)?;
        let _own = self.own_change([Some(&open.node), None, None, None]);
        let call = || rustix::fs::fallocate(&descriptor, flags, offset, length);
        retry_on_intr(call).map_err(host_error)?;
        self.note_own_write(&open, &descriptor);
        Ok(())
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        let target = match target {
            SeekTarget::Data => SeekFrom::Data(offset),
            SeekTarget::Hole => SeekFrom::Hole(offset),
        };
        let open = self.readable(file)?;
        rustix::fs::seek(self.descriptor_of(&open)?, target).map_err(host_error)
    }

    fn copy_range(
        &self,
        from: FileRef,
        mut from_offset: u64,
        to: FileRef,
        mut to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        let (from, to) = (self.readable(from)?, self.writable_as_daemon(to)?);
        let [source, target] = [self.descriptor_of(&from)?, self.descriptor_of(&to)?];
        let length = usize::try_from(length.min(COPY_MAX)).unwrap_or(usize::MAX);
        let _own = self.own_change([Some(&to.node), None, None, None]);
        let copied = retry_on_intr(|| {
            rustix::fs::copy_file_range(
                &source,
                Some(&mut from_offset),
                &target,
                Some(&mut to_offset),
                length,
            )
        });
        self.note_own_write(&to, &target);
        match copied {
            Ok(count) => Ok(count as u64),
            Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP) => {
                Err(Error::Unsupported("copying between these files on the host"))
            }
            Err(errno) => Err(host_error(errno)),
        }
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        if file.file == FileId::NONE && !is_opened_by_us(self.node(file.inode)?.kind) {
            return Ok(());
        }
        let open = self.opened_or_open(file, |node| {
            match self.open_node_as_daemon(node, OpenMode::READ) {
                Err(Error::Access) => Ok((self.open_node_as_daemon(node, WRITE)?, WRITE)),
                opened => Ok((opened?, OpenMode::READ)),
            }
        })?;
        let descriptor = self.descriptor_of(&open)?;
        let call = || match mode {
            SyncMode::Data => rustix::fs::fdatasync(&descriptor),
            SyncMode::All => rustix::fs::fsync(&descriptor),
        };
        retry_on_intr(call).map_err(host_error)
    }
}

impl Host {
    /// [`Host::append`] through a descriptor whose every write appends.
    fn append_opened(&self, open: &OwnedFd, mode: OpenMode, data: &[u8]) -> Result<usize> {
        let mode = OpenMode { direct: mode.direct, ..WRITE };
        let end = self.reopen(open, open_flags(mode) | OFlags::APPEND)?;
        retry_on_intr(|| rustix::io::write(&end, data)).map_err(host_error)
    }

    fn write_by(
        &self,
        caller: &Caller,
        file: FileRef,
        data: &[u8],
        write: impl FnOnce(&OwnedFd, OpenMode, &[u8]) -> Result<usize>,
    ) -> Result<usize> {
        let open =
            self.opened_or_open(file, |node| Ok((self.open_node_as(caller, node, WRITE)?, WRITE)))?;
        let descriptor = self.descriptor_of(&open)?;
        let _own = self.own_change([Some(&open.node), None, None, None]);
        let written = {
            let clears = open.node.mode_hint() & 0o6000 != 0 && !caller.keeps_set_ids();
            let _as_caller = match clears && self.identity.switches() {
                true => {
                    self.counters.writes_as_caller.hit();
                    Some(self.identity.enter(caller, None)?)
                }
                false => None,
            };
            if clears && self.identity.clears_set_id_by_hand(caller) {
                clear_set_id(&descriptor, caller)?;
            }
            match open.mode.direct && !is_aligned(data) {
                false => write(&descriptor, open.mode, data)?,
                true => {
                    let mut bounce = Bounce::new(data.len());
                    bounce.bytes().copy_from_slice(data);
                    write(&descriptor, open.mode, bounce.bytes())?
                }
            }
        };
        self.note_own_write(&open, &descriptor);
        Ok(written)
    }

    /// Does nothing: written data is already the host's.
    pub(super) fn flush(&self, file: FileRef) -> Result<()> {
        match file.file {
            FileId::NONE => Ok(()),
            _ => self.opened(file).map(drop),
        }
    }

    fn readable(&self, file: FileRef) -> Result<Arc<OpenHostFile>> {
        let open = self.opened_or_open(file, |node| {
            regular(node)?;
            Ok((self.open_node_as_daemon(node, OpenMode::READ)?, OpenMode::READ))
        })?;
        regular(&open.node)?;
        Ok(open)
    }

    fn writable_as_daemon(&self, file: FileRef) -> Result<Arc<OpenHostFile>> {
        let open = self.opened_or_open(file, |node| {
            regular(node)?;
            Ok((self.open_node_as_daemon(node, WRITE)?, WRITE))
        })?;
        regular(&open.node)?;
        Ok(open)
    }

    fn note_own_write(&self, open: &OpenHostFile, descriptor: &OwnedFd) {
        if self.watches.get().is_some()
            && let Ok(stat) = super::convert::stat_of(descriptor)
        {
            open.node.settle(&stat);
        }
    }
}

/// No file system in use on the host limits its files to fewer bytes.
const SIZE_ALWAYS: u64 = 1 << 28;

/// Sets no space aside: the host has no call for that which leaves the file as it is. Refuses bytes that no file of the host's
/// file system can have.
impl Reservation for Host {
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).ok_or(Error::TooBig)?;
        if end <= SIZE_ALWAYS {
            return Ok(());
        }
        let open = self.writable_as_daemon(file)?;
        // Reads and writes here name their offsets, so the descriptor's own one is free.
        match rustix::fs::seek(self.descriptor_of(&open)?, SeekFrom::Start(end)) {
            Err(Errno::INVAL) => Err(Error::TooBig),
            // Another error is one of the write to come.
            _ => Ok(()),
        }
    }

    fn unreserve(&self, _: InodeId, _: u64, _: u64) {}
}

fn is_opened_by_us(kind: FileKind) -> bool {
    matches!(kind, FileKind::Regular | FileKind::Directory)
}

fn regular(node: &HostNode) -> Result<()> {
    match node.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Error::IsDirectory),
        _ => Err(Error::NoData),
    }
}

/// Reads until `into` is full or the file ends. Fewer bytes mean its end, so an error behind the first ones fails the
/// whole read: the caller takes a short answer for the end.
fn read_fully(open: &OwnedFd, mode: OpenMode, offset: u64, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let at = offset.checked_add(done as u64).ok_or(Error::TooBig)?;
        let rest = &mut into[done..];
        match retry_on_intr(|| rustix::io::pread(open, &mut *rest, at)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) => return Err(host_error(errno)),
        }
        // Going on at an offset that direct I/O cannot have; only the end of the file leaves one.
        if mode.direct && done % 512 != 0 {
            break;
        }
    }
    Ok(done)
}

/// Writes all of `data`, or as much as there is room for.
fn write_fully(open: &OwnedFd, offset: u64, data: &[u8]) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        let at = offset.checked_add(done as u64).ok_or(Error::TooBig)?;
        match retry_on_intr(|| rustix::io::pwrite(open, &data[done..], at)) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(errno) if done == 0 => return Err(host_error(errno)),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn is_aligned(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(DIRECT_ALIGNMENT)
}

/// A buffer at an address that direct I/O accepts.
struct Bounce {
    space: Vec<u8>,
    start: usize,
    length: usize,
}

impl Bounce {
    fn new(length: usize) -> Self {
        let space = vec![0; length + DIRECT_ALIGNMENT];
        let start = space.as_ptr().addr().wrapping_neg() % DIRECT_ALIGNMENT;
        Self { space, start, length }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.space[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use crate::directory::{DirectoryBackend, DirectoryConfig};
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use uvfs_vfs::{Backend, OpenOptions, PagePolicy, Vfs, VfsConfig};

    fn opened(scratch: &Scratch, name: &str, mode: OpenMode) -> FileRef {
        let inode = match scratch.lookup(InodeId::ROOT, name) {
            Ok(inode) => inode,
            Err(_) => scratch.make_file(InodeId::ROOT, name).unwrap(),
        };
        FileRef {
            inode,
            file: scratch.backend.open_files().open(&root_caller(), inode, mode).unwrap(),
        }
    }

    #[test]
    fn bytes_written_here_are_read_on_the_host_and_the_reverse() {
        let scratch = Scratch::new();
        let file = opened(&scratch, "f", OpenMode::READ_WRITE);
        let data: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        assert_eq!(
            scratch.backend.data().write(&root_caller(), file, 7, &data).unwrap(),
            data.len()
        );
        assert_eq!(fs::read(scratch.path("f")).unwrap()[7..], data);

        fs::write(scratch.path("f"), b"from the host").unwrap();
        let mut into = [0; 64];
        assert_eq!(scratch.backend.data().read(file, 5, &mut into).unwrap(), 8);
        assert_eq!(&into[..8], b"the host");
        assert_eq!(scratch.backend.data().read(file, 13, &mut into).unwrap(), 0);
        let unopened = FileRef::unopened(file.inode);
        assert_eq!(scratch.backend.data().write(&root_caller(), unopened, 0, b"FROM").unwrap(), 4);
        assert_eq!(scratch.backend.data().read(unopened, 0, &mut into).unwrap(), 13);
        assert_eq!(&into[..8], b"FROM the");
    }

    /// Bug: a read of a host file whose later bytes could not be read returned fewer bytes, and the reader took that
    /// for the end of the file. The memory of this process is such a file: nothing is mapped behind its stack.
    #[test]
    fn an_error_behind_bytes_that_were_read_is_an_error() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = stack.split(['-', ' ']).nth(1).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        let memory = OwnedFd::from(fs::File::open("/proc/self/mem").unwrap());
        let mut into = [0; 8192];
        let read = |at, into: &mut [u8]| read_fully(&memory, OpenMode::READ, at, into);
        assert_eq!(read(end - 4096, &mut into[..4096]).unwrap(), 4096);
        assert_eq!(read(end - 4096, &mut into).unwrap_err().errno(), libc::EIO);
    }

    /// Bug: an append read the size and then wrote at it: bytes that a program on the host appended in between were
    /// overwritten.
    #[test]
    fn appends_beside_those_of_the_host_are_all_there() {
        const COUNT: usize = 4000;
        let scratch = Scratch::new();
        fs::write(scratch.path("log"), b"").unwrap();
        // As the core opens a file that it caches.
        let file = opened(&scratch, "log", OpenMode::READ_WRITE);
        let reopened = |data: &[u8]| {
            let open = scratch.host().opened(file).unwrap();
            let descriptor = scratch.host().descriptor_of(&open).unwrap();
            scratch.host().append_opened(&descriptor, open.mode, data).unwrap()
        };
        std::thread::scope(|scope| {
            let host = || {
                use std::io::Write;
                let options = fs::OpenOptions::new().append(true).open(scratch.path("log"));
                let mut log = options.unwrap();
                (0..COUNT).for_each(|at| log.write_all(line(b'h', at).as_bytes()).unwrap());
            };
            scope.spawn(host);
            scope.spawn(|| (0..COUNT).for_each(|at| _ = reopened(line(b'r', at).as_bytes())));
            for at in 0..COUNT {
                let line = line(b'm', at);
                let count = scratch.backend.data().append(&root_caller(), file, line.as_bytes());
                assert_eq!(count.unwrap(), line.len());
            }
        });
        let text = fs::read_to_string(scratch.path("log")).unwrap();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        let all = [b'h', b'm', b'r'].into_iter();
        let all: Vec<_> = all.flat_map(|by| (0..COUNT).map(move |at| line(by, at))).collect();
        assert_eq!(lines.len(), all.len(), "lines");
        assert!(lines.iter().zip(&all).all(|(line, wanted)| *line == wanted.trim_end()));
        let unopened = FileRef::unopened(file.inode);
        assert_eq!(scratch.backend.data().append(&root_caller(), unopened, b"end").unwrap(), 3);
        assert!(fs::read(scratch.path("log")).unwrap().ends_with(b"end"));
    }

    fn line(by: u8, at: usize) -> String {
        format!("{} {at:06}\n", by as char)
    }

    #[test]
    fn ranges_are_allocated_punched_and_found_as_on_the_host() {
        let scratch = Scratch::new();
        let file = opened(&scratch, "f", OpenMode::READ_WRITE);
        let backend = &scratch.backend;
        backend.data().write(&root_caller(), file, 0, &[1; 1 << 16]).unwrap();
        backend.data().allocate(file, AllocateMode::PunchHole, 4096, 8192).unwrap();
        let bytes = fs::read(scratch.path("f")).unwrap();
        assert!(bytes[4096..12_288].iter().all(|&byte| byte == 0) && bytes[12_288] == 1);
        assert_eq!(backend.data().seek(file, 0, SeekTarget::Hole).unwrap(), 4096);
        assert_eq!(backend.data().seek(file, 4096, SeekTarget::Data).unwrap(), 12_288);
        assert!(matches!(backend.data().seek(file, 1 << 20, SeekTarget::Data), Err(Error::NoData)));
        backend.data().allocate(file, AllocateMode::Extend, 0, 1 << 17).unwrap();
        backend.data().allocate(file, AllocateMode::KeepSize, 0, 1 << 18).unwrap();
        let host = fs::metadata(scratch.path("f")).unwrap();
        assert_eq!(host.len(), 1 << 17);
        assert!(host.blocks() * 512 >= 1 << 18);
        match backend.data().allocate(file, AllocateMode::ZeroKeepSize, 0, 4096) {
            Ok(()) => assert_eq!(fs::read(scratch.path("f")).unwrap()[0], 0),
            Err(error) => uvfs_skip::lacking(format_args!("zeroing ranges ({error})")),
        }
    }

    #[test]
    fn a_range_is_copied_within_the_host() {
        let scratch = Scratch::new();
        fs::write(scratch.path("from"), b"0123456789").unwrap();
        let from = opened(&scratch, "from", OpenMode::READ);
        let to = opened(&scratch, "to", OpenMode::READ_WRITE);
        assert_eq!(scratch.backend.data().copy_range(from, 2, to, 1, 5).unwrap(), 5);
        assert_eq!(fs::read(scratch.path("to")).unwrap(), b"\x0023456");
        let refused = scratch.backend.data().copy_range(from, 0, from, 0, 5);
        assert!(refused.is_err(), "not open for writing");
    }

    #[test]
    fn direct_reads_and_writes_work_from_any_address() {
        let scratch = Scratch::new();
        let direct = OpenMode { direct: true, ..OpenMode::READ_WRITE };
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let Ok(file) = scratch.backend.open_files().open(&root_caller(), inode, direct) else {
            uvfs_skip::lacking("the host has no direct I/O here");
            return;
        };
        let file = FileRef { inode, file };
        let data = vec![7; 3 * 4096 + 1];
        let count = scratch.backend.data().write(&root_caller(), file, 0, &data[1..]).unwrap();
        assert_eq!(count, 3 * 4096);
        rustix::fs::ftruncate(scratch.backend.open_files().os_file(file).unwrap(), 10_000).unwrap();
        let mut into = vec![0; 4 * 4096 + 1];
        assert_eq!(scratch.backend.data().read(file, 0, &mut into[1..]).unwrap(), 10_000);
        assert!(into[1..10_001].iter().all(|&byte| byte == 7));
        // The host decides whether that is allowed; it must never silently become another write.
        match scratch.backend.data().write(&root_caller(), file, 1, &data[..100]) {
            Ok(count) => assert_eq!(count, 100),
            Err(refused) => assert!(matches!(refused, Error::Invalid(_))),
        }
    }

    #[test]
    fn files_directories_and_unopened_objects_are_made_stable() {
        let scratch = Scratch::new();
        let file = opened(&scratch, "f", OpenMode::READ_WRITE);
        let link = scratch.make(InodeId::ROOT, "l", uvfs_vfs::NewKind::Symlink(b"f")).unwrap();
        for inode in [file.inode, InodeId::ROOT, link] {
            scratch.backend.data().sync(FileRef::unopened(inode), SyncMode::All).unwrap();
        }
        scratch.backend.data().sync(file, SyncMode::Data).unwrap();
        scratch.backend.open_files().flush(file).unwrap();
        scratch.backend.open_files().close(file);
        assert!(matches!(scratch.backend.open_files().flush(file), Err(Error::BadHandle)));
    }

    /// With write-back, a write past the largest file of the host succeeded. Afterwards each `fsync` and `close` of the file
    /// failed, also for programs that had written good data.
    #[test]
    fn a_write_past_the_hosts_largest_file_is_refused_at_once() {
        let scratch = Scratch::new();
        fs::write(scratch.path("file"), "good").unwrap();
        let host = fs::OpenOptions::new().write(true).open(scratch.path("file")).unwrap();
        let fits = |end: u64| rustix::fs::seek(&host, SeekFrom::Start(end)).is_ok();
        if fits(i64::MAX as u64) {
            return uvfs_skip::lacking("a temporary folder whose file system limits its files");
        }
        let (mut most, mut too_many) = (0, i64::MAX as u64);
        while too_many - most > 1 {
            let middle = most.midpoint(too_many);
            *(if fits(middle) { &mut most } else { &mut too_many }) = middle;
        }
        for pages in [PagePolicy::WriteBack, PagePolicy::WriteThrough, PagePolicy::Off] {
            let backend = DirectoryBackend::open(&scratch.path(""), DirectoryConfig::default());
            let config = VfsConfig { pages, ..VfsConfig::default() };
            let vfs = Vfs::new(backend.unwrap(), config).unwrap();
            let file = vfs.root_directory(root_caller()).open("file", OpenOptions::read_write());
            let file = file.unwrap();
            for offset in [most, most + 1, most + (1 << 20)] {
                let refused = file.write_at(offset, b"x");
                assert!(matches!(refused, Err(Error::TooBig)), "{pages:?}: {refused:?}");
            }
            assert_eq!(file.stat().unwrap().size, 4, "{pages:?}");
            file.write_all_at(0, b"GOOD").unwrap();
            file.sync(SyncMode::All).unwrap();
            assert_eq!(file.write_at(most - 4096, &[7; 3 * 4096]).unwrap(), 4096, "{pages:?}");
            file.set_size(4).unwrap();
            file.sync(SyncMode::All).unwrap();
        }
    }
}
