//! Calls as a plan and a journal name them.

use uvfs_vfs::InodeId;

/// A method of [`uvfs_vfs::Backend`] that can go wrong. `forget`, `capabilities`, `counters`,
/// `os_file` and `watch` are not among them: they cannot fail, or are asked once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the method of its name")]
pub enum Call {
    Root,
    Lookup,
    Attributes,
    List,
    Read,
    SetAttributes,
    ReadLink,
    Create,
    CreateAndOpen,
    CreateUnnamed,
    Link,
    Unlink,
    RemoveDirectory,
    Rename,
    Open,
    Close,
    Write,
    Append,
    Allocate,
    Seek,
    CopyRange,
    Sync,
    Flush,
    SyncFs,
    End,
    GetXattr,
    SetXattr,
    ListXattrs,
    RemoveXattr,
    ByNumber,
    ParentOf,
    Totals,
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The method.
    pub call: Call,
    /// The object it was about; of a change of names, the directory (of a rename: the old one).
    pub inode: InodeId,
    /// The name in the call, if there was one (of a rename: the old one).
    pub name: Option<Vec<u8>>,
}
