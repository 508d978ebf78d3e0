//! Runs a model: all its schedules, and the proof that it explored something.
//!
//! # Boundary
//! The only place that starts loom. Compiled only for models (`--cfg loom`); their atomics are in [`super::modelled`].
//!
//! # Why
//! A model that explores one schedule, or never reaches the step in question, is green for any code. So a model states
//! the least number of its executions, and names the places that one of them must reach. The number of executions is a
//! property of the model and of loom, not of the machine.
//!
//! Weakness: the least number is a floor, with room for a protocol that gets simpler. A place is reached in *some*
//! execution.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The bounds of preemptions under which a model is explored first. Most hidden loads are found there, where an
/// exploration is short.
const LEARNING: [usize; 2] = [1, 2];

/// A place in the source, by the address of the file's name, which is quick and may differ between two uses of one
/// place. Then the place is learned twice.
type Place = (usize, u32, u32);

/// The places that the model of this test's thread has learned; loom runs all threads of a model on it.
#[derive(Debug, Default)]
struct Learned {
    /// Places whose loads touch their marks; fixed during an exploration.
    marked: BTreeSet<Place>,
    /// Places whose loads were hidden in this exploration.
    hidden: BTreeSet<Place>,
    executions: usize,
    /// Executions of explorations that ended because a place was learned.
    before: usize,
    /// Threads of this execution that have a number.
    threads: usize,
    reached: BTreeSet<&'static str>,
}

thread_local! {
    static LEARNED: RefCell<Learned> = RefCell::default();
}

fn place(at: &'static Location<'static>) -> Place {
    (at.file().as_ptr().addr(), at.line(), at.column())
}

/// Whether loads at this place touch their marks.
pub(super) fn is_marked(at: &'static Location<'static>) -> bool {
    LEARNED.with_borrow(|learned| learned.marked.contains(&place(at)))
}

/// The number of a thread, in the order in which threads first use an atomic.
pub(super) fn new_thread() -> usize {
    LEARNED.with_borrow_mut(|learned| {
        learned.threads += 1;
        learned.threads
    })
}

/// Records that a load at this place is hidden, and has no mark.
pub(super) fn hidden(at: &'static Location<'static>) {
    LEARNED.with_borrow_mut(|learned| learned.hidden.insert(place(at)));
}

/// Records that the model has reached the place `what`, as it promised ([`Model::new`]).
pub fn reached(what: &'static str) {
    LEARNED.with_borrow_mut(|learned| learned.reached.insert(what));
}

/// Records which of two threads came first; not atomic for the checker, so that it orders nothing.
#[derive(Debug, Clone, Default)]
pub struct Order(Arc<[AtomicBool; 2]>);

impl Order {
    /// The places that a model with an order reaches ([`Model::new`]).
    pub const ALL: [&str; 3] = ["one came first", "they overlapped", "the other ended first"];

    /// The work of one thread, between two steps; all steps of the other may come between them.
    pub fn one<R>(&self, work: impl FnOnce() -> R) -> R {
        let result = work();
        // ORDERING: Relaxed, here and below; a model's threads take turns on one thread of the system.
        let [begun, ended] = [0, 1].map(|at| self.0[at].load(Ordering::Relaxed));
        reached(Self::ALL[usize::from(begun) + usize::from(ended)]);
        result
    }

    /// The work of the other thread.
    pub fn other<R>(&self, work: impl FnOnce() -> R) -> R {
        // ORDERING: Relaxed; a model's threads take turns on one thread of the system.
        self.0[0].store(true, Ordering::Relaxed);
        let result = work();
        // ORDERING: Relaxed; a model's threads take turns on one thread of the system.
        self.0[1].store(true, Ordering::Relaxed);
        result
    }
}

/// Ends an exploration that found a hidden load.
struct Again;

/// The way in which a model is run.
#[derive(Debug)]
#[must_use]
pub struct Model {
    at_least: usize,
    reaching: &'static [&'static str],
    builder: loom::model::Builder,
}

impl Model {
    /// A model of at least `at_least` executions, of which some reach each of the places `reaching`.
    pub fn new(at_least: usize, reaching: &'static [&'static str]) -> Self {
        Self { at_least, reaching, builder: loom::model::Builder::new() }
    }

    /// Explores only schedules with at most `bound` preemptions.
    pub fn preemptions(mut self, bound: usize) -> Self {
        self.builder.preemption_bound = Some(bound);
        self
    }

    /// Limits an execution to `most` steps.
    pub fn steps(mut self, most: usize) -> Self {
        self.builder.max_branches = most;
        self
    }

    /// Runs every execution.
    ///
    /// # Panics
    /// As `model` does, and if there were too few executions, or if a promised place was not reached.
    pub fn check(mut self, model: impl Fn() + Sync + Send + 'static) {
        let began = Instant::now();
        let model = Arc::new(model);
        LEARNED.take();
        let last = self.builder.preemption_bound;
        let fewer = LEARNING.into_iter().filter(|few| last.is_none_or(|last| *few < last));
        for bound in fewer.map(Some).chain([last]) {
            self.builder.preemption_bound = bound;
            while let Err(stopped) = catch_unwind(AssertUnwindSafe(|| self.explore(model.clone())))
            {
                if !stopped.is::<Again>() {
                    resume_unwind(stopped);
                }
            }
        }
        let learned = LEARNED.take();
        let missed: Vec<_> =
            self.reaching.iter().filter(|place| !learned.reached.contains(*place)).collect();
        println!(
            "{} executions after {} in {:?}, with marks at {} places; reached {:?}",
            learned.executions,
            learned.before,
            began.elapsed(),
            learned.marked.len(),
            learned.reached
        );
        assert!(missed.is_empty(), "the model never came to {missed:?}");
        assert!(
            learned.executions >= self.at_least,
            "the model had {} executions and promised {}: does it still look at anything?",
            learned.executions,
            self.at_least
        );
    }

    /// Explores with the learned places, until the end or until a place is learned.
    fn explore(&self, model: Arc<impl Fn() + Sync + Send + 'static>) {
        LEARNED.with_borrow_mut(|learned| {
            learned.marked.append(&mut learned.hidden);
            learned.before += learned.executions;
            (learned.executions, learned.reached) = Default::default();
        });
        self.builder.check(move || {
            let again = LEARNED.with_borrow_mut(|learned| {
                learned.executions += 1;
                learned.threads = 0;
                !learned.hidden.is_empty()
            });
            if again {
                resume_unwind(Box::new(Again));
            }
            model();
        });
        // The last execution may have learned a place.
        if LEARNED.with_borrow(|learned| !learned.hidden.is_empty()) {
            resume_unwind(Box::new(Again));
        }
    }
}
