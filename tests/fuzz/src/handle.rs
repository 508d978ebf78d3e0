//! Handles by bytes, which any client may send.
//!
//! The input is either the bytes themselves, or (if its first byte is odd) changes to a real handle: pairs of a place
//! and a byte that is XORed there. Then the check is corrected if the last byte is odd. The law: bytes are stale, or
//! they find an object with their number and kind, whose own handle finds it, too.

use std::sync::{Arc, OnceLock};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{Caller, Error, HANDLE_BYTES, Vfs, VfsConfig};

/// One file system for all inputs, none of which changes it: a few files and directories.
fn scene() -> &'static Arc<Vfs> {
    static SCENE: OnceLock<Arc<Vfs>> = OnceLock::new();
    SCENE.get_or_init(|| {
        let memory = MemoryBackend::new(MemoryConfig::default()).expect("the default limits");
        let vfs = Vfs::new(memory, VfsConfig::default()).expect("the default settings");
        let root = vfs.root_directory(Caller::root());
        root.create_directory("a", 0o755).expect("room");
        root.write_file("a/file", "text").expect("room");
        root.symlink("a", "link").expect("room");
        vfs
    })
}

/// FNV-1a: computes the check at the end of a handle.
fn check(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

fn made(input: &[u8]) -> Vec<u8> {
    let Some((first, rest)) = input.split_first().filter(|(first, _)| **first & 1 == 1) else {
        return input.to_vec();
    };
    let vfs = scene();
    let root = vfs.root_directory(Caller::root());
    let file = root.open_directory("a").expect("it is there");
    let node = if first & 2 == 0 { vfs.root() } else { file.node() };
    let mut bytes = vfs.export(node);
    for pair in rest.chunks_exact(2) {
        bytes[usize::from(pair[0]) % HANDLE_BYTES] ^= pair[1];
    }
    if rest.last().is_some_and(|last| last & 1 == 1) {
        let check = check(&bytes[..24]);
        bytes[24..].copy_from_slice(&check.to_le_bytes());
    }
    bytes.to_vec()
}

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(input: &[u8]) {
    let vfs = scene();
    let bytes = made(input);
    if input.len().is_multiple_of(5) {
        vfs.forget_unused();
    }
    match vfs.reopen(&bytes) {
        Err(Error::Stale) => {}
        Err(error) => panic!("{bytes:?}: {error}"),
        Ok((node, attributes)) => {
            assert_eq!(bytes.len(), HANDLE_BYTES);
            assert_eq!(bytes[8..16], attributes.number.to_le_bytes());
            let own = vfs.export(&node);
            // All but the inode, which may be of another life.
            assert_eq!(bytes[..16], own[..16]);
            assert!(vfs.reopen(&own).is_ok_and(|again| again.0 == node));
        }
    }
}
