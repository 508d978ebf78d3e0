//! Files that are written: their state, and their upload to the store.
//!
//! # Boundary
//! From the state of a file here to the requests that make it an object. The core decides when that happens (`fsync`,
//! `close`; [`uvfs_vfs::Writes::WholeFile`]). Written data is in the file's pages.
//!
//! # Rules
//! U1. No reader sees a part of a file: one request brings all of it, or an upload whose parts no reader sees before it ends.
//! U2. A put names the version that it replaces: none, or the version that was opened. If others were faster, the writer gets
//! EBUSY, and its content is kept beside the file ([`super::conflict`]).
//! U3. A file that is made or open for writing here is found here under its name, whatever the store has there ([`Here`]).
//! U4. One change of an object at a time: uploads, copies, renames and removals of a key enter its gate ([`Gates`]). A thread reads the
//! node of a file after it has entered, so a file keeps its key until the change has ended.
//! U5. A put that has failed may have been done: its answer was lost, and a later try was refused for another reason. Such a file is
//! *in doubt* until a put of it succeeds. Before it loses or changes its name, and where a condition does not hold, the object is
//! asked whether it bears a mark of this file ([`Shared::settle`]); then it is the version that this file comes from.
//! U6. Buffers of uploads are taken from one allowance, which the budget counts ([`super::Shared`] as a tenant). An upload
//! that finds it used up waits until another upload returns buffers. One part always fits.
//!
//! # Why
//! A condition on each put makes lost updates visible. A store without conditions is listed before the put, which leaves a
//! short window (and is logged once). Weakness: if the process dies, the parts of its uploads cost money until the bucket's
//! own rule removes them.

use super::Shared;
use super::gates::{Gates, Inside};
use super::here::Here;
use super::table::{Local, Node, What};
use crate::lock_order::OBJECT_ALLOWANCE;
use crate::store::{
    Condition, Head, Metadata, PART_BYTES_MIN, PARTS_MAX, Put, REQUEST_BYTES_MAX, Store,
    StoreError, Tag, Upload,
};
use std::sync::Arc;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{Attributes, Error, InodeId, Result, Timestamp, WholeContent};

/// Bytes of a part: few requests for large files, and little memory for each.
const PART_BYTES: u64 = 8 << 20;
/// Bits of a mark that number puts.
const MARK_BITS: u32 = 24;
/// Parts of one file under way at once.
const PARTS_AT_ONCE: u64 = 4;

/// State of uploads.
#[derive(Debug)]
pub(super) struct Uploads {
    pub(super) here: Here,
    /// One change of an object at a time (U4).
    pub(super) gates: Gates,
    allowance: Allowance,
    /// The store has conditions on puts, as far as is known.
    conditions: AtomicBool,
    /// The store has conditions on copies, as far as is known.
    pub(super) copy_conditions: AtomicBool,
    /// The store has conditions on removals, as far as is known.
    removal_conditions: AtomicBool,
    /// Seed of this process.
    seed: u64,
    begun: AtomicU64,
    /// Puts that were refused because others had replaced the version that they name.
    pub(super) conflicts: uvfs_concurrent::counter::Counter,
    /// Those of which the content is kept beside the file.
    pub(super) kept_beside: uvfs_concurrent::counter::Counter,
}

impl Uploads {
    pub(super) fn new(bytes_max: u64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self {
            here: Here::new(),
            gates: Gates::new(),
            allowance: Allowance::new(bytes_max.max(PART_BYTES_MIN)),
            conditions: AtomicBool::new(true),
            copy_conditions: AtomicBool::new(true),
            removal_conditions: AtomicBool::new(true),
            seed: RandomState::new().hash_one(Timestamp::now().nanoseconds),
            begun: AtomicU64::new(0),
            conflicts: uvfs_concurrent::counter::Counter::new(),
            kept_beside: uvfs_concurrent::counter::Counter::new(),
        }
    }

    /// Bytes of the buffers that are under way.
    pub(super) fn bytes(&self) -> u64 {
        self.allowance.taken()
    }

    /// The mark of the next put: process and file in the high bits, a counter in the low [`MARK_BITS`].
    pub(super) fn mark(&self, id: InodeId) -> u64 {
        // ORDERING: Relaxed; only the value must be another one.
        let put = self.begun.fetch_add(1, Relaxed) & ((1 << MARK_BITS) - 1);
        self.seed.wrapping_add(id.0) << MARK_BITS | put
    }

    /// Whether a put of `id` had this mark.
    fn is_mark_of(&self, mark: u64, id: InodeId) -> bool {
        mark >> MARK_BITS == self.seed.wrapping_add(id.0) << MARK_BITS >> MARK_BITS
    }
}

/// Bytes that buffers may have (U6).
#[derive(Debug)]
struct Allowance {
    free: Mutex<u64>,
    given_back: Condvar,
    all: u64,
}

/// Bytes of an allowance, until it is dropped.
#[derive(Debug)]
struct Share<'a>(&'a Allowance, u64);

impl Allowance {
    fn new(all: u64) -> Self {
        Self { free: Mutex::new(&OBJECT_ALLOWANCE, all), given_back: Condvar::default(), all }
    }

    fn taken(&self) -> u64 {
        self.all - *self.free.lock()
    }

    /// Waits until there are `bytes`, or all of the allowance if that is less.
    fn take(&self, bytes: u64) -> Share<'_> {
        let bytes = bytes.min(self.all);
        let mut free = self.free.lock();
        while *free < bytes {
            self.given_back.wait(&mut free);
        }
        *free -= bytes;
        Share(self, bytes)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += self.1;
        self.0.given_back.notify_all();
    }
}

/// The content of a file here, if none of it is in pages.
struct Virtual<'a> {
    shared: &'a Shared,
    id: InodeId,
    size: u64,
    version: u64,
}

impl WholeContent for Virtual<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.shared.read(self.id, offset, into)?.count)
    }
}

impl Shared {
    /// Enters the gate of the file `id`. Its node as it is then; `None` for the gate of a file without a name (U4).
    pub(super) fn enter(&self, id: InodeId) -> Result<(Option<Inside<'_>>, Arc<Node>)> {
        loop {
            let node = self.table.get(id).ok_or(Error::Stale)?;
            if matches!(node.what, What::Orphan { .. }) {
                return Ok((None, node));
            }
            let key = node.key();
            let inside = self.uploads.gates.enter(&key);
            let node = self.table.get(id).ok_or(Error::Stale)?;
            if matches!(node.what, What::Orphan { .. }) {
                return Ok((None, node));
            }
            // It may have been renamed while this thread waited.
            if node.key() == key {
                return Ok((Some(inside), node));
            }
        }
    }

    /// Makes `content` the content of the file `id`, in the store.
    pub(super) fn replace(&self, id: InodeId, content: &dyn WholeContent) -> Result<Attributes> {
        let (_inside, node) = self.enter(id)?;
        self.replace_inside(&node, content, AtConflict::Keep)
    }

    /// Replaces the content as [`Shared::replace`] does, by a thread that is inside the gate of `node`.
    fn replace_inside(
        &self,
        node: &Arc<Node>,
        content: &dyn WholeContent,
        at_conflict: AtConflict,
    ) -> Result<Attributes> {
        let id = node.id;
        let base = match &node.what {
            What::Directory => return Err(Error::IsDirectory),
            What::Orphan { .. } => return self.keep_orphan(node, content),
            What::Object { tag, .. } => Some(tag.clone()),
            What::Local(local) => local.base.as_ref().map(|(tag, _)| tag.clone()),
        };
        let key = node.key();
        let condition = base.as_ref().map_or(Condition::Absent, Condition::Is);
        if self.table.is_refused(id) {
            return Err(self.keep_beside(node, content));
        }
        let tag = match self.upload(id, &key, condition, content) {
            Ok(tag) => tag,
            Err(failed) => {
                let conflict = match failed {
                    Failed::Store(error @ (StoreError::Changed | StoreError::NotFound)) => error,
                    // The unwritten part was in a version that is gone.
                    Failed::Content(Error::Stale) => StoreError::Changed,
                    Failed::Store(error) => return Err(self.refused("writing", &key, error)),
                    Failed::Content(error) => return Err(error),
                };
                let refusal = self.refused("writing", &key, conflict);
                return Err(match at_conflict {
                    AtConflict::Keep => self.keep_beside(node, content),
                    AtConflict::Fail => refusal,
                });
            }
        };
        let modified = self.table.stated(id).unwrap_or_else(Timestamp::now);
        self.table.time_is_stored(id);
        self.becomes(node, &key, What::Object { tag, size: content.size(), modified });
        self.leave_work(id);
        self.attributes_of(id)
    }

    /// A request has given the object `key` the present state of the file `node`. The file is in work, and the caller is inside its gate.
    fn becomes(&self, node: &Node, key: &str, what: What) {
        self.changed(key, Some(what.clone()));
        self.table.change(node.id, |now| Some(now.become_what(what)));
    }

    /// A request has changed `key` to `now`.
    pub(super) fn changed(&self, key: &str, now: Option<What>) {
        if self.uploads.here.changed(key, now) {
            self.listings.give_up();
        }
    }

    /// Uploads the file `id` if the store lacks its present state although no page of it is dirty: it was made and not
    /// written, or truncated, or its time was set.
    pub(super) fn upload_local(&self, id: InodeId) -> Result<()> {
        if self.table.get(id).is_none_or(|node| self.is_stored(&node)) {
            return Ok(());
        }
        let (_inside, node) = self.enter(id)?;
        self.upload_local_inside(&node, AtConflict::Keep)
    }

    /// Whether the store has the present state of the file, except for its pages.
    fn is_stored(&self, node: &Node) -> bool {
        match node.what {
            What::Local(_) => false,
            What::Object { .. } => self.table.stated(node.id).is_none(),
            What::Directory | What::Orphan { .. } => true,
        }
    }

    /// Uploads as [`Shared::upload_local`] does, by a thread that is inside the gate of `node`.
    pub(super) fn upload_local_inside(
        &self,
        node: &Arc<Node>,
        at_conflict: AtConflict,
    ) -> Result<()> {
        let id = node.id;
        match (&node.what, self.table.stated(id)) {
            (What::Local(Local { size, .. }), _) => {
                let content = Virtual { shared: self, id, size: *size, version: node.version };
                self.replace_inside(node, &content, at_conflict).map(drop)
            }
            (What::Object { .. }, Some(modified)) => self.touch(node, modified),
            _ => Ok(()),
        }
    }

    /// The time of the last change of an object becomes `modified`, in the store. The caller is inside the gate of `node`.
    pub(super) fn touch(&self, node: &Node, modified: Timestamp) -> Result<()> {
        let What::Object { tag, size, .. } = &node.what else { return Err(Error::NotPermitted) };
        if *size > REQUEST_BYTES_MAX {
            return Err(Error::NotPermitted);
        }
        let key = node.key();
        self.uploads.here.add_new(key.clone(), node.id);
        let copied = self.metadata_of(&key, tag).and_then(|metadata| {
            self.store.copy(&key, tag, &key, Condition::Any, Some((modified, &metadata)))
        });
        let touched = copied.map_err(|error| self.refused("touching", &key, error)).map(|tag| {
            self.table.state_time(node.id, modified);
            self.becomes(node, &key, What::Object { tag, size: *size, modified });
            self.table.time_is_stored(node.id);
        });
        if matches!(touched, Err(Error::Busy)) {
            // The version whose time was to be set is gone.
            self.table.forget_time(node.id);
        }
        self.leave_work(node.id);
        touched
    }

    /// The metadata of the version `tag` of `key`. A store forgets all metadata that a put or a copy to the same key does
    /// not send again, such as Content-Type.
    fn metadata_of(&self, key: &str, tag: &Tag) -> crate::store::Result<Metadata> {
        let head = self.store.head(key)?;
        if head.tag == *tag { Ok(head.metadata) } else { Err(StoreError::Changed) }
    }

    /// A file without a name is kept while it is open.
    fn keep_orphan(&self, node: &Node, content: &dyn WholeContent) -> Result<Attributes> {
        let mut bytes = vec![0; usize::try_from(content.size()).map_err(|_| Error::NoSpace)?];
        // Data that was not read before the name was lost is gone: no later try would find it.
        read_whole(content, 0, &mut bytes).map_err(|error| match error {
            Error::Stale => Error::Busy,
            other => other,
        })?;
        let what = What::Orphan { size: bytes.len() as u64, content: Some(bytes.into()) };
        self.table.change(node.id, |now| Some(now.become_what(what)));
        self.attributes_of(node.id)
    }

    /// Takes `id` out of the files in work, if the store has it and no open file writes to it: lookups ask the store again.
    pub(super) fn leave_work(&self, id: InodeId) {
        let Some(node) = self.table.get(id) else { return };
        // An open or a cut adds it again after that.
        self.uploads.here.remove_if(&node.key(), id, || {
            let is_stored = |node: Arc<Node>| matches!(node.what, What::Object { .. });
            self.table.get(id).is_none_or(is_stored) && self.table.opens(id).writers == 0
        });
    }

    /// If a failed put of `id` may have taken effect (U5), reads the mark of the store's object. If that is of this file, the
    /// object becomes the version that the file is based on, and is returned.
    pub(super) fn settle(&self, id: InodeId, key: &str) -> crate::store::Result<Option<Tag>> {
        if !self.table.is_doubtful(id) {
            return Ok(None);
        }
        let Some(before) = self.table.get(id) else { return Ok(None) };
        match self.store.head(key) {
            Ok(Head { tag, mark: Some(mark), .. }) if self.uploads.is_mark_of(mark, id) => {
                // A put that has succeeded meanwhile has a newer version.
                let based = |now: &Node| {
                    let is_same = now.what == before.what;
                    is_same.then_some(now.become_what(now.what.based_on(tag.clone())?))
                };
                self.table.change(id, based);
                Ok(Some(tag))
            }
            Ok(_) | Err(StoreError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts `content` as the file `id` under `key`. A put that failed before may have taken effect: if the condition does
    /// not hold, the object's mark is read, and if it is that put's, its version is replaced.
    fn upload(
        &self,
        id: InodeId,
        key: &str,
        condition: Condition<'_>,
        content: &dyn WholeContent,
    ) -> std::result::Result<Tag, Failed> {
        let mut done = self.upload_if(id, key, condition, content);
        if let Err(Failed::Store(StoreError::Changed | StoreError::NotFound)) = &done
            && let Some(tag) = self.settle(id, key)?
        {
            done = self.upload_if(id, key, Condition::Is(&tag), content);
        }
        done
    }

    pub(super) fn upload_if(
        &self,
        id: InodeId,
        key: &str,
        condition: Condition<'_>,
        content: &dyn WholeContent,
    ) -> std::result::Result<Tag, Failed> {
        let (mark, modified) = (self.uploads.mark(id), self.table.stated(id));
        let metadata = match condition {
            Condition::Is(tag) => self.metadata_of(key, tag)?,
            Condition::Absent | Condition::Any => Metadata::NONE,
        };
        let condition_here = self.checked(key, condition)?;
        let put = Put { key, condition: condition_here, mark, modified, metadata: &metadata };
        let mut done = self.upload_once(&put, content);
        if let Err(Failed::Store(StoreError::Unsupported(said))) = &done
            && put.condition != Condition::Any
        {
            // ORDERING: Relaxed; a thread that does not see it yet is refused once more.
            if self.uploads.conditions.swap(false, Relaxed) {
                log::warn!(
                    "the store has no conditions on writes ({said}): a write overwrites a change that \
                     another client makes just before it"
                );
            }
            let put = Put { condition: self.checked(key, condition)?, ..put };
            done = self.upload_once(&put, content);
        }
        match &done {
            Ok(_) => self.table.doubt(id, false),
            // The last try's error says nothing about earlier tries, whose answers may have been lost.
            Err(Failed::Store(_)) => self.table.doubt(id, true),
            Err(Failed::Content(_)) => {}
        }
        done
    }

    /// Removes the object under `key`, only of the version `tag` if that is known. If the store has no such conditions, the
    /// version is checked before.
    pub(super) fn remove(&self, key: &str, tag: Option<&Tag>) -> crate::store::Result<()> {
        // ORDERING: Relaxed; see where it is written.
        let knows = self.uploads.removal_conditions.load(Relaxed);
        let removed = match tag.is_some() && !knows {
            true => Err(StoreError::Unsupported(String::new())),
            false => self.store.delete(key, tag),
        };
        match removed {
            Err(StoreError::Unsupported(said)) if tag.is_some() => {
                // ORDERING: Relaxed; a thread that does not see it is refused once more.
                if self.uploads.removal_conditions.swap(false, Relaxed) {
                    log::warn!(
                        "the store has no conditions on removals ({said}): a removal also removes a version that another client puts just before it"
                    );
                }
                // A check before leaves a short window only.
                match (self.find(key)?, tag) {
                    (Some(What::Object { tag: there, .. }), Some(tag)) if there != *tag => {
                        Err(StoreError::Changed)
                    }
                    _ => self.store.delete(key, None),
                }
            }
            removed => removed,
        }
    }

    /// The condition, if the store can check it; otherwise it is checked here by a listing.
    pub(super) fn checked<'a>(
        &self,
        key: &str,
        condition: Condition<'a>,
    ) -> crate::store::Result<Condition<'a>> {
        // ORDERING: Relaxed; see where it is written.
        if condition == Condition::Any || self.uploads.conditions.load(Relaxed) {
            return Ok(condition);
        }
        let found = self.find(key)?;
        let holds = match (condition, found.as_ref().and_then(What::tag)) {
            (Condition::Absent, found) => found.is_none(),
            (Condition::Is(tag), Some(found)) => tag == found,
            _ => false,
        };
        if holds { Ok(Condition::Any) } else { Err(StoreError::Changed) }
    }

    fn upload_once(
        &self,
        put: &Put<'_>,
        content: &dyn WholeContent,
    ) -> std::result::Result<Tag, Failed> {
        let size = content.size();
        let part = PART_BYTES.max(size.div_ceil(PARTS_MAX)).min(self.uploads.allowance.all);
        if size > part {
            if part < size.div_ceil(PARTS_MAX) || part < PART_BYTES_MIN {
                return Err(Failed::Content(Error::TooBig));
            }
            return self.upload_parts(put, content, part);
        }
        let _share = self.uploads.allowance.take(size);
        let mut body = vec![0; size as usize];
        read_whole(content, 0, &mut body)?;
        Ok(self.store.put(put, &body)?)
    }

    fn upload_parts(
        &self,
        put: &Put<'_>,
        content: &dyn WholeContent,
        part: u64,
    ) -> std::result::Result<Tag, Failed> {
        let count = content.size().div_ceil(part);
        let upload = self.store.begin_upload(put)?;
        let result = self.bring_parts(put, &upload, content, (part, count)).and_then(|tags| {
            let put_whole = self.store.finish_upload(put, &upload, &tags);
            put_whole.map_err(Failed::from)
        });
        if result.is_err()
            && let Err(error) = self.store.abort_upload(put, &upload)
        {
            let key = put.key.escape_debug();
            log::warn!(
                "the parts of `{key}` stay in the store: {error}; let the bucket remove them by a rule"
            );
        }
        result
    }

    /// Uploads `count` parts of `part` bytes, some at once; returns their tags in order.
    fn bring_parts(
        &self,
        put: &Put<'_>,
        upload: &Upload,
        content: &dyn WholeContent,
        (part, count): (u64, u64),
    ) -> std::result::Result<Vec<Tag>, Failed> {
        let next = AtomicU32::new(0);
        let failed = AtomicBool::new(false);
        let bring = || -> std::result::Result<Vec<(u32, Tag)>, Failed> {
            let mut tags = Vec::new();
            // ORDERING: Relaxed, both; each number is taken once, and a late view of a failure sends one part too many.
            while !failed.load(Relaxed) {
                let at = next.fetch_add(1, Relaxed);
                if u64::from(at) >= count {
                    break;
                }
                let offset = u64::from(at) * part;
                let length = part.min(content.size() - offset);
                let _share = self.uploads.allowance.take(length);
                let mut body = vec![0; length as usize];
                let tag =
                    read_whole(content, offset, &mut body).map_err(Failed::from).and_then(|()| {
                        self.store.put_part(put, upload, at + 1, &body).map_err(Failed::from)
                    });
                if tag.is_err() {
                    // ORDERING: Relaxed; see above.
                    failed.store(true, Relaxed);
                }
                tags.push((at, tag?));
            }
            Ok(tags)
        };
        let threads = PARTS_AT_ONCE.min(count).min((self.uploads.allowance.all / part).max(1));
        let mut tags: Vec<(u32, Tag)> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, bring).ok())
                .collect();
            let mut tags = bring();
            for other in others {
                let panicked =
                    Failed::Content(Error::Corrupt("a thread that uploads has panicked"));
                let theirs = other.join().unwrap_or(Err(panicked));
                tags = tags.and_then(|tags| Ok([tags, theirs?].concat()));
            }
            tags
        })?;
        tags.sort_by_key(|(at, _)| *at);
        Ok(tags.into_iter().map(|(_, tag)| tag).collect())
    }

    /// The user's error for `error`, which ended a change of `key`.
    pub(super) fn refused(&self, doing: &str, key: &str, error: StoreError) -> Error {
        match error {
            StoreError::Changed => {
                self.uploads.conflicts.hit();
                let key = key.escape_debug();
                log::warn!("{doing} `{key}`: others have replaced it; their version stays");
                Error::Busy
            }
            StoreError::NotFound => {
                self.uploads.conflicts.hit();
                let key = key.escape_debug();
                log::warn!("{doing} `{key}`: others have removed it, and it stays removed");
                Error::Busy
            }
            other => self.user_error(doing, key, other),
        }
    }
}

/// The handling of a content whose object others have replaced first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtConflict {
    /// It is kept beside the file ([`super::conflict`]).
    Keep,
    /// Nothing: the caller undoes its steps.
    Fail,
}

/// Why an upload ended early.
#[derive(Debug)]
pub(super) enum Failed {
    /// The store's reason.
    Store(StoreError),
    /// The content could not be read.
    Content(Error),
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Failed::Store(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed::Content(error)
    }
}

/// Fills `into` with the bytes of `content` from `offset` on.
fn read_whole(content: &dyn WholeContent, offset: u64, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        match content.read(offset + done as u64, &mut into[done..])? {
            0 => return Err(Error::Busy),
            count => done += count,
        }
    }
    Ok(())
}

/// The state `what` of a file, truncated or extended to `size`.
pub(super) fn cut(what: &What, size: u64) -> Option<What> {
    let base = match what {
        What::Directory => return None,
        What::Object { tag, size: stored, .. } => Some((tag.clone(), (*stored).min(size))),
        What::Local(local) => local.base.clone().map(|(tag, keep)| (tag, keep.min(size))),
        What::Orphan { content, .. } => {
            let content = content.as_ref().map(|content| {
                let mut content = content.to_vec();
                content.resize(usize::try_from(size).unwrap_or(usize::MAX).min(content.len()), 0);
                Arc::from(content)
            });
            return Some(What::Orphan { content, size });
        }
    };
    Some(What::Local(Local { base, size, modified: Timestamp::now() }))
}
