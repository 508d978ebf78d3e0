//! Lists a directory.
//!
//! # Boundary
//! From the store into the caches and to the caller, or from the caches where a whole listing is kept ([`Listings`]).
//! [`crate::inode::Listed`] keeps the listings.
//!
//! # Concurrency
//! The backend may hold its own locks while it fills a batch. After it has returned, the entries are adopted into the
//! caches and offered to the caller. Entries for which the caller has no room drop their references.
//!
//! # From the cache
//! If a directory is complete when a listing begins, its list answers the listing to the end, whatever changes
//! meanwhile: an entry that stays is seen once. If the list is evicted meanwhile, the rest comes from the store,
//! without the names already offered. Names that the table does not have any more are left out. Where other programs
//! change the store, an expired list stays valid for its period once more, for names and for listings. Meanwhile one
//! thread lists the directory again, so that an expiry does not cause a request for each entry.
//!
//! A store may list a directory together with its siblings in one request ([`crate::Names::list_below`]), and decides
//! when that is worth it.

use crate::attributes::{Attributes, FileKind};
use crate::backend::{Authority, Below, Cookie, Entry, FileRef, Listing, Listings};
use crate::background::Job;
use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::inode::{
    Asked, Expiry, Listed, Node, POSITIONS_MAX, PassedOver, Progress, Recording, Ticket, place_of,
};
use crate::name::Name;
use crate::names::{Arrival, Key};
use crate::permission::Access;
use crate::vfs::{Core, Reported, Vfs};
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::epoch;

/// Entries requested from the store at once, at most.
const BATCH_MAX: usize = 1024;
/// Entries of an expired list for whose refresh a lookup waits: one page of most stores. A longer list is refreshed in
/// the background.
const WAITED_FOR_MAX: usize = 1000;

/// Receives the entries of a directory from [`Vfs::list`].
pub trait Entries {
    /// About how many more entries there is room for; sizes the batches.
    fn room(&self) -> usize;

    /// Whether attributes (and held nodes) are wanted, rather than names.
    fn wants_nodes(&self) -> bool;

    /// Takes a name. False when there was no room for it; nothing more is offered then.
    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool;

    /// Takes an entry with its node and attributes, which are valid for `valid` (name, attributes). False when there
    /// was no room.
    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool;
}

enum Item {
    Name { number: u64, kind: FileKind },
    Entry(Entry),
}

/// One batch from the store.
struct Batch {
    items: Vec<(Box<[u8]>, Cookie, Item)>,
    limit: usize,
    wants_attributes: bool,
    /// The store's largest permitted position.
    positions: u64,
    /// The store returned a larger one.
    is_beyond: bool,
}

impl Batch {
    fn add(&mut self, name: Name<'_>, next: Cookie, item: Item) -> bool {
        if next.0 > self.positions {
            self.is_beyond = true;
        }
        if self.items.len() >= self.limit {
            return false;
        }
        self.items.push((name.as_bytes().into(), next, item));
        true
    }
}

impl Listing for Batch {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        self.add(name, next, Item::Name { number, kind })
    }

    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool {
        self.add(name, next, Item::Entry(entry))
    }

    fn wants_attributes(&self) -> bool {
        self.wants_attributes
    }
}

impl Vfs {
    /// Lists `directory` from `from` on into `entries`, until its end or until there is no room.
    /// `.` and `..` are left out. May block.
    ///
    /// # Errors
    /// [`Error::NotDirectory`]; [`Error::Access`] without read permission, checked here only for
    /// directories that are not open (`file` unopened).
    pub fn list(
        &self,
        caller: &Caller,
        directory: &Node,
        file: FileRef,
        from: Cookie,
        entries: &mut dyn Entries,
    ) -> Result<()> {
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        if file == FileRef::unopened(directory.id()) {
            self.check(caller, directory, Access::READ)?;
        }
        let core = &self.core;
        if !core.keeps_listings() {
            return core.list_in_store(directory, file, from, entries);
        }
        let kept = match from {
            Cookie(0) => core.listed_now(directory).map(|listed| (listed, 0)),
            _ => directory.inode.dir_state().known_kept().and_then(|mut kept| kept.at(from)),
        };
        match (kept, place_of(from)) {
            (Some((listed, place)), _) => {
                core.counters.listing_hits.hit();
                core.offer_listed(directory, (&listed, place), entries);
                directory.inode.was_read(&core.clock);
                Ok(())
            }
            (None, None) => {
                core.counters.listing_misses.hit();
                core.list_in_store(directory, file, from, entries)
            }
            // The list was evicted: entries already offered are passed over.
            (None, Some(_)) => {
                core.counters.listing_misses.hit();
                let kept = directory.inode.dir_state().known_kept();
                let offered = kept.and_then(|kept| kept.offered_before(from));
                // If that is unknown, names are offered twice rather than not at all.
                let passed_over = offered.map(|(offered, place)| offered.before(place));
                let mut rest = Rest { passed_over, entries };
                core.list_in_store(directory, file, Cookie::default(), &mut rest)
            }
        }
    }

    /// Lists `directory` again now, into the caches: names, attributes and completeness. May block.
    ///
    /// # Errors
    /// The store's. Then the caches are unchanged.
    pub fn refresh(&self, directory: &Node) -> Result<()> {
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        self.core.list_again(directory)
    }
}

/// Takes every entry, for callers that want them in the cache only.
struct Everything;

impl Entries for Everything {
    fn room(&self) -> usize {
        BATCH_MAX
    }

    fn wants_nodes(&self) -> bool {
        true
    }

    fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        true
    }

    fn node(
        &mut self,
        _: Name<'_>,
        _: Cookie,
        _: Node,
        _: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        true
    }
}

/// Passes over entries that were already offered.
struct Rest<'a> {
    passed_over: Option<PassedOver>,
    entries: &'a mut dyn Entries,
}

impl Rest<'_> {
    fn passes_over(&mut self, name: Name<'_>) -> bool {
        self.passed_over.as_mut().is_some_and(|passed_over| passed_over.takes(name.as_bytes()))
    }
}

impl Entries for Rest<'_> {
    fn room(&self) -> usize {
        self.entries.room().max(self.passed_over.as_ref().map_or(0, PassedOver::len))
    }

    fn wants_nodes(&self) -> bool {
        self.entries.wants_nodes()
    }

    fn name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        self.passes_over(name) || self.entries.name(name, next, number, kind)
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        node: Node,
        attributes: &Attributes,
        valid: (Duration, Duration),
    ) -> bool {
        self.passes_over(name) || self.entries.node(name, next, node, attributes, valid)
    }
}

/// The present state of a name of a list.
enum Now {
    /// It leads to this object, and is valid for this time.
    Here(Node, Duration),
    /// It does not exist.
    Gone,
    /// Only the store can say.
    Unknown,
}

/// Listings from the cache.
impl Core {
    /// Whether whole listings are kept.
    pub(crate) fn keeps_listings(&self) -> bool {
        self.capabilities.listings != Listings::Asked
    }

    /// The present listing of `directory`, if it is known: from the cache, or fetched together with its siblings.
    fn listed_now(&self, directory: &Node) -> Option<Arc<Listed>> {
        self.listed_whole(directory).or_else(|| {
            self.list_siblings(directory);
            self.listed_whole(directory)
        })
    }

    /// The list of `directory`, if it has all of its names. An expired list is refreshed.
    fn listed_whole(&self, directory: &Node) -> Option<Arc<Listed>> {
        if !self.learn_cleans(&directory.inode) {
            return None;
        }
        let known = directory.inode.known_directory()?;
        let claim = known.complete.claim()?;
        let until = Expiry::from_word(claim.until());
        let is_valid = until.valid();
        if !is_valid && !self.is_believed_once_more(until) {
            return None;
        }
        let listed = known.known_kept()?.whole()?;
        if !known.complete.stands(claim, self.names.losses(), directory.id().0) {
            return None;
        }
        if !is_valid {
            self.counters.listing_stale_hits.hit();
            self.refresh_listing_soon(directory);
        }
        Some(listed)
    }

    /// Whether a list that was valid until `until` still counts while it is refreshed.
    fn is_believed_once_more(&self, until: Expiry) -> bool {
        let span = self.config.entry_timeout.min(self.config.negative_timeout);
        self.capabilities.authority == Authority::Shared && until.later_by(span).valid()
    }

    /// Offers entries of a list, from a place on.
    fn offer_listed(
        &self,
        directory: &Node,
        (listed, from): (&Listed, usize),
        entries: &mut dyn Entries,
    ) {
        let mut place = from;
        while let Some((bytes, number, kind)) = listed.get(place) {
            place += 1;
            let (Ok(name), next) = (Name::new(bytes), listed.cookie(place)) else { continue };
            let wanted = match self.name_now(directory, self.names.key(directory.id(), name)) {
                Now::Gone => true,
                Now::Here(node, valid) if entries.wants_nodes() => {
                    let last = node.inode.last_attributes();
                    let (attributes, remains) = node.inode.believed(last);
                    entries.node(name, next, node, &attributes, (valid, remains))
                }
                Now::Here(node, _) => entries.name(name, next, node.number(), node.kind()),
                Now::Unknown => entries.name(name, next, number, kind),
            };
            if !wanted {
                if let Some(mut kept) = directory.inode.dir_state().known_kept() {
                    kept.stopped(listed.number(), place - 1);
                }
                return;
            }
        }
    }

    /// The present state of a name, from a listing of `directory`. An expired name counts as unchanged.
    fn name_now(&self, directory: &Node, key: Key<'_>) -> Now {
        let guard = epoch::pin();
        let known = directory.inode.dir_state();
        let claim = known.complete.claim();
        match self.names.last_known(&guard, &directory.inode, key) {
            // Not proof that the name is gone: its inode was evicted, or another name of its inode was removed.
            Some((_, false)) => Now::Unknown,
            Some((dentry, true)) => match dentry.inode().map(Node::try_hold) {
                Some(Some(node)) => Now::Here(node, dentry.expiry().remains()),
                Some(None) => Now::Unknown,
                None => Now::Gone,
            },
            None => match claim {
                Some(claim)
                    if known.complete.stands(claim, self.names.losses(), directory.id().0) =>
                {
                    Now::Gone
                }
                _ => Now::Unknown,
            },
        }
    }

    /// The answer about an expired name, from a list that expired recently enough ([`Core::is_believed_once_more`]) and
    /// is refreshed now. A list that expired earlier is refreshed first, if it is short; then this returns `None`, too.
    pub(super) fn expired_answer(&self, directory: &Node, key: Key<'_>) -> Option<Option<Node>> {
        if !self.keeps_listings() || !self.shared() || !self.learn_cleans(&directory.inode) {
            return None;
        }
        let known = directory.inode.known_directory()?;
        let claim = known.complete.claim()?;
        let until = Expiry::from_word(claim.until());
        if until.valid() || until == Expiry::EXPIRED {
            return None;
        }
        let length = known.known_kept()?.current()?.len();
        if !self.is_believed_once_more(until) {
            let refresh = match length <= WAITED_FOR_MAX {
                true => self.begin_refresh(directory),
                false => None,
            };
            match refresh {
                Some(refresh) => self.refresh_listing(refresh),
                None => self.refresh_listing_soon(directory),
            }
            return None;
        }
        let answer = match self.name_now(directory, key) {
            Now::Here(node, _) => Some(node),
            Now::Gone => None,
            Now::Unknown => return None,
        };
        if !known.complete.stands(claim, self.names.losses(), directory.id().0) {
            return None;
        }
        self.counters.listing_stale_hits.hit();
        self.refresh_listing_soon(directory);
        Some(answer)
    }
}

/// A directory to be listed again, by one thread at a time. Dropping it ends the refresh, also if the store panics or
/// the job is never performed. The next listing that finds the list expired begins another refresh.
#[derive(Debug)]
pub(crate) struct Refresh(Node);

impl Drop for Refresh {
    fn drop(&mut self) {
        self.0.inode.dir_state().kept().refreshing = false;
    }
}

/// Refreshing lists.
impl Core {
    /// The caller lists `directory` again. `None` if another thread does so already.
    fn begin_refresh(&self, directory: &Node) -> Option<Refresh> {
        let mut kept = directory.inode.dir_state().kept();
        let begins = !std::mem::replace(&mut kept.refreshing, true);
        begins.then(|| Refresh(directory.clone()))
    }

    /// Lists `directory` again in the background, if no other thread does.
    fn refresh_listing_soon(&self, directory: &Node) {
        if let Some(refresh) = self.begin_refresh(directory) {
            // A refused job is dropped, which ends the refresh.
            let _ = self.background.submit(self, Job::List(refresh));
        }
    }

    /// Lists a directory again. No thread waits for it, so it reports no errors. After an error, cached entries stay
    /// for as long as they are valid.
    pub(crate) fn refresh_listing(&self, refresh: Refresh) {
        if let Err(error) = self.list_again(&refresh.0) {
            log::debug!("listing inode {} again: {error}", refresh.0.id().0);
        }
        self.counters.listings_refreshed.hit();
    }

    fn list_again(&self, directory: &Node) -> Result<()> {
        let file = FileRef::unopened(directory.id());
        self.list_in_store(directory, file, Cookie::default(), &mut Everything)
    }
}

/// Listings from the store.
impl Core {
    fn list_in_store(
        &self,
        directory: &Node,
        file: FileRef,
        from: Cookie,
        entries: &mut dyn Entries,
    ) -> Result<()> {
        let mut at = from;
        let mut progress = self.start_listing(directory, from);
        loop {
            // A caller that wants names only gets few objects, if any. Its ticket does not advance the clock.
            let asked = match entries.wants_nodes() {
                true => self.clock.now().into(),
                false => directory.inode.ask_entries(&self.clock),
            };
            let reported = match entries.wants_nodes() {
                true => self.reported_names(directory.id()),
                false => Reported::NO,
            };
            let mut batch = Batch {
                items: Vec::new(),
                limit: entries.room().clamp(1, BATCH_MAX),
                wants_attributes: entries.wants_nodes(),
                positions: if self.keeps_listings() { POSITIONS_MAX } else { u64::MAX },
                is_beyond: false,
            };
            let listed = self.backend().names().list(file, at, &mut batch);
            let (full, is_beyond) = (batch.items.len() >= batch.limit, batch.is_beyond);
            let entries_only = batch.items.iter().all(|item| matches!(item.2, Item::Entry(_)));
            let mut recording = progress.as_mut().and_then(|progress| progress.recording.take());
            let took_all =
                self.offer(directory, (asked, reported), batch, entries, (&mut at, &mut recording));
            listed?;
            if is_beyond {
                // It would be taken for a place in a kept list, and names would be missing.
                return Err(Error::Corrupt(
                    "the store's position in a directory is beyond those that it may have",
                ));
            }
            // Names lost during the listing make the list useless, however long it gets.
            let losses = self.names.losses().of(directory.id().0);
            progress = progress.filter(|known| entries_only && known.losses == losses);
            if let Some(progress) = &mut progress {
                progress.recording = recording;
            }
            if !took_all || !full {
                self.end_listing(directory, progress, at, took_all && !full);
                directory.inode.was_read(&self.clock);
                return Ok(());
            }
        }
    }

    /// A listing begins, or continues where the last recorded one has stopped.
    fn start_listing(&self, directory: &Node, from: Cookie) -> Option<Progress> {
        let asked = match from == Cookie::default() && self.keeps_listings() {
            // Above all earlier stamps: a cached name that is missing from the list is then known to be older than it.
            true => self.clock.tick().into(),
            false => directory.inode.ask_entries(&self.clock),
        };
        let reported = match from == Cookie::default() {
            true => self.reported_names(directory.id()),
            false => Reported::NO,
        };
        let mut listing = directory.inode.dir_state().listing.lock();
        if from == Cookie::default() {
            let losses = self.names.losses().of(directory.id().0);
            let until = self.complete_expiry(reported);
            let recording = self.keeps_listings().then(|| Recording::new(&self.listed));
            return Some(Progress { asked, losses, until, next: from, recording });
        }
        listing.take().filter(|known| known.next == from).map(|known| *known)
    }

    /// A listing stops at `at`, for now or at its end. If all of it went into the cache and nothing has changed since
    /// it began, the directory is complete.
    fn end_listing(&self, directory: &Node, progress: Option<Progress>, at: Cookie, ended: bool) {
        let Some(progress) = progress else { return };
        let known = directory.inode.dir_state();
        if !ended {
            *known.listing.lock() = Some(Box::new(Progress { next: at, ..progress }));
            return;
        }
        let listed = progress.recording.map(|recording| recording.finish(&self.listed));
        self.declare_listed(directory, progress.asked, (progress.losses, progress.until), listed);
    }

    /// All names of `directory` were cached, from questions after `asked`.
    fn declare_listed(
        &self,
        directory: &Node,
        asked: impl Into<Asked>,
        (losses, until): (u64, Expiry),
        listed: Option<Arc<Listed>>,
    ) {
        let asked = asked.into();
        // Long lists are compared before the lock is taken: every lookup in the directory waits for that lock.
        let known = directory.inode.dir_state();
        let current = || known.known_kept()?.current().cloned();
        let compared = current().filter(|_| listed.is_some());
        let mut gone = match (&compared, &listed) {
            (Some(old), Some(listed)) => old.names_without(listed),
            _ => Vec::new(),
        };
        let changes = directory.inode.dir_state().entries.lock();
        if !changes.admits(asked) {
            return;
        }
        let old = current();
        if let (Some(old), Some(listed)) = (&old, &listed)
            && !compared.is_some_and(|compared| Arc::ptr_eq(&compared, old))
        {
            // Another listing ended meanwhile.
            gone = old.names_without(listed);
        }
        // Without a name, a complete directory denies it.
        known.complete.suspend();
        // Names that other programs have removed are dropped before they expire.
        for name in old.iter().flat_map(|old| gone.iter().filter_map(|&place| old.get(place))) {
            let key = Name::new(name.0).map(|name| self.names.key(directory.id(), name));
            if let Ok(key) = key
                && self.names.is_older(key, asked.ticket())
            {
                self.supersede_name(&directory.inode, key, || ());
            }
        }
        let old = directory.inode.declare_complete(losses, until, listed.clone());
        drop((changes, old));
        if listed.is_some() {
            self.has_list(directory);
        }
    }

    /// Offers a batch to the caller. Sets `at` to the position behind the entries that it took, and records them. True
    /// if it took all.
    fn offer(
        &self,
        directory: &Node,
        asked: (Asked, Reported),
        batch: Batch,
        entries: &mut dyn Entries,
        (at, recording): (&mut Cookie, &mut Option<Recording>),
    ) -> bool {
        let mut wanted = true;
        // A longer list would be dropped as soon as it is complete, and needs its memory twice until then.
        let list_bytes_max = self.list_bytes_max();
        for (name, next, item) in batch.items {
            let checked = Name::new(&name);
            let was_wanted = wanted;
            match item {
                Item::Name { number, kind } => {
                    let Ok(name) = checked else { continue };
                    wanted = wanted && entries.name(name, next, number, kind);
                }
                Item::Entry(entry) => match checked {
                    Ok(name) if wanted => {
                        wanted = self.offer_node(directory, asked, (name, next, entry), entries);
                        let (number, kind) = (entry.attributes.number, entry.attributes.kind);
                        if wanted
                            && let Some(names) = recording
                            && !(names.add(name.as_bytes(), number, kind)
                                && names.bytes() <= list_bytes_max)
                        {
                            *recording = None;
                        }
                    }
                    // An invalid name, or no room left.
                    _ => self.backend().inodes().forget(entry.inode, 1),
                },
            }
            if was_wanted && wanted {
                *at = next;
            }
        }
        wanted
    }

    fn offer_node(
        &self,
        directory: &Node,
        (asked, reported): (Asked, Reported),
        (name, next, entry): (Name<'_>, Cookie, Entry),
        entries: &mut dyn Entries,
    ) -> bool {
        let key = self.names.key(directory.id(), name);
        let (node, name_valid) = {
            let found = (key, &entry);
            self.admit(directory, asked, found, Arrival::Listed, reported)
        };
        let (attributes, valid) = node.inode.believed(entry.attributes);
        if entries.wants_nodes() {
            entries.node(name, next, node, &attributes, (name_valid, valid))
        } else {
            entries.name(name, next, entry.attributes.number, entry.attributes.kind)
        }
    }
}

/// The store's answer about several directories.
enum BelowStep {
    Enter(Box<[u8]>, Entry),
    Add(Box<[u8]>, Entry),
    Leave { whole: bool },
}

struct BelowSteps(Vec<BelowStep>);

impl Below for BelowSteps {
    fn enter(&mut self, name: Name<'_>, entry: Entry) {
        self.0.push(BelowStep::Enter(name.as_bytes().into(), entry));
    }

    fn add(&mut self, name: Name<'_>, entry: Entry) {
        self.0.push(BelowStep::Add(name.as_bytes().into(), entry));
    }

    fn leave(&mut self, whole: bool) {
        self.0.push(BelowStep::Leave { whole });
    }
}

/// A directory whose entries the store is returning.
struct Open {
    node: Node,
    losses: u64,
    recording: Recording,
}

/// Several directories in one request.
impl Core {
    /// `directory` is about to be listed by the store, which may list it together with its successors in its parent.
    fn list_siblings(&self, directory: &Node) {
        if !self.backend().names().lists_below(directory.id()) {
            return;
        }
        let Some(parent) = directory.parent() else { return };
        let (ticket, until) = (self.clock.tick(), self.complete_expiry(Reported::NO));
        let mut steps = BelowSteps(Vec::new());
        // After an error the directory is listed alone.
        let _ = self.backend().names().list_below(directory.id(), &mut steps);
        let (mut open, mut whole_count) = (Vec::<Open>::new(), 0);
        for step in steps.0 {
            let top = open.last().map_or(&parent, |open| &open.node).clone();
            match step {
                BelowStep::Enter(name, entry) => {
                    let losses = self.names.losses().of(entry.inode.0);
                    let Some(node) =
                        self.admit_listed(&top, ticket, (&name, entry), open.last_mut())
                    else {
                        // Ignore the rest of an answer with such a name.
                        break;
                    };
                    open.push(Open { node, losses, recording: Recording::new(&self.listed) });
                }
                BelowStep::Add(name, entry) => {
                    self.admit_listed(&top, ticket, (&name, entry), open.last_mut());
                }
                BelowStep::Leave { whole } => {
                    let Some(Open { node, losses, recording }) = open.pop() else { break };
                    if whole {
                        let listed = recording.finish(&self.listed);
                        self.declare_listed(&node, ticket, (losses, until), Some(listed));
                        whole_count += 1;
                    }
                }
            }
        }
        self.counters.listings_ahead.add(whole_count);
    }

    /// Admits an entry that the store has returned. Returns its object.
    fn admit_listed(
        &self,
        directory: &Node,
        ticket: Ticket,
        (name, entry): (&[u8], Entry),
        open: Option<&mut Open>,
    ) -> Option<Node> {
        let Ok(name) = Name::new(name) else {
            self.backend().inodes().forget(entry.inode, 1);
            return None;
        };
        let found = (self.names.key(directory.id(), name), &entry);
        let (node, _) = self.admit(directory, ticket, found, Arrival::Listed, Reported::NO);
        if let Some(open) = open {
            open.recording.add(name.as_bytes(), entry.attributes.number, entry.attributes.kind);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Capabilities, Data, InodeId, Inodes, Names, VfsConfig};

    /// A directory of one name, with this position behind it. With [`PANICS`] its listing panics.
    struct Store(u64);

    const PANICS: u64 = u64::MAX;

    fn entry(inode: u64, kind: FileKind) -> Entry {
        Entry { inode: InodeId(inode), attributes: Attributes::new(inode, kind, 0o755) }
    }

    impl Backend for Arc<Store> {
        fn capabilities(&self) -> Capabilities {
            Capabilities { listings: Listings::Kept, ..Capabilities::read_only("positions") }
        }
        fn root(&self) -> Result<Entry> {
            Ok(entry(1, FileKind::Directory))
        }
        fn names(&self) -> &dyn Names {
            self
        }
        fn inodes(&self) -> &dyn Inodes {
            self
        }
        fn data(&self) -> &dyn Data {
            self
        }
    }

    impl Names for Arc<Store> {
        fn lookup(&self, _: &Caller, _: InodeId, _: Name<'_>) -> Result<Entry> {
            Ok(entry(2, FileKind::Regular))
        }
        fn list(&self, _: FileRef, _: Cookie, listing: &mut dyn Listing) -> Result<()> {
            assert_ne!(self.0, PANICS, "a panic on purpose");
            let name = Name::new(b"a")?;
            listing.add_entry(name, Cookie(self.0), entry(2, FileKind::Regular));
            Ok(())
        }
    }

    impl Inodes for Arc<Store> {
        fn attributes(&self, _: FileRef) -> Result<Attributes> {
            Ok(entry(1, FileKind::Directory).attributes)
        }
    }

    impl Data for Arc<Store> {
        fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
            Ok(0)
        }
    }

    /// Images returned positions of 63 bits. Those with the highest bit were taken for places in a kept list. A listing
    /// continued there, and the names between were missing.
    #[test]
    fn a_position_that_could_be_one_of_ours_is_an_error_and_no_place() {
        for (position, is_right) in [(POSITIONS_MAX, true), (POSITIONS_MAX + 1, false)] {
            let vfs = Vfs::new(Arc::new(Store(position)), VfsConfig::default()).unwrap();
            let file = FileRef::unopened(vfs.root().id());
            let from = Cookie::default();
            let done = vfs.list(&Caller::root(), vfs.root(), file, from, &mut Everything);
            assert_eq!(done.is_ok(), is_right, "{done:?}");
        }
    }

    /// The store panicked while a directory was listed again. From then on the directory counted as being listed by
    /// another thread, and was not refreshed any more.
    #[test]
    fn a_refresh_that_panics_is_followed_by_another_one() {
        let vfs = Vfs::new(Arc::new(Store(PANICS)), VfsConfig::default()).unwrap();
        for _ in 0..2 {
            let refresh = vfs.core.begin_refresh(vfs.root()).expect("no other thread refreshes it");
            assert!(vfs.core.begin_refresh(vfs.root()).is_none());
            let listing = std::panic::AssertUnwindSafe(|| vfs.core.refresh_listing(refresh));
            assert!(std::panic::catch_unwind(listing).is_err());
        }
    }

    /// Counts names.
    struct Count(usize);

    impl Entries for Count {
        fn room(&self) -> usize {
            BATCH_MAX
        }
        fn wants_nodes(&self) -> bool {
            false
        }
        fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
            self.0 += 1;
            true
        }
        fn node(
            &mut self,
            _: Name<'_>,
            _: Cookie,
            _: Node,
            _: &Attributes,
            _: (Duration, Duration),
        ) -> bool {
            unreachable!("names are asked for")
        }
    }

    /// A file with two names lost one. Then its place is not known, so its other name must be asked for again. Kept
    /// listings left that name out as if it were gone. The same happened to names with evicted inodes.
    #[test]
    fn a_name_that_has_to_be_asked_for_again_is_listed() {
        let vfs = Vfs::new(Arc::new(Store(1)), VfsConfig::default()).unwrap();
        let (root, name) = (vfs.root(), Name::new(b"a").unwrap());
        let file = FileRef::unopened(root.id());
        let list = || {
            let mut count = Count(0);
            vfs.list(&Caller::root(), root, file, Cookie::default(), &mut count).unwrap();
            count.0
        };
        vfs.list(&Caller::root(), root, file, Cookie::default(), &mut Everything).unwrap();
        let hits = || vfs.statistics().listings.hits;
        assert_eq!((list(), hits()), (1, 1), "from the cache");
        let node = vfs
            .core
            .names
            .target(vfs.core.names.key(root.id(), name))
            .expect("it came with the listing");
        node.inode.forget_parent_hint();
        assert!(!node.inode.can_be_found());
        assert_eq!((list(), hits()), (1, 2));
        drop(node);
        vfs.core.inodes.clear_inactive(&vfs.core);
        assert_eq!((list(), hits()), (1, 3), "its inode is gone, and its name stays");
    }
}
