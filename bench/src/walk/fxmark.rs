//! FxMark's metadata cases at library level: the same sharing, `stat` for `open`.
//!
//! # Boundary
//! Names and sharing levels are those of Min et al., "Understanding Manycore Scalability of File
//! Systems" (USENIX ATC 2016). The middle letters: R reads or W writes; P paths, D directories,
//! C creates, U unlinks, R renames; the last: L each thread its own directory (low sharing), M all in
//! one (medium), H all the same file (high).
//!
//! # Why
//! The original opens files; here a path is only walked, since opening costs more than walking and
//! would hide it. uvfs answers in process over its memory store, the kernel through a system call on
//! a tmpfs: compare the change from one thread to two, and the ratio with that in mind.

use super::Run;
use super::files::{self, Files};
use crate::report::Report;
use crate::report::Unit;
use std::ffi::{CStr, CString};
use std::io;
use uvfs_bench_workload::timed::{MISSING, team};
use uvfs_bench_workload::tree::mixed;

/// The operation of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Walk,
    List,
    Create,
    Unlink,
    Rename,
}

/// The sharing of files and directories among threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shared {
    Nothing,
    Directory,
    File,
}

/// A case of FxMark.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case(&'static str, Does, Shared);

impl Case {
    /// `MRPL`.
    pub(super) fn name(&self) -> &'static str {
        self.0
    }
}

pub(super) const CASES: [Case; 11] = [
    Case("MRPL", Does::Walk, Shared::Nothing),
    Case("MRPM", Does::Walk, Shared::Directory),
    Case("MRPH", Does::Walk, Shared::File),
    Case("MRDL", Does::List, Shared::Nothing),
    Case("MRDM", Does::List, Shared::Directory),
    Case("MWCL", Does::Create, Shared::Nothing),
    Case("MWCM", Does::Create, Shared::Directory),
    Case("MWUL", Does::Unlink, Shared::Nothing),
    Case("MWUM", Does::Unlink, Shared::Directory),
    Case("MWRL", Does::Rename, Shared::Nothing),
    Case("MWRM", Does::Rename, Shared::Directory),
];

/// Files of a directory that is read, as FxMark has them at its lowest level.
const FILES: usize = 64;
/// Above the files: FxMark walks five directories deep.
const DEEP: &str = "1/2/3/4/5";

/// The work of one thread: paths, and for a rename the target.
type Steps = Vec<(CString, CString)>;

/// Measures one case.
pub(super) fn measure(run: &Run, case: Case, figures: &mut Report) -> io::Result<()> {
    let name = format!("fx-{}", case.name());
    run.progress(&name);
    for &threads in &run.threads {
        let mut systems = Vec::new();
        for system in files::SYSTEMS {
            match files::fresh(system, &format!("{name}-{threads}")) {
                Ok(files) => systems.push((system, files)),
                Err(error) => run.leave_out(system, &name, &error.to_string()),
            }
        }
        for round in 0..=run.rounds {
            systems.retain(|(system, files)| {
                match one_round(&**files, case, threads, round, run.sizes.changes) {
                    // The first round only warms up.
                    Ok(rate) => {
                        if round > 0 {
                            figures.sample(&name, system, threads, Unit::ThousandsPerSecond, rate);
                        }
                        true
                    }
                    Err(why) => {
                        run.failed(system, &name, &why);
                        false
                    }
                }
            });
            systems.reverse();
        }
    }
    Ok(())
}

/// One round in separate directories; thousands of operations a second, all threads together.
fn one_round(
    files: &dyn Files,
    Case(_, does, shared): Case,
    threads: usize,
    round: usize,
    changes: usize,
) -> Result<f64, String> {
    let steps = prepare(files, does, shared, threads, round, changes)
        .map_err(|error| format!("preparing: {error}"))?;
    let each = steps.first().map_or(0, Vec::len);
    let warm = |thread: usize| {
        if does == Does::Walk {
            let found = steps[thread].iter().filter(|step| files.walk(&step.0) == 0).count();
            std::hint::black_box(found);
        }
    };
    let wall = team(threads, warm, |thread| {
        let done = steps[thread].iter().try_for_each(|step| act(files, does, step));
        move || done.map_err(|error| error.to_string())
    })?;
    let operations = (each * threads) as f64;
    Ok(operations / wall.as_secs_f64() / 1000.0)
}

fn act(files: &dyn Files, does: Does, (path, to): &(CString, CString)) -> io::Result<()> {
    match does {
        Does::Walk if files.walk(path) == MISSING => Err(io::ErrorKind::NotFound.into()),
        Does::Walk => Ok(()),
        Does::List => match files.list(path)? {
            FILES => Ok(()),
            other => Err(io::Error::other(format!("{other} names instead of {FILES}"))),
        },
        Does::Create => files.make_file(path),
        Does::Unlink => files.remove_file(path),
        Does::Rename => files.rename(path, to),
    }
}

/// Prepares the files of this round, and returns each thread's work.
fn prepare(
    files: &dyn Files,
    does: Does,
    shared: Shared,
    threads: usize,
    round: usize,
    changes: usize,
) -> io::Result<Vec<Steps>> {
    let top = format!("r{round}");
    directories(files, &top)?;
    let shared_in = format!("{top}/shared");
    directories(files, &format!("{shared_in}/{DEEP}"))?;
    let own = |thread: usize| format!("{top}/own-{thread}");
    for thread in 0..threads {
        directories(files, &format!("{}/{DEEP}", own(thread)))?;
    }
    let of = |thread: usize| match shared {
        Shared::Nothing => own(thread),
        _ => shared_in.clone(),
    };
    match does {
        Does::Walk | Does::List => {
            for directory in (0..threads).map(own).chain([shared_in.clone()]) {
                for nth in 0..FILES {
                    files.make_file(&text(&format!("{directory}/{DEEP}/file-{nth}")))?;
                }
            }
            let count = if does == Does::List { changes.div_ceil(20) } else { changes * 4 };
            Ok((0..threads)
                .map(|thread| readings(does, shared, &of(thread), thread, count))
                .collect())
        }
        Does::Create | Does::Unlink | Does::Rename => {
            let mut all = Vec::new();
            for thread in 0..threads {
                let mut steps = Steps::new();
                // Renames start in the thread's own directory and end in the shared one, if any.
                let from = if does == Does::Rename { own(thread) } else { of(thread) };
                for nth in 0..changes {
                    let path = text(&format!("{from}/file-{thread}-{nth}"));
                    if does != Does::Create {
                        files.make_file(&path)?;
                    }
                    steps.push((path, text(&format!("{}/moved-{thread}-{nth}", of(thread)))));
                }
                all.push(steps);
            }
            Ok(all)
        }
    }
}

/// The paths that one thread reads.
fn readings(does: Does, shared: Shared, top: &str, thread: usize, count: usize) -> Steps {
    let seed = thread as u64 * 0x1000_0000;
    let path = |nth: usize| match (does, shared) {
        (Does::List, _) => format!("{top}/{DEEP}"),
        (_, Shared::Directory) => {
            format!("{top}/{DEEP}/file-{}", mixed(seed + nth as u64) % FILES as u64)
        }
        _ => format!("{top}/{DEEP}/file-0"),
    };
    (0..count).map(|nth| (text(&path(nth)), CString::default())).collect()
}

/// Makes every directory of `path` that is not there.
fn directories(files: &dyn Files, path: &str) -> io::Result<()> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for end in ends {
        let directory = text(&path[..end]);
        if files.walk(&directory) == MISSING {
            files.make_directory(&directory)?;
        }
    }
    Ok(())
}

/// Paths are made here and hold no NUL.
pub(super) fn text(path: &str) -> CString {
    let end = path.bytes().position(|byte| byte == 0).unwrap_or(path.len());
    CString::new(&path.as_bytes()[..end]).unwrap_or_else(|_| CStr::to_owned(c""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_runs_with_its_sharing() {
        for case in CASES {
            let files = files::fresh(super::super::UVFS, case.name()).unwrap();
            for round in 0..2 {
                let rate = one_round(&*files, case, 2, round, 40);
                assert!(rate.as_ref().is_ok_and(|&rate| rate > 0.0), "{case:?}: {rate:?}");
            }
        }
    }

    #[test]
    fn sharing_decides_where_threads_meet() {
        let paths_of = |shared| {
            let files = files::fresh(super::super::UVFS, "sharing").unwrap();
            let steps = prepare(&*files, Does::Walk, shared, 2, 0, 50).unwrap();
            steps.into_iter().map(|steps| steps.into_iter().map(|step| step.0).collect()).collect()
        };
        let private: Vec<std::collections::BTreeSet<CString>> = paths_of(Shared::Nothing);
        assert!(private[0].is_disjoint(&private[1]) && private[0].len() == 1);
        let shared: Vec<std::collections::BTreeSet<CString>> = paths_of(Shared::Directory);
        assert!(!shared[0].is_disjoint(&shared[1]) && shared[0].len() > FILES / 2);
        let hot: Vec<std::collections::BTreeSet<CString>> = paths_of(Shared::File);
        assert_eq!(hot[0], hot[1]);
    }
}
