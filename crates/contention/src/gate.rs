//! Rules that a profile or a sweep must keep, for continuous integration.
//!
//! # Grammar
//! A TOML file; docs/contention.md has an example of each rule. Shares are numbers or texts in percent: `0.01` and
//! `"1%"` are the same.
//! `[max]` limits `transfers_per_access`, `false_sharing` (of the latency of all misses), `remote_share` (of all
//! transfers) and `lock_wait` (of all threads' time). The `metric` of `[[require]]` is any of `compare::METRICS`.
//! The path in `of` starts at the folder of the rules. In names, `*` stands for any letters, and a name without its path
//! fits any path. The mean over the seeds decides; the evidence says whether the 95 % interval is beyond the limit,
//! too.
//!
//! # Boundary
//! Broken rules with their evidence; the exit code is the command line's. Older profiles are read by a
//! closure.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A model that gives the same count on every machine can hold a line in continuous integration, where a
//! measured time cannot. Unknown keys are refused, since a misspelt rule would hold for ever; a name that
//! nothing in the profile has is noted for the same reason. Weakness: a field that is renamed leaves its
//! rule without an object, and only the note tells.

mod rules;

pub use rules::{Efficiency, Forbid, Require, Rules, Selector, Silent};

use crate::analysis::Estimate;
use crate::compare;
use crate::error::Error;
use crate::ledger::{Ledger, Sum, values};
use crate::patterns::fits;
use crate::statistics::{is_above, number, percent, ratio, text};
use crate::sweep::Sweep;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Object, Sample};

/// A rule that does not hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Broken {
    /// The rule: `forbid line = "Super.lock" above 1 %`.
    pub rule: String,
    /// Where it stands in the file.
    pub line: usize,
    /// The finding, with numbers.
    pub evidence: String,
    /// Whether the 95 % interval is beyond the limit, too; `None` without one.
    pub certain: Option<bool>,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Outcome {
    /// Rules that do not hold, in the order of the file.
    pub broken: Vec<Broken>,
    /// How many were checked.
    pub checked: usize,
    /// Rules with a name that nothing in the profile has.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Whether all rules hold.
    pub fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    fn judge(&mut self, rule: String, line: usize, found: Found) {
        self.checked += 1;
        if found.broken {
            let certain = found.certain;
            self.broken.push(Broken { rule, line, evidence: found.evidence, certain });
        }
    }

    fn note(&mut self, line: usize, what: &Selector) {
        self.notes.push(format!(
            "line {line}: nothing in the profile is called `{}`: if the rule is not about its absence, see \
             to the name",
            what.pattern()
        ));
    }
}

/// The finding of one rule.
struct Found {
    broken: bool,
    certain: Option<bool>,
    evidence: String,
}

impl Found {
    /// Something that must not be above a limit.
    fn at_most(value: &Estimate, limit: f64, evidence: String) -> Self {
        Self { broken: value.mean > limit, certain: is_above(value, limit), evidence }
    }
}

/// Checks a profile. `load` reads older profiles, by the path as the rules have it.
///
/// # Errors
/// A profile without runs, rules about a sweep, and the errors of `load`.
pub fn check(
    ledger: &Ledger<'_>,
    rules: &Rules,
    mut load: impl FnMut(&Path) -> Result<Profile, Error>,
) -> Result<Outcome, Error> {
    if ledger.profile.runs.is_empty() {
        return Err(Error::new("the profile has no runs: run it again"));
    }
    if let Some(rule) = rules.efficiency.first() {
        return Err(Error::new(format!(
            "line {}: [[efficiency]] is about a sweep, not a profile: take `uvfs contention sweep --gate RULES`",
            rule.line
        )));
    }
    let mut outcome = Outcome::default();
    for rule in &rules.forbid {
        let (part, exists) = selected(ledger, &rule.what);
        if !exists {
            outcome.note(rule.line, &rule.what);
        }
        let (whole, of) = whole(ledger, &rule.what);
        let found = Estimate::share(&part, &whole);
        let evidence = format!("it takes {} of {of}", percent(&found));
        let words = format!("forbid {} above {} %", rule.what, number(rule.above * 100.0));
        outcome.judge(words, rule.line, Found::at_most(&found, rule.above, evidence));
    }
    for rule in &rules.silent {
        let what = Selector::Function(rule.function.clone());
        if !exists(ledger, &what) {
            outcome.note(rule.line, &what);
        }
        outcome.judge(format!("silent {what}"), rule.line, noise(ledger, &rule.function));
    }
    for (name, limit, line) in &rules.max {
        let values = known_metric(ledger, name)?;
        let value = Estimate::of(&values);
        let found = Found::at_most(&value, *limit, format!("it is {}", text(&value)));
        outcome.judge(format!("max {name} = {}", number(*limit)), *line, found);
    }
    let mut loaded: BTreeMap<std::path::PathBuf, Profile> = BTreeMap::new();
    for rule in &rules.require {
        if !loaded.contains_key(&rule.of) {
            let old = load(&rule.of)?;
            let differing = compare::differences(&old, ledger.profile);
            if !differing.is_empty() {
                return Err(Error::new(format!(
                    "line {}: `{}` is not of the same machine and mode: {}; make it again with this machine",
                    rule.line,
                    rule.of.display(),
                    differing.join(", ")
                )));
            }
            loaded.insert(rule.of.clone(), old);
        }
        require(ledger, &Ledger::new(&loaded[&rule.of]), rule, &mut outcome)?;
    }
    Ok(outcome)
}

/// Checks a sweep: its `[[efficiency]]` rules.
///
/// # Errors
/// Rules about single profiles, and core counts that the sweep does not have.
pub fn check_sweep(sweep: &Sweep, rules: &Rules) -> Result<Outcome, Error> {
    if let Some(line) = rules.first_of_profile() {
        return Err(Error::new(format!(
            "line {line}: only [[efficiency]] is about a sweep: keep the other rules in a file of their own"
        )));
    }
    let mut outcome = Outcome::default();
    for rule in &rules.efficiency {
        let Some(point) = sweep.points.iter().find(|point| point.cores == rule.cores) else {
            let cores: Vec<_> = sweep.points.iter().map(|point| point.cores.to_string()).collect();
            return Err(Error::new(format!(
                "line {}: the sweep has no {} cores, only {}",
                rule.line,
                rule.cores,
                cores.join(", ")
            )));
        };
        let efficiency = point.efficiency;
        let found = Found {
            broken: efficiency.mean < rule.at_least,
            certain: is_above(&efficiency, rule.at_least).map(|above| !above),
            evidence: match sweep.shape {
                Some(shape) => format!("it is {}; the curve is {shape}", percent(&efficiency)),
                None => format!("it is {}; the curve has no class", percent(&efficiency)),
            },
        };
        let words =
            format!("efficiency at {} cores >= {} %", rule.cores, number(rule.at_least * 100.0));
        outcome.judge(words, rule.line, found);
    }
    Ok(outcome)
}

fn known_metric(ledger: &Ledger<'_>, name: &str) -> Result<Vec<f64>, Error> {
    compare::metric(ledger, name).ok_or_else(|| Error::new(format!("no metric `{name}`")))
}

fn require(
    new: &Ledger<'_>,
    old: &Ledger<'_>,
    rule: &Require,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    let (words, before, after) = match (&rule.metric, &rule.what) {
        (Some(metric), _) => {
            let values = |ledger: &Ledger<'_>| known_metric(ledger, metric);
            (metric.clone(), values(old)?, values(new)?)
        }
        (None, Some(what)) => {
            let ((before, was), (after, is)) = (selected(old, what), selected(new, what));
            if !was && !is {
                outcome.note(rule.line, what);
            }
            (what.to_string(), before, after)
        }
        (None, None) => return Ok(()),
    };
    let (old_mean, new_mean) = (Estimate::of(&before), Estimate::of(&after));
    let quotient = ratio(&before, &after).unwrap_or(Estimate {
        // Nothing of nothing is the same; something of nothing is any ratio.
        mean: match (old_mean.mean > 0.0, new_mean.mean > 0.0) {
            (false, true) => f64::INFINITY,
            (false, false) => 1.0,
            _ => 0.0,
        },
        plus_minus: None,
    });
    let evidence = || {
        format!(
            "the ratio is {}: {} against {} before",
            text(&quotient),
            text(&new_mean),
            text(&old_mean)
        )
    };
    let of = rule.of.display();
    if let Some(limit) = rule.at_most {
        let words = format!("require {words} <= {} of {of}", number(limit));
        outcome.judge(words, rule.line, Found::at_most(&quotient, limit, evidence()));
    }
    if let Some(limit) = rule.at_least {
        let found = Found {
            broken: quotient.mean < limit,
            certain: is_above(&quotient, limit).map(|above| !above),
            evidence: evidence(),
        };
        outcome.judge(format!("require {words} >= {} of {of}", number(limit)), rule.line, found);
    }
    Ok(())
}

/// Whether a sample is on the selection, lines left out.
fn on(ledger: &Ledger<'_>, sample: &Sample, what: &Selector) -> bool {
    let object = || ledger.object(sample.seed, sample.object);
    match what {
        Selector::Field(pattern) => {
            object().is_some_and(|object| within(pattern, ledger, object, sample.offset))
        }
        Selector::Structure(pattern) => object().is_some_and(|object| {
            fits(pattern, &ledger.spot(object, sample.offset).structure)
                || ledger.type_of(object).is_some_and(|kind| fits(pattern, &kind.name))
        }),
        Selector::Function(pattern) => inside(ledger, sample, pattern),
        Selector::Line(_) | Selector::Lock(_) => false,
    }
}

/// Whether `pattern` is a place's name, or that of a field around it; a variable is also called by its type.
fn within(pattern: &str, ledger: &Ledger<'_>, object: &Object, offset: u64) -> bool {
    let mut spot = ledger.spot(object, offset);
    if around(pattern, &spot.name()) {
        return true;
    }
    ledger.type_of(object).is_some_and(|kind| {
        spot.structure.clone_from(&kind.name);
        around(pattern, &spot.name())
    })
}

/// `Super.lock` is around `Super.lock.raw.state`.
fn around(pattern: &str, name: &str) -> bool {
    let dots = name.match_indices('.').map(|(at, _)| &name[..at]);
    fits(pattern, name) || dots.skip(1).any(|outer| fits(pattern, outer))
}

fn inside(ledger: &Ledger<'_>, sample: &Sample, pattern: &str) -> bool {
    let names = ledger.functions(sample.seed, sample.site);
    names.iter().any(|name| {
        // The callers of locks are printed behind an `@`.
        let caller = name.rsplit_once("@ ").map(|(_, caller)| caller);
        fits(pattern, name) || caller.is_some_and(|caller| fits(pattern, caller))
    })
}

/// Cycles of the selection, seed by seed, and whether the profile has it at all.
fn selected(ledger: &Ledger<'_>, what: &Selector) -> (Vec<f64>, bool) {
    let nothing = || vec![0.0; ledger.seeds.len()];
    let latency = |costs: Option<Vec<Sum>>| {
        costs.map_or_else(nothing, |costs| values(&costs, |cost| cost.latency() as f64))
    };
    let sum = match what {
        Selector::Lock(pattern) => {
            let mut sum = nothing();
            let locks = compare::locks(ledger, |lock| lock.wait_total);
            for (_, waits) in locks.iter().filter(|(name, _)| around(pattern, name)) {
                sum.iter_mut().zip(waits).for_each(|(sum, wait)| *sum += wait);
            }
            sum
        }
        Selector::Line(pattern) => {
            let lines = lines(ledger, pattern);
            latency(
                ledger
                    .sums(|ledger, sample| {
                        let object = ledger.object(sample.seed, sample.object)?;
                        let line = (sample.seed, ledger.line(object, sample.offset));
                        lines.contains(&line).then_some(())
                    })
                    .remove(&()),
            )
        }
        _ => latency(
            ledger.sums(|ledger, sample| on(ledger, sample, what).then_some(())).remove(&()),
        ),
    };
    (sum, exists(ledger, what))
}

/// The real lines, by seed, on which something of that name was accessed.
fn lines(ledger: &Ledger<'_>, pattern: &str) -> BTreeSet<(u64, u64)> {
    let samples =
        ledger.profile.samples.iter().map(|sample| (sample.seed, sample.object, sample.offset));
    let heat = ledger.profile.heat.iter().map(|heat| (heat.seed, heat.object, heat.offset));
    samples
        .chain(heat)
        .filter_map(|(seed, object, offset)| {
            let object = ledger.object(seed, object)?;
            within(pattern, ledger, object, offset).then(|| (seed, ledger.line(object, offset)))
        })
        .collect()
}

fn exists(ledger: &Ledger<'_>, what: &Selector) -> bool {
    match what {
        Selector::Lock(pattern) => {
            compare::locks(ledger, |_| 0).keys().any(|name| around(pattern, name))
        }
        Selector::Line(pattern) => !lines(ledger, pattern).is_empty(),
        // A function without misses has no samples, which is the aim of the rule.
        Selector::Function(pattern) => ledger.profile.sites.iter().any(|site| {
            ledger.functions(site.seed, site.id).iter().any(|name| {
                let caller = name.rsplit_once("@ ").map_or(name.as_str(), |(_, caller)| caller);
                fits(pattern, name) || fits(pattern, caller)
            })
        }),
        _ => ledger.profile.samples.iter().any(|sample| on(ledger, sample, what)),
    }
}

/// The whole of which a selection is a part.
fn whole(ledger: &Ledger<'_>, what: &Selector) -> (Vec<f64>, &'static str) {
    match what {
        Selector::Lock(_) => (ledger.time(), "all threads' time"),
        _ => (values(&ledger.totals, |cost| cost.latency() as f64), "the latency of all misses"),
    }
}

/// Transfers inside functions, with the place of most of them.
fn noise(ledger: &Ledger<'_>, pattern: &str) -> Found {
    let costs = ledger.sums(|ledger, sample| {
        let here = sample.class.is_transfer() && inside(ledger, sample, pattern);
        here.then(|| {
            Some((ledger.function_of(sample.seed, sample.site)?, ledger.sampled(sample)?.name()))
        })?
    });
    let all: u64 = costs.values().flatten().map(|cost| cost.transfers).sum();
    let worst =
        costs.iter().max_by_key(|(_, costs)| costs.iter().map(|cost| cost.transfers).sum::<u64>());
    let evidence = match worst {
        None => "no transfer".to_owned(),
        Some(((function, field), costs)) => format!(
            "{all} transfers in {} seeds; most in {function} on {field}, {}",
            ledger.seeds.len(),
            costs.iter().map(|cost| cost.transfers).sum::<u64>()
        ),
    };
    Found { broken: all > 0, certain: Some(all > 0), evidence }
}

#[cfg(test)]
mod tests;
