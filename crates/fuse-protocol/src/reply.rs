//! Replies: heads and listings for the server, all of them parsed and built for the kernel's side.

use crate::abi::{
    AttrOut, BmapOut, CopyFileRangeOut, CuseInitOut, Dirent, EntryOut, InitOut, IoctlOut, LkOut,
    LseekOut, NAME_MAX, OpenOut, OutHeader, PollOut, StatfsOut, StatxOut, WriteOut,
};
use crate::bytes::{Aligned, Cursor};
use crate::malformed::{Cause, Malformed};
use crate::opcode::Opcode;
use std::fmt;
use zerocopy::IntoBytes;

impl OutHeader {
    /// Head of a reply that has `payload_len` bytes behind it.
    ///
    /// # Panics
    /// With 4 GiB or more, which no reply has.
    #[must_use]
    pub fn ok(unique: u64, payload_len: usize) -> Self {
        let len = u32::try_from(size_of::<Self>() + payload_len);
        Self { len: len.expect("a reply is shorter than 4 GiB"), error: 0, unique }
    }

    /// A reply that is an error: `errno` is positive, as `libc` has it.
    #[must_use]
    pub const fn error(unique: u64, errno: i32) -> Self {
        Self { len: size_of::<Self>() as u32, error: -errno, unique }
    }
}

/// Entries of a directory, written into a buffer as READDIR or READDIRPLUS replies with them.
pub struct Listing<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Listing<'a> {
    /// An empty listing that has room in this buffer, which need not be aligned.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, len: 0 }
    }

    /// Adds an entry of READDIR; `false`, and nothing is added, if it does not fit.
    ///
    /// The kernel continues behind this entry with `next_offset`. `kind` is a `DT_*`. The kernel fails the
    /// whole listing for a name that is empty, longer than [`NAME_MAX`], or has a slash.
    #[must_use]
    pub fn push(&mut self, ino: u64, next_offset: u64, kind: u32, name: &[u8]) -> bool {
        self.add(&[], ino, next_offset, kind, name)
    }

    /// Adds an entry of READDIRPLUS; `false`, and nothing is added, if it does not fit.
    ///
    /// The kernel counts a lookup of each node but 0, by which the server returns a name without a node. The inode number of
    /// the entry is that of the attributes.
    #[must_use]
    pub fn push_plus(
        &mut self,
        entry: &EntryOut,
        next_offset: u64,
        kind: u32,
        name: &[u8],
    ) -> bool {
        self.add(entry.as_bytes(), entry.attr.ino, next_offset, kind, name)
    }

    fn add(&mut self, before: &[u8], ino: u64, off: u64, kind: u32, name: &[u8]) -> bool {
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let head = Dirent { ino, off, namelen, r#type: kind };
        let len = before.len() + size_of::<Dirent>() + name.len();
        let end = self.len + len.next_multiple_of(8);
        let Some(mut place) = self.buffer.get_mut(self.len..end) else { return false };
        for part in [before, head.as_bytes(), name] {
            let (here, rest) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = rest;
        }
        place.fill(0);
        self.len = end;
        true
    }

    /// Bytes of the entries so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries so far.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl fmt::Debug for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listing of {} in {} bytes", self.len, self.buffer.len())
    }
}

/// A reply, which borrows the message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reply<'a> {
    /// Number of the request.
    pub unique: u64,
    /// The server's answer.
    pub answer: Answer<'a>,
}

/// A server's answer to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// A positive errno.
    Error(i32),
    /// Success without a value.
    Empty,
    /// A node.
    Entry(&'a EntryOut),
    /// Attributes.
    Attr(&'a AttrOut),
    /// Attributes as `statx` has them.
    Statx(&'a StatxOut),
    /// An open file or directory.
    Open(&'a OpenOut),
    /// A new node, open.
    Create(&'a EntryOut, &'a OpenOut),
    /// Bytes for READ and READLINK.
    Data(&'a [u8]),
    /// Bytes for GETXATTR and LISTXATTR, or a [`GetxattrOut`](crate::abi::GetxattrOut) if the request has size 0.
    Xattr(&'a [u8]),
    /// Entries for READDIR.
    Entries(Entries<'a>),
    /// Entries with attributes for READDIRPLUS.
    EntriesPlus(EntriesPlus<'a>),
    /// Number of bytes for WRITE and COPY_FILE_RANGE.
    Write(&'a WriteOut),
    /// Number of bytes for COPY_FILE_RANGE_64.
    CopyFileRange(&'a CopyFileRangeOut),
    /// Figures of the file system.
    StatFs(&'a StatfsOut),
    /// Version and flags; fields that an older server leaves out are 0.
    Init(InitOut),
    /// A conflicting lock.
    Lock(&'a LkOut),
    /// A block.
    Bmap(&'a BmapOut),
    /// Result of IOCTL, and data or areas.
    Ioctl(&'a IoctlOut, &'a [u8]),
    /// Events.
    Poll(&'a PollOut),
    /// A position.
    Lseek(&'a LseekOut),
    /// Version and limits of a character device, and its properties: strings with a zero each.
    CuseInit(&'a CuseInitOut, &'a [u8]),
}

impl<'a> Reply<'a> {
    /// The reply to a request of this operation, by the kernel's rules; `message` begins at a multiple of 8.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn parse(opcode: Opcode, message: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor(message);
        let opcode_number = opcode as u32;
        let header: &OutHeader = cursor.structure().map_err(|cause| Malformed {
            unique: None,
            opcode: opcode_number,
            cause,
        })?;
        let unique = header.unique;
        Self::body(opcode, header, message.len(), &mut cursor)
            .map(|answer| Self { unique, answer })
            .map_err(|cause| Malformed { unique: Some(unique), opcode: opcode_number, cause })
    }

    fn body(
        opcode: Opcode,
        header: &OutHeader,
        len: usize,
        cursor: &mut Cursor<'a>,
    ) -> Result<Answer<'a>, Cause> {
        if header.len as usize != len {
            return Err(Cause::Length);
        }
        // Number 0 is that of notices; larger errors are the kernel's own.
        if header.unique == 0 || header.error <= -512 || header.error > 0 {
            return Err(Cause::Number);
        }
        let answer = match header.error {
            0 => Answer::parse(opcode, cursor)?,
            error => Answer::Error(-error),
        };
        cursor.end()?;
        Ok(answer)
    }

    /// The message, as the server writes it.
    #[must_use]
    pub fn encode(&self) -> Aligned {
        let mut bytes = vec![0; size_of::<OutHeader>()];
        let error = self.answer.write(&mut bytes);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let header = OutHeader { len, error, unique: self.unique };
        bytes[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        Aligned::from(&bytes[..])
    }
}

impl<'a> Answer<'a> {
    fn parse(opcode: Opcode, cursor: &mut Cursor<'a>) -> Result<Self, Cause> {
        use Opcode as O;
        Ok(match opcode {
            O::Lookup | O::SymLink | O::MkNod | O::MkDir | O::Link => {
                Self::Entry(cursor.structure()?)
            }
            O::GetAttr | O::SetAttr => Self::Attr(cursor.structure()?),
            O::Statx => Self::Statx(cursor.structure()?),
            O::Open | O::OpenDir => Self::Open(cursor.structure()?),
            O::Create | O::TmpFile => Self::Create(cursor.structure()?, cursor.structure()?),
            O::ReadLink | O::Read => Self::Data(cursor.rest()),
            O::GetXattr | O::ListXattr => Self::Xattr(cursor.rest()),
            O::ReadDir => Self::Entries(Entries(cursor.rest())),
            O::ReadDirPlus => Self::EntriesPlus(EntriesPlus(cursor.rest())),
            O::Write | O::CopyFileRange => Self::Write(cursor.structure()?),
            O::CopyFileRange64 => Self::CopyFileRange(cursor.structure()?),
            O::StatFs => Self::StatFs(cursor.structure()?),
            O::Init if cursor.0.len() < InitOut::size(0) => return Err(Cause::Short),
            O::Init => Self::Init(cursor.padded()),
            O::GetLk => Self::Lock(cursor.structure()?),
            O::Bmap => Self::Bmap(cursor.structure()?),
            O::Ioctl => Self::Ioctl(cursor.structure()?, cursor.rest()),
            O::Poll => Self::Poll(cursor.structure()?),
            O::Lseek => Self::Lseek(cursor.structure()?),
            O::CuseInit => Self::CuseInit(cursor.structure()?, cursor.rest()),
            O::Unlink
            | O::RmDir
            | O::Rename
            | O::Rename2
            | O::Release
            | O::ReleaseDir
            | O::Fsync
            | O::FsyncDir
            | O::SetXattr
            | O::RemoveXattr
            | O::Flush
            | O::SetLk
            | O::SetLkW
            | O::Access
            | O::Destroy
            | O::Fallocate
            | O::SetupMapping
            | O::RemoveMapping
            | O::SyncFs => Self::Empty,
            // The kernel takes no success for these.
            O::Forget | O::BatchForget | O::Interrupt | O::NotifyReply => {
                return Err(Cause::Number);
            }
        })
    }

    /// Writes the parts behind the header, and returns the error in the header.
    fn write(&self, into: &mut Vec<u8>) -> i32 {
        match *self {
            Self::Error(errno) => return -errno,
            Self::Empty => {}
            Self::Entry(entry) => into.extend(entry.as_bytes()),
            Self::Attr(attr) => into.extend(attr.as_bytes()),
            Self::Statx(statx) => into.extend(statx.as_bytes()),
            Self::Open(open) => into.extend(open.as_bytes()),
            Self::Create(entry, open) => {
                into.extend(entry.as_bytes());
                into.extend(open.as_bytes());
            }
            Self::Data(data) | Self::Xattr(data) => into.extend(data),
            Self::Entries(Entries(entries)) | Self::EntriesPlus(EntriesPlus(entries)) => {
                into.extend(entries);
            }
            Self::Write(write) => into.extend(write.as_bytes()),
            Self::CopyFileRange(copied) => into.extend(copied.as_bytes()),
            Self::StatFs(statfs) => into.extend(statfs.as_bytes()),
            Self::Init(init) => into.extend(&init.as_bytes()[..InitOut::size(init.minor)]),
            Self::Lock(lock) => into.extend(lock.as_bytes()),
            Self::Bmap(block) => into.extend(block.as_bytes()),
            Self::Ioctl(result, data) => {
                into.extend(result.as_bytes());
                into.extend(data);
            }
            Self::Poll(events) => into.extend(events.as_bytes()),
            Self::Lseek(position) => into.extend(position.as_bytes()),
            Self::CuseInit(init, properties) => {
                into.extend(init.as_bytes());
                into.extend(properties);
            }
        }
        0
    }
}

/// An entry of a directory, as the kernel reads it from a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode number.
    pub ino: u64,
    /// Offset by which the next request continues.
    pub next_offset: u64,
    /// `DT_*`.
    pub kind: u32,
    /// Name of the entry.
    pub name: &'a [u8],
}

/// A listing of READDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entries<'a>(pub &'a [u8]);

/// A listing of READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntriesPlus<'a>(pub &'a [u8]);

impl<'a> Entries<'a> {
    /// Every entry; a fault is the last item.
    pub fn iter(&self) -> impl Iterator<Item = Result<Entry<'a>, Cause>> + use<'a> {
        each(self.0, Entry::parse)
    }
}

impl<'a> EntriesPlus<'a> {
    /// Every entry with its node; a fault is the last item.
    pub fn iter(&self) -> impl Iterator<Item = Result<(EntryOut, Entry<'a>), Cause>> + use<'a> {
        each(self.0, |cursor| Ok((cursor.copy()?, Entry::parse(cursor)?)))
    }
}

/// The items that `parse` reads, up to the end or a fault.
fn each<'a, T>(
    bytes: &'a [u8],
    parse: impl Fn(&mut Cursor<'a>) -> Result<T, Cause>,
) -> impl Iterator<Item = Result<T, Cause>> {
    let mut cursor = Cursor(bytes);
    std::iter::from_fn(move || {
        if cursor.0.is_empty() {
            return None;
        }
        let item = parse(&mut cursor);
        if item.is_err() {
            cursor.0 = &[];
        }
        Some(item)
    })
}

impl<'a> Entry<'a> {
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, Cause> {
        let Dirent { ino, off: next_offset, namelen, r#type: kind } = cursor.copy()?;
        let len = namelen as usize;
        if len == 0 || len > NAME_MAX {
            return Err(Cause::Name);
        }
        // Both heads are multiples of 8, so the padding depends on the name alone.
        let name = &cursor.bytes(len.next_multiple_of(8))?[..len];
        if name.contains(&b'/') {
            return Err(Cause::Name);
        }
        Ok(Self { ino, next_offset, kind, name })
    }
}
