//! Attributes: reading them, changing them, the text of symbolic links.
//!
//! # Boundary
//! One object at a time, by descriptor. Extended attributes: [`super::xattr`].
//!
//! # Why
//! Changes are made as the caller, one system call per field, in an order with the requested
//! result. The size is first: a later step may remove the permission for it. Then the owner (which
//! clears set-id bits), then the mode (which may set them again), and the times last (every other
//! change updates them). Weakness: a change of several fields that fails in the middle stays half
//! made, as with separate system calls.

use super::convert::{HostStat, host_error, host_mode, stat_of};
use super::host::Host;
use super::identity::REACH;
use super::node::HostNode;
use super::open::{OpenHostFile, clear_set_id};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use rustix::io::{Errno, retry_on_intr};
use rustix::path::DecInt;
use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySet;
use std::sync::Arc;
use uvfs_vfs::{
    Attributes, Caller, Checks, Error, FileId, FileKind, FileRef, InodeId, Inodes, Result,
    SetAttributes, SetTime,
};

/// Capabilities for setting modes and times as the owner does, set-id bits of a group included.
const OWN: CapabilitySet = CapabilitySet::FOWNER.union(CapabilitySet::FSETID);

/// The descriptor through which attributes are changed.
struct Target {
    node: Arc<HostNode>,
    open: Option<Arc<OpenHostFile>>,
    descriptor: Arc<OwnedFd>,
}

impl Inodes for Host {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        if file.file != FileId::NONE {
            let open = self.opened(file)?;
            let descriptor = self.descriptor_of(&open)?;
            return self.answer_attributes(&open.node, || stat_of(&descriptor));
        }
        let node = self.node(file.inode)?;
        self.answer_attributes(&node, || self.stat_node(&node))
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        let target = self.target(file)?;
        let owner = new_owner(set)?;
        if set.mode.is_some() && target.node.kind == FileKind::Symlink {
            return Err(Error::Unsupported("permission bits of a symbolic link"));
        }
        let _own = self.own_change([Some(&target.node), None, None, None]);
        if let Some(size) = set.size {
            self.set_size(caller, &target, size)?;
        }
        let mode_set =
            self.identity.act(caller, None, OWN | CapabilitySet::CHOWN | REACH, |_| {
                if let Some((user, group)) = owner {
                    let flags = AtFlags::EMPTY_PATH;
                    rustix::fs::chownat(&target.descriptor, c"", user, group, flags)
                        .map_err(host_error)?;
                }
                let mode_set =
                    set.mode.map_or(Ok(()), |mode| self.set_mode(&target.descriptor, mode));
                if set.atime.is_some() || set.mtime.is_some() {
                    self.set_times(&target.descriptor, &timestamps(set))?;
                }
                Ok(mode_set)
            })?;
        let mut stat: HostStat = stat_of(&target.descriptor)?;
        match (mode_set, set.mode) {
            (Err(Error::NotPermitted), Some(mode)) if drops_set_id(caller, &stat, mode) => {
                self.set_mode(&target.descriptor, mode)?;
                stat = stat_of(&target.descriptor)?;
            }
            (Err(Error::NotPermitted), Some(mode)) => {
                self.identity
                    .act(caller, None, OWN, |_| self.set_mode(&target.descriptor, mode))?;
                stat = stat_of(&target.descriptor)?;
            }
            // The host clears the bit for an owner that is not in the group, and reports success.
            (Ok(()), Some(mode)) if mode & !stat.attributes.mode & 0o2000 != 0 => {
                let keeping = self.identity.act_by_capability(caller, None, OWN, |_| {
                    self.set_mode(&target.descriptor, mode)
                });
                if let Some(kept) = keeping {
                    kept?;
                    stat = stat_of(&target.descriptor)?;
                }
            }
            (mode_set, _) => mode_set?,
        }
        Ok(self.attributes_of(&target.node, &stat))
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        let node = self.node(inode)?;
        if node.kind != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let link = self.descriptor(&node)?;
        let text = rustix::fs::readlinkat(&link, c"", Vec::new()).map_err(host_error)?;
        Ok(text.into_bytes())
    }

    fn forget(&self, inode: InodeId, references: u64) {
        Host::forget(self, inode, references);
    }
}

impl Host {
    fn target(&self, file: FileRef) -> Result<Target> {
        if file.file != FileId::NONE {
            let open = self.opened(file)?;
            let (node, descriptor) = (open.node.clone(), self.descriptor_of(&open)?);
            return Ok(Target { node, descriptor, open: Some(open) });
        }
        let node = self.node(file.inode)?;
        let descriptor = self.descriptor(&node)?;
        Ok(Target { node, descriptor, open: None })
    }

    fn set_size(&self, caller: &Caller, target: &Target, size: u64) -> Result<()> {
        match target.node.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("only a regular file has a size to set")),
        }
        let file =
            match &target.open {
                Some(open) if open.mode.write || open.mode.append => target.descriptor.clone(),
                _ => Arc::new(self.identity.act(caller, None, REACH, |_| {
                    self.reopen(&target.descriptor, OFlags::WRONLY)
                })?),
            };
        let as_caller = self.identity.enter(caller, None)?;
        if target.node.mode_hint() & 0o6000 != 0 && caller.keeps_set_ids() {
            // The host would clear the bits of a file that another user cuts.
            drop(as_caller);
            return retry_on_intr(|| rustix::fs::ftruncate(&file, size)).map_err(host_error);
        }
        retry_on_intr(|| rustix::fs::ftruncate(&file, size)).map_err(host_error)?;
        match self.identity.clears_set_id_by_hand(caller) {
            true => clear_set_id(&file, caller),
            false => Ok(()),
        }
    }

    fn set_mode(&self, descriptor: &OwnedFd, mode: u32) -> Result<()> {
        let number = DecInt::from_fd(descriptor);
        rustix::fs::chmodat(&self.proc_fds, number, host_mode(mode), AtFlags::empty())
            .map_err(host_error)
    }

    fn set_times(&self, descriptor: &OwnedFd, times: &Timestamps) -> Result<()> {
        match rustix::fs::utimensat(descriptor, c"", times, AtFlags::EMPTY_PATH) {
            // Before Linux 5.8 an empty path was not taken.
            Err(Errno::INVAL | Errno::NOENT) => {
                let number = DecInt::from_fd(descriptor);
                rustix::fs::utimensat(&self.proc_fds, number, times, AtFlags::empty())
            }
            other => other,
        }
        .map_err(host_error)
    }
}

/// Whether the change to `mode`, which the host refused to the caller, only clears set-id bits, and
/// comes from a kernel that checks permissions itself. Such a kernel does that for any writer of
/// the file, owner or not, before it sends the write.
fn drops_set_id(caller: &Caller, now: &HostStat, mode: u32) -> bool {
    let now = now.attributes.mode;
    let (wanted, dropped) = (mode & 0o7777, now & !mode);
    caller.checks == Checks::Done && wanted & !now == 0 && dropped & !0o6000 == 0
}

/// The owner and group to set, if any. The number that means "unchanged" to the host is refused.
fn new_owner(set: &SetAttributes) -> Result<Option<(Option<Uid>, Option<Gid>)>> {
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(Error::Invalid("no such user or group"));
    }
    let changes = set.uid.is_some() || set.gid.is_some();
    Ok(changes.then(|| (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw))))
}

fn timestamps(set: &SetAttributes) -> Timestamps {
    Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At(time)) => {
            Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.min(999_999_999).into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, is_root, root_caller};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use uvfs_vfs::{Backend, NewKind, OpenMode, Timestamp};

    fn set(scratch: &Scratch, inode: InodeId, set: SetAttributes) -> Result<Attributes> {
        scratch.backend.inodes().set_attributes(&root_caller(), FileRef::unopened(inode), &set)
    }

    #[test]
    fn attributes_are_those_of_the_host() {
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"12345").unwrap();
        fs::set_permissions(scratch.path("f"), fs::Permissions::from_mode(0o640)).unwrap();
        let inode = scratch.lookup(InodeId::ROOT, "f").unwrap();
        let ours = scratch.attributes(inode).unwrap();
        let host = fs::metadata(scratch.path("f")).unwrap();
        assert_eq!((ours.number, ours.st_mode()), (host.ino(), host.mode()));
        assert_eq!((ours.uid, ours.gid, ours.size), (host.uid(), host.gid(), host.len()));
        assert_eq!((ours.links, ours.blocks), (1, host.blocks()));
        assert_eq!(
            (ours.mtime.seconds, i64::from(ours.mtime.nanoseconds)),
            (host.mtime(), host.mtime_nsec())
        );
        assert_eq!(scratch.backend.root().unwrap().inode, InodeId::ROOT);
    }

    #[test]
    fn mode_size_and_times_are_set_together() {
        let scratch = Scratch::new();
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let time = Timestamp { seconds: -5, nanoseconds: 123_456_789 };
        let all = SetAttributes {
            mode: Some(0o4711),
            size: Some(1 << 33),
            atime: Some(SetTime::At(time)),
            mtime: Some(SetTime::At(time)),
            ..SetAttributes::default()
        };
        let after = set(&scratch, inode, all).unwrap();
        assert_eq!((after.mode, after.size), (0o4711, 1 << 33));
        assert_eq!((after.atime, after.mtime), (time, time));
        let now = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
        let after = set(&scratch, inode, now).unwrap();
        assert_eq!(after.atime, time, "what is not asked for stays");
        assert!(after.mtime.seconds > 1_000_000_000);
    }

    #[test]
    fn a_size_is_set_through_the_open_file_even_if_the_mode_forbids_it_by_now() {
        let scratch = Scratch::new();
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let file =
            scratch.backend.open_files().open(&root_caller(), inode, OpenMode::READ_WRITE).unwrap();
        fs::remove_file(scratch.path("f")).unwrap();
        let size = SetAttributes { size: Some(9), ..SetAttributes::default() };
        let open = FileRef { inode, file };
        assert_eq!(
            scratch.backend.inodes().set_attributes(&root_caller(), open, &size).unwrap().size,
            9
        );
        let mode = SetAttributes { mode: Some(0), ..SetAttributes::default() };
        assert_eq!(
            scratch.backend.inodes().set_attributes(&root_caller(), open, &mode).unwrap().mode,
            0
        );
        let refused = set(&scratch, InodeId::ROOT, size);
        assert!(matches!(refused, Err(Error::IsDirectory)));
    }

    #[test]
    fn a_link_is_read_owned_and_timed_itself_not_what_it_points_to() {
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"").unwrap();
        let link = scratch.make(InodeId::ROOT, "l", NewKind::Symlink(b"f")).unwrap();
        assert_eq!(scratch.backend.inodes().read_link(link).unwrap(), b"f");
        let time = Timestamp { seconds: 77, nanoseconds: 0 };
        let times = SetAttributes { mtime: Some(SetTime::At(time)), ..SetAttributes::default() };
        assert_eq!(set(&scratch, link, times).unwrap().mtime, time);
        assert_ne!(fs::metadata(scratch.path("f")).unwrap().mtime(), 77);
        let mode = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        assert!(matches!(set(&scratch, link, mode), Err(Error::Unsupported(_))));
        if is_root() {
            let owner = SetAttributes { uid: Some(1234), ..SetAttributes::default() };
            assert_eq!(set(&scratch, link, owner).unwrap().uid, 1234);
            assert_eq!(fs::metadata(scratch.path("f")).unwrap().uid(), 0);
        }
        let file = scratch.lookup(InodeId::ROOT, "f").unwrap();
        assert!(matches!(scratch.backend.inodes().read_link(file), Err(Error::Invalid(_))));
    }

    #[test]
    fn totals_are_those_of_the_host() {
        let scratch = Scratch::new();
        let totals = scratch.backend.totals().unwrap();
        assert!(
            totals.blocks >= totals.blocks_free && totals.blocks_free >= totals.blocks_available
        );
        assert!(totals.block_size >= 512 && totals.name_max > 0);
    }

    #[test]
    fn a_checking_kernel_may_take_set_id_bits_off_for_a_writer_that_is_not_the_owner() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        fs::write(scratch.path("f"), b"").unwrap();
        fs::set_permissions(scratch.path("f"), fs::Permissions::from_mode(0o6777)).unwrap();
        let inode = scratch.lookup(InodeId::ROOT, "f").unwrap();
        let kernel = Caller { checks: Checks::Done, ..Caller::new(1234, 1234, &[]) };
        let change = |caller: &Caller, mode| {
            let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
            scratch.backend.inodes().set_attributes(caller, FileRef::unopened(inode), &set)
        };
        let stranger = Caller::new(1234, 1234, &[]);
        assert!(matches!(change(&stranger, 0o777), Err(Error::NotPermitted)));
        assert!(matches!(change(&kernel, 0o700), Err(Error::NotPermitted)));
        assert_eq!(change(&kernel, 0o777).unwrap().mode, 0o777);
        assert!(matches!(change(&kernel, 0o6777), Err(Error::NotPermitted)));
    }
}
