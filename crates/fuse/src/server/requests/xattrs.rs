//! Requests for extended attributes.
//!
//! # Boundary
//! Part of [`Server`]: finds the node, and asks the core. A `try_` method answers from the caches or not at all.

use super::{Server, is_control};
use uvfs_vfs::{Caller, Error, Result, XattrMode};

impl Server {
    pub(crate) fn try_getxattr(
        &self,
        caller: &Caller,
        id: u64,
        name: &[u8],
    ) -> Option<Result<Vec<u8>>> {
        self.vfs.try_get_xattr(caller, &self.nodes.get(id)?, name)
    }

    pub(crate) fn getxattr(&self, caller: &Caller, id: u64, name: &[u8]) -> Result<Vec<u8>> {
        if is_control(id) {
            return Err(Error::NoAttribute);
        }
        self.vfs.get_xattr(caller, &self.node(id)?, name)
    }

    pub(crate) fn try_listxattr(&self, id: u64) -> Option<Vec<u8>> {
        Some(joined(self.vfs.try_list_xattrs(&self.nodes.get(id)?)?))
    }

    pub(crate) fn listxattr(&self, caller: &Caller, id: u64) -> Result<Vec<u8>> {
        if is_control(id) {
            return Ok(Vec::new());
        }
        Ok(joined(self.vfs.list_xattrs(caller, &self.node(id)?)?))
    }

    pub(crate) fn setxattr(
        &self,
        caller: &Caller,
        id: u64,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<()> {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::Invalid("an unknown flag of setxattr")),
        };
        self.vfs.set_xattr(caller, &self.node(id)?, name, value, mode)
    }

    pub(crate) fn removexattr(&self, caller: &Caller, id: u64, name: &[u8]) -> Result<()> {
        self.vfs.remove_xattr(caller, &self.node(id)?, name)
    }
}

/// A list of names in the kernel's form.
fn joined(names: Vec<Vec<u8>>) -> Vec<u8> {
    let mut list = Vec::new();
    for name in names {
        list.extend_from_slice(&name);
        list.push(0);
    }
    list
}
