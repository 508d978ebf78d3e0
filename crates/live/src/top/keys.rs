//! The bytes that a terminal sends for keys.
//!
//! # Boundary
//! Bytes to keys. [`super::ui`] acts on a key.
//!
//! # Why
//! A dozen keys of one page: a table of sequences is shorter than the crate for them, which has an event loop.
//! Weakness: a sequence that arrives in two parts is taken for other keys, all harmless.

/// A key that means something here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    Letter(char),
    Up,
    Down,
    Left,
    Right,
    Enter,
    Escape,
    /// Ctrl-C: the terminal is raw, so that it sends no signal.
    Interrupt,
}

/// The sequences of keys that are no letters, in both modes of a keypad.
const SEQUENCES: [(&[u8], Option<Key>); 9] = [
    (b"\x1b[A", Some(Key::Up)),
    (b"\x1b[B", Some(Key::Down)),
    (b"\x1b[C", Some(Key::Right)),
    (b"\x1b[D", Some(Key::Left)),
    (b"\x1bOA", Some(Key::Up)),
    (b"\x1bOB", Some(Key::Down)),
    (b"\x1bOC", Some(Key::Right)),
    (b"\x1bOD", Some(Key::Left)),
    (b"\x1b[Z", Some(Key::Left)),
];

/// The keys in `bytes`, as they were read at once.
pub(crate) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        if let Some((sequence, key)) = SEQUENCES.iter().find(|(one, _)| bytes.starts_with(one)) {
            keys.extend(*key);
            bytes = &bytes[sequence.len()..];
            continue;
        }
        bytes = match first {
            // An unknown sequence, to its end.
            0x1b if rest.first() == Some(&b'[') => {
                let end = rest[1..].iter().position(|byte| (0x40..0x7f).contains(byte));
                end.map_or(&[][..], |end| &rest[end + 2..])
            }
            0x1b => {
                keys.push(Key::Escape);
                rest
            }
            0x03 => {
                keys.push(Key::Interrupt);
                rest
            }
            b'\r' | b'\n' => {
                keys.push(Key::Enter);
                rest
            }
            b'\t' => {
                keys.push(Key::Right);
                rest
            }
            b' '..=b'~' => {
                keys.push(Key::Letter(char::from(*first)));
                rest
            }
            _ => rest,
        };
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_arrows_and_what_means_nothing() {
        let check = |bytes: &[u8], expected: &[Key]| assert_eq!(keys(bytes), expected, "{bytes:?}");
        check(b"qd", &[Key::Letter('q'), Key::Letter('d')]);
        check(b"\x1b[A\x1bOBj", &[Key::Up, Key::Down, Key::Letter('j')]);
        check(b"\x1b", &[Key::Escape]);
        check(b"\x1b[15~q", &[Key::Letter('q')]);
        check(b"\x1b[1;5A\x03", &[Key::Interrupt]);
        check(b"\x1b[", &[]);
        check("ä\t\r".as_bytes(), &[Key::Right, Key::Enter]);
    }
}
