//! Floor: a file of a written image that a program has mapped: after a crash it has what the program brought to the disk with msync.
//!
//! The pages go from the kernel to those of the core, and from there to the image. Needs root, `/dev/fuse`, python3 and mke2fs; is
//! skipped where they lack. `UVFS_PAGE_CUTS` sets how many crashes are looked at.

use super::delayed::{image, on, shown};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use uvfs_ext_write::device::testing::{Flushes, Random, Recorder};
use uvfs_ext_write::{Volume, WritableMemory};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Watchdog, unmount_idle};

const PAGE: usize = 4096;
const PAGES: usize = 16;
/// The crashes of a run without `UVFS_PAGE_CUTS`.
const FEW: usize = 40;

/// Fills a page of a mapping with a byte, or brings the mapping to the disk; answers each line with one.
const PROGRAM: &str = "import mmap, sys\n\
    file = open(sys.argv[1], 'r+b')\n\
    mapping = mmap.mmap(file.fileno(), 0)\n\
    for line in sys.stdin:\n    \
        if line.startswith('sync'):\n        \
            mapping.flush()\n    \
        else:\n        \
            page, byte = map(int, line.split())\n        \
            mapping[page * 4096:page * 4096 + 4096] = bytes([byte]) * 4096\n    \
        print('done', flush=True)\n";

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn ask(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n", "to {line}");
    }
}

#[test]
fn a_crash_leaves_what_msync_brought() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let Some(bytes) = image("8M", "1024") else { return };
    let folder = tempfile::tempdir().unwrap();
    let top = folder.path().to_owned();
    let _watchdog = Watchdog::with_rescue(Duration::from_secs(300), move || {
        drop(Command::new("umount").arg("-l").arg(top).status());
    });
    let device = Arc::new(Recorder::new(bytes));
    let vfs = on(device.clone());
    let mount = Mount::start(vfs.clone(), folder.path(), MountOptions::default()).unwrap();
    let path = folder.path().join("base");
    fs::write(&path, [0; PAGES * PAGE]).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", PROGRAM]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = python.spawn() else {
        uvfs_skip::lacking("no python3 to map a file");
        unmount_idle(|| mount.unmount(Unmount::Idle));
        return mount.wait();
    };
    let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut program = Program { child, input, output: BufReader::new(output) };
    program.ask("sync");
    let mut random = Random(7);
    let mut pages = [0_u8; PAGES];
    let mut ever: [BTreeSet<u8>; PAGES] = std::array::from_fn(|_| BTreeSet::from([0]));
    let from = device.moment();
    // From when to when the file has these pages.
    let mut facts = vec![(from, usize::MAX, pages)];
    for round in 1..=60 {
        let last = facts.last_mut().unwrap();
        last.1 = last.1.min(device.moment());
        for _ in 0..=random.below(4) {
            let page = random.below(PAGES as u64) as usize;
            program.ask(&format!("{page} {round}"));
            pages[page] = round;
            ever[page].insert(round);
        }
        // Blocks that change their owner.
        let gone = folder.path().join("gone");
        fs::write(&gone, [0xEE; 20_000]).unwrap();
        if random.below(2) == 0 {
            vfs.write_back_all().unwrap();
        }
        fs::remove_file(&gone).unwrap();
        if random.below(2) == 0 {
            program.ask("sync");
            facts.push((device.moment(), usize::MAX, pages));
        }
    }
    drop(program.input);
    assert!(program.child.wait().unwrap().success());
    unmount_idle(|| mount.unmount(Unmount::Idle));
    mount.wait();
    assert_eq!(vfs.end().len(), 0);

    let record = device.record().with_whole(1024..2048);
    let flushes = record.flushes();
    let wanted = std::env::var("UVFS_PAGE_CUTS").ok().and_then(|count| count.parse().ok());
    for state in 0..wanted.unwrap_or(FEW) {
        let moment = match state % 3 {
            0 => flushes[random.below(flushes.len() as u64) as usize],
            1 => facts[random.below(facts.len() as u64) as usize].0,
            _ => from + random.below((record.moments() - from) as u64 + 1) as usize,
        };
        if moment < from {
            continue;
        }
        let seed = random.next();
        let about = format!("moment {moment}, seed {seed}");
        let device = Arc::new(WritableMemory::new(record.torn(moment, seed, Flushes::Kept)));
        let volume = Volume::open(device.clone()).unwrap_or_else(|why| panic!("{about}: {why}"));
        volume.close().unwrap();
        let found = shown(device.bytes()).read_file("base").unwrap();
        assert_eq!(found.len(), PAGES * PAGE, "{about}");
        for (page, bytes) in found.chunks(PAGE).enumerate() {
            let strange = bytes.iter().find(|byte| !ever[page].contains(byte));
            assert_eq!(strange, None, "{about}: page {page}");
        }
        let facts = facts.iter().filter(|(from, until, _)| *from <= moment && moment <= *until);
        for (_, _, pages) in facts {
            let holds = found.chunks(PAGE).zip(pages).all(|(found, is)| found == [*is; PAGE]);
            assert!(holds, "{about}: what msync brought");
        }
    }
}
