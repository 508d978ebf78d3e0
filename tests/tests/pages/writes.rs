//! Floor: the ways in which a store takes writes. A store for appends only, or for whole files only, never gets any
//! other write, and a writer of anything else gets the right errno at once.
//!
//! Deterministic.

use std::sync::Arc;
use std::time::Duration;
use uvfs_tests::objects::{Given, Objects};
use uvfs_tests::{Watchdog, errno, root};
use uvfs_vfs::{
    AllocateMode, Authority, Clean, Dirty, Error, File, MINIMUM_BYTES, OpenOptions, Opens,
    PagePolicy, SeekTarget, SyncMode, Vfs, VfsConfig, Writes,
};

const LIMIT: Duration = Duration::from_secs(120);

fn over(store: &Objects, config: VfsConfig) -> Arc<Vfs> {
    Vfs::new(store.clone(), config).unwrap()
}

/// Nothing is written back without a request.
fn patient() -> VfsConfig {
    VfsConfig { write_back_delay: Duration::from_secs(3600), ..VfsConfig::default() }
}

fn open(vfs: &Arc<Vfs>, name: &str) -> File {
    root(vfs).open(name, OpenOptions::read_write().create(0o600)).unwrap()
}

/// Bytes that depend on their place.
fn bytes(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at / 7) as u8 ^ seed).collect()
}

#[test]
fn a_store_that_appends_gets_bytes_at_the_end_in_order() {
    let _watchdog = Watchdog::new(LIMIT);
    for policy in [PagePolicy::Auto, PagePolicy::Off, PagePolicy::WriteBack] {
        for authority in [Authority::Sole, Authority::Shared] {
            let store = Objects::new(Writes::Append, authority);
            let vfs = over(&store, VfsConfig { pages: policy, ..patient() });
            let file = open(&vfs, "log");
            let all = bytes(20_000, 1);
            let mut end = 0;
            for piece in all.chunks(3000) {
                file.write_all_at(end as u64, piece).unwrap();
                end += piece.len();
                assert_eq!(store.content("log"), all[..end], "there when the write returns");
            }
            for elsewhere in [0, 19_999, 20_001] {
                assert_eq!(errno(&file.write_at(elsewhere, b"x")), libc::EOPNOTSUPP, "{policy:?}");
            }
            let hole = file.allocate(AllocateMode::PunchHole, 0, 4096);
            assert_eq!(errno(&hole), libc::EOPNOTSUPP);
            drop(file);
            let append = root(&vfs).open("log", OpenOptions::write().append()).unwrap();
            append.write_at(0, b"tail").unwrap();
            let expected = [&all[..], b"tail"].concat();
            assert_eq!(store.content("log"), expected);
            assert_eq!(root(&vfs).read_file("log").unwrap(), expected);
            let mut next = 0;
            for given in store.given() {
                let Given::Bytes { offset, count } = given else { panic!("{given:?}") };
                assert_eq!(offset, next, "in order");
                next += count as u64;
            }
        }
    }
}

/// Threads that append to one file: each piece arrives whole, at the current end.
#[test]
fn threads_append_whole_pieces() {
    let _watchdog = Watchdog::new(LIMIT);
    let store = Objects::new(Writes::Append, Authority::Sole);
    let vfs = over(&store, patient());
    drop(open(&vfs, "log"));
    std::thread::scope(|scope| {
        for thread in 1..=3u8 {
            let vfs = &vfs;
            scope.spawn(move || {
                let file = root(vfs).open("log", OpenOptions::write().append()).unwrap();
                (0..20).for_each(|_| _ = file.write_at(0, &[thread; 100]).unwrap());
            });
        }
    });
    let content = store.content("log");
    assert_eq!(content.len(), 6000);
    assert!(content.chunks(100).all(|piece| piece.iter().all(|byte| *byte == piece[0])));
}

#[test]
fn a_whole_file_arrives_at_fsync_and_at_close() {
    let _watchdog = Watchdog::new(LIMIT);
    for authority in [Authority::Sole, Authority::Shared] {
        let store = Objects::new(Writes::WholeFile, authority);
        // A worker has every reason to write at once, and must not before the file is whole.
        let config = VfsConfig { write_back_delay: Duration::ZERO, ..VfsConfig::default() };
        let vfs = over(&store, config);
        let file = open(&vfs, "object");
        let mut all = bytes(300_000, 2);
        for from in (0..all.len()).step_by(7000).rev() {
            file.write_all_at(from as u64, &all[from..all.len().min(from + 7000)]).unwrap();
        }
        let end = file.seek(0, SeekTarget::Hole);
        assert_eq!(end.unwrap(), 300_000, "answered here");
        assert_eq!(store.given(), [], "not whole yet");
        file.sync(SyncMode::All).unwrap();
        assert_eq!(store.given(), [Given::Whole(300_000)]);
        assert!(store.content("object") == all);
        // Most of it is evicted: the rest comes from the store.
        vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
        file.write_all_at(100_000, b"changed").unwrap();
        file.write_all_at(300_010, b"beyond").unwrap();
        all[100_000..100_007].copy_from_slice(b"changed");
        all.extend_from_slice(&[0; 10]);
        all.extend_from_slice(b"beyond");
        drop(file);
        assert_eq!(store.given(), [Given::Whole(300_000), Given::Whole(300_016)]);
        assert!(store.content("object") == all);
        vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
        assert!(root(&vfs).read_file("object").unwrap() == all);
        assert_eq!(root(&vfs).stat("object").unwrap().size, 300_016);
    }
}

/// Bug: data that cannot be written before its file is whole has to fit into the caches. The fitting part was put at
/// the close, and replaced a whole file by half of another.
#[test]
fn more_than_the_caches_hold_is_no_space_and_no_part_arrives() {
    let _watchdog = Watchdog::new(LIMIT);
    let store = Objects::new(Writes::WholeFile, Authority::Sole);
    let vfs = over(&store, VfsConfig { cache_bytes: MINIMUM_BYTES, ..patient() });
    let file = open(&vfs, "object");
    let mut accepted = 0;
    let refused = loop {
        match file.write_at(accepted, &[7; 64 << 10]) {
            Ok(count) => accepted += count as u64,
            Err(error) => break error,
        }
        assert!(accepted < MINIMUM_BYTES, "more than there is room for");
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert!(accepted > 256 << 10, "only {accepted} bytes");
    assert_eq!(store.given(), []);
    assert_eq!(errno(&file.sync(SyncMode::All)), libc::ENOSPC);
    drop(file);
    assert_eq!((store.given(), vfs.statistics().pages.dirty_bytes), (vec![], 0));
    open(&vfs, "next").write_all_at(0, &[8; 64 << 10]).unwrap();
}

/// Eight copies at once of files that fit one by one all failed: each had an eighth of the room, so no file was complete.
/// Now the writers wait for each other.
#[test]
fn files_that_fit_one_by_one_are_written_at_once() {
    const WRITERS: usize = 8;
    let _watchdog = Watchdog::new(LIMIT);
    let store = Objects::new(Writes::WholeFile, Authority::Sole);
    let vfs = over(&store, VfsConfig { cache_bytes: MINIMUM_BYTES, ..patient() });
    let probe = open(&vfs, "probe");
    let mut half = 0;
    while let Ok(count) = probe.write_at(half, &[7; 16 << 10]) {
        half += count as u64;
    }
    drop(probe);
    let all = bytes(half as usize / 2 - (64 << 10), 3);
    let (first, rest) = all.split_at(all.len() / WRITERS);
    let begun = std::sync::Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (vfs, begun) = (&vfs, &begun);
            scope.spawn(move || {
                let file = open(vfs, &format!("object{number}"));
                file.write_all_at(0, first).unwrap();
                begun.wait();
                for (at, piece) in rest.chunks(16 << 10).enumerate() {
                    let offset = first.len() + (at << 14);
                    file.write_all_at(offset as u64, piece).unwrap();
                }
                file.sync(SyncMode::All).unwrap();
            });
        }
    });
    for number in 0..WRITERS {
        assert!(store.content(&format!("object{number}")) == all, "{number}");
    }
    assert_eq!(vfs.statistics().pages.dirty_bytes, 0);
}

/// A file that others replaced meanwhile is not silently replaced again.
#[test]
fn a_file_that_others_replaced_is_busy() {
    let _watchdog = Watchdog::new(LIMIT);
    for seen in [false, true] {
        let store = Objects::new(Writes::WholeFile, Authority::Shared);
        let hour = Duration::from_secs(3600);
        let vfs = over(&store, VfsConfig { attr_timeout: hour, entry_timeout: hour, ..patient() });
        open(&vfs, "object").write_all_at(0, &bytes(50_000, 3)).unwrap();
        let file = open(&vfs, "object");
        file.write_all_at(10, b"ours").unwrap();
        store.replace_behind("object", b"theirs");
        if seen {
            vfs.clean(vfs.root(), Clean::Both, Dirty::Skip).unwrap();
            assert!(root(&vfs).stat("object").is_ok());
        }
        assert_eq!(errno(&file.sync(SyncMode::All)), libc::EBUSY, "seen: {seen}");
        assert_eq!(store.content("object"), b"theirs");
        // That is final: no write is retried, and no data is kept.
        assert_eq!(vfs.statistics().pages.dirty_bytes, 0, "seen: {seen}");
        assert!(vfs.sync_fs().is_ok());
        assert_eq!(store.content("object"), b"theirs");
    }
}

#[test]
fn a_whole_file_that_was_refused_is_tried_again() {
    let _watchdog = Watchdog::new(LIMIT);
    let store = Objects::new(Writes::WholeFile, Authority::Sole);
    let vfs = over(&store, patient());
    let file = open(&vfs, "object");
    file.write_all_at(0, b"content").unwrap();
    store.refuse(1);
    assert_eq!(errno(&file.sync(SyncMode::All)), libc::EIO);
    store.refuse(2);
    drop(file);
    assert_eq!(store.given(), []);
    assert!(vfs.sync_fs().is_ok(), "the second try of two");
    assert_eq!(store.content("object"), b"content");
}

#[test]
fn a_store_of_whole_files_must_learn_of_opens() {
    let store = Objects::new(Writes::WholeFile, Authority::Sole);
    let store = store.claiming(|can| can.opens = Opens::Stateless);
    let refused = Vfs::new(store, VfsConfig::default());
    assert!(matches!(refused, Err(Error::Invalid(_))));
}
