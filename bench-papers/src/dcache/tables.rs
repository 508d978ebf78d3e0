//! The paper's tables 1 to 7, measured again, and some that it did not need.
//!
//! # Boundary
//! Text only. Lock tables have lockmeter's columns and come from the run with the median throughput.

use super::loads::Kind;
use super::measure::{Run, Variant};
use super::results::{Measure, Results, watched};
use std::io::{self, Write};
use uvfs_concurrent::lock::meter::{ClassReport, lockmeter_table};

/// The number of threads that corresponds to the paper's.
#[derive(Debug, Clone, Copy)]
enum Machine {
    /// The paper's 8-way: our largest number of threads.
    Large,
    /// The paper's 4-way: our second largest.
    Small,
}

struct PaperTable {
    number: u32,
    title: &'static str,
    variant: Variant,
    kind: Kind,
    machine: Machine,
}

const TABLES: [PaperTable; 7] = [
    table(1, "lockmeter output, baseline", Variant::GlobalLock, Kind::Dbench, Machine::Large),
    table(2, "lockmeter output, baseline", Variant::GlobalLock, Kind::Httperf, Machine::Large),
    table(3, "lockmeter statistics, unpatched", Variant::GlobalLock, Kind::Dbench, Machine::Small),
    table(
        4,
        "lockmeter statistics, first RCU patch",
        Variant::RcuHash,
        Kind::Dbench,
        Machine::Small,
    ),
    table(5, "separate lock for the LRU list", Variant::SeparateLru, Kind::Dbench, Machine::Small),
    table(6, "the effect of lazy dcache", Variant::LazyLruTraversal, Kind::Dbench, Machine::Large),
    table(7, "the effect of lazy dcache", Variant::LazyLruTraversal, Kind::Httperf, Machine::Large),
];

const fn table(
    number: u32,
    title: &'static str,
    variant: Variant,
    kind: Kind,
    machine: Machine,
) -> PaperTable {
    PaperTable { number, title, variant, kind, machine }
}

/// Writes all tables. `threads` rises; `cores` is this machine's number.
pub(super) fn write(
    results: &Results,
    variants: &[Variant],
    threads: &[usize],
    cores: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let large = *threads.last().unwrap_or(&1);
    let small = *threads.iter().rev().nth(1).unwrap_or(&large);
    for kind in Kind::ALL {
        write_mix(results, kind, large, out)?;
    }
    for table in &TABLES {
        let threads = match table.machine {
            Machine::Large => large,
            Machine::Small => small,
        };
        let Some(run) = results.typical(table.kind, threads, table.variant) else { continue };
        let (number, title) = (table.number, table.title);
        writeln!(out, "\nTable {number}: {title}")?;
        write_locks(run, table.variant, table.kind, threads, cores, out)?;
    }
    let shown = |variant: &Variant, kind: Kind| {
        let same = |table: &PaperTable| {
            table.variant == *variant
                && table.kind == kind
                && matches!(table.machine, Machine::Large)
        };
        TABLES.iter().any(same)
    };
    for kind in Kind::ALL {
        for variant in variants.iter().filter(|variant| !shown(variant, kind)) {
            let Some(run) = results.typical(kind, large, *variant) else { continue };
            writeln!(out, "\nNot in the paper:")?;
            write_locks(run, *variant, kind, large, cores, out)?;
        }
    }
    for kind in Kind::ALL {
        for threads in threads {
            write_comparison(results, variants, kind, *threads, cores, out)?;
        }
    }
    out.flush()
}

fn write_locks(
    run: &Run,
    variant: Variant,
    kind: Kind,
    threads: usize,
    cores: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let (variant, kind) = (variant.name(), kind.name());
    writeln!(out, "{variant}, {kind}, {}", plural(threads, cores))?;
    write!(out, "{}", lockmeter_table(&run.dcache, run.metered_wall, threads.min(cores)))
}

/// "4 threads on 2 cores", where that is more than there is.
fn plural(threads: usize, cores: usize) -> String {
    match threads {
        1 => "1 thread".to_owned(),
        _ if threads > cores => format!("{threads} threads, oversubscribed on {cores} cores"),
        _ => format!("{threads} threads"),
    }
}

/// Acquisitions of one routine over all of a run's classes but `d_lock`, which the paper does not list.
fn routine(run: &Run, name: &str) -> u64 {
    let listed = |class: &&ClassReport| class.class != "d_lock";
    let sites = run.dcache.iter().filter(listed).flat_map(|class| &class.sites);
    let same = sites.filter(|site| site.site == name);
    same.map(|site| site.totals.acquisitions).sum()
}

/// A load's mix beside the paper's: how often each routine took the baseline's lock for each time
/// that the first one did.
fn write_mix(
    results: &Results,
    kind: Kind,
    threads: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let Some(run) = results.typical(kind, threads, Variant::GlobalLock) else { return Ok(()) };
    let paper: &[(&str, f64)] = match kind {
        Kind::Dbench => &[
            ("d_move", 46_800.0),
            ("d_alloc", 119_448.0),
            ("d_delete", 233_290.0),
            ("d_instantiate", 352_739.0),
            ("d_lookup", 12_725_262.0),
            ("d_rehash", 119_438.0),
            ("d_unhash", 1680.0),
            ("dput", 1_384_623.0),
            ("prune_one_dentry", 70_974.0),
            ("select_parent", 6505.0),
        ],
        Kind::Httperf => &[
            ("d_alloc", 100_031.0),
            ("d_instantiate", 100_032.0),
            ("d_lookup", 15_009_129.0),
            ("d_rehash", 100_031.0),
            ("dput", 933_218.0),
            ("link_path_walk", 4_000_584.0),
        ],
    };
    let (unit, unit_count) = paper[0];
    let ours_unit = routine(run, unit).max(1) as f64;
    writeln!(out, "\nMix of {}: acquisitions for each {unit}", kind.name())?;
    writeln!(out, "  {:<18} {:>10} {:>10}", "routine", "paper", "here")?;
    for (name, count) in paper {
        let ours = routine(run, name) as f64 / ours_unit;
        writeln!(out, "  {name:<18} {:>10.2} {ours:>10.2}", count / unit_count)?;
    }
    Ok(())
}

/// All variants side by side.
fn write_comparison(
    results: &Results,
    variants: &[Variant],
    kind: Kind,
    threads: usize,
    cores: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\nAll variants, {}, {}", kind.name(), plural(threads, cores))?;
    writeln!(
        out,
        "  {:<20} {:>8} {:>19} {:>6} {:>9} {:>9} {:>9} {:>7} {:>7} {:>17} {:>17}",
        "system",
        "k/s",
        "min..max",
        "ratio",
        "locks/op",
        "global/op",
        "behind/op",
        "con %",
        "util %",
        "hold us mean(max)",
        "wait us mean(max)",
    )?;
    let median = |variant, measure| Some(results.summary(kind, threads, variant, measure)?.median);
    let base = median(Variant::GlobalLock, Measure::Throughput);
    for variant in variants {
        let Some(rate) = results.summary(kind, threads, *variant, Measure::Throughput) else {
            continue;
        };
        let Some(run) = results.typical(kind, threads, *variant) else { continue };
        let figure = |measure| median(*variant, measure).unwrap_or(0.0);
        let locks = watched(run, *variant);
        let time =
            |mean: f64, max: u64| format!("{:.2}({:.1})", mean / 1000.0, max as f64 / 1000.0);
        writeln!(
            out,
            "  {:<20} {:>8.0} {:>19} {:>6} {:>9.3} {:>9.3} {:>9.3} {:>7.2} {:>7.2} {:>17} {:>17}",
            variant.name(),
            rate.median,
            format!("{:.0}..{:.0}", rate.min, rate.max),
            base.map_or_else(String::new, |base| format!("{:.2}", rate.median / base)),
            figure(Measure::Locks),
            figure(Measure::GlobalLocks),
            run.behind() as f64 / run.operations as f64,
            figure(Measure::Contention),
            figure(Measure::Utilisation),
            time(locks.hold_mean_ns(), locks.hold_max_ns),
            time(locks.wait_mean_ns(), locks.wait_max_ns),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::measure;
    use super::*;

    #[test]
    fn every_table_of_the_paper_is_there() {
        let mut results = Results::default();
        for kind in Kind::ALL {
            let load = kind.load(1, 1500);
            for variant in Variant::ALL {
                results.add(kind, 1, variant, measure::run(variant, kind, &load).unwrap());
            }
        }
        let mut out = Vec::new();
        write(&results, &Variant::ALL, &[1], 2, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for table in 1..=7 {
            assert!(text.contains(&format!("Table {table}: ")), "{text}");
        }
        for words in
            ["HOLD", "WAIT", "d_lru_lock", "prune_one_dentry", "d_lookup", "Mix of httperf"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        let rows = text.lines().filter(|line| line.starts_with("  uvfs "));
        assert_eq!(rows.count(), 2, "{text}");
        assert!(!text.contains("sites.rs"), "{text}");
    }

    #[test]
    fn oversubscription_is_said() {
        assert_eq!(plural(4, 2), "4 threads, oversubscribed on 2 cores");
        assert_eq!((plural(2, 2), plural(1, 2)), ("2 threads".into(), "1 thread".into()));
    }
}
