//! The lock classes of the variants, and the places where they are taken.
//!
//! # Boundary
//! One function per routine of the paper's tables. The lock meter tells call sites apart by file and
//! line; each routine locks here, on a line of its own, so that its line in the meter has its name.
//!
//! # Why
//! The paper's tables have a row per calling routine (`d_lookup+0x5c`). A routine that several
//! variants implement takes its lock through the same function in all of them, and the rows of two
//! variants can be laid side by side.

use uvfs_concurrent::lock::{LockClass, Mutex, MutexGuard};

/// The paper's global lock.
pub(super) static DCACHE_LOCK: LockClass =
    LockClass::new(410, "dcache_lock", "hash chains, children and, unless said otherwise, LRU");
/// Section 5's second lock.
pub(super) static D_LRU_LOCK: LockClass =
    LockClass::new(420, "d_lru_lock", "the list of unused dentries");
/// Section 4's locks.
pub(super) static BUCKET: LockClass =
    LockClass::new(422, "bucket", "one hash chain and the unused dentries in it");
/// A directory's own lock, held across its misses and changes; no part of the dcache.
pub(super) static I_SEM: LockClass =
    LockClass::new(400, "i_sem", "changes and first lookups in one directory");

macro_rules! site {
    ($routine:ident, $line:ident) => {
        /// Takes `lock` for the routine of this name.
        #[inline(always)]
        pub(super) fn $routine<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
            lock.lock()
        }
        const $line: u32 = line!();
    };
}

// In the order of the paper's tables.
site!(d_alloc, D_ALLOC);
site!(d_delete, D_DELETE);
site!(d_drop, D_DROP);
site!(d_instantiate, D_INSTANTIATE);
site!(d_lookup, D_LOOKUP);
site!(d_move, D_MOVE);
site!(d_rehash, D_REHASH);
site!(d_unhash, D_UNHASH);
site!(dput, DPUT);
site!(dput_kill, DPUT_KILL);
site!(link_path_walk, LINK_PATH_WALK);
site!(path_lookup, PATH_LOOKUP);
site!(prune_dcache, PRUNE_DCACHE);
site!(prune_one_dentry, PRUNE_ONE_DENTRY);
site!(select_parent, SELECT_PARENT);
site!(timer, TIMER);
site!(i_sem, I_SEM_LINE);
site!(slab, SLAB);
site!(audit, AUDIT);

const ROUTINES: &[(u32, &str)] = &[
    (D_ALLOC, "d_alloc"),
    (D_DELETE, "d_delete"),
    (D_DROP, "d_drop"),
    (D_INSTANTIATE, "d_instantiate"),
    (D_LOOKUP, "d_lookup"),
    (D_MOVE, "d_move"),
    (D_REHASH, "d_rehash"),
    (D_UNHASH, "d_unhash"),
    (DPUT, "dput"),
    (DPUT_KILL, "dput (kill)"),
    (LINK_PATH_WALK, "link_path_walk"),
    (PATH_LOOKUP, "path_lookup"),
    (PRUNE_DCACHE, "prune_dcache"),
    (PRUNE_ONE_DENTRY, "prune_one_dentry"),
    (SELECT_PARENT, "select_parent"),
    (TIMER, "timer"),
    (I_SEM_LINE, "real_lookup"),
    (SLAB, "kmem_cache_alloc"),
    (AUDIT, "audit"),
];

/// Name of the routine that takes its lock in this file at `line`.
pub(super) fn routine(file: &str, line: u32) -> Option<&'static str> {
    let found = || ROUTINES.iter().find(|(at, _)| *at == line).map(|(_, name)| *name);
    (file == file!()).then(found).flatten()
}
