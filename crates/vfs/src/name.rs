//! One component of a path.

use crate::error::{Error, Result};
use std::fmt;

/// Longest name in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path in bytes, without a closing NUL.
pub const PATH_MAX: usize = 4095;

/// A checked name: 1 to 255 bytes of anything but `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`Error::NameTooLong`] over 255 bytes; [`Error::NotFound`] if empty; [`Error::Invalid`] for
    /// `.`, `..`, a slash or a NUL.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        match bytes {
            [] => Err(Error::NotFound),
            b"." | b".." => Err(Error::Invalid("`.` and `..` are not names")),
            _ if bytes.len() > NAME_MAX => Err(Error::NameTooLong),
            _ if bytes.iter().any(|&byte| byte == b'/' || byte == 0) => {
                Err(Error::Invalid("a name holds no slash and no NUL"))
            }
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_but_slash_and_nul_up_to_255_make_a_name() {
        assert!(Name::new(b"\xff\x01 \n*").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(matches!(Name::new(&[b'x'; 256]), Err(Error::NameTooLong)));
        assert!(matches!(Name::new(b""), Err(Error::NotFound)));
        for bad in [&b"."[..], b"..", b"a/b", b"a\0b"] {
            assert!(matches!(Name::new(bad), Err(Error::Invalid(_))));
        }
    }
}
