//! Floor: uvfs as a library, as its users see it: the writable store of the example, in process and
//! mounted; unsupported operations; impossible answers of a store.
//!
//! Bug: `mv` on a first store returned "Read-only file system", although nothing was read-only. A
//! `create` that made a file for `mkdir` failed with EIO and no line in the log. The error for a
//! missing mount point was "NotFound", without its path.

use key_value::KeyValue;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use uvfs_fuse::{Mount, MountError, MountOptions, Unmount};
use uvfs_tests::{Watchdog, unmount_idle};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Creation, Data, Directory, Entry, Error,
    FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, NewNode, RenameMode, Result, Vfs,
    VfsConfig,
};

#[path = "../../../crates/fuse/examples/key_value.rs"]
mod key_value;

fn root_of(store: impl Backend) -> Directory {
    Vfs::new(store, VfsConfig::default()).unwrap().root_directory(Caller::root())
}

#[test]
fn the_example_is_a_store_to_write_to() {
    let root = root_of(KeyValue::default());
    root.write_file("motto", b"no lock on a hit").unwrap();
    assert_eq!(root.read_file("motto").unwrap(), b"no lock on a hit");
    root.write_file("motto", b"short").unwrap();
    assert_eq!(root.read_file("motto").unwrap(), b"short");
    assert_eq!(root.stat("motto").unwrap().size, 5);
    root.write_file("second", b"").unwrap();
    root.remove_file("motto").unwrap();
    assert!(matches!(root.stat("motto"), Err(Error::NotFound)));
    let left: Vec<_> = root.list_all().unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(left, [b"second".to_vec()]);
}

/// "There is no such call" is not "nothing can be changed".
#[test]
fn what_a_writable_store_does_not_do_is_unsupported_and_not_read_only() {
    let root = root_of(KeyValue::default());
    root.write_file("a", b"x").unwrap();
    let refusals = [
        root.rename("a", "b", RenameMode::Replace).err(),
        root.create_directory("d", 0o755).err(),
        root.link("a", "c").err(),
        root.symlink("a", "s").err(),
    ];
    for refusal in refusals {
        assert!(matches!(refusal, Some(Error::Unsupported(_))), "{refusal:?}");
    }
    assert_eq!(root.read_file("a").unwrap(), b"x");
}

/// A store that only has the six methods that it must have, and may be changed or not.
struct Bare(Capabilities);

impl Backend for Bare {
    fn capabilities(&self) -> Capabilities {
        self.0
    }
    fn root(&self) -> Result<Entry> {
        self.lookup(&Caller::root(), InodeId::ROOT, Name::new(b"x")?)
    }
    fn names(&self) -> &dyn Names {
        self
    }
    fn inodes(&self) -> &dyn Inodes {
        self
    }
    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for Bare {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        match name.as_bytes() {
            b"x" => Ok(Entry {
                inode: InodeId::ROOT,
                attributes: Attributes::new(1, FileKind::Directory, 0o777),
            }),
            _ => Err(Error::NotFound),
        }
    }
    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Inodes for Bare {
    fn attributes(&self, _: FileRef) -> Result<Attributes> {
        Ok(self.root()?.attributes)
    }
}

impl Data for Bare {
    fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
}

#[test]
fn only_a_store_that_says_so_is_read_only() {
    let refusals = |capabilities| {
        let root = root_of(Bare(capabilities));
        [root.write_file("f", b"").err(), root.create_directory("d", 0o755).err()]
    };
    for refusal in refusals(Capabilities::read_write("bare")) {
        assert!(matches!(refusal, Some(Error::Unsupported(_))), "{refusal:?}");
    }
    for refusal in refusals(Capabilities::read_only("bare")) {
        assert!(matches!(refusal, Some(Error::ReadOnly)), "{refusal:?}");
    }
}

/// A store with impossible answers.
struct Liar;

impl Liar {
    fn file(&self) -> Entry {
        let mut attributes = Attributes::new(2, FileKind::Regular, 0o666);
        attributes.size = 10;
        Entry { inode: InodeId(2), attributes }
    }
}

impl Backend for Liar {
    fn capabilities(&self) -> Capabilities {
        Capabilities::read_write("liar")
    }
    fn root(&self) -> Result<Entry> {
        let attributes = Attributes::new(1, FileKind::Directory, 0o777);
        Ok(Entry { inode: InodeId::ROOT, attributes })
    }
    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        Some(self)
    }
    fn inodes(&self) -> &dyn Inodes {
        self
    }
    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for Liar {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() == b"file" { Ok(self.file()) } else { Err(Error::NotFound) }
    }

    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Creation for Liar {
    fn create(&self, _: &Caller, _: InodeId, _: Name<'_>, _: &NewNode<'_>) -> Result<Entry> {
        Ok(self.file())
    }
}

impl Inodes for Liar {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        let entry = if file.inode == InodeId::ROOT { self.root()? } else { self.file() };
        Ok(entry.attributes)
    }
}

impl Data for Liar {
    fn read(&self, _: FileRef, _: u64, into: &mut [u8]) -> Result<usize> {
        Ok(into.len() + 1)
    }
}

#[test]
fn what_cannot_be_is_refused_and_said_in_the_log() {
    let log = Log::open();
    let root = root_of(Liar);
    let made = root.create_directory("new\ndirectory", 0o755);
    assert!(matches!(made, Err(Error::Corrupt(_))), "{made:?}");
    log.says("store liar returned an impossible answer: creating Directory \"new\\ndirectory\"");
    let read = root.read_file("file");
    assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
    log.says("store liar returned an impossible answer: read of ");
}

#[test]
fn a_mount_that_fails_says_where() {
    let vfs = Vfs::new(KeyValue::default(), VfsConfig::default()).unwrap();
    let refused = Mount::start(vfs, "/nowhere/at/all", MountOptions::default()).unwrap_err();
    assert!(
        matches!(&refused, MountError::Mountpoint { path, .. } if path == Path::new("/nowhere/at/all"))
    );
    assert!(refused.to_string().starts_with("mountpoint /nowhere/at/all: "), "{refused}");
    let general = io::Error::from(refused);
    assert_eq!(general.kind(), io::ErrorKind::NotFound);
    assert!(general.to_string().contains("/nowhere/at/all"));
}

/// The tutorial's store works behind the kernel, and unsupported operations return EOPNOTSUPP.
#[test]
fn the_example_mounts() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let _watchdog = Watchdog::with_rescue(Duration::from_secs(90), move || {
        let _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
    });
    let vfs = Vfs::new(KeyValue::default(), VfsConfig::default()).unwrap();
    let mount = Mount::start(Arc::clone(&vfs), directory.path(), MountOptions::default()).unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "some bytes").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "some bytes");
    let refused = fs::rename(&file, directory.path().join("other")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
    let refused = fs::create_dir(directory.path().join("folder")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
    fs::remove_file(&file).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    unmount_idle(|| mount.unmount(Unmount::Idle));
    mount.wait();
}

/// Sends the lines of the log to the one test that reads them.
struct Log(Receiver<String>);

struct Lines(Sender<String>);

impl Log {
    /// Once in a process: `log` takes one logger for its life.
    fn open() -> Self {
        let (send, receive) = channel();
        log::set_logger(Box::leak(Box::new(Lines(send)))).expect("the only logger here");
        log::set_max_level(log::LevelFilter::Error);
        Self(receive)
    }

    #[track_caller]
    fn says(&self, words: &str) {
        let lines: Vec<_> = self.0.try_iter().collect();
        assert!(lines.iter().any(|line| line.starts_with(words)), "{words:?} is not in {lines:?}");
    }
}

impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        // There is no reader when the test is over.
        let _ = self.0.send(record.args().to_string());
    }
    fn flush(&self) {}
}
