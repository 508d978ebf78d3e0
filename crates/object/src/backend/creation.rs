//! New files and directories, and removals and moves of names.
//!
//! # Boundary
//! Turns each change of names into requests. A new file exists only here until it is closed ([`super::writing`]); a
//! directory is an object whose key ends with `/`.
//!
//! # Rules
//! C1. A directory keeps its name when its last entry is removed: its marker object is made, unless one is known to exist.
//! C2. A file is renamed by copying within the store and then removing. Another reader may see both names meanwhile, and one
//! of them survives any crash.
//! C3. Directories are not renamed (EXDEV): that would be two requests for each object below, and a failure would leave half
//! of it done. `mv` then copies, and reports its failures.
//! C4. A rename replaces the version that this mount has shown under the new name, or nothing where it has shown none. Any other version
//! that the store has there was put by others: the rename is refused (EBUSY), and the name leads to theirs from the next lookup on.
//!
//! # Why
//! Links, modes and owners have no place in a listing, so each file would need one more request to show them. Links are
//! refused. Modes and owners are accepted and forgotten: programs that copy set them on each file, and a refusal made them
//! fail for each file. A time is kept with the object, because other clients show it. It is visible here while the object
//! is cached, also under another name. Weakness: a removal costs a listing, unless the directory is known to stay.

use super::Shared;
use super::names::node_name;
use super::table::{Local, Node, What};
use super::writing::{AtConflict, cut};
use crate::path;
use crate::store::{
    Condition, Delimiter, Kind, ListRequest, Metadata, Put, REQUEST_BYTES_MAX, Store, StoreError,
    Tag,
};
use std::sync::Arc;
use uvfs_concurrent::primitive::atomic::Ordering::Relaxed;
use uvfs_vfs::{
    Attributes, Entry, Error, FileId, FileRef, InodeId, Name, NewKind, NewNode, OpenMode,
    RenameMode, Result, SetAttributes, SetTime, Timestamp,
};

/// Bit of a [`FileId`] that says that it is open for writing.
const WRITES: u64 = 1;

impl Shared {
    fn key_in(&self, directory: &Node, name: Name<'_>) -> Result<String> {
        if std::str::from_utf8(name.as_bytes()).is_err() {
            return Err(Error::Invalid("a key of an object store is UTF-8"));
        }
        path::key_of(&directory.key(), name).ok_or(Error::NameTooLong)
    }

    pub(super) fn create(
        &self,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let directory = self.node_of_directory(parent)?;
        match new.kind {
            NewKind::Regular => {
                let node = self.make(&directory, name)?;
                // No close will upload it.
                let (_inside, made) = self.enter(node.id)?;
                let put = self.upload_local_inside(&made, AtConflict::Fail);
                put.inspect_err(|_| self.unmake(&node))?;
                self.entry(&node)
            }
            NewKind::Directory => {
                let key = self.key_in(&directory, name)?;
                if key.len() == path::KEY_MAX {
                    return Err(Error::NameTooLong);
                }
                let marker = format!("{key}/");
                let _inside = self.uploads.gates.enter(&marker);
                self.put_marker(&marker).map_err(|error| match error {
                    Error::Busy => Error::Exists,
                    other => other,
                })?;
                self.changed(&key, Some(What::Directory));
                let node = self.table.refer(&directory, node_name(&key), What::Directory);
                self.table.mark(node.id, true);
                self.entry(&node)
            }
            _ => Err(Error::NotPermitted),
        }
    }

    pub(super) fn create_and_open(
        &self,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        if new.kind != NewKind::Regular {
            return Err(Error::NotPermitted);
        }
        let node = self.make(&self.node_of_directory(parent)?, name)?;
        let file = self.open(node.id, mode)?;
        Ok((self.entry(&node)?, file))
    }

    /// Makes a file that exists only here.
    fn make(&self, directory: &Arc<Node>, name: Name<'_>) -> Result<Arc<Node>> {
        let key = self.key_in(directory, name)?;
        let node = self.table.make(directory, node_name(&key), Timestamp::now());
        if self.uploads.here.add_new(key, node.id) {
            return Ok(node);
        }
        self.table.forget(node.id, 1);
        Err(Error::Exists)
    }

    fn unmake(&self, node: &Node) {
        self.uploads.here.remove(&node.key(), node.id);
        self.table.forget(node.id, 1);
    }

    /// Puts the marker object of the directory of this key.
    fn put_marker(&self, key: &str) -> Result<()> {
        let refused = |error| self.refused("making", key, error);
        let condition = self.checked(key, Condition::Absent).map_err(refused)?;
        let (mark, metadata) = (self.uploads.mark(InodeId::ROOT), &Metadata::NONE);
        let put = Put { key, condition, mark, modified: None, metadata };
        let put = match self.store.put(&put, &[]) {
            Err(StoreError::Unsupported(_)) => {
                self.store.put(&Put { condition: Condition::Any, ..put }, &[])
            }
            put => put,
        };
        put.map(drop).map_err(refused)
    }

    pub(super) fn open(&self, id: InodeId, mode: OpenMode) -> Result<FileId> {
        let writes = mode.write || mode.truncate;
        let node = self.table.get(id).ok_or(Error::Stale)?;
        if id != InodeId::ROOT {
            self.table.opened(id, writes).ok_or(Error::Stale)?;
        }
        if writes && node.what != What::Directory {
            self.uploads.here.add(node.key(), id);
        }
        Ok(FileId((self.next_file() << 1) | if writes { WRITES } else { 0 }))
    }

    pub(super) fn close(&self, file: FileRef) {
        let wrote = file.file.0 & WRITES != 0;
        let Some(opens) = self.table.closed(file.inode, wrote) else { return };
        if wrote && opens.writers == 0 {
            // A failure is logged; the file stays in work, and is tried again at the end.
            let _ = self.upload_local(file.inode);
            self.leave_work(file.inode);
        }
    }

    pub(super) fn flush(&self, file: FileRef) -> Result<()> {
        if file.file.0 & WRITES != 0 { self.upload_local(file.inode) } else { Ok(()) }
    }

    pub(super) fn set_attributes(&self, file: FileRef, set: &SetAttributes) -> Result<Attributes> {
        let now = self.attributes_of(file.inode)?;
        if let Some(size) = set.size.filter(|size| *size != now.size) {
            self.set_size(file, size)?;
            self.table.forget_time(file.inode);
        }
        if let Some(time) = set.mtime {
            let modified = match time {
                SetTime::Now => Timestamp::now(),
                SetTime::At(time) => time,
            };
            self.set_time(file.inode, modified, &now)?;
        }
        self.attributes_of(file.inode)
    }

    fn set_size(&self, file: FileRef, size: u64) -> Result<()> {
        let id = file.inode;
        let (_inside, before) = self.enter(id)?;
        let changed = self.table.change(id, |node| Some(node.become_what(cut(&node.what, size)?)));
        let node = changed.ok_or(Error::Stale)?;
        if matches!(node.what, What::Orphan { .. }) {
            return Ok(());
        }
        self.uploads.here.add(node.key(), id);
        if self.table.opens(id).writers > 0 {
            return Ok(());
        }
        // No close will upload it.
        self.upload_local_inside(&node, AtConflict::Fail).inspect_err(|_| {
            self.table.change(id, |now| Some(now.become_what(before.what.clone())));
            self.leave_work(id);
        })
    }

    /// Sets a time. If the file is being written, the store gets it with the content, otherwise at once.
    fn set_time(&self, id: InodeId, modified: Timestamp, now: &Attributes) -> Result<()> {
        let (_inside, node) = self.enter(id)?;
        match node.what {
            // A directory has no object that must be there, and so no time; programs that copy trees insist on setting one.
            What::Directory | What::Orphan { .. } => Ok(()),
            _ if now.mtime == modified => Ok(()),
            What::Object { .. } if self.table.opens(id).writers == 0 => self.touch(&node, modified),
            _ => {
                self.table.state_time(id, modified);
                Ok(())
            }
        }
    }

    pub(super) fn unlink(&self, parent: InodeId, name: Name<'_>) -> Result<()> {
        let directory = self.node_of_directory(parent)?;
        let key = self.key_in(&directory, name)?;
        let _inside = self.uploads.gates.enter(&key);
        if let Some(node) = self.in_work(&key)? {
            let stored = node.what.tag().is_some();
            if let Some(tag) = node.what.tag() {
                match self.remove(&key, Some(tag)) {
                    Ok(()) => self.changed(&key, None),
                    // The content written here is dropped with its name. An object that others have put is not removed: the
                    // next lookup shows it, and then it can be removed.
                    Err(StoreError::Changed) => {
                        self.orphan(&node, &key)?;
                        self.went_elsewhere(&directory, node_name(&key));
                        return Err(self.refused("removing", &key, StoreError::Changed));
                    }
                    Err(error) => return Err(self.refused("removing", &key, error)),
                }
            }
            self.orphan(&node, &key)?;
            return if stored { self.keep_directory(&directory) } else { Ok(()) };
        }
        self.remove(&key, None).map_err(|error| self.refused("removing", &key, error))?;
        self.changed(&key, None);
        // Opened for writing while it was being removed.
        let opened = self.uploads.here.find(&key, |id| self.table.get(id));
        if let Some(node) = opened.filter(|node| node.what.tag().is_some()) {
            self.orphan(&node, &key)?;
        }
        self.keep_directory(&directory)
    }

    /// The file in work that is found under `key`, based on the store's present version of it (U5).
    fn in_work(&self, key: &str) -> Result<Option<Arc<Node>>> {
        let find = || self.uploads.here.find(key, |id| self.table.get(id));
        let Some(node) = find() else { return Ok(None) };
        match self.settle(node.id, key) {
            Ok(None) => Ok(Some(node)),
            Ok(Some(_)) => Ok(find()),
            Err(error) => Err(self.refused("finding", key, error)),
        }
    }

    /// A file in work has lost its name `key`: its open descriptors continue to work.
    fn orphan(&self, node: &Node, key: &str) -> Result<()> {
        let size = self.attributes_of(node.id)?.size;
        let what = What::Orphan { content: None, size };
        self.table.change(node.id, |node| Some(node.become_what(what)));
        self.uploads.here.remove(key, node.id);
        Ok(())
    }

    /// Keeps the directory after a name was removed from it (C1). Failures are only logged: the name is removed.
    fn keep_directory(&self, directory: &Node) -> Result<()> {
        if self.table.is_marked(directory.id) {
            return Ok(());
        }
        let prefix = directory.key();
        let listed = self.list_below(&prefix, 1);
        match listed {
            Ok(0) if self.put_marker(&prefix).is_ok() => self.table.mark(directory.id, true),
            Ok(_) => {}
            Err(error) => drop(self.user_error("listing", &prefix, error)),
        }
        Ok(())
    }

    /// How many keys begin with `prefix`, up to a number.
    fn list_below(&self, prefix: &str, entries_max: u16) -> crate::store::Result<usize> {
        let request = ListRequest {
            prefix,
            delimiter: Delimiter::None,
            token: None,
            after: None,
            entries_max,
        };
        Ok(self.store.list_page(&request)?.entries.len())
    }

    pub(super) fn remove_directory(&self, parent: InodeId, name: Name<'_>) -> Result<()> {
        let directory = self.node_of_directory(parent)?;
        let key = self.key_in(&directory, name)?;
        let prefix = format!("{key}/");
        let _inside = self.uploads.gates.enter(&prefix);
        let request = ListRequest {
            prefix: &prefix,
            delimiter: Delimiter::None,
            token: None,
            after: None,
            entries_max: 2,
        };
        let page = self
            .store
            .list_page(&request)
            .map_err(|error| self.user_error("listing", &prefix, error))?;
        if page.entries.iter().any(|entry| entry.key != prefix)
            || self.uploads.here.any_below(&prefix)
        {
            return Err(Error::NotEmpty);
        }
        let marker = page.entries.first().map(|entry| &entry.kind);
        let tag = match marker {
            Some(Kind::Object { size: 1.., .. }) => {
                let prefix = prefix.escape_debug();
                log::warn!(
                    "`{prefix}` is an object with content, which has no name here; it stays"
                );
                return Err(Error::NotEmpty);
            }
            Some(Kind::Object { tag, .. }) => Some(tag),
            Some(Kind::Prefix) | None => None,
        };
        match self.remove(&prefix, tag) {
            // Others have given it content.
            Err(StoreError::Changed) => return Err(Error::NotEmpty),
            removed => removed.map_err(|error| self.refused("removing", &prefix, error))?,
        }
        self.changed(&key, None);
        self.keep_directory(&directory)
    }

    pub(super) fn rename(
        &self,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        if mode == RenameMode::Exchange {
            return Err(Error::Unsupported("exchanging two names"));
        }
        if mode.leaves_whiteout() {
            return Err(Error::Invalid("a bucket has no devices"));
        }
        let (source, target) = (self.node_of_directory(from.0)?, self.node_of_directory(to.0)?);
        let (from, to) = (self.key_in(&source, from.1)?, self.key_in(&target, to.1)?);
        if from == to {
            return Ok(());
        }
        let _inside = self.uploads.gates.enter_both(&from, &to);
        let finding =
            |key: &str| self.find(key).map_err(|error| self.user_error("finding", key, error));
        let replaced_here = self.uploads.here.find(&to, |id| self.table.get(id));
        let replaced = finding(&to)?;
        if replaced == Some(What::Directory) {
            return Err(Error::IsDirectory);
        }
        if mode == RenameMode::NoReplace && (replaced.is_some() || replaced_here.is_some()) {
            return Err(Error::Exists);
        }
        // The version that a user saw under the new name is the one that the rename may replace (C4).
        let shown = match &replaced_here {
            Some(node) => node.what.tag().cloned(),
            None => self.table.shown(&target, node_name(&to)),
        };
        let replaced = replaced.and_then(|what| what.tag().cloned());
        if replaced.is_some() && replaced != shown {
            self.went_elsewhere(&target, node_name(&to));
            return Err(self.refused("renaming to", &to, StoreError::Changed));
        }
        let mut node = self.in_work(&from)?;
        if let Some(changed) = &node
            && matches!(changed.what, What::Local(Local { base: Some(_), .. }))
        {
            // The copied version must be the state here.
            self.upload_local_inside(changed, AtConflict::Keep)?;
            node = self.table.get(changed.id);
        }
        // The version to remove from the old name: the one that was copied.
        let mut copied = None;
        let moved = match node.as_ref().map(|node| &node.what) {
            Some(What::Local(local)) => {
                // It is not in the store yet; it will replace the present object.
                let base = replaced.clone().map(|tag| (tag, 0));
                What::Local(Local { base, ..local.clone() })
            }
            Some(what) => {
                copied = what.tag().cloned();
                self.copy(&from, what.clone(), (&target, &to), replaced.as_ref())?
            }
            None => {
                let what = finding(&from)?.ok_or(Error::NotFound)?;
                node = self.table.known(&source, node_name(&from), &what);
                // A time that was set is not in the listing.
                let known = node.as_ref().map(|node| &node.what);
                let what =
                    known.filter(|known| matches!(known, What::Object { .. })).unwrap_or(&what);
                let what = what.clone();
                copied = what.tag().cloned();
                self.copy(&from, what, (&target, &to), replaced.as_ref())?
            }
        };
        let in_store = matches!(moved, What::Object { .. });
        if let Some(replaced) = replaced_here {
            self.orphan(&replaced, &to)?;
        }
        if let Some(node) = &node {
            self.uploads.here.add(to.clone(), node.id);
        }
        if in_store {
            self.changed(&to, Some(moved.clone()));
        }
        if let Some(node) = &node {
            self.table.move_to(node.id, (&target, node_name(&to)), moved);
            self.uploads.here.remove(&from, node.id);
            self.leave_work(node.id);
        }
        if !in_store {
            return Ok(());
        }
        match self.remove(&from, copied.as_ref()) {
            Ok(()) => {
                self.changed(&from, None);
                self.keep_directory(&source)
            }
            // Others have put a new one under the old name since: it is not the one that was moved.
            Err(StoreError::Changed) => {
                let from = from.escape_debug();
                log::warn!(
                    "`{from}`: another client replaced it during its rename; its object stays"
                );
                Ok(())
            }
            Err(error) => Err(self.refused("removing", &from, error)),
        }
    }

    /// Copies an object over the version `replaced`, or to an absent key; returns the state of the copy.
    fn copy(
        &self,
        from: &str,
        what: What,
        (directory, to): (&Node, &str),
        replaced: Option<&Tag>,
    ) -> Result<What> {
        let What::Object { tag, size, modified } = what else { return Err(Error::CrossDevice) };
        if size > REQUEST_BYTES_MAX {
            return Err(Error::CrossDevice);
        }
        let copied =
            self.copy_if(from, &tag, to, replaced.map_or(Condition::Absent, Condition::Is));
        let tag = copied.map_err(|error| {
            self.went_elsewhere(directory, node_name(to));
            self.refused("copying", from, error)
        })?;
        Ok(What::Object { tag, size, modified })
    }

    /// Copies an object under a condition, if the store has conditions for copies. The caller has checked the target before.
    fn copy_if(
        &self,
        from: &str,
        tag: &Tag,
        to: &str,
        condition: Condition<'_>,
    ) -> crate::store::Result<Tag> {
        let knows = &self.uploads.copy_conditions;
        // ORDERING: Relaxed; a thread that does not see the swap below is refused once more.
        if knows.load(Relaxed) {
            match self.store.copy(from, tag, to, condition, None) {
                Err(StoreError::Unsupported(said)) => {
                    // ORDERING: Relaxed; a late reader is refused once more.
                    if knows.swap(false, Relaxed) {
                        log::warn!(
                            "the store has no conditions on copies ({said}): a rename overwrites a change that \
                             another client makes just before it"
                        );
                    }
                }
                copied => return copied,
            }
        }
        self.store.copy(from, tag, to, Condition::Any, None)
    }

    /// Uploads all files in work that no close will upload any more.
    pub(super) fn upload_rest(&self) -> Result<()> {
        let mut result = Ok(());
        for id in self.uploads.here.all() {
            if let Err(error) = self.upload_local(id) {
                result = Err(error);
            }
            self.leave_work(id);
        }
        result
    }
}
