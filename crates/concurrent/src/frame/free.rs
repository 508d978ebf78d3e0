//! Free frames: stacks of numbers, one for each of a few lanes, and one of frames without memory.
//!
//! ```text
//!   allocate:  own stack ─▶ a batch of another's ─▶ given back ─▶ never used
//!   free:      own stack          trim:  any stack ─▶ given back
//! ```
//!
//! Head of a stack: `changes:32 | top + 1:32`; each frame's link is the number below it, plus 1.
//!
//! S1. A number is in one stack, or with one thread.
//! S2. Every change of a stack counts `changes` up. So a chain read from the top down is the chain
//!     that was there if the head is still the same afterwards: nothing was taken or put in
//!     between.
//!
//! O8. `push` (Release) → `pop` (Acquire): who takes a frame sees all that was done before it was
//!     freed. Changes in between are read-modify-writes and pass it on.
//!
//! O9 (`vacancy`): a stack's count is what one who waits for frames looks at. Frames that a thread has between two stacks
//! count as in use, so whoever puts some back tells, wherever he had them from.
//!
//! Progress: lock-free; a retry means that another thread pushed or popped here.
//! Checked by `model_frame_passes_between_threads`, and `model_taken_and_put_back` and
//! `model_pop_of_what_is_pushed` below.
//!
//! # Why
//! Last in, first out: a frame that was just freed is in the processor's cache. Threads push and
//! pop on stacks of their own lane, and a thread that has none left takes a batch, so two that miss
//! meet once in a batch. Weakness: `changes` may come round in 2³² changes while a thread is
//! stopped between two instructions, and that thread's exchange would then succeed wrongly.

use super::vacancy::Vacancy;
use super::word::StateWord;
use crate::padded::Padded;
use crate::pool::lane;
use crate::primitive::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

const LANES: usize = if cfg!(loom) { 1 } else { 8 };
/// Frames taken from another lane at once.
const BATCH: usize = 32;

/// Where a frame's link is.
pub(super) trait Links {
    fn link(&self, frame: u32) -> &AtomicU32;
    /// The word of `frame`, for checks.
    fn word(&self, frame: u32) -> &StateWord;
}

/// One stack of free frames.
#[derive(Debug, Default)]
struct Stack {
    head: AtomicU64,
    /// Frames in it; a little behind the head.
    count: AtomicI64,
}

fn top(head: u64) -> u32 {
    head as u32
}

fn changed(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(top)
}

impl Stack {
    /// Takes up to `most` frames off the top, the topmost first. How many.
    fn pop(&self, links: &impl Links, most: usize, out: &mut [u32]) -> usize {
        let most = most.min(out.len());
        // ORDERING: Acquire, partner `push` (O8): the links are read next.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            let (mut taken, mut next) = (0, top(head));
            while taken < most && next != 0 {
                out[taken] = next - 1;
                taken += 1;
                // ORDERING: Relaxed; a guess, checked by the compare-exchange (S2).
                next = links.link(next - 1).load(Ordering::Relaxed);
            }
            if taken == 0 {
                return 0;
            }
            let rest = changed(head, next);
            // ORDERING: Relaxed; the look that read this `head` was an Acquire, and the same count of changes is the
            // same store (S2). Acquire for a head that is another, partner `push` (O8).
            match self.head.compare_exchange_weak(head, rest, Ordering::Relaxed, Ordering::Acquire)
            {
                Ok(_) => {
                    // ORDERING: Relaxed; a statistic, nothing is reached through it.
                    self.count.fetch_sub(taken as i64, Ordering::Relaxed);
                    return taken;
                }
                Err(now) => head = now,
            }
        }
    }

    /// Puts `frames`, which are the caller's, on top; the last one topmost.
    fn push(&self, links: &impl Links, frames: &[u32]) {
        let (Some(&first), Some(&last)) = (frames.first(), frames.last()) else { return };
        for pair in frames.windows(2) {
            // ORDERING: Relaxed; published by the compare-exchange below.
            links.link(pair[1]).store(pair[0] + 1, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // ORDERING: Relaxed; as above.
            links.link(first).store(top(head), Ordering::Relaxed);
            let next = changed(head, last + 1);
            // ORDERING: Release, partner `pop` (O8).
            match self.head.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // ORDERING: Acquire, partner `look` (O9): who waits for a frame is told by who calls this. Nothing else is
        // reached through it.
        self.count.fetch_add(frames.len() as i64, Ordering::Acquire);
    }

    /// A look of one who waits for a frame, before `count`.
    fn look(&self) {
        // ORDERING: Release, partner `push` (O9).
        self.count.fetch_add(0, Ordering::Release);
    }

    fn count(&self) -> i64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.count.load(Ordering::Relaxed)
    }
}

/// All free frames of an arena. See the module.
#[derive(Debug)]
pub(super) struct Free {
    lanes: [Padded<Stack>; LANES],
    given_back: Padded<Stack>,
    /// Frames from here on were never used.
    unused_from: Padded<AtomicU32>,
    frames_max: u32,
    vacancy: Vacancy,
}

impl Free {
    pub(super) fn new(frames_max: u32, vacancy: Vacancy) -> Self {
        Self {
            lanes: std::array::from_fn(|_| Padded(Stack::default())),
            given_back: Padded(Stack::default()),
            unused_from: Padded(AtomicU32::new(0)),
            frames_max,
            vacancy,
        }
    }

    #[inline]
    pub(super) fn vacancy(&self) -> &Vacancy {
        &self.vacancy
    }

    /// A look of one who waits for frames, before he asks how many there are.
    pub(super) fn look(&self) {
        self.lanes.iter().chain([&self.given_back]).for_each(|stack| stack.look());
    }

    /// Puts frames on a stack: who waits for some is told.
    fn put(&self, stack: &Stack, links: &impl Links, frames: &[u32]) {
        stack.push(links, frames);
        self.vacancy.tell();
    }

    /// Takes one frame: of the caller's lane, of the next stack that has any, or one that was never used.
    pub(super) fn take(&self, links: &impl Links) -> Option<u32> {
        let (own, mut one) = (lane() % LANES, [0]);
        if self.lanes[own].pop(links, 1, &mut one) > 0 {
            return Some(one[0]);
        }
        let others = (1..LANES).map(|step| &self.lanes[(own + step) % LANES]);
        for other in others.chain([&self.given_back]) {
            let is_resident = !std::ptr::eq(other, &self.given_back);
            let mut batch = [0; BATCH];
            // Frames without memory go to their user only, or `resident` would count them.
            let most = if is_resident { BATCH } else { 1 };
            let got = other.pop(links, most, &mut batch);
            if got > 0 {
                self.put(&self.lanes[own], links, &batch[1..got]);
                return Some(batch[0]);
            }
        }
        let next = |from: u32| (from < self.frames_max).then_some(from + 1);
        // ORDERING: Relaxed; a number: nothing was written to the frames behind it.
        self.unused_from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// Puts a frame back.
    pub(super) fn give(&self, links: &impl Links, frame: u32) {
        debug_assert!(links.word(frame).is_free(), "freed in use");
        self.put(&self.lanes[lane() % LANES], links, &[frame]);
    }

    /// Takes free frames that have memory, from any stack, into `out`; how many.
    pub(super) fn take_resident(&self, links: &impl Links, out: &mut [u32]) -> usize {
        let mut taken = 0;
        for lane in &self.lanes {
            let room = out.len() - taken;
            taken += lane.pop(links, room, &mut out[taken..]);
        }
        taken
    }

    /// Puts frames back whose memory was given back to the system.
    pub(super) fn give_without_memory(&self, links: &impl Links, frames: &[u32]) {
        self.put(&self.given_back, links, frames);
    }

    /// Puts frames back that still have memory.
    pub(super) fn give_some(&self, links: &impl Links, frames: &[u32]) {
        self.put(&self.lanes[lane() % LANES], links, frames);
    }

    /// Frames ever used.
    pub(super) fn used(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.unused_from.load(Ordering::Relaxed) as usize
    }

    /// Frames with memory, free or not. Exact while nobody is between two steps.
    pub(super) fn resident(&self) -> usize {
        let without = usize::try_from(self.given_back.count()).unwrap_or(0);
        self.used().saturating_sub(without)
    }

    /// Frames with a user, exact as `resident`.
    pub(super) fn allocated(&self) -> usize {
        let free: i64 = self.lanes.iter().map(|lane| lane.count()).sum();
        self.resident().saturating_sub(usize::try_from(free).unwrap_or(0))
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;
    use loom::thread;

    /// A stack of three frames; their words are not looked at.
    struct World {
        stack: Stack,
        links: [AtomicU32; 3],
        word: StateWord,
    }

    impl Links for World {
        fn link(&self, frame: u32) -> &AtomicU32 {
            &self.links[frame as usize]
        }
        fn word(&self, _: u32) -> &StateWord {
            &self.word
        }
    }

    impl World {
        /// `frames` in the stack, the last one topmost.
        fn with(frames: &[u32]) -> Arc<Self> {
            let links = std::array::from_fn(|_| AtomicU32::new(0));
            let world = Self { stack: Stack::default(), links, word: StateWord::new() };
            world.push(frames);
            Arc::new(world)
        }
        fn pop(&self, most: usize) -> Vec<u32> {
            let mut out = [0; 3];
            let taken = self.stack.pop(self, most, &mut out);
            out[..taken].to_vec()
        }
        fn push(&self, frames: &[u32]) {
            self.stack.push(self, frames);
        }
    }

    /// Every frame is in the stack or with one thread.
    fn all_once(world: &World, taken: [Vec<u32>; 2]) {
        let mut all = [taken.concat(), world.pop(3)].concat();
        all.sort_unstable();
        assert!(world.pop(1).is_empty(), "the chain does not end");
        assert_eq!(all, [0, 1, 2], "lost, or in two places");
    }

    /// S1, S2: two frames are taken and the upper one is put back, while another thread is about to take
    /// it: the top is the same, and what was below is not. Fails if `changed` counts nothing.
    #[test]
    fn model_taken_and_put_back() {
        Model::new(100, &["the lower one", "the upper one"]).preemptions(3).check(|| {
            let world = World::with(&[0, 1, 2]);
            let other = world.clone();
            let thread = thread::spawn(move || {
                let mut taken = other.pop(1);
                taken.extend(other.pop(1));
                if taken.first() == Some(&2) {
                    other.push(&[2]);
                    taken.remove(0);
                }
                taken
            });
            let mine = world.pop(1);
            reached(if mine == [2] { "the upper one" } else { "the lower one" });
            all_once(&world, [mine, thread.join().unwrap()]);
        });
    }

    /// O8: who sees a frame on top sees what is below it. Fails with a Relaxed `push`, and with either
    /// look of `pop` Relaxed: the first one, and that of an exchange that failed. (That of one that
    /// succeeded finds the very word of the look before it, which was Acquire.)
    #[test]
    fn model_pop_of_what_is_pushed() {
        Model::new(18, &["before the push", "after the push"]).preemptions(3).check(|| {
            let world = World::with(&[0]);
            let other = world.clone();
            let thread = thread::spawn(move || other.push(&[1, 2]));
            let mine = world.pop(3);
            reached(if mine.len() == 1 { "before the push" } else { "after the push" });
            thread.join().unwrap();
            all_once(&world, [mine, Vec::new()]);
        });
    }
}
