//! Memory of a cached name with its inode.
//!
//! # Boundary
//! Fills a cache in a fresh process and divides the growth of that process by the number of names.
//! For the kernel: the growth of the whole machine's slabs while a tmpfs was filled.
//!
//! # Why
//! A fresh process, because memory freed by earlier cases would be filled first and not be seen.
//! The store below uvfs keeps nothing. The rivals hold less than a name with its inode: no lock, no
//! list, no lifetime; they are here for scale.

use super::Run;
use super::cases::{CURVE_DEPTH, Shape};
use super::contestants::{AMPLE_BYTES, Course, by_components, tmpfs_filled, uvfs_filled};
use super::place::{meminfo, resident_bytes};
use super::rivals;
use super::{KERNEL, UVFS};
use crate::report::Report;
use crate::report::Unit;
use std::io;
use std::process::{Command, Stdio};
use uvfs_bench_workload::tree::Tree;

const CASE: &str = "bytes-per-name";

/// Measures every system; a run each is enough to agree within a percent, three show it.
pub(super) fn measure(run: &Run, figures: &mut Report) -> io::Result<()> {
    let shape = Shape { depth: CURVE_DEPTH, names: run.sizes.bytes };
    run.progress(&format!("{CASE}, {}", shape.name()));
    let names = shape.names as f64;
    let rounds = if run.is_quick() { 1 } else { run.rounds.min(3) };
    for _ in 0..rounds {
        match of_uvfs(shape.names) {
            Ok(bytes) => figures.sample(CASE, UVFS, 1, Unit::BytesPerName, bytes as f64 / names),
            Err(error) => run.failed(UVFS, CASE, &error.to_string()),
        }
    }
    if run.is_quick() {
        run.leave_out("everybody but uvfs", CASE, "they take longer than --quick may");
        return Ok(());
    }
    let course = Course::new(Tree::new(shape.depth, shape.names));
    match of_kernel(&course.tree) {
        Ok(bytes) => figures.sample(CASE, KERNEL, 1, Unit::BytesPerName, bytes as f64 / names),
        Err(error) => run.leave_out(KERNEL, CASE, &error.to_string()),
    }
    let Ok(first) = rivals::start(&run.rivals) else { return Ok(()) };
    for name in first.names() {
        let started = rivals::start(&run.rivals);
        match started.and_then(|mut process| rivals::build(&mut process, name, &course)) {
            Ok(bytes) => figures.sample(CASE, name, 1, Unit::BytesPerName, bytes as f64 / names),
            Err(why) => run.failed(name, CASE, &why),
        }
    }
    Ok(())
}

fn of_uvfs(names: u64) -> io::Result<u64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["walk", "--grown-by", &names.to_string()])
        .stderr(Stdio::inherit())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let odd = || io::Error::other(format!("the process to be measured: {}", output.status));
    text.trim().parse().map_err(|_| odd())
}

/// The work of a fresh process: fills the caches with `names` names, and prints its growth.
///
/// # Errors
/// If the caches did not keep all of them.
pub(super) fn print_growth(names: u64) -> io::Result<()> {
    let tree = Tree::new(CURVE_DEPTH, names);
    let before = resident_bytes().unwrap_or(0);
    let (vfs, _) = uvfs_filled(&tree, by_components(AMPLE_BYTES))?;
    let after = resident_bytes().unwrap_or(0);
    let (held, evicted) = (vfs.statistics().names.held, vfs.statistics().names.evicted);
    if held < tree.names() || evicted > 0 {
        return Err(io::Error::other(format!("of {names} names {held} are held")));
    }
    println!("{}", after.saturating_sub(before));
    Ok(())
}

fn of_kernel(tree: &Tree) -> io::Result<u64> {
    let before = meminfo("Slab").unwrap_or(0);
    let tmpfs = tmpfs_filled(tree, CASE)?;
    let after = meminfo("Slab").unwrap_or(0);
    drop(tmpfs);
    Ok(after.saturating_sub(before))
}
