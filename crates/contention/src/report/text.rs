//! The report for terminals.
//!
//! # Boundary
//! Sections one after the other; each is a heading, a sentence of figures, a table.
//!
//! # Why
//! The line tables begin with the columns of Gough, Siddha and Chen 2007 (figures 3 to 15), for comparison
//! with the paper. Columns that the paper could not have (false sharing, waiting, the functions that
//! invalidate) follow. Objects of one type are one table, since a thousand equal tables are none.
//! Weakness: intervals are shown of counts only; the JSON has all.

use super::cells::{self, points};
use super::format::{clean, count, list, percent, relative, share, share_pm};
use super::layout::layout_text;
use super::locks::locks_text;
use super::summary::{summary, title};
use super::table::{Column, Table};
use super::{Options, Section};
use crate::analysis::histogram::class_name;
use crate::analysis::{
    Estimate, Flow, Histogram, LineTable, Row, Structures, flow, groups, histogram, layout_heat,
    layouts, runs, structures_by, threads,
};
use crate::ledger::{Ledger, called};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use uvfs_coherence::profile::Class;

/// Rows of a line's table, unless one line was asked for.
const ROWS: usize = 24;
/// Longest name in a heading.
const NAME: usize = 80;

/// The report as text.
pub fn text(ledger: &Ledger<'_>, options: &Options) -> String {
    let mut text = String::new();
    for section in Section::ALL.into_iter().filter(|one| options.sections.contains(one)) {
        let part = match section {
            Section::Summary => summary_text(ledger, options),
            Section::Lines => lines_text(ledger, options),
            Section::Histogram => histogram_text(&histogram(ledger), options),
            Section::Structures => {
                structures_text(&structures_by(ledger, &options.grouping), options)
            }
            Section::Layout => layouts_text(ledger, options),
            Section::Locks => locks_text(ledger, options),
            Section::Flow => flows_text(ledger, options),
            Section::Threads => threads_text(ledger, options),
            Section::Runs => runs_text(ledger, options),
        };
        if !text.is_empty() && !part.is_empty() {
            text.push('\n');
        }
        text.push_str(&part);
    }
    text
}

/// A heading, bold where the terminal shows it.
pub(super) fn heading(text: &str, options: &Options) -> String {
    let text = clean(text, 200);
    if options.colour { format!("\x1b[1m{text}\x1b[0m\n") } else { format!("{text}\n") }
}

/// Breaks a sentence at spaces; continued lines are indented.
pub(super) fn wrap(sentence: &str, width: Option<usize>) -> String {
    let width = width.unwrap_or(110).max(20);
    // A number stays beside its percent sign.
    let mut words: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match words.last_mut() {
            Some(last) if word.starts_with('%') => *last = format!("{last} {}", clean(word, 200)),
            _ => words.push(clean(word, 200)),
        }
    }
    let (mut text, mut column) = (String::new(), 0);
    for word in words {
        let length = word.chars().count();
        if column != 0 && column + 1 + length > width {
            text.push_str("\n  ");
            column = 2;
        } else if column != 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(&word);
        column += length;
    }
    text.push('\n');
    text
}

fn summary_text(ledger: &Ledger<'_>, options: &Options) -> String {
    summary(ledger, options).iter().map(|line| wrap(line, options.width)).collect()
}

fn lines_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let mut tables = groups(ledger);
    let all = tables.len();
    if let Some(name) = &options.structure {
        let called = called(ledger.profile, name);
        tables.retain(|table| called.contains(&table.structure));
    }
    match options.line {
        Some(rank) => tables.retain(|table| table.rank == rank),
        None => tables.truncate(options.top),
    }
    if tables.is_empty() {
        let what = match (options.line, &options.structure) {
            (Some(rank), _) => format!("no table {rank}: there are {all}"),
            (None, Some(name)) => format!("no contended line of `{}`", clean(name, NAME)),
            (None, None) => "no contended line".to_owned(),
        };
        return heading("Cache lines", options) + &format!("{what}\n");
    }
    let mut text = String::new();
    for table in &tables {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line_text(table, options));
    }
    let shown = tables.len();
    if options.line.is_none() && options.structure.is_none() && shown < all {
        let _ = writeln!(text, "\n{} more; --top {all} shows all", all - shown);
    }
    text
}

fn line_text(table: &LineTable, options: &Options) -> String {
    let mut text = heading(&format!("{}. {}", table.rank, title(table)), options);
    let mut facts = vec![
        format!("{} of all latency", share_pm(&table.share)),
        format!("{} transfers", count(table.samples.mean)),
        format!("{} remote", percent(table.remote_share.mean)),
        cells::verdict(table),
        format!("{} of latency is queue", percent(table.queue_share.mean)),
        format!("{} cores", table.core_count()),
    ];
    if !table.allocated_in.is_empty() {
        facts.push(format!("allocated in {}", clean(&table.allocated_in, NAME)));
    }
    if !table.neighbours.is_empty() {
        let names: Vec<_> = table.neighbours.iter().take(4).map(|one| clean(one, NAME)).collect();
        facts.push(format!("beside {}", list(&names)));
    }
    text.push_str(&wrap(&facts.join(", "), options.width));
    let hidden = hidden(table, options);
    let mut rows = Table::new(vec![
        Column::number("samples", u8::MAX),
        Column::number("±", 5),
        Column::number("remote", u8::MAX),
        Column::name("module", 6, 2),
        Column::word("inst. address", 0),
        Column::word("inst.", u8::MAX),
        Column::name("function", 12, u8::MAX),
        Column::word("data address", 1),
        Column::name("data", 12, u8::MAX),
        Column::number("false", 10),
        Column::number("latency", 9),
        Column::number("queue", 6),
        Column::number("share", 8),
        Column::name("invalidated by", 12, 7),
    ]);
    let (mut number, mut rest) = (0, 0.0);
    for (row, hidden) in table.rows.iter().zip(&hidden) {
        if *hidden {
            (number, rest) = (number + 1, rest + row.share_of_line);
        } else {
            rows.push(row.hot, row_cells(row));
        }
    }
    text.push_str(&rows.text(options.width, options.colour));
    if number != 0 {
        let rank = table.rank;
        let _ = writeln!(
            text,
            "  {number} more rows with {} of this; --line {rank} shows them",
            share(rest)
        );
    }
    text
}

/// Which rows are left out: all but the dearest.
fn hidden(table: &LineTable, options: &Options) -> Vec<bool> {
    if options.line.is_some() || table.rows.len() <= ROWS {
        return vec![false; table.rows.len()];
    }
    let mut order: Vec<usize> = (0..table.rows.len()).collect();
    let part = |at: usize| table.rows[at].share_of_line;
    order.sort_by(|one, other| part(*other).total_cmp(&part(*one)).then(one.cmp(other)));
    let mut hidden = vec![true; table.rows.len()];
    order.into_iter().take(ROWS).for_each(|at| hidden[at] = false);
    hidden
}

fn row_cells(row: &Row) -> Vec<String> {
    let writer = row.invalidated_by.first().map_or_else(String::new, |writer| {
        let field = if writer.field.is_empty() { "" } else { ": " };
        format!("{}{field}{}", writer.function, writer.field)
    });
    let mut cells = cells::of_row(row);
    cells.push(writer);
    cells
}

/// Letters of the bars.
fn letter(class: Class) -> char {
    match class {
        Class::LocalTransfer => 'l',
        Class::LastLevel => 'c',
        Class::LocalMemory => 'm',
        Class::RemoteMemory => 'M',
        Class::RemoteTransfer => 'L',
    }
}

fn histogram_text(histogram: &Histogram, options: &Options) -> String {
    let mut text = heading("Latency of misses", options);
    if histogram.classes.is_empty() {
        return text + "no misses\n";
    }
    let mut table = Table::new(vec![
        Column::word("answered by", u8::MAX),
        Column::number("misses", u8::MAX),
        Column::number("±", 1),
        Column::number("of misses", u8::MAX),
        Column::number("of latency", u8::MAX),
        Column::number("mean", 3),
        Column::number("without queue", 2),
        Column::number("peak", 2),
    ]);
    for row in &histogram.classes {
        let mut line = vec![format!("{} ({})", class_name(row.class), letter(row.class))];
        line.extend(cells::of_class(row));
        table.push(false, line);
    }
    text.push_str(&table.text(options.width, options.colour));
    text.push_str(&wrap(&cells::sentence(histogram), options.width));
    text.push_str(&bars(histogram, options.width));
    text
}

/// Two columns of bars: without and with the wait for the line.
fn bars(histogram: &Histogram, width: Option<usize>) -> String {
    const LINES: u64 = 20;
    let counted = |with_queue: bool| {
        let own = histogram.series.iter().filter(move |one| one.with_queue == with_queue);
        own.flat_map(|one| one.buckets.iter().map(|(start, count)| (*start, one.class, *count)))
    };
    // The last line holds the slowest hundredth.
    let mut all: Vec<_> = counted(true).chain(counted(false)).map(|one| (one.0, one.2)).collect();
    all.sort_by_key(|one| one.0);
    let whole: f64 = all.iter().map(|one| one.1).sum();
    let mut sum = 0.0;
    let end = all.iter().find(|(_, count)| {
        sum += count;
        sum >= whole * 0.99
    });
    let Some(end) = end.map(|one| one.0) else { return String::new() };
    let step = (end / LINES + 1).next_multiple_of(10);
    let mut lines: BTreeMap<u64, [BTreeMap<Class, f64>; 2]> = BTreeMap::new();
    for with_queue in [false, true] {
        for (start, class, count) in counted(with_queue) {
            let line = (start / step).min(end / step + 1);
            *lines.entry(line).or_default()[usize::from(with_queue)].entry(class).or_default() +=
                count;
        }
    }
    let sums = lines.values().flatten().map(|classes| classes.values().sum::<f64>());
    let max = sums.fold(0.0, f64::max);
    let length = (width.unwrap_or(100).clamp(44, 140) - 20) / 2;
    let bar = |classes: &BTreeMap<Class, f64>| {
        let mut bar = String::new();
        let mut so_far = 0.0;
        for (class, count) in classes {
            so_far += count;
            let until = (so_far / max * length as f64).round() as usize;
            while bar.len() < until {
                bar.push(letter(*class));
            }
        }
        if bar.is_empty() && so_far > 0.0 {
            bar.push('.');
        }
        bar
    };
    let mut text = format!("\n{:>14}  {:<length$}  {}\n", "cycles", "without queue", "with queue");
    for (line, [without, with]) in &lines {
        let from = line.saturating_mul(step);
        let cycles = match *line > end / step {
            true => format!("{from}-"),
            false => format!("{from}-{}", from + step - 1),
        };
        let row = format!("{cycles:>14}  {:<length$}  {}", bar(without), bar(with));
        let _ = writeln!(text, "{}", row.trim_end());
    }
    text
}

fn structures_text(structures: &Structures, options: &Options) -> String {
    let mut text = heading("Structures", options);
    if structures.subsystems.is_empty() {
        return text + "no contended line\n";
    }
    let sentence = format!(
        "top {} of {} contended lines = {} of all latency",
        structures.lines,
        structures.lines_with_transfers,
        share_pm(&structures.share)
    );
    text.push_str(&wrap(&sentence, options.width));
    let mut table = Table::new(vec![
        Column::number("share", u8::MAX),
        Column::number("±", 3),
        Column::name("structure", 14, u8::MAX),
        Column::number("objects", 4),
        Column::number("lines", 4),
        Column::number("transfers", 5),
        Column::number("remote", 6),
        Column::number("false", 8),
        Column::number("latency", 2),
        Column::name("dearest field", 10, 7),
    ]);
    for subsystem in &structures.subsystems {
        let mut line = vec![percent(subsystem.share.mean), points(&subsystem.share)];
        line.push(subsystem.name.clone());
        table.push(true, line);
        for one in subsystem.structures.iter().take(options.top.max(1)) {
            let mut line = vec![percent(one.share.mean), points(&one.share)];
            line.push(format!("  {}", one.name));
            line.extend(cells::of_structure(one));
            table.push(false, line);
        }
        let rest = subsystem.structures.len().saturating_sub(options.top.max(1));
        if rest > 0 {
            let part: f64 = subsystem
                .structures
                .iter()
                .skip(options.top.max(1))
                .map(|one| one.share.mean)
                .sum();
            table.push(false, vec![percent(part), String::new(), format!("  {rest} others")]);
        }
    }
    text + &table.text(options.width, options.colour)
}

fn layouts_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let layouts = match &options.structure {
        Some(name) => layout_heat(ledger, name).into_iter().collect(),
        None => layouts(ledger, options.top),
    };
    if layouts.is_empty() {
        let what = match &options.structure {
            Some(name) => format!("no type `{}` in this profile", clean(name, NAME)),
            None => "no contended line of a known type".to_owned(),
        };
        return heading("Layout", options) + &what + "\n";
    }
    let texts: Vec<_> = layouts.iter().map(|layout| layout_text(layout, options)).collect();
    texts.join("\n")
}

fn flows_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let flows: Vec<Flow> = match &options.structure {
        Some(name) => {
            called(ledger.profile, name).iter().filter_map(|name| flow(ledger, name)).collect()
        }
        None => {
            let structures = structures_by(ledger, &options.grouping);
            let names = structures.by_weight().into_iter().take(options.top);
            names.filter_map(|one| flow(ledger, &one.name)).collect()
        }
    };
    let mut text = heading("Transfers by writer and reader", options);
    if flows.is_empty() {
        return text + "none\n";
    }
    for flow in &flows {
        let _ = writeln!(
            text,
            "{} (of {} of its transfers the writer is known)",
            clean(&flow.structure, NAME),
            share(flow.known_share)
        );
        let mut table = Table::new(vec![
            Column::number("share", u8::MAX),
            Column::number("times", 3),
            Column::number("±", 1),
            Column::number("remote", 4),
            Column::name("from", 12, u8::MAX),
            Column::name("to", 12, u8::MAX),
            Column::name("fields", 8, 5),
        ]);
        let end = |function: &str, cores: &str| match cores {
            "" => function.to_owned(),
            cores => format!("{function} ({cores})"),
        };
        for edge in flow.edges.iter().take(options.top.max(1) * 2) {
            table.push(
                false,
                vec![
                    percent(edge.share),
                    count(edge.count.mean),
                    relative(&edge.count),
                    percent(edge.remote_share),
                    end(&edge.from.function, &edge.from.cores),
                    format!("-> {}", end(&edge.to.function, &edge.to.cores)),
                    edge.fields.join(", "),
                ],
            );
        }
        text.push_str(&table.text(options.width, options.colour));
    }
    text
}

fn threads_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let mut table = Table::new(vec![
        Column::number("thread", u8::MAX),
        Column::number("core", 3),
        Column::number("cycles", u8::MAX),
        Column::number("±", 1),
        Column::number("accesses", 4),
        Column::number("misses", 5),
        Column::number("stalled", u8::MAX),
        Column::number("asleep", u8::MAX),
    ]);
    let rows = threads(ledger);
    for row in &rows {
        table.push(
            false,
            vec![
                row.id.to_string(),
                row.core.to_string(),
                count(row.cycles.mean),
                relative(&row.cycles),
                count(row.accesses.mean),
                count(row.misses.mean),
                percent(row.stalled_share.mean),
                percent(row.blocked_share.mean),
            ],
        );
    }
    heading(&format!("Threads ({})", rows.len()), options)
        + &table.text(options.width, options.colour)
}

fn runs_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let runs = runs(ledger);
    let mut table = Table::new(vec![
        Column::word("whole run", u8::MAX),
        Column::number("mean", u8::MAX),
        Column::number("±", u8::MAX),
    ]);
    let mut row = |name: &str, value: &Estimate, shown: String| {
        table.push(false, vec![name.to_owned(), shown, relative(value)]);
    };
    for (name, value) in cells::counts(&runs) {
        row(name, value, count(value.mean));
    }
    for (name, value) in cells::shares(&runs) {
        row(name, value, percent(value.mean));
    }
    let mut text = heading("Runs", options) + &table.text(options.width, options.colour);
    let assumed = match runs.assumed.len() {
        0 => "nothing".to_owned(),
        _ => runs.assumed.join(", "),
    };
    let machine = clean(&runs.machine, NAME);
    text.push_str(&wrap(
        &format!("machine {machine}, hash {}; assumed: {assumed}", runs.machine_hash),
        options.width,
    ));
    text
}
