//! Extended attributes, and access control lists, which are two of them with a meaning.
//!
//! # Boundary
//! Defines which names and values exist and their effect on the mode. The core or the kernel has
//! already checked the caller's permission.

use super::MemoryBackend;
use super::node::{Node, State, acl_cost, xattr_cost};
use uvfs_vfs::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use uvfs_vfs::permission;
use uvfs_vfs::{Caller, Error, FileKind, InodeId, Result, Timestamp, XattrMode, Xattrs};

/// Longest name, with its prefix.
const NAME_MAX: usize = 255;
/// Longest value.
const VALUE_MAX: usize = 64 * 1024;
/// Longest list of names, each with its NUL: a longer one could not be listed.
const LIST_MAX: usize = 64 * 1024;
const SET_GID: u32 = 0o2000;

/// The meaning of an attribute name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Just a value.
    Plain,
    /// The object's own list.
    Access,
    /// The list that new objects below start from.
    Default,
}

impl Xattrs for MemoryBackend {
    fn get_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        let node = self.table.get(inode)?;
        let meaning = meaning(name)?;
        let state = node.state.read();
        let value = match meaning {
            Meaning::Plain => state.xattrs.get(name).cloned(),
            Meaning::Access => state.access.as_ref().map(Acl::to_bytes),
            Meaning::Default => state.default.as_ref().map(Acl::to_bytes),
        };
        value.ok_or(Error::NoAttribute)
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let node = self.table.get(inode)?;
        let meaning = meaning(name)?;
        check_kind(&node, name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::Io(std::io::Error::from_raw_os_error(libc::E2BIG)));
        }
        let acl = if meaning == Meaning::Plain { None } else { Acl::parse(value)? };
        let mut state = node.state.write();
        let state = &mut *state;
        let there = match meaning {
            Meaning::Plain => state.xattrs.contains_key(name),
            Meaning::Access => state.access.is_some(),
            Meaning::Default => state.default.is_some(),
        };
        match mode {
            XattrMode::Create if there => return Err(Error::Exists),
            XattrMode::Replace if !there => return Err(Error::NoAttribute),
            _ => {}
        }
        match meaning {
            Meaning::Plain => set_plain(state, name, value)?,
            Meaning::Access => set_access(&node, state, caller, acl)?,
            Meaning::Default => set_default(&node, state, acl)?,
        }
        state.ctime = Timestamp::now();
        Ok(())
    }

    fn list_xattrs(&self, _: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.xattr_names(inode)
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        self.xattr_names(inode).map(Some)
    }

    fn remove_xattr(&self, _: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        let node = self.table.get(inode)?;
        let meaning = meaning(name)?;
        check_kind(&node, name)?;
        let mut state = node.state.write();
        let cost = match meaning {
            Meaning::Plain => {
                let value = state.xattrs.remove(name).ok_or(Error::NoAttribute)?;
                xattr_cost(name, &value)
            }
            // The mode stays as the list left it; the mask becomes the group's rights. To remove an
            // absent list succeeds, like on Linux.
            Meaning::Access => acl_cost(state.access.take().as_ref()),
            Meaning::Default => acl_cost(state.default.take().as_ref()),
        };
        state.charge.shrink(cost);
        state.ctime = Timestamp::now();
        Ok(())
    }
}

impl MemoryBackend {
    pub(super) fn xattr_names(&self, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        let node = self.table.get(inode)?;
        let state = node.state.read();
        let access = state.access.as_ref().map(|_| ACCESS_XATTR.to_vec());
        let default = state.default.as_ref().map(|_| DEFAULT_XATTR.to_vec());
        Ok(access.into_iter().chain(default).chain(state.xattrs.keys().cloned()).collect())
    }
}

fn set_plain(state: &mut State, name: &[u8], value: &[u8]) -> Result<()> {
    let before = state.xattrs.get(name).map(|value| xattr_cost(name, value));
    let listed: usize = state.xattrs.keys().map(|name| name.len() + 1).sum();
    // The two lists are always listable too.
    let lists = ACCESS_XATTR.len() + DEFAULT_XATTR.len() + 2;
    if before.is_none() && listed + lists + name.len() + 1 > LIST_MAX {
        return Err(Error::NoSpace);
    }
    state.charge.change(before.unwrap_or(0), xattr_cost(name, value))?;
    state.xattrs.insert(name.to_vec(), value.to_vec());
    Ok(())
}

/// Sets or removes the object's own list. Its mode follows. A list that the mode can express is not
/// kept, and the set-group-id bit stays only for a caller in the group.
fn set_access(node: &Node, state: &mut State, caller: &Caller, acl: Option<Acl>) -> Result<()> {
    if node.kind == FileKind::Symlink {
        return Err(Error::Unsupported("access control lists of symbolic links"));
    }
    let mut mode = state.mode;
    let mut kept = None;
    if let Some(acl) = acl {
        let (bits, minimal) = acl.equivalent_mode();
        mode = mode & !0o777 | bits;
        if mode & SET_GID != 0 && !permission::has_group(caller, state.gid) {
            mode &= !SET_GID;
        }
        kept = (!minimal).then_some(acl);
    }
    state.charge.change(acl_cost(state.access.as_ref()), acl_cost(kept.as_ref()))?;
    (state.mode, state.access) = (mode, kept);
    Ok(())
}

fn set_default(node: &Node, state: &mut State, acl: Option<Acl>) -> Result<()> {
    match node.kind {
        FileKind::Directory => {}
        FileKind::Symlink => {
            return Err(Error::Unsupported("access control lists of symbolic links"));
        }
        _ if acl.is_some() => return Err(Error::Access),
        _ => {}
    }
    state.charge.change(acl_cost(state.default.as_ref()), acl_cost(acl.as_ref()))?;
    state.default = acl;
    Ok(())
}

fn meaning(name: &[u8]) -> Result<Meaning> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(Error::Range);
    }
    if name.contains(&0) {
        return Err(Error::Invalid("an attribute name holds no NUL"));
    }
    match name {
        ACCESS_XATTR => return Ok(Meaning::Access),
        DEFAULT_XATTR => return Ok(Meaning::Default),
        _ => {}
    }
    for prefix in [&b"user."[..], b"trusted.", b"security."] {
        match name.strip_prefix(prefix) {
            Some([]) => return Err(Error::Invalid("an attribute name that is only a prefix")),
            Some(_) => return Ok(Meaning::Plain),
            None => {}
        }
    }
    Err(Error::Unsupported("this namespace of extended attributes"))
}

/// Only files and directories may have user attributes: for other kinds the mode does not say which
/// users may set them.
fn check_kind(node: &Node, name: &[u8]) -> Result<()> {
    match node.kind {
        FileKind::Regular | FileKind::Directory => Ok(()),
        _ if name.starts_with(b"user.") => Err(Error::NotPermitted),
        _ => Ok(()),
    }
}
