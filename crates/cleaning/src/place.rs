//! The place of a directory below the start of a walk: for messages, not for opening.
//!
//! # Boundary
//! Names linked upwards. A place holds no descriptor, so a remembered one keeps nothing open.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A directory in a walk.
#[derive(Debug)]
pub(super) struct Place {
    name: Box<OsStr>,
    parent: Option<Arc<Place>>,
    /// Steps below the start.
    pub(super) depth: u32,
    /// The visitor's number for it.
    pub(super) node: usize,
}

impl Place {
    /// Where a walk starts.
    pub(super) fn start(path: &OsStr, node: usize) -> Arc<Self> {
        Arc::new(Self { name: path.into(), parent: None, depth: 0, node })
    }

    /// The directory `name` in this one.
    pub(super) fn below(self: &Arc<Self>, name: &CStr, node: usize) -> Arc<Self> {
        let name = OsStr::from_bytes(name.to_bytes()).into();
        Arc::new(Self { name, parent: Some(Arc::clone(self)), depth: self.depth + 1, node })
    }

    /// The path from the start on.
    pub(super) fn path(&self) -> PathBuf {
        let mut names = vec![&*self.name];
        let mut place = self;
        while let Some(parent) = &place.parent {
            names.push(&parent.name);
            place = parent;
        }
        names.into_iter().rev().collect()
    }
}

impl Drop for Place {
    /// A chain may be longer than the stack: it is taken apart in a loop.
    fn drop(&mut self) {
        let mut next = self.parent.take().and_then(Arc::into_inner);
        while let Some(mut place) = next {
            next = place.parent.take().and_then(Arc::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn paths_are_put_together_from_the_start() {
        let start = Place::start(OsStr::new("/srv"), 0);
        let below = start.below(c"a", 1).below(c"b", 2);
        assert_eq!((below.path().as_path(), below.depth), (Path::new("/srv/a/b"), 2));
        assert_eq!(start.path(), Path::new("/srv"));
    }

    #[test]
    fn a_chain_of_any_length_is_dropped() {
        let mut place = Place::start(OsStr::new("/"), 0);
        for _ in 0..1_000_000 {
            place = place.below(c"d", 0);
        }
        drop(place);
    }
}
