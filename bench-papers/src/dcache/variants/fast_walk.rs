//! `fast-walk`: Alexander Viro's walk. One hold of `dcache_lock` for all components that are cached.
//!
//! # Concurrency
//! No dentry can be dropped while the lock is held, so the dentries of the path need no reference:
//! only the last one gets its own. At a miss the walk takes a reference to the directory, releases
//! the lock, and continues like the plain walk.
//!
//! # Why
//! Section 7.1; part of Linux from 2.5.11. It saves the counts of directories that all paths share.

use super::super::api::{Walked, next_component};
use super::super::sites;
use super::super::slab::Wanted;
use super::global_lock::GlobalLock;

impl GlobalLock {
    pub(super) fn walk_under_lock<'p>(&self, path: &'p [u8]) -> Walked<'p> {
        let mut lists = sites::path_lookup(&self.dcache_lock);
        let (mut at, mut rest) = (self.root, path);
        while let Some((name, after)) = next_component(rest) {
            at = match name {
                b"." => at,
                b".." => self.slab.at(at).parent().filter(|_| at != self.root).unwrap_or(at),
                _ => match self.slab.find(&Wanted::new(at, name)) {
                    Some(next) => next,
                    None => {
                        self.dget_locked(&mut lists, at);
                        return Walked::Missing { directory: at, name, rest: after };
                    }
                },
            };
            if self.slab.at(at).inode() == 0 && next_component(after).is_some() {
                return Walked::NoEntry;
            }
            rest = after;
        }
        self.dget_locked(&mut lists, at);
        Walked::At(at)
    }
}
