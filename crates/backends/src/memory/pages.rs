//! The data of one file: sparse pages, in chunks of 64.
//!
//! # Boundary
//! Bytes at offsets. Knows no size (the file's owner has it), no times, no locks.
//!
//! ```text
//!  chunks: BTreeMap<index, Chunk>          a chunk covers 256 KiB
//!            └─ present: one bit a page    ├─ pages[0..64]: 4 KiB each, or a hole
//! ```
//! P1. A chunk in the map has at least one page.
//! P2. Bit `n` of `present` is set exactly if `pages[n]` exists; see [`Chunk`].
//! P3. Bytes past the file's size are zero in an existing page, so a file may grow without changing pages. A truncation
//!     zeroes the rest of the last page ([`Pages::cut`]).
//! P4. A *reserved* page does not exist, but is paid for: its first write costs nothing more. A chunk is paid for while
//!     it is in the map or a page in it is reserved.
//!
//! # Why
//! A page is the unit of space, so that `blocks` and holes are exact. A chunk makes the map 64 times smaller:
//! sequential transfers cost one tree descent per 256 KiB, and are bound by memory speed. Weakness: the allocator may
//! keep freed memory for later pages instead of returning it to the host.

use super::budget::Charge;
use std::collections::BTreeMap;
use std::ops::Range;
use uvfs_vfs::{Error, Result};

/// Bytes of a page, the unit of space.
pub(super) const PAGE_BYTES: u64 = 4096;
const PAGE: usize = PAGE_BYTES as usize;
const CHUNK_PAGES: u64 = 64;
/// Bytes that one chunk covers.
pub(super) const CHUNK_BYTES: u64 = CHUNK_PAGES * PAGE_BYTES;
/// Cost of a chunk beside its pages: the chunk and its place in the map.
pub(super) const CHUNK_COST: u64 = 640;

/// How many pages one file can have for `bytes`, from its start on without a hole.
pub(super) fn pages_within(bytes: u64) -> u64 {
    let whole = CHUNK_BYTES + CHUNK_COST;
    bytes / whole * CHUNK_PAGES + (bytes % whole).saturating_sub(CHUNK_COST) / PAGE_BYTES
}

type Page = Box<[u8; PAGE]>;

/// Pages that were taken out of a file. Dropped by the caller after its locks, as giving a large
/// file's memory back takes time.
#[derive(Debug, Default)]
#[must_use = "drop it after the locks"]
pub(super) struct Removed {
    pages: Vec<Page>,
    chunks: Vec<Chunk>,
}

/// The pages of one file.
#[derive(Debug, Default)]
pub(super) struct Pages {
    chunks: BTreeMap<u64, Box<Chunk>>,
    count: u64,
    /// Pages that are paid for and not there (P4): one bit a page, by chunk; never 0.
    reserved: BTreeMap<u64, u64>,
}

impl Pages {
    /// How many pages there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Copies bytes out; holes are zeros.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut rest = into;
        let mut at = offset;
        while !rest.is_empty() {
            let within = at % CHUNK_BYTES;
            let here = rest.len().min((CHUNK_BYTES - within) as usize);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(here);
            match self.chunks.get(&(at / CHUNK_BYTES)) {
                Some(chunk) => chunk.read(within as usize, now),
                None => now.fill(0),
            }
            rest = later;
            at += here as u64;
        }
    }

    /// Copies bytes in, and makes the pages it needs while `charge` has room for them. Returns how
    /// many bytes; fewer than given mean that space ran out.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], charge: &mut Charge) -> usize {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = at % CHUNK_BYTES;
            let here = (data.len() - done).min((CHUNK_BYTES - within) as usize);
            let part = &data[done..done + here];
            let written = self.write_chunk(at / CHUNK_BYTES, within as usize, part, charge);
            done += written;
            if written < here {
                break;
            }
        }
        done
    }

    /// Pays for a write of `range`, all or nothing.
    pub(super) fn reserve(&mut self, range: Range<u64>, charge: &mut Charge) -> Result<()> {
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let (mut bytes, mut wanted) = (0, Vec::new());
        for chunk in pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES) {
            let missing = mask_of(&pages, chunk) & !self.present(chunk) & !self.reserved(chunk);
            if missing != 0 {
                bytes += self.chunk_cost(chunk) + u64::from(missing.count_ones()) * PAGE_BYTES;
                wanted.push((chunk, missing));
            }
            if bytes > charge.limit() {
                return Err(Error::NoSpace);
            }
        }
        charge.grow(bytes)?;
        for (chunk, missing) in wanted {
            *self.reserved.entry(chunk).or_default() |= missing;
        }
        Ok(())
    }

    /// Returns the reservations of the pages that `range` touches.
    pub(super) fn unreserve(&mut self, range: Range<u64>, charge: &mut Charge) {
        if self.reserved.is_empty() || range.is_empty() {
            return;
        }
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let chunks = pages.start / CHUNK_PAGES..=(pages.end - 1) / CHUNK_PAGES;
        let some: Vec<_> = self.reserved.range(chunks).map(|(&at, &bits)| (at, bits)).collect();
        for (chunk, bits) in some {
            let gone = bits & mask_of(&pages, chunk);
            let before = self.chunk_cost(chunk);
            self.take_reserved(chunk, gone);
            let chunk_bytes = self.chunk_cost(chunk) - before;
            charge.shrink(u64::from(gone.count_ones()) * PAGE_BYTES + chunk_bytes);
        }
    }

    fn present(&self, chunk: u64) -> u64 {
        self.chunks.get(&chunk).map_or(0, |chunk| chunk.present)
    }

    fn reserved(&self, chunk: u64) -> u64 {
        self.reserved.get(&chunk).copied().unwrap_or(0)
    }

    /// The cost of a chunk that is not paid for (P4).
    fn chunk_cost(&self, chunk: u64) -> u64 {
        let paid = self.chunks.contains_key(&chunk) || self.reserved.contains_key(&chunk);
        if paid { 0 } else { CHUNK_COST }
    }

    /// These pages of a chunk are not reserved any more.
    fn take_reserved(&mut self, chunk: u64, pages: u64) {
        if let Some(bits) = self.reserved.get_mut(&chunk) {
            *bits &= !pages;
            if *bits == 0 {
                self.reserved.remove(&chunk);
            }
        }
    }

    /// Removes everything from `size` on.
    pub(super) fn cut(&mut self, size: u64, charge: &mut Charge) -> Removed {
        self.unreserve(size.next_multiple_of(PAGE_BYTES)..u64::MAX, charge);
        self.zero_within_page(size, size.next_multiple_of(PAGE_BYTES));
        self.remove_pages(size.div_ceil(PAGE_BYTES)..u64::MAX, charge)
    }

    /// Makes zeros of `range`, and holes of the whole pages in it.
    pub(super) fn punch(&mut self, range: Range<u64>, charge: &mut Charge) -> Removed {
        self.zero_edges(&range);
        self.remove_pages(whole_pages(&range), charge)
    }

    /// Makes zeros of `range` in the pages that are there.
    pub(super) fn zero(&mut self, range: Range<u64>) {
        self.zero_edges(&range);
        let whole = whole_pages(&range);
        for (chunk, mask) in self.chunks_in(&whole) {
            if let Some(chunk) = self.chunks.get_mut(&chunk) {
                chunk.pages_of(mask).for_each(|page| page.fill(0));
            }
        }
    }

    /// Creates every missing page that `range` touches, all or nothing.
    pub(super) fn fill(&mut self, range: Range<u64>, charge: &mut Charge) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let chunks = pages.start / CHUNK_PAGES..pages.end.div_ceil(CHUNK_PAGES);
        let there = self.chunks_in(&pages);
        let present: u64 = there
            .iter()
            .filter_map(|(chunk, mask)| Some(self.chunks.get(chunk)?.present & mask))
            .map(|bits| u64::from(bits.count_ones()))
            .sum();
        let missing = pages.end - pages.start - present;
        let reserved = self.reserved.range(chunks.clone());
        let (mut paid, mut paid_chunks) = (0, 0);
        for (&chunk, bits) in reserved {
            paid += u64::from((bits & mask_of(&pages, chunk)).count_ones());
            paid_chunks += u64::from(!self.chunks.contains_key(&chunk));
        }
        let new_chunks = chunks.end - chunks.start - there.len() as u64 - paid_chunks;
        let cost = (missing - paid).checked_mul(PAGE_BYTES).ok_or(Error::NoSpace)?;
        // Paid before any page is made, so the free space bounds the loop below.
        charge.grow(cost.checked_add(new_chunks * CHUNK_COST).ok_or(Error::NoSpace)?)?;
        for chunk in chunks {
            let mask = mask_of(&pages, chunk);
            self.chunks.entry(chunk).or_default().fill(mask);
            self.take_reserved(chunk, mask);
        }
        self.count += missing;
        Ok(())
    }

    /// The first byte of a page at or after `offset`.
    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let page = offset / PAGE_BYTES;
        let first = page / CHUNK_PAGES;
        for (&chunk, pages) in self.chunks.range(first..) {
            let from = if chunk == first { page % CHUNK_PAGES } else { 0 };
            let bits = pages.present & (u64::MAX << from);
            if bits != 0 {
                let found = chunk * CHUNK_PAGES + u64::from(bits.trailing_zeros());
                return Some(offset.max(found * PAGE_BYTES));
            }
        }
        None
    }

    /// The first byte of no page at or after `offset`.
    pub(super) fn next_hole(&self, offset: u64) -> u64 {
        let mut page = offset / PAGE_BYTES;
        for (&chunk, pages) in self.chunks.range(page / CHUNK_PAGES..) {
            if chunk != page / CHUNK_PAGES {
                break;
            }
            let holes = !pages.present & (u64::MAX << (page % CHUNK_PAGES));
            if holes != 0 {
                page = chunk * CHUNK_PAGES + u64::from(holes.trailing_zeros());
                break;
            }
            page = (chunk + 1) * CHUNK_PAGES;
        }
        offset.max(page * PAGE_BYTES)
    }

    fn write_chunk(
        &mut self,
        index: u64,
        within: usize,
        data: &[u8],
        charge: &mut Charge,
    ) -> usize {
        let last = (within + data.len() - 1) / PAGE;
        let mask = mask_between((within / PAGE) as u64, last as u64);
        let missing = mask & !self.present(index);
        let mut paid = missing & self.reserved(index);
        let unpaid = missing & !paid;
        let wanted = u64::from(unpaid.count_ones());
        let granted = charge.grow_units(self.chunk_cost(index), PAGE_BYTES, wanted);
        // In the order of the file, up to the first page that cannot be had.
        let mut allowed = bits(unpaid).take(granted as usize).fold(0, |mask, at| mask | 1 << at);
        if let Some(refused) = bits(unpaid).nth(granted as usize) {
            paid &= (1 << refused) - 1;
        }
        allowed |= paid;
        if allowed == 0 && !self.chunks.contains_key(&index) {
            return 0;
        }
        self.count += u64::from(allowed.count_ones());
        let count = self.chunks.entry(index).or_default().write(within, data, allowed);
        self.take_reserved(index, allowed);
        count
    }

    /// Zeroes the parts of `range` that are no whole pages.
    fn zero_edges(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let head_end = range.start.next_multiple_of(PAGE_BYTES).min(range.end);
        self.zero_within_page(range.start, head_end);
        let tail = range.end - range.end % PAGE_BYTES;
        if tail >= head_end {
            self.zero_within_page(tail, range.end);
        }
    }

    /// Zeroes bytes that lie in one page, if the page is there.
    fn zero_within_page(&mut self, start: u64, end: u64) {
        let page = start / PAGE_BYTES;
        let Some(chunk) = self.chunks.get_mut(&(page / CHUNK_PAGES)) else { return };
        if let Some(page) = &mut chunk.pages[(page % CHUNK_PAGES) as usize] {
            let from = (start % PAGE_BYTES) as usize;
            page[from..from + (end - start) as usize].fill(0);
        }
    }

    fn remove_pages(&mut self, pages: Range<u64>, charge: &mut Charge) -> Removed {
        let mut removed = Removed::default();
        let mut bytes = 0;
        for (index, mask) in self.chunks_in(&pages) {
            let Some(chunk) = self.chunks.get_mut(&index) else { continue };
            let count = u64::from((chunk.present & mask).count_ones());
            if chunk.present & !mask == 0 {
                removed.chunks.extend(self.chunks.remove(&index).map(|chunk| *chunk));
                bytes += self.chunk_cost(index);
            } else {
                chunk.take(mask, &mut removed.pages);
            }
            self.count -= count;
            bytes += count * PAGE_BYTES;
        }
        charge.shrink(bytes);
        removed
    }

    /// The chunks that exist and have a part in `pages`, with the bits of that part.
    fn chunks_in(&self, pages: &Range<u64>) -> Vec<(u64, u64)> {
        if pages.is_empty() {
            return Vec::new();
        }
        let chunks = pages.start / CHUNK_PAGES..=(pages.end - 1) / CHUNK_PAGES;
        self.chunks.range(chunks).map(|(&chunk, _)| (chunk, mask_of(pages, chunk))).collect()
    }
}

/// 64 pages, some of which are there.
struct Chunk {
    present: u64,
    pages: [Option<Page>; CHUNK_PAGES as usize],
}

impl Default for Chunk {
    fn default() -> Self {
        Self { present: 0, pages: [const { None }; CHUNK_PAGES as usize] }
    }
}

impl std::fmt::Debug for Chunk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Chunk({:064b})", self.present)
    }
}

impl Chunk {
    fn read(&self, within: usize, into: &mut [u8]) {
        let mut at = within;
        let mut rest = into;
        while !rest.is_empty() {
            let from = at % PAGE;
            let here = rest.len().min(PAGE - from);
            let (now, later) = std::mem::take(&mut rest).split_at_mut(here);
            match &self.pages[at / PAGE] {
                Some(page) => now.copy_from_slice(&page[from..from + here]),
                None => now.fill(0),
            }
            rest = later;
            at += here;
        }
    }

    /// Writes `data` and creates up to `allowed` pages for it; stops where another page would be needed.
    fn write(&mut self, within: usize, data: &[u8], allowed: u64) -> usize {
        let mut done = 0;
        while done < data.len() {
            let at = within + done;
            let from = at % PAGE;
            let here = (data.len() - done).min(PAGE - from);
            let part = &data[done..done + here];
            let slot = &mut self.pages[at / PAGE];
            if slot.is_none() {
                if allowed >> (at / PAGE) & 1 == 0 {
                    break;
                }
                self.present |= 1 << (at / PAGE);
            }
            match slot {
                Some(page) => page[from..from + here].copy_from_slice(part),
                None => *slot = Some(page_with(from, part)),
            }
            done += here;
        }
        done
    }

    fn fill(&mut self, mask: u64) {
        for at in bits(mask & !self.present) {
            self.pages[at] = Some(page_with(0, &[]));
        }
        self.present |= mask;
    }

    fn take(&mut self, mask: u64, into: &mut Vec<Page>) {
        into.extend(bits(self.present & mask).filter_map(|at| self.pages[at].take()));
        self.present &= !mask;
    }

    fn pages_of(&mut self, mask: u64) -> impl Iterator<Item = &mut Page> {
        let wanted = move |&(at, _): &(usize, _)| mask >> at & 1 == 1;
        self.pages.iter_mut().enumerate().filter(wanted).filter_map(|(_, page)| page.as_mut())
    }
}

/// A page of zeros except for `part` at `from`. A whole page is copied without zeroing it first.
fn page_with(from: usize, part: &[u8]) -> Page {
    let mut bytes: Box<[u8]> = if part.len() == PAGE { part.into() } else { [0; PAGE].into() };
    if part.len() < PAGE {
        bytes[from..from + part.len()].copy_from_slice(part);
    }
    bytes.try_into().expect("PAGE bytes in either case")
}

fn whole_pages(range: &Range<u64>) -> Range<u64> {
    range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES
}

/// The bits of `chunk` for those of its pages that lie in `pages`, of which there must be one.
fn mask_of(pages: &Range<u64>, chunk: u64) -> u64 {
    let start = chunk * CHUNK_PAGES;
    let first = pages.start.saturating_sub(start);
    let last = (pages.end - 1 - start).min(CHUNK_PAGES - 1);
    mask_between(first, last)
}

fn mask_between(first: u64, last: u64) -> u64 {
    (u64::MAX << first) & (u64::MAX >> (CHUNK_PAGES - 1 - last))
}

fn bits(mask: u64) -> impl Iterator<Item = usize> {
    (0..CHUNK_PAGES as usize).filter(move |at| mask >> at & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::super::budget::{Budget, INODE_BYTES};
    use super::*;

    fn room(bytes: u64) -> (Budget, Charge) {
        let budget = Budget::new(INODE_BYTES + bytes, 1);
        let charge = budget.take_inode().unwrap();
        (budget, charge)
    }

    fn used(budget: &Budget) -> u64 {
        budget.racy_bytes() - INODE_BYTES
    }

    #[test]
    fn what_was_written_is_read_and_holes_are_zeros() {
        let (budget, mut charge) = room(1 << 30);
        let mut pages = Pages::default();
        let data: Vec<u8> = (0..1_000_000u32).map(|at| (at % 251) as u8).collect();
        let offset = CHUNK_BYTES * 3 - 12345;
        assert_eq!(pages.write(offset, &data, &mut charge), data.len());
        let mut back = vec![7; data.len() + 20_000];
        pages.read(offset - 10_000, &mut back);
        assert!(back[..10_000].iter().all(|&byte| byte == 0));
        assert_eq!(&back[10_000..10_000 + data.len()], data);
        assert!(back[10_000 + data.len()..].iter().all(|&byte| byte == 0));
        let touched = (offset + 1_000_000).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        assert_eq!(pages.count(), touched);
        assert_eq!(used(&budget), touched * PAGE_BYTES + 5 * CHUNK_COST);
    }

    #[test]
    fn a_write_goes_as_far_as_there_is_room() {
        let (budget, mut charge) = room(CHUNK_COST + 3 * PAGE_BYTES + 100);
        let mut pages = Pages::default();
        assert_eq!(pages.write(100, &[1; 20_000], &mut charge), 3 * PAGE - 100);
        assert_eq!(pages.write(CHUNK_BYTES, &[1], &mut charge), 0);
        assert_eq!(pages.write(0, &[2; PAGE * 3], &mut charge), PAGE * 3, "no new page needed");
        drop(pages.cut(0, &mut charge));
        assert_eq!(used(&budget), 0);
    }

    #[test]
    fn what_is_reserved_is_paid_for_once_and_always_written() {
        let (budget, mut charge) = room(2 * CHUNK_COST + 10 * PAGE_BYTES);
        let mut pages = Pages::default();
        let page = PAGE_BYTES;
        pages.reserve(100..2 * page + 1, &mut charge).unwrap();
        assert_eq!((used(&budget), pages.count()), (CHUNK_COST + 3 * page, 0));
        pages.reserve(0..3 * page, &mut charge).unwrap();
        assert_eq!(used(&budget), CHUNK_COST + 3 * page, "not twice");
        assert_eq!(pages.write(2 * page, &[1; 2 * PAGE], &mut charge), 2 * PAGE);
        assert_eq!((used(&budget), pages.count()), (CHUNK_COST + 4 * page, 2));
        // Another chunk takes the whole rest; reserved pages can still be written, and no others.
        pages.reserve(CHUNK_BYTES..CHUNK_BYTES + 6 * page, &mut charge).unwrap();
        assert!(pages.reserve(4 * page..5 * page, &mut charge).is_err());
        assert!(pages.reserve(4 * page..u64::MAX - CHUNK_BYTES, &mut charge).is_err());
        assert_eq!(
            pages.write(0, &[2; 8 * PAGE], &mut charge),
            4 * PAGE,
            "up to what is not reserved"
        );
        assert_eq!(used(&budget), 2 * CHUNK_COST + 10 * page);
        pages.unreserve(0..CHUNK_BYTES + page, &mut charge);
        assert_eq!(used(&budget), 2 * CHUNK_COST + 9 * page);
        drop(pages.cut(0, &mut charge));
        assert_eq!((used(&budget), pages.count()), (0, 0));
    }

    /// Either a chunk's pages or its reservations pay for it, never both.
    #[test]
    fn a_chunk_is_paid_for_while_anything_of_it_is_there_or_reserved() {
        let (budget, mut charge) = room(1 << 20);
        let (mut pages, page) = (Pages::default(), PAGE_BYTES);
        pages.reserve(0..2 * page, &mut charge).unwrap();
        assert_eq!(pages.write(0, &[1; PAGE], &mut charge), PAGE);
        drop(pages.punch(0..page, &mut charge));
        assert_eq!(used(&budget), CHUNK_COST + page, "the second page is reserved");
        pages.fill(0..2 * page, &mut charge).unwrap();
        assert_eq!(used(&budget), CHUNK_COST + 2 * page);
        pages.unreserve(0..u64::MAX, &mut charge);
        assert_eq!(used(&budget), CHUNK_COST + 2 * page);
        drop(pages.punch(0..2 * page, &mut charge));
        assert_eq!(used(&budget), 0);
    }

    #[test]
    fn a_cut_zeroes_the_rest_of_its_page() {
        let (_budget, mut charge) = room(1 << 20);
        let mut pages = Pages::default();
        pages.write(0, &[1; 10_000], &mut charge);
        drop(pages.cut(5000, &mut charge));
        assert_eq!(pages.count(), 2);
        let mut back = [9; 10_000];
        pages.read(0, &mut back);
        assert!(back[..5000].iter().all(|&byte| byte == 1));
        assert!(back[5000..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn punching_frees_whole_pages_and_zeroes_the_edges() {
        let (budget, mut charge) = room(1 << 20);
        let mut pages = Pages::default();
        pages.write(0, &[1; PAGE * 100], &mut charge);
        let (start, end) = (PAGE_BYTES + 1, PAGE_BYTES * 80 - 1);
        drop(pages.punch(start..end, &mut charge));
        assert_eq!(pages.count(), 100 - 77);
        assert_eq!(used(&budget), 23 * PAGE_BYTES + 2 * CHUNK_COST);
        let mut back = [0; PAGE * 100];
        pages.read(0, &mut back);
        for (at, &byte) in back.iter().enumerate() {
            assert_eq!(byte == 0, (start..end).contains(&(at as u64)), "{at}");
        }
        drop(pages.punch(10..20, &mut charge));
        drop(pages.punch(30..30, &mut charge));
        pages.read(0, &mut back);
        assert_eq!(&back[8..22], [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    }

    #[test]
    fn filling_is_all_or_nothing_and_refuses_the_absurd_at_once() {
        let (budget, mut charge) = room(CHUNK_COST * 2 + PAGE_BYTES * 70);
        let mut pages = Pages::default();
        pages.write(PAGE_BYTES, &[5; 10], &mut charge);
        let before = used(&budget);
        let end = i64::MAX as u64;
        assert!(matches!(pages.fill(0..end, &mut charge), Err(Error::NoSpace)));
        assert_eq!(used(&budget), before);
        pages.fill(1..PAGE_BYTES * 70, &mut charge).unwrap();
        assert_eq!((pages.count(), used(&budget)), (70, CHUNK_COST * 2 + PAGE_BYTES * 70));
        let mut back = [9; 12];
        pages.read(PAGE_BYTES, &mut back);
        assert_eq!(back, [5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0]);
    }

    #[test]
    fn data_and_holes_are_found_to_the_page() {
        let (_budget, mut charge) = room(1 << 20);
        let mut pages = Pages::default();
        assert_eq!(pages.next_data(0), None);
        assert_eq!(pages.next_hole(77), 77);
        let start = CHUNK_BYTES - 2 * PAGE_BYTES;
        pages.write(start, &[1; PAGE * 4], &mut charge);
        assert_eq!(pages.next_data(5), Some(start));
        assert_eq!(pages.next_data(start + 5), Some(start + 5));
        assert_eq!(pages.next_data(start + 4 * PAGE_BYTES), None);
        assert_eq!(pages.next_hole(5), 5);
        assert_eq!(pages.next_hole(start + 5), start + 4 * PAGE_BYTES);
        let far = CHUNK_BYTES * 1_000_000;
        pages.write(far, &[1], &mut charge);
        assert_eq!(pages.next_data(start + 4 * PAGE_BYTES), Some(far));
        pages.fill(0..CHUNK_BYTES, &mut charge).unwrap();
        assert_eq!(pages.next_hole(0), start + 4 * PAGE_BYTES);
    }
}
