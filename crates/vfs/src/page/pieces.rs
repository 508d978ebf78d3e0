//! The bytes of a dirty page that were written here.
//!
//! # Boundary
//! Stores and joins ranges of bytes. Only for stores that other programs change: elsewhere a dirty page is written
//! whole.
//!
//! # Concurrency
//! Part of [`super::file::WriteState`], under its lock. A write is recorded and its page marked dirty in one hold of that
//! lock. So for other threads, a dirty page without an entry is one of which all bytes were written here. A run takes
//! the entries of its pages with the pages locked. A failed run puts them back before its pages are dirty again.
//!
//! # Why
//! A page is the unit of the cache, not of a program's writes. Without pieces, write-back overwrote bytes beside them,
//! which other programs had changed in the store, with their old values. Weakness: of more than [`PIECES_MAX`] pieces
//! of one page those with the narrowest gap are joined. Pages that a program has mapped come from the kernel as a
//! whole.

use super::PAGE;
use std::collections::BTreeMap;

/// Pieces stored for one page, at most.
const PIECES_MAX: usize = 16;
const WHOLE: (u16, u16) = (0, PAGE as u16);

/// Ranges of bytes within one page: sorted, none touches the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pieces(Vec<(u16, u16)>);

impl Pieces {
    pub(super) fn whole() -> Self {
        Self(vec![WHOLE])
    }

    fn is_whole(&self) -> bool {
        self.0 == [WHOLE]
    }

    /// The pieces as offsets into the page.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().map(|&(from, to)| (usize::from(from), usize::from(to)))
    }

    fn add(&mut self, (mut from, mut to): (u16, u16)) {
        let first = self.0.partition_point(|piece| piece.1 < from);
        let last = first + self.0[first..].partition_point(|piece| piece.0 <= to);
        if let Some(touched) = self.0.get(first..last).filter(|touched| !touched.is_empty()) {
            from = from.min(touched[0].0);
            to = to.max(touched[touched.len() - 1].1);
        }
        self.0.splice(first..last, [(from, to)]);
        if self.0.len() > PIECES_MAX {
            let gap = |at: &usize| self.0[at + 1].0 - self.0[*at].1;
            let narrowest = (0..self.0.len() - 1).min_by_key(gap).unwrap_or(0);
            let next = self.0.remove(narrowest + 1);
            self.0[narrowest].1 = next.1;
        }
    }

    fn cut(&mut self, end: u16) {
        self.0.retain(|piece| piece.0 < end);
        if let Some(last) = self.0.last_mut() {
            last.1 = last.1.min(end);
        }
    }
}

/// The pieces of the dirty pages of one file, by page. A dirty page without an entry was written whole.
#[derive(Debug)]
pub(super) struct Written(BTreeMap<u64, Pieces>);

impl Written {
    pub(super) const NOTHING: Self = Self(BTreeMap::new());

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes `from` to `to` of page `index`, which was `dirty` before, were written.
    pub(super) fn wrote(&mut self, index: u64, dirty: bool, (from, to): (usize, usize)) {
        let piece = (from as u16, to as u16);
        match self.0.get_mut(&index) {
            Some(pieces) => {
                pieces.add(piece);
                if pieces.is_whole() {
                    self.0.remove(&index);
                }
            }
            None if dirty || piece == WHOLE => {}
            None => _ = self.0.insert(index, Pieces(vec![piece])),
        }
    }

    /// Page `index` is sent to the store. Returns its pieces.
    pub(super) fn take(&mut self, index: u64) -> Pieces {
        self.0.remove(&index).unwrap_or_else(Pieces::whole)
    }

    /// `pieces` of page `index` did not arrive. `dirty`: the page has been written to meanwhile.
    pub(super) fn failed(&mut self, index: u64, pieces: Pieces, dirty: bool) {
        match self.0.get_mut(&index) {
            Some(newer) => pieces.0.into_iter().for_each(|piece| newer.add(piece)),
            None if dirty => {}
            // Whole ones too: a missing entry means "whole" for a dirty page only, and this one is not dirty yet.
            None => _ = self.0.insert(index, pieces),
        }
    }

    /// Page `index` ends at `end` now.
    pub(super) fn cut(&mut self, index: u64, end: usize) {
        if let Some(pieces) = self.0.get_mut(&index) {
            pieces.cut(end as u16);
        }
    }

    /// Page `index` was removed.
    pub(super) fn forget(&mut self, index: u64) {
        self.0.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(written: &[(u16, u16)]) -> Vec<(u16, u16)> {
        let mut pieces = Pieces(Vec::new());
        written.iter().for_each(|&piece| pieces.add(piece));
        pieces.0
    }

    #[test]
    fn pieces_are_joined_where_they_touch() {
        assert_eq!(pieces(&[(10, 20), (30, 40), (0, 5)]), [(0, 5), (10, 20), (30, 40)]);
        assert_eq!(pieces(&[(10, 20), (20, 30)]), [(10, 30)]);
        assert_eq!(pieces(&[(10, 20), (30, 40), (50, 60), (15, 50)]), [(10, 60)]);
        assert_eq!(pieces(&[(10, 20), (12, 14)]), [(10, 20)]);
        assert_eq!(pieces(&[(100, 4096), (0, 100)]), [WHOLE]);
    }

    #[test]
    fn of_too_many_the_nearest_are_joined() {
        let mut many: Vec<_> = (0..PIECES_MAX as u16).map(|at| (at * 100, at * 100 + 10)).collect();
        many.push((1620, 1630));
        many[3].1 += 85;
        let joined = pieces(&many);
        assert_eq!(joined.len(), PIECES_MAX);
        assert!(joined.contains(&(300, 410)) && joined.contains(&(1620, 1630)), "{joined:?}");
    }

    #[test]
    fn a_page_without_an_entry_is_whole_once_it_is_dirty() {
        let mut written = Written::NOTHING;
        written.wrote(7, false, (5, 6));
        written.wrote(7, true, (8, 9));
        assert_eq!(written.take(7).0, [(5, 6), (8, 9)]);
        assert!(written.take(7).is_whole(), "taken once");
        written.wrote(7, false, (0, 4096));
        written.wrote(7, true, (5, 6));
        assert!(written.take(7).is_whole());
        // A run fails with a page that was written to meanwhile, whole or in part, or not at all.
        written.failed(1, Pieces(vec![(5, 6)]), true);
        assert!(written.take(1).is_whole());
        written.wrote(2, false, (1, 2));
        written.failed(2, Pieces(vec![(5, 6)]), true);
        assert_eq!(written.take(2).0, [(1, 2), (5, 6)]);
        written.failed(3, Pieces::whole(), false);
        written.wrote(3, false, (1, 2));
        assert!(written.take(3).is_whole());
        written.wrote(4, false, (1, 2));
        written.wrote(4, true, (100, 200));
        written.cut(4, 150);
        assert_eq!(written.take(4).0, [(1, 2), (100, 150)]);
    }
}
