//! Locks in the layout of lockmeter, in virtual time.
//!
//! # Boundary
//! Columns, their names and their order are those of `uvfs_concurrent::lock::meter`'s table, which defines
//! them. BOUNCE, the part of the acquisitions that took the lock's line from another core,
//! is added before the name.
//!
//! # Why
//! A simulated and a measured table can be laid side by side. Only the first heading differs: whether a word
//! is spun on or slept on is not known, so that mutexes, spin locks and such words are one list. Weakness: RJECT is empty, since attempts
//! that gave up cannot be told from looks at the lock.

use super::Options;
use super::format::{clean, plural};
use super::text::heading;
use crate::analysis::{LockRow, lock_groups};
use crate::ledger::Ledger;
use std::fmt::Write as _;
use uvfs_coherence::profile::LockKind;

/// Headings, in the columns' order, and the kinds below each.
pub(super) const SECTIONS: [(&str, &[LockKind]); 7] = [
    ("EXCLUSIVE LOCKS", &[LockKind::Mutex, LockKind::Spin, LockKind::Word]),
    ("RWLOCK READS", &[LockKind::Shared]),
    ("RWLOCK WRITES", &[LockKind::Exclusive]),
    ("AWAITED WORDS", &[LockKind::Awaited]),
    ("BARRIERS", &[LockKind::Barrier]),
    ("CONDITIONS", &[LockKind::Condition]),
    ("SEMAPHORES", &[LockKind::Semaphore]),
];

pub(super) fn locks_text(ledger: &Ledger<'_>, options: &Options) -> String {
    let rows = lock_groups(ledger);
    if rows.is_empty() {
        return heading("Locks", options) + "no lock was seen\n";
    }
    let machine = &ledger.profile.meta.machine;
    let mut text = heading(
        &format!(
            "Locks in virtual time, {}, every hold timed",
            plural(machine.cores as u64, "core")
        ),
        options,
    );
    for (title, kinds) in SECTIONS {
        let own: Vec<_> = rows.iter().filter(|row| kinds.contains(&row.kind)).collect();
        if own.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{title:<17}HOLD               WAIT");
        text.push_str(
            "   UTIL    CON     MEAN(   MAX  )     MEAN(   MAX  )(% CPU)       TOTAL NOWAIT   SPIN  \
             RJECT BOUNCE  NAME\n",
        );
        for row in own.iter().take(options.top.max(1) * 2) {
            text.push_str(&lock(row, machine.megahertz.value, options));
        }
        let rest = own.len().saturating_sub(options.top.max(1) * 2);
        if rest > 0 {
            let _ = writeln!(text, "  {rest} more; --top {} shows all", own.len().div_ceil(2));
        }
    }
    text
}

fn lock(row: &LockRow, megahertz: f64, options: &Options) -> String {
    let us = |cycles: f64| time(cycles / megahertz.max(f64::MIN_POSITIVE));
    let many = if row.objects > 1 { format!(" x {}", row.objects) } else { String::new() };
    // The columns before the name take 94 characters.
    let room = options.width.map_or(120, |width| width.saturating_sub(96).max(24));
    let contended = row.contended_share.mean;
    let lost = match contended {
        0.0 => " ".repeat(8),
        _ => format!("({:>6})", percent(row.wait_share.mean)),
    };
    let mut text = format!(
        "{:>7} {:>6} {:>8}({:>8}) {:>8}({:>8}){lost} {:>11.0} {:>6} {:>6} {:>6} {:>6}  {}{many}\n",
        percent(row.utilisation.mean),
        percent(contended),
        us(row.hold_mean.mean),
        us(row.hold_max as f64),
        us(row.wait_mean.mean),
        us(row.wait_max as f64),
        row.acquisitions.mean,
        percent(1.0 - contended),
        percent(contended),
        "-",
        percent(row.bounce_share.mean),
        clean(&row.name, room),
    );
    for waiter in row.waiters.iter().take(4) {
        let function = clean(&waiter.function, room);
        let _ = writeln!(text, "{:>98}  {function}", percent(waiter.share));
    }
    text
}

/// Microseconds, with the digits that mean something.
pub(super) fn time(us: f64) -> String {
    match us {
        0.0 => "0us".into(),
        us if us >= 10.0 => format!("{us:.0}us"),
        us if us >= 1.0 => format!("{us:.1}us"),
        us => format!("{us:.2}us"),
    }
}

pub(super) fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0%".into(),
        percent if percent >= 1.0 => format!("{percent:.1}%"),
        percent => format!("{percent:.2}%"),
    }
}
