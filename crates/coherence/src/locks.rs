//! Finds locks in the atomic operations of threads, and keeps their waits and holds.
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
//! Nothing is counted before the release, so a word that is never moved back (a ticket counter, a stack of
//! nodes) is no lock, nor is a word that is moved without acquire (a reference count). An unconditional
//! addition counts as a lock only if some thread ever waited on the word; otherwise every counter of
//! running tasks would be a lock. A pointer that is exchanged for another is a pop, not a lock. Holds that
//! overlap are readers', if there are writers or a thread waits; otherwise they are users of a counted
//! object. If one of them only puts the old value back, the word excludes no thread at all. A word on
//! which a thread spins until another changes it, and which is no lock, is `Awaited`.
//!
//! The slow paths of Rust's standard library are precompiled, so their operations on a word are not
//! reported; only a failed try before them and the thread's sleep are. If a waiting thread later makes an
//! update that looks like a release, by its value or its difference, it must have acquired the lock in
//! code that reports nothing, when it last woke or tried. A thread that sleeps on another word while it holds a lock may have
//! released that lock meanwhile, as `Condvar::wait` does: it has if another thread held it then.
//!
//! Weakness: these are guesses from behaviour; a lock that another thread releases is not seen, and
//! a semaphore of count one is taken for a mutex, which it is. Of a thread that waits for a condition
//! several times in one hold, the holds between are seen only if it slept for the lock after each.

use crate::model::{TICKS_PER_CYCLE, Ticks};
use crate::profile::{Lock, LockKind, Operation, Ordering};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Other accesses between two looks at a word, up to which they are one wait.
const SPIN_ACCESSES: u64 = 16;
/// Other accesses between two looks after a failed try: parking takes some.
const TRY_ACCESSES: u64 = 2000;
/// Words that a thread can be waiting on at a time.
const CHAINS: usize = 4;
/// Words that a thread can be holding at a time, tentative ones included.
const HOLDS: usize = 32;
/// Values, and differences, of releases that are kept per word.
const RELEASES: usize = 4;
/// Where the standard library's reader-writer lock keeps the word on which writers sleep.
const WRITERS_SLEEP: u64 = 4;
/// Sites kept per lock.
const SITES: usize = 16;
/// Addresses are grouped by this, to find those of freed memory.
const BLOCK_SHIFT: u32 = 6;

/// The thread that makes an access, the place and the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// Address of the word.
    pub address: u64,
    /// Size of the word in bytes.
    pub bytes: u32,
    /// The thread.
    pub thread: u32,
    /// The thread's core.
    pub core: u32,
    /// The site.
    pub site: u32,
    /// The thread's clock before the access.
    pub begin: Ticks,
    /// The thread's clock after the access.
    pub end: Ticks,
    /// Accesses of the thread so far, of any kind.
    pub accesses: u64,
}

/// A thread that looks at a word again and again.
#[derive(Debug, Clone, Copy)]
struct Chain {
    address: u64,
    /// First read; since then the word never had the value that the thread wants.
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
    away: Away,
}

/// From when to when a thread slept on other words.
type Away = Option<(Ticks, Ticks)>;

/// A thread that surely wants a word. It may have got it where nothing is reported.
#[derive(Debug, Clone, Copy)]
struct Want {
    address: u64,
    /// Beginning of the thread's chain.
    begin: Ticks,
    /// End of the last look, or of the last sleep.
    end: Ticks,
    site: u32,
    /// The value that it tried to write, unless zero.
    desired: Option<u64>,
    slept: bool,
    /// Since `end`.
    away: Away,
}

#[derive(Debug, Default)]
struct Thread {
    chains: Vec<Chain>,
    holds: Vec<Hold>,
    wants: Vec<Want>,
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

/// The state of one word.
#[derive(Debug, Clone, Default)]
struct Word {
    lock: Counts,
    /// Acquisitions that count only if a thread ever waits.
    unconditional: Counts,
    awaited: Counts,
    /// A thread spun or slept on it; an immediate second try is no wait.
    waited: bool,
    /// It excludes no thread.
    refuted: bool,
    /// Two held it at a time.
    shared: bool,
    /// The difference that the first acquisition added, and whether another one added a different one: readers and
    /// writers.
    step: Option<u64>,
    excludes: bool,
    /// Values from which a thread acquired it with a condition and released it, and the difference that the thread added.
    free: Vec<u64>,
    steps: Vec<u64>,
    /// Latest release of a hold that counts, and whether that hold took its difference back.
    released: Option<(Ticks, bool)>,
}

#[derive(Debug, Clone)]
enum Entry {
    Word(Box<Word>),
    Known(LockKind, Box<Counts>),
}

/// A lock whose holder `pthread_*` calls tell.
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
    /// value, and `new` is then the value that it would have written. A store passes the value before as `old`.
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
            self.fail(event, ordering, old, new);
            return;
        }
        // A thread that waits changes nothing meanwhile. A word that a thread reads again between its own updates, as each
        // thread that pins an epoch does, is not waited for.
        self.thread(event.thread)
            .chains
            .retain(|chain| chain.hard || chain.address == event.address);
        if releases(ordering)
            && (self.release(event, operation, old, new)
                || self.release_unseen(event, operation, ordering, old, new))
        {
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
        if let Some(address) = self.away(event) {
            self.word(address).waited = true;
            self.awaited(&Event { address, ..*event }, (event.begin, event.site), event.end);
            return;
        }
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
        self.want(event, None, true);
        self.word(event.address).waited = true;
        self.awaited(event, (event.begin, event.site), event.end);
    }

    /// A pthread lock was taken, or a condition, a barrier or a semaphore let the thread go on; the call began at `begin` and ended at `end`, and may have waited.
    pub fn pthread_acquired(&mut self, kind: LockKind, event: &Event, contended: bool) {
        let counts = self.known(event.address, kind);
        counts.acquire(event.core);
        if contended {
            counts.waited(event.end - event.begin, event.site);
        }
        if !kind.is_held() {
            return;
        }
        let (address, thread, since) = (event.address, event.thread, event.end);
        self.known.push(Known { address, kind, thread, since });
    }

    /// A pthread lock was released, at `begin`.
    pub fn pthread_released(&mut self, kind: LockKind, event: &Event) {
        let same = |known: &Known| known.address == event.address && known.kind == kind;
        // The thread's own hold. If another thread releases the lock, some thread held it all the same.
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

    /// Takes out the state of freed memory, as [`Locks::into_records`] would give it, with
    /// the address in place of [`Lock::offset`].
    pub fn take(&mut self, seed: u64, start: u64, bytes: u64) -> Vec<Lock> {
        let end = start.saturating_add(bytes);
        let (first, last) = (start >> BLOCK_SHIFT, end.saturating_sub(1).max(start) >> BLOCK_SHIFT);
        let mut found = Vec::new();
        // Whether anything is left.
        let mut out_of = |block: &mut Vec<(u64, Entry)>| {
            block.retain(|(address, entry)| {
                let gone = (start..end).contains(address);
                if gone {
                    found.push((*address, entry.clone()));
                }
                !gone
            });
            !block.is_empty()
        };
        if last - first < self.blocks.len() as u64 {
            for key in first..=last {
                if self.blocks.get_mut(&key).is_some_and(|block| !out_of(block)) {
                    self.blocks.remove(&key);
                }
            }
        } else {
            self.blocks.retain(|_, block| out_of(block));
        }
        if !found.is_empty() {
            let gone = |address: u64| (start..end).contains(&address);
            for thread in &mut self.threads {
                thread.chains.retain(|chain| !gone(chain.address));
                thread.holds.retain(|hold| !gone(hold.address));
                thread.wants.retain(|want| !gone(want.address));
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

    /// The thread's wait for the word, if it has not ended.
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
        let Thread { chains, wants, .. } = self.thread(event.thread);
        wants.retain(|want| want.address != event.address);
        let position = chains.iter().position(|chain| chain.address == event.address)?;
        let chain = chains.swap_remove(position);
        (!chain.stale(event)).then_some(chain)
    }

    fn holds(&mut self, event: &Event) -> bool {
        self.thread(event.thread).holds.iter().any(|hold| hold.address == event.address)
    }

    fn fail(&mut self, event: &Event, ordering: Ordering, value: u64, desired: u64) {
        match self.chain(event) {
            Some(chain) => {
                chain.hard = true;
                chain.loaded = false;
                chain.look(event);
            }
            None => self.begin_chain(event, value, true),
        }
        if acquires(ordering) {
            self.want(event, (desired != 0).then_some(desired), false);
        }
    }

    /// Remembers that the thread wants the word: a chain is forgotten in a long hold, this is not.
    fn want(&mut self, event: &Event, desired: Option<u64>, slept: bool) {
        let Some(chain) = self.chain(event).copied() else { return };
        let wants = &mut self.thread(event.thread).wants;
        let mut want = Want {
            address: event.address,
            begin: chain.begin,
            end: event.end,
            site: chain.site,
            desired,
            slept,
            away: None,
        };
        if let Some(before) = wants.iter_mut().find(|want| want.address == event.address) {
            if before.begin == want.begin {
                want.slept |= before.slept;
                want.desired = want.desired.or(before.desired);
            }
            *before = want;
            return;
        }
        if wants.len() == HOLDS {
            wants.remove(0);
        }
        wants.push(want);
    }

    /// The thread slept on a word: updates the other words that it wants or holds. Returns the address of
    /// the lock if only that lock's writers sleep on this word.
    fn away(&mut self, event: &Event) -> Option<u64> {
        let again = |away: &mut Away| {
            *away = Some((away.map_or(event.begin, |(begin, _)| begin), event.end));
        };
        let Thread { holds, wants, .. } = self.thread(event.thread);
        let sleeps_here = |want: &&mut Want| {
            let beside = want.address.wrapping_add(WRITERS_SLEEP) == event.address;
            beside && want.desired.is_some() && want.away.is_none()
        };
        if let Some(want) = wants.iter_mut().find(sleeps_here) {
            (want.slept, want.end) = (true, event.end);
            return Some(want.address);
        }
        for hold in holds.iter_mut().filter(|hold| hold.address != event.address) {
            again(&mut hold.away);
        }
        for want in wants.iter_mut().filter(|want| want.address != event.address) {
            again(&mut want.away);
        }
        // Slept on this word, on another, and on this again: held it between.
        let mut held = None;
        if let Some(position) = holds.iter().position(|hold| {
            hold.address == event.address && hold.away.is_some() && !hold.unconditional
        }) {
            let hold = holds.remove(position);
            held = hold.away.map(|(left, _)| (hold.core, hold.wait(), (hold.since, left)));
        } else if let Some(want) = wants.iter().find(|want| want.address == event.address)
            && let Some((left, _)) = want.away
        {
            held = Some((event.core, Some((want.begin, want.end, want.site)), (want.end, left)));
        }
        if let Some((core, wait, hold)) = held {
            self.end_chain(event);
            let word = self.word(event.address);
            if word.lock.acquisitions > 0 {
                word.lock.held(core, wait, hold);
            }
        }
        None
    }

    fn acquire(&mut self, event: &Event, operation: Operation, old: u64, new: u64) {
        let holds = &mut self.thread(event.thread).holds;
        let mut waited_since = None;
        if let Some(position) = holds.iter().position(|hold| hold.address == event.address) {
            // The earlier try failed: it only told the holder that a thread waits.
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
            away: None,
        };
        let holds = &mut self.thread(event.thread).holds;
        if holds.len() == HOLDS {
            holds.remove(0);
        }
        holds.push(hold);
    }

    /// Whether the access released the thread's hold.
    fn release(&mut self, event: &Event, operation: Operation, old: u64, new: u64) -> bool {
        let holds = &mut self.thread(event.thread).holds;
        let Some(position) = holds.iter().rposition(|hold| hold.address == event.address) else {
            return false;
        };
        let hold = holds[position];
        let mask = event.mask();
        let taken_back =
            new.wrapping_sub(old).wrapping_add(hold.after).wrapping_sub(hold.before) & mask == 0;
        if new != hold.before && !taken_back {
            return false;
        }
        holds.remove(position);
        self.end_chain(event);
        let word = self.word(event.address);
        let meanwhile = word.released.filter(|(released, _)| *released >= hold.since);
        let given_up = hold.away.filter(|_| overwrites(operation) && !hold.unconditional);
        if let Some((left, back)) = given_up
            && let Some((released, _)) = meanwhile
        {
            word.lock.held(hold.core, hold.wait(), (hold.since, left));
            let since = back.max(released).min(event.begin);
            word.lock.held(event.core, None, (since, event.begin));
            word.release(event, true);
            return true;
        }
        if let Some((_, other_taken_back)) = meanwhile {
            word.shared = true;
            word.refuted |= !(taken_back && other_taken_back);
        }
        let step = hold.after.wrapping_sub(hold.before) & mask;
        word.excludes |= *word.step.get_or_insert(step) != step;
        word.release(event, taken_back);
        word.waited |= hold.spun;
        let counts = if hold.unconditional {
            &mut word.unconditional
        } else {
            learn(&mut word.free, hold.before);
            learn(&mut word.steps, step);
            &mut word.lock
        };
        counts.held(hold.core, hold.wait(), (hold.since, event.begin));
        true
    }

    /// Whether the access released a hold that the thread must have acquired unseen.
    fn release_unseen(
        &mut self,
        event: &Event,
        operation: Operation,
        ordering: Ordering,
        old: u64,
        new: u64,
    ) -> bool {
        let Thread { holds, wants, .. } = self.thread(event.thread);
        let Some(want) = wants.iter().find(|want| want.address == event.address).copied() else {
            return false;
        };
        // An update that acquires as well may be anything.
        let releases_only = ordering == Ordering::Release || operation == Operation::AtomicStore;
        if old == new || !releases_only || holds.iter().any(|hold| hold.address == event.address) {
            return false;
        }
        let mask = event.mask();
        let word = self.word(event.address);
        // Before the first release that explains itself: a lock is free when it is zero.
        let desired = want.desired.filter(|_| want.slept);
        let gives_back = match operation {
            Operation::FetchAdd => {
                let step = old.wrapping_sub(new) & mask;
                word.steps.contains(&step) || desired == Some(step)
            }
            Operation::Exchange | Operation::AtomicStore => {
                word.free.contains(&new) || new == 0 && desired.is_some()
            }
            Operation::CompareExchange => word.free.contains(&new),
            _ => false,
        };
        if !gives_back {
            return false;
        }
        let (mut wait, mut since) = (Some(want.end), want.end);
        if overwrites(operation)
            && let Some((released, _)) = word.released
        {
            if let Some((left, back)) = want.away
                && released >= left
            {
                word.lock.held(
                    event.core,
                    Some((want.begin, want.end, want.site)),
                    (want.end, left),
                );
                (wait, since) = (None, back);
            }
            // Another had it until then.
            since = since.max(released).min(event.begin);
            wait = wait.map(|_| since);
        }
        let wait = wait.map(|until| (want.begin, until, want.site));
        word.lock.held(event.core, wait, (since, event.begin));
        word.release(event, true);
        self.end_chain(event);
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

impl Event {
    /// Bits of a word.
    fn mask(&self) -> u64 {
        if self.bytes >= 8 { u64::MAX } else { (1 << (self.bytes * 8)) - 1 }
    }
}

impl Hold {
    fn wait(&self) -> Option<(Ticks, Ticks, u32)> {
        self.waited_since.map(|(since, site)| (since, self.since, site))
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

    /// One acquisition: since when it waited until when, if it did; and from when to when it held.
    fn held(
        &mut self,
        core: u32,
        wait: Option<(Ticks, Ticks, u32)>,
        (since, until): (Ticks, Ticks),
    ) {
        self.acquire(core);
        if let Some((begin, end, site)) = wait {
            self.waited(end.saturating_sub(begin), site);
        }
        self.hold.add(until.saturating_sub(since));
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
    fn release(&mut self, event: &Event, taken_back: bool) {
        if self.released.is_none_or(|(released, _)| released < event.begin) {
            self.released = Some((event.begin, taken_back));
        }
    }

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

/// The value that it writes does not depend on the old one.
fn overwrites(operation: Operation) -> bool {
    matches!(operation, Operation::Exchange | Operation::AtomicStore)
}

fn learn(values: &mut Vec<u64>, value: u64) {
    if values.len() < RELEASES && !values.contains(&value) {
        values.push(value);
    }
}

/// A pointer gave way to another: a node was taken off, nothing was locked.
fn is_pop(operation: Operation, old: u64, new: u64) -> bool {
    // Locks beside a pointer are in its lowest bits.
    let exchanges = matches!(operation, Operation::Exchange | Operation::CompareExchange);
    exchanges && old >> 32 != 0 && (old ^ new) & !0xf != 0
}

#[cfg(test)]
mod tests;
