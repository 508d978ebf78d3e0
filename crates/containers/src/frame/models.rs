//! Models of the frames' protocol, run by the model checker over all schedules. A page has two
//! bytes, so that it can be torn, and an arena one frame, so that it is always reused.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use uvfs_concurrent::lock::LockClass;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use uvfs_concurrent::primitive::model::{Model, reached};

static CLASS: LockClass = LockClass::new(1, "model-waits", "test");
static ROOM: LockClass = LockClass::new(2, "model-room", "test");

/// Stands for a frame's bytes, or for the backend's copy of them: loom's cell reports every use that is not ordered
/// against a change.
struct Watched(UnsafeCell<u64>);

// SAFETY: used only where the protocol allows it; loom's cell checks that claim.
unsafe impl Sync for Watched {}
// SAFETY: used only where the protocol allows it; loom's cell checks that claim.
unsafe impl Send for Watched {}

impl Watched {
    fn get(&self) -> u64 {
        self.0.with(|value| {
            // SAFETY: used only where the protocol allows it; loom's cell checks that claim.
            unsafe { *value }
        })
    }
    fn set(&self, to: u64) {
        self.0.with_mut(|value| {
            // SAFETY: used only where the protocol allows it; loom's cell checks that claim.
            unsafe { *value = to }
        });
    }
}

/// One frame, with page 1 of owner 1 in it, whose bytes are 1.
struct World {
    arena: Arena,
    watched: Watched,
    flag: AtomicBool,
}

const ID: FrameId = FrameId(0);

fn world() -> Arc<World> {
    let world = World {
        arena: Arena::new(&CLASS, &ROOM, 1).unwrap(),
        watched: Watched(UnsafeCell::new(0)),
        flag: AtomicBool::new(false),
    };
    world.fill(1);
    Arc::new(world)
}

impl World {
    /// Puts page `number` of owner `number` into the free frame, if it is free.
    fn fill(&self, number: u8) -> bool {
        let Some(fresh) = self.arena.allocate() else { return false };
        let mut page = fresh.assign(number.into(), number.into());
        page.write(0, &[number; 2]);
        page.set_uptodate();
        true
    }

    fn evict(&self) -> bool {
        let evicting = self.arena.try_evict(ID);
        evicting.is_some_and(|evicting| {
            evicting.free();
            true
        })
    }

    fn get(&self, number: u8) -> Option<PageRef<'_>> {
        self.arena.try_get(ID, number.into(), number.into())
    }

    /// The bytes of page `number`, if a read by version gets them.
    fn read(&self, number: u8) -> Option<[u8; 2]> {
        let mut bytes = [0; 2];
        let read = self.arena.read_validated(ID, number.into(), number.into(), 0, &mut bytes);
        (read == Read::Done).then_some(bytes)
    }
}

/// Every schedule with up to three preemptions, in seconds instead of hours; see [`Model::new`].
fn bounded(
    at_least: usize,
    reaching: &'static [&'static str],
    check: impl Fn() + Sync + Send + 'static,
) {
    Model::new(at_least, reaching).preemptions(3).check(check);
}

/// Like [`bounded`], with up to two preemptions: reads by version have many steps.
fn bounded_by_two(
    at_least: usize,
    reaching: &'static [&'static str],
    check: impl Fn() + Sync + Send + 'static,
) {
    Model::new(at_least, reaching).preemptions(2).check(check);
}

/// F2, O1: a thread with a reference has the page that it asked for, while the frame is freed and used again. Fails
/// with a Relaxed `publish` or `try_reference`, and when the identity is compared before the reference is counted.
#[test]
fn model_reference_is_accurate() {
    bounded(1200, &["the old page", "the new page", "neither"], || {
        let world = world();
        let other = world.clone();
        let reuse = thread::spawn(move || {
            if other.evict() {
                other.fill(2);
            }
        });
        for number in [1, 2] {
            if let Some(page) = world.get(number) {
                reached(["", "the old page", "the new page"][number as usize]);
                let page = page.lock();
                assert_eq!(
                    (page.page().owner(), page.page().index()),
                    (number.into(), number.into())
                );
                let mut bytes = [0; 2];
                page.read(0, &mut bytes);
                assert_eq!(bytes, [number; 2]);
            } else {
                reached("neither");
            }
        }
        reuse.join().unwrap();
    });
}

/// F3: no new reference is taken once `detach` has returned; references taken before keep the frame. Fails when
/// `try_reference` loads ATTACHED and adds in two steps.
#[test]
fn model_no_reference_after_detach() {
    bounded(1500, &["referenced before", "refused"], || {
        let world = world();
        let other = world.clone();
        let reader = thread::spawn(move || {
            let detached = other.flag.load(Ordering::Acquire);
            if let Some(page) = other.get(1) {
                reached("referenced before");
                assert!(!detached, "a new reference");
                // Waits for the thread that detaches; then the page has left the cache, but its frame still holds it.
                let page = page.lock();
                let mut bytes = [0; 2];
                page.read(0, &mut bytes);
                assert_eq!((page.page().owner(), bytes), (1, [1; 2]));
                assert!(other.arena.allocate().is_none(), "freed with a reference left");
            } else {
                reached("refused");
            }
        });
        let mut page = world.get(1).unwrap().lock();
        assert!(page.detach());
        world.flag.store(true, Ordering::Release);
        drop(page);
        reader.join().unwrap();
        assert_eq!(world.arena.allocated(), 0);
    });
}

/// O2: the last of two references frees a detached frame, once, after the other's last use. Fails
/// with a `put` that is only Release, or only Acquire.
#[test]
fn model_last_reference_frees() {
    bounded(24, &["freed by this one", "freed by the other"], || {
        let world = world();
        let mut page = world.get(1).unwrap().lock();
        page.detach();
        let page = page.unlock();
        std::mem::forget(page.clone());
        std::mem::forget(page);
        let part = |world: &World, which: &'static str| {
            let page = PageRef::from_reference(&world.arena, ID);
            world.watched.get();
            drop(page);
            // A thread that can allocate the frame is its only user.
            if let Some(fresh) = world.arena.allocate() {
                reached(which);
                world.watched.set(1);
                std::mem::forget(fresh);
            }
        };
        let other = world.clone();
        let holder = thread::spawn(move || part(&other, "freed by the other"));
        part(&world, "freed by this one");
        holder.join().unwrap();
        assert_eq!(world.watched.get(), 1, "no thread freed it");
    });
}

/// F4, O3, O4: a read by version is of one moment. Fails without the fence of `begin_change`,
/// without that of `reload`, with a Relaxed `end_change`, with a Relaxed `load`, without CHANGING,
/// and without a new version.
#[test]
fn model_read_and_write() {
    bounded_by_two(2000, &["before", "between", "after", "refused"], || {
        let world = world();
        let other = world.clone();
        let writer = thread::spawn(move || {
            let mut page = other.get(1).unwrap().lock();
            page.write(0, &[2; 2]);
            page.write(0, &[3; 2]);
        });
        if let Some(bytes) = world.read(1) {
            assert_eq!(bytes[0], bytes[1], "torn");
            reached(["", "before", "between", "after"][bytes[0] as usize]);
        } else {
            reached("refused");
        }
        writer.join().unwrap();
        assert_eq!(world.read(1), Some([3; 2]));
    });
}

/// F4, O5, O1, O4: a read by version never accepts the bytes of the page that was later put into the frame, nor a new
/// identity with old bytes. Fails without both fences of `before_bytes` (at the identity and at the bytes), with a
/// Relaxed `set`, and when the freeze keeps the version.
#[test]
fn model_read_and_reuse() {
    bounded_by_two(2000, &["the old page", "the new page"], || {
        let world = world();
        let other = world.clone();
        let reuse = thread::spawn(move || {
            assert!(other.evict());
            assert!(other.fill(2));
        });
        for number in [1, 2] {
            if let Some(bytes) = world.read(number) {
                reached(["", "the old page", "the new page"][number as usize]);
                assert_eq!(bytes, [number; 2], "another page's");
            }
        }
        reuse.join().unwrap();
        assert_eq!((world.read(1), world.read(2)), (None, Some([2; 2])));
    });
}

/// F4, O2, O5: nor does it accept the bytes of the page that follows a detached one. Fails when `detach` keeps the
/// version.
#[test]
fn model_read_and_detach() {
    bounded_by_two(700, &["the old page", "not there any more"], || {
        let world = world();
        let other = world.clone();
        let reuse = thread::spawn(move || {
            let mut page = other.get(1).unwrap().lock();
            page.detach();
            drop(page);
            assert!(other.fill(2));
        });
        // The model `model_read_and_reuse` looks for the new page's bytes.
        match world.read(1) {
            Some(bytes) => {
                reached("the old page");
                assert_eq!(bytes, [1; 2], "another page's");
            }
            None => reached("not there any more"),
        }
        reuse.join().unwrap();
    });
}

/// O8, O5: the same when one thread frees the frame and another takes it. Fails with a Relaxed `push`. (The models of
/// `free` fail with a Relaxed `pop`.)
#[test]
fn model_frame_passes_between_threads() {
    // Three threads: two preemptions, like [`bounded_by_two`].
    Model::new(1000, &["the new page", "not there yet"]).preemptions(2).check(|| {
        let world = world();
        let (one, other) = (world.clone(), world.clone());
        let evict = thread::spawn(move || one.evict());
        let fill = thread::spawn(move || other.fill(2));
        // The models before this one look for the old page's bytes.
        match world.read(2) {
            Some(bytes) => {
                reached("the new page");
                assert_eq!(bytes, [2; 2], "another page's");
            }
            None => reached("not there yet"),
        }
        assert!(evict.join().unwrap());
        fill.join().unwrap();
    });
}

/// O6: a thread that takes the lock sees the stores made under it. Fails with a Relaxed `unlock` or `try_lock`.
#[test]
fn model_lock_hand_over() {
    bounded_by_two(500, &["first", "second"], || {
        let world = world();
        let add = |world: &World| {
            let mut page = world.get(1).unwrap().lock();
            let mut bytes = [0; 2];
            page.read(0, &mut bytes);
            assert_eq!(bytes[0], bytes[1]);
            reached(["", "first", "second"][bytes[0] as usize]);
            page.write(0, &bytes.map(|byte| byte + 1));
            world.watched.set(world.watched.get() + 1);
        };
        let other = world.clone();
        let thread = thread::spawn(move || add(&other));
        add(&world);
        thread.join().unwrap();
        assert_eq!((world.read(1), world.watched.get()), (Some([3; 2]), 2));
    });
}

/// F7: a page that is changed while it is written back is dirty afterwards. Fails when the end of the write clears
/// DIRTY, and when it does so in two steps.
#[test]
fn model_write_back_and_new_dirt() {
    bounded_by_two(1000, &["written before the change", "written after the change"], || {
        let world = world();
        world.get(1).unwrap().lock().mark_dirty();
        let stored = Arc::new(AtomicU64::new(0));
        let (other, backend) = (world.clone(), stored.clone());
        let write_back = thread::spawn(move || {
            let mut page = other.get(1).unwrap().lock();
            assert!(page.begin_writing());
            let mut bytes = [0; 2];
            page.read(0, &mut bytes);
            let page = page.unlock();
            reached(
                ["", "written before the change", "written after the change"][bytes[0] as usize],
            );
            backend.store(bytes[0].into(), Ordering::Relaxed);
            page.end_writing(Outcome::Written);
        });
        let mut page = world.get(1).unwrap().lock();
        page.write(0, &[2; 2]);
        page.mark_dirty();
        drop(page);
        write_back.join().unwrap();
        let page = world.get(1).unwrap();
        assert!(!page.is_writing());
        assert!(page.is_dirty() || stored.load(Ordering::Relaxed) == 2, "a change was lost");
    });
}

/// O7, W1, W2: a thread that waits for a write is woken, and sees it done. Fails with a Relaxed `end_writing` or
/// `load`, when the end of the write does not wake, and when a sleeper sets WAITERS before it has locked the bucket.
#[test]
fn model_waiters_are_woken() {
    bounded(30, &["slept", "done before"], || {
        let world = world();
        let mut page = world.get(1).unwrap().lock();
        page.mark_dirty();
        page.begin_writing();
        let page = page.unlock();
        let other = world.clone();
        let waiter = thread::spawn(move || {
            let page = other.get(1).unwrap();
            reached(if page.is_writing() { "slept" } else { "done before" });
            page.wait_written();
            // Still referenced: dropping the reference would order it too.
            assert_eq!(other.watched.get(), 7);
        });
        world.watched.set(7);
        page.end_writing(Outcome::Written);
        waiter.join().unwrap();
    });
}

/// F3, O2: a page is evicted or referenced, and evicted only after the last use. Fails with a Relaxed `put` or
/// `try_freeze`, and when the freeze does not check the references in the same step.
#[test]
fn model_evict_or_get() {
    bounded(14, &["evicted", "used"], || {
        let world = world();
        let other = world.clone();
        let user = thread::spawn(move || {
            if let Some(page) = other.get(1) {
                other.watched.get();
                drop(page);
                return true;
            }
            false
        });
        let evicting = world.arena.try_evict(ID);
        let evicted = evicting.is_some();
        if let Some(evicting) = evicting {
            world.watched.set(1);
            evicting.free();
        }
        let used = user.join().unwrap();
        if evicted {
            reached("evicted");
        }
        if used {
            reached("used");
        }
        assert!(evicted || used, "one of them gets it");
    });
}

/// O6 of a wait: a thread that sleeps for the lock sees the stores made under it, even if it does not take the lock
/// afterwards. Fails with a Relaxed `unlock`, and when the release does not wake.
#[test]
fn model_a_waiter_for_a_fill_sees_it() {
    bounded(25, &["looked under the lock", "looked after"], || {
        let world = world();
        let page = world.get(1).unwrap().lock();
        let other = world.clone();
        let waiter = thread::spawn(move || {
            let page = other.get(1).unwrap();
            let after = other.flag.load(Ordering::Relaxed);
            reached(if after { "looked after" } else { "looked under the lock" });
            page.wait_unlocked();
            assert_eq!(other.watched.get(), 7);
        });
        world.watched.set(7);
        drop(page);
        world.flag.store(true, Ordering::Relaxed);
        waiter.join().unwrap();
    });
}

/// F8: a report that the store has changed, while a page is being filled from it: the page is filled again, or no
/// thread reads it. Fails with a Relaxed `mark_stale` or `set_filled`, and when readers by version do not check STALE.
#[test]
fn model_news_during_a_fill() {
    bounded(300, &["filled again", "read", "not read"], || {
        let world = world();
        assert!(world.evict());
        let mut page = world.arena.allocate().unwrap().assign(1, 1);
        let store = Arc::new(AtomicU64::new(1));
        let (other, changed) = (world.clone(), store.clone());
        let news = thread::spawn(move || {
            changed.store(2, Ordering::Relaxed);
            other.get(1).unwrap().mark_stale();
        });
        loop {
            page.write(0, &[store.load(Ordering::Relaxed) as u8; 2]);
            if page.set_filled() {
                break;
            }
            reached("filled again");
        }
        drop(page);
        news.join().unwrap();
        let read = world.read(1);
        reached(if read.is_some() { "read" } else { "not read" });
        assert!([None, Some([2; 2])].contains(&read), "out of date");
    });
}

/// F8, O4: a thread that reads a page by version as soon as it is filled sees the filled bytes. Fails with a
/// `set_filled` that is no Release.
#[test]
fn model_read_of_what_is_filled() {
    bounded_by_two(20, &["read", "not there yet"], || {
        let world = world();
        assert!(world.evict());
        let other = world.clone();
        let fill = thread::spawn(move || {
            let mut page = other.arena.allocate().unwrap().assign(2, 2);
            page.write(0, &[2; 2]);
            assert!(page.set_filled());
        });
        match world.read(2) {
            Some(bytes) => {
                reached("read");
                assert_eq!(bytes, [2; 2], "not what it was filled with");
            }
            None => reached("not there yet"),
        }
        fill.join().unwrap();
    });
}

/// Waits for room like its users: `is_there` looks, and is true if room was found.
fn waits(world: &World, mut is_there: impl FnMut(&RoomWaiter<'_>) -> bool) {
    let waiter = world.arena.wait_for_room();
    for looks in 0.. {
        let look = waiter.look();
        if is_there(&waiter) {
            reached(["found at once", "told"][usize::from(looks > 0)]);
            return;
        }
        waiter.sleep(look, std::time::Duration::MAX);
    }
}

/// O9, V1, V2: a thread that waits for a page in use is woken when the last reference is dropped. If the wake-up is
/// lost, the model never ends. Fails with a `put` that is only Release, with a Relaxed `look` of the word, with a plain
/// load in its place, and when an idle page is not announced.
#[test]
fn model_waits_for_the_last_reference() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        let page = world.get(1).unwrap();
        std::mem::forget(page);
        let other = world.clone();
        let user = thread::spawn(move || drop(PageRef::from_reference(&other.arena, ID)));
        waits(&world, |waiter| waiter.try_evict(ID).map(Evicting::free).is_some());
        user.join().unwrap();
    });
}

/// O9: the same for a page that a thread had frozen and thawed again. Fails with a Relaxed `thaw`, and when it is not
/// announced.
#[test]
fn model_waits_for_a_page_that_was_not_evicted() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        let evicting = world.arena.try_evict(ID);
        std::mem::forget(evicting);
        let other = world.clone();
        let user = thread::spawn(move || drop(Evicting::new(&other.arena, ID)));
        waits(&world, |waiter| waiter.try_evict(ID).map(Evicting::free).is_some());
        user.join().unwrap();
    });
}

/// O9: the same for a frame that is freed. Fails with a Relaxed count in `push` or in `look`, and when `give` does not
/// announce it.
#[test]
fn model_waits_for_a_free_frame() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        assert!(world.evict());
        std::mem::forget(world.arena.allocate());
        let other = world.clone();
        let user = thread::spawn(move || other.arena.give(ID));
        waits(&world, |_| world.arena.allocated() == 0);
        user.join().unwrap();
    });
}

/// O9, V4: the same for a promise that is withdrawn. Fails with a `promise` that is no Release, and with a `withdraw`
/// that is no Acquire or does not announce it.
#[test]
fn model_waits_for_a_promise() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        world.arena.promise(1);
        let other = world.clone();
        let user = thread::spawn(move || other.arena.withdraw(1));
        waits(&world, |waiter| {
            world.arena.promise(1);
            let is_room = world.arena.promised() == 1;
            waiter.withdraw(1);
            is_room
        });
        user.join().unwrap();
    });
}

/// O9: the same for a promise of a frame that could not be allocated. Fails when `redeem` does not announce it.
#[test]
fn model_waits_for_a_promise_of_what_was_not_there() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        world.arena.promise(1);
        let other = world.clone();
        let user = thread::spawn(move || {
            // The only frame holds its page.
            let fresh = other.arena.allocate();
            other.arena.redeem(fresh.is_some());
        });
        waits(&world, |waiter| is_room_beside(&world, waiter, 1));
        user.join().unwrap();
    });
}

/// O9: the same for a promise that was kept. The frame counts twice from its allocation until the promise is redeemed.
/// No waiter is woken until the rest of the promise, be it 0, is withdrawn. Fails when `withdraw(0)` does not announce
/// it.
#[test]
fn model_waits_for_a_frame_that_counts_twice() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        assert!(world.evict());
        world.arena.promise(1);
        let other = world.clone();
        let user = thread::spawn(move || {
            let fresh = other.arena.allocate();
            other.arena.redeem(fresh.is_some());
            other.arena.withdraw(0);
            std::mem::forget(fresh);
        });
        waits(&world, |waiter| is_room_beside(&world, waiter, 1));
        user.join().unwrap();
    });
}

/// Whether at most `frames` frames are promised to others or in use, checked by a promise like its users do.
fn is_room_beside(world: &World, waiter: &RoomWaiter<'_>, frames: u64) -> bool {
    world.arena.promise(1);
    let is_room = world.arena.promised() + world.arena.allocated() as u64 <= frames + 1;
    waiter.withdraw(1);
    is_room
}

/// O9: the same for a free frame that counts as in use while its memory is returned to the system. Fails when
/// `give_without_memory` does not announce it.
#[test]
fn model_waits_for_a_frame_without_memory() {
    bounded(20, &["found at once", "told"], || {
        let world = world();
        assert!(world.evict());
        let other = world.clone();
        let user = thread::spawn(move || assert_eq!(other.arena.trim(1), 1));
        waits(&world, |_| world.arena.allocated() == 0);
        user.join().unwrap();
    });
}

/// V3: the same if the caller raises its limit, which changes no word: the lock orders it. Fails when `room_grew` does
/// not wake, and when a look does not take the lock.
#[test]
fn model_waits_until_more_is_allowed() {
    bounded(5, &["found at once", "told"], || {
        let world = world();
        let other = world.clone();
        let user = thread::spawn(move || {
            other.flag.store(true, Ordering::Relaxed);
            other.arena.room_grew();
        });
        waits(&world, |_| world.flag.load(Ordering::Relaxed));
        user.join().unwrap();
    });
}

/// O10: a promised frame is allocated before its promise is redeemed: a thread that promises finds it in one of the two
/// counts. Fails with a `redeem` that is no Release, and with a Relaxed `promised`.
#[test]
fn model_a_frame_is_promised_or_allocated() {
    bounded(20, &["promised", "allocated"], || {
        let world = world();
        assert!(world.evict());
        world.arena.promise(1);
        let other = world.clone();
        let user = thread::spawn(move || {
            let fresh = other.arena.allocate();
            other.arena.redeem(fresh.is_some());
            std::mem::forget(fresh);
        });
        world.arena.promise(1);
        let promised = world.arena.promised();
        let used = promised + world.arena.allocated() as u64;
        reached(if promised == 2 { "promised" } else { "allocated" });
        assert!(used >= 2, "promised twice");
        user.join().unwrap();
    });
}
