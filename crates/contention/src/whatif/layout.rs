//! Where the bytes of a type go under a change.
//!
//! # Boundary
//! Offsets only; the types of a profile are the caller's.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A block moves as a whole: a field, or all fields that share bytes. A block keeps the alignment that its
//! place shows. Weakness: a field that happened to lie at a multiple of sixteen is kept at one.

use super::parse::Action;
use uvfs_coherence::configuration::Move;

/// Bytes that move together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Block {
    /// Blocks by offset, of fields that may overlap; empty fields are in none.
    pub(super) fn of(fields: impl Iterator<Item = (u64, u64)>) -> Vec<Self> {
        let mut fields: Vec<(u64, u64)> = fields.filter(|(_, bytes)| *bytes > 0).collect();
        fields.sort_unstable();
        let mut blocks: Vec<Self> = Vec::new();
        for (offset, bytes) in fields {
            let end = offset.saturating_add(bytes);
            match blocks.last_mut() {
                Some(last) if offset < last.end() => last.bytes = end.max(last.end()) - last.offset,
                _ => blocks.push(Self { offset, bytes: end - offset }),
            }
        }
        blocks
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// The alignment that its place and size suggest, at most sixteen.
    fn align(&self) -> u64 {
        let size = if self.bytes.is_power_of_two() {
            self.bytes
        } else {
            self.bytes & self.bytes.wrapping_neg()
        };
        let place = if self.offset == 0 { 16 } else { 1 << self.offset.trailing_zeros().min(4) };
        size.min(place).min(16)
    }
}

/// A type and the parts of it that a change names.
#[derive(Debug, Clone)]
pub(super) struct Element {
    pub(super) size: u64,
    /// Zero where it is not known.
    pub(super) align: u64,
    /// All of it that is not padding, by offset.
    pub(super) blocks: Vec<Block>,
    /// Indices of blocks that move.
    pub(super) selected: Vec<usize>,
    /// Indices of blocks that the action names.
    pub(super) against: Vec<usize>,
}

impl Element {
    /// The block that holds the byte at `offset`.
    pub(super) fn block_at(&self, offset: u64) -> Option<usize> {
        self.blocks.iter().position(|block| block.offset <= offset && offset < block.end())
    }
}

/// A layout for the runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) new_size: u64,
    pub(super) align: u64,
    pub(super) moves: Vec<Move>,
}

/// The layout of `element` under `action`, with lines of `line` bytes; `aligned` is how its objects are
/// aligned today.
pub(super) fn plan(
    element: &Element,
    action: &Action,
    line: u64,
    aligned: u64,
) -> Result<Plan, String> {
    if element.size == 0 || element.blocks.is_empty() {
        return Err(
            "its size or its fields are not known: build with debug information (-g)".to_owned()
        );
    }
    let aligned = aligned.max(element.align.max(1).next_power_of_two().min(line));
    let is_selected = |index: &usize| element.selected.contains(index);
    let all = || 0..element.blocks.len();
    let stay = |moves: &mut Vec<Move>| {
        moves.extend(all().filter(|index| !is_selected(index)).map(|index| {
            let block = element.blocks[index];
            Move { from: block.offset, bytes: block.bytes, to: block.offset }
        }));
    };
    let mut moves: Vec<Move> = Vec::new();
    let (end, align) = match action {
        Action::OwnLine => {
            if all().all(|index| is_selected(&index)) {
                return Err("these are all its fields; use `align` for the whole".to_owned());
            }
            stay(&mut moves);
            let start = round_up(end(&moves), line);
            let end = pack(element, all().filter(is_selected), start, &mut moves);
            (round_up(end, line), line)
        }
        Action::OwnLines => {
            stay(&mut moves);
            let mut at = end(&moves);
            for index in all().filter(is_selected) {
                at = pack(element, std::iter::once(index), round_up(at, line), &mut moves);
            }
            (round_up(at, line), line)
        }
        Action::AwayFrom(_) => {
            if element.against.iter().any(is_selected) {
                return Err("the two share bytes and cannot be parted".to_owned());
            }
            stay(&mut moves);
            // Behind the rest, and past the last line that the others are on.
            let others = element.against.iter().map(|index| element.blocks[*index].end());
            let past = round_up(others.max().unwrap_or(0), line);
            let start = end(&moves).max(past);
            let end = pack(element, all().filter(is_selected), start, &mut moves);
            (round_up(end, element.align.max(8)), line)
        }
        Action::Align(bytes) => {
            stay(&mut moves);
            (round_up(element.size, *bytes), *bytes)
        }
        Action::Pad(bytes) => {
            stay(&mut moves);
            (round_up(element.size, *bytes), aligned)
        }
        Action::Order(_) => {
            let mut first: Vec<usize> = Vec::new();
            for index in &element.against {
                if !first.contains(index) {
                    first.push(*index);
                }
            }
            let rest = all().filter(|index| !first.contains(index));
            let end = pack(element, first.iter().copied().chain(rest), 0, &mut moves);
            let widest = element.blocks.iter().map(Block::align).max().unwrap_or(1);
            (round_up(end, element.align.max(widest)), aligned)
        }
    };
    moves.sort_by_key(|one| one.from);
    Ok(Plan { new_size: end, align, moves: joined(moves) })
}

/// Lays blocks one behind the other from `start`, each aligned; the end of the last.
fn pack(
    element: &Element,
    blocks: impl Iterator<Item = usize>,
    start: u64,
    moves: &mut Vec<Move>,
) -> u64 {
    let mut at = start;
    for index in blocks {
        let block = element.blocks[index];
        at = round_up(at, block.align());
        moves.push(Move { from: block.offset, bytes: block.bytes, to: at });
        at += block.bytes;
    }
    at
}

fn end(moves: &[Move]) -> u64 {
    moves.iter().map(|one| one.to + one.bytes).max().unwrap_or(0)
}

fn round_up(value: u64, to: u64) -> u64 {
    value.div_ceil(to.max(1)) * to.max(1)
}

/// Neighbours that stay neighbours are one move.
fn joined(moves: Vec<Move>) -> Vec<Move> {
    let mut joined: Vec<Move> = Vec::new();
    for one in moves {
        match joined.last_mut() {
            Some(last) if last.from + last.bytes == one.from && last.to + last.bytes == one.to => {
                last.bytes += one.bytes;
            }
            _ => joined.push(one),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn element(size: u64, fields: &[(u64, u64)], selected: &[usize], against: &[usize]) -> Element {
        let blocks = Block::of(fields.iter().copied());
        Element { size, align: 8, blocks, selected: selected.to_vec(), against: against.to_vec() }
    }

    fn go(from: u64, bytes: u64, to: u64) -> Move {
        Move { from, bytes, to }
    }

    #[test]
    fn a_field_gets_a_line_behind_the_rest() {
        let three = [(0, 4), (8, 8), (16, 4)];
        let plan = plan(&element(24, &three, &[1], &[]), &Action::OwnLine, 64, 16).unwrap();
        assert_eq!(plan.moves, [go(0, 4, 0), go(8, 8, 64), go(16, 4, 16)]);
        assert_eq!((plan.new_size, plan.align), (128, 64));
    }

    #[test]
    fn each_field_gets_a_line() {
        let three = [(0, 8), (8, 8), (16, 8)];
        let plan = plan(&element(24, &three, &[0, 1, 2], &[]), &Action::OwnLines, 64, 16).unwrap();
        assert_eq!(plan.moves, [go(0, 8, 0), go(8, 8, 64), go(16, 8, 128)]);
        assert_eq!((plan.new_size, plan.align), (192, 64));
    }

    #[test]
    fn away_takes_no_more_room_than_it_must() {
        let action = Action::AwayFrom(Vec::new());
        // The lock goes behind the data's line only.
        let fields = [(0, 8), (8, 56), (64, 8)];
        let plan = plan(&element(72, &fields, &[0], &[1]), &action, 64, 16).unwrap();
        assert_eq!(plan.moves[0], go(0, 8, 72));
        assert_eq!(plan.new_size, 80);
    }

    #[test]
    fn a_whole_is_aligned_and_padded() {
        let one = element(24, &[(0, 8), (8, 8), (16, 4)], &[], &[]);
        let aligned = plan(&one, &Action::Align(64), 64, 16).unwrap();
        assert_eq!((aligned.new_size, aligned.align), (64, 64));
        assert_eq!(aligned.moves, [go(0, 20, 0)]);
        let padded = plan(&one, &Action::Pad(48), 64, 16).unwrap();
        assert_eq!((padded.new_size, padded.align), (48, 16));
    }

    #[test]
    fn an_order_packs_by_alignment() {
        let one = element(24, &[(0, 8), (8, 2), (16, 8)], &[], &[1, 2]);
        let plan = plan(&one, &Action::Order(Vec::new()), 64, 16).unwrap();
        assert_eq!(plan.moves, [go(0, 8, 16), go(8, 2, 0), go(16, 8, 8)]);
        assert_eq!(plan.new_size, 24);
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let union = element(16, &[(0, 8), (4, 8)], &[0], &[0]);
        assert!(plan(&union, &Action::AwayFrom(Vec::new()), 64, 16).unwrap_err().contains("share"));
        assert!(plan(&union, &Action::OwnLine, 64, 16).unwrap_err().contains("all its fields"));
        let unknown = element(0, &[], &[], &[]);
        assert!(plan(&unknown, &Action::Align(64), 64, 16).is_err());
    }

    proptest! {
        /// Every field goes somewhere, no two to one place, each keeps its alignment, and the promise of
        /// the action holds.
        #[test]
        fn moves_cover_all_fields_and_never_overlap(
            fields in prop::collection::vec((0_u64..300, 1_u64..40), 2..12),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            others in prop::collection::vec(any::<prop::sample::Index>(), 1..4),
            which in 0..6,
            line in prop::sample::select(vec![32_u64, 64, 128]),
        ) {
            let blocks = Block::of(fields.iter().copied());
            let size = round_up(blocks.iter().map(Block::end).max().unwrap(), 8);
            let choose = |picks: &[prop::sample::Index]| -> Vec<usize> {
                picks.iter().map(|pick| pick.index(blocks.len())).collect()
            };
            let selected = if which < 2 || which == 5 { choose(&picks) } else { Vec::new() };
            let against = if which == 1 || which == 4 { choose(&others) } else { Vec::new() };
            let action = match which {
                0 => Action::OwnLine,
                1 => Action::AwayFrom(Vec::new()),
                2 => Action::Align(64),
                3 => Action::Pad(48),
                5 => Action::OwnLines,
                _ => Action::Order(Vec::new()),
            };
            let element = Element { size, align: 8, blocks, selected, against };
            let Ok(plan) = plan(&element, &action, line, 8) else { return Ok(()) };
            let whereto = |offset: u64| {
                let one = plan.moves.iter().find(|one| one.from <= offset && offset < one.from + one.bytes);
                one.map(|one| one.to + offset - one.from)
            };
            for (offset, bytes) in &fields {
                for byte in *offset..offset + bytes {
                    prop_assert!(whereto(byte).is_some(), "byte {byte} is lost");
                }
            }
            let mut goals: Vec<_> = plan.moves.iter().map(|one| (one.to, one.bytes)).collect();
            goals.sort_unstable();
            for pair in goals.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{goals:?}");
            }
            let mut sources: Vec<_> = plan.moves.iter().map(|one| (one.from, one.bytes)).collect();
            sources.sort_unstable();
            for pair in sources.windows(2) {
                prop_assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{sources:?}");
            }
            prop_assert!(goals.last().is_some_and(|(to, bytes)| to + bytes <= plan.new_size));
            prop_assert!(plan.align.is_power_of_two());
            for block in &element.blocks {
                prop_assert_eq!(whereto(block.offset).unwrap() % block.align(), 0);
            }
            let lines = |indices: &[usize]| -> std::collections::BTreeSet<u64> {
                let blocks = indices.iter().map(|index| element.blocks[*index]);
                blocks.flat_map(|block| block.offset..block.end()).map(|byte| whereto(byte).unwrap() / line).collect()
            };
            let rest: Vec<usize> = (0..element.blocks.len())
                .filter(|index| !element.selected.contains(index)).collect();
            match action {
                Action::OwnLine => prop_assert!(lines(&element.selected).is_disjoint(&lines(&rest))),
                Action::OwnLines => {
                    for one in &element.selected {
                        let others: Vec<usize> =
                            (0..element.blocks.len()).filter(|index| index != one).collect();
                        prop_assert!(lines(&[*one]).is_disjoint(&lines(&others)));
                    }
                }
                Action::AwayFrom(_) => {
                    prop_assert!(lines(&element.selected).is_disjoint(&lines(&element.against)));
                }
                Action::Align(bytes) | Action::Pad(bytes) => prop_assert_eq!(plan.new_size % bytes, 0),
                Action::Order(_) => prop_assert_eq!(whereto(element.blocks[element.against[0]].offset), Some(0)),
            }
        }
    }
}
