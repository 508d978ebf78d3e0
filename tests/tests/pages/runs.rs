//! Floor: runs of pages with a store that completes them out of order, on other threads, with an error, or never.
//! Written data arrives, reads return written data, and the end is reached.
//!
//! The order of the store's answers differs each time; the assertions do not.

use std::sync::Arc;
use std::time::Duration;
use uvfs_tests::paged::difference;
use uvfs_tests::queued::{Answer, Queued};
use uvfs_tests::{Numbers, Watchdog, root, seed};
use uvfs_vfs::{Backend, File, OpenOptions, PagePolicy, READ_AHEAD_MAX, SyncMode, Vfs, VfsConfig};

const SIZE: usize = (5 << 20) + 4321;
const LIMIT: Duration = Duration::from_secs(100);

fn config() -> VfsConfig {
    VfsConfig {
        pages: PagePolicy::WriteBack,
        write_back_delay: Duration::from_secs(3600),
        read_ahead_bytes: READ_AHEAD_MAX,
        end_patience: Duration::from_millis(200),
        cache_bytes: 64 << 20,
        ..VfsConfig::default()
    }
}

fn mounted(store: &Queued) -> (Arc<Vfs>, File) {
    let vfs = Vfs::new(store.clone(), config()).unwrap();
    let file = root(&vfs).open("file", OpenOptions::read_write().create(0o600)).unwrap();
    (vfs, file)
}

fn content(numbers: &mut Numbers) -> Vec<u8> {
    let mut content: Vec<u8> = (0..SIZE).map(|at| (at / 511 % 251) as u8).collect();
    for _ in 0..100 {
        let at = numbers.below(SIZE as u64) as usize;
        content[at] = numbers.below(256) as u8;
    }
    content
}

#[track_caller]
fn assert_same(seen: &[u8], expected: &[u8]) {
    if let Some(wrong) = difference(seen, expected) {
        panic!("{wrong}");
    }
}

/// The store's content of the file.
fn stored(store: &Queued, file: &File) -> Vec<u8> {
    let reference = uvfs_vfs::FileRef::unopened(file.node().id());
    let mut into = vec![0; SIZE];
    let count = store.inner().data().read(reference, 0, &mut into).unwrap();
    into.truncate(count);
    into
}

#[test]
fn what_is_written_in_runs_arrives_whatever_their_order() {
    let _watchdog = Watchdog::new(LIMIT);
    let mut numbers = Numbers(seed());
    let store = Queued::new(numbers.below(u64::MAX));
    let (_vfs, file) = mounted(&store);
    let mut expected = content(&mut numbers);
    file.write_all_at(0, &expected).unwrap();
    file.sync(SyncMode::All).unwrap();
    assert!(store.most() > 1, "one run after the other");
    assert_same(&stored(&store, &file), &expected);
    // Pages here and there, so that runs are short.
    for _ in 0..60 {
        let at = numbers.below(SIZE as u64 - 9000) as usize;
        expected[at..at + 9000].fill(at as u8);
        file.write_at(at as u64, &expected[at..at + 9000]).unwrap();
    }
    file.sync(SyncMode::All).unwrap();
    assert_same(&stored(&store, &file), &expected);
}

/// Several readers reach a window in flight, at its start and in its middle.
#[test]
fn readers_beside_each_other_read_what_was_written() {
    let _watchdog = Watchdog::new(LIMIT);
    let mut numbers = Numbers(seed());
    let store = Queued::new(numbers.below(u64::MAX));
    let expected = content(&mut numbers);
    {
        let (_vfs, file) = mounted(&store);
        file.write_all_at(0, &expected).unwrap();
    }
    for _ in 0..5 {
        let (_vfs, file) = mounted(&store);
        std::thread::scope(|scope| {
            for reader in 0..4 {
                let (file, expected) = (&file, &expected);
                scope.spawn(move || {
                    let step = [4096, 130_000, 700_001, 1 << 20][reader];
                    let mut into = vec![0; step];
                    let mut at = 0;
                    while at < SIZE {
                        let count = file.read_at(at as u64, &mut into).unwrap();
                        assert_same(&into[..count], &expected[at..SIZE.min(at + step)]);
                        at += count;
                    }
                });
            }
        });
    }
    assert!(store.most() > 1, "one run after the other");
}

#[test]
fn runs_that_are_refused_stay_dirty_and_are_reported_once() {
    let _watchdog = Watchdog::new(LIMIT);
    let mut numbers = Numbers(seed());
    let store = Queued::new(numbers.below(u64::MAX));
    let (_vfs, file) = mounted(&store);
    let expected = content(&mut numbers);
    file.write_all_at(0, &expected).unwrap();
    store.answer(Answer::Refused);
    assert_eq!(file.sync(SyncMode::All).unwrap_err().errno(), libc::EIO);
    store.answer(Answer::Done);
    file.sync(SyncMode::All).unwrap();
    assert_same(&stored(&store, &file), &expected);
}

/// The end waited for ever for answers that never came.
#[test]
fn the_end_gives_up_a_store_that_never_answers() {
    let _watchdog = Watchdog::new(LIMIT);
    let store = Queued::new(1);
    let (vfs, file) = mounted(&store);
    file.write_all_at(0, &[7; 1 << 20]).unwrap();
    store.answer(Answer::Never);
    drop(file);
    let lost = vfs.end();
    assert_eq!(lost.len(), 1, "{lost:?}");
}
