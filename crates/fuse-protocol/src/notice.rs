//! Notices: messages that a server writes to the device without a request.

use crate::abi::{
    NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPollWakeupOut, NotifyPruneOut,
    NotifyRetrieveOut, NotifyStoreOut, OutHeader,
};
use crate::bytes::Cursor;
use crate::flags::InvalEntryFlags;
use crate::malformed::{Cause, Malformed};
use zerocopy::IntoBytes;

/// A notice. One `write` or `writev` sends it; the kernel answers by the result of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice<'a> {
    /// A file that POLL asked about is ready.
    Poll {
        /// `kh` of the request.
        kh: u64,
    },
    /// Attributes of a node, and cached pages of a range, are not valid.
    InvalInode {
        /// The node.
        ino: u64,
        /// First byte of the range; negative for the attributes alone.
        off: i64,
        /// Length of the range; 0 or negative for the rest of the file.
        len: i64,
    },
    /// A name is not valid.
    InvalEntry {
        /// The directory.
        parent: u64,
        /// The name.
        name: &'a [u8],
        /// Whether the entry is only to expire.
        flags: InvalEntryFlags,
    },
    /// Bytes for the page cache.
    Store {
        /// The node.
        nodeid: u64,
        /// Place of the bytes in the file.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// The server wants bytes of the page cache: the kernel sends NOTIFY_REPLY.
    Retrieve {
        /// Number of the NOTIFY_REPLY.
        notify_unique: u64,
        /// The node.
        nodeid: u64,
        /// First byte of the range.
        offset: u64,
        /// Largest length of the range.
        size: u32,
    },
    /// A name is gone, if it is still that of the node.
    Delete {
        /// The directory.
        parent: u64,
        /// The node.
        child: u64,
        /// The name.
        name: &'a [u8],
    },
    /// Send the requests again that have no reply.
    Resend,
    /// Every cached entry is not valid.
    IncEpoch,
    /// Evict nodes that are not in use.
    Prune {
        /// The nodes, children before their directory.
        nodes: &'a [u64],
    },
}

impl<'a> Notice<'a> {
    /// Code of the notice in the header.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::Poll { .. } => 1,
            Self::InvalInode { .. } => 2,
            Self::InvalEntry { .. } => 3,
            Self::Store { .. } => 4,
            Self::Retrieve { .. } => 5,
            Self::Delete { .. } => 6,
            Self::Resend => 7,
            Self::IncEpoch => 8,
            Self::Prune { .. } => 9,
        }
    }

    /// The message.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut message = Vec::new();
        self.parts(&mut |part| message.extend(part));
        message
    }

    /// The message in the caller's buffer, or `None` if it has no room.
    ///
    /// # Panics
    /// If the message has 4 GiB or more.
    #[must_use]
    pub fn write<'b>(&self, buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let (mut len, mut fits) = (0, true);
        self.parts(&mut |part| match buffer.get_mut(len..len + part.len()) {
            Some(place) => {
                place.copy_from_slice(part);
                len += part.len();
            }
            None => fits = false,
        });
        fits.then(|| &buffer[..len])
    }

    /// Calls `push` with each part: header, structure, name or data, and the zero of a name.
    fn parts(&self, push: &mut dyn FnMut(&[u8])) {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("shorter than 4 GiB");
        let mut whole = |structure: &[u8], rest: &[u8], zero: &[u8]| {
            let payload_len = structure.len() + rest.len() + zero.len();
            let code = self.code().cast_signed();
            let header = OutHeader { error: code, ..OutHeader::ok(0, payload_len) };
            [header.as_bytes(), structure, rest, zero].into_iter().for_each(&mut *push);
        };
        match *self {
            Self::Poll { kh } => whole(NotifyPollWakeupOut { kh }.as_bytes(), &[], &[]),
            Self::InvalInode { ino, off, len } => {
                whole(NotifyInvalInodeOut { ino, off, len }.as_bytes(), &[], &[]);
            }
            Self::InvalEntry { parent, name, flags } => {
                let (namelen, flags) = (length(name), flags.bits());
                whole(NotifyInvalEntryOut { parent, namelen, flags }.as_bytes(), name, &[0]);
            }
            Self::Store { nodeid, offset, data } => {
                let size = length(data);
                whole(NotifyStoreOut { nodeid, offset, size, padding: 0 }.as_bytes(), data, &[]);
            }
            Self::Retrieve { notify_unique, nodeid, offset, size } => {
                let out = NotifyRetrieveOut { notify_unique, nodeid, offset, size, padding: 0 };
                whole(out.as_bytes(), &[], &[]);
            }
            Self::Delete { parent, child, name } => {
                let out = NotifyDeleteOut { parent, child, namelen: length(name), padding: 0 };
                whole(out.as_bytes(), name, &[0]);
            }
            Self::Resend | Self::IncEpoch => whole(&[], &[], &[]),
            Self::Prune { nodes } => {
                let count = length(nodes.as_bytes()) / 8;
                let out = NotifyPruneOut { count, padding: 0, spare: 0 };
                whole(out.as_bytes(), nodes.as_bytes(), &[]);
            }
        }
    }

    /// A notice, by the kernel's rules; `message` begins at a multiple of 8.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut cursor = Cursor(message);
        let header: &OutHeader =
            cursor.structure().map_err(|cause| Malformed { unique: None, opcode: 0, cause })?;
        let code = header.error.cast_unsigned();
        let fault = |cause| Malformed { unique: Some(header.unique), opcode: code, cause };
        if header.len as usize != message.len() {
            return Err(fault(Cause::Length));
        }
        if header.unique != 0 {
            return Err(fault(Cause::Number));
        }
        let notice = Self::body(code, &mut cursor).map_err(fault)?;
        cursor.end().map_err(fault)?;
        Ok(notice)
    }

    fn body(code: u32, cursor: &mut Cursor<'a>) -> Result<Self, Cause> {
        Ok(match code {
            1 => Self::Poll { kh: cursor.structure::<NotifyPollWakeupOut>()?.kh },
            2 => {
                let &NotifyInvalInodeOut { ino, off, len } = cursor.structure()?;
                Self::InvalInode { ino, off, len }
            }
            3 => {
                let out: &NotifyInvalEntryOut = cursor.structure()?;
                let (parent, flags) = (out.parent, out.flags());
                Self::InvalEntry { parent, name: cursor.counted_name(out.namelen)?, flags }
            }
            4 => {
                let out: &NotifyStoreOut = cursor.structure()?;
                let (nodeid, offset) = (out.nodeid, out.offset);
                Self::Store { nodeid, offset, data: cursor.data(out.size)? }
            }
            5 => {
                let &NotifyRetrieveOut { notify_unique, nodeid, offset, size, .. } =
                    cursor.structure()?;
                Self::Retrieve { notify_unique, nodeid, offset, size }
            }
            6 => {
                let &NotifyDeleteOut { parent, child, namelen, .. } = cursor.structure()?;
                Self::Delete { parent, child, name: cursor.counted_name(namelen)? }
            }
            7 => Self::Resend,
            8 => Self::IncEpoch,
            9 => {
                let out: &NotifyPruneOut = cursor.structure()?;
                Self::Prune { nodes: cursor.array(out.count)? }
            }
            _ => return Err(Cause::Number),
        })
    }
}
