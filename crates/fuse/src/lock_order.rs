//! The lock classes of the FUSE frontend, outermost first.
//!
//! # Boundary
//! One list, in the frontends' band of ranks ([`uvfs_concurrent::lock_classes`]): a handler may hold one of these when it
//! calls the core.

uvfs_concurrent::lock_classes! {
    in FRONTENDS;
    /// End of a FUSE session.
    FUSE_END = 4, "fuse-end", "whether a session has ended";
    /// The turn to clean a mount.
    FUSE_CLEAN = 5, "fuse-clean", "the thread that cleans a mount, and those that wait for it";
    /// The FUSE frontend's notifier thread.
    FUSE_NOTIFIER = 6, "fuse-notifier", "the notifier threads of a mount, until they are joined";
    /// The FUSE frontend's node ids that are not inode numbers.
    FUSE_ALIASES = 8, "fuse-aliases", "node ids of objects whose inode number was taken";
    /// The request that the kernel evict inodes.
    FUSE_PRESSURE = 9, "fuse-pressure", "whether the kernel is asked to forget inodes";
    /// The FUSE frontend's table of node ids.
    FUSE_NODES = 10, "fuse-nodes", "node ids the kernel holds, with their lookup counts";
    /// Forgets that a thread waits for.
    FUSE_FORGETS = 11, "fuse-forgets", "count of node ids forgotten while a thread waits for it";
    /// Names that the kernel has cached as missing.
    FUSE_MISSING = 12, "fuse-missing", "one shard of the names that the kernel caches as missing";
    /// How often users had directories cleaned.
    FUSE_DROPS = 13, "fuse-drops", "recent cleanings of each user through the control file";
    /// Which directories are asked about most.
    FUSE_HEAT = 15, "fuse-heat", "directories with the most requests of the kernel";
    /// The FUSE frontend's open files.
    FUSE_FILES = 20, "fuse-files", "open files of the kernel, by file handle";
    /// Files written directly.
    FUSE_SEEN = 25, "fuse-seen", "one shard of the files that were written directly, and whether the kernel may hold pages of them";
    /// Reads and writes through the kernel's pages.
    FUSE_OVERTAKEN = 26, "fuse-overtaken", "one shard of the latest reads into the kernel's pages, and of the writes under way";
    /// The passthrough state of one inode.
    FUSE_BACKING = 30, "fuse-backing", "backing file shared by all opens of an inode";
    /// The worker pool's queue.
    FUSE_WORK = 40, "fuse-work", "requests waiting for a worker, and the count of workers";
    /// Requests that may wait, by number.
    FUSE_UNDER_WAY = 41, "fuse-under-way", "one shard of the requests for which tasks wait";
    /// Interrupted requests.
    FUSE_LOOKS = 42, "fuse-looks", "requests whose tasks got a signal, and the thread that looks at them";
    /// The reply of one such request.
    FUSE_REPLY = 43, "fuse-reply", "the reply of a request under way, until a thread sends it";
    /// Direct writes that wait for the kernel.
    FUSE_DIRECT = 45, "fuse-direct", "direct writes whose pages the kernel has to drop, and the count of threads for it";
    /// The notifier's queue.
    FUSE_NOTICES = 50, "fuse-notices", "cache notices waiting to be sent to the kernel";
    /// Answered slots of a ring.
    FUSE_RING = 55, "fuse-ring", "slots of one core's ring whose answers wait to be handed to the kernel";
}
