//! Handles as bytes: a frontend without memory of its own gives them to its clients, and gets them back.
//!
//! # Boundary
//! Makes a handle of an object, and finds the object again when all its cache entries are gone. Checks no rights: like
//! NFS, a handle finds an object whatever the rights of the directories above it. Operations on the object check their
//! callers.
//!
//! # Form
//! ```text
//! version:8  kind:8  0:16  generation:32  number:64  inode:64  check:64      little-endian
//! ```
//! `inode` finds a cached object without the store. It may be from an earlier life of the file system, so the object
//! counts only with the same number, generation and kind. `check` saves the store requests for invented bytes. It is no
//! secret and protects nothing.
//!
//! # Why
//! By number, like the kernel's own handles: a rename changes nothing, and a store has one index to keep
//! ([`crate::Export`]). Weakness: where a store keeps none, a handle is stale as soon as its object is evicted. A store
//! without birth times may have given the number to another object.

use crate::attributes::{Attributes, FileKind};
use crate::backend::InodeId;
use crate::error::{Error, Result};
use crate::inode::Node;
use crate::vfs::Vfs;

/// Bytes of a handle: within the 64 of NFS 3.
pub const HANDLE_BYTES: usize = 32;

const VERSION: u8 = 1;

/// The contents of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Handle {
    kind: u8,
    generation: u32,
    number: u64,
    inode: InodeId,
}

impl Handle {
    fn of(attributes: &Attributes, inode: InodeId) -> Self {
        let (kind, generation) = (attributes.kind as u8, attributes.generation());
        Self { kind, generation, number: attributes.number, inode }
    }

    fn encode(self) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        (bytes[0], bytes[1]) = (VERSION, self.kind);
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.inode.0.to_le_bytes());
        let check = check(&bytes[..24]);
        bytes[24..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// `None`: not a handle that was ever made.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        let generation = u32::from_le_bytes(bytes[4..8].try_into().ok()?);
        let (number, inode) = (word(8)?, InodeId(word(16)?));
        let handle = Self { kind: bytes[1], generation, number, inode };
        let form = bytes[0] == VERSION && bytes[2..4] == [0, 0];
        (form && word(24)? == check(&bytes[..24])).then_some(handle)
    }

    /// Whether it is a handle of an object with these attributes.
    fn means(&self, attributes: &Attributes) -> bool {
        *self == Self::of(attributes, self.inode)
    }
}

/// FNV-1a, of 64 bits.
fn check(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

impl Vfs {
    /// A handle of `node` for [`Vfs::reopen`], also of another [`Vfs`] over the same store. Sends no request to the
    /// store.
    pub fn export(&self, node: &Node) -> [u8; HANDLE_BYTES] {
        Handle::of(&node.inode.last_attributes(), node.id()).encode()
    }

    /// The object of `handle`, which [`Vfs::export`] made, and its attributes, from the caches or from the store.
    /// Accepts any bytes. Checks no rights on the way to the object. May block.
    ///
    /// # Errors
    /// [`Error::Stale`] if these bytes are no handle, if the object has lost its last name, or if it is not cached and
    /// the store has no index of numbers; the store's own.
    pub fn reopen(&self, handle: &[u8]) -> Result<(Node, Attributes)> {
        let handle = Handle::decode(handle).ok_or(Error::Stale)?;
        let found = match self.reopen_cached(&handle) {
            Some(found) => found,
            None => self.by_number(handle.number).map_err(|error| match error {
                Error::NotFound | Error::Unsupported(_) => Error::Stale,
                other => other,
            })?,
        };
        let (node, attributes) = found;
        let gone = node.is_unlinked() || attributes.links == 0;
        match !gone && handle.means(&attributes) && kind_of(&node) == handle.kind {
            true => Ok((node, attributes)),
            false => Err(Error::Stale),
        }
    }

    /// The cached object under the handle's inode, if it is the handle's object.
    fn reopen_cached(&self, handle: &Handle) -> Option<(Node, Attributes)> {
        let node = self.cached(handle.inode).filter(|node| node.number() == handle.number)?;
        let attributes = self.attributes(&node, None).ok()?;
        handle.means(&attributes).then_some((node, attributes))
    }
}

fn kind_of(node: &Node) -> u8 {
    let kind: FileKind = node.kind();
    kind as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_a_changed_bit_is_seen() {
        let attributes = Attributes::new(0x0102_0304_0506_0708, FileKind::Directory, 0o755);
        let handle = Handle::of(&attributes, InodeId(u64::MAX - 3));
        let bytes = handle.encode();
        assert_eq!(Handle::decode(&bytes), Some(handle));
        assert!(handle.means(&attributes));
        for bit in 0..8 * HANDLE_BYTES {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Handle::decode(&changed), None, "bit {bit}");
        }
        assert_eq!(Handle::decode(&bytes[1..]), None);
        assert_eq!(Handle::decode(&[]), None);
    }
}
