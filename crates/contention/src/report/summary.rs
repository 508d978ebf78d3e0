//! The results of a profile, in ten plain sentences.
//!
//! # Boundary
//! Sentences without layout; the text and the page show the same ones.
//!
//! # Why
//! A first user of the tool wants to know the program's bottleneck, not the definition of a transfer.
//! Each sentence states figures that the tables below repeat. Weakness: one line, one lock and one field are
//! named even where ten are equally bad.

use super::Options;
use super::format::{clean, count, large, list, plural, seeds, share, share_pm, time};
use crate::analysis::{
    self, LineTable, LockRow, RunsSummary, Verdict, groups, histogram, lock_groups, runs,
};
use crate::ledger::{Basis, Ledger};
use std::collections::BTreeMap;
use uvfs_coherence::profile::Mode;

/// Longest name in a sentence.
const NAME: usize = 60;

/// The share of all cores' time from which a lock is the first thing that a report says.
const MOST: f64 = 0.5;

fn named(name: &str) -> String {
    format!("`{}`", clean(name, NAME))
}

/// The sentences, each a line.
pub fn summary(ledger: &Ledger<'_>, options: &Options) -> Vec<String> {
    let (runs, groups, locks) = (runs(ledger), groups(ledger), lock_groups(ledger));
    let mut lines = vec![head(&runs)];
    lines.extend(failures(&runs));
    lines.extend(stalls(&runs));
    if groups.is_empty() {
        lines.push(
            "No cache line went from one core to another: nothing is shared and written.".into(),
        );
    } else {
        lines.push(misses(ledger, &runs));
        lines.push(top_line(&groups[0], &runs));
        lines.extend(top_field(&groups[0]));
        lines.push(verdict(&groups[0]));
        lines.push(rest(ledger, options, &runs));
    }
    if let Some(lock) = top_lock(&locks, &runs) {
        // Where cores wait for one lock for most of their time, the rest matters little.
        let first = locks.iter().find(|lock| lock.kind.is_held());
        let most = first.is_some_and(|lock| lock.wait_share.mean >= MOST);
        lines.insert(if most { 0 } else { lines.len() }, lock);
    }
    lines.push(origin(&runs));
    lines.extend(untyped(&runs));
    lines.extend(options.notes.iter().map(|note| clean(note, 400)));
    lines
}

/// A command with its program's name alone: the path is long, and its end tells programs apart.
fn shown(command: &[String]) -> String {
    let mut words = command.to_vec();
    if let Some(program) = words.first_mut()
        && program.starts_with('/')
        && let Some((_, name)) = program.rsplit_once('/')
        && !name.is_empty()
    {
        *program = name.to_owned();
    }
    words.join(" ")
}

fn head(runs: &RunsSummary) -> String {
    let command = clean(&shown(&runs.command), NAME);
    let command = if command.is_empty() { "The program".to_owned() } else { named(&command) };
    let what_if = match runs.what_if.len() {
        0 => String::new(),
        _ => {
            let changes: Vec<_> = runs.what_if.iter().map(|one| named(one)).collect();
            format!(", what if {}", list(&changes))
        }
    };
    let machine =
        format!("{}, {}", plural(runs.cores as u64, "core"), plural(runs.nodes as u64, "node"));
    let cost = match runs.mode {
        Mode::Simulated => {
            let spread = runs
                .cycles
                .relative()
                .map_or_else(String::new, |part| format!(" (± {})", share(part)));
            let at = time(runs.cycles.mean, runs.megahertz);
            format!("{} cycles{spread}, {at} at {:.0} MHz", large(runs.cycles.mean), runs.megahertz)
        }
        Mode::Recorded => format!("{} accesses recorded", large(runs.accesses.mean)),
        Mode::Imported => "hardware samples".to_owned(),
    };
    let over = match runs.seeds.len() {
        0 => "no run".to_owned(),
        1 if runs.mode == Mode::Simulated => {
            "one seed, so without intervals (use --seeds 8)".to_owned()
        }
        1 => "one run, so without intervals".to_owned(),
        many => format!("mean of {many} seeds, ± is the 95 % interval"),
    };
    format!("{command} on {machine}{what_if}: {cost}; {over}.")
}

fn failures(runs: &RunsSummary) -> Option<String> {
    let (seed, status) = runs.failed.first()?;
    if runs.mode == Mode::Imported && status.is_none() {
        // Samples do not say how the program ended.
        return None;
    }
    let status =
        status.map_or_else(|| "without a status".to_owned(), |one| format!("with status {one}"));
    let more = match runs.failed.len() {
        1 => String::new(),
        many => format!(" and {} more did not end well either", many - 1),
    };
    Some(format!(
        "The run with seed {seed} ended {status}{more}: its figures may be those of a failure."
    ))
}

fn stalls(runs: &RunsSummary) -> Option<String> {
    (runs.mode == Mode::Simulated && runs.threads.mean > 0.0).then(|| {
        format!(
            "Its threads stand still for cache misses {} of their time and sleep {}.",
            share_pm(&runs.stalled_share),
            share_pm(&runs.blocked_share)
        )
    })
}

fn weight(runs: &RunsSummary) -> &'static str {
    match runs.basis {
        Basis::Latency => "latency",
        Basis::Count => "misses",
    }
}

fn misses(ledger: &Ledger<'_>, runs: &RunsSummary) -> String {
    let histogram = histogram(ledger);
    let remote = if runs.nodes > 1 {
        format!("; {} of the transfers cross nodes", share_pm(&runs.remote_share))
    } else {
        String::new()
    };
    let latency = match runs.basis {
        Basis::Latency => {
            format!(" and take {} of the latency", share(histogram.local_latency.mean))
        }
        Basis::Count => String::new(),
    };
    format!(
        "Transfers between caches are {} of the {} of all misses{remote}; {} of the misses are \
         local{latency}.",
        share(runs.transfer_share.mean),
        weight(runs),
        share(histogram.local_misses.mean),
    )
}

/// `Dentry` with its line, and how many of it there are.
pub(super) fn title(table: &LineTable) -> String {
    let many = if table.lines > 1 { format!(" x {}", table.lines) } else { String::new() };
    format!("{}{many}, line {}", clean(&table.structure, NAME), table.line_index)
}

fn top_line(table: &LineTable, runs: &RunsSummary) -> String {
    let allocated = match table.allocated_in.as_str() {
        "" => String::new(),
        function => format!(" (allocated in {})", named(function)),
    };
    let cost = match runs.basis {
        Basis::Latency => format!(
            " of {} cycles, {} of that waiting for the line",
            count(table.mean_latency.mean),
            share(table.queue_share.mean)
        ),
        Basis::Count => String::new(),
    };
    let remote = if runs.nodes > 1 {
        format!(", {} remote", share(table.remote_share.mean))
    } else {
        String::new()
    };
    let line = if table.lines > 1 { "lines are" } else { "line is" };
    format!(
        "The dearest {line} {}{allocated}: {} of all {}, {} transfers{cost}{remote}.",
        title(table),
        share_pm(&table.share),
        weight(runs),
        count(table.samples.mean),
    )
}

fn top_field(table: &LineTable) -> Option<String> {
    let row = table.hottest()?;
    let writer = row.invalidated_by.first().map_or_else(String::new, |writer| {
        let field = match writer.field.as_str() {
            "" => String::new(),
            field => format!(" on {}", named(field)),
        };
        format!("; it is mostly taken away by {}{field}", named(&writer.function))
    });
    Some(format!(
        "Its dearest access is {} of {} in {}, {} of the line's cost{writer}.",
        clean(&row.instruction, NAME),
        named(&row.data),
        named(&row.function),
        share(row.share_of_line),
    ))
}

fn verdict(table: &LineTable) -> String {
    // Read, not written, and paying for its neighbours.
    let victims = table.rows.iter().filter(|row| {
        row.written == Some(false) && row.false_share.mean > 0.5 && row.share_of_line > 0.01
    });
    let mut victims: Vec<_> = victims.map(|row| (row.share_of_line, row.data.as_str())).collect();
    victims.sort_by(|one, other| other.0.total_cmp(&one.0));
    let mut names: Vec<String> = Vec::new();
    for (_, name) in victims {
        let name = named(name);
        if !names.contains(&name) && names.len() < 3 {
            names.push(name);
        }
    }
    let victims = if names.is_empty() {
        String::new()
    } else {
        let verb = if names.len() == 1 { "is" } else { "are" };
        format!(
            "; no core writes {}, which {verb} missed only because of {} neighbours",
            list(&names),
            if names.len() == 1 { "its" } else { "their" }
        )
    };
    let part = share(table.false_share.mean);
    match table.verdict {
        Verdict::True => {
            format!("It is true sharing: cores want the same bytes ({part} false){victims}.")
        }
        Verdict::False => format!(
            "It is false sharing: {part} of its transfers want bytes that no other core wrote{victims}."
        ),
        Verdict::Mixed => format!(
            "Its sharing is mixed: {part} of its transfers want bytes that no other core wrote{victims}."
        ),
    }
}

fn rest(ledger: &Ledger<'_>, options: &Options, runs: &RunsSummary) -> String {
    let structures = analysis::structures_by(ledger, &options.grouping);
    let names: Vec<_> = structures
        .by_weight()
        .into_iter()
        .take(4)
        .map(|one| {
            let many = if one.objects > 1 { format!(" x {}", one.objects) } else { String::new() };
            format!("{}{many} {}", named(&one.name), share(one.share.mean))
        })
        .collect();
    let count = match structures.lines {
        1 => "One line has".to_owned(),
        many if many == structures.lines_with_transfers => {
            format!("All {many} contended lines have")
        }
        many => format!("The {many} dearest lines have"),
    };
    format!("{count} {} of all {}: {}.", share(structures.share.mean), weight(runs), list(&names))
}

fn top_lock(locks: &[LockRow], runs: &RunsSummary) -> Option<String> {
    let held: Vec<&LockRow> = locks.iter().filter(|lock| lock.kind.is_held()).collect();
    let lock = *held.first()?;
    if lock.wait_total.mean == 0.0 {
        return Some(format!(
            "No lock was waited for; {} was taken most, {} times.",
            named(
                &held
                    .iter()
                    .max_by(|one, other| {
                        one.acquisitions.mean.total_cmp(&other.acquisitions.mean)
                    })?
                    .name
            ),
            large(held.iter().map(|one| one.acquisitions.mean).fold(0.0, f64::max))
        ));
    }
    let many = if lock.objects > 1 { format!(" x {}", lock.objects) } else { String::new() };
    let waiter = lock.waiters.first().map_or_else(String::new, |waiter| {
        format!("; it is mostly waited for {}", clean(&waiter.function, NAME))
    });
    Some(format!(
        "The lock with the longest waits is {}{many}: {} of {} acquisitions wait, {} each, {} of all \
         cores' time{waiter}.",
        named(&lock.name),
        share(lock.contended_share.mean),
        large(lock.acquisitions.mean),
        time(lock.wait_mean.mean, runs.megahertz),
        share_pm(&lock.wait_share),
    ))
}

fn origin(runs: &RunsSummary) -> String {
    let seeds = match runs.seeds.as_slice() {
        [] => String::new(),
        [seed] => format!(", seed {seed}"),
        many => format!(", seeds {}", seeds(many)),
    };
    let machine = format!("{} ({})", named(&runs.machine), runs.machine_hash);
    match runs.mode {
        Mode::Simulated => {
            let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
            for name in &runs.assumed {
                *groups.entry(name.split('.').next().unwrap_or(name)).or_default() += 1;
            }
            let groups: Vec<_> = groups
                .into_iter()
                .map(
                    |(name, count)| {
                        if count == 1 { name.to_owned() } else { format!("{name} ({count})") }
                    },
                )
                .collect();
            let assumed = match groups.len() {
                0 => "all its parameters are measured".to_owned(),
                _ => format!("assumed, not measured, are its {}", list(&groups)),
            };
            let unmodelled = match runs.computing {
                true => "vector units, weak memory order.",
                false => {
                    "computing between accesses but as a flat cost (see --compute), prefetching, store buffers, \
                     weak memory order."
                }
            };
            format!(
                "All figures are simulated on machine {machine}{seeds}; {assumed}. Not modelled: the \
                 kernel, the allocator's own memory, {unmodelled}"
            )
        }
        Mode::Recorded => format!(
            "Recorded from real threads in the order this machine ran them{seeds}; states are those of \
             machine {machine}, and there is no virtual time."
        ),
        Mode::Imported => {
            "Imported from another tool's hardware samples; what it did not sample is \
                           missing."
                .to_owned()
        }
    }
}

fn untyped(runs: &RunsSummary) -> Option<String> {
    (!runs.untyped.is_empty()).then(|| {
        let names: Vec<_> = runs.untyped.iter().take(3).map(|name| named(name)).collect();
        let more = match runs.untyped.len().saturating_sub(3) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "{} of all {} is in memory without a type ({}{more}): its fields are shown as offsets.",
            share(runs.untyped_share.mean),
            weight(runs),
            names.join(", ")
        )
    })
}
