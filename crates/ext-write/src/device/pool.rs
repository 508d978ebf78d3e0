//! Aligned buffers for direct requests; all of them together have a bound.
//!
//! # Boundary
//! Lends memory. The borrower fills it.
//!
//! # Concurrency
//! P1. `bytes`, of the buffers that are lent or kept, is at most `bytes_max`. It rises before a buffer is allocated and falls after one is
//!     freed.
//! P2. A thread has at most one buffer, and waits for no other thread that may wait for a buffer. So each buffer comes back.
//! P3. Threads that find no room get buffers in the order of their tickets: many small requests keep no large one waiting.
//!
//! # Why
//! A buffer for each thread grew with the threads. A buffer for each request touched fresh memory each time, which the system clears first.

use crate::lock_order::EXT_MEMORY;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_ext::device::direct::{AlignedBuffer, PAGE};

/// The pool.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
    /// The largest buffer.
    piece_bytes: usize,
    /// `State::bytes`, for the budget, which holds a lock of its own when it asks.
    held: AtomicU64,
    /// Threads that found no room when they asked.
    waits: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Buffers that are not lent, by their sizes.
    kept: BTreeMap<usize, Vec<AlignedBuffer>>,
    /// Bytes of all buffers, lent or kept.
    bytes: usize,
    /// The ticket of the next thread that asks.
    next: u64,
    /// The ticket of the thread whose turn it is.
    turn: u64,
}

/// A lent buffer; it returns to its pool when it is dropped.
#[derive(Debug)]
pub(super) struct Lent<'p> {
    pool: &'p Pool,
    buffer: AlignedBuffer,
}

impl Pool {
    /// Buffers of `bytes_max` bytes altogether, each of a quarter of them or of `piece_max` at most.
    pub(super) fn new(bytes_max: u64, piece_max: usize) -> Self {
        let bytes_max = bytes_max as usize;
        // The largest power of two in a quarter.
        let quarter = (bytes_max / 4).max(PAGE);
        let piece_bytes = (1 << quarter.ilog2()).min(piece_max);
        let state = Mutex::new(&EXT_MEMORY, State::default());
        Self {
            state,
            changed: Condvar::default(),
            bytes_max,
            piece_bytes,
            held: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// Bytes of all buffers now, and how often a thread waited for one.
    pub(super) fn counts(&self) -> (u64, u64) {
        // ORDERING: Relaxed; statistics, nothing is reached through them.
        (self.held.load(Relaxed), self.waits.load(Relaxed))
    }

    /// A buffer of at least `bytes`, or of the size of the largest buffer if that is less. Waits while all are lent. Its old contents are in it.
    pub(super) fn take(&self, bytes: usize) -> Lent<'_> {
        let size = bytes.clamp(PAGE, self.piece_bytes).next_power_of_two();
        let mut state = self.state.lock();
        let ticket = state.next;
        state.next += 1;
        let mut has_waited = false;
        let found = loop {
            if state.turn == ticket
                && let Some(found) = state.find(size, self.bytes_max)
            {
                break found;
            }
            // ORDERING: Relaxed; as in `counts`.
            self.waits.fetch_add(u64::from(!has_waited), Relaxed);
            has_waited = true;
            self.changed.wait(&mut state);
        };
        // ORDERING: Relaxed; as in `counts`.
        self.held.store(state.bytes as u64, Relaxed);
        state.turn += 1;
        // There may be room for the next thread, too.
        let others = state.next > state.turn;
        drop(state);
        if others {
            self.changed.notify_all();
        }
        let buffer = match found {
            Found::Kept(buffer) => buffer,
            Found::Room => AlignedBuffer::new(size),
        };
        Lent { pool: self, buffer }
    }
}

/// The result of a search.
enum Found {
    Kept(AlignedBuffer),
    /// `State::bytes` counts a new buffer already.
    Room,
}

impl State {
    /// A kept buffer of this size, room for a new one, or a larger kept one; `None` if all of the room is lent.
    fn find(&mut self, size: usize, bytes_max: usize) -> Option<Found> {
        if let Some(buffer) = self.kept.get_mut(&size).and_then(Vec::pop) {
            return Some(Found::Kept(buffer));
        }
        if self.bytes + size > bytes_max {
            let larger = self.kept.range_mut(size..).find_map(|(_, of_size)| of_size.pop());
            if let Some(buffer) = larger {
                return Some(Found::Kept(buffer));
            }
            let kept: usize = self.kept.iter().map(|(size, all)| size * all.len()).sum();
            if self.bytes - kept + size > bytes_max {
                return None;
            }
            for of_size in self.kept.values_mut().rev() {
                while self.bytes + size > bytes_max
                    && let Some(buffer) = of_size.pop()
                {
                    self.bytes -= buffer.bytes().len();
                }
            }
        }
        self.bytes += size;
        Some(Found::Room)
    }
}

impl Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.bytes()
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.bytes_mut()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut state = self.pool.state.lock();
        state.kept.entry(buffer.bytes().len()).or_default().push(buffer);
        let is_awaited = state.next > state.turn;
        drop(state);
        if is_awaited {
            self.pool.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::Random;

    /// Sixteen threads would have kept 16 MiB.
    #[test]
    fn all_buffers_together_stay_within_the_bound() {
        const MAX: usize = 256 << 10;
        let pool = Pool::new(MAX as u64, 1 << 20);
        assert_eq!(pool.piece_bytes, 64 << 10);
        std::thread::scope(|scope| {
            for seed in 0..16 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..200 {
                        let wanted = 1 + random.below(100_000) as usize;
                        let mut buffer = pool.take(wanted);
                        assert!(buffer.len() >= wanted.min(pool.piece_bytes));
                        assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
                        buffer.fill(seed as u8);
                        let (bytes, _) = pool.counts();
                        assert!(bytes as usize <= MAX, "{bytes}");
                        assert!(buffer.iter().all(|byte| *byte == seed as u8), "it is lent once");
                    }
                });
            }
        });
        let state = pool.state.lock();
        let kept: usize = state.kept.values().flatten().map(|one| one.bytes().len()).sum();
        assert_eq!((state.bytes, state.next), (kept, state.turn), "all came back");
    }

    /// While small requests came one after the other, a large one found no room.
    #[test]
    fn a_large_request_gets_its_turn_among_small_ones() {
        let pool = Pool::new(256 << 10, 1 << 20);
        let all: Vec<_> = (0..64).map(|_| pool.take(PAGE)).collect();
        assert_eq!(pool.counts(), (256 << 10, 0));
        std::thread::scope(|scope| {
            let large = scope.spawn(|| pool.take(64 << 10).len());
            while pool.counts().1 == 0 {
                assert!(!large.is_finished(), "there is no room");
                std::thread::yield_now();
            }
            let mut all = all.into_iter();
            drop(all.next());
            let small = scope.spawn(|| pool.take(PAGE).len());
            while pool.counts().1 == 1 {
                assert!(!small.is_finished(), "it is behind the large one");
                std::thread::yield_now();
            }
            drop(all);
            assert_eq!(large.join().unwrap(), 64 << 10);
            assert!(small.join().unwrap() >= PAGE);
        });
    }
}
