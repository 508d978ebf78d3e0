//! Models of the buffers' protocol, run by the model checker over all schedules. There is one row of one way, so that
//! two threads compete for every frame.

use super::*;
use loom::thread;
use std::convert::Infallible;
use uvfs_concurrent::primitive::model::{Model, reached};

static ROWS: LockClass = LockClass::new(1, "model-rows", "test");
static FREE: LockClass = LockClass::new(2, "model-free", "test");
static WAITS: LockClass = LockClass::new(3, "model-waits", "test");

fn world() -> Arc<BufferCache> {
    let classes = BufferClasses { rows: &ROWS, free: &FREE, waits: &WAITS };
    Arc::new(BufferCache::new(classes, 0, 1).unwrap())
}

/// Every schedule with up to three preemptions, in seconds instead of hours; see [`Model::new`].
fn bounded(
    at_least: usize,
    reaching: &'static [&'static str],
    check: impl Fn() + Sync + Send + 'static,
) {
    Model::new(at_least, reaching).preemptions(3).check(check);
}

/// Block `block`, whose one byte is its number.
fn get(cache: &BufferCache, block: u8) -> Buffer<'_> {
    let read = |bytes: &mut [u8]| {
        bytes[0] = block;
        Ok::<(), Infallible>(())
    };
    let Ok(buffer) = cache.get(block.into(), read);
    assert_eq!(buffer[0], block);
    buffer
}

/// The one frame is free, once, and nothing is left on the heap.
fn is_whole(cache: &BufferCache) {
    cache.purge(|_| true);
    let mut free = cache.groups[0].free.lock();
    let first = free.take();
    assert!(matches!(first, Taken::InPlace(0) | Taken::Absent(0)), "{first:?}");
    assert!(matches!(free.take(), Taken::Nothing { .. }), "it is free twice");
    drop(free);
    let frame = if first == Taken::InPlace(0) { 1 } else { 0 };
    let tables = cache.held_bytes() - frame;
    assert_eq!(tables, world_tables(), "what was on the heap is counted off");
}

/// The bytes of an empty cache.
fn world_tables() -> u64 {
    let groups = size_of::<Padded<Group>>() + 2 * size_of::<u32>();
    let row = size_of::<super::super::Lines<u64, u32, Overflow, WAYS>>();
    (row + size_of::<Word>() + groups) as u64
}

/// O1, B3: two threads want a block; one reads it, and both see it. Fails with a Relaxed `filled`, and if `pin` does
/// not report that the block is being filled.
#[test]
fn model_a_waiter_sees_what_was_read() {
    bounded(50, &["it was there", "it waited"], || {
        let cache = world();
        let other = cache.clone();
        let reader = thread::spawn(move || drop(get(&other, 7)));
        drop(get(&cache, 7));
        reader.join().unwrap();
        let counts = cache.counts();
        assert_eq!(counts.misses, 1, "read once");
        reached(if counts.hits == 1 { "it was there" } else { "it waited" });
        is_whole(&cache);
    });
}

/// W1, W2: two threads sleep for the block that a third one reads, and both are woken. Fails if a woken sleeper does
/// not wake the next, and if a sleeper loads the word before it locks the bucket.
#[test]
fn model_waiters_are_woken_one_by_one() {
    Model::new(300, &["both waited"]).preemptions(2).check(|| {
        let cache = world();
        let all: Vec<_> = (0..2)
            .map(|_| {
                let other = cache.clone();
                thread::spawn(move || drop(get(&other, 7)))
            })
            .collect();
        drop(get(&cache, 7));
        all.into_iter().for_each(|one| one.join().unwrap());
        let counts = cache.counts();
        assert_eq!(counts.misses, 1, "read once");
        if counts.waits == 2 {
            reached("both waited");
        }
    });
}

/// O2, B2: a frame is filled again after its last reader has dropped its pin; until then the other block is on the
/// heap. Fails with a Relaxed `unpin` or `is_idle`, and if pins are not checked.
#[test]
fn model_a_frame_is_reused_after_its_last_reader() {
    bounded(200, &["reused", "overflowed"], || {
        let cache = world();
        drop(get(&cache, 1));
        let other = cache.clone();
        let reader = thread::spawn(move || drop(get(&other, 1)));
        drop(get(&cache, 2));
        reached(if cache.counts().overflows == 0 { "reused" } else { "overflowed" });
        reader.join().unwrap();
        is_whole(&cache);
    });
}

/// B4, O2: a block is purged while its last reader drops its pin; one of the two frees the frame, and it is filled
/// again after both. Fails with a Relaxed `unpin` or `detach`, and if `detach` loads and sets in two steps.
#[test]
fn model_detached_with_its_last_pin() {
    bounded(200, &["purged while in use", "purged after use"], || {
        let cache = world();
        drop(get(&cache, 1));
        let other = cache.clone();
        let reader = thread::spawn(move || {
            let buffer = get(&other, 1);
            assert_eq!(buffer[0], 1, "also when it is purged");
        });
        cache.purge(|_| true);
        let in_place = cache.groups[0].free.lock().take_in_place();
        match in_place {
            Some(frame) => {
                reached("purged after use");
                cache.put(0, frame);
            }
            None => reached("purged while in use"),
        }
        drop(get(&cache, 2));
        reader.join().unwrap();
        is_whole(&cache);
    });
}

/// B4, O2: a purged block has two readers; the last one of them frees the frame, which is filled again only after the
/// other one's reads. Fails with an `unpin` that does not acquire, or does not release.
#[test]
fn model_the_last_of_two_readers_frees() {
    bounded(200, &["the purger was the last", "the other was the last"], || {
        let cache = world();
        let buffer = get(&cache, 1);
        let other = cache.clone();
        let reader = thread::spawn(move || drop(get(&other, 1)));
        cache.purge(|_| true);
        drop(buffer);
        let in_place = cache.groups[0].free.lock().take_in_place();
        match in_place {
            Some(frame) => {
                reached("the purger was the last");
                cache.put(0, frame);
            }
            None => reached("the other was the last"),
        }
        drop(get(&cache, 2));
        reader.join().unwrap();
        is_whole(&cache);
    });
}

/// B5: the seed's deadlock. Two threads need two buffers each, of one row, and hold the first while they request the
/// second. Fails (no thread continues) if a thread waits for a full row.
#[test]
fn model_two_buffers_each_of_one_row() {
    Model::new(120, &["both were held at once"]).preemptions(2).check(|| {
        let cache = world();
        let other = cache.clone();
        let thread = thread::spawn(move || {
            let first = get(&other, 1);
            let second = get(&other, 2);
            drop((first, second));
        });
        let first = get(&cache, 2);
        let second = get(&cache, 1);
        if cache.counts().overflows > 0 {
            reached("both were held at once");
        }
        drop((first, second));
        thread.join().unwrap();
        is_whole(&cache);
    });
}

/// B6: a read fails while another thread waits for it; that thread then reads. Fails if the block stays in its row, and
/// if the waiter mistakes the end of the filling for success.
#[test]
fn model_a_failed_read_is_read_again() {
    bounded(80, &["failed, and read again", "read before"], || {
        let cache = world();
        let other = cache.clone();
        let reader = thread::spawn(move || drop(get(&other, 1)));
        match cache.get(1, |_| Err(())) {
            Ok(buffer) => {
                reached("read before");
                assert_eq!(buffer[0], 1);
            }
            Err(()) => reached("failed, and read again"),
        }
        reader.join().unwrap();
        let counts = cache.counts();
        assert_eq!(counts.misses, counts.failures + 1, "each error is of a read of its own");
        is_whole(&cache);
    });
}
