//! Replies, listings and notices: each is built, parsed, cut, and parsed from any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use uvfs_fuse_protocol::abi::{self, OutHeader};
use uvfs_fuse_protocol::reply::{Entries, EntriesPlus, Entry};
use uvfs_fuse_protocol::{
    Aligned, Answer, Cause, InvalEntryFlags, Listing, Malformed, Notice, Opcode, Reply,
};
use zerocopy::{FromBytes, IntoBytes};

/// An answer to an operation of this number, made of these words and bytes; `None` if it has none.
fn made<'a>(opcode: Opcode, words: &'a [u64], data: &'a [u8]) -> Option<Answer<'a>> {
    fn some<T: abi::Structure>(words: &[u64]) -> &T {
        T::ref_from_prefix(words.as_bytes()).unwrap().0
    }
    use Answer as A;
    use Opcode as O;
    Some(match opcode {
        O::Forget | O::BatchForget | O::Interrupt | O::NotifyReply => return None,
        O::Lookup | O::SymLink | O::MkNod | O::MkDir | O::Link => A::Entry(some(words)),
        O::GetAttr | O::SetAttr => A::Attr(some(words)),
        O::Statx => A::Statx(some(words)),
        O::Open | O::OpenDir => A::Open(some(words)),
        O::Create | O::TmpFile => A::Create(some(words), some(&words[1..])),
        O::Read | O::ReadLink => A::Data(data),
        O::GetXattr | O::ListXattr => A::Xattr(data),
        O::ReadDir => A::Entries(Entries(data)),
        O::ReadDirPlus => A::EntriesPlus(EntriesPlus(data)),
        O::Write | O::CopyFileRange => A::Write(some(words)),
        O::CopyFileRange64 => A::CopyFileRange(some(words)),
        O::StatFs => A::StatFs(some(words)),
        O::Init => A::Init(abi::InitOut { minor: 45, ..*some(words) }),
        O::GetLk => A::Lock(some(words)),
        O::Bmap => A::Bmap(some(words)),
        O::Ioctl => A::Ioctl(some(words), data),
        O::Poll => A::Poll(some(words)),
        O::Lseek => A::Lseek(some(words)),
        O::CuseInit => A::CuseInit(some(words), data),
        _ => A::Empty,
    })
}

/// Whether the last part of the answer has any length.
fn open_ended(answer: &Answer<'_>) -> bool {
    use Answer as A;
    matches!(
        answer,
        A::Data(_)
            | A::Xattr(_)
            | A::Entries(_)
            | A::EntriesPlus(_)
            | A::Ioctl(..)
            | A::CuseInit(..)
            | A::Init(_)
    )
}

fn names() -> impl Strategy<Value = Vec<(u64, u64, u32, Vec<u8>)>> {
    let name = vec(any::<u8>().prop_filter("a slash", |&byte| byte != b'/'), 1..60);
    vec((any::<u64>(), any::<u64>(), any::<u32>(), name), 0..8)
}

fn notices<'a>(words: &'a [u64], data: &'a [u8]) -> [Notice<'a>; 9] {
    let [first, second, third, ..] = *words else { panic!("three words") };
    let flags = InvalEntryFlags::EXPIRE_ONLY;
    [
        Notice::Poll { kh: first },
        Notice::InvalInode { ino: first, off: second as i64, len: third as i64 },
        Notice::InvalEntry { parent: first, name: data, flags },
        Notice::Store { nodeid: first, offset: second, data },
        Notice::Retrieve { notify_unique: first, nodeid: second, offset: third, size: 9 },
        Notice::Delete { parent: first, child: second, name: data },
        Notice::Resend,
        Notice::IncEpoch,
        Notice::Prune { nodes: words },
    ]
}

proptest! {
    /// The parser returns the answer that the builder got. It refuses every cut, unless the last part may have any length.
    #[test]
    fn every_reply_round_trips(words in vec(any::<u64>(), 40), data in vec(any::<u8>(), 0..80)) {
        for &opcode in Opcode::ALL {
            prop_assert_eq!(made(opcode, &words, &data).is_some(), opcode.has_reply());
            let Some(answer) = made(opcode, &words, &data) else { continue };
            let reply = Reply { unique: 5, answer };
            let message = reply.encode();
            prop_assert_eq!(Reply::parse(opcode, &message), Ok(reply));
            let error = Reply { unique: 5, answer: Answer::Error(2) };
            let refusal = error.encode();
            prop_assert_eq!(Reply::parse(opcode, &refusal), Ok(error));
            for len in 0..message.len() {
                let mut cut = message.clone();
                cut.truncate(len);
                prop_assert!(Reply::parse(opcode, &cut).is_err());
                if let Ok((header, _)) = OutHeader::mut_from_prefix(&mut cut) {
                    header.len = len as u32;
                    let parsed = Reply::parse(opcode, &cut);
                    prop_assert!(parsed.is_err() || open_ended(&answer), "{:?}: {:?}", opcode, parsed);
                }
            }
        }
    }

    #[test]
    fn every_notice_round_trips(words in vec(any::<u64>(), 3..9), data in vec(any::<u8>(), 0..80)) {
        for notice in notices(&words, &data) {
            let message = Aligned::from(&notice.to_vec()[..]);
            prop_assert_eq!(Notice::parse(&message), Ok(notice));
            let mut buffer = vec![0xEE; message.len()];
            prop_assert_eq!(notice.write(&mut buffer), Some(&message[..]));
            prop_assert_eq!(notice.write(&mut buffer[1..]), None);
            for len in 0..message.len() {
                let mut cut = message.clone();
                cut.truncate(len);
                prop_assert!(Notice::parse(&cut).is_err());
                if let Ok((header, _)) = OutHeader::mut_from_prefix(&mut cut) {
                    header.len = len as u32;
                    prop_assert!(Notice::parse(&cut).is_err());
                }
            }
        }
    }

    /// A listing has every entry that was pushed and fits; its padding is zero.
    #[test]
    fn every_listing_round_trips(names in names(), room in 0..700_usize, dirt: u8) {
        let mut buffer = vec![dirt; room];
        let mut listing = Listing::new(&mut buffer);
        let mut pushed = Vec::new();
        for (ino, next_offset, kind, name) in &names {
            let before = listing.len();
            let fits = listing.push(*ino, *next_offset, *kind, name);
            let size = (24 + name.len()).next_multiple_of(8);
            prop_assert_eq!(fits, before + size <= room);
            prop_assert_eq!(listing.len(), if fits { before + size } else { before });
            if fits {
                pushed.push(Entry { ino: *ino, next_offset: *next_offset, kind: *kind, name });
                prop_assert!(listing.as_bytes()[before + 24 + name.len()..].iter().all(|&byte| byte == 0));
            }
        }
        let parsed: Result<Vec<_>, _> = Entries(listing.as_bytes()).iter().collect();
        prop_assert_eq!(parsed, Ok(pushed));
    }

    #[test]
    fn every_listing_with_nodes_round_trips(names in names(), room in 0..2000_usize) {
        let mut buffer = vec![0xEE; room];
        let mut listing = Listing::new(&mut buffer);
        let mut pushed = Vec::new();
        for (ino, next_offset, kind, name) in &names {
            let attr = abi::Attr { ino: *ino, size: *next_offset, ..Default::default() };
            let node = abi::EntryOut { nodeid: !ino, attr, ..Default::default() };
            if listing.push_plus(&node, *next_offset, *kind, name) {
                let entry = Entry { ino: *ino, next_offset: *next_offset, kind: *kind, name };
                pushed.push((node, entry));
            }
        }
        let parsed: Result<Vec<_>, _> = EntriesPlus(listing.as_bytes()).iter().collect();
        prop_assert_eq!(parsed, Ok(pushed));
    }

    /// No bytes panic, not even behind a header that fits them.
    #[test]
    fn any_bytes_are_parsed_or_refused(
        bytes in vec(any::<u8>(), 0..400),
        which in 0..Opcode::ALL.len(),
        code in 0..12,
        fits: bool,
    ) {
        let opcode = Opcode::ALL[which];
        let mut message = Aligned::from(&bytes[..]);
        if let (Ok((header, _)), true) = (OutHeader::mut_from_prefix(&mut message), fits) {
            *header = OutHeader { len: bytes.len() as u32, error: 0, unique: 1 };
        }
        if let Ok(reply) = Reply::parse(opcode, &message) {
            if let Answer::Entries(entries) = reply.answer {
                prop_assert!(entries.iter().count() <= bytes.len() / 24 + 1);
            }
            if let Answer::EntriesPlus(entries) = reply.answer {
                prop_assert!(entries.iter().count() <= bytes.len() / 152 + 1);
            }
        }
        if let (Ok((header, _)), true) = (OutHeader::mut_from_prefix(&mut message), fits) {
            *header = OutHeader { len: bytes.len() as u32, error: code, unique: 0 };
        }
        if let Ok(notice) = Notice::parse(&message) {
            let again = Aligned::from(&notice.to_vec()[..]);
            prop_assert_eq!(Notice::parse(&again), Ok(notice));
        }
    }
}

/// The kernel refuses an errno out of its range, bytes behind an error, and success where it expects no reply.
#[test]
fn what_the_kernel_refuses_is_refused() {
    let reply = |opcode, error, unique, more: usize| {
        let header = OutHeader { error, ..OutHeader::ok(unique, more) };
        let mut message = Aligned::zeroed(16 + more);
        message[..16].copy_from_slice(header.as_bytes());
        Reply::parse(opcode, &message).map(|reply| matches!(reply.answer, Answer::Error(_)))
    };
    let refused = |unique, opcode: Opcode, cause| {
        Err(Malformed { unique: Some(unique), opcode: opcode as u32, cause })
    };
    assert_eq!(reply(Opcode::Lookup, -2, 1, 0), Ok(true));
    assert_eq!(reply(Opcode::Interrupt, -11, 1, 0), Ok(true));
    assert_eq!(reply(Opcode::Interrupt, 0, 1, 0), refused(1, Opcode::Interrupt, Cause::Number));
    assert_eq!(reply(Opcode::Lookup, 2, 1, 0), refused(1, Opcode::Lookup, Cause::Number));
    assert_eq!(reply(Opcode::Lookup, -512, 1, 0), refused(1, Opcode::Lookup, Cause::Number));
    assert_eq!(reply(Opcode::Lookup, -2, 0, 0), refused(0, Opcode::Lookup, Cause::Number));
    assert_eq!(reply(Opcode::Lookup, -2, 1, 8), refused(1, Opcode::Lookup, Cause::Trailing));
    assert_eq!(reply(Opcode::Unlink, 0, 1, 8), refused(1, Opcode::Unlink, Cause::Trailing));
}

/// Names that fail a whole listing in the kernel are faults.
#[test]
fn entries_that_the_kernel_refuses_are_refused() {
    let mut buffer = [0; 2000];
    for name in [&b""[..], b"a/b", &[b'x'; 1025]] {
        let mut listing = Listing::new(&mut buffer);
        assert!(listing.push(1, 1, 0, b"fine") && listing.push(1, 2, 0, name));
        let parsed: Vec<_> = Entries(listing.as_bytes()).iter().collect();
        assert_eq!((parsed.len(), parsed[1]), (2, Err(Cause::Name)));
    }
}

/// Two notices byte for byte, written by hand.
#[test]
fn notices_have_these_bytes() {
    let prune = Notice::Prune { nodes: &[7, 8] }.to_vec();
    let mut expected = vec![48, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]);
    if cfg!(target_endian = "little") {
        assert_eq!(prune, expected);
    }
    let flags = InvalEntryFlags::EXPIRE_ONLY;
    let expire = Notice::InvalEntry { parent: 1, name: b"d5", flags }.to_vec();
    let mut expected = vec![35, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, b'd', b'5', 0]);
    if cfg!(target_endian = "little") {
        assert_eq!(expire, expected);
    }
}
