//! Extended attributes that an object is known not to have.
//!
//! # Boundary
//! The names recorded as absent, the place of these records, and their lifetime. [`crate::ops`]
//! asks the store.
//!
//! # Concurrency
//! The records are bits of the inode's mode word: a reader copies them under the words' sequence
//! and takes no lock. A writer has the lock over the inode's attributes. An answer is recorded only
//! if no change overtook it. Every change of the object, here or in the store, clears all records.
//!
//! # Why
//! A kernel asks for some attributes by itself: the access control list and the label with every
//! `ls -l`, the capabilities with every first write. Most objects have none of them, so a record of
//! one bit saves a call of the store each time. Records are valid for as long as the attributes. A
//! refresh keeps them only if the change time is the same, and was then old enough for a later
//! change to show. Weakness: a value that exists is asked for again each time.

use super::cached::{self, EXPIRY, MODE, WORDS};
use super::{Asked, Clock, Expiry, Freshness, Inode};
use crate::acl::{ACCESS_XATTR, Acl, DEFAULT_XATTR};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uvfs_concurrent::lock::MutexGuard;

/// The rights of a program, which a change of its contents takes away.
pub(crate) const CAPABILITY_XATTR: &[u8] = b"security.capability";

/// The names that have a bit of their own, besides the access control list.
const NAMES: [&[u8]; 6] = [
    DEFAULT_XATTR,
    CAPABILITY_XATTR,
    b"security.selinux",
    b"security.ima",
    b"security.evm",
    b"security.SMACK64",
];

/// Every later change moves a change time of this age, however coarse the store's clock is.
const SETTLED_AGE: Duration = Duration::from_secs(1);

/// A set of absent names, as bits of the mode word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Absent(u64);

impl Absent {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// No access control list beyond the mode. A separate bit, because walks test it.
    pub(crate) const ACCESS_ACL: Self = Self(1 << 13);
    const FIRST: u32 = 20;
    /// No attribute at all.
    const EVERY: Self = Self(1 << (Self::FIRST + NAMES.len() as u32));
    /// The change time was old enough ([`SETTLED_AGE`]) when the store was asked.
    const SETTLED: Self = Self(1 << (Self::FIRST + NAMES.len() as u32 + 1));
    /// All of these bits.
    pub(super) const MASK: u64 =
        Self::ACCESS_ACL.0 | ((1 << (NAMES.len() as u32 + 2)) - 1) << Self::FIRST;

    /// The bit of `name`, if it has one.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        if name == ACCESS_XATTR {
            return Some(Self::ACCESS_ACL);
        }
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(Self(1 << (Self::FIRST + at as u32)))
    }

    /// The attributes absent from an object that has no others than `listed`.
    pub(crate) fn all_but<'a>(listed: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut absent = Self::MASK & !Self::SETTLED.0;
        for name in listed {
            absent &= !(Self::of(name).unwrap_or_default().0 | Self::EVERY.0);
        }
        Self(absent)
    }

    /// Whether there is no attribute `name`.
    pub(crate) fn lacks(self, name: &[u8]) -> bool {
        let own = Self::of(name).unwrap_or_default();
        self.0 & (own.0 | Self::EVERY.0) != 0
    }

    /// Whether there is no attribute at all.
    pub(crate) fn lacks_every(self) -> bool {
        self.0 & Self::EVERY.0 != 0
    }

    pub(super) fn from_word(mode: u64) -> Self {
        Self(mode & Self::MASK)
    }

    pub(super) fn to_word(self) -> u64 {
        self.0
    }

    /// These and `more`, found while the change time was `settled` or not.
    fn with(self, more: Self, settled: bool) -> Self {
        let settled = settled && (self == Self::UNKNOWN || self.0 & Self::SETTLED.0 != 0);
        let names = (self.0 | more.0) & !Self::SETTLED.0;
        Self(names | if settled { Self::SETTLED.0 } else { 0 })
    }

    /// The records still valid after a refresh that showed the same change time.
    pub(super) fn after_refresh(self) -> Self {
        if self.0 & Self::SETTLED.0 != 0 { self } else { Self::UNKNOWN }
    }
}

/// A question to the store about extended attributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct XattrsAsked {
    asked: Asked,
    /// The time of the question. A change time that was old enough then is older when the answer arrives, so the arrival
    /// proves nothing: the store may have looked long before.
    at: SystemTime,
}

impl Inode {
    /// Take this before the store is asked about extended attributes.
    pub(crate) fn ask_xattrs(&self, clock: &Clock) -> XattrsAsked {
        XattrsAsked { asked: self.ask(clock), at: SystemTime::now() }
    }

    /// The attributes now known to be absent. Takes no lock unless writers keep changing the words.
    pub(crate) fn absent(&self) -> Absent {
        let seen = self.cached.read(|words| (words.get(EXPIRY), words.get(MODE)));
        let (expiry, mode) = seen.unwrap_or_else(|| {
            let _writer = self.changes.lock();
            let words = self.cached.as_writer();
            (words[EXPIRY], words[MODE])
        });
        match !self.is_dead() && Expiry::from_word(expiry).valid() {
            true => Absent::from_word(mode),
            false => Absent::UNKNOWN,
        }
    }

    /// Records that `absent` is absent, from `question`, unless a change overtook the answer.
    pub(crate) fn keep_absent(&self, question: XattrsAsked, absent: Absent) {
        let changes = self.changes.lock();
        if changes.admits(question.asked) {
            self.note_absent(&changes, question.at, absent);
        }
    }

    fn note_absent(&self, _writer: &MutexGuard<'_, Freshness>, asked: SystemTime, absent: Absent) {
        let words = self.cached.as_writer();
        let changed = cached::unpack(self.kind(), &words).ctime;
        let age = asked.duration_since(changed.into());
        let settled = age.is_ok_and(|age| age >= SETTLED_AGE);
        let known = Absent::from_word(words[MODE]).with(absent, settled);
        self.cached.write(&with_absent(words, known));
    }

    /// The access control list and the absent attributes have to be asked for again.
    pub(super) fn drop_acl(&self, _writer: &MutexGuard<'_, Freshness>) {
        if let Some(used) = self.known_rest() {
            used.set_acl(None);
        }
        let words = self.cached.as_writer();
        if Absent::from_word(words[MODE]) != Absent::UNKNOWN {
            self.cached.write(&with_absent(words, Absent::UNKNOWN));
        }
    }

    /// The access control list (or that there is none), if it is cached and valid now.
    pub(crate) fn cached_acl(&self) -> Option<Option<Arc<Acl>>> {
        let _writer = self.changes.lock();
        let words = self.cached.as_writer();
        if !Expiry::from_word(words[EXPIRY]).valid() {
            return None;
        }
        if Absent::from_word(words[MODE]).lacks(ACCESS_XATTR) {
            return Some(None);
        }
        self.known_rest().and_then(|used| used.acl()).map(Some)
    }

    /// Caches the access control list, from `question`, unless a change overtook the answer.
    pub(crate) fn keep_acl(&self, question: XattrsAsked, acl: Option<Arc<Acl>>) {
        let changes = self.changes.lock();
        if !changes.admits(question.asked) {
            return;
        }
        match acl {
            Some(acl) => self.rest().set_acl(Some(acl)),
            None => {
                if let Some(used) = self.known_rest() {
                    used.set_acl(None);
                }
                self.note_absent(&changes, question.at, Absent::ACCESS_ACL);
            }
        }
    }
}

/// The words with other absent attributes.
fn with_absent(mut words: [u64; WORDS], absent: Absent) -> [u64; WORDS] {
    words[MODE] = words[MODE] & !Absent::MASK | absent.to_word();
    words
}

#[cfg(test)]
impl XattrsAsked {
    /// Returns this question as if asked at another time.
    pub(super) fn at(self, at: SystemTime) -> Self {
        Self { at, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_tells_what_is_absent() {
        let nothing = Absent::all_but([]);
        assert!(nothing.lacks_every() && nothing.lacks(b"user.whatever"));
        assert!(nothing.lacks(ACCESS_XATTR) && nothing.lacks(b"security.capability"));
        let some = Absent::all_but([&b"user.x"[..], b"security.selinux"]);
        assert!(!some.lacks_every() && !some.lacks(b"user.x") && !some.lacks(b"user.y"));
        assert!(!some.lacks(b"security.selinux") && some.lacks(b"security.capability"));
        assert!(some.lacks(ACCESS_XATTR) && some.lacks(DEFAULT_XATTR));
        assert!(!Absent::UNKNOWN.lacks(ACCESS_XATTR) && Absent::of(b"user.x").is_none());
    }

    #[test]
    fn only_what_was_learned_under_a_settled_change_time_outlives_a_refresh() {
        let acl = Absent::ACCESS_ACL;
        let capability = Absent::of(b"security.capability").unwrap();
        let settled = Absent::UNKNOWN.with(acl, true);
        assert!(settled.after_refresh().lacks(ACCESS_XATTR));
        assert_eq!(Absent::UNKNOWN.with(acl, false).after_refresh(), Absent::UNKNOWN);
        let both = settled.with(capability, true).after_refresh();
        assert!(both.lacks(ACCESS_XATTR) && both.lacks(b"security.capability"));
        // A record that may be overtaken unseen makes the others uncertain, too.
        let young = Absent::UNKNOWN.with(acl, false).with(capability, true);
        assert!(young.lacks(ACCESS_XATTR) && young.lacks(b"security.capability"));
        assert_eq!(young.after_refresh(), Absent::UNKNOWN);
    }
}
