//! One row: its ways, their ages, and its clock.
//!
//! # Boundary
//! Plain data, read and written under the row's lock. Knows neither the keys of a row nor the meaning of a value.
//!
//! # Why
//! Ages of two bytes instead of a list: a hit stores one number. The data that a search reads first (the ways in use,
//! and the ages) lie in the row's first line. Weakness: the oldest way is found by a search through all of them; a miss
//! can afford that.

/// The ways of one row.
#[derive(Debug)]
pub(super) struct Row<K, V, X, const WAYS: usize> {
    /// Further data under this row's lock.
    pub(super) extra: X,
    clock: u16,
    /// A bit for each way.
    used: u16,
    ages: [u16; WAYS],
    values: [V; WAYS],
    keys: [K; WAYS],
}

impl<K: Copy + Default, V: Default, X: Default, const WAYS: usize> Default for Row<K, V, X, WAYS> {
    fn default() -> Self {
        const { assert!(WAYS > 0 && WAYS <= 16) };
        let (keys, values) = ([K::default(); WAYS], std::array::from_fn(|_| V::default()));
        Self { extra: X::default(), clock: 0, used: 0, ages: [0; WAYS], values, keys }
    }
}

impl<K: Copy + Eq, V: Clone + Default, X, const WAYS: usize> Row<K, V, X, WAYS> {
    /// The way of `key`.
    pub(super) fn find(&self, key: K) -> Option<usize> {
        (0..WAYS).find(|&way| self.keys[way] == key && self.is_used(way))
    }

    /// A way that is not in use.
    pub(super) fn unused(&self) -> Option<usize> {
        let way = self.used.trailing_ones() as usize;
        (way < WAYS).then_some(way)
    }

    pub(super) fn is_used(&self, way: usize) -> bool {
        self.used >> way & 1 == 1
    }

    /// Ways in use.
    pub(super) fn count(&self) -> usize {
        self.used.count_ones() as usize
    }

    pub(super) fn key(&self, way: usize) -> K {
        self.keys[way]
    }

    pub(super) fn value(&self, way: usize) -> V {
        self.values[way].clone()
    }

    /// Makes `way` the youngest (R3).
    pub(super) fn touch(&mut self, way: usize) {
        if self.clock == u16::MAX {
            self.draw_anew();
        }
        self.clock += 1;
        self.ages[way] = self.clock;
    }

    /// The way used longest ago among those for whose value `may_leave` returns true (R4).
    pub(super) fn oldest(&self, may_leave: impl Fn(&V) -> bool) -> Option<usize> {
        let mut rest = self.used;
        while rest != 0 {
            let ways = (0..WAYS).filter(|way| rest >> way & 1 == 1);
            let way = ways.min_by_key(|&way| self.ages[way])?;
            if may_leave(&self.values[way]) {
                return Some(way);
            }
            rest &= !(1 << way);
        }
        None
    }

    /// Puts `key` with `value` into `way`, as the youngest.
    pub(super) fn set(&mut self, way: usize, key: K, value: V) {
        (self.keys[way], self.values[way]) = (key, value);
        self.used |= 1 << way;
        self.touch(way);
    }

    /// Removes and returns the content of `way`, which is not in use from now on.
    pub(super) fn clear(&mut self, way: usize) -> (K, V) {
        self.used &= !(1 << way);
        (self.keys[way], std::mem::take(&mut self.values[way]))
    }

    /// Redraws the ages from 0 on, in the same order, after the clock has overflowed (R4).
    #[cold]
    fn draw_anew(&mut self) {
        let before = self.ages;
        for way in 0..WAYS {
            let older = |&other: &usize| (before[other], other) < (before[way], way);
            self.ages[way] = (0..WAYS).filter(older).count() as u16;
        }
        self.clock = WAYS as u16;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn row() -> Row<u64, u64, (), 4> {
        Row::default()
    }

    #[test]
    fn what_was_used_longest_ago_is_the_oldest_also_when_the_clock_has_run_out() {
        for clock in [0, u16::MAX - 9, u16::MAX - 5, u16::MAX - 2] {
            let mut row = row();
            row.clock = clock;
            row.ages = [clock; 4];
            for key in 0..4 {
                let way = row.unused().unwrap();
                row.set(way, key, key * 10);
            }
            row.touch(row.find(0).unwrap());
            row.touch(row.find(2).unwrap());
            let order: Vec<u64> = std::iter::from_fn(|| {
                let way = row.oldest(|_| true)?;
                Some(row.clear(way).0)
            })
            .collect();
            assert_eq!(order, [1, 3, 0, 2], "from {clock}");
        }
    }

    #[test]
    fn the_oldest_is_passed_over_if_it_may_not_leave() {
        let mut row = row();
        (0..4).for_each(|key| row.set(key as usize, key, key));
        assert_eq!(row.oldest(|value| *value >= 2), Some(2));
        assert_eq!(row.oldest(|_| false), None);
        row.clear(2);
        assert_eq!(row.oldest(|value| *value >= 2), Some(3));
        assert_eq!((row.find(2), row.unused(), row.count()), (None, Some(2), 3));
    }
}
