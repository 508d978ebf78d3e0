//! Trying again, with bounds.
//!
//! # Boundary
//! A [`Store`] in front of another one. Repeats only requests that may succeed a moment later
//! ([`StoreError::temporary`](crate::StoreError::temporary)).
//!
//! # Why
//! Pauses double, and each is drawn between nothing and its bound, so that a thousand readers that failed together do not
//! retry together. A wait that the store asks for is a lower bound, cut at the longest pause: a store cannot stop a mount
//! for an hour.
//!
//! A put whose answer was lost may have been done; a second try then fails its condition because of its own object. So each
//! put bears a mark. If its condition does not hold, the object's mark is read. Weakness: attempts are bounded per request,
//! not per mount.

use crate::store::{
    Condition, Head, ListRequest, Metadata, Page, Put, Result, Span, Store, StoreError, Tag,
    Temporary, Upload,
};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use uvfs_concurrent::counter::Counter;
use uvfs_vfs::Timestamp;

/// How long a request is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Tries, the first included. Default: 6, which is 3 seconds of pauses at most, if the store names none. Watch
    /// the counter `retries`.
    pub attempts: u32,
    /// Bound of the first pause. Default: 100 milliseconds.
    pub first_pause: Duration,
    /// Longest pause, also where the store asks for a longer one. Default: 5 seconds.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 6,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
        }
    }
}

impl Patience {
    /// The pause before try `attempt` (from 1), of which `draw` picks a place.
    fn pause(&self, attempt: u32, asked: Duration, draw: u64) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << (attempt - 1).min(16));
        let bound = doubled.min(self.longest_pause);
        let share = (draw % 1024) as f64 / 1024.0;
        asked.saturating_add(bound.mul_f64(share)).min(self.longest_pause)
    }
}

/// Pages of a listing without entries that are passed over, one after the other.
const EMPTY_PAGES_MAX: u32 = 10_000;

/// A store whose failed requests are repeated. See the module.
pub struct Patient {
    store: Box<dyn Store>,
    patience: Patience,
    seed: RandomState,
    counts: Counts,
    wait: fn(Duration),
}

/// Counts of requests to the store.
#[derive(Debug, Default)]
struct Counts {
    lists: Counter,
    reads: Counter,
    read_bytes: Counter,
    /// Objects and parts.
    puts: Counter,
    put_bytes: Counter,
    copies: Counter,
    deletes: Counter,
    /// Questions for an object's mark and metadata.
    heads: Counter,
    /// Requests of all kinds that were no first try.
    retries: Counter,
    /// Answers whose bytes did not have their checksum.
    damaged: Counter,
    /// Answers that were an error, after the last try.
    failures: Counter,
}

impl Patient {
    /// `store`, asked as often as `patience` says.
    pub fn new(store: impl Store, patience: Patience) -> Self {
        Self {
            store: Box::new(store),
            patience,
            seed: RandomState::new(),
            counts: Counts::default(),
            wait: std::thread::sleep,
        }
    }

    /// Counters for reports: (name, value).
    pub(crate) fn counters(&self) -> [(&'static str, u64); 11] {
        let counts = &self.counts;
        [
            ("list_requests", counts.lists.total()),
            ("get_requests", counts.reads.total()),
            ("get_bytes", counts.read_bytes.total()),
            ("put_requests", counts.puts.total()),
            ("put_bytes", counts.put_bytes.total()),
            ("copy_requests", counts.copies.total()),
            ("delete_requests", counts.deletes.total()),
            ("head_requests", counts.heads.total()),
            ("retries", counts.retries.total()),
            ("checksum_mismatches", counts.damaged.total()),
            ("failed_requests", counts.failures.total()),
        ]
    }

    fn repeat<T>(&self, kind: &Counter, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        let mut attempt = 1;
        loop {
            kind.hit();
            let error = match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let asked = match error.temporary() {
                Temporary::No => None,
                Temporary::Yes => Some(Duration::ZERO),
                Temporary::After(time) => Some(time),
            };
            let Some(asked) = asked.filter(|_| attempt < self.patience.attempts) else {
                self.counts.failures.hit();
                return Err(error);
            };
            let retries = &self.counts.retries;
            let draw = self.seed.hash_one((attempt, retries.total(), std::thread::current().id()));
            retries.hit();
            log::debug!("try {attempt}: {error}");
            (self.wait)(self.patience.pause(attempt, asked, draw));
            attempt += 1;
        }
    }

    /// Puts, or ends an upload. If the condition fails, this request may itself have put the object: by an earlier try, or
    /// because it was delivered twice.
    fn put_once(&self, put: &Put<'_>, mut ask: impl FnMut() -> Result<Tag>) -> Result<Tag> {
        self.repeat(&self.counts.puts, || {
            let error = match ask() {
                Err(error @ (StoreError::Changed | StoreError::NotFound)) => error,
                answer => return answer,
            };
            self.counts.heads.hit();
            match self.store.head(put.key) {
                Ok(head) if head.mark == Some(put.mark) => Ok(head.tag),
                Ok(_) | Err(StoreError::NotFound) => Err(error),
                // It is not known which client put the object.
                Err(unknown) => Err(unknown),
            }
        })
    }
}

/// Copies whose condition fails.
impl Patient {
    /// The version at `to`, if it is a copy of the version `tag` of `from`: an earlier try may have made it, whose answer was lost.
    fn copied_before(&self, from: &str, tag: &Tag, to: &str) -> Result<Option<Tag>> {
        let head = |key: &str| {
            self.counts.heads.hit();
            match self.store.head(key) {
                Ok(head) => Ok(Some(head)),
                Err(StoreError::NotFound) => Ok(None),
                Err(unknown) => Err(unknown),
            }
        };
        let (Some(source), Some(there)) = (head(from)?, head(to)?) else { return Ok(None) };
        let same_put = source.mark.is_some() && source.mark == there.mark;
        let is_copy = source.tag == *tag && (same_put || source.tag == there.tag);
        Ok(is_copy.then_some(there.tag))
    }
}

impl Store for Patient {
    fn list_page(&self, request: &ListRequest<'_>) -> Result<Page> {
        // An empty page that is not the last does not end the listing: stores pass over removed keys in such pages.
        let (mut token, mut page) = (None, None);
        for _ in 0..EMPTY_PAGES_MAX {
            let request = ListRequest { token: token.as_deref().or(request.token), ..*request };
            let asked = self.repeat(&self.counts.lists, || self.store.list_page(&request))?;
            token.clone_from(&asked.next);
            let is_empty = asked.entries.is_empty() && asked.next.is_some();
            page = Some(asked).filter(|_| !is_empty);
            if page.is_some() {
                break;
            }
        }
        page.ok_or(StoreError::Broken("pages without an entry and without an end"))
    }

    fn read(&self, key: &str, tag: &Tag, span: Span, into: &mut [u8]) -> Result<()> {
        let length = into.len() as u64;
        let ask = || {
            let read = self.store.read(key, tag, span.clone(), into);
            if let Err(error @ StoreError::Damaged(_)) = &read {
                self.counts.damaged.hit();
                log::warn!("reading `{}`: {error}; these bytes are discarded", key.escape_debug());
            }
            read
        };
        self.repeat(&self.counts.reads, ask)?;
        self.counts.read_bytes.add(length);
        Ok(())
    }

    fn put(&self, put: &Put<'_>, body: &[u8]) -> Result<Tag> {
        let tag = self.put_once(put, || self.store.put(put, body))?;
        self.counts.put_bytes.add(body.len() as u64);
        Ok(tag)
    }

    fn begin_upload(&self, put: &Put<'_>) -> Result<Upload> {
        self.repeat(&self.counts.puts, || self.store.begin_upload(put))
    }

    fn put_part(&self, put: &Put<'_>, upload: &Upload, number: u32, body: &[u8]) -> Result<Tag> {
        let ask = || self.store.put_part(put, upload, number, body);
        let tag = self.repeat(&self.counts.puts, ask)?;
        self.counts.put_bytes.add(body.len() as u64);
        Ok(tag)
    }

    fn finish_upload(&self, put: &Put<'_>, upload: &Upload, parts: &[Tag]) -> Result<Tag> {
        self.put_once(put, || self.store.finish_upload(put, upload, parts))
    }

    fn abort_upload(&self, put: &Put<'_>, upload: &Upload) -> Result<()> {
        self.repeat(&self.counts.deletes, || self.store.abort_upload(put, upload))
    }

    fn head(&self, key: &str) -> Result<Head> {
        self.repeat(&self.counts.heads, || self.store.head(key))
    }

    fn copy(
        &self,
        from: &str,
        tag: &Tag,
        to: &str,
        condition: Condition<'_>,
        said: Option<(Timestamp, &Metadata)>,
    ) -> Result<Tag> {
        self.repeat(&self.counts.copies, || match self.store.copy(from, tag, to, condition, said) {
            Err(StoreError::Changed) if condition != Condition::Any => {
                self.copied_before(from, tag, to)?.ok_or(StoreError::Changed)
            }
            answer => answer,
        })
    }

    fn delete(&self, key: &str, tag: Option<&Tag>) -> Result<()> {
        self.repeat(&self.counts.deletes, || self.store.delete(key, tag))
    }
}

impl fmt::Debug for Patient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Patient").field("patience", &self.patience).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::{Bucket, Fault};
    use crate::store::{Delimiter, StoreError};

    fn patient(faults: &[Option<Fault>]) -> (Patient, Bucket) {
        let bucket = Bucket::new(&["a"]);
        bucket.plan(faults);
        let mut patient = Patient::new(bucket.clone(), Patience::default());
        patient.wait = |_| {};
        (patient, bucket)
    }

    fn list(patient: &Patient) -> Result<Page> {
        let delimiter = Delimiter::None;
        patient.list_page(&ListRequest {
            prefix: "",
            delimiter,
            token: None,
            after: None,
            entries_max: 9,
        })
    }

    #[test]
    fn what_passes_is_tried_again_and_what_stays_is_not() {
        for fault in [Fault::Busy, Fault::Cut, Fault::Unreachable] {
            let (patient, _) = patient(&[Some(fault), Some(fault)]);
            assert_eq!(list(&patient).unwrap().entries.len(), 1, "{fault:?}");
            assert_eq!(patient.counts.retries.total(), 2);
        }
        let (patient, bucket) = patient(&[Some(Fault::Denied)]);
        assert!(matches!(list(&patient), Err(StoreError::Denied(_))));
        assert_eq!((bucket.requests(), patient.counts.retries.total()), (1, 0));
    }

    #[test]
    fn tries_are_bounded_and_the_last_error_is_returned() {
        let (patient, bucket) = patient(&[Some(Fault::Busy); 20]);
        assert!(matches!(list(&patient), Err(StoreError::Busy { .. })));
        assert_eq!(bucket.requests(), u64::from(Patience::default().attempts));
        assert_eq!(patient.counts.failures.total(), 1);
    }

    #[test]
    fn pauses_grow_differ_and_stay_within_bounds() {
        let patience = Patience::default();
        for attempt in 1..100 {
            for draw in 0..2000 {
                let pause = patience.pause(attempt, Duration::ZERO, draw);
                assert!(pause < patience.first_pause * (1 << attempt.min(16)));
                assert!(pause <= patience.longest_pause);
            }
        }
        let pause = |draw| patience.pause(3, Duration::ZERO, draw);
        assert_ne!(pause(1), pause(700));
        assert!(patience.pause(1, Duration::from_secs(2), 0) >= Duration::from_secs(2));
        assert_eq!(patience.pause(1, Duration::from_secs(3600), 5), patience.longest_pause);
    }
}
