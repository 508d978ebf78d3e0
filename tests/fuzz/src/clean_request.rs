//! Requests to clean a directory: any bytes of a command line or a control file.
//!
//! Compared with a second parser of the same grammar, written as a machine: one byte at a time, one
//! state, no slices. Both must accept the same inputs with the same meaning; the rule of a refusal
//! is checked as far as the machine knows it. An accepted request means the same when it is written
//! and read again.

use std::os::unix::ffi::OsStrExt;
use uvfs_vfs::Clean;
use uvfs_vfs::clean::request::{Refusal, Request};

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(bytes: &[u8]) {
    let read = Request::parse(bytes);
    match (reference(bytes), &read) {
        (Some((digit, path)), Ok(request)) => {
            assert_eq!(request.what.digit(), char::from(digit));
            let directory = request.directory.as_ref().map(|path| path.as_os_str().as_bytes());
            assert_eq!(directory, path.as_deref());
            again(request);
        }
        (None, Err(refusal)) => refused(bytes, *refusal),
        (expected, read) => panic!("{bytes:?}: {expected:?} but {read:?}"),
    }
}

/// How far the machine is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Digit,
    Colon,
    /// In a component, with as many leading dots and nothing else; 3 for any other beginning.
    Component(u8),
    /// Behind the newline that may have ended the request.
    Newline,
}

/// Digit and path of a request, or `None`.
fn reference(bytes: &[u8]) -> Option<(u8, Option<Vec<u8>>)> {
    let (mut state, mut digit, mut path) = (State::Start, 0, None::<Vec<u8>>);
    let last = bytes.len().wrapping_sub(1);
    for (at, &byte) in bytes.iter().enumerate() {
        if at >= 4096 {
            return None;
        }
        if at == last && byte == b'\n' {
            // The request ends here; the bytes before decide.
            if path.as_ref().is_some_and(|path| path.last() == Some(&b'\n')) {
                return None;
            }
            state = match state {
                State::Digit | State::Component(0 | 1 | 3) => State::Newline,
                _ => return None,
            };
            continue;
        }
        state = match (state, byte) {
            (State::Start, b'1' | b'2' | b'3') => {
                digit = byte;
                State::Digit
            }
            (State::Digit, b':') => State::Colon,
            (State::Colon, b'/') => {
                path = Some(vec![b'/']);
                State::Component(0)
            }
            (State::Component(_), 0) => return None,
            (State::Component(dots), byte) => {
                path.as_mut()?.push(byte);
                match (byte, dots) {
                    (b'/', 2) => return None,
                    (b'/', _) => State::Component(0),
                    (b'.', 0 | 1) => State::Component(dots + 1),
                    _ => State::Component(3),
                }
            }
            _ => return None,
        };
    }
    match state {
        State::Digit | State::Newline | State::Component(0 | 1 | 3) => Some((digit, path)),
        _ => None,
    }
}

/// A request that is written and read again is the same request.
fn again(request: &Request) {
    let mut written = request.to_bytes();
    assert_eq!(Request::parse(&written).as_ref(), Ok(request));
    if written.len() < 4096 {
        written.push(b'\n');
        assert_eq!(Request::parse(&written).as_ref(), Ok(request));
    }
    let number =
        u8::from(request.what != Clean::Names) + 2 * u8::from(request.what != Clean::Pages);
    assert_eq!(number, request.what.digit() as u8 - b'0');
}

/// The rule that a refusal names is broken.
fn refused(bytes: &[u8], refusal: Refusal) {
    let holds = match refusal {
        Refusal::TooLong => bytes.len() > 4096,
        Refusal::Empty => bytes.is_empty() || bytes == b"\n",
        Refusal::Digit => !matches!(bytes[0], b'1'..=b'3'),
        Refusal::Form => bytes[1] != b':',
        Refusal::NoPath => bytes.len() < 4,
        Refusal::Nul => bytes.contains(&0),
        Refusal::Relative => bytes[2] != b'/',
        Refusal::Newline => bytes.ends_with(b"\n\n"),
        Refusal::DotDot => bytes.windows(3).any(|window| window == b"/.."),
        _ => false,
    };
    assert!(holds, "{bytes:?}: {refusal}");
    assert!(refusal.errno() > 0 && !refusal.to_string().contains('\n'));
}
