//! Sweeps: a curve over core counts, the lines and locks that bend it, and the fitted law.
//!
//! # Boundary
//! Words, tables and a picture of [`Sweep`].
//!
//! # Why
//! The shape comes first, then its numbers, then the lines and locks whose share grows with the
//! cores, since a programmer can change those. Weakness: the axis of throughput is linear, so a curve that
//! spans four decades lies flat at its left.

use super::Options;
use super::compare::list_html;
use super::format::{count, escape, list, percent, relative, share, share_pm};
use super::page::{Kind, Rows, page};
use super::svg::{Curve, curves};
use super::table::{Column, Table};
use super::text::{heading, wrap};
use crate::analysis::Estimate;
use crate::sweep::{Bend, BendKind, Sweep};
use std::fmt::Write as _;

/// A throughput, with digits also below one.
fn number(value: f64) -> String {
    if value.abs() >= 10.0 || value == 0.0 { count(value) } else { format!("{value:.3}") }
}

/// The sweep in sentences.
fn sentences(sweep: &Sweep) -> Vec<String> {
    let mut lines = vec![match sweep.shape {
        Some(shape) => format!("The curve is {shape}: {}.", sweep.reason),
        None => format!("The curve has no class: {}.", sweep.reason),
    }];
    lines.extend(sweep.work.found.clone());
    let seeds = sweep.points.iter().map(|point| point.by_seed.len()).min().unwrap_or(0);
    if let Some(shape) = sweep.shape
        && seeds > 1
    {
        let same = sweep.by_seed.iter().filter(|one| **one == shape).count();
        lines.push(format!("{same} of {seeds} seeds alone say the same."));
    } else if seeds < 2 {
        lines.push("One seed: there are no intervals; use --seeds 8.".to_owned());
    }
    if let Some(law) = &sweep.law {
        let peak = match law.peak {
            Some(peak) => format!("its highest throughput is at {} cores", count(peak)),
            None => "it rises for ever".to_owned(),
        };
        lines.push(format!(
            "Universal scalability law: {} for one core, contention {:.4}, coherence {:.6}, R² {:.3}; {peak}.",
            number(law.gamma),
            law.sigma,
            law.kappa,
            law.r_squared
        ));
    }
    let bending: Vec<_> = sweep
        .bends
        .iter()
        .filter_map(|bend| Some((bend, bend.over_at?)))
        .take(3)
        .map(|(bend, cores)| {
            let name = super::format::clean(&bend.name, 60);
            format!("{} `{name}` from {cores} cores on", kind(bend))
        })
        .collect();
    lines.push(if bending.is_empty() {
        format!("No line and no lock takes {} of the threads' time.", share(Bend::LIMIT))
    } else {
        format!("More than {} of the threads' time take {}.", share(Bend::LIMIT), list(&bending))
    });
    lines
}

fn kind(bend: &Bend) -> &'static str {
    match bend.kind {
        BendKind::Line => "line",
        BendKind::Lock => "lock",
    }
}

/// A sweep as text.
pub fn sweep_text(sweep: &Sweep, options: &Options) -> String {
    let mut text: String = sentences(sweep).iter().map(|line| wrap(line, options.width)).collect();
    text.push('\n');
    let mut table = Table::new(vec![
        Column::number("cores", u8::MAX),
        Column::number(sweep.unit, u8::MAX),
        Column::number("±", 5),
        Column::number("speed-up", 6),
        Column::number("efficiency", u8::MAX),
        Column::number("transfers/access", 3),
        Column::number("law", 4),
        Column::name("", 10, 2),
    ]);
    let most = sweep.points.iter().map(|one| one.throughput.mean).fold(0.0, f64::max);
    for point in &sweep.points {
        let length = if most > 0.0 { (point.throughput.mean / most * 30.0).round() } else { 0.0 };
        table.push(
            false,
            vec![
                point.cores.to_string(),
                number(point.throughput.mean),
                relative(&point.throughput),
                format!("{:.2}", point.speed_up.mean),
                percent(point.efficiency.mean),
                format!("{:.4}", point.transfers_per_access.mean),
                point.fitted.map_or_else(String::new, number),
                "#".repeat(length as usize),
            ],
        );
    }
    text.push_str(&table.text(options.width, options.colour));
    if !sweep.bends.is_empty() {
        let title = "Share of all threads' time, by cores";
        let _ = write!(text, "\n{}", heading(title, options));
        text.push_str(&bends(sweep, options).text(options.width, options.colour));
    }
    text
}

fn bends(sweep: &Sweep, options: &Options) -> Table {
    let cores: Vec<_> = sweep.points.iter().map(|point| point.cores).collect();
    let mut columns = vec![Column::word("kind", 0), Column::name("name", 16, u8::MAX)];
    for (at, cores) in cores.iter().enumerate() {
        // Few cores are the first that a narrow terminal does without.
        columns.push(Column::number(&cores.to_string(), u8::try_from(at + 1).unwrap_or(200)));
    }
    let mut table = Table::new(columns);
    for bend in sweep.bends.iter().take(options.top.max(1) * 2) {
        let mut cells = vec![kind(bend).to_owned(), bend.name.clone()];
        cells.extend(shares(bend, &cores));
        table.push(bend.over_at.is_some(), cells);
    }
    table
}

fn shares(bend: &Bend, cores: &[usize]) -> Vec<String> {
    let of = |cores: &usize| bend.shares.iter().find(|(at, _)| at == cores);
    cores
        .iter()
        .map(|cores| of(cores).map_or_else(String::new, |one| percent(one.1.mean)))
        .collect()
}

/// A sweep as a page.
pub fn sweep_html(sweep: &Sweep, title: &str) -> String {
    let mut body = list_html(&sentences(sweep));
    let measured = sweep.points.iter().map(|point| (point.cores as f64, point.throughput));
    let mut drawn =
        vec![Curve { name: "simulated", style: 1, points: measured.collect(), smooth: false }];
    if let (Some(law), Some(first), Some(last)) =
        (&sweep.law, sweep.points.first(), sweep.points.last())
    {
        let (first, last) = (first.cores as f64, last.cores as f64);
        let step = |at: u32| first * (last / first).powf(f64::from(at) / 48.0);
        let point =
            |cores: f64| (cores, Estimate { mean: law.throughput(cores), plus_minus: None });
        let points = (0..=48).map(|at| point(step(at))).collect();
        drawn.push(Curve { name: "fitted law", style: 5, points, smooth: true });
    }
    body.push_str(&curves("Throughput over cores", sweep.unit, &drawn));
    let mut rows = Rows::new(
        true,
        &[
            ("cores", Kind::Number),
            (sweep.unit, Kind::Number),
            ("±", Kind::Number),
            ("speed-up", Kind::Number),
            ("efficiency", Kind::Number),
            ("transfers an access", Kind::Number),
            ("law", Kind::Number),
        ],
    );
    for point in &sweep.points {
        rows.push(
            "",
            &[
                point.cores.to_string(),
                number(point.throughput.mean),
                relative(&point.throughput),
                format!("{:.2}", point.speed_up.mean),
                share_pm(&point.efficiency),
                format!("{:.4}", point.transfers_per_access.mean),
                point.fitted.map_or_else(String::new, number),
            ],
        );
    }
    body.push_str(&rows.finish());
    body.push_str("<h2>Share of all threads' time</h2>\n");
    // The legend has room for three.
    let lasting = sweep.bends.iter().take(3).enumerate().map(|(at, bend)| Curve {
        name: &bend.name,
        style: at * 2 + 1,
        points: bend.shares.iter().map(|(cores, share)| (*cores as f64, *share)).collect(),
        smooth: false,
    });
    body.push_str(&curves("Causes of the bend", "share of time", &lasting.collect::<Vec<_>>()));
    let cores: Vec<_> = sweep.points.iter().map(|point| point.cores).collect();
    let heads: Vec<_> = cores.iter().map(ToString::to_string).collect();
    let mut columns = vec![("kind", Kind::Word), ("name", Kind::Code)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Kind::Number)));
    let mut rows = Rows::new(true, &columns);
    for bend in &sweep.bends {
        let mut cells = vec![kind(bend).to_owned(), bend.name.clone()];
        cells.extend(shares(bend, &cores));
        rows.push(if bend.over_at.is_some() { "hot" } else { "" }, &cells);
    }
    body.push_str(&rows.finish());
    let _ = writeln!(
        body,
        "<p class=\"dim\">Throughput in {}; ± is half of the 95 % interval.</p>",
        escape(sweep.unit)
    );
    page(title, &body)
}
