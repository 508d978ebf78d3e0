//! Files that are written: which they are, and how one comes to the store.
//!
//! # Boundary
//! From what a file is here to the requests that make it an object. When that happens is the core's to say (`fsync`, `close`;
//! [`uvfs_vfs::Writes::WholeFile`]), and what of a file was written is in its pages.
//!
//! # Rules
//! U1. No reader sees a part of a file: one request brings all of it, or an upload whose parts no reader sees before it ends.
//! U2. What is put says what it replaces: nothing, or the version that was opened. If others were faster, the writer is told
//! EBUSY, and what it wrote stays with it.
//! U3. A file that is made or open for writing here is found here under its name, whatever the store has there. The index of
//! them ([`InWork`]) is asked before the store, and what it finds is referred to under its lock, so that it does not go away.
//! U4. One upload of a file at a time: the core's gate sees to that for [`Data::replace`], and `uploading` for those that a
//! close or `fsync` without written pages makes.
//! U5. A put that has failed may have been done: its answer was lost, and a later try was refused for another reason. Such a file is
//! *in doubt* until a put of it succeeds. Before it loses or changes its name, and where a condition does not hold, the object is
//! asked whether it bears a mark of this file ([`Shared::settle`]); then it is the version that this file comes from.
//! U6. Buffers of uploads come out of one allowance, which the budget knows of ([`super::Shared`] as a tenant): an upload
//! that finds it taken waits until another one gives buffers back, and one part fits into it always.
//!
//! # Why
//! A condition on each put makes lost updates visible; a store that has none is asked for its listing before, which leaves
//! a moment (and is said once). Weakness: an upload that is given up because the process dies leaves parts that cost money until the
//! bucket's own rule removes them.
//!
//! [`Data::replace`]: uvfs_vfs::Data::replace

use super::Shared;
use super::table::{Local, Node, What};
use crate::lock_order::{OBJECT_ALLOWANCE, OBJECT_IN_WORK, OBJECT_UPLOADING};
use crate::store::{
    Condition, Head, Metadata, PART_BYTES_MIN, PARTS_MAX, Put, REQUEST_BYTES_MAX, Store,
    StoreError, Tag, Upload,
};
use std::collections::BTreeMap;
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

/// What uploads need.
#[derive(Debug)]
pub(super) struct Uploads {
    pub(super) in_work: InWork,
    /// One file at a time that no page brings (U4).
    uploading: Mutex<()>,
    allowance: Allowance,
    /// The store has conditions on puts, as far as is known.
    conditions: AtomicBool,
    /// The same, of removals.
    removal_conditions: AtomicBool,
    /// Of this process.
    seed: u64,
    begun: AtomicU64,
    /// Puts that were refused since others had replaced what they were to replace.
    pub(super) conflicts: uvfs_concurrent::counter::Counter,
}

impl Uploads {
    pub(super) fn new(bytes_max: u64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self {
            in_work: InWork::new(),
            uploading: Mutex::new(&OBJECT_UPLOADING, ()),
            allowance: Allowance::new(bytes_max.max(PART_BYTES_MIN)),
            conditions: AtomicBool::new(true),
            removal_conditions: AtomicBool::new(true),
            seed: RandomState::new().hash_one(Timestamp::now().nanoseconds),
            begun: AtomicU64::new(0),
            conflicts: uvfs_concurrent::counter::Counter::new(),
        }
    }

    /// Bytes of the buffers that are under way.
    pub(super) fn bytes(&self) -> u64 {
        self.allowance.taken()
    }

    /// Of the next put of `id`: which file of which process, above [`MARK_BITS`], and which of its puts.
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

/// Files by key that are made here, or open for writing, or not yet in the store as they are here (U3).
#[derive(Debug)]
pub(super) struct InWork(Mutex<BTreeMap<String, InodeId>>);

impl InWork {
    fn new() -> Self {
        Self(Mutex::new(&OBJECT_IN_WORK, BTreeMap::new()))
    }

    /// `id` is found under `key` from now on.
    pub(super) fn add(&self, key: String, id: InodeId) {
        self.0.lock().insert(key, id);
    }

    /// As [`InWork::add`], if nothing else is.
    pub(super) fn add_new(&self, key: String, id: InodeId) -> bool {
        let mut known = self.0.lock();
        if known.contains_key(&key) {
            return false;
        }
        known.insert(key, id);
        true
    }

    /// `id` is found under `key` no more.
    pub(super) fn remove(&self, key: &str, id: InodeId) {
        self.remove_if(key, id, || true);
    }

    /// As [`InWork::remove`], if `done` says so while nobody else changes what is found.
    fn remove_if(&self, key: &str, id: InodeId, done: impl FnOnce() -> bool) {
        let mut known = self.0.lock();
        if known.get(key) == Some(&id) && done() {
            known.remove(key);
        }
    }

    /// What is found under `key`; `refer` is asked for it while nobody else changes that.
    pub(super) fn find<T>(&self, key: &str, refer: impl FnOnce(InodeId) -> Option<T>) -> Option<T> {
        let known = self.0.lock();
        refer(*known.get(key)?)
    }

    /// The names of files that lie in the directory `prefix` itself.
    pub(super) fn names_in(&self, prefix: &str) -> Vec<Box<str>> {
        let known = self.0.lock();
        let below = known.range(prefix.to_owned()..).map(|(key, _)| key.strip_prefix(prefix));
        let names = below.take_while(Option::is_some).flatten();
        names.filter(|name| !name.contains('/')).map(Into::into).collect()
    }

    /// Whether a file lies below the directory `prefix`.
    pub(super) fn any_below(&self, prefix: &str) -> bool {
        let known = self.0.lock();
        known.range(prefix.to_owned()..).next().is_some_and(|(key, _)| key.starts_with(prefix))
    }

    /// All of them, as of now.
    pub(super) fn all(&self) -> Vec<InodeId> {
        self.0.lock().values().copied().collect()
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

    /// Waits until there are `bytes`, of which more than all there is are not asked for.
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

/// What a file is here, where none of it is in pages.
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
    /// Makes `content` the content of the file `id`, in the store.
    pub(super) fn replace(&self, id: InodeId, content: &dyn WholeContent) -> Result<Attributes> {
        let node = self.table.get(id).ok_or(Error::Stale)?;
        let base = match &node.what {
            What::Directory => return Err(Error::IsDirectory),
            What::Orphan { .. } => return self.keep_orphan(&node, content),
            What::Object { tag, .. } => Some(tag.clone()),
            What::Local(local) => local.base.as_ref().map(|(tag, _)| tag.clone()),
        };
        let key = node.key();
        let condition = base.as_ref().map_or(Condition::Absent, Condition::Is);
        let tag = match self.upload(id, &key, condition, content) {
            Ok(tag) => tag,
            Err(error) => {
                self.take_back(id, &key);
                return Err(error);
            }
        };
        let modified = self.table.stated(id).unwrap_or_else(Timestamp::now);
        self.table.forget_time(id);
        let put = Some(tag.clone());
        let what = What::Object { tag, size: content.size(), modified };
        let now = self.table.change(id, |now| match now.what {
            // Removed meanwhile: what was put is not its any more.
            What::Orphan { .. } => None,
            _ => Some(now.become_what(what)),
        });
        if now.is_some_and(|now| matches!(now.what, What::Orphan { .. })) {
            // What others have put since is theirs.
            match self.remove(&key, put.as_ref()) {
                Ok(()) | Err(StoreError::Changed) => {}
                Err(error) => return Err(self.refused("removing", &key, error)),
            }
        }
        self.leave_work(id);
        self.attributes_of(id)
    }

    /// Brings the file `id` to the store, if it is not there as it is here though no page of it is dirty: it was made and
    /// not written, or cut, or its time was said.
    pub(super) fn upload_local(&self, id: InodeId) -> Result<()> {
        let is_there = |node: &Node| match node.what {
            What::Local(_) => false,
            What::Object { .. } => self.table.stated(id).is_none(),
            What::Directory | What::Orphan { .. } => true,
        };
        if self.table.get(id).is_none_or(|node| is_there(&node)) {
            return Ok(());
        }
        let _one = self.uploads.uploading.lock();
        let node = self.table.get(id).ok_or(Error::Stale)?;
        match (&node.what, self.table.stated(id)) {
            (What::Local(Local { size, .. }), _) => {
                let content = Virtual { shared: self, id, size: *size, version: node.version };
                self.replace(id, &content).map(drop)
            }
            (What::Object { .. }, Some(modified)) => self.touch(&node, modified),
            _ => Ok(()),
        }
    }

    /// The time of the last change of an object becomes `modified`, in the store.
    pub(super) fn touch(&self, node: &Node, modified: Timestamp) -> Result<()> {
        let What::Object { tag, size, .. } = &node.what else { return Err(Error::NotPermitted) };
        if *size > REQUEST_BYTES_MAX {
            return Err(Error::NotPermitted);
        }
        let key = node.key();
        let copied = self
            .metadata_of(&key, tag)
            .and_then(|metadata| self.store.copy(&key, tag, &key, Some((modified, &metadata))));
        let tag = copied.map_err(|error| self.refused("touching", &key, error))?;
        let what = What::Object { tag, size: *size, modified };
        self.table.change(node.id, |node| Some(node.become_what(what)));
        self.table.forget_time(node.id);
        Ok(())
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
        read_whole(content, 0, &mut bytes)?;
        let what = What::Orphan { size: bytes.len() as u64, content: Some(bytes.into()) };
        self.table.change(node.id, |now| Some(now.become_what(what)));
        self.attributes_of(node.id)
    }

    /// `id` is looked for in the store again, if it is there and nobody writes to it.
    pub(super) fn leave_work(&self, id: InodeId) {
        let Some(node) = self.table.get(id) else { return };
        // An open or a cut adds it again after that.
        self.uploads.in_work.remove_if(&node.key(), id, || {
            let is_stored = |node: Arc<Node>| matches!(node.what, What::Object { .. });
            self.table.get(id).is_none_or(is_stored) && self.table.opens(id).writers == 0
        });
    }

    /// Where a put of `id` may have been done that was told to have failed (U5): asks the object that the store has. Is it of this file, it
    /// is from now on the version that the file comes from, and is returned.
    pub(super) fn settle(&self, id: InodeId, key: &str) -> crate::store::Result<Option<Tag>> {
        if !self.table.is_doubtful(id) {
            return Ok(None);
        }
        match self.store.head(key) {
            Ok(Head { tag, mark: Some(mark), .. }) if self.uploads.is_mark_of(mark, id) => {
                let based = |now: &Node| Some(now.become_what(now.what.based_on(tag.clone())?));
                self.table.change(id, based);
                Ok(Some(tag))
            }
            Ok(_) | Err(StoreError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The file `id` has lost its name `key` while a put of it was under way that failed: what that has left goes, too.
    fn take_back(&self, id: InodeId, key: &str) {
        let is_orphan = |node: Arc<Node>| matches!(node.what, What::Orphan { .. });
        if !self.table.get(id).is_some_and(is_orphan) {
            return;
        }
        let left = self.settle(id, key).and_then(|left| match left {
            Some(tag) => self.remove(key, Some(&tag)),
            None => Ok(()),
        });
        if let Err(error) = left
            && error != StoreError::Changed
        {
            let key = key.escape_debug();
            log::warn!("`{key}` was removed while it was written, and may be there again: {error}");
        }
    }

    /// Puts `content` as the file `id` under `key`. A put that failed before may have been done all the same: where the
    /// condition does not hold, the object is asked whether it is that one, and then it is what is replaced.
    fn upload(
        &self,
        id: InodeId,
        key: &str,
        condition: Condition<'_>,
        content: &dyn WholeContent,
    ) -> Result<Tag> {
        let mut done = self.upload_if(id, key, condition, content);
        if let Err(Failed::Store(StoreError::Changed | StoreError::NotFound)) = &done {
            let settled = self.settle(id, key);
            if let Some(tag) = settled.map_err(|error| self.refused("finding", key, error))? {
                done = self.upload_if(id, key, Condition::Is(&tag), content);
            }
        }
        done.map_err(|failed| match failed {
            Failed::Store(error) => self.refused("writing", key, error),
            Failed::Content(error) => error,
        })
    }

    fn upload_if(
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
                    "the store has no conditions on writes ({said}): a change by others in the moment \
                     between looking and writing is overwritten"
                );
            }
            let put = Put { condition: self.checked(key, condition)?, ..put };
            done = self.upload_once(&put, content);
        }
        match &done {
            Ok(_) => self.table.doubt(id, false),
            // The last try's error tells nothing of the tries before it, whose answers may have been lost.
            Err(Failed::Store(_)) => self.table.doubt(id, true),
            Err(Failed::Content(_)) => {}
        }
        done
    }

    /// Removes what is under `key`, of the version `tag` only if that is known; where the store has no such conditions, whatever is there.
    pub(super) fn remove(&self, key: &str, tag: Option<&Tag>) -> crate::store::Result<()> {
        // ORDERING: Relaxed; see where it is written.
        let tag = tag.filter(|_| self.uploads.removal_conditions.load(Relaxed));
        match self.store.delete(key, tag) {
            Err(StoreError::Unsupported(said)) if tag.is_some() => {
                // ORDERING: Relaxed; who does not see it is refused once more.
                if self.uploads.removal_conditions.swap(false, Relaxed) {
                    log::warn!(
                        "the store has no conditions on removals ({said}): what others put in that moment goes with it"
                    );
                }
                self.store.delete(key, None)
            }
            removed => removed,
        }
    }

    /// The condition as the store can check it; where it cannot, it is checked by looking.
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

    /// Brings `count` parts of `part` bytes, some at once; their tags in order.
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
            // ORDERING: Relaxed, both; each number goes to one, and what is seen late is a part too many.
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

    /// What a user is told of `error`, which was met while changing `key`.
    pub(super) fn refused(&self, doing: &str, key: &str, error: StoreError) -> Error {
        match error {
            StoreError::Changed => {
                self.uploads.conflicts.hit();
                let key = key.escape_debug();
                log::warn!("{doing} `{key}`: others have replaced it; it is left as they made it");
                Error::Busy
            }
            StoreError::NotFound => {
                self.told("writing", key, StoreError::Refused("it is gone".into()))
            }
            other => self.told(doing, key, other),
        }
    }
}

/// Why an upload was given up.
#[derive(Debug)]
enum Failed {
    /// The store's reason.
    Store(StoreError),
    /// What was to be uploaded could not be read.
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

/// Fills `into` with what `content` has from `offset` on.
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

/// A file that is cut or extended to `size`, from what it is.
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
