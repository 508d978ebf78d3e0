//! Contents and attributes of an image that is written.

use super::{WritingImage, number_of, unstable};
use crate::image::{attributes, kind_of};
use uvfs_ext::Inode;
use uvfs_ext_write::{Change, Grow, Look, Privileges, SetAttributes as Set, WriteAt};
use uvfs_vfs::acl::{ACCESS_XATTR, Acl};
use uvfs_vfs::{
    AllocateMode, Attributes, Caller, Data, Error, FileRef, InodeId, Inodes, Reservation, Result,
    SeekTarget, SetAttributes, SetTime, SyncMode, Timestamp, permission,
};

const SET_IDS: u16 = 0o6000;
const CAPABILITY: &[u8] = b"security.capability";

/// A refusal of the seam, on its way through a step of the volume.
pub(super) struct Refused(pub(super) Error);

impl From<uvfs_ext_write::Error> for Refused {
    fn from(error: uvfs_ext_write::Error) -> Self {
        Self(super::refusal(error))
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

/// The permission bits that a change of contents by `caller` leaves.
fn after_write(caller: &Caller, inode: &Inode) -> u16 {
    let permissions = inode.mode() & 0o7777;
    match inode.kind() {
        Some(kind) if permissions & SET_IDS != 0 => {
            // The size of a block is in no rule about modes.
            let about = attributes(inode, kind_of(kind), 0);
            (permission::set_ids_after_write(caller, &about) & 0o7777) as u16
        }
        _ => permissions,
    }
}

fn at(time: SetTime) -> uvfs_ext::Timestamp {
    let time = match time {
        SetTime::Now => Timestamp::now(),
        SetTime::At(time) => time,
    };
    uvfs_ext::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Inodes for WritingImage {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        let number = number_of(file.inode);
        self.attributes_of(&self.guarded(number, |volume| volume.inode(number))?)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.give_back(number_of(inode), references);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let number = number_of(file.inode);
        if let Some(size) = set.size {
            let after = |inode: &Inode| after_write(caller, inode);
            self.guarded(number, |volume| {
                volume.truncate_as(number, size, Privileges::Become(&after))
            })?;
        }
        let rest = SetAttributes { size: None, ..*set };
        if rest == SetAttributes::default() {
            return self.attributes(file);
        }
        let changed = self.change(number, |look| {
            let about = self.attributes_of(look.inode)?;
            let asked = Attributes { mode: set.mode.unwrap_or(about.mode), ..about };
            let now = Some(SetTime::Now);
            let touch = SetAttributes { atime: now, mtime: now, ..SetAttributes::default() };
            let mut change = Change { is_touch: rest == touch, ..Change::default() };
            let mut mode = asked.mode & 0o7777;
            if set.uid.or(set.gid).is_some() {
                mode = permission::set_ids_after_chown(caller, &asked) & 0o7777;
                if look.xattr(CAPABILITY)?.is_some() {
                    change.xattrs.push((CAPABILITY.to_vec(), None));
                }
            }
            if set.mode.is_some()
                && let Some(list) = look.xattr(ACCESS_XATTR)?
                && let Some(list) = Acl::parse(&list)?
            {
                let list = list.with_mode(mode).to_bytes();
                change.xattrs.push((ACCESS_XATTR.to_vec(), Some(list)));
            }
            change.attributes = Set {
                permissions: Some(mode as u16),
                uid: set.uid,
                gid: set.gid,
                accessed: set.atime.map(at),
                modified: set.mtime.map(at),
            };
            Ok::<_, Refused>(change)
        });
        self.attributes_of(&changed?)
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let number = number_of(inode);
        self.guarded(number, |volume| volume.read_link(number))
    }
}

impl Data for WritingImage {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let number = number_of(file.inode);
        self.guarded(number, |volume| volume.read(number, offset, into))
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file, WriteAt::Offset(offset), data)
    }

    fn write_back(
        &self,
        file: FileRef,
        offset: u64,
        data: &[u8],
        changed: Timestamp,
    ) -> Result<usize> {
        let number = number_of(file.inode);
        let changed =
            uvfs_ext::Timestamp { seconds: changed.seconds, nanoseconds: changed.nanoseconds };
        // The core clears set-id bits at the write; this clears capabilities.
        let stay = |inode: &Inode| inode.mode() & 0o7777;
        let write = || {
            let privileges = Privileges::Become(&stay);
            self.volume.write_back(number, offset, data, changed, privileges).map_err(unstable)
        };
        self.poisoned.guarded(number, write)
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.write_data(caller, file, WriteAt::End, data)
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        let number = number_of(file.inode);
        if length == 0 {
            return Err(Error::Invalid("the range to allocate is empty"));
        }
        let range = offset..offset.checked_add(length).ok_or(Error::TooBig)?;
        // The kernel or the core clears set-id bits for a permitted writer; this clears capabilities.
        let stay = |inode: &Inode| inode.mode() & 0o7777;
        let privileges = Privileges::Become(&stay);
        self.guarded(number, |volume| match mode {
            AllocateMode::Extend => volume.allocate_as(number, range, Grow::Size, privileges),
            AllocateMode::KeepSize => volume.allocate_as(number, range, Grow::Nothing, privileges),
            AllocateMode::PunchHole => volume.punch_as(number, range, privileges),
            AllocateMode::Zero => volume.zero(number, range, Grow::Size, privileges),
            AllocateMode::ZeroKeepSize => volume.zero(number, range, Grow::Nothing, privileges),
        })
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        let data = target == SeekTarget::Data;
        let number = number_of(file.inode);
        self.guarded(number, |volume| volume.seek(number, offset, data))?.ok_or(Error::NoData)
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        let number = number_of(file.inode);
        match mode {
            // The kernel passes no `syncfs` on, so this is how a program asks for all of it.
            _ if number == uvfs_ext::ROOT => self.volume.sync(),
            SyncMode::Data => self.volume.fdatasync(number),
            SyncMode::All => self.volume.fsync(number),
        }
        .map_err(unstable)
    }
}

impl Reservation for WritingImage {
    fn reserve(&self, file: FileRef, offset: u64, length: u64) -> Result<()> {
        let number = number_of(file.inode);
        let end = offset.checked_add(length).ok_or(Error::TooBig)?;
        self.guarded(number, |volume| volume.reserve(number, offset..end))
    }

    fn unreserve(&self, inode: InodeId, offset: u64, length: u64) {
        self.volume.unreserve(number_of(inode), offset..offset.saturating_add(length));
    }
}

impl WritingImage {
    /// Changes an inode by `decide`; a panic in it poisons that inode.
    pub(super) fn change(
        &self,
        number: u32,
        decide: impl FnOnce(&Look<'_>) -> std::result::Result<Change, Refused>,
    ) -> Result<Inode> {
        let change = || self.volume.change(number, decide).map_err(|refused| refused.0);
        self.poisoned.guarded(number, change)
    }

    fn write_data(
        &self,
        caller: &Caller,
        file: FileRef,
        to: WriteAt,
        data: &[u8],
    ) -> Result<usize> {
        let after = |inode: &Inode| after_write(caller, inode);
        let number = number_of(file.inode);
        self.guarded(number, |volume| volume.write_at(number, to, data, Privileges::Become(&after)))
    }
}
