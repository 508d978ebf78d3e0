//! Copies of bytes that another thread may be writing or reading at the same time.
//!
//! A reader by version copies first and then checks that the page's bytes did not change ([`super`], F4). In Rust a
//! plain copy that races with a write is undefined even if its result is discarded, so no copy here is plain. On x86-64
//! it is assembly, which the compiler treats as unknown accesses, equal to relaxed atomic ones of unknown width.
//! Elsewhere, and under Miri, it is relaxed atomic words.
//!
//! # Boundary
//! Raw pointers in, no protocol. Nothing here orders anything: the fences are in `word`.
//!
//! # Why
//! Measured on a Xeon with fast `rep movsb` (FSRM), ns for 64 B, 1 KiB, 4 KiB from cached frames: plain copy 2, 8, 32;
//! `rep movsb` 3, 16, 31; sixteen bytes at a time 2, 10 to 25, 44 to 78; atomic words 2, 20, 77. From uncached frames:
//! 8, 59, 255; 9, 64, 252; 8, 125, 280; 12, 155, 305. So short copies use sixteen bytes at a time, or two accesses.
//! Longer ones use `rep movsb`, which costs nothing for a whole page. With a short count it would delay the next lookup
//! (8 bytes from uncached pages: 245 ns against 86).
//! Weakness: processors without FSRM need some tens of nanoseconds to start `rep movsb`.

/// Copies `to.len()` bytes from `from`, to which other threads may be writing.
///
/// # Safety
/// `from` is readable for that many bytes and does not overlap `to`. All other accesses to it during the call come
/// through this module or from the kernel.
#[inline]
pub(super) unsafe fn load(from: *const u8, to: &mut [u8]) {
    // SAFETY: the caller's promise.
    unsafe { racing::load(from, to.as_mut_ptr(), to.len()) };
}

/// Copies `from` to `to`, from which other threads may be reading.
///
/// # Safety
/// The same as for [`load`], with `to` writable.
#[inline]
pub(super) unsafe fn store(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { racing::store(from.as_ptr(), to, from.len()) };
}

/// Zeroes `bytes` bytes from `to` on, from which other threads may be reading.
///
/// # Safety
/// The same as for [`store`].
pub(super) unsafe fn zero(to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { racing::zero(to, bytes) };
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod racing {
    use std::arch::asm;

    /// Copies shorter than this take sixteen bytes at a time.
    const SHORT: usize = 256;

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn load(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(from, to, bytes) };
    }

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn store(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { copy(from, to, bytes) };
    }

    /// # Safety
    /// The same as for `load` and `store` in [`super`].
    #[inline]
    unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
        if bytes < SHORT {
            // SAFETY: the caller's promise; `bytes` is at least the number in the function's name.
            return unsafe {
                match bytes {
                    16.. => copy_short(from, to, bytes),
                    8..16 => copy_8_to_16(from, to, bytes),
                    4..8 => copy_4_to_8(from, to, bytes),
                    2..4 => copy_2_to_4(from, to, bytes),
                    1 => copy_1(from, to),
                    0 => {}
                }
            };
        }
        // SAFETY: reads and writes `bytes` bytes, by the caller's promise. The ABI guarantees a clear direction flag on
        // entry; flags are kept. The compiler must assume that the block accesses any memory, so it may not assume that
        // those bytes are stable.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rdi") to => _,
                inout("rsi") from => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// Copies sixteen bytes at a time, and then the last sixteen, even if some of them were copied before.
    ///
    /// # Safety
    /// The same as for `copy`, with at least sixteen bytes.
    #[inline]
    unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise. The loop covers whole sixteens; the last access ends at the end, and begins
        // inside because there are at least sixteen bytes.
        unsafe {
            asm!(
                "xor {at:e}, {at:e}",
                "2:",
                "movups {value}, [{from} + {at}]",
                "movups [{to} + {at}], {value}",
                "add {at}, 16",
                "cmp {at}, {last}",
                "jb 2b",
                "movups {value}, [{from} + {last}]",
                "movups [{to} + {last}], {value}",
                at = out(reg) _,
                value = out(xmm_reg) _,
                from = in(reg) from,
                to = in(reg) to,
                last = in(reg) bytes - 16,
                options(nostack)
            );
        }
    }

    /// Copies by a first and a last access of `$size` bytes each, which may overlap.
    macro_rules! two_accesses {
        ($name:ident, $size:literal, $class:ident, $modifier:literal) => {
            /// # Safety
            /// The same as for `copy`, with at least `$size` bytes.
            #[inline]
            unsafe fn $name(from: *const u8, to: *mut u8, bytes: usize) {
                // SAFETY: the caller's promise; both accesses are inside, because there are at least `$size` bytes.
                unsafe {
                    asm!(
                        concat!("mov {head", $modifier, "}, [{from}]"),
                        concat!("mov {tail", $modifier, "}, [{from} + {last}]"),
                        concat!("mov [{to}], {head", $modifier, "}"),
                        concat!("mov [{to} + {last}], {tail", $modifier, "}"),
                        head = out($class) _,
                        tail = out($class) _,
                        from = in(reg) from,
                        to = in(reg) to,
                        last = in(reg) bytes - $size,
                        options(nostack, preserves_flags)
                    );
                }
            }
        };
    }
    two_accesses!(copy_8_to_16, 8, reg, ":r");
    two_accesses!(copy_4_to_8, 4, reg, ":e");
    two_accesses!(copy_2_to_4, 2, reg, ":x");

    /// # Safety
    /// The same as for `copy`, with at least one byte.
    #[inline]
    unsafe fn copy_1(from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise, for one byte.
        unsafe {
            asm!(
                "mov {value}, [{from}]",
                "mov [{to}], {value}",
                value = out(reg_byte) _,
                from = in(reg) from,
                to = in(reg) to,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn zero(to: *mut u8, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: writes `bytes` bytes, by the caller's promise; flags as in `copy`.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") bytes => _,
                inout("rdi") to => _,
                in("al") 0u8,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Relaxed atomic accesses: words where the frame's side is aligned, bytes at the ends. On x86-64, compiled for tests
/// only.
#[cfg(any(test, not(target_arch = "x86_64"), miri))]
#[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code))]
mod words {
    // Not `primitive::atomic`: a model cannot watch the bytes of a mapping, and a tally of every word would be useless.
    use uvfs_concurrent::primitive::unseen::{AtomicU8, AtomicUsize, Ordering};

    const WORD: usize = size_of::<usize>();

    /// Lengths of the head before the first aligned word, of the words, and of the tail.
    fn parts(racing: *const u8, bytes: usize) -> (usize, usize) {
        let head = (racing.addr().wrapping_neg() % WORD).min(bytes);
        (head, head + (bytes - head) / WORD * WORD)
    }

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn load(from: *const u8, to: *mut u8, bytes: usize) {
        let (head, tail) = parts(from, bytes);
        for at in (0..head).chain(tail..bytes) {
            // SAFETY: inside both ranges; other threads access the byte atomically (the caller's promise).
            unsafe {
                // ORDERING: Relaxed; the fences around the copy order it.
                to.add(at).write((*from.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed));
            }
        }
        for at in (head..tail).step_by(WORD) {
            // SAFETY: inside both ranges, atomic for other threads, and aligned by `parts`.
            unsafe {
                // ORDERING: Relaxed; the fences around the copy order it.
                let word = (*from.add(at).cast::<AtomicUsize>()).load(Ordering::Relaxed);
                to.add(at).cast::<usize>().write_unaligned(word);
            }
        }
    }

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn store(from: *const u8, to: *mut u8, bytes: usize) {
        let (head, tail) = parts(to, bytes);
        for at in (0..head).chain(tail..bytes) {
            // SAFETY: inside both ranges; other threads access the byte atomically (the caller's promise).
            unsafe {
                // ORDERING: Relaxed; the fences around the copy order it.
                (*to.add(at).cast::<AtomicU8>()).store(from.add(at).read(), Ordering::Relaxed);
            }
        }
        for at in (head..tail).step_by(WORD) {
            // SAFETY: inside both ranges, atomic for other threads, and aligned by `parts`.
            unsafe {
                let word = from.add(at).cast::<usize>().read_unaligned();
                // ORDERING: Relaxed; the fences around the copy order it.
                (*to.add(at).cast::<AtomicUsize>()).store(word, Ordering::Relaxed);
            }
        }
    }

    /// # Safety
    /// The same as for the function of this name in [`super`].
    pub(super) unsafe fn zero(to: *mut u8, bytes: usize) {
        for at in 0..bytes {
            // SAFETY: inside the range; other threads access the byte atomically (the caller's promise).
            unsafe {
                // ORDERING: Relaxed; the fences around the copy order it.
                (*to.add(at).cast::<AtomicU8>()).store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
use words as racing;

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: a type of functions only; `check` calls them on ranges of its own.
    type Copy = unsafe fn(*const u8, *mut u8, usize);

    /// Every length around the limits, at every offset of the frame's side, with neighbouring bytes that must not
    /// change.
    fn check(load: Copy, store: Copy, zero: unsafe fn(*mut u8, usize)) {
        let lengths = (0..70).chain([255, 256, 257, 511, 4096]);
        for (bytes, offset) in lengths.flat_map(|bytes| (0..17).map(move |offset| (bytes, offset)))
        {
            let source: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
            for copy in [load, store] {
                let mut target = vec![0xee; 5000];
                // SAFETY: both vectors are long enough, and local to this function.
                unsafe { copy(source[offset..].as_ptr(), target[3..].as_mut_ptr(), bytes) };
                assert_eq!(target[3..3 + bytes], source[offset..offset + bytes]);
                assert!(target[..3].iter().chain(&target[3 + bytes..]).all(|&byte| byte == 0xee));
                // SAFETY: both vectors are long enough, and local to this function.
                unsafe { copy(source.as_ptr(), target[offset..].as_mut_ptr(), bytes) };
                assert_eq!(target[offset..offset + bytes], source[..bytes]);
            }
            let mut target = vec![0xee; 5000];
            // SAFETY: the vector is long enough, and local to this function.
            unsafe { zero(target[offset..].as_mut_ptr(), bytes) };
            assert!(target[offset..offset + bytes].iter().all(|&byte| byte == 0));
            assert_eq!(target.iter().filter(|&&byte| byte == 0).count(), bytes);
        }
    }

    #[test]
    fn copies_are_exact_at_every_length_and_offset() {
        check(racing::load, racing::store, racing::zero);
    }

    #[test]
    fn word_copies_are_exact_too() {
        check(words::load, words::store, words::zero);
    }
}
