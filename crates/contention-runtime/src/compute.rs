//! Time of the instructions between accesses: a path of instructions leads to each point that the compiler's passes announce.
//!
//! # Boundary
//! Charges the running thread's clock. [`crate::code`] finds the instructions, [`uvfs_coherence::pipeline`]
//! knows their times.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A path in a state of the pipeline always takes the same time and leaves the same state. States are therefore numbered and
//! the answers kept: one turn of a loop costs one look into a table. Branches are guessed as a processor
//! does, by the place alone and by the last few places. Loads that the first cache does not answer are part of the
//! path's time, so that they overlap where they can. The core waits in order for lines that another core has.
//! Weakness: a thread that is switched to finds the guesses of the others.

use crate::code::Code;
use crate::state::Table;
use std::rc::Rc;
use uvfs_coherence::machine::Machine;
use uvfs_coherence::pipeline::{FETCHED, Operation, Pipeline, State};
use uvfs_coherence::{TICKS_PER_CYCLE, Ticks};

const KEPT: usize = 1 << 14;
const GUESSES: usize = 1 << 14;
/// How much of the history a guess is made by.
const HISTORIES: [u64; 3] = [0, (1 << 12) - 1, (1 << 40) - 1];
/// Branches of the longest one.
const FAR: usize = 128;
/// Weight of a branch over that of the one before, and of one that is that far back.
const WEIGHT: u64 = 0x9e37_79b9_7f4a_7c15;
const FAR_WEIGHT: u64 = WEIGHT.wrapping_pow(FAR as u32);
/// More states than this are forgotten, all at once.
const STATES: usize = 1 << 16;
/// Keys of steps that are no paths; no address has these bits.
const GOES: u64 = 1 << 63;
const DRAINS: u64 = 1 << 62;
/// Ways of a first cache.
const WAYS: usize = 8;

/// Where a thread is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Whereabouts {
    /// Behind which call; zero: nowhere that is known.
    at: u64,
    /// Where the function returns to that it is in, if no call tells of its end.
    returns_to: u64,
    state: State,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    from: u32,
    next: u32,
    to: u64,
    cost: u32,
    /// The part of it that misses took.
    stalled: u32,
    branches: bool,
    /// Where it begins, for guessing.
    place: u32,
}

const NO_ANSWER: Answer =
    Answer { from: u32::MAX, next: 0, to: 0, cost: 0, stalled: 0, branches: false, place: 0 };

/// A thread's part.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Number of its whereabouts.
    pub(crate) number: u32,
    /// Generation of all numbers: an older one means nothing.
    pub(crate) generation: u32,
    /// The places that branches led to, the last in the lowest bits.
    history: u64,
    /// Hash of many more of these places, and the places that leave it next.
    far: u64,
    places: Box<[u16; FAR]>,
    place: usize,
    /// Accesses that take longer, since the last point.
    longer: Vec<Longer>,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            number: 0,
            generation: 0,
            history: 0,
            far: 0,
            places: Box::new([0; FAR]),
            place: 0,
            longer: Vec::new(),
        }
    }
}

/// The access, by how much it takes longer, and its line.
type Longer = (u64, Ticks, u64);

/// Where a branch led to, shortened.
#[derive(Debug, Clone, Copy, Default)]
struct Guess {
    key: u16,
    next: u16,
    sure: u8,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Compute {
    pipeline: Pipeline,
    code: Code,
    paths: Table<(u64, u64), Rc<PathKept>>,
    all: Vec<Rc<Whereabouts>>,
    numbers: Table<Rc<Whereabouts>, u32>,
    generation: u32,
    kept: Box<[Answer]>,
    /// Answers where accesses took longer or a guess was wrong.
    rare: Table<(u32, u64, u64), Answer>,
    /// By the place alone, then by more and more of the places before.
    guesses: [Box<[Guess]>; 4],
    first: First,
    pub(crate) second_level: Ticks,
    /// In 1024ths, the part of a latency that remains when the line was fetched ahead.
    streamed: Ticks,
}

#[derive(Debug)]
struct PathKept {
    operations: Vec<Operation>,
    found: bool,
    returns_to: u64,
    branches: bool,
}

/// First caches of all cores: which lines they have.
#[derive(Debug)]
struct First {
    /// Sets of a core, less one; none: it is as large as the private one.
    mask: Option<u64>,
    sets: Vec<[u64; WAYS]>,
}

/// The answer of a core's first cache for a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nearness {
    /// It has it.
    Here,
    /// It has the one before or after it, so that this one was fetched ahead.
    Streamed,
    /// Neither.
    Away,
}

impl First {
    fn new(machine: &Machine) -> Self {
        let lines = (machine.pipeline.first_kib.value * 1024.0) as u64 / machine.line_bytes;
        let sets = lines / WAYS as u64;
        let sets = if sets.is_power_of_two() { sets } else { sets.next_power_of_two() / 2 };
        match sets {
            0 => Self { mask: None, sets: Vec::new() },
            _ => Self {
                mask: Some(sets - 1),
                sets: vec![[u64::MAX; WAYS]; sets as usize * machine.cores],
            },
        }
    }

    /// The core inserts the line; returns the entry before.
    #[inline(always)]
    fn touch(&mut self, core: usize, line: u64) -> Nearness {
        let Some(mask) = self.mask else { return Nearness::Here };
        let base = core * (mask as usize + 1);
        let set = &mut self.sets[base + (line & mask) as usize];
        if set[0] == line {
            return Nearness::Here;
        }
        self.touch_slowly(base, mask, line)
    }

    #[inline(never)]
    fn touch_slowly(&mut self, base: usize, mask: u64, line: u64) -> Nearness {
        let set = &mut self.sets[base + (line & mask) as usize];
        let found = set.iter().position(|one| *one == line);
        set[..=found.unwrap_or(WAYS - 1)].rotate_right(1);
        set[0] = line;
        if found.is_some() {
            return Nearness::Here;
        }
        let has = |line: u64| self.sets[base + (line & mask) as usize].contains(&line);
        if has(line.wrapping_sub(1)) || has(line + 1) { Nearness::Streamed } else { Nearness::Away }
    }
}

impl Compute {
    pub(crate) fn new(machine: &Machine) -> Self {
        let ticks = |cycles: f64| (cycles * TICKS_PER_CYCLE as f64).round() as Ticks;
        let mut compute = Self {
            pipeline: Pipeline::new(machine),
            code: Code::default(),
            paths: Table::default(),
            all: Vec::new(),
            numbers: Table::default(),
            generation: 0,
            kept: vec![NO_ANSWER; KEPT].into_boxed_slice(),
            rare: Table::default(),
            guesses: [(); 4].map(|()| vec![Guess::default(); GUESSES].into_boxed_slice()),
            first: First::new(machine),
            second_level: ticks(machine.pipeline.second_level.value),
            streamed: (machine.pipeline.streamed.value * 1024.0) as Ticks,
        };
        compute.forget();
        compute
    }

    /// Number 0 is: nowhere, and nothing under way.
    fn forget(&mut self) {
        self.all.clear();
        self.numbers.clear();
        self.rare.clear();
        self.kept.fill(NO_ANSWER);
        self.generation += 1;
        self.number(Whereabouts { at: 0, returns_to: 0, state: State::default() });
    }

    fn number(&mut self, whereabouts: Whereabouts) -> u32 {
        if let Some(number) = self.numbers.get(&whereabouts) {
            return *number;
        }
        if self.all.len() >= STATES {
            self.forget();
        }
        let number = self.all.len() as u32;
        let whereabouts = Rc::new(whereabouts);
        self.all.push(Rc::clone(&whereabouts));
        self.numbers.insert(whereabouts, number);
        number
    }

    /// The thread's core looks at a line.
    #[inline(always)]
    pub(crate) fn touch(&mut self, core: usize, line: u64) -> Nearness {
        self.first.touch(core, line)
    }

    /// The part of `latency` that a line takes if no instruction waits for it.
    fn streamed(&self, latency: Ticks) -> Ticks {
        latency * self.streamed / 1024
    }

    /// The core fetches a line that no instruction waits for: it keeps the path to memory busy beside the computation.
    pub(crate) fn fetched(&self, progress: &mut Progress, latency: Ticks) {
        let by = self.streamed(latency);
        // Lines of one block are one.
        match progress.longer.iter_mut().find(|one| one.0 == FETCHED) {
            Some(one) => one.1 += by,
            None => progress.longer.push((FETCHED, by, 0)),
        }
    }

    /// The access that returns to `pc` takes so much longer than one that the first cache answers.
    #[cold]
    #[inline(never)]
    pub(crate) fn longer(&self, progress: &mut Progress, pc: u64, by: Ticks, line: u64) {
        // A hundred in one block are a copy of memory: they are not followed one by one.
        if progress.longer.len() < 64 {
            progress.longer.push((pc, by, line));
        }
    }

    /// The access that returns to `pc` is of a line that is here, or on its way: then it waits too.
    #[inline(always)]
    pub(crate) fn arrives(&self, progress: &mut Progress, pc: u64, line: u64) {
        if !progress.longer.is_empty()
            && let Some((_, by, _)) = progress.longer.iter().find(|one| one.2 == line).copied()
        {
            self.longer(progress, pc, by, line);
        }
    }

    /// The thread is behind the call that returns to `pc`: returns the time of the path there, and the part of it for misses.
    #[inline(always)]
    pub(crate) fn reach(&mut self, progress: &mut Progress, pc: u64) -> (Ticks, Ticks) {
        self.refresh(progress);
        let from = progress.number;
        let index = index(from, pc);
        let mut answer = self.kept[index];
        if answer.from != from || answer.to != pc {
            answer = self.answer(from, pc, &[], false);
            // The states may have been forgotten meanwhile, and this answer with them.
            if answer.from == from {
                self.kept[index] = answer;
            }
        }
        let wrong = answer.branches && !self.guessed(progress, answer.place, pc);
        if wrong || !progress.longer.is_empty() {
            answer = self.rare_answer(progress, pc, wrong);
        }
        progress.number = answer.next;
        progress.generation = self.generation;
        (Ticks::from(answer.cost), Ticks::from(answer.stalled))
    }

    #[cold]
    #[inline(never)]
    fn rare_answer(&mut self, progress: &mut Progress, pc: u64, wrong: bool) -> Answer {
        // Working out the usual answer may have made all numbers mean nothing.
        self.refresh(progress);
        let from = progress.number;
        let longer = std::mem::take(&mut progress.longer);
        let mark = longer.iter().fold(u64::from(wrong) + 1, |hash, (pc, by, _)| {
            (hash.rotate_left(23) ^ pc ^ by << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        });
        let known = self.rare.get(&(from, pc, mark)).copied();
        let answer = known.unwrap_or_else(|| {
            let answer = self.answer(from, pc, &longer, wrong);
            if self.rare.len() > STATES * 4 {
                self.rare.clear();
            }
            if answer.from == from {
                self.rare.insert((from, pc, mark), answer);
            }
            answer
        });
        progress.longer = longer;
        progress.longer.clear();
        answer
    }

    /// Whether a processor would have guessed that the thread goes to `pc` next.
    #[inline(always)]
    fn guessed(&mut self, progress: &mut Progress, from: u32, pc: u64) -> bool {
        let next = (pc ^ pc >> 16) as u16;
        let history = progress.history;
        // Two bits a branch.
        progress.history = history << 2 ^ u64::from(next.wrapping_mul(0x9e35) >> 14);
        let far = progress.far;
        let oldest = std::mem::replace(&mut progress.places[progress.place], next);
        progress.place = (progress.place + 1) % FAR;
        progress.far = far
            .wrapping_mul(WEIGHT)
            .wrapping_add(u64::from(next))
            .wrapping_sub(u64::from(oldest).wrapping_mul(FAR_WEIGHT));
        let mut keys = [(0, 0); 4];
        let mut provider = 0;
        for (number, key) in keys.iter_mut().enumerate() {
            let before = HISTORIES.get(number).map_or(far, |mask| history & mask);
            let hash = (before ^ u64::from(from) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *key = ((hash >> 48) as u16 | 1, (hash >> 13) as usize & (GUESSES - 1));
            if self.guesses[number][key.1].key == key.0 {
                provider = number;
            }
        }
        let right = {
            let (key, index) = keys[provider];
            let guess = &mut self.guesses[provider][index];
            let right = guess.key == key && guess.next == next;
            learn(guess, key, next);
            right
        };
        if !right {
            for (number, (key, index)) in keys.into_iter().enumerate().skip(provider + 1) {
                let longer = &mut self.guesses[number][index];
                if longer.sure == 0 {
                    *longer = Guess { key, next, sure: 1 };
                } else {
                    longer.sure -= 1;
                }
            }
        }
        right
    }

    /// Works an answer out.
    #[cold]
    #[inline(never)]
    fn answer(&mut self, from: u32, to: u64, longer: &[Longer], wrong: bool) -> Answer {
        let here = Rc::clone(&self.all[from as usize]);
        let path = self.path(here.at, to);
        let mut returns_to = if path.found { path.returns_to } else { 0 };
        if path.found && returns_to == 0 {
            returns_to = here.returns_to;
        }
        let (mut cost, mut state) = self.pipeline.run(&here.state, &path.operations, longer, wrong);
        let mut branches = path.branches;
        let mut plain = cost;
        if !longer.is_empty() {
            plain = self.pipeline.run(&here.state, &path.operations, &[], wrong).0;
        }
        if !path.found && here.returns_to != 0 {
            let rest = self.path(here.returns_to, to);
            if rest.found {
                let (more, after) = self.pipeline.run(&state, &rest.operations, longer, false);
                (cost, plain, state) = (cost + more, plain + more, after);
                branches |= rest.branches;
            }
        }
        let generation = self.generation;
        let next = self.number(Whereabouts { at: to, returns_to, state });
        let from = if generation == self.generation { from } else { u32::MAX };
        Answer {
            from,
            next,
            to,
            cost: cost as u32,
            stalled: cost.saturating_sub(plain) as u32,
            branches,
            place: here.at as u32,
        }
    }

    fn path(&mut self, from: u64, to: u64) -> Rc<PathKept> {
        if from == 0 || from == to && !self.code.knows(from) {
            return Rc::new(PathKept {
                operations: Vec::new(),
                found: false,
                returns_to: 0,
                branches: false,
            });
        }
        if let Some(path) = self.paths.get(&(from, to)) {
            return Rc::clone(path);
        }
        let crate::code::Path { operations, found, returns_to, branches } =
            self.code.path(from, to);
        let path = Rc::new(PathKept { operations, found, returns_to, branches });
        self.paths.insert((from, to), Rc::clone(&path));
        path
    }

    /// Whether any code that is loaded tells of its blocks.
    pub(crate) fn has_code(&mut self) -> bool {
        self.code.read();
        self.code.any()
    }

    /// Whether `pc` is in code whose blocks announce themselves.
    pub(crate) fn knows(&mut self, pc: u64) -> bool {
        self.code.knows(pc)
    }

    /// The thread continues behind the call that returns to `pc`, wherever it was: a function has ended. Returns the
    /// time of its end.
    pub(crate) fn go_to(&mut self, progress: &mut Progress, pc: u64) -> Ticks {
        self.step(progress, pc | GOES, |compute, here| {
            let path = compute.path(here.at, 0);
            let (cost, state) = compute.pipeline.run(&here.state, &path.operations, &[], false);
            (cost, Whereabouts { at: pc, returns_to: 0, state })
        })
    }

    /// Everything that is under way ends: how long that takes.
    pub(crate) fn drain(&mut self, progress: &mut Progress) -> Ticks {
        self.step(progress, DRAINS, |_, here| {
            (here.state.drained(), Whereabouts { state: State::default(), ..here.clone() })
        })
    }

    /// A step that is no path, kept under a key that is no address.
    fn step(
        &mut self,
        progress: &mut Progress,
        key: u64,
        work: impl FnOnce(&mut Self, &Whereabouts) -> (Ticks, Whereabouts),
    ) -> Ticks {
        self.refresh(progress);
        let from = progress.number;
        let index = index(from, key);
        let mut answer = self.kept[index];
        if answer.from != from || answer.to != key {
            let here = Rc::clone(&self.all[from as usize]);
            let (cost, after) = work(self, &here);
            let generation = self.generation;
            let next = self.number(after);
            answer = Answer { from, next, to: key, cost: cost as u32, ..NO_ANSWER };
            if generation == self.generation {
                self.kept[index] = answer;
            }
        }
        (progress.number, progress.generation) = (answer.next, self.generation);
        Ticks::from(answer.cost)
    }

    /// A number of before all were forgotten means nothing.
    #[inline(always)]
    fn refresh(&self, progress: &mut Progress) {
        if progress.generation != self.generation {
            (progress.number, progress.generation) = (0, self.generation);
        }
    }
}

/// Where an answer is kept.
#[inline(always)]
fn index(from: u32, to: u64) -> usize {
    let hash = (to ^ u64::from(from) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 50) as usize & (KEPT - 1)
}

#[inline(always)]
fn learn(guess: &mut Guess, key: u16, next: u16) {
    if guess.key != key {
        *guess = Guess { key, next, sure: 1 };
    } else if guess.next == next {
        guess.sure = (guess.sure + 1).min(3);
    } else if guess.sure == 0 {
        guess.next = next;
    } else {
        guess.sure -= 1;
    }
}
