//! The faults of a hostile backend, and their calls.
//!
//! # Boundary
//! Describes; does nothing itself. A [`Plan`] is a list of rules: a condition on calls (`On`), and
//! a [`Fault`]. Each rule counts the calls that it matches, from 1, so "the third lookup of `a`"
//! and "call 17 of any kind" are both one rule. All rules that apply to a call act, in the order in
//! which they were added.

use super::call::{Call, Made};
use super::gate::Gate;
use std::ops::Range;
use std::time::Duration;
use uvfs_vfs::InodeId;

/// Whether the wrapped backend is called before a fault, or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The fault is first; if it ends the call, nothing has happened in the store.
    Before,
    /// The store did its work, and only the answer is wrong.
    After,
}

/// The fault of one call.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The call fails with this errno.
    Fail(Moment, i32),
    /// It takes longer.
    Delay(Moment, Duration),
    /// It waits until the gate is opened by hand.
    Hold(Moment, Gate),
    /// It panics.
    Panic(Moment),
    /// A read or write does at most so many bytes.
    Short(usize),
    /// A read that asks for any of these bytes of the file fails with this errno.
    Damaged(Range<u64>, i32),
    /// A read claims to have filled the whole buffer, whatever the store returned.
    Overlong,
    /// A lookup or a request for attributes gets the last answer to the same question again; the
    /// store is not asked. The first time it is.
    Stale,
}

/// Which calls a rule is about.
#[derive(Debug, Clone, Default)]
pub struct On {
    call: Option<Call>,
    name: Option<Vec<u8>>,
    inode: Option<InodeId>,
    first: u64,
    last: u64,
}

impl On {
    /// Every call.
    pub fn any() -> Self {
        Self { call: None, name: None, inode: None, first: 1, last: u64::MAX }
    }

    /// Every call of this method.
    pub fn call(call: Call) -> Self {
        Self { call: Some(call), ..Self::any() }
    }

    /// Only with this name (of a rename: the old one).
    #[must_use]
    pub fn name(self, name: impl AsRef<[u8]>) -> Self {
        Self { name: Some(name.as_ref().to_vec()), ..self }
    }

    /// Only on this object (of a change of names: the directory).
    #[must_use]
    pub fn inode(self, inode: InodeId) -> Self {
        Self { inode: Some(inode), ..self }
    }

    /// Only the `nth` of them, from 1.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        Self { first: nth, last: nth, ..self }
    }

    /// Only the `first` of them, from 1, and those after it.
    #[must_use]
    pub fn from(self, first: u64) -> Self {
        Self { first, ..self }
    }

    fn matches(&self, made: &Made) -> bool {
        self.call.is_none_or(|call| call == made.call)
            && self.inode.is_none_or(|inode| inode == made.inode)
            && self.name.as_ref().is_none_or(|name| Some(name) == made.name.as_ref())
    }
}

#[derive(Debug)]
struct Rule {
    on: On,
    fault: Fault,
    matched: u64,
}

#[derive(Debug)]
struct Random {
    state: u64,
    per_million: u64,
    faults: Vec<Fault>,
}

/// Faults still to come. See the module.
#[derive(Debug, Default)]
pub struct Plan {
    rules: Vec<Rule>,
    random: Option<Random>,
}

impl Plan {
    /// No faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every call suffers one of `faults` with this probability, in an order that follows from
    /// `seed` and the order of the calls.
    pub fn random(seed: u64, probability: f64, faults: Vec<Fault>) -> Self {
        let per_million = (probability.clamp(0.0, 1.0) * 1e6) as u64;
        Self { rules: Vec::new(), random: Some(Random { state: seed, per_million, faults }) }
    }

    /// Adds a rule.
    #[must_use]
    pub fn when(mut self, on: On, fault: Fault) -> Self {
        self.rules.push(Rule { on, fault, matched: 0 });
        self
    }

    /// The faults of a call that is being made.
    pub(super) fn faults(&mut self, made: &Made) -> Vec<Fault> {
        let mut faults = Vec::new();
        for rule in self.rules.iter_mut().filter(|rule| rule.on.matches(made)) {
            rule.matched += 1;
            if (rule.on.first..=rule.on.last).contains(&rule.matched) {
                faults.push(rule.fault.clone());
            }
        }
        faults.extend(self.random.as_mut().and_then(Random::next));
        faults
    }
}

impl Random {
    fn next(&mut self) -> Option<Fault> {
        if self.faults.is_empty() || self.number() % 1_000_000 >= self.per_million {
            return None;
        }
        let at = self.number() % self.faults.len() as u64;
        self.faults.get(at as usize).cloned()
    }

    /// splitmix64: a short generator whose every seed is good.
    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(call: Call, name: &str) -> Made {
        Made { call, inode: InodeId::ROOT, name: Some(name.as_bytes().to_vec()) }
    }

    #[test]
    fn a_rule_counts_only_what_it_matches() {
        let mut plan = Plan::new()
            .when(On::call(Call::Lookup).name("a").nth(2), Fault::Stale)
            .when(On::any().from(3), Fault::Short(1));
        let faults = [
            plan.faults(&made(Call::Lookup, "a")),
            plan.faults(&made(Call::Lookup, "b")),
            plan.faults(&made(Call::Lookup, "a")),
            plan.faults(&made(Call::Create, "a")),
        ];
        assert!(faults[0].is_empty() && faults[1].is_empty());
        assert!(matches!(faults[2][..], [Fault::Stale, Fault::Short(1)]));
        assert!(matches!(faults[3][..], [Fault::Short(1)]));
    }

    #[test]
    fn a_seed_gives_the_same_faults_again() {
        let run = |seed| -> Vec<bool> {
            let mut plan = Plan::random(seed, 0.3, vec![Fault::Stale]);
            (0..1000).map(|_| !plan.faults(&made(Call::Lookup, "a")).is_empty()).collect()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let hits = run(7).iter().filter(|&&hit| hit).count();
        assert!((200..400).contains(&hits), "{hits} of 1000");
    }
}
