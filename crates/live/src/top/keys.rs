//! The bytes that a terminal sends for keys.
//!
//! # Boundary
//! Bytes to keys, and the list of keys that the user reads. [`super::ui`] acts on a key.
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
    /// The key that removes a letter.
    Back,
    /// Ctrl-C: the terminal is raw, so that it sends no signal.
    Interrupt,
}

/// A key's name, the word for it in the last line, and its effect.
type Described = (&'static str, &'static str, &'static str);

/// All keys, for the last line, the screen of `?`, and `uvfs top --help`; the last line has the first ones that fit.
pub(crate) const DESCRIBED: [Described; 10] = [
    ("?", "help", "show this list, until any key"),
    ("/", "search", "show only the directories that have a typed text; Esc ends that"),
    ("q", "quit", "end; Ctrl-C does so, too"),
    ("s", "sort", "sort directories: bytes, requests, growth, names, dirty bytes, path"),
    ("d", "drop", "drop the cached objects of the directory; asks first"),
    ("\u{2190}\u{2192}", "mount", "the mount before, the next one; h, l and Tab do so, too"),
    ("p", "pause", "pause, and continue; the space bar does so, too"),
    ("\u{2191}\u{2193}", "select", "select a directory; k and j do so, too"),
    ("K O N", "mark", "mark the directory keep, or once; remove the mark"),
    ("Esc", "", "end a search; remove a message from the last line"),
];

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
            0x08 | 0x7f => {
                keys.push(Key::Back);
                rest
            }
            b' '..=b'~' => {
                keys.push(Key::Letter(char::from(*first)));
                rest
            }
            0x80.. => {
                // A letter of a name that is searched for.
                let mut chunks = bytes.utf8_chunks();
                let letter = chunks.next().and_then(|chunk| chunk.valid().chars().next());
                keys.extend(letter.filter(|letter| !letter.is_control()).map(Key::Letter));
                letter.map_or(rest, |letter| &bytes[letter.len_utf8()..])
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
        check("ä\t\r".as_bytes(), &[Key::Letter('ä'), Key::Right, Key::Enter]);
        check(b"\x7f\x08", &[Key::Back, Key::Back]);
        check(b"\xff\xc3q", &[Key::Letter('q')]);
        check("\u{85}".as_bytes(), &[]);
    }
}
