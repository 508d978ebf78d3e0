//! One machine with one policy: events in virtual time.
//!
//! # Boundary
//! Processors, processes, memory, the driver and the disk. The product's [`Policy`] and [`Pending`] are used as `uvfs_ext_write::queue`
//! uses them: one background request at a time, windows that end when it looks, a look every 2 ms while it may not begin.
//!
//! # Concurrency
//! None; the same seed gives the same events.
//!
//! # Why
//! A block that was given to the driver is busy: a process that uses it waits for its write. That is the paper's high wall. Blocks in
//! `Pending` are not: they are replaced. Weakness: the product has only checkpoints in its queue; here data waits there as well.

use super::disk::{Disk, Kind};
use super::driver::{Driver, Front};
use super::figures::{Figures, Sample};
use super::journal::Journal;
use super::load::{Choice, Machine, Operation, next_free};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use uvfs_ext_write::queue::{DEPTH_MAX, KINDS, PIECE, Pending, Policy, Seen, WINDOW_NS, let_pass};

/// Blocks of a piece: also the largest request of the systems of the paper's time.
pub(super) const PIECE_BLOCKS: usize = PIECE / 4096;
/// `PASS_MAX` of the product's queue.
const PASS_NS: u64 = 2_000_000;

/// A policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    /// Everything is given to the driver at once; metadata is written in place, and waited for.
    Flood,
    /// The flood; synchronous requests have a sweep of their own, and pass.
    SynchronousFirst,
    /// The flood; synchronous requests pass, and so do queued writes that a process waits for. All that pass go in the
    /// order of their arrival, as at the front of a list.
    Promotion,
    /// Promotion, with those that pass in a sweep.
    PromotionSorted,
    /// The flood; metadata is written later.
    Delayed,
    /// The product's queue; metadata is written in place, and waited for.
    Ours,
    /// The product's queue and a journal.
    OursJournal,
}

impl System {
    pub(super) const ALL: [Self; 7] = [
        Self::Flood,
        Self::SynchronousFirst,
        Self::Promotion,
        Self::PromotionSorted,
        Self::Delayed,
        Self::Ours,
        Self::OursJournal,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::SynchronousFirst => "sync-first",
            Self::Promotion => "promotion",
            Self::PromotionSorted => "promotion-sorted",
            Self::Delayed => "delayed",
            Self::Ours => "ours",
            Self::OursJournal => "ours-journal",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursJournal)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A process has computed.
    Computed(usize),
    /// The disk has served a request.
    Served(u64),
    /// Dirty blocks are given to be written.
    Flusher,
    Commit,
    /// The background looks again.
    Look,
    /// A writer has waited long enough for background requests.
    Passed(usize, u64),
    Sample,
}

/// Part of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Read(u64, u64),
    /// Whether it has been slowed.
    Write(u64, u64, bool),
    InPlace(u64),
    /// An update that is part of the running transaction.
    Update(u64),
    SyncOwn,
    Flush,
    /// Waits until the running transaction is stable.
    Commit,
    /// The rest are steps of the journal's own threads.
    Log,
    Record,
    Committed,
    Beginning,
    Checkpointed,
}

/// A process, or a thread of the journal.
#[derive(Debug)]
struct Process {
    choice: Choice,
    operation: Operation,
    since: u64,
    steps: VecDeque<Step>,
    /// What it waits for.
    waits: usize,
    /// Blocks that it wrote and that no `fsync` has looked at.
    own: BTreeSet<u64>,
    /// A slowed writer: the background requests until which it waits.
    pass: Option<u64>,
}

#[derive(Debug)]
struct Request {
    kind: Kind,
    first: u64,
    blocks: u64,
    is_synchronous: bool,
    is_under_way: bool,
    /// It came out of `Pending`.
    is_taken: bool,
    since: u64,
    waiters: Vec<usize>,
}

pub(super) struct Simulation<'a> {
    machine: &'a Machine,
    system: System,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events_made: u64,
    disk: Disk,
    driver: Driver,
    under_way: usize,
    requests: BTreeMap<u64, Request>,
    requests_made: u64,
    processes: Vec<Process>,
    next_free: Vec<u64>,
    ready: VecDeque<usize>,
    running: usize,
    dirty: BTreeSet<u64>,
    /// Blocks with a write that the driver has, and its number.
    busy: HashMap<u64, u64>,
    no_memory: Vec<usize>,
    /// Blocks that wait or are under way in the background.
    background_blocks: u64,
    pub(super) journal: Journal,
    pending: Pending<()>,
    policy: Policy,
    seen: [Seen; KINDS],
    window: u64,
    wrote: bool,
    synchronous: u64,
    background: Option<u64>,
    background_runs: u64,
    looks: bool,
    sample: Sample,
    figures: Figures,
}

/// Runs `system` on `machine`.
pub(super) fn run(machine: &Machine, system: System, seed: u64) -> Figures {
    let mut simulation = Simulation::new(machine, system, seed);
    simulation.begin();
    while let Some(Reverse((at, _, event))) = simulation.events.pop() {
        if at > machine.run_ns {
            break;
        }
        simulation.pass_time(at);
        simulation.happen(event);
    }
    simulation.figures.end(machine);
    simulation.figures
}

impl<'a> Simulation<'a> {
    fn new(machine: &'a Machine, system: System, seed: u64) -> Self {
        let process = |at| Process {
            choice: Choice::new(seed, at),
            operation: Operation::Fsync,
            since: 0,
            steps: VecDeque::new(),
            waits: 0,
            own: BTreeSet::new(),
            pass: None,
        };
        let front = Front {
            synchronous: matches!(
                system,
                System::SynchronousFirst | System::Promotion | System::PromotionSorted
            ),
            awaited: matches!(system, System::Promotion | System::PromotionSorted),
            sorted: system != System::Promotion,
        };
        Self {
            machine,
            system,
            now: 0,
            events: BinaryHeap::new(),
            events_made: 0,
            disk: machine.disk.clone(),
            driver: Driver::new(front),
            under_way: 0,
            requests: BTreeMap::new(),
            requests_made: 0,
            processes: (0..machine.processes + 2).map(process).collect(),
            next_free: next_free(),
            ready: (0..machine.processes).collect(),
            running: 0,
            dirty: BTreeSet::new(),
            busy: HashMap::new(),
            no_memory: Vec::new(),
            background_blocks: 0,
            journal: Journal::default(),
            pending: Pending::default(),
            policy: Policy::default(),
            seen: Default::default(),
            window: 0,
            wrote: false,
            synchronous: 0,
            background: None,
            background_runs: 0,
            looks: false,
            sample: Sample::default(),
            figures: Figures::default(),
        }
    }

    fn begin(&mut self) {
        self.after(self.machine.sample_ns, Event::Sample);
        self.after(self.machine.flush_every_ns, Event::Flusher);
        if self.system == System::OursJournal {
            self.after(self.machine.commit_every_ns, Event::Commit);
        }
        self.compute();
    }

    fn after(&mut self, ns: u64, event: Event) {
        self.events_made += 1;
        self.events.push(Reverse((self.now + ns, self.events_made, event)));
    }

    fn pass_time(&mut self, to: u64) {
        let queue = self.driver.len() + self.under_way;
        self.sample.add(to - self.now, self.running, self.under_way, queue, self.dirty_blocks());
        self.now = to;
    }

    /// Blocks of data and metadata that are newer in memory than in their places.
    fn dirty_blocks(&self) -> u64 {
        self.dirty.len() as u64 + self.background_blocks
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Computed(process) => {
                self.running -= 1;
                self.operate(process);
                self.compute();
            }
            Event::Served(number) => self.served(number),
            Event::Flusher => {
                self.flush_dirty();
                self.after(self.machine.flush_every_ns, Event::Flusher);
            }
            Event::Commit => {
                self.begin_commit();
                self.after(self.machine.commit_every_ns, Event::Commit);
            }
            Event::Look => {
                self.looks = false;
                self.work_in_background();
            }
            Event::Passed(process, until) => {
                if self.processes[process].pass == Some(until) {
                    self.processes[process].pass = None;
                    self.woken(process);
                }
            }
            Event::Sample => {
                self.figures.samples.push(std::mem::take(&mut self.sample));
                self.after(self.machine.sample_ns, Event::Sample);
            }
        }
    }

    // Processors and processes.

    fn compute(&mut self) {
        while self.running < self.machine.processors {
            let Some(process) = self.ready.pop_front() else { return };
            self.running += 1;
            let ns = self.processes[process].choice.compute_ns(self.machine);
            self.after(ns, Event::Computed(process));
        }
    }

    /// A process begins its next operation.
    fn operate(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let operation = process.choice.next(self.machine, &mut self.next_free);
        process.operation = operation;
        process.since = self.now;
        let later = matches!(self.system, System::Delayed);
        let steps = &mut process.steps;
        match operation {
            Operation::Read { first, blocks } => steps.push_back(Step::Read(first, blocks)),
            Operation::Write { first, blocks } => {
                steps.push_back(Step::Write(first, blocks, false));
            }
            Operation::Metadata { inode, names } => {
                steps.extend([inode, names].map(|block| match self.system {
                    System::OursJournal => Step::Update(block),
                    _ if later => Step::Write(block, 1, false),
                    _ => Step::InPlace(block),
                }));
            }
            Operation::Fsync => {
                steps.push_back(Step::SyncOwn);
                match self.system {
                    System::OursJournal => steps.push_back(Step::Commit),
                    _ if self.disk.is_volatile() => steps.push_back(Step::Flush),
                    _ => {}
                }
            }
        }
        self.go_on(at);
    }

    /// A process does its steps until it waits.
    pub(super) fn go_on(&mut self, at: usize) {
        while self.processes[at].waits == 0 {
            match self.processes[at].steps.pop_front() {
                Some(step) => self.step(at, step),
                None if at >= self.machine.processes => return,
                None => {
                    let process = &self.processes[at];
                    if process.since >= self.machine.warm_ns {
                        self.figures.operation(process.operation, self.now - process.since);
                    }
                    self.ready.push_back(at);
                    self.compute();
                    return;
                }
            }
        }
    }

    /// The thread of the journal that commits, and the one that ends checkpoints.
    pub(super) fn committer(&self) -> usize {
        self.machine.processes
    }

    pub(super) fn checkpointer(&self) -> usize {
        self.machine.processes + 1
    }

    pub(super) fn begin_steps(&mut self, at: usize, steps: &[Step]) {
        self.processes[at].steps.extend(steps);
        self.go_on(at);
    }

    pub(super) fn again(&mut self, at: usize, step: Step) {
        self.processes[at].steps.push_front(step);
    }

    pub(super) fn again_when_woken(&mut self, at: usize, step: Step) {
        self.again(at, step);
        self.waits(at);
    }

    pub(super) fn waits(&mut self, at: usize) {
        self.processes[at].waits += 1;
    }

    pub(super) fn woken(&mut self, at: usize) {
        self.processes[at].waits -= 1;
        self.go_on(at);
    }

    pub(super) fn log_blocks(&self) -> u64 {
        self.machine.log_blocks
    }

    pub(super) fn log_first(&self) -> u64 {
        self.machine.log_first()
    }

    fn step(&mut self, at: usize, step: Step) {
        match step {
            Step::Read(first, blocks) => self.submit(Kind::Read, first, blocks, Some(at)),
            Step::Write(first, blocks, slowed) => self.write(at, first, blocks, slowed),
            Step::InPlace(block) => match self.busy.get(&block) {
                Some(number) => self.wait_for(at, *number, Some(step)),
                None => self.submit(Kind::Write, block, 1, Some(at)),
            },
            Step::SyncOwn => self.sync_own(at),
            Step::Flush => self.flush(at),
            step => self.journal_step(at, step),
        }
    }

    fn write(&mut self, at: usize, first: u64, blocks: u64, slowed: bool) {
        let step = Step::Write(first, blocks, slowed);
        if let Some(number) = (first..first + blocks).find_map(|block| self.busy.get(&block)) {
            return self.wait_for(at, *number, Some(step));
        }
        let limit = self.machine.memory_blocks;
        if self.dirty_blocks() + blocks > limit {
            if self.background_blocks == 0 {
                self.flush_dirty();
            }
            self.again_when_woken(at, step);
            self.no_memory.push(at);
            return;
        }
        if self.system.is_ours() && !slowed {
            let number = let_pass(self.dirty_blocks(), limit);
            if number > 0 && self.background_blocks > 0 {
                self.again_when_woken(at, Step::Write(first, blocks, true));
                let until = self.background_runs + number;
                self.processes[at].pass = Some(until);
                self.after(number * PASS_NS, Event::Passed(at, until));
                return;
            }
        }
        for block in first..first + blocks {
            // What waits in `Pending` is replaced there.
            if self.pending.remove(block).is_some() {
                self.pending.put(block, ());
            } else {
                self.dirty.insert(block);
            }
            self.processes[at].own.insert(block);
        }
    }

    fn sync_own(&mut self, at: usize) {
        let own = std::mem::take(&mut self.processes[at].own);
        let mut numbers = BTreeSet::new();
        let mut dirty = Vec::new();
        for block in own {
            if self.dirty.remove(&block) {
                dirty.push(block);
            } else if let Some(number) = self.busy.get(&block) {
                numbers.insert(*number);
            } else if self.take_back(at, block) {
                // With its neighbours.
            } else if self.pending.is_under_way(block) {
                let has = |request: &Request| {
                    request.kind == Kind::Write
                        && (request.first..request.first + request.blocks).contains(&block)
                };
                let of_it = self.requests.iter().find(|(_, request)| has(request));
                numbers.insert(*of_it.expect("it is under way").0);
            }
        }
        for (first, blocks) in runs(&dirty) {
            self.submit(Kind::Write, first, blocks, Some(at));
        }
        for number in numbers {
            self.wait_for(at, number, None);
        }
        self.dispatch();
    }

    /// A process writes a queued block itself, with its neighbours.
    pub(super) fn take_back(&mut self, at: usize, block: u64) -> bool {
        let most = PIECE_BLOCKS * DEPTH_MAX as usize;
        let Some(run) = self.pending.take_back(block, most) else { return false };
        let blocks = run.contents.len() as u64;
        self.figures.taken += blocks;
        let number = self.make(Kind::Write, run.first, blocks, true, true);
        self.requests.get_mut(&number).expect("it was made").waiters.push(at);
        self.waits(at);
        self.dispatch();
        true
    }

    /// A flush that has not begun serves all that wait for it.
    fn flush(&mut self, at: usize) {
        let waits = |request: &Request| request.kind == Kind::Flush && !request.is_under_way;
        match self.requests.iter_mut().find(|(_, request)| waits(request)) {
            Some((_, request)) => {
                request.waiters.push(at);
                self.waits(at);
            }
            None => self.submit(Kind::Flush, 0, 0, Some(at)),
        }
    }

    fn wait_for(&mut self, at: usize, number: u64, then: Option<Step>) {
        let request = self.requests.get_mut(&number).expect("it has not ended");
        request.waiters.push(at);
        self.driver.awaited(number, request.first);
        match then {
            Some(step) => self.again_when_woken(at, step),
            None => self.waits(at),
        }
    }

    // Requests.

    pub(super) fn submit(&mut self, kind: Kind, first: u64, blocks: u64, waiter: Option<usize>) {
        let number = self.make(kind, first, blocks, waiter.is_some(), false);
        if let Some(at) = waiter {
            self.requests.get_mut(&number).expect("it was made").waiters.push(at);
            self.waits(at);
        }
        self.dispatch();
    }

    fn make(
        &mut self,
        kind: Kind,
        first: u64,
        blocks: u64,
        is_synchronous: bool,
        is_taken: bool,
    ) -> u64 {
        self.requests_made += 1;
        let number = self.requests_made;
        let since = self.now;
        let (is_under_way, waiters) = (false, Vec::new());
        let request =
            Request { kind, first, blocks, is_synchronous, is_under_way, is_taken, since, waiters };
        self.requests.insert(number, request);
        if is_synchronous {
            self.synchronous += 1;
        }
        if kind == Kind::Write && !is_taken {
            self.busy.extend((first..first + blocks).map(|block| (block, number)));
        }
        self.driver.put(number, kind, first, is_synchronous);
        number
    }

    fn dispatch(&mut self) {
        while self.under_way < self.disk.ways {
            let Some(number) = self.driver.take() else { return };
            let request = self.requests.get_mut(&number).expect("the driver has it");
            request.is_under_way = true;
            let end = self.disk.serve(self.now, request.kind, request.first, request.blocks);
            self.under_way += 1;
            self.after(end - self.now, Event::Served(number));
        }
    }

    fn served(&mut self, number: u64) {
        self.under_way -= 1;
        let request = self.requests.remove(&number).expect("it was under way");
        let blocks = request.first..request.first + request.blocks;
        if request.is_synchronous {
            self.synchronous -= 1;
            let seen = &mut self.seen[request.kind as usize];
            let ns = self.now - request.since;
            seen.least_ns = if seen.requests == 0 { ns } else { seen.least_ns.min(ns) };
            seen.requests += 1;
        }
        if request.is_taken {
            self.pending.ended(request.first);
            self.background_blocks -= request.blocks;
            self.journal.in_place(blocks);
        } else if request.kind == Kind::Write {
            for block in blocks {
                if self.busy.get(&block) == Some(&number) {
                    self.busy.remove(&block);
                }
            }
            if !request.is_synchronous {
                self.background_blocks -= request.blocks;
            }
        }
        if self.background == Some(number) {
            self.background = None;
            self.background_runs += 1;
            self.let_writers_pass();
        }
        if request.kind == Kind::Flush {
            self.policy.flushed();
        }
        self.dispatch();
        for waiter in request.waiters {
            self.woken(waiter);
        }
        for waiter in std::mem::take(&mut self.no_memory) {
            self.woken(waiter);
        }
        self.end_checkpoint();
        self.work_in_background();
    }

    fn let_writers_pass(&mut self) {
        for at in 0..self.machine.processes {
            if self.processes[at].pass.is_some_and(|until| until <= self.background_runs) {
                self.processes[at].pass = None;
                self.woken(at);
            }
        }
    }

    // The background.

    /// All dirty blocks go to the driver, or to the product's queue.
    fn flush_dirty(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.background_blocks += dirty.len() as u64;
        if self.system.is_ours() {
            for block in dirty {
                self.pending.put(block, ());
            }
            return self.work_in_background();
        }
        let dirty: Vec<u64> = dirty.into_iter().collect();
        for (first, blocks) in runs(&dirty) {
            self.make(Kind::Write, first, blocks, false, false);
        }
        self.dispatch();
    }

    /// Blocks of a checkpoint go to the product's queue.
    pub(super) fn put_checkpoint(&mut self, blocks: &BTreeSet<u64>) {
        for block in blocks {
            if self.pending.put(*block, ()).is_none() {
                self.background_blocks += 1;
            }
        }
        self.work_in_background();
    }

    /// Newer contents of these blocks are in the log.
    pub(super) fn drop_blocks(&mut self, blocks: &BTreeSet<u64>) {
        for block in blocks {
            if self.pending.remove(*block).is_some() {
                self.background_blocks -= 1;
            }
        }
    }

    fn work_in_background(&mut self) {
        let waiting = self.pending.len();
        if self.background.is_some() || waiting == 0 {
            return;
        }
        if self.now - self.window >= WINDOW_NS {
            let seen = std::mem::take(&mut self.seen);
            self.policy.window(&seen, std::mem::take(&mut self.wrote));
            self.window = self.now;
        }
        let pieces = self.policy.next(self.synchronous, self.pending.requests() as u32);
        let most = PIECE_BLOCKS * pieces as usize;
        match (most > 0).then(|| self.pending.take(most)).flatten() {
            Some(run) => {
                self.policy.began();
                self.wrote = true;
                let number =
                    self.make(Kind::Write, run.first, run.contents.len() as u64, false, true);
                self.background = Some(number);
                self.dispatch();
            }
            None if !self.looks => {
                self.looks = true;
                self.after(PASS_NS, Event::Look);
            }
            None => {}
        }
    }
}

/// Neighbours together, at most a piece.
fn runs(blocks: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for block in blocks {
        match runs.last_mut() {
            Some((first, number))
                if *first + *number == *block && *number < PIECE_BLOCKS as u64 =>
            {
                *number += 1;
            }
            _ => runs.push((*block, 1)),
        }
    }
    runs
}
