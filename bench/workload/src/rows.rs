//! The threads' use of caches as in Peacock (1992): look up, use, release, and some work of their own in between.
//!
//! # Boundary
//! One turn of a thread, and the time of many. Any cache that is a [`Cache`].
//!
//! # Why
//! The paper's runs were bound by the caches, nearly every lookup was a hit, and a processor also did other work. The
//! amount of that work decides how often locks collide; so it is a parameter, and the same for all.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Elements of a cache.
pub const CAPACITY: usize = 16_384;
/// Keys that are asked for, all of which fit.
const KEYS: u64 = CAPACITY as u64 * 3 / 4;
/// One of so many accesses is of a key that was never asked for.
const FRESH: usize = 128;

/// A cache of numbered things.
pub trait Cache: Send + Sync {
    /// Looks `key` up, uses it and releases it. Returns whether it was cached; it is afterwards.
    fn access(&self, key: u64) -> bool;
}

/// Words that a thread works on, on lines of its own.
#[repr(align(128))]
struct Own([u64; 64]);

/// Inserts the keys that will be looked up.
pub fn fill(cache: &dyn Cache) {
    for key in 0..KEYS {
        cache.access(key);
    }
}

/// Works through `work` words, then looks one key up. The sum of the turns depends on the hits.
pub fn turn(cache: &dyn Cache, me: usize, turn: usize, work: usize) -> u64 {
    let mut own = Own([me as u64; 64]);
    for step in 0..work {
        own.0[step % 64] = black_box(own.0[step * 7 % 64]).wrapping_add(step as u64);
    }
    let nth = (me * 1_000_003 + turn) as u64;
    let key = match turn % FRESH {
        0 => KEYS + nth,
        _ => (nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % KEYS,
    };
    u64::from(cache.access(key)) + black_box(own.0[0]) % 2
}

/// How long `threads` threads need for `operations` turns each, from when all are there.
pub fn timed(cache: &dyn Cache, threads: usize, operations: usize, work: usize) -> Duration {
    let start = &Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let body = |me| {
            move || {
                start.wait();
                (0..operations).map(|nth| turn(cache, me, nth, work)).sum::<u64>()
            }
        };
        let all: Vec<_> = (0..threads).map(|me| scope.spawn(body(me))).collect();
        start.wait();
        let begin = Instant::now();
        all.into_iter().for_each(|one| drop(black_box(one.join())));
        begin.elapsed()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    struct Counts(AtomicUsize);

    impl Cache for Counts {
        fn access(&self, key: u64) -> bool {
            self.0.fetch_add(1, Relaxed);
            key < KEYS
        }
    }

    #[test]
    fn every_turn_is_one_access_and_few_are_of_fresh_keys() {
        let cache = Counts(AtomicUsize::new(0));
        fill(&cache);
        assert_eq!(cache.0.swap(0, Relaxed), KEYS as usize);
        timed(&cache, 3, 200, 1);
        assert_eq!(cache.0.into_inner(), 600);
        let hit = |nth: &usize| turn(&Counts(AtomicUsize::new(0)), 0, *nth, 0) > 0;
        assert_eq!((0..2 * FRESH).filter(hit).count(), 2 * FRESH - 2);
    }
}
