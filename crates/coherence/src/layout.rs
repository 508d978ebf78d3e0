//! What-if layouts: memory whose fields lie elsewhere in the model than in the program.
//!
//! # Boundary
//! From an address of the program to where it would be; the program's memory stays as it is. Which
//! layout to try is the caller's ([`crate::configuration::Relayout`]).
//!
//! # Concurrency
//! None.
//!
//! # Why
//! An object whose new layout is no larger and no more aligned stays in its place, among its
//! neighbours. Any other object gets addresses that no program has, as if the allocator had given it a
//! fresh block. Freed blocks are reused, the last one first, as allocators do, so that they are
//! equally warm. The element's start keeps its remainder by the line where the new
//! alignment allows it. The bytes before the first element (the counts of an `Arc`) stay before it,
//! and share a line with it if the alignment is smaller than a line, as in the changed source.
//! Weakness: a moved object no longer shares its first and last line with its neighbours.

use crate::configuration::Relayout;
use crate::error::Error;
use std::collections::BTreeMap;

/// Where moved objects begin: beyond any address of a program.
const ELSEWHERE: u64 = 1 << 60;

/// Bytes of an element that stay together.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: u64,
    bytes: u64,
    to: u64,
}

/// A layout, ready for use.
#[derive(Debug)]
struct Plan {
    change: Relayout,
    /// All of the element, by `from`.
    segments: Vec<Segment>,
}

/// One object with a new layout.
#[derive(Debug, Clone)]
struct Range {
    end: u64,
    /// In `plans`.
    plan: usize,
    /// New address of the bytes before the first element.
    base: u64,
    /// New address of the first element.
    row: u64,
    /// Elements.
    count: u64,
    /// The new block; zero if it is the old one.
    block: Block,
}

/// The properties that tell one kind of block of the region from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Block {
    bytes: u64,
    align: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Layouts {
    line_bytes: u64,
    /// Every changed address is in `[low, low + span)`.
    low: u64,
    span: u64,
    ranges: BTreeMap<u64, Range>,
    plans: Vec<Plan>,
    cursor: u64,
    free: BTreeMap<Block, Vec<u64>>,
}

type Range64 = std::ops::Range<u64>;

/// Whether a layout can be: sizes, alignment, and every byte at one place.
pub fn check(change: &Relayout) -> Result<(), Error> {
    plan(change).map(|_| ())
}

fn plan(change: &Relayout) -> Result<Plan, Error> {
    let wrong = |cause: String| Err(Error::new(format!("layout: {cause}")));
    if change.size == 0 {
        return wrong("the element has no bytes".to_string());
    }
    if !change.align.is_power_of_two() || change.align > 1 << 20 {
        return wrong(format!(
            "the alignment is {}, but must be a power of two up to a MiB",
            change.align
        ));
    }
    let mut segments: Vec<Segment> = change
        .moves
        .iter()
        .map(|step| Segment { from: step.from, bytes: step.bytes, to: step.to })
        .collect();
    segments.retain(|segment| segment.bytes > 0);
    segments.sort_by_key(|segment| segment.from);
    let mut unnamed = Vec::new();
    let mut at = 0;
    for segment in &segments {
        let reach = segment.from.checked_add(segment.bytes).filter(|reach| *reach <= change.size);
        let Some(reach) = reach else {
            return wrong(format!(
                "bytes {} and on are beyond the element's {}",
                segment.from, change.size
            ));
        };
        if segment.from < at {
            return wrong(format!("byte {} is moved twice", segment.from));
        }
        unnamed.push(at..segment.from);
        at = reach;
    }
    unnamed.push(at..change.size);
    let mut all = segments;
    let room = room(&all, change.new_size);
    all.extend(placed(&unnamed, &room).map_err(|missing| {
        let needs = change.new_size.saturating_add(missing);
        Error::new(format!("layout: the element needs {needs} bytes, but has {}", change.new_size))
    })?);
    all.sort_by_key(|segment| segment.from);
    if let Some(last) = all.iter().find(|last| last.to.saturating_add(last.bytes) > change.new_size)
    {
        let needs = last.to.saturating_add(last.bytes);
        return wrong(format!("the element needs {needs} bytes, but has {}", change.new_size));
    }
    let mut by_target: Vec<&Segment> = all.iter().collect();
    by_target.sort_by_key(|segment| segment.to);
    if let Some(pair) = by_target.windows(2).find(|pair| pair[0].to + pair[0].bytes > pair[1].to) {
        return wrong(format!("two fields are moved to byte {}", pair[1].to));
    }
    Ok(Plan { change: change.clone(), segments: all })
}

/// Where no move puts anything: behind the last first, then between them, where padding finds its place.
fn room(moved: &[Segment], new_size: u64) -> Vec<Range64> {
    let mut targets: Vec<Range64> =
        moved.iter().map(|segment| segment.to..segment.to.saturating_add(segment.bytes)).collect();
    targets.sort_by_key(|target| target.start);
    let mut holes = Vec::new();
    let mut at = 0;
    for target in &targets {
        holes.push(at..target.start);
        at = at.max(target.end);
    }
    let behind = at..new_size;
    std::iter::once(behind).chain(holes).filter(|hole| hole.start < hole.end).collect()
}

/// Puts bytes that no move names into `room`, in their order, or says how many find none.
fn placed(unnamed: &[Range64], room: &[Range64]) -> Result<Vec<Segment>, u64> {
    let mut room = room.iter().cloned();
    let mut hole = room.next();
    let mut pieces = Vec::new();
    let mut missing = 0;
    for bytes in unnamed {
        let mut from = bytes.start;
        while from < bytes.end {
            let Some(at) = &mut hole else {
                missing += bytes.end - from;
                break;
            };
            let count = (bytes.end - from).min(at.end - at.start);
            pieces.push(Segment { from, bytes: count, to: at.start });
            (from, at.start) = (from + count, at.start + count);
            if at.start == at.end {
                hole = room.next();
            }
        }
    }
    if missing == 0 { Ok(pieces) } else { Err(missing) }
}

impl Layouts {
    /// None yet.
    pub fn new(line_bytes: u64) -> Self {
        Self {
            line_bytes,
            low: 0,
            span: 0,
            ranges: BTreeMap::new(),
            plans: Vec::new(),
            cursor: ELSEWHERE,
            free: BTreeMap::new(),
        }
    }

    /// False: the address is where it is.
    #[inline]
    pub(crate) fn may_concern(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.span
    }

    /// Memory of at least one element has the layout from now on. One that [`check`] refuses changes
    /// nothing.
    pub fn add(&mut self, start: u64, bytes: u64, change: &Relayout) {
        self.forget(start, bytes);
        let plan = match self.plans.iter().position(|plan| plan.change == *change) {
            Some(plan) => plan,
            None => {
                let Ok(plan) = plan(change) else { return };
                self.plans.push(plan);
                self.plans.len() - 1
            }
        };
        let count = bytes.saturating_sub(change.first) / change.size;
        if count == 0 {
            return;
        }
        let first = start + change.first;
        let range = if change.new_size <= change.size && first.is_multiple_of(change.align) {
            Range {
                end: start + bytes,
                plan,
                base: start,
                row: first,
                count,
                block: Block::default(),
            }
        } else {
            let offset = change.first.next_multiple_of(change.align);
            let remainder = match change.align < self.line_bytes {
                true => (start % self.line_bytes).next_multiple_of(change.align),
                false => 0,
            };
            let tail = bytes - change.first - count * change.size;
            let whole = remainder + offset + count * change.new_size + tail;
            let align = change.align.max(self.line_bytes);
            let block = Block { bytes: whole.next_multiple_of(align), align };
            let base = self.take(block) + remainder;
            Range { end: start + bytes, plan, base, row: base + offset, count, block }
        };
        self.ranges.insert(start, range);
        self.measure();
    }

    /// The memory is as it was.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        if self.ranges.is_empty() {
            return;
        }
        let before = self.ranges.range(..start).next_back().filter(|(_, range)| range.end > start);
        let mut gone: Vec<u64> = before.map(|(start, _)| *start).into_iter().collect();
        gone.extend(self.ranges.range(start..start.saturating_add(bytes)).map(|(start, _)| *start));
        for start in &gone {
            if let Some(range) = self.ranges.remove(start)
                && range.block.bytes > 0
            {
                let block = range.base - range.base % range.block.align;
                self.free.entry(range.block).or_default().push(block);
            }
        }
        if !gone.is_empty() {
            self.measure();
        }
    }

    fn take(&mut self, block: Block) -> u64 {
        if let Some(start) = self.free.get_mut(&block).and_then(Vec::pop) {
            return start;
        }
        let start = self.cursor.next_multiple_of(block.align);
        self.cursor = start + block.bytes;
        start
    }

    fn measure(&mut self) {
        let low = self.ranges.first_key_value().map_or(0, |(start, _)| *start);
        let end = self.ranges.last_key_value().map_or(0, |(_, range)| range.end);
        self.low = low;
        self.span = end - low;
    }

    /// Where bytes of the program are, as pieces within one line each, in the order of the bytes.
    pub fn translate(&self, address: u64, bytes: u32) -> Vec<(u64, u32)> {
        let mut pieces: Vec<(u64, u32)> = Vec::new();
        let (mut at, end) = (address, address + u64::from(bytes.max(1)));
        while at < end {
            let (target, run) = self.target(at, end - at);
            let mut done = 0;
            while done < run {
                let here = target + done;
                let step = (self.line_bytes - here % self.line_bytes).min(run - done);
                match pieces.last_mut() {
                    Some((last, length))
                        if *last + u64::from(*length) == here && here % self.line_bytes != 0 =>
                    {
                        *length += step as u32;
                    }
                    _ => pieces.push((here, step as u32)),
                }
                done += step;
            }
            at += run;
        }
        pieces
    }

    /// Where a byte is, and how many that follow it lie as they did.
    fn target(&self, at: u64, wanted: u64) -> (u64, u64) {
        let Some((start, range)) =
            self.ranges.range(..=at).next_back().filter(|(_, range)| at < range.end)
        else {
            let next = self.ranges.range(at..).next().map_or(wanted, |(start, _)| *start - at);
            return (at, wanted.min(next));
        };
        let Plan { change, segments } = &self.plans[range.plan];
        let offset = at - start;
        if offset < change.first {
            return (range.base + offset, wanted.min(change.first - offset));
        }
        let element = (offset - change.first) / change.size;
        if element >= range.count {
            let tail = offset - change.first - range.count * change.size;
            // In place, the row may have become shorter; the tail stays where it was all the same.
            let target = match range.block.bytes {
                0 => at,
                _ => range.row + range.count * change.new_size + tail,
            };
            return (target, wanted.min(range.end - at));
        }
        let inner = (offset - change.first) % change.size;
        let index = segments.partition_point(|segment| segment.from <= inner) - 1;
        let segment = segments[index];
        let target = range.row + element * change.new_size + segment.to + (inner - segment.from);
        (target, wanted.min(segment.from + segment.bytes - inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::{Move, Target};

    fn change(size: u64, new_size: u64, align: u64, moves: &[(u64, u64, u64)]) -> Relayout {
        let moves = moves
            .iter()
            .map(|(from, bytes, to)| Move { from: *from, bytes: *bytes, to: *to })
            .collect();
        Relayout { target: Target::Allocation(Vec::new()), size, new_size, align, moves, first: 0 }
    }

    fn place(layouts: &Layouts, address: u64) -> u64 {
        layouts.translate(address, 1)[0].0
    }

    /// Moves name fields only. A structure with padding was refused because no room was left behind its last field, and
    /// the layout under trial changed nothing.
    #[test]
    fn padding_fills_holes_where_there_is_no_room_behind_the_last() {
        let own = change(2304, 2304, 64, &[(0, 8, 2240), (8, 2088, 8), (2176, 8, 2176)]);
        check(&own).unwrap();
        let mut layouts = Layouts::new(64);
        layouts.add(0x1000, 2304, &own);
        let row = place(&layouts, 0x1008) - 8;
        assert_eq!(place(&layouts, 0x1000), row + 2240);
        assert_eq!(place(&layouts, 0x1000 + 2176), row + 2176);
        let mut places: Vec<u64> = (0..2304).map(|at| place(&layouts, 0x1000 + at)).collect();
        places.sort_unstable();
        assert!(places.iter().copied().eq(row..row + 2304), "each byte has one place");
        let tight = change(24, 16, 8, &[(0, 8, 8)]);
        assert!(check(&tight).unwrap_err().to_string().contains("needs 24 bytes, but has 16"));
    }

    #[test]
    fn an_own_line_is_one() {
        // Bytes 8 to 15 of an element of 24 go to a line of their own; the rest closes up behind it.
        let own = change(24, 128, 64, &[(0, 8, 0), (16, 8, 8), (8, 8, 64)]);
        let mut layouts = Layouts::new(64);
        layouts.add(0x1000, 48, &own);
        let row = place(&layouts, 0x1000);
        assert!(row >= ELSEWHERE && row.is_multiple_of(64));
        assert_eq!(place(&layouts, 0x1008), row + 64);
        assert_eq!(place(&layouts, 0x1010), row + 8);
        assert_eq!(place(&layouts, 0x1018 + 8), row + 128 + 64);
        assert_eq!(layouts.translate(0x1004, 16), [(row + 4, 4), (row + 64, 8), (row + 8, 4)]);
        assert_eq!(place(&layouts, 0xfff), 0xfff);
        assert_eq!(place(&layouts, 0x1030), 0x1030);
        assert!(
            layouts.may_concern(0x1000)
                && !layouts.may_concern(0xfff)
                && !layouts.may_concern(0x1030)
        );
    }

    #[test]
    fn a_reorder_stays_in_place() {
        let mut layouts = Layouts::new(64);
        layouts.add(0x1010, 16, &change(16, 16, 8, &[(0, 8, 8), (8, 8, 0)]));
        assert_eq!(place(&layouts, 0x1010), 0x1018);
        assert_eq!(place(&layouts, 0x101c), 0x1014);
    }

    #[test]
    fn what_stands_before_the_first_element_stays_before_it() {
        // The two counts of an `Arc`, then the value at 16; with an alignment of 64 the value is at 64.
        let mut aligned = change(8, 64, 64, &[]);
        aligned.first = 16;
        let mut layouts = Layouts::new(64);
        layouts.add(0x1010, 24, &aligned);
        let base = place(&layouts, 0x1010);
        assert!(base.is_multiple_of(64));
        assert_eq!((place(&layouts, 0x1018), place(&layouts, 0x1020)), (base + 8, base + 64));
        // With 32 it is still on their line.
        aligned.align = 32;
        layouts.add(0x2020, 24, &aligned);
        let base = place(&layouts, 0x2020);
        assert_eq!(base % 64, 32);
        assert_eq!(place(&layouts, 0x2030), base + 32);
    }

    #[test]
    fn freed_blocks_are_given_out_again_the_last_first() {
        let own = change(8, 64, 64, &[]);
        let mut layouts = Layouts::new(64);
        layouts.add(0x1000, 8, &own);
        layouts.add(0x2000, 8, &own);
        let (one, two) = (place(&layouts, 0x1000), place(&layouts, 0x2000));
        layouts.forget(0x1000, 8);
        layouts.forget(0x2000, 8);
        assert!(!layouts.may_concern(0x1000));
        layouts.add(0x3000, 8, &own);
        layouts.add(0x4000, 8, &own);
        assert_eq!((place(&layouts, 0x3000), place(&layouts, 0x4000)), (two, one));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        let refused = |change: Relayout, cause: &str| {
            let error = check(&change).expect_err("must be refused").to_string();
            assert!(error.contains(cause), "{error}");
            let mut layouts = Layouts::new(64);
            layouts.add(0x1000, 64, &change);
            assert!(!layouts.may_concern(0x1000), "and changes nothing");
        };
        refused(change(0, 8, 8, &[]), "no bytes");
        refused(change(8, 8, 24, &[]), "a power of two");
        refused(change(8, 8, 8, &[(4, 8, 0)]), "beyond");
        refused(change(8, 8, 8, &[(u64::MAX, 8, 0)]), "beyond");
        refused(change(8, 16, 8, &[(0, 4, 0), (2, 4, 8)]), "moved twice");
        refused(change(8, 16, 8, &[(0, 4, 0), (4, 4, 2)]), "two fields");
        refused(change(8, 8, 8, &[(0, 4, 8)]), "needs 12 bytes");
    }
}
