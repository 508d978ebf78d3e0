//! Advice about a profile: the remedies of the field, each with its evidence.
//!
//! # The rules
//! From section 4.4 to 5 of Gough, Siddha and Chen (2007), and from later work:
//! 1. `separate-read-mostly`: a field without writers is missed because of its neighbours: another line;
//! 2. `isolate-hot-words`: two words that are updated atomically lie on one line: part them;
//! 3. `pad-elements`: several small objects of different cores lie on one line: align or pad them;
//! 4. `align-structure`: objects lie across more lines than their size needs: align them;
//! 5. `split-by-path`: two sets of functions use two sets of fields of one line: a line for each;
//! 6. `shard-counter`: many cores update one word: one for each core, summed when read;
//! 7. `batch-under-lock`: a lock changes cores for every short hold: do more each time;
//! 8. `skip-remote-reads`: a function only reads several fields of a line that others write: use local data, or read once;
//! 9. `free-where-allocated`: objects die on another core than they were made on: hand them back in batches;
//! 10. `read-without-lock`: readers fight over the lock's own word: a sequence count or RCU;
//! 11. `shorten-hold`: a lock is waited for, and long holds are why: take work out of it;
//! 12. `isolate-lock`: threads that wait for a lock take away the line of the data it protects: part them.
//!
//! # Boundary
//! A profile in, advice out, the greatest avoidable share of latency first. [`check`] tries an advice by a closure.
//!
//! # Why
//! An advice must be checkable: it shows the numbers that made it fire, and where a layout expresses it, the what-if that
//! tries it. Every figure is a mean over the seeds. Weakness: thresholds are conventions, listed with each rule. The expected
//! gain is the avoidable latency, which is more than the time that a program would gain. So a trial without a gain removes the
//! advice.

mod memory;
mod scene;
mod sharing;

use crate::analysis::Estimate;
use crate::error::Error;
use crate::ledger::Ledger;
use crate::whatif::{self, Evidence, Request};
use scene::Scene;
use serde::Serialize;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::Thread;

/// Which remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // The module's head defines them.
pub enum Rule {
    SeparateReadMostly,
    IsolateHotWords,
    PadElements,
    AlignStructure,
    SplitByPath,
    ShardCounter,
    BatchUnderLock,
    SkipRemoteReads,
    FreeWhereAllocated,
    ReadWithoutLock,
    ShortenHold,
    IsolateLock,
}

/// One number behind an advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fact {
    /// `Super.hash`, `lookup`.
    pub what: String,
    /// `39642 misses, 100.0 % false sharing, nobody writes it`.
    pub found: String,
}

/// One advice.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Which remedy.
    pub rule: Rule,
    /// The field, type or lock that it is about: `Super.hash`.
    pub about: String,
    /// The remedy, in a sentence.
    pub remedy: String,
    /// Why.
    pub evidence: Vec<Fact>,
    /// The layout change that tries it; see [`crate::whatif`].
    pub what_if: Option<String>,
    /// The avoidable part of the latency of all misses; for locks' holds and waits, of all threads' time.
    pub share: Estimate,
}

/// Advice that promises less than this part of the threads' time is not given.
const WORTH: f64 = 0.01;

/// The part of all threads' time that they stand still for misses; all of it where the profile has no figure.
fn stalled(profile: &Profile) -> f64 {
    let sum = |of: fn(&Thread) -> u64| profile.threads.iter().map(of).sum::<u64>() as f64;
    match sum(|thread| thread.cycles) {
        0.0 => 1.0,
        time => (sum(|thread| thread.stalled) / time).min(1.0),
    }
}

impl Advice {
    /// The avoidable part of all threads' time, where misses take the part `stalled` of it.
    fn promise(&self, stalled: f64) -> f64 {
        match self.rule {
            Rule::BatchUnderLock | Rule::ShortenHold => self.share.mean,
            _ => self.share.mean * stalled,
        }
    }
}

/// Whether a trial shows a gain that is worth a change: a hundredth of the cycles or more, beyond the spread of the seeds.
pub fn is_proven(tried: &Evidence) -> bool {
    tried.gain.mean >= WORTH * tried.base.mean && tried.significant != Some(false)
}

/// Puts advice that was tried first, the greatest gain first of all, and drops advice without a gain. Returns the dropped
/// layouts.
pub fn judge(advised: &mut Vec<(Advice, Option<Evidence>)>) -> Vec<String> {
    let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(advised)
        .into_iter()
        .partition(|(_, tried)| tried.as_ref().is_none_or(is_proven));
    *advised = kept;
    let gain = |tried: &Option<Evidence>| {
        tried.as_ref().map_or(0.0, |tried| tried.gain.mean / tried.base.mean.max(1.0))
    };
    advised.sort_by(|(_, one), (_, other)| gain(other).total_cmp(&gain(one)));
    dropped.into_iter().filter_map(|(advice, _)| advice.what_if).collect()
}

/// All advice on a profile, the most promising first.
pub fn advise(ledger: &Ledger<'_>) -> Vec<Advice> {
    if ledger.profile.runs.is_empty() {
        return Vec::new();
    }
    let scene = Scene::new(ledger);
    let mut all = Vec::new();
    sharing::separate_read_mostly(&scene, &mut all);
    sharing::isolate_lock(&scene, &mut all);
    sharing::isolate_hot_words(&scene, &mut all);
    sharing::split_by_path(&scene, &mut all);
    sharing::shard_counter(&scene, &mut all);
    sharing::skip_remote_reads(&scene, &mut all);
    memory::pad_elements(&scene, &mut all);
    memory::align_structure(&scene, &mut all);
    memory::free_where_allocated(&scene, &mut all);
    memory::batch_under_lock(&scene, &mut all);
    memory::read_without_lock(&scene, &mut all);
    memory::shorten_hold(&scene, &mut all);
    let stalled = stalled(ledger.profile);
    let promise = |advice: &Advice| advice.promise(stalled);
    all.retain(|advice| promise(advice) >= WORTH);
    all.sort_by(|a, b| promise(b).total_cmp(&promise(a)).then_with(|| a.rule.cmp(&b.rule)));
    // The same change need not be advised for two reasons.
    let mut tried: Vec<String> = Vec::new();
    all.retain(|advice| match &advice.what_if {
        Some(change) if tried.contains(change) => false,
        Some(change) => {
            tried.push(change.clone());
            true
        }
        None => true,
    });
    all
}

/// Tries an advice; `None` if no layout expresses it.
///
/// # Errors
/// As [`whatif::evaluate`].
pub fn check(
    profile: &Profile,
    advice: &Advice,
    run: impl FnMut(&Request) -> Result<Profile, Error>,
) -> Result<Option<Evidence>, Error> {
    let Some(text) = &advice.what_if else { return Ok(None) };
    whatif::evaluate(profile, &whatif::parse(text)?, run).map(Some)
}

#[cfg(test)]
mod tests;
