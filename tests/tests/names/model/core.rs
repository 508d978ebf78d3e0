//! The core, through the in-process API.

use super::operation::{Mode, Operation, Outcome, Shape, Shown, World};
use std::sync::Arc;
use uvfs_tests::root;
use uvfs_vfs::{
    AllocateMode, Attributes, Directory, FileKind, OpenOptions, RenameMode, Result, SetAttributes,
    Vfs, XattrMode,
};

pub(crate) struct CoreWorld {
    vfs: Arc<Vfs>,
    root: Directory,
}

impl CoreWorld {
    pub(crate) fn new(vfs: Arc<Vfs>) -> Self {
        Self { root: root(&vfs), vfs }
    }

    fn try_apply(&self, operation: &Operation) -> Result<Shown> {
        let root = &self.root;
        match *operation {
            Operation::Create(path, mode) => {
                root.open(path, OpenOptions::write().create_new(mode))?;
            }
            Operation::MakeDirectory(path, mode) => root.create_directory(path, mode)?,
            Operation::Symlink(target, path) => root.symlink(target, path)?,
            Operation::Link(old, new) => root.link(old, new)?,
            Operation::Unlink(path) => root.remove_file(path)?,
            Operation::RemoveDirectory(path) => root.remove_directory(path)?,
            Operation::Rename(from, to, mode) => {
                let mode = match mode {
                    Mode::Replace => RenameMode::Replace,
                    Mode::NoReplace => RenameMode::NoReplace,
                    Mode::Exchange => RenameMode::Exchange,
                };
                root.rename(from, to, mode)?;
            }
            Operation::Write(path, at, length, byte) => {
                let file = root.open(path, OpenOptions::write())?;
                file.write_all_at(at, &vec![byte; length])?;
            }
            Operation::Read(path) => return Ok(Shown::Bytes(root.read_file(path)?)),
            Operation::Truncate(path, size) => {
                let set = SetAttributes { size: Some(size), ..Default::default() };
                root.set_attributes(path, &set)?;
            }
            Operation::Punch(path, at, length) => {
                let file = root.open(path, OpenOptions::write())?;
                file.allocate(AllocateMode::PunchHole, at, length)?;
            }
            Operation::Stat(path) => return Ok(Shown::Attributes(shape(root.stat(path)?))),
            Operation::SymlinkStat(path) => {
                return Ok(Shown::Attributes(shape(root.symlink_stat(path)?)));
            }
            Operation::ReadLink(path) => return Ok(Shown::Bytes(root.read_link(path)?)),
            Operation::List(path) => {
                let all = root.open_directory(path)?.list_all()?;
                let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let pairs = all.iter().map(|entry| (name(&entry.name), letter(entry.kind)));
                return Ok(Shown::Names(pairs.collect()));
            }
            Operation::Chmod(path, mode) => {
                let set = SetAttributes { mode: Some(mode), ..Default::default() };
                root.set_attributes(path, &set)?;
            }
            Operation::Chown(path, uid, gid) => {
                let set = SetAttributes { uid: Some(uid), gid: Some(gid), ..Default::default() };
                root.set_attributes(path, &set)?;
            }
            Operation::SetXattr(path, name, value) => {
                root.set_xattr(path, name, [value], XattrMode::Any)?;
            }
            Operation::GetXattr(path, name) => {
                return Ok(Shown::Bytes(root.get_xattr(path, name)?));
            }
            Operation::RemoveXattr(path, name) => root.remove_xattr(path, name)?,
            Operation::Forget => self.vfs.forget_unused(),
        }
        Ok(Shown::Nothing)
    }
}

impl World for CoreWorld {
    fn apply(&mut self, operation: &Operation) -> Outcome {
        self.try_apply(operation).map_err(|error| error.errno())
    }
}

fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => 'f',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        _ => '?',
    }
}

fn shape(found: Attributes) -> Shape {
    Shape {
        kind: letter(found.kind),
        mode: found.mode,
        links: found.links,
        owner: (found.uid, found.gid),
        size: if found.kind == FileKind::Directory { 0 } else { found.size },
    }
}
