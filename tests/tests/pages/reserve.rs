//! Floor: space reserved under the page cache. A writer gets the error of a full store at its write, not at write-back:
//! accepted data always arrives.
//!
//! Deterministic, except the race of two writers, of which each outcome is right.

use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::HostileBackend;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_tests::paged::{Kind, difference, stored};
use uvfs_tests::{Hostile, Watchdog, root};
use uvfs_vfs::{Error, File, OpenOptions, Opens, SyncMode, Vfs, VfsConfig};

const CHUNK: usize = 64 << 10;
const LIMIT: Duration = Duration::from_secs(60);

/// A store of 1 MiB under larger caches, which write nothing back without a request.
fn small() -> (Hostile, Arc<Vfs>) {
    let config = MemoryConfig { size_bytes: 1 << 20, root_mode: 0o777, ..Default::default() };
    let kind = Kind::sole(Opens::Stateless);
    let store = kind.claimed_by(HostileBackend::new(MemoryBackend::new(config).unwrap()));
    let delay = Duration::from_secs(3600);
    let config = kind.config(VfsConfig { write_back_delay: delay, ..VfsConfig::default() });
    let vfs = Vfs::new(store.clone(), config).unwrap();
    (store, vfs)
}

fn create(vfs: &Arc<Vfs>, name: &str) -> File {
    root(vfs).open(name, OpenOptions::read_write().create(0o600)).unwrap()
}

/// Writes until the store is full; returns the accepted data.
fn fill(file: &File, byte: u8) -> Vec<u8> {
    let mut accepted = Vec::new();
    loop {
        match file.write_at(accepted.len() as u64, &[byte; CHUNK]) {
            Ok(count) => accepted.resize(accepted.len() + count, byte),
            Err(Error::NoSpace) => return accepted,
            Err(error) => panic!("{error}"),
        }
        assert!(accepted.len() < 2 << 20, "more was accepted than there is room for");
    }
}

fn assert_stored(store: &Hostile, name: &str, expected: &[u8]) {
    if let Some(wrong) = difference(&stored(store, name), expected) {
        panic!("{name}: {wrong}");
    }
}

/// Bug: a writer of more than the store has room for got a success; `fsync`, if there was one, returned ENOSPC, and the
/// data beyond the room was lost.
#[test]
fn a_full_store_is_reported_to_the_writer_and_what_was_accepted_arrives() {
    let _watchdog = Watchdog::new(LIMIT);
    let (store, vfs) = small();
    let file = create(&vfs, "file");
    let accepted = fill(&file, 1);
    assert!(accepted.len() > 900 << 10, "only {} bytes", accepted.len());
    assert!(stored(&store, "file").is_empty(), "nothing was written back yet");
    file.sync(SyncMode::All).unwrap();
    assert_stored(&store, "file", &accepted);
    // Data that the store already has needs no more room, also in a full store.
    assert!(matches!(file.write_at(accepted.len() as u64 + 8192, b"x"), Err(Error::NoSpace)));
    file.write_at(0, &[2; CHUNK]).unwrap();
    file.write_at(100, &[3; CHUNK]).unwrap();
    file.sync(SyncMode::All).unwrap();
    let expected = [&[2; 100][..], &[3; CHUNK], &accepted[CHUNK + 100..]].concat();
    assert_stored(&store, "file", &expected);
}

#[test]
fn two_writers_share_what_there_is() {
    let _watchdog = Watchdog::new(LIMIT);
    let (store, vfs) = small();
    let files = ["one", "other"].map(|name| (name, create(&vfs, name)));
    let accepted = std::thread::scope(|scope| {
        let writers = files.each_ref().map(|(_, file)| scope.spawn(|| fill(file, 7)));
        writers.map(|writer| writer.join().unwrap())
    });
    vfs.write_back_all().unwrap();
    for ((name, _), accepted) in files.iter().zip(&accepted) {
        assert_stored(&store, name, accepted);
    }
}

#[test]
fn what_will_not_be_written_is_given_back() {
    let _watchdog = Watchdog::new(LIMIT);
    let (store, vfs) = small();
    let cut = create(&vfs, "cut");
    let first = fill(&cut, 1).len();
    cut.set_size(5000).unwrap();
    cut.sync(SyncMode::All).unwrap();
    cut.set_size(0).unwrap();
    let second = fill(&cut, 2).len();
    assert_eq!(first, second, "a cut");
    // The store saw no truncation, but a file that grows from nothing: unwritten data kept its space.
    cut.set_size(5000).unwrap();
    let other = create(&vfs, "other");
    let rest = fill(&other, 4).len();
    assert!(rest + 2 * CHUNK >= first, "a cut that the store takes for growth: {rest} of {first}");
    drop(other);
    root(&vfs).remove_file("other").unwrap();
    drop(cut);
    root(&vfs).remove_file("cut").unwrap();
    let file = create(&vfs, "file");
    let third = fill(&file, 3);
    assert!(third.len() >= first, "a removal: {} of {first}", third.len());
    file.sync(SyncMode::All).unwrap();
    assert_stored(&store, "file", &third);
}
