//! Tests of frames on the real machine. The protocol under all schedules is in `models`.

use super::*;
use std::num::NonZeroU64;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering};
use uvfs_concurrent::primitive::record;

static WAITS: LockClass = LockClass::new(1, "frame-test-waits", "test");
static ROOM: LockClass = LockClass::new(2, "frame-test-room", "test");

fn arena(frames: u32) -> Arena {
    Arena::new(&WAITS, &ROOM, frames).unwrap()
}

/// A page of `owner` full of `byte`, up to date and unlocked.
fn filled(arena: &Arena, owner: u64, index: u64, byte: u8) -> FrameId {
    let mut page = arena.allocate().unwrap().assign(owner, index);
    page.write(0, &[byte; PAGE_BYTES]);
    page.set_uptodate();
    page.page().id()
}

#[test]
fn a_page_goes_through_its_life() {
    let arena = arena(4);
    let fresh = arena.allocate().unwrap();
    let id = fresh.id();
    assert!(arena.try_get(id, 0, 0).is_none(), "a fresh frame has no page");
    assert_eq!(arena.read_validated(id, 0, 0, 0, &mut [0; 8]), Read::Gone);
    let mut page = fresh.assign(7, 9);
    assert_eq!((page.page().owner(), page.page().index()), (7, 9));
    assert_eq!(arena.read_validated(id, 7, 9, 0, &mut [0; 8]), Read::Busy, "not filled yet");
    page.write(0, &[5; PAGE_BYTES]);
    page.set_uptodate();
    let page = page.unlock();
    assert!(page.is_uptodate() && page.is_attached() && !page.is_locked());
    let mut bytes = [0; 16];
    assert_eq!(arena.read_validated(id, 7, 9, PAGE_BYTES - 16, &mut bytes), Read::Done);
    assert_eq!((bytes, page.read(3, &mut bytes)), ([5; 16], Read::Done));
    assert_eq!(arena.read_validated(id, 7, 8, 0, &mut bytes), Read::Gone);
    assert!(arena.try_get(id, 8, 9).is_none());

    assert!(arena.try_evict(id).is_none(), "referenced");
    let mut page = page.lock();
    assert!(page.mark_dirty() && !page.mark_dirty());
    drop(page);
    assert!(arena.try_evict(id).is_none(), "dirty");
    let page = arena.try_get(id, 7, 9).unwrap();
    let mut page = page.lock();
    assert!(page.begin_writing() && !page.begin_writing());
    assert!(page.mark_dirty(), "changed while it is written");
    let page = page.unlock();
    page.end_writing(Outcome::Written);
    assert!(page.is_dirty() && !page.is_writing(), "still to be written");
    let mut page = page.lock();
    assert!(page.begin_writing() && !page.page().is_dirty());
    page.page().end_writing(Outcome::Again);
    assert!(page.page().is_dirty());
    assert!(page.clear_dirty() && !page.clear_dirty());
    page.zero(0..8);
    drop(page);

    let evicting = arena.try_evict(id).unwrap();
    assert!(arena.try_get(id, 7, 9).is_none() && arena.try_evict(id).is_none(), "frozen");
    assert_eq!(arena.read_validated(id, 7, 9, 0, &mut bytes), Read::Gone);
    drop(evicting);
    assert_eq!(arena.read_validated(id, 7, 9, 0, &mut bytes), Read::Done, "it stayed after all");
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5, 5]);
    let evicting = arena.try_evict(id).unwrap();
    assert_eq!((evicting.owner(), evicting.index()), (7, 9));
    evicting.free();
    assert_eq!(arena.allocated(), 0);
    assert_eq!(arena.allocate().unwrap().id(), id, "what was freed last is used first");
}

#[test]
fn a_detached_page_lives_as_long_as_its_references() {
    let arena = arena(2);
    let id = filled(&arena, 1, 2, 3);
    let holder = arena.try_get(id, 1, 2).unwrap();
    let mut truncating = holder.clone().lock();
    truncating.mark_dirty();
    assert!(truncating.begin_writing());
    assert!(truncating.detach() && !truncating.detach());
    assert!(arena.try_get(id, 1, 2).is_none() && arena.try_evict(id).is_none());
    assert_eq!(holder.read(0, &mut [0]), Read::Gone);
    drop(truncating);
    let page = holder.lock();
    assert!(!page.page().is_attached() && page.page().is_uptodate());
    let mut bytes = [0; 2];
    page.read(0, &mut bytes);
    assert_eq!((bytes, page.page().owner(), page.page().index()), ([3; 2], 1, 2));
    let page = page.unlock();
    page.end_writing(Outcome::Written);
    page.wait_written();
    assert_eq!(arena.allocated(), 1);
    drop(page);
    assert_eq!(arena.allocated(), 0);
}

#[test]
fn a_waiter_for_a_lock_finds_the_page_detached() {
    let arena = arena(1);
    let mut page = arena.allocate().unwrap().assign(1, 1);
    std::thread::scope(|scope| {
        let waiter = page.page().clone();
        let waiting = scope.spawn(move || waiter.lock().page().is_attached());
        page.detach();
        drop(page);
        assert!(!waiting.join().unwrap());
    });
    assert_eq!(arena.allocated(), 0);
}

#[test]
fn numbers_of_no_frame_are_refused() {
    let arena = arena(2);
    for value in [1, 2, 3, 1 << 40, u64::MAX] {
        let id = FrameId::from_value(NonZeroU64::new(value).unwrap());
        assert!(arena.try_get(id, 0, 0).is_none(), "{value}");
        assert_eq!(arena.read_validated(id, 0, 0, 0, &mut [0]), Read::Gone);
        assert!(arena.try_evict(id).is_none());
        arena.touch(id, 1);
    }
    let id = filled(&arena, 0, 0, 1);
    assert_eq!(FrameId::from_value(id.to_value()), id);
    assert!(arena.try_get(id, 0, 0).is_some());
}

#[test]
fn references_stop_before_they_overflow() {
    let arena = arena(1);
    let id = filled(&arena, 1, 1, 0);
    let mut held: Vec<_> = std::iter::from_fn(|| arena.try_get(id, 1, 1)).take(1 << 17).collect();
    assert_eq!(held.len(), 1 << 15, "half are kept for clones");
    while let Some(more) = held[0].try_clone() {
        held.push(more);
    }
    assert_eq!(held.len(), (1 << 16) - 1);
    assert!(arena.try_get(id, 1, 1).is_none());
    assert!(
        held[0].is_attached() && held[0].is_uptodate(),
        "no neighbour of the count was touched"
    );
    let mut page = held.pop().unwrap().lock();
    page.detach();
    drop(page);
    drop(held);
    assert_eq!(arena.allocated(), 0, "each was counted");
}

#[test]
#[should_panic(expected = "not in a page")]
fn a_read_beyond_the_page_is_refused() {
    let arena = arena(2);
    let id = filled(&arena, 1, 1, 0);
    let _ = arena.read_validated(id, 1, 1, PAGE_BYTES - 3, &mut [0; 4]);
}

#[test]
fn a_write_beyond_the_page_is_refused_and_readers_go_on() {
    let arena = arena(2);
    let id = filled(&arena, 1, 1, 0);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        arena.try_get(id, 1, 1).unwrap().lock().write(usize::MAX, &[0; 4]);
    }));
    assert!(refused.is_err());
    assert_eq!(arena.read_validated(id, 1, 1, 0, &mut [0; 4]), Read::Done);
    assert!(arena.try_get(id, 1, 1).unwrap().try_lock().is_ok(), "unlocked by unwinding");
}

#[test]
#[cfg(debug_assertions)]
fn a_read_by_version_stores_nothing_shared() {
    let arena = arena(1);
    let id = filled(&arena, 1, 1, 8);
    let mut bytes = [0; 4096];
    let (read, tally) = record::tally(|| arena.read_validated(id, 1, 1, 0, &mut bytes));
    assert_eq!((read, bytes), (Read::Done, [8; 4096]));
    assert_eq!((tally.stores, tally.rmws, tally.locks), (0, 0, 0));
    for round in 1..4 {
        arena.touch(id, round * 1000);
    }
    let ((), tally) = record::tally(|| arena.touch(id, 9000));
    assert_eq!((tally.loads, tally.stores, tally.rmws), (1, 0, 0), "a hot page");
}

#[test]
fn memory_is_counted_exactly_and_given_back() {
    const FRAMES: usize = 3000;
    let arena = arena(FRAMES as u32);
    assert_eq!((arena.resident(), arena.allocated(), arena.descriptor_bytes()), (0, 0, 0));
    let mut fresh: Vec<_> = std::iter::from_fn(|| arena.allocate()).collect();
    assert_eq!(fresh.len(), FRAMES, "all in use");
    assert_eq!((arena.resident(), arena.allocated()), (FRAMES, FRAMES));
    assert_eq!(arena.descriptor_bytes(), (FRAMES * 32).next_multiple_of(4096));
    let ids: Vec<_> = fresh
        .drain(..)
        .map(|fresh| {
            let mut page = fresh.assign(1, 1);
            page.write(0, &[9; PAGE_BYTES]);
            page.page().id()
        })
        .collect();
    let free = |id: &FrameId| arena.try_evict(*id).unwrap().free();
    ids.iter().step_by(2).for_each(free);
    assert_eq!((arena.resident(), arena.allocated()), (FRAMES, FRAMES / 2));
    assert_eq!(arena.trim(1000), 1000);
    assert_eq!((arena.resident(), arena.allocated()), (FRAMES - 1000, FRAMES / 2));
    assert_eq!(arena.trim(usize::MAX), 500, "what is in use stays");
    ids.iter().skip(1).step_by(2).for_each(|id| {
        let page = arena.try_get(*id, 1, 1).unwrap().lock();
        let mut byte = [0];
        page.read(PAGE_BYTES - 1, &mut byte);
        assert_eq!(byte, [9]);
    });
    assert_eq!((arena.resident(), arena.allocated()), (FRAMES / 2, FRAMES / 2));
    // The trimmed frames are used again, and no other frame is left.
    fresh.extend(std::iter::from_fn(|| arena.allocate()));
    assert_eq!(fresh.len(), FRAMES / 2);
    assert_eq!(arena.resident(), FRAMES);
    for fresh in fresh.drain(..) {
        let page = fresh.assign(2, 2);
        let mut bytes = [1; 8];
        page.read(8, &mut bytes);
        assert_eq!(bytes, [0; 8], "given back, so it came back as zeroes");
    }
    assert_eq!(arena.allocated(), FRAMES, "they are pages now");
}

#[test]
fn trimmed_memory_leaves_the_process() {
    const FRAMES: u32 = 4096;
    let arena = arena(FRAMES);
    let ids: Vec<_> = (0..FRAMES).map(|index| filled(&arena, 1, index.into(), 1)).collect();
    let before = resident_bytes();
    ids.iter().for_each(|id| arena.try_evict(*id).unwrap().free());
    assert_eq!(arena.trim(usize::MAX), FRAMES as usize);
    let given = before.saturating_sub(resident_bytes());
    // Other tests of this process allocate meanwhile; most of the 16 MiB must be returned.
    assert!(given > 8 << 20, "{given} bytes");
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// One thread only allocates, another only frees: freed frames must return to the first, without
/// growth.
#[test]
fn frames_pass_from_a_thread_that_frees_to_one_that_allocates() {
    const FRAMES: usize = 64;
    let arena = arena(4096);
    for round in 0..200u64 {
        let ids: Vec<_> = (0..FRAMES).map(|index| filled(&arena, round, index as u64, 0)).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| ids.iter().for_each(|id| arena.try_evict(*id).unwrap().free()));
        });
    }
    assert_eq!((arena.resident(), arena.allocated()), (FRAMES, 0));
}

#[test]
fn threads_never_have_the_same_frame() {
    let arena = arena(300);
    std::thread::scope(|scope| {
        for thread in 1..5u64 {
            let arena = &arena;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..20_000u64 {
                    let mark = thread << 32 | round;
                    if let Some(fresh) = arena.allocate() {
                        let mut page = fresh.assign(thread, round);
                        page.write(64, &mark.to_ne_bytes());
                        held.push((page, mark));
                    }
                    if held.len() > 60 || round % 3 == 0 && !held.is_empty() {
                        let (mut page, mark) = held.swap_remove(round as usize % held.len());
                        let mut found = [0; 8];
                        page.read(64, &mut found);
                        assert_eq!(u64::from_ne_bytes(found), mark, "another thread wrote here");
                        page.detach();
                    }
                    if thread == 1 && round % 512 == 0 {
                        arena.trim(20);
                    }
                }
                held.iter_mut().for_each(|(page, _)| assert!(page.detach()));
            });
        }
    });
    assert_eq!(arena.allocated(), 0);
    assert!(arena.resident() <= 300);
    let all: Vec<_> = std::iter::from_fn(|| arena.allocate()).collect();
    assert_eq!(all.len(), 300, "none was lost");
}

#[test]
fn the_lock_keeps_threads_apart_and_wakes_them() {
    const ROUNDS: u64 = 3000;
    let arena = arena(2);
    let id = filled(&arena, 1, 1, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let mut page = arena.try_get(id, 1, 1).unwrap().lock();
                    let mut bytes = [0; 8];
                    page.read(0, &mut bytes);
                    page.write(0, &(u64::from_ne_bytes(bytes) + 1).to_ne_bytes());
                    // Lets the other threads try the lock meanwhile, and sleep.
                    std::thread::yield_now();
                }
            });
        }
    });
    let mut bytes = [0; 8];
    assert_eq!(arena.read_validated(id, 1, 1, 0, &mut bytes), Read::Done);
    assert_eq!(u64::from_ne_bytes(bytes), 4 * ROUNDS);
}

#[test]
fn waiters_for_a_fill_and_for_a_write_are_woken() {
    let arena = arena(1);
    for round in 0..300 {
        let mut page = arena.allocate().unwrap().assign(1, round);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let waiter = page.page().clone();
                scope.spawn(move || {
                    waiter.wait_unlocked();
                    assert!(waiter.is_uptodate());
                    waiter.wait_written();
                    assert!(!waiter.is_writing());
                });
            }
            page.mark_dirty();
            page.begin_writing();
            page.set_uptodate();
            let page = page.unlock();
            std::thread::yield_now();
            page.end_writing(Outcome::Written);
        });
        arena.try_evict(FrameId::from_number(0)).unwrap().free();
    }
}

/// One page that is written and read all the time: reads overlap with writes.
#[test]
fn readers_never_see_half_a_write() {
    const WRITES: u32 = 60_000;
    let arena = arena(1);
    let id = filled(&arena, 1, 1, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for write in 1..=WRITES {
                let bytes = write.to_ne_bytes().repeat(PAGE_BYTES / 4);
                arena.try_get(id, 1, 1).unwrap().lock().write(0, &bytes);
            }
        });
        for length in [64, PAGE_BYTES] {
            let arena = &arena;
            scope.spawn(move || {
                let (mut bytes, mut last) = (vec![0; length], 0);
                while last < WRITES {
                    if arena.read_validated(id, 1, 1, PAGE_BYTES - length, &mut bytes) != Read::Done
                    {
                        continue;
                    }
                    let words = bytes.as_chunks().0.iter().map(|word| u32::from_ne_bytes(*word));
                    let (least, most) = (words.clone().min().unwrap(), words.max().unwrap());
                    assert_eq!(least, most, "torn");
                    assert!(least >= last, "time runs forwards");
                    last = least;
                }
            });
        }
    });
}

/// One frame that holds one page after another, and readers that ask for all of them.
#[test]
fn readers_never_see_the_next_page() {
    const CHANGES: u64 = 30_000;
    let arena = arena(1);
    let id = filled(&arena, 0, 0, 0);
    let now = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for change in 1..=CHANGES {
                arena.try_evict(id).expect("readers take no reference").free();
                assert_eq!(filled(&arena, change % 3, change % 3, (change % 3) as u8), id);
                now.store(change, Ordering::Relaxed);
            }
        });
        for length in [64, PAGE_BYTES] {
            let (arena, now) = (&arena, &now);
            scope.spawn(move || {
                let (mut bytes, mut accepted) = (vec![0; length], 0u64);
                while now.load(Ordering::Relaxed) < CHANGES || accepted == 0 {
                    for page in 0..3u8 {
                        let (owner, index) = (page.into(), page.into());
                        if arena.read_validated(id, owner, index, 0, &mut bytes) == Read::Done {
                            assert!(bytes.iter().all(|&byte| byte == page), "another page's");
                            accepted += 1;
                        }
                    }
                }
            });
        }
    });
}

/// Pages of a few owners in fewer frames than there are pages, under everything at once: readers by
/// version and by reference, writers, write-back, eviction, truncation and trimming.
mod hammer {
    use super::*;

    const PAGES: usize = 48;
    const OWNERS: u64 = 3;
    const FRAMES: u32 = 24;
    const ROUNDS: usize = 12_000;

    struct World {
        arena: Arena,
        /// Page → frame, like a tree; 0 for none.
        tree: Vec<AtomicU64>,
        /// The version of each page in the backend.
        backend: Vec<AtomicU64>,
        /// Versions written to each page.
        written: Vec<AtomicU64>,
    }

    fn name(page: usize) -> (u64, u64) {
        (page as u64 % OWNERS, page as u64)
    }

    /// Every word of version `version` of `page`.
    fn word(page: usize, version: u64) -> u64 {
        let (owner, index) = name(page);
        owner << 56 | index << 40 | version
    }

    /// The version of `bytes`; they must all be of one version, and of this page.
    fn version_of(page: usize, bytes: &[u8]) -> u64 {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
            .collect();
        assert!(words.iter().all(|word| *word == words[0]), "torn: {words:x?}");
        assert_eq!(words[0] >> 40, word(page, 0) >> 40, "of another page");
        words[0] & 0xff_ffff_ffff
    }

    fn content(page: usize, version: u64) -> Vec<u8> {
        word(page, version).to_ne_bytes().repeat(PAGE_BYTES / 8)
    }

    impl World {
        fn lookup(&self, page: usize) -> Option<FrameId> {
            let value = NonZeroU64::new(self.tree[page].load(Ordering::Acquire))?;
            Some(FrameId::from_value(value))
        }

        /// Takes `page` out of the tree if the tree has `id` for it.
        fn unlink(&self, page: usize, id: FrameId) {
            let value = id.to_value().get();
            let done =
                self.tree[page].compare_exchange(value, 0, Ordering::AcqRel, Ordering::Relaxed);
            assert!(done.is_ok(), "the frame is ours, so is its slot");
        }

        fn evict_one(&self, seed: u64) {
            let id = FrameId::from_number((seed % u64::from(FRAMES)) as u32);
            if let Some(evicting) = self.arena.try_evict(id) {
                assert_eq!(evicting.owner(), evicting.index() % OWNERS);
                if seed & 0x700 == 0 {
                    return;
                }
                self.unlink(evicting.index() as usize, id);
                evicting.free();
            }
        }

        /// A reference to `page`; if it is not cached, it is filled from the backend.
        fn get(&self, page: usize, seed: u64) -> PageRef<'_> {
            let (owner, index) = name(page);
            for attempt in 0.. {
                if let Some(id) = self.lookup(page) {
                    let Some(found) = self.arena.try_get(id, owner, index) else {
                        std::thread::yield_now();
                        continue;
                    };
                    found.wait_unlocked();
                    if found.is_uptodate() {
                        return found;
                    }
                    continue;
                }
                let Some(fresh) = self.arena.allocate() else {
                    // All frames may be dirty.
                    self.write_back(seed.wrapping_add(attempt) as usize % PAGES);
                    self.evict_one(seed.wrapping_add(attempt) | 0x100);
                    continue;
                };
                let mut made = fresh.assign(owner, index);
                let value = made.page().id().to_value().get();
                let slot = &self.tree[page];
                if slot.compare_exchange(0, value, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    // Never in a tree: like a truncated page, it is freed with this thread's
                    // reference.
                    made.detach();
                    continue;
                }
                made.write(0, &content(page, self.backend[page].load(Ordering::Acquire)));
                made.set_uptodate();
                return made.unlock();
            }
            unreachable!()
        }

        fn write(&self, page: usize, seed: u64) {
            let mut locked = self.get(page, seed).lock();
            if !locked.page().is_attached() {
                return;
            }
            let version = self.written[page].load(Ordering::Relaxed) + 1;
            self.written[page].store(version, Ordering::Relaxed);
            locked.write(0, &content(page, version));
            locked.mark_dirty();
        }

        fn write_back(&self, page: usize) {
            let (owner, index) = name(page);
            let found = self.lookup(page).and_then(|id| self.arena.try_get(id, owner, index));
            let Some(Ok(mut locked)) = found.map(PageRef::try_lock) else { return };
            if !locked.page().is_attached() || !locked.begin_writing() {
                return;
            }
            let mut bytes = vec![0; PAGE_BYTES];
            locked.read(0, &mut bytes);
            let written = locked.unlock();
            let version = version_of(page, &bytes);
            std::thread::yield_now();
            assert!(self.backend[page].swap(version, Ordering::AcqRel) <= version, "went back");
            written.end_writing(Outcome::Written);
        }

        /// Takes a clean page out of the tree under the lock, like truncation.
        fn truncate(&self, page: usize) {
            let (owner, index) = name(page);
            let found = self.lookup(page).and_then(|id| self.arena.try_get(id, owner, index));
            let Some(Ok(mut locked)) = found.map(PageRef::try_lock) else { return };
            let word = locked.page();
            if word.is_attached() && word.is_uptodate() && !word.is_dirty() && !word.is_writing() {
                self.unlink(page, locked.page().id());
                assert!(locked.detach());
            }
        }

        fn read(&self, page: usize, seed: u64, last: &mut [u64]) {
            let (owner, index) = name(page);
            let words = 1 + seed as usize % 300;
            let offset = (seed >> 20) as usize % (PAGE_BYTES / 8 - words) * 8;
            let mut bytes = vec![0; words * 8];
            let version = match self.lookup(page) {
                Some(id) => match self.arena.read_validated(id, owner, index, offset, &mut bytes) {
                    Read::Done => version_of(page, &bytes),
                    Read::Busy | Read::Gone => return,
                },
                None => {
                    let locked = self.get(page, seed).lock();
                    locked.read(offset, &mut bytes);
                    version_of(page, &bytes)
                }
            };
            assert!(version >= last[page], "page {page}: {version} after {}", last[page]);
            last[page] = version;
        }
    }

    #[test]
    fn no_torn_foreign_or_lost_bytes() {
        let cells = || (0..PAGES).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let world =
            World { arena: arena(FRAMES), tree: cells(), backend: cells(), written: cells() };
        std::thread::scope(|scope| {
            for thread in 1..5u64 {
                let world = &world;
                scope.spawn(move || {
                    let mut last = vec![0; PAGES];
                    let mut seed = thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    for _ in 0..ROUNDS {
                        seed ^= seed << 13;
                        seed ^= seed >> 7;
                        seed ^= seed << 17;
                        let page = (seed >> 32) as usize % PAGES;
                        match seed % 16 {
                            0..3 => world.write(page, seed),
                            3..7 => world.write_back(page),
                            7..9 => world.evict_one(seed >> 8),
                            9 => world.truncate(page),
                            10 if seed % 64 == 10 => {
                                world.arena.trim(2);
                            }
                            _ => world.read(page, seed, &mut last),
                        }
                    }
                });
            }
        });
        for page in 0..PAGES {
            while world.lookup(page).is_some_and(|id| {
                let (owner, index) = name(page);
                world.arena.try_get(id, owner, index).unwrap().is_dirty()
            }) {
                world.write_back(page);
            }
            let [written, stored] =
                [&world.written, &world.backend].map(|cells| cells[page].load(Ordering::Relaxed));
            assert_eq!(stored, written, "page {page}: a change was lost");
            if let Some(id) = world.lookup(page) {
                let evicting = world.arena.try_evict(id).expect("no thread uses it");
                world.unlink(page, id);
                evicting.free();
            }
        }
        assert_eq!(world.arena.allocated(), 0);
    }
}

/// Memory is moved into huge pages while threads read and write it. Nothing of it may change, and a block that is not used
/// to its end stays as it is.
#[test]
fn frames_keep_their_bytes_when_their_memory_is_gathered() {
    // Enough for three blocks, wherever the mapping begins.
    let (used, many) = (4 * 512_u32, 256 << 8);
    let arena = arena(many);
    arena.expect(16);
    let ids: Vec<_> =
        (0..used).map(|index| filled(&arena, 1, u64::from(index), (index % 251) as u8)).collect();
    assert!(!arena.can_gather(), "so few frames are not worth it");
    arena.expect(many as usize);
    let allowed = crate::huge::allowed();
    assert_eq!(arena.can_gather(), allowed);
    let stop = uvfs_concurrent::primitive::atomic::AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // At least once, and then for as long as it lasts.
            while rounds.fetch_add(1, Ordering::Relaxed) == 0 || !stop.load(Ordering::Relaxed) {
                for (index, &id) in ids.iter().enumerate().step_by(7) {
                    let page = arena.try_get(id, 1, index as u64).unwrap();
                    page.lock().write(0, &[(index % 251) as u8; PAGE_BYTES]);
                }
            }
        });
        let mut blocks = 0;
        while arena.can_gather() {
            arena.gather();
            blocks += 1;
            assert!(blocks <= 4, "more than is used");
        }
        assert!(!allowed || blocks >= 1);
        arena.gather();
        stop.store(true, Ordering::Relaxed);
    });
    for (index, &id) in ids.iter().enumerate() {
        let mut bytes = [0; PAGE_BYTES];
        assert_eq!(arena.read_validated(id, 1, index as u64, 0, &mut bytes), Read::Done);
        assert!(bytes.iter().all(|&byte| byte == (index % 251) as u8), "frame {index}");
    }
}

/// What was returned to the system is not brought back.
#[test]
fn nothing_is_gathered_when_memory_was_given_back() {
    let arena = arena(256 << 8);
    arena.expect(256 << 8);
    let ids: Vec<_> = (0..2048).map(|index| filled(&arena, 1, index, 1)).collect();
    assert_eq!(arena.can_gather(), crate::huge::allowed());
    arena.try_evict(ids[2047]).unwrap().free();
    assert_eq!(arena.trim(1), 1);
    assert!(!arena.can_gather());
}
