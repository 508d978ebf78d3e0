//! Requests: every operation is built, parsed from the device and from a ring, cut, and parsed from any bytes.

use proptest::collection::vec;
use proptest::prelude::*;
use uvfs_fuse_protocol::abi::{self, InHeader};
use uvfs_fuse_protocol::{
    Aligned, Cause, Dialect, Extensions, InitFlags, Malformed, Opcode, Operation, Packed, Request,
    SecurityContext, SetxattrFlags,
};
use zerocopy::{FromBytes, IntoBytes};

/// Material that operations borrow.
#[derive(Debug)]
struct Material {
    /// Words, so that structures lie in them as they are.
    words: Vec<u64>,
    name: Vec<u8>,
    other: Vec<u8>,
    data: Vec<u8>,
    nodes: Vec<(u64, u64)>,
}

fn material() -> impl Strategy<Value = Material> {
    let name = || vec(1..=255_u8, 0..40);
    (
        vec(any::<u64>(), 16),
        name(),
        name(),
        vec(any::<u8>(), 0..200),
        vec(any::<(u64, u64)>(), 0..5),
    )
        .prop_map(|(words, name, other, data, nodes)| Material {
            words,
            name,
            other,
            data,
            nodes,
        })
}

/// Calls `then` with an operation of this number, made of the material.
fn made(opcode: Opcode, material: &Material, then: &mut dyn FnMut(Operation<'_>)) {
    fn some<T: abi::Structure>(material: &Material) -> &T {
        T::ref_from_prefix(material.words.as_bytes()).unwrap().0
    }
    let Material { words, name, other, data, nodes } = material;
    let (name, new_name, target) = (&name[..], &other[..], &other[..]);
    let size = data.len() as u32;
    let ones: Vec<_> =
        nodes.iter().map(|&(nodeid, nlookup)| abi::ForgetOne { nodeid, nlookup }).collect();
    let ranges: Vec<_> =
        nodes.iter().map(|&(moffset, len)| abi::RemovemappingOne { moffset, len }).collect();
    use Opcode as O;
    use Operation as P;
    then(match opcode {
        O::Lookup => P::Lookup { name },
        O::Forget => P::Forget(some(material)),
        O::GetAttr => P::GetAttr(some(material)),
        O::SetAttr => P::SetAttr(some(material)),
        O::ReadLink => P::ReadLink,
        O::SymLink => P::SymLink { name, target },
        O::MkNod => P::MkNod { argument: some(material), name },
        O::MkDir => P::MkDir { argument: some(material), name },
        O::Unlink => P::Unlink { name },
        O::RmDir => P::RmDir { name },
        O::Rename => P::Rename { new_parent: words[0], flags: 0, name, new_name },
        O::Rename2 => {
            P::Rename { new_parent: words[0], flags: words[1] as u32 | 1, name, new_name }
        }
        O::Link => P::Link { argument: some(material), name },
        O::Open => P::Open(some(material)),
        O::Read => P::Read(some(material)),
        O::Write => {
            let argument = &abi::WriteIn { size, ..*some(material) };
            return then(P::Write { argument, data });
        }
        O::StatFs => P::StatFs,
        O::Release => P::Release(some(material)),
        O::Fsync => P::Fsync(some(material)),
        O::SetXattr => P::SetXattr {
            name,
            value: data,
            flags: words[0] as u32,
            setxattr_flags: SetxattrFlags::from_bits_retain(words[1] as u32),
        },
        O::GetXattr => P::GetXattr { argument: some(material), name },
        O::ListXattr => P::ListXattr(some(material)),
        O::RemoveXattr => P::RemoveXattr { name },
        O::Flush => P::Flush(some(material)),
        O::Init => P::Init(*some(material)),
        O::OpenDir => P::OpenDir(some(material)),
        O::ReadDir => P::ReadDir(some(material)),
        O::ReleaseDir => P::ReleaseDir(some(material)),
        O::FsyncDir => P::FsyncDir(some(material)),
        O::GetLk => P::GetLk(some(material)),
        O::SetLk => P::SetLk(some(material)),
        O::SetLkW => P::SetLkW(some(material)),
        O::Access => P::Access(some(material)),
        O::Create => P::Create { argument: some(material), name },
        O::Interrupt => P::Interrupt(some(material)),
        O::Bmap => P::Bmap(some(material)),
        O::Destroy => P::Destroy,
        O::Ioctl => {
            let argument = &abi::IoctlIn { in_size: size, ..*some(material) };
            return then(P::Ioctl { argument, data });
        }
        O::Poll => P::Poll(some(material)),
        O::NotifyReply => {
            let argument = &abi::NotifyRetrieveIn { size, ..*some(material) };
            return then(P::NotifyReply { argument, data });
        }
        O::BatchForget => P::BatchForget(&ones),
        O::Fallocate => P::Fallocate(some(material)),
        O::ReadDirPlus => P::ReadDirPlus(some(material)),
        O::Lseek => P::Lseek(some(material)),
        O::CopyFileRange => P::CopyFileRange(some(material)),
        O::SetupMapping => P::SetupMapping(some(material)),
        O::RemoveMapping => P::RemoveMapping(Packed::of(&ranges)),
        O::SyncFs => P::SyncFs(some(material)),
        O::TmpFile => P::TmpFile { argument: some(material), name },
        O::Statx => P::Statx(some(material)),
        O::CopyFileRange64 => P::CopyFileRange64(some(material)),
        O::CuseInit => P::CuseInit(some(material)),
    });
}

const LONG: Dialect = Dialect { setxattr_ext: true };

/// The request as a ring delivers it: the fixed structure in an area of 128 bytes, the rest in another.
fn by_ring<'a>(
    dialect: Dialect,
    opcode: Opcode,
    message: &'a [u8],
    area: &'a mut Aligned,
) -> Result<Request<'a>, Malformed> {
    let (header, body) = InHeader::ref_from_prefix(message).unwrap();
    let (argument, payload) = body.split_at(dialect.argument_size(opcode));
    area.fill(0xEE);
    area[..argument.len()].copy_from_slice(argument);
    dialect.from_parts(header, area, payload)
}

proptest! {
    /// The parser returns the operation that the builder got, in both forms and by both ways.
    #[test]
    fn every_operation_round_trips(material in material(), unique: u64, long: bool) {
        for &opcode in Opcode::ALL {
            let dialect = if long { LONG } else { Dialect::default() };
            made(opcode, &material, &mut |mut operation| {
                assert_eq!(operation.number(), opcode as u32);
                if let (Operation::SetXattr { setxattr_flags, .. }, false) = (&mut operation, long) {
                    *setxattr_flags = SetxattrFlags::empty();
                }
                let header = InHeader { unique, nodeid: !unique, uid: 1, ..Default::default() };
                let request = Request { header: &header, operation, extensions: Extensions::default() };
                let message = request.encode(dialect);
                let parsed = dialect.parse(&message).unwrap();
                assert_eq!(parsed.operation, operation);
                assert_eq!(parsed.header.unique, unique);
                assert_eq!(parsed.header.len as usize, message.len());
                let mut area = Aligned::zeroed(128);
                if opcode != Opcode::Init {
                    let parsed = by_ring(dialect, opcode, &message, &mut area).unwrap();
                    assert_eq!(parsed.operation, operation);
                }
            });
        }
    }

    /// The parser refuses a cut message, with the old length in its header and with the new one; INIT alone has shorter forms.
    #[test]
    fn what_is_cut_is_refused(material in material()) {
        for &opcode in Opcode::ALL {
            made(opcode, &material, &mut |operation| {
                let whole = operation.encode(&InHeader { unique: 3, ..Default::default() });
                for len in 0..whole.len() {
                    let mut cut = whole.clone();
                    cut.truncate(len);
                    assert!(Request::parse(&cut).is_err());
                    if let Ok((header, _)) = InHeader::mut_from_prefix(&mut cut) {
                        header.len = len as u32;
                        let parsed = Request::parse(&cut);
                        let allowed = opcode == Opcode::Init && len >= 48;
                        assert_eq!(parsed.is_ok(), allowed, "{opcode:?} of {len}: {parsed:?}");
                        let unique = parsed.err().map(|malformed| malformed.unique);
                        assert!(allowed || unique == Some(Some(3)));
                    }
                }
            });
        }
    }

    /// The parser refuses one more byte, except behind an INIT.
    #[test]
    fn what_is_too_long_is_refused(material in material()) {
        for &opcode in Opcode::ALL {
            made(opcode, &material, &mut |operation| {
                let mut message = operation.encode(&InHeader::default()).to_vec();
                message.push(0);
                let mut message = Aligned::from(&message[..]);
                let len = message.len() as u32;
                InHeader::mut_from_prefix(&mut message).unwrap().0.len = len;
                assert_eq!(Request::parse(&message).is_ok(), opcode == Opcode::Init, "{opcode:?}");
            });
        }
    }

    /// No bytes panic, not even behind a header that fits them.
    #[test]
    fn any_bytes_are_parsed_or_refused(
        bytes in vec(any::<u8>(), 0..300),
        which in 0..Opcode::ALL.len(),
        extensions in 0..4_u16,
        fits: bool,
        long: bool,
    ) {
        let mut message = Aligned::from(&bytes[..]);
        if let (Ok((header, _)), true) = (InHeader::mut_from_prefix(&mut message), fits) {
            header.len = bytes.len() as u32;
            header.opcode = Opcode::ALL[which] as u32;
            header.total_extlen = extensions;
        }
        let dialect = Dialect { setxattr_ext: long };
        if let Ok(request) = dialect.parse(&message) {
            prop_assert!(request.extensions.iter().count() <= bytes.len());
            prop_assert!(request.extensions.security_contexts().count() <= bytes.len());
            prop_assert!(request.extensions.groups().count() <= bytes.len());
            let again = request.encode(dialect);
            prop_assert_eq!(dialect.parse(&again).unwrap().operation, request.operation);
        }
    }
}

proptest! {
    /// Any contexts and groups.
    #[test]
    fn extensions_round_trip(
        contexts in vec((vec(1..=255_u8, 0..20), vec(any::<u8>(), 0..20)), 0..4),
        groups in vec(any::<u32>(), 0..5),
    ) {
        let contexts: Vec<_> = contexts
            .iter()
            .map(|(name, context)| SecurityContext { name, context })
            .collect();
        let bytes = Extensions::encode(&contexts, &groups);
        prop_assert_eq!(bytes.len() % 8, 0);
        let extensions = Extensions::parse(&bytes).unwrap();
        prop_assert_eq!(extensions.security_contexts().collect::<Vec<_>>(), contexts);
        prop_assert_eq!(extensions.groups().collect::<Vec<_>>(), groups);
    }
}

/// A number of no operation is answered with ENOSYS, not with EINVAL: its form is unknown.
#[test]
fn an_unknown_operation_is_no_fault() {
    for number in [0, 7, 19, 54, 4097, u32::MAX] {
        assert_eq!(Opcode::try_from(number), Err(number));
        let message = Operation::Unknown(number).encode(&InHeader::default());
        assert_eq!(Request::parse(&message).unwrap().operation, Operation::Unknown(number));
    }
}

/// A buffer that does not begin at a multiple of 8 has a cause of its own: the fault is the caller's.
#[test]
fn a_misaligned_message_is_refused() {
    let message = Operation::StatFs.encode(&InHeader::default());
    let mut shifted = Aligned::zeroed(message.len() + 4);
    shifted[4..].copy_from_slice(&message);
    let refused = Request::parse(&shifted[4..]).unwrap_err();
    assert_eq!(refused, Malformed { unique: None, opcode: 0, cause: Cause::Misaligned });
}

/// A kernel before 7.36 sends 16 bytes, one before 7.6 sends 8.
#[test]
fn short_forms_of_init_are_filled_with_zeros() {
    let init = abi::InitIn {
        major: 7,
        minor: 31,
        max_readahead: 9,
        flags: 1,
        flags2: 2,
        ..Default::default()
    };
    let mut message = Operation::Init(init).encode(&InHeader::default());
    for (len, max_readahead, flags) in [(56, 9, 1), (48, 0, 0)] {
        message.truncate(len);
        InHeader::mut_from_prefix(&mut message).unwrap().0.len = len as u32;
        let parsed = Request::parse(&message).unwrap().operation;
        let expected =
            abi::InitIn { major: 7, minor: 31, max_readahead, flags, ..Default::default() };
        assert_eq!(parsed, Operation::Init(expected));
    }
}

/// The second word counts only with a bit of the first, on both sides.
#[test]
fn flags_of_an_init_are_two_words() {
    let both = InitFlags::OVER_IO_URING | InitFlags::ASYNC_READ;
    assert_eq!(both.to_words(), (1 | 1 << 30, 1 << 9));
    assert_eq!(InitFlags::from_words(1, 1 << 9), InitFlags::ASYNC_READ);
    assert_eq!(InitFlags::from_words(1 | 1 << 30, 1 << 9), both | InitFlags::INIT_EXT);
    let reply = abi::InitOut::default().with_flags(both);
    assert!(reply.accepted().contains(both));
    assert_eq!(
        (abi::InitOut::size(4), abi::InitOut::size(22), abi::InitOut::size(45)),
        (8, 24, 64)
    );
}

/// Extensions follow the name, aligned to nothing.
#[test]
fn extensions_are_split_from_a_creation() {
    let mut bytes = Vec::new();
    let context = b"security.selinux\0abc";
    let size = 8 + (8 + context.len() as u32).next_multiple_of(8);
    bytes.extend(abi::SecctxHeader { size, nr_secctx: 1 }.as_bytes());
    bytes.extend(abi::Secctx { size: 3, padding: 0 }.as_bytes());
    bytes.extend(context);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(abi::ExtHeader { size: 24, r#type: abi::EXT_GROUPS }.as_bytes());
    bytes.extend([2_u32, 100, 200, 0].as_bytes());
    let context = SecurityContext { name: b"security.selinux", context: b"abc" };
    assert_eq!(Extensions::encode(&[context], &[100, 200]), bytes);
    let argument = abi::MkdirIn { mode: 0o755, umask: 0o22 };
    let operation = Operation::MkDir { argument: &argument, name: b"sub" };
    let mut message = operation.encode(&InHeader::default()).to_vec();
    message.extend(&bytes);
    let mut message = Aligned::from(&message[..]);
    let len = message.len() as u32;
    let header = InHeader::mut_from_prefix(&mut message).unwrap().0;
    (header.len, header.total_extlen) = (len, bytes.len() as u16 / 8);
    let request = Request::parse(&message).unwrap();
    assert_eq!(request.operation, operation);
    let contexts: Vec<_> = request.extensions.security_contexts().collect();
    assert_eq!(contexts, [context]);
    assert_eq!(request.extensions.groups().collect::<Vec<_>>(), [100, 200]);
    assert_eq!(request.encode(Dialect::default()), message);
    // A count that the record does not hold, and extensions that are longer than the message.
    let broken = |change: &dyn Fn(&mut Aligned)| {
        let mut message = message.clone();
        change(&mut message);
        Request::parse(&message).unwrap_err().cause
    };
    let groups = message.len() - 16;
    assert_eq!(broken(&|message| message[groups] = 4), Cause::Extensions);
    assert_eq!(broken(&|message| message[36] = 200), Cause::Extensions);
}
