//! The operations of the protocol by number.

use crate::abi;

/// `Name = number, fixed structure`; `()` where the request has none.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $structure:ty;)*) => {
        /// An operation that the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($(#[$doc])* $name = $number),* }

        impl Opcode {
            /// Every operation, in the order of the header.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Bytes of the fixed structure at the head of the request; 0 if it has none.
            #[must_use]
            pub const fn argument_size(self) -> usize {
                match self { $(Self::$name => size_of::<$structure>()),* }
            }
        }

        impl TryFrom<u32> for Opcode {
            /// The number, which is no operation of this version.
            type Error = u32;

            fn try_from(number: u32) -> Result<Self, u32> {
                match number { $($number => Ok(Self::$name),)* other => Err(other) }
            }
        }
    };
}

opcodes! {
    /// Find a name in a directory.
    Lookup = 1, ();
    /// Give back lookups of a node; no reply.
    Forget = 2, abi::ForgetIn;
    /// Attributes.
    GetAttr = 3, abi::GetattrIn;
    /// Change attributes.
    SetAttr = 4, abi::SetattrIn;
    /// Target of a symbolic link.
    ReadLink = 5, ();
    /// Make a symbolic link.
    SymLink = 6, ();
    /// Make a node.
    MkNod = 8, abi::MknodIn;
    /// Make a directory.
    MkDir = 9, abi::MkdirIn;
    /// Remove a name of a file.
    Unlink = 10, ();
    /// Remove a directory.
    RmDir = 11, ();
    /// Rename.
    Rename = 12, abi::RenameIn;
    /// Make a further name of a file.
    Link = 13, abi::LinkIn;
    /// Open a file.
    Open = 14, abi::OpenIn;
    /// Read.
    Read = 15, abi::ReadIn;
    /// Write.
    Write = 16, abi::WriteIn;
    /// Figures of the file system.
    StatFs = 17, ();
    /// The last descriptor of an open file is closed.
    Release = 18, abi::ReleaseIn;
    /// Make a file durable.
    Fsync = 20, abi::FsyncIn;
    /// Set an extended attribute.
    SetXattr = 21, abi::SetxattrIn;
    /// Read an extended attribute.
    GetXattr = 22, abi::GetxattrIn;
    /// Names of extended attributes.
    ListXattr = 23, abi::GetxattrIn;
    /// Remove an extended attribute.
    RemoveXattr = 24, ();
    /// A descriptor of an open file is closed.
    Flush = 25, abi::FlushIn;
    /// First request: version and flags.
    Init = 26, abi::InitIn;
    /// Open a directory.
    OpenDir = 27, abi::OpenIn;
    /// Entries of a directory.
    ReadDir = 28, abi::ReadIn;
    /// The last descriptor of an open directory is closed.
    ReleaseDir = 29, abi::ReleaseIn;
    /// Make a directory durable.
    FsyncDir = 30, abi::FsyncIn;
    /// Find a conflicting lock.
    GetLk = 31, abi::LkIn;
    /// Take or release a lock, without waiting.
    SetLk = 32, abi::LkIn;
    /// Take or release a lock.
    SetLkW = 33, abi::LkIn;
    /// Check permissions.
    Access = 34, abi::AccessIn;
    /// Make a file and open it.
    Create = 35, abi::CreateIn;
    /// A request no longer needs an answer.
    Interrupt = 36, abi::InterruptIn;
    /// Block of a device behind a block of a file.
    Bmap = 37, abi::BmapIn;
    /// Last request of a mount on a block device.
    Destroy = 38, ();
    /// `ioctl`.
    Ioctl = 39, abi::IoctlIn;
    /// `poll`.
    Poll = 40, abi::PollIn;
    /// Answer to a notice RETRIEVE; no reply.
    NotifyReply = 41, abi::NotifyRetrieveIn;
    /// Give back lookups of several nodes; no reply.
    BatchForget = 42, abi::BatchForgetIn;
    /// Allocate, or make a hole.
    Fallocate = 43, abi::FallocateIn;
    /// Entries of a directory, with their attributes.
    ReadDirPlus = 44, abi::ReadIn;
    /// Rename, with flags.
    Rename2 = 45, abi::Rename2In;
    /// Find data or a hole.
    Lseek = 46, abi::LseekIn;
    /// Copy between files; the reply has 32 bits.
    CopyFileRange = 47, abi::CopyFileRangeIn;
    /// Map a range into the DAX window.
    SetupMapping = 48, abi::SetupmappingIn;
    /// Unmap ranges of the DAX window.
    RemoveMapping = 49, abi::RemovemappingIn;
    /// Make the file system durable.
    SyncFs = 50, abi::SyncfsIn;
    /// Make a file without a name and open it.
    TmpFile = 51, abi::CreateIn;
    /// Attributes as `statx` has them.
    Statx = 52, abi::StatxIn;
    /// Copy between files.
    CopyFileRange64 = 53, abi::CopyFileRangeIn;
    /// First request of a character device.
    CuseInit = 4096, abi::CuseInitIn;
}

impl Opcode {
    /// Whether the kernel waits for a reply. It expects none to INTERRUPT, but takes EAGAIN and ENOSYS.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}
