//! Two profiles side by side.
//!
//! # Boundary
//! Words and tables of [`Comparison`].
//!
//! # Why
//! Differences within the spread of the seeds are reported as the same, whatever their means are.
//! Weakness: rows that are the same are left out of the text; the JSON has them.

use super::Options;
use super::format::{clean, count, escape, large, percent};
use super::page::{Kind, Rows, page};
use super::table::{Column, Table};
use super::text::{heading, wrap};
use crate::analysis::Estimate;
use crate::compare::{Change, Comparison, LockRow, Row, Status, Total};
use std::fmt::Write as _;

/// The change of a figure, in a word.
pub(super) fn word(status: Status) -> &'static str {
    match status {
        Status::Gone => "gone",
        Status::New => "new",
        Status::More => "more",
        Status::Less => "less",
        Status::Same => "same",
        Status::Unclear => "unclear",
    }
}

/// A figure with its digits, also below one.
pub(super) fn number(estimate: &Estimate) -> String {
    let value = estimate.mean;
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.001 => format!("{value:.1e}"),
        size if size < 10.0 && value.fract() != 0.0 => format!("{value:.4}"),
        _ => count(value),
    }
}

/// New over old: `-45%`, `2.3x`; nothing where one of them is zero.
pub(super) fn change(change: &Change) -> String {
    let Some(ratio) = &change.ratio else { return String::new() };
    let spread = ratio.plus_minus.map_or_else(String::new, |half| format!(" ± {}", percent(half)));
    if ratio.mean >= 2.0 {
        format!("{:.1}x", ratio.mean)
    } else {
        format!("{:+.1}%{spread}", (ratio.mean - 1.0) * 100.0)
    }
}

fn is_change(change: &Change) -> bool {
    change.status != Status::Same
}

fn sentences(comparison: &Comparison) -> Vec<String> {
    let mut lines: Vec<String> =
        comparison.warnings.iter().map(|one| format!("Careful: {}.", clean(one, 400))).collect();
    let total = |name: &str| comparison.totals.iter().find(|one| one.name == name);
    if let Some(cycles) = total("parallel_cycles").or_else(|| total("cycles")) {
        let what = match cycles.change.status {
            Status::Same => "no difference beyond the spread of the seeds",
            Status::More => "more: the new one is slower",
            Status::Less => "fewer: the new one is faster",
            Status::Unclear => "one side has a single seed, so it may be jitter",
            Status::Gone | Status::New => "one of the two did not run",
        };
        lines.push(format!(
            "Cycles {} -> {} ({}): {what}.",
            large(cycles.change.old.mean),
            large(cycles.change.new.mean),
            change(&cycles.change)
        ));
    }
    if let Some(latency) = total("latency") {
        let (old, new) = (latency.change.old.mean, latency.change.new.mean);
        lines.push(format!(
            "Latency of all misses {} -> {} cycles ({}).",
            large(old),
            large(new),
            change(&latency.change)
        ));
    }
    let changed = |rows: &[Row], status: Status| -> usize {
        rows.iter().filter(|row| row.latency.status == status).count()
    };
    let lines_of = &comparison.lines;
    lines.push(format!(
        "Of {} cache lines {} are gone, {} are new, {} cost more, {} cost less.",
        lines_of.len(),
        changed(lines_of, Status::Gone),
        changed(lines_of, Status::New),
        changed(lines_of, Status::More),
        changed(lines_of, Status::Less)
    ));
    let dearest = comparison.fields.iter().find(|row| is_change(&row.latency));
    if let Some(field) = dearest {
        lines.push(format!(
            "The field that changed most is `{}`: {} -> {} cycles of latency, {} -> {} transfers.",
            clean(&field.name, 60),
            large(field.latency.old.mean),
            large(field.latency.new.mean),
            count(field.transfers.old.mean),
            count(field.transfers.new.mean)
        ));
    }
    lines
}

/// The subjects compared in one table each.
fn lists(comparison: &Comparison) -> [(&'static str, &[Row]); 3] {
    [
        ("Cache lines", &comparison.lines),
        ("Fields", &comparison.fields),
        ("Functions", &comparison.functions),
    ]
}

fn is_dearer(change: &Change) -> bool {
    matches!(change.status, Status::New | Status::More)
}

/// The old and the new mean.
fn both(change: &Change) -> [String; 2] {
    [count(change.old.mean), count(change.new.mean)]
}

fn total_cells(total: &Total) -> Vec<String> {
    vec![
        total.name.clone(),
        number(&total.change.old),
        number(&total.change.new),
        change(&total.change),
        word(total.change.status).to_owned(),
    ]
}

/// Name, wait and its change, old and new of `others`, and the change of it.
fn lock_cells(lock: &LockRow, others: &[&Change]) -> Vec<String> {
    let mut cells = vec![lock.name.clone()];
    cells.extend(both(&lock.wait));
    cells.push(change(&lock.wait));
    others.iter().for_each(|other| cells.extend(both(other)));
    cells.push(word(lock.wait.status).to_owned());
    cells
}

/// A comparison as text.
pub fn compare_text(comparison: &Comparison, options: &Options) -> String {
    let mut text: String =
        sentences(comparison).iter().map(|line| wrap(line, options.width)).collect();
    let mut table = Table::new(vec![
        Column::name("whole run", 12, u8::MAX),
        Column::number("old", u8::MAX),
        Column::number("new", u8::MAX),
        Column::number("change", u8::MAX),
        Column::word("", 2),
    ]);
    for total in &comparison.totals {
        table.push(false, total_cells(total));
    }
    let _ = write!(text, "\n{}", table.text(options.width, options.colour));
    for (title, rows) in lists(comparison) {
        text.push_str(&rows_text(title, rows, options));
    }
    text + &locks_text(&comparison.locks, options)
}

fn rows_text(title: &str, rows: &[Row], options: &Options) -> String {
    let changed = || rows.iter().filter(|row| is_change(&row.latency) || is_change(&row.transfers));
    let shown = options.top.max(1) * 2;
    let mut text = format!("\n{}", heading(title, options));
    if changed().next().is_none() {
        let _ = writeln!(text, "no change that the seeds can tell ({} compared)", rows.len());
        return text;
    }
    let mut table = Table::new(vec![
        Column::name("name", 16, u8::MAX),
        Column::number("latency old", u8::MAX),
        Column::number("new", u8::MAX),
        Column::number("change", 6),
        Column::number("transfers old", 3),
        Column::number("new", 4),
        Column::word("", u8::MAX),
    ]);
    for row in changed().take(shown) {
        let [latency, transfers] = [&row.latency, &row.transfers].map(both);
        let mut line = vec![row.name.clone()];
        line.extend(latency);
        line.push(change(&row.latency));
        line.extend(transfers);
        line.push(word(row.latency.status).to_owned());
        table.push(is_dearer(&row.latency), line);
    }
    text.push_str(&table.text(options.width, options.colour));
    let (changed, all) = (changed().count(), rows.len());
    if changed > shown || changed < all {
        let _ = writeln!(text, "{changed} of {all} changed, {} shown", changed.min(shown));
    }
    text
}

fn locks_text(locks: &[LockRow], options: &Options) -> String {
    if locks.is_empty() {
        return String::new();
    }
    let mut table = Table::new(vec![
        Column::name("lock", 16, u8::MAX),
        Column::number("wait old", u8::MAX),
        Column::number("new", u8::MAX),
        Column::number("change", 6),
        Column::number("hold old", 2),
        Column::number("new", 3),
        Column::number("contended old", 2),
        Column::number("new", 3),
        Column::word("", u8::MAX),
    ]);
    for lock in locks.iter().take(options.top.max(1) * 2) {
        let cells = lock_cells(lock, &[&lock.hold, &lock.contended]);
        table.push(is_dearer(&lock.wait), cells);
    }
    format!("\n{}{}", heading("Locks, cycles", options), table.text(options.width, options.colour))
}

/// A comparison as a page.
pub fn compare_html(comparison: &Comparison, title: &str) -> String {
    let mut body = list_html(&sentences(comparison));
    let mut rows = Rows::new(
        true,
        &[
            ("whole run", Kind::Word),
            ("old", Kind::Number),
            ("new", Kind::Number),
            ("change", Kind::Number),
            ("", Kind::Word),
        ],
    );
    for total in &comparison.totals {
        rows.push("", &total_cells(total));
    }
    body.push_str(&rows.finish());
    for (heading, list) in lists(comparison) {
        let _ = writeln!(body, "<h2>{heading}</h2>");
        let mut rows = Rows::new(
            true,
            &[
                ("name", Kind::Code),
                ("latency old", Kind::Number),
                ("new", Kind::Number),
                ("change", Kind::Number),
                ("transfers old", Kind::Number),
                ("new", Kind::Number),
                ("change", Kind::Number),
                ("", Kind::Word),
            ],
        );
        for row in list.iter().take(200) {
            let mut line = vec![row.name.clone()];
            for one in [&row.latency, &row.transfers] {
                line.extend(both(one));
                line.push(change(one));
            }
            line.push(word(row.latency.status).to_owned());
            rows.push(if is_dearer(&row.latency) { "hot" } else { "" }, &line);
        }
        body.push_str(&rows.finish());
    }
    body.push_str("<h2>Locks, cycles</h2>\n");
    let mut rows = Rows::new(
        true,
        &[
            ("lock", Kind::Code),
            ("wait old", Kind::Number),
            ("new", Kind::Number),
            ("change", Kind::Number),
            ("hold old", Kind::Number),
            ("new", Kind::Number),
            ("acquisitions old", Kind::Number),
            ("new", Kind::Number),
            ("contended old", Kind::Number),
            ("new", Kind::Number),
            ("", Kind::Word),
        ],
    );
    for lock in comparison.locks.iter().take(200) {
        let cells = lock_cells(lock, &[&lock.hold, &lock.acquisitions, &lock.contended]);
        rows.push("", &cells);
    }
    body.push_str(&rows.finish());
    page(title, &body)
}

/// Sentences as a list; each word is escaped.
pub(super) fn list_html(sentences: &[String]) -> String {
    let mut text = String::from("<ol class=\"summary\">\n");
    for sentence in sentences {
        let words: Vec<_> = sentence.split(' ').map(escape).collect();
        let _ = writeln!(text, "<li>{}</li>", words.join(" "));
    }
    text + "</ol>\n"
}
