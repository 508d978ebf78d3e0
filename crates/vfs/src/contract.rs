//! Answers that a store must not give.
//!
//! # Boundary
//! Checks answers of a [`crate::Backend`] that its contract excludes: more bytes read than requested, a file instead of
//! a new directory. The caller gets an error instead of a value that would cause a fault later and elsewhere. The log
//! tells the store's author the answer and the call.
//!
//! # Why
//! A kernel in front turns such an answer into EIO without a message, and the caches would keep it. Weakness: only
//! cheap comparisons are made. A store that returns wrong bytes is not detected.

use crate::attributes::FileKind;
use crate::backend::{Entry, FileId, FileRef, InodeId};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::vfs::Core;
use std::fmt;

impl Core {
    /// Returns `count`, the store's answer to `call` for `asked` bytes of `file`, if it is possible.
    pub(crate) fn believed(
        &self,
        call: &'static str,
        file: FileRef,
        count: usize,
        asked: usize,
    ) -> Result<usize> {
        if count <= asked {
            return Ok(count);
        }
        let inode = file.inode.0;
        Err(self.impossible(format_args!(
            "{call} of {asked} bytes of inode {inode}: {count} bytes done"
        )))
    }

    /// The new object `made` under `name` of `parent`, expected to be of `kind`. If it is not, returns its reference
    /// and closes `opened`.
    pub(crate) fn as_made(
        &self,
        made: Entry,
        kind: FileKind,
        (parent, name): (InodeId, Option<Name<'_>>),
        opened: FileId,
    ) -> Result<Entry> {
        let found = made.attributes.kind;
        if found == kind {
            return Ok(made);
        }
        if opened != FileId::NONE {
            self.store_files().close(FileRef { inode: made.inode, file: opened });
        }
        self.backend().inodes().forget(made.inode, 1);
        let name = name.map_or(&b"(no name)"[..], |name| name.as_bytes()).escape_ascii();
        let (parent, inode) = (parent.0, made.inode.0);
        Err(self.impossible(format_args!(
            "creating {kind:?} \"{name}\" in directory {parent}: inode {inode}, {found:?}"
        )))
    }

    /// Logs the store's answer, and returns the error for the caller.
    pub(crate) fn impossible(&self, what: fmt::Arguments<'_>) -> Error {
        let store = self.capabilities.store;
        log::error!(
            "store {store} returned an impossible answer: {what}; the request fails because of this bug in the store"
        );
        Error::Corrupt("the store returned an impossible answer; the log has the details")
    }
}
