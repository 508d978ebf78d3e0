//! Requests to the indexes in `bench-compare radix`: a round of every phase that they have.
//!
//! # Boundary
//! Writes requests and reads answers; the lines are described in `bench-compare/src/radix/mod.rs`.

use super::systems::{Phase, Round, Span};
use uvfs_bench_kit::rivals::{Rivals, odd};
use uvfs_bench_workload::keys::Pattern;

/// Has `name` run a round.
///
/// # Errors
/// Its answer.
pub(super) fn round(
    rivals: &mut Rivals,
    name: &str,
    pattern: Pattern,
    threads: usize,
    items: u64,
) -> Result<Round, String> {
    let answer = rivals.ask(&format!("round {name} {} {threads} {items}", pattern.name()))?;
    let spans = parse(&answer).ok_or_else(|| odd(&answer))?;
    Ok(Round { spans, bytes_per_item: None })
}

/// The phases of an answer; none if it is no answer.
fn parse(answer: &str) -> Option<Vec<(Phase, Span)>> {
    let read = |figure: &str| {
        let (name, times) = figure.split_once('=')?;
        let phase = Phase::ALL.into_iter().find(|phase| phase.name() == name)?;
        let (wall, cpu) = times.split_once(':')?;
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|time| *time > 0.0);
        Some((phase, Span { wall: seconds(wall)?, cpu: seconds(cpu)? }))
    };
    answer.strip_prefix("round ")?.split(' ').map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_and_nonsense_is_not() {
        let span = |wall, cpu| Span { wall, cpu };
        let phases = parse("round insert=0.5:1.0 gang=0.25:0.5").unwrap();
        assert_eq!(phases, [(Phase::Insert, span(0.5, 1.0)), (Phase::Gang, span(0.25, 0.5))]);
        for odd in
            ["ran", "round insert=0.5", "round fly=1:1", "round insert=0:1", "round insert=x:1"]
        {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
