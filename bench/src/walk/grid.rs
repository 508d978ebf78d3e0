//! The walks: every system over the same tree, hot and uniform, by one thread and by more.
//!
//! # Boundary
//! The systems of a tree, their turns, and those that are left out, with the reason.
//!
//! # Why
//! In each round every system walks once, and each round begins with another one. So disturbances
//! of the machine, and a predecessor's effect on its caches, fall on all alike. Weakness: memos of
//! whole paths are made beforehand, by walks of one path in a row. A program that walks many
//! thousand paths once each, again and again, gets hardly any (the share is printed), and walks
//! like `uvfs`.

use super::cases::Shape;
use super::contestants::{
    AMPLE_BYTES, Contestant, Course, Local, Remote, by_components, by_whole_paths, remember_whole,
    tmpfs_filled, uvfs_filled, walk_kernel, walk_uvfs,
};
use super::place::fits;
use super::rivals;
use super::{KERNEL, Run, UVFS, UVFS_WHOLE};
use crate::report::Report;
use crate::report::Unit;
use std::cell::RefCell;
use std::ffi::CStr;
use std::io;
use std::rc::Rc;
use std::time::Instant;
use uvfs_bench_workload::paths::{Pattern, Track};
use uvfs_bench_workload::tree::Tree;

/// Approximate bytes of a name with all its data; for deciding which trees fit.
const UVFS_BYTES: u64 = 400;
const UVFS_WHOLE_BYTES: u64 = 800;
const KERNEL_BYTES: u64 = 1100;
const RIVAL_BYTES: u64 = 250;

/// Measures the patterns of one tree.
pub(super) fn measure(
    run: &Run,
    shape: Shape,
    patterns: &[Pattern],
    figures: &mut Report,
) -> io::Result<()> {
    run.progress(&format!("{}: building", shape.name()));
    let course = Course::new(Tree::new(shape.depth, shape.names));
    let tracks = course.tracks();
    let mut contestants: Vec<Box<dyn Contestant + '_>> = Vec::new();
    let mut ours = Vec::new();
    let config = by_components(AMPLE_BYTES);
    if run.may_hold(UVFS, &shape.name(), fits(shape.names, UVFS_BYTES)) {
        let (vfs, top) = uvfs_filled(&course.tree, config)?;
        contestants.push(Box::new(walker(UVFS, &tracks, move |path| walk_uvfs(&top, path))));
        ours.push((UVFS, vfs));
    }
    let config = by_whole_paths(AMPLE_BYTES);
    if run.may_hold(UVFS_WHOLE, &shape.name(), fits(shape.names, UVFS_WHOLE_BYTES)) {
        let (vfs, top) = uvfs_filled(&course.tree, config)?;
        let share = remember_whole(&vfs, &top, &tracks) * 100.0;
        run.progress(&format!("{}: {share:.1} % of the paths have a memo", shape.name()));
        contestants.push(Box::new(walker(UVFS_WHOLE, &tracks, move |path| walk_uvfs(&top, path))));
        ours.push((UVFS_WHOLE, vfs));
    }
    if run.may_hold(KERNEL, &shape.name(), fits(shape.names, KERNEL_BYTES)) {
        match tmpfs_filled(&course.tree, &shape.name()) {
            Ok(tmpfs) => {
                let walk = move |path: &CStr| tmpfs.top().map_or(0, |top| walk_kernel(top, path));
                contestants.push(Box::new(walker(KERNEL, &tracks, walk)));
            }
            Err(error) => run.leave_out(KERNEL, &shape.name(), &error.to_string()),
        }
    }
    contestants.extend(remotes(run, &shape.name(), &course));
    for &pattern in patterns {
        for &threads in &run.threads {
            take_turns(run, &shape.case(pattern), pattern, threads, &mut contestants, figures);
        }
    }
    for (name, vfs) in ours {
        let evicted = vfs.statistics().names.evicted;
        if evicted > 0 {
            run.failed(name, &shape.name(), &format!("dropped {evicted} names though all fit"));
        }
    }
    Ok(())
}

/// Fixes the type of a closure's argument.
fn walker<'a, W: Fn(&CStr) -> u64 + Sync>(
    name: &'static str,
    tracks: &'a [Track<'a>; 2],
    walk: W,
) -> Local<'a, W> {
    Local::new(name, tracks, walk)
}

/// The rivals that are built, hold the tree and fit.
fn remotes<'a>(run: &Run, case: &str, course: &Course) -> Vec<Box<dyn Contestant + 'a>> {
    let mut process = match rivals::start(&run.rivals) {
        Ok(process) => process,
        Err(why) => {
            run.leave_out("maps", "all cases", &why);
            return Vec::new();
        }
    };
    let mut built = Vec::new();
    for name in process.names().to_vec() {
        if !run.may_hold(&name, case, fits(course.tree.names(), RIVAL_BYTES)) {
            continue;
        }
        match rivals::build(&mut process, &name, course) {
            Ok(_) => built.push(name),
            Err(why) => run.failed(&name, case, &why),
        }
    }
    let rivals = Rc::new(RefCell::new(process));
    let remote =
        |name| -> Box<dyn Contestant> { Box::new(Remote { name, rivals: rivals.clone() }) };
    built.into_iter().map(remote).collect()
}

/// Each system walks once in each round; a system that fails drops out.
fn take_turns(
    run: &Run,
    case: &str,
    pattern: Pattern,
    threads: usize,
    contestants: &mut Vec<Box<dyn Contestant + '_>>,
    figures: &mut Report,
) {
    run.progress(&format!("{case}, threads: {threads}"));
    let begin = Instant::now();
    for round in 0..=run.rounds {
        if run.is_late(begin, round) {
            break;
        }
        contestants.retain_mut(|one| match one.round(pattern, threads, run.target) {
            // The first round only finds the pace.
            Ok(_) if round == 0 => true,
            Ok(ns) => {
                figures.sample(case, one.name(), threads, Unit::NanosecondsPerWalk, ns);
                true
            }
            Err(why) => {
                run.failed(one.name(), case, &why);
                false
            }
        });
        if !contestants.is_empty() {
            contestants.rotate_left(1);
        }
    }
}
