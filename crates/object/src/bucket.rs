//! A store in memory whose answers fail by plan.
//!
//! # Boundary
//! For tests: a map of keys, each change of which makes another version, and planned faults of the next requests.

use crate::lock_order::OBJECT_RUNS;
use crate::store::{
    Condition, Delimiter, Head, Kind, ListRequest, Listed, Metadata, PART_BYTES_MIN, Page, Put,
    Result, Span, Store, StoreError, Tag, Upload,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::Timestamp;

static BUCKET: LockClass = LockClass::new(OBJECT_RUNS.rank() + 1, "bucket", "a bucket under test");

/// A fault of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Busy,
    Unreachable,
    Cut,
    Denied,
    /// It is done, and the answer is lost.
    Lost,
    /// Conditions on puts are not known here.
    NoConditions,
    /// Another client puts an object under the key first.
    Overtaken,
    /// The first page is returned for any request.
    FirstPage,
    /// A page without entries, and not the last.
    EmptyPage,
}

/// The request at which a [`Hook`] runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum On {
    /// When the answer is on the way.
    List,
    /// Before the object is looked at.
    Read,
    /// When it is done, and the answer is on the way.
    Put,
    /// When a copy is done, and the answer is on the way.
    Copy,
}

/// Runs on the thread of a request.
struct Hook(On, Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Hook {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

/// See the module. Clones are one bucket.
#[derive(Debug, Clone)]
pub(crate) struct Bucket(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    versions: u64,
    faults: VecDeque<Option<Fault>>,
    requests: u64,
    /// The mark of each object.
    marks: BTreeMap<String, u64>,
    /// The time that its put set.
    modified: BTreeMap<String, Timestamp>,
    metadata: BTreeMap<String, Metadata>,
    hooks: Vec<Hook>,
    /// Keys and parts.
    uploads: BTreeMap<String, BTreeMap<u32, Vec<u8>>>,
}

impl Bucket {
    /// With an object for each key, whose content is its key.
    pub(crate) fn new(keys: &[&str]) -> Self {
        let bucket = Self(Arc::new(Mutex::new(&BUCKET, State::default())));
        keys.iter().for_each(|key| bucket.put(key, key.as_bytes()));
        bucket
    }

    pub(crate) fn put(&self, key: &str, content: &[u8]) {
        let mut state = self.0.lock();
        state.versions += 1;
        let version = state.versions;
        state.objects.insert(key.to_owned(), (version, content.to_vec()));
        state.marks.remove(key);
    }

    /// The content of an object.
    pub(crate) fn content(&self, key: &str) -> Option<Vec<u8>> {
        self.0.lock().objects.get(key).map(|(_, content)| content.clone())
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// The time that the put of an object set.
    pub(crate) fn modified(&self, key: &str) -> Option<Timestamp> {
        self.0.lock().modified.get(key).copied()
    }

    /// Gives an object metadata, as another client does.
    pub(crate) fn set_metadata(&self, key: &str, metadata: Metadata) {
        self.0.lock().metadata.insert(key.to_owned(), metadata);
    }

    /// The metadata of an object.
    pub(crate) fn metadata(&self, key: &str) -> Metadata {
        self.0.lock().metadata.get(key).cloned().unwrap_or_default()
    }

    /// Uploads that were neither finished nor aborted.
    pub(crate) fn uploads(&self) -> usize {
        self.0.lock().uploads.len()
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.lock().objects.remove(key);
    }

    /// Plans the faults of the next requests, one each.
    pub(crate) fn plan(&self, faults: &[Option<Fault>]) {
        self.0.lock().faults.extend(faults);
    }

    /// Runs `hook` at the next request of this kind.
    pub(crate) fn then(&self, on: On, hook: impl FnOnce() + Send + 'static) {
        self.0.lock().hooks.push(Hook(on, Box::new(hook)));
    }

    /// Runs the first hook for such a request.
    fn run_hook(&self, on: On) {
        let mut state = self.0.lock();
        let Some(at) = state.hooks.iter().position(|hook| hook.0 == on) else { return };
        let hook = state.hooks.remove(at);
        drop(state);
        (hook.1)();
    }

    /// The next requests have no faults.
    pub(crate) fn forget_plan(&self) {
        self.0.lock().faults.clear();
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().requests
    }
}

impl State {
    fn meet(&mut self) -> Result<()> {
        self.requests += 1;
        match self.faults.pop_front().flatten() {
            None => Ok(()),
            Some(Fault::Busy) => Err(StoreError::Busy { said: "planned".into(), after: None }),
            Some(Fault::Unreachable) => Err(StoreError::Unreachable("planned".into())),
            Some(Fault::Cut) => Err(StoreError::Broken("planned")),
            Some(Fault::Denied) => Err(StoreError::Denied("planned".into())),
            // For puts only.
            Some(Fault::Lost | Fault::NoConditions | Fault::Overtaken) => Ok(()),
            // For listings only.
            Some(Fault::FirstPage | Fault::EmptyPage) => Ok(()),
        }
    }

    /// Fails if `key` is not as the condition has it.
    fn check(&self, key: &str, condition: Condition<'_>) -> Result<()> {
        let known = self.objects.get(key).map(|(version, _)| tag(*version));
        match condition {
            Condition::Absent if known.is_some() => Err(StoreError::Changed),
            Condition::Is(tag) if known.as_ref() != Some(tag) => Err(StoreError::Changed),
            _ => Ok(()),
        }
    }

    /// Puts an object under a condition, as the next fault has it.
    fn put(&mut self, put: &Put<'_>, content: Vec<u8>) -> Result<Tag> {
        let fault = self.faults.front().copied().flatten();
        self.meet()?;
        if fault == Some(Fault::NoConditions) && put.condition != Condition::Any {
            return Err(StoreError::Unsupported("planned".into()));
        }
        if fault == Some(Fault::Overtaken) {
            self.versions += 1;
            self.objects.insert(put.key.to_owned(), (self.versions, b"theirs".to_vec()));
            self.marks.remove(put.key);
        }
        self.check(put.key, put.condition)?;
        self.versions += 1;
        let version = self.versions;
        self.objects.insert(put.key.to_owned(), (version, content));
        self.marks.insert(put.key.to_owned(), put.mark);
        self.modified.extend(put.modified.map(|modified| (put.key.to_owned(), modified)));
        self.metadata.insert(put.key.to_owned(), put.metadata.clone());
        match fault {
            Some(Fault::Lost) => Err(StoreError::Unreachable("planned".into())),
            _ => Ok(tag(version)),
        }
    }
}

fn tag(version: u64) -> Tag {
    Tag(format!("\"{version}\"").into())
}

impl Store for Bucket {
    fn list_page(&self, request: &ListRequest<'_>) -> Result<Page> {
        let mut state = self.0.lock();
        let fault = state.faults.front().copied().flatten();
        state.meet()?;
        let request = match fault {
            Some(Fault::FirstPage) => &ListRequest { token: None, ..*request },
            Some(Fault::EmptyPage) => {
                let next = Some(request.token.unwrap_or("").to_owned());
                return Ok(Page { entries: Vec::new(), next });
            }
            _ => request,
        };
        let mut page = Page::default();
        for (key, (version, content)) in &state.objects {
            let Some(rest) = key.strip_prefix(request.prefix) else { continue };
            let cut = match request.delimiter {
                Delimiter::Slash => rest.find('/').map(|at| request.prefix.len() + at + 1),
                Delimiter::None => None,
            };
            let shown = &key[..cut.unwrap_or(key.len())];
            let seen = page.entries.last().is_some_and(|last| last.key == shown);
            let from = request.token.or(request.after);
            if seen || from.is_some_and(|from| shown <= from) {
                continue;
            }
            if page.entries.len() == usize::from(request.entries_max) {
                page.next = page.entries.last().map(|last| last.key.clone());
                break;
            }
            let kind = match cut {
                Some(_) => Kind::Prefix,
                None => Kind::Object {
                    tag: tag(*version),
                    size: content.len() as u64,
                    modified: Timestamp { seconds: *version as i64, nanoseconds: 0 },
                },
            };
            page.entries.push(Listed { key: shown.to_owned(), kind });
        }
        drop(state);
        self.run_hook(On::List);
        Ok(page)
    }

    fn read(&self, key: &str, wanted: &Tag, span: Span, into: &mut [u8]) -> Result<()> {
        self.run_hook(On::Read);
        let mut state = self.0.lock();
        state.meet()?;
        let (version, content) = state.objects.get(key).ok_or(StoreError::NotFound)?;
        if tag(*version) != *wanted {
            return Err(StoreError::Changed);
        }
        into.copy_from_slice(match span {
            Span::Whole => content,
            Span::Range(range) => &content[range.start as usize..range.end as usize],
        });
        Ok(())
    }

    fn put(&self, put: &Put<'_>, body: &[u8]) -> Result<Tag> {
        let done = self.0.lock().put(put, body.to_vec());
        self.run_hook(On::Put);
        done
    }

    fn begin_upload(&self, put: &Put<'_>) -> Result<Upload> {
        let mut state = self.0.lock();
        state.meet()?;
        state.versions += 1;
        let name = format!("{}?{}", put.key, state.versions);
        state.uploads.insert(name.clone(), BTreeMap::new());
        Ok(Upload(name))
    }

    fn put_part(&self, _: &Put<'_>, upload: &Upload, number: u32, body: &[u8]) -> Result<Tag> {
        let mut state = self.0.lock();
        state.meet()?;
        let parts = state.uploads.get_mut(&upload.0).ok_or(StoreError::NotFound)?;
        parts.insert(number, body.to_vec());
        Ok(Tag(number.to_string().into()))
    }

    fn finish_upload(&self, put: &Put<'_>, upload: &Upload, tags: &[Tag]) -> Result<Tag> {
        let mut state = self.0.lock();
        let parts = state.uploads.get(&upload.0).cloned().ok_or(StoreError::NotFound)?;
        let named: Vec<u32> = tags.iter().map(|tag| tag.0.parse().unwrap()).collect();
        assert!(parts.keys().copied().eq(named.iter().copied()), "{named:?}");
        let short = |(number, part): (&u32, &Vec<u8>)| {
            (*number as usize) < tags.len() && (part.len() as u64) < PART_BYTES_MIN
        };
        if parts.iter().any(short) {
            return Err(StoreError::Refused("EntityTooSmall".into()));
        }
        let done = state.put(put, parts.into_values().flatten().collect());
        let keeps = matches!(done, Err(StoreError::Busy { .. } | StoreError::Broken(_)));
        if !keeps {
            state.uploads.remove(&upload.0);
        }
        done
    }

    fn abort_upload(&self, _: &Put<'_>, upload: &Upload) -> Result<()> {
        let mut state = self.0.lock();
        state.meet()?;
        state.uploads.remove(&upload.0);
        Ok(())
    }

    fn head(&self, key: &str) -> Result<Head> {
        let mut state = self.0.lock();
        // These faults wait for the put that comes after this question.
        match state.faults.front() {
            Some(Some(Fault::Lost | Fault::NoConditions | Fault::Overtaken)) => state.requests += 1,
            _ => state.meet()?,
        }
        let (version, _) = state.objects.get(key).ok_or(StoreError::NotFound)?;
        let metadata = state.metadata.get(key).cloned().unwrap_or_default();
        Ok(Head { tag: tag(*version), mark: state.marks.get(key).copied(), metadata })
    }

    fn copy(
        &self,
        from: &str,
        wanted: &Tag,
        to: &str,
        condition: Condition<'_>,
        said: Option<(Timestamp, &Metadata)>,
    ) -> Result<Tag> {
        let mut state = self.0.lock();
        let fault = state.faults.front().copied().flatten();
        state.meet()?;
        if fault == Some(Fault::NoConditions) && condition != Condition::Any {
            return Err(StoreError::Unsupported("planned".into()));
        }
        if fault == Some(Fault::Overtaken) {
            state.versions += 1;
            let theirs = (state.versions, b"theirs".to_vec());
            state.objects.insert(to.to_owned(), theirs);
            state.marks.remove(to);
        }
        state.check(to, condition)?;
        let (version, content) = state.objects.get(from).cloned().ok_or(StoreError::NotFound)?;
        if tag(version) != *wanted {
            return Err(StoreError::Changed);
        }
        state.versions += 1;
        let copy = state.versions;
        state.objects.insert(to.to_owned(), (copy, content));
        let metadata = match said {
            Some((modified, metadata)) => {
                state.modified.insert(to.to_owned(), modified);
                metadata.clone()
            }
            None => {
                if let Some(modified) = state.modified.get(from).copied() {
                    state.modified.insert(to.to_owned(), modified);
                }
                state.metadata.get(from).cloned().unwrap_or_default()
            }
        };
        state.metadata.insert(to.to_owned(), metadata);
        match state.marks.get(from).copied() {
            Some(mark) => _ = state.marks.insert(to.to_owned(), mark),
            None => _ = state.marks.remove(to),
        }
        drop(state);
        self.run_hook(On::Copy);
        match fault {
            Some(Fault::Lost) => Err(StoreError::Unreachable("planned".into())),
            _ => Ok(tag(copy)),
        }
    }

    fn delete(&self, key: &str, wanted: Option<&Tag>) -> Result<()> {
        let mut state = self.0.lock();
        let fault = state.faults.front().copied().flatten();
        state.meet()?;
        if fault == Some(Fault::NoConditions) && wanted.is_some() {
            return Err(StoreError::Unsupported("planned".into()));
        }
        if fault == Some(Fault::Overtaken) {
            state.versions += 1;
            let theirs = (state.versions, b"theirs".to_vec());
            state.objects.insert(key.to_owned(), theirs);
        }
        let known = state.objects.get(key).map(|(version, _)| tag(*version));
        if wanted.is_some() && known.is_some() && known.as_ref() != wanted {
            return Err(StoreError::Changed);
        }
        state.objects.remove(key);
        Ok(())
    }
}
