//! Floor: contention. The analyser's effects on a program: none that the program could notice.
//!
//! Every primitive of pthread and of `std` does its work on virtual cores; the same seed gives the same
//! profile, whatever else is in memory; a program that cannot end is ended, and the reason said.
//!
//! Sources are in `tests/contention/known`. Skipped where there is no gcc or no x86-64.
//!
//! Weakness: other hosts are not tried.

mod shared;

use shared::{Analyser, attempt, run};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Mode, Run};
use uvfs_contention::run::{Output, Plan};

/// More threads than cores, as many, and fewer.
const SHAPES: [(usize, &str); 4] = [(1, "4"), (4, "4"), (3, "13"), (64, "40")];

#[test]
fn pthread_does_its_work_on_virtual_cores() {
    let Some(analyser) = Analyser::new() else { return };
    let programs = ["primitives", "queue"].map(|name| analyser.c(name, &[]));
    for program in &programs {
        for (cores, threads) in SHAPES {
            run(&Plan { seeds: 2, ..analyser.plan(program, cores, &[threads]) });
        }
    }
}

#[test]
fn std_does_its_work_on_virtual_cores() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.rust("primitives", &[]);
    for (cores, threads) in SHAPES {
        run(&Plan { seeds: 2, ..analyser.plan(&program, cores, &[threads]) });
    }
}

/// All figures of a run but the host's time for it.
fn figures(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    for run in &mut profile.runs {
        run.host_nanoseconds = 0;
    }
    // Where a program lies is shown and never compared.
    for object in &mut profile.objects {
        object.address %= profile.meta.machine.line_bytes;
    }
    profile
}

#[test]
fn the_same_seed_gives_the_same_profile_and_another_seed_another() {
    let Some(analyser) = Analyser::new() else { return };
    let programs = [
        (analyser.c("ttas", &[]), 16),
        (analyser.c("queue", &[]), 8),
        (analyser.rust("map", &["one"]), 16),
    ];
    for (program, cores) in &programs {
        let plan = Plan { seeds: 2, ..analyser.plan(program, *cores, &[]) };
        let [first, second] = [run(&plan), run(&plan)];
        assert_eq!(figures(&first).runs, figures(&second).runs, "{}", program.display());
        assert_eq!(figures(&first), figures(&second), "{}", program.display());
        let [one, other] = [&first.runs[0], &first.runs[1]];
        assert_ne!(one.cycles, other.cycles, "two seeds of {}", program.display());
        // Nor do other contents of its memory: here its stack begins elsewhere.
        let mut env: Vec<_> = std::env::vars_os().collect();
        env.push(("UVFS_PADDING".into(), "x".repeat(10_000).into()));
        let elsewhere = run(&Plan { env: Some(env), ..plan.clone() });
        let costs = |profile: &Profile| profile.runs.iter().map(cost).collect::<Vec<_>>();
        assert_eq!(costs(&elsewhere), costs(&first), "{}", program.display());
    }
}

fn cost(run: &Run) -> [u64; 5] {
    [run.cycles, run.parallel_cycles, run.accesses, run.misses, run.transfers]
}

#[test]
fn a_program_reads_virtual_time_and_virtual_chance() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.rust("clock", &[]);
    let printed = |cores: usize, first_seed: u64| {
        let plan = analyser.plan(&program, cores, &[]);
        let outcome = attempt(&Plan { seeds: 1, first_seed, output: Output::Kept, ..plan });
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        outcome.outputs[0].1.clone()
    };
    let line = printed(8, 1);
    assert!(line.starts_with("8 threads, "), "{line}");
    assert_eq!(line, printed(8, 1));
    assert_ne!(line, printed(8, 2));
    assert!(printed(100, 1).starts_with("100 threads, "));
}

/// A lock meter that read `rdtsc` brought the host's time into a run: the same seed gave clocks that differed by
/// up to 8 %.
#[test]
fn a_program_that_reads_the_processors_counter_reads_virtual_time() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("counter", &[]);
    let printed = |cores: usize, first_seed: u64| {
        let plan = analyser.plan(&program, cores, &[]);
        let outcome = attempt(&Plan { seeds: 1, first_seed, output: Output::Kept, ..plan });
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        outcome.outputs[0].1.clone()
    };
    let line = printed(16, 1);
    assert!(line.ends_with(" cycles\n"), "{line}");
    assert_eq!(line, printed(16, 1));
    assert_ne!(line, printed(16, 2));
}

#[test]
fn a_deadlock_is_named() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("deadlock", &[]);
    let plan = analyser.plan(&program, 4, &[]);
    let outcome = attempt(&Plan { seeds: 1, output: Output::Kept, ..plan });
    let failure = &outcome.failures[0];
    assert_eq!(failure.status, 71, "{failure:?}");
    assert!(failure.output.contains("uvfs contention: deadlock"), "{failure:?}");
    // The waits: main for a thread, and the two threads for each other's mutex.
    let lines = failure.output.lines().filter(|line| line.contains("  thread "));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 3, "{failure:?}");
    assert!(lines[0].contains("waits for the end of thread"), "{failure:?}");
    let mutex = |line: &str| {
        let (_, rest) = line.split_once("waits for the mutex at ").expect("it waits for a mutex");
        rest.split(' ').next().map(str::to_owned)
    };
    assert_ne!(mutex(lines[1]), mutex(lines[2]), "{failure:?}");
}

#[test]
fn a_loop_that_no_access_is_seen_of_is_ended() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("unseen_spin", &[]);
    let plan = analyser.plan(&program, 2, &[]);
    let outcome = attempt(&Plan { seeds: 1, watchdog_seconds: 1, output: Output::Kept, ..plan });
    let failure = &outcome.failures[0];
    assert_eq!(failure.status, 70, "{failure:?}");
    assert!(failure.output.contains("uvfs contention: "), "{failure:?}");
    // The function has no symbol that a loader keeps: its module and offset.
    assert!(failure.output.contains("unseen_spin+0x"), "{failure:?}");
}

/// It hung, and the watchdog did not see it: each call counted as progress, but let no other thread run.
#[test]
fn a_loop_of_calls_lets_others_run() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("called_spin", &[]);
    for cores in [1, 4] {
        run(&Plan { seeds: 1, watchdog_seconds: 20, ..analyser.plan(&program, cores, &["4"]) });
    }
}

/// With computing charged, the loop without visible accesses hung: its blocks counted as progress, so that no watchdog
/// ended it, but let no other thread run, so that its condition never came true.
#[test]
fn a_loop_of_blocks_lets_others_run() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("unseen_spin", &[]);
    for cores in [1, 2] {
        let plan = analyser.plan(&program, cores, &[]);
        run(&Plan { seeds: 1, compute: true, watchdog_seconds: 20, ..plan });
    }
}

#[test]
fn a_child_of_a_threads_fork_ends_as_the_last_thread_of_a_process() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("endings", &[]);
    run(&Plan { seeds: 1, ..analyser.plan(&program, 2, &["child"]) });
}

#[test]
fn a_signal_ends_a_recording_whatever_its_threads_are_at() {
    let Some(analyser) = Analyser::new() else { return };
    let program = analyser.c("endings", &[]);
    // A thread that is interrupted while it counts has a lock that the report needs: one run in ten or so.
    for seed in 1..=40 {
        let plan = analyser.plan(&program, 4, &["signal"]);
        let plan = Plan { seeds: 1, first_seed: seed, mode: Mode::Recorded, ..plan };
        let outcome = attempt(&plan);
        assert_eq!(outcome.failures[0].status, 128 + 14, "{:?}", outcome.failures);
        let runs = outcome.profile.expect("a profile").runs;
        assert!(runs[0].accesses > 0, "{runs:?}");
    }
}
