//! The caches of Peacock (1992) by virtual cores: how many acquisitions found the lock held, in each way of locking; and
//! metadata of a disk image through the store whose caches are in rows.
//!
//! # Why
//! The paper measured on five processors, and its point is the behaviour on more. On simulated cores, locks collide as
//! the model predicts. Weakness: the model has no interrupts and no other programs, which also slow the holder of a
//! lock; `uvfs-bench-papers set-associative` measures on the real cores.

use super::known::samples;
use super::programs::{Size, Workshop, curve};
use super::{Pages, tables, uvfs};
use crate::rows::caches::{Kind, Locking};
use std::io;
use std::path::Path;
use std::process::Command;
use uvfs_bench_kit::report::Unit;
use uvfs_contention::sweep::Work;

/// The paper's five, and around it.
const CORES: [usize; 5] = [1, 2, 5, 16, 64];
/// Accesses of a thread, and the part of them that a look takes.
const OPERATIONS: usize = 400;
/// The paper's figure for rows, in percent.
const AIM: f64 = 0.1;
/// Metadata of an image: description, mode, operations of a thread.
const IMAGE: [(&str, &str, usize); 2] =
    [("image, warm stat", "warm", 2000), ("image, warm store", "store", 1000)];
/// The part of one core's rate that warm metadata should keep on this many cores.
const KEPT: (usize, f64) = (64, 0.9);

pub(super) fn run(workshop: &Workshop, pages: &mut Pages) -> io::Result<()> {
    let programs = uvfs::build(workshop)?;
    let cores: Vec<usize> = if workshop.size == Size::Tiny { vec![1, 4] } else { CORES.to_vec() };
    let operations = uvfs::operations(workshop, OPERATIONS).to_string();
    let mut columns = vec!["cache".to_owned(), "locking".to_owned()];
    columns.extend(cores.iter().map(|cores| format!("{cores}")));
    let mut text =
        tables::title("Peacock 1992: contended acquisitions in percent, by virtual cores");
    text += &tables::head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    let mut worst = (0.0, String::from("none"));
    for kind in Kind::ALL {
        for locking in Locking::ALL {
            let mode = format!("{}:{}", kind.name(), locking.name());
            eprintln!("uvfs-bench-papers: contention, {mode}");
            let mut cells = vec![kind.name().to_owned(), locking.name().to_owned()];
            for &cores in &cores {
                let args = [operations.clone(), "0".to_owned(), mode.clone()];
                let plan = workshop.plan(&programs.join("contention_rows"), cores, &args);
                let (_, printed) = workshop.run(&plan)?;
                let shares: Vec<f64> = printed.iter().filter_map(|text| contended(text)).collect();
                if shares.len() != printed.len() {
                    return Err(io::Error::other(format!("{mode}: it printed no counts")));
                }
                let case = format!("rows-{}", kind.name());
                for &share in &shares {
                    pages.report.sample(
                        &case,
                        locking.name(),
                        cores,
                        Unit::PercentContended,
                        share,
                    );
                }
                let mean = shares.iter().sum::<f64>() / shares.len() as f64;
                cells.push(format!("{mean:.3}"));
                if locking == Locking::Rows && mean > worst.0 {
                    worst = (mean, format!("{}, {cores} cores", kind.name()));
                }
            }
            text += &tables::row(&cells);
        }
    }
    let held = if worst.0 < AIM { "held" } else { "missed" };
    text +=
        &format!("\n- rows: at most {:.3} % ({}); aim below {AIM} %: {held}\n", worst.0, worst.1);
    pages.text(&text)?;
    image(workshop, pages, &programs)
}

/// The share of acquisitions that found the lock held, in percent, as the program printed it.
fn contended(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    words.find(|word| *word == "acquisitions")?;
    let acquisitions: f64 = words.next()?.parse().ok()?;
    words.find(|word| *word == "contended")?;
    let contended: f64 = words.next()?.parse().ok()?;
    Some(100.0 * contended / acquisitions.max(1.0))
}

/// Metadata of an image that mke2fs(8) makes.
fn image(workshop: &Workshop, pages: &mut Pages, programs: &Path) -> io::Result<()> {
    let path = workshop.folder().join("metadata.img");
    if let Err(why) = make(&path) {
        eprintln!("uvfs-bench-papers: the image's cases are left out: {why}");
        return Ok(());
    }
    let mut sweeps = Vec::new();
    for (name, mode, operations) in IMAGE {
        eprintln!("uvfs-bench-papers: contention, {name}");
        let operations = uvfs::operations(workshop, operations).to_string();
        let args = [operations, "0".to_owned(), format!("{mode}:{}", path.display())];
        let ran = workshop.runs(&programs.join("contention_image"), &args)?;
        sweeps.push((name.to_owned(), curve(&ran, |one| Work::Metric(uvfs::rates(one)))?));
    }
    samples(pages, "image", &sweeps, Unit::MillionsPerSecond, 1e-6);
    pages.text(&tables::title("Metadata of a disk image: rate by virtual cores"))?;
    pages.text(&tables::curves("case", "M/s", &sweeps, 1e-6))?;
    pages.text(&tables::bends(&sweeps))?;
    pages.text(&uvfs::kept_table(&sweeps, KEPT, |_| true))
}

/// An image of 1,024 files in 16 directories.
fn make(path: &Path) -> io::Result<()> {
    let source = path.with_extension("tree");
    let _ = std::fs::remove_dir_all(&source);
    for directory in 0..16 {
        let directory = source.join(format!("d{directory:02}"));
        std::fs::create_dir_all(&directory)?;
        for file in 0..64 {
            std::fs::write(directory.join(format!("f{file:02}")), b"content")?;
        }
    }
    let _ = std::fs::remove_file(path);
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-O", "^has_journal", "-d"]);
    let made = make.arg(&source).arg(path).arg("16M").output()?;
    std::fs::remove_dir_all(&source)?;
    match made.status.success() {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("mke2fs: {}", String::from_utf8_lossy(&made.stderr))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_become_percent_and_others_are_none() {
        assert_eq!(contended("operations 5\nacquisitions 200 contended 3\n"), Some(1.5));
        assert_eq!(contended("acquisitions 0 contended 0"), Some(0.0));
        assert_eq!(contended("acquisitions many"), None);
    }
}
