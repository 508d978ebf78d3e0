//! The paper's tables with our figures beside its own, and the rates of all systems.
//!
//! # Boundary
//! Text from figures. The numbers of Zijlstra, "Concurrent Pagecache" (Ottawa Linux Symposium 2007),
//! sections 4.1 and 5.1, are seconds for 16,777,216 items by two threads on a 2-way x86-64 machine.

use super::figures::Figures;
use super::systems::Phase;
use std::io::{self, Write};
use uvfs_bench_workload::keys::Pattern;

/// Threads of the paper.
pub(super) const THREADS: usize = 2;

/// The rows of the paper.
pub(super) const OPERATIONS: [Phase; 4] = [Phase::Insert, Phase::Tag, Phase::Untag, Phase::Remove];

/// Seconds by `serial`, `ladder-path` and `optimistic`, of a pattern, for each of `OPERATIONS`.
pub(super) fn published(pattern: Pattern) -> Option<[[f64; 3]; 4]> {
    match pattern {
        Pattern::Interleaved => Some([
            [16.006, 19.485, 12.034],
            [14.989, 15.538, 7.417],
            [17.515, 16.982, 4.135],
            [14.213, 16.506, 6.529],
        ]),
        Pattern::Sequential => Some([
            [15.768, 14.792, 3.446],
            [15.110, 14.581, 5.359],
            [18.138, 15.027, 4.126],
            [14.607, 16.250, 6.488],
        ]),
        Pattern::Random => None,
    }
}

/// The part of the serial tree's time that is saved.
pub(super) fn gain(serial: f64, other: f64) -> f64 {
    (serial - other) / serial
}

/// Writes the paper's four tables, ours on the left.
pub(super) fn write_paper(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    for (title, column, system) in
        [("concurrent", 1, "ladder-path"), ("optimistic", 2, "optimistic")]
    {
        for pattern in [Pattern::Interleaved, Pattern::Sequential] {
            let Some(published) = published(pattern) else { continue };
            let seconds = |system, phase| figures.seconds(system, pattern, THREADS, phase);
            if seconds(system, Phase::Insert).is_none() {
                continue;
            }
            let pattern = pattern.name();
            let items = figures.items();
            writeln!(out, "\n{pattern}, {items} items, {THREADS} threads [s; paper: 16777216]")?;
            writeln!(
                out,
                "  {:<10} {:>9} {title:>11} {:>6}   paper: serial {title:>11}   gain",
                "operation", "serial", "gain"
            )?;
            for (phase, published) in OPERATIONS.into_iter().zip(published) {
                let (Some(serial), Some(other)) =
                    (seconds("serial", phase), seconds(system, phase))
                else {
                    continue;
                };
                let gains = [gain(serial, other), gain(published[0], published[column])];
                let [ours, theirs] = gains.map(|gain| format!("{:.0}%", gain * 100.0));
                writeln!(
                    out,
                    "  {:<10} {serial:>9.3} {other:>11.3} {ours:>6}          {:>7.3} {:>11.3} {theirs:>6}",
                    phase.name(),
                    published[0],
                    published[column],
                )?;
            }
        }
    }
    Ok(())
}

/// Writes the rates of all systems, a table for each pattern and number of threads.
pub(super) fn write_rates(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    for (pattern, threads) in figures.settings() {
        let plural = if threads == 1 { "" } else { "s" };
        writeln!(
            out,
            "\n{}, {threads} thread{plural} [M/s on the clock (by processor time)]",
            pattern.name()
        )?;
        write!(out, "  {:<14}", "system")?;
        for phase in Phase::ALL {
            write!(out, " {:>15}", phase.name())?;
        }
        writeln!(out)?;
        for system in figures.systems() {
            let cell = |phase| {
                let rate = figures.rate(system, pattern, threads, phase)?;
                let cpu = figures.rate_cpu(system, pattern, threads, phase)?;
                Some(format!("{rate:.1} ({cpu:.1})"))
            };
            let cells = Phase::ALL.map(cell);
            if cells.iter().all(Option::is_none) {
                continue;
            }
            write!(out, "  {system:<14}")?;
            for cell in cells {
                write!(out, " {:>15}", cell.unwrap_or_else(|| "-".to_owned()))?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::of;
    use super::*;

    #[test]
    fn the_papers_gains_come_out_of_its_seconds() {
        let percents = |pattern, column: usize| {
            let table = published(pattern).unwrap();
            table.map(|row| (gain(row[0], row[column]) * 100.0).round())
        };
        assert_eq!(percents(Pattern::Interleaved, 1), [-22.0, -4.0, 3.0, -16.0]);
        assert_eq!(percents(Pattern::Sequential, 1), [6.0, 4.0, 17.0, -11.0]);
        assert_eq!(percents(Pattern::Interleaved, 2), [25.0, 51.0, 76.0, 54.0]);
        assert_eq!(percents(Pattern::Sequential, 2), [78.0, 65.0, 77.0, 56.0]);
    }

    #[test]
    fn tables_show_ours_beside_the_paper_and_leave_out_what_was_not_measured() {
        let row = |system, wall| (system, Pattern::Sequential, 2, Phase::Insert, wall);
        let figures = of(&[row("serial", 0.4), row("optimistic", 0.1), row("congee", 0.2)]);
        let mut text = Vec::new();
        write_paper(&figures, &mut text).unwrap();
        write_rates(&figures, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let insert = text.lines().find(|line| line.trim_start().starts_with("insert")).unwrap();
        let words: Vec<&str> = insert.split_whitespace().collect();
        assert_eq!(words, ["insert", "0.400", "0.100", "75%", "15.768", "3.446", "78%"]);
        assert!(!text.contains("interleaved"), "{text}");
        assert!(text.contains("congee") && text.contains("5.0 (5.0)"), "{text}");
    }
}
