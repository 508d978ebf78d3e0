//! Access control lists: any value of the extended attribute, and everything that is done with one.
//!
//! Checks laws rather than results: the wire format survives a round trip, a list keeps its shape
//! under any mode, no ungranted right is inherited, and a caller that may do two things may do
//! each.
//!
//! The input is the value itself; modes and callers are made from its first bytes.

use uvfs_vfs::acl::Acl;
use uvfs_vfs::{Access, Caller};

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(bytes: &[u8]) {
    let Ok(Some(acl)) = Acl::parse(bytes) else { return };
    survives_the_wire(&acl);
    let word =
        bytes.iter().take(32).fold(0u32, |word, &byte| word.rotate_left(5) ^ u32::from(byte));
    for mode in [0, 0o7777, word] {
        meets_a_mode(&acl, mode);
    }
    for caller in callers(word) {
        lets_in_by_parts(&acl, &caller, word & 0xff);
    }
}

fn survives_the_wire(acl: &Acl) {
    let bytes = acl.to_bytes();
    let again = Acl::parse(&bytes).expect("our own value").expect("a list with entries");
    assert_eq!(again, *acl);
    assert_eq!(again.to_bytes(), bytes);
    let entries = acl.entries().to_vec();
    assert_eq!(Acl::new(entries).expect("entries of a valid list"), *acl);
}

fn meets_a_mode(acl: &Acl, mode: u32) {
    let (bits, minimal) = acl.equivalent_mode();
    assert!(bits <= 0o777);
    assert_eq!(minimal, acl.entries().len() == 3);

    let changed = acl.with_mode(mode);
    assert_eq!(changed.equivalent_mode(), (mode & 0o777, minimal));
    let tags = |acl: &Acl| acl.entries().iter().map(|entry| entry.tag).collect::<Vec<_>>();
    assert_eq!(tags(&changed), tags(acl));
    survives_the_wire(&changed);

    let (own, created) = acl.inherit(mode);
    assert_eq!(created & !0o777, mode & !0o777, "what is above the permissions stays");
    assert_eq!(created & 0o777, mode & bits, "nothing is inherited that was not granted");
    assert_eq!(own.is_none(), minimal);
    if let Some(own) = own {
        assert_eq!(own.equivalent_mode(), (created & 0o777, false));
        survives_the_wire(&own);
    }
}

fn callers(word: u32) -> [Caller; 3] {
    let groups = [word & 0xf, word >> 4 & 0xf];
    [Caller::root(), Caller::new(word & 0xff, 1, &groups), Caller::new(word >> 8 & 3, 0, &[])]
}

/// The mask and the owning group may each lack a right, but a right never depends on another.
fn lets_in_by_parts(acl: &Acl, caller: &Caller, gid: u32) {
    for wanted in (0..8).map(Access::from_mode) {
        if acl.allows(caller, 1, gid, wanted) {
            assert!(wanted.iter().all(|part| acl.allows(caller, 1, gid, part)));
        }
    }
}
