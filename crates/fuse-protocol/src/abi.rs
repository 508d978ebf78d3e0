//! The structures of the protocol, as the kernel's header `fuse.h` lays them out.
//!
//! Names are the header's, without `fuse_` and in Rust's spelling; fields are the header's. Numbers have the byte
//! order and the alignment of the machine: a view in place needs a message that begins at a multiple of 8
//! ([`Aligned`](crate::Aligned)). A structure has no implicit padding, so any bytes are a value of it.
#![expect(
    missing_docs,
    reason = "the fields have the names and the meaning of the kernel's header"
)]
#![expect(missing_debug_implementations, reason = "a type that a derive of `zerocopy` adds")]

use crate::flags::{
    AttrFlags, FsyncFlags, GetattrFlags, InitFlags, InvalEntryFlags, IoctlFlags, LockFlags,
    OpenFlags, OpenInFlags, PollFlags, ReadFlags, ReleaseFlags, SetattrValid, SetupMappingFlags,
    SetxattrFlags, WriteFlags,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The major version of this protocol.
pub const VERSION: u32 = 7;
/// The minor version of this protocol.
pub const MINOR_VERSION: u32 = 45;
/// The node id of the root.
pub const ROOT_ID: u64 = 1;
/// A buffer that reads from `/dev/fuse` is at least this large.
pub const MIN_READ_BUFFER: usize = 8192;
/// Set in a request's number if the kernel sends the request again ([`InitFlags::HAS_RESEND`]).
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// A user or group of a request that has no number in the server's user namespace.
pub const INVALID_UIDGID: u32 = u32::MAX;
/// [`IoctlIovec`]s of both directions that one reply may have.
pub const IOCTL_MAX_IOV: usize = 256;
/// Type of the extension that has supplementary groups; smaller numbers count security contexts.
pub const EXT_GROUPS: u32 = 32;
/// Largest count of security contexts.
pub const MAX_NR_SECCTX: u32 = 31;
/// Largest name of a directory entry that the kernel accepts.
pub const NAME_MAX: usize = 1024;
/// Largest text behind a [`CuseInitOut`].
pub const CUSE_INIT_INFO_MAX: usize = 4096;
/// Size of the areas of a [`UringReqHeader`] for headers and for the fixed structure of an operation.
pub const URING_AREA: usize = 128;
/// Submission that registers an entry of a ring and waits for its first request.
pub const URING_REGISTER: u32 = 1;
/// Submission that commits a reply and waits for the next request.
pub const URING_COMMIT_AND_FETCH: u32 = 2;

/// A structure of the protocol: plain bytes without padding. Closed: [`abi`](self) has them all.
pub trait Structure:
    FromBytes + IntoBytes + Immutable + KnownLayout + Copy + PartialEq + std::fmt::Debug + 'static
{
}

/// The layout of a structure, for the test that compares it with the header.
#[cfg(test)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) fields: &'static [(&'static str, usize)],
}

/// `header_name RustName: size, alignment { fields }`; sizes and alignments are written by hand from the header.
macro_rules! structures {
    ($($(#[$doc:meta])* $header:ident $name:ident: $size:literal, $align:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $(pub $field: $type),* }

            const _: () = assert!(size_of::<$name>() == $size && align_of::<$name>() == $align);

            /// All zero.
            impl Default for $name {
                fn default() -> Self {
                    Self::new_zeroed()
                }
            }

            impl Structure for $name {}
        )*

        #[cfg(test)]
        pub(crate) const LAYOUTS: &[Layout] = &[$(Layout {
            name: stringify!($header),
            size: $size,
            fields: &[$((stringify!($field), std::mem::offset_of!($name, $field))),*],
        }),*];
    };
}

structures! {
    /// Attributes of a file.
    fuse_attr Attr: 88, 8 {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec:
        u32, ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags:
        u32,
    }
    /// A time of `statx(2)`.
    fuse_sx_time SxTime: 16, 8 { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    /// Attributes as `statx(2)` has them.
    fuse_statx Statx: 256, 8 {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0:
        [u16; 1], ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime,
        ctime: SxTime, mtime: SxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32,
        spare2: [u64; 14],
    }
    /// Figures of a file system.
    fuse_kstatfs Kstatfs: 80, 8 {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize:
        u32, padding: u32, spare: [u32; 6],
    }
    /// A POSIX lock: its range, type and process.
    fuse_file_lock FileLock: 24, 8 { start: u64, end: u64, r#type: u32, pid: u32 }
    /// Reply to LOOKUP, MKNOD, MKDIR, SYMLINK, LINK, and first part of that to CREATE.
    fuse_entry_out EntryOut: 128, 8 {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    /// FORGET: how many lookups of the node the kernel gives back.
    fuse_forget_in ForgetIn: 8, 8 { nlookup: u64 }
    /// One node of a BATCH_FORGET.
    fuse_forget_one ForgetOne: 16, 8 { nodeid: u64, nlookup: u64 }
    /// BATCH_FORGET: how many [`ForgetOne`] follow.
    fuse_batch_forget_in BatchForgetIn: 8, 4 { count: u32, dummy: u32 }
    /// GETATTR.
    fuse_getattr_in GetattrIn: 16, 8 { getattr_flags: u32, dummy: u32, fh: u64 }
    /// Reply to GETATTR and SETATTR.
    fuse_attr_out AttrOut: 104, 8 { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// STATX.
    fuse_statx_in StatxIn: 24, 8 { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// Reply to STATX.
    fuse_statx_out StatxOut: 288, 8 {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx,
    }
    /// MKNOD; the name follows.
    fuse_mknod_in MknodIn: 16, 4 { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// MKDIR; the name follows.
    fuse_mkdir_in MkdirIn: 8, 4 { mode: u32, umask: u32 }
    /// RENAME; both names follow.
    fuse_rename_in RenameIn: 8, 8 { newdir: u64 }
    /// RENAME2; both names follow.
    fuse_rename2_in Rename2In: 16, 8 { newdir: u64, flags: u32, padding: u32 }
    /// LINK; the new name follows.
    fuse_link_in LinkIn: 8, 8 { oldnodeid: u64 }
    /// SETATTR.
    fuse_setattr_in SetattrIn: 88, 8 {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime:
        u64, atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid:
        u32, unused5: u32,
    }
    /// OPEN and OPENDIR.
    fuse_open_in OpenIn: 8, 4 { flags: u32, open_flags: u32 }
    /// CREATE and TMPFILE; the name follows.
    fuse_create_in CreateIn: 16, 4 { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// Reply to OPEN and OPENDIR, and second part of that to CREATE.
    fuse_open_out OpenOut: 16, 8 { fh: u64, open_flags: u32, backing_id: i32 }
    /// RELEASE and RELEASEDIR.
    fuse_release_in ReleaseIn: 24, 8 { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// FLUSH.
    fuse_flush_in FlushIn: 24, 8 { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    fuse_read_in ReadIn: 40, 8 {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// WRITE; `size` bytes follow.
    fuse_write_in WriteIn: 40, 8 {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    /// Reply to WRITE and COPY_FILE_RANGE.
    fuse_write_out WriteOut: 8, 4 { size: u32, padding: u32 }
    /// Reply to STATFS.
    fuse_statfs_out StatfsOut: 80, 8 { st: Kstatfs }
    /// FSYNC and FSYNCDIR.
    fuse_fsync_in FsyncIn: 16, 8 { fh: u64, fsync_flags: u32, padding: u32 }
    /// SETXATTR; the name and `size` bytes follow. Without
    /// [`InitFlags::SETXATTR_EXT`](crate::InitFlags::SETXATTR_EXT) it ends before `setxattr_flags`.
    fuse_setxattr_in SetxattrIn: 16, 4 { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// GETXATTR, LISTXATTR; after the first, a name follows.
    fuse_getxattr_in GetxattrIn: 8, 4 { size: u32, padding: u32 }
    /// Reply to GETXATTR and LISTXATTR that ask for the size only.
    fuse_getxattr_out GetxattrOut: 8, 4 { size: u32, padding: u32 }
    /// GETLK, SETLK and SETLKW.
    fuse_lk_in LkIn: 48, 8 { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    /// Reply to GETLK.
    fuse_lk_out LkOut: 24, 8 { lk: FileLock }
    /// ACCESS.
    fuse_access_in AccessIn: 8, 4 { mask: u32, padding: u32 }
    /// INIT. Kernels before 7.36 send 16 bytes.
    fuse_init_in InitIn: 64, 4 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    /// Reply to INIT. [`InitOut::size`] gives its length for an older kernel.
    fuse_init_out InitOut: 64, 4 {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    /// CUSE_INIT.
    cuse_init_in CuseInitIn: 16, 4 { major: u32, minor: u32, unused: u32, flags: u32 }
    /// Reply to CUSE_INIT; strings follow.
    cuse_init_out CuseInitOut: 72, 4 {
        major: u32, minor: u32, unused: u32, flags: u32, max_read: u32, max_write: u32, dev_major: u32,
        dev_minor: u32, spare: [u32; 10],
    }
    /// INTERRUPT: the request that no longer needs an answer.
    fuse_interrupt_in InterruptIn: 8, 8 { unique: u64 }
    /// BMAP.
    fuse_bmap_in BmapIn: 16, 8 { block: u64, blocksize: u32, padding: u32 }
    /// Reply to BMAP.
    fuse_bmap_out BmapOut: 8, 8 { block: u64 }
    /// IOCTL; `in_size` bytes follow.
    fuse_ioctl_in IoctlIn: 32, 8 { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    /// An area that a retried IOCTL wants to read or write.
    fuse_ioctl_iovec IoctlIovec: 16, 8 { base: u64, len: u64 }
    /// Reply to IOCTL; data or [`IoctlIovec`]s follow.
    fuse_ioctl_out IoctlOut: 16, 4 { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// POLL.
    fuse_poll_in PollIn: 24, 8 { fh: u64, kh: u64, flags: u32, events: u32 }
    /// Reply to POLL.
    fuse_poll_out PollOut: 8, 4 { revents: u32, padding: u32 }
    /// Notice POLL.
    fuse_notify_poll_wakeup_out NotifyPollWakeupOut: 8, 8 { kh: u64 }
    /// FALLOCATE.
    fuse_fallocate_in FallocateIn: 32, 8 { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// Head of every request.
    fuse_in_header InHeader: 40, 8 {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen:
        u16, padding: u16,
    }
    /// Head of every reply, and of every notice.
    fuse_out_header OutHeader: 16, 8 { len: u32, error: i32, unique: u64 }
    /// One entry of a READDIR; the name follows, and zeros up to a multiple of 8.
    fuse_dirent Dirent: 24, 8 { ino: u64, off: u64, namelen: u32, r#type: u32 }
    /// One entry of a READDIRPLUS; the name follows, and zeros up to a multiple of 8.
    fuse_direntplus Direntplus: 152, 8 { entry_out: EntryOut, dirent: Dirent }
    /// Notice INVAL_INODE.
    fuse_notify_inval_inode_out NotifyInvalInodeOut: 24, 8 { ino: u64, off: i64, len: i64 }
    /// Notice INVAL_ENTRY; the name and a zero follow.
    fuse_notify_inval_entry_out NotifyInvalEntryOut: 16, 8 { parent: u64, namelen: u32, flags: u32 }
    /// Notice DELETE; the name and a zero follow.
    fuse_notify_delete_out NotifyDeleteOut: 24, 8 { parent: u64, child: u64, namelen: u32, padding: u32 }
    /// Notice STORE; `size` bytes follow.
    fuse_notify_store_out NotifyStoreOut: 24, 8 { nodeid: u64, offset: u64, size: u32, padding: u32 }
    /// Notice RETRIEVE.
    fuse_notify_retrieve_out NotifyRetrieveOut: 32, 8 {
        notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32,
    }
    /// NOTIFY_REPLY, with `size` bytes behind it: the answer to a notice RETRIEVE.
    fuse_notify_retrieve_in NotifyRetrieveIn: 40, 8 {
        dummy1: u64, offset: u64, size: u32, dummy2: u32, dummy3: u64, dummy4: u64,
    }
    /// Notice PRUNE; `count` node ids follow.
    fuse_notify_prune_out NotifyPruneOut: 16, 8 { count: u32, padding: u32, spare: u64 }
    /// Argument of the ioctl that registers a backing file.
    fuse_backing_map BackingMap: 16, 8 { fd: i32, flags: u32, padding: u64 }
    /// LSEEK.
    fuse_lseek_in LseekIn: 24, 8 { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// Reply to LSEEK.
    fuse_lseek_out LseekOut: 8, 8 { offset: u64 }
    /// COPY_FILE_RANGE and COPY_FILE_RANGE_64.
    fuse_copy_file_range_in CopyFileRangeIn: 56, 8 {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    /// Reply to COPY_FILE_RANGE_64.
    fuse_copy_file_range_out CopyFileRangeOut: 8, 8 { bytes_copied: u64 }
    /// SETUPMAPPING.
    fuse_setupmapping_in SetupmappingIn: 40, 8 { fh: u64, foffset: u64, len: u64, flags: u64, moffset: u64 }
    /// REMOVEMAPPING: how many [`RemovemappingOne`] follow.
    fuse_removemapping_in RemovemappingIn: 4, 4 { count: u32 }
    /// One range of a REMOVEMAPPING.
    fuse_removemapping_one RemovemappingOne: 16, 8 { moffset: u64, len: u64 }
    /// SYNCFS.
    fuse_syncfs_in SyncfsIn: 8, 8 { padding: u64 }
    /// One security context; its name and `size` bytes follow.
    fuse_secctx Secctx: 8, 4 { size: u32, padding: u32 }
    /// Head of the security contexts among the extensions.
    fuse_secctx_header SecctxHeader: 8, 4 { size: u32, nr_secctx: u32 }
    /// Head of an extension.
    fuse_ext_header ExtHeader: 8, 4 { size: u32, r#type: u32 }
    /// Supplementary groups; `nr_groups` ids follow.
    fuse_supp_groups SuppGroups: 4, 4 { nr_groups: u32 }
    /// State of an entry of a ring.
    fuse_uring_ent_in_out UringEntInOut: 32, 8 {
        flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64,
    }
    /// The header area of an entry of a ring.
    fuse_uring_req_header UringReqHeader: 288, 8 {
        in_out: [u8; 128], op_in: [u8; 128], ring_ent_in_out: UringEntInOut,
    }
    /// The command area of a submission.
    fuse_uring_cmd_req UringCmdReq: 24, 8 { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// The flag words of structures by their types.
macro_rules! flag_words {
    ($($name:ident.$field:ident: $flags:ident)*) => {$(
        impl $name {
            /// The flag word of this name; bits that the header does not name are kept.
            #[must_use]
            pub const fn $field(&self) -> $flags {
                $flags::from_bits_retain(self.$field)
            }
        }
    )*};
}

flag_words! {
    Attr.flags: AttrFlags
    CreateIn.open_flags: OpenInFlags
    FsyncIn.fsync_flags: FsyncFlags
    GetattrIn.getattr_flags: GetattrFlags
    IoctlIn.flags: IoctlFlags
    IoctlOut.flags: IoctlFlags
    LkIn.lk_flags: LockFlags
    NotifyInvalEntryOut.flags: InvalEntryFlags
    OpenIn.open_flags: OpenInFlags
    OpenOut.open_flags: OpenFlags
    PollIn.flags: PollFlags
    ReadIn.read_flags: ReadFlags
    ReleaseIn.release_flags: ReleaseFlags
    SetattrIn.valid: SetattrValid
    SetupmappingIn.flags: SetupMappingFlags
    SetxattrIn.setxattr_flags: SetxattrFlags
    StatxIn.getattr_flags: GetattrFlags
    WriteIn.write_flags: WriteFlags
}

impl InitIn {
    /// The flags that the kernel offers.
    #[must_use]
    pub const fn offered(&self) -> InitFlags {
        InitFlags::from_words(self.flags, self.flags2)
    }
}

impl InitOut {
    /// The flags that the server accepts.
    #[must_use]
    pub const fn accepted(&self) -> InitFlags {
        InitFlags::from_words(self.flags, self.flags2)
    }

    /// The reply with these flags.
    #[must_use]
    pub const fn with_flags(mut self, flags: InitFlags) -> Self {
        (self.flags, self.flags2) = flags.to_words();
        self
    }

    /// Bytes of the reply that a kernel of this minor version takes.
    #[must_use]
    pub const fn size(minor: u32) -> usize {
        match minor {
            0..5 => 8,
            5..23 => 24,
            _ => size_of::<Self>(),
        }
    }
}

impl InHeader {
    /// Bytes of extensions at the end of the request.
    #[must_use]
    pub const fn extensions_size(&self) -> usize {
        self.total_extlen as usize * 8
    }

    /// Whether the kernel sent this request before.
    #[must_use]
    pub const fn is_resent(&self) -> bool {
        self.unique & UNIQUE_RESEND != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{LAYOUTS, MINOR_VERSION};
    use std::fmt::Write;
    use std::process::Command;

    /// Sizes are written by hand, offsets follow from the order of the fields: a C compiler reads both from the header.
    #[test]
    fn every_structure_is_laid_out_as_in_the_header_of_the_kernel() {
        let header = std::env::var("UVFS_FUSE_HEADER");
        let header = header.unwrap_or_else(|_| "/usr/include/linux/fuse.h".to_owned());
        let text = std::fs::read_to_string(&header).unwrap_or_default();
        if !text.contains(&format!("FUSE_KERNEL_MINOR_VERSION {MINOR_VERSION}\n")) {
            return uvfs_skip::lacking(format_args!("{header} is not of 7.{MINOR_VERSION}"));
        }
        let mut program = format!("#include <stddef.h>\n#include \"{header}\"\n");
        for layout in LAYOUTS {
            let (name, size) = (layout.name, layout.size);
            let _ =
                writeln!(program, "_Static_assert(sizeof(struct {name}) == {size}, \"{name}\");");
            for (field, offset) in layout.fields {
                let field = match (name, field.trim_start_matches("r#")) {
                    ("fuse_sx_time", "reserved") => "__reserved",
                    ("fuse_statx", "spare0") => "__spare0",
                    ("fuse_statx", "spare2") => "__spare2",
                    (_, field) => field,
                };
                let offsetof = format!("offsetof(struct {name}, {field})");
                let _ = writeln!(
                    program,
                    "_Static_assert({offsetof} == {offset}, \"{name}.{field}\");"
                );
            }
        }
        let source = std::env::temp_dir().join(format!("uvfs-layout-{}.c", std::process::id()));
        std::fs::write(&source, program).unwrap();
        let output = Command::new("cc").arg("-fsyntax-only").arg(&source).output();
        let _ = std::fs::remove_file(&source);
        match output {
            Ok(output) => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
            }
            Err(error) => uvfs_skip::lacking(format_args!("cc: {error}")),
        }
    }
}
