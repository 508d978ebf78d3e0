//! Names: a lookup lists the keys that begin with the name, and a directory is listed page by page.
//!
//! # Boundary
//! Makes entries of the store's listings, and remembers the position of each listing under way.
//!
//! # Rules
//! R1. An object `a` and keys below `a/` want one name. The object has it, in lookups and listings, and the keys are hidden.
//! A listing reaches the object first, however many pages lie between.
//! R2. A cookie is a listing and a place in it. Entries are numbered as the store lists them, hidden ones included.
//! R3. Files in work here ([`super::writing`]) when a listing begins are listed at its end, unless they were listed before: the
//! store has them under their old names, or not yet.
//! R4. If a cookie of a dropped listing is used again, the listing restarts and counts up to that place. That is exact while
//! the directory has not changed before that place. A kept listing is exact whatever changes: the entries since the last
//! cookie used are kept, because its reader may have taken only a part of them.
//!
//! # Why
//! One request finds a name with all its attributes; HEAD finds objects only, and directories would need a listing besides.
//! A listing under way keeps only the pages of its last answer. Weakness: AWS charges twelve times the price of a HEAD for a
//! listing.

use super::Shared;
use super::here::Question;
use super::table::{Node, What};
use crate::lock_order::OBJECT_LISTINGS;
use crate::path::{self, Shown};
use crate::store::{Delimiter, Kind, ListRequest, Listed, Page, Store, StoreError};
use std::collections::VecDeque;
use std::sync::Arc;
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{
    Below, Caller, Cookie, Entry, Error, FileRef, InodeId, Listing, Name, Names, RenameMode, Result,
};

/// Entries of a page that is read to list a directory: as many as S3 gives.
pub(super) const PAGE_MAX: u16 = 1000;
/// Entries asked for to find one name: itself, and those that begin with it up to the directory of that name.
const LOOKUP_MAX: u16 = 20;
/// Walks under way that are remembered.
const LISTINGS_MAX: usize = 64;
/// Bits of a cookie that number entries; those above number listings, and the sign stays clear.
const PLACE_BITS: u32 = 40;
const NUMBERS: u64 = 1 << 23;

/// Walks under way.
#[derive(Debug)]
pub(super) struct Walks {
    state: Mutex<State>,
    begun_again: Counter,
    /// Bytes of the pages that are kept.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// The one that was used last stands last.
    under_way: VecDeque<Walk>,
    begun: u64,
}

/// A listing, and its last pages.
#[derive(Debug)]
struct Walk {
    number: u64,
    directory: InodeId,
    /// Position of the first entry that is kept.
    first: u64,
    page: Vec<Named>,
    /// The first entry of each question's answer; the last question is at the end.
    questions: Vec<(u64, Question)>,
    /// How to ask for the next page.
    next: Option<String>,
    /// Objects whose keys the last key of the page begins with (R1).
    open: Vec<Box<str>>,
    /// Files that were in work here when it began, and were not met yet (R3).
    in_work: Vec<Box<str>>,
    /// No page was read.
    fresh: bool,
    pages: Pages,
}

/// Finds out that the pages of a listing go in a circle, as Brent's algorithm does: one token is kept, and replaced after one, two,
/// four and so on further pages.
#[derive(Debug, Default)]
struct Pages {
    kept: Option<String>,
    since: u64,
    until: u64,
}

impl Pages {
    /// The listing continues at `next`. False if it was there before.
    fn go_on(&mut self, next: Option<&str>) -> bool {
        if next.is_some() && next == self.kept.as_deref() {
            return false;
        }
        self.since += 1;
        if self.since >= self.until {
            self.kept = next.map(str::to_owned);
            self.until = (2 * self.until).max(1);
            self.since = 0;
        }
        true
    }
}

/// An entry: its name and state, if it is shown.
type Named = Option<(Box<str>, What)>;

impl Walks {
    pub(super) fn new() -> Self {
        let state = Mutex::new(&OBJECT_LISTINGS, State::default());
        Self { state, begun_again: Counter::new(), bytes: AtomicU64::new(0) }
    }

    /// Listings of which a cookie was used after they were dropped.
    pub(super) fn begun_again(&self) -> u64 {
        self.begun_again.total()
    }

    /// Bytes of the pages that are kept.
    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: Relaxed; a size.
        self.bytes.load(Relaxed)
    }

    /// The listing of `directory` that continues at `from`, and the place there. The caller owns it until it is
    /// [kept](Walks::keep).
    fn take(&self, directory: InodeId, from: Cookie) -> (Walk, u64) {
        let (number, place) = (from.0 >> PLACE_BITS, from.0 & ((1 << PLACE_BITS) - 1));
        let mut state = self.state.lock();
        let fits = |walk: &Walk| {
            walk.number == number && walk.directory == directory && walk.first <= place
        };
        let found = state.under_way.iter().position(fits).filter(|_| from.0 != 0);
        if let Some(walk) = found.and_then(|at| state.under_way.remove(at)) {
            drop(state);
            // ORDERING: Relaxed; a size.
            self.bytes.fetch_sub(walk.bytes(), Relaxed);
            return (walk, place);
        }
        state.begun += 1;
        // 0 is no listing's, so that no cookie is the start's.
        let new = 1 + state.begun % (NUMBERS - 1);
        drop(state);
        if from.0 != 0 {
            self.begun_again.hit();
        }
        let number = if from.0 == 0 { new } else { number };
        (Walk::new(number, directory), if from.0 == 0 { 0 } else { place })
    }

    fn keep(&self, walk: Walk) {
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_add(walk.bytes(), Relaxed);
        let mut state = self.state.lock();
        state.under_way.push_back(walk);
        let over = state.under_way.len() > LISTINGS_MAX;
        let gone = if over { state.under_way.pop_front() } else { None };
        drop(state);
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_sub(gone.map_or(0, |walk| walk.bytes()), Relaxed);
    }

    /// Drops all kept pages. A listing under way restarts (R4).
    pub(super) fn give_up(&self) {
        let gone = std::mem::take(&mut self.state.lock().under_way);
        // ORDERING: Relaxed; a size.
        self.bytes.fetch_sub(gone.iter().map(Walk::bytes).sum(), Relaxed);
    }
}

impl Walk {
    fn new(number: u64, directory: InodeId) -> Self {
        Self {
            number,
            directory,
            first: 0,
            page: Vec::new(),
            questions: Vec::new(),
            next: None,
            open: Vec::new(),
            in_work: Vec::new(),
            fresh: true,
            pages: Pages::default(),
        }
    }

    fn bytes(&self) -> u64 {
        let names = self.page.iter().flatten().map(|(name, _)| name.len() + 48);
        (names.sum::<usize>() + self.page.len() * size_of::<Named>() + size_of::<Self>()) as u64
    }

    /// The question that the entry at `place`, which is kept, is an answer to.
    fn question(&self, place: u64) -> &Question {
        let after = self.questions.partition_point(|(first, _)| *first <= place);
        &self.questions[after - 1].1
    }

    /// Number of the entry after those that are kept.
    fn end(&self) -> u64 {
        self.first + self.page.len() as u64
    }

    fn cookie(&self, place: u64) -> Cookie {
        Cookie(self.number << PLACE_BITS | place)
    }

    /// Keeps no entries before `place`, where a reader is.
    fn forget_before(&mut self, place: u64) {
        let place = place.clamp(self.first, self.end());
        self.page.drain(..(place - self.first) as usize);
        self.first = place;
        let before = self.questions.partition_point(|(first, _)| *first <= place);
        self.questions.drain(..before.saturating_sub(1));
    }

    /// Moves on to `page` of the listing below `prefix`; returns the number of its hidden entries.
    fn turn(&mut self, prefix: &str, page: Page) -> u64 {
        self.next = page.next;
        self.fresh = false;
        let (open, in_work) = (&mut self.open, &mut self.in_work);
        let mut hidden = 0;
        let mut named = |listed: Listed| {
            let Shown::As(name) = path::shown(prefix, &listed) else {
                // The content of a directory's marker object has no name, either.
                let has_content = matches!(listed.kind, Kind::Object { size, .. } if size > 0);
                let is_hidden = path::shown(prefix, &listed) == Shown::Hidden;
                hidden += u64::from(is_hidden || has_content);
                return None;
            };
            open.retain(|object| name.starts_with(&**object));
            let named = match listed.kind.clone() {
                Kind::Prefix if open.iter().any(|object| **object == *name) => {
                    hidden += 1;
                    return None;
                }
                Kind::Prefix => What::Directory,
                Kind::Object { tag, size, modified } => {
                    open.push(name.into());
                    What::Object { tag, size, modified }
                }
            };
            in_work.retain(|other| **other != *name);
            Some((name.into(), named))
        };
        self.page.extend(page.entries.into_iter().map(&mut named));
        hidden
    }
}

impl Names for Shared {
    fn lookup(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let directory = self.node_of_directory(parent)?;
        let key = path::key_of(&directory.key(), name).ok_or(Error::NotFound)?;
        if let Some(node) = self.uploads.here.find(&key, |id| self.table.refer_to(id)) {
            return self.entry(&node);
        }
        let asked = self.uploads.here.ask();
        let found = self.find(&key).map_err(|error| self.user_error("finding", &key, error))?;
        let place = (&directory, node_name(&key));
        match self.uploads.here.refer(&self.table, place, &asked, found) {
            Some(node) => self.entry(&node),
            None => Err(Error::NotFound),
        }
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        let node = self.node_of_directory(directory.inode)?;
        let (mut walk, place) = self.listings.take(directory.inode, from);
        let listed = self.go_on(&node, &mut walk, place, listing);
        self.listings.keep(walk);
        listed
    }

    fn lists_below(&self, directory: InodeId) -> bool {
        let node = self.node_of_directory(directory);
        node.is_ok_and(|node| node.parent().is_some_and(|parent| self.series.next(parent.id)))
    }

    fn list_below(&self, directory: InodeId, below: &mut dyn Below) -> Result<()> {
        self.list_siblings(directory, below)
    }

    fn unlink(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.unlink(parent, name)
    }

    fn remove_directory(&self, _: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.remove_directory(parent, name)
    }

    fn rename(
        &self,
        _: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.rename(from, to, mode)
    }
}

/// The last name in a key.
pub(super) fn node_name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

impl Shared {
    pub(super) fn node_of_directory(&self, id: InodeId) -> Result<Arc<Node>> {
        let node = self.table.get(id).ok_or(Error::Stale)?;
        if node.what == What::Directory { Ok(node) } else { Err(Error::NotDirectory) }
    }

    /// An entry with the reference that `node` was found with.
    pub(super) fn entry(&self, node: &Node) -> Result<Entry> {
        Ok(Entry { inode: node.id, attributes: self.attributes_of(node.id)? })
    }

    /// The object `key`, or the directory of that name if keys lie below it.
    pub(super) fn find(&self, key: &str) -> crate::store::Result<Option<What>> {
        let delimiter = Delimiter::Slash;
        let first = ListRequest {
            prefix: key,
            delimiter,
            token: None,
            after: None,
            entries_max: LOOKUP_MAX,
        };
        let page = self.store.list_page(&first)?;
        for listed in page.entries {
            match listed.kind {
                Kind::Object { tag, size, modified } if listed.key == key => {
                    return Ok(Some(What::Object { tag, size, modified }));
                }
                Kind::Prefix if listed.key.strip_suffix('/') == Some(key) => {
                    return Ok(Some(What::Directory));
                }
                _ => {}
            }
        }
        if page.next.is_none() {
            return Ok(None);
        }
        // Too many keys begin with it to see whether some lie below it.
        let below = format!("{key}/");
        let page =
            self.store.list_page(&ListRequest { prefix: &below, entries_max: 1, ..first })?;
        Ok((!page.entries.is_empty()).then_some(What::Directory))
    }

    /// Lists from `place` on, which is not before the page of `walk`.
    fn go_on(
        &self,
        directory: &Arc<Node>,
        walk: &mut Walk,
        mut place: u64,
        listing: &mut dyn Listing,
    ) -> Result<()> {
        let prefix = directory.key();
        let start = place;
        loop {
            walk.forget_before(start);
            while place < walk.end() {
                let next = walk.cookie(place + 1);
                if let Some((name, what)) = &walk.page[(place - walk.first) as usize] {
                    // A file that was in work may have been removed since.
                    let stored = matches!(what, What::Directory | What::Object { .. });
                    let listed = stored.then(|| what.clone());
                    let asked = walk.question(place);
                    let node =
                        self.uploads.here.refer(&self.table, (directory, name), asked, listed);
                    let Some(node) = node else {
                        place += 1;
                        continue;
                    };
                    if !listing.add_entry(Name::new(name.as_bytes())?, next, self.entry(&node)?) {
                        self.table.forget(node.id, 1);
                        return Ok(());
                    }
                }
                place += 1;
            }
            if walk.next.is_none() && !walk.fresh {
                if walk.in_work.is_empty() {
                    // The kernel asks once more behind the end.
                    return Ok(());
                }
                walk.questions.push((walk.end(), self.uploads.here.ask()));
                for name in std::mem::take(&mut walk.in_work) {
                    let key = Node::key_below(directory, &name);
                    let here = self.uploads.here.find(&key, |id| self.table.get(id));
                    let what = match here {
                        Some(node) => Some(node.what.clone()),
                        // It was closed since, or removed.
                        None => self
                            .find(&key)
                            .map_err(|error| self.user_error("finding", &key, error))?,
                    };
                    walk.page.extend(what.map(|what| Some((name, what))));
                }
                continue;
            }
            if walk.fresh {
                walk.in_work = self.uploads.here.names_in(&prefix);
            }
            let (delimiter, token) = (Delimiter::Slash, walk.next.as_deref());
            let request = ListRequest {
                prefix: &prefix,
                delimiter,
                token,
                after: None,
                entries_max: PAGE_MAX,
            };
            let asked = self.uploads.here.ask();
            let page = self.store.list_page(&request);
            let page = page.map_err(|error| self.user_error("listing", &prefix, error))?;
            if !walk.pages.go_on(page.next.as_deref()) {
                let error = StoreError::Broken("the pages of the listing go in a circle");
                return Err(self.user_error("listing", &prefix, error));
            }
            walk.questions.push((walk.end(), asked));
            if page
                .entries
                .first()
                .is_some_and(|entry| path::shown(&prefix, entry) == Shown::Marker)
            {
                self.table.mark(directory.id, true);
            }
            let hidden = walk.turn(&prefix, page);
            if hidden > 0 {
                self.hidden.add(hidden);
                let prefix = prefix.escape_debug();
                log::warn!(
                    "`{prefix}`: {hidden} keys are hidden: they are no file names, or another object has the name"
                );
            }
        }
    }
}
