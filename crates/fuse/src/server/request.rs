//! Requests and answers as plain values, between a transport and the dispatcher.
//!
//! # Boundary
//! Names no transport and acts on nothing: [`crate::dispatch`] does. Fields have the meaning of the protocol's message
//! of that name; fields that no store can use are not here. docs/kernel-contract.md lists both.
//!
//! # Concurrency
//! A request borrows its names and data from the buffer of its reader. Before it moves to another thread it is copied
//! ([`Request::into_owned`]).
//!
//! # Why
//! Two transports that decode into one type cannot differ in their effect. One list makes the type, its copy and its
//! counters. Weakness: a file opened directly is registered through the reply, which has the connection.

use super::{Attrs, EntryOut};
use crate::statistics::Kind;
use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use uvfs_vfs::{Attributes, Result, SetAttributes, SyncMode, Totals};

/// A name, a text or data of a request.
pub(crate) type Bytes<'a> = Cow<'a, [u8]>;

/// The process for which the kernel sends a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Thread id of the sender.
    pub(crate) task: u32,
    /// The number of the request: the kernel numbers them in the order in which it sends them.
    pub(crate) number: u64,
}

/// Where the bytes of a write come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteFrom {
    /// A caller's buffer, past the kernel's pages.
    Direct,
    /// A caller's buffer, which the kernel's pages have too.
    Paged,
    /// Pages of a mapping, which the kernel writes for no user.
    Mapped,
}

/// The properties of one write beside its place and its bytes. The mode of the open file shows none of them: a program
/// changes that mode, the kernel picks any open file for pages of a mapping, and capabilities change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteHow {
    pub(crate) from: WriteFrom,
    /// The descriptor has O_APPEND now. The kernel puts the write where it takes the end to be.
    pub(crate) appends: bool,
    /// The writer keeps set-id bits (CAP_FSETID).
    pub(crate) keeps_set_ids: bool,
    /// What must be stable before the answer (O_DSYNC, O_SYNC). Where the kernel writes through its pages, it asks for that
    /// itself.
    pub(crate) syncs: Option<SyncMode>,
}

/// A copy of a field that borrows from no buffer.
trait Keep {
    type Kept;
    fn keep(self) -> Self::Kept;
}

impl Keep for Bytes<'_> {
    type Kept = Bytes<'static>;

    fn keep(self) -> Self::Kept {
        Cow::Owned(self.into_owned())
    }
}

macro_rules! keep_plain {
    ($($plain:ty),*) => {
        $(impl Keep for $plain {
            type Kept = Self;

            fn keep(self) -> Self {
                self
            }
        })*
    };
}

keep_plain!(u64, u32, i64, i32, bool, SetAttributes, WriteHow);

macro_rules! requests {
    ($life:lifetime, $($request:ident { $($field:ident: $type:ty),* } => $counter:ident),* $(,)?) => {
        /// A request of the kernel. `node` and `parent` are node ids, `file` is a handle (0 for none).
        #[derive(Debug, Clone)]
        pub(crate) enum Request<$life> {
            $($request { $($field: $type),* },)*
        }

        impl Request<'_> {
            /// Returns the request with its own bytes.
            pub(crate) fn into_owned(self) -> Request<'static> {
                match self {
                    $(Self::$request { $($field),* } => Request::$request { $($field: $field.keep()),* },)*
                }
            }

            /// The kind under which it is counted.
            pub(crate) fn kind(&self) -> Kind {
                match self {
                    $(Self::$request { .. } => Kind::$counter,)*
                }
            }
        }
    };
}

requests! { 'a,
    Lookup { parent: u64, name: Bytes<'a> } => lookup,
    Forget { node: u64, lookups: u64 } => forget,
    GetAttr { node: u64, file: u64 } => getattr,
    Statx { node: u64, file: u64 } => statx,
    SetAttr { node: u64, file: u64, set: SetAttributes, keeps_set_ids: bool } => setattr,
    ReadLink { node: u64 } => readlink,
    MkNod { parent: u64, name: Bytes<'a>, mode: u32, umask: u32, device: u32 } => mknod,
    MkDir { parent: u64, name: Bytes<'a>, mode: u32, umask: u32 } => mkdir,
    SymLink { parent: u64, name: Bytes<'a>, target: Bytes<'a> } => symlink,
    Unlink { parent: u64, name: Bytes<'a> } => unlink,
    RmDir { parent: u64, name: Bytes<'a> } => rmdir,
    Rename { parent: u64, name: Bytes<'a>, new_parent: u64, new_name: Bytes<'a>, flags: u32 } => rename,
    Link { node: u64, parent: u64, name: Bytes<'a> } => link,
    Open { node: u64, flags: i32, keeps_set_ids: bool } => open,
    Create {
        parent: u64, name: Bytes<'a>, mode: u32, umask: u32, flags: i32, keeps_set_ids: bool
    } => create,
    TmpFile { parent: u64, mode: u32, umask: u32, flags: i32 } => tmpfile,
    Read { node: u64, file: u64, offset: u64, size: u32, into_pages: bool } => read,
    Write { node: u64, file: u64, offset: u64, data: Bytes<'a>, how: WriteHow } => write,
    Flush { file: u64 } => flush,
    Release { file: u64 } => release,
    Fsync { node: u64, file: u64, data_only: bool } => fsync,
    OpenDir { node: u64, flags: i32 } => opendir,
    ReadDir { node: u64, file: u64, offset: u64 } => readdir,
    ReadDirPlus { node: u64, file: u64, offset: u64 } => readdirplus,
    ReleaseDir { file: u64 } => releasedir,
    FsyncDir { node: u64, file: u64, data_only: bool } => fsyncdir,
    StatFs {} => statfs,
    SetXattr { node: u64, name: Bytes<'a>, value: Bytes<'a>, flags: i32 } => setxattr,
    GetXattr { node: u64, name: Bytes<'a>, size: u32 } => getxattr,
    ListXattr { node: u64, size: u32 } => listxattr,
    RemoveXattr { node: u64, name: Bytes<'a> } => removexattr,
    Access { node: u64, mask: i32 } => access,
    Fallocate { node: u64, file: u64, offset: u64, length: u64, mode: i32 } => fallocate,
    Lseek { node: u64, file: u64, offset: i64, whence: i32 } => lseek,
    CopyFileRange {
        node: u64, file: u64, offset: u64, to_node: u64, to_file: u64, to_offset: u64, length: u64
    } => copy_file_range,
    IoCtl {} => other,
    Poll {} => other,
}

impl Request<'_> {
    /// The id of its node: the directory of a named entry, or the object itself.
    pub(crate) fn about(&self) -> Option<u64> {
        match self {
            Self::Lookup { parent, .. }
            | Self::MkNod { parent, .. }
            | Self::MkDir { parent, .. }
            | Self::SymLink { parent, .. }
            | Self::Unlink { parent, .. }
            | Self::RmDir { parent, .. }
            | Self::Rename { parent, .. }
            | Self::Link { parent, .. }
            | Self::Create { parent, .. }
            | Self::TmpFile { parent, .. } => Some(*parent),
            Self::GetAttr { node, .. }
            | Self::Statx { node, .. }
            | Self::SetAttr { node, .. }
            | Self::ReadLink { node }
            | Self::Open { node, .. }
            | Self::Read { node, .. }
            | Self::Write { node, .. }
            | Self::Fsync { node, .. }
            | Self::OpenDir { node, .. }
            | Self::ReadDir { node, .. }
            | Self::ReadDirPlus { node, .. }
            | Self::FsyncDir { node, .. }
            | Self::SetXattr { node, .. }
            | Self::GetXattr { node, .. }
            | Self::ListXattr { node, .. }
            | Self::RemoveXattr { node, .. }
            | Self::Access { node, .. }
            | Self::Fallocate { node, .. }
            | Self::Lseek { node, .. }
            | Self::CopyFileRange { node, .. } => Some(*node),
            // These ask for nothing.
            Self::Forget { .. }
            | Self::Flush { .. }
            | Self::Release { .. }
            | Self::ReleaseDir { .. }
            | Self::StatFs {}
            | Self::IoCtl {}
            | Self::Poll {} => None,
        }
    }

    /// Whether it may be ended when its task dies. Pages that the kernel reads are for other tasks, too, and pages of a
    /// mapping would be lost.
    pub(crate) fn may_end_early(&self) -> bool {
        match self {
            Self::Read { into_pages, .. } => !into_pages,
            Self::Write { how, .. } => how.from != WriteFrom::Mapped,
            _ => true,
        }
    }

    /// What the kernel may know wrongly if it does not get the answer.
    pub(crate) fn doubts(&self) -> Doubts {
        let name = |parent: &u64, name: &Bytes<'_>| (*parent, (**name).into());
        let (names, nodes) = match self {
            Self::MkNod { parent, name: new, .. }
            | Self::MkDir { parent, name: new, .. }
            | Self::SymLink { parent, name: new, .. }
            | Self::Create { parent, name: new, .. }
            | Self::Unlink { parent, name: new }
            | Self::RmDir { parent, name: new } => (vec![name(parent, new)], vec![*parent]),
            Self::Rename { parent, name: old, new_parent, new_name, .. } => {
                (vec![name(parent, old), name(new_parent, new_name)], vec![*parent, *new_parent])
            }
            Self::Link { node, parent, name: new } => {
                (vec![name(parent, new)], vec![*node, *parent])
            }
            Self::Open { node, flags, .. } if flags & libc::O_TRUNC != 0 => (vec![], vec![*node]),
            Self::SetAttr { node, .. }
            | Self::Write { node, .. }
            | Self::Fallocate { node, .. }
            | Self::SetXattr { node, .. }
            | Self::RemoveXattr { node, .. }
            | Self::CopyFileRange { to_node: node, .. } => (vec![], vec![*node]),
            _ => (vec![], vec![]),
        };
        Doubts { names, nodes }
    }

    /// Bytes that a copy of it keeps, beyond names.
    pub(crate) fn kept_bytes(&self) -> usize {
        match self {
            Self::Write { data, .. } => data.len(),
            _ => 0,
        }
    }
}

/// What the kernel may know wrongly after a change of which it got no answer.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Names, each in the directory of a node id.
    pub(crate) names: Vec<(u64, Box<[u8]>)>,
    /// Attributes and pages of these node ids.
    pub(crate) nodes: Vec<u64>,
}

/// How the kernel accesses an opened file; `B` is a host file that the kernel has registered.
#[derive(Debug)]
pub(crate) enum Through<B> {
    /// By requests, with its pages before them; `keep`: also those from earlier opens.
    Pages { keep: bool },
    /// By requests alone; `keep`: its pages from other opens stay.
    Requests { keep: bool },
    /// By requests, for a directory, with its copy of the listing before them if there may be one.
    Listing { keep: bool },
    /// By itself.
    Host(Arc<B>),
    /// By requests, except for mappings, of a file that the kernel accesses directly through other descriptors.
    HostByRequests(Arc<B>),
}

/// An open file for the kernel.
#[derive(Debug)]
pub(crate) struct Opened<B> {
    pub(crate) handle: u64,
    pub(crate) through: Through<B>,
}

/// The answer to a request, if it is not an error.
#[derive(Debug)]
pub(crate) enum Answer<'a, B> {
    /// It is done.
    Done,
    /// The kernel need not send requests of this kind (ENOSYS).
    NeedNotAsk,
    Entry(EntryOut),
    Attrs(Attrs),
    /// Attributes with the time of birth, if the store has it.
    AttrsAndBirth(Attrs),
    /// Data, a text or a value.
    Bytes(&'a [u8]),
    /// How many bytes a value has.
    Size(u32),
    Opened(Opened<B>),
    Created {
        attrs: Attrs,
        entry_valid: Duration,
        generation: u32,
        opened: Opened<B>,
    },
    Written(usize),
    Offset(u64),
    Totals(Totals),
    /// The entries were added to the reply.
    Listed,
}

/// One name of a listing.
#[derive(Debug)]
pub(crate) struct Listed<'a> {
    pub(crate) name: &'a [u8],
    /// The kernel's offset behind it.
    pub(crate) next: u64,
    /// 0: the kernel looks it up before it uses it.
    pub(crate) node: u64,
    pub(crate) generation: u32,
    /// The number that users see.
    pub(crate) number: u64,
    pub(crate) attributes: &'a Attributes,
    /// For how long the name and the attributes hold.
    pub(crate) valid: (Duration, Duration),
}

/// The receiver of the answer to one request. Dropped unanswered (its handler panicked), it answers EIO.
pub(crate) trait Reply: Send + 'static {
    /// A host file that the kernel has taken.
    type Backing: Send + Sync + 'static;

    /// Has the kernel take `host`, to read and write it by itself.
    fn register(&self, host: &OwnedFd) -> io::Result<Self::Backing>;

    /// Adds a name to a listing. False if there is no room.
    fn add(&mut self, listed: &Listed<'_>) -> bool;

    /// Sends the answer. The program's next request may arrive before this returns.
    fn send(self, answer: Result<Answer<'_, Self::Backing>>);
}
