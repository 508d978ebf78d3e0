//! The places of an object, by node ids and names: enough to find it again without any other state.
//!
//! # Boundary
//! Values only: the names of one object ([`Places`]) and the bounded record of forgotten objects ([`Past`]).
//! [`super::again`] looks them up.
//!
//! # Concurrency
//! None of its own; all of it is in a shard of [`super::nodes`], under that shard's lock.
//!
//! # Why
//! A place names its directory by node id and not by path: when a directory moves, nothing below it changes. The names
//! of an object share one block of bytes, since each object that the kernel holds has one. A place is a hint: the
//! object there counts only if it has the wanted number and generation. Weakness: of an object with more than
//! [`PLACES_MAX`] names the oldest are not recorded, and the place of one renamed behind the mount is wrong.

use std::collections::{HashMap, VecDeque};

/// Names kept of one object.
pub(crate) const PLACES_MAX: usize = 4;
/// Before the bytes of a name: the directory's node id, and how long the name is.
const HEAD: usize = 9;
/// Bytes of one that is forgotten, besides its names: its place in the table and in the order, with their slack.
const WAS_BYTES: u64 = 2 * (size_of::<(u64, Was)>() + 1 + size_of::<(u64, u64)>()) as u64;
/// Bytes that the allocator adds to a block.
const BLOCK_BYTES: u64 = 16;
/// Places in the order that need not be in use.
const ORDER_SLACK: usize = 64;

/// A name in a directory that the kernel knows by an id.
pub(crate) type Place<'a> = (u64, &'a [u8]);

/// The names of one object, the one seen last at the end: for each its directory and its letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places(Box<[u8]>);

impl Places {
    /// All names, the one seen last first.
    pub(crate) fn newest_first(&self) -> Vec<(u64, Box<[u8]>)> {
        let mut all: Vec<_> = self.iter().map(|(parent, name)| (parent, name.into())).collect();
        all.reverse();
        all
    }

    fn iter(&self) -> impl Iterator<Item = Place<'_>> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (head, tail) = rest.split_at_checked(HEAD)?;
            let parent = u64::from_ne_bytes(head[..8].try_into().ok()?);
            let (name, tail) = tail.split_at_checked(usize::from(head[8]))?;
            rest = tail;
            Some((parent, name))
        })
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes beside itself.
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_empty() { 0 } else { self.0.len() as u64 + BLOCK_BYTES }
    }

    fn of<'a>(places: impl Iterator<Item = Place<'a>>) -> Self {
        let mut bytes = Vec::new();
        for (parent, name) in places {
            let Ok(length) = u8::try_from(name.len()) else { continue };
            bytes.extend_from_slice(&parent.to_ne_bytes());
            bytes.push(length);
            bytes.extend_from_slice(name);
        }
        Self(bytes.into())
    }

    /// It was seen at `place`; one of several names if there are `others`, and else the only one.
    pub(crate) fn see(&mut self, place: Place<'_>, others: bool) {
        if self.iter().last() == Some(place) && (others || self.iter().count() == 1) {
            return;
        }
        let old: Vec<_> = self.iter().filter(|&one| others && one != place).collect();
        let kept = old.len().min(PLACES_MAX - 1);
        let kept = old[old.len() - kept..].iter().copied();
        *self = Self::of(kept.chain([place]));
    }

    /// It is not at `place` any more.
    pub(crate) fn lose(&mut self, place: Place<'_>) {
        if self.iter().any(|one| one == place) {
            *self = Self::of(self.iter().filter(|&one| one != place));
        }
    }
}

/// Objects that the kernel has forgotten, and users may still have handles of.
#[derive(Debug, Default)]
pub(crate) struct Past {
    all: HashMap<u64, Was>,
    /// Oldest first, with their stamps. Those with other stamps by now are passed over.
    order: VecDeque<(u64, u64)>,
    next: u64,
    bytes: u64,
}

/// One that the kernel has forgotten.
#[derive(Debug)]
pub(crate) struct Was {
    pub(crate) places: Places,
    pub(crate) generation: u32,
    stamp: u64,
}

impl Past {
    /// Bytes of all.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Was> {
        self.all.get(&id)
    }

    /// The kernel has forgotten `id`. The oldest records are evicted for it, so that all keep within `room` bytes.
    pub(crate) fn add(&mut self, id: u64, places: Places, generation: u32, room: u64) {
        drop(self.take(id));
        let stamp = self.next;
        self.next += 1;
        self.bytes += WAS_BYTES + places.bytes();
        self.all.insert(id, Was { places, generation, stamp });
        self.order.push_back((id, stamp));
        self.keep_within(room);
    }

    /// The kernel knows `id` again.
    pub(crate) fn take(&mut self, id: u64) -> Option<Was> {
        if self.all.is_empty() {
            return None;
        }
        let was = self.all.remove(&id)?;
        self.bytes -= WAS_BYTES + was.places.bytes();
        if self.order.len() > 2 * self.all.len() + ORDER_SLACK {
            let all = &self.all;
            self.order.retain(|(id, stamp)| all.get(id).is_some_and(|was| was.stamp == *stamp));
        }
        Some(was)
    }

    /// Evicts the oldest records until all have `room` bytes at most, and shrinks the tables.
    pub(crate) fn keep_within(&mut self, room: u64) {
        while self.bytes > room {
            let Some((id, stamp)) = self.order.pop_front() else { break };
            if self.all.get(&id).is_some_and(|was| was.stamp == stamp) {
                drop(self.take(id));
            }
        }
        if self.all.capacity() > 4 * self.all.len() + ORDER_SLACK {
            self.all.shrink_to(2 * self.all.len());
            self.order.shrink_to(2 * self.order.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(places: &Places) -> Vec<(u64, String)> {
        let text = |name: Box<[u8]>| String::from_utf8(name.into()).unwrap();
        places.newest_first().into_iter().map(|(parent, name)| (parent, text(name))).collect()
    }

    #[test]
    fn an_object_is_where_it_was_seen_last_and_under_its_other_names() {
        let mut places = Places::default();
        places.see((1, b"a"), false);
        places.see((1, b"a"), false);
        assert_eq!(shown(&places), [(1, "a".into())]);
        places.see((7, b"b"), true);
        assert_eq!(shown(&places), [(7, "b".into()), (1, "a".into())]);
        places.see((1, b"a"), true);
        assert_eq!(shown(&places), [(1, "a".into()), (7, "b".into())], "seen again, so the newest");
        places.lose((1, b"a"));
        places.lose((1, b"b"));
        assert_eq!(shown(&places), [(7, "b".into())]);
        for at in 0..9u64 {
            places.see((at, b"n"), true);
        }
        assert_eq!(places.newest_first().len(), PLACES_MAX);
        places.see((3, &[b'x'; 255]), false);
        assert_eq!(places.newest_first(), [(3, vec![b'x'; 255].into())], "the only name");
        places.lose((3, &[b'x'; 255]));
        assert!(places.is_empty() && places.bytes() == 0);
    }

    #[test]
    fn what_was_forgotten_first_goes_first_and_memory_goes_back() {
        let mut past = Past::default();
        let mut places = Places::default();
        places.see((1, b"name"), false);
        for id in 0..10_000 {
            past.add(id, places.clone(), 1, u64::MAX);
        }
        let each = past.bytes() / 10_000;
        assert!((40..200).contains(&each), "{each}");
        assert!(past.take(9_999).is_some() && past.take(9_999).is_none());
        past.keep_within(10 * each);
        assert!(past.bytes() <= 10 * each && past.get(9_998).is_some() && past.get(5).is_none());
        assert!(past.all.capacity() < 1000 && past.order.capacity() < 1000);
        past.add(9_998, places.clone(), 2, 10 * each);
        assert_eq!(past.get(9_998).map(|was| was.generation), Some(2));
        // The same one over and over leaves no trace in the order.
        for _ in 0..10_000 {
            past.take(3);
            past.add(3, places.clone(), 1, 10 * each);
        }
        assert!(past.order.len() < 300, "{}", past.order.len());
    }
}
