//! An array of buckets, and the header that leads to the next one.
//!
//! ```text
//!   allocation  ..│ header: next, growing │ migrated, cursor │ bucket 0 │ bucket 1 │ ..
//!   array word    address of bucket 0 : 58 | log2(buckets) : 6
//! ```
//!
//! # Boundary
//! Memory and addresses. [`super`] decides which threads may reach an array, and when it is freed.
//!
//! # Why
//! A reader takes base and size from one word and reads the header only if a bucket has
//! moved. The memory comes zeroed, with an alignment that the allocator can serve by fresh pages of
//! the system. So a large array uses memory only where it is touched. Weakness: that alignment
//! wastes up to 48 bytes, and arrays never shrink.

use super::bucket::Bucket;
use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr;
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The largest log2 of a number of buckets: the index bits that an entry keeps.
pub(super) const LOG2_MAX: u32 = 32;

/// The memory before the first bucket.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Header {
    /// The next array's word; 0 until this one grows.
    next: AtomicU64,
    /// A thread is allocating, or has allocated, the next array (B6).
    pub(super) growing: AtomicBool,
    /// The address that the global allocator returned.
    allocation: *mut u8,
    counts: Counts,
}

/// Written while the array grows, so not on the line of `next`.
#[derive(Debug)]
#[repr(align(64))]
struct Counts {
    /// Buckets that have moved.
    migrated: AtomicUsize,
    /// Buckets claimed by helpers.
    cursor: AtomicUsize,
}

/// An array that is not freed during `'g`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Array<'g> {
    word: u64,
    life: PhantomData<&'g Header>,
}

/// The alignment that the allocator serves without touching every page.
const ALIGN: usize = 16;

/// The alignment of an array's buckets: huge pages, if they fill at least about half of one.
fn alignment(log2: u32) -> usize {
    #[cfg(not(loom))]
    if size_of::<Bucket>() << log2 >= crate::huge::HUGE_BYTES / 2 {
        return crate::huge::HUGE_BYTES;
    }
    let _ = log2;
    align_of::<Header>()
}

fn layout(log2: u32) -> Layout {
    // Room to move the start to an aligned address; the memory before it is never touched.
    let bytes = bytes(log2) + alignment(log2) - ALIGN;
    Layout::from_size_align(bytes, ALIGN).expect("an array that fits into memory")
}

/// The memory of an array of `1 << log2` buckets.
pub(super) fn bytes(log2: u32) -> usize {
    size_of::<Header>() + (size_of::<Bucket>() << log2)
}

impl<'g> Array<'g> {
    /// An array of vacant buckets, as a word that its owner finally passes to `free`. None if the
    /// allocator has no memory.
    pub(super) fn allocate(log2: u32) -> Option<u64> {
        // SAFETY: the layout is not empty.
        let allocation = unsafe { std::alloc::alloc_zeroed(layout(log2)) };
        if allocation.is_null() {
            return None;
        }
        allocation.expose_provenance();
        #[cfg(not(loom))]
        // SAFETY: fresh memory that only this thread has.
        unsafe {
            crate::huge::advise(allocation, layout(log2).size());
        }
        // The header ends at the first aligned bucket.
        let header_bytes = size_of::<Header>();
        let buckets = (allocation.addr() + header_bytes).next_multiple_of(alignment(log2));
        let start = buckets - header_bytes;
        let header = ptr::with_exposed_provenance_mut::<Header>(start);
        let fresh = Header {
            next: AtomicU64::new(0),
            growing: AtomicBool::new(false),
            allocation,
            counts: Counts { migrated: AtomicUsize::new(0), cursor: AtomicUsize::new(0) },
        };
        // SAFETY: the layout has room for the header and the buckets after an aligned start; zeroed
        // memory is vacant buckets already, but for the model checker.
        unsafe {
            header.write(fresh);
            if cfg!(loom) {
                let buckets = header.add(1).cast::<Bucket>();
                (0..1usize << log2).for_each(|index| buckets.add(index).write(Bucket::new()));
            }
        }
        Some((start + size_of::<Header>()) as u64 | u64::from(log2))
    }

    /// # Safety
    /// `word` is an array's word, and the array is not freed during `'g`.
    #[inline]
    pub(super) unsafe fn of(word: u64) -> Self {
        Self { word, life: PhantomData }
    }

    pub(super) fn word(self) -> u64 {
        self.word
    }

    #[inline]
    pub(super) fn log2(self) -> u32 {
        (self.word & 63) as u32
    }

    /// The number of buckets.
    #[inline]
    pub(super) fn buckets(self) -> usize {
        1 << self.log2()
    }

    /// The bucket of a hash, or of an index: only the low bits count.
    #[inline]
    pub(super) fn bucket(self, hash: u64) -> &'g Bucket {
        let index = hash as usize & (self.buckets() - 1);
        let base = ptr::with_exposed_provenance::<Bucket>((self.word & !63) as usize);
        // SAFETY: inside the array, which lives for `'g` (`of`).
        unsafe { &*base.add(index) }
    }

    pub(super) fn header(self) -> &'g Header {
        let base = ptr::with_exposed_provenance::<Header>((self.word & !63) as usize);
        // SAFETY: the header lies before the buckets (`allocate`), and lives for `'g` (`of`).
        unsafe { &*base.sub(1) }
    }

    /// The array into which this one grows, once there is one.
    pub(super) fn next(self) -> Option<Self> {
        // ORDERING: Acquire, partner `set_next` (O5): a thread that sees the array sees its buckets
        // vacant.
        let word = self.header().next.load(Ordering::Acquire);
        // SAFETY: an array is freed only after a grace period. The period begins when no array that
        // new readers can reach leads to it, so not while this one is held (B7).
        (word != 0).then(|| unsafe { Self::of(word) })
    }

    pub(super) fn set_next(self, word: u64) {
        // ORDERING: Release, partner `next` (O5). Relaxed would publish the array before its zeros.
        self.header().next.store(word, Ordering::Release);
    }

    /// Claims `count` buckets to be moved; the range may be empty.
    pub(super) fn claim(self, count: usize) -> std::ops::Range<usize> {
        let cursor = &self.header().counts.cursor;
        // ORDERING: Relaxed; a share of work, the buckets' locks order the rest. Read first, so
        // that the cursor stops counting when all buckets are claimed.
        if cursor.load(Ordering::Relaxed) >= self.buckets() {
            return 0..0;
        }
        // ORDERING: Relaxed; a share of work.
        let first = cursor.fetch_add(count, Ordering::Relaxed);
        first.min(self.buckets())..first.saturating_add(count).min(self.buckets())
    }

    /// Counts a moved bucket; true for the last one.
    pub(super) fn count_migrated(self) -> bool {
        // ORDERING: AcqRel, partner itself (O7): the thread that counts the last bucket lets
        // readers begin in the next array. It has seen all buckets that other threads moved there.
        self.header().counts.migrated.fetch_add(1, Ordering::AcqRel) + 1 == self.buckets()
    }

    /// Frees an array, in the form that [`uvfs_concurrent::epoch::Guard::retire`] takes: `word` is not a
    /// pointer but the array's word.
    ///
    /// # Safety
    /// `word` is of an array that no thread can reach any more. Called once.
    pub(super) unsafe fn free(word: *mut ()) {
        // SAFETY: the caller's promise; neither header nor buckets need a destructor.
        unsafe {
            let array = Array::of(word.addr() as u64);
            let (allocation, log2) = (array.header().allocation, array.log2());
            std::alloc::dealloc(allocation, layout(log2));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn buckets_fill_whole_lines_and_indices_wrap() {
        for log2 in [0, 1, 5, 12] {
            // SAFETY: freed at the end of the round, not used after.
            let array = unsafe { Array::of(Array::allocate(log2).unwrap()) };
            assert_eq!(array.buckets(), 1 << log2);
            let first = ptr::from_ref(array.bucket(0)).addr();
            assert_eq!(first % 64, 0);
            for index in 0..array.buckets() as u64 {
                let bucket = ptr::from_ref(array.bucket(index | 1 << 40)).addr();
                assert_eq!(bucket, first + index as usize * 64);
                assert!(!array.bucket(index).control().is_moved());
            }
            assert!(array.next().is_none());
            // SAFETY: allocated above, used by no other thread.
            unsafe { Array::free(ptr::without_provenance_mut(array.word() as usize)) };
        }
    }

    #[test]
    fn every_bucket_is_claimed_once() {
        // SAFETY: freed at the end, not used after.
        let array = unsafe { Array::of(Array::allocate(4).unwrap()) };
        let claimed: Vec<_> = (0..9).flat_map(|_| array.claim(3)).collect();
        assert_eq!(claimed, (0..16).collect::<Vec<_>>());
        assert_eq!((0..16).map(|_| array.count_migrated()).filter(|last| *last).count(), 1);
        // SAFETY: allocated above, used by no other thread.
        unsafe { Array::free(ptr::without_provenance_mut(array.word() as usize)) };
    }
}
