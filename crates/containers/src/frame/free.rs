//! Free frames: stacks of numbers, one for each of a few lanes, and one of frames without memory.
//!
//! ```text
//!   allocate:  own stack ─▶ a batch of another lane ─▶ without memory ─▶ never used
//!   free:      own stack          trim:  any stack ─▶ without memory
//! ```
//!
//! Head of a stack: `changes:32 | top + 1:32`; each frame's link is the number below it, plus 1.
//!
//! S1. A number is in one stack, or with one thread.
//! S2. Every change of a stack increments `changes`. A thread reads a chain from the top down. If the head is then
//!     unchanged, nothing was pushed or popped meanwhile, and the chain is the true one.
//!
//! O8. `push` (Release) → `pop` (Acquire): a thread that takes a frame sees all accesses before the frame was freed.
//!     Changes in between are read-modify-writes and pass it on.
//! O9. A stack's count is one of the words of `vacancy`; see `Free::put`.
//!
//! Progress: lock-free; a retry means that another thread pushed or popped here.
//! Checked by `model_frame_passes_between_threads`, `model_taken_and_put_back` and `model_pop_of_what_is_pushed`.
//! # Why
//! Last in, first out: a frame that was just freed is in the processor's cache. A thread pushes and pops on the stack
//! of its own lane. If that is empty, it takes a batch from another, so two threads contend once in a batch. Weakness:
//! `changes` may wrap around in 2³² changes while a thread is stopped between two instructions; that thread's exchange
//! would then succeed wrongly.

use super::vacancy::Vacancy;
use super::word::StateWord;
use crate::pool::lane;
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::primitive::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

const LANES: usize = if cfg!(loom) { 1 } else { 8 };
/// The most frames taken from another lane at once.
const BATCH: usize = 32;

/// Access to a frame's link.
pub(super) trait Links {
    fn link(&self, frame: u32) -> &AtomicU32;
    /// The word of `frame`, for checks.
    fn word(&self, frame: u32) -> &StateWord;
}

/// One stack of free frames.
#[derive(Debug, Default)]
struct Stack {
    head: AtomicU64,
    /// The number of frames in it; may lag behind the head.
    count: AtomicI64,
}

fn top(head: u64) -> u32 {
    head as u32
}

fn changed(head: u64, top: u32) -> u64 {
    ((head >> 32).wrapping_add(1) << 32) | u64::from(top)
}

impl Stack {
    /// Pops up to `most` frames, the topmost first. Returns their number.
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
            // ORDERING: Relaxed; the load of this `head` was an Acquire, and the same count of changes is the same
            // store (S2). On failure Acquire for the new head, partner `push` (O8).
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

    /// Pushes `frames`, which only the caller has; the last one becomes the topmost.
    fn push(&self, links: &impl Links, frames: &[u32]) {
        let (Some(&first), Some(&last)) = (frames.first(), frames.last()) else { return };
        for pair in frames.windows(2) {
            // ORDERING: Relaxed; published by the compare-exchange below.
            links.link(pair[1]).store(pair[0] + 1, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; a guess, checked by the compare-exchange.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // ORDERING: Relaxed; published by the compare-exchange below.
            links.link(first).store(top(head), Ordering::Relaxed);
            let next = changed(head, last + 1);
            // ORDERING: Release, partner `pop` (O8).
            match self.head.compare_exchange_weak(head, next, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        // ORDERING: Acquire, partner `look` (O9): the caller wakes threads that wait for a frame. No other data is
        // reached through it.
        self.count.fetch_add(frames.len() as i64, Ordering::Acquire);
    }

    /// The look of a thread that waits for a frame, before it reads `count`.
    fn look(&self) {
        // ORDERING: Release, partner `push` (O9).
        self.count.fetch_add(0, Ordering::Release);
    }

    fn count(&self) -> i64 {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.count.load(Ordering::Relaxed)
    }
}

/// All free frames of an arena. The protocol is in the module's documentation.
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

    /// The look of a thread that waits for frames, before it reads how many there are.
    pub(super) fn look(&self) {
        self.lanes.iter().chain([&self.given_back]).for_each(|stack| stack.look());
    }

    /// Pushes frames on a stack, and wakes threads that wait for frames (O9). A waiter looks at a stack's count, and
    /// frames that a thread moves between two stacks count as in use. So every push announces its frames, whatever
    /// stack they came from.
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
            // A frame without memory is taken one at a time, for its user only; otherwise `resident` would count the
            // rest.
            let most = if is_resident { BATCH } else { 1 };
            let got = other.pop(links, most, &mut batch);
            if got > 0 {
                self.put(&self.lanes[own], links, &batch[1..got]);
                return Some(batch[0]);
            }
        }
        let next = |from: u32| (from < self.frames_max).then_some(from + 1);
        // ORDERING: Relaxed; a number: no thread has written to the frames from it on.
        self.unused_from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// Frees a frame.
    pub(super) fn give(&self, links: &impl Links, frame: u32) {
        debug_assert!(links.word(frame).is_free(), "freed in use");
        self.put(&self.lanes[lane() % LANES], links, &[frame]);
    }

    /// Takes free frames that have memory, from any stack, into `out`. Returns their number.
    pub(super) fn take_resident(&self, links: &impl Links, out: &mut [u32]) -> usize {
        let mut taken = 0;
        for lane in &self.lanes {
            let room = out.len() - taken;
            taken += lane.pop(links, room, &mut out[taken..]);
        }
        taken
    }

    /// Pushes frames whose memory was returned to the system.
    pub(super) fn give_without_memory(&self, links: &impl Links, frames: &[u32]) {
        self.put(&self.given_back, links, frames);
    }

    /// Pushes frames that still have memory.
    pub(super) fn give_some(&self, links: &impl Links, frames: &[u32]) {
        self.put(&self.lanes[lane() % LANES], links, frames);
    }

    /// Frames ever used.
    pub(super) fn used(&self) -> usize {
        // ORDERING: Relaxed; a statistic, nothing is reached through it.
        self.unused_from.load(Ordering::Relaxed) as usize
    }

    /// Frames with memory, free or not. Exact while no thread is between two steps.
    pub(super) fn resident(&self) -> usize {
        let without = usize::try_from(self.given_back.count()).unwrap_or(0);
        self.used().saturating_sub(without)
    }

    /// Frames with a user, exact like `resident`.
    pub(super) fn allocated(&self) -> usize {
        let free: i64 = self.lanes.iter().map(|lane| lane.count()).sum();
        self.resident().saturating_sub(usize::try_from(free).unwrap_or(0))
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;
    use uvfs_concurrent::primitive::model::{Model, reached};

    /// A stack of three frames; their words are not used.
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

    /// S1, S2: two frames are taken and the upper one is pushed again, while another thread is about to take it. The
    /// top is the same, but the frame below is another one. Fails if `changed` counts nothing.
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

    /// O8: a thread that sees a frame on top sees the frame below it. Fails with a Relaxed `push`, and with either load
    /// of `pop` Relaxed: the first one, and that of a failed exchange. (A successful exchange finds the word of the
    /// load before it, which was Acquire.)
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
