//! Virtual cores in virtual time: which thread runs next, and when it must let another one run.
//!
//! # Boundary
//! Clocks, run queues, deadlines, affinity. Knows nothing of memory, and switches nothing: the caller
//! asks [`Scheduler::next`] for the next thread and switches to it. The caller charges the costs of a switch, a wake-up or a sleep;
//! only the switch between two threads of one core is charged here.
//!
//! # Concurrency
//! None: one caller. Everything is decided by clocks and numbers, so that the same calls give the
//! same order.
//!
//! # Why
//! The core with the smallest clock always runs, so no access is charged before one that is
//! earlier. Each core is a leaf of a tree of minima: letting another core run is one walk up for the core that
//! stops and one for the core that starts, with no branch that depends on the clocks. Ties prefer the lower
//! core. A core whose thread sleeps is not free for a new one while another core is: two threads with one
//! home drive each other to cold caches for the rest of the run. Weakness: a thread that is woken never
//! preempts the one that runs; it waits for its slice to end.

use crate::costs::ticks;
use crate::machine::Machine;
use crate::model::Ticks;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Low bits of a key, which hold the leaf and so decide ties.
const LEAF_BITS: u32 = 11;
/// No thread, no time.
const NEVER: u64 = u64::MAX;
const NONE: usize = usize::MAX;

/// The thread that runs next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// This thread; it may be the one that asked.
    Run(usize),
    /// No thread can run: all are blocked, and no deadline will come.
    Deadlock,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Has its core.
    Running,
    /// Waits for a core.
    Queued,
    /// Waits for a wake-up or a deadline.
    Blocked,
    Exited,
}

#[derive(Debug)]
struct Thread {
    state: State,
    clock: Ticks,
    core: usize,
    /// Cores it may be on; empty for all.
    affinity: Vec<u64>,
    timed_out: bool,
    /// Tells a deadline of this wait from one of an earlier wait.
    waits: u64,
    deadline: Option<Ticks>,
    blocked: Ticks,
    blocked_since: Ticks,
    began: Ticks,
}

#[derive(Debug)]
struct Core {
    running: usize,
    queue: VecDeque<usize>,
    /// Clock of the last thread that was here.
    free_at: Ticks,
    slice_end: Ticks,
    last: usize,
    /// Threads that were here last and have not ended.
    homes: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Scheduler {
    threads: Vec<Thread>,
    cores: Vec<Core>,
    /// `tree[leaves + core]`: key of the core's running thread, or `NEVER`. The leaf after the last core
    /// is the earliest deadline. `tree[i]` is the smaller of `tree[2 * i]` and `tree[2 * i + 1]`.
    tree: Vec<u64>,
    leaves: usize,
    deadlines: BinaryHeap<Reverse<(Ticks, usize, u64)>>,
    current: usize,
    current_core: usize,
    /// Clock of the current thread; `threads[current].clock` is behind.
    clock: Ticks,
    /// The smallest clock of another core, or the end of this core's slice.
    limit: Ticks,
    queued: usize,
    place_from: usize,
    slice: Ticks,
    context_switch: Ticks,
    switches: u64,
}

impl Scheduler {
    /// With one thread, number 0, that runs on core 0 at time 0 and is the current one.
    pub fn new(machine: &Machine) -> Self {
        let leaves = (machine.cores + 1).next_power_of_two();
        let cores = (0..machine.cores)
            .map(|_| Core {
                running: NONE,
                queue: VecDeque::new(),
                free_at: 0,
                slice_end: NEVER,
                last: NONE,
                homes: 0,
            })
            .collect();
        let mut scheduler = Self {
            threads: Vec::new(),
            cores,
            tree: vec![NEVER; 2 * leaves],
            leaves,
            deadlines: BinaryHeap::new(),
            current: 0,
            current_core: 0,
            clock: 0,
            limit: NEVER,
            queued: 0,
            place_from: 0,
            slice: ticks(machine.cost.time_slice.value),
            context_switch: ticks(machine.cost.context_switch.value),
            switches: 0,
        };
        scheduler.threads.push(Thread::new(0, Vec::new()));
        scheduler.place(0, 0);
        scheduler
    }

    /// A new thread, with the affinity of the current one, that runs from `at` on.
    pub fn spawn(&mut self, at: Ticks) -> usize {
        let thread = self.threads.len();
        let affinity = self.threads[self.current].affinity.clone();
        self.threads.push(Thread::new(at, affinity));
        self.place(thread, at);
        thread
    }

    /// Threads so far, those that ended included.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The thread that runs.
    #[inline]
    pub fn current(&self) -> usize {
        self.current
    }

    /// Core of the current thread.
    #[inline]
    pub fn current_core(&self) -> usize {
        self.current_core
    }

    /// Clock of the current thread.
    #[inline]
    pub fn now(&self) -> Ticks {
        self.clock
    }

    /// The core that a thread is on, or was on last.
    pub fn core(&self, thread: usize) -> usize {
        self.threads[thread].core
    }

    /// A thread's clock.
    pub fn clock(&self, thread: usize) -> Ticks {
        if thread == self.current { self.clock } else { self.threads[thread].clock }
    }

    /// How long a thread was blocked so far; waiting for a core is not being blocked.
    pub fn blocked(&self, thread: usize) -> Ticks {
        self.threads[thread].blocked
    }

    /// The thread's clock when it was created.
    pub fn began(&self, thread: usize) -> Ticks {
        self.threads[thread].began
    }

    /// Whether the thread is blocked.
    pub fn is_blocked(&self, thread: usize) -> bool {
        self.threads[thread].state == State::Blocked
    }

    /// Whether the thread has ended.
    pub fn has_exited(&self, thread: usize) -> bool {
        self.threads[thread].state == State::Exited
    }

    /// How often another thread was switched to.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// The current thread computes for so long.
    #[inline]
    pub fn advance(&mut self, ticks: Ticks) {
        self.clock += ticks;
    }

    /// The current thread is at this time, if it was not past it: the end of an access.
    #[inline]
    pub fn advance_to(&mut self, at: Ticks) {
        self.clock = self.clock.max(at);
    }

    /// Whether the current thread is more than `slack` ahead of another core, and must ask
    /// [`Scheduler::next`] before its next access.
    #[inline]
    pub fn must_yield(&self, slack: Ticks) -> bool {
        self.clock > self.limit.saturating_add(slack)
    }

    /// Whether [`Scheduler::must_yield`] will say no once the current thread has computed for `ticks` more.
    #[inline(always)]
    pub fn may_go_on(&self, ticks: Ticks, slack: Ticks) -> bool {
        let clock = self.clock + ticks;
        clock <= self.limit || clock - self.limit <= slack
    }

    /// The current thread gives up its core until it is woken, or until the deadline. Call
    /// [`Scheduler::next`] then.
    pub fn block(&mut self, until: Option<Ticks>) {
        let (id, clock) = (self.current, self.clock);
        let thread = &mut self.threads[id];
        thread.clock = clock;
        thread.state = State::Blocked;
        thread.timed_out = false;
        thread.waits += 1;
        thread.deadline = until;
        thread.blocked_since = clock;
        if let Some(until) = until {
            self.deadlines.push(Reverse((until.max(clock), id, thread.waits)));
            self.refresh_deadline();
        }
        self.release(self.current_core, clock);
    }

    /// A blocked thread runs again, at `at` or when it blocked, whichever is later. False: it was not
    /// blocked.
    pub fn wake(&mut self, thread: usize, at: Ticks) -> bool {
        if self.threads[thread].state != State::Blocked {
            return false;
        }
        self.unblock(thread, at, false);
        true
    }

    /// Whether the thread's last wait ended by its deadline.
    pub fn timed_out(&self, thread: usize) -> bool {
        self.threads[thread].timed_out
    }

    /// The current thread ends. Call [`Scheduler::next`] then.
    pub fn exit(&mut self) {
        let thread = &mut self.threads[self.current];
        thread.clock = self.clock;
        thread.state = State::Exited;
        self.cores[self.current_core].homes -= 1;
        self.release(self.current_core, self.clock);
    }

    /// The current thread lets the next one of its own core run, if there is any. Call
    /// [`Scheduler::next`] then.
    pub fn yield_core(&mut self) {
        let core = self.current_core;
        if !self.cores[core].queue.is_empty() {
            self.cores[core].slice_end = self.clock;
            self.limit = self.limit.min(self.clock.saturating_sub(1));
        }
    }

    /// Cores that a thread may be on, core 0 in the lowest bit of the first word; empty for all of
    /// them. False, and nothing changed: none of them exists. A thread on another core moves; call
    /// [`Scheduler::next`] if it is the current one.
    pub fn set_affinity(&mut self, thread: usize, cores: &[u64]) -> bool {
        let allowed = |core: usize| cores.is_empty() || bit(cores, core);
        if !(0..self.cores.len()).any(allowed) {
            return false;
        }
        self.threads[thread].affinity = cores.to_vec();
        let core = self.threads[thread].core;
        if allowed(core) {
            return true;
        }
        match self.threads[thread].state {
            State::Running => {
                let clock = self.clock(thread);
                self.threads[thread].clock = clock;
                self.release(core, clock);
                self.place(thread, clock + self.context_switch);
            }
            State::Queued => {
                self.cores[core].queue.retain(|queued| *queued != thread);
                self.queued -= 1;
                let clock = self.threads[thread].clock;
                self.place(thread, clock);
            }
            State::Blocked | State::Exited => {}
        }
        true
    }

    /// The affinity that [`Scheduler::set_affinity`] set; empty for all cores.
    pub fn affinity(&self, thread: usize) -> &[u64] {
        &self.threads[thread].affinity
    }

    /// Makes the thread with the smallest clock the current one.
    #[allow(clippy::should_implement_trait)] // It is no iterator: the answer depends on what the caller does.
    pub fn next(&mut self) -> Next {
        let before = self.current;
        if self.cores[self.current_core].running == before
            && self.threads[before].state == State::Running
        {
            self.threads[before].clock = self.clock;
            let core = &self.cores[self.current_core];
            if self.clock >= core.slice_end && !core.queue.is_empty() {
                self.preempt();
            } else {
                self.set_leaf(self.current_core, key(self.clock, self.current_core));
            }
        }
        let leaf = loop {
            let least = self.tree[1];
            if least == NEVER {
                return Next::Deadlock;
            }
            let leaf = (least & ((1 << LEAF_BITS) - 1)) as usize;
            if leaf < self.cores.len() {
                break leaf;
            }
            self.expire();
        };
        let thread = self.cores[leaf].running;
        self.current = thread;
        self.current_core = leaf;
        self.clock = self.threads[thread].clock;
        self.refresh_limit();
        if thread != before {
            self.switches += 1;
        }
        Next::Run(thread)
    }

    /// The thread gets a core, or a place in the queue of one, at `at`.
    fn place(&mut self, thread: usize, at: Ticks) {
        let core = self.choose(thread);
        self.threads[thread].clock = at;
        self.settle(thread, core);
        if self.cores[core].running == NONE {
            self.start(core, thread);
        } else {
            self.threads[thread].state = State::Queued;
            self.cores[core].queue.push_back(thread);
            self.queued += 1;
            let core = &mut self.cores[core];
            if core.slice_end == NEVER {
                // It had the core for itself until now: its slice begins.
                let running = core.running;
                let clock =
                    if running == self.current { self.clock } else { self.threads[running].clock };
                core.slice_end = clock.max(at) + self.slice;
            }
        }
        self.refresh_limit();
    }

    /// The thread's core is this one.
    fn settle(&mut self, thread: usize, core: usize) {
        let last = std::mem::replace(&mut self.threads[thread].core, core);
        if last != NONE {
            self.cores[last].homes -= 1;
        }
        self.cores[core].homes += 1;
    }

    /// Chooses the thread's last core if that is idle, else the next idle one to which the fewest others will want to
    /// come back, else the one with the shortest queue.
    fn choose(&mut self, thread: usize) -> usize {
        let (count, affinity) = (self.cores.len(), &self.threads[thread].affinity);
        let allowed = |core: usize| affinity.is_empty() || bit(affinity, core);
        let last = self.threads[thread].core;
        if last != NONE && allowed(last) && self.cores[last].running == NONE {
            self.place_from = (last + 1) % count;
            return last;
        }
        let from = self.place_from;
        let order = |core: usize| (core + count - from) % count;
        let idle = (0..count).filter(|core| allowed(*core) && self.cores[*core].running == NONE);
        let core = idle.min_by_key(|core| (self.cores[*core].homes, order(*core)));
        let core = core.unwrap_or_else(|| {
            (0..count)
                .filter(|core| allowed(*core))
                .min_by_key(|core| (self.cores[*core].queue.len(), order(*core)))
                .unwrap_or(0)
        });
        self.place_from = (core + 1) % count;
        core
    }

    /// The thread runs on an idle core, from its own clock on or from when the core became idle.
    fn start(&mut self, core: usize, thread: usize) {
        let slot = &mut self.cores[core];
        let state = &mut self.threads[thread];
        if slot.free_at > state.clock {
            // It waited for the core, so the core goes from one thread straight to another.
            let switch = if slot.last == thread { 0 } else { self.context_switch };
            state.clock = slot.free_at + switch;
        }
        state.state = State::Running;
        slot.running = thread;
        slot.last = thread;
        slot.slice_end = if slot.queue.is_empty() { NEVER } else { state.clock + self.slice };
        let clock = state.clock;
        self.settle(thread, core);
        if thread == self.current {
            self.clock = clock;
            self.current_core = core;
        }
        let key = key(clock, core);
        self.set_leaf(core, key);
    }

    /// The core's thread is gone: the next of its queue follows, or one from the longest queue.
    fn release(&mut self, core: usize, at: Ticks) {
        let slot = &mut self.cores[core];
        slot.running = NONE;
        slot.free_at = slot.free_at.max(at);
        slot.slice_end = NEVER;
        self.set_leaf(core, NEVER);
        if self.queued == 0 {
            return;
        }
        let next = match self.cores[core].queue.pop_front() {
            Some(thread) => Some(thread),
            None => self.steal(core),
        };
        if let Some(thread) = next {
            self.queued -= 1;
            self.start(core, thread);
        }
    }

    /// The first thread of the longest queue that may run on this core.
    fn steal(&mut self, core: usize) -> Option<usize> {
        let threads = &self.threads;
        let may = |thread: &usize| {
            threads[*thread].affinity.is_empty() || bit(&threads[*thread].affinity, core)
        };
        let from = (0..self.cores.len())
            .filter(|from| self.cores[*from].queue.iter().any(may))
            .min_by_key(|from| (Reverse(self.cores[*from].queue.len()), *from))?;
        let position = self.cores[from].queue.iter().position(may)?;
        let thread = self.cores[from].queue.remove(position);
        if self.cores[from].queue.is_empty() {
            self.cores[from].slice_end = NEVER;
        }
        thread
    }

    /// The current thread goes to the end of its core's queue, and the first of it runs.
    fn preempt(&mut self) {
        let (core, thread) = (self.current_core, self.current);
        self.threads[thread].state = State::Queued;
        self.cores[core].queue.push_back(thread);
        self.queued += 1;
        self.release(core, self.clock);
    }

    /// The earliest deadline has come.
    fn expire(&mut self) {
        if let Some(Reverse((at, thread, waits))) = self.deadlines.pop() {
            if self.threads[thread].state == State::Blocked && self.threads[thread].waits == waits {
                self.unblock(thread, at, true);
            }
            self.refresh_deadline();
        }
    }

    fn unblock(&mut self, thread: usize, at: Ticks, timed_out: bool) {
        let state = &mut self.threads[thread];
        let at = at.max(state.clock);
        state.blocked += at - state.blocked_since;
        state.timed_out = timed_out;
        let had_deadline = state.deadline.take().is_some();
        self.place(thread, at);
        if had_deadline {
            self.refresh_deadline();
        }
    }

    /// The deadlines' leaf shows the earliest that still counts.
    fn refresh_deadline(&mut self) {
        let leaf = self.cores.len();
        while let Some(Reverse((at, thread, waits))) = self.deadlines.peek() {
            if self.threads[*thread].state == State::Blocked
                && self.threads[*thread].waits == *waits
            {
                let key = key(*at, leaf);
                self.set_leaf(leaf, key);
                self.refresh_limit();
                return;
            }
            self.deadlines.pop();
        }
        self.set_leaf(leaf, NEVER);
        self.refresh_limit();
    }

    /// One walk from a leaf to the root.
    #[inline]
    fn set_leaf(&mut self, leaf: usize, key: u64) {
        let mut node = self.leaves + leaf;
        self.tree[node] = key;
        while node > 1 {
            let least = self.tree[node].min(self.tree[node ^ 1]);
            node >>= 1;
            self.tree[node] = least;
        }
    }

    /// The minimum of the subtrees beside the path from the current core to the root: all clocks but its own.
    #[inline]
    fn refresh_limit(&mut self) {
        let mut node = self.leaves + self.current_core;
        let mut least = NEVER;
        while node > 1 {
            least = least.min(self.tree[node ^ 1]);
            node >>= 1;
        }
        let others = if least == NEVER { NEVER } else { least >> LEAF_BITS };
        self.limit = others.min(self.cores[self.current_core].slice_end);
    }
}

impl Thread {
    fn new(clock: Ticks, affinity: Vec<u64>) -> Self {
        Self {
            state: State::Queued,
            clock,
            core: NONE,
            affinity,
            timed_out: false,
            waits: 0,
            deadline: None,
            blocked: 0,
            blocked_since: 0,
            began: clock,
        }
    }
}

#[inline]
fn key(clock: Ticks, leaf: usize) -> u64 {
    debug_assert!(clock < NEVER >> LEAF_BITS, "a virtual day and more");
    (clock << LEAF_BITS) | leaf as u64
}

fn bit(words: &[u64], index: usize) -> bool {
    words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler(cores: usize) -> Scheduler {
        Scheduler::new(&Machine::default().with(cores, 1))
    }

    fn run(scheduler: &mut Scheduler) -> usize {
        match scheduler.next() {
            Next::Run(thread) => thread,
            Next::Deadlock => panic!("deadlock"),
        }
    }

    #[test]
    fn the_smallest_clock_goes_on_and_ties_go_to_the_lower_core() {
        let mut scheduler = scheduler(4);
        assert_eq!((scheduler.spawn(5), scheduler.spawn(0)), (1, 2));
        let order: Vec<usize> = (0..6)
            .map(|_| {
                let thread = run(&mut scheduler);
                scheduler.advance(4);
                thread
            })
            .collect();
        // Clocks: 0 0 4 4 5 8.
        assert_eq!(order, [0, 2, 0, 2, 1, 0]);
        assert_eq!(scheduler.switches(), 5);
    }

    #[test]
    fn one_alone_never_yields() {
        let mut scheduler = scheduler(2);
        scheduler.advance(1 << 40);
        assert!(!scheduler.must_yield(0));
        scheduler.spawn(10);
        assert!(scheduler.must_yield(0));
        assert!(!scheduler.must_yield((1 << 40) - 10));
        assert!(!scheduler.may_go_on(1, (1 << 40) - 10) && scheduler.may_go_on(1, (1 << 40) - 9));
        assert_eq!(run(&mut scheduler), 1);
        assert_eq!(scheduler.now(), 10);
    }

    #[test]
    fn a_deadline_comes_in_its_turn() {
        let mut scheduler = scheduler(2);
        scheduler.spawn(0);
        scheduler.block(Some(100));
        assert_eq!(run(&mut scheduler), 1);
        scheduler.advance(99);
        assert!(!scheduler.must_yield(0));
        scheduler.advance(2);
        assert!(scheduler.must_yield(0));
        assert_eq!(run(&mut scheduler), 0);
        assert!(scheduler.timed_out(0));
        assert_eq!((scheduler.now(), scheduler.blocked(0)), (100, 100));
        // A wake-up before the deadline, which then counts no more.
        scheduler.block(Some(200));
        assert_eq!(run(&mut scheduler), 1);
        assert!(scheduler.wake(0, 150) && !scheduler.wake(0, 150));
        scheduler.advance(100);
        assert_eq!(run(&mut scheduler), 0);
        assert!(!scheduler.timed_out(0));
        assert_eq!(scheduler.blocked(0), 150);
        scheduler.block(None);
        assert_eq!(run(&mut scheduler), 1);
        scheduler.exit();
        assert_eq!(scheduler.next(), Next::Deadlock, "the old deadline wakes no thread");
    }

    #[test]
    fn threads_of_one_core_take_turns_by_slices() {
        let mut machine = Machine::default().with(1, 1);
        machine.cost.time_slice.value = 1000.0;
        machine.cost.context_switch.value = 100.0;
        let mut scheduler = Scheduler::new(&machine);
        scheduler.spawn(0);
        let (slice, switch) = (ticks(1000.0), ticks(100.0));
        scheduler.advance(slice - 1);
        assert!(!scheduler.must_yield(0));
        scheduler.advance(2);
        assert!(scheduler.must_yield(0));
        assert_eq!(run(&mut scheduler), 1);
        assert_eq!(scheduler.now(), slice + 1 + switch);
        scheduler.yield_core();
        assert!(scheduler.must_yield(0));
        assert_eq!(run(&mut scheduler), 0);
        assert_eq!(scheduler.now(), slice + 1 + 2 * switch);
        // A thread that ends leaves the core to the other thread, without a deadline.
        scheduler.exit();
        assert_eq!(run(&mut scheduler), 1);
        scheduler.advance(10 * slice);
        assert!(!scheduler.must_yield(0), "alone again");
    }

    #[test]
    fn an_idle_core_takes_from_a_full_one() {
        let mut scheduler = scheduler(2);
        for _ in 1..4 {
            scheduler.spawn(0);
        }
        assert_eq!((scheduler.core(2), scheduler.core(3)), (0, 1));
        scheduler.advance(50);
        assert_eq!(run(&mut scheduler), 1);
        scheduler.exit();
        assert_eq!(run(&mut scheduler), 3);
        scheduler.exit();
        // Core 1 has no thread left, and thread 2 still waits for core 0.
        assert_eq!(scheduler.core(2), 1);
        let next = run(&mut scheduler);
        assert_eq!((next, scheduler.current_core()), (2, 1));
    }

    #[test]
    fn affinity_moves_and_binds() {
        let mut scheduler = scheduler(3);
        assert!(!scheduler.set_affinity(0, &[1 << 3]), "there is no such core");
        assert!(scheduler.affinity(0).is_empty());
        assert!(scheduler.set_affinity(0, &[1 << 2]));
        assert_eq!(run(&mut scheduler), 0);
        assert_eq!(scheduler.current_core(), 2);
        assert!(scheduler.now() > 0, "moving costs a switch");
        let child = scheduler.spawn(scheduler.now());
        assert_eq!(
            (scheduler.core(child), scheduler.affinity(child)),
            (2, &[1 << 2][..]),
            "inherited"
        );
        assert!(scheduler.set_affinity(child, &[]));
        scheduler.block(None);
        assert_eq!(run(&mut scheduler), child);
        scheduler.exit();
        assert_eq!(scheduler.next(), Next::Deadlock);
    }

    /// Threads were put on the cores of sleepers. When all woke, a third of 128 moved, and looked at every line
    /// for the first time again.
    #[test]
    fn a_new_thread_leaves_the_cores_of_sleepers_alone() {
        let mut scheduler = scheduler(4);
        scheduler.spawn(0);
        scheduler.block(None);
        assert_eq!(run(&mut scheduler), 1);
        scheduler.block(Some(50));
        // Thread 0's core is idle and, after this, the one before thread 1's idle core.
        assert_eq!(run(&mut scheduler), 1);
        assert!(scheduler.wake(0, 60));
        scheduler.block(None);
        assert_eq!(run(&mut scheduler), 0);
        let cores = [0; 3].map(|_| scheduler.spawn(70)).map(|thread| scheduler.core(thread));
        assert_eq!(cores, [2, 3, 1], "the sleeper's last");
        // One that ended is no sleeper.
        assert_eq!(run(&mut scheduler), 0);
        scheduler.block(None);
        while run(&mut scheduler) != 2 {
            scheduler.advance(10);
        }
        scheduler.exit();
        assert_eq!(run(&mut scheduler), 3);
        assert_eq!(scheduler.spawn(100), 5);
        assert_eq!(scheduler.core(5), 2);
    }

    #[test]
    fn a_thread_goes_back_to_its_core_if_that_is_idle() {
        let mut scheduler = scheduler(4);
        scheduler.spawn(0);
        scheduler.block(None);
        assert_eq!(run(&mut scheduler), 1);
        scheduler.spawn(0);
        assert!(scheduler.wake(0, 7));
        assert_eq!(scheduler.core(0), 0);
        assert_eq!(scheduler.clock(0), 7);
    }
}
