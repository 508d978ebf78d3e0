//! Floor: the requests that each system call costs on a mount, counted. The table of docs/request-path.md has to agree.
//!
//! One reader takes the requests in the order in which the kernel sent them. So the STATFSs behind a call come after its
//! RELEASE and FORGET, for which the call does not wait: no time is waited for. Needs root and `/dev/fuse`, and mke2fs
//! for the image; is skipped where they lack.
//!
//! Bug: a document said that a new file is two round trips. It was three, because no test counted them.

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_ext_write::WritableFile;
use uvfs_fuse::{Mount, MountOptions, Transport, Unmount};
use uvfs_tests::{Watchdog, unmount_idle};
use uvfs_vfs::{Caller, SetAttributes, SetTime, Timestamp, Vfs, VfsConfig};

const DOCUMENT: &str = "../docs/request-path.md";
/// The head of the table.
const HEAD: &str = "| call | `memory:` | `dir:` | `image:` | must be |";
const PAGE: usize = 4096;
/// Requests that go behind each call. While there are FORGETs, the kernel sends 16 of them for 8 others.
const STATFS: u64 = 100;

/// What each row has: two files, of which `f` has a page, an empty directory, and a symbolic link.
const NAMES: [&str; 4] = ["f", "old", "d", "link"];

/// A row: its name, what is done before it is counted, and the call.
struct Row {
    call: &'static str,
    before: fn(&Path) -> io::Result<()>,
    counted: fn(&Path) -> io::Result<()>,
}

fn at(path: &Path, name: &str) -> PathBuf {
    path.join(name)
}

/// Has the kernel ask for the attributes of the folder and of what is in it.
fn known(path: &Path) -> io::Result<()> {
    fs::metadata(path)?;
    NAMES.iter().try_for_each(|name| fs::symlink_metadata(at(path, name)).map(drop))
}

/// Without the birth, which `fs::metadata` asks for.
fn stat(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::stat(at(path, "f")).map(drop)?)
}

fn folder(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

fn opened(path: &Path, flags: OFlags) -> io::Result<File> {
    let mode = Mode::from_raw_mode(0o644);
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC, mode)?.into())
}

fn created(path: &Path, name: &str) -> io::Result<File> {
    opened(&at(path, name), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)
}

fn missing(path: &Path) -> io::Result<()> {
    assert!(fs::metadata(at(path, "missing")).is_err());
    Ok(())
}

fn touch(path: &Path) -> io::Result<()> {
    let time = |seconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = rustix::fs::Timestamps { last_access: time(1), last_modification: time(2) };
    Ok(rustix::fs::utimensat(CWD, at(path, "f"), &times, AtFlags::empty())?)
}

fn list(path: &Path) -> io::Result<()> {
    assert_eq!(fs::read_dir(path)?.count(), NAMES.len());
    Ok(())
}

fn read(path: &Path) -> io::Result<()> {
    File::open(at(path, "f"))?.read_exact_at(&mut [0; PAGE], 0)
}

fn write(path: &Path) -> io::Result<()> {
    opened(&at(path, "f"), OFlags::WRONLY)?.write_all_at(&[b'b'; PAGE], 0)
}

fn follow(path: &Path) -> io::Result<()> {
    fs::read_link(at(path, "link")).map(drop)
}

/// Every row works in a folder of its own, `path`, that has [`NAMES`]. The kernel knows nothing of it before.
const ROWS: &[Row] = &[
    Row { call: "`stat`, nothing cached", before: folder, counted: stat },
    Row { call: "`stat` again", before: known, counted: stat },
    Row {
        call: "`statx` with the birth, nothing cached",
        before: folder,
        counted: |path| fs::metadata(at(path, "f")).map(drop),
    },
    Row {
        call: "`statx` with the birth again",
        before: known,
        counted: |path| fs::metadata(at(path, "f")).map(drop),
    },
    Row { call: "`stat` of a missing name", before: folder, counted: missing },
    Row { call: "`stat` of a missing name again", before: missing, counted: missing },
    Row {
        call: "`access`",
        before: known,
        counted: |path| Ok(rustix::fs::access(at(path, "f"), rustix::fs::Access::READ_OK)?),
    },
    Row {
        call: "`open` to read, `close`",
        before: known,
        counted: |path| File::open(at(path, "f")).map(drop),
    },
    Row { call: "`open`, `read`, `close`, nothing cached", before: known, counted: read },
    Row {
        call: "`open`, `read`, `close` again",
        before: |path| known(path).and_then(|()| read(path)),
        counted: read,
    },
    Row { call: "`open` to write, `write`, `close`", before: known, counted: write },
    Row {
        call: "`open` to write, `write`, `close` again",
        before: |path| known(path).and_then(|()| write(path)),
        counted: write,
    },
    Row {
        call: "`open` with `O_TRUNC`, `close`",
        before: known,
        counted: |path| opened(&at(path, "f"), OFlags::WRONLY | OFlags::TRUNC).map(drop),
    },
    Row {
        call: "`open` with `O_CREAT`, `close`",
        before: known,
        counted: |path| created(path, "new").map(drop),
    },
    Row {
        call: "`open` with `O_CREAT`, `close`, the next file",
        before: |path| created(path, "first").map(drop),
        counted: |path| created(path, "second").map(drop),
    },
    Row {
        call: "`open` with `O_CREAT`, `write`, `close`",
        before: known,
        counted: |path| created(path, "new")?.write_all_at(&[b'a'; PAGE], 0),
    },
    Row {
        call: "`mknod`",
        before: known,
        counted: |path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o644));
            Ok(rustix::fs::mknodat(CWD, at(path, "fifo"), kind, mode, 0)?)
        },
    },
    Row { call: "`mkdir`", before: known, counted: |path| fs::create_dir(at(path, "new")) },
    Row { call: "`rmdir`", before: known, counted: |path| fs::remove_dir(at(path, "d")) },
    Row { call: "`symlink`", before: known, counted: |path| symlink("to", at(path, "new")) },
    Row { call: "`readlink`", before: known, counted: follow },
    Row {
        call: "`readlink` again",
        before: |path| known(path).and_then(|()| follow(path)),
        counted: follow,
    },
    Row {
        call: "`link`",
        before: known,
        counted: |path| fs::hard_link(at(path, "f"), at(path, "new")),
    },
    Row { call: "`unlink`", before: known, counted: |path| fs::remove_file(at(path, "f")) },
    Row {
        call: "`unlink`, the next file",
        before: |path| known(path).and_then(|()| fs::remove_file(at(path, "old"))),
        counted: |path| fs::remove_file(at(path, "f")),
    },
    Row {
        call: "`rename` to a new name",
        before: known,
        counted: |path| fs::rename(at(path, "f"), at(path, "new")),
    },
    Row {
        call: "`rename` over a file",
        before: known,
        counted: |path| fs::rename(at(path, "f"), at(path, "old")),
    },
    Row {
        call: "`rename` with `RENAME_EXCHANGE`",
        before: known,
        counted: |path| {
            let flags = RenameFlags::EXCHANGE;
            Ok(rustix::fs::renameat_with(CWD, at(path, "f"), CWD, at(path, "old"), flags)?)
        },
    },
    Row { call: "`opendir`, `readdir` to the end, `closedir`", before: folder, counted: list },
    Row {
        call: "`opendir`, `readdir` to the end, `closedir` again",
        before: |path| known(path).and_then(|()| list(path)),
        counted: list,
    },
    Row {
        call: "`chmod`",
        before: known,
        counted: |path| fs::set_permissions(at(path, "f"), Permissions::from_mode(0o600)),
    },
    Row {
        call: "`chown`",
        before: known,
        counted: |path| std::os::unix::fs::chown(at(path, "f"), Some(1), Some(1)),
    },
    Row { call: "`utimensat`", before: known, counted: touch },
    Row {
        call: "`stat` after `utimensat`",
        before: |path| known(path).and_then(|()| touch(path)),
        counted: stat,
    },
    Row {
        call: "`open`, `ftruncate`, `close`",
        before: known,
        counted: |path| opened(&at(path, "f"), OFlags::WRONLY)?.set_len(5),
    },
    Row {
        call: "`open`, `fallocate`, `close`",
        before: known,
        counted: |path| {
            let file = opened(&at(path, "f"), OFlags::WRONLY)?;
            Ok(rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 3 * PAGE as u64)?)
        },
    },
    Row {
        call: "`open`, `lseek` with `SEEK_HOLE`, `close`",
        before: known,
        counted: |path| {
            let file = File::open(at(path, "f"))?;
            Ok(rustix::fs::seek(&file, SeekFrom::Hole(0)).map(drop)?)
        },
    },
    Row {
        call: "`open`, `open`, `copy_file_range` of one page, `close`, `close`",
        before: known,
        counted: |path| {
            let from = File::open(at(path, "f"))?;
            let to = opened(&at(path, "old"), OFlags::WRONLY)?;
            let done = rustix::fs::copy_file_range(&from, None, &to, None, PAGE)?;
            assert_eq!(done, PAGE);
            Ok(())
        },
    },
    Row {
        call: "`open`, `fsync`, `close`, nothing written",
        before: known,
        counted: |path| File::open(at(path, "f"))?.sync_all(),
    },
    Row {
        call: "`open` of a directory, `fsync`, `close`",
        before: known,
        counted: |path| File::open(path)?.sync_all(),
    },
    Row {
        call: "`getxattr`, no such attribute",
        before: known,
        counted: |path| {
            let none: &mut [u8] = &mut [0; 16];
            assert!(rustix::fs::getxattr(at(path, "f"), "user.none", none).is_err());
            Ok(())
        },
    },
    Row {
        call: "`setxattr`",
        before: known,
        counted: |path| {
            let flags = XattrFlags::empty();
            Ok(rustix::fs::setxattr(at(path, "f"), "user.a", b"value", flags)?)
        },
    },
    Row {
        call: "`listxattr`",
        before: known,
        counted: |path| {
            let names: &mut [u8] = &mut [0; 256];
            Ok(rustix::fs::listxattr(at(path, "f"), names).map(drop)?)
        },
    },
    Row {
        call: "`statfs`",
        before: known,
        counted: |path| Ok(rustix::fs::statfs(path).map(|_| ())?),
    },
];

/// A mount of one kind of store.
struct Mounted {
    mount: Mount,
    vfs: Arc<Vfs>,
    _store: tempfile::TempDir,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    fn over(kind: &str) -> Option<Self> {
        let (store, directory) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        // Answers of a shared store stay believed, however slow the machine is.
        let hour = Duration::from_secs(3600);
        let config = VfsConfig {
            attr_timeout: hour,
            entry_timeout: hour,
            negative_timeout: hour,
            ..VfsConfig::default()
        };
        let vfs = match kind {
            "memory:" => Vfs::new(MemoryBackend::new(MemoryConfig::default()).unwrap(), config),
            "dir:" => {
                let config_of = DirectoryConfig::default();
                Vfs::new(DirectoryBackend::open(store.path(), config_of).unwrap(), config)
            }
            _ => Vfs::new(image(store.path())?, config),
        }
        .unwrap();
        // Before the mount: no message to or from the kernel is late then.
        let root = vfs.root_directory(Caller::root());
        for row in 0..ROWS.len() {
            let at = |name| format!("row-{row}/{name}");
            root.create_directory(format!("row-{row}"), 0o755).unwrap();
            root.write_file(at("f"), [b'a'; PAGE]).unwrap();
            root.write_file(at("old"), b"").unwrap();
            root.create_directory(at("d"), 0o755).unwrap();
            root.symlink("to", at("link")).unwrap();
            // The time of a folder that was just changed does not tell listings apart.
            let long_ago = Some(SetTime::At(Timestamp { seconds: 1_000_000_000, nanoseconds: 0 }));
            let set = SetAttributes { mtime: long_ago, ..SetAttributes::default() };
            root.set_attributes(format!("row-{row}"), &set).unwrap();
        }
        root.write_file("first", b"").unwrap();
        drop(root);
        let path = directory.path().to_owned();
        let watchdog = Watchdog::with_rescue(Duration::from_secs(90), move || {
            let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        });
        let options = MountOptions {
            readers: Some(1),
            transport: Transport::Device,
            control_socket: false,
            ..MountOptions::default()
        };
        let mount = Mount::start(vfs.clone(), directory.path(), options).unwrap();
        Some(Self { mount, vfs, _store: store, directory, _watchdog: watchdog })
    }

    /// Requests by kind so far; all that were sent have come, and are done.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        for _ in 0..STATFS {
            rustix::fs::statfs(self.directory.path()).unwrap();
        }
        loop {
            let requests = self.mount.statistics().requests;
            // An answer beside a change is not believed.
            if requests.iter().all(|one| one.latency.count == one.count) {
                return requests.iter().map(|one| (one.request, one.count)).collect();
            }
            std::thread::yield_now();
        }
    }

    /// The requests of each row, in the document's words.
    fn measured(&self) -> Vec<String> {
        // Some requests the kernel sends once, and hears that it need not send them.
        File::open(self.directory.path().join("first")).unwrap().sync_all().unwrap();
        File::open(self.directory.path()).unwrap().sync_all().unwrap();
        let measure = |(at, row): (usize, &Row)| {
            let path = self.directory.path().join(format!("row-{at}"));
            let failed = |error: io::Error| panic!("{}: {error}", row.call);
            (row.before)(&path).unwrap_or_else(failed);
            let before = self.counts();
            (row.counted)(&path).unwrap_or_else(failed);
            let mut after = self.counts();
            *after.get_mut("statfs").expect("they came") -= STATFS;
            in_words(&before, &after)
        };
        ROWS.iter().enumerate().map(measure).collect()
    }

    fn end(self) {
        unmount_idle(|| self.mount.unmount(Unmount::Idle));
        self.mount.wait();
        drop(self.mount);
        assert_eq!(self.vfs.end().len(), 0, "lost");
    }
}

/// An ext4 image in `folder`; `None`, with a note, without mke2fs.
fn image(folder: &Path) -> Option<WritingImage> {
    let path = folder.join("image");
    File::create(&path).unwrap().set_len(16 << 20).unwrap();
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4", "-F"]).arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        uvfs_skip::lacking("mke2fs");
        return None;
    }
    let device = Arc::new(WritableFile::open(&path).unwrap());
    Some(WritingImage::open(device, &WritingConfig::default()).unwrap())
}

/// The difference of two counts, such as `LOOKUP 2, READ`.
fn in_words(before: &BTreeMap<&str, u64>, after: &BTreeMap<&str, u64>) -> String {
    let mut words: Vec<String> = Vec::new();
    for (kind, count) in after {
        match count - before.get(kind).unwrap_or(&0) {
            0 => {}
            1 => words.push(kind.to_uppercase()),
            more => words.push(format!("{} {more}", kind.to_uppercase())),
        }
    }
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// The lines of the document's table: calls, and their cells for the three kinds.
fn documented() -> Vec<(String, Vec<String>)> {
    let text = fs::read_to_string(DOCUMENT).unwrap();
    let (_, table) = text.split_once(HEAD).expect("the head of the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let mut cells = line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned());
        (cells.next().expect("a call"), cells.take(3).collect())
    };
    rows.map(cells).collect()
}

#[test]
fn each_call_costs_the_requests_that_the_document_says() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let kinds = ["memory:", "dir:", "image:"];
    let measured = kinds.map(|kind| {
        let mounted = Mounted::over(kind)?;
        let measured = mounted.measured();
        mounted.end();
        Some(measured)
    });
    let documented = documented();
    let (mut table, mut differs) = (String::new(), documented.len() != ROWS.len());
    for (at, row) in ROWS.iter().enumerate() {
        let said = documented.iter().find(|(call, _)| call == row.call).map(|(_, cells)| cells);
        let cells = std::array::from_fn::<_, 3, _>(|kind| match &measured[kind] {
            Some(measured) => measured[at].as_str(),
            // Not measured here: as it is written.
            None => said.and_then(|cells| cells.get(kind)).map_or("?", String::as_str),
        });
        differs |= said.is_none_or(|said| said != cells.as_slice());
        let _ = writeln!(table, "| {} | {} | |", row.call, cells.join(" | "));
    }
    assert!(!differs, "docs/request-path.md says otherwise; counted:\n{HEAD}\n{table}");
}
