//! Reads of a file that is all in memory: uvfs's interface, `pread` of a tmpfs, and other caches.
//!
//! # Boundary
//! Builds the resident file for each system once, then reads it in all selected ways. The kernel's
//! file is a memfd, which is a file of the kernel's own tmpfs and needs no mount.
//!
//! # Why
//! Every word of a page is the page's number, so any wrong hit shows in the sum. Weakness: the
//! pages of uvfs are in huge pages where the kernel has some, those of the tmpfs are not by
//! default; users get the same.

use super::cases::{Case, PAGE, Sizes};
use super::rivals::Kind;
use super::store::{NumberedStore, fill, number};
use super::turns::{Contestant, by_keys, seconds, take_turns};
use super::{KERNEL, OURS, Run, fits, other};
use crate::report::Report;
use crate::report::Unit;
use rustix::fd::OwnedFd;
use rustix::fs::MemfdFlags;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use uvfs_bench_workload::team::{Span, team};
use uvfs_bench_workload::traces::{Pattern, Traces};
use uvfs_vfs::{Caller, File, OpenOptions, Vfs, VfsConfig};

/// No page has it.
const WRONG: u64 = 1 << 40;
const MIB: usize = 1 << 20;
/// Bytes of a short read.
const SHORT: usize = 64;
/// Those that hold a page a key, too; the others are measured by lookups.
const RIVALS: [&str; 6] = ["quick_cache", "moka", "foyer", "scc-hashcache", "tinyufo", "map-floor"];

/// A file that can be read by several threads.
trait Resident: Sync {
    /// Reads all of `into` from `offset` on; false if there is less.
    fn read(&self, offset: u64, into: &mut [u8]) -> bool;
}

impl Resident for File {
    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        self.read_at(offset, into).is_ok_and(|count| count == into.len())
    }
}

impl Resident for OwnedFd {
    #[inline]
    fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        let wanted = into.len();
        rustix::io::pread(self, into, offset).is_ok_and(|count| count == wanted)
    }
}

/// uvfs with all of a file in its cache.
struct Ours {
    vfs: Arc<Vfs>,
    file: File,
}

impl Ours {
    fn new(bytes: u64) -> io::Result<Self> {
        let config = VfsConfig { cache_bytes: 2 * bytes + (64 << 20), ..VfsConfig::default() };
        let vfs = Vfs::new(NumberedStore::new(&[bytes]), config).map_err(other)?;
        let top = vfs.root_directory(Caller::root());
        let file = top.open("0", OpenOptions::read()).map_err(other)?;
        read_all(&file, bytes)?;
        let ours = Self { vfs, file };
        let before = ours.missed();
        read_all(&ours.file, bytes)?;
        match ours.missed() - before {
            0 => Ok(ours),
            missed => Err(io::Error::other(format!("{missed} pages of uvfs are not resident"))),
        }
    }

    /// Pages that were not there, ever.
    fn missed(&self) -> u64 {
        let pages = self.vfs.statistics().pages;
        pages.misses + pages.around
    }

    /// Runs `work`, which must not miss.
    fn hits_only<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let before = self.missed();
        let done = work()?;
        match self.missed() - before {
            0 => Ok(done),
            missed => Err(format!("{missed} reads missed")),
        }
    }
}

/// A file of a tmpfs with `bytes` bytes of content.
fn kernel(bytes: u64) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(c"uvfs-bench", MemfdFlags::CLOEXEC)?;
    let mut chunk = vec![0; MIB];
    for offset in (0..bytes).step_by(MIB) {
        fill(offset, &mut chunk);
        let mut done = 0;
        while done < chunk.len() {
            done += rustix::io::pwrite(&file, &chunk[done..], offset + done as u64)?;
        }
    }
    read_all(&file, bytes)?;
    Ok(file)
}

/// Reads the whole file and checks every page.
fn read_all(file: &impl Resident, bytes: u64) -> io::Result<()> {
    let mut chunk = vec![0; MIB];
    for offset in (0..bytes).step_by(MIB) {
        let whole = file.read(offset, &mut chunk);
        let mut pages = chunk.chunks(PAGE as usize).zip(offset / PAGE..);
        if !whole || pages.any(|(page, nth)| number(page) != nth) {
            return Err(io::Error::other(format!("the data at {offset} is wrong")));
        }
    }
    Ok(())
}

/// Runs the selected ones of these cases.
pub(super) fn measure(run: &Run, wanted: &[Case], figures: &mut Report) -> io::Result<()> {
    let own = |case: &&Case| {
        matches!(case, Case::ReadHot | Case::Read(_) | Case::ReadShort | Case::ReadLong)
    };
    let wanted: Vec<Case> = wanted.iter().filter(own).copied().collect();
    let Some(first) = wanted.first() else { return Ok(()) };
    let sizes = &run.sizes;
    let name = first.name(sizes);
    if let Err(why) = fits(2 * sizes.file_bytes) {
        run.failed(OURS, &name, &why);
        return Ok(());
    }
    run.progress("filling");
    let (ours, kernel) = (Ours::new(sizes.file_bytes)?, kernel(sizes.file_bytes)?);
    let files = (&ours, &kernel);
    if wanted.contains(&Case::ReadHot) {
        whole_pages(run, files, &[Case::ReadHot], sizes.hot_pages, figures);
    }
    let all: Vec<Case> =
        wanted.iter().filter(|case| matches!(case, Case::Read(_))).copied().collect();
    if !all.is_empty() {
        whole_pages(run, files, &all, sizes.file_bytes / PAGE, figures);
    }
    for &threads in &run.threads {
        if wanted.contains(&Case::ReadShort) {
            short(run, files, threads, figures);
        }
        if wanted.contains(&Case::ReadLong) {
            long(run, files, threads, figures);
        }
    }
    Ok(())
}

/// Whole pages of the first `pages`, by everybody.
fn whole_pages(
    run: &Run,
    (ours, kernel): (&Ours, &OwnedFd),
    cases: &[Case],
    pages: u64,
    figures: &mut Report,
) {
    let name = cases[0].name(&run.sizes);
    let mut rivals = run.rivals(&name);
    rivals.retain_mut(|(rival, process)| {
        if !RIVALS.contains(&&**rival) {
            return false;
        }
        let built =
            fits(pages * (PAGE + 128)).and_then(|()| process.build(rival, Kind::Pages, pages));
        built.inspect_err(|why| run.leave_out(rival, &name, why)).is_ok()
    });
    for case in cases {
        let pattern = if let Case::Read(pattern) = case { *pattern } else { Pattern::Uniform };
        for &threads in &run.threads {
            let reads = run.sizes.reads;
            let traces = Traces::new(pattern, pages, threads, reads);
            let traces = &traces;
            let mut all = vec![
                Contestant::new(OURS, move || {
                    ours.hits_only(|| page_by_page(run, traces, &ours.file))
                }),
                Contestant::new(KERNEL, move || page_by_page(run, traces, kernel)),
            ];
            let others = rivals.iter_mut().map(|(name, process)| {
                Contestant::rival(run, name, process, pattern, (threads, reads))
            });
            all.extend(others);
            let (name, unit) = (case.name(&run.sizes), Unit::ThousandsPerSecond);
            take_turns(run, &name, unit, threads, &mut all, figures);
        }
    }
}

fn page_by_page(run: &Run, traces: &Traces, file: &impl Resident) -> Result<f64, String> {
    by_keys(run, traces, run.sizes.reads, |_, key, buffer| {
        let is_whole = file.read(u64::from(key) * PAGE, buffer);
        if is_whole { number(black_box(buffer)) } else { WRONG }
    })
}

/// 64 bytes somewhere in a page of all.
fn short(run: &Run, (ours, kernel): (&Ours, &OwnedFd), threads: usize, figures: &mut Report) {
    let Sizes { file_bytes, lookups, .. } = run.sizes;
    let traces = Traces::new(Pattern::Zipf, file_bytes / PAGE, threads, lookups);
    let traces = &traces;
    let mut all = vec![
        Contestant::new(OURS, move || ours.hits_only(|| piece_by_piece(run, traces, &ours.file))),
        Contestant::new(KERNEL, move || piece_by_piece(run, traces, kernel)),
    ];
    let name = Case::ReadShort.name(&run.sizes);
    take_turns(run, &name, Unit::ThousandsPerSecond, threads, &mut all, figures);
}

fn piece_by_piece(run: &Run, traces: &Traces, file: &impl Resident) -> Result<f64, String> {
    /// Multiples of eight at which a piece may begin.
    const PLACES: u64 = (PAGE - SHORT as u64) / 8 + 1;
    by_keys(run, traces, run.sizes.lookups, |nth, key, buffer| {
        let drawn = ((nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) * PLACES) >> 32;
        let piece = &mut buffer[..SHORT];
        let is_whole = file.read(u64::from(key) * PAGE + drawn * 8, piece);
        if is_whole { number(black_box(piece)) } else { WRONG }
    })
}

/// One MiB after the other; each thread begins elsewhere.
fn long(run: &Run, (ours, kernel): (&Ours, &OwnedFd), threads: usize, figures: &mut Report) {
    let mut all = vec![
        Contestant::new(OURS, move || ours.hits_only(|| in_order(run, threads, &ours.file))),
        Contestant::new(KERNEL, move || in_order(run, threads, kernel)),
    ];
    let name = Case::ReadLong.name(&run.sizes);
    take_turns(run, &name, Unit::MebibytesPerSecond, threads, &mut all, figures);
}

fn in_order(run: &Run, threads: usize, file: &impl Resident) -> Result<f64, String> {
    let chunks = run.sizes.file_bytes / MIB as u64;
    let stints = team(threads, |member| {
        let mut buffer = vec![0; MIB];
        let begin = member.number as u64 * chunks / threads as u64;
        member.phase(|| {
            let is_right = |nth: u64| {
                let offset = (begin + nth) % chunks * MIB as u64;
                let is_whole = file.read(offset, &mut buffer);
                is_whole && number(black_box(&buffer)) == offset / PAGE
            };
            (0..chunks).all(is_right)
        })
    })?;
    if !stints.iter().all(|(_, is_right)| *is_right) {
        return Err("the data read is wrong".to_owned());
    }
    let span = Span::of(stints.iter().map(|(stint, _)| *stint));
    Ok((chunks * threads as u64) as f64 / seconds(run, span, threads).max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::super::turns::tests::alone;
    use super::*;

    #[test]
    fn both_files_are_read_in_all_ways() {
        let run = alone();
        let bytes = run.sizes.file_bytes;
        let (ours, kernel) = (Ours::new(bytes).unwrap(), kernel(bytes).unwrap());
        for threads in [1, 2] {
            let traces = Traces::new(Pattern::Zipf, bytes / PAGE, threads, run.sizes.lookups);
            ours.hits_only(|| page_by_page(&run, &traces, &ours.file)).unwrap();
            ours.hits_only(|| piece_by_piece(&run, &traces, &ours.file)).unwrap();
            ours.hits_only(|| in_order(&run, threads, &ours.file)).unwrap();
            page_by_page(&run, &traces, &kernel).unwrap();
            piece_by_piece(&run, &traces, &kernel).unwrap();
            in_order(&run, threads, &kernel).unwrap();
        }
    }

    /// A page is missing, or in the wrong place.
    struct Broken(OwnedFd);

    impl Resident for Broken {
        fn read(&self, offset: u64, into: &mut [u8]) -> bool {
            let is_broken = [3, 256].contains(&(offset / PAGE));
            self.0.read(if is_broken { 0 } else { offset }, into)
        }
    }

    #[test]
    fn a_wrong_page_is_noticed() {
        let run = alone();
        let broken = Broken(kernel(run.sizes.file_bytes).unwrap());
        let traces = Traces::new(Pattern::Uniform, 64, 1, run.sizes.lookups);
        assert!(page_by_page(&run, &traces, &broken).is_err());
        assert!(piece_by_piece(&run, &traces, &broken).is_err());
        assert!(read_all(&broken, run.sizes.file_bytes).is_err());
        let short = kernel(run.sizes.file_bytes / 2).unwrap();
        assert!(in_order(&run, 1, &short).is_err());
    }
}
