//! Why an image, or one object in it, cannot be read.

use std::fmt;
use std::io;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// There is no superblock of this format.
    NotExt,
    /// The image uses a feature that this reader does not support; the text is the feature's usual name.
    Unsupported(String),
    /// The file system is larger than what holds it.
    Truncated {
        /// The size that the superblock claims.
        needed_bytes: u64,
        /// The size of the device.
        device_bytes: u64,
    },
    /// The image contradicts itself.
    Corrupt(Fault),
    /// The object is encrypted, and there is no key.
    NoKey,
    /// A directory was needed.
    NotDirectory,
    /// The device failed.
    Io(io::Error),
}

/// One fault of an image and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The contradiction.
    pub what: String,
    /// The block in which it was seen.
    pub block: Option<u64>,
    /// The inode to which it belongs.
    pub inode: Option<u32>,
}

impl Fault {
    /// A fault of no known place.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), block: None, inode: None }
    }

    /// Adds `block` as the place, unless the fault has one.
    #[must_use]
    pub fn block(self, block: u64) -> Self {
        Self { block: self.block.or(Some(block)), ..self }
    }

    /// Adds `inode` as the place, unless the fault has one.
    #[must_use]
    pub fn inode(self, inode: u32) -> Self {
        Self { inode: self.inode.or(Some(inode)), ..self }
    }
}

impl Error {
    /// The image contradicts itself; the caller may add the place.
    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Error::Corrupt(Fault::new(what))
    }

    /// Adds the block, if a fault has none yet.
    pub(crate) fn at_block(self, block: u64) -> Self {
        match self {
            Error::Corrupt(fault) => Error::Corrupt(fault.block(block)),
            other => other,
        }
    }

    /// Adds the inode, if a fault has none yet.
    pub(crate) fn in_inode(self, inode: u32) -> Self {
        match self {
            Error::Corrupt(fault) => Error::Corrupt(fault.inode(inode)),
            other => other,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(inode) = self.inode {
            write!(out, "inode {inode}: ")?;
        }
        if let Some(block) = self.block {
            write!(out, "block {block}: ")?;
        }
        out.write_str(&self.what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotExt => out.write_str("no ext2, ext3 or ext4 file system is here"),
            Error::Unsupported(what) => write!(out, "not supported: {what}"),
            Error::Truncated { needed_bytes, device_bytes } => write!(
                out,
                "truncated: the file system has {needed_bytes} bytes, and {device_bytes} are there"
            ),
            Error::Corrupt(fault) => write!(out, "corrupt: {fault}"),
            Error::NoKey => out.write_str("encrypted, and there is no key"),
            Error::NotDirectory => out.write_str("not a directory"),
            Error::Io(error) => write!(out, "reading the device: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}
