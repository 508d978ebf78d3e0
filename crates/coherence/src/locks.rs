//! Finds locks in what threads do to atomic words, and keeps their waits and holds.
//!
//! # Boundary
//! The caller reports every atomic access with its values, every futex wait, and the pthread locks,
//! which need no guessing. Out come records by address; the caller knows the objects.
//!
//! # Concurrency
//! None: one caller, in the order of virtual time.
//!
//! # Why
//! A word is a lock when a thread moves it with acquire and moves it back with release:
//!
//! ```text
//!           load, failed CAS, futex wait              release: back to the value before,
//!             ┌──────┐                                or the difference taken back
//!             │      ▼      acquire succeeds
//!   none ──▶ waiting ──────────────────────▶ held ──────────────────────────▶ counted
//!     └───────────────────────────────────────┘ └── acquires again: was a try ──▶ waiting
//! ```
//!
//! Nothing is counted before the release, so what is never moved back (a ticket counter, a stack of
//! nodes) is no lock, nor is what is moved without acquire (a reference count). An unconditional
//! addition is one only if somebody was ever seen to wait on the word, or else every counter of
//! running things would be. A pointer that is exchanged for another is a pop, not a lock. Holds that
//! overlap are readers', if there are writers or somebody waits; else they are users of a counted
//! object. If one of them only puts the old value back, the word excludes nobody at all. A word on which a thread spins until another changes it, and which is no lock, is `Awaited`.
//! Weakness: these are guesses from behaviour; a lock that another thread releases is not seen, and
//! a semaphore of count one is taken for a mutex, which it is.

use crate::model::{TICKS_PER_CYCLE, Ticks};
use crate::profile::{Lock, LockKind, Operation, Ordering};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Other accesses between two looks at a word, up to which they are one wait.
const SPIN_ACCESSES: u64 = 16;
/// The same after a failed try: parking takes some.
const TRY_ACCESSES: u64 = 2000;
/// Words that a thread can be waiting on at a time.
const CHAINS: usize = 4;
/// Words that a thread can be holding at a time, tentative ones included.
const HOLDS: usize = 32;
/// Sites kept per lock.
const SITES: usize = 16;
/// Addresses are grouped by this, to find those of freed memory.
const BLOCK_SHIFT: u32 = 6;

/// Who makes an access, where and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Of the word.
    pub address: u64,
    /// Of the word.
    pub bytes: u32,
    /// The thread.
    pub thread: u32,
    /// Its core.
    pub core: u32,
    /// The site.
    pub site: u32,
    /// The thread's clock before the access.
    pub begin: Ticks,
    /// Its clock after.
    pub end: Ticks,
    /// Accesses of the thread so far, of any kind.
    pub accesses: u64,
}

/// A thread that looks at a word again and again.
#[derive(Debug, Clone, Copy)]
struct Chain {
    address: u64,
    /// First look; since then the word was not what the thread wants.
    begin: Ticks,
    /// End of the last look.
    end: Ticks,
    /// The value of the first look, and when another one was seen first.
    value: u64,
    changed: Option<Ticks>,
    site: u32,
    looks: u32,
    /// The last look was a load; and one followed another, with no try between.
    loaded: bool,
    spun: bool,
    /// It tried and failed, or slept: it surely wants it.
    hard: bool,
    accesses: u64,
}

/// A thread that moved a word with acquire.
#[derive(Debug, Clone, Copy)]
struct Hold {
    address: u64,
    before: u64,
    after: u64,
    since: Ticks,
    core: u32,
    site: u32,
    /// When it began to wait, if it did.
    waited_since: Option<(Ticks, u32)>,
    /// It looked again and again while it waited.
    spun: bool,
    /// Cannot fail: a lock only if there are waiters.
    unconditional: bool,
}

#[derive(Debug, Default)]
struct Thread {
    chains: Vec<Chain>,
    holds: Vec<Hold>,
}

/// Counts of one lock.
#[derive(Debug, Clone, Default)]
struct Counts {
    acquisitions: u64,
    contended: u64,
    bounces: u64,
    wait: Range,
    hold: Range,
    last_core: Option<u32>,
    sites: Vec<(u32, u64)>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Range {
    total: Ticks,
    least: Option<Ticks>,
    most: Ticks,
}

/// What is known of one word.
#[derive(Debug, Clone, Default)]
struct Word {
    lock: Counts,
    /// Acquisitions that count only if somebody ever waits.
    unconditional: Counts,
    awaited: Counts,
    /// Somebody spun or slept on it; trying again at once is not that.
    waited: bool,
    /// It excludes nobody.
    refuted: bool,
    /// Two held it at a time.
    shared: bool,
    /// What the first acquisition added, and whether another one added something else: readers and
    /// writers.
    step: Option<u64>,
    excludes: bool,
    /// Latest release of a hold that counts, and whether that hold took its difference back.
    released: Option<(Ticks, bool)>,
}

#[derive(Debug, Clone)]
enum Entry {
    Word(Box<Word>),
    Known(LockKind, Box<Counts>),
}

/// A lock whose holder is known from `pthread_*`.
#[derive(Debug, Clone, Copy)]
struct Known {
    address: u64,
    kind: LockKind,
    thread: u32,
    since: Ticks,
}

/// Addresses need no defence against an adversary, and the order must be the same in every run.
#[derive(Debug, Default, Clone, Copy)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Locks {
    threads: Vec<Thread>,
    blocks: HashMap<u64, Vec<(u64, Entry)>, BuildHasherDefault<Multiply>>,
    known: Vec<Known>,
}

impl Locks {
    /// Nothing seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// An atomic load saw `value`.
    #[inline]
    pub fn load(&mut self, event: &Event, value: u64) {
        let thread = self.thread(event.thread);
        if let Some(chain) = thread.chains.iter_mut().find(|chain| chain.address == event.address)
            && !chain.stale(event)
        {
            let before = chain.value;
            chain.spun |= chain.loaded;
            chain.loaded = true;
            if value == before || chain.hard || chain.changed.is_some() {
                if value != before && chain.changed.is_none() {
                    chain.changed = Some(event.begin);
                }
                chain.look(event);
                return;
            }
            if chain.looks > 1 {
                let wait = (chain.begin, chain.site);
                chain.changed = Some(event.begin);
                chain.look(event);
                self.awaited(event, wait, event.end);
                return;
            }
        }
        self.begin_chain(event, value, false);
    }

    /// An atomic access wrote, or tried to: `success` is false for a compare-exchange that found another
    /// value, and then `new` does not count. A store passes the value before as `old`.
    pub fn update(
        &mut self,
        event: &Event,
        operation: Operation,
        ordering: Ordering,
        old: u64,
        new: u64,
        success: bool,
    ) {
        if !success {
            self.fail(event, old);
            return;
        }
        if releases(ordering) && self.release(event, old, new) {
            return;
        }
        if operation.updates() && acquires(ordering) && old != new && !is_pop(operation, old, new) {
            self.acquire(event, operation, old, new);
        } else if operation.updates() || self.holds(event) {
            // It changed the word after all, so it no longer waits for another to do so.
            self.end_chain(event);
        }
    }

    /// The thread slept on the word from `begin` to `end`, because it was `value`. Report it when the
    /// sleep is over.
    pub fn futex_wait(&mut self, event: &Event, value: u64) {
        match self.chain(event) {
            Some(chain) => {
                chain.hard = true;
                chain.look(event);
            }
            None => {
                self.begin_chain(event, value, true);
                if let Some(chain) = self.chain(event) {
                    chain.end = event.end;
                }
            }
        }
        self.word(event.address).waited = true;
        self.awaited(event, (event.begin, event.site), event.end);
    }

    /// A pthread lock was taken; the call began at `begin` and ended at `end`, and may have waited.
    pub fn pthread_acquired(&mut self, kind: LockKind, event: &Event, contended: bool) {
        let counts = self.known(event.address, kind);
        counts.acquire(event.core);
        if contended {
            counts.waited(event.end - event.begin, event.site);
        }
        let (address, thread, since) = (event.address, event.thread, event.end);
        self.known.push(Known { address, kind, thread, since });
    }

    /// A pthread lock was released, at `begin`.
    pub fn pthread_released(&mut self, kind: LockKind, event: &Event) {
        let same = |known: &Known| known.address == event.address && known.kind == kind;
        // The thread's own hold; a lock that another thread releases is somebody's all the same.
        let position = self
            .known
            .iter()
            .rposition(|known| same(known) && known.thread == event.thread)
            .or_else(|| self.known.iter().position(same));
        if let Some(position) = position {
            let since = self.known.swap_remove(position).since;
            self.known(event.address, kind).hold.add(event.begin.saturating_sub(since));
        }
    }

    /// Takes out what is known of memory that is freed, as [`Locks::into_records`] would give it, with
    /// the address in place of [`Lock::offset`].
    pub fn take(&mut self, seed: u64, start: u64, bytes: u64) -> Vec<Lock> {
        let end = start.saturating_add(bytes);
        let (first, last) = (start >> BLOCK_SHIFT, end.saturating_sub(1).max(start) >> BLOCK_SHIFT);
        let mut found = Vec::new();
        let mut out_of = |block: &mut Vec<(u64, Entry)>| {
            block.retain(|(address, entry)| {
                let gone = (start..end).contains(address);
                if gone {
                    found.push((*address, entry.clone()));
                }
                !gone
            });
        };
        if last - first < self.blocks.len() as u64 {
            for block in first..=last {
                if let Some(block) = self.blocks.get_mut(&block) {
                    out_of(block);
                }
            }
        } else {
            self.blocks.values_mut().for_each(&mut out_of);
        }
        if !found.is_empty() {
            self.blocks.retain(|_, block| !block.is_empty());
            let gone = |address: u64| (start..end).contains(&address);
            for thread in &mut self.threads {
                thread.chains.retain(|chain| !gone(chain.address));
                thread.holds.retain(|hold| !gone(hold.address));
            }
        }
        records(seed, found)
    }

    /// The locks, by address, which is in place of [`Lock::offset`]; [`Lock::object`] is zero.
    pub fn into_records(self, seed: u64) -> Vec<Lock> {
        records(seed, self.blocks.into_values().flatten().collect())
    }

    fn thread(&mut self, thread: u32) -> &mut Thread {
        let index = thread as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    /// The thread's wait for the word, if it still goes on.
    fn chain(&mut self, event: &Event) -> Option<&mut Chain> {
        let chains = &mut self.thread(event.thread).chains;
        chains.iter_mut().find(|chain| chain.address == event.address && !chain.stale(event))
    }

    fn begin_chain(&mut self, event: &Event, value: u64, hard: bool) {
        let chains = &mut self.thread(event.thread).chains;
        let chain = Chain {
            address: event.address,
            begin: event.begin,
            end: event.end,
            value,
            changed: None,
            site: event.site,
            looks: 1,
            loaded: !hard,
            spun: false,
            hard,
            accesses: event.accesses,
        };
        if let Some(old) = chains.iter_mut().find(|chain| chain.address == event.address) {
            *old = chain;
        } else if chains.len() < CHAINS {
            chains.push(chain);
        } else if let Some(oldest) =
            chains.iter_mut().min_by_key(|chain| (chain.hard, chain.accesses))
        {
            *oldest = chain;
        }
    }

    fn end_chain(&mut self, event: &Event) -> Option<Chain> {
        let chains = &mut self.thread(event.thread).chains;
        let position = chains.iter().position(|chain| chain.address == event.address)?;
        let chain = chains.swap_remove(position);
        (!chain.stale(event)).then_some(chain)
    }

    fn holds(&mut self, event: &Event) -> bool {
        self.thread(event.thread).holds.iter().any(|hold| hold.address == event.address)
    }

    fn fail(&mut self, event: &Event, value: u64) {
        match self.chain(event) {
            Some(chain) => {
                chain.hard = true;
                chain.loaded = false;
                chain.look(event);
            }
            None => self.begin_chain(event, value, true),
        }
    }

    fn acquire(&mut self, event: &Event, operation: Operation, old: u64, new: u64) {
        let holds = &mut self.thread(event.thread).holds;
        let mut waited_since = None;
        if let Some(position) = holds.iter().position(|hold| hold.address == event.address) {
            // The earlier one did not get it: it only said that somebody waits.
            let tried = holds.remove(position);
            waited_since = tried.waited_since.or(Some((tried.since, tried.site)));
        }
        let mut spun = false;
        if let Some(chain) = self.end_chain(event)
            && let Some(since) = chain.waited_for(old)
        {
            spun = chain.spun;
            waited_since = Some(
                waited_since.map_or((since, chain.site), |(tried, site)| (tried.min(since), site)),
            );
        }
        let hold = Hold {
            address: event.address,
            before: old,
            after: new,
            since: event.end,
            core: event.core,
            site: event.site,
            waited_since,
            spun,
            unconditional: operation == Operation::FetchAdd,
        };
        let holds = &mut self.thread(event.thread).holds;
        if holds.len() == HOLDS {
            holds.remove(0);
        }
        holds.push(hold);
    }

    /// Whether the access gave back what the thread held.
    fn release(&mut self, event: &Event, old: u64, new: u64) -> bool {
        let holds = &mut self.thread(event.thread).holds;
        let Some(position) = holds.iter().rposition(|hold| hold.address == event.address) else {
            return false;
        };
        let hold = holds[position];
        let mask = if event.bytes >= 8 { u64::MAX } else { (1 << (event.bytes * 8)) - 1 };
        let taken_back =
            new.wrapping_sub(old).wrapping_add(hold.after).wrapping_sub(hold.before) & mask == 0;
        if new != hold.before && !taken_back {
            return false;
        }
        holds.remove(position);
        self.end_chain(event);
        let word = self.word(event.address);
        if let Some((released, other_taken_back)) = word.released
            && released >= hold.since
        {
            word.shared = true;
            word.refuted |= !(taken_back && other_taken_back);
        }
        let step = hold.after.wrapping_sub(hold.before) & mask;
        word.excludes |= *word.step.get_or_insert(step) != step;
        if word.released.is_none_or(|(released, _)| released < event.begin) {
            word.released = Some((event.begin, taken_back));
        }
        word.waited |= hold.spun;
        let counts = if hold.unconditional { &mut word.unconditional } else { &mut word.lock };
        counts.acquire(hold.core);
        if let Some((since, site)) = hold.waited_since {
            counts.waited(hold.since.saturating_sub(since), site);
        }
        counts.hold.add(event.begin.saturating_sub(hold.since));
        true
    }

    fn awaited(&mut self, event: &Event, (since, site): (Ticks, u32), until: Ticks) {
        let counts = &mut self.word(event.address).awaited;
        counts.acquire(event.core);
        counts.waited(until.saturating_sub(since), site);
    }

    fn entry(
        &mut self,
        address: u64,
        matches: impl Fn(&Entry) -> bool,
        new: impl Fn() -> Entry,
    ) -> &mut Entry {
        let block = self.blocks.entry(address >> BLOCK_SHIFT).or_default();
        let found = block.iter().position(|(other, entry)| *other == address && matches(entry));
        let position = found.unwrap_or_else(|| {
            block.push((address, new()));
            block.len() - 1
        });
        &mut block[position].1
    }

    fn word(&mut self, address: u64) -> &mut Word {
        let new = || Entry::Word(Box::default());
        match self.entry(address, |entry| matches!(entry, Entry::Word(_)), new) {
            Entry::Word(word) => word,
            Entry::Known(..) => unreachable!("asked for a word"),
        }
    }

    fn known(&mut self, address: u64, kind: LockKind) -> &mut Counts {
        let same = |entry: &Entry| matches!(entry, Entry::Known(other, _) if *other == kind);
        match self.entry(address, same, || Entry::Known(kind, Box::default())) {
            Entry::Known(_, counts) => counts,
            Entry::Word(_) => unreachable!("asked for a known lock"),
        }
    }
}

impl Chain {
    fn look(&mut self, event: &Event) {
        self.looks = self.looks.saturating_add(1);
        self.end = event.end;
        self.accesses = event.accesses;
    }

    /// Whether the thread did too much else since for this to be one wait.
    fn stale(&self, event: &Event) -> bool {
        let limit = if self.hard { TRY_ACCESSES } else { SPIN_ACCESSES };
        event.accesses.saturating_sub(self.accesses) > limit
    }

    /// Since when the thread waited to find this value; a look that found it at once is no wait.
    fn waited_for(&self, value: u64) -> Option<Ticks> {
        if self.hard || self.value != value {
            return Some(self.begin);
        }
        self.changed
    }
}

impl Counts {
    fn acquire(&mut self, core: u32) {
        self.acquisitions += 1;
        if self.last_core.is_some_and(|last| last != core) {
            self.bounces += 1;
        }
        self.last_core = Some(core);
    }

    fn waited(&mut self, ticks: Ticks, site: u32) {
        self.contended += 1;
        self.wait.add(ticks);
        if let Some((_, count)) = self.sites.iter_mut().find(|(other, _)| *other == site) {
            *count += 1;
        } else if self.sites.len() < SITES {
            self.sites.push((site, 1));
        }
    }

    fn record(mut self, seed: u64, address: u64, kind: LockKind) -> Lock {
        self.sites.sort_by_key(|(site, count)| (std::cmp::Reverse(*count), *site));
        self.sites.truncate(4);
        let cycles = |ticks: Ticks| ticks / TICKS_PER_CYCLE;
        Lock {
            seed,
            object: 0,
            offset: address,
            kind,
            acquisitions: self.acquisitions,
            contended: self.contended,
            bounces: self.bounces,
            wait_total: cycles(self.wait.total),
            wait_min: cycles(self.wait.least.unwrap_or(0)),
            wait_max: cycles(self.wait.most),
            hold_total: cycles(self.hold.total),
            hold_min: cycles(self.hold.least.unwrap_or(0)),
            hold_max: cycles(self.hold.most),
            waiters: self.sites,
        }
    }
}

impl Range {
    fn add(&mut self, ticks: Ticks) {
        self.total += ticks;
        self.least = Some(self.least.map_or(ticks, |least| least.min(ticks)));
        self.most = self.most.max(ticks);
    }
}

impl Word {
    fn kind(self) -> Option<(LockKind, Counts)> {
        if !self.refuted && (!self.shared || self.waited || self.excludes) {
            if self.lock.acquisitions > 0 {
                return Some((LockKind::Word, self.lock));
            }
            if self.waited && self.unconditional.acquisitions > 0 {
                return Some((LockKind::Word, self.unconditional));
            }
        }
        (self.awaited.acquisitions > 0).then_some((LockKind::Awaited, self.awaited))
    }
}

fn records(seed: u64, mut entries: Vec<(u64, Entry)>) -> Vec<Lock> {
    entries.sort_by_key(|(address, entry)| {
        (
            *address,
            match entry {
                Entry::Known(kind, _) => Some(*kind),
                Entry::Word(_) => None,
            },
        )
    });
    let counts = entries.into_iter().filter_map(|(address, entry)| match entry {
        Entry::Known(kind, counts) => Some(counts.record(seed, address, kind)),
        Entry::Word(word) => word.kind().map(|(kind, counts)| counts.record(seed, address, kind)),
    });
    counts.collect()
}

fn acquires(ordering: Ordering) -> bool {
    matches!(
        ordering,
        Ordering::Acquire | Ordering::AcquireRelease | Ordering::SequentiallyConsistent
    )
}

fn releases(ordering: Ordering) -> bool {
    matches!(
        ordering,
        Ordering::Release | Ordering::AcquireRelease | Ordering::SequentiallyConsistent
    )
}

/// A pointer gave way to another: a node was taken off, nothing was locked.
fn is_pop(operation: Operation, old: u64, new: u64) -> bool {
    // Locks beside a pointer are in its lowest bits.
    let exchanges = matches!(operation, Operation::Exchange | Operation::CompareExchange);
    exchanges && old >> 32 != 0 && (old ^ new) & !0xf != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0x1000;
    const C: Ticks = TICKS_PER_CYCLE;

    /// Reports accesses one after the other, ten cycles each.
    #[derive(Default)]
    struct Trace {
        locks: Locks,
        now: Ticks,
        accesses: u64,
    }

    impl Trace {
        fn event(&mut self, thread: u32) -> Event {
            let begin = self.now;
            self.now += 10 * C;
            self.accesses += 1;
            let (end, accesses) = (self.now, self.accesses);
            Event {
                address: A,
                bytes: 4,
                thread,
                core: thread,
                site: thread + 100,
                begin,
                end,
                accesses,
            }
        }

        fn update(
            &mut self,
            thread: u32,
            operation: Operation,
            ordering: Ordering,
            old: u64,
            new: u64,
        ) {
            let event = self.event(thread);
            self.locks.update(&event, operation, ordering, old, new, true);
        }

        fn acquire(&mut self, thread: u32, old: u64, new: u64) {
            self.update(thread, Operation::CompareExchange, Ordering::Acquire, old, new);
        }

        fn release(&mut self, thread: u32, old: u64, new: u64) {
            self.update(thread, Operation::Exchange, Ordering::Release, old, new);
        }

        fn fail(&mut self, thread: u32, old: u64) {
            let event = self.event(thread);
            self.locks.update(&event, Operation::CompareExchange, Ordering::Acquire, old, 1, false);
        }

        fn load(&mut self, thread: u32, value: u64) {
            let event = self.event(thread);
            self.locks.load(&event, value);
        }

        fn records(self) -> Vec<Lock> {
            self.locks.into_records(9)
        }

        fn one(self) -> Lock {
            let mut records = self.records();
            assert_eq!(records.len(), 1, "{records:?}");
            records.remove(0)
        }
    }

    #[test]
    fn a_lock_is_taken_and_given_back() {
        let mut trace = Trace::default();
        trace.acquire(0, 0, 1);
        trace.now += 90 * C;
        trace.release(0, 1, 0);
        trace.acquire(1, 0, 1);
        trace.release(1, 1, 0);
        let lock = trace.one();
        assert_eq!((lock.kind, lock.offset, lock.seed), (LockKind::Word, A, 9));
        assert_eq!((lock.acquisitions, lock.contended, lock.bounces), (2, 0, 1));
        assert_eq!((lock.hold_total, lock.hold_min, lock.hold_max), (90, 0, 90));
        assert_eq!((lock.wait_total, lock.waiters), (0, vec![]));
    }

    #[test]
    fn a_failed_try_begins_the_wait() {
        let mut trace = Trace::default();
        trace.acquire(0, 0, 1);
        trace.fail(1, 1);
        trace.load(1, 1);
        trace.load(1, 1);
        trace.release(0, 1, 0);
        trace.load(1, 0);
        trace.acquire(1, 0, 1);
        trace.release(1, 1, 0);
        let lock = trace.one();
        assert_eq!((lock.acquisitions, lock.contended), (2, 1));
        // From the failed one at 10 to the end of the acquisition at 70.
        assert_eq!((lock.wait_total, lock.wait_min, lock.wait_max), (60, 60, 60));
        assert_eq!(lock.waiters, [(101, 1)]);
    }

    #[test]
    fn a_look_that_finds_it_free_is_no_wait() {
        let mut trace = Trace::default();
        for _ in 0..3 {
            trace.load(0, 0);
            trace.acquire(0, 0, 1);
            trace.release(0, 1, 0);
        }
        let lock = trace.one();
        assert_eq!((lock.acquisitions, lock.contended), (3, 0));
    }

    #[test]
    fn the_sleeping_mutex_of_libraries() {
        let mut trace = Trace::default();
        trace.acquire(0, 0, 1);
        // Says that it waits, sleeps, and takes it so that the next one is woken as well.
        trace.update(1, Operation::Exchange, Ordering::Acquire, 1, 2);
        let mut sleep = trace.event(1);
        trace.release(0, 2, 0);
        sleep.end = trace.now;
        trace.locks.futex_wait(&sleep, 2);
        trace.update(1, Operation::Exchange, Ordering::Acquire, 0, 2);
        trace.release(1, 2, 0);
        let lock = trace.one();
        assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 2, 1));
        // From its first exchange's end at 20, or its sleep's begin there, to 50.
        assert_eq!((lock.wait_total, lock.hold_max), (30, 20));
    }

    #[test]
    fn a_bit_of_a_word_is_a_lock_whatever_the_other_bits_do() {
        let mut trace = Trace::default();
        trace.update(0, Operation::FetchBits, Ordering::Acquire, 0x10, 0x11);
        trace.update(1, Operation::FetchBits, Ordering::Relaxed, 0x11, 0x31);
        trace.update(0, Operation::FetchBits, Ordering::Release, 0x31, 0x30);
        assert_eq!(trace.one().acquisitions, 1);
    }

    #[test]
    fn readers_overlap_and_are_locks_where_there_are_writers() {
        let overlap = |trace: &mut Trace| {
            trace.acquire(0, 0, 1);
            trace.acquire(1, 1, 2);
            trace.update(0, Operation::FetchAdd, Ordering::Release, 2, 1);
            // Tries again at once, which is not waiting.
            trace.fail(2, 2);
            trace.acquire(2, 1, 2);
            trace.update(1, Operation::FetchAdd, Ordering::Release, 2, 1);
            trace.update(2, Operation::FetchAdd, Ordering::Release, 1, 0);
        };
        let mut trace = Trace::default();
        overlap(&mut trace);
        assert_eq!(trace.records(), [], "a counted object");
        let mut trace = Trace::default();
        overlap(&mut trace);
        trace.acquire(3, 0, 0x3fff_ffff);
        trace.release(3, 0x3fff_ffff, 0);
        let lock = trace.one();
        assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 4, 1));
    }

    #[test]
    fn a_reference_count_is_no_lock() {
        let mut trace = Trace::default();
        for thread in 0..4 {
            trace.update(thread, Operation::FetchAdd, Ordering::Relaxed, 1, 2);
            trace.update(thread, Operation::FetchAdd, Ordering::Release, 2, 1);
        }
        // Nor is one with stronger orderings than it needs.
        for thread in 0..4 {
            trace.update(thread, Operation::FetchAdd, Ordering::SequentiallyConsistent, 1, 2);
            trace.update(thread, Operation::FetchAdd, Ordering::SequentiallyConsistent, 2, 1);
        }
        assert_eq!(trace.records(), []);
    }

    #[test]
    fn an_addition_is_a_lock_once_somebody_waits() {
        let mut trace = Trace::default();
        trace.update(0, Operation::FetchAdd, Ordering::Acquire, 0, 1);
        trace.load(1, 1);
        trace.load(1, 1);
        trace.update(0, Operation::FetchAdd, Ordering::Release, 1, 0);
        trace.update(1, Operation::FetchAdd, Ordering::Acquire, 0, 1);
        trace.update(1, Operation::FetchAdd, Ordering::Release, 1, 0);
        let lock = trace.one();
        assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Word, 2, 1));
    }

    #[test]
    fn the_head_of_a_stack_is_no_lock() {
        let mut trace = Trace::default();
        let node = |number: u64| 0x5555_0000_0000 + number * 64;
        for number in 0..4 {
            trace.update(
                0,
                Operation::CompareExchange,
                Ordering::AcquireRelease,
                node(number),
                node(number + 1),
            );
            trace.fail(1, node(number));
        }
        // Takes one off and puts it back, as a pool does.
        trace.acquire(0, node(4), node(3));
        trace.release(0, node(3), node(4));
        assert_eq!(trace.records(), []);
    }

    #[test]
    fn holds_that_overlap_exclude_nobody() {
        // Small numbers, as indices of a pool are: both put back what they took, but not in order.
        let mut trace = Trace::default();
        trace.acquire(0, 7, 5);
        trace.acquire(1, 5, 2);
        trace.release(0, 2, 7);
        trace.release(1, 7, 5);
        assert_eq!(trace.records(), []);
    }

    #[test]
    fn a_flag_is_awaited() {
        let mut trace = Trace::default();
        trace.load(0, 0);
        trace.load(0, 0);
        trace.load(0, 0);
        trace.update(1, Operation::AtomicStore, Ordering::Release, 0, 1);
        trace.load(0, 1);
        let lock = trace.one();
        assert_eq!((lock.kind, lock.acquisitions, lock.contended), (LockKind::Awaited, 1, 1));
        assert_eq!((lock.wait_total, lock.hold_total), (50, 0));
        assert_eq!(lock.waiters, [(100, 1)]);
    }

    #[test]
    fn a_flag_that_is_looked_at_between_work_is_not_awaited() {
        let mut trace = Trace::default();
        for value in [0, 0, 0, 1] {
            trace.load(0, value);
            trace.accesses += 100;
        }
        assert_eq!(trace.records(), []);
    }

    #[test]
    fn pthread_locks_need_no_guess() {
        let mut trace = Trace::default();
        let taken = trace.event(0);
        trace.locks.pthread_acquired(LockKind::Mutex, &taken, false);
        let waits = trace.event(1);
        let released = trace.event(0);
        trace.locks.pthread_released(LockKind::Mutex, &released);
        let taken = Event { end: trace.now, ..waits };
        trace.locks.pthread_acquired(LockKind::Mutex, &taken, true);
        let released = trace.event(1);
        trace.locks.pthread_released(LockKind::Mutex, &released);
        let shared = trace.event(2);
        trace.locks.pthread_acquired(LockKind::Shared, &shared, false);
        let records = trace.records();
        assert_eq!(records.len(), 2, "one for each kind");
        let mutex = &records[0];
        assert_eq!(
            (mutex.kind, mutex.acquisitions, mutex.contended, mutex.bounces),
            (LockKind::Mutex, 2, 1, 1)
        );
        assert_eq!((mutex.wait_total, mutex.hold_total), (20, 10));
        assert_eq!((records[1].kind, records[1].acquisitions), (LockKind::Shared, 1));
    }

    #[test]
    fn what_is_freed_is_taken_out() {
        let mut trace = Trace::default();
        trace.acquire(0, 0, 1);
        trace.release(0, 1, 0);
        trace.acquire(0, 0, 1);
        assert_eq!(trace.locks.take(9, A + 4, 64), []);
        assert_eq!(trace.locks.take(9, A - 64, 1 << 30).len(), 1);
        // What was held there is forgotten with it.
        trace.release(0, 1, 0);
        assert_eq!(trace.records(), []);
    }
}
