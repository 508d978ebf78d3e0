//! The lock classes of an object store, outermost first.
//!
//! # Boundary
//! In the stores' band of ranks ([`uvfs_concurrent::lock_classes`]), after those of the host directory. None is held while a
//! request is under way.

uvfs_concurrent::lock_classes! {
    in STORES;
    /// Objects that are being changed.
    OBJECT_GATES = 361, "object-gates", "objects of a store that threads change";
    /// Files in work.
    OBJECT_IN_WORK = 362, "object-in-work", "files of an object store that are created or open for writing here, and recent changes made here";
    /// Buffers.
    OBJECT_ALLOWANCE = 363, "object-allowance", "bytes that buffers of uploads to an object store may have";
    /// Credentials.
    OBJECT_CREDENTIALS = 365, "object-credentials", "the credentials that requests to an object store are signed with";
    /// Listings under way.
    OBJECT_LISTINGS = 391, "object-listings", "pages of listings of an object store that are being read, and parents whose directories were listed lately";
    /// Nodes.
    OBJECT_NODES = 393, "object-nodes", "one shard of the objects of a store that the core knows";
    /// Runs.
    OBJECT_RUNS = 395, "object-runs", "runs that wait for a thread of an object store";
}
