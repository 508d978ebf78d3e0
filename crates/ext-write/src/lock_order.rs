//! The lock classes of writing images, outermost first.
//!
//! # Boundary
//! One list, in the stores' band of ranks ([`uvfs_concurrent::lock_classes`]): no lock of a core is held when a store is
//! called. A device's classes are the innermost.

uvfs_concurrent::lock_classes! {
    in STORES;
    /// Renames.
    EXT_RENAMES = 367, "ext-renames", "moves between two directories of an image";
    /// One inode.
    EXT_INODE = 368, "ext-inode", "one inode of an image that is written: its attributes, its map, its names";
    /// A second one.
    EXT_INODE_2 = 369, "ext-inode-2", "a second inode: below the first, or of a higher number";
    /// A third one.
    EXT_INODE_3 = 371, "ext-inode-3", "a third inode, below the first two";
    /// A fourth one.
    EXT_INODE_4 = 372, "ext-inode-4", "a fourth inode, of a higher number than the third";
    /// Inodes in use.
    EXT_INODES = 373, "ext-inodes", "one shard of the inodes of an image that are in use";
    /// Orphans.
    EXT_ORPHANS = 374, "ext-orphans", "the list of inodes without names, and the superblock";
    /// One group.
    EXT_GROUP = 375, "ext-group", "blocks and inodes of one block group that are in use";
    /// Totals.
    EXT_SPACE = 376, "ext-space", "free blocks of an image, and those that wait for a commit";
    /// Windows.
    EXT_WINDOWS = 377, "ext-windows", "one shard of the blocks that growing files of an image take next";
    /// The log.
    EXT_LOG = 378, "ext-log", "the log of an image's journal, while one thread commits or moves its beginning";
    /// Transactions.
    EXT_JOURNAL = 379, "ext-journal", "handles of the running transaction, and the thread that commits";
    /// Numbers of flushes.
    EXT_FLUSHES = 381, "ext-flushes", "which flush of an image's device is under way, and whether one failed";
    /// Finding buffers.
    EXT_BUFFERS = 382, "ext-buffers", "one row of the buffers of an image that is written";
    /// One buffer.
    EXT_BUFFER = 383, "ext-buffer", "the contents of one buffer";
    /// The running transaction.
    EXT_TRANSACTION = 384, "ext-transaction", "the blocks that the running transaction changed and freed";
    /// Committed blocks.
    EXT_NEWER = 385, "ext-newer", "blocks that are committed and not in their places, and the step that brings them there";
    /// Memory of a device.
    EXT_MEMORY = 386, "ext-memory", "the bytes of an image in memory; of a direct device, its buffers, and sectors that are changed in part";
    /// A recorder.
    EXT_RECORD = 387, "ext-record", "what a test recorded of the writes to a device";
    /// The queue.
    EXT_QUEUE = 388, "ext-queue", "background writes that wait for an image's device; not held while the device works";
    /// Doors of transactions.
    EXT_HANDLES = 389, "ext-handles", "one door of the running transaction: its open handles, and the blocks that they may add";
}
