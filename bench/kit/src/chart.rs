//! Charts, as bars of text and as SVG.
//!
//! # Boundary
//! Draws numbers; the title and the names of the series explain them.
//!
//! # Why
//! Lines with a legend are enough, so the SVG is written by hand instead of with a library.
//! Weakness: the horizontal axis has one place for each value, however far apart the values are.

use std::fmt::Write as _;

/// One chart: a line per series.
#[derive(Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// The quantity of the horizontal axis.
    pub over: &'static str,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// A line.
#[derive(Debug)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// Where on the horizontal axis, and value.
    pub points: Vec<(usize, f64)>,
}

/// Characters of the longest bar.
const BAR: f64 = 40.0;
/// Edges of the chart within its 760 by 420.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 360.0;
const COLOURS: [&str; 8] =
    ["#222222", "#0072b2", "#56b4e9", "#cc79a7", "#e69f00", "#d55e00", "#999900", "#009e73"];

impl Chart {
    fn max(&self) -> f64 {
        let values = self.series.iter().flat_map(|series| &series.points);
        values.map(|(_, value)| *value).fold(0.0, f64::max)
    }

    /// A bar per point.
    pub fn text(&self) -> String {
        let mut text = format!("\n{} [{}]\n", self.title, self.unit);
        let max = self.max();
        for series in &self.series {
            let mut name = series.name.as_str();
            for (threads, value) in &series.points {
                let length = if max > 0.0 { (value / max * BAR).round() as usize } else { 0 };
                let (bar, value) = ("#".repeat(length), digits(*value));
                let _ = writeln!(text, "  {name:<20} {threads:>3} |{bar:<40} {value}");
                name = "";
            }
        }
        text
    }

    /// Lines with axes, a legend, and every point as a dot with its value as a tooltip.
    pub fn svg(&self) -> String {
        let max = nice(self.max());
        let all = self.series.iter().flat_map(|series| &series.points);
        let mut threads: Vec<usize> = all.map(|(threads, _)| *threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let width = (RIGHT - LEFT) / threads.len().max(1) as f64;
        let x = |count: usize| {
            LEFT + width * (threads.partition_point(|other| *other < count) as f64 + 0.5)
        };
        let y = |value: f64| BOTTOM - (BOTTOM - TOP) * value / max;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 420\" \
             font-family=\"sans-serif\" font-size=\"13\">\n\
             <rect width=\"760\" height=\"420\" fill=\"white\"/>\n\
             <text x=\"{LEFT}\" y=\"28\" font-size=\"16\">{}</text>\n",
            self.title
        );
        for step in 0..=5 {
            let value = max * f64::from(step) / 5.0;
            let (at, label) = (y(value), digits(value));
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" \
                 stroke=\"#dddddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
        for count in &threads {
            let at = x(*count);
            let _ = writeln!(
                svg,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{count}</text>",
                BOTTOM + 20.0
            );
        }
        let (middle, under) = (f64::midpoint(LEFT, RIGHT), BOTTOM + 42.0);
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{under:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text x=\"{LEFT}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            self.over,
            TOP - 8.0,
            self.unit
        );
        for (at, series) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let place = |(threads, value): &(usize, f64)| (x(*threads), y(*value));
            let points: Vec<(f64, f64)> = series.points.iter().map(place).collect();
            let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                line.join(" ")
            );
            for ((x, y), (threads, value)) in points.iter().zip(&series.points) {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\">\
                     <title>{}, {threads}: {}</title></circle>",
                    series.name,
                    digits(*value)
                );
            }
            let (x, y) = (RIGHT + 20.0, TOP + 22.0 * at as f64);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 20.0,
                y + 12.0,
                series.name
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is not below `value`.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

/// Three digits that mean something.
fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let series = |name: &str, points: &[(usize, f64)]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        Chart {
            title: "Figure 6: dbench throughput".to_owned(),
            unit: "k/s",
            over: "threads",
            series: vec![
                series("global-lock", &[(1, 100.0), (2, 50.0)]),
                series("uvfs", &[(1, 200.0), (2, 400.0)]),
            ],
        }
    }

    #[test]
    fn bars_are_as_long_as_their_values() {
        let text = chart().text();
        let bars: Vec<usize> = text.lines().skip(2).map(|line| line.matches('#').count()).collect();
        assert_eq!(bars, [10, 5, 20, 40], "{text}");
        assert!(text.contains("Figure 6: dbench throughput [k/s]"), "{text}");
    }

    #[test]
    fn a_chart_has_a_line_and_a_legend_for_each_system() {
        let svg = chart().svg();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">global-lock</text>") && svg.contains(">uvfs</text>"), "{svg}");
        // 400 of at most 500 lies a fifth below the top.
        assert!(svg.contains("cy=\"112.0\""), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }

    #[test]
    fn nothing_measured_is_no_division_by_nothing() {
        let mut chart = chart();
        chart.series.clear();
        assert!(!chart.svg().contains("NaN"));
        assert_eq!([0.0, 3.0, 7.0, 20.0, 21.0].map(nice), [1.0, 5.0, 10.0, 20.0, 50.0]);
    }
}
