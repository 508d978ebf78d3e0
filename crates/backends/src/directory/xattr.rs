//! Extended attributes, access control lists among them.
//!
//! # Boundary
//! Passes names and values through. The host defines their meaning, and decides which caller may
//! read or set which namespace.
//!
//! # Why
//! The calls on descriptors refuse an `O_PATH` descriptor. To open an object in order to read its
//! attributes would need permission to read its data, and is impossible for links and pipes. So the
//! calls use the path `/proc/self/fd/N`, which is the object itself, of any kind. This is the only
//! path that the backend uses after its start; none of it comes from a caller.

use super::convert::host_error;
use super::host::Host;
use super::identity::CHANGE_NAMES;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::io::Write;
use uvfs_vfs::{Caller, Checks, Error, InodeId, Result, XattrMode, Xattrs};

/// The largest value the host's interface allows.
const VALUE_MAX: usize = 64 << 10;
/// File systems known to list every attribute that can be got: ext2 to ext4, XFS, Btrfs, tmpfs, F2FS,
/// overlayfs, ZFS. Network file systems and FUSE need not.
const LIST_ALL: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630, 0x2fc1_2fc1];
/// Enough for most values at the first try.
const FIRST_TRY: usize = 512;

impl Xattrs for Host {
    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let object = self.descriptor(&self.node(inode)?)?;
        let path = ProcPath::of(&object);
        self.identity.act(caller, None, needed_for(name), |_| {
            read_growing(|value| rustix::fs::getxattr(path.bytes(), name, spare_capacity(value)))
        })
    }

    fn set_xattr(
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
        self.identity.act(caller, None, needed_for(name), |_| {
            rustix::fs::setxattr(path.bytes(), name, value, flags).map_err(host_error)
        })?;
        self.note_own_change(&node);
        Ok(())
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let object = self.descriptor(&self.node(inode)?)?;
        let path = ProcPath::of(&object);
        let list =
            || read_growing(|names| rustix::fs::listxattr(path.bytes(), spare_capacity(names)));
        let all = list()?;
        // The host hides these names from callers without a capability.
        let hides = all.split(|&byte| byte == 0).any(|name| name.starts_with(TRUSTED));
        let by_capability = hides.then(|| {
            self.identity.act_by_capability(caller, None, CapabilitySet::SYS_ADMIN, |_| list())
        });
        let names = match by_capability.flatten() {
            Some(names) => names?,
            None => {
                let _as_caller = self.identity.enter(caller, None)?;
                list()?
            }
        };
        let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        // A file system mounted inside the source may be of a kind that does not list all.
        if !self.listing.complete || self.node(inode)?.key.device != self.root_device {
            return Ok(None);
        }
        let mut names = self.list_xattrs(&Caller::root(), inode)?;
        names.extend(self.listing.labels.iter().map(|label| label.to_vec()));
        Ok(Some(names))
    }

    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let node = self.node(inode)?;
        let object = self.descriptor(&node)?;
        let path = ProcPath::of(&object);
        let _own = self.own_change([Some(&node), None, None, None]);
        let remove = || rustix::fs::removexattr(path.bytes(), name).map_err(host_error);
        match takes_capabilities_away(caller, name) {
            true => remove()?,
            false => self.identity.act(caller, None, needed_for(name), |_| remove())?,
        }
        self.note_own_change(&node);
        Ok(())
    }
}

impl Host {
    /// Whether the host has extended attributes, and access control lists, at the root.
    pub(super) fn probe_xattrs(&self) -> Result<(bool, bool)> {
        let root = self.descriptor(&self.root)?;
        let path = ProcPath::of(&root);
        let list = rustix::fs::listxattr_query(path.bytes());
        let acl = rustix::fs::getxattr_query(path.bytes(), c"system.posix_acl_access");
        Ok((list.is_ok(), matches!(acl, Ok(_) | Err(Errno::NODATA))))
    }
}

/// Whether a list of extended attributes shows which ones are absent.
#[derive(Debug)]
pub(super) struct XattrListing {
    /// The source's file system lists every attribute that it has.
    complete: bool,
    /// Labels that the host makes up for objects that have none stored.
    labels: Vec<&'static [u8]>,
}

impl XattrListing {
    /// The listing for the file system that `root` is on.
    pub(super) fn of(root: &OwnedFd) -> Result<Self> {
        let kind = rustix::fs::fstatfs(root).map_err(host_error)?.f_type as u64;
        // Whether a security module runs is not known without this list: then no list is trusted.
        let kinds = std::fs::read_to_string("/proc/filesystems");
        let complete = LIST_ALL.contains(&kind) && kinds.is_ok();
        Ok(Self { complete, labels: Self::with(&kinds.unwrap_or_default()) })
    }

    /// The labels of the security modules that run: each has registered a file system, and `kinds` is
    /// the host's list of those.
    fn with(kinds: &str) -> Vec<&'static [u8]> {
        let labels = [("selinuxfs", &b"security.selinux"[..]), ("smackfs", b"security.SMACK64")];
        let runs = |name: &str| kinds.split_whitespace().any(|kind| kind == name);
        labels.into_iter().filter(|label| runs(label.0)).map(|label| label.1).collect()
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

/// The names that only a caller with CAP_SYS_ADMIN sees.
const TRUSTED: &[u8] = b"trusted.";

/// The capabilities by which a caller may use the attribute `name` of an object that is another user's.
fn needed_for(name: &[u8]) -> CapabilitySet {
    match name {
        b"security.capability" => CapabilitySet::SETFCAP,
        name if name.starts_with(TRUSTED) => CapabilitySet::SYS_ADMIN,
        _ => CHANGE_NAMES,
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

/// Calls `read` with a growing buffer until the value fits.
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

/// A kernel in front removes a file's capabilities when an ordinary user writes it, unrequested and
/// with the writer's credentials. (It has checked users' own requests: they need CAP_SETFCAP.) The
/// host would refuse the writer, so the daemon does it.
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
        if let Err(error) =
            backend.xattrs().unwrap().set_xattr(&caller, inode, b"user.a", &large, XattrMode::Any)
        {
            uvfs_skip::lacking(format_args!("the host has no user attributes here ({error})"));
            return;
        }
        let again =
            backend.xattrs().unwrap().set_xattr(&caller, inode, b"user.a", b"", XattrMode::Create);
        assert!(matches!(again, Err(Error::Exists)));
        let missing =
            backend.xattrs().unwrap().set_xattr(&caller, inode, b"user.b", b"", XattrMode::Replace);
        assert!(matches!(missing, Err(Error::NoAttribute)));
        backend
            .xattrs()
            .unwrap()
            .set_xattr(&caller, inode, b"user.empty", b"", XattrMode::Create)
            .unwrap();
        assert_eq!(backend.xattrs().unwrap().get_xattr(&caller, inode, b"user.a").unwrap(), large);
        assert_eq!(
            backend.xattrs().unwrap().get_xattr(&caller, inode, b"user.empty").unwrap(),
            b""
        );
        let mut names = backend.xattrs().unwrap().list_xattrs(&caller, inode).unwrap();
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [b"user.a".to_vec(), b"user.empty".to_vec()]);
        backend.xattrs().unwrap().remove_xattr(&caller, inode, b"user.a").unwrap();
        let gone = backend.xattrs().unwrap().get_xattr(&caller, inode, b"user.a");
        assert!(matches!(gone, Err(Error::NoAttribute)));
    }

    #[test]
    fn one_list_tells_which_names_are_absent_where_the_host_lists_all() {
        let scratch = Scratch::new();
        let (backend, caller) = (&scratch.backend, root_caller());
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let Some(before) = backend.xattrs().unwrap().possible_xattrs(inode).unwrap() else {
            uvfs_skip::lacking("the host's file system need not list all attributes");
            return;
        };
        if let Err(error) =
            backend.xattrs().unwrap().set_xattr(&caller, inode, b"user.a", b"1", XattrMode::Any)
        {
            uvfs_skip::lacking(format_args!("the host has no user attributes here ({error})"));
            return;
        }
        let names = backend.xattrs().unwrap().possible_xattrs(inode).unwrap().unwrap();
        assert_eq!(names.len(), before.len() + 1);
        // Every readable attribute is listed, or the list does not exclude it.
        for name in ["security.selinux", "security.capability", "system.posix_acl_access"] {
            let listed = names.iter().any(|listed| listed == name.as_bytes());
            let got = backend.xattrs().unwrap().get_xattr(&caller, inode, name.as_bytes());
            assert!(listed || got.is_err(), "{name}");
        }
    }

    #[test]
    fn a_label_that_the_host_makes_up_may_be_there_without_being_listed() {
        let scratch = Scratch::new();
        let complete = XattrListing::of(&scratch.backend.host.proc_fds).unwrap().complete;
        assert!(!complete, "procfs lists none of the labels that it has");
        let labelled = XattrListing::with("nodev\tselinuxfs\nnodev\ttmpfs\n");
        assert_eq!(labelled, [&b"security.selinux"[..]]);
        assert!(XattrListing::with("nodev\ttmpfs\n").is_empty());
    }

    #[test]
    fn a_links_attributes_are_its_own_and_bad_names_are_refused() {
        let scratch = Scratch::new();
        let (backend, caller) = (&scratch.backend, root_caller());
        scratch.make_file(InodeId::ROOT, "f").unwrap();
        let link = scratch.make(InodeId::ROOT, "l", NewKind::Symlink(b"f")).unwrap();
        // The host allows no user attributes on links: had it been followed, this would succeed.
        assert!(
            backend
                .xattrs()
                .unwrap()
                .set_xattr(&caller, link, b"user.a", b"x", XattrMode::Any)
                .is_err()
        );
        for bad in [&b""[..], &[b'x'; 256]] {
            assert!(matches!(
                backend.xattrs().unwrap().get_xattr(&caller, link, bad),
                Err(Error::Range)
            ));
        }
        assert!(backend.xattrs().unwrap().get_xattr(&caller, link, b"user.\0").is_err());
        assert!(backend.xattrs().unwrap().get_xattr(&caller, link, b"nonsense").is_err());
    }
}
