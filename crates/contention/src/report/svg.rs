//! Pictures: the latency histogram, structures as grouped bars, curves over cores.
//!
//! # Boundary
//! Numbers in, pictures out; colours are classes that the page's style defines, so that pictures follow light and
//! dark.
//!
//! # Why
//! Three kinds of picture need no library. Weakness: nothing can be zoomed; values are in the tooltips.

use super::format::{count, escape, percent};
use crate::analysis::histogram::{Series, class_name};
use crate::analysis::{Estimate, Structures};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use uvfs_coherence::profile::Class;

/// The class of a series in the page's style.
fn style(class: Class) -> &'static str {
    match class {
        Class::LocalTransfer => "c1",
        Class::LastLevel => "c2",
        Class::LocalMemory => "c3",
        Class::RemoteMemory => "c4",
        Class::RemoteTransfer => "c5",
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
pub(super) fn nice(value: f64) -> f64 {
    if value.is_nan() || value <= 0.0 || value.is_infinite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

fn open(text: &mut String, width: f64, height: f64, label: &str) {
    let label = escape(label);
    let _ = writeln!(
        text,
        "<svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\">"
    );
}

/// The frame of a diagram: where a value lies, with lines and numbers at the left.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    max: f64,
}

impl Frame {
    fn y(&self, value: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * (value / self.max).clamp(0.0, 1.0)
    }

    fn grid(&self, text: &mut String) {
        for step in 0..=4 {
            let value = self.max * f64::from(step) / 4.0;
            let y = self.y(value);
            let _ = writeln!(
                text,
                "<line class=\"grid\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                self.left,
                self.right,
                self.left - 6.0,
                y + 4.0,
                short(value)
            );
        }
    }

    fn label(&self, text: &mut String, x: f64, label: &str) {
        let y = self.bottom + 16.0;
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escape(label)
        );
    }
}

/// A number for an axis.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    if value != 0.0 && value.abs() < 0.095 {
        format!("{value:.3}{unit}")
    } else {
        format!("{}{unit}", count(value))
    }
}

/// Figure 1: misses over latency, by class, without and with the wait for the line.
pub(super) fn histogram(series: &[Series]) -> String {
    const BINS: u64 = 72;
    let counted =
        || series.iter().flat_map(|one| one.buckets.iter().map(|(at, count)| (*at, *count)));
    let mut all: Vec<_> = counted().collect();
    all.sort_by_key(|(at, _)| *at);
    let whole: f64 = all.iter().map(|(_, count)| count).sum();
    let mut sum = 0.0;
    let end = all.iter().find(|(_, count)| {
        sum += count;
        sum >= whole * 0.99
    });
    let Some((end, _)) = end else { return String::new() };
    let bin = (end / BINS + 1).next_multiple_of(10);
    let bins = end / bin + 1;
    // One more bin for all that is slower.
    let mut text = String::new();
    open(&mut text, 760.0, 520.0, "misses over latency");
    let own = |with_queue| series.iter().filter(move |one| one.with_queue == with_queue);
    for (panel, (with_queue, title)) in
        [(false, "time to be served"), (true, "with the wait for the line")].into_iter().enumerate()
    {
        let mut sums: BTreeMap<u64, BTreeMap<Class, f64>> = BTreeMap::new();
        for one in own(with_queue) {
            for (at, count) in &one.buckets {
                let bin = (at / bin).min(bins);
                *sums.entry(bin).or_default().entry(one.class).or_default() += count;
            }
        }
        let max = sums.values().map(|one| one.values().sum::<f64>()).fold(0.0, f64::max);
        let top = 30.0 + panel as f64 * 250.0;
        let frame = Frame { left: 60.0, right: 750.0, top, bottom: top + 190.0, max: nice(max) };
        let _ =
            writeln!(text, "<text x=\"60\" y=\"{:.1}\" class=\"title\">{title}</text>", top - 10.0);
        frame.grid(&mut text);
        let width = (frame.right - frame.left) / (bins + 1) as f64;
        for (number, classes) in &sums {
            let x = frame.left + width * *number as f64;
            let mut below = 0.0;
            for (class, misses) in classes {
                let (from, to) = (frame.y(below), frame.y(below + misses));
                below += misses;
                let cycles = match *number == bins {
                    true => format!("{} cycles and more", number * bin),
                    false => format!("{} to {} cycles", number * bin, number * bin + bin - 1),
                };
                let _ = writeln!(
                    text,
                    "<rect class=\"{}\" x=\"{x:.1}\" y=\"{to:.1}\" width=\"{:.1}\" height=\"{:.1}\">\
                     <title>{}, {cycles}: {} misses</title></rect>",
                    style(*class),
                    (width - 0.5).max(0.5),
                    from - to,
                    class_name(*class),
                    count(*misses)
                );
            }
        }
        for step in 0..=6 {
            let number = bins * step / 6;
            let x = frame.left + width * number as f64;
            frame.label(&mut text, x, &count((number * bin) as f64));
        }
    }
    let mut x = 60.0;
    for class in Class::ALL.into_iter().filter(|class| series.iter().any(|one| one.class == *class))
    {
        let _ = writeln!(
            text,
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"500\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.1}\" y=\"511\">{}</text>",
            style(class),
            x + 17.0,
            class_name(class)
        );
        x += 132.0;
    }
    text.push_str("</svg>\n");
    text
}

/// Figure 2: structures as bars, grouped by subsystem.
pub(super) fn structures(structures: &Structures) -> String {
    const EACH: usize = 8;
    const LEFT: f64 = 260.0;
    const WIDTH: f64 = 760.0;
    let most = structures.by_weight().first().map_or(0.0, |one| one.share.mean);
    if most <= 0.0 {
        return String::new();
    }
    let max = nice(most);
    let scale = |share: f64| (WIDTH - LEFT - 70.0) * (share / max).clamp(0.0, 1.0);
    let mut body = String::new();
    let mut y = 8.0;
    for (number, subsystem) in structures.subsystems.iter().take(12).enumerate() {
        let _ = writeln!(
            body,
            "<text class=\"title\" x=\"4\" y=\"{:.1}\">{} {}</text>",
            y + 13.0,
            escape(&super::format::clean(&subsystem.name, 60)),
            percent(subsystem.share.mean)
        );
        y += 22.0;
        for one in subsystem.structures.iter().take(EACH) {
            let many = if one.objects > 1 { format!(" x {}", one.objects) } else { String::new() };
            let (width, style) = (scale(one.share.mean), number % 5 + 1);
            let spread = one
                .share
                .plus_minus
                .map_or_else(String::new, |half| format!(" ± {}", percent(half)));
            let _ = writeln!(
                body,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}{many}</text>\
                 <rect class=\"c{style}\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"15\">\
                 <title>{}: {}{spread}, {} transfers, {} false, dearest field {}</title></rect>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + 12.0,
                escape(&super::format::clean(&one.name, 32)),
                y,
                escape(&one.name),
                percent(one.share.mean),
                count(one.samples.mean),
                percent(one.false_share.mean),
                escape(&one.field),
                LEFT + width + 6.0,
                y + 12.0,
                percent(one.share.mean)
            );
            y += 20.0;
        }
        y += 8.0;
    }
    let mut text = String::new();
    open(&mut text, WIDTH, y + 4.0, "structures by subsystem");
    text + &body + "</svg>\n"
}

/// A curve over cores.
pub(super) struct Curve<'a> {
    pub(super) name: &'a str,
    /// The curve's class in the page's style.
    pub(super) style: usize,
    /// Cores and value.
    pub(super) points: Vec<(f64, Estimate)>,
    /// Without dots and intervals.
    pub(super) smooth: bool,
}

/// Curves over cores, on a logarithmic axis of cores.
pub(super) fn curves(title: &str, unit: &str, curves: &[Curve<'_>]) -> String {
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let most = all().map(|(_, value)| value.high()).fold(0.0, f64::max);
    let (first, last) = all().fold((f64::MAX, 1.0_f64), |(first, last), (cores, _)| {
        (first.min(cores.max(1.0)), last.max(*cores))
    });
    if most <= 0.0 || first > last {
        return String::new();
    }
    let frame = Frame { left: 70.0, right: 740.0, top: 40.0, bottom: 330.0, max: nice(most) };
    let wide = (last / first).ln().max(f64::MIN_POSITIVE);
    let x = |cores: f64| match last > first {
        true => frame.left + 14.0 + (frame.right - frame.left - 28.0) * (cores / first).ln() / wide,
        false => f64::midpoint(frame.left, frame.right),
    };
    let mut text = String::new();
    open(&mut text, 760.0, 390.0, title);
    let _ = writeln!(
        text,
        "<text class=\"title\" x=\"70\" y=\"18\">{}</text><text x=\"70\" y=\"33\">{}</text>",
        escape(title),
        escape(unit)
    );
    frame.grid(&mut text);
    let mut cores: Vec<f64> = curves
        .iter()
        .filter(|one| !one.smooth)
        .flat_map(|one| &one.points)
        .map(|one| one.0)
        .collect();
    cores.sort_by(f64::total_cmp);
    cores.dedup();
    cores.iter().for_each(|cores| frame.label(&mut text, x(*cores), &count(*cores)));
    let middle = f64::midpoint(frame.left, frame.right);
    let _ = writeln!(text, "<text x=\"{middle:.1}\" y=\"364\" text-anchor=\"middle\">cores</text>");
    for (number, curve) in curves.iter().enumerate() {
        let places: Vec<_> =
            curve.points.iter().map(|(at, value)| (x(*at), frame.y(value.mean))).collect();
        let line: Vec<_> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (style, dashes) = (curve.style, if curve.smooth { " dashed" } else { "" });
        let _ =
            writeln!(text, "<polyline class=\"s{style}{dashes}\" points=\"{}\"/>", line.join(" "));
        if !curve.smooth {
            for ((x, y), (cores, value)) in places.iter().zip(&curve.points) {
                let (low, high) = (frame.y(value.low()), frame.y(value.high()));
                let _ = writeln!(
                    text,
                    "<line class=\"s{style}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{low:.1}\" y2=\"{high:.1}\"/>\
                     <circle class=\"c{style}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}, {} cores: \
                     {}</title></circle>",
                    escape(curve.name),
                    count(*cores),
                    escape(&super::format::count_pm(value))
                );
            }
        }
        let x = 70.0 + 220.0 * number as f64;
        let _ = writeln!(
            text,
            "<rect class=\"c{style}\" x=\"{x:.1}\" y=\"372\" width=\"12\" height=\"12\"/>\
             <text x=\"{:.1}\" y=\"383\">{}</text>",
            x + 17.0,
            escape(&super::format::clean(curve.name, 26))
        );
    }
    text + "</svg>\n"
}
