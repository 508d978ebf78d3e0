//! The flag words of the protocol. Names are the header's, without their prefix.

use bitflags::bitflags;

bitflags! {
    /// `FUSE_*` of INIT: the kernel offers, the server accepts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one handle at a time.
        const ASYNC_READ = 1;
        /// The server keeps POSIX locks.
        const POSIX_LOCKS = 1 << 1;
        /// Not used.
        const FILE_OPS = 1 << 2;
        /// OPEN may carry `O_TRUNC`.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP answers `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// WRITE of more than 4 KiB.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask.
        const DONT_MASK = 1 << 6;
        /// Splice into the device.
        const SPLICE_WRITE = 1 << 7;
        /// Splice may move pages.
        const SPLICE_MOVE = 1 << 8;
        /// Splice from the device.
        const SPLICE_READ = 1 << 9;
        /// The server keeps BSD locks.
        const FLOCK_LOCKS = 1 << 10;
        /// IOCTL on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// A new size or modification time invalidates cached pages.
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS instead of READDIR.
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only where entries are looked up.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Several direct requests of one handle at a time.
        const ASYNC_DIO = 1 << 15;
        /// The kernel caches writes.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to OPEN means that no file needs it.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Several LOOKUP and READDIR of one directory at a time.
        const PARALLEL_DIROPS = 1 << 18;
        /// The server removes set-id bits and capabilities.
        const HANDLE_KILLPRIV = 1 << 19;
        /// POSIX ACLs.
        const POSIX_ACL = 1 << 20;
        /// A read of an aborted connection answers ECONNABORTED.
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the reply counts.
        const MAX_PAGES = 1 << 22;
        /// The kernel caches targets of symbolic links.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR means that no directory needs it.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Only notices invalidate cached pages.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` of the reply counts.
        const MAP_ALIGNMENT = 1 << 26;
        /// Directories may be submounts.
        const SUBMOUNTS = 1 << 27;
        /// The server removes set-id bits as the kernel does.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has the long form.
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` counts.
        const INIT_EXT = 1 << 30;
        /// Reserved.
        const INIT_RESERVED = 1 << 31;
        /// Requests that create carry security contexts.
        const SECURITY_CTX = 1 << 32;
        /// DAX by inode.
        const HAS_INODE_DAX = 1 << 33;
        /// Requests that create carry a supplementary group.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// The notice INVAL_ENTRY may only expire.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files that are open for direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Files may be passed through to backing files.
        const PASSTHROUGH = 1 << 37;
        /// No handles for `open_by_handle_at` and NFS.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// The notice RESEND.
        const HAS_RESEND = 1 << 39;
        /// Mounts with an id mapping.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests by io_uring.
        const OVER_IO_URING = 1 << 41;
        /// `request_timeout` of the reply counts.
        const REQUEST_TIMEOUT = 1 << 42;
    }
}

impl InitFlags {
    /// The flags in the two words of an INIT; the second counts only with [`Self::INIT_EXT`].
    #[must_use]
    pub const fn from_words(flags: u32, flags2: u32) -> Self {
        let low = flags as u64;
        let extended = low & Self::INIT_EXT.bits() != 0;
        Self::from_bits_retain(if extended { low | (flags2 as u64) << 32 } else { low })
    }

    /// The words `flags` and `flags2`; the first has [`Self::INIT_EXT`] if the second is not 0.
    #[must_use]
    pub const fn to_words(self) -> (u32, u32) {
        let high = (self.bits() >> 32) as u32;
        let extended = if high == 0 { 0 } else { Self::INIT_EXT.bits() as u32 };
        (self.bits() as u32 | extended, high)
    }
}

/// Flag words of 32 bits: doc, name, and `NAME = bit` with its doc.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident: $word:ident { $($(#[doc = $flag_doc:literal])* $flag:ident = $bit:literal;)* })*) => {
        bitflags! {$(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $name: $word {
                $($(#[doc = $flag_doc])* const $flag = 1 << $bit;)*
            }
        )*}
    };
}

words! {
    /// `FATTR_*`: fields of a SETATTR that count.
    SetattrValid: u32 {
        /// `mode`.
        MODE = 0;
        /// `uid`.
        UID = 1;
        /// `gid`.
        GID = 2;
        /// `size`.
        SIZE = 3;
        /// `atime`.
        ATIME = 4;
        /// `mtime`.
        MTIME = 5;
        /// `fh`.
        FH = 6;
        /// The time of access becomes now.
        ATIME_NOW = 7;
        /// The time of modification becomes now.
        MTIME_NOW = 8;
        /// `lock_owner`.
        LOCKOWNER = 9;
        /// `ctime`.
        CTIME = 10;
        /// The server removes set-id bits.
        KILL_SUIDGID = 11;
    }

    /// `FOPEN_*`: properties of an open file, from the server.
    OpenFlags: u32 {
        /// Reads and writes bypass the page cache.
        DIRECT_IO = 0;
        /// Opening does not invalidate cached pages.
        KEEP_CACHE = 1;
        /// No `lseek`.
        NONSEEKABLE = 2;
        /// The kernel may cache the listing.
        CACHE_DIR = 3;
        /// No file position.
        STREAM = 4;
        /// Closing does not write back.
        NOFLUSH = 5;
        /// Several direct writes at a time.
        PARALLEL_DIRECT_WRITES = 6;
        /// Passed through to the file `backing_id`.
        PASSTHROUGH = 7;
    }

    /// `FUSE_OPEN_*`: demands of the kernel with OPEN and CREATE.
    OpenInFlags: u32 {
        /// Remove set-id bits.
        KILL_SUIDGID = 0;
    }

    /// `FUSE_RELEASE_*`.
    ReleaseFlags: u32 {
        /// Flush before the release.
        FLUSH = 0;
        /// Release the BSD lock of `lock_owner`.
        FLOCK_UNLOCK = 1;
    }

    /// `FUSE_GETATTR_*`.
    GetattrFlags: u32 {
        /// `fh` counts.
        FH = 0;
    }

    /// `FUSE_LK_*`.
    LockFlags: u32 {
        /// A BSD lock.
        FLOCK = 0;
    }

    /// `FUSE_WRITE_*`.
    WriteFlags: u32 {
        /// From the page cache; the file handle is guessed.
        CACHE = 0;
        /// `lock_owner` counts.
        LOCKOWNER = 1;
        /// Remove set-id bits.
        KILL_SUIDGID = 2;
    }

    /// `FUSE_READ_*`.
    ReadFlags: u32 {
        /// `lock_owner` counts.
        LOCKOWNER = 1;
    }

    /// `FUSE_IOCTL_*`.
    IoctlFlags: u32 {
        /// A call of 32 bits on a kernel of 64 bits.
        COMPAT = 0;
        /// The server may ask for other areas.
        UNRESTRICTED = 1;
        /// In a reply: call again with these areas.
        RETRY = 2;
        /// A call of 32 bits.
        BITS_32 = 3;
        /// On a directory.
        DIR = 4;
        /// A call of x32.
        COMPAT_X32 = 5;
    }

    /// `FUSE_POLL_*`.
    PollFlags: u32 {
        /// Send the notice POLL once the file is ready.
        SCHEDULE_NOTIFY = 0;
    }

    /// `FUSE_FSYNC_*`.
    FsyncFlags: u32 {
        /// Data only.
        FDATASYNC = 0;
    }

    /// `FUSE_ATTR_*`.
    AttrFlags: u32 {
        /// The root of a submount.
        SUBMOUNT = 0;
        /// DAX for this file.
        DAX = 1;
    }

    /// `FUSE_SETXATTR_*`.
    SetxattrFlags: u32 {
        /// Clear the set-group-id bit with a new access ACL.
        ACL_KILL_SGID = 0;
    }

    /// Flags of the notice INVAL_ENTRY.
    InvalEntryFlags: u32 {
        /// Only expire the entry: the kernel looks it up again and keeps its pages.
        EXPIRE_ONLY = 0;
    }

    /// `FUSE_SETUPMAPPING_FLAG_*`.
    SetupMappingFlags: u64 {
        /// For writing.
        WRITE = 0;
        /// For reading.
        READ = 1;
    }
}
