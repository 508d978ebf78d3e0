//! Which keys are names of files, and which names are keys.
//!
//! # Boundary
//! From keys to names below a prefix, and back. Asks no store.
//!
//! # Why
//! A key is any text; a path is not. A key that is changed to be shown would return as another key (`a//b` as `a/b`), and
//! a client that tidies keys writes to the wrong object. So a key is a file if and only if its path below the prefix
//! is made of names, and each key is sent to the store byte for byte. Everything else is hidden, and counted. Weakness:
//! hidden objects can be neither read nor removed through the mount.

use crate::store::{Kind, Listed};
use uvfs_vfs::Name;

/// Bytes of a key at most, by S3's rules.
pub const KEY_MAX: usize = 1024;

/// The meaning of an entry in a listing of the directory `prefix`, cut at `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown<'a> {
    /// A file or a directory of this name.
    As(&'a str),
    /// The directory itself: an object that says that it exists while it is empty.
    Marker,
    /// Nothing: it has no name that a file can have.
    Hidden,
}

/// How `entry` is shown in the directory `prefix`, which is empty or ends with `/`.
pub fn shown<'a>(prefix: &str, entry: &'a Listed) -> Shown<'a> {
    let Some(rest) = entry.key.strip_prefix(prefix) else { return Shown::Hidden };
    let name = match &entry.kind {
        Kind::Object { .. } if rest.is_empty() => return Shown::Marker,
        Kind::Object { .. } => rest,
        Kind::Prefix => rest.strip_suffix('/').unwrap_or(""),
    };
    match Name::new(name.as_bytes()) {
        Ok(_) => Shown::As(name),
        Err(_) => Shown::Hidden,
    }
}

/// The key of `name` in the directory `prefix`; `None` if no key is called so.
pub fn key_of(prefix: &str, name: Name<'_>) -> Option<String> {
    let name = std::str::from_utf8(name.as_bytes()).ok()?;
    (prefix.len() + name.len() <= KEY_MAX).then(|| format!("{prefix}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Tag;
    use uvfs_vfs::Timestamp;

    fn object(key: &str) -> Listed {
        let (tag, modified) = (Tag("\"1\"".into()), Timestamp::default());
        Listed { key: key.into(), kind: Kind::Object { tag, size: 0, modified } }
    }

    fn cut(key: &str) -> Listed {
        Listed { key: key.into(), kind: Kind::Prefix }
    }

    #[test]
    fn keys_that_are_paths_are_shown_and_others_are_not() {
        // A client library wrote "n/x" when it was asked for "n/x ", and "a/b" for "a//b".
        for name in ["x", "x ", " x", "\t", "%2F", "+", "ä", "...", "a\nb", "\u{1}"] {
            assert_eq!(shown("n/", &object(&format!("n/{name}"))), Shown::As(name));
            assert_eq!(shown("n/", &cut(&format!("n/{name}/"))), Shown::As(name));
            assert_eq!(shown("", &object(name)), Shown::As(name));
        }
        for name in [".", "..", "a\0b", &"x".repeat(256)] {
            assert_eq!(shown("n/", &object(&format!("n/{name}"))), Shown::Hidden, "{name:?}");
            assert_eq!(shown("n/", &cut(&format!("n/{name}/"))), Shown::Hidden, "{name:?}");
        }
        assert_eq!(shown("n/", &object("n/")), Shown::Marker);
        assert_eq!(shown("n/", &cut("n//")), Shown::Hidden);
        assert_eq!(shown("", &cut("/")), Shown::Hidden);
        assert_eq!(shown("n/", &object("m/x")), Shown::Hidden);
    }

    #[test]
    fn a_shown_name_leads_to_the_key_that_it_came_from() {
        for key in ["n/x", "n/ x ", "n/%2f", "n/\u{7f}"] {
            let listed = object(key);
            let Shown::As(name) = shown("n/", &listed) else { panic!("{key:?} is hidden") };
            let name = Name::new(name.as_bytes()).unwrap();
            assert_eq!(key_of("n/", name).as_deref(), Some(key));
        }
        assert_eq!(key_of("", Name::new(b"\xff").unwrap()), None, "keys are UTF-8");
        let long = "d/".repeat(KEY_MAX / 2 - 1);
        assert!(key_of(&long, Name::new(b"ab").unwrap()).is_some());
        assert!(key_of(&long, Name::new(b"abc").unwrap()).is_none());
    }
}
