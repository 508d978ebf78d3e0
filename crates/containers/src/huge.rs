//! Huge pages for memory that lookups access at random.
//!
//! # Boundary
//! Advice to the kernel, nothing more: the content of memory is the same with and without.
//!
//! # Why
//! A lookup among millions of names touches a page without a cached translation, and walks the page table first; in a
//! virtual machine twice. Pages of 2 MiB make that rare (MADV_HUGEPAGE in madvise(2)). Small tables do not ask: a huge
//! page that is touched once uses all its memory. Weakness: if huge pages are off or memory is fragmented, nothing
//! happens.
//!
//! Memory that grows with a stream is touched in small pages and gathered into huge ones later (MADV_COLLAPSE, Linux
//! 6.1): the host of a virtual machine supplies a new huge page so slowly that a stream took three times as long. Small
//! pages often are memory that was used before.

/// A huge page on x86-64 and most others.
#[cfg(not(loom))]
pub(crate) const HUGE_BYTES: usize = 2 << 20;

/// Asks for huge pages for `bytes` from `start` on, as far as whole ones fit.
///
/// # Safety
/// The range is allocated, and only the caller uses it.
#[cfg(not(loom))]
pub(crate) unsafe fn advise(start: *mut u8, bytes: usize) {
    let skip = start.align_offset(HUGE_BYTES);
    let Some(whole) = bytes.checked_sub(skip).map(|rest| rest / HUGE_BYTES * HUGE_BYTES) else {
        return;
    };
    if whole > 0 {
        // SAFETY: inside the caller's range; the advice does not change what memory holds.
        let _ = unsafe {
            let from = start.add(skip).cast();
            rustix::mm::madvise(from, whole, rustix::mm::Advice::LinuxHugepage)
        };
    }
}

/// Whether the system lets programs have huge pages.
#[cfg(not(loom))]
pub(crate) fn allowed() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

/// Moves the contents of [`HUGE_BYTES`] bytes from `start` on into one huge page. Threads that use them meanwhile wait. False
/// if the system does not do that at all.
///
/// # Safety
/// The range is a part of a private mapping, and begins where a huge page can.
#[cfg(not(loom))]
pub(crate) unsafe fn gather(start: *mut u8) -> bool {
    debug_assert_eq!(start.align_offset(HUGE_BYTES), 0);
    // SAFETY: the caller's range; neither call changes what memory holds.
    unsafe {
        advise(start, HUGE_BYTES);
        libc::madvise(start.cast(), HUGE_BYTES, libc::MADV_COLLAPSE) == 0
            || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINVAL)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn advice_leaves_memory_as_it_is() {
        let mut memory = vec![7u8; 5 * HUGE_BYTES / 2];
        // SAFETY: the vector's own bytes.
        unsafe { advise(memory.as_mut_ptr(), memory.len()) };
        assert!(memory.iter().all(|&byte| byte == 7));
        // SAFETY: the vector's own bytes; no whole huge page fits.
        unsafe { advise(memory.as_mut_ptr(), 100) };
    }
}
