//! What a store cannot have answered.
//!
//! # Boundary
//! Looks at answers of a [`crate::Backend`] that its contract excludes: more bytes read than there was
//! room for, a file where a directory was to be made. Whoever asked is given an error instead of
//! something that would become wrong later and elsewhere; whoever writes the store reads in the log
//! what it answered and where.
//!
//! # Why
//! A kernel in front of us turns such an answer into EIO without a word, and the caches would keep it.
//! Weakness: only what costs a comparison is looked at. A store that answers the wrong bytes is believed.

use crate::attributes::FileKind;
use crate::backend::{Entry, FileId, FileRef, InodeId};
use crate::error::{Error, Result};
use crate::name::Name;
use crate::vfs::Core;
use std::fmt;

impl Core {
    /// `count` bytes, as the store answered to `call` with `asked` bytes of `file`.
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

    /// The new object `made` under `name` of `parent`, which was to be of `kind`. Its reference, and
    /// `opened`, are given back if it is another.
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

    /// Says in the log what the store answered, and gives the error for who asked.
    pub(crate) fn impossible(&self, what: fmt::Arguments<'_>) -> Error {
        let store = self.capabilities.store;
        log::error!(
            "store {store} answered what cannot be: {what}; the request fails, and the store is at fault"
        );
        Error::Corrupt("the store answered what cannot be; the log says what")
    }
}
