//! Tables in Markdown, from the analyser's results.
//!
//! # Boundary
//! Text from figures.

use std::fmt::Write as _;
use uvfs_coherence::Profile;
use uvfs_contention::analysis::{Estimate, LineTable, LockRow};
use uvfs_contention::sweep::Sweep;

/// `12.3 ± 0.4`, with as many digits as mean something.
pub(super) fn estimate(value: &Estimate) -> String {
    match value.plus_minus {
        Some(spread) if spread > 0.0 => format!("{} ± {}", digits(value.mean), digits(spread)),
        _ => digits(value.mean),
    }
}

/// Three digits that count.
pub(super) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

/// In percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// A table's head: its columns and the line below.
pub(super) fn head(columns: &[&str]) -> String {
    format!("\n| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

/// A row.
pub(super) fn row(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Cores from left to right, a row for each curve.
pub(super) fn curves(title: &str, unit: &str, sweeps: &[(String, Sweep)], scale: f64) -> String {
    let Some((_, first)) = sweeps.first() else { return String::new() };
    let mut columns = vec![format!("{title} [{unit}]")];
    columns.extend(first.points.iter().map(|point| point.cores.to_string()));
    columns.extend(["class", "efficiency", "law: σ, κ"].map(String::from));
    let mut text = head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, sweep) in sweeps {
        let mut cells = vec![name.clone()];
        for point in &sweep.points {
            let spread = point.throughput.plus_minus.map(|spread| spread * scale);
            let mean = point.throughput.mean * scale;
            cells.push(estimate(&Estimate { mean, plus_minus: spread }));
        }
        let efficiency = sweep.points.last().map_or(0.0, |point| point.efficiency.mean);
        cells.push(sweep.shape.map_or_else(|| "none".to_owned(), |shape| shape.to_string()));
        cells.push(percent(efficiency));
        cells.push(sweep.law.as_ref().map_or_else(
            || "none".to_owned(),
            |law| format!("{}, {}", digits(law.sigma), digits(law.kappa)),
        ));
        text += &row(&cells);
    }
    text
}

/// The line that bends each curve, and the number of cores from which it does.
pub(super) fn bends(sweeps: &[(String, Sweep)]) -> String {
    let mut text = head(&["program", "line or lock", "share of all cores' time", "over 10 % from"]);
    for (name, sweep) in sweeps {
        for bend in sweep.bends.iter().take(3) {
            let share = bend.shares.last().map_or(0.0, |(_, share)| share.mean);
            let from = bend.over_at.map_or_else(|| "never".to_owned(), |at| format!("{at} cores"));
            text += &row(&[name.clone(), bend.name.clone(), percent(share), from]);
        }
        if sweep.bends.is_empty() {
            text += &row(&[name.clone(), "none".into(), "0".into(), "never".into()]);
        }
    }
    text
}

/// One line of the cache, as the paper's figures 3 to 18 have it.
pub(super) fn line(table: &LineTable) -> String {
    let mut text = format!(
        "\n{}. `{}`, line {}: {} of all latency, {} transfers of {} cycles, {} false\n",
        table.rank,
        table.structure,
        table.line_index,
        percent(table.share.mean),
        estimate(&table.samples),
        estimate(&table.mean_latency),
        percent(table.false_share.mean),
    );
    text += &head(&[
        "samples",
        "remote",
        "module",
        "inst. address",
        "inst.",
        "function",
        "data address",
        "data",
        "false",
    ]);
    for one in &table.rows {
        let bold = |cell: String| if one.hot { format!("**{cell}**") } else { cell };
        text += &row(&[
            bold(estimate(&one.samples)),
            percent(one.remote_share.mean),
            one.module.clone(),
            format!("{:#x}", one.instruction_address),
            one.instruction.clone(),
            bold(one.function.clone()),
            format!("{:#x}", one.data_address),
            bold(one.data.clone()),
            percent(one.false_share.mean),
        ]);
    }
    text
}

/// Locks in the columns of the lock meter.
pub(super) fn locks(locks: &[LockRow], most: usize) -> String {
    let mut text = head(&[
        "lock",
        "taken",
        "CON",
        "bounces",
        "UTIL",
        "hold mean",
        "hold max",
        "wait mean",
        "wait max",
        "waited for by",
    ]);
    for lock in locks.iter().take(most) {
        let waiters = lock.waiters.iter().take(2);
        let waiters: Vec<_> =
            waiters.map(|one| format!("{} {:.0} %", one.function, one.share * 100.0)).collect();
        text += &row(&[
            lock.name.clone(),
            estimate(&lock.acquisitions),
            percent(lock.contended_share.mean),
            percent(lock.bounce_share.mean),
            percent(lock.utilisation.mean),
            estimate(&lock.hold_mean),
            lock.hold_max.to_string(),
            estimate(&lock.wait_mean),
            lock.wait_max.to_string(),
            waiters.join(", "),
        ]);
    }
    text
}

/// Something of each run.
pub(super) fn of_runs(
    profile: &Profile,
    value: impl Fn(&uvfs_coherence::profile::Run) -> f64,
) -> Estimate {
    Estimate::of(&profile.runs.iter().map(value).collect::<Vec<_>>())
}

/// A heading.
pub(super) fn title(text: &str) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n## {text}");
    out
}
