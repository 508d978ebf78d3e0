//! Words that the text and the page share: cells of their tables, and sentences.
//!
//! # Boundary
//! Figures to words. Which columns there are, how wide, and how a cell is escaped is the form's own.
//!
//! # Why
//! A figure must read the same in both forms. Weakness: where one form has a column more, it adds it itself.

use super::format::{count, percent, percent2, relative, share_pm};
use crate::analysis::histogram::ClassRow;
use crate::analysis::layout::FieldHeat;
use crate::analysis::structures::Structure;
use crate::analysis::{Estimate, Histogram, LineTable, Row, RunsSummary, Verdict};

/// `mixed sharing (35.0% false)`.
pub(super) fn verdict(table: &LineTable) -> String {
    let word = match table.verdict {
        Verdict::True => "true",
        Verdict::False => "false",
        Verdict::Mixed => "mixed",
    };
    format!("{word} sharing ({} false)", percent(table.false_share.mean))
}

/// A row of a line's table, up to its share; `object` and field are one cell.
pub(super) fn of_row(row: &Row) -> Vec<String> {
    let data = match &row.object {
        Some(object) => format!("{object}: {}", row.data),
        None => row.data.clone(),
    };
    vec![
        count(row.samples.mean),
        relative(&row.samples),
        percent2(row.remote_share.mean),
        row.module.clone(),
        format!("0x{:X}", row.instruction_address),
        row.instruction.clone(),
        row.function.clone(),
        format!("0x{:X}", row.data_address),
        data,
        percent(row.false_share.mean),
        count(row.mean_latency.mean),
        percent(row.queue_share.mean),
        percent(row.share.mean),
    ]
}

/// A row of the histogram's table behind its first cell.
pub(super) fn of_class(row: &ClassRow) -> [String; 7] {
    [
        count(row.misses.mean),
        relative(&row.misses),
        percent(row.miss_share.mean),
        percent(row.latency_share.mean),
        count(row.mean_latency.mean),
        count(row.mean_service.mean),
        row.peak.map_or_else(String::new, |peak| count(peak as f64)),
    ]
}

/// The paper's sentence about local misses and transfers.
pub(super) fn sentence(histogram: &Histogram) -> String {
    format!(
        "{} of the misses are local and take {} of the latency; {} are transfers and take {}.",
        share_pm(&histogram.local_misses),
        share_pm(&histogram.local_latency),
        share_pm(&histogram.transfer_misses),
        share_pm(&histogram.transfer_latency)
    )
}

/// Half the interval of a share.
pub(super) fn points(share: &Estimate) -> String {
    share.plus_minus.map_or_else(String::new, percent)
}

/// A row of the structures' table behind its name.
pub(super) fn of_structure(one: &Structure) -> [String; 7] {
    [
        one.objects.to_string(),
        one.lines.to_string(),
        count(one.samples.mean),
        percent(one.remote_share.mean),
        percent(one.false_share.mean),
        count(one.mean_latency.mean),
        one.field.clone(),
    ]
}

/// The name of a field of a layout.
pub(super) fn path(field: &FieldHeat) -> String {
    let crosses = if field.crosses { " (crosses a line)" } else { "" };
    match field.path.as_str() {
        _ if field.hole => "(hole)".to_owned(),
        "" => format!("(value){crosses}"),
        path => format!("{path}{crosses}"),
    }
}

/// Counts of a run, by name.
pub(super) fn counts(runs: &RunsSummary) -> [(&'static str, &Estimate); 8] {
    [
        ("cycles", &runs.cycles),
        ("cycles with threads", &runs.parallel_cycles),
        ("accesses", &runs.accesses),
        ("misses", &runs.misses),
        ("transfers", &runs.transfers),
        ("threads", &runs.threads),
        ("work", &runs.work),
        ("work a second", &runs.work_per_second),
    ]
}

/// Shares of a run, by name.
pub(super) fn shares(runs: &RunsSummary) -> [(&'static str, &Estimate); 3] {
    [
        ("remote transfers", &runs.remote_share),
        ("stalled", &runs.stalled_share),
        ("asleep", &runs.blocked_share),
    ]
}
