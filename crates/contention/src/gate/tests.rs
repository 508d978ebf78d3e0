//! Tests of rules on profiles of which the answer is known.

use super::*;
use crate::fixture::Builder;
use crate::sweep::{Measurement, Work, sweep};
use uvfs_coherence::profile::{Class, LockKind, Operation};

/// Four fifths of the latency on `Super.lock`, one fifth on `Super.hash` of the same line, in `lookup`;
/// some misses of memory in `scan`.
fn profile(hash: u64) -> Builder {
    let mut builder = Builder::new(4, 1, 2);
    let kind = builder.kind("Super", 64, &[("lock", 0, 4), ("hash", 8, 8)]);
    let object = builder.object("Super", 0x1000, 64, Some(kind), false);
    let table = builder.object("Table", 0x2000, 64, None, false);
    let dget = builder.site("[spinlock] @ dcache::dget", Operation::CompareExchange, 4);
    let lookup = builder.site("dcache::lookup", Operation::Load, 8);
    let scan = builder.site("dcache::scan", Operation::Load, 8);
    builder.miss(object, 0, dget).counts(&[800]);
    builder.miss(object, 8, lookup).counts(&[hash]).falsely(1.0);
    builder.miss(table, 0, scan).counts(&[10]).costs(0).class(Class::LocalMemory);
    builder.lock(object, 0, LockKind::Word, |lock| lock.wait_total = 400_000);
    builder
}

fn outcome(text: &str) -> Outcome {
    let old = |_: &Path| Ok(profile(400).done());
    check(&Ledger::new(&profile(200).done()), &Rules::parse(text, "gate.toml").unwrap(), old)
        .unwrap()
}

fn broken(text: &str) -> Vec<String> {
    outcome(text).broken.into_iter().map(|broken| broken.evidence).collect()
}

#[test]
fn forbidden_things_are_weighed() {
    let holds = |text: &str| assert_eq!(broken(text), [""; 0], "{text}");
    let breaks = |text: &str, part: &str| {
        let broken = broken(text);
        assert_eq!(broken.len(), 1, "{text}");
        assert!(broken[0].contains(part), "{broken:?}");
    };
    breaks("[[forbid]]\nfield = \"Super.hash\"\nabove = \"19%\"", "20.0 % ± 0.0 % of the latency");
    holds("[[forbid]]\nfield = \"Super.hash\"\nabove = 0.21");
    // The lock is on the same line.
    breaks("[[forbid]]\nline = \"Super.hash\"\nabove = \"99%\"", "100.0 %");
    breaks("[[forbid]]\nfunction = \"lookup\"", "20.0 %");
    breaks("[[forbid]]\nfunction = \"dget\"", "80.0 %");
    breaks("[[forbid]]\nstructure = \"Sup*\"", "100.0 %");
    breaks(
        "[[forbid]]\nlock = \"Super.lock\"\nabove = \"9%\"",
        "10.0 % ± 0.0 % of all threads' time",
    );
    holds("[[forbid]]\nlock = \"Super.lock\"\nabove = \"11%\"");
}

#[test]
fn a_rule_about_a_lock_is_about_the_words_in_it() {
    // A C program's mutex is told as `s.lock.__data.__lock`, so that the rule `line = "s.lock"` found nothing
    // and held, whatever the lock cost; and `super.lock`, by the type of `s`, found nothing either.
    let mut builder = Builder::new(4, 1, 2);
    let kind = builder.kind("super", 64, &[("lock.__data.__lock", 0, 4), ("locks", 8, 8)]);
    let object = builder.object("s", 0x1000, 64, Some(kind), false);
    let site = builder.site("[mutex] @ work", Operation::CompareExchange, 4);
    builder.miss(object, 0, site).counts(&[800]);
    builder.lock(object, 0, LockKind::Word, |lock| lock.wait_total = 400_000);
    let profile = builder.done();
    let nothing = |_: &Path| Err(Error::new("not asked"));
    let broken = |what: &str| {
        let rules = Rules::parse(&format!("[[forbid]]\n{what}\nabove = \"1%\""), "gate.toml");
        let outcome = check(&Ledger::new(&profile), &rules.unwrap(), nothing).unwrap();
        assert_eq!(outcome.broken.is_empty(), !outcome.notes.is_empty(), "{outcome:?}");
        !outcome.broken.is_empty()
    };
    for what in ["line", "field"] {
        assert!(broken(&format!("{what} = \"s.lock\"")), "{what}");
        assert!(broken(&format!("{what} = \"super.lock.__data\"")), "{what}");
        assert!(!broken(&format!("{what} = \"s.loc\"")), "{what}");
        assert!(!broken(&format!("{what} = \"s.locks\"")), "{what}");
    }
    assert!(broken("lock = \"s.lock\"") && broken("structure = \"super\""));
}

#[test]
fn silence_is_about_transfers_only() {
    let loud = outcome("[[silent]]\nfunction = \"dcache::lookup\"");
    assert_eq!(loud.broken[0].evidence.split(';').next(), Some("400 transfers in 2 seeds"));
    assert!(loud.broken[0].evidence.contains("Super.hash"), "{loud:?}");
    assert!(outcome("[[silent]]\nfunction = \"dcache::scan\"").holds());
}

#[test]
fn limits_of_the_whole_hold_or_not() {
    assert!(outcome("[max]\ntransfers_per_access = 0.001\nfalse_sharing = \"21%\"").holds());
    let broken = outcome("[max]\ntransfers_per_access = 0.0009\nfalse_sharing = \"19%\"\n");
    let rules: Vec<_> =
        broken.broken.iter().map(|broken| (broken.rule.as_str(), broken.line)).collect();
    assert_eq!(
        rules,
        [("max transfers_per_access = 9.0e-4", 2), ("max false_sharing = 0.1900", 3)]
    );
    assert_eq!(broken.broken[0].certain, Some(true));
}

#[test]
fn ratios_are_against_the_older_profile() {
    let rule = |line: &str| outcome(&format!("[[require]]\nof = \"old.contention\"\n{line}"));
    assert!(rule("metric = \"cycles\"\nat_most = 1.05\nat_least = 0.95").holds());
    assert!(rule("field = \"Super.hash\"\nat_most = 0.51").holds());
    let broken = rule("field = \"Super.hash\"\nat_most = 0.49");
    assert!(broken.broken[0].evidence.contains("20000 ± 0 against 40000"), "{broken:?}");
    assert_eq!(rule("field = \"Super.hash\"\nat_least = 0.51").broken.len(), 1);
    assert_eq!(rule("metric = \"cycles\"\nat_most = 0.9\nat_least = 0.1").checked, 2);
}

#[test]
fn names_that_nothing_has_are_noted() {
    let outcome = outcome("[[forbid]]\nfield = \"Super.hsh\"\n[[silent]]\nfunction = \"wlk::*\"");
    assert!(outcome.holds());
    assert_eq!(outcome.notes.len(), 2);
    assert!(outcome.notes[0].contains("line 1") && outcome.notes[0].contains("Super.hsh"));
}

#[test]
fn older_profiles_of_other_machines_and_unreadable_ones_are_errors() {
    let rules =
        Rules::parse("[[require]]\nmetric = \"cycles\"\nof = \"a\"\nat_most = 1.0", "g").unwrap();
    let profile = profile(200).done();
    let error =
        check(&Ledger::new(&profile), &rules, |_| Err(Error::new("a: no such file"))).unwrap_err();
    assert_eq!(error.to_string(), "a: no such file");
    let other =
        check(&Ledger::new(&profile), &rules, |_| Ok(Builder::new(8, 1, 2).done())).unwrap_err();
    assert!(other.to_string().contains("cores: 8 against 4"), "{other}");
}

#[test]
fn a_sweep_has_its_own_rules() {
    let profiles = [1, 2, 4].map(|cores| {
        let mut builder = Builder::new(cores, 1, 2);
        builder.runs(|run| run.parallel_cycles = if cores == 4 { 2_000_000 } else { 1_000_000 });
        builder.done()
    });
    let measurements: Vec<_> =
        profiles.iter().map(|profile| Measurement { profile, work: Work::PerCore }).collect();
    let sweep = sweep(&measurements).unwrap();
    let rules = |cores: usize| {
        let text = format!("[[efficiency]]\ncores = {cores}\nat_least = 0.95");
        Rules::parse(&text, "gate.toml").unwrap()
    };
    assert!(check_sweep(&sweep, &rules(2)).unwrap().holds());
    let broken = check_sweep(&sweep, &rules(4)).unwrap();
    assert!(broken.broken[0].evidence.starts_with("it is 50.0 %"), "{broken:?}");
    let missing = check_sweep(&sweep, &rules(64)).unwrap_err().to_string();
    assert!(missing.contains("no 64 cores, only 1, 2, 4"), "{missing}");
    let single = Rules::parse("[max]\ntransfers = 1.0", "gate.toml").unwrap();
    assert!(check_sweep(&sweep, &single).is_err());
    let nothing = |_: &Path| Err(Error::new("not asked"));
    assert!(check(&Ledger::new(&profiles[0]), &rules(2), nothing).is_err());
}
