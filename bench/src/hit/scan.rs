//! A scan's effect on a hot set: a file of ten times the budget is read once, in small pieces.
//!
//! # Boundary
//! Shares of hits, no times: of the hot set alone, before the scan, during it, and after it. A read
//! of the hot set hits if the store got no request for it.
//!
//! # Why
//! Programs read files in pieces smaller than a page, so a page that is read once is used several
//! times in a row; a policy that counts those uses takes a scan for popular pages. Weakness: one
//! ratio of hot reads to scanned pieces, one to one; a hot set that is used less often has fewer
//! hits.

use super::cases::{Case, PAGE};
use super::store::{NumberedStore, number};
use super::{OURS, Run, other};
use crate::report::Report;
use crate::report::Unit;
use std::io;
use std::sync::Arc;
use uvfs_bench_workload::traces::{Pattern, Traces};
use uvfs_concurrent::counter::Counter;
use uvfs_vfs::{Caller, File, OpenOptions, Vfs, VfsConfig};

/// Endings of the case's names.
pub(super) const BEFORE: &str = "-before";
pub(super) const DURING: &str = "-during";
pub(super) const AFTER: &str = "-after";

/// Size of the hot set, in percent of the budget.
const HOT_PERCENT: u64 = 60;
/// Size of the scan, in budgets.
const SCAN: u64 = 10;
/// Bytes read at once by the scan.
const PIECE: usize = 1024;
/// Reads of the hot set before anything is counted, and in the phases before and after, for each of its
/// pages.
const READS_A_PAGE: u64 = 10;

/// The hot file and the one that is scanned.
const HOT: usize = 0;

/// Shares of hits.
#[derive(Debug)]
struct Shares {
    before: f64,
    during: f64,
    after: f64,
}

/// Measures the case, if it is wanted.
pub(super) fn measure(run: &Run, wanted: &[Case], figures: &mut Report) -> io::Result<()> {
    if !wanted.contains(&Case::Scan) {
        return Ok(());
    }
    let name = Case::Scan.name(&run.sizes);
    run.progress(&name);
    for _ in 0..run.rounds {
        let shares = once(run.sizes.budget_bytes)?;
        let phases = [(BEFORE, shares.before), (DURING, shares.during), (AFTER, shares.after)];
        for (phase, share) in phases {
            figures.sample(&format!("{name}{phase}"), OURS, 1, Unit::Share, share);
        }
    }
    Ok(())
}

fn once(budget: u64) -> io::Result<Shares> {
    let hot_pages = budget * HOT_PERCENT / 100 / PAGE;
    let scanned = budget * SCAN;
    let store = NumberedStore::new(&[hot_pages * PAGE, scanned]);
    let asked = store.asked();
    let config = VfsConfig { cache_bytes: budget, ..VfsConfig::default() };
    let vfs = Vfs::new(store, config).map_err(other)?;
    let top = vfs.root_directory(Caller::root());
    let open = |name| top.open(name, OpenOptions::read()).map_err(other);
    let (file, cold) = (open("0")?, open("1")?);
    let keys = Traces::new(Pattern::Zipf, hot_pages, 1, hot_pages * READS_A_PAGE * 4);
    let mut hot = Hot { file, asked, keys, done: 0, buffer: Box::new([0; PAGE as usize]) };
    let reads = hot_pages * READS_A_PAGE;
    hot.reads(reads)?;
    let before = hot.share(|hot| hot.reads(reads))?;
    let during = hot.share(|hot| {
        let mut piece = [0; PIECE];
        for offset in (0..scanned).step_by(PIECE) {
            let count = cold.read_at(offset, &mut piece).map_err(other)?;
            if count < PIECE || number(&piece) != offset / PAGE {
                return Err(io::Error::other("the scan read something else"));
            }
            hot.reads(1)?;
        }
        Ok(())
    })?;
    let after = hot.share(|hot| hot.reads(reads))?;
    Ok(Shares { before, during, after })
}

/// The reader of the hot set, by popularity.
struct Hot {
    file: File,
    asked: Arc<[Counter]>,
    keys: Traces,
    done: usize,
    buffer: Box<[u8; PAGE as usize]>,
}

impl Hot {
    fn reads(&mut self, reads: u64) -> io::Result<()> {
        let keys = self.keys.list(0);
        for _ in 0..reads {
            let page = u64::from(keys[self.done % keys.len()]);
            self.done += 1;
            let count = self.file.read_at(page * PAGE, &mut self.buffer[..]).map_err(other)?;
            if count < self.buffer.len() || number(&self.buffer[..]) != page {
                return Err(io::Error::other("a page of the hot set is another one"));
            }
        }
        Ok(())
    }

    /// The share of hits in the reads that `work` does.
    fn share(&mut self, work: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<f64> {
        let (asked, done) = (self.asked[HOT].total(), self.done);
        work(self)?;
        let reads = self.done - done;
        Ok(1.0 - (self.asked[HOT].total() - asked) as f64 / reads.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shares_and_most_of_a_set_that_fits_hits() {
        let shares = once(8 << 20).unwrap();
        let all = [shares.before, shares.during, shares.after];
        assert!(all.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
        assert!(shares.before > 0.9, "{shares:?}");
    }
}
