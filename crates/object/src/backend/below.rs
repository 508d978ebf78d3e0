//! Many directories by one listing: keys that are not cut at `/` are a depth-first walk.
//!
//! # Boundary
//! Turns one page of keys from a directory on into directories and entries. [`Series`] decides when that is worth a
//! request. The core keeps what is listed.
//!
//! # Rules
//! B1. Directories and names are the same as in a listing of each directory: R1 of [`super::names`], hidden keys, files in
//! work. A directory with a file in work is reported as incomplete.
//! B2. If the page ends before the listing does, the directories that are open then are incomplete.
//! B3. The listing begins behind the directory's own marker, so it does not show whether there is one.
//! B4. The second directory of a parent that is listed has those behind it listed with it. If the page did not reach the
//! end of even that one, the next try comes after a pause of 2, 4, … 64 further directories of the parent.
//!
//! # Why
//! A page has a thousand keys, of any number of directories: a tree of many small directories costs a request for each
//! thousand objects and not one for each directory. Weakness: for a directory with a large tree below, the page holds that
//! tree, which a program that does not descend has no use for.

use super::Shared;
use super::here::Question;
use super::names::PAGE_MAX;
use super::table::{Node, What};
use crate::lock_order::OBJECT_LISTINGS;
use crate::store::{Delimiter, Kind, ListRequest, Listed, Store};
use std::collections::VecDeque;
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::{Below, InodeId, Name, Result};

/// Directories of one parent that are listed one by one before many are requested together (B4).
const LISTED_MIN: u32 = 2;
/// The longest pause, in directories.
const PAUSE_MAX: u32 = 64;
/// Parents that are remembered: more than a program has above it.
const PARENTS_MAX: usize = 64;

/// The parents whose directories were listed lately, the last one at the end.
#[derive(Debug)]
pub(super) struct Series(Mutex<VecDeque<Parent>>);

#[derive(Debug)]
struct Parent {
    id: InodeId,
    /// Directories in it that were to be listed alone.
    listed: u32,
    /// Directories to wait before the next request for many.
    pause: u32,
    /// The length of the last pause.
    paused: u32,
}

impl Series {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&OBJECT_LISTINGS, VecDeque::new()))
    }

    /// A directory of `parent` is about to be listed. Whether to list those behind it, too.
    pub(super) fn next(&self, parent: InodeId) -> bool {
        self.at(parent, |parent| {
            parent.listed = parent.listed.saturating_add(1);
            let is_due = parent.pause == 0 && parent.listed >= LISTED_MIN;
            parent.pause = parent.pause.saturating_sub(1);
            is_due
        })
    }

    /// The request for many directories of `parent` has listed the first one whole, or not.
    fn ended(&self, parent: InodeId, helped: bool) {
        self.at(parent, |parent| {
            let pause = if helped { 0 } else { (parent.paused * 2).clamp(2, PAUSE_MAX) };
            (parent.pause, parent.paused) = (pause, pause);
        });
    }

    fn at<T>(&self, id: InodeId, change: impl FnOnce(&mut Parent) -> T) -> T {
        let mut parents = self.0.lock();
        let place = parents.iter().rposition(|parent| parent.id == id);
        let known = place.and_then(|place| parents.remove(place));
        let mut parent = known.unwrap_or(Parent { id, listed: 0, pause: 0, paused: 0 });
        let changed = change(&mut parent);
        if parents.len() >= PARENTS_MAX {
            parents.pop_front();
        }
        parents.push_back(parent);
        changed
    }
}

/// A directory that is being reported.
struct Open {
    node: Arc<Node>,
    prefix: String,
    /// Objects whose keys the last key began with.
    objects: Vec<Box<str>>,
}

impl Open {
    fn new(node: Arc<Node>) -> Self {
        Self { prefix: node.key(), node, objects: Vec::new() }
    }
}

/// The way to the directory that is open, the parent of the first one at its start.
struct Way<'a> {
    shared: &'a Shared,
    open: Vec<Open>,
    below: &'a mut dyn Below,
    hidden: u64,
    asked: Question,
    /// Whether the first directory was whole, once it has ended.
    first: Option<bool>,
}

impl Shared {
    /// Reports the directory `id` and the entries behind it in its parent, as far as a page reaches.
    pub(super) fn list_siblings(&self, id: InodeId, below: &mut dyn Below) -> Result<()> {
        let node = self.node_of_directory(id)?;
        let Some(parent) = node.parent() else { return Ok(()) };
        let listed = self.list_behind(parent, &node, below);
        self.series.ended(parent.id, matches!(listed, Ok(true)));
        listed.map(|_| ())
    }

    /// Returns whether the page has all of `node`.
    fn list_behind(
        &self,
        parent: &Arc<Node>,
        node: &Arc<Node>,
        below: &mut dyn Below,
    ) -> Result<bool> {
        let (prefix, after) = (parent.key(), node.key());
        let request = ListRequest {
            prefix: &prefix,
            delimiter: Delimiter::None,
            token: None,
            after: Some(&after),
            entries_max: PAGE_MAX,
        };
        let asked = self.uploads.here.ask();
        let page = self.store.list_page(&request);
        let page = page.map_err(|error| self.user_error("listing", &prefix, error))?;
        let open = vec![Open::new(parent.clone())];
        let mut way = Way { shared: self, open, below, hidden: 0, asked, first: None };
        way.enter(node.name())?;
        for listed in page.entries {
            way.meet(listed)?;
        }
        while way.open.len() > 1 {
            way.leave(page.next.is_none());
        }
        self.hidden.add(way.hidden);
        Ok(way.first == Some(true))
    }
}

impl Way<'_> {
    fn enter(&mut self, name: &str) -> Result<()> {
        let Some(top) = self.open.last() else { return Ok(()) };
        let node = self.shared.table.refer(&top.node, name, What::Directory);
        self.below.enter(Name::new(name.as_bytes())?, self.shared.entry(&node)?);
        self.open.push(Open::new(node));
        Ok(())
    }

    fn leave(&mut self, whole: bool) {
        let Some(left) = self.open.pop() else { return };
        let whole = whole && self.shared.uploads.here.names_in(&left.prefix).is_empty();
        if self.open.len() == 1 {
            self.first.get_or_insert(whole);
        }
        self.below.leave(whole);
    }

    fn meet(&mut self, listed: Listed) -> Result<()> {
        let Listed { key, kind } = listed;
        // Keys of one directory are adjacent: a directory without this key has ended.
        while self.open.len() > 1
            && self.open.last().is_some_and(|top| !key.starts_with(&*top.prefix))
        {
            self.leave(true);
        }
        loop {
            let is_first = self.open.len() == 1;
            let Some(top) = self.open.last_mut() else { return Ok(()) };
            let Some(rest) = key.strip_prefix(&*top.prefix) else { return Ok(()) };
            if rest.is_empty() {
                self.shared.table.mark(top.node.id, true);
                return Ok(());
            }
            let (name, goes_down) = match rest.split_once('/') {
                Some((name, _)) => (name, true),
                None => (rest, false),
            };
            top.objects.retain(|object| name.starts_with(&**object));
            let is_hidden = Name::new(name.as_bytes()).is_err()
                || goes_down && top.objects.iter().any(|object| **object == *name);
            if is_hidden {
                self.hidden += u64::from(!is_first);
                return Ok(());
            }
            if goes_down {
                self.enter(name)?;
                continue;
            }
            top.objects.push(name.into());
            // The page has only some entries of the parent, so the parent is not reported.
            if let (Kind::Object { tag, size, modified }, false) = (kind, is_first) {
                let what = What::Object { tag, size, modified };
                let (table, here) = (&self.shared.table, &self.shared.uploads.here);
                if let Some(node) = here.refer(table, (&top.node, name), &self.asked, Some(what)) {
                    self.below.add(Name::new(name.as_bytes())?, self.shared.entry(&node)?);
                }
            }
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_directory_starts_it_and_requests_in_vain_are_made_less_often() {
        let (series, parent) = (Series::new(), InodeId(7));
        let asks_until = || (1..).find(|_| series.next(parent)).unwrap();
        assert_eq!(asks_until(), 2, "the second one");
        assert_eq!(asks_until(), 1, "the request is under way");
        for pause in [2, 4, 8, 16, 32, 64, 64] {
            series.ended(parent, false);
            assert_eq!(asks_until(), pause + 1);
        }
        series.ended(parent, true);
        assert_eq!(asks_until(), 1);
    }

    #[test]
    fn parents_that_were_not_met_lately_are_forgotten() {
        let series = Series::new();
        for id in 0..PARENTS_MAX as u64 + 1 {
            assert!(!series.next(InodeId(id)));
        }
        assert!(series.next(InodeId(1)) && !series.next(InodeId(0)));
        assert_eq!(series.0.lock().len(), PARENTS_MAX);
    }
}
