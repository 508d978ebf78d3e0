//! Utilisation and queue length over time, as one SVG for a disk: a row for each policy.
//!
//! # Boundary
//! Draws samples of [`Figures`].
//!
//! # Why
//! `Chart` of the kit has a place and a label for each value; time has too many. Coordinates are whole numbers, so a file has a few KB.

use super::figures::Figures;
use super::load::Machine;
use super::simulation::System;
use std::fmt::Write as _;

const SAMPLES: usize = 48;
const LEFT: usize = 140;
const WIDTH: usize = 320;
const BETWEEN: usize = 60;
const ROW: usize = 84;
const HEIGHT: usize = 60;
const TOP: usize = 44;

/// The drawing.
pub(super) fn svg(machine: &Machine, rows: &[(System, Figures)]) -> String {
    let height = TOP + rows.len() * ROW + 20;
    let right = LEFT + WIDTH + BETWEEN;
    let seconds = machine.sample_ns as f64 * SAMPLES as f64 / 1e9;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\" font-size=\"14\">disk {}: {seconds:.0} s</text>\n\
         <text x=\"{LEFT}\" y=\"36\" fill=\"#0072b2\">processors busy</text>\
         <text x=\"{}\" y=\"36\" fill=\"#d55e00\">disk busy</text>\
         <text x=\"{right}\" y=\"36\">requests in the driver and the disk</text>\n",
        right + WIDTH + 50,
        machine.disk.name,
        LEFT + 110,
    );
    for (at, (system, figures)) in rows.iter().enumerate() {
        let top = TOP + at * ROW;
        let first = figures.first(machine);
        let samples = &figures.samples[first..(first + SAMPLES).min(figures.samples.len())];
        let line = |svg: &mut String, x: usize, colour: &str, values: Vec<f64>, most: f64| {
            let places = values.iter().enumerate().map(|(at, value)| {
                let x = x + at * WIDTH / SAMPLES;
                let y = top as f64 + HEIGHT as f64 * (1.0 - value / most);
                format!("{x},{y:.0}")
            });
            let places = places.collect::<Vec<_>>().join(" ");
            let _ =
                writeln!(svg, "<polyline points=\"{places}\" fill=\"none\" stroke=\"{colour}\"/>");
        };
        let most = samples.iter().map(|sample| sample.queue_max).max().unwrap_or(0).max(10);
        for (x, label) in [(LEFT, "100 %".to_owned()), (right, most.to_string())] {
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{top}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#dddddd\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-size=\"10\">{label}</text>",
                x - 4,
                top + 9
            );
        }
        let middle = top + HEIGHT / 2 + 8;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{middle}\">{}</text>", system.name());
        let of =
            |value: &dyn Fn(&super::figures::Sample) -> f64| samples.iter().map(value).collect();
        line(&mut svg, LEFT, "#0072b2", of(&|sample| sample.processors(machine)), 100.0);
        line(&mut svg, LEFT, "#d55e00", of(&|sample| sample.disk(machine)), 100.0);
        line(&mut svg, right, "#222222", of(&|sample| sample.queue()), most as f64);
    }
    svg.push_str("</svg>\n");
    svg
}
