//! Floor: through the kernel. Direct writes, and the kernel's page cache after them.
//!
//! Needs root, `/dev/fuse` and `cc`; is skipped where they lack. The writer is a separate program
//! (`tests/conformance/aio.c`) that is controlled line by line; the store is in memory and holds calls by plan, so that
//! each interleaving here is forced and not awaited. Every mount has a watchdog that aborts the FUSE connection before
//! it ends the process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Hostile, Watchdog, hostile, vfs_over};
use uvfs_vfs::{Opens, PagePolicy, VfsConfig, Waits};

const PAGE: usize = 4096;
/// Background requests that the kernel has in flight at once: the limit set by `init` of the transport.
const BACKGROUND: usize = 64;

/// A mounted store with a file `f`, and an asynchronous direct writer of that file.
struct Direct {
    hostile: Hostile,
    writer: Writer,
    mount: Mount,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

struct Writer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Direct {
    /// `f` is `pages` long and full of `a`. `None`, with a note, where this cannot be run.
    fn new(opens: Opens, pages: usize) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (_folder, program) = compiled()?;
        let path = directory.path().to_owned();
        let watchdog = Watchdog::with_rescue(Duration::from_secs(90), move || {
            abort(&path);
            let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        });
        let hostile = hostile().claiming(|can| (can.waits, can.opens) = (Waits::Sometimes, opens));
        let vfs = vfs_over(&hostile, VfsConfig::default());
        let options = MountOptions { readers: Some(2), ..MountOptions::default() };
        let mount = Mount::start(vfs, directory.path(), options).unwrap();
        let file = directory.path().join("f");
        fs::write(&file, vec![b'a'; pages * PAGE]).unwrap();
        let writer = Writer::of(&program, &file);
        Some(Self { hostile, writer, mount, directory, _watchdog: watchdog })
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("f")
    }

    /// Which byte each page is full of, through the kernel's page cache.
    fn pages(&self) -> String {
        pages_of(&fs::read(self.file()).unwrap())
    }

    /// Holds each write of the store before it is done.
    fn hold_writes(&self) -> Gate {
        let gate = Gate::new();
        let hold = Fault::Hold(Moment::Before, gate.clone());
        self.hostile.follow(Plan::new().when(On::call(Call::Write), hold));
        gate
    }

    fn end(mut self) {
        drop(self.writer.to);
        self.writer.child.wait().unwrap();
        self.mount.unmount(Unmount::Lazy).unwrap();
        self.mount.wait();
    }
}

impl Writer {
    fn of(program: &Path, file: &Path) -> Self {
        let mut command = Command::new(program);
        let piped = command.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, to, from: BufReader::new(from) }
    }

    fn says(&mut self, asked: &str) -> String {
        writeln!(self.to, "{asked}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// The program, and the folder that it is in until that is dropped. `None` where it cannot be made.
fn compiled() -> Option<(tempfile::TempDir, PathBuf)> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/aio.c");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("aio");
    match Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).output() {
        Err(error) => {
            uvfs_skip::lacking(format_args!("no C compiler ({error})"));
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some((folder, program))
        }
    }
}

fn pages_of(bytes: &[u8]) -> String {
    let whole = |page: &[u8]| page.iter().all(|byte| *byte == page[0]);
    bytes.chunks(PAGE).map(|page| if whole(page) { char::from(page[0]) } else { '?' }).collect()
}

fn abort(path: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let line = table.lines().find(|line| line.split(' ').nth(4) == path.to_str());
    let minor = line.and_then(|line| line.split(' ').nth(2)?.split(':').nth(1));
    let Some(minor) = minor else { return };
    let Ok(control) = tempfile::tempdir() else { return };
    let flags = rustix::mount::MountFlags::empty();
    if rustix::mount::mount("none", control.path(), "fusectl", flags, None).is_ok() {
        let _ = fs::write(control.path().join(minor).join("abort"), "1");
        let _ = rustix::mount::unmount(control.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

fn each_kind_of_store(mut test: impl FnMut(Opens)) {
    for opens in [Opens::Stateless, Opens::Tracked] {
        test(opens);
    }
}

/// Bug: xfstests generic/451 showed: beside an asynchronous direct writer, `cat` still showed old bytes after all
/// writes were complete, for ever on `memory:`. The kernel drops its pages of the range *before* it sends such a write,
/// and not again when the write completes (a synchronous one: also after). Pages read between the two stayed.
#[test]
fn what_was_read_during_a_direct_write_does_not_outlive_it() {
    each_kind_of_store(|opens| {
        let Some(mut direct) = Direct::new(opens, 8) else { return };
        // Also through a file that stays open: another open may make the kernel ask again.
        let open = File::open(direct.file()).unwrap();
        let gate = direct.hold_writes();
        assert_eq!(direct.writer.says(&format!("submit {PAGE} {PAGE} 98 3")), "submitted");
        gate.wait_for(3);
        assert_eq!(direct.pages(), "aaaaaaaa", "the store has not got them yet");
        gate.open();
        assert_eq!(direct.writer.says("wait"), "complete");
        let mut bytes = vec![0; 8 * PAGE];
        open.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(pages_of(&bytes), "abbbaaaa", "{opens:?}: through the file that stayed open");
        assert_eq!(direct.pages(), "abbbaaaa", "{opens:?}");
        drop(open);
        direct.end();
    });
}

/// Dropping pages waits for reads of them that are under way, and the kernel sends no more such reads while
/// too many direct writes are unanswered: if all of these waited for the pages, none would ever end.
#[test]
fn direct_writes_that_fill_the_kernels_queue_do_not_wait_for_reads_behind_them() {
    each_kind_of_store(|opens| {
        let Some(mut direct) = Direct::new(opens, BACKGROUND) else { return };
        let gate = direct.hold_writes();
        // All of them within the kernel's limit of concurrent requests.
        for _ in 0..BACKGROUND / 16 {
            assert_eq!(direct.writer.says(&format!("submit 0 {PAGE} 98 16")), "submitted");
        }
        gate.wait_for(BACKGROUND);
        std::thread::scope(|scope| {
            let file = File::open(direct.file()).unwrap();
            let (send, receive) = std::sync::mpsc::channel();
            let reader = scope.spawn(move || {
                send.send(rustix::thread::gettid()).unwrap();
                // A read-ahead that the kernel does not leave out when it has much under way.
                let will_need = rustix::fs::Advice::WillNeed;
                rustix::fs::fadvise(&file, 0, None, will_need).unwrap();
                let mut bytes = vec![0; BACKGROUND * PAGE];
                file.read_exact_at(&mut bytes, 0).map(|()| bytes)
            });
            sleeps(receive.recv().unwrap());
            gate.open();
            assert_eq!(direct.writer.says("wait"), "complete");
            let seen = pages_of(&reader.join().unwrap().unwrap());
            assert!(seen.chars().all(|page| "ab".contains(page)), "{seen}");
        });
        // Not all of so many writers wait until the kernel's pages are dropped, but the pages are dropped all the same.
        let end = Instant::now() + Duration::from_secs(20);
        let last = "b".repeat(16) + &"a".repeat(BACKGROUND - 16);
        while direct.pages() != last {
            assert!(Instant::now() < end, "{opens:?}: {}", direct.pages());
        }
        direct.end();
    });
}

/// Waits until a thread of this process sleeps uninterruptibly, like one that waits for a page; gives up after a while,
/// and the caller then proves less and fails nothing.
fn sleeps(thread: rustix::thread::Pid) {
    let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        let line = fs::read_to_string(&path).unwrap_or_default();
        if line.rsplit(") ").next().is_some_and(|rest| rest.starts_with('D')) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Follows generic/451: many rounds of direct writes beside readers, then both kinds of reader agree.
#[test]
fn readers_beside_direct_writers_see_the_last_bytes() {
    let Some(mut direct) = Direct::new(Opens::Stateless, 160) else { return };
    let stop = std::sync::atomic::AtomicBool::new(false);
    let file = direct.file();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // ORDERING: Relaxed; it only has to end some time.
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(fs::read(&file).unwrap().len(), 160 * PAGE);
                }
            });
        }
        for round in 0..40 {
            let byte = b'a' + (round % 26);
            let asked = format!("submit 0 {} {byte} 20", 8 * PAGE);
            assert_eq!(direct.writer.says(&asked), "submitted");
            assert_eq!(direct.writer.says("wait"), "complete");
            assert_eq!(direct.pages(), char::from(byte).to_string().repeat(160), "{round}");
        }
        // ORDERING: Relaxed; a flag that ends a loop.
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    direct.end();
}

/// A new file that is open for writing only is written past the kernel's pages. Other descriptors and mappings show each
/// write as soon as it has returned, and a write beside a change of a mapping loses neither.
const BESIDE: &str = "import mmap, os, sys\n\
    path = sys.argv[1]\n\
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)\n\
    assert os.write(writer, b'a' * 32768) == 32768\n\
    reader = os.open(path, os.O_RDWR)\n\
    mapping = mmap.mmap(reader, 0)\n\
    assert mapping[:] == b'a' * 32768\n\
    os.pwrite(writer, b'b' * 4096, 3 * 4096)\n\
    assert mapping[3 * 4096:4 * 4096] == b'b' * 4096\n\
    assert os.pread(reader, 3, 4 * 4096 - 1) == b'baa'\n\
    mapping[5 * 4096] = ord('c')\n\
    os.pwrite(writer, b'd', 5 * 4096 + 100)\n\
    assert mapping[5 * 4096:5 * 4096 + 101] == b'c' + b'a' * 99 + b'd'\n\
    assert os.fstat(writer).st_size == 32768\n\
    os.ftruncate(writer, 10)\n\
    os.pwrite(writer, b'e', 12)\n\
    assert os.pread(reader, 20, 0) == b'a' * 10 + b'\\0\\0e'\n\
    os.setxattr(path, 'security.capability', bytes([1, 0, 0, 2, 1] + 15 * [0]))\n\
    os.pwrite(writer, b'e', 12)\n\
    assert not os.listxattr(path)\n\
    os.fsync(writer)\n\
    os.close(writer)\n\
    writer = os.open(path, os.O_WRONLY | os.O_APPEND)\n\
    os.write(writer, b'f')\n\
    assert os.pread(reader, 20, 0) == b'a' * 10 + b'\\0\\0ef'\n";

#[test]
fn what_is_written_past_the_kernels_pages_shows_in_them() {
    over_our_pages(BESIDE, |_| {});
}

/// Found in a review: the kernel sends no FSYNC after a synchronous write of such a descriptor.
#[test]
fn a_synchronous_write_past_the_kernels_pages_is_stable() {
    let script = "import os, sys\n\
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL\n\
        writer = os.open(sys.argv[1], flags)\n\
        os.pwritev(writer, [b'a'], 0)\n\
        os.pwritev(writer, [b'b'], 1, os.RWF_DSYNC)\n\
        writer = os.open(sys.argv[1] + '2', flags | os.O_DSYNC)\n\
        os.write(writer, b'c')\n\
        writer = os.open(sys.argv[1] + '3', flags | os.O_SYNC)\n\
        os.write(writer, b'd')\n";
    over_our_pages(script, |hostile| assert_eq!(hostile.made(Call::Sync), 3));
}

/// Runs `script` with the name of a new file in a mount with a page cache, and then `look`.
fn over_our_pages(script: &str, look: impl Fn(&Hostile)) {
    for opens in [Opens::Stateless, Opens::Tracked] {
        if !uvfs_skip::can_mount() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let _watchdog = Watchdog::with_rescue(Duration::from_secs(90), move || {
            abort(&path);
            let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        });
        let hostile = hostile().claiming(|can| (can.waits, can.opens) = (Waits::Sometimes, opens));
        let config = VfsConfig { pages: PagePolicy::WriteBack, ..VfsConfig::default() };
        let vfs = vfs_over(&hostile, config);
        let options = MountOptions { readers: Some(2), ..MountOptions::default() };
        let mount = Mount::start(vfs, directory.path(), options).unwrap();
        let mut command = Command::new("python3");
        match command.args(["-c", script]).arg(directory.path().join("new")).output() {
            Err(error) => uvfs_skip::lacking(format_args!("no python3 ({error})")),
            Ok(output) => {
                let printed = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{opens:?}: {printed}");
                look(&hostile);
            }
        }
        mount.unmount(Unmount::Lazy).unwrap();
        mount.wait();
    }
}
