//! Where threads sleep until a block is read in, and are woken one by one.
//!
//! W1. A thread looks at the word and enters the list under one hold of the bucket's lock.
//! W2. The thread that ends the filling takes the lock afterwards, and the first of the block's sleepers off the
//!     list; a sleeper that was taken off takes the next one off in turn.
//!
//! No wake-up is lost: either the filler's hold comes first, then a thread that looks under a later one sees the
//! end; or the sleeper is in the list when the filler looks. After the end nobody enters, so the chain of W2
//! reaches everybody. A sleeper is woken once, and goes on only if it is off the list.
//!
//! Progress: a sleeper depends on the filler. Checked by `model_a_waiter_sees_what_was_read` and
//! `model_waiters_are_woken_one_by_one` of [`super`].
//!
//! # Why
//! Waking all at once made all of them fight for one row's lock, of which one got it (the seed's thundering
//! herd). Here the second wakes while the first is already at work. Weakness: the last of many sleepers waits for
//! as many wake-ups.

use super::word::{Contents, Word};
use crate::lock::{LockClass, Mutex};
use crate::padded::Padded;
#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::thread;

const BUCKETS: usize = if cfg!(loom) { 1 } else { 64 };

#[derive(Debug)]
struct Sleeper {
    /// The address of the word; it stands still, since the sleeper has a pin.
    word: usize,
    ticket: u64,
    thread: thread::Thread,
}

#[derive(Debug, Default)]
struct Sleepers {
    tickets: u64,
    /// Those that came first are first.
    all: Vec<Sleeper>,
}

/// See the module.
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

    /// Sleeps until `word`, which the caller has a pin of, is not being filled. Whether it slept: then it owes the
    /// next sleeper a [`Waits::wake_one`].
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
