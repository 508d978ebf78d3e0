//! The cost of a run for the host: one virtual core against one native thread, accesses a second where 64 cores
//! contend, and a whole sweep.
//!
//! # Why
//! The only figures here that are not of the model. They are processor time of all children that were waited for, so
//! other programs of the host count little; native and simulated runs take turns. Weakness: the kernel counts in
//! hundredths of a second, so each run is made to last for some tenths.

use super::programs::{Size, Workshop, repository};
use super::{Pages, tables};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use uvfs_bench_kit::report::Unit;
use uvfs_contention::run::Plan;

/// Times that native and simulated take turns.
const TURNS: usize = 5;
/// Native operations for one that is simulated, so that both last.
const MORE: usize = 20;

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let folder = repository("tests/contention/known");
    pages.text(&tables::title("What it costs the host"))?;
    let shorter = if workshop.size == Size::Tiny { 100 } else { 1 };
    let mut text = tables::head(&["one thread", "native", "one virtual core", "times", "accesses"]);
    let source = folder.join("rcu.c");
    let simulated = workshop.c("rcu", std::slice::from_ref(&source), &[])?;
    let native = plain_c(&simulated, &source)?;
    text += &one_thread(workshop, pages, "reads, in C", &native, &simulated, 100_000 / shorter)?;
    let manifest = folder.join("Cargo.toml");
    let simulated = workshop.cargo(&manifest, &["--bins"])?.join("map");
    let native = plain_rust(&simulated, &manifest)?;
    text +=
        &one_thread(workshop, pages, "a HashMap, in Rust", &native, &simulated, 100_000 / shorter)?;
    pages.text(&text)?;

    let mut text = tables::head(&["contended", "cores", "accesses", "M accesses a second"]);
    for (name, operations) in [("ttas", 1000), ("one_counter", 4000)] {
        let program = workshop.c(name, &[folder.join(name).with_extension("c")], &[])?;
        let cores = workshop.at_most(64);
        let args = [cores.to_string(), (operations / shorter).to_string()];
        let plan = Plan { jobs: 1, ..workshop.plan(&program, cores, &args) };
        let before = processor_seconds()?;
        let (profile, _) = workshop.run(&plan)?;
        let seconds = processor_seconds()? - before;
        let accesses: u64 = profile.runs.iter().map(|run| run.accesses).sum();
        let rate = accesses as f64 / seconds / 1e6;
        pages.report.sample("speed-contended", name, cores, Unit::MillionsPerSecond, rate);
        let shown = [name.into(), cores.to_string(), accesses.to_string(), format!("{rate:.1}")];
        text += &tables::row(&shown);
    }
    pages.text(&text)?;

    let program = workshop.c("counters", &[folder.join("counters.c")], &[])?;
    let (begin, before) = (Instant::now(), processor_seconds()?);
    workshop.runs(&program, &[])?;
    let (took, seconds) = (begin.elapsed().as_secs_f64(), processor_seconds()? - before);
    let cores = workshop.cores().last().copied().unwrap_or(1);
    pages.report.sample("speed-sweep", "counters", cores, Unit::Seconds, took);
    pages.text(&format!(
        "\nA sweep of two counters on one line, {:?} cores, {} seeds: {took:.1} s, {seconds:.1} s of \
         processor time.\n",
        workshop.cores(),
        workshop.seeds,
    ))
}

/// A row: the program's processor time by itself and on one virtual core.
fn one_thread(
    workshop: &Workshop,
    pages: &mut Pages,
    name: &str,
    native: &Path,
    simulated: &Path,
    operations: usize,
) -> io::Result<String> {
    let plan = workshop.plan(simulated, 1, &["1".into(), operations.to_string()]);
    let plan = Plan { seeds: 1, jobs: 1, ..plan };
    let [mut plain, mut model] = [Vec::new(), Vec::new()];
    let mut accesses = 0;
    for _ in 0..TURNS {
        let before = processor_seconds()?;
        let mut command = Command::new(native);
        command.args(["1", &(operations * MORE).to_string()]).stdout(Stdio::null());
        let status = command.stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("{}: {status}", native.display())));
        }
        let between = processor_seconds()?;
        accesses = workshop.run(&plan)?.0.runs[0].accesses;
        plain.push((between - before) / MORE as f64);
        model.push(processor_seconds()? - between);
    }
    for (one, other) in plain.iter().zip(&model) {
        pages.report.sample("speed-one-core", name, 1, Unit::Slowdown, other / one);
    }
    let [plain, model] = [median(plain), median(model)];
    Ok(tables::row(&[
        name.into(),
        format!("{:.1} ns", plain * 1e9 / accesses as f64),
        format!("{:.1} ns", model * 1e9 / accesses as f64),
        format!("{:.1}", model / plain),
        format!("{:.1} M", accesses as f64 / 1e6),
    ]))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The C program without the compiler's pass, beside the one with it.
fn plain_c(simulated: &Path, source: &Path) -> io::Result<PathBuf> {
    let program = simulated.with_file_name("rcu-plain");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-pthread"]).arg(source).arg("-o").arg(&program);
    match gcc.status()?.success() {
        true => Ok(program),
        false => Err(io::Error::other(format!("gcc: {}", source.display()))),
    }
}

/// The Rust program likewise.
fn plain_rust(simulated: &Path, manifest: &Path) -> io::Result<PathBuf> {
    let folder = simulated.with_file_name("plain");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--release", "--quiet", "--bin", "map", "--manifest-path"]).arg(manifest);
    let status = cargo.arg("--target-dir").arg(&folder).stdin(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("{}: cargo: {status}", manifest.display())));
    }
    Ok(folder.join("release/map"))
}

/// Processor time of all processes that this one has started and waited for.
fn processor_seconds() -> io::Result<f64> {
    // proc_pid_stat(5): after the name in brackets, fields from the third on; 16 and 17 are these.
    const HERTZ: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> =
        text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<f64>().ok());
    let ticks = field(16).zip(field(17));
    ticks.map(|(user, system)| (user + system) / HERTZ).ok_or_else(|| {
        io::Error::other("/proc/self/stat: no processor time of children (fields 16 and 17)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_used_is_counted() {
        let before = processor_seconds().unwrap();
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(processor_seconds().unwrap() > before);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
