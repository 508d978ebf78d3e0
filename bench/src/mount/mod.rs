//! `uvfs-bench mount`: the mount tool through the kernel, against the host and other FUSE servers.
//!
//! # Boundary
//! The cases, their sizes and their repetitions; each case is a file of its own. Asserts no time.
//!
//! # Why
//! A case that fails for one system is reported and the others continue: a rival's crash should not
//! stop the whole run. The exit status shows it.

mod getattr;
mod list;
mod lookup;
mod open;
mod read;
mod slow_store;
mod tree;
mod write;

use crate::places::Places;
use crate::report::{Column, Layout, Report};
use crate::server::{Absent, Running};
use crate::system::System;
use crate::{MountArguments, cleanup, context, machine};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How large the inputs are.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    getattrs: u64,
    names: usize,
    listed: usize,
    file_bytes: u64,
    random_reads: u64,
    tree_files: usize,
    stuck_ms: u64,
}

const FULL: Sizes = Sizes {
    getattrs: 20_000,
    names: 10_000,
    listed: 100_000,
    file_bytes: 256 << 20,
    random_reads: 100_000,
    tree_files: 50_000,
    stuck_ms: 1500,
};
const QUICK: Sizes = Sizes {
    getattrs: 5_000,
    names: 2_000,
    listed: 5_000,
    file_bytes: 32 << 20,
    random_reads: 10_000,
    tree_files: 500,
    stuck_ms: 400,
};
const TINY: Sizes = Sizes {
    getattrs: 200,
    names: 50,
    listed: 50,
    file_bytes: 2 << 20,
    random_reads: 100,
    tree_files: 100,
    stuck_ms: 100,
};

/// Nine groups, with their preparations, stay below a minute on a machine that is not too busy.
const QUICK_GROUP_LIMIT: Duration = Duration::from_secs(4);

/// A group of cases that share a preparation.
struct Group {
    /// The prefixes of a case's names.
    prefixes: &'static [&'static str],
    /// Systems that the tables divide by, first come first served.
    references: &'static [&'static str],
    measure: fn(&Bench, &mut Report) -> io::Result<()>,
}

const GROUPS: [Group; 9] = [
    Group {
        prefixes: &["getattr-cpu", "getattr-one-core-cpu", "getattr-total-cpu", "getattr-rate"],
        references: &["bare"],
        measure: getattr::measure,
    },
    Group { prefixes: &["lookup-fresh"], references: &["bare"], measure: lookup::measure },
    Group {
        prefixes: &["open-close", "open-same", "open-held"],
        references: &["host"],
        measure: open::measure,
    },
    Group { prefixes: &["read-1m"], references: &["host"], measure: read::sequential },
    Group { prefixes: &["read-4k-random"], references: &["host"], measure: read::random },
    Group { prefixes: &["write-1m"], references: &["host"], measure: write::measure },
    Group { prefixes: &["untar", "find"], references: &["host"], measure: tree::measure },
    Group { prefixes: &["ls"], references: &["host"], measure: list::measure },
    Group { prefixes: &["slow-store"], references: &[], measure: slow_store::measure },
];

/// One run of the bench.
struct Bench {
    places: Places,
    sizes: Sizes,
    runs: u32,
    /// After this, a group begins no further round.
    group_limit: Option<Duration>,
    /// Empty for all.
    systems: Vec<String>,
    /// The notes about systems that are left out.
    left_out: RefCell<BTreeSet<String>>,
    failures: RefCell<Vec<String>>,
}

/// Runs the measurements of `arguments`.
///
/// # Errors
/// Unknown names, no way to mount, and at the end: the systems that failed, by case.
pub(crate) fn run(arguments: &MountArguments) -> io::Result<()> {
    let groups = chosen_groups(&arguments.cases)?;
    check_systems(&arguments.systems)?;
    check_machine()?;
    cleanup::on_signals()?;
    let (sizes, runs) = match (arguments.tiny, arguments.quick) {
        (true, _) => (TINY, 1),
        (false, true) => (QUICK, 3),
        (false, false) => (FULL, 9),
    };
    let mut places = Places::find()?;
    places.readers = Running::readers(&places).unwrap_or(places.readers);
    let bench = Bench {
        places,
        sizes,
        runs: arguments.runs.unwrap_or(runs),
        group_limit: arguments.quick.then_some(QUICK_GROUP_LIMIT),
        systems: arguments.systems.clone(),
        left_out: RefCell::default(),
        failures: RefCell::default(),
    };
    let mut out = io::stdout().lock();
    if !arguments.json {
        println!("{}", machine::describe());
        println!("readers of uvfs, bare and fuser-bare: {}", bench.places.readers);
    }
    for group in groups {
        let mut report = Report::new("mount");
        (group.measure)(&bench, &mut report)?;
        match arguments.json {
            true => report.write_json(&mut out)?,
            false => report.write_tables(
                &Layout { columns: &[Column::Against(group.references)], ..Layout::default() },
                |_| true,
                &mut out,
            )?,
        }
    }
    let failures = bench.failures.into_inner();
    if failures.is_empty() {
        return Ok(());
    }
    Err(io::Error::other(format!("not everything was measured: {}", failures.join("; "))))
}

fn chosen_groups(cases: &[String]) -> io::Result<Vec<&'static Group>> {
    let is_of = |case: &str, group: &Group| {
        group.prefixes.iter().any(|prefix| case == *prefix || belongs(case, prefix))
    };
    if let Some(case) = cases.iter().find(|case| !GROUPS.iter().any(|group| is_of(case, group))) {
        let all: Vec<&str> = GROUPS.iter().flat_map(|group| group.prefixes).copied().collect();
        return Err(io::Error::other(format!("no case {case}; there are: {}", all.join(", "))));
    }
    let wanted = |group: &&Group| cases.is_empty() || cases.iter().any(|case| is_of(case, group));
    Ok(GROUPS.iter().filter(wanted).collect())
}

/// `untar-50k` belongs to `untar`.
fn belongs(case: &str, prefix: &str) -> bool {
    case.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
}

fn check_systems(names: &[String]) -> io::Result<()> {
    let known = System::ALL.map(System::name);
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            Err(io::Error::other(format!("no system {name}; there are: {}", known.join(", "))))
        }
    }
}

pub(crate) fn check_machine() -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(io::Error::other("mounting without helpers needs root; run it as root"));
    }
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .map_err(context("/dev/fuse"))?;
    Ok(())
}

impl Bench {
    /// Starts the selected and installed ones of `systems` over `backing`, and reports the others.
    fn start_all(&self, systems: &[System], backing: &Path, tag: &str) -> Vec<Running> {
        systems.iter().filter_map(|&system| self.start(system, backing, tag)).collect()
    }

    /// Starts `system` over `backing` if it is selected and installed; reports it if not.
    fn start(&self, system: System, backing: &Path, tag: &str) -> Option<Running> {
        let name = system.name();
        if !self.systems.is_empty() && !self.systems.iter().any(|wanted| wanted == name) {
            return None;
        }
        match Running::start(system, &self.places, backing, tag) {
            Ok(running) => Some(running),
            Err(Absent::NotHere(why)) => {
                self.leave_out(system, &why);
                None
            }
            Err(Absent::Failed(error)) => {
                self.failed(system, tag, &error);
                None
            }
        }
    }

    /// Says, once, that this machine cannot measure `system`.
    fn leave_out(&self, system: System, why: &str) {
        let line = format!("{} is left out: {why}", system.name());
        if self.left_out.borrow_mut().insert(line.clone()) {
            eprintln!("uvfs-bench: {line}");
        }
    }

    /// Says that `system` dropped out of `case`.
    fn failed(&self, system: System, case: &str, error: &io::Error) {
        let line = format!("{} in {case}: {error}", system.name());
        eprintln!("uvfs-bench: {line}");
        let mut failures = self.failures.borrow_mut();
        if !failures.contains(&line) {
            failures.push(line);
        }
    }

    /// Takes `round` samples of each system in turn, `runs` times; the first round only warms up. A
    /// system that fails drops out.
    fn take_turns(
        &self,
        case: &str,
        running: &mut Vec<Running>,
        runs: u32,
        mut round: impl FnMut(&Running, Round) -> io::Result<()>,
    ) {
        for kind in self.rounds(runs) {
            running.retain(|one| match round(one, kind) {
                Ok(()) => true,
                Err(error) => {
                    self.failed(one.system(), case, &error);
                    false
                }
            });
        }
    }

    /// A round to warm up and `runs` that count; fewer when the group's time is up, at least one.
    fn rounds(&self, runs: u32) -> impl Iterator<Item = Round> + use<> {
        let deadline = self.group_limit.map(|limit| Instant::now() + limit);
        (0..=runs).map_while(move |at| match at {
            0 => Some(Round::WarmUp),
            1 => Some(Round::Counts),
            _ if deadline.is_some_and(|deadline| Instant::now() > deadline) => None,
            _ => Some(Round::Counts),
        })
    }

    /// A fresh folder of this run.
    fn folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.places.work.join(name);
        fs::create_dir_all(&folder).map_err(context(folder.display()))?;
        Ok(folder)
    }
}

/// Whether a round's figures are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    WarmUp,
    Counts,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(cases: &[&str]) -> Vec<&'static str> {
        let cases: Vec<String> = cases.iter().map(ToString::to_string).collect();
        chosen_groups(&cases).unwrap().iter().map(|group| group.prefixes[0]).collect()
    }

    #[test]
    fn cases_choose_their_groups() {
        assert_eq!(chosen(&[]).len(), GROUPS.len());
        assert_eq!(chosen(&["getattr-rate"]), ["getattr-cpu"]);
        assert_eq!(chosen(&["find-50k", "untar-50k"]), ["untar"]);
        assert_eq!(chosen(&["lookup-fresh-2"]), ["lookup-fresh"]);
        assert_eq!(chosen(&["read-1m"]), ["read-1m"]);
        assert_eq!(chosen(&["ls-100k-again"]), ["ls"]);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let refusal = chosen_groups(&["nonsense".to_owned()]).err().unwrap().to_string();
        assert!(refusal.starts_with("no case nonsense; there are: getattr-cpu"), "{refusal}");
        assert!(chosen_groups(&["readahead".to_owned()]).is_err());
        assert!(check_systems(&["uvfs".to_owned(), "bindfs".to_owned()]).is_ok());
        assert!(check_systems(&["nfs".to_owned()]).is_err());
    }
}
