//! Floor: content versions under the page cache. A file that others replace as a whole is read through the cache: no
//! read ever returns bytes of two versions, at whatever moment it is replaced, and pages of the old version are
//! dropped.
//!
//! Deterministic, except the last test, which races readers with a writer and asserts only facts that hold at any time.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use uvfs_tests::versioned::{Versioned, byte_of};
use uvfs_tests::{Watchdog, root};
use uvfs_vfs::{File, OpenOptions, PagePolicy, Vfs, VfsConfig};

const PAGE: usize = 4096;
const PAGES: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);

/// Attributes have a lifetime of an hour: only reading finds a change.
fn believing(pages: PagePolicy) -> VfsConfig {
    let hour = Duration::from_secs(3600);
    VfsConfig {
        pages,
        attr_timeout: hour,
        entry_timeout: hour,
        write_back_delay: hour,
        read_ahead_bytes: 0,
        ..VfsConfig::default()
    }
}

fn mounted(store: &Versioned, config: VfsConfig) -> (Arc<Vfs>, File) {
    let vfs = Vfs::new(store.clone(), config).unwrap();
    let file = root(&vfs).open("file", OpenOptions::read_write()).unwrap();
    (vfs, file)
}

/// Reads `count` pages from the start; the versions' bytes that they have.
fn bytes_of(file: &File, count: usize) -> Vec<u8> {
    let mut into = vec![0; count * PAGE];
    let read = file.read_at(0, &mut into).unwrap();
    into.truncate(read);
    into.dedup();
    into
}

/// Both kinds of store: a version with the bytes, and one with the attributes alone.
fn both(test: impl Fn(bool)) {
    let _watchdog = Watchdog::new(LIMIT);
    [true, false].into_iter().for_each(test);
}

/// Bug: a read of a file that was replaced in the middle returned the cached head of the old object, and the tail of
/// the new one.
#[test]
fn a_reader_that_meets_a_change_half_way_has_one_version() {
    both(|with_bytes| {
        let store = Versioned::new(PAGES * PAGE, with_bytes);
        let (vfs, file) = mounted(&store, believing(PagePolicy::WriteThrough));
        assert_eq!(bytes_of(&file, PAGES / 2), [byte_of(1)], "the first half is cached");
        let replacer = store.clone();
        let mut is_replaced = false;
        store.at_read(move |offset| {
            if offset >= (PAGES / 2 * PAGE) as u64 && !std::mem::replace(&mut is_replaced, true) {
                replacer.replace(PAGES * PAGE);
            }
        });
        assert_eq!(bytes_of(&file, PAGES), [byte_of(2)]);
        let before = vfs.statistics().pages.misses;
        assert_eq!(bytes_of(&file, PAGES), [byte_of(2)]);
        assert_eq!(vfs.statistics().pages.misses, before, "and it is cached by now");
    });
}

/// The size is the version's, too: the tail of a larger object does not read as zeros, and a smaller one ends.
#[test]
fn the_size_is_of_the_version_that_is_read() {
    both(|with_bytes| {
        for size in [10 * PAGE + 5, (PAGES + 3) * PAGE + 7] {
            let store = Versioned::new(PAGES * PAGE - 100, with_bytes);
            let (_vfs, file) = mounted(&store, believing(PagePolicy::WriteThrough));
            assert_eq!(bytes_of(&file, 5), [byte_of(1)]);
            store.replace(size);
            let mut into = vec![0; 2 * PAGES * PAGE];
            let count = file.read_at(0, &mut into).unwrap();
            assert_eq!(count, size, "of {}", PAGES * PAGE - 100);
            assert!(into[..count].iter().all(|&byte| byte == byte_of(2)));
        }
    });
}

/// Without a change of size or of any time, a new version in the attributes empties the cache of the old one.
#[test]
fn what_attributes_tell_drops_what_is_cached() {
    both(|with_bytes| {
        let store = Versioned::new(PAGES * PAGE, with_bytes);
        let config =
            VfsConfig { attr_timeout: Duration::ZERO, ..believing(PagePolicy::WriteThrough) };
        let (_vfs, file) = mounted(&store, config);
        for version in 1..5 {
            assert_eq!(bytes_of(&file, PAGES), [byte_of(version)]);
            store.replace(PAGES * PAGE);
        }
    });
}

/// Data written here that is not in the store yet stays; around it is the newest version. Our own write-back makes a
/// version of ours, which drops nothing.
#[test]
fn what_is_written_here_stays_and_makes_no_foreign_version() {
    both(|with_bytes| {
        let store = Versioned::new(PAGES * PAGE, with_bytes);
        let (vfs, file) = mounted(&store, believing(PagePolicy::WriteBack));
        assert_eq!(bytes_of(&file, PAGES), [byte_of(1)]);
        file.write_at(0, &[200; PAGE]).unwrap();
        file.sync(uvfs_vfs::SyncMode::All).unwrap();
        assert_eq!(store.content()[PAGE - 1..=PAGE], [200, byte_of(1)]);
        let before = vfs.statistics().pages.misses;
        assert_eq!(bytes_of(&file, PAGES), [200, byte_of(1)]);
        assert_eq!(vfs.statistics().pages.misses, before, "nothing went");
        file.write_at(0, &[201; PAGE]).unwrap();
        let version = store.replace(PAGES * PAGE);
        assert_eq!(bytes_of(&file, PAGES)[0], 201);
        file.sync(uvfs_vfs::SyncMode::All).unwrap();
        assert_eq!(bytes_of(&file, PAGES), [201, byte_of(version)]);
    });
}

/// Readers of a file that is replaced all the time, with pages read ahead, and evicted: each read is of one version.
#[test]
fn readers_race_with_a_writer_and_mix_nothing() {
    both(|with_bytes| {
        let store = Versioned::new(PAGES * PAGE, with_bytes);
        let config = VfsConfig {
            attr_timeout: Duration::from_millis(1),
            read_ahead_bytes: 16 * PAGE as u64,
            ..believing(PagePolicy::WriteThrough)
        };
        let (vfs, file) = mounted(&store, config);
        std::thread::scope(|scope| {
            // Dropped when the readers are done, or one has failed.
            let (_reading, read) = channel::<()>();
            let store = &store;
            scope.spawn(move || {
                let mut number = 0;
                let pause = Duration::from_micros(500);
                while read.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    number += 1;
                    store.replace(PAGES * PAGE - number % 3 * PAGE);
                }
            });
            let readers: Vec<_> = (0..3)
                .map(|reader| {
                    let (vfs, file) = (&vfs, &file);
                    scope.spawn(move || {
                        for round in 0..80 {
                            let count = if round % 2 == 0 { PAGES } else { 7 + reader };
                            let seen = bytes_of(file, count);
                            assert_eq!(seen.len(), 1, "two versions in one read: {seen:?}");
                            if round % 40 == 39 {
                                vfs.forget_unused();
                            }
                        }
                    })
                })
                .collect();
            for reader in readers {
                reader.join().unwrap();
            }
        });
    });
}
