//! A request written to `drop_caches`: its form, its directory, and the users that may send it.
//!
//! One write is one request, of at most 4096 bytes at offset 0; paths begin at the root of the mount. Dirty data stays,
//! as with the kernel's own switch. The write returns when the cleaning is done. A signal takes effect only after that,
//! even one that kills: the kernel waits for a write that the server has taken.
//!
//! # Why
//! A write carries the user that makes it. A set-id program that gets the file as its standard error writes with rights
//! that its caller lacks; so the user that opened the file must have them, too. Weakness: a store without opens records
//! no opener, and only the writer is judged.

use super::{Control, HANDLE};
use crate::server::{Server, WriteFrom, WriteHow};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;
use uvfs_vfs::clean::request::{REQUEST_BYTES_MAX, Refusal, Request};
use uvfs_vfs::{Caller, Checks, Error, FileKind, Lookup, Name, Node, Result};

impl Control {
    /// Whether a write can be a request, before its bytes are copied. The kernel puts an appending write at its own
    /// idea of the end, which has no meaning here.
    pub(crate) fn accepts(&self, offset: u64, how: WriteHow, length: usize) -> Result<()> {
        match () {
            () if how.from == WriteFrom::Mapped => {
                Err(Error::Invalid("a request through a mapping"))
            }
            () if offset != 0 && !how.appends => Err(Error::Invalid("a request not at offset 0")),
            () if length > REQUEST_BYTES_MAX => Err(refused(Refusal::TooLong)),
            () => Ok(()),
        }
    }

    /// Whether all of `users` may clean a directory of `directory_owner`, or everything (`None`).
    pub(super) fn permits(&self, users: &[u32], directory_owner: Option<u32>) -> bool {
        users.iter().all(|&uid| self.may_all(uid) || Some(uid) == directory_owner)
    }

    /// Whether `uid` may clean everything, as often as it likes.
    fn may_all(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner
    }
}

impl Server {
    /// Carries out the request in `data`, written by `caller` through `handle`.
    pub(crate) fn write_control(&self, caller: &Caller, handle: u64, data: &[u8]) -> Result<usize> {
        let request = Request::parse(data).map_err(refused)?;
        let opener = if handle & HANDLE != 0 { handle as u32 } else { caller.uid };
        let (directory, owner) = match &request.directory {
            None => (self.vfs.root().clone(), None),
            Some(path) => {
                let caller = Caller { checks: Checks::Enforce, ..caller.clone() };
                let (directory, owner) = self.resolve(&caller, path)?;
                (directory, Some(owner))
            }
        };
        if !self.control.permits(&[caller.uid, opener], owner) {
            return Err(refused(Refusal::NotPermitted));
        }
        if let Some(user) = [caller.uid, opener].into_iter().find(|&uid| !self.control.may_all(uid))
        {
            self.control.rate.take(user, Instant::now())?;
        }
        let cleaner = self.control.cleaner.get().ok_or(Error::WouldBlock)?;
        cleaner.drop_caches(&directory, request.what)?;
        log::debug!("cleaned {request} for user {}", caller.uid);
        Ok(data.len())
    }

    /// The directory at `path` from the root of the mount, and its owner. Follows no link; `caller` must have search
    /// permission on each directory of the path.
    fn resolve(&self, caller: &Caller, path: &Path) -> Result<(Node, u32)> {
        let mut node = self.vfs.root().clone();
        let mut owner = None;
        let bytes = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
        for name in bytes.filter(|name| !name.is_empty() && *name != b".") {
            if owner.is_none() && self.control.hides(super::ROOT, name) {
                return Err(refused(Refusal::Outside));
            }
            let found = match self.vfs.lookup(caller, &node, Name::new(name)?) {
                Ok(Lookup::Found(found)) => found,
                // Stale: removed since it was found.
                Ok(Lookup::Missing(_)) | Err(Error::NotFound | Error::Stale) => {
                    return Err(refused(Refusal::Missing));
                }
                Err(error) => return Err(error),
            };
            match found.node.kind() {
                FileKind::Directory => {}
                FileKind::Symlink => return Err(refused(Refusal::Symlink)),
                _ => return Err(refused(Refusal::NotDirectory)),
            }
            owner = Some(found.attributes.uid);
            node = found.node;
        }
        let owner = match owner {
            Some(owner) => owner,
            None => self.vfs.attributes(&node, None)?.uid,
        };
        Ok((node, owner))
    }
}

fn refused(refusal: Refusal) -> Error {
    log::debug!("a request to clean was refused: {refusal}");
    Error::from_errno(refusal.errno())
}
