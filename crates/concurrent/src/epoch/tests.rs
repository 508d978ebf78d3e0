//! Epochs with real threads.
//!
//! # Boundary
//! Cases that `super::models` cannot reach: membarrier, thread exit by the operating system, many objects. Tests of a
//! count use a domain of their own. All tests of this binary share the process-wide functions, so tests of those wait
//! for their own objects only.
//!
//! # Why
//! Each reader checks a poison that the free writes. Weakness: on x86 a missing release goes unnoticed here, but the
//! models find it. No test here fails if the kernel's barrier did nothing: a store buffer hides a store for
//! nanoseconds, and the free comes two rounds later.

use super::barrier::{self, Mode};
use super::domain::{Domain, Slot};
use super::garbage::{BAG_OBJECTS, Deferred};
use super::*;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;

/// A slot of the calling test thread.
struct Member<'a>(&'a Slot);

impl<'a> Member<'a> {
    fn join(domain: &'a Domain) -> Self {
        Self(domain.join())
    }
    fn pin(&self) {
        // SAFETY: the member does not leave its thread (E4).
        unsafe { self.0.pin() };
    }
    fn unpin(&self) {
        // SAFETY: the member does not leave its thread (E4), and the tests pair `pin` and `unpin`.
        assert!(!unsafe { self.0.unpin() });
    }
    fn defer(&self, bytes: usize, free: impl FnOnce() + Send + 'static) {
        // SAFETY: the member does not leave its thread (E4).
        unsafe { self.0.retire(bytes, Deferred::new(free)) };
    }
    fn collect(&self) {
        // SAFETY: the member does not leave its thread (E4).
        unsafe { self.0.domain().collect(self.0) };
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            // SAFETY: the member does not leave its thread (E4), and is not used afterwards.
            unsafe { self.0.leave() };
        }
    }
}

/// A domain like the process's, or one that fences.
fn domain(mode: Mode) -> Domain {
    if mode == Mode::Membarrier && barrier::register() == Mode::Fence {
        return Domain::new(Mode::Fence, || false);
    }
    Domain::new(mode, barrier::everywhere)
}

fn add_one(count: &AtomicUsize) {
    count.fetch_add(1, SeqCst);
}

const ALIVE: u64 = 0x600d_600d_600d_600d;
const POISON: u64 = 0xdead_dead_dead_dead;

/// Readers follow a pointer that writers swap and retire.
fn check_swapped_box(mode: Mode) {
    const SWAPS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    const WRITERS: usize = 2;
    let domain = domain(mode);
    let new = || Box::into_raw(Box::new([AtomicU64::new(ALIVE), AtomicU64::new(ALIVE)]));
    let link = AtomicPtr::new(new());
    let freed = Arc::new(AtomicUsize::new(0));
    let (done, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let member = Member::join(&domain);
                while !done.load(SeqCst) {
                    member.pin();
                    // SAFETY: linked when this member pinned or later, so not freed before it unpins.
                    let object = unsafe { &*link.load(SeqCst) };
                    for word in object {
                        assert_eq!(word.load(SeqCst), ALIVE, "read after free");
                    }
                    member.unpin();
                    reads.fetch_add(1, SeqCst);
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| {
                    let member = Member::join(&domain);
                    for _ in 0..SWAPS {
                        let old = link.swap(new(), SeqCst).expose_provenance();
                        let count = freed.clone();
                        member.defer(16, move || {
                            let old = std::ptr::with_exposed_provenance_mut::<[AtomicU64; 2]>(old);
                            // SAFETY: only this thread swapped it out, and no reader has it any more.
                            let object = unsafe { Box::from_raw(old) };
                            for word in &*object {
                                assert_eq!(word.swap(POISON, SeqCst), ALIVE, "freed twice");
                            }
                            count.fetch_add(1, SeqCst);
                        });
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // Readers must have seen at least some of the swaps.
        while reads.load(SeqCst) < 100 {
            thread::yield_now();
        }
        done.store(true, SeqCst);
    });
    let member = Member::join(&domain);
    member.collect();
    assert_eq!(freed.load(SeqCst), WRITERS * SWAPS);
    let statistics = domain.statistics();
    assert_eq!(statistics.freed_objects, (WRITERS * SWAPS) as u64);
    assert_eq!(statistics.freed_bytes, 16 * (WRITERS * SWAPS) as u64);
    assert_eq!((statistics.garbage_bytes, statistics.garbage_objects), (0, 0));
    assert_eq!((statistics.panics, statistics.threads), (0, 1));
    // SAFETY: the threads are gone.
    drop(unsafe { Box::from_raw(link.into_inner()) });
}

#[test]
fn readers_of_a_swapped_box_with_membarrier() {
    check_swapped_box(Mode::Membarrier);
}

#[test]
fn readers_of_a_swapped_box_with_fences() {
    check_swapped_box(Mode::Fence);
}

/// Membarrier works for a while and is then refused, like by a filter that is installed late.
#[test]
fn a_barrier_refused_late_waits_for_every_old_pin() {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    let domain = Domain::new(Mode::Membarrier, || !REFUSED.load(SeqCst));
    let (idle, writer) = (Member::join(&domain), Member::join(&domain));
    let freed = Arc::new(AtomicUsize::new(0));
    let retire = || {
        let count = freed.clone();
        writer.defer(1, move || add_one(&count));
    };
    retire();
    writer.collect();
    assert_eq!((freed.load(SeqCst), domain.statistics().mode), (1, Mode::Membarrier));
    REFUSED.store(true, SeqCst);
    retire();
    writer.collect();
    assert_eq!((freed.load(SeqCst), domain.statistics().mode), (1, Mode::Fence));
    writer.pin();
    writer.unpin();
    writer.collect();
    assert_eq!(freed.load(SeqCst), 1, "the other thread may still pin without a fence");
    idle.pin();
    idle.unpin();
    writer.collect();
    assert_eq!(freed.load(SeqCst), 2);
}

#[test]
fn a_guard_holds_back_what_was_retired_under_it_and_is_reported() {
    let domain = domain(Mode::Membarrier);
    let (reader, writer) = (Member::join(&domain), Member::join(&domain));
    let freed = Arc::new(AtomicBool::new(false));
    let flag = freed.clone();
    reader.pin();
    reader.pin();
    reader.unpin();
    writer.defer(1000, move || flag.store(true, SeqCst));
    assert_eq!(domain.garbage(), (1000, 1), "bytes in a bag that is not full count");
    assert_eq!(domain.oldest_pin(), None, "no advance was blocked yet");
    (0..5).for_each(|_| writer.collect());
    assert!(!freed.load(SeqCst));
    assert_eq!(domain.garbage(), (1000, 1));
    let first = domain.oldest_pin().expect("the reader blocks");
    writer.collect();
    assert!(domain.oldest_pin().expect("still") >= first, "the clock is not restarted");
    assert!(domain.statistics().blocked_advances > 0);
    reader.unpin();
    assert_eq!(domain.oldest_pin(), None);
    reader.pin();
    assert_eq!(domain.oldest_pin(), None, "a new pin is not the old one");
    writer.collect();
    reader.unpin();
    writer.collect();
    assert!(freed.load(SeqCst));
    assert_eq!(domain.garbage(), (0, 0));
}

#[test]
fn a_deferred_call_may_panic_retire_pin_and_collect() {
    let domain = Arc::new(domain(Mode::Membarrier));
    let member = Member::join(&domain);
    let ran = Arc::new(AtomicUsize::new(0));
    for index in 0..4 * BAG_OBJECTS {
        let (ran, inner) = (ran.clone(), domain.clone());
        member.defer(1, move || {
            ran.fetch_add(1, SeqCst);
            let nested = Member::join(&inner);
            nested.pin();
            let again = ran.clone();
            nested.defer(1, move || add_one(&again));
            nested.unpin();
            nested.collect();
            drop(nested);
            if index.is_multiple_of(7) {
                std::panic::resume_unwind(Box::new("a deferred call panics"));
            }
        });
    }
    (0..3).for_each(|_| member.collect());
    assert_eq!(ran.load(SeqCst), 8 * BAG_OBJECTS);
    assert_eq!(domain.statistics().panics, (4 * BAG_OBJECTS as u64).div_ceil(7));
    assert_eq!(domain.garbage(), (0, 0));
    // The deferred calls are gone, and with them their references to the domain.
    drop(member);
    assert_eq!(Arc::strong_count(&domain), 1);
}

#[test]
fn a_chain_of_deferred_calls_does_not_grow_the_stack() {
    fn link(domain: &Arc<Domain>, left: usize, ended: &Arc<AtomicBool>) {
        let Some(left) = left.checked_sub(1) else { return ended.store(true, SeqCst) };
        let (inner, ended) = (domain.clone(), ended.clone());
        // Each is a full bag by its bytes.
        let member = Member::join(domain);
        member.defer(usize::MAX >> 32, move || link(&inner, left, &ended));
    }
    let domain = Arc::new(domain(Mode::Membarrier));
    let ended = Arc::new(AtomicBool::new(false));
    let member = Member::join(&domain);
    link(&domain, 20_000, &ended);
    for _ in 0..300_000 {
        if ended.load(SeqCst) {
            break;
        }
        member.collect();
    }
    assert!(ended.load(SeqCst));
}

#[test]
fn retiring_frees_what_was_retired_before() {
    let domain = domain(Mode::Membarrier);
    let member = Member::join(&domain);
    for _ in 0..100 * BAG_OBJECTS {
        member.pin();
        member.defer(1, || ());
        member.unpin();
    }
    // At each full bag, the bag before it waits for one more advance, and this thread is pinned.
    let left = domain.statistics().garbage_objects;
    assert!(left <= 4 * BAG_OBJECTS, "{left} objects are left");
}

#[test]
fn dropping_a_domain_frees_its_garbage() {
    let freed = Arc::new(AtomicUsize::new(0));
    let domain = domain(Mode::Fence);
    {
        let member = Member::join(&domain);
        for _ in 0..3 * BAG_OBJECTS + 1 {
            let count = freed.clone();
            member.defer(1, move || add_one(&count));
        }
    }
    drop(domain);
    assert_eq!(freed.load(SeqCst), 3 * BAG_OBJECTS + 1);
}

#[test]
fn threads_reuse_slots() {
    let domain = domain(Mode::Fence);
    for _ in 0..50 {
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| Member::join(&domain).defer(1, || ()));
            }
        });
    }
    assert_eq!(domain.statistics().threads, 0);
    assert!(domain.slot_count() <= 2, "{} slots", domain.slot_count());
    let member = Member::join(&domain);
    member.collect();
    assert_eq!(domain.statistics().freed_objects, 100);
}

/// Collects until `done`, as other tests of this binary hold guards and collect too.
fn collect_until(done: impl Fn() -> bool) {
    while !done() {
        collect();
        thread::yield_now();
    }
}

#[test]
fn guards_nest_and_drop_in_any_order() {
    let freed = Arc::new(AtomicBool::new(false));
    let flag = freed.clone();
    let (outer, inner) = (pin(), pin());
    inner.defer(8, move || flag.store(true, SeqCst));
    drop(outer);
    (0..5).for_each(|_| collect());
    assert!(!freed.load(SeqCst), "the inner guard is left");
    drop(inner);
    collect_until(|| freed.load(SeqCst));
}

#[test]
fn a_bare_pointer_is_retired() {
    static FREED: AtomicU64 = AtomicU64::new(0);
    /// # Safety
    /// `ptr` came from a box of a `u64`.
    unsafe fn free(ptr: *mut ()) {
        // SAFETY: as this function requires.
        let value = unsafe { Box::from_raw(ptr.cast::<u64>()) };
        FREED.fetch_add(*value, SeqCst);
    }
    let ptr = Box::into_raw(Box::new(77u64)).cast();
    // SAFETY: no other code has the pointer.
    unsafe { pin().retire(8, ptr, free) };
    collect_until(|| {
        collect();
        FREED.load(SeqCst) == 77
    });
}

#[test]
fn synchronize_waits_for_the_guards_of_others() {
    let (pinned, unpinning) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = pin();
            pinned.store(true, SeqCst);
            // Leaves `synchronize` time to return too early.
            (0..1000).for_each(|_| thread::yield_now());
            unpinning.store(true, SeqCst);
            drop(guard);
        });
        while !pinned.load(SeqCst) {
            thread::yield_now();
        }
        synchronize();
        assert!(unpinning.load(SeqCst));
    });
}

#[test]
fn synchronize_refuses_to_wait_for_its_own_guard() {
    let _guard = pin();
    assert!(catch_unwind(synchronize).is_err());
}

#[test]
fn too_many_guards_are_refused_and_harmless() {
    let mut guards: Vec<_> = (0..0xffff).map(|_| pin()).collect();
    assert!(catch_unwind(AssertUnwindSafe(pin)).is_err());
    guards.pop();
    guards.push(pin());
}

/// Retires when it is dropped, like the destructor of a thread-local at thread exit.
struct AtExit {
    freed: Arc<AtomicUsize>,
    guard: Option<Guard>,
}

impl AtExit {
    fn retire(&self) {
        let (outer, inner) = (pin(), pin());
        drop(outer);
        let count = self.freed.clone();
        inner.defer(24, move || add_one(&count));
    }
}

impl Drop for AtExit {
    fn drop(&mut self) {
        self.retire();
        drop(self.guard.take());
        self.retire();
        collect();
    }
}

thread_local!(static AT_EXIT: RefCell<Option<AtExit>> = const { RefCell::new(None) });

/// A thread whose thread-local retires while the thread exits. `early`: its destructor is registered before the epoch's
/// own, so (on Linux) it runs after that. `guarded`: it also keeps a guard until then.
fn check_thread_exit(early: bool, guarded: bool) {
    let freed = Arc::new(AtomicUsize::new(0));
    let count = freed.clone();
    thread::spawn(move || {
        if early {
            AT_EXIT.with(|_| ());
        }
        let guard = pin();
        let at_exit = AtExit { freed: count, guard: guarded.then(pin) };
        drop(guard);
        at_exit.retire();
        AT_EXIT.with(|local| *local.borrow_mut() = Some(at_exit));
    })
    .join()
    .unwrap();
    collect_until(|| freed.load(SeqCst) == 3);
}

#[test]
fn destructors_of_thread_locals_may_pin_and_retire() {
    for (early, guarded) in [(false, false), (true, false), (false, true), (true, true)] {
        check_thread_exit(early, guarded);
    }
}

#[test]
fn an_exited_thread_leaves_its_bag_and_no_garbage() {
    let freed = Arc::new(AtomicUsize::new(0));
    let before = statistics().freed_bytes;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..BAG_OBJECTS / 2 {
                    let count = freed.clone();
                    pin().defer(3, move || add_one(&count));
                }
            });
        }
    });
    let total = 4 * (BAG_OBJECTS / 2);
    collect_until(|| freed.load(SeqCst) == total);
    assert!(statistics().freed_bytes - before >= 3 * (total as u64) - 3 * BAG_OBJECTS as u64);
    // Other tests retire meanwhile, so the process-wide count reaches 0 only between them.
    collect_until(|| garbage_bytes() == 0);
}
