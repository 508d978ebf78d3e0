//! The protocol of [`super::domain`] under every schedule with a bounded number of preemptions.
//!
//! # Boundary
//! Models only. Each makes a domain of its own, except the one about thread exit, which uses the
//! process-wide functions over loom's thread-locals.
//!
//! # Why
//! A freed object is a cell that was written: a read unordered with that write fails in loom, a read after it fails the
//! assertion. Each model names the weakenings that break it. Weakness: loom has no membarrier, so the asymmetric
//! barrier is modelled as the two fences that it replaces.

use super::barrier::Mode;
use super::domain::{Domain, Slot};
use super::garbage::Deferred;
use crate::primitive::atomic::{AtomicUsize, Ordering};
use crate::primitive::model::{Model, reached};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;

const FREED: u32 = 99;

/// Two objects, one of them linked, and the domain that reclaims them.
struct World {
    domain: Domain,
    link: AtomicUsize,
    objects: [UnsafeCell<u32>; 2],
}

// SAFETY: the objects are used under the protocol; loom's cells check that claim.
unsafe impl Sync for World {}
// SAFETY: the objects are used under the protocol; loom's cells check that claim.
unsafe impl Send for World {}

/// A slot that is used by one model thread.
struct Member(*const Slot);

// SAFETY: the slot moves to the thread that uses it, once.
unsafe impl Send for Member {}

impl Member {
    fn slot(&self) -> &Slot {
        // SAFETY: every user of a member keeps its world, and so the domain, alive.
        unsafe { &*self.0 }
    }
    fn pin(&self) {
        // SAFETY: one thread uses the member (E4).
        unsafe { self.slot().pin() };
    }
    fn unpin(&self) {
        // SAFETY: one thread uses the member (E4), and the models pair `pin` and `unpin`.
        assert!(!unsafe { self.slot().unpin() });
    }
    fn collect(&self) {
        // SAFETY: one thread uses the member (E4).
        unsafe { self.slot().domain().collect(self.slot()) };
    }
    fn leave(self) {
        // SAFETY: one thread uses the member (E4); `self` is consumed.
        unsafe { self.slot().leave() };
    }
}

impl World {
    fn new(mode: Mode) -> Arc<Self> {
        Arc::new(Self {
            domain: Domain::new(mode, || false),
            link: AtomicUsize::new(0),
            objects: [UnsafeCell::new(0), UnsafeCell::new(1)],
        })
    }
    fn join(&self) -> Member {
        Member(self.domain.join())
    }
    /// Follows the link. The caller is pinned.
    fn read(&self) {
        let linked = self.link.load(Ordering::Acquire);
        reached(["read the old object", "read the new object"][linked]);
        self.objects[linked].with(|object| {
            // SAFETY: a pin keeps the object from being freed; loom checks that.
            assert_eq!(unsafe { *object }, linked as u32, "read after free");
        });
    }
    /// Unlinks object 0 and retires it.
    fn replace(self: &Arc<Self>, member: &Member) {
        self.link.store(1, Ordering::Release);
        let world = self.clone();
        let free = Deferred::new(move || {
            world.objects[0].with_mut(|object| {
                // SAFETY: freed once, with no reader left; loom checks that.
                assert_eq!(unsafe { std::mem::replace(&mut *object, FREED) }, 0, "freed twice");
            });
        });
        // SAFETY: one thread uses the member (E4).
        unsafe { member.slot().retire(1, free) };
    }
    /// Notes whether a round beside other threads could free object 0.
    fn note_freed(&self) {
        // By objects: the checker does not see their counts, so these order nothing.
        let nothing = self.domain.garbage_objects() == 0;
        reached(if nothing { "freed at once" } else { "held back" });
    }
    /// Collects with no thread pinned: frees object 0, if it was not freed before.
    fn settle(&self, member: &Member) {
        member.collect();
        assert_eq!((self.domain.garbage(), self.domain.statistics().panics), ((0, 0), 0));
        self.objects[0].with(|object| {
            // SAFETY: freed, or no other thread is left to write it.
            assert_eq!(unsafe { *object }, FREED);
        });
    }
}

/// The reader reads before and after the object is unlinked; its pin delays the free, or does not.
const BOTH: [&str; 4] =
    ["read the old object", "read the new object", "freed at once", "held back"];

/// A writer unlinks, retires and collects while `read` runs in another thread.
fn check(
    at_least: usize,
    reaching: &'static [&'static str],
    mode: Mode,
    read: fn(&World, &Member),
) {
    Model::new(at_least, reaching).check(move || {
        let world = World::new(mode);
        let (reader, writer) = (world.join(), world.join());
        let other = world.clone();
        let thread = thread::spawn(move || {
            read(&other, &reader);
            reader
        });
        world.replace(&writer);
        writer.collect();
        world.note_freed();
        let reader = thread.join().unwrap();
        if mode == Mode::Membarrier {
            // The domain fences by now; this makes the reader's slot fence too (E6).
            reader.pin();
            reader.unpin();
            writer.pin();
            writer.unpin();
        }
        world.settle(&writer);
    });
}

/// O1, O2, O3. Fails without the fence of `light` or of `heavy`, with a Relaxed store in `unpin` or
/// a Relaxed load in `blocked`.
#[test]
fn model_reader_and_writer() {
    check(90, &BOTH, Mode::Fence, |world, reader| {
        reader.pin();
        world.read();
        reader.unpin();
    });
}

/// O2: a scan that sees a *later* pin of the reader still sees that its first one ended. Fails with
/// a Relaxed store in the outermost `pin`.
#[test]
fn model_pin_again() {
    check(600, &BOTH, Mode::Fence, |world, reader| {
        reader.pin();
        world.read();
        reader.unpin();
        reader.pin();
        reader.pin();
        reader.unpin();
        reader.unpin();
    });
}

/// O2: the same if the scan sees that the slot was claimed once more. Fails if `join` stores to the word Relaxed and
/// before its fence.
#[test]
fn model_leave_and_pin_again() {
    Model::new(200, &BOTH).check(|| {
        let world = World::new(Mode::Fence);
        let (reader, writer) = (world.join(), world.join());
        let other = world.clone();
        let thread = thread::spawn(move || {
            reader.pin();
            other.read();
            reader.unpin();
            reader.leave();
            other.join();
        });
        world.replace(&writer);
        writer.collect();
        world.note_freed();
        thread.join().unwrap();
        world.settle(&writer);
    });
}

/// E2, E3: three threads, two preemptions; a bag arrives while another thread is in a round, and its owner leaves.
/// Fails as `model_reader_and_writer` does, and with a Relaxed `push`, `take` or `take_bag`. It does not fail if a
/// round takes the incoming bags after its barrier: E3 rests on the argument there.
#[test]
fn model_arrive_in_a_round() {
    Model::new(1000, &BOTH).preemptions(2).check(|| {
        let world = World::new(Mode::Fence);
        let (reader, writer, collector) = (world.join(), world.join(), world.join());
        let (reading, writing) = (world.clone(), world.clone());
        let reader = thread::spawn(move || {
            reader.pin();
            reading.read();
            reader.unpin();
        });
        let writer = thread::spawn(move || {
            writing.replace(&writer);
            writer.leave();
        });
        // Garbage to collect, without which there would be no round.
        // SAFETY: one thread uses the member (E4).
        unsafe { collector.slot().retire(1, Deferred::new(|| ())) };
        collector.collect();
        world.note_freed();
        writer.join().unwrap();
        reader.join().unwrap();
        world.settle(&collector);
    });
}

/// E1: the inner unpin does not end the outer pin. Fails if it stores a depth of 0.
#[test]
fn model_nested_pins() {
    check(250, &BOTH, Mode::Fence, |world, reader| {
        reader.pin();
        reader.pin();
        reader.unpin();
        world.read();
        reader.unpin();
    });
}

/// E6: the barrier is refused after the reader learned that it need not fence. Fails if `blocked` does not check that a
/// slot is fenced.
#[test]
fn model_refused_barrier() {
    check(60, &BOTH[..2], Mode::Membarrier, |world, reader| {
        reader.pin();
        world.read();
        reader.unpin();
    });
}

/// E3: a pin races the advances themselves; two threads take rounds. Fails with one advance instead
/// of two before a bag is ready.
#[test]
fn model_pin_and_advance() {
    Model::new(500, &BOTH).preemptions(2).check(|| {
        let world = World::new(Mode::Fence);
        let (reader, writer) = (world.join(), world.join());
        let other = world.clone();
        let thread = thread::spawn(move || {
            reader.collect();
            reader.pin();
            other.read();
            // This thread's own pin lets the epoch advance once, not twice.
            reader.collect();
            other.read_again(&reader);
        });
        world.replace(&writer);
        writer.collect();
        world.note_freed();
        thread.join().unwrap();
        writer.collect();
        world.settle(&writer);
    });
}

impl World {
    /// Objects reachable when the pin began are not freed; the pin ends here.
    fn read_again(&self, reader: &Member) {
        self.read();
        reader.unpin();
    }
}

/// E6: a thread that joins while the barrier is refused. Fails without the fence in `join`.
#[test]
fn model_join_and_refused_barrier() {
    Model::new(500, &BOTH).preemptions(2).check(|| {
        let world = World::new(Mode::Membarrier);
        let writer = world.join();
        let other = world.clone();
        let thread = thread::spawn(move || {
            let reader = other.join();
            reader.pin();
            other.read();
            reader.unpin();
            reader.leave();
        });
        world.replace(&writer);
        writer.collect();
        writer.pin();
        writer.unpin();
        writer.collect();
        world.note_freed();
        thread.join().unwrap();
        world.settle(&writer);
    });
}

/// O3, O4, O5: a thread writes an object, retires it and leaves; another thread takes the bag, or joins in the slot
/// that the first one left. Fails with a Relaxed store in `retire` or `leave`, a Relaxed `push`, a Relaxed swap in
/// `take_bag` or `take`, a Relaxed `link` or `slots`.
#[test]
fn model_retire_and_leave() {
    Model::new(500, &["freed at once", "held back"]).check(|| {
        let world = World::new(Mode::Fence);
        let other = world.clone();
        let thread = thread::spawn(move || {
            let member = other.join();
            other.objects[0].with_mut(|object| {
                // SAFETY: no thread reads object 0 in this model before it is freed.
                unsafe { *object = 0 }
            });
            other.replace(&member);
            member.leave();
        });
        let member = world.join();
        member.collect();
        world.note_freed();
        thread.join().unwrap();
        world.settle(&member);
    });
}

/// O6: a report of the garbage, while one thread retires it and another frees it: never more freed than retired. Fails
/// with a Relaxed `freed_bytes` in `garbage`.
#[test]
fn model_report_of_garbage() {
    Model::new(8, &["nothing", "some"]).preemptions(2).check(|| {
        let world = World::new(Mode::Fence);
        let member = world.join();
        let (retiring, reporting) = (world.clone(), world.clone());
        let thread = thread::spawn(move || {
            retiring.replace(&member);
            member.collect();
        });
        let (bytes, _) = reporting.domain.garbage();
        reached(if bytes == 0 { "nothing" } else { "some" });
        assert!(bytes <= 1, "{bytes} bytes");
        thread.join().unwrap();
    });
}

/// O4: a slot passes from thread to thread, with the fields that only its thread uses. Fails with a Relaxed store in
/// `leave`.
#[test]
fn model_leave_and_join() {
    Model::new(150, &["one slot", "two slots"]).check(|| {
        let world = World::new(Mode::Fence);
        let other = world.clone();
        let visit = |world: &World| {
            let member = world.join();
            let slot = member.0.addr();
            member.collect();
            member.leave();
            slot
        };
        let thread = thread::spawn(move || visit(&other));
        let mine = visit(&world);
        let theirs = thread.join().unwrap();
        reached(if mine == theirs { "one slot" } else { "two slots" });
    });
}

/// The process-wide functions, and a thread that exits with a bag that is not full. Loom lets
/// `join` return before the thread's locals are destroyed, hence the loop. Does not end if the bag
/// is lost.
#[test]
fn model_thread_exit() {
    Model::new(900, &["freed after the exit"]).check(|| {
        let freed = Arc::new(AtomicUsize::new(0));
        let count = freed.clone();
        let thread = thread::spawn(move || {
            super::pin().defer(5, move || {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        super::collect();
        thread.join().unwrap();
        if freed.load(Ordering::Relaxed) == 0 {
            reached("freed after the exit");
        }
        while freed.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
            super::collect();
        }
        assert_eq!((freed.load(Ordering::Relaxed), super::garbage_bytes()), (1, 0));
    });
}
