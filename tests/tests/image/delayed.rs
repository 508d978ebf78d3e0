//! Floor: data of a written image that waits in the core's pages: what reaches the disk, and when; what a crash leaves; what is
//! told at a failure. In process, over devices in memory; skipped where mke2fs is missing.
//!
//! `UVFS_PAGE_CUTS` sets how many crashes are looked at; otherwise a few.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::image::{ImageBackend, ImageConfig, WritingConfig, WritingImage};
use uvfs_ext::MemoryDevice;
use uvfs_ext_write::device::testing::{Faults, Faulty, Flushes, Random, Recorder};
use uvfs_ext_write::{DataMode, Volume, WritableMemory, WriteDevice};
use uvfs_tests::{Watchdog, root};
use uvfs_vfs::{
    AllocateMode, Directory, Error, File, FileRef, InodeId, OpenOptions, RenameMode, SeekTarget,
    SyncMode, Unwritten, Vfs, VfsConfig,
};

const LIMIT: Duration = Duration::from_secs(120);
const HOUR: Duration = Duration::from_secs(3600);
/// The crashes of a run without `UVFS_PAGE_CUTS`.
const FEW: usize = 40;

/// A new image; `None` where it cannot be made.
pub(crate) fn image(size: &str, block_size: &str) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut make = Command::new("mke2fs");
    let journal = if block_size == "1024" { "size=1" } else { "size=4" };
    make.args(["-q", "-F", "-t", "ext4", "-b", block_size, "-J", journal, "-N", "256"]);
    let Ok(output) = make.arg(&path).arg(size).output() else {
        uvfs_skip::lacking("mke2fs is not installed (Debian: e2fsprogs)");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(&path).unwrap())
}

/// A file system on `device` that writes back when it is asked to, or has to.
pub(crate) fn on(device: Arc<dyn WriteDevice>) -> Arc<Vfs> {
    delayed(device, HOUR)
}

fn delayed(device: Arc<dyn WriteDevice>, write_back_delay: Duration) -> Arc<Vfs> {
    let config = WritingConfig { commit_interval: HOUR, ..WritingConfig::default() };
    let image = WritingImage::open(device, &config).unwrap();
    Vfs::new(image, VfsConfig { write_back_delay, ..VfsConfig::default() }).unwrap()
}

fn create(vfs: &Arc<Vfs>, name: &str) -> File {
    root(vfs).open(name, OpenOptions::read_write().create(0o644)).unwrap()
}

fn sync_root(vfs: &Arc<Vfs>) {
    let file = FileRef::unopened(InodeId::ROOT);
    vfs.sync(vfs.root(), file, SyncMode::All).unwrap();
}

/// The root directory of an image that is only read.
pub(crate) fn shown(bytes: Vec<u8>) -> Directory {
    let image = ImageBackend::open(Arc::new(MemoryDevice::new(bytes)), ImageConfig::default());
    root(&Vfs::new(image.unwrap(), VfsConfig::default()).unwrap())
}

fn dirty_bytes(vfs: &Vfs) -> u64 {
    vfs.statistics().pages.dirty_bytes
}

/// A file of a compiler or a mail server lives for moments: its data never costs a write.
#[test]
fn a_file_that_is_removed_soon_never_reaches_the_disk() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Recorder::new(image));
    let vfs = on(device.clone());
    for name in ["one", "other"] {
        let file = create(&vfs, name);
        file.write_all_at(0, &[0xA7; 64 << 10]).unwrap();
        assert_eq!(file.read_to_end().unwrap(), [0xA7; 64 << 10]);
    }
    root(&vfs).remove_file("one").unwrap();
    assert_eq!(dirty_bytes(&vfs), 64 << 10);
    root(&vfs).remove_file("other").unwrap();
    assert_eq!(dirty_bytes(&vfs), 0);
    vfs.sync_fs().unwrap();
    assert_eq!(vfs.end().len(), 0);
    let record = device.record();
    for moment in record.flushes() {
        let bytes = record.cut(moment);
        assert!(!bytes.chunks(512).any(|chunk| chunk.iter().all(|byte| *byte == 0xA7)));
    }
}

/// Bug: without reservations the writer of a full image got a success, and its data was lost later.
#[test]
fn a_full_image_is_reported_to_the_writer_and_what_was_accepted_arrives() {
    let _watchdog = Watchdog::new(LIMIT);
    for block_size in ["1024", "4096"] {
        let Some(image) = image("16M", block_size) else { return };
        let device = Arc::new(WritableMemory::new(image));
        let vfs = on(device.clone());
        let files = ["one", "other"].map(|name| (name, create(&vfs, name)));
        let mut accepted = [Vec::new(), Vec::new()];
        let mut random = Random(1);
        let mut refused = 0;
        while refused < 20 {
            let at = random.below(2) as usize;
            let (file, bytes) = (&files[at].1, &mut accepted[at]);
            let new = vec![random.next() as u8; 1 + random.below(60_000) as usize];
            match file.write_at(bytes.len() as u64, &new) {
                Ok(count) => bytes.extend_from_slice(&new[..count]),
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let total: usize = accepted.iter().map(Vec::len).sum();
        assert!(total > 9 << 20, "{total} bytes, of an image with a journal of 4 MiB");
        assert!(vfs.totals().unwrap().blocks_available < 300, "{:?}", vfs.totals());
        // What is there can be overwritten.
        files[0].1.write_all_at(0, &[9; 5000]).unwrap();
        accepted[0][..5000].fill(9);
        files[1].1.sync(SyncMode::All).unwrap();
        assert_eq!(vfs.end().len(), 0, "nothing is lost");
        let shown = shown(device.bytes());
        for ((name, _), bytes) in files.iter().zip(&accepted) {
            assert!(shown.read_file(name).unwrap() == *bytes, "{block_size}: {name}");
        }
    }
}

#[test]
fn write_back_leaves_size_and_times_as_they_were_shown() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let vfs = on(Arc::new(WritableMemory::new(image)));
    let file = create(&vfs, "file");
    file.write_all_at(0, b"some").unwrap();
    file.write_all_at(100_000, b"bytes").unwrap();
    let before = root(&vfs).stat("file").unwrap();
    assert_eq!((before.size, before.blocks), (100_005, 16));
    vfs.write_back_all().unwrap();
    let after = root(&vfs).stat("file").unwrap();
    assert_eq!((after.size, after.blocks), (100_005, 16));
    assert_eq!((after.mtime, after.ctime), (before.mtime, before.ctime));
    assert_eq!(file.seek(0, SeekTarget::Hole).unwrap(), 4096);
    assert_eq!(file.seek(4096, SeekTarget::Data).unwrap(), 98_304);
}

/// Space was set aside, a part of it was written, and the file was cut to its size, as databases do with their logs. The
/// cut came to the image before the written pages: it saw growth, and the space behind the end stayed.
#[test]
fn a_cut_frees_what_was_set_aside_behind_unwritten_pages() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let vfs = on(Arc::new(WritableMemory::new(image)));
    for cut in [100_000, 50_000] {
        let name = format!("cut to {cut}");
        let file = create(&vfs, &name);
        file.allocate(AllocateMode::KeepSize, 0, 1 << 20).unwrap();
        file.write_all_at(0, &[7; 100_000]).unwrap();
        file.set_size(cut).unwrap();
        file.sync(SyncMode::All).unwrap();
        let (size, blocks) = (cut, cut.div_ceil(4096) * 8);
        let after = root(&vfs).stat(&name).unwrap();
        assert_eq!((after.size, after.blocks), (size, blocks), "{name}");
    }
}

/// The kernel passes no `syncfs` on: programs sync the root of the mount.
#[test]
fn a_sync_of_the_root_brings_the_data_of_all_files() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Recorder::new(image));
    let vfs = on(device.clone());
    for name in ["one", "other"] {
        create(&vfs, name).write_all_at(0, name.as_bytes()).unwrap();
    }
    sync_root(&vfs);
    let shown = shown(device.record().torn(device.moment(), 1, Flushes::Kept));
    for name in ["one", "other"] {
        assert_eq!(shown.read_file(name).unwrap(), name.as_bytes());
    }
}

/// Programs that save by truncation and a new write do not sync. Their file was empty after a crash in the seconds behind.
#[test]
fn a_file_that_is_emptied_and_written_again_is_written_back_soon() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let vfs = on(Arc::new(WritableMemory::new(image)));
    let (file, other) = (create(&vfs, "file"), create(&vfs, "other"));
    file.write_all_at(0, b"old").unwrap();
    vfs.write_back_all().unwrap();
    other.write_all_at(0, b"waits for an hour").unwrap();
    file.set_size(0).unwrap();
    file.write_all_at(0, b"new").unwrap();
    while dirty_bytes(&vfs) > 4096 {
        std::thread::yield_now();
    }
    assert_eq!(vfs.unwritten().len(), 1, "the other one");
}

/// After a failed commit nothing is written any more. What is in pages can be read, and each file is named once, whether its
/// data was in pages, in the journal or in both.
#[test]
fn after_the_end_of_writing_pages_are_readable_and_each_file_is_named_once() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Faulty::new(WritableMemory::new(image)));
    let vfs = on(device.clone());
    let stable = create(&vfs, "stable");
    stable.write_all_at(0, &[1; 10_000]).unwrap();
    stable.sync(SyncMode::All).unwrap();
    let names = ["journal", "both", "pages"];
    let files = names.map(|name| create(&vfs, name));
    files[0].write_all_at(0, &[2; 8192]).unwrap();
    files[1].write_all_at(0, &[3; 8192]).unwrap();
    vfs.write_back_all().unwrap();
    files[1].write_all_at(8192, &[3; 4096]).unwrap();
    files[2].write_all_at(0, &[4; 4096]).unwrap();
    device.plan(Faults { flushes: Some(0), ..Faults::default() });
    let failed = stable.sync(SyncMode::All);
    assert_eq!(failed.unwrap_err().errno(), libc::EIO);
    assert_eq!(files[2].read_to_end().unwrap(), [4; 4096]);
    assert_eq!(files[1].read_to_end().unwrap(), [3; 12_288]);
    assert!(matches!(files[2].write_at(8192, b"x"), Err(Error::ReadOnly)), "no space is promised");
    assert_eq!(files[2].sync(SyncMode::All).unwrap_err().errno(), libc::EIO);
    drop((stable, files));
    let lost = vfs.end();
    let reported: Vec<_> = lost.iter().map(|one| (one.place(), one.bytes)).collect();
    let expected = [("/both", 12_288), ("/journal", 8192), ("/pages", 4096)];
    let expected = expected.map(|(place, bytes)| (place.to_owned(), bytes));
    assert!(expected.iter().all(|one| reported.contains(one)), "{reported:?}");
    assert_eq!(reported.len(), expected.len(), "{reported:?}");
}

/// Bug: the daemon's caches had been dropped when the device failed. `uvfs unmount` named 30 of 30 files by their inode
/// numbers, although the image could still be read.
#[test]
fn lost_files_have_paths_after_their_inodes_left_the_caches() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Faulty::new(WritableMemory::new(image)));
    let vfs = on(device.clone());
    let top = root(&vfs);
    for path in ["a", "a/b", "a/b/c", "e"] {
        top.create_directory(path, 0o755).unwrap();
    }
    let old = create(&vfs, "a/b/c/old");
    old.write_all_at(0, &[1; 4096]).unwrap();
    sync_root(&vfs);
    old.write_all_at(4096, &[2; 4096]).unwrap();
    let new = create(&vfs, "e/new");
    new.write_all_at(0, &[3; 4096]).unwrap();
    top.symlink("nowhere", "a/b/link").unwrap();
    drop((old, new));
    vfs.write_back_all().unwrap();
    device.plan(Faults { flushes: Some(0), ..Faults::default() });
    let file = FileRef::unopened(InodeId::ROOT);
    vfs.sync(vfs.root(), file, SyncMode::All).unwrap_err();
    drop(top);
    vfs.forget_unused();
    let lost = vfs.end();
    let places: Vec<_> = lost.iter().map(|one| (one.place(), one.bytes)).collect();
    let expected = [("/a/b/c/old", 4096), ("/a/b/link", 0), ("/e/new", 4096)];
    assert_eq!(places, expected.map(|(place, bytes)| (place.to_owned(), bytes)));
}

/// Bug: with data in the journal, an overwrite filled one transaction and began another one, which the device refused.
/// The file's inode was the same before and after. So the file was not named, and half of it had its old contents.
#[test]
fn a_file_of_which_a_lost_transaction_has_only_data_is_named() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Faulty::new(WritableMemory::new(image)));
    let journal = WritingConfig { data: DataMode::Journal, ..WritingConfig::default() };
    let config = WritingConfig { commit_interval: HOUR, ..journal };
    let image = WritingImage::open(device.clone(), &config).unwrap();
    let config = VfsConfig { write_back_delay: HOUR, ..VfsConfig::default() };
    let vfs = Vfs::new(image, config).unwrap();
    const BYTES: usize = 2 << 20;
    let file = create(&vfs, "f");
    file.write_all_at(0, &[b'a'; BYTES]).unwrap();
    file.sync(SyncMode::All).unwrap();
    file.write_all_at(0, &[b'b'; BYTES]).unwrap();
    vfs.write_back_all().unwrap();
    device.plan(Faults { writes: Some(0), ..Faults::default() });
    file.sync(SyncMode::All).unwrap_err();
    drop(file);
    let lost = vfs.end();
    let places: Vec<_> = lost.iter().map(Unwritten::place).collect();
    assert_eq!(places, ["/f"]);
    device.plan(Faults::default());
    let shown = shown(device.device().bytes()).read_file("f").unwrap();
    let old = shown.iter().filter(|byte| **byte == b'a').count();
    assert!(old > 0 && old < BYTES, "{old} bytes: the overwrite is more than one transaction");
    assert_eq!(lost[0].bytes, old as u64);
}

/// A kernel opens no file of an image at the store, so a sync names the file alone. In process, each open file has the
/// error for itself.
#[test]
fn an_error_of_write_back_on_an_image_is_reported_once_for_the_file() {
    let _watchdog = Watchdog::new(LIMIT);
    let Some(image) = image("16M", "4096") else { return };
    let device = Arc::new(Faulty::new(WritableMemory::new(image)));
    let vfs = on(device.clone());
    let file = create(&vfs, "f");
    file.write_all_at(0, &[1; 8192]).unwrap();
    file.sync(SyncMode::All).unwrap();
    let other = create(&vfs, "f");
    file.write_all_at(0, &[2; 8192]).unwrap();
    device.plan(Faults { writes: Some(0), once: true, ..Faults::default() });
    // Its second try succeeds.
    let _ = vfs.write_back_all();
    device.plan(Faults::default());
    let by_name = || {
        let unopened = FileRef::unopened(file.node().id());
        vfs.sync(file.node(), unopened, SyncMode::All).map_err(|error| error.errno())
    };
    assert_eq!([by_name(), by_name()], [Err(libc::EIO), Ok(())], "both descriptors of a mount");
    for open in [&file, &other] {
        let results = [(); 2].map(|()| open.sync(SyncMode::All).map_err(|error| error.errno()));
        assert_eq!(results, [Err(libc::EIO), Ok(())], "an open file in process");
    }
    assert_eq!(vfs.end().len(), 0, "nothing is lost");
}

/// A promise about a file, from a moment until another one.
struct Fact {
    from: usize,
    until: usize,
    name: &'static str,
    contents: Vec<Vec<u8>>,
}

/// Work of editors, databases and loggers: pages wait, and the disk is cut at any moment. A replaced file has the old content or
/// the new one, synced data is there, and no file shows what another one left in its blocks.
#[test]
fn a_crash_leaves_synced_data_and_replaced_files() {
    let _watchdog = Watchdog::new(LIMIT * 10);
    let Some(image) = image("8M", "1024") else { return };
    let wanted = std::env::var("UVFS_PAGE_CUTS").ok().and_then(|count| count.parse().ok());
    let wanted: usize = wanted.unwrap_or(FEW);
    let device = Arc::new(Recorder::new(image));
    let vfs = on(device.clone());
    let mut random = Random(5);
    let mut facts: Vec<Fact> = Vec::new();
    let promise = |facts: &mut Vec<Fact>, name: &'static str, contents: Vec<Vec<u8>>| {
        let now = device.moment();
        for fact in facts.iter_mut().filter(|fact| fact.name == name) {
            fact.until = fact.until.min(now);
        }
        facts.push(Fact { from: now, until: usize::MAX, name, contents });
    };
    let top = root(&vfs);
    let (log, base, other) = (create(&vfs, "log"), create(&vfs, "base"), create(&vfs, "other"));
    // The texts that a crash may leave: the last stable one, and those behind.
    let (mut logged, mut texts) = (Vec::new(), vec![b"first".to_vec()]);
    let mut pages = vec![0; 64 << 10];
    top.write_file("text", &texts[0]).unwrap();
    base.write_all_at(0, &pages).unwrap();
    sync_root(&vfs);
    promise(&mut facts, "text", texts.clone());
    for round in 0..60_u8 {
        // A file is saved by a new one.
        let new = vec![round + 1; 1 + random.below(9000) as usize];
        top.write_file("text.new", &new).unwrap();
        texts.push(new);
        promise(&mut facts, "text", texts.clone());
        top.rename("text.new", "text", RenameMode::Replace).unwrap();
        // A log grows, by parts of pages.
        let line = vec![round + 1; 1 + random.below(3000) as usize];
        log.write_all_at(logged.len() as u64, &line).unwrap();
        logged.extend_from_slice(&line);
        // Pages of a database.
        let at = random.below(16) as usize * 4096;
        promise(&mut facts, "base", Vec::new());
        base.write_all_at(at as u64, &[round + 1; 4096]).unwrap();
        pages[at..at + 4096].fill(round + 1);
        // Blocks that change their owner.
        let gone = vec![0xEE; 20_000];
        top.write_file("gone", &gone).unwrap();
        if random.below(2) == 0 {
            vfs.write_back_all().unwrap();
        }
        top.remove_file("gone").unwrap();
        match random.below(5) {
            0 => {
                base.sync(SyncMode::Data).unwrap();
                promise(&mut facts, "base", vec![pages.clone()]);
            }
            1 => {
                log.sync(SyncMode::All).unwrap();
                promise(&mut facts, "log", vec![logged.clone()]);
            }
            // A commit of others.
            2 => {
                other.write_all_at(0, &[round; 10]).unwrap();
                other.sync(SyncMode::All).unwrap();
            }
            3 => {
                sync_root(&vfs);
                texts.drain(..texts.len() - 1);
                promise(&mut facts, "text", texts.clone());
            }
            _ => {}
        }
    }
    assert_eq!(vfs.end().len(), 0);
    let record = device.record().with_whole(1024..2048);
    let flushes = record.flushes();
    for state in 0..wanted {
        let moment = match state % 3 {
            0 => flushes[random.below(flushes.len() as u64) as usize],
            1 => facts[random.below(facts.len() as u64) as usize].from,
            _ => random.below(record.moments() as u64 + 1) as usize,
        };
        let seed = random.next();
        let about = format!("moment {moment}, seed {seed}");
        let device = Arc::new(WritableMemory::new(record.torn(moment, seed, Flushes::Kept)));
        Volume::open(device.clone())
            .unwrap_or_else(|error| panic!("{about}: {error}"))
            .close()
            .unwrap();
        let shown = shown(device.bytes());
        let read = |name: &str| shown.read_file(name).ok();
        for fact in facts.iter().filter(|fact| fact.from <= moment && moment <= fact.until) {
            let Fact { name, contents, .. } = fact;
            let found = read(name).unwrap_or_default();
            let holds = match *name {
                "log" => found.starts_with(&contents[0]),
                _ => contents.is_empty() || contents.contains(&found),
            };
            assert!(holds, "{about}: {name} has {} bytes", found.len());
        }
        let stale = |name: &str| read(name).is_some_and(|found| found.contains(&0xEE));
        assert!(!["text", "log", "base"].iter().any(|name| stale(name)), "{about}: stale blocks");
        let log = read("log").unwrap_or_default();
        assert!(log.iter().zip(&logged).all(|(found, was)| found == was || *found == 0), "{about}");
    }
}
