//! Reports of profiles whose figures are known, and of such that want to do harm.

use super::*;
use crate::analysis::fixture::{anonymous, empty, hostile, profile};
use serde_json::Value;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{HEAT_PLACES_MAX, Heat, LockKind, Mode, ObjectKind};

fn all() -> Options {
    Options { sections: Section::ALL.to_vec(), top: 20, ..Options::default() }
}

fn one_seed() -> Profile {
    let mut one = profile();
    one.runs.truncate(1);
    one.samples.retain(|one| one.seed == 1);
    one.heat.retain(|one| one.seed == 1);
    one.locks.retain(|one| one.seed == 1);
    one.threads.retain(|one| one.seed == 1);
    one.histograms.retain(|one| one.seed == 1);
    one
}

#[test]
fn a_line_has_the_columns_of_the_paper_and_ours() {
    let options = Options { sections: vec![Section::Lines], line: Some(1), ..Options::default() };
    let expected = "\
1. Super, line 0
  60 % (± 61.0) of all latency, 120 transfers, 33.3% remote, mixed sharing (35.0% false), 20.0% of latency is
  queue, 4 cores, allocated in main
  samples  ±     remote  module  inst. address  inst.         function           data address  data                false   latency  queue  share  invalidated by
*      80  318%  50.00%  prog    0x401000       cmpxchg4.acq  [spinlock] @ dget  0x1008        root.lock           2.5%        300  25.0%  48.0%  [spinlock] @ dget: root.lock
*      40  0%     0.00%  prog    0x401020       ld8           lookup             0x1010        root.hash (hlist*)  100.0%      150  0.0%   12.0%  [spinlock] @ dget: root.lock
";
    let shown = text(&Ledger::new(&profile()), &options);
    let squeezed = |text: &str| {
        text.lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(squeezed(&shown), squeezed(expected), "\n{shown}");
    // Columns stand below their heads.
    let lines: Vec<_> = shown.lines().collect();
    let heads = lines.iter().position(|line| line.contains("inst. address")).unwrap();
    for name in ["module", "inst. address", "function", "data address"] {
        let at = lines[heads].find(name).unwrap();
        assert!(
            lines[heads + 1..].iter().all(|line| {
                let column = line.chars().nth(lines[heads][..at].chars().count());
                column.is_some_and(|one| one != ' ')
            }),
            "{name}\n{shown}"
        );
    }
}

#[test]
fn the_summary_says_what_where_and_how_sure() {
    let summary = summary(&Ledger::new(&profile()), &Options::default());
    let all = summary.join("\n");
    for part in [
        "`./prog 8` on 4 cores, 2 nodes: 286,000 cycles",
        "mean of 2 seeds",
        "stand still for cache misses 20 % (± 0.0) of their time and sleep 10 %",
        "Transfers between caches are 90 % of the latency of all misses",
        "55 % of the misses are local and take 38 % of the latency",
        "The dearest line is Super, line 0 (allocated in `main`): 60 %",
        "Its dearest access is cmpxchg4.acq of `root.lock` in `[spinlock] @ dget`, 80 %",
        "mixed: 35 %",
        "no core writes `root.hash (hlist*)`, which is missed only because of its neighbours",
        "All 4 contended lines have 90 % of all latency: `Super` 60 %, `counters` 20 % and `Dentry` x 2 10 %",
        "longest waits is `Super.root.lock`: 15 % of 1,000 acquisitions wait, 200 ns each",
        "waited for @ dget",
        "simulated on machine",
        "seeds 1-2",
        "assumed, not measured, are its",
        "Not modelled: the kernel",
    ] {
        assert!(all.contains(part), "{part}\n{all}");
    }
    assert!(summary.len() <= 12, "{all}");
    assert!(summary.iter().all(|line| line.ends_with('.')), "{all}");
    let noted =
        Options { notes: vec!["12 of 20 objects have a type".into()], ..Options::default() };
    assert!(super::summary(&Ledger::new(&profile()), &noted).contains(&noted.notes[0]));
}

#[test]
fn one_seed_has_no_intervals_and_says_so() {
    let (one, text_of) = (one_seed(), |profile: &Profile| text(&Ledger::new(profile), &all()));
    let shown = text_of(&one);
    assert!(shown.contains("one seed, so without intervals"), "{shown}");
    assert!(!shown.contains('±'), "{shown}");
    assert!(text_of(&profile()).contains('±'));
    assert!(!html(&Ledger::new(&one), &all()).contains("(± "));
}

#[test]
fn heat_that_was_cut_is_said() {
    let row = Options {
        structure: Some("counters".into()),
        sections: vec![Section::Layout],
        ..Options::default()
    };
    let words = "are of the 2,048 most visited places of each object (one has so many)";
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut cut = profile();
    assert!(!flat(text(&Ledger::new(&cut), &row)).contains("most visited"));
    let one = cut.heat.iter().find(|one| one.object == 1).unwrap().clone();
    let places = (0..HEAT_PLACES_MAX as u64).map(|at| Heat { offset: at * 8, ..one.clone() });
    cut.heat.extend(places);
    let shown = flat(text(&Ledger::new(&cut), &row));
    assert!(shown.contains(words), "{shown}");
    assert!(flat(html(&Ledger::new(&cut), &all())).contains(words));
}

#[test]
fn an_empty_profile_is_a_report_too() {
    for profile in [empty(), anonymous()] {
        let text = text(&Ledger::new(&profile), &all());
        assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
        let page = html(&Ledger::new(&profile), &all());
        assert!(!page.replace("isNaN", "").contains("NaN") && page.ends_with("</html>\n"));
        serde_json::from_str::<Value>(&json(&Ledger::new(&profile), &all())).unwrap();
    }
    assert!(
        text(&Ledger::new(&empty()), &all())
            .contains("No cache line went from one core to another")
    );
    let anonymous = summary(&Ledger::new(&anonymous()), &all()).join("\n");
    assert!(
        anonymous.contains("100 % of all latency is in memory without a type (`heap(48)`)"),
        "{anonymous}"
    );
}

#[test]
fn options_choose_sections_lines_and_structures() {
    let only = |section| Options { sections: vec![section], ..Options::default() };
    let locks = text(&Ledger::new(&profile()), &only(Section::Locks));
    assert!(locks.contains("EXCLUSIVE LOCKS  HOLD               WAIT"), "{locks}");
    // A mutex was once listed below SPINLOCKS.
    let mut mutex = profile();
    mutex.locks.iter_mut().for_each(|lock| lock.kind = LockKind::Mutex);
    assert!(!text(&Ledger::new(&mutex), &only(Section::Locks)).contains("SPINLOCKS"));
    assert!(!html(&Ledger::new(&mutex), &all()).contains("SPINLOCKS"));
    assert!(
        locks.contains("NOWAIT   SPIN  RJECT BOUNCE  NAME") && locks.contains("Super.root.lock")
    );
    assert!(locks.contains("@ dget") && !locks.contains("inst. address"), "{locks}");
    let histogram = text(&Ledger::new(&profile()), &only(Section::Histogram));
    assert!(histogram.contains("55 % ") && histogram.contains("lllll"), "{histogram}");
    let structures = text(&Ledger::new(&profile()), &only(Section::Structures));
    assert!(structures.contains("top 4 of 4 contended lines = 90 %"), "{structures}");
    assert!(structures.contains("fs/dcache.c") && structures.contains("vfs::super_block"));
    let dentry = Options { structure: Some("Dentry".into()), ..all() };
    let dentry = text(&Ledger::new(&profile()), &dentry);
    assert!(
        dentry.contains("3. Dentry x 2, line 1") && !dentry.contains("1. Super, line 0"),
        "{dentry}"
    );
    assert!(
        dentry.contains("struct Dentry (/src/fs/dcache.c:7)") && dentry.contains("--- line 1 ---")
    );
    let none = Options { line: Some(99), sections: vec![Section::Lines], ..Options::default() };
    assert!(text(&Ledger::new(&profile()), &none).contains("no table 99: there are 3"));
    let first = Options { top: 1, sections: vec![Section::Lines], ..Options::default() };
    assert!(text(&Ledger::new(&profile()), &first).contains("2 more; --top 3 shows all"));
}

#[test]
fn narrow_terminals_get_narrow_lines() {
    for width in [100, 80] {
        let text = text(&Ledger::new(&profile()), &Options { width: Some(width), ..all() });
        let locks = text.find("Locks in virtual time").unwrap();
        for line in text[..locks].lines() {
            assert!(line.chars().count() <= width + 4, "{width}: {line}");
        }
    }
}

#[test]
fn colour_is_for_terminals_only() {
    assert!(!text(&Ledger::new(&profile()), &all()).contains('\x1b'));
    assert!(text(&Ledger::new(&profile()), &Options { colour: true, ..all() }).contains("\x1b[1m"));
}

#[test]
fn other_modes_say_where_figures_are_from() {
    let mut recorded = profile();
    recorded.meta.mode = Mode::Recorded;
    recorded.samples.iter_mut().for_each(|one| (one.service, one.queue) = (0, 0));
    let text = summary(&Ledger::new(&recorded), &all()).join("\n");
    assert!(
        text.contains("Recorded from real threads") && text.contains("of all misses"),
        "{text}"
    );
    assert!(!text.contains(" of the latency"), "{text}");
    recorded.meta.mode = Mode::Imported;
    assert!(
        summary(&Ledger::new(&recorded), &all()).join("\n").contains("Imported from another tool")
    );
    recorded.runs[1].status = Some(139);
    assert!(
        summary(&Ledger::new(&recorded), &all())
            .join("\n")
            .contains("seed 2 ended with status 139")
    );
}

#[test]
fn hostile_names_stay_names() {
    let profile = hostile();
    let shown = text(&Ledger::new(&profile), &all());
    for character in ['\x1b', '\r', '\0', '\u{202e}'] {
        assert!(!shown.contains(character), "{character:?}");
    }
    assert!(shown.contains("<script>") && shown.lines().all(|line| line.chars().count() < 1200));
    let page = html(&Ledger::new(&profile), &all());
    // The page has one script, its own, and no attribute is left early.
    assert_eq!(page.matches("<script").count(), 1);
    assert!(!page.contains("alert('x')") && page.contains("&lt;script&gt;alert(&#39;x&#39;)"));
    for character in ['\x1b', '\r', '\0', '\u{202e}'] {
        assert!(!page.contains(character), "{character:?}");
    }
    assert!(page.contains("ünïcode") && !page.contains(&"A".repeat(300)));
    assert!(page.len() < 400_000, "{}", page.len());
    let json: Value = serde_json::from_str(&json(&Ledger::new(&profile), &all())).unwrap();
    assert!(json["lines"][0]["structure"].as_str().unwrap().contains("<script>"));
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_is_whole() {
    let page = html(&Ledger::new(&profile()), &all());
    let page = page.replace("isNaN", "");
    for word in ["http:", "https:", "src=", "@import", "url(", "<link", "NaN", "inf\""] {
        assert!(!page.contains(word), "{word}");
    }
    for tag in [
        "svg", "table", "tr", "td", "th", "p", "h2", "h3", "li", "ol", "g", "title", "main", "text",
    ] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("name=\"viewport\""));
    assert!(page.contains("default-src 'none'"));
    // Two diagrams and the heat of three types.
    assert_eq!(page.matches("<svg").count(), 5);
    assert!(page.contains("<tr class=\"hot\">"));
    // A byte of the lock, written by several cores, and one of the pointer that pays for it.
    assert!(page.contains("<g class=\"shared\"><title>root.lock at 8, 4 bytes"), "{page}");
    assert!(page.contains("<g class=\"victim\"><title>root.hash at 16, 8 bytes"));
}

#[test]
fn the_document_has_all_analyses() {
    let json: Value =
        serde_json::from_str(&json(&Ledger::new(&profile()), &Options::default())).unwrap();
    assert_eq!(json["lines"][0]["structure"], "Super");
    assert_eq!(json["lines"][0]["rows"][0]["instruction"], "cmpxchg4.acq");
    assert_eq!(json["lines"][0]["samples"]["mean"], 120.0);
    assert!(json["lines"][0]["samples"]["plus_minus"].is_number());
    assert_eq!(json["lines"][0]["verdict"], "mixed");
    assert_eq!(json["histogram"]["local_latency"]["mean"], 0.38);
    assert_eq!(json["structures"]["subsystems"][0]["name"], "vfs::super_block");
    assert_eq!(json["locks"][0]["name"], "Super.root.lock");
    assert_eq!(json["flows"][0]["edges"][0]["to"]["function"], "[spinlock] @ dget");
    for part in ["runs", "groups", "layouts", "lock_groups", "threads", "summary"] {
        assert!(!json[part].is_null(), "{part}");
    }
}

#[test]
fn variables_and_threads_own_are_called_by_their_names() {
    let mut profile = profile();
    profile
        .objects
        .iter_mut()
        .filter(|one| one.id == 1)
        .for_each(|one| one.kind = ObjectKind::ThreadLocal);
    assert!(
        text(&Ledger::new(&profile), &all()).contains("counters[0]")
            || text(&Ledger::new(&profile), &all()).contains("counters[*]")
    );
}

#[test]
fn sweeps_comparisons_nodes_and_advice_are_laid_out() {
    use crate::sweep::{Measurement, Work, sweep};
    let on = |cores: usize, cycles: u64| {
        let mut profile = profile();
        profile.meta.machine = profile.meta.machine.with(cores, 1);
        for run in &mut profile.runs {
            (run.cycles, run.parallel_cycles) = (cycles, cycles + run.seed * 100);
            run.threads = cores as u64;
        }
        profile
    };
    // The same work on each core: four cores do no more than one.
    let profiles = [on(1, 100_000), on(2, 200_000), on(4, 400_000), on(8, 1_600_000)];
    let measured: Vec<_> =
        profiles.iter().map(|profile| Measurement { profile, work: Work::PerCore }).collect();
    let swept = sweep(&measured).unwrap();
    let shown = sweep_text(&swept, &all());
    assert!(shown.contains(&format!("The curve is {}", swept.shape.unwrap())), "{shown}");
    assert!(shown.contains("efficiency") && shown.contains("Universal scalability law"), "{shown}");
    let page = sweep_html(&swept, "a <b> & c");
    assert!(page.contains("a &lt;b&gt; &amp; c") && page.matches("<circle").count() >= 4);
    assert!(!page.replace("isNaN", "").contains("NaN") && page.contains("dashed"));

    let compared = crate::compare::compare(
        &Ledger::new(&on(4, 100_000)),
        &Ledger::new(&on(4, 200_000)),
        false,
    )
    .unwrap();
    let shown = compare_text(&compared, &all());
    assert!(shown.contains("the new one is slower") && shown.contains("Careful: "), "{shown}");
    assert!(compare_html(&compared, "old, new").contains("parallel_cycles"));

    let mut several = on(4, 300_000);
    several.meta.machine = several.meta.machine.with(4, 2);
    let nodes = crate::numa::numa(&Ledger::new(&on(4, 100_000)), &Ledger::new(&several)).unwrap();
    let shown = numa_text(&nodes, &all());
    assert!(shown.contains("The same 4 cores on one node and on 2"), "{shown}");
    assert!(numa_html(&nodes, "nodes").contains("Structures"));
}

#[test]
fn advice_stands_with_its_evidence() {
    use crate::advise::{Advice, Fact, Rule};
    let advice = Advice {
        rule: Rule::SeparateReadMostly,
        about: "Super.hash".into(),
        remedy: "move it to a line without writes".into(),
        evidence: vec![Fact { what: "Super.hash".into(), found: "no core\nwrites it".into() }],
        what_if: Some("Super.hash -> own line".into()),
        share: crate::analysis::Estimate { mean: 0.12, plus_minus: Some(0.01) },
    };
    let program = ["./prog".to_owned(), "it's 8".to_owned()];
    let shown = advise_text(&[(advice.clone(), None)], &[], &program, &all());
    for part in [
        "1. Super.hash (separate-read-mostly)",
        "it stands for 12 % (± 1.0) of the cost",
        "- Super.hash: no core\u{fffd}writes it",
        "Try it: uvfs contention what-if 'Super.hash -> own line' -- ./prog 'it'\\''s 8'\n",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    let tried = crate::whatif::Evidence {
        change: "Super.hash -> own line".into(),
        base: crate::analysis::Estimate { mean: 1000.0, plus_minus: None },
        changed: crate::analysis::Estimate { mean: 750.0, plus_minus: None },
        gain: crate::statistics::Difference { mean: 250.0, plus_minus: None },
        ratio: None,
        significant: None,
        transfers: Default::default(),
        bytes_per_object: 64,
        objects: 1,
    };
    let dropped = ["Super -> align 64".to_owned()];
    let shown = advise_text(&[(advice, Some(tried))], &dropped, &program, &all());
    assert!(shown.contains("gains nothing: `Super -> align 64`."), "{shown}");
    assert!(shown.contains("1,000 -> 750 cycles, 25 % fewer, of one seed"), "{shown}");
    assert!(shown.contains("+64 bytes for each object"), "{shown}");
    assert!(advise_text(&[], &[], &[], &all()).contains("Nothing to advise"));
}

#[test]
fn a_variable_is_found_by_its_type() {
    // `report --structure super` said "no contended line" of a program whose dearest line was the variable `s`
    // of that type.
    let mut profile = profile();
    let id = profile.types.iter().find(|kind| kind.name.ends_with("::Super")).unwrap().id;
    for object in profile.objects.iter_mut().filter(|object| object.type_id == Some(id)) {
        (object.kind, object.name) = (ObjectKind::Global, "s".into());
    }
    let options = |name: &str| Options {
        sections: vec![Section::Lines],
        structure: Some(name.into()),
        ..Options::default()
    };
    for name in ["vfs::super_block::Super", "s"] {
        let shown = text(&Ledger::new(&profile), &options(name));
        assert!(shown.starts_with("1. s, line 0"), "{name}: {shown}");
    }
}

#[test]
fn samples_of_hardware_are_no_failed_run() {
    // An imported profile was introduced with "The run with seed 0 ended without a status: its figures may be
    // those of a failure", told to "use --seeds 8", which perf has not, and loads were `ld0`.
    let mut imported = one_seed();
    imported.meta.mode = Mode::Imported;
    imported.runs[0].status = None;
    imported.sites.iter_mut().for_each(|site| site.bytes = 0);
    let shown = text(&Ledger::new(&imported), &all());
    for wrong in ["ended without a status", "--seeds", "ld0"] {
        assert!(!shown.contains(wrong), "{wrong}: {shown}");
    }
    assert!(shown.contains(" ld "), "{shown}");
}

#[test]
fn a_program_is_shown_by_its_name() {
    // The first sentence had the first sixty letters of the path, which of a cargo project end before the name.
    let mut profile = profile();
    let folder = "/home/me/project/target/contention/x86_64-unknown-linux-gnu/release/deps";
    profile.meta.command = vec![format!("{folder}/storm-0123"), "8".into()];
    let summary = summary(&Ledger::new(&profile), &Options::default());
    assert!(summary[0].starts_with("`storm-0123 8` on"), "{}", summary[0]);
}

#[test]
fn a_lock_with_most_of_the_time_is_said_first() {
    // A lock for which all cores waited 73 % of their time was the eighth sentence, behind a line with 3 %.
    use crate::fixture::Builder;
    let said = |waited: u64| {
        let mut builder = Builder::new(4, 1, 2);
        let kind = builder.kind("Super", 64, &[("lock", 0, 4)]);
        let object = builder.object("Super", 0x1000, 64, Some(kind), false);
        builder.lock(object, 0, LockKind::Word, |lock| {
            (lock.contended, lock.wait_total) = (500, waited);
        });
        summary(&Ledger::new(&builder.done()), &all())
    };
    let first = "The lock with the longest waits is `Super.lock`";
    assert!(said(2_900_000)[0].starts_with(first), "{:?}", said(2_900_000));
    let little = said(100_000);
    assert!(!little[0].starts_with(first) && little.iter().any(|line| line.starts_with(first)));
}
