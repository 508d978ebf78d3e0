//! The host, through system calls on a temporary directory.

use super::operation::{Mode, Operation, Outcome, Shape, Shown, World};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};
use rustix::io::{Errno, Result};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) struct HostWorld {
    directory: tempfile::TempDir,
    root: OwnedFd,
}

impl HostWorld {
    /// `None`, with a note, where the host cannot perform the operations.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            uvfs_skip::skip("changing owners needs root");
            return None;
        }
        // The mask that the in-process API starts with.
        rustix::process::umask(fs::Mode::from_raw_mode(0o022));
        let directory = tempfile::tempdir().unwrap();
        fs::chmod(directory.path(), fs::Mode::from_raw_mode(0o755)).unwrap();
        if fs::setxattr(directory.path(), "user.probe", b"", XattrFlags::empty()).is_err() {
            uvfs_skip::lacking("the temporary directory takes no extended attributes");
            return None;
        }
        fs::removexattr(directory.path(), "user.probe").unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(directory.path(), flags, fs::Mode::empty()).unwrap();
        Some(Self { directory, root })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn open(&self, path: &str, flags: OFlags, mode: u32) -> Result<OwnedFd> {
        fs::openat(&self.root, path, flags | OFlags::CLOEXEC, fs::Mode::from_raw_mode(mode))
    }

    fn try_apply(&self, operation: &Operation) -> Result<Shown> {
        let root = &self.root;
        match *operation {
            Operation::Create(path, mode) => {
                self.open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, mode)?;
            }
            Operation::MakeDirectory(path, mode) => {
                fs::mkdirat(root, path, fs::Mode::from_raw_mode(mode))?;
            }
            Operation::Symlink(target, path) => fs::symlinkat(target, root, path)?,
            Operation::Link(old, new) => fs::linkat(root, old, root, new, AtFlags::empty())?,
            Operation::Unlink(path) => fs::unlinkat(root, path, AtFlags::empty())?,
            Operation::RemoveDirectory(path) => fs::unlinkat(root, path, AtFlags::REMOVEDIR)?,
            Operation::Rename(from, to, mode) => {
                let flags = match mode {
                    Mode::Replace => RenameFlags::empty(),
                    Mode::NoReplace => RenameFlags::NOREPLACE,
                    Mode::Exchange => RenameFlags::EXCHANGE,
                };
                fs::renameat_with(root, from, root, to, flags)?;
            }
            Operation::Write(path, at, length, byte) => {
                let file = self.open(path, OFlags::WRONLY, 0)?;
                let written = rustix::io::pwrite(&file, &vec![byte; length], at)?;
                assert_eq!(written, length);
            }
            Operation::Read(path) => {
                let file = std::fs::File::from(self.open(path, OFlags::RDONLY, 0)?);
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut &file, &mut content)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                return Ok(Shown::Bytes(content));
            }
            Operation::Truncate(path, size) => {
                let path = self.path(path);
                truncate(&path, size)?;
            }
            Operation::Punch(path, at, length) => {
                let file = self.open(path, OFlags::WRONLY, 0)?;
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(&file, flags, at, length)?;
            }
            Operation::Stat(path) => {
                return Ok(Shown::Attributes(shape(&fs::statat(root, path, AtFlags::empty())?)));
            }
            Operation::SymlinkStat(path) => {
                let found = fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?;
                return Ok(Shown::Attributes(shape(&found)));
            }
            Operation::ReadLink(path) => {
                let text = fs::readlinkat(root, path, Vec::new())?;
                return Ok(Shown::Bytes(text.into_bytes()));
            }
            Operation::List(path) => {
                let directory = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
                let mut names = std::collections::BTreeMap::new();
                for entry in fs::Dir::read_from(&directory)? {
                    let entry = entry?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    if name != "." && name != ".." {
                        names.insert(name, letter(entry.file_type()));
                    }
                }
                return Ok(Shown::Names(names));
            }
            Operation::Chmod(path, mode) => {
                fs::chmodat(root, path, fs::Mode::from_raw_mode(mode), AtFlags::empty())?;
            }
            Operation::Chown(path, uid, gid) => {
                let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
                fs::chownat(root, path, Some(uid), Some(gid), AtFlags::empty())?;
            }
            Operation::SetXattr(path, name, value) => {
                fs::setxattr(self.path(path), name, &[value], XattrFlags::empty())?;
            }
            Operation::GetXattr(path, name) => {
                let mut value = [0; 64];
                let length = fs::getxattr(self.path(path), name, &mut value)?;
                return Ok(Shown::Bytes(value[..length].to_vec()));
            }
            Operation::RemoveXattr(path, name) => fs::removexattr(self.path(path), name)?,
            Operation::Forget => {}
        }
        Ok(Shown::Nothing)
    }
}

impl World for HostWorld {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        self.try_apply(operation).map_err(Errno::raw_os_error)
    }
}

/// truncate(2), which has no safe binding of its own: its errors for other kinds than files are
/// computed first.
fn truncate(path: &std::path::Path, size: u64) -> Result<()> {
    let found = fs::stat(path)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return Err(Errno::ISDIR);
    }
    let file = fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, fs::Mode::empty())?;
    fs::ftruncate(&file, size)
}

fn letter(kind: FileType) -> char {
    match kind {
        FileType::RegularFile => 'f',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        _ => '?',
    }
}

fn shape(found: &fs::Stat) -> Shape {
    let kind = FileType::from_raw_mode(found.st_mode);
    Shape {
        kind: letter(kind),
        mode: found.st_mode & 0o7777,
        links: found.st_nlink as u32,
        owner: (found.st_uid, found.st_gid),
        size: if kind == FileType::Directory { 0 } else { found.st_size as u64 },
    }
}
