//! The report as one HTML page.
//!
//! # Boundary
//! The same figures as the text, all sections at once, with pictures. Frame and style are [`super::page`]'s.
//!
//! # Why
//! A page can be sent to the owner of the structure. Tables keep all their rows; the browser scrolls and
//! sorts them. Weakness: a profile with hundreds of hot lines makes a long page, so only the dearest
//! fifty are in it.

use super::cells::{self, points};
use super::compare::list_html;
use super::format::{clean, count, count_pm, escape, percent, seeds, share, share_pm, time};
use super::layout::{USAGES, facts, layout_svg};
use super::locks::SECTIONS;
use super::page::{Kind, Rows, page};
use super::summary::{summary, title};
use super::{Options, svg};
use crate::analysis::histogram::class_name;
use crate::analysis::{
    Analyses, Flow, Histogram, LayoutHeat, LineTable, LockRow, RunsSummary, Structures, ThreadRow,
};
use crate::ledger::Ledger;
use std::fmt::Write as _;

/// Lines of a page.
const LINES: usize = 50;
/// Other rows of a page.
const ROWS: usize = 200;

/// The report as a page.
pub fn html(ledger: &Ledger<'_>, options: &Options) -> String {
    let analyses = Analyses::new(ledger, &options.grouping, LINES);
    let mut body = list_html(&summary(ledger, options));
    body.push_str("<nav>");
    for (id, name) in [
        ("lines", "lines"),
        ("histogram", "latency"),
        ("structures", "structures"),
        ("layout", "layout"),
        ("locks", "locks"),
        ("flow", "flow"),
        ("threads", "threads"),
        ("runs", "runs"),
    ] {
        let _ = write!(body, "<a href=\"#{id}\">{name}</a>");
    }
    body.push_str("</nav>\n");
    lines(&mut body, &analyses.groups);
    histogram(&mut body, &analyses.histogram);
    structures(&mut body, &analyses.structures);
    layouts(&mut body, &analyses.layouts);
    locks(&mut body, &analyses.lock_groups, analyses.runs.megahertz);
    flows(&mut body, &analyses.flows);
    threads(&mut body, &analyses.threads);
    runs(&mut body, &analyses.runs);
    let command = clean(&analyses.runs.command.join(" "), 80);
    page(&format!("Contention: {command}"), &body)
}

fn section(body: &mut String, id: &str, title: &str) {
    let _ = writeln!(body, "<h2 id=\"{id}\">{}</h2>", escape(title));
}

fn none(body: &mut String, text: &str) {
    let _ = writeln!(body, "<p class=\"dim\">{text}</p>");
}

fn lines(body: &mut String, tables: &[LineTable]) {
    section(body, "lines", "Cache lines by latency of transfers");
    if tables.is_empty() {
        return none(body, "No cache line went from one core to another.");
    }
    for table in tables {
        let _ = writeln!(
            body,
            "<h3>{}. {}</h3>\n<p class=\"dim\">{} of all latency, {} transfers, {} remote, {}, {} of latency is queue, {} cores{}</p>",
            table.rank,
            escape(&title(table)),
            share_pm(&table.share),
            count_pm(&table.samples),
            percent(table.remote_share.mean),
            cells::verdict(table),
            percent(table.queue_share.mean),
            table.core_count(),
            match table.allocated_in.as_str() {
                "" => String::new(),
                function => format!(", allocated in {}", escape(function)),
            }
        );
        let mut rows = Rows::new(
            true,
            &[
                ("samples", Kind::Number),
                ("±", Kind::Number),
                ("remote", Kind::Number),
                ("module", Kind::Word),
                ("inst. address", Kind::Code),
                ("inst.", Kind::Code),
                ("function", Kind::Code),
                ("data address", Kind::Code),
                ("data", Kind::Code),
                ("false", Kind::Number),
                ("latency", Kind::Number),
                ("queue", Kind::Number),
                ("share", Kind::Number),
                ("invalidated by", Kind::Code),
                ("source", Kind::Code),
            ],
        );
        for row in table.rows.iter().take(ROWS) {
            let writers: Vec<_> = row
                .invalidated_by
                .iter()
                .map(|writer| match writer.field.as_str() {
                    "" => format!("{} {}", clean(&writer.function, 60), percent(writer.share)),
                    field => format!(
                        "{}: {} {}",
                        clean(&writer.function, 60),
                        clean(field, 40),
                        percent(writer.share)
                    ),
                })
                .collect();
            let mut line = cells::of_row(row);
            line.extend([writers.join(", "), row.source.clone()]);
            rows.push(if row.hot { "hot" } else { "" }, &line);
        }
        body.push_str(&rows.finish());
    }
}

fn histogram(body: &mut String, histogram: &Histogram) {
    section(body, "histogram", "Latency of misses");
    if histogram.classes.is_empty() {
        return none(body, "No misses.");
    }
    let _ = writeln!(body, "<p>{}</p>", cells::sentence(histogram));
    body.push_str(&svg::histogram(&histogram.series));
    let mut rows = Rows::new(
        true,
        &[
            ("answered by", Kind::Word),
            ("misses", Kind::Number),
            ("±", Kind::Number),
            ("of misses", Kind::Number),
            ("of latency", Kind::Number),
            ("mean cycles", Kind::Number),
            ("without queue", Kind::Number),
            ("peak", Kind::Number),
        ],
    );
    for row in &histogram.classes {
        let mut line = vec![class_name(row.class).to_owned()];
        line.extend(cells::of_class(row));
        rows.push("", &line);
    }
    body.push_str(&rows.finish());
}

fn structures(body: &mut String, structures: &Structures) {
    section(body, "structures", "Structures by subsystem");
    if structures.subsystems.is_empty() {
        return none(body, "No contended line.");
    }
    let _ = writeln!(
        body,
        "<p>Top {} of {} contended lines = {} of all latency.</p>",
        structures.lines,
        structures.lines_with_transfers,
        share_pm(&structures.share)
    );
    body.push_str(&svg::structures(structures));
    let mut rows = Rows::new(
        false,
        &[
            ("share", Kind::Number),
            ("±", Kind::Number),
            ("structure", Kind::Code),
            ("objects", Kind::Number),
            ("lines", Kind::Number),
            ("transfers", Kind::Number),
            ("remote", Kind::Number),
            ("false", Kind::Number),
            ("latency", Kind::Number),
            ("dearest field", Kind::Code),
        ],
    );
    for subsystem in &structures.subsystems {
        let own = [percent(subsystem.share.mean), points(&subsystem.share), subsystem.name.clone()];
        rows.push("sub", &own);
        for one in subsystem.structures.iter().take(ROWS) {
            let mut line = vec![percent(one.share.mean), points(&one.share), one.name.clone()];
            line.extend(cells::of_structure(one));
            rows.push("", &line);
        }
    }
    body.push_str(&rows.finish());
}

fn layouts(body: &mut String, layouts: &[LayoutHeat]) {
    section(body, "layout", "Layout and heat");
    if layouts.is_empty() {
        return none(body, "No contended line of a known type.");
    }
    body.push_str("<p class=\"key\">");
    for (class, words) in USAGES {
        let _ = write!(body, "<span><i class=\"{class}\"></i>{words}</span>");
    }
    body.push_str("</p>\n");
    for layout in layouts {
        let _ = writeln!(
            body,
            "<h3>{}</h3>\n<p class=\"dim\">{}{}</p>",
            escape(&layout.name),
            escape(&facts(layout)),
            match layout.declared.as_str() {
                "" => String::new(),
                declared => format!(", {}", escape(declared)),
            }
        );
        body.push_str(&layout_svg(layout));
        let mut rows = Rows::new(
            false,
            &[
                ("line", Kind::Number),
                ("offset", Kind::Number),
                ("bytes", Kind::Number),
                ("field", Kind::Code),
                ("type", Kind::Code),
                ("reads", Kind::Number),
                ("writes", Kind::Number),
                ("updates", Kind::Number),
                ("cores", Kind::Number),
                ("transfers", Kind::Number),
                ("latency", Kind::Number),
                ("false", Kind::Number),
                ("share", Kind::Number),
            ],
        );
        let mut line = None;
        let touched =
            layout.fields.iter().filter(|field| field.is_touched() || layout.fields.len() <= 40);
        for field in touched.take(ROWS) {
            let class = if line.is_some_and(|line| line != field.line) { "edge" } else { "" };
            line = Some(field.line);
            rows.push(
                class,
                &[
                    field.line.to_string(),
                    field.offset.to_string(),
                    field.bytes.to_string(),
                    cells::path(field),
                    field.type_name.clone(),
                    count(field.reads.mean),
                    count(field.writes.mean),
                    count(field.updates.mean),
                    field.core_count().to_string(),
                    count(field.transfers.mean),
                    count(field.mean_latency.mean),
                    percent(field.false_share.mean),
                    percent(field.share.mean),
                ],
            );
        }
        body.push_str(&rows.finish());
    }
}

fn locks(body: &mut String, locks: &[LockRow], megahertz: f64) {
    section(body, "locks", "Locks in virtual time");
    if locks.is_empty() {
        return none(body, "No lock was seen.");
    }
    for (heading, kinds) in SECTIONS {
        let own: Vec<_> = locks.iter().filter(|row| kinds.contains(&row.kind)).collect();
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(body, "<h3>{heading}</h3>");
        let mut rows = Rows::new(
            true,
            &[
                ("UTIL", Kind::Number),
                ("CON", Kind::Number),
                ("HOLD MEAN", Kind::Number),
                ("MAX", Kind::Number),
                ("WAIT MEAN", Kind::Number),
                ("MAX", Kind::Number),
                ("% CPU", Kind::Number),
                ("TOTAL", Kind::Number),
                ("NOWAIT", Kind::Number),
                ("SPIN", Kind::Number),
                ("RJECT", Kind::Number),
                ("BOUNCE", Kind::Number),
                ("NAME", Kind::Code),
                ("waited for", Kind::Code),
            ],
        );
        for row in own.into_iter().take(ROWS) {
            let many = if row.objects > 1 { format!(" x {}", row.objects) } else { String::new() };
            let waiters: Vec<_> = row
                .waiters
                .iter()
                .take(4)
                .map(|one| format!("{} {}", clean(&one.function, 60), percent(one.share)))
                .collect();
            rows.push(
                "",
                &[
                    percent(row.utilisation.mean),
                    percent(row.contended_share.mean),
                    time(row.hold_mean.mean, megahertz),
                    time(row.hold_max as f64, megahertz),
                    time(row.wait_mean.mean, megahertz),
                    time(row.wait_max as f64, megahertz),
                    share_pm(&row.wait_share),
                    count_pm(&row.acquisitions),
                    percent(1.0 - row.contended_share.mean),
                    percent(row.contended_share.mean),
                    "-".to_owned(),
                    percent(row.bounce_share.mean),
                    format!("{}{many}", clean(&row.name, 120)),
                    waiters.join(", "),
                ],
            );
        }
        body.push_str(&rows.finish());
    }
}

fn flows(body: &mut String, flows: &[Flow]) {
    section(body, "flow", "Transfers by writer and reader");
    if flows.is_empty() {
        return none(body, "None.");
    }
    for flow in flows {
        let _ = writeln!(
            body,
            "<h3>{}</h3>\n<p class=\"dim\">Of {} of its transfers the writer is known.</p>",
            escape(&flow.structure),
            share(flow.known_share)
        );
        let mut rows = Rows::new(
            true,
            &[
                ("share", Kind::Number),
                ("times", Kind::Number),
                ("remote", Kind::Number),
                ("from", Kind::Code),
                ("cores", Kind::Word),
                ("to", Kind::Code),
                ("cores", Kind::Word),
                ("fields", Kind::Code),
            ],
        );
        for edge in flow.edges.iter().take(40) {
            rows.push(
                "",
                &[
                    percent(edge.share),
                    count_pm(&edge.count),
                    percent(edge.remote_share),
                    edge.from.function.clone(),
                    edge.from.cores.clone(),
                    edge.to.function.clone(),
                    edge.to.cores.clone(),
                    edge.fields.join(", "),
                ],
            );
        }
        body.push_str(&rows.finish());
    }
}

fn threads(body: &mut String, threads: &[ThreadRow]) {
    section(body, "threads", "Threads");
    let mut rows = Rows::new(
        true,
        &[
            ("thread", Kind::Number),
            ("core", Kind::Number),
            ("cycles", Kind::Number),
            ("accesses", Kind::Number),
            ("misses", Kind::Number),
            ("stalled", Kind::Number),
            ("asleep", Kind::Number),
        ],
    );
    for row in threads.iter().take(ROWS) {
        rows.push(
            "",
            &[
                row.id.to_string(),
                row.core.to_string(),
                count_pm(&row.cycles),
                count_pm(&row.accesses),
                count_pm(&row.misses),
                percent(row.stalled_share.mean),
                percent(row.blocked_share.mean),
            ],
        );
    }
    body.push_str(&rows.finish());
}

fn runs(body: &mut String, runs: &RunsSummary) {
    section(body, "runs", "Runs");
    let mut rows = Rows::new(false, &[("figure", Kind::Word), ("mean", Kind::Number)]);
    for (name, value) in cells::counts(runs) {
        rows.push("", &[name.to_owned(), count_pm(value)]);
    }
    for (name, value) in cells::shares(runs) {
        rows.push("", &[name.to_owned(), share_pm(value)]);
    }
    body.push_str(&rows.finish());
    let assumed: Vec<_> = runs.assumed.iter().map(|name| escape(name)).collect();
    let _ = writeln!(
        body,
        "<p class=\"dim\">{}; machine {}, hash {}; seeds {}; assumed, not measured: {}.</p>",
        escape(&runs.tool),
        escape(&runs.machine),
        escape(&runs.machine_hash),
        escape(&seeds(&runs.seeds)),
        if assumed.is_empty() { "nothing".to_owned() } else { assumed.join(", ") }
    );
}
