//! Layouts with heat: as text after the manner of `pahole`, and as a picture of bytes.
//!
//! # Boundary
//! One type at a time.
//!
//! # Why
//! To move a field, a programmer must see its neighbours. Runs of fields without accesses are one
//! line, so that a structure of a thousand fields stays readable. Weakness: where alternatives overlap, only
//! one is shown.

use super::Options;
use super::cells::path;
use super::format::{clean, count, escape, percent, plural, share_pm};
use super::table::{Column, Table};
use super::text::{heading, wrap};
use crate::analysis::LayoutHeat;
use crate::analysis::layout::FieldHeat;
use crate::analysis::notation::core_ranges;
use std::fmt::Write as _;
use uvfs_coherence::profile::HEAT_PLACES_MAX;

/// Lines of a picture.
const LINES: u64 = 64;

/// Remarks about the type as a whole.
pub(super) fn facts(layout: &LayoutHeat) -> String {
    let lines = layout.size.div_ceil(layout.line_bytes);
    let mut facts = vec![format!(
        "{} bytes, {lines} line{}",
        count(layout.size as f64),
        if lines == 1 { "" } else { "s" }
    )];
    if layout.align != 0 {
        facts.push(format!("aligned to {}", layout.align));
    }
    facts.push(plural(layout.objects, "object"));
    facts.push(format!("{} of all latency", share_pm(&layout.share)));
    if layout.starts.len() > 1 {
        let starts: Vec<_> =
            layout.starts.iter().take(6).map(|(start, many)| format!("{start} ({many})")).collect();
        facts.push(format!(
            "objects begin at different places of a line: {}; boundaries are drawn for {}",
            starts.join(", "),
            layout.start
        ));
    } else if layout.start != 0 {
        facts.push(format!("objects begin {} bytes into a line", layout.start));
    } else if layout.straddles {
        facts.push("elements of a row share lines".to_owned());
    }
    if layout.heat_cut > 0 {
        facts.push(format!(
            "reads, writes and updates are of the {} most visited places of each object ({} so many), others are \
             not counted",
            count(HEAT_PLACES_MAX as f64),
            if layout.heat_cut == 1 { "one has".to_owned() } else { format!("{} have", layout.heat_cut) },
        ));
    }
    facts.join(", ")
}

pub(super) fn layout_text(layout: &LayoutHeat, options: &Options) -> String {
    let declared =
        if layout.declared.is_empty() { String::new() } else { format!(" ({})", layout.declared) };
    let mut text =
        heading(&format!("struct {}{}", clean(&layout.name, 80), clean(&declared, 80)), options);
    text.push_str(&wrap(&facts(layout), options.width));
    let mut table = Table::new(vec![
        Column::number("offset", u8::MAX),
        Column::number("bytes", u8::MAX),
        Column::name("field", 16, u8::MAX),
        Column::name("type", 8, 1),
        Column::number("reads", 4),
        Column::number("writes", 5),
        Column::number("updates", 5),
        Column::number("cores", 6),
        Column::number("transfers", 7),
        Column::number("±", 0),
        Column::number("latency", 3),
        Column::number("false", 8),
        Column::number("share", u8::MAX),
    ]);
    let mut line = None;
    let mut at = 0;
    while let Some(field) = layout.fields.get(at) {
        if line != Some(field.line) {
            line = Some(field.line);
            table.push(
                false,
                vec![String::new(), String::new(), format!("--- line {} ---", field.line)],
            );
        }
        let run = quiet(layout, at);
        if run > 3 {
            let last = &layout.fields[at + run - 1];
            let bytes = last.offset.saturating_add(last.bytes) - field.offset;
            let words = format!("({run} fields that nothing happened to)");
            table.push(false, vec![field.offset.to_string(), bytes.to_string(), words]);
            at += run;
            continue;
        }
        table.push(field.share.mean * 5.0 >= layout.share.mean && field.is_touched(), cells(field));
        at += 1;
    }
    text + &table.text(options.width, options.colour)
}

/// How many fields from `at` on, of one line, nothing happened to.
fn quiet(layout: &LayoutHeat, at: usize) -> usize {
    let line = layout.fields[at].line;
    let rest = layout.fields[at..].iter();
    rest.take_while(|field| field.line == line && !field.is_touched() && !field.crosses).count()
}

fn cells(field: &FieldHeat) -> Vec<String> {
    let nothing = |value: f64| if value == 0.0 { String::new() } else { count(value) };
    let mut cells = vec![
        field.offset.to_string(),
        field.bytes.to_string(),
        path(field),
        field.type_name.clone(),
    ];
    if !field.is_touched() {
        return cells;
    }
    cells.extend([
        nothing(field.reads.mean),
        nothing(field.writes.mean),
        nothing(field.updates.mean),
        field.core_count().to_string(),
        nothing(field.transfers.mean),
        super::format::relative(&field.transfers),
        nothing(field.mean_latency.mean),
        if field.transfers.mean > 0.0 { percent(field.false_share.mean) } else { String::new() },
        percent(field.share.mean),
    ]);
    cells
}

/// How a byte is used, as a class of the page's style.
fn usage(field: &FieldHeat) -> (&'static str, &'static str) {
    match (field.hole, field.is_touched(), field.is_written(), field.core_count()) {
        (true, false, ..) => ("hole", "padding"),
        (_, false, ..) => ("quiet", "not touched"),
        (_, true, true, cores) if cores > 1 => ("shared", "written, by several cores"),
        (_, true, true, _) => ("own", "written, by one core"),
        (_, true, false, _) if field.false_share.mean > 0.5 && field.transfers.mean > 0.0 => {
            ("victim", "only read, and missed for its neighbours")
        }
        _ => ("read", "only read"),
    }
}

/// The usages and their meanings, for a legend.
pub(super) const USAGES: [(&str, &str); 6] = [
    ("shared", "written, by several cores"),
    ("own", "written, by one core"),
    ("victim", "only read, missed for its neighbours"),
    ("read", "only read"),
    ("quiet", "not touched"),
    ("hole", "padding"),
];

/// A row of cells, a byte each, for every line with heat.
pub(super) fn layout_svg(layout: &LayoutHeat) -> String {
    const CELL: u64 = 11;
    const LEFT: u64 = 60;
    let bytes = layout.line_bytes;
    let mut lines: Vec<u64> =
        layout.fields.iter().filter(|one| one.is_touched()).map(|one| one.line).collect();
    lines.dedup();
    lines.truncate(LINES as usize);
    if lines.is_empty() || bytes > 256 {
        return String::new();
    }
    let (width, height) = (LEFT + bytes * CELL + 4, lines.len() as u64 * 30 + 8);
    let mut svg = format!(
        "<svg class=\"heat\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"bytes of {}\">\n",
        escape(&layout.name)
    );
    for (row, line) in lines.iter().enumerate() {
        let y = row as u64 * 30 + 6;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">line {line}</text>",
            LEFT - 8,
            y + 15
        );
        let (from, to) = (line * bytes, (line + 1) * bytes);
        for field in &layout.fields {
            let begin = field.offset.saturating_add(layout.start);
            let end = begin.saturating_add(field.bytes);
            let (begin, end) = (begin.max(from), end.min(to));
            if begin >= end {
                continue;
            }
            let (class, words) = usage(field);
            let name = if field.hole { "padding" } else { &field.path };
            let _ = write!(
                svg,
                "<g class=\"{class}\"><title>{} at {}, {} bytes: {words}; {} reads, {} writes, {} updates, \
                 {} transfers, {} of all latency, cores {}</title>",
                escape(name),
                field.offset,
                field.bytes,
                count(field.reads.mean),
                count(field.writes.mean),
                count(field.updates.mean),
                count(field.transfers.mean),
                percent(field.share.mean),
                escape(&core_ranges(&field.cores)),
            );
            for byte in begin..end {
                let x = LEFT + (byte - from) * CELL;
                let _ = write!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"20\"/>");
            }
            svg.push_str("</g>\n");
        }
    }
    svg.push_str("</svg>\n");
    svg
}
