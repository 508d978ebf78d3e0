//! Data that a store does not take: reported by path, at the end and before.
//!
//! Bug: a first-time user's daemon wrote "inode 147: cannot write back" into its log, and no command could name that
//! file.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_tests::paged::{Kind, assert_references_come_back, difference, stored};
use uvfs_tests::{Hostile, Watchdog, root};
use uvfs_vfs::backend::RenameMode;
use uvfs_vfs::{Error, OpenOptions, Opens, SyncMode, Vfs, VfsConfig};

/// A file system that writes back when it is asked to, and its store.
fn scene(kind: Kind) -> (Arc<Vfs>, Hostile) {
    let store = kind.store();
    let write_back_delay = Duration::from_secs(3600);
    let (vfs, _) = kind.mount(&store, VfsConfig { write_back_delay, ..VfsConfig::default() });
    (vfs, store)
}

fn refuse_writes(store: &Hostile) {
    store
        .follow(Plan::new().when(On::call(Call::Write), Fault::Fail(Moment::Before, libc::ENOSPC)));
}

/// Writes without closing: nothing is written back to the store.
fn write(vfs: &Arc<Vfs>, path: &str, bytes: usize) -> uvfs_vfs::File {
    let file = root(vfs).open(path, OpenOptions::write().create(0o600)).expect(path);
    file.write_at(0, &vec![7; bytes]).expect("the cache has room");
    file
}

/// Paths, bytes and the store's error.
fn lines(files: Vec<uvfs_vfs::Unwritten>) -> Vec<String> {
    files.iter().map(ToString::to_string).collect()
}

fn kinds() -> [Kind; 2] {
    [Kind::sole(Opens::Stateless), Kind::sole(Opens::Tracked)]
}

#[test]
fn what_was_lost_is_named_by_path_at_the_end() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for kind in kinds() {
        let (vfs, store) = scene(kind);
        let top = root(&vfs);
        top.create_directory("a", 0o700).unwrap();
        top.create_directory("a/b", 0o700).unwrap();
        let files = [write(&vfs, "a/b/x", 5000), write(&vfs, "y\n", 10), write(&vfs, "gone", 10)];
        top.rename("a/b", "a/c", RenameMode::Replace).unwrap();
        top.remove_file("gone").unwrap();
        let before = lines(vfs.unwritten());
        assert!(before.contains(&"/a/c/x: 5000 bytes".to_string()), "{kind:?}: {before:?}");
        refuse_writes(&store);
        drop(files);
        let lost = vfs.end();
        assert!(lost.iter().all(|file| matches!(file.error, Some(Error::NoSpace))), "{lost:?}");
        let full = std::io::Error::from_raw_os_error(libc::ENOSPC);
        let expected = [format!("/a/c/x: 5000 bytes: {full}"), format!("/y\\n: 10 bytes: {full}")];
        assert_eq!(lines(lost), expected, "{kind:?}: not what was removed");
        assert_eq!(lines(vfs.end()), [""; 0], "{kind:?}: once");
    }
}

/// Names are evicted long before unwritten data is given up.
#[test]
fn a_name_that_is_not_cached_any_more_is_found_in_the_store() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for kind in kinds() {
        let (vfs, store) = scene(kind);
        let top = root(&vfs);
        top.create_directory("a", 0o700).unwrap();
        for at in 0..3000 {
            top.write_file(format!("a/{at:04}"), b"").unwrap();
        }
        let file = write(&vfs, "a/x", 5000);
        refuse_writes(&store);
        drop(file);
        vfs.forget_unused();
        let lost: Vec<_> = vfs.end().into_iter().filter_map(|file| file.path).collect();
        assert_eq!(lost, [b"a/x".to_vec()], "{kind:?}");
        // Of those, too, that the search was given.
        assert_references_come_back(&vfs, &store);
    }
}

/// Bug: a request wrote to another file while the end looked for the name of a lost one. Its data was dropped, and no
/// list named it.
#[test]
fn what_is_written_while_the_end_looks_for_names_is_not_dropped() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for kind in kinds() {
        let (vfs, store) = scene(kind);
        let late = write(&vfs, "late", 0);
        root(&vfs).create_directory("a", 0o700).unwrap();
        drop(write(&vfs, "a/x", 5000));
        vfs.forget_unused();
        let gate = Gate::new();
        let refused = Fault::Fail(Moment::Before, libc::ENOSPC);
        let held = Fault::Hold(Moment::Before, gate.clone());
        let plan = Plan::new().when(On::call(Call::Write), refused);
        store.follow(plan.when(On::call(Call::List), held));
        let lost = std::thread::scope(|scope| {
            let end = scope.spawn(|| vfs.end());
            gate.wait_for(1);
            late.write_at(0, &[7; 5000]).unwrap();
            gate.open();
            end.join().unwrap()
        });
        let lost: Vec<_> = lost.into_iter().filter_map(|file| file.path).collect();
        assert_eq!(lost, [b"a/x".to_vec()], "{kind:?}");
        store.behave();
        assert_eq!(lines(vfs.end()), [""; 0], "{kind:?}");
        assert_eq!(difference(&stored(&store, "late"), &[7; 5000]), None, "{kind:?}");
    }
}

#[test]
fn a_store_that_takes_everything_loses_nothing() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    for kind in kinds() {
        let (vfs, store) = scene(kind);
        let file = write(&vfs, "x", 5000);
        assert_eq!(lines(vfs.unwritten()), ["/x: 5000 bytes"], "{kind:?}");
        drop(file);
        assert_eq!(lines(vfs.end()), [""; 0], "{kind:?}");
        assert_eq!(stored(&store, "x"), vec![7; 5000], "{kind:?}");
    }
}

/// Sends the lines of the log to the one test that reads them.
struct Lines(Sender<String>);

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

/// Bug: after 50 ms in which a device failed, 108 write errors were counted. The log named none of the files, because
/// each `fsync` had met the errors itself, and only those of background threads were logged.
#[test]
fn an_error_that_a_sync_meets_is_logged_once_until_the_store_works() {
    let _dog = Watchdog::new(Duration::from_secs(120));
    let (send, receive) = channel();
    log::set_logger(Box::leak(Box::new(Lines(send)))).expect("the only logger here");
    log::set_max_level(log::LevelFilter::Warn);
    // Other tests of this process log, too.
    let mut lines: Vec<String> = Vec::new();
    let mut logged = |path: &str, words: &str| {
        lines.extend(receive.try_iter());
        let start = format!("/{path}: {words}");
        lines.iter().filter(|line| line.starts_with(&start)).count()
    };
    for (at, kind) in kinds().into_iter().enumerate() {
        let (vfs, store) = scene(kind);
        let path = format!("logged-{at}");
        let file = write(&vfs, &path, 5000);
        let sync = || file.sync(SyncMode::All).map_err(|error| error.errno());
        let failing = |call, errno| {
            let fault = Fault::Fail(Moment::Before, errno);
            store.follow(Plan::new().when(On::call(call), fault));
        };
        for round in 1..3 {
            failing(Call::Write, libc::EIO);
            assert_eq!([sync(), sync()], [Err(libc::EIO); 2], "{kind:?}");
            assert_eq!(logged(&path, "cannot write back, will try again: "), round, "{kind:?}");
            failing(Call::Sync, libc::ENOSPC);
            assert_eq!([sync(), sync()], [Err(libc::ENOSPC); 2], "{kind:?}");
            assert_eq!(logged(&path, "cannot be made stable: No space left"), round, "{kind:?}");
            store.behave();
            assert_eq!(sync(), Ok(()), "{kind:?}");
            file.write_at(0, &[8; 5000]).unwrap();
        }
    }
}
