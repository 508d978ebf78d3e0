//! Rules that a message breaks.

use std::fmt;

/// A message that breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The number of the request, to answer it with EINVAL; `None` if the message has no whole header.
    pub unique: Option<u64>,
    /// Number of the operation, or of the notice; 0 if the message has no whole header.
    pub opcode: u32,
    /// The rule that the message breaks.
    pub cause: Cause,
}

/// A rule that a message breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The length in the header is not that of the message.
    Length,
    /// A fixed structure, or an array of a stated length, is cut.
    Short,
    /// The buffer does not begin at a multiple of 8.
    Misaligned,
    /// A name has no zero at its end.
    Unterminated,
    /// Data is not as long as the structure before it states.
    DataLength,
    /// Bytes are left behind the last part.
    Trailing,
    /// The extensions are longer than the message, or one of them is cut.
    Extensions,
    /// A reply or a notice has a number that it cannot have.
    Number,
    /// An entry of a listing has no name, a name that is too long, or one with a slash.
    Name,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "message with number {}: {}", self.opcode, self.cause)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the length in the header is not that of the message",
            Self::Short => "a structure is cut",
            Self::Misaligned => "the buffer does not begin at a multiple of 8",
            Self::Unterminated => "a name has no zero at its end",
            Self::DataLength => "the data is not as long as stated",
            Self::Trailing => "bytes are left behind the last part",
            Self::Extensions => "the extensions do not fit",
            Self::Number => "the number is not possible here",
            Self::Name => "an entry's name is empty, too long, or has a slash",
        })
    }
}

impl std::error::Error for Malformed {}
impl std::error::Error for Cause {}
