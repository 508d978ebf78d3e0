//! Which instruction, called from where: dense numbers for sites.
//!
//! # Boundary
//! From (return address, callers, kind) to a number and back.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! Every access needs its site's number, since the model remembers the last writer; a direct-mapped cache
//! answers nearly always. Weakness: two sites with equal 64-bit hashes of callers would be taken for one.

use crate::state::Table;

/// Functions around a site that are kept.
pub(crate) const CALLERS: usize = 4;
const CACHED: usize = 1 << 13;
/// More sites than this are not told apart by their callers any more.
const DISTINGUISHED_MAX: usize = 1 << 20;

/// A site as it is reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) pc: u64,
    pub(crate) kind: u32,
    pub(crate) callers: [u64; CALLERS],
}

#[derive(Debug, Clone, Copy)]
struct Cached {
    pc: u64,
    context: u64,
    kind: u32,
    site: u32,
}

/// All sites so far.
pub(crate) struct Sites {
    all: Vec<Site>,
    cache: Box<[Cached; CACHED]>,
    table: Table<(u64, u64, u32), u32>,
}

fn empty_cache() -> Box<[Cached; CACHED]> {
    let empty = Cached { pc: 0, context: 0, kind: u32::MAX, site: 0 };
    let cache = vec![empty; CACHED].into_boxed_slice();
    match cache.try_into() {
        Ok(cache) => cache,
        Err(_) => unreachable!("it has that many entries"),
    }
}

impl Sites {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), cache: empty_cache(), table: Table::default() }
    }

    /// The number of a site; `callers` is asked only when it is new.
    #[inline(always)]
    pub(crate) fn number(
        &mut self,
        pc: u64,
        kind: u32,
        context: u64,
        callers: impl FnOnce() -> [u64; CALLERS],
    ) -> u32 {
        let hash = (pc ^ context.rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (hash >> 51) as usize & (CACHED - 1);
        let cached = self.cache[index];
        if cached.pc == pc && cached.context == context && cached.kind == kind {
            return cached.site;
        }
        self.look_up(index, pc, kind, context, callers())
    }

    #[cold]
    #[inline(never)]
    fn look_up(
        &mut self,
        index: usize,
        pc: u64,
        kind: u32,
        context: u64,
        callers: [u64; CALLERS],
    ) -> u32 {
        let full = self.all.len() >= DISTINGUISHED_MAX;
        let (key, callers) =
            if full { ((pc, 0, kind), [0; CALLERS]) } else { ((pc, context, kind), callers) };
        let next = self.all.len() as u32;
        let site = *self.table.entry(key).or_insert(next);
        if site == next {
            self.all.push(Site { pc, kind, callers });
        }
        self.cache[index] = Cached { pc, context, kind, site };
        site
    }

    pub(crate) fn all(&self) -> &[Site] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_its_place_kind_and_callers() {
        let mut sites = Sites::new();
        let callers = || [7, 8, 9, 0];
        let first = sites.number(1, 2, 3, callers);
        assert_eq!(sites.number(1, 2, 3, || panic!("known")), first);
        let others = [sites.number(2, 2, 3, callers), sites.number(1, 3, 3, callers)];
        let deeper = sites.number(1, 2, 4, callers);
        assert_eq!([first, others[0], others[1], deeper], [0, 1, 2, 3]);
        assert_eq!(sites.all()[0].callers, [7, 8, 9, 0]);
        for pc in 0..20_000 {
            sites.number(pc, 0, 0, callers);
        }
        assert_eq!(sites.number(1, 2, 3, callers), first, "also when the cache has forgotten");
    }
}
