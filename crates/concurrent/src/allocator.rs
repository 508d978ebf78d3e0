//! The memory that the global allocator keeps.
//!
//! # Boundary
//! Three calls of the C library: mallopt(3), malloc_trim(3) and mallinfo2(3). The caller decides when memory is
//! returned to the system. If the C library is not glibc, nothing happens and nothing is free.
//!
//! # Concurrency
//! The C library takes its own locks: an arena is trimmed under its lock, and a thread that allocates from it meanwhile
//! waits. No lock of uvfs is taken, so every call may be made with one held.
//!
//! # Why
//! `rustix` has none of these calls, and a program that bounds its memory forbids `unsafe`, so they are here with all
//! unsafe code of uvfs. Before, the program restarted itself with `MALLOC_ARENA_MAX`, which showed in process lists and
//! lost the open files of the first start. Weakness: existing arenas are kept, so the program must call [`keep_little`]
//! before it starts threads.

/// Free memory that stays at the top of an arena, and the size from which each block is a mapping of its own.
#[cfg(all(not(loom), target_env = "gnu"))]
const THRESHOLD_BYTES: libc::c_int = 128 << 10;

/// Makes the allocator use one arena, and return large blocks and a long free end at once. Call it before the program
/// has threads.
pub fn keep_little() {
    #[cfg(all(not(loom), target_env = "gnu"))]
    for (what, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_TRIM_THRESHOLD, THRESHOLD_BYTES),
        (libc::M_MMAP_THRESHOLD, THRESHOLD_BYTES),
    ] {
        // SAFETY: numbers only; the C library takes its own locks.
        let known = unsafe { libc::mallopt(what, value) };
        debug_assert_eq!(known, 1, "a setting of every glibc");
    }
}

/// Returns free memory to the system, also from the middle of the heap. Takes time in proportion to the heap: a
/// millisecond for some megabytes.
pub fn give_back() {
    #[cfg(all(not(loom), target_env = "gnu"))]
    // SAFETY: numbers only; the C library takes its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Bytes that the allocator has and the program does not use; some may be returned to the system already.
pub fn free_bytes() -> usize {
    #[cfg(all(not(loom), target_env = "gnu"))]
    // SAFETY: returns numbers; the C library takes its own locks.
    return unsafe { libc::mallinfo2() }.fordblks;
    #[cfg(not(all(not(loom), target_env = "gnu")))]
    0
}

#[cfg(all(test, not(loom), target_env = "gnu"))]
mod tests {
    use super::*;

    fn resident_bytes() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * rustix::param::page_size()
    }

    /// The body of the next test, in a process of its own: other tests would allocate and free meanwhile.
    fn in_its_own_process() {
        let small = || vec![1u8; 1000].into_boxed_slice();
        let mut blocks: Vec<_> = (0..65_536).map(|_| small()).collect();
        let last = blocks.pop();
        drop(blocks);
        let (before, free) = (resident_bytes(), free_bytes());
        assert!(free > 60 << 20, "{free}");
        give_back();
        let after = resident_bytes();
        assert!(after + (48 << 20) < before, "{before} -> {after}");
        assert!(last.is_some_and(|block| block[999] == 1));
        println!("given back");
    }

    /// Bug: a mount with a limit of 16 MiB kept 62 MB resident after everything had been dropped: free blocks below
    /// some blocks in use.
    #[test]
    fn free_blocks_below_one_in_use_go_back_to_the_system() {
        const INNER: &str = "UVFS_TEST_IN_ITS_OWN_PROCESS";
        if std::env::var_os(INNER).is_some() {
            return in_its_own_process();
        }
        let name = "allocator::tests::free_blocks_below_one_in_use_go_back_to_the_system";
        let outcome = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INNER, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
        assert!(outcome.status.success() && said.contains("given back"), "{said}{errors}");
    }

    #[test]
    fn keeping_little_is_possible() {
        keep_little();
        assert!(vec![1u8; 1 << 20].len() == 1 << 20);
    }
}
