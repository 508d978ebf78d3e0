//! Extended attributes, access control lists among them.
//!
//! # Boundary
//! Passes names and values through. What they mean, and who may see or set which namespace, is the
//! host's to decide, for the caller.
//!
//! # Why
//! A descriptor that only denotes is refused by the calls on descriptors, and opening an object to
//! read its attributes would need permission to read its data, and is impossible for links and
//! pipes. So the calls go through the path `/proc/self/fd/N`, which is the object itself, whatever
//! its kind. This is the only path the backend uses after its start; none of it comes from a caller.

use super::convert::host_error;
use super::host::Host;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::io::Write;
use uvfs_vfs::{Caller, Checks, Error, InodeId, Result, XattrMode};

/// The largest value the host's interface allows.
const VALUE_MAX: usize = 64 << 10;
/// Enough for most values at the first try.
const FIRST_TRY: usize = 512;

impl Host {
    pub(super) fn get_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
    ) -> Result<Vec<u8>> {
        check_name(name)?;
        let object = self.descriptor(&self.node(inode)?)?;
        let path = ProcPath::of(&object);
        let _as_caller = self.identity.enter(caller, None)?;
        read_growing(|value| rustix::fs::getxattr(path.bytes(), name, spare_capacity(value)))
    }

    pub(super) fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        check_name(name)?;
        let flags = match mode {
            XattrMode::Any => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let node = self.node(inode)?;
        let object = self.descriptor(&node)?;
        let path = ProcPath::of(&object);
        let _own = self.own_change([Some(&node), None, None, None]);
        {
            let _as_caller = self.identity.enter(caller, None)?;
            rustix::fs::setxattr(path.bytes(), name, value, flags).map_err(host_error)?;
        }
        self.note_own_change(&node);
        Ok(())
    }

    pub(super) fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let object = self.descriptor(&self.node(inode)?)?;
        let path = ProcPath::of(&object);
        let names = {
            let _as_caller = self.identity.enter(caller, None)?;
            read_growing(|names| rustix::fs::listxattr(path.bytes(), spare_capacity(names)))?
        };
        let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    pub(super) fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let node = self.node(inode)?;
        let object = self.descriptor(&node)?;
        let path = ProcPath::of(&object);
        let _own = self.own_change([Some(&node), None, None, None]);
        {
            let _as_caller = match takes_capabilities_away(caller, name) {
                true => None,
                false => Some(self.identity.enter(caller, None)?),
            };
            rustix::fs::removexattr(path.bytes(), name).map_err(host_error)?;
        }
        self.note_own_change(&node);
        Ok(())
    }

    /// Whether the host has extended attributes, and access control lists, at the root.
    pub(super) fn probe_xattrs(&self) -> Result<(bool, bool)> {
        let root = self.descriptor(&self.root)?;
        let path = ProcPath::of(&root);
        let list = rustix::fs::listxattr_query(path.bytes());
        let acl = rustix::fs::getxattr_query(path.bytes(), c"system.posix_acl_access");
        Ok((list.is_ok(), matches!(acl, Ok(_) | Err(Errno::NODATA))))
    }
}

/// `/proc/self/fd/N` for an open descriptor.
pub(super) struct ProcPath {
    bytes: [u8; 32],
    length: usize,
}

impl ProcPath {
    pub(super) fn of(descriptor: &OwnedFd) -> Self {
        let mut bytes = [0; 32];
        let space = bytes.len();
        let mut rest = &mut bytes[..];
        // 14 bytes and a number of at most 10 digits: there is room, so this cannot fail.
        let _ = write!(rest, "/proc/self/fd/{}", descriptor.as_raw_fd());
        let length = space - rest.len();
        Self { bytes, length }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        0 => Err(Error::Range),
        1..=255 if !name.contains(&0) => Ok(()),
        1..=255 => Err(Error::Invalid("an attribute's name holds no NUL")),
        _ => Err(Error::Range),
    }
}

/// Calls `read` with a buffer that has room, with more and more of it until what there is fits.
fn read_growing(
    mut read: impl FnMut(&mut Vec<u8>) -> std::result::Result<usize, Errno>,
) -> Result<Vec<u8>> {
    let mut room = FIRST_TRY;
    loop {
        let mut value = Vec::with_capacity(room);
        match read(&mut value) {
            Err(Errno::RANGE) if room < VALUE_MAX => room = (room * 8).min(VALUE_MAX),
            Err(errno) => return Err(host_error(errno)),
            Ok(_) => return Ok(value),
        }
    }
}

/// A kernel in front removes a file's capabilities when an ordinary user writes it, on nobody's
/// order and under the writer's name. (What users ask for themselves it has checked: that takes
/// CAP_SETFCAP.) The host would refuse the writer, so the daemon does it.
fn takes_capabilities_away(caller: &Caller, name: &[u8]) -> bool {
    name == b"security.capability" && caller.checks == Checks::Done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use uvfs_vfs::{Backend, NewKind};

    #[test]
    fn attributes_are_set_listed_read_and_removed() {
        let scratch = Scratch::new();
        let (backend, caller) = (&scratch.backend, root_caller());
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let large = vec![b'x'; 2000];
        if let Err(error) = backend.set_xattr(&caller, inode, b"user.a", &large, XattrMode::Any) {
            println!("skipped: the host has no user attributes here ({error})");
            return;
        }
        let again = backend.set_xattr(&caller, inode, b"user.a", b"", XattrMode::Create);
        assert!(matches!(again, Err(Error::Exists)));
        let missing = backend.set_xattr(&caller, inode, b"user.b", b"", XattrMode::Replace);
        assert!(matches!(missing, Err(Error::NoAttribute)));
        backend.set_xattr(&caller, inode, b"user.empty", b"", XattrMode::Create).unwrap();
        assert_eq!(backend.get_xattr(&caller, inode, b"user.a").unwrap(), large);
        assert_eq!(backend.get_xattr(&caller, inode, b"user.empty").unwrap(), b"");
        let mut names = backend.list_xattrs(&caller, inode).unwrap();
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [b"user.a".to_vec(), b"user.empty".to_vec()]);
        backend.remove_xattr(&caller, inode, b"user.a").unwrap();
        let gone = backend.get_xattr(&caller, inode, b"user.a");
        assert!(matches!(gone, Err(Error::NoAttribute)));
    }

    #[test]
    fn a_links_attributes_are_its_own_and_bad_names_are_refused() {
        let scratch = Scratch::new();
        let (backend, caller) = (&scratch.backend, root_caller());
        scratch.make_file(InodeId::ROOT, "f").unwrap();
        let link = scratch.make(InodeId::ROOT, "l", NewKind::Symlink(b"f")).unwrap();
        // The host allows no user attributes on links: had it been followed, this would succeed.
        assert!(backend.set_xattr(&caller, link, b"user.a", b"x", XattrMode::Any).is_err());
        for bad in [&b""[..], &[b'x'; 256]] {
            assert!(matches!(backend.get_xattr(&caller, link, bad), Err(Error::Range)));
        }
        assert!(backend.get_xattr(&caller, link, b"user.\0").is_err());
        assert!(backend.get_xattr(&caller, link, b"nonsense").is_err());
    }
}
