//! Contents: reading, writing, cutting, allocating, seeking, copying, and attributes with them.
//!
//! # Concurrency
//! Reads of one file share its lock, writes hold it exclusively; different files share only the
//! budget. A write is atomic: no reader sees half of it. A copy is not: it proceeds in steps, with
//! one file locked at a time.

use super::MemoryBackend;
use super::node::Content;
use super::node::Node;
use super::pages::{CHUNK_BYTES, Removed};
use uvfs_vfs::acl::Acl;
use uvfs_vfs::permission;
use uvfs_vfs::{
    AllocateMode, Attributes, Caller, Data, Error, FileRef, InodeId, Inodes, Reservation, Result,
    SeekTarget, SetAttributes, SetTime, SyncMode, Timestamp,
};

/// Largest size of a file: offsets are signed in the system call interface.
pub(super) const SIZE_MAX: u64 = i64::MAX as u64;

/// The place of a write.
#[derive(Debug, Clone, Copy)]
pub(super) enum WriteAt {
    Offset(u64),
    /// Wherever the file ends when the write happens.
    End,
}

impl Inodes for MemoryBackend {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        let node = self.table.get(file.inode)?;
        let state = node.state.read();
        Ok(node.attributes(&state))
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.change_attributes(caller, file.inode, set)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let node = self.table.get(inode)?;
        let state = node.state.read();
        let Content::Symlink(text) = &state.content else {
            return Err(Error::Invalid("not a symbolic link"));
        };
        let text = text.to_vec();
        self.accessed(&node, state);
        Ok(text)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        drop(self.table.forget(inode, references));
    }
}

impl Data for MemoryBackend {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let node = self.table.get(file.inode)?;
        let state = node.state.read();
        let file = state.file()?;
        let count = file.size.saturating_sub(offset).min(into.len() as u64) as usize;
        file.pages.read(offset, &mut into[..count]);
        if !into.is_empty() {
            self.accessed(&node, state);
        }
        Ok(count)
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file.inode, WriteAt::Offset(offset), data)
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file.inode, WriteAt::End, data)
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let node = self.table.get(file.inode)?;
        if length == 0 {
            return Err(Error::Invalid("the range to allocate is empty"));
        }
        let end = offset.checked_add(length).filter(|&end| end <= SIZE_MAX).ok_or(Error::TooBig)?;
        let mut removed = Removed::default();
        let mut state = node.state.write();
        let (file, charge) = state.file_mut()?;
        match mode {
            AllocateMode::PunchHole => removed = file.pages.punch(offset..end, charge),
            AllocateMode::Extend | AllocateMode::KeepSize => {
                file.pages.fill(offset..end, charge)?;
            }
            AllocateMode::Zero | AllocateMode::ZeroKeepSize => {
                file.pages.fill(offset..end, charge)?;
                file.pages.zero(offset..end);
            }
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::Zero) {
            file.size = file.size.max(end);
        }
        state.drop_capabilities();
        state.modified(Timestamp::now());
        drop(state);
        drop(removed);
        Ok(())
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        let node = self.table.get(file.inode)?;
        let state = node.state.read();
        let file = state.file()?;
        if offset >= file.size {
            return Err(Error::NoData);
        }
        match target {
            SeekTarget::Data => {
                file.pages.next_data(offset).filter(|&at| at < file.size).ok_or(Error::NoData)
            }
            SeekTarget::Hole => Ok(file.pages.next_hole(offset).min(file.size)),
        }
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.copy_data((from, from_offset), (to, to_offset), length)
    }

    /// Nothing to do, truly: memory is as stable as this store gets, and every write is in it when
    /// it returns.
    fn sync(&self, file: FileRef, _: SyncMode) -> Result<()> {
        self.table.get(file.inode).map(drop)
    }
}

impl Reservation for MemoryBackend {
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()> {
        let node = self.table.get(file.inode)?;
        let mut state = node.state.write();
        let (file, charge) = state.file_mut()?;
        let end = offset.checked_add(length).filter(|&end| end <= SIZE_MAX + 1);
        file.pages.reserve(offset..end.ok_or(Error::TooBig)?, charge)
    }

    fn unreserve(&self, inode: InodeId, offset: u64, length: u64) {
        let Ok(node) = self.table.get(inode) else { return };
        let mut state = node.state.write();
        if let Ok((file, charge)) = state.file_mut() {
            file.pages.unreserve(offset..offset.saturating_add(length), charge);
        }
    }
}

impl MemoryBackend {
    /// Writes at `offset`, or at the end of the file.
    pub(super) fn write_data(
        &self,
        caller: &Caller,
        inode: InodeId,
        offset: WriteAt,
        data: &[u8],
    ) -> Result<usize> {
        let node = self.table.get(inode)?;
        let now = Timestamp::now();
        let mut state = node.state.write();
        let (file, charge) = state.file_mut()?;
        if data.is_empty() {
            return Ok(0);
        }
        let offset = match offset {
            WriteAt::Offset(offset) => offset,
            WriteAt::End => file.size,
        };
        let room = SIZE_MAX.checked_sub(offset).filter(|&room| room > 0).ok_or(Error::TooBig)?;
        let data = &data[..room.min(data.len() as u64) as usize];
        let written = file.pages.write(offset, data, charge);
        if written == 0 {
            return Err(Error::NoSpace);
        }
        file.size = file.size.max(offset + written as u64);
        node.drop_privileges(caller, &mut state);
        state.modified(now);
        Ok(written)
    }

    pub(super) fn change_attributes(
        &self,
        caller: &Caller,
        inode: InodeId,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let node = self.table.get(inode)?;
        if set.size.is_some_and(|size| size > SIZE_MAX) {
            return Err(Error::TooBig);
        }
        let mut state = node.state.write();
        if *set == SetAttributes::default() {
            return Ok(node.attributes(&state));
        }
        let now = Timestamp::now();
        // The one step that can fail is first, so that a refused change changes nothing.
        let mut removed = Removed::default();
        if let Some(size) = set.size {
            let (file, charge) = state.file_mut()?;
            // Also at the same size: pages reserved past the end are released.
            if size <= file.size {
                removed = file.pages.cut(size, charge);
            }
            file.size = size;
            state.mtime = now;
            node.drop_privileges(caller, &mut state);
        }
        let asked = Attributes { mode: set.mode.unwrap_or(state.mode), ..node.attributes(&state) };
        let mut mode = asked.mode & 0o7777;
        if set.uid.or(set.gid).is_some() {
            mode = permission::set_ids_after_chown(caller, &asked) & 0o7777;
            state.uid = set.uid.unwrap_or(state.uid);
            state.gid = set.gid.unwrap_or(state.gid);
            state.drop_capabilities();
        }
        state.mode = mode;
        if set.mode.is_some() {
            state.access = state.access.as_ref().map(|access: &Acl| access.with_mode(mode));
        }
        state.atime = set.atime.map_or(state.atime, |time| at(time, now));
        state.mtime = set.mtime.map_or(state.mtime, |time| at(time, now));
        state.ctime = now;
        let attributes = node.attributes(&state);
        drop(state);
        drop(removed);
        Ok(attributes)
    }

    /// Copies data as data and holes as holes. If space runs out, the copied part counts.
    pub(super) fn copy_data(
        &self,
        from: (FileRef, u64),
        to: (FileRef, u64),
        length: u64,
    ) -> Result<u64> {
        let (source, target) = (self.table.get(from.0.inode)?, self.table.get(to.0.inode)?);
        target.state.read().file()?;
        let size = source.state.read().file()?.size;
        let length = length.min(size.saturating_sub(from.1));
        if length == 0 {
            return Ok(0);
        }
        let room = SIZE_MAX.checked_sub(to.1).filter(|&room| room > 0).ok_or(Error::TooBig)?;
        let length = length.min(room);
        if from.0.inode == to.0.inode && from.1.abs_diff(to.1) < length {
            return Err(Error::Invalid("a copy within one file onto itself"));
        }
        let mut done = 0;
        while done < length {
            match copy_step(&source, from.1 + done, &target, to.1 + done, length - done) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        self.accessed(&source, source.state.read());
        Ok(done)
    }
}

/// The kind of the next bytes of a source.
enum Run {
    Data(Vec<u8>),
    Hole(u64),
}

/// Copies one run of data or one hole; returns its length.
fn copy_step(from: &Node, start: u64, to: &Node, at: u64, length: u64) -> Result<u64> {
    let run = {
        let state = from.state.read();
        let file = state.file()?;
        let length = length.min(file.size.saturating_sub(start));
        match file.pages.next_data(start) {
            Some(data) if data == start => {
                let end = file.pages.next_hole(start) - start;
                let mut bytes = vec![0; end.min(length).min(CHUNK_BYTES) as usize];
                file.pages.read(start, &mut bytes);
                Run::Data(bytes)
            }
            Some(data) => Run::Hole((data - start).min(length)),
            None => Run::Hole(length),
        }
    };
    let mut removed = Removed::default();
    let mut state = to.state.write();
    let (file, charge) = state.file_mut()?;
    let count = match run {
        Run::Data(bytes) if bytes.is_empty() => return Ok(0),
        Run::Data(bytes) => match file.pages.write(at, &bytes, charge) {
            0 => return Err(Error::NoSpace),
            written => written as u64,
        },
        Run::Hole(length) => {
            removed = file.pages.punch(at..at + length, charge);
            length
        }
    };
    file.size = file.size.max(at + count);
    state.drop_capabilities();
    state.modified(Timestamp::now());
    drop(state);
    drop(removed);
    Ok(count)
}

fn at(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}
