//! The stripe of a thread: which of several equal parts of a structure it uses.
//!
//! # Boundary
//! A number below [`STRIPES`] for each thread. The caller defines the parts.
//!
//! # Why
//! Threads get the numbers in turn, so that up to [`STRIPES`] threads that start one after another have one each. The
//! processor's number would be better for more threads than that, but it needs a system call or an instruction that not
//! all processors have. Weakness: two threads that start far apart may share a stripe while others are unused.

use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};

/// How many there are.
pub(super) const STRIPES: usize = 64;

/// This thread's stripe.
pub(super) fn mine() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // ORDERING: Relaxed; a number that differs from those of the threads before is all that is wanted.
        static MINE: usize = NEXT.fetch_add(1, Relaxed) % STRIPES;
    }
    MINE.with(|mine| *mine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_stripe() {
        let first = mine();
        assert!(first < STRIPES);
        assert_eq!(mine(), first);
    }
}
