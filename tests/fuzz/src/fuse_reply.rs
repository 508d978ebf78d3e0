//! Replies and notices of the kernel's FUSE protocol: any bytes of a message.
//!
//! The first two bytes choose the operation that is answered and whether the header gets the length that fits. An
//! accepted message builds the same bytes, and so do the entries of an accepted listing.

use uvfs_fuse_protocol::abi::OutHeader;
use uvfs_fuse_protocol::{Aligned, Answer, Listing, Notice, Opcode, Reply};
use zerocopy::FromBytes;

/// One input.
///
/// # Panics
/// If a law is broken.
pub fn run(bytes: &[u8]) {
    let [which, fits, message @ ..] = bytes else { return };
    let opcode = Opcode::ALL[usize::from(*which) % Opcode::ALL.len()];
    let mut message = Aligned::from(message);
    let len = message.len() as u32;
    if let (Ok((header, _)), 1) = (OutHeader::mut_from_prefix(&mut message), fits & 1) {
        header.len = len;
    }
    let reply = Reply::parse(opcode, &message);
    if let Ok(reply) = reply {
        answered(&message, reply);
    }
    match Notice::parse(&message) {
        // Number 0 is a notice, any other one a reply.
        Ok(notice) => {
            assert!(reply.is_err());
            let again = Aligned::from(&notice.to_vec()[..]);
            assert_eq!(Notice::parse(&again), Ok(notice));
            assert_eq!(again.len(), message.len());
        }
        Err(malformed) => assert_eq!(malformed.unique.is_some(), message.len() >= 16),
    }
}

fn answered(message: &Aligned, reply: Reply<'_>) {
    let again = reply.encode();
    match reply.answer {
        // Its length depends on its version.
        Answer::Init(_) => {}
        Answer::Entries(entries) => {
            assert_eq!(again, *message);
            let mut buffer = vec![0; message.len()];
            let mut listing = Listing::new(&mut buffer);
            for entry in entries.iter().map_while(Result::ok) {
                assert!(listing.push(entry.ino, entry.next_offset, entry.kind, entry.name));
            }
        }
        Answer::EntriesPlus(entries) => {
            assert_eq!(again, *message);
            let mut buffer = vec![0; message.len()];
            let mut listing = Listing::new(&mut buffer);
            for (node, entry) in entries.iter().map_while(Result::ok) {
                assert!(listing.push_plus(&node, entry.next_offset, entry.kind, entry.name));
            }
        }
        _ => assert_eq!(again, *message),
    }
}
