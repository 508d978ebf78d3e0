//! One node beside several.
//!
//! # Boundary
//! Words and tables of [`Numa`].
//!
//! # Why
//! The paper's section 3 gives one figure for the whole and two paths that pay most; so do the first lines
//! here. Weakness: which of two equal machines is meant is known from the caller's heading alone.

use super::Options;
use super::compare::{change, list_html, number, word};
use super::format::{clean, count, large, percent, plural, share};
use super::page::{Kind, Rows, page};
use super::table::{Column, Table};
use super::text::{heading, wrap};
use crate::compare::{Change, Status};
use crate::numa::{Numa, Row, Side};
use std::fmt::Write as _;

fn totals(numa: &Numa) -> [(&'static str, &Change); 4] {
    [
        ("cycles with threads", &numa.cycles),
        ("latency of all misses", &numa.latency),
        ("cycles a miss", &numa.cost_per_miss),
        ("cycles an access", &numa.cycles_per_access),
    ]
}

fn sentences(numa: &Numa) -> Vec<String> {
    let significance = match numa.cycles.status {
        Status::Same => "; the spread of the seeds is as large",
        Status::Unclear => "; with one seed there is no interval",
        _ => "",
    };
    let mut lines = vec![
        format!(
            "The same {} on one node and on {}: {} -> {} cycles ({}){significance}.",
            plural(numa.cores as u64, "core"),
            numa.nodes,
            large(numa.cycles.old.mean),
            large(numa.cycles.new.mean),
            change(&numa.cycles)
        ),
        format!(
            "A miss costs {} -> {} cycles ({}), an access {} -> {} ({}).",
            number(&numa.cost_per_miss.old),
            number(&numa.cost_per_miss.new),
            change(&numa.cost_per_miss),
            number(&numa.cycles_per_access.old),
            number(&numa.cycles_per_access.new),
            change(&numa.cycles_per_access)
        ),
    ];
    for (what, rows) in [("path", &numa.functions), ("structure", &numa.structures)] {
        if let Some(row) = rows.first().filter(|row| row.increase.mean > 0.0) {
            lines.push(format!(
                "The {what} that pays most is `{}`: {} of the increase, {} of its misses are remote.",
                clean(&row.name, 60),
                share(row.share_of_increase),
                share(row.several.remote_share.mean)
            ));
        }
    }
    lines
}

/// One node beside several, as text.
pub fn numa_text(numa: &Numa, options: &Options) -> String {
    let mut text: String = sentences(numa).iter().map(|line| wrap(line, options.width)).collect();
    let nodes = plural(numa.nodes as u64, "node");
    let mut table = Table::new(vec![
        Column::word("whole run", u8::MAX),
        Column::number("1 node", u8::MAX),
        Column::number(&nodes, u8::MAX),
        Column::number("change", u8::MAX),
        Column::word("", 2),
    ]);
    for (name, figure) in totals(numa) {
        table.push(
            false,
            vec![
                name.to_owned(),
                number(&figure.old),
                number(&figure.new),
                change(figure),
                word(figure.status).to_owned(),
            ],
        );
    }
    let _ = write!(text, "\n{}", table.text(options.width, options.colour));
    for (title, rows) in [("Paths", &numa.functions), ("Structures", &numa.structures)] {
        let _ = write!(text, "\n{}", heading(title, options));
        if rows.is_empty() {
            text.push_str("none\n");
            continue;
        }
        let mut table = Table::new(vec![
            Column::name("name", 16, u8::MAX),
            Column::number("latency 1", u8::MAX),
            Column::number(&numa.nodes.to_string(), u8::MAX),
            Column::number("±", 0),
            Column::number("of increase", 8),
            Column::number("remote", 7),
            Column::number("transfers 1", 2),
            Column::number(&numa.nodes.to_string(), 3),
            Column::number("of latency", 1),
            Column::number("a miss 1", 5),
            Column::number(&numa.nodes.to_string(), 6),
            Column::number("an access 1", 3),
            Column::number(&numa.nodes.to_string(), 4),
        ]);
        for row in rows.iter().take(options.top.max(1) * 2) {
            table.push(row.share_of_increase >= 0.2, cells(row));
        }
        text.push_str(&table.text(options.width, options.colour));
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let access = |side: &Side| side.cost_per_access.as_ref().map_or_else(String::new, number);
    vec![
        row.name.clone(),
        count(row.one.latency.mean),
        count(row.several.latency.mean),
        row.increase.plus_minus.map_or_else(String::new, count),
        percent(row.share_of_increase),
        percent(row.several.remote_share.mean),
        count(row.one.transfers.mean),
        count(row.several.transfers.mean),
        percent(row.several.transfer_share.mean),
        count(row.one.cost_per_miss.mean),
        count(row.several.cost_per_miss.mean),
        access(&row.one),
        access(&row.several),
    ]
}

/// One node beside several, as a page.
pub fn numa_html(numa: &Numa, title: &str) -> String {
    let mut body = list_html(&sentences(numa));
    let nodes = plural(numa.nodes as u64, "node");
    let mut rows = Rows::new(
        false,
        &[
            ("whole run", Kind::Word),
            ("1 node", Kind::Number),
            (&nodes, Kind::Number),
            ("change", Kind::Number),
            ("", Kind::Word),
        ],
    );
    for (name, figure) in totals(numa) {
        rows.push(
            "",
            &[
                name.to_owned(),
                number(&figure.old),
                number(&figure.new),
                change(figure),
                word(figure.status).to_owned(),
            ],
        );
    }
    body.push_str(&rows.finish());
    for (heading, list) in [("Paths", &numa.functions), ("Structures", &numa.structures)] {
        let _ = writeln!(body, "<h2>{heading}</h2>");
        let several = numa.nodes.to_string();
        let mut rows = Rows::new(
            true,
            &[
                ("name", Kind::Code),
                ("latency on 1", Kind::Number),
                (&several, Kind::Number),
                ("±", Kind::Number),
                ("of increase", Kind::Number),
                ("remote", Kind::Number),
                ("transfers on 1", Kind::Number),
                (&several, Kind::Number),
                ("transfers of latency", Kind::Number),
                ("cycles a miss on 1", Kind::Number),
                (&several, Kind::Number),
                ("cycles an access on 1", Kind::Number),
                (&several, Kind::Number),
            ],
        );
        for row in list.iter().take(200) {
            rows.push(if row.share_of_increase >= 0.2 { "hot" } else { "" }, &cells(row));
        }
        body.push_str(&rows.finish());
    }
    page(title, &body)
}
