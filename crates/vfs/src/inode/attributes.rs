//! The attributes of an inode: read without a lock, replaced by answers that no change has overtaken.
//!
//! # Boundary
//! Decides which value is cached and until when. [`cached`] has the words for permission checks of
//! walks, [`reading`](super::reading) access times, [`absent`](super::absent) absent extended attributes.
//!
//! # Concurrency
//! The words are copied under a sequence. Writers have the lock `changes`. Under it they take only the lock of the list
//! (`acl`) and those of the pages of the same inode, which get the new size.
//!
//! # Why
//! Pages have sizes and times that the store does not know yet: each value from a store passes through
//! [`Inode::known_better`]. Bad at: a file that the kernel reads directly has no cached attributes at all.

use super::cached::{self, EXPIRY, MODE};
use super::{
    Absent, Asked, Begun, Clock, Expiry, Freshness, Guarding, Inode, Moment, Ticket, flag,
};
use crate::attributes::{Attributes, FileKind};
use crate::page::FilePages;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::lock::MutexGuard;

impl Inode {
    /// The cached attributes, if they are valid now. Takes no lock and stores nothing.
    #[inline]
    pub(crate) fn cached_attributes(&self) -> Option<Attributes> {
        self.cached_attributes_at(&mut None)
    }

    /// Like [`Inode::cached_attributes`]; `now` as for [`Expiry::valid_at`].
    #[inline]
    pub(crate) fn cached_attributes_at(&self, now: &mut Option<Moment>) -> Option<Attributes> {
        if self.flags() & (flag::BYPASSED | flag::DEAD) != 0 {
            return None;
        }
        let words = self.words();
        if !Expiry::from_word(words[EXPIRY]).valid_at(now) {
            return None;
        }
        Some(cached::unpack(self.kind(), &words))
    }

    /// Whether the cached attributes are valid now.
    #[inline]
    pub(crate) fn attributes_believed(&self) -> bool {
        self.flags() & (flag::BYPASSED | flag::DEAD) == 0
            && Expiry::from_word(self.cached.racy_one(EXPIRY)).valid()
    }

    /// A directory's attributes for a search permission check, if they are valid now.
    #[inline]
    pub(crate) fn guarding(&self, now: &mut Option<Moment>) -> Option<Guarding> {
        let seen = self.cached.read(|words| cached::guarding(&words))?;
        seen.expiry.valid_at(now).then_some(seen)
    }

    /// The attributes with their expiry, of one moment.
    pub(super) fn snapshot(&self) -> (Expiry, Attributes) {
        let words = self.words();
        (Expiry::from_word(words[EXPIRY]), cached::unpack(self.kind(), &words))
    }

    /// The words of one moment.
    #[inline]
    fn words(&self) -> [u64; cached::WORDS] {
        self.cached.read_all().unwrap_or_else(|| {
            // Writers kept changing the words: wait for one of them.
            let _writer = self.changes.lock();
            self.cached.as_writer()
        })
    }

    /// The attributes as last seen, however old.
    pub(crate) fn last_attributes(&self) -> Attributes {
        self.snapshot().1
    }

    /// Attributes that a frontend may cache after the answer `given`, and for how long: the cached ones, or `given` for
    /// this moment only (a change has overtaken it).
    pub(crate) fn believed(&self, given: Attributes) -> (Attributes, Duration) {
        let (flags, (expiry, value)) = (self.flags(), self.snapshot());
        match expiry.remains() {
            _ if flags & flag::BYPASS_WRITES != 0 => (given, Duration::ZERO),
            Duration::ZERO => (self.known_better(given), Duration::ZERO),
            remains if flags & flag::BYPASSED != 0 => (given, remains),
            remains => (value, remains),
        }
    }

    /// When the attributes last changed here.
    pub(crate) fn changed(&self) -> Ticket {
        self.changes.lock().changed()
    }

    /// Take this before the store is asked about the attributes.
    pub(crate) fn ask(&self, clock: &Clock) -> Asked {
        self.changes.lock().ask(clock)
    }

    /// Caches `value`, from a question `asked`. False if a change overtook it.
    pub(crate) fn keep_attributes(
        &self,
        asked: impl Into<Asked>,
        value: &Attributes,
        expiry: Expiry,
    ) -> bool {
        let asked = asked.into();
        let mut changes = self.changes.lock();
        if !changes.admits(asked) {
            return false;
        }
        changes.kept(asked.ticket());
        let value = &self.known_better(*value);
        let words = self.cached.as_writer();
        let old = cached::unpack(self.kind(), &words);
        let same_rights = old.ctime == value.ctime && old.mode == value.mode;
        if !same_rights {
            self.drop_acl(&changes);
        }
        let absent = match same_rights {
            true => Absent::from_word(words[MODE]).after_refresh(),
            false => Absent::UNKNOWN,
        };
        self.learn_stillness(&changes, &old, value);
        self.cached.write(&cached::pack(value, expiry, absent));
        let pages = self.known_pages();
        let replacing = pages.and_then(|pages| pages.learn(value));
        drop(changes);
        drop(replacing);
        if let Some(pages) = pages
            && (old.mtime != value.mtime || old.size != value.size)
        {
            pages.attributes_changed();
        }
        let rights = |seen: &Attributes| (seen.mode, seen.uid, seen.gid);
        if (self.kind() == FileKind::Directory && rights(&old) != rights(value))
            && let Some(core) = self.core.upgrade()
        {
            core.paths.shape_changed();
        }
        true
    }

    /// A change of attributes begins.
    pub(crate) fn begin_change(&self, clock: &Clock) -> Begun {
        self.changes.lock().begin(clock)
    }

    /// The change of `begin` ended. `value` is the store's answer after it. It is cached if no other change overlapped;
    /// otherwise the attributes expire.
    pub(crate) fn end_change(
        &self,
        clock: &Clock,
        begin: Begun,
        value: Option<(Attributes, Expiry)>,
    ) {
        let mut changes = self.changes.lock();
        let alone = changes.end(clock, begin);
        self.drop_acl(&changes);
        let (mut news, mut replacing) = (false, None);
        match value {
            Some((value, expiry)) if alone => {
                let old = self.snapshot_as_writer();
                let value = self.known_better(value);
                self.cached.write(&cached::pack(&value, expiry, Absent::UNKNOWN));
                if let Some(pages) = self.known_pages() {
                    replacing = pages.learn(&value);
                    news = old.mtime != value.mtime || old.size != value.size;
                }
            }
            _ => self.expire(&changes),
        }
        drop(changes);
        drop(replacing);
        if news && let Some(pages) = self.known_pages() {
            pages.attributes_changed();
        }
    }

    /// `given` by the store, with the newer values from here: data written and not yet brought to the store.
    pub(crate) fn known_better(&self, given: Attributes) -> Attributes {
        self.known_pages().map_or(given, |pages| pages.overlay(given))
    }

    /// Data was written that the store does not have yet.
    pub(crate) fn wrote(&self, clock: &Clock) {
        let mut changes = self.changes.lock();
        changes.note(clock);
        let words = self.cached.as_writer();
        let expiry = Expiry::from_word(words[EXPIRY]);
        let cached = cached::unpack(self.kind(), &words);
        let value = self.known_pages().map_or(cached, |pages| pages.overlay_again(cached));
        let absent = Absent::from_word(words[MODE]);
        self.cached.write(&cached::pack(&value, expiry, absent));
    }

    /// The pages, if there have been any.
    pub(crate) fn known_pages(&self) -> Option<&Arc<FilePages>> {
        self.known_rest()?.pages.get()
    }

    /// The next request asks the store again.
    pub(crate) fn expire_attributes(&self, clock: &Clock) {
        let mut changes = self.changes.lock();
        changes.note(clock);
        self.expire(&changes);
        self.drop_acl(&changes);
    }

    fn expire(&self, _writer: &MutexGuard<'_, Freshness>) {
        self.cached.write_one(EXPIRY, Expiry::EXPIRED.to_word());
    }

    fn snapshot_as_writer(&self) -> Attributes {
        cached::unpack(self.kind(), &self.cached.as_writer())
    }

    /// The kernel reads an open file directly from now on, and writes it if it is open for writing.
    pub(crate) fn begin_bypass(&self, writes: bool) {
        let mut bypassed = self.rest().bypassed.lock();
        bypassed.all += 1;
        bypassed.writing += u32::from(writes);
        self.set_flag(flag::BYPASSED, true);
        self.set_flag(flag::BYPASS_WRITES, bypassed.writing > 0);
    }

    /// One such open file was closed.
    pub(crate) fn end_bypass(&self, clock: &Clock, writes: bool) {
        self.expire_attributes(clock);
        let mut bypassed = self.rest().bypassed.lock();
        bypassed.all = bypassed.all.saturating_sub(1);
        bypassed.writing = bypassed.writing.saturating_sub(u32::from(writes));
        self.set_flag(flag::BYPASSED, bypassed.all > 0);
        self.set_flag(flag::BYPASS_WRITES, bypassed.writing > 0);
    }
}
