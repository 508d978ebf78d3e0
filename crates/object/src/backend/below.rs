//! Many directories by one listing: keys that are not cut at `/` are a depth-first walk.
//!
//! # Boundary
//! Turns one page of keys from a directory on into directories and entries. The core decides when to use it.
//!
//! # Rules
//! B1. Directories and names are the same as in a listing of each directory: R1 of [`super::names`], hidden keys, files in
//! work. A directory with a file in work is reported as incomplete.
//! B2. If the page ends before the listing does, the directories that are open then are incomplete.
//! B3. The listing begins behind the directory's own marker, so it does not show whether there is one.
//!
//! # Why
//! A page has a thousand keys, of any number of directories: a tree of many small directories costs a request for each
//! thousand objects and not one for each directory. Weakness: for a directory with a large tree below, the page holds that
//! tree, which a program that does not descend has no use for.

use super::Shared;
use super::here::Question;
use super::names::PAGE_MAX;
use super::table::{Node, What};
use crate::store::{Delimiter, Kind, ListRequest, Listed, Store};
use std::sync::Arc;
use uvfs_vfs::{Below, InodeId, Name, Result};

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
}

impl Shared {
    /// Reports the directory `id` and the entries behind it in its parent, as far as a page reaches.
    pub(super) fn list_siblings(&self, id: InodeId, below: &mut dyn Below) -> Result<()> {
        let node = self.node_of_directory(id)?;
        let Some(parent) = node.parent() else { return Ok(()) };
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
        let page = page.map_err(|error| self.told("listing", &prefix, error))?;
        let open = vec![Open::new(parent.clone())];
        let mut way = Way { shared: self, open, below, hidden: 0, asked };
        way.enter(node.name())?;
        for listed in page.entries {
            way.meet(listed)?;
        }
        while way.open.len() > 1 {
            way.leave(page.next.is_none());
        }
        self.hidden.add(way.hidden);
        Ok(())
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
