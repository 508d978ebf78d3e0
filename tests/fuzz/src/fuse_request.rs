//! Requests of the kernel's FUSE protocol: any bytes of a message.
//!
//! Compared with a second parser, which knows only the sizes of the parts: both must accept the same messages. An
//! accepted message is the same by `/dev/fuse` and by a ring, and builds the same bytes.

use uvfs_fuse_protocol::abi::InHeader;
use uvfs_fuse_protocol::{Aligned, Dialect, Opcode, Operation, Request};
use zerocopy::FromBytes;

/// One input: a message, or one whose header needs its length.
///
/// # Panics
/// If a law is broken.
pub fn run(bytes: &[u8]) {
    let mut message = Aligned::from(bytes);
    one(&message);
    if let Ok((header, _)) = InHeader::mut_from_prefix(&mut message) {
        header.len = bytes.len() as u32;
        one(&message);
    }
}

fn one(message: &Aligned) {
    for setxattr_ext in [false, true] {
        let dialect = Dialect { setxattr_ext };
        let parsed = dialect.parse(message);
        if let Some(expected) = accepts(message, setxattr_ext) {
            assert_eq!(parsed.is_ok(), expected, "{message:?}: {parsed:?}");
        }
        match parsed {
            Ok(request) => accepted(message, dialect, request),
            Err(malformed) => {
                assert_eq!(malformed.unique.is_some(), message.len() >= 40);
                assert!(!malformed.to_string().is_empty());
            }
        }
    }
}

fn accepted(message: &Aligned, dialect: Dialect, request: Request<'_>) {
    let again = request.encode(dialect);
    let reparsed = dialect.parse(&again).expect("what was built");
    assert_eq!((reparsed.operation, reparsed.extensions), (request.operation, request.extensions));
    request.extensions.security_contexts().for_each(|context| assert!(!context.name.contains(&0)));
    assert!(request.extensions.groups().count() * 4 <= message.len());
    // Padding inside structures is not kept, and INIT may be longer or shorter.
    let padded = matches!(
        request.operation,
        Operation::Init(_)
            | Operation::BatchForget(_)
            | Operation::SetXattr { .. }
            | Operation::Rename { .. }
            | Operation::Unknown(_)
    );
    assert!(padded || again == *message);
    let Ok(opcode) = Opcode::try_from(request.header.opcode) else { return };
    if opcode != Opcode::Init {
        let (argument, payload) = message[40..].split_at(dialect.argument_size(opcode));
        let mut area = Aligned::zeroed(128);
        area[..argument.len()].copy_from_slice(argument);
        assert_eq!(dialect.from_parts(request.header, &area, payload), Ok(request));
    }
}

/// The part behind the fixed structure and the names.
enum Tail {
    None,
    /// Bytes; their count is a word of the fixed structure at this offset.
    Bytes(usize),
    /// Items of this size; their count is the first word of the fixed structure.
    Items(usize),
}

/// Bytes of the fixed structure, count of names, and the rest, by number.
fn form(opcode: u32, setxattr_ext: bool) -> (usize, usize, Tail) {
    match opcode {
        1 | 10 | 11 | 24 => (0, 1, Tail::None),
        5 | 17 | 38 => (0, 0, Tail::None),
        6 => (0, 2, Tail::None),
        8 | 35 | 51 => (16, 1, Tail::None),
        9 | 13 | 22 => (8, 1, Tail::None),
        12 => (8, 2, Tail::None),
        45 => (16, 2, Tail::None),
        2 | 14 | 23 | 27 | 34 | 36 | 50 => (8, 0, Tail::None),
        3 | 20 | 30 | 37 | 4096 => (16, 0, Tail::None),
        18 | 25 | 29 | 40 | 46 | 52 => (24, 0, Tail::None),
        43 => (32, 0, Tail::None),
        15 | 28 | 44 | 48 => (40, 0, Tail::None),
        31..=33 => (48, 0, Tail::None),
        47 | 53 => (56, 0, Tail::None),
        4 => (88, 0, Tail::None),
        16 | 41 => (40, 0, Tail::Bytes(16)),
        21 if setxattr_ext => (16, 1, Tail::Bytes(0)),
        21 => (8, 1, Tail::Bytes(0)),
        39 => (32, 0, Tail::Bytes(24)),
        42 => (8, 0, Tail::Items(16)),
        49 => (4, 0, Tail::Items(16)),
        other => panic!("operation {other} has no form here"),
    }
}

/// Whether a message without extensions is one; `None` for a message that has some.
fn accepts(message: &[u8], setxattr_ext: bool) -> Option<bool> {
    let word = |bytes: &[u8], at: usize| {
        u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
    };
    if message.len() < 40 || word(message, 0) != message.len() {
        return Some(false);
    }
    let (opcode, body) = (word(message, 4) as u32, &message[40..]);
    if Opcode::try_from(opcode).is_err() {
        return Some(true);
    }
    if message[36..38] != [0, 0] {
        return None;
    }
    if opcode == 26 {
        return Some(body.len() >= 8);
    }
    let (fixed, names, tail) = form(opcode, setxattr_ext);
    let Some(mut rest) = body.get(fixed..) else { return Some(false) };
    for _ in 0..names {
        let Some(zero) = rest.iter().position(|&byte| byte == 0) else { return Some(false) };
        rest = &rest[zero + 1..];
    }
    Some(match tail {
        Tail::None => rest.is_empty(),
        Tail::Bytes(at) => rest.len() == word(body, at),
        Tail::Items(size) => rest.len() == word(body, 0) * size,
    })
}
