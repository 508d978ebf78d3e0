//! The threads' use of the caches: look up, use, release, and some work of their own in between.
//!
//! # Boundary
//! One turn, and the lock meter's counts meanwhile.
//!
//! # Why
//! The paper's runs were bound by the caches, nearly every lookup was a hit, and a processor also did other work. The
//! amount of that work decides how often locks collide; so it is a parameter, and the same for all.

use super::caches::{CLASSES, Cache};
use std::hint::black_box;
use uvfs_concurrent::lock::meter::{self, ClassReport};

/// Elements of a cache.
pub const CAPACITY: usize = 16_384;
/// Keys that are asked for, all of which fit.
const KEYS: u64 = CAPACITY as u64 * 3 / 4;
/// Of so many accesses one is of a key that was never asked for.
const FRESH: usize = 128;

/// Words that a thread works on, on lines of its own.
#[repr(align(128))]
struct Own([u64; 64]);

/// Inserts the keys that will be looked up.
pub fn fill(cache: &dyn Cache) {
    for key in 0..KEYS {
        cache.access(key);
    }
}

/// Works through `work` words, then looks one key up.
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

/// Acquisitions of the caches' locks since `before`, and how many of them found the lock held.
pub fn contended(before: &[ClassReport]) -> (u64, u64) {
    let classes = meter::difference(&meter::snapshot(), before);
    let of_caches = classes.iter().filter(|class| class.class.starts_with(CLASSES));
    of_caches.fold((0, 0), |(acquisitions, contended), class| {
        let totals = &class.totals;
        (acquisitions + totals.acquisitions, contended + totals.contended)
    })
}
