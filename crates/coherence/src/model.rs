//! The directory: the holders of each line, and the cost of an access that follows from them.
//!
//! # Boundary
//! One access after the other, in the order of their virtual times, which the caller keeps. Knows
//! lines, not objects. Returns the source of each answer and the write that made the miss necessary, and keeps
//! no samples.
//!
//! # Concurrency
//! None: one caller.
//!
//! # Why
//! The states are those of MESI, kept per line and not per core: a line has one exclusive holder, or sharers. An
//! access of the holder, and a read of a sharer, is a hit and changes nothing but masks. Every other access
//! waits until the line is free, is served from the nearest copy (a write pays for the farthest),
//! and keeps the line busy: for the whole time if it took the line from a core, otherwise for the directory's
//! time. Lines lie together by page, and a page's home is the node that touched it first; nothing
//! else depends on an address. Weakness: one request at a time and line is the only queue; there is
//! no bandwidth. Lines of 128 and 256 bytes have masks of two and four bytes a bit.

use crate::capacity::Caches;
use crate::configuration::Relayout;
use crate::costs::{Costs, Random};
use crate::layout::Layouts;
use crate::machine::Machine;
use crate::profile::{Class, Operation};
use crate::sharing::{NONE as NO_ROW, Sharing};

/// Virtual time: sixteenths of a cycle.
pub type Ticks = u64;

/// Ticks of a cycle.
pub const TICKS_PER_CYCLE: u64 = 16;

const PAGE_SHIFT: u32 = 12;
const NO_CORE: u16 = u16::MAX;
/// Cores whose bits fit into a line's own words.
const INLINE_CORES: usize = 128;
const NO_SITE: u32 = u32::MAX;

const DIRTY: u8 = 1;
const CONTENDED: u8 = 2;
/// The last level has newer bytes than memory.
const LAST_LEVEL_DIRTY: u8 = 4;

/// One access; it must not cross a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Address of the first byte.
    pub address: u64,
    /// How many.
    pub bytes: u32,
    /// Kind of the access.
    pub operation: Operation,
}

/// The result of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The core's clock afterwards.
    pub finish: Ticks,
    /// How it was answered, if not by the core's own cache.
    pub miss: Option<Miss>,
    /// Whether the line went from one core's cache to another's before, or now.
    pub contended: bool,
}

/// An access that left the core's own cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Miss {
    /// The source of the answer.
    pub class: Class,
    /// How long it waited for the line.
    pub queue: Ticks,
    /// How long the answer took after that.
    pub service: Ticks,
    /// Another core's cache answered, but not because of any byte of this access.
    pub false_shared: bool,
    /// The site that wrote the line last, if another core did since this one lost it.
    pub writer: Option<u32>,
}

impl Operation {
    /// Whether the line is written.
    #[inline]
    pub fn writes(self) -> bool {
        !matches!(self, Self::Load | Self::AtomicLoad)
    }

    /// Whether it reads and writes in one.
    #[inline]
    pub fn updates(self) -> bool {
        matches!(self, Self::FetchAdd | Self::FetchBits | Self::Exchange | Self::CompareExchange)
    }
}

/// One line; two of them would be one too many for a line of the host.
#[derive(Debug, Clone)]
struct Line {
    /// The cores with a copy; on a machine with more cores than bits, the first word leads to the rest.
    sharers: [u64; 2],
    busy: Ticks,
    /// Bytes that the holder wrote since it got the line.
    written: u64,
    /// Bytes that the holder touched since then; without a row, bytes that any core touched since the last write.
    touched: u64,
    /// Nodes whose last level has it.
    last_level: u64,
    /// Site that wrote last.
    writer: u32,
    /// In [`Sharing`].
    row: u32,
    /// When it was touched first, in the order of lines.
    order: u32,
    /// The exclusive holder.
    holder: u16,
    flags: u8,
}

const UNTOUCHED: u32 = u32::MAX;

const NEW: Line = Line {
    sharers: [0; 2],
    busy: 0,
    written: 0,
    touched: 0,
    last_level: 0,
    writer: NO_SITE,
    row: NO_ROW,
    order: UNTOUCHED,
    holder: NO_CORE,
    flags: 0,
};

/// Open addressing; `page` is one more than the number, zero is free.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    page: u64,
    first: u32,
}

/// Pages that [`Model::quick`] knows.
const RECENT: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Model {
    line_shift: u32,
    /// Bytes of a line that one bit of a mask stands for, as a shift.
    mask_shift: u32,
    lines_per_page_shift: u32,
    slots: Vec<Slot>,
    slot_shift: u32,
    /// The page found last of each number's lowest bits. Pages stay where they are, so these stay right.
    recent: [Slot; RECENT],
    lines: Vec<Line>,
    homes: Vec<u8>,
    touched_lines: u32,
    node_of: Vec<u8>,
    /// Per node: first core, and the one after the last.
    node_cores: Vec<(u32, u32)>,
    /// Words of a set of sharers.
    words: usize,
    wide: Vec<u64>,
    sharing: Sharing,
    costs: Costs,
    jitter: Random,
    private: Option<Caches>,
    last_level: Option<Caches>,
    layouts: Layouts,
}

impl Model {
    /// Nothing is cached. The machine must be valid; the seed decides the jitter.
    pub fn new(machine: &Machine, seed: u64) -> Self {
        let line_shift = machine.line_bytes.trailing_zeros();
        let node_of: Vec<u8> = (0..machine.cores).map(|core| machine.node_of(core) as u8).collect();
        let node_cores = (0..machine.nodes)
            .map(|node| {
                let cores = node_of.iter().filter(|of| usize::from(**of) == node).count();
                let first = node_of.iter().filter(|of| usize::from(**of) < node).count();
                (first as u32, (first + cores) as u32)
            })
            .collect();
        let cache = &machine.cache;
        let kib = |parameter: crate::machine::Parameter| (parameter.value * 1024.0).round() as u64;
        let node_bytes = kib(cache.last_level_kib) * (machine.cores / machine.nodes) as u64;
        // Each of its own, so that one does not shift the others.
        let seed =
            |stream: u64| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(stream << 32);
        let line = machine.line_bytes;
        Self {
            line_shift,
            mask_shift: line_shift.saturating_sub(6),
            lines_per_page_shift: PAGE_SHIFT - line_shift,
            slots: vec![Slot::default(); 1024],
            slot_shift: 64 - 10,
            recent: [Slot::default(); RECENT],
            lines: Vec::new(),
            homes: Vec::new(),
            touched_lines: 0,
            node_of,
            node_cores,
            words: machine.cores.div_ceil(64),
            wide: Vec::new(),
            sharing: Sharing::new(machine.cores),
            costs: Costs::new(machine),
            jitter: Random::new(seed(1)),
            private: Caches::new(
                machine.cores,
                kib(cache.private_kib),
                line,
                cache.private_ways.value,
                seed(2),
            ),
            last_level: Caches::new(
                machine.nodes,
                node_bytes,
                line,
                cache.last_level_ways.value,
                seed(3),
            ),
            layouts: Layouts::new(machine.line_bytes),
        }
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    /// Lines that were accessed so far.
    pub fn lines(&self) -> usize {
        self.touched_lines as usize
    }

    /// Does [`Model::access`] for a plain access of one byte or more to a line that the core has alone, on a page that
    /// was accessed lately, on a machine with lines of 64 bytes: the usual case, in few instructions. `writer` is the
    /// site of a store. Returns whether the line is contended; the access takes [`Model::hit`]. Returns `None` if it
    /// did nothing; then call [`Model::access`].
    #[inline(always)]
    pub fn quick(
        &mut self,
        core: usize,
        address: u64,
        bytes: u32,
        writer: Option<u32>,
    ) -> Option<bool> {
        const SHIFT: u32 = 6;
        let page = (address >> PAGE_SHIFT) + 1;
        let recent = self.recent[page as usize % RECENT];
        if recent.page != page || self.layouts.may_concern(address) || self.line_shift != SHIFT {
            return None;
        }
        let within = address >> SHIFT & ((1 << (PAGE_SHIFT - SHIFT)) - 1);
        // As `mask`, with shifts that the compiler does not know.
        let bits = (u64::MAX >> (bytes.wrapping_neg() & 63)) << (address & 63);
        debug_assert_eq!(bits, self.mask(address, bytes));
        let line = &mut self.lines[recent.first as usize + within as usize];
        if line.holder != core as u16 {
            return None;
        }
        line.touched |= bits;
        if let Some(site) = writer {
            line.written |= bits;
            line.writer = site;
            line.flags |= DIRTY;
        }
        Some(line.flags & CONTENDED != 0)
    }

    /// The cycles of a plain access that the core's own cache answers.
    #[inline(always)]
    pub fn hit(&self) -> Ticks {
        self.costs.hit
    }

    /// The core makes an access at `now`. `site` is its place, for [`Miss::writer`] of later accesses.
    #[inline]
    pub fn access(&mut self, core: usize, now: Ticks, site: u32, access: &Access) -> Outcome {
        if self.layouts.may_concern(access.address) {
            return self.access_moved(core, now, site, access);
        }
        self.access_line(core, now, site, access)
    }

    /// Lines of `[start, start + bytes)` are laid out anew from now on; see [`crate::layout`].
    pub fn relayout(&mut self, start: u64, bytes: u64, change: &Relayout) {
        self.layouts.add(start, bytes, change);
    }

    /// The memory was freed: its new layout ends. The caches keep their lines of it.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        self.layouts.forget(start, bytes);
    }

    #[inline]
    fn access_line(&mut self, core: usize, now: Ticks, site: u32, access: &Access) -> Outcome {
        let bits = self.mask(access.address, access.bytes);
        let index = self.find(access.address, core);
        let line = &mut self.lines[index];
        let writes = access.operation.writes();
        let cost = if access.operation.updates() {
            self.costs.hit + self.costs.atomic
        } else {
            self.costs.hit
        };
        if line.holder == core as u16 {
            line.touched |= bits;
            if writes {
                line.written |= bits;
                line.writer = site;
                line.flags |= DIRTY;
            }
            return Outcome {
                finish: now + cost,
                miss: None,
                contended: line.flags & CONTENDED != 0,
            };
        }
        if !writes && self.words <= 2 && line.sharers[(core / 64) & 1] >> (core % 64) & 1 == 1 {
            if line.row == NO_ROW {
                line.touched |= bits;
            } else {
                self.sharing.touch(line.row, core, bits);
            }
            return Outcome {
                finish: now + cost,
                miss: None,
                contended: line.flags & CONTENDED != 0,
            };
        }
        self.miss(index, core, now, site, bits, writes, cost)
    }

    /// An access to memory with a new layout: it may fall into pieces and cross lines. Each piece is
    /// charged to its line; the access ends when the last does, and the slowest is its miss.
    #[cold]
    fn access_moved(&mut self, core: usize, now: Ticks, site: u32, access: &Access) -> Outcome {
        let pieces = self.layouts.translate(access.address, access.bytes);
        let mut outcome = Outcome { finish: now, miss: None, contended: false };
        for (address, bytes) in pieces {
            let piece = Access { address, bytes, operation: access.operation };
            let this = self.access_line(core, now, site, &piece);
            outcome.contended |= this.contended;
            let slower = match (&this.miss, &outcome.miss) {
                (Some(this), Some(other)) => {
                    this.queue + this.service > other.queue + other.service
                }
                (Some(_), None) => true,
                (None, _) => false,
            };
            if slower {
                outcome.miss = this.miss;
            }
            outcome.finish = outcome.finish.max(this.finish);
        }
        outcome
    }

    #[inline(always)]
    fn mask(&self, address: u64, bytes: u32) -> u64 {
        let low = (address & ((1 << self.line_shift) - 1)) as u32;
        let first = low >> self.mask_shift;
        let last = (low + bytes.max(1) - 1) >> self.mask_shift;
        debug_assert!(
            last < 64 && u64::from(low + bytes) <= 1 << self.line_shift,
            "crosses a line"
        );
        (u64::MAX >> (63 - ((last - first) & 63))) << (first & 63)
    }

    /// Index of the line; its page is made if this is its first access.
    #[inline]
    fn find(&mut self, address: u64, core: usize) -> usize {
        let page = (address >> PAGE_SHIFT) + 1;
        let within = (address >> self.line_shift) & ((1 << self.lines_per_page_shift) - 1);
        let mask = self.slots.len() - 1;
        let mut at = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.slot_shift) as usize;
        loop {
            let slot = self.slots[at & mask];
            if slot.page == page {
                self.recent[page as usize % RECENT] = slot;
                return slot.first as usize + within as usize;
            }
            if slot.page == 0 {
                return self.add_page(page, core) + within as usize;
            }
            at += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn add_page(&mut self, page: u64, core: usize) -> usize {
        if (self.homes.len() + 1) * 2 > self.slots.len() {
            let old = std::mem::take(&mut self.slots);
            self.slots = vec![Slot::default(); old.len() * 2];
            self.slot_shift -= 1;
            for slot in old.into_iter().filter(|slot| slot.page != 0) {
                self.put(slot);
            }
        }
        let first = self.lines.len();
        self.lines.resize(first + (1 << self.lines_per_page_shift), NEW);
        self.homes.push(self.node_of[core]);
        self.put(Slot { page, first: first as u32 });
        first
    }

    fn put(&mut self, slot: Slot) {
        let mask = self.slots.len() - 1;
        let mut at =
            (slot.page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.slot_shift) as usize & mask;
        while self.slots[at].page != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    #[cold]
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // One call, inlined values of its caller.
    fn miss(
        &mut self,
        index: usize,
        core: usize,
        now: Ticks,
        site: u32,
        bits: u64,
        writes: bool,
        cost: Ticks,
    ) -> Outcome {
        let mut shared = false;
        if self.words > 2 {
            shared = self.is_sharer(index, core);
            if shared && !writes {
                let line = &mut self.lines[index];
                if line.row == NO_ROW {
                    line.touched |= bits;
                } else {
                    self.sharing.touch(line.row, core, bits);
                }
                return Outcome {
                    finish: now + cost,
                    miss: None,
                    contended: line.flags & CONTENDED != 0,
                };
            }
        } else if writes {
            shared = self.is_sharer(index, core);
        }
        if self.lines[index].order == UNTOUCHED {
            self.lines[index].order = self.touched_lines;
            self.touched_lines += 1;
        }
        let answer = self.answer(index, core, writes);
        let (false_shared, writer) = match answer.class.is_transfer() {
            true => self.classify(index, core, bits, writes),
            false => (false, None),
        };
        let service = self.costs.jittered(answer.latency, self.jitter.draw());
        let line = &mut self.lines[index];
        let start = now.max(line.busy);
        line.busy = start + answer.busy.unwrap_or(service);
        if answer.class.is_transfer() {
            line.flags |= CONTENDED;
        }
        let contended = line.flags & CONTENDED != 0;
        if writes {
            self.take(index, core, site, bits);
        } else {
            self.join(index, core, bits);
        }
        if !shared {
            self.insert(index, core);
        }
        let miss = Miss { class: answer.class, queue: start - now, service, false_shared, writer };
        Outcome { finish: start + service + cost, miss: Some(miss), contended }
    }

    /// The source of the answer, its latency, and how long the line is busy with it (`None`: all the while).
    fn answer(&self, index: usize, core: usize, writes: bool) -> Answer {
        let node = usize::from(self.node_of[core]);
        let line = &self.lines[index];
        let transfer = |from: usize, busy| Answer {
            class: if from == node { Class::LocalTransfer } else { Class::RemoteTransfer },
            latency: self.costs.transfer(from, node),
            busy,
        };
        if line.holder != NO_CORE {
            return transfer(usize::from(self.node_of[usize::from(line.holder)]), None);
        }
        let near = self.costs.near(node);
        let mut holders = near
            .iter()
            .map(|near| usize::from(*near))
            .filter(|near| self.others_on(index, core, *near));
        if writes {
            if let Some(farthest) = holders.next_back() {
                return transfer(farthest, None);
            }
            if self.is_sharer(index, core) {
                // The core is alone, but the directory does not know it: it asks, and no core has to answer.
                return Answer {
                    class: Class::LastLevel,
                    latency: self.costs.last_level,
                    busy: None,
                };
            }
        } else if let Some(nearest) = holders.next() {
            return transfer(nearest, Some(self.costs.shared_read));
        }
        let busy = Some(self.costs.memory_busy);
        if line.last_level >> node & 1 == 1 {
            return Answer { class: Class::LastLevel, latency: self.costs.last_level, busy };
        }
        if line.flags & LAST_LEVEL_DIRTY != 0
            && let Some(from) = near.iter().find(|near| line.last_level >> **near & 1 == 1)
        {
            return transfer(usize::from(*from), busy);
        }
        let home = usize::from(self.homes[index >> self.lines_per_page_shift]);
        let class = if home == node { Class::LocalMemory } else { Class::RemoteMemory };
        Answer { class, latency: self.costs.memory(home, node), busy }
    }

    /// Whether a transfer was for no byte of this access, and the last writer of the line.
    fn classify(
        &mut self,
        index: usize,
        core: usize,
        bits: u64,
        writes: bool,
    ) -> (bool, Option<u32>) {
        let eager = self.sharing.may_be_eager();
        let line = &mut self.lines[index];
        if line.row == NO_ROW && (writes || eager) {
            line.row = self.sharing.row();
            if line.holder == NO_CORE {
                // Several cores read it before its row was made: each core with a copy may have touched all of it.
                let touched = line.touched;
                let row = line.row;
                for other in 0..self.node_of.len() {
                    if self.is_sharer(index, other) {
                        self.sharing.touch(row, other, touched);
                    }
                }
            }
        }
        let line = &self.lines[index];
        let (held_written, held_touched) = match line.holder {
            NO_CORE => (0, 0),
            _ => (line.written, line.touched),
        };
        let mut news = held_written;
        let mut touched = held_touched;
        if line.row != NO_ROW {
            news |= self.sharing.lost(line.row, core);
            if writes && line.holder == NO_CORE {
                touched |= self.sharing.touched_by_others(line.row, core);
            }
        }
        let writer = (news != 0 && line.writer != NO_SITE).then_some(line.writer);
        let concerns = if writes { news | touched } else { news };
        (concerns != 0 && concerns & bits == 0, writer)
    }

    /// The core gets the line for itself.
    fn take(&mut self, index: usize, core: usize, site: u32, bits: u64) {
        self.publish(index);
        self.clear_sharers(index);
        let line = &mut self.lines[index];
        if line.row != NO_ROW {
            self.sharing.lose_all(line.row);
            self.sharing.gain(line.row, core, 0);
        }
        line.holder = core as u16;
        line.written = bits;
        line.touched = bits;
        line.writer = site;
        line.last_level = 0;
        line.flags = (line.flags | DIRTY) & !LAST_LEVEL_DIRTY;
    }

    /// The core gets a copy, alone if no other core has one.
    fn join(&mut self, index: usize, core: usize, bits: u64) {
        self.publish(index);
        let alone = self.lines[index].holder == NO_CORE && !self.has_sharers(index);
        let before = std::mem::replace(&mut self.lines[index].holder, NO_CORE);
        if alone {
            let line = &mut self.lines[index];
            line.holder = core as u16;
            line.written = 0;
            line.touched = bits;
        } else if before != NO_CORE {
            self.add_sharer(index, usize::from(before));
            self.add_sharer(index, core);
            let line = &mut self.lines[index];
            // Its new bytes are in memory now, and everybody knows of them.
            line.flags &= !DIRTY;
            line.touched |= bits;
            line.written = 0;
        } else {
            self.add_sharer(index, core);
            self.lines[index].touched |= bits;
        }
        let line = &self.lines[index];
        if line.row != NO_ROW {
            self.sharing.gain(line.row, core, if alone { 0 } else { bits });
        }
    }

    /// The holder, if there is one, is about to lose the line or to share it.
    fn publish(&mut self, index: usize) {
        let line = &self.lines[index];
        if line.holder != NO_CORE && line.row != NO_ROW {
            self.sharing.publish(line.row, usize::from(line.holder), line.written, line.touched);
        }
    }

    /// The core's own cache takes the line in, and may have to give up another.
    fn insert(&mut self, index: usize, core: usize) {
        let order = self.lines[index].order;
        let Some(private) = &mut self.private else { return };
        let Some(victim) = private.insert(core, index as u32, order) else { return };
        let victim = victim as usize;
        if self.lines[victim].holder == core as u16 {
            self.publish(victim);
            self.lines[victim].holder = NO_CORE;
        } else if self.lines[victim].holder == NO_CORE && self.is_sharer(victim, core) {
            self.remove_sharer(victim, core);
        } else {
            // Another core took it away long ago.
            return;
        }
        let line = &mut self.lines[victim];
        if line.row != NO_ROW {
            self.sharing.lose(line.row, core);
        }
        let dirty = line.flags & DIRTY != 0;
        line.flags &= !DIRTY;
        let node = usize::from(self.node_of[core]);
        let Some(last_level) = &mut self.last_level else { return };
        line.last_level |= 1 << node;
        if dirty {
            line.flags |= LAST_LEVEL_DIRTY;
        }
        let order = line.order;
        if let Some(out) = last_level.insert(node, victim as u32, order) {
            let out = &mut self.lines[out as usize];
            out.last_level &= !(1 << node);
            if out.last_level == 0 {
                out.flags &= !LAST_LEVEL_DIRTY;
            }
        }
    }

    fn sharers(&self, index: usize) -> &[u64] {
        let line = &self.lines[index];
        if self.words <= 2 {
            return &line.sharers[..self.words];
        }
        match line.sharers[0] {
            0 => &[],
            row => &self.wide[(row as usize - 1) * self.words..row as usize * self.words],
        }
    }

    fn sharers_mut(&mut self, index: usize) -> &mut [u64] {
        let line = &mut self.lines[index];
        if self.words <= 2 {
            return &mut line.sharers[..self.words];
        }
        if line.sharers[0] == 0 {
            self.wide.resize(self.wide.len() + self.words, 0);
            line.sharers[0] = (self.wide.len() / self.words) as u64;
        }
        let row = line.sharers[0] as usize;
        &mut self.wide[(row - 1) * self.words..row * self.words]
    }

    fn is_sharer(&self, index: usize, core: usize) -> bool {
        self.sharers(index).get(core / 64).is_some_and(|word| word >> (core % 64) & 1 == 1)
    }

    fn has_sharers(&self, index: usize) -> bool {
        self.sharers(index).iter().any(|word| *word != 0)
    }

    fn add_sharer(&mut self, index: usize, core: usize) {
        self.sharers_mut(index)[core / 64] |= 1 << (core % 64);
    }

    fn remove_sharer(&mut self, index: usize, core: usize) {
        self.sharers_mut(index)[core / 64] &= !(1 << (core % 64));
    }

    fn clear_sharers(&mut self, index: usize) {
        if self.words <= 2 || self.lines[index].sharers[0] != 0 {
            self.sharers_mut(index).fill(0);
        }
    }

    /// Whether a core of the node other than this one has a copy.
    fn others_on(&self, index: usize, core: usize, node: usize) -> bool {
        let sharers = self.sharers(index);
        let (first, end) = self.node_cores[node];
        let (first, end) = (first as usize, end as usize);
        (first / 64..end.div_ceil(64)).any(|word| {
            let Some(bits) = sharers.get(word) else { return false };
            let from = first.max(word * 64) - word * 64;
            let to = end.min(word * 64 + 64) - word * 64;
            let mut mask = (u64::MAX >> (64 - (to - from))) << from;
            if core / 64 == word {
                mask &= !(1 << (core % 64));
            }
            bits & mask != 0
        })
    }
}

const _: () = assert!(INLINE_CORES == 2 * 64 && size_of::<Line>() == 64);

struct Answer {
    class: Class,
    latency: Ticks,
    busy: Option<Ticks>,
}

#[cfg(test)]
mod tests;
