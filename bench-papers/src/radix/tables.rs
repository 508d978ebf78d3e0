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

/// Seconds by `serial` and `optimistic`, of a pattern, for each of `OPERATIONS`.
pub(super) fn published(pattern: Pattern) -> Option<[[f64; 2]; 4]> {
    match pattern {
        Pattern::Interleaved => {
            Some([[16.006, 12.034], [14.989, 7.417], [17.515, 4.135], [14.213, 6.529]])
        }
        Pattern::Sequential => {
            Some([[15.768, 3.446], [15.110, 5.359], [18.138, 4.126], [14.607, 6.488]])
        }
        Pattern::Random => None,
    }
}

/// The part of the serial tree's time that is saved.
pub(super) fn gain(serial: f64, other: f64) -> f64 {
    (serial - other) / serial
}

/// Writes the paper's two tables of optimistic locks, ours on the left.
pub(super) fn write_paper(figures: &Figures, out: &mut impl Write) -> io::Result<()> {
    for pattern in [Pattern::Interleaved, Pattern::Sequential] {
        let Some(published) = published(pattern) else { continue };
        let seconds = |system, phase| figures.seconds(system, pattern, THREADS, phase);
        if seconds("optimistic", Phase::Insert).is_none() {
            continue;
        }
        let pattern = pattern.name();
        let items = figures.items();
        writeln!(out, "\n{pattern}, {items} items, {THREADS} threads [s; paper: 16777216]")?;
        writeln!(
            out,
            "  {:<10} {:>9} {:>11} {:>6}   paper: serial {:>11}   gain",
            "operation", "serial", "optimistic", "gain", "optimistic"
        )?;
        for (phase, published) in OPERATIONS.into_iter().zip(published) {
            let (Some(serial), Some(ours)) =
                (seconds("serial", phase), seconds("optimistic", phase))
            else {
                continue;
            };
            let gains = [gain(serial, ours), gain(published[0], published[1])];
            let [here, there] = gains.map(|gain| format!("{:.0}%", gain * 100.0));
            writeln!(
                out,
                "  {:<10} {serial:>9.3} {ours:>11.3} {here:>6}          {:>7.3} {:>11.3} {there:>6}",
                phase.name(),
                published[0],
                published[1],
            )?;
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
        let percents =
            |pattern| published(pattern).unwrap().map(|row| (gain(row[0], row[1]) * 100.0).round());
        assert_eq!(percents(Pattern::Interleaved), [25.0, 51.0, 76.0, 54.0]);
        assert_eq!(percents(Pattern::Sequential), [78.0, 65.0, 77.0, 56.0]);
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
