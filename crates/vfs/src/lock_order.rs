//! Every lock class of uvfs, outermost first: the one list of the lock order.
//!
//! Debug and test builds panic when a thread takes two locks against it
//! ([`uvfs_concurrent::lock`]). `docs/locking.md` is printed from it by `cargo xtask locks`. No class
//! is ever held across a call into a backend; [`crate::Vfs`] asserts that too.

use uvfs_concurrent::lock::LockClass;

macro_rules! classes {
    ($($(#[$doc:meta])* $constant:ident = $rank:literal, $name:literal, $protects:literal;)*) => {
        $($(#[$doc])* pub static $constant: LockClass = LockClass::new($rank, $name, $protects);)*
        /// All classes, outermost first.
        pub static ORDER: &[&LockClass] = &[$(&$constant),*];
    };
}

classes! {
    /// End of a FUSE session.
    FUSE_END = 4, "fuse-end", "whether a session has ended";
    /// Who cleans a mount.
    FUSE_CLEAN = 5, "fuse-clean", "who cleans a mount now, and who waits for it";
    /// The FUSE frontend's notifier thread.
    FUSE_NOTIFIER = 6, "fuse-notifier", "the notifier thread of a mount, until it is joined";
    /// Paths of marked directories, for the control socket.
    POLICY_PATHS = 7, "policy-paths", "paths by which directories of a mount were marked";
    /// The FUSE frontend's node ids that are not inode numbers.
    FUSE_ALIASES = 8, "fuse-aliases", "node ids of objects whose inode number was taken";
    /// Who has the kernel let go.
    FUSE_PRESSURE = 9, "fuse-pressure", "whether the kernel is to let go of something";
    /// The FUSE frontend's table of node ids.
    FUSE_NODES = 10, "fuse-nodes", "node ids the kernel holds, with their lookup counts";
    /// Forgets that somebody waits for.
    FUSE_FORGETS = 11, "fuse-forgets", "count of node ids forgotten while somebody waits for it";
    /// Names that the kernel believes to be missing.
    FUSE_MISSING = 12, "fuse-missing", "one shard of the names that the kernel believes to be missing";
    /// The FUSE frontend's open files.
    FUSE_FILES = 20, "fuse-files", "open files of the kernel, by file handle";
    /// Files written directly.
    FUSE_SEEN = 25, "fuse-seen", "one shard of the files that were written directly, and whether the kernel may hold pages of them";
    /// The passthrough state of one inode.
    FUSE_BACKING = 30, "fuse-backing", "backing file shared by all opens of an inode";
    /// The worker pool's queue.
    FUSE_WORK = 40, "fuse-work", "requests waiting for a worker, and the count of workers";
    /// Direct writes that wait for the kernel.
    FUSE_DIRECT = 45, "fuse-direct", "direct writes whose pages the kernel has to drop, and the count of threads for it";
    /// The notifier's queue.
    FUSE_NOTICES = 50, "fuse-notices", "cache notices waiting to be sent to the kernel";
    /// The mounts of one namespace.
    MOUNTS = 60, "mounts", "who changes the mounts of one namespace";
    /// Who moves a directory to another parent.
    MOVES = 90, "moves", "whether somebody moves a directory to another parent";
    /// Parent link of one directory.
    INODE_PARENT = 100, "inode-parent", "the parent of one directory inode";
    /// Cleanings and moves.
    CLEANINGS = 104, "cleanings", "whether a cleaning takes effect, or something that moves arrives";
    /// A listing of one directory on its way into the cache.
    LISTING = 105, "listing", "how far a listing of one directory has come into the cache";
    /// In-flight changes of one directory.
    INODE_CHANGES = 110, "inode-changes", "version and changes in flight of one directory";
    /// Lookups in flight.
    FLIGHTS = 112, "flights", "one shard of the lookups that are asking the store";
    /// One lookup in flight.
    FLIGHT = 114, "flight", "whether one lookup in flight has its answer";
    /// One bucket of the name table.
    NAMES = 120, "names", "one bucket of the name table";
    /// Names that are to go first.
    NAMES_ONCE = 122, "names-once", "the queue of names that are to go before all others";
    /// One bucket of the table of whole paths.
    PATHS = 125, "paths", "one bucket of the table of whole paths";
    /// One shard of the inode table.
    INODES = 130, "inodes", "one shard of the inode table";
    /// Queue of inactive inodes.
    INACTIVE = 140, "inactive", "inactive inodes in the order they became so";
    /// Cached attributes of one inode.
    INODE_ATTRIBUTES = 150, "inode-attributes", "cached attributes of one inode and their expiry";
    /// Access control list of one inode.
    INODE_ACL = 152, "inode-acl", "the cached access control list of one inode";
    /// Open files of one inode that the kernel reads and writes by itself.
    INODE_BYPASS = 154, "inode-bypass", "open files of one inode that bypass the caches";
    /// Advisory locks of one inode.
    INODE_LOCKS = 160, "inode-locks", "advisory record locks and flocks of one inode";
    /// Who waits for whose advisory lock.
    LOCK_WAITS = 170, "lock-waits", "owners that wait for advisory locks, for deadlock detection";
    /// Who is inside the gate of one file's pages.
    FILE_GATE = 174, "file-gate", "who changes the pages of one file now";
    /// Streams of one file.
    STREAMS = 176, "streams", "where reading of one file is expected to go on";
    /// The store's open files behind one file's pages.
    OPENS = 178, "opens", "the store's open files that pages are read and written by";
    /// Sleepers for pages.
    PAGE_WAITS = 180, "page-waits", "one bucket of those who sleep until a page is free or written";
    /// Nodes of one file's page tree.
    PAGE_TREE = 182, "page-tree", "one node of the tree of one file's pages";
    /// Files with dirty pages.
    DIRTY_FILES = 184, "dirty-files", "files that wait to be written back";
    /// The directory that one file's pages belong to.
    PAGES_HOME = 185, "pages-home", "the directory that a file with pages lies in";
    /// What the store does not know of one file.
    PAGES_LOCAL = 186, "pages-local", "what of one file is held back from the store";
    /// Errors of writing back one file.
    WRITE_ERRORS = 187, "write-errors", "errors of writing back one file, until they are told";
    /// Files by the numbers that frames know them by.
    PAGE_FILES = 188, "page-files", "one shard of the files that have pages";
    /// The replacement's queues.
    PAGE_QUEUES = 190, "page-queues", "order in which pages are considered for eviction";
    /// Buffers for runs of pages.
    PAGE_BUFFERS = 192, "page-buffers", "buffers for runs of pages that are not in use";
    /// The threads that read ahead and write back.
    PAGE_WORK = 194, "page-work", "what is to be read ahead and written back, and by how many threads";
    /// Who waits for pages to become clean.
    PAGE_PROGRESS = 195, "page-progress", "answers of the store about dirty pages, and threads that wait for the next";
    /// Who was refused for want of space.
    SPACE = 196, "space", "threads that wait for space of the store to come back";
    /// Runs with the store, of one thread.
    PAGE_RUNS = 197, "page-runs", "answers of the store about the runs that one thread has under way";
    /// Marked directories.
    POLICIES = 198, "policies", "the directories that are marked to be kept, or to go first";
    /// Who shares the budget.
    TENANTS = 199, "tenants", "who shares the budget with the caches";
    /// The listeners for changes.
    OBSERVER = 200, "observer", "the frontends that are told of changes";
    /// Hostile backend: its plan.
    HOSTILE_PLAN = 290, "hostile-plan", "faults still to come";
    /// Memory backend: ancestry.
    MEMORY_MOVES = 300, "memory-moves", "who moves a directory of the memory file system to another parent";
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
    IMAGE_ROWS = 400, "image-rows", "one row of an image's cached blocks";
    /// Image backend: free frames.
    IMAGE_FRAMES = 410, "image-frames", "frames that a group of rows of blocks shares";
    /// Image backend: sleepers for blocks.
    IMAGE_WAITS = 420, "image-waits", "those who sleep until a block of an image is read";
    /// Image backend: rows of runs.
    IMAGE_RUNS = 430, "image-runs", "one row of the runs that files of an image lie in";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_rise_and_names_differ() {
        assert!(ORDER.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        let names: std::collections::HashSet<_> = ORDER.iter().map(|class| class.name()).collect();
        assert_eq!(names.len(), ORDER.len());
    }
}
