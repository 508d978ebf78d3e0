//! The lock classes of the core, outermost first.
//!
//! # Boundary
//! Has no classes of stores and frontends: they declare theirs, in their bands of ranks
//! ([`uvfs_concurrent::lock_classes`]).
//!
//! Debug and test builds panic when a thread takes two locks against the order ([`uvfs_concurrent::lock`]). `cargo
//! xtask locks` prints `docs/locking.md` from all lists. No class is ever held across a call into a backend;
//! [`crate::Vfs`] asserts that too.

uvfs_concurrent::lock_classes! {
    in CORE;
    /// The mounts of one namespace.
    MOUNTS = 60, "mounts", "changes of the mounts of one namespace";
    /// The turn to move a directory to another parent.
    MOVES = 90, "moves", "moves of directories to another parent";
    /// Parent link of one directory.
    INODE_PARENT = 100, "inode-parent", "the parent of one directory inode";
    /// Cleans and moves.
    CLEANINGS = 104, "cleanings", "the order between effects of cleanings and arrivals of moves";
    /// A listing of one directory on its way into the cache.
    LISTING = 105, "listing", "progress of a listing of one directory into the cache";
    /// In-flight changes of one directory.
    INODE_CHANGES = 110, "inode-changes", "version and changes in flight of one directory";
    /// The kept list of one directory.
    LISTED = 111, "listed", "the kept list of one directory, and its refresh";
    /// Lookups in flight.
    FLIGHTS = 112, "flights", "one shard of the lookups that are asking the store";
    /// One lookup in flight.
    FLIGHT = 114, "flight", "whether one lookup in flight has its answer";
    /// Directories with lists.
    LISTS = 116, "lists", "the directories that have lists of their names, oldest first";
    /// One bucket of the name table.
    NAMES = 120, "names", "one bucket of the name table";
    /// Names to be evicted first.
    NAMES_ONCE = 122, "names-once", "the queue of names that are evicted first";
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
    /// Edges from waiters to holders of advisory locks.
    LOCK_WAITS = 170, "lock-waits", "owners that wait for advisory locks, for deadlock detection";
    /// Threads inside the gate of one file's pages.
    FILE_GATE = 174, "file-gate", "threads that change the pages of one file";
    /// Streams of one file.
    STREAMS = 176, "streams", "the next reads of one file that are expected";
    /// The store's open files behind one file's pages.
    OPENS = 178, "opens", "the store's open files that read and write pages";
    /// Looks of threads that wait for room.
    ROOM_LOOKS = 179, "room-looks", "the thread that searches for room for pages after it found none";
    /// Sleepers for pages.
    PAGE_WAITS = 180, "page-waits", "one bucket of the threads that sleep until a page is free or written";
    /// Nodes of one file's page tree.
    PAGE_TREE = 182, "page-tree", "one node of the tree of one file's pages";
    /// Files with dirty pages.
    DIRTY_FILES = 184, "dirty-files", "files that wait to be written back";
    /// The directory that one file's pages belong to.
    PAGES_HOME = 185, "pages-home", "the directory that a file with pages lies in";
    /// State of one file that the store does not have.
    PAGES_LOCAL = 186, "pages-local", "state of one file that the store does not have yet";
    /// Errors of writing back one file.
    WRITE_ERRORS = 187, "write-errors", "write-back errors of one file, until they are reported";
    /// Files by their numbers in frames.
    PAGE_FILES = 188, "page-files", "one shard of the files that have pages";
    /// Which file may grow beyond the others.
    PAGE_GROWTH = 189, "page-growth", "the file that may grow among those put whole, and the count of waiting writers";
    /// The replacement's queues.
    PAGE_QUEUES = 190, "page-queues", "order in which pages are considered for eviction";
    /// Buffers for runs of pages.
    PAGE_BUFFERS = 192, "page-buffers", "buffers for runs of pages that are not in use";
    /// The threads for background work.
    BACKGROUND = 193, "background", "files to be fetched and directories to be listed in the background";
    /// The threads that read ahead and write back.
    PAGE_WORK = 194, "page-work", "read-ahead and write-back to do, and the count of threads for it";
    /// Threads that wait for pages to become clean.
    PAGE_PROGRESS = 195, "page-progress", "answers of the store about dirty pages, and threads that wait for the next";
    /// Threads that wait for space of the store.
    SPACE = 196, "space", "threads that wait for space of the store to come back";
    /// Runs of one thread that are in progress.
    PAGE_RUNS = 197, "page-runs", "answers of the store about the runs that one thread has under way";
    /// Marked directories.
    POLICIES = 198, "policies", "the directories that are marked keep or once";
    /// Tenants of the budget.
    TENANTS = 199, "tenants", "stores and frontends that share the budget with the caches";
    /// The listeners for changes.
    OBSERVER = 200, "observer", "the frontends that receive changes";
    /// Sleepers for room.
    ROOM_WAITS = 201, "room-waits", "count of times that room for pages was made while threads waited";
    /// Recent counts.
    VIEWS = 202, "views", "the last counts of the caches, by directory";
}
