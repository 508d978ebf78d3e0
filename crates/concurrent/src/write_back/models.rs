//! The two protocols, with pages, a store and a clock of their own.

use super::due::{Next, Place, Places, WaitsFor, Wake};
use super::marked::{self, Arrive, Begin, Fail, Marked};
use crate::primitive::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::SeqCst};
use crate::primitive::model::{Model, reached};
use loom::sync::{Arc, Mutex};
use loom::thread;

const CLEAN: u8 = 0;
const DIRTY: u8 = 1;
const WRITING: u8 = 2;

/// A file of one page. In the product its tags are in a tree, its state in a frame's word, and its errors under a lock.
#[derive(Default)]
struct File {
    dirty: AtomicBool,
    marked: AtomicBool,
    writing: AtomicBool,
    state: AtomicU8,
    errors: AtomicU64,
    /// The store fails once.
    fails: AtomicBool,
    /// The store has the page.
    arrived: AtomicBool,
    /// The page is counted as stored.
    counted: AtomicBool,
}

// ORDERING: SeqCst, all of the model's; it checks the order of steps, and the product's words have models of their own.
impl Marked for File {
    fn errors(&self) -> u64 {
        self.errors.load(SeqCst)
    }

    fn mark_dirty(&self) {
        if self.dirty.load(SeqCst) {
            self.marked.store(true, SeqCst);
        }
    }

    fn next_marked(&self, from: u64) -> Option<u64> {
        (from == 0 && self.marked.load(SeqCst)).then_some(0)
    }

    fn write_run(&self, _: u64) -> (u64, bool) {
        loop {
            match self.state.load(SeqCst) {
                WRITING => thread::yield_now(),
                CLEAN => {
                    self.marked.store(false, SeqCst);
                    return (1, false);
                }
                // The page's lock is held from here to the first tag.
                _ if self.state.compare_exchange(DIRTY, WRITING, SeqCst, SeqCst).is_ok() => break,
                _ => {}
            }
        }
        marked::begin(&mut Page(self));
        if self.fails.swap(false, SeqCst) {
            marked::fail(&mut Page(self));
            return (1, true);
        }
        self.arrived.store(true, SeqCst);
        marked::arrive(&mut Page(self));
        (1, false)
    }

    fn wait_for_runs(&self) -> bool {
        if !self.writing.load(SeqCst) {
            return false;
        }
        while self.state.load(SeqCst) == WRITING {
            thread::yield_now();
        }
        true
    }
}

/// A run of the only page.
struct Page<'a>(&'a File);

impl Begin for Page<'_> {
    fn make_written(&mut self) {
        self.0.writing.store(true, SeqCst);
    }

    fn clear_dirty(&mut self) {
        self.0.dirty.store(false, SeqCst);
        self.0.marked.store(false, SeqCst);
    }
}

impl Fail for Page<'_> {
    fn make_dirty(&mut self) {
        self.0.dirty.store(true, SeqCst);
    }

    fn note_error(&mut self) {
        self.0.errors.fetch_add(1, SeqCst);
    }

    fn end(&mut self) {
        self.0.writing.store(false, SeqCst);
        self.0.state.store(DIRTY, SeqCst);
    }
}

impl Arrive for Page<'_> {
    fn count(&mut self) {
        self.0.counted.store(true, SeqCst);
    }

    fn end(&mut self) {
        self.0.writing.store(false, SeqCst);
        self.0.state.store(CLEAN, SeqCst);
    }
}

/// W5. A store had failed and was back, and `write_back_all` returned while 32 KiB still counted as dirty: the run of
/// another thread had arrived and was not counted yet. Fails if `arrive` ends the run before it counts the pages.
#[test]
fn model_an_fsync_finds_arrived_pages_counted() {
    Model::new(3, &["the fsync waited", "the run had ended"]).preemptions(3).check(|| {
        let file = Arc::new(File::default());
        file.state.store(WRITING, SeqCst);
        file.writing.store(true, SeqCst);
        let other = file.clone();
        let run = thread::spawn(move || marked::arrive(&mut Page(&other)));
        let ended = file.state.load(SeqCst) == CLEAN;
        assert!(marked::write_marked(&*file, 3), "no run failed");
        assert!(file.counted.load(SeqCst), "it returned, and the page is not counted");
        reached(if ended { "the run had ended" } else { "the fsync waited" });
        run.join().unwrap();
    });
}

/// W3, W4: an `fsync` that returns success finds the page in the store, and one that fails has tried to write it. Fails
/// if `fail` notes the error before it makes the page dirty, if it ends the run before it notes the error, and without
/// the second round.
#[test]
fn model_an_fsync_beside_a_run_that_fails() {
    Model::new(20, &["success", "an error"]).preemptions(3).check(|| {
        let file = Arc::new(File::default());
        file.state.store(WRITING, SeqCst);
        file.writing.store(true, SeqCst);
        let other = file.clone();
        let run = thread::spawn(move || marked::fail(&mut Page(&other)));
        let arrived = marked::write_marked(&*file, 3);
        assert!(file.arrived.load(SeqCst), "it returned, and the page is not in the store");
        reached(if arrived { "success" } else { "an error" });
        assert!(arrived || file.errors() > 0);
        run.join().unwrap();
    });
}

/// W2, W4: of two concurrent `fsync`s one writes the page, and the store fails once. Neither returns success before the
/// page has arrived. Fails if `begin` clears the dirty tag before the page is being written.
#[test]
fn model_two_fsyncs_and_a_store_that_fails_once() {
    Model::new(100, &["success", "an error"]).preemptions(2).check(|| {
        let file = Arc::new(File::default());
        file.state.store(DIRTY, SeqCst);
        file.dirty.store(true, SeqCst);
        file.fails.store(true, SeqCst);
        let fsync = |file: &File| {
            let success = marked::write_marked(file, 3);
            assert!(!success || file.arrived.load(SeqCst), "success, and it is not in the store");
            reached(if success { "success" } else { "an error" });
        };
        let other = file.clone();
        let one = thread::spawn(move || fsync(&other));
        fsync(&file);
        one.join().unwrap();
    });
}

const DELAY: u32 = 5;
const NOW: u32 = 10;
/// An item that is dirty since this moment is due at a later moment.
const LATE: u32 = 8;

/// One item that may wait, like a file of the product.
#[derive(Default)]
struct Waiting {
    queue: Mutex<Places<u32, ()>>,
    /// The item's place, and the moment since which it is dirty; none if it is due at once.
    local: Mutex<(Option<Place<u32>>, Option<u32>)>,
    wake: Mutex<Wake<u32>>,
}

impl Waiting {
    fn put(&self) {
        let mut queue = self.queue.lock().unwrap();
        let mut local = self.local.lock().unwrap();
        local.1 = Some(LATE);
        local.0 = Some(queue.put((WaitsFor::Ripening, local.1), ()));
    }

    fn make_due(&self) {
        let mut queue = self.queue.lock().unwrap();
        let mut local = self.local.lock().unwrap();
        local.1 = None;
        local.0 = local.0.map(|place| queue.move_to(place, (WaitsFor::Ripening, None)));
        drop((local, queue));
        self.wake.lock().unwrap().look_at(NOW);
    }

    /// A step of a thread that writes back.
    fn step(&self) {
        if self.wake.lock().unwrap().begin(NOW, 1).is_none() {
            return;
        }
        let mut round = self.queue.lock().unwrap().begin(Some(NOW - DELAY), false);
        loop {
            let mut queue = self.queue.lock().unwrap();
            if queue.next(&mut round).is_none() {
                break;
            }
            let mut local = self.local.lock().unwrap();
            assert_eq!(local.1, None, "it is not due");
            reached("the step met it");
            local.0.take().map(|place| queue.remove(place));
        }
        let next = match self.queue.lock().unwrap().next_due(&round, NOW) {
            Next::Now => Some(NOW),
            Next::Later { ripens_since, .. } => ripens_since.map(|since| since + DELAY),
        };
        self.wake.lock().unwrap().ended(next);
    }

    /// Q4, after every thread has finished.
    fn is_looked_at(&self) {
        let (place, since) = *self.local.lock().unwrap();
        let next = self.wake.lock().unwrap().next();
        if place.is_some() {
            let due = since.map_or(NOW, |since| since + DELAY);
            assert!(next.is_some_and(|next| next <= due), "due at {due}, looked at {next:?}");
            reached("it waits");
        }
    }
}

/// Q4: an item becomes due while a step of another thread looks. Fails if a thread's request is dropped while a step
/// runs and no moment is set. Fails if `ended` replaces the moment, and if the request comes before the place is
/// changed.
#[test]
fn model_what_becomes_due_beside_a_step_is_looked_at() {
    Model::new(20, &["the step met it", "it waits"]).preemptions(3).check(|| {
        let waiting = Arc::new(Waiting::default());
        waiting.put();
        waiting.wake.lock().unwrap().look_at(0);
        let other = waiting.clone();
        let step = thread::spawn(move || other.step());
        waiting.make_due();
        step.join().unwrap();
        waiting.is_looked_at();
    });
}

/// Q4: an item is inserted, and becomes due before the inserting thread has requested a look. Fails if a request is
/// dropped while no moment is set, and if the later of two moments is kept.
#[test]
fn model_what_is_put_in_and_becomes_due_is_looked_at() {
    Model::new(4, &["it waits"]).preemptions(3).check(|| {
        let waiting = Arc::new(Waiting::default());
        let other = waiting.clone();
        let writer = thread::spawn(move || {
            other.put();
            other.wake.lock().unwrap().look_at(LATE + DELAY);
        });
        if waiting.local.lock().unwrap().0.is_some() {
            waiting.make_due();
        }
        writer.join().unwrap();
        waiting.is_looked_at();
    });
}
