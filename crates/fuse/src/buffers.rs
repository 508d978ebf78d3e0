//! Buffers for replies to reads: one for each thread, and a limit for all threads together.
//!
//! # Boundary
//! Lends memory and counts it. The caller fills it.
//!
//! # Concurrency
//! A buffer belongs to its thread. The sum is one word, changed when a buffer grows or is freed.
//!
//! # Why
//! A thread kept the largest buffer that it had ever needed. After 160 threads had each read 1 MiB once from a slow
//! store, they kept 160 MiB beside a budget of 16. Now all threads together keep [`KEPT_MAX`]; buffers in use beyond
//! that count in the budget of the caches. Weakness: each mount of a process counts the buffers of all of them.

use std::cell::RefCell;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_fuse_device::ring;

/// Most that threads keep for their next reads, all together. As much as the mount tool sets aside for requests.
pub(crate) const KEPT_MAX: u64 = 4 << 20;

/// Bytes of all buffers of the process.
static HELD: AtomicU64 = AtomicU64::new(0);

/// A thread's buffer. Its bytes leave the sum when it is dropped.
#[derive(Default)]
struct Buffer(Vec<u8>);

impl Buffer {
    fn grow(&mut self, size: usize) {
        if self.0.len() >= size {
            return;
        }
        self.free();
        self.0 = vec![0; size];
        // ORDERING: Relaxed; a size.
        HELD.fetch_add(size as u64, Relaxed);
    }

    fn free(&mut self) {
        let gone = std::mem::take(&mut self.0).len() as u64;
        // ORDERING: Relaxed; a size.
        HELD.fetch_sub(gone, Relaxed);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.free();
    }
}

/// Lends this thread's buffer.
pub(crate) fn with_buffer<T>(size: usize, action: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local!(static BUFFER: RefCell<Buffer> = RefCell::default());
    BUFFER.with_borrow_mut(|buffer| {
        buffer.grow(size);
        let done = action(&mut buffer.0[..size]);
        if held_bytes() > KEPT_MAX {
            buffer.free();
        }
        done
    })
}

/// Bytes of all buffers, kept and in use, and of the slots of rings.
fn held_bytes() -> u64 {
    // ORDERING: Relaxed; a size.
    HELD.load(Relaxed) + ring::held_bytes()
}

/// Bytes of all buffers beyond those that are set aside for requests.
pub(crate) fn extra_bytes() -> u64 {
    held_bytes().saturating_sub(KEPT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// Threads that had read much once kept as much until they ended.
    #[test]
    fn what_threads_keep_for_their_next_read_has_a_bound() {
        const THREADS: usize = 16;
        let (all_read, all_looked) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    with_buffer(1 << 20, |buffer| {
                        buffer.fill(1);
                        all_read.wait();
                        all_looked.wait();
                    });
                    all_read.wait();
                    all_looked.wait();
                });
            }
            all_read.wait();
            let in_use = (THREADS as u64) << 20;
            assert!(extra_bytes() >= in_use - KEPT_MAX, "what is in use counts");
            all_looked.wait();
            all_read.wait();
            // Other tests of this process read a little, too.
            let kept = held_bytes();
            assert!(kept <= KEPT_MAX + (1 << 20), "{kept} bytes are kept");
            all_looked.wait();
        });
    }
}
