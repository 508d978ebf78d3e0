//! Published crates: which fields share a line that should not, and what separating them is predicted to gain.
//!
//! # Why
//! No field is named in advance. In the line with the most latency of false sharing, each of the dearest fields gets a
//! line of its own in the model, one after the other. Weakness: a change that needs two fields at once is not found.

use super::programs::{Workshop, repository};
use super::{Pages, tables};
use std::io;
use std::path::{Path, PathBuf};
use uvfs_bench_kit::report::Unit;
use uvfs_coherence::Profile;
use uvfs_coherence::profile::Run;
use uvfs_contention::Ledger;
use uvfs_contention::analysis::{LineTable, groups};
use uvfs_contention::run::Plan;
use uvfs_contention::whatif;

/// Cores of a look.
const CORES: usize = 16;
/// Fields of a line that are tried.
const TRIED: usize = 4;

/// Package, program, description.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("epoch-0.9.15", "epoch-0-9-15", "crossbeam-epoch 0.9.15 (crossbeam issue 1020)"),
    ("epoch-0.9.18", "epoch-0-9-18", "crossbeam-epoch 0.9.18 (after pull request 1026)"),
    ("found", "rwlock", "std RwLock beside its data (rust-lang issue 117470)"),
    ("found", "histogram", "prometheus 0.14.0"),
    ("found", "thread_local", "thread_local 1.1.10"),
    ("found", "cache", "quick_cache 0.7.0"),
];

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    pages.text(&tables::title("Bugs in published crates"))?;
    for (package, program, known) in PROGRAMS {
        eprintln!("uvfs-bench-papers: contention, {known}");
        let manifest = repository("tests/contention/bugs").join(package).join("Cargo.toml");
        let program = workshop.cargo(&manifest, &["--bin", program])?.join(program);
        look(workshop, pages, &program, known)?;
    }
    Ok(())
}

/// Cycles of transfers that wanted other bytes than those written.
fn false_latency(table: &LineTable) -> f64 {
    table.rows.iter().map(|row| row.share.mean * row.false_share.mean).sum()
}

fn look(workshop: &Workshop, pages: &mut Pages, program: &Path, known: &str) -> io::Result<()> {
    let plan = workshop.plan(program, workshop.at_most(CORES), &[]);
    let (profile, _) = workshop.run(&plan)?;
    let mut tables_of_lines = groups(&Ledger::new(&profile));
    tables_of_lines.sort_by(|one, other| false_latency(other).total_cmp(&false_latency(one)));
    let share: f64 = tables_of_lines.iter().map(false_latency).sum();
    pages.report.sample("bugs-false", known, plan.cores, Unit::Share, share);
    pages.text(&format!(
        "\n### {known}\n\n{} cores, 2 nodes, {} seeds: {} of the latency of all misses is false sharing.\n",
        plan.cores,
        plan.seeds,
        tables::percent(share),
    ))?;
    for table in tables_of_lines.iter().take(2).filter(|table| false_latency(table) > 0.005) {
        pages.text(&tables::line(table))?;
    }
    let mut tried = tables::head(&["in the model", "cycles as it is", "with the change", "gain"]);
    let mut best: f64 = 0.0;
    for text in changes(&tables_of_lines) {
        match changed(workshop, &plan, &profile, &text) {
            Ok(other) => {
                let cycles = |run: &Run| run.parallel_cycles as f64;
                let [before, after] = [&profile, &other].map(|one| tables::of_runs(one, cycles));
                let gain = 1.0 - after.mean / before.mean;
                best = best.max(gain);
                let shown =
                    [tables::estimate(&before), tables::estimate(&after), tables::percent(gain)];
                let [before, after, gain] = shown;
                tried += &tables::row(&[format!("`{text}`"), before, after, gain]);
            }
            Err(why) => {
                tried +=
                    &tables::row(&[format!("`{text}`"), "".into(), why.to_string(), "".into()]);
            }
        }
    }
    if let Some(other) = apart(workshop, known)? {
        let (other, _) = workshop.run(&Plan { program: other, ..plan.clone() })?;
        let cycles = |run: &Run| run.parallel_cycles as f64;
        let [before, after] = [&profile, &other].map(|one| tables::of_runs(one, cycles));
        let gain = 1.0 - after.mean / before.mean;
        best = best.max(gain);
        tried += &tables::row(&[
            "the source, really changed".to_owned(),
            tables::estimate(&before),
            tables::estimate(&after),
            tables::percent(gain),
        ]);
    }
    pages.report.sample("bugs-gain", known, plan.cores, Unit::Share, best);
    pages.text(&tried)
}

/// The program with this description, with its data really apart, if its source has a feature for that.
fn apart(workshop: &Workshop, known: &str) -> io::Result<Option<PathBuf>> {
    let Some((package, program, _)) =
        PROGRAMS.iter().find(|one| one.2 == known && one.1 == "thread_local")
    else {
        return Ok(None);
    };
    let manifest = repository("tests/contention/bugs").join(package).join("Cargo.toml");
    let built =
        workshop.cargo(&manifest, &["--bin", program, "--features", "apart"])?.join(program);
    // The next build without the feature overwrites it.
    let kept = built.with_file_name(format!("{program}-apart"));
    std::fs::copy(built, &kept)?;
    Ok(Some(kept))
}

/// Changes to try: the dearest fields of the line with the most false sharing, and of the next.
fn changes(tables_of_lines: &[LineTable]) -> Vec<String> {
    let mut changes: Vec<String> = Vec::new();
    for table in tables_of_lines.iter().take(2).filter(|table| false_latency(table) > 0.005) {
        let mut rows: Vec<_> = table.rows.iter().filter(|row| row.object.is_none()).collect();
        rows.sort_by(|one, other| other.share.mean.total_cmp(&one.share.mean));
        let (name, prefix) = plain(&table.structure);
        // Counts of an `Arc` are not the type's to move.
        let own = rows.iter().filter_map(|row| {
            let field = row.field.trim_start_matches("[*].");
            field.strip_prefix(prefix).map(str::to_owned)
        });
        let mut fields: Vec<String> = Vec::new();
        for field in own {
            if !field.is_empty() && !field.starts_with(['+', '[']) && !fields.contains(&field) {
                fields.push(field);
            }
        }
        let own_line = |field: &String| format!("{name}.{field} -> own line");
        changes.extend(fields.iter().take(TRIED).map(own_line));
        changes.push(format!("{name} -> pad 64"));
    }
    changes.dedup();
    changes
}

/// A type as changes name it: the target of an `Arc`, an element of a row, without parameters; and the prefix of its
/// fields.
fn plain(structure: &str) -> (&str, &str) {
    let element = structure.trim_start_matches('[').trim_end_matches(']');
    let (inner, prefix) = match element.strip_prefix("ArcInner<") {
        Some(inner) => (inner.strip_suffix('>').unwrap_or(inner), "data."),
        None => (element, ""),
    };
    (inner.split('<').next().unwrap_or(inner), prefix)
}

fn changed(workshop: &Workshop, plan: &Plan, profile: &Profile, text: &str) -> io::Result<Profile> {
    let change = whatif::parse(text).map_err(io::Error::other)?;
    let request = whatif::request(profile, &[change]).map_err(io::Error::other)?;
    let plan = Plan {
        layouts: request.layouts,
        modules: request.modules,
        what_if: request.what_if,
        ..plan.clone()
    };
    Ok(workshop.run(&plan)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_changes_want_them() {
        assert_eq!(plain("ArcInner<RwLock<Table>>"), ("RwLock", "data."));
        assert_eq!(plain("[Entry<Hits>]"), ("Entry", ""));
        assert_eq!(plain("Local"), ("Local", ""));
    }
}
