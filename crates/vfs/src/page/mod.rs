//! The page cache: file data of stores that are slower than memory.
//!
//! # Boundary
//! Keeps clean data only: writes go through to the store, and what they touch is dropped here.
//! Not used for stores that are memory already ([`crate::PageCaching::Store`]).
//!
//! # Concurrency
//! One lock per inode's pages, none held while the store is asked. A fill asks for one folio (a run
//! of 16 pages) and keeps it only if no change of the file's data began since
//! ([`crate::inode::Freshness`]). A folio that ends before its full length ends at the end of file;
//! any change of data drops such folios too, since the file may have grown.
//!
//! | against     | fill                    | write, truncate, punch         | evict            |
//! |-------------|-------------------------|--------------------------------|------------------|
//! | **read**    | `inode-pages`           | `inode-pages`                  | `inode-pages`    |
//! | **fill**    | both keep the same data | ticket: the fill is not kept   | `inode-pages`    |
//! | **write**   |                         | the store orders them          | `inode-pages`    |
//!
//! # Why
//! The plain beginning: write-through needs no write-back. Bad at: two threads missing on one folio
//! both ask the store, and a hit takes the file's lock. The tagged tree replaces it.

use crate::inode::{Clock, Freshness, Ticket};
use crate::lock_order;
use crate::statistics::Counters;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Unit of caching and of requests to the store: 16 pages.
pub(crate) const FOLIO_BYTES: usize = 64 << 10;

/// The pages of one file.
#[derive(Debug)]
pub(crate) struct InodePages {
    state: Mutex<State>,
    budget: Arc<PageBudget>,
}

#[derive(Debug, Default)]
struct State {
    folios: BTreeMap<u64, Folio>,
    freshness: Freshness,
}

#[derive(Debug)]
struct Folio {
    data: Arc<[u8]>,
    referenced: bool,
}

/// What bounds all files' pages together.
#[derive(Debug)]
pub(crate) struct PageBudget {
    clock: Mutex<VecDeque<(Weak<InodePages>, u64)>>,
    held_bytes: AtomicU64,
    limit_bytes: u64,
}

impl PageBudget {
    pub(crate) fn new(limit_bytes: u64) -> Self {
        Self {
            clock: Mutex::new(&lock_order::PAGE_CLOCK, VecDeque::new()),
            held_bytes: AtomicU64::new(0),
            limit_bytes,
        }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        // ORDERING: Relaxed; a statistic.
        self.held_bytes.load(Relaxed)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn release(&self, bytes: usize) {
        // ORDERING: Relaxed; a size that may lag.
        self.held_bytes.fetch_sub(bytes as u64, Relaxed);
    }

    /// Drops folios, those unused longest first, until the budget holds.
    fn trim(&self, counters: &Counters) {
        let mut rounds = self.clock.lock().len() * 2;
        while self.held_bytes() > self.limit_bytes && rounds > 0 {
            rounds -= 1;
            let Some((file, index)) = self.clock.lock().pop_front() else { break };
            let Some(pages) = file.upgrade() else { continue };
            let mut state = pages.state.lock();
            match state.folios.get_mut(&index) {
                Some(folio) if folio.referenced => {
                    folio.referenced = false;
                    drop(state);
                    self.clock.lock().push_back((file, index));
                }
                Some(_) => {
                    let bytes = state.folios.remove(&index).map_or(0, |folio| folio.data.len());
                    self.release(bytes);
                    counters.pages_evicted.hit();
                }
                None => {}
            }
        }
    }
}

impl InodePages {
    pub(crate) fn new(budget: Arc<PageBudget>) -> Self {
        Self { state: Mutex::new(&lock_order::INODE_PAGES, State::default()), budget }
    }

    /// The folio at `index`, if cached.
    pub(crate) fn find(&self, index: u64) -> Option<Arc<[u8]>> {
        let mut state = self.state.lock();
        let folio = state.folios.get_mut(&index)?;
        folio.referenced = true;
        Some(folio.data.clone())
    }

    /// Keeps `data`, read from the store after `ticket` was taken.
    pub(crate) fn insert(
        self: &Arc<Self>,
        counters: &Counters,
        index: u64,
        data: Arc<[u8]>,
        ticket: Ticket,
    ) {
        let budget = &*self.budget;
        let bytes = data.len();
        {
            let mut state = self.state.lock();
            if data.is_empty() || !state.freshness.admits(ticket) {
                return counters.discarded.hit();
            }
            if state.folios.contains_key(&index) {
                return;
            }
            state.folios.insert(index, Folio { data, referenced: false });
        }
        // ORDERING: Relaxed; a size that may lag.
        budget.held_bytes.fetch_add(bytes as u64, Relaxed);
        budget.clock.lock().push_back((Arc::downgrade(self), index));
        budget.trim(counters);
    }

    /// A change of the bytes from `start` to `end` begins.
    pub(crate) fn begin_change(&self, clock: &Clock, start: u64, end: u64) -> Ticket {
        let mut state = self.state.lock();
        let ticket = state.freshness.begin(clock);
        drop_range(&mut state, &self.budget, start, end);
        ticket
    }

    /// The change ended; what was filled meanwhile was not kept.
    pub(crate) fn end_change(&self, clock: &Clock, begin: Ticket) {
        self.state.lock().freshness.end(clock, begin);
    }

    /// The store says that others changed the content: drops it, and what is being filled now.
    pub(crate) fn content_changed(&self, clock: &Clock) {
        let mut state = self.state.lock();
        state.freshness.note(clock);
        drop_range(&mut state, &self.budget, 0, u64::MAX);
    }

    /// Drops everything.
    pub(crate) fn clear(&self) {
        drop_range(&mut self.state.lock(), &self.budget, 0, u64::MAX);
    }
}

/// Drops the folios that hold bytes from `start` to `end`, and those that end early.
fn drop_range(state: &mut State, budget: &PageBudget, start: u64, end: u64) {
    let (first, last) = (start / FOLIO_BYTES as u64, end.div_ceil(FOLIO_BYTES as u64));
    state.folios.retain(|&index, folio| {
        let keep = !(first..last).contains(&index) && folio.data.len() == FOLIO_BYTES;
        if !keep {
            budget.release(folio.data.len());
        }
        keep
    });
}
