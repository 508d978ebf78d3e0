//! A store in memory whose answers fail by plan.
//!
//! # Boundary
//! For tests: a map of keys, each change of which is another version, and faults that the next requests meet.

use crate::lock_order::OBJECT_RUNS;
use crate::store::{Delimiter, Kind, ListRequest, Listed, Page, Result, Store, StoreError, Tag};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::Timestamp;

static BUCKET: LockClass = LockClass::new(OBJECT_RUNS.rank() + 1, "bucket", "a bucket under test");

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Busy,
    Unreachable,
    Cut,
    Denied,
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
    }

    pub(crate) fn remove(&self, key: &str) {
        self.0.lock().objects.remove(key);
    }

    /// What the next requests meet, one each.
    pub(crate) fn plan(&self, faults: &[Option<Fault>]) {
        self.0.lock().faults.extend(faults);
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
        }
    }
}

fn tag(version: u64) -> Tag {
    Tag(format!("\"{version}\"").into())
}

impl Store for Bucket {
    fn list_page(&self, request: &ListRequest<'_>) -> Result<Page> {
        let mut state = self.0.lock();
        state.meet()?;
        let mut page = Page::default();
        for (key, (version, content)) in &state.objects {
            let Some(rest) = key.strip_prefix(request.prefix) else { continue };
            let cut = match request.delimiter {
                Delimiter::Slash => rest.find('/').map(|at| request.prefix.len() + at + 1),
                Delimiter::None => None,
            };
            let shown = &key[..cut.unwrap_or(key.len())];
            let seen = page.entries.last().is_some_and(|last| last.key == shown);
            if seen || request.token.is_some_and(|token| shown <= token) {
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
        Ok(page)
    }

    fn read(&self, key: &str, wanted: &Tag, range: Range<u64>, into: &mut [u8]) -> Result<()> {
        let mut state = self.0.lock();
        state.meet()?;
        let (version, content) = state.objects.get(key).ok_or(StoreError::NotFound)?;
        if tag(*version) != *wanted {
            return Err(StoreError::Changed);
        }
        into.copy_from_slice(&content[range.start as usize..range.end as usize]);
        Ok(())
    }
}
