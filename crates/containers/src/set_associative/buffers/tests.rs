//! Buffers: single reads, evictions, overflow, and returned memory.

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64 as Plain, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

static ROWS: LockClass = LockClass::new(1, "buffers-test", "test");
static FREE: LockClass = LockClass::new(2, "buffers-test-free", "test");
static WAITS: LockClass = LockClass::new(3, "buffers-test-waits", "test");
const CLASSES: BufferClasses = BufferClasses { rows: &ROWS, free: &FREE, waits: &WAITS };
const BLOCK: usize = 4096;

/// A cache with room for `rows` rows.
fn cache(rows: usize) -> BufferCache {
    let cache = BufferCache::new(CLASSES, rows * WAYS * (BLOCK + TABLES_BYTES), BLOCK).unwrap();
    assert_eq!((cache.table.rows(), cache.words.len()), (rows, rows * WAYS));
    cache
}

/// The content of block `block`.
fn content(block: u64) -> [u8; BLOCK] {
    let mut bytes = [block as u8; BLOCK];
    bytes[BLOCK - 8..].copy_from_slice(&block.to_le_bytes());
    bytes
}

fn get(cache: &BufferCache, block: u64) -> Buffer<'_> {
    let read = |bytes: &mut [u8]| {
        bytes.copy_from_slice(&content(block));
        Ok::<(), Infallible>(())
    };
    let Ok(buffer) = cache.get(block, read);
    assert_eq!(*buffer, content(block), "block {block}");
    buffer
}

/// Every frame is in one place, no pin is left, and the counted bytes are the true ones.
fn audit(cache: &BufferCache) {
    let mut seen = BTreeSet::new();
    let mut used = 0;
    for at in 0..cache.table.rows() {
        let row = cache.table.lock(at);
        for way in (0..WAYS).filter(|&way| row.is_used(way)) {
            assert!(cache.words[row.value(way) as usize].is_idle());
            assert!(seen.insert(row.value(way)), "a frame in two ways");
            used += 1;
        }
        assert!(row.extra.0.is_none(), "overflow without a holder");
    }
    for group in &cache.groups {
        let mut free = group.free.lock();
        let in_place: Vec<u32> = std::iter::from_fn(|| free.take_in_place()).collect();
        assert!(in_place.iter().all(|frame| seen.insert(*frame)), "free, and in use");
        used += in_place.len();
        in_place.into_iter().rev().for_each(|frame| free.put(frame));
    }
    let tables = cache.table.bytes() + size_of_val(&*cache.words) + size_of_val(&*cache.groups);
    let all = tables + cache.words.len() * 8 + used * BLOCK;
    assert_eq!(cache.held_bytes(), all as u64);
}

#[test]
fn blocks_are_pages_at_least() {
    for bytes in [0, 1, 1024, 5000, 4095] {
        let error = BufferCache::new(CLASSES, 1 << 20, bytes).unwrap_err();
        assert!(error.to_string().contains("4096 or more"), "{error}");
    }
    let small = BufferCache::new(CLASSES, 0, 8192).unwrap();
    assert_eq!((small.counts().rows, small.counts().frames, small.block_bytes()), (1, 16, 8192));
    assert_eq!(size_of::<super::super::Lines<u64, u32, Overflow, WAYS>>(), 256, "16 bytes a frame");
}

#[test]
fn a_block_is_read_once_and_its_row_gives_up_the_oldest() {
    let cache = cache(1);
    (0..16).for_each(|block| drop(get(&cache, block)));
    drop(get(&cache, 0));
    drop(get(&cache, 16));
    let counts = cache.counts();
    assert_eq!((counts.hits, counts.misses, counts.evictions, counts.overflows), (1, 17, 1, 0));
    drop(get(&cache, 0));
    assert_eq!(cache.counts().hits, 2, "it was used after block 1");
    drop(get(&cache, 1));
    assert_eq!(cache.counts().misses, 18);
    audit(&cache);
}

/// Bug of the seed: an operation that needed two buffers of one list had one, and waited for another operation that did
/// the same.
#[test]
fn a_row_whose_ways_are_all_pinned_overflows_and_shrinks_again() {
    let cache = cache(1);
    let held = get(&cache, 0);
    let empty = cache.held_bytes() - BLOCK as u64;
    let pinned: Vec<_> = (1..40).map(|block| get(&cache, block)).collect();
    assert_eq!(cache.counts().overflows, 24);
    assert_eq!(cache.held_bytes(), empty + 40 * BLOCK as u64);
    let again: Vec<_> = (0..40).map(|block| get(&cache, block)).collect();
    assert_eq!((cache.counts().misses, cache.counts().hits), (40, 40), "overflow is found too");
    assert!(cache.try_claim(40).is_none(), "reading ahead does not overflow");
    drop((pinned, again));
    assert_eq!(cache.held_bytes(), empty + 16 * BLOCK as u64);
    assert_eq!(*held, content(0));
    drop(held);
    audit(&cache);
}

#[test]
fn an_error_is_returned_and_not_kept() {
    let cache = cache(1);
    assert_eq!(cache.get(5, |_| Err("broken")).map(drop), Err("broken"));
    drop(get(&cache, 5));
    let filling = cache.try_claim(6).unwrap();
    assert!(cache.try_claim(6).is_none() && cache.try_claim(5).is_none());
    drop(filling);
    drop(get(&cache, 6));
    assert_eq!((cache.counts().failures, cache.counts().misses), (2, 4));
    // Also in the overflow.
    let pinned: Vec<_> = (10..26).map(|block| get(&cache, block)).collect();
    assert!(cache.get(5, |_| Err(())).is_err());
    drop(get(&cache, 5));
    drop(pinned);
    audit(&cache);
}

#[test]
fn a_reader_that_panics_leaves_no_block_behind() {
    let cache = cache(1);
    let panicking = || cache.get(1, |_| -> Result<(), ()> { panic!("on purpose") }).map(drop);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    drop(get(&cache, 1));
    audit(&cache);
}

#[test]
fn blocks_are_claimed_ahead_and_filled_in_any_order() {
    let cache = cache(4);
    let mut claimed: Vec<_> =
        (0..8).map(|block| (block, cache.try_claim(block).unwrap())).collect();
    claimed.reverse();
    for (block, mut filling) in claimed {
        filling.bytes().copy_from_slice(&content(block));
        drop(filling.filled());
    }
    (0..8).for_each(|block| drop(get(&cache, block)));
    assert_eq!((cache.counts().misses, cache.counts().hits), (8, 8));
    audit(&cache);
}

#[test]
fn what_is_purged_is_read_again_and_stays_for_its_holders() {
    let cache = cache(2);
    let held = get(&cache, 3);
    (0..20).for_each(|block| drop(get(&cache, block)));
    assert!(cache.purge(|block| block < 10) >= 1);
    assert_eq!(cache.purge(|block| block < 10), 0);
    let misses = cache.counts().misses;
    let fresh = get(&cache, 3);
    assert_eq!(cache.counts().misses, misses + 1);
    assert_ne!(held.as_ptr(), fresh.as_ptr());
    assert_eq!(*held, content(3));
    drop((held, fresh));
    // Blocks of the overflow, in use and not.
    let pinned: Vec<_> = (100..150).map(|block| get(&cache, block)).collect();
    assert!(cache.counts().overflows > 0 && cache.purge(|_| true) >= 50);
    pinned.iter().zip(100..).for_each(|(buffer, block)| assert_eq!(**buffer, content(block)));
    drop(pinned);
    audit(&cache);
}

#[test]
fn memory_is_given_back_and_comes_again_slowly_to_the_rows_that_miss() {
    let cache = cache(16);
    let empty = cache.held_bytes();
    (0..1000).for_each(|block| drop(get(&cache, block)));
    assert_eq!(cache.held_bytes(), empty + 256 * BLOCK as u64);
    let held: Vec<_> = (0..4).map(|block| get(&cache, block)).collect();
    assert_eq!(cache.shrink(100 * BLOCK as u64 - 1), 100 * BLOCK as u64);
    assert_eq!(cache.held_bytes(), empty + 156 * BLOCK as u64);
    audit_but_pins(&cache, 156);
    assert_eq!(cache.shrink(u64::MAX), 152 * BLOCK as u64, "all but what is in use");
    held.iter().zip(0..).for_each(|(buffer, block)| assert_eq!(**buffer, content(block)));
    drop(held);
    // One block a row may have memory, and one more after eight misses.
    (2000..2064).for_each(|block| drop(get(&cache, block)));
    let frames = (cache.held_bytes() - empty) / BLOCK as u64;
    assert!((16..=16 + 64 / 8 + 1).contains(&frames), "{frames}");
    (3000..8000).for_each(|block| drop(get(&cache, block)));
    assert_eq!(cache.held_bytes(), empty + 256 * BLOCK as u64);
    assert_eq!(cache.counts().overflows, 0);
    audit(&cache);
}

/// Blocks found in rows.
fn audit_but_pins(cache: &BufferCache, blocks: usize) {
    let rows = (0..cache.table.rows()).map(|at| cache.table.lock(at).count());
    assert_eq!(rows.sum::<usize>(), blocks);
}

/// A thousand sleepers that all woke at once contended for one lock (the seed's thundering herd).
#[test]
fn one_reader_reads_and_each_waiter_is_woken_once() {
    const SLEEPERS: usize = 7;
    let cache = &cache(1);
    let reads = &Plain::new(0);
    let go = &AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..=SLEEPERS {
            scope.spawn(move || {
                let read = |bytes: &mut [u8]| {
                    reads.fetch_add(1, SeqCst);
                    while !go.load(SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    bytes.copy_from_slice(&content(9));
                    Ok::<(), Infallible>(())
                };
                let Ok(buffer) = cache.get(9, read);
                assert_eq!(*buffer, content(9));
            });
        }
        // All sleep: their frame is the only one that is not idle.
        let word = || cache.words.iter().find(|word| !word.is_idle());
        while word().is_none_or(|word| cache.waits.sleeping(word) < SLEEPERS) {
            thread::sleep(Duration::from_millis(1));
        }
        let word = word().expect("they have pins");
        assert_eq!(cache.waits.sleeping(word), SLEEPERS);
        go.store(true, SeqCst);
    });
    let counts = cache.counts();
    assert_eq!((reads.load(SeqCst), counts.misses, counts.waits), (1, 1, SLEEPERS as u64));
    audit(cache);
}

/// Threads want more blocks than fit, hold several at a time, and purge, shrink and fail meanwhile.
#[test]
fn everything_at_once_loses_no_frame_and_tears_no_block() {
    let cache = &cache(3);
    let errors = &Plain::new(0);
    thread::scope(|scope| {
        for number in 0..4u64 {
            scope.spawn(move || {
                let mut state = number + 1;
                let mut random = move || {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state
                };
                let mut held: BTreeMap<u64, Buffer<'_>> = BTreeMap::new();
                for _ in 0..4000 {
                    let block = random() % 96;
                    match random() % 64 {
                        0 => drop(cache.purge(|one| one % 8 == block % 8)),
                        1 => drop(cache.shrink(random() % 8 * BLOCK as u64)),
                        2 => drop(cache.get(block, |_| Err(())).map_err(|()| {
                            errors.fetch_add(1, SeqCst);
                        })),
                        3..16 => drop(cache.try_claim(block).map(|mut filling| {
                            filling.bytes().copy_from_slice(&content(block));
                            filling.filled()
                        })),
                        16..24 => held.clear(),
                        _ => drop(held.insert(block, get(cache, block))),
                    }
                    let torn = held.iter().find(|(block, buffer)| ***buffer != content(**block));
                    assert!(torn.is_none(), "{torn:?}");
                }
            });
        }
    });
    assert_eq!(cache.counts().failures, errors.load(SeqCst));
    audit(cache);
}

/// A hit: its row's lock, adding a pin, and dropping it.
#[test]
#[cfg(debug_assertions)]
fn a_hit_is_one_lock_and_two_additions() {
    use uvfs_concurrent::primitive::record::{Tally, tally};
    let cache = cache(2);
    drop(get(&cache, 1));
    let hit = || drop(cache.get(1, |_| Err(())).unwrap());
    assert_eq!(tally(hit).1, Tally { locks: 1, rmws: 2, ..Tally::default() });
}
