//! Floor: conformance, in process. Handles by bytes: they find their object when nothing of it is cached, follow it
//! when it moves, and are stale when it is removed; other bytes are always stale.
//!
//! Deterministic.

use std::sync::Arc;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::hostile::Call;
use uvfs_tests::{Hostile, errno, hostile, root, vfs_over};
use uvfs_vfs::{
    Caller, Error, HANDLE_BYTES, InodeId, Name, Node, OpenMode, RenameMode, Vfs, VfsConfig,
};

/// `a/b/file` and `a/other`.
fn scene() -> (Hostile, Arc<Vfs>) {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let top = root(&vfs);
    top.create_directory("a", 0o755).unwrap();
    top.create_directory("a/b", 0o755).unwrap();
    top.write_file("a/b/file", "text").unwrap();
    top.write_file("a/other", "more").unwrap();
    (hostile, vfs)
}

fn node(vfs: &Arc<Vfs>, path: &str) -> Node {
    let mut node = vfs.root().clone();
    for name in path.split('/') {
        let name = Name::new(name.as_bytes()).unwrap();
        node = vfs.lookup(&Caller::root(), &node, name).unwrap().found().unwrap().node;
    }
    node
}

fn handle(vfs: &Arc<Vfs>, path: &str) -> [u8; HANDLE_BYTES] {
    vfs.export(&node(vfs, path))
}

fn read(vfs: &Vfs, handle: &[u8]) -> Result<Vec<u8>, Error> {
    let (node, attributes) = vfs.reopen(handle)?;
    let open = vfs.open(&Caller::root(), &node, OpenMode::READ)?;
    let mut content = vec![0; attributes.size as usize];
    let count = vfs.read(&node, open.reference(), 0, &mut content)?;
    content.truncate(count);
    Ok(content)
}

#[test]
fn a_handle_outlives_all_that_is_cached_of_its_object() {
    let (hostile, vfs) = scene();
    let file = handle(&vfs, "a/b/file");
    let directory = handle(&vfs, "a/b");
    let top = vfs.export(vfs.root());
    vfs.forget_unused();
    assert_eq!(vfs.statistics().inodes.held, 1, "the root alone");
    assert_eq!(read(&vfs, &file).unwrap(), b"text");
    let (found, _) = vfs.reopen(&directory).unwrap();
    assert_eq!(vfs.export(&found), directory);
    // A directory knows its way up: `..` is asked of it.
    let above = found.parent().unwrap();
    assert_eq!(above.parent().as_ref(), Some(vfs.root()));
    let name = Name::new(b"file").unwrap();
    let below = vfs.lookup(&Caller::root(), &found, name).unwrap().found().unwrap();
    assert_eq!(vfs.export(&below.node), file);
    assert_eq!(vfs.reopen(&top).unwrap().0, *vfs.root());
    drop((found, above, below));
    vfs.forget_unused();
    // Of the root there is one more than from the start: the way up led to it.
    assert_eq!(hostile.outstanding(), [(InodeId::ROOT, 2)].into());
    assert_eq!(hostile.forgotten_too_often(), 0);
}

#[test]
fn what_is_cached_is_found_without_the_store() {
    let (hostile, vfs) = scene();
    let held = node(&vfs, "a/b/file");
    let handle = vfs.export(&held);
    hostile.follow(Default::default());
    assert_eq!(vfs.reopen(&handle).unwrap().0, held);
    assert_eq!(hostile.made(Call::ByNumber), 0);
}

/// A handle given out before a restart has an inode of that life, by which another object may be known now.
#[test]
fn a_handle_is_good_for_another_life_of_the_file_system() {
    let (hostile, vfs) = scene();
    let handles = [handle(&vfs, "a/b/file"), handle(&vfs, "a/other")];
    drop(vfs);
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let _others = node(&vfs, "a/other");
    assert_eq!(read(&vfs, &handles[0]).unwrap(), b"text");
    assert_eq!(read(&vfs, &handles[1]).unwrap(), b"more");
}

#[test]
fn a_handle_follows_its_object_and_ends_with_it() {
    let (_, vfs) = scene();
    let (file, other) = (handle(&vfs, "a/b/file"), handle(&vfs, "a/other"));
    let top = root(&vfs);
    top.rename("a/b/file", "moved", RenameMode::NoReplace).unwrap();
    for evict in [false, true] {
        if evict {
            vfs.forget_unused();
        }
        assert_eq!(read(&vfs, &file).unwrap(), b"text");
    }
    top.rename("moved", "a/other", RenameMode::Replace).unwrap();
    assert_eq!(read(&vfs, &file).unwrap(), b"text");
    assert_eq!(errno(&vfs.reopen(&other).map(drop)), libc::ESTALE, "replaced");
    let held = node(&vfs, "a/other");
    top.remove_file("a/other").unwrap();
    assert_eq!(errno(&vfs.reopen(&file).map(drop)), libc::ESTALE, "held, and without a name");
    drop(held);
    vfs.forget_unused();
    assert_eq!(errno(&vfs.reopen(&file).map(drop)), libc::ESTALE);
    top.write_file("a/other", "new").unwrap();
    assert_eq!(errno(&vfs.reopen(&file).map(drop)), libc::ESTALE, "the name is another object's");
}

#[test]
fn hostile_bytes_are_stale_and_never_asked_for() {
    let (hostile, vfs) = scene();
    let good = handle(&vfs, "a/b/file");
    vfs.forget_unused();
    hostile.follow(Default::default());
    let stale = |bytes: &[u8]| errno(&vfs.reopen(bytes).map(drop)) == libc::ESTALE;
    for length in 0..HANDLE_BYTES {
        assert!(stale(&good[..length]));
    }
    assert!(stale(&[&good[..], &[0]].concat()) && stale(&[0; HANDLE_BYTES]) && stale(&[255; 64]));
    for at in 0..HANDLE_BYTES {
        for xor in 1..=255 {
            let mut bytes = good;
            bytes[at] ^= xor;
            assert!(stale(&bytes), "byte {at} ^ {xor}");
        }
    }
    assert_eq!(hostile.made(Call::ByNumber), 0);
    assert!(!stale(&good));
}

#[test]
fn where_a_store_keeps_no_index_what_is_cached_is_found_and_the_rest_is_stale() {
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("file"), "text").unwrap();
    let backend = DirectoryBackend::open(source.path(), DirectoryConfig::default()).unwrap();
    let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
    let held = node(&vfs, "file");
    let handle = vfs.export(&held);
    assert_eq!(read(&vfs, &handle).unwrap(), b"text");
    drop(held);
    vfs.forget_unused();
    assert_eq!(errno(&vfs.reopen(&handle).map(drop)), libc::ESTALE);
}
