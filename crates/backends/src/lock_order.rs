//! The lock classes of the stores, outermost first.
//!
//! # Boundary
//! One list for all stores of this crate, in the stores' band of ranks ([`uvfs_concurrent::lock_classes`]): the core
//! holds none of its own when it calls them.

uvfs_concurrent::lock_classes! {
    in STORES;
    /// Hostile backend: its plan.
    HOSTILE_PLAN = 290, "hostile-plan", "planned faults";
    /// Memory backend: ancestry.
    MEMORY_MOVES = 300, "memory-moves", "moves of directories of the memory file system to another parent";
    /// Memory backend: one directory.
    MEMORY_DIRECTORY = 310, "memory-directory", "names and attributes of one memory directory";
    /// Memory backend: another directory, with a higher id than the first.
    MEMORY_DIRECTORY_2 = 312, "memory-directory-2", "a second memory directory, in the order of their ids";
    /// Memory backend: another directory, with a higher id than the first two.
    MEMORY_DIRECTORY_3 = 314, "memory-directory-3", "a third memory directory, in the order of their ids";
    /// Memory backend: one object that is no directory.
    MEMORY_NODE = 320, "memory-node", "attributes, pages and xattrs of one memory node that is no directory";
    /// Memory backend: nodes.
    MEMORY_NODES = 330, "memory-nodes", "one shard of the memory file system's node table";
    /// Memory backend: space.
    MEMORY_SPACE = 340, "memory-space", "space of the memory file system on its way between threads";
    /// Directory backend: renames.
    HOST_TREE = 350, "host-tree", "known names of host nodes";
    /// Directory backend: nodes.
    HOST_NODES = 360, "host-nodes", "one shard of the host node table";
    /// Directory backend: open descriptors.
    HOST_DESCRIPTORS = 370, "host-descriptors", "recently used descriptors and their clock";
    /// Directory backend: open files.
    HOST_FILES = 380, "host-files", "open host files";
    /// Directory backend: watches.
    HOST_WATCHES = 390, "host-watches", "inotify watches by descriptor and by node";
    /// Image backend: rows of blocks.
    IMAGE_ROWS = 392, "image-rows", "one row of an image's cached blocks";
    /// Image backend: free frames.
    IMAGE_FRAMES = 394, "image-frames", "frames that a group of rows of blocks shares";
    /// Image backend: sleepers for blocks.
    IMAGE_WAITS = 396, "image-waits", "threads that sleep until a block of an image is read";
    /// Image backend: the thread that commits.
    IMAGE_COMMITS = 397, "image-commits", "whether the thread that commits an image is to end";
    /// Image backend: rows of runs.
    IMAGE_RUNS = 398, "image-runs", "one row of the cached runs of an image's files";
    /// Image backend: poisoned inodes.
    IMAGE_POISONED = 399, "image-poisoned", "inodes of an image in which reading panicked";
}
