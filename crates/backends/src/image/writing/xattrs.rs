//! Extended attributes of an image that is written, and access control lists, which are two of them with a meaning.

use super::data::Refused;
use super::{WritingImage, number_of};
use uvfs_ext::Kind;
use uvfs_ext_write::{Change, Look, SetAttributes};
use uvfs_vfs::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use uvfs_vfs::{Caller, Error, InodeId, Result, XattrMode, Xattrs, permission};

/// Longest name, with its prefix.
const NAME_MAX: usize = 255;
/// Longest value that a system call takes.
const VALUE_MAX: usize = 64 * 1024;
const SET_GID: u32 = 0o2000;

impl Xattrs for WritingImage {
    fn get_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        check_name(name)?;
        let number = number_of(inode);
        self.guarded(number, |volume| volume.xattr(number, name))?.ok_or(Error::NoAttribute)
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
        if value.len() > VALUE_MAX {
            return Err(Error::from_errno(libc::E2BIG));
        }
        let changed = self.change(number_of(inode), |look| {
            check_kind(look, name)?;
            let there = look.xattr(name)?.is_some();
            match mode {
                XattrMode::Create if there => return Err(Refused(Error::Exists)),
                XattrMode::Replace if !there => return Err(Refused(Error::NoAttribute)),
                _ => {}
            }
            Ok(match name {
                ACCESS_XATTR => self.access(caller, look, Acl::parse(value)?)?,
                DEFAULT_XATTR => default(look, Acl::parse(value)?)?,
                _ => set(name, Some(value.to_vec())),
            })
        });
        changed.map(drop)
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let number = number_of(inode);
        let mut names = self.guarded(number, |volume| volume.xattr_names(number))?;
        // As the kernel's own file systems: others do not see that there are any.
        names.retain(|name| caller.is_privileged() || !name.starts_with(b"trusted."));
        Ok(names)
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        let number = number_of(inode);
        self.guarded(number, |volume| volume.xattr_names(number)).map(Some)
    }

    fn remove_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        check_name(name)?;
        let changed = self.change(number_of(inode), |look| {
            check_kind(look, name)?;
            // To remove an absent list succeeds, like on Linux; the mode stays as the list left it.
            let is_list = matches!(name, ACCESS_XATTR | DEFAULT_XATTR);
            if !is_list && look.xattr(name)?.is_none() {
                return Err(Refused(Error::NoAttribute));
            }
            Ok(set(name, None))
        });
        changed.map(drop)
    }
}

fn set(name: &[u8], value: Option<Vec<u8>>) -> Change {
    Change { xattrs: vec![(name.to_vec(), value)], ..Change::default() }
}

impl WritingImage {
    /// Sets or removes the object's own list. Its mode follows. A list that the mode can express is not kept, and the
    /// set-group-id bit stays only for a caller in the group.
    fn access(
        &self,
        caller: &Caller,
        look: &Look<'_>,
        list: Option<Acl>,
    ) -> std::result::Result<Change, Refused> {
        if look.inode.kind() == Some(Kind::Symlink) {
            return Err(Refused(Error::Unsupported("access control lists of symbolic links")));
        }
        let about = self.attributes_of(look.inode)?;
        let mut mode = about.mode;
        let mut kept = None;
        if let Some(list) = list {
            let (bits, minimal) = list.equivalent_mode();
            mode = mode & !0o777 | bits;
            if mode & SET_GID != 0 && !permission::has_group(caller, about.gid) {
                mode &= !SET_GID;
            }
            kept = (!minimal).then(|| list.to_bytes());
        }
        let permissions = Some((mode & 0o7777) as u16);
        let attributes = SetAttributes { permissions, ..SetAttributes::default() };
        Ok(Change { attributes, ..set(ACCESS_XATTR, kept) })
    }
}

fn default(look: &Look<'_>, list: Option<Acl>) -> Result<Change> {
    match look.inode.kind() {
        Some(Kind::Directory) => {}
        Some(Kind::Symlink) => {
            return Err(Error::Unsupported("access control lists of symbolic links"));
        }
        _ if list.is_some() => return Err(Error::Access),
        _ => {}
    }
    Ok(set(DEFAULT_XATTR, list.map(|list| list.to_bytes())))
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Range);
    }
    if name.contains(&0) {
        return Err(Error::Invalid("an attribute name holds no NUL"));
    }
    if matches!(name, ACCESS_XATTR | DEFAULT_XATTR) {
        return Ok(());
    }
    for prefix in [&b"user."[..], b"trusted.", b"security."] {
        match name.strip_prefix(prefix) {
            Some([]) => return Err(Error::Invalid("an attribute name that is only a prefix")),
            Some(_) => return Ok(()),
            None => {}
        }
    }
    Err(Error::Unsupported("this namespace of extended attributes"))
}

/// Only files and directories may have user attributes: for other kinds the mode does not say which users may set them.
fn check_kind(look: &Look<'_>, name: &[u8]) -> std::result::Result<(), Refused> {
    match look.inode.kind() {
        Some(Kind::Regular | Kind::Directory) => Ok(()),
        _ if name.starts_with(b"user.") => Err(Refused(Error::NotPermitted)),
        _ => Ok(()),
    }
}
