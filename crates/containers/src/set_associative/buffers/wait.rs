//! Lists of threads that sleep until a block is read, and that are woken one by one.
//!
//! W1. A thread loads the word and enters the list under one hold of the bucket's lock.
//! W2. The thread that ends the filling then takes the lock and removes the block's first sleeper from the list. A
//!     removed sleeper removes the next one in turn.
//!
//! No wake-up is lost. If the filler's hold comes first, a thread that loads the word under a later hold sees the end.
//! Otherwise the sleeper is in the list when the filler looks. After the end no thread enters, so the chain of W2
//! reaches every sleeper. A sleeper is woken once, and continues only if it is off the list.
//!
//! Progress: a sleeper depends on the filler. Checked by `model_a_waiter_sees_what_was_read` and
//! `model_waiters_are_woken_one_by_one` of [`super`].
//!
//! # Why
//! Waking all at once made all of them contend for one row's lock, which one of them got (the seed's thundering herd).
//! Here the second wakes while the first already works. Weakness: the last of many sleepers waits for as many wake-ups.

use super::word::{Contents, Word};
#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_concurrent::padded::Padded;

const BUCKETS: usize = if cfg!(loom) { 1 } else { 64 };

#[derive(Debug)]
struct Sleeper {
    /// The address of the word; it is stable, because the sleeper has a pin.
    word: usize,
    ticket: u64,
    thread: thread::Thread,
}

#[derive(Debug, Default)]
struct Sleepers {
    tickets: u64,
    /// In the order of their arrival.
    all: Vec<Sleeper>,
}

/// The sleepers of a cache. The protocol is in the module's documentation.
#[derive(Debug)]
pub(super) struct Waits([Padded<Mutex<Sleepers>>; BUCKETS]);

fn address(word: &Word) -> usize {
    std::ptr::from_ref(word).addr()
}

impl Waits {
    pub(super) fn new(class: &'static LockClass) -> Self {
        Self(std::array::from_fn(|_| Padded(Mutex::new(class, Sleepers::default()))))
    }

    fn bucket(&self, word: &Word) -> &Mutex<Sleepers> {
        &self.0[address(word) / align_of::<Word>() % BUCKETS]
    }

    /// Sleeps until `word`, on which the caller has a pin, is not being filled. Returns whether it slept: then it must
    /// call [`Waits::wake_one`] for the next sleeper.
    #[cold]
    pub(super) fn sleep(&self, word: &Word) -> bool {
        let bucket = self.bucket(word);
        let mut sleepers = bucket.lock();
        if word.contents() != Contents::Filling {
            return false;
        }
        sleepers.tickets += 1;
        let ticket = sleepers.tickets;
        sleepers.all.push(Sleeper { word: address(word), ticket, thread: thread::current() });
        while sleepers.all.iter().any(|sleeper| sleeper.ticket == ticket) {
            drop(sleepers);
            thread::park();
            sleepers = bucket.lock();
        }
        true
    }

    /// Wakes the sleeper that has waited longest for `word`, if there is one.
    pub(super) fn wake_one(&self, word: &Word) {
        let mut sleepers = self.bucket(word).lock();
        let of_word = |sleeper: &Sleeper| sleeper.word == address(word);
        let Some(first) = sleepers.all.iter().position(of_word) else { return };
        let sleeper = sleepers.all.remove(first);
        drop(sleepers);
        sleeper.thread.unpark();
    }

    /// Threads that sleep for `word`.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeping(&self, word: &Word) -> usize {
        let sleepers = self.bucket(word).lock();
        sleepers.all.iter().filter(|sleeper| sleeper.word == address(word)).count()
    }
}
