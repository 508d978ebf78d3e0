//! Floor: contention. Programs whose answer is in textbooks, built and run by the analyser.
//!
//! Each has a class of curve from 1 to 64 or 128 virtual cores, fields that bend it, and sharing that is
//! true or false; the analyser has to say all three. Where a layout decides, the program is built both
//! ways: the predicted effect of a change in the model must be that of the changed source.
//!
//! Sources are in `tests/contention/known`. Skipped where there is no gcc or no x86-64.
//!
//! Weakness: the model agrees with the textbook; that hardware does is not shown by this.

mod shared;

use shared::{Analyser, run};
use std::path::Path;
use uvfs_coherence::machine::Parameter;
use uvfs_coherence::profile::{LockKind, Mode, Run};
use uvfs_coherence::{Machine, Profile};
use uvfs_contention::analysis::{LineTable, Row, Verdict, lines, locks};
use uvfs_contention::run::Plan;
use uvfs_contention::sweep::{Measurement, Shape, Sweep, Work, classify, sweep};
use uvfs_contention::whatif;
use uvfs_contention::{Ledger, advise};

/// The program on so many cores each. Of two seeds, an interval of 95 % is 13 standard errors to each side:
/// a class needs four.
fn profiles(analyser: &Analyser, program: &Path, cores: &[usize], args: &[&str]) -> Vec<Profile> {
    let plan = |cores| Plan { nodes: 1, seeds: 4, ..analyser.plan(program, cores, args) };
    cores.iter().map(|&cores| run(&plan(cores))).collect()
}

fn curve(profiles: &[Profile]) -> Sweep {
    let measure = |profile| Measurement { profile, work: Work::PerCore };
    sweep(&profiles.iter().map(measure).collect::<Vec<_>>()).expect("a curve")
}

/// Asserts the class of a program's curve, on one node, so that no step of the curve is a node's.
fn expect(analyser: &Analyser, program: &Path, cores: &[usize], shape: Shape) -> Vec<Profile> {
    let profiles = profiles(analyser, program, cores, &[]);
    let sweep = curve(&profiles);
    // A sweep draws no class from a flat cost of computing; these programs compute next to nothing.
    assert_eq!(sweep.shape, None, "{}", sweep.reason);
    let points: Vec<_> = sweep.points.iter().map(|one| (one.cores, one.by_seed.clone())).collect();
    let (found, reason) = classify(&points);
    assert_eq!(found, shape, "{}: {reason}: {points:?}", program.display());
    profiles
}

/// Rows for a field, by the end of its name, with more transfers than a thread's first and last looks make;
/// those with most come first.
fn rows<'a>(tables: &'a [LineTable], field: &str) -> Vec<&'a Row> {
    let is_it = |row: &&Row| row.data == field || row.data.ends_with(&format!(".{field}"));
    let mut rows: Vec<_> = tables.iter().flat_map(|table| &table.rows).filter(is_it).collect();
    rows.retain(|row| row.samples.mean > 20.0);
    rows.sort_by(|one, other| other.samples.mean.total_cmp(&one.samples.mean));
    rows
}

/// The fields by their part of all latency.
fn fields(profile: &Profile) -> Vec<(String, f64)> {
    let mut fields: Vec<(String, f64)> = Vec::new();
    for row in lines(&Ledger::new(profile)).iter().flat_map(|table| &table.rows) {
        // Of a pointer, its type follows.
        let name = row.data.split(" (").next().unwrap_or_default();
        match fields.iter_mut().find(|(field, _)| field == name) {
            Some((_, share)) => *share += row.share.mean,
            None => fields.push((name.to_owned(), row.share.mean)),
        }
    }
    fields.sort_by(|one, other| other.1.total_cmp(&one.1));
    fields
}

/// Asserts that the dearest field is this one.
fn expect_dearest(profile: &Profile, field: &str) {
    let fields = fields(profile);
    let dearest = fields.first().map_or("", |(field, _)| field.as_str());
    assert_eq!(dearest, field, "{fields:?}");
}

fn transfers(profile: &Profile) -> u64 {
    profile.runs.iter().map(|run| run.transfers).sum()
}

fn cycles(profile: &Profile) -> Vec<u64> {
    profile.runs.iter().map(|run: &Run| run.parallel_cycles).collect()
}

#[test]
fn spin_locks_collapse_and_queues_hold() {
    let Some(analyser) = Analyser::new() else { return };
    for (name, field, shape) in [
        ("ttas", "account.lock", Shape::Collapse),
        ("ticket", "account.lock.serving", Shape::Collapse),
    ] {
        let program = analyser.c(name, &[]);
        let profiles = expect(&analyser, &program, &[1, 4, 16, 64], shape);
        expect_dearest(profiles.last().unwrap(), field);
    }
    let program = analyser.c("mcs", &[]);
    let profiles = expect(&analyser, &program, &[1, 4, 16, 64], Shape::Plateau);
    // Each waits on its own word, and all swap the tail.
    let fields = fields(profiles.last().unwrap());
    assert!(fields.iter().any(|(field, _)| field == "account.tail"), "{fields:?}");
    assert!(fields.iter().any(|(field, _)| field.contains("waiting")), "{fields:?}");
}

#[test]
fn a_mutex_holds_its_rate_and_its_waits_are_counted() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("mutex", &[]);
    let profiles = expect(&analyser, &program, &[1, 4, 16, 64], Shape::Plateau);
    for profile in &profiles {
        let cores = profile.meta.machine.cores;
        let locks = locks(&Ledger::new(profile));
        let lock = locks.iter().find(|lock| lock.name.starts_with("account.lock"));
        let lock = lock.unwrap_or_else(|| panic!("{cores} cores: {locks:?}"));
        assert_eq!(lock.kind, LockKind::Mutex);
        assert_eq!(lock.acquisitions.mean, 200.0 * cores as f64);
        // Ten steps of work are done while it is held.
        assert!(lock.hold_mean.mean > 20.0, "{lock:?}");
        let waits = lock.contended_share.mean;
        assert_eq!(waits > 0.0, cores > 1, "{lock:?}");
        if cores >= 16 {
            assert!(waits > 0.05 && lock.wait_mean.mean > lock.hold_mean.mean, "{lock:?}");
            assert!(
                lock.waiters.iter().any(|waiter| waiter.function.contains("deposit")),
                "{lock:?}"
            );
        }
    }
}

/// A loop of ten or of a thousand register operations between two accesses cost the same.
#[test]
fn computing_costs_time_and_only_where_it_is_charged() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("single", &[]);
    let cycles = |kind: &str, compute| {
        let plan = Plan { seeds: 1, compute, ..analyser.plan(&program, 1, &[kind, "1"]) };
        let profile = run(&plan);
        assert_eq!(profile.meta.computing, compute);
        profile.runs[0].cycles as f64
    };
    // 400,000 turns of a multiplication and an addition that wait for each other, 3 and 1 cycles; of the program's
    // start there are some hundred thousand cycles more.
    let chain = cycles("multiply-chain", true);
    assert!((1_500_000.0..2_300_000.0).contains(&chain), "{chain}");
    let side_by_side = cycles("four-chains", true);
    assert!(side_by_side < chain, "{side_by_side} {chain}");
    let accesses = cycles("multiply-chain", false);
    assert!(accesses < chain / 4.0, "{accesses}");
}

/// Two runs with one seed, byte for byte except the host's time.
#[test]
fn one_program_and_one_seed_give_one_profile() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("mutex", &[]);
    let text = || {
        let mut profile =
            run(&Plan { seeds: 1, compute: true, ..analyser.plan(&program, 4, &["4", "50"]) });
        for run in &mut profile.runs {
            run.host_nanoseconds = 0;
        }
        serde_json::to_string(&profile.runs).unwrap()
            + &serde_json::to_string(&profile.samples).unwrap()
    };
    assert_eq!(text(), text());
}

/// An idle pool's mutex had the waits for work, and conditions, barriers and semaphores appeared nowhere.
#[test]
fn waits_for_work_are_reported_apart_and_at_their_place() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("waits", &[]);
    // More threads than cores wait, too.
    for (cores, threads) in [(8, "8"), (2, "8")] {
        let profile = run(&analyser.plan(&program, cores, &[threads]));
        let locks = locks(&Ledger::new(&profile));
        for (kind, name, place) in [
            (LockKind::Condition, "pool.work", "take_job"),
            (LockKind::Semaphore, "tokens", "hand_out"),
            (LockKind::Barrier, "finish", "all_meet"),
        ] {
            let lock = locks.iter().find(|lock| lock.kind == kind && lock.name.starts_with(name));
            let lock = lock.unwrap_or_else(|| panic!("{name}: {locks:?}"));
            assert!(lock.wait_total.mean > 0.0, "{lock:?}");
            assert!(lock.waiters[0].function.contains(place), "{lock:?}");
            assert_eq!(lock.utilisation.mean, 0.0, "no thread holds it: {lock:?}");
        }
        for lock in &locks {
            assert!(lock.utilisation.mean <= 1.0 && lock.wait_share.mean <= 1.0, "{lock:?}");
        }
        let mutex = locks.iter().find(|lock| lock.kind == LockKind::Mutex).expect("the pool's");
        let work = locks.iter().find(|lock| lock.kind == LockKind::Condition).expect("the pool's");
        assert!(mutex.wait_total.mean * 5.0 < work.wait_total.mean, "{mutex:?} {work:?}");
    }
}

/// Looks at an epoch for each pin counted as one wait for it to change.
#[test]
fn an_epoch_is_no_lock_and_is_not_awaited() {
    let Some(analyser) = Analyser::new() else { return };
    let profile = run(&analyser.plan(&analyser.c("epoch", &[]), 8, &[]));
    let locks = locks(&Ledger::new(&profile));
    let found: Vec<_> = locks.iter().filter(|lock| lock.name.contains("epochs")).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn rust_mutexes_are_named_by_their_field_on_the_heap() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.rust("mutex", &[]);
    let profiles = expect(&analyser, &program, &[1, 4, 16], Shape::Plateau);
    let profile = profiles.last().unwrap();
    let fields = fields(profile);
    assert!(fields.iter().take(2).any(|(field, _)| field.contains("guarded")), "{fields:?}");
    assert!(
        locks(&Ledger::new(profile)).iter().any(|lock| lock.name.contains("guarded")),
        "{:?}",
        locks(&Ledger::new(profile))
    );
}

/// A block of 128 KiB or more that was allocated just before the first thread was called the stack of that thread, since
/// the runtime took a whole page for the thread's control block. Type, field and advice were lost.
#[test]
fn a_block_beside_a_stack_is_no_stack() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("table", &[]);
    let profile = run(&Plan { seeds: 1, ..analyser.plan(&program, 8, &[]) });
    let fields = fields(&profile);
    assert!(fields.first().is_some_and(|(field, _)| field.ends_with("].hits")), "{fields:?}");
}

/// GCC leaves `memcpy` and its kin to the C library, where no access is instrumented. Eight threads that copied into one
/// block were said to share nothing.
#[test]
fn copies_by_the_c_library_are_seen() {
    let Some(analyser) = Analyser::new() else { return };
    for flags in [&[][..], &["-DFILL"], &["-DMOVE"], &["-DSTRING"], &["-D_FORTIFY_SOURCE=2"]] {
        let program = analyser.c("copies", flags);
        let profile = run(&Plan { seeds: 1, ..analyser.plan(&program, 8, &[]) });
        let fields = fields(&profile);
        let share: f64 =
            fields.iter().filter(|(name, _)| name.contains("text")).map(|(_, share)| share).sum();
        assert!(share > 0.5 && transfers(&profile) > 1000, "{flags:?}: {fields:?}");
    }
}

#[test]
fn one_counter_is_a_plateau_of_true_sharing() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("one_counter", &[]);
    let profiles = expect(&analyser, &program, &[1, 4, 16, 64], Shape::Plateau);
    expect_dearest(&profiles[2], "statistics.requests");
    let tables = lines(&Ledger::new(&profiles[2]));
    let row = rows(&tables, "requests")[0];
    assert_eq!(tables[0].verdict, Verdict::True);
    assert_eq!(row.false_share.mean, 0.0);
    assert_eq!(row.instruction, "fetchadd8.rlx");
    assert_eq!(row.function, "count_request");
    assert_eq!(row.remote_share.mean, 0.0, "one node");
    // Of 16 cores on two nodes, eight are on the other one.
    let split = run(&analyser.plan(&program, 16, &[]));
    let remote = rows(&lines(&Ledger::new(&split)), "requests")[0].remote_share.mean;
    assert!((0.2..=0.8).contains(&remote), "{remote}");
}

#[test]
fn shards_and_readers_that_write_nothing_shared_are_linear() {
    let Some(analyser) = Analyser::new() else { return };
    for name in ["shards", "rcu"] {
        let program = analyser.c(name, &[]);
        let profiles = expect(&analyser, &program, &[1, 8, 64, 128], Shape::Linear);
        // Nothing that the operations share: twice as many cost no further transfer.
        let twice = Plan { nodes: 1, seeds: 4, ..analyser.plan(&program, 64, &["64", "400"]) };
        let twice = run(&twice);
        assert_eq!(transfers(&twice) / 64, transfers(&profiles[2]) / 64, "{name}");
    }
    let program = analyser.rust("map", &[]);
    expect(&analyser, &program, &[1, 4, 16, 64], Shape::Linear);
    let program = analyser.rust("map", &["one"]);
    let profiles = profiles(&analyser, &program, &[1, 16], &[]);
    assert!(curve(&profiles).points[1].efficiency.mean < 0.3);
}

#[test]
fn a_count_of_readers_bends_what_would_be_linear() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("rcu", &["-DCOUNTED"]);
    let profiles = expect(&analyser, &program, &[1, 8, 64], Shape::Plateau);
    let tables = lines(&Ledger::new(&profiles[2]));
    assert!(rows(&tables, "readers")[0].false_share.mean < 0.05);
    // The pointer is on the line, and no thread writes it.
    let entries: Vec<_> = tables
        .iter()
        .flat_map(|table| &table.rows)
        .filter(|row| row.field.contains("entries"))
        .collect();
    assert!(!entries.is_empty());
    assert!(entries.iter().all(|row| row.false_share.mean > 0.95), "{entries:?}");
    let program = analyser.rust("readers", &[]);
    let profile = run(&analyser.plan(&program, 16, &[]));
    let fields = fields(&profile);
    assert!(fields[0].0.contains("settings") && fields[0].0.contains("state"), "{fields:?}");
}

#[test]
fn true_and_false_sharing_are_distinguished() {
    let Some(analyser) = Analyser::new() else { return };
    // Two threads, two counters, one line.
    let together = run(&analyser.plan(&analyser.c("counters", &[]), 2, &[]));
    let tables = lines(&Ledger::new(&together));
    assert_eq!(tables[0].structure, "counters");
    assert_eq!(tables[0].verdict, Verdict::False);
    for field in ["a", "b"] {
        let rows = rows(&tables, field);
        assert!(rows[0].samples.mean > 50.0, "counters.{field}: {rows:?}");
        assert!(rows.iter().all(|row| row.false_share.mean > 0.99), "counters.{field}: {rows:?}");
    }
    let apart = run(&analyser.plan(&analyser.c("counters", &["-DAPART"]), 2, &[]));
    assert_eq!(rows(&lines(&Ledger::new(&apart)), "b"), [] as [&Row; 0]);
    assert!(transfers(&apart) * 10 < transfers(&together));
    // The same in Rust, on the heap, where the type is known from the allocation alone.
    let together = run(&analyser.plan(&analyser.rust("counters", &[]), 2, &[]));
    let tables = lines(&Ledger::new(&together));
    let row = rows(&tables, "a")[0];
    assert!(tables[0].structure.contains("Counters"), "{}", tables[0].structure);
    assert!(row.false_share.mean > 0.99, "{row:?}");
    // A flag without writers beside a counter that every thread writes.
    let profile = run(&analyser.plan(&analyser.c("flag", &[]), 16, &[]));
    let tables = lines(&Ledger::new(&profile));
    assert_eq!(tables[0].verdict, Verdict::Mixed);
    assert!(rows(&tables, "flag").iter().all(|row| row.false_share.mean > 0.99));
    assert!(rows(&tables, "flag").iter().all(|row| row.written == Some(false)));
    // An increment that only has to take the line from readers of the flag is false sharing as well.
    let apart = run(&analyser.plan(&analyser.c("flag", &["-DAPART"]), 16, &[]));
    let requests = rows(&tables, "requests")[0].false_share.mean;
    assert!(requests < 0.9, "{requests}");
    let tables = lines(&Ledger::new(&apart));
    assert_eq!(rows(&tables, "flag"), [] as [&Row; 0]);
    assert!(rows(&tables, "requests").iter().all(|row| row.false_share.mean == 0.0));
}

/// No object of C++ had a name: `operator new` has no frame pointer, so the walk of frames from its `malloc` missed the
/// function that calls `new`. In the second program the library is none of those that follow the runtime; in its second
/// run there is none, and the program ended with a fault: the look-up of `free` called `free`.
#[test]
fn an_object_of_cpp_has_the_type_that_its_maker_says() {
    let Some(analyser) = Analyser::new() else { return };
    let library = |flags: &[&str]| {
        let made = analyser.c("made", &[&["-DLIBRARY", "-shared", "-fPIC"], flags].concat());
        made.to_str().expect("a path of UTF-8").to_owned()
    };
    let [linked, alone] = [library(&[]), library(&["-Wl,-soname,libstdc++.so.6"])];
    let flags: [&[&str]; 2] = [&["-Wl,--no-as-needed", &linked], &["-DALONE"]];
    for (flags, args) in [(flags[0], &[][..]), (flags[1], &[alone.as_str()]), (flags[1], &[])] {
        let program = analyser.c("made", flags);
        for mode in [Mode::Simulated, Mode::Recorded] {
            let plan = analyser.plan(&program, 8, args);
            let profile = run(&Plan { seeds: 1, mode, ..plan });
            for (name, maker) in [("session", "open_session"), ("aligned", "open_aligned")] {
                let made = profile.objects.iter().find(|object| object.name == name);
                let names =
                    || profile.objects.iter().map(|object| &object.name).collect::<Vec<_>>();
                let made = made.unwrap_or_else(|| panic!("{mode:?}: {name}: {:?}", names()));
                assert_eq!(made.allocated_in, maker, "{mode:?}");
            }
        }
    }
}

/// The advice for eight counters was right, but its trial parted two of them and said that the program gets slower. The same
/// program with a line for each counter got advice, too.
#[test]
fn advice_is_tried_whole_and_given_where_it_gains() {
    let Some(analyser) = Analyser::new() else { return };
    let plan = |program: &Path| Plan { seeds: 2, ..analyser.plan(program, 8, &[]) };
    let base = plan(&analyser.c("statistics", &[]));
    let profile = run(&base);
    let mut advised = Vec::new();
    for advice in advise::advise(&Ledger::new(&profile)) {
        let trial = advise::check(&profile, &advice, |request| {
            let (modules, layouts) = (request.modules.clone(), request.layouts.clone());
            Ok(run(&Plan { modules, layouts, what_if: request.what_if.clone(), ..base.clone() }))
        });
        advised.push((advice, trial.expect("the layout can be tried")));
    }
    advise::judge(&mut advised);
    let (first, tried) = &advised[0];
    assert_eq!(first.what_if.as_deref(), Some("statistics.hits -> own lines"));
    let gain = tried.as_ref().map(|tried| tried.base.mean / tried.changed.mean);
    // By the changed source, too: starting the threads is what is left.
    let really = run(&plan(&analyser.c("statistics", &["-DAPART"])));
    let changed = cycles(&profile)[0] as f64 / cycles(&really)[0] as f64;
    assert!(gain.is_some_and(|gain| gain > 5.0 && gain / changed > 0.9), "{gain:?} {changed}");
    assert!(advised.iter().all(|(_, tried)| tried.as_ref().is_none_or(advise::is_proven)));
    let given = advise::advise(&Ledger::new(&really));
    assert!(given.is_empty(), "{given:#?}");
}

#[test]
fn slots_and_elements_that_share_lines_are_slower_than_aligned_ones() {
    let Some(analyser) = Analyser::new() else { return };
    for (name, structure, field) in [("slots", "slots", "hits"), ("straddle", "Tag", "busy")] {
        let packed = analyser.plan(&analyser.c(name, &[]), 32, &[]);
        let packed = run(&Plan { nodes: 1, ..packed });
        let program = analyser.c(name, &["-DAPART"]);
        let profiles = expect(&analyser, &program, &[1, 8, 32], Shape::Linear);
        let [packed_cycles, apart_cycles] = [&packed, &profiles[2]].map(|one| cycles(one)[0]);
        assert!(packed_cycles > apart_cycles * 3 / 2, "{name}: {packed_cycles}, {apart_cycles}");
        let tables = lines(&Ledger::new(&packed));
        let named: Vec<_> =
            tables.iter().filter(|table| table.structure.contains(structure)).collect();
        let names = tables.iter().map(|table| &table.structure).collect::<Vec<_>>();
        assert!(named.len() >= 4, "{name}: {names:?}");
        for table in named {
            assert_eq!(table.verdict, Verdict::False, "{table:?}");
            assert!(table.rows.iter().any(|row| row.field.contains(field)), "{table:?}");
        }
    }
}

#[test]
fn an_access_across_two_lines_counts_on_both() {
    let Some(analyser) = Analyser::new() else { return };
    let profile = run(&analyser.plan(&analyser.c("packed", &[]), 4, &[]));
    let lines_of_record: Vec<_> = lines(&Ledger::new(&profile))
        .into_iter()
        .filter(|table| table.structure == "record")
        .collect();
    assert_eq!(lines_of_record.len(), 2, "{lines_of_record:?}");
    for table in &lines_of_record {
        assert!(table.rows.iter().any(|row| row.field.starts_with("total")), "{table:?}");
    }
    let samples: Vec<_> = lines_of_record.iter().map(|table| table.samples.mean).collect();
    assert!((samples[0] / samples[1] - 1.0).abs() < 0.2, "{samples:?}");
}

/// The predicted effect of a change, and that of the changed program: cycles of each seed.
fn change(changed: &Path, base: &Plan, what: &str) -> [Vec<u64>; 3] {
    let profile = run(base);
    let change = whatif::parse(what).expect("a change");
    let layouts = whatif::relayouts(&profile, &change).expect("a layout");
    let modules = profile.modules.iter().map(|module| module.path.clone().into()).collect();
    let predicted = run(&Plan { modules, layouts, what_if: vec![what.into()], ..base.clone() });
    assert_eq!(predicted.meta.what_if, [what]);
    let program = changed.to_path_buf();
    let really = run(&Plan { program, ..base.clone() });
    [cycles(&profile), cycles(&predicted), cycles(&really)]
}

#[test]
fn what_if_is_what_the_changed_source_does() {
    let Some(analyser) = Analyser::new() else { return };
    for (name, what) in [
        ("counters", "counters.b -> own line"),
        ("flag", "service.flag -> own line"),
        ("straddle", "Tag -> align 64"),
    ] {
        let [before, after] = [analyser.c(name, &[]), analyser.c(name, &["-DAPART"])];
        for cores in [2, 8, 32] {
            // Without jitter there is one right answer.
            let jitter_percent = Parameter::assumed(0.0);
            let machine = Machine { jitter_percent, ..analyser.machine() };
            let base = Plan { machine, seeds: 1, ..analyser.plan(&before, cores, &[]) };
            let [base, predicted, really] = change(&after, &base, what);
            assert_eq!(predicted, really, "{name} on {cores} cores; before: {base:?}");
            assert!(predicted[0] < base[0], "{name} on {cores} cores: {predicted:?}, {base:?}");
        }
    }
    // With jitter: within the spread of the seeds.
    let [before, after] = [analyser.c("flag", &[]), analyser.c("flag", &["-DAPART"])];
    let base = Plan { seeds: 6, ..analyser.plan(&before, 8, &[]) };
    let [_, predicted, really] = change(&after, &base, "service.flag -> own line");
    let (least, most) = (really.iter().min().unwrap(), really.iter().max().unwrap());
    let (low, high) = (least - (most - least), most + (most - least));
    assert!(predicted.iter().all(|one| (low..=high).contains(one)), "{predicted:?}, {really:?}");
}
