//! Decides whether some pages should bypass the probationary queue: two small groups of pages test
//! it.
//!
//! # Boundary
//! Sees the hash of each admitted page, and chooses the queue of a page that was not seen before.
//!
//! # Why
//! Pages read in a loop somewhat longer than the cache are all evicted before their next use.
//! If one in so many is admitted to the main queue at once, a part of the loop stays and is hit
//! (bimodal insertion). Under other accesses that costs some hits. So one page in sixteen is always
//! admitted the plain way, and one in sixteen the other way. The group with fewer admissions has
//! the better way, and all other pages follow it (set dueling; Qureshi et al. 2007, "Adaptive
//! insertion policies"). Weakness: both groups share one cache, so each way is judged together with
//! the other. A short loop that the plain way keeps by chance is kept a little worse.

use super::ghost::mix;

/// The number of groups of pages, of which two test the two ways.
const GROUPS: u64 = 16;
/// One page in this many bypasses the probationary queue.
const LUCKY_ONE_IN: u32 = 32;
/// The approximate number of admissions of the two groups that the score covers; older ones fade.
const MEMORY: i64 = 8192;
/// From this score on the other groups follow. Its standard deviation by chance is about 64 (the
/// root of half the memory).
const SCORE_CLEAR: i64 = 320;

/// The score of the two groups.
#[derive(Debug, Default)]
pub(super) struct Duel {
    /// Admissions of the plain group, minus those of the other, in parts of [`MEMORY`].
    score: i64,
    admissions: u32,
}

impl Duel {
    /// Counts an admission of the page of `key`. Returns whether it bypasses the probationary
    /// queue.
    pub(super) fn admits_to_main(&mut self, key: u64) -> bool {
        self.admissions = self.admissions.wrapping_add(1);
        let tries = match (mix(key) >> 20) % GROUPS {
            0 => {
                self.score += MEMORY - self.score / MEMORY;
                false
            }
            1 => {
                self.score -= MEMORY + self.score / MEMORY;
                true
            }
            _ => self.score > SCORE_CLEAR * MEMORY,
        };
        tries && self.admissions.is_multiple_of(LUCKY_ONE_IN)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The number of pages of `keys` that bypass the queue.
    fn lucky(duel: &mut Duel, keys: impl Iterator<Item = u64>) -> usize {
        keys.filter(|&key| duel.admits_to_main(key)).count()
    }

    fn in_group(group: u64) -> impl Iterator<Item = u64> {
        (0..).filter(move |&key| (mix(key) >> 20) % GROUPS == group)
    }

    #[test]
    fn only_the_trying_group_is_lucky_until_it_is_clearly_better() {
        let mut duel = Duel::default();
        let even = lucky(&mut duel, 0..100_000);
        assert!((100..300).contains(&even), "one in sixteen tries, one in 32 of it: {even}");
        // The plain group misses more.
        lucky(&mut duel, in_group(0).take(3000));
        let all = lucky(&mut duel, 0..100_000);
        assert!(all > 2500, "all others follow: {all}");
        // The testing group misses more.
        lucky(&mut duel, in_group(1).take(8000));
        let few = lucky(&mut duel, 0..100_000);
        assert!(few < 300, "{few}");
    }

    #[test]
    fn chance_is_no_verdict() {
        let mut duel = Duel::default();
        // A scan: both groups miss equally, for ever.
        let share = lucky(&mut duel, 0..4_000_000) as f64 / 4e6;
        assert!(share < 1.2 / (16.0 * 32.0), "{share}");
    }
}
